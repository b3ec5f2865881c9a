//! The syntax tree: what was written, with a span on everything.
//!
//! Nothing here is resolved. `PartialEq` on the tree ignores nothing, spans included; the formatter's
//! tests compare printed text instead.

pub use hgnnc_diag::Span;

/// A name as written. Quoted names (`"a-b"`) keep their text without quotes.
#[derive(Clone, PartialEq, Debug)]
pub struct Ident {
    /// Text.
    pub name: String,
    /// Where.
    pub span: Span,
}

/// A file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Module {
    /// `//!` lines.
    pub doc: Vec<String>,
    /// Declarations in order.
    pub items: Vec<Item>,
    /// The last token or comment of the file, behind which more could stand; `None` for a file that was not read.
    pub end: Option<Span>,
    /// Warnings that are silenced where they stand, in order.
    pub allows: Vec<Allow>,
    /// Something could not be read and is not in the tree: what seems to be missing may stand there.
    pub incomplete: bool,
}

/// One code of `#[allow(W0003, …)]`.
#[derive(Clone, PartialEq, Debug)]
pub struct Allow {
    /// As written.
    pub code: Ident,
    /// The whole attribute.
    pub attribute: Span,
    /// The declaration, statement or entry that it holds for.
    pub extent: Span,
}

/// A top-level declaration.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// `use std::han::HanConv`
    Use(Use),
    /// `const hidden = 64`
    Const(Const),
    /// `schema Acm { … }`
    Schema(Schema),
    /// `layer HanConv(…) … { … }`
    Layer(Layer),
    /// `model Han(schema: Acm) { … }`
    Model(Model),
    /// `train Han { … }`
    Train(Train),
}

/// `use a::b::{C, D}`
#[derive(Clone, PartialEq, Debug)]
pub struct Use {
    /// `std`, `han`
    pub path: Vec<Ident>,
    /// What is imported from there.
    pub names: Vec<Ident>,
    /// The whole declaration.
    pub span: Span,
}

/// `const NAME = EXPR`
#[derive(Clone, PartialEq, Debug)]
pub struct Const {
    /// Name.
    pub name: Ident,
    /// Compile-time value.
    pub value: Expr,
    /// The whole declaration.
    pub span: Span,
}

/// `schema NAME { … }`
#[derive(Clone, PartialEq, Debug)]
pub struct Schema {
    /// Name.
    pub name: Ident,
    /// Declarations in order.
    pub items: Vec<SchemaItem>,
    /// The whole declaration.
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

/// A vertex type.
#[derive(Clone, PartialEq, Debug)]
pub struct VertexDecl {
    /// Name in the model.
    pub name: Ident,
    /// Name in the dataset, where it differs.
    pub from: Option<Text>,
    /// Features and labels.
    pub fields: Vec<FieldDecl>,
    /// The whole declaration.
    pub span: Span,
}

/// `x: f32[1902] sparse from "features"`
#[derive(Clone, PartialEq, Debug)]
pub struct FieldDecl {
    /// Name.
    pub name: Ident,
    /// Kind and width.
    pub ty: FieldType,
    /// Span of the type.
    pub ty_span: Span,
    /// Name in the dataset, where it differs.
    pub from: Option<Text>,
}

/// What a field holds.
#[derive(Clone, PartialEq, Debug)]
pub enum FieldType {
    /// `f32` or `f32[334]`, `sparse` or not.
    Real {
        /// Number of columns; none for a single number.
        width: Option<Expr>,
        /// Stored as CSR.
        sparse: bool,
    },
    /// `onehot`: the identity matrix.
    OneHot,
    /// `embedding[64]`: a learnable row per vertex.
    Embedding(Expr),
    /// `class[3]`: one class of several.
    Class(Expr),
    /// `multilabel[5]`: several labels at once.
    MultiLabel(Expr),
    /// `target[1]`: real numbers to predict.
    Target(Expr),
}

/// A relation.
#[derive(Clone, PartialEq, Debug)]
pub struct RelationDecl {
    /// Name in the model.
    pub name: Ident,
    /// Source type.
    pub src: Ident,
    /// Destination type.
    pub dst: Ident,
    /// Name in the dataset, where it differs.
    pub from: Option<Text>,
    /// Edge weight and features.
    pub fields: Vec<FieldDecl>,
    /// The whole declaration.
    pub span: Span,
}

/// A metapath.
#[derive(Clone, PartialEq, Debug)]
pub struct MetapathDecl {
    /// Name.
    pub name: Ident,
    /// `counted` before the path: path instances instead of distinct pairs.
    pub counted: bool,
    /// First vertex type.
    pub start: Ident,
    /// Hops.
    pub hops: Vec<Hop>,
    /// The whole declaration.
    pub span: Span,
}

/// `-written_by-> Author` or `<-written_by- Paper`
#[derive(Clone, PartialEq, Debug)]
pub struct Hop {
    /// The relation.
    pub relation: Ident,
    /// Against its direction.
    pub reverse: bool,
    /// The type arrived at.
    pub to: Ident,
}

/// `family NAME = [ … ]`
#[derive(Clone, PartialEq, Debug)]
pub struct FamilyDecl {
    /// Name.
    pub name: Ident,
    /// Members.
    pub graphs: GraphExpr,
    /// The whole declaration.
    pub span: Span,
}

/// Semantic graphs, or the scope of a reduction (which is a name).
#[derive(Clone, PartialEq, Debug)]
pub enum GraphExpr {
    /// `PAP`, `relations`, `in_edges`, `V`
    Name(Ident),
    /// `reverse(written_by)`, `self_loops(PAP)`, `identity(Paper)`
    Call {
        /// `reverse`, `self_loops`, `identity`
        function: Ident,
        /// What of.
        argument: Box<GraphExpr>,
        /// The whole expression.
        span: Span,
    },
    /// `[PAP, PSP]`
    List(Vec<GraphExpr>, Span),
    /// `relations into Paper`, `relations from Paper`
    Filter {
        /// The family.
        graphs: Box<GraphExpr>,
        /// `into` (true) or `from` (false).
        into: bool,
        /// The vertex type.
        vertex: Ident,
    },
}

impl GraphExpr {
    /// Where.
    pub fn span(&self) -> Span {
        match self {
            GraphExpr::Name(name) => name.span,
            GraphExpr::Call { span, .. } | GraphExpr::List(_, span) => *span,
            GraphExpr::Filter { graphs, vertex, .. } => graphs.span().to(vertex.span),
        }
    }
}

/// `layer NAME(params) over graphs: [V -> V] of x: V[in] -> V[out] { … }`
#[derive(Clone, PartialEq, Debug)]
pub struct Layer {
    /// `///` lines.
    pub doc: Vec<String>,
    /// Name.
    pub name: Ident,
    /// Compile-time parameters.
    pub params: Vec<LayerParam>,
    /// The family that it runs over; a layer without one has no `aggregate`.
    pub over: Option<LayerGraphs>,
    /// Inputs.
    pub inputs: Vec<LayerInput>,
    /// Results; a single one without a name is called `out`.
    pub results: Vec<LayerResult>,
    /// Body.
    pub body: Vec<LayerStmt>,
    /// From `layer` to the end of the signature.
    pub span: Span,
}

/// `hidden: dim`, `slope = 0.2`, `activation: fn = relu`
#[derive(Clone, PartialEq, Debug)]
pub struct LayerParam {
    /// Name.
    pub name: Ident,
    /// Kind; taken from the default where it is not given.
    pub kind: Option<ParamKind>,
    /// Default.
    pub default: Option<Expr>,
}

/// Kind of a compile-time parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// `dim`: a whole number, at least 0.
    Dim,
    /// `real`
    Real,
    /// `bool`
    Bool,
    /// `fn`: the name of an element-wise function.
    Function,
}

/// `over graphs: [V -> V]` or `over graphs: [*]`
#[derive(Clone, PartialEq, Debug)]
pub struct LayerGraphs {
    /// Name of the family inside the layer.
    pub name: Ident,
    /// Type variables of source and destination; `None` for `[*]`: any types.
    pub ends: Option<(Ident, Ident)>,
    /// The whole clause.
    pub span: Span,
}

/// What a layer's input or result has one row for.
#[derive(Clone, PartialEq, Debug)]
pub enum RowsOf {
    /// `V`: a type variable, or the layer's family by its name (one value per edge of each graph).
    Name(Ident),
    /// `*`: every vertex type at hand.
    Any(Span),
}

/// `x: V[in]`, `prev: graphs[heads] optional`
#[derive(Clone, PartialEq, Debug)]
pub struct LayerInput {
    /// Name.
    pub name: Ident,
    /// Rows.
    pub rows: RowsOf,
    /// Names bound to (or expressions compared with) the widths.
    pub dims: Vec<Expr>,
    /// May be left out; `given(x)` tells.
    pub optional: bool,
    /// The whole clause.
    pub span: Span,
}

/// `V[heads * hidden]`
#[derive(Clone, PartialEq, Debug)]
pub struct LayerResult {
    /// Name; `out` where none is written.
    pub name: Ident,
    /// Rows.
    pub rows: RowsOf,
    /// Widths.
    pub dims: Vec<Expr>,
    /// The whole clause.
    pub span: Span,
}

/// A part of a layer's body.
#[derive(Clone, PartialEq, Debug)]
pub enum LayerStmt {
    /// `param w: [4, in, out]`: shared by all blocks.
    Param(ParamDecl),
    /// `project v: V { … }`, `aggregate e: g in graphs { … }`, `fuse v: V across graphs { … }`
    Block(Block),
}

/// A stage.
#[derive(Clone, PartialEq, Debug)]
pub struct Block {
    /// Which.
    pub kind: BlockKind,
    /// `v` or `e`.
    pub variable: Ident,
    /// Statements.
    pub body: Vec<Stmt>,
    /// The head.
    pub span: Span,
}

/// Which stage.
#[derive(Clone, PartialEq, Debug)]
pub enum BlockKind {
    /// `project v: V` or `project v: *`: FP, once per vertex type.
    Project(RowsOf),
    /// `aggregate e: g in graphs`: NA, once per semantic graph.
    Aggregate {
        /// `g`
        graph: Ident,
        /// `graphs`
        family: Ident,
    },
    /// `fuse v: V across graphs`: SF, once per vertex type.
    Fuse {
        /// `V` or `*`
        rows: RowsOf,
        /// `graphs`; none for a layer without semantic graphs.
        family: Option<Ident>,
    },
}

/// A statement of a stage or model.
#[derive(Clone, PartialEq, Debug)]
pub enum Stmt {
    /// `param w: [in, hidden] per graph basis(30) = glorot`
    Param(ParamDecl),
    /// `let a = …`: a local name.
    Let(Binding),
    /// `h = …`: a field of the vertex or edge, or the result.
    Assign(Binding),
    /// `output logits: Paper = …` (models only)
    Output(OutputStmt),
}

/// Name and value.
#[derive(Clone, PartialEq, Debug)]
pub struct Binding {
    /// Name.
    pub name: Ident,
    /// Value.
    pub value: Expr,
}

/// `output NAME: Vertex = EXPR`
#[derive(Clone, PartialEq, Debug)]
pub struct OutputStmt {
    /// Name.
    pub name: Ident,
    /// Vertex type.
    pub vertex: Ident,
    /// Value.
    pub value: Expr,
}

/// A trainable parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct ParamDecl {
    /// Name.
    pub name: Ident,
    /// Shape; empty for a scalar.
    pub dims: Vec<Expr>,
    /// One for each of what; the block's own where it is not written.
    pub per: Option<(Per, Span)>,
    /// `basis(30)` or `blocks(4)`
    pub decomposition: Option<Decomposition>,
    /// `glorot`, `zeros`, `normal(0.1)`; glorot where it is not written.
    pub init: Option<Expr>,
    /// Excluded from weight decay: `no_decay`.
    pub no_decay: bool,
    /// The whole declaration.
    pub span: Span,
}

/// One parameter for each …
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Per {
    /// `per graph`: semantic graph.
    Graph,
    /// `per type`: vertex type (in `project` and `fuse`).
    Type,
    /// `per src`: source vertex type (in `aggregate`).
    Src,
    /// `per dst`: destination vertex type (in `aggregate`).
    Dst,
    /// `shared`
    Shared,
}

/// How a family of weights is tied together.
#[derive(Clone, PartialEq, Debug)]
pub enum Decomposition {
    /// `basis(B)`: each is a learned combination of B shared bases (RGCN, eq. 3).
    Basis(Expr),
    /// `blocks(B)`: block-diagonal with B blocks (RGCN, eq. 4).
    Blocks(Expr),
}

/// `model NAME(schema: Acm) { … }`
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// `///` lines.
    pub doc: Vec<String>,
    /// Name.
    pub name: Ident,
    /// Name of its schema.
    pub schema: Ident,
    /// Body.
    pub body: Vec<Stmt>,
    /// The head.
    pub span: Span,
}

/// `train NAME { … }`
#[derive(Clone, PartialEq, Debug)]
pub struct Train {
    /// The model's name.
    pub model: Ident,
    /// Entries in order.
    pub entries: Vec<TrainEntry>,
    /// The head.
    pub span: Span,
}

/// A line of a train block. The first field of each is the span of the keyword or of the whole line.
#[derive(Clone, PartialEq, Debug)]
pub enum TrainEntry {
    /// `loss cross_entropy(logits, Paper.topic)`
    Loss(Span, Expr),
    /// `optimizer adam(lr: 0.005)`
    Optimizer(Span, Expr),
    /// `schedule cosine(epochs: 200)`
    Schedule(Span, Expr),
    /// `clip norm(1.0)` or `clip value(0.5)`
    Clip(Span, Expr),
    /// `epochs 200`
    Epochs(Span, Expr),
    /// `batch 1024`
    Batch(Span, Expr),
    /// `fanout [15, 10] { cites: [5, all] }`
    Fanout(Span, Fanout),
    /// `reuse hot(0.1, batches: 8)`
    Reuse(Span, Expr),
    /// `negatives uniform(10)`
    Negatives(Span, Expr),
    /// `exclude [inverse_of_likes]`
    Exclude(Span, GraphExpr),
    /// `stop when val.loss has not improved for 100 epochs`
    Stop(Span, Criterion, Expr),
    /// `select val.macro_f1`
    Select(Span, Criterion),
    /// `metrics micro_f1, macro_f1`
    Metrics(Span, Vec<Ident>),
    /// `split "gtn"`
    Split(Span, Text),
    /// `dataset "synth acm"`
    Dataset(Span, Text),
    /// `seed 7`
    Seed(Span, Expr),
}

/// In-edges that a vertex draws: `[15, 10] { cites: [5, all] }`
#[derive(Clone, PartialEq, Debug)]
pub struct Fanout {
    /// For all semantic graphs that are not named: a list of numbers and `all`, one for each hop from the seeds.
    pub hops: Expr,
    /// For those that are.
    pub graphs: Vec<GraphFanout>,
}

/// `cites: [5, all]`
#[derive(Clone, PartialEq, Debug)]
pub struct GraphFanout {
    /// Which semantic graphs.
    pub graphs: GraphExpr,
    /// As [`Fanout::hops`].
    pub hops: Expr,
}

/// `val.loss`
#[derive(Clone, PartialEq, Debug)]
pub struct Criterion {
    /// `train`, `val`, `test`
    pub part: Ident,
    /// `loss`, `macro_f1`, …
    pub metric: Ident,
}

/// A string.
#[derive(Clone, PartialEq, Debug)]
pub struct Text {
    /// Without quotes, escapes resolved.
    pub value: String,
    /// With quotes.
    pub span: Span,
}

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// What.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

/// What an expression is.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// `0.2`
    Number(f64),
    /// `true`
    Bool(bool),
    /// `h`
    Name(String),
    /// `e.src.h`, `Paper.x`
    Field(Box<Expr>, Ident),
    /// `-a`, `not a`
    Unary(UnaryOp, Box<Expr>),
    /// `a + b`
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// `f(a, n: 3) over in_edges across graphs of x`
    Call(Box<Call>),
    /// `[a, b]`: a shape, or a list of numbers
    List(Vec<Expr>),
    /// `(a, b)`: written for a list, and none in this language.
    Tuple(Vec<Expr>),
    /// `{Paper.x, Author.x}`: values of several vertex types
    Bundle(Vec<Expr>),
    /// `if c { a } else { b }`, decided at compile time
    If(Box<Expr>, Box<Expr>, Box<Expr>),
    /// Something that did not parse; reported already.
    Error,
}

/// Prefix operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOp {
    /// `-a`
    Neg,
    /// `not a`
    Not,
}

/// Infix operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `a or b`
    Or,
    /// `a and b`
    And,
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`: element by element
    Mul,
    /// `a / b`
    Div,
    /// `a @ b`: product over the last dimension of `a` and the first of `b`
    MatMul,
}

/// A call of a function, or the use of a layer.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// Function or layer.
    pub callee: Ident,
    /// Arguments.
    pub args: Vec<Arg>,
    /// `over in_edges`, `over last`, `over V`, or a layer's `over [PAP, PSP]`.
    pub over: Option<GraphExpr>,
    /// `across graphs`
    pub across: Option<Ident>,
    /// `of Paper.x`, `of (h, prev: alpha)`: a layer's inputs.
    pub of: Vec<Arg>,
}

/// An argument.
#[derive(Clone, PartialEq, Debug)]
pub struct Arg {
    /// `lr` in `lr: 0.01`
    pub name: Option<Ident>,
    /// Value.
    pub value: Expr,
}
