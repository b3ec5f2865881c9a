//! Locates the first non-finite number of a training step by re-executing the step in the IR interpreter.
//!
//! Runs only after training has failed, and only if the values of the program fit into [`MOST_BYTES`]: the interpreter
//! is slow.

use std::collections::BTreeMap;

use hgnnc_data::stacks::num_own_params;
use hgnnc_data::{ADVICE, BoundData, Cause, InputData, copy_rows};
use hgnnc_executable::Executable;
use hgnnc_interp::not_finite::{NotFinite, bytes, trace};
use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::dataflow::{Binding, InputDecl};
use hgnnc_ir::training::is_of_loss;
use hgnnc_ir::types::Dim;
use hgnnc_ir::{Dataflow, Graph, Input, Layout, Op, OutputKind, Param, Phase, Space, Value, ValueData, VertexType};
use hgnnc_session::Session;

/// Memory limit for the values of the interpreter, in bytes.
const MOST_BYTES: u64 = 2 << 30;

/// The result of a search.
pub(crate) enum Found {
    /// Name of a non-finite parameter.
    Param(String),
    /// An operation with a non-finite result.
    Operation(Cause),
}

impl Found {
    pub fn into_cause(self) -> Cause {
        match self {
            Found::Operation(cause) => cause,
            Found::Param(name) => Cause {
                text: format!("The parameter `{name}` is not finite: its update was not"),
                advice: ADVICE,
                origin: None,
            },
        }
    }
}

/// Explains the non-finite loss of a step (seed, step, epoch).
pub(crate) fn of_loss(executable: &Executable, session: &mut dyn Session, step: (u64, u64, u64)) -> Option<Found> {
    // A mini-batch program has tables of its own; the evaluation program uses the full graph's.
    let (flow, names) = match (&executable.train, &executable.batch) {
        (Some(train), None) => (train, vec!["loss"]),
        // If the prediction head computes the loss, the search starts from the values that the head reads.
        _ => match &executable.head {
            Some(head) => (&executable.infer, head.inputs.iter().map(|decl| decl.name.as_str()).collect()),
            None => (&executable.infer, results_of_loss(&executable.infer)),
        },
    };
    let from: Vec<Value> = names.into_iter().filter_map(|name| flow.result(name)).collect();
    if from.is_empty() {
        return None;
    }
    find(flow, session, step, &from, None, None)
}

/// The results of an evaluation that the loss is computed from.
fn results_of_loss(infer: &Dataflow) -> Vec<&str> {
    let names = infer.outputs.iter().filter_map(|output| match &output.kind {
        OutputKind::Result(name) => Some(&name[..]),
        OutputKind::UpdateParam(_) | OutputKind::UpdateState(..) => None,
    });
    names.filter(|name| is_of_loss(name)).collect()
}

/// Explains the non-finite loss of a mini-batch whose data a session of its program holds. `vertices` gives the vertices
/// of the batch by type, as numbered in the dataset.
pub(crate) fn of_batch_loss(
    flow: &Dataflow,
    session: &mut dyn Session,
    step: (u64, u64, u64),
    vertices: &dyn Fn(VertexType) -> Option<Vec<u32>>,
) -> Option<Found> {
    find(flow, session, step, &[flow.result("loss")?], None, Some(vertices))
}

/// Explains the non-finite update of a parameter, using `kept`, the parameters of an earlier step.
pub(crate) fn of_update(
    executable: &Executable,
    session: &mut dyn Session,
    step: (u64, u64, u64),
    name: &str,
    kept: &[Vec<f32>],
) -> Option<Found> {
    let as_it_is = Some(Found::Param(name.to_owned()));
    let (Some(flow), None) = (&executable.train, &executable.batch) else { return as_it_is };
    let updates = flow.outputs.iter().filter(|output| matches!(output.kind, OutputKind::UpdateParam(_)));
    let updates: Vec<Value> = updates.map(|output| output.value).collect();
    find(flow, session, step, &updates, Some(kept), None).or(as_it_is)
}

fn is_deferred(data: &BoundData, graph: Graph) -> bool {
    data.graphs.get(graph.index()).is_some_and(|graph| graph.deferred.is_some())
}

fn find(
    flow: &Dataflow,
    session: &mut dyn Session,
    step: (u64, u64, u64),
    from: &[Value],
    params: Option<&[Vec<f32>]>,
    vertices: Option<&dyn Fn(VertexType) -> Option<Vec<u32>>>,
) -> Option<Found> {
    let data = session.data();
    // Edges that are not materialized cannot be evaluated.
    let deferred = |value: &ValueData| match (&value.op, value.ty.space) {
        (Op::MetapathReduce(sum), _) => is_deferred(data, sum.first) || is_deferred(data, sum.second),
        (_, Space::Edges(graph) | Space::Endpoints(graph, _)) => is_deferred(data, graph),
        (_, Space::Unit | Space::Vertices(_) | Space::Index(_)) => false,
    };
    if flow.values.iter().any(deferred) {
        return None;
    }
    let mut bindings =
        Bindings { num_vertices: data.num_vertices.clone(), seed: step.0, step: step.1, ..Bindings::default() };
    bindings.edges = data.graphs.iter().map(|graph| edges(&graph.csc.indptr, &graph.csc.indices)).collect();
    let inputs = |v: &Value| matches!(flow.value(*v).op, Op::Input(_));
    let all: Vec<Value> = flow.handles().filter(inputs).chain(from.iter().copied()).collect();
    if bytes(flow, &bindings, &all) > MOST_BYTES {
        return None;
    }
    for (index, decl) in flow.inputs.iter().enumerate() {
        if let Some(tensor) = input(session, &bindings, index, decl, step) {
            bindings.inputs.insert(Input::new(index), tensor);
        }
    }
    let mut bound = BTreeMap::new();
    for (index, decl) in flow.params.iter().enumerate().take(num_own_params(flow)) {
        let mut numbers = vec![0.0; session.params().len(index)];
        match params {
            Some(kept) => numbers.clone_from(kept.get(index)?),
            None => session.params().read(index, &mut numbers).ok()?,
        }
        // The memory of a batch may hold more rows than it has.
        numbers.truncate(bindings.width(&decl.dims));
        // Parameters are read in the order of the dataset, and programs see them in that of the session.
        if let Some(&Dim::Count(vertex)) = decl.dims.first()
            && let Some(order) = session.data().orders.of(vertex)
        {
            let of_dataset = numbers.clone();
            copy_rows(&of_dataset, &order.original, &mut numbers);
        }
        if numbers.iter().any(|x| !x.is_finite()) {
            return Some(Found::Param(decl.name.clone()));
        }
        if bindings.width(&decl.dims) != numbers.len() {
            return None;
        }
        bound.insert(Param::new(index), Tensor::new(1, numbers.len(), numbers.into_iter().map(f64::from).collect()));
    }
    bindings.params = bound;
    // Of a process with the edges of its own vertices only, there is no more to be evaluated.
    if session.data().graphs.iter().any(|graph| graph.part.is_some()) {
        return None;
    }
    let found = trace(flow, &bindings, from).ok()??;
    let orders = &session.data().orders;
    let id = |vertex: VertexType, row: usize| match vertices {
        Some(vertices) => vertices(vertex).and_then(|ids| ids.get(row).map(|&id| id as usize)).unwrap_or(row),
        None => orders.of(vertex).and_then(|order| order.original.get(row)).map_or(row, |&id| id as usize),
    };
    Some(Found::Operation(described(flow, &bindings, &found, &id)))
}

/// Edges (source, destination) in CSC order.
fn edges(indptr: &[u64], sources: &[u32]) -> Vec<(u32, u32)> {
    let row = |(dst, range): (usize, &[u64])| {
        sources[range[0] as usize..range[1] as usize].iter().map(move |&src| (src, dst as u32))
    };
    indptr.windows(2).enumerate().flat_map(row).collect()
}

fn input(
    session: &dyn Session,
    bindings: &Bindings,
    index: usize,
    decl: &InputDecl,
    (_, step, epoch): (u64, u64, u64),
) -> Option<Tensor> {
    match decl.binding {
        Binding::StepNumber => return Some(Tensor::scalar(step as f64)),
        Binding::EpochNumber => return Some(Tensor::scalar(epoch as f64)),
        Binding::EdgeRank(..) => return None,
        _ => {}
    }
    let data: &BoundData = session.data();
    if let Some(InputData::Missing) = data.inputs.get(index) {
        return None;
    }
    let numbers: Vec<f64> = session.input(index)?.into_iter().map(f64::from).collect();
    let (rows, width) = (bindings.rows(decl.ty.space), bindings.width(&decl.ty.dims));
    if let Layout::Sparse(pattern) = decl.ty.layout {
        let stored = &data.patterns[pattern.index()].csc;
        let mut dense = vec![0.0; rows * width];
        for (row, range) in stored.indptr.windows(2).enumerate() {
            for at in range[0] as usize..range[1] as usize {
                dense[row * width + stored.indices[at] as usize] = *numbers.get(at)?;
            }
        }
        return Some(Tensor::new(rows, width, dense));
    }
    // The memory of a batch may hold more rows than it has.
    let mut numbers = numbers;
    (numbers.len() >= rows * width).then(|| {
        numbers.truncate(rows * width);
        Tensor::new(rows, width, numbers)
    })
}

/// The cause in the user's words; `id` gives the number of a vertex in the dataset.
fn described(
    flow: &Dataflow,
    bindings: &Bindings,
    found: &NotFinite,
    id: &dyn Fn(VertexType, usize) -> usize,
) -> Cause {
    let data = flow.value(found.value);
    let vertex_of = |space: Space, row: usize| match space {
        Space::Vertices(vertex) => id(vertex, row),
        _ => row,
    };
    let place = match data.ty.space {
        Space::Vertices(vertex) => {
            format!(" at vertex {} of `{}`", id(vertex, found.row), flow.vertex_types[vertex.index()].name)
        }
        Space::Edges(graph) => {
            let (src, dst) = bindings.edges[graph.index()][found.row];
            let decl = &flow.graphs[graph.index()];
            let (src, dst) = (id(decl.src, src as usize), id(decl.dst, dst as usize));
            format!(" at the edge from vertex {src} to vertex {dst} of `{}`", decl.name)
        }
        Space::Endpoints(graph, direction) => {
            let vertex = bindings.endpoints(graph, direction).get(found.row).copied().unwrap_or_default();
            let of = flow.graph_end(graph, direction);
            let vertex = vertex_of(of, vertex as usize);
            let of = match of {
                Space::Vertices(vertex) => flow.vertex_types[vertex.index()].name.as_str(),
                _ => "its graph",
            };
            format!(" at vertex {vertex} of `{of}`")
        }
        Space::Unit | Space::Index(_) => String::new(),
    };
    let of = match found.operands[..] {
        [] => String::new(),
        [x] => format!(" of {}", show(x)),
        _ => format!(" of {}", found.operands.iter().map(|&x| show(x)).collect::<Vec<_>>().join(" and ")),
    };
    let when = match data.phase {
        Phase::Forward => "",
        Phase::Backward => " of the gradient",
        Phase::Update => " of the update",
    };
    let name = match &data.op {
        Op::Input(input) => format!("the input `{}`", flow.inputs[input.index()].name),
        Op::Unary(f) => format!("`{}`", f.name()),
        Op::Binary(f) => format!("`{}`", f.name()),
        Op::MatMul { .. } | Op::MatMulT { .. } | Op::Outer { .. } => "a matrix product".to_owned(),
        Op::Segment { reduce, .. } | Op::SegmentEndpoints { reduce, .. } => format!("`{}` over edges", reduce.name()),
        Op::ReduceTrailing { reduce, .. } => format!("`{}` over dimensions", reduce.name()),
        Op::ReduceSpace(reduce) => format!("`{}` over all rows", reduce.name()),
        _ => "a value".to_owned(),
    };
    let column = if bindings.width(&data.ty.dims) > 1 { format!(", element {}", found.column) } else { String::new() };
    Cause {
        text: format!("The first number{when} that is not finite is {}: {name}{of}{place}{column}", show(found.number)),
        // Overflow of a product, or NaN from finite operands.
        advice: if found.number.is_infinite() && found.operands.iter().all(|&x| x != 0.0) { ADVICE } else { "" },
        origin: data.origin,
    }
}

fn show(number: f64) -> String {
    if number.is_finite() { format!("{number:.6}") } else { format!("{number}") }
}
