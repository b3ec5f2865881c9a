//! Fuses multiplications into the sums that read them: dot products, and weighted sums of gathered rows.
//!
//! ```text
//! Before:  edge %3 = mul %2, h[src] : 64              After:  edge z = weighted_sum %2, h[src] : 64
//!          edge z = segment.sum %3 : 64
//! Before:  row  %1 = mul h[row], a : 8, 8             After:  row  score = dot h[row], a : 8
//!          row  score = reduce.sum %1 : 8
//! ```
//!
//! Applies to a product that is not stored and has no other reader. A dot product needs factors as wide as the product;
//! a weighted sum needs one, and a narrower one that holds the weights. The product is never in memory or in a register
//! of its own, and a multiply-add takes as long as an addition: it always pays.

use std::collections::HashMap;

use hgnnc_ir::kernel::{Body, Dest, Instr, KernelOp, Local, Operand, Program, Source, Traversal, Width};
use hgnnc_ir::{BinaryOp, Reduce};

use super::pipeline::KernelCx;

/// Fuses the products of all traversals.
pub(super) fn run(program: &mut Program, _: &mut KernelCx) {
    let mut launches = [std::mem::take(&mut program.prelude), std::mem::take(&mut program.launches)];
    for kernel in launches.iter_mut().flatten().flat_map(|launch| &mut launch.kernels) {
        if let Body::Traversal(traversal) = &mut kernel.body {
            fuse(program, traversal);
            kernel.stage = traversal.main_stage().unwrap_or(kernel.stage);
        }
    }
    [program.prelude, program.launches] = launches;
}

fn fuse(program: &Program, traversal: &mut Traversal) {
    let widths = Program::local_widths(traversal);
    let width = |operand: Operand| program.operand_width(&traversal.rows, &widths, operand);
    let mut uses: HashMap<Local, usize> = HashMap::new();
    let mut products: HashMap<Local, &Instr> = HashMap::new();
    for instr in &traversal.instrs {
        for operand in instr.op.operands() {
            if let Source::Local(local) = operand.source {
                *uses.entry(local).or_default() += 1;
            }
        }
        if let (Dest::Local(local), KernelOp::Binary(BinaryOp::Mul, ..)) = (instr.dest, &instr.op) {
            products.insert(local, instr);
        }
    }
    let mut fused: HashMap<usize, (Local, KernelOp)> = HashMap::new();
    for (index, instr) in traversal.instrs.iter().enumerate() {
        let (KernelOp::Segment(Reduce::Sum, of) | KernelOp::ReduceTrailing(Reduce::Sum, of)) = &instr.op else {
            continue;
        };
        let Source::Local(local) = of.source else { continue };
        let Some(product) = products.get(&local).filter(|product| product.level == instr.level) else { continue };
        let KernelOp::Binary(BinaryOp::Mul, a, b) = product.op else { continue };
        let (Some(of_a), Some(of_b), 1) = (width(a), width(b), uses[&local]) else { continue };
        let op = match instr.op {
            KernelOp::Segment(..) => weighted_sum((a, of_a), (b, of_b), &instr.width),
            _ => (of_a == product.width && of_b == product.width).then_some(KernelOp::Dot(a, b)),
        };
        fused.extend(op.map(|op| (index, (local, op))));
    }
    if !fused.is_empty() {
        replace(traversal, fused);
    }
}

/// The weighted sum of rows of `width` elements: the narrower factor holds the weights.
fn weighted_sum((a, of_a): (Operand, Width), (b, of_b): (Operand, Width), width: &Width) -> Option<KernelOp> {
    let (a, heads, x, all) = if of_b.divided_by(&of_a).is_some() { (a, of_a, b, of_b) } else { (b, of_b, a, of_a) };
    let fits = heads != all && all == *width && all.divided_by(&heads).is_some();
    fits.then_some(KernelOp::WeightedSum { a, x })
}

/// Replaces instructions, and leaves out the products that they have absorbed.
fn replace(traversal: &mut Traversal, mut fused: HashMap<usize, (Local, KernelOp)>) {
    let absorbed: Vec<Local> = fused.values().map(|(product, _)| *product).collect();
    let mut renamed: HashMap<Local, Local> = HashMap::new();
    let instrs = std::mem::take(&mut traversal.instrs).into_iter().enumerate();
    for (index, mut instr) in instrs {
        if let Some((_, op)) = fused.remove(&index) {
            instr.op = op;
        }
        if let Dest::Local(local) = instr.dest {
            if absorbed.contains(&local) {
                continue;
            }
            let next = Local(renamed.len() as u32);
            renamed.insert(local, next);
            instr.dest = Dest::Local(next);
        }
        let operand = |operand: &Operand| match operand.source {
            Source::Local(local) => Operand { source: Source::Local(renamed[&local]), ..*operand },
            Source::Buffer(_) | Source::Const(_) | Source::Count(_) => *operand,
        };
        instr.op = instr.op.map(operand, Width::clone);
        traversal.instrs.push(instr);
    }
}
