//! Path instances: the walks along a metapath, listed as a vertex type with relations.
//!
//! An instance of a metapath is a sequence of edges that join. [`Instances::add_to`] gives a dataset a vertex type with a
//! row for each, a relation from the vertices at each position of the path to the instances, and one from the instances to
//! the vertices where they end. The relation of a position carries weight and features of the edge that leaves it.
//!
//! Instances are numbered by the vertex where they end. Those of one vertex are ordered by their last edge, then the one
//! before it, and so on, where the edges that arrive at a vertex are ordered by source, then by position in the dataset:
//! the order in which a walk backwards from the end meets them. Where only so many per vertex are wanted, they are chosen
//! from this list uniformly and without replacement. The choice depends on the number of the vertex, the number of its
//! instances and the limit, and on nothing else: not on threads, other vertices or runs.
//!
//! Instances are counted by position before any is listed, in time and memory of the relations' edges. A choice of `k` of
//! `n` instances takes time in `k`: a chosen number becomes the instance in its place by these counts, so the others are
//! never listed.
//!
//! An instance has the latest time of its edges and vertices. Under a cutoff there are only those that are not later than
//! the vertex where they end, and what is later is not counted. Each end has its own counts then, over the edges by which
//! paths arrive there in time.

use std::ops::Range;

use hgnnc_dataset::dataset::{Dataset, DenseFeatures, RelationData, Step, VertexTypeData};
use rayon::prelude::*;

use super::SgbError;
use crate::choose::choose;
use crate::csr::{Adjacency, NO_ORIGINAL, csc_of};

/// The path instances that a dataset is to have as vertices.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    /// Name of the metapath, for messages.
    pub graph: String,
    /// Name of the new vertex type.
    pub vertex_type: String,
    /// The steps of the path; at least one.
    pub steps: Vec<Step>,
    /// The most instances that end at a vertex.
    pub at_most: Option<u32>,
    /// Names of the new relations, one for each position of the path: one more than there are steps.
    pub relations: Vec<String>,
    /// Whether weight, time and features of a step's edges are read. `[steps]`
    pub edge_data: Vec<bool>,
    /// Whether there are only instances that are not later than the vertex where they end, as far as the dataset has times.
    /// The new vertex type then has the times of the instances.
    pub past: bool,
    /// Largest size in bytes of the instances with the graphs that are made of their relations.
    pub memory_budget: u64,
}

/// The number of path instances, and of those that a limit leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceCounts {
    /// All of them (saturated at `u128::MAX`).
    pub all: u128,
    /// Those that are listed: at most so many per vertex.
    pub listed: u128,
    /// The most that end at one vertex.
    pub most: u64,
}

/// The edges of a step by the vertex where they arrive.
struct Hop {
    indptr: Vec<u64>,
    /// Vertex that each edge leaves, ascending within a row.
    sources: Vec<u32>,
    /// Position of each edge in the dataset.
    original: Vec<u32>,
    /// The later one of the time of each edge and that of the vertex that it leaves, where cutoffs ask for it.
    times: Vec<i64>,
    /// For each edge: the paths that arrive by it or by an earlier edge of its row.
    arriving: Vec<u64>,
}

impl Hop {
    fn row(&self, vertex: u32) -> Range<usize> {
        self.indptr[vertex as usize] as usize..self.indptr[vertex as usize + 1] as usize
    }

    /// Number of paths that arrive at a vertex.
    fn paths(&self, vertex: u32) -> u64 {
        let row = self.row(vertex);
        if row.is_empty() { 0 } else { self.arriving[row.end - 1] }
    }
}

/// The edges by which paths arrive at a vertex in time. The rows of each hop are numbered among themselves.
struct Cone {
    hops: Vec<Hop>,
    /// By position of the path: the vertex of each row.
    vertices: Vec<Vec<u32>>,
}

/// The listed instances: by position of the path, the vertices there, and by step, the edges.
struct Listed {
    vertices: Vec<Vec<u32>>,
    edges: Vec<Vec<u32>>,
}

impl Instances {
    /// Counts the instances without listing them.
    ///
    /// # Errors
    /// Steps that do not join, and 2^64 instances or more that end at one vertex.
    pub fn count(&self, dataset: &Dataset) -> Result<InstanceCounts, SgbError> {
        let ends = self.ends(&self.hops(dataset)?, dataset)?;
        Ok(self.counts(&ends))
    }

    /// Adds the vertex type and the relations to a dataset. Without `listed`, they are empty: for a model that factors
    /// every sum over the instances.
    ///
    /// # Errors
    /// Steps that do not join, instances that exceed the memory budget or 32-bit numbers; then the dataset is unchanged.
    pub fn add_to(&self, dataset: &mut Dataset, listed: bool) -> Result<InstanceCounts, SgbError> {
        let hops = self.hops(dataset)?;
        let ends = self.ends(&hops, dataset)?;
        let counts = self.counts(&ends);
        let listed = if listed {
            self.check(&ends, counts)?;
            self.list(&hops, &ends, self.cutoffs(dataset))?
        } else {
            let (positions, steps) = (self.steps.len() + 1, self.steps.len());
            Listed { vertices: vec![vec![]; positions], edges: vec![vec![]; steps] }
        };
        let mut positions: Vec<usize> = self.steps.iter().map(|&step| dataset.step_ends(step).0).collect();
        positions.extend(self.steps.last().map(|&step| dataset.step_ends(step).1));
        let (count, vertex_type) = (listed.vertices[0].len(), dataset.vertex_types.len());
        dataset.vertex_types.push(VertexTypeData {
            name: self.vertex_type.clone(),
            count,
            time: if self.past { self.times(dataset, &positions, &listed) } else { None },
            ..VertexTypeData::default()
        });
        let numbers = 0..count as u32;
        for (position, vertices) in listed.vertices.into_iter().enumerate() {
            let numbers: Vec<u32> = numbers.clone().collect();
            let mut relation = RelationData { name: self.relations[position].clone(), ..RelationData::default() };
            match listed.edges.get(position) {
                Some(edges) => {
                    (relation.src, relation.dst) = (positions[position], vertex_type);
                    (relation.src_ids, relation.dst_ids) = (vertices, numbers);
                    if self.edge_data[position] {
                        let data = &dataset.relations[self.steps[position].relation];
                        let of_edges = |all: &[f32], dim: usize| -> Vec<f32> {
                            edges.iter().flat_map(|&e| all[e as usize * dim..][..dim].iter().copied()).collect()
                        };
                        relation.time = data.time.as_ref().map(|all| edges.iter().map(|&e| all[e as usize]).collect());
                        relation.weight = data.weight.as_ref().map(|all| of_edges(all, 1).into());
                        relation.features = data
                            .features
                            .as_ref()
                            .map(|all| DenseFeatures { dim: all.dim, rows: of_edges(&all.rows, all.dim).into() });
                    }
                }
                None => {
                    (relation.src, relation.dst) = (vertex_type, positions[position]);
                    (relation.src_ids, relation.dst_ids) = (numbers, vertices);
                }
            }
            dataset.relations.push(relation);
        }
        Ok(counts)
    }

    /// The edges of each step, with the numbers of paths that arrive by them.
    fn hops(&self, dataset: &Dataset) -> Result<Vec<Hop>, SgbError> {
        super::SemanticGraphs::new(dataset).endpoints(&self.graph, &self.steps, false)?;
        let mut hops: Vec<Hop> = vec![];
        for &step in &self.steps {
            let (csc, original) = edges_of_step(dataset, step)?;
            let (indptr, sources) = (csc.indptr.to_vec(), csc.indices.to_vec());
            let arriving = self.arriving(&indptr, &sources, hops.last())?;
            let times = if self.past { latest_times(dataset, step, &sources, &original) } else { vec![] };
            hops.push(Hop { indptr, sources, original, times, arriving });
        }
        Ok(hops)
    }

    /// For each edge of a hop: the paths that arrive by it or by an earlier edge of its row, given the hop before.
    fn arriving(&self, indptr: &[u64], sources: &[u32], before: Option<&Hop>) -> Result<Vec<u64>, SgbError> {
        let mut arriving = Vec::with_capacity(sources.len());
        for row in indptr.windows(2) {
            let mut sum = 0u64;
            for &source in &sources[row[0] as usize..row[1] as usize] {
                let paths = before.map_or(1, |before| before.paths(source));
                sum = sum.checked_add(paths).ok_or_else(|| SgbError::CountOverflow { graph: self.graph.clone() })?;
                arriving.push(sum);
            }
        }
        Ok(arriving)
    }

    /// The times of the vertices where paths end, if instances must not be later.
    fn cutoffs<'d>(&self, dataset: &'d Dataset) -> Option<&'d [i64]> {
        let end = dataset.step_ends(*self.steps.last().filter(|_| self.past)?).1;
        dataset.vertex_types[end].time.as_deref()
    }

    /// The number of instances that end at each vertex.
    fn ends(&self, hops: &[Hop], dataset: &Dataset) -> Result<Vec<u64>, SgbError> {
        let Some(last) = hops.last() else { return Ok(vec![]) };
        let ends = (0..last.indptr.len() as u32 - 1).into_par_iter();
        match self.cutoffs(dataset) {
            None => Ok(ends.map(|end| last.paths(end)).collect()),
            Some(cutoffs) => {
                let paths = |end: u32| {
                    let cone = self.cone(hops, end, cutoffs[end as usize])?;
                    Ok(cone.hops.last().map_or(0, |last| last.paths(0)))
                };
                ends.map(paths).collect()
            }
        }
    }

    /// The edges by which paths arrive at a vertex that are not later than a cutoff.
    fn cone(&self, hops: &[Hop], end: u32, cutoff: i64) -> Result<Cone, SgbError> {
        let mut cone = Cone { hops: vec![], vertices: vec![vec![end]] };
        for hop in hops.iter().rev() {
            let (mut indptr, mut sources, mut original) = (vec![0], vec![], vec![]);
            for &vertex in &cone.vertices[cone.vertices.len() - 1] {
                for edge in hop.row(vertex).filter(|&edge| hop.times[edge] <= cutoff) {
                    sources.push(hop.sources[edge]);
                    original.push(hop.original[edge]);
                }
                indptr.push(sources.len() as u64);
            }
            let mut vertices = sources.clone();
            vertices.sort_unstable();
            vertices.dedup();
            let row = |source: &u32| vertices.binary_search(source).expect("a source is among the sources") as u32;
            let sources = sources.iter().map(row).collect();
            cone.vertices.push(vertices);
            cone.hops.push(Hop { indptr, sources, original, times: vec![], arriving: vec![] });
        }
        cone.hops.reverse();
        cone.vertices.reverse();
        for hop in 0..cone.hops.len() {
            let (before, rest) = cone.hops.split_at_mut(hop);
            rest[0].arriving = self.arriving(&rest[0].indptr, &rest[0].sources, before.last())?;
        }
        Ok(cone)
    }

    /// The latest time of the edges and vertices of each instance; `None` where the dataset has no times of any.
    fn times(&self, dataset: &Dataset, positions: &[usize], listed: &Listed) -> Option<Vec<i64>> {
        let mut latest: Option<Vec<i64>> = None;
        let mut add = |times: &[i64], of: &[u32]| {
            let latest = latest.get_or_insert_with(|| vec![i64::MIN; of.len()]);
            latest.iter_mut().zip(of).for_each(|(latest, &at)| *latest = times[at as usize].max(*latest));
        };
        for (&at, vertices) in positions.iter().zip(&listed.vertices) {
            dataset.vertex_types[at].time.iter().for_each(|times| add(times, vertices));
        }
        for (step, edges) in self.steps.iter().zip(&listed.edges) {
            dataset.relations[step.relation].time.iter().for_each(|times| add(times, edges));
        }
        latest
    }

    /// Number of instances that are listed of so many that end at a vertex.
    fn kept(&self, paths: u64) -> u64 {
        self.at_most.map_or(paths, |most| paths.min(most.into()))
    }

    fn counts(&self, ends: &[u64]) -> InstanceCounts {
        let mut counts = InstanceCounts { all: 0, listed: 0, most: 0 };
        for &paths in ends {
            counts.all = counts.all.saturating_add(paths.into());
            counts.listed = counts.listed.saturating_add(self.kept(paths).into());
            counts.most = counts.most.max(paths);
        }
        counts
    }

    /// Bytes of an instance: the list, the relations made of it, and a graph with both directions for each of them.
    fn bytes_each(&self) -> u128 {
        const LIST: u128 = 4;
        const RELATION: u128 = 8;
        const GRAPH: u128 = 20;
        let (positions, steps) = (self.steps.len() as u128 + 1, self.steps.len() as u128);
        (positions + steps) * LIST + positions * (RELATION + GRAPH)
    }

    /// Refuses instances that do not fit.
    fn check(&self, ends: &[u64], counts: InstanceCounts) -> Result<(), SgbError> {
        let bytes = counts.listed.saturating_mul(self.bytes_each());
        if bytes <= self.memory_budget.into() && counts.listed < NO_ORIGINAL.into() {
            return Ok(());
        }
        let fits = |limit: u64| {
            let kept: u128 = ends.iter().map(|&paths| u128::from(paths.min(limit))).sum();
            kept * self.bytes_each() <= self.memory_budget.into() && kept < NO_ORIGINAL.into()
        };
        // A round number is as good as the largest one, and shorter to write.
        let round = |digit: u64| (0..10).map(move |zeros| digit * 10u64.pow(zeros));
        let fitting = [1, 2, 5].into_iter().flat_map(round).filter(|&limit| fits(limit)).max().unwrap_or(1);
        Err(SgbError::TooManyInstances {
            graph: self.graph.clone(),
            instances: counts.listed,
            most: self.kept(counts.most),
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
            budget: self.memory_budget,
            fitting,
        })
    }

    fn list(&self, hops: &[Hop], ends: &[u64], cutoffs: Option<&[i64]>) -> Result<Listed, SgbError> {
        let steps = self.steps.len();
        let vertices = ends.len() as u32;
        // Blocks of ends are independent, and joined in order.
        const ENDS: u32 = 1024;
        let blocks: Result<Vec<Listed>, SgbError> = (0..vertices.div_ceil(ENDS))
            .into_par_iter()
            .map(|block| {
                let mut listed = Listed { vertices: vec![vec![]; steps + 1], edges: vec![vec![]; steps] };
                for end in block * ENDS..((block + 1) * ENDS).min(vertices) {
                    let numbers = (end, ends[end as usize]);
                    match cutoffs {
                        None => self.list_of(hops, (end, None), numbers, &mut listed),
                        Some(cutoffs) => {
                            let cone = self.cone(hops, end, cutoffs[end as usize])?;
                            self.list_of(&cone.hops, (0, Some(&cone.vertices)), numbers, &mut listed);
                        }
                    }
                }
                Ok(listed)
            })
            .collect();
        let blocks = blocks?;
        let join = |part: &dyn Fn(&Listed) -> &[u32]| -> Vec<u32> {
            let mut all = Vec::with_capacity(blocks.iter().map(|block| part(block).len()).sum());
            blocks.iter().for_each(|block| all.extend_from_slice(part(block)));
            all
        };
        Ok(Listed {
            vertices: (0..=steps).map(|position| join(&|block| &block.vertices[position])).collect(),
            edges: (0..steps).map(|step| join(&|block| &block.edges[step])).collect(),
        })
    }

    /// Lists the instances that end at a vertex, of which there are so many. `row` is its row in the last hop, with the
    /// vertices of all rows if they have other numbers.
    fn list_of(
        &self,
        hops: &[Hop],
        (row, vertices): (u32, Option<&[Vec<u32>]>),
        (end, paths): (u32, u64),
        listed: &mut Listed,
    ) {
        let kept = self.kept(paths);
        let vertex = |position: usize, row: u32| vertices.map_or(row, |all| all[position][row as usize]);
        let mut push = |number: u64| {
            let (mut at, mut number) = (row, number);
            listed.vertices[hops.len()].push(end);
            for (step, hop) in hops.iter().enumerate().rev() {
                let row = hop.row(at);
                let edge = row.start + hop.arriving[row.clone()].partition_point(|&arrived| arrived <= number);
                number -= if edge == row.start { 0 } else { hop.arriving[edge - 1] };
                at = hop.sources[edge];
                listed.edges[step].push(hop.original[edge]);
                listed.vertices[step].push(vertex(step, at));
            }
        };
        if kept == paths {
            (0..paths).for_each(&mut push);
        } else {
            choose(end, paths, kept).into_iter().for_each(&mut push);
        }
    }
}

/// The edges of a step by the vertex where they arrive, and the position of each in its relation.
///
/// # Errors
/// More edges than 32-bit numbers count.
pub(crate) fn edges_of_step(dataset: &Dataset, step: Step) -> Result<(Adjacency, Vec<u32>), SgbError> {
    let relation = &dataset.relations[step.relation];
    let (mut src, mut dst) = (&relation.src_ids, &relation.dst_ids);
    if step.reverse {
        std::mem::swap(&mut src, &mut dst);
    }
    if src.len() >= NO_ORIGINAL as usize {
        return Err(SgbError::TooManyEdges { graph: relation.name.clone(), edges: src.len() as u64 });
    }
    Ok(csc_of(dataset.vertex_types[dataset.step_ends(step).1].count, src, dst))
}

/// The later one of the time of each edge of a step and that of the vertex that it leaves, as far as there are any.
pub(crate) fn latest_times(dataset: &Dataset, step: Step, sources: &[u32], original: &[u32]) -> Vec<i64> {
    let own = &dataset.relations[step.relation].time;
    let of_sources = &dataset.vertex_types[dataset.step_ends(step).0].time;
    let time = |times: &Option<Vec<i64>>, at: u32| times.as_ref().map_or(i64::MIN, |times| times[at as usize]);
    let edges = sources.iter().zip(original);
    edges.map(|(&source, &edge)| time(own, edge).max(time(of_sources, source))).collect()
}
