//! Datasets from what users have: tables with ids of any kind, triples, and the layouts of benchmarks.
//!
//! Each importer reads its files once, row by row, and holds the result, its ids and nothing else. Faults are collected:
//! each has its file, its line, the value and a way out ([`Faults`]).
//!
//! - [`tables`]: CSV and TSV files with keys, described by a TOML file.
//! - [`triples`]: `head relation tail` in each line, of knowledge graphs.
//! - [`hgb`] and [`ogb`]: the layouts of benchmarks.
//! - [`ntriples`]: RDF, with tables of labels.
//! - [`dgl`], [`graphbolt`], [`graphstorm`]: folders of these libraries.
//!
//! [`export()`] writes a dataset in the layout of another library. The reader and the writer of a layout stand in one module.

#![forbid(unsafe_code)]

pub mod dgl;
mod error;
mod export;
mod files;
pub mod graphbolt;
pub mod graphstorm;
pub mod hgb;
mod keys;
pub mod ntriples;
pub mod ogb;
mod progress;
pub mod pyg;
mod settings;
pub mod tables;
pub mod triples;
mod values;

use std::path::Path;
use std::sync::Arc;

use hgnnc_graph::Dataset;

pub use error::{Fault, Faults, ImportError};
pub use export::{ExportError, Layout, export};
pub use progress::Observer;

use progress::Progress;

/// What is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tables with keys: see [`tables`].
    Tables,
    /// Lines of head, relation and tail: see [`triples`].
    Triples,
    /// The text files of the Heterogeneous Graph Benchmark: see [`hgb`].
    Hgb,
    /// The files of the Open Graph Benchmark: see [`ogb`].
    Ogb,
    /// RDF in N-Triples: see [`ntriples`].
    Ntriples,
    /// A folder of DGL's `CSVDataset`: see [`dgl`].
    Dgl,
    /// A folder of GraphBolt's `OnDiskDataset`: see [`graphbolt`].
    Graphbolt,
    /// A configuration of GraphStorm's graph construction: see [`graphstorm`].
    Graphstorm,
}

/// Reads what is in the folder or file `source`. `config` describes tables; without one it is `import.toml` beside them.
/// Of other kinds it has settings that may be left out, and of triples there are none.
///
/// # Errors
/// With all faults of the files.
pub fn read(kind: Kind, source: &Path, config: Option<&Path>) -> Result<Dataset, ImportError> {
    read_from(kind, source, config, &Progress::default())
}

/// Like [`read()`]; the observer is told how far it is, and the notes.
///
/// # Errors
/// With all faults of the files.
pub fn read_observed(
    kind: Kind,
    source: &Path,
    config: Option<&Path>,
    observer: Arc<dyn Observer>,
) -> Result<Dataset, ImportError> {
    read_from(kind, source, config, &Progress::new(observer))
}

fn read_from(kind: Kind, source: &Path, config: Option<&Path>, progress: &Progress) -> Result<Dataset, ImportError> {
    match kind {
        Kind::Tables => tables::read(source, config.unwrap_or(&source.join("import.toml")), progress),
        Kind::Triples => triples::read(source, progress),
        Kind::Hgb => hgb::read(source, progress),
        Kind::Ogb => ogb::read(source, progress),
        Kind::Ntriples => ntriples::read(source, config, progress),
        Kind::Dgl => dgl::read(source, config, progress),
        Kind::Graphbolt => graphbolt::read(source, config, progress),
        Kind::Graphstorm => graphstorm::read(source, config, progress),
    }
}
