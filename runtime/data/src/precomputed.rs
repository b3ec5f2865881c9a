//! The cache of precomputed rows: a key for a program and the data that it reads, so that rows are found again without
//! computing them, and without the graphs of metapaths that they are computed along.

use std::fmt::Write as _;

use hgnnc_dataset::Dataset;
use hgnnc_graph::{CacheKey, GraphCache, MetapathOptions};
use hgnnc_ir::dataflow::{Binding, Dataflow, SelfLoops};
use hgnnc_ir::types::{Graph, Input, Layout, Space, VertexType};
use hgnnc_ir::{Op, Type};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::bind::{BindOptions, Binder};
use crate::bound::{BoundData, InputData};
use crate::error::Result;
use crate::past::{Builders, Past};

/// Incremented with every change of what is hashed, and of the meaning of an operation.
const VERSION: u32 = 2;

/// The cache of a dataset, if the options ask for one and the dataset lies in a folder.
pub fn rows_cache(dataset: &Dataset, options: &BindOptions) -> Option<GraphCache> {
    GraphCache::beside(dataset, options.graph_cache?)
}

/// The key of the results of a program without parameters: a hash of its operations, of the edges of its graphs and of
/// its inputs, whatever positions these have in the tables of the model; and of the passes that it is compiled without, since
/// sums are taken in another order then. `None` if an input is not bound yet.
///
/// # Errors
/// A vertex type or relation that the dataset does not have.
pub fn key_of_rows(
    program: &Dataflow,
    data: &BoundData,
    dataset: &Dataset,
    options: &BindOptions,
    without_passes: &[String],
) -> Result<Option<CacheKey>> {
    let binder = Binder::new(program, dataset, options)?;
    let past = Past::new(program, &binder.relations, dataset)?;
    let builders = Builders::new(dataset, past.as_ref(), options);
    let mut used = Used::default();
    let mut without: Vec<&String> = without_passes.iter().collect();
    without.sort();
    let mut text = format!("{without:?}\n");
    for value in program.handles() {
        let known = program.value(value);
        let op = used.op(&known.op);
        // A string takes all text.
        let _ = writeln!(text, "{op:?} {:?} {:?}", known.args, used.ty(&known.ty));
    }
    for output in &program.outputs {
        let _ = writeln!(text, "result {:?}", output.value);
    }
    let mut hash = Xxh3::new();
    hash.update(&VERSION.to_le_bytes());
    for &graph in &used.graphs {
        let decl = &program.graphs[graph.index()];
        let source = builders.of(&binder, decl);
        let self_loops = decl.self_loops == SelfLoops::Added;
        let of_path = MetapathOptions { counted: decl.counted, self_loops, ..MetapathOptions::default() };
        let edges = CacheKey::new(source.builder, &source.steps, of_path);
        let _ =
            writeln!(text, "graph {:032x} {:?} {:?} {:?}", edges.number(), decl.self_loops, decl.kept, decl.shuffle);
    }
    for &vertex in &used.vertices {
        let _ = writeln!(text, "vertices {}", data.num_vertices[vertex.index()]);
    }
    for &input in &used.inputs.clone() {
        let decl = &program.inputs[input.index()];
        let _ = writeln!(text, "input {:?}", used.ty(&decl.ty));
        match (&decl.binding, data.inputs.get(input.index())) {
            // These are what the edges of their graph say.
            (Binding::EdgeCount(_), _) => text.push_str("counts"),
            (Binding::EdgeRank(_, direction), _) => _ = write!(text, "ranks {direction:?}"),
            (_, Some(InputData::Numbers(numbers))) => {
                let _ = write!(text, "{:032x}", xxh3_128(bytemuck::cast_slice(numbers)));
            }
            _ => return Ok(None),
        }
        if let Layout::Sparse(pattern) = decl.ty.layout {
            let rows = &data.patterns[pattern.index()].csc;
            for bytes in [bytemuck::cast_slice(&rows.indptr[..]), bytemuck::cast_slice(&rows.indices[..])] {
                let _ = write!(text, " {:032x}", xxh3_128(bytes));
            }
        }
    }
    hash.update(text.as_bytes());
    Ok(Some(CacheKey::of_rows(hash.digest128())))
}

/// The entries of the tables that a program reads, in the order of their first use. Handles are renumbered by it.
#[derive(Default)]
struct Used {
    vertices: Vec<VertexType>,
    graphs: Vec<Graph>,
    inputs: Vec<Input>,
}

fn position<T: PartialEq + Copy>(known: &mut Vec<T>, entry: T) -> usize {
    known.iter().position(|other| *other == entry).unwrap_or_else(|| {
        known.push(entry);
        known.len() - 1
    })
}

impl Used {
    fn graph(&mut self, graph: Graph) -> Graph {
        Graph::new(position(&mut self.graphs, graph))
    }

    fn space(&mut self, space: Space) -> Space {
        match space {
            Space::Vertices(vertex) => Space::Vertices(VertexType::new(position(&mut self.vertices, vertex))),
            Space::Edges(graph) => Space::Edges(self.graph(graph)),
            Space::Endpoints(graph, direction) => Space::Endpoints(self.graph(graph), direction),
            Space::Unit | Space::Index(_) => space,
        }
    }

    /// Stored elements are among the contents of inputs.
    fn ty(&mut self, ty: &Type) -> Type {
        Type { space: self.space(ty.space), layout: Layout::Dense, ..ty.clone() }
    }

    fn op(&mut self, op: &Op) -> Op {
        match op {
            Op::Input(input) => Op::Input(Input::new(position(&mut self.inputs, *input))),
            Op::Count(space) => Op::Count(self.space(*space)),
            Op::Broadcast(ty) => Op::Broadcast(self.ty(ty)),
            Op::GatherSrc(graph) => Op::GatherSrc(self.graph(*graph)),
            Op::GatherDst(graph) => Op::GatherDst(self.graph(*graph)),
            Op::Segment { graph, direction, reduce } => {
                Op::Segment { graph: self.graph(*graph), direction: *direction, reduce: *reduce }
            }
            other => other.clone(),
        }
    }
}
