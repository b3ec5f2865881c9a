//! The edges of a relation at some of its vertices: what one process of several reads of it.

use std::ops::Range;

use hgnnc_dataset::dataset::Step;

use super::{SemanticGraphs, SgbError};
use crate::csr::{NO_ORIGINAL, SemanticGraph, csc_of};
use crate::transpose::transpose;

/// What a graph with the edges of some vertices has from the whole graph.
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
    /// None.
    Removed,
}

/// The edges of one kind of end.
struct Side<'a> {
    ids: &'a [u32],
    own: Range<u32>,
    /// Edges of each vertex.
    degrees: Vec<u32>,
    /// Those whose other end is before its own vertices.
    before: Vec<u32>,
}

impl<'a> Side<'a> {
    fn new(ids: &'a [u32], count: usize, own: &Range<usize>) -> Self {
        let own = own.start as u32..own.end as u32;
        Self { ids, own, degrees: vec![0; count], before: vec![0; count] }
    }

    fn add(&mut self, vertex: u32, is_before: bool) {
        self.degrees[vertex as usize] += 1;
        self.before[vertex as usize] += u32::from(is_before);
    }

    fn with_edges(&self) -> u64 {
        self.degrees.iter().filter(|&&degree| degree > 0).count() as u64
    }

    fn most(&self) -> u64 {
        self.degrees.iter().copied().max().unwrap_or(0).into()
    }
}

impl SemanticGraphs<'_> {
    /// The graph of a relation or of its reverse with the edges from the sources `own[0]` and those to the destinations
    /// `own[1]`, each as often as in the whole graph. Takes memory in these edges and in all vertices.
    ///
    /// # Errors
    /// Those of [`SemanticGraphs::relation`].
    pub fn relation_at(
        &self,
        step: Step,
        loops: Loops,
        own: &[Range<usize>; 2],
    ) -> Result<(SemanticGraph, GraphPart), SgbError> {
        let Step { relation, reverse } = step;
        let name = self.dataset.relations.get(relation).map_or("", |r| &r.name);
        let graph = if reverse { format!("<{name}") } else { name.to_string() };
        let ends = self.endpoints(&graph, &[step], loops == Loops::Added)?;
        let (num_src, num_dst) = (self.count(ends.0), self.count(ends.1));
        let data = &self.dataset.relations[relation];
        let mut ids = [&data.src_ids[..], &data.dst_ids[..]];
        if reverse {
            ids.swap(0, 1);
        }
        let [mut src, mut dst] = [Side::new(ids[0], num_src, &own[0]), Side::new(ids[1], num_dst, &own[1])];
        let file_edges = src.ids.len() as u64;
        if file_edges >= u64::from(NO_ORIGINAL) {
            return Err(SgbError::TooManyEdges { graph, edges: file_edges });
        }
        let mut has_loop = vec![false; if loops == Loops::Added { num_src } else { 0 }];
        let mut num_edges = 0u64;
        // Of the edges that are kept.
        let (mut sources, mut destinations, mut original) = (vec![], vec![], vec![]);
        let (of_sources, of_destinations) = (src.ids, dst.ids);
        let mut visit = |from: u32, to: u32, position: u32| {
            num_edges += 1;
            dst.add(to, from < src.own.start);
            src.add(from, to < dst.own.start);
            if src.own.contains(&from) || dst.own.contains(&to) {
                sources.push(from);
                destinations.push(to);
                original.push(position);
            }
        };
        for ((&from, &to), position) in of_sources.iter().zip(of_destinations).zip(0..) {
            if from == to && loops != Loops::Kept {
                match loops {
                    Loops::Removed => continue,
                    _ => has_loop[from as usize] = true,
                }
            }
            visit(from, to, position);
        }
        for vertex in (0..).zip(&has_loop).filter(|(_, has)| !**has).map(|(vertex, _)| vertex) {
            visit(vertex, vertex, NO_ORIGINAL);
        }
        if num_edges >= u64::from(NO_ORIGINAL) {
            return Err(SgbError::TooManyEdges { graph, edges: num_edges });
        }
        for side in [&mut src, &mut dst] {
            side.before[side.own.start as usize..side.own.end as usize].fill(0);
        }
        let (csc, order) = csc_of(num_dst, &sources, &destinations);
        let original: Vec<u32> = order.iter().map(|&at| original[at as usize]).collect();
        let mut numbers = Vec::with_capacity(original.len());
        let mut first = 0;
        for (row, (degree, before)) in csc.indptr.windows(2).zip(dst.degrees.iter().zip(&dst.before)) {
            let edges = (row[1] - row[0]) as u32;
            numbers.extend(first + before..first + before + edges);
            first += degree;
        }
        let weight_of = |&at: &u32| data.weight.as_ref().and_then(|all| all.get(at as usize)).copied().unwrap_or(1.0);
        let weight = data.weight.as_ref().map(|_| original.iter().map(weight_of).collect());
        let csr = transpose(&csc, num_src);
        let part = GraphPart {
            num_edges,
            numbers,
            with_edges: [dst.with_edges(), src.with_edges()],
            most_edges: [dst.most(), src.most()],
            before: [dst.before, src.before],
        };
        let original = Some(original);
        Ok((SemanticGraph { name: graph, num_src, num_dst, csc, csr, counts: None, weight, original }, part))
    }
}
