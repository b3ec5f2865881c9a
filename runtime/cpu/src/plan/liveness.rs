//! Liveness of the local values of a region, and what they need in a block.

use hgnnc_data::BoundData;
use hgnnc_kernel_ir::kernel::place::{Lifetime, sum_alive};

use super::{Base, Domain, FusedLoop, Level, LoopStep, Place, Region};

/// Liveness of the locals of a region.
pub struct Liveness {
    /// Per local: whether it is used within one loop only, and its first and last moment. `None` for locals in
    /// registers and those of other schedules.
    pub lives: Vec<Option<(bool, usize, usize)>>,
    /// Last moment of each loop.
    pub last: Vec<usize>,
}

impl Liveness {
    /// Liveness while these loops run in order.
    pub fn of(region: &Region, loops: &[FusedLoop]) -> Self {
        let mut loop_of = vec![0; region.ops.len()];
        let mut position = vec![0; region.ops.len()];
        let (mut first, mut last) = (vec![], vec![]);
        let mut at = 0;
        for (index, fused) in loops.iter().enumerate() {
            first.push(at);
            // The operations of a call share one moment.
            for step in &fused.steps {
                for &op in step.ops() {
                    loop_of[op] = index;
                    position[op] = at;
                }
                at += 1;
            }
            last.push(at - 1);
        }
        let mut ops: Vec<usize> = loops.iter().flat_map(FusedLoop::ops).collect();
        ops.sort_unstable();
        let mut lives: Vec<Option<(bool, usize, usize)>> = vec![None; region.locals.len()];
        for (op, block_op) in ops.iter().map(|&op| (op, &region.ops[op])) {
            if !block_op.op.is_total() {
                let tiled = loops[loop_of[op]].tile.is_some() && !block_op.op.reduces_edges();
                lives[block_op.out as usize] = Some((tiled, op, op));
            }
        }
        // Values in registers need no slot.
        let calls = loops.iter().flat_map(FusedLoop::calls);
        calls.flat_map(|part| part.internal(region)).for_each(|local| lives[local as usize] = None);
        let mut ends: Vec<Vec<usize>> = vec![vec![]; region.locals.len()];
        for (op, block_op) in ops.iter().map(|&op| (op, &region.ops[op])) {
            for operand in block_op.op.operands() {
                if let Base::Local(local) = operand.base {
                    ends[local as usize].push(op);
                }
            }
        }
        for (live, users) in lives.iter_mut().zip(&ends) {
            let Some((tiled, producer, end)) = live else { continue };
            *tiled &= users.iter().all(|&user| loop_of[user] == loop_of[*producer]);
            if *tiled {
                *end = users.iter().map(|&u| position[u]).max().unwrap_or(0).max(position[*producer]);
                *producer = position[*producer];
            } else {
                let fused = users.iter().map(|&u| loop_of[u]).max().unwrap_or(0).max(loop_of[*producer]);
                *end = last[fused];
                *producer = first[loop_of[*producer]];
            }
        }
        Self { lives, last }
    }
}

/// Peak live elements per row and per edge of a block, for locals that outlive a tile, when all groups of loops run
/// without machine code.
pub fn block_widths(region: &Region) -> [usize; 2] {
    // Values of calls are in registers, or exist for a tile.
    let plain = |fused: &FusedLoop| FusedLoop {
        level: fused.level,
        tile: fused.tile.or(fused.calls().next().map(|_| 1)),
        steps: fused.ops().map(LoopStep::Op).collect(),
    };
    let of_group = |group: &Vec<FusedLoop>| {
        let Liveness { lives, last, .. } = Liveness::of(region, &group.iter().map(plain).collect::<Vec<_>>());
        let moments = last.last().map_or(0, |last| last + 1);
        [Level::Row, Level::Edge].map(|level| {
            let of_blocks = lives.iter().zip(&region.locals).filter_map(|(live, local)| match (live, local.place) {
                (Some((false, start, end)), Place::Scratch) if local.level == level => {
                    Some(Lifetime { start: *start, end: *end, len: local.width })
                }
                _ => None,
            });
            sum_alive(of_blocks, moments).into_iter().max().unwrap_or(0)
        })
    };
    let each = region.groups.iter().map(of_group);
    each.fold([0, 0], |[rows, edges], [r, e]| [rows.max(r), edges.max(e)])
}

/// Maximum rows and edges of a block.
pub fn block_extents(region: &Region, data: &BoundData) -> (usize, usize) {
    let rows = region.unsplit_blocks().map(|rows| rows.len()).max().unwrap_or(0);
    let edges = match region.domain {
        Domain::Rows(_) => 0,
        Domain::Edges { topology, direction, ends } => {
            let indptr = data.topology(topology).indptr(direction, ends);
            region.unsplit_blocks().map(|rows| (indptr[rows.end] - indptr[rows.start]) as usize).max().unwrap_or(0)
        }
    };
    (rows, edges)
}
