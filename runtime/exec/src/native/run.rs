//! Executes the units of a chain.

// Generated loops are called with addresses of slices; see the module.
#![allow(unsafe_code)]

use hgnnc_native::{Arguments, Code};

use super::{Index, Part, Target, Unit, Units};
use crate::block::{Block, begin, partial_of};
use crate::data::InputData;
use crate::kernels::Rows;
use crate::plan::{Access, Base, Operand, reduces_edges};
use crate::routine::{Chain, Routines};

/// Tables of the arguments of calls, which have room for those of each part.
#[derive(Debug)]
pub struct Tables {
    arrays: Vec<*const f32>,
    indices: Vec<*const u32>,
    results: Vec<*mut f32>,
}

impl Tables {
    /// Room for the calls of these routines.
    pub(crate) fn new(routines: &[Routines]) -> Self {
        let units = routines.iter().flatten().flatten().flatten().flat_map(|routine| routine.units.iter().flatten());
        let (mut arrays, mut indices, mut results) = (0, 0, 0);
        for unit in units.flat_map(|units| &units.units) {
            if let Unit::Part(part) = unit {
                arrays = arrays.max(part.arrays.len());
                indices = indices.max(part.indices.len());
                results = results.max(part.results.len());
            }
        }
        let (arrays, indices) = (Vec::with_capacity(arrays), Vec::with_capacity(indices));
        Self { arrays, indices, results: Vec::with_capacity(results) }
    }
}

// SAFETY: the addresses are used during the call that fills the tables only.
unsafe impl Send for Tables {}

impl<'a> Block<'a> {
    /// Runs the units of a chain for all tiles of the block.
    pub(crate) fn run_units(
        mut self,
        chain: &Chain,
        units: &Units,
        task: usize,
        tiles: &mut [Vec<f32>; 2],
        clip: &mut [u32],
        tables: &mut Tables,
    ) {
        let all = self.count(chain.level);
        // Reductions over edges add to their rows.
        for op in chain.ops.iter().map(|&op| &self.region.ops[op]).filter(|op| reduces_edges(&op.kind)) {
            begin(op, self.output(op.out, 0, self.num_rows));
        }
        if all == 0 {
            return;
        }
        if units.whole || all <= chain.tile {
            self.items = all;
            self.run_tile(units, 0..self.num_rows, self.offsets, task, tiles, tables);
            return;
        }
        let mut first_row = 0;
        for start in (0..all).step_by(chain.tile) {
            self.start = start;
            self.items = chain.tile.min(all - start);
            let rows = self.owners(chain.level, &mut first_row, clip);
            let offsets = &clip[..if rows.is_empty() { 0 } else { rows.len() + 1 }];
            self.run_tile(units, rows, offsets, task, tiles, tables);
        }
    }

    /// Runs the units for the tile at hand, whose edges belong to `rows` at `offsets`.
    fn run_tile(
        &self,
        units: &Units,
        rows: std::ops::Range<usize>,
        offsets: &[u32],
        task: usize,
        tiles: &mut [Vec<f32>; 2],
        tables: &mut Tables,
    ) {
        for unit in &units.units {
            match unit {
                Unit::Op(op) => {
                    let op = &self.region.ops[*op];
                    if reduces_edges(&op.kind) {
                        self.reduce_tile(op, rows.clone(), offsets);
                    } else {
                        self.execute(op, task, tiles);
                    }
                }
                Unit::Part(part) => {
                    self.call(self.context.code, part, rows.clone(), offsets, task, tables);
                }
            }
        }
    }

    /// Calls a part for the tile at hand.
    fn call(
        &self,
        code: &Code,
        part: &Part,
        rows: std::ops::Range<usize>,
        offsets: &[u32],
        task: usize,
        tables: &mut Tables,
    ) {
        let Tables { arrays, indices, results } = tables;
        arrays.clear();
        indices.clear();
        results.clear();
        let segments = part.program.shape == hgnnc_native::Shape::Segments;
        results.extend(part.results.iter().map(|target| match *target {
            Target::Tile(local) => self.output(local, self.start, self.items).as_mut_ptr(),
            Target::Owners(local) => self.output(local, rows.start, rows.len()).as_mut_ptr(),
            Target::Partial(partial) => {
                let partial = &self.region.partials[partial as usize];
                partial_of(self.context, partial.offset + task * partial.width, partial.width).as_mut_ptr()
            }
        }));
        arrays.extend(part.arrays.iter().enumerate().map(|(array, operand)| {
            // One address for both: no slice of what is written is made.
            if let Some((_, result)) = part.replaced.iter().find(|(replaced, _)| *replaced == array) {
                return results[*result].cast_const();
            }
            if operand.access != Access::Own {
                return match self.operand(operand, part.level) {
                    Rows::Each(data) | Rows::Same(data) | Rows::Picked(data, _) => data.as_ptr(),
                };
            }
            let own = self.own_rows(operand);
            // Owners are counted from the block's first row, or from the first row of the tile.
            if segments { own[rows.start * operand.width..].as_ptr() } else { own.as_ptr() }
        }));
        let tile = self.start..self.start + self.items;
        indices.extend(part.indices.iter().map(|index| match *index {
            Index::Picked(access) => self.picks(access)[tile.clone()].as_ptr(),
            Index::Labels(input) => match &self.context.data.inputs[input] {
                // Labels below 0 are no class, seen as u32 either.
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
        let arguments = Arguments { arrays, indices, results, offsets, count };
        // SAFETY: all rows of the tile exist, because they were cut as slices above; the rows that are picked, and that
        // offsets ascend to the number of edges of the tile, `Facts` has made sure of. Results are disjoint, and overlap
        // operands only where these are read before: see the module.
        unsafe { code.call(part.function, arguments) };
    }

    /// For each item of the block the row that it reads.
    fn picks(&self, access: Access) -> &'a [u32] {
        match access {
            Access::Own => self.own,
            Access::Other => self.other,
            Access::Vertex => self.vertices,
            Access::OwnVertex | Access::OwnEnd => self.own_end,
            Access::OtherEnd => self.other_end,
            Access::Position => self.position,
            Access::Full => self.full,
            Access::Each | Access::Same => unreachable!("nothing is picked"),
        }
    }

    /// The rows of the block of an operand of the rows that own edges.
    fn own_rows(&self, operand: &Operand) -> &'a [f32] {
        let Operand { base, width, .. } = *operand;
        match base {
            Base::Local(local) => self.local(local, 0, self.num_rows * width, width),
            Base::Stored(buffer) => {
                let start = buffer.offset + self.first_row * width;
                // SAFETY: stored operands are no outputs of this step.
                unsafe { self.context.slabs[buffer.slab as usize].read(start, self.num_rows * width) }
            }
        }
    }
}
