//! The cost model: FLOPs, bytes and predicted time of every operation and every kernel.
//!
//! The counts are those of [`Work`]:
//!
//! - **FLOPs.** A multiply-add counts 2. Additions, products, comparisons and selections count 1. `exp`, `log`, `tanh`,
//!   divisions, roots and the like count 1 as well, and are priced separately, at the rate of `exp`; functions that are
//!   computed from several are counted by their parts. An element of a random mask counts as one of them (about 20
//!   integer operations).
//! - **Bytes by footprint.** Each distinct element that a kernel reads or writes counts once, 4 bytes each; so do the
//!   positions of rows (8 bytes) and the ends of edges (4 bytes) that it walks. This is the compulsory traffic, with a
//!   perfect cache. Values that are never stored take none.
//! - **Gathered bytes.** Rows read through the ends of edges, once per edge and buffer. They are logical traffic: a
//!   cache serves the repeats, and which one is decided by the distinct rows.
//!
//! The cost of an operation is that of a kernel of its own, which reads its operands and writes its result; fusion
//! saves the difference. Time is predicted by [`Machine::predict`].

mod kernels;
mod metapath;
mod operations;
mod orders;
mod rates;

pub use metapath::{attention_over_edges, linear_over_edges, metapath_work};

pub use kernels::{KernelBound, kernel_work, kernels, nominal_seconds, unfused_work};
pub use operations::{OperationBound, operation_work, operations};

pub use orders::{Times, dense_product, gather_sum, seconds};

use std::fmt;

use hgnnc_ir::{Dataflow, Phase, Stage};
use hgnnc_machine::{Machine, Prediction, Work};

use hgnnc_ir::sizes::SizeInfo;

/// The classes of kernels in *Characterization of HGNN training* (arXiv 2407.11790).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// DM: dense matrix multiplication.
    DM,
    /// TB: topology-based, a loop over edges or stored elements.
    TB,
    /// EW: an element-wise operation.
    EW,
    /// DR: data rearrangement, without arithmetic.
    DR,
}

impl Kind {
    /// The abbreviation used in text and reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::DM => "DM",
            Kind::TB => "TB",
            Kind::EW => "EW",
            Kind::DR => "DR",
        }
    }
}

/// The work of an operation or a kernel, with its predicted time on a machine.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounded {
    /// The stage that it is accounted to.
    pub stage: Stage,
    /// The part of the epoch that it is accounted to.
    pub phase: Phase,
    /// The class of the most work.
    pub kind: Kind,
    /// Does it run once, when data is bound, and in no epoch?
    pub once: bool,
    /// FLOPs, bytes and cycles.
    pub work: Work,
    /// The predicted time and its bound.
    pub prediction: Prediction,
}

/// A size that the cost model needs and that is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownSize {
    /// The vertex type whose stored elements are not known.
    pub vertex: String,
}

impl fmt::Display for UnknownSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the number of stored elements of the sparse features of `{}` is not known", self.vertex)
    }
}

impl std::error::Error for UnknownSize {}

/// Are all sizes known that a footprint depends on? (Distinct ends are bounded by counts where they are not known.)
///
/// # Errors
/// [`UnknownSize`] at the first pattern whose stored elements are not known.
pub fn check_sizes(tables: &Dataflow, sizes: &SizeInfo) -> Result<(), UnknownSize> {
    match tables.patterns.get(sizes.stored.len()) {
        Some(decl) => Err(UnknownSize { vertex: tables.vertex_types[decl.vertex.index()].name.clone() }),
        None => Ok(()),
    }
}

fn bounded(machine: &Machine, stage: Stage, phase: Phase, kind: Kind, once: bool, work: Work) -> Bounded {
    let prediction = machine.predict(&work);
    Bounded { stage, phase, kind, once, work, prediction }
}
