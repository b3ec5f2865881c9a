//! Three miniature models through every level of the compiler: `tests/cases/levels/*.hgnn`. PTX is that of the
//! evaluation program. Loops and the machine code of a processor depend on it: `compiler/driver/tests/levels.rs` has them
//! for a fixed one.

use crate::common::Place;

/// Levels of a model that is trained.
const LEVELS: [&str; 9] = ["ast", "model", "dataflow", "joint", "optimized", "infer", "groups", "kernels", "fused"];

#[test]
fn han() {
    levels("han");
}

#[test]
fn rgcn_over_a_family() {
    levels("rgcn_family");
}

#[test]
fn graph_sage_on_batches() {
    levels("sage_batches");
}

fn levels(name: &str) {
    let place = Place::new();
    let path = format!("{}/../../tests/cases/levels/{name}.hgnn", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the case is readable");
    place.model(&text);
    for level in LEVELS {
        let shown = place.run(&["build", "m.hgnn", "--emit", level]).works();
        assert_eq!(shown.err, "", "{level}");
        snapshot(name, level, &shown.out);
    }
    let forward = text.split("\ntrain ").next().expect("a text has a beginning");
    place.model(&format!("{forward}\n"));
    snapshot(name, "ptx", &place.run(&["build", "m.hgnn", "--emit", "ptx", "--target", "sm_90"]).works().out);
}

fn snapshot(name: &str, level: &str, text: &str) {
    insta::with_settings!({ snapshot_suffix => format!("{name}.{level}"), omit_expression => true }, {
        insta::assert_snapshot!("level", text);
    });
}
