//! Software prefetch of elements of arrays.

/// Elements of a cache line (64 bytes of `u32`).
pub(crate) const LINE: usize = 16;

/// Prefetches the cache line of `values + at` into L1. A hint; the address may be invalid.
#[inline(always)]
pub(crate) fn prefetch(values: *const u32, at: usize) {
    hgnnc_kernels::prefetch::line(values.wrapping_add(at));
}
