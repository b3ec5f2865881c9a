//! Every pass, and both lists of passes, on random programs: the interpreter computes the same before and after.
//!
//! Tolerance 1e-9 relative to max(1, |value|): passes reorder sums, nothing more.

use hgnnc_interp::random_program::{random_program, random_program_with_metapaths, seeds};
use hgnnc_interp::{Bindings, Evaluation, run};
use hgnnc_ir::{Dataflow, Direction, Graph, OutputKind, Param, verify};
use hgnnc_passes::Endpoints;
use hgnnc_passes::factor_metapaths::factor_metapaths;
use hgnnc_passes::pipeline::{FORWARD, JOINT, MEMORY};
use hgnnc_passes::rematerialize::rematerialize;
use hgnnc_passes::split_outer_products::split_outer_products_into;
use hgnnc_passes::{Optimizer, OptimizerOptions, PassCx, PassManager, SizeInfo, differentiate, update};

const SEEDS: u64 = 200;
/// Joint programs are three times as long.
const JOINT_SEEDS: u64 = 60;

fn evaluate(flow: &Dataflow, bindings: &Bindings, what: &str) -> Evaluation {
    if let Err(broken) = verify(flow) {
        panic!("{what}: {broken:#?}\n{flow}");
    }
    run(flow, bindings).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn same(what: &str, before: (&Dataflow, &Evaluation), after: (&Dataflow, &Evaluation)) {
    let ((flow, old), (new_flow, new)) = (before, after);
    assert_eq!(flow.outputs.len(), new_flow.outputs.len(), "{what}");
    for (a, b) in flow.outputs.iter().zip(&new_flow.outputs) {
        assert_eq!(a.kind, b.kind, "{what}");
        assert_eq!(flow.ty(a.value), new_flow.ty(b.value), "{what}");
        for (x, y) in old[a.value].data.iter().zip(&new[b.value].data) {
            let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y || (x.is_nan() && y.is_nan());
            assert!(close, "{what}: {:?} was {x} and is {y}\nbefore {flow}\nafter {new_flow}", a.kind);
        }
    }
}

/// The sizes as they are, and sizes that make passes decide otherwise.
pub fn sizes(bindings: &Bindings) -> Vec<Option<SizeInfo>> {
    let vertices: Vec<u64> = bindings.num_vertices.iter().map(|&n| n as u64).collect();
    let edges: Vec<u64> = bindings.edges.iter().map(|e| e.len() as u64).collect();
    let num = |graph, direction| bindings.endpoints(graph, direction).len() as u64;
    let of_graph = |graph| Endpoints {
        sources: num(graph, Direction::Out),
        destinations: num(graph, Direction::In),
        ..Endpoints::default()
    };
    let ends = (0..edges.len()).map(|g| of_graph(Graph::new(g))).collect();
    let [many, few] = [(2, 1000, 2), (1000, 2, 1)].map(|(num_vertices, num_edges, num_endpoints)| SizeInfo {
        vertices: vec![num_vertices; vertices.len()],
        edges: vec![num_edges; edges.len()],
        ends: vec![
            Endpoints { sources: num_endpoints, destinations: num_endpoints, ..Endpoints::default() };
            edges.len()
        ],
        ..SizeInfo::default()
    });
    vec![None, Some(SizeInfo { vertices, edges, ends, ..SizeInfo::default() }), Some(many), Some(few)]
}

/// A random program with its gradients and updates.
pub fn joint_program(seed: u64) -> (Dataflow, Bindings) {
    joint_of(random_program(seed))
}

/// A forward program with the gradients and updates of all its parameters.
pub fn joint_of((mut flow, mut bindings): (Dataflow, Bindings)) -> (Dataflow, Bindings) {
    let wrt: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let loss = flow.result("loss").expect("a loss");
    let gradients = differentiate(&mut flow, loss, &wrt);
    for (param, gradient) in &gradients {
        flow.output(format!("d{param}"), *gradient);
    }
    update(&mut flow, &gradients, &OptimizerOptions::new(Optimizer::sgd(0.1)));
    bindings.seed += 1;
    (flow, bindings)
}

/// Each pass alone, on a program and its values.
fn every_pass(seed: u64, flow: &Dataflow, bindings: &Bindings) {
    let before = evaluate(flow, bindings, "as generated");
    for sizes in sizes(bindings) {
        for pass in FORWARD.iter().chain(JOINT).chain(MEMORY) {
            let mut changed = flow.clone();
            (pass.run)(&mut changed, &mut PassCx::new(sizes.clone()));
            let what = format!("seed {seed}, {}", pass.name);
            let after = evaluate(&changed, bindings, &what);
            same(&what, (flow, &before), (&changed, &after));
        }
    }
}

#[test]
fn every_pass_keeps_the_meaning_of_joint_programs() {
    for seed in seeds(JOINT_SEEDS) {
        let (flow, bindings) = joint_program(seed);
        every_pass(seed, &flow, &bindings);
    }
}

#[test]
fn every_pass_keeps_the_meaning_of_forward_programs() {
    for seed in seeds(SEEDS) {
        let (flow, bindings) = random_program(seed);
        every_pass(seed, &flow, &bindings);
    }
}

/// Factored sums pay where there are many pairs; what they are does not depend on how many.
fn many_pairs(flow: &Dataflow, bindings: &Bindings) -> SizeInfo {
    let vertices = bindings.num_vertices.iter().map(|&n| n as u64).collect();
    let mut edges: Vec<u64> = bindings.edges.iter().map(|edges| edges.len() as u64).collect();
    flow.metapaths.iter().for_each(|path| edges[path.of.index()] = 1 << 30);
    SizeInfo { vertices, edges, ..SizeInfo::default() }
}

#[test]
fn factored_sums_are_sums_over_the_edges_of_metapaths() {
    for seed in seeds(SEEDS) {
        let (flow, bindings) = random_program_with_metapaths(seed);
        let before = evaluate(&flow, &bindings, "as generated");
        let mut changed = flow.clone();
        factor_metapaths(&mut changed, &mut PassCx::new(Some(many_pairs(&flow, &bindings))));
        let what = format!("seed {seed}, factored");
        same(&what, (&flow, &before), (&changed, &evaluate(&changed, &bindings, &what)));
    }
}

#[test]
fn outer_products_are_the_same_in_slices_of_any_size() {
    let mut fired = 0;
    for seed in seeds(SEEDS) {
        let (flow, bindings) = joint_program(seed);
        let before = evaluate(&flow, &bindings, "differentiated");
        for most in [1, 3, 7] {
            let mut changed = flow.clone();
            fired += usize::from(split_outer_products_into(&mut changed, most, &mut PassCx::default()).0);
            let what = format!("seed {seed}, {most} elements");
            same(&what, (&flow, &before), (&changed, &evaluate(&changed, &bindings, &what)));
        }
    }
    assert!(fired > 0, "no program has weights on edges");
}

#[test]
fn both_lists_keep_the_meaning_of_joint_programs() {
    for seed in seeds(SEEDS) {
        let (flow, bindings) = joint_program(seed);
        let before = evaluate(&flow, &bindings, "differentiated");
        for sizes in sizes(&bindings) {
            let mut changed = flow.clone();
            let mut cx = PassCx::new(sizes);
            let manager = PassManager::default();
            manager.run_joint(&mut changed, &mut cx, || None);
            let what = format!("seed {seed}, joint");
            same(&what, (&flow, &before), (&changed, &evaluate(&changed, &bindings, &what)));
            // The forward list has nothing against backward values.
            manager.run_forward(&mut changed, &mut cx);
            let what = format!("seed {seed}, joint and forward");
            same(&what, (&flow, &before), (&changed, &evaluate(&changed, &bindings, &what)));
        }
    }
}

#[test]
fn gradients_of_optimised_programs_are_the_gradients() {
    for seed in seeds(SEEDS) {
        let (flow, bindings) = joint_program(seed);
        let before = evaluate(&flow, &bindings, "differentiated");
        for sizes in sizes(&bindings) {
            let (mut optimised, _) = random_program(seed);
            let manager = PassManager::default();
            let mut cx = PassCx::new(sizes);
            manager.run_forward(&mut optimised, &mut cx);
            let loss = optimised.result("loss").expect("a loss");
            let wrt: Vec<Param> = (0..optimised.params.len()).map(Param::new).collect();
            let gradients = differentiate(&mut optimised, loss, &wrt);
            for (param, gradient) in &gradients {
                optimised.output(format!("d{param}"), *gradient);
            }
            manager.run_joint(&mut optimised, &mut cx, || None);
            let after = evaluate(&optimised, &bindings, "optimised");
            for output in &optimised.outputs {
                let OutputKind::Result(name) = &output.kind else { continue };
                // A gradient may have become zero by simplification and be left out; no other output may.
                let expected = &before[flow.result(name).expect("the same results")];
                for (x, y) in expected.data.iter().zip(&after[output.value].data) {
                    assert!(
                        (x - y).abs() <= 1e-8 * x.abs().max(1.0),
                        "seed {seed}: {name} was {x} and is {y}\n{optimised}"
                    );
                }
            }
        }
    }
}

#[test]
fn passes_find_their_prey() {
    // Random programs are only a test of passes that fire on them.
    let mut fired = std::collections::BTreeMap::new();
    for seed in 0..SEEDS {
        let (flow, bindings) = random_program(seed);
        for sizes in sizes(&bindings) {
            for pass in FORWARD.iter().chain(JOINT).chain(MEMORY) {
                let changed = (pass.run)(&mut flow.clone(), &mut PassCx::new(sizes.clone()));
                *fired.entry(pass.name).or_insert(0) += u32::from(changed.0);
            }
        }
    }
    // Rematerialized values are read by the backward pass, which has the outer products as well.
    // No random one is large.
    for seed in 0..60 {
        let (flow, bindings) = joint_program(seed);
        let few = split_outer_products_into(&mut flow.clone(), 1, &mut PassCx::default());
        *fired.entry("split_outer_products").or_insert(0) += u32::from(few.0);
        for sizes in sizes(&bindings) {
            let changed = rematerialize(&mut flow.clone(), &mut PassCx::new(sizes));
            *fired.entry("rematerialize").or_insert(0) += u32::from(changed.0);
        }
    }
    for seed in 0..SEEDS {
        let (flow, bindings) = random_program_with_metapaths(seed);
        let mut cx = PassCx::new(Some(many_pairs(&flow, &bindings)));
        *fired.entry("factor_metapaths").or_insert(0) += u32::from(factor_metapaths(&mut flow.clone(), &mut cx).0);
    }
    // Random programs have no means: see `means`.
    fired.remove("scale_on_edges");
    for (name, times) in fired {
        assert!(times >= 20, "{name} fires {times} times");
    }
}
