//! Datasets: vertices, relations, features, labels and splits, in a folder and in memory.
//!
//! - [`Dataset::load`] reads and validates a dataset folder (`docs/dataset.md` describes the format), and
//!   [`Dataset::write`] writes one.
//! - [`Builder`] makes a dataset of arrays in memory, with the checks of a loaded one.
//! - [`Dataset::extended`] adds the new vertices and edges of another dataset.
//! - [`Dataset::check_links`] finds held-out links that leak into training.
//! - [`npy`] reads and writes arrays, [`files`] opens inputs, and [`atomic`] replaces files.
//! - [`schema_text`] is a schema in the language, for a dataset without a model.
//!
//! This crate holds edges as they are given, as lists. Adjacency, metapaths and semantic graphs are `hgnnc-graph`'s.

pub mod atomic;
pub mod build;
mod checks;
pub mod dataset;
pub mod error;
pub mod extend;
pub mod files;
mod leaks;
pub mod load;
pub mod npy;
pub mod schema;
pub mod write;

pub use build::{Builder, GivenFeatures, GivenLabels, GivenLinks, Named};
pub use dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, FieldData, Kinds, LabelData, LabelValues, LinkSplitData,
    Links, MetapathData, RelationData, SparseFeatures, SplitData, Step, Transform, TransformKind, VertexIds,
    VertexTypeData,
};
pub use error::{DataError, DataErrors};
pub use extend::{ExtendErrors, Extended};
pub use npy::FloatArray;
pub use schema::schema_text;
