//! Builds the graphs of a batch from the sampled blocks.

use hgnnc_data::{Adjacency, BoundData, Result, Shuffle, Topology, stacks, transpose_into};
use hgnnc_ir::batch::BatchGraph;
use hgnnc_ir::types::{Graph, VertexType};
use hgnnc_ir::{EdgeShare, VertexRows};
use hgnnc_sample::Batch;

use super::shuffled::permute;
use super::{MiniBatch, MiniBatchLoader, Seeds};
use crate::pairs::Pairs;

impl MiniBatchLoader {
    /// Builds the graphs of a batch. Moves the block of the deepest hop of each graph out of the sample.
    ///
    /// # Errors
    /// A stack of graphs with too many edges.
    pub(super) fn graphs(&self, mini_batch: &mut MiniBatch) -> Result<()> {
        let MiniBatch { key, sampled, to_seeds, pairs, reused_rows, data, .. } = mini_batch;
        data.num_vertices.clear();
        let rows = |v: usize| match (self.uses.direct[v], self.layout.reused_rows(VertexType::new(v))) {
            (_, Some(reused)) => reused_rows[reused].len(),
            (true, None) => self.graph.counts()[self.layout.vertices[v].vertex.index()],
            (false, None) => self.vertices(sampled, VertexType::new(v)).len(),
        };
        data.num_vertices.extend((0..self.layout.vertices.len()).map(rows));
        data.graphs.resize_with(self.layout.graphs.len(), Topology::default);
        let deepest = |&index: &usize| match self.layout.graphs[index] {
            BatchGraph::Sampled { graph, hops } => self.layout.deepest(graph) == Some(hops),
            BatchGraph::Shuffled { .. }
            | BatchGraph::First { .. }
            | BatchGraph::Links { .. }
            | BatchGraph::Historical { .. } => false,
        };
        let (last, first): (Vec<usize>, Vec<usize>) = (0..self.layout.graphs.len()).partition(deepest);
        for index in first.into_iter().chain(last.iter().copied()) {
            let decl = &self.tables.graphs[index];
            if decl.src.index() >= self.layout.vertices.len() {
                // Vertices that are shuffled among those of all ranks are known when ranks have told each other.
                continue;
            }
            let topology = &mut data.graphs[index];
            topology.name.clone_from(&decl.name);
            topology.num_src = data.num_vertices[decl.src.index()];
            topology.num_dst = data.num_vertices[decl.dst.index()];
            (topology.ends, topology.classes) = ([None, None], Default::default());
            let Adjacency { indptr, indices: other, eids: position } = &mut topology.csc;
            let (indptr, other) = (indptr.make_mut(), other.make_mut());
            position.clear();
            let direct = self.uses.direct[decl.src.index()];
            let known = self.layout.vertices[decl.src.index()].vertex;
            let by_id = &sampled.vertices[known.index()];
            match self.layout.graphs[index] {
                BatchGraph::Sampled { graph, hops } => {
                    // Where ranks share relations, those to the seeds are apart.
                    let apart = (hops == 0).then(|| to_seeds.get_mut(graph.index())).flatten();
                    let block = apart.unwrap_or_else(|| &mut sampled.blocks[graph.index()]);
                    let edges = block.indptr[topology.num_dst] as usize;
                    if direct {
                        other.clear();
                        other.extend(block.indices[..edges].iter().map(|&id| by_id[id as usize]));
                    }
                    if last.contains(&index) {
                        std::mem::swap(indptr, &mut block.indptr);
                        // Rows of later hops follow, without edges.
                        indptr.truncate(topology.num_dst + 1);
                        if !direct {
                            std::mem::swap(other, &mut block.indices);
                        }
                    } else {
                        indptr.clear();
                        indptr.extend_from_slice(&block.indptr[..=topology.num_dst]);
                        if !direct {
                            other.clear();
                            other.extend_from_slice(&block.indices[..edges]);
                        }
                    }
                }
                BatchGraph::Links { graph } => {
                    let Some(drawn) = self.pairs_of(pairs, graph) else { continue };
                    indptr.clear();
                    indptr.extend_from_slice(&drawn.indptr);
                    other.clear();
                    match direct {
                        true => other.extend(drawn.src.iter().map(|&id| by_id[id as usize])),
                        false => other.extend_from_slice(&drawn.src),
                    }
                }
                BatchGraph::Shuffled { rows, permutations } => {
                    let shuffle = Shuffle { vertex: self.layout.vertices[rows.index()].vertex, permutations };
                    permute(&by_id[..topology.num_dst], shuffle, self.step(*key), (indptr, other));
                }
                BatchGraph::Historical { rows } => reused_rows[rows].edges(topology.num_dst, indptr, other),
                BatchGraph::First { rows } => {
                    // Where ranks share relations, each gives the seeds' own values of some of them.
                    let own = self.own_seeds(rows, topology.num_dst).unwrap_or(0..topology.num_dst);
                    indptr.clear();
                    indptr.extend((0..=topology.num_dst).map(|row| (row.clamp(own.start, own.end) - own.start) as u64));
                    other.clear();
                    match direct {
                        true => other.extend_from_slice(&by_id[own]),
                        false => other.extend(own.map(|row| row as u32)),
                    }
                }
            }
            self.transpose(index, topology);
        }
        for (index, topology) in data.patterns.iter_mut().enumerate() {
            self.transpose(self.tables.graphs.len() + index, topology);
        }
        self.samples(sampled, data);
        stacks::derive(&self.tables, &mut data.num_vertices, &mut data.graphs)?;
        self.link_rows(pairs, data);
        Ok(())
    }

    /// Appends the types of samples that all links share, and the graphs that lead to them.
    fn samples(&self, sampled: &Batch, data: &mut BoundData) {
        for decl in &self.tables.vertex_types[data.num_vertices.len()..] {
            let VertexRows::Samples(_, count) = decl.rows else { break };
            data.num_vertices.push(count as usize);
        }
        for (index, decl) in self.tables.graphs.iter().enumerate().skip(data.graphs.len()) {
            if decl.share != EdgeShare::Samples {
                break;
            }
            let [num_src, num_dst] = [decl.src, decl.dst].map(|end| data.num_vertices[end.index()]);
            let of = self.layout.vertices[decl.src.index()].vertex;
            // The samples are the first rows.
            let indices = match self.uses.direct[decl.src.index()] {
                true => sampled.vertices[of.index()][..num_dst].to_vec(),
                false => (0..num_dst as u32).collect(),
            };
            let indptr = (0..=num_dst as u64).collect();
            let csc = Adjacency { indptr, indices: indices.into(), eids: vec![].into() };
            let mut topology = Topology { name: decl.name.clone(), num_src, num_dst, csc, ..Topology::default() };
            self.transpose(index, &mut topology);
            data.graphs.push(topology);
        }
    }

    /// Pairs of a batch along a link graph.
    pub(super) fn pairs_of<'p>(&self, pairs: &'p [Pairs], graph: Graph) -> Option<&'p Pairs> {
        let Seeds::Links(source) = &self.seeds else { return None };
        pairs.get(source.position(graph)?)
    }

    /// Fills in the out-edges of a graph or pattern, if kernels walk them.
    pub(super) fn transpose(&self, index: usize, topology: &mut Topology) {
        let Topology { csc, csr, num_src, .. } = topology;
        if self.uses.outgoing[index] {
            transpose_into(&csc.indptr, &csc.indices, *num_src, csr);
        } else {
            *csr = Adjacency::default();
        }
    }
}
