//! Sampling hop by hop, where in-edges of a vertex may be in the memory of another process.
//!
//! A [`Sampler`](crate::Sampler) draws edges and numbers their sources in one go. A [`HopSampler`] does both apart, so that
//! the process that has the in-edges of a vertex can draw them for the one that has reached it:
//!
//! ```text
//! start       the seeds are the destinations of the first hop
//! each hop    draw       in-edges of some destinations, by whoever has them
//!             add        the edges of all destinations, in their order: sources that are new get compact ids
//!             end_hop    the new ones are the destinations of the next hop
//! ```
//!
//! Random numbers are functions of the batch, the vertex and the place in its row, so the batch is that of
//! [`naive::sample`](crate::naive::sample), whoever has drawn. Walks have steps of their own, of which each process has all edges.

use crate::batch::{Batch, Block};
use crate::draw::{DrawSpace, Drawer};
use crate::graph::{GraphError, SampleGraph};
use crate::id_map::IdMap;
use crate::plan::{BatchKey, Fanout, Plan, SampleError};
use crate::walk::WalkPlan;
use crate::walker::{Endpoints, Steps, Walked};
use crate::weight::Weigher;

/// In-edges that were drawn for some vertices along one relation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrawnEdges {
    /// Number of drawn edges of each vertex. `[vertices]`
    pub counts: Vec<u32>,
    /// Position of the first in-edge of each vertex in the relation's CSC, drawn or not; 0 of walks. `[vertices]`
    pub firsts: Vec<u32>,
    /// Position of each drawn edge in the CSC; the number of walks that ended at its source, of walks. `[edges]`
    pub eids: Vec<u32>,
    /// Source of each drawn edge. `[edges]`
    pub sources: Vec<u32>,
}

/// Samples batches of one graph by one plan, hop by hop. Its tables take four bytes per vertex of the graph.
pub struct HopSampler<'g> {
    graph: &'g SampleGraph<'g>,
    plan: &'g Plan,
    tables: Vec<IdMap>,
    space: DrawSpace,
    steps: Steps,
}

impl<'g> HopSampler<'g> {
    /// A sampler for a plan.
    ///
    /// # Errors
    /// When there is no memory for the tables of compact ids.
    pub fn new(graph: &'g SampleGraph<'g>, plan: &'g Plan) -> Result<Self, GraphError> {
        let tables = graph.counts().iter().map(|&count| IdMap::new(count)).collect::<Result<_, _>>()?;
        Ok(Self { graph, plan, tables, space: DrawSpace::default(), steps: Steps::default() })
    }

    /// Begins a batch of these seeds: a list without duplicates for each vertex type.
    ///
    /// # Errors
    /// As [`SampleError`] describes; `batch` is invalid then.
    pub fn start(&mut self, seeds: &[Vec<u32>], batch: &mut Batch) -> Result<(), SampleError> {
        batch.start(self.graph, self.plan, seeds)?;
        for block in &mut batch.blocks {
            block.indices.clear();
            block.eids.clear();
        }
        for (vertex_type, (table, seeds)) in self.tables.iter_mut().zip(seeds).enumerate() {
            table.forget();
            for (id, &vertex) in seeds.iter().enumerate() {
                if !table.id(vertex, id as u32).1 {
                    return Err(SampleError::DuplicateSeed { vertex_type, vertex });
                }
            }
        }
        Ok(())
    }

    /// Draws in-edges of vertices along a relation, as a hop asks for them. The vertices need not be of a batch of this sampler.
    ///
    /// # Panics
    /// If there is no such hop, relation or vertex.
    pub fn draw(&mut self, (hop, relation): (usize, usize), key: BatchKey, vertices: &[u32], drawn: &mut DrawnEdges) {
        let fanout = self.plan.fanouts[hop][relation];
        if let Some((walked, plan)) = self.graph.walk_plan(relation, fanout) {
            return walk(&mut self.steps, (walked, &plan), key, vertices, drawn);
        }
        let DrawnEdges { counts, firsts, eids, sources } = drawn;
        let (rows, of) = (self.graph.rows(relation), &self.graph.relations()[relation]);
        let latest = matches!(fanout, Fanout::Latest(_));
        let weights = of.weights().filter(|_| latest || matches!(fanout, Fanout::Weighted(_)));
        let most = if weights.is_none() { fanout.of(of.max_degree()) } else { 0 };
        let mut drawer = Drawer(self.space.draws(key.of(relation), most, of.max_degree()));
        let from = eids.len();
        for &vertex in vertices {
            let (start, degree) = rows.of(vertex);
            let count = fanout.of(of.available(fanout, vertex, degree));
            let first = eids.len();
            eids.extend(start..start + count);
            let row = &mut eids[first..];
            match weights {
                _ if count == degree => {}
                Some(weights) => {
                    let mut weigher = Weigher { weights, latest, key: drawer.0.key, keys: drawer.0.keys };
                    weigher.take(vertex, start, degree, row);
                }
                None => drawer.draw(vertex, start, degree, row),
            }
            counts.push(count);
            firsts.push(start);
        }
        let all = of.sources();
        sources.extend(eids[from..].iter().map(|&edge| all[edge as usize]));
    }

    /// Adds the edges of a relation to the destinations of a hop: `edges_of` gives the sources of those of one, counted from
    /// the first of the hop, and their positions in the CSC, or none of these.
    ///
    /// # Errors
    /// When the relation has 2^32 edges or more in the batch.
    pub fn add<'e>(
        &mut self,
        (hop, relation): (usize, usize),
        batch: &mut Batch,
        mut edges_of: impl FnMut(usize) -> [&'e [u32]; 2],
    ) -> Result<(), SampleError> {
        let of = &self.graph.relations()[relation];
        let destinations = batch.fresh(hop, of.dst_type).len();
        let Batch { vertices, blocks, .. } = batch;
        let Block { indptr, indices, eids, .. } = &mut blocks[relation];
        let before = indices.len();
        for destination in 0..destinations {
            let [sources, positions] = edges_of(destination);
            indices.extend_from_slice(sources);
            eids.extend_from_slice(positions);
            indptr.push(indices.len() as u64);
        }
        if indices.len() >= u32::MAX as usize {
            let (relation, edges) = (of.name.clone(), indices.len() as u64);
            return Err(SampleError::TooManyEdges { hop, relation, edges });
        }
        self.tables[of.src_type].relabel(&mut indices[before..], &mut vertices[of.src_type]);
        Ok(())
    }

    /// Ends a hop, to which the edges of all relations were added, in the order of the relations.
    pub fn end_hop(&self, hop: usize, batch: &mut Batch) {
        batch.mark(hop + 1);
    }
}

/// Draws by walks along a metapath.
fn walk(
    steps: &mut Steps,
    (graph, plan): (&SampleGraph<'_>, &WalkPlan),
    key: BatchKey,
    vertices: &[u32],
    DrawnEdges { counts, firsts, eids, sources }: &mut DrawnEdges,
) {
    firsts.resize(firsts.len() + vertices.len(), 0);
    if plan.walks == 0 {
        return counts.resize(firsts.len(), 0);
    }
    let keys = plan.keys(key);
    let walked = Walked { graph, metapath: &plan.metapath, keys: &keys, walks: plan.walks, top_k: plan.top_k };
    let mut indptr = vec![sources.len() as u64];
    steps.walk(walked, vertices, Endpoints { vertices: sources, visits: eids, indptr: &mut indptr }, |_| {});
    counts.extend(indptr.windows(2).map(|row| (row[1] - row[0]) as u32));
}
