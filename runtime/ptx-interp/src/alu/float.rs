//! Arithmetic in f32 and f64.
//!
//! Results are rounded as PTX prescribes. Approximations (`.approx`, `.full`) are computed in f64 and rounded to
//! nearest: they are more accurate than a GPU's.

use crate::numeric::{Round, add_odd, div_odd, flush, fma_f32, round_f32, saturate, sqrt_odd};
use crate::registers::Step;

/// Modifiers of an operation in f32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    pub round: Round,
    pub ftz: bool,
    pub sat: bool,
}

const FTZ: u8 = 1;
const SAT: u8 = 2;

impl Mode {
    fn code(self) -> u8 {
        let round = match self.round {
            Round::Nearest | Round::NearestAway => 0,
            Round::Zero => 1,
            Round::Down => 2,
            Round::Up => 3,
        };
        round << 2 | u8::from(self.sat) << 1 | u8::from(self.ftz)
    }
}

macro_rules! by_mode {
    ($lift:ident, $f:ident, $mode:expr) => {
        match $mode.code() {
            0 => $lift!($f::<0>),
            1 => $lift!($f::<1>),
            2 => $lift!($f::<2>),
            3 => $lift!($f::<3>),
            4 => $lift!($f::<4>),
            5 => $lift!($f::<5>),
            6 => $lift!($f::<6>),
            7 => $lift!($f::<7>),
            8 => $lift!($f::<8>),
            9 => $lift!($f::<9>),
            10 => $lift!($f::<10>),
            11 => $lift!($f::<11>),
            12 => $lift!($f::<12>),
            13 => $lift!($f::<13>),
            14 => $lift!($f::<14>),
            _ => $lift!($f::<15>),
        }
    };
}

/// Instantiates the modes without a rounding modifier, with and without `ftz`, for operations that do not saturate.
macro_rules! by_flush {
    ($lift:ident, $f:ident, $mode:expr) => {
        if $mode.ftz { $lift!($f::<FTZ>) } else { $lift!($f::<0>) }
    };
}

/// Operations in f32 by name, with one operand.
pub(crate) fn unary_f32(name: &str, mode: Mode) -> Option<Step> {
    Some(match name {
        "abs" => by_flush!(step1, abs, mode),
        "neg" => by_flush!(step1, neg, mode),
        "rcp" => by_mode!(step1, rcp, mode),
        "sqrt" => by_mode!(step1, sqrt, mode),
        "rsqrt" => by_flush!(step1, rsqrt, mode),
        "ex2" => by_flush!(step1, ex2, mode),
        "lg2" => by_flush!(step1, lg2, mode),
        "sin" => by_flush!(step1, sin, mode),
        "cos" => by_flush!(step1, cos, mode),
        "tanh" => step1!(tanh::<0>),
        _ => return None,
    })
}

/// Operations in f32 by name, with two operands. `min.NaN` and `max.NaN` give NaN if an operand is NaN.
pub(crate) fn binary_f32(name: &str, mode: Mode) -> Option<Step> {
    Some(match name {
        "add" => by_mode!(step2, add, mode),
        "sub" => by_mode!(step2, sub, mode),
        "mul" => by_mode!(step2, mul, mode),
        "div" => by_mode!(step2, div, mode),
        "min" => by_flush!(step2, min, mode),
        "max" => by_flush!(step2, max, mode),
        "min.NaN" => by_flush!(step2, min_nan, mode),
        "max.NaN" => by_flush!(step2, max_nan, mode),
        "copysign" => step2!(|a, b| (a & 0x8000_0000) | (b & 0x7fff_ffff)),
        _ => return None,
    })
}

pub(crate) fn fma_step(mode: Mode) -> Step {
    by_mode!(step3, fma, mode)
}

/// Operations in f64 by name, with one operand, to the nearest.
pub(crate) fn unary_f64(name: &str) -> Option<Step> {
    Some(match name {
        "abs" => step1!(|a| a & (u64::MAX >> 1)),
        "neg" => step1!(|a| a ^ (1 << 63)),
        "rcp" => step1!(|a| (1.0 / f64::from_bits(a)).to_bits()),
        "sqrt" => step1!(|a| f64::from_bits(a).sqrt().to_bits()),
        "rsqrt" => step1!(|a| (1.0 / f64::from_bits(a).sqrt()).to_bits()),
        _ => return None,
    })
}

/// Operations in f64 by name, with two operands, to the nearest.
pub(crate) fn binary_f64(name: &str) -> Option<Step> {
    Some(match name {
        "add" => step2!(|a, b| (f64::from_bits(a) + f64::from_bits(b)).to_bits()),
        "sub" => step2!(|a, b| (f64::from_bits(a) - f64::from_bits(b)).to_bits()),
        "mul" => step2!(|a, b| (f64::from_bits(a) * f64::from_bits(b)).to_bits()),
        "div" => step2!(|a, b| (f64::from_bits(a) / f64::from_bits(b)).to_bits()),
        "min" => step2!(|a, b| f64::from_bits(a).min(f64::from_bits(b)).to_bits()),
        "max" => step2!(|a, b| f64::from_bits(a).max(f64::from_bits(b)).to_bits()),
        "copysign" => step2!(|a, b| (a & (1 << 63)) | (b & (u64::MAX >> 1))),
        _ => return None,
    })
}

pub(crate) fn fma_f64_step() -> Step {
    step3!(|a, b, c| f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits())
}

const fn round_of(mode: u8) -> Round {
    match mode >> 2 {
        0 => Round::Nearest,
        1 => Round::Zero,
        2 => Round::Down,
        _ => Round::Up,
    }
}

#[inline(always)]
fn input<const M: u8>(bits: u64) -> f32 {
    let x = f32::from_bits(bits as u32);
    if M & FTZ != 0 { flush(x) } else { x }
}

/// Every computed NaN is 0x7fffffff, as on a GPU.
#[inline(always)]
fn output<const M: u8>(x: f32) -> u64 {
    let x = if M & SAT != 0 { saturate(x) } else { x };
    let x = if M & FTZ != 0 { flush(x) } else { x };
    u64::from(if x.is_nan() { 0x7fff_ffff } else { x.to_bits() })
}

#[inline(always)]
fn add<const M: u8>(a: u64, b: u64) -> u64 {
    let (a, b) = (input::<M>(a), input::<M>(b));
    output::<M>(if M >> 2 == 0 { a + b } else { round_f32(add_odd(a.into(), b.into()), round_of(M)) })
}

#[inline(always)]
fn sub<const M: u8>(a: u64, b: u64) -> u64 {
    let (a, b) = (input::<M>(a), input::<M>(b));
    output::<M>(if M >> 2 == 0 { a - b } else { round_f32(add_odd(a.into(), -f64::from(b)), round_of(M)) })
}

#[inline(always)]
fn mul<const M: u8>(a: u64, b: u64) -> u64 {
    let (a, b) = (input::<M>(a), input::<M>(b));
    // The product of two f32 is exact in f64.
    output::<M>(if M >> 2 == 0 { a * b } else { round_f32(f64::from(a) * f64::from(b), round_of(M)) })
}

#[inline(always)]
fn fma<const M: u8>(a: u64, b: u64, c: u64) -> u64 {
    let (a, b, c) = (input::<M>(a), input::<M>(b), input::<M>(c));
    output::<M>(if M >> 2 == 0 {
        fma_f32(a, b, c)
    } else {
        round_f32(add_odd(f64::from(a) * f64::from(b), c.into()), round_of(M))
    })
}

fn div<const M: u8>(a: u64, b: u64) -> u64 {
    let (a, b) = (input::<M>(a), input::<M>(b));
    output::<M>(if M >> 2 == 0 { a / b } else { round_f32(div_odd(a.into(), b.into()), round_of(M)) })
}

fn rcp<const M: u8>(a: u64) -> u64 {
    div::<M>(u64::from(1f32.to_bits()), a)
}

fn sqrt<const M: u8>(a: u64) -> u64 {
    let a = input::<M>(a);
    output::<M>(if M >> 2 == 0 { a.sqrt() } else { round_f32(sqrt_odd(a.into()), round_of(M)) })
}

fn abs<const M: u8>(a: u64) -> u64 {
    u64::from(input::<M>(a).to_bits() & 0x7fff_ffff)
}

fn neg<const M: u8>(a: u64) -> u64 {
    u64::from(input::<M>(a).to_bits() ^ 0x8000_0000)
}

fn rsqrt<const M: u8>(a: u64) -> u64 {
    let a = f64::from(input::<M>(a));
    output::<M>((1.0 / a.sqrt()) as f32)
}

fn ex2<const M: u8>(a: u64) -> u64 {
    output::<M>(f64::from(input::<M>(a)).exp2() as f32)
}

fn lg2<const M: u8>(a: u64) -> u64 {
    output::<M>(f64::from(input::<M>(a)).log2() as f32)
}

fn sin<const M: u8>(a: u64) -> u64 {
    output::<M>(f64::from(input::<M>(a)).sin() as f32)
}

fn cos<const M: u8>(a: u64) -> u64 {
    output::<M>(f64::from(input::<M>(a)).cos() as f32)
}

fn tanh<const M: u8>(a: u64) -> u64 {
    output::<M>(f64::from(input::<M>(a)).tanh() as f32)
}

/// -0 is less than +0, and a number is preferred to NaN.
#[inline(always)]
fn min<const M: u8>(a: u64, b: u64) -> u64 {
    let (x, y) = (input::<M>(a), input::<M>(b));
    output::<M>(if x.is_nan() {
        y
    } else if y.is_nan() || x < y {
        x
    } else if y < x {
        y
    } else {
        f32::from_bits(x.to_bits() | y.to_bits())
    })
}

#[inline(always)]
fn max<const M: u8>(a: u64, b: u64) -> u64 {
    let (x, y) = (input::<M>(a), input::<M>(b));
    output::<M>(if x.is_nan() {
        y
    } else if y.is_nan() || x > y {
        x
    } else if y > x {
        y
    } else {
        f32::from_bits(x.to_bits() & y.to_bits())
    })
}

fn min_nan<const M: u8>(a: u64, b: u64) -> u64 {
    if either_nan(a, b) { 0x7fff_ffff } else { min::<M>(a, b) }
}

fn max_nan<const M: u8>(a: u64, b: u64) -> u64 {
    if either_nan(a, b) { 0x7fff_ffff } else { max::<M>(a, b) }
}

fn either_nan(a: u64, b: u64) -> bool {
    f32::from_bits(a as u32).is_nan() || f32::from_bits(b as u32).is_nan()
}
