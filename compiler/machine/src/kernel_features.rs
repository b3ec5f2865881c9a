//! Names of the kernel features of the CPU, so that ablations can disable them one by one.
//!
//! A feature is a class of specialised kernels, or a way to execute them. Without it a more general kernel, which is
//! always there, does the same work; results differ in the last bits of sums. [`KernelFeatures`] is a set that travels
//! with the options of the compiler and of the runtime.

/// A class of specialised CPU kernels, or a way to execute them, that can be disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelFeature {
    /// Kernels for the widest SIMD level of the processor, and kernels in intrinsics.
    WidestSimd,
    /// Kernels in intrinsics for a multiple of 8 heads of 8 elements: dot products and weighted sums.
    Heads8,
    /// Weighted sums of groups of at least 16 elements, in intrinsics.
    WideRows,
    /// SpMM in intrinsics: weighted sums of gathered rows, sparse features times dense weights.
    Spmm,
    /// Loops specialised for common widths.
    FixedWidths,
    /// Element-wise operations that gather their operands, without a copy of the rows.
    FusedGather,
    /// Software prefetch of gathered rows that are not cache-resident.
    Prefetch,
    /// Dense products in register tiles.
    RegisterTiles,
    /// Large dense products by a GEMM library that packs operands.
    PackedGemm,
    /// Two element-wise operations fused into one kernel.
    FusedPairs,
    /// Chains of operations tile by tile, whose values stay in the L1 cache.
    FusedChains,
    /// Independent parts of a traversal run over the edges one after another.
    SplitParts,
    /// Machine code generated for element-wise operations.
    Jit,
}

impl KernelFeature {
    /// All features, in the order of their declarations.
    pub const ALL: [Self; 13] = [
        Self::WidestSimd,
        Self::Heads8,
        Self::WideRows,
        Self::Spmm,
        Self::FixedWidths,
        Self::FusedGather,
        Self::Prefetch,
        Self::RegisterTiles,
        Self::PackedGemm,
        Self::FusedPairs,
        Self::FusedChains,
        Self::SplitParts,
        Self::Jit,
    ];

    /// The name for `--disable-kernel`.
    pub fn name(self) -> &'static str {
        match self {
            Self::WidestSimd => "widest_simd",
            Self::Heads8 => "heads8",
            Self::WideRows => "wide_rows",
            Self::Spmm => "spmm",
            Self::FixedWidths => "fixed_widths",
            Self::FusedGather => "fused_gather",
            Self::Prefetch => "prefetch",
            Self::RegisterTiles => "register_tiles",
            Self::PackedGemm => "packed_gemm",
            Self::FusedPairs => "fused_pairs",
            Self::FusedChains => "fused_chains",
            Self::SplitParts => "split_parts",
            Self::Jit => "jit",
        }
    }

    /// A few words on the feature, for `--help`.
    pub fn summary(self) -> &'static str {
        match self {
            Self::WidestSimd => "the widest SIMD level of the processor",
            Self::Heads8 => "intrinsics for a multiple of 8 heads of 8 elements",
            Self::WideRows => "intrinsics for weighted sums of wide rows",
            Self::Spmm => "intrinsics for weighted sums of gathered rows",
            Self::FixedWidths => "loops specialised for common widths",
            Self::FusedGather => "element-wise kernels that gather their operands",
            Self::Prefetch => "software prefetch of gathered rows",
            Self::RegisterTiles => "dense products in register tiles",
            Self::PackedGemm => "large dense products by a GEMM library",
            Self::FusedPairs => "two element-wise operations in one kernel",
            Self::FusedChains => "chains of operations tile by tile",
            Self::SplitParts => "independent parts of a traversal run one after another",
            Self::Jit => "generated machine code for element-wise operations",
        }
    }

    /// The feature of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|feature| feature.name() == name)
    }
}

/// A set of enabled kernel features.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelFeatures(u32);

impl KernelFeatures {
    /// The set of all features.
    pub const ALL: Self = Self((1 << KernelFeature::ALL.len()) - 1);

    /// Is a feature enabled?
    #[inline(always)]
    pub fn has(self, feature: KernelFeature) -> bool {
        self.0 & 1 << feature as u32 != 0
    }

    /// The set without a feature.
    #[must_use]
    pub fn without(self, feature: KernelFeature) -> Self {
        Self(self.0 & !(1 << feature as u32))
    }
}

impl Default for KernelFeatures {
    fn default() -> Self {
        Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_feature_has_a_name_and_a_bit_of_its_own() {
        for (index, feature) in KernelFeature::ALL.into_iter().enumerate() {
            assert_eq!(feature as usize, index, "{}", feature.name());
            assert_eq!(KernelFeature::named(feature.name()), Some(feature));
            let without = KernelFeatures::ALL.without(feature);
            let missing: Vec<_> = KernelFeature::ALL.into_iter().filter(|&other| !without.has(other)).collect();
            assert_eq!(missing, [feature]);
        }
        assert_eq!(KernelFeature::named("vectors"), None);
    }
}
