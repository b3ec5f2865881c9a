//! Programs of ranks against the program of one process: the interpreter computes the same, on any number of ranks.

use hgnnc_interp::division::{Sections, divide};
use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_interp::ranks::run_ranks;
use hgnnc_interp::{Bindings, Evaluation, Tensor, run};
use hgnnc_ir::{Dataflow, Dim, Input, Op, OpClass, Param, Space, Value, VertexRows, VertexType, parse, verify};
use hgnnc_passes::pipeline::JOINT;
use hgnnc_passes::{Disabled, PassCx, PassManager, place};

use crate::random::joint_of;

const SEEDS: u64 = 120;
const SECTIONS: usize = 7;

/// A joint program after the passes that come before placement, without those that it does not know.
fn joint(seed: u64) -> (Dataflow, Bindings) {
    let (mut flow, bindings) = joint_of(random_program(seed));
    let disabled = Disabled { passes: vec!["compact_endpoints".into()], ..Disabled::default() };
    let manager = PassManager::new(&disabled).expect("the pass exists");
    manager.run(JOINT, &mut flow, &mut PassCx::default());
    (flow, bindings)
}

/// The elements of an output over all ranks, in the order of one process.
fn gathered(flow: &Dataflow, output: usize, ranks: &[Bindings], runs: &[Evaluation]) -> Vec<f64> {
    let output = &flow.outputs[output];
    let ty = flow.ty(output.value);
    let of_members = |vertex: VertexType| matches!(flow.vertex_types[vertex.index()].rows, VertexRows::Members(_));
    let rows = match (ty.space, ty.dims.first()) {
        (Space::Vertices(of), _) if !of_members(of) => ty.space,
        (Space::Edges(_), _) => ty.space,
        (Space::Unit, Some(Dim::Count(of))) if !of_members(*of) => Space::Vertices(*of),
        // The same on all ranks.
        _ => return runs[0][output.value].data.clone(),
    };
    let of_rank = |(bindings, run): (&Bindings, &Evaluation)| {
        let (numbers, data) = (bindings.numbers[&rows].clone(), run[output.value].data.clone());
        let width = data.len() / numbers.len().max(1);
        (0..).zip(numbers).map(|(row, number)| (number, data[row * width..][..width].to_vec())).collect::<Vec<_>>()
    };
    let mut all: Vec<(u32, Vec<f64>)> = ranks.iter().zip(runs).flat_map(of_rank).collect();
    all.sort_by_key(|&(number, _)| number);
    all.into_iter().flat_map(|(_, row)| row).collect()
}

fn has_endpoints(flow: &Dataflow) -> bool {
    flow.values
        .iter()
        .any(|data| data.op.class() == OpClass::Endpoints || matches!(data.ty.space, Space::Endpoints(..)))
}

/// On any number of ranks, with the same bits.
pub fn ranks_compute_what_one_process_computes(name: &str, flow: &Dataflow, placed: &Dataflow, bindings: &Bindings) {
    let one = run(flow, bindings).expect("bound");
    let mut first = None;
    for ranks in [1, 2, 3, 7] {
        let of_ranks = divide(placed, (flow, bindings), &Sections::even(SECTIONS, ranks));
        let runs = run_ranks(placed, &of_ranks).unwrap_or_else(|error| panic!("{name}: {error}\n{placed}"));
        let mut all = vec![];
        for (index, output) in flow.outputs.iter().enumerate() {
            assert_eq!(output.kind, placed.outputs[index].kind);
            if flow.ty(output.value).space == Space::Unit
                && flow.ty(output.value).dims.iter().all(|dim| dim.fixed().is_some())
            {
                let value = placed.outputs[index].value;
                assert!(runs.iter().all(|run| run[value] == runs[0][value]), "{name}: {:?}", output.kind);
            }
            let (expected, found) = (&one[output.value].data, gathered(placed, index, &of_ranks, &runs));
            assert_eq!(expected.len(), found.len(), "{name}, {ranks} ranks: {:?}\n{placed}", output.kind);
            for (x, y) in expected.iter().zip(&found) {
                let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y || (x.is_nan() && y.is_nan());
                assert!(close, "{name}, {ranks} ranks: {:?} was {x} and is {y}\n{flow}\n{placed}", output.kind);
            }
            all.push(found);
        }
        // Not only close: every sum is taken in one order, whatever the number of ranks.
        let bits: Vec<u64> = all.iter().flatten().map(|x| x.to_bits()).collect();
        assert_eq!(first.get_or_insert_with(|| bits.clone()), &bits, "{name}, {ranks} ranks\n{placed}");
    }
}

#[test]
fn random_programs_compute_on_ranks_what_one_process_computes() {
    let (mut placed_programs, mut exchanges) = (0, 0);
    for seed in seeds(SEEDS) {
        let (flow, bindings) = joint(seed);
        let placed = match place(&flow, &flow) {
            Ok(placed) => placed,
            // Random programs have pairs to score and rows of endpoints.
            Err(error) if flow.graphs.iter().any(|graph| graph.links) || has_endpoints(&flow) => {
                assert!(!error.why.is_empty());
                continue;
            }
            Err(error) => panic!("seed {seed}: {error}\n{flow}"),
        };
        if let Err(broken) = verify(&placed) {
            panic!("seed {seed}: {broken:#?}\n{placed}");
        }
        let text = placed.to_string();
        let read = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error:?}\n{text}"));
        assert_eq!(read.to_string(), text, "seed {seed}");
        placed_programs += 1;
        exchanges += placed.values.iter().filter(|data| data.op.name() == "exchange").count();
        ranks_compute_what_one_process_computes(&format!("seed {seed}"), &flow, &placed, &bindings);
    }
    assert!(placed_programs > 20 && exchanges > 100, "{placed_programs} programs with {exchanges} exchanges");
}

/// A neighbour sum and its gradient: what is read at the other end of an edge is exchanged, in either direction.
const SUM: &str = r#"
dataflow small {
  vertex Paper from "paper"
  relation cites: Paper -> Paper from "cites"
  graph cites: Paper -> Paper = >cites
  input Paper.x : f32[Paper; 4] = features(Paper)
  param w : f32[4, 4] = glorot(4, 4)
  %0 = input Paper.x                 : f32[Paper; 4]        @FP
  %1 = param w                       : f32[4, 4]            @FP
  %2 = matmul %0, %1                 : f32[Paper; 4]        @FP
  %3 = gather.src cites, %2          : f32[edges(cites); 4] @NA
  %4 = segment.sum.in cites, %3      : f32[Paper; 4]        @NA
  %5 = count Paper                   : f32[]                @LC
  %6 = reduce_space.sum %4           : f32[4]               @LC
  %7 = reduce.sum(axes 1) %6         : f32[]                @LC
  %8 = div %7, %5                    : f32[]                @LC
  %9 = gather.dst cites, %4          : f32[edges(cites); 4] @NA.backward
  %10 = segment.sum.out cites, %9    : f32[Paper; 4]        @NA.backward
  %11 = outer %0, %10                : f32[4, 4]            @FP.backward
  result loss = %8
  update w = %11
}
"#;

fn placed_sum() -> Dataflow {
    let flow = parse(SUM).unwrap_or_else(|error| panic!("{error:?}"));
    let placed = place(&flow, &flow).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(verify(&placed), Ok(()));
    placed
}

#[test]
fn values_at_the_other_end_of_an_edge_are_exchanged() {
    insta::assert_snapshot!(placed_sum());
}

#[test]
fn a_missing_exchange_is_an_error() {
    let placed = placed_sum();
    let is_exchange = |value: &Value| matches!(placed.value(*value).op, Op::Exchange(_) | Op::SumRanks);
    let exchanges: Vec<Value> = placed.handles().filter(is_exchange).collect();
    assert_eq!(exchanges.len(), 4, "sources, destinations, and two sums over sections");
    for exchange in exchanges {
        let mut without = placed.clone();
        let own = placed.value(exchange).args[0];
        let readers = without.values.iter_mut().flat_map(|data| &mut data.args);
        readers.filter(|arg| **arg == exchange).for_each(|arg| *arg = own);
        without.outputs.iter_mut().filter(|it| it.value == exchange).for_each(|it| it.value = own);
        assert!(verify(&without).is_err(), "{without}");
    }
}

/// The sum, and its gradient, over the edges of shuffled vertices.
#[test]
fn the_ends_of_shuffled_vertices_have_rows_for_each_edge() {
    let flow = parse(&SUM.replace("= >cites", "= shuffle 2")).unwrap_or_else(|error| panic!("{error:?}"));
    let placed = place(&flow, &flow).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(verify(&placed), Ok(()));
    let text = placed.to_string();
    assert_eq!(parse(&text).unwrap_or_else(|error| panic!("{error:?}\n{text}")).to_string(), text);
    insta::assert_snapshot!(placed);
    // Rows for the edges of other permutations are no ends of these.
    let other = text.replace("mirrors.shuffled_sources.2", "mirrors.shuffled_sources.3");
    let broken = verify(&parse(&other).unwrap_or_else(|error| panic!("{error:?}"))).expect_err("one row an edge");
    assert!(broken.iter().any(|it| it.message.contains("its ends are not those of the edges")), "{broken:?}");

    let rows = |rows| Tensor::from_fn(rows, 4, |row, column| ((7 * row + 3 * column) % 11) as f64 - 4.0);
    let mut bindings =
        Bindings { num_vertices: vec![23], edges: vec![vec![]], seed: 5, step: 3, ..Bindings::default() };
    bindings.inputs.insert(Input::new(0), rows(23));
    bindings.params.insert(Param::new(0), Tensor::new(1, 16, rows(4).data));
    bindings.shuffle(&flow);
    assert_eq!(bindings.edges[0].len(), 46);
    ranks_compute_what_one_process_computes("shuffled", &flow, &placed, &bindings);
}
