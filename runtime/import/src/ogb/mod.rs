//! The files of the Open Graph Benchmark's graphs with labels of vertices (Hu et al., NeurIPS 2020), as `ogb` downloads
//! them: `raw`, `split` and `mapping` in one folder.
//!
//! Read are graphs of several types and of one, as `.csv.gz` and as `.npz`. Written are those of several types as `.csv.gz`,
//! which is the form of `ogbn-mag`.

mod items;
mod mapping;
mod npz;
mod read;
mod scan;
mod write;

pub(crate) use read::read;
pub(crate) use write::write;

/// Separator of head, relation and tail in names of folders and arrays.
const JOINER: &str = "___";
