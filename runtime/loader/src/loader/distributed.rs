//! Sampling by the owners of vertices: each rank draws in-edges of its own vertices, for all ranks.
//!
//! ```text
//! each hop    request    the vertices that the hop before has reached, to their owners
//!             answer     for each relation into them: their drawn edges
//! ```
//!
//! So a rank needs the in-edges of its own vertices only. Its batch is the one that it would have sampled from the whole graph.

use std::sync::atomic::Ordering::Relaxed;

use hgnnc_data::{ExecError, Result};
use hgnnc_ir::types::{Graph, Space};
use hgnnc_sample::{BatchKey, DrawnEdges, Fanout, HopSampler, Plan};

use super::ranks::{MAKES, Share, tell_owners};
use super::{MiniBatch, MiniBatchLoader, unsupported};

/// Requests and answers as lists of words, whose lengths follow from the lists before them.
pub(super) struct Words {
    /// By relation: whether values of its edges are read, so that an answer has their numbers.
    numbered: Vec<bool>,
    /// By relation: the number in the whole graph of the first edge that this rank has.
    first_edge: Vec<u32>,
}

impl Words {
    pub fn new(loader: &MiniBatchLoader, first_edge: Vec<u32>) -> Self {
        let read = |graph: usize| {
            let of_graph =
                |space| matches!(space, Space::Edges(of) if loader.whole_graph(of) == Some(Graph::new(graph)));
            loader.tables.inputs.iter().any(|input| of_graph(input.ty.space))
        };
        Self { numbered: (0..first_edge.len()).map(read).collect(), first_edge }
    }

    /// Appends the drawn edges of a relation to an answer.
    fn write(&self, relation: usize, drawn: &DrawnEdges, answer: &mut Vec<u32>) {
        let number = |edge: &u32| edge.wrapping_add(self.first_edge[relation]);
        answer.extend_from_slice(&drawn.counts);
        answer.extend(drawn.firsts.iter().map(number));
        answer.extend_from_slice(&drawn.sources);
        if self.numbered[relation] {
            answer.extend(drawn.eids.iter().map(number));
        }
    }

    /// Reads the edges of `vertices` vertices.
    fn read(&self, relation: usize, vertices: usize, words: &mut &[u32]) -> Option<DrawnEdges> {
        let mut take = |count: usize| {
            let (taken, rest) = words.split_at_checked(count)?;
            *words = rest;
            Some(taken.to_vec())
        };
        let (counts, firsts) = (take(vertices)?, take(vertices)?);
        let edges = counts.iter().map(|&count| count as usize).sum();
        let sources = take(edges)?;
        let eids = if self.numbered[relation] { take(edges)? } else { vec![] };
        Some(DrawnEdges { counts, firsts, eids, sources })
    }
}

impl MiniBatchLoader {
    /// Samples a batch together with the other ranks. False if one of them makes no more batches.
    ///
    /// # Errors
    /// A batch with too many edges, or a rank that has ended.
    pub(super) fn sample_by_owners(
        &self,
        (share, words): (&Share, &Words),
        sampler: &mut HopSampler<'_>,
        seeds: &[Vec<u32>],
        key: BatchKey,
        mini_batch: &mut MiniBatch,
    ) -> Result<bool> {
        let MiniBatch { sampled, first_edges, .. } = mini_batch;
        sampler.start(seeds, sampled).map_err(unsupported)?;
        first_edges.iter_mut().for_each(Vec::clear);
        first_edges.resize_with(self.graph.relations().len(), Vec::new);
        let borders: Vec<Vec<usize>> =
            (0..self.types.len()).map(|of| share.borders(of, self.graph.counts()[of])).collect();
        let owner = |of: usize, vertex: u32| borders[of][1..].partition_point(|&border| border <= vertex as usize);
        let ranks = share.rank.comm.size();
        for hop in 0..self.plan.num_hops() {
            let drawn = self.drawn_in(&self.plan, hop);
            let types: Vec<usize> = self.destinations_of(&drawn);
            // For each type: the number of vertices, and the vertices.
            let mut requests = vec![vec![]; ranks];
            let mut asked = vec![vec![0; self.types.len()]; ranks];
            for &of in &types {
                let mut wanted = vec![vec![]; ranks];
                let fresh = &sampled.vertices[of][sampled.fresh(hop, of)];
                fresh.iter().for_each(|&vertex| wanted[owner(of, vertex)].push(vertex));
                for (other, wanted) in wanted.into_iter().enumerate() {
                    asked[other][of] = wanted.len();
                    requests[other].push(wanted.len() as u32);
                    requests[other].extend(wanted);
                }
            }
            let Some(requests) = self.tell(share, &requests)? else { return Ok(false) };
            let mut answers = vec![];
            for request in &requests {
                let mut rest = &request[..];
                let mut vertices: Vec<&[u32]> = vec![&[]; self.types.len()];
                for &of in &types {
                    let (&count, words) = rest.split_first().ok_or_else(|| unreadable("request"))?;
                    (vertices[of], rest) =
                        words.split_at_checked(count as usize).ok_or_else(|| unreadable("request"))?;
                }
                let mut answer = vec![];
                for &relation in &drawn {
                    let of = self.graph.relations()[relation].dst_type;
                    let mut edges = DrawnEdges::default();
                    sampler.draw((hop, relation), key, vertices[of], &mut edges);
                    words.write(relation, &edges, &mut answer);
                }
                answers.push(answer);
            }
            let Some(answers) = self.tell(share, &answers)? else { return Ok(false) };
            // By owner, and by relation of the hop: the edges of the vertices that this rank asked for.
            let mut of_owners: Vec<Vec<DrawnEdges>> = vec![];
            for (answer, asked) in answers.iter().zip(&asked) {
                let mut rest = &answer[..];
                let of_relation = |&relation: &usize| {
                    let vertices = asked[self.graph.relations()[relation].dst_type];
                    words.read(relation, vertices, &mut rest).ok_or_else(|| unreadable("answer"))
                };
                of_owners.push(drawn.iter().map(of_relation).collect::<Result<_>>()?);
            }
            for (relation, of) in self.graph.relations().iter().enumerate() {
                let Some(at) = drawn.iter().position(|&known| known == relation) else {
                    sampler.add((hop, relation), sampled, |_| [&[], &[]]).map_err(unsupported)?;
                    first_edges[relation].resize(sampled.fresh(hop, of.dst_type).end, 0);
                    continue;
                };
                let destinations = sampled.vertices[of.dst_type][sampled.fresh(hop, of.dst_type)].to_vec();
                // By owner: the next of its vertices, and the first edge of that one.
                let mut next = vec![(0, 0); ranks];
                let edges_of = |row: usize| {
                    let owner = owner(of.dst_type, destinations[row]);
                    let DrawnEdges { counts, firsts, eids, sources } = &of_owners[owner][at];
                    let (vertex, edge) = next[owner];
                    let edges = edge..edge + counts[vertex] as usize;
                    next[owner] = (vertex + 1, edges.end);
                    first_edges[relation].push(firsts[vertex]);
                    [&sources[edges.clone()], eids.get(edges).unwrap_or_default()]
                };
                sampler.add((hop, relation), sampled, edges_of).map_err(unsupported)?;
            }
            sampler.end_hop(hop, sampled);
        }
        Ok(true)
    }

    /// Sends each rank a list of words, and returns those that each has sent to this one. `None` where [`tell_owners`] has
    /// none, since one of the ranks makes no more batches.
    fn tell(&self, share: &Share, lists: &[Vec<u32>]) -> Result<Option<Vec<Vec<u32>>>> {
        let rank = share.rank.comm.rank();
        let words: usize =
            lists.iter().enumerate().filter(|(other, _)| *other != rank).map(|(_, list)| list.len()).sum();
        share.sent.fetch_add((words * size_of::<u32>()) as u64, Relaxed);
        tell_owners(&share.rank, MAKES, lists)
    }

    /// The relations that a hop draws edges of. They are the same on all ranks.
    fn drawn_in(&self, plan: &Plan, hop: usize) -> Vec<usize> {
        let fanouts = plan.fanouts[hop].iter().enumerate();
        fanouts.filter(|(_, fanout)| **fanout != Fanout::AtMost(0)).map(|(relation, _)| relation).collect()
    }

    /// The types of the destinations of relations.
    fn destinations_of(&self, relations: &[usize]) -> Vec<usize> {
        let mut types: Vec<usize> = relations.iter().map(|&of| self.graph.relations()[of].dst_type).collect();
        types.sort_unstable();
        types.dedup();
        types
    }
}

/// An error that no user sees: ranks run the same program, which a message of another one does not fit.
fn unreadable(what: &str) -> ExecError {
    ExecError::Ranks(format!("internal error: the {what} of another process for sampled edges is too short"))
}
