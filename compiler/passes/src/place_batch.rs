//! Places the program of a mini-batch on the ranks of a job: every rank computes the losses of its own share of the seed
//! vertices on the graph that it has sampled around them ([`hgnnc_ir::ranks`]).
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
//!          %10 = exchange rank.all, %9           : f32[rank.all; 64, 64]
//!          %11 = reduce_space.sum %10            : f32[64, 64]
//!          %13 = exchange Author.2.copies, %12   : f32[Author.2.copies; 64]
//!          %14 = gather.src Author.2.copies, %13 : f32[edges(Author.2.copies); 64]
//!          %15 = segment.sum.in Author.2.copies, %14 : f32[Author.2.owned; 64]
//!          %16 = unrows %15                      : f32[; Author.2.owned, 64]
//! ```
//!
//! - A gradient is a sum over the seeds of all ranks, so that of a value is complete when it is summed over the rows of all
//!   ranks, however many of them have sampled a vertex.
//! - A reduction in the forward pass must count each row once, which is so for rows of seeds and of edges to them: seeds
//!   have one rank. Reductions over vertices that were sampled are refused.
//! - A table belongs to the owners of its vertices, with its gradient and its optimizer states, which never travel.
//!
//! It comes last, as [`place`](crate::place()) does.

use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::{Dataflow, Dim, Direction, Mirrors, Op, Phase, Reduce, Space, Type, Value, VertexRows, VertexType};

use crate::place::NotPlaced;

type Result<T> = std::result::Result<T, NotPlaced>;

/// The program of ranks that computes the outputs of a program of a mini-batch. `seeds` is the type of the seed vertices
/// in the program of the whole graph.
///
/// # Errors
/// [`NotPlaced`] at a reduction of the forward pass that counts vertices twice, and at values of stacked families.
pub fn place_batch(flow: &Dataflow, layout: &BatchLayout, seeds: VertexType) -> Result<Dataflow> {
    let new = flow.with_tables_of(flow.name.clone());
    let mut placing = Placing { old: flow, new, layout, seeds, made: vec![None; flow.values.len()] };
    placing.tables()?;
    let live = flow.live_values();
    for value in flow.handles().filter(|value| live[value.index()]) {
        let made = placing.value(value)?;
        placing.made[value.index()] = Some(made);
    }
    for output in &flow.outputs {
        let value = placing.new_of(output.value);
        placing.new.outputs.push(hgnnc_ir::Output { kind: output.kind.clone(), value });
    }
    placing.new.cursor = flow.cursor;
    Ok(placing.new)
}

/// Whether the rows of a space are those of the batch, and not the same on all ranks.
fn is_of_batch(space: Space) -> bool {
    !matches!(space, Space::Unit | Space::Index(_))
}

struct Placing<'a> {
    old: &'a Dataflow,
    new: Dataflow,
    layout: &'a BatchLayout,
    seeds: VertexType,
    /// By old value.
    made: Vec<Option<Value>>,
}

impl Placing<'_> {
    /// Gives tables the rows that a rank owns.
    fn tables(&mut self) -> Result<()> {
        if !self.old.stacks.is_empty() {
            return Err(NotPlaced { why: "its semantic graphs are stacked".into(), origin: None });
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
            Dim::Count(vertex) => Dim::Count(self.new.owned(vertex)),
        }
    }

    fn new_of(&self, old: Value) -> Value {
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

    fn value(&mut self, value: Value) -> Result<Value> {
        let data = self.old.value(value);
        let args: Vec<Value> = data.args.iter().map(|&arg| self.new_of(arg)).collect();
        let arg_space = data.args.first().map(|&arg| self.old.ty(arg).space);
        match (&data.op, arg_space) {
            // The rows of a table go from their owners to the ranks that have sampled the vertices.
            (Op::Rows, _) => {
                let Space::Vertices(vertex) = data.ty.space else { return self.push(value, Op::Rows, &args) };
                let owned = self.push(value, Op::Rows, &args)?;
                self.push(value, Op::Exchange(vertex), &[owned])
            }
            // Their gradients come back.
            (Op::Unrows, Some(Space::Vertices(vertex))) => {
                if data.phase == Phase::Forward {
                    return self.refuse(value, "it takes the values of all vertices as a matrix");
                }
                let graph = self.new.graph_of_copies(vertex);
                let copies = self.new.graphs[graph.index()].src;
                let exchanged = self.push(value, Op::Exchange(copies), &args)?;
                let gathered = self.push(value, Op::GatherSrc(graph), &[exchanged])?;
                let sum = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
                let sums = self.push(value, sum, &[gathered])?;
                self.push(value, Op::Unrows, &[sums])
            }
            (Op::Outer { .. }, Some(space)) if is_of_batch(space) => {
                self.counts_each_row_once(value, space)?;
                let own = self.push(value, data.op.clone(), &args)?;
                self.over_ranks(value, Reduce::Sum, own)
            }
            (Op::ReduceSpace(reduce), Some(space)) if is_of_batch(space) => {
                self.counts_each_row_once(value, space)?;
                let own = self.push(value, data.op.clone(), &args)?;
                self.over_ranks(value, *reduce, own)
            }
            (Op::Count(space), _) if is_of_batch(*space) => {
                self.counts_each_row_once(value, *space)?;
                let own = self.push(value, data.op.clone(), &args)?;
                self.over_ranks(value, Reduce::Sum, own)
            }
            // A reduction over all rows of a table.
            (Op::ReduceTrailing { reduce, axes }, Some(Space::Unit))
                if self.has_rows(data.args[0]) && *axes == self.old.ty(data.args[0]).dims.len() =>
            {
                let mut rows = self.push(value, Op::Rows, &args)?;
                if *axes > 1 {
                    rows = self.push(value, Op::ReduceTrailing { reduce: *reduce, axes: axes - 1 }, &[rows])?;
                }
                let own = self.push(value, Op::ReduceSpace(*reduce), &[rows])?;
                self.over_ranks(value, *reduce, own)
            }
            (Op::Broadcast(ty), _) => {
                let dims: Vec<Dim> = ty.dims.iter().map(|&dim| self.dim(dim)).collect();
                self.push(value, Op::Broadcast(Type { dims, ..ty.clone() }), &args)
            }
            (Op::Reshape(_) | Op::Concat | Op::Slice { .. } | Op::OneHot { .. } | Op::MatMul { .. }, _)
            | (Op::MatMulT { .. } | Op::ReduceTrailing { .. }, _)
                if self.has_rows(value) || data.args.iter().any(|&arg| self.has_rows(arg)) =>
            {
                let name = data.op.name();
                self.refuse(value, format!("`{name}` of a table with a row for each vertex has no placement"))
            }
            (Op::Grouped { .. } | Op::MetapathReduce(_) | Op::Exchange(_), _) => {
                self.refuse(value, format!("there is no placement for `{}`", data.op.name()))
            }
            _ => self.push(value, data.op.clone(), &args),
        }
    }

    /// Whether a value has as many rows as there are vertices of a type, and is no value of vertices.
    fn has_rows(&self, value: Value) -> bool {
        self.old.ty(value).dims.iter().any(|dim| matches!(dim, Dim::Count(_)))
    }

    /// Refuses a reduction of the forward pass over rows that several ranks may have.
    fn counts_each_row_once(&self, value: Value, space: Space) -> Result<()> {
        let seeds = |vertex: VertexType| {
            let of_dataset = self.old.vertex_types[vertex.index()].rows == VertexRows::Dataset;
            let known = self.layout.vertices.get(vertex.index()).filter(|_| of_dataset);
            known.is_some_and(|known| known.hops == 0 && known.vertex == self.seeds)
        };
        let once = match space {
            Space::Unit | Space::Index(_) => true,
            Space::Vertices(vertex) => seeds(vertex),
            Space::Edges(graph) => seeds(self.old.graphs[graph.index()].dst),
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

    /// Reduces what each rank has over all ranks, in their order.
    fn over_ranks(&mut self, value: Value, reduce: Reduce, own: Value) -> Result<Value> {
        let rank = self.new.rank();
        let all = self.new.mirrors(rank, Mirrors::All);
        let dims = self.new.ty(own).dims.clone();
        let row = self.push(value, Op::Broadcast(Type::new(Space::Vertices(rank), dims)), &[own])?;
        let rows = self.push(value, Op::Exchange(all), &[row])?;
        self.push(value, Op::ReduceSpace(reduce), &[rows])
    }
}
