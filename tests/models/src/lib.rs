//! Semantic tests: whole models on small heterogeneous graphs.
//!
//! - [`world`]: graphs with features that break other tools (isolated vertices, empty relations, duplicate edges, self
//!   loops), handwritten or random, with values on vertices and edges;
//! - [`cases`]: one model for each layer of the standard library;
//! - [`compiled`]: a source text as programs, and those programs bound to a world;
//! - [`engine`]: the same programs on the f32 engine;
//! - [`device`]: the same programs trained for some steps, by the oracle, the engine and as PTX;
//! - [`dataset`]: a world as a dataset of the runtime;
//! - [`examples`]: the example models, and the sizes of their datasets;
//! - [`assembler`]: calls of ptxas;
//! - [`plain`]: vectors and loops, for reference implementations of the papers' equations.
//!
//! `tests/README.md` describes the organisation of the tests and longer runs.

pub mod assembler;
pub mod cases;
pub mod compiled;
pub mod dataset;
pub mod device;
pub mod engine;
pub mod examples;
pub mod plain;
pub mod world;

pub use cases::{CASES, Case, case};
pub use compiled::{Compiled, compile, report};
pub use world::World;

/// Number of random worlds per test: `HGNNC_WORLDS`, or `usual`.
pub fn worlds(usual: u64) -> u64 {
    std::env::var("HGNNC_WORLDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// The largest absolute value, at least `floor`.
pub fn scale(numbers: &[f64], floor: f64) -> f64 {
    numbers.iter().fold(floor, |most, x| most.max(x.abs()))
}

/// Compares element by element; the tolerance is relative to the largest expected value, absolute below 1.
///
/// # Panics
/// When an element differs; the message has its position.
#[track_caller]
pub fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}: number of elements");
    let most = tolerance * scale(expected, 1.0);
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        assert!((f - e).abs() <= most, "{what}, element {i}: {f} instead of {e} (± {most:e})");
    }
}

/// Defines a test for each of [`CASES`], under its name, which calls a function with this name.
#[macro_export]
macro_rules! test_each_case {
    ($check:expr) => {
        $crate::test_each_case! {
            $check =>
            han rgcn rgcn_basis rgcn_block rgat rgat_across gcn gat gat_without_loops gat_average sage_mean sage_max sage_lstm gin gin_normalized
            simple_hgn hgt hgt_per_relation hgt_rte gat_v2 appnp sehgnn sehgnn_labels hidden_labels compgcn magnn magnn_mean het_gnn
            sign nars ie_hgcn gtn r_hgnn hpn heco set2set dmgi rgcn_sparse several_fields
        }
    };
    ($check:expr => $($name:ident)*) => {
        $(#[test]
        fn $name() {
            $check(stringify!($name));
        })*

        #[test]
        fn every_case_has_a_test_here() {
            let tested = [$(stringify!($name)),*];
            let all: Vec<&str> = $crate::CASES.iter().map(|case| case.name).collect();
            assert_eq!(tested[..], all[..]);
        }
    };
}
