//! Graphs with the edges of one rank's vertices.

use std::ops::Range;

use hgnnc_graph::{GraphPart, Loops, SemanticGraph};
use hgnnc_ir::dataflow::{GraphDecl, SelfLoops};
use hgnnc_ir::training::Training;
use hgnnc_ir::types::{Graph, Space, VertexType};
use serde::{Deserialize, Serialize};

use crate::bind::{Binder, failed};
use crate::error::Result;
use crate::past::Source;
use crate::ranks::Division;

/// Parts of a dataset that are divided among the ranks that train on mini-batches of it. The owners of vertices send what other
/// ranks need of them; of what is not divided, each rank has all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Distributed {
    /// The edges with their values: owners draw in-edges of their vertices.
    pub edges: bool,
    /// Features: owners send rows of their vertices.
    pub features: bool,
}

impl Distributed {
    /// Whether something is divided.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether nothing is divided.
    pub fn is_none(&self) -> bool {
        !self.any()
    }
}

/// One rank of several.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Own {
    pub division: Division,
    pub rank: usize,
    pub distribute: Distributed,
}

impl Binder<'_> {
    /// The sources and destinations of a graph that this rank owns, if it needs no edges of others.
    pub(crate) fn own_ends(&self, training: Option<&Training>, index: usize) -> Option<[Range<usize>; 2]> {
        let Own { division, rank, distribute } = self.options.own.as_ref()?;
        let (flow, decl) = (self.flow, &self.flow.graphs[index]);
        let graph = Graph::new(index);
        // Batches are sampled around any vertex, and links of the whole graph are compared with all edges.
        let is_sampled = match training.map(|training| (&training.batch, training.links())) {
            None | Some((None, None)) => false,
            Some((None, Some(_))) => true,
            Some((Some(_), _)) => !distribute.edges,
        };
        let is_hop = || flow.metapaths.iter().any(|path| path.hops.contains(&graph));
        // The numbers of edges are those of results.
        let is_result = || flow.outputs.iter().any(|output| flow.ty(output.value).space == Space::Edges(graph));
        if is_sampled || decl.links || decl.kept.is_some() || decl.steps.len() != 1 || is_hop() || is_result() {
            return None;
        }
        let own = |vertex: VertexType| {
            let count = self.dataset.vertex_types[self.types[vertex.index()]].count;
            division.vertices(vertex, count).of_rank(*rank)
        };
        Some([own(decl.src), own(decl.dst)])
    }

    /// Builds the part of a relation's graph with the edges of some vertices.
    pub(crate) fn build_part(
        &self,
        source: &Source<'_, '_>,
        decl: &GraphDecl,
        own: &[Range<usize>; 2],
    ) -> Result<(SemanticGraph, GraphPart)> {
        let loops = match decl.self_loops {
            SelfLoops::Kept => Loops::Kept,
            SelfLoops::Added => Loops::Added,
            SelfLoops::Removed => Loops::Removed,
        };
        let built = source.builder.relation_at(source.steps[0], loops, own);
        let (mut graph, part) = built.map_err(|error| failed(decl, error))?;
        source.restore(graph.original.as_deref_mut().unwrap_or_default());
        Ok((graph, part))
    }
}
