//! Links of a mini-batch with their own negative samples, for losses that compare them.
//!
//! The pairs of a graph of links `g` are its edges, in the order of their destinations. A loss that ranks a link among its
//! own negative samples needs them by link:
//!
//! - A vertex type has a row for each pair ([`VertexRows::Edges`]): the edges of `g` in their order, so that the scores of
//!   edges are values of it without being moved ([`crate::Op::Reindex`]).
//! - A vertex type has a row for each link of the batch, over all graphs ([`VertexRows::Links`]).
//! - A graph leads from the pair of each link to the link ([`EdgeShare::Links`]), and another one from each negative sample
//!   to its link ([`EdgeShare::Negatives`]).
//!
//! These are vertex types and graphs like others: the loss is a reduction over in-edges. They follow all other tables of a
//! mini-batch, whose loader fills them.
//!
//! Where all links of a batch are compared with the same samples ([`crate::training::NegativeEnds::shared`]), a vertex type has
//! a row for each of them ([`VertexRows::Samples`]), to which a graph leads from the vertices ([`EdgeShare::Samples`]). The
//! samples are the first rows of the vertices, in their order. These tables follow those of the sampled graphs, before stacks.

use crate::dataflow::{Dataflow, GraphDecl, VertexTypeDecl};
use crate::ranks::EdgeShare;
use crate::stacks::VertexRows;
use crate::types::{Graph, VertexType};

impl Dataflow {
    /// The type with a row for each edge of a graph, declared if it does not exist.
    pub fn edges_as_rows(&mut self, graph: Graph) -> VertexType {
        let name = format!("{}.pairs", self.graphs[graph.index()].name);
        self.link_type(name, VertexRows::Edges(graph))
    }

    /// The graph from the pairs of a graph of links to the links of the batch, declared if it does not exist: from those
    /// that are links, or ([`EdgeShare::Negatives`]) from the negative samples. A link has `negatives` of these at most.
    pub fn graph_to_links(&mut self, share: EdgeShare, negatives: u32) -> Graph {
        if let Some(known) = self.graphs.iter().position(|decl| decl.share == share) {
            return Graph::new(known);
        }
        let (of, word) = match share {
            EdgeShare::Links(of) => (of, "links"),
            EdgeShare::Negatives(of) => (of, "negatives"),
            _ => unreachable!("the other graphs do not lead to links"),
        };
        let (src, dst) = (self.edges_as_rows(of), self.link_type("links".into(), VertexRows::Links { negatives }));
        let name = format!("{}.{word}", self.graphs[of.index()].name);
        self.graphs.push(GraphDecl { share, ..GraphDecl::new(name, src, dst, vec![]) });
        Graph::new(self.graphs.len() - 1)
    }

    /// The graph from the vertices of a type to so many samples among them, declared if it does not exist.
    pub fn graph_to_samples(&mut self, of: VertexType, count: u32) -> Graph {
        let name = format!("{}.samples", self.vertex_types[of.index()].name);
        let samples = self.link_type(name.clone(), VertexRows::Samples(of, count));
        let known = |decl: &GraphDecl| decl.share == EdgeShare::Samples && decl.dst == samples;
        Graph::new(self.graphs.iter().position(known).unwrap_or_else(|| {
            self.graphs.push(GraphDecl { share: EdgeShare::Samples, ..GraphDecl::new(name, of, samples, vec![]) });
            self.graphs.len() - 1
        }))
    }

    fn link_type(&mut self, name: String, rows: VertexRows) -> VertexType {
        let known = self.vertex_types.iter().position(|decl| decl.rows == rows);
        VertexType::new(known.unwrap_or_else(|| {
            self.vertex_types.push(VertexTypeDecl { name, dataset_name: String::new(), rows });
            self.vertex_types.len() - 1
        }))
    }
}
