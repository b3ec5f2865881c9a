//! A small dataset that uses every feature of the format, and models for it.

use std::path::Path;

use hgnnc_dataset::npy;

const PAPERS: i32 = 24;
const AUTHORS: i32 = 9;

/// Writes the dataset into `folder`.
pub fn write(folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.join("dataset.toml"), TOML).expect("written");
    let path = |name: &str| folder.join(name);
    let integers = |name: &str, shape: &[usize], values: &[i32]| npy::write(&path(name), shape, values).expect(name);
    let floats = |name: &str, shape: &[usize], values: &[f32]| npy::write(&path(name), shape, values).expect(name);
    let (papers, authors) = (PAPERS as usize, AUTHORS as usize);

    let (mut indptr, mut indices) = (vec![0i64], vec![]);
    for paper in 0..PAPERS {
        indices.extend([paper % 3, 3 + paper * 7 % 3]);
        indptr.push(indices.len() as i64);
    }
    npy::write(&path("paper.x.indptr.npy"), &[papers + 1], &indptr).expect("written");
    integers("paper.x.indices.npy", &[indices.len()], &indices);
    floats("paper.x.data.npy", &[indices.len()], &vec![1.0; indices.len()]);
    let dense: Vec<f32> = (0..AUTHORS * 3).map(|i| (i * 5 % 7) as f32 / 7.0 - 0.4).collect();
    floats("author.x.npy", &[authors, 3], &dense);
    integers("paper.kind.npy", &[papers], &(0..PAPERS).map(|p| p % 2).collect::<Vec<_>>());

    let writes: Vec<(i32, i32)> = (0..PAPERS).flat_map(|p| [(p % AUTHORS, p), ((p * 4 + 1) % AUTHORS, p)]).collect();
    let cites: Vec<(i32, i32)> = (0..PAPERS - 3).map(|p| (p, p + 3)).collect();
    let ends =
        |edges: &[(i32, i32)]| -> Vec<i32> { edges.iter().map(|e| e.0).chain(edges.iter().map(|e| e.1)).collect() };
    // Both relations are columns of one file.
    let all = [&writes[..], &cites[..]].concat();
    integers("edges.npy", &[2, all.len()], &ends(&all));
    assert_eq!((writes.len(), all.len()), (48, 69), "as the description says");
    integers("reviews.npy", &[2, cites.len()], &ends(&cites).iter().map(|end| end % AUTHORS).collect::<Vec<_>>());
    let n = writes.len();
    floats("writes.w.npy", &[n], &(0..n).map(|i| 0.5 + (i % 4) as f32 / 4.0).collect::<Vec<_>>());
    floats("writes.x.npy", &[n, 2], &(0..2 * n).map(|i| (i % 3) as f32 - 1.0).collect::<Vec<_>>());

    integers("paper.y.npy", &[papers], &(0..PAPERS).map(|p| if p == 23 { -1 } else { p % 3 }).collect::<Vec<_>>());
    let tags: Vec<f32> = (0..PAPERS).flat_map(|p| [p % 3 == 0, p % 3 != 1].map(f32::from)).collect();
    floats("paper.tags.npy", &[papers, 2], &tags);
    floats("paper.year.npy", &[papers, 1], &(0..PAPERS).map(|p| (p % 3) as f32 - 0.5).collect::<Vec<_>>());
    for (part, range) in [("train", 0..12), ("val", 12..17), ("test", 17..23)] {
        let ids: Vec<i32> = range.collect();
        integers(&format!("half.{part}.npy"), &[ids.len()], &ids);
    }
    // Held-out links of the second relation that are not its edges.
    for (part, step) in [("val", 5), ("test", 7)] {
        let links: Vec<i32> = (0..6).chain([1; 6]).chain((0..6).map(|p| p + step)).collect();
        integers(&format!("links.{part}.npy"), &[3, 6], &links);
    }
}

const TOML: &str = r#"name = "tiny"
title = "A small dataset"
task = "classification"

[[vertex_type]]
name = "paper"
count = 24
kind_file = "paper.kind.npy"
kind_names = ["article", "book"]
[vertex_type.features]
kind = "csr"
dim = 6
nnz = 48
indptr = "paper.x.indptr.npy"
indices = "paper.x.indices.npy"
data = "paper.x.data.npy"

[[vertex_type]]
name = "author"
count = 9
[vertex_type.features]
kind = "dense"
dim = 3
file = "author.x.npy"

[[relation]]
name = "writes"
src = "author"
dst = "paper"
edges = 48
file = "edges.npy"
columns = [0, 48]
weight = "writes.w.npy"
[relation.features]
file = "writes.x.npy"
dim = 2

[[relation]]
name = "cites"
src = "paper"
dst = "paper"
file = "edges.npy"
columns = [48, 69]

[[relation]]
name = "reviews"
src = "author"
dst = "author"
file = "reviews.npy"

[[label]]
vertex_type = "paper"
name = "y"
kind = "single"
classes = 3
file = "paper.y.npy"
class_names = ["a", "b", "c"]

[[label]]
vertex_type = "paper"
name = "tags"
kind = "multi"
classes = 2
file = "paper.tags.npy"

[[label]]
vertex_type = "paper"
name = "year"
kind = "real"
file = "paper.year.npy"

[[split]]
name = "half"
vertex_type = "paper"
train = "half.train.npy"
train_size = 12
val = "half.val.npy"
test = "half.test.npy"

[[link_split]]
name = "some"
val = "links.val.npy"
test = "links.test.npy"

[[metapath]]
name = "PAP"
steps = ["<writes", ">writes"]

[[metapath]]
name = "APPA"
steps = [">writes", ">cites", "<writes"]
"#;

const SCHEMA: &str = r#"
use std::rgcn::RgcnConv
use std::link::DistMult
schema Tiny {
    vertex Paper from "paper" { x: f32[6] sparse, y: class[3], tags: multilabel[2], year: target[1] }
    vertex Author from "author" { x: f32[3] }
    relation writes: Author -> Paper { weight: f32, kind: f32[2] }
    relation cites: Paper -> Paper
    metapath PAP = Paper <-writes- Author -writes-> Paper
}
"#;

/// A vertex classification model with the given lines in its train block.
pub fn vertices(train: &str) -> String {
    let paths = if train.contains("batch") { "" } else { ", PAP" };
    format!(
        "{SCHEMA}
model Net(schema: Tiny) {{
    let hidden = dropout(relu(RgcnConv(hidden: 8) over [relations, reverses{paths}] of features), 0.2)
    output logits: Paper = RgcnConv(hidden: 3) over [relations, reverses{paths}] of hidden
}}
train Net {{
    split     \"half\"
    loss      cross_entropy(logits, Paper.y)
    optimizer adam(lr: 0.02)
    metrics   accuracy
    {train}
}}
"
    )
    .replace("use std::link::DistMult\n", "")
}

/// A model with outputs of semantic graphs and of edges.
pub fn attention() -> String {
    let text = vertices("epochs 2").replace("use std::rgcn::RgcnConv", "use std::han::HanConv");
    let (schema, rest) = text.split_once("model Net").expect("a model");
    let (_, train) = rest.split_once("train Net").expect("a train block");
    format!(
        "{schema}model Net(schema: Tiny) {{
    let conv = HanConv(hidden: 4, heads: 2) over [PAP, cites] of Paper.x
    output logits: Paper = linear(conv, 3)
    output beta: graphs = conv.beta
    output alpha: edges = conv.alpha
}}
train Net{train}"
    )
}

/// A link prediction model with the given lines in its train block.
pub fn links(train: &str) -> String {
    format!(
        "{SCHEMA}
model Net(schema: Tiny) {{
    let h = RgcnConv(hidden: 8) over [relations, reverses] of features
    output score: links = DistMult() over links(cites) of dropout(h, 0.1)
}}
train Net {{
    loss      binary_cross_entropy(score, links)
    optimizer adam(lr: 0.02)
    negatives uniform(2)
    metrics   auc
    {train}
}}
"
    )
    .replace("    metapath PAP = Paper <-writes- Author -writes-> Paper\n", "")
}
