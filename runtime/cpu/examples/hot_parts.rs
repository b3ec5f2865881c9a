//! Times of the hot parts on a graph like ACM's PSP: `cargo run --release -p hgnnc-cpu --example hot_parts [THREADS]`.
//!
//! Papers in 56 cliques (2.2 M edges), attention of 8 heads x 8, and features of 3025 x 1902 with 85 per row.
//! "GB/s" counts what the edges read from vertex rows, by footprint: mostly cache, not DRAM.

use std::time::Instant;

use hgnnc_codegen_cpu::{Options, compile};
use hgnnc_cpu::{Engine, EngineOptions};
use hgnnc_data::{BoundData, InputData, Topology};
use hgnnc_ir::dataflow::{Binding, GraphDecl, Init, InputDecl, Matrix, ParamDecl, PatternDecl, VertexTypeDecl};
use hgnnc_ir::random::uniform;
use hgnnc_ir::*;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_trace::Times;

const PAPERS: usize = 3025;
const CLIQUES: usize = 56;
const COLUMNS: usize = 1902;
const HEADS: usize = 8;
const WIDTH: usize = 8;
const V: Space = Space::Vertices(VertexType(0));
const G: Graph = Graph(0);

fn main() -> Result<(), hgnnc_data::ExecError> {
    let threads = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(0);
    // A few cliques hold most papers, like subjects.
    let clique = |v: usize| (uniform(1, v as u64).powf(8.0) * CLIQUES as f64) as usize;
    let mut members = vec![vec![]; CLIQUES];
    for v in 0..PAPERS {
        members[clique(v)].push(v as u32);
    }
    let (mut indptr, mut src) = (vec![0u64], vec![]);
    for v in 0..PAPERS {
        src.extend(&members[clique(v)]);
        indptr.push(src.len() as u64);
    }
    let graph = Topology::from_csc("PSP", PAPERS, PAPERS, indptr, src)?;
    let edges = graph.num_edges();
    let (mut indptr, mut columns) = (vec![0u64], vec![]);
    for v in 0..PAPERS {
        let mut row: Vec<u32> = (0..87).map(|i| (uniform(2, (v * 87 + i) as u64) * COLUMNS as f64) as u32).collect();
        row.sort_unstable();
        row.dedup();
        columns.extend(row);
        indptr.push(columns.len() as u64);
    }
    let features = Topology::from_csc("features", COLUMNS, PAPERS, indptr, columns)?;
    let stored = features.num_edges();
    println!("{PAPERS} papers, {edges} edges, {stored} stored features");

    let message_bytes = 4.0 * edges as f64 * (HEADS * WIDTH + HEADS) as f64;
    let sparse_bytes = 4.0 * stored as f64 * (HEADS * WIDTH) as f64;
    type Build = fn(&mut Dataflow, [Value; 5]);
    let cases: [(&str, Build, f64); 8] = [
        (
            "gather-sum",
            |f, [h, ..]| {
                let e = src_of(f, h);
                sum(f, Direction::In, e, "z")
            },
            message_bytes,
        ),
        ("softmax statistics", |f, [_, a, b, ..]| statistics(f, a, b), message_bytes / 9.0),
        ("attention forward", |f, [h, a, b, ..]| forward(f, h, a, b), message_bytes),
        ("attention backward, in-edges", |f, v| backward(f, v, true, false), message_bytes),
        ("attention backward, out-edges", |f, v| backward(f, v, false, true), 2.0 * message_bytes),
        (
            "attention forward and backward",
            |f, v| {
                forward(f, v[0], v[1], v[2]);
                backward(f, v, true, true)
            },
            4.0 * message_bytes,
        ),
        ("sparse projection", |f, [h, _, _, x, w]| projection(f, h, x, w, false), sparse_bytes),
        (
            "sparse projection, its gradient, dropout",
            |f, [h, _, _, x, w]| projection(f, h, x, w, true),
            2.0 * sparse_bytes,
        ),
    ];
    for (name, build, bytes) in cases {
        let (mut flow, data) = tables(&graph, &features);
        let values = leaves(&mut flow);
        build(&mut flow, values);
        let program = hgnnc_fusion::lower(&flow).expect("a supported program");
        let mut engine = Engine::new(
            &[&compile(&program, &options())],
            data,
            EngineOptions { threads, ..EngineOptions::default() },
        )?;
        engine.init_params(&flow, 1);
        let mut best = f64::INFINITY;
        for step in 1..=12 {
            let start = Instant::now();
            engine.run(0, 1, step, 0, &mut Times::default());
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!(
            "{name:<42} {:8.2} ms {:7.1} GB/s  {} threads, {} steps, {} KiB",
            best * 1e3,
            bytes / best * 1e-9,
            engine.threads(),
            engine.plan(0).steps.len(),
            engine.arena(None).bytes() / 1024
        );
    }
    Ok(())
}

fn tables(graph: &Topology, features: &Topology) -> (Dataflow, BoundData) {
    let mut flow = Dataflow::new("bench");
    flow.vertex_types.push(VertexTypeDecl::new("Paper".into(), "paper".into()));
    let (src, dst) = (VertexType(0), VertexType(0));
    flow.graphs.push(GraphDecl::new("PSP".into(), src, dst, vec![]));
    let data = BoundData {
        num_vertices: vec![PAPERS],
        graphs: vec![graph.clone()],
        patterns: vec![features.clone()],
        inputs: vec![InputData::Numbers(vec![1.0; features.num_edges()].into())],
        ..BoundData::default()
    };
    (flow, data)
}

/// Hidden rows, scores of both ends, features and weight.
fn leaves(flow: &mut Dataflow) -> [Value; 5] {
    let pattern =
        flow.declare_pattern(PatternDecl { vertex: VertexType(0), columns: COLUMNS, matrix: Matrix::Features });
    let ty = Type { layout: Layout::Sparse(pattern), ..Type::fixed(V, &[COLUMNS]) };
    let input = flow.declare_input(InputDecl {
        name: "x".into(),
        ty,
        binding: Binding::Features(VertexType(0), Matrix::Features),
    });
    let mut rows = |dims: &[usize]| {
        let mut all = vec![Dim::Count(VertexType(0))];
        all.extend(dims.iter().map(|&d| Dim::Fixed(d)));
        let init = Init::Uniform(1.0);
        let name = format!("p{}", flow.params.len());
        let param = flow.declare_param(ParamDecl::new(name, all, init, false));
        let param = flow.add(Op::Param(param), &[]);
        flow.add(Op::Rows, &[param])
    };
    let (h, a, b) = (rows(&[HEADS, WIDTH]), rows(&[HEADS]), rows(&[HEADS]));
    let dims = vec![Dim::Fixed(COLUMNS), Dim::Fixed(HEADS * WIDTH)];
    let w = flow.declare_param(ParamDecl::new("w".into(), dims, Init::Uniform(1.0), false));
    let (x, w) = (flow.add(Op::Input(input), &[]), flow.add(Op::Param(w), &[]));
    [h, a, b, x, w]
}

fn src_of(flow: &mut Dataflow, value: Value) -> Value {
    flow.add(Op::GatherSrc(G), &[value])
}

fn dst_of(flow: &mut Dataflow, value: Value) -> Value {
    flow.add(Op::GatherDst(G), &[value])
}

fn sum(flow: &mut Dataflow, direction: Direction, edges: Value, name: &str) {
    let z = flow.segment(G, direction, Reduce::Sum, edges);
    flow.output(name, z);
}

/// Scores and attention weights of the edges.
fn alpha(flow: &mut Dataflow, a: Value, b: Value, output: bool) -> (Value, Value) {
    let (a, b) = (src_of(flow, a), dst_of(flow, b));
    let score = flow.binary(BinaryOp::Add, a, b);
    let leaky = flow.unary(UnaryOp::LeakyRelu(0.2), score);
    let lse = flow.segment(G, Direction::In, Reduce::Lse, leaky);
    if output {
        flow.output("lse", lse);
    }
    let at = dst_of(flow, lse);
    let shifted = flow.binary(BinaryOp::Sub, leaky, at);
    (score, flow.unary(UnaryOp::Exp, shifted))
}

fn statistics(flow: &mut Dataflow, a: Value, b: Value) {
    alpha(flow, a, b, true);
}

fn forward(flow: &mut Dataflow, h: Value, a: Value, b: Value) {
    let (_, alpha) = alpha(flow, a, b, true);
    let h = src_of(flow, h);
    let message = flow.binary(BinaryOp::Mul, alpha, h);
    sum(flow, Direction::In, message, "z");
}

/// Gradients of scores (and hidden rows), with the hidden rows in the place of the gradient of the result.
fn backward(flow: &mut Dataflow, [h, a, b, ..]: [Value; 5], incoming: bool, outgoing: bool) {
    let (score, alpha) = alpha(flow, a, b, false);
    flow.cursor.phase = Phase::Backward;
    let (hs, dz) = (src_of(flow, h), dst_of(flow, h));
    let product = flow.binary(BinaryOp::Mul, dz, hs);
    let dalpha = flow.reduce_trailing(Reduce::Sum, 1, product);
    let weighted = flow.binary(BinaryOp::Mul, alpha, dalpha);
    let inner = flow.segment(G, Direction::In, Reduce::Sum, weighted);
    let back = dst_of(flow, inner);
    let centred = flow.binary(BinaryOp::Sub, dalpha, back);
    let dleaky = flow.binary(BinaryOp::Mul, alpha, centred);
    let zero = flow.constant(0.0);
    let up = flow.binary(BinaryOp::Gt, score, zero);
    let (rest, slope) = (flow.constant(0.8), flow.constant(0.2));
    let slope_up = flow.binary(BinaryOp::Mul, up, rest);
    let slope = flow.binary(BinaryOp::Add, slope_up, slope);
    let dscore = flow.binary(BinaryOp::Mul, dleaky, slope);
    if incoming {
        sum(flow, Direction::In, dscore, "db");
    }
    if outgoing {
        sum(flow, Direction::Out, dscore, "da");
        let dm = flow.binary(BinaryOp::Mul, alpha, dz);
        sum(flow, Direction::Out, dm, "dh");
    }
}

fn projection(flow: &mut Dataflow, h: Value, mut x: Value, w: Value, gradient: bool) {
    if gradient {
        let ty = flow.ty(x).clone();
        let mask = flow.add(Op::RandomMask { stream: 0, rate: 0.5, ty }, &[]);
        x = flow.binary(BinaryOp::Mul, x, mask);
    }
    let y = flow.add(Op::MatMul { batch: 0 }, &[x, w]);
    flow.output("y", y);
    if gradient {
        flow.cursor.phase = Phase::Backward;
        let flat = flow.add(Op::Reshape(vec![Dim::Fixed(HEADS * WIDTH)]), &[h]);
        let dw = flow.add(Op::Outer { batch: 0 }, &[x, flat]);
        flow.output("dw", dw);
    }
}

/// Code for this machine.
fn options() -> Options {
    Options::new(Default::default(), Default::default(), Dispatch::default().level())
}
