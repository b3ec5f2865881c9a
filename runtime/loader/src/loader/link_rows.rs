//! The pairs of a batch by link, for losses that compare a link with its own negative samples ([`hgnnc_ir::link_rows`]).

use hgnnc_data::{Adjacency, BoundData, Topology, transpose_into};
use hgnnc_ir::batch::BatchGraph;
use hgnnc_ir::types::Graph;
use hgnnc_ir::{EdgeShare, VertexRows};

use super::MiniBatchLoader;
use crate::pairs::Pairs;

impl MiniBatchLoader {
    /// Fills the types and graphs of the links of a batch. Those of stacks come before.
    pub(super) fn link_rows(&self, pairs: &[Pairs], data: &mut BoundData) {
        let links = pairs.iter().map(|pairs| pairs.links).sum();
        for (index, decl) in self.tables.vertex_types.iter().enumerate() {
            match decl.rows {
                VertexRows::Edges(graph) => data.num_vertices[index] = data.graphs[graph.index()].num_edges(),
                VertexRows::Links { .. } => data.num_vertices[index] = links,
                _ => {}
            }
        }
        for (index, decl) in self.tables.graphs.iter().enumerate() {
            let (of, are_links) = match decl.share {
                EdgeShare::Links(of) => (of, true),
                EdgeShare::Negatives(of) => (of, false),
                _ => continue,
            };
            if data.graphs.len() <= index {
                data.graphs.resize_with(index + 1, Topology::default);
            }
            let topology = &mut data.graphs[index];
            topology.name.clone_from(&decl.name);
            [topology.num_src, topology.num_dst] = [decl.src, decl.dst].map(|end| data.num_vertices[end.index()]);
            (topology.ends, topology.classes) = ([None, None], Default::default());
            let Topology { csc, csr, num_src, .. } = topology;
            self.by_link((of, are_links), pairs, links, csc);
            match self.uses.outgoing[index] {
                true => transpose_into(&csc.indptr, &csc.indices, *num_src, csr),
                false => *csr = Adjacency::default(),
            }
        }
    }

    /// The pairs of a graph that are links, or those that are not, by link.
    fn by_link(&self, (of, are_links): (Graph, bool), pairs: &[Pairs], links: usize, csc: &mut Adjacency) {
        let members = match self.tables.graphs[of.index()].derived {
            Some((stack, _)) => &self.tables.stacks[stack.index()].members[..],
            None => std::slice::from_ref(&of),
        };
        let drawn = || {
            let of_member = |member: &Graph| match self.layout.graphs[member.index()] {
                BatchGraph::Links { graph } => self.pairs_of(pairs, graph),
                _ => None,
            };
            let all = members.iter().filter_map(of_member).flat_map(|pairs| pairs.is_link.iter().zip(&pairs.link));
            (0..)
                .zip(all)
                .filter(move |(_, (is_link, _))| (**is_link == 1.0) == are_links)
                .map(|(row, (_, &link))| (row, link))
        };
        let Adjacency { indptr, indices, eids } = csc;
        let (indptr, indices) = (indptr.make_mut(), indices.make_mut());
        eids.clear();
        // Each start is shifted by one entry until all pairs are placed.
        indptr.clear();
        indptr.resize(links + 2, 0);
        drawn().for_each(|(_, link)| indptr[link as usize + 2] += 1);
        for link in 2..indptr.len() {
            indptr[link] += indptr[link - 1];
        }
        indices.clear();
        indices.resize(indptr[links + 1] as usize, 0);
        for (row, link) in drawn() {
            let slot = &mut indptr[link as usize + 1];
            indices[*slot as usize] = row;
            *slot += 1;
        }
        indptr.truncate(links + 1);
    }
}
