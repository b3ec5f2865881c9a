//! The kernel IR: the schedule of a program, independent of dataset and machine.
//!
//! A [`Program`] is an ordered list of [`Launch`]es. Each launch holds one or more kernels that do not read each
//! other's results. There are four kinds of kernels:
//!
//! - A [`Gemm`] is a dense product over all rows of a space.
//! - A [`Traversal`] iterates over rows, each of which owns its edges. Its instructions run before, inside and
//!   after loops over the edges of a row. Rows are independent of each other. A reduction over edges completes
//!   within its row, in edge order; high-degree rows may be split ([`Traversal::pieces`]). A global reduction over
//!   all rows or edges ([`KernelOp::is_total`]) completes after the kernel. An element-wise map or a reduction over
//!   vertices is a traversal without edges.
//! - An [`Exchange`] fills rows that other ranks own, see [`hgnnc_ir::ranks`].
//! - [`FactoredMetapath`] is factored metapath attention: reductions over two-hop paths that share their scores, see
//!   [`hgnnc_ir::metapath`].
//!
//! A value is either a *local*, which lives while its row or edge is computed, or a *buffer*, which is stored: the
//! memory footprint can be read off the text. Sizes are symbolic ([`Width`]). Thread blocks, tasks, threads and
//! addresses are decided by a back end when data is bound. The same holds for memory accesses: an operand names a row
//! of a buffer ([`Index`]), not an address.

mod op;
pub mod parse;
pub mod place;
pub mod print;
mod replace;
pub mod verify;

pub use op::{Extents, KernelOp, Operands};
pub use parse::parse;
pub use print::print;
pub use replace::{Uses, reads_on_the_way};
pub use verify::verify;

use hgnnc_ir::dataflow::{Binding, Dataflow, OutputKind};
use hgnnc_ir::handle;
use hgnnc_ir::metapath::{MetapathReduce, MetapathTerm, PiecewiseLinear};
use hgnnc_ir::ops::{Direction, ProductForm};
use hgnnc_ir::stacks::VertexRows;
use hgnnc_ir::types::{Graph, Input, Layout, Param, Pattern, Phase, Provenance, Space, Stage, Type, VertexType};
use hgnnc_ir::width::Width;
use rustc_hash::FxHashSet;

handle!(
    /// A stored value of a [`Program`].
    Buffer, "b"
);
handle!(
    /// A value of a row or an edge inside a [`Traversal`], printed `%7`.
    Local, "%"
);

/// A scheduled program: buffers, launches and outputs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// Name, vertex types, graphs, patterns, inputs and parameters, as a dataflow program without values.
    pub tables: Dataflow,
    /// All stored values, indexed by [`Buffer`].
    pub buffers: Vec<BufferDecl>,
    /// Run once, when data is bound: values that depend on no parameter, state, mask or counter
    /// (loop invariants of training).
    pub prelude: Vec<Launch>,
    /// Run in this order, once per step.
    pub launches: Vec<Launch>,
    /// Results and updates of the program.
    pub outputs: Vec<Output>,
}

/// The declaration of a stored value.
#[derive(Clone, PartialEq, Debug)]
pub struct BufferDecl {
    /// Unique name in the text format.
    pub name: String,
    /// Its type. A kernel may view the same elements as rows of another space, provided the number
    /// of elements is equal.
    pub ty: Type,
    /// The origin of its elements.
    pub contents: Contents,
    /// The parameter, optimizer state or dead value whose memory it aliases, see [`Uses::may_replace`].
    pub replaces: Option<Buffer>,
    /// The owned rows of an exchange that it stores mirrors of: they stay where they are, and those of other ranks are
    /// stored around them, see [`Uses::may_extend`].
    pub extends: Option<Buffer>,
}

/// The origin of a buffer's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Contents {
    /// A dataset tensor, or a step or epoch counter.
    Input(Input),
    Param(Param),
    /// The optimizer state of a parameter, by slot.
    State(Param, u32),
    /// The result of a kernel of this program.
    Computed,
}

/// Independent kernels, which may run concurrently.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Launch {
    /// The kernels; none reads a result of another.
    pub kernels: Vec<Kernel>,
    /// Number of leading kernels whose blocks are interleaved with those of the others; 0 runs all back to back.
    pub interleaved: usize,
}

/// A body with the stage and phase that it is accounted to.
#[derive(Clone, PartialEq, Debug)]
pub struct Kernel {
    /// The stage it is accounted to, unless an instruction has its own.
    pub stage: Stage,
    /// The phase it is accounted to.
    pub phase: Phase,
    /// The computation of the kernel.
    pub body: Body,
}

/// The computation of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// A dense product over all rows of a space.
    Gemm(Gemm),
    /// Rows that own their edges, with instructions per row and per edge.
    Traversal(Traversal),
    /// Factored metapath attention over two graphs.
    FactoredMetapath(FactoredMetapath),
    /// Rows that other ranks own.
    Exchange(Exchange),
}

/// A dense product over all rows of a space.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Gemm {
    pub form: ProductForm,
    pub rows: Space,
    /// For a grouped product: the graph from the rows to the members whose weights they have,
    /// one member after the other.
    pub members: Option<Graph>,
    /// Symbolic extents: batch, `k` and `n`.
    pub of: Extents,
    /// Rows of the first operand, `batch · k` elements each (`batch · n` for [`ProductForm::MatMulT`]).
    pub x: Buffer,
    /// The weight `[batch, k, n]`, or rows of `batch · n` elements for [`ProductForm::Outer`].
    pub y: Buffer,
    pub out: Buffer,
    /// Source location, for messages; not in the text format.
    pub from: Provenance,
}

/// Rows of vertices, sent to the ranks that have copies of them: [`hgnnc_ir::Op::Exchange`]. Or rows that each rank has, summed
/// over all ranks: [`hgnnc_ir::Op::SumRanks`].
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Exchange {
    /// The rows that are sent.
    pub rows: VertexType,
    /// The rows that are received; `None` for the sum of all rows of all ranks.
    pub to: Option<VertexType>,
    /// Elements of a row; of a sum, all of its elements.
    pub width: Width,
    pub x: Buffer,
    pub out: Buffer,
    /// Source location, for messages; not in the text format.
    pub from: Provenance,
}

/// Reductions over the same two-hop paths for the same rows, see [`MetapathReduce`]. They share their scores.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FactoredMetapath {
    /// Edges from sources to middle vertices.
    pub first: Graph,
    /// Edges from middle vertices to destinations.
    pub second: Graph,
    /// The end that owns the sums.
    pub direction: Direction,
    /// The function from `x + y` to the score of a path.
    pub score: PiecewiseLinear,
    /// Number of heads: elements per row of `x` and `y`.
    pub heads: Width,
    /// Score terms of the sources, `heads` elements per row.
    pub x: Buffer,
    /// Score terms of the destinations, `heads` elements per row.
    pub y: Buffer,
    /// The reductions. With `direction: Out` they share one `n`; with `In` their `n` may be an `Lse`
    /// of the same kernel.
    pub sums: Vec<FactoredOut>,
    /// Source location, for messages; not in the text format.
    pub from: Provenance,
}

/// One reduction of a [`FactoredMetapath`] kernel.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FactoredOut {
    pub term: MetapathTerm,
    /// Subtracted from the scores: one number per head and destination. `None` for [`MetapathTerm::LogSumExp`].
    pub n: Option<Buffer>,
    /// Weights, with one row per opposite endpoint; 1 if `None`.
    pub w: Option<Buffer>,
    /// The result, with as many elements per row as `w`.
    pub out: Buffer,
}

impl FactoredMetapath {
    /// Maximum number of reductions per kernel.
    pub const MOST_SUMS: usize = 8;

    /// The [`MetapathReduce`] with the given summand.
    pub fn sum(&self, term: MetapathTerm) -> MetapathReduce {
        MetapathReduce { first: self.first, second: self.second, direction: self.direction, score: self.score, term }
    }
}

/// Rows with their edges and the instructions that run on them.
#[derive(Clone, PartialEq, Debug)]
pub struct Traversal {
    /// The rows and the edges they own.
    pub rows: Rows,
    /// Splitting of high-degree rows. `None`: rows are never split.
    pub pieces: Option<Pieces>,
    /// The instructions for each row, in program order.
    pub instrs: Vec<Instr>,
}

/// How high-degree rows are split.
///
/// A row with more edges than a piece is split into pieces of equally many consecutive edges; the last piece may be
/// shorter. Each reduction over the edges of a split row is computed per piece, and the partial results are combined in
/// the order of the pieces; instructions that use the reduction run once for the row. Several tasks can thus share a
/// row, while the results depend on the graph alone, not on the number of threads.
///
/// A back end executes a split row in one round per link in the dependence chain of its reductions. Edge values that
/// several rounds read are rematerialized in each, so that none is stored. This extra work is why a row is not split
/// while other rows have enough edges to keep all processors busy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pieces {
    /// Minimum edges of a piece: enough work for a task.
    pub least: usize,
    /// Maximum number of pieces that all edges of the graph together would give.
    pub most: usize,
}

impl Pieces {
    /// Edges of a piece in a graph with `edges` edges.
    pub fn len(self, edges: usize) -> usize {
        self.least.max(edges.div_ceil(self.most.max(1))).max(1)
    }
}

/// The row space of a traversal and the edges that each row owns.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Rows {
    /// A single row, for unit values.
    Once,
    /// A number of rows that divides unit values evenly: one per element, or one per index of their leading dimension.
    Each(Width),
    /// The vertices of a type, without edges.
    Vertices(VertexType),
    /// The vertices at one end of a graph, each with its in-edges or out-edges.
    Edges(Graph, Direction),
    /// As `Edges`, without vertices of degree 0: the rows of [`Space::Endpoints`].
    Endpoints(Graph, Direction),
    /// The rows (`In`) or columns (`Out`) of a sparse matrix, with its stored elements as edges.
    Elements(Pattern, Direction),
}

impl Traversal {
    /// The stage of most instructions, the earliest of several; `None` without instructions.
    pub fn main_stage(&self) -> Option<Stage> {
        let count = |stage| self.instrs.iter().filter(|instr| instr.stage == stage).count();
        Stage::ALL.into_iter().rev().filter(|&stage| count(stage) > 0).max_by_key(|&stage| count(stage))
    }
}

impl Rows {
    /// Do the rows own edges or stored elements?
    pub fn has_edges(&self) -> bool {
        matches!(self, Rows::Edges(..) | Rows::Endpoints(..) | Rows::Elements(..))
    }

    /// The number of rows. For [`Rows::Endpoints`] it counts all vertices at this end, as buffers with a row per vertex do.
    pub fn count(&self, tables: &Dataflow) -> Width {
        match self {
            Rows::Once => Width::one(),
            Rows::Each(volume) => volume.clone(),
            Rows::Vertices(vertex) => tables.expanded(Width::count(*vertex)),
            Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction) => {
                endpoints(tables, *graph, *direction).0
            }
            Rows::Elements(pattern, direction) => sides(tables, *pattern, *direction).0,
        }
    }

    /// The number of vertices (or columns) at the opposite end of the edges.
    pub fn other_count(&self, tables: &Dataflow) -> Option<Width> {
        match self {
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) => None,
            Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction) => {
                Some(endpoints(tables, *graph, *direction).1)
            }
            Rows::Elements(pattern, direction) => Some(sides(tables, *pattern, *direction).1),
        }
    }

    /// The graph and direction whose endpoints the rows are, if any.
    fn own_endpoints(&self) -> Option<(Graph, Direction)> {
        match self {
            Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction) => Some((*graph, *direction)),
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) | Rows::Elements(..) => None,
        }
    }
}

/// Vertex counts of the owning end and of the opposite end.
fn endpoints(tables: &Dataflow, graph: Graph, direction: Direction) -> (Width, Width) {
    let decl = &tables.graphs[graph.index()];
    let [src, dst] = [decl.src, decl.dst].map(|end| tables.expanded(Width::count(end)));
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

/// The loop that an instruction runs in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// Once for each row.
    Row,
    /// Once for each edge (stored element) of each row.
    Edge,
}

/// An instruction of a traversal.
#[derive(Clone, PartialEq, Debug)]
pub struct Instr {
    /// The destination of the result. Locals are numbered in definition order.
    pub dest: Dest,
    /// The loop it runs in, which also fixes the rows of its operands.
    pub level: Level,
    /// The operation with its operands.
    pub op: KernelOp,
    /// Elements of the result per row or edge (for a global reduction: in all).
    pub width: Width,
    /// The stage it is accounted to.
    pub stage: Stage,
    /// The exponential of an edge that decides which branch a derivative takes (at a relu, at the larger of two values),
    /// perhaps in another kernel: all kernels that compute it must round it in the same way.
    pub exact: bool,
    /// Source location, for messages; not in the text format.
    pub from: Provenance,
}

/// The granularity of a result: per row, per edge, or global.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Extent {
    Row,
    Edge,
    /// One value for all rows or edges: a global reduction.
    Total,
}

impl Instr {
    /// The granularity of the result.
    pub fn extent(&self) -> Extent {
        match (&self.op, self.level) {
            (op, _) if op.reduces_edges() => Extent::Row,
            (op, _) if op.is_total() => Extent::Total,
            (_, Level::Row) => Extent::Row,
            (_, Level::Edge) => Extent::Edge,
        }
    }
}

/// The destination of an instruction's result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Dest {
    /// A temporary that lives while its row is computed.
    Local(Local),
    /// A stored value, written to memory.
    Buffer(Buffer),
}

/// A source and the row of it that an instruction reads.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Operand {
    pub source: Source,
    pub index: Index,
}

/// The value that an operand reads.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Source {
    /// An earlier result for the same row or edge.
    Local(Local),
    Buffer(Buffer),
    Const(f64),
    /// The number of rows of a space.
    Count(Space),
}

/// The row of its source that an operand reads. A source with one row per distinct endpoint ([`Space::Endpoints`]) is
/// indexed by vertex in the same way; the back end translates the vertex to its compact row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Index {
    /// The whole source, uniform over rows and edges.
    Uniform,
    /// The own row; at an edge, the row that owns the edge.
    Own,
    /// The row of the neighbour at the opposite end of the edge.
    Neighbor,
    /// The row of the edge itself.
    Edge,
    /// The row of the own vertex among the endpoints of another graph; absent if the vertex has no such edge.
    Endpoint,
    /// The element of a dense matrix at the (row, column) of a stored element.
    DenseCell,
}

/// A result or update of a program.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Output {
    pub kind: OutputKind,
    /// The stored value or constant that holds it after the run.
    pub source: Source,
    /// The type it is viewed as. An update with rows for distinct endpoints replaces these rows of its parameter or
    /// state; all others keep their values.
    pub ty: Type,
}

/// The number of elements of a type. `None` if it depends on the edges of a graph or on a sparsity pattern.
fn volume(tables: &Dataflow, ty: &Type) -> Option<Width> {
    // The edges of a graph may be rows of a vertex type.
    let rows_of_edges = |graph: Graph| {
        let of_type = tables.vertex_types.iter().position(|decl| decl.rows == VertexRows::Edges(graph))?;
        Some(Width::of(&ty.dims).times(&Width::count(VertexType::new(of_type))))
    };
    let size = match (ty.layout, ty.space) {
        (Layout::Sparse(_), _) | (Layout::Dense, Space::Endpoints(..)) => None,
        (Layout::Dense, Space::Edges(graph)) => rows_of_edges(graph),
        (Layout::Dense, Space::Unit) => Some(Width::of(&ty.dims)),
        (Layout::Dense, Space::Index(extent)) => Some(Width::of(&ty.dims).times(&Width::fixed(extent))),
        (Layout::Dense, Space::Vertices(vertex)) => Some(Width::of(&ty.dims).times(&Width::count(vertex))),
    };
    size.map(|size| tables.expanded(size))
}

impl Program {
    /// The declaration of a buffer.
    pub fn buffer(&self, buffer: Buffer) -> &BufferDecl {
        &self.buffers[buffer.index()]
    }

    /// The (graph, direction) pairs whose distinct endpoints the program indexes or counts.
    pub fn endpoints(&self) -> std::collections::BTreeSet<(Graph, Direction)> {
        let mut spaces: Vec<Space> = self.buffers.iter().map(|decl| decl.ty.space).collect();
        spaces.extend(self.outputs.iter().map(|output| output.ty.space));
        for kernel in self.kernels() {
            match &kernel.body {
                Body::Gemm(gemm) => spaces.push(gemm.rows),
                Body::FactoredMetapath(_) | Body::Exchange(_) => {}
                Body::Traversal(traversal) => {
                    if let Rows::Endpoints(graph, direction) = traversal.rows {
                        spaces.push(Space::Endpoints(graph, direction));
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
            Space::Endpoints(graph, direction) => Some((graph, direction)),
            Space::Unit | Space::Vertices(_) | Space::Edges(_) | Space::Index(_) => None,
        });
        ends.collect()
    }

    /// The same program with high-degree rows split in another way, or never. Rounding differs, the values do not.
    #[must_use]
    pub fn with_pieces(mut self, pieces: Option<Pieces>) -> Self {
        for kernel in self.kernels_mut() {
            if let Body::Traversal(traversal) = &mut kernel.body {
                traversal.pieces = pieces.filter(|_| traversal.rows.has_edges());
            }
        }
        self
    }

    /// All kernels: first the prelude, then the launches.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.prelude.iter().chain(&self.launches).flat_map(|launch| &launch.kernels)
    }

    /// All kernels, to be changed.
    pub fn kernels_mut(&mut self) -> impl Iterator<Item = &mut Kernel> {
        self.prelude.iter_mut().chain(&mut self.launches).flat_map(|launch| &mut launch.kernels)
    }

    /// The number of elements of a buffer. `None` if it depends on the edges of a graph or on a sparsity pattern.
    pub fn volume(&self, buffer: Buffer) -> Option<Width> {
        volume(&self.tables, &self.buffer(buffer).ty)
    }

    /// The width of an operand of a traversal. `None` if the operand cannot be read there. `locals` holds the widths of
    /// the instructions that define the locals.
    pub fn operand_width(&self, rows: &Rows, locals: &[Width], operand: Operand) -> Option<Width> {
        let buffer = match operand.source {
            Source::Const(_) | Source::Count(_) => return (operand.index == Index::Uniform).then(Width::one),
            Source::Local(local) => return locals.get(local.index()).cloned(),
            Source::Buffer(buffer) => buffer,
        };
        let ty = &self.buffer(buffer).ty;
        if let Space::Endpoints(graph, direction) = ty.space {
            let has = match operand.index {
                Index::Own => rows.own_endpoints() == Some((graph, direction)),
                Index::Neighbor => rows.own_endpoints().is_some_and(|(own, side)| own == graph && side != direction),
                Index::Endpoint => {
                    let of = endpoints(&self.tables, graph, direction).0;
                    !matches!(rows, Rows::Each(_) | Rows::Endpoints(..) | Rows::Elements(..))
                        && rows.count(&self.tables) == of
                }
                Index::Uniform | Index::Edge | Index::DenseCell => false,
            };
            return has.then(|| Width::of(&ty.dims));
        }
        match operand.index {
            Index::Endpoint => None,
            Index::Uniform => self.volume(buffer),
            Index::Own => self.volume(buffer)?.divided_by(&rows.count(&self.tables)),
            Index::Neighbor => self.volume(buffer)?.divided_by(&rows.other_count(&self.tables)?),
            Index::Edge => match (rows, ty.space, ty.layout) {
                (Rows::Edges(graph, _) | Rows::Endpoints(graph, _), Space::Edges(of), _) if of == *graph => {
                    Some(Width::of(&ty.dims))
                }
                (Rows::Edges(graph, _) | Rows::Endpoints(graph, _), Space::Vertices(vertex), Layout::Dense)
                    if self.tables.vertex_types[vertex.index()].rows == VertexRows::Edges(*graph) =>
                {
                    Some(Width::of(&ty.dims))
                }
                (Rows::Elements(pattern, _), _, Layout::Sparse(of)) if of == *pattern => Some(Width::one()),
                _ => None,
            },
            Index::DenseCell => {
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

    /// Is a buffer constant across runs, unless a kernel writes it?
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
    /// Its traversal; `None` for other kernels.
    pub fn traversal(&self) -> Option<&Traversal> {
        match &self.body {
            Body::Traversal(traversal) => Some(traversal),
            Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => None,
        }
    }

    /// The buffers that the kernel reads, each once, in order of first use.
    pub fn reads(&self) -> Vec<Buffer> {
        let mut all = vec![];
        match &self.body {
            Body::Gemm(gemm) => all.extend([gemm.x, gemm.y]),
            Body::Exchange(exchange) => all.push(exchange.x),
            Body::FactoredMetapath(reduction) => {
                let own = |buffer: &Buffer| reduction.sums.iter().any(|sum| sum.out == *buffer);
                let read = reduction.sums.iter().flat_map(|sum| [sum.n, sum.w]).flatten().filter(|buffer| !own(buffer));
                all.extend([reduction.x, reduction.y].into_iter().chain(read));
            }
            Body::Traversal(traversal) => {
                let operands = traversal.instrs.iter().flat_map(|instr| instr.op.operands());
                all.extend(operands.filter_map(|operand| match operand.source {
                    Source::Buffer(buffer) => Some(buffer),
                    Source::Local(_) | Source::Const(_) | Source::Count(_) => None,
                }));
            }
        }
        let mut seen = FxHashSet::default();
        all.retain(|&buffer| seen.insert(buffer));
        all
    }

    /// The buffers that the kernel writes, in order.
    pub fn writes(&self) -> Vec<Buffer> {
        match &self.body {
            Body::Gemm(gemm) => vec![gemm.out],
            Body::Exchange(exchange) => vec![exchange.out],
            Body::FactoredMetapath(reduction) => reduction.sums.iter().map(|sum| sum.out).collect(),
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
