//! The preferences of back ends.

use hgnnc_machine::Machine;

use crate::rules::{DisabledFusions, FusionRule};

/// The preferences of a back end, and the fusion rules that are disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoweringOptions {
    /// How edge softmaxes are computed.
    pub softmax: SoftmaxForm,
    /// Dense products with weights of at most this many elements are fused with the kernel that computes their rows;
    /// larger ones are kernels of their own.
    pub row_weight: usize,
    /// The same limit for gradients of weights, which are sums over rows.
    pub row_outer: usize,
    /// Elements of weight gradients that a traversal accumulates over its edges.
    pub edge_outer: usize,
    /// Larger products over vertex rows of at most this many columns have a prologue and an epilogue: tiles of rows
    /// pass through producer, product and consumers in one kernel.
    pub tile_width: usize,
    /// Kernels with small results run in the earliest launch that has their operands.
    pub early_launch: bool,
    /// Values that depend on no parameter are hoisted into the prelude and kept.
    pub hoist_invariants: bool,
    /// Memory comes before time: nothing is hoisted, projections of the same rows are computed one by one, each right
    /// before it is read, and kernels share no launch. For a program that runs rarely: the evaluation of a model that is
    /// trained on mini-batches.
    pub lean: bool,
    /// Fusion rules that do not apply.
    pub disabled: DisabledFusions,
}

impl LoweringOptions {
    /// A CPU: small weights stay cache-resident while blocks of rows are multiplied with them.
    pub const CPU: Self = Self {
        softmax: SoftmaxForm::InPasses,
        row_weight: 16 * 1024,
        row_outer: 16 * 1024,
        edge_outer: usize::MAX,
        tile_width: 0,
        early_launch: false,
        hoist_invariants: true,
        lean: false,
        disabled: DisabledFusions::NONE,
    };
    /// A GPU: tensor cores need tiles of rows, so traversals with edges take only products with small weights. Each
    /// pass over the edges recomputes their values, so a softmax takes one pass.
    pub const GPU: Self = Self {
        softmax: SoftmaxForm::InOnePass,
        row_weight: 1024,
        row_outer: 0,
        // With 2048, an outer product of 64 x 32 spills on sm_80.
        edge_outer: 1024,
        tile_width: 128,
        early_launch: true,
        hoist_invariants: true,
        lean: false,
        disabled: DisabledFusions::NONE,
    };

    /// The options for a machine; [`Self::CPU`] without one.
    pub fn of(machine: Option<&Machine>) -> Self {
        if machine.is_some_and(|machine| machine.capabilities.thread_blocks) { Self::GPU } else { Self::CPU }
    }

    /// With or without a prelude that computes loop invariants.
    #[must_use]
    pub fn with_hoisting(self, hoist_invariants: bool) -> Self {
        Self { hoist_invariants, ..self }
    }

    /// For a program that runs rarely, so that memory comes before time ([`LoweringOptions::lean`]).
    #[must_use]
    pub fn for_rare_runs(self) -> Self {
        Self { hoist_invariants: false, lean: true, ..self }
    }

    /// Without some fusion rules.
    #[must_use]
    pub fn without(self, disabled: DisabledFusions) -> Self {
        let mut options = Self { disabled, ..self };
        if disabled.contains(FusionRule::SmallGemm) {
            (options.row_weight, options.row_outer) = (0, 0);
        }
        if disabled.contains(FusionRule::OnlineSoftmax) {
            options.softmax = SoftmaxForm::InPasses;
        }
        if disabled.contains(FusionRule::GemmEpilogue) {
            options.tile_width = 0;
        }
        options.early_launch &= !disabled.contains(FusionRule::EarlyLaunch);
        options.hoist_invariants &= !disabled.contains(FusionRule::HoistInvariants);
        options.lean &= !disabled.contains(FusionRule::MemoryOrder);
        options
    }

    /// With another way to compute edge softmaxes.
    #[must_use]
    pub fn with_softmax(self, softmax: SoftmaxForm) -> Self {
        Self { softmax, ..self }
    }
}

impl Default for LoweringOptions {
    fn default() -> Self {
        Self::CPU
    }
}

/// How an edge softmax is computed where one pass is possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SoftmaxForm {
    /// Three passes: largest score, exponentials and their sum, weighted sum. For a CPU, whose caches hold the edge
    /// values of a block between passes.
    #[default]
    InPasses,
    /// Online, for a back end that recomputes edge values in each pass.
    InOnePass,
}
