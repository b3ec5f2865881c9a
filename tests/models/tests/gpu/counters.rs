//! Bounds on the memory traffic of training steps, as counted by the PTX interpreter: sectors of 32 bytes and
//! wavefronts of shared memory, relative to the minimum for the distinct bytes.
//!
//! `cargo test -p hgnnc-model-tests --test gpu counters -- --nocapture` prints the counts of each launch.

use std::collections::BTreeMap;

use hgnnc_cuda::{DeviceEngine, Interpreter};
use hgnnc_driver::LowerOptions;
use hgnnc_ir::Stage;
use hgnnc_ir::random::uniform;
use hgnnc_kernel_ir::kernel::{Body, Kernel, Program};
use hgnnc_machine::Machine;
use hgnnc_machine::counters::Counters;
use hgnnc_model_tests::compiled::compile;
use hgnnc_model_tests::device::executed;
use hgnnc_model_tests::world::Edges;
use hgnnc_model_tests::{World, engine};

/// Widths as models have them: 64 numbers, 8 heads.
const SCHEMA: &str = "
schema Library {
    vertex Paper { x: f32[64], topic: class[8] }
    vertex Author { x: f32[32] }
    vertex Venue { x: f32[16] }

    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    relation appears_in: Paper -> Venue

    metapath PAP = Paper <-writes- Author -writes-> Paper
    metapath PVP = Paper -appears_in-> Venue <-appears_in- Paper
}
";

const TRAIN: &str = "train M { loss cross_entropy(y, Paper.topic) optimizer adam(lr: 0.01) epochs 1 }";

const HAN: (&str, &str) = (
    "use std::han::HanConv",
    "let conv = HanConv(hidden: 8, heads: 8, dropout: 0.3, attention: 64) over [PAP, PVP, cites] of Paper.x
    output y: Paper = linear(conv, 8)",
);
const RGCN: (&str, &str) = (
    "use std::rgcn::RgcnConv",
    "let first = dropout(relu(RgcnConv(hidden: 64) over [relations, reverses] of features), 0.3)
    output y: Paper = RgcnConv(hidden: 8) over [relations, reverses] of first",
);
const RGAT: (&str, &str) = (
    "use std::rgat::RgatConv",
    "let conv = RgatConv(hidden: 8, heads: 8, dropout: 0.3) over [relations, reverses] of features
    output y: Paper = linear(conv.Paper, 8)",
);

/// Rows of zero to some tens of edges.
fn world() -> World {
    let edges = |salt: u64, sources: f64, destinations: f64, count: u64| -> Edges {
        let end = |e: u64, n: f64| (uniform(salt, e).powf(1.5) * n) as u32;
        (0..count).map(|e| (end(2 * e, sources), end(2 * e + 1, destinations))).collect()
    };
    World::new(
        5,
        &[("Paper", 256), ("Author", 192), ("Venue", 16)],
        &[
            ("cites", &edges(1, 256.0, 256.0, 1500)),
            ("writes", &edges(2, 192.0, 256.0, 700)),
            ("appears_in", &edges(3, 256.0, 16.0, 256)),
        ],
    )
}

/// Kinds of launches, each with its bounds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    /// Traversals of neighbour aggregation, forward and backward.
    Aggregation,
    /// Reductions over edges that share a kernel with more operations of another stage.
    AggregationWithin,
    Rows,
    /// Matrix products, alone or interleaved with other kernels.
    Products,
    /// Reductions of partial results, and copies.
    Completion,
}

/// Upper bounds of a kind of launch relative to the ideal: sectors of global loads and stores, wavefronts of shared
/// loads and stores.
const BOUNDS: [(Kind, [f64; 4]); 5] = [
    // Rows that share a warp read their edge indices from different places. Two teams of four lanes store vectors at
    // the same time, with bank conflicts that scalar stores of eight teams do not have.
    (Kind::Aggregation, [1.3, 1.0, 1.0, 1.25]),
    // The teams' stores are the same. Loads are mostly those of rows.
    (Kind::AggregationWithin, [1.25, 1.0, 1.0, 1.25]),
    // Tiles are zero-padded once.
    (Kind::Rows, [1.25, 1.0, 1.0, 1.01]),
    (Kind::Products, [1.25, 1.0, 1.0, 1.0]),
    (Kind::Completion, [1.0, 1.0, 1.0, 1.0]),
];

fn kind(kernels: &[&Kernel]) -> Kind {
    let dense = |kernel: &&Kernel| matches!(kernel.body, Body::Gemm(_));
    let reduces = |kernel: &&Kernel| match &kernel.body {
        Body::Traversal(traversal) => traversal.instrs.iter().any(|instr| instr.op.reduces_edges()),
        Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => false,
    };
    let aggregates = |kernel: &&Kernel| match &kernel.body {
        Body::Traversal(traversal) => kernel.stage == Stage::NA && traversal.rows.has_edges(),
        Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => false,
    };
    match kernels {
        [] => Kind::Completion,
        kernels if kernels.iter().any(dense) => Kind::Products,
        kernels if kernels.iter().all(aggregates) => Kind::Aggregation,
        kernels if kernels.iter().all(reduces) => Kind::AggregationWithin,
        _ => Kind::Rows,
    }
}

/// Sectors or wavefronts, and the ideal number.
fn traffic(counters: &Counters) -> [(u64, u64); 4] {
    let Counters { global_loads, global_stores, shared_loads, shared_stores, .. } = counters;
    [
        (global_loads.sectors, global_loads.ideal_sectors),
        (global_stores.sectors, global_stores.ideal_sectors),
        (shared_loads.wavefronts, shared_loads.ideal_wavefronts),
        (shared_stores.wavefronts, shared_stores.ideal_wavefronts),
    ]
}

fn check(name: &str, (uses, body): (&str, &str)) {
    let compiled = compile(&format!("{uses}\n{SCHEMA}\nmodel M(schema: Library) {{\n{body}\n}}\n{TRAIN}"));
    let world = world();
    let bindings = compiled.bind(&world);
    let options = LowerOptions { machine: Machine::sheet("sm_80"), ..LowerOptions::default() };
    let lowered = compiled.lowered(&world, options);
    let data = engine::bound_data(lowered.train.as_ref().expect("a train block"), &bindings);
    let train: Program = lowered.kernels.train.expect("a train block");
    let mut engine: DeviceEngine = executed(&train, &lowered.kernels.infer, &data, Box::new(Interpreter::new()))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let numbers = |n: usize, salt: u64| (0..n as u64).map(|i| uniform(salt, i) as f32 - 0.5).collect::<Vec<_>>();
    for index in 0..engine.num_params() {
        let len = engine.param(index).expect("parameters are there").len();
        engine.set_param(index, &numbers(len, index as u64)).expect("they can be set");
    }
    let done = engine.run_until_update(0, 1, 1, 0).and_then(|()| engine.run_updates(0)).and_then(|()| engine.commit(0));
    done.unwrap_or_else(|error| panic!("{name}: {error}"));
    let all: Vec<&Kernel> = train.kernels().collect();
    let counted = engine.counters(0).expect("the interpreter counts");
    let (mut wrong, mut seen) = (vec![], BTreeMap::new());
    for entry in engine.entries(0) {
        let kernels: Vec<&Kernel> = entry.kernels.iter().filter_map(|kernel| all.get(kernel.number).copied()).collect();
        let (kind, counters) = (kind(&kernels), &counted[&entry.name[..]].counters);
        *seen.entry(kind).or_insert(0) += 1;
        let found = traffic(counters);
        let most = BOUNDS.iter().find(|(of, _)| *of == kind).expect("every kind has bounds").1;
        let ratios = found.map(|(taken, ideal)| taken as f64 / ideal.max(1) as f64);
        println!(
            "{name} {:18} {kind:?}: loads {:.2}, stores {:.2}, shared loads {:.2}, shared stores {:.2}; {found:?}",
            entry.name, ratios[0], ratios[1], ratios[2], ratios[3]
        );
        for (what, (ratio, most)) in WHAT.iter().zip(ratios.into_iter().zip(most)) {
            if ratio > most {
                wrong.push(format!("{name}, {} ({kind:?}): {what} take {ratio:.3} times what they need", entry.name));
            }
        }
        assert_eq!(
            counters.global_atomics.requests + counters.shared_atomics.requests,
            0,
            "{name}, {}: results have one order",
            entry.name
        );
    }
    assert!(seen.contains_key(&Kind::Aggregation), "{name} has launches of aggregation alone: {seen:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const WHAT: [&str; 4] = ["global loads", "global stores", "shared loads", "shared stores"];

#[test]
fn counters_of_han() {
    check("han", HAN);
}

#[test]
fn counters_of_rgcn() {
    check("rgcn", RGCN);
}

#[test]
fn counters_of_rgat() {
    check("rgat", RGAT);
}
