//! Dense products as models have them, by the engine, against the `gemm` crate in chunks of 256 rows:
//! `cargo run --release -p hgnnc-cpu --example products [THREADS]`.
//!
//! Times are the least of many runs, taken in turns. The peak is that of a loop of multiply-adds in registers, in the
//! same run.

// Loops of vector instructions, and the calls of `gemm`.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use gemm_common::Parallelism;
use hgnnc_codegen_cpu::{Options, compile};
use hgnnc_cpu::{Engine, EngineOptions};
use hgnnc_data::BoundData;
use hgnnc_ir::ProductForm;
use hgnnc_ir::dataflow::{Init, ParamDecl, VertexTypeDecl};
use hgnnc_ir::*;
use hgnnc_kernels::product::{self, Extents};
use hgnnc_kernels::simd::Dispatch;
use rayon::prelude::*;

/// Rows of a chunk of `gemm`.
const CHUNK: usize = 256;
const RUNS: usize = 150;

fn main() -> Result<(), hgnnc_data::ExecError> {
    let threads: usize = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(2);
    let pools: Vec<_> = [1, threads]
        .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads start"))
        .into();
    let peaks: Vec<f64> = pools.iter().map(peak).collect();
    println!("multiply-adds in registers: {:.0} GF/s on 1 thread, {:.0} on {threads}", peaks[0], peaks[1]);
    println!("microseconds (GF/s; share of the peak); one call of the kernel for all rows first, then the engine\n");
    let shapes = [
        (4278, 1, 64, 64),
        (5257, 1, 64, 64),
        (2081, 1, 64, 64),
        (3025, 1, 64, 3),
        (4278, 1, 64, 8),
        (3025, 8, 8, 1),
        (3025, 8, 8, 8),
        (3025, 16, 4, 4),
        (3025, 32, 2, 2),
        (3025, 1, 128, 128),
        (3025, 1, 256, 256),
        (3025, 1, 512, 512),
        (3025, 1, 1902, 64),
        (128, 1, 64, 64),
        (16, 1, 64, 64),
    ];
    for (rows, batch, k, n) in shapes {
        for form in [ProductForm::MatMul, ProductForm::MatMulT, ProductForm::Outer] {
            let case = Case { form, rows, of: Extents { batch, k, n } };
            let operations = 2.0 * (rows * batch * k * n) as f64;
            let mut engines = [case.engine(1)?, case.engine(threads)?];
            let mut library = case.operands();
            let mut kernel = case.operands();
            let mut best = [f64::INFINITY; 5];
            for _ in 0..RUNS {
                best[0] = best[0].min(timed(|| case.kernel(&mut kernel)));
                for (i, engine) in engines.iter_mut().enumerate() {
                    engine.forget_times();
                    engine.run(0, 1, 1, 0, &mut Default::default());
                    let steps: f64 = engine.step_times(0).iter().map(|step| step.ms).sum();
                    best[1 + i] = best[1 + i].min(steps * 1e-3);
                    best[3 + i] = best[3 + i].min(pools[i].install(|| timed(|| case.library(&mut library))));
                }
            }
            let show = |seconds: f64, peak: f64| {
                let rate = operations / seconds * 1e-9;
                format!("{:8.1} ({rate:5.0}; {:3.0}%)", seconds * 1e6, rate / peak * 100.0)
            };
            println!(
                "{:<8} [{rows}; {batch} x {k} x {n}]: kernel {}  1 thread {}, gemm {}  {threads} threads {}, gemm {}",
                form.name(),
                show(best[0], peaks[0]),
                show(best[1], peaks[0]),
                show(best[3], peaks[0]),
                show(best[2], peaks[1]),
                show(best[4], peaks[1]),
            );
        }
    }
    Ok(())
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// A product.
struct Case {
    form: ProductForm,
    rows: usize,
    of: Extents,
}

/// Left, right, and room for the result.
struct Operands {
    x: Vec<f32>,
    y: Vec<f32>,
    out: Vec<f32>,
    parts: Vec<f32>,
}

impl Case {
    fn operands(&self) -> Operands {
        let Extents { batch, k, n } = self.of;
        let numbers = |len: usize| (0..len).map(|i| (i % 17) as f32 * 0.1 - 0.8).collect();
        let (xk, yn, w) = (self.rows * batch * k, self.rows * batch * n, batch * k * n);
        let [x, y, out] = match self.form {
            ProductForm::MatMul => [xk, w, yn],
            ProductForm::MatMulT => [yn, w, xk],
            ProductForm::Outer => [xk, yn, w],
        };
        let parts = if self.form == ProductForm::Outer { self.rows.div_ceil(CHUNK) * w } else { 0 };
        Operands { x: numbers(x), y: numbers(y), out: numbers(out), parts: vec![0.0; parts] }
    }

    fn kernel(&self, operands: &mut Operands) {
        let Operands { x, y, out, .. } = operands;
        let dispatch = Dispatch::default();
        match self.form {
            ProductForm::MatMul => product::mat_mul(dispatch, self.of, self.rows, x, y, out),
            ProductForm::MatMulT => product::mat_mul_t(dispatch, self.of, self.rows, x, y, out),
            ProductForm::Outer => product::outer(dispatch, self.of, self.rows, 0..self.of.k, x, y, out, false),
        }
    }

    /// By `gemm`, in chunks of rows; partial outer products are added at the end.
    fn library(&self, operands: &mut Operands) {
        let Extents { batch, k, n } = self.of;
        let Operands { x, y, out, parts } = operands;
        let (bk, bn, size) = (batch * k, batch * n, batch * k * n);
        match self.form {
            ProductForm::MatMul | ProductForm::MatMulT => {
                let flip = self.form == ProductForm::MatMulT;
                let (inner, outer, from, to) = if flip { (n, k, bn, bk) } else { (k, n, bk, bn) };
                let strides = if flip { (1, n) } else { (n, 1) };
                out.par_chunks_mut(CHUNK * to).zip(x.par_chunks(CHUNK * from)).with_max_len(1).for_each(|(out, x)| {
                    let rows = out.len() / to;
                    for b in 0..batch {
                        let (out, x, w) = (&mut out[b * outer..], &x[b * inner..], &y[b * k * n..]);
                        library([rows, outer, inner], out, (to, 1), x, (from, 1), w, strides);
                    }
                });
            }
            ProductForm::Outer => {
                let rows = x.par_chunks(CHUNK * bk).zip(y.par_chunks(CHUNK * bn));
                parts.par_chunks_mut(size).zip(rows).with_max_len(1).for_each(|(out, (x, y))| {
                    let rows = x.len() / bk;
                    for b in 0..batch {
                        let (out, x, y) = (&mut out[b * k * n..], &x[b * k..], &y[b * n..]);
                        library([k, n, rows], out, (n, 1), x, (1, bk), y, (bn, 1));
                    }
                });
                out.fill(0.0);
                for part in parts.chunks(size) {
                    out.iter_mut().zip(part).for_each(|(out, part)| *out += part);
                }
            }
        }
    }

    fn engine(&self, threads: usize) -> Result<Engine, hgnnc_data::ExecError> {
        let Extents { batch, k, n } = self.of;
        let mut flow = Dataflow::new("products");
        flow.vertex_types.push(VertexTypeDecl::new("Paper".into(), "paper".into()));
        let lead = if batch > 1 { vec![batch] } else { vec![] };
        let leading = lead.len();
        let mut leaf = |rows: bool, dims: &[usize]| {
            let count = rows.then_some(Dim::Count(VertexType(0)));
            let dims = count.into_iter().chain(lead.iter().chain(dims).map(|&d| Dim::Fixed(d))).collect();
            let name = format!("p{}", flow.params.len());
            let param = flow.declare_param(ParamDecl::new(name, dims, Init::Uniform(1.0), false));
            let param = flow.add(Op::Param(param), &[]);
            if rows { flow.add(Op::Rows, &[param]) } else { param }
        };
        let z = match self.form {
            ProductForm::MatMul => {
                let operands = [leaf(true, &[k]), leaf(false, &[k, n])];
                flow.add(Op::MatMul { batch: leading }, &operands)
            }
            ProductForm::MatMulT => {
                let operands = [leaf(true, &[n]), leaf(false, &[k, n])];
                flow.add(Op::MatMulT { batch: leading }, &operands)
            }
            ProductForm::Outer => {
                let operands = [leaf(true, &[k]), leaf(true, &[n])];
                flow.add(Op::Outer { batch: leading }, &operands)
            }
        };
        flow.output("z", z);
        let program = hgnnc_fusion::lower(&flow).expect("a supported program");
        let data = BoundData { num_vertices: vec![self.rows], ..BoundData::default() };
        let mut engine = Engine::new(
            &[&compile(&program, &options())],
            data,
            EngineOptions { threads, ..EngineOptions::default() },
        )?;
        engine.init_params(&flow, 1);
        Ok(engine)
    }
}

/// `out = a · b` for `[rows, columns, depth]`; strides are those of rows and columns.
fn library(
    [m, n, depth]: [usize; 3],
    out: &mut [f32],
    to: (usize, usize),
    a: &[f32],
    left: (usize, usize),
    b: &[f32],
    right: (usize, usize),
) {
    let last = |rows: usize, columns: usize, (r, c): (usize, usize)| (rows - 1) * r + (columns - 1) * c;
    assert!(last(m, n, to) < out.len() && last(m, depth, left) < a.len() && last(depth, n, right) < b.len());
    // The library is made for columns of `out` that are contiguous.
    let transposed = |(r, c): (usize, usize)| (c, r);
    let (m, n, to, a, left, b, right) = match to.1 < to.0 {
        true => (n, m, transposed(to), b, transposed(right), a, transposed(left)),
        false => (m, n, to, a, left, b, right),
    };
    // SAFETY: the last element of each operand is within its slice.
    unsafe {
        gemm_f32::gemm::f32::get_gemm_fn()(
            m,
            n,
            depth,
            out.as_mut_ptr(),
            to.1 as isize,
            to.0 as isize,
            false,
            a.as_ptr(),
            left.1 as isize,
            left.0 as isize,
            b.as_ptr(),
            right.1 as isize,
            right.0 as isize,
            0.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Operations per second, in 10⁹, of all threads together, with all operands in registers.
fn peak(pool: &rayon::ThreadPool) -> f64 {
    const ROUNDS: usize = 200_000;
    let seconds = (0..20)
        .map(|_| {
            timed(|| pool.scope(|scope| (0..pool.current_num_threads()).for_each(|_| scope.spawn(|_| chains(ROUNDS)))))
        })
        .fold(f64::INFINITY, f64::min);
    (2 * CHAINS * lanes() * ROUNDS * pool.current_num_threads()) as f64 / seconds * 1e-9
}

/// Independent sums: enough for the latency of a multiply-add on every port.
const CHAINS: usize = 12;

#[cfg(target_arch = "x86_64")]
fn lanes() -> usize {
    if is_x86_feature_detected!("avx512f") { 16 } else { 8 }
}

#[cfg(target_arch = "x86_64")]
fn chains(rounds: usize) {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    fn wide(rounds: usize, start: f32) -> f32 {
        let factor = _mm512_set1_ps(start);
        let mut sums = [factor; CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, factor);
            }
        }
        sums.iter().map(|&sum| _mm512_reduce_add_ps(sum)).sum()
    }
    #[target_feature(enable = "avx2,fma")]
    fn narrow(rounds: usize, start: f32) -> f32 {
        let factor = _mm256_set1_ps(start);
        let mut sums = [factor; CHAINS];
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, factor);
            }
        }
        sums.iter().map(|&sum| _mm256_cvtss_f32(sum)).sum()
    }
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has the instructions.
        black_box(unsafe { wide(rounds, black_box(0.5)) });
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the instructions.
        black_box(unsafe { narrow(rounds, black_box(0.5)) });
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn lanes() -> usize {
    4
}

#[cfg(not(target_arch = "x86_64"))]
fn chains(rounds: usize) {
    let factor = black_box(0.5f32);
    let mut sums = [[factor; 4]; CHAINS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = sum.map(|sum| sum.mul_add(factor, factor));
        }
    }
    black_box(sums);
}

/// Code for this machine.
fn options() -> Options {
    Options::new(Default::default(), Default::default(), Dispatch::default().level())
}
