//! Asking for memory before it is needed.
#![allow(unsafe_code)]

/// Elements of a cache line.
pub(crate) const LINE: usize = 16;

/// Brings the cache line of `values + at` nearer, if there is one and the processor can; changes nothing else.
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
