//! Finds the arrays of a graph: of several types or one, as tables or archives.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::items::{Cx, Item};
use super::{JOINER, npz};
use crate::error::shown;
use crate::files::Lines;

/// The arrays of a graph. Names of attributes are without `node_` or `edge_`.
pub(super) struct Graph {
    pub types: Vec<Type>,
    pub relations: Vec<Relation>,
    /// Whether it has several types, each with a folder in `split`.
    pub hetero: bool,
}

pub(super) struct Type {
    pub name: String,
    pub count: usize,
    pub attributes: BTreeMap<String, Item>,
    pub label: Option<Item>,
}

pub(super) struct Relation {
    pub head: usize,
    pub name: String,
    pub tail: usize,
    pub edges: Item,
    /// Number of edges, if the files state it.
    pub stated: Option<i64>,
    pub attributes: BTreeMap<String, Item>,
}

/// The file of a table, compressed or not.
pub(super) fn table(folder: &Path, name: &str) -> Option<PathBuf> {
    [".csv.gz", ".csv"].map(|end| folder.join(format!("{name}{end}"))).into_iter().find(|file| file.is_file())
}

/// Finds the arrays in the folder `raw`. None if there is a fault, which is reported.
pub(super) fn scan(raw: &Path, cx: &mut Cx<'_>) -> Option<Graph> {
    let is_archive = |name: &str| raw.join(name).is_file();
    if let Some(file) = table(raw, "triplet-type-list") {
        return hetero_tables(raw, &file, cx);
    }
    if is_archive("edge_index_dict.npz") {
        return hetero_archives(raw, cx);
    }
    if let Some(edges) = table(raw, "edge") {
        return homogeneous_tables(raw, edges, cx);
    }
    if is_archive("data.npz") {
        return homogeneous_archive(raw, cx);
    }
    let message = "there is no `triplet-type-list.csv.gz`, `edge_index_dict.npz`, `edge.csv.gz` or `data.npz` in it: name the folder that holds the `raw` of a graph with labels of vertices (ogbn)";
    cx.faults.add(raw, None, message);
    None
}

/// Records of a table with names, some of which may stand in quotes.
fn records(path: &Path, cx: &mut Cx<'_>) -> Option<Vec<Vec<String>>> {
    let mut lines = Lines::open(path, cx.progress, &mut cx.faults)?;
    let mut records = Vec::new();
    while let Some((_, text)) = lines.next_text(&mut cx.faults) {
        if !text.is_empty() {
            records.push(text.split(',').map(|field| field.trim().trim_matches('"').to_owned()).collect());
        }
    }
    Some(records)
}

/// The attributes that tables in a folder hold: `node-feat.csv.gz` is `feat`.
fn table_attributes(folder: &Path, prefix: &str) -> BTreeMap<String, Item> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let attribute = |path: PathBuf| {
        let name = path.file_name()?.to_str()?;
        let stem = name.strip_suffix(".csv.gz").or_else(|| name.strip_suffix(".csv"))?;
        let attribute = stem.strip_prefix(prefix)?.strip_prefix(['-', '_'])?.to_owned();
        Some((attribute, Item::Csv(path)))
    };
    files.filter_map(attribute).collect()
}

/// The one row of a table of a single graph.
fn one_graph<T>(rows: Vec<T>, file: &Path, cx: &mut Cx<'_>) -> Option<T> {
    let found = rows.len();
    let mut rows = rows.into_iter();
    match (rows.next(), found) {
        (Some(row), 1) => Some(row),
        (_, 0) => {
            cx.faults.add(file, None, "there is no row with numbers in it");
            None
        }
        _ => {
            cx.faults.add(
                file,
                None,
                format!("there are {found} graphs, but a dataset is one: graph properties (ogbg) are not imported"),
            );
            None
        }
    }
}

fn count(text: &str, file: &Path, cx: &mut Cx<'_>) -> Option<usize> {
    let count = text.parse::<usize>().ok().filter(|&count| count <= 1 << 30);
    if count.is_none() {
        cx.faults.add(file, None, format!("`{}` is not a number of vertices, at most 2^30", shown(text)));
    }
    count
}

/// The position of a type, reported if there is none.
fn position(types: &[Type], name: &str, file: &Path, cx: &mut Cx<'_>) -> Option<usize> {
    let found = types.iter().position(|ty| ty.name == name);
    if found.is_none() {
        let known = types.iter().map(|ty| format!("`{}`", shown(&ty.name))).collect::<Vec<_>>().join(", ");
        cx.faults.add(file, None, format!("there is no vertex type `{}` (there is {known})", shown(name)));
    }
    found
}

fn hetero_tables(raw: &Path, triplets: &Path, cx: &mut Cx<'_>) -> Option<Graph> {
    let Some(counts) = table(raw, "num-node-dict") else {
        cx.faults.add(raw, None, "there is no `num-node-dict.csv.gz` in it, which has the numbers of vertices");
        return None;
    };
    let mut rows = records(&counts, cx)?;
    let names = if rows.is_empty() { Vec::new() } else { rows.remove(0) };
    let numbers = one_graph(rows, &counts, cx)?;
    if names.len() != numbers.len() {
        cx.faults.add(&counts, Some(2), format!("there are {} numbers for {} types", numbers.len(), names.len()));
        return None;
    }
    let mut types: Vec<Type> = Vec::new();
    for (name, number) in names.into_iter().zip(numbers) {
        if name.is_empty() || types.iter().any(|ty| ty.name == name) {
            cx.faults.add(
                &counts,
                Some(1),
                format!("types have names that differ, and `{}` is no such one", shown(&name)),
            );
            continue;
        }
        let count = count(&number, &counts, cx)?;
        let attributes = table_attributes(&raw.join("node-feat").join(&name), "node");
        let label = table(&raw.join("node-label").join(&name), "node-label").map(Item::Csv);
        types.push(Type { name, count, attributes, label });
    }
    let mut relations = Vec::new();
    for (row, triplet) in records(triplets, cx)?.into_iter().enumerate() {
        let [head, name, tail] = &triplet[..] else {
            cx.faults.add(triplets, Some(row as u64 + 1), "a line is head, relation and tail");
            continue;
        };
        let folder = raw.join("relations").join([&head[..], name, tail].join(JOINER));
        let ends = (position(&types, head, triplets, cx), position(&types, tail, triplets, cx));
        let Some(edges) = table(&folder, "edge") else {
            cx.faults.add(&folder, None, "there is no `edge.csv.gz` in it, which has the edges");
            continue;
        };
        let stated = table(&folder, "num-edge-list").map(Item::Csv);
        let stated = stated.and_then(|item| item.integers(1, Some(1), "graph", cx)).map(|numbers| numbers[0]);
        let attributes = table_attributes(&folder, "edge");
        if let (Some(head), Some(tail)) = ends {
            relations.push(Relation { head, name: name.clone(), tail, edges: Item::Csv(edges), stated, attributes });
        }
    }
    Some(Graph { types, relations, hetero: true })
}

/// The arrays of an archive, by name.
fn archive(path: &Path, cx: &mut Cx<'_>) -> Option<BTreeMap<String, Item>> {
    match npz::read(path, cx.progress) {
        Ok(arrays) => {
            let item = |(key, array): (String, _)| (key.clone(), Item::Array { file: path.to_path_buf(), key, array });
            Some(arrays.into_iter().map(item).collect())
        }
        Err(error) => {
            cx.faults.add(path, None, error);
            None
        }
    }
}

fn hetero_archives(raw: &Path, cx: &mut Cx<'_>) -> Option<Graph> {
    let counts_file = raw.join("num_nodes_dict.npz");
    let mut types = Vec::new();
    for (name, item) in archive(&counts_file, cx)? {
        let numbers = item.integers(1, None, "", cx)?;
        let number = one_graph(numbers, &counts_file, cx)?;
        let count = count(&number.to_string(), &counts_file, cx)?;
        types.push(Type { name, count, attributes: BTreeMap::new(), label: None });
    }
    let edges_file = raw.join("edge_index_dict.npz");
    let mut relations: Vec<Relation> = Vec::new();
    let mut keys = Vec::new();
    for (key, edges) in archive(&edges_file, cx)? {
        let [head, name, tail] = key.split(JOINER).collect::<Vec<_>>()[..] else {
            cx.faults.add(&edges_file, None, format!("`{}` is not head{JOINER}relation{JOINER}tail", shown(&key)));
            continue;
        };
        let (name, head, tail) =
            (name.to_owned(), position(&types, head, &edges_file, cx)?, position(&types, tail, &edges_file, cx)?);
        relations.push(Relation { head, name, tail, edges, stated: None, attributes: BTreeMap::new() });
        keys.push(key);
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(raw).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let Some(stem) = name.strip_suffix(".npz") else { continue };
        if ["num_nodes_dict", "edge_index_dict", "num_edges_dict"].contains(&stem) {
            continue;
        }
        let attribute = stem.strip_suffix("_dict").unwrap_or(stem);
        for (key, item) in archive(&file, cx)? {
            if let Some(attribute) = attribute.strip_prefix("node") {
                let ty = position(&types, &key, &file, cx)?;
                match attribute.trim_start_matches(['-', '_']) {
                    "label" => types[ty].label = Some(item),
                    attribute => drop(types[ty].attributes.insert(attribute.to_owned(), item)),
                }
            } else if let Some(attribute) = attribute.strip_prefix("edge_") {
                match keys.iter().position(|known| *known == key) {
                    Some(at) => drop(relations[at].attributes.insert(attribute.to_owned(), item)),
                    None => cx.faults.add(
                        &file,
                        None,
                        format!("`{}` is of no relation of `edge_index_dict.npz`", shown(&key)),
                    ),
                }
            }
        }
    }
    Some(Graph { types, relations, hetero: true })
}

/// The type and the relation of a graph of one type.
fn homogeneous(
    count: usize,
    edges: Item,
    of_nodes: BTreeMap<String, Item>,
    of_edges: BTreeMap<String, Item>,
    label: Option<Item>,
) -> Graph {
    let ty = Type { name: "node".into(), count, attributes: of_nodes, label };
    let edge = Relation { head: 0, name: "edge".into(), tail: 0, edges, stated: None, attributes: of_edges };
    Graph { types: vec![ty], relations: vec![edge], hetero: false }
}

fn homogeneous_tables(raw: &Path, edges: PathBuf, cx: &mut Cx<'_>) -> Option<Graph> {
    let Some(counts) = table(raw, "num-node-list") else {
        cx.faults.add(raw, None, "there is no `num-node-list.csv.gz` in it, which has the number of vertices");
        return None;
    };
    let numbers = Item::Csv(counts.clone()).integers(1, None, "", cx)?;
    let number = one_graph(numbers, &counts, cx)?;
    let count = count(&number.to_string(), &counts, cx)?;
    let mut of_nodes = table_attributes(raw, "node");
    let label = of_nodes.remove("label");
    Some(homogeneous(count, Item::Csv(edges), of_nodes, table_attributes(raw, "edge"), label))
}

fn homogeneous_archive(raw: &Path, cx: &mut Cx<'_>) -> Option<Graph> {
    let file = raw.join("data.npz");
    let mut arrays = archive(&file, cx)?;
    let (counts, edges) = (arrays.remove("num_nodes_list"), arrays.remove("edge_index"));
    let (Some(counts), Some(edges)) = (counts, edges) else {
        cx.faults.add(&file, None, "there is no `num_nodes_list` or no `edge_index` in it");
        return None;
    };
    let numbers = counts.integers(1, None, "", cx)?;
    let number = one_graph(numbers, &file, cx)?;
    let count = count(&number.to_string(), &file, cx)?;
    let of = |prefix: &str| -> BTreeMap<String, Item> {
        let attributes =
            arrays.iter().filter_map(|(key, item)| Some((key.strip_prefix(prefix)?.to_owned(), item.clone())));
        attributes.collect()
    };
    let labels = raw.join("node-label.npz");
    let label = if labels.is_file() { archive(&labels, cx)?.remove("node_label") } else { None };
    Some(homogeneous(count, edges, of("node_"), of("edge_"), label))
}
