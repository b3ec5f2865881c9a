//! Sampling by the owners of vertices: each rank draws in-edges of its own vertices, for all ranks.
//!
//! ```text
//! each hop    request    the vertices that the hop before has reached, to their owners
//!             answer     for each relation into them: their drawn edges
//! ```
//!
//! So a rank needs the in-edges of its own vertices only. Its batch is the one that it would have sampled from the whole graph.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hgnnc_data::{ExecError, Result};
use hgnnc_ir::types::{Graph, Space};
use hgnnc_sample::{Batch, BatchKey, DrawnEdges, Fanout, HistoricalVertices, HopSampler};

use super::ranks::{MAKES, Share, owner, tell_owners};
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

/// A hop of a batch that ranks sample together.
struct Hop<'h> {
    number: usize,
    /// Destinations without samples.
    historical: Option<&'h HistoricalVertices>,
    key: BatchKey,
    /// The relations that it draws edges of, the same on all ranks.
    relations: Vec<usize>,
    /// The types of their destinations.
    types: Vec<usize>,
    /// By vertex type: the first vertex of each rank, and the number of all.
    borders: Arc<[Vec<usize>]>,
}

impl Hop<'_> {
    /// Whether the edges of a destination are drawn.
    fn draws(&self, of: usize, vertex: u32) -> bool {
        self.historical.is_none_or(|known| !known.has(of, vertex))
    }

    fn owner(&self, of: usize, vertex: u32) -> usize {
        owner(&self.borders[of], vertex)
    }

    /// By rank: for each type of destinations their number, and the vertices.
    fn requests(&self, ranks: usize, sampled: &Batch) -> Vec<Vec<u32>> {
        let mut requests = vec![vec![]; ranks];
        for &of in &self.types {
            let mut wanted = vec![vec![]; ranks];
            let fresh = &sampled.vertices[of][sampled.fresh(self.number, of)];
            let drawn = fresh.iter().copied().filter(|&vertex| self.draws(of, vertex));
            drawn.for_each(|vertex| wanted[self.owner(of, vertex)].push(vertex));
            for (request, wanted) in requests.iter_mut().zip(wanted) {
                request.push(wanted.len() as u32);
                request.extend(wanted);
            }
        }
        requests
    }

    /// By vertex type: the vertices of a request.
    fn vertices<'r>(&self, mut request: &'r [u32]) -> Result<Vec<&'r [u32]>> {
        let mut vertices: Vec<&[u32]> = vec![&[]; self.borders.len()];
        for &of in &self.types {
            let (&count, words) = request.split_first().ok_or_else(|| unreadable("request"))?;
            let of_type = words.split_at_checked(count as usize);
            (vertices[of], request) = of_type.ok_or_else(|| unreadable("request"))?;
        }
        Ok(vertices)
    }
}

impl MiniBatchLoader {
    /// Samples a batch together with the other ranks, in the last hop without in-edges of the `historical` vertices of this one.
    /// False if one of them makes no more batches.
    ///
    /// # Errors
    /// A batch with too many edges, or a rank that has ended.
    pub(super) fn sample_by_owners(
        &self,
        (share, words): (&Share, &Words),
        sampler: &mut HopSampler<'_>,
        (seeds, key): (&[Vec<u32>], BatchKey),
        historical: Option<&HistoricalVertices>,
        mini_batch: &mut MiniBatch,
    ) -> Result<bool> {
        let MiniBatch { sampled, first_edges, .. } = mini_batch;
        sampler.start(seeds, sampled).map_err(unsupported)?;
        first_edges.iter_mut().for_each(Vec::clear);
        first_edges.resize_with(self.graph.relations().len(), Vec::new);
        let borders: Arc<[Vec<usize>]> =
            self.graph.counts().iter().enumerate().map(|(of, &count)| share.borders(of, count)).collect();
        for number in 0..self.plan.num_hops() {
            let historical = historical.filter(|_| number + 1 == self.plan.num_hops());
            let hop = Hop { historical, ..self.hop((number, key), Arc::clone(&borders)) };
            let asked = hop.requests(share.rank.comm.size(), sampled);
            let Some(requests) = self.tell(share, &asked)? else { return Ok(false) };
            let answer = |request: &Vec<u32>| self.answer(&hop, words, request, sampler);
            let answers: Vec<Vec<u32>> = requests.iter().map(answer).collect::<Result<_>>()?;
            let Some(answers) = self.tell(share, &answers)? else { return Ok(false) };
            let mut of_owners = vec![];
            for (answer, asked) in answers.iter().zip(&asked) {
                of_owners.push(self.edges_of_answer(&hop, words, asked, answer)?);
            }
            self.add_edges(&hop, &of_owners, sampler, sampled, first_edges)?;
        }
        Ok(true)
    }

    fn hop<'h>(&self, (number, key): (usize, BatchKey), borders: Arc<[Vec<usize>]>) -> Hop<'h> {
        let draws = |(_, fanout): &(usize, &Fanout)| **fanout != Fanout::AtMost(0);
        let relations: Vec<usize> =
            self.plan.fanouts[number].iter().enumerate().filter(draws).map(|(relation, _)| relation).collect();
        let mut types: Vec<usize> = relations.iter().map(|&of| self.graph.relations()[of].dst_type).collect();
        types.sort_unstable();
        types.dedup();
        Hop { number, historical: None, key, relations, types, borders }
    }

    /// By vertex type: the edges that the last hop samples for vertices of a set, as their owners say.
    ///
    /// # Errors
    /// When another rank has ended.
    pub(super) fn ask_drawn(&self, share: &Share, set: &HistoricalVertices) -> Result<Vec<HashMap<u32, u64>>> {
        let ended = || ExecError::Ranks("another process has ended before training".into());
        let mut drawn = vec![];
        for (of, &count) in self.graph.counts().iter().enumerate() {
            let borders = share.borders(of, count);
            let mut asked = vec![vec![]; share.rank.comm.size()];
            let vertices = (0..count as u32).filter(|&vertex| set.has(of, vertex));
            vertices.for_each(|vertex| asked[owner(&borders, vertex)].push(vertex));
            let answer = |wanted: &Vec<u32>| wanted.iter().map(|&vertex| self.drawn_of(of, vertex) as u32).collect();
            let requests = self.tell(share, &asked)?.ok_or_else(ended)?;
            let answers: Vec<Vec<u32>> = requests.iter().map(answer).collect();
            let answers = self.tell(share, &answers)?.ok_or_else(ended)?;
            let edges = answers.concat().into_iter().map(u64::from);
            drawn.push(asked.concat().into_iter().zip(edges).collect());
        }
        Ok(drawn)
    }

    /// Draws the in-edges that a request asks for: for each relation of the hop, in their order, those of its destinations.
    fn answer(&self, hop: &Hop, words: &Words, request: &[u32], sampler: &mut HopSampler<'_>) -> Result<Vec<u32>> {
        let (vertices, mut answer) = (hop.vertices(request)?, vec![]);
        for &relation in &hop.relations {
            let mut edges = DrawnEdges::default();
            let of = self.graph.relations()[relation].dst_type;
            sampler.draw((hop.number, relation), hop.key, vertices[of], &mut edges);
            words.write(relation, &edges, &mut answer);
        }
        Ok(answer)
    }

    /// By relation of the hop: the edges of the vertices that a request has asked for.
    fn edges_of_answer(&self, hop: &Hop, words: &Words, request: &[u32], answer: &[u32]) -> Result<Vec<DrawnEdges>> {
        let (vertices, mut rest) = (hop.vertices(request)?, answer);
        let of_relation = |&relation: &usize| {
            let vertices = vertices[self.graph.relations()[relation].dst_type].len();
            words.read(relation, vertices, &mut rest).ok_or_else(|| unreadable("answer"))
        };
        hop.relations.iter().map(of_relation).collect()
    }

    /// Adds a hop to a batch. `of_owners` has the edges of each rank's vertices among the destinations, in their order.
    fn add_edges(
        &self,
        hop: &Hop,
        of_owners: &[Vec<DrawnEdges>],
        sampler: &mut HopSampler<'_>,
        sampled: &mut Batch,
        first_edges: &mut [Vec<u32>],
    ) -> Result<()> {
        for (relation, of) in self.graph.relations().iter().enumerate() {
            let number = (hop.number, relation);
            let fresh = sampled.fresh(hop.number, of.dst_type);
            let Some(at) = hop.relations.iter().position(|&known| known == relation) else {
                sampler.add(number, sampled, |_| [&[], &[]]).map_err(unsupported)?;
                first_edges[relation].resize(fresh.end, 0);
                continue;
            };
            let destinations = sampled.vertices[of.dst_type][fresh].to_vec();
            // By owner: the next of its vertices, and the first edge of that one.
            let mut next = vec![(0, 0); of_owners.len()];
            let edges_of = |row: usize| -> [&[u32]; 2] {
                let vertex = destinations[row];
                if !hop.draws(of.dst_type, vertex) {
                    first_edges[relation].push(0);
                    return [&[], &[]];
                }
                let owner = hop.owner(of.dst_type, vertex);
                let DrawnEdges { counts, firsts, eids, sources } = &of_owners[owner][at];
                let (vertex, edge) = next[owner];
                let edges = edge..edge + counts[vertex] as usize;
                next[owner] = (vertex + 1, edges.end);
                first_edges[relation].push(firsts[vertex]);
                [&sources[edges.clone()], eids.get(edges).unwrap_or_default()]
            };
            sampler.add(number, sampled, edges_of).map_err(unsupported)?;
        }
        sampler.end_hop(hop.number, sampled);
        Ok(())
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
}

/// An error that no user sees: ranks run the same program, which a message of another one does not fit.
fn unreadable(what: &str) -> ExecError {
    ExecError::Ranks(format!("internal error: the {what} of another process for sampled edges is too short"))
}
