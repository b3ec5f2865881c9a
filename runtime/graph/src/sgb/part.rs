//! The edges of a relation at some of its vertices: what one process of several reads of it.

use std::ops::Range;
use std::sync::Arc;

use hgnnc_dataset::dataset::Step;

use super::{SemanticGraphs, SgbError};
use crate::csr::{NO_ORIGINAL, SemanticGraph, csc_of};
use crate::transpose::transpose;

/// The numbers by which the edges at some vertices are known in the whole graph, and its sizes.
///
/// The rows of these vertices are complete. In the row of another vertex are those edges only whose other end is one of
/// them, which are consecutive in the whole graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GraphPart {
    /// Number of edges of the whole graph.
    pub num_edges: u64,
    /// The number of each edge in the whole graph: its position in the CSC. `[E]`
    pub numbers: Vec<u32>,
    /// By destination, and by source: the edges of its row in the whole graph before those that are here. `[rows]`
    pub before: [Vec<u32>; 2],
    /// Destinations, and sources, with edges in the whole graph.
    pub with_edges: [u64; 2],
    /// The most edges of a destination, and of a source, in the whole graph.
    pub most_edges: [u64; 2],
}

/// The edges (v, v) of a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loops {
    /// Those of the relation.
    #[default]
    Kept,
    /// Those of the relation, and one of weight 1 of each vertex without any.
    Added,
    /// Those of the relation are left out.
    Removed,
}

/// The edges from and to some vertices of a relation, in the order of its file.
#[derive(Debug)]
pub(super) struct EdgesAt {
    relation: usize,
    loops: Loops,
    own: [Range<usize>; 2],
    /// The source of each edge, and the destination of each.
    ends: [Vec<u32>; 2],
    original: Vec<u32>,
    /// By source and by destination: all edges of the relation, and those of them whose other end is before its own
    /// vertices. Side by side, since they are counted together.
    counts: [Vec<[u32; 2]>; 2],
    num_edges: u64,
}

impl SemanticGraphs<'_> {
    /// The graph of a relation or of its reverse with the edges from the sources `own[0]` and those to the destinations
    /// `own[1]`, each as often as in the whole graph. Takes memory in these edges and in all vertices.
    ///
    /// # Errors
    /// A relation that does not exist, added self loops between different vertex types, and too many edges.
    pub fn relation_at(
        &self,
        step: Step,
        loops: Loops,
        own: &[Range<usize>; 2],
    ) -> Result<(SemanticGraph, GraphPart), SgbError> {
        let name = self.dataset.relations.get(step.relation).map_or("", |r| &r.name);
        let name = if step.reverse { format!("<{name}") } else { name.to_string() };
        let (src_type, dst_type) = self.endpoints(&name, &[step], loops == Loops::Added)?;
        let (num_src, num_dst) = (self.count(src_type), self.count(dst_type));
        let (from, to) = if step.reverse { (1, 0) } else { (0, 1) };
        let own = [own[from].clone(), own[to].clone()];
        let edges = self.edges_at(&name, step.relation, loops, own)?;
        let (csc, order) = csc_of(num_dst, &edges.ends[from], &edges.ends[to]);
        let original: Vec<u32> = order.iter().map(|&at| edges.original[at as usize]).collect();
        // Own rows are complete, whatever is counted of them.
        let before = |side: usize| {
            let own = &edges.own[side];
            let before = |(vertex, of): (usize, &[u32; 2])| if own.contains(&vertex) { 0 } else { of[1] };
            edges.counts[side].iter().enumerate().map(before).collect()
        };
        let before: [Vec<u32>; 2] = [before(to), before(from)];
        let mut numbers = Vec::with_capacity(original.len());
        let mut first = 0;
        for (row, (before, [degree, _])) in csc.indptr.windows(2).zip(before[0].iter().zip(&edges.counts[to])) {
            numbers.extend(first + before..first + before + (row[1] - row[0]) as u32);
            first += degree;
        }
        let degrees = |side: usize| edges.counts[side].iter().map(|of| of[0]);
        let with_edges = |side: usize| degrees(side).filter(|&degree| degree > 0).count() as u64;
        let most_edges = |side: usize| degrees(side).max().unwrap_or(0).into();
        let part = GraphPart {
            num_edges: edges.num_edges,
            numbers,
            before,
            with_edges: [with_edges(to), with_edges(from)],
            most_edges: [most_edges(to), most_edges(from)],
        };
        let weights = self.dataset.relations[step.relation].weight.as_ref();
        let weight_of = |&at: &u32| weights.and_then(|all| all.get(at as usize)).copied().unwrap_or(1.0);
        let weight = weights.map(|_| original.iter().map(weight_of).collect());
        let csr = transpose(&csc, num_src);
        let original = Some(original);
        Ok((SemanticGraph { name, num_src, num_dst, csc, csr, counts: None, weight, original }, part))
    }

    /// The edges of a relation from the sources `own[0]` and to the destinations `own[1]`. They are read once for both
    /// directions.
    fn edges_at(
        &self,
        graph: &str,
        relation: usize,
        loops: Loops,
        own: [Range<usize>; 2],
    ) -> Result<Arc<EdgesAt>, SgbError> {
        let mut known = self.edges_at.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_it = |of: &&Arc<EdgesAt>| (of.relation, of.loops, &of.own) == (relation, loops, &own);
        if let Some(edges) = known.iter().find(is_it) {
            return Ok(Arc::clone(edges));
        }
        let data = &self.dataset.relations[relation];
        let too_many = |edges: u64| SgbError::TooManyEdges { graph: graph.into(), edges };
        if data.num_edges() >= NO_ORIGINAL as usize {
            return Err(too_many(data.num_edges() as u64));
        }
        let counts = [data.src, data.dst].map(|end| vec![[0, 0]; self.count(end)]);
        let mut has_loop = vec![false; if loops == Loops::Added { counts[0].len() } else { 0 }];
        let (ends, original) = (Default::default(), vec![]);
        let mut edges = EdgesAt { relation, loops, own, ends, original, counts, num_edges: 0 };
        for ((&src, &dst), position) in data.src_ids.iter().zip(&data.dst_ids).zip(0..) {
            match loops {
                Loops::Removed if src == dst => continue,
                Loops::Added if src == dst => has_loop[src as usize] = true,
                _ => {}
            }
            edges.add(src, dst, position);
        }
        let without = (0..).zip(&has_loop).filter(|(_, has)| !**has);
        without.for_each(|(vertex, _)| edges.add(vertex, vertex, NO_ORIGINAL));
        if edges.num_edges >= u64::from(NO_ORIGINAL) {
            return Err(too_many(edges.num_edges));
        }
        let edges = Arc::new(edges);
        known.push(Arc::clone(&edges));
        Ok(edges)
    }
}

impl EdgesAt {
    fn add(&mut self, src: u32, dst: u32, position: u32) {
        let ends = [src, dst];
        self.num_edges += 1;
        for side in [0, 1] {
            let counts = &mut self.counts[side][ends[side] as usize];
            counts[0] += 1;
            counts[1] += u32::from((ends[1 - side] as usize) < self.own[1 - side].start);
        }
        if self.own[0].contains(&(src as usize)) || self.own[1].contains(&(dst as usize)) {
            self.ends[0].push(src);
            self.ends[1].push(dst);
            self.original.push(position);
        }
    }
}
