//! The fast sampler.
//!
//! It waits for memory, so everything is arranged for few accesses, and many of them at a time. At places that no cache
//! foresees it reads:
//! - once per destination the row offsets of all relations into its type, which lie together;
//! - the row: one line for each 16 edges that are taken whole, one for each edge that is drawn;
//! - for each edge the word of its source in the table of compact ids (four bytes for each vertex of the graph).
//!
//! The figures for a graph are what the `bench` example prints; about one line per edge for ids, and up to one for rows,
//! some of which the second-level cache has. With a latency of 80 ns and twelve lines in flight (assumed, not measured) a core
//! receives 150 million lines a second: 75 to 130 million edges a second and core are what there is to reach.
//! Random numbers cost a few instructions.
//!
//! A relation goes in groups of rows of about [`GROUP`] edges, in three steps: positions are drawn and rows asked for; sources
//! are read and their words asked for; compact ids are given. Each step asks for what the next one reads of the same
//! group while the next one works on the group before.

use crate::batch::Batch;
use crate::draw::{DrawSpace, Drawer};
use crate::graph::{GraphError, SampleGraph};
use crate::plan::{BatchKey, Fanout, Plan, SampleError};
use crate::prefetch::prefetch;
use crate::table::{Table, gather};

/// Vertices whose row offsets are asked for ahead.
const ROWS_AHEAD: usize = 16;
/// Edges of a group, about. Two groups of lines are on their way at a time, as many as first-level caches and their queues
/// take.
const GROUP: usize = 64;
/// Groups between asking for rows and reading them.
const AHEAD: usize = 2;
/// Elements of a cache line.
const LINE: usize = 16;

/// Samples batches of one graph by one plan, one after the other; a thread has a sampler of its own. Its tables take four
/// bytes for each vertex of the graph.
pub struct Sampler<'g> {
    graph: &'g SampleGraph<'g>,
    plan: Plan,
    tables: Vec<Table>,
    space: DrawSpace,
    /// First edge and degree of each destination of a hop, by relation. `[relations][destinations]`
    rows: Vec<Vec<(u32, u32)>>,
}

impl<'g> Sampler<'g> {
    /// Errors when there is no memory for the tables.
    pub fn new(graph: &'g SampleGraph<'g>, plan: Plan) -> Result<Sampler<'g>, GraphError> {
        let tables = graph.counts().iter().map(|&count| Table::new(count)).collect::<Result<_, _>>()?;
        let rows = graph.relations().iter().map(|_| Vec::new()).collect();
        Ok(Sampler { graph, plan, tables, space: DrawSpace::default(), rows })
    }

    /// Samples the neighbourhood of `seeds`, a list without doubles for each vertex type, into `batch`, whose memory is
    /// used again. What it gives is that of [`naive::sample`](crate::naive::sample), to the bit.
    ///
    /// Errors as [`SampleError`] says; `batch` is then of no use.
    pub fn sample(&mut self, seeds: &[Vec<u32>], key: BatchKey, batch: &mut Batch) -> Result<(), SampleError> {
        batch.start(self.graph, &self.plan, seeds)?;
        for (vertex_type, (table, seeds)) in self.tables.iter_mut().zip(seeds).enumerate() {
            table.forget();
            for (id, &vertex) in seeds.iter().enumerate() {
                let (_, new) = table.id(vertex, id as u32);
                if !new {
                    return Err(SampleError::DuplicateSeed { vertex_type, vertex });
                }
            }
        }
        for hop in 0..self.plan.num_hops() {
            self.read_rows(batch, hop);
            for r in 0..self.graph.relations().len() {
                self.rows_of_hop(r, self.plan.fanouts[hop][r], key.of(r), hop, batch)?;
            }
            batch.mark(hop + 1);
        }
        for block in &mut batch.blocks {
            let edges = edges_so_far(&block.indptr) as usize;
            block.edge.truncate(edges);
            block.src.truncate(edges);
        }
        Ok(())
    }

    /// The rows of all destinations of a hop, in all relations.
    fn read_rows(&mut self, batch: &Batch, hop: usize) {
        for (vertex_type, offsets) in self.graph.offsets().iter().enumerate() {
            let destinations = &batch.vertices[vertex_type][batch.fresh(hop, vertex_type)];
            offsets.relations.iter().for_each(|&r| self.rows[r].clear());
            if offsets.relations.is_empty() {
                continue;
            }
            for (i, &vertex) in destinations.iter().enumerate() {
                if let Some(&later) = destinations.get(i + ROWS_AHEAD) {
                    offsets.prefetch(later);
                }
                let (starts, ends) = offsets.of(vertex);
                for ((&r, &start), &end) in offsets.relations.iter().zip(starts).zip(ends) {
                    self.rows[r].push((start, end - start));
                }
            }
        }
    }

    /// The edges that one hop takes of relation `r`, behind those of the hops before.
    fn rows_of_hop(
        &mut self,
        r: usize,
        fanout: Fanout,
        key: u64,
        hop: usize,
        batch: &mut Batch,
    ) -> Result<(), SampleError> {
        let relation = &self.graph.relations()[r];
        let fresh = batch.fresh(hop, relation.dst_type);
        let block = &mut batch.blocks[r];
        let rows = &self.rows[r][..];
        let first_edge = edges_so_far(&block.indptr);
        let mut edges = first_edge;
        block.indptr.extend(rows.iter().map(|&(_, degree)| {
            edges += u64::from(fanout.of(degree));
            edges
        }));
        if edges >= u64::from(u32::MAX) {
            return Err(SampleError::TooManyEdges { hop, relation: relation.name.clone(), edges });
        }
        let (first_edge, edges) = (first_edge as usize, edges as usize);
        cover(&mut block.edge, edges);
        cover(&mut block.src, edges);

        let (indptr, sources) = (&block.indptr[fresh.start..], relation.sources());
        let mut drawer = self.space.drawer(key, fanout.of(relation.max_degree()), relation.max_degree());
        let table = &mut self.tables[relation.src_type];
        // Where groups end, the last one first: sources of a group are read `AHEAD` groups after its rows are asked for,
        // and ids are given one group later.
        let mut ends = [first_edge; AHEAD + 2];
        let (mut row, mut last) = (0, first_edge);
        while last < edges {
            let (first, drawn) = (row, ends[0]);
            while row < rows.len() && (indptr[row] as usize) < drawn + GROUP {
                row += 1;
            }
            ends.copy_within(..AHEAD + 1, 1);
            ends[0] = indptr[row] as usize;
            if drawn < ends[0] {
                // Looked up here, because giving ids appends to the vertices of the source type, which may be this one.
                let destinations = &batch.vertices[relation.dst_type][fresh.start + first..fresh.start + row];
                let into = &mut block.edge[drawn..ends[0]];
                draw_rows(&mut drawer, &rows[first..row], destinations, fanout, sources, into);
            }
            let [gathered, labelled] = [ends[AHEAD + 1]..ends[AHEAD], last..ends[AHEAD + 1]];
            gather(sources, &block.edge[gathered.clone()], table.words(), &mut block.src[gathered]);
            last = labelled.end;
            table.relabel(&mut block.src[labelled], &mut batch.vertices[relation.src_type]);
        }
        Ok(())
    }
}

/// Positions of the edges of some rows, whose sources are asked for.
#[inline]
fn draw_rows(
    drawer: &mut Drawer<'_>,
    rows: &[(u32, u32)],
    destinations: &[u32],
    fanout: Fanout,
    sources: &[u32],
    mut into: &mut [u32],
) {
    for (&(start, degree), &vertex) in rows.iter().zip(destinations) {
        let (row, rest) = into.split_at_mut(fanout.of(degree) as usize);
        into = rest;
        if row.len() < degree as usize {
            drawer.draw(vertex, start, degree, row);
            row.iter().for_each(|&edge| prefetch(sources, edge as usize));
        } else {
            row.iter_mut().zip(start..).for_each(|(position, edge)| *position = edge);
            let lines = (start as usize..start as usize + row.len()).step_by(LINE);
            lines.chain(row.last().map(|&edge| edge as usize)).for_each(|edge| prefetch(sources, edge));
        }
    }
}

/// Makes `list` have at least `len` elements, of any value: what is there is written over.
fn cover(list: &mut Vec<u32>, len: usize) {
    if list.len() < len {
        list.resize(len, 0);
    }
}

/// Where the next row of a block begins.
fn edges_so_far(indptr: &[u64]) -> u64 {
    indptr[indptr.len() - 1]
}
