//! Software prefetch.
#![allow(unsafe_code)]

/// Elements of a cache line (64 bytes of `u32`).
pub(crate) const LINE: usize = 16;

/// Prefetches the cache line of `values + at` into L1. A hint; no effect on other targets. The address may be invalid.
#[inline(always)]
pub(crate) fn prefetch(values: *const u32, at: usize) {
    let place = values.wrapping_add(at);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it faults at no address, and SSE is part of x86-64.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch is a hint: it faults at no address.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{place}]", place = in(reg) place, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}
