//! Calls of machine code.
//!
//! The compiler decides which parts of a loop are machine code ([`hgnnc_kernel_ir::loops`]) and generates it. A
//! [`NativeLoop`] is such a call with its operands bound. The other operations of a loop are executed by micro-kernels:
//! products, weighted sums of gathered rows, dropout masks.
//!
//! # Safety
//!
//! Machine code checks no bounds. It relies on these invariants:
//! - rows of tiles, blocks and results are slices that [`super`] has bounds-checked for each tile;
//! - gathered rows exist: [`Facts`](crate::facts::Facts) compares the largest index of a topology with the length of the buffer
//!   ([`is_sound`](crate::facts::is_sound));
//! - `offsets` ascend and end at the number of edges of the tile: checked by [`Facts`](crate::facts::Facts) as well;
//! - owners of edges are written by the block itself and are rows of it;
//! - widths are consistent: [`hgnnc_kernel_ir::loops::verify()`] checks each function and call;
//! - results do not alias operands, because the plan places the outputs of a step in ranges of their own, and a
//!   schedule places live locals apart, with the operations of a call counted as one moment. Only updates of parameters
//!   and states may alias the old values: the compiler makes calls that read each element before it is overwritten.

// Generated loops take slice addresses; see the module docs.
#![allow(unsafe_code)]

use hgnnc_data::InputData;
use hgnnc_executable::cpu::MachineCode;
use hgnnc_kernel_ir::loops::Access;
use hgnnc_kernels::Rows;

use super::{Block, begin, partial_of};
use crate::plan::{Base, FusedLoop, IndexArray, LoopResult, LoopStep, NativeLoop, Operand};
use crate::schedule::Schedules;

/// Argument tables of calls, reused between them.
#[derive(Debug)]
pub struct Tables {
    arrays: Vec<*const f32>,
    indices: Vec<*const u32>,
    results: Vec<*mut f32>,
}

impl Tables {
    /// Tables large enough for the calls of these schedules.
    pub(crate) fn new(schedules: &[Schedules]) -> Self {
        let loops = schedules.iter().flatten().flatten().flatten().flat_map(|schedule| &schedule.loops);
        let (mut arrays, mut indices, mut results) = (0, 0, 0);
        for part in loops.flat_map(FusedLoop::calls) {
            arrays = arrays.max(part.arrays.len());
            indices = indices.max(part.indices.len());
            results = results.max(part.results.len());
        }
        let (arrays, indices) = (Vec::with_capacity(arrays), Vec::with_capacity(indices));
        Self { arrays, indices, results: Vec::with_capacity(results) }
    }
}

// SAFETY: the addresses are used only during the call that fills the tables.
unsafe impl Send for Tables {}

impl<'a> Block<'a> {
    /// Runs a loop with machine code over all tiles of the block.
    pub(crate) fn run_calls(
        mut self,
        fused: &FusedLoop,
        task: usize,
        tiles: &mut [Vec<f32>; 2],
        clip: &mut [u32],
        tables: &mut Tables,
    ) {
        let all = self.count(fused.level);
        // Reductions over edges accumulate into their rows.
        for op in fused.ops().map(|op| &self.region.ops[op]).filter(|op| op.op.reduces_edges()) {
            begin(op, self.output(op.out, 0, self.num_rows));
        }
        if all == 0 {
            return;
        }
        let Some(tile) = fused.tile.filter(|&tile| all > tile) else {
            self.items = all;
            self.run_tile(fused, 0..self.num_rows, self.offsets, task, tiles, tables);
            return;
        };
        let mut first_row = 0;
        for start in (0..all).step_by(tile) {
            self.start = start;
            self.items = tile.min(all - start);
            let rows = self.owners(fused.level, &mut first_row, clip);
            let offsets = &clip[..if rows.is_empty() { 0 } else { rows.len() + 1 }];
            self.run_tile(fused, rows, offsets, task, tiles, tables);
        }
    }

    /// Runs a loop for the current tile, whose edges belong to `rows` at `offsets`.
    fn run_tile(
        &self,
        fused: &FusedLoop,
        rows: std::ops::Range<usize>,
        offsets: &[u32],
        task: usize,
        tiles: &mut [Vec<f32>; 2],
        tables: &mut Tables,
    ) {
        for step in &fused.steps {
            match step {
                LoopStep::Op(op) => {
                    let op = &self.region.ops[*op];
                    if op.op.reduces_edges() {
                        self.reduce_tile(op, rows.clone(), offsets);
                    } else {
                        self.execute(op, task, tiles);
                    }
                }
                LoopStep::Native(part) => {
                    self.call(self.context.code, part, rows.clone(), offsets, task, tables);
                }
            }
        }
    }

    /// Calls a native loop for the current tile.
    fn call(
        &self,
        code: &MachineCode,
        part: &NativeLoop,
        rows: std::ops::Range<usize>,
        offsets: &[u32],
        task: usize,
        tables: &mut Tables,
    ) {
        let Tables { arrays, indices, results } = tables;
        arrays.clear();
        indices.clear();
        results.clear();
        let segments = part.segments;
        results.extend(part.results.iter().map(|target| match *target {
            LoopResult::Tile(local) => self.output(local, self.start, self.items).as_mut_ptr(),
            LoopResult::Owners(local) => self.output(local, rows.start, rows.len()).as_mut_ptr(),
            LoopResult::Partial(partial) => {
                let partial = &self.region.partials[partial as usize];
                partial_of(self.context, partial.offset + task * partial.width, partial.width).as_mut_ptr()
            }
        }));
        arrays.extend(part.arrays.iter().enumerate().map(|(array, operand)| {
            // Uses one address for both: no shared slice of the written rows exists.
            if let Some((_, result)) = part.replaced.iter().find(|(replaced, _)| *replaced == array) {
                return results[*result].cast_const();
            }
            if operand.access != Access::Owner {
                return match self.operand(operand, part.level) {
                    Rows::Each(data) | Rows::Same(data) | Rows::Picked(data, _) => data.as_ptr(),
                };
            }
            let own = self.own_rows(operand);
            // Owners are relative to the block's first row, or to the first row of the tile.
            if segments { own[rows.start * operand.width..].as_ptr() } else { own.as_ptr() }
        }));
        let tile = self.start..self.start + self.items;
        indices.extend(part.indices.iter().map(|index| match *index {
            IndexArray::Picked(access) => self.picks(access)[tile.clone()].as_ptr(),
            IndexArray::Labels(input) => match &self.context.data.inputs[input] {
                // Negative labels exceed every class when read as `u32`.
                InputData::Classes(labels) => {
                    labels[self.first_row + self.start..][..self.items].as_ptr().cast::<u32>()
                }
                _ => unreachable!("a part reads labels where there are some"),
            },
        }));
        let count = if segments { rows.len() } else { self.items };
        if segments && offsets.len() != count + 1 {
            return;
        }
        let entry = code.entries[part.function];
        // SAFETY: all rows of the tile exist, because they were sliced above; `Facts` has checked gathered rows and
        // that offsets ascend to the number of edges of the tile. Results are disjoint, and alias operands only if
        // these are read before: see the module docs.
        unsafe { entry(arrays.as_ptr(), indices.as_ptr(), results.as_ptr(), offsets.as_ptr(), count) };
    }

    /// Row index of each item of the block.
    fn picks(&self, access: Access) -> &'a [u32] {
        match access {
            Access::Owner => self.own,
            Access::Neighbor => self.other,
            Access::Vertex => self.vertices,
            Access::OwnerVertex | Access::OwnerEnd => self.own_end,
            Access::NeighborEnd => self.other_end,
            Access::Eid => self.position,
            Access::DenseCell => self.full,
            Access::Each | Access::Same | Access::End(..) => unreachable!("no index array"),
        }
    }

    /// Rows of the block of an operand at the owner rows of edges.
    fn own_rows(&self, operand: &Operand) -> &'a [f32] {
        let Operand { base, width, .. } = *operand;
        match base {
            Base::Local(local) => self.local(local, 0, self.num_rows * width, width),
            Base::Stored(stored) => {
                let buffer = self.range(stored);
                let start = buffer.offset + self.first_row * width;
                // Stored operands do not alias outputs of this step.
                self.context.slabs.read(buffer.slab, start, self.num_rows * width)
            }
            Base::Labels(_) => unreachable!("labels are no rows of numbers"),
        }
    }
}
