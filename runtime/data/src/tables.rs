//! Requirements of programs on the data that they are bound to, and the memory that their values take.

use hgnnc_graph::Adjacency;
use hgnnc_ir::dataflow::{Binding, Dataflow, OutputKind};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::types::{Dim, Graph, Param, Space};
use hgnnc_kernel_ir::kernel::{Body, Contents, Program, Rows};
use rayon::prelude::*;

use crate::bound::{BoundData, InputData, Topology};
use crate::error::{ExecError, Result};

/// An optimizer state: its parameter and slot, in the order of the state slabs.
pub type StateId = (Param, u32);

/// Planned memory for values, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arena {
    /// Values of a run; programs share the memory.
    pub run: u64,
    /// Run-independent values, constants and counters.
    pub fixed: u64,
    /// Partial results of tasks; programs share the memory.
    pub partials: u64,
    /// Scratch of all threads.
    pub scratch: u64,
}

impl Arena {
    /// Total bytes over all purposes.
    pub fn bytes(&self) -> u64 {
        self.run + self.fixed + self.partials + self.scratch
    }
}

/// Extent of a dimension in this data.
pub fn extent(data: &BoundData, dim: Dim) -> usize {
    match dim {
        Dim::Fixed(extent) => extent,
        Dim::Count(vertex) => data.num_vertices[vertex.index()],
    }
}

/// Optimizer states that a program reads or writes.
pub fn collect_states(programs: &[&Program]) -> Vec<StateId> {
    let mut states: Vec<StateId> = vec![];
    for program in programs {
        states.extend(program.outputs.iter().filter_map(|output| match output.kind {
            OutputKind::UpdateState(param, slot) => Some((param, slot)),
            OutputKind::Result(_) | OutputKind::UpdateParam(_) => None,
        }));
        states.extend(program.buffers.iter().filter_map(|buffer| match buffer.contents {
            Contents::State(param, slot) => Some((param, slot)),
            Contents::Input(_) | Contents::Param(_) | Contents::Computed => None,
        }));
    }
    states.sort_unstable();
    states.dedup();
    states
}

/// Checks that graphs and patterns have the sizes in the tables.
pub fn check_tables(flow: &Dataflow, data: &BoundData) -> Result<()> {
    let wrong = |what: String, found: String, expected: String| Err(ExecError::Shape { what, found, expected });
    for (what, found, expected) in [
        ("vertex types", data.num_vertices.len(), flow.vertex_types.len()),
        ("semantic graphs", data.graphs.len(), flow.graphs.len()),
        ("sparse feature matrices", data.patterns.len(), flow.patterns.len()),
    ] {
        if found != expected {
            return wrong("the data".into(), format!("{found} {what}"), expected.to_string());
        }
    }
    if let Some((v, &count)) = data.num_vertices.iter().enumerate().find(|&(_, &n)| u32::try_from(n).is_err()) {
        let what = format!("the vertex type `{}`", flow.vertex_types[v].name);
        return wrong(what, format!("{count} vertices"), "fewer than 2^32".into());
    }
    for (decl, graph) in flow.graphs.iter().zip(&data.graphs) {
        let expected = (data.num_vertices[decl.src.index()], data.num_vertices[decl.dst.index()]);
        if (graph.num_src, graph.num_dst) != expected {
            let show = |(src, dst): (usize, usize)| format!("{src} sources and {dst} destinations");
            let what = format!("the graph `{}`", decl.name);
            return wrong(what, show((graph.num_src, graph.num_dst)), show(expected));
        }
    }
    let mut with_rows = data.graphs.iter().chain(&data.patterns).filter(|it| it.listed.is_none());
    if let Some(bad) = with_rows.find(|it| it.csc.indptr.len() != it.num_dst + 1) {
        let (found, expected) = (bad.csc.indptr.len(), bad.num_dst + 1);
        return wrong(format!("the graph `{}`", bad.name), format!("{found} row positions"), expected.to_string());
    }
    for (decl, pattern) in flow.patterns.iter().zip(&data.patterns) {
        let expected = (data.num_vertices[decl.vertex.index()], decl.columns);
        if (pattern.num_dst, pattern.num_src) != expected {
            let what = format!("the features of `{}`", flow.vertex_types[decl.vertex.index()].name);
            let show = |(rows, columns): (usize, usize)| format!("{rows} rows and {columns} columns");
            return wrong(what, show((pattern.num_dst, pattern.num_src)), show(expected));
        }
    }
    Ok(())
}

/// Checks that all graphs whose edges kernels read are materialized.
pub fn check_materialized(programs: &[&Program], data: &BoundData) -> Result<()> {
    let missing = |graph: &Topology| graph.deferred.is_some() || graph.listed.is_some();
    let missing = |graph: &Graph| data.graphs.get(graph.index()).is_some_and(missing);
    for program in programs {
        let kernels = program.kernels().flat_map(|kernel| match &kernel.body {
            Body::Traversal(traversal) => match traversal.rows {
                Rows::Edges(graph, _) | Rows::Endpoints(graph, _) => vec![graph],
                Rows::Once | Rows::Each(_) | Rows::Vertices(_) | Rows::Elements(..) => vec![],
            },
            Body::FactoredMetapath(reduction) => vec![reduction.first, reduction.second],
            Body::Gemm(_) | Body::Exchange(_) => vec![],
        });
        if let Some(graph) = kernels.chain(program.endpoints().into_iter().map(|ends| ends.0)).find(missing) {
            return Err(ExecError::Unsupported(format!(
                "internal error: `{}` is not materialized, and a kernel goes over its edges",
                data.graphs[graph.index()].name
            )));
        }
    }
    Ok(())
}

/// Adds the inputs that differentiation and optimizers add to a training program: step and epoch counters, and edge
/// ranks. `hold` stores the ranks of an input, given its index.
///
/// # Errors
/// Any error of `hold`.
pub fn add_derived(
    programs: &[&Program],
    data: &mut BoundData,
    mut hold: impl FnMut(usize, &Topology, Direction) -> Result<InputData>,
) -> Result<()> {
    for program in programs {
        for (index, decl) in program.tables.inputs.iter().enumerate() {
            if data.inputs.get(index).is_some_and(|known| !matches!(known, InputData::Missing)) {
                continue;
            }
            let made = match decl.binding {
                Binding::StepNumber => InputData::StepNumber,
                Binding::EpochNumber => InputData::EpochNumber,
                Binding::EdgeRank(graph, direction) => hold(index, &data.graphs[graph.index()], direction)?,
                Binding::Features(..)
                | Binding::Label(..)
                | Binding::TrainMask(_)
                | Binding::Time(_)
                | Binding::EdgeTime(_)
                | Binding::EdgeWeight(_)
                | Binding::EdgeCount(_)
                | Binding::EdgeFeatures(_)
                | Binding::IsLink(_)
                | Binding::Given(_)
                | Binding::Precomputed(..) => InputData::Missing,
            };
            match data.inputs.get_mut(index) {
                Some(missing) => *missing = made,
                None => data.inputs.push(made),
            }
        }
    }
    Ok(())
}

/// Makes room for the inputs that the caller gives: zeros, until the first call. Other inputs that the data does not
/// have are missing.
pub fn add_given(tables: &Dataflow, data: &mut BoundData) {
    data.inputs.resize(tables.inputs.len().max(data.inputs.len()), InputData::Missing);
    for (index, decl) in tables.inputs.iter().enumerate() {
        if let Binding::Given(_) = decl.binding {
            let rows = match decl.ty.space {
                Space::Unit => 1,
                Space::Vertices(vertex) => data.num_vertices[vertex.index()],
                Space::Edges(graph) => data.graphs[graph.index()].num_edges(),
                Space::Index(extent) => extent,
                Space::Endpoints(graph, direction) => data.graphs[graph.index()].endpoints(direction).vertices.len(),
            };
            let width: usize = decl.ty.dims.iter().map(|&dim| extent(data, dim)).product();
            data.inputs[index] = InputData::Numbers(vec![0.0; rows * width].into());
        }
    }
}

/// Checks that the caller gives as many elements of an input as the session has room for.
///
/// # Errors
/// Another number of elements, or an input that is not held.
pub fn check_given(data: &BoundData, index: usize, len: usize) -> Result<()> {
    match data.inputs.get(index) {
        Some(InputData::Held(held)) if *held == len => Ok(()),
        found => Err(ExecError::Shape {
            what: format!("given input {index}"),
            found: format!("{len} elements"),
            expected: match found {
                Some(InputData::Held(held)) => format!("{held} elements"),
                _ => "an input that the session holds".into(),
            },
        }),
    }
}

/// Edge ranks of a graph as an input of their own.
pub fn ranks(_: usize, graph: &Topology, direction: Direction) -> Result<InputData> {
    let mut ranks = vec![0.0; graph.num_edges()];
    graph.write_ranks(direction, &mut ranks)?;
    Ok(InputData::Numbers(ranks.into()))
}

/// Frees the out-edges of graphs and sparse features that no program traverses: an evaluation alone reads in-edges only.
pub fn drop_unused_edges(programs: &[&Program], data: &mut BoundData) {
    let graphs = data.graphs.len();
    let mut outgoing = vec![false; graphs + data.patterns.len()];
    for program in programs {
        for kernel in program.kernels() {
            match &kernel.body {
                Body::Traversal(traversal) => match traversal.rows {
                    Rows::Edges(graph, Direction::Out) | Rows::Endpoints(graph, Direction::Out) => {
                        outgoing[graph.index()] = true;
                    }
                    Rows::Elements(pattern, Direction::Out) => outgoing[graphs + pattern.index()] = true,
                    Rows::Edges(_, Direction::In)
                    | Rows::Endpoints(_, Direction::In)
                    | Rows::Elements(_, Direction::In)
                    | Rows::Once
                    | Rows::Each(_)
                    | Rows::Vertices(_) => {}
                },
                Body::FactoredMetapath(reduction) => {
                    for graph in [reduction.first, reduction.second] {
                        outgoing[graph.index()] |= reduction.direction == Direction::Out;
                    }
                }
                Body::Gemm(_) | Body::Exchange(_) => {}
            }
        }
        for (graph, direction) in program.endpoints() {
            outgoing[graph.index()] |= direction == Direction::Out;
        }
    }
    for (topology, used) in data.graphs.iter_mut().chain(&mut data.patterns).zip(outgoing) {
        if !used {
            topology.csr = Adjacency::default();
        }
    }
}

/// Computes the active vertices that programs have rows for.
pub fn list_endpoints(programs: &[&Program], data: &mut BoundData) {
    let mut used = vec![[false; 2]; data.graphs.len()];
    for (graph, direction) in programs.iter().flat_map(|program| program.endpoints()) {
        used[graph.index()][usize::from(direction == Direction::Out)] = true;
    }
    data.graphs.par_iter_mut().zip(used).for_each(|(graph, [incoming, outgoing])| {
        if incoming {
            graph.list_endpoints(Direction::In);
        }
        if outgoing {
            graph.list_endpoints(Direction::Out);
        }
    });
}
