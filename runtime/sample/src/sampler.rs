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
//! A relation goes in groups of rows of about 64 edges, in three steps: positions are drawn and rows asked for; sources
//! are read and their words asked for; compact ids are given. Each step asks for what the next one reads of the same
//! group while the next one works on the group before.
//!
//! These loops are generated for the plan ([`Compiled`]); where no code can be generated, they are those of
//! [`portable`](crate::portable). Both have the same order of everything.

use hgnnc_native::SLACK;

use crate::batch::{Batch, Block};
use crate::compiled::{Compiled, Taken};
use crate::draw::{DrawSpace, Drawer};
use crate::graph::{GraphError, SampleGraph};
use crate::plan::{BatchKey, Fanout, Plan, SampleError};
use crate::portable::{Rows, read_rows, take};
use crate::resting::Resting;
use crate::table::Table;
use crate::walk::WalkPlan;
use crate::walker::{Ends, Steps, Walked, label};

/// Samples batches of one graph by one plan, one after the other; a thread has a sampler of its own. Its tables take four
/// bytes for each vertex of the graph.
pub struct Sampler<'g> {
    graph: &'g SampleGraph<'g>,
    plan: Plan,
    code: Option<&'g Compiled>,
    /// The relations of which each hop takes edges.
    drawn: Vec<Vec<usize>>,
    tables: Vec<Table>,
    space: DrawSpace,
    /// First edge and degree of each destination of a hop, by relation. `[relations][destinations]`
    rows: Vec<Vec<[u32; 2]>>,
    steps: Steps,
    /// The destinations of a hop, with the vertex behind the last one for those that rest.
    awake: Vec<u32>,
}

impl<'g> Sampler<'g> {
    /// A sampler in Rust. Errors when there is no memory for the tables.
    pub fn new(graph: &'g SampleGraph<'g>, plan: Plan) -> Result<Sampler<'g>, GraphError> {
        let tables = graph.counts().iter().map(|&count| Table::new(count)).collect::<Result<_, _>>()?;
        let rows = graph.relations().iter().map(|_| Vec::new()).collect();
        Ok(Sampler {
            graph,
            plan,
            code: None,
            drawn: vec![],
            tables,
            space: DrawSpace::default(),
            rows,
            steps: Steps::default(),
            awake: vec![],
        })
    }

    /// A sampler whose loops are generated, for the plan that they were generated for. Errors when there is no memory for the
    /// tables.
    ///
    /// Panics if the code was made for a graph of other relations.
    pub fn compiled(graph: &'g SampleGraph<'g>, code: &'g Compiled) -> Result<Sampler<'g>, GraphError> {
        assert!(code.fits(graph), "the code of a sampler is that of its graph");
        Ok(Sampler { code: Some(code), ..Sampler::new(graph, code.plan().clone())? })
    }

    /// Samples the neighbourhood of `seeds`, a list without doubles for each vertex type, into `batch`, whose memory is
    /// used again. What it gives is that of [`naive::sample`](crate::naive::sample), to the bit.
    ///
    /// Errors as [`SampleError`] says; `batch` is then of no use.
    pub fn sample(&mut self, seeds: &[Vec<u32>], key: BatchKey, batch: &mut Batch) -> Result<(), SampleError> {
        self.sample_resting(seeds, key, &Resting::default(), batch)
    }

    /// As [`sample`](Sampler::sample), while some vertices rest: what it gives is that of
    /// [`naive::sample_resting`](crate::naive::sample_resting).
    ///
    /// Errors as [`SampleError`] says; `batch` is then of no use.
    pub fn sample_resting(
        &mut self,
        seeds: &[Vec<u32>],
        key: BatchKey,
        resting: &Resting,
        batch: &mut Batch,
    ) -> Result<(), SampleError> {
        batch.start(self.graph, &self.plan, seeds)?;
        if self.drawn.len() < self.plan.num_hops() {
            // The plan was checked above.
            self.drawn = (0..self.plan.num_hops()).map(|hop| self.plan.drawn(self.graph, hop)).collect();
        }
        for (vertex_type, (table, seeds)) in self.tables.iter_mut().zip(seeds).enumerate() {
            table.forget();
            for (id, &vertex) in seeds.iter().enumerate() {
                let (_, new) = table.id(vertex, id as u32);
                if !new {
                    return Err(SampleError::DuplicateSeed { vertex_type, vertex });
                }
            }
        }
        let nobody = Resting::default();
        for hop in 0..self.plan.num_hops() {
            let resting = if hop + 1 == self.plan.num_hops() { resting } else { &nobody };
            for vertex_type in 0..self.graph.counts().len() {
                self.read_rows(batch, hop, vertex_type, resting);
            }
            for at in 0..self.drawn[hop].len() {
                self.take(self.drawn[hop][at], hop, key, resting, batch)?;
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

    /// The rows of all destinations of a hop and type, in all relations that are drawn from, and where the edges taken of
    /// each row end.
    fn read_rows(&mut self, batch: &mut Batch, hop: usize, vertex_type: usize, resting: &Resting) {
        let (graph, drawn, fanouts) = (self.graph, &self.drawn[hop], &self.plan.fanouts[hop]);
        let fresh = batch.fresh(hop, vertex_type);
        let mut destinations = &batch.vertices[vertex_type][fresh];
        if resting.of(vertex_type) {
            awake(graph, vertex_type, destinations, resting, &mut self.awake);
            destinations = &self.awake;
        }
        let (mut rows, mut ends, mut of) = (vec![], vec![], vec![]);
        for (r, (block, own)) in batch.blocks.iter_mut().zip(&mut self.rows).enumerate() {
            // Walks say themselves how many ends they have.
            if block.dst_type != vertex_type || (drawn.contains(&r) && matches!(fanouts[r], Fanout::Walks { .. })) {
                continue;
            }
            if drawn.contains(&r) {
                own.clear();
                rows.push(own);
                ends.push(&mut block.indptr);
                of.push(r);
            } else {
                let last = edges_so_far(&block.indptr);
                block.indptr.resize(block.indptr.len() + destinations.len(), last);
            }
        }
        if of.is_empty() {
            return;
        }
        if let Some(code) = self.code {
            return code.rows(graph, (hop, vertex_type), destinations, &of, &mut rows, &mut ends);
        }
        let slots: Vec<usize> = of.iter().map(|&r| graph.relations()[r].slot()).collect();
        read_rows(&graph.offsets()[vertex_type], destinations, &slots, &mut rows);
        for ((rows, ends), &r) in rows.iter().zip(ends).zip(&of) {
            let mut end = edges_so_far(ends);
            let (relation, fanout) = (&graph.relations()[r], fanouts[r]);
            ends.extend(rows.iter().zip(destinations).map(|(&[_, degree], &vertex)| {
                end += u64::from(fanout.of(relation.available(fanout, vertex, degree)));
                end
            }));
        }
    }

    /// The edges that one hop takes of relation `r`, behind those of the hops before.
    fn take(
        &mut self,
        r: usize,
        hop: usize,
        key: BatchKey,
        resting: &Resting,
        batch: &mut Batch,
    ) -> Result<(), SampleError> {
        let (relation, fanout) = (&self.graph.relations()[r], self.plan.fanouts[hop][r]);
        if let Some((walked, plan)) = self.graph.walk_plan(r, fanout) {
            return self.walk(r, hop, (walked, &plan), key, resting, batch);
        }
        let first = batch.fresh(hop, relation.dst_type).start;
        let Block { indptr, src, edge, .. } = &mut batch.blocks[r];
        let edges = edges_so_far(indptr);
        if edges >= u64::from(u32::MAX) {
            return Err(SampleError::TooManyEdges { hop, relation: relation.name.clone(), edges });
        }
        cover(edge, edges as usize + SLACK);
        cover(src, edges as usize + SLACK);
        let (rows, indptr) = (&self.rows[r][..], &indptr[first..]);
        let draws = match fanout {
            Fanout::All | Fanout::AtMost(_) => fanout.of(relation.max_degree()),
            Fanout::Weighted(_) | Fanout::Walks { .. } => 0,
        };
        let draws = self.space.draws(key.of(r), draws, relation.max_degree());
        let (table, vertices) = (&mut self.tables[relation.src_type], &mut batch.vertices);
        match self.code {
            Some(code) => {
                code.draw(self.graph, (hop, r), Taken { rows, first, indptr, draws, table, vertices, edge, src });
            }
            None => {
                let rows = Rows { rows, first, indptr, fanout };
                take(rows, relation, &mut Drawer(draws), table, vertices, (edge, src));
            }
        }
        Ok(())
    }

    /// The ends of walks from the destinations of a hop, as edges of relation `r`.
    fn walk(
        &mut self,
        r: usize,
        hop: usize,
        (graph, plan): (&SampleGraph<'_>, &WalkPlan),
        key: BatchKey,
        resting: &Resting,
        batch: &mut Batch,
    ) -> Result<(), SampleError> {
        let relation = &self.graph.relations()[r];
        let fresh = batch.fresh(hop, relation.dst_type);
        let Block { indptr, src, edge, .. } = &mut batch.blocks[r];
        let before = edges_so_far(indptr);
        let edges = before + fresh.len() as u64 * u64::from(plan.walks.min(plan.top_k));
        if edges >= u64::from(u32::MAX) {
            return Err(SampleError::TooManyEdges { hop, relation: relation.name.clone(), edges });
        }
        src.truncate(before as usize);
        edge.truncate(before as usize);
        let keys = plan.keys(key);
        let WalkPlan { metapath, walks, top_k } = plan;
        let walked = Walked { graph, metapath, keys: &keys, walks: *walks, top_k: *top_k };
        // Ends become vertices of the source type, of which the destinations may be some.
        awake(self.graph, relation.dst_type, &batch.vertices[relation.dst_type][fresh], resting, &mut self.awake);
        let (table, known) = (&mut self.tables[relation.src_type], &mut batch.vertices[relation.src_type]);
        let ends = Ends { vertices: src, visits: edge, indptr };
        self.steps.walk(walked, &self.awake, ends, |ends| label(table, ends, known));
        Ok(())
    }
}

/// The destinations, with the vertex behind the last one, which has no edges, for those that rest.
fn awake(graph: &SampleGraph<'_>, vertex_type: usize, destinations: &[u32], resting: &Resting, awake: &mut Vec<u32>) {
    let nobody = graph.counts()[vertex_type] as u32;
    let all = destinations.iter().map(|&vertex| if resting.has(vertex_type, vertex) { nobody } else { vertex });
    awake.clear();
    awake.extend(all);
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
