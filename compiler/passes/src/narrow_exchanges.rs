//! Sends projected rows between ranks, where these are narrower than the rows of the table that they are computed from.
//!
//! The rows of a table with learned rows go from their owners to the ranks that have sampled the vertices, and their gradients
//! come back ([`place_batch`](crate::place_batch())). A projection is computed row by row and its gradient is linear in that of
//! the result, so both are computed by the owner of a row as well as by the ranks that have copies of it:
//!
//! ```text
//! Before:  %2 = rows %1                              : f32[Author.2.owned; 128]
//!          %3 = exchange Author.2, %2                : f32[Author.2; 128]
//!          %5 = matmul %3, %4                        : f32[Author.2; 64]
//!          %9 = outer %3, %8                         : f32[128, 64]                 to be summed over the ranks
//!          %10 = matmul_t %8, %4                     : f32[Author.2; 128]
//!          %11 = exchange Author.2.copies, %10       : f32[Author.2.copies; 128]
//!          %12 = gather.src Author.2.copies, %11     : f32[edges(Author.2.copies); 128]
//!          %13 = segment.sum.in Author.2.copies, %12 : f32[Author.2.owned; 128]
//! After:   %5 = matmul %2, %4                        : f32[Author.2.owned; 64]
//!          %6 = exchange Author.2, %5                : f32[Author.2; 64]
//!          %9 = exchange Author.2.copies, %8         : f32[Author.2.copies; 64]
//!          %10 = gather.src Author.2.copies, %9      : f32[edges(Author.2.copies); 64]
//!          %11 = segment.sum.in Author.2.copies, %10 : f32[Author.2.owned; 64]
//!          %12 = outer %2, %11                       : f32[128, 64]                 to be summed over the ranks
//!          %13 = matmul_t %11, %4                    : f32[Author.2.owned; 128]
//! ```
//!
//! A layer also reads some rows as they are: those of the vertices that it computes, which are within fewer hops and
//! therefore few. They have an exchange of their own.
//!
//! ```text
//! Before:  %4 = gather.src "first(Author.1 of Author.2)", %3     : f32[edges("first(Author.1 of Author.2)"); 128]
//!          %5 = segment.sum.in "first(Author.1 of Author.2)", %4 : f32[Author.1; 128]
//! After:   %5 = exchange Author.1, %2                            : f32[Author.1; 128]
//! ```
//!
//! Applies to all rows of a vertex type at once, where less is sent then. [`reassociate`](crate::reassociate) chooses the side of a
//! sum on which a projection is computed with this in mind ([`narrower_columns`]).

use hgnnc_ir::batch::{BatchGraph, BatchLayout};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{BinaryOp, Dataflow, Direction, EdgeShare, Graph, Op, Reduce, Space, Value, VertexRows, VertexType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::pass::{Changed, PassCx};
use crate::rewrite::{Rewriter, rewrite};

/// The name of the pass. It comes after [`place_batch`](crate::place_batch()), so it is in no list.
pub const NARROW_EXCHANGES: &str = "narrow_exchanges";

/// Exchanges projections of the rows of tables instead of these rows, where they are narrower.
pub fn narrow_exchanges(flow: &mut Dataflow, layout: &BatchLayout, cx: &mut PassCx) -> Changed {
    let Some(sizes) = cx.sizes_for(NARROW_EXCHANGES) else { return Changed(false) };
    let program = Users::new(flow, layout, &sizes);
    let types = (0..layout.vertices.len()).map(VertexType::new);
    let (mut found, mut log) = (Narrowed::default(), vec![]);
    for rows in types {
        let Some(of_type) = program.of_type(rows) else { continue };
        let [before, after] = of_type.columns;
        let name = &flow.vertex_types[rows.index()].name;
        // First rows come from the owners of one type.
        let firsts = of_type.narrowed.firsts();
        let applies = after < before && firsts.is_disjoint(&found.firsts());
        let verdict = if applies { "projections are sent" } else { "the rows are sent" };
        log.push(format!(
            "{after:.0} numbers for each row of `{name}` with projections, {before:.0} without: {verdict}"
        ));
        if applies {
            found.extend(of_type.narrowed);
        }
    }
    cx.explain_all(NARROW_EXCHANGES, log);
    if found.is_empty() {
        return Changed(false);
    }
    let mut sums = FxHashMap::default();
    Changed(rewrite(flow, |r, value, _| found.rule(r, value, &mut sums)) > 0)
}

/// Columns that travel for each row of a table where its projections do, if these are fewer than those of the table.
/// `rows` are those of a table of mini-batches in a forward program, before it is placed.
pub(crate) fn narrower_columns(program: &Users<'_>, rows: Value) -> Option<f64> {
    let flow = program.flow;
    let (Op::Rows, Space::Vertices(vertex)) = (&flow.value(rows).op, flow.ty(rows).space) else { return None };
    let width = program.width(rows);
    let of_user = |&user: &Value| match flow.value(user).op {
        Op::MatMul { .. } if flow.value(user).args[1] != rows => Some(program.width(user)),
        Op::GatherSrc(graph) => match program.first_of(graph, vertex) {
            Some(first) => Some(width * program.share(first, vertex)),
            None => program.summed_and_projected(user, graph),
        },
        _ => None,
    };
    let columns: f64 = program.of[rows.index()].iter().map(of_user).sum::<Option<f64>>()?;
    (columns < width).then_some(columns)
}

/// A program with the users of each value.
pub(crate) struct Users<'a> {
    flow: &'a Dataflow,
    layout: &'a BatchLayout,
    sizes: &'a SizeInfo,
    /// By value: those that are computed from it.
    of: Vec<Vec<Value>>,
    is_output: Vec<bool>,
}

/// The values of one vertex type that change, and the columns that travel for each of its rows before and after.
struct OfType {
    columns: [f64; 2],
    narrowed: Narrowed,
}

/// The values of a program that change.
#[derive(Default)]
struct Narrowed {
    /// Projections and outer products of exchanged rows: the rows at their owners.
    projected: FxHashMap<Value, Value>,
    /// The first exchanged rows: those at the owners, and the type that has as many.
    selected: FxHashMap<Value, (Value, VertexType)>,
    /// Sums of the gradients of copies: the type of the copied rows, and the summands.
    gradients: FxHashMap<Value, (VertexType, Vec<Summand>)>,
}

/// A summand of the gradient of rows that a rank has.
#[derive(Clone, Copy)]
enum Summand {
    /// The gradient of a projection, times the transposed weight.
    Projected(Value),
    /// The gradient of the first rows.
    First(Value, VertexType),
    /// Any other gradient of the rows, which travels with all their columns.
    Whole(Value),
}

impl<'a> Users<'a> {
    pub fn new(flow: &'a Dataflow, layout: &'a BatchLayout, sizes: &'a SizeInfo) -> Self {
        let (mut of, mut is_output) = (vec![vec![]; flow.values.len()], vec![false; flow.values.len()]);
        for value in flow.handles() {
            let args = &flow.value(value).args;
            args.iter().for_each(|arg| of[arg.index()].push(value));
        }
        flow.outputs.iter().for_each(|output| is_output[output.value.index()] = true);
        Self { flow, layout, sizes, of, is_output }
    }

    /// The columns of a value with rows of fixed width.
    fn width(&self, value: Value) -> f64 {
        self.flow.ty(value).dims.iter().map(|dim| dim.fixed().unwrap_or(0) as f64).product()
    }

    /// Whether the edges of a graph lead from the first rows of a type to themselves.
    pub fn is_first(&self, graph: Graph) -> bool {
        matches!(self.layout.graphs.get(graph.index()), Some(BatchGraph::First { .. }))
    }

    /// The type of the first rows of another type that edges lead to, if a graph has these.
    fn first_of(&self, graph: Graph, rows: VertexType) -> Option<VertexType> {
        match self.layout.graphs.get(graph.index()) {
            Some(&BatchGraph::First { rows: first })
                if self.flow.graphs[graph.index()].src == rows && first != rows =>
            {
                Some(first)
            }
            _ => None,
        }
    }

    /// Rows of a type for each of another.
    fn share(&self, of: VertexType, rows: VertexType) -> f64 {
        let count = |vertex: VertexType| self.sizes.rows(Space::Vertices(vertex)) as f64;
        count(of) / count(rows).max(1.0)
    }

    /// The columns of the projections of a sum of gathered values, perhaps times an edge weight.
    fn summed_and_projected(&self, gathered: Value, graph: Graph) -> Option<f64> {
        let only = |value: Value| match &self.of[value.index()][..] {
            [user] if !self.is_output[value.index()] => Some(*user),
            _ => None,
        };
        let mut sum = only(gathered)?;
        if self.flow.value(sum).op == Op::Binary(BinaryOp::Mul) {
            sum = only(sum)?;
        }
        let is_sum = self.flow.value(sum).op == Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
        let projection = only(sum).filter(|_| is_sum)?;
        matches!(self.flow.value(projection).op, Op::MatMul { .. }).then(|| self.width(projection))
    }

    /// The changes to the rows of a type of a placed program; `None` if its tables have other users than projections.
    fn of_type(&self, rows: VertexType) -> Option<OfType> {
        let flow = self.flow;
        let is_exchange = |&value: &Value| {
            let data = flow.value(value);
            data.op == Op::Exchange(rows) && flow.value(data.args[0]).op == Op::Rows
        };
        let exchanges: Vec<Value> = flow.handles().filter(is_exchange).collect();
        if exchanges.is_empty() {
            return None;
        }
        let ([mut before, mut after], mut narrowed) = ([0.0; 2], Narrowed::default());
        // Gradients of projections that come back.
        let mut returned: Vec<Value> = vec![];
        for &exchange in &exchanges {
            before += self.width(exchange);
            let owned = flow.value(exchange).args[0];
            for &user in &self.of[exchange.index()] {
                let data = flow.value(user);
                match data.op {
                    Op::MatMul { .. } if data.args[1] != exchange => {
                        after += self.width(user);
                        narrowed.projected.insert(user, owned);
                    }
                    Op::Outer { .. } if data.args[1] != exchange && self.is_summed_over_ranks(user) => {
                        returned.push(data.args[1]);
                        narrowed.projected.insert(user, owned);
                    }
                    Op::GatherSrc(graph) => {
                        let first = self.first_of(graph, rows).filter(|&first| self.is_only_sampled(first))?;
                        let select = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
                        let selections = &self.of[user.index()];
                        if self.is_output[user.index()] || selections.iter().any(|&it| flow.value(it).op != select) {
                            return None;
                        }
                        after += self.width(exchange) * self.share(first, rows);
                        narrowed.selected.extend(selections.iter().map(|&it| (it, (owned, first))));
                    }
                    _ => return None,
                }
            }
        }
        for value in flow.handles() {
            let Some(gradient) = self.summed_copies(value, rows) else { continue };
            before += self.width(value);
            let mut summands = vec![];
            self.summands(gradient, rows, &mut summands);
            for summand in &summands {
                match *summand {
                    Summand::Projected(summand) => returned.push(flow.value(summand).args[0]),
                    Summand::First(_, first) => after += self.width(value) * self.share(first, rows),
                    Summand::Whole(_) => {}
                }
            }
            if summands.iter().any(|summand| matches!(summand, Summand::Whole(_))) {
                after += self.width(value);
            }
            narrowed.gradients.insert(value, (rows, summands));
        }
        returned.sort_unstable();
        returned.dedup();
        after += returned.iter().map(|&value| self.width(value)).sum::<f64>();
        Some(OfType { columns: [before, after], narrowed })
    }

    /// Whether a type has no owned rows of its own.
    fn is_only_sampled(&self, vertex: VertexType) -> bool {
        !self.flow.vertex_types.iter().any(|decl| decl.rows == VertexRows::Owned(vertex))
    }

    /// Whether nothing but the sum over all ranks is computed from a value.
    fn is_summed_over_ranks(&self, value: Value) -> bool {
        let all = |value: Value, is_it: &dyn Fn(Value) -> bool| {
            !self.is_output[value.index()] && self.of[value.index()].iter().all(|&user| is_it(user))
        };
        let is_sum = |value: Value| self.flow.value(value).op == Op::SumRanks;
        all(value, &|user| matches!(self.flow.value(user).op, Op::Broadcast(_)) && all(user, &is_sum))
    }

    /// The gradient of the rows that a rank has of a type, if a value sums those of all ranks.
    fn summed_copies(&self, value: Value, rows: VertexType) -> Option<Value> {
        let Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum } = self.flow.value(value).op else {
            return None;
        };
        let decl = &self.flow.graphs[graph.index()];
        let copies = self.flow.vertex_types[decl.src.index()].rows;
        if decl.share != EdgeShare::Copies || copies != VertexRows::Copies(rows) {
            return None;
        }
        let gathered = self.flow.value(self.flow.value(value).args[0]);
        let exchanged = self.flow.value(*gathered.args.first()?);
        (gathered.op == Op::GatherSrc(graph) && exchanged.op == Op::Exchange(decl.src)).then(|| exchanged.args[0])
    }

    /// Takes apart a gradient of the rows of a type.
    fn summands(&self, value: Value, rows: VertexType, found: &mut Vec<Summand>) {
        let data = self.flow.value(value);
        let space = Space::Vertices(rows);
        let is_read_once = self.of[value.index()].len() == 1 && !self.is_output[value.index()];
        match data.op {
            Op::Binary(BinaryOp::Add)
                if is_read_once && data.args.iter().all(|&arg| self.flow.ty(arg) == self.flow.ty(value)) =>
            {
                data.args.iter().for_each(|&arg| self.summands(arg, rows, found));
            }
            Op::MatMulT { .. } if is_read_once && self.flow.ty(data.args[0]).space == space => {
                found.push(Summand::Projected(value));
            }
            Op::Segment { graph, direction: Direction::Out, reduce: Reduce::Sum } => {
                let gathered = self.flow.value(data.args[0]);
                let first = self.first_of(graph, rows).filter(|&first| self.is_only_sampled(first));
                match first.filter(|_| gathered.op == Op::GatherDst(graph)) {
                    Some(first) => found.push(Summand::First(gathered.args[0], first)),
                    None => found.push(Summand::Whole(value)),
                }
            }
            _ => found.push(Summand::Whole(value)),
        }
    }
}

impl Narrowed {
    /// The types with first rows of a table.
    fn firsts(&self) -> FxHashSet<VertexType> {
        let of_gradients = self.gradients.values().flat_map(|(_, summands)| summands);
        let of_gradients = of_gradients.filter_map(|summand| match *summand {
            Summand::First(_, first) => Some(first),
            Summand::Projected(_) | Summand::Whole(_) => None,
        });
        self.selected.values().map(|&(_, first)| first).chain(of_gradients).collect()
    }

    fn is_empty(&self) -> bool {
        self.projected.is_empty() && self.selected.is_empty() && self.gradients.is_empty()
    }

    fn extend(&mut self, other: Self) {
        self.projected.extend(other.projected);
        self.selected.extend(other.selected);
        self.gradients.extend(other.gradients);
    }

    /// The replacement of a value. `sums` has the sums over all copies that exist, by the value that each rank has.
    fn rule(&self, r: &mut Rewriter<'_>, value: Value, sums: &mut FxHashMap<Value, Value>) -> Option<Value> {
        let data = r.old.value(value);
        if let Some(&(owned, first)) = self.selected.get(&value) {
            let owned = r.mapped(owned);
            let Space::Vertices(rows) = r.new.ty(owned).space else { return None };
            r.new.graph_of_copies_to(first, rows);
            return Some(r.add(Op::Exchange(first), &[owned]));
        }
        if let Some((rows, summands)) = self.gradients.get(&value) {
            return self.gradient(r, *rows, summands, sums);
        }
        let owned = r.mapped(*self.projected.get(&value)?);
        let other = data.args[1];
        match r.old.ty(data.args[0]).space {
            Space::Vertices(rows) if matches!(data.op, Op::Outer { .. }) => {
                let other = summed(r, other, rows, sums);
                Some(r.add(data.op.clone(), &[owned, other]))
            }
            Space::Vertices(rows) => {
                let other = r.mapped(other);
                let projected = r.add(data.op.clone(), &[owned, other]);
                Some(r.add(Op::Exchange(rows), &[projected]))
            }
            _ => None,
        }
    }

    /// The sum over all copies of a gradient.
    fn gradient(
        &self,
        r: &mut Rewriter<'_>,
        rows: VertexType,
        summands: &[Summand],
        sums: &mut FxHashMap<Value, Value>,
    ) -> Option<Value> {
        let mut of_summand = |r: &mut Rewriter<'_>, summand: &Summand| match *summand {
            Summand::Projected(value) => {
                let data = r.old.value(value);
                let sum = summed(r, data.args[0], rows, sums);
                let weight = r.mapped(data.args[1]);
                r.add(data.op.clone(), &[sum, weight])
            }
            Summand::First(value, first) => {
                let owned = r.new.owned(rows);
                let graph = r.new.graph_of_copies_to(first, owned);
                let value = r.mapped(value);
                sum_of_copies(r, graph, value)
            }
            Summand::Whole(value) => r.mapped(value),
        };
        let is_whole = |summand: &&Summand| matches!(summand, Summand::Whole(_));
        let whole: Vec<Value> = summands.iter().filter(is_whole).map(|summand| of_summand(r, summand)).collect();
        let others = summands.iter().filter(|summand| !is_whole(summand));
        let mut all: Vec<Value> = others.map(|summand| of_summand(r, summand)).collect();
        // One exchange for all that travels as it is.
        if let Some(whole) = whole.into_iter().reduce(|a, b| r.add(Op::Binary(BinaryOp::Add), &[a, b])) {
            let graph = r.new.graph_of_copies(rows);
            all.push(sum_of_copies(r, graph, whole));
        }
        all.into_iter().reduce(|a, b| r.add(Op::Binary(BinaryOp::Add), &[a, b]))
    }
}

/// The sum over all copies of what each rank has for rows of a type.
fn summed(r: &mut Rewriter<'_>, value: Value, rows: VertexType, sums: &mut FxHashMap<Value, Value>) -> Value {
    if let Some(&known) = sums.get(&value) {
        return known;
    }
    let graph = r.new.graph_of_copies(rows);
    let of_rank = r.mapped(value);
    let sum = sum_of_copies(r, graph, of_rank);
    sums.insert(value, sum);
    sum
}

/// Exchanges the rows that ranks have, and sums those of each vertex at its owner.
fn sum_of_copies(r: &mut Rewriter<'_>, graph: Graph, value: Value) -> Value {
    let copies = r.new.graphs[graph.index()].src;
    let exchanged = r.add(Op::Exchange(copies), &[value]);
    let gathered = r.add(Op::GatherSrc(graph), &[exchanged]);
    r.add(Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum }, &[gathered])
}
