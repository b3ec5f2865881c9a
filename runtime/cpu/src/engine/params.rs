//! Parameters and optimizer states. Rows at the interface are in the order of the dataset.

use std::ops::Range;

use hgnnc_data::stacks::ParamPlace;
use hgnnc_data::tables::extent;
use hgnnc_data::{Initializer, copy_rows};
use hgnnc_graph::order::Order;
use hgnnc_ir::dataflow::Dataflow;
use rayon::prelude::*;

use super::Engine;
use crate::slabs::Slab;

impl Engine {
    /// Vertex order of an embedding table's rows, if it differs from the dataset's.
    fn row_order(&self, param: usize) -> Option<&Order> {
        self.data.orders.of((*self.row_types.get(param)?)?)
    }

    /// Whether the vertex rows of a parameter, all of them or a range, are in the order of the dataset.
    pub(crate) fn rows_are_in_order(&self, param: usize) -> bool {
        self.row_order(param).is_none_or(|order| (0..).zip(&order.rank).all(|(row, &rank)| row == rank))
    }

    /// Copies a parameter, with vertex rows in the order of the dataset.
    pub fn read_param(&self, index: usize, into: &mut [f32]) {
        let ParamPlace { home, offset, len } = self.places[index];
        self.read_rows(index, Slab::Param(home.index()), offset..offset + len, into);
    }

    /// Copies an optimizer state, with vertex rows in the order of the dataset.
    pub fn read_state(&self, index: usize, into: &mut [f32]) {
        let slab = Slab::State(index);
        self.read_rows(self.states[index].0.index(), slab, 0..self.slabs[slab].len(), into);
    }

    fn read_rows(&self, param: usize, slab: Slab, range: Range<usize>, into: &mut [f32]) {
        let from = self.slabs.read(slab, range);
        match self.row_order(param) {
            Some(order) => self.pool.install(|| copy_rows(from, &order.rank, into)),
            None => into.copy_from_slice(from),
        }
    }

    /// Overwrites a parameter; vertex rows are in the order of the dataset.
    pub fn set_param(&mut self, index: usize, numbers: &[f32]) {
        let ParamPlace { home, offset, len } = self.places[index];
        self.set_rows(index, Slab::Param(home.index()), offset..offset + len, numbers);
    }

    /// Overwrites an optimizer state; the rows of several processes are those of this one.
    pub fn set_state(&mut self, index: usize, numbers: &[f32]) {
        let slab = Slab::State(index);
        self.set_own_rows(self.states[index].0.index(), slab, 0..self.slabs[slab].len(), numbers);
    }

    /// Overwrites a parameter; the rows of several processes are those of this one.
    pub fn set_own_param(&mut self, index: usize, numbers: &[f32]) {
        let ParamPlace { home, offset, len } = self.places[index];
        self.set_own_rows(index, Slab::Param(home.index()), offset..offset + len, numbers);
    }

    fn set_own_rows(&mut self, param: usize, slab: Slab, range: Range<usize>, numbers: &[f32]) {
        match self.rows_are_in_order(param) {
            true => self.slabs[slab].elements()[range].copy_from_slice(numbers),
            false => self.set_rows(param, slab, range, numbers),
        }
    }

    fn set_rows(&mut self, param: usize, slab: Slab, range: Range<usize>, numbers: &[f32]) {
        let order = self.row_types.get(param).copied().flatten().and_then(|vertex| self.data.orders.of(vertex));
        let to = &mut self.slabs[slab].elements()[range];
        match order {
            Some(order) => self.pool.install(|| copy_rows(numbers, &order.original, to)),
            None => to.copy_from_slice(numbers),
        }
    }

    /// Initializes all parameters, depending only on the seed and their names.
    pub fn init_params(&mut self, tables: &Dataflow, seed: u64) {
        for (index, decl) in tables.params.iter().enumerate().take(self.num_params) {
            let draw = Initializer::of(decl, |dim| extent(&self.data, dim));
            let order = self.row_order(index).cloned();
            let ParamPlace { home, offset, len } = self.places[index];
            let numbers = &mut self.slabs[Slab::Param(home.index())].elements()[offset..offset + len];
            let Some(order) = order else {
                self.pool.install(|| draw.fill_all(seed, numbers));
                continue;
            };
            let width = (len / order.original.len().max(1)).max(1);
            let rows = numbers.par_chunks_exact_mut(width).zip(&order.original);
            let fill = |(numbers, &row): (&mut [f32], &u32)| draw.fill(seed, row as usize * width, numbers);
            self.pool.install(|| rows.for_each(fill));
        }
    }
}
