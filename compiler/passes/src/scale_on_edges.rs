//! Scales gathered rows on the edges instead of storing scaled copies of them.
//!
//! The backward pass of a mean divides the gradient of a vertex type by the degrees of each relation, and gathers the
//! quotients. Each of them is as large as the gradient, which the weights of the vertices' own projection read anyway.
//! The same factor is a scalar per edge, and a sum over edges multiplies by it as it adds:
//!
//! ```text
//! Before:  %2 = div %0, %1                : f32[dst(g); n]      %0: f32[dst(g); n], %1: f32[dst(g)]
//!          %3 = gather.dst g, %2          : f32[edges(g); n]
//!          %4 = segment.sum.out g, %3     : f32[src(g); n]
//! After:   %2 = div 1, %1                 : f32[dst(g)]
//!          %3 = gather.dst g, %0          : f32[edges(g); n]
//!          %5 = gather.dst g, %2          : f32[edges(g)]
//!          %6 = mul %3, %5                : f32[edges(g); n]
//!          %4 = segment.sum.out g, %6     : f32[src(g); n]
//! ```
//!
//! Applies to quotients by (and products with) one number per vertex, whose only readers are sums over edges, and only
//! if the rows that are scaled have other readers, for which they are stored. All values that scale the same rows are
//! changed together, unless the planned peak of memory ([`arena_bytes`]) or the predicted time of a step would be higher.
//! Undoes what [`crate::move_to_vertices`] does, so it runs after it, and before rematerialization, which finds the peak
//! in other places then. Needs sizes and a backward part.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use hgnnc_analysis::cost::nominal_seconds;
use hgnnc_analysis::memory::arena_bytes;
use hgnnc_fusion::LoweringOptions;
use hgnnc_ir::{BinaryOp, Dataflow, Op, Phase, Reduce, UnaryOp, Value};

use crate::dce::dce;
use crate::pass::{Changed, PassCx};
use crate::rewrite::rewrite;
use crate::unread_rows::is_total;

/// Most groups that are tried, the largest first. Each trial schedules the whole program, so for large programs
/// [`MOST_SCHEDULED`] limits the values that all trials schedule.
const MOST_TRIALS: usize = 6;
const MOST_SCHEDULED: usize = 8_000;
/// Programs of more values are not changed: planning them a few times takes longer than epochs.
const LARGE: usize = 6_000;

/// Scales gathered rows on the edges where that raises neither the planned peak of memory nor the predicted time.
pub fn scale_on_edges(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    if flow.values.len() > LARGE || flow.values.iter().all(|data| data.phase == Phase::Forward) {
        return Changed(false);
    }
    let Some(sizes) = cx.sizes_for("scale_on_edges") else { return Changed(false) };
    let mut groups: Vec<(u64, Vec<Value>)> = scaled_rows(flow)
        .into_values()
        .map(|scaled| (scaled.iter().map(|&v| sizes.elements(flow, v)).fold(0, u64::saturating_add), scaled))
        .collect();
    groups.sort_by_key(|(elements, scaled)| (Reverse(*elements), scaled[0]));
    if groups.is_empty() {
        return Changed(false);
    }
    let options = LoweringOptions::of(cx.machine.as_ref()).without(cx.disabled_fusions);
    let measure = |flow: &Dataflow| {
        let program = hgnnc_fusion::lower_trial(flow, options).ok()?;
        Some((arena_bytes(&program, &sizes), nominal_seconds(&program, &sizes)))
    };
    let Some((mut peak, mut seconds)) = measure(flow) else { return Changed(false) };
    let mut chosen = BTreeSet::new();
    let trials = (MOST_SCHEDULED / flow.values.len()).clamp(1, MOST_TRIALS);
    for (_, scaled) in groups.into_iter().take(trials) {
        let more: BTreeSet<Value> = chosen.iter().chain(&scaled).copied().collect();
        let Some(trial) = measure(&rebuilt(flow, &more)) else { continue };
        let pays = trial.0 <= peak && trial.1 <= seconds;
        let names: Vec<String> = scaled.iter().map(Value::to_string).collect();
        cx.explain.push(format!(
            "scale_on_edges: {}: {}; a planned peak of {} instead of {} bytes, {:+.1} % predicted time",
            names.join(", "),
            if pays { "scaled on the edges" } else { "stays on the vertices" },
            trial.0,
            peak,
            100.0 * (trial.1 / seconds - 1.0)
        ));
        if pays {
            ((peak, seconds), chosen) = (trial, more);
        }
    }
    if !chosen.is_empty() {
        *flow = rebuilt(flow, &chosen);
    }
    Changed(!chosen.is_empty())
}

/// The values that may be computed on the edges, by the rows that they scale.
fn scaled_rows(flow: &Dataflow) -> BTreeMap<Value, Vec<Value>> {
    let mut readers: Vec<Vec<Value>> = vec![vec![]; flow.values.len()];
    for v in flow.handles() {
        for arg in &flow.value(v).args {
            readers[arg.index()].push(v);
        }
    }
    let mut is_output = vec![false; flow.values.len()];
    for output in &flow.outputs {
        is_output[output.value.index()] = true;
    }
    let is_sum = |v: &Value| matches!(flow.value(*v).op, Op::Segment { reduce: Reduce::Sum, .. });
    let is_summed = |v: &Value| {
        let gathers = matches!(flow.value(*v).op, Op::GatherSrc(_) | Op::GatherDst(_));
        gathers && !is_output[v.index()] && readers[v.index()].iter().all(is_sum)
    };
    let mut found: BTreeMap<Value, Vec<Value>> = BTreeMap::new();
    for v in flow.handles().filter(|v| flow.value(*v).phase == Phase::Backward && !is_output[v.index()]) {
        let Some((rows, _)) = scaled(flow, v) else { continue };
        let has_other_readers = readers[rows.index()].iter().any(|&other| scaled(flow, other).is_none());
        if has_other_readers && !readers[v.index()].is_empty() && readers[v.index()].iter().all(is_summed) {
            found.entry(rows).or_default().push(v);
        }
    }
    found
}

/// Rows, and the number by which each of them is divided or multiplied.
fn scaled(flow: &Dataflow, v: Value) -> Option<(Value, Value)> {
    let data = flow.value(v);
    let (&[rows, factor], true) = (data.args.as_slice(), data.ty.dims.len() == 1) else { return None };
    let fits = flow.ty(rows) == &data.ty && flow.ty(factor).space == data.ty.space && flow.ty(factor).dims.is_empty();
    let finite = match data.op {
        Op::Binary(BinaryOp::Mul) => true,
        Op::Binary(BinaryOp::Div) => is_total(flow, &data.op, &data.args),
        _ => false,
    };
    (fits && finite && !flow.is_sparse(rows)).then_some((rows, factor))
}

/// The program with these values computed on the edges.
fn rebuilt(flow: &Dataflow, on_edges: &BTreeSet<Value>) -> Dataflow {
    let mut new = flow.clone();
    let mut factors: BTreeMap<Value, Value> = BTreeMap::new();
    rewrite(&mut new, |r, value, _| {
        let gather = r.old.value(value);
        let &[read] = gather.args.as_slice() else { return None };
        if !on_edges.contains(&read) {
            return None;
        }
        let op = gather.op.clone();
        let (rows, factor) = scaled(r.old, read)?;
        let is_quotient = r.old.value(read).op == Op::Binary(BinaryOp::Div);
        let factor = match (is_quotient, factors.get(&factor)) {
            (false, _) => r.mapped(factor),
            (true, Some(&known)) => known,
            (true, None) => {
                let divisor = r.mapped(factor);
                let reciprocal = r.add(Op::Unary(UnaryOp::Recip), &[divisor]);
                factors.insert(factor, reciprocal);
                reciprocal
            }
        };
        let rows = r.mapped(rows);
        let rows = r.add(op.clone(), &[rows]);
        let factor = r.add(op, &[factor]);
        Some(r.add(Op::Binary(BinaryOp::Mul), &[rows, factor]))
    });
    dce(&mut new, &mut PassCx::default());
    new
}
