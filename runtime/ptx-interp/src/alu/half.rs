//! f16 and bf16, alone and in pairs. Each result is computed in f64 and rounded to the nearest even.

use crate::numeric::{Round, from_bf16, from_f16, to_bf16, to_f16};
use crate::registers::Step;
use crate::types::Type;

/// A 16-bit floating-point format.
trait Half {
    fn get(bits: u64) -> f64;
    fn put(x: f64) -> u64;
}

struct F16;
struct Bf16;

impl Half for F16 {
    fn get(bits: u64) -> f64 {
        from_f16(bits as u16)
    }
    fn put(x: f64) -> u64 {
        to_f16(x, Round::Nearest).into()
    }
}

impl Half for Bf16 {
    fn get(bits: u64) -> f64 {
        from_bf16(bits as u16).into()
    }
    fn put(x: f64) -> u64 {
        to_bf16(x, Round::Nearest).into()
    }
}

macro_rules! by_half {
    ($lift:ident, $lift_pair:ident, $ty:expr, $f:ident) => {
        Some(match $ty {
            Type::F16 => $lift!($f::<F16>),
            Type::Bf16 => $lift!($f::<Bf16>),
            Type::F16x2 => $lift_pair!($f::<F16>),
            Type::Bf16x2 => $lift_pair!($f::<Bf16>),
            _ => return None,
        })
    };
}

macro_rules! pair1 {
    ($f:expr) => {
        step1!(|a| $f(a) | $f(a >> 16) << 16)
    };
}
macro_rules! pair2 {
    ($f:expr) => {
        step2!(|a, b| $f(a, b) | $f(a >> 16, b >> 16) << 16)
    };
}
macro_rules! pair3 {
    ($f:expr) => {
        step3!(|a, b, c| $f(a, b, c) | $f(a >> 16, b >> 16, c >> 16) << 16)
    };
}

/// Operations by name, with one operand.
pub(crate) fn unary(name: &str, ty: Type) -> Option<Step> {
    match name {
        "abs" => by_half!(step1, pair1, ty, abs),
        "neg" => by_half!(step1, pair1, ty, neg),
        "ex2" => by_half!(step1, pair1, ty, ex2),
        "tanh" => by_half!(step1, pair1, ty, tanh),
        _ => None,
    }
}

/// Operations by name, with two operands.
pub(crate) fn binary(name: &str, ty: Type) -> Option<Step> {
    match name {
        "add" => by_half!(step2, pair2, ty, add),
        "sub" => by_half!(step2, pair2, ty, sub),
        "mul" => by_half!(step2, pair2, ty, mul),
        "min" => by_half!(step2, pair2, ty, min),
        "max" => by_half!(step2, pair2, ty, max),
        "min.NaN" => by_half!(step2, pair2, ty, min_nan),
        "max.NaN" => by_half!(step2, pair2, ty, max_nan),
        _ => None,
    }
}

pub(crate) fn fma_step(ty: Type) -> Option<Step> {
    by_half!(step3, pair3, ty, fma)
}

fn abs<H: Half>(a: u64) -> u64 {
    a & 0x7fff
}

fn neg<H: Half>(a: u64) -> u64 {
    (a ^ 0x8000) & 0xffff
}

fn ex2<H: Half>(a: u64) -> u64 {
    H::put(H::get(a).exp2())
}

fn tanh<H: Half>(a: u64) -> u64 {
    H::put(H::get(a).tanh())
}

fn add<H: Half>(a: u64, b: u64) -> u64 {
    H::put(H::get(a) + H::get(b))
}

fn sub<H: Half>(a: u64, b: u64) -> u64 {
    H::put(H::get(a) - H::get(b))
}

fn mul<H: Half>(a: u64, b: u64) -> u64 {
    H::put(H::get(a) * H::get(b))
}

fn fma<H: Half>(a: u64, b: u64, c: u64) -> u64 {
    H::put(H::get(a) * H::get(b) + H::get(c))
}

fn min<H: Half>(a: u64, b: u64) -> u64 {
    H::put(H::get(a).min(H::get(b)))
}

fn max<H: Half>(a: u64, b: u64) -> u64 {
    H::put(H::get(a).max(H::get(b)))
}

fn min_nan<H: Half>(a: u64, b: u64) -> u64 {
    if H::get(a).is_nan() || H::get(b).is_nan() { 0x7fff } else { min::<H>(a, b) }
}

fn max_nan<H: Half>(a: u64, b: u64) -> u64 {
    if H::get(a).is_nan() || H::get(b).is_nan() { 0x7fff } else { max::<H>(a, b) }
}
