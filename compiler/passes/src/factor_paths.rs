//! Replaces sums over path instances by sums that go hop by hop, so that no instance is listed.
//!
//! A sum over the instances that end at a vertex, of a value that is linear in the values at single positions, is a sum of
//! one term per position. The term of position `i` counts the paths that arrive there, and goes on from there:
//!
//! Before:  v1 = segment.sum.in at, (gather.src at, x)       : f32[instances; k]
//!          v2 = segment.sum.in ends, (gather.src ends, v1)  : f32[V; k]
//! After:   v1 = mul x, c                                    : f32[T; k]
//!          v2 = segment.sum.in hop, (gather.src hop, v1)    : f32[V; k]   for each hop behind the position
//!
//! where `c` is the number of paths from the start to each vertex of the position, itself a sum of ones hop by hop. The
//! work is the number of the relations' edges times the number of positions; instances are products of degrees.
//!
//! Applies to the metapaths without a limit and without a cutoff all of whose instances are read in such sums: sums, differences, products with
//! and quotients by values of a single row, products with parameters, and joined, reshaped and repeated values. Softmax, maxima,
//! and products of values at different positions need the instances. Runs before data is bound, since it decides what is
//! listed. Sums are taken in another order, so results differ in the last bits.

use hgnnc_ir::dataflow::{Cursor, GraphDecl};
use hgnnc_ir::{
    BinaryOp, Dataflow, Direction, Graph, Op, PathDecl, PathRows, Reduce, Space, Type, UnaryOp, Value, VertexType,
};

/// Factors the sums over the metapaths that can be, and gives their positions in [`Dataflow::paths`].
pub fn factor_paths(flow: &mut Dataflow) -> Vec<usize> {
    let mut factored = vec![];
    for index in 0..flow.paths.len() {
        let path = flow.paths[index].clone();
        // A hop does not know how late the end of a path is.
        let past = flow.graphs.iter().any(|decl| decl.past && [decl.src, decl.dst].contains(&path.vertex));
        if !past
            && (path.rows == PathRows::Walks { at_most: None })
            && path.is_read(flow)
            && let Some(without) = without_instances(flow, &path)
        {
            *flow = without;
            factored.push(index);
        }
    }
    factored
}

/// The program with all sums over a path's instances factored; `None` if it needs the instances.
fn without_instances(flow: &Dataflow, path: &PathDecl) -> Option<Dataflow> {
    let new = flow.with_tables_of(&flow.name);
    let counts = vec![None; path.steps.len() + 1];
    let mut rewrite = Rewrite { old: flow, new, path, moved: vec![], counts };
    for value in flow.handles() {
        let data = flow.value(value);
        rewrite.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let factored = match data.op {
            Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum } if rewrite.ends(graph) => {
                rewrite.sum(data.args[0])
            }
            _ => None,
        };
        let moved = factored.unwrap_or_else(|| {
            let args: Vec<Value> = data.args.iter().map(|arg| rewrite.moved[arg.index()]).collect();
            rewrite.new.add(data.op.clone(), &args)
        });
        rewrite.moved.push(moved);
    }
    let Rewrite { mut new, moved, .. } = rewrite;
    new.outputs.clone_from(&flow.outputs);
    new.outputs.iter_mut().for_each(|output| output.value = moved[output.value.index()]);
    new.cursor = flow.cursor;
    new.remove_dead_values();
    (!path.is_read(&new)).then_some(new)
}

struct Rewrite<'f> {
    old: &'f Dataflow,
    new: Dataflow,
    path: &'f PathDecl,
    /// The new value of each old one.
    moved: Vec<Value>,
    /// For each position: the number of paths from the start to each vertex.
    counts: Vec<Option<Value>>,
}

impl Rewrite<'_> {
    /// The position whose relation a graph is, if it is one of the path's.
    fn position(&self, graph: Graph) -> Option<usize> {
        let [step] = self.old.graphs[graph.index()].steps[..] else { return None };
        self.path.relations.iter().position(|&by| by == step.relation)
    }

    /// Does a graph lead from the instances to their ends?
    fn ends(&self, graph: Graph) -> bool {
        self.position(graph) == Some(self.path.steps.len())
    }

    /// The vertex type at a position.
    fn at(&self, position: usize) -> VertexType {
        let decl = &self.old.relations[self.path.relations[position] as usize];
        if position == self.path.steps.len() { decl.dst } else { decl.src }
    }

    /// For each end, the sum of a value of the instances, or of the edges from them, over the instances that end there.
    fn sum(&mut self, value: Value) -> Option<Value> {
        let data = self.old.value(value);
        let is_row = |value: Value| self.old.ty(value).space == Space::Unit;
        let (args, last) = (&data.args, self.path.steps.len());
        match &data.op {
            Op::GatherSrc(graph) if self.ends(*graph) => self.sum(args[0]),
            Op::GatherDst(graph) if self.ends(*graph) => {
                let at_end = self.moved[args[0].index()];
                Some(self.counted(at_end, last))
            }
            Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum } => {
                let position = self.position(*graph).filter(|&position| position < last)?;
                let gathered = self.old.value(args[0]);
                let Op::GatherSrc(of) = gathered.op else { return None };
                let at_position = (of == *graph).then(|| self.moved[gathered.args[0].index()])?;
                let counted = self.counted(at_position, position);
                Some(self.onwards(counted, position..last))
            }
            Op::Broadcast(ty) if is_row(args[0]) => {
                let ty = Type { space: Space::Vertices(self.at(last)), ..ty.clone() };
                let repeated = self.new.add(Op::Broadcast(ty), &[self.moved[args[0].index()]]);
                Some(self.counted(repeated, last))
            }
            Op::Binary(op @ (BinaryOp::Add | BinaryOp::Sub)) if !is_row(args[0]) && !is_row(args[1]) => {
                let (a, b) = (self.sum(args[0])?, self.sum(args[1])?);
                Some(self.new.binary(*op, a, b))
            }
            Op::Binary(op @ (BinaryOp::Mul | BinaryOp::Div)) if !is_row(args[0]) && is_row(args[1]) => {
                let a = self.sum(args[0])?;
                Some(self.new.binary(*op, a, self.moved[args[1].index()]))
            }
            Op::Binary(BinaryOp::Mul) if is_row(args[0]) && !is_row(args[1]) => {
                let b = self.sum(args[1])?;
                Some(self.new.binary(BinaryOp::Mul, self.moved[args[0].index()], b))
            }
            Op::Unary(UnaryOp::Neg) => {
                let a = self.sum(args[0])?;
                Some(self.new.unary(UnaryOp::Neg, a))
            }
            Op::MatMul { .. } | Op::MatMulT { .. } if !is_row(args[0]) && is_row(args[1]) => {
                let a = self.sum(args[0])?;
                Some(self.new.add(data.op.clone(), &[a, self.moved[args[1].index()]]))
            }
            Op::Reshape(_) | Op::Slice { .. } => {
                let a = self.sum(args[0])?;
                Some(self.new.add(data.op.clone(), &[a]))
            }
            Op::Concat => {
                let parts: Vec<Value> = args.iter().map(|&arg| self.sum(arg)).collect::<Option<_>>()?;
                Some(self.new.add(Op::Concat, &parts))
            }
            _ => None,
        }
    }

    /// A value at a position, times the number of paths that arrive there.
    fn counted(&mut self, value: Value, position: usize) -> Value {
        match self.count(position) {
            Some(count) => self.new.binary(BinaryOp::Mul, value, count),
            None => value,
        }
    }

    /// The number of paths from the start to each vertex at a position; `None` for the start, where it is 1.
    fn count(&mut self, position: usize) -> Option<Value> {
        if position == 0 || self.counts[position].is_some() {
            return self.counts[position];
        }
        let before = match self.count(position - 1) {
            Some(count) => count,
            None => {
                let one = self.new.constant(1.0);
                self.new.add(Op::Broadcast(Type::fixed(Space::Vertices(self.at(0)), &[])), &[one])
            }
        };
        self.counts[position] = Some(self.onwards(before, position - 1..position));
        self.counts[position]
    }

    /// Sums a value along some hops.
    fn onwards(&mut self, mut value: Value, hops: std::ops::Range<usize>) -> Value {
        for hop in hops {
            let graph = self.hop(hop);
            let gathered = self.new.add(Op::GatherSrc(graph), &[value]);
            value = self.new.segment(graph, Direction::In, Reduce::Sum, gathered);
        }
        value
    }

    /// The graph of a hop.
    fn hop(&mut self, hop: usize) -> Graph {
        let decl = GraphDecl::new(String::new(), self.at(hop), self.at(hop + 1), vec![self.path.steps[hop]]);
        let same = |known: &GraphDecl| *known == GraphDecl { name: known.name.clone(), ..decl.clone() };
        if let Some(known) = self.new.graphs.iter().position(same) {
            return Graph::new(known);
        }
        let step = self.path.steps[hop];
        let relation = &self.new.relations[step.relation as usize].name;
        let mut name = format!("{relation}{}", if step.reverse { " backwards" } else { " hop" });
        while self.new.graphs.iter().any(|known| known.name == name) {
            name.push('\'');
        }
        self.new.graphs.push(GraphDecl { name, ..decl });
        Graph::new(self.new.graphs.len() - 1)
    }
}
