//! Reductions over the in-edges of a destination, of one semantic graph or of the whole family: `sum(x) over in_edges`,
//! `softmax(x) over in_edges across graphs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_space;
use hgnnc_hir::{ExprKind as Kind, Reduction, Row, Type};
use hgnnc_ir::{BinaryOp, Graph, Space, VertexType};
use hgnnc_syntax::ast::Ident;

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::layer::LayerCx;
use crate::operators::Operand;
use crate::value::{Term, Typed};

impl Checker<'_> {
    /// Reduces the in-edges of each destination, of one semantic graph or of all of the family together.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn over_in_edges(
        &mut self,
        kind: Reduction,
        x: Term,
        x_span: Span,
        across: bool,
        over: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Result<Term, Mistake> {
        let layer = match (scope.place, scope.layer) {
            (Place::Aggregate, Some(layer)) => layer,
            _ => {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::WRONG_SCOPE,
                        over.span,
                        "`over in_edges` belongs into an `aggregate` block",
                        "there are no edges here",
                    )
                    .help("reduce over `vertices`, `last` or `across` the family here"),
                ));
            }
        };
        if kind == Reduction::Concat {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "vertices have different numbers of in-edges: they cannot be concatenated",
                "use sum, mean, max, min or softmax",
            )));
        }
        let (x, rows) = self.edge_values(x, x_span, layer, scope)?;
        let graphs: Arc<[Graph]> = scope.graphs.iter().map(|&position| layer.graphs[position]).collect();
        if kind == Reduction::Softmax {
            for &graph in &*graphs {
                self.not_of_pairs(graph, "in-edges to reduce", over.span)?;
            }
            return self.softmax_over_edges(x, rows, (graphs, layer), across, (x_span, span));
        }
        for (&graph, row) in graphs.iter().zip(&rows) {
            self.not_of_pairs(graph, "in-edges to reduce", over.span)?;
            self.usable(row, x_span)?;
        }
        let destination = |position: usize| layer.ends[position].1;
        let reduced = scope.graphs.iter().zip(rows).map(|(&position, row)| {
            (destination(position), Row::dense(Space::Vertices(destination(position)), row.widths))
        });
        let kind_of = |x| Kind::OverInEdges { x, reduction: kind, across, graphs };
        if !across {
            let ty = Type::PerGraph(reduced.map(|(_, row)| row).collect());
            return Ok(Term::Value(self.expr(kind_of(x.id), ty, span)));
        }
        // Per destination type: all graphs that end there.
        let mut types: BTreeMap<VertexType, Row> = BTreeMap::new();
        for (vertex, row) in reduced {
            let joined = match types.remove(&vertex) {
                None => row,
                Some(known) => {
                    self.elementwise(BinaryOp::Add, Operand::of(&known, span), Operand::of(&row, span), span)?
                }
            };
            types.insert(vertex, joined);
        }
        // A vertex type in which no semantic graph ends has only vertices without in-edges.
        if let Some(widths) = types.values().next().map(|row| row.widths.clone())
            && kind != Reduction::LogSumExp
        {
            let others = layer.vertex_fields.values().flat_map(|values| values.keys().copied());
            for vertex in others.collect::<BTreeSet<_>>() {
                types.entry(vertex).or_insert_with(|| Row::dense(Space::Vertices(vertex), widths.clone()));
            }
        }
        Ok(Term::Value(self.expr(kind_of(x.id), Type::PerType(types), span)))
    }

    /// Edge values, one for each graph in scope; single values are repeated for every edge.
    fn edge_values(
        &mut self,
        x: Term,
        x_span: Span,
        layer: &LayerCx<'_>,
        scope: &Scope<'_>,
    ) -> Result<(Typed, Vec<Row>), Mistake> {
        let x = match x {
            Term::Value(_) | Term::Number(_) | Term::AnyNumber => self.value(x, x_span)?.expect("it is no mistake"),
            other => return Err(Box::new(self.not_a_value(&other, x_span))),
        };
        let rows = match &*x.ty {
            Type::PerGraph(rows) => rows.clone(),
            Type::One(row) => vec![row.clone(); scope.graphs.len()],
            Type::PerType(_) | Type::ByGraph(_) => {
                return Err(Box::new(self.not_a_value(&Term::Value(x), x_span)));
            }
        };
        let mut edges = vec![];
        for (row, &position) in rows.into_iter().zip(&scope.graphs) {
            let space = Space::Edges(layer.graphs[position]);
            if row.space == Space::Unit {
                edges.push(self.broadcast_row(&row, space, x_span)?);
            } else if row.space == space {
                edges.push(row);
            } else {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::WRONG_SCOPE,
                        x_span,
                        "this value has no in-edges to reduce over",
                        format!("has {}", show_space(&self.model.tables, row.space)),
                    )
                    .help("a reduction over in_edges takes an edge value, such as `e.src.h`"),
                ));
            }
        }
        Ok((x, edges))
    }

    /// `exp(x - lse)`, with the log-sum-exp of the destination's in-edges.
    fn softmax_over_edges(
        &mut self,
        x: Typed,
        rows: Vec<Row>,
        (graphs, layer): (Arc<[Graph]>, &LayerCx<'_>),
        across: bool,
        (x_span, span): (Span, Span),
    ) -> Result<Term, Mistake> {
        let mut types: BTreeMap<VertexType, &Row> = BTreeMap::new();
        for (position, row) in rows.iter().enumerate() {
            self.usable(row, span)?;
            if across {
                let known = *types.entry(layer.ends[position].1).or_insert(row);
                let [known, row] =
                    [known, row].map(|row| Row { space: Space::Vertices(layer.ends[position].1), ..row.clone() });
                self.elementwise(BinaryOp::LogAddExp, Operand::of(&known, span), Operand::of(&row, span), span)?;
            }
        }
        let scores = x.id;
        let kind = Kind::OverInEdges { x: x.id, reduction: Reduction::Softmax, across, graphs };
        let shares = self.expr(kind, Type::PerGraph(rows), span);
        // Across several semantic graphs, scores of the destination and of the graph weigh the graphs.
        let alone = (0..layer.ends.len()).all(|i| layer.ends[..i].iter().all(|(_, dst)| *dst != layer.ends[i].1));
        if !across || alone {
            self.doubt_attention(scores, shares.id, x_span);
        }
        Ok(Term::Value(shares))
    }
}
