//! The typed model: names resolved, spaces and shapes known, no operation of the dataflow IR.
//!
//! Expressions form a graph in an arena: a name stands for the expression that it was bound to. A family is one thing
//! here: an expression has a value for each semantic graph, or for each vertex type, and its type says which; so is a
//! parameter with an entry per relation. Instantiation evaluates every expression once, at the statement that holds it,
//! and gives parameters their names.

#![forbid(unsafe_code)]

mod dims;
mod print;
mod tables;
pub mod text;
mod unique_names;
pub mod verify;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use hgnnc_diag::Span;
use hgnnc_ir::dataflow::{GraphDecl, RelationDecl, VertexTypeDecl};
use hgnnc_ir::training::LinkLoss;
use hgnnc_ir::{BinaryOp, Direction, Graph, PathDecl, Space, Table, UnaryOp, VertexType};

pub use dims::{Dim, Symbol, Symbols};
pub use print::print;
pub use unique_names::UniqueNames;
pub use verify::verify;

/// A model whose names, spaces and shapes are resolved.
#[derive(Default)]
pub struct Model {
    /// Its name in the source.
    pub name: String,
    /// The tables that types and expressions refer to.
    pub tables: Tables,
    /// All expressions, operands first.
    pub exprs: Vec<Expr>,
    /// All declarations of parameters, by layer use and block.
    pub params: Vec<Param>,
    /// All uses of layers.
    pub uses: Vec<LayerUse>,
    /// The statements of the model, in order.
    pub body: Vec<Stmt>,
    /// The outputs by name.
    pub outputs: BTreeMap<String, Output>,
    /// The loss of the train block.
    pub loss: Option<Loss>,
}

impl Model {
    /// The expression with this handle.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.index()]
    }
}

/// Vertex types, relations and the semantic graphs that layers run over.
#[derive(Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Tables {
    pub vertex_types: Table<VertexTypeDecl>,
    pub relations: Table<RelationDecl>,
    pub graphs: Table<GraphDecl>,
    /// Families of several semantic graphs.
    pub families: Table<Vec<Graph>>,
    /// The metapaths whose instances are vertices of a type.
    pub paths: Table<PathDecl>,
    /// Dimensions that are known by name only: those of a layer that is checked without a use.
    pub symbols: Symbols,
}

/// The handle of an expression.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(u32);

impl fmt::Display for ExprId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Debug for ExprId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl ExprId {
    /// The handle of the expression at this position.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a model has fewer than 2^32 expressions"))
    }

    /// Its position in [`Model::exprs`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An expression with its type.
#[derive(Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Expr {
    pub kind: ExprKind,
    pub ty: Arc<Type>,
    pub span: Span,
}

/// The type of an expression: of its single value, or of each of its values.
#[derive(Clone, PartialEq, Debug)]
pub enum Type {
    /// The row of a single value.
    One(Row),
    /// A value for each semantic graph of a family, in its order.
    PerGraph(Vec<Row>),
    /// A value for each of several vertex types.
    PerType(BTreeMap<VertexType, Row>),
    /// Values of several semantic graphs, between layers: of edges, of the vertices where each ends, or one row each.
    ByGraph(BTreeMap<Graph, Row>),
}

impl Type {
    /// The types of all values.
    pub fn rows(&self) -> Box<dyn Iterator<Item = &Row> + '_> {
        match self {
            Type::One(row) => Box::new(std::iter::once(row)),
            Type::PerGraph(rows) => Box::new(rows.iter()),
            Type::PerType(rows) => Box::new(rows.values()),
            Type::ByGraph(rows) => Box::new(rows.values()),
        }
    }

    /// Have both values of the same kind, of equal spaces and extents?
    pub fn same_widths(&self, other: &Type) -> bool {
        let same = |(a, b): (&Row, &Row)| a.space == b.space && a.form == b.form && a.dims() == b.dims();
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && self.num_values() == other.num_values()
            && self.rows().zip(other.rows()).all(same)
    }

    /// The number of values.
    pub fn num_values(&self) -> usize {
        match self {
            Type::One(_) => 1,
            Type::PerGraph(rows) => rows.len(),
            Type::PerType(rows) => rows.len(),
            Type::ByGraph(rows) => rows.len(),
        }
    }
}

/// The type of a single value.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Row {
    /// It has one row for each element of this space.
    pub space: Space,
    /// The extents of a row, outermost first.
    pub widths: Vec<Width>,
    pub form: Form,
}

impl Row {
    /// The type of a dense value.
    pub fn dense(space: Space, widths: Vec<Width>) -> Self {
        Self { space, widths, form: Form::Dense }
    }

    /// The extents, without their origins.
    pub fn dims(&self) -> Vec<Dim> {
        self.widths.iter().map(|width| width.dim).collect()
    }
}

/// The extent of a dimension and where it was written, so that a mismatch can point to both origins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Width {
    /// The number of elements, which may be symbolic.
    pub dim: Dim,
    /// The place in the source that decides the extent.
    pub origin: Span,
}

/// How a value can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// It can be used in every way.
    Dense,
    /// Sparse features, declared here: in ways that keep zeros. Other features have other elements.
    Sparse(Span),
    /// The identity matrix of a vertex type: it can only be projected, and the projection is the weight.
    OneHot,
    /// Sparse features at an end of the edges: they are projected before they are gathered.
    SparseAtEnd,
    /// One-hot features at an end of the edges.
    OneHotAtEnd,
    /// A block-diagonal weight, on the right of a product.
    BlockDiagonal,
    /// Times: they are subtracted from and compared with each other, since their origin means nothing.
    Time,
}

/// The meaning of an expression, with its operands.
#[derive(Debug)]
pub enum ExprKind {
    /// A number that is used as a value.
    Number(f64),
    /// The features of a vertex type.
    Features(Features),
    /// A parameter: the entries that these values are.
    Param(ParamId, Vec<Entry>),
    /// The use of a layer. It has no values itself: its results are [`ExprKind::Result`]s.
    Layer(UseId),
    /// A result of a layer, by position.
    Result(ExprId, UseId, usize),

    /// The value of one vertex type.
    OfType(ExprId, VertexType),
    /// Values of vertex types, each from an expression.
    Types(Vec<(VertexType, ExprId)>),
    /// The values of some members of a family, by position.
    Members(ExprId, Vec<usize>),
    /// The same value for each member of a family.
    Repeat(ExprId),
    /// Values by semantic graph, of edges or single rows, as values of a family.
    OfGraphs(ExprId, Arc<[Graph]>),
    /// Values of a family as edge values by semantic graph.
    ByGraph(ExprId, Arc<[Graph]>),
    /// Values of the members of families by semantic graph, single rows or rows of the vertices where the graph ends;
    /// the families share no graph.
    RowsByGraph(Vec<(ExprId, Arc<[Graph]>)>),

    /// An element-wise function of one value.
    Unary(UnaryOp, ExprId),
    /// An element-wise function of two values; shapes fit where one is the beginning of the other.
    Binary(BinaryOp, ExprId, ExprId),
    /// A power with a constant exponent.
    Pow(ExprId, f64),
    /// Zeroes elements at random, with this probability, in training.
    Dropout(ExprId, f64),
    /// The value as a constant for differentiation.
    StopGradient(ExprId),
    /// A single row, repeated for every row of the space, and for every element of further dimensions.
    Broadcast(ExprId),
    /// Zeros: a sum over no semantic graphs.
    Zeros,
    /// The elements of a row in one dimension.
    Flatten(ExprId),
    /// The elements of a row in another shape.
    Reshape(ExprId),
    /// Two values joined along their last dimension.
    Concat(ExprId, ExprId),

    /// A part of a dimension: of the one at this position, as many elements as the result has, from this one on.
    Slice {
        /// The value that it is a part of.
        x: ExprId,
        /// The position of the dimension.
        axis: usize,
        /// The position of the first element.
        start: usize,
    },
    /// The last two dimensions of each row, swapped.
    Transpose(ExprId),

    /// `a @ b`: the last dimension of `a` with the dimension of `b` at the same place. `b` is a parameter, or has a matrix
    /// for each row of `a`.
    Product(ExprId, ExprId),
    /// The products of matrices of the same row, which the last two dimensions are.
    MatrixProduct(ExprId, ExprId),
    /// The sum of products over the last dimension.
    Dot(ExprId, ExprId),
    /// `x W + b` with parameters of its own.
    Linear {
        /// The value that it is applied to.
        x: ExprId,
        /// Is there a `b`?
        bias: bool,
        /// The names of the parameters.
        names: ParamNames,
    },
    /// Normalisation with a learned scale and shift.
    Norm {
        /// The value that it is applied to.
        x: ExprId,
        /// Added to the variance.
        eps: f64,
        /// Over all rows (batch normalisation), or over the last dimension (layer normalisation).
        over_rows: bool,
        /// The names of the parameters.
        names: ParamNames,
    },
    /// Rows divided by their Euclidean length, which is at least the square root of the number.
    L2Normalize(ExprId, f64),
    /// Rows divided by their sum.
    RowNormalize(ExprId),

    /// A reduction over a dimension of each row.
    OverDimension(Axis, Reduction, ExprId),
    /// A reduction over all rows.
    OverRows(Reduction, ExprId),
    /// A reduction over the in-edges of each destination, of one semantic graph or of all of the family.
    OverInEdges {
        /// The value that it is applied to.
        x: ExprId,
        /// The function that reduces them.
        reduction: Reduction,
        /// Over the in-edges of all semantic graphs together.
        across: bool,
        /// The semantic graphs of the family.
        graphs: Arc<[Graph]>,
    },
    /// A reduction over the values that a vertex has for each semantic graph.
    Across(Reduction, ExprId),
    /// The sum of the squares of all elements of all values of these expressions.
    SumOfSquares(Vec<ExprId>),

    /// Vertex values at an end of the edges (`In`: destinations): values of vertex types, or of a family. At sources,
    /// the latter is the family of the reverses.
    AtEnd(Direction, ExprId, Arc<[Graph]>),
    /// Vertex values at a position of path instances: values of vertex types, or (at the last position) of a family.
    AtPosition(ExprId, Arc<[PathPart]>),
    /// Data of an edge of path instances, by the name of the field and its kind for each semantic graph.
    HopData(String, Vec<(PathPart, EdgeData)>),
    /// Values along path instances, one expression for each position, with the semantic graphs (positions in the
    /// family) whose paths are that long. Reduced, or (`None`) the last one of each.
    AlongPath(Option<Reduction>, Vec<(ExprId, Vec<usize>)>, Arc<[Graph]>),
    /// A recurrence over the in-edges of each destination.
    Fold(Fold),
    /// In the step of a [`Fold`] over these graphs: the state before each edge.
    Before(Arc<[Graph]>),
    /// The number of in-edges or out-edges of each vertex.
    Degree(Direction, Arc<[Graph]>),
    /// Degrees at an end of the edges.
    DegreeAtEnd {
        /// The end of the edge.
        end: Direction,
        /// The edges that are counted there.
        counted: Direction,
        /// The semantic graphs of the family.
        graphs: Arc<[Graph]>,
    },
    /// Scores of pairs, of one dimension of one element at most, as single numbers.
    Scores(ExprId),
    /// Values of a family of edges to predict, as values of the vertex types that these edges are.
    EdgeRows(ExprId, Arc<[Graph]>),
    /// Data of the edges, by the name of the field and its kind for each semantic graph.
    EdgeData(String, Vec<(Graph, EdgeData)>),
}

/// A recurrence over the in-edges of each destination, one after the other, in each semantic graph of a family. Its
/// values are the last states, which destinations without in-edges have from the beginning.
#[derive(Debug)]
pub struct Fold {
    /// The state before the first in-edge: a single row, or an edge value that depends on the destination alone.
    pub first: ExprId,
    /// The state behind an edge.
    pub step: ExprId,
    /// The state before an edge, an [`ExprKind::Before`] that `step` is made of.
    pub before: ExprId,
    /// The semantic graphs of the family, each with a limit of in-edges.
    pub graphs: Arc<[Graph]>,
    /// For each of them, graphs with one in-edge of each destination, in the order in which they are walked.
    pub positions: Vec<Arc<[Graph]>>,
}

/// Features of a vertex type.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Features {
    pub vertex: VertexType,
    /// Type and field: `Paper.x`.
    pub name: String,
    pub kind: FeatureKind,
    /// The declaration in the schema.
    pub span: Span,
    /// The dataset's field that they are, of dense and sparse ones and of labels; `None` for its `features`.
    pub field: Option<String>,
}

/// A kind of features.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum FeatureKind {
    Dense,
    Sparse,
    OneHot,
    /// A time of each vertex, in one element.
    Time,
    /// A learned row for each vertex, with these initial values.
    Embedding(Initialiser),
    /// The label of a field where a vertex is in the training part, otherwise 0. In training, this share of the
    /// labels is hidden (0) as well, drawn anew for each step.
    TrainLabels {
        /// That share, at least 0 and less than 1.
        hidden: f64,
    },
}

/// A position of the path instances, or of the edges to predict, that the edges of a semantic graph are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathPart {
    /// The semantic graph from the instances to the vertices where they end. For edges to predict, it goes from these
    /// vertices to the edges.
    pub graph: Graph,
    /// The graph from the vertices at this position to the instances; `None` for the last position.
    pub through: Option<Graph>,
}

/// Data of the edges of a semantic graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EdgeData {
    /// The number of path instances.
    Count,
    /// The weight of a relation's edges.
    Weight,
    /// The time of a relation's edges.
    Time,
    /// The features of a relation's edges.
    Features,
}

/// The dimension of a row that a reduction goes over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum Axis {
    First,
    Last,
}

/// The function of a reduction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Softmax,
    LogSumExp,
    Concat,
}

impl Reduction {
    /// The reduction of this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "max" => Self::Max,
            "min" => Self::Min,
            "softmax" => Self::Softmax,
            "logsumexp" => Self::LogSumExp,
            "concat" => Self::Concat,
            _ => return None,
        })
    }

    /// Its name in the source.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Max => "max",
            Self::Min => "min",
            Self::Softmax => "softmax",
            Self::LogSumExp => "logsumexp",
            Self::Concat => "concat",
        }
    }
}

/// The handle of a declaration of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ParamId(u32);

impl ParamId {
    /// The handle of the declaration at this position.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a model has fewer than 2^32 declarations"))
    }

    /// Its position in [`Model::params`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The declaration of a parameter in a model or in the use of a layer, with all of its entries.
#[derive(Debug)]
pub struct Param {
    /// Its name in the source.
    pub name: String,
    /// The block, where several blocks of the layer declare a parameter of that name.
    pub block: Option<&'static str>,
    /// How it is initialised.
    pub init: Initialiser,
    /// Does the optimizer apply weight decay?
    pub decay: bool,
    /// How entries are made of trainable numbers.
    pub decomposition: Decomposition,
    /// The declaration in the source.
    pub span: Span,
}

/// An entry of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum Entry {
    /// The only entry, which all share.
    Shared,
    Type(VertexType),
    Graph(Graph),
    Src(VertexType),
    Dst(VertexType),
    /// By position in [`Tables::relations`].
    Relation(u32),
}

/// The initial values of a parameter. Fans follow from its shape.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Initialiser {
    /// Glorot & Bengio 2010; `batch` leading dimensions belong to no fan.
    Glorot {
        /// The number of leading dimensions.
        batch: usize,
    },
    /// He et al. 2015.
    He {
        /// The number of leading dimensions.
        batch: usize,
    },
    /// All elements equal this number.
    Constant(f64),
    /// Uniform between `-bound` and `bound`.
    Uniform(f64),
    /// Normally distributed with mean 0 and this standard deviation.
    Normal(f64),
}

/// How the entries of a parameter are made of trainable numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Decomposition {
    /// Each entry is trained.
    None,
    /// `w = Σ_b a_b V_b` with bases `V` that all entries share (Schlichtkrull et al. 2018, eq. 3).
    Basis(Width),
    /// A block-diagonal matrix `[in, out]` of so many blocks.
    Blocks(Width),
}

/// The names of the parameters that a function declares.
#[derive(Clone, Debug)]
pub struct ParamNames {
    /// The statement that they belong to.
    pub statement: String,
    /// The entry of each value.
    pub entries: Vec<Entry>,
}

/// The handle of the use of a layer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UseId(u32);

impl UseId {
    /// The handle of the use at this position.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("a model has fewer than 2^32 uses of layers"))
    }

    /// Its position in [`Model::uses`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The use of a layer: its body with arguments, family and inputs. One that is wrong has no body, and no expression.
#[derive(Debug, Default)]
pub struct LayerUse {
    /// The name of the layer.
    pub layer: String,
    /// The statement that parameters are named for.
    pub statement: String,
    /// The family of semantic graphs; empty if the layer has none.
    pub graphs: Arc<[Graph]>,
    /// The inputs, in the order of evaluation.
    pub inputs: Vec<(String, ExprId)>,
    /// Parameters and blocks, or the statements of a layer that uses others, in order.
    pub body: Vec<Item>,
    /// The results, in the order of their declaration.
    pub results: Vec<(String, ExprId)>,
}

/// A part of the body of a layer.
#[derive(Debug)]
pub enum Item {
    /// A parameter that the blocks share, or a statement of a layer without blocks.
    Stmt(Stmt),
    /// A block of statements.
    Block(Block),
}

/// A block of a layer.
#[derive(Debug)]
pub struct Block {
    /// The stage that it computes.
    pub kind: BlockKind,
    /// Its statements for each vertex type; an `aggregate` block has them once, for the whole family.
    pub instances: Vec<Instance>,
}

/// A kind of block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Once for each vertex type, before messages are sent.
    Project,
    /// For all edges of the family.
    Aggregate,
    /// Once for each vertex type, with what it has of each semantic graph.
    Fuse,
}

impl BlockKind {
    /// The keyword of the block.
    pub fn name(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Aggregate => "aggregate",
            Self::Fuse => "fuse",
        }
    }
}

/// The statements of a block for a vertex type, or for a family.
#[derive(Debug)]
pub struct Instance {
    /// The vertex type; `None` in `aggregate`.
    pub vertex: Option<VertexType>,
    /// The statements in order.
    pub body: Vec<Stmt>,
    /// The assigned fields, with one row for each vertex or edge. They are complete after the statements of all
    /// instances.
    pub fields: Vec<(String, ExprId)>,
}

/// A statement: the evaluation of an expression.
#[derive(Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Stmt {
    pub kind: StmtKind,
    pub name: String,
    pub value: ExprId,
    /// The name of the statement whose parameters, in order, are those of this one as well; the last one of that name.
    pub sharing: Option<String>,
}

/// The kind of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are named for their keywords")]
pub enum StmtKind {
    Param,
    Let,
    /// A field of a block, or a result of a layer without blocks.
    Assign,
    Output,
}

/// An output of the model.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Output {
    pub of: OutputOf,
    /// Its name in the source.
    pub span: Span,
}

/// The rows of an output, with its value.
#[derive(Clone, Copy, Debug)]
pub enum OutputOf {
    /// The vertices of a type.
    Vertices(VertexType, ExprId),
    /// Pairs to score: a number for each pair of each graph of links.
    Links(ExprId),
    /// The semantic graphs of a family: a row for each.
    Graphs(ExprId),
    /// The edges of each semantic graph of a family.
    Edges(ExprId),
}

impl OutputOf {
    /// The expression of the output.
    pub fn value(self) -> ExprId {
        match self {
            Self::Vertices(_, value) | Self::Links(value) | Self::Graphs(value) | Self::Edges(value) => value,
        }
    }
}

/// The loss of a train block: a sum of terms with weights.
#[derive(Debug)]
pub struct Loss {
    /// The terms in order, at least one.
    pub terms: Vec<LossTerm>,
    /// Several seeds at a time, all of which may have no weight.
    pub on_batches: bool,
    /// The expression of the train block.
    pub span: Span,
}

/// A term of a loss.
#[derive(Debug)]
pub struct LossTerm {
    /// The factor that its value has in the loss; finite.
    pub weight: f64,
    /// The output that it is of, or the number that it is.
    pub value: ExprId,
    /// The ground truth, and the comparison with it.
    pub kind: LossKind,
    /// The term in the train block.
    pub span: Span,
}

/// How a term of a loss is computed: how an output is compared with the ground truth. A `focus` is the exponent of
/// the focal loss, at least 0.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum LossKind {
    /// Cross entropy of classes.
    CrossEntropy { label: Label, classes: usize, class_weights: Option<Vec<f64>>, smoothing: f64, focus: f64 },
    /// The mean over labels of the binary cross entropy.
    BinaryCrossEntropy { label: Label, labels: usize, focus: f64 },
    /// The mean over targets of the squared or absolute difference.
    Distance { label: Label, width: usize, squared: bool },
    /// A comparison of the scores of links with those of other pairs.
    Links(LinkLoss),
    /// The value itself, which is a single number.
    Number,
}

impl LossKind {
    /// The label that an output of vertices is compared with.
    pub fn label(&self) -> Option<&Label> {
        match self {
            Self::CrossEntropy { label, .. }
            | Self::BinaryCrossEntropy { label, .. }
            | Self::Distance { label, .. } => Some(label),
            Self::Links(_) | Self::Number => None,
        }
    }
}

/// A label of vertices.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Label {
    pub vertex: VertexType,
    /// Type and field: `Paper.topic`.
    pub name: String,
    /// Its name in the dataset, if it is given.
    pub dataset_name: String,
}
