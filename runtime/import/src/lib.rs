//! Datasets from what users have: tables with ids of any kind, triples, and the layouts of benchmarks.
//!
//! Each importer reads its files once, row by row, and holds the result, its ids and nothing else. Faults are collected:
//! each has its file, its line, the value and a way out ([`Faults`]).
//!
//! - [`tables`]: CSV and TSV files with keys, described by a TOML file.
//! - [`triples`]: `head relation tail` in each line, of knowledge graphs.
//! - [`ntriples`]: RDF, with tables of labels.
//! - [`dgl`], [`graphbolt`], [`graphstorm`]: folders of these libraries.

#![forbid(unsafe_code)]

pub mod dgl;
mod error;
mod files;
pub mod graphbolt;
pub mod graphstorm;

mod keys;
pub mod ntriples;
mod settings;
pub mod tables;
pub mod triples;

use std::path::Path;

use hgnnc_graph::Dataset;

pub use error::{Fault, Faults, ImportError};

/// What is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tables with keys: see [`tables`].
    Tables,
    /// Lines of head, relation and tail: see [`triples`].
    Triples,
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
    match kind {
        Kind::Tables => tables::read(source, config.unwrap_or(&source.join("import.toml"))),
        Kind::Triples => triples::read(source),
        Kind::Ntriples => ntriples::read(source, config),
        Kind::Dgl => dgl::read(source, config),
        Kind::Graphbolt => graphbolt::read(source, config),
        Kind::Graphstorm => graphstorm::read(source, config),
    }
}
