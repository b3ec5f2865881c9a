//! Datasets for tests, and what is read back of a partition.

#![allow(dead_code, reason = "each test uses some")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hgnnc_dataset::npy::Npy;
use hgnnc_dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, FieldData, Kinds, LabelData, LabelValues, LinkSplitData,
    Links, MetapathData, RelationData, SparseFeatures, SplitData, Step, Transform, TransformKind, VertexIds,
    VertexTypeData,
};
use hgnnc_partition::{Observer, Options, Partition, PartitionError, Stage, partition};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

/// A folder with a dataset in `data`.
pub struct Place(pub TempDir);

impl Place {
    pub fn of(dataset: &Dataset) -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        dataset.write(&place.path("data")).expect("written");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Partitions `data` to `parts`.
    pub fn partition(&self, options: &Options) -> Result<Partition, PartitionError> {
        partition(&self.path("data"), &self.path("parts"), options, &())
    }

    /// The files of a folder with their bytes, sorted by name.
    pub fn files(&self, folder: &str) -> Vec<(String, Vec<u8>)> {
        let entries = std::fs::read_dir(self.path(folder)).expect("a folder").flatten();
        let file = |entry: std::fs::DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("a file"))
        };
        let mut files: Vec<_> = entries.map(file).collect();
        files.sort();
        files
    }

    /// The names in the folder, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("a folder").flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// The integers of a file.
pub fn integers(folder: &Path, file: &str) -> Vec<i64> {
    Npy::open(&folder.join(file)).expect("an array").to_i64().expect("integers")
}

/// Ends a run at a call of `progress`, as a kill would.
pub struct StopAt {
    calls: Mutex<usize>,
    stop: usize,
}

impl StopAt {
    pub fn new(stop: usize) -> StopAt {
        StopAt { calls: Mutex::new(0), stop }
    }

    pub fn calls(&self) -> usize {
        *self.calls.lock().expect("no panic")
    }
}

impl Observer for StopAt {
    fn progress(&self, _: Stage, _: u64, _: u64) -> ControlFlow<()> {
        let mut calls = self.calls.lock().expect("no panic");
        *calls += 1;
        if *calls > self.stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A random dataset: up to five vertex types and six relations, some of them empty, with every kind of content.
pub fn random(seed: u64) -> Dataset {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let types = random.random_range(1..6);
    let vertex_types: Vec<VertexTypeData> = (0..types).map(|ty| vertex_type(random, ty)).collect();
    let relations: Vec<RelationData> =
        (0..random.random_range(0..7)).map(|index| relation(random, index, &vertex_types)).collect();
    let labels: Vec<LabelData> = (0..types).flat_map(|ty| labels(random, ty, vertex_types[ty].count)).collect();
    let mut splits = vec![];
    for (ty, of) in vertex_types.iter().enumerate() {
        let mine: Vec<&LabelData> = labels.iter().filter(|label| label.vertex_type == ty).collect();
        if mine.is_empty() {
            continue;
        }
        let is_labelled = |&v: &u32| mine.iter().any(|label| label.is_labelled(v as usize));
        let [train, val, test] = parts(random, (0..of.count as u32).filter(is_labelled).collect());
        splits.push(SplitData { name: "standard".into(), vertex_type: ty, train, val, test });
    }
    let links = |random: &mut ChaCha8Rng| {
        let mut links = Links { time: random.random_bool(0.5).then(Vec::new), ..Links::default() };
        for _ in 0..random.random_range(0..9) {
            if relations.is_empty() {
                break;
            }
            let r = random.random_range(0..relations.len());
            let (src, dst) = (vertex_types[relations[r].src].count, vertex_types[relations[r].dst].count);
            if src > 0 && dst > 0 {
                links.src.push(random.random_range(0..src as u32));
                links.relation.push(r as u32);
                links.dst.push(random.random_range(0..dst as u32));
                links.time.iter_mut().for_each(|times| times.push(random.random_range(-9..9)));
            }
        }
        // A part without links has no files.
        links.time = links.time.take_if(|times| !times.is_empty());
        links
    };
    let link_splits = vec![LinkSplitData { name: "later".into(), val: links(random), test: links(random) }];
    let metapaths = relations.iter().enumerate().take(1).map(|(r, of)| MetapathData {
        name: "there and back".into(),
        steps: vec![Step::forward(r), Step::reverse(r)],
        start: of.src,
        end: of.src,
        pairs: Some(3),
        self_pairs: None,
        instances: None,
        max_degree: None,
    });
    Dataset {
        name: "random".into(),
        title: random.random_bool(0.5).then(|| "a dataset \"of\" chance".into()),
        generator: random.random_bool(0.5).then(|| format!("seed {seed}")),
        metapaths: metapaths.collect(),
        vertex_types,
        relations,
        labels,
        splits,
        link_splits,
        ..Dataset::default()
    }
}

/// Ids in three parts, ascending.
fn parts(random: &mut ChaCha8Rng, mut ids: Vec<u32>) -> [Vec<u32>; 3] {
    ids.shuffle(random);
    let (a, b) = (ids.len() / 2, ids.len() * 3 / 4);
    let mut parts = [ids[..a].to_vec(), ids[a..b].to_vec(), ids[b..].to_vec()];
    parts.iter_mut().for_each(|part| part.sort_unstable());
    parts
}

fn edge_label(LabelData { name, values, class_names, .. }: LabelData) -> EdgeLabel {
    EdgeLabel { name, values, class_names }
}

fn floats(random: &mut ChaCha8Rng, len: usize) -> Vec<f32> {
    (0..len).map(|_| random.random_range(-2.0..2.0)).collect()
}

fn feature_rows(random: &mut ChaCha8Rng, count: usize, sparse: bool) -> Features {
    let dim = random.random_range(0..5);
    if !sparse {
        return Features::Dense(DenseFeatures { dim, rows: floats(random, count * dim).into() });
    }
    let (mut indptr, mut indices) = (vec![0], vec![]);
    for _ in 0..count {
        indices.extend((0..dim as u32).filter(|_| random.random_bool(0.4)));
        indptr.push(indices.len() as u64);
    }
    let data = floats(random, indices.len()).into();
    Features::Sparse(SparseFeatures { dim, indptr, indices, data })
}

fn vertex_type(random: &mut ChaCha8Rng, ty: usize) -> VertexTypeData {
    let count = match random.random_range(0..6) {
        0 => 0,
        1 => random.random_range(1..4),
        _ => random.random_range(4..60),
    };
    let features = match random.random_range(0..3) {
        0 => None,
        kind => Some(feature_rows(random, count, kind == 2)),
    };
    let fields = ["year", "a/b"]
        .into_iter()
        .take(random.random_range(0..3))
        .enumerate()
        .map(|(at, name)| FieldData { name: name.into(), values: feature_rows(random, count, at == 1) });
    let fields = fields.collect();
    let dim = features.as_ref().map_or(0, Features::dim);
    let transforms = match dim {
        0 => vec![],
        _ => vec![Transform {
            columns: vec!["place".into()],
            kind: TransformKind::Vector { separator: " ".into(), width: dim },
        }],
    };
    let ids = match random.random_range(0..3) {
        0 => None,
        1 => Some(VertexIds::Integer((0..count as i64).map(|v| 9_007_199_254_740_993 - v * v).collect())),
        _ => {
            let names: Vec<String> = (0..count).map(|v| format!("é{}{v}", "x".repeat(v % 4))).collect();
            Some(names.iter().map(String::as_str).collect())
        }
    };
    VertexTypeData {
        // A name that is also that of a relation, and one that differs in capitals only.
        name: ["thing", "Thing", "relation 0", "a/b", "ü"][ty].into(),
        count,
        features,
        fields,
        kinds: random
            .random_bool(0.3)
            .then(|| Kinds { names: vec!["a".into(), "b".into()], of: (0..count).map(|v| (v % 2) as u32).collect() }),
        ids,
        time: random.random_bool(0.5).then(|| (0..count).map(|_| random.random()).collect()),
        transforms,
    }
}

fn relation(random: &mut ChaCha8Rng, index: usize, types: &[VertexTypeData]) -> RelationData {
    let (src, dst) = (random.random_range(0..types.len()), random.random_range(0..types.len()));
    let empty = types[src].count == 0 || types[dst].count == 0 || random.random_bool(0.15);
    let edges = if empty { 0 } else { random.random_range(1..200) };
    let mut ids = |ty: usize| (0..edges).map(|_| random.random_range(0..types[ty].count as u32)).collect();
    let (src_ids, dst_ids) = (ids(src), ids(dst));
    let dim = random.random_range(1..4);
    let labels: Vec<EdgeLabel> = labels(random, 0, edges).into_iter().map(edge_label).collect();
    let labelled = (0..edges as u32).filter(|&e| labels.iter().any(|label| label.values.is_labelled(e as usize)));
    let [train, val, test] = parts(random, labelled.collect());
    let splits = match labels.len() {
        0 => vec![],
        _ => vec![EdgeSplit { name: "standard".into(), train, val, test }],
    };
    RelationData {
        name: format!("relation {index}"),
        labels,
        splits,
        src,
        dst,
        src_ids,
        dst_ids,
        weight: random.random_bool(0.5).then(|| floats(random, edges).into()),
        features: random.random_bool(0.5).then(|| DenseFeatures { dim, rows: floats(random, edges * dim).into() }),
        time: random.random_bool(0.5).then(|| (0..edges).map(|_| random.random()).collect()),
        ..RelationData::default()
    }
}

fn labels(random: &mut ChaCha8Rng, ty: usize, count: usize) -> Vec<LabelData> {
    let labelled: Vec<bool> = (0..count).map(|_| random.random_bool(0.8)).collect();
    let masked = |values: Vec<f32>, dim: usize| -> Vec<f32> {
        let value = |(at, value): (usize, f32)| if labelled[at / dim] { value } else { 0.0 };
        values.into_iter().enumerate().map(value).collect()
    };
    let single = (0..count).map(|_| random.random_range(-1..3)).collect();
    let multi = (0..2 * count).map(|_| f32::from(random.random_bool(0.5))).collect();
    let real = floats(random, 2 * count);
    let all = [
        ("class", LabelValues::Single { classes: 3, of: single }),
        ("tags", LabelValues::Multi { classes: 2, rows: masked(multi, 2), labelled: labelled.clone() }),
        ("size", LabelValues::Real { dim: 2, rows: masked(real, 2), labelled: labelled.clone() }),
    ];
    let label = |(name, values): (&str, LabelValues)| LabelData {
        name: name.into(),
        vertex_type: ty,
        class_names: if name == "class" { vec!["a".into(), "b".into(), "c".into()] } else { vec![] },
        values,
    };
    all.into_iter().filter(|_| random.random_bool(0.6)).map(label).collect()
}

/// Two vertex types in `communities` groups, whose edges stay in a group with few exceptions; a tenth of the papers, the
/// first of their type, are to train on.
pub fn communities(papers: usize, communities: usize) -> Dataset {
    let random = &mut ChaCha8Rng::seed_from_u64(7);
    let authors = papers / 2;
    let mut relation = |name: &str, (src, dst): (usize, usize), counts: (usize, usize), edges: usize| {
        let (mut src_ids, mut dst_ids) = (vec![], vec![]);
        for _ in 0..edges {
            let s = random.random_range(0..counts.0);
            let d = match random.random_bool(0.9) {
                // A vertex of the same group.
                true => random.random_range(0..counts.1 / communities) * communities + s % communities,
                false => random.random_range(0..counts.1),
            };
            src_ids.push(s as u32);
            dst_ids.push(d as u32);
        }
        RelationData { name: name.into(), src, dst, src_ids, dst_ids, ..Default::default() }
    };
    let relations = vec![
        relation("cites", (0, 0), (papers, papers), 8 * papers),
        relation("writes", (1, 0), (authors, papers), 4 * papers),
    ];
    let vertex = |name: &str, count| VertexTypeData { name: name.into(), count, ..Default::default() };
    let train: Vec<u32> = (0..papers as u32 / 10).collect();
    Dataset {
        name: "communities".into(),
        vertex_types: vec![vertex("paper", papers), vertex("author", authors)],
        relations,
        labels: vec![LabelData {
            name: "y".into(),
            vertex_type: 0,
            values: LabelValues::Single { classes: 2, of: vec![0; papers] },
            class_names: vec![],
        }],
        splits: vec![SplitData { name: "standard".into(), vertex_type: 0, train, val: vec![], test: vec![] }],
        ..Default::default()
    }
}
