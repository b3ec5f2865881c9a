//! Configurations of GraphStorm's graph construction (`gconstruct-v0.1`) and the tables that they name.
//!
//! They are read as [`crate::tables`] are: the file is translated. What GraphStorm does and a dataset cannot keep (text
//! encoders, ranks, values that are cut off) is refused with the reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, files};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Faults, ImportError, shown};
use crate::files::Format;
use crate::progress::Progress;
use crate::settings::{self, Settings, relation_names};
use crate::tables::config::{
    Config, DuplicateIds, EdgeFeatures, Features, Label, LabelKind, More, OneOrMore, Part, Relation, Scale, Split,
    VertexType,
};
use crate::tables::{Words, read_config};
use crate::triples::name_of;

const WORDS: Words = Words {
    missing: "write a number, or leave the feature out of the configuration",
    duplicate: "ids of a type differ",
    unknown: "add its row, or leave such edges of `{}` out by `unknown = \"skip\"` of `--config` (`--skip-nonexist-edges` of GraphStorm)",
};

#[derive(Deserialize)]
struct Construct {
    #[serde(default)]
    version: Option<String>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    node_type: String,
    files: OneOrMore,
    format: TableFormat,
    node_id_col: Option<String>,
    #[serde(default)]
    features: Vec<Feature>,
    #[serde(default)]
    labels: Vec<LabelTask>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edge {
    relation: [String; 3],
    files: OneOrMore,
    format: TableFormat,
    source_id_col: Option<String>,
    dest_id_col: Option<String>,
    #[serde(default)]
    features: Vec<Feature>,
    #[serde(default)]
    labels: Vec<LabelTask>,
}

#[derive(Deserialize)]
struct TableFormat {
    name: String,
    separator: Option<char>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(
    dead_code,
    reason = "features of a type are one array of float32, so that names and types of parts have no use"
)]
struct Feature {
    feature_col: OneOrMore,
    feature_name: Option<String>,
    out_dtype: Option<String>,
    transform: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "statistics of labels have no use here")]
struct LabelTask {
    task_type: String,
    label_col: Option<String>,
    split_pct: Option<[f64; 3]>,
    custom_split_filenames: Option<SplitFiles>,
    label_stats_type: Option<String>,
    label_name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SplitFiles {
    train: Option<String>,
    valid: Option<String>,
    test: Option<String>,
    /// Columns of the ids, where the files are Parquet.
    #[allow(dead_code, reason = "their names are those of the table")]
    column: Option<OneOrMore>,
}

/// Reads a configuration, or the one JSON file of a folder.
///
/// # Errors
/// With all faults of the files.
pub(crate) fn read(
    source: &Path,
    config: Option<&Path>,
    graph: Option<&Dataset>,
    progress: &Progress,
) -> Result<Dataset, ImportError> {
    let settings: Settings = settings::read(config)?;
    let (folder, file) = if source.is_dir() {
        (source.to_path_buf(), only_json(source)?)
    } else {
        let folder = source.parent().filter(|parent| !parent.as_os_str().is_empty());
        (folder.unwrap_or(Path::new(".")).to_path_buf(), source.to_path_buf())
    };
    let text = files::read_to_string(&file).map_err(|error| Faults::one(&file, format!("cannot be read: {error}")))?;
    let construct: Construct = serde_json::from_str(&text).map_err(|error| {
        let mut faults = Faults::default();
        let line = (error.line() > 0).then_some(error.line() as u64);
        faults.add(&file, line, format!("is no configuration of GraphStorm's graph construction: {error}"));
        ImportError::Faults(faults)
    })?;
    let mut translation = Translation { file: &file, settings: &settings, faults: Faults::default() };
    let parsed = translation.config(&construct, name_of(source));
    translation.faults.or(())?;
    read_config(&folder, &file, &parsed, &WORDS, graph, progress)
}

/// The one JSON file of a folder that has `nodes` and `edges`: others are splits and tables.
fn only_json(folder: &Path) -> Result<PathBuf, ImportError> {
    let entries = std::fs::read_dir(folder).map_err(|error| Faults::one(folder, format!("cannot be read: {error}")))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json") && path.is_file())
        .filter(|path| {
            let text = files::read_to_string(path).unwrap_or_default();
            let head = text.trim_start();
            head.starts_with('{') && head.contains("\"nodes\"") && head.contains("\"edges\"")
        })
        .collect();
    found.sort();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Faults::one(
            folder,
            "there is no JSON file with `nodes` and `edges`: name the configuration of GraphStorm's graph construction",
        )),
        _ => {
            let names = found.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ");
            Err(Faults::one(folder, format!("there are several configurations: name one of {names}")))
        }
    }
}

struct Translation<'a> {
    file: &'a Path,
    settings: &'a Settings,
    faults: Faults,
}

impl Translation<'_> {
    fn wrong(&mut self, message: String) {
        self.faults.add(self.file, None, message);
    }

    fn config(&mut self, construct: &Construct, name: String) -> Config {
        if let Some(version) = construct.version.as_deref().filter(|version| *version != "gconstruct-v0.1") {
            self.wrong(format!("the version `{}` is not known: it is `gconstruct-v0.1`", shown(version)));
        }
        let types: Vec<[String; 3]> = construct.edges.iter().map(|edge| edge.relation.clone()).collect();
        for (i, ty) in types.iter().enumerate() {
            if types[..i].contains(ty) {
                let ty = shown(&ty.join(","));
                self.wrong(format!("there are several entries for the edges `{ty}`: put their columns into one table"));
            }
        }
        // A type may have entries without ids before and after the one that has them.
        let mut nodes: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
        let mut order: Vec<&str> = Vec::new();
        for node in &construct.nodes {
            let entries = nodes.entry(&node.node_type).or_default();
            if entries.is_empty() {
                order.push(&node.node_type);
            }
            entries.push(node);
        }
        let mut vertex_type: Vec<VertexType> =
            order.iter().map(|name| self.vertex_type(name, nodes.get(name).map_or(&[], |all| &all[..]))).collect();
        // Vertices of types without an entry are those that edges name.
        for name in types.iter().flat_map(|[src, _, dst]| [src, dst]) {
            if !vertex_type.iter().any(|known| known.name == *name) {
                vertex_type.push(VertexType { name: name.clone(), ..VertexType::default() });
            }
        }
        let names = relation_names(&types);
        let relation = construct.edges.iter().zip(names).map(|(edge, name)| self.relation(edge, name)).collect();
        Config {
            name: Some(self.settings.name.clone().unwrap_or(name)),
            title: self.settings.title.clone(),
            missing_values: self.settings.missing_values.clone(),
            vertex_type,
            relation,
            link_split: Vec::new(),
        }
    }

    fn vertex_type(&mut self, name: &str, entries: &[&Node]) -> VertexType {
        let mut made = VertexType { name: name.into(), duplicates: DuplicateIds::Error, ..VertexType::default() };
        let with_ids = entries.iter().filter(|entry| entry.node_id_col.is_some()).count();
        if with_ids > 1 {
            let name = shown(name);
            self.wrong(format!("vertex type `{name}` has several entries with `node_id_col`: one of them has the ids"));
        }
        // Without ids the first entry counts the rows.
        let main = entries.iter().position(|entry| entry.node_id_col.is_some()).unwrap_or(0);
        let mut labelled = false;
        for (i, entry) in entries.iter().enumerate() {
            let format = self.format(&entry.format);
            let features = self.features(&entry.features, name);
            let (label, split) = self.vertex_label(&entry.labels, name);
            if label.is_some() && labelled {
                let name = shown(name);
                self.wrong(format!("vertex type `{name}` has several labels: leave all but one out"));
            }
            labelled |= label.is_some();
            if let Some(split) = split {
                made.split = Some(split).into();
            }
            if i == main {
                made.files = Some(sorted(&entry.files));
                made.separator = entry.format.separator;
                made.format = format;
                made.id = entry.node_id_col.clone().map(OneOrMore::One);
                made.features = features;
                made.label = label.into();
            } else {
                let (files, separator) = (sorted(&entry.files), entry.format.separator);
                made.more.push(More { files, separator, format, columns: None, features, label: label.into() });
            }
        }
        made
    }

    fn format(&mut self, of: &TableFormat) -> Option<Format> {
        match &of.name.to_ascii_lowercase()[..] {
            "csv" => Some(Format::Csv),
            "json" => Some(Format::Json),
            "parquet" => Some(Format::Parquet),
            "hdf5" => {
                self.wrong(
                    "HDF5 files are not read: save the table as Parquet, CSV or one JSON object in each line".into(),
                );
                None
            }
            other => {
                self.wrong(format!("the format `{}` is not known: `csv`, `json` or `parquet`", shown(other)));
                None
            }
        }
    }

    fn vertex_label(&mut self, tasks: &[LabelTask], name: &str) -> (Option<Label>, Option<Split>) {
        let of = format!("vertex type `{}`", shown(name));
        let [task] = tasks else {
            if tasks.len() > 1 {
                self.wrong(format!("{of} has {} labels: leave all but one out", tasks.len()));
            }
            return (None, None);
        };
        let known = "`classification` or `regression`";
        self.label(task, &of, known).map_or((None, None), |label| (Some(label), self.split(task)))
    }

    /// The label of a task; `known` are those of vertices or edges.
    fn label(&mut self, task: &LabelTask, of: &str, known: &str) -> Option<Label> {
        let kind = match &task.task_type[..] {
            "classification" => LabelKind::Single,
            "regression" => LabelKind::Real,
            other => {
                self.wrong(format!("{of}: the task `{}` is not known: {known}", shown(other)));
                return None;
            }
        };
        let Some(column) = task.label_col.clone() else {
            self.wrong(format!("{of}: its label has no `label_col`"));
            return None;
        };
        let columns = OneOrMore::One(column);
        Some(Label { columns, name: None, kind, separator: None, buckets: None, class_names: None })
    }

    /// The split of a task. None where all shares are 0.
    fn split(&mut self, task: &LabelTask) -> Option<Split> {
        let name = Some("standard".to_owned());
        if let Some(files) = &task.custom_split_filenames {
            let part = |file: &Option<String>| file.clone().map(Part::File);
            let (train, val, test) = (part(&files.train), part(&files.valid), part(&files.test));
            return Some(Split { name, train, val, test, ..Split::default() });
        }
        let shares = task.split_pct.unwrap_or([0.8, 0.1, 0.1]);
        let [train, val, test] = shares.map(|share| Some(Part::Share(share)));
        shares.iter().any(|&share| share != 0.0).then(|| Split { name, train, val, test, ..Split::default() })
    }

    fn relation(&mut self, edge: &Edge, name: String) -> Relation {
        let format = self.format(&edge.format);
        let features = self.features(&edge.features, &name);
        let of = format!("relation `{}`", shown(&name));
        let (label, split) = match &edge.labels[..] {
            [] => (None, None),
            [task] if task.task_type == "link_prediction" => (None, self.split(task)),
            [task] => {
                let known = "`classification`, `regression` or `link_prediction`";
                (self.label(task, &of, known), self.split(task))
            }
            several => {
                self.wrong(format!("{of} has {} tasks: leave all but one out", several.len()));
                (None, None)
            }
        };
        let (Some(src_key), Some(dst_key)) = (&edge.source_id_col, &edge.dest_id_col) else {
            self.wrong(format!(
                "{of} has no `source_id_col` and `dest_id_col`: put its columns into the table of the edges"
            ));
            return Relation::default();
        };
        Relation {
            src: edge.relation[0].clone(),
            dst: edge.relation[2].clone(),
            name,
            files: Some(sorted(&edge.files)),
            separator: edge.format.separator,
            format,
            src_key: Some(OneOrMore::One(src_key.clone())),
            dst_key: Some(OneOrMore::One(dst_key.clone())),
            features: EdgeFeatures(features),
            label: label.into(),
            split: split.into(),
            unknown: self.settings.unknown,
            ..Relation::default()
        }
    }

    fn features(&mut self, all: &[Feature], of: &str) -> Vec<Features> {
        let mut made = Vec::new();
        for feature in all {
            // A transform is of each column by itself.
            for (i, column) in feature.feature_col.list().iter().enumerate() {
                match self.feature(column, i, feature.transform.as_ref()) {
                    Ok(features) => made.push(features),
                    Err(error) => self.wrong(format!("feature `{}` of `{}`: {error}", shown(column), shown(of))),
                }
            }
        }
        made
    }

    /// A column, the `index`-th of its feature, through a transform.
    fn feature(&self, column: &str, index: usize, transform: Option<&Map<String, Value>>) -> Result<Features, String> {
        let plain = || Features { columns: OneOrMore::One(column.into()), ..Features::default() };
        let vector = |separator: &str| Features { vector: true, separator: Some(separator.into()), ..plain() };
        // Files other than CSV have lists in a column.
        let Some(transform) = transform else { return Ok(vector(",")) };
        let named = |allowed: &[&str]| match transform.keys().find(|key| !allowed.contains(&&key[..]) && *key != "name")
        {
            Some(key) => Err(format!("`{}` of its transform is not known", shown(key))),
            None => Ok(()),
        };
        // A number for all columns, or a list with one for each.
        let number = |key: &str| match transform.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let one = value.as_array().map_or(Some(value), |all| all.get(index).or(all.first()));
                let found = one.and_then(Value::as_f64).ok_or_else(|| format!("`{key}` of its transform is no number"));
                found.map(Some)
            }
        };
        let text = |key: &str| match transform.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(format!("`{key}` of its transform is no text")),
        };
        match transform.get("name").and_then(Value::as_str).unwrap_or_default() {
            "no-op" => {
                named(&["separator"]).map_err(|error| match transform.contains_key("truncate_dim") {
                    true => "`truncate_dim` cuts vectors, which is not kept: save the column with the numbers that are used".to_owned(),
                    false => error,
                })?;
                Ok(vector(text("separator")?.as_deref().unwrap_or(",")))
            }
            "max_min_norm" => {
                named(&["max_bound", "min_bound", "max_val", "min_val"])?;
                let (min, max) = (number("min_val")?, number("max_val")?);
                let limits = [
                    if min.is_some() { None } else { number("min_bound")? },
                    if max.is_some() { None } else { number("max_bound")? },
                ];
                Ok(Features { scale: Some(Scale::MinMax), min, max, limits, ..plain() })
            }
            "standard" => {
                named(&["sum"])?;
                if transform.contains_key("sum") {
                    return Err("`sum` of its transform is given: leave it out, and it is that of the column".into());
                }
                Ok(Features { scale: Some(Scale::Sum), ..plain() })
            }
            "to_categorical" => {
                named(&["separator", "mapping"])?;
                let categories = transform.get("mapping").map(categories).transpose()?;
                Ok(Features { one_hot: true, categories, separator: text("separator")?, ..plain() })
            }
            "bucket_numerical" => {
                named(&["range", "bucket_cnt", "slide_window_size"])?;
                if number("slide_window_size")?.is_some_and(|size| size != 0.0) {
                    return Err("`slide_window_size` puts a value into several buckets, which is not kept: leave it out".into());
                }
                buckets(transform).map(|bounds| Features { buckets: Some(bounds), ..plain() })
            }
            "rank_gauss" => Err("`rank_gauss` needs the ranks among all values, so that it is of no use for a vertex that comes later: take `max_min_norm` or `standard`, or save the column as it becomes".into()),
            name @ ("tokenize_hf" | "bert_hf") => Err(format!(
                "`{name}` encodes texts by a language model: save what it gives as a column of vectors"
            )),
            "edge_dst_hard_negative" => Err("hard negatives are not read: leave the feature out".into()),
            other => Err(format!(
                "the transform `{}` is not known: `no-op`, `max_min_norm`, `standard`, `to_categorical` or `bucket_numerical`",
                shown(other)
            )),
        }
    }
}

/// Files in the order of their names, as GraphStorm reads them.
fn sorted(files: &OneOrMore) -> OneOrMore {
    let mut all = files.list().to_vec();
    all.sort();
    OneOrMore::More(all)
}

/// The categories of a mapping, by their numbers.
fn categories(mapping: &Value) -> Result<Vec<String>, String> {
    let wrong = || "`mapping` of its transform gives the categories the numbers from 0 on, each once".to_owned();
    let mapping = mapping.as_object().ok_or_else(wrong)?;
    let mut all = vec![None; mapping.len()];
    for (name, number) in mapping {
        let place = number.as_u64().and_then(|n| all.get_mut(n as usize)).ok_or_else(wrong)?;
        if place.replace(name.clone()).is_some() {
            return Err(wrong());
        }
    }
    all.into_iter().collect::<Option<Vec<String>>>().ok_or_else(wrong)
}

/// The inner bounds of buckets of one width: values outside of the range are in the first and last one.
fn buckets(transform: &Map<String, Value>) -> Result<Vec<f64>, String> {
    /// Number of buckets that a column may have.
    const MOST: u64 = 1 << 16;
    let range = transform.get("range").and_then(Value::as_array);
    let range: Option<Vec<f64>> = range.and_then(|range| range.iter().map(Value::as_f64).collect());
    let Some([a, b]) = range.as_deref().and_then(|range| <[f64; 2]>::try_from(range).ok()) else {
        return Err("`range` of its transform is two numbers".into());
    };
    let count = transform.get("bucket_cnt").and_then(Value::as_u64);
    let Some(count) = count.filter(|count| (2..=MOST).contains(count)) else {
        return Err(format!("`bucket_cnt` of its transform is a number from 2 to {MOST}"));
    };
    let (min, max) = (a.min(b), a.max(b));
    let size = (max - min) / count as f64;
    Ok((1..count).map(|i| min + i as f64 * size).collect())
}
