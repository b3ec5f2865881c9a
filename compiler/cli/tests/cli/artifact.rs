//! One file instead of model and weights, new vertices beside a graph, and what requests must bring.

use std::path::Path;

use hgnnc::artifact::VERSION;
use hgnnc_dataset::dataset::{
    Dataset, DenseFeatures, Features, RelationData, SparseFeatures, VertexIds, VertexTypeData,
};
use hgnnc_dataset::npy::Npy;

use crate::common::{AUTHORS, PAPERS, Place, Run, names};

const MODEL: &str = r#"use std::rgcn::RgcnConv

schema Tiny {
    vertex Paper from "paper" { x: f32[6] sparse, topic: class[3] }
    vertex Author from "author" { x: f32[3] }
    relation writes: Author -> Paper from "author-paper"
    relation cites: Paper -> Paper from "paper-paper"
}

model Net(schema: Tiny) {
    let hidden = relu(RgcnConv(hidden: 8) over [relations, reverses] of features)
    output logits: Paper = RgcnConv(hidden: 3) over [relations, reverses] of hidden
}

train Net {
    loss      cross_entropy(logits, Paper.topic)
    optimizer adam(lr: 0.05)
    epochs    3
    metrics   accuracy
}
"#;

/// The same with a row for each author instead of features.
fn transductive() -> String {
    MODEL.replace(r#"vertex Author from "author" { x: f32[3] }"#, r#"vertex Author from "author" { x: embedding[3] }"#)
}

fn floats(place: &Place, name: &str) -> Vec<f32> {
    Npy::open(&place.path(name)).unwrap_or_else(|e| panic!("{e:?}")).to_f32().expect("numbers").to_vec()
}

#[test]
fn a_run_is_kept_as_one_file_that_is_measured_and_used() {
    let place = Place::new();
    place.model(MODEL);
    place.with_data("train", &["-o", "run"]).works();
    assert_eq!(names(&place.path("run")), ["log.txt", "model.hgnnx", "report.json", "weights.safetensors"]);
    let weights = ["--weights", "run/weights.safetensors"];
    let source = place.with_data("eval", &weights).works().out;
    assert_eq!(place.run(&["eval", "run/model.hgnnx", "--data", "data"]).works().out, source);
    place.with_data("infer", &[&weights[..], &["--out", "a.npy"]].concat()).works();
    place.run(&["infer", "run/model.hgnnx", "--data", "data", "--out", "b.npy"]).works();
    assert_eq!(place.bytes("a.npy"), place.bytes("b.npy"));
    // Its tensors are weights.
    assert_eq!(place.weights("run/model.hgnnx"), place.weights("run/weights.safetensors"));
    // By its content, whatever its name.
    std::fs::copy(place.path("run/model.hgnnx"), place.path("renamed")).expect("copied");
    place.run(&["eval", "renamed", "--data", "data"]).works();
    // Without data of the model's own and without an option there are none.
    place.run(&["eval", "run/model.hgnnx"]).fails(1, &["names no dataset", "--data"]);

    place.with_data("train", &["-o", "direct.hgnnx"]).works();
    assert_eq!(place.bytes("direct.hgnnx"), place.bytes("run/model.hgnnx"));
    place.with_data("build", &["-o", "built.hgnnx", "--weights", "run/weights.safetensors"]).works();
    assert_eq!(place.run(&["eval", "built.hgnnx", "--data", "data"]).works().out, source);
}

#[test]
fn wrong_uses_are_told() {
    let place = Place::new();
    place.model(MODEL);
    place.with_data("train", &["-o", "m.hgnnx", "--weights-out", "w.safetensors"]).works();
    let eval = ["eval", "m.hgnnx", "--data", "data"];
    place
        .run(&[&eval[..], &["--weights", "w.safetensors"]].concat())
        .fails(1, &["is an artifact", "leave `--weights` out"]);
    place.with_data("eval", &[]).fails(2, &["--weights FILE.safetensors", "artifact"]);
    place.run(&["train", "m.hgnnx", "--data", "data"]).fails(1, &["is a trained model", "--init"]);
    place.with_data("build", &["-o", "x.hgnnx"]).fails(1, &["--weights"]);
    place.with_data("build", &["-o", "x", "--weights", "w.safetensors"]).fails(1, &["-o model.hgnnx"]);
    // Parameters alone, under a name of an artifact.
    std::fs::copy(place.path("w.safetensors"), place.path("w.hgnnx")).expect("copied");
    place.run(&["eval", "w.hgnnx", "--data", "data"]).fails(1, &["holds parameters only"]);
    std::fs::write(place.path("no.hgnnx"), "text").expect("written");
    place.run(&["eval", "no.hgnnx", "--data", "data"]).fails(1, &["no.hgnnx"]);
    place.npy("author.x.npy", &[AUTHORS, 4], &[0.0f32; AUTHORS * 4]).toml("dim = 3", "dim = 4");
    place.run(&eval).fails(1, &["does not fit", "`author` have 4 columns; the model was trained on 3"]);
}

#[test]
fn a_newer_version_is_refused_and_all_others_are_read() {
    let place = Place::new();
    let sample =
        |version: u32| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/cli/version-{version}.hgnnx"));
    if std::env::var_os("HGNN_WRITE_SAMPLES").is_some() {
        // The newest version weighs the negative samples of links by their scores.
        let toml = place.path("data/dataset.toml");
        let known = std::fs::read_to_string(&toml).expect("a text");
        std::fs::write(&toml, known.clone() + "[[link_split]]\nname = \"l\"\nval = \"val.npy\"\n").expect("written");
        place.npy("val.npy", &[3, 1], &[0i32, 1, 0]);
        let model = MODEL.replace(
            "cross_entropy(logits, Paper.topic)",
            "self_adversarial(score, links)\n    batch 8\n    negatives uniform(2, self_loops: true)",
        );
        let score = "    output score: links = Dot() over links(cites) of hidden\n}\n\ntrain";
        let model = model.replace("}\n\ntrain", score).replace("    metrics   accuracy\n", "");
        place.model(&format!("use std::link::Dot\n{model}")).with_data("train", &["-o", "m.hgnnx"]).works();
        std::fs::write(&toml, known).expect("written");
        std::fs::copy(place.path("m.hgnnx"), sample(VERSION)).expect("copied");
    }
    let mut bytes = vec![];
    for version in 1..=VERSION {
        bytes = std::fs::read(sample(version)).unwrap_or_else(|error| panic!("a sample of {version}: {error}"));
        std::fs::write(place.path("m.hgnnx"), &bytes).expect("written");
        let infer = ["infer", "m.hgnnx", "--data", "data", "--output", "logits", "--out", "y.npy"];
        let run = place.run(&infer).works();
        assert!(run.out.contains("40 rows of 3"), "{version}: {}", run.out);
    }
    // The version is a digit of the header, whose length stays.
    let text = br#"\"artifact\":7,"#;
    let at = bytes.windows(text.len()).position(|part| part == text).expect("a version") + text.len() - 2;
    let newer: Vec<u8> = bytes.iter().enumerate().map(|(i, &byte)| if i == at { b'9' } else { byte }).collect();
    std::fs::write(place.path("m.hgnnx"), newer).expect("written");
    place
        .run(&["infer", "m.hgnnx", "--data", "data", "--out", "y.npy"])
        .fails(1, &["is an artifact of version 9", "reads versions up to 7", "use a newer one"]);
}

/// The dataset with its last papers and authors as new ones: the rest, and a dataset of these with the vertices that
/// they are joined to, whose ids are positions.
fn divided(place: &Place, papers: usize, authors: usize) -> Dataset {
    let whole = Dataset::load(place.path("data")).unwrap_or_else(|e| panic!("{e}"));
    let keeps = [PAPERS - papers, AUTHORS - authors];
    let rows = |data: &VertexTypeData, rows: &[usize]| -> VertexTypeData {
        let features = match data.features.as_ref().expect("features") {
            Features::Dense(x) => {
                let all: Vec<f32> = rows.iter().flat_map(|&row| x.row(row).to_vec()).collect();
                Features::Dense(DenseFeatures { dim: x.dim, rows: all.into() })
            }
            Features::Sparse(x) => {
                let (mut indptr, mut indices, mut values) = (vec![0], vec![], vec![]);
                for &row in rows {
                    indices.extend_from_slice(x.row(row).0);
                    values.extend_from_slice(x.row(row).1);
                    indptr.push(indices.len() as u64);
                }
                Features::Sparse(SparseFeatures { dim: x.dim, indptr, indices, data: values.into() })
            }
        };
        VertexTypeData {
            name: data.name.clone(),
            count: rows.len(),
            features: Some(features),
            ..VertexTypeData::default()
        }
    };
    let is_old = |relation: &RelationData, edge: usize| {
        (relation.src_ids[edge] as usize) < keeps[relation.src]
            && (relation.dst_ids[edge] as usize) < keeps[relation.dst]
    };
    let edges = |relation: &RelationData, chosen: &dyn Fn(usize) -> bool, place: &dyn Fn(usize, u32) -> u32| {
        let all: Vec<usize> = (0..relation.num_edges()).filter(|&edge| chosen(edge)).collect();
        let features = relation.features.as_ref().map(|x| DenseFeatures {
            dim: x.dim,
            rows: all.iter().flat_map(|&edge| x.row(edge).to_vec()).collect::<Vec<_>>().into(),
        });
        RelationData {
            name: relation.name.clone(),
            src: relation.src,
            dst: relation.dst,
            src_ids: all.iter().map(|&edge| place(relation.src, relation.src_ids[edge])).collect(),
            dst_ids: all.iter().map(|&edge| place(relation.dst, relation.dst_ids[edge])).collect(),
            weight: relation.weight.as_ref().map(|w| all.iter().map(|&edge| w[edge]).collect::<Vec<_>>().into()),
            features,
            ..RelationData::default()
        }
    };
    // The new vertices first, from the last one on, and then those that they are joined to.
    let mut chosen: [Vec<u32>; 2] = [0, 1].map(|ty| (keeps[ty] as u32..[PAPERS, AUTHORS][ty] as u32).rev().collect());
    for relation in &whole.relations {
        for edge in (0..relation.num_edges()).filter(|&edge| !is_old(relation, edge)) {
            for (ty, vertex) in [(relation.src, relation.src_ids[edge]), (relation.dst, relation.dst_ids[edge])] {
                if !chosen[ty].contains(&vertex) {
                    chosen[ty].push(vertex);
                }
            }
        }
    }
    let base = Dataset {
        name: "old".into(),
        vertex_types: [0, 1].map(|ty| rows(&whole.vertex_types[ty], &(0..keeps[ty]).collect::<Vec<_>>())).to_vec(),
        relations: whole.relations.iter().map(|of| edges(of, &|edge| is_old(of, edge), &|_, vertex| vertex)).collect(),
        ..Dataset::default()
    };
    base.write(&place.path("old")).expect("written");
    let position = |ty: usize, vertex: u32| chosen[ty].iter().position(|&of| of == vertex).expect("chosen") as u32;
    let new = Dataset {
        name: "new".into(),
        vertex_types: [0, 1]
            .map(|ty| {
                let all: Vec<usize> = chosen[ty].iter().map(|&vertex| vertex as usize).collect();
                let ids = VertexIds::Integer(chosen[ty].iter().map(|&vertex| i64::from(vertex)).collect());
                VertexTypeData { ids: Some(ids), ..rows(&whole.vertex_types[ty], &all) }
            })
            .to_vec(),
        relations: whole.relations.iter().map(|of| edges(of, &|edge| !is_old(of, edge), &position)).collect(),
        ..Dataset::default()
    };
    new.write(&place.path("new")).expect("written");
    new
}

#[test]
fn new_vertices_get_what_they_get_as_part_of_the_graph() {
    let place = Place::new();
    place.model(MODEL).with_data("train", &["-o", "m.hgnnx", "--weights-out", "w.safetensors"]).works();
    let new = divided(&place, 3, 2);
    place.run(&["infer", "m.hgnnx", "--data", "data", "--out", "whole.npy"]).works();
    place.run(&["infer", "m.hgnnx", "--data", "old", "--new", "new", "--out", "new.npy"]).works();
    let (whole, found) = (floats(&place, "whole.npy"), floats(&place, "new.npy"));
    let Some(VertexIds::Integer(ids)) = &new.vertex_types[0].ids else { panic!("positions") };
    assert_eq!(found.len(), 3 * ids.len());
    assert!(ids.len() > 3 && ids[..3] == [39, 38, 37], "new papers, and those that they are joined to: {ids:?}");
    for (row, &id) in ids.iter().enumerate() {
        for class in 0..3 {
            let (a, b) = (whole[3 * id as usize + class], found[3 * row + class]);
            assert!((a - b).abs() <= 1e-5, "paper {id}, class {class}: {a} and {b}");
        }
    }
    // The same from source and weights, and as a table with the ids of the new data.
    place
        .run(&["infer", "m.hgnn", "--weights", "w.safetensors", "--data", "old", "--new", "new", "--out", "b.npy"])
        .works();
    assert_eq!(place.bytes("b.npy"), place.bytes("new.npy"));
    place.run(&["infer", "m.hgnnx", "--data", "old", "--new", "new", "--out", "t.csv"]).works();
    let table = std::fs::read_to_string(place.path("t.csv")).expect("a table");
    assert!(table.starts_with("id,class\n39,") && table.lines().count() == 1 + ids.len(), "{table}");
    // Several processes compute them together.
    for launcher in crate::ranks::launchers() {
        let args = ["m.hgnnx", "--data", "old", "--new", "new", "--out", "together.npy"];
        Run::of(launcher.command(&place, 2, "infer", &args).output().expect("it starts")).works();
        let together = floats(&place, "together.npy");
        assert_eq!(together.len(), found.len(), "{}", launcher.name.display());
        assert!(together.iter().zip(&found).all(|(a, b)| (a - b).abs() <= 1e-5), "{}", launcher.name.display());
    }
}

#[test]
fn edges_to_new_vertices_have_the_ids_of_both_ends() {
    let place = Place::new();
    let (schema, rest) = MODEL.split_once("model Net").expect("a model");
    let (_, train) = rest.split_once("train Net").expect("a train block");
    let model = "model Net(schema: Tiny) {
    let conv = GatConv(hidden: 3, heads: 1) over cites of Paper.x
    output logits: Paper = conv
    output alpha: edges = conv.alpha
}";
    place.model(&format!("{}{model}\ntrain Net{train}", schema.replace("rgcn::RgcnConv", "gat::GatConv")));
    place.with_data("train", &["-o", "m.hgnnx"]).works();
    let new = divided(&place, 3, 2);
    let infer = |data: &[&str], out: &str| {
        let args = [&["infer", "m.hgnnx", "--output", "alpha", "--out", out][..], data].concat();
        place.run(&args).works();
        let text = std::fs::read_to_string(place.path(out)).expect("a table");
        let rows = text.lines().skip(1).map(|line| {
            let (edge, alpha) = line.rsplit_once(',').expect("fields");
            (edge.to_owned(), alpha.parse::<f32>().expect("a number"))
        });
        rows.collect::<std::collections::BTreeMap<_, _>>()
    };
    let whole = infer(&["--data", "data"], "whole.csv");
    let found = infer(&["--data", "old", "--new", "new"], "new.csv");
    let Some(VertexIds::Integer(ids)) = &new.vertex_types[0].ids else { panic!("positions") };
    let is_asked = |edge: &str| ids.contains(&edge.rsplit(',').next().expect("an end").parse().expect("an id"));
    let expected: Vec<_> = whole.iter().filter(|(edge, _)| is_asked(edge)).collect();
    assert!(!expected.is_empty() && expected.len() < whole.len());
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.iter().map(|(edge, _)| *edge).collect::<Vec<_>>());
    for (edge, alpha) in expected {
        assert!((found[edge] - alpha).abs() <= 1e-5, "{edge}");
    }
}

#[test]
fn a_model_with_learned_rows_takes_new_vertices_of_other_types_only() {
    let place = Place::new();
    place.model(&transductive());
    divided(&place, 3, 0);
    place.with_data("train", &["-o", "m.hgnnx", "--weights-out", "w.safetensors"]).works();
    let infer = |new: &str, out: &str| place.run(&["infer", "m.hgnnx", "--data", "old", "--new", new, "--out", out]);
    infer("new", "a.npy").works();
    place.run(&["infer", "m.hgnnx", "--data", "data", "--out", "whole.npy"]).works();
    let (whole, found) = (floats(&place, "whole.npy"), floats(&place, "a.npy"));
    assert!((0..3).all(|class| (whole[3 * 39 + class] - found[class]).abs() <= 1e-5));

    std::fs::remove_dir_all(place.path("old"))
        .and_then(|()| std::fs::remove_dir_all(place.path("new")))
        .expect("removed");
    divided(&place, 3, 1);
    place
        .run(&["infer", "m.hgnn", "--weights", "w.safetensors", "--data", "old", "--new", "new", "--out", "b.npy"])
        .fails(1, &["E0430", "`logits` has no row for 1 new vertex of `Author`", "embedding[3]"]);
    // Trained on fewer authors: there are as many now as in the artifact, which are others only by their ids.
    place
        .run(&["infer", "m.hgnnx", "--data", "old", "--out", "c.npy"])
        .fails(1, &["`author` has 11 vertices", "each of 12"]);
}

#[test]
fn check_says_what_a_request_must_bring() {
    let place = Place::new();
    place.model(MODEL);
    let run = place.run(&["check", "m.hgnn", "--serve"]).works();
    for line in [
        "output logits: a row for each Paper",
        "within 2 hops",
        "new vertices of all types",
        "the neighbourhood is enough",
    ] {
        assert!(run.out.contains(line), "no `{line}` in {}", run.out);
    }
    place.with_data("train", &["-o", "m.hgnnx"]).works();
    assert_eq!(place.run(&["check", "m.hgnnx", "--serve"]).works().out, run.out);
    place.model(&transductive());
    let run = place.run(&["check", "m.hgnn", "--serve"]).works();
    assert!(run.out.contains("no new Author: the model learns a row for each"), "{}", run.out);
    let han = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/han/acm.hgnn");
    let run = place.run(&["check", han, "--serve"]).works();
    assert!(run.out.contains("depends on the whole graph: weights of semantic graphs"), "{}", run.out);
}
