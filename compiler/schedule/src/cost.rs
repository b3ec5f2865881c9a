//! Cost model of machine code against micro-kernels.
//!
//! Kernels use the widest vectors of the machine, but store every value of a tile to the L1 cache and load it again;
//! machine code has vectors of four elements, but keeps values in registers. Machine code therefore wins for several
//! cheap operations in sequence, and loses for heavy arithmetic. Memory traffic is the same for both. Costs are rough
//! cycles per item, from shapes alone.
//!
//! Measured with AVX-512 (one thread of a busy machine, minima), kernels against code: Adam of the parameters of RGCN
//! on IMDB 5.6 and 1.7 ms; a loss over rows of 3 classes 0.51 and 0.30 ms; bias, relu and mask of 4278 x 64 0.26 and
//! 0.15 ms. Not chosen: `tanh` and a dot product of 4278 x 128, 0.18 and 0.53 ms; a single product of 4278 x 64, 0.25
//! and 0.31 ms; edge computations (attention of HAN on ACM 43 and 93 ms). The constants for narrower vectors follow
//! from their width and have not been measured.

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{Reduce, Space};
use hgnnc_kernel_ir::kernel::{Instr, KernelOp, Level, Operand, Program, Rows};
use hgnnc_kernel_ir::loops::Function;
use hgnnc_kernel_ir::loops::function::{Instr as FunctionInstr, Row, Source};
use hgnnc_machine::SimdLevel;

use crate::Options;
use crate::functions::Part;
use crate::rewrite::Rewritten;

/// Cycles to store and to load an element of a tile.
const WRITE: f64 = 0.3;
const READ: f64 = 0.15;
/// Cycles to load or store an element outside the tile, mostly in the L2 cache.
const MEMORY: f64 = 0.3;
/// Cycles to locate a gathered row.
const PICK: f64 = 4.0;
/// Required ratio of native to interpreted cost.
const MARGIN: f64 = 0.85;
/// Runs over which the compile time must be amortized.
const RUNS: f64 = 100.0;
/// Cycles to compile a function, and each vector operation of its body.
const FUNCTION: f64 = 1.2e6;
const INSTRUCTION: f64 = 4e4;
/// Unrolled vectors per row, an approximate maximum.
const UNROLLED: usize = 8;

/// Whether the instruction may be machine code. Heads of eight elements have hand-written kernels.
pub fn suits(instr: &Instr, width: impl Fn(Operand) -> Option<usize>, simd: SimdLevel) -> bool {
    match (&instr.op, instr.width.as_fixed()) {
        (KernelOp::Dot(a, _), Some(own)) => {
            simd == SimdLevel::Base || width(*a) != Some(8 * own) || !own.is_multiple_of(8)
        }
        _ => true,
    }
}

/// Whether the function saves more time than its compilation takes.
pub fn gains((program, body): (&Program, &Rewritten), level: Level, part: &Part, options: &Options) -> bool {
    if level == Level::Edge && options.simd == SimdLevel::Avx512 {
        return false;
    }
    let lanes = options.simd.lanes() as f64;
    let function = &part.function;
    let items = options.sizes.as_ref().map_or(f64::INFINITY, |sizes| items(program, body, level, sizes));
    let stored: f64 = function.instrs.iter().filter(|instr| stores(instr)).map(|instr| instr.width as f64).sum();
    let both = MEMORY * (function.arrays.iter().map(|array| array.width as f64).sum::<f64>() + stored);
    let kernels = both + function.instrs.iter().map(|instr| interpreted(function, instr, lanes)).sum::<f64>();
    let picks = function.arrays.iter().filter(|array| matches!(array.row, Row::Picked(_) | Row::Owner)).count() as f64;
    let code = both + PICK * picks + function.instrs.iter().map(|instr| generated(function, instr)).sum::<f64>();
    let vectors: usize = function.instrs.iter().map(|instr| instr.width.div_ceil(4).min(UNROLLED)).sum();
    let compiling = FUNCTION + INSTRUCTION * vectors as f64;
    code < MARGIN * kernels && (kernels - code) * items * RUNS > compiling
}

/// Number of rows, or of edges, of a traversal.
fn items(program: &Program, body: &Rewritten, level: Level, sizes: &SizeInfo) -> f64 {
    let tables = &program.tables;
    match (&body.traversal.rows, level) {
        (Rows::Edges(graph, _) | Rows::Endpoints(graph, _), Level::Edge) => sizes.rows(Space::Edges(*graph)) as f64,
        (Rows::Elements(pattern, _), Level::Edge) => sizes.stored(tables, *pattern),
        (Rows::Endpoints(graph, direction), Level::Row) => sizes.rows(Space::Endpoints(*graph, *direction)) as f64,
        (rows, _) => sizes.eval(&rows.count(tables)),
    }
}

/// Whether its value is stored for each item.
fn stores(instr: &FunctionInstr) -> bool {
    instr.result.is_some() && !instr.accumulates()
}

/// Vector instructions, and cycles per element independent of the vector width (division and square root).
fn work(op: &KernelOp<Source, usize>) -> (f64, f64) {
    match op {
        KernelOp::Unary(f, _) => f.facts().instructions,
        KernelOp::Binary(f, ..) => f.facts().instructions,
        KernelOp::Compose { first, then, .. } => {
            let (first, then) = (first.facts().instructions, then.facts().instructions);
            (first.0 + then.0, first.1 + then.1)
        }
        KernelOp::Select { .. } => (2.0, 0.0),
        _ => (1.0, 0.0),
    }
}

/// Cycles per item with micro-kernels, without first reads of arrays and final writes of results.
fn interpreted(function: &Function, instr: &FunctionInstr, lanes: f64) -> f64 {
    let width = instr.width as f64;
    // Small groups do not vectorize in the kernels either.
    let group = |inner: usize| if inner < 16 { 20.0 + 2.0 * inner as f64 } else { 10.0 + 2.0 * inner as f64 / lanes };
    let inner = |a: &Source| function.width(*a) / instr.width;
    let computing = match &instr.op {
        KernelOp::ReduceTrailing(Reduce::Lse, a) if inner(a) < 16 => width * (40.0 + 30.0 * inner(a) as f64),
        KernelOp::ReduceTrailing(Reduce::Lse, a) => width * (60.0 + 14.0 * inner(a) as f64 / lanes),
        KernelOp::ReduceTrailing(_, a) => width * group(inner(a)),
        KernelOp::Dot(a, _) if matches!(inner(a), 4 | 8 | 16 | 32 | 64) => {
            width * (3.0 + 3.0 * inner(a) as f64 / lanes)
        }
        KernelOp::Dot(a, _) => width * group(inner(a)),
        other => {
            let (vector, element) = work(other);
            width * (0.5 * vector / lanes + element)
        }
    };
    let reading: f64 = instr
        .op
        .operands()
        .into_iter()
        .map(|source| {
            let inside = matches!(source, Source::Value(value) if !function.instrs[value].accumulates());
            let reads = if inside { READ * function.width(source) as f64 } else { 0.0 };
            reads + if is_copied(function, instr, source) { (WRITE + READ) * width } else { 0.0 }
        })
        .sum();
    let writing = if instr.result.is_none() { WRITE * width } else { 0.0 };
    computing + reading + writing
}

/// Whether the operand is copied because its layout differs from the result's.
fn is_copied(function: &Function, instr: &FunctionInstr, source: Source) -> bool {
    let element_wise = instr.op.is_element_wise() && !matches!(instr.op, KernelOp::Copy(_));
    let own = function.width(source);
    let row = match source {
        Source::Array(array) => function.arrays[array].row,
        Source::Value(_) => Row::Each,
        Source::Label(_) => return false,
    };
    element_wise
        && match row {
            Row::Each => own != instr.width,
            Row::Same => own != instr.width && own != 1,
            Row::Picked(_) | Row::Owner => true,
        }
}

/// Cycles per item of machine code, without reads of arrays and writes of results.
fn generated(function: &Function, instr: &FunctionInstr) -> f64 {
    let width = instr.width;
    let vectors = |n: usize| (n / 4 + n % 4) as f64;
    let vectors_of = |a: &Source| (function.width(*a) / width).div_ceil(4) as f64;
    match &instr.op {
        KernelOp::ReduceTrailing(Reduce::Lse, a) => width as f64 * (40.0 + 10.0 * vectors_of(a)),
        KernelOp::ReduceTrailing(_, a) | KernelOp::Dot(a, _) => width as f64 * (6.0 + vectors_of(a)),
        other => {
            let (vector, element) = work(other);
            // A single contiguous row has a negligible remainder.
            let vectors = if width == 1 { 0.25 } else { vectors(width) };
            vectors * 0.4 * vector + element * width as f64
        }
    }
}
