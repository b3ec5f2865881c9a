//! Rows of features, and of values of edges, that other ranks have: a request for those of a batch, and an answer with them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hgnnc_data::{ExecError, Result};
use hgnnc_dist::Tag;
use hgnnc_session::{HostRows, Rank, RowStore};

use super::ranks::{MAKES, failed, owner, tell_owners};
use crate::internal;

/// Of a network of 10 Gbit/s, the default of plans.
const NS_PER_BYTE: f64 = 0.8;

/// Rows of vertices or edges, of which each rank has those that it owns. Reading them is an exchange among all ranks, which make each
/// batch together.
pub(super) struct RemoteRows {
    rank: Rank,
    /// The first row of each rank, and the number of all.
    borders: Vec<usize>,
    own: HostRows,
    sent: Arc<AtomicU64>,
}

/// The rows that ranks read of each other.
struct Asked {
    /// By owner: places of the rows that this rank reads, as the caller has numbered them. None of its own.
    places: Vec<Vec<u32>>,
    /// By reading rank: rows of this one, counted from its first.
    rows: Vec<Vec<u32>>,
}

impl RemoteRows {
    /// The rows of all ranks. `own` has those of this one, and `sent` counts bytes that are sent to others.
    pub fn new(rank: Rank, borders: Vec<usize>, own: HostRows, sent: Arc<AtomicU64>) -> Self {
        Self { rank, borders, own, sent }
    }

    /// Tells the owners the rows that this rank is to read, and is told those that others are. Counts the bytes of these
    /// messages and of the answers. `near` is called for each row of this rank, counted from its first, and its place.
    fn ask(&self, rows: impl Iterator<Item = (u32, u32)>, mut near: impl FnMut(u32, u32)) -> Result<Asked> {
        let (own, ranks) = (self.rank.comm.rank(), self.rank.comm.size());
        let (mut places, mut wanted) = (vec![vec![]; ranks], vec![vec![]; ranks]);
        for (row, place) in rows {
            let owner = owner(&self.borders, row);
            let of_owner = row - self.borders[owner] as u32;
            if owner == own {
                near(of_owner, place);
            } else {
                places[owner].push(place);
                wanted[owner].push(of_owner);
            }
        }
        // The first exchange of a batch says whether one is made.
        let rows = tell_owners(&self.rank, MAKES, &wanted)?;
        let rows = rows.ok_or_else(|| internal("a rank makes no more batches, and has begun this one"))?;
        let all = |lists: &[Vec<u32>]| -> usize { lists.iter().map(Vec::len).sum() };
        let words = all(&wanted) + all(&rows) * self.own.width();
        self.sent.fetch_add((words * size_of::<u32>()) as u64, Relaxed);
        Ok(Asked { places, rows })
    }

    /// Reads rows, each to its place of `into`.
    fn read_each(&self, rows: impl Iterator<Item = (u32, u32)>, into: &mut [f32]) -> Result<()> {
        let width = self.own.width();
        let mut near = Ok(());
        let Asked { places, rows } = self.ask(rows, |row, place| {
            let read = self.own.read(&[row], &mut into[place as usize * width..][..width]);
            near = std::mem::replace(&mut near, Ok(())).and(read);
        })?;
        near?;
        let counts = |lists: &[Vec<u32>]| -> Vec<usize> {
            lists.iter().map(|list| list.len() * width * size_of::<f32>()).collect()
        };
        let (send_counts, recv_counts) = (counts(&rows), counts(&places));
        let (rows, places) = (rows.concat(), places.concat());
        let (mut send, mut arrived) = (vec![0.0f32; rows.len() * width], vec![0.0f32; places.len() * width]);
        self.own.read(&rows, &mut send)?;
        let sent = (bytemuck::cast_slice(&send), &send_counts[..]);
        let received = (bytemuck::cast_slice_mut(&mut arrived), &recv_counts[..]);
        self.rank.comm.alltoallv(Tag::AHEAD, sent, received).map_err(failed)?;
        for (&place, row) in places.iter().zip(arrived.chunks_exact(width.max(1))) {
            into[place as usize * width..][..width].copy_from_slice(row);
        }
        Ok(())
    }

    /// Counts the bytes of reading rows without reading them.
    ///
    /// # Errors
    /// When another rank has ended, so that its request does not come.
    pub fn count(&self, rows: &[u32]) -> Result<()> {
        self.ask(rows.iter().copied().zip(0..), |_, _| {}).map(|_| ())
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
        self.read_each(rows.iter().copied().zip(0..), into)
    }

    fn read_to(&self, rows: &[u32], places: &[u32], into: &mut [f32]) -> Result<()> {
        self.read_each(rows.iter().copied().zip(places.iter().copied()), into)
    }

    fn write(&self, _rows: &[u32], _from: &[f32]) -> Result<()> {
        Err(ExecError::Unsupported("internal error: rows of an input are written".into()))
    }

    fn is_host_memory(&self) -> bool {
        false
    }

    fn own(&self) -> Range<usize> {
        let rank = self.rank.comm.rank();
        self.borders[rank]..self.borders[rank + 1]
    }

    fn assumed_ns(&self) -> Option<f64> {
        // The number of a row, and the row.
        Some((size_of::<u32>() * (1 + self.width())) as f64 * NS_PER_BYTE)
    }
}
