//! Whole texts of small programs of kernels, to be read: `cases/*.ir` and what becomes of each for sm_90.
//!
//! The comment that a case begins with says what to look for. `; edges: M on average, N at most` gives
//! the degrees of its rows.

use hgnnc_kernel_ir::kernel::{Body, Rows, parse, verify};
use hgnnc_ptx::{Edges, Hints, Target, compile};

/// The degrees of rows that the comments of a case give.
fn edges(text: &str) -> Option<Edges> {
    let line = text.lines().find_map(|line| line.strip_prefix("; edges: "))?;
    let (mean, most) = line.split_once(" on average, ").expect("a mean and a maximum");
    let most = most.strip_suffix(" at most").expect("a maximum");
    Some(Edges { mean: mean.parse().expect("a number"), most: most.parse().expect("a number") })
}

mod cases {
    include!(concat!(env!("OUT_DIR"), "/cases.rs"));
}

fn case(name: &str) {
    let text = std::fs::read_to_string(format!("tests/cases/{name}")).expect("the case is readable");
    let program = parse(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
    if let Err(broken) = verify(&program) {
        panic!("{name}: {broken:#?}");
    }
    let rows = program.kernels().filter_map(|kernel| match &kernel.body {
        Body::Traversal(traversal) if traversal.rows.has_edges() => Some(traversal.rows.clone()),
        Body::Traversal(_) | Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => None,
    });
    let known: Vec<(Rows, Edges)> = rows.zip(edges(&text).into_iter().cycle()).collect();
    let module = compile(&program, Target::SM_90, Hints { edges: &known, source: None });
    let module = module.unwrap_or_else(|error| panic!("{name}: {error}"));
    insta::with_settings!({ omit_expression => true, snapshot_suffix => name }, {
        insta::assert_snapshot!("texts", format!("{text}\n{}", module.text))
    });
}
