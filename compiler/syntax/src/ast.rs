//! The abstract syntax tree of a source file, with a span on every node.
//!
//! Names are not resolved. `PartialEq` compares everything, spans included; the formatter's tests
//! therefore compare printed text.

pub use hgnnc_diag::Span;

/// A name as written. Quoted names (`"a-b"`) keep their text without quotes.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Ident {
    pub name: String,
    pub span: Span,
}

/// The tree of a file.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Module {
    /// Module documentation, the `//!` lines.
    pub doc: Vec<String>,
    pub items: Vec<Item>,
    /// The last token or comment of the file, after which more code could be inserted; `None` for a generated module.
    pub end: Option<Span>,
    /// Warnings silenced by attributes, in source order.
    pub allows: Vec<Allow>,
    /// Some text did not parse and is not in the tree, so a missing declaration is not necessarily an error.
    pub incomplete: bool,
}

/// One code of `#[allow(W0003, …)]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Allow {
    /// The warning code as written.
    pub code: Ident,
    /// Span of the whole attribute.
    pub attribute: Span,
    /// Span of the declaration, statement or entry that the attribute applies to.
    pub extent: Span,
}

/// A top-level declaration of a file.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum Item {
    /// An import, `use std::han::HanConv` or `use "layers.hgnn"`.
    Use(Use),
    /// A compile-time constant, `const hidden = 64`.
    Const(Const),
    Schema(Schema),
    Layer(Layer),
    Model(Model),
    Train(Train),
}

/// An import, `use a::b::{C, D}`, `use "layers.hgnn"` or `use "layers.hgnn"::C`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Use {
    pub from: UseFrom,
    /// The imported names, `C` and `D`; none for all that a file declares.
    pub names: Vec<Ident>,
    pub span: Span,
}

/// The place that an import is from.
#[derive(Clone, PartialEq, Debug)]
pub enum UseFrom {
    /// A module of the standard library or of a package: `std`, `han`.
    Module(Vec<Ident>),
    /// A file, relative to the one that imports it: `"layers.hgnn"`.
    File(Text),
}

impl UseFrom {
    /// `std::han`, or the path of a file.
    pub fn text(&self) -> String {
        match self {
            UseFrom::Module(parts) => parts.iter().map(|part| part.name.as_str()).collect::<Vec<_>>().join("::"),
            UseFrom::File(path) => path.value.clone(),
        }
    }
}

/// A compile-time constant, `const NAME = EXPR`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Const {
    pub name: Ident,
    /// A compile-time expression, evaluated by the checker.
    pub value: Expr,
    pub span: Span,
}

/// A schema, `schema NAME { … }`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Schema {
    pub name: Ident,
    pub items: Vec<SchemaItem>,
    pub span: Span,
}

/// A declaration of a schema.
#[derive(Clone, PartialEq, Debug)]
pub enum SchemaItem {
    /// `vertex Paper from "paper" { x: f32[1902] sparse, topic: class[3] }`
    Vertex(VertexDecl),
    /// `relation written_by: Paper -> Author from "paper-author" { weight: f32 }`
    Relation(RelationDecl),
    /// `metapath PAP = Paper -written_by-> Author <-written_by- Paper`
    Metapath(MetapathDecl),
    /// `family collaboration = [PAP, written_by]`
    Family(FamilyDecl),
}

/// The declaration of a vertex type.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct VertexDecl {
    pub name: Ident,
    /// Name in the dataset, if it differs.
    pub from: Option<Text>,
    /// Features and labels, in source order.
    pub fields: Vec<FieldDecl>,
    pub span: Span,
}

/// A field, `x: f32[1902] sparse from "features"`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FieldDecl {
    pub name: Ident,
    pub ty: FieldType,
    pub ty_span: Span,
    /// Initialization of learned rows, as of a parameter: `uniform(0.1)`; Glorot if absent.
    pub init: Option<Expr>,
    /// Name in the dataset, if it differs.
    pub from: Option<Text>,
}

/// The type of a field: features, labels or targets.
#[derive(Clone, PartialEq, Debug)]
pub enum FieldType {
    /// Real features, `f32` or `f32[334]`, dense or `sparse`.
    Real {
        /// Number of columns; `None` for a scalar.
        width: Option<Expr>,
        /// Stored in CSR format.
        sparse: bool,
    },
    /// One-hot features, `onehot`: the identity matrix.
    OneHot,
    /// An embedding table, `embedding[64]`: one learnable row per vertex.
    Embedding(Expr),
    /// Single-label classes, `class[3]`: one class out of several.
    Class(Expr),
    /// Multi-label classes, `multilabel[5]`: any number of labels at once.
    MultiLabel(Expr),
    /// Regression targets, `target[1]`: real numbers to predict.
    Target(Expr),
    /// Times, `time`: of vertices or edges, in a unit of the dataset.
    Time,
    /// The time as of which a vertex without one is read, `cutoff`.
    Cutoff,
}

/// The declaration of a relation.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct RelationDecl {
    pub name: Ident,
    pub src: Ident,
    pub dst: Ident,
    /// Name in the dataset, if it differs.
    pub from: Option<Text>,
    /// Edge weights and edge features.
    pub fields: Vec<FieldDecl>,
    pub span: Span,
}

/// The declaration of a metapath.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct MetapathDecl {
    pub name: Ident,
    /// `counted` before the path: edges count path instances, where otherwise pairs are distinct.
    pub counted: bool,
    /// The vertex type at the start.
    pub start: Ident,
    pub hops: Vec<Hop>,
    pub span: Span,
}

/// One step of a metapath, `-written_by-> Author` or `<-written_by- Paper`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Hop {
    pub relation: Ident,
    /// Traverse the relation from destination to source.
    pub reverse: bool,
    /// The vertex type that the step leads to.
    pub to: Ident,
}

/// A family of semantic graphs, `family NAME = [ … ]`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FamilyDecl {
    pub name: Ident,
    pub graphs: GraphExpr,
    pub span: Span,
}

/// An expression for semantic graphs, or the scope of a reduction (a name).
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum GraphExpr {
    /// A name: `PAP`, `relations`, `in_edges`, `V`.
    Name(Ident),
    /// A derived graph: `reverse(written_by)`, `self_loops(PAP)`, `identity(Paper)`, `shuffle(Paper, 16)`.
    Call {
        /// One of `reverse`, `self_loops`, `links`, `identity`, `shuffle`.
        function: Ident,
        argument: Box<GraphExpr>,
        /// A number of graphs.
        count: Option<Box<Expr>>,
        span: Span,
    },
    /// A list of graphs, `[PAP, PSP]`.
    List(Vec<GraphExpr>, Span),
    /// The graphs into or out of a vertex type: `relations into Paper`, `relations from Paper`.
    Filter {
        graphs: Box<GraphExpr>,
        /// `into` if true, else `from`.
        into: bool,
        vertex: Ident,
    },
    /// A choice of path instances: `UATAU at most 50 per vertex`.
    AtMost {
        graphs: Box<GraphExpr>,
        /// The most instances that end at a vertex.
        limit: Box<Expr>,
        span: Span,
    },
}

impl GraphExpr {
    /// The span of the whole expression.
    pub fn span(&self) -> Span {
        match self {
            GraphExpr::Name(name) => name.span,
            GraphExpr::Call { span, .. } | GraphExpr::List(_, span) | GraphExpr::AtMost { span, .. } => *span,
            GraphExpr::Filter { graphs, vertex, .. } => graphs.span().to(vertex.span),
        }
    }
}

/// A layer, `layer NAME(params) over graphs: [V -> V] of x: V[in] -> V[out] { … }`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Layer {
    /// Documentation, the `///` lines.
    pub doc: Vec<String>,
    pub name: Ident,
    pub params: Vec<LayerParam>,
    /// The family of graphs that it runs over; a layer without one has no `aggregate`.
    pub over: Option<LayerGraphs>,
    pub inputs: Vec<LayerInput>,
    /// Results. The first may be unnamed: it is called `out` and is the value of the layer's use.
    pub results: Vec<LayerResult>,
    pub body: Vec<LayerStmt>,
    /// Span from `layer` to the end of the signature.
    pub span: Span,
}

/// A compile-time parameter: `hidden: dim`, `slope = 0.2`, `activation: fn = relu`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct LayerParam {
    pub name: Ident,
    /// Kind; inferred from the default if absent.
    pub kind: Option<ParamKind>,
    pub default: Option<Expr>,
}

/// The kind of a compile-time parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum ParamKind {
    /// `dim`: a non-negative integer.
    Dim,
    Real,
    Bool,
    /// `fn`: the name of an element-wise function.
    Function,
}

/// The graphs of a layer: `over graphs: [V -> V]` or `over graphs: [*]`.
#[derive(Clone, PartialEq, Debug)]
pub struct LayerGraphs {
    /// Name of the family within the layer.
    pub name: Ident,
    /// Type variables of source and destination; `None` for `[*]`, which admits any types.
    pub ends: Option<(Ident, Ident)>,
    /// Span of the whole clause.
    pub span: Span,
}

/// The row space of a layer's input or result.
#[derive(Clone, PartialEq, Debug)]
pub enum RowsOf {
    /// `V`: a type variable, or the layer's family by its name (one value per edge of each graph).
    Name(Ident),
    /// `*`: every vertex type in scope.
    Any(Span),
}

/// A tensor input of a layer: `x: V[in]`, `prev: graphs[heads] optional`, `r: per graph[d]`, `rows: V[in] per graph`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct LayerInput {
    pub name: Ident,
    pub rows: ValueRows,
    /// Trailing dimensions: names to bind, or expressions to compare with.
    pub dims: Vec<Expr>,
    /// The input may be omitted; `given(x)` tests for it.
    pub optional: bool,
    pub span: Span,
}

/// A result of a layer: `V[heads * hidden]`, `alpha: graphs[heads]`, `beta: per graph`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct LayerResult {
    /// Name; `out` for an unnamed result.
    pub name: Ident,
    pub rows: ValueRows,
    pub dims: Vec<Expr>,
    pub span: Span,
}

impl LayerResult {
    /// Is it unnamed, the value of the layer's use? It has the span of its type as that of its name.
    pub fn is_unnamed(&self) -> bool {
        self.name.span == self.span
    }
}

/// The row space of a layer's input or result.
#[derive(Clone, PartialEq, Debug)]
pub enum ValueRows {
    /// A row for each vertex or edge.
    Of(RowsOf),
    /// `per graph`: one row for each semantic graph of the family.
    PerGraph,
    /// `V[…] per graph`: for each semantic graph of the family, a row for each vertex where it ends.
    OfEachGraph(RowsOf),
}

impl Layer {
    /// Its blocks and the statements between them as they are written, those of repeated blocks included.
    pub fn parts(&self) -> impl Iterator<Item = LayerPart<'_>> {
        let mut pending: Vec<&LayerStmt> = self.body.iter().rev().collect();
        std::iter::from_fn(move || {
            loop {
                match pending.pop()? {
                    LayerStmt::Statement(stmt) => return Some(LayerPart::Statement(stmt)),
                    LayerStmt::Block(block) => return Some(LayerPart::Block(block)),
                    LayerStmt::Repeat(repeat) => pending.extend(repeat.body.iter().rev()),
                }
            }
        })
    }
}

/// A member of a layer's body or of repeated blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LayerPart<'a> {
    /// A parameter between the blocks, or a statement of a layer without blocks.
    Statement(&'a Stmt),
    /// One of its stages: FP, NA or SF.
    Block(&'a Block),
}

/// A member of a layer's body.
#[derive(Clone, PartialEq, Debug)]
pub enum LayerStmt {
    /// A parameter shared by all blocks, `param w: [4, in, out]`; in a layer without blocks, a statement like those of a model.
    Statement(Stmt),
    /// A stage: `project v: V { … }`, `aggregate e: g in graphs { … }`, `fuse v: V across graphs { … }`.
    Block(Block),
    /// Blocks, several times: `repeat steps { … }`.
    Repeat(Repeat<LayerStmt>),
}

/// A stage of a layer: FP, NA or SF.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Block {
    pub kind: BlockKind,
    /// The vertex or edge variable, `v` or `e`.
    pub variable: Ident,
    pub body: Vec<Stmt>,
    /// Span of the head, without the body.
    pub span: Span,
}

/// The kind of a stage.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum BlockKind {
    /// `project v: V` or `project v: *`: FP, runs once per vertex type.
    Project(RowsOf),
    /// `aggregate e: g in graphs`: NA, runs once per semantic graph.
    Aggregate {
        /// The loop variable `g`.
        graph: Ident,
        /// The family `graphs` that it iterates over.
        family: Ident,
    },
    /// `fuse v: V across graphs`: SF, runs once per vertex type.
    Fuse {
        /// The vertex types, `V` or `*`.
        rows: RowsOf,
        /// The family `graphs`; `None` for a layer without semantic graphs.
        family: Option<Ident>,
    },
}

/// A statement in a stage or model.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// A parameter, `param w: [in, hidden] per graph basis(30) = glorot`.
    Param(ParamDecl),
    /// A local name, `let a = …`.
    Let(Binding),
    /// An assignment `h = …` to a field of the vertex or edge, or to the result.
    Assign(Binding),
    /// A model output, `output logits: Paper = …`.
    Output(OutputStmt),
    /// Statements of a model, several times: `repeat 3 { … }`.
    Repeat(Repeat<Stmt>),
}

/// Statements of a model, or members of a layer's body, that are written once and evaluated several times.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Repeat<S> {
    /// The number of times.
    pub times: Expr,
    pub body: Vec<S>,
    /// The span of the statement up to its body.
    pub span: Span,
}

/// A name with its value.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Binding {
    pub name: Ident,
    pub value: Expr,
    /// The statement of a model whose parameters are those of this one as well.
    pub sharing: Option<Ident>,
}

impl Binding {
    /// The end of its text.
    pub fn end(&self) -> u32 {
        self.sharing.as_ref().map_or(self.value.span.end, |sharing| sharing.span.end)
    }
}

/// A model output, `output NAME: Vertex = EXPR` or `output NAME: edges(RELATION) = EXPR`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct OutputStmt {
    pub name: Ident,
    pub vertex: Ident,
    /// The relation whose edges its rows are, `edges(rates)`.
    pub of: Option<Ident>,
    pub value: Expr,
    /// The statement whose parameters are those of this one as well.
    pub sharing: Option<Ident>,
}

/// The declaration of a trainable parameter.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ParamDecl {
    pub name: Ident,
    /// Shape; empty for a scalar.
    pub dims: Vec<Expr>,
    /// The sharing clause; `None` for the default of the block.
    pub per: Option<(Per, Span)>,
    /// The decomposition, `basis(30)` or `blocks(4)`.
    pub decomposition: Option<Decomposition>,
    /// Initialization: `glorot`, `zeros`, `normal(0.1)`; Glorot if absent.
    pub init: Option<Expr>,
    /// Excluded from weight decay (`no_decay`).
    pub no_decay: bool,
    pub span: Span,
}

/// The sharing of a parameter: one instance for each element of a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Per {
    /// `per graph`: one for each semantic graph.
    Graph,
    /// `per type`: one for each vertex type (in `project` and `fuse`).
    Type,
    /// `per src`: one for each source vertex type (in `aggregate`).
    Src,
    /// `per dst`: one for each destination vertex type (in `aggregate`).
    Dst,
    /// `per hop`: one for each relation that paths walk along (in `aggregate` over paths).
    Hop,
    /// `shared`: a single instance for all.
    Shared,
}

/// Weight sharing within a family of weights.
#[derive(Clone, PartialEq, Debug)]
pub enum Decomposition {
    /// `basis(B)`: each weight is a learned combination of B shared bases (RGCN, eq. 3).
    Basis(Expr),
    /// `blocks(B)`: block-diagonal with B blocks (RGCN, eq. 4).
    Blocks(Expr),
}

/// A model, `model NAME(schema: Acm) { … }`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Model {
    /// Documentation, the `///` lines.
    pub doc: Vec<String>,
    pub name: Ident,
    /// Name of its schema.
    pub schema: Ident,
    pub body: Vec<Stmt>,
    /// Span of the head, without the body.
    pub span: Span,
}

/// A training configuration, `train NAME { … }`.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Train {
    /// Name of the model.
    pub model: Ident,
    pub entries: Vec<TrainEntry>,
    /// Span of the head, without the body.
    pub span: Span,
}

/// A line of a train block. The first field is the span of the keyword or of the whole line.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum TrainEntry {
    /// `loss cross_entropy(logits, Paper.topic)`: the loss function.
    Loss(Span, Expr),
    /// `optimizer adam(lr: 0.005)`: the optimizer with its hyperparameters.
    Optimizer(Span, Expr),
    /// `schedule cosine(epochs: 200)`: the learning rate schedule.
    Schedule(Span, Expr),
    /// `clip norm(1.0)` or `clip value(0.5)`: gradient clipping.
    Clip(Span, Expr),
    /// `epochs 200`: the maximum number of epochs.
    Epochs(Span, Expr),
    /// `batch 1024`: the number of seed vertices per mini-batch.
    Batch(Span, Expr),
    /// `fanout [15, 10] { cites: [5, all] }`: neighbour sampling.
    Fanout(Span, Fanout),
    /// `reuse hot(0.1, batches: 8)`: historical embeddings.
    Reuse(Span, Expr),
    /// `negatives uniform(10)`: negative sampling for links.
    Negatives(Span, Expr),
    /// `exclude [inverse_of_likes]`: relations that repeat the links.
    Exclude(Span, GraphExpr),
    /// `cutoff time`: no message is later than the vertex that reads it. `cutoff time every 30`: the ends of a link to predict read
    /// what is earlier than its period.
    Cutoff(Span, Option<Expr>),
    /// `stop when val.loss has not improved for 100 epochs`: early stopping.
    Stop(Span, Criterion, Expr),
    /// `select val.macro_f1`: the criterion of the best epoch.
    Select(Span, Criterion),
    /// `select last`: an epoch by name.
    SelectEpoch(Span, Ident),
    /// `metrics micro_f1, macro_f1`: the metrics to report.
    Metrics(Span, Vec<Ident>),
    /// `split "gtn"`: the dataset split to use.
    Split(Span, Text),
    /// `dataset "synth acm"`: the default dataset, unless the command line names one.
    Dataset(Span, Text),
    /// `seed 7`: the seed of all random numbers.
    Seed(Span, Expr),
}

/// Fan-outs of neighbour sampling: `[15, 10] { cites: [5, all] }`.
#[derive(Clone, PartialEq, Debug)]
pub struct Fanout {
    /// Fan-outs of all semantic graphs without an entry of their own: a number or `all` for each hop from the seeds.
    pub hops: Expr,
    /// Fan-outs of single semantic graphs.
    pub graphs: Vec<GraphFanout>,
}

/// Fan-outs of some semantic graphs, `cites: [5, all]`.
#[derive(Clone, PartialEq, Debug)]
pub struct GraphFanout {
    /// The semantic graphs that it applies to.
    pub graphs: GraphExpr,
    /// One fan-out per hop, as in [`Fanout::hops`].
    pub hops: Expr,
}

/// A metric on a part of the split, `val.loss` or `val.logits.accuracy`.
#[derive(Clone, PartialEq, Debug)]
pub struct Criterion {
    /// The part: `train`, `val` or `test`.
    pub part: Ident,
    /// The output, where the loss is of several.
    pub term: Option<Ident>,
    /// The metric: `loss`, `macro_f1`, …
    pub metric: Ident,
}

/// A string literal with its span.
#[derive(Clone, PartialEq, Debug)]
pub struct Text {
    /// The text without quotes, with escapes resolved.
    pub value: String,
    /// The span, with quotes.
    pub span: Span,
}

/// An expression with its span.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Expr {
    pub kind: ExprKind,
    pub span: Span,
}

/// The kind of an expression, with its operands.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum ExprKind {
    Number(f64),
    Bool(bool),
    Name(String),
    /// A field access: `e.src.h`, `Paper.x`.
    Field(Box<Expr>, Ident),
    /// Parts of dimensions, the first one first: `x[0..8]`, `x[.., 2]`.
    Slice(Box<Expr>, Vec<Part>),
    /// A part of a path by its number: `p.at(1)`, `p.edge(0)`.
    PathPart {
        base: Box<Expr>,
        part: Ident,
        index: Box<Expr>,
    },
    /// A prefix operator: `-a`, `not a`.
    Unary(UnaryOp, Box<Expr>),
    /// An infix operator: `a + b`.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// A call: `f(a, n: 3) over in_edges across graphs of x`.
    Call(Box<Call>),
    /// A shape or a list of numbers: `[a, b]`.
    List(Vec<Expr>),
    /// `(a, b)`, the list syntax of other languages, which the checker rejects.
    Tuple(Vec<Expr>),
    /// Values of several vertex types: `{Paper.x, Author.x}`.
    Bundle(Vec<Expr>),
    /// A compile-time conditional: `if c { a } else { b }`.
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A placeholder for text that did not parse and has been reported.
    Error,
}

/// The part of a dimension that is taken.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    /// One element, without the dimension.
    At(Expr),
    /// The elements from the first number on, up to the second one and without it.
    Range(Option<Expr>, Option<Expr>),
}

impl Part {
    /// The numbers that it is written with.
    pub fn bounds(&self) -> impl Iterator<Item = &Expr> {
        let (first, second) = match self {
            Part::At(at) => (Some(at), None),
            Part::Range(start, end) => (start.as_ref(), end.as_ref()),
        };
        first.into_iter().chain(second)
    }
}

/// Prefix operators, `-a` and `not a`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum UnaryOp {
    Neg,
    Not,
}

/// Infix operators, from the loosest to the tightest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum BinaryOp {
    Or,
    And,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Add,
    Sub,
    /// `a * b`: element by element, with broadcasting.
    Mul,
    Div,
    /// `a @ b`: contracts the last dimension of `a` with the first of `b`.
    MatMul,
}

/// A call of a function or an instantiation of a layer.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Call {
    /// Name of the function or layer.
    pub callee: Ident,
    pub args: Vec<Arg>,
    /// `over in_edges`, `over last`, `over V`, or the `over [PAP, PSP]` of a layer.
    pub over: Option<GraphExpr>,
    /// The family of `across graphs`, if given.
    pub across: Option<Ident>,
    /// Tensor inputs of a layer: `of Paper.x`, `of (h, prev: alpha)`.
    pub of: Vec<Arg>,
}

/// An argument, positional or named.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Arg {
    /// The name `lr` in `lr: 0.01`.
    pub name: Option<Ident>,
    pub value: Expr,
}
