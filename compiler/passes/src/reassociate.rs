//! Chooses the side of a sum over edges on which a projection is cheaper.
//!
//! Sums and projections are linear, so `Σ (x_j W) = (Σ x_j) W`: the same products, added in another order. With k
//! columns before and n after the projection, S vertices at the end that is read, D at the end that is summed to and E
//! edges, the multiply-adds (an addition counts as one) are
//!
//! - project, then sum: `S k n + E n` (the edges carry n columns),
//! - sum, then project: `E k + D k n` (the edges carry k columns).
//!
//! ```text
//! Before:  %2 = matmul %0, %1            : f32[src(g); n]
//!          %3 = gather.src g, %2         : f32[edges(g); n]
//!          %4 = segment.sum.in g, %3     : f32[dst(g); n]
//! After:   %2 = gather.src g, %0         : f32[edges(g); k]
//!          %3 = segment.sum.in g, %2     : f32[dst(g); k]
//!          %4 = matmul %3, %1            : f32[dst(g); n]
//! ```
//!
//! or the other way round, and for sums to sources with `gather.dst`. A projection of edge values that are not gathered
//! (`E k n + E n`) moves after its sum by the same comparison. Messages may be weighted by an edge value that is the
//! same for all columns that the projection mixes, `Σ α_e (x_j W) = (Σ α_e x_j) W`; then every edge costs twice as
//! much.
//!
//! Applies where the other order needs fewer multiply-adds and the values in between have no other use (they would be
//! computed in both orders). Where memory comes before time ([`PassCx::lean_weight`]), the sum comes first unless that
//! takes more than twice as many: a kernel projects the rows that it has summed, and only the result is stored. A sparse projected value cannot be gathered and stays. Extents are resolved by the sizes
//! given.
//!
//! Rows of a table may have to come from other processes, as projections of them can ([`narrow_exchanges`]). Then each element that
//! comes costs as much as [`PassCx::element_cost`] multiply-adds: those of the row, if one sum is projected, or those of the
//! projections that all readers need.
//!
//! [`narrow_exchanges`]: crate::narrow_exchanges

use hgnnc_analysis::cost::{Times, dense_product, gather_sum, seconds};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{BinaryOp, Dataflow, Direction, Graph, Op, Reduce, Value};
use hgnnc_machine::Machine;

use crate::narrow_exchanges::{Users, narrower_columns};
use crate::pass::{Changed, PassCx};
use crate::rewrite::{Rewriter, count_uses, rewrite};
use crate::unread_rows::Infinite;

/// Moves projections to the cheaper side of sums over edges.
pub fn reassociate(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let Some(sizes) = cx.sizes_for("reassociate") else { return Changed(false) };
    let uses = count_uses(flow);
    let mut log = vec![];
    let mut infinite = Infinite::default();
    let machine = cx.machine.clone();
    let layout = cx.batch.as_ref().filter(|_| cx.element_cost > 0);
    let before = layout.map(|layout| (flow.clone(), layout));
    let remote = before.as_ref().map(|(before, layout)| (Users::new(before, layout, &sizes), cx.element_cost));
    let known = CostInputs {
        sizes: &sizes,
        machine: machine.as_ref(),
        uses: &uses,
        lean_weight: cx.lean_weight,
        remote: remote.as_ref(),
    };
    let moved = rewrite(flow, |r, value, _| {
        let data = r.old.value(value);
        if matches!(data.op, Op::Segment { .. }) {
            sum_first(r, known, value, &mut log)
        } else if matches!(data.op, Op::MatMul { .. }) {
            project_first(r, known, value, &mut infinite, &mut log)
        } else {
            None
        }
    });
    cx.explain_all("reassociate", log);
    Changed(moved > 0)
}

/// Where memory comes before time, the order that stores less may take up to this factor more multiply-adds.
const LEAN_COST: u128 = 2;

/// The inputs of both rules.
#[derive(Clone, Copy)]
struct CostInputs<'a> {
    sizes: &'a SizeInfo,
    machine: Option<&'a Machine>,
    uses: &'a [usize],
    lean_weight: usize,
    /// The program, and the cost of an element of a row that comes from another process, where rows of tables do.
    remote: Option<&'a (Users<'a>, u64)>,
}

impl CostInputs<'_> {
    /// The cost of the elements of a row that is read along a graph, if it comes from another process and its projections may come
    /// instead: for the row, and for all of these.
    fn sent(&self, rows: Value, graph: Graph, width: u64) -> [u64; 2] {
        let Some((program, cost)) = self.remote.filter(|(program, _)| !program.is_first(graph)) else { return [0; 2] };
        let narrower = narrower_columns(program, rows);
        narrower.map_or([0; 2], |columns| [cost.saturating_mul(width), (*cost as f64 * columns) as u64])
    }
}

/// The two orders as numbers: `rows` rows of `k` columns before and `n` after a projection with a weight of `products`
/// elements, and their sum over edges into `ends` rows.
struct Orders {
    rows: u64,
    k: u64,
    n: u64,
    products: u64,
    edges: u64,
    ends: u64,
    /// Operations on an edge for each column.
    cost: u64,
    gathered: bool,
    /// Multiply-adds in whose time a row comes from another process, and all of its projections.
    sent: [u64; 2],
}

impl Orders {
    /// Multiply-adds of projecting first.
    fn project_first(&self) -> u128 {
        let sent = product(&[self.rows, self.sent[1]]);
        let computed = product(&[self.rows, self.products]).saturating_add(product(&[self.edges, self.cost, self.n]));
        computed.saturating_add(sent)
    }

    /// Multiply-adds of summing first.
    fn sum_first(&self) -> u128 {
        let sent = product(&[self.rows, self.sent[0]]);
        let computed = product(&[self.edges, self.cost, self.k]).saturating_add(product(&[self.ends, self.products]));
        computed.saturating_add(sent)
    }

    /// Is a sum before the projection preferred to save memory?
    fn is_leaner(&self, lean_weight: usize) -> bool {
        self.gathered
            && self.products <= lean_weight as u64
            && self.sum_first() <= self.project_first().saturating_mul(LEAN_COST)
    }

    /// Explains the comparison and the choice.
    fn explain(&self, sum: Value, name: &str, changes: bool, sums_first: bool, machine: Option<&Machine>) -> String {
        let (project, sum_first) = (self.project_first(), self.sum_first());
        let verdict = if changes { "the order changes" } else { "the order stays" };
        let predicted = machine.map(|machine| format!("; {}", self.predicted(machine, sums_first)));
        format!(
            "sum {sum} over `{name}`: {project} to project first, {sum_first} to sum first{}; {verdict}{}",
            if self.sent == [0; 2] { "" } else { ", with what other processes send" },
            predicted.unwrap_or_default()
        )
    }

    fn predicted(&self, machine: &Machine, sums_first: bool) -> String {
        let of = |n: u64| n as f64;
        let (rows, edges, ends) = (of(self.rows), of(self.edges), of(self.ends));
        let (k, n, products, cost) = (of(self.k), of(self.n), of(self.products), of(self.cost));
        let others = self.gathered.then(|| rows.min(edges));
        let sum = |width| gather_sum(edges, others, ends, width, cost);
        let project = seconds(machine, &[dense_product(rows, k, products, n), sum(n)]);
        let sum = seconds(machine, &[sum(k), dense_product(ends, k, products, n)]);
        if sums_first {
            Times { chosen: sum, other: project }.text("sum first", "project first")
        } else {
            Times { chosen: project, other: sum }.text("project first", "sum first")
        }
    }
}

/// The product of sizes, which may exceed `u64`.
fn product(sizes: &[u64]) -> u128 {
    sizes.iter().fold(1, |all, &size| all.saturating_mul(size.into()))
}

/// Sums first, where `value` is a sum of projected values and that is cheaper.
fn sum_first(r: &mut Rewriter<'_>, known: CostInputs<'_>, value: Value, log: &mut Vec<String>) -> Option<Value> {
    let (old, CostInputs { sizes, uses, .. }) = (r.old, known);
    let sum = old.value(value);
    let Op::Segment { graph, direction, reduce: Reduce::Sum } = sum.op else { return None };
    let messages = messages(old, sum.args[0], graph, direction);
    let projected = messages.of;
    let projection = old.value(projected);
    let Op::MatMul { batch } = projection.op else { return None };
    let (x, w) = (projection.args[0], projection.args[1]);
    if old.is_sparse(x) || !messages.weight_fits(old, batch) {
        return None;
    }
    let name = &old.graphs[graph.index()].name;
    if messages.between.iter().chain([&projected]).any(|v| uses[v.index()] > 1) {
        log.push(format!("sum {value} over `{name}`: what it sums has other uses; the order stays"));
        return None;
    }
    let k = sizes.width(old, x);
    let orders = Orders {
        rows: sizes.rows(projection.ty.space),
        k,
        n: sizes.width(old, projected),
        products: sizes.elements(old, w),
        edges: sizes.edges[graph.index()],
        ends: sizes.rows(sum.ty.space),
        cost: messages.cost_per_column(),
        gathered: messages.gather.is_some(),
        sent: known.sent(x, graph, k),
    };
    let changes = orders.sum_first() < orders.project_first() || orders.is_leaner(known.lean_weight);
    log.push(orders.explain(value, name, changes, changes, known.machine));
    if !changes {
        return None;
    }
    let v = messages.rebuild(r, r.mapped(x));
    let v = r.add(sum.op.clone(), &[v]);
    let w = r.mapped(w);
    // A projection keeps its stage wherever it is computed.
    r.new.cursor.stage = projection.stage;
    Some(r.add(projection.op.clone(), &[v, w]))
}

/// Projects first, where `value` projects a sum of gathered values and that is cheaper.
fn project_first(
    r: &mut Rewriter<'_>,
    known: CostInputs<'_>,
    value: Value,
    infinite: &mut Infinite,
    log: &mut Vec<String>,
) -> Option<Value> {
    let (old, CostInputs { sizes, uses, .. }) = (r.old, known);
    let projection = old.value(value);
    let Op::MatMul { batch } = projection.op else { return None };
    let (summed, w) = (projection.args[0], projection.args[1]);
    let sum = old.value(summed);
    let Op::Segment { graph, direction, reduce: Reduce::Sum } = sum.op else { return None };
    let messages = messages(old, sum.args[0], graph, direction);
    // Projecting edge values that are not gathered is never cheaper.
    if messages.gather.is_none() || !messages.weight_fits(old, batch) || infinite.has(old, messages.of) {
        return None;
    }
    let name = &old.graphs[graph.index()].name;
    if messages.between.iter().chain([&summed]).any(|v| uses[v.index()] > 1) {
        log.push(format!("sum {summed} over `{name}`: what is projected has other uses; the order stays"));
        return None;
    }
    let x = messages.of;
    let k = sizes.width(old, x);
    let orders = Orders {
        rows: sizes.rows(old.ty(x).space),
        k,
        n: sizes.width(old, value),
        products: sizes.elements(old, w),
        edges: sizes.edges[graph.index()],
        ends: sizes.rows(sum.ty.space),
        cost: messages.cost_per_column(),
        gathered: true,
        sent: known.sent(x, graph, k),
    };
    let changes = orders.project_first() < orders.sum_first() && !orders.is_leaner(known.lean_weight);
    log.push(orders.explain(summed, name, changes, !changes, known.machine));
    if !changes {
        return None;
    }
    let (x, w) = (r.mapped(x), r.mapped(w));
    let v = r.add(projection.op.clone(), &[x, w]);
    r.new.cursor.stage = sum.stage;
    let v = messages.rebuild(r, v);
    Some(r.add(sum.op.clone(), &[v]))
}

/// The operands of a sum over edges: a value, perhaps gathered from the other end, perhaps times an edge weight.
struct Messages {
    /// The value, on vertices if it is gathered, else on edges.
    of: Value,
    gather: Option<Op>,
    weight: Option<Value>,
    /// Multiplication and gather, which must have no other use.
    between: Vec<Value>,
}

fn messages(old: &Dataflow, summed: Value, graph: Graph, direction: Direction) -> Messages {
    let mut found = Messages { of: summed, gather: None, weight: None, between: vec![] };
    let data = old.value(summed);
    if data.op == Op::Binary(BinaryOp::Mul) {
        // The factor with fewer dimensions is the weight.
        let (a, b) = (data.args[0], data.args[1]);
        let (of, weight) = if old.ty(a).dims.len() > old.ty(b).dims.len() { (a, b) } else { (b, a) };
        if old.ty(of).space == data.ty.space && old.ty(of).dims == data.ty.dims {
            found = Messages { of, gather: None, weight: Some(weight), between: vec![summed] };
        }
    }
    let far_end = match direction {
        Direction::In => Op::GatherSrc(graph),
        Direction::Out => Op::GatherDst(graph),
    };
    let data = old.value(found.of);
    if data.op == far_end {
        found.between.push(found.of);
        found.of = data.args[0];
        found.gather = Some(far_end);
    }
    found
}

impl Messages {
    /// A weight is the same for all columns that the projection mixes: it has batch dimensions at most.
    fn weight_fits(&self, old: &Dataflow, batch: usize) -> bool {
        self.weight.is_none_or(|weight| old.ty(weight).dims.len() <= batch)
    }

    /// Operations on an edge for each column: an addition, and a multiplication if there is a weight.
    fn cost_per_column(&self) -> u64 {
        1 + u64::from(self.weight.is_some())
    }

    /// The same messages of another value.
    fn rebuild(&self, r: &mut Rewriter<'_>, of: Value) -> Value {
        let mut v = of;
        if let Some(gather) = &self.gather {
            v = r.add(gather.clone(), &[v]);
        }
        if let Some(weight) = self.weight {
            let weight = r.mapped(weight);
            v = r.add(Op::Binary(BinaryOp::Mul), &[v, weight]);
        }
        v
    }
}
