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

use hgnnc_dataset::Dataset;

pub use error::{Fault, Faults, ImportError};
pub use export::{ExportError, Layout, export};
pub use progress::Observer;

use progress::Progress;

/// Layout of the files that are imported.
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

impl Kind {
    /// All kinds, in the order in which they are listed to users.
    pub const ALL: [Kind; 8] = [
        Kind::Tables,
        Kind::Triples,
        Kind::Hgb,
        Kind::Ogb,
        Kind::Ntriples,
        Kind::Dgl,
        Kind::Graphbolt,
        Kind::Graphstorm,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tables => "tables",
            Kind::Triples => "triples",
            Kind::Hgb => "hgb",
            Kind::Ogb => "ogb",
            Kind::Ntriples => "ntriples",
            Kind::Dgl => "dgl",
            Kind::Graphbolt => "graphbolt",
            Kind::Graphstorm => "graphstorm",
        }
    }

    /// The source, in a line of help.
    pub fn about(self) -> &'static str {
        match self {
            Kind::Tables => "CSV and TSV files with keys, described by a TOML file",
            Kind::Triples => "Lines of head, relation and tail: a file, or a folder with train, valid and test",
            Kind::Hgb => "The text files of the Heterogeneous Graph Benchmark (node.dat, link.dat, ...)",
            Kind::Ogb => "The files of the Open Graph Benchmark with labels of vertices (a folder with `raw`)",
            Kind::Ntriples => "RDF in N-Triples, with tables of labels",
            Kind::Dgl => "A folder of DGL's CSVDataset (`meta.yaml`)",
            Kind::Graphbolt => "A folder of GraphBolt's OnDiskDataset (`metadata.yaml`)",
            Kind::Graphstorm => "A configuration of GraphStorm's graph construction (JSON), or the folder that has it",
        }
    }

    /// Whether there is a file of settings for this kind, or one that describes it.
    pub fn has_config(self) -> bool {
        !matches!(self, Kind::Triples | Kind::Hgb | Kind::Ogb)
    }

    /// Whether features are made of columns.
    pub fn has_transforms(self) -> bool {
        matches!(self, Kind::Tables | Kind::Dgl | Kind::Graphstorm)
    }
}

/// Reads what is in the folder or file `source`. `config` describes tables; without one it is `import.toml` beside them.
/// Of other kinds it has settings that may be left out; those without [`Kind::has_config`] refuse one.
///
/// # Errors
/// With all faults of the files.
pub fn read(kind: Kind, source: &Path, config: Option<&Path>) -> Result<Dataset, ImportError> {
    read_from(kind, source, config, None, &Progress::default())
}

/// Like [`read()`]; the observer is told how far it is, and the notes.
///
/// With a `graph` these are new rows of it, for kinds that [`Kind::has_transforms`]. Features are made with the numbers
/// and categories that were fitted to the graph. Labels have its classes. Edges may go to its vertices, which the
/// result then has as well, with their features.
///
/// # Errors
/// With all faults of the files.
pub fn read_observed(
    kind: Kind,
    source: &Path,
    config: Option<&Path>,
    graph: Option<&Dataset>,
    observer: Arc<dyn Observer>,
) -> Result<Dataset, ImportError> {
    read_from(kind, source, config, graph, &Progress::new(observer))
}

fn read_from(
    kind: Kind,
    source: &Path,
    config: Option<&Path>,
    graph: Option<&Dataset>,
    progress: &Progress,
) -> Result<Dataset, ImportError> {
    if graph.is_some() && !kind.has_transforms() {
        let name = kind.name();
        return Err(Faults::one(source, format!("new rows of a graph are made of columns, and `{name}` has none")));
    }
    if let Some(config) = config.filter(|_| !kind.has_config()) {
        let name = kind.name();
        return Err(Faults::one(
            config,
            format!("a configuration describes tables or has settings, and `{name}` has none"),
        ));
    }
    match kind {
        Kind::Tables => tables::read(source, config.unwrap_or(&source.join("import.toml")), graph, progress),
        Kind::Triples => triples::read(source, progress),
        Kind::Hgb => hgb::read(source, progress),
        Kind::Ogb => ogb::read(source, progress),
        Kind::Ntriples => ntriples::read(source, config, progress),
        Kind::Dgl => dgl::read(source, config, graph, progress),
        Kind::Graphbolt => graphbolt::read(source, config, progress),
        Kind::Graphstorm => graphstorm::read(source, config, graph, progress),
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Layout};

    #[test]
    fn names_differ_and_exports_are_imported_under_theirs() {
        assert!(Kind::ALL.iter().enumerate().all(|(i, &kind)| kind as usize == i));
        assert!(Layout::ALL.iter().enumerate().all(|(i, &layout)| layout as usize == i));
        let mut names: Vec<&str> = Kind::ALL.map(Kind::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
        for layout in Layout::ALL {
            assert!(layout == Layout::Pyg || names.contains(&layout.name()), "{}", layout.name());
        }
    }
}
