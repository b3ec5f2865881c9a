//! The in-edges that are sampled.

use std::borrow::Cow;

use hgnnc_graph::{Dataset, RelationOptions, SemanticGraphs, SgbError};

use crate::plan::Fanout;
use crate::prefetch::prefetch;
use crate::walk::WalkPlan;
use crate::words::Words;

/// The edges of a relation, reverse, semantic graph of a metapath or any other graph, to make a [`SampleGraph`] of: a CSC.
#[derive(Clone, Debug)]
pub struct Edges<'a> {
    /// Name, for messages.
    pub name: Cow<'a, str>,
    /// Position of the vertex type that edges come from.
    pub src_type: usize,
    /// Position of the vertex type that edges lead to.
    pub dst_type: usize,
    /// Where the in-edges of each destination start. `[destinations + 1]`
    pub indptr: Cow<'a, [u64]>,
    /// Source of each edge, by destination. `[E]` What is borrowed stays where it is; what is owned moves to large pages.
    pub src: Cow<'a, [u32]>,
    /// Weight of each edge to draw by, finite and at least 0; an edge of weight 0 is never drawn by it. `[E]`
    pub weights: Option<Cow<'a, [f32]>>,
}

/// A relation that is sampled.
#[derive(Debug)]
pub struct Relation<'a> {
    /// Name, for messages.
    pub name: String,
    /// Position of the vertex type that edges come from.
    pub src_type: usize,
    /// Position of the vertex type that edges lead to.
    pub dst_type: usize,
    /// Position among the relations into its type.
    slot: usize,
    /// Source of each edge. `[E]`
    sources: Sources<'a>,
    weights: Option<Cow<'a, [f32]>>,
    /// How many edges of each destination have a positive weight, where some have none.
    positive: Option<Words>,
    max_degree: u32,
    /// Steps from a destination to a source, by their position.
    path: Option<Vec<usize>>,
}

/// Sources of edges, wherever they are.
#[derive(Debug)]
enum Sources<'a> {
    Lent(&'a [u32]),
    Own(Words),
}

impl Relation<'_> {
    /// Source of each edge, in CSC order. `[E]`
    pub fn sources(&self) -> &[u32] {
        match &self.sources {
            Sources::Lent(sources) => sources,
            Sources::Own(words) => words,
        }
    }

    /// Can it be walked along?
    pub(crate) fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Weight of each edge, in CSC order, if there are weights. `[E]`
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// For each destination, how many edges have a positive weight; `None` where all have.
    pub(crate) fn positive(&self) -> Option<&[u32]> {
        self.positive.as_deref()
    }

    /// How many edges of the row of `vertex`, of so many, a fan-out can take.
    #[inline]
    pub(crate) fn available(&self, fanout: Fanout, vertex: u32, degree: u32) -> u32 {
        match (fanout, &self.positive) {
            (Fanout::Weighted(_), Some(positive)) => positive[vertex as usize],
            (Fanout::Weighted(_), None) | (Fanout::All | Fanout::AtMost(_) | Fanout::Walks { .. }, _) => degree,
        }
    }

    /// Position among the relations into its type.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Most in-edges that a destination has.
    pub fn max_degree(&self) -> u32 {
        self.max_degree
    }
}

/// Vertex types and all relations that batches are sampled from. Sources of edges may be borrowed; where rows begin is
/// copied: four bytes for each vertex and relation into its type.
#[derive(Debug)]
pub struct SampleGraph<'a> {
    counts: Vec<usize>,
    relations: Vec<Relation<'a>>,
    offsets: Vec<Offsets>,
    /// The steps of paths, as relations of a graph of their own.
    walked: Option<Box<SampleGraph<'a>>>,
}

/// Where the in-edges of the vertices of one type start, of all relations into it: what is read of a vertex lies together,
/// so that it costs one access to memory, not one for each relation.
#[derive(Debug)]
pub(crate) struct Offsets {
    /// A row more than there are vertices: the vertex behind the last one has no edges. Who reads rows of destinations, some
    /// of which are to have none, reads that one for these. `[vertices + 2][relations]`
    words: Words,
    /// The relations into the type, in order.
    pub relations: Vec<usize>,
}

impl Offsets {
    fn new(vertex_type: usize, vertices: usize, edges: &[Edges<'_>]) -> Result<Offsets, GraphError> {
        let relations: Vec<usize> = (0..edges.len()).filter(|&r| edges[r].dst_type == vertex_type).collect();
        let mut words = Words::zeroed((vertices + 2) * relations.len())?;
        for (slot, &r) in relations.iter().enumerate() {
            let places = words.iter_mut().skip(slot).step_by(relations.len());
            // Checked before: offsets fit 32 bits.
            let behind = edges[r].indptr.last();
            places.zip(edges[r].indptr.iter().chain(behind)).for_each(|(place, &at)| *place = at as u32);
        }
        Ok(Offsets { words, relations })
    }

    /// First edges of a vertex, and behind them those of the next: of each relation.
    #[inline]
    pub fn of(&self, vertex: u32) -> (&[u32], &[u32]) {
        let n = self.relations.len();
        self.words[vertex as usize * n..(vertex as usize + 2) * n].split_at(n)
    }

    /// All of them. `[vertices + 2][relations]`
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Brings the offsets of a vertex nearer.
    #[inline]
    pub fn prefetch(&self, vertex: u32) {
        let n = self.relations.len();
        prefetch(self.words.as_ptr(), vertex as usize * n);
        prefetch(self.words.as_ptr(), vertex as usize * n + 2 * n - 1);
    }
}

/// Where the in-edges of vertices start in one relation.
pub(crate) struct Rows<'a> {
    /// Those of [`Offsets`].
    words: &'a [u32],
    /// Position of the relation among those into the type.
    slot: usize,
    relations: usize,
}

impl Rows<'_> {
    /// First edge and degree of a vertex.
    #[inline]
    pub fn of(&self, vertex: u32) -> (u32, u32) {
        let at = vertex as usize * self.relations + self.slot;
        let start = self.words[at];
        (start, self.words[at + self.relations] - start)
    }

    /// Brings what [`of`](Rows::of) reads nearer. Any number will do.
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
    /// An end that is not a vertex type.
    #[error("relation `{relation}` joins vertex types {src_type} and {dst_type}, but there are {types}")]
    NoSuchType {
        /// Its name.
        relation: String,
        /// Position of the source type.
        src_type: usize,
        /// Position of the destination type.
        dst_type: usize,
        /// Vertex types.
        types: usize,
    },
    /// Row offsets that do not fit the types, or 2^32 edges.
    #[error("relation `{relation}`: {what}")]
    Shape {
        /// Its name.
        relation: String,
        /// What is wrong.
        what: String,
    },
    /// More vertices than compact ids can tell apart.
    #[error("vertex type {vertex_type} has {count} vertices, but samplers take at most 2^30")]
    TooManyVertices {
        /// Position of the type.
        vertex_type: usize,
        /// Its vertices.
        count: usize,
    },
    /// A semantic graph could not be built.
    #[error(transparent)]
    Sgb(#[from] SgbError),
    /// There is no memory for offsets or tables.
    #[error("no memory for {bytes} bytes: {reason}")]
    Memory {
        /// How many.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
}

impl<'a> SampleGraph<'a> {
    /// Of vertex types with so many vertices, and relations between them, which are sampled in that order.
    ///
    /// Errors when edges are not edges between those types, or there is no memory for their offsets.
    pub fn new(counts: Vec<usize>, edges: Vec<Edges<'a>>) -> Result<SampleGraph<'a>, GraphError> {
        if let Some(vertex_type) = counts.iter().position(|&count| count > 1 << 30) {
            return Err(GraphError::TooManyVertices { vertex_type, count: counts[vertex_type] });
        }
        edges.iter().try_for_each(|edges| check(&counts, edges))?;
        let offsets: Vec<Offsets> =
            counts.iter().enumerate().map(|(t, &n)| Offsets::new(t, n, &edges)).collect::<Result<_, _>>()?;
        let relation = |(r, Edges { name, src_type, dst_type, indptr, src, weights }): (usize, Edges<'a>)| {
            let positive = match &weights {
                Some(weights) if weights.contains(&0.0) => {
                    // One more, as there are offsets.
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
                weights,
                positive,
                path: None,
                name: name.into(),
                src_type,
                dst_type,
                slot: offsets[dst_type].relations.partition_point(|&before| before < r),
                sources: match src {
                    Cow::Borrowed(src) => Sources::Lent(src),
                    Cow::Owned(src) => Sources::Own(Words::of(&src)?),
                },
                max_degree: indptr.windows(2).map(|w| (w[1] - w[0]) as u32).max().unwrap_or(0),
            })
        };
        let relations = edges.into_iter().enumerate().map(relation).collect::<Result<_, GraphError>>()?;
        Ok(SampleGraph { counts, relations, offsets, walked: None })
    }

    /// Gives paths to relations, to sample them by walks: for each relation, the steps from a destination to a source, as
    /// positions in `steps`. A relation that is sampled by walks only needs no edges.
    ///
    /// Errors when steps are not edges between the types of the graph, or a path does not join the ends of its relation.
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
            let ends = plan.ends(&walked).map_err(|error| wrong(error.to_string()))?;
            if ends != (relation.dst_type, relation.src_type) {
                return Err(wrong(format!("a path from vertex type {} to {}", ends.0, ends.1)));
            }
            relation.path = path;
        }
        self.walked = Some(Box::new(walked));
        Ok(self)
    }

    /// What to walk for a relation, and on which graph, if that is its fan-out and it has a path.
    pub(crate) fn walk_plan(&self, relation: usize, fanout: Fanout) -> Option<(&SampleGraph<'a>, WalkPlan)> {
        let (Some(walked), Some(path)) = (&self.walked, &self.relations[relation].path) else { return None };
        match fanout {
            Fanout::Walks { walks, top: top_k } => Some((walked, WalkPlan { metapath: path.clone(), walks, top_k })),
            Fanout::All | Fanout::AtMost(_) | Fanout::Weighted(_) => None,
        }
    }

    /// All relations of a dataset and, behind them, their reverses.
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
        let edges = made.into_iter().map(|(name, (src_type, dst_type), indptr, src)| Edges {
            name: name.into(),
            src_type,
            dst_type,
            indptr: indptr.into_vec().into(),
            src: src.into_vec().into(),
            weights: None,
        });
        SampleGraph::new(dataset.vertex_types.iter().map(|t| t.count).collect(), edges.collect())
    }

    /// Vertices of each type.
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// The relations, in the order in which they are sampled.
    pub fn relations(&self) -> &[Relation<'a>] {
        &self.relations
    }

    /// In-edges of a vertex in a relation: positions in its CSC order. Panics if there is no such relation or vertex.
    pub fn in_edges(&self, relation: usize, vertex: u32) -> std::ops::Range<usize> {
        let relation = &self.relations[relation];
        let (starts, ends) = self.offsets[relation.dst_type].of(vertex);
        starts[relation.slot] as usize..ends[relation.slot] as usize
    }

    /// The rows of one relation. Panics if there is no such relation.
    pub(crate) fn rows(&self, relation: usize) -> Rows<'_> {
        let relation = &self.relations[relation];
        let Offsets { words, relations } = &self.offsets[relation.dst_type];
        Rows { words, slot: relation.slot, relations: relations.len() }
    }

    /// By vertex type.
    pub(crate) fn offsets(&self) -> &[Offsets] {
        &self.offsets
    }
}

fn check(
    counts: &[usize],
    Edges { name, src_type, dst_type, indptr, src, weights }: &Edges<'_>,
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
    let edges = src.len();
    if edges >= u32::MAX as usize {
        return wrong(format!("{edges} edges, but edge ids have 32 bits"));
    }
    let framed = indptr.first() == Some(&0) && indptr.last() == Some(&(edges as u64));
    if indptr.len() != num_dst + 1 || !framed || !indptr.is_sorted() {
        return wrong(format!("row offsets do not ascend from 0 to {edges} over {num_dst} destinations"));
    }
    if let Some(bad) = src.iter().find(|&&v| v as usize >= num_src) {
        return wrong(format!("source {bad} is out of range (there are {num_src})"));
    }
    let Some(weights) = weights else { return Ok(()) };
    if weights.len() != edges {
        return wrong(format!("{} weights of {edges} edges", weights.len()));
    }
    // Not a number is neither.
    match weights.iter().position(|weight| !(*weight >= 0.0 && *weight < f32::INFINITY)) {
        Some(edge) => {
            let (from, to, bad) = (src[edge], indptr.partition_point(|&at| at <= edge as u64) - 1, weights[edge]);
            wrong(format!(
                "the edge from {from} to {to} has the weight {bad}, but drawing by weight needs finite ones of at least 0"
            ))
        }
        None => Ok(()),
    }
}
