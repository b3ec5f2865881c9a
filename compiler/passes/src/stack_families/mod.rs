//! Stacks the semantic graphs of a family, so that what is computed for each of them alike is one value.
//!
//! A layer over a family of R relations has R copies of each operation. Where enough of the relations have the same end
//! types, the copies become operations on the pairs of a relation and a vertex ([`hgnnc_ir::stacks`]), and the
//! parameters of the relations one parameter with a row for each of them. The number of operations, kernels and compile
//! time then do not depend on R, and the work depends on the edges alone.
//!
//! ```text
//! Before:  %1 = gather.src r0, %0                : f32[edges(r0); 16]        for each relation r
//!          %3 = matmul %1, %2                    : f32[edges(r0); 4]
//!          %4 = segment.sum.in r0, %3            : f32[Entity; 4]
//!          %9 = add %4, %8                       : f32[Entity; 4]            the sum across relations
//! After:   %1 = gather.dst s0.src.vertices, %0   : f32[edges(s0.src.vertices); 16]
//!          %2 = segment.sum.out s0.src.vertices, %1 : f32[s0.src; 16]        x of each (relation, source)
//!          %5 = grouped.matmul s0.src.members, %2, %4 : f32[s0.src; 4]
//!          %6 = gather.src s0, %5                : f32[edges(s0); 4]
//!          %7 = segment.sum.in s0, %6            : f32[s0.dst; 4]            z of each (relation, destination)
//!          %8 = gather.src s0.dst.vertices, %7   : f32[edges(s0.dst.vertices); 4]
//!          %9 = segment.sum.in s0.dst.vertices, %8 : f32[Entity; 4]
//! ```
//!
//! A pair exists where the vertex has an edge of the relation. The sum across relations also has terms for other
//! vertices, which are equal for all of them: it can be taken over pairs if these terms are its identity (0 for a sum),
//! as after a sum or mean over in-edges. Else, or where an operation has no form on pairs, the relations stay apart.
//! A value that is needed of one relation alone keeps them apart, too: nothing is computed in both forms. In
//! mini-batches, tables with a row for each vertex and relation keep them apart as well: a batch takes some rows of each
//! table and of its optimizer states.
//!
//! The order of summation changes, and a dropout mask is that of the first relation, continued over all edges.

mod emit;
mod tuples;

use hgnnc_ir::{Dataflow, Graph, Op, Param};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cse::cse;
use crate::dce::dce;
use crate::pass::{Changed, PassCx};
use emit::{Emitter, given_rows};
use tuples::Tuples;

/// With fewer relations, a kernel for each is fast enough, and can be scheduled by its own sizes.
const LEAST_MEMBERS: usize = 8;

/// Replaces copies of operations for the members of families by operations on their stacks.
pub fn stack_families(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let groups = groups(flow);
    if groups.is_empty() {
        return Changed(false);
    }
    // Copies read the same values where they read equal ones, such as constants.
    let Changed(mut changed) = cse(flow, &mut PassCx::default());
    let stack_one = |flow: &mut Dataflow, members: &Vec<Graph>, with_given: bool| {
        let new = stack(flow, members.clone(), cx.batch.is_some(), with_given)?;
        let (before, after) = (flow.values.len(), new.values.len());
        *flow = new;
        Ok(format!("{before} values before, {after} after"))
    };
    let mut verdicts: Vec<Result<String, String>> =
        groups.iter().map(|members| stack_one(flow, members, false)).collect();
    // Pairs that read vectors of relations can be stacked together with the family that the vectors are of.
    for of_links in 0..groups.len() {
        if verdicts[of_links].is_ok() || !flow.graphs[groups[of_links][0].index()].links {
            continue;
        }
        let (mut new, mut attempt) = (flow.clone(), verdicts.clone());
        attempt[of_links] = stack_one(&mut new, &groups[of_links], true);
        for (members, verdict) in groups.iter().zip(&mut attempt).filter(|(_, verdict)| verdict.is_err()) {
            *verdict = stack_one(&mut new, members, false);
        }
        if attempt[of_links].is_ok() && !new.handles().any(|value| given_rows(&new, value).is_some()) {
            (*flow, verdicts) = (new, attempt);
        }
    }
    for (members, verdict) in groups.iter().zip(verdicts) {
        changed |= verdict.is_ok();
        let (number, first) = (members.len(), &flow.graphs[members[0].index()].name);
        let verb = if verdict.is_ok() { "stacked" } else { "kept apart" };
        let why = verdict.unwrap_or_else(|reason| reason);
        cx.explain_all("stack_families", vec![format!("{number} semantic graphs from `{first}` on {verb}: {why}")]);
    }
    Changed(changed)
}

/// The members of families that could be stacked: at least [`LEAST_MEMBERS`] with the same end types. Large groups
/// first, since a smaller one may be a part of them.
fn groups(flow: &Dataflow) -> Vec<Vec<Graph>> {
    let mut groups: Vec<Vec<Graph>> = vec![];
    for family in &flow.families {
        let mut by_ends: FxHashMap<_, Vec<Graph>> = FxHashMap::default();
        let mut order = vec![];
        for &graph in family {
            let decl = &flow.graphs[graph.index()];
            if decl.shuffle.is_some() {
                continue;
            }
            let ends = (decl.src, decl.dst, decl.links);
            let group = by_ends.entry(ends).or_default();
            if group.is_empty() {
                order.push(ends);
            }
            group.push(graph);
        }
        let large = order.into_iter().filter_map(|ends| by_ends.remove(&ends));
        for group in large.filter(|group| group.len() >= LEAST_MEMBERS) {
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.len()));
    groups
}

/// The program with the stack of these graphs, or the reason why they stay apart. `with_given`: values that belong to
/// other graphs are given to the members, in a form that is left to the stack of those graphs ([`given_rows`]).
fn stack(flow: &Dataflow, members: Vec<Graph>, on_batches: bool, with_given: bool) -> Result<Dataflow, String> {
    let tuples = Tuples::find(flow, &members, with_given);
    let mut emitter = Emitter::new(flow, &tuples, members, on_batches);
    emitter.run();
    let Emitter { mut new, stacked, map, .. } = emitter;
    if stacked.is_empty() {
        return Err("nothing is reduced across them alike".into());
    }
    // Nothing may be computed in both forms: not a value, and above all not a parameter.
    let alive = live(&new);
    let apart = |value: hgnnc_ir::Value| map[value.index()].is_some_and(|value| alive[value.index()]);
    if let Some(value) = stacked.iter().flat_map(|&tuple| tuples.members(tuple)).find(|&value| apart(value)) {
        return Err(format!("{value} is needed of one alone"));
    }
    dce(&mut new, &mut PassCx::default());
    let read: FxHashSet<Param> = new.values.iter().filter_map(|data| param_of(&data.op)).collect();
    let stacks = new.params.iter().enumerate().filter(|(index, _)| read.contains(&Param::new(*index)));
    match stacks.flat_map(|(_, decl)| &decl.entries).find(|entry| read.contains(entry)) {
        Some(entry) => Err(format!("the parameter `{}` is read of one alone", new.params[entry.index()].name)),
        None => Ok(new),
    }
}

fn param_of(op: &Op) -> Option<Param> {
    match op {
        Op::Param(param) => Some(*param),
        _ => None,
    }
}

/// Marks the values that reach an output.
fn live(flow: &Dataflow) -> Vec<bool> {
    let mut live = vec![false; flow.values.len()];
    flow.outputs.iter().for_each(|output| live[output.value.index()] = true);
    for value in flow.handles().rev() {
        if live[value.index()] {
            flow.value(value).args.iter().for_each(|arg| live[arg.index()] = true);
        }
    }
    live
}
