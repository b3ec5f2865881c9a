//! The fast sampler.
//!
//! Sampling is bound by memory latency, so the loops minimise random accesses and keep many in flight. Random accesses
//! are:
//! - once per destination, the row offsets of all relations into its type, which are adjacent;
//! - the row: one line per 16 edges if all are taken, otherwise one per sampled edge;
//! - per edge, the word of its source in the table of compact ids (four bytes per vertex of the graph).
//!
//! The `bench` example prints the counts for a graph: about one line per edge for ids, and up to one for rows, some of
//! which hit the second-level cache. At a latency of 80 ns and twelve lines in flight (assumed, not measured) a core
//! receives 150 million lines per second, which bounds sampling at 75 to 130 million edges per second and core. Random
//! numbers cost a few instructions.
//!
//! Rows of a relation are processed in groups of about 64 edges, as a software pipeline of three stages: edge ids are
//! drawn and their sources prefetched; sources are read and their id words prefetched; compact ids are assigned. Each
//! stage works on the group before that of the previous stage.
//!
//! The loops are generated for the plan ([`Compiled`]), or run in Rust ([`portable`](crate::portable)) if no code can
//! be generated. Both visit everything in the same order.

use hgnnc_executable::sampler::SLACK;

use crate::batch::{Batch, Block};
use crate::compiled::{Compiled, DrawArgs};
use crate::draw::{DrawSpace, Drawer};
use crate::graph::{GraphError, SampleGraph};
use crate::historical::HistoricalVertices;
use crate::id_map::IdMap;
use crate::plan::{BatchKey, Fanout, Plan, SampleError};
use crate::portable::{Rows, read_rows, take};
use crate::walk::WalkPlan;
use crate::walker::{Endpoints, Steps, Walked, label};

/// Samples batches of one graph by one plan, one after the other; each thread has its own sampler. Its tables take four
/// bytes per vertex of the graph.
pub struct Sampler<'g> {
    graph: &'g SampleGraph<'g>,
    plan: Plan,
    code: Option<&'g Compiled>,
    /// The relations that each hop samples.
    drawn: Vec<Vec<usize>>,
    tables: Vec<IdMap>,
    space: DrawSpace,
    /// First edge id and degree of each destination of a hop, by relation. `[relations][destinations]`
    rows: Vec<Vec<[u32; 2]>>,
    steps: Steps,
    /// The destinations of a hop, with the sentinel vertex in place of historical ones.
    active: Vec<u32>,
}

impl<'g> Sampler<'g> {
    /// A sampler in Rust. Errors when there is no memory for the tables.
    pub fn new(graph: &'g SampleGraph<'g>, plan: Plan) -> Result<Sampler<'g>, GraphError> {
        let tables = graph.counts().iter().map(|&count| IdMap::new(count)).collect::<Result<_, _>>()?;
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
            active: vec![],
        })
    }

    /// A sampler with the generated loops of `code`, for the same plan. Errors when there is no memory for the tables.
    ///
    /// Panics if the code was generated for another schema.
    pub fn compiled(graph: &'g SampleGraph<'g>, code: &'g Compiled) -> Result<Sampler<'g>, GraphError> {
        assert!(code.fits(graph), "the code of a sampler is that of its graph");
        Ok(Sampler { code: Some(code), ..Sampler::new(graph, code.plan().clone())? })
    }

    /// Samples the neighbourhood of `seeds` (a list without duplicates per vertex type) into `batch`, reusing its
    /// memory. The result is bit-equal to [`naive::sample`](crate::naive::sample).
    ///
    /// Errors as [`SampleError`] describes; `batch` is invalid then.
    pub fn sample(&mut self, seeds: &[Vec<u32>], key: BatchKey, batch: &mut Batch) -> Result<(), SampleError> {
        self.sample_with_historical(seeds, key, &HistoricalVertices::default(), batch)
    }

    /// As [`sample`](Sampler::sample), without edges of historical vertices in the last hop; bit-equal to
    /// [`naive::sample_with_historical`](crate::naive::sample_with_historical).
    ///
    /// Errors as [`SampleError`] describes; `batch` is invalid then.
    pub fn sample_with_historical(
        &mut self,
        seeds: &[Vec<u32>],
        key: BatchKey,
        historical: &HistoricalVertices,
        batch: &mut Batch,
    ) -> Result<(), SampleError> {
        batch.start(self.graph, &self.plan, seeds)?;
        if self.drawn.len() < self.plan.num_hops() {
            // The plan was validated above.
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
        let none = HistoricalVertices::default();
        for hop in 0..self.plan.num_hops() {
            let historical = if hop + 1 == self.plan.num_hops() { historical } else { &none };
            for vertex_type in 0..self.graph.counts().len() {
                self.read_rows(batch, hop, vertex_type, historical);
            }
            for at in 0..self.drawn[hop].len() {
                self.take(self.drawn[hop][at], hop, key, historical, batch)?;
            }
            batch.mark(hop + 1);
        }
        for block in &mut batch.blocks {
            let edges = edges_so_far(&block.indptr) as usize;
            block.eids.truncate(edges);
            block.indices.truncate(edges);
        }
        Ok(())
    }

    /// Reads the rows of the destinations of a hop and type, in all relations that the hop samples, and computes the
    /// end of each row's edges.
    fn read_rows(&mut self, batch: &mut Batch, hop: usize, vertex_type: usize, historical: &HistoricalVertices) {
        let (graph, drawn, fanouts) = (self.graph, &self.drawn[hop], &self.plan.fanouts[hop]);
        let fresh = batch.fresh(hop, vertex_type);
        let mut destinations = &batch.vertices[vertex_type][fresh];
        if historical.of(vertex_type) {
            active(graph, vertex_type, destinations, historical, &mut self.active);
            destinations = &self.active;
        }
        let (mut rows, mut ends, mut of) = (vec![], vec![], vec![]);
        for (r, (block, own)) in batch.blocks.iter_mut().zip(&mut self.rows).enumerate() {
            // The number of edges from walks is only known after walking.
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

    /// Samples the edges of relation `r` in one hop, after those of the hops before.
    fn take(
        &mut self,
        r: usize,
        hop: usize,
        key: BatchKey,
        historical: &HistoricalVertices,
        batch: &mut Batch,
    ) -> Result<(), SampleError> {
        let (relation, fanout) = (&self.graph.relations()[r], self.plan.fanouts[hop][r]);
        if let Some((walked, plan)) = self.graph.walk_plan(r, fanout) {
            return self.walk(r, hop, (walked, &plan), key, historical, batch);
        }
        let first = batch.fresh(hop, relation.dst_type).start;
        let Block { indptr, indices, eids, .. } = &mut batch.blocks[r];
        let edges = edges_so_far(indptr);
        if edges >= u64::from(u32::MAX) {
            return Err(SampleError::TooManyEdges { hop, relation: relation.name.clone(), edges });
        }
        cover(eids, edges as usize + SLACK);
        cover(indices, edges as usize + SLACK);
        let (rows, indptr) = (&self.rows[r][..], &indptr[first..]);
        let draws = match fanout {
            Fanout::All | Fanout::AtMost(_) => fanout.of(relation.max_degree()),
            Fanout::Weighted(_) | Fanout::Latest(_) | Fanout::Walks { .. } => 0,
        };
        let draws = self.space.draws(key.of(r), draws, relation.max_degree());
        let (table, vertices) = (&mut self.tables[relation.src_type], &mut batch.vertices);
        match self.code {
            Some(code) => {
                code.draw(
                    self.graph,
                    (hop, r),
                    DrawArgs { rows, first, indptr, draws, ids: table, vertices, eids, indices },
                );
            }
            None => {
                let rows = Rows { rows, first, indptr, fanout };
                take(rows, relation, &mut Drawer(draws), table, vertices, (eids, indices));
            }
        }
        Ok(())
    }

    /// Samples relation `r` by random walks from the destinations of a hop.
    fn walk(
        &mut self,
        r: usize,
        hop: usize,
        (graph, plan): (&SampleGraph<'_>, &WalkPlan),
        key: BatchKey,
        historical: &HistoricalVertices,
        batch: &mut Batch,
    ) -> Result<(), SampleError> {
        let relation = &self.graph.relations()[r];
        let fresh = batch.fresh(hop, relation.dst_type);
        let Block { indptr, indices, eids, .. } = &mut batch.blocks[r];
        let before = edges_so_far(indptr);
        let edges = before + fresh.len() as u64 * u64::from(plan.walks.min(plan.top_k));
        if edges >= u64::from(u32::MAX) {
            return Err(SampleError::TooManyEdges { hop, relation: relation.name.clone(), edges });
        }
        indices.truncate(before as usize);
        eids.truncate(before as usize);
        let keys = plan.keys(key);
        let WalkPlan { metapath, walks, top_k } = plan;
        let walked = Walked { graph, metapath, keys: &keys, walks: *walks, top_k: *top_k };
        // End vertices become vertices of the source type, which may be the type of the destinations.
        active(self.graph, relation.dst_type, &batch.vertices[relation.dst_type][fresh], historical, &mut self.active);
        let (table, known) = (&mut self.tables[relation.src_type], &mut batch.vertices[relation.src_type]);
        let ends = Endpoints { vertices: indices, visits: eids, indptr };
        self.steps.walk(walked, &self.active, ends, |ends| label(table, ends, known));
        Ok(())
    }
}

/// Copies the destinations; the sentinel vertex without edges replaces historical ones.
fn active(
    graph: &SampleGraph<'_>,
    vertex_type: usize,
    destinations: &[u32],
    historical: &HistoricalVertices,
    active: &mut Vec<u32>,
) {
    let sentinel = graph.counts()[vertex_type] as u32;
    let all = destinations.iter().map(|&vertex| if historical.has(vertex_type, vertex) { sentinel } else { vertex });
    active.clear();
    active.extend(all);
}

/// Grows `list` to at least `len` elements; existing values are overwritten later.
fn cover(list: &mut Vec<u32>, len: usize) {
    if list.len() < len {
        list.resize(len, 0);
    }
}

/// Offset of the next row of a block.
fn edges_so_far(indptr: &[u64]) -> u64 {
    indptr[indptr.len() - 1]
}
