//! The in-edges to sample from.

use std::borrow::Cow;

use rayon::prelude::*;

use hgnnc_dataset::Dataset;
use hgnnc_graph::{RelationOptions, SemanticGraphs, SgbError, Shared};

use crate::plan::Fanout;
use crate::prefetch::prefetch;
use crate::walk::WalkPlan;
use crate::words::Words;

/// In-edges of a relation, a reversed relation, the semantic graph of a metapath, or any other graph, in CSC form.
#[derive(Clone, Debug)]
pub struct Edges<'a> {
    /// Name, for error messages.
    pub name: Cow<'a, str>,
    /// Position of the source vertex type.
    pub src_type: usize,
    /// Position of the destination vertex type.
    pub dst_type: usize,
    /// Row offsets of the destinations. `[destinations + 1]`
    pub indptr: Cow<'a, [u64]>,
    /// Source of each edge, in CSC order. `[E]` Borrowed sources are used in place; owned ones are copied to huge
    /// pages.
    pub indices: Cow<'a, [u32]>,
    /// Sampling weight of each edge, finite and at least 0; weighted sampling never takes an edge of weight 0. For
    /// [`Fanout::Latest`], the rank of the edge in its row, from 1 for the latest one. `[E]`
    pub weights: Option<Cow<'a, [f32]>>,
}

/// A relation to sample from.
#[derive(Debug)]
pub struct Relation<'a> {
    /// Name, for error messages.
    pub name: String,
    /// Position of the source vertex type.
    pub src_type: usize,
    /// Position of the destination vertex type.
    pub dst_type: usize,
    /// Position among the relations into its destination type.
    slot: usize,
    /// Source of each edge. `[E]`
    sources: Sources<'a>,
    weights: Option<Cow<'a, [f32]>>,
    /// Number of edges with positive weight of each destination; `None` if all are positive.
    positive: Option<Words>,
    max_degree: u32,
    /// Metapath from a destination to a source, as positions of steps.
    path: Option<Vec<usize>>,
}

/// Storage of the sources.
#[derive(Debug)]
enum Sources<'a> {
    Borrowed(&'a [u32]),
    Shared(Shared<u32>),
    Owned(Words),
}

impl Relation<'_> {
    /// Source of each edge, in CSC order. `[E]`
    pub fn sources(&self) -> &[u32] {
        match &self.sources {
            Sources::Borrowed(sources) => sources,
            Sources::Shared(sources) => sources,
            Sources::Owned(words) => words,
        }
    }

    /// Whether it has a metapath for random walks.
    pub(crate) fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Weight of each edge, in CSC order; `None` without weights.
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// For each destination, the number of edges with positive weight; `None` if all are positive.
    pub(crate) fn positive(&self) -> Option<&[u32]> {
        self.positive.as_deref()
    }

    /// Number of edges in the row of `vertex`, of given degree, that a fan-out can sample.
    #[inline]
    pub(crate) fn available(&self, fanout: Fanout, vertex: u32, degree: u32) -> u32 {
        match (fanout, &self.positive) {
            (Fanout::Weighted(_), Some(positive)) => positive[vertex as usize],
            (Fanout::Weighted(_), None)
            | (Fanout::All | Fanout::AtMost(_) | Fanout::Latest(_) | Fanout::Walks { .. }, _) => degree,
        }
    }

    /// Position among the relations into its destination type.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Largest in-degree of a destination.
    pub fn max_degree(&self) -> u32 {
        self.max_degree
    }
}

/// Vertex types and relations to sample mini-batches from. Sources of edges may be borrowed; row offsets are copied:
/// four bytes per vertex and relation into its type.
#[derive(Debug)]
pub struct SampleGraph<'a> {
    counts: Vec<usize>,
    relations: Vec<Relation<'a>>,
    offsets: Vec<Offsets>,
    /// The relations of metapath steps, as a graph of their own.
    walked: Option<Box<SampleGraph<'a>>>,
}

/// Row offsets of all relations into one vertex type, interleaved by vertex: the offsets of a vertex cost one memory
/// access instead of one per relation.
#[derive(Debug)]
pub(crate) struct Offsets {
    /// One row more than vertices: the sentinel behind the last vertex has no edges, and stands in for destinations
    /// whose edges are not sampled. `[vertices + 2][relations]`
    words: Words,
    /// The relations into the type, in order.
    pub relations: Vec<usize>,
}

impl Offsets {
    fn new(vertex_type: usize, vertices: usize, edges: &[Edges<'_>]) -> Result<Offsets, GraphError> {
        let relations: Vec<usize> = (0..edges.len()).filter(|&r| edges[r].dst_type == vertex_type).collect();
        let mut words = Words::zeroed((vertices + 2) * relations.len())?;
        // Blocks of vertices: a block of the table stays in cache while the offsets of all relations are written.
        const BLOCK: usize = 32;
        let width = relations.len().max(1);
        words.par_chunks_mut(BLOCK * width).enumerate().for_each(|(block, words)| {
            for (slot, &r) in relations.iter().enumerate() {
                let indptr = &edges[r].indptr;
                for (vertex, row) in (block * BLOCK..).zip(words.chunks_exact_mut(width)) {
                    // Checked before: offsets fit in 32 bits. The sentinel is behind the last vertex.
                    row[slot] = indptr[vertex.min(vertices)] as u32;
                }
            }
        });
        Ok(Offsets { words, relations })
    }

    /// Per relation: first edge id of a vertex, and of the next vertex.
    #[inline]
    pub fn of(&self, vertex: u32) -> (&[u32], &[u32]) {
        let n = self.relations.len();
        self.words[vertex as usize * n..(vertex as usize + 2) * n].split_at(n)
    }

    /// The whole table. `[vertices + 2][relations]`
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Prefetches the offsets of a vertex.
    #[inline]
    pub fn prefetch(&self, vertex: u32) {
        let n = self.relations.len();
        prefetch(self.words.as_ptr(), vertex as usize * n);
        prefetch(self.words.as_ptr(), vertex as usize * n + 2 * n - 1);
    }
}

/// Row offsets of one relation.
pub(crate) struct Rows<'a> {
    words: &'a [u32],
    /// Position of the relation among those into the type.
    slot: usize,
    relations: usize,
}

impl Rows<'_> {
    /// First edge id and degree of a vertex.
    #[inline]
    pub fn of(&self, vertex: u32) -> (u32, u32) {
        let at = vertex as usize * self.relations + self.slot;
        let start = self.words[at];
        (start, self.words[at + self.relations] - start)
    }

    /// Prefetches the words that [`of`](Rows::of) reads. Any number is allowed.
    #[inline]
    pub fn prefetch(&self, vertex: u32) {
        let at = (vertex as usize).wrapping_mul(self.relations).wrapping_add(self.slot);
        prefetch(self.words.as_ptr(), at);
        prefetch(self.words.as_ptr(), at.wrapping_add(self.relations));
    }
}

/// Why edges cannot be sampled from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// An endpoint's vertex type does not exist.
    #[error("relation `{relation}` joins vertex types {src_type} and {dst_type}, but there are {types}")]
    NoSuchType {
        /// Name of the relation.
        relation: String,
        /// Position of the source type.
        src_type: usize,
        /// Position of the destination type.
        dst_type: usize,
        /// Number of vertex types.
        types: usize,
    },
    /// Row offsets do not fit the types, or there are 2^32 edges or more.
    #[error("relation `{relation}`: {what}")]
    Shape {
        /// Name of the relation.
        relation: String,
        /// The mismatch, for the message.
        what: String,
    },
    /// More vertices than compact ids can number.
    #[error("vertex type {vertex_type} has {count} vertices, but samplers take at most 2^30")]
    TooManyVertices {
        /// Position of the type.
        vertex_type: usize,
        /// Number of its vertices.
        count: usize,
    },
    /// A semantic graph could not be built.
    #[error(transparent)]
    Sgb(#[from] SgbError),
    /// Memory for offsets or tables could not be mapped.
    #[error("no memory for {bytes} bytes: {reason}")]
    Memory {
        /// Size of the allocation in bytes.
        bytes: usize,
        /// The operating system's error.
        reason: String,
    },
}

impl<'a> SampleGraph<'a> {
    /// A graph of vertex types with the given counts; relations are sampled in the order given.
    ///
    /// Errors when edges are not edges between those types, or there is no memory for their offsets.
    pub fn new(counts: Vec<usize>, edges: Vec<Edges<'a>>) -> Result<SampleGraph<'a>, GraphError> {
        let sources = |_, indices| {
            Ok(match indices {
                Cow::Borrowed(sources) => Sources::Borrowed(sources),
                Cow::Owned(sources) => Sources::Owned(Words::of(&sources)?),
            })
        };
        Self::build(counts, edges, sources, |weights| weights)
    }

    /// As [`new`](Self::new), with copies of all that is borrowed but the sources that are shared: `shared` has, for
    /// each relation, the array that its `indices` borrow, or `None`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn sharing(
        counts: Vec<usize>,
        edges: Vec<Edges<'_>>,
        shared: &[Option<Shared<u32>>],
    ) -> Result<SampleGraph<'static>, GraphError> {
        let sources = |relation: usize, indices: Cow<'_, [u32]>| match shared.get(relation) {
            Some(Some(sources)) if sources.as_ptr() == indices.as_ptr() => Ok(Sources::Shared(sources.clone())),
            _ => Words::of(&indices).map(Sources::Owned),
        };
        SampleGraph::build(counts, edges, sources, |weights| Cow::Owned(weights.into_owned()))
    }

    fn build<'e>(
        counts: Vec<usize>,
        edges: Vec<Edges<'e>>,
        sources: impl Fn(usize, Cow<'e, [u32]>) -> Result<Sources<'a>, GraphError> + Sync,
        weights_of: impl Fn(Cow<'e, [f32]>) -> Cow<'a, [f32]> + Sync,
    ) -> Result<SampleGraph<'a>, GraphError> {
        if let Some(vertex_type) = counts.iter().position(|&count| count > 1 << 30) {
            return Err(GraphError::TooManyVertices { vertex_type, count: counts[vertex_type] });
        }
        // The first error by order of the relations, not by time.
        let checked: Vec<_> = edges.par_iter().map(|edges| check(&counts, edges)).collect();
        checked.into_iter().collect::<Result<(), _>>()?;
        let offsets: Vec<Offsets> =
            counts.iter().enumerate().map(|(t, &n)| Offsets::new(t, n, &edges)).collect::<Result<_, _>>()?;
        let relation = |(r, Edges { name, src_type, dst_type, indptr, indices, weights }): (usize, Edges<'e>)| {
            let positive = match &weights {
                Some(weights) if weights.contains(&0.0) => {
                    // One more, as for offsets.
                    let mut positive = Words::zeroed(counts[dst_type] + 1)?;
                    for (count, row) in positive.iter_mut().zip(indptr.windows(2)) {
                        let row = &weights[row[0] as usize..row[1] as usize];
                        *count = row.iter().filter(|weight| **weight > 0.0).count() as u32;
                    }
                    Some(positive)
                }
                Some(_) | None => None,
            };
            Ok(Relation {
                weights: weights.map(&weights_of),
                positive,
                path: None,
                name: name.into(),
                src_type,
                dst_type,
                slot: offsets[dst_type].relations.partition_point(|&before| before < r),
                sources: sources(r, indices)?,
                max_degree: indptr.windows(2).map(|w| (w[1] - w[0]) as u32).max().unwrap_or(0),
            })
        };
        let relations: Vec<_> = edges.into_par_iter().enumerate().map(relation).collect();
        let relations = relations.into_iter().collect::<Result<_, GraphError>>()?;
        Ok(SampleGraph { counts, relations, offsets, walked: None })
    }

    /// Sets metapaths of relations, to sample these by random walks: for each relation, the steps from a destination to
    /// a source, as positions in `steps`. A relation that is only sampled by walks needs no edges.
    ///
    /// Errors when steps are not edges between the types of the graph, or a metapath does not join the relation's
    /// endpoint types.
    pub fn with_paths(
        mut self,
        steps: Vec<Edges<'a>>,
        paths: Vec<Option<Vec<usize>>>,
    ) -> Result<SampleGraph<'a>, GraphError> {
        let walked = SampleGraph::new(self.counts.clone(), steps)?;
        for (relation, path) in self.relations.iter_mut().zip(paths) {
            let Some(metapath) = &path else { continue };
            let plan = WalkPlan { metapath: metapath.clone(), walks: 0, top_k: 0 };
            let wrong = |what: String| GraphError::Shape { relation: relation.name.clone(), what };
            let ends = plan.endpoints(&walked).map_err(|error| wrong(error.to_string()))?;
            if ends != (relation.dst_type, relation.src_type) {
                return Err(wrong(format!("a path from vertex type {} to {}", ends.0, ends.1)));
            }
            relation.path = path;
        }
        self.walked = Some(Box::new(walked));
        Ok(self)
    }

    /// The walk plan of a relation and the graph to walk on, if `fanout` is by walks and the relation has a metapath.
    pub(crate) fn walk_plan(&self, relation: usize, fanout: Fanout) -> Option<(&SampleGraph<'a>, WalkPlan)> {
        let (Some(walked), Some(path)) = (&self.walked, &self.relations[relation].path) else { return None };
        match fanout {
            Fanout::Walks { walks, top: top_k } => Some((walked, WalkPlan { metapath: path.clone(), walks, top_k })),
            Fanout::All | Fanout::AtMost(_) | Fanout::Weighted(_) | Fanout::Latest(_) => None,
        }
    }

    /// All relations of a dataset, followed by their reverses.
    pub fn of_dataset(dataset: &Dataset) -> Result<SampleGraph<'static>, GraphError> {
        let graphs = SemanticGraphs::new(dataset);
        let mut made = vec![];
        for reverse in [false, true] {
            for (r, data) in dataset.relations.iter().enumerate() {
                let graph = graphs.relation(r, RelationOptions { reverse, ..RelationOptions::default() })?;
                let ends = if reverse { (data.dst, data.src) } else { (data.src, data.dst) };
                made.push((graph.name, ends, graph.csc.indptr, graph.csc.indices));
            }
        }
        let edges = made.into_iter().map(|(name, (src_type, dst_type), indptr, indices)| Edges {
            name: name.into(),
            src_type,
            dst_type,
            indptr: indptr.into_vec().into(),
            indices: indices.into_vec().into(),
            weights: None,
        });
        SampleGraph::new(dataset.vertex_types.iter().map(|t| t.count).collect(), edges.collect())
    }

    /// Vertices of each type.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The relations, in sampling order.
    pub fn relations(&self) -> &[Relation<'a>] {
        &self.relations
    }

    /// In-edges of a vertex in a relation, as edge ids. Panics if there is no such relation or vertex.
    pub fn in_edges(&self, relation: usize, vertex: u32) -> std::ops::Range<usize> {
        let relation = &self.relations[relation];
        let (starts, ends) = self.offsets[relation.dst_type].of(vertex);
        starts[relation.slot] as usize..ends[relation.slot] as usize
    }

    /// Row offsets of one relation. Panics if there is no such relation.
    pub(crate) fn rows(&self, relation: usize) -> Rows<'_> {
        let relation = &self.relations[relation];
        let Offsets { words, relations } = &self.offsets[relation.dst_type];
        Rows { words, slot: relation.slot, relations: relations.len() }
    }

    /// Row offsets by vertex type.
    pub(crate) fn offsets(&self) -> &[Offsets] {
        &self.offsets
    }
}

fn check(
    counts: &[usize],
    Edges { name, src_type, dst_type, indptr, indices, weights }: &Edges<'_>,
) -> Result<(), GraphError> {
    let (Some(&num_src), Some(&num_dst)) = (counts.get(*src_type), counts.get(*dst_type)) else {
        return Err(GraphError::NoSuchType {
            relation: name.to_string(),
            src_type: *src_type,
            dst_type: *dst_type,
            types: counts.len(),
        });
    };
    let wrong = |what: String| Err(GraphError::Shape { relation: name.to_string(), what });
    let edges = indices.len();
    if edges >= u32::MAX as usize {
        return wrong(format!("{edges} edges, but edge ids have 32 bits"));
    }
    let framed = indptr.first() == Some(&0) && indptr.last() == Some(&(edges as u64));
    if indptr.len() != num_dst + 1 || !framed || !indptr.is_sorted() {
        return wrong(format!("row offsets do not ascend from 0 to {edges} over {num_dst} destinations"));
    }
    if let Some(bad) = indices.iter().find(|&&v| v as usize >= num_src) {
        return wrong(format!("source {bad} is out of range (there are {num_src})"));
    }
    let Some(weights) = weights else { return Ok(()) };
    if weights.len() != edges {
        return wrong(format!("{} weights of {edges} edges", weights.len()));
    }
    // The negated comparison also finds NaN.
    match weights.iter().position(|weight| !(*weight >= 0.0 && *weight < f32::INFINITY)) {
        Some(edge) => {
            let (from, to, bad) = (indices[edge], indptr.partition_point(|&at| at <= edge as u64) - 1, weights[edge]);
            wrong(format!(
                "the edge from {from} to {to} has the weight {bad}, but drawing by weight needs finite ones of at least 0"
            ))
        }
        None => Ok(()),
    }
}
