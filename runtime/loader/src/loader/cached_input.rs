//! Inputs with cached rows.

use std::sync::Arc;

use hgnnc_cache::Slots;
use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_ir::types::VertexType;

/// Cached rows of an input.
pub struct CachedInput {
    /// Slot of each cached vertex.
    pub slots: Arc<Slots>,
    /// Rows by slot.
    pub rows: SharedBuffer,
    /// Elements of a row.
    pub width: usize,
    /// Vertex type, as numbered in the mini-batch program.
    pub vertex: VertexType,
}

impl CachedInput {
    /// Gathers the rows of the batch's vertices, in order, from fast or slow memory. Returns the number of elements.
    pub fn gather(&self, slow: &SharedBuffer, vertices: &[u32], into: &mut HostBuffer) -> usize {
        let width = self.width;
        into.grow(vertices.len() * width);
        for (to, &vertex) in into.elements().chunks_exact_mut(width.max(1)).zip(vertices) {
            to.copy_from_slice(match self.slots.slot(vertex) {
                Some(slot) => &self.rows[slot * width..][..width],
                None => &slow[vertex as usize * width..][..width],
            });
        }
        vertices.len() * width
    }
}

// Buffers of tests are frozen; see `buffer`.
#[cfg(test)]
mod tests {
    use super::*;

    /// Three rows of two elements; only the row of vertex 2 is cached.
    fn slots() -> Arc<Slots> {
        Arc::new(Slots::new(3, vec![2]))
    }

    fn frozen(numbers: &[f32]) -> SharedBuffer {
        HostBuffer::of(numbers).freeze()
    }

    #[test]
    fn rows_that_are_kept_are_read_from_the_fast_memory_alone() {
        let fast = CachedInput { slots: slots(), rows: frozen(&[50.0, 51.0]), width: 2, vertex: VertexType::new(0) };
        // A read of the slow row of vertex 2 would give NaN.
        let slow = frozen(&[10.0, 11.0, 20.0, 21.0, f32::NAN, f32::NAN]);
        let mut into = HostBuffer::zeros(0);
        assert_eq!(fast.gather(&slow, &[1, 2, 0], &mut into), 6);
        assert_eq!(&into.elements()[..6], [20.0, 21.0, 50.0, 51.0, 10.0, 11.0]);
    }
}
