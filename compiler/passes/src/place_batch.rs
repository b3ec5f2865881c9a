//! Places the program of a mini-batch on the ranks of a job ([`hgnnc_ir::ranks`]), in one of three ways ([`Split`]): ranks
//! share the seed vertices, the relations that lead to them, or both.
//!
//! ```text
//! Before:  %1 = param embedding                  : f32[; Author.2, 64]
//!          %2 = rows %1                          : f32[Author.2; 64]
//!          %7 = outer %5, %6                     : f32[64, 64]                  a gradient
//!          %9 = unrows %8                        : f32[; Author.2, 64]          a gradient
//! After:   %1 = param embedding                  : f32[; Author.2.owned, 64]
//!          %2 = rows %1                          : f32[Author.2.owned; 64]
//!          %3 = exchange Author.2, %2            : f32[Author.2; 64]
//!          %8 = outer %6, %7                     : f32[64, 64]                  of the rank's own batch
//!          %9 = broadcast %8                     : f32[rank; 64, 64]
//!          %10 = sum_ranks %9                    : f32[64, 64]
//!          %13 = exchange Author.2.copies, %12   : f32[Author.2.copies; 64]
//!          %14 = gather.src Author.2.copies, %13 : f32[edges(Author.2.copies); 64]
//!          %15 = segment.sum.in Author.2.copies, %14 : f32[Author.2.owned; 64]
//!          %16 = unrows %15                      : f32[; Author.2.owned, 64]
//! ```
//!
//! - Each value is placed ([`Placement`]): the same on all ranks, each rank's own rows, or a part of a reduction on each
//!   rank. A part is completed where something other than another part of the reduction is computed from it.
//! - A gradient is a sum over the seeds of all ranks, so that of a value is complete when it is summed over the rows of all
//!   ranks, however many of them have sampled a vertex.
//! - A reduction in the forward pass must count each row once, which is so for rows of seeds and of edges to them.
//!   Reductions over vertices that were sampled are refused. The ranks share the pairs of a batch of links.
//! - Shuffled vertices are those of all ranks. The owner of a vertex takes its row from the ranks that have sampled it, which
//!   have the same, and gives it to the ranks whose vertices take it. The gradient comes back to the owner, and goes to the
//!   ranks that have sampled the vertex in equal parts, since all of them add what they compute from it:
//!
//! ```text
//! Before:  %5 = gather.src shuffle(Paper), %4   : f32[edges(shuffle(Paper)); 64]
//!          %8 = segment.sum.out shuffle(Paper), %7 : f32[Paper; 64]                        a gradient
//! After:   %5 = exchange Paper.copies, %4       : f32[Paper.copies; 64]
//!          %6 = gather.src Paper.copies, %5     : f32[edges(Paper.copies); 64]
//!          %7 = segment.max.in Paper.copies, %6 : f32[Paper.owned; 64]
//!          %8 = exchange Paper.shuffled, %7     : f32[Paper.shuffled; 64]
//!          %9 = gather.src shuffle(Paper), %8   : f32[edges(shuffle(Paper)); 64]
//! ```
//!
//! - A table belongs to the owners of its vertices, with its gradient and its optimizer states, which never travel.
//! - Each rank stacks the relations of its own batch ([`hgnnc_ir::stacks`]): pairs are rows of the rank. Rows of members are the
//!   same on all ranks, and what pairs or links add up to for a member is a part that is summed over the ranks.
//!
//! Of passes on dataflow, only [`narrow_exchanges`](crate::narrow_exchanges()) comes after it.

use std::collections::HashMap;

use hgnnc_ir::batch::{BatchGraph, BatchLayout};
use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, Graph, Incidence, Mirrors, Op, Phase, ProductForm, Reduce, Space, Type,
    UnaryOp, Value, VertexRows, VertexType,
};

use crate::place::NotPlaced;

type Result<T> = std::result::Result<T, NotPlaced>;

/// The part of a mini-batch that ranks divide among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Split {
    /// Each rank computes the losses of its own seeds, on the graph that it has sampled around them.
    #[default]
    Seeds,
    /// Each rank has all seeds, and of their in-edges those of some relations; it computes all that lies beneath the
    /// sources of these. What the ranks aggregate at a seed is added (relation-aggregation-first: Zhong et al. 2024,
    /// "Heta", arXiv 2408.09697, equation 1), or reduced as the model says. One rank gives a seed's own value of the layer
    /// before, which is no sum over relations.
    Relations,
    /// Replicas share the seeds, and the ranks of each replica the relations to them.
    Grid,
}

impl Split {
    /// Whether several ranks have the same seeds.
    pub fn shares_relations(self) -> bool {
        matches!(self, Split::Relations | Split::Grid)
    }
}

/// The ranks that have the rows of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Placement {
    /// The same on every rank.
    Same,
    /// Rows of the vertices and edges that a rank has.
    Own,
    /// The rows of all seeds on every rank, to be reduced over the ranks.
    Part(Reduce),
}

/// The program of ranks that computes the outputs of a program of a mini-batch. `seeds` is the type of the seed vertices
/// in the program of the whole graph; `None` if a batch is one of links, whose pairs the ranks share.
///
/// # Errors
/// [`NotPlaced`] at a reduction of the forward pass that counts vertices twice, and at dropout of pairs.
pub fn place_batch(flow: &Dataflow, layout: &BatchLayout, seeds: Option<VertexType>, split: Split) -> Result<Dataflow> {
    let new = flow.with_tables_of(flow.name.clone());
    let made = vec![None; flow.values.len()];
    let (completed, taken) = (HashMap::new(), HashMap::new());
    let of_samples = tables_of_samples(flow);
    let mut placing = Placing { old: flow, new, layout, seeds, split, made, completed, taken, of_samples };
    placing.tables()?;
    let live = flow.live_values();
    for value in flow.handles().filter(|value| live[value.index()]) {
        let made = placing.value(value)?;
        placing.made[value.index()] = Some(made);
    }
    for output in &flow.outputs {
        let value = placing.complete(output.value)?;
        placing.new.outputs.push(hgnnc_ir::Output { kind: output.kind.clone(), value });
    }
    placing.new.cursor = flow.cursor;
    Ok(placing.new)
}

struct Placing<'a> {
    old: &'a Dataflow,
    new: Dataflow,
    layout: &'a BatchLayout,
    seeds: Option<VertexType>,
    split: Split,
    /// By old value.
    made: Vec<Option<(Value, Placement)>>,
    /// By old value: the reduction over all ranks of what each has a part of.
    completed: HashMap<Value, Value>,
    /// By old value of vertices that are shuffled: its rows that those of the rank take.
    taken: HashMap<Value, Value>,
    /// By old value: is it a matrix of samples that all links share, or its gradient?
    of_samples: Vec<bool>,
}

/// Whether values are matrices of the rows of samples that all links of a batch share, or their gradients. All ranks have the
/// same samples, and each computes their rows on its own graph: as those of its seeds they are its own, and so is their gradient,
/// which is that of its links.
fn tables_of_samples(flow: &Dataflow) -> Vec<bool> {
    let is_of_samples = |space: Space| match space {
        Space::Vertices(vertex) => matches!(flow.vertex_types[vertex.index()].rows, VertexRows::Samples(..)),
        _ => false,
    };
    let mut found = vec![false; flow.values.len()];
    for value in flow.handles() {
        let data = flow.value(value);
        let of_table = || data.args.iter().any(|arg| found[arg.index()]);
        found[value.index()] = match data.op {
            Op::Unrows => is_of_samples(flow.ty(data.args[0]).space),
            _ => data.ty.space == Space::Unit && of_table(),
        };
    }
    // A gradient becomes rows of the samples in the end.
    for value in flow.handles().rev() {
        let data = flow.value(value);
        if found[value.index()] && data.phase == Phase::Backward || data.op == Op::Rows && is_of_samples(data.ty.space)
        {
            for &arg in data.args.iter().filter(|&&arg| flow.ty(arg).space == Space::Unit) {
                found[arg.index()] = true;
            }
        }
    }
    found
}

impl Placing<'_> {
    /// Gives tables the rows that a rank owns.
    fn tables(&mut self) -> Result<()> {
        let refused = |why: &str| Err(NotPlaced { why: why.into(), origin: None });
        if self.split.shares_relations() && !self.layout.historical.is_empty() {
            return refused("embeddings are reused (`reuse`) where processes share the seeds, not the relations");
        }
        if self.split.shares_relations() && self.seeds.is_none() {
            return refused(
                "processes share relations to labelled vertices; links are shared by their pairs (`seeds`)",
            );
        }
        for (index, what) in self.layout.graphs.iter().enumerate() {
            let &BatchGraph::Shuffled { rows, .. } = what else { continue };
            if self.split.shares_relations() {
                return refused("it shuffles vertices, where processes share the seeds (`seeds`), not the relations");
            }
            self.new.graphs[index].src = self.new.shuffled(rows);
        }
        for param in 0..self.old.params.len() {
            for dim in 0..self.old.params[param].dims.len() {
                self.new.params[param].dims[dim] = self.dim(self.old.params[param].dims[dim]);
            }
        }
        Ok(())
    }

    /// A dimension of the new program: a number of vertices is that of the owned ones.
    fn dim(&mut self, dim: Dim) -> Dim {
        match dim {
            Dim::Fixed(_) => dim,
            Dim::Count(vertex) if self.are_members(Space::Vertices(vertex)) => dim,
            Dim::Count(vertex) => Dim::Count(self.new.owned(vertex)),
        }
    }

    fn made(&self, old: Value) -> (Value, Placement) {
        self.made[old.index()].expect("operands come before what is computed of them")
    }

    fn push(&mut self, old: Value, op: Op, args: &[Value]) -> Result<Value> {
        let data = self.old.value(old);
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        self.new.push(op, args).map_err(|TypeError(why)| NotPlaced { why, origin: data.origin })
    }

    fn refuse<T>(&self, value: Value, why: impl Into<String>) -> Result<T> {
        Err(NotPlaced { why: why.into(), origin: self.old.value(value).origin })
    }

    /// Whether these are the rows of the seeds.
    fn are_seeds(&self, vertex: VertexType) -> bool {
        let of_dataset = self.old.vertex_types[vertex.index()].rows == VertexRows::Dataset;
        let known = self.layout.vertices.get(vertex.index()).filter(|_| of_dataset);
        known.is_some_and(|known| known.hops == 0 && Some(known.vertex) == self.seeds)
    }

    /// Whether these are the rows of the members of a stack, which all ranks have.
    fn are_members(&self, space: Space) -> bool {
        let Space::Vertices(vertex) = space else { return false };
        matches!(self.old.vertex_types[vertex.index()].rows, VertexRows::Members(_))
    }

    /// Whether the rows of a space are those of the batch, and not the same on all ranks.
    fn is_of_batch(&self, space: Space) -> bool {
        match space {
            Space::Unit | Space::Index(_) => false,
            Space::Vertices(_) => !self.are_members(space),
            // Edges between the members of two stacks.
            Space::Edges(graph) => {
                !matches!(self.old.graphs[graph.index()].derived, Some((_, Incidence::Range { .. })))
            }
            Space::Endpoints(..) => true,
        }
    }

    /// Whether the rows of a space are pairs of a stack, or edges that join these to something.
    fn are_pairs(&self, space: Space) -> bool {
        match space {
            Space::Vertices(vertex) => matches!(self.old.vertex_types[vertex.index()].rows, VertexRows::Pairs(..)),
            Space::Edges(graph) => {
                let derived = self.old.graphs[graph.index()].derived;
                derived.is_some_and(|(_, incidence)| incidence != Incidence::Edges)
            }
            Space::Unit | Space::Index(_) | Space::Endpoints(..) => false,
        }
    }

    /// The placement of the rows of a space, if no part of a reduction is computed for them.
    fn placement(&self, space: Space) -> Placement {
        match space {
            Space::Vertices(vertex) if self.split.shares_relations() && self.are_seeds(vertex) => Placement::Same,
            space if self.is_of_batch(space) => Placement::Own,
            _ => Placement::Same,
        }
    }

    /// A value that is no part of a reduction over the ranks.
    fn complete(&mut self, old: Value) -> Result<Value> {
        let (part, placement) = self.made(old);
        let Placement::Part(reduce) = placement else { return Ok(part) };
        if let Some(&known) = self.completed.get(&old) {
            return Ok(known);
        }
        let Space::Vertices(seeds) = self.old.ty(old).space else {
            return self.refuse(old, "a part of a reduction belongs to no vertices");
        };
        let complete = if self.are_members(Space::Vertices(seeds)) {
            let own = self.push(old, Op::Unrows, &[part])?;
            let all = self.over_ranks(old, reduce, own)?;
            self.push(old, Op::Rows, &[all])?
        } else {
            let reduced = self.reduced_copies(old, seeds, reduce, part)?;
            self.push(old, Op::Exchange(seeds), &[reduced])?
        };
        self.completed.insert(old, complete);
        Ok(complete)
    }

    /// Reduces the rows that the ranks have of each vertex, at the owner of the vertex.
    fn reduced_copies(&mut self, old: Value, vertex: VertexType, reduce: Reduce, rows: Value) -> Result<Value> {
        let graph = self.new.graph_of_copies(vertex);
        let copies = self.new.graphs[graph.index()].src;
        let exchanged = self.push(old, Op::Exchange(copies), &[rows])?;
        let gathered = self.push(old, Op::GatherSrc(graph), &[exchanged])?;
        self.push(old, Op::Segment { graph, direction: Direction::In, reduce }, &[gathered])
    }

    /// Whether a graph is one of shuffled vertices.
    fn shuffles(&self, graph: Graph) -> bool {
        matches!(self.layout.graphs.get(graph.index()), Some(BatchGraph::Shuffled { .. }))
    }

    /// The rows of shuffled vertices that those of this rank take, wherever they were computed.
    fn taken(&mut self, value: Value, vertex: VertexType) -> Result<Value> {
        if let Some(&known) = self.taken.get(&value) {
            return Ok(known);
        }
        let rows = self.complete(value)?;
        // Copies are equal.
        let owned = self.reduced_copies(value, vertex, Reduce::Max, rows)?;
        let shuffled = self.new.shuffled(vertex);
        let taken = self.push(value, Op::Exchange(shuffled), &[owned])?;
        self.taken.insert(value, taken);
        Ok(taken)
    }

    /// The gradient of shuffled vertices, where they were sampled, of that of the rows that were taken.
    fn given_back(&mut self, value: Value, vertex: VertexType, taken: Value) -> Result<Value> {
        let shuffled = self.new.shuffled(vertex);
        let sums = self.reduced_copies(value, shuffled, Reduce::Sum, taken)?;
        let copies = self.new.graph_of_copies(vertex);
        let one = self.push(value, Op::Const(1.0), &[])?;
        let ones = self.push(value, Op::Broadcast(Type::new(Space::Edges(copies), vec![])), &[one])?;
        let op = Op::Segment { graph: copies, direction: Direction::In, reduce: Reduce::Sum };
        let count = self.push(value, op, &[ones])?;
        let parts = self.push(value, Op::Binary(BinaryOp::Div), &[sums, count])?;
        self.push(value, Op::Exchange(vertex), &[parts])
    }

    fn value(&mut self, value: Value) -> Result<(Value, Placement)> {
        let data = self.old.value(value);
        let space = data.ty.space;
        let arg_space = data.args.first().map(|&arg| self.old.ty(arg).space);
        let from_table = data.op == Op::Rows && self.of_samples[data.args[0].index()];
        if self.of_samples[value.index()] || from_table {
            let args: Vec<Value> = data.args.iter().map(|&arg| self.complete(arg)).collect::<Result<_>>()?;
            return Ok((self.push(value, data.op.clone(), &args)?, Placement::Own));
        }
        match (&data.op, arg_space) {
            (&Op::GatherSrc(graph), Some(Space::Vertices(vertex))) if self.shuffles(graph) => {
                let taken = self.taken(data.args[0], vertex)?;
                Ok((self.push(value, data.op.clone(), &[taken])?, Placement::Own))
            }
            (&Op::Segment { graph, direction: Direction::Out, reduce }, _) if self.shuffles(graph) => {
                let Space::Vertices(vertex) = space else { unreachable!("segments are vertices") };
                if reduce != Reduce::Sum {
                    return self
                        .refuse(value, format!("there is no placement for `{}` of shuffled vertices", reduce.name()));
                }
                let arg = self.complete(data.args[0])?;
                let taken = self.push(value, data.op.clone(), &[arg])?;
                Ok((self.given_back(value, vertex, taken)?, Placement::Own))
            }
            // The rows of a table go from their owners to the ranks that have sampled the vertices.
            (Op::Rows, _) => {
                let arg = self.complete(data.args[0])?;
                let owned = self.push(value, Op::Rows, &[arg])?;
                match space {
                    Space::Vertices(vertex) if self.placement(space) == Placement::Own => {
                        // Its route is found by the copies, also where no gradient comes back.
                        self.new.graph_of_copies(vertex);
                        Ok((self.push(value, Op::Exchange(vertex), &[owned])?, Placement::Own))
                    }
                    Space::Vertices(_) if !self.are_members(space) => {
                        self.refuse(value, "the seeds have learned rows, which no layer aggregates")
                    }
                    _ => Ok((owned, Placement::Same)),
                }
            }
            // Their gradients come back.
            (Op::Unrows, Some(rows @ Space::Vertices(vertex))) if !self.are_members(rows) => {
                if data.phase == Phase::Forward {
                    return self.refuse(value, "it takes the values of all vertices as a matrix");
                }
                let (rows, _) = self.made(data.args[0]);
                let sums = self.reduced_copies(value, vertex, Reduce::Sum, rows)?;
                Ok((self.push(value, Op::Unrows, &[sums])?, Placement::Same))
            }
            (Op::Outer { .. }, Some(from)) if self.is_of_batch(from) => {
                let [x, y] = [self.made(data.args[0]), self.made(data.args[1])];
                let linear = matches!((x.1, y.1), (Placement::Part(Reduce::Sum), Placement::Same))
                    || matches!((x.1, y.1), (Placement::Same, Placement::Part(Reduce::Sum)));
                let args = match linear {
                    true => [x.0, y.0],
                    false => [self.complete(data.args[0])?, self.complete(data.args[1])?],
                };
                let own = self.push(value, data.op.clone(), &args)?;
                self.reduced_rows(value, from, (Reduce::Sum, linear), own)
            }
            (Op::ReduceSpace(reduce), Some(from)) if self.is_of_batch(from) => {
                let (arg, placement) = self.made(data.args[0]);
                let of_parts = placement == Placement::Part(*reduce);
                let arg = if of_parts { arg } else { self.complete(data.args[0])? };
                let own = self.push(value, data.op.clone(), &[arg])?;
                self.reduced_rows(value, from, (*reduce, of_parts), own)
            }
            (Op::Count(from), _) if self.is_of_batch(*from) => {
                let own = self.push(value, data.op.clone(), &[])?;
                self.reduced_rows(value, *from, (Reduce::Sum, false), own)
            }
            // A reduction over all rows of a table.
            (Op::ReduceTrailing { reduce, axes }, Some(Space::Unit))
                if self.has_rows(data.args[0]) && *axes == self.old.ty(data.args[0]).dims.len() =>
            {
                let table = self.complete(data.args[0])?;
                let mut rows = self.push(value, Op::Rows, &[table])?;
                if *axes > 1 {
                    rows = self.push(value, Op::ReduceTrailing { reduce: *reduce, axes: axes - 1 }, &[rows])?;
                }
                let own = self.push(value, Op::ReduceSpace(*reduce), &[rows])?;
                Ok((self.over_ranks(value, *reduce, own)?, Placement::Same))
            }
            (Op::RandomMask { ty, .. }, _) if matches!(ty.space, Space::Edges(graph) if self.old.graphs[graph.index()].links) => {
                self.refuse(value, "dropout of pairs depends on their numbers in the batch of one process")
            }
            (Op::RandomMask { ty, .. }, _) if matches!(ty.space, Space::Edges(graph) if self.shuffles(graph)) => self
                .refuse(
                    value,
                    "dropout of edges of shuffled vertices depends on their numbers in the batch of one process",
                ),
            (Op::RandomMask { ty, .. }, _) if self.are_pairs(ty.space) => {
                self.refuse(value, "dropout of pairs of a stack depends on their numbers in the batch of one process")
            }
            (Op::Broadcast(ty), _) => {
                let arg = self.complete(data.args[0])?;
                let dims: Vec<Dim> = ty.dims.iter().map(|&dim| self.dim(dim)).collect();
                let made = self.push(value, Op::Broadcast(Type { dims, ..ty.clone() }), &[arg])?;
                Ok((made, self.placement(space)))
            }
            (Op::Reshape(_) | Op::Concat | Op::Slice { .. } | Op::OneHot { .. } | Op::MatMul { .. }, _)
            | (Op::Transpose { .. } | Op::RowProduct { .. } | Op::MatMulT { .. } | Op::ReduceTrailing { .. }, _)
                if self.has_rows(value) || data.args.iter().any(|&arg| self.has_rows(arg)) =>
            {
                let name = data.op.name();
                self.refuse(value, format!("`{name}` of a table with a row for each vertex has no placement"))
            }
            (Op::MetapathReduce(_) | Op::Exchange(_) | Op::SumRanks, _) => {
                self.refuse(value, format!("there is no placement for `{}`", data.op.name()))
            }
            // The gradients of weights of members.
            (Op::Grouped { form: ProductForm::Outer, .. }, Some(from)) => {
                self.counts_each_row_once(value, from)?;
                let args = [self.complete(data.args[0])?, self.complete(data.args[1])?];
                Ok((self.push(value, data.op.clone(), &args)?, Placement::Part(Reduce::Sum)))
            }
            (Op::Segment { reduce, .. }, Some(from)) if self.is_of_batch(from) && self.are_members(space) => {
                if !self.reduces_links(data.args[0], *reduce) {
                    self.counts_each_row_once(value, from)?;
                }
                let arg = self.complete(data.args[0])?;
                Ok((self.push(value, data.op.clone(), &[arg])?, Placement::Part(*reduce)))
            }
            (Op::Segment { reduce, .. }, Some(from))
                if self.is_of_batch(from) && self.placement(space) == Placement::Same =>
            {
                let arg = self.complete(data.args[0])?;
                Ok((self.push(value, data.op.clone(), &[arg])?, Placement::Part(*reduce)))
            }
            _ => self.row_by_row(value),
        }
    }

    /// An operation on rows that are on the ranks already.
    fn row_by_row(&mut self, value: Value) -> Result<(Value, Placement)> {
        let data = self.old.value(value);
        if let Some(reduce) = self.stays_a_part(value) {
            let args: Vec<Value> = data.args.iter().map(|&arg| self.made(arg).0).collect();
            return Ok((self.push(value, data.op.clone(), &args)?, Placement::Part(reduce)));
        }
        let args: Vec<Value> = data.args.iter().map(|&arg| self.complete(arg)).collect::<Result<_>>()?;
        Ok((self.push(value, data.op.clone(), &args)?, self.placement(data.ty.space)))
    }

    /// The reduction that completes the result of an operation on parts, where it is a part as well. What is wider than
    /// its operands is computed after the exchange.
    fn stays_a_part(&self, value: Value) -> Option<Reduce> {
        let data = self.old.value(value);
        let placements: Vec<Placement> = data.args.iter().map(|&arg| self.made(arg).1).collect();
        let is_part = |placement: &Placement| matches!(placement, Placement::Part(_));
        let part = placements.iter().position(is_part)?;
        let width =
            |value: Value| self.old.ty(value).dims.iter().map(|dim| dim.fixed().unwrap_or(0)).product::<usize>();
        let Placement::Part(reduce) = placements[part] else { return None };
        let all_alike = placements.iter().all(|&placement| placement == Placement::Part(reduce));
        let others_same = placements.iter().filter(|placement| is_part(placement)).count() == 1;
        let stays = match (&data.op, reduce) {
            (Op::Reshape(_) | Op::Slice { .. } | Op::Transpose { .. } | Op::Concat | Op::StopGradient, _) => all_alike,
            (Op::Binary(BinaryOp::Add | BinaryOp::Sub), Reduce::Sum) => all_alike,
            (Op::Binary(BinaryOp::Max), Reduce::Max) => all_alike,
            (Op::Binary(BinaryOp::Min), Reduce::Min) => all_alike,
            (Op::Binary(BinaryOp::LogAddExp), Reduce::Lse) => all_alike,
            (Op::Unary(UnaryOp::Neg) | Op::ReduceTrailing { reduce: Reduce::Sum, .. }, Reduce::Sum) => true,
            (Op::Binary(BinaryOp::Mul), Reduce::Sum) => others_same && width(value) <= width(data.args[part]),
            (Op::Binary(BinaryOp::Div) | Op::MatMul { .. } | Op::MatMulT { .. }, Reduce::Sum) => {
                part == 0 && others_same && width(value) <= width(data.args[0])
            }
            _ => false,
        };
        stays.then_some(reduce)
    }

    /// Whether a value has as many rows as there are vertices of a type, and is no value of vertices.
    fn has_rows(&self, value: Value) -> bool {
        self.old.ty(value).dims.iter().any(|dim| matches!(dim, Dim::Count(_)))
    }

    /// The reduction over all ranks of `own`, which was reduced over the rows of a rank or over parts of them.
    fn reduced_rows(
        &mut self,
        value: Value,
        from: Space,
        (reduce, of_parts): (Reduce, bool),
        own: Value,
    ) -> Result<(Value, Placement)> {
        if self.placement(from) == Placement::Same && !of_parts {
            let own = match self.split == Split::Grid && self.is_of_batch(from) {
                true => self.over_replicas(value, reduce, own)?,
                false => own,
            };
            return Ok((own, Placement::Same));
        }
        if !of_parts {
            self.counts_each_row_once(value, from)?;
        }
        Ok((self.over_ranks(value, reduce, own)?, Placement::Same))
    }

    /// Refuses a reduction of the forward pass over rows that several ranks may have.
    fn counts_each_row_once(&self, value: Value, space: Space) -> Result<()> {
        let once = match space {
            Space::Unit | Space::Index(_) => true,
            // A link is compared by one rank.
            Space::Vertices(vertex)
                if matches!(self.old.vertex_types[vertex.index()].rows, VertexRows::Links { .. }) =>
            {
                true
            }
            Space::Vertices(vertex) => self.are_seeds(vertex),
            // A pair is scored by one rank.
            Space::Edges(graph) if self.old.graphs[graph.index()].links => true,
            Space::Edges(graph) if !self.old.graphs[graph.index()].share.is_of_dataset() => true,
            Space::Edges(graph) => self.are_seeds(self.old.graphs[graph.index()].dst),
            Space::Endpoints(..) => false,
        };
        if once || self.old.value(value).phase == Phase::Backward {
            return Ok(());
        }
        let of = match space {
            Space::Edges(graph) => format!("the edges of `{}`", self.old.graphs[graph.index()].name),
            Space::Vertices(vertex) => format!("the vertices of `{}`", self.old.vertex_types[vertex.index()].name),
            _ => "rows".into(),
        };
        self.refuse(value, format!("it reduces over {of} that were sampled, of which several processes have the same"))
    }

    /// Whether a value of edges from pairs to their members has the same reduction of links. A link is scored by one rank.
    fn reduces_links(&self, value: Value, same: Reduce) -> bool {
        let gathered = self.old.value(value);
        let Op::GatherSrc(_) = gathered.op else { return false };
        match self.old.value(gathered.args[0]).op {
            Op::Segment { graph, reduce, .. } => self.old.graphs[graph.index()].links && reduce == same,
            _ => false,
        }
    }

    /// Reduces what all ranks of a replica have over the replicas. A sum counts the first rank of each, by a factor of 1 or
    /// 0: a number that is not finite stays so on all of them, though infinity becomes NaN.
    fn over_replicas(&mut self, value: Value, reduce: Reduce, own: Value) -> Result<Value> {
        match reduce {
            Reduce::Sum => {
                let replica = self.new.replica();
                let counts = self.push(value, Op::Count(Space::Vertices(replica)), &[])?;
                let ty = self.new.ty(own).clone();
                let counts = self.push(value, Op::Broadcast(ty), &[counts])?;
                let counted = self.push(value, Op::Binary(BinaryOp::Mul), &[own, counts])?;
                self.over_ranks(value, reduce, counted)
            }
            // Equal numbers change nothing.
            Reduce::Max | Reduce::Min => self.over_ranks(value, reduce, own),
            other => {
                self.refuse(value, format!("there is no placement for `{}` over the seeds of replicas", other.name()))
            }
        }
    }

    /// Reduces what each rank has over all ranks, in their order.
    fn over_ranks(&mut self, value: Value, reduce: Reduce, own: Value) -> Result<Value> {
        let rank = self.new.rank();
        let dims = self.new.ty(own).dims.clone();
        let row = self.push(value, Op::Broadcast(Type::new(Space::Vertices(rank), dims)), &[own])?;
        if reduce == Reduce::Sum {
            return self.push(value, Op::SumRanks, &[row]);
        }
        let all = self.new.mirrors(rank, Mirrors::All);
        let rows = self.push(value, Op::Exchange(all), &[row])?;
        self.push(value, Op::ReduceSpace(reduce), &[rows])
    }
}
