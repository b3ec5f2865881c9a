//! When generated code is expected to be faster than the interpreter's kernels.
//!
//! The interpreter's kernels use the widest vectors of the machine, but write every value of a tile to the first-level
//! cache and read it again; generated code has vectors of four elements, but keeps values in registers. So it wins where
//! there are several cheap operations after one another, and loses where there is much arithmetic on wide vectors. What
//! both read and write in memory costs both the same. Costs are rough cycles per item, from shapes alone.
//!
//! Measured with AVX-512 (one thread of a busy machine, minima), kernels against code: Adam of the parameters of RGCN on
//! IMDB 5.6 and 1.7 ms; a loss over rows of 3 classes 0.51 and 0.30 ms; bias, relu and mask of 4278 x 64 0.26 and 0.15 ms.
//! Not chosen: `tanh` and a dot product of 4278 x 128, 0.18 and 0.53 ms; a single product of 4278 x 64, 0.25 and 0.31 ms;
//! what is computed for edges (attention of HAN on ACM 43 and 93 ms). The constants for narrower vectors follow from
//! their width and have not been measured.

use hgnnc_ir::ops::{BinaryOp, Reduce, UnaryOp};

use super::parts::width;
use super::{Facts, LoopResult, NativeLoop};
use crate::kernels::flat::Pair;
use crate::plan::{Access, Base, BlockKind, BlockOp, Level, Operand, Region, operands};
use crate::simd;

/// Writing an element of a value to a tile, and reading it.
const WRITE: f64 = 0.3;
const READ: f64 = 0.15;
/// Reading or writing an element beyond the tile: in the second-level cache, mostly.
const MEMORY: f64 = 0.3;
/// Finding a row that is picked.
const PICK: f64 = 4.0;
/// Generated code has to be this much faster.
const MARGIN: f64 = 0.85;
/// What compiling takes has to be saved within this many runs.
const RUNS: f64 = 100.0;
/// Cycles of compiling a function, and each vector operation of its body.
const FUNCTION: f64 = 1.2e6;
const INSTRUCTION: f64 = 4e4;
/// Vectors of a row that are emitted one after another, at most and roughly.
const UNROLLED: usize = 8;

/// May the operation be in a part? Eight heads of eight elements have a kernel in instructions.
pub fn suits(op: &BlockOp, width: usize) -> bool {
    let wide = simd::level() == simd::Level::Base;
    match op.kind {
        BlockKind::Dot { inner, .. } => wide || inner != 8 || !width.is_multiple_of(8),
        _ => true,
    }
}

/// Does the part take less time than its operations one after another, by more than compiling takes?
pub fn gains(region: &Region, part: &NativeLoop, facts: &Facts<'_>) -> bool {
    let lanes = match simd::level() {
        simd::Level::Base | simd::Level::Neon => 4.0,
        simd::Level::Avx2 => 8.0,
        simd::Level::Avx512 => 16.0,
    };
    if part.level == Level::Edge && simd::level() == simd::Level::Avx512 {
        return false;
    }
    let items = match part.level {
        Level::Row => facts.num_rows(region.domain),
        Level::Edge => facts.num_edges(region.domain),
    };
    let ops = || part.ops.iter().map(|&op| &region.ops[op]);
    let stored: f64 = ops().filter(|op| keeps(part, op)).map(|op| width(region, op) as f64).sum();
    let both = MEMORY * (part.arrays.iter().map(|array| array.width as f64).sum::<f64>() + stored);
    let kernels = both + ops().map(|op| interpreted(region, part, op, lanes)).sum::<f64>();
    let picks = part.arrays.iter().filter(|array| picks(array.access)).count() as f64;
    let code = both + PICK * picks + ops().map(|op| generated(op, width(region, op))).sum::<f64>();
    let vectors: usize = ops().map(|op| width(region, op).div_ceil(4).min(UNROLLED)).sum();
    let compiling = FUNCTION + INSTRUCTION * vectors as f64;
    code < MARGIN * kernels && (kernels - code) * items as f64 * RUNS > compiling
}

fn keeps(part: &NativeLoop, op: &BlockOp) -> bool {
    part.results.contains(&LoopResult::Tile(op.out))
}

fn picks(access: Access) -> bool {
    !matches!(access, Access::Each | Access::Same)
}

/// Vector instructions, and cycles of each element however wide vectors are (division and root).
fn work(kind: &BlockKind) -> (f64, f64) {
    match kind {
        BlockKind::Unary(f, _) => match f {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Floor => (1.0, 0.0),
            UnaryOp::Sqrt | UnaryOp::Recip => (1.0, 1.0),
            UnaryOp::Step | UnaryOp::Relu => (2.0, 0.0),
            UnaryOp::LeakyRelu(_) | UnaryOp::Sign => (4.0, 0.0),
            UnaryOp::Exp | UnaryOp::Elu => (24.0, 0.0),
            UnaryOp::Log | UnaryOp::Sigmoid => (32.0, 1.0),
            UnaryOp::Tanh => (38.0, 1.0),
            UnaryOp::Erf | UnaryOp::Gelu => (50.0, 0.0),
            UnaryOp::Softplus => (62.0, 1.0),
            UnaryOp::Cos => (100.0, 0.0),
        },
        BlockKind::Binary(f, ..) => match f {
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Pow => (1.0, 0.0),
            BinaryOp::Div => (1.0, 1.0),
            BinaryOp::Eq | BinaryOp::Gt => (2.0, 0.0),
            BinaryOp::Max | BinaryOp::Min => (4.0, 0.0),
            BinaryOp::LogAddExp => (64.0, 1.0),
        },
        BlockKind::Pair(Pair::AddLeakyRelu(_), ..) => (5.0, 0.0),
        BlockKind::Pair(Pair::SubExp, ..) => (25.0, 0.0),
        BlockKind::Choose { .. } => (2.0, 0.0),
        _ => (1.0, 0.0),
    }
}

/// Cycles of an item by the interpreter, without reading arrays and writing results for the first time.
fn interpreted(region: &Region, part: &NativeLoop, op: &BlockOp, lanes: f64) -> f64 {
    let width = width(region, op) as f64;
    // Few elements are not vectors for the kernels either.
    let group = |inner: usize| if inner < 16 { 20.0 + 2.0 * inner as f64 } else { 10.0 + 2.0 * inner as f64 / lanes };
    let computing = match &op.kind {
        BlockKind::ReduceTrailing(Reduce::Lse, _, inner) if *inner < 16 => width * (40.0 + 30.0 * *inner as f64),
        BlockKind::ReduceTrailing(Reduce::Lse, _, inner) => width * (60.0 + 14.0 * *inner as f64 / lanes),
        BlockKind::ReduceTrailing(_, _, inner) => width * group(*inner),
        BlockKind::Dot { inner, .. } if matches!(inner, 4 | 8 | 16 | 32 | 64) => {
            width * (3.0 + 3.0 * *inner as f64 / lanes)
        }
        BlockKind::Dot { inner, .. } => width * group(*inner),
        kind => {
            let (vector, element) = work(kind);
            width * (0.5 * vector / lanes + element)
        }
    };
    let inside = |operand: &Operand| match operand.base {
        Base::Local(local) => part.ops.iter().any(|&op| region.ops[op].out == local && writes(&region.ops[op])),
        Base::Stored(_) => false,
    };
    let reading: f64 = operands(&op.kind)
        .iter()
        .map(|operand| {
            let reads = if inside(operand) { READ * operand.width as f64 } else { 0.0 };
            reads + if copied(op, operand, width) { (WRITE + READ) * width } else { 0.0 }
        })
        .sum();
    let writing = if writes(op) && !keeps(part, op) { WRITE * width } else { 0.0 };
    computing + reading + writing
}

/// Does it write a value to a tile?
fn writes(op: &BlockOp) -> bool {
    !matches!(op.kind, BlockKind::PartialReduce(..) | BlockKind::Segment(..))
}

/// Is the operand copied for the operation, because its elements do not lie as those of the result do?
fn copied(op: &BlockOp, operand: &Operand, width: f64) -> bool {
    let whole = operand.width as f64 == width;
    match op.kind {
        BlockKind::Unary(..) | BlockKind::Binary(..) | BlockKind::Pair(..) | BlockKind::Choose { .. } => {
            match operand.access {
                Access::Each => !whole,
                Access::Same => !whole && operand.width != 1,
                _ => true,
            }
        }
        _ => false,
    }
}

/// Cycles of an item in generated code, without reading arrays and writing results.
fn generated(op: &BlockOp, width: usize) -> f64 {
    let vectors = |n: usize| (n / 4 + n % 4) as f64;
    match &op.kind {
        BlockKind::ReduceTrailing(Reduce::Lse, _, inner) => width as f64 * (40.0 + 10.0 * inner.div_ceil(4) as f64),
        BlockKind::ReduceTrailing(_, _, inner) | BlockKind::Dot { inner, .. } => {
            width as f64 * (6.0 + inner.div_ceil(4) as f64)
        }
        kind => {
            let (vector, element) = work(kind);
            // One long row has no remainder to speak of.
            let vectors = if width == 1 { 0.25 } else { vectors(width) };
            vectors * 0.4 * vector + element * width as f64
        }
    }
}
