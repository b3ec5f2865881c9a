//! Where a plan puts the edges of semantic graphs and the rows of tables.

use hgnnc_ir::EdgeShare;
use hgnnc_ir::dataflow::GraphDecl;
use hgnnc_ir::types::{Dim, Graph, VertexType};
use serde::{Deserialize, Serialize};

use super::batches::Batches;
use crate::bound_job::BoundJob;
use crate::ranks::CompiledRanks;

/// The edges of a semantic graph that each rank has.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct GraphPlace {
    /// Its name in the model.
    pub graph: String,
    /// By rank. Whole graph: in-edges of the vertices that it owns. Mini-batches: edges that it samples in the counted
    /// steps.
    pub edges: Vec<u64>,
    /// By rank, if the program goes over the whole graph in both directions: out-edges of the vertices that it owns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_edges: Vec<u64>,
    /// By rank, if relations are shared: the edges to the seeds among those that it samples.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_seeds: Vec<u64>,
}

/// The owners of the rows of a table, a parameter with a row for each vertex of a type.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TablePlace {
    /// The name of the parameter.
    pub table: String,
    /// The vertex type of its rows.
    pub vertex: String,
    /// Elements of a row.
    pub width: usize,
    /// By rank: the first of the rows that it owns, and the one after the last.
    pub rows: Vec<[usize; 2]>,
}

/// The edges of semantic graphs of the whole graph.
pub fn of_whole_graph(bound: &BoundJob, compiled: &CompiledRanks) -> Vec<GraphPlace> {
    let (tables, division) = (&compiled.placed.tables, &compiled.placed.division);
    let is_outward =
        |index: usize| tables.graphs.iter().any(|decl| matches!(decl.share, EdgeShare::Out(of) if of.index() == index));
    let mut places = vec![];
    for (index, (graph, decl)) in bound.data.graphs.iter().zip(&tables.graphs).enumerate() {
        // Metapath graphs that are not materialized have no edges.
        if decl.share != EdgeShare::In || graph.deferred.is_some() {
            continue;
        }
        let of_owners = |vertex: VertexType, count: usize, ends: &[u32]| {
            let borders = &division.vertices(vertex, count).borders()[1..];
            let mut edges = vec![0; division.ranks];
            ends.iter().for_each(|&end| edges[borders.partition_point(|&border| border <= end as usize)] += 1);
            edges
        };
        let starts = division.vertices(decl.dst, graph.num_dst).borders();
        let edges = match &graph.listed {
            Some(destinations) => of_owners(decl.dst, graph.num_dst, destinations),
            None => starts.windows(2).map(|ends| graph.csc.indptr[ends[1]] - graph.csc.indptr[ends[0]]).collect(),
        };
        let mut out_edges = vec![];
        if is_outward(index) {
            out_edges = of_owners(tables.owned_type(decl.src), graph.num_src, &graph.csc.indices);
        }
        places.push(GraphPlace { graph: decl.name.clone(), edges, out_edges, to_seeds: vec![] });
    }
    places
}

/// The sampled edges of semantic graphs.
pub fn of_batches(compiled: &CompiledRanks, batches: &Batches) -> Vec<GraphPlace> {
    let shared = compiled.placed.relations.is_some();
    let place = |(index, decl): (usize, &GraphDecl)| {
        let count = |number: fn(&[u64; 2]) -> u64| -> Vec<u64> {
            batches.edges.iter().map(|of_rank| of_rank.get(index).map_or(0, number)).collect()
        };
        let to_seeds = if shared { count(|edges| edges[0]) } else { vec![] };
        GraphPlace { graph: decl.name.clone(), edges: count(|edges| edges[0] + edges[1]), out_edges: vec![], to_seeds }
    };
    let used = |index: usize| {
        compiled.executable.batch.as_ref().is_some_and(|layout| layout.deepest(Graph::new(index)).is_some())
    };
    let graphs = compiled.executable.infer.graphs.iter().enumerate();
    graphs.filter(|&(index, _)| used(index)).map(place).collect()
}

/// The rows of tables, which belong to the owners of their vertices.
pub fn of_tables(bound: &BoundJob, compiled: &CompiledRanks) -> Vec<TablePlace> {
    let (flow, division) = (&compiled.executable.infer, &compiled.placed.division);
    let mut places = vec![];
    // Stacks have the elements of their entries.
    for param in flow.params.iter().filter(|param| param.entries.is_empty()) {
        let Some(&Dim::Count(vertex)) = param.dims.first() else { continue };
        let borders = division.vertices(vertex, bound.data.num_vertices[vertex.index()]).borders();
        places.push(TablePlace {
            table: param.name.clone(),
            vertex: flow.vertex_types[vertex.index()].name.clone(),
            width: param.dims[1..].iter().filter_map(|dim| dim.fixed()).product(),
            rows: borders.windows(2).map(|ends| [ends[0], ends[1]]).collect(),
        });
    }
    places
}
