//! The registers of a warp, and vector steps over its lanes.

/// Number of a register. Immediates and constant special registers have registers of their own, so that every operand
/// is a register.
pub(crate) type Slot = u32;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// One value per lane, in the low bits; bits above the width of the type are undefined.
pub(crate) type Lanes = [u64; LANES];

/// Operand registers of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operands {
    pub d: Slot,
    pub s: [Slot; 4],
}

/// An operation on the active lanes.
pub(crate) type Step = fn(&mut Registers, &Operands, u32);

/// A comparison on the active lanes; returns the mask of lanes in which it holds.
pub(crate) type Test = fn(&Registers, &Operands, u32) -> u32;

/// The registers of a warp.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    pub values: Vec<Lanes>,
    /// Mask of the lanes that have written a register, by name.
    pub defined: Vec<u32>,
    /// Predicates, one bit per lane.
    pub predicates: Vec<u32>,
    /// Mask of the lanes that have written a predicate.
    pub predicates_defined: Vec<u32>,
}

/// The lanes of a mask, in order.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}

impl Registers {
    /// Applies `f` to the operand of each active lane. Full warps take a loop that vectorizes.
    #[inline(always)]
    pub fn map1(&mut self, o: &Operands, mask: u32, f: impl Fn(u64) -> u64) {
        let a = self.values[o.s[0] as usize];
        let d = &mut self.values[o.d as usize];
        if mask == u32::MAX {
            for i in 0..LANES {
                d[i] = f(a[i]);
            }
        } else {
            for i in lanes(mask) {
                d[i] = f(a[i]);
            }
        }
    }

    /// As [`Registers::map1`], with more operands.
    #[inline(always)]
    pub fn map2(&mut self, o: &Operands, mask: u32, f: impl Fn(u64, u64) -> u64) {
        let a = self.values[o.s[0] as usize];
        let b = self.values[o.s[1] as usize];
        let d = &mut self.values[o.d as usize];
        if mask == u32::MAX {
            for i in 0..LANES {
                d[i] = f(a[i], b[i]);
            }
        } else {
            for i in lanes(mask) {
                d[i] = f(a[i], b[i]);
            }
        }
    }

    /// As [`Registers::map1`], with more operands.
    #[inline(always)]
    pub fn map3(&mut self, o: &Operands, mask: u32, f: impl Fn(u64, u64, u64) -> u64) {
        let a = self.values[o.s[0] as usize];
        let b = self.values[o.s[1] as usize];
        let c = self.values[o.s[2] as usize];
        let d = &mut self.values[o.d as usize];
        if mask == u32::MAX {
            for i in 0..LANES {
                d[i] = f(a[i], b[i], c[i]);
            }
        } else {
            for i in lanes(mask) {
                d[i] = f(a[i], b[i], c[i]);
            }
        }
    }

    /// As [`Registers::map1`], with more operands.
    #[inline(always)]
    pub fn map4(&mut self, o: &Operands, mask: u32, f: impl Fn(u64, u64, u64, u64) -> u64) {
        let [a, b, c, e] = o.s.map(|slot| self.values[slot as usize]);
        let d = &mut self.values[o.d as usize];
        for i in lanes(mask) {
            d[i] = f(a[i], b[i], c[i], e[i]);
        }
    }

    /// Mask of the active lanes in which `f` holds.
    #[inline(always)]
    pub fn test(&self, o: &Operands, mask: u32, f: impl Fn(u64, u64) -> bool) -> u32 {
        let a = &self.values[o.s[0] as usize];
        let b = &self.values[o.s[1] as usize];
        let mut holds = 0;
        for i in 0..LANES {
            holds |= u32::from(f(a[i], b[i])) << i;
        }
        holds & mask
    }
}
