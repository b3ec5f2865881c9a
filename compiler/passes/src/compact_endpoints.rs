//! Compacts values that belong to the edges of one graph to a row per endpoint, a vertex that has such edges.
//!
//! A sparse relation has few endpoints among the vertices of its types, but its vertex values (projections, sums over
//! edges, their gradients, the update of an embedding table) have a row for all vertices. Two facts, both of the
//! program alone, decide which rows matter:
//!
//! - *demand*: a value is read by gathers over one graph only, directly or through row-by-row operations. Its other
//!   rows are dead.
//! - *supply*: a value is known at vertices without edges: a sum over edges is 0 there, and so is a linear function of
//!   it. Where such a value is added to one of all vertices, its rows are scatter-added (`scatter_add`).
//!
//! ```text
//! Before:  %2 = matmul %0, %1              : f32[src(g); n]
//!          %3 = gather.src g, %2           : f32[edges(g); n]
//!          %4 = segment.sum.in g, %3       : f32[dst(g); n]
//!          %6 = add %5, %4                 : f32[dst(g); n]
//! After:   %2 = gather_rows.src g, %0           : f32[sources(g); k]
//!          %3 = matmul %2, %1              : f32[sources(g); n]
//!          %4 = gather.src g, %3           : f32[edges(g); n]
//!          %5 = segment_endpoints.sum.in g, %4  : f32[destinations(g); n]
//!          %6 = scatter_add(dst g) %5, %4     : f32[dst(g); n]
//! ```
//!
//! Every row is computed as before, up to 0 · ∞ at vertices without edges (weights are taken to be finite, as for
//! sparse features). Sums over rows skip zeros, and back ends may group the other rows differently: last bits may
//! differ.
//!
//! The optimizer state starts at 0 and stays 0 at vertices whose gradient is always 0, if the update of 0 is 0. Then
//! only the rows of endpoints are updated; all others keep their values.
//!
//! Applies where at most half of the vertices have edges, and where N such vertices with c operations each and r
//! elements to select before (each is read and written) cost less than V vertices: `N (c + 2 r) < V c`. Needs sizes.

use std::collections::BTreeSet;

use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::elementwise;
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{
    BinaryOp, DType, Dataflow, Dim, Direction, Graph, Op, OutputKind, Param, Reduce, Space, Type, Value, VertexRows,
    VertexType,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::move_to_vertices::by_row;
use crate::pass::{Changed, PassCx};
use crate::rewrite::count_uses;

type Endpoints = (Graph, Direction);

/// Compacts values to the rows of endpoints where that pays.
pub fn compact_endpoints(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let Some(sizes) = cx.sizes_for("compact_endpoints") else { return Changed(false) };
    let worthwhile = few_endpoints(flow, &sizes, cx);
    if worthwhile.is_empty() {
        return Changed(false);
    }
    let demand = demand(flow, &worthwhile);
    let (mut refused, mut hints) = (FxHashSet::default(), FxHashMap::default());
    // The rows of a state are found where its gradient meets it. An assumption about a state that its update violates
    // is dropped. Every iteration finds something new about some state, or is the last.
    loop {
        let mut builder = Builder {
            old: flow,
            new: flow.with_tables_of(flow.name.clone()),
            sizes: &sizes,
            worthwhile: &worthwhile,
            demand: &demand,
            uses: count_uses(flow),
            refused: &refused,
            hints: &hints,
            met: vec![],
            changed: false,
            full: vec![None; flow.values.len()],
            parts: vec![None; flow.values.len()],
            selected: FxHashMap::default(),
            assumed: FxHashMap::default(),
            log: vec![],
        };
        flow.handles().for_each(|value| builder.value(value));
        let (met, wrong) = (std::mem::take(&mut builder.met), builder.broken_assumptions());
        if met.is_empty() && wrong.is_empty() {
            let changed = builder.changed;
            cx.explain_all("compact_endpoints", std::mem::take(&mut builder.log));
            if changed {
                *flow = builder.finish();
            }
            return Changed(changed);
        }
        hints.extend(met);
        refused.extend(wrong);
    }
}

/// The endpoint sets that are small compared to all vertices of the type.
fn few_endpoints(flow: &Dataflow, sizes: &SizeInfo, cx: &mut PassCx) -> FxHashSet<Endpoints> {
    let mut few = FxHashSet::default();
    let mut log = vec![];
    for graph in (0..flow.graphs.len()).map(Graph::new) {
        for direction in [Direction::Out, Direction::In] {
            let vertices = sizes.rows(flow.graph_end(graph, direction));
            let Some(ends) = sizes.num_endpoints(graph, direction) else {
                cx.explain
                    .push("compact_endpoints: the numbers of distinct ends are not known, nothing is moved".into());
                return FxHashSet::default();
            };
            if ends <= vertices / 2 {
                few.insert((graph, direction));
            } else {
                let (what, name) = (plural(direction), &flow.graphs[graph.index()].name);
                log.push(format!(
                    "{ends} of {vertices} vertices are {what} of `{name}`: more than half, all have rows"
                ));
            }
        }
    }
    cx.explain_all("compact_endpoints", log);
    few
}

fn plural(direction: Direction) -> &'static str {
    match direction {
        Direction::In => "destinations",
        Direction::Out => "sources",
    }
}

/// The rows of a vertex value that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Demand {
    /// No row is read.
    Nothing,
    /// Rows of endpoints only.
    Only(Endpoints),
    /// Any row may be read.
    All,
}

impl Demand {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Demand::Nothing, other) | (other, Demand::Nothing) => other,
            (a, b) if a == b => a,
            _ => Demand::All,
        }
    }
}

fn demand(flow: &Dataflow, worthwhile: &FxHashSet<Endpoints>) -> Vec<Demand> {
    let mut demand = vec![Demand::Nothing; flow.values.len()];
    for output in &flow.outputs {
        demand[output.value.index()] = Demand::All;
    }
    for value in flow.handles().rev() {
        let data = flow.value(value);
        let at = match data.op {
            Op::GatherSrc(graph) => Demand::Only((graph, Direction::Out)),
            Op::GatherDst(graph) => Demand::Only((graph, Direction::In)),
            Op::GatherRows(graph, direction) => Demand::Only((graph, direction)),
            _ if is_row_by_row(flow, value) => demand[value.index()],
            _ => Demand::All,
        };
        let at = match at {
            Demand::Only(ends) if !worthwhile.contains(&ends) => Demand::All,
            at => at,
        };
        for &arg in &data.args {
            demand[arg.index()] = demand[arg.index()].and(at);
        }
    }
    demand
}

/// Is a value computed from dense rows of the same vertices only?
fn is_row_by_row(flow: &Dataflow, value: Value) -> bool {
    let data = flow.value(value);
    let rows = |ty: &Type| ty.dtype == DType::F32 && !ty.is_sparse();
    matches!(data.ty.space, Space::Vertices(_))
        && by_row(&data.op, Type::clone).is_some()
        && rows(&data.ty)
        && data.args.iter().all(|&arg| rows(flow.ty(arg)))
}

/// The rows of a value at vertices that are no endpoints.
#[derive(Clone, Copy, PartialEq)]
enum Rest {
    /// All elements are this number.
    Number(f64),
    /// The rows equal those of this value of the old program.
    Same(Value),
    /// The rows are unknown, and nothing reads them.
    Unread,
}

/// The rows of a value at the endpoints of a graph.
#[derive(Clone, Copy)]
struct Part {
    ends: Endpoints,
    /// The compacted value, in the new program.
    rows: Value,
    rest: Rest,
}

struct Builder<'a> {
    old: &'a Dataflow,
    new: Dataflow,
    sizes: &'a SizeInfo,
    worthwhile: &'a FxHashSet<Endpoints>,
    demand: &'a [Demand],
    uses: Vec<usize>,
    /// States that are not 0 at vertices without edges.
    refused: &'a FxHashSet<(Param, u32)>,
    /// Endpoints at which the rows of states change, where that is known.
    hints: &'a FxHashMap<(Param, u32), Endpoints>,
    /// As `hints`, found in this iteration.
    met: Vec<((Param, u32), Endpoints)>,
    changed: bool,
    /// Old values with all their rows.
    full: Vec<Option<Value>>,
    /// Old values with some of their rows. An embedding table has parts as well.
    parts: Vec<Option<Part>>,
    selected: FxHashMap<(Value, Endpoints), Value>,
    /// States that are assumed to be 0 at all vertices but these endpoints.
    assumed: FxHashMap<(Param, u32), Endpoints>,
    log: Vec<String>,
}

impl Builder<'_> {
    fn value(&mut self, value: Value) {
        let old = self.old;
        let data = old.value(value);
        self.account_to(value);
        let built = match &data.op {
            Op::Segment { graph, direction, reduce } => self.segment(value, (*graph, *direction), *reduce),
            Op::Rows | Op::Unrows => {
                // A view of the same rows.
                let known = self.parts[data.args[0].index()].filter(|part| part.rest != Rest::Unread);
                self.parts[value.index()] = known;
                known.is_some()
            }
            Op::ScatterAdd(ends) if ends.len() == 1 && self.is_zero(data.args[0]) => {
                let rows = self.full(data.args[1]);
                self.parts[value.index()] = Some(Part { ends: ends[0], rows, rest: Rest::Number(0.0) });
                true
            }
            Op::ReduceTrailing { reduce: Reduce::Sum, axes } if *axes == old.ty(data.args[0]).dims.len() => {
                self.row_by_row(value) || self.total(value)
            }
            Op::Binary(BinaryOp::Add | BinaryOp::Sub) => self.row_by_row(value) || self.sum(value),
            _ => self.row_by_row(value),
        };
        if built {
            return;
        }
        let op = data.op.clone();
        let direct = match &data.op {
            Op::GatherSrc(graph) => self.part(data.args[0], (*graph, Direction::Out)).map(|rows| vec![rows]),
            Op::GatherDst(graph) => self.part(data.args[0], (*graph, Direction::In)).map(|rows| vec![rows]),
            Op::GatherRows(graph, direction) => {
                self.full[value.index()] = Some(self.rows_at(data.args[0], (*graph, *direction)));
                return;
            }
            // Rows of zeros add nothing.
            Op::Outer { .. } | Op::ReduceSpace(Reduce::Sum) => self.zero_outside(&data.args).map(|ends| {
                self.note(value, ends, "is summed over", "rows of zeros add nothing");
                data.args.iter().map(|&arg| self.rows_at(arg, ends)).collect()
            }),
            _ => None,
        };
        let args = match direct {
            Some(args) => args,
            None => data.args.iter().map(|&arg| self.full(arg)).collect(),
        };
        self.account_to(value);
        self.full[value.index()] = Some(self.new.add(op, &args));
    }

    /// Sets the stage, phase and source position of new values to those of this old value.
    fn account_to(&mut self, value: Value) {
        let data = self.old.value(value);
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
    }

    /// The rows of an old value at these endpoints, if it is computed for them.
    fn part(&self, value: Value, ends: Endpoints) -> Option<Value> {
        self.parts[value.index()].filter(|part| part.ends == ends).map(|part| part.rows)
    }

    /// All rows of an old value.
    fn full(&mut self, value: Value) -> Value {
        if let Some(full) = self.full[value.index()] {
            return full;
        }
        let part = self.parts[value.index()].expect("every value before this one is computed in some way");
        let full = self.expand(value, part);
        self.full[value.index()] = Some(full);
        full
    }

    fn expand(&mut self, value: Value, Part { ends: (graph, direction), rows, rest }: Part) -> Value {
        let cursor = self.new.cursor;
        let base = match rest {
            Rest::Number(number) => {
                self.account_to(value);
                let ty = Type { space: self.new.graph_end(graph, direction), ..self.new.ty(rows).clone() };
                let number = self.new.constant(number);
                self.new.add(Op::Broadcast(ty), &[number])
            }
            Rest::Same(base) => {
                let base = self.full(base);
                self.account_to(value);
                self.by_vertex(base)
            }
            Rest::Unread => unreachable!("rows that nothing reads are not asked for"),
        };
        let op = match rest {
            Rest::Number(0.0) => Op::ScatterAdd(vec![(graph, direction)]),
            _ => Op::ScatterRows(graph, direction),
        };
        let mut full = self.new.add(op, &[base, rows]);
        if self.old.ty(value).is_unit() {
            full = self.new.add(Op::Unrows, &[full]);
        }
        self.new.cursor = cursor;
        full
    }

    /// A new embedding table as a vertex value.
    fn by_vertex(&mut self, value: Value) -> Value {
        if self.new.ty(value).is_unit() { self.new.add(Op::Rows, &[value]) } else { value }
    }

    /// The rows of an old value at endpoints: computed for them, or gathered. Unit values without rows are not changed.
    fn rows_at(&mut self, value: Value, ends: Endpoints) -> Value {
        if let Some(rows) = self.part(value, ends) {
            return rows;
        }
        let data = self.old.value(value);
        if data.ty.is_unit() && !self.is_table(value, ends) {
            return self.full(value);
        }
        if let (Op::Broadcast(ty), true) = (&data.op, data.args.iter().all(|&arg| self.old.ty(arg).is_unit()))
            && !data.ty.is_unit()
        {
            let inner = self.full(data.args[0]);
            let ty = Type { space: Space::Endpoints(ends.0, ends.1), ..ty.clone() };
            return self.new.add(Op::Broadcast(ty), &[inner]);
        }
        let full = self.full(value);
        if let Some(&known) = self.selected.get(&(full, ends)) {
            return known;
        }
        let cursor = self.new.cursor;
        self.account_to(value);
        let all = self.by_vertex(full);
        let rows = self.new.add(Op::GatherRows(ends.0, ends.1), &[all]);
        self.new.cursor = cursor;
        self.selected.insert((full, ends), rows);
        rows
    }

    /// Is a unit value an embedding table of the vertex type at this end?
    fn is_table(&self, value: Value, ends: Endpoints) -> bool {
        let ty = self.old.ty(value);
        let of = self.old.graph_end(ends.0, ends.1);
        // A batch has pairs of other members than the next one, and the optimizer changes those without pairs as well.
        let members = |vertex: VertexType| matches!(self.old.vertex_types[vertex.index()].rows, VertexRows::Members(_));
        if matches!(of, Space::Vertices(vertex) if members(vertex)) {
            return false;
        }
        ty.is_unit() && matches!(ty.dims.first(), Some(Dim::Count(vertex)) if Space::Vertices(*vertex) == of)
    }

    /// Reduces edges for the rows of endpoints.
    fn segment(&mut self, value: Value, ends: Endpoints, reduce: Reduce) -> bool {
        let demanded = self.demand[value.index()] == Demand::Only(ends);
        if !self.worthwhile.contains(&ends) || !(demanded || reduce == Reduce::Sum) {
            return false;
        }
        let rest = if reduce == Reduce::Sum { Rest::Number(0.0) } else { Rest::Unread };
        let edges = self.full(self.old.value(value).args[0]);
        let op = Op::SegmentEndpoints { graph: ends.0, direction: ends.1, reduce };
        let rows = self.new.add(op, &[edges]);
        self.parts[value.index()] = Some(Part { ends, rows, rest });
        self.note(value, ends, "is reduced to", if demanded { "only they are read" } else { "the others are 0" });
        true
    }

    /// Computes a row-wise operation for the rows of endpoints.
    fn row_by_row(&mut self, value: Value) -> bool {
        let old = self.old;
        let data = old.value(value);
        let demanded = match self.demand[value.index()] {
            Demand::Only(ends) => Some(ends),
            Demand::Nothing | Demand::All => None,
        };
        let supplied = data.args.iter().find_map(|arg| self.parts[arg.index()]).map(|part| part.ends);
        if let Some(ends) = supplied {
            data.args.iter().for_each(|&arg| self.meet(arg, ends));
        }
        let hinted = || {
            data.args.iter().find_map(|&arg| match &old.value(arg).op {
                Op::State(param, slot) => self.hints.get(&(*param, *slot)).copied(),
                _ => None,
            })
        };
        let supplied = supplied.or_else(hinted);
        let vertices = is_row_by_row(old, value);
        let table = |ends: Endpoints| {
            matches!(data.op, Op::Unary(_) | Op::Binary(_)) && self.is_table(value, ends) && !data.ty.is_sparse()
        };
        let (ends, rest) = match (demanded, supplied) {
            (Some(ends), _) if vertices => (ends, self.rest(value, ends).unwrap_or(Rest::Unread)),
            (_, Some(ends)) if vertices || table(ends) => match self.rest(value, ends) {
                Some(rest) => (ends, rest),
                None => return false,
            },
            _ => return false,
        };
        // An operand of which only these rows are known leaves no choice.
        let forced = data.args.iter().any(|&arg| self.parts[arg.index()].is_some_and(|part| part.rest == Rest::Unread));
        if !self.pays(value, ends, demanded == Some(ends)) && !forced {
            return false;
        }
        self.changed = true;
        for &arg in &data.args {
            if let (Op::State(param, slot), true) = (&old.value(arg).op, rest != Rest::Unread) {
                self.assumed.insert((*param, *slot), ends);
            }
        }
        let args: Vec<Value> = data.args.iter().map(|&arg| self.rows_at(arg, ends)).collect();
        let on_ends = |ty: &Type| Type { space: Space::Endpoints(ends.0, ends.1), ..ty.clone() };
        let op = by_row(&data.op, on_ends).expect("only row-by-row operations come here");
        self.account_to(value);
        let rows = self.new.add(op, &args);
        self.parts[value.index()] = Some(Part { ends, rows, rest });
        true
    }

    /// The result of an operation at vertices that are no endpoints. `None` where [`Rest`] cannot express it.
    fn rest(&self, value: Value, ends: Endpoints) -> Option<Rest> {
        let data = self.old.value(value);
        let rests: Vec<Option<Rest>> = data.args.iter().map(|&arg| self.rest_of(arg, ends)).collect();
        let number = |i: usize| match rests[i] {
            Some(Rest::Number(number)) => Some(number),
            Some(Rest::Same(_) | Rest::Unread) | None => None,
        };
        let found = match &data.op {
            Op::Unary(f) => elementwise::unary(*f, number(0)?),
            Op::Binary(f) => match (f, number(0), number(1)) {
                (_, Some(a), Some(b)) => elementwise::binary(*f, a, b),
                (BinaryOp::Mul, Some(0.0), _) | (BinaryOp::Mul, _, Some(0.0)) | (BinaryOp::Div, Some(0.0), _) => 0.0,
                (BinaryOp::Add | BinaryOp::Sub, None, Some(0.0)) => {
                    let same = rests[0].filter(|rest| matches!(rest, Rest::Same(_)));
                    // A broadcast to more elements would not equal the operand.
                    return same.filter(|_| self.old.ty(data.args[0]) == &data.ty);
                }
                _ => return None,
            },
            Op::Broadcast(_) | Op::Reshape(_) | Op::StopGradient | Op::Slice { .. } | Op::Transpose { .. } => {
                number(0)?
            }
            Op::Concat => {
                let first = number(0)?;
                (1..rests.len()).all(|i| number(i) == Some(first)).then_some(first)?
            }
            Op::MatMul { .. } | Op::MatMulT { .. } => number(0).filter(|&x| x == 0.0)?,
            Op::ReduceTrailing { reduce: Reduce::Sum, .. } => number(0).filter(|&x| x == 0.0)?,
            Op::ReduceTrailing { reduce: Reduce::Max | Reduce::Min, .. } => number(0)?,
            _ => return None,
        };
        found.is_finite().then_some(Rest::Number(found))
    }

    fn rest_of(&self, value: Value, ends: Endpoints) -> Option<Rest> {
        if let Some(part) = self.parts[value.index()] {
            return (part.ends == ends && part.rest != Rest::Unread).then_some(part.rest);
        }
        let data = self.old.value(value);
        match &data.op {
            Op::Const(number) => Some(Rest::Number(*number)),
            Op::Broadcast(_) => match self.rest_of(data.args[0], ends) {
                Some(Rest::Number(number)) => Some(Rest::Number(number)),
                Some(Rest::Same(_) | Rest::Unread) | None => None,
            },
            // The state starts at 0; whether it stays 0 is checked.
            Op::State(param, slot) if self.is_table(value, ends) => {
                let elsewhere = self.assumed.get(&(*param, *slot)).is_some_and(|known| *known != ends);
                (!elsewhere && !self.refused.contains(&(*param, *slot))).then_some(Rest::Number(0.0))
            }
            Op::Param(_) if self.is_table(value, ends) => Some(Rest::Same(value)),
            _ => None,
        }
    }

    /// Do fewer rows pay for gathering their operands?
    fn pays(&mut self, value: Value, ends: Endpoints, demanded: bool) -> bool {
        let (old, sizes) = (self.old, self.sizes);
        let data = old.value(value);
        let vertices = sizes.rows(old.graph_end(ends.0, ends.1));
        let few = sizes.rows(Space::Endpoints(ends.0, ends.1));
        let per_row = |value: Value| {
            let all = sizes.width(old, value);
            if old.ty(value).is_unit() { all / vertices.max(1) } else { all }
        };
        let work = match &data.op {
            Op::MatMul { .. } | Op::MatMulT { .. } => sizes.elements(old, data.args[1]),
            _ => data.args.iter().map(|&arg| per_row(arg)).max().unwrap_or(0).max(per_row(value)),
        };
        let has_rows = |arg: Value| !old.ty(arg).is_unit() || self.is_table(arg, ends);
        let selected: u64 = data
            .args
            .iter()
            .filter(|&&arg| has_rows(arg) && self.part(arg, ends).is_none())
            .filter(|arg| !matches!(old.value(**arg).op, Op::Broadcast(_)))
            .map(|&arg| 2 * per_row(arg))
            .sum();
        // A value that is known at endpoints only would have to be scattered to all vertices first.
        let spread: u64 = data.args.iter().filter(|&&arg| self.part(arg, ends).is_some()).map(|&a| per_row(a)).sum();
        let (then, now) = (few * (work + selected), vertices * (work + spread));
        let pays = then < now;
        let (what, name) = (plural(ends.1), &old.graphs[ends.0.index()].name);
        let verdict = if pays { "computed for them" } else { "computed for all" };
        let why = if demanded { "only they are read" } else { "the others are known" };
        self.log.push(format!(
            "{value} on {few} {what} of `{name}` among {vertices} vertices ({why}): {now} for all, {then} for them; \
             {verdict}"
        ));
        pays
    }

    /// Records which rows of a state change: an operand of the same element-wise operation has rows at these endpoints.
    fn meet(&mut self, value: Value, ends: Endpoints) {
        let mut pending = vec![value];
        let mut seen = BTreeSet::from([value]);
        while let Some(value) = pending.pop() {
            let data = self.old.value(value);
            if !self.is_table(value, ends) || self.parts[value.index()].is_some() {
                continue;
            }
            match &data.op {
                Op::State(param, slot) => {
                    let state = (*param, *slot);
                    if !self.hints.contains_key(&state) && !self.refused.contains(&state) {
                        self.met.push((state, ends));
                    }
                }
                // The first operand comes first.
                Op::Unary(_) | Op::Binary(_) => {
                    pending.extend(data.args.iter().rev().copied().filter(|&arg| seen.insert(arg)));
                }
                _ => {}
            }
        }
    }

    /// Are all elements of a value 0?
    fn is_zero(&self, mut value: Value) -> bool {
        loop {
            let data = self.old.value(value);
            match data.op {
                Op::Const(number) => return number == 0.0,
                Op::Broadcast(_) => value = data.args[0],
                _ => return false,
            }
        }
    }

    /// Computes the sum of all elements of a unit value that is 0 except in the rows of some vertices.
    fn total(&mut self, value: Value) -> bool {
        let data = self.old.value(value);
        let Some(part) = self.parts[data.args[0].index()].filter(|part| part.rest == Rest::Number(0.0)) else {
            return false;
        };
        if !self.old.ty(data.args[0]).is_unit() {
            return false;
        }
        let mut rows = part.rows;
        match self.new.ty(rows).dims.len() {
            0 => {}
            axes => rows = self.new.reduce_trailing(Reduce::Sum, axes, rows),
        }
        self.full[value.index()] = Some(self.new.add(Op::ReduceSpace(Reduce::Sum), &[rows]));
        self.note(value, part.ends, "is summed over", "rows of zeros add nothing");
        true
    }

    fn note(&mut self, value: Value, (graph, direction): Endpoints, done: &str, why: &str) {
        let (what, name) = (plural(direction), &self.old.graphs[graph.index()].name);
        let few = self.sizes.rows(Space::Endpoints(graph, direction));
        let vertices = self.sizes.rows(self.old.graph_end(graph, direction));
        self.changed = true;
        self.log.push(format!("{value} {done} {few} {what} of `{name}` among {vertices} vertices: {why}"));
    }

    /// Computes `a + b`, where `b` is 0 at most vertices, by a scatter-add of its rows.
    fn sum(&mut self, value: Value) -> bool {
        let old = self.old;
        let data = old.value(value);
        let (a, b) = (data.args[0], data.args[1]);
        let zero_outside = |v: Value| {
            let part = self.parts[v.index()].filter(|part| part.rest == Rest::Number(0.0))?;
            // A broadcast of the elements is not supported.
            (old.ty(v) == &data.ty && self.full[v.index()].is_none()).then_some(part)
        };
        let of_all = |v: Value| *old.ty(v) == data.ty && !old.is_sparse(v);
        let (base, part, negative) = match (zero_outside(a), zero_outside(b)) {
            (_, Some(part)) if of_all(a) => (a, part, data.op == Op::Binary(BinaryOp::Sub)),
            (Some(part), None) if of_all(b) && data.op == Op::Binary(BinaryOp::Add) => (b, part, false),
            _ => return false,
        };
        let unit = data.ty.is_unit();
        let rows = if negative { self.new.unary(hgnnc_ir::UnaryOp::Neg, part.rows) } else { part.rows };
        let base_new = self.full(base);
        // A sum whose only reader is this one is extended.
        let inner = if unit { self.inside_unrows(base_new) } else { base_new };
        let (mut ends, mut args) = match &self.new.value(inner).op {
            Op::ScatterAdd(ends) if self.uses[base.index()] == 1 => (ends.clone(), self.new.value(inner).args.clone()),
            _ => {
                self.account_to(value);
                (vec![], vec![if unit { self.by_vertex(base_new) } else { base_new }])
            }
        };
        ends.push(part.ends);
        args.push(rows);
        self.account_to(value);
        let mut sum = self.new.add(Op::ScatterAdd(ends), &args);
        if unit {
            sum = self.new.add(Op::Unrows, &[sum]);
        }
        self.full[value.index()] = Some(sum);
        self.note(value, part.ends, "adds rows at", "the others are 0");
        true
    }

    fn inside_unrows(&self, value: Value) -> Value {
        let data = self.new.value(value);
        if data.op == Op::Unrows { data.args[0] } else { value }
    }

    /// The endpoints of a value that is 0 at all other vertices, if one of these values is such.
    fn zero_outside(&self, args: &[Value]) -> Option<Endpoints> {
        let dense = args.iter().all(|&arg| {
            let ty = self.old.ty(arg);
            ty.dtype == DType::F32 && !ty.is_sparse() && matches!(ty.space, Space::Vertices(_))
        });
        let zero = |arg: &Value| self.parts[arg.index()].filter(|part| part.rest == Rest::Number(0.0));
        args.iter().find_map(zero).map(|part| part.ends).filter(|_| dense)
    }

    /// States that were assumed to be 0 at vertices where they do not stay 0.
    fn broken_assumptions(&self) -> Vec<(Param, u32)> {
        let updated = |param: Param, slot: u32| {
            let kind = OutputKind::UpdateState(param, slot);
            self.old.outputs.iter().find(|output| output.kind == kind).map(|output| output.value)
        };
        let broken = |&(&(param, slot), &ends): &(&(Param, u32), &Endpoints)| {
            let stays = updated(param, slot).is_none_or(|value| {
                let part = self.parts[value.index()];
                part.is_some_and(|part| part.ends == ends && part.rest == Rest::Number(0.0))
            });
            !stays
        };
        self.assumed.iter().filter(broken).map(|(&state, _)| state).collect()
    }

    fn finish(mut self) -> Dataflow {
        let mut outputs = self.old.outputs.clone();
        for output in &mut outputs {
            let old = output.value;
            output.value = match (&output.kind, self.parts[old.index()]) {
                // The state stays 0.
                (OutputKind::UpdateState(param, slot), Some(part)) if part.rest == Rest::Number(0.0) => {
                    self.account_to(old);
                    let state = self.new.add(Op::State(*param, *slot), &[]);
                    let all = self.by_vertex(state);
                    let all = self.new.add(Op::ScatterRows(part.ends.0, part.ends.1), &[all, part.rows]);
                    self.new.add(Op::Unrows, &[all])
                }
                _ => self.full(old),
            };
        }
        self.new.outputs = outputs;
        self.new.cursor = self.old.cursor;
        self.new
    }
}
