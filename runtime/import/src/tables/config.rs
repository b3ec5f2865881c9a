//! `import.toml`: what the tables hold. `docs/import.md` describes it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub name: Option<String>,
    pub title: Option<String>,
    /// Texts that stand for a missing value.
    #[serde(default = "missing_values")]
    pub missing_values: Vec<String>,
    pub vertex_type: Vec<VertexType>,
    #[serde(default)]
    pub relation: Vec<Relation>,
    #[serde(default)]
    pub link_split: Vec<LinkSplit>,
}

fn missing_values() -> Vec<String> {
    ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"].map(String::from).to_vec()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VertexType {
    pub name: String,
    /// Without files its vertices come from the edges.
    pub files: Option<OneOrMore>,
    pub separator: Option<char>,
    /// Names of the columns of files without a header.
    pub columns: Option<Vec<String>>,
    /// Columns of the key; without them a vertex is known by the number of its row.
    pub id: Option<OneOrMore>,
    #[serde(default)]
    pub duplicates: DuplicateIds,
    #[serde(default)]
    pub features: Vec<Features>,
    pub time: Option<String>,
    #[serde(default)]
    pub label: Several<Label>,
    #[serde(default)]
    pub split: Several<Split>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum DuplicateIds {
    #[default]
    Error,
    /// The first row counts.
    First,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Features {
    #[serde(alias = "column")]
    pub columns: OneOrMore,
    pub scale: Option<Scale>,
    pub missing: Option<Missing>,
    #[serde(default)]
    pub one_hot: bool,
    pub buckets: Option<Vec<f64>>,
    /// Whether a cell holds a vector of numbers, between separators.
    #[serde(default)]
    pub vector: bool,
    pub separator: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scale {
    /// Mean 0, deviation 1.
    Standard,
    /// From 0 to 1.
    MinMax,
    None,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Missing {
    Value(f64),
    Word(MissingWord),
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum MissingWord {
    Error,
    Mean,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Label {
    #[serde(alias = "column")]
    pub columns: OneOrMore,
    pub name: Option<String>,
    #[serde(default)]
    pub kind: LabelKind,
    /// Between the classes of a cell, of `multi`.
    pub separator: Option<String>,
    /// Bounds of numbers: a class for each bucket.
    pub buckets: Option<Vec<f64>>,
    /// Names of the classes in their order.
    pub class_names: Option<Vec<String>>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum LabelKind {
    #[default]
    Single,
    Multi,
    Real,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Split {
    pub name: Option<String>,
    /// A column that says `train`, `val` or `test`.
    pub column: Option<String>,
    /// A column by whose order the shares are taken; without it they are drawn.
    pub by: Option<String>,
    pub train: Option<Part>,
    pub val: Option<Part>,
    pub test: Option<Part>,
    #[serde(default)]
    pub seed: u64,
}

impl Label {
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("y")
    }
}

impl Split {
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(if self.column.is_some() { "given" } else { "standard" })
    }
}

/// A table, or an array of them.
pub(super) struct Several<T>(Vec<T>);

impl<T> Several<T> {
    pub fn list(&self) -> &[T] {
        &self.0
    }
}

impl<T> Default for Several<T> {
    fn default() -> Self {
        Several(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Several<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Tables<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Tables<T> {
            type Value = Several<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table, or an array of tables")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Several<T>, A::Error> {
                Ok(Several(vec![T::deserialize(MapAccessDeserializer::new(map))?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Several<T>, A::Error> {
                Ok(Several(Vec::deserialize(SeqAccessDeserializer::new(seq))?))
            }
        }
        deserializer.deserialize_any(Tables(PhantomData))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Part {
    Share(f64),
    /// Ids, one in each line.
    File(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Relation {
    pub name: String,
    pub src: String,
    pub dst: String,
    /// Columns of the table of the sources that hold the key of a destination.
    pub key: Option<OneOrMore>,
    pub files: Option<OneOrMore>,
    pub separator: Option<char>,
    pub columns: Option<Vec<String>>,
    pub src_key: Option<OneOrMore>,
    pub dst_key: Option<OneOrMore>,
    pub weight: Option<String>,
    pub time: Option<String>,
    /// Columns of numbers, taken as they are.
    pub features: Option<OneOrMore>,
    #[serde(default)]
    pub unknown: Unknown,
    #[serde(default)]
    pub duplicates: DuplicateEdges,
}

/// Links that are held out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LinkSplit {
    pub name: String,
    /// The relation of all links.
    pub relation: Option<String>,
    /// The column that names the relation of each link.
    pub column: Option<String>,
    pub val: Option<OneOrMore>,
    pub test: Option<OneOrMore>,
    pub separator: Option<char>,
    pub columns: Option<Vec<String>>,
    pub src_key: OneOrMore,
    pub dst_key: OneOrMore,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unknown {
    #[default]
    Error,
    Skip,
    Add,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(super) enum DuplicateEdges {
    #[default]
    Keep,
    Drop,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    pub fn list(&self) -> &[String] {
        match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(all) => all,
        }
    }
}
