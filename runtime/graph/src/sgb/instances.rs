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

use std::ops::Range;

use rayon::prelude::*;

use super::SgbError;
use crate::choose::choose;
use crate::csr::{NO_ORIGINAL, csc_of};
use crate::dataset::{Dataset, DenseFeatures, RelationData, Step, VertexTypeData};

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
        let hops = self.hops(dataset)?;
        Ok(self.counts(&hops, dataset))
    }

    /// Adds the vertex type and the relations to a dataset. Without `listed`, they are empty: for a model that factors
    /// every sum over the instances.
    ///
    /// # Errors
    /// Steps that do not join, instances that exceed the memory budget or 32-bit numbers; then the dataset is unchanged.
    pub fn add_to(&self, dataset: &mut Dataset, listed: bool) -> Result<InstanceCounts, SgbError> {
        let hops = self.hops(dataset)?;
        let counts = self.counts(&hops, dataset);
        let listed = if listed {
            self.check(&hops, counts)?;
            self.list(&hops)
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
            let relation = &dataset.relations[step.relation];
            let (mut src, mut dst) = (&relation.src_ids, &relation.dst_ids);
            if step.reverse {
                std::mem::swap(&mut src, &mut dst);
            }
            if src.len() >= NO_ORIGINAL as usize {
                return Err(SgbError::TooManyEdges { graph: relation.name.clone(), edges: src.len() as u64 });
            }
            let num_dst = dataset.vertex_types[dataset.step_ends(step).1].count;
            let (csc, original) = csc_of(num_dst, src, dst);
            let (indptr, sources) = (csc.indptr.to_vec(), csc.indices.to_vec());
            let mut arriving = Vec::with_capacity(sources.len());
            for row in indptr.windows(2) {
                let mut sum = 0u64;
                for &source in &sources[row[0] as usize..row[1] as usize] {
                    let paths = hops.last().map_or(1, |before| before.paths(source));
                    sum =
                        sum.checked_add(paths).ok_or_else(|| SgbError::CountOverflow { graph: self.graph.clone() })?;
                    arriving.push(sum);
                }
            }
            hops.push(Hop { indptr, sources, original, arriving });
        }
        Ok(hops)
    }

    /// Number of instances that are listed of so many that end at a vertex.
    fn kept(&self, paths: u64) -> u64 {
        self.at_most.map_or(paths, |most| paths.min(most.into()))
    }

    fn counts(&self, hops: &[Hop], dataset: &Dataset) -> InstanceCounts {
        let mut counts = InstanceCounts { all: 0, listed: 0, most: 0 };
        let Some(last) = hops.last() else { return counts };
        let end = self.steps.last().map_or(0, |&step| dataset.vertex_types[dataset.step_ends(step).1].count);
        for vertex in 0..end as u32 {
            let paths = last.paths(vertex);
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
    fn check(&self, hops: &[Hop], counts: InstanceCounts) -> Result<(), SgbError> {
        let bytes = counts.listed.saturating_mul(self.bytes_each());
        if bytes <= self.memory_budget.into() && counts.listed < NO_ORIGINAL.into() {
            return Ok(());
        }
        let fits = |limit: u64| {
            let Some(last) = hops.last() else { return true };
            let vertices = 0..last.indptr.len() as u32 - 1;
            let kept: u128 = vertices.map(|vertex| u128::from(last.paths(vertex).min(limit))).sum();
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

    fn list(&self, hops: &[Hop]) -> Listed {
        let steps = self.steps.len();
        let vertices = hops.last().map_or(0, |last| last.indptr.len() as u32 - 1);
        // Blocks of ends are independent, and joined in order.
        const ENDS: u32 = 1024;
        let blocks: Vec<Listed> = (0..vertices.div_ceil(ENDS))
            .into_par_iter()
            .map(|block| {
                let mut listed = Listed { vertices: vec![vec![]; steps + 1], edges: vec![vec![]; steps] };
                for end in block * ENDS..((block + 1) * ENDS).min(vertices) {
                    self.list_of(hops, end, &mut listed);
                }
                listed
            })
            .collect();
        let join = |part: &dyn Fn(&Listed) -> &[u32]| -> Vec<u32> {
            let mut all = Vec::with_capacity(blocks.iter().map(|block| part(block).len()).sum());
            blocks.iter().for_each(|block| all.extend_from_slice(part(block)));
            all
        };
        Listed {
            vertices: (0..=steps).map(|position| join(&|block| &block.vertices[position])).collect(),
            edges: (0..steps).map(|step| join(&|block| &block.edges[step])).collect(),
        }
    }

    /// Lists the instances that end at a vertex.
    fn list_of(&self, hops: &[Hop], end: u32, listed: &mut Listed) {
        let paths = hops.last().map_or(0, |last| last.paths(end));
        let kept = self.kept(paths);
        let mut push = |number: u64| {
            let (mut at, mut number) = (end, number);
            listed.vertices[hops.len()].push(at);
            for (step, hop) in hops.iter().enumerate().rev() {
                let row = hop.row(at);
                let edge = row.start + hop.arriving[row.clone()].partition_point(|&arrived| arrived <= number);
                number -= if edge == row.start { 0 } else { hop.arriving[edge - 1] };
                at = hop.sources[edge];
                listed.edges[step].push(hop.original[edge]);
                listed.vertices[step].push(at);
            }
        };
        if kept == paths {
            (0..paths).for_each(&mut push);
        } else {
            choose(end, paths, kept).into_iter().for_each(&mut push);
        }
    }
}
