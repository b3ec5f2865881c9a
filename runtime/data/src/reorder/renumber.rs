//! Permutes all data with a row per vertex, edge or stored element when vertices are renumbered.

use std::sync::Arc;

use hgnnc_graph::Adjacency;
use hgnnc_graph::order::Order;
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::types::{Layout, Space, VertexType};
use rayon::prelude::*;

use crate::bound::{BoundData, InputData, Target, Topology};
use crate::error::{ExecError, Result};
use crate::orders::{CHUNK, Orders, copy_rows};

/// Renumbers the vertices of some types.
///
/// Edges keep their order within a row.
///
/// # Errors
/// When an order does not match the vertices of its type, or vertices have been renumbered before.
pub fn renumber(data: &mut BoundData, tables: &Dataflow, types: Vec<Option<Order>>) -> Result<()> {
    let fits = |(order, &count): (&Option<Order>, &usize)| order.as_ref().is_none_or(|it| it.original.len() == count);
    if data.orders.any() || !types.iter().zip(&data.num_vertices).all(fits) || types.len() != data.num_vertices.len() {
        return Err(ExecError::Unsupported("internal error: an order of vertices that does not fit the data".into()));
    }
    let types: Vec<Option<Arc<Order>>> = types.into_iter().map(|order| order.map(Arc::new)).collect();
    let of = |vertex: VertexType| types[vertex.index()].as_deref();
    // Inputs first: edge rows are located by the old `indptr`.
    for (input, decl) in data.inputs.iter_mut().zip(&tables.inputs) {
        let (topology, vertex) = match (decl.ty.layout, decl.ty.space) {
            (Layout::Sparse(pattern), _) => {
                let decl = &tables.patterns[pattern.index()];
                (Some(&data.patterns[pattern.index()]), decl.vertex)
            }
            (Layout::Dense, Space::Edges(graph)) => {
                (Some(&data.graphs[graph.index()]), tables.graphs[graph.index()].dst)
            }
            (Layout::Dense, Space::Vertices(vertex)) => (None, vertex),
            (Layout::Dense, Space::Unit | Space::Index(_) | Space::Endpoints(..)) => continue,
        };
        let Some(order) = of(vertex) else { continue };
        match (input, topology) {
            (InputData::Numbers(numbers), Some(topology)) => {
                *numbers = edges_of_rows(numbers, &topology.csc.indptr, order).into();
            }
            (InputData::Numbers(numbers), None) => *numbers = rows(numbers, &order.original).into(),
            (InputData::Classes(classes), _) => *classes = rows(classes, &order.original),
            (
                InputData::Held(_)
                | InputData::Rows(_)
                | InputData::StepNumber
                | InputData::EpochNumber
                | InputData::Missing,
                _,
            ) => {}
        }
    }
    let mut moved = vec![];
    for (graph, decl) in data.graphs.iter_mut().zip(&tables.graphs) {
        moved.push(of(decl.dst).map(|order| moves(&graph.csc.indptr, order)));
        topology(graph, of(decl.src), of(decl.dst));
    }
    for (pattern, decl) in data.patterns.iter_mut().zip(&tables.patterns) {
        topology(pattern, None, of(decl.vertex));
    }
    for truth in &mut data.truths {
        let Some(order) = truth.vertex.and_then(of) else { continue };
        match &mut truth.labels {
            Some(Target::Classes(classes)) => *classes = rows(classes, &order.original),
            Some(Target::Rows(numbers)) => *numbers = rows(numbers, &order.original),
            None => {}
        }
        // Parts keep their order, so that sums over them are unchanged.
        for vertex in truth.parts.iter_mut().flatten() {
            // An invalid vertex is reported later.
            *vertex = order.rank.get(*vertex as usize).copied().unwrap_or(*vertex);
        }
    }
    data.orders = Orders { types, moved, kind: None };
    Ok(())
}

/// Displacement of each row's edges, from their new position to the dataset's (modulo 2^32).
fn moves(indptr: &[u64], order: &Order) -> Vec<u32> {
    let mut start = 0;
    let place = |&vertex: &u32| {
        let (old, end) = (indptr[vertex as usize], indptr[vertex as usize + 1]);
        let by = (old as u32).wrapping_sub(start as u32);
        start += end - old;
        by
    };
    order.original.iter().map(place).collect()
}

/// Rows of a slice in another order, in new memory.
pub(super) fn rows<T: Copy + Default + Send + Sync>(from: &[T], original: &[u32]) -> Vec<T> {
    let mut to = vec![T::default(); from.len()];
    let width = from.len() / original.len().max(1);
    if width > 0 {
        copy_rows(from, original, &mut to);
    }
    to
}

/// `indptr` of the permuted rows.
fn starts(indptr: &[u64], order: &Order) -> Vec<u64> {
    let mut starts = Vec::with_capacity(indptr.len());
    let mut start = 0;
    starts.push(start);
    for &row in &order.original {
        start += indptr[row as usize + 1] - indptr[row as usize];
        starts.push(start);
    }
    starts
}

/// Permutes edge values, `width` elements each, with their rows.
fn edges_of_rows<T: Copy + Default + Send + Sync>(from: &[T], indptr: &[u64], order: &Order) -> Vec<T> {
    let edges = indptr.last().map_or(0, |&edges| edges as usize);
    let width = from.len() / edges.max(1);
    let mut to = vec![T::default(); from.len()];
    let starts = starts(indptr, order);
    for_rows(&starts, width, &mut to, |row, to| {
        let old = order.original[row] as usize;
        to.copy_from_slice(&from[indptr[old] as usize * width..indptr[old + 1] as usize * width]);
    });
    to
}

/// Calls `fill` with each row and its part of `to`, `width` elements per edge, on all threads.
fn for_rows<T: Send>(indptr: &[u64], width: usize, to: &mut [T], fill: impl Fn(usize, &mut [T]) + Sync) {
    let rows = indptr.len().saturating_sub(1);
    let mut rest = to;
    let mut parts = vec![];
    for first in (0..rows).step_by(CHUNK) {
        let end = rows.min(first + CHUNK);
        let (part, after) = rest.split_at_mut((indptr[end] - indptr[first]) as usize * width);
        parts.push((first..end, part));
        rest = after;
    }
    parts.into_par_iter().for_each(|(range, mut part)| {
        for row in range {
            let (own, after) = part.split_at_mut((indptr[row + 1] - indptr[row]) as usize * width);
            fill(row, own);
            part = after;
        }
    });
}

/// Renumbers the sources and destinations of a graph.
fn topology(graph: &mut Topology, src: Option<&Order>, dst: Option<&Order>) {
    if src.is_none() && dst.is_none() {
        return;
    }
    // Both are recomputed on demand.
    (graph.ends, graph.classes) = ([None, None], Default::default());
    // If CSC and CSR are the same arrays they stay shared.
    let same_order = src.map(std::ptr::from_ref) == dst.map(std::ptr::from_ref);
    let mirrored =
        same_order && graph.csc.indptr.is_same(&graph.csr.indptr) && graph.csc.indices.is_same(&graph.csr.indices);
    let old_starts = std::mem::take(&mut graph.csc.indptr);
    let starts = dst.map_or_else(|| old_starts.clone(), |order| starts(&old_starts, order).into());
    let position = |other: u32, position: u32| match dst {
        None => position,
        Some(order) => {
            let within = u64::from(position) - old_starts[other as usize];
            (starts[order.rank[other as usize] as usize] + within) as u32
        }
    };
    let Adjacency { indptr, indices: other, eids: old_position } = std::mem::take(&mut graph.csr);
    let new_indptr = src.map_or_else(|| indptr.clone(), |order| self::starts(&indptr, order).into());
    let edges = |row: usize| {
        let old = src.map_or(row, |order| order.original[row] as usize);
        indptr[old] as usize..indptr[old + 1] as usize
    };
    let mut new_position = vec![0; old_position.len()];
    for_rows(&new_indptr, 1, &mut new_position, |row, to| {
        for (to, edge) in to.iter_mut().zip(edges(row)) {
            *to = position(other[edge], old_position[edge]);
        }
    });
    let mut new_other = vec![0; if mirrored { 0 } else { other.len() }];
    if !mirrored {
        for_rows(&new_indptr, 1, &mut new_other, |row, to| {
            for (to, edge) in to.iter_mut().zip(edges(row)) {
                *to = dst.map_or(other[edge], |order| order.rank[other[edge] as usize]);
            }
        });
    }
    graph.csr = Adjacency { indptr: new_indptr, indices: new_other.into(), eids: new_position.into() };

    let from = std::mem::take(&mut graph.csc.indices);
    let mut other = vec![0; from.len()];
    for_rows(&starts, 1, &mut other, |row, to| {
        let old = dst.map_or(row, |order| order.original[row] as usize);
        let from = &from[old_starts[old] as usize..old_starts[old + 1] as usize];
        for (to, &from) in to.iter_mut().zip(from) {
            *to = src.map_or(from, |order| order.rank[from as usize]);
        }
    });
    graph.csc = Adjacency { indptr: starts, indices: other.into(), eids: vec![].into() };
    if mirrored {
        graph.csr.indptr = graph.csc.indptr.clone();
        graph.csr.indices = graph.csc.indices.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sources by destination, in edge order.
    fn by_rows(graph: &Topology) -> Vec<Vec<u32>> {
        let edges = |row: usize| graph.csc.indptr[row] as usize..graph.csc.indptr[row + 1] as usize;
        (0..graph.num_dst).map(|row| graph.csc.indices[edges(row)].to_vec()).collect()
    }

    #[test]
    fn edges_keep_their_order_within_rows_and_point_to_their_positions() {
        let edges = [(0, 1), (2, 1), (2, 1), (3, 1), (1, 0), (0, 2), (3, 2)];
        let old = Topology::from_edges("g", 4, 4, &edges).expect("all ends exist");
        let (src, dst) = (Order::of(vec![2, 0, 3, 1]), Order::of(vec![1, 3, 0, 2]));
        let mut new = old.clone();
        topology(&mut new, Some(&src), Some(&dst));
        let expected: Vec<Vec<u32>> = dst
            .original
            .iter()
            .map(|&row| by_rows(&old)[row as usize].iter().map(|&s| src.rank[s as usize]).collect())
            .collect();
        assert_eq!(by_rows(&new), expected);
        // In the CSR, edges are those of the old row in order, each with its new edge id.
        for (row, &vertex) in src.original.iter().enumerate() {
            let of = |graph: &Topology, row: usize| {
                let range = graph.csr.indptr[row] as usize..graph.csr.indptr[row + 1] as usize;
                (graph.csr.indices[range.clone()].to_vec(), graph.csr.eids[range].to_vec())
            };
            let ((ends, positions), (old_ends, _)) = (of(&new, row), of(&old, vertex as usize));
            assert_eq!(ends, old_ends.iter().map(|&end| dst.rank[end as usize]).collect::<Vec<_>>());
            for (&end, &position) in ends.iter().zip(&positions) {
                assert_eq!(new.csc.indices[position as usize], row as u32);
                let owned = new.csc.indptr[end as usize]..new.csc.indptr[end as usize + 1];
                assert!(owned.contains(&u64::from(position)));
            }
        }
        // Every new position maps to its position in the dataset.
        let moved = moves(&old.csc.indptr, &dst);
        for (row, by) in moved.iter().enumerate() {
            let start = new.csc.indptr[row] as u32;
            assert_eq!(u64::from(start.wrapping_add(*by)), old.csc.indptr[dst.original[row] as usize]);
        }
        // The inverse permutation.
        let back = |order: &Order| Order { original: order.rank.clone(), rank: order.original.clone() };
        topology(&mut new, Some(&back(&src)), Some(&back(&dst)));
        assert_eq!(new, old);
    }
}
