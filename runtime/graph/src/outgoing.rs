//! Out-edges, made from in-edges: of any graph, of one in which each edge has one back, and of cliques.

use std::ops::Range;

use pulp::Arch;
use rayon::prelude::*;

use crate::csr::{Csc, Csr, cut, offsets, row_blocks, scatter_blocks};
use crate::memory::zeros;
use crate::scatter::{Edges, sorted_by_end};
use crate::shared::Shared;

/// CSR of the same edges as `csc`, whose sources are below `num_src`.
pub(crate) fn transpose(csc: &Csc, num_src: usize) -> Csr {
    let indptr = offsets(num_src, &csc.src);
    let [dst, edge] = sorted_by_end(&indptr, csc);
    Csr { indptr: indptr.into(), dst: dst.into(), edge }
}

/// Edges by source: destination, and number of the edge. Numbers ascend with destinations.
impl Edges for Csc {
    fn chunks(&self, num: usize) -> Vec<Range<usize>> {
        row_blocks(&self.indptr, num)
    }

    #[inline(always)]
    fn visit(&self, chunk: Range<usize>, mut edge: impl FnMut(u32, [u32; 2])) {
        for row in chunk {
            let edges = self.indptr[row] as usize..self.indptr[row + 1] as usize;
            for (number, &src) in (edges.start as u32..).zip(&self.src[edges]) {
                edge(src, [row as u32, number]);
            }
        }
    }
}

/// The out-edges of a graph in which each edge has one back, so that they stand as the in-edges do. An edge back is found by
/// counting how many of its row have been met: the ends of rows are few, and what is written is written in order.
pub(crate) fn mirrored(csc: &Csc) -> Csr {
    let mut edge: Vec<u32> = zeros(csc.src.len());
    let blocks = row_blocks(&csc.indptr, scatter_blocks(csc.src.len()));
    let parts = cut(&mut edge, &csc.indptr, &blocks);
    let num = blocks.len();
    blocks.into_par_iter().zip(parts).enumerate().for_each(|(i, (rows, part))| {
        let others = &csc.src[csc.indptr[rows.start] as usize..csc.indptr[rows.end] as usize];
        // The last block counts from the ends of rows: what the blocks before have met need not be looked for.
        if i > 0 && i + 1 == num {
            let mut next: Vec<u32> = csc.indptr[1..].iter().map(|&end| end as u32).collect();
            for (edge, &other) in part.iter_mut().zip(others).rev() {
                let back = &mut next[other as usize];
                *back = back.wrapping_sub(1);
                *edge = *back;
            }
            return;
        }
        let met = |row: &[u64]| {
            let sources = &csc.src[row[0] as usize..row[1] as usize];
            row[0] as u32 + if i == 0 { 0 } else { sources.partition_point(|&s| (s as usize) < rows.start) as u32 }
        };
        let mut next: Vec<u32> = csc.indptr.windows(2).map(met).collect();
        for (edge, &other) in part.iter_mut().zip(others) {
            let back = &mut next[other as usize];
            *edge = *back;
            *back = back.wrapping_add(1);
        }
    });
    Csr { indptr: Shared::clone(&csc.indptr), dst: Shared::clone(&csc.src), edge }
}

/// The out-edges of a graph whose edges join each vertex that has any with all vertices of its clique, itself among them: what a
/// path makes that leads over one vertex at most, and back the same way. All rows of a clique are the same list then, and the
/// edges back to a row have the same place in the rows of all of them: one sum for each edge, in order.
///
/// `None` for a row that is not in its own list; then these are no cliques.
pub(crate) fn cliques(csc: &Csc) -> Option<Csr> {
    let num = csc.indptr.len() - 1;
    let row = |v: usize| &csc.src[csc.indptr[v] as usize..csc.indptr[v + 1] as usize];
    // For each vertex, where its clique starts in `starts`, and which one of the clique it is.
    let (mut clique, mut rank) = (vec![0u32; num], vec![0u32; num]);
    // The members of each clique, ascending: where their rows start.
    let mut starts: Vec<u32> = Vec::with_capacity(num);
    // For the first of each clique, how many of its members have been met.
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
    let mut edge: Vec<u32> = zeros(csc.src.len());
    let blocks = row_blocks(&csc.indptr, scatter_blocks(csc.src.len()));
    let parts = cut(&mut edge, &csc.indptr, &blocks);
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
    Some(Csr { indptr: Shared::clone(&csc.indptr), dst: Shared::clone(&csc.src), edge })
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

    /// In-edges of the graph whose cliques are given for each vertex; 0: none, not even with itself.
    fn joined(clique: &[u32]) -> Csc {
        let mut indptr = vec![0];
        let mut src: Vec<u32> = vec![];
        for own in clique {
            let member = |v: &u32| *own != 0 && clique[*v as usize] == *own;
            src.extend((0..clique.len() as u32).filter(member));
            indptr.push(src.len() as u64);
        }
        Csc { indptr: indptr.into(), src: src.into() }
    }

    #[test]
    fn out_edges_of_cliques_are_those_of_any_graph() {
        let hash = |v: u32| v.wrapping_mul(2_654_435_761) >> 16;
        let skewed: Vec<u32> = (0..1500).map(|v| hash(v) % 40 * (hash(v) % 7).min(1) / (1 + hash(v) % 5)).collect();
        for clique in [vec![], vec![0], vec![3], vec![1, 2, 1, 0, 2, 1], vec![0, 7, 7, 0], skewed] {
            let csc = joined(&clique);
            let expected = transpose(&csc, clique.len());
            assert_eq!(mirrored(&csc), expected);
            for threads in [1, 2, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                assert_eq!(pool.install(|| cliques(&csc)), Some(expected.clone()), "{threads} threads");
            }
        }
    }

    #[test]
    fn what_is_no_clique_is_noticed_where_it_would_go_out_of_bounds() {
        // Rows that do not have themselves, rows of one clique that are of different lengths.
        for (indptr, src) in [(vec![0, 1, 2], vec![1, 0]), (vec![0, 1, 3], vec![0, 0, 1]), (vec![0, 1, 1], vec![1])] {
            assert_eq!(cliques(&Csc { indptr: indptr.into(), src: src.into() }), None);
        }
    }
}
