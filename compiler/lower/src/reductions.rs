//! Reductions over dimensions, rows, in-edges and semantic graphs.

use std::collections::BTreeMap;

use hgnnc_diag::Span;
use hgnnc_hir::{self as hir, ExprId, Reduction};
use hgnnc_ir::{BinaryOp, Dim, Direction, Graph, Op, Reduce, Space, Type, UnaryOp, Value, VertexType};

use crate::value::{Val, Values};
use crate::{Instance, dims};

/// Smaller than every score that means something, and still finite when it is multiplied by 0.
const LOWEST: f64 = -3.0e38;

/// A reduction over in-edges.
#[derive(Clone, Copy)]
pub struct OverInEdges<'a> {
    /// The function that reduces them.
    pub reduction: Reduction,
    /// Over the in-edges of all semantic graphs together.
    pub across: bool,
    /// The semantic graphs of the family.
    pub graphs: &'a [Graph],
    /// The type of the result.
    pub ty: &'a hir::Type,
    /// The place of the reduction, and of its operand.
    pub spans: (Span, Span),
}

/// The reduction of the IR that a function starts from.
fn base(reduction: Reduction) -> Reduce {
    match reduction {
        Reduction::Sum | Reduction::Mean | Reduction::Concat => Reduce::Sum,
        Reduction::Max => Reduce::Max,
        Reduction::Min => Reduce::Min,
        Reduction::Softmax | Reduction::LogSumExp => Reduce::Lse,
    }
}

/// The function that combines two values.
fn combine(reduction: Reduction) -> BinaryOp {
    match reduction {
        Reduction::Max => BinaryOp::Max,
        Reduction::Min => BinaryOp::Min,
        Reduction::Softmax | Reduction::LogSumExp => BinaryOp::LogAddExp,
        Reduction::Sum | Reduction::Mean | Reduction::Concat => BinaryOp::Add,
    }
}

impl Instance<'_> {
    /// Over the last dimension.
    pub fn reduce_last(&mut self, x: &Val, reduce: Reduce, span: Span) -> Val {
        Val::Stored(self.emit(Op::ReduceTrailing { reduce, axes: 1 }, &[x.stored()], span))
    }

    /// The softmax `exp(x - lse)`, for a given log-sum-exp.
    fn share(&mut self, x: &Val, lse: &Val, span: Span) -> Val {
        let shifted = self.binary(BinaryOp::Sub, x, lse, span);
        self.unary(UnaryOp::Exp, &shifted, span)
    }

    pub fn mean_over_last(&mut self, x: &Val, span: Span) -> Val {
        let count = match *self.dims(x).last().expect("the verifier refuses values without dimensions") {
            Dim::Fixed(extent) => self.constant(extent as f64, span),
            Dim::Count(vertex) => self.count(Space::Vertices(vertex), span),
        };
        let sum = self.reduce_last(x, Reduce::Sum, span);
        self.binary(BinaryOp::Div, &sum, &count, span)
    }

    pub fn over_last(&mut self, reduction: Reduction, x: &Val, span: Span) -> Val {
        match reduction {
            Reduction::Softmax => {
                let lse = self.reduce_last(x, Reduce::Lse, span);
                self.share(x, &lse, span)
            }
            Reduction::Mean => self.mean_over_last(x, span),
            _ => self.reduce_last(x, base(reduction), span),
        }
    }

    /// Over the first trailing dimension (heads): slices, combined element by element in order.
    pub fn over_first(&mut self, reduction: Reduction, x: &Val, span: Span) -> Val {
        let dims = self.dims(x);
        let (rest, fixed) = (dims[1..].to_vec(), |dim: &Dim| dim.fixed().expect("the verifier refuses other extents"));
        let (first, len) = (fixed(&dims[0]), rest.iter().map(fixed).product::<usize>());
        let flat = self.emit(Op::Reshape(vec![Dim::Fixed(first * len)]), &[x.stored()], span);
        let mut total: Option<Val> = None;
        for index in 0..first {
            let slice = self.emit(Op::Slice { start: index * len, len }, &[flat], span);
            let slice = Val::Stored(self.emit(Op::Reshape(rest.clone()), &[slice], span));
            total = Some(match total {
                None => slice,
                Some(sum) => self.binary(combine(reduction), &sum, &slice, span),
            });
        }
        let total = total.expect("extents are at least 1");
        if reduction != Reduction::Mean {
            return total;
        }
        let count = self.constant(first as f64, span);
        self.binary(BinaryOp::Div, &total, &count, span)
    }

    /// The mean over all rows of the value's space: a single row.
    pub fn mean_over_rows(&mut self, x: &Val, span: Span) -> Val {
        let value = x.stored();
        let space = self.flow.ty(value).space;
        let sum = self.emit(Op::ReduceSpace(Reduce::Sum), &[value], span);
        let count = self.count(space, span);
        self.binary(BinaryOp::Div, &Val::Stored(sum), &count, span)
    }

    pub fn over_rows(&mut self, reduction: Reduction, x: &Val, span: Span) -> Val {
        if reduction == Reduction::Mean {
            return self.mean_over_rows(x, span);
        }
        let reduced = Val::Stored(self.emit(Op::ReduceSpace(base(reduction)), &[x.stored()], span));
        if reduction == Reduction::Softmax { self.share(x, &reduced, span) } else { reduced }
    }

    /// The sum of the squares of all elements of all values.
    pub fn sum_of_squares(&mut self, parts: &[ExprId], span: Span) -> Val {
        let mut sums = vec![];
        for &part in parts {
            let values = self.eval(part);
            self.map(&values, |this, x| {
                sums.push(this.squares(x, span));
                x.clone()
            });
        }
        // In pairs, so that a sum of many parameters is no long chain.
        while sums.len() > 1 {
            let joined = sums.chunks(2).map(|pair| match *pair {
                [a, b] => self.emit(Op::Binary(BinaryOp::Add), &[a, b], span),
                _ => pair[0],
            });
            sums = joined.collect();
        }
        Val::Stored(sums[0])
    }

    /// The sum of the squares of the elements of a value.
    fn squares(&mut self, x: &Val, span: Span) -> Value {
        let mut x = match x {
            Val::BlockDiagonal { blocks, .. } => *blocks,
            other => other.stored(),
        };
        // A row for each vertex of a type is no extent that is known.
        if matches!(self.flow.ty(x).dims.first(), Some(Dim::Count(_))) {
            x = self.emit(Op::Rows, &[x], span);
        }
        let mut sum = self.emit(Op::Binary(BinaryOp::Mul), &[x, x], span);
        let axes = self.flow.ty(sum).dims.len();
        if axes > 0 {
            sum = self.emit(Op::ReduceTrailing { reduce: Reduce::Sum, axes }, &[sum], span);
        }
        match self.flow.ty(sum).is_unit() {
            true => sum,
            false => self.emit(Op::ReduceSpace(Reduce::Sum), &[sum], span),
        }
    }

    /// Reduces the in-edges of each destination.
    pub fn over_in_edges(&mut self, of: OverInEdges<'_>, x: &Values) -> Values {
        let OverInEdges { reduction, across, graphs, ty, spans: (span, x_span) } = of;
        let edges = self.edge_values(x, graphs, x_span);
        if reduction == Reduction::Softmax {
            return Values::PerGraph(self.softmax_over_edges(edges, graphs, across, span));
        }
        // Mean: the sum divided by the degree; max and min: 0 where there is no edge.
        let mut reduced = vec![];
        for (edge, &graph) in edges.into_iter().zip(graphs) {
            let op = Op::Segment { graph, direction: Direction::In, reduce: base(reduction) };
            let value = Val::Stored(self.emit(op, &[edge.stored()], span));
            let degree = match reduction {
                Reduction::Mean | Reduction::Max | Reduction::Min => Some(self.degree(graph, Direction::In, span)),
                Reduction::Sum | Reduction::Softmax | Reduction::LogSumExp | Reduction::Concat => None,
            };
            reduced.push((value, degree));
        }
        if !across {
            let finish = |(value, degree)| self.finish_segment(reduction, value, degree, span);
            return Values::PerGraph(reduced.into_iter().map(finish).collect());
        }
        // Per destination type: all graphs that end there.
        let mut per_type: BTreeMap<VertexType, (Val, Option<Val>)> = BTreeMap::new();
        for ((value, degree), &graph) in reduced.into_iter().zip(graphs) {
            let vertex = self.end(graph, Direction::In);
            let joined = match per_type.remove(&vertex) {
                None => (value, degree),
                Some((known, known_degree)) => {
                    let joined = self.binary(combine(reduction), &known, &value, span);
                    let degree = match (known_degree, degree) {
                        (Some(a), Some(b)) => Some(self.binary(BinaryOp::Add, &a, &b, span)),
                        _ => None,
                    };
                    (joined, degree)
                }
            };
            per_type.insert(vertex, joined);
        }
        let mut finished = BTreeMap::new();
        for (vertex, (value, degree)) in per_type {
            finished.insert(vertex, self.finish_segment(reduction, value, degree, span));
        }
        // A vertex type in which no semantic graph ends has only vertices without in-edges.
        let hir::Type::PerType(rows) = ty else { unreachable!("a value for each destination type") };
        for (vertex, row) in rows {
            if !finished.contains_key(vertex) {
                let zero = self.constant(0.0, span);
                let ty = Type::new(Space::Vertices(*vertex), dims(row));
                finished.insert(*vertex, self.repeated(&zero, ty, span));
            }
        }
        Values::PerType(finished)
    }

    /// Edge values, one for each graph; single values are repeated for every edge.
    fn edge_values(&mut self, x: &Values, graphs: &[Graph], span: Span) -> Vec<Val> {
        let mut edges = vec![];
        for (position, graph) in graphs.iter().enumerate() {
            let value = match x {
                Values::PerGraph(values) => &values[position],
                other => other.one(),
            };
            // The verifier refuses other values.
            edges.push(match self.space(value) {
                Some(Space::Unit) => self.repeated(value, Type::new(Space::Edges(*graph), self.dims(value)), span),
                _ => value.clone(),
            });
        }
        edges
    }

    fn finish_segment(&mut self, reduction: Reduction, value: Val, degree: Option<Val>, span: Span) -> Val {
        let Some(degree) = degree else { return value };
        if reduction == Reduction::Mean {
            let one = self.constant(1.0, span);
            let divisor = self.binary(BinaryOp::Max, &degree, &one, span);
            return self.binary(BinaryOp::Div, &value, &divisor, span);
        }
        // Without in-edges the result is 0, not an infinity.
        let is_max = reduction == Reduction::Max;
        let (limit, clamp) = if is_max { (LOWEST, BinaryOp::Max) } else { (-LOWEST, BinaryOp::Min) };
        let limit = self.constant(limit, span);
        let finite = self.binary(clamp, &value, &limit, span);
        let zero = self.constant(0.0, span);
        let has_edges = self.binary(BinaryOp::Gt, &degree, &zero, span);
        self.binary(BinaryOp::Mul, &finite, &has_edges, span)
    }

    /// `exp(x - lse)`, with the log-sum-exp of the destination's in-edges.
    fn softmax_over_edges(&mut self, edges: Vec<Val>, graphs: &[Graph], across: bool, span: Span) -> Vec<Val> {
        let mut sums = vec![];
        let mut per_type: BTreeMap<VertexType, Val> = BTreeMap::new();
        for (edge, &graph) in edges.iter().zip(graphs) {
            let op = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Lse };
            let lse = Val::Stored(self.emit(op, &[edge.stored()], span));
            if across {
                let vertex = self.end(graph, Direction::In);
                let joined = match per_type.remove(&vertex) {
                    None => lse.clone(),
                    Some(known) => self.binary(BinaryOp::LogAddExp, &known, &lse, span),
                };
                per_type.insert(vertex, joined);
            }
            sums.push(lse);
        }
        let mut shares = vec![];
        for ((edge, &graph), own) in edges.iter().zip(graphs).zip(&sums) {
            let lse = if across { &per_type[&self.end(graph, Direction::In)] } else { own };
            let lse = self.gather(lse, graph, Direction::In, span);
            shares.push(self.share(edge, &lse, span));
        }
        shares
    }

    /// Combines the values that a vertex has for each semantic graph.
    pub fn across(&mut self, reduction: Reduction, all: &[Val], span: Span) -> Values {
        match reduction {
            Reduction::Concat => Values::One(self.concat(all, span)),
            // No semantic graph ends here.
            Reduction::Softmax if all.is_empty() => Values::PerGraph(vec![]),
            Reduction::Softmax => {
                let lse = self.fold(all, BinaryOp::LogAddExp, span);
                Values::PerGraph(all.iter().map(|value| self.share(value, &lse, span)).collect())
            }
            Reduction::Mean => {
                let sum = self.fold(all, BinaryOp::Add, span);
                let count = self.constant(all.len() as f64, span);
                Values::One(self.binary(BinaryOp::Div, &sum, &count, span))
            }
            _ => Values::One(self.fold(all, combine(reduction), span)),
        }
    }

    fn fold(&mut self, all: &[Val], op: BinaryOp, span: Span) -> Val {
        let (first, rest) = all.split_first().expect("at least one semantic graph");
        rest.iter().fold(first.clone(), |total, value| self.binary(op, &total, value, span))
    }
}
