//! Twelve relations, which are computed as one graph: training, batches, links and files as without
//! `stack_families`, up to the rounding of sums in another order.

use std::collections::BTreeMap;
use std::path::Path;

use hgnnc_dataset::npy;

use crate::common::*;

const ENTITIES: u32 = 40;
const RELATIONS: u32 = 12;
/// Relation 7 has no edges.
const EMPTY: u32 = 7;

const APART: [&str; 2] = ["--disable-pass", "stack_families"];

fn random(state: &mut u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as u32
}

fn columns(path: &Path, columns: &[&[i32]]) {
    npy::write(path, &[columns.len(), columns[0].len()], &columns.concat()).expect("written");
}

fn place() -> Place {
    let place = Place { folder: tempfile::tempdir().expect("a folder") };
    let data = place.path("data");
    std::fs::create_dir_all(&data).expect("a folder");
    let mut toml = format!(
        "name = \"many\"\n[[vertex_type]]\nname = \"entity\"\ncount = {ENTITIES}\n\
         [vertex_type.features]\nkind = \"dense\"\nfile = \"x.npy\"\ndim = 6\n"
    );
    let mut state = 11;
    for relation in 0..RELATIONS {
        toml += &format!(
            "[[relation]]\nname = \"r{relation}\"\nsrc = \"entity\"\ndst = \"entity\"\nfile = \"r{relation}.npy\"\n"
        );
        let count = if relation == EMPTY { 0 } else { 5 + random(&mut state) % 40 };
        let mut ends: Vec<(i32, i32)> = (0..count)
            .map(|_| ((random(&mut state) % ENTITIES) as i32, (random(&mut state) % ENTITIES) as i32))
            .collect();
        ends.sort_unstable();
        ends.dedup();
        let (src, dst): (Vec<i32>, Vec<i32>) = ends.into_iter().unzip();
        columns(&data.join(format!("r{relation}.npy")), &[&src, &dst]);
        if relation == 0 {
            // Links to predict are those of relation 0 that are not there.
            let known = |pair: &(i32, i32)| src.iter().zip(&dst).any(|(s, d)| (*s, *d) == *pair);
            let other: Vec<(i32, i32)> =
                (0..ENTITIES as i32).map(|v| (v, (v * 7 + 3) % ENTITIES as i32)).filter(|pair| !known(pair)).collect();
            for (name, part) in [("val_links", &other[..8]), ("test_links", &other[8..16])] {
                let (src, dst): (Vec<i32>, Vec<i32>) = part.iter().copied().unzip();
                columns(&data.join(format!("{name}.npy")), &[&src, &vec![0; part.len()], &dst]);
            }
        }
    }
    toml += "[[label]]\nvertex_type = \"entity\"\nname = \"topic\"\nclasses = 3\nfile = \"y.npy\"\n\
             [[split]]\nname = \"a\"\nvertex_type = \"entity\"\ntrain = \"train.npy\"\nval = \"val.npy\"\ntest = \"test.npy\"\n\
             [[link_split]]\nname = \"l\"\nval = \"val_links.npy\"\ntest = \"test_links.npy\"\n";
    std::fs::write(data.join("dataset.toml"), toml).expect("written");
    let x: Vec<f32> = (0..ENTITIES * 6).map(|_| random(&mut state) as f32 / (1u64 << 30) as f32 - 1.0).collect();
    npy::write(&data.join("x.npy"), &[ENTITIES as usize, 6], &x).expect("written");
    let y: Vec<i32> = (0..ENTITIES).map(|_| (random(&mut state) % 3) as i32).collect();
    npy::write(&data.join("y.npy"), &[ENTITIES as usize], &y).expect("written");
    for (name, part) in [("train", 0..24), ("val", 24..32), ("test", 32..40)] {
        npy::write(&data.join(format!("{name}.npy")), &[part.len()], &part.collect::<Vec<i32>>()).expect("written");
    }
    place
}

fn schema(features: &str) -> String {
    let relations: String =
        (0..RELATIONS).map(|r| format!("    relation r{r}: Entity -> Entity from \"r{r}\"\n")).collect();
    format!("schema S {{\n    vertex Entity from \"entity\" {{ {features}, topic: class[3] }}\n{relations}}}\n")
}

/// Two layers over all relations and their reverses, on all vertices.
fn model(features: &str, layer: &str, train: &str) -> String {
    format!(
        "use std::rgcn::{{RgcnConv, RgcnBasisConv}}\nuse std::rgat::RgatConv\n{}\
         model M(schema: S) {{\n    let h = relu({layer} over [relations, reverses] of Entity.x)\n    \
         output y: Entity = RgcnConv(hidden: 3) over [relations, reverses] of h\n}}\n\
         train M {{\n    loss cross_entropy(y, Entity.topic)\n    optimizer adam(lr: 0.01, weight_decay: 0.001)\n    \
         epochs 6\n    {train}\n}}\n",
        schema(features)
    )
}

type Weights = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

fn train(place: &Place, out: &str, args: &[&str]) -> Weights {
    let own = ["--weights-out", out, "--quiet"];
    place.with_data("train", &[&own[..], args].concat()).works();
    place.weights(out)
}

fn close(what: &str, found: &Weights, expected: &Weights) {
    let names =
        |weights: &Weights| weights.iter().map(|(name, (shape, _))| (name.clone(), shape.clone())).collect::<Vec<_>>();
    assert_eq!(names(found), names(expected), "{what}: names and shapes");
    for (name, (_, expected)) in expected {
        for (i, (a, b)) in found[name].1.iter().zip(expected).enumerate() {
            assert!((a - b).abs() <= 2e-4 * b.abs().max(1.0), "{what}: {name}[{i}] is {a} instead of {b}");
        }
    }
}

#[test]
fn stacked_relations_train_to_the_same_weights() {
    let place = place();
    for (what, features, layer) in [
        ("weights", "x: f32[6]", "RgcnConv(hidden: 4)"),
        ("tables", "x: onehot", "RgcnConv(hidden: 4)"),
        ("bases", "x: f32[6]", "RgcnBasisConv(hidden: 4, bases: 3)"),
        ("bases of tables", "x: onehot", "RgcnBasisConv(hidden: 4, bases: 3)"),
        ("attention", "x: f32[6]", "RgatConv(hidden: 2, heads: 3)"),
    ] {
        place.model(&model(features, layer, ""));
        let stacked = train(&place, "stacked.safetensors", &[]);
        let apart = train(&place, "apart.safetensors", &APART);
        assert!(stacked.contains_key("y.w.r3") && stacked.contains_key("y.w.reverse_r3"), "{what}: each has its own");
        close(what, &stacked, &apart);
        let explained = place.with_data("build", &["--explain"]).works().out;
        assert!(explained.contains("24 semantic graphs from `r0` on stacked"), "{what}: {explained}");
        // Each variant reads the weights that the other one wrote.
        for (args, out) in [(&[][..], "one.npy"), (&APART[..], "other.npy")] {
            let own = ["--weights", "apart.safetensors", "--out", out];
            place.with_data("infer", &[&own[..], args].concat()).works();
        }
        let [one, other] = ["one.npy", "other.npy"]
            .map(|name| npy::Npy::open(&place.path(name)).expect("an array").to_f32().expect("f32").to_vec());
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-4), "{what}: {one:?} {other:?}");
    }
}

#[test]
fn stacked_relations_train_on_batches() {
    let place = place();
    // One-hot features: each relation has a table, of which a batch takes rows.
    for features in ["x: f32[6]", "x: onehot"] {
        place.model(&model(features, "RgcnConv(hidden: 4)", "batch 7\n    fanout [3, 2]"));
        let stacked = train(&place, "stacked.safetensors", &[]);
        close(features, &stacked, &train(&place, "apart.safetensors", &APART));
        assert!(train(&place, "one.safetensors", &["--threads", "1"]) == stacked, "one thread, the same bits");
    }
}

#[test]
fn a_stopped_run_over_stacked_relations_is_resumed() {
    for batches in ["", "batch 7\n    fanout [3, 2]"] {
        let place = place();
        place.model(&model("x: f32[6]", "RgcnConv(hidden: 4)", batches));
        let whole = train(&place, "whole.safetensors", &["--epochs", "6"]);
        train(&place, "half.safetensors", &["--epochs", "3", "--checkpoint", "c"]);
        let resumed = train(&place, "resumed.safetensors", &["--epochs", "6", "--checkpoint", "c", "--resume"]);
        assert!(resumed == whole, "bit for bit: {batches}");
    }
}

#[test]
fn stacked_relations_are_trained_as_ptx() {
    let place = place();
    for (features, layer) in [("x: f32[6]", "RgcnConv(hidden: 4)"), ("x: onehot", "RgcnBasisConv(hidden: 4, bases: 3)")]
    {
        place.model(&model(features, layer, ""));
        let device = ["--device", "ptx-interp", "--epochs", "2"];
        let ptx = train(&place, "ptx.safetensors", &device);
        close("as PTX", &ptx, &train(&place, "cpu.safetensors", &["--epochs", "2"]));
    }
}

#[test]
fn scores_of_stacked_relations_train_to_the_same_weights() {
    let place = place();
    for loss in ["binary_cross_entropy", "cross_entropy", "bpr", "margin_ranking", "self_adversarial"] {
        std::fs::write(
            place.path("m.hgnn"),
            format!(
                "use std::link::DistMult\nuse std::rgcn::RgcnConv\n{}\
                 model M(schema: S) {{\n    let h = RgcnConv(hidden: 4) over [relations, reverses] of Entity.x\n    \
                 output score: links = DistMult() over links(relations) of h\n}}\n\
                 train M {{\n    loss {loss}(score, links)\n    optimizer sgd(lr: 0.1)\n    epochs 3\n    \
                 batch 32\n    fanout [3]\n    negatives uniform(2)\n    select train.loss\n    metrics auc\n}}\n",
                schema("x: f32[6]")
            ),
        )
        .expect("written");
        let stacked = train(&place, "stacked.safetensors", &[]);
        close(&format!("{loss} of links"), &stacked, &train(&place, "apart.safetensors", &APART));
        let ptx = train(&place, "ptx.safetensors", &["--device", "ptx-interp", "--epochs", "1"]);
        close(&format!("{loss} as PTX"), &ptx, &train(&place, "cpu.safetensors", &["--epochs", "1"]));
    }
}

/// A convolution of the source and the vector of the relation: products of matrices of each pair.
#[test]
fn convolutions_of_stacked_relations_train_to_the_same_weights() {
    let place = place();
    let text = format!(
        "use std::compgcn::RelationVectors\nuse std::link::ConvE\n{}\
         model M(schema: S) {{\n    let r = RelationVectors(width: 4) over relations\n    \
         let h = linear(Entity.x, 4)\n    \
         output score: links = ConvE(rows: 2, filters: 2, kernel: 2) over links(relations) of (h, r: r)\n}}\n\
         train M {{\n    loss cross_entropy(score, links)\n    optimizer sgd(lr: 0.1)\n    epochs 3\n    \
         batch 32\n    negatives uniform(2)\n    select train.loss\n    metrics auc\n}}\n",
        schema("x: f32[6]")
    );
    std::fs::write(place.path("m.hgnn"), text).expect("written");
    let explained = place.with_data("build", &["--explain"]).works().out;
    assert!(explained.contains("semantic graphs from `links_r0` on stacked"), "{explained}");
    let stacked = train(&place, "stacked.safetensors", &[]);
    close("convolutions", &stacked, &train(&place, "apart.safetensors", &APART));
}

/// Metapaths are stacked as relations are, from their edges: those that could be factored are materialized nonetheless.
#[test]
fn stacked_metapaths_train_to_the_same_weights() {
    let place = place();
    let names: Vec<String> = (0..8).map(|i| format!("M{i}")).collect();
    let metapaths: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(i, name)| format!("metapath {name} = counted Entity -r{i}-> Entity -r{}-> Entity", i + 1))
        .collect();
    let sums = "layer Sums(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] {
        project v: V { own = v.x }
        aggregate e: g in graphs {
            param w: [in, hidden] = glorot
            z = sum(e.count * (e.src.own @ w)) over in_edges
        }
        fuse v: V across graphs { out = sum(v.z) across graphs }
    }
    ";
    let text = model("x: f32[6]", "Sums(hidden: 4)", "");
    let text = text.replacen("schema", &format!("{sums}schema"), 1);
    let text = text.replacen("    relation r0", &format!("    {}\n    relation r0", metapaths.join("\n    ")), 1);
    let text = text.replace("[relations, reverses]", &format!("[{}]", names.join(", ")));
    place.model(&text);
    let explained = place.with_data("build", &["--explain"]).works().out;
    assert!(explained.contains("8 semantic graphs from `M0` on stacked"), "{explained}");
    let stacked = train(&place, "stacked.safetensors", &[]);
    close("stacked", &stacked, &train(&place, "apart.safetensors", &APART));
    let edges = ["--disable-pass", "factor_metapaths"];
    close("over edges", &stacked, &train(&place, "edges.safetensors", &edges));
}
