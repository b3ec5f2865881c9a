//! Replays blocks on a cache-resident working set, to measure kernels without memory stalls (for the roofline).
//!
//! A replayed block accesses the first rows and edges of all stored values instead of its own, and gathers from a few
//! rows in scattered order. Its operations, rows and degrees are unchanged, so it does the same work on other values.
//! The results are garbage.
//!
//! Blocks of all tasks write the same rows, so only one thread may run them.

use hgnnc_data::Topology;
use hgnnc_data::buffer::BufferRange;
use hgnnc_ir::ops::Direction;

use super::Block;
use crate::plan::{Access, Base, Domain, Operand, Region};

/// Index tables for gathers: table `i` has scattered indices below `2^i`.
#[derive(Debug)]
pub struct CacheResidentReplay {
    bytes: usize,
    picks: Vec<Vec<u32>>,
}

impl CacheResidentReplay {
    /// Limits gathered rows to about `bytes`, for blocks of at most `edges` edges.
    pub(crate) fn new(bytes: usize, edges: usize) -> Self {
        // As many rows of one element as fit.
        let most = (bytes / size_of::<f32>()).max(1).ilog2();
        let scattered = |i: usize, bits: u32| (i as u32).wrapping_mul(0x9E37_79B1).checked_shr(32 - bits).unwrap_or(0);
        let picks = (0..=most).map(|bits| (0..edges).map(|i| scattered(i, bits)).collect()).collect();
        Self { bytes, picks }
    }

    /// Number of rows of `width` elements that fit, at least one.
    pub(crate) fn rows(&self, width: usize) -> usize {
        (self.bytes / (size_of::<f32>() * width.max(1))).max(1)
    }

    /// Redirects a block to the first rows and edges, and its gathers to few rows.
    pub(super) fn apply<'a>(&'a self, block: &mut Block<'a>) {
        block.first_row = 0;
        block.first_edge = 0;
        let Domain::Edges { topology, direction, ends } = block.region.domain else { return };
        let topology = block.context.data.topology(topology);
        let region = (block.region, block.context.ranges);
        block.other = self.picked(region, Access::Neighbor, others(topology, direction), block.other);
        block.other_end = self.picked(region, Access::NeighborEnd, usize::MAX, block.other_end);
        block.position = self.picked(region, Access::Eid, topology.num_edges(), block.position);
        if ends {
            block.vertices = &topology.endpoints(direction).vertices[..block.num_rows];
        }
    }

    /// Replacement for the index array `real`, below `count` and within all arrays that it indexes.
    fn picked(
        &self,
        (region, ranges): (&Region, &[BufferRange]),
        access: Access,
        count: usize,
        real: &[u32],
    ) -> &[u32] {
        let read = || region.ops.iter().flat_map(|op| op.op.operands()).filter(|operand| operand.access == access);
        let rows = |operand: Operand| match operand.base {
            Base::Stored(stored) => stored.range(ranges).len.checked_div(operand.width).unwrap_or(usize::MAX),
            Base::Local(_) => 1,
            Base::Labels(_) => usize::MAX,
        };
        let room = self.rows(read().map(|operand| operand.width).max().unwrap_or(1));
        let rows = read().map(rows).fold(count.min(room), usize::min).max(1);
        &self.picks[(rows.ilog2() as usize).min(self.picks.len() - 1)][..real.len()]
    }
}

/// Number of vertices on the neighbour side of a direction.
fn others(topology: &Topology, direction: Direction) -> usize {
    match direction {
        Direction::In => topology.num_src,
        Direction::Out => topology.num_dst,
    }
}
