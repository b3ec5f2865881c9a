//! Classes of micro-kernels, and of ways to execute a kernel, by name, so that each can be switched off and what it is
//! worth be measured. What is switched off is done by what it is an alternative to, which is always there: results
//! differ in the last bits of sums.
//!
//! Like the instructions that kernels use ([`crate::simd`]), this is of the whole process: a kernel is called for each
//! block, and knows no options. It is set before anything is planned.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::simd;

/// A class of micro-kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Micro {
    /// All kernels compiled for the widest vectors of the processor, and those in its instructions.
    WideVectors,
    /// Groups of eight elements with a number each, in instructions: dot products and weighted sums of heads.
    Eights,
    /// Weighted sums of groups of a multiple of 16 elements, in instructions.
    WideRows,
    /// Weighted sums of gathered rows, in instructions: sparse features times dense weights.
    SparseRows,
    /// Loops for widths that are known when the compiler is compiled.
    FixedWidths,
    /// Element-wise operations that read gathered rows in place.
    GatheredRows,
    /// Asking for gathered rows ahead, where they come from memory.
    AskAhead,
    /// Dense products in tiles of registers.
    RegisterTiles,
    /// Large dense products by a library that packs operands.
    PackedProducts,
    /// Two element-wise operations as one.
    Pairs,
    /// Chains of operations for a tile after another, whose values stay in a first-level cache.
    Chains,
    /// Parts of a traversal that need nothing of each other go over the edges one after another.
    PartsApart,
    /// Machine code for element-wise operations.
    MachineCode,
}

/// A bit for each class that is switched off.
static OFF: AtomicU32 = AtomicU32::new(0);

impl Micro {
    /// All classes.
    pub const ALL: [Self; 13] = [
        Self::WideVectors,
        Self::Eights,
        Self::WideRows,
        Self::SparseRows,
        Self::FixedWidths,
        Self::GatheredRows,
        Self::AskAhead,
        Self::RegisterTiles,
        Self::PackedProducts,
        Self::Pairs,
        Self::Chains,
        Self::PartsApart,
        Self::MachineCode,
    ];

    /// The name for `--disable-pass`.
    pub fn name(self) -> &'static str {
        match self {
            Self::WideVectors => "wide_vectors",
            Self::Eights => "eights",
            Self::WideRows => "wide_rows",
            Self::SparseRows => "sparse_rows",
            Self::FixedWidths => "fixed_widths",
            Self::GatheredRows => "gathered_rows",
            Self::AskAhead => "ask_ahead",
            Self::RegisterTiles => "register_tiles",
            Self::PackedProducts => "packed_products",
            Self::Pairs => "pairs",
            Self::Chains => "chains",
            Self::PartsApart => "parts_apart",
            Self::MachineCode => "machine_code",
        }
    }

    /// That of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|micro| micro.name() == name)
    }

    /// Is it used?
    #[inline(always)]
    pub fn is_on(self) -> bool {
        OFF.load(Relaxed) & 1 << self as u32 == 0
    }

    /// Switches classes off, for the rest of the process.
    pub fn switch_off(classes: &[Self]) {
        OFF.fetch_or(classes.iter().fold(0, |bits, &class| bits | 1 << class as u32), Relaxed);
        if !Self::WideVectors.is_on() {
            simd::limit(simd::Level::Base);
        }
    }
}

/// Runs something with all classes, whatever is switched off: a machine is measured as it is.
pub fn with_all<T>(f: impl FnOnce() -> T) -> T {
    let (off, level) = (OFF.swap(0, Relaxed), simd::level());
    simd::limit(simd::Level::Avx512);
    let result = f();
    simd::limit(level);
    OFF.store(off, Relaxed);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_a_name_and_a_bit_of_its_own() {
        for (index, class) in Micro::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index, "{}", class.name());
            assert_eq!(Micro::named(class.name()), Some(class));
        }
        assert_eq!(Micro::named("vectors"), None);
    }
}
