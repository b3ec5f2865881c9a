//! Kernels as PTX for NVIDIA GPUs of compute capability 8.0 and later.
//!
//! [`compile`] translates a program of kernels. The text is the same for every dataset: addresses and sizes are read
//! from a table in constant memory (a long one in global memory), which the loader of the module fills in as
//! [`Module::table`] says. Each launch of the program is one entry, in which every kernel has a range of the blocks;
//! [`Blocks::count`] gives their number.
//!
//! Every row belongs to one team of threads and every sum has a fixed order, so results are the same in each run on
//! each device. Sums over all rows are completed by an entry of their own.

mod code;
mod copy;
pub mod counts;
mod dedup;
mod entry;
mod finish;
mod gemm;
mod isa;
mod layout;
mod math;
mod members;
mod table;
mod tile;
mod traversal;

use std::collections::HashSet;

use hgnnc_ir::kernel::{Body, Buffer, Extents, Form, Kernel, Launch, Program, Rows, Width, print::print_rows};
use hgnnc_ir::{Graph, Origin, Provenance, Reduce, Space};

pub use table::{Band, Cut, Slot, Topology};

use entry::Titled;
use isa::print::{self, TableSpace};
use isa::{Function, Source};
use table::{Show, Table};
use traversal::Shared;

/// Threads of every block.
pub const THREADS: usize = 1 << traversal::BLOCK_BITS;
/// The most that constant memory holds, in entries of the table.
const MOST_ENTRIES: usize = 8192;

/// A kernel for which there is no PTX.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no PTX for kernel k{kernel}: {what}")]
pub struct Unsupported {
    /// Its position in the program.
    pub kernel: usize,
    /// The construct without a translation, such as "an operand whose length depends on the dataset".
    pub what: String,
}

/// Known sizes of the data, by which code is tuned. The code stays correct for other sizes.
#[derive(Clone, Copy, Default)]
pub struct Hints<'a> {
    /// Degrees of the rows of traversals.
    pub edges: &'a [(Rows, Edges)],
    /// Names a place in the source, for comments of the text; `None`: comments name no place.
    pub source: Option<&'a dyn Fn(Origin) -> String>,
}

impl Hints<'_> {
    /// The place that something comes from, behind two blanks.
    fn place(&self, from: Provenance) -> String {
        from.0.zip(self.source).map(|(origin, source)| format!("  {}", source(origin))).unwrap_or_default()
    }
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
    /// Entries of each run, in order. Those from the `first_update`-th on may change parameters and states.
    pub launches: Vec<Entry>,
    /// Position of the first entry that may change parameters or states.
    pub first_update: usize,
    /// The entry that takes over new parameters and states that are not in their place, once a run is done.
    pub commit: Option<Entry>,
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
    /// How many blocks it has.
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
    fn of(program: &Program, graph: Graph) -> Self {
        Self { graph, space: Space::Vertices(program.tables.graphs[graph.index()].dst) }
    }
}

/// How many blocks a kernel has: decided by sizes alone.
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
        form: Form,
        /// The space whose rows are multiplied, or summed up by `Form::Outer`.
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
    /// How many kernels of following entries there are.
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
                let tiles = |extent: usize| extent.div_ceil(tile::TILE);
                // Of rows, of so many each.
                let of_rows = |unit: usize| match members {
                    None => sizes.space(*rows).div_ceil(unit),
                    Some(members) => sizes.space(*rows) / unit + sizes.space(members.space),
                };
                let (k, n) = (tiles(sizes.width(&of.k)), tiles(sizes.width(&of.n)));
                let blocks = match form {
                    Form::MatMul => of_rows(tile::TILE) * n,
                    Form::MatMulT => of_rows(tile::TILE) * k,
                    Form::Outer => of_rows(self.part_rows(sizes)).max(1) * k * n,
                };
                (blocks * sizes.width(&of.batch)).max(1)
            }
            Blocks::Members { rows, width } => {
                // A member with more rows than a part has a row whose number is a multiple of a part's rows.
                let (rows, width) = (sizes.space(*rows), sizes.width(width));
                (rows.div_ceil(gemm::part_rows(rows, width)) * width.div_ceil(THREADS)).max(1)
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
            Blocks::Gemm { form: Form::Outer, rows, members: None, .. } => {
                sizes.space(*rows).div_ceil(self.part_rows(sizes)).max(1)
            }
            Blocks::Gemm { form: Form::Outer, rows, members: Some(_), .. } => {
                members::slots(sizes.space(*rows), self.part_rows(sizes))
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
            Blocks::Gemm { form: Form::Outer, rows, of, .. } => {
                gemm::part_rows(sizes.space(*rows), sizes.width(&of.all()))
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

/// Translates a verified program.
///
/// # Errors
/// A kernel for which there is no PTX.
pub fn compile(program: &Program, target: Target, hints: Hints<'_>) -> Result<Module, Unsupported> {
    let first_update = program.first_update().unwrap_or(program.launches.len());
    let mut writer = Writer {
        program,
        homes: &program.homes(),
        precision: target.precision,
        elements: target.elements_per_lane,
        hints,
        table: Table::default(),
        functions: vec![],
        next: 0,
        // Entries that complete sums have numbers after all kernels.
        next_finish: program.kernels().count(),
    };
    let prelude = writer.launches(&program.prelude, "prelude")?;
    let before = writer.launches(&program.launches[..first_update], "step")?;
    let updates = writer.launches(&program.launches[first_update..], "update")?;
    let commit = writer.commit()?;
    let (first_update, launches) = (before.len(), [before, updates].concat());
    let Writer { table, functions, .. } = writer;
    let table = table.into_slots();
    let source = Source {
        title: program.tables.name.clone(),
        target: target.name(),
        slots: Some(table.iter().map(|slot| Show(slot, program).to_string()).collect()),
        table: table.len().max(1),
        space: if table.len() <= MOST_ENTRIES { TableSpace::Const } else { TableSpace::Global },
        shared: prelude.iter().chain(&launches).any(|entry| entry.shared() > 0),
        functions,
    };
    let text = print::module(&source);
    Ok(Module { text, table, prelude, launches, first_update, commit })
}

struct Writer<'a> {
    program: &'a Program,
    homes: &'a [Buffer],
    precision: Precision,
    elements: usize,
    hints: Hints<'a>,
    table: Table,
    functions: Vec<Function>,
    next: usize,
    next_finish: usize,
}

impl Writer<'_> {
    fn launches(&mut self, launches: &[Launch], what: &str) -> Result<Vec<Entry>, Unsupported> {
        let mut entries = vec![];
        for (index, launch) in launches.iter().enumerate() {
            let launched = self.launch(launch, &format!("{what}{index}"))?;
            let finish = self.finish(&launched[0]);
            entries.extend(launched);
            entries.extend(finish);
        }
        Ok(entries)
    }

    /// The kernels of a launch as an entry, and those that complete rows that are cut.
    fn launch(&mut self, launch: &Launch, name: &str) -> Result<Vec<Entry>, Unsupported> {
        let writes = launch.kernels.iter().flat_map(Kernel::writes);
        let written: HashSet<Buffer> = writes.map(|buffer| self.homes[buffer.index()]).collect();
        let (mut bodies, mut kernels) = (vec![], vec![]);
        let mut following: Vec<(Vec<Titled>, Vec<KernelInfo>)> = vec![];
        for kernel in &launch.kernels {
            let number = self.next;
            self.next += 1;
            let (body, info, what) = match &kernel.body {
                Body::Gemm(gemm) => {
                    let (body, info) = gemm::emit(self.program, gemm, number, self.precision, &mut self.table);
                    (body, info, format!("{}{}", gemm.form.name(), self.hints.place(gemm.from)))
                }
                Body::Paths(_) => {
                    let what = "attention summed along paths (`--disable-pass factor_metapaths` lists their ends)";
                    return Err(Unsupported { kernel: number, what: what.into() });
                }
                Body::Traversal(traversal) => {
                    let known = self.hints.edges.iter().find(|(rows, _)| *rows == traversal.rows);
                    let edges = known.map(|(_, edges)| *edges);
                    let (table, next) = (&mut self.table, &mut self.next_finish);
                    let cx = Shared {
                        program: self.program,
                        homes: self.homes,
                        written: &written,
                        precision: self.precision,
                        elements: self.elements,
                        hints: self.hints,
                    };
                    let made = traversal::emit(cx, traversal, (number, next), table, edges)?;
                    for (position, (what, body, info)) in made.following.into_iter().enumerate() {
                        if position == following.len() {
                            following.push((vec![], vec![]));
                        }
                        let (bodies, kernels) = &mut following[position];
                        bodies.push((format!("k{}: {what} k{number}", info.number), body));
                        kernels.push(info);
                    }
                    (made.body, made.info, print_rows(self.program, &traversal.rows))
                }
            };
            let title = format!("k{number} @{}.{}: {what}", kernel.stage.name(), kernel.phase.name());
            bodies.push((title, body));
            kernels.push(info);
        }
        let mut entries = vec![self.entry(name, bodies, kernels, launch.interleaved)];
        for (position, (bodies, kernels)) in following.into_iter().enumerate() {
            entries.push(self.entry(&format!("{name}_long{}", position + 1), bodies, kernels, 0));
        }
        Ok(entries)
    }

    /// The entry that completes the sums of another one, if it has any.
    fn finish(&mut self, entry: &Entry) -> Option<Entry> {
        let (mut bodies, mut kernels) = (vec![], vec![]);
        for kernel in &entry.kernels {
            for (index, total) in kernel.totals.iter().enumerate() {
                let number = self.next_finish;
                self.next_finish += 1;
                let (body, info) = finish::emit(total, (kernel, index), number, &mut self.table);
                let out = &self.program.buffer(total.out).name;
                bodies.push((format!("k{number}: parts of {out} of k{}", kernel.number), body));
                kernels.push(info);
            }
        }
        let name = format!("{}_totals", entry.name);
        (!kernels.is_empty()).then(|| self.entry(&name, bodies, kernels, 0))
    }

    /// The entry that copies what was not computed in its place.
    fn commit(&mut self) -> Result<Option<Entry>, Unsupported> {
        let (mut bodies, mut kernels) = (vec![], vec![]);
        for output in self.program.outputs.iter().filter(|output| copy::is_needed(self.program, output)) {
            let number = self.next_finish;
            self.next_finish += 1;
            let (body, info) = copy::emit(self.program, output, number, &mut self.table)?;
            bodies.push((format!("k{number}: copy"), body));
            kernels.push(info);
        }
        Ok((!kernels.is_empty()).then(|| self.entry("commit", bodies, kernels, 0)))
    }

    fn entry(&mut self, name: &str, bodies: Vec<Titled>, kernels: Vec<KernelInfo>, interleaved: usize) -> Entry {
        let (function, entry) = entry::emit(name, bodies, kernels, interleaved, &mut self.table);
        self.functions.push(function);
        entry
    }
}
