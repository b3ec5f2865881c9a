//! Precomputed values: rows that depend on no parameter become inputs of programs of mini-batches.
//!
//! SIGN (Rossi et al., 2020) and SeHGNN (Yang et al., AAAI 2023) learn from means of features over metapaths. A program
//! of the whole graph computes them once, as loop-invariant. A mini-batch would sample their edges, in every step: a
//! fan-out makes them noisy, and without one a batch needs most of the graph. Computed before training by a program of
//! their own, they are rows like features, of which a batch gathers those of its vertices, and the hops beneath them
//! are gone:
//!
//! ```text
//! Before:  %2 = gather.src PAP, %0             : f32[edges(PAP); 64]
//!          %3 = segment.sum.in PAP, %2         : f32[Paper; 64]
//!          %6 = div %3, %5                     : f32[Paper; 64]
//!          %8 = matmul %6, w                   : f32[Paper; 16]
//! Program: %3 = div %1, %2                     : f32[Paper; 64]
//!          result "precomputed.0" = %3
//! After:   %0 = input precomputed.0            : f32[Paper; 64]        precomputed.0 = precomputed(Paper, "precomputed.0")
//!          %1 = matmul %0, w                   : f32[Paper; 16]
//! ```
//!
//! A value is *fixed* if it depends on no parameter, random number, step or label of the loss, and on nothing that is
//! another thing in a batch than in the whole graph: a count or a reduction of all vertices, the pairs to score, and
//! graphs that a batch has without its links. The values that are replaced are the last fixed ones on the way to the
//! loss: dense rows of vertices that hold rows of neighbours, read by a value that is not fixed. Of a concatenation
//! these are its parts.
//!
//! A batch has no out-edges, so fixed sums over them are precomputed whatever they hold: `out_degree` is that of the whole
//! graph. It counts the links of a batch as well, which that batch leaves out of its messages.
//!
//! Two kinds of fixed rows stay, since they belong to the edges that a batch has sampled. Degrees and sums of weights
//! hold no rows of neighbours: with a fan-out, a sum over sampled edges is divided by their number. For the same
//! reason, denominators stay what they are, which normalise what is reduced over the sampled edges of a graph: values
//! that are reduced over the same edges, and are read along them again beside other fixed values (a softmax), or divide
//! or scale what is reduced over them (`sum(w * h) / sum(w)`).

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_ir::dataflow::{Binding, InputDecl};
use hgnnc_ir::{
    BinaryOp, DType, Dataflow, Direction, Graph, Input, Op, OpClass, Output, OutputKind, Space, Value, VertexType,
};

use crate::cse::cse;
use crate::pass::PassCx;
use crate::rewrite::rewrite;

/// The name of the pass, for `--disable-pass` and in explanations.
pub const PRECOMPUTE: &str = "precompute";

/// A forward program in two parts.
#[derive(Clone, PartialEq, Debug)]
pub struct Precomputed {
    /// Computes the values over the whole graph. Its tables are those of the forward program, without parameters; a
    /// result for each value.
    pub program: Dataflow,
    /// The forward program, with an input ([`Binding::Precomputed`]) for each result, behind all others.
    pub rest: Dataflow,
    /// Whether a batch could not compute some of the values: sums over out-edges.
    pub needed: bool,
}

/// The last rows on the way to the loss that depend on no parameter, as a program of their own. `None` if there are
/// none. `changed` are the graphs of which a batch leaves edges out.
pub fn precompute(flow: &Dataflow, changed: &BTreeSet<Graph>) -> Option<Precomputed> {
    if frontier(flow, changed).is_empty() {
        return None;
    }
    // Layers that compute the same rows share them.
    let mut flow = flow.clone();
    cse(&mut flow, &mut PassCx::default());
    let flow = &flow;
    let values = frontier(flow, changed);
    let name = |number: usize| format!("precomputed.{number}");
    let mut program = flow.clone();
    program.name = format!("{}.precompute", flow.name);
    program.outputs = values
        .iter()
        .enumerate()
        .map(|(number, &value)| Output { kind: OutputKind::Result(name(number)), value })
        .collect();
    program.remove_dead_values();
    program.params = Default::default();
    let mut rest = flow.clone();
    let mut inputs = BTreeMap::new();
    for (number, &value) in values.iter().enumerate() {
        let ty = flow.ty(value).clone();
        let Space::Vertices(vertex) = ty.space else { continue };
        let binding = Binding::Precomputed(vertex, name(number));
        inputs.insert(value, rest.declare_input(InputDecl { name: name(number), ty, binding }));
    }
    rewrite(&mut rest, |rewriter, value, _| Some(rewriter.add(Op::Input(*inputs.get(&value)?), &[])));
    rest.remove_dead_values();
    let needed = program.values.iter().any(|data| matches!(data.op, Op::Segment { direction: Direction::Out, .. }));
    Some(Precomputed { program, rest, needed })
}

/// The inputs of a program whose rows are precomputed, with the type of their vertices and the elements of a row.
pub fn precomputed_inputs(flow: &Dataflow) -> impl Iterator<Item = (Input, VertexType, usize)> {
    flow.inputs.iter().enumerate().filter_map(|(index, decl)| match decl.binding {
        Binding::Precomputed(vertex, _) => {
            Some((Input::new(index), vertex, decl.ty.dims.iter().filter_map(|dim| dim.fixed()).product()))
        }
        _ => None,
    })
}

/// Facts about a value.
#[derive(Clone, Copy, Default)]
struct Facts {
    /// It is the same in every batch as in the whole graph.
    fixed: bool,
    /// It depends on data of vertices.
    has_rows: bool,
    /// It holds rows of neighbours.
    of_neighbours: bool,
    /// It depends on edges.
    of_edges: bool,
    /// It is the same for each row that there is: of no input, parameter or random number.
    constant: bool,
    /// It depends on a sum over out-edges.
    of_out_edges: bool,
}

/// The values to precompute, in the order of the program.
fn frontier(flow: &Dataflow, changed: &BTreeSet<Graph>) -> BTreeSet<Value> {
    let Some(loss) = flow.result("loss") else { return BTreeSet::new() };
    let mut facts: Vec<Facts> = Vec::with_capacity(flow.values.len());
    for value in flow.handles() {
        facts.push(facts_of(flow, changed, value, &facts));
    }
    let mut found = BTreeSet::new();
    let mut stay = BTreeSet::new();
    let mut seen = BTreeSet::new();
    // Each value with whether its reader is fixed.
    let mut pending = vec![(loss, false)];
    while let Some((value, of_fixed)) = pending.pop() {
        if !seen.insert((value, of_fixed)) {
            continue;
        }
        let (data, known) = (flow.value(value), &facts[value.index()]);
        if is_over_out_edges(flow, &facts, value) {
            found.insert(value);
        } else if !known.fixed {
            for &arg in &data.args {
                if normalises(flow, &facts, value, arg) {
                    stay.insert(arg);
                    pending.extend(flow.value(arg).args.iter().map(|&below| (below, true)));
                } else {
                    pending.push((arg, false));
                }
            }
        } else if is_stored(flow, &facts, value) {
            found.insert(value);
        } else if let (Op::GatherDst(graph), &[arg]) = (&data.op, &data.args[..]) {
            if of_fixed && reduced_over(flow, &facts, arg).contains(graph) {
                stay.insert(arg);
                pending.extend(flow.value(arg).args.iter().map(|&below| (below, true)));
            } else {
                pending.push((arg, true));
            }
        } else if known.of_neighbours || known.of_out_edges {
            pending.extend(data.args.iter().map(|&arg| (arg, true)));
        }
    }
    // Other values that are computed from the sampled edges must agree with them.
    &found - &stay
}

/// Is it a fixed sum over out-edges, or the number of them?
fn is_over_out_edges(flow: &Dataflow, facts: &[Facts], value: Value) -> bool {
    let data = flow.value(value);
    let Op::Segment { graph, direction: Direction::Out, .. } = data.op else { return false };
    let decl = &flow.graphs[graph.index()];
    let counts = || facts[data.args[0].index()].constant && !decl.links && decl.shuffle.is_none();
    facts[value.index()].fixed || counts()
}

/// Does an operation divide or scale what is reduced over edges by a fixed operand that is reduced over the same edges?
fn normalises(flow: &Dataflow, facts: &[Facts], value: Value, operand: Value) -> bool {
    let data = flow.value(value);
    if !matches!(data.op, Op::Binary(BinaryOp::Div | BinaryOp::Mul)) || !facts[operand.index()].of_neighbours {
        return false;
    }
    let own = reduced_over(flow, facts, operand);
    let over_same_edges =
        |other: &Value| !facts[other.index()].fixed && !reduced_over(flow, facts, *other).is_disjoint(&own);
    data.args.iter().any(over_same_edges)
}

/// The graphs over whose in-edges the rows of a value were reduced last. Of a value that is not fixed, only operands that
/// are not fixed count.
fn reduced_over(flow: &Dataflow, facts: &[Facts], value: Value) -> BTreeSet<Graph> {
    let (fixed, space) = (facts[value.index()].fixed, flow.ty(value).space);
    let (mut found, mut seen, mut pending) = (BTreeSet::new(), BTreeSet::from([value]), vec![value]);
    while let Some(value) = pending.pop() {
        let data = flow.value(value);
        if let Op::Segment { graph, direction, .. } = data.op {
            found.extend((direction == Direction::In).then_some(graph));
            continue;
        }
        let same_rows = |arg: &Value| flow.ty(*arg).space == space && facts[arg.index()].fixed == fixed;
        pending.extend(data.args.iter().copied().filter(|arg| same_rows(arg) && seen.insert(*arg)));
    }
    found
}

fn facts_of(flow: &Dataflow, changed: &BTreeSet<Graph>, value: Value, facts: &[Facts]) -> Facts {
    let data = flow.value(value);
    let of = |arg: &Value| &facts[arg.index()];
    let differs = |graph: Graph| {
        let decl = &flow.graphs[graph.index()];
        decl.links || decl.shuffle.is_some() || changed.contains(&graph)
    };
    let on_other_edges = match data.ty.space {
        Space::Edges(graph) | Space::Endpoints(graph, _) => differs(graph),
        Space::Unit | Space::Vertices(_) | Space::Index(_) => false,
    };
    let of_batch = |space: Space| !matches!(space, Space::Unit | Space::Index(_));
    let fixed = match (&data.op, data.op.class()) {
        (Op::Input(input), _) => match flow.inputs[input.index()].binding {
            Binding::Features(..)
            | Binding::Time(_)
            | Binding::EdgeTime(_)
            | Binding::EdgeWeight(_)
            | Binding::EdgeCount(_)
            | Binding::EdgeFeatures(_)
            | Binding::EdgeRank(..) => true,
            Binding::Label(..)
            | Binding::TrainMask(_)
            | Binding::IsLink(_)
            | Binding::Given(_)
            | Binding::Precomputed(..)
            | Binding::StepNumber
            | Binding::EpochNumber => false,
        },
        (Op::Const(_) | Op::Segment { .. }, _) => true,
        (Op::Count(space), _) => !of_batch(*space),
        // These are over all rows of their operand, which are those of a batch.
        (Op::ReduceSpace(_) | Op::Outer { .. } | Op::Unrows, _) => !of_batch(flow.ty(data.args[0]).space),
        // Parameters, optimizer states, and random numbers.
        (_, OpClass::Leaf | OpClass::Random) => false,
        // Of pairs to score, which are others in every batch.
        (_, OpClass::Reindex | OpClass::ReduceRows) => false,
        // Made by passes that come later.
        (_, OpClass::GroupedProduct | OpClass::Segment | OpClass::Endpoints) => false,
        (_, OpClass::MetapathReduce | OpClass::Exchange) => false,
        (_, OpClass::Elementwise | OpClass::View | OpClass::Row) => true,
        (_, OpClass::Product | OpClass::Outer | OpClass::Gather) => true,
    };
    let fixed =
        fixed && !on_other_edges && !data.op.graph().is_some_and(differs) && data.args.iter().all(|arg| of(arg).fixed);
    let local = matches!(data.op.class(), OpClass::Elementwise | OpClass::View | OpClass::Row);
    let constant = matches!(data.op, Op::Const(_)) || local && data.args.iter().all(|arg| of(arg).constant);
    if !fixed {
        return Facts { constant, ..Facts::default() };
    }
    let rows_of_input = matches!(data.op, Op::Input(_)) && matches!(data.ty.space, Space::Vertices(_));
    // Rows as of cutoffs have those of their vertices.
    let is_copy = |graph: Graph| {
        let decl = &flow.graphs[graph.index()];
        flow.paths.iter().any(|path| path.vertex == decl.dst && path.cutoffs_of(flow) == Some(decl.src)) && !decl.past
    };
    let gathered = matches!(data.op, Op::GatherSrc(graph) if !is_copy(graph)) && of(&data.args[0]).has_rows;
    Facts {
        fixed,
        has_rows: rows_of_input || data.args.iter().any(|arg| of(arg).has_rows),
        of_neighbours: gathered || data.args.iter().any(|arg| of(arg).of_neighbours),
        of_edges: matches!(data.ty.space, Space::Edges(_)) || data.args.iter().any(|arg| of(arg).of_edges),
        constant,
        of_out_edges: matches!(data.op, Op::Segment { direction: Direction::Out, .. })
            || data.args.iter().any(|arg| of(arg).of_out_edges),
    }
}

/// Can a fixed value be rows of an input, and is it no worse than the values that it is computed from?
fn is_stored(flow: &Dataflow, facts: &[Facts], value: Value) -> bool {
    let data = flow.value(value);
    let known = &facts[value.index()];
    // Rows of path instances and edges are many, and hold what a gather finds.
    let of_edges = |vertex| flow.paths.iter().any(|path| path.vertex == vertex && !path.rows.are_of_vertices());
    let is_rows = matches!(data.ty.space, Space::Vertices(vertex) if !of_edges(vertex))
        && data.ty.dtype == DType::F32
        && !data.ty.is_sparse()
        && data.ty.dims.iter().all(|dim| dim.fixed().is_some());
    if !(known.of_neighbours && is_rows) {
        return false;
    }
    // Its parts take no more bytes than a concatenation, and other values or models may read them as well. Parts
    // without rows of neighbours need not be stored, unless they are of the sampled edges.
    let apart = |arg: &Value| facts[arg.index()].of_neighbours || !facts[arg.index()].of_edges;
    !(data.op == Op::Concat && data.args.iter().all(apart))
}
