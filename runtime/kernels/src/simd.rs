//! Selects the widest vector instruction set of the machine at run time.
//!
//! A kernel body is an `#[inline(always)]` function over `const FMA: bool`; [`multiversion!`] compiles it once per
//! instruction set and selects a version at each call, which is one load of a static. Kernels are called once per block
//! of rows or edges, so the selection costs nothing measurable.

use std::sync::atomic::{AtomicU8, Ordering};

use hgnnc_machine::{KernelFeature, KernelFeatures};

pub use hgnnc_machine::SimdLevel as Level;

static LEVEL: AtomicU8 = AtomicU8::new(u8::MAX);

/// SIMD level that kernels run at.
#[inline]
pub fn level() -> Level {
    match LEVEL.load(Ordering::Relaxed) {
        0 => Level::Base,
        1 => Level::Neon,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => detect(),
    }
}

/// Detects the level once. Not inlined into kernels, which call [`level`] for every block.
#[cold]
fn detect() -> Level {
    let found = available().pop().unwrap_or(Level::Base);
    LEVEL.store(found as u8, Ordering::Relaxed);
    found
}

/// Lowers the level, to test narrower code on a wider machine; an unavailable level becomes the next lower available
/// one. Results of two levels differ in the last bits.
pub fn limit(wanted: Level) {
    let mut lower = available().into_iter().filter(|&level| level as u8 <= wanted as u8);
    let level = lower.next_back().unwrap_or(Level::Base);
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// Lowers the level of the process to the baseline of the architecture, unless [`KernelFeature::WidestSimd`] is
/// enabled. To be called before anything is compiled or planned, since every kernel of the process reads the level.
pub fn limit_to(features: KernelFeatures) {
    if !features.has(KernelFeature::WidestSimd) {
        limit(Level::Base);
    }
}

/// Runs `f` at the widest level regardless of the limit.
pub fn with_widest<T>(f: impl FnOnce() -> T) -> T {
    let limited = level();
    limit(Level::Avx512);
    let result = f();
    limit(limited);
    result
}

/// Levels of this machine, from the baseline upwards.
#[cfg(target_arch = "x86_64")]
pub fn available() -> Vec<Level> {
    let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    let avx512 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq");
    let found = [(true, Level::Base), (avx2, Level::Avx2), (avx2 && avx512, Level::Avx512)];
    found.into_iter().filter_map(|(has, level)| has.then_some(level)).collect()
}

/// Levels of this machine, from the baseline upwards.
#[cfg(target_arch = "aarch64")]
pub fn available() -> Vec<Level> {
    vec![Level::Base, Level::Neon]
}

/// Levels of this machine, from the baseline upwards.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn available() -> Vec<Level> {
    vec![Level::Base]
}

/// Defines `fn name(args)` that runs `body::<FMA>(args)` compiled for the level of the machine.
///
/// All callees of a body have to be inlined into it, or they are compiled for the narrowest machine, where a
/// multiply-add is a call of the C library: 70 times slower. Closures cannot be marked `#[inline(always)]`, and those
/// of `for_each` and `map` are not inlined where a body is large: write loops.
#[macro_export]
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
                    $crate::simd::Level::Neon | $crate::simd::Level::Base => {}
                }
            }
            #[cfg(target_arch = "aarch64")]
            if $crate::simd::level() == $crate::simd::Level::Neon {
                // Every processor of this architecture has the instructions, so no feature has to be enabled.
                return $body::<true>($($arg),*);
            }
            $body::<false>($($arg),*)
        }
    };
}
pub use multiversion;
