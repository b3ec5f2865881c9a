//! Datasets, heterogeneous graphs and the semantic graph build (SGB).
//!
//! - [`Dataset::load`] reads and validates a dataset folder (`docs/dataset.md` describes the format), and
//!   [`Dataset::write`] writes one.
//! - [`Builder`] makes a dataset of arrays in memory, with the checks of a loaded one.
//! - [`SemanticGraphs`] turns its relations and metapaths into [`SemanticGraph`]s, under a memory budget.
//! - [`DegreeClasses`] groups the rows of one direction of a graph by degree.
//! - [`order`] finds vertex orders that improve the cache locality of gathers, and estimates the cache misses of an
//!   order.
//! - [`processors`] pins the threads of a pool to processors.
//! - [`DatasetInfo`] and [`schema_text`] describe a dataset.
//!
//! This crate handles graph structure only: no feature transforms, no sampling, no device code.

pub mod atomic;
pub mod build;
mod checks;
mod choose;
pub mod csr;
mod cutoff_rows;
pub mod dataset;
pub mod degrees;
mod edge_rows;
pub mod error;
pub mod extend;
pub mod files;
pub mod info;
mod leaks;
pub mod load;
mod memory;
pub mod npy;
pub mod order;
pub mod processors;
mod radix_sort;
pub mod schema;
pub mod sgb;
pub mod shared;
mod transpose;
pub mod write;

pub use build::{Builder, GivenLabels, GivenLinks, Named};
pub use csr::{Adjacency, EdgeError, NO_ORIGINAL, SemanticGraph};
pub use cutoff_rows::{CutoffRows, CutoffType, CutoffWalk};
pub use dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, FieldData, Kinds, LabelData, LabelValues, LinkSplitData,
    Links, MetapathData, RelationData, SparseFeatures, SplitData, Step, Transform, TransformKind, VertexIds,
    VertexTypeData,
};
pub use degrees::{ClassInfo, DegreeClasses, DegreeCounts, class_degrees, degree_class};
pub use edge_rows::EdgeRows;
pub use error::{DataError, DataErrors};
pub use extend::{ExtendErrors, Extended};
pub use info::DatasetInfo;
pub use memory::LargePages;
pub use npy::FloatArray;
pub use schema::schema_text;
pub use sgb::{
    CacheKey, EdgeList, Entry, EntryContents, EntryGraph, EntryRows, Estimate, GraphCache, InstanceCounts, Instances,
    MetapathOptions, MetapathStats, Middle, Origin, RelationOptions, SemanticGraphs, SgbError, show_bytes,
};
pub use shared::Shared;
pub use transpose::transpose_into;
