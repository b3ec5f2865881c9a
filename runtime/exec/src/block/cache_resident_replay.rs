//! Folds what kernels touch into the caches of their core, to measure what they take when they wait for no memory beyond.
//!
//! A folded block works on the first rows and the first edges of all that is stored instead of on its own, and where it reads
//! through the ends of edges it reads a few rows, again and again and in no order. Its operations, its rows and their degrees
//! stay, so it does the same work with other numbers. What it computes is worth nothing.
//!
//! Blocks of all tasks write the same rows: only one thread may run them.

use hgnnc_ir::ops::Direction;

use super::Block;
use crate::data::Topology;
use crate::plan::{Access, Base, Domain, Operand, Region, operands};

/// Tables of rows to read: the one at `i` has numbers below `2^i`.
#[derive(Debug)]
pub struct CacheResidentReplay {
    bytes: usize,
    picks: Vec<Vec<u32>>,
}

impl CacheResidentReplay {
    /// Folds what is read by index into about `bytes`, for blocks of `edges` edges at most.
    pub(crate) fn new(bytes: usize, edges: usize) -> Self {
        // As many rows of one number as there is room for.
        let most = (bytes / size_of::<f32>()).max(1).ilog2();
        let scattered = |i: usize, bits: u32| (i as u32).wrapping_mul(0x9E37_79B1).checked_shr(32 - bits).unwrap_or(0);
        let picks = (0..=most).map(|bits| (0..edges).map(|i| scattered(i, bits)).collect()).collect();
        Self { bytes, picks }
    }

    /// How many rows of this many elements there is room for: one at least.
    pub(crate) fn rows(&self, width: usize) -> usize {
        (self.bytes / (size_of::<f32>() * width.max(1))).max(1)
    }

    /// Gives a block of a region the first rows and edges, and other rows to read by index.
    pub(super) fn apply<'a>(&'a self, block: &mut Block<'a>) {
        block.first_row = 0;
        block.first_edge = 0;
        let Domain::Edges { topology, direction, ends } = block.region.domain else { return };
        let topology = block.context.data.topology(topology);
        let region = block.region;
        block.other = self.picked(region, Access::Neighbor, others(topology, direction), block.other);
        block.other_end = self.picked(region, Access::NeighborEnd, usize::MAX, block.other_end);
        block.position = self.picked(region, Access::Eid, topology.num_edges(), block.position);
        if ends {
            block.vertices = &topology.ends(direction).vertices[..block.num_rows];
        }
    }

    /// As many numbers as `real` has, below `count` and below the number of rows of all that is read by them.
    fn picked(&self, region: &Region, access: Access, count: usize, real: &[u32]) -> &[u32] {
        let read = || region.ops.iter().flat_map(|op| operands(&op.kind)).filter(|operand| operand.access == access);
        let rows = |operand: Operand| match operand.base {
            Base::Stored(buffer) => buffer.len.checked_div(operand.width).unwrap_or(usize::MAX),
            Base::Local(_) => 1,
        };
        let room = self.rows(read().map(|operand| operand.width).max().unwrap_or(1));
        let rows = read().map(rows).fold(count.min(room), usize::min).max(1);
        &self.picks[(rows.ilog2() as usize).min(self.picks.len() - 1)][..real.len()]
    }
}

/// Number of vertices at the other ends of edges.
fn others(topology: &Topology, direction: Direction) -> usize {
    match direction {
        Direction::In => topology.num_src,
        Direction::Out => topology.num_dst,
    }
}
