//! The registers of a warp, and vector steps over its lanes.

/// Number of a register. Immediate numbers and special registers that never change have registers of their own, so that
/// every operand is one.
pub(crate) type Slot = u32;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// A value per lane, in the low bits; what is above the width of the type has no meaning.
pub(crate) type Lanes = [u64; LANES];

/// Operands of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Operands {
    pub d: Slot,
    pub s: [Slot; 4],
}

/// An operation on the lanes of a mask.
pub(crate) type Step = fn(&mut Registers, &Operands, u32);

/// A comparison on the lanes of a mask: the lanes in which it holds.
pub(crate) type Test = fn(&Registers, &Operands, u32) -> u32;

/// The registers of a warp.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    /// By place.
    pub values: Vec<Lanes>,
    /// Lanes in which a register has been written, by name.
    pub defined: Vec<u32>,
    /// Predicates, a bit per lane.
    pub predicates: Vec<u32>,
    /// Lanes in which a predicate has been written.
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
    /// Applies `f` to the operands of each lane. Whole warps take a loop that compiles to vector code.
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

    /// See [`Registers::map1`].
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

    /// See [`Registers::map1`].
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

    /// See [`Registers::map1`].
    #[inline(always)]
    pub fn map4(&mut self, o: &Operands, mask: u32, f: impl Fn(u64, u64, u64, u64) -> u64) {
        let [a, b, c, e] = o.s.map(|slot| self.values[slot as usize]);
        let d = &mut self.values[o.d as usize];
        for i in lanes(mask) {
            d[i] = f(a[i], b[i], c[i], e[i]);
        }
    }

    /// The lanes of the mask in which `f` holds.
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
