//! The text of loops: that of their kernels, with the nest of each traversal after its instructions, and the functions
//! that loops call at the end.

use hgnnc_ir::print::Names;

use super::{Call, CallResult, IndexArray, Loop, Nest, Program, Step};
use crate::kernel::print::{Extension, print_extended, print_operands};
use crate::kernel::{Level, Operand, Traversal};

/// The text of a program.
pub fn print(program: &Program) -> String {
    print_extended(&program.kernels, program)
}

impl Extension for Program {
    fn keyword(&self) -> &'static str {
        "loops"
    }

    fn around(&self, kernel: usize, instr: usize) -> (String, &'static str) {
        let deferred = self.nest_of(kernel).is_some_and(|nest| instr >= nest.first_deferred);
        (format!("{:<4} ", format!("i{instr}")), if deferred { " deferred" } else { "" })
    }

    fn nest(&self, kernel: usize, traversal: &Traversal) -> Vec<String> {
        let mut lines = vec![];
        let Some(nest) = self.nest_of(kernel) else { return lines };
        let operand = print_operands(&self.kernels, traversal);
        // A single group needs no name.
        let is_named = !matches!(&nest.groups[..], [group] if !group.is_empty());
        for (number, group) in nest.groups.iter().enumerate() {
            if is_named {
                lines.push(format!("group {number}"));
            }
            let indent = if is_named { "  " } else { "" };
            group.iter().for_each(|looped| self.looped(looped, &operand, indent, &mut lines));
        }
        for (number, pass) in nest.passes.iter().enumerate() {
            lines.push(format!("pass {number}"));
            pass.rows.iter().chain(&pass.edges).for_each(|looped| self.looped(looped, &operand, "  ", &mut lines));
        }
        lines
    }

    fn end(&self) -> Vec<String> {
        let mut lines = vec![];
        for (number, function) in self.functions.iter().enumerate() {
            let text = function.to_string();
            let (head, body) = text.split_once('\n').unwrap_or((&text, ""));
            lines.push(format!("function f{number} : {head} {{"));
            lines.extend(body.lines().map(str::to_owned));
            lines.push("}".into());
        }
        lines
    }
}

impl Program {
    fn nest_of(&self, kernel: usize) -> Option<&Nest> {
        self.nests.get(kernel)?.as_ref()
    }

    /// A loop: on one line, unless it has several steps with calls.
    fn looped(
        &self,
        looped: &Loop,
        operand: &impl Fn(Level, Operand) -> String,
        indent: &str,
        lines: &mut Vec<String>,
    ) {
        let level = match looped.level {
            Level::Row => "rows",
            Level::Edge => "edges",
        };
        let tile = looped.tile.map_or_else(String::new, |tile| format!(" by {tile}"));
        let head = format!("{indent}loop {level}{tile}:");
        let steps: Vec<String> = looped
            .steps
            .iter()
            .map(|step| match step {
                Step::Instr(instr) => format!("i{instr}"),
                Step::Call(call) => self.call(call, |of| operand(looped.level, of)),
            })
            .collect();
        let calls = looped.steps.iter().any(|step| matches!(step, Step::Call(_)));
        if calls && looped.steps.len() > 1 {
            lines.push(head);
            lines.extend(steps.into_iter().map(|step| format!("{indent}  {step}")));
        } else {
            lines.push(format!("{head} {}", steps.join(" ")));
        }
    }

    /// `f1(i2 i3) of z[src], w by src -> i2, owners i3 overwrites a0 by r0`.
    fn call(&self, call: &Call, operand: impl Fn(Operand) -> String) -> String {
        let names = Names(&self.kernels.tables);
        let instrs: Vec<String> = call.instrs.iter().map(|instr| format!("i{instr}")).collect();
        let indices = call.indices.iter().map(|index| match *index {
            IndexArray::Picked(access) => match access.end() {
                None => access.name().to_owned(),
                Some((graph, direction)) => format!("{} {} {}", access.name(), names.graph(graph), direction.name()),
            },
            IndexArray::Labels(input) => format!("labels {}", names.input(input)),
        });
        let results = call.results.iter().map(|result| match *result {
            CallResult::Tile(instr) => format!("i{instr}"),
            CallResult::Owners(instr) => format!("owners i{instr}"),
            CallResult::Total(instr) => format!("total i{instr}"),
        });
        let replaced = call.replaced.iter().map(|(array, result)| format!("a{array} by r{result}"));
        let mut text = format!("f{}({})", call.function, instrs.join(" "));
        let parts: [(&str, Vec<String>); 4] = [
            ("of", call.arrays.iter().map(|&array| operand(array)).collect()),
            ("by", indices.collect()),
            ("->", results.collect()),
            ("overwrites", replaced.collect()),
        ];
        for (word, items) in parts.into_iter().filter(|(_, items)| !items.is_empty()) {
            text.push_str(&format!(" {word} {}", items.join(", ")));
        }
        text
    }
}
