//! Out-edges from in-edges (CSC to CSR): for any graph, into memory that is there, for symmetric graphs, and for unions of
//! cliques.

use std::ops::Range;

use pulp::Arch;
use rayon::prelude::*;

use crate::csr::{Adjacency, cut, offsets, row_blocks, scatter_blocks};
use crate::memory::zeros;
use crate::radix_sort::{Edges, sorted_by_key};
use crate::shared::Shared;

/// The CSR of the edges of `csc`; sources are below `num_src`.
pub(crate) fn transpose(csc: &Adjacency, num_src: usize) -> Adjacency {
    let indptr = offsets(num_src, &csc.indices);
    let [indices, eids] = sorted_by_key(&indptr, csc);
    Adjacency { indptr: indptr.into(), indices: indices.into(), eids: eids.into() }
}

/// Writes the CSR of a CSC into existing memory, on this thread, stably: for graphs of mini-batches. `src` are below
/// `num_src`.
pub fn transpose_into(indptr: &[u64], src: &[u32], num_src: usize, csr: &mut Adjacency) {
    let Adjacency { indptr: out, indices: other, eids: position } = csr;
    let (out, other, position) = (out.make_mut(), other.make_mut(), position.make_mut());
    // Each start is shifted by one entry until all edges are placed.
    out.clear();
    out.resize(num_src + 2, 0);
    src.iter().for_each(|&s| out[s as usize + 2] += 1);
    for i in 2..out.len() {
        out[i] += out[i - 1];
    }
    other.resize(src.len(), 0);
    position.resize(src.len(), 0);
    for (dst, row) in indptr.windows(2).enumerate() {
        for e in row[0]..row[1] {
            let slot = &mut out[src[e as usize] as usize + 1];
            other[*slot as usize] = dst as u32;
            position[*slot as usize] = e as u32;
            *slot += 1;
        }
    }
    out.truncate(num_src + 1);
}

/// Keyed by source; the payload is (destination, edge id), and edge ids ascend with destinations.
impl Edges for Adjacency {
    fn chunks(&self, num: usize) -> Vec<Range<usize>> {
        row_blocks(&self.indptr, num)
    }

    #[inline(always)]
    fn visit(&self, chunk: Range<usize>, mut edge: impl FnMut(u32, [u32; 2])) {
        for row in chunk {
            let edges = self.indptr[row] as usize..self.indptr[row + 1] as usize;
            for (eid, &src) in (edges.start as u32..).zip(&self.indices[edges]) {
                edge(src, [row as u32, eid]);
            }
        }
    }
}

/// The CSR of a symmetric graph, which shares `indptr` and `indices` with the CSC. The id of a reverse edge is found by
/// counting the edges of its row met so far: there are few row counters, and the output is written in order.
pub(crate) fn transpose_symmetric(csc: &Adjacency) -> Adjacency {
    let mut eids: Vec<u32> = zeros(csc.indices.len());
    let blocks = row_blocks(&csc.indptr, scatter_blocks(csc.indices.len()));
    let parts = cut(&mut eids, &csc.indptr, &blocks);
    let num = blocks.len();
    blocks.into_par_iter().zip(parts).enumerate().for_each(|(i, (rows, part))| {
        let others = &csc.indices[csc.indptr[rows.start] as usize..csc.indptr[rows.end] as usize];
        // The last block counts down from the row ends, so it needs no search for the edges met by the blocks before.
        if i > 0 && i + 1 == num {
            let mut next: Vec<u32> = csc.indptr[1..].iter().map(|&end| end as u32).collect();
            for (eid, &other) in part.iter_mut().zip(others).rev() {
                let back = &mut next[other as usize];
                *back = back.wrapping_sub(1);
                *eid = *back;
            }
            return;
        }
        let met = |row: &[u64]| {
            let sources = &csc.indices[row[0] as usize..row[1] as usize];
            row[0] as u32 + if i == 0 { 0 } else { sources.partition_point(|&s| (s as usize) < rows.start) as u32 }
        };
        let mut next: Vec<u32> = csc.indptr.windows(2).map(met).collect();
        for (eid, &other) in part.iter_mut().zip(others) {
            let back = &mut next[other as usize];
            *eid = *back;
            *back = back.wrapping_add(1);
        }
    });
    Adjacency { indptr: Shared::clone(&csc.indptr), indices: Shared::clone(&csc.indices), eids: eids.into() }
}

/// The CSR of a disjoint union of cliques with self loops, plus isolated vertices: the graph of a symmetric metapath
/// whose first half reaches one vertex at most. All rows of a clique are equal, and the reverse edges of a row have the
/// same rank in each of them, so each id is one addition, written in order.
///
/// `None` if a row does not contain its own vertex at its rank: then these are no cliques.
pub(crate) fn transpose_cliques(csc: &Adjacency) -> Option<Adjacency> {
    let num = csc.indptr.len() - 1;
    let row = |v: usize| &csc.indices[csc.indptr[v] as usize..csc.indptr[v + 1] as usize];
    // For each vertex, the offset of its clique in `starts`, and its rank within the clique.
    let (mut clique, mut rank) = (vec![0u32; num], vec![0u32; num]);
    // The row offsets of the members of each clique, ascending.
    let mut starts: Vec<u32> = Vec::with_capacity(num);
    // For the first vertex of each clique, the number of its members met.
    let mut met = vec![0u32; num];
    for v in (0..num).filter(|&v| !row(v).is_empty()) {
        let first = row(v)[0] as usize;
        if first == v {
            clique[v] = starts.len() as u32;
            starts.extend(row(v).iter().map(|&member| csc.indptr[member as usize] as u32));
        }
        let counted = met.get_mut(first)?;
        (clique[v], rank[v]) = (clique[first], *counted);
        *counted += 1;
        if row(v).get(rank[v] as usize) != Some(&(v as u32)) {
            return None;
        }
    }
    let mut eids: Vec<u32> = zeros(csc.indices.len());
    let blocks = row_blocks(&csc.indptr, scatter_blocks(csc.indices.len()));
    let parts = cut(&mut eids, &csc.indptr, &blocks);
    let arch = Arch::new();
    blocks.into_par_iter().zip(parts).try_for_each(|(rows, mut part)| {
        for v in rows.filter(|&v| !row(v).is_empty()) {
            let (own, rest) = std::mem::take(&mut part).split_at_mut(row(v).len());
            let at = clique[v] as usize;
            add_to_all(arch, starts.get(at..at + own.len())?, rank[v], own);
            part = rest;
        }
        Some(())
    })?;
    Some(Adjacency { indptr: Shared::clone(&csc.indptr), indices: Shared::clone(&csc.indices), eids: eids.into() })
}

/// `out[i] = numbers[i] + more`.
fn add_to_all(arch: Arch, numbers: &[u32], more: u32, out: &mut [u32]) {
    arch.dispatch(
        #[inline(always)]
        || {
            for (out, &number) in out.iter_mut().zip(numbers) {
                *out = number.wrapping_add(more);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CSC of a union of cliques, given the clique of each vertex; 0 is isolated, without a self loop.
    fn disjoint_cliques(clique: &[u32]) -> Adjacency {
        let mut indptr = vec![0];
        let mut src: Vec<u32> = vec![];
        for own in clique {
            let member = |v: &u32| *own != 0 && clique[*v as usize] == *own;
            src.extend((0..clique.len() as u32).filter(member));
            indptr.push(src.len() as u64);
        }
        Adjacency { indptr: indptr.into(), indices: src.into(), eids: vec![].into() }
    }

    #[test]
    fn out_edges_of_cliques_are_those_of_any_graph() {
        let hash = |v: u32| v.wrapping_mul(2_654_435_761) >> 16;
        let skewed: Vec<u32> = (0..1500).map(|v| hash(v) % 40 * (hash(v) % 7).min(1) / (1 + hash(v) % 5)).collect();
        for clique in [vec![], vec![0], vec![3], vec![1, 2, 1, 0, 2, 1], vec![0, 7, 7, 0], skewed] {
            let csc = disjoint_cliques(&clique);
            let expected = transpose(&csc, clique.len());
            assert_eq!(transpose_symmetric(&csc), expected);
            for threads in [1, 2, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                assert_eq!(pool.install(|| transpose_cliques(&csc)), Some(expected.clone()), "{threads} threads");
            }
        }
    }

    #[test]
    fn rows_that_are_no_cliques_are_refused() {
        // Rows without their own vertex, and rows of one clique of different lengths.
        for (indptr, src) in [(vec![0, 1, 2], vec![1, 0]), (vec![0, 1, 3], vec![0, 0, 1]), (vec![0, 1, 1], vec![1])] {
            assert_eq!(
                transpose_cliques(&Adjacency { indptr: indptr.into(), indices: src.into(), eids: vec![].into() }),
                None
            );
        }
    }
}
