//! Datasets, heterogeneous graphs and the semantic graph build (SGB).
//!
//! - [`Dataset::load`] reads and validates a dataset folder (`docs/dataset.md` describes the format).
//! - [`SemanticGraphs`] turns its relations and metapaths into [`SemanticGraph`]s, under a memory budget.
//! - [`DegreeClasses`] lists the rows of one direction of a graph by how many edges they have.
//! - [`order`] finds orders of vertices in which gathers find more in a cache, and says what a cache would miss.
//! - [`processors`] keeps threads on processors of their own.
//! - [`DatasetInfo`] and [`schema_text`] describe a dataset to people.
//! - [`synth::generate`] writes synthetic datasets in the shape of well-known ones.
//!
//! This crate computes on graph structure only: no features are transformed, nothing is sampled, no device is known.

pub mod csr;
pub mod dataset;
pub mod degrees;
pub mod error;
pub mod files;
pub mod info;
mod leaks;
pub mod load;
mod memory;
pub mod npy;
pub mod order;
mod outgoing;
pub mod processors;
mod scatter;
pub mod schema;
pub mod sgb;
pub mod shared;
pub mod synth;

pub use csr::{Csc, Csr, EdgeError, NO_ORIGINAL, SemanticGraph};
pub use dataset::{
    Dataset, DenseFeatures, Features, Kinds, LabelData, LabelValues, LinkSplitData, Links, MetapathData, RelationData,
    SparseFeatures, SplitData, VertexTypeData,
};
pub use degrees::{ClassInfo, DegreeClasses, DegreeCounts, class_degrees, degree_class};
pub use error::{DataError, DataErrors};
pub use info::DatasetInfo;
pub use memory::LargePages;
pub use npy::FloatArray;
pub use schema::schema_text;
pub use sgb::{
    Entry, EntryGraph, Estimate, GraphCache, MetapathOptions, MetapathStats, Middle, Origin, RelationOptions,
    SemanticGraphs, SgbError, Step, show_bytes,
};
pub use shared::Shared;
