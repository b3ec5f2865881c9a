//! Sparse features that other ranks have: a request for the vertices of a batch, and an answer with their stored elements.

use std::ops::Range;

use hgnnc_data::buffer::SharedBuffer;
use hgnnc_data::{Adjacency, ExecError, Result};
use hgnnc_ir::batch::BatchPattern;

use super::ranks::{Share, owner};
use super::rows::stored;
use super::{MiniBatch, MiniBatchLoader};
use crate::internal;

/// A sparse matrix, of which each rank has the rows of the vertices that it owns.
pub(super) struct RemoteSparse {
    /// Its position in the mini-batch program.
    pub pattern: usize,
    /// The first row of each rank, and the number of all.
    pub borders: Vec<usize>,
    /// The inputs of the mini-batch program with elements of it, and those of this rank's rows.
    pub inputs: Vec<(usize, SharedBuffer)>,
}

/// Rows of a sparse matrix.
#[derive(Default)]
pub(super) struct SparseRows {
    /// Number of stored elements of each row.
    counts: Vec<u32>,
    /// The column of each element.
    pub columns: Vec<u32>,
    /// By input: the elements.
    pub elements: Vec<(usize, Vec<f32>)>,
}

impl SparseRows {
    /// Offsets of the rows.
    pub fn indptr(&self) -> impl Iterator<Item = u64> + '_ {
        let ends = self.counts.iter().scan(0, |end, &count| {
            *end += u64::from(count);
            Some(*end)
        });
        std::iter::once(0).chain(ends)
    }
}

/// The rows of this rank.
#[derive(Clone, Copy)]
struct OwnRows<'o> {
    rank: usize,
    pattern: &'o Adjacency,
    /// The number of the first of them.
    first: u32,
}

impl OwnRows<'_> {
    /// The stored elements of the row of a vertex.
    fn row(&self, vertex: u32) -> Range<usize> {
        stored(self.pattern, vertex - self.first)
    }
}

impl RemoteSparse {
    fn own<'o>(&self, rank: usize, pattern: &'o Adjacency) -> OwnRows<'o> {
        let all = self.borders[self.borders.len() - 1];
        // A plan has the rows of all ranks.
        let first = if pattern.indptr.len() == all + 1 { 0 } else { self.borders[rank] as u32 };
        OwnRows { rank, pattern, first }
    }

    /// The rows of vertices of this rank as a list of words: their numbers of elements, the columns, and the elements of each input.
    fn answer(&self, own: OwnRows<'_>, vertices: &[u32]) -> Vec<u32> {
        let rows = || vertices.iter().map(|&vertex| own.row(vertex));
        let mut words: Vec<u32> = rows().map(|row| row.len() as u32).collect();
        rows().for_each(|row| words.extend_from_slice(&own.pattern.indices[row]));
        for (_, elements) in &self.inputs {
            for row in rows() {
                match elements.get(row.clone()) {
                    Some(row) => words.extend(row.iter().map(|element| element.to_bits())),
                    // It counts bytes, and has no elements.
                    None => words.resize(words.len() + row.len(), 0),
                }
            }
        }
        words
    }

    /// The rows of vertices: those of this rank, and those that other owners have answered with in the order of the requests.
    /// `None` if an answer is too short.
    fn rows(&self, own: OwnRows<'_>, vertices: &[u32], answers: &[Vec<u32>]) -> Option<SparseRows> {
        let owners: Vec<usize> = vertices.iter().map(|&vertex| owner(&self.borders, vertex)).collect();
        let mut all = SparseRows::default();
        // By owner: its numbers of elements, the next of its rows, and the columns, with the elements of the inputs behind them.
        let mut parts = vec![];
        for (rank, answer) in answers.iter().enumerate() {
            let asked = if rank == own.rank { 0 } else { owners.iter().filter(|&&owner| owner == rank).count() };
            let (counts, rest) = answer.split_at_checked(asked)?;
            let elements: usize = counts.iter().map(|&count| count as usize).sum();
            (rest.len() == elements * (1 + self.inputs.len())).then_some(())?;
            parts.push((counts.iter(), 0, rest, elements));
        }
        all.elements = self.inputs.iter().map(|(input, _)| (*input, vec![])).collect();
        for (&vertex, owner) in vertices.iter().zip(owners) {
            if owner == own.rank {
                let row = own.row(vertex);
                all.counts.push(row.len() as u32);
                all.columns.extend_from_slice(&own.pattern.indices[row.clone()]);
                for ((_, elements), (_, of_own)) in all.elements.iter_mut().zip(&self.inputs) {
                    elements.extend_from_slice(of_own.get(row.clone()).unwrap_or_default());
                }
                continue;
            }
            let (counts, next, words, each) = &mut parts[owner];
            let count = *counts.next()?;
            let row = *next..*next + count as usize;
            *next = row.end;
            all.counts.push(count);
            all.columns.extend_from_slice(&words[row.clone()]);
            for (place, (_, elements)) in all.elements.iter_mut().enumerate() {
                let first = (place + 1) * *each;
                let of_row = &words[first + row.start..first + row.end];
                elements.extend(of_row.iter().map(|&word| f32::from_bits(word)));
            }
        }
        Some(all)
    }
}

impl MiniBatchLoader {
    /// Reads the rows of a batch of a matrix that ranks have divided; `None` if they have not.
    ///
    /// # Errors
    /// When another rank has ended.
    pub(super) fn remote_sparse(&self, pattern: usize, mini_batch: &MiniBatch) -> Result<Option<SparseRows>> {
        let Some(share) = &self.share else { return Ok(None) };
        let Some(sparse) = share.sparse.iter().find(|sparse| sparse.pattern == pattern) else { return Ok(None) };
        let BatchPattern { pattern, rows } = self.layout.patterns[pattern];
        let vertices = self.vertices(&mini_batch.sampled, rows);
        self.sparse_rows(share, sparse, &self.patterns[pattern.index()], vertices).map(Some)
    }

    fn sparse_rows(
        &self,
        share: &Share,
        sparse: &RemoteSparse,
        pattern: &Adjacency,
        vertices: &[u32],
    ) -> Result<SparseRows> {
        let own = sparse.own(share.rank.comm.rank(), pattern);
        let mut wanted = vec![vec![]; share.rank.comm.size()];
        let asked = vertices.iter().map(|&vertex| (owner(&sparse.borders, vertex), vertex));
        asked.filter(|(owner, _)| *owner != own.rank).for_each(|(owner, vertex)| wanted[owner].push(vertex));
        // The first exchange of a batch says whether one is made.
        let ended = || internal("a rank makes no more batches, and has begun this one");
        let requests = self.tell(share, &wanted)?.ok_or_else(ended)?;
        let answers: Vec<Vec<u32>> = requests.iter().map(|vertices| sparse.answer(own, vertices)).collect();
        let answers = self.tell(share, &answers)?.ok_or_else(ended)?;
        let short = || ExecError::Ranks("internal error: sparse rows of another process are too short".into());
        sparse.rows(own, vertices, &answers).ok_or_else(short)
    }
}
