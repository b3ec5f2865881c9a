//! What can be wrong with a dataset, in the words of the person who wrote it.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::npy::{Dtype, NpyProblem};

/// One thing that is wrong with a dataset. Messages name the file and the field of `dataset.toml` that names it.
///
/// `at` is the table the field stands in, such as ``relation `paper-author` ``; `field` is its key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The folder is not there, or has no readable `dataset.toml`.
    #[error("{reason}")]
    NotADataset {
        /// The folder that was to be loaded.
        folder: PathBuf,
        /// The missing folder or file, with its name.
        reason: String,
    },
    /// `dataset.toml` is not TOML.
    #[error("dataset.toml is not valid TOML: {message}")]
    Toml {
        /// The parser's message, with line and column.
        message: String,
    },
    /// A key that must be there is not.
    #[error("dataset.toml: {at} has no `{field}` (expected {expected})")]
    MissingField {
        /// Table.
        at: String,
        /// Key.
        field: String,
        /// What the value should be.
        expected: String,
    },
    /// A value has the wrong type or is not one of those allowed.
    #[error("dataset.toml: `{field}` of {at} should be {expected}, but is {found}")]
    BadField {
        /// Table.
        at: String,
        /// Key.
        field: String,
        /// What the value should be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A name that refers to nothing.
    #[error("dataset.toml: `{field}` of {at} is `{name}`, but there is no {what} of that name (there is {known})")]
    UnknownName {
        /// Table.
        at: String,
        /// Key.
        field: String,
        /// The name.
        name: String,
        /// What it should name: `vertex type` or `relation`.
        what: String,
        /// The names that exist.
        known: String,
    },
    /// Two things of one kind share a name.
    #[error("dataset.toml: two {what} are called `{name}`")]
    Duplicate {
        /// Kind, in the plural.
        what: String,
        /// The name.
        name: String,
    },
    /// A file that `dataset.toml` names does not exist.
    #[error("`{file}` does not exist (named by `{field}` of {at})")]
    MissingFile {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Key.
        field: String,
    },
    /// A file is truncated, malformed or unreadable.
    #[error("`{file}` (`{field}` of {at}) {problem}")]
    Npy {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Key.
        field: String,
        /// What is wrong.
        problem: NpyProblem,
    },
    /// A file has another element type than the format asks for.
    #[error("`{file}` (`{field}` of {at}) should be {expected}, but is {found}")]
    Dtype {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Key.
        field: String,
        /// Types that are accepted.
        expected: String,
        /// The file's.
        found: Dtype,
    },
    /// A file has another shape than the format asks for.
    #[error("`{file}` (`{field}` of {at}) should have shape {expected}, but has {found:?}")]
    Shape {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Key.
        field: String,
        /// Shape asked for, with its meaning.
        expected: String,
        /// The file's.
        found: Vec<usize>,
    },
    /// A count declared in `dataset.toml` is not what the files hold.
    #[error("dataset.toml: `{field}` of {at} says {declared}, but `{file}` has {found}")]
    WrongCount {
        /// Table.
        at: String,
        /// Key.
        field: String,
        /// Count in `dataset.toml`.
        declared: u64,
        /// File name as written.
        file: String,
        /// Count in the file.
        found: u64,
    },
    /// An id is negative or not below the size of what it points into.
    #[error(
        "`{file}`: {at}, {what} of {place} is {value}, but {bound_of} has {bound}, so {}{}",
        id_range(*bound), and_more(*more)
    )]
    IdOutOfRange {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Which id: `source`, `destination`, `relation`, `vertex`.
        what: String,
        /// Where: `edge 17`, `position 3`.
        place: String,
        /// The id.
        value: i64,
        /// What it points into, such as ``vertex type `author` ``.
        bound_of: String,
        /// Its size.
        bound: u64,
        /// How many other ids of this file are wrong too.
        more: usize,
    },
    /// NaN or infinity.
    #[error("`{file}`: {at}, row {row}, column {column} is {value}{}", and_more(*more))]
    NotFinite {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Row (vertex or edge).
        row: usize,
        /// Column.
        column: usize,
        /// The value.
        value: f32,
        /// How many other values of this file are not finite.
        more: usize,
    },
    /// Row offsets of sparse features that do not start at 0.
    #[error("`{file}`: {at}: `indptr` should start at 0, but starts at {found}")]
    IndptrStart {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// First offset.
        found: i64,
    },
    /// Row offsets of sparse features that go down.
    #[error("`{file}`: {at}: `indptr` goes down from {from} to {to} at row {row}")]
    IndptrDecreases {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Row that starts at `from` and would end at `to`.
        row: usize,
        /// Start of the row.
        from: i64,
        /// End of the row.
        to: i64,
    },
    /// Row offsets of sparse features that do not end at the number of stored values.
    #[error("`{file}`: {at}: `indptr` should end at the {expected} stored values, but ends at {found}")]
    IndptrEnd {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Stored values.
        expected: u64,
        /// Last offset.
        found: i64,
    },
    /// Columns of a sparse row are not strictly ascending.
    #[error(
        "`{file}`: {at}, row {row}: column {column} follows column {previous}; columns must ascend without duplicates"
    )]
    ColumnOrder {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Row.
        row: usize,
        /// Column before.
        previous: u32,
        /// Column that should be larger.
        column: u32,
    },
    /// A class id that is neither -1 nor a class.
    #[error(
        "`{file}`: {at}, row {row} is class {value}, but there are {classes} classes (0 to {}, or -1 for none){}",
        classes.saturating_sub(1), and_more(*more)
    )]
    LabelOutOfRange {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Vertex.
        row: usize,
        /// The class id.
        value: i64,
        /// Number of classes.
        classes: usize,
        /// How many other rows are wrong too.
        more: usize,
    },
    /// A multi-label entry that is neither 0 nor 1, or a mask entry of that kind.
    #[error("`{file}`: {at}, row {row}, column {column} is {value}, but should be {expected}")]
    NotZeroOne {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// Vertex.
        row: usize,
        /// Class.
        column: usize,
        /// The value.
        value: f64,
        /// What is allowed.
        expected: String,
    },
    /// A split names a vertex that has no label.
    #[error(
        "`{file}`: {at}, position {position} of `{part}` is vertex {vertex}, which has no label{}",
        and_more(*more)
    )]
    SplitUnlabelled {
        /// File name as written.
        file: String,
        /// Table.
        at: String,
        /// `train`, `val` or `test`.
        part: String,
        /// Position in the file.
        position: usize,
        /// The vertex.
        vertex: u32,
        /// How many others of this part have none.
        more: usize,
    },
    /// Two parts of a split share a vertex, or one part has it twice.
    #[error("{at}: vertex {vertex} is {}{}", twice(first, second), and_more(*more))]
    SplitOverlap {
        /// Table.
        at: String,
        /// Part.
        first: String,
        /// Other part, or the same one.
        second: String,
        /// The smallest shared vertex.
        vertex: u32,
        /// How many others are shared.
        more: usize,
    },
    /// Links that are in two parts of a split, or twice in one.
    #[error(
        "{at}: {} {}, such as {src} -> {dst} of relation `{relation}`", links_are(*links), shared_links(first, second)
    )]
    LinkOverlap {
        /// Table.
        at: String,
        /// Part; the edges of the relation are `train`.
        first: String,
        /// Other part, or the same one.
        second: String,
        /// Number of different links.
        links: usize,
        /// Relation of the first of them.
        relation: String,
        /// Its source.
        src: u32,
        /// Its destination.
        dst: u32,
    },
    /// Edges of a relation that holds links a second time, which repeat held-out links.
    #[error(
        "{at}: {edges} edge{} of relation `{relation}`, which repeats links by `exclude`, repeat{} links of `{part}`, such as \
         {src} -> {dst}; what is held out must not carry messages",
        if *edges == 1 { "" } else { "s" }, if *edges == 1 { "s" } else { "" }
    )]
    LinkRepeated {
        /// Table of the split.
        at: String,
        /// `val` or `test`.
        part: String,
        /// Number of different edges.
        edges: usize,
        /// The relation that repeats links.
        relation: String,
        /// Source of its first such edge.
        src: u32,
        /// Destination of that edge.
        dst: u32,
    },
    /// Steps of a metapath that do not join.
    #[error(
        "dataset.toml: step {position} (`{step}`) of {at} starts at vertex type `{starts}`, but the step before it ends at `{ends}`"
    )]
    StepsDoNotJoin {
        /// Table.
        at: String,
        /// Which step, from 1.
        position: usize,
        /// The step as written.
        step: String,
        /// Vertex type at which it starts.
        starts: String,
        /// Vertex type at which the step before ends.
        ends: String,
    },
}

fn id_range(bound: u64) -> String {
    match bound.checked_sub(1) {
        Some(last) => format!("ids go from 0 to {last}"),
        None => "there are no ids".to_string(),
    }
}

/// Where a vertex of a split is twice.
fn twice(first: &str, second: &str) -> String {
    if first == second { format!("twice in `{first}`") } else { format!("in both `{first}` and `{second}`") }
}

fn links_are(links: usize) -> String {
    if links == 1 { "1 link is".to_string() } else { format!("{links} links are") }
}

/// Where links are that are in two places.
fn shared_links(first: &str, second: &str) -> String {
    match (first, second) {
        ("train", part) => format!("in both `train` (the edges of the relation) and `{part}`"),
        _ => twice(first, second),
    }
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" (and {more} more)") }
}

/// Everything that is wrong with a dataset; never empty. Displays the first 20 errors, one per line.
#[derive(Clone, Debug, PartialEq)]
pub struct DataErrors {
    /// The folder that was to be loaded.
    pub folder: PathBuf,
    /// All errors, in the order of `dataset.toml`.
    pub errors: Vec<DataError>,
}

impl DataErrors {
    /// How many errors `Display` lists.
    pub const LISTED: usize = 20;
}

impl DataErrors {
    /// The error of a folder that has no `dataset.toml`, or of one that is not there.
    pub fn not_a_dataset(folder: &Path) -> DataErrors {
        let name = folder.display();
        let reason = match std::fs::metadata(folder) {
            Ok(found) if found.is_dir() => format!("`{name}` is not a dataset: it has no `dataset.toml`"),
            Ok(_) => format!("`{name}` is a file: name the folder of a dataset"),
            Err(error) if error.kind() == ErrorKind::NotFound => format!("there is no folder `{name}`"),
            Err(error) => format!("the folder `{name}` cannot be read: {error}"),
        };
        let folder = folder.to_path_buf();
        DataErrors { folder: folder.clone(), errors: vec![DataError::NotADataset { folder, reason }] }
    }
}

impl fmt::Display for DataErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.errors.len();
        if let [DataError::NotADataset { .. }] = &self.errors[..] {
            return self.errors[0].fmt(f);
        }
        write!(f, "dataset `{}` has {n} error{}:", self.folder.display(), if n == 1 { "" } else { "s" })?;
        for error in self.errors.iter().take(Self::LISTED) {
            write!(f, "\n  {error}")?;
        }
        if n > Self::LISTED {
            write!(f, "\n  … and {} more", n - Self::LISTED)?;
        }
        Ok(())
    }
}

impl std::error::Error for DataErrors {}
