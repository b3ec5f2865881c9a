//! Factored metapath attention: softmax-weighted sums over paths of two hops, without enumerating the paths.
//!
//! A *path* is an instance of the metapath that two graphs make: an edge of the first graph from a source `i` to a
//! middle vertex, then an edge of the second graph from there to a destination `j`. Both hops may themselves be
//! metapaths. The attention score of a path is `s = f(x_i + y_j)`, where `f` is linear on either side of zero
//! ([`PiecewiseLinear`]): the leaky ReLU of GAT and HAN, ReLU, or the sum itself. The sum over the paths of a row,
//!
//! ```text
//! Σ e^(s - n_j) w
//! ```
//!
//! splits at the kink of `f`: on either side of it, `e^s` is a product of a factor of the source and a factor of the
//! destination. Each middle vertex keeps its sources (or destinations) sorted by their part of the score, with prefix
//! sums from both sides. A row finds the kink by binary search and adds two prefix sums per middle vertex. The cost of
//! a row is `O(M log d)` for `M` middle vertices of degree `d`, instead of its number of paths.

use crate::ops::Direction;
use crate::types::Graph;

/// A function that is linear below zero and linear above, and 0 at zero: `below · t` for `t ≤ 0`, `above · t` for
/// `t > 0`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PiecewiseLinear {
    /// Slope below zero; also the derivative at zero.
    pub below: f64,
    /// Slope above zero.
    pub above: f64,
}

impl PiecewiseLinear {
    /// The function that gives its argument.
    pub const IDENTITY: Self = Self { below: 1.0, above: 1.0 };

    /// The leaky ReLU with this slope below zero; the ReLU for 0.
    pub fn leaky_relu(slope: f64) -> Self {
        Self { below: slope, above: 1.0 }
    }

    /// The value at `t`.
    pub fn value(self, t: f64) -> f64 {
        self.slope(t) * t
    }

    /// The derivative at `t`.
    pub fn slope(self, t: f64) -> f64 {
        if t > 0.0 { self.above } else { self.below }
    }

    /// Whether both slopes are finite.
    pub fn is_finite(self) -> bool {
        self.below.is_finite() && self.above.is_finite()
    }

    /// Its bits, for comparison.
    pub fn to_bits(self) -> [u64; 2] {
        [self.below, self.above].map(f64::to_bits)
    }
}

/// A reduction over two-hop paths. Operands: `x` with `H` elements for each source of `first`, `y` with `H` for each
/// destination of `second` (`H` heads). Every term but [`MetapathTerm::LogSumExp`] also takes `n`, `H` elements for each
/// destination, and optionally `w`, `[H, D]` for each vertex at the end that does not own the sum; `w` defaults to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MetapathReduce {
    /// Edges from sources to middle vertices.
    pub first: Graph,
    /// Edges from middle vertices to destinations.
    pub second: Graph,
    /// The end that owns the sum: destinations (`In`) or sources (`Out`).
    pub direction: Direction,
    /// The function from `x_i + y_j` to the score.
    pub score: PiecewiseLinear,
    /// The summand and its reduction.
    pub term: MetapathTerm,
}

/// The summand of a [`MetapathReduce`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MetapathTerm {
    /// `ln Σ e^s` for each destination; -∞ for a row without paths.
    LogSumExp,
    /// The weighted sum `Σ e^(s - n_j) w`.
    WeightedSum,
    /// `Σ e^(s - n_j) f'(x_i + y_j) w`, the sum that gradients with respect to scores need.
    WeightedSlope,
}

impl MetapathTerm {
    /// All terms, in the order of the enum.
    pub const ALL: [MetapathTerm; 3] =
        [MetapathTerm::LogSumExp, MetapathTerm::WeightedSum, MetapathTerm::WeightedSlope];

    /// The mnemonic in the text format.
    pub fn name(self) -> &'static str {
        match self {
            MetapathTerm::LogSumExp => "lse",
            MetapathTerm::WeightedSum => "sum",
            MetapathTerm::WeightedSlope => "slope",
        }
    }

    /// The number of operands, `w` not counted.
    pub fn operands(self) -> usize {
        match self {
            MetapathTerm::LogSumExp => 2,
            MetapathTerm::WeightedSum | MetapathTerm::WeightedSlope => 3,
        }
    }
}

impl MetapathReduce {
    /// The graph and direction whose endpoints are the rows of the sum.
    pub fn rows(&self) -> (Graph, Direction) {
        match self.direction {
            Direction::In => (self.second, Direction::In),
            Direction::Out => (self.first, Direction::Out),
        }
    }

    /// The graph and direction of the opposite endpoints, which are the rows of `w`.
    pub fn others(&self) -> (Graph, Direction) {
        match self.direction {
            Direction::In => (self.first, Direction::Out),
            Direction::Out => (self.second, Direction::In),
        }
    }

    /// The same paths and scores with another owner and summand.
    #[must_use]
    pub fn with(self, direction: Direction, term: MetapathTerm) -> Self {
        Self { direction, term, ..self }
    }
}
