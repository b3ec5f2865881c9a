//! Writes out the losses that compare each link of a mini-batch with its own negative samples ([`Op::LinkLoss`]).
//!
//! ```text
//! Before:  %9 = link_loss.cross_entropy %8     : f32[]                          %8: f32[edges(likes)]
//! After:   %9 = reindex %8                      : f32[likes.pairs]
//!          %10 = gather.src likes.links, %9     : f32[edges(likes.links)]
//!          %11 = segment.sum.in likes.links, %10 : f32[links]                    the score of each link
//!          %12 = gather.src likes.negatives, %9 : f32[edges(likes.negatives)]
//!          %13 = segment.lse.in likes.negatives, %12 : f32[links]
//!          %14 = sub %13, %11                   : f32[links]
//!          %15 = softplus %14                   : f32[links]
//!          %16 = reduce_space.sum %15           : f32[]
//!          %17 = count links                    : f32[]
//!          %18 = div %16, %17                   : f32[]
//! ```
//!
//! It follows the passes that change graphs: of many relations that were stacked there is one graph of pairs. The types and
//! graphs are those of [`hgnnc_ir::link_rows`].

use hgnnc_ir::infer::TypeError;
use hgnnc_ir::training::RankingLoss;
use hgnnc_ir::{BinaryOp, Dataflow, Direction, EdgeShare, Graph, Op, Reduce, Space, UnaryOp, Value};

/// Writes out the ranking losses of the program of a mini-batch. A link has `negatives` negative samples at most.
///
/// # Errors
/// An operand that is no number for each pair to score.
pub fn expand_link_loss(flow: &mut Dataflow, negatives: u32) -> Result<(), TypeError> {
    let is_product = |flow: &Dataflow, op: &Op, args: &[Value]| {
        let of_pairs = |graph: Graph| flow.graphs[graph.index()].links;
        matches!(op, Op::MatMulT { .. }) && matches!(flow.ty(args[0]).space, Space::Edges(graph) if of_pairs(graph))
    };
    if !flow.values.iter().any(|data| matches!(data.op, Op::LinkLoss(_)) || is_product(flow, &data.op, &data.args)) {
        return Ok(());
    }
    let mut new = flow.with_tables_of(flow.name.clone());
    let mut map: Vec<Value> = Vec::with_capacity(flow.values.len());
    for data in &flow.values {
        new.cursor = hgnnc_ir::dataflow::Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let args: Vec<Value> = data.args.iter().map(|arg| map[arg.index()]).collect();
        map.push(match data.op {
            Op::LinkLoss(loss) => written_out(&mut new, loss, &args, negatives)?,
            _ if is_product(&new, &data.op, &args) => product(&mut new, &data.op, &args)?,
            _ => new.push(data.op.clone(), &args)?,
        });
    }
    new.outputs = flow.outputs.clone();
    new.outputs.iter_mut().for_each(|output| output.value = map[output.value.index()]);
    new.cursor = flow.cursor;
    *flow = new;
    Ok(())
}

/// A product of the values of pairs with a table of samples ([`crate::shared_samples`]), as one of rows: a dense product, where
/// a kernel that walks the pairs would multiply one row after the other.
fn product(flow: &mut Dataflow, op: &Op, args: &[Value]) -> Result<Value, TypeError> {
    let edges = flow.ty(args[0]).space;
    let Space::Edges(graph) = edges else { unreachable!("pairs are edges") };
    let pairs = flow.edges_as_rows(graph);
    let rows = flow.push(Op::Reindex(Space::Vertices(pairs)), &[args[0]])?;
    let products = flow.push(op.clone(), &[rows, args[1]])?;
    flow.push(Op::Reindex(edges), &[products])
}

/// The mean of a ranking loss over the scores of several graphs of links.
fn written_out(flow: &mut Dataflow, loss: RankingLoss, scores: &[Value], negatives: u32) -> Result<Value, TypeError> {
    let mut graphs = vec![];
    for &score in scores {
        let Space::Edges(graph) = flow.ty(score).space else {
            return Err(TypeError(format!("{score} is no value of pairs")));
        };
        let pairs = flow.edges_as_rows(graph);
        let rows = flow.push(Op::Reindex(Space::Vertices(pairs)), &[score])?;
        let [links, negatives] =
            [EdgeShare::Links(graph), EdgeShare::Negatives(graph)].map(|share| flow.graph_to_links(share, negatives));
        graphs.push((rows, links, negatives));
    }
    // Each link is a pair of one of the graphs.
    let mut of_links = None;
    for &(rows, links, _) in &graphs {
        let score = reduced(flow, links, Reduce::Sum, rows)?;
        of_links = Some(joined(flow, BinaryOp::Add, of_links, score)?);
    }
    let of_links = of_links.expect("a loss has scores");
    let (mut total, mut count) = (None, None);
    match loss {
        RankingLoss::CrossEntropy => {
            let mut others = None;
            for &(rows, _, negatives) in &graphs {
                let lse = reduced(flow, negatives, Reduce::Lse, rows)?;
                others = Some(joined(flow, BinaryOp::LogAddExp, others, lse)?);
            }
            let others = others.expect("a loss has scores");
            let behind = flow.push(Op::Binary(BinaryOp::Sub), &[others, of_links])?;
            let each = flow.push(Op::Unary(UnaryOp::Softplus), &[behind])?;
            let links = flow.ty(each).space;
            total = Some(flow.push(Op::ReduceSpace(Reduce::Sum), &[each])?);
            count = Some(flow.push(Op::Count(links), &[])?);
        }
        RankingLoss::SelfAdversarial(temperature) => {
            let minus = flow.push(Op::Unary(UnaryOp::Neg), &[of_links])?;
            let mut each = flow.push(Op::Unary(UnaryOp::Softplus), &[minus])?;
            let temperature = flow.constant(temperature);
            for &(rows, _, negatives) in &graphs {
                let score = flow.push(Op::GatherSrc(negatives), &[rows])?;
                let heat = flow.push(Op::StopGradient, &[score])?;
                let heat = flow.push(Op::Binary(BinaryOp::Mul), &[heat, temperature])?;
                let lse = Op::Segment { graph: negatives, direction: Direction::In, reduce: Reduce::Lse };
                let all = flow.push(lse, &[heat])?;
                let all = flow.push(Op::GatherDst(negatives), &[all])?;
                let share = flow.push(Op::Binary(BinaryOp::Sub), &[heat, all])?;
                let share = flow.push(Op::Unary(UnaryOp::Exp), &[share])?;
                let apart = flow.push(Op::Unary(UnaryOp::Softplus), &[score])?;
                let weighted = flow.push(Op::Binary(BinaryOp::Mul), &[share, apart])?;
                let sum = Op::Segment { graph: negatives, direction: Direction::In, reduce: Reduce::Sum };
                let of_samples = flow.push(sum, &[weighted])?;
                each = flow.push(Op::Binary(BinaryOp::Add), &[each, of_samples])?;
            }
            let links = flow.ty(each).space;
            total = Some(flow.push(Op::ReduceSpace(Reduce::Sum), &[each])?);
            count = Some(flow.push(Op::Count(links), &[])?);
        }
        RankingLoss::Bpr | RankingLoss::Margin(_) => {
            for &(rows, _, negatives) in &graphs {
                let other = flow.push(Op::GatherSrc(negatives), &[rows])?;
                let own = flow.push(Op::GatherDst(negatives), &[of_links])?;
                let behind = flow.push(Op::Binary(BinaryOp::Sub), &[other, own])?;
                let each = match loss {
                    RankingLoss::Margin(margin) => {
                        let margin = flow.constant(margin);
                        let missing = flow.push(Op::Binary(BinaryOp::Add), &[behind, margin])?;
                        flow.push(Op::Unary(UnaryOp::Relu), &[missing])?
                    }
                    _ => flow.push(Op::Unary(UnaryOp::Softplus), &[behind])?,
                };
                let sum = flow.push(Op::ReduceSpace(Reduce::Sum), &[each])?;
                let edges = flow.push(Op::Count(Space::Edges(negatives)), &[])?;
                total = Some(joined(flow, BinaryOp::Add, total, sum)?);
                count = Some(joined(flow, BinaryOp::Add, count, edges)?);
            }
            // A batch may have no negative samples: its loss is 0.
            let one = flow.constant(1.0);
            count = Some(joined(flow, BinaryOp::Max, count, one)?);
        }
    }
    let (total, count) = (total.expect("a loss has scores"), count.expect("a loss has scores"));
    flow.push(Op::Binary(BinaryOp::Div), &[total, count])
}

/// The values of the pairs of a graph to the links, reduced at each link.
fn reduced(flow: &mut Dataflow, graph: Graph, reduce: Reduce, rows: Value) -> Result<Value, TypeError> {
    let gathered = flow.push(Op::GatherSrc(graph), &[rows])?;
    flow.push(Op::Segment { graph, direction: Direction::In, reduce }, &[gathered])
}

fn joined(flow: &mut Dataflow, op: BinaryOp, first: Option<Value>, second: Value) -> Result<Value, TypeError> {
    match first {
        Some(first) => flow.push(Op::Binary(op), &[first, second]),
        None => Ok(second),
    }
}
