//! `cvt`.

use crate::numeric::{
    Round, flush, from_bf16, from_f16, int_odd, nearest_bf16, round_f32, saturate, to_bf16, to_f16, to_tf32,
};
use crate::registers::Step;
use crate::types::Type;

/// A conversion (`cvt`) with its modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conversion {
    pub to: Type,
    pub from: Type,
    pub round: Round,
    /// `.rni`, `.rzi`, `.rmi` or `.rpi`: rounds to an integral value.
    pub integral: bool,
    pub ftz: bool,
    pub sat: bool,
    pub relu: bool,
}

/// Fast steps for common conversions; `None`: use [`Conversion::apply`].
pub(crate) fn step(c: Conversion) -> Option<Step> {
    use Type::{Bf16, Bf16x2, F32, S32, S64, U32, U64};
    if c.ftz || c.sat || c.relu {
        return None;
    }
    Some(match (c.to, c.from) {
        (U32, U64 | S64 | U32 | S32) => step1!(|a| a & 0xffff_ffff),
        (S32, U64 | S64 | U32 | S32) => step1!(|a| a as i32 as i64 as u64),
        (U64 | S64, U32) => step1!(|a| a & 0xffff_ffff),
        (U64 | S64, S32) => step1!(|a| a as i32 as i64 as u64),
        (U64 | S64, U64 | S64) => step1!(|a| a),
        (F32, S32) if c.round == Round::Nearest => step1!(|a| u64::from((a as i32 as f32).to_bits())),
        (F32, U32) if c.round == Round::Nearest => step1!(|a| u64::from((a as u32 as f32).to_bits())),
        (F32, Bf16) => step1!(|a| a << 16 & 0xffff_ffff),
        (Bf16, F32) if c.round == Round::Nearest => step1!(|a| nearest_bf16(f32::from_bits(a as u32)).into()),
        (Bf16x2, F32) if c.round == Round::Nearest => step2!(|a, b| {
            let [high, low] = [a, b].map(|x| u64::from(nearest_bf16(f32::from_bits(x as u32))));
            high << 16 | low
        }),
        _ => return None,
    })
}

impl Conversion {
    /// Whether PTX has the conversion and it is supported.
    pub fn is_valid(&self) -> bool {
        let scalar = |ty: Type| !matches!(ty, Type::Pred | Type::F16x2 | Type::Bf16x2 | Type::Tf32);
        let bits = |ty: Type| matches!(ty, Type::B8 | Type::B16 | Type::B32 | Type::B64);
        match self.to {
            Type::F16x2 | Type::Bf16x2 | Type::Tf32 => self.from == Type::F32,
            Type::F64 if self.round != Round::Nearest && !self.from.is_float() => false,
            to => scalar(to) && scalar(self.from) && !bits(to) && !bits(self.from),
        }
    }

    /// Converts the bits of `a`; packed results take their upper half from `a` and their lower half from `b`.
    pub fn apply(&self, a: u64, b: u64) -> u64 {
        match self.to {
            Type::F16x2 | Type::Bf16x2 => {
                let half = Conversion { to: if self.to == Type::F16x2 { Type::F16 } else { Type::Bf16 }, ..*self };
                half.apply(a, 0) << 16 | half.apply(b, 0)
            }
            Type::Tf32 => to_tf32(self.relu_of(f32::from_bits(a as u32).into()) as f32, self.round).into(),
            to if self.from.is_float() => {
                let x = self.real(a);
                if to.is_float() { self.float_result(x) } else { self.int_result(x) }
            }
            to => {
                let value = self.from.extend(a);
                let exact = if self.from.is_signed() { i128::from(value as i64) } else { i128::from(value) };
                match to {
                    Type::F64 => (exact as f64).to_bits(),
                    to if to.is_float() => self.float_result(int_odd(exact)),
                    _ => self.int_to_int(exact),
                }
            }
        }
    }

    fn real(&self, a: u64) -> f64 {
        match self.from {
            Type::F16 => from_f16(a as u16),
            Type::Bf16 => from_bf16(a as u16).into(),
            Type::F32 if self.ftz => flush(f32::from_bits(a as u32)).into(),
            Type::F32 => f32::from_bits(a as u32).into(),
            _ => f64::from_bits(a),
        }
    }

    fn relu_of(&self, x: f64) -> f64 {
        if self.relu && x < 0.0 { 0.0 } else { x }
    }

    fn float_result(&self, x: f64) -> u64 {
        let x = if self.integral { self.round.integral(x) } else { x };
        let x = if self.sat { if x > 0.0 { x.min(1.0) } else { 0.0 } } else { x };
        let x = self.relu_of(x);
        match self.to {
            Type::F16 => to_f16(x, self.round).into(),
            Type::Bf16 => to_bf16(x, self.round).into(),
            Type::F32 => {
                let x = round_f32(x, self.round);
                let x = if self.ftz { flush(x) } else { x };
                let x = if self.sat { saturate(x) } else { x };
                u64::from(if x.is_nan() { 0x7fff_ffff } else { x.to_bits() })
            }
            _ => x.to_bits(),
        }
    }

    /// Out-of-range values saturate; NaN gives 0, or the smallest number for 64 bits.
    fn int_result(&self, x: f64) -> u64 {
        let x = self.round.integral(x);
        match self.to {
            Type::U64 | Type::S64 if x.is_nan() => 1 << 63,
            Type::S8 => x as i8 as u8 as u64,
            Type::S16 => x as i16 as u16 as u64,
            Type::S32 => x as i32 as u32 as u64,
            Type::S64 => x as i64 as u64,
            Type::U8 => x as u8 as u64,
            Type::U16 => x as u16 as u64,
            Type::U32 => x as u32 as u64,
            _ => x as u64,
        }
    }

    /// Extends the result to 64 bits, since the register may be wider than the type.
    fn int_to_int(&self, value: i128) -> u64 {
        let bits = 8 * self.to.bytes() as u32;
        let value = if !self.sat {
            value
        } else if self.to.is_signed() {
            value.clamp(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
        } else {
            value.clamp(0, (1 << bits) - 1)
        };
        self.to.extend(value as u64)
    }
}
