//! Copies parameters between the mini-batch engine and the full-graph engine: dense parameters when training starts and
//! ends, embedding rows per batch.

// Embedding rows are copied by several threads; see `buffer`.
#![allow(unsafe_code)]

use hgnnc_cpu::Engine;
use hgnnc_data::buffer::HostBuffer;
use hgnnc_ir::types::VertexType;
use hgnnc_loader::MiniBatch;
use rayon::prelude::*;

use super::Batches;

impl Batches {
    /// Vertex type of an embedding table's rows; `None` for dense parameters.
    pub(super) fn rows_of(&self, param: usize) -> Option<VertexType> {
        let (_, known) = self.layout.rows.iter().find(|(of, _)| of.index() == param)?;
        let of_batch = self.layout.vertices.iter().position(|other| other == known)?;
        Some(VertexType::new(of_batch))
    }

    /// Copies dense parameters and their states to the mini-batch engine, unless they are there.
    pub(super) fn load_dense_params(&mut self) {
        if !std::mem::replace(&mut self.in_step, true) {
            self.copy_dense_params(true);
            if let Some(cache) = &mut self.cache {
                cache.load(&|array| slow(&self.whole, &self.state_slabs, array));
            }
        }
    }

    /// Copies dense parameters and their states back to the full-graph engine, and writes back the cache.
    pub fn store_dense_params(&mut self) {
        if std::mem::replace(&mut self.in_step, false) {
            self.copy_dense_params(false);
            if let Some(cache) = &mut self.cache {
                cache.write_back(&|array| slow(&self.whole, &self.state_slabs, array));
            }
        }
    }

    /// Copies dense parameters and their states: to the mini-batch engine, or back.
    fn copy_dense_params(&mut self, to_step: bool) {
        let copy = |whole: &mut [f32], step: &mut [f32]| match to_step {
            true => step[..whole.len()].copy_from_slice(whole),
            false => whole.copy_from_slice(&step[..whole.len()]),
        };
        for param in 0..self.step.num_params() {
            if self.rows_of(param).is_none() {
                copy(self.whole.param(param), self.step.param(param));
            }
        }
        for index in 0..self.states.len() {
            if self.rows_of(self.states[index].0.index()).is_none() {
                copy(self.state_slabs[index].elements(), self.step.state(index));
            }
        }
    }

    /// Gathers the embedding rows and optimizer state rows of a batch into the mini-batch engine,
    /// or scatters them back.
    pub(super) fn copy_embedding_rows(&mut self, mini_batch: &MiniBatch, to_step: bool) {
        for index in 0..self.step.num_params() + self.states.len() {
            let param = match index.checked_sub(self.step.num_params()) {
                None => index,
                Some(state) => self.states[state].0.index(),
            };
            let Some(of_batch) = self.rows_of(param) else { continue };
            let vertices = self.loader.vertices(&mini_batch.sampled, of_batch);
            let whole = slow(&self.whole, &self.state_slabs, index);
            let own = match index.checked_sub(self.step.num_params()) {
                None => self.step.param_slab(index),
                Some(state) => self.step.state_slab(state),
            };
            let fast = self.cache.as_ref().and_then(|cache| cache.fast(index));
            let known = self.layout.vertices[of_batch.index()].vertex;
            let width = whole.len() / self.whole.data().num_vertices[known.index()].max(1);
            self.step.pool().install(|| {
                vertices.par_iter().enumerate().with_min_len(512).for_each(|(row, &vertex)| {
                    let kept = fast.and_then(|(slots, rows)| Some((rows, slots.slot(vertex)?)));
                    let home = kept.unwrap_or((whole, vertex as usize));
                    let (from, to) = match to_step {
                        true => (home, (own, row)),
                        false => ((own, row), home),
                    };
                    // SAFETY: nothing else uses the buffers, and the vertices of a batch are distinct, as are their
                    // slots.
                    let row_values = unsafe { from.0.read(from.1 * width, width) };
                    // SAFETY: as above.
                    unsafe { to.0.write(to.1 * width, width) }.copy_from_slice(row_values);
                });
            });
        }
    }
}

/// Array by index: full-graph parameters, then their optimizer states.
pub(super) fn slow<'s>(whole: &'s Engine, states: &'s [HostBuffer], array: usize) -> &'s HostBuffer {
    match array.checked_sub(whole.num_params()) {
        None => whole.param_slab(array),
        Some(state) => &states[state],
    }
}
