//! Programs for a GPU: modules of PTX, the meaning of their tables, and the numbers of their blocks.

pub mod counts;
pub mod rows;

use std::fmt;

use hgnnc_ir::ProductForm;
use hgnnc_ir::width::Width;
use hgnnc_ir::{Direction, Graph, Pattern, Reduce, Space};
use hgnnc_kernel_ir::kernel::{Buffer, Contents, Extents, Program, Rows};

/// Threads of every block.
pub const THREADS: usize = 256;
/// Rows and columns of the result of a dense product that a block computes.
pub const TILE: usize = 64;
/// Columns of the factors that a block of a dense product has in shared memory at a time.
pub const DEPTH: usize = 16;
/// Rows that a part of a sum of outer products has at least.
const PART_ROWS: usize = 512;
/// Parts of such a sum, at most.
const MOST_PARTS: usize = 128;
/// Elements of all parts, at most (where there are so many parts at all).
const PART_ELEMENTS: usize = 8 << 20;
/// A kernel for which there is no PTX.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no PTX for kernel k{kernel}: {what}")]
pub struct Unsupported {
    /// Its position in the program.
    pub kernel: usize,
    /// The construct without a translation, such as "an operand whose length depends on the dataset".
    pub what: String,
}

/// Degrees of the rows of a traversal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Edges {
    /// Average number of edges of a row.
    pub mean: f64,
    /// Number of edges of the row that has the most.
    pub most: u64,
}

/// How exact dense products of many rows are. Sums are always in f32.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Precision {
    /// Ordinary arithmetic in f32.
    F32,
    /// On matrix units, three products of TF32 for each: about as exact as f32.
    #[default]
    Tf32x3,
    /// On matrix units, factors rounded to 11 bits.
    Tf32,
    /// On matrix units, factors rounded to 8 bits.
    Bf16,
}

/// The devices and the precision that code is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The generation of devices, which decides the limit of shared memory.
    pub arch: Arch,
    /// How exact dense products are.
    pub precision: Precision,
    /// Elements of a row that a lane holds in registers, at most: of 32 lanes, or of 256 where there is one row. Wider
    /// rows are computed in loops, and what they compute lies in memory.
    pub elements_per_lane: usize,
}

/// Each element is a register and a few lines of text. In the training program of `MlpScore` (sm_90, ptxas 12.9), 32
/// elements spill 68 bytes of a thread, 48 spill 1132 and 64 spill 3032: as much as loops write.
const ELEMENTS_PER_LANE: usize = 32;

/// A generation of devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arch {
    /// Compute capability 8.0 (A100).
    Sm80,
    /// Compute capability 9.0 (H100, H200).
    Sm90,
}

impl Target {
    /// Compute capability 8.0 (A100), with the default precision.
    pub const SM_80: Self =
        Self { arch: Arch::Sm80, precision: Precision::Tf32x3, elements_per_lane: ELEMENTS_PER_LANE };
    /// Compute capability 9.0 (H100, H200), with the default precision.
    pub const SM_90: Self =
        Self { arch: Arch::Sm90, precision: Precision::Tf32x3, elements_per_lane: ELEMENTS_PER_LANE };

    /// With so many elements of a row in the registers of a lane; 0: all rows are computed in loops.
    #[must_use]
    pub fn with_elements_per_lane(self, elements_per_lane: usize) -> Self {
        Self { elements_per_lane, ..self }
    }

    /// With products of another precision.
    #[must_use]
    pub fn with_precision(self, precision: Precision) -> Self {
        Self { precision, ..self }
    }

    /// The architecture as PTX's `.target` names it.
    pub fn name(self) -> &'static str {
        match self.arch {
            Arch::Sm80 => "sm_80",
            Arch::Sm90 => "sm_90",
        }
    }

    /// The most bytes of shared memory that a block can have: of each multiprocessor's 164 KiB or 228 KiB, the device
    /// keeps 1 KiB for itself (CUDA C++ Programming Guide, table of technical specifications per compute capability).
    pub fn most_shared(self) -> usize {
        match self.arch {
            Arch::Sm80 => 163 << 10,
            Arch::Sm90 => 227 << 10,
        }
    }
}

/// A program of kernels as PTX, with its launches and the layout of its table.
#[derive(Clone, Debug)]
pub struct Module {
    /// The PTX source, for `ptxas` or the driver's JIT compiler.
    pub text: String,
    /// The meaning of each 64-bit number of the array `table`.
    pub table: Vec<Slot>,
    /// Entries that run once, in order.
    pub prelude: Vec<Entry>,
    /// Entries of each run, in order. Those from the `first_update`-th on are the second part of a run, which may change
    /// parameters and states.
    pub launches: Vec<Entry>,
    /// Position of the first entry that may change parameters or states.
    pub first_update: usize,
    /// The entry that takes over new parameters and states that are not in their place, once a run is done.
    pub commit: Option<Entry>,
}

impl Module {
    /// The entries of a run: up to the first that may change parameters, the updates, and the commit.
    pub fn parts(&self) -> [&[Entry]; 3] {
        let (before, updates) = self.launches.split_at(self.first_update);
        [before, updates, self.commit.as_slice()]
    }
}

/// An entry of a module: it is launched with the blocks of all its kernels together, of [`THREADS`] threads each, and
/// with [`Entry::shared`] bytes of dynamic shared memory.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its name in the text.
    pub name: String,
    /// The kernels, in the order of their blocks.
    pub kernels: Vec<KernelInfo>,
}

impl Entry {
    /// Bytes of shared memory of its blocks, which the launch asks for: what the neediest kernel takes.
    pub fn shared(&self) -> usize {
        self.kernels.iter().map(|kernel| kernel.shared).max().unwrap_or(0)
    }
}

/// The number of a kernel, its blocks and its memory.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelInfo {
    /// Its number in the table.
    pub number: usize,
    /// The number of its thread blocks.
    pub blocks: Blocks,
    /// Bytes of shared memory.
    pub shared: usize,
    /// Elements of the memory that each block has for the row at hand; see [`Target::elements_per_lane`].
    pub row_memory: usize,
    /// Sums over all rows, of which each block has a part.
    pub totals: Vec<Total>,
}

/// A sum over all rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Total {
    /// The buffer of the complete sum.
    pub out: Buffer,
    /// How parts become one.
    pub reduce: Reduce,
    /// Elements of each part.
    pub width: Width,
    /// For a sum of each member: each of those with several parts has parts of its own, the others are complete.
    pub members: Option<Members>,
}

/// The members of a grouped product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Members {
    /// From the rows to their members.
    pub graph: Graph,
    /// The space with one row per member: the destinations of `graph`.
    pub space: Space,
}

impl Members {
    /// The members of a grouped product over a graph to them.
    pub fn of(program: &Program, graph: Graph) -> Self {
        Self { graph, space: Space::Vertices(program.tables.graphs[graph.index()].dst) }
    }
}

/// The number of thread blocks of a kernel, which depends on sizes alone.
#[derive(Clone, PartialEq, Debug)]
pub enum Blocks {
    /// One block for all rows.
    One,
    /// One for so many rows, until there are so many blocks; then each has several times as many rows.
    Rows {
        /// The rows of the traversal.
        rows: Rows,
        /// Rows that a block has at a time.
        per_block: usize,
        /// Upper limit of the number of blocks.
        most: usize,
    },
    /// As `Rows`, for each of several bands of rows.
    Bands {
        /// The rows of the traversal.
        rows: Rows,
        /// How blocks share each band.
        shares: Vec<Share>,
        /// Upper limit of the number of blocks of a band.
        most: usize,
        /// How the rows that are cut are completed; `None`: no row is cut.
        long: Option<Long>,
    },
    /// One for each tile of a dense product, and where rows are summed up, for each part of them.
    Gemm {
        /// The form of the product: `x · w`, `x · wᵀ`, or a sum of outer products.
        form: ProductForm,
        /// The space whose rows are multiplied, or summed up by `ProductForm::Outer`.
        rows: Space,
        /// For a grouped product: its members. There are as many blocks as their rows can need.
        members: Option<Members>,
        /// Extents of the weight or of the sum: `batch` matrices, each `k × n`.
        of: Extents,
    },
    /// One for so many elements of each member of a grouped sum whose rows are in several parts.
    Members {
        /// The space of the rows that are summed up.
        rows: Space,
        /// Elements of each member.
        width: Width,
    },
    /// One for so many elements.
    Elements {
        /// Number of elements of the result.
        width: Width,
        /// Elements of a block.
        per_block: usize,
    },
    /// One for so many elements of the rows of a space.
    Copy {
        /// The space whose rows are copied.
        space: Space,
        /// Elements of a row.
        width: Width,
    },
}

/// How blocks share a band of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Share {
    /// So many rows of the band for each block at a time.
    Rows(Band, usize),
    /// A piece for each block at a time.
    Pieces(Cut),
}

impl Share {
    fn blocks(self, sizes: &dyn Sizes, rows: &Rows, most: usize) -> usize {
        match self {
            Share::Rows(band, per_block) => sizes.band(rows, band).1.div_ceil(per_block).min(most),
            Share::Pieces(cut) => sizes.pieces(rows, cut).min(most),
        }
    }
}

/// Rows that are cut into pieces: each pass over their edges gives the parts of the pieces, and the entry after it
/// combines them. Kernels of following entries make the second pass and the others, and the
/// last one completes the rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Long {
    /// How they are cut.
    pub cut: Cut,
    /// For each pass, the elements that each piece gives.
    pub parts: Vec<usize>,
}

impl Long {
    /// The number of kernels in the entries that follow.
    fn following(&self) -> usize {
        self.parts.len()
    }

    /// The blocks of the kernel of the n-th following entry.
    fn blocks(&self, rows: &Rows, most: usize, following: usize) -> Blocks {
        let share =
            if following + 1 < self.following() { Share::Pieces(self.cut) } else { Share::Rows(self.cut.band(), 1) };
        Blocks::Bands { rows: rows.clone(), shares: vec![share], most, long: None }
    }
}

/// Rows of a part of a sum of outer products with so many elements.
pub fn part_rows(rows: usize, elements: usize) -> usize {
    let most = (PART_ELEMENTS / elements.max(1)).clamp(1, MOST_PARTS);
    rows.div_ceil(most).max(PART_ROWS).next_multiple_of(DEPTH)
}

/// The number of places for results of tiles of so many rows, of members with several tiles.
pub fn member_slots(rows: usize, unit: usize) -> usize {
    if rows > unit { rows / (unit / 2) } else { 0 }
}

/// Sizes of a dataset.
pub trait Sizes {
    /// Rows of a traversal.
    fn rows(&self, rows: &Rows) -> usize;
    /// The position of a band's first row in the order of degree classes, and the number of its rows.
    fn band(&self, rows: &Rows, band: Band) -> (usize, usize);
    /// The number of pieces of the rows that are cut.
    fn pieces(&self, rows: &Rows, cut: Cut) -> usize;
    /// Rows of a space.
    fn space(&self, space: Space) -> usize;
    /// A number of elements.
    fn width(&self, width: &Width) -> usize;
}

impl Blocks {
    /// The number of blocks.
    pub fn count(&self, sizes: &dyn Sizes) -> usize {
        match self {
            Blocks::One => 1,
            Blocks::Rows { rows, per_block, most } => sizes.rows(rows).div_ceil(*per_block).clamp(1, *most),
            Blocks::Bands { shares, .. } => (0..shares.len()).map(|band| self.band(sizes, band)).sum::<usize>().max(1),
            Blocks::Gemm { form, rows, members, of } => {
                let tiles = |extent: usize| extent.div_ceil(TILE);
                // Of rows, of so many each.
                let of_rows = |unit: usize| match members {
                    None => sizes.space(*rows).div_ceil(unit),
                    Some(members) => sizes.space(*rows) / unit + sizes.space(members.space),
                };
                let (k, n) = (tiles(sizes.width(&of.k)), tiles(sizes.width(&of.n)));
                let blocks = match form {
                    ProductForm::MatMul => of_rows(TILE) * n,
                    ProductForm::MatMulT => of_rows(TILE) * k,
                    ProductForm::Outer => of_rows(self.part_rows(sizes)).max(1) * k * n,
                };
                (blocks * sizes.width(&of.batch)).max(1)
            }
            Blocks::Members { rows, width } => {
                // A member with more rows than a part has a row whose number is a multiple of a part's rows.
                let (rows, width) = (sizes.space(*rows), sizes.width(width));
                (rows.div_ceil(part_rows(rows, width)) * width.div_ceil(THREADS)).max(1)
            }
            Blocks::Elements { width, per_block } => sizes.width(width).div_ceil(*per_block).max(1),
            Blocks::Copy { space, width } => (sizes.space(*space) * sizes.width(width)).div_ceil(THREADS).max(1),
        }
    }

    /// The number of blocks of a band.
    pub fn band(&self, sizes: &dyn Sizes, band: usize) -> usize {
        let Blocks::Bands { rows, shares, most, .. } = self else { return 0 };
        shares[band].blocks(sizes, rows, *most)
    }

    /// The first part of the totals that belongs to the kernel of the n-th following entry; see [`Long`].
    pub fn first_part(&self, sizes: &dyn Sizes, following: usize) -> usize {
        let Blocks::Bands { rows, most, long: Some(long), .. } = self else { return self.count(sizes) };
        let before = (0..following).map(|number| long.blocks(rows, *most, number).count(sizes));
        self.count(sizes) + before.sum::<usize>()
    }

    /// Parts of a total.
    pub fn parts(&self, sizes: &dyn Sizes) -> usize {
        match self {
            Blocks::Gemm { form: ProductForm::Outer, rows, members: None, .. } => {
                sizes.space(*rows).div_ceil(self.part_rows(sizes)).max(1)
            }
            Blocks::Gemm { form: ProductForm::Outer, rows, members: Some(_), .. } => {
                member_slots(sizes.space(*rows), self.part_rows(sizes))
            }
            Blocks::Gemm { .. } | Blocks::One => 1,
            Blocks::Bands { long: Some(long), .. } => self.first_part(sizes, long.following()),
            Blocks::Rows { .. }
            | Blocks::Bands { .. }
            | Blocks::Members { .. }
            | Blocks::Elements { .. }
            | Blocks::Copy { .. } => self.count(sizes),
        }
    }

    /// Rows that a part of the total of a dense product is of.
    pub fn part_rows(&self, sizes: &dyn Sizes) -> usize {
        match self {
            Blocks::Gemm { form: ProductForm::Outer, rows, of, .. } => {
                part_rows(sizes.space(*rows), sizes.width(&of.all()))
            }
            Blocks::Gemm { .. }
            | Blocks::One
            | Blocks::Rows { .. }
            | Blocks::Bands { .. }
            | Blocks::Members { .. }
            | Blocks::Elements { .. }
            | Blocks::Copy { .. } => 0,
        }
    }
}

/// Edges: of a semantic graph, or the stored elements of sparse features.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Topology {
    /// The edges of a semantic graph.
    Graph(Graph),
    /// A sparsity pattern; rows are destinations, columns sources.
    Pattern(Pattern),
}

/// An entry of the table. Addresses are of device memory; indices there have 32 bits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// Address of a buffer.
    Buffer(Buffer),
    /// Address of a parameter or optimiser state.
    Stored(Contents),
    /// Address of `rows + 1` positions: row `r` owns the edges from the `r`-th on, before the next. With `ends`, only
    /// vertices that own edges have rows.
    FirstEdges {
        /// The topology that the edges belong to.
        of: Topology,
        /// The end that owns the edges.
        direction: Direction,
        /// Only rows that own edges.
        ends: bool,
    },
    /// Address of the rows that own edges this way, grouped by degree class (see [`Band`]).
    RowOrder {
        /// The topology that the edges belong to.
        of: Topology,
        /// The end that owns the edges.
        direction: Direction,
        /// Only rows that own edges.
        ends: bool,
    },
    /// The position of a band's first row in that order.
    BandFirst(Rows, Band),
    /// Number of rows of a band.
    BandRows(Rows, Band),
    /// Number of blocks of a band of a kernel, by position.
    BandBlocks(usize, usize),
    /// Number of pieces of the rows that are cut.
    NumPieces(Rows, Cut),
    /// Address of the row of each piece: its position among the rows that are cut, in the order of degree classes.
    PieceRows(Rows, Cut),
    /// Address of the first piece of each row that is cut, and the number of pieces.
    FirstPieces(Rows, Cut),
    /// Address of what a pass over the edges, by position, of a kernel has made of each piece.
    PieceParts(usize, usize),
    /// Address of the other end of each edge, in the order of this direction.
    Others(Topology, Direction),
    /// Address of the CSC position of each edge, in the order of out-edges.
    Positions(Topology),
    /// Address of the vertices that own edges, ascending.
    EndVertices(Graph, Direction),
    /// Address of the position of each vertex among those that own edges; -1 for the others.
    EndOf(Graph, Direction),
    /// Address of the position of each edge's end of this direction among those that own edges, in the order of the
    /// incidence of the other direction.
    EndOfEdges(Graph, Direction),
    /// A number of rows.
    Rows(Rows),
    /// A number of rows, of what is no traversal.
    Count(Space),
    /// The number of rows of a space, as the bits of an f32.
    CountF32(Space),
    /// A number of elements.
    Elements(Width),
    /// Address of the 64-bit keys of this step's random masks, by stream.
    MaskKeys,
    /// Number of blocks of a kernel (by position among all kernels of the module).
    Blocks(usize),
    /// The number of blocks of these kernels together.
    AllBlocks(Vec<usize>),
    /// Number of parts that a kernel's totals have.
    Parts(usize),
    /// The first part of a kernel's totals that belongs to the n-th kernel that completes its long rows.
    FirstPart(usize, usize),
    /// Rows that a part of a kernel's total is of.
    PartRows(usize),
    /// Address of the partial results of a kernel (by position), of its n-th total.
    Partials(usize, usize),
    /// Address of the memory that each block of a kernel has for the row at hand.
    RowMemory(usize),
}

/// Rows by degree: those of some degree classes, of which class 0 has the rows without edges and class `c` those with
/// `2^(c-1)` to `2^c - 1` edges.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Band {
    /// The first degree class of the band.
    pub from: usize,
    /// One past the last class; `None`: all from the first on.
    pub to: Option<usize>,
}

/// How rows of very many edges are cut: into pieces of so many edges, in their order; the last piece of a row may be
/// shorter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cut {
    /// The first degree class whose rows are cut.
    pub from: usize,
    /// Edges of a piece.
    pub edges: usize,
}

impl Cut {
    /// The rows that are cut.
    pub fn band(self) -> Band {
        Band { from: self.from, to: None }
    }
}

/// Makes modules of PTX.
pub trait GpuCompiler: fmt::Debug + Sync {
    /// Translates a verified program. `edges` are the degrees of the rows of its traversals, for which code is shaped;
    /// it is correct for others as well.
    ///
    /// # Errors
    /// A kernel for which there is no PTX.
    fn compile(&self, program: &Program, target: Target, edges: &[(Rows, Edges)]) -> Result<Module, Unsupported>;

    /// A module with the entries `part0`, `part1` and `part2`, which count how outputs compare with labels. Its table:
    ///
    /// | entry | what |
    /// | --- | --- |
    /// | 0, 1 | addresses of the outputs (f32) and of the labels (i32, or as many f32 as outputs), by row |
    /// | 2 | outputs of a row |
    /// | 3 + 3 p, 4 + 3 p | address and number of the rows (u32) of part p |
    /// | 5 + 3 p | address of the counts of part p, which must be zero: see [`counts::words`] |
    fn counts(&self, target: Target, labels: counts::Labels) -> Module;

    /// A module with two entries: `gather` copies distinct rows of a matrix to consecutive rows, `scatter` copies them
    /// back to where they were. The entries of its table are
    ///
    /// | entry | what |
    /// | --- | --- |
    /// | 0, 1 | addresses of the matrix and of the consecutive rows (f32) |
    /// | 2 | address of the numbers of the rows (u32) |
    /// | 3 | elements that are copied: at most [`rows::MOST_ELEMENTS`] |
    /// | 4 | elements of a row |
    fn rows(&self, target: Target) -> Module;
}
