//! A whole table of `--emit bounds`, to be read: what each operation and each kernel does on a graph of a given size,
//! and how long it is predicted to take on the machine of a data sheet (`machine/sheets/sm_90.toml`).

use crate::common::Place;

/// A projection, a mean over in-edges of gathered rows, and a step of the optimiser.
const MODEL: &str = "
schema Papers {
    vertex Paper { x: f32[128], topic: class[8] }
    relation cites: Paper -> Paper
}

layer Mean(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] {
    project v: V {
        param w: [in, hidden] = glorot
        h = v.x @ w
    }
    aggregate e: g in graphs {
        z = mean(e.src.h) over in_edges
    }
    fuse v: V across graphs {
        out = sum(v.z) across graphs
    }
}

model Net(schema: Papers) {
    let h = relu(Mean(hidden: 16) over [cites] of Paper.x)
    output logits: Paper = linear(h, 8)
}

train Net {
    loss      cross_entropy(logits, Paper.topic)
    optimizer sgd(lr: 0.1)
    epochs    1
}
";

/// As many as in OGB's papers of arXiv.
const STATS: &str = r#"{"vertices": {"Paper": 169343}, "edges": {"cites": 1166243}}"#;

#[test]
fn a_whole_table() {
    let place = Place::new();
    place.model(MODEL);
    std::fs::write(place.path("s.json"), STATS).expect("written");
    let args = ["build", "m.hgnn", "--stats", "s.json", "--emit", "bounds", "--target", "sm_90"];
    insta::assert_snapshot!(place.run(&args).works().out);
}
