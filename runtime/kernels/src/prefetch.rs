//! Software prefetch.

#![allow(unsafe_code)]

/// Prefetches a cache line into L1. A hint; no effect on other targets.
#[inline(always)]
pub fn line(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which never faults; every processor of this architecture has it.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
