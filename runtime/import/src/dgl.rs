//! Folders of DGL's `CSVDataset`: a `meta.yaml`, and tables of vertices and edges.
//!
//! They are read as [`crate::tables`] are: the file is translated, and columns that it does not name are features. As in
//! DGL, the vertices of a type are in the order of their ids, not of the rows.

use std::path::Path;

use hgnnc_dataset::{Dataset, files};
use serde::Deserialize;

use crate::error::{Faults, ImportError, shown};
use crate::files::{Format, Rows, Style};
use crate::progress::Progress;
use crate::settings::{self, Settings, relation_names};
use crate::tables::config::{
    Config, DuplicateIds, EdgeFeatures, Features, Label, LabelKind, Mask, OneOrMore, Order, Part, Relation, Split,
    VertexType,
};
use crate::tables::{Words, read_config};

const WORDS: Words = Words {
    missing: "write a number, or leave the column out by `ignore` of `--config`",
    duplicate: "ids of a type differ",
    unknown: "add its row, or leave such edges of `{}` out by `unknown = \"skip\"` of `--config`",
};

/// The fields of `meta.yaml`, as DGL names them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    #[serde(default)]
    version: Option<String>,
    dataset_name: String,
    #[serde(default)]
    separator: Option<char>,
    node_data: Vec<NodeData>,
    edge_data: Vec<EdgeData>,
    #[serde(default)]
    graph_data: Option<GraphData>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeData {
    file_name: String,
    #[serde(default)]
    ntype: Option<String>,
    #[serde(default)]
    graph_id_field: Option<String>,
    #[serde(default)]
    node_id_field: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeData {
    file_name: String,
    #[serde(default)]
    etype: Option<[String; 3]>,
    #[serde(default)]
    graph_id_field: Option<String>,
    #[serde(default)]
    src_id_field: Option<String>,
    #[serde(default)]
    dst_id_field: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "it is refused, whatever it says")]
struct GraphData {
    file_name: String,
    #[serde(default)]
    graph_id_field: Option<String>,
}

/// Reads the folder `source`.
///
/// # Errors
/// With all faults of its files.
pub(crate) fn read(
    source: &Path,
    config: Option<&Path>,
    graph: Option<&Dataset>,
    progress: &Progress,
) -> Result<Dataset, ImportError> {
    let settings: Settings = settings::read(config)?;
    let file = source.join("meta.yaml");
    let meta: Meta = yaml(&file, "a folder of DGL's CSVDataset has it")?;
    let mut translation = Translation { source, meta: &meta, settings: &settings, faults: Faults::default() };
    let parsed = translation.config(&file);
    translation.faults.or(())?;
    read_config(source, &file, &parsed, &WORDS, graph, progress)
}

/// Reads a YAML file; `hint` says which layout has it.
pub(crate) fn yaml<T: serde::de::DeserializeOwned>(file: &Path, hint: &str) -> Result<T, ImportError> {
    let text =
        files::read_to_string(file).map_err(|error| Faults::one(file, format!("cannot be read: {error}; {hint}")))?;
    serde_saphyr::from_str(&text).map_err(|error| {
        let mut faults = Faults::default();
        let line = error.location().map(|at| at.line()).filter(|&line| line > 0);
        // The message shows the place in the text below its first line.
        let said = error.to_string();
        let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
        faults.add(file, line, format!("is not what is expected: {said}"));
        ImportError::Faults(faults)
    })
}

struct Translation<'a> {
    source: &'a Path,
    meta: &'a Meta,
    settings: &'a Settings,
    faults: Faults,
}

impl Translation<'_> {
    fn config(&mut self, file: &Path) -> Config {
        let (meta, settings) = (self.meta, self.settings);
        if let Some(version) = meta.version.as_deref().filter(|version| *version != "1.0.0") {
            self.faults.add(file, None, format!("the version `{}` is not known: it is 1.0.0", shown(version)));
        }
        if meta.graph_data.is_some() {
            self.faults.add(
                file,
                None,
                "`graph_data` describes many graphs, and a dataset is one: import the tables of one of them",
            );
        }
        let types: Vec<[String; 3]> = meta.edge_data.iter().map(etype).collect();
        let names = relation_names(&types);
        Config {
            name: Some(settings.name.clone().unwrap_or_else(|| meta.dataset_name.clone())),
            title: settings.title.clone(),
            missing_values: settings.missing_values.clone(),
            vertex_type: meta.node_data.iter().map(|of| self.vertex_type(of)).collect(),
            relation: meta
                .edge_data
                .iter()
                .zip(types.iter().zip(names))
                .map(|(of, (types, name))| self.relation(of, types, name))
                .collect(),
            link_split: Vec::new(),
        }
    }

    fn vertex_type(&mut self, of: &NodeData) -> VertexType {
        let name = of.ntype.clone().unwrap_or_else(|| VERTEX.into());
        let id = of.node_id_field.clone().unwrap_or_else(|| "node_id".into());
        let columns = self.columns(&of.file_name, &[&id], of.graph_id_field.as_deref(), &name);
        let (label, split) = (label(&columns), masks(&columns));
        if split.is_some() && label.is_none() {
            self.faults.add(
                &self.source.join(&of.file_name),
                Some(1),
                format!("there are masks, but no column `{LABEL}` to learn: leave them out by `ignore` of `--config`"),
            );
        }
        VertexType {
            name,
            files: Some(OneOrMore::One(of.file_name.clone())),
            separator: Some(self.meta.separator.unwrap_or(',')),
            format: Some(Format::Csv),
            id: Some(OneOrMore::One(id)),
            duplicates: DuplicateIds::Error,
            order: Order::Ids,
            features: vectors(columns.iter().filter(|column| !TARGETS.contains(&&column[..]))),
            label: label.into(),
            split: split.into(),
            ..VertexType::default()
        }
    }

    fn relation(&mut self, of: &EdgeData, [src, _, dst]: &[String; 3], name: String) -> Relation {
        let src_key = of.src_id_field.clone().unwrap_or_else(|| "src_id".into());
        let dst_key = of.dst_id_field.clone().unwrap_or_else(|| "dst_id".into());
        let columns = self.columns(&of.file_name, &[&src_key, &dst_key], of.graph_id_field.as_deref(), &name);
        let is_feature = |column: &&String| column[..] != *WEIGHT && !TARGETS.contains(&&column[..]);
        Relation {
            name,
            src: src.clone(),
            dst: dst.clone(),
            files: Some(OneOrMore::One(of.file_name.clone())),
            separator: Some(self.meta.separator.unwrap_or(',')),
            format: Some(Format::Csv),
            src_key: Some(OneOrMore::One(src_key)),
            dst_key: Some(OneOrMore::One(dst_key)),
            weight: columns.iter().find(|column| column[..] == *WEIGHT).cloned(),
            features: EdgeFeatures(vectors(columns.iter().filter(is_feature))),
            label: label(&columns).into(),
            split: masks(&columns).into(),
            unknown: self.settings.unknown,
            ..Relation::default()
        }
    }

    /// The columns of a table but for ids and those that are left out, as DGL does those without a name.
    fn columns(&mut self, name: &str, ids: &[&str], graph_id: Option<&str>, of: &str) -> Vec<String> {
        let path = self.source.join(name);
        let separator = self.meta.separator.unwrap_or(',');
        let Ok(separator) = u8::try_from(separator) else { return Vec::new() };
        let style = Style { separator, quotes: true, columns: None, ragged: false };
        // Bytes count when the rows are read.
        let opened = Rows::open(&path, &style, &Progress::default(), &mut self.faults);
        let Some(rows) = opened else { return Vec::new() };
        let wanted: Vec<String> = ids.iter().map(ToString::to_string).collect();
        rows.positions(&wanted, &mut self.faults);
        let graph_id = graph_id.unwrap_or("graph_id");
        if rows.columns().iter().any(|column| column == graph_id) && !self.settings.ignores(of, graph_id) {
            let of = shown(of);
            self.faults.add(
                &path,
                Some(1),
                format!(
                    "the column `{graph_id}` tells many graphs apart, and a dataset is one: import the tables of one of them, or leave the column out by `ignore = [\"{of}.{graph_id}\"]` of `--config`"
                ),
            );
        }
        let kept = |column: &&String| {
            !column.is_empty()
                && !column.contains("Unnamed")
                && column[..] != *graph_id
                && !ids.contains(&&column[..])
                && !self.settings.ignores(of, column)
        };
        rows.columns().iter().filter(kept).cloned().collect()
    }
}

/// Default name of a vertex type in DGL's CSV datasets.
const VERTEX: &str = "_V";
const LABEL: &str = "label";
const WEIGHT: &str = "weight";
/// Columns that are no features.
const TARGETS: [&str; 4] = [LABEL, "train_mask", "val_mask", "test_mask"];

fn etype(of: &EdgeData) -> [String; 3] {
    of.etype.clone().unwrap_or_else(|| [VERTEX, "_E", VERTEX].map(String::from))
}

/// Columns as features: a number, or numbers between commas.
fn vectors<'c>(columns: impl Iterator<Item = &'c String>) -> Vec<Features> {
    let one = |column: &String| Features {
        columns: OneOrMore::One(column.clone()),
        vector: true,
        separator: Some(",".into()),
        ..Features::default()
    };
    columns.map(one).collect()
}

/// The label among some columns.
fn label(columns: &[String]) -> Option<Label> {
    columns.iter().any(|column| column == LABEL).then(|| Label {
        columns: OneOrMore::One(LABEL.into()),
        name: None,
        kind: LabelKind::AsFound,
        separator: None,
        buckets: None,
        class_names: None,
    })
}

/// The split of the masks among some columns.
fn masks(columns: &[String]) -> Option<Split> {
    let part = |name: &str| {
        let mask = columns.iter().find(|column| column[..] == *name);
        mask.map(|mask| Part::Mask(Mask { mask: mask.clone() }))
    };
    let split = Split {
        name: Some("standard".into()),
        train: part("train_mask"),
        val: part("val_mask"),
        test: part("test_mask"),
        ..Split::default()
    };
    [&split.train, &split.val, &split.test].iter().any(|part| part.is_some()).then_some(split)
}
