//! The state of a check, and statements that blocks and models share.
//!
//! Layers are templates: a use checks the body once for each vertex type (`project`, `fuse`) or for all semantic graphs
//! of the family at once (`aggregate`), with widths known. A mistake inside a layer is reported at its place in the
//! layer, with a label at the use.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use hgnnc_declare::consts::Consts;
use hgnnc_declare::imports::FileNames;
use hgnnc_declare::names::duplicate;
use hgnnc_declare::schema::{EdgesKey, FieldKind, GraphRef, Schema};
use hgnnc_diag::{Code, Diagnostic, Diagnostics, Label, Span, codes};
use hgnnc_hir::{
    Dim, Entry, Expr, ExprId, ExprKind, FeatureKind, Features, Form, Model, ParamId, Row, Stmt, StmtKind, Type,
    UniqueNames, UseId, Width,
};
use hgnnc_ir::dataflow::{RelationDecl, VertexTypeDecl};
use hgnnc_ir::{Graph, Space, VertexType};
use hgnnc_syntax::ast::Ident;
use rustc_hash::FxHashMap;

use crate::doubts::Doubts;
use crate::edges::EdgeRows;
use crate::layer::LayerCx;
use crate::value::{Term, Typed};

/// Operations of a program. One takes about 300 bytes here, and more in the passes.
const MAX_OPERATIONS: usize = 1 << 20;

/// Values that expressions may stand for, all in all. A name of a value for each semantic graph stands for as many.
const MAX_VALUES: usize = 1 << 24;

/// Times of all repetitions of a model, those inside others counted again each time.
const MAX_TIMES: u32 = 1 << 16;

/// A mistake found while evaluating; boxed, since it is rare and large.
pub type Mistake = Box<Diagnostic>;

/// A declaration of a parameter in a layer use and in one time of a repetition.
pub type Declaration = (Option<UseId>, u32, Span);

/// Checks one model, and builds its typed form.
pub struct Checker<'a> {
    /// Receives errors and warnings, in the order of their discovery.
    pub diagnostics: &'a mut Diagnostics,
    /// The typed model under construction.
    pub model: Model,
    /// The schema that the model names.
    pub schema: &'a Schema,
    /// Layers in scope, and the files.
    pub names: &'a FileNames<'a>,
    /// The widths of each declaration of a parameter and of each entry that is shared between vertex types, by layer
    /// use: all uses of it need the same.
    pub(crate) shared_widths: HashMap<(Declaration, SharedPart), Vec<Width>>,
    /// The parameter of each declaration, by layer use.
    pub(crate) params: HashMap<Declaration, ParamId>,
    /// Number of times that statements or blocks were repeated so far: each time has parameters of its own.
    pub(crate) time: u32,
    /// Number of parameters of a declaration in a repetition, by layer use.
    pub(crate) times_declared: HashMap<(Option<UseId>, Span), usize>,
    /// The layer uses that are being checked, outermost first, each with what it is running for.
    pub(crate) frames: Vec<Frame>,
    /// The declarations of layers whose body was checked.
    pub checked_layers: HashSet<Span>,
    /// Further results of each use of a layer whose value is its first result, by the expression of that value.
    pub(crate) further_results: HashMap<ExprId, Vec<(String, Typed)>>,
    /// The values of the names that the model declares, for the loss.
    pub model_names: HashMap<String, Term>,
    /// The names of all outputs that the model declares, right or wrong.
    pub declared_outputs: HashSet<String>,
    /// Results of layers for vertex types that no semantic graph of the layer's family ends in.
    pub without_messages: Vec<WithoutMessages>,
    /// Constructs that are valid and probably not intended.
    pub doubts: Doubts,
    /// By expression that has the values of some semantic graphs, the value with those of more that it was chosen of.
    pub whole_values: HashMap<ExprId, Typed>,
    /// An expression of the loss is checked, which sees parameters of layers.
    pub within_loss: bool,
    /// A layer is checked without a use: arguments, widths and data of edges are not known.
    pub(crate) without_use: bool,
    reported: HashSet<(Code, Span, Span)>,
    pub(crate) graphs: FxHashMap<EdgesKey, Graph>,
    /// The semantic graphs of path instances, by the edges of the metapath and the limit per vertex.
    pub(crate) instances: FxHashMap<EdgesKey, Graph>,
    /// By semantic graph and position: the graph from the vertices there to its path instances, or of its in-edges there.
    pub(crate) positions: FxHashMap<(Graph, usize), Graph>,
    /// The edges that are rows, by their relation.
    pub(crate) edge_rows: BTreeMap<usize, EdgeRows>,
    pub(crate) graph_names: UniqueNames,
    /// Values that expressions stood for so far.
    values: usize,
    /// Operations that the expressions take.
    pub(crate) operations: usize,
    too_large: bool,
}

/// A part of a parameter whose shape is shared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharedPart {
    /// An entry that several vertex types share.
    Entry(Entry),
    /// The bases of all entries.
    Bases,
}

/// A layer's result for a vertex type that receives no messages there.
pub struct WithoutMessages {
    /// The family, where the layer is used.
    pub span: Span,
    /// The layer that was used.
    pub layer: String,
    /// The vertex type that receives no messages.
    pub vertex: VertexType,
    /// The layer's result for this type.
    pub value: ExprId,
}

/// A use of a layer.
pub struct Frame {
    /// The layer's name in the call.
    pub span: Span,
    /// The name of the layer.
    pub layer: String,
    /// Its name where it is declared.
    pub declared: Span,
    /// "for vertex type `Author`", where the body runs for one thing at a time.
    pub instance: Option<String>,
    /// The names that the layer has for widths, by where these come from.
    pub widths: Vec<(Span, String)>,
}

/// Names in scope and what a block runs for.
#[derive(Clone)]
pub struct Scope<'s> {
    /// The kind of block.
    pub place: Place,
    /// The variable that the block binds, such as `v` or `e`.
    pub variable: Option<&'s Ident>,
    /// Values of local names.
    pub locals: HashMap<String, Term>,
    /// Declarations of local names.
    pub spans: HashMap<String, Span>,
    /// The layer being checked.
    pub layer: Option<&'s LayerCx<'s>>,
    /// Constants of the file.
    pub consts: &'s Consts,
    /// Positions in the layer's family that [`Type::PerGraph`] has a value for.
    pub graphs: Vec<usize>,
    /// The position of paths that a value of all of them is evaluated at.
    pub along: Option<usize>,
    /// The statement that parameters are named for; empty for those that are declared by name.
    pub statement: String,
}

impl Scope<'_> {
    /// The name of the block's variable, for messages: `e` in `aggregate e: g in graphs`.
    pub fn variable_name(&self) -> &str {
        self.variable.map_or("e", |variable| &variable.name)
    }
}

/// The kind of block that a scope belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The body of the model.
    Model,
    /// The statements of a layer without blocks.
    Composed,
    /// Between the blocks of a layer.
    Layer,
    /// `project`; `many` when it runs for several vertex types.
    Project(VertexType, bool),
    /// `aggregate`, for all semantic graphs at once.
    Aggregate,
    /// `fuse`; `many` when it runs for several vertex types.
    Fuse(VertexType, bool),
}

impl<'a> Checker<'a> {
    /// A check that has done nothing yet.
    pub fn new(name: &Ident, schema: &'a Schema, names: &'a FileNames<'a>, diagnostics: &'a mut Diagnostics) -> Self {
        let mut model = Model { name: name.name.clone(), ..Model::default() };
        for vertex in &schema.vertices {
            let decl = VertexTypeDecl::new(vertex.name.clone(), vertex.dataset_name.clone());
            model.tables.vertex_types.push(decl);
        }
        for relation in &schema.relations {
            model.tables.relations.push(RelationDecl {
                name: relation.name.clone(),
                dataset_name: relation.dataset_name.clone(),
                src: VertexType::new(relation.src),
                dst: VertexType::new(relation.dst),
            });
        }
        Self {
            diagnostics,
            model,
            schema,
            names,
            shared_widths: HashMap::new(),
            time: 0,
            times_declared: HashMap::new(),
            params: HashMap::new(),
            frames: vec![],
            checked_layers: HashSet::new(),
            further_results: HashMap::new(),
            model_names: HashMap::new(),
            declared_outputs: HashSet::new(),
            without_messages: vec![],
            doubts: Doubts::default(),
            whole_values: HashMap::new(),
            within_loss: false,
            without_use: false,
            reported: HashSet::new(),
            graphs: FxHashMap::default(),
            instances: FxHashMap::default(),
            positions: FxHashMap::default(),
            edge_rows: BTreeMap::new(),
            graph_names: UniqueNames::default(),
            values: 0,
            operations: 0,
            too_large: false,
        }
    }

    /// Reports a mistake, with the uses of layers that led to it. A mistake inside a library layer is one of
    /// its use: the library cannot be edited, so the report points to the use first, and once for all vertex
    /// types that the layer runs for.
    pub fn report(&mut self, mistake: Diagnostic) {
        if let Some(mistake) = self.attribute(mistake) {
            self.diagnostics.push(mistake);
        }
    }

    /// A report with the uses of layers that led to it; `None` where it was made before.
    pub(crate) fn attribute(&mut self, mut mistake: Diagnostic) -> Option<Diagnostic> {
        for frame in self.frames.iter().rev() {
            let instance = frame.instance.as_ref().map(|i| format!(", {i}")).unwrap_or_default();
            let text = format!("in this use of `{}`{instance}", frame.layer);
            match &mistake.primary {
                Some(inner) if !self.is_edited(inner.span) && self.is_edited(frame.span) => {
                    if !self.reported.insert((mistake.code, inner.span, frame.span)) {
                        return None;
                    }
                    let inner = mistake.primary.replace(Label { span: frame.span, text });
                    mistake.secondary.splice(..0, inner);
                }
                _ => mistake = mistake.label(frame.span, text),
            }
        }
        Some(mistake)
    }

    /// Is this place in a file of the user's, and not in the library, which cannot be edited?
    pub fn is_edited(&self, span: Span) -> bool {
        !self.names.library.contains(&span.file)
    }

    /// Reports the mistake, if there is one, and goes on with an error term.
    pub(crate) fn settle(&mut self, result: Result<Term, Mistake>) -> Term {
        result.unwrap_or_else(|mistake| {
            self.report(*mistake);
            Term::Error
        })
    }

    /// Adds an expression whose operands were checked.
    pub fn expr(&mut self, kind: ExprKind, ty: Type, span: Span) -> Typed {
        let ty = Arc::new(ty);
        self.operations += kind.operations() * ty.num_values();
        self.model.exprs.push(Expr { kind, ty: ty.clone(), span });
        Typed { id: ExprId::new(self.model.exprs.len() - 1), ty }
    }

    /// Adds an expression of a single value.
    pub(crate) fn single(&mut self, kind: ExprKind, row: Row, span: Span) -> Term {
        Term::Value(self.expr(kind, Type::One(row), span))
    }

    /// A number as a value.
    pub(crate) fn literal(&mut self, number: f64, span: Span) -> Typed {
        self.expr(ExprKind::Number(number), Type::One(Row::dense(Space::Unit, vec![])), span)
    }

    /// May two extents be equal? Those of a layer that is checked without a use are names.
    pub(crate) fn may_equal(&self, a: Dim, b: Dim) -> bool {
        !self.model.tables.symbols.differ(a, b)
    }

    /// May widths be equal, one by one?
    pub(crate) fn fit(&self, a: &[Width], b: &[Width]) -> bool {
        a.len() == b.len() && self.starts_with(a, b)
    }

    /// Do the first widths of `a` fit those of `b`?
    pub(crate) fn starts_with(&self, a: &[Width], b: &[Width]) -> bool {
        a.len() >= b.len() && a.iter().zip(b).all(|(a, b)| self.may_equal(a.dim, b.dim))
    }

    /// The first pair of widths that differ.
    pub(crate) fn mismatch<'w>(&self, a: &'w [Width], b: &'w [Width]) -> Option<(&'w Width, &'w Width)> {
        a.iter().zip(b).find(|(a, b)| !self.may_equal(a.dim, b.dim))
    }

    /// A statement of a body; none for a term that holds no value.
    pub(crate) fn statement(kind: StmtKind, name: &Ident, term: &Term) -> Option<Stmt> {
        Some(Stmt { kind, name: name.name.clone(), value: term.expr()?, sharing: None })
    }

    /// The semantic graph in the model's table.
    pub(crate) fn declare_graph(&mut self, graph: &GraphRef) -> Graph {
        let key = graph.edges_key();
        if let Some(known) = self.graphs.get(&key) {
            return *known;
        }
        let mut decl = graph.declaration();
        // `reverse_cites` may also be the name of a metapath.
        decl.name = self.graph_names.take(&decl.name);
        self.model.tables.graphs.push(decl);
        let graph = Graph::new(self.model.tables.graphs.len() - 1);
        self.graphs.insert(key, graph);
        graph
    }

    /// The semantic graph in the model's table, where it is there, perhaps with another limit of in-edges.
    pub fn declared_graph(&self, graph: &GraphRef) -> Option<Graph> {
        let of_other_limit = || {
            let key = graph.edges_key().without_limit();
            let known = self.graphs.iter().chain(&self.instances);
            let found = known.filter(|(known, _)| (*known).clone().without_limit() == key).map(|(_, graph)| *graph);
            found.min_by_key(|graph| graph.index())
        };
        self.graphs.get(&graph.edges_key()).copied().or_else(of_other_limit)
    }

    /// Adds the values of an expression to the size of the program. A program that becomes too large is reported once,
    /// and the rest of it is not checked.
    pub(crate) fn keeps_size(&mut self, term: &Term, span: Span) -> bool {
        self.values += term.num_values();
        if self.values <= MAX_VALUES && self.operations <= MAX_OPERATIONS {
            return true;
        }
        if !std::mem::replace(&mut self.too_large, true) {
            self.report(
                Diagnostic::at(
                    codes::TOO_LARGE,
                    span,
                    "the program becomes too large",
                    format!("here it has {} operations", self.operations),
                )
                .note(format!("at most {MAX_OPERATIONS} operations are compiled"))
                .help("use fewer layers, or layers over fewer semantic graphs: each has operations of its own"),
            );
        }
        false
    }

    /// Counts a time of a repetition; false where there is no use in it. Nested repetitions are many times before any
    /// operation of theirs is counted.
    pub(crate) fn begins_time(&mut self, span: Span) -> bool {
        self.time += 1;
        if self.time > MAX_TIMES && !std::mem::replace(&mut self.too_large, true) {
            let label = format!("here something is repeated for the {}th time", self.time);
            let report = Diagnostic::at(codes::TOO_LARGE, span, "the program becomes too large", label);
            self.report(report.note(format!("all repetitions together are at most {MAX_TIMES} times")));
        }
        !self.gives_up()
    }

    /// Is there no use in checking more?
    pub(crate) fn gives_up(&self) -> bool {
        self.too_large || self.diagnostics.has_enough()
    }

    /// The features of a vertex type: `Paper.x`; of a label, its rows for the training part.
    pub(crate) fn features(&mut self, vertex: VertexType, field: usize, span: Span) -> Typed {
        let info = &self.schema.vertices[vertex.index()];
        let decl = &info.fields[field];
        let origin = decl.ty_span;
        decl.used.set(true);
        let name = format!("{}.{}", info.name, decl.name);
        let (kind, form, dim) = match decl.kind {
            FieldKind::Time | FieldKind::Cutoff => {
                let features = Features { vertex, name, kind: FeatureKind::Time, span: decl.span, field: None };
                let row = Row { space: Space::Vertices(vertex), widths: vec![], form: Form::Time };
                return self.expr(ExprKind::Features(features), Type::One(row), span);
            }
            FieldKind::OneHot => (FeatureKind::OneHot, Form::OneHot, Dim::Count(vertex)),
            FieldKind::Embedding(width) => (FeatureKind::Embedding(decl.init), Form::Dense, Dim::Fixed(width)),
            FieldKind::Real { width, sparse: true } => {
                (FeatureKind::Sparse, Form::Sparse(decl.span), Dim::Fixed(width))
            }
            FieldKind::Real { width, sparse: false } => (FeatureKind::Dense, Form::Dense, Dim::Fixed(width)),
            FieldKind::Class(width) | FieldKind::MultiLabel(width) | FieldKind::Target(width) => {
                (FeatureKind::TrainLabels { hidden: 0.0 }, Form::Sparse(decl.span), Dim::Fixed(width))
            }
            FieldKind::Number => unreachable!("weights are of edges"),
        };
        let field = if decl.kind.is_feature() { info.dataset_field(decl) } else { decl.dataset_name.clone() };
        let features = Features { vertex, name, kind, span: decl.span, field };
        let row = Row { space: Space::Vertices(vertex), widths: vec![Width { dim, origin }], form };
        self.expr(ExprKind::Features(features), Type::One(row), span)
    }

    /// Binds a name in a scope; a second binding of it is a mistake.
    pub(crate) fn bind(&mut self, scope: &mut Scope<'_>, name: &Ident, term: Term) {
        if let Some(first) = scope.spans.get(&name.name) {
            let report = duplicate("name", name, *first);
            self.report(report);
            return;
        }
        scope.spans.insert(name.name.clone(), name.span);
        scope.locals.insert(name.name.clone(), term);
    }

    /// Runs the body for `instance` ("vertex type `Author`"), so that reports say so.
    pub(crate) fn for_instance(&mut self, instance: Option<String>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.instance = instance.map(|i| format!("for {i}"));
        }
    }

    /// The name of a vertex type.
    pub fn vertex_name(&self, vertex: VertexType) -> &'a str {
        match self.relation_of_rows(vertex) {
            Some(relation) => &self.schema.relations[relation].edges_name,
            None => &self.schema.vertices[vertex.index()].name,
        }
    }

    /// Refuses a value that cannot stand by itself.
    pub fn usable(&self, row: &Row, span: Span) -> Result<(), Mistake> {
        match row.form {
            Form::Dense | Form::Sparse(_) => Ok(()),
            Form::OneHot | Form::OneHotAtEnd => Err(self.one_hot_mistake(row, span)),
            Form::Time => Err(self.time_mistake(span)),
            Form::SparseAtEnd => Err(Box::new(
                Diagnostic::at(
                    codes::SPARSE_VALUE,
                    span,
                    "sparse features cannot be copied to edges",
                    "these are sparse features at the end of an edge",
                )
                .label(row.widths[0].origin, "declared sparse here")
                .help("project them first: `@ w`, or an assignment in a `project` block"),
            )),
            Form::BlockDiagonal => Err(Box::new(Diagnostic::at(
                codes::BAD_DECOMPOSITION,
                span,
                "a block-diagonal weight can only stand on the right of `@`",
                "used otherwise here",
            ))),
        }
    }

    fn time_mistake(&self, span: Span) -> Mistake {
        Box::new(
            Diagnostic::at(
                codes::TIME_VALUE,
                span,
                "only the difference of two times is a number",
                "a time, whose origin means nothing",
            )
            .help("subtract another time, as in `e.dst.t - e.src.t`, or compare both: `e.src.t < e.dst.t`"),
        )
    }

    fn one_hot_mistake(&self, row: &Row, span: Span) -> Mistake {
        Box::new(
            Diagnostic::at(
                codes::ONE_HOT_VALUE,
                span,
                "one-hot features can only be projected",
                "used as they are here",
            )
            .label(row.widths[0].origin, "declared one-hot here")
            .help("multiply them by a parameter (`@ w`), or declare `embedding[64]` for a learnable row per vertex"),
        )
    }
}
