//! Names of the fusion rules, so that ablations can disable them one by one.
//!
//! Without a rule the program computes the same values in more kernels, or stores more of them. This module has the
//! names that `--disable-fusion` takes; [`crate::kernel_passes`] has those of passes.
//!
//! A single kernel of several values is named by one of the values that it stores: see [`VALUE_PREFIX`].

/// A rule by which lowering forms kernels and launches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FusionRule {
    /// Operations over the same rows, without edges, share a kernel.
    Rowwise,
    /// Reductions over the edges of the same rows share a pass over these edges, and so do reductions over the same
    /// two-hop metapath.
    EdgePasses,
    /// Row-wise operations that read the reductions of a row run in the epilogue of that row's edge loop.
    RowEpilogue,
    /// Dense products with small weights are fused with the kernel that computes their rows.
    SmallGemm,
    /// The gradient of a sparse projection is fused with the optimizer's update of its weight.
    OptimizerUpdate,
    /// Cheap values are recomputed in the kernels that read them, or sunk to right before their first reader.
    Inline,
    /// The weights of an edge softmax and its log-sum-exp share their exponentials.
    SharedSoftmax,
    /// A multiplication that feeds a reduction is fused into it: dot products, and weighted sums of gathered rows.
    MultiplyReduce,
    /// High-degree rows are split into pieces, so that several threads share them.
    SplitRows,
    /// Values that depend on no parameter are hoisted out of the training loop.
    HoistInvariants,
    /// Kernels of evaluations run in an order that keeps fewer values alive, where memory comes before time.
    MemoryOrder,
    /// Results reuse the buffers of operands that are dead after the kernel; parameters are updated in place.
    InPlace,
    /// Independent kernels share a launch.
    CoSchedule,
    /// GPU: an edge softmax is computed online, in one pass over the edges.
    OnlineSoftmax,
    /// GPU: tiled products have a prologue and an epilogue.
    GemmEpilogue,
    /// GPU: kernels with small results run in the earliest launch that has their operands.
    EarlyLaunch,
    /// GPU: thread blocks of compute-bound and memory-bound kernels are interleaved.
    Interleave,
}

/// Prefix of the name of a single fusion: `value:NAME` computes the values of the kernel that stores `NAME` in kernels
/// of their own.
pub const VALUE_PREFIX: &str = "value:";

impl FusionRule {
    /// All rules: those of grouping, then those of passes over kernels, those of GPUs last.
    pub const ALL: [Self; 17] = [
        Self::Rowwise,
        Self::EdgePasses,
        Self::RowEpilogue,
        Self::SmallGemm,
        Self::OptimizerUpdate,
        Self::Inline,
        Self::SharedSoftmax,
        Self::MultiplyReduce,
        Self::SplitRows,
        Self::HoistInvariants,
        Self::MemoryOrder,
        Self::InPlace,
        Self::CoSchedule,
        Self::OnlineSoftmax,
        Self::GemmEpilogue,
        Self::EarlyLaunch,
        Self::Interleave,
    ];

    /// The name for `--disable-fusion`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rowwise => "rowwise",
            Self::EdgePasses => "edge_passes",
            Self::RowEpilogue => "row_epilogue",
            Self::SmallGemm => "small_gemm",
            Self::OptimizerUpdate => "optimizer_update",
            Self::Inline => "inline",
            Self::SharedSoftmax => "shared_softmax",
            Self::MultiplyReduce => "multiply_reduce",
            Self::SplitRows => "split_rows",
            Self::HoistInvariants => "hoist_invariants",
            Self::MemoryOrder => "memory_order",
            Self::InPlace => "in_place",
            Self::CoSchedule => "co_schedule",
            Self::OnlineSoftmax => "online_softmax",
            Self::GemmEpilogue => "gemm_epilogue",
            Self::EarlyLaunch => "early_launch",
            Self::Interleave => "interleave",
        }
    }

    /// A few words on what the rule does, for `--help`.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Rowwise => "operations over the same rows share a kernel",
            Self::EdgePasses => "reductions over the same edges share a pass",
            Self::RowEpilogue => "row-wise operations run in the epilogue of an edge loop",
            Self::SmallGemm => "products with small weights join the kernel of their rows",
            Self::OptimizerUpdate => "the gradient of a sparse projection updates its weight",
            Self::Inline => "cheap values are recomputed where they are read",
            Self::SharedSoftmax => "an edge softmax and its log-sum-exp share exponentials",
            Self::MultiplyReduce => "a multiplication is fused into the sum that reads it",
            Self::SplitRows => "high-degree rows are split among threads",
            Self::HoistInvariants => "values that depend on no parameter are computed once",
            Self::MemoryOrder => "evaluations beside mini-batches store less: sums first, outputs in parts (CPU)",
            Self::InPlace => "results reuse the buffers of dead operands",
            Self::CoSchedule => "independent kernels share a launch",
            Self::OnlineSoftmax => "an edge softmax takes one pass (GPU)",
            Self::GemmEpilogue => "tiled products have a prologue and an epilogue (GPU)",
            Self::EarlyLaunch => "kernels with small results run early (GPU)",
            Self::Interleave => "compute-bound and memory-bound blocks are interleaved (GPU)",
        }
    }

    /// The rule of this name, if there is one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

/// A set of fusion rules that lowering does not apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DisabledFusions(u32);

impl DisabledFusions {
    /// The empty set: every rule applies.
    pub const NONE: Self = Self(0);

    /// Is a rule in the set?
    pub fn contains(self, rule: FusionRule) -> bool {
        self.0 & 1 << rule as u32 != 0
    }

    /// The set with another rule.
    #[must_use]
    pub fn with(self, rule: FusionRule) -> Self {
        Self(self.0 | 1 << rule as u32)
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn each_rule_has_a_name_and_a_bit_of_its_own() {
        for (index, rule) in FusionRule::ALL.into_iter().enumerate() {
            assert_eq!(rule as usize, index, "{}", rule.name());
            assert_eq!(FusionRule::named(rule.name()), Some(rule));
            let disabled = DisabledFusions::NONE.with(rule);
            let found: Vec<_> = FusionRule::ALL.into_iter().filter(|&other| disabled.contains(other)).collect();
            assert_eq!(found, [rule]);
        }
        assert_eq!(FusionRule::named("fuse"), None);
    }
}
