//! A small valid dataset with one of everything, to break in many ways.

use std::path::Path;

use hgnnc_dataset::npy;

/// `dataset.toml` of the dataset that [`write`] writes.
pub const TOML: &str = r#"
name = "tiny"
unknown = "ignored"

[[vertex_type]]
name = "paper"
count = 4
kind_file = "kind.npy"
kind_names = ["article", "book"]
[vertex_type.features]
kind = "csr"
dim = 3
nnz = 5
indptr = "indptr.npy"
indices = "indices.npy"
data = "data.npy"

[[vertex_type]]
name = "author"
count = 3
[vertex_type.features]
kind = "dense"
dim = 2
file = "dense.npy"

[[relation]]
name = "writes"
src = "author"
dst = "paper"
edges = 4
file = "writes.npy"
weight = "weight.npy"
[relation.features]
file = "edge.npy"
dim = 2

[[relation]]
name = "cites"
src = "paper"
dst = "paper"
edges = 2
file = "shared.npy"
columns = [1, 3]

[[label]]
vertex_type = "paper"
classes = 3
file = "y.npy"
labelled = 3

[[label]]
vertex_type = "author"
name = "topics"
kind = "multi"
classes = 2
file = "multi.npy"

[[label]]
vertex_type = "author"
name = "age"
kind = "real"
file = "real.npy"
mask_file = "mask.npy"

[[split]]
name = "std"
vertex_type = "paper"
train = "train.npy"
train_size = 1
val = "val.npy"
test = "test.npy"

[[link_split]]
name = "links"
val = "links.npy"
val_edges = 2

[[metapath]]
name = "APA"
steps = [">writes", "<writes"]
rows = 3
pairs = 5
"#;

/// Writes the dataset into `dir`.
pub fn write(dir: &Path) {
    let at = |name: &str| dir.join(name);
    std::fs::write(at("dataset.toml"), TOML).unwrap();
    npy::write(&at("kind.npy"), &[4], &[0i32, 1, 0, 1]).unwrap();
    npy::write(&at("indptr.npy"), &[5], &[0i64, 2, 2, 3, 5]).unwrap();
    npy::write(&at("indices.npy"), &[5], &[0i32, 2, 1, 0, 1]).unwrap();
    npy::write(&at("data.npy"), &[5], &[1f32, 2.0, 3.0, 4.0, 5.0]).unwrap();
    npy::write(&at("dense.npy"), &[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    npy::write(&at("writes.npy"), &[2, 4], &[0i32, 1, 1, 2, 0, 0, 3, 2]).unwrap();
    npy::write(&at("weight.npy"), &[4], &[0.5f32, 1.0, 1.5, 2.0]).unwrap();
    npy::write(&at("edge.npy"), &[4, 2], &[0f32; 8]).unwrap();
    npy::write(&at("shared.npy"), &[2, 4], &[9i64, 0, 1, 9, 9, 1, 3, 9]).unwrap();
    npy::write(&at("y.npy"), &[4], &[0i32, 2, -1, 1]).unwrap();
    npy::write(&at("multi.npy"), &[3, 2], &[1f32, 0.0, -1.0, -1.0, 1.0, 1.0]).unwrap();
    npy::write(&at("real.npy"), &[3], &[30f32, f32::NAN, 50.0]).unwrap();
    npy::write(&at("mask.npy"), &[3], &[1u8, 0, 1]).unwrap();
    npy::write(&at("train.npy"), &[1], &[1i32]).unwrap();
    npy::write(&at("val.npy"), &[1], &[0i32]).unwrap();
    npy::write(&at("test.npy"), &[1], &[3i32]).unwrap();
    npy::write(&at("links.npy"), &[3, 2], &[2i32, 3, 0, 1, 1, 0]).unwrap();
}
