//! Chooses the widest vector instructions of the machine at run time.
//!
//! A kernel body is an `#[inline(always)]` function over `const FMA: bool`; [`multiversion!`] compiles it
//! once per instruction set and picks a version at each call, which is one load of a static. Kernels are
//! called once per block of rows or edges, so the choice costs nothing that can be measured.

use std::sync::atomic::{AtomicU8, Ordering};

/// Instruction sets that kernels are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// What every processor of the target has (SSE2 on x86-64, NEON on AArch64).
    Base,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 F, VL, BW and DQ.
    Avx512,
}

static LEVEL: AtomicU8 = AtomicU8::new(u8::MAX);

/// The level that kernels run at.
#[inline]
pub fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        0 => Level::Base,
        1 => Level::Avx2,
        2 => Level::Avx512,
        _ => {
            let found = detect();
            LEVEL.store(found as u8, Ordering::Relaxed);
            found
        }
    }
}

/// Lowers the level, to test narrower code on a wider machine; never raises it above what the machine has.
/// Results of two levels differ in the last bits.
pub fn limit(wanted: Level) {
    let found = detect();
    let level = if (wanted as u8) < (found as u8) { wanted } else { found };
    LEVEL.store(level as u8, Ordering::Relaxed);
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Level {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    match (avx2, avx512) {
        (true, true) => Level::Avx512,
        (true, false) => Level::Avx2,
        (false, _) => Level::Base,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Level {
    Level::Base
}

/// Defines `fn name(args)` that runs `body::<FMA>(args)` compiled for the level of the machine.
macro_rules! multiversion {
    ($(#[$meta:meta])* $vis:vis fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? as $body:ident) => {
        $(#[$meta])*
        #[allow(unsafe_code, clippy::too_many_arguments)]
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    $body::<true>($($arg),*)
                }
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    $body::<true>($($arg),*)
                }
                match $crate::simd::level() {
                    // SAFETY: `level` reports a level only where the processor has its instructions.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Base => {}
                }
            }
            $body::<false>($($arg),*)
        }
    };
}
pub(crate) use multiversion;
