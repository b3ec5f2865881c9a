//! The kernel IR: how a program is computed, for every dataset and every machine.
//!
//! A [`Program`] is an ordered list of [`Launch`]es, each of one or more kernels that do not read each other's
//! results. There are three kinds of kernels:
//!
//! - a [`Gemm`] is a dense product over all rows of a space;
//! - a [`Traversal`] has rows that own their edges. It is a list of instructions: what a row computes before, during
//!   and after loops over its edges. Rows are independent of each other. Reductions over edges end in their row,
//!   in the order of the edges, those of long rows by pieces ([`Traversal::pieces`]); reductions over everything
//!   ([`KernelOp::is_total`]) are complete after the kernel.
//!   An element-wise map or a reduction over vertices is a traversal without edges;
//! - [`Paths`] are sums over paths of two edges that share their scores, see [`crate::paths`].
//!
//! A value is either a *local*, which exists for the row or edge that is being computed, or a *buffer*, which is
//! stored: what takes memory can be read off the text. Sizes are symbolic ([`Width`]); blocks, tasks, threads and
//! addresses are the business of a back end, when data is bound. So are reads: an operand says which row of a
//! buffer it is ([`Index`]), not how it gets there.

pub mod interp;
pub mod parse;
pub mod place;
pub mod print;
mod replace;
pub mod verify;
mod width;

pub use parse::parse;
pub use print::print;
pub use replace::{Uses, reads_on_the_way};
pub use verify::verify;
pub use width::Width;

use crate::dataflow::{Binding, Dataflow, OutputKind};
use crate::ops::{BinaryOp, Direction, Extreme, Reduce, UnaryOp};
use crate::paths::{PathSum, PathTerm};
use crate::types::{Graph, Input, Layout, Param, Pattern, Phase, Provenance, Space, Stage, Type, VertexType, handle};

handle!(
    /// A stored value of a [`Program`].
    Buffer, "b"
);
handle!(
    /// A value of a row or an edge within a [`Traversal`], printed `%7`.
    Local, "%"
);

/// A program of kernels.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// Name, vertex types, graphs, patterns, inputs and parameters: a dataflow program without values.
    pub tables: Dataflow,
    /// Everything that is stored.
    pub buffers: Vec<BufferDecl>,
    /// Run once, when data is bound: what depends on no parameter, state, mask or counter.
    pub prelude: Vec<Launch>,
    /// Run each time, in this order.
    pub launches: Vec<Launch>,
    /// What the program gives back.
    pub outputs: Vec<Output>,
}

/// A stored value.
#[derive(Clone, PartialEq, Debug)]
pub struct BufferDecl {
    /// Name in text, unique.
    pub name: String,
    /// Its type. Kernels may see the same elements as rows of another space with as many of them in all.
    pub ty: Type,
    /// Where its elements come from.
    pub contents: Contents,
    /// The parameter, optimiser state or earlier value whose place it takes, see [`Uses::may_replace`].
    pub replaces: Option<Buffer>,
}

/// Where the elements of a buffer come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Contents {
    /// The dataset or a counter.
    Input(Input),
    /// A parameter.
    Param(Param),
    /// Optimiser state of a parameter.
    State(Param, u32),
    /// A kernel of this program.
    Computed,
}

/// Independent kernels that run together.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Launch {
    /// The kernels; none reads what another writes.
    pub kernels: Vec<Kernel>,
    /// Number of leading kernels whose blocks are interleaved with those of the others; 0 runs all back to back.
    pub interleaved: usize,
}

/// A kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// Stage that it is accounted to, unless an instruction says otherwise.
    pub stage: Stage,
    /// Part of the epoch that it is accounted to.
    pub phase: Phase,
    /// What it computes.
    pub body: Body,
}

/// What a kernel computes.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// A dense product over all rows.
    Gemm(Gemm),
    /// Rows that own their edges.
    Traversal(Traversal),
    /// Sums over the paths of two graphs.
    Paths(Paths),
}

/// A dense product over all rows of a space.
#[derive(Clone, PartialEq, Debug)]
pub struct Gemm {
    /// Which product.
    pub form: Form,
    /// Its rows.
    pub rows: Space,
    /// Its extents.
    pub of: Extents,
    /// Rows of the first operand, `batch · k` elements each (`batch · n` for [`Form::MatMulT`]).
    pub x: Buffer,
    /// The weight `[batch, k, n]`, or rows of `batch · n` elements for [`Form::Outer`].
    pub y: Buffer,
    /// The result.
    pub out: Buffer,
    /// Where it comes from; not in text.
    pub from: Provenance,
}

/// Sums over the same paths for the same rows, see [`PathSum`]. Their scores are made of the same numbers.
#[derive(Clone, PartialEq, Debug)]
pub struct Paths {
    /// From sources to the vertices between.
    pub first: Graph,
    /// From there to destinations.
    pub second: Graph,
    /// Which end owns the sums.
    pub direction: Direction,
    /// Slope of the leaky ReLU below zero.
    pub slope: f64,
    /// Scores of a row of `x` and `y`.
    pub heads: Width,
    /// Of sources.
    pub x: Buffer,
    /// Of destinations.
    pub y: Buffer,
    /// What is summed. Sums for sources have one and the same `n`; those for destinations may have an `Lse` of the kernel.
    pub sums: Vec<PathOut>,
    /// Where they come from; not in text.
    pub from: Provenance,
}

/// A sum over paths.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathOut {
    /// What is summed.
    pub term: PathTerm,
    /// What scores are reduced by, a number per head and destination; unless it is [`PathTerm::Lse`].
    pub n: Option<Buffer>,
    /// Rows of the other end; 1 if there are none.
    pub w: Option<Buffer>,
    /// The result: as many elements per row as `w` has.
    pub out: Buffer,
}

impl Paths {
    /// Most sums of a kernel.
    pub const MOST_SUMS: usize = 8;

    /// One of its sums.
    pub fn sum(&self, term: PathTerm) -> PathSum {
        PathSum { first: self.first, second: self.second, direction: self.direction, slope: self.slope, term }
    }
}

/// Which product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// `x[r] · w`
    MatMul,
    /// `y[r] · wᵀ`
    MatMulT,
    /// `Σ_r x[r]ᵀ y[r]`
    Outer,
}

/// Extents of a batched product with a weight `[batch, k, n]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Extents {
    /// Leading dimensions that both operands share.
    pub batch: Width,
    /// Contracted by a product.
    pub k: Width,
    /// Contracted by a product with the transpose.
    pub n: Width,
}

impl Extents {
    /// `batch · k`
    pub fn left(&self) -> Width {
        self.batch.times(&self.k)
    }

    /// `batch · n`
    pub fn right(&self) -> Width {
        self.batch.times(&self.n)
    }

    /// `batch · k · n`
    pub fn all(&self) -> Width {
        self.left().times(&self.n)
    }
}

/// Rows with their edges, and what is computed for them.
#[derive(Clone, PartialEq, Debug)]
pub struct Traversal {
    /// Its rows.
    pub rows: Rows,
    /// Whether and how rows of many edges are cut. `None`: never.
    pub pieces: Option<Pieces>,
    /// What is computed for each row, in this order.
    pub instrs: Vec<Instr>,
}

/// How long rows are cut into pieces.
///
/// Rows of more edges than a piece has are cut into pieces of as many edges, in the order of the edges; the last piece
/// of a row may be shorter. Each reduction over the edges of such a row is made for each piece, and the parts are then
/// reduced in the order of the pieces; what follows from it is computed once for the row. So several tasks may share a
/// row, while its results depend on the graph alone.
///
/// A back end executes a cut row in as many rounds as its reductions depend on each other. Edge values that several of
/// them read are computed again in each, so that none is stored: this is why a row is left whole while others have
/// enough edges to keep all processors busy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pieces {
    /// Edges that a piece has at least: it is worth a task.
    pub least: usize,
    /// Pieces that all edges of the graph would be cut into at most, if they belonged to one row.
    pub most: usize,
}

impl Pieces {
    /// The edges of a piece, in a graph of `edges` edges.
    pub fn len(self, edges: usize) -> usize {
        self.least.max(edges.div_ceil(self.most.max(1))).max(1)
    }
}

/// The rows of a traversal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Rows {
    /// One row: unit values.
    Once,
    /// So many rows that divide the elements of unit values evenly: as many as there are elements, or as their leading
    /// dimension is long.
    Each(Width),
    /// The vertices of a type, without edges.
    Vertices(VertexType),
    /// The vertices at one end of a graph, each with its in-edges or out-edges.
    Edges(Graph, Direction),
    /// As `Edges`, without the vertices that have no such edges: the rows of [`Space::Ends`].
    Ends(Graph, Direction),
    /// The rows (`In`) or columns (`Out`) of a sparse matrix, each with its stored elements as edges.
    Elements(Pattern, Direction),
}

impl Rows {
    /// Do its rows own edges (or stored elements)?
    pub fn has_edges(&self) -> bool {
        matches!(self, Rows::Edges(..) | Rows::Ends(..) | Rows::Elements(..))
    }

    /// The number of rows; for [`Rows::Ends`] that of all vertices at this end, which buffers with a row per vertex
    /// have.
    pub fn count(&self, tables: &Dataflow) -> Width {
        match self {
            Rows::Once => Width::one(),
            Rows::Each(volume) => volume.clone(),
            Rows::Vertices(vertex) => Width::count(*vertex),
            Rows::Edges(graph, direction) | Rows::Ends(graph, direction) => ends(tables, *graph, *direction).0,
            Rows::Elements(pattern, direction) => sides(tables, *pattern, *direction).0,
        }
    }

    /// The number of rows at the other end of the edges.
    pub fn other_count(&self, tables: &Dataflow) -> Option<Width> {
        match self {
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) => None,
            Rows::Edges(graph, direction) | Rows::Ends(graph, direction) => Some(ends(tables, *graph, *direction).1),
            Rows::Elements(pattern, direction) => Some(sides(tables, *pattern, *direction).1),
        }
    }

    /// The vertex type and the ends that a row of ends has at its own row.
    fn own_ends(&self) -> Option<(Graph, Direction)> {
        match self {
            Rows::Edges(graph, direction) | Rows::Ends(graph, direction) => Some((*graph, *direction)),
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) | Rows::Elements(..) => None,
        }
    }
}

/// Vertex counts of the end that owns the edges and of the other one.
fn ends(tables: &Dataflow, graph: Graph, direction: Direction) -> (Width, Width) {
    let decl = &tables.graphs[graph.index()];
    let (src, dst) = (Width::count(decl.src), Width::count(decl.dst));
    match direction {
        Direction::In => (dst, src),
        Direction::Out => (src, dst),
    }
}

fn sides(tables: &Dataflow, pattern: Pattern, direction: Direction) -> (Width, Width) {
    let decl = &tables.patterns[pattern.index()];
    let (rows, columns) = (Width::count(decl.vertex), Width::fixed(decl.columns));
    match direction {
        Direction::In => (rows, columns),
        Direction::Out => (columns, rows),
    }
}

/// What an instruction runs over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Each row.
    Row,
    /// Each edge (stored element) of each row.
    Edge,
}

/// An instruction of a traversal.
#[derive(Clone, PartialEq, Debug)]
pub struct Instr {
    /// Where the result goes. Locals are numbered in the order in which they are made.
    pub dest: Dest,
    /// What it runs over, and so what its operands are rows of.
    pub level: Level,
    /// What it computes.
    pub op: KernelOp,
    /// Elements of the result per row or edge (of a total: in all).
    pub width: Width,
    /// Stage that it is accounted to.
    pub stage: Stage,
    /// Where it comes from; not in text.
    pub from: Provenance,
}

/// What the result of an instruction has one row for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Extent {
    /// Each row.
    Row,
    /// Each edge.
    Edge,
    /// All rows or edges together.
    Total,
}

impl Instr {
    /// What the result has one row for.
    pub fn extent(&self) -> Extent {
        match (&self.op, self.level) {
            (op, _) if op.reduces_edges() => Extent::Row,
            (op, _) if op.is_total() => Extent::Total,
            (_, Level::Row) => Extent::Row,
            (_, Level::Edge) => Extent::Edge,
        }
    }
}

/// Where the result of an instruction goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dest {
    /// It exists while its row is computed.
    Local(Local),
    /// It is stored.
    Buffer(Buffer),
}

/// An operand: which elements it is for the row or edge that is being computed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Operand {
    /// Of what.
    pub source: Source,
    /// Which row.
    pub index: Index,
}

/// What an operand is read from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Source {
    /// An earlier result for the same row or edge.
    Local(Local),
    /// A stored value.
    Buffer(Buffer),
    /// A number.
    Const(f64),
    /// The number of rows of a space.
    Count(Space),
}

/// Which row of its source an operand is. Sources with a row for each distinct end of a graph ([`Space::Ends`]) are
/// read alike: the row of the vertex, wherever it is among them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Index {
    /// All of it, always.
    Whole,
    /// That of this row; at an edge, of the row that owns it.
    Row,
    /// That of the other end of this edge.
    Other,
    /// That of this edge.
    Edge,
    /// That of the vertex of this row among the ends of a graph; there may be none.
    End,
    /// The element (row, column) of a dense matrix, at a stored element of a sparse one.
    Cell,
}

/// What an instruction computes.
#[derive(Clone, PartialEq, Debug)]
pub enum KernelOp {
    /// `f(a)`
    Unary(UnaryOp, Operand),
    /// `a ∘ b`; each element of a narrower operand is repeated.
    Binary(BinaryOp, Operand, Operand),
    /// Each element of `a`, repeated to the width of the result.
    Copy(Operand),
    /// `b` where the vertex of the row is one of its ends, else `a`.
    Replace(Operand, Operand),
    /// The first operand plus those of the others that have the vertex of the row among their ends.
    AddEnds(Vec<Operand>),
    /// Along the last dimension.
    Concat {
        /// The operands.
        parts: Vec<Operand>,
        /// Extent of the leading dimensions.
        lead: Width,
    },
    /// `len` of every `last` elements, from `start`.
    Slice {
        /// From.
        a: Operand,
        /// Extent of the last dimension of `a`.
        last: usize,
        /// First element.
        start: usize,
        /// Number of elements.
        len: usize,
    },
    /// 1 at the class of a label, else 0.
    OneHot(Operand),
    /// A dropout mask: see [`crate::Op::RandomMask`].
    Mask {
        /// Its stream.
        stream: u32,
        /// Its rate.
        rate: f64,
    },
    /// `x · w`
    MatMul(Extents, Operand, Operand),
    /// `y · wᵀ`
    MatMulT(Extents, Operand, Operand),
    /// Over equal groups of consecutive elements.
    ReduceTrailing(Reduce, Operand),
    /// `Σ a · b` over equal groups of consecutive elements.
    Dot(Operand, Operand),
    /// Over the edges of each row.
    Segment(Reduce, Operand),
    /// `Σ a · x` over the edges of each row; each weight of `a` scales as many elements of `x`.
    WeightedSum {
        /// The weights.
        a: Operand,
        /// What is summed.
        x: Operand,
    },
    /// An online softmax (Milakov and Gimelshein 2018): one pass over the edges of each row that keeps the largest score
    /// `m` of each head so far, `Σ e^(s - m)` and `Σ t e^(s - m) x`, and scales both sums down when `m` grows. The
    /// result is these sums and `m`, one after another: as many elements as `x` has, and two numbers per head. The
    /// weighted mean of a row is the first divided by the second, its log-sum-exp is `m + ln Σ e^(s - m)`.
    ///
    /// Without edges `m` is -∞, the sums of exponentials are 1, and the others 0. `m` is taken for the nearest finite number
    /// in the exponents.
    SoftmaxSum {
        /// `s`, a number per head.
        score: Operand,
        /// What is summed.
        x: Operand,
        /// `t`, a number per head; 1 if there is none.
        times: Option<Operand>,
    },
    /// The largest (smallest) elements of `x` over the edges of each row, and then the ranks of their edges: twice as many
    /// elements as `x` has. See [`crate::Op::SegmentArg`].
    SegmentArg {
        /// Largest or smallest.
        extreme: Extreme,
        /// Elements of edges.
        x: Operand,
        /// The rank of the edge, a number.
        rank: Operand,
    },
    /// Over all rows or edges.
    ReduceAll(Reduce, Operand),
    /// The sum of the outer products of all rows or edges.
    OuterAll(Extents, Operand, Operand),
}

impl KernelOp {
    /// Is it a reduction over all rows or edges, complete only after the kernel?
    pub fn is_total(&self) -> bool {
        matches!(self, KernelOp::ReduceAll(..) | KernelOp::OuterAll(..))
    }

    /// Is it a reduction over the edges of each row?
    pub fn reduces_edges(&self) -> bool {
        matches!(
            self,
            KernelOp::Segment(..)
                | KernelOp::WeightedSum { .. }
                | KernelOp::SoftmaxSum { .. }
                | KernelOp::SegmentArg { .. }
        )
    }

    /// Its operands, in order.
    pub fn operands(&self) -> Vec<Operand> {
        match self {
            KernelOp::Unary(_, a)
            | KernelOp::Copy(a)
            | KernelOp::Slice { a, .. }
            | KernelOp::OneHot(a)
            | KernelOp::ReduceTrailing(_, a)
            | KernelOp::Segment(_, a)
            | KernelOp::ReduceAll(_, a) => vec![*a],
            KernelOp::Binary(_, a, b)
            | KernelOp::Replace(a, b)
            | KernelOp::MatMul(_, a, b)
            | KernelOp::MatMulT(_, a, b)
            | KernelOp::Dot(a, b)
            | KernelOp::WeightedSum { a, x: b }
            | KernelOp::SegmentArg { x: a, rank: b, .. }
            | KernelOp::OuterAll(_, a, b) => vec![*a, *b],
            KernelOp::SoftmaxSum { score, x, times } => [*score, *x].into_iter().chain(*times).collect(),
            KernelOp::Concat { parts, .. } | KernelOp::AddEnds(parts) => parts.clone(),
            KernelOp::Mask { .. } => vec![],
        }
    }

    /// The word for it in text, without reductions and numbers.
    pub fn name(&self) -> &'static str {
        match self {
            KernelOp::Unary(f, _) => f.name(),
            KernelOp::Binary(f, ..) => f.name(),
            KernelOp::Copy(_) => "copy",
            KernelOp::Replace(..) => "replace",
            KernelOp::AddEnds(_) => "add_ends",
            KernelOp::Concat { .. } => "concat",
            KernelOp::Slice { .. } => "slice",
            KernelOp::OneHot(_) => "one_hot",
            KernelOp::Mask { .. } => "random_mask",
            KernelOp::MatMul(..) => "matmul",
            KernelOp::MatMulT(..) => "matmul_t",
            KernelOp::ReduceTrailing(..) => "reduce",
            KernelOp::Dot(..) => "dot",
            KernelOp::Segment(..) => "segment",
            KernelOp::WeightedSum { .. } => "weighted_sum",
            KernelOp::SoftmaxSum { .. } => "softmax_sum",
            KernelOp::SegmentArg { extreme, .. } => extreme.arg_name(),
            KernelOp::ReduceAll(..) => "reduce_all",
            KernelOp::OuterAll(..) => "outer",
        }
    }
}

/// What a program gives back.
#[derive(Clone, PartialEq, Debug)]
pub struct Output {
    /// What for.
    pub kind: OutputKind,
    /// Where it is when the program has run.
    pub source: Source,
    /// The type that it is seen as. An update with a row for each distinct end of a graph replaces these rows of its
    /// parameter or state; all others stay as they are.
    pub ty: Type,
}

/// The number of elements of a type. `None` where edges, their ends or a sparsity pattern decide it.
fn volume(ty: &Type) -> Option<Width> {
    match (ty.layout, ty.space) {
        (Layout::Sparse(_), _) | (Layout::Dense, Space::Edges(_) | Space::Ends(..)) => None,
        (Layout::Dense, Space::Unit) => Some(Width::of(&ty.dims)),
        (Layout::Dense, Space::Index(extent)) => Some(Width::of(&ty.dims).times(&Width::fixed(extent))),
        (Layout::Dense, Space::Vertices(vertex)) => Some(Width::of(&ty.dims).times(&Width::count(vertex))),
    }
}

impl Program {
    /// The declaration of a buffer.
    pub fn buffer(&self, buffer: Buffer) -> &BufferDecl {
        &self.buffers[buffer.index()]
    }

    /// The graphs and directions whose distinct ends the program has rows for or counts, each once.
    pub fn ends(&self) -> std::collections::BTreeSet<(Graph, Direction)> {
        let mut spaces: Vec<Space> = self.buffers.iter().map(|decl| decl.ty.space).collect();
        spaces.extend(self.outputs.iter().map(|output| output.ty.space));
        for kernel in self.kernels() {
            match &kernel.body {
                Body::Gemm(gemm) => spaces.push(gemm.rows),
                Body::Paths(_) => {}
                Body::Traversal(traversal) => {
                    if let Rows::Ends(graph, direction) = traversal.rows {
                        spaces.push(Space::Ends(graph, direction));
                    }
                    let operands = traversal.instrs.iter().flat_map(|instr| instr.op.operands());
                    spaces.extend(operands.filter_map(|operand| match operand.source {
                        Source::Count(space) => Some(space),
                        Source::Local(_) | Source::Buffer(_) | Source::Const(_) => None,
                    }));
                }
            }
        }
        let counted = self.outputs.iter().filter_map(|output| match output.source {
            Source::Count(space) => Some(space),
            Source::Local(_) | Source::Buffer(_) | Source::Const(_) => None,
        });
        spaces.extend(counted);
        let ends = spaces.into_iter().filter_map(|space| match space {
            Space::Ends(graph, direction) => Some((graph, direction)),
            Space::Unit | Space::Vertices(_) | Space::Edges(_) | Space::Index(_) => None,
        });
        ends.collect()
    }

    /// The same program with long rows cut in another way, or never: other roundings, but the same values.
    #[must_use]
    pub fn with_pieces(mut self, pieces: Option<Pieces>) -> Self {
        for kernel in self.prelude.iter_mut().chain(&mut self.launches).flat_map(|launch| &mut launch.kernels) {
            if let Body::Traversal(traversal) = &mut kernel.body {
                traversal.pieces = pieces.filter(|_| traversal.rows.has_edges());
            }
        }
        self
    }

    /// All kernels: those of the prelude, then those of each run.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.prelude.iter().chain(&self.launches).flat_map(|launch| &launch.kernels)
    }

    /// The number of elements of a buffer. `None` where edges, their ends or a sparsity pattern decide it.
    pub fn volume(&self, buffer: Buffer) -> Option<Width> {
        volume(&self.buffer(buffer).ty)
    }

    /// The width of an operand of an instruction of a traversal, where it can be read there. The widths of locals
    /// are those of the instructions that make them.
    pub fn operand_width(&self, rows: &Rows, locals: &[Width], operand: Operand) -> Option<Width> {
        let buffer = match operand.source {
            Source::Const(_) | Source::Count(_) => return (operand.index == Index::Whole).then(Width::one),
            Source::Local(local) => return locals.get(local.index()).cloned(),
            Source::Buffer(buffer) => buffer,
        };
        let ty = &self.buffer(buffer).ty;
        if let Space::Ends(graph, direction) = ty.space {
            let has = match operand.index {
                Index::Row => rows.own_ends() == Some((graph, direction)),
                Index::Other => rows.own_ends().is_some_and(|(own, side)| own == graph && side != direction),
                Index::End => {
                    let of = ends(&self.tables, graph, direction).0;
                    !matches!(rows, Rows::Each(_) | Rows::Ends(..) | Rows::Elements(..))
                        && rows.count(&self.tables) == of
                }
                Index::Whole | Index::Edge | Index::Cell => false,
            };
            return has.then(|| Width::of(&ty.dims));
        }
        match operand.index {
            Index::End => None,
            Index::Whole => self.volume(buffer),
            Index::Row => self.volume(buffer)?.divided_by(&rows.count(&self.tables)),
            Index::Other => self.volume(buffer)?.divided_by(&rows.other_count(&self.tables)?),
            Index::Edge => match (rows, ty.space, ty.layout) {
                (Rows::Edges(graph, _) | Rows::Ends(graph, _), Space::Edges(of), _) if of == *graph => {
                    Some(Width::of(&ty.dims))
                }
                (Rows::Elements(pattern, _), _, Layout::Sparse(of)) if of == *pattern => Some(Width::one()),
                _ => None,
            },
            Index::Cell => {
                let Rows::Elements(..) = rows else { return None };
                let cells = rows.count(&self.tables).times(&rows.other_count(&self.tables)?);
                (self.volume(buffer)? == cells).then(Width::one)
            }
        }
    }

    /// The widths of the locals of a traversal.
    pub fn local_widths(traversal: &Traversal) -> Vec<Width> {
        let made = |instr: &&Instr| matches!(instr.dest, Dest::Local(_));
        traversal.instrs.iter().filter(made).map(|instr| instr.width.clone()).collect()
    }

    /// Is a buffer the same in every run, unless a kernel writes it?
    pub fn is_fixed_input(&self, buffer: Buffer) -> bool {
        match self.buffer(buffer).contents {
            Contents::Input(input) => {
                let binding = self.tables.inputs.get(input.index()).map(|decl| &decl.binding);
                !matches!(binding, Some(Binding::StepNumber | Binding::EpochNumber))
            }
            Contents::Param(_) | Contents::State(..) | Contents::Computed => false,
        }
    }
}

impl Kernel {
    /// The buffers that it reads, in the order in which it first reads them.
    pub fn reads(&self) -> Vec<Buffer> {
        let mut all = vec![];
        match &self.body {
            Body::Gemm(gemm) => all.extend([gemm.x, gemm.y]),
            Body::Paths(paths) => {
                let own = |buffer: &Buffer| paths.sums.iter().any(|sum| sum.out == *buffer);
                let read = paths.sums.iter().flat_map(|sum| [sum.n, sum.w]).flatten().filter(|buffer| !own(buffer));
                all.extend([paths.x, paths.y].into_iter().chain(read));
            }
            Body::Traversal(traversal) => {
                let operands = traversal.instrs.iter().flat_map(|instr| instr.op.operands());
                all.extend(operands.filter_map(|operand| match operand.source {
                    Source::Buffer(buffer) => Some(buffer),
                    Source::Local(_) | Source::Const(_) | Source::Count(_) => None,
                }));
            }
        }
        let mut seen = std::collections::HashSet::new();
        all.retain(|&buffer| seen.insert(buffer));
        all
    }

    /// The buffers that it writes, in order.
    pub fn writes(&self) -> Vec<Buffer> {
        match &self.body {
            Body::Gemm(gemm) => vec![gemm.out],
            Body::Paths(paths) => paths.sums.iter().map(|sum| sum.out).collect(),
            Body::Traversal(traversal) => traversal
                .instrs
                .iter()
                .filter_map(|instr| match instr.dest {
                    Dest::Buffer(buffer) => Some(buffer),
                    Dest::Local(_) => None,
                })
                .collect(),
        }
    }
}
