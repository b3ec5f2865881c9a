//! The share of a batch that one rank of several has, and the rows of tables that it exchanges with the others
//! ([`hgnnc_ir::ranks`]).
//!
//! Ranks sample the neighbourhoods of as many seed vertices of each batch, if possible of those that they own. For every table they tell the owners of
//! its rows the vertices that they have sampled: one exchange for each table and batch, ahead of training. Routes for the
//! rows, there and back, follow from it.
//!
//! Ranks may share relations instead of seeds (relation-aggregation-first): each has all seeds, samples the in-edges of its
//! own relations to them, and of all that it has reached then the in-edges of all relations. So a layer below the last is
//! computed where its results are aggregated. A seed's own value of the layer before is needed once: by the rank that has
//! the seed among its part of them. Ranks with the same seeds are a replica; there may be several, with seeds of their own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hgnnc_data::ranks::Route;
use hgnnc_data::{Adjacency, BoundData, ExecError, Orders, Result, Topology, stacks};
use hgnnc_dist::{CommError, Tag, all_gather};
use hgnnc_graph::order::Order;
use hgnnc_ir::batch::{BatchLayout, WithinHops};
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::types::{Graph, VertexType};
use hgnnc_ir::{EdgeShare, Incidence, VertexRows};
use hgnnc_kernel_ir::kernel::{KernelOp, Program};
use hgnnc_sample::{Batch, BatchKey, Fanout, Plan, Relation, SampleGraph, Sampler};
use hgnnc_session::Rank;

use super::remote_rows::RemoteRows;
use super::remote_sparse::RemoteSparse;
use super::shuffled::SharedShuffle;
use super::{MiniBatch, MiniBatchLoader, Seeds, unsupported};

/// One rank among those that load batches together.
pub(super) struct Share {
    pub(super) rank: Rank,
    /// The type of the seeds in the mini-batch program, where ranks share relations.
    seeds: Option<VertexType>,
    pub(super) tables: Vec<SharedTable>,
    /// Vertices that are shuffled among those of all ranks.
    pub(super) shuffled: Vec<SharedShuffle>,
    /// Whether masks are drawn, which are functions of numbers in the dataset.
    masks: bool,
    /// Bytes that were sent to other ranks ahead of steps: vertices, drawn edges, values of edges and rows of features.
    pub(super) sent: Arc<AtomicU64>,
    /// By input of the mini-batch program whose rows the ranks have divided: its number, and its rows.
    pub(super) remote: Vec<(usize, Arc<RemoteRows>)>,
    /// The sparse matrices whose rows they have divided.
    pub(super) sparse: Vec<RemoteSparse>,
}

/// Vertex types of the mini-batch program for tables with a row for each of their vertices, or for shuffled vertices.
pub(super) struct SharedTable {
    /// The sampled vertices.
    pub(super) sampled: VertexType,
    owned: VertexType,
    copies: VertexType,
    /// From copies to owned vertices.
    graph: Graph,
    /// Sampled vertices within fewer hops, whose rows are exchanged on their own.
    first: Vec<FirstRows>,
}

/// Vertex types for the first sampled vertices of a table.
struct FirstRows {
    sampled: VertexType,
    copies: VertexType,
    /// From copies to the owned vertices of the table.
    graph: Graph,
}

/// Scratch memory to number vertices that are owned. Positions are 0 between batches.
#[derive(Default)]
pub(super) struct Numbering {
    /// By vertex that the rank owns: one more than its position.
    position: Vec<u32>,
}

/// The vertices that a rank owns among those that any rank has sampled, for tables of one vertex type.
#[derive(Clone, Debug)]
pub struct OwnedRows {
    /// The sampled vertices, as numbered in the mini-batch program.
    pub sampled: VertexType,
    /// The rows, counted from the first one that the rank owns.
    pub rows: Vec<u32>,
}

/// Said by a rank that makes the next batch.
pub(super) const MAKES: u32 = 0;
/// Said by a rank that makes no more of them.
const ENDS: u32 = 1;

pub(super) fn failed(error: CommError) -> ExecError {
    ExecError::Ranks(error.to_string())
}

impl Share {
    pub fn new(rank: Rank, program: &Program, layout: &BatchLayout, seeds: &Seeds) -> Self {
        let tables = &program.tables;
        let table = |(index, decl): (usize, &hgnnc_ir::dataflow::VertexTypeDecl)| {
            let VertexRows::Owned(sampled) = decl.rows else { return None };
            let owned = VertexType::new(index);
            let (mut all, mut first) = (None, vec![]);
            for (graph, decl) in tables.graphs.iter().enumerate() {
                if decl.share != EdgeShare::Copies || decl.dst != owned {
                    continue;
                }
                let (copies, graph) = (decl.src, Graph::new(graph));
                match tables.vertex_types[copies.index()].rows {
                    VertexRows::Copies(of) if of == sampled => all = Some((copies, graph)),
                    // Those of shuffled vertices are no sampled ones.
                    VertexRows::Copies(of) if tables.vertex_types[of.index()].rows == VertexRows::Dataset => {
                        first.push(FirstRows { sampled: of, copies, graph });
                    }
                    _ => {}
                }
            }
            let (copies, graph) = all?;
            Some(SharedTable { sampled, owned, copies, graph, first })
        };
        let is_mask = |instr: &hgnnc_kernel_ir::kernel::Instr| matches!(instr.op, KernelOp::Mask { .. });
        let masks = program.kernels().any(|kernel| match &kernel.body {
            hgnnc_kernel_ir::kernel::Body::Traversal(traversal) => traversal.instrs.iter().any(is_mask),
            _ => false,
        });
        let is_seeds =
            |known: &WithinHops| matches!(seeds, Seeds::Vertices(of) if known.hops == 0 && known.vertex == *of);
        let seeds = layout.vertices.iter().position(is_seeds).map(VertexType::new);
        let seeds = seeds.filter(|_| rank.relations.is_some());
        let shared: Vec<SharedTable> = tables.vertex_types.iter().enumerate().filter_map(table).collect();
        Self {
            rank,
            seeds,
            shuffled: SharedShuffle::all(tables, layout, &shared),
            tables: shared,
            masks,
            sent: Arc::default(),
            remote: vec![],
            sparse: vec![],
        }
    }

    /// By seed of a batch: whether it is one of this rank; `None` if all are. `vertex` gives the vertex that says where a
    /// seed belongs, its type, and the number of vertices of the type. All ranks have as many seeds, and each those that it
    /// owns as far as that allows: in a partitioned dataset, their neighbours are more often its own.
    pub fn own_seeds(&self, seeds: &[u32], vertex: impl Fn(u32) -> (u32, VertexType, usize)) -> Option<Vec<bool>> {
        let shares = self.rank.shares();
        if shares == 1 {
            return None;
        }
        let (rank, of_replica) = (self.rank.comm.rank(), self.rank.comm.size() / shares);
        let owner = |&seed: &u32| {
            let (vertex, of, count) = vertex(seed);
            self.rank.division.vertices(of, count).owner(vertex as usize) / of_replica
        };
        let owners: Vec<usize> = seeds.iter().map(owner).collect();
        Some(shared_evenly(&owners, shares).into_iter().map(|share| share == rank / of_replica).collect())
    }

    /// The part of a rank that a replica of ranks with the same seeds has of `count` of them; none of another replica.
    fn part(&self, rank: usize, count: usize) -> Range<usize> {
        let replica = self.rank.replica();
        if replica.contains(&rank) { part(rank - replica.start, count, replica.len()) } else { 0..0 }
    }

    /// Whether the owners of vertices draw their in-edges.
    pub fn by_owners(&self) -> bool {
        self.rank.distribute.edges
    }

    /// The first vertex of a type that each rank owns, and the number of all.
    pub fn borders(&self, of: usize, count: usize) -> Vec<usize> {
        self.rank.division.vertices(VertexType::new(of), count).borders()
    }

    /// By relation of a graph: the number of the first edge into vertices of each rank, and that of all edges.
    ///
    /// # Errors
    /// When another rank has ended.
    pub fn edges_of_ranks(&self, graph: &SampleGraph<'_>) -> Result<Vec<Vec<usize>>> {
        let (rank, ranks) = (self.rank.comm.rank(), self.rank.comm.size());
        let own = |(number, relation): (usize, &Relation<'_>)| {
            let borders = self.borders(relation.dst_type, graph.counts()[relation.dst_type]);
            let vertices = borders[rank] as u32..borders[rank + 1] as u32;
            vertices.map(|vertex| graph.in_edges(number, vertex).len() as u64).sum()
        };
        let own: Vec<u64> = graph.relations().iter().enumerate().map(own).collect();
        let of_ranks = all_gather(&*self.rank.comm, Tag::AHEAD, &own).map_err(failed)?;
        let borders = |relation: usize| {
            let mut border = 0;
            let of_rank = |rank: usize| {
                border += of_ranks[rank * own.len() + relation] as usize;
                border
            };
            std::iter::once(0).chain((0..ranks).map(of_rank)).collect()
        };
        Ok((0..own.len()).map(borders).collect())
    }

    /// By semantic graph: whether this rank aggregates its edges to the seeds, if ranks share relations.
    pub fn relations(&self) -> Option<impl Fn(usize) -> bool + '_> {
        let shared = self.rank.relations.as_ref()?;
        let own = self.rank.comm.rank() - self.rank.replica().start;
        Some(move |graph: usize| shared.rank_of[graph] == own)
    }

    /// By semantic graph: the rank of each replica that aggregates its edges to the seeds, if ranks share relations.
    pub fn rank_of_relations(&self) -> Option<&[usize]> {
        self.rank.relations.as_ref().map(|shared| &shared.rank_of[..])
    }

    /// Exchanges of values of the seeds, which all ranks of a replica have: each reduces a part of them.
    fn exchange_seeds(&self, table: &SharedTable, count: usize, data: &mut BoundData) {
        let (rank, ranks, replica) = (self.rank.comm.rank(), self.rank.comm.size(), self.rank.replica());
        let parts: Vec<usize> = (0..ranks).map(|rank| self.part(rank, count).len()).collect();
        let own = parts[rank];
        let graph = &mut data.graphs[table.graph.index()];
        (graph.num_src, graph.num_dst) = (own * replica.len(), own);
        (graph.ends, graph.classes, graph.csr) = ([None, None], Default::default(), Adjacency::default());
        let groups: Vec<u32> = replica.clone().flat_map(|_| 0..own as u32).collect();
        grouped(&groups, own, &mut graph.csc);
        data.num_vertices[table.owned.index()] = own;
        data.num_vertices[table.copies.index()] = own * replica.len();
        let of_each: Vec<usize> = (0..ranks).map(|rank| if replica.contains(&rank) { own } else { 0 }).collect();
        let to_owners = Route {
            send: (0..count as u32).collect(),
            send_rows: parts.clone(),
            recv_rows: of_each.clone(),
            places: None,
            first_own: None,
        };
        let to_all = Route { send: groups, send_rows: of_each, recv_rows: parts, places: None, first_own: None };
        data.routes[table.copies.index()] = Some(Arc::new(to_owners));
        data.routes[table.sampled.index()] = Some(Arc::new(to_all));
    }

    /// Data of the types that only programs of ranks have, without sampled vertices.
    pub fn complete_empty(&self, tables: &Dataflow, data: &mut BoundData) {
        self.count(tables, data);
        let ranks = self.rank.comm.size();
        let of_first = |first: &FirstRows| [first.sampled, first.copies];
        let of_tables = self
            .tables
            .iter()
            .flat_map(|table| table.first.iter().flat_map(of_first).chain([table.sampled, table.copies]));
        for vertex in of_tables.chain(self.shuffled.iter().flat_map(SharedShuffle::routed)) {
            let none = Route {
                send: vec![],
                send_rows: vec![0; ranks],
                recv_rows: vec![0; ranks],
                places: None,
                first_own: None,
            };
            data.routes[vertex.index()] = Some(Arc::new(none));
        }
    }

    /// Rows of the types that do not depend on the batch, and their routes.
    fn count(&self, tables: &Dataflow, data: &mut BoundData) {
        let ranks = self.rank.comm.size();
        data.num_vertices.resize(tables.vertex_types.len(), 0);
        data.routes.clear();
        data.routes.resize(tables.vertex_types.len(), None);
        data.rows_of_ranks.resize(tables.vertex_types.len(), None);
        for (index, decl) in tables.vertex_types.iter().enumerate() {
            match decl.rows {
                VertexRows::Rank => {
                    data.num_vertices[index] = 1;
                    data.rows_of_ranks[index] = Some(vec![1; ranks].into());
                }
                VertexRows::Replica => {
                    let is_first = self.rank.comm.rank() == self.rank.replica().start;
                    data.num_vertices[index] = usize::from(is_first);
                }
                VertexRows::Mirrors(..) => {
                    data.num_vertices[index] = ranks;
                    let (send, ones) = (vec![0; ranks], vec![1; ranks]);
                    let route = Route { send, send_rows: ones.clone(), recv_rows: ones, places: None, first_own: None };
                    data.routes[index] = Some(Arc::new(route));
                }
                _ => {}
            }
        }
    }
}

/// The rank that owns a vertex. `borders` has the first vertex of each rank, and the number of all.
pub(super) fn owner(borders: &[usize], vertex: u32) -> usize {
    borders[1..].partition_point(|&border| border <= vertex as usize)
}

/// A part of `count` rows.
fn part(rank: usize, count: usize, ranks: usize) -> Range<usize> {
    count * rank / ranks..count * (rank + 1) / ranks
}

/// By seed: the share that owns it, a rank or a replica, until that one has its part of them, and then the first one with
/// less. `owners` has the owning share of each seed.
fn shared_evenly(owners: &[usize], shares: usize) -> Vec<usize> {
    let mut room: Vec<usize> = (0..shares).map(|share| part(share, owners.len(), shares).len()).collect();
    let mut rank_of: Vec<Option<usize>> = vec![];
    for &owner in owners {
        let has_room = room[owner] > 0;
        room[owner] -= usize::from(has_room);
        rank_of.push(has_room.then_some(owner));
    }
    let mut next = 0;
    let place = |known: Option<usize>| {
        known.unwrap_or_else(|| {
            while room[next] == 0 {
                next += 1;
            }
            room[next] -= 1;
            next
        })
    };
    rank_of.into_iter().map(place).collect()
}

impl MiniBatchLoader {
    /// Whether other processes draw edges of the samples.
    pub fn samples_with_others(&self) -> bool {
        self.share.as_ref().is_some_and(Share::by_owners)
    }

    /// Whether several processes make batches together.
    pub fn is_shared(&self) -> bool {
        self.share.is_some()
    }

    /// Begins a batch that is made of parts of other ranks. False if one of them makes no more batches.
    ///
    /// # Errors
    /// When another rank has ended without saying so, or cannot be reached.
    pub(super) fn begin_with_others(&self) -> Result<bool> {
        match &self.share {
            // The first request for edges says the same.
            Some(share) if share.by_owners() && self.first.num_hops() + self.plan.num_hops() > 0 => Ok(true),
            Some(share) if share.rank.distribute.any() => {
                let nothing = vec![vec![]; share.rank.comm.size()];
                Ok(tell_owners(&share.rank, MAKES, &nothing)?.is_some())
            }
            _ => Ok(true),
        }
    }

    /// Tells the other ranks that this one makes no more batches, so that none waits for it.
    ///
    /// # Errors
    /// When another rank has ended.
    pub fn end_with_others(&self) -> Result<()> {
        match &self.share {
            Some(share)
                if share.rank.distribute.any()
                    || share.tables.iter().any(|table| share.seeds != Some(table.sampled)) =>
            {
                let none = vec![vec![]; share.rank.comm.size()];
                tell_owners(&share.rank, ENDS, &none).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Exchanges the vertices of a batch with other ranks: those whose rows they own, and those of which they need rows
    /// from here. False if another rank makes no more batches.
    pub(super) fn share_rows(&self, numberings: &mut Vec<Numbering>, mini_batch: &mut MiniBatch) -> Result<bool> {
        let Some(share) = &self.share else { return Ok(true) };
        let MiniBatch { sampled, data, owned, .. } = mini_batch;
        share.count(&self.tables, data);
        data.graphs.resize_with(self.tables.graphs.len(), Topology::default);
        let rows = |table: &SharedTable| OwnedRows { sampled: table.sampled, rows: vec![] };
        if owned.is_empty() {
            owned.extend(share.tables.iter().map(rows));
        }
        numberings.resize_with(share.tables.len(), Numbering::default);
        let ranks = share.rank.comm.size();
        for ((table, owned), numbering) in share.tables.iter().zip(owned).zip(numberings) {
            data.graphs[table.graph.index()].name.clone_from(&self.tables.graphs[table.graph.index()].name);
            if share.seeds == Some(table.sampled) {
                share.exchange_seeds(table, self.vertices(sampled, table.sampled).len(), data);
                continue;
            }
            let of = self.layout.vertices[table.sampled.index()].vertex;
            let borders = share.borders(of.index(), self.graph.counts()[of.index()]);
            let vertices = self.vertices(sampled, table.sampled);
            // The rows of the batch, by owner.
            let (mut places, mut wanted) = (vec![vec![]; ranks], vec![vec![]; ranks]);
            for (row, &vertex) in (0..).zip(vertices) {
                let owner = owner(&borders, vertex);
                places[owner].push(row);
                wanted[owner].push(vertex);
            }
            // The last numbers say how many of the vertices come first, within fewer hops: they have the first rows.
            for first in &table.first {
                let count = self.vertices(sampled, first.sampled).len();
                let of_owner = |places: &Vec<u32>| places.partition_point(|&row| (row as usize) < count) as u32;
                wanted.iter_mut().zip(&places).for_each(|(wanted, places)| wanted.push(of_owner(places)));
            }
            let sent: usize = wanted.iter().map(Vec::len).sum();
            let others = sent - wanted[share.rank.comm.rank()].len();
            share.sent.fetch_add((others * size_of::<u32>()) as u64, Relaxed);
            let Some(mut asked) = tell_owners(&share.rank, MAKES, &wanted)? else { return Ok(false) };
            let counts = |lists: &mut [Vec<u32>]| -> Vec<Vec<usize>> {
                let of_list = |list: &mut Vec<u32>| {
                    let at = list.len() - table.first.len();
                    list.drain(at..).map(|count| count as usize).collect()
                };
                lists.iter_mut().map(of_list).collect()
            };
            let (first_wanted, first_asked) = (counts(&mut wanted), counts(&mut asked));
            let first = borders[share.rank.comm.rank()] as u32;
            let own = borders[share.rank.comm.rank() + 1] - first as usize;
            let at = numbering.number(asked.iter().flatten().map(|&vertex| vertex - first), own, &mut owned.rows);
            data.num_vertices[table.owned.index()] = owned.rows.len();
            for (index, first) in table.first.iter().enumerate() {
                let of_ranks =
                    |counts: &[Vec<usize>]| counts.iter().map(|counts| counts[index]).collect::<Vec<usize>>();
                let (wanted_rows, asked_rows) = (of_ranks(&first_wanted), of_ranks(&first_asked));
                let begins = asked.iter().scan(0, |begin, asked| Some(std::mem::replace(begin, *begin + asked.len())));
                let kept = begins.zip(&asked_rows).flat_map(|(begin, &count)| &at[begin..begin + count]);
                let rows = RoutedRows {
                    at: kept.copied().collect(),
                    asked_rows,
                    places: places
                        .iter()
                        .zip(&wanted_rows)
                        .flat_map(|(places, &count)| &places[..count])
                        .copied()
                        .collect(),
                    wanted_rows,
                };
                data.graphs[first.graph.index()].name.clone_from(&self.tables.graphs[first.graph.index()].name);
                rows.bind(owned.rows.len(), (first.graph, first.copies, first.sampled), data);
            }
            let lens = |lists: &[Vec<u32>]| lists.iter().map(Vec::len).collect::<Vec<usize>>();
            let rows = RoutedRows { at, asked_rows: lens(&asked), places: places.concat(), wanted_rows: lens(&wanted) };
            rows.bind(owned.rows.len(), (table.graph, table.copies, table.sampled), data);
        }
        if !self.share_shuffled(share, mini_batch)? {
            return Ok(false);
        }
        if share.masks {
            mini_batch.data.orders = self.numbers_in_dataset(mini_batch);
        }
        Ok(true)
    }

    /// The numbers in the dataset of the rows of a batch, of which masks are functions: ranks that have sampled the same
    /// vertex draw the same mask.
    fn numbers_in_dataset(&self, mini_batch: &MiniBatch) -> Orders {
        let MiniBatch { sampled, data, first_edges, .. } = mini_batch;
        let vertices = |index: usize| {
            let counted =
                index < self.layout.vertices.len() && self.layout.reused_rows(VertexType::new(index)).is_none();
            if !counted || self.uses.direct[index] {
                return None;
            }
            let original = self.vertices(sampled, VertexType::new(index)).to_vec();
            Some(Arc::new(Order { original, rank: vec![] }))
        };
        let sampled_of = |index: usize| self.whole_graph(Graph::new(index)).map(Graph::index);
        let moved = |index: usize| {
            let starts = &data.graphs[index].csc.indptr;
            if let Some((stack, Incidence::Edges)) = self.tables.graphs[index].derived {
                return self.numbers_of_stack(
                    &self.tables.stacks[stack.index()].members,
                    starts,
                    mini_batch,
                    sampled_of,
                );
            }
            let graph = sampled_of(index)?;
            let dst = self.vertices(sampled, self.tables.graphs[index].dst);
            let displacement = |((row, &vertex), &start): ((usize, &u32), &u64)| {
                self.first_edge(first_edges, graph, (row, vertex)).wrapping_sub(start as u32)
            };
            Some(dst.iter().enumerate().zip(starts.iter()).map(displacement).collect())
        };
        Orders {
            types: (0..self.tables.vertex_types.len()).map(vertices).collect(),
            moved: (0..self.tables.graphs.len()).map(moved).collect(),
            kind: None,
        }
    }

    /// The number in the whole graph of the first in-edge of a destination of the batch.
    fn first_edge(&self, first_edges: &[Vec<u32>], graph: usize, (row, vertex): (usize, u32)) -> u32 {
        let told = first_edges.get(graph).and_then(|firsts| firsts.get(row));
        told.copied().unwrap_or_else(|| self.graph.in_edges(graph, vertex).start as u32)
    }

    /// By pair of a member and a destination of a stack of sampled graphs: displacement from the positions of its edges, which
    /// begin at `starts`, to those among the edges of all members in the dataset.
    fn numbers_of_stack(
        &self,
        members: &[Graph],
        starts: &[u64],
        MiniBatch { sampled, data, first_edges, .. }: &MiniBatch,
        sampled_of: impl Fn(usize) -> Option<usize>,
    ) -> Option<Vec<u32>> {
        let (mut moved, mut before) = (Vec::with_capacity(starts.len()), 0u64);
        for (member, rows) in members.iter().zip(stacks::destinations(members, &data.graphs)) {
            let graph = sampled_of(member.index())?;
            let vertices = self.vertices(sampled, self.tables.graphs[member.index()].dst);
            for row in rows {
                let first = self.first_edge(first_edges, graph, (row as usize, vertices[row as usize]));
                moved.push((before as u32).wrapping_add(first).wrapping_sub(starts[moved.len()] as u32));
            }
            before += self.of_whole[graph].0;
        }
        Some(moved)
    }

    /// The fan-outs of the first hop for the relations that this rank aggregates.
    pub(super) fn plan_of_relations(&self, own: impl Fn(usize) -> bool) -> Plan {
        let of_hop = |fanouts: &Vec<Fanout>| {
            let fanout = |(graph, &fanout): (usize, &Fanout)| if own(graph) { fanout } else { Fanout::AtMost(0) };
            fanouts.iter().enumerate().map(fanout).collect()
        };
        Plan { fanouts: self.first.fanouts.iter().map(of_hop).collect() }
    }

    /// Samples the in-edges of the seeds along the relations of this rank, and then those of all that is reached.
    pub(super) fn sample_relations(
        &self,
        first: &mut Sampler<'_>,
        later: &mut Sampler<'_>,
        seeds: &[Vec<u32>],
        key: BatchKey,
        mini_batch: &mut MiniBatch,
    ) -> Result<()> {
        let mut reached = Batch::default();
        first.sample(seeds, key, &mut reached).map_err(unsupported)?;
        let sampled = &mut mini_batch.sampled;
        later.sample(&reached.vertices, key, sampled).map_err(unsupported)?;
        sampled.known.insert(0, reached.known.swap_remove(0));
        mini_batch.to_seeds = reached.blocks;
        mini_batch.reused_rows.clear();
        Ok(())
    }

    /// The rows of seeds whose own values this rank gives to a layer, where ranks share relations.
    pub(super) fn own_seeds(&self, rows: VertexType, count: usize) -> Option<Range<usize>> {
        let share = self.share.as_ref().filter(|share| share.seeds == Some(rows))?;
        Some(share.part(share.rank.comm.rank(), count))
    }

    /// Bytes that were sent to other ranks ahead of steps so far.
    pub fn sent_bytes(&self) -> u64 {
        self.share.as_ref().map_or(0, |share| share.sent.load(Relaxed))
    }

    /// The rows of a table, counted from the first one that this process has, for the rows of the mini-batch program.
    pub fn rows_of_table<'b>(&self, mini_batch: &'b MiniBatch, sampled: VertexType) -> &'b [u32] {
        match mini_batch.owned.iter().find(|owned| owned.sampled == sampled) {
            Some(owned) => &owned.rows,
            None => self.vertices(&mini_batch.sampled, sampled),
        }
    }
}

/// Rows that ranks exchange with their owners.
struct RoutedRows {
    /// By rank and row that it wants from here: its place among those that this rank owns.
    at: Vec<u32>,
    /// By rank: the rows that it wants from here.
    asked_rows: Vec<usize>,
    /// By owner and row that is wanted from it: its place among those of the batch.
    places: Vec<u32>,
    /// By rank: the rows that are wanted from it.
    wanted_rows: Vec<usize>,
}

impl RoutedRows {
    /// The edges from copies to owned rows, and the routes of both.
    fn bind(self, owned: usize, (graph, copies, sampled): (Graph, VertexType, VertexType), data: &mut BoundData) {
        let Self { at, asked_rows, places, wanted_rows } = self;
        let graph = &mut data.graphs[graph.index()];
        (graph.num_src, graph.num_dst) = (at.len(), owned);
        (graph.ends, graph.classes, graph.csr) = ([None, None], Default::default(), Adjacency::default());
        grouped(&at, owned, &mut graph.csc);
        data.num_vertices[copies.index()] = at.len();
        data.routes[copies.index()] = Some(Arc::new(Route {
            send: places.clone(),
            send_rows: wanted_rows.clone(),
            recv_rows: asked_rows.clone(),
            places: None,
            first_own: None,
        }));
        data.routes[sampled.index()] = Some(Arc::new(Route {
            send: at,
            send_rows: asked_rows,
            recv_rows: wanted_rows,
            places: Some(places),
            first_own: None,
        }));
    }
}

impl Numbering {
    /// Numbers vertices in the order of their first occurrence. Returns the number of each, and the vertices.
    fn number(&mut self, vertices: impl Iterator<Item = u32>, own: usize, distinct: &mut Vec<u32>) -> Vec<u32> {
        self.position.resize(own, 0);
        distinct.clear();
        let numbers = vertices.map(|vertex| {
            let position = &mut self.position[vertex as usize];
            if *position == 0 {
                distinct.push(vertex);
                *position = distinct.len() as u32;
            }
            *position - 1
        });
        let numbers = numbers.collect();
        distinct.iter().for_each(|&vertex| self.position[vertex as usize] = 0);
        numbers
    }
}

/// An edge from each position to its group, by group.
pub(super) fn grouped(groups: &[u32], count: usize, csc: &mut Adjacency) {
    let (indptr, positions) = (csc.indptr.make_mut(), csc.indices.make_mut());
    csc.eids.clear();
    indptr.clear();
    indptr.resize(count + 1, 0);
    groups.iter().for_each(|&group| indptr[group as usize + 1] += 1);
    for group in 0..count {
        indptr[group + 1] += indptr[group];
    }
    positions.clear();
    positions.resize(groups.len(), 0);
    // Each start moves to the end of its group, which is the start of the next.
    for (position, &group) in (0..).zip(groups) {
        let start = &mut indptr[group as usize];
        positions[*start as usize] = position;
        *start += 1;
    }
    indptr.rotate_right(1);
    indptr[0] = 0;
}

/// Sends each rank the vertices that it owns, and returns those that each rank asks this one for. `None` if one of the
/// ranks makes no more batches.
pub(super) fn tell_owners(rank: &Rank, state: u32, wanted: &[Vec<u32>]) -> Result<Option<Vec<Vec<u32>>>> {
    let comm = &*rank.comm;
    let size = comm.size();
    if size == 1 {
        return Ok((state == MAKES).then(|| wanted.to_vec()));
    }
    let own: Vec<u32> = wanted.iter().flat_map(|vertices| [state, vertices.len() as u32]).collect();
    let mut of_ranks = vec![0u32; own.len()];
    let pairs = vec![2 * size_of::<u32>(); size];
    let bytes = (bytemuck::cast_slice(&own), &pairs[..]);
    comm.alltoallv(Tag::AHEAD, bytes, (bytemuck::cast_slice_mut(&mut of_ranks), &pairs)).map_err(failed)?;
    if of_ranks.chunks_exact(2).any(|of_rank| of_rank[0] == ENDS) {
        return Ok(None);
    }
    let counts = |lens: &mut dyn Iterator<Item = usize>| lens.map(|len| len * size_of::<u32>()).collect::<Vec<_>>();
    let recv_counts = counts(&mut of_ranks.chunks_exact(2).map(|of_rank| of_rank[1] as usize));
    let send_counts = counts(&mut wanted.iter().map(Vec::len));
    let mut asked = vec![0u32; recv_counts.iter().sum::<usize>() / size_of::<u32>()];
    let send = wanted.concat();
    let bytes = (bytemuck::cast_slice(&send), &send_counts[..]);
    comm.alltoallv(Tag::AHEAD, bytes, (bytemuck::cast_slice_mut(&mut asked), &recv_counts)).map_err(failed)?;
    let mut rest = &asked[..];
    let of_rank = |bytes: &usize| {
        let (own, others) = rest.split_at(bytes / size_of::<u32>());
        rest = others;
        own.to_vec()
    };
    Ok(Some(recv_counts.iter().map(of_rank).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_go_to_their_owners_and_to_all_ranks_alike() {
        assert_eq!(shared_evenly(&[0, 2, 0, 2, 1], 3), [0, 2, 1, 2, 1]);
        // All of them belong to one rank.
        assert_eq!(shared_evenly(&[0; 5], 2), [0, 0, 1, 1, 1]);
        assert_eq!(shared_evenly(&[1, 1], 3), [1, 2]);
        assert_eq!(shared_evenly(&[], 2), [0; 0]);
    }

    #[test]
    fn vertices_are_numbered_by_their_first_occurrence() {
        let (mut numbering, mut distinct) = (Numbering::default(), vec![]);
        for _ in 0..2 {
            assert_eq!(numbering.number([4, 1, 4, 0, 1].into_iter(), 5, &mut distinct), [0, 1, 0, 2, 1]);
            assert_eq!(distinct, [4, 1, 0]);
        }
    }

    #[test]
    fn copies_are_grouped_in_their_order() {
        let mut csc = Adjacency::default();
        grouped(&[0, 1, 0, 2, 1, 0], 4, &mut csc);
        assert_eq!(csc.indptr[..], [0, 3, 5, 6, 6]);
        assert_eq!(csc.indices[..], [0, 2, 5, 1, 4, 3]);
    }
}
