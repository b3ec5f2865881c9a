//! The container: tables, values in SSA order, outputs; and the builder methods that keep it typed.

use crate::infer::{TypeError, infer};
use crate::ops::{BinaryOp, Direction, Op, Reduce, UnaryOp};
use crate::types::{Dim, Graph, Input, Layout, Origin, Param, Pattern, Phase, Space, Stage, Type, Value, VertexType};

/// A vertex type of the schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VertexTypeDecl {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset_name: String,
}

/// A declared relation. Semantic graphs refer to these by position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelationDecl {
    /// Name in the model.
    pub name: String,
    /// Name in the dataset.
    pub dataset_name: String,
    /// Type of the sources.
    pub src: VertexType,
    /// Type of the destinations.
    pub dst: VertexType,
}

/// One hop of a metapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// Position in [`Dataflow::relations`].
    pub relation: u32,
    /// Walk from destination to source.
    pub reverse: bool,
}

/// A semantic graph: how the runtime builds it, and its end types.
///
/// Messages flow from `src` to `dst`: a relation or metapath from `A` to `B` has the sources `A` and the
/// destinations `B`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphDecl {
    /// Name in the model, unique.
    pub name: String,
    /// Type of the sources.
    pub src: VertexType,
    /// Type of the destinations.
    pub dst: VertexType,
    /// Hops in the direction of messages, from `src` to `dst`. Empty: self loops only.
    pub steps: Vec<Step>,
    /// Keep one edge per pair with the number of path instances (`true`), or distinct pairs without a
    /// number (`false`). A single relation keeps its edges as they are, duplicates included.
    pub counted: bool,
    /// Add the edges (v, v) that are missing.
    pub self_loops: bool,
    /// Its edges are pairs to score, which may or may not be links of its relation: those of a batch in training,
    /// and whatever is asked for in evaluation. It has one step, and no value passes along its edges to another vertex.
    pub links: bool,
}

/// A semantic graph whose edges are paths of other graphs, so that what is summed over its edges can be summed hop by hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathDecl {
    /// The semantic graph: it has an edge for each pair that a path joins.
    pub of: Graph,
    /// The graphs that a path goes along, from sources to destinations; at least two.
    pub hops: Vec<Graph>,
    /// There is one path for each pair. Otherwise `of` is counted: its edges know how many there are.
    pub once: bool,
}

/// The sparsity pattern of a vertex type's sparse feature matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PatternDecl {
    /// Whose features.
    pub vertex: VertexType,
    /// Number of columns.
    pub columns: usize,
}

/// What the runtime fills an input with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Binding {
    /// The feature matrix of a vertex type, dense or sparse as the input's layout says.
    Features(VertexType),
    /// Labels by name: i32 `V[]` for classes (-1 = none), f32 `V[classes]` for several labels at once
    /// (0 or 1), f32 `V[width]` for real targets.
    Label(VertexType, String),
    /// 1 where the vertex belongs to the training part of the chosen split, else 0. f32 `V[]`.
    TrainMask(VertexType),
    /// Weight of the edges of a relation (1 where the dataset has none). f32 `edges(g)[]`.
    EdgeWeight(Graph),
    /// Number of path instances of each edge of a counted metapath. f32 `edges(g)[]`.
    EdgeCount(Graph),
    /// Features of the edges of a relation. f32 `edges(g)[width]`.
    EdgeFeatures(Graph),
    /// A number of each edge that no other edge of its destination (`In`) or source (`Out`) has: how many of these edges come
    /// before it, ordered by their other ends and, where these are equal, as in the dataset. f32 `edges(g)[]`.
    EdgeRank(Graph, Direction),
    /// 1 where a pair to score is a link of the relation, else 0. f32 `edges(g)[]` of a graph of links.
    IsLink(Graph),
    /// What another program has computed, by the name of its result. Any dense f32 type.
    Given(String),
    /// The number of this training step, from 1. f32 `[]`.
    StepNumber,
    /// The number of this epoch, from 0. f32 `[]`.
    EpochNumber,
}

/// An input and where it comes from.
#[derive(Clone, PartialEq, Debug)]
pub struct InputDecl {
    /// Name in text, unique (`Paper.x`).
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Its source.
    pub binding: Binding,
}

/// How a parameter starts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// All elements equal.
    Constant(f64),
    /// Uniform in ±√(6 / (fan_in + fan_out)) (Glorot & Bengio 2010).
    Glorot {
        /// Product of the input dimensions.
        fan_in: Dim,
        /// Product of the output dimensions.
        fan_out: usize,
    },
    /// Uniform in ±√(6 / fan_in) (He et al. 2015).
    He {
        /// Product of the input dimensions.
        fan_in: Dim,
    },
    /// Uniform in ±bound.
    Uniform(f64),
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
}

/// A trainable parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct ParamDecl {
    /// Path in the source (`conv.a_src.PAP`), unique; the key in saved weights.
    pub name: String,
    /// Shape, row-major.
    pub dims: Vec<Dim>,
    /// How it starts.
    pub init: Init,
    /// Takes part in weight decay.
    pub decay: bool,
}

/// One value.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueData {
    /// What computes it.
    pub op: Op,
    /// Operands; all are earlier values.
    pub args: Vec<Value>,
    /// Its type, as [`infer`] computes it.
    pub ty: Type,
    /// Stage it is accounted to.
    pub stage: Stage,
    /// Part of the epoch it is accounted to.
    pub phase: Phase,
    /// Where in the source it comes from.
    pub origin: Option<Origin>,
}

/// What a program gives back.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OutputKind {
    /// A value by name (`loss`, `topic_logits`).
    Result(String),
    /// The new value of a parameter.
    UpdateParam(Param),
    /// The new value of an optimiser state.
    UpdateState(Param, u32),
}

/// An output of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// What for.
    pub kind: OutputKind,
    /// Which value.
    pub value: Value,
}

/// A program of the dataflow IR.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Dataflow {
    /// Name, for text.
    pub name: String,
    /// Vertex types.
    pub vertex_types: Vec<VertexTypeDecl>,
    /// Relations.
    pub relations: Vec<RelationDecl>,
    /// Semantic graphs.
    pub graphs: Vec<GraphDecl>,
    /// Which of them are paths of others.
    pub paths: Vec<PathDecl>,
    /// Sparsity patterns of features.
    pub patterns: Vec<PatternDecl>,
    /// Inputs.
    pub inputs: Vec<InputDecl>,
    /// Parameters.
    pub params: Vec<ParamDecl>,
    /// Values in SSA order.
    pub values: Vec<ValueData>,
    /// Outputs.
    pub outputs: Vec<Output>,
    /// What new values are accounted to.
    pub cursor: Cursor,
}

/// Stage, phase and origin given to values as they are built.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cursor {
    /// Stage.
    pub stage: Stage,
    /// Phase.
    pub phase: Phase,
    /// Origin.
    pub origin: Option<Origin>,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { stage: Stage::FP, phase: Phase::Forward, origin: None }
    }
}

impl Dataflow {
    /// An empty program.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The data of a value.
    pub fn value(&self, value: Value) -> &ValueData {
        &self.values[value.index()]
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.value(value).ty
    }

    /// All values in order.
    pub fn handles(&self) -> impl DoubleEndedIterator<Item = Value> + ExactSizeIterator + use<> {
        (0..self.values.len()).map(Value::new)
    }

    /// Appends a value, inferring its type.
    ///
    /// # Errors
    /// [`TypeError`] when the operands do not fit the operation.
    pub fn push(&mut self, op: Op, args: &[Value]) -> Result<Value, TypeError> {
        let ty = infer(self, &op, args)?;
        let Cursor { stage, phase, origin } = self.cursor;
        self.values.push(ValueData { op, args: args.to_vec(), ty, stage, phase, origin });
        Ok(Value::new(self.values.len() - 1))
    }

    /// Appends a value whose operands are known to fit: for code that has checked them or builds them itself.
    ///
    /// # Panics
    /// When they do not fit; the message is the type error.
    pub fn add(&mut self, op: Op, args: &[Value]) -> Value {
        match self.push(op, args) {
            Ok(value) => value,
            Err(error) => panic!("ill-typed operation built in `{}`: {error}", self.name),
        }
    }

    /// A scalar constant.
    pub fn constant(&mut self, number: f64) -> Value {
        self.add(Op::Const(number), &[])
    }

    /// An element-wise function of one operand.
    pub fn unary(&mut self, op: UnaryOp, a: Value) -> Value {
        self.add(Op::Unary(op), &[a])
    }

    /// An element-wise function of two operands.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.add(Op::Binary(op), &[a, b])
    }

    /// A reduction over the in-edges or out-edges.
    pub fn segment(&mut self, graph: Graph, direction: Direction, reduce: Reduce, a: Value) -> Value {
        self.add(Op::Segment { graph, direction, reduce }, &[a])
    }

    /// A reduction over the last `axes` dimensions.
    pub fn reduce_trailing(&mut self, reduce: Reduce, axes: usize, a: Value) -> Value {
        self.add(Op::ReduceTrailing { reduce, axes }, &[a])
    }

    /// The type of the rows at one end of a graph.
    pub fn graph_end(&self, graph: Graph, direction: Direction) -> Space {
        let decl = &self.graphs[graph.index()];
        Space::Vertices(match direction {
            Direction::In => decl.dst,
            Direction::Out => decl.src,
        })
    }

    /// The declared type of a parameter.
    pub fn param_type(&self, param: Param) -> Type {
        Type::new(Space::Unit, self.params[param.index()].dims.clone())
    }

    /// Adds a row to the input table, or finds the equal one.
    pub fn declare_input(&mut self, decl: InputDecl) -> Input {
        let found = self.inputs.iter().position(|known| known.binding == decl.binding);
        Input::new(found.unwrap_or_else(|| {
            self.inputs.push(decl);
            self.inputs.len() - 1
        }))
    }

    /// The pattern of a vertex type's sparse features.
    pub fn declare_pattern(&mut self, vertex: VertexType, columns: usize) -> Pattern {
        let decl = PatternDecl { vertex, columns };
        let found = self.patterns.iter().position(|known| *known == decl);
        Pattern::new(found.unwrap_or_else(|| {
            self.patterns.push(decl);
            self.patterns.len() - 1
        }))
    }

    /// Adds a row to the parameter table.
    pub fn declare_param(&mut self, decl: ParamDecl) -> Param {
        self.params.push(decl);
        Param::new(self.params.len() - 1)
    }

    /// Names a result.
    pub fn output(&mut self, name: impl Into<String>, value: Value) {
        self.outputs.push(Output { kind: OutputKind::Result(name.into()), value });
    }

    /// The result of that name.
    pub fn result(&self, name: &str) -> Option<Value> {
        self.outputs.iter().find_map(|output| match &output.kind {
            OutputKind::Result(known) if known == name => Some(output.value),
            _ => None,
        })
    }

    /// A copy of the tables with no values and outputs, to rebuild a program into.
    pub fn with_tables_of(&self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            values: vec![],
            outputs: vec![],
            cursor: Cursor::default(),
            vertex_types: self.vertex_types.clone(),
            relations: self.relations.clone(),
            graphs: self.graphs.clone(),
            paths: self.paths.clone(),
            patterns: self.patterns.clone(),
            inputs: self.inputs.clone(),
            params: self.params.clone(),
        }
    }

    /// Number of stored columns per row of a dense value where all dimensions are fixed.
    pub fn width(&self, value: Value) -> Option<usize> {
        self.ty(value).dims.iter().map(|d| d.fixed()).product()
    }

    /// Is this value stored sparsely?
    pub fn is_sparse(&self, value: Value) -> bool {
        matches!(self.ty(value).layout, Layout::Sparse(_))
    }
}
