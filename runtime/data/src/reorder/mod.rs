//! Vertex reordering for cache locality: vertices with nearby ids share neighbours, so gathers hit the cache more
//! often.
//!
//! Reordering happens once, when data is bound: graphs, inputs, labels and splits all use the new ids. User-visible and
//! stored data use the ids of the dataset: outputs, embedding tables, checkpoints, and dropout masks, which are
//! functions of dataset ids.
//!
//! Edges keep their order within a row, so the sum over the edges of a row has the same terms in the same order. Sums
//! over all rows (weight gradients, the loss) change their order, and rows cross tile boundaries at other edges; both
//! affect only the last bits.

mod choose;
mod gathers;
mod renumber;

pub use choose::{OrderOptions, Ordered, order_vertices};
pub use gathers::{unsupported_reason, uses_global_rng};
pub use renumber::renumber;
