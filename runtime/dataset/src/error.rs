//! Faults in a dataset, reported in terms of its files and fields.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::npy::{Dtype, NpyProblem};

/// One fault in a dataset. Messages name the file and the field of `dataset.toml` that names it.
///
/// `at` is the table of the field, such as ``relation `paper-author` ``; `field` is its key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum DataError {
    /// The folder does not exist, or has no readable `dataset.toml`.
    #[error("{reason}")]
    NotADataset {
        /// The folder that was to be loaded.
        folder: PathBuf,
        /// Missing folder or file, with its name.
        reason: String,
    },
    /// `dataset.toml` is not TOML.
    #[error("dataset.toml is not valid TOML: {message}")]
    Toml {
        /// The parser's message, with line and column.
        message: String,
    },
    /// A required key is missing.
    #[error("dataset.toml: {at} has no `{field}` (expected {expected})")]
    MissingField {
        at: String,
        field: String,
        /// Expected value, in words.
        expected: String,
    },
    /// A value has the wrong type or is not one of the allowed values.
    #[error("dataset.toml: `{field}` of {at} should be {expected}, but is {found}")]
    BadField {
        at: String,
        field: String,
        /// Expected value, in words.
        expected: String,
        found: String,
    },
    /// A name refers to nothing.
    #[error("dataset.toml: `{field}` of {at} is `{name}`, but there is no {what} of that name (there is {known})")]
    UnknownName {
        at: String,
        field: String,
        name: String,
        /// Kind of item that it should name: `vertex type` or `relation`.
        what: String,
        /// The names that exist.
        known: String,
    },
    /// Two items of one kind share a name.
    #[error("dataset.toml: two {what} are called `{name}`")]
    Duplicate {
        /// Kind of the items, in the plural.
        what: String,
        name: String,
    },
    /// A file that `dataset.toml` names does not exist.
    #[error("`{file}` does not exist (named by `{field}` of {at})")]
    MissingFile {
        /// File name as written.
        file: String,
        at: String,
        field: String,
    },
    /// A file is truncated, malformed or unreadable.
    #[error("`{file}` (`{field}` of {at}) {problem}")]
    Npy {
        /// File name as written.
        file: String,
        at: String,
        field: String,
        problem: NpyProblem,
    },
    /// A file has an element type that the format does not allow here.
    #[error("`{file}` (`{field}` of {at}) should be {expected}, but is {found}")]
    Dtype {
        /// File name as written.
        file: String,
        at: String,
        field: String,
        /// Types that are accepted.
        expected: String,
        found: Dtype,
    },
    /// A file has another shape than the format requires.
    #[error("`{file}` (`{field}` of {at}) should have shape {expected}, but has {found:?}")]
    Shape {
        /// File name as written.
        file: String,
        at: String,
        field: String,
        /// Required shape, with its meaning.
        expected: String,
        found: Vec<usize>,
    },
    /// A count declared in `dataset.toml` differs from the files.
    #[error("dataset.toml: `{field}` of {at} says {declared}, but `{file}` has {found}")]
    WrongCount {
        at: String,
        field: String,
        declared: u64,
        /// File name as written.
        file: String,
        /// Count in the file.
        found: u64,
    },
    /// An id is negative or not below the bound.
    #[error(
        "`{file}`: {at}, {what} of {place} is {value}, but {bound_of} has {bound}, so {}{}",
        id_range(*bound), and_more(*more)
    )]
    IdOutOfRange {
        /// File name as written.
        file: String,
        at: String,
        /// Role of the id: `source`, `destination`, `relation`, `vertex`.
        what: String,
        /// Position of the id: `edge 17`, `position 3`.
        place: String,
        value: i64,
        /// The indexed set, such as ``vertex type `author` ``.
        bound_of: String,
        /// Exclusive upper bound of the id.
        bound: u64,
        /// Number of further out-of-range ids in this file.
        more: usize,
    },
    /// A value is NaN or infinite.
    #[error("`{file}`: {at}, row {row}, column {column} is {value}{}", and_more(*more))]
    NotFinite {
        /// File name as written.
        file: String,
        at: String,
        /// Row (vertex or edge).
        row: usize,
        column: usize,
        value: f32,
        /// Number of further non-finite values in this file.
        more: usize,
    },
    /// The row offsets of sparse features do not start at 0.
    #[error("`{file}`: {at}: `indptr` should start at 0, but starts at {found}")]
    IndptrStart {
        /// File name as written.
        file: String,
        at: String,
        found: i64,
    },
    /// The row offsets of sparse features decrease.
    #[error("`{file}`: {at}: `indptr` goes down from {from} to {to} at row {row}")]
    IndptrDecreases {
        /// File name as written.
        file: String,
        at: String,
        /// Row with start `from` and end `to`.
        row: usize,
        /// Start of the row.
        from: i64,
        /// End of the row.
        to: i64,
    },
    /// The last row offset of sparse features differs from the number of stored values.
    #[error("`{file}`: {at}: `indptr` should end at the {expected} stored values, but ends at {found}")]
    IndptrEnd {
        /// File name as written.
        file: String,
        at: String,
        expected: u64,
        found: i64,
    },
    /// The offsets or bytes of text ids do not fit each other.
    #[error("`{file}`: {at}: it {problem}")]
    Ids {
        /// File name as written.
        file: String,
        at: String,
        problem: String,
    },
    /// The columns of a sparse row are not strictly ascending.
    #[error(
        "`{file}`: {at}, row {row}: column {column} follows column {previous}; columns must ascend without duplicates"
    )]
    ColumnOrder {
        /// File name as written.
        file: String,
        at: String,
        row: usize,
        /// Column of the previous entry.
        previous: u32,
        /// Column that is not larger.
        column: u32,
    },
    /// A class id is neither -1 nor a class.
    #[error(
        "`{file}`: {at}, row {row} is class {value}, but there are {classes} classes (0 to {}, or -1 for none){}",
        classes.saturating_sub(1), and_more(*more)
    )]
    LabelOutOfRange {
        /// File name as written.
        file: String,
        at: String,
        row: usize,
        value: i64,
        classes: usize,
        /// Number of further bad rows.
        more: usize,
    },
    /// A multi-label or mask entry is neither 0 nor 1.
    #[error("`{file}`: {at}, row {row}, column {column} is {value}, but should be {expected}")]
    NotZeroOne {
        /// File name as written.
        file: String,
        at: String,
        row: usize,
        column: usize,
        value: f64,
        expected: String,
    },
    /// A split names a vertex or edge without a label.
    #[error(
        "`{file}`: {at}, position {position} of `{part}` is {what} {row}, which has no label{}",
        and_more(*more)
    )]
    SplitUnlabelled {
        /// File name as written.
        file: String,
        at: String,
        /// `train`, `val` or `test`.
        part: String,
        /// Position in the file.
        position: usize,
        /// The kind of the rows: `vertex` or `edge`.
        what: &'static str,
        row: u32,
        /// Number of further rows of this part without a label.
        more: usize,
    },
    /// Two parts of a split share a vertex or edge, or one part contains it twice.
    #[error("{at}: {what} {row} is {}{}", twice(first, second), and_more(*more))]
    SplitOverlap {
        at: String,
        /// Name of the first part.
        first: String,
        /// Name of the second part, which may be the same.
        second: String,
        /// The kind of the rows: `vertex` or `edge`.
        what: &'static str,
        /// The smallest shared row.
        row: u32,
        /// Number of further shared rows.
        more: usize,
    },
    /// Links occur in two parts of a split, or twice in one part.
    #[error(
        "{at}: {} {}, such as {src} -> {dst} of relation `{relation}`", links_are(*links), shared_links(first, second)
    )]
    LinkOverlap {
        at: String,
        /// Name of the first part; `train` stands for the edges of the relation.
        first: String,
        /// Name of the second part, which may be the same.
        second: String,
        /// Number of distinct links.
        links: usize,
        /// Relation of the first such link.
        relation: String,
        /// Source of that link.
        src: u32,
        /// Destination of that link.
        dst: u32,
    },
    /// Edges of a relation that duplicates links repeat held-out links.
    #[error(
        "{at}: {edges} edge{} of relation `{relation}`, which repeats links by `exclude`, repeat{} links of `{part}`, such as \
         {src} -> {dst}; what is held out must not carry messages",
        if *edges == 1 { "" } else { "s" }, if *edges == 1 { "s" } else { "" }
    )]
    LinkRepeated {
        /// Table of the split.
        at: String,
        part: String,
        /// Number of distinct edges.
        edges: usize,
        /// The relation that duplicates links.
        relation: String,
        /// Source of its first such edge.
        src: u32,
        /// Destination of that edge.
        dst: u32,
    },
    /// An array, a name or a number that was given to a builder cannot be used.
    #[error("`{key}`: {problem}")]
    Given {
        /// Key under which the value was given.
        key: String,
        problem: String,
    },
    /// The steps of a metapath do not join.
    #[error(
        "dataset.toml: step {position} (`{step}`) of {at} starts at vertex type `{starts}`, but the step before it ends at `{ends}`"
    )]
    StepsDoNotJoin {
        at: String,
        /// Number of the step, from 1.
        position: usize,
        /// The step as written.
        step: String,
        /// Vertex type at which the step starts.
        starts: String,
        /// Vertex type at which the previous step ends.
        ends: String,
    },
}

fn id_range(bound: u64) -> String {
    match bound.checked_sub(1) {
        Some(last) => format!("ids go from 0 to {last}"),
        None => "there are no ids".to_string(),
    }
}

/// Text on the parts that share a vertex.
fn twice(first: &str, second: &str) -> String {
    if first == second { format!("twice in `{first}`") } else { format!("in both `{first}` and `{second}`") }
}

fn links_are(links: usize) -> String {
    if links == 1 { "1 link is".to_string() } else { format!("{links} links are") }
}

/// Text on the parts that share links.
fn shared_links(first: &str, second: &str) -> String {
    match (first, second) {
        ("train", part) => format!("in both `train` (the edges of the relation) and `{part}`"),
        _ => twice(first, second),
    }
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(" (and {more} more)") }
}

/// All faults of a dataset; never empty. Displays the first 20, one per line.
#[derive(Clone, Debug, PartialEq)]
pub struct DataErrors {
    /// The folder that was to be loaded; empty for a dataset built in memory.
    pub folder: PathBuf,
    /// All faults, in the order of `dataset.toml`.
    pub errors: Vec<DataError>,
}

impl DataErrors {
    /// Number of faults that `Display` lists.
    pub const LISTED: usize = 20;
}

impl DataErrors {
    /// The error for a folder that does not exist or has no `dataset.toml`.
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
        match self.folder.as_os_str().is_empty() {
            true => f.write_str("the dataset")?,
            false => write!(f, "dataset `{}`", self.folder.display())?,
        }
        write!(f, " has {n} error{}:", if n == 1 { "" } else { "s" })?;
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
