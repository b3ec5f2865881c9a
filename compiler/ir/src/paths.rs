//! Attention along paths of two edges, summed without listing the paths.
//!
//! A *path* goes from a source `i` over an edge of a first graph to a vertex between, and over an edge of a second graph to
//! a destination `j`: it is an instance of the metapath that the two graphs make. Its score is
//! `s = f(x_i + y_j)` with the leaky ReLU `f`. A sum over the paths of a row
//!
//! ```text
//! Σ e^(s - n_j) w
//! ```
//!
//! falls apart at the bend of `f`: on either side of it, `e^s` is a product of a number of the source and one of the
//! destination. Where the ends of each vertex between are sorted by their part of the score, a row finds the bend there with a
//! binary search, and both sums beside it are known for all rows. It costs the number of its vertices between times a
//! logarithm, instead of the number of its paths.

use crate::ops::Direction;
use crate::types::Graph;

/// A sum over paths. Operands: `x` with a row for each source of `first`, `y` with a row for each destination of `second`,
/// both a number per head `H`; unless it is [`PathTerm::Lse`] also `n`, a row of `H` for each destination, and `w`, which has
/// a row of `[H, D]` for each vertex at the end that does not own the sum; without `w` it is 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathSum {
    /// From sources to the vertices between.
    pub first: Graph,
    /// From there to destinations.
    pub second: Graph,
    /// Which end owns the sum: destinations (`In`) or sources (`Out`).
    pub direction: Direction,
    /// Slope of the leaky ReLU below zero, 0 or more.
    pub slope: f64,
    /// What is summed.
    pub term: PathTerm,
}

/// What is summed over paths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathTerm {
    /// `ln Σ e^s`, of destinations; -∞ over nothing.
    Lse,
    /// `Σ e^(s - n_j) w`
    Weight,
    /// `Σ e^(s - n_j) f'(x_i + y_j) w`: what the derivative of the others by their scores is made of. `f'` is 1 above zero,
    /// else the slope.
    Slope,
}

impl PathTerm {
    /// All of them.
    pub const ALL: [PathTerm; 3] = [PathTerm::Lse, PathTerm::Weight, PathTerm::Slope];

    /// Its word in text.
    pub fn name(self) -> &'static str {
        match self {
            PathTerm::Lse => "lse",
            PathTerm::Weight => "sum",
            PathTerm::Slope => "slope",
        }
    }

    /// The number of operands, without `w`.
    pub fn operands(self) -> usize {
        match self {
            PathTerm::Lse => 2,
            PathTerm::Weight | PathTerm::Slope => 3,
        }
    }
}

impl PathSum {
    /// The graph and direction whose ends are the rows of the sum.
    pub fn rows(&self) -> (Graph, Direction) {
        match self.direction {
            Direction::In => (self.second, Direction::In),
            Direction::Out => (self.first, Direction::Out),
        }
    }

    /// The graph and direction whose ends are at the other end of the paths: what `w` has rows for.
    pub fn others(&self) -> (Graph, Direction) {
        match self.direction {
            Direction::In => (self.first, Direction::Out),
            Direction::Out => (self.second, Direction::In),
        }
    }

    /// The same paths and scores, summed otherwise.
    #[must_use]
    pub fn with(self, direction: Direction, term: PathTerm) -> Self {
        Self { direction, term, ..self }
    }
}
