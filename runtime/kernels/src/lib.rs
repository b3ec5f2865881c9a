//! CPU micro-kernels: SIMD code over blocks of rows or edges. They know no plan and no model, and no switch of the
//! process: each is given a [`simd::Dispatch`].

pub mod extremes;
pub mod factored_metapath;
pub mod flat;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod heads8;
pub mod math;
pub mod prefetch;
pub mod product;
pub mod rows;
pub mod segment;
pub mod simd;
pub mod softmax;
#[cfg(target_arch = "x86_64")]
mod sparse;
pub mod subnormal;

use hgnnc_machine::KernelFeature;

use simd::Dispatch;

/// Arrays with more elements than this exceed the L2 cache.
const NOT_CACHED: usize = 1 << 20;
/// Prefetch distance in rows: with rows of 64 elements, as many cache lines as a core can have in flight.
pub const ROWS_AHEAD: usize = 10;
/// Elements of a cache line.
const LINE: usize = 16;

/// Access pattern of an operand of `width` elements per row.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// Row `i` at `i · width`.
    Each(&'a [f32]),
    /// One row broadcast to all rows.
    Same(&'a [f32]),
    /// Row `i` at `index[i] · width`.
    Picked(&'a [f32], &'a [u32]),
}

impl<'a> Rows<'a> {
    /// Whether prefetching is enabled and pays for these rows: they are gathered from an array that
    /// exceeds the L2 cache.
    #[inline(always)]
    pub fn wants_prefetch(self, dispatch: Dispatch) -> bool {
        matches!(self, Rows::Picked(data, _) if data.len() > NOT_CACHED) && dispatch.has(KernelFeature::Prefetch)
    }

    /// Prefetches row `i`, if it exists.
    #[inline(always)]
    pub fn prefetch(self, i: usize, width: usize) {
        let Rows::Picked(data, index) = self else { return };
        let Some(&row) = index.get(i) else { return };
        let row = data.as_ptr().wrapping_add(row as usize * width);
        (0..width).step_by(LINE).for_each(|at| prefetch::line(row.wrapping_add(at)));
    }

    /// Elements of row `i`.
    #[inline(always)]
    pub fn row(self, i: usize, width: usize) -> &'a [f32] {
        match self {
            Rows::Each(data) => &data[i * width..(i + 1) * width],
            Rows::Same(data) => &data[..width],
            Rows::Picked(data, index) => {
                let at = index[i] as usize * width;
                &data[at..at + width]
            }
        }
    }
}
