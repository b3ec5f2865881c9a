//! `build --emit ptx`.

use crate::common::{Place, Run};

/// The PTX of an example for H100, built without a dataset.
fn ptx(example: &str, args: &[&str]) -> Run {
    let model = format!("{}/../../examples/{example}.hgnn", env!("CARGO_MANIFEST_DIR"));
    Place::new().run(&[&["build", &model, "--target", "sm_90", "--emit", "ptx"], args].concat())
}

#[test]
fn products_are_as_exact_as_was_asked_for() {
    let count =
        |precision: &str, text: &str| ptx("han/acm", &["--precision", precision]).works().out.matches(text).count();
    let tf32 = count("tf32", ".tf32.tf32.f32");
    assert!(tf32 > 0, "HAN has large products");
    assert_eq!(count("tf32x3", ".tf32.tf32.f32"), 3 * tf32);
    assert_eq!(ptx("han/acm", &[]).works().out.matches(".tf32.tf32.f32").count(), 3 * tf32);
    // Half as many, of twice the depth.
    assert_eq!(2 * count("bf16", ".bf16.bf16.f32"), tf32);
    assert_eq!(count("f32", "mma.sync"), 0);
    ptx("han/acm", &["--precision", "f16"]).fails(2, &["f16", "tf32x3"]);
}

#[test]
fn wide_rows_are_loops_of_the_same_length() {
    let place = Place::new();
    let model = |hidden: u64| {
        let schema = "schema S {\n vertex P { x: f32[4] }\n relation r: P -> P\n}\n";
        let layer = format!(
            "use std::link::MlpScore\n{schema}model M(schema: S) {{\n \
             output score: links = MlpScore(hidden: {hidden}) over links(r) of linear(features, 4)\n}}\n"
        );
        layer
            + "train M {\n loss binary_cross_entropy(score, links)\n optimizer adam(lr: 0.01)\n batch 16\n \
                 negatives uniform(2)\n epochs 1\n}\n"
    };
    let build = |hidden: u64| {
        place.model(&model(hidden));
        place.run(&["build", "m.hgnn", "--emit", "ptx"])
    };
    let bytes = |hidden: u64| build(hidden).works().out.len();
    assert!(bytes(1000) < 1_000_000, "{} bytes", bytes(1000));
    // The number itself has more digits.
    let (wide, wider) = (bytes(30_000), bytes(10_000_000));
    assert!(wide < 200_000 && wider < wide + 5_000, "{wide} and {wider} bytes");
    build((1 << 31) - 1).fails(1, &["rows of 2147483647 elements, of at most 16777216"]);
}

/// The layers are instructions of a few kernels, whose text grows with their number.
#[test]
fn deep_models_take_time_in_proportion_to_their_depth() {
    let place = Place::new();
    let bytes = |depth: usize| {
        let layers: String =
            (1..=depth).map(|i| format!(" let h{i} = relu(linear(h{}, 8))\n", i - 1)).collect::<Vec<_>>().concat();
        let schema = "schema S {\n vertex P { x: f32[8], y: class[3] }\n}\n";
        let train = "train M {\n loss cross_entropy(o, P.y)\n optimizer adam(lr: 0.01)\n epochs 1\n}\n";
        place.model(&format!(
            "{schema}model M(schema: S) {{\n let h0 = P.x\n{layers} output o: P = linear(h{depth}, 3)\n}}\n{train}"
        ));
        place.run(&["build", "m.hgnn", "--emit", "ptx", "-o", "levels"]).works();
        place.bytes("levels/model.ptx").len()
    };
    // If time grew with the third power of the depth, the latter took a minute.
    let (half, all) = (bytes(500), bytes(1000));
    assert!(all < 2 * half + half / 10, "{half} and {all} bytes");
}
