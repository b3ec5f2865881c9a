//! The benchmark. Each figure is the best of a few repetitions: other work can only make it smaller.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hgnnc_graph::processors;
use hgnnc_ir::UnaryOp;
use rayon::prelude::*;

use super::topology::Caches;
use crate::kernel_features::KernelFeatures;
use crate::kernels::{flat, product};
use crate::math::fma;
use crate::simd::multiversion;

/// How long a figure is measured.
const BUDGET: Duration = Duration::from_millis(12);
/// Elements of a row that is gathered: 256 bytes.
const ROW: usize = 64;
/// Rows that a thread gathers in one repetition.
const GATHERS: usize = 1 << 14;
/// Most bytes that stand for memory.
const MEMORY: usize = 160 << 20;

/// Threads and memory to measure with.
pub(super) struct Bench {
    pool: rayon::ThreadPool,
    threads: usize,
    /// Larger than the caches, or as large as we want to fill.
    memory: Vec<f32>,
}

impl Bench {
    pub fn new(threads: usize, caches: &Caches) -> Self {
        let pool = processors::pool(threads, || {}).build();
        // Where no threads can be started, everything runs in one.
        let pool = pool.or_else(|_| rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build());
        let pool = pool.expect("the current thread is there");
        let largest = caches.l3.unwrap_or(caches.l2 * threads);
        let len = largest.saturating_mul(2).clamp(32 << 20, MEMORY) / size_of::<f32>();
        let mut memory = vec![0.0f32; len];
        pool.install(|| memory.par_chunks_mut(1 << 18).for_each(|chunk| chunk.fill(1.0)));
        Self { threads: pool.current_num_threads(), pool, memory }
    }

    /// Bytes that stand for memory.
    pub fn memory_len(&self) -> usize {
        self.memory.len() * size_of::<f32>()
    }

    /// Bytes of the third level of which can be said that they are not memory: of a cache that is larger than half of
    /// what was filled, or that other machines share, no more is known.
    pub fn l3(&self, caches: &Caches) -> Option<usize> {
        let l3 = caches.l3?.min(self.memory_len() / 4);
        (l3 >= 2 * caches.l2).then_some(l3)
    }

    /// Seconds of the fastest repetition of `work` on so many threads at once.
    fn best(&self, threads: usize, work: impl Fn(usize) + Sync) -> f64 {
        let once = || {
            let start = Instant::now();
            if threads == 1 {
                work(0);
            } else {
                self.pool.broadcast(|context| work(context.index()));
            }
            start.elapsed().as_secs_f64()
        };
        let start = Instant::now();
        let mut best = once();
        for repetition in 1.. {
            if repetition >= 3 && start.elapsed() > BUDGET {
                break;
            }
            best = best.min(once());
        }
        best.max(1e-9)
    }

    /// FLOP/s of multiply-adds.
    pub fn fma(&self, threads: usize) -> f64 {
        const ROUNDS: usize = 20_000;
        let seconds = self.best(threads, |index| {
            black_box(fma_chains(black_box(ROUNDS), black_box(1.0 + index as f32)));
        });
        let chains = (2 * ROUNDS * CHAINS * threads) as f64 / seconds;
        // Whose register blocks may suit the processor better than ours.
        const N: usize = 256;
        let of = product::Extents { batch: 1, k: N, n: N };
        let (x, w) = (vec![1.0f32; N * N], vec![1.0f32; N * N]);
        let seconds = self.best(threads, |_| {
            let mut out = vec![0.0f32; N * N];
            for _ in 0..2 {
                product::mat_mul(of, KernelFeatures::ALL, N, &x, &w, &mut out);
            }
            black_box(&out);
        });
        chains.max((2 * 2 * N * N * N * threads) as f64 / seconds)
    }

    /// Seconds of a cycle of a core: a product of integers takes three, what is done to its result one.
    pub fn cycle(&self) -> f64 {
        const ROUNDS: u64 = 100_000;
        let seconds = self.best(1, |_| {
            let (mut x, factor) = (black_box(3u64), black_box(0x9e37_79b9_7f4a_7c15u64));
            for round in 0..ROUNDS {
                // Products alone could be taken in another order.
                x = x.wrapping_mul(factor) ^ round;
            }
            black_box(x);
        });
        seconds / (4 * ROUNDS) as f64
    }

    /// Exponentials per second.
    pub fn exp(&self) -> f64 {
        const LEN: usize = 2048;
        const ROUNDS: usize = 50;
        let x: Vec<f32> = (0..LEN).map(|i| -(i as f32) * 0.01).collect();
        let seconds = self.best(self.threads, |_| {
            let mut out = [0.0f32; LEN];
            for _ in 0..ROUNDS {
                flat::unary(UnaryOp::Exp, black_box(&x), &mut out);
            }
            black_box(&out);
        });
        (LEN * ROUNDS * self.threads) as f64 / seconds
    }

    /// Bytes per second in order and by row, in a cache of this size that each core has: half of it is read.
    pub fn private(&self, cache: usize) -> (f64, f64) {
        let len = (cache / 2 / size_of::<f32>()).min(self.memory.len()) / ROW * ROW;
        let rounds = ((1 << 22) / len).max(1);
        let seconds = self.best(self.threads, |_| {
            for _ in 0..rounds {
                black_box(read(black_box(&self.memory[..len])));
            }
        });
        let stream = (4 * len * rounds * self.threads) as f64 / seconds;
        (stream, self.gather(len))
    }

    /// The same of so many bytes that all cores share: each reads its part in order, and rows of all of it.
    pub fn shared(&self, bytes: usize) -> (f64, f64) {
        let len = (bytes / size_of::<f32>()).min(self.memory.len()) / ROW * ROW;
        let part = (len / self.threads / ROW * ROW).max(ROW);
        let seconds = self.best(self.threads, |index| {
            black_box(read(&self.memory[(index * part).min(len - part)..][..part]));
        });
        ((4 * part * self.threads) as f64 / seconds, self.gather(len))
    }

    fn gather(&self, len: usize) -> f64 {
        let rows = (len / ROW).max(1) as u64;
        // Another order for each thread, spread over all rows (Lehmer's generator).
        let orders: Vec<Vec<u32>> = (0..self.threads)
            .map(|thread| {
                let mut state = 2 * thread as u64 + 1;
                let next = |_| {
                    state = state.wrapping_mul(0xda94_2042_e4dd_58b5);
                    ((u128::from(state) * u128::from(rows)) >> 64) as u32
                };
                (0..GATHERS).map(next).collect()
            })
            .collect();
        let seconds = self.best(self.threads, |index| {
            black_box(read_rows(&self.memory[..len], &orders[index % self.threads]));
        });
        (4 * ROW * GATHERS * self.threads) as f64 / seconds
    }

    /// Seconds of a step in which each thread takes part and has nothing to do: the middle of many.
    pub fn empty_step(&self) -> f64 {
        self.pool.install(|| {
            let step = |_| {
                let start = Instant::now();
                rayon::broadcast(|context| black_box(context.index()));
                start.elapsed().as_secs_f64()
            };
            let mut times: Vec<f64> = (0..200).map(step).collect();
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
    }
}

/// Independent chains of multiply-adds: enough to fill the pipelines, few enough to stay in registers.
const CHAINS: usize = 128;

multiversion! {
    fn fma_chains(rounds: usize, start: f32) -> f32 as fma_chains_body
}

#[inline(always)]
fn fma_chains_body<const FMA: bool>(rounds: usize, start: f32) -> f32 {
    // Different from each other, or one chain would do for all.
    let mut chains: [f32; CHAINS] = std::array::from_fn(|i| start + i as f32);
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = fma::<FMA>(*chain, 0.999, 0.5);
        }
    }
    chains.iter().sum()
}

multiversion! {
    fn read(x: &[f32]) -> f32 as read_body
}

#[inline(always)]
fn read_body<const FMA: bool>(x: &[f32]) -> f32 {
    let mut sums = [0.0f32; ROW];
    for row in x.chunks_exact(ROW) {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x;
        }
    }
    sums.iter().sum()
}

multiversion! {
    fn read_rows(x: &[f32], order: &[u32]) -> f32 as read_rows_body
}

#[inline(always)]
fn read_rows_body<const FMA: bool>(x: &[f32], order: &[u32]) -> f32 {
    let mut sums = [0.0f32; ROW];
    for &row in order {
        let row = &x[row as usize * ROW..][..ROW];
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x;
        }
    }
    sums.iter().sum()
}
