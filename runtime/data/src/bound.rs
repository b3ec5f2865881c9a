//! Data that a program is bound to: adjacency of graphs and sparse features, inputs, labels and splits.
//!
//! These structures know no file format; `bind` builds them from a dataset.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use hgnnc_dataset::FloatArray;
use hgnnc_graph::{Adjacency, DegreeClasses, GraphPart, Origin, transpose_into};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::random;
use hgnnc_ir::sizes::{self, SizeInfo};
use hgnnc_ir::training::{MiniBatch, Part};
use hgnnc_ir::types::VertexType;

use crate::candidates::Candidates;
use crate::error::{ExecError, Result};
use crate::link_walks::LinkWalks;
use crate::orders::Orders;
use crate::ranks::{Route, Sections};
use crate::shuffled::ShuffledRows;

/// Edges between sources and destinations, in both CSC and CSR. Also a sparse matrix: its rows are destinations, its
/// columns sources, and its stored elements edges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Topology {
    /// Name in the model, for messages and the report.
    pub name: String,
    /// Number of sources (columns).
    pub num_src: usize,
    /// Number of destinations (rows).
    pub num_dst: usize,
    /// In-edges of each destination: CSC.
    pub csc: Adjacency,
    /// Out-edges of each source: CSR.
    pub csr: Adjacency,
    /// Destinations and sources with edges, if a program has rows for them only.
    pub ends: [Option<ActiveVertices>; 2],
    /// Cache of [`Topology::degree_classes`] by direction and rows.
    pub classes: Classes,
    /// Number of edges if they are not materialized; an estimate for a large counted metapath.
    pub deferred: Option<u64>,
    /// Destination of each edge, of a graph that nothing reads but the stacks that it is a member of, and that has fewer
    /// edges than vertices. It has no row offsets and no CSR: a family may have thousands of such members.
    pub listed: Option<Vec<u32>>,
    /// For the edges of one rank of several: number of edges of all ranks, by which rows with many edges are split.
    pub of_whole: Option<u64>,
    /// The rest of the graph, if only the edges of one rank's vertices were read.
    pub part: Option<Arc<GraphPart>>,
    /// The edges are permutations of these vertices that [`BoundData::shuffle`] draws.
    pub shuffle: Option<Shuffle>,
    /// Of links between rows as of cutoffs: the rows that can take the place of their sources and destinations.
    pub candidates: Option<[Candidates; 2]>,
}

/// Permutations of the vertices of a type, drawn for each step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Shuffle {
    /// The type at both ends.
    pub vertex: VertexType,
    pub permutations: u32,
}

/// Rows by degree class, for both directions, for all vertices and for vertices with edges only. Computed on first use,
/// so an untraversed direction costs nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Classes([[OnceLock<DegreeClasses>; 2]; 2]);

/// Vertices of one side that have edges.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ActiveVertices {
    pub vertices: Vec<u32>,
    /// `vertices + 1` positions: active vertex `i` owns edges `indptr[i]..indptr[i + 1]` of the
    /// adjacency of its direction.
    pub indptr: Vec<u64>,
    /// Active vertex (position in `vertices`) of each edge, in the order of the opposite adjacency.
    pub of_edge: Vec<u32>,
}

impl ActiveVertices {
    /// Active rows of one adjacency; `edges` is the opposite one.
    fn new(rows: &Adjacency, edges: &Adjacency) -> Self {
        let mut ends = Self { vertices: vec![], indptr: vec![0], of_edge: vec![] };
        // Entries of vertices without edges are never read.
        let mut end_of = vec![0u32; rows.indptr.len().saturating_sub(1)];
        for (vertex, range) in rows.indptr.windows(2).enumerate() {
            if range[1] > range[0] {
                end_of[vertex] = ends.vertices.len() as u32;
                ends.vertices.push(vertex as u32);
                ends.indptr.push(range[1]);
            }
        }
        ends.of_edge = edges.indices.iter().map(|&vertex| end_of[vertex as usize]).collect();
        ends
    }

    /// Active vertices within vertices `first..first + count`.
    pub fn within(&self, first: usize, count: usize) -> Range<usize> {
        let before = |vertex: usize| self.vertices.partition_point(|&end| (end as usize) < vertex);
        before(first)..before(first + count)
    }

    /// Size of the arrays in bytes.
    fn bytes(&self) -> u64 {
        8 * self.indptr.len() as u64 + 4 * (self.vertices.len() + self.of_edge.len()) as u64
    }
}

impl Topology {
    /// Builds from in-edges: `indptr` of `num_dst + 1` positions, and the source of each edge.
    ///
    /// # Errors
    /// When the positions do not ascend from 0 to the number of edges, a source does not exist, or there are
    /// 2^32 edges or more.
    pub fn from_csc(name: &str, num_src: usize, num_dst: usize, indptr: Vec<u64>, src: Vec<u32>) -> Result<Self> {
        let wrong =
            |found: String, expected: String| ExecError::Shape { what: format!("the graph `{name}`"), found, expected };
        if u32::try_from(src.len()).is_err() {
            return Err(wrong(format!("{} edges", src.len()), "fewer than 2^32".into()));
        }
        let framed = indptr.first() == Some(&0) && indptr.last() == Some(&(src.len() as u64));
        if indptr.len() != num_dst + 1 || !framed || !indptr.is_sorted() {
            return Err(wrong(
                format!("{} row positions", indptr.len()),
                format!("{} that ascend from 0 to {}", num_dst + 1, src.len()),
            ));
        }
        if let Some(bad) = src.iter().find(|&&s| s as usize >= num_src) {
            return Err(wrong(format!("an edge from source {bad}"), format!("{num_src} sources")));
        }
        let mut csr = Adjacency::default();
        transpose_into(&indptr, &src, num_src, &mut csr);
        let csc = Adjacency { indptr: indptr.into(), indices: src.into(), eids: vec![].into() };
        Ok(Self {
            name: name.to_owned(),
            num_src,
            num_dst,
            csc,
            csr,
            ends: [None, None],
            classes: Classes::default(),
            deferred: None,
            listed: None,
            of_whole: None,
            part: None,
            shuffle: None,
            candidates: None,
        })
    }

    /// Builds from edges (source, destination) in any order; they are sorted by destination, then source, stably.
    ///
    /// # Errors
    /// When a vertex does not exist.
    pub fn from_edges(name: &str, num_src: usize, num_dst: usize, edges: &[(u32, u32)]) -> Result<Self> {
        let mut sorted = edges.to_vec();
        sorted.sort_by_key(|&(src, dst)| (dst, src));
        let mut indptr = vec![0u64; num_dst + 1];
        for &(_, dst) in &sorted {
            let slot = indptr.get_mut(dst as usize + 1).ok_or_else(|| ExecError::Shape {
                what: format!("the graph `{name}`"),
                found: format!("an edge to destination {dst}"),
                expected: format!("{num_dst} destinations"),
            })?;
            *slot += 1;
        }
        for i in 0..num_dst {
            indptr[i + 1] += indptr[i];
        }
        Self::from_csc(name, num_src, num_dst, indptr, sorted.iter().map(|&(src, _)| src).collect())
    }

    /// Forgets all but the in-edges, by which mini-batches are sampled.
    pub fn release_out_edges(&mut self) {
        (self.csr, self.ends, self.classes) = (Adjacency::default(), [None, None], Classes::default());
    }

    /// Forgets the edges of a graph of which only a part was read; their number in the whole graph is kept.
    pub fn release_part(&mut self) {
        self.release_out_edges();
        self.csc = Adjacency { indptr: vec![0; self.num_dst + 1].into(), ..Adjacency::default() };
        let part = self.part.as_deref();
        let of_whole = |part: &GraphPart| GraphPart { numbers: vec![], before: Default::default(), ..part.clone() };
        self.part = part.map(of_whole).map(Arc::new);
    }

    /// Forgets the edges, but for the numbers of them.
    pub fn release_edges(&mut self) {
        self.part = Some(Arc::new(self.part_of_whole()));
        self.release_part();
    }

    /// The sizes in the whole graph.
    fn part_of_whole(&self) -> GraphPart {
        self.part.as_deref().cloned().unwrap_or_else(|| {
            let sizes::Endpoints { sources, destinations, max_out, max_in } = self.ends_in_whole();
            GraphPart {
                num_edges: self.all_edges(),
                with_edges: [destinations, sources],
                most_edges: [max_in, max_out],
                ..GraphPart::default()
            }
        })
    }

    /// Forgets all but the in-edges of some destinations, whose rows are complete. Returns their positions among those before.
    pub fn keep_in_edges(&mut self, own: Range<usize>) -> Range<usize> {
        let part = self.part_of_whole();
        self.release_out_edges();
        let [first, end] = [own.start, own.end].map(|row| self.csc.indptr[row]);
        let indptr = self.csc.indptr.iter().map(|&at| at.clamp(first, end) - first).collect();
        let edges = first as usize..end as usize;
        self.csc =
            Adjacency { indptr, indices: self.csc.indices[edges.clone()].to_vec().into(), ..Adjacency::default() };
        let numbers = match &part.numbers[..] {
            [] => edges.clone().map(|edge| edge as u32).collect(),
            numbers => numbers[edges.clone()].to_vec(),
        };
        self.part = Some(Arc::new(GraphPart { numbers, before: Default::default(), ..part }));
        edges
    }

    /// Replaces the edges: the same number of sources for each destination.
    fn replace_edges(&mut self, sources: Vec<u32>) {
        let degree = sources.len() / self.num_dst.max(1);
        let rows = (0..=self.num_dst).map(|row| (row * degree) as u64);
        self.csc = Adjacency { indptr: rows.collect(), indices: sources.into(), eids: vec![].into() };
        transpose_into(&self.csc.indptr, &self.csc.indices, self.num_src, &mut self.csr);
        for direction in [Direction::In, Direction::Out] {
            if self.ends[direction_slot(direction)].take().is_some() {
                self.list_endpoints(direction);
            }
        }
    }

    /// Number of edges (stored elements).
    pub fn num_edges(&self) -> usize {
        self.csc.indices.len()
    }

    /// Source and destination of each edge, in CSC order. Empty if the edges are not materialized.
    pub fn edges(&self) -> Vec<(u32, u32)> {
        let sources = self.csc.indices.iter().copied();
        if let Some(destinations) = &self.listed {
            return sources.zip(destinations.iter().copied()).collect();
        }
        let rows = self.csc.indptr.windows(2).enumerate();
        let destinations = rows.flat_map(|(dst, row)| std::iter::repeat_n(dst as u32, (row[1] - row[0]) as usize));
        sources.zip(destinations).collect()
    }

    /// Number of edges that rows are split by: those of the whole graph.
    pub fn edges_of_whole(&self) -> usize {
        self.of_whole.map_or(self.num_edges(), |edges| edges as usize)
    }

    /// The vertices with edges and the largest degrees in the whole graph; bounds where it is not materialized.
    pub fn ends_in_whole(&self) -> sizes::Endpoints {
        if let Some(destinations) = &self.listed {
            let mut sources = self.csc.indices.to_vec();
            sources.sort_unstable();
            let ((destinations, max_in), (sources, max_out)) = (runs(destinations), runs(&sources));
            return sizes::Endpoints { sources, destinations, max_out, max_in };
        }
        if self.deferred.is_some() {
            let (sources, destinations) = (self.num_src as u64, self.num_dst as u64);
            return sizes::Endpoints { sources, destinations, ..sizes::Endpoints::default() };
        }
        let [(destinations, max_in), (sources, max_out)] = match self.part.as_deref() {
            Some(GraphPart { with_edges: [destinations, sources], most_edges: [max_in, max_out], .. }) => {
                [(*destinations, *max_in), (*sources, *max_out)]
            }
            None => [&self.csc, &self.csr].map(rows_with_edges),
        };
        sizes::Endpoints { sources, destinations, max_out, max_in }
    }

    /// Number of edges, materialized and read or not.
    pub fn all_edges(&self) -> u64 {
        let read = || self.part.as_ref().map_or(self.num_edges() as u64, |part| part.num_edges);
        self.deferred.unwrap_or_else(read)
    }

    /// The number of an edge of a CSC position in the whole graph, and so in the dataset.
    pub fn number_in_whole(&self, position: u32) -> u32 {
        self.part.as_ref().map_or(position, |part| part.numbers[position as usize])
    }

    /// Adjacency of one direction: CSC for `In`, CSR for `Out`.
    pub fn incidence(&self, direction: Direction) -> &Adjacency {
        match direction {
            Direction::In => &self.csc,
            Direction::Out => &self.csr,
        }
    }

    /// Writes the rank of each edge, in CSC order: the number of edges of the same destination (`In`) or
    /// source (`Out`) before it.
    ///
    /// # Errors
    /// When a row has so many edges that `f32` does not hold the ranks exactly.
    ///
    /// # Panics
    /// When the length of `ranks` is not the number of edges.
    pub fn write_ranks(&self, direction: Direction, ranks: &mut [f32]) -> Result<()> {
        /// `f32` holds integers up to here exactly.
        const MOST: u64 = 1 << f32::MANTISSA_DIGITS;
        assert_eq!(ranks.len(), self.num_edges(), "a rank for each edge");
        let Adjacency { indptr, eids: position, .. } = self.incidence(direction);
        let part = self.part.as_ref();
        for (row, edges) in indptr.windows(2).enumerate() {
            let before = part.map_or(0, |part| part.before[direction_slot(direction)][row]) as usize;
            if before as u64 + edges[1] - edges[0] > MOST {
                return Err(ExecError::Shape {
                    what: format!("vertex {row} of the graph `{}`", self.name),
                    found: format!("{} edges", before as u64 + edges[1] - edges[0]),
                    expected: format!("{MOST} at most, to train a maximum or minimum over them"),
                });
            }
            for (rank, edge) in (before..).zip(edges[0]..edges[1]) {
                let at = position.get(edge as usize).map_or(edge as usize, |&at| at as usize);
                ranks[at] = rank as f32;
            }
        }
        Ok(())
    }

    /// Computes the active vertices of a direction on first use.
    pub fn list_endpoints(&mut self, direction: Direction) {
        let (rows, edges) = match direction {
            Direction::In => (&self.csc, &self.csr),
            Direction::Out => (&self.csr, &self.csc),
        };
        let slot = direction_slot(direction);
        if self.ends[slot].is_none() {
            self.ends[slot] = Some(ActiveVertices::new(rows, edges));
        }
    }

    /// Active vertices of a direction, if they have been computed.
    pub fn listed_endpoints(&self, direction: Direction) -> Option<&ActiveVertices> {
        self.ends[direction_slot(direction)].as_ref()
    }

    /// Active vertices of a direction.
    ///
    /// # Panics
    /// If they have not been computed.
    pub fn endpoints(&self, direction: Direction) -> &ActiveVertices {
        self.listed_endpoints(direction).expect("ends are listed before programs are planned")
    }

    /// Edge positions of the rows of a direction: of all vertices, or of active vertices only.
    pub fn indptr(&self, direction: Direction, ends: bool) -> &[u64] {
        if ends { &self.endpoints(direction).indptr } else { &self.incidence(direction).indptr }
    }

    /// The rows of [`Topology::indptr`] grouped by degree: `order` and `starts` are bound by one launch per class.
    /// Computed once, in parallel over rows, on first use.
    ///
    /// # Panics
    /// If active vertices are requested but not computed, or there are 2^32 rows.
    pub fn degree_classes(&self, direction: Direction, ends: bool) -> &DegreeClasses {
        let indptr = self.indptr(direction, ends);
        self.classes.0[direction_slot(direction)][usize::from(ends)].get_or_init(|| DegreeClasses::of(indptr))
    }

    /// The rows that can take the place of the source and of the destination of a link.
    pub fn candidates(&self) -> [Candidates; 2] {
        let all = || [self.num_src, self.num_dst].map(Candidates::all);
        self.candidates.clone().unwrap_or_else(all)
    }

    /// Bytes of both adjacencies (shared arrays counted once), active vertices and computed degree classes.
    pub fn bytes(&self) -> u64 {
        let of = |i: &Adjacency| 8 * i.indptr.len() as u64 + 4 * (i.indices.len() + i.eids.len()) as u64;
        let (own, back) = (&self.csc, &self.csr);
        let rows = if own.indptr.is_same(&back.indptr) { 8 * own.indptr.len() as u64 } else { 0 };
        let twice = rows + if own.indices.is_same(&back.indices) { 4 * own.indices.len() as u64 } else { 0 };
        let ends: u64 = self.ends.iter().flatten().map(ActiveVertices::bytes).sum();
        let classes = self.classes.0.iter().flatten().filter_map(OnceLock::get).map(DegreeClasses::bytes);
        let listed = 4 * self.listed.as_ref().map_or(0, Vec::len) as u64;
        of(own) + of(back) - twice + ends + listed + classes.sum::<u64>()
    }
}

/// The number of different numbers in a sorted list, and how often the most frequent one occurs.
fn runs(sorted: &[u32]) -> (u64, u64) {
    let lengths = || sorted.chunk_by(|a, b| a == b).map(|run| run.len() as u64);
    (lengths().count() as u64, lengths().max().unwrap_or(0))
}

/// Index of a direction in a pair.
pub(crate) fn direction_slot(direction: Direction) -> usize {
    match direction {
        Direction::In => 0,
        Direction::Out => 1,
    }
}

/// Contents of an input of a program.
#[derive(Clone, PartialEq, Debug)]
pub enum InputData {
    /// Rows times width elements; for a sparse input its stored elements, row by row.
    Numbers(FloatArray),
    /// This many elements, held by the engine.
    Held(usize),
    /// These rows of a matrix that the session has.
    Rows(Vec<u32>),
    /// Class labels, -1 where there is none.
    Classes(Vec<i32>),
    /// The number of the training step, from 1.
    StepNumber,
    /// The number of the epoch, from 0.
    EpochNumber,
    /// Not provided; an error if a program reads it.
    Missing,
}

/// Labels or regression targets.
#[derive(Clone, PartialEq, Debug)]
pub enum Target {
    /// One class per vertex, -1 for unlabelled vertices.
    Classes(Vec<i32>),
    /// Rows of 0 or 1 (several labels) or real targets.
    Rows(Vec<f32>),
}

/// Links (source, destination) of each trained graph. `[graphs][links]`
pub type LinksByGraph = Vec<Vec<(u32, u32)>>;

/// Extra inputs of sampling. Empty if no hop samples by weight or by walks, and no walks draw links.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SamplingInputs {
    /// Per graph, the edge weights if some hop samples by them, or the ranks by time if some hop takes the latest edges:
    /// from 1 in each row.
    pub weights: Vec<Option<Vec<f32>>>,
    /// Walk steps: relations and their reverses.
    pub steps: Vec<WalkStep>,
    /// Per graph sampled by walks, the steps from a destination to a source, as indices into `steps`.
    pub paths: Vec<Option<Vec<usize>>>,
    /// Per graph, the walks that draw its links, if it is one of links of a metapath. Empty without such graphs.
    pub links: Vec<Option<Arc<LinkWalks>>>,
}

/// A relation that walks follow against its direction.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct WalkStep {
    pub name: String,
    /// Type of the sources.
    pub src: VertexType,
    /// Type of the destinations.
    pub dst: VertexType,
    /// In-edges of each destination.
    pub csc: Adjacency,
}

/// The ground truth that a trained output is compared with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct GroundTruth {
    /// The vertex type; `None` for links.
    pub vertex: Option<VertexType>,
    /// Labels of all vertices of the type; `None` for links.
    pub labels: Option<Target>,
    /// Vertices of the training, validation and test part. For links, positions: those of training among the edges of
    /// the graphs of links, or the walks that draw them, the others in [`BoundData::held_out`].
    pub parts: [Vec<u32>; 3],
}

/// Everything that a program runs on, except its parameters.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct BoundData {
    pub dataset: String,
    /// Number of vertices of each vertex type.
    pub num_vertices: Vec<usize>,
    pub graphs: Vec<Topology>,
    /// Origin of each metapath graph, for the report; `None` for other graphs and for graphs that are not materialized.
    pub origins: Vec<Option<Origin>>,
    /// By graph: the edges of a relation that a cutoff leaves out; `None` for graphs without one, and for metapaths.
    pub left_out: Vec<Option<u64>>,
    /// Sparse features, by [`hgnnc_ir::Pattern`].
    pub patterns: Vec<Topology>,
    pub inputs: Vec<InputData>,
    /// By trained output: what it is compared with. Empty for programs that compute outputs only.
    pub truths: Vec<GroundTruth>,
    /// Validation and test links.
    pub held_out: [LinksByGraph; 2],
    /// Extra inputs of sampling.
    pub drawn: SamplingInputs,
    /// Loading time in seconds.
    pub load_s: f64,
    /// Semantic graph build time in seconds.
    pub sgb_s: f64,
    /// Vertex renumbering, if any: all data above uses the new ids.
    pub orders: Orders,
    /// For one rank of several, by vertex type: the first row of each section, by which rows are divided into blocks, and
    /// the number of rows on all ranks ([`crate::ranks`]).
    pub sections: Vec<Option<Sections>>,
    /// For one rank of several, by vertex type: how the rows of mirrors come to it ([`crate::ranks`]).
    pub routes: Vec<Option<Arc<Route>>>,
    /// For one rank of several: vertices that are shuffled, by type and number of permutations.
    pub shuffled: Vec<ShuffledRows>,
    /// For one rank of several, by vertex type with rows that are summed over all ranks: the number of rows of each rank.
    pub rows_of_ranks: Vec<Option<Arc<[usize]>>>,
}

/// Index of a part of the split in [`GroundTruth::parts`].
pub fn part_index(part: Part) -> usize {
    match part {
        Part::Train => 0,
        Part::Val => 1,
        Part::Test => 2,
    }
}

/// Number of rows with edges, and the largest degree.
fn rows_with_edges(of: &Adjacency) -> (u64, u64) {
    let degrees = || of.indptr.windows(2).map(|row| row[1] - row[0]);
    (degrees().filter(|&degree| degree > 0).count() as u64, degrees().max().unwrap_or(0))
}

impl BoundData {
    /// Vertices, or positions of links, of a part of the split of the first trained output; empty without one.
    pub fn part(&self, part: Part) -> &[u32] {
        self.part_of(0, part)
    }

    /// The vertices, or positions of links, that the mini-batches of an epoch go through.
    pub fn seeds(&self, batch: &MiniBatch) -> Cow<'_, [u32]> {
        match batch.all_of {
            Some(vertex) => (0..self.num_vertices[vertex.index()] as u32).collect(),
            None => self.part(Part::Train).into(),
        }
    }

    /// [`BoundData::part`] of a trained output by position.
    pub fn part_of(&self, term: usize, part: Part) -> &[u32] {
        self.truths.get(term).map_or(&[], |truth| &truth.parts[part_index(part)])
    }

    /// Labels of the first trained output; `None` without one, and for links.
    pub fn labels(&self) -> Option<&Target> {
        self.labels_of(0)
    }

    /// [`BoundData::labels`] of a trained output by position.
    pub fn labels_of(&self, term: usize) -> Option<&Target> {
        self.truths.get(term)?.labels.as_ref()
    }

    /// Draws the edges of shuffled vertices for a step of training. Returns whether there are any.
    ///
    /// They are those of [`random::shuffled_sources`], a function of the seed, the step and the vertex type, for vertices
    /// in the order of the dataset.
    pub fn shuffle(&mut self, seed: u64, step: u64) -> bool {
        let mut any = false;
        for graph in &mut self.graphs {
            let Some(Shuffle { vertex, permutations }) = graph.shuffle else { continue };
            any = true;
            let drawn = random::shuffled_sources((seed, step), vertex, graph.num_dst, permutations);
            graph.replace_edges(match self.orders.of(vertex) {
                Some(order) => {
                    let rows = order.original.iter().map(|&row| row as usize * permutations as usize);
                    let edges = rows.flat_map(|first| &drawn[first..first + permutations as usize]);
                    edges.map(|&source| order.rank[source as usize]).collect()
                }
                None => drawn,
            });
        }
        for rows in &self.shuffled {
            any = true;
            let Shuffle { vertex, permutations } = rows.shuffle;
            let drawn = random::shuffled_sources((seed, step), vertex, rows.num_vertices(), permutations);
            rows.draw(&drawn, &mut self.routes, &mut self.orders);
        }
        any
    }

    /// Sizes for the cost models of passes.
    pub fn sizes(&self) -> SizeInfo {
        SizeInfo {
            vertices: self.num_vertices.iter().map(|&n| n as u64).collect(),
            edges: self.graphs.iter().map(Topology::all_edges).collect(),
            ends: self.graphs.iter().map(Topology::ends_in_whole).collect(),
            stored: self.patterns.iter().map(|p| p.num_edges() as u64).collect(),
            columns: self.patterns.iter().map(|p| rows_with_edges(&p.csr).0).collect(),
        }
    }

    /// Bytes of graphs, patterns and inputs together.
    pub fn bytes(&self) -> u64 {
        let graphs: u64 = self.graphs.iter().chain(&self.patterns).map(Topology::bytes).sum();
        let inputs: u64 = self
            .inputs
            .iter()
            .map(|input| match input {
                InputData::Numbers(numbers) => 4 * numbers.len() as u64,
                InputData::Held(len) => 4 * *len as u64,
                InputData::Rows(rows) => 4 * rows.len() as u64,
                InputData::Classes(classes) => 4 * classes.len() as u64,
                InputData::StepNumber | InputData::EpochNumber | InputData::Missing => 0,
            })
            .sum();
        let walks: u64 = self.drawn.links.iter().flatten().map(|walks| walks.bytes()).sum();
        graphs + inputs + walks + self.orders.bytes()
    }

    /// Graph `index`, or pattern `index - num_graphs`.
    pub fn topology(&self, index: usize) -> &Topology {
        match index.checked_sub(self.graphs.len()) {
            None => &self.graphs[index],
            Some(pattern) => &self.patterns[pattern],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degree_classes_are_made_for_the_rows_that_are_asked_for() {
        let edges = [(0, 1), (2, 1), (3, 1), (0, 3)];
        let mut graph = Topology::from_edges("g", 4, 5, &edges).expect("all ends exist");
        graph.list_endpoints(Direction::In);
        let before = graph.bytes();
        let classes = graph.degree_classes(Direction::In, false);
        assert_eq!((&classes.order[..], &classes.starts[..]), (&[0, 2, 4, 3, 1][..], &[0, 3, 4, 5][..]));
        // Five rows; three classes with their end; the degrees.
        assert_eq!(graph.bytes(), before + 4 * 5 + 4 * 4 + 8 * 3);
        assert!(std::ptr::eq(graph.degree_classes(Direction::In, false), graph.degree_classes(Direction::In, false)));
        // Of the active destinations the first has three edges and the second one.
        let classes = graph.degree_classes(Direction::In, true);
        assert_eq!((&classes.order[..], &classes.starts[..]), (&[1, 0][..], &[0, 0, 1, 2][..]));
        assert_eq!(graph.degree_classes(Direction::Out, false).starts, [0, 1, 3, 4]);
    }
}
