//! Micro-benchmarks. Each figure is the best of several repetitions, since other load can only lower it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hgnnc_graph::processors;
use hgnnc_ir::UnaryOp;
use hgnnc_kernels::math::fma;
use hgnnc_kernels::simd::{Dispatch, multiversion};
use hgnnc_kernels::{flat, product};
use hgnnc_machine::Sorting;
use rayon::prelude::*;

use super::topology::Caches;

/// Measuring time per figure.
const BUDGET: Duration = Duration::from_millis(12);
/// Elements of a gathered row: 256 bytes.
const ROW: usize = 64;
/// Rows gathered per thread and repetition.
const GATHERS: usize = 1 << 14;
/// Maximum working set for memory bandwidth, in bytes.
const MEMORY: usize = 160 << 20;

/// Thread pool and memory of the benchmark.
pub(super) struct Bench {
    pool: rayon::ThreadPool,
    threads: usize,
    /// Larger than the caches, up to [`MEMORY`].
    memory: Vec<f32>,
    /// All that the machine has: its limits do not depend on what a command disables.
    dispatch: Dispatch,
}

impl Bench {
    pub fn new(threads: usize, caches: &Caches) -> Self {
        let pool = processors::pool(threads, || {}).build();
        // If no threads can be started, everything runs on one.
        let pool = pool.or_else(|_| rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build());
        let pool = pool.expect("the current thread is there");
        let largest = caches.l3.unwrap_or(caches.l2 * threads);
        let len = largest.saturating_mul(2).clamp(32 << 20, MEMORY) / size_of::<f32>();
        let mut memory = vec![0.0f32; len];
        pool.install(|| memory.par_chunks_mut(1 << 18).for_each(|chunk| chunk.fill(1.0)));
        Self { threads: pool.current_num_threads(), pool, memory, dispatch: Dispatch::default() }
    }

    /// Working set for memory bandwidth, in bytes.
    pub fn memory_len(&self) -> usize {
        self.memory.len() * size_of::<f32>()
    }

    /// Size of the L3 cache if it can be measured separately from memory: at most half of the working set, and not
    /// shared with other machines.
    pub fn l3(&self, caches: &Caches) -> Option<usize> {
        let l3 = caches.l3?.min(self.memory_len() / 4);
        (l3 >= 2 * caches.l2).then_some(l3)
    }

    /// Seconds of the fastest repetition of `work` on this many threads.
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

    /// Peak multiply-add throughput in FLOP/s.
    pub fn fma(&self, threads: usize) -> f64 {
        const ROUNDS: usize = 20_000;
        let seconds = self.best(threads, |index| {
            black_box(fma_chains(self.dispatch, black_box(ROUNDS), black_box(1.0 + index as f32)));
        });
        let chains = (2 * ROUNDS * CHAINS * threads) as f64 / seconds;
        // The library's register blocking may suit the CPU better.
        const N: usize = 256;
        let of = product::Extents { batch: 1, k: N, n: N };
        let (x, w) = (vec![1.0f32; N * N], vec![1.0f32; N * N]);
        let seconds = self.best(threads, |_| {
            let mut out = vec![0.0f32; N * N];
            for _ in 0..2 {
                product::mat_mul(self.dispatch, of, N, &x, &w, &mut out);
            }
            black_box(&out);
        });
        chains.max((2 * 2 * N * N * N * threads) as f64 / seconds)
    }

    /// Seconds per core cycle: an integer multiplication takes three cycles, and the operation on its result one.
    pub fn cycle(&self) -> f64 {
        const ROUNDS: u64 = 100_000;
        let seconds = self.best(1, |_| {
            let (mut x, factor) = (black_box(3u64), black_box(0x9e37_79b9_7f4a_7c15u64));
            for round in 0..ROUNDS {
                // Multiplications alone could be reassociated.
                x = x.wrapping_mul(factor) ^ round;
            }
            black_box(x);
        });
        seconds / (4 * ROUNDS) as f64
    }

    /// Throughput of exponentials per second, on all threads.
    pub fn exp(&self) -> f64 {
        const LEN: usize = 2048;
        const ROUNDS: usize = 50;
        let x: Vec<f32> = (0..LEN).map(|i| -(i as f32) * 0.01).collect();
        let seconds = self.best(self.threads, |_| {
            let mut out = [0.0f32; LEN];
            for _ in 0..ROUNDS {
                flat::unary(self.dispatch, UnaryOp::Exp, black_box(&x), &mut out);
            }
            black_box(&out);
        });
        (LEN * ROUNDS * self.threads) as f64 / seconds
    }

    /// Rates of sorting keys, and of binary searches in sorted numbers, on all threads.
    pub fn sorting(&self) -> Sorting {
        const KEYS: usize = 64;
        const SORTS: usize = 200;
        let steps = (KEYS as f64).log2() * (SORTS * KEYS * self.threads) as f64;
        // Lehmer's generator.
        let numbers: Vec<u64> = std::iter::successors(Some(1u64), |x| Some(x.wrapping_mul(0xda94_2042_e4dd_58b5)))
            .take(SORTS * KEYS)
            .collect();
        let sort_s = self.best(self.threads, |_| {
            let mut keys = [0; KEYS];
            for some in numbers.chunks_exact(KEYS) {
                keys.copy_from_slice(black_box(some));
                keys.sort_unstable();
                black_box(&keys);
            }
        });
        let number = |bits: u64| (bits >> 40) as f32;
        let mut sorted: Vec<f32> = numbers[..KEYS].iter().map(|&bits| number(bits)).collect();
        sorted.sort_by(f32::total_cmp);
        let search_s = self.best(self.threads, |_| {
            let mut found = 0;
            for &bits in &numbers {
                // The next search depends on this one, as a row's sums depend on where it found its place.
                let wanted = number(bits) + (found & 1) as f32;
                found = black_box(&sorted).partition_point(|&x| x <= wanted);
            }
            black_box(found);
        });
        Sorting { comparisons_per_s: steps / sort_s, steps_per_s: steps / search_s }
    }

    /// Sequential and gather bandwidth in bytes per second of a per-core cache of this size; half of it is read.
    pub fn private(&self, cache: usize) -> (f64, f64) {
        let len = (cache / 2 / size_of::<f32>()).min(self.memory.len()) / ROW * ROW;
        let rounds = ((1 << 22) / len).max(1);
        let seconds = self.best(self.threads, |_| {
            for _ in 0..rounds {
                black_box(read(self.dispatch, black_box(&self.memory[..len])));
            }
        });
        let stream = (4 * len * rounds * self.threads) as f64 / seconds;
        (stream, self.gather(len))
    }

    /// Sequential and gather bandwidth of a shared working set: each core reads its part in order, and gathers rows
    /// from all of it.
    pub fn shared(&self, bytes: usize) -> (f64, f64) {
        let len = (bytes / size_of::<f32>()).min(self.memory.len()) / ROW * ROW;
        let part = (len / self.threads / ROW * ROW).max(ROW);
        let seconds = self.best(self.threads, |index| {
            black_box(read(self.dispatch, &self.memory[(index * part).min(len - part)..][..part]));
        });
        ((4 * part * self.threads) as f64 / seconds, self.gather(len))
    }

    fn gather(&self, len: usize) -> f64 {
        let rows = (len / ROW).max(1) as u64;
        // A different order for each thread, spread over all rows (Lehmer's generator).
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
            black_box(read_rows(self.dispatch, &self.memory[..len], &orders[index % self.threads]));
        });
        (4 * ROW * GATHERS * self.threads) as f64 / seconds
    }

    /// Median seconds of a parallel step without work.
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

/// Independent multiply-add chains: enough to fill the pipelines, few enough for registers.
const CHAINS: usize = 128;

multiversion! {
    fn fma_chains(dispatch: Dispatch, rounds: usize, start: f32) -> f32 as fma_chains_body
}

#[inline(always)]
fn fma_chains_body<const FMA: bool>(rounds: usize, start: f32) -> f32 {
    // Distinct start values keep the chains from being merged.
    let mut chains: [f32; CHAINS] = std::array::from_fn(|i| start + i as f32);
    for _ in 0..rounds {
        for chain in &mut chains {
            *chain = fma::<FMA>(*chain, 0.999, 0.5);
        }
    }
    chains.iter().sum()
}

multiversion! {
    fn read(dispatch: Dispatch, x: &[f32]) -> f32 as read_body
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
    fn read_rows(dispatch: Dispatch, x: &[f32], order: &[u32]) -> f32 as read_rows_body
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
