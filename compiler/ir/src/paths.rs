//! Factored metapath attention: softmax-weighted sums over two-hop paths, without enumerating the paths.
//!
//! A *path* is an instance of the metapath that two graphs make: an edge of the first graph from a source `i` to a
//! middle vertex, then an edge of the second graph from there to a destination `j`. Its attention score is `s = f(x_i +
//! y_j)` with the leaky ReLU `f`. The sum over the paths of a row,
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

/// A reduction over two-hop paths. Operands: `x` with `H` elements for each source of `first`, `y` with `H` for each
/// destination of `second` (`H` heads). Every term but [`PathTerm::Lse`] also takes `n`, `H` elements for each
/// destination, and optionally `w`, `[H, D]` for each vertex at the end that does not own the sum; `w` defaults to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathSum {
    /// Edges from sources to middle vertices.
    pub first: Graph,
    /// Edges from middle vertices to destinations.
    pub second: Graph,
    /// The end that owns the sum: destinations (`In`) or sources (`Out`).
    pub direction: Direction,
    /// Slope of the leaky ReLU below zero, 0 or more.
    pub slope: f64,
    /// The summand and its reduction.
    pub term: PathTerm,
}

/// The summand of a [`PathSum`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PathTerm {
    /// `ln Σ e^s` for each destination; -∞ for a row without paths.
    Lse,
    /// The weighted sum `Σ e^(s - n_j) w`.
    Weight,
    /// `Σ e^(s - n_j) f'(x_i + y_j) w`, the sum that gradients with respect to scores need. `f'` is 1 above
    /// zero, else the slope.
    Slope,
}

impl PathTerm {
    /// All terms, in the order of the enum.
    pub const ALL: [PathTerm; 3] = [PathTerm::Lse, PathTerm::Weight, PathTerm::Slope];

    /// The mnemonic in the text format.
    pub fn name(self) -> &'static str {
        match self {
            PathTerm::Lse => "lse",
            PathTerm::Weight => "sum",
            PathTerm::Slope => "slope",
        }
    }

    /// The number of operands, `w` not counted.
    pub fn operands(self) -> usize {
        match self {
            PathTerm::Lse => 2,
            PathTerm::Weight | PathTerm::Slope => 3,
        }
    }
}

impl PathSum {
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
    pub fn with(self, direction: Direction, term: PathTerm) -> Self {
        Self { direction, term, ..self }
    }
}
