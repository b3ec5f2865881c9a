//! Mini-batches of links: positive pairs, negative sampling, and exclusion of the message edges that would leak the
//! labels.

use std::sync::Arc;

use hgnnc_data::{BoundData, Candidates, ExecError, LinkWalks, Result};
use hgnnc_graph::Shared;
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::ops::Direction;
use hgnnc_ir::random::mask_key;
use hgnnc_ir::training::{LinkTarget, NegativeEnds, Negatives, RepeatedLinks};
use hgnnc_ir::types::{Graph, VertexType};
use hgnnc_sample::{Batch, BatchKey};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::negatives::Draws;

/// RNG stream of negative sampling, separate from others of the same seed.
const STREAM: u32 = 0x0dd_5eed;
/// RNG stream of samples that all links of a batch share.
const SHARED_STREAM: u32 = 0x0dd_5eee;
/// Number of times a negative that is a training link is drawn again. The last draws are from all vertices, since the
/// links of a batch may have no other candidates.
const TRIES: u64 = 8;

/// Training links, with negative sampling.
pub struct PairSource {
    target: LinkTarget,
    graphs: Vec<Links>,
    /// By sampled graph, the links that its edges may repeat.
    repeats: Vec<Vec<RepeatedLinks>>,
}

/// Training links of one relation or metapath.
struct Links {
    src_type: usize,
    dst_type: usize,
    num_src: usize,
    num_dst: usize,
    /// The rows that can take the place of the source and of the destination.
    candidates: [Candidates; 2],
    of: LinksOf,
    /// Position of its first link among all links.
    first: usize,
}

/// Training links of a graph.
enum LinksOf {
    /// The edges of a relation.
    Relation {
        /// CSC positions of each destination's links. `[destinations + 1]`
        indptr: Shared<u64>,
        /// Sources by destination, ascending. `[links]`
        src: Shared<u32>,
        dst: Vec<u32>,
    },
    /// The ends of walks along a metapath, which every epoch draws anew.
    Metapath(Arc<LinkWalks>),
}

impl Links {
    fn len(&self) -> usize {
        match &self.of {
            LinksOf::Relation { src, .. } => src.len(),
            LinksOf::Metapath(walks) => walks.len(),
        }
    }

    /// Whether an end can be joined with itself. Walks of a metapath return to where they began: such a pair is a link.
    fn has_self_loops(&self) -> bool {
        self.src_type == self.dst_type && matches!(self.of, LinksOf::Relation { .. })
    }

    /// The link at a position, source and destination.
    fn link(&self, at: usize, key: BatchKey) -> (u32, u32) {
        match &self.of {
            LinksOf::Relation { src, dst, .. } => (src[at], dst[at]),
            LinksOf::Metapath(walks) => walks.link(at, (self.first + at) as u64, (key.seed, key.epoch)),
        }
    }

    /// Whether a pair is known to be a link. Those of a metapath are not listed.
    fn has(&self, (src, dst): (u32, u32)) -> bool {
        match &self.of {
            LinksOf::Relation { indptr, src: sources, .. } => {
                let row = indptr[dst as usize] as usize..indptr[dst as usize + 1] as usize;
                sources[row].binary_search(&src).is_ok()
            }
            LinksOf::Metapath(_) => false,
        }
    }
}

/// Pairs of a batch along one relation or metapath, sorted by destination.
#[derive(Default)]
pub struct Pairs {
    /// `[seeds of the destination type + 1]`
    pub indptr: Vec<u64>,
    pub src: Vec<u32>,
    /// 1 for links, else 0. `[pairs]`
    pub is_link: Vec<f32>,
    /// The link that a pair is or is a negative sample of, by its number among those of the batch that pairs are drawn
    /// for. `[pairs]`
    pub link: Vec<u32>,
    /// Number of pairs that are links.
    pub links: usize,
}

/// Reusable memory for drawing pairs.
#[derive(Default)]
pub struct PairRoom {
    /// Compact id of each vertex, by vertex type.
    ids: Vec<FxHashMap<u32, u32>>,
    /// By link graph: the pairs in drawing order.
    drawn: Vec<Vec<Drawn>>,
    /// By link graph: the links of the batch.
    links: Vec<BatchLinks>,
    /// Whether pairs are drawn for all links of the batch, whose ends are then seeds.
    has_all: bool,
}

/// A pair of vertices: a link of a batch, or a negative sample.
#[derive(Clone, Copy)]
struct Drawn {
    src: u32,
    dst: u32,
    is_link: bool,
    /// The number of the link.
    link: u32,
}

/// Links of a batch by either end.
#[derive(Default)]
struct BatchLinks {
    /// Source and destination, in the order of the batch.
    drawn: Vec<(u32, u32)>,
    /// Destination and source, ascending.
    by_dst: Vec<(u32, u32)>,
    /// Source and destination, ascending.
    by_src: Vec<(u32, u32)>,
}

impl BatchLinks {
    fn clear(&mut self) {
        [&mut self.drawn, &mut self.by_dst, &mut self.by_src].into_iter().for_each(Vec::clear);
    }

    fn sort(&mut self) {
        self.by_src.clone_from(&self.drawn);
        self.by_src.sort_unstable();
        self.by_dst.extend(self.drawn.iter().map(|&(src, dst)| (dst, src)));
        self.by_dst.sort_unstable();
    }

    /// The links that edges into a vertex may repeat, with the source of such an edge second.
    fn repeated_at(&self, vertex: u32, reverse: bool) -> &[(u32, u32)] {
        let sorted = if reverse { &self.by_src } else { &self.by_dst };
        let first = sorted.partition_point(|pair| pair.0 < vertex);
        let of_vertex = sorted[first..].iter().take_while(|pair| pair.0 == vertex).count();
        &sorted[first..first + of_vertex]
    }
}

impl PairSource {
    /// Builds from the link graphs of a full-graph program, whose data have the training links or the walks that draw them.
    pub fn new(target: &LinkTarget, tables: &Dataflow, data: &BoundData) -> Self {
        let links = target.graphs.par_iter().map(|graph| {
            let (decl, topology) = (&tables.graphs[graph.index()], &data.graphs[graph.index()]);
            let of = match data.drawn.links.get(graph.index()) {
                Some(Some(walks)) => LinksOf::Metapath(Arc::clone(walks)),
                _ => {
                    let rows = topology.csc.indptr.windows(2).zip(0..);
                    let dst = rows.flat_map(|(row, dst)| std::iter::repeat_n(dst, (row[1] - row[0]) as usize));
                    LinksOf::Relation {
                        indptr: Shared::clone(&topology.csc.indptr),
                        src: Shared::clone(&topology.csc.indices),
                        dst: dst.collect(),
                    }
                }
            };
            Links {
                src_type: decl.src.index(),
                dst_type: decl.dst.index(),
                num_src: topology.num_src,
                num_dst: topology.num_dst,
                candidates: topology.candidates(),
                of,
                first: 0,
            }
        });
        let mut links: Vec<Links> = links.collect();
        let mut first = 0;
        for of_graph in &mut links {
            of_graph.first = first;
            first += of_graph.len();
        }
        let repeats = (0..tables.graphs.len()).map(|graph| target.repeated_by(tables, Graph::new(graph))).collect();
        Self { target: target.clone(), graphs: links, repeats }
    }

    /// Index of a graph among the link graphs.
    pub fn position(&self, graph: Graph) -> Option<usize> {
        self.target.graphs.iter().position(|&of| of == graph)
    }

    /// The link graph of a link, given by its position, and the position there.
    fn link(&self, link: u32) -> (usize, usize) {
        let graph = self.graphs.partition_point(|links| links.first <= link as usize) - 1;
        (graph, link as usize - self.graphs[graph].first)
    }

    /// The destination of a link in an epoch, given by its position, its type, and the number of vertices of the type.
    pub fn destination(&self, link: u32, key: BatchKey) -> (u32, VertexType, usize) {
        let (graph, at) = self.link(link);
        let links = &self.graphs[graph];
        (links.link(at, key).1, VertexType::new(links.dst_type), links.num_dst)
    }

    /// Draws the pairs of a batch of links, given by their positions, or (`mine`) of some of these links: the same pairs
    /// for them. Fills the seed vertices of each vertex type, and the pairs of each relation.
    pub fn draw(
        &self,
        (batch, mine): (&[u32], Option<&[bool]>),
        key: BatchKey,
        room: &mut PairRoom,
        seeds: &mut [Vec<u32>],
        pairs: &mut Vec<Pairs>,
    ) {
        let PairRoom { ids, drawn, links: own, has_all } = room;
        *has_all = mine.is_none();
        drawn.resize_with(self.graphs.len(), Vec::new);
        drawn.iter_mut().for_each(Vec::clear);
        own.resize_with(self.graphs.len(), BatchLinks::default);
        own.iter_mut().for_each(BatchLinks::clear);
        let mut of_link: Vec<Vec<(u64, bool)>> = vec![vec![]; self.graphs.len()];
        for (index, &link) in batch.iter().enumerate() {
            let (position, at) = self.link(link);
            let links = &self.graphs[position];
            own[position].drawn.push(links.link(at, key));
            of_link[position].push((link.into(), mine.is_none_or(|mine| mine[index])));
        }
        own.iter_mut().for_each(BatchLinks::sort);
        let draws = Draws { key: mask_key(key.seed, key.epoch, STREAM), tries: TRIES };
        let mut link = 0;
        for (position, links) in self.graphs.iter().enumerate() {
            let of_batch = &own[position].drawn;
            let drawn_for = of_batch.iter().zip(&of_link[position]).filter(|(_, (_, is_mine))| *is_mine);
            for (&(src, dst), &(number, _)) in drawn_for {
                drawn[position].push(Drawn { src, dst, is_link: true, link });
                for k in 0..self.own_negatives() {
                    let first = (number * u64::from(self.target.negatives.count) + u64::from(k)) * TRIES;
                    // With an odd number of negatives, too, as many replace the destination as the source, over all
                    // links.
                    let of_destination = (number + u64::from(k)).is_multiple_of(2);
                    let [of_source, of_dst] = &links.candidates;
                    let (candidates, replaced) = if of_destination { (of_dst, dst) } else { (of_source, src) };
                    let is_loop = k < 2 && self.target.negatives.self_loops && links.has_self_loops();
                    let candidate = |attempt| {
                        if is_loop && attempt == 0 {
                            return if of_destination { (src, src) } else { (dst, dst) };
                        }
                        let draw = |of: usize| draws.number(first + attempt, of);
                        let end = match self.target.negatives.by {
                            NegativeEnds::InBatch if attempt < TRIES / 2 => {
                                let other = of_batch[draw(of_batch.len())];
                                candidates.at(if of_destination { other.1 } else { other.0 }, replaced)
                            }
                            NegativeEnds::InBatch
                            | NegativeEnds::Uniform
                            | NegativeEnds::Shared
                            | NegativeEnds::SharedDestinations => {
                                candidates.of(replaced).start + draw(candidates.count()) as u32
                            }
                        };
                        if of_destination { (src, end) } else { (end, dst) }
                    };
                    let accepted = |pair| pair != (src, dst) && !links.has(pair);
                    if let Some((src, dst)) = draws.first(candidate, accepted) {
                        drawn[position].push(Drawn { src, dst, is_link: false, link });
                    }
                }
                link += 1;
            }
        }
        ids.resize_with(seeds.len(), FxHashMap::default);
        ids.iter_mut().for_each(FxHashMap::clear);
        if !self.target.negatives.by.shared().is_empty() {
            self.shared_samples(key, seeds);
            for (ids, seeds) in ids.iter_mut().zip(seeds.iter()) {
                ids.extend(seeds.iter().copied().zip(0..));
            }
        }
        let mut id = |vertex_type: usize, vertex: u32| {
            let seeds = &mut seeds[vertex_type];
            *ids[vertex_type].entry(vertex).or_insert_with(|| {
                seeds.push(vertex);
                seeds.len() as u32 - 1
            })
        };
        for (links, drawn) in self.graphs.iter().zip(drawn.iter_mut()) {
            for Drawn { src, dst, .. } in drawn.iter_mut() {
                (*src, *dst) = (id(links.src_type, *src), id(links.dst_type, *dst));
            }
        }
        pairs.resize_with(self.graphs.len(), Pairs::default);
        for ((links, drawn), pairs) in self.graphs.iter().zip(&*drawn).zip(pairs) {
            pairs.fill(drawn, seeds[links.dst_type].len());
        }
    }

    /// Negative samples that each link has for itself.
    fn own_negatives(&self) -> u32 {
        match self.target.negatives.by {
            NegativeEnds::Shared | NegativeEnds::SharedDestinations => 0,
            NegativeEnds::Uniform | NegativeEnds::InBatch => self.target.negatives.count,
        }
    }

    /// Draws the vertices of each end that all links of a batch are compared with, without replacement: the same for all
    /// processes. A type has so many vertices ([`PairSource::check`]).
    fn shared_samples(&self, key: BatchKey, seeds: &mut [Vec<u32>]) {
        let count = self.target.negatives.count as usize;
        let num_types = seeds.len() as u64;
        for (vertex_type, num) in self.replaced_ends() {
            let samples = &mut seeds[vertex_type];
            if samples.is_empty() {
                let draws = Draws { key: mask_key(key.seed, key.epoch, SHARED_STREAM), tries: 1 };
                let first = (key.batch * num_types + vertex_type as u64) * (count as u64);
                // Floyd's algorithm: each subset is as probable as any other.
                let mut drawn = FxHashSet::default();
                for (position, last) in (first..).zip(num.saturating_sub(count)..num) {
                    let vertex = draws.number(position, last + 1) as u32;
                    if !drawn.insert(vertex) {
                        drawn.insert(last as u32);
                    }
                }
                samples.extend(drawn);
                samples.sort_unstable();
            }
        }
    }

    /// The vertex types of the ends of links that shared samples replace, with their numbers of vertices, for each graph.
    fn replaced_ends(&self) -> impl Iterator<Item = (usize, usize)> {
        let replaced = self.target.negatives.by.shared();
        self.graphs.iter().flat_map(|links| {
            replaced.iter().map(|end| match end {
                Direction::In => (links.dst_type, links.num_dst),
                Direction::Out => (links.src_type, links.num_src),
            })
        })
    }

    /// # Errors
    /// More shared samples than vertices of a type.
    pub fn check(&self, types: &[String]) -> Result<()> {
        let Negatives { count, by, .. } = self.target.negatives;
        match self.replaced_ends().find(|&(_, num)| num < count as usize) {
            None => Ok(()),
            Some((vertex_type, num)) => Err(ExecError::Shape {
                what: format!("`negatives {}({count})`", by.name()),
                found: format!("{num} vertices of type `{}`", types[vertex_type]),
                expected: format!("at least {count}: `negatives {}({num})` compares with all of them", by.name()),
            }),
        }
    }

    /// Removes the edges of a sampled batch that repeat its links.
    pub fn exclude(&self, room: &PairRoom, batch: &mut Batch) {
        for (index, repeats) in self.repeats.iter().enumerate().filter(|(_, repeats)| !repeats.is_empty()) {
            let Some(block) = batch.blocks.get_mut(index) else { continue };
            let [src, dst] = [block.src_type, block.dst_type].map(|of| &batch.vertices[of][..]);
            let may_repeat = if room.has_all { batch.known[0][block.dst_type] as usize } else { dst.len() };
            let mut kept = 0;
            let mut begin = 0;
            // Rows are those of the first destinations.
            for (row, &vertex) in dst.iter().enumerate().take(block.indptr.len().saturating_sub(1)) {
                let end = block.indptr[row + 1] as usize;
                let of_row = |&RepeatedLinks { graph, reverse }: &RepeatedLinks| match row < may_repeat {
                    true => room.links[graph].repeated_at(vertex, reverse),
                    false => &[],
                };
                let links: Vec<&[(u32, u32)]> = repeats.iter().map(of_row).filter(|links| !links.is_empty()).collect();
                let is_link = |from: u32| links.iter().any(|links| links.binary_search_by_key(&from, |l| l.1).is_ok());
                for edge in begin..end {
                    if links.is_empty() || !is_link(src[block.indices[edge] as usize]) {
                        block.indices[kept] = block.indices[edge];
                        // Owners of vertices send the numbers of edges whose values are read.
                        if let Some(&number) = block.eids.get(edge) {
                            block.eids[kept] = number;
                        }
                        kept += 1;
                    }
                }
                begin = end;
                block.indptr[row + 1] = kept as u64;
            }
            block.indices.truncate(kept);
            block.eids.truncate(kept);
        }
    }
}

impl Pairs {
    /// Sorts by destination, stably.
    fn fill(&mut self, drawn: &[Drawn], num_dst: usize) {
        let Self { indptr, src, is_link: truth, link: number, links } = self;
        // Each start is shifted by one entry until all pairs are placed.
        indptr.clear();
        indptr.resize(num_dst + 2, 0);
        drawn.iter().for_each(|pair| indptr[pair.dst as usize + 2] += 1);
        for dst in 2..indptr.len() {
            indptr[dst] += indptr[dst - 1];
        }
        src.resize(drawn.len(), 0);
        truth.resize(drawn.len(), 0.0);
        number.resize(drawn.len(), 0);
        *links = drawn.iter().filter(|pair| pair.is_link).count();
        for &Drawn { src: from, dst: to, is_link, link } in drawn {
            let slot = &mut indptr[to as usize + 1];
            src[*slot as usize] = from;
            number[*slot as usize] = link;
            truth[*slot as usize] = if is_link { 1.0 } else { 0.0 };
            *slot += 1;
        }
        indptr.truncate(num_dst + 1);
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashSet;

    use hgnnc_data::{SamplingInputs, Topology};
    use hgnnc_ir::training::{LinkLoss, Negatives};
    use hgnnc_sample::{Edges, Fanout, Plan, SampleGraph, Sampler};

    use super::*;

    const USERS: usize = 30;
    const ARTISTS: usize = 20;
    const KEY: BatchKey = BatchKey { seed: 5, epoch: 2, batch: 0 };

    /// Users listen to artists, with a second relation that repeats these links, and know each other both ways. The last
    /// graphs are those of links, of which walks draw the last ones.
    fn world() -> (Dataflow, Vec<Topology>) {
        let tables = "vertex User from \"user\" vertex Artist from \"artist\" \
            relation listens: User -> Artist from \"l\" relation heard_by: Artist -> User from \"h\" \
            relation knows: User -> User from \"k\" \
            graph listens: User -> Artist = >listens graph reverse_listens: Artist -> User = <listens \
            graph heard_by: Artist -> User = >heard_by graph knows: User -> User = >knows \
            graph links_listens: User -> Artist = >listens links graph links_knows: User -> User = >knows links \
            graph UAU: User -> User = >listens <listens \
            graph links_UAU: User -> User = >listens <listens links";
        let tables = hgnnc_ir::parse(&format!("dataflow d {{ {tables} }}")).expect("text of tables");
        let listens: Vec<(u32, u32)> = (0..150).map(|i| (i * 7 % USERS as u32, i * i % ARTISTS as u32)).collect();
        let listens: Vec<(u32, u32)> = listens.into_iter().collect::<HashSet<_>>().into_iter().collect();
        let back: Vec<(u32, u32)> = listens.iter().map(|&(user, artist)| (artist, user)).collect();
        let both = |i: u32| [(i, (i + 1) % USERS as u32), ((i + 1) % USERS as u32, i)];
        let knows: Vec<(u32, u32)> = (0..USERS as u32).flat_map(both).collect();
        let graph = |name: &str, src, dst, edges: &[(u32, u32)]| {
            Topology::from_edges(name, src, dst, edges).expect("all ends exist")
        };
        let graphs = vec![
            graph("listens", USERS, ARTISTS, &listens),
            graph("reverse_listens", ARTISTS, USERS, &back),
            graph("heard_by", ARTISTS, USERS, &back),
            graph("knows", USERS, USERS, &knows),
            graph("links_listens", USERS, ARTISTS, &listens),
            graph("links_knows", USERS, USERS, &knows),
            graph("UAU", USERS, USERS, &of_uau(&listens)),
            graph("links_UAU", USERS, USERS, &[]),
        ];
        (tables, graphs)
    }

    /// The pairs of users who listen to an artist.
    fn of_uau(listens: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let pairs = listens.iter().flat_map(|a| listens.iter().filter(|b| a.1 == b.1).map(|b| (a.0, b.0)));
        pairs.collect::<HashSet<_>>().into_iter().collect()
    }

    fn source(graphs: &[usize], by: NegativeEnds) -> (PairSource, Dataflow, Vec<Topology>) {
        let (tables, topologies) = world();
        let target = LinkTarget {
            loss: LinkLoss::BinaryCrossEntropy,
            graphs: graphs.iter().map(|&graph| Graph::new(graph)).collect(),
            negatives: Negatives { count: 3, by, self_loops: false },
            exclude: if graphs.contains(&4) { vec![1] } else { vec![] },
        };
        let steps = vec![topologies[1].csc.clone(), topologies[0].csc.clone()];
        let mut links = vec![None; 7];
        links.push(Some(Arc::new(LinkWalks::new(steps))));
        let drawn = SamplingInputs { links, ..SamplingInputs::default() };
        let data = BoundData { graphs: topologies, drawn, ..BoundData::default() };
        (PairSource::new(&target, &tables, &data), tables, data.graphs)
    }

    /// Pairs of a graph with vertex ids: source, destination and label.
    fn listed(pairs: &Pairs, src: &[u32], dst: &[u32]) -> Vec<(u32, u32, bool)> {
        let rows = pairs.indptr.windows(2).zip(dst);
        let row = |(row, &to): (&[u64], &u32)| {
            let at = row[0] as usize..row[1] as usize;
            at.map(|at| (src[pairs.src[at] as usize], to, pairs.is_link[at] == 1.0)).collect::<Vec<_>>()
        };
        rows.flat_map(row).collect()
    }

    #[test]
    fn each_link_has_its_negatives_which_are_no_links() {
        for by in [NegativeEnds::Uniform, NegativeEnds::InBatch] {
            let (source, _, topologies) = source(&[4, 5], by);
            let num = topologies[4].num_edges() as u32;
            let batch: Vec<u32> = (0..20).chain(num..num + 9).collect();
            let (mut draws, mut pairs) = (vec![], vec![]);
            for _ in 0..2 {
                let mut seeds = vec![vec![]; 2];
                source.draw((&batch, None), KEY, &mut PairRoom::default(), &mut seeds, &mut pairs);
                let ends = [(&seeds[0], &seeds[1]), (&seeds[0], &seeds[0])];
                draws.push([0, 1].map(|graph| listed(&pairs[graph], ends[graph].0, ends[graph].1)));
                for seeds in &seeds {
                    assert_eq!(seeds.iter().collect::<HashSet<_>>().len(), seeds.len(), "seeds are distinct");
                }
            }
            assert_eq!(draws[0], draws[1], "a batch is a function of its key");
            for (graph, (pairs, links)) in draws[0].iter().zip([20, 9]).enumerate() {
                let known = |&&(src, dst, _): &&(u32, u32, bool)| source.graphs[graph].has((src, dst));
                assert_eq!(pairs.len(), 4 * links);
                assert_eq!(pairs.iter().filter(|pair| pair.2).count(), links);
                assert_eq!(pairs.iter().filter(|pair| pair.2).filter(known).count(), links);
                assert_eq!(pairs.iter().filter(|pair| !pair.2).filter(known).count(), 0, "{by:?}");
            }
            // Each pair shares an end with its link.
            source.draw((&batch, None), KEY, &mut PairRoom::default(), &mut vec![vec![]; 2], &mut pairs);
            for (pairs, first) in pairs.iter().zip([0, 20]) {
                let rows = pairs.indptr.windows(2).enumerate();
                let dst: Vec<u32> = rows.flat_map(|(row, at)| (at[0]..at[1]).map(move |_| row as u32)).collect();
                let of = |at: usize| (pairs.link[at], (pairs.src[at], dst[at]));
                let links: FxHashMap<u32, (u32, u32)> =
                    (0..dst.len()).filter(|&at| pairs.is_link[at] == 1.0).map(of).collect();
                assert_eq!((links.len(), links.keys().min()), (pairs.links, Some(&first)));
                for (link, (src, dst)) in (0..dst.len()).map(of) {
                    assert!(links[&link].0 == src || links[&link].1 == dst);
                }
            }
        }
    }

    /// The first two samples of a link within one type are (u, u) and (v, v). Links between two types and links of
    /// metapaths have no such samples.
    #[test]
    fn two_samples_of_a_link_are_self_loops() {
        for by in [NegativeEnds::Uniform, NegativeEnds::InBatch] {
            let (mut source, _, topologies) = source(&[4, 5], by);
            source.target.negatives.self_loops = true;
            let num = topologies[4].num_edges() as u32;
            let batch: Vec<u32> = (0..20).chain(num..num + 9).collect();
            let (mut seeds, mut pairs) = (vec![vec![]; 2], vec![]);
            source.draw((&batch, None), KEY, &mut PairRoom::default(), &mut seeds, &mut pairs);
            let [likes, knows] = [(0, &seeds[1]), (1, &seeds[0])].map(|(at, dst)| listed(&pairs[at], &seeds[0], dst));
            let loops = |pairs: &[(u32, u32, bool)]| pairs.iter().filter(|pair| pair.0 == pair.1 && !pair.2).count();
            let ends = knows.iter().filter(|pair| pair.2).map(|&(src, dst, _)| [src, dst]);
            let known = ends.flatten().filter(|&end| source.graphs[1].has((end, end))).count();
            assert!(loops(&knows) >= 18 - known, "{by:?}: {knows:?}");
            assert_eq!((likes.len(), knows.len()), (80, 36), "{by:?}: so many as without");
            source.target.negatives.self_loops = false;
            source.draw((&batch, None), KEY, &mut PairRoom::default(), &mut seeds, &mut pairs);
            assert_eq!(listed(&pairs[0], &seeds[0], &seeds[1]), likes, "{by:?}: ends of two types make no loop");
            // Users who listen to one artist.
            let (mut walks, _, _) = self::source(&[7], by);
            let batch: Vec<u32> = (0..20).collect();
            let drawn = [false, true].map(|self_loops| {
                walks.target.negatives.self_loops = self_loops;
                let mut seeds = vec![vec![]; 2];
                walks.draw((&batch, None), KEY, &mut PairRoom::default(), &mut seeds, &mut pairs);
                listed(&pairs[0], &seeds[0], &seeds[0])
            });
            assert_eq!(drawn[0], drawn[1], "{by:?}");
        }
    }

    /// Of links as of cutoffs, an end is replaced by the rows of the same cutoff alone.
    #[test]
    fn negatives_are_rows_as_of_the_cutoff_of_their_link() {
        // Ten users as of three cutoffs, five artists as of three, of which one is read as of a fourth as well.
        let users: Vec<i64> = (0..3).flat_map(|cutoff| [cutoff; 10]).collect();
        let artists: Vec<i64> = [0; 5].into_iter().chain([1; 5]).chain([2; 5]).chain([9; 5]).collect();
        for by in [NegativeEnds::Uniform, NegativeEnds::InBatch] {
            let (mut source, _, _) = source(&[4], by);
            source.graphs[0].candidates =
                [Candidates::as_of_cutoffs(&users, 10), Candidates::as_of_cutoffs(&artists, 5)];
            let (src, dst): (Vec<u32>, Vec<u32>) = (0..15).map(|i| (10 * (i % 3) + i / 3, 5 * (i % 3) + i / 5)).unzip();
            let mut links: Vec<(u32, u32)> = dst.into_iter().zip(src).collect();
            links.sort_unstable();
            let (dst, src): (Vec<u32>, Vec<u32>) = links.into_iter().unzip();
            let indptr: Vec<u64> = (0..=20).map(|row| dst.iter().filter(|dst| **dst < row).count() as u64).collect();
            source.graphs[0].of = LinksOf::Relation { indptr: indptr.into(), src: src.into(), dst };
            let batch: Vec<u32> = (0..15).collect();
            let (mut seeds, mut pairs) = (vec![vec![]; 2], vec![]);
            source.draw((&batch, None), KEY, &mut PairRoom::default(), &mut seeds, &mut pairs);
            let drawn = listed(&pairs[0], &seeds[0], &seeds[1]);
            assert!(drawn.iter().filter(|pair| !pair.2).count() >= 40, "{by:?}: {}", drawn.len());
            assert!(drawn.iter().all(|&(user, artist, _)| user / 10 == artist / 5), "{by:?}: {drawn:?}");
        }
    }

    #[test]
    fn links_of_a_metapath_are_ends_of_its_walks_and_differ_by_epoch() {
        let (source, _, topologies) = source(&[7], NegativeEnds::InBatch);
        let links = &source.graphs[0];
        let batch: Vec<u32> = (0..links.len() as u32).collect();
        let pairs: HashSet<(u32, u32)> = topologies[6].edges().into_iter().collect();
        let draw = |key| {
            let (mut seeds, mut drawn) = (vec![vec![]; 2], vec![]);
            source.draw((&batch, None), key, &mut PairRoom::default(), &mut seeds, &mut drawn);
            listed(&drawn[0], &seeds[0], &seeds[0])
        };
        let of_epoch = |epoch| draw(BatchKey { epoch, ..KEY });
        for (src, dst, is_link) in of_epoch(0) {
            assert!(!is_link || pairs.contains(&(src, dst)), "no artist joins {src} and {dst}");
        }
        assert_eq!(of_epoch(0).iter().filter(|pair| pair.2).count(), links.len());
        assert_eq!(of_epoch(0), of_epoch(0));
        assert_ne!(of_epoch(0), of_epoch(1));
        // A link belongs to the rank that has its destination.
        for (number, &link) in batch.iter().enumerate() {
            let of = VertexType::new(links.dst_type);
            assert_eq!(source.destination(link, KEY), (links.link(number, KEY).1, of, USERS));
        }
    }

    /// Neither the positive pairs of a batch nor their repetitions are message edges (stellargraph#2021, dgl#3774).
    #[test]
    fn links_of_a_batch_are_no_messages_of_it() {
        for (graphs, num) in [(&[4][..], 12), (&[5], 15), (&[4, 5], 25), (&[7], 15), (&[5, 7], 25)] {
            let (source, tables, topologies) = source(graphs, NegativeEnds::Uniform);
            let edges = tables.graphs.iter().zip(&topologies).map(|(decl, graph)| Edges {
                name: Cow::Borrowed(&decl.name),
                src_type: decl.src.index(),
                dst_type: decl.dst.index(),
                indptr: Cow::Borrowed(&graph.csc.indptr),
                indices: Cow::Borrowed(&graph.csc.indices),
                weights: None,
            });
            let graph = SampleGraph::new(vec![USERS, ARTISTS], edges.collect()).expect("a graph");
            let messages = |graph: usize| if tables.graphs[graph].links { Fanout::AtMost(0) } else { Fanout::All };
            let plan = Plan { fanouts: vec![(0..8).map(messages).collect(); 2] };
            let mut sampler = Sampler::new(&graph, plan).expect("memory");
            let total = source.graphs.iter().map(Links::len).sum::<usize>() as u32;
            let batch: Vec<u32> = (0..num).map(|i| i * 11 % total).collect::<HashSet<_>>().into_iter().collect();
            let (mut room, mut seeds, mut pairs) = (PairRoom::default(), vec![vec![]; 2], vec![]);
            source.draw((&batch, None), KEY, &mut room, &mut seeds, &mut pairs);
            let mut sampled = Batch::default();
            sampler.sample(&seeds, KEY, &mut sampled).expect("seeds are right");
            let all: Vec<usize> = sampled.blocks.iter().map(|block| block.num_edges()).collect();
            source.exclude(&room, &mut sampled);

            let links: HashSet<(usize, u32, u32)> = (batch.iter())
                .map(|&link| {
                    let (position, at) = source.link(link);
                    let (src, dst) = source.graphs[position].link(at, KEY);
                    (graphs[position], src, dst)
                })
                .collect();
            for (index, decl) in tables.graphs.iter().enumerate().filter(|(_, decl)| !decl.links) {
                let block = &sampled.blocks[index];
                let (mut left, mut gone) = (0, 0);
                let [src, dst] = [decl.src, decl.dst].map(|of| &sampled.vertices[of.index()]);
                for (row, edges) in block.indptr.windows(2).enumerate() {
                    for at in edges[0] as usize..edges[1] as usize {
                        let (from, to) = (src[block.indices[at] as usize], dst[row]);
                        // The edge id leads to the weight and features of this edge.
                        assert_eq!(topologies[index].csc.indices[block.eids[at] as usize], from);
                        let of = if index == 3 { 5 } else { 7 };
                        let told = match index {
                            0 => links.contains(&(4, from, to)),
                            1 | 2 => links.contains(&(4, to, from)),
                            _ => [(from, to), (to, from)].iter().any(|&(a, b)| links.contains(&(of, a, b))),
                        };
                        assert!(!told, "{} tells of {from} -> {to}", decl.name);
                        left += 1;
                    }
                }
                gone += all[index] - left;
                assert_eq!(block.num_edges(), left);
                let concerned = match index {
                    3 => graphs.contains(&5),
                    6 => graphs.contains(&7),
                    _ => graphs.contains(&4),
                };
                assert_eq!(gone > 0, concerned, "{}: {gone} edges are left out", decl.name);
            }
        }
    }
}
