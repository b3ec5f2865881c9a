//! Reductions over the in-edges of a destination, of one semantic graph or of the whole family: `sum(x) over in_edges`,
//! `softmax(x) over in_edges across graphs`.

use std::collections::BTreeMap;

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::{BinaryOp, Dim, Direction, Op, Reduce, Space, Type, UnaryOp, VertexType};
use hgnnc_syntax::ast::Ident;

use super::Kind;
use crate::elaborate::{Elaborator, Mistake, Place, Scope};
use crate::layer::LayerCx;
use crate::value::{Term, Val, ValKind, show_space};

/// Smaller than every score that means something, and still finite when it is multiplied by 0.
const LOWEST: f64 = -3.0e38;

impl Elaborator<'_> {
    /// Reduces the in-edges of each destination, of one semantic graph or of all of the family together.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn over_in_edges(
        &mut self,
        kind: Kind,
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
        if kind == Kind::Concat {
            return Err(Box::new(Diagnostic::at(
                codes::WRONG_SCOPE,
                span,
                "vertices have different numbers of in-edges: they cannot be concatenated",
                "use sum, mean, max, min or softmax",
            )));
        }
        let mut edges = self.edge_values(x, x_span, layer, scope)?;
        if kind == Kind::Softmax {
            for &position in &scope.graphs {
                self.not_of_pairs(layer.graphs[position], "in-edges to reduce", over.span)?;
            }
            return self.softmax_over_edges((edges, x_span), layer, across, span);
        }
        // Mean: the sum divided by the degree; max and min: 0 where there is no edge.
        let mut reduced = vec![];
        let mut degrees = vec![];
        for (index, val) in edges.drain(..).enumerate() {
            let graph = layer.graphs[scope.graphs[index]];
            self.not_of_pairs(graph, "in-edges to reduce", over.span)?;
            let value = self.stored(&val, x_span)?;
            let op = Op::Segment { graph, direction: Direction::In, reduce: kind.base() };
            reduced.push(Val { kind: ValKind::Stored(self.emit(op, &[value], span)), widths: val.widths });
            degrees.push(match kind {
                Kind::Mean | Kind::Max | Kind::Min => Some(self.degree(graph, Direction::In, span)),
                Kind::Sum | Kind::Softmax | Kind::LogSumExp | Kind::Concat => None,
            });
        }
        if !across {
            let mut finished = vec![];
            for (val, degree) in reduced.into_iter().zip(degrees) {
                finished.push(self.finish_segment(kind, val, degree, span)?);
            }
            return Ok(Term::PerGraph(finished));
        }
        // Per destination type: all graphs that end there.
        let mut per_type: BTreeMap<VertexType, (Val, Option<Val>)> = BTreeMap::new();
        for ((&position, val), degree) in scope.graphs.iter().zip(reduced).zip(degrees) {
            let dst = layer.ends[position].1;
            let joined = match per_type.remove(&dst) {
                None => (val, degree),
                Some((known, known_degree)) => {
                    let op = match kind {
                        Kind::Sum | Kind::Mean => BinaryOp::Add,
                        Kind::Max => BinaryOp::Max,
                        Kind::Min => BinaryOp::Min,
                        Kind::LogSumExp => BinaryOp::LogAddExp,
                        Kind::Softmax | Kind::Concat => unreachable!("handled above"),
                    };
                    let joined = self.elementwise(op, known, span, val, span, span)?;
                    let degree = match (known_degree, degree) {
                        (Some(a), Some(b)) => Some(self.elementwise(BinaryOp::Add, a, span, b, span, span)?),
                        _ => None,
                    };
                    (joined, degree)
                }
            };
            per_type.insert(dst, joined);
        }
        let mut finished = BTreeMap::new();
        for (vertex, (val, degree)) in per_type {
            finished.insert(vertex, self.finish_segment(kind, val, degree, span)?);
        }
        // A vertex type in which no semantic graph ends has only vertices without in-edges.
        let Some(widths) = finished.values().next().map(|val| val.widths.clone()) else {
            return Ok(Term::PerType(finished));
        };
        let others = layer.vertex_fields.values().flat_map(|values| values.keys().copied());
        for vertex in others.collect::<std::collections::BTreeSet<_>>() {
            if kind != Kind::LogSumExp && !finished.contains_key(&vertex) {
                let dims: Vec<Dim> = widths.iter().map(|w| w.dim).collect();
                let zero = self.emit(Op::Const(0.0), &[], span);
                let value = self.emit(Op::Broadcast(Type::new(Space::Vertices(vertex), dims)), &[zero], span);
                finished.insert(vertex, Val { kind: ValKind::Stored(value), widths: widths.clone() });
            }
        }
        Ok(Term::PerType(finished))
    }

    /// Edge values, one for each graph in scope; single values are repeated for every edge.
    fn edge_values(
        &mut self,
        x: Term,
        x_span: Span,
        layer: &LayerCx<'_>,
        scope: &Scope<'_>,
    ) -> Result<Vec<Val>, Mistake> {
        let vals = match x {
            Term::PerGraph(vals) => vals,
            Term::One(val) => vec![val; scope.graphs.len()],
            Term::Number(number) => {
                let val = self.constant(number, x_span);
                vec![val; scope.graphs.len()]
            }
            other => return Err(Box::new(self.not_a_value(&other, x_span))),
        };
        let mut edges = vec![];
        for (val, &position) in vals.into_iter().zip(&scope.graphs) {
            let space = Space::Edges(layer.graphs[position]);
            let found = val.space(&self.flow);
            if found == Space::Unit {
                edges.push(self.broadcast(val, space, x_span)?);
            } else if found == space {
                edges.push(val);
            } else {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::WRONG_SCOPE,
                        x_span,
                        "this value has no in-edges to reduce over",
                        format!("has {}", show_space(&self.flow, found)),
                    )
                    .help("a reduction over in_edges takes an edge value, such as `e.src.h`"),
                ));
            }
        }
        Ok(edges)
    }

    fn finish_segment(&mut self, kind: Kind, val: Val, degree: Option<Val>, span: Span) -> Result<Val, Mistake> {
        let Some(degree) = degree else { return Ok(val) };
        if kind == Kind::Mean {
            let one = self.constant(1.0, span);
            let divisor = self.elementwise(BinaryOp::Max, degree, span, one, span, span)?;
            return self.elementwise(BinaryOp::Div, val, span, divisor, span, span);
        }
        // Without in-edges the result is 0, not an infinity.
        let (limit, clamp) = if kind == Kind::Max { (LOWEST, BinaryOp::Max) } else { (-LOWEST, BinaryOp::Min) };
        let limit = self.constant(limit, span);
        let finite = self.elementwise(clamp, val, span, limit, span, span)?;
        let zero = self.constant(0.0, span);
        let has_edges = self.elementwise(BinaryOp::Gt, degree, span, zero, span, span)?;
        self.elementwise(BinaryOp::Mul, finite, span, has_edges, span, span)
    }

    /// `exp(x - lse)`, with the log-sum-exp of the destination's in-edges.
    fn softmax_over_edges(
        &mut self,
        (edges, edges_span): (Vec<Val>, Span),
        layer: &LayerCx<'_>,
        across: bool,
        span: Span,
    ) -> Result<Term, Mistake> {
        let mut sums = vec![];
        let mut per_type: BTreeMap<VertexType, Val> = BTreeMap::new();
        for (position, val) in edges.iter().enumerate() {
            let graph = layer.graphs[position];
            let value = self.stored(val, span)?;
            let op = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Lse };
            let lse = Val { kind: ValKind::Stored(self.emit(op, &[value], span)), widths: val.widths.clone() };
            if across {
                let dst = layer.ends[position].1;
                let joined = match per_type.remove(&dst) {
                    None => lse.clone(),
                    Some(known) => self.elementwise(BinaryOp::LogAddExp, known, span, lse.clone(), span, span)?,
                };
                per_type.insert(dst, joined);
            }
            sums.push(lse);
        }
        let mut shares = vec![];
        let mut scores = vec![];
        for (position, val) in edges.into_iter().enumerate() {
            let graph = layer.graphs[position];
            scores.push(self.stored(&val, span)?);
            let lse = if across { per_type[&layer.ends[position].1].clone() } else { sums[position].clone() };
            let lse = self.gather(lse, graph, Direction::In, span);
            let shifted = self.elementwise(BinaryOp::Sub, val, span, lse, span, span)?;
            shares.push(self.apply_unary(UnaryOp::Exp, shifted, span)?);
        }
        // Across several semantic graphs, scores of the destination and of the graph weigh the graphs.
        let alone = (0..layer.ends.len()).all(|i| layer.ends[..i].iter().all(|(_, dst)| *dst != layer.ends[i].1));
        if let (false, Some(ValKind::Stored(share))) = (across && !alone, shares.first().map(|val| &val.kind)) {
            self.doubt_attention(&scores, *share, edges_span);
        }
        Ok(Term::PerGraph(shares))
    }
}
