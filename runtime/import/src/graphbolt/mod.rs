//! Folders of GraphBolt's `OnDiskDataset`: a `metadata.yaml` with counts of vertices, edges in CSV or NumPy files,
//! features, and tasks with their sets of vertices or links.
//!
//! Vertices are known by their numbers, so that the dataset has no ids. Arrays of torch are programs in pickles and are
//! refused.

mod arrays;
mod tasks;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, DenseFeatures, Features, FloatArray, RelationData, VertexTypeData};
use serde::Deserialize;

use self::tasks::Task;
use crate::dgl::yaml;
use crate::error::{Faults, ImportError, shown};
use crate::progress::Progress;
use crate::settings::{self, Settings, relation_names};
use crate::triples::name_of;

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    dataset_name: Option<String>,
    #[serde(default)]
    graph: Option<Graph>,
    /// Of a folder that GraphBolt has worked on.
    #[serde(default)]
    graph_topology: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    feature_data: Option<Vec<FeatureData>>,
    #[serde(default)]
    tasks: Option<Vec<Task>>,
}

#[derive(Deserialize)]
struct Graph {
    nodes: Vec<Nodes>,
    edges: Vec<EdgeFile>,
    #[serde(default)]
    feature_data: Option<Vec<FeatureData>>,
}

#[derive(Deserialize)]
struct Nodes {
    #[serde(default, rename = "type")]
    ty: Option<String>,
    num: usize,
}

#[derive(Deserialize)]
struct EdgeFile {
    #[serde(default, rename = "type")]
    ty: Option<String>,
    format: FileFormat,
    path: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum FileFormat {
    Csv,
    Numpy,
    Torch,
}

#[derive(Deserialize)]
struct FeatureData {
    domain: Domain,
    #[serde(default, rename = "type")]
    ty: Option<String>,
    name: String,
    format: FileFormat,
    path: String,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
enum Domain {
    Node,
    Edge,
    Graph,
}

/// Reads the folder `source`.
///
/// # Errors
/// With all faults of its files.
pub(crate) fn read(source: &Path, config: Option<&Path>, progress: &Progress) -> Result<Dataset, ImportError> {
    let settings: Settings = settings::read(config)?;
    let file = source.join("metadata.yaml");
    let metadata: Metadata = yaml(&file, "a folder of GraphBolt's OnDiskDataset has it")?;
    let Some(graph) = &metadata.graph else {
        let message = match metadata.graph_topology {
            Some(_) => {
                "there is no `graph`: GraphBolt has made torch files of this folder; name the one that it was made from"
            }
            None => "there is no `graph`, with `nodes` and `edges`",
        };
        return Err(Faults::one(&file, message));
    };
    let mut import = Import {
        source,
        file: &file,
        settings: &settings,
        dataset: Dataset::default(),
        edge_types: Vec::new(),
        progress,
        faults: Faults::default(),
    };
    import.dataset.name =
        settings.name.clone().or_else(|| metadata.dataset_name.clone()).unwrap_or_else(|| name_of(source));
    import.dataset.title = settings.title.clone();
    import.vertices(&graph.nodes);
    if import.faults.count == 0 {
        import.edges(&graph.edges);
    }
    // Features and tasks refer to vertices and edges, which must be valid.
    if import.faults.count == 0 {
        let features = [&graph.feature_data, &metadata.feature_data];
        import.features(features.into_iter().flatten().flatten());
        for task in metadata.tasks.iter().flatten() {
            import.task(task);
        }
        import.check_held_out();
    }
    import.faults.or(import.dataset)
}

struct Import<'a> {
    source: &'a Path,
    /// `metadata.yaml`.
    file: &'a Path,
    settings: &'a Settings,
    dataset: Dataset,
    /// The type of each relation as the file writes it, empty for the one of a graph without types.
    edge_types: Vec<String>,
    progress: &'a Progress,
    faults: Faults,
}

impl Import<'_> {
    fn wrong(&mut self, message: impl Into<String>) {
        self.faults.add(self.file, None, message);
    }

    fn vertices(&mut self, nodes: &[Nodes]) {
        const MOST: usize = 1 << 30;
        for of in nodes {
            let name = of.ty.clone().unwrap_or_else(|| "node".into());
            if self.dataset.vertex_type(&name).is_some() {
                self.wrong(format!("`nodes` has the type `{}` twice", shown(&name)));
            }
            if of.num > MOST {
                self.wrong(format!("there are {} vertices of type `{}`, and 2^30 at most", of.num, shown(&name)));
            }
            let count = of.num.min(MOST);
            self.dataset.vertex_types.push(VertexTypeData { name, count, ..VertexTypeData::default() });
        }
        if nodes.is_empty() {
            self.wrong("`nodes` of the graph is empty");
        }
    }

    /// The vertex type of a name, of the only type where there is none; one that is not there is reported.
    fn type_named(&mut self, name: Option<&str>, what: &str) -> Option<usize> {
        let types = &self.dataset.vertex_types;
        let found = match name {
            Some(name) => self.dataset.vertex_type(name),
            None => (types.len() == 1).then_some(0),
        };
        if found.is_none() {
            let known = types.iter().map(|v| format!("`{}`", shown(&v.name))).collect::<Vec<_>>().join(", ");
            let message = match name {
                Some(name) => {
                    format!("{what} names a type of vertices that is not there: `{}` (there is {known})", shown(name))
                }
                None => format!("{what} has no `type`, and there are several of vertices: {known}"),
            };
            self.wrong(message);
        }
        found
    }

    fn relation_named(&mut self, name: Option<&str>, what: &str) -> Option<usize> {
        let found = match name {
            Some(name) => self.edge_types.iter().position(|ty| ty == name),
            None => (self.edge_types.len() == 1).then_some(0),
        };
        if found.is_none() {
            let known = self.edge_types.iter().map(|ty| format!("`{}`", shown(ty))).collect::<Vec<_>>().join(", ");
            let message = match name {
                Some(name) => {
                    format!("{what} names a type of edges that is not there: `{}` (there is {known})", shown(name))
                }
                None => format!("{what} has no `type`, and there are several of edges: {known}"),
            };
            self.wrong(message);
        }
        found
    }

    fn edges(&mut self, edges: &[EdgeFile]) {
        let mut types = Vec::new();
        for of in edges {
            let ends: Option<[String; 3]> = match &of.ty {
                Some(ty) => {
                    let parts: Vec<String> = ty.split(':').map(str::to_owned).collect();
                    if parts.len() != 3 {
                        let ty = shown(ty);
                        self.wrong(format!("`{ty}` is no type of edges: write `source:relation:destination`"));
                    }
                    parts.try_into().ok()
                }
                None => {
                    let only =
                        self.type_named(None, "a file of edges").map(|ty| self.dataset.vertex_types[ty].name.clone());
                    only.map(|only| [only.clone(), "edge".into(), only])
                }
            };
            let Some(ends) = ends else { continue };
            if types.contains(&ends) {
                self.wrong(format!("`edges` has the type `{}` twice", shown(&ends.join(":"))));
            }
            types.push(ends);
        }
        if self.faults.count > 0 {
            return;
        }
        let names = relation_names(&types);
        for ((of, ends), name) in edges.iter().zip(&types).zip(names) {
            let what = format!("the type of edges `{}`", shown(&ends.join(":")));
            let (src, dst) = (self.type_named(Some(&ends[0]), &what), self.type_named(Some(&ends[2]), &what));
            let (Some(src), Some(dst)) = (src, dst) else { continue };
            let bounds = [src, dst].map(|ty| self.dataset.vertex_types[ty].count);
            let pairs = self.pairs(&of.path, of.format, bounds);
            let [src_ids, dst_ids] = pairs.unwrap_or_default();
            self.edge_types.push(of.ty.clone().unwrap_or_default());
            self.dataset.relations.push(RelationData { name, src, dst, src_ids, dst_ids, ..RelationData::default() });
        }
    }

    fn features<'f>(&mut self, all: impl Iterator<Item = &'f FeatureData>) {
        let (mut vertices, mut edges): (HashMap<usize, Vec<DenseFeatures>>, HashMap<usize, Vec<DenseFeatures>>) =
            Default::default();
        for of in all {
            let owner = of.ty.clone().unwrap_or_default();
            if self.settings.ignores(&owner, &of.name) {
                continue;
            }
            let what = format!("the feature `{}`", shown(&of.name));
            match of.domain {
                Domain::Graph => {
                    self.wrong(format!("{what} is of the graph, and features are of vertices and edges: leave it out"));
                }
                Domain::Node => {
                    let Some(ty) = self.type_named(of.ty.as_deref(), &what) else { continue };
                    let count = self.dataset.vertex_types[ty].count;
                    if let Some(x) = self.floats(&of.path, of.format, count, "vertex") {
                        vertices.entry(ty).or_default().push(x);
                    }
                }
                Domain::Edge => {
                    let Some(relation) = self.relation_named(of.ty.as_deref(), &what) else { continue };
                    let count = self.dataset.relations[relation].num_edges();
                    let Some(x) = self.floats(&of.path, of.format, count, "edge") else { continue };
                    if of.name == "weight" && x.dim == 1 {
                        self.dataset.relations[relation].weight = Some(x.rows);
                    } else {
                        edges.entry(relation).or_default().push(x);
                    }
                }
            }
        }
        for (ty, parts) in vertices {
            let count = self.dataset.vertex_types[ty].count;
            self.dataset.vertex_types[ty].features = Some(Features::Dense(beside(parts, count)));
        }
        for (relation, parts) in edges {
            let count = self.dataset.relations[relation].num_edges();
            self.dataset.relations[relation].features = Some(beside(parts, count));
        }
    }

    /// Edges that are held out as well are no edges, or a fault, as the settings say.
    fn check_held_out(&mut self) {
        let mut held: Vec<std::collections::HashSet<(u32, u32)>> =
            vec![Default::default(); self.dataset.relations.len()];
        for split in &self.dataset.link_splits {
            for links in [&split.val, &split.test] {
                for ((&src, &relation), &dst) in links.src.iter().zip(&links.relation).zip(&links.dst) {
                    held[relation as usize].insert((src, dst));
                }
            }
        }
        for (index, held) in held.iter().enumerate().filter(|(_, held)| !held.is_empty()) {
            let relation = &mut self.dataset.relations[index];
            let pair = |e: usize| (relation.src_ids[e], relation.dst_ids[e]);
            let kept: Vec<usize> = (0..relation.num_edges()).filter(|&e| !held.contains(&pair(e))).collect();
            let also = relation.num_edges() - kept.len();
            if also == 0 {
                continue;
            }
            if self.settings.held_out == settings::HeldOut::Error {
                let name = shown(&relation.name);
                self.wrong(format!(
                    "{also} edges of `{name}` are links to validate or test on as well, so that a model would see what it predicts: `held_out = \"remove\"` of `--config` takes them out of the edges"
                ));
                continue;
            }
            relation.keep(&kept);
        }
    }

    /// The path of a file in the folder.
    fn path(&self, name: &str) -> PathBuf {
        self.source.join(name)
    }
}

/// Features side by side.
fn beside(mut parts: Vec<DenseFeatures>, count: usize) -> DenseFeatures {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let dim = parts.iter().map(|part| part.dim).sum();
    let rows: Vec<f32> =
        (0..count).flat_map(|row| parts.iter().flat_map(move |part| part.row(row).iter().copied())).collect();
    DenseFeatures { dim, rows: FloatArray::from(rows) }
}
