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
fn rows_that_no_team_can_hold_are_refused() {
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
    let text = build(1000).works().out;
    assert!(text.len() < 2_000_000, "{} bytes", text.len());
    for hidden in [1_000_000, (1 << 31) - 1] {
        build(hidden).fails(1, &["elements", "registers of a team"]);
    }
}
