//! A sampled mini-batch: vertices with compact ids, and a CSC of the sampled edges for each relation.

use crate::graph::{Relation, SampleGraph};
use crate::historical::HistoricalVertices;
use crate::plan::{Fanout, Plan, SampleError};

/// The sampled edges of one relation, as a CSC over compact ids. Destinations are in the order of their ids, so those
/// of a hop follow those of the hop before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Position of the source vertex type.
    pub src_type: usize,
    /// Position of the destination vertex type.
    pub dst_type: usize,
    /// Row offsets of the destinations. `[destinations + 1]`
    pub indptr: Vec<u64>,
    /// Compact id of the source of each edge. `[edges]`
    pub indices: Vec<u32>,
    /// Edge id in the relation's CSC, which indexes its weights and features. For edges found by random walks: the
    /// number of walks that ended at the source. `[edges]`
    pub eids: Vec<u32>,
}

impl Block {
    /// Number of sampled edges.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }
}

/// A sampled mini-batch. Refilled in place, so that its allocations are reused by the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Vertices of each type by compact id: seeds first, then in the order of first occurrence. `[types][known]`
    pub vertices: Vec<Vec<u32>>,
    /// By hop and type, the number of vertices known before it. Hops up to `h` reach the destinations `0..known[h]`
    /// from the sources `0..known[h + 1]`; hop `h` samples for the destinations from `known[h - 1]` on. `[hops +
    /// 1][types]`
    pub known: Vec<Vec<u32>>,
    /// The edges of each relation. The first `known[h][dst_type]` rows of a block form the graph of hops up to `h`; all
    /// rows form that of the last hop. `[relations]`
    pub blocks: Vec<Block>,
}

impl Batch {
    /// Number of hops that were sampled.
    pub fn num_hops(&self) -> usize {
        self.known.len().saturating_sub(1)
    }

    /// Number of sampled edges, of all relations.
    pub fn num_edges(&self) -> usize {
        self.blocks.iter().map(Block::num_edges).sum()
    }

    /// Number of distinct vertices, of all types.
    pub fn num_vertices(&self) -> usize {
        self.vertices.iter().map(Vec::len).sum()
    }

    /// Number of edges of a relation in hops up to `hop`: a prefix of its block.
    ///
    /// Panics if there is no such relation or hop.
    pub fn edges_up_to(&self, relation: usize, hop: usize) -> usize {
        let block = &self.blocks[relation];
        block.indptr[self.num_dst(relation, hop)] as usize
    }

    /// Number of destinations of a relation in hops up to `hop`.
    ///
    /// Panics if there is no such relation or hop.
    pub fn num_dst(&self, relation: usize, hop: usize) -> usize {
        assert!(hop < self.num_hops(), "hop {hop} of {}", self.num_hops());
        self.known[hop][self.blocks[relation].dst_type] as usize
    }

    /// Number of sources of a relation in hops up to `hop`.
    ///
    /// Panics if there is no such relation or hop.
    pub fn num_src(&self, relation: usize, hop: usize) -> usize {
        assert!(hop < self.num_hops(), "hop {hop} of {}", self.num_hops());
        self.known[hop + 1][self.blocks[relation].src_type] as usize
    }

    /// Reserves the hops of a plan and starts with the seeds. Edge arrays keep their lengths, so that elements to be
    /// overwritten are not cleared first; `indptr` starts with its 0.
    pub(crate) fn start(
        &mut self,
        graph: &SampleGraph<'_>,
        plan: &Plan,
        seeds: &[Vec<u32>],
    ) -> Result<(), SampleError> {
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
            let without = |(relation, fanout): &(&Relation<'_>, &Fanout)| {
                matches!(fanout, Fanout::Weighted(_) | Fanout::Latest(_)) && relation.weights().is_none()
            };
            if let Some((relation, _)) = graph.relations().iter().zip(fanouts).find(without) {
                return Err(SampleError::NoWeights { hop, relation: relation.name.clone() });
            }
            let without = |(relation, fanout): &(&Relation<'_>, &Fanout)| {
                matches!(fanout, Fanout::Walks { .. }) && !relation.has_path()
            };
            if let Some((relation, _)) = graph.relations().iter().zip(fanouts).find(without) {
                return Err(SampleError::NoPath { hop, relation: relation.name.clone() });
            }
        }
        self.vertices.resize_with(types, Vec::new);
        for (vertices, seeds) in self.vertices.iter_mut().zip(seeds) {
            vertices.clear();
            vertices.extend_from_slice(seeds);
        }
        self.known.resize_with(plan.num_hops() + 1, Vec::new);
        self.blocks.resize_with(relations, Block::default);
        for (block, relation) in self.blocks.iter_mut().zip(graph.relations()) {
            (block.src_type, block.dst_type) = (relation.src_type, relation.dst_type);
            block.indptr.clear();
            block.indptr.push(0);
        }
        self.mark(0);
        Ok(())
    }

    /// Records the number of vertices known before `hop`.
    pub(crate) fn mark(&mut self, hop: usize) {
        self.known[hop].clear();
        self.known[hop].extend(self.vertices.iter().map(|v| v.len() as u32));
    }

    /// The destinations of one type that `hop` samples for: those first reached by the hop before.
    pub fn fresh(&self, hop: usize, vertex_type: usize) -> std::ops::Range<usize> {
        let first = hop.checked_sub(1).map_or(0, |before| self.known[before][vertex_type]);
        first as usize..self.known[hop][vertex_type] as usize
    }

    /// Checks all invariants of the fields, and that edges are edges of the graph; the message names the one that is
    /// broken. For tests and for batches from elsewhere.
    pub fn verify(&self, graph: &SampleGraph<'_>, plan: &Plan) -> Result<(), String> {
        self.verify_with_historical(graph, plan, &HistoricalVertices::default())
    }

    /// As [`verify`](Batch::verify), for a batch sampled with historical vertices.
    pub fn verify_with_historical(
        &self,
        graph: &SampleGraph<'_>,
        plan: &Plan,
        historical: &HistoricalVertices,
    ) -> Result<(), String> {
        let hops = plan.num_hops();
        if self.known.len() != hops + 1 || self.blocks.len() != graph.relations().len() {
            return Err(format!("{} hops of {} relations, not {hops}", self.num_hops(), self.blocks.len()));
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
        for (r, (block, relation)) in self.blocks.iter().zip(graph.relations()).enumerate() {
            let at = |what: String| Err(format!("relation `{}`: {what}", relation.name));
            if (block.src_type, block.dst_type) != (relation.src_type, relation.dst_type) {
                return at(format!("joins types {} and {}", block.src_type, block.dst_type));
            }
            let num_dst = hops.checked_sub(1).map_or(0, |last| self.known[last][relation.dst_type]) as usize;
            let framed = block.indptr.first() == Some(&0) && block.indptr.last() == Some(&(block.indices.len() as u64));
            if block.indptr.len() != num_dst + 1 || !framed || !block.indptr.is_sorted() {
                return at(format!("row offsets of {num_dst} destinations"));
            }
            if block.eids.len() != block.indices.len() {
                return at(format!("{} sources of {} edges", block.indices.len(), block.eids.len()));
            }
            for (hop, dst) in (0..hops).flat_map(|hop| self.fresh(hop, relation.dst_type).map(move |dst| (hop, dst))) {
                let row = block.indptr[dst] as usize..block.indptr[dst + 1] as usize;
                let fanout = plan.fanouts[hop][r];
                if hop + 1 == hops && historical.has(relation.dst_type, self.vertices[relation.dst_type][dst]) {
                    match row.is_empty() {
                        true => continue,
                        false => return at(format!("destination {dst} rests, and has edges")),
                    }
                }
                if let Fanout::Walks { walks, top } = fanout {
                    let ends = &block.indices[row.clone()];
                    let known = self.known[hop + 1][relation.src_type];
                    let distinct = ends.iter().enumerate().all(|(i, id)| *id < known && !ends[..i].contains(id));
                    let visits: u64 = block.eids[row].iter().map(|&visits| u64::from(visits.max(1))).sum();
                    if !distinct || ends.len() > top as usize || visits > u64::from(walks) {
                        return at(format!("walks of destination {dst}, hop {hop}"));
                    }
                    continue;
                }
                let all = graph.in_edges(r, self.vertices[relation.dst_type][dst]);
                let vertex = self.vertices[relation.dst_type][dst];
                let wanted = fanout.of(relation.available(fanout, vertex, all.len() as u32)) as usize;
                if row.len() != wanted {
                    return at(format!("{} of {} edges of destination {dst}, not {wanted}", row.len(), all.len()));
                }
                let mut taken = block.eids[row.clone()].to_vec();
                taken.sort_unstable();
                if taken.windows(2).any(|w| w[0] == w[1]) || taken.iter().any(|e| !all.contains(&(*e as usize))) {
                    return at(format!("edges of destination {dst} are not distinct edges of its row"));
                }
                let without = |edge: &u32| relation.weights().is_some_and(|weights| weights[*edge as usize] <= 0.0);
                if matches!(fanout, Fanout::Weighted(_)) && taken.iter().any(without) {
                    return at(format!("an edge of destination {dst} has no weight"));
                }
                for (&src, &edge) in block.indices[row.clone()].iter().zip(&block.eids[row]) {
                    let vertex = self.vertices[relation.src_type].get(src as usize);
                    let known = self.known[hop + 1][relation.src_type];
                    if src >= known || vertex != Some(&relation.sources()[edge as usize]) {
                        return at(format!("source {src} of edge {edge}, hop {hop}"));
                    }
                }
            }
        }
        Ok(())
    }
}
