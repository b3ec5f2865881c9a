//! The decisions that form kernels, by name, so that each can be left out and what it is worth be measured.
//!
//! Without a decision, values are what they were: more kernels compute them, or more memory holds them. All names of
//! `--disable-pass` that concern kernels stand here; those of passes stand in [`crate::pipeline`].
//!
//! A single decision, to compute several values together, is named by one of them: see [`SINGLE`].

/// A decision that forms kernels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Operations of the same rows, without edges, share a kernel.
    FuseRows,
    /// Sums over the edges of the same rows share a pass over these edges, and so do sums over the same paths.
    FuseEdges,
    /// What follows from the sums of a row is computed while they are at hand.
    FollowEdges,
    /// Dense products with small weights belong to the rows that they read.
    SmallProducts,
    /// The gradient of a sparse projection takes the update of its weight along.
    FuseUpdates,
    /// Cheap values are computed where they are read, or right before.
    ComputeLate,
    /// The weights of a softmax and its log-sum-exp come from the same exponentials.
    ShareSoftmax,
    /// Products that are summed are not made: dot products, and sums of weighted rows.
    FuseProducts,
    /// Rows of very many edges are cut into pieces, so that several threads share them.
    CutRows,
    /// What depends on no parameter is computed once.
    KeepFixed,
    /// Results take the memory of what is read for the last time.
    InPlace,
    /// Kernels that do not need each other run in one launch.
    SideBySide,
    /// Of a graphics processor: a softmax over edges takes one pass over them.
    OnePassSoftmax,
    /// Of a graphics processor: products in tiles take along what is around them.
    TileProducts,
    /// Of a graphics processor: kernels with small results run with the first launch that they can run with.
    EarlyLaunches,
    /// Of a graphics processor: blocks that arithmetic limits and blocks that memory limits go by turns.
    ByTurns,
}

/// What a name of a single decision begins with: `fuse:NAME` computes the values of the kernel that stores `NAME` in
/// kernels of their own.
pub const SINGLE: &str = "fuse:";

impl Decision {
    /// All, in the order in which they are made.
    pub const ALL: [Self; 16] = [
        Self::FuseRows,
        Self::FuseEdges,
        Self::FollowEdges,
        Self::SmallProducts,
        Self::FuseUpdates,
        Self::ComputeLate,
        Self::ShareSoftmax,
        Self::FuseProducts,
        Self::CutRows,
        Self::KeepFixed,
        Self::InPlace,
        Self::SideBySide,
        Self::OnePassSoftmax,
        Self::TileProducts,
        Self::EarlyLaunches,
        Self::ByTurns,
    ];

    /// The name for `--disable-pass`.
    pub fn name(self) -> &'static str {
        match self {
            Self::FuseRows => "fuse_rows",
            Self::FuseEdges => "fuse_edges",
            Self::FollowEdges => "follow_edges",
            Self::SmallProducts => "small_products",
            Self::FuseUpdates => "fuse_updates",
            Self::ComputeLate => "compute_late",
            Self::ShareSoftmax => "share_softmax",
            Self::FuseProducts => "fuse_products",
            Self::CutRows => "cut_rows",
            Self::KeepFixed => "keep_fixed",
            Self::InPlace => "in_place",
            Self::SideBySide => "side_by_side",
            Self::OnePassSoftmax => "one_pass_softmax",
            Self::TileProducts => "tile_products",
            Self::EarlyLaunches => "early_launches",
            Self::ByTurns => "by_turns",
        }
    }

    /// What is done, in a few words.
    pub fn what(self) -> &'static str {
        match self {
            Self::FuseRows => "operations of the same rows share a kernel",
            Self::FuseEdges => "sums over the same edges share a pass",
            Self::FollowEdges => "what follows from the sums of a row is computed with them",
            Self::SmallProducts => "products with small weights belong to the rows that they read",
            Self::FuseUpdates => "the gradient of a sparse projection takes the update along",
            Self::ComputeLate => "cheap values are computed where they are read",
            Self::ShareSoftmax => "a softmax and its log-sum-exp share exponentials",
            Self::FuseProducts => "products that are summed are not made",
            Self::CutRows => "rows of very many edges are cut",
            Self::KeepFixed => "what depends on no parameter is computed once",
            Self::InPlace => "results take the memory of what is read for the last time",
            Self::SideBySide => "kernels that do not need each other share a launch",
            Self::OnePassSoftmax => "a softmax takes one pass over edges (graphics processors)",
            Self::TileProducts => "products in tiles take along what is around them (graphics processors)",
            Self::EarlyLaunches => "kernels with small results run early (graphics processors)",
            Self::ByTurns => "arithmetic and memory go by turns (graphics processors)",
        }
    }

    /// That of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.name() == name)
    }
}

/// Decisions that are left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without(u32);

impl Without {
    /// All decisions are made.
    pub const NOTHING: Self = Self(0);

    /// Is a decision left out?
    pub fn has(self, decision: Decision) -> bool {
        self.0 & 1 << decision as u32 != 0
    }

    /// Leaves another one out.
    #[must_use]
    pub fn and(self, decision: Decision) -> Self {
        Self(self.0 | 1 << decision as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_decision_has_a_name_and_a_bit_of_its_own() {
        for (index, decision) in Decision::ALL.into_iter().enumerate() {
            assert_eq!(decision as usize, index, "{}", decision.name());
            assert_eq!(Decision::named(decision.name()), Some(decision));
            let without = Without::NOTHING.and(decision);
            let left_out: Vec<_> = Decision::ALL.into_iter().filter(|&other| without.has(other)).collect();
            assert_eq!(left_out, [decision]);
        }
        assert_eq!(Decision::named("fuse"), None);
    }
}
