//! Writes out the loss of links that are all compared with the same negative samples.
//!
//! With samples of its own, a link needs a score for each of them, of rows that lie anywhere. Samples that all links of a
//! mini-batch share make the scores a matrix product, where the score is linear in the row of the end that is replaced:
//! s(u, r, v) = ⟨q(u, r), x_v⟩ + c(u, r), as the inner product of DistMult, ComplEx or RESCAL; of ConvE, in the row of the destination only. The query q is the derivative of the score by
//! that row, so nothing has to be known of the layer. c is the same for all candidates and cancels in a softmax.
//!
//! ```text
//! Before:  %3 = gather.src likes, %1              : f32[edges(likes); 64]
//!          %4 = gather.dst likes, %2              : f32[edges(likes); 64]
//!          %5 = mul %3, %4                        : f32[edges(likes); 64]
//!          %6 = reduce.sum(axes 1) %5             : f32[edges(likes)]
//!          %7 = link_loss.cross_entropy %6        : f32[]
//! After:   %8 = gather.src Item.samples, %2       : f32[edges(Item.samples); 64]     of the destinations; the sources are alike
//!          %9 = segment.sum.in Item.samples, %8   : f32[Item.samples; 64]
//!          %10 = unrows %9                        : f32[|Item.samples|, 64]
//!          %11 = reshape(500, 64) %10             : f32[500, 64]
//!          %12 = matmul_t %3, %11                 : f32[edges(likes); 500]           %3 is the query
//!          %13 = reduce.lse(axes 1) %12           : f32[edges(likes)]
//!          %14 = ..                               : f32[edges(likes)]                ln(e^%13 + e^⟨%3, %4⟩) - ⟨%3, %4⟩
//! ```
//!
//! A link that is among the samples itself is not added to them. Known links of other samples are not left out, as in the
//! literature (1-N scoring: Dettmers et al., AAAI 2018; 1vsAll: Lacroix et al., ICML 2018): with as many samples as vertices,
//! the loss is the cross entropy over all of them.

use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::infer::TypeError;
use hgnnc_ir::training::RankingLoss;
use hgnnc_ir::{BinaryOp, Dataflow, Dim, Direction, Graph, Op, Phase, Reduce, Space, Type, Value, VertexType};
use rustc_hash::FxHashMap;

use crate::differentiate::{derivatives, hands_on};
use crate::minibatch::NotBatchable;

/// Stands for -∞: added to a number, it leaves nothing in a sum of exponentials, and its derivatives are numbers.
const NOTHING: f64 = -1e30;

/// Writes out the losses of links of a mini-batch that are all compared with the same samples of each vertex type, so many, in
/// place of these ends (`In`: the destination).
///
/// # Errors
/// A score that is not linear in the rows of one of these ends.
pub fn share_samples(flow: &mut Dataflow, count: u32, ends: &[Direction]) -> Result<(), NotBatchable> {
    let mut new = flow.with_tables_of(flow.name.clone());
    let mut map: Vec<Value> = Vec::with_capacity(flow.values.len());
    for data in &flow.values {
        new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let args: Vec<Value> = data.args.iter().map(|arg| map[arg.index()]).collect();
        map.push(match data.op {
            Op::LinkLoss(RankingLoss::CrossEntropy) => {
                let count = |_| count;
                let mut samples = Samples::new(&mut new, &count);
                samples.loss(&args, ends).map_err(|why| NotBatchable { why, origin: data.origin })?
            }
            _ => new.push(data.op.clone(), &args).expect("the program is typed"),
        });
    }
    new.outputs.clone_from(&flow.outputs);
    new.outputs.iter_mut().for_each(|output| output.value = map[output.value.index()]);
    new.cursor = flow.cursor;
    *flow = new;
    Ok(())
}

/// Scores of pairs whose end is one of some samples of the vertices, the same for all links.
pub(crate) struct Samples<'a> {
    flow: &'a mut Dataflow,
    /// The number of samples of a vertex type.
    count: &'a dyn Fn(VertexType) -> u32,
    /// The rows of a vertex value at the samples.
    tables: FxHashMap<Value, Value>,
}

/// Scores that are linear in the rows of an end.
pub(crate) struct LinearScores {
    /// The scores of each link with each sample in place of the end, but for what is the same for all of them.
    pub samples: Value,
    /// The rows of the end that the score depends on, and what each is multiplied by.
    factors: Vec<(Value, Value)>,
}

impl<'a> Samples<'a> {
    pub fn new(flow: &'a mut Dataflow, count: &'a dyn Fn(VertexType) -> u32) -> Self {
        Self { flow, count, tables: FxHashMap::default() }
    }

    /// The space of a value.
    pub fn space(&self, of: Value) -> Space {
        self.flow.ty(of).space
    }

    /// The mean over links and ends.
    fn loss(&mut self, scores: &[Value], ends: &[Direction]) -> Result<Value, String> {
        let (mut total, mut count) = (None, None);
        for &score in scores {
            let Space::Edges(graph) = self.flow.ty(score).space else { unreachable!("scores are values of pairs") };
            for &direction in ends {
                let each = self.of_end(score, graph, direction)?;
                let sum = self.push(Op::ReduceSpace(Reduce::Sum), &[each])?;
                total = Some(self.joined(total, sum)?);
                let edges = self.push(Op::Count(Space::Edges(graph)), &[])?;
                count = Some(self.joined(count, edges)?);
            }
        }
        let (total, count) = (total.expect("a loss has scores"), count.expect("a loss has scores"));
        self.push(Op::Binary(BinaryOp::Div), &[total, count])
    }

    /// The cross entropy of each link of a graph among the samples in place of its destination (`In`) or source.
    fn of_end(&mut self, score: Value, graph: Graph, direction: Direction) -> Result<Value, String> {
        let LinearScores { samples, factors } = self.scores(score, graph, direction)?;
        let mut own = None;
        for (row, query) in factors {
            let products = self.push(Op::Binary(BinaryOp::Mul), &[query, row])?;
            let axes = self.flow.ty(products).dims.len();
            let of_link = match axes {
                0 => products,
                axes => self.push(Op::ReduceTrailing { reduce: Reduce::Sum, axes }, &[products])?,
            };
            own = Some(self.joined(own, of_link)?);
        }
        let own = own.expect("the score depends on rows");
        let others = self.push(Op::ReduceTrailing { reduce: Reduce::Lse, axes: 1 }, &[samples])?;
        let is_sample = self.is_sample(graph, direction)?;
        let nothing = self.flow.constant(NOTHING);
        let left_out = self.push(Op::Binary(BinaryOp::Mul), &[is_sample, nothing])?;
        let added = self.push(Op::Binary(BinaryOp::Add), &[own, left_out])?;
        let all = self.push(Op::Binary(BinaryOp::LogAddExp), &[others, added])?;
        self.push(Op::Binary(BinaryOp::Sub), &[all, own])
    }

    /// The scores of the links of a graph with the samples in place of their destinations (`In`) or sources.
    pub fn scores(&mut self, score: Value, graph: Graph, direction: Direction) -> Result<LinearScores, String> {
        let rows = self.rows_of_end(score, graph, direction);
        let queries = self.queries(score, &rows, direction)?;
        let (mut samples, mut factors) = (None, vec![]);
        for (&row, query) in rows.iter().zip(queries) {
            // A row that the score does not depend on.
            let Some(query) = query else { continue };
            let table = self.at_samples(self.flow.value(row).args[0])?;
            let scores = self.push(Op::MatMulT { batch: 0 }, &[query, table])?;
            samples = Some(self.joined(samples, scores)?);
            factors.push((row, query));
        }
        let samples = samples.ok_or_else(|| format!("the score does not depend on the {}", name(direction)))?;
        Ok(LinearScores { samples, factors })
    }

    /// The rows of an end that a score reads.
    fn rows_of_end(&self, score: Value, graph: Graph, direction: Direction) -> Vec<Value> {
        let gather = if direction == Direction::In { Op::GatherDst(graph) } else { Op::GatherSrc(graph) };
        let mut reads = vec![false; score.index() + 1];
        reads[score.index()] = true;
        let mut found = vec![];
        for value in (0..=score.index()).rev().map(Value::new) {
            if !reads[value.index()] {
                continue;
            }
            let data = self.flow.value(value);
            if data.op == gather {
                found.push(value);
            } else {
                data.args.iter().for_each(|arg| reads[arg.index()] = true);
            }
        }
        found.reverse();
        found
    }

    /// The derivatives of a score by the rows of an end.
    fn queries(&mut self, score: Value, rows: &[Value], direction: Direction) -> Result<Vec<Option<Value>>, String> {
        let not_linear = format!("the score is not linear in the rows of the {}", name(direction));
        let before = self.flow.values.len();
        // A part of the score that hands no gradient on to the rows is not constant for that.
        let mut of_score = vec![false; score.index() + 1];
        of_score[score.index()] = true;
        for value in (0..=score.index()).rev() {
            if of_score[value] {
                self.flow.values[value].args.iter().for_each(|arg| of_score[arg.index()] = true);
            }
        }
        let mut read = vec![false; score.index() + 1];
        for value in (0..=score.index()).filter(|&value| of_score[value]) {
            let data = &self.flow.values[value];
            let depends = data.args.iter().any(|arg| read[arg.index()]);
            if depends && !hands_on(&data.op) {
                return Err(not_linear);
            }
            read[value] = depends || rows.contains(&Value::new(value));
        }
        let sum = self.push(Op::ReduceSpace(Reduce::Sum), &[score])?;
        let found = derivatives(self.flow, sum, rows).map_err(|error| format!("{not_linear}: {}", error.reason))?;
        for data in &mut self.flow.values[before..] {
            data.phase = Phase::Forward;
        }
        // A derivative that depends on the rows is none of a linear score.
        let mut depends: Vec<bool> = Vec::with_capacity(self.flow.values.len());
        for (index, data) in self.flow.values.iter().enumerate() {
            depends.push(rows.contains(&Value::new(index)) || data.args.iter().any(|arg| depends[arg.index()]));
        }
        match found.iter().flatten().any(|query| depends[query.index()]) {
            true => Err(not_linear),
            false => Ok(found),
        }
    }

    /// The rows of a vertex value at the samples, as a table.
    fn at_samples(&mut self, of: Value) -> Result<Value, String> {
        if let Some(&known) = self.tables.get(&of) {
            return Ok(known);
        }
        let ty = self.flow.ty(of).clone();
        let Space::Vertices(vertex) = ty.space else { unreachable!("ends are vertices") };
        let count = (self.count)(vertex);
        let graph = self.flow.graph_to_samples(vertex, count);
        let gathered = self.push(Op::GatherSrc(graph), &[of])?;
        let sum = Op::Segment { graph, direction: Direction::In, reduce: Reduce::Sum };
        let rows = self.push(sum, &[gathered])?;
        let table = self.push(Op::Unrows, &[rows])?;
        let dims = std::iter::once(Dim::Fixed(count as usize)).chain(ty.dims).collect();
        let table = self.push(Op::Reshape(dims), &[table])?;
        self.tables.insert(of, table);
        Ok(table)
    }

    /// 1 for a link whose end is a sample, else 0.
    fn is_sample(&mut self, graph: Graph, direction: Direction) -> Result<Value, String> {
        let decl = &self.flow.graphs[graph.index()];
        let vertex: VertexType = if direction == Direction::In { decl.dst } else { decl.src };
        let samples = self.flow.graph_to_samples(vertex, (self.count)(vertex));
        let one = self.flow.constant(1.0);
        let ones = self.push(Op::Broadcast(Type::new(Space::Edges(samples), vec![])), &[one])?;
        let count = Op::Segment { graph: samples, direction: Direction::Out, reduce: Reduce::Sum };
        let of_vertices = self.push(count, &[ones])?;
        self.push(if direction == Direction::In { Op::GatherDst(graph) } else { Op::GatherSrc(graph) }, &[of_vertices])
    }

    fn joined(&mut self, first: Option<Value>, second: Value) -> Result<Value, String> {
        match first {
            Some(first) => self.push(Op::Binary(BinaryOp::Add), &[first, second]),
            None => Ok(second),
        }
    }

    fn push(&mut self, op: Op, args: &[Value]) -> Result<Value, String> {
        self.flow.push(op, args).map_err(|TypeError(why)| why)
    }
}

/// The end that is replaced.
fn name(direction: Direction) -> &'static str {
    if direction == Direction::In { "destination" } else { "source" }
}
