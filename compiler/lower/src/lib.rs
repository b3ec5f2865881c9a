//! Instantiation: the typed model as a program of the dataflow IR.
//!
//! [`instantiate`] evaluates every statement of a [`hir::Model`] once, in order: a family becomes a value for each of
//! its members, softmax, norms and losses become compositions of operations, parameters get their names and dropout
//! masks their streams of random numbers. It reports nothing: a typed model has a program.

#![forbid(unsafe_code)]

mod fold;
mod functions;
mod live;
mod loss;
mod params;
mod paths;
mod reductions;
mod value;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use hgnnc_diag::Span;
use hgnnc_hir::{
    self as hir, EdgeData, ExprId, ExprKind, FeatureKind, Features, Item, LayerUse, Model, OutputOf, UniqueNames,
};
use hgnnc_ir::dataflow::{Binding, InputDecl, Matrix, PatternDecl, train_labels};
use hgnnc_ir::outputs::{FamilyOutput, FamilyRows};
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Graph, Input, Layout, Op, Origin, Phase, Reduce, Space, Stage, Type, Value,
    VertexType,
};

use params::Params;
use reductions::OverInEdges;
use value::{Val, Values};

/// The program of a model.
pub struct Program {
    /// The forward program in training mode (with dropout). Results: the outputs, and where there is a loss, the
    /// results of it (see [`hgnnc_ir::training::is_of_loss`]). It has the values that reach them.
    pub flow: Dataflow,
    /// All parameters that the model declares, those of the program and others.
    pub params: Vec<DeclaredParam>,
    /// The outputs of semantic graphs and of their edges, in the order of their names.
    pub families: Vec<FamilyOutput>,
    /// By expression of the model: does a value of it reach a result?
    live: Vec<bool>,
}

impl Program {
    /// Does a value of an expression reach a result?
    pub fn is_live(&self, expr: ExprId) -> bool {
        self.live[expr.index()]
    }
}

/// A parameter that a model declares.
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct DeclaredParam {
    pub name: String,
    /// The declaration in the source.
    pub span: Span,
    /// Does an operation read it?
    pub read: bool,
    /// Does it reach a result?
    pub live: bool,
}

/// The program of a model with all of its outputs. Debug builds verify the model before.
///
/// # Panics
/// If the model breaks a rule of [`hir::verify()`]: in debug builds with an internal error that says which.
pub fn instantiate(model: &Model) -> Program {
    instantiate_with(model, |_| true)
}

/// The program of a model, of whose outputs of edges it has those that are `wanted`: their values are many, and are
/// read on request only.
///
/// # Panics
/// As [`instantiate`].
pub fn instantiate_with(model: &Model, wanted: impl Fn(&str) -> bool) -> Program {
    hir::verify::check(model, "the check of a source");
    let mut flow = Dataflow::new(&model.name);
    flow.vertex_types.clone_from(&model.tables.vertex_types);
    flow.relations.clone_from(&model.tables.relations);
    flow.graphs.clone_from(&model.tables.graphs);
    flow.families.clone_from(&model.tables.families);
    flow.paths.clone_from(&model.tables.paths);
    let mut instance = Instance {
        model,
        flow,
        values: vec![None; model.exprs.len()],
        fold: None,
        in_folds: vec![],
        prefix: String::new(),
        paths: UniqueNames::default(),
        params: Params::default(),
        embeddings: HashMap::new(),
        shown_labels: HashMap::new(),
        inputs: HashMap::new(),
        streams: 0,
    };
    instance.enter(Stage::FP);
    for stmt in &model.body {
        instance.params.begin(stmt.sharing.as_deref());
        instance.eval(stmt.value);
        instance.params.end(&stmt.name);
    }
    let families = instance.outputs(wanted);
    if let Some(loss) = &model.loss {
        instance.enter(Stage::LC);
        instance.loss(loss);
    }
    let Instance { mut flow, values, in_folds, params, .. } = instance;
    let live = flow.live_values();
    let is_live = |values: &Rc<Values>| values.any(|value| live[value.index()]);
    let mut exprs: Vec<bool> = values.iter().map(|values| values.as_ref().is_some_and(is_live)).collect();
    in_folds.iter().filter(|(_, values)| is_live(values)).for_each(|(id, _)| exprs[id.index()] = true);
    let params = live::prune(&mut flow, &live, params.spans);
    Program { flow, params, families, live: exprs }
}

/// The state of an instantiation.
struct Instance<'m> {
    model: &'m Model,
    flow: Dataflow,
    /// The values of each expression that was evaluated.
    values: Vec<Option<Rc<Values>>>,
    /// The rows of the recurrence that is being evaluated.
    fold: Option<fold::FoldRows<'m>>,
    /// The values of each expression in the steps of recurrences.
    in_folds: Vec<(ExprId, Rc<Values>)>,
    /// The path of the layer use that is being evaluated; empty in the model.
    prefix: String,
    paths: UniqueNames,
    params: Params,
    embeddings: HashMap<String, Value>,
    /// By label, for each vertex whether a step of training shows it.
    shown_labels: HashMap<String, Value>,
    /// By binding and name: the dataset names of labels are not known yet.
    inputs: HashMap<(Binding, String), Input>,
    /// The number of streams of random numbers.
    streams: u32,
}

impl<'m> Instance<'m> {
    /// Appends an operation whose operands were checked, accounted to a place in the source.
    fn emit(&mut self, op: Op, args: &[Value], span: Span) -> Value {
        self.flow.cursor.origin = Some(Origin { file: span.file.0, start: span.start, end: span.end });
        self.flow.add(op, args)
    }

    /// The stage that new operations are accounted to.
    fn enter(&mut self, stage: Stage) {
        self.flow.cursor.stage = stage;
        self.flow.cursor.phase = Phase::Forward;
    }

    fn input(&mut self, name: String, ty: Type, binding: Binding, span: Span) -> Value {
        let key = (binding, name);
        let input = match self.inputs.get(&key) {
            Some(known) => *known,
            None => {
                let input = Input::new(self.flow.inputs.len());
                let (binding, name) = key.clone();
                self.inputs.insert(key, input);
                self.flow.inputs.push(InputDecl { name, ty, binding });
                input
            }
        };
        self.emit(Op::Input(input), &[], span)
    }

    /// Names the outputs as results of the program. Those of edges are left out unless they are `wanted`.
    fn outputs(&mut self, wanted: impl Fn(&str) -> bool) -> Vec<FamilyOutput> {
        let mut families = vec![];
        // A name in backquotes may look like that of a member.
        let mut taken: BTreeSet<String> = self.model.outputs.keys().cloned().collect();
        for (name, output) in &self.model.outputs {
            let rows = match output.of {
                OutputOf::Vertices(_, value) => {
                    let value = self.eval(value).one().stored();
                    self.flow.output(name.clone(), value);
                    continue;
                }
                OutputOf::Links(scores) => {
                    let Values::ByGraph(scores) = &*self.eval(scores) else { unreachable!("scores of pairs") };
                    for (graph, score) in scores {
                        let result = format!("{name}.{}", self.flow.graphs[graph.index()].name);
                        self.flow.output(result, score.stored());
                    }
                    continue;
                }
                OutputOf::Edges(_) if !wanted(name) => continue,
                OutputOf::Edges(_) => FamilyRows::Edges,
                OutputOf::Graphs(_) => FamilyRows::Graphs,
            };
            let Values::ByGraph(values) = &*self.eval(output.of.value()) else { unreachable!("values by graph") };
            let mut members = vec![];
            for (graph, value) in values {
                let mut result = format!("{name}.{}", self.flow.graphs[graph.index()].name);
                while !taken.insert(result.clone()) {
                    result.push('\'');
                }
                self.flow.output(result.clone(), value.stored());
                members.push((*graph, result));
            }
            families.push(FamilyOutput { name: name.clone(), rows, members });
        }
        families
    }

    /// The values of an expression. It is evaluated once.
    fn eval(&mut self, id: ExprId) -> Rc<Values> {
        if self.fold.is_some() {
            return self.eval_in_fold(id);
        }
        if let Some(known) = &self.values[id.index()] {
            return known.clone();
        }
        let values = Rc::new(self.compute(id));
        self.values[id.index()] = Some(values.clone());
        values
    }

    /// The values of two expressions. Numbers become values after everything else.
    fn eval2(&mut self, a: ExprId, b: ExprId) -> (Rc<Values>, Rc<Values>) {
        let is_number = |id: ExprId| matches!(self.model.expr(id).kind, ExprKind::Number(_));
        if is_number(a) && !is_number(b) {
            let b = self.eval(b);
            return (self.eval(a), b);
        }
        let a = self.eval(a);
        (a, self.eval(b))
    }

    fn compute(&mut self, id: ExprId) -> Values {
        let model = self.model;
        let expr = model.expr(id);
        let span = expr.span;
        match &expr.kind {
            ExprKind::Number(number) => Values::One(self.constant(*number, span)),
            ExprKind::Features(features) => Values::One(self.features(features, &expr.ty, span)),
            ExprKind::Param(param, entries) => self.declare(*param, entries, &expr.ty),
            ExprKind::Layer(layer) => {
                self.layer(&model.uses[layer.index()]);
                Values::PerType(BTreeMap::new())
            }
            ExprKind::Result(layer, use_id, position) => {
                self.eval(*layer);
                let (_, result) = model.uses[use_id.index()].results[*position];
                (*self.eval(result)).clone()
            }

            ExprKind::OfType(x, vertex) => Values::One(self.of_type(*x, *vertex)),
            ExprKind::Types(parts) => {
                Values::PerType(parts.iter().map(|(vertex, part)| (*vertex, self.of_type(*part, *vertex))).collect())
            }
            ExprKind::Members(x, positions) => {
                let x = self.eval(*x);
                Values::PerGraph(positions.iter().map(|&position| x.per_graph()[position].clone()).collect())
            }
            ExprKind::Repeat(x) => {
                let x = self.eval(*x);
                Values::PerGraph(vec![x.one().clone(); expr.ty.num_values()])
            }
            ExprKind::OfGraphs(x, graphs) => match &*self.eval(*x) {
                Values::ByGraph(values) => {
                    let of = |graph: &Graph| self.model.tables.of_graph(values, *graph).cloned();
                    Values::PerGraph(graphs.iter().filter_map(of).collect())
                }
                Values::One(_) | Values::PerGraph(_) | Values::PerType(_) => unreachable!("edge values"),
            },
            ExprKind::ByGraph(x, graphs) => self.by_graph(*x, graphs, &expr.ty, span),
            ExprKind::RowsByGraph(parts) => {
                let mut values = BTreeMap::new();
                for (part, graphs) in parts {
                    let part = self.eval(*part);
                    values.extend(graphs.iter().copied().zip(part.per_graph().iter().cloned()));
                }
                Values::ByGraph(values)
            }

            ExprKind::Unary(op, x) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| this.unary(*op, x, span))
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = self.eval2(*a, *b);
                self.map2(&a, &b, |this, a, b| this.binary(*op, a, b, span))
            }
            ExprKind::Pow(x, exponent) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| {
                    let exponent = this.constant(*exponent, span);
                    this.binary(BinaryOp::Pow, x, &exponent, span)
                })
            }
            ExprKind::Dropout(x, rate) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| this.dropout(x, *rate, span))
            }
            ExprKind::StopGradient(x) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| Val::Stored(this.emit(Op::StopGradient, &[x.stored()], span)))
            }
            ExprKind::Broadcast(x) => {
                let x = self.eval(*x);
                let row = expr.ty.rows().next().expect("a single value");
                Values::One(self.repeated(x.one(), Type::new(self.space_here(row.space), dims(row)), span))
            }
            ExprKind::Zeros => {
                let zero = self.constant(0.0, span);
                let row = expr.ty.rows().next().expect("a single value");
                Values::One(self.repeated(&zero, Type::new(Space::Unit, dims(row)), span))
            }
            ExprKind::Flatten(x) => {
                let x = self.eval(*x);
                self.map_rows(&x, &expr.ty, |this, x, row| match this.dims(x).len() {
                    1 => x.clone(),
                    _ => this.reshape(x, dims(row), span),
                })
            }
            ExprKind::Reshape(x) => {
                let x = self.eval(*x);
                self.map_rows(&x, &expr.ty, |this, x, row| this.reshape(x, dims(row), span))
            }
            ExprKind::Concat(a, b) => {
                let (a, b) = self.eval2(*a, *b);
                self.map2(&a, &b, |this, a, b| this.concat2(a, b, span))
            }

            ExprKind::Slice { x, axis, start } => {
                let x = self.eval(*x);
                self.map_rows(&x, &expr.ty, |this, x, row| {
                    let len = dims(row)[*axis].fixed().expect("the verifier refuses other extents");
                    this.slice(x, *axis, *start..start + len, span)
                })
            }
            ExprKind::Transpose(x) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| this.transpose(x, span))
            }

            ExprKind::Product(a, b) => {
                let (a, b) = self.eval2(*a, *b);
                self.map2(&a, &b, |this, a, b| this.product(a, b, span))
            }
            ExprKind::MatrixProduct(a, b) => {
                let (a, b) = self.eval2(*a, *b);
                self.map2(&a, &b, |this, a, b| this.matrix_product(a, b, span))
            }
            ExprKind::Dot(a, b) => {
                let (a, b) = self.eval2(*a, *b);
                self.map2(&a, &b, |this, a, b| {
                    let product = this.binary(BinaryOp::Mul, a, b, span);
                    this.reduce_last(&product, Reduce::Sum, span)
                })
            }
            ExprKind::Linear { x, bias, names } => {
                let x = self.eval(*x);
                let paths = self.paths_of(names);
                let mut paths = paths.into_iter();
                self.map_rows(&x, &expr.ty, |this, x, row| {
                    let path = paths.next().expect("a path for each value");
                    this.linear(x, dims(row)[0], *bias, &path, span)
                })
            }
            ExprKind::Norm { x, eps, over_rows, names } => {
                let x = self.eval(*x);
                let mut paths = self.paths_of(names).into_iter();
                self.map(&x, |this, x| {
                    let path = paths.next().expect("a path for each value");
                    this.norm(x, *eps, *over_rows, &path, span)
                })
            }
            ExprKind::L2Normalize(x, eps) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| this.l2_normalize(x, *eps, span))
            }
            ExprKind::RowNormalize(x) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| this.row_normalize(x, span))
            }

            ExprKind::OverDimension(axis, reduction, x) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| match axis {
                    hir::Axis::Last => this.over_last(*reduction, x, span),
                    hir::Axis::First => this.over_first(*reduction, x, span),
                })
            }
            ExprKind::OverRows(reduction, x) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| this.over_rows(*reduction, x, span))
            }
            ExprKind::OverInEdges { x, reduction, across, graphs } => {
                let spans = (span, model.expr(*x).span);
                let x = self.eval(*x);
                let of = OverInEdges { reduction: *reduction, across: *across, graphs, ty: &expr.ty, spans };
                self.over_in_edges(of, &x)
            }
            ExprKind::Across(reduction, x) => {
                let x = self.eval(*x);
                self.across(*reduction, x.per_graph(), span)
            }

            ExprKind::SumOfSquares(parts) => Values::One(self.sum_of_squares(parts, span)),

            ExprKind::AtEnd(direction, x, graphs) => self.at_end(*x, graphs, *direction, span),
            ExprKind::AtPosition(x, at) => self.at_position(*x, at, span),
            ExprKind::HopData(field, data) => self.hop_data(field, data, &expr.ty, span),
            ExprKind::AlongPath(reduction, parts, graphs) => self.along_path(*reduction, parts, graphs.len(), span),
            ExprKind::Fold(fold) => self.fold_in_edges(fold, span),
            ExprKind::Before(_) => self.before(),
            ExprKind::Degree(direction, graphs) => {
                Values::PerGraph(graphs.iter().map(|graph| self.degree(*graph, *direction, span)).collect())
            }
            ExprKind::DegreeAtEnd { end, counted, graphs } => {
                let at_end = |graph: &Graph| {
                    let degree = self.degree(*graph, *counted, span);
                    self.gather_here(&degree, *graph, *end, span)
                };
                Values::PerGraph(graphs.iter().map(at_end).collect())
            }
            ExprKind::EdgeData(field, data) => self.edge_data(field, data, &expr.ty, span),
            ExprKind::EdgeRows(x, graphs) => self.edge_rows(*x, graphs, &expr.ty, span),
            ExprKind::Scores(x) => {
                let x = self.eval(*x);
                self.map(&x, |this, x| if this.dims(x).is_empty() { x.clone() } else { this.reshape(x, vec![], span) })
            }
        }
    }

    /// The value of one vertex type, of an expression of that or of several.
    fn of_type(&mut self, x: ExprId, vertex: VertexType) -> Val {
        match &*self.eval(x) {
            Values::One(value) => value.clone(),
            Values::PerType(values) => values[&vertex].clone(),
            Values::PerGraph(_) | Values::ByGraph(_) => unreachable!("values of vertex types"),
        }
    }

    /// Values of a family by semantic graph; single values are repeated for every edge.
    fn by_graph(&mut self, x: ExprId, graphs: &[Graph], ty: &hir::Type, span: Span) -> Values {
        let x = self.eval(x);
        let hir::Type::ByGraph(rows) = ty else { unreachable!("edge values") };
        let mut fitted = BTreeMap::new();
        for (graph, value) in graphs.iter().zip(x.per_graph()) {
            let ty = Type::new(Space::Edges(*graph), dims(&rows[graph]));
            fitted.insert(*graph, self.repeated(value, ty, span));
        }
        Values::ByGraph(fitted)
    }

    /// Vertex values at an end of the edges.
    fn at_end(&mut self, x: ExprId, graphs: &[Graph], end: Direction, span: Span) -> Values {
        let x = self.eval(x);
        let mut gathered = vec![];
        for (position, graph) in graphs.iter().enumerate() {
            let value = match &*x {
                Values::PerType(values) => &values[&self.end(*graph, end)],
                Values::PerGraph(values) => &values[position],
                Values::One(_) | Values::ByGraph(_) => unreachable!("vertex values"),
            };
            gathered.push(self.gather_here(value, *graph, end, span));
        }
        Values::PerGraph(gathered)
    }

    /// Vertex values at an end of the edges, or of those that a step of a recurrence goes over.
    fn gather_here(&mut self, value: &Val, graph: Graph, end: Direction, span: Span) -> Val {
        match self.edges_here(graph) {
            Some(graph) => self.gather(value, graph, end, span),
            None => value.clone(),
        }
    }

    fn edge_data(&mut self, field: &str, data: &[(Graph, EdgeData)], ty: &hir::Type, span: Span) -> Values {
        let mut values = vec![];
        for ((graph, data), row) in data.iter().zip(ty.rows()) {
            let graph = self.edges_here(*graph).expect("data of edges are those of edges");
            let binding = match data {
                EdgeData::Count => Binding::EdgeCount(graph),
                EdgeData::Time => Binding::EdgeTime(graph),
                EdgeData::Weight => Binding::EdgeWeight(graph),
                EdgeData::Features => Binding::EdgeFeatures(graph),
            };
            let name = format!("{}.{field}", self.flow.graphs[graph.index()].name);
            let ty = Type::new(Space::Edges(graph), dims(row));
            values.push(Val::Stored(self.input(name, ty, binding, span)));
        }
        Values::PerGraph(values)
    }

    /// Evaluates the use of a layer.
    fn layer(&mut self, layer: &'m LayerUse) {
        let stage = self.flow.cursor.stage;
        // The statements of a composed layer are named behind the one that uses it.
        let path = match self.prefix.as_str() {
            "" => self.paths.take(&layer.statement),
            outer => self.paths.take(&format!("{outer}.{}", layer.statement)),
        };
        for (_, input) in &layer.inputs {
            self.eval(*input);
        }
        let outer = std::mem::replace(&mut self.prefix, path);
        for item in &layer.body {
            match item {
                Item::Stmt(stmt) => _ = self.eval(stmt.value),
                Item::Block(block) => {
                    self.enter(match block.kind {
                        hir::BlockKind::Project => Stage::FP,
                        hir::BlockKind::Aggregate => Stage::NA,
                        hir::BlockKind::Fuse => Stage::SF,
                    });
                    for stmt in block.instances.iter().flat_map(|instance| &instance.body) {
                        self.eval(stmt.value);
                    }
                    for (_, field) in block.instances.iter().flat_map(|instance| &instance.fields) {
                        self.eval(*field);
                    }
                }
            }
        }
        for (_, result) in &layer.results {
            self.eval(*result);
        }
        self.prefix = outer;
        self.enter(stage);
    }

    fn features(&mut self, features: &Features, ty: &hir::Type, span: Span) -> Val {
        let row = ty.rows().next().expect("a single value");
        let (vertex, dims) = (features.vertex, dims(row));
        match features.kind {
            FeatureKind::OneHot => Val::OneHot { columns: dims[0], mask: None },
            FeatureKind::Embedding(init) => Val::Stored(match self.embeddings.get(&features.name) {
                Some(value) => *value,
                None => {
                    let table = self.embedding(features, vec![Dim::Count(vertex), dims[0]], init);
                    let value = self.emit(Op::Rows, &[table], span);
                    self.embeddings.insert(features.name.clone(), value);
                    value
                }
            }),
            FeatureKind::Time => {
                let ty = Type::new(Space::Vertices(vertex), vec![]);
                Val::Stored(self.input(features.name.clone(), ty, Binding::Time(vertex), span))
            }
            FeatureKind::TrainLabels { hidden } if hidden > 0.0 => {
                let all = Features { kind: FeatureKind::TrainLabels { hidden: 0.0 }, ..features.clone() };
                let labels = self.features(&all, ty, span).stored();
                let shown = self.shown_labels(&features.name, vertex, hidden, span);
                Val::Stored(self.emit(Op::Binary(BinaryOp::Mul), &[labels, shown], span))
            }
            FeatureKind::Dense | FeatureKind::Sparse | FeatureKind::TrainLabels { .. } => {
                let mut ty = Type::new(Space::Vertices(vertex), dims);
                let (name, field) = (features.name.clone(), features.field.clone());
                let (name, matrix) = match features.kind {
                    FeatureKind::TrainLabels { .. } => {
                        (train_labels(&name), Matrix::TrainLabels(field.unwrap_or_default()))
                    }
                    _ => (name, Matrix::of_field(field)),
                };
                let is_dense = matches!(features.kind, FeatureKind::Dense);
                if let (false, Some(columns)) = (is_dense, ty.dims[0].fixed()) {
                    let pattern = PatternDecl { vertex, columns, matrix: matrix.clone() };
                    ty.layout = Layout::Sparse(self.flow.declare_pattern(pattern));
                }
                Val::Stored(self.input(name, ty, Binding::Features(vertex, matrix), span))
            }
        }
    }

    /// For each vertex 1 where this step shows the label of a field (`Paper.topic`), else 0; always 1 outside of
    /// training.
    pub fn shown_labels(&mut self, label: &str, vertex: VertexType, hidden: f64, span: Span) -> Value {
        if let Some(known) = self.shown_labels.get(label) {
            return *known;
        }
        let (stream, ty) = (self.streams, Type::new(Space::Vertices(vertex), vec![]));
        self.streams += 1;
        let mask = self.emit(Op::RandomMask { stream, rate: hidden, ty }, &[], span);
        let none = self.emit(Op::Const(0.0), &[], span);
        let shown = self.emit(Op::Binary(BinaryOp::Gt), &[mask, none], span);
        self.shown_labels.insert(label.to_owned(), shown);
        shown
    }

    /// The vertex type at an end of a semantic graph.
    fn end(&self, graph: Graph, direction: Direction) -> VertexType {
        let decl = &self.flow.graphs[graph.index()];
        match direction {
            Direction::In => decl.dst,
            Direction::Out => decl.src,
        }
    }
}

/// The extents of a value in the program.
fn dims(row: &hir::Row) -> Vec<Dim> {
    row.widths.iter().map(|width| width.dim.resolved()).collect()
}
