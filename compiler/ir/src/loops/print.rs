//! The text of loops, for people: instructions of each traversal, its loops, and the functions that they call.

use std::fmt::Write;

use super::{Loop, Nest, Program, Step};
use crate::kernel::print::{local_extents, print_instr, print_rows, print_width};
use crate::kernel::{Level, Pieces, Traversal};

/// The text of a program's loops.
pub fn print(program: &Program) -> String {
    let mut text = format!("loops {} {{\n", program.kernels.tables.name);
    for (number, traversal, nest) in program.numbered_nests() {
        let _ = nest_text(&mut text, program, number, (traversal, nest));
    }
    for (number, function) in program.functions.iter().enumerate() {
        let _ = writeln!(text, "  function f{number} {{");
        function.to_string().lines().for_each(|line| text.extend(["    ", line, "\n"]));
        text.push_str("  }\n");
    }
    text.push_str("}\n");
    text
}

fn nest_text(
    text: &mut String,
    program: &Program,
    number: usize,
    (traversal, nest): (&Traversal, &Nest),
) -> std::fmt::Result {
    let rows = &traversal.rows;
    let pieces = |Pieces { least, most }: Pieces| format!(", pieces of {least} at most {most}");
    let pieces = traversal.pieces.filter(|_| !nest.passes.is_empty()).map_or(String::new(), pieces);
    writeln!(text, "  kernel k{number} : {}{pieces} {{", print_rows(&program.kernels, rows))?;
    let locals = local_extents(traversal);
    for (index, instr) in traversal.instrs.iter().enumerate() {
        let line = print_instr(&program.kernels, rows, &locals, instr);
        let width = print_width(&program.kernels, &instr.width);
        let deferred = if index >= nest.first_deferred { ", deferred" } else { "" };
        writeln!(text, "    i{index:<3} {line} : {width}{deferred}")?;
    }
    for (group, loops) in nest.groups.iter().enumerate() {
        if nest.groups.len() > 1 {
            writeln!(text, "    group {group}")?;
        }
        loops.iter().try_for_each(|looped| writeln!(text, "    {}", loop_text(looped)))?;
    }
    for (number, pass) in nest.passes.iter().enumerate() {
        let rows = if nest.groups.is_empty() { "rows" } else { "split rows" };
        writeln!(text, "    pass {number} of {rows}")?;
        pass.rows.iter().chain(&pass.edges).try_for_each(|looped| writeln!(text, "      {}", loop_text(looped)))?;
    }
    writeln!(text, "  }}")
}

fn loop_text(looped: &Loop) -> String {
    let level = match looped.level {
        Level::Row => "rows",
        Level::Edge => "edges",
    };
    let tiled = if looped.tiled { " tiled" } else { "" };
    let indices = |instrs: &[usize]| instrs.iter().map(|i| format!("i{i}")).collect::<Vec<_>>().join(" ");
    let step = |step: &Step| match step {
        Step::Instr(instr) => format!("i{instr}"),
        Step::Call(call) => format!("f{}({})", call.function, indices(&call.instrs)),
    };
    let steps: Vec<String> = looped.steps.iter().map(step).collect();
    format!("loop {level}{tiled}: {}", steps.join(" "))
}
