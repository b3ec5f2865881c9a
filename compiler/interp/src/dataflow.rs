//! The dataflow oracle: interprets a program in f64, one operation at a time.
//!
//! Every back end is tested against it, so it favours obvious correctness over speed: no fusion, no in-place updates,
//! sparse values stored dense (a layout never changes what a value means), and every value kept for inspection.

use std::collections::BTreeMap;

use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::elementwise::{binary, unary};
use hgnnc_ir::metapath::{MetapathReduce, MetapathTerm};
use hgnnc_ir::ops::{Direction, Extreme, Op, ProductForm, Reduce};
use hgnnc_ir::random;
use hgnnc_ir::training::RankingLoss;
use hgnnc_ir::types::{Graph, Space, Type, Value};

use crate::bindings::{bound, bound_input, check};
use crate::ranks;
use crate::{Bindings, Evaluation, InterpError, Tensor};

/// Evaluates every value of a verified program.
///
/// # Errors
/// When the bindings do not fit the program's tables.
///
/// # Panics
/// When the program is ill-typed.
pub fn run(flow: &Dataflow, bindings: &Bindings) -> Result<Evaluation, InterpError> {
    let bindings = &bindings.with_derived(flow);
    check(flow, bindings)?;
    let mut run = Evaluation { values: Vec::with_capacity(flow.values.len()) };
    for value in flow.handles() {
        let tensor = evaluate(flow, bindings, &run, value)?;
        let ty = flow.ty(value);
        debug_assert_eq!((tensor.rows, tensor.width), (bindings.rows(ty.space), bindings.width(&ty.dims)), "{value}");
        run.values.push(tensor);
    }
    Ok(run)
}

/// Evaluates one value from its operands in `run`.
pub(crate) fn evaluate(
    flow: &Dataflow,
    bindings: &Bindings,
    run: &Evaluation,
    value: Value,
) -> Result<Tensor, InterpError> {
    let data = flow.value(value);
    let ty = &data.ty;
    let (rows, width) = (bindings.rows(ty.space), bindings.width(&ty.dims));
    let arg = |i: usize| &run[data.args[i]];
    let arg_ty = |i: usize| flow.ty(data.args[i]);
    let same_rows = |columns: Vec<f64>| Tensor::new(rows, width, columns);

    Ok(match &data.op {
        Op::Input(input) => bound_input(flow, bindings, *input, (rows, width))?,
        Op::Param(param) => {
            let found = bindings.param(flow, *param);
            bound("parameter", &flow.params[param.index()].name, found.as_deref(), (rows, width))?
        }
        Op::State(param, slot) => match bindings.states.get(&(*param, *slot)) {
            None => Tensor::filled(rows, width, 0.0),
            found => bound("state", &flow.params[param.index()].name, found, (rows, width))?,
        },
        Op::Const(number) => Tensor::scalar(*number),
        Op::Count(space) => Tensor::scalar(bindings.rows(*space) as f64),
        Op::RandomMask { stream, rate, .. } => {
            let key = random::mask_key(bindings.seed, bindings.step, *stream);
            Tensor::from_fn(rows, width, |row, column| {
                let row = bindings.number(ty.space, row);
                random::mask_element(key, row as u64 * width as u64 + column as u64, *rate)
            })
        }

        Op::Unary(f) => same_rows(arg(0).data.iter().map(|&x| unary(*f, x)).collect()),
        Op::Binary(f) => {
            let (a, b) = (spread(bindings, arg(0), arg_ty(0), ty), spread(bindings, arg(1), arg_ty(1), ty));
            same_rows(a.data.iter().zip(&b.data).map(|(&x, &y)| binary(*f, x, y)).collect())
        }
        Op::Broadcast(_) => spread(bindings, arg(0), arg_ty(0), ty),
        Op::StopGradient => arg(0).clone(),

        Op::Reshape(_) | Op::Rows | Op::Unrows | Op::Reindex(_) => same_rows(arg(0).data.clone()),
        Op::Concat => {
            let last = |i: usize| arg_ty(i).dims.last().map_or(1, |&d| bindings.extent(d));
            let lead = bindings.width(&ty.dims[..ty.dims.len() - 1]);
            let mut elements = Vec::with_capacity(rows * width);
            for row in 0..rows {
                for outer in 0..lead {
                    for i in 0..data.args.len() {
                        elements.extend_from_slice(&arg(i).row(row)[outer * last(i)..(outer + 1) * last(i)]);
                    }
                }
            }
            same_rows(elements)
        }
        Op::Slice { start, len } => {
            let last = arg_ty(0).dims.last().map_or(1, |&d| bindings.extent(d));
            Tensor::from_fn(rows, width, |row, column| arg(0).at(row, column / len * last + start + column % len))
        }
        Op::Transpose { axis } => {
            let from = &arg_ty(0).dims[*axis..];
            let (m, n) = (bindings.extent(from[0]), bindings.extent(from[1]));
            let inner = bindings.width(&from[2..]);
            // The result is `[.., n, m, inner]`.
            Tensor::from_fn(rows, width, |row, column| {
                let (outer, rest) = (column / (m * n * inner), column % (m * n * inner));
                let (j, i, within) = (rest / (m * inner), rest / inner % m, rest % inner);
                arg(0).at(row, ((outer * m + i) * n + j) * inner + within)
            })
        }
        Op::OneHot { .. } => Tensor::from_fn(rows, width, |row, class| f64::from(arg(0).at(row, 0) == class as f64)),

        Op::MatMul { batch } => {
            let (b, k, n) = product_extents(bindings, arg_ty(1), *batch);
            Tensor::from_fn(rows, b * n, |row, column| {
                let (outer, j) = (column / n, column % n);
                (0..k).map(|i| arg(0).at(row, outer * k + i) * arg(1).at(0, (outer * k + i) * n + j)).sum()
            })
        }
        Op::MatMulT { batch } => {
            let (b, k, n) = product_extents(bindings, arg_ty(1), *batch);
            Tensor::from_fn(rows, b * k, |row, column| {
                let outer = column / k;
                (0..n).map(|j| arg(0).at(row, outer * n + j) * arg(1).at(0, column * n + j)).sum()
            })
        }
        Op::Outer { batch } => {
            let (b, k, n) = product_extents(bindings, ty, *batch);
            Tensor::from_fn(1, b * k * n, |_, element| {
                let (first, j) = (element / n, element % n);
                let outer = first / k;
                (0..arg(0).rows).map(|row| arg(0).at(row, first) * arg(1).at(row, outer * n + j)).sum()
            })
        }

        Op::RowProduct { batch } => {
            let (left, right) = (&arg_ty(0).dims[*batch..], &arg_ty(1).dims[*batch..]);
            let (m, k, n) = (bindings.extent(left[0]), bindings.extent(left[1]), bindings.extent(right[1]));
            Tensor::from_fn(rows, width, |row, column| {
                let (outer, i, j) = (column / (m * n), column / n % m, column % n);
                let term = |c: usize| arg(0).at(row, (outer * m + i) * k + c) * arg(1).at(row, (outer * k + c) * n + j);
                (0..k).map(term).sum()
            })
        }

        Op::Grouped { form, batch, members } => {
            let of = match form {
                ProductForm::Outer => ty,
                ProductForm::MatMul | ProductForm::MatMulT => arg_ty(1),
            };
            let extents = product_extents(bindings, of, *batch);
            same_rows(grouped(*form, extents, &bindings.edges[members.index()], arg(0), arg(1), rows))
        }

        Op::GatherSrc(graph) => {
            let edges = &bindings.edges[graph.index()];
            let row = row_of_vertex(bindings, arg_ty(0).space);
            Tensor::from_fn(rows, width, |edge, column| arg(0).at(row(edges[edge].0), column))
        }
        Op::GatherDst(graph) => {
            let edges = &bindings.edges[graph.index()];
            let row = row_of_vertex(bindings, arg_ty(0).space);
            Tensor::from_fn(rows, width, |edge, column| arg(0).at(row(edges[edge].1), column))
        }
        Op::SegmentEndpoints { graph, direction, reduce } => {
            let ends = bindings.endpoints(*graph, *direction);
            let all = bindings.rows(flow.graph_end(*graph, *direction));
            let owned = edges_of_rows(bindings, *graph, *direction, all);
            Tensor::from_fn(rows, width, |row, column| {
                reduced(*reduce, owned[ends[row] as usize].iter().map(|&edge| arg(0).at(edge, column)))
            })
        }
        Op::GatherRows(graph, direction) => {
            let ends = bindings.endpoints(*graph, *direction);
            Tensor::from_fn(rows, width, |row, column| arg(0).at(ends[row] as usize, column))
        }
        Op::ScatterRows(graph, direction) => {
            let mut elements = arg(0).data.clone();
            for (row, &vertex) in bindings.endpoints(*graph, *direction).iter().enumerate() {
                elements[vertex as usize * width..][..width].copy_from_slice(arg(1).row(row));
            }
            same_rows(elements)
        }
        Op::ScatterAdd(ends) => {
            let mut elements = arg(0).data.clone();
            for (i, &(graph, direction)) in ends.iter().enumerate() {
                for (row, &vertex) in bindings.endpoints(graph, direction).iter().enumerate() {
                    let sum = &mut elements[vertex as usize * width..][..width];
                    sum.iter_mut().zip(arg(1 + i).row(row)).for_each(|(sum, x)| *sum += x);
                }
            }
            same_rows(elements)
        }
        Op::MetapathReduce(sum) => {
            let operand = |i: usize| data.args.get(i).map(|&arg| &run[arg].data[..]);
            let scored = MetapathScores { x: &arg(0).data, y: &arg(1).data, n: operand(2) };
            same_rows(metapath_reduce(
                bindings,
                sum,
                (rows, bindings.width(&arg_ty(0).dims), width),
                scored,
                operand(3),
            ))
        }
        Op::Segment { graph, direction, reduce } => {
            let owned = edges_of_rows(bindings, *graph, *direction, rows);
            Tensor::from_fn(rows, width, |row, column| {
                reduced(*reduce, owned[row].iter().map(|&edge| arg(0).at(edge, column)))
            })
        }
        Op::SegmentArg { graph, direction, extreme } => {
            let owned = edges_of_rows(bindings, *graph, *direction, rows);
            Tensor::from_fn(rows, width, |row, column| {
                let edge = |&edge: &usize| (arg(0).at(edge, column), arg(1).at(edge, 0));
                arg_extreme(*extreme, owned[row].iter().map(edge)).1
            })
        }

        Op::Exchange(_) | Op::SumRanks => ranks::exchanged(flow, &[(bindings, run)], value).remove(0),

        Op::ReduceTrailing { reduce, axes } => {
            let from = &arg_ty(0).dims;
            let inner = bindings.width(&from[from.len() - axes..]);
            Tensor::from_fn(rows, width, |row, column| {
                reduced(*reduce, (0..inner).map(|i| arg(0).at(row, column * inner + i)))
            })
        }
        Op::ReduceSpace(reduce) => {
            Tensor::from_fn(1, width, |_, column| reduced(*reduce, (0..arg(0).rows).map(|row| arg(0).at(row, column))))
        }
        Op::LinkLoss(loss) => {
            // For each link its score, and those of its negative samples.
            let mut links: BTreeMap<u32, (f64, Vec<f64>)> = BTreeMap::new();
            for i in 0..data.args.len() {
                let Space::Edges(graph) = arg_ty(i).space else { unreachable!("scores belong to pairs") };
                let name = || flow.graphs[graph.index()].name.clone();
                let missing = || InterpError::Missing { kind: "input", name: name() };
                let pairs = bindings.pairs.get(&graph).ok_or_else(missing)?;
                for (pair, row) in pairs.iter().zip(0..) {
                    let of = links.entry(pair.link).or_default();
                    if pair.is_link { of.0 = arg(i).at(row, 0) } else { of.1.push(arg(i).at(row, 0)) }
                }
            }
            Tensor::scalar(ranking_loss(*loss, links.into_values()))
        }
    })
}

/// The loss of links with these scores and those of their negative samples.
fn ranking_loss(loss: RankingLoss, links: impl Iterator<Item = (f64, Vec<f64>)>) -> f64 {
    let (mut total, mut count) = (0.0, 0.0f64);
    for (score, negatives) in links {
        let behind = negatives.iter().map(|negative| negative - score);
        match loss {
            RankingLoss::SelfAdversarial(temperature) => {
                let heat: Vec<f64> = negatives.iter().map(|negative| (temperature * negative).exp()).collect();
                let each = negatives.iter().zip(&heat).map(|(negative, heat)| heat * negative.exp().ln_1p());
                // The softmax over no samples is 0 / 0; they add nothing.
                let told = if negatives.is_empty() { 0.0 } else { each.sum::<f64>() / heat.iter().sum::<f64>() };
                total += (-score).exp().ln_1p() + told;
                count += 1.0;
            }
            RankingLoss::CrossEntropy => {
                total += behind.map(f64::exp).sum::<f64>().ln_1p();
                count += 1.0;
            }
            RankingLoss::Bpr | RankingLoss::Margin(_) => {
                count += behind.len() as f64;
                total += match loss {
                    RankingLoss::Margin(margin) => behind.map(|behind| (margin + behind).max(0.0)).sum::<f64>(),
                    _ => behind.map(|behind| behind.exp().ln_1p()).sum(),
                };
            }
        }
    }
    total / count.max(1.0)
}

/// A grouped product of extents (B, k, N), with an edge from each row to its group.
pub(crate) fn grouped(
    form: ProductForm,
    (b, k, n): (usize, usize, usize),
    groups: &[(u32, u32)],
    x: &Tensor,
    y: &Tensor,
    rows: usize,
) -> Vec<f64> {
    let (left, right) = (b * k, b * n);
    let width = match form {
        ProductForm::MatMul => right,
        ProductForm::MatMulT => left,
        ProductForm::Outer => left * n,
    };
    let mut out = vec![0.0; rows * width];
    for &(row, group) in groups {
        let (row, group) = (row as usize, group as usize);
        for element in 0..left * n {
            let (i, j) = (element / n, element / n / k * n + element % n);
            match form {
                ProductForm::MatMul => out[row * width + j] += x.at(row, i) * y.at(group, element),
                ProductForm::MatMulT => out[row * width + i] += x.at(row, j) * y.at(group, element),
                ProductForm::Outer => out[group * width + element] += x.at(row, i) * y.at(row, j),
            }
        }
    }
    out
}

/// Broadcasts a tensor of type `from` to type `to`: unit rows to every row, elements along new trailing dimensions.
fn spread(bindings: &Bindings, tensor: &Tensor, from: &Type, to: &Type) -> Tensor {
    let repeat = bindings.width(&to.dims[from.dims.len()..]);
    let unit = from.is_unit();
    Tensor::from_fn(bindings.rows(to.space), bindings.width(&to.dims), |row, column| {
        tensor.seen(unit, row, column / repeat)
    })
}

/// The extents (B, k, N) of a weight `[B.., k, N..]`.
fn product_extents(bindings: &Bindings, weight: &Type, batch: usize) -> (usize, usize, usize) {
    let dims = &weight.dims;
    (bindings.width(&dims[..batch]), bindings.extent(dims[batch]), bindings.width(&dims[batch + 1..]))
}

/// Maps a vertex to its row in a value of this space: the vertex itself, or its position among distinct endpoints.
fn row_of_vertex(bindings: &Bindings, space: Space) -> impl Fn(u32) -> usize {
    let ends = match space {
        Space::Endpoints(graph, direction) => Some(bindings.endpoints(graph, direction)),
        Space::Unit | Space::Vertices(_) | Space::Edges(_) | Space::Index(_) => None,
    };
    move |vertex| match &ends {
        Some(ends) => ends.binary_search(&vertex).expect("an edge has its ends"),
        None => vertex as usize,
    }
}

/// The edges that each destination (source) owns, in CSC order.
pub(crate) fn edges_of_rows(bindings: &Bindings, graph: Graph, direction: Direction, rows: usize) -> Vec<Vec<usize>> {
    let mut owned = vec![vec![]; rows];
    for (edge, &(src, dst)) in bindings.edges[graph.index()].iter().enumerate() {
        let row = match direction {
            Direction::In => dst,
            Direction::Out => src,
        };
        owned[row as usize].push(edge);
    }
    owned
}

/// The factors of path scores, by source and destination.
#[derive(Clone, Copy)]
pub(crate) struct MetapathScores<'a> {
    pub x: &'a [f64],
    pub y: &'a [f64],
    pub n: Option<&'a [f64]>,
}

/// A reduction over paths, enumerated path by path. Sizes: rows, heads and elements per row.
pub(crate) fn metapath_reduce(
    bindings: &Bindings,
    sum: &MetapathReduce,
    (rows, heads, width): (usize, usize, usize),
    scores: MetapathScores<'_>,
    w: Option<&[f64]>,
) -> Vec<f64> {
    let owned = paths_of_rows(bindings, sum, rows);
    let element = |row: usize, column: usize| {
        let head = column * heads / width;
        let score = |&(src, dst): &(usize, usize)| {
            let x = scores.x[src * heads + head] + scores.y[dst * heads + head];
            (sum.score.value(x), sum.score.slope(x))
        };
        let Some(n) = scores.n else {
            return reduced(Reduce::Lse, owned[row].iter().map(|path| score(path).0));
        };
        let term = |path: &(usize, usize)| {
            let (score, slope) = score(path);
            let other = if sum.direction == Direction::In { path.0 } else { path.1 };
            let slope = if sum.term == MetapathTerm::WeightedSlope { slope } else { 1.0 };
            (score - n[path.1 * heads + head]).exp() * slope * w.map_or(1.0, |w| w[other * width + column])
        };
        reduced(Reduce::Sum, owned[row].iter().map(term))
    };
    (0..rows)
        .flat_map(|row| (0..width).map(move |column| (row, column)))
        .map(|(row, column)| element(row, column))
        .collect()
}

/// The (source, destination) paths that each row owns, ordered by the edge it owns, then by the other edge.
fn paths_of_rows(bindings: &Bindings, sum: &MetapathReduce, rows: usize) -> Vec<Vec<(usize, usize)>> {
    let (first, second) = (&bindings.edges[sum.first.index()], &bindings.edges[sum.second.index()]);
    let mut owned = vec![vec![]; rows];
    match sum.direction {
        Direction::In => {
            for &(middle, dst) in second {
                let sources = first.iter().filter(|edge| edge.1 == middle).map(|edge| edge.0 as usize);
                owned[dst as usize].extend(sources.map(|src| (src, dst as usize)));
            }
        }
        Direction::Out => {
            for &(src, middle) in first {
                let destinations = second.iter().filter(|edge| edge.0 == middle).map(|edge| edge.1 as usize);
                owned[src as usize].extend(destinations.map(|dst| (src as usize, dst)));
            }
        }
    }
    owned
}

pub(crate) fn reduced(reduce: Reduce, elements: impl Iterator<Item = f64> + Clone) -> f64 {
    match reduce {
        Reduce::Sum => elements.sum::<f64>() + 0.0,
        Reduce::Max => elements.fold(reduce.identity(), f64::max),
        Reduce::Min => elements.fold(reduce.identity(), f64::min),
        Reduce::Lse => {
            let largest = elements.clone().fold(f64::NEG_INFINITY, f64::max);
            if largest.is_infinite() {
                largest
            } else {
                largest + elements.map(|x| (x - largest).exp()).sum::<f64>().ln()
            }
        }
    }
}

/// The winner among (element, rank) pairs; ties go to the lowest rank. Rank ∞ over the empty set.
pub(crate) fn arg_extreme(extreme: Extreme, elements: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    elements.fold((extreme.reduce().identity(), f64::INFINITY), |(best, of), (x, rank)| {
        let takes = extreme.wins(x, best) || (x == best && rank < of);
        if takes { (x, rank) } else { (best, of) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hgnnc_ir::dataflow::{Binding, GraphDecl, InputDecl, Matrix, VertexTypeDecl};
    use hgnnc_ir::ops::{BinaryOp, UnaryOp};
    use hgnnc_ir::types::{Input, VertexType};

    #[test]
    fn logarithms_of_sums_survive_infinities_and_large_numbers() {
        let inf = f64::INFINITY;
        assert_eq!(binary(BinaryOp::LogAddExp, -inf, -inf), -inf);
        assert_eq!(binary(BinaryOp::LogAddExp, -inf, 3.0), 3.0);
        assert_eq!(binary(BinaryOp::LogAddExp, 1e4, 1e4), 1e4 + 2f64.ln());
        assert_eq!(reduced(Reduce::Lse, [-inf, -inf].into_iter()), -inf);
        assert_eq!(reduced(Reduce::Lse, [].into_iter()), -inf);
        assert_eq!(reduced(Reduce::Lse, [-1e4, -1e4].into_iter()), -1e4 + 2f64.ln());
        assert_eq!(unary(UnaryOp::Softplus, 1e4), 1e4);
        assert_eq!(unary(UnaryOp::Softplus, -1e4), 0.0);
    }

    /// Two vertex types and a graph `a -> b` with a duplicate edge and an isolated destination.
    fn small() -> (Dataflow, Bindings, Value) {
        let mut flow = Dataflow::new("small");
        let (a, b) = (VertexType(0), VertexType(1));
        for name in ["a", "b"] {
            flow.vertex_types.push(VertexTypeDecl::new(name.into(), name.into()));
        }
        flow.graphs.push(GraphDecl::new("g".into(), a, b, vec![]));
        let ty = Type::fixed(Space::Vertices(a), &[2]);
        let x =
            flow.declare_input(InputDecl { name: "a.x".into(), ty, binding: Binding::Features(a, Matrix::Features) });
        let x = flow.add(Op::Input(x), &[]);
        let bindings = Bindings {
            num_vertices: vec![3, 2],
            edges: vec![vec![(0, 0), (2, 0), (2, 0)]],
            inputs: [(Input(0), Tensor::new(3, 2, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]))].into(),
            ..Bindings::default()
        };
        (flow, bindings, x)
    }

    #[test]
    fn segments_count_duplicates_and_give_the_identity_to_isolated_vertices() {
        let (mut flow, bindings, x) = small();
        let e = flow.add(Op::GatherSrc(Graph(0)), &[x]);
        let all: Vec<Value> = [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse]
            .into_iter()
            .map(|reduce| flow.segment(Graph(0), Direction::In, reduce, e))
            .collect();
        let out = flow.segment(Graph(0), Direction::Out, Reduce::Sum, e);
        let run = run(&flow, &bindings).expect("bound");
        assert_eq!(run[all[0]].data, [11.0, 14.0, 0.0, 0.0]);
        assert_eq!(run[all[1]].data, [5.0, 6.0, f64::NEG_INFINITY, f64::NEG_INFINITY]);
        assert_eq!(run[all[2]].data, [1.0, 2.0, f64::INFINITY, f64::INFINITY]);
        assert_eq!(run[all[3]].row(1), [f64::NEG_INFINITY; 2]);
        assert_eq!(run[out].data, [1.0, 2.0, 0.0, 0.0, 10.0, 12.0]);
    }

    #[test]
    fn bindings_that_do_not_fit_are_errors() {
        let (flow, good, _) = small();
        let mut bad = good.clone();
        bad.edges[0].swap(0, 2);
        assert_eq!(run(&flow, &bad), Err(InterpError::Order { graph: "g".into() }));
        let mut bad = good.clone();
        bad.num_vertices[0] = 2;
        assert!(matches!(run(&flow, &bad), Err(InterpError::Edge { edge: 1, .. })));
        let mut bad = good.clone();
        bad.inputs.clear();
        assert!(matches!(run(&flow, &bad), Err(InterpError::Missing { .. })));
        let mut bad = good;
        bad.inputs.insert(Input(0), Tensor::filled(3, 1, 0.0));
        assert!(matches!(run(&flow, &bad), Err(InterpError::Shape { .. })));
    }

    #[test]
    fn leading_dimensions_broadcast_by_prefix() {
        let (mut flow, bindings, x) = small();
        let wide = flow.add(Op::Broadcast(Type::fixed(Space::Vertices(VertexType(0)), &[2, 3])), &[x]);
        let product = flow.binary(BinaryOp::Mul, x, wide);
        let run = run(&flow, &bindings).expect("bound");
        assert_eq!(run[wide].row(0), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(run[product].row(1), [9.0, 9.0, 9.0, 16.0, 16.0, 16.0]);
    }
}
