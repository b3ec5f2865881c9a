//! FLOPs and special functions per element of each function, and cycles per instruction.

use hgnnc_ir::Reduce;
use hgnnc_machine::Work;

/// Simple operations and special functions for one element.
pub(super) type Rate = (f64, f64);

/// An element of a random mask: a special function, by its cost.
pub(super) const MASK: Rate = (0.0, 1.0);
/// A comparison or a selection.
pub(super) const SIMPLE: Rate = (1.0, 0.0);

/// The rate for each reduced element.
pub(super) fn reduce(reduce: Reduce) -> Rate {
    match reduce {
        Reduce::Sum | Reduce::Max | Reduce::Min => SIMPLE,
        // The largest, the exponential of the distance to it, and their sum.
        Reduce::Lse => (3.0, 1.0),
    }
}

/// Cycles of CPU kernels beside arithmetic and memory ([`Work::cycles`]): they execute a traversal instruction by
/// instruction over a tile of rows or edges, and values between instructions pass through the L1 cache. Fitted by least
/// squares to the kernels of 17 models and datasets on a Zen 5 core, run cache-resident, so that they contain no memory
/// stalls (`docs/decisions.md`, 2026-11-22: the median error is 9 %, 10 % with the kernel's own model held out). Other
/// processors differ mostly in the length of a cycle.
pub(super) mod cycles {
    /// Distributing a kernel among threads and the barrier at its end.
    pub const KERNEL: f64 = 30e3;
    /// Combining the partial reductions of threads.
    pub const TOTAL: f64 = 160e3;
    /// Start of a row with edges.
    pub const ROW: f64 = 55.0;
    /// Start of a row of stored elements.
    pub const ELEMENTS: f64 = 55.0;
    /// A row times a matrix, beside its products.
    pub const PRODUCT: f64 = 42.0;
    /// A multiply-add of a sum of outer products, which reads and writes its sum.
    pub const OUTER: f64 = 0.0115;
    /// A multiply-add of a dense product that is a kernel of its own.
    pub const DENSE: f64 = 0.01;
    /// An element of a weighted sum.
    pub const WEIGHTED: f64 = 0.09;
    /// An edge of a weighted sum, and a row.
    pub const WEIGHTED_EDGE: f64 = 13.0;
    pub const WEIGHTED_ROW: f64 = 40.0;
    /// A row found by its index and copied.
    pub const PICK: f64 = 1.7;
    /// A sum of a few neighbouring elements, or of their products.
    pub const GROUP: f64 = 2.6;
    /// An edge that is reduced to its row.
    pub const SEGMENT: f64 = 2.0;
    /// An element of a log-sum-exp over edges, beside its exponential.
    pub const LSE: f64 = 7.0;
    /// An element that is written to a tile and read again.
    pub const ELEMENT: f64 = 0.075;
}

/// Adds the work of a function for a number of elements.
pub(super) fn add(work: &mut Work, elements: f64, (simple, special): Rate) {
    work.simple += elements * simple;
    work.special += elements * special;
}
