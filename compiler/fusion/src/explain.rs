//! Explanations of kernels, for people.

use hgnnc_analysis::cost::{self, Times};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{BinaryOp, Direction};
use hgnnc_kernel_ir::kernel::{
    Body, Dest, Extent, Instr, Kernel, KernelOp, Operand, Program, Rows, Source, Traversal, print::print_rows,
};
use hgnnc_machine::{Machine, Work};

/// Explains each traversal with edges in one line: its results, and the edge values that it does not store. With sizes
/// and a machine also its predicted time, and the time of unfused kernels that store edge values.
pub fn explain(program: &Program, known: Option<(&SizeInfo, &Machine)>) -> Vec<String> {
    let mut lines = vec![];
    for (number, kernel) in program.kernels().enumerate() {
        let Body::Traversal(traversal) = &kernel.body else { continue };
        if !traversal.rows.has_edges() {
            continue;
        }
        let stored: Vec<&str> = kernel.writes().iter().map(|&b| program.buffer(b).name.as_str()).collect();
        let count = |test: fn(&Instr) -> bool| traversal.instrs.iter().filter(|instr| test(instr)).count();
        lines.push(format!(
            "kernels: k{number} ({}, {}) stores {}, in one pass over these rows; edge values computed inline \
             and not stored: {}; products fused into sums: {}{}{}{}",
            print_rows(program, &traversal.rows),
            kernel.phase.name(),
            stored.join(", "),
            count(|instr| instr.extent() == Extent::Edge && matches!(instr.dest, Dest::Local(_))),
            count(|instr| {
                matches!(instr.op, KernelOp::WeightedSum { .. } | KernelOp::SoftmaxSum { .. } | KernelOp::Dot(..))
            }),
            known.and_then(|(sizes, machine)| compared(program, kernel, sizes, machine)).unwrap_or_default(),
            known.and_then(|(sizes, _)| split(traversal, sizes)).unwrap_or_default(),
            softmax_form(traversal).unwrap_or_default()
        ));
    }
    lines
}

/// Predicted times of a traversal, and of unfused kernels that store its edge values and read them again. `None` where
/// it has no such values.
fn compared(program: &Program, kernel: &Kernel, sizes: &SizeInfo, machine: &Machine) -> Option<String> {
    let parts = cost::unfused_work(program, kernel, sizes)?;
    let fused = cost::kernel_work(program, kernel, sizes);
    let moved = |work: &Work| work.read + work.written;
    let times = Times {
        chosen: machine.predict(&fused).seconds(),
        other: parts.iter().map(|part| machine.predict(part).seconds()).sum(),
    };
    let saved = parts.iter().map(moved).sum::<f64>() - moved(&fused);
    Some(format!("; {} (saves {:.3} MB written and read)", times.text("fused", "unfused"), saved * 1e-6))
}

/// Explains that a traversal splits high-degree rows, if there are such rows.
fn split(traversal: &Traversal, sizes: &SizeInfo) -> Option<String> {
    let (Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction)) = traversal.rows else { return None };
    let ends = sizes.ends.get(graph.index())?;
    let longest = match direction {
        Direction::In => ends.max_in,
        Direction::Out => ends.max_out,
    };
    let piece = traversal.pieces?.len(*sizes.edges.get(graph.index())? as usize) as u64;
    let text = || format!("; rows of more than {piece} edges are split: the longest has {longest}");
    (longest > piece).then(text)
}

/// Explains how an edge softmax is computed, if there is one.
fn softmax_form(traversal: &Traversal) -> Option<&'static str> {
    let any = |test: fn(&KernelOp) -> bool| traversal.instrs.iter().any(|instr| test(&instr.op));
    let bounded = |operand: &Operand| operand.source == Source::Const(f32::MIN.into());
    if any(|op| matches!(op, KernelOp::SoftmaxSum { .. })) {
        Some("; online softmax: each pass recomputes the scores")
    } else if traversal.instrs.iter().any(|i| matches!(&i.op, KernelOp::Binary(BinaryOp::Max, _, b) if bounded(b))) {
        Some("; softmax in three passes: caches hold the scores of a block between them")
    } else {
        None
    }
}
