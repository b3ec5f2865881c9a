//! Rows of features that other ranks have: a request for the vertices of a batch, and an answer with their rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hgnnc_data::{ExecError, Result};
use hgnnc_dist::Tag;
use hgnnc_session::{HostRows, Rank, RowStore};

use super::ranks::{MAKES, failed, tell_owners};
use crate::internal;

/// Rows of vertices, of which each rank has those that it owns. All ranks read rows of it at once, in batches that they make
/// together.
pub(super) struct RemoteRows {
    rank: Rank,
    /// The first row of each rank, and the number of all.
    borders: Vec<usize>,
    own: HostRows,
    sent: Arc<AtomicU64>,
}

/// The rows that ranks read of each other.
struct Asked {
    /// By owner: positions among the rows that this rank reads.
    positions: Vec<Vec<u32>>,
    /// By reading rank: rows of this one, counted from its first.
    rows: Vec<Vec<u32>>,
}

impl RemoteRows {
    /// The rows of all ranks. `own` has those of this one, and `sent` counts bytes that are sent to others.
    pub fn new(rank: Rank, borders: Vec<usize>, own: HostRows, sent: Arc<AtomicU64>) -> Self {
        Self { rank, borders, own, sent }
    }

    /// Tells the owners the rows that this rank is to read, and is told those that others are. Counts the bytes of these
    /// messages and of the answers.
    fn ask(&self, rows: &[u32]) -> Result<Asked> {
        let (own, ranks) = (self.rank.comm.rank(), self.rank.comm.size());
        let (mut positions, mut wanted) = (vec![vec![]; ranks], vec![vec![]; ranks]);
        for (position, &row) in (0..).zip(rows) {
            let owner = self.borders[1..].partition_point(|&border| border <= row as usize);
            positions[owner].push(position);
            wanted[owner].push(row - self.borders[owner] as u32);
        }
        // The first exchange of a batch says whether one is made.
        let rows = tell_owners(&self.rank, MAKES, &wanted)?;
        let rows = rows.ok_or_else(|| internal("a rank makes no more batches, and has begun this one"))?;
        let of_others = |lists: &[Vec<u32>]| -> usize {
            lists.iter().enumerate().filter(|(rank, _)| *rank != own).map(|(_, list)| list.len()).sum()
        };
        let words = of_others(&wanted) + of_others(&rows) * self.own.width();
        self.sent.fetch_add((words * size_of::<u32>()) as u64, Relaxed);
        Ok(Asked { positions, rows })
    }

    /// Counts the bytes of reading rows without reading them.
    ///
    /// # Errors
    /// A rank that has ended.
    pub fn count(&self, rows: &[u32]) -> Result<()> {
        self.ask(rows).map(|_| ())
    }
}

impl RowStore for RemoteRows {
    fn num_rows(&self) -> usize {
        self.borders[self.borders.len() - 1]
    }

    fn width(&self) -> usize {
        self.own.width()
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        let Asked { positions, rows } = self.ask(rows)?;
        let (width, bytes) = (self.width(), size_of::<f32>() * self.width());
        let counts = |lists: &[Vec<u32>]| -> Vec<usize> { lists.iter().map(|list| list.len() * bytes).collect() };
        let (send_counts, recv_counts) = (counts(&rows), counts(&positions));
        let rows = rows.concat();
        let mut send = vec![0.0; rows.len() * width];
        self.own.gather(&rows, &mut send)?;
        let mut arrived = vec![0.0f32; into.len()];
        let sent = (bytemuck::cast_slice(&send), &send_counts[..]);
        let received = (bytemuck::cast_slice_mut(&mut arrived), &recv_counts[..]);
        self.rank.comm.alltoallv(Tag::AHEAD, sent, received).map_err(failed)?;
        for (position, row) in positions.iter().flatten().zip(arrived.chunks_exact(width.max(1))) {
            into[*position as usize * width..][..width].copy_from_slice(row);
        }
        Ok(())
    }

    fn write(&self, _rows: &[u32], _from: &[f32]) -> Result<()> {
        Err(ExecError::Unsupported("internal error: rows of features are written".into()))
    }

    fn is_host_memory(&self) -> bool {
        false
    }
}
