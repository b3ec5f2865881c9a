//! Dependences of the outputs of a trained model, for requests about some vertices: the part of the graph that a request
//! must bring, the vertices that it cannot be about, and the values that would change if it brought a part only.
//!
//! The walk goes from an output to its operands, as that of mini-batches does (`passes::minibatch`): a value at a vertex
//! is needed within as many hops of the vertices asked about as gathers from sources lie between. Other than a batch, a
//! request may also depend on out-edges (degrees of sources) and on sums over all vertices: these are named, not refused.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::types::{Graph, Input, Origin, Param, Space, Stage, Value, VertexType};
use hgnnc_ir::{Dataflow, Dim, Direction, Op, OutputKind};

/// The dependences of one output of a forward program.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// Name of the output.
    pub output: String,
    /// The space of its rows.
    pub rows: Space,
    /// Hops from a vertex that is asked about to the farthest vertex that its output depends on.
    pub hops: usize,
    /// The edges that are needed, by graph.
    pub edges: BTreeMap<Graph, Edges>,
    /// The inputs that are read.
    pub inputs: BTreeSet<Input>,
    /// The parameters with a row for each vertex of a type, which unseen vertices lack.
    pub tables: Vec<Table>,
    /// The values that are computed from all vertices of a type, or all edges of a graph.
    pub whole: Vec<Whole>,
}

/// The edges of a graph that a request must bring.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Edges {
    /// The distances from the vertices asked about at which all in-edges of the vertices are needed.
    pub incoming: BTreeSet<usize>,
    /// The distances at which all out-edges are needed.
    pub outgoing: BTreeSet<usize>,
}

/// A parameter with a row for each vertex of a type.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Table {
    pub param: Param,
    pub vertex: VertexType,
    /// Where it is used in the source, if known.
    pub origin: Option<Origin>,
}

/// A value that is computed from all rows of a space.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Whole {
    /// All vertices of a type, or all edges of a graph.
    pub of: Space,
    /// The stage that it belongs to: fusion of semantic graphs ([`Stage::SF`]), or another.
    pub stage: Stage,
    /// Where it is in the source, if known.
    pub origin: Option<Origin>,
}

impl Request {
    /// The dependences of each output of a forward program, without its losses.
    pub fn of(flow: &Dataflow) -> Vec<Request> {
        let outputs = flow.outputs.iter().filter_map(|output| match &output.kind {
            OutputKind::Result(name) if name != "loss" && name != "row_loss" => Some((name, output.value)),
            OutputKind::Result(_) | OutputKind::UpdateParam(_) | OutputKind::UpdateState(..) => None,
        });
        outputs.map(|(name, value)| Request::of_value(flow, name, value)).collect()
    }

    fn of_value(flow: &Dataflow, output: &str, value: Value) -> Request {
        let mut request = Request {
            output: output.to_owned(),
            rows: flow.ty(value).space,
            hops: 0,
            edges: BTreeMap::new(),
            inputs: BTreeSet::new(),
            tables: vec![],
            whole: vec![],
        };
        // By value: the distances within which it is needed.
        let mut needed: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); flow.values.len()];
        needed[value.index()].insert(0);
        for value in flow.handles().rev() {
            let distances = std::mem::take(&mut needed[value.index()]);
            if distances.is_empty() {
                continue;
            }
            let further = request.step(flow, value, &distances);
            for arg in &flow.value(value).args {
                needed[arg.index()].extend(distances.iter().map(|distance| distance + further));
            }
        }
        request
    }

    /// Records what one operation depends on. Returns the hops by which its operands are farther away.
    fn step(&mut self, flow: &Dataflow, value: Value, distances: &BTreeSet<usize>) -> usize {
        let data = flow.value(value);
        let is_scored = |graph: Graph| flow.graphs[graph.index()].links;
        let farthest = distances.last().copied().unwrap_or(0);
        match &data.op {
            Op::Input(input) => {
                self.inputs.insert(*input);
                // A count or weight of edges is known where the edges are.
                if let Binding::EdgeRank(graph, Direction::Out) = flow.inputs[input.index()].binding {
                    self.edges.entry(graph).or_default().outgoing.extend(distances);
                }
            }
            Op::GatherSrc(graph) if !is_scored(*graph) => {
                self.hops = self.hops.max(farthest + 1);
                self.edges.entry(*graph).or_default().incoming.extend(distances);
                return 1;
            }
            Op::Segment { graph, direction: Direction::In, .. }
            | Op::SegmentEndpoints { graph, direction: Direction::In, .. }
            | Op::SegmentArg { graph, direction: Direction::In, .. } => {
                self.edges.entry(*graph).or_default().incoming.extend(distances);
            }
            Op::Segment { graph, direction: Direction::Out, .. }
            | Op::SegmentEndpoints { graph, direction: Direction::Out, .. }
            | Op::SegmentArg { graph, direction: Direction::Out, .. } => {
                self.edges.entry(*graph).or_default().outgoing.extend(distances);
                // The edges belong to vertices one hop away, whose values some sums read and degrees do not.
                return usize::from(reads_destinations(flow, data.args.iter().copied(), *graph));
            }
            Op::MetapathReduce(sum) => {
                self.hops = self.hops.max(farthest + 2);
                self.edges.entry(sum.second).or_default().incoming.extend(distances);
                let middle = distances.iter().map(|distance| distance + 1);
                self.edges.entry(sum.first).or_default().incoming.extend(middle);
                return 2;
            }
            Op::ReduceSpace(_) if matches!(self.space_of(flow, value), Space::Vertices(_) | Space::Edges(_)) => {
                let whole = Whole { of: self.space_of(flow, value), stage: data.stage, origin: data.origin };
                if !self.whole.contains(&whole) {
                    self.whole.push(whole);
                }
            }
            Op::Unrows => {
                let whole = Whole { of: self.space_of(flow, value), stage: data.stage, origin: data.origin };
                if matches!(whole.of, Space::Vertices(_)) && !self.whole.contains(&whole) {
                    self.whole.push(whole);
                }
            }
            Op::Param(param) => {
                let dims = &flow.params[param.index()].dims;
                let of = dims.iter().find_map(|dim| match dim {
                    Dim::Count(vertex) => Some(*vertex),
                    Dim::Fixed(_) => None,
                });
                if let Some(vertex) = of {
                    self.tables.push(Table { param: *param, vertex, origin: data.origin });
                }
            }
            Op::GatherSrc(_)
            | Op::GatherDst(_)
            | Op::ReduceSpace(_)
            | Op::State(..)
            | Op::Const(_)
            | Op::Count(_)
            | Op::RandomMask { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Broadcast(_)
            | Op::StopGradient
            | Op::Reshape(_)
            | Op::Concat
            | Op::Slice { .. }
            | Op::Transpose { .. }
            | Op::OneHot { .. }
            | Op::Rows
            | Op::Reindex(_)
            | Op::LinkLoss(_)
            | Op::MatMul { .. }
            | Op::MatMulT { .. }
            | Op::Outer { .. }
            | Op::RowProduct { .. }
            | Op::Grouped { .. }
            | Op::GatherRows(..)
            | Op::ScatterRows(..)
            | Op::ScatterAdd(_)
            | Op::Exchange(_)
            | Op::SumRanks
            | Op::ReduceTrailing { .. } => {}
        }
        0
    }

    /// The space of the operand of a reduction.
    fn space_of(&self, flow: &Dataflow, value: Value) -> Space {
        flow.value(value).args.first().map_or(Space::Unit, |arg| flow.ty(*arg).space)
    }

    /// Whether the output can be computed from the neighbourhood of the vertices that are asked about, and be what it is
    /// on the whole graph.
    pub fn is_local(&self) -> bool {
        self.whole.is_empty()
    }
}

/// Whether edge values of a graph depend on values of its destinations.
fn reads_destinations(flow: &Dataflow, values: impl Iterator<Item = Value>, graph: Graph) -> bool {
    let mut left: Vec<Value> = values.collect();
    let mut seen = BTreeSet::new();
    while let Some(value) = left.pop() {
        let data = flow.value(value);
        match data.op {
            Op::GatherDst(of) if of == graph => return true,
            // Values of the edges themselves.
            _ if data.ty.space == Space::Edges(graph) && seen.insert(value) => left.extend(&data.args),
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use hgnnc_ir::parse;

    /// Two hops along `cites`, with a norm by the out-degree of the sources, a table of authors, and a mean over papers.
    const TEXT: &str = r#"dataflow m {
  vertex Paper from "paper"
  vertex Author from "author"
  relation cites: Paper -> Paper from "cites"
  relation writes: Author -> Paper from "writes"
  graph C: Paper -> Paper = >cites
  graph W: Author -> Paper = >writes
  input Paper.x : f32[Paper; 3] = features(Paper)
  param emb : f32[|Author|, 3] = normal(0.1)
  %0 = input Paper.x : f32[Paper; 3] @FP
  %1 = gather.src C, %0 : f32[edges(C); 3] @NA
  %2 = segment.sum.in C, %1 : f32[Paper; 3] @NA
  %3 = param emb : f32[|Author|, 3] @FP
  %4 = rows %3 : f32[Author; 3] @FP
  %5 = gather.src W, %4 : f32[edges(W); 3] @NA
  %6 = segment.sum.in W, %5 : f32[Paper; 3] @NA
  %7 = add %2, %6 : f32[Paper; 3] @NA
  %8 = gather.src C, %7 : f32[edges(C); 3] @NA
  %9 = segment.sum.in C, %8 : f32[Paper; 3] @NA
  %10 = const 1 : f32[] @NA
  %11 = broadcast %10 : f32[edges(C)] @NA
  %12 = segment.sum.out C, %11 : f32[Paper] @NA
  %13 = mul %12, %9 : f32[Paper; 3] @NA
  %14 = reduce_space.sum %9 : f32[3] @SF
  %15 = add %13, %14 : f32[Paper; 3] @SF
  result near = %2
  result far = %13
  result all = %15
}
"#;

    fn distances(of: &BTreeSet<usize>) -> Vec<usize> {
        of.iter().copied().collect()
    }

    #[test]
    fn outputs_need_what_they_are_computed_from() {
        let flow = parse(TEXT).unwrap_or_else(|error| panic!("{error}"));
        hgnnc_ir::verify(&flow).unwrap_or_else(|broken| panic!("{broken:?}"));
        let [near, far, all] = &Request::of(&flow)[..] else { panic!("three outputs") };
        let graph = |name: &str| Graph::new(flow.graphs.iter().position(|decl| decl.name == name).unwrap());
        let (cites, writes) = (graph("C"), graph("W"));

        assert_eq!((near.hops, near.tables.len(), near.is_local()), (1, 0, true));
        assert_eq!(near.edges.keys().copied().collect::<Vec<_>>(), [cites]);
        assert_eq!(distances(&near.edges[&cites].incoming), [0]);

        assert_eq!((far.hops, far.is_local()), (2, true));
        assert_eq!(distances(&far.edges[&cites].incoming), [0, 1]);
        assert_eq!(distances(&far.edges[&cites].outgoing), [0]);
        assert_eq!(distances(&far.edges[&writes].incoming), [1]);
        assert_eq!(far.tables.iter().map(|table| table.vertex).collect::<Vec<_>>(), [VertexType::new(1)]);

        assert!(!all.is_local());
        assert_eq!((all.whole[0].of, all.whole[0].stage), (Space::Vertices(VertexType::new(0)), Stage::SF));
    }
}
