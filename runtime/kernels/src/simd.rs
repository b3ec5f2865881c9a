//! The instruction set of kernels.
//!
//! A kernel body is an `#[inline(always)]` function over `const FMA: bool`; [`multiversion!`] compiles it once per
//! instruction set and selects a version at each call by the [`Dispatch`] that it is given. Kernels are called once per
//! block of rows or edges, so the selection costs nothing measurable.

use hgnnc_machine::{KernelFeature, KernelFeatures};

pub use hgnnc_machine::SimdLevel as Level;

/// Target of kernel dispatch: instruction set and enabled features. It is fixed where an engine is made; engines of one
/// process may differ.
///
/// The level is always one that the processor has: no constructor gives another one, so kernels need not ask again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dispatch {
    level: Level,
    features: KernelFeatures,
}

impl Dispatch {
    /// The widest level of the machine, or the baseline of the architecture without [`KernelFeature::WidestSimd`].
    pub fn new(features: KernelFeatures) -> Self {
        let widest = features.has(KernelFeature::WidestSimd);
        let level = if widest { available().pop() } else { None }.unwrap_or(Level::Base);
        Self { level, features }
    }

    /// Lowers the level, to test narrower code on a wider machine; an unavailable level becomes the next lower available
    /// one. Results of two levels differ in the last bits.
    #[must_use]
    pub fn at_most(self, level: Level) -> Self {
        let lower = available().into_iter().rfind(|&known| known <= level.min(self.level));
        Self { level: lower.unwrap_or(Level::Base), ..self }
    }

    /// The SIMD level that kernels run at.
    #[inline(always)]
    pub fn level(self) -> Level {
        self.level
    }

    /// The enabled features.
    pub fn features(self) -> KernelFeatures {
        self.features
    }

    /// Is a feature enabled?
    #[inline(always)]
    pub fn has(self, feature: KernelFeature) -> bool {
        self.features.has(feature)
    }
}

/// All features, at the widest level of the machine.
impl Default for Dispatch {
    fn default() -> Self {
        Self::new(KernelFeatures::ALL)
    }
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

/// Calls the version of a function for the level of a [`Dispatch`], with the same arguments in parentheses: variables.
/// The version of a level may be compiled for the instructions of [`Level`]'s variant of that name, and for no others.
#[macro_export]
macro_rules! versions {
    ($dispatch:expr, $arguments:tt, {
        $($(#[$when:meta])* $level:ident => $version:path,)*
        _ => $other:expr $(,)?
    }) => {
        match $crate::simd::Dispatch::level($dispatch) {
            $(
                $(#[$when])*
                #[allow(unsafe_code, unused_unsafe, reason = "no feature has to be enabled for NEON")]
                #[allow(clippy::macro_metavars_in_unsafe, reason = "a path and variables, which are no unsafe code")]
                // SAFETY: the level of a `Dispatch` is one that the processor has.
                $crate::simd::Level::$level => unsafe { $version $arguments },
            )*
            _ => $other,
        }
    };
}
pub use versions;

/// Defines `fn name(dispatch, args)` that runs `body::<FMA>(args)` compiled for the level of its [`Dispatch`]. A body
/// that has to know it as well is named with it: `as body with dispatch`.
///
/// All callees of a body have to be inlined into it, or they are compiled for the narrowest machine, where a
/// multiply-add is a call of the C library: 70 times slower. Closures cannot be marked `#[inline(always)]`, and those
/// of `for_each` and `map` are not inlined where a body is large: write loops.
#[macro_export]
macro_rules! multiversion {
    (
        $(#[$meta:meta])*
        $vis:vis fn $name:ident ($dispatch:ident: $of:ty $(, $arg:ident: $ty:ty)* $(,)?) $(-> $ret:ty)?
        as $body:ident $(with $with:ident)?
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name($dispatch: $of $(, $arg: $ty)*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($with: $of,)? $($arg: $ty),*) $(-> $ret)? {
                $body::<true>($($with,)? $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
            fn avx512($($with: $of,)? $($arg: $ty),*) $(-> $ret)? {
                $body::<true>($($with,)? $($arg),*)
            }
            // Every processor of this architecture has the instructions, so no feature has to be enabled.
            #[cfg(target_arch = "aarch64")]
            fn neon($($with: $of,)? $($arg: $ty),*) $(-> $ret)? {
                $body::<true>($($with,)? $($arg),*)
            }
            $crate::simd::versions!($dispatch, ($($with,)? $($arg),*), {
                #[cfg(target_arch = "x86_64")]
                Avx512 => avx512,
                #[cfg(target_arch = "x86_64")]
                Avx2 => avx2,
                #[cfg(target_arch = "aarch64")]
                Neon => neon,
                _ => $body::<false>($($with,)? $($arg),*),
            })
        }
    };
}
pub use multiversion;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dispatch_has_a_level_of_the_machine() {
        let widest = Dispatch::default();
        let levels = available();
        assert_eq!(Some(&widest.level()), levels.last());
        assert_eq!(Dispatch::new(KernelFeatures::ALL.without(KernelFeature::WidestSimd)).level(), Level::Base);
        for level in [Level::Base, Level::Neon, Level::Avx2, Level::Avx512] {
            let lowered = widest.at_most(level);
            assert!(lowered.level() <= level && levels.contains(&lowered.level()), "{level:?}: {lowered:?}");
            assert_eq!(lowered.at_most(Level::Avx512), lowered, "a level is not raised again");
            assert_eq!(lowered.features(), KernelFeatures::ALL);
        }
    }
}
