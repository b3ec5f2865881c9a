//! The program container: tables, values in SSA order, outputs; and the builder methods that keep it well-typed.

use crate::infer::{TypeError, infer};
use crate::ops::{BinaryOp, Direction, Op, Reduce, UnaryOp};
use crate::paths::PathDecl;
use crate::ranks::EdgeShare;
use crate::stacks::{Incidence, StackDecl, VertexRows};
use crate::table::Table;
use crate::types::{
    Dim, Graph, Input, Layout, Origin, Param, Pattern, Phase, Space, Stack, Stage, Type, Value, VertexType,
};

/// A vertex type of the schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VertexTypeDecl {
    /// Name in the model source.
    pub name: String,
    /// Name in the dataset; empty if the rows are not vertices of the dataset.
    pub dataset_name: String,
    /// The meaning of the rows: vertices, members of a stack, pairs, or what a rank has.
    pub rows: VertexRows,
}

/// A declared relation. Semantic graphs refer to relations by position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RelationDecl {
    /// Name in the model source.
    pub name: String,
    /// Name in the dataset.
    pub dataset_name: String,
    /// Vertex type of the sources.
    pub src: VertexType,
    /// Vertex type of the destinations.
    pub dst: VertexType,
}

/// One hop of a metapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// Position in [`Dataflow::relations`], as an index.
    pub relation: u32,
    /// Traverse the relation from destination to source.
    pub reverse: bool,
}

/// The reverse path: the steps in opposite order and direction.
pub fn reversed(steps: &[Step]) -> Vec<Step> {
    steps.iter().rev().map(|step| Step { reverse: !step.reverse, ..*step }).collect()
}

/// The treatment of edges (v, v) by a semantic graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SelfLoops {
    /// It has those of its relation or metapath.
    #[default]
    Kept,
    /// Those that are missing are added.
    Added,
    /// It has none of them.
    Removed,
}

impl SelfLoops {
    /// The word in text formats; none for [`SelfLoops::Kept`].
    pub const fn word(self) -> Option<&'static str> {
        match self {
            SelfLoops::Kept => None,
            SelfLoops::Added => Some("self_loops"),
            SelfLoops::Removed => Some("no_self_loops"),
        }
    }
}

/// The in-edges that a semantic graph keeps of each destination, of those that its steps give.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeptInEdges {
    /// At most so many: of more, a choice that depends on the vertex, on their number and on this limit only.
    pub at_most: u32,
    /// Of these only the one at this position, in the order of the sources. A destination with fewer keeps none.
    pub position: Option<u32>,
}

/// A semantic graph: its endpoint types and the recipe by which the runtime builds it.
///
/// Messages flow from `src` to `dst`: a relation or metapath from `A` to `B` has sources `A` and destinations `B`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphDecl {
    /// Unique name in the model.
    pub name: String,
    /// Vertex type of the sources.
    pub src: VertexType,
    /// Vertex type of the destinations.
    pub dst: VertexType,
    /// Hops in message direction, from `src` to `dst`. Empty: self loops only.
    pub steps: Vec<Step>,
    /// For a metapath: keep one edge per pair with its number of path instances (`true`), or just the distinct pairs
    /// (`false`). A single relation keeps its edges as they are, duplicates included.
    pub counted: bool,
    /// The treatment of edges (v, v).
    pub self_loops: SelfLoops,
    /// The edges are vertex pairs to score, which may or may not be links of its relation or metapath: those of a batch in
    /// training, any requested pairs in evaluation. Such a graph carries no messages.
    pub links: bool,
    /// The edges are so many permutations of the vertices of a type, which is both the source and the destination type,
    /// without steps: each vertex has as many in-edges and out-edges. [`crate::random::shuffled_sources`] draws them
    /// anew for each step of training.
    pub shuffle: Option<u32>,
    /// The in-edges that it keeps of each destination; `None`: all.
    pub kept: Option<KeptInEdges>,
    /// Only messages that are not later than their destination: each step leaves out the edges whose time, or the time of
    /// the vertex that they leave, is later than the vertex where they arrive, as far as the dataset has these times.
    pub past: bool,
    /// Of links under a cutoff: both ends of a pair are read as of the last time before the period of the link, which is so many
    /// units of time long.
    pub period: Option<u64>,
    /// For a graph that is derived from the members of a stack: which one.
    pub derived: Option<(Stack, Incidence)>,
    /// The edges that a process has, in the program of several ranks.
    pub share: EdgeShare,
}

impl GraphDecl {
    /// The graph of a relation or metapath, with the edges (or distinct pairs) as they are.
    pub fn new(name: String, src: VertexType, dst: VertexType, steps: Vec<Step>) -> Self {
        let share = EdgeShare::All;
        Self {
            name,
            src,
            dst,
            steps,
            counted: false,
            self_loops: SelfLoops::Kept,
            links: false,
            shuffle: None,
            kept: None,
            past: false,
            period: None,
            derived: None,
            share,
        }
    }

    /// Whether it holds pairs to score of a metapath. Random walks draw its links, so its edges are listed nowhere.
    pub fn is_walked(&self) -> bool {
        self.links && self.steps.len() > 1
    }

    /// Whether ranks can divide the edges that mini-batches are sampled from. Links to learn are drawn from all of them, and
    /// shuffled vertices from all vertices.
    pub fn can_be_divided(&self) -> bool {
        !self.links && self.shuffle.is_none()
    }
}

/// A semantic graph whose edges are paths of other graphs, so that a reduction over its edges can be
/// factored hop by hop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetapathDecl {
    /// The metapath's semantic graph, with one edge per pair that a path connects.
    pub of: Graph,
    /// The graphs along a path, from sources to destinations; at least two.
    pub hops: Vec<Graph>,
    /// Every pair is connected by exactly one path. Otherwise `of` is counted: each edge has a multiplicity.
    pub once: bool,
}

/// The sparsity pattern of a sparse feature matrix.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct PatternDecl {
    /// The vertex type that the rows belong to.
    pub vertex: VertexType,
    pub columns: usize,
    /// The matrix of the vertex type.
    pub matrix: Matrix,
}

/// A matrix with a row for each vertex of a type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Matrix {
    /// The matrix that a dataset calls `features`, one for each vertex type.
    Features,
    /// The dataset's field of this name.
    Field(String),
    /// The label of this name where a vertex is in the training part of the chosen split, and otherwise 0: one-hot rows of
    /// classes, or rows as [`Binding::Label`] has them.
    TrainLabels(String),
}

impl Matrix {
    /// The dataset's matrix of features: of a field, or (`None`) its `features`.
    pub fn of_field(field: Option<String>) -> Self {
        field.map_or(Matrix::Features, Matrix::Field)
    }
}

/// The data that the runtime binds to an input.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Binding {
    /// A matrix of a vertex type, dense or sparse as the input's layout says. f32 `V[columns]`.
    Features(VertexType, Matrix),
    /// Labels by name: i32 `V[]` for classes (-1: unlabelled), f32 `V[classes]` for multi-label targets (0 or 1), f32
    /// `V[width]` for regression targets.
    Label(VertexType, String),
    /// 1 for the vertices of the training part of the chosen split, else 0. f32 `V[]`.
    TrainMask(VertexType),
    /// Times of the vertices of a type, as differences to the newest time that the program reads. f32 `V[]`.
    Time(VertexType),
    /// Edge weights of a relation (1 if the dataset has none). f32 `edges(g)[]`.
    EdgeWeight(Graph),
    /// Times of the edges of a relation, as [`Binding::Time`]; an added self loop has that of its vertex. f32 `edges(g)[]`.
    EdgeTime(Graph),
    /// Number of path instances of each edge of a counted metapath. f32 `edges(g)[]`.
    EdgeCount(Graph),
    /// Edge features of a relation. f32 `edges(g)[width]`.
    EdgeFeatures(Graph),
    /// The rank of each edge among the edges of its destination (`In`) or source (`Out`), ordered by opposite endpoint
    /// and then by position in the dataset. Unique per row. f32 `edges(g)[]`.
    EdgeRank(Graph, Direction),
    /// 1 for vertex pairs that are links of the relation, else 0. f32 `edges(g)[]` of a graph of links.
    IsLink(Graph),
    /// Given by the caller of a program, by name: a result of another program, the features of a layer's call, or the
    /// gradient of a layer's output. Any dense f32 type.
    Given(String),
    /// Rows of a type that a program of their own computes over the whole graph before training, by the name of its result:
    /// they depend on no parameter. Any dense f32 type.
    Precomputed(VertexType, String),
    /// The number of the training step, from 1. f32 `[]`.
    StepNumber,
    /// The number of the epoch, from 0. f32 `[]`.
    EpochNumber,
}

/// The name of the input that has the labels of a field (`Paper.topic`) for the training part.
pub fn train_labels(field: &str) -> String {
    format!("train_labels({field})")
}

/// The declaration of an input.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct InputDecl {
    /// Unique name in the text format (`Paper.x`).
    pub name: String,
    pub ty: Type,
    /// The data bound to it.
    pub binding: Binding,
}

/// The initial values of a parameter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// All elements equal this number.
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
    /// Uniform between `-bound` and `bound`.
    Uniform(f64),
    /// Normally distributed with mean 0.
    Normal {
        /// Standard deviation of the distribution.
        std: f64,
    },
}

/// The declaration of a trainable parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct ParamDecl {
    /// Unique path in the source (`conv.a_src.PAP`); the key in saved weights.
    pub name: String,
    /// Shape in row-major order, outermost first.
    pub dims: Vec<Dim>,
    /// Distribution of the initial values.
    pub init: Init,
    /// Does the optimizer apply weight decay?
    pub decay: bool,
    /// For a parameter with an entry per semantic graph of a family: the graph of this entry.
    pub of: Option<Graph>,
    /// For a stack of parameters: its entries, whose elements it has one after the other. It has no elements of its
    /// own, and no program that uses it uses its entries.
    pub entries: Vec<Param>,
}

impl ParamDecl {
    /// A parameter that belongs to no member of a family.
    pub fn new(name: String, dims: Vec<Dim>, init: Init, decay: bool) -> Self {
        Self { name, dims, init, decay, of: None, entries: vec![] }
    }
}

/// An operation and its result in SSA form.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ValueData {
    pub op: Op,
    /// Operands; all are earlier values.
    pub args: Vec<Value>,
    /// Result type, as computed by [`infer`].
    pub ty: Type,
    /// The stage it is accounted to.
    pub stage: Stage,
    /// The phase it is accounted to.
    pub phase: Phase,
    /// Source location, if known.
    pub origin: Option<Origin>,
}

/// The purpose of an output.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OutputKind {
    /// A result by name (`loss`, `topic_logits`).
    Result(String),
    /// The new value of a parameter.
    UpdateParam(Param),
    /// The new value of an optimizer state, by slot.
    UpdateState(Param, u32),
}

/// An output of a program.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Output {
    pub kind: OutputKind,
    pub value: Value,
}

/// A program in dataflow IR.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Dataflow {
    pub name: String,
    pub vertex_types: Table<VertexTypeDecl>,
    pub relations: Table<RelationDecl>,
    pub graphs: Table<GraphDecl>,
    /// Families of semantic graphs that a layer treats alike.
    pub families: Table<Vec<Graph>>,
    /// Semantic graphs that share one graph.
    pub stacks: Table<StackDecl>,
    /// The semantic graphs whose edges are paths of other graphs.
    pub metapaths: Table<MetapathDecl>,
    /// The metapaths whose instances are vertices of a type.
    pub paths: Table<PathDecl>,
    /// Sparsity patterns of feature matrices.
    pub patterns: Table<PatternDecl>,
    pub inputs: Table<InputDecl>,
    pub params: Table<ParamDecl>,
    /// Operations in SSA order, indexed by [`Value`].
    pub values: Vec<ValueData>,
    pub outputs: Vec<Output>,
    /// Stage, phase and origin of values appended next.
    pub cursor: Cursor,
}

/// Builder state: stage, phase and origin of new values.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Cursor {
    pub stage: Stage,
    pub phase: Phase,
    pub origin: Option<Origin>,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { stage: Stage::FP, phase: Phase::Forward, origin: None }
    }
}

impl Dataflow {
    /// An empty program with this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Marks the values that an output depends on.
    pub fn live_values(&self) -> Vec<bool> {
        let mut live = vec![false; self.values.len()];
        for output in &self.outputs {
            live[output.value.index()] = true;
        }
        for i in (0..self.values.len()).rev() {
            if live[i] {
                for arg in &self.values[i].args {
                    live[arg.index()] = true;
                }
            }
        }
        live
    }

    /// Removes the values that no output depends on, and gives their number. Operations have no side effects, so values
    /// without readers are dead. Tables stay: a parameter that a program does not read keeps its place in saved
    /// weights.
    pub fn remove_dead_values(&mut self) -> usize {
        let live = self.live_values();
        let mut moved = Vec::with_capacity(live.len());
        let mut kept = 0;
        for &live in &live {
            moved.push(Value::new(kept));
            kept += usize::from(live);
        }
        let mut alive = live.iter();
        self.values.retain(|_| alive.next().is_some_and(|&live| live));
        for value in self.values.iter_mut().flat_map(|data| &mut data.args) {
            *value = moved[value.index()];
        }
        for output in &mut self.outputs {
            output.value = moved[output.value.index()];
        }
        live.len() - kept
    }

    /// The operation that defines a value.
    pub fn value(&self, value: Value) -> &ValueData {
        &self.values[value.index()]
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.value(value).ty
    }

    /// The handles of all values, in SSA order.
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

    /// Appends a value whose operands are known to fit, for code that constructs or has checked them.
    ///
    /// # Panics
    /// When the operands do not fit; the message is the type error.
    pub fn add(&mut self, op: Op, args: &[Value]) -> Value {
        match self.push(op, args) {
            Ok(value) => value,
            Err(error) => panic!("ill-typed operation built in `{}`: {error}", self.name),
        }
    }

    /// Appends a scalar constant.
    pub fn constant(&mut self, number: f64) -> Value {
        self.add(Op::Const(number), &[])
    }

    /// Appends an element-wise function of one operand.
    pub fn unary(&mut self, op: UnaryOp, a: Value) -> Value {
        self.add(Op::Unary(op), &[a])
    }

    /// Appends an element-wise function of two operands.
    pub fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        self.add(Op::Binary(op), &[a, b])
    }

    /// Appends a reduction over in-edges or out-edges.
    pub fn segment(&mut self, graph: Graph, direction: Direction, reduce: Reduce, a: Value) -> Value {
        self.add(Op::Segment { graph, direction, reduce }, &[a])
    }

    /// Appends a reduction over the last `axes` dimensions.
    pub fn reduce_trailing(&mut self, reduce: Reduce, axes: usize, a: Value) -> Value {
        self.add(Op::ReduceTrailing { reduce, axes }, &[a])
    }

    /// The vertex space at one end of a graph.
    pub fn graph_end(&self, graph: Graph, direction: Direction) -> Space {
        let decl = &self.graphs[graph.index()];
        Space::Vertices(match direction {
            Direction::In => decl.dst,
            Direction::Out => decl.src,
        })
    }

    /// The type of a parameter's value: dense f32 with one row.
    pub fn param_type(&self, param: Param) -> Type {
        Type::new(Space::Unit, self.params[param.index()].dims.clone())
    }

    /// Declares an input, or returns the one with an equal binding.
    pub fn declare_input(&mut self, decl: InputDecl) -> Input {
        let found = self.inputs.iter().position(|known| known.binding == decl.binding);
        Input::new(found.unwrap_or_else(|| {
            self.inputs.push(decl);
            self.inputs.len() - 1
        }))
    }

    /// Declares the sparsity pattern of a feature matrix, or returns an equal one.
    pub fn declare_pattern(&mut self, decl: PatternDecl) -> Pattern {
        let found = self.patterns.iter().position(|known| *known == decl);
        Pattern::new(found.unwrap_or_else(|| {
            self.patterns.push(decl);
            self.patterns.len() - 1
        }))
    }

    /// Declares a parameter and returns its handle.
    pub fn declare_param(&mut self, decl: ParamDecl) -> Param {
        self.params.push(decl);
        Param::new(self.params.len() - 1)
    }

    /// Adds an output that names a value as a result.
    pub fn output(&mut self, name: impl Into<String>, value: Value) {
        self.outputs.push(Output { kind: OutputKind::Result(name.into()), value });
    }

    /// The value of the named result, if there is one.
    pub fn result(&self, name: &str) -> Option<Value> {
        self.outputs.iter().find_map(|output| match &output.kind {
            OutputKind::Result(known) if known == name => Some(output.value),
            _ => None,
        })
    }

    /// An empty program with the same tables, for passes that rebuild a program.
    pub fn with_tables_of(&self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            values: vec![],
            outputs: vec![],
            cursor: Cursor::default(),
            vertex_types: self.vertex_types.clone(),
            relations: self.relations.clone(),
            graphs: self.graphs.clone(),
            families: self.families.clone(),
            stacks: self.stacks.clone(),
            metapaths: self.metapaths.clone(),
            paths: self.paths.clone(),
            patterns: self.patterns.clone(),
            inputs: self.inputs.clone(),
            params: self.params.clone(),
        }
    }

    /// Elements per row of a value; `None` if a dimension is symbolic.
    pub fn width(&self, value: Value) -> Option<usize> {
        self.ty(value).dims.iter().map(|d| d.fixed()).product()
    }

    /// Does the value store only the elements of a sparsity pattern?
    pub fn is_sparse(&self, value: Value) -> bool {
        matches!(self.ty(value).layout, Layout::Sparse(_))
    }
}
