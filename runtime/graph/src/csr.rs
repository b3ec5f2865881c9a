//! CSC and CSR adjacency, and the semantic graph that holds both.
//!
//! Edge ids (`eids`) are positions in the CSC: sorted by destination, within a destination by source; equal edges keep
//! their input order. Every per-edge array is indexed by edge id.

use std::ops::Range;

use rayon::prelude::*;

use crate::choose::choose;
use crate::radix_sort::{Edges, sorted_by_key};
use crate::shared::Shared;
use crate::transpose::transpose;

/// In `SemanticGraph::original`: the edge is an added self loop and is in no file.
pub const NO_ORIGINAL: u32 = u32::MAX;

/// Below this many edges one thread is faster than several.
pub(crate) const PARALLEL_EDGES: usize = 1 << 16;

/// The edges of each row: in-edges of each destination (CSC), or out-edges of each source (CSR).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Adjacency {
    /// Row `r` owns edges `indptr[r]..indptr[r + 1]`. `[rows + 1]`
    pub indptr: Shared<u64>,
    /// Vertex at the other end of each edge, ascending within a row. In a symmetric graph the CSR shares this memory and
    /// that of `indptr` with the CSC. `[E]`
    pub indices: Shared<u32>,
    /// Edge id of each edge: its position in the CSC. Empty if the edges are in CSC order, else `[E]`.
    pub eids: Shared<u32>,
}

/// The bipartite graph that a relation or metapath induces between its two end types.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SemanticGraph {
    /// Name shown in reports.
    pub name: String,
    /// Number of vertices on the source side.
    pub num_src: usize,
    /// Number of vertices on the destination side.
    pub num_dst: usize,
    /// In-edges by destination, for the forward pass.
    pub csc: Adjacency,
    /// Out-edges by source, for the backward pass.
    pub csr: Adjacency,
    /// Number of path instances behind each edge, for a counted metapath. `[E]`
    pub counts: Option<Vec<f32>>,
    /// Weight of each edge, for a relation that has weights. `[E]`
    pub weight: Option<Vec<f32>>,
    /// Position of each edge in the relation's file ([`NO_ORIGINAL`] for an added self loop); `None` for a metapath.
    /// Selects the row of edge features. `[E]`
    pub original: Option<Vec<u32>>,
}

/// Why an edge list does not make a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum EdgeError {
    /// Lists of different lengths.
    #[error("{sources} sources, but {destinations} destinations")]
    Lengths { sources: usize, destinations: usize },
    /// An id that is not a vertex.
    #[error("edge {edge}: {end} {value} is out of range (there are {bound})")]
    OutOfRange {
        /// Position of the edge.
        edge: usize,
        end: &'static str,
        value: u32,
        bound: usize,
    },
    /// More edges than 32-bit edge ids can number.
    #[error("{0} edges, but edge ids have 32 bits")]
    TooMany(usize),
}

impl SemanticGraph {
    /// The graph without its edges (v, v), between vertices of one type.
    #[must_use]
    pub fn without_self_loops(self) -> SemanticGraph {
        let sources = self.csc.indices.clone();
        let is_symmetric = self.is_symmetric();
        self.keep(is_symmetric, |dst, row, kept| kept.extend(row.filter(|&e| sources[e as usize] as usize != dst)))
    }

    /// The graph with at most so many in-edges of each destination: of more, some are chosen uniformly and without
    /// replacement, as a function of the destination's number, its in-degree and the limit.
    #[must_use]
    pub fn at_most(self, limit: u32) -> SemanticGraph {
        self.keep(false, |dst, row, kept| {
            let degree = row.end - row.start;
            if degree <= limit.into() {
                kept.extend(row);
            } else {
                kept.extend(choose(dst as u32, degree, limit.into()).into_iter().map(|number| row.start + number));
            }
        })
    }

    /// The graph of one in-edge of each destination: the one at this position of its row. Shorter rows become empty.
    #[must_use]
    pub fn in_edge(self, position: u32) -> SemanticGraph {
        let position = u64::from(position);
        self.keep(false, |_, row, kept| kept.extend((row.start + position < row.end).then(|| row.start + position)))
    }

    /// Are in-edges and out-edges the same lists?
    fn is_symmetric(&self) -> bool {
        self.csr.indices.as_ptr() == self.csc.indices.as_ptr()
    }

    /// The graph with the edges that a function chooses of each destination's, ascending. It is symmetric if both this
    /// one and the choice are.
    fn keep(mut self, is_symmetric: bool, of_row: impl Fn(usize, Range<u64>, &mut Vec<u64>)) -> SemanticGraph {
        let mut kept = vec![];
        let mut indptr = vec![0];
        for (dst, row) in self.csc.indptr.windows(2).enumerate() {
            of_row(dst, row[0]..row[1], &mut kept);
            indptr.push(kept.len() as u64);
        }
        if kept.len() == self.num_edges() {
            return self;
        }
        fn taken<T: Copy>(all: &[T], kept: &[u64]) -> Vec<T> {
            kept.iter().map(|&e| all[e as usize]).collect()
        }
        let indices = taken(&self.csc.indices, &kept);
        self.counts = self.counts.map(|all| taken(&all, &kept));
        self.weight = self.weight.map(|all| taken(&all, &kept));
        self.original = self.original.map(|all| taken(&all, &kept));
        let csc = Adjacency { indptr: indptr.into(), indices: indices.into(), ..Adjacency::default() };
        self.csc = csc;
        self.csr = transpose(&self.csc, self.num_src);
        if is_symmetric {
            (self.csr.indptr, self.csr.indices) = (self.csc.indptr.clone(), self.csc.indices.clone());
        }
        self
    }

    /// Builds a graph from an edge list; duplicates are kept. `original` maps each edge to its place in the list.
    ///
    /// Errors when the lists differ in length, an id is out of range, or there are 2^32 - 1 edges or more.
    pub fn from_edges(
        name: impl Into<String>,
        num_src: usize,
        num_dst: usize,
        src: &[u32],
        dst: &[u32],
    ) -> Result<SemanticGraph, EdgeError> {
        if src.len() != dst.len() {
            return Err(EdgeError::Lengths { sources: src.len(), destinations: dst.len() });
        }
        if src.len() >= NO_ORIGINAL as usize {
            return Err(EdgeError::TooMany(src.len()));
        }
        for (end, ids, bound) in [("source", src, num_src), ("destination", dst, num_dst)] {
            if let Some(edge) = ids.iter().position(|&v| v as usize >= bound) {
                return Err(EdgeError::OutOfRange { edge, end, value: ids[edge], bound });
            }
        }
        let (csc, original) = csc_of(num_dst, src, dst);
        let csr = transpose(&csc, num_src);
        Ok(SemanticGraph {
            name: name.into(),
            num_src,
            num_dst,
            csc,
            csr,
            original: Some(original),
            ..SemanticGraph::default()
        })
    }

    /// A graph with `num_src` and `num_dst` vertices and no edges.
    pub fn without_edges(name: impl Into<String>, num_src: usize, num_dst: usize) -> SemanticGraph {
        let csc = Adjacency { indptr: vec![0; num_dst + 1].into(), indices: vec![].into(), eids: vec![].into() };
        let csr = transpose(&csc, num_src);
        SemanticGraph { name: name.into(), num_src, num_dst, csc, csr, ..SemanticGraph::default() }
    }

    /// Number of edges, duplicates included.
    pub fn num_edges(&self) -> usize {
        self.csc.indices.len()
    }

    /// Edges into `dst`. Panics if there is no such vertex.
    pub fn in_edges(&self, dst: usize) -> Range<usize> {
        self.csc.indptr[dst] as usize..self.csc.indptr[dst + 1] as usize
    }

    /// Sources of the edges into `dst`, ascending. Panics if there is no such vertex.
    pub fn in_neighbors(&self, dst: usize) -> &[u32] {
        &self.csc.indices[self.in_edges(dst)]
    }

    /// Positions in the CSR arrays of the edges out of `src`. Panics if there is no such vertex.
    pub fn out_range(&self, src: usize) -> Range<usize> {
        self.csr.indptr[src] as usize..self.csr.indptr[src + 1] as usize
    }

    /// Destinations of the edges out of `src`, ascending. Panics if there is no such vertex.
    pub fn out_neighbors(&self, src: usize) -> &[u32] {
        &self.csr.indices[self.out_range(src)]
    }

    /// Edges out of `src`, in the order of [`out_neighbors`](Self::out_neighbors). Panics if there is no such vertex.
    pub fn out_edges(&self, src: usize) -> &[u32] {
        &self.csr.eids[self.out_range(src)]
    }

    /// Number of edges into `dst`. Panics if there is no such vertex.
    pub fn in_degree(&self, dst: usize) -> usize {
        self.in_edges(dst).len()
    }

    /// Number of edges out of `src`. Panics if there is no such vertex.
    pub fn out_degree(&self, src: usize) -> usize {
        self.out_range(src).len()
    }

    /// Largest in-degree, 0 without vertices.
    pub fn max_in_degree(&self) -> usize {
        (0..self.num_dst).map(|v| self.in_degree(v)).max().unwrap_or(0)
    }

    /// Largest out-degree, 0 without vertices.
    pub fn max_out_degree(&self) -> usize {
        (0..self.num_src).map(|v| self.out_degree(v)).max().unwrap_or(0)
    }

    /// Destination of each edge (COO form). `[E]`
    pub fn edge_dst(&self) -> Vec<u32> {
        rows_of(&self.csc.indptr)
    }

    /// Bytes of the arrays; memory shared by both directions counts once.
    pub fn bytes(&self) -> u64 {
        let floats = |v: &Option<Vec<f32>>| v.as_ref().map_or(0, Vec::len);
        let once = |shared: bool, len: usize| if shared { 0 } else { len };
        let words = self.csc.indices.len()
            + once(self.csr.indices.is_same(&self.csc.indices), self.csr.indices.len())
            + self.csr.eids.len()
            + floats(&self.counts)
            + floats(&self.weight)
            + self.original.as_ref().map_or(0, Vec::len);
        let rows = self.csc.indptr.len() + once(self.csr.indptr.is_same(&self.csc.indptr), self.csr.indptr.len());
        8 * rows as u64 + 4 * words as u64
    }

    /// Checks every invariant stated on the fields; the message names the one that is broken.
    ///
    /// Graphs built by this crate satisfy them: this is for tests and for graphs built elsewhere.
    pub fn verify(&self) -> Result<(), String> {
        let edges = self.num_edges();
        let indptr = |what: &str, indptr: &[u64], rows: usize| {
            if indptr.len() != rows + 1 {
                return Err(format!("{what}.indptr has {} entries for {rows} rows", indptr.len()));
            }
            if indptr[0] != 0 || indptr[rows] != edges as u64 || indptr.windows(2).any(|w| w[0] > w[1]) {
                return Err(format!("{what}.indptr does not ascend from 0 to {edges}"));
            }
            Ok(())
        };
        indptr("csc", &self.csc.indptr, self.num_dst)?;
        indptr("csr", &self.csr.indptr, self.num_src)?;
        if self.csr.indices.len() != edges || self.csr.eids.len() != edges {
            return Err("csr has another number of edges than csc".into());
        }
        if self.csc.indices.iter().any(|&v| v as usize >= self.num_src) {
            return Err("a source is out of range".into());
        }
        for dst in 0..self.num_dst {
            if !self.in_neighbors(dst).is_sorted() {
                return Err(format!("in-neighbours of {dst} do not ascend"));
            }
        }
        let dst_of = self.edge_dst();
        let mut seen = vec![false; edges];
        for src in 0..self.num_src {
            if !self.out_edges(src).is_sorted_by(|a, b| a < b) {
                return Err(format!("out-edges of {src} do not ascend"));
            }
            for (&dst, &edge) in self.out_neighbors(src).iter().zip(self.out_edges(src)) {
                let e = edge as usize;
                if e >= edges || dst_of[e] != dst || self.csc.indices[e] as usize != src || seen[e] {
                    return Err(format!("csr edge {edge} ({src} -> {dst}) is not that edge of csc"));
                }
                seen[e] = true;
            }
        }
        for (what, len) in [
            ("counts", self.counts.as_ref().map(Vec::len)),
            ("weight", self.weight.as_ref().map(Vec::len)),
            ("original", self.original.as_ref().map(Vec::len)),
        ] {
            if len.is_some_and(|l| l != edges) {
                return Err(format!("{what} has another length than there are edges"));
            }
        }
        Ok(())
    }
}

/// The row of each entry, from row offsets.
pub(crate) fn rows_of(indptr: &[u64]) -> Vec<u32> {
    let mut rows = Vec::with_capacity(indptr.last().map_or(0, |&n| n as usize));
    for (row, w) in indptr.windows(2).enumerate() {
        rows.extend(std::iter::repeat_n(row as u32, (w[1] - w[0]) as usize));
    }
    rows
}

/// CSC of an edge list with ids in range, and the list position of each edge.
pub(crate) fn csc_of(num_dst: usize, src: &[u32], dst: &[u32]) -> (Adjacency, Vec<u32>) {
    let indptr = offsets(num_dst, dst);
    let [mut original, mut sources] = sorted_by_key(&indptr, &Listed { src, dst });
    let blocks = row_blocks(&indptr, scatter_blocks(dst.len()));
    let parts = cut(&mut original, &indptr, &blocks).into_iter().zip(cut(&mut sources, &indptr, &blocks));
    let parts: Vec<_> = blocks.into_iter().zip(parts).collect();
    parts.into_par_iter().for_each(|(rows, (original, sources))| {
        let (base, mut edges) = (indptr[rows.start], Vec::new());
        // Positions ascend within a row, so a stable order by source is the order by (source, position).
        for row in rows {
            let row = (indptr[row] - base) as usize..(indptr[row + 1] - base) as usize;
            let (original, sources) = (&mut original[row.clone()], &mut sources[row]);
            if !sources.is_sorted() {
                edges.clear();
                edges.extend(sources.iter().copied().zip(original.iter().copied()));
                edges.sort_unstable();
                for ((source, original), &edge) in sources.iter_mut().zip(original).zip(&edges) {
                    (*source, *original) = edge;
                }
            }
        }
    });
    (Adjacency { indptr: indptr.into(), indices: sources.into(), eids: vec![].into() }, original)
}

/// An edge list keyed by destination; the payload is (list position, source).
struct Listed<'a> {
    src: &'a [u32],
    dst: &'a [u32],
}

impl Edges for Listed<'_> {
    fn chunks(&self, num: usize) -> Vec<Range<usize>> {
        let size = self.dst.len().div_ceil(num).max(1);
        (0..self.dst.len()).step_by(size).map(|start| start..(start + size).min(self.dst.len())).collect()
    }

    #[inline(always)]
    fn visit(&self, chunk: Range<usize>, mut edge: impl FnMut(u32, [u32; 2])) {
        let first = chunk.start;
        let ends = self.dst[chunk.clone()].iter().zip(&self.src[chunk]).enumerate();
        for (i, (&dst, &src)) in ends {
            edge(dst, [(first + i) as u32, src]);
        }
    }
}

/// Row offsets of entries, from the row of each entry.
pub(crate) fn offsets(num: usize, rows: &[u32]) -> Vec<u64> {
    let mut indptr = vec![0u64; num + 1];
    let count = |rows: &[u32]| {
        let mut counts = vec![0u32; num];
        rows.iter().for_each(|&row| counts[row as usize] += 1);
        counts
    };
    let size = rows.len().div_ceil(scatter_blocks(rows.len())).max(1);
    let counts: Vec<Vec<u32>> = rows.par_chunks(size).map(count).collect();
    for counts in counts {
        indptr[1..].iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(count));
    }
    for i in 0..num {
        indptr[i + 1] += indptr[i];
    }
    indptr
}

/// Number of row blocks to process in parallel.
pub(crate) fn scatter_blocks(edges: usize) -> usize {
    if edges < PARALLEL_EDGES { 1 } else { rayon::current_num_threads().clamp(1, 32) }
}

/// Splits the rows into at most `num` consecutive non-empty blocks with about the same number of entries.
pub(crate) fn row_blocks(indptr: &[u64], num: usize) -> Vec<Range<usize>> {
    let rows = indptr.len() - 1;
    let total = indptr[rows];
    let mut blocks = Vec::with_capacity(num);
    let mut start = 0;
    for block in 1..=num as u64 {
        let upto = total / num as u64 * block + total % num as u64 * block / num as u64;
        let end = if block == num as u64 { rows } else { indptr.partition_point(|&p| p < upto).min(rows) };
        if end > start {
            blocks.push(start..end);
            start = end;
        }
    }
    blocks
}

/// Splits an array with one element per entry at the block boundaries.
pub(crate) fn cut<'a, T>(mut data: &'a mut [T], indptr: &[u64], blocks: &[Range<usize>]) -> Vec<&'a mut [T]> {
    let mut parts = Vec::with_capacity(blocks.len());
    for rows in blocks {
        let (part, rest) = data.split_at_mut((indptr[rows.end] - indptr[rows.start]) as usize);
        parts.push(part);
        data = rest;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_stay_and_rows_ascend() {
        let g = SemanticGraph::from_edges("r", 3, 4, &[2, 0, 2, 2, 0], &[1, 1, 1, 3, 0]).unwrap();
        assert_eq!(g.csc.indptr, [0, 1, 4, 4, 5]);
        assert_eq!(g.csc.indices, [0, 0, 2, 2, 2]);
        assert_eq!(g.original.as_deref(), Some(&[4, 1, 0, 2, 3][..]));
        assert_eq!(g.csr.indptr, [0, 2, 2, 5]);
        assert_eq!(g.csr.indices, [0, 1, 1, 1, 3]);
        assert_eq!(g.csr.eids, [0, 1, 2, 3, 4]);
        assert_eq!(g.edge_dst(), [0, 1, 1, 1, 3]);
        assert_eq!((g.max_in_degree(), g.max_out_degree()), (3, 3));
        g.verify().unwrap();
    }

    #[test]
    fn an_empty_graph_is_a_graph() {
        for (s, d) in [(0, 0), (3, 0), (0, 2), (2, 2)] {
            let g = SemanticGraph::from_edges("none", s, d, &[], &[]).unwrap();
            g.verify().unwrap();
            assert_eq!((g.num_edges(), g.max_in_degree()), (0, 0));
        }
    }

    #[test]
    fn limited_in_edges_keep_their_data() {
        let dst: Vec<u32> = (0..60u32).map(|edge| edge * edge % 7).collect();
        let src: Vec<u32> = (0..60).map(|edge| edge * 11 % 9).collect();
        let mut whole = SemanticGraph::from_edges("r", 9, 8, &src, &dst).unwrap();
        whole.weight = whole.original.as_ref().map(|all| all.iter().map(|&edge| edge as f32 / 2.0).collect());
        let edges = |graph: &SemanticGraph| -> Vec<(u32, u32, u32)> {
            graph.verify().unwrap();
            let (original, weight) = (graph.original.as_ref().unwrap(), graph.weight.as_ref().unwrap());
            assert!(original.iter().zip(weight).all(|(&edge, &weight)| weight == edge as f32 / 2.0));
            let ends = graph.csc.indices.iter().zip(graph.edge_dst());
            original.iter().zip(ends).map(|(&edge, (&src, dst))| (dst, src, edge)).collect()
        };
        let all = edges(&whole);
        assert_eq!(edges(&whole.clone().at_most(60)), all);
        let limited = whole.at_most(4);
        let kept = edges(&limited);
        for vertex in 0..8 {
            let of = |edges: &[(u32, u32, u32)]| edges.iter().filter(|edge| edge.0 == vertex).count();
            assert_eq!(of(&kept), of(&all).min(4));
        }
        assert!(kept.iter().all(|edge| all.contains(edge)));
        // Positions divide them, in their order.
        let positions: Vec<Vec<_>> = (0..5).map(|position| edges(&limited.clone().in_edge(position))).collect();
        assert!(positions[4].is_empty());
        let of = |vertex: u32| positions.iter().filter_map(move |edges| edges.iter().find(|edge| edge.0 == vertex));
        assert_eq!((0..8).flat_map(of).copied().collect::<Vec<_>>(), kept);
    }

    #[test]
    fn bad_edges_are_refused() {
        let build = |s: &[u32], d: &[u32]| SemanticGraph::from_edges("r", 2, 3, s, d).unwrap_err();
        assert_eq!(build(&[0], &[]), EdgeError::Lengths { sources: 1, destinations: 0 });
        assert_eq!(build(&[0, 1], &[0, 3]).to_string(), "edge 1: destination 3 is out of range (there are 3)");
        assert_eq!(build(&[2], &[0]).to_string(), "edge 0: source 2 is out of range (there are 2)");
    }

    #[test]
    fn large_graphs_do_not_depend_on_the_number_of_threads() {
        let n = 500u32;
        let edges = 3 * PARALLEL_EDGES as u32;
        let src: Vec<u32> = (0..edges).map(|i| i.wrapping_mul(2_654_435_761) >> 7).map(|h| h % n).collect();
        let dst: Vec<u32> = (0..edges).map(|i| i.wrapping_mul(40_503) % (n + 1)).collect();
        let build = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| SemanticGraph::from_edges("r", n as usize, n as usize + 1, &src, &dst).unwrap())
        };
        let one = build(1);
        one.verify().unwrap();
        assert_eq!(one, build(3));
        assert_eq!(one, build(8));
    }
}
