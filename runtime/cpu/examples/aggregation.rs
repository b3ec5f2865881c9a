//! Neighbour aggregation by the engine, against loops written by hand for one machine (AVX-512):
//! `cargo run --release -p hgnnc-cpu --example aggregation [THREADS]`.
//!
//! * `sum`: out[v] = Σ over in-edges of x[u], rows of 64, 100 and 512.
//! * `attention`: the weights are the softmax over in-edges of leaky_relu(a[u] + b[v]), 8 heads of 8 (GAT). By hand in
//!   two passes over the edges of a row: the maximum, then exponentials, their sum and the weighted sum.
//!
//! The engine computes attention in passes over the edges of a tile, and with an online softmax in one.
//!
//! Times are the least of several runs, taken in turns; bytes are those of the gathered rows, each time they are read.

// Loops of vector instructions.
#![allow(unsafe_code)]

mod common;

use std::time::Instant;

use hgnnc_codegen_cpu::{Options, compile};
use hgnnc_cpu::{Engine, EngineOptions};
use hgnnc_data::{BoundData, Topology};
use hgnnc_fusion::{LoweringOptions, SoftmaxForm};
use hgnnc_ir::random::uniform;
use hgnnc_ir::*;
use hgnnc_kernels::simd::Dispatch;
use rayon::prelude::*;

use common::{GRAPH, one_graph, rows};

const RUNS: usize = 15;
/// Rows per task of the hand-written loops.
const ROWS: usize = 64;
const SLOPE: f32 = 0.2;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let threads: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(2);
    if !by_hand::available() {
        println!("the loops by hand need AVX-512");
        return Ok(());
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
    println!("{threads} threads; milliseconds (GB/s of gathered rows)");
    for (vertices, edges) in [(3_000, 2_000_000), (20_000, 2_000_000), (200_000, 4_000_000), (400_000, 800_000)] {
        let graph = Graph::new(vertices, edges);
        for (name, width) in [("sum", 64), ("sum", 100), ("sum", 512), ("attention", 64)] {
            let attention = name == "attention";
            let mut engine = graph.engine(threads, width, attention, SoftmaxForm::InPasses)?;
            let mut online = graph.engine(threads, width, attention, SoftmaxForm::InOnePass)?;
            let x = engine.param(0).to_vec();
            let scores = if attention { [1, 2].map(|p| engine.param(p).to_vec()) } else { [vec![], vec![]] };
            let mut out = vec![0.0f32; vertices * width];
            let mut best = [f64::INFINITY; 3];
            for _ in 0..RUNS {
                for (at, engine) in [(0, &mut engine), (2, &mut online)] {
                    engine.forget_times();
                    engine.run(0, 1, 1, 0, &mut Default::default());
                    let ms: f64 = engine.step_times(0).iter().map(|step| step.ms).sum();
                    best[at] = best[at].min(ms * 1e-3);
                }
                let start = Instant::now();
                pool.install(|| {
                    out.par_chunks_mut(ROWS * width).enumerate().for_each(|(task, out)| {
                        let first = task * ROWS;
                        let offsets = &graph.offsets[first..=first + out.len() / width];
                        // SAFETY: `main` asked for the instructions; sources are vertices, of which all have rows.
                        unsafe {
                            if attention {
                                by_hand::attention(
                                    &x,
                                    &scores[0],
                                    &scores[1][first * 8..],
                                    &graph.sources,
                                    offsets,
                                    out,
                                );
                            } else {
                                by_hand::sum(&x, width, &graph.sources, offsets, out);
                            }
                        }
                    });
                });
                best[1] = best[1].min(start.elapsed().as_secs_f64());
            }
            let z = engine.result(0, "z").expect("a result").1;
            let worst = z.iter().zip(&out).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f32::max);
            assert!(worst < 1e-3, "the loops agree: {worst}");
            let bytes = (edges * width * 4) as f64;
            let show = |seconds: f64| format!("{:8.2} ({:5.1})", seconds * 1e3, bytes / seconds * 1e-9);
            println!(
                "{name:<9} {width:>3} wide, {vertices:>6} vertices, {edges} edges: engine {}, by hand {}: {:3.0} %",
                show(best[0]),
                show(best[1]),
                best[1] / best[0] * 100.0
            );
            if attention {
                println!("    with the softmax in one pass: {}", show(best[2]));
            }
        }
    }
    Ok(())
}

/// A graph with power-law degrees on one vertex type.
struct Graph {
    vertices: usize,
    edges: Vec<(u32, u32)>,
    offsets: Vec<usize>,
    sources: Vec<u32>,
}

impl Graph {
    fn new(vertices: usize, num_edges: usize) -> Self {
        let end = |stream, e| (uniform(stream, e).powf(1.5) * vertices as f64) as u32;
        let mut edges: Vec<(u32, u32)> = (0..num_edges as u64).map(|e| (end(1, e), end(2, e))).collect();
        edges.sort_unstable_by_key(|&(src, dst)| (dst, src));
        let mut offsets = vec![0; vertices + 1];
        edges.iter().for_each(|&(_, dst)| offsets[dst as usize + 1] += 1);
        (0..vertices).for_each(|v| offsets[v + 1] += offsets[v]);
        let sources = edges.iter().map(|&(src, _)| src).collect();
        Self { vertices, edges, offsets, sources }
    }

    fn engine(
        &self,
        threads: usize,
        width: usize,
        attention: bool,
        softmax: SoftmaxForm,
    ) -> Result<Engine, hgnnc_data::ExecError> {
        let mut flow = one_graph("aggregation");
        let graph = GRAPH;
        let sum = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
        let z = if attention {
            let (x, a, b) = (rows(&mut flow, &[8, width / 8]), rows(&mut flow, &[8]), rows(&mut flow, &[8]));
            let (a, b) = (flow.add(Op::GatherSrc(graph), &[a]), flow.add(Op::GatherDst(graph), &[b]));
            let score = flow.add(Op::Binary(BinaryOp::Add), &[a, b]);
            let score = flow.unary(UnaryOp::LeakyRelu(f64::from(SLOPE)), score);
            let lse = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Lse };
            let lse = flow.add(lse, &[score]);
            let lse = flow.add(Op::GatherDst(graph), &[lse]);
            let weight = flow.add(Op::Binary(BinaryOp::Sub), &[score, lse]);
            let weight = flow.unary(UnaryOp::Exp, weight);
            let x = flow.add(Op::GatherSrc(graph), &[x]);
            let weighted = flow.add(Op::Binary(BinaryOp::Mul), &[x, weight]);
            flow.add(sum, &[weighted])
        } else {
            let x = rows(&mut flow, &[width]);
            let x = flow.add(Op::GatherSrc(graph), &[x]);
            flow.add(sum, &[x])
        };
        flow.output("z", z);
        let program =
            hgnnc_fusion::lower_with(&flow, LoweringOptions::CPU.with_softmax(softmax)).expect("a supported program");
        let topology = Topology::from_edges("g", self.vertices, self.vertices, &self.edges)?;
        let data = BoundData { num_vertices: vec![self.vertices], graphs: vec![topology], ..BoundData::default() };
        let mut engine = Engine::new(
            &[&compile(&program, &options())],
            data,
            EngineOptions { threads, ..EngineOptions::default() },
        )?;
        engine.init_params(&flow, 1);
        Ok(engine)
    }
}

#[cfg(target_arch = "x86_64")]
mod by_hand {
    use std::arch::x86_64::*;

    use super::SLOPE;

    pub fn available() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("fma")
    }

    /// # Safety
    /// The processor has AVX-512, and sources have rows.
    #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
    pub unsafe fn sum(x: &[f32], width: usize, sources: &[u32], offsets: &[usize], out: &mut [f32]) {
        for (row, edges) in out.chunks_exact_mut(width).zip(offsets.windows(2)) {
            for (band, out) in row.chunks_mut(64).enumerate() {
                let mut sums = [_mm512_setzero_ps(); 4];
                let masks: [u16; 4] = std::array::from_fn(|v| {
                    let columns = out.len().saturating_sub(16 * v).min(16);
                    ((1u32 << columns) - 1) as u16
                });
                for e in edges[0]..edges[1] {
                    // SAFETY: by the caller's promise, and within the columns of a row.
                    unsafe {
                        let from = x.as_ptr().add(*sources.get_unchecked(e) as usize * width + band * 64);
                        for (v, sum) in sums.iter_mut().enumerate() {
                            *sum = _mm512_add_ps(*sum, _mm512_maskz_loadu_ps(masks[v], from.wrapping_add(16 * v)));
                        }
                    }
                }
                for (v, sum) in sums.into_iter().enumerate() {
                    // SAFETY: within the results of the band.
                    unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr().wrapping_add(16 * v), masks[v], sum) };
                }
            }
        }
    }

    /// # Safety
    /// As of [`sum`]; `b` has the rows of `out`.
    #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
    pub unsafe fn attention(x: &[f32], a: &[f32], b: &[f32], sources: &[u32], offsets: &[usize], out: &mut [f32]) {
        let pick = |first: i32| {
            let (f, s) = (first, first + 1);
            _mm512_setr_epi32(f, f, f, f, f, f, f, f, s, s, s, s, s, s, s, s)
        };
        let picks = [pick(0), pick(2), pick(4), pick(6)];
        for ((out, b), edges) in
            out.as_chunks_mut::<64>().0.iter_mut().zip(b.as_chunks::<8>().0).zip(offsets.windows(2))
        {
            // SAFETY (of all uses): by the caller's promise, and within arrays of eight and 64.
            let b = unsafe { _mm256_loadu_ps(b.as_ptr()) };
            let score = |e: usize| unsafe {
                let a = _mm256_loadu_ps(a.as_ptr().add(*sources.get_unchecked(e) as usize * 8));
                let s = _mm256_add_ps(a, b);
                _mm256_max_ps(s, _mm256_mul_ps(s, _mm256_set1_ps(SLOPE)))
            };
            let mut most = _mm256_set1_ps(f32::NEG_INFINITY);
            for e in edges[0]..edges[1] {
                most = _mm256_max_ps(most, score(e));
            }
            let (mut total, mut sums) = (_mm256_setzero_ps(), [_mm512_setzero_ps(); 4]);
            for e in edges[0]..edges[1] {
                let weight = exp(_mm256_sub_ps(score(e), most));
                total = _mm256_add_ps(total, weight);
                let weight = _mm512_castps256_ps512(weight);
                // SAFETY: as above.
                unsafe {
                    let from = x.as_ptr().add(*sources.get_unchecked(e) as usize * 64);
                    for (v, sum) in sums.iter_mut().enumerate() {
                        let x = _mm512_loadu_ps(from.add(16 * v));
                        *sum = _mm512_fmadd_ps(_mm512_permutexvar_ps(picks[v], weight), x, *sum);
                    }
                }
            }
            let total = _mm512_castps256_ps512(_mm256_max_ps(total, _mm256_set1_ps(f32::MIN_POSITIVE)));
            for (v, sum) in sums.into_iter().enumerate() {
                let mean = _mm512_div_ps(sum, _mm512_permutexvar_ps(picks[v], total));
                // SAFETY: as above.
                unsafe { _mm512_storeu_ps(out.as_mut_ptr().add(16 * v), mean) };
            }
        }
    }

    /// e^x for x ≤ 0, within a few units of the last place: 2^k times a polynomial of the rest.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx2,fma")]
    fn exp(x: __m256) -> __m256 {
        let x = _mm256_max_ps(x, _mm256_set1_ps(-87.0));
        let k = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(_mm256_mul_ps(
            x,
            _mm256_set1_ps(std::f32::consts::LOG2_E),
        ));
        let r = _mm256_fnmadd_ps(k, _mm256_set1_ps(std::f32::consts::LN_2), x);
        let mut p = _mm256_set1_ps(1.0 / 720.0);
        for c in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c));
        }
        let bits = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(k));
        _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), bits))
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod by_hand {
    pub fn available() -> bool {
        false
    }

    pub unsafe fn sum(_: &[f32], _: usize, _: &[u32], _: &[usize], _: &mut [f32]) {}

    pub unsafe fn attention(_: &[f32], _: &[f32], _: &[f32], _: &[u32], _: &[usize], _: &mut [f32]) {}
}

/// Code for this machine.
fn options() -> Options {
    Options::new(Default::default(), Default::default(), Dispatch::default().level())
}
