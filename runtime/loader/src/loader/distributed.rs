//! Sampling by the owners of vertices: each rank draws in-edges of its own vertices, for all ranks.
//!
//! ```text
//! each hop    request    the vertices that the hop before has reached, to their owners
//!             answer     for each relation into them: their drawn edges
//! ```
//!
//! So a rank needs the in-edges of its own vertices only, and whole metapaths that walks go along. Its batch is the one that it would have sampled from the whole graph.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use hgnnc_data::{ExecError, Result};
use hgnnc_ir::types::{Graph, Space};
use hgnnc_sample::{Batch, BatchKey, DrawnEdges, Fanout, HistoricalVertices, HopSampler, Plan};

use super::ranks::{MAKES, Share, owner, tell_owners};
use super::{MiniBatch, MiniBatchLoader, unsupported};

/// Requests and answers as lists of words, whose lengths follow from the lists before them.
struct Words {
    /// By relation: whether values of its edges are read, so that an answer has their numbers.
    numbered: Vec<bool>,
    /// By relation: the number in the whole graph of the first edge that this rank has.
    first_edge: Vec<u32>,
}

impl Words {
    fn new(loader: &MiniBatchLoader, first_edge: Vec<u32>) -> Self {
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

/// Samplers of a rank that draws edges for others, and has others draw for it.
pub(super) struct Owners<'s> {
    /// Of the first hop, where ranks share the relations to the seeds.
    first: Option<HopSampler<'s>>,
    /// Of all other hops.
    later: HopSampler<'s>,
    words: Words,
}

impl<'s> Owners<'s> {
    /// The samplers of a loader's plan.
    ///
    /// # Errors
    /// When there is no memory for the samplers' tables.
    pub fn new(loader: &'s MiniBatchLoader, share: &Share) -> Result<Self> {
        let sampler = |plan| HopSampler::new(&loader.graph, plan).map_err(unsupported);
        let first = share.relations().map(|_| sampler(&loader.first)).transpose()?;
        let first_edge = loader.of_whole.iter().map(|&(_, first)| first).collect();
        Ok(Self { first, later: sampler(&loader.plan)?, words: Words::new(loader, first_edge) })
    }
}

/// The sampler of some hops, and the plan that it samples by.
struct Hops<'h, 's> {
    sampler: &'h mut HopSampler<'s>,
    plan: &'h Plan,
    words: &'h Words,
    /// By semantic graph: the ranks of a replica that ask for its edges; all if there is none.
    asked_by: Option<&'h [usize]>,
    /// Vertices without samples in the last hop.
    historical: Option<&'h HistoricalVertices>,
    key: BatchKey,
}

/// A hop of a batch that ranks sample together.
struct Hop<'h> {
    number: usize,
    /// Destinations without samples.
    historical: Option<&'h HistoricalVertices>,
    key: BatchKey,
    /// By rank: the relations whose edges it asks for.
    relations: Vec<Vec<usize>>,
    /// By rank: the types of their destinations.
    types: Vec<Vec<usize>>,
    /// The relations that this rank draws by itself: walks go over edges that each rank has.
    walked: Vec<usize>,
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

    /// By owner: for each type of destinations their number, and the vertices that this rank asks for.
    fn requests(&self, rank: usize, sampled: &Batch) -> Vec<Vec<u32>> {
        let ranks = self.types.len();
        let mut requests = vec![vec![]; ranks];
        for &of in &self.types[rank] {
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

    /// By vertex type: the vertices of a request of a rank.
    fn vertices<'r>(&self, rank: usize, mut request: &'r [u32]) -> Result<Vec<&'r [u32]>> {
        let mut vertices: Vec<&[u32]> = vec![&[]; self.borders.len()];
        for &of in &self.types[rank] {
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
        share: &Share,
        Owners { first, later, words }: &mut Owners<'_>,
        (seeds, key): (&[Vec<u32>], BatchKey),
        historical: Option<&HistoricalVertices>,
        mini_batch: &mut MiniBatch,
    ) -> Result<bool> {
        let words = &*words;
        let MiniBatch { sampled, to_seeds, first_edges, .. } = mini_batch;
        let mut later = Hops { sampler: later, plan: &self.plan, words, asked_by: None, historical, key };
        let (Some(first), Some(asked_by)) = (first, share.rank_of_relations()) else {
            return self.sample_hops(share, &mut later, seeds, (sampled, first_edges));
        };
        let mut first =
            Hops { sampler: first, plan: &self.first, words, asked_by: Some(asked_by), historical: None, key };
        let (mut reached, mut of_seeds) = (Batch::default(), vec![]);
        if !self.sample_hops(share, &mut first, seeds, (&mut reached, &mut of_seeds))?
            || !self.sample_hops(share, &mut later, &reached.vertices, (sampled, first_edges))?
        {
            return Ok(false);
        }
        // The seeds are the first destinations of later hops.
        let own = share.relations().into_iter().flat_map(|own| (0..of_seeds.len()).filter(move |&of| own(of)));
        for relation in own {
            let (known, told) = (&mut first_edges[relation], &of_seeds[relation]);
            known.resize(known.len().max(told.len()), 0);
            known[..told.len()].copy_from_slice(told);
        }
        sampled.known.insert(0, reached.known.swap_remove(0));
        *to_seeds = reached.blocks;
        Ok(true)
    }

    /// Samples the hops of a plan.
    fn sample_hops(
        &self,
        share: &Share,
        hops: &mut Hops<'_, '_>,
        seeds: &[Vec<u32>],
        (sampled, first_edges): (&mut Batch, &mut Vec<Vec<u32>>),
    ) -> Result<bool> {
        hops.sampler.start(seeds, sampled).map_err(unsupported)?;
        first_edges.iter_mut().for_each(Vec::clear);
        first_edges.resize_with(self.graph.relations().len(), Vec::new);
        let borders: Arc<[Vec<usize>]> =
            self.graph.counts().iter().enumerate().map(|(of, &count)| share.borders(of, count)).collect();
        let own = share.rank.comm.rank();
        for number in 0..hops.plan.num_hops() {
            let hop = self.hop((number, hops), share, Arc::clone(&borders));
            let asked = hop.requests(own, sampled);
            let Some(requests) = self.tell(share, &asked)? else { return Ok(false) };
            let answer = |(rank, request): (usize, &Vec<u32>)| self.answer(&hop, hops, (rank, request));
            let answers: Vec<Vec<u32>> = requests.iter().enumerate().map(answer).collect::<Result<_>>()?;
            let Some(answers) = self.tell(share, &answers)? else { return Ok(false) };
            let mut of_owners = vec![];
            for (answer, asked) in answers.iter().zip(&asked) {
                of_owners.push(self.edges_of_answer(&hop, hops.words, (own, asked), answer)?);
            }
            self.add_edges((&hop, own), &of_owners, hops.sampler, sampled, first_edges)?;
        }
        Ok(true)
    }

    fn hop<'h>(&self, (number, hops): (usize, &Hops<'h, '_>), share: &Share, borders: Arc<[Vec<usize>]>) -> Hop<'h> {
        let fanouts = &hops.plan.fanouts[number];
        let (ranks, of_replica) = (share.rank.comm.size(), share.rank.replica().len());
        let is_walk = |relation: usize| matches!(fanouts[relation], Fanout::Walks { .. });
        let of_rank = |rank: usize, walked: bool| -> Vec<usize> {
            let has = |&relation: &usize| {
                let drawn = fanouts[relation] != Fanout::AtMost(0) && is_walk(relation) == walked;
                drawn && hops.asked_by.is_none_or(|asked_by| asked_by[relation] == rank % of_replica)
            };
            (0..fanouts.len()).filter(has).collect()
        };
        let relations: Vec<Vec<usize>> = (0..ranks).map(|rank| of_rank(rank, false)).collect();
        let walked = of_rank(share.rank.comm.rank(), true);
        let types_of = |relations: &Vec<usize>| {
            let mut types: Vec<usize> = relations.iter().map(|&of| self.graph.relations()[of].dst_type).collect();
            types.sort_unstable();
            types.dedup();
            types
        };
        let types = relations.iter().map(types_of).collect();
        let historical = hops.historical.filter(|_| number + 1 == hops.plan.num_hops());
        Hop { number, historical, key: hops.key, relations, types, walked, borders }
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

    /// Draws the in-edges that a request of a rank asks for: for each of its relations, in their order, those of its destinations.
    fn answer(&self, hop: &Hop<'_>, hops: &mut Hops<'_, '_>, (rank, request): (usize, &[u32])) -> Result<Vec<u32>> {
        let (vertices, mut answer) = (hop.vertices(rank, request)?, vec![]);
        for &relation in &hop.relations[rank] {
            let mut edges = DrawnEdges::default();
            let of = self.graph.relations()[relation].dst_type;
            hops.sampler.draw((hop.number, relation), hop.key, vertices[of], &mut edges);
            hops.words.write(relation, &edges, &mut answer);
        }
        Ok(answer)
    }

    /// By relation that a rank has asked for: the edges of the vertices of its request.
    fn edges_of_answer(
        &self,
        hop: &Hop<'_>,
        words: &Words,
        (rank, request): (usize, &[u32]),
        answer: &[u32],
    ) -> Result<Vec<DrawnEdges>> {
        let (vertices, mut rest) = (hop.vertices(rank, request)?, answer);
        let of_relation = |&relation: &usize| {
            let vertices = vertices[self.graph.relations()[relation].dst_type].len();
            words.read(relation, vertices, &mut rest).ok_or_else(|| unreadable("answer"))
        };
        hop.relations[rank].iter().map(of_relation).collect()
    }

    /// Adds a hop to a batch. `of_owners` has the edges of each rank's vertices among the destinations, in their order.
    fn add_edges(
        &self,
        (hop, rank): (&Hop<'_>, usize),
        of_owners: &[Vec<DrawnEdges>],
        sampler: &mut HopSampler<'_>,
        sampled: &mut Batch,
        first_edges: &mut [Vec<u32>],
    ) -> Result<()> {
        for (relation, of) in self.graph.relations().iter().enumerate() {
            let number = (hop.number, relation);
            let fresh = sampled.fresh(hop.number, of.dst_type);
            let destinations = sampled.vertices[of.dst_type][fresh].to_vec();
            let (mut walked, is_walked) = (DrawnEdges::default(), hop.walked.contains(&relation));
            let drawn: Vec<&DrawnEdges> = match hop.relations[rank].iter().position(|&known| known == relation) {
                Some(at) => of_owners.iter().map(|of_owner| &of_owner[at]).collect(),
                None if is_walked => {
                    let active = destinations.iter().copied().filter(|&vertex| hop.draws(of.dst_type, vertex));
                    sampler.draw(number, hop.key, &active.collect::<Vec<u32>>(), &mut walked);
                    vec![&walked]
                }
                None => vec![],
            };
            // By owner: the next of its vertices, and the first edge of that one.
            let mut next = vec![(0, 0); drawn.len()];
            let edges_of = |row: usize| -> [&[u32]; 2] {
                let vertex = destinations[row];
                if drawn.is_empty() || !hop.draws(of.dst_type, vertex) {
                    first_edges[relation].push(0);
                    return [&[], &[]];
                }
                let owner = if is_walked { 0 } else { hop.owner(of.dst_type, vertex) };
                let DrawnEdges { counts, firsts, eids, sources } = drawn[owner];
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
    pub(super) fn tell(&self, share: &Share, lists: &[Vec<u32>]) -> Result<Option<Vec<Vec<u32>>>> {
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
