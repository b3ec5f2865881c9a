//! Programs compute the same results with renumbered vertices.

#[path = "../../cpu/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;

use hgnnc_cpu::{Engine, EngineOptions};
use hgnnc_data::reorder::{renumber, uses_global_rng};
use hgnnc_graph::order::Order;
use hgnnc_interp::Bindings;
use hgnnc_interp::random_program::{random_program_with_metapaths, seeds};
use hgnnc_ir::random::bits;
use hgnnc_ir::{BinaryOp, Dataflow, Dim, Direction, Op, OutputKind, Reduce, Space, VertexType};
use hgnnc_machine::CodeMode;
use hgnnc_passes::{PassCx, PassManager};

fn orders(counts: &[usize], salt: u64) -> Vec<Option<Order>> {
    let order = |(vertex_type, &count): (usize, &usize)| {
        let mut vertices: Vec<u32> = (0..count as u32).collect();
        vertices.sort_by_key(|&vertex| bits(salt, (vertex_type as u64) << 32 | u64::from(vertex)));
        // Some types keep the dataset's order.
        (!bits(salt, u64::MAX - vertex_type as u64).is_multiple_of(4)).then(|| Order::of(vertices))
    };
    counts.iter().enumerate().map(order).collect()
}

/// Vertex results and new parameters and states, in dataset order, after one run on renumbered vertices. `None` if the
/// program draws dropout masks that depend on the numbering.
fn in_order(case: &common::Case, orders: Vec<Option<Order>>, code: CodeMode) -> Option<BTreeMap<String, Vec<f32>>> {
    let program = case.program();
    if uses_global_rng(&program) {
        return None;
    }
    let mut data = case.data.clone();
    renumber(&mut data, &case.flow, orders).unwrap_or_else(|error| panic!("{error}"));
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let program = common::compiled(&program, &data, code, options.dispatch.features());
    let mut engine = Engine::new(&[&program], data, options).unwrap_or_else(|error| panic!("{error}"));
    for (index, values) in case.params.iter().enumerate() {
        engine.set_param(index, values);
    }
    engine.run(0, case.bindings.seed, case.bindings.step, 0, &mut Default::default());
    let mut all = BTreeMap::new();
    for result in engine.results(0) {
        let numbers = engine.result(0, &result.name).expect("a result").1;
        let numbers = match result.ty.space {
            Space::Vertices(vertex) => match engine.data().orders.of(vertex) {
                Some(order) => {
                    let row = |&place: &u32| &numbers[place as usize * result.width..][..result.width];
                    order.rank.iter().flat_map(row).copied().collect()
                }
                None => numbers.to_vec(),
            },
            Space::Unit if result.ty.dims.iter().all(|dim| matches!(dim, Dim::Fixed(_))) => numbers.to_vec(),
            // Not needed in the order of the dataset.
            Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => continue,
        };
        all.insert(result.name.clone(), numbers);
    }
    engine.commit(0);
    let states = engine.states().to_vec();
    for output in &case.flow.outputs {
        let mut numbers;
        match output.kind {
            OutputKind::Result(_) => continue,
            OutputKind::UpdateParam(param) => {
                numbers = vec![0.0; case.params[param.index()].len()];
                engine.read_param(param.index(), &mut numbers);
            }
            OutputKind::UpdateState(param, slot) => {
                numbers = vec![0.0; case.params[param.index()].len()];
                let index = states.iter().position(|&state| state == (param, slot)).expect("a state");
                engine.read_state(index, &mut numbers);
            }
        }
        all.insert(common::name_of(&case.flow, &output.kind), numbers);
    }
    Some(all)
}

fn agree(what: &str, (flow, bindings): (Dataflow, Bindings), salt: u64) -> bool {
    let case = common::case_of(flow, bindings);
    for code in [CodeMode::Interpreted, CodeMode::Native] {
        let expected = case.trained_once(2, code);
        let Some(found) = in_order(&case, orders(&case.data.num_vertices, salt), code) else { return false };
        assert!(!found.is_empty());
        for (name, numbers) in &found {
            let exact: Vec<f64> = expected[name].iter().map(|&x| f64::from(x)).collect();
            common::close(&format!("{what}, {code:?}: {name}"), numbers, &exact, 1e-4, &|| case.flow.to_string());
        }
    }
    true
}

/// Dropout, trained and sparse features, edge data, factored metapaths, gradients and updates.
#[test]
fn random_programs_agree_in_any_order() {
    let (mut compared, mut all) = (0, 0);
    for seed in seeds(150) {
        let (mut flow, bindings) = match seed % 3 {
            0 => common::trained(random_program_with_metapaths(seed)),
            _ => common::training_program(seed),
        };
        let sizes = (seed % 2 == 0).then(|| common::few_endpoints(&flow));
        PassManager::default().run_joint(&mut flow, &mut PassCx::new(sizes), || None);
        all += 1;
        compared += usize::from(agree(&format!("seed {seed}"), (flow, bindings), seed));
    }
    assert!(2 * compared > all, "{compared} of {all} programs have masks that can be drawn in any order");
}

/// Edges of a row keep their order in both directions. Only tile boundaries may move, which changes the last bits of a
/// sum; another mask or edge would change millions of them.
#[test]
fn sums_over_edges_take_the_same_edges_and_masks() {
    const COUNTS: [usize; 2] = [300, 200];
    let edges = [common::random_edges(1, 300, 200, 4000, 2.0), common::random_edges(2, 200, 200, 3000, 3.0)];
    let [writes, cites] = edges;
    let mut case = common::Case::new(&COUNTS, &[(0, 1, writes), (1, 1, cites)]);
    let [writes, cites] = [0, 1].map(hgnnc_ir::Graph::new);
    let x = case.random(Space::Vertices(VertexType(0)), &[5]);
    let y = case.random(Space::Vertices(VertexType(1)), &[5]);
    let weight = case.random(Space::Edges(writes), &[5]);
    for (graph, of) in [(writes, x), (cites, y)] {
        let ty = hgnnc_ir::Type::fixed(Space::Edges(graph), &[5]);
        let mask = case.flow.add(Op::RandomMask { stream: graph.index() as u32, rate: 0.4, ty }, &[]);
        let gathered = case.flow.add(Op::GatherSrc(graph), &[of]);
        let mut edges = case.flow.binary(BinaryOp::Mul, gathered, mask);
        if graph == writes {
            edges = case.flow.binary(BinaryOp::Mul, edges, weight);
        }
        let sum = case.flow.segment(graph, Direction::In, Reduce::Sum, edges);
        case.result(sum);
        let back = case.flow.segment(graph, Direction::Out, Reduce::Sum, edges);
        case.result(back);
    }
    for code in [CodeMode::Interpreted, CodeMode::Native] {
        let expected = case.run(2, code);
        for salt in 0..4 {
            let found = in_order(&case, orders(&COUNTS, salt), code).expect("masks of edges only");
            for (name, numbers) in &expected {
                let exact: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
                let what = format!("{name}, {code:?}, order {salt}");
                common::close(&what, &found[name], &exact, 1e-6, &String::new);
                let same = found[name].iter().zip(numbers).filter(|(found, exact)| found == exact).count();
                assert!(10 * same > 9 * numbers.len(), "{what}: {same} of {} to the last bit", numbers.len());
            }
        }
    }
}
