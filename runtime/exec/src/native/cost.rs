//! Cost model of native loops against interpreted kernels.
//!
//! Kernels use the widest vectors of the machine, but store every value of a tile to the L1 cache and load it again;
//! native loops have vectors of four elements, but keep values in registers. Native loops therefore win for several
//! cheap operations in sequence, and lose for heavy arithmetic. Memory traffic is the same for both. Costs are rough
//! cycles per item, from shapes alone.
//!
//! Measured with AVX-512 (one thread of a busy machine, minima), kernels against code: Adam of the parameters of RGCN
//! on IMDB 5.6 and 1.7 ms; a loss over rows of 3 classes 0.51 and 0.30 ms; bias, relu and mask of 4278 x 64 0.26 and
//! 0.15 ms. Not chosen: `tanh` and a dot product of 4278 x 128, 0.18 and 0.53 ms; a single product of 4278 x 64, 0.25
//! and 0.31 ms; edge computations (attention of HAN on ACM 43 and 93 ms). The constants for narrower vectors follow
//! from their width and have not been measured.

use hgnnc_ir::kernel::KernelOp;
use hgnnc_ir::ops::{BinaryOp, Reduce, UnaryOp};

use super::parts::width;
use super::{Facts, LoopResult, NativeLoop};
use crate::plan::{Access, Base, BlockOp, Level, Operand, Region};
use crate::simd;

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

/// Whether the operation may be native. Heads of eight elements have hand-written kernels.
pub fn suits(op: &BlockOp, width: usize) -> bool {
    let wide = simd::level() == simd::Level::Base;
    match op.op {
        KernelOp::Dot(a, _) => wide || a.width != 8 * width || !width.is_multiple_of(8),
        _ => true,
    }
}

/// Whether the native loop saves more time than its compilation takes.
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

/// Vector instructions, and cycles per element independent of the vector width (division and square root).
fn work(op: &KernelOp<Operand, usize>) -> (f64, f64) {
    match op {
        KernelOp::Unary(f, _) => unary(*f),
        KernelOp::Binary(f, ..) => binary(*f),
        KernelOp::Compose { first, then, .. } => {
            let (first, then) = (binary(*first), unary(*then));
            (first.0 + then.0, first.1 + then.1)
        }
        KernelOp::Select { .. } => (2.0, 0.0),
        _ => (1.0, 0.0),
    }
}

fn unary(f: UnaryOp) -> (f64, f64) {
    match f {
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
    }
}

fn binary(f: BinaryOp) -> (f64, f64) {
    match f {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Pow => (1.0, 0.0),
        BinaryOp::Div => (1.0, 1.0),
        BinaryOp::Eq | BinaryOp::Gt => (2.0, 0.0),
        BinaryOp::Max | BinaryOp::Min => (4.0, 0.0),
        BinaryOp::LogAddExp => (64.0, 1.0),
    }
}

/// Interpreted cycles per item, without first reads of arrays and final writes of results.
fn interpreted(region: &Region, part: &NativeLoop, op: &BlockOp, lanes: f64) -> f64 {
    let width = width(region, op) as f64;
    // Small groups do not vectorize in the kernels either.
    let group = |inner: usize| if inner < 16 { 20.0 + 2.0 * inner as f64 } else { 10.0 + 2.0 * inner as f64 / lanes };
    let inner = |a: &Operand| a.width / self::width(region, op);
    let computing = match &op.op {
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
    let inside = |operand: &Operand| match operand.base {
        Base::Local(local) => part.ops.iter().any(|&op| region.ops[op].out == local && writes(&region.ops[op])),
        Base::Stored(_) | Base::Labels(_) => false,
    };
    let operands = op.op.operands();
    let reading: f64 = operands
        .iter()
        .map(|operand| {
            let reads = if inside(operand) { READ * operand.width as f64 } else { 0.0 };
            reads + if copied(op, operand, width) { (WRITE + READ) * width } else { 0.0 }
        })
        .sum();
    let writing = if writes(op) && !keeps(part, op) { WRITE * width } else { 0.0 };
    computing + reading + writing
}

/// Whether it stores a value to a tile.
fn writes(op: &BlockOp) -> bool {
    !matches!(op.op, KernelOp::ReduceAll(..) | KernelOp::Segment(..))
}

/// Whether the operand is copied because its layout differs from the result's.
fn copied(op: &BlockOp, operand: &Operand, width: f64) -> bool {
    let whole = operand.width as f64 == width;
    match op.op {
        KernelOp::Unary(..) | KernelOp::Binary(..) | KernelOp::Compose { .. } | KernelOp::Select { .. } => {
            match operand.access {
                Access::Each => !whole,
                Access::Same => !whole && operand.width != 1,
                _ => true,
            }
        }
        _ => false,
    }
}

/// Native cycles per item, without reads of arrays and writes of results.
fn generated(op: &BlockOp, width: usize) -> f64 {
    let vectors = |n: usize| (n / 4 + n % 4) as f64;
    let vectors_of = |a: &Operand| (a.width / width).div_ceil(4) as f64;
    match &op.op {
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
