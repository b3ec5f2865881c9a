//! Places the values of a program on the ranks of a job: one program that every rank runs on its own rows.
//!
//! Each vertex is owned by one rank, which computes all values of the vertex and sums over its edges in both directions
//! ([`hgnnc_ir::ranks`]). Values of other vertices come by exchanges:
//!
//! ```text
//! Before:  %1 = gather.src cites, %0            : f32[edges(cites); 64]      cites: Paper -> Paper
//!          %2 = segment.sum.in cites, %1        : f32[Paper; 64]
//!          %7 = gather.dst cites, %6            : f32[edges(cites); 64]
//!          %8 = segment.sum.out cites, %7       : f32[Paper; 64]             a gradient
//!          %9 = outer %3, %8                    : f32[64, 64]
//! After:   %1 = exchange Paper.sources, %0      : f32[Paper.sources; 64]
//!          %2 = gather.src cites, %1            : f32[edges(cites); 64]      cites: Paper.sources -> Paper
//!          %3 = segment.sum.in cites, %2        : f32[Paper; 64]
//!          %8 = exchange Paper.destinations, %7 : f32[Paper.destinations; 64]
//!          %9 = gather.dst cites.out, %8        : f32[edges(cites.out); 64]  cites.out: Paper -> Paper.destinations
//!          %10 = segment.sum.out cites.out, %9  : f32[Paper; 64]
//!          %11 = grouped.outer Paper.section, %4, %10        : f32[Paper.sections; 64, 64]
//!          %12 = sum_ranks %11                               : f32[64, 64]
//! ```
//!
//! - Values of edges are computed for both sets of edges that need them, as a process recomputes them in its backward
//!   pass anyway. So no partial sum travels: a value at the other end does, in either direction.
//! - Vertices are shuffled anew in each step: the edges end in rows of their own, to which an exchange gives the values of the
//!   vertices that the step draws.
//! - A sum over all vertices is one over the sums of their sections, in the order of the sections. It depends on the
//!   number of sections, and not on that of ranks. Sums over edges go by their destinations first.
//! - Parameters, and what is computed from them alone, are the same on every rank. A table with a row per vertex belongs
//!   to the owners of the vertices, and so do its gradient and its optimizer states.
//! - Sparse features are constants that every rank has. The gradient of their projection is summed over all vertices on
//!   every rank, from the exchanged gradients of the rows: its sums over columns have no sections.
//! - A number of vertices is that of all ranks.
//! - Pairs of stacks belong to the owners of their vertices (`place/stacks.rs`).
//!
//! It comes last, after all other passes on dataflow: they have chosen which values are gathered. Programs with endpoints and
//! factored metapaths are refused; their passes are switched off for programs of the whole graph on several ranks.

mod stacks;

use std::collections::HashMap;
use std::fmt;

use hgnnc_ir::dataflow::{Binding, Cursor, Init, InputDecl, PatternDecl};
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::{
    BinaryOp, Dataflow, Dim, Direction, EdgeShare, Graph, Layout, Mirrors, Op, Origin, Pattern, ProductForm, Reduce,
    Space, Stack, Type, Value, VertexRows, VertexType,
};

/// A program that is not computed on several ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotPlaced {
    /// The reason, in the words of the model.
    pub why: String,
    /// Position in the source.
    pub origin: Option<Origin>,
}

impl fmt::Display for NotPlaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the model cannot be computed by several processes: {}", self.why)
    }
}

impl std::error::Error for NotPlaced {}

type Result<T> = std::result::Result<T, NotPlaced>;

/// The program of ranks that computes the outputs of a program. `tables` are those of an earlier result for a program
/// with the same tables, which the new one extends, or those of `flow`.
///
/// # Errors
/// [`NotPlaced`] at a construct that no placement is known for.
pub fn place(flow: &Dataflow, tables: &Dataflow) -> Result<Dataflow> {
    let new = tables.with_tables_of(flow.name.clone());
    let mut placing = Placing { old: flow, new, made: HashMap::new(), out_stacks: HashMap::new() };
    placing.tables();
    let live = flow.live_values();
    for value in flow.handles().filter(|value| live[value.index()]) {
        match flow.ty(value).space {
            // Values of edges are computed where they are read.
            Space::Edges(_) => {}
            space => {
                let own = placing.own_space(space);
                placing.at(value, own)?;
            }
        }
    }
    for output in &flow.outputs {
        let own = placing.own_space(flow.ty(output.value).space);
        let value = placing.at(output.value, own)?;
        placing.new.outputs.push(hgnnc_ir::Output { kind: output.kind.clone(), value });
    }
    placing.new.cursor = flow.cursor;
    Ok(placing.new)
}

struct Placing<'a> {
    old: &'a Dataflow,
    new: Dataflow,
    /// The value of the new program for an old value with the rows of a space of the new one.
    made: HashMap<(Value, Space), Value>,
    /// By stack of the old program: that of the out-edges.
    out_stacks: HashMap<Stack, Stack>,
}

impl Placing<'_> {
    /// Gives semantic graphs the in-edges of owned vertices.
    fn tables(&mut self) {
        // Links to learn are no edges of a program of the whole graph: their pairs are scored by another one.
        let is_placed = |index: &usize| {
            let decl = &self.old.graphs[*index];
            !decl.links && decl.derived.is_none()
        };
        for index in (0..self.old.graphs.len()).filter(is_placed) {
            let decl = &self.old.graphs[index];
            let mirrors = self.new.mirrors(decl.src, Mirrors::of_sources(decl));
            (self.new.graphs[index].src, self.new.graphs[index].share) = (mirrors, EdgeShare::In);
        }
        for index in 0..self.old.params.len() {
            if let Init::Glorot { fan_in: Dim::Count(vertex), .. } | Init::He { fan_in: Dim::Count(vertex) } =
                self.old.params[index].init
                && self.old.vertex_types[vertex.index()].rows == VertexRows::Dataset
            {
                let all = Dim::Count(self.new.mirrors(vertex, Mirrors::All));
                if let Init::Glorot { fan_in, .. } | Init::He { fan_in } = &mut self.new.params[index].init {
                    *fan_in = all;
                }
            }
        }
        // Sparse features that a gradient may need for all vertices.
        for index in 0..self.old.inputs.len() {
            if self.old.inputs[index].ty.is_sparse() {
                let Space::Vertices(vertex) = self.old.inputs[index].ty.space else { continue };
                let all = self.new.mirrors(vertex, Mirrors::All);
                self.input(index, Space::Vertices(all));
            }
        }
        self.stacks();
    }

    /// The value with the rows of a space of the new program: those that its own space has there, or mirrors of them.
    fn at(&mut self, value: Value, space: Space) -> Result<Value> {
        if let Some(&known) = self.made.get(&(value, space)) {
            return Ok(known);
        }
        let data = self.old.value(value);
        let cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let made = match self.mirrored(space) {
            // A row of these depends on nothing that another rank has.
            Some(_) if data.ty.is_sparse() || matches!(data.op, Op::Broadcast(_)) => self.compute(value, space)?,
            Some(_) if self.is_of_one_row(value) => self.compute(value, space)?,
            Some(to) => {
                let own = self.own_space(data.ty.space);
                let own = self.at(value, own)?;
                self.new.cursor = cursor;
                self.push(value, Op::Exchange(to), &[own])?
            }
            None => self.compute(value, space)?,
        };
        self.made.insert((value, space), made);
        Ok(made)
    }

    /// Appends an operation in place of an old value.
    fn push(&mut self, old: Value, op: Op, args: &[Value]) -> Result<Value> {
        let origin = self.old.value(old).origin;
        self.new.push(op, args).map_err(|TypeError(why)| NotPlaced { why, origin })
    }

    fn refuse<T>(&self, value: Value, why: impl Into<String>) -> Result<T> {
        Err(NotPlaced { why: why.into(), origin: self.old.value(value).origin })
    }

    /// Computes a value for the rows of a space, which other operands have too.
    fn compute(&mut self, value: Value, space: Space) -> Result<Value> {
        let data = self.old.value(value);
        if let Some(why) = self.counted_dims(value) {
            return self.refuse(value, why);
        }
        if let Space::Edges(graph) = space
            && self.new.graphs[graph.index()].links
        {
            return self.refuse(value, "values of links have no placement on the whole graph");
        }
        let args = &data.args;
        let on = |new: &mut Self, op: Op, args: &[Value]| {
            new.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
            new.push(value, op, args)
        };
        match &data.op {
            Op::Input(input) => {
                if let Binding::EdgeRank(graph, _) = self.old.inputs[input.index()].binding
                    && self.old.graphs[graph.index()].derived.is_some()
                {
                    return self
                        .refuse(value, "the gradient of `max` or `min` over stacked relations has no placement");
                }
                if let (Binding::EdgeRank(graph, _), Space::Edges(of)) =
                    (&self.old.inputs[input.index()].binding, space)
                    && self.old.graphs[graph.index()].shuffle.is_some()
                    && self.new.graphs[of.index()].share == EdgeShare::Out(*graph)
                {
                    return self
                        .refuse(value, "the gradient of `max` or `min` over shuffled vertices has no placement");
                }
                let input = self.input(input.index(), space);
                on(self, Op::Input(input), &[])
            }
            Op::Count(Space::Vertices(vertex)) if self.has_members(*vertex) => on(self, data.op.clone(), &[]),
            Op::Count(Space::Vertices(vertex)) if self.old.vertex_types[vertex.index()].rows != VertexRows::Dataset => {
                self.refuse(value, "the number of pairs has no placement")
            }
            Op::Count(Space::Vertices(vertex)) => {
                let all = self.new.mirrors(*vertex, Mirrors::All);
                on(self, Op::Count(Space::Vertices(all)), &[])
            }
            Op::Count(Space::Edges(graph)) => {
                let ty = Type::new(Space::Edges(*graph), vec![]);
                let one = on(self, Op::Const(1.0), &[])?;
                let ones = on(self, Op::Broadcast(ty), &[one])?;
                let op = Op::Segment { graph: *graph, direction: Direction::In, reduce: Reduce::Sum };
                let counts = on(self, op, &[ones])?;
                self.over_sections(value, Reduce::Sum, counts)
            }
            Op::RandomMask { stream, rate, ty } => {
                let ty = self.ty_at(ty, space);
                on(self, Op::RandomMask { stream: *stream, rate: *rate, ty }, &[])
            }
            Op::Broadcast(ty) => {
                let ty = self.ty_at(ty, space);
                let arg = self.operand(args[0], space)?;
                on(self, Op::Broadcast(ty), &[arg])
            }
            Op::GatherSrc(_) | Op::GatherDst(_) => {
                let Space::Edges(graph) = space else { return self.refuse(value, "rows are gathered for no edges") };
                let (op, direction) = match data.op {
                    Op::GatherSrc(_) => (Op::GatherSrc(graph), Direction::Out),
                    _ => (Op::GatherDst(graph), Direction::In),
                };
                let arg = self.at(args[0], self.new.graph_end(graph, direction))?;
                on(self, op, &[arg])
            }
            Op::Segment { graph, direction: Direction::In, reduce }
                if let Some(pairs) = self.pairs_of_members(*graph) =>
            {
                let rows = self.at_pairs(args[0], *graph, pairs)?;
                self.over_sections(value, *reduce, rows)
            }
            Op::Segment { graph, direction, reduce } => {
                let graph = self.edges_of(*graph, *direction, space);
                let arg = self.at(args[0], Space::Edges(graph))?;
                on(self, Op::Segment { graph, direction: *direction, reduce: *reduce }, &[arg])
            }
            Op::SegmentArg { graph, direction, extreme } => {
                let graph = self.edges_of(*graph, *direction, space);
                let [a, rank] = [args[0], args[1]].map(|arg| self.at(arg, Space::Edges(graph)));
                on(self, Op::SegmentArg { graph, direction: *direction, extreme: *extreme }, &[a?, rank?])
            }
            Op::Outer { batch } => self.outer(value, *batch),
            Op::ReduceSpace(reduce) => {
                let own = self.own_space(self.old.ty(args[0]).space);
                let rows = self.at(args[0], own)?;
                let rows = match self.old.ty(args[0]).space {
                    Space::Vertices(vertex) if self.has_members(vertex) => return on(self, data.op.clone(), &[rows]),
                    Space::Edges(graph) => {
                        on(self, Op::Segment { graph, direction: Direction::In, reduce: *reduce }, &[rows])?
                    }
                    Space::Vertices(_) => rows,
                    // Rows of a parameter, which every rank has.
                    _ => return on(self, data.op.clone(), &[rows]),
                };
                self.over_sections(value, *reduce, rows)
            }
            // A reduction over the rows of a table, and what is left of its axes.
            Op::ReduceTrailing { reduce, axes }
                if data.ty.space == Space::Unit
                    && matches!(self.old.ty(args[0]).dims.first(), Some(Dim::Count(of)) if !self.has_members(*of))
                    && *axes == self.old.ty(args[0]).dims.len() =>
            {
                let table = self.at(args[0], Space::Unit)?;
                let mut rows = on(self, Op::Rows, &[table])?;
                if *axes > 1 {
                    rows = on(self, Op::ReduceTrailing { reduce: *reduce, axes: axes - 1 }, &[rows])?;
                }
                self.over_sections(value, *reduce, rows)
            }
            Op::Grouped { form: ProductForm::Outer, batch, members } => {
                let Some(pairs) = self.pairs_of_members(*members) else {
                    return self.refuse(value, "rows of sections are multiplied");
                };
                let own = Space::Vertices(pairs);
                let [x, y] = [self.at(args[0], own)?, self.at(args[1], own)?];
                self.outer_by_section(value, *batch, (x, y), pairs)
            }
            Op::Grouped { form, batch, members } => {
                let old = self.old.graphs[members.index()].dst;
                let x = self.at(args[0], space)?;
                let weights = self.at(args[1], Space::Vertices(old))?;
                let members = self.edges_of(*members, Direction::Out, space);
                on(self, Op::Grouped { form: *form, batch: *batch, members }, &[x, weights])
            }
            Op::Reindex(_)
            | Op::LinkLoss(_)
            | Op::SegmentEndpoints { .. }
            | Op::GatherRows(..)
            | Op::ScatterRows(..)
            | Op::ScatterAdd(_)
            | Op::MetapathReduce(_)
            | Op::Exchange(_)
            | Op::SumRanks
            | Op::Count(Space::Endpoints(..)) => {
                self.refuse(value, format!("there is no placement for `{}`", data.op.name()))
            }
            Op::Rows | Op::Unrows => {
                let own = self.own_space(self.old.ty(args[0]).space);
                let arg = self.at(args[0], own)?;
                on(self, data.op.clone(), &[arg])
            }
            Op::Param(_)
            | Op::State(..)
            | Op::Const(_)
            | Op::Count(Space::Unit | Space::Index(_))
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::StopGradient
            | Op::Reshape(_)
            | Op::Concat
            | Op::Slice { .. }
            | Op::Transpose { .. }
            | Op::RowProduct { .. }
            | Op::OneHot { .. }
            | Op::MatMul { .. }
            | Op::MatMulT { .. }
            | Op::ReduceTrailing { .. } => {
                let mut operands = vec![];
                for &arg in args {
                    operands.push(self.operand(arg, space)?);
                }
                on(self, data.op.clone(), &operands)
            }
        }
    }

    /// The reason why a value with the number of vertices among its dimensions has no placement, if there is one.
    fn counted_dims(&self, value: Value) -> Option<String> {
        let data = self.old.value(value);
        let counted = |ty: &Type| ty.dims.iter().any(|dim| matches!(dim, Dim::Count(_)));
        let leads = |ty: &Type| {
            let rest = ty.dims.iter().skip(1);
            ty.space == Space::Unit && rest.copied().all(|dim| dim.fixed().is_some())
        };
        let types: Vec<&Type> = data.args.iter().map(|&arg| self.old.ty(arg)).chain([&data.ty]).collect();
        let placed = match data.op {
            Op::Param(_) | Op::State(..) | Op::Unary(_) | Op::Binary(_) | Op::StopGradient => true,
            Op::Rows | Op::Unrows | Op::Broadcast(_) | Op::ReduceTrailing { .. } => true,
            _ => !types.iter().any(|ty| counted(ty)),
        };
        let all_lead = types.iter().all(|ty| !counted(ty) || leads(ty));
        (!placed || !all_lead).then(|| {
            format!("`{}` of a value with as many elements as there are vertices has no placement", data.op.name())
        })
    }

    /// An operand for the rows of a space, or the one that all rows share.
    fn operand(&mut self, arg: Value, space: Space) -> Result<Value> {
        match self.old.ty(arg).space {
            Space::Unit => self.at(arg, Space::Unit),
            _ => self.at(arg, space),
        }
    }

    /// A type with the rows of another space, and the pattern that belongs to it.
    fn ty_at(&mut self, ty: &Type, space: Space) -> Type {
        let layout = match (ty.layout, space) {
            (Layout::Sparse(pattern), Space::Vertices(vertex)) => Layout::Sparse(self.pattern(pattern, vertex)),
            (layout, _) => layout,
        };
        Type { space, layout, dims: self.own_dims(&ty.dims), ..ty.clone() }
    }

    fn pattern(&mut self, pattern: Pattern, vertex: VertexType) -> Pattern {
        let own = &self.old.patterns[pattern.index()];
        if own.vertex == vertex { pattern } else { self.new.declare_pattern(PatternDecl { vertex, ..own.clone() }) }
    }

    /// The input with the rows of a space.
    fn input(&mut self, index: usize, space: Space) -> hgnnc_ir::Input {
        let decl = self.old.inputs[index].clone();
        if decl.ty.space == space {
            return self.new.declare_input(decl);
        }
        let binding = match (&decl.binding, space) {
            (Binding::Features(_, matrix), Space::Vertices(vertex)) => Binding::Features(vertex, matrix.clone()),
            (Binding::Precomputed(_, name), Space::Vertices(vertex)) => Binding::Precomputed(vertex, name.clone()),
            (Binding::Time(_), Space::Vertices(vertex)) => Binding::Time(vertex),
            (Binding::EdgeTime(_), Space::Edges(graph)) => Binding::EdgeTime(graph),
            (Binding::EdgeWeight(_), Space::Edges(graph)) => Binding::EdgeWeight(graph),
            (Binding::EdgeCount(_), Space::Edges(graph)) => Binding::EdgeCount(graph),
            (Binding::EdgeFeatures(_), Space::Edges(graph)) => Binding::EdgeFeatures(graph),
            (Binding::EdgeRank(_, direction), Space::Edges(graph)) => Binding::EdgeRank(graph, *direction),
            (other, _) => other.clone(),
        };
        let end = match space {
            Space::Vertices(vertex) => match self.new.vertex_types[vertex.index()].rows {
                VertexRows::Mirrors(_, mirrors) => mirrors.to_string(),
                _ => "own".into(),
            },
            _ => "out".into(),
        };
        let ty = self.ty_at(&decl.ty, space);
        self.new.declare_input(InputDecl { name: format!("{}.{end}", decl.name), ty, binding })
    }

    /// Reduces the rows of a vertex value of the new program over all ranks, by section.
    fn over_sections(&mut self, value: Value, reduce: Reduce, rows: Value) -> Result<Value> {
        let Space::Vertices(vertex) = self.new.ty(rows).space else {
            return self.refuse(value, "a sum goes over no vertices");
        };
        let graph = self.new.graph_to_sections(vertex);
        let gathered = self.push(value, Op::GatherSrc(graph), &[rows])?;
        let of_sections = self.push(value, Op::Segment { graph, direction: Direction::In, reduce }, &[gathered])?;
        self.of_all_sections(value, reduce, of_sections)
    }

    /// Reduces what each section of a rank has over the sections of all ranks.
    fn of_all_sections(&mut self, value: Value, reduce: Reduce, of_sections: Value) -> Result<Value> {
        let Space::Vertices(sections) = self.new.ty(of_sections).space else {
            return self.refuse(value, "a sum goes over no sections");
        };
        if reduce == Reduce::Sum {
            let sum = self.push(value, Op::SumRanks, &[of_sections])?;
            // Sections of pairs have a sum for each member.
            return match (self.new.ty(sum).space, self.old.ty(value).space) {
                (Space::Vertices(_), Space::Unit) => self.push(value, Op::ReduceSpace(reduce), &[sum]),
                _ => Ok(sum),
            };
        }
        if self.old.ty(value).space != Space::Unit {
            return self.refuse(value, "only sums over the pairs of each member have a placement");
        }
        let all = self.new.mirrors(sections, Mirrors::All);
        let exchanged = self.push(value, Op::Exchange(all), &[of_sections])?;
        self.push(value, Op::ReduceSpace(reduce), &[exchanged])
    }

    /// The sum over rows of outer products.
    fn outer(&mut self, value: Value, batch: usize) -> Result<Value> {
        let data = self.old.value(value);
        let (x, y) = (data.args[0], data.args[1]);
        let cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        match self.old.ty(x).space {
            Space::Vertices(vertex) if self.old.ty(x).is_sparse() => {
                let all = Space::Vertices(self.new.mirrors(vertex, Mirrors::All));
                let [x, y] = [self.at(x, all)?, self.at(y, all)?];
                self.new.cursor = cursor;
                self.push(value, data.op.clone(), &[x, y])
            }
            space @ Space::Vertices(vertex) if !self.has_members(vertex) => {
                let own = self.own_space(space);
                let [x, y] = [self.at(x, own)?, self.at(y, own)?];
                let rows = self.own_type(vertex);
                self.outer_by_section(value, batch, (x, y), rows)
            }
            Space::Edges(graph) => self.outer_over_edges(value, graph, batch),
            space => {
                let [x, y] = [self.at(x, space)?, self.at(y, space)?];
                self.new.cursor = cursor;
                self.push(value, data.op.clone(), &[x, y])
            }
        }
    }

    /// The sum over rows that a rank owns of outer products, by section.
    fn outer_by_section(
        &mut self,
        value: Value,
        batch: usize,
        (x, y): (Value, Value),
        rows: VertexType,
    ) -> Result<Value> {
        let data = self.old.value(value);
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let members = self.new.graph_to_sections(rows);
        let of_sections = self.push(value, Op::Grouped { form: ProductForm::Outer, batch, members }, &[x, y])?;
        self.of_all_sections(value, Reduce::Sum, of_sections)
    }

    /// The sum over edges of outer products of `[B.., k]` and `[B.., N..]`: for each of the `k` columns, a sum over the
    /// in-edges of each vertex. Few columns are left on edges (`split_outer_products`).
    fn outer_over_edges(&mut self, value: Value, graph: Graph, batch: usize) -> Result<Value> {
        let data = self.old.value(value);
        let [x, y] = [self.at(data.args[0], Space::Edges(graph))?, self.at(data.args[1], Space::Edges(graph))?];
        self.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let (lead, dims) = (data.ty.dims[..batch].to_vec(), data.ty.dims.clone());
        let fixed = |dims: &[Dim]| dims.iter().map(|dim| dim.fixed()).product::<Option<usize>>();
        let (Some(columns), Some(rest)) = (dims[batch].fixed(), fixed(&dims[batch + 1..])) else {
            return self.refuse(value, "a weight of edges has as many elements as there are vertices");
        };
        let mut sums = vec![];
        for column in 0..columns {
            let one = self.push(value, Op::Slice { start: column, len: 1 }, &[x])?;
            let one = self.push(value, Op::Reshape(lead.clone()), &[one])?;
            let product = self.push(value, Op::Binary(BinaryOp::Mul), &[one, y])?;
            let op = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
            let sum = self.push(value, op, &[product])?;
            let flat = [&lead[..], &[Dim::Fixed(rest)]].concat();
            sums.push(self.push(value, Op::Reshape(flat), &[sum])?);
        }
        let joined = self.push(value, Op::Concat, &sums)?;
        let of_vertices = self.push(value, Op::Reshape(dims), &[joined])?;
        self.over_sections(value, Reduce::Sum, of_vertices)
    }
}
