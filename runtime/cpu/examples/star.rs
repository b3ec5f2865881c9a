//! One vertex with nearly all edges: `cargo run --release -p hgnnc-cpu --example star [THREADS] [EDGES]`.
//!
//! Neighbours are summed, or weighted by attention (8 heads of 8, GAT), forward and backward, with the vertex's row in
//! one piece and cut as the kernels say. Times are the least of several runs, taken in turns.

mod common;

use hgnnc_codegen_cpu::{Options, compile};
use hgnnc_cpu::{Engine, EngineOptions};
use hgnnc_data::{BoundData, Topology};
use hgnnc_fusion::{LoweringOptions, SoftmaxForm};
use hgnnc_ir::random::uniform;
use hgnnc_ir::*;
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_passes::{PassCx, PassManager, SizeInfo, differentiate};

use common::{GRAPH, one_graph, rows};

const RUNS: u64 = 9;
const VERTICES: usize = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = |at| std::env::args().nth(at).and_then(|a| a.parse::<usize>().ok());
    let (threads, edges) = (argument(1).unwrap_or(2), argument(2).unwrap_or(2_000_000));
    // A few edges elsewhere, so that there are other rows.
    let end = |e: u64| if e.is_multiple_of(100) { (uniform(2, e) * VERTICES as f64) as u32 } else { 0 };
    let edges: Vec<(u32, u32)> =
        (0..edges as u64).map(|e| ((uniform(1, e) * VERTICES as f64) as u32, end(e))).collect();
    let topology = Topology::from_edges("g", VERTICES, VERTICES, &edges)?;
    println!("{threads} threads, {} edges, 99 % of them into one vertex; milliseconds", edges.len());
    for attention in [false, true] {
        let name = if attention { "attention" } else { "sum" };
        let flow = joint(attention, edges.len());
        let program = hgnnc_fusion::lower(&flow)?;
        let whole = program.clone().with_pieces(None);
        let online = hgnnc_fusion::lower_with(&flow, LoweringOptions::CPU.with_softmax(SoftmaxForm::InOnePass))?;
        let engine = |program: &Program| -> Result<Engine, hgnnc_data::ExecError> {
            let graphs = vec![topology.clone()];
            let data = BoundData { num_vertices: vec![VERTICES], graphs, ..BoundData::default() };
            let mut engine = Engine::new(
                &[&compile(program, &options())],
                data,
                EngineOptions { threads, ..EngineOptions::default() },
            )?;
            engine.init_params(&flow, 1);
            Ok(engine)
        };
        let mut engines = [engine(&whole)?, engine(&program)?, engine(&online)?];
        let mut best = [[f64::INFINITY; 2]; 3];
        for step in 0..RUNS {
            for (engine, best) in engines.iter_mut().zip(&mut best) {
                let mut times = hgnnc_trace::Times::default();
                engine.run(0, 1, 1 + step, 0, &mut times);
                for (best, nanos) in best.iter_mut().zip(times.phases) {
                    *best = best.min(nanos * 1e-6);
                }
            }
        }
        for (phase, name_of_phase) in ["forward", "backward"].into_iter().enumerate() {
            let [whole, cut, online] = best.map(|best| best[phase]);
            let gain = whole / cut;
            println!("{name:<9} {name_of_phase:<8} whole {whole:8.2}, in pieces {cut:8.2}: {gain:4.2} times");
            if attention && phase == 0 {
                println!("{name:<9} {name_of_phase:<8} in pieces, softmax in one pass {online:8.2}");
            }
        }
        let memory =
            [0, 1].map(|at| &engines[at]).map(|engine| engine.arena(None).scratch + engine.arena(None).partials);
        println!("{name:<9} scratch and parts: {:.1} and {:.1} MB", memory[0] as f64 * 1e-6, memory[1] as f64 * 1e-6);
        let losses = engines.each_ref().map(|engine| engine.result(0, "loss").map_or(f32::NAN, |r| r.1[0]));
        let close = |loss: &f32| (losses[0] - loss).abs() <= 1e-4 * losses[0].abs();
        assert!(losses.iter().all(close), "the loss is the same: {losses:?}");
    }
    Ok(())
}

/// A layer, the sum of squares of its output, and its gradients.
fn joint(attention: bool, edges: usize) -> Dataflow {
    let mut flow = one_graph("star");
    let graph = GRAPH;
    flow.cursor.stage = Stage::NA;
    let reduce = |reduce| Op::Segment { graph, direction: Direction::In, reduce };
    let x = rows(&mut flow, &[8, 8]);
    let z = if attention {
        let (a, b) = (rows(&mut flow, &[8]), rows(&mut flow, &[8]));
        let (a, b) = (flow.add(Op::GatherSrc(graph), &[a]), flow.add(Op::GatherDst(graph), &[b]));
        let score = flow.add(Op::Binary(BinaryOp::Add), &[a, b]);
        let score = flow.unary(UnaryOp::LeakyRelu(0.2), score);
        let lse = flow.add(reduce(Reduce::Lse), &[score]);
        let lse = flow.add(Op::GatherDst(graph), &[lse]);
        let weight = flow.add(Op::Binary(BinaryOp::Sub), &[score, lse]);
        let weight = flow.unary(UnaryOp::Exp, weight);
        let x = flow.add(Op::GatherSrc(graph), &[x]);
        let weighted = flow.add(Op::Binary(BinaryOp::Mul), &[x, weight]);
        flow.add(reduce(Reduce::Sum), &[weighted])
    } else {
        let x = flow.add(Op::GatherSrc(graph), &[x]);
        flow.add(reduce(Reduce::Sum), &[x])
    };
    flow.cursor.stage = Stage::LC;
    let squares = flow.add(Op::Binary(BinaryOp::Mul), &[z, z]);
    let squares = flow.add(Op::ReduceTrailing { reduce: Reduce::Sum, axes: 2 }, &[squares]);
    let loss = flow.add(Op::ReduceSpace(Reduce::Sum), &[squares]);
    flow.output("loss", loss);
    let wrt: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    for (param, gradient) in differentiate(&mut flow, loss, &wrt) {
        flow.output(format!("gradient of {}", flow.params[param.index()].name.clone()), gradient);
    }
    let sizes = SizeInfo { vertices: vec![VERTICES as u64], edges: vec![edges as u64], ..SizeInfo::default() };
    PassManager::default().run_joint(&mut flow, &mut PassCx::new(Some(sizes)), || None);
    flow
}

/// Code for this machine.
fn options() -> Options {
    Options::new(Default::default(), Default::default(), Dispatch::default().level())
}
