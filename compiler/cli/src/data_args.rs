//! Arguments of `hgnnc data`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args as ClapArgs, Subcommand, ValueEnum};
use hgnnc_import::{Kind, Layout};
use hgnnc_partition::{By, MOST_PASSES, MOST_RANKS};

use crate::args::{parse_number, parse_whole, parse_within};

/// Arguments of the command `data`.
#[derive(ClapArgs, Debug)]
pub struct DataArgs {
    /// The subcommand and its arguments.
    #[command(subcommand)]
    pub command: DataCommand,
}

/// The subcommands of `hgnnc data`.
#[derive(Subcommand, Debug)]
pub enum DataCommand {
    /// Print sizes, degrees and metapath counts
    Info {
        /// Folder of the dataset
        dir: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print what a dataset is made of: the folder, `dataset.toml` and its fields
    Format,
    /// Print a model of this dataset to begin with: its schema, metapaths that return to the labelled vertices with
    /// about the number of their pairs, layers, and how to train them
    Schema {
        /// Folder of the dataset
        dir: PathBuf,
        /// The layer of the model
        #[arg(long, value_enum, default_value_t = Layer::Rgcn)]
        layer: Layer,
    },
    /// Make a dataset of tables with ids of any kind, of triples, or of what benchmarks and other libraries have (see docs/import.md)
    Import {
        /// The layout of the source
        #[arg(value_parser = listed(Kind::ALL, Kind::name, Kind::about))]
        kind: Kind,
        /// Folder of the files, or one file of triples or a configuration
        src: PathBuf,
        /// Folder of the dataset that is made
        #[arg(required_unless_present = "dry_run")]
        dir: Option<PathBuf>,
        /// The description of tables, SRC/import.toml unless given; settings of other kinds
        #[arg(long, value_name = "FILE.toml")]
        config: Option<PathBuf>,
        /// The dataset in DIR, imported before, of which these are new rows: they are scaled and coded as its features,
        /// and their edges may go to its vertices. `hgnnc infer --new` takes the result
        #[arg(long, value_name = "DIR", conflicts_with = "model")]
        like: Option<PathBuf>,
        /// Write a model of it to begin with, as `hgnnc data schema` prints it
        #[arg(long, value_name = "FILE.hgnn", conflicts_with = "dry_run")]
        model: Option<PathBuf>,
        /// Read and check everything and say what would be made, but write nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Divide vertices, edges or links into parts to train, validate and test on, without leakage (see docs/splits.md)
    Split(SplitArgs),
    /// Renumber a dataset so that the vertices and edges of each process of a job are together (see docs/partition.md)
    Partition(PartitionArgs),
    /// Write a dataset in the layout of another library; notes say what that does not hold (see docs/import.md)
    Export {
        /// The layout
        #[arg(value_parser = listed(Layout::ALL, Layout::name, Layout::about))]
        kind: Layout,
        /// Folder of the dataset
        dir: PathBuf,
        /// Folder for the files of that layout
        out: PathBuf,
    },
    /// Show the graphs of metapaths and the precomputed rows that are kept beside a dataset (`.hgnnc-cache`), or remove them
    Cache {
        /// Folder of the dataset
        dir: PathBuf,
        /// Remove them
        #[arg(long)]
        clear: bool,
    },
    /// Write a synthetic dataset with planted communities
    Synth {
        /// Shape: acm, acm_han, aifb, citations, cora, dblp, fb15k237, imdb, lastfm, mag, molecules, plays or wn18rr
        shape: String,
        /// Folder of the dataset that is made
        #[arg(required_unless_present = "out")]
        dir: Option<PathBuf>,
        /// The same
        #[arg(short, long, value_name = "DIR", conflicts_with = "dir")]
        out: Option<PathBuf>,
        /// Seed
        #[arg(long, default_value_t = 0, value_parser = parse_whole, allow_negative_numbers = true)]
        seed: u64,
        /// Vertices and edges relative to the real dataset, above 0 and at most 100 (mag only)
        #[arg(long, value_name = "TIMES", default_value_t = 1.0, value_parser = parse_number, allow_negative_numbers = true)]
        scale: f64,
    },
}

/// The layer of a model to begin with.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Two layers of R-GCN over all relations
    Rgcn,
    /// HAN over metapaths
    Han,
}

impl Layer {
    /// The library's word for it.
    pub fn of_starter(self) -> hgnnc::StarterLayer {
        match self {
            Layer::Rgcn => hgnnc::StarterLayer::Rgcn,
            Layer::Han => hgnnc::StarterLayer::Han,
        }
    }
}

/// How a dataset is split.
#[derive(ClapArgs, Debug)]
#[command(group = ArgGroup::new("divided").required(true).args(["vertices", "edges", "links"]))]
#[command(group = ArgGroup::new("labelled").args(["vertices", "edges"]))]
#[command(group = ArgGroup::new("reversible").args(["edges", "links"]))]
pub struct SplitArgs {
    /// Folder of the dataset, which stays as it is
    pub dir: PathBuf,
    /// Folder to write: the dataset with the split
    pub out: PathBuf,
    /// Split the labelled vertices of this type
    #[arg(long, value_name = "TYPE")]
    pub vertices: Option<String>,
    /// Split the labelled edges of this relation; all edges stay in the graph
    #[arg(long, value_name = "RELATION")]
    pub edges: Option<String>,
    /// The label of that type or relation, if there are several
    #[arg(long, value_name = "NAME", requires = "labelled", conflicts_with = "links")]
    pub label: Option<String>,
    /// Hold out links of this relation; may be repeated
    #[arg(long, value_name = "RELATION")]
    pub links: Vec<String>,
    /// Edges of REVERSE are reverses of those of RELATION: they are held out with links, and labelled ones are in the part of
    /// the edges. A relation with all reverses is found without this; RELATION=RELATION: it is symmetric
    #[arg(long, value_name = "RELATION=REVERSE", value_parser = parse_reverse, requires = "reversible",
        conflicts_with = "vertices")]
    pub reverse: Vec<(String, String)>,
    /// Share to train on; what the others leave unless given
    #[arg(long, value_name = "SHARE", value_parser = parse_number, allow_negative_numbers = true)]
    pub train: Option<f64>,
    /// Share to validate on
    #[arg(long, value_name = "SHARE", value_parser = parse_number, default_value_t = 0.1, allow_negative_numbers = true)]
    pub val: f64,
    /// Share to test on; 0.1, or what `--train` leaves, unless given
    #[arg(long, value_name = "SHARE", value_parser = parse_number, allow_negative_numbers = true)]
    pub test: Option<f64>,
    /// The order in which the parts are filled: by chance, or by the time of vertices or edges, the earliest to train on; of links,
    /// by events: each edge is a link at its time, also where a pair comes again, for models with a `cutoff`
    #[arg(long, value_enum, default_value_t = SplitBy::Random)]
    pub by: SplitBy,
    /// Divide each class by itself, so that all parts have equal shares of it
    #[arg(long, requires = "labelled", conflicts_with = "links")]
    pub by_class: bool,
    /// Write two datasets: OUT/seen without the test vertices, to train on, and OUT/whole
    #[arg(long, requires = "vertices", conflicts_with_all = ["edges", "links"])]
    pub inductive: bool,
    /// Seed of what is drawn
    #[arg(long, default_value_t = 0, value_parser = parse_whole, allow_negative_numbers = true)]
    pub seed: u64,
    /// Name of the split
    #[arg(long, default_value = "standard")]
    pub name: String,
}

/// How a dataset is partitioned.
#[derive(ClapArgs, Debug)]
pub struct PartitionArgs {
    /// Folder of the dataset, which stays as it is
    pub dir: PathBuf,
    /// Number of processes that the vertices are divided among
    #[arg(long, value_name = "N", value_parser = parse_within::<1, { MOST_RANKS as u64 }>, allow_negative_numbers = true)]
    pub ranks: u64,
    /// Folder of the partitioned dataset, which is made
    #[arg(short, long, value_name = "PARTS")]
    pub out: PathBuf,
    /// How vertices are assigned to ranks
    #[arg(long, value_name = "WAY", default_value = By::ALL[0].name(), value_parser = listed(By::ALL, By::name, By::about))]
    pub by: By,
    /// Times that the vertices are streamed; more cut fewer edges
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = parse_within::<1, { MOST_PASSES as u64 }>,
        allow_negative_numbers = true)]
    pub passes: u64,
    /// Only the relations that this model reads decide, and the training vertices of its split are balanced
    #[arg(long, value_name = "FILE.hgnn")]
    pub model: Option<PathBuf>,
    /// Stream the vertices in an order that is drawn from this seed, instead of the stored one; the seed of `--by hash`
    #[arg(long, value_parser = parse_whole, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Continue an interrupted run of the same options
    #[arg(long)]
    pub resume: bool,
}

/// The order in which the parts of a split are filled.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitBy {
    /// Chance
    Random,
    /// Time
    Time,
    /// The time of each edge, of links
    Events,
}

/// A parser of the names of a list, with their lines of help.
fn listed<T: Copy + Send + Sync + 'static, const N: usize>(
    all: [T; N],
    name: fn(T) -> &'static str,
    about: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(all.map(|of| PossibleValue::new(name(of)).help(about(of))));
    names.try_map(move |found| all.into_iter().find(|&of| name(of) == found).ok_or("is not in the list"))
}

/// Parses `RELATION=REVERSE`.
fn parse_reverse(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((relation, reverse)) if !relation.is_empty() && !reverse.is_empty() => {
            Ok((relation.into(), reverse.into()))
        }
        _ => Err("write RELATION=REVERSE".into()),
    }
}
