//! The level `fused` as text.

use std::collections::{BTreeMap, HashSet};

use hgnnc_ir::infer::show;
use hgnnc_kernel_ir::kernel::{Body, Dest, Extent, Instr, Kernel, Program};

use hgnnc::profile::label;

/// Each kernel with its fused operations, stored values, and intermediate values that stay local.
pub fn text(program: &Program) -> String {
    let mut text = format!("kernels of {}, and what is fused into each\n", program.tables.name);
    let mut number = 0;
    for (launches, once) in [(&program.prelude, true), (&program.launches, false)] {
        for launch in launches {
            if launch.kernels.len() > 1 {
                text.push_str(&format!("\n{} co-scheduled kernels\n", launch.kernels.len()));
            }
            for kernel in &launch.kernels {
                text.push_str(&kernel_text(program, kernel, number, once));
                number += 1;
            }
        }
    }
    text
}

fn kernel_text(program: &Program, kernel: &Kernel, number: usize, once: bool) -> String {
    let once = if once { ", once" } else { "" };
    let head =
        format!("\nk{number} {} ({}, {}{once})\n", label(program, kernel), kernel.stage.name(), kernel.phase.name());
    let (rows, edges, way) = match &kernel.body {
        Body::Gemm(gemm) => (gemm.form.name().to_string(), String::new(), String::new()),
        Body::Exchange(_) => ("exchange".into(), String::new(), String::new()),
        Body::FactoredMetapath(reduction) => (
            reduction.sums.iter().map(|sum| sum.term.name()).collect::<Vec<_>>().join(", "),
            String::new(),
            String::new(),
        ),
        Body::Traversal(traversal) => {
            let of = |extents: &[Extent]| counted(traversal.instrs.iter().filter(|i| extents.contains(&i.extent())));
            let local = |extent| {
                let made = |i: &&Instr| i.extent() == extent && matches!(i.dest, Dest::Local(_));
                traversal.instrs.iter().filter(made).count()
            };
            let way = match (local(Extent::Edge), local(Extent::Row)) {
                (0, 0) => String::new(),
                (edges, rows) => format!("{edges} of edges, {rows} of rows"),
            };
            (of(&[Extent::Row, Extent::Total]), of(&[Extent::Edge]), way)
        }
    };
    let buffer = |&b: &hgnnc_kernel_ir::kernel::Buffer| {
        let decl = program.buffer(b);
        format!("{}: {}", decl.name, show(&program.tables, &decl.ty))
    };
    let list =
        |buffers: Vec<hgnnc_kernel_ir::kernel::Buffer>| buffers.iter().map(buffer).collect::<Vec<_>>().join(", ");
    let written = kernel.writes();
    let own: HashSet<_> = written.iter().collect();
    let reads = kernel.reads().into_iter().filter(|b| !own.contains(b)).collect();
    let parts = [
        ("reads", list(reads)),
        ("for each edge", edges),
        ("for each row", rows),
        ("on the way", way),
        ("stores", list(written)),
    ];
    let lines = parts.iter().filter(|(_, what)| !what.is_empty()).map(|(name, what)| format!("  {name:<13}  {what}\n"));
    head + &lines.collect::<String>()
}

/// Operation names with their counts, in the order of first occurrence.
fn counted<'a>(instrs: impl Iterator<Item = &'a Instr>) -> String {
    let (mut order, mut counts) = (vec![], BTreeMap::new());
    for instr in instrs {
        let name = instr.op.name();
        let count = counts.entry(name).or_insert(0u32);
        *count += 1;
        if *count == 1 {
            order.push(name);
        }
    }
    let word = |name: &&str| match counts[name] {
        1 => (*name).to_string(),
        count => format!("{name} x{count}"),
    };
    order.iter().map(word).collect::<Vec<_>>().join(", ")
}
