//! Training, validation and test parts of vertices, edges and links, without leakage between them.
//!
//! - [`split_vertices`] divides the labelled vertices of a type, at random, evenly over the classes, or by time.
//! - [`split_edges`] divides the labelled edges of a relation likewise; an edge and its reverses are in one part.
//! - [`without_vertices`] removes vertices with their edges: the training graph of an inductive split, whose test
//!   vertices are unseen. [`write_inductive`] writes it beside the whole graph.
//! - [`split_links`] holds out links of relations. Equal edges, the other directions of symmetric relations, and the
//!   edges of reverse relations leave the training graph with them.
//!
//! Random draws depend on the seed and on the dataset only. Splits are made once and stored in the dataset: training
//! draws nothing.

#![forbid(unsafe_code)]

mod edges;
mod inductive;
mod labelled;
mod links;
mod reverses;
mod shares;
mod vertices;

pub use edges::{EdgeOutcome, LabelledEdges, split_edges};
pub use inductive::{without_vertices, write_inductive};
pub use labelled::LabelSplit;
pub use links::{LinkOutcome, LinkSplit, split_links};
pub use reverses::SUSPICIOUS;
pub use shares::{Order, Shares, shuffle};
pub use vertices::split_vertices;

/// Why a dataset was not split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// The shares are no shares.
    #[error("the shares of a split are from 0 to 1 and at most 1 together; these are {0}")]
    Shares(String),
    /// A split of this name is there already.
    #[error("there is a split `{0}` already: give this one another name")]
    Name(String),
    /// A split by time of what has no times.
    #[error("{0} has no times, so it cannot be split by time")]
    NoTime(String),
    /// A split by events of what is no link.
    #[error("vertices and edges are split by time; events are links, of which pairs come again")]
    Events,
    /// An even split over classes of a label without classes.
    #[error("`{0}` is not a label of one class, so its parts cannot have equal shares of each class")]
    NoClasses(String),
    /// A part that has a share, and that rounding leaves without an element.
    #[error("the {part} part of {count} {of} would be empty: give it a larger share, or 0")]
    Empty {
        /// `training`, `validation` or `test`.
        part: &'static str,
        /// Number of elements that are divided.
        count: usize,
        /// Name of the elements that are divided.
        of: String,
    },
    /// A relation that is named as the reverse of another, between other vertex types.
    #[error("`{reverse}` is not the reverse of `{relation}`: it does not lead from its destinations to its sources")]
    NotReverse {
        /// The relation.
        relation: String,
        /// The relation that was named as its reverse.
        reverse: String,
    },
    /// A relation whose labelled edges are to be in the parts of those that they reverse, without such a label.
    #[error(
        "the edges of `{reverse}` have no label `{label}`, so there is nothing of them to split: leave `{reverse}` out"
    )]
    UnlabelledReverse {
        /// Name of the label.
        label: String,
        /// The relation that was named as a reverse.
        reverse: String,
    },
}
