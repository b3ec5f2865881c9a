//! Rematerialization: the backward pass recomputes forward values instead of keeping them.
//!
//! A forward value that the backward pass reads is live in between, when most memory is in use. Where it is a cheap
//! function of values that are live anyway, computing it twice costs less.
//!
//! ```text
//! Before:  %5 = mul %3, %4      @SF          After:  %5 = mul %3, %4      @SF
//!          %6 = matmul %5, w    @FP                  %6 = matmul %5, w    @FP
//!          %9 = outer %5, %8    @FP.backward         %9 = mul %3, %4      @SF.backward
//!                                                    %10 = outer %9, %8   @FP.backward
//! ```
//!
//! The kept values are a minimum cut: of all sets of forward values from which the backward pass can compute everything
//! that it reads, the set of the fewest bytes. Inputs, parameters, loop invariants and results are in memory anyway.
//! Edge values are never kept: every traversal computes the edge values that it reads. Rematerialized values are copied
//! into the backward pass; the scheduler places them right before their readers ([`hgnnc_fusion`]). Random masks draw
//! the same numbers again: they are functions of their stream.
//!
//! Candidates, in this order: element-wise operations, broadcasts, masks, slices and one-hot labels; then, by predicted
//! time per byte, reductions of a row, dense products, which their readers fuse, and sparse products; under a budget,
//! reductions over edges last. Reductions over all rows are never recomputed.
//!
//! Without a budget, rematerialization adds at most [`MOST_TIME`] to the predicted time and stops where the values of
//! training take little more than those of an evaluation ([`crate::PassCx::evaluation_bytes`]). Under a memory budget
//! ([`crate::PassCx::arena_budget`]) it goes on until the budget is met.
//!
//! The objective is the peak of the arena, not the sum of the kept bytes: a value is recomputed only if the planned
//! peak ([`arena_bytes`]) would be higher otherwise. Needs sizes and a backward part, and without a budget at
//! most [`LARGE`] values.

pub mod mincut;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use hgnnc_analysis::aliases::AliasAnalysis;
use hgnnc_analysis::cost::{nominal_seconds, operation_work};
use hgnnc_analysis::memory::arena_bytes;
use hgnnc_fusion::LoweringOptions;
use hgnnc_ir::infer::show;
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{BinaryOp, Dataflow, Op, OpClass, Phase, Space, Value};
use hgnnc_machine::Machine;

use self::mincut::{INFINITE, Network};
use crate::dce::dce;
use crate::pass::{Changed, PassCx};

/// Without a budget, the most time that rematerialization may add, as a fraction of the predicted time.
const MOST_TIME: f64 = 0.05;
/// Without a budget, the search ends where the values of training take this many tenths of those of an evaluation. An
/// evaluation must fit into memory in any case.
const ENOUGH: u64 = 12;
/// Most values that are tried one by one, the largest first; the others are tried together. Each trial schedules the
/// whole program, so for large programs [`MOST_SCHEDULED`] limits the values that all trials schedule.
const MOST_TRIALS: usize = 12;
const MOST_SCHEDULED: usize = 8_000;
/// Without a budget, programs of more values are not changed: planning them a few times takes longer than epochs.
const LARGE: usize = 6_000;
/// Factor of the number of trials under a budget.
const BUDGET_TRIALS: usize = 4;
/// Most kept values that an explanation names.
const MOST_NAMED: usize = 6;

/// Rematerializes forward values in the backward pass where that lowers the planned peak of memory.
pub fn rematerialize(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    if flow.values.iter().all(|data| data.phase == Phase::Forward) {
        return Changed(false);
    }
    let Some(sizes) = cx.sizes.clone() else {
        cx.explain.push("rematerialize: no sizes are known, nothing is recomputed".into());
        return Changed(false);
    };
    if cx.arena_budget.is_none() && flow.values.len() > LARGE {
        cx.explain.push(format!(
            "rematerialize: only a memory budget is worth planning {} values again and again",
            flow.values.len()
        ));
        return Changed(false);
    }
    let search = Search::new(flow, &sizes, LoweringOptions::of(cx.machine.as_ref()).without(cx.disabled_fusions));
    let Some(before) = search.plan(&BTreeSet::new()) else { return Changed(false) };
    let enough = cx.evaluation_bytes.map_or(0, |bytes| (bytes / 10).saturating_mul(ENOUGH));
    let mut plan = search.cheap(&before, enough);
    if let Some(budget) = cx.arena_budget
        && plan.peak > budget
    {
        let trials = BUDGET_TRIALS * search.trials();
        let classes = &[Class::Row, Class::Product, Class::Sparse, Class::Edges];
        let limit = Limit { bytes: budget, seconds: f64::INFINITY, trials, classes };
        plan = search.within(limit, &before);
        cx.notes.push(budget_note(&before, &plan, budget));
    }
    cx.explain_all("rematerialize", search.explain(&before, &plan));
    let changed = !plan.again.is_empty();
    if changed {
        *flow = search.rebuilt(&plan.again);
    }
    Changed(changed)
}

/// The message about a memory budget.
fn budget_note(before: &Plan, plan: &Plan, budget: u64) -> String {
    let verdict = if plan.peak <= budget { "" } else { ", the least there is" };
    format!(
        "values take {} instead of {}{verdict}: {} are rematerialized, for {:.0} % more predicted time",
        mib(plan.peak),
        mib(before.peak),
        plan.again.len(),
        100.0 * (plan.seconds / before.seconds - 1.0)
    )
}

/// The cost class of recomputing a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    /// The value is never stored: an edge value, or a view of another value.
    Free,
    /// Element-wise: recomputing takes no more time than reading.
    Cheap,
    /// A reduction within a row, or parts of a row.
    Row,
    /// A dense product, which its readers fuse.
    Product,
    /// A sparse product, or a value that is assembled from rows of endpoints.
    Sparse,
    /// A reduction over edges, perhaps a whole attention.
    Edges,
    /// The value is never recomputed.
    Never,
}

impl Class {
    fn words(self) -> &'static str {
        match self {
            Class::Free => "is never stored",
            Class::Cheap => "is element-wise",
            Class::Row => "is a reduction of a row",
            Class::Product => "is a dense product",
            Class::Sparse => "is a pass over stored elements",
            Class::Edges => "is a reduction over edges",
            Class::Never => "is a total or a unit value",
        }
    }
}

/// A choice of values to recompute, with its peak and its time.
#[derive(Clone)]
struct Plan {
    /// Stored values that are recomputed.
    again: BTreeSet<Value>,
    /// Forward values that the backward pass reads from memory.
    kept: BTreeSet<Value>,
    /// The planned peak of memory in bytes.
    peak: u64,
    /// Predicted seconds of a run.
    seconds: f64,
    /// The peak without recomputing this value, if that was tried.
    without: BTreeMap<Value, u64>,
}

/// The limits of a search.
#[derive(Clone, Copy)]
struct Limit {
    bytes: u64,
    /// Predicted time of a run.
    seconds: f64,
    /// Most programs that the search plans.
    trials: usize,
    /// Classes that may be recomputed beside element-wise values.
    classes: &'static [Class],
}

/// Planned peak in bytes and predicted seconds of a choice.
type Measured = Option<(u64, f64)>;

struct Search<'a> {
    flow: &'a Dataflow,
    sizes: &'a SizeInfo,
    /// The options of lowering, for the peak of a choice.
    options: LoweringOptions,
    class: Vec<Class>,
    /// Values that are in memory anyway: leaves, loop invariants, results.
    there: Vec<bool>,
    /// Forward values that the backward pass reads.
    read: Vec<bool>,
    /// The machine by which times are compared.
    machine: Machine,
    /// Peak and seconds by recomputed values: trials that allow different values often recompute the same. `None` where
    /// there are no kernels.
    known: RefCell<BTreeMap<BTreeSet<Value>, Measured>>,
}

impl<'a> Search<'a> {
    fn new(flow: &'a Dataflow, sizes: &'a SizeInfo, options: LoweringOptions) -> Self {
        let aliases = AliasAnalysis::new(flow);
        let mut read = vec![false; flow.values.len()];
        for data in flow.values.iter().filter(|data| data.phase != Phase::Forward) {
            for arg in &data.args {
                read[arg.index()] |= flow.value(*arg).phase == Phase::Forward;
            }
        }
        let there = |v: Value| {
            let root = aliases.storage_of(v);
            aliases.is_leaf(root) || aliases.is_invariant(root) || aliases.is_output(root)
        };
        let (class, there) = (classes(&aliases), flow.handles().map(there).collect());
        Self { flow, sizes, options, class, there, read, machine: Machine::nominal(), known: RefCell::default() }
    }

    /// Bytes of a value, capped so that the sum over all values is less than [`INFINITE`].
    fn bytes(&self, v: Value) -> u64 {
        let most = INFINITE / (1 + self.flow.values.len() as u64);
        self.sizes.elements(self.flow, v).saturating_mul(4).min(most)
    }

    /// The best choice when these values and those of class `Free` may be recomputed. `None` where there are no kernels
    /// for the program.
    fn plan(&self, allowed: &BTreeSet<Value>) -> Option<Plan> {
        let (again, kept) = self.cut(allowed);
        let known = self.known.borrow().get(&again).copied();
        let measured = known.unwrap_or_else(|| {
            let measured = self.measure(&again);
            self.known.borrow_mut().insert(again.clone(), measured);
            measured
        });
        measured.map(|(peak, seconds)| Plan { again, kept, peak, seconds, without: BTreeMap::new() })
    }

    /// Planned peak and predicted seconds where these values are recomputed.
    fn measure(&self, again: &BTreeSet<Value>) -> Measured {
        let rebuilt = if again.is_empty() { None } else { Some(self.rebuilt(again)) };
        let program = hgnnc_fusion::lower_trial(rebuilt.as_ref().unwrap_or(self.flow), self.options).ok()?;
        Some((arena_bytes(&program, self.sizes), nominal_seconds(&program, self.sizes)))
    }

    /// The minimum cut: stored values to recompute, and those to keep.
    fn cut(&self, allowed: &BTreeSet<Value>) -> (BTreeSet<Value>, BTreeSet<Value>) {
        let count = self.flow.values.len();
        let (source, sink) = (2 * count, 2 * count + 1);
        let mut network = Network::new(2 * count + 2);
        // Node 2v: the operands of v are available; node 2v + 1: v is. The arc between them costs the bytes of v.
        for v in self.forward() {
            let (operands, own) = (2 * v.index(), 2 * v.index() + 1);
            let free = self.class[v.index()] == Class::Free;
            network.add(operands, own, if free { INFINITE } else { self.bytes(v).max(1) });
            if free || allowed.contains(&v) {
                for arg in self.flow.value(v).args.iter().filter(|arg| !self.there[arg.index()]) {
                    network.add(2 * arg.index() + 1, operands, INFINITE);
                }
            } else {
                network.add(source, operands, INFINITE);
            }
            if self.read[v.index()] {
                network.add(own, sink, INFINITE);
            }
        }
        let (_, side) = network.cut(source, sink);
        let stored = |v: &Value| self.class[v.index()] != Class::Free && side[2 * v.index() + 1];
        let again = self.forward().filter(|v| stored(v) && side[2 * v.index()]).collect();
        let kept = self.forward().filter(|v| stored(v) && !side[2 * v.index()]).collect();
        (again, kept)
    }

    /// Forward values that are not in memory anyway.
    fn forward(&self) -> impl Iterator<Item = Value> + '_ {
        self.flow.handles().filter(|v| self.flow.value(*v).phase == Phase::Forward && !self.there[v.index()])
    }

    /// The program with copies of these values, and of the `Free` values between them and their readers, in the
    /// backward pass, each right before its first reader.
    fn rebuilt(&self, again: &BTreeSet<Value>) -> Dataflow {
        let old = self.flow;
        let mut copied = vec![false; old.values.len()];
        for v in self.forward() {
            let free = self.class[v.index()] == Class::Free;
            copied[v.index()] = again.contains(&v) || (free && old.value(v).args.iter().any(|arg| copied[arg.index()]));
        }
        let mut new = old.with_tables_of(old.name.clone());
        let mut place: Vec<Value> = Vec::with_capacity(old.values.len());
        let mut copies: BTreeMap<Value, Value> = BTreeMap::new();
        for v in old.handles() {
            let mut data = old.value(v).clone();
            if data.phase != Phase::Forward {
                // All copies that the reader needs, operands first.
                let mut needed: BTreeSet<Value> = BTreeSet::new();
                let mut pending: Vec<Value> = data.args.clone();
                while let Some(arg) = pending.pop() {
                    if copied[arg.index()] && !copies.contains_key(&arg) && needed.insert(arg) {
                        pending.extend(&old.value(arg).args);
                    }
                }
                for copy in needed {
                    let mut data = old.value(copy).clone();
                    data.phase = Phase::Backward;
                    data.args = data.args.iter().map(|a| *copies.get(a).unwrap_or(&place[a.index()])).collect();
                    new.values.push(data);
                    copies.insert(copy, Value::new(new.values.len() - 1));
                }
                data.args = data.args.iter().map(|a| *copies.get(a).unwrap_or(&place[a.index()])).collect();
            } else {
                data.args = data.args.iter().map(|a| place[a.index()]).collect();
            }
            new.values.push(data);
            place.push(Value::new(new.values.len() - 1));
        }
        new.outputs = old.outputs.clone();
        for output in &mut new.outputs {
            output.value = place[output.value.index()];
        }
        new.cursor = old.cursor;
        dce(&mut new, &mut PassCx::default());
        new
    }

    fn of_class(&self, class: Class) -> BTreeSet<Value> {
        self.forward().filter(|v| self.class[v.index()] == class).collect()
    }

    fn trials(&self) -> usize {
        (MOST_SCHEDULED / self.flow.values.len().max(1)).clamp(1, MOST_TRIALS)
    }

    /// The choice without a budget: cheap values, until the peak is [`ENOUGH`].
    fn cheap(&self, before: &Plan, enough: u64) -> Plan {
        let most = before.seconds * (1.0 + MOST_TIME);
        let plan = self.element_wise(before, most);
        if plan.peak > enough {
            let classes = &[Class::Row, Class::Product, Class::Sparse];
            let limit = Limit { bytes: enough, seconds: most, trials: self.trials(), classes };
            let more = self.within(limit, before);
            if more.peak < plan.peak {
                return more;
            }
        }
        let plan = self.prune(plan, None);
        if plan.peak < before.peak && plan.seconds <= most { plan } else { before.clone() }
    }

    /// Predicted seconds of computing this value alone.
    fn seconds(&self, v: Value) -> f64 {
        operation_work(self.flow, v, self.sizes).map_or(0.0, |(_, work)| self.machine.predict(&work).seconds())
    }

    /// Recomputes element-wise values, fewer where they take more than the time limit.
    fn element_wise(&self, before: &Plan, most: f64) -> Plan {
        let Some(mut plan) = self.plan(&self.of_class(Class::Cheap)) else { return before.clone() };
        // Values with the most time per saved byte are dropped first.
        let mut order: Vec<Value> = plan.again.iter().copied().collect();
        order.sort_by(|&a, &b| self.work(b).total_cmp(&self.work(a)).then(a.cmp(&b)));
        for v in order.into_iter().take(self.trials()) {
            if plan.seconds <= most {
                break;
            }
            let mut fewer = plan.again.clone();
            fewer.remove(&v);
            match self.plan(&fewer) {
                Some(other) if other.seconds < plan.seconds => plan = other,
                _ => {}
            }
        }
        plan
    }

    /// The fastest choice within a limit; if there is none, the choice of the lowest peak within the time limit.
    fn within(&self, limit: Limit, before: &Plan) -> Plan {
        let mut allowed = self.of_class(Class::Cheap);
        let mut best = self.plan(&allowed).unwrap_or_else(|| before.clone());
        let mut dear: Vec<(bool, f64, Value)> = limit
            .classes
            .iter()
            .flat_map(|&class| self.of_class(class))
            .map(|v| (self.class[v.index()] == Class::Edges, self.seconds(v) / self.bytes(v).max(1) as f64, v))
            .collect();
        dear.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        // Large programs try several values at once, since each trial schedules the whole program.
        let together = dear.len().div_ceil(limit.trials).max(1);
        for some in dear.chunks(together) {
            if best.peak <= limit.bytes {
                break;
            }
            let mut more = allowed.clone();
            more.extend(some.iter().map(|&(_, _, v)| v));
            // A single value may lower nothing while another one of its size is still kept.
            match self.plan(&more) {
                Some(plan) if plan.peak <= best.peak && plan.seconds <= limit.seconds => {
                    (best, allowed) = (plan, more);
                }
                _ => {}
            }
        }
        if before.peak <= best.peak || best.seconds > limit.seconds {
            return before.clone();
        }
        self.prune(best, Some(limit.bytes))
    }

    /// Keeps values whose recomputation lowers no peak: the most expensive first under a budget, else the largest.
    fn prune(&self, mut plan: Plan, budget: Option<u64>) -> Plan {
        let limit = budget.map_or(plan.peak, |budget| budget.max(plan.peak));
        let mut order: Vec<Value> = plan.again.iter().copied().collect();
        order.sort_by(|&a, &b| {
            let key = |v: Value| if budget.is_some() { self.work(v) } else { self.bytes(v) as f64 };
            key(b).total_cmp(&key(a)).then(a.cmp(&b))
        });
        let mut without = BTreeMap::new();
        for v in order.into_iter().take(self.trials()) {
            let mut fewer = plan.again.clone();
            if !fewer.remove(&v) {
                continue;
            }
            let Some(other) = self.plan(&fewer) else { continue };
            if other.peak <= limit && other.seconds <= plan.seconds {
                plan = other;
            } else {
                without.insert(v, other.peak);
            }
        }
        plan.without = without;
        plan
    }

    /// FLOPs of recomputing a value from available operands.
    fn work(&self, v: Value) -> f64 {
        let data = self.flow.value(v);
        let elements = |v: Value| self.sizes.elements(self.flow, v) as f64;
        let operands: f64 = data.args.iter().map(|&arg| elements(arg)).sum();
        match self.class[v.index()] {
            Class::Free | Class::Cheap | Class::Row | Class::Never => elements(v) + operands,
            Class::Product => {
                let contracted =
                    data.args.get(1).map_or(1.0, |&w| elements(w)) / self.sizes.width(self.flow, v).max(1) as f64;
                2.0 * elements(v) * contracted.max(1.0)
            }
            Class::Sparse | Class::Edges => match data.op {
                Op::Segment { graph, .. } | Op::SegmentEndpoints { graph, .. } => {
                    (self.sizes.rows(Space::Edges(graph)) * self.sizes.width(self.flow, v)) as f64 * 2.0
                }
                Op::ScatterAdd(_) => elements(v) + operands,
                _ => elements(v) * 64.0,
            },
        }
    }

    fn explain(&self, before: &Plan, plan: &Plan) -> Vec<String> {
        let mut lines = vec![];
        let name = |v: Value| {
            let data = self.flow.value(v);
            format!("{v} {} : {} @{}", data.op.name(), show(self.flow, &data.ty), data.stage.name())
        };
        for &v in &plan.again {
            let without = plan.without.get(&v).map(|&peak| format!("; kept, the peak would be {}", mib(peak)));
            lines.push(format!(
                "{} is rematerialized: {} not kept, {:.2} M operations{}",
                name(v),
                mib(self.bytes(v)),
                operation_work(self.flow, v, self.sizes).map_or(0.0, |(_, work)| work.flops()) * 1e-6,
                without.unwrap_or_default()
            ));
        }
        let mut kept: Vec<Value> = plan.kept.iter().copied().collect();
        kept.sort_by_key(|&v| (std::cmp::Reverse(self.bytes(v)), v));
        for v in kept.into_iter().take(MOST_NAMED) {
            let class = self.class[v.index()];
            let why = match class {
                Class::Cheap => "what it is computed from is no smaller, or the peak is elsewhere",
                _ => class.words(),
            };
            lines.push(format!("{} is kept: {}; {why}", name(v), mib(self.bytes(v))));
        }
        lines.push(format!(
            "the planned peak of values goes from {} to {}, the predicted time by {:+.1} %",
            mib(before.peak),
            mib(plan.peak),
            100.0 * (plan.seconds / before.seconds - 1.0)
        ));
        lines
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The cost class of recomputing each value.
///
/// The gradient of an extreme goes to the elements that are equal to it. Another kernel may round recomputed elements
/// in another way, and then none is equal: compared values are kept, or are element-wise functions of kept values.
fn classes(aliases: &AliasAnalysis<'_>) -> Vec<Class> {
    let flow = aliases.flow;
    let mut classes: Vec<Class> = flow.handles().map(|v| class(aliases, v)).collect();
    let comparisons = flow.values.iter().filter(|data| data.op == Op::Binary(BinaryOp::Eq));
    let mut pending: Vec<Value> = comparisons.flat_map(|data| &data.args).copied().collect();
    let mut seen = BTreeSet::new();
    while let Some(v) = pending.pop() {
        match classes[v.index()] {
            Class::Free | Class::Cheap if seen.insert(v) => pending.extend(&flow.value(v).args),
            Class::Free | Class::Cheap | Class::Never => {}
            Class::Row | Class::Product | Class::Sparse | Class::Edges => classes[v.index()] = Class::Never,
        }
    }
    classes
}

fn class(aliases: &AliasAnalysis<'_>, v: Value) -> Class {
    let flow = aliases.flow;
    if aliases.storage_of(v) != v || aliases.topology(v).is_some() {
        return Class::Free;
    }
    let node = flow.value(v);
    let sparse = node.args.first().is_some_and(|&arg| aliases.topology(arg).is_some());
    match &node.op {
        _ if node.ty.is_unit() => Class::Never,
        Op::OneHot { .. } | Op::Slice { .. } => Class::Cheap,
        op if matches!(op.class(), OpClass::Elementwise | OpClass::Random) => Class::Cheap,
        Op::Concat | Op::Transpose { .. } | Op::GatherRows(..) | Op::ScatterRows(..) => Class::Row,
        Op::RowProduct { .. } => Class::Product,
        Op::ReduceTrailing { .. } if !sparse => Class::Row,
        Op::MatMul { .. } | Op::MatMulT { .. } if !sparse => Class::Product,
        Op::ReduceTrailing { .. } | Op::MatMul { .. } | Op::MatMulT { .. } | Op::ScatterAdd(_) => Class::Sparse,
        Op::Segment { .. } | Op::SegmentEndpoints { .. } => Class::Edges,
        // Forward and backward pass agree on the edge of an extreme because it is searched once.
        _ => Class::Never,
    }
}
