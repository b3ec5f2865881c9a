//! Generates PTX for kernel programs.

use hgnnc_diag::SourceMap;
use hgnnc_ir::{Direction, Origin};
use hgnnc_kernel_ir::kernel::{Body, Program, Rows};
use hgnnc_passes::SizeInfo;
use hgnnc_ptx::{Edges, Hints, Module, Target, Unsupported};

/// Translates the kernels of a program to PTX. With sizes, teams of threads are shaped for the degrees of the rows; the
/// code is correct for other degrees as well. Comments in the PTX refer to source lines.
///
/// # Errors
/// If a kernel cannot be translated to PTX.
pub fn ptx(
    program: &Program,
    target: Target,
    sizes: Option<&SizeInfo>,
    sources: &SourceMap,
) -> Result<Module, Unsupported> {
    let edges = sizes.map(|sizes| all_edges(program, sizes)).unwrap_or_default();
    // Byte offset of each line end, per file.
    let ends: Vec<Vec<usize>> =
        sources.files().iter().map(|file| file.text.match_indices('\n').map(|(end, _)| end).collect()).collect();
    let source = |origin: Origin| {
        let Some(file) = sources.files().get(origin.file as usize) else { return String::new() };
        let before = ends[origin.file as usize].partition_point(|&end| end < origin.start as usize);
        format!("{}:{}", file.name, before + 1)
    };
    hgnnc_ptx::compile(program, target, Hints { edges: &edges, source: Some(&source) })
}

/// The degree statistics of the rows of all traversals.
fn all_edges(program: &Program, sizes: &SizeInfo) -> Vec<(Rows, Edges)> {
    let mut found: Vec<(Rows, Edges)> = vec![];
    for kernel in program.kernels() {
        let Body::Traversal(traversal) = &kernel.body else { continue };
        let rows = &traversal.rows;
        if let Some(edges) = edges(program, rows, sizes)
            && !found.iter().any(|(known, _)| known == rows)
        {
            found.push((rows.clone(), edges));
        }
    }
    found
}

fn edges(program: &Program, rows: &Rows, sizes: &SizeInfo) -> Option<Edges> {
    let tables = &program.tables;
    let longest = |graph: &hgnnc_ir::Graph, direction: &Direction| {
        let ends = sizes.ends.get(graph.index());
        ends.map_or(0, |ends| if *direction == Direction::In { ends.max_in } else { ends.max_out })
    };
    let (edges, rows, most) = match rows {
        Rows::Once | Rows::Each(_) | Rows::Vertices(_) => return None,
        Rows::Edges(graph, direction) => {
            let decl = &tables.graphs[graph.index()];
            let end = match direction {
                Direction::In => decl.dst,
                Direction::Out => decl.src,
            };
            (*sizes.edges.get(graph.index())?, *sizes.vertices.get(end.index())?, longest(graph, direction))
        }
        Rows::Endpoints(graph, direction) => {
            (*sizes.edges.get(graph.index())?, sizes.num_endpoints(*graph, *direction)?, longest(graph, direction))
        }
        Rows::Elements(pattern, direction) => {
            let decl = &tables.patterns[pattern.index()];
            let rows = match direction {
                Direction::In => *sizes.vertices.get(decl.vertex.index())?,
                Direction::Out => decl.columns as u64,
            };
            // The skew of sparse features is unknown.
            (*sizes.stored.get(pattern.index())?, rows, 0)
        }
    };
    Some(Edges { mean: edges as f64 / rows.max(1) as f64, most })
}
