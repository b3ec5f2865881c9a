//! What every operation and every kernel does, how long it takes, and what limits it.
//!
//! The counts are those of [`Work`]. What stands behind them:
//!
//! - **FLOPs.** A multiply-add counts 2. Additions, products, comparisons and selections count 1. `exp`, `log`, `tanh`,
//!   divisions, roots and the like count 1 as well, and are priced apart, at the rate of `exp`; those that are made of
//!   several are counted by their parts. An element of a random mask counts as one of them (about 20 integer
//!   operations).
//! - **Bytes by footprint.** Each distinct element that a kernel reads or writes counts once, 4 bytes each; so do the
//!   positions of rows (8 bytes) and the ends of edges (4 bytes) that it walks. It is what must move even with a
//!   perfect cache. Values that exist only on the way take none.
//! - **Gathered bytes.** Rows read through the ends of edges, once per edge and buffer. They are logical traffic: a
//!   cache serves the repeats, and which one is decided by the distinct rows.
//!
//! An operation is taken alone: it reads its operands and writes its result. That is what its kernel saves, where it is
//! fused with others. Time is predicted by [`Machine::predict`].

mod kernels;
mod operations;
mod orders;
mod paths;
mod rates;

pub(crate) use paths::path_cycles;

pub use kernels::{KernelBound, apart, kernel_work, kernels};
pub use operations::{OperationBound, operation_work, operations};

pub(crate) use orders::{Times, dense_product, gather_sum, seconds};

use std::fmt;

use hgnnc_ir::{Dataflow, Phase, Stage};
use hgnnc_machine::{Machine, Prediction, Work};

use hgnnc_ir::sizes::SizeInfo;

/// What a kernel consists of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Dense matrix multiply.
    DM,
    /// Topology-based: it walks edges or stored elements.
    TB,
    /// Element-wise.
    EW,
    /// Data rearrangement.
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

/// What something does on a machine, and how long it takes.
#[derive(Clone, PartialEq, Debug)]
pub struct Bounded {
    /// Stage that it is accounted to.
    pub stage: Stage,
    /// Part of the epoch that it is accounted to.
    pub phase: Phase,
    /// What it consists of.
    pub kind: Kind,
    /// Does it run once, when data is bound, and in no epoch?
    pub once: bool,
    /// What it does.
    pub work: Work,
    /// How long it takes.
    pub prediction: Prediction,
}

/// A number that bounds need and nobody gave.
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
