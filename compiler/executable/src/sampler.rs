//! The interface of generated samplers: functions, the arguments of their calls, and their code.
//!
//! Fan-outs and the forms of rows are part of a function; addresses, sizes and keys are arguments. A runtime finds out
//! which functions a plan needs for its graphs, and a [`SamplerCompiler`] makes them.

use std::any::Any;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;

/// Largest fan-out that is unrolled. Larger ones use a loop, with a bit in memory for each edge of the row.
pub const UNROLLED: u32 = 32;
/// Elements that may be written past the last edge, with any value.
pub const SLACK: usize = 16;
/// Largest degree for which the set of sampled edges is a bit mask in a register.
pub const SHORT: u32 = 64;
/// The sampling method for the edges of a row. The sampler's documentation defines the distribution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Take {
    /// All edges, in CSC order.
    Whole,
    /// All edges of rows with at most `most`; longer rows sample `most` edges without replacement (Floyd).
    Uniform {
        /// Fan-out, at least 1.
        most: u32,
        /// Does any row have more than [`SHORT`] edges?
        long: bool,
    },
    /// As many edges as `indptr` reserves: all of the row, or the samples of [`DrawCall::weigh`].
    Weighted,
}

/// Parameters for counting the sampled edges of one relation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Counted {
    /// Position among the relations into the vertex type.
    pub slot: usize,
    /// Fan-out; `None` to take all edges.
    pub most: Option<u32>,
    /// Is the number of edges that can be sampled listed per vertex? Otherwise it is the degree.
    pub listed: bool,
}

/// Parameters of the first pass: the rows of the destinations of one type.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RowsOf {
    /// Number of relations into the type, sampled or not: the offsets of a vertex are contiguous.
    pub relations: usize,
    /// The relations that are sampled.
    pub drawn: Vec<Counted>,
}

/// A function of a sampler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SamplerFunction {
    /// The first pass, called with a [`RowsCall`].
    Rows(RowsOf),
    /// The sampling of one relation, called with a [`DrawCall`].
    Draw(Take),
}

/// The arguments of a [`SamplerFunction::Rows`] function.
#[repr(C)]
#[derive(Debug)]
pub struct RowsCall {
    /// Destination vertices of the hop. `[count]`
    pub destinations: *const u32,
    /// Number of destinations, which are the rows.
    pub count: usize,
    /// First edge of each vertex, for each relation into its type. `[vertices + 1][relations]`
    pub offsets: *const u32,
    /// Output, per sampled relation: first edge and degree of each row. `[drawn][count]`
    pub rows: *const *mut [u32; 2],
    /// Output, per sampled relation: prefix sums of sampled edges, whose first entry is given. `[drawn][count + 1]`
    pub indptr: *const *mut u64,
    /// Per sampled relation: number of edges of a vertex that can be
    /// sampled, where [`Counted::listed`]. `[drawn][vertices]`
    pub listed: *const *const u32,
    /// Callback that prefetches the offsets of some vertices: offsets, vertices, their number, relations.
    pub ask: unsafe extern "C" fn(*const u32, *const u32, usize, usize),
}

/// The arguments of a [`SamplerFunction::Draw`] function.
#[repr(C)]
#[derive(Debug)]
pub struct DrawCall {
    /// First edge and degree of each row. `[count]`
    pub rows: *const [u32; 2],
    /// Destination vertex of each row. `[count]`
    pub destinations: *const u32,
    /// Number of rows, one per destination.
    pub count: usize,
    /// Prefix sums of sampled edges: row `r` writes `edge[indptr[r]..indptr[r + 1]]`. `[count + 1]`
    pub indptr: *const u64,
    /// Output: the sampled edges. `[indptr[count] + SLACK]`
    pub edge: *mut u32,
    /// Output: compact ids of their sources. `[indptr[count]]`
    pub src: *mut u32,
    /// Source vertex of each edge of the relation.
    pub sources: *const u32,
    /// For each vertex of the source type, `stamp | id` if it has an id. `[vertices]`
    pub words: *mut u32,
    /// High bits that mark the words of vertices with an id.
    pub stamp: u32,
    /// Upper bound of the ids, a power of two.
    pub limit: u32,
    /// Vertices of the source type by compact id. `[num_known + indptr[count] - indptr[0] + 1]`
    pub known: *mut u32,
    /// Number of compact ids; the function adds those it assigns.
    pub num_known: usize,
    /// The high half of the key of the random numbers.
    pub key_high: u32,
    /// First rounds of the random numbers, by draw. `[fan-out, rounded up to a multiple of 4]`
    pub first: *const u32,
    /// One bit per edge of the longest row, all zero between calls; for fan-outs above [`UNROLLED`].
    pub marked: *mut u64,
    /// Callback that prefetches the sources of some edges: sources, edges, their number.
    pub ask: unsafe extern "C" fn(*const u32, *const u32, usize),
    /// Callback that prefetches the sources of a whole row: sources, first edge, degree.
    pub ask_whole: unsafe extern "C" fn(*const u32, u32, u32),
    /// Callback that reads the sources of some edges and prefetches their words: sources, edges,
    /// words, output, their number.
    pub gather: unsafe extern "C" fn(*const u32, *const u32, *const u32, *mut u32, usize),
    /// Callback for weighted sampling: `weigher`, first edge and degree of a row, its vertex,
    /// output, number of samples.
    pub weigh: unsafe extern "C" fn(*mut c_void, u32, u32, u32, *mut u32, usize),
    /// The context argument of `weigh`.
    pub weigher: *mut c_void,
}

/// Address of a function: the argument is a [`RowsCall`] or a [`DrawCall`].
pub type SamplerEntry = unsafe extern "C" fn(*mut c_void);

/// Machine code of the functions of a sampler.
#[derive(Default)]
pub struct SamplerCode {
    /// The entry of each function.
    pub entries: BTreeMap<SamplerFunction, SamplerEntry>,
    /// Owner of the executable memory, released with `self`.
    pub memory: Option<Box<dyn Any + Send + Sync>>,
}

/// Makes the functions of samplers.
pub trait SamplerCompiler: fmt::Debug + Send + Sync {
    /// Compiles functions.
    ///
    /// # Errors
    /// The reason why there is no code: the processor is not supported, or the system forbids executable memory.
    fn compile(&self, functions: &[SamplerFunction]) -> Result<SamplerCode, String>;

    /// The code of a function as text, with comments on its blocks.
    fn text(&self, function: &SamplerFunction) -> String;
}

impl fmt::Debug for SamplerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.keys().map(ToString::to_string)).finish()
    }
}

impl fmt::Display for SamplerFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SamplerFunction::Rows(RowsOf { relations, drawn }) => {
                write!(f, "rows of {relations}")?;
                for Counted { slot, most, listed } in drawn {
                    match most {
                        Some(most) => write!(f, ", {slot} most {most}")?,
                        None => write!(f, ", {slot} all")?,
                    }
                    write!(f, "{}", if *listed { " listed" } else { "" })?;
                }
                Ok(())
            }
            SamplerFunction::Draw(Take::Whole) => write!(f, "draw all"),
            SamplerFunction::Draw(Take::Uniform { most, long: true }) => write!(f, "draw {most}"),
            SamplerFunction::Draw(Take::Uniform { most, long: false }) => write!(f, "draw {most} of short rows"),
            SamplerFunction::Draw(Take::Weighted) => write!(f, "draw by weight"),
        }
    }
}
