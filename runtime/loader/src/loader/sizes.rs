//! Sizes of a sampled mini-batch, for cost models.

use hgnnc_data::Adjacency;
use hgnnc_ir::batch::{BatchGraph, BatchPattern};
use hgnnc_ir::sizes::{Endpoints, SizeInfo};
use hgnnc_ir::types::VertexType;
use hgnnc_sample::Block;

use super::{MiniBatch, MiniBatchLoader};

impl MiniBatchLoader {
    /// Sizes of the tables of the mini-batch program, of a batch whose routes are known ([`MiniBatchLoader::routes`]):
    /// those of this rank, if several load batches together. Sparse features have the columns that the sizes of a
    /// dataset have at most, so [`SizeInfo::columns`] is empty. Batches with pairs or historical embeddings are not
    /// measured.
    pub fn sizes(&self, mini_batch: &MiniBatch) -> Option<SizeInfo> {
        let MiniBatch { sampled, to_seeds, data, .. } = mini_batch;
        let (types, graphs) = (self.layout.vertices.len(), self.layout.graphs.len());
        let known = |index: usize| self.vertices(sampled, VertexType::new(index)).len();
        let mut sizes = SizeInfo::default();
        sizes.vertices.extend((0..types).map(|index| known(index) as u64));
        // Types of ranks: rows at their owners, and those that come from other ranks.
        sizes.vertices.extend(data.num_vertices.iter().skip(types).map(|&count| count as u64));
        for (what, decl) in self.layout.graphs.iter().zip(&self.tables.graphs) {
            let (edges, ends) = match *what {
                BatchGraph::Sampled { graph, hops } => {
                    let apart = (hops == 0).then(|| to_seeds.get(graph.index())).flatten();
                    let block = apart.unwrap_or_else(|| &sampled.blocks[graph.index()]);
                    of_block(block, known(decl.src.index()), known(decl.dst.index()))
                }
                BatchGraph::First { rows } => {
                    let count = known(rows.index());
                    let rows = self.own_seeds(rows, count).unwrap_or(0..count).len() as u64;
                    (rows, Endpoints { sources: rows, destinations: rows, max_out: 1, max_in: 1 })
                }
                BatchGraph::Shuffled { rows, permutations } => {
                    let (rows, each) = (known(rows.index()) as u64, u64::from(permutations));
                    (rows * each, Endpoints { sources: rows, destinations: rows, max_out: each, max_in: each })
                }
                BatchGraph::Links { .. } | BatchGraph::Historical { .. } => return None,
            };
            sizes.edges.push(edges);
            sizes.ends.push(ends);
        }
        for graph in data.graphs.iter().skip(graphs) {
            let (edges, ends) = of_adjacency(&graph.csc, graph.num_src, graph.num_dst);
            sizes.edges.push(edges);
            sizes.ends.push(ends);
        }
        for &BatchPattern { pattern, rows } in &self.layout.patterns {
            let indptr = &self.patterns[pattern.index()].indptr;
            let stored = |&vertex: &u32| indptr[vertex as usize + 1] - indptr[vertex as usize];
            sizes.stored.push(self.vertices(sampled, rows).iter().map(stored).sum());
        }
        Some(sizes)
    }

    /// By semantic graph of the whole graph: the edges of a batch that were sampled, of which the first are to the seeds
    /// where ranks share the relations to them.
    pub fn sampled_edges(mini_batch: &MiniBatch) -> Vec<[u64; 2]> {
        let MiniBatch { sampled, to_seeds, .. } = mini_batch;
        let of = |(graph, block): (usize, &Block)| {
            let to_seeds = to_seeds.get(graph).map_or(0, Block::num_edges);
            [to_seeds as u64, block.num_edges() as u64]
        };
        sampled.blocks.iter().enumerate().map(of).collect()
    }
}

/// Edges and endpoints of the first rows of a block.
fn of_block(block: &Block, num_src: usize, num_dst: usize) -> (u64, Endpoints) {
    of_csc(&block.indptr, &block.indices, num_src, num_dst)
}

fn of_adjacency(csc: &Adjacency, num_src: usize, num_dst: usize) -> (u64, Endpoints) {
    of_csc(&csc.indptr, &csc.indices, num_src, num_dst)
}

fn of_csc(indptr: &[u64], indices: &[u32], num_src: usize, num_dst: usize) -> (u64, Endpoints) {
    let Some(starts) = indptr.get(..=num_dst) else { return (0, Endpoints::default()) };
    let edges = starts[num_dst];
    let degrees = starts.windows(2).map(|ends| ends[1] - ends[0]);
    let mut out = vec![0u32; num_src];
    indices[..edges as usize].iter().for_each(|&source| out[source as usize] += 1);
    let ends = Endpoints {
        sources: out.iter().filter(|&&edges| edges > 0).count() as u64,
        destinations: degrees.clone().filter(|&degree| degree > 0).count() as u64,
        max_out: out.iter().copied().max().unwrap_or(0).into(),
        max_in: degrees.max().unwrap_or(0),
    };
    (edges, ends)
}
