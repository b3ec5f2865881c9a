//! Metapaths that are not materialized.

use serde_json::Value;

use crate::common::Place;

/// Papers have one subject each, so that two papers of a subject are joined by one path; they have several authors.
const SCHEMA: &str = "
schema Acm {
    vertex Paper from \"paper\" { x: f32[1902] sparse, topic: class[3] }
    vertex Author from \"author\"
    vertex Subject from \"subject\"
    relation written_by: Paper -> Author from \"paper-author\"
    relation about: Paper -> Subject from \"paper-subject\"
    metapath PAP = Paper -written_by-> Author <-written_by- Paper
    metapath PSP = Paper -about-> Subject <-about- Paper
    metapath PsP = counted Paper -about-> Subject <-about- Paper
}
";

const TRAIN: &str = "
train Net {
    loss      cross_entropy(logits, Paper.topic)
    optimizer adam(lr: 0.005)
    epochs    5
    metrics   macro_f1
}
";

fn attention(dropout: f64) -> String {
    format!(
        "use std::han::HanConv
        {SCHEMA}
        model Net(schema: Acm) {{
            let h = HanConv(hidden: 4, heads: 2, dropout: {dropout:?}) over [PAP, PSP] of Paper.x
            output logits: Paper = linear(h, 3)
        }}
        {TRAIN}"
    )
}

fn place(model: &str) -> Place {
    let place = Place::new();
    place.model(model);
    place.run(&["data", "synth", "acm", "graph"]).works();
    place
}

/// The report of a short training.
fn trained(place: &Place, args: &[&str]) -> Value {
    let usual = ["train", "m.hgnn", "--data", "graph", "--quiet", "--seed", "3", "--report", "r.json"];
    place.run(&[&usual[..], args].concat()).works();
    place.json("r.json")
}

/// Name, edges, and whether they are listed, of each semantic graph.
fn graphs(report: &Value) -> Vec<(String, u64, bool)> {
    let graph = |g: &Value| {
        let name = g["name"].as_str().expect("a name").to_owned();
        (name, g["edges"].as_u64().expect("a number"), g["listed"].as_bool().expect("yes or no"))
    };
    report["semantic_graphs"].as_array().expect("a list").iter().map(graph).collect()
}

fn same_losses(a: &Value, b: &Value) {
    let losses = |report: &Value| -> Vec<f64> {
        report["losses"].as_array().expect("a list").iter().map(|loss| loss.as_f64().expect("a number")).collect()
    };
    let (a, b) = (losses(a), losses(b));
    assert_eq!(a.len(), 5);
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5 * a.abs()), "{a:?}\n{b:?}");
}

#[test]
fn attention_is_factored_where_pairs_have_one_path() {
    let place = place(&attention(0.0));
    let along = trained(&place, &["--threads", "1"]);
    let listed = trained(&place, &["--disable-pass", "factor_metapaths"]);
    let (along_graphs, listed_graphs) = (graphs(&along), graphs(&listed));
    assert_eq!(listed_graphs.iter().map(|g| (&g.0[..], g.2)).collect::<Vec<_>>(), [("PAP", true), ("PSP", true)]);
    assert_eq!(along_graphs, [listed_graphs[0].clone(), ("PSP".into(), listed_graphs[1].1, false)]);
    same_losses(&along, &listed);
    // The same numbers with two threads.
    assert_eq!(along["losses"], trained(&place, &["--threads", "2"])["losses"]);
    let run = place.run(&["build", "m.hgnn", "--data", "graph", "--explain"]).works();
    assert!(run.out.contains("sums over `PSP` are factored"), "{}", run.out);
}

/// An output of edges needs the edges of a metapath that is factored otherwise, and only where it is asked for.
#[test]
fn an_output_of_edges_materializes_a_factored_metapath() {
    let output = "output attention: edges = h.alpha\n            output logits";
    let place = place(&attention(0.0).replace("output logits", output));
    place
        .run(&["train", "m.hgnn", "--data", "graph", "--epochs", "1", "--report", "r.json", "--weights-out", "w"])
        .works();
    assert_eq!(graphs(&place.json("r.json")).iter().map(|graph| graph.2).collect::<Vec<_>>(), [true, false]);
    let explain =
        |args: &[&str]| place.run(&[&["build", "m.hgnn", "--data", "graph", "--explain"], args].concat()).works().out;
    let text = explain(&[]);
    assert!(text.contains("sums over `PSP` are factored"), "{text}");
    let text = explain(&["--output", "attention"]);
    assert!(text.contains("sums over `PSP` go over its edges: they are a result"), "{text}");
    let infer = ["infer", "m.hgnn", "--data", "graph", "--weights", "w", "--output", "attention", "--out", "a.npy"];
    let run = place.run(&infer).works();
    let edges: u64 = graphs(&place.json("r.json")).iter().map(|graph| graph.1).sum();
    assert!(run.out.contains(&format!("(rows of 2, {edges} edges: PAP, PSP)")), "{}", run.out);
}

#[test]
fn dropout_of_attention_needs_the_pairs() {
    let place = place(&attention(0.5));
    assert!(graphs(&trained(&place, &[])).iter().all(|graph| graph.2));
    let run = place.run(&["build", "m.hgnn", "--data", "graph", "--explain"]).works();
    assert!(
        run.out.contains("sums over `PSP` go over its edges: their weights have a factor, such as dropout"),
        "{}",
        run.out
    );
}

/// Operations that the loss does not read do not affect whether the edges that the loss needs are listed: a wide sum
/// would save more hop by hop than the narrow attention loses.
#[test]
fn edges_are_listed_for_the_program_that_needs_them() {
    let place = Place::new();
    place.run(&["data", "synth", "imdb", "graph"]).works();
    place.model(&format!(
        "use std::han::HanConv
        layer Wide() over graphs: [V -> V] of x: V[in] -> V[2048] {{
            project v: V {{
                param w: [in, 2048] = glorot
                h = relu(v.x @ w)
            }}
            aggregate e: g in graphs {{ z = sum(e.src.h) over in_edges }}
            fuse v: V across graphs {{ out = relu(sum(v.z) across graphs) }}
        }}
        schema Imdb {{
            vertex Paper from \"movie\" {{ x: f32[3066] sparse, topic: class[3] }}
            vertex Director from \"director\"
            relation directed_by: Paper -> Director from \"movie-director\"
            metapath MDM = Paper -directed_by-> Director <-directed_by- Paper
        }}
        model Net(schema: Imdb) {{
            let h = HanConv(hidden: 1, heads: 1) over [MDM] of Paper.x
            output extra: Paper = linear(Wide() over [MDM] of Paper.x, 3)
            output logits: Paper = linear(h, 3)
        }}
        {TRAIN}"
    ));
    let (along, listed) = (trained(&place, &[]), trained(&place, &["--disable-pass", "factor_metapaths"]));
    same_losses(&along, &listed);
    let (along, listed) = (graphs(&along), graphs(&listed));
    assert!(along[0].2 && along == listed, "{along:?}");
}

#[test]
fn means_over_counted_paths_go_hop_by_hop() {
    let place = place(&format!(
        "layer Mean(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] {{
            project v: V {{
                param w: [in, hidden] = glorot
                h = v.x @ w
            }}
            aggregate e: g in graphs {{
                z = (sum(e.count * e.src.h) over in_edges) / (sum(e.count) over in_edges)
            }}
            fuse v: V across graphs {{
                out = sum(v.z) across graphs
            }}
        }}
        {SCHEMA}
        model Net(schema: Acm) {{
            output logits: Paper = linear(Mean(hidden: 4) over [PsP] of Paper.x, 3)
        }}
        {TRAIN}"
    ));
    let (factored, materialized) = (trained(&place, &[]), trained(&place, &["--disable-pass", "factor_metapaths"]));
    same_losses(&factored, &materialized);
    let (factored, materialized) = (graphs(&factored), graphs(&materialized));
    assert_eq!((materialized[0].2, factored[0].2), (true, false));
    assert_eq!(factored[0].1, materialized[0].1, "the number of pairs is known nonetheless");
    let run = place.run(&["build", "m.hgnn", "--data", "graph", "--explain"]).works();
    assert!(run.out.contains("sums over `PsP` are factored"), "{}", run.out);
}

/// Papers that are two common authors apart: many more paths than pairs.
fn far() -> String {
    let papap =
        "metapath PAPAP = Paper -written_by-> Author <-written_by- Paper -written_by-> Author <-written_by- Paper";
    let schema = SCHEMA.replace("metapath PSP", &format!("{papap}\n    metapath PSP"));
    attention(0.0).replace(SCHEMA, &schema).replace("[PAP, PSP]", "[PAP, PAPAP]")
}

/// Was the graph of this metapath read from the cache?
fn is_cached(report: &Value, name: &str) -> bool {
    let graphs = report["semantic_graphs"].as_array().expect("a list");
    let graph = graphs.iter().find(|graph| graph["name"] == name).expect("a graph");
    assert!(graph["sgb_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{graph}");
    graph["cached"].as_bool().expect("yes or no")
}

#[test]
fn graphs_of_metapaths_are_kept_beside_the_dataset() {
    let place = place(&far());
    let without = trained(&place, &["--no-graph-cache"]);
    assert!(!is_cached(&without, "PAPAP") && !place.path("graph/.hgnnc-cache").exists());
    let first = trained(&place, &[]);
    let second = trained(&place, &[]);
    assert_eq!((is_cached(&first, "PAPAP"), is_cached(&second, "PAPAP")), (false, true));
    assert_eq!((&first["losses"], &second["losses"]), (&without["losses"], &without["losses"]));
    // Told on standard error, and by `data cache`.
    let run = place.run(&["train", "m.hgnn", "--data", "graph", "--epochs", "1"]).works();
    assert!(run.err.contains("semantic graphs from the cache beside the dataset: ") && run.err.contains("PAPAP ("));
    let shown = place.run(&["data", "cache", "graph"]).works().out;
    assert!(
        shown.contains(">paper-author <paper-author >paper-author <paper-author: 3025 -> 3025 vertices"),
        "{shown}"
    );
    // No room: what is there may still be read, but nothing more is kept.
    place.run(&["data", "cache", "graph", "--clear"]).works();
    assert!(!place.path("graph/.hgnnc-cache").exists());
    assert!(!is_cached(&trained(&place, &["--graph-cache-limit", "1K"]), "PAPAP"));
    assert!(!place.path("graph/.hgnnc-cache").exists());
    place.run(&["data", "cache", "nowhere"]).fails(1, &["nowhere", "dataset.toml"]);
    place.run(&["train", "m.hgnn", "--no-graph-cache", "--graph-cache-limit", "1K"]).fails(2, &["cannot be used with"]);
}

/// A layer whose attention has this score, in place of the leaky ReLU of HAN.
fn scored(score: &str) -> String {
    format!(
        "layer Attend(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] {{
            project v: V {{
                param w: [in, hidden] = glorot
                param a: [hidden] = glorot
                param b: [hidden] = glorot
                h = v.x @ w
                left = dot(h, a)
                right = dot(h, b)
            }}
            aggregate e: g in graphs {{
                attention = softmax({score}) over in_edges
                z = sum(attention * e.src.h) over in_edges
            }}
            fuse v: V across graphs {{ out = sum(v.z) across graphs }}
        }}
        {SCHEMA}
        model Net(schema: Acm) {{
            output logits: Paper = linear(Attend(hidden: 4) over [PSP] of Paper.x, 3)
        }}
        {TRAIN}"
    )
}

#[test]
fn attention_is_factored_for_piecewise_linear_scores() {
    for score in [
        "relu(e.src.left - e.dst.right)",
        "2.0 * leaky_relu(e.src.left + 0.5 * e.dst.right, slope: 0.1)",
        "e.src.left + e.dst.right",
        "e.src.left",
    ] {
        let place = place(&scored(score));
        let factored = trained(&place, &[]);
        assert!(graphs(&factored).iter().all(|graph| !graph.2), "{score}: {:?}", graphs(&factored));
        same_losses(&factored, &trained(&place, &["--disable-pass", "factor_metapaths"]));
    }
}

#[test]
fn attention_with_another_score_needs_the_pairs() {
    let place = place(&scored("tanh(e.src.left + e.dst.right)"));
    assert!(graphs(&trained(&place, &[])).iter().all(|graph| graph.2));
    let run = place.run(&["build", "m.hgnn", "--data", "graph", "--explain"]).works();
    assert!(run.out.contains("sums over `PSP` go over its edges: their score is not"), "{}", run.out);
}

/// A GPU has no kernels of factored attention: it gets the edges.
#[test]
fn a_target_without_factored_attention_gets_the_edges() {
    let place = place(&attention(0.0));
    let ptx = ["build", "m.hgnn", "--data", "graph", "--emit", "ptx", "--target", "sm_90"];
    assert!(place.run(&ptx).works().out.contains(".target sm_90"));
    let run = place.run(&[&ptx[..4], &["--target", "sm_90", "--explain"]].concat()).works();
    assert!(run.out.contains("sums over `PSP` go over its edges: sm_90 has no factored attention"), "{}", run.out);
}
