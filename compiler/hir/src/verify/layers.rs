//! The uses of layers, statements, outputs and the loss; and the expressions that statements evaluate.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_ir::{Direction, Graph, Space, UnaryOp, VertexType};

use super::rows::Rule;
use super::{Place, Verifier};
use crate::{
    Block, BlockKind, Decomposition, Dim, EdgeData, Entry, Expr, ExprId, ExprKind, Form, Initialiser, Instance, Item,
    LayerUse, LossKind, LossTerm, OutputOf, Row, Stmt, StmtKind, Type, Width,
};

impl Verifier<'_> {
    /// Extents are known and numbers are finite where an expression is evaluated.
    pub(super) fn values(&mut self) {
        let mut held = BTreeSet::new();
        for (position, _) in self.model.reached().iter().enumerate().filter(|(_, reached)| **reached) {
            let id = ExprId::new(position);
            let expr = self.model.expr(id);
            if !expr.ty.rows().flat_map(|row| &row.widths).all(is_known) {
                self.report(Place::Expr(id), "an extent is not known, or 0");
            }
            if let Err(broken) = self.evaluated(expr) {
                self.report(Place::Expr(id), broken);
            }
            if let ExprKind::Layer(layer) = expr.kind
                && !held.insert(layer.index())
            {
                self.report(Place::Expr(id), "this use of a layer is evaluated twice");
            }
        }
    }

    fn evaluated(&self, expr: &Expr) -> Rule<()> {
        let number = match &expr.kind {
            ExprKind::Number(number)
            | ExprKind::Unary(UnaryOp::LeakyRelu(number), _)
            | ExprKind::Pow(_, number)
            | ExprKind::Norm { eps: number, .. }
            | ExprKind::L2Normalize(_, number) => Some(*number),
            ExprKind::Dropout(_, rate) if !(0.0..1.0).contains(rate) => {
                return Err("a rate is at least 0 and less than 1".into());
            }
            ExprKind::Param(param, _) => {
                let param = &self.model.params[param.index()];
                match param.decomposition {
                    Decomposition::Basis(width) | Decomposition::Blocks(width) if !is_known(&width) => {
                        return Err("an extent is not known, or 0".into());
                    }
                    Decomposition::None | Decomposition::Basis(_) | Decomposition::Blocks(_) => {}
                }
                match param.init {
                    Initialiser::Constant(number) | Initialiser::Uniform(number) | Initialiser::Normal(number) => {
                        Some(number)
                    }
                    Initialiser::Glorot { .. } | Initialiser::He { .. } => None,
                }
            }
            ExprKind::Zeros if !matches!(&*expr.ty, Type::One(Row { space: Space::Unit, .. })) => {
                return Err("zeros are a single row".into());
            }
            ExprKind::EdgeData(_, data) => {
                let counted = |graph: &Graph| self.model.tables.graphs[graph.index()].counted;
                if data.iter().any(|(graph, data)| matches!(data, EdgeData::Count) && !counted(graph)) {
                    return Err("the edges of a graph do not count their paths".into());
                }
                None
            }
            _ => None,
        };
        if number.is_none_or(f64::is_finite) { Ok(()) } else { Err("a number is not finite".into()) }
    }

    pub(super) fn layers(&mut self) {
        for (row, layer) in self.model.uses.iter().enumerate() {
            if let Err(broken) = self.layer(layer) {
                self.report(Place::Use(row), broken);
            }
        }
    }

    fn layer(&self, layer: &LayerUse) -> Rule<()> {
        let graphs = &layer.graphs[..];
        if graphs.iter().collect::<BTreeSet<_>>().len() < graphs.len() {
            return Err("a semantic graph is twice in its family".into());
        }
        if graphs.len() > 1 && !self.model.tables.families.iter().any(|family| family == graphs) {
            return Err("its family is not declared".into());
        }
        for (name, input) in &layer.inputs {
            match &*self.model.expr(*input).ty {
                Type::PerType(_) => {}
                Type::PerGraph(_) => self.of_family(*input, graphs)?,
                Type::One(_) | Type::ByGraph(_) => return Err(format!("input `{name}` is of no vertices or edges")),
            }
        }
        let mut into: BTreeMap<VertexType, Vec<Graph>> = BTreeMap::new();
        for graph in graphs {
            into.entry(self.end(*graph, Direction::In)).or_default().push(*graph);
        }
        for item in &layer.body {
            match item {
                Item::Stmt(stmt) => match stmt.kind {
                    StmtKind::Param => self.param_stmt(stmt.value, None, &[])?,
                    StmtKind::Let | StmtKind::Assign => {}
                    StmtKind::Output => return Err("outputs are those of the model".into()),
                },
                Item::Block(block) => self.block(block, graphs, &into)?,
            }
        }
        for (name, result) in &layer.results {
            match &*self.model.expr(*result).ty {
                Type::PerType(_) => {}
                Type::ByGraph(rows) if rows.keys().collect::<BTreeSet<_>>() == graphs.iter().collect() => {}
                Type::One(_) | Type::PerGraph(_) | Type::ByGraph(_) => {
                    return Err(format!("result `{name}` is of no vertices or edges"));
                }
            }
        }
        Ok(())
    }

    /// `into` has the graphs of the layer's family that end in a vertex type.
    fn block(&self, block: &Block, graphs: &[Graph], into: &BTreeMap<VertexType, Vec<Graph>>) -> Rule<()> {
        let name = block.kind.name();
        let vertices: Vec<Option<VertexType>> = block.instances.iter().map(|instance| instance.vertex).collect();
        let fits = match block.kind {
            BlockKind::Aggregate => vertices == [None],
            BlockKind::Project | BlockKind::Fuse => {
                vertices.iter().all(Option::is_some) && vertices.iter().collect::<BTreeSet<_>>().len() == vertices.len()
            }
        };
        if !fits {
            return Err(format!("`{name}` runs once for the family, or once for each of several vertex types"));
        }
        for instance in &block.instances {
            let family = match (block.kind, instance.vertex) {
                (BlockKind::Aggregate, _) => graphs,
                (BlockKind::Fuse, Some(vertex)) => into.get(&vertex).map_or(&[][..], Vec::as_slice),
                (BlockKind::Fuse, None) | (BlockKind::Project, _) => &[],
            };
            self.instance(instance, family).map_err(|broken| format!("`{name}`: {broken}"))?;
        }
        Ok(())
    }

    fn instance(&self, instance: &Instance, family: &[Graph]) -> Rule<()> {
        for Stmt { kind, name, value, .. } in &instance.body {
            match kind {
                StmtKind::Param => self.param_stmt(*value, instance.vertex, family)?,
                StmtKind::Let | StmtKind::Assign => {}
                StmtKind::Output => return Err("outputs are those of a model".into()),
            }
            if let Type::PerGraph(_) = &*self.model.expr(*value).ty {
                self.of_family(*value, family).map_err(|broken| format!("`{name}`: {broken}"))?;
            }
        }
        for (name, field) in &instance.fields {
            let fits = match (&*self.model.expr(*field).ty, instance.vertex) {
                (Type::PerGraph(_), None) => self.of_family(*field, family).is_ok(),
                (Type::PerType(_), None) => true,
                (Type::One(row), Some(vertex)) => match row.space {
                    Space::Unit => row.widths.is_empty(),
                    space => space == Space::Vertices(vertex),
                },
                _ => false,
            };
            if !fits {
                return Err(format!("field `{name}` does not have a row for each vertex or edge"));
            }
        }
        Ok(())
    }

    /// Has an expression a value for each of these semantic graphs?
    fn of_family(&self, id: ExprId, graphs: &[Graph]) -> Rule<()> {
        let known = self.families[id.index()].as_deref();
        match known.is_none_or(|known| known == graphs) && self.model.expr(id).ty.num_values() == graphs.len() {
            true => Ok(()),
            false => Err("its values are of other semantic graphs".into()),
        }
    }

    /// A declared parameter has the entries of the vertex type or of the family that its block runs for.
    fn param_stmt(&self, id: ExprId, vertex: Option<VertexType>, family: &[Graph]) -> Rule<()> {
        let Expr { kind: ExprKind::Param(param, entries), ty, .. } = self.model.expr(id) else {
            return Err("a declaration is of a parameter".into());
        };
        let fits = match &**ty {
            Type::One(_) => entries.iter().all(|entry| match entry {
                Entry::Shared => true,
                Entry::Type(of) => Some(*of) == vertex,
                Entry::Graph(_) | Entry::Src(_) | Entry::Dst(_) | Entry::Relation(_) => false,
            }),
            _ => entries.iter().zip(family).all(|(entry, graph)| match entry {
                Entry::Shared | Entry::Type(_) | Entry::Relation(_) => false,
                Entry::Graph(of) => of == graph,
                Entry::Src(of) => *of == self.end(*graph, Direction::Out),
                Entry::Dst(of) => *of == self.end(*graph, Direction::In),
            }),
        };
        let name = &self.model.params[param.index()].name;
        if fits { Ok(()) } else { Err(format!("an entry of `{name}` is of something else")) }
    }

    pub(super) fn statements(&mut self) {
        for (row, Stmt { kind, value, sharing, .. }) in self.model.body.iter().enumerate() {
            let before = &self.model.body[..row];
            if sharing.as_ref().is_some_and(|of| before.iter().all(|stmt| stmt.name != *of)) {
                self.report(Place::Statement(row), "the statement whose parameters it has is not before it");
            }
            let rule = match kind {
                StmtKind::Param => self.param_stmt(*value, None, &[]),
                StmtKind::Let | StmtKind::Output => Ok(()),
                StmtKind::Assign => Err("fields are those of layers".into()),
            };
            let is_family = matches!(&*self.model.expr(*value).ty, Type::PerGraph(_));
            let rule = if is_family { Err("a model has no family".into()) } else { rule };
            if let Err(broken) = rule {
                self.report(Place::Statement(row), broken);
            }
        }
    }

    pub(super) fn outputs(&mut self) {
        for (row, (name, output)) in self.model.outputs.iter().enumerate() {
            let is_it =
                |stmt: &Stmt| (stmt.kind, &stmt.name, stmt.value) == (StmtKind::Output, name, output.of.value());
            if !self.model.body.iter().any(is_it) {
                self.report(Place::Output(row), "it has no statement");
            }
            let fits = match (output.of, &*self.model.expr(output.of.value()).ty) {
                (OutputOf::Vertices(vertex, _), Type::One(row)) => is_output(row, Space::Vertices(vertex)),
                (OutputOf::Links(_), Type::ByGraph(rows)) => rows.iter().all(|(graph, row)| {
                    let is_link = self.model.tables.graphs[graph.index()].links;
                    is_link && *row == Row::dense(Space::Edges(*graph), vec![])
                }),
                (OutputOf::Graphs(_), Type::ByGraph(rows)) => {
                    rows.values().all(|row| is_output(row, Space::Unit)) && same_extents(rows.values())
                }
                (OutputOf::Edges(_), Type::ByGraph(rows)) => {
                    let of_messages = |graph: &Graph| !self.model.tables.graphs[graph.index()].links;
                    rows.iter().all(|(graph, row)| of_messages(graph) && is_output(row, Space::Edges(*graph)))
                        && same_extents(rows.values())
                }
                (OutputOf::Vertices(..) | OutputOf::Links(_) | OutputOf::Graphs(_) | OutputOf::Edges(_), _) => false,
            };
            if !fits {
                self.report(Place::Output(row), "it is no dense value of what it is declared for");
            }
        }
    }

    pub(super) fn loss(&mut self) {
        let Some(loss) = &self.model.loss else { return };
        if loss.terms.is_empty() {
            self.report(Place::Loss, "it has no terms");
        }
        loss.terms.iter().for_each(|term| self.loss_term(term));
    }

    fn focus(&mut self, focus: f64) {
        if !focus.is_finite() || focus < 0.0 {
            self.report(Place::Loss, "the exponent of a focal loss is negative or not finite");
        }
    }

    fn loss_term(&mut self, term: &LossTerm) {
        if !term.weight.is_finite() {
            self.report(Place::Loss, "the weight of a term is not finite");
        }
        if matches!(term.kind, LossKind::Number) {
            let is_number = match &*self.model.expr(term.value).ty {
                Type::One(row) => row.space == Space::Unit && row.form == Form::Dense && row.widths.is_empty(),
                Type::PerGraph(_) | Type::PerType(_) | Type::ByGraph(_) => false,
            };
            if !is_number {
                self.report(Place::Loss, "a term without a label is no single number");
            }
            return;
        }
        let Some(output) = self.model.outputs.values().find(|output| output.of.value() == term.value) else {
            return self.report(Place::Loss, "it is of no output");
        };
        let (label, width) = match &term.kind {
            LossKind::CrossEntropy { label, classes, class_weights, smoothing, focus } => {
                if class_weights.as_ref().is_some_and(|weights| weights.len() != *classes) {
                    self.report(Place::Loss, "it does not have a weight for each class");
                }
                let weights = class_weights.iter().flatten();
                if !(0.0..1.0).contains(smoothing) || !weights.into_iter().all(|weight| weight.is_finite()) {
                    self.report(Place::Loss, "a weight is not finite, or smoothing not less than 1");
                }
                self.focus(*focus);
                (label, *classes)
            }
            LossKind::BinaryCrossEntropy { label, labels, focus } => {
                self.focus(*focus);
                (label, *labels)
            }
            LossKind::Distance { label, width, .. } => (label, *width),
            LossKind::Links(_) => {
                if !matches!(output.of, OutputOf::Links(_)) {
                    self.report(Place::Loss, "the output is not of links");
                }
                return;
            }
            LossKind::Number => return,
        };
        if !matches!(output.of, OutputOf::Vertices(vertex, _) if vertex == label.vertex) {
            self.report(Place::Loss, "the output and the label are not of the same vertices");
        }
        let extents: Vec<Dim> = self.model.expr(term.value).ty.rows().flat_map(Row::dims).collect();
        let is_number = extents.is_empty() && width == 1 && !matches!(term.kind, LossKind::CrossEntropy { .. });
        if extents != [Dim::Fixed(width)] && !is_number {
            self.report(Place::Loss, "the output does not have the width of the label");
        }
    }
}

/// Is it dense, with rows of this space and at most one dimension?
fn is_output(row: &Row, space: Space) -> bool {
    row.space == space && row.form == Form::Dense && row.widths.len() <= 1
}

fn same_extents<'r>(mut rows: impl Iterator<Item = &'r Row>) -> bool {
    let first = rows.next().map(Row::dims);
    rows.all(|row| Some(row.dims()) == first)
}

/// Is it an extent of at least 1, or one that the dataset says?
fn is_known(width: &Width) -> bool {
    match width.dim {
        Dim::Fixed(extent) => extent > 0,
        Dim::Count(_) => true,
        Dim::Symbolic(_) => false,
    }
}
