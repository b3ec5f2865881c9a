//! The state of an elaboration, and statements that blocks and models share.
//!
//! Layers are templates: a use runs the body once for each vertex type (`project`, `fuse`) or for all
//! semantic graphs of the family at once (`aggregate`), with widths known, and appends operations to one
//! dataflow program. A mistake inside a layer is reported at its place in the layer, with a label at the use.

use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_diag::{Code, Diagnostic, Diagnostics, FileId, Label, Span, codes};
use hgnnc_ir::dataflow::{Binding, Init, InputDecl, ParamDecl, RelationDecl, VertexTypeDecl};
use hgnnc_ir::{Dataflow, Dim, Graph, Input, Layout, Op, Origin, Param, Phase, Space, Stage, Type, Value, VertexType};
use hgnnc_syntax::ast::{self, Ident};

use crate::consts::Consts;
use crate::doubts::Doubts;
use crate::layer::LayerCx;
use crate::names::duplicate;
use crate::schema::{EdgesKey, FieldKind, GraphRef, Schema};
use crate::value::{Term, Val, ValKind, Width};

/// Operations of a program. One takes about 300 bytes here, and more in the passes.
const MAX_OPERATIONS: usize = 1 << 20;

/// Values that expressions may stand for, all in all. A name of a value for each semantic graph stands for as many.
const MAX_VALUES: usize = 1 << 24;

/// A mistake found while evaluating; boxed, since it is rare and large.
pub type Mistake = Box<Diagnostic>;

/// A layer that can be used, with the constants of its file.
#[derive(Clone, Copy)]
pub struct LayerDef<'a> {
    /// The layer's syntax tree.
    pub layer: &'a ast::Layer,
    /// Constants in scope there.
    pub consts: &'a Consts,
}

/// Elaborates one model: evaluates its body and appends operations to `flow`.
pub struct Elaborator<'a> {
    /// Receives errors and warnings, in the order of their discovery.
    pub diagnostics: &'a mut Diagnostics,
    /// The program under construction.
    pub flow: Dataflow,
    /// The schema that the model names.
    pub schema: &'a Schema,
    /// Layers in scope by name.
    pub layers: &'a BTreeMap<String, LayerDef<'a>>,
    /// The declaration of each parameter.
    pub param_spans: Vec<Span>,
    /// The widths of each parameter, with their origins.
    pub param_widths: Vec<Vec<Width>>,
    /// The layer uses that are being elaborated, outermost first, each with what it is running for.
    pub frames: Vec<Frame>,
    /// The names of all outputs that the model declares, right or wrong.
    pub declared_outputs: HashSet<String>,
    /// Results of layers for vertex types that no semantic graph of the layer's family ends in.
    pub without_messages: Vec<WithoutMessages>,
    /// Constructs that are valid and probably not intended.
    pub doubts: Doubts,
    /// The library layers by the module to import them from.
    pub importable: &'a BTreeMap<&'a str, &'a str>,
    /// Layers whose import is wrong, which was reported: their uses are not.
    pub not_imported: HashSet<&'a str>,
    file: FileId,
    reported: HashSet<(Code, Span, Span)>,
    paths: UniqueNames,
    embeddings: HashMap<VertexType, Value>,
    streams: u32,
    /// The declared parameters, by name.
    params: HashMap<String, Param>,
    /// The first declaration of a parameter whose name is this or starts with this and a
    /// dot, and whether others follow.
    param_prefixes: HashMap<String, (Span, bool)>,
    /// For parameters such as `conv.weight.Paper`, each part before a dot with the last part, and with nothing.
    param_members: HashSet<(String, String)>,
    /// The number of the first base that was free for a path and members.
    pub free_bases: HashMap<(String, Vec<String>), usize>,
    param_names: UniqueNames,
    graphs: HashMap<EdgesKey, Graph>,
    graph_names: UniqueNames,
    inputs: HashMap<Binding, Input>,
    /// Values that expressions stood for so far.
    values: usize,
    too_large: bool,
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
    pub value: Value,
}

/// A use of a layer.
pub struct Frame {
    /// The layer's name in the call.
    pub span: Span,
    /// The name of the layer.
    pub layer: String,
    /// "for vertex type `Author`", where the body runs for one thing at a time.
    pub instance: Option<String>,
    /// The names that the layer has for widths, by where these come from.
    pub widths: Vec<(Span, String)>,
}

/// Names in scope and what a block runs for.
pub struct Scope<'s> {
    /// The kind of block.
    pub place: Place,
    /// The variable that the block binds, such as `v` or `e`.
    pub variable: Option<&'s Ident>,
    /// Values of local names.
    pub locals: HashMap<String, Term>,
    /// Declarations of local names.
    pub spans: HashMap<String, Span>,
    /// The layer being elaborated.
    pub layer: Option<&'s LayerCx<'s>>,
    /// Constants of the file.
    pub consts: &'s Consts,
    /// Positions in the layer's family that [`Term::PerGraph`] has a value for.
    pub graphs: Vec<usize>,
    /// Prefix of parameter names: the path in the source.
    pub path: String,
}

/// The kind of block that a scope belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The body of the model.
    Model,
    /// Between the blocks of a layer.
    Layer,
    /// `project`; `many` when it runs for several vertex types.
    Project(VertexType, bool),
    /// `aggregate`, for all semantic graphs at once.
    Aggregate,
    /// `fuse`; `many` when it runs for several vertex types.
    Fuse(VertexType, bool),
}

impl<'a> Elaborator<'a> {
    /// An elaboration that has done nothing yet.
    pub fn new(
        name: &Ident,
        schema: &'a Schema,
        layers: &'a BTreeMap<String, LayerDef<'a>>,
        importable: &'a BTreeMap<&'a str, &'a str>,
        diagnostics: &'a mut Diagnostics,
    ) -> Self {
        let mut flow = Dataflow::new(&name.name);
        for vertex in &schema.vertices {
            let decl = VertexTypeDecl::new(vertex.name.clone(), vertex.dataset_name.clone());
            flow.vertex_types.push(decl);
        }
        for relation in &schema.relations {
            flow.relations.push(RelationDecl {
                name: relation.name.clone(),
                dataset_name: relation.dataset_name.clone(),
                src: VertexType::new(relation.src),
                dst: VertexType::new(relation.dst),
            });
        }
        Self {
            diagnostics,
            flow,
            schema,
            layers,
            param_spans: vec![],
            param_widths: vec![],
            frames: vec![],
            declared_outputs: HashSet::new(),
            without_messages: vec![],
            doubts: Doubts::default(),
            importable,
            not_imported: HashSet::new(),
            file: name.span.file,
            reported: HashSet::new(),
            paths: UniqueNames::default(),
            embeddings: HashMap::new(),
            streams: 0,
            params: HashMap::new(),
            param_prefixes: HashMap::new(),
            param_members: HashSet::new(),
            free_bases: HashMap::new(),
            param_names: UniqueNames::default(),
            graphs: HashMap::new(),
            graph_names: UniqueNames::default(),
            inputs: HashMap::new(),
            values: 0,
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
    pub fn attribute(&mut self, mut mistake: Diagnostic) -> Option<Diagnostic> {
        for frame in self.frames.iter().rev() {
            let instance = frame.instance.as_ref().map(|i| format!(", {i}")).unwrap_or_default();
            let text = format!("in this use of `{}`{instance}", frame.layer);
            match &mistake.primary {
                Some(inner) if inner.span.file != self.file && frame.span.file == self.file => {
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

    /// Is this place in the model's file?
    pub fn is_local(&self, span: Span) -> bool {
        span.file == self.file
    }

    /// Reports the mistake, if there is one, and goes on with an error term.
    pub fn settle(&mut self, result: Result<Term, Mistake>) -> Term {
        result.unwrap_or_else(|mistake| {
            self.report(*mistake);
            Term::Error
        })
    }

    /// Appends an operation whose operands were checked, accounted to a place in the source.
    pub fn emit(&mut self, op: Op, args: &[Value], span: Span) -> Value {
        self.flow.cursor.origin = Some(Origin { file: span.file.0, start: span.start, end: span.end });
        self.flow.add(op, args)
    }

    /// The stage that new operations are accounted to.
    pub fn enter(&mut self, stage: Stage) {
        self.flow.cursor.stage = stage;
        self.flow.cursor.phase = Phase::Forward;
    }

    /// A number as a value.
    pub fn constant(&mut self, number: f64, span: Span) -> Val {
        Val { kind: ValKind::Stored(self.emit(Op::Const(number), &[], span)), widths: vec![] }
    }

    /// A new stream of random numbers.
    pub fn next_stream(&mut self) -> u32 {
        self.streams += 1;
        self.streams - 1
    }

    /// A path that no other parameter starts with: `base`, `base_2`, …
    pub fn unique_path(&mut self, base: &str) -> String {
        self.paths.take(base)
    }

    /// Declares a parameter and returns its value.
    pub fn parameter(&mut self, name: String, widths: Vec<Width>, init: Init, decay: bool, span: Span) -> Val {
        let name = self.param_names.take(&name);
        let dims = widths.iter().map(|w| w.dim).collect();
        let param: Param = self.flow.declare_param(ParamDecl::new(name.clone(), dims, init, decay));
        let last = name.rfind('.').map_or("", |dot| &name[dot + 1..]);
        for end in name.match_indices('.').map(|(dot, _)| dot) {
            self.param_members.insert((name[..end].to_owned(), last.to_owned()));
            self.param_members.insert((name[..end].to_owned(), String::new()));
        }
        for end in name.match_indices('.').map(|(dot, _)| dot).chain([name.len()]) {
            match self.param_prefixes.get_mut(&name[..end]) {
                Some((first, others)) => *others |= *first != span,
                None => {
                    self.param_prefixes.insert(name[..end].to_owned(), (span, false));
                }
            }
        }
        self.params.insert(name, param);
        self.param_spans.push(span);
        self.param_widths.push(widths.clone());
        Val { kind: ValKind::Stored(self.emit(Op::Param(param), &[], span)), widths }
    }

    /// The parameter of that name.
    pub fn param_named(&self, name: &str) -> Option<Param> {
        self.params.get(name).copied()
    }

    /// Is there a parameter of another declaration with that name, or one that starts with it and a dot?
    pub fn has_other_params(&self, base: &str, decl: Span) -> bool {
        self.param_prefixes.get(base).is_some_and(|&(first, others)| others || first != decl)
    }

    /// Is there a parameter whose name starts with `base` and a dot, and ends with `suffix` (`.Paper`, or nothing)?
    pub fn has_member_params(&self, base: &str, suffix: &str) -> bool {
        let last = suffix.rsplit('.').next().unwrap_or_default();
        self.param_members.contains(&(base.to_owned(), last.to_owned()))
    }

    /// The semantic graph in the program's table.
    pub fn declare_graph(&mut self, graph: &GraphRef) -> Graph {
        let key = graph.edges_key();
        if let Some(known) = self.graphs.get(&key) {
            return *known;
        }
        let mut decl = graph.declaration();
        // `reverse_cites` may also be the name of a metapath.
        decl.name = self.graph_names.take(&decl.name);
        self.flow.graphs.push(decl);
        let graph = Graph::new(self.flow.graphs.len() - 1);
        self.graphs.insert(key, graph);
        graph
    }

    /// The semantic graph in the program's table, where it is there.
    pub fn declared_graph(&self, graph: &GraphRef) -> Option<Graph> {
        self.graphs.get(&graph.edges_key()).copied()
    }

    /// The input in the program's table.
    pub fn declare_input(&mut self, decl: InputDecl) -> Input {
        if let Some(known) = self.inputs.get(&decl.binding) {
            return *known;
        }
        let input = Input::new(self.flow.inputs.len());
        self.inputs.insert(decl.binding.clone(), input);
        self.flow.inputs.push(decl);
        input
    }

    /// Adds the values of an expression to the size of the program. A program that becomes too large is reported once,
    /// and the rest of it is not elaborated.
    pub fn keeps_size(&mut self, term: &Term, span: Span) -> bool {
        self.values += term.num_values();
        if self.values <= MAX_VALUES && self.flow.values.len() <= MAX_OPERATIONS {
            return true;
        }
        if !std::mem::replace(&mut self.too_large, true) {
            self.report(
                Diagnostic::at(
                    codes::TOO_LARGE,
                    span,
                    "the program becomes too large",
                    format!("here it has {} operations", self.flow.values.len()),
                )
                .note(format!("at most {MAX_OPERATIONS} operations are compiled"))
                .help("use fewer layers, or layers over fewer semantic graphs: each has operations of its own"),
            );
        }
        false
    }

    /// Is there no use in elaborating more?
    pub fn gives_up(&self) -> bool {
        self.too_large || self.diagnostics.has_enough()
    }

    /// The features of a vertex type: `Paper.x`.
    pub fn features(&mut self, vertex: VertexType, field: usize, span: Span) -> Val {
        let info = &self.schema.vertices[vertex.index()];
        let decl = &info.fields[field];
        let name = format!("{}.{}", info.name, decl.name);
        let space = Space::Vertices(vertex);
        let origin = decl.ty_span;
        let fixed = |n| Width { dim: Dim::Fixed(n), origin };
        match decl.kind {
            FieldKind::OneHot => {
                Val { kind: ValKind::OneHot(vertex), widths: vec![Width { dim: Dim::Count(vertex), origin }] }
            }
            FieldKind::Embedding(width) => {
                let value = match self.embeddings.get(&vertex) {
                    Some(value) => *value,
                    None => {
                        let widths = vec![Width { dim: Dim::Count(vertex), origin }, fixed(width)];
                        let init = Init::Glorot { fan_in: Dim::Count(vertex), fan_out: width };
                        let table = self.parameter(name, widths, init, true, decl.span);
                        let ValKind::Stored(table) = table.kind else { unreachable!("parameters are stored") };
                        let value = self.emit(Op::Rows, &[table], span);
                        self.embeddings.insert(vertex, value);
                        value
                    }
                };
                Val { kind: ValKind::Stored(value), widths: vec![fixed(width)] }
            }
            FieldKind::Real { width, sparse } => {
                let mut ty = Type::fixed(space, &[width]);
                if sparse {
                    ty.layout = Layout::Sparse(self.flow.declare_pattern(vertex, width));
                }
                let input = self.declare_input(InputDecl { name, ty, binding: Binding::Features(vertex) });
                Val { kind: ValKind::Stored(self.emit(Op::Input(input), &[], span)), widths: vec![fixed(width)] }
            }
            FieldKind::Number | FieldKind::Class(_) | FieldKind::MultiLabel(_) | FieldKind::Target(_) => {
                unreachable!("weights of edges and labels are not asked for as features")
            }
        }
    }

    /// Binds a name in a scope; a second binding of it is a mistake.
    pub fn bind(&mut self, scope: &mut Scope<'_>, name: &Ident, term: Term) {
        if let Some(first) = scope.spans.get(&name.name) {
            let report = duplicate("name", name, *first);
            self.report(report);
            return;
        }
        scope.spans.insert(name.name.clone(), name.span);
        scope.locals.insert(name.name.clone(), term);
    }

    /// Runs the body for `instance` ("vertex type `Author`"), so that reports say so.
    pub fn for_instance(&mut self, instance: Option<String>) {
        if let Some(frame) = self.frames.last_mut() {
            frame.instance = instance.map(|i| format!("for {i}"));
        }
    }

    /// The name of a vertex type.
    pub fn vertex_name(&self, vertex: VertexType) -> &'a str {
        &self.schema.vertices[vertex.index()].name
    }

    /// The value in the program, where the value can stand by itself.
    pub fn stored(&mut self, val: &Val, span: Span) -> Result<Value, Mistake> {
        match &val.kind {
            ValKind::Stored(value) => Ok(*value),
            ValKind::OneHot(_) => Err(self.one_hot_mistake(val, span)),
            ValKind::AtEnd(inner, ..) if matches!(**inner, ValKind::OneHot(_)) => Err(self.one_hot_mistake(val, span)),
            ValKind::AtEnd(..) => Err(Box::new(
                Diagnostic::at(
                    codes::SPARSE_VALUE,
                    span,
                    "sparse features cannot be copied to edges",
                    "these are sparse features at the end of an edge",
                )
                .label(val.widths[0].origin, "declared sparse here")
                .help("project them first: `@ w`, or an assignment in a `project` block"),
            )),
            ValKind::BlockDiagonal(_) => Err(Box::new(Diagnostic::at(
                codes::BAD_DECOMPOSITION,
                span,
                "a block-diagonal weight can only stand on the right of `@`",
                "used otherwise here",
            ))),
        }
    }

    fn one_hot_mistake(&self, val: &Val, span: Span) -> Mistake {
        Box::new(
            Diagnostic::at(
                codes::ONE_HOT_VALUE,
                span,
                "one-hot features can only be projected",
                "used as they are here",
            )
            .label(val.widths[0].origin, "declared one-hot here")
            .help("multiply them by a parameter (`@ w`), or declare `embedding[64]` for a learnable row per vertex"),
        )
    }
}

/// `name`, or `name_2`, …: the first that is not taken.
pub fn unique_name(name: String, taken: impl Fn(&str) -> bool) -> String {
    let mut unique = name.clone();
    let mut count = 1;
    while taken(&unique) {
        count += 1;
        unique = format!("{name}_{count}");
    }
    unique
}

/// Names that are taken, and never become free.
#[derive(Default)]
struct UniqueNames {
    taken: HashSet<String>,
    /// For each base with `base_2`, …: up to which number they are taken.
    counts: HashMap<String, usize>,
}

impl UniqueNames {
    /// `name`, or `name_2`, …: the first that is not taken. It is from now on.
    fn take(&mut self, name: &str) -> String {
        if self.taken.insert(name.to_owned()) {
            return name.to_owned();
        }
        let count = self.counts.entry(name.to_owned()).or_insert(1);
        loop {
            *count += 1;
            let unique = format!("{name}_{count}");
            if self.taken.insert(unique.clone()) {
                return unique;
            }
        }
    }
}
