//! The rules of loops.

use std::collections::HashSet;

use super::{Call, CallResult, Loop, Nest, Program, Step, producers};
use crate::kernel::{self, Dest, Instr, Level};

/// Checks the loops of a program against its kernels.
///
/// # Errors
/// The first rule that is broken, with its place.
pub fn verify(program: &Program) -> Result<(), String> {
    kernel::verify(&program.kernels).map_err(|broken| broken[0].to_string())?;
    if program.nests.len() != program.kernels.kernels().count() {
        return Err("each kernel has a place for its loops".into());
    }
    for (number, function) in program.functions.iter().enumerate() {
        function.verify().map_err(|rule| format!("f{number}: {rule}"))?;
    }
    for (number, traversal, nest) in program.numbered_nests() {
        check_nest(program, &traversal.instrs, nest).map_err(|rule| format!("k{number}: {rule}"))?;
    }
    Ok(())
}

fn check_nest(program: &Program, instrs: &[Instr], nest: &Nest) -> Result<(), String> {
    let made_by = producers(instrs);
    for looped in nest.groups.iter().flatten() {
        check_loop(program, instrs, nest, looped, None)?;
    }
    for pass in &nest.passes {
        for loops in [&pass.rows, &pass.edges] {
            let members: HashSet<usize> = loops.iter().flat_map(Loop::instrs).collect();
            loops.iter().try_for_each(|looped| check_loop(program, instrs, nest, looped, Some(&members)))?;
        }
    }
    // Over blocks, each instruction runs once, in a group that contains what it reads.
    let mut seen = HashSet::new();
    for group in &nest.groups {
        let mut here = HashSet::new();
        for (of, instr) in group.iter().enumerate().flat_map(|(of, looped)| looped.instrs().map(move |i| (of, i))) {
            let is_incomplete =
                |read: &&usize| instrs[**read].op.reduces_edges() && group[of].instrs().any(|i| i == **read);
            if let Some(read) = made_by[instr].iter().flatten().find(is_incomplete) {
                return Err(format!("i{instr} reads the reduction i{read} in the loop that computes it"));
            }
            if !seen.insert(instr) {
                return Err(format!("i{instr} runs twice"));
            }
            if let Some(read) = made_by[instr].iter().flatten().find(|read| !here.contains(*read)) {
                return Err(format!("i{instr} reads i{read} before it is computed"));
            }
            here.insert(instr);
        }
    }
    // Without groups, all rows go through the passes.
    let by_blocks = !nest.groups.is_empty() || nest.passes.is_empty();
    if let Some(missing) = (0..instrs.len()).find(|instr| by_blocks && !seen.contains(instr)) {
        return Err(format!("i{missing} never runs"));
    }
    // Over split rows, reductions are complete after their pass, and edge values live within one.
    let (mut complete, mut stored) = (HashSet::new(), HashSet::new());
    for pass in &nest.passes {
        let mut here: HashSet<usize> = HashSet::new();
        let mut reduced = vec![];
        for looped in pass.rows.iter().chain(&pass.edges) {
            for instr in looped.instrs() {
                let is_known = |read: &&usize| complete.contains(*read) || here.contains(*read);
                if let Some(read) = made_by[instr].iter().flatten().find(|read| !is_known(read)) {
                    return Err(format!("a pass over split rows reads i{read} in i{instr} before it is computed"));
                }
                match (instrs[instr].op.reduces_edges(), looped.level) {
                    (true, _) => reduced.push(instr),
                    (false, Level::Row) => drop(complete.insert(instr)),
                    (false, Level::Edge) => drop(here.insert(instr)),
                }
                stored.insert(instr);
            }
        }
        complete.extend(reduced);
    }
    if let Some(missing) = (0..instrs.len()).find(|instr| !nest.passes.is_empty() && !stored.contains(instr)) {
        return Err(format!("i{missing} never runs for split rows"));
    }
    Ok(())
}

/// `pass`: the instructions of the pass that the loop belongs to. Other passes rematerialize its edge values.
fn check_loop(
    program: &Program,
    instrs: &[Instr],
    nest: &Nest,
    looped: &Loop,
    pass: Option<&HashSet<usize>>,
) -> Result<(), String> {
    for instr in looped.instrs() {
        let Some(found) = instrs.get(instr) else { return Err(format!("there is no i{instr}")) };
        if found.level != looped.level {
            return Err(format!("i{instr} runs at another level"));
        }
        if looped.tiled && instr >= nest.first_deferred {
            return Err(format!("i{instr} is deferred, and runs tile by tile"));
        }
    }
    if looped.steps.is_empty() || !looped.tiled && looped.steps.len() > 1 {
        return Err("a loop that is not tiled has one step".into());
    }
    for step in &looped.steps {
        let Step::Call(call) = step else { continue };
        check_call(program, instrs, call, pass)?;
    }
    Ok(())
}

fn check_call(program: &Program, all: &[Instr], call: &Call, pass: Option<&HashSet<usize>>) -> Result<(), String> {
    let Call { function, instrs, arrays, indices, results, replaced } = call;
    let Some(of) = program.functions.get(*function) else { return Err(format!("there is no f{function}")) };
    if (of.arrays.len(), of.num_indices, of.num_results) != (arrays.len(), indices.len(), results.len()) {
        return Err(format!("f{function} takes other arguments"));
    }
    let changes = |array: usize| of.arrays.get(array).is_some_and(|array| array.changes);
    if !replaced.iter().all(|&(array, result)| changes(array) && result < results.len()) {
        return Err(format!("f{function} overwrites an array that must not change"));
    }
    for result in results {
        let (CallResult::Tile(instr) | CallResult::Owners(instr) | CallResult::Total(instr)) = *result;
        if !instrs.contains(&instr) {
            return Err(format!("f{function} has the result of i{instr}, which it does not compute"));
        }
    }
    // Values that are read elsewhere leave the function.
    let made_by = producers(all);
    let leaves = |instr: usize| {
        let made = &all[instr];
        let is_edge_value = made.level == Level::Edge && !made.op.reduces_edges();
        let here = |reader: &usize| !is_edge_value || pass.is_none_or(|pass| pass.contains(reader));
        let read = (0..made_by.len()).filter(|reader| !instrs.contains(reader) && here(reader));
        matches!(made.dest, Dest::Buffer(_))
            || read.flat_map(|reader| &made_by[reader]).any(|read| *read == Some(instr))
    };
    let is_result = |instr: usize| {
        results.iter().any(|result| {
            let (CallResult::Tile(of) | CallResult::Owners(of) | CallResult::Total(of)) = *result;
            of == instr
        })
    };
    match instrs.iter().find(|&&instr| leaves(instr) && !is_result(instr)) {
        Some(lost) => Err(format!("f{function} computes i{lost} and loses it")),
        None => Ok(()),
    }
}
