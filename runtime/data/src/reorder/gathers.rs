//! Gathers of programs, and conditions under which vertices cannot be renumbered.

use std::collections::BTreeMap;

use hgnnc_executable::Executable;
use hgnnc_graph::Adjacency;
use hgnnc_graph::order::Gather;
use hgnnc_ir::ops::Direction;
use hgnnc_ir::types::{Dim, Space, VertexType};
use hgnnc_kernel_ir::kernel::{Body, Index, KernelOp, Level, Program, Rows, Source};

use crate::bound::BoundData;

/// Bytes per gathered `f32` element.
const ELEMENT: usize = 4;

/// Traversals of an epoch that gather vertex rows, in training and evaluation. Gathers of one kernel along the same
/// edges count as one row.
pub(super) fn gathers<'a>(executable: &Executable, data: &'a BoundData) -> Vec<Gather<'a>> {
    // Count by graph, direction and bytes per row.
    let mut found: BTreeMap<(usize, bool, usize), usize> = BTreeMap::new();
    for program in executable.kernels.train.iter().chain([&executable.kernels.infer]) {
        for kernel in program.launches.iter().flat_map(|launch| &launch.kernels) {
            let Body::Traversal(traversal) = &kernel.body else { continue };
            let (Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction)) = traversal.rows else { continue };
            let locals = Program::local_widths(traversal);
            let mut buffers = BTreeMap::new();
            for operand in traversal.instrs.iter().flat_map(|instr| instr.op.operands()) {
                if let (Source::Buffer(buffer), Index::Neighbor) = (operand.source, operand.index) {
                    let width = program.operand_width(&traversal.rows, &locals, operand);
                    let width = width.map_or(0, |width| width.eval(&data.num_vertices));
                    buffers.insert(buffer.index(), width);
                }
            }
            let bytes = ELEMENT * buffers.values().sum::<usize>();
            if bytes > 0 && data.graphs[graph.index()].num_edges() > 0 {
                *found.entry((graph.index(), direction == Direction::Out, bytes)).or_default() += 1;
            }
        }
    }
    let tables = &executable.infer;
    let mut gathers: Vec<Gather<'_>> = vec![];
    for ((graph, out, bytes), times) in found {
        let (decl, topology) = (&tables.graphs[graph], &data.graphs[graph]);
        let (owner, other, incidence) = match out {
            false => (decl.dst, decl.src, &topology.csc),
            true => (decl.src, decl.dst, &topology.csr),
        };
        let gather = gather((owner, other), incidence, data);
        let row = (bytes as f64, times as f64);
        match gathers.iter_mut().find(|known| have_same_edges(known, &gather)) {
            Some(known) => known.rows.push(row),
            None => gathers.push(Gather { rows: vec![row], ..gather }),
        }
    }
    gathers
}

/// A gather of no bytes, along one direction of a graph.
fn gather<'a>((owner, other): (VertexType, VertexType), incidence: &'a Adjacency, data: &BoundData) -> Gather<'a> {
    Gather {
        owner_type: owner.index(),
        other_type: other.index(),
        indptr: &incidence.indptr,
        other: &incidence.indices,
        num_others: data.num_vertices[other.index()],
        rows: vec![],
    }
}

/// Distinct adjacencies that gathers use, in both directions.
pub(super) fn links<'a>(gathers: &[Gather<'_>], executable: &Executable, data: &'a BoundData) -> Vec<Gather<'a>> {
    let mut links: Vec<Gather<'a>> = vec![];
    for (decl, graph) in executable.infer.graphs.iter().zip(&data.graphs) {
        let both = [gather((decl.dst, decl.src), &graph.csc, data), gather((decl.src, decl.dst), &graph.csr, data)];
        if both.iter().any(|link| gathers.iter().any(|gather| have_same_edges(link, gather))) {
            for link in both {
                if !links.iter().any(|other| have_same_edges(other, &link)) {
                    links.push(link);
                }
            }
        }
    }
    links
}

/// Whether two adjacencies have the same edges, as those of a relation and its reverse.
fn have_same_edges(one: &Gather<'_>, other: &Gather<'_>) -> bool {
    (one.owner_type, one.other_type) == (other.owner_type, other.other_type)
        && (std::ptr::eq(one.indptr, other.indptr) || one.indptr == other.indptr && one.other == other.other)
}

/// Why the vertices of a model cannot be renumbered, as a message for the user.
pub fn unsupported_reason(executable: &Executable) -> Option<&'static str> {
    let training = executable.training.as_ref();
    if executable.batch.is_some() || training.is_some_and(|training| training.batch.is_some()) {
        return Some("batches are sampled in the numbers of the dataset");
    }
    if training.is_some_and(|training| training.links().is_some()) || executable.score.is_some() {
        return Some("links are in the numbers of the dataset");
    }
    if !executable.infer.stacks.is_empty() {
        return Some("the pairs of relations and vertices are in the order of the dataset");
    }
    let of_vertices = |space: Space| matches!(space, Space::Vertices(_) | Space::Unit);
    if executable.kernels.infer.outputs.iter().any(|output| !of_vertices(output.ty.space)) {
        return Some("an output has no row for each vertex");
    }
    let programs = || executable.kernels.train.iter().chain([&executable.kernels.infer]);
    if programs().any(uses_global_rng) {
        return Some("a random mask belongs to neither vertices, edges nor features");
    }
    // Vertex rows must be the leading dimension to be renumbered.
    let trailing = |dims: &[Dim]| dims.iter().skip(1).any(|dim| matches!(dim, Dim::Count(_)));
    if executable.infer.params.iter().any(|param| trailing(&param.dims)) {
        return Some("a parameter has columns for vertices");
    }
    None
}

/// Whether a program draws dropout masks by renumbered indices: elements of embedding tables, vertex
/// columns, or active vertices.
pub fn uses_global_rng(program: &Program) -> bool {
    program.kernels().any(|kernel| {
        let Body::Traversal(traversal) = &kernel.body else { return false };
        traversal.instrs.iter().filter(|instr| matches!(instr.op, KernelOp::Mask { .. })).any(|instr| {
            let by_rows = match &traversal.rows {
                Rows::Each(rows) => !rows.counts().is_empty(),
                Rows::Endpoints(..) => instr.level == Level::Row,
                Rows::Once | Rows::Vertices(_) | Rows::Edges(..) | Rows::Elements(..) => false,
            };
            by_rows || !instr.width.counts().is_empty()
        })
    })
}
