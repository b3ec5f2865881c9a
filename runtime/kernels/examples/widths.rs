//! Reductions over edges of rows of several widths, with each set of instructions that the processor has:
//! `cargo run --release -p hgnnc-kernels --example widths`.
//!
//! 400 000 gathered rows of 3000 are summed, weighted and compared, on one thread. Milliseconds are the least of 15 runs;
//! the rate is that of the gathered rows.

use std::time::Instant;

use hgnnc_ir::ops::Reduce;
use hgnnc_kernels::simd::{Dispatch, available};
use hgnnc_kernels::{Rows, segment};

const ROWS: usize = 3000;
const EDGES: usize = 400_000;
const RUNS: usize = 15;

/// Heads, and elements of each.
const SHAPES: [(usize, usize); 14] = [
    (1, 16),
    (1, 32),
    (1, 50),
    (1, 64),
    (1, 80),
    (1, 100),
    (1, 128),
    (1, 300),
    (2, 50),
    (2, 80),
    (4, 16),
    (4, 24),
    (4, 32),
    (8, 8),
];

fn main() {
    // Knuth's multiplicative hash.
    let index: Vec<u32> =
        (0..EDGES as u64).map(|e| ((e.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % ROWS as u64) as u32).collect();
    let offsets: Vec<u32> = (0..=ROWS).map(|row| (row * EDGES / ROWS) as u32).collect();
    for (heads, inner) in SHAPES {
        let width = heads * inner;
        let x: Vec<f32> = (0..ROWS * width).map(|i| (i % 1009) as f32 / 1009.0).collect();
        let weights: Vec<f32> = (0..EDGES * heads).map(|i| (i % 709) as f32 / 709.0).collect();
        let (x, weights) = (Rows::Picked(&x, &index), Rows::Each(&weights));
        let mut out = vec![0.0; ROWS * width];
        for level in available() {
            let at = Dispatch::default().at_most(level);
            let reduce = |reduce, out: &mut [f32]| segment::segment(at, reduce, x, width, &offsets, out, false);
            let shown = [
                ("sum", least(|| reduce(Reduce::Sum, &mut out))),
                ("max", least(|| reduce(Reduce::Max, &mut out))),
                ("weighted", least(|| segment::weighted_sum(at, weights, x, heads, inner, &offsets, &mut out, false))),
            ]
            .map(|(name, seconds)| {
                let rate = (EDGES * width * 4) as f64 / seconds * 1e-9;
                format!("{name} {:6.2} ms ({rate:5.1} GB/s)", seconds * 1e3)
            });
            println!("{heads} x {inner:<3} {:<7} {}", format!("{level:?}"), shown.join("  "));
        }
    }
}

fn least(mut run: impl FnMut()) -> f64 {
    let mut seconds = || {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    };
    (0..RUNS).map(|_| seconds()).fold(f64::INFINITY, f64::min)
}
