//! Heterogeneous graphs of a dataset and the semantic graph build (SGB).
//!
//! - [`SemanticGraphs`] turns its relations and metapaths into [`SemanticGraph`]s, under a memory budget.
//! - [`DegreeClasses`] groups the rows of one direction of a graph by degree.
//! - [`order`] finds vertex orders that improve the cache locality of gathers, and estimates the cache misses of an
//!   order.
//! - [`processors`] pins the threads of a pool to processors.
//! - [`CutoffRows`] and [`EdgeRows`] give a dataset rows of vertices at a time, and of edges to predict.
//! - [`DatasetInfo`] describes a dataset, its degrees and its metapaths.
//!
//! This crate handles graph structure only: no files but those of cached graphs, no feature transforms, no sampling, no
//! device code.

mod choose;
pub mod csr;
mod cutoff_rows;
pub mod degrees;
mod edge_rows;
pub mod info;
mod memory;
pub mod order;
pub mod processors;
mod radix_sort;
pub mod sgb;
pub mod shared;
mod transpose;

pub use csr::{Adjacency, EdgeError, NO_ORIGINAL, SemanticGraph};
pub use cutoff_rows::{CutoffLinks, CutoffRows, CutoffType, CutoffWalk};
pub use degrees::{ClassInfo, DegreeClasses, DegreeCounts, class_degrees, degree_class};
pub use edge_rows::EdgeRows;
pub use info::DatasetInfo;
pub use memory::LargePages;
pub use sgb::{
    CacheKey, EdgeList, Entry, EntryContents, EntryGraph, EntryRows, Estimate, GraphCache, GraphPart, InstanceCounts,
    Instances, Loops, MetapathOptions, MetapathStats, Middle, Origin, RelationOptions, SemanticGraphs, SgbError,
    show_bytes,
};
pub use shared::Shared;
pub use transpose::transpose_into;
