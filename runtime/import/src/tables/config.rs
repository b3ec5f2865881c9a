//! `import.toml`: what the tables hold. `docs/import.md` describes it.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::files::Format;

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
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

pub(crate) fn missing_values() -> Vec<String> {
    ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"].map(String::from).to_vec()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VertexType {
    pub name: String,
    /// Without files its vertices come from the edges.
    pub files: Option<OneOrMore>,
    pub separator: Option<char>,
    pub format: Option<Format>,
    /// Names of the columns of files without a header.
    pub columns: Option<Vec<String>>,
    /// Columns of the key; without them a vertex is known by the number of its row.
    pub id: Option<OneOrMore>,
    #[serde(default)]
    pub duplicates: DuplicateIds,
    #[serde(default)]
    pub order: Order,
    #[serde(default)]
    pub features: Vec<Features>,
    pub time: Option<String>,
    #[serde(default)]
    pub label: Several<Label>,
    #[serde(default)]
    pub split: Several<Split>,
    /// Tables of further columns of the same rows.
    #[serde(default)]
    pub more: Vec<More>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// That of the rows.
    #[default]
    Rows,
    /// That of the ids.
    Ids,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct More {
    pub files: OneOrMore,
    pub separator: Option<char>,
    pub format: Option<Format>,
    pub columns: Option<Vec<String>>,
    #[serde(default)]
    pub features: Vec<Features>,
    #[serde(default)]
    pub label: Several<Label>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DuplicateIds {
    #[default]
    Error,
    /// The first row counts.
    First,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Features {
    #[serde(alias = "column")]
    pub columns: OneOrMore,
    pub scale: Option<Scale>,
    pub missing: Option<Missing>,
    /// The value that becomes 0 with `min_max`; the smallest one unless given.
    pub min: Option<f64>,
    /// The value that becomes 1 with `min_max`.
    pub max: Option<f64>,
    /// Lower and upper bound of valid values. Only layouts that clip values there have them.
    #[serde(skip)]
    pub(crate) limits: [Option<f64>; 2],
    #[serde(default)]
    pub one_hot: bool,
    /// The categories of `one_hot`, in this order; others have no feature.
    pub categories: Option<Vec<String>>,
    pub buckets: Option<Vec<f64>>,
    /// Whether a cell holds a vector of numbers, between separators.
    #[serde(default)]
    pub vector: bool,
    pub separator: Option<String>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scale {
    /// Mean 0, deviation 1.
    Standard,
    /// From 0 to 1.
    MinMax,
    /// Divided by the sum of the column.
    Sum,
    None,
}

#[derive(Clone)]
pub(crate) enum Missing {
    Value(f64),
    Word(MissingWord),
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum MissingWord {
    Error,
    Mean,
}

impl<'de> Deserialize<'de> for Missing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Missing, D::Error> {
        struct Value;
        impl Visitor<'_> for Value {
            type Value = Missing;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`\"error\"`, `\"mean\"` or a number")
            }

            fn visit_i64<E: de::Error>(self, x: i64) -> Result<Missing, E> {
                Ok(Missing::Value(x as f64))
            }

            fn visit_u64<E: de::Error>(self, x: u64) -> Result<Missing, E> {
                Ok(Missing::Value(x as f64))
            }

            fn visit_f64<E: de::Error>(self, x: f64) -> Result<Missing, E> {
                Ok(Missing::Value(x))
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<Missing, E> {
                match word {
                    "error" => Ok(Missing::Word(MissingWord::Error)),
                    "mean" => Ok(Missing::Word(MissingWord::Mean)),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
        }
        deserializer.deserialize_any(Value)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Label {
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
pub(crate) enum LabelKind {
    #[default]
    Single,
    Multi,
    Real,
    /// One of these, by what the column holds. Only layouts that do not say it have this one.
    #[serde(skip)]
    AsFound,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Split {
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
        let parts = [&self.train, &self.val, &self.test];
        let is_given = self.column.is_some() || parts.iter().any(|part| matches!(part, Some(Part::Mask(_))));
        self.name.as_deref().unwrap_or(if is_given { "given" } else { "standard" })
    }

    /// The files that name its parts.
    pub fn files(&self) -> impl Iterator<Item = &String> {
        [&self.train, &self.val, &self.test].into_iter().filter_map(|part| match part {
            Some(Part::File(file)) => Some(file),
            _ => None,
        })
    }
}

/// A table, or an array of them.
pub(crate) struct Several<T>(Vec<T>);

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

impl<T> From<Option<T>> for Several<T> {
    fn from(one: Option<T>) -> Self {
        Several(one.into_iter().collect())
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

#[derive(Clone)]
pub(crate) enum Part {
    Share(f64),
    /// Ids, one in each line.
    File(String),
    Mask(Mask),
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Part, D::Error> {
        struct Value;
        impl<'de> Visitor<'de> for Value {
            type Value = Part;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share, the name of a file, or `{ mask = \"…\" }`")
            }

            fn visit_i64<E: de::Error>(self, share: i64) -> Result<Part, E> {
                Ok(Part::Share(share as f64))
            }

            fn visit_u64<E: de::Error>(self, share: u64) -> Result<Part, E> {
                Ok(Part::Share(share as f64))
            }

            fn visit_f64<E: de::Error>(self, share: f64) -> Result<Part, E> {
                Ok(Part::Share(share))
            }

            fn visit_str<E: de::Error>(self, file: &str) -> Result<Part, E> {
                Ok(Part::File(file.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Part, A::Error> {
                Mask::deserialize(MapAccessDeserializer::new(map)).map(Part::Mask)
            }
        }
        deserializer.deserialize_any(Value)
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mask {
    /// A column that is 1 for the rows of the part.
    pub mask: String,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Relation {
    pub name: String,
    pub src: String,
    pub dst: String,
    /// Columns of the table of the sources that hold the key of a destination.
    pub key: Option<OneOrMore>,
    pub files: Option<OneOrMore>,
    pub separator: Option<char>,
    pub format: Option<Format>,
    pub columns: Option<Vec<String>>,
    pub src_key: Option<OneOrMore>,
    pub dst_key: Option<OneOrMore>,
    pub weight: Option<String>,
    pub time: Option<String>,
    /// Columns of numbers, taken as they are, or tables as of vertices.
    #[serde(default)]
    pub features: EdgeFeatures,
    /// Labels of the edges.
    #[serde(default)]
    pub label: Several<Label>,
    /// With a label, parts of the labelled edges; otherwise links that are held out, of one split.
    #[serde(default)]
    pub split: Several<Split>,
    #[serde(default)]
    pub unknown: Unknown,
    #[serde(default)]
    pub duplicates: DuplicateEdges,
}

/// Links that are held out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkSplit {
    pub name: String,
    /// The relation of all links.
    pub relation: Option<String>,
    /// The column that names the relation of each link.
    pub column: Option<String>,
    pub val: Option<OneOrMore>,
    pub test: Option<OneOrMore>,
    pub separator: Option<char>,
    pub format: Option<Format>,
    pub columns: Option<Vec<String>>,
    pub src_key: OneOrMore,
    pub dst_key: OneOrMore,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unknown {
    #[default]
    Error,
    Skip,
    Add,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DuplicateEdges {
    #[default]
    Keep,
    Drop,
}

#[derive(Clone)]
pub(crate) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMore, D::Error> {
        struct Strings;
        impl<'de> Visitor<'de> for Strings {
            type Value = OneOrMore;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, or an array of strings")
            }

            fn visit_str<E: de::Error>(self, one: &str) -> Result<OneOrMore, E> {
                Ok(OneOrMore::One(one.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<OneOrMore, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(OneOrMore::More)
            }
        }
        deserializer.deserialize_any(Strings)
    }
}

impl OneOrMore {
    pub fn list(&self) -> &[String] {
        match self {
            OneOrMore::One(one) => std::slice::from_ref(one),
            OneOrMore::More(all) => all,
        }
    }
}

/// Features of edges: `"a"`, `["a", "b"]`, or tables as of vertices, also among names of columns.
#[derive(Default)]
pub(crate) struct EdgeFeatures(pub Vec<Features>);

impl EdgeFeatures {
    fn column(name: &str) -> Features {
        Features { columns: OneOrMore::One(name.to_owned()), ..Features::default() }
    }
}

impl<'de> Deserialize<'de> for EdgeFeatures {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<EdgeFeatures, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = EdgeFeatures;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a column, or a list of columns or tables")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<EdgeFeatures, E> {
                Ok(EdgeFeatures(vec![EdgeFeatures::column(name)]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<EdgeFeatures, A::Error> {
                let mut all = Vec::new();
                while let Some(Item(features)) = list.next_element()? {
                    all.push(features);
                }
                Ok(EdgeFeatures(all))
            }
        }
        deserializer.deserialize_any(List)
    }
}

/// A column, or a table of features.
struct Item(Features);

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
        struct One;
        impl<'de> Visitor<'de> for One {
            type Value = Item;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a column or a table of features")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Item, E> {
                Ok(Item(EdgeFeatures::column(name)))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Item, A::Error> {
                Features::deserialize(MapAccessDeserializer::new(map)).map(Item)
            }
        }
        deserializer.deserialize_any(One)
    }
}

impl Default for OneOrMore {
    fn default() -> OneOrMore {
        OneOrMore::More(Vec::new())
    }
}
