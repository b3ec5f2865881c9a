//! Data requirements of mini-batch programs.

use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::ops::Direction;
use hgnnc_ir::types::{DType, Space};
use hgnnc_kernel_ir::kernel::{Body, Contents, Program, Rows, Source as Operand};

/// Use of graphs and vertex types by the kernels of a program.
pub(super) struct Uses {
    /// By topology: whether it is traversed from its sources, so that it needs a CSR.
    pub outgoing: Vec<bool>,
    /// By vertex type: whether it is only gathered along edges from inputs, never computed on or counted. Such vertices
    /// keep their full-graph ids and their rows are not copied.
    pub direct: Vec<bool>,
}

impl Uses {
    pub fn of(program: &Program, layout: &BatchLayout) -> Self {
        let tables = &program.tables;
        let mut outgoing = vec![false; tables.graphs.len() + tables.patterns.len()];
        let mut direct = vec![true; tables.vertex_types.len()];
        let mut computed = |space: Space| match space {
            Space::Vertices(vertex) => direct[vertex.index()] = false,
            Space::Endpoints(graph, direction) => {
                let decl = &tables.graphs[graph.index()];
                direct[if direction == Direction::In { decl.dst } else { decl.src }.index()] = false;
            }
            Space::Unit | Space::Edges(_) | Space::Index(_) => {}
        };
        for decl in &program.buffers {
            let numbers = decl.ty.dtype == DType::F32 && !decl.ty.is_sparse();
            if !(numbers && matches!(decl.contents, Contents::Input(_))) {
                computed(decl.ty.space);
            }
        }
        for kernel in program.kernels() {
            match &kernel.body {
                Body::Gemm(gemm) => computed(gemm.rows),
                // Mini-batch programs have no factored metapaths: they are derived before that pass.
                Body::FactoredMetapath(_) | Body::Exchange(_) => {}
                Body::Traversal(traversal) => {
                    match traversal.rows {
                        Rows::Vertices(vertex) => computed(Space::Vertices(vertex)),
                        Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction) => {
                            computed(Space::Endpoints(graph, direction));
                            outgoing[graph.index()] |= direction == Direction::Out;
                        }
                        Rows::Elements(pattern, direction) => {
                            outgoing[tables.graphs.len() + pattern.index()] |= direction == Direction::Out;
                        }
                        Rows::Once | Rows::Each(_) => {}
                    }
                    for operand in traversal.instrs.iter().flat_map(|instr| instr.op.operands()) {
                        if let Operand::Count(space) = operand.source {
                            computed(space);
                        }
                    }
                }
            }
        }
        layout.historical.iter().for_each(|reused| computed(Space::Vertices(reused.rows)));
        program.outputs.iter().for_each(|output| computed(output.ty.space));
        for (graph, direction) in program.endpoints() {
            computed(Space::Endpoints(graph, direction));
            outgoing[graph.index()] |= direction == Direction::Out;
        }
        tables.graphs.iter().for_each(|decl| direct[decl.dst.index()] = false);
        layout.patterns.iter().for_each(|pattern| direct[pattern.rows.index()] = false);
        for (_, known) in &layout.rows {
            let of_batch = layout.vertices.iter().position(|other| other == known);
            of_batch.into_iter().for_each(|vertex| direct[vertex] = false);
        }
        Self { outgoing, direct }
    }
}
