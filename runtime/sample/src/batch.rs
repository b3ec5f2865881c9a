//! What is sampled: vertices with compact ids, and the edges of each relation in each hop.

use crate::graph::SampleGraph;
use crate::plan::{Plan, SampleError};

/// The sampled edges of one relation in one hop. Destinations and sources are compact ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Where the edges of each destination start. `[destinations + 1]`
    pub indptr: Vec<u32>,
    /// Source of each edge. `[edges]`
    pub src: Vec<u32>,
    /// Position of each edge in the CSC order of the relation: where its weight and features are. `[edges]`
    pub edge: Vec<u32>,
}

impl Block {
    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.src.len()
    }
}

/// A sampled batch. Made anew in place: what it has allocated serves the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Vertices of each type by compact id: seeds, then in the order of their first occurrence. `[types][known]`
    pub vertices: Vec<Vec<u32>>,
    /// By hop and type, how many vertices are known before it: the destinations of hop `h` are the first `known[h]` of
    /// [`vertices`](Batch::vertices), its sources the first `known[h + 1]`. `[hops + 1][types]`
    pub known: Vec<Vec<u32>>,
    /// Edges. `[hops][relations]`
    pub blocks: Vec<Vec<Block>>,
}

impl Batch {
    /// Number of sampled edges, of all hops and relations.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().flatten().map(Block::num_edges).sum()
    }

    /// Number of distinct vertices, of all types.
    pub fn num_vertices(&self) -> usize {
        self.vertices.iter().map(Vec::len).sum()
    }

    /// Makes room for the hops of a plan and starts with the seeds.
    pub(crate) fn start(&mut self, graph: &SampleGraph, plan: &Plan, seeds: &[Vec<u32>]) -> Result<(), SampleError> {
        let (types, relations) = (graph.counts().len(), graph.relations().len());
        if seeds.len() != types {
            return Err(SampleError::SeedTypes { expected: types, found: seeds.len() });
        }
        for (vertex_type, (seeds, &count)) in seeds.iter().zip(graph.counts()).enumerate() {
            if let Some(position) = seeds.iter().position(|&v| v as usize >= count) {
                let vertex = seeds[position];
                return Err(SampleError::SeedOutOfRange { vertex_type, position, vertex, count });
            }
        }
        for (hop, fanouts) in plan.fanouts.iter().enumerate() {
            if fanouts.len() != relations {
                return Err(SampleError::Fanouts { hop, expected: relations, found: fanouts.len() });
            }
        }
        self.vertices.resize_with(types, Vec::new);
        for (vertices, seeds) in self.vertices.iter_mut().zip(seeds) {
            vertices.clear();
            vertices.extend_from_slice(seeds);
        }
        self.known.resize_with(plan.num_hops() + 1, Vec::new);
        self.blocks.resize_with(plan.num_hops(), Vec::new);
        self.blocks.iter_mut().for_each(|blocks| blocks.resize_with(relations, Block::default));
        self.mark(0);
        Ok(())
    }

    /// Notes how many vertices are known before `hop`.
    pub(crate) fn mark(&mut self, hop: usize) {
        self.known[hop].clear();
        self.known[hop].extend(self.vertices.iter().map(|v| v.len() as u32));
    }

    /// Checks everything that the fields promise, and that edges are edges of the graph; says what is broken. For tests
    /// and for batches that come from elsewhere.
    pub fn verify(&self, graph: &SampleGraph, plan: &Plan) -> Result<(), String> {
        let hops = plan.num_hops();
        if self.known.len() != hops + 1 || self.blocks.len() != hops {
            return Err(format!("{} hops, not {hops}", self.blocks.len()));
        }
        for (t, vertices) in self.vertices.iter().enumerate() {
            let mut sorted = vertices.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|w| w[0] == w[1]) {
                return Err(format!("a vertex of type {t} has two compact ids"));
            }
            let known: Vec<u32> = self.known.iter().map(|k| k[t]).collect();
            if !known.is_sorted() || known.last() != Some(&(vertices.len() as u32)) {
                return Err(format!("known vertices of type {t}: {known:?} of {}", vertices.len()));
            }
        }
        for (h, blocks) in self.blocks.iter().enumerate() {
            for (r, (block, relation)) in blocks.iter().zip(graph.relations()).enumerate() {
                let at = |what: String| Err(format!("hop {h}, relation `{}`: {what}", relation.name));
                let (num_dst, num_src) =
                    (self.known[h][relation.dst_type] as usize, self.known[h + 1][relation.src_type]);
                let framed = block.indptr.first() == Some(&0) && block.indptr.last() == Some(&(block.src.len() as u32));
                if block.indptr.len() != num_dst + 1 || !framed || !block.indptr.is_sorted() {
                    return at(format!("row offsets of {num_dst} destinations"));
                }
                if block.edge.len() != block.src.len() {
                    return at(format!("{} sources of {} edges", block.src.len(), block.edge.len()));
                }
                for dst in 0..num_dst {
                    let row = block.indptr[dst] as usize..block.indptr[dst + 1] as usize;
                    let all = graph.in_edges(r, self.vertices[relation.dst_type][dst]);
                    let wanted = plan.fanouts[h][r].of(all.len() as u32) as usize;
                    if row.len() != wanted {
                        return at(format!("{} of {} edges of destination {dst}, not {wanted}", row.len(), all.len()));
                    }
                    let mut taken = block.edge[row.clone()].to_vec();
                    taken.sort_unstable();
                    if taken.windows(2).any(|w| w[0] == w[1]) || taken.iter().any(|e| !all.contains(&(*e as usize))) {
                        return at(format!("edges of destination {dst} are not distinct edges of its row"));
                    }
                    for (&src, &edge) in block.src[row.clone()].iter().zip(&block.edge[row]) {
                        let vertex = self.vertices[relation.src_type].get(src as usize);
                        if src >= num_src || vertex != Some(&relation.sources()[edge as usize]) {
                            return at(format!("source {src} of edge {edge}"));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
