//! Listing of the generated functions.

use std::collections::BTreeMap;
use std::fmt::Write;

use hgnnc_ir::loops::Function;

use super::{BodyStep, compiler};
use crate::error::{ExecError, Result};
use crate::plan::Plan;
use crate::schedule::Schedules;

/// Cranelift IR of all functions of planned programs, each preceded by the kernels that call it (by kernel
/// number) and its program.
///
/// # Errors
/// A machine for which no code can be generated.
pub(crate) fn listing(plans: &[(&str, &Plan, &Schedules)]) -> Result<String> {
    let compiler = compiler()?;
    let mut functions: BTreeMap<usize, (&Function, Vec<String>)> = BTreeMap::new();
    for (name, plan, schedules) in plans {
        let steps = plan.prelude.iter().chain(&plan.steps);
        for (kernel, (step, schedules)) in steps.zip(schedules.iter().flatten()).enumerate() {
            let bodies = schedules.iter().flat_map(|schedule| schedule.bodies.iter().flatten());
            for body_step in bodies.flat_map(|body| &body.steps) {
                let BodyStep::Native(part) = body_step else { continue };
                let line = format!("{name} k{kernel}, {}: operations {}", step.label, numbers(&part.ops));
                functions.entry(part.function).or_insert_with(|| (&part.program, vec![])).1.push(line);
            }
        }
    }
    let mut text = String::new();
    for (number, (program, callers)) in functions {
        let clif = compiler.function(program).map_err(|error| ExecError::Unsupported(error.to_string()))?;
        let _ = writeln!(text, "; f{number}");
        for caller in callers {
            let _ = writeln!(text, ";   called by {caller}");
        }
        for line in program.to_string().lines() {
            let _ = writeln!(text, "; {line}");
        }
        let _ = writeln!(text, "{}", clif.display());
    }
    Ok(text)
}

/// Formats ascending indices as `0 to 3, 5`.
fn numbers(ops: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = vec![];
    for &op in ops {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == op => *last = op,
            _ => ranges.push((op, op)),
        }
    }
    let show = |&(first, last): &(usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first} to {last}"),
    };
    ranges.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn neighbouring_operations_are_a_range() {
        assert_eq!(super::numbers(&[0, 1, 2, 5, 7, 8]), "0 to 2, 5, 7 to 8");
        assert_eq!(super::numbers(&[]), "");
    }
}
