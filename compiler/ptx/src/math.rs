//! Element-wise functions of f32.
//!
//! The machine has `2^x`, `log2 x`, `1 / x` and `cos x` to about 2 units in the last place, near which the functions
//! here stay: arguments are reduced so that they lie where those are exact enough, and differences of nearly equal
//! numbers are taken from a series.

use std::f32::consts::{LN_2, LOG2_E};

use hgnnc_ir::{BinaryOp, UnaryOp};

use crate::code::Code;
use crate::isa::{Cmp, Reg, Val};

/// The high bits of ln 2: multiples of it are exact.
const LN_2_HIGH: f32 = 0.693_145_75;
/// ln 2 without its high bits.
const LN_2_LOW: f32 = 1.428_606_8e-6;

/// `a · b + c`
pub fn fma(code: &mut Code, a: Val, b: Val, c: Val) -> Val {
    code.fma(a, b, c).into()
}

fn add(code: &mut Code, a: Val, b: Val) -> Val {
    code.add_f32(a, b).into()
}

fn sub(code: &mut Code, a: Val, b: Val) -> Val {
    code.sub_f32(a, b).into()
}

fn mul(code: &mut Code, a: Val, b: Val) -> Val {
    code.mul_f32(a, b).into()
}

fn select(code: &mut Code, a: Val, b: Val, condition: Reg) -> Val {
    code.selp_f32(a, b, condition).into()
}

/// `max(a, b)`; not a number where one of them is not.
pub fn max(code: &mut Code, a: Val, b: Val) -> Val {
    code.max_f32(a, b).into()
}

/// `min(a, b)`; not a number where one of them is not.
pub fn min(code: &mut Code, a: Val, b: Val) -> Val {
    code.min_f32(a, b).into()
}

/// A polynomial by Horner's rule, the highest coefficient first.
fn polynomial(code: &mut Code, x: Val, coefficients: &[f32]) -> Val {
    let (first, rest) = coefficients.split_first().expect("a polynomial has coefficients");
    rest.iter().fold(Val::Imm(*first), |sum, &c| fma(code, sum, x, Val::Imm(c)))
}

/// `e^x`: `x = n ln 2 + r`, `2^(r log2 e) · 2^n`.
pub fn exp(code: &mut Code, x: Val) -> Val {
    // Beyond, the result is 0 or infinite; without bounds infinities would meet.
    let x = max(code, x, Val::Imm(-150.0));
    let x = min(code, x, Val::Imm(150.0));
    let scaled = mul(code, x, Val::Imm(LOG2_E));
    let n: Val = code.round(scaled).into();
    let minus_n: Val = code.neg(n).into();
    let r = fma(code, minus_n, Val::Imm(LN_2_HIGH), x);
    let r = fma(code, minus_n, Val::Imm(LN_2_LOW), r);
    let r = mul(code, r, Val::Imm(LOG2_E));
    let fraction: Val = code.ex2(r).into();
    let power: Val = code.ex2(n).into();
    mul(code, fraction, power)
}

/// `ln x`, as `log2 x · ln 2`.
pub fn log(code: &mut Code, x: Val) -> Val {
    let log2: Val = code.lg2(x).into();
    mul(code, log2, Val::Imm(LN_2))
}

/// `ln(1 + x)`.
fn log1p(code: &mut Code, x: Val) -> Val {
    let (small, large) = log1p_parts(code, x);
    let size = code.abs(x);
    let is_small = code.setp_f32(Cmp::Lt, size, Val::Imm(0.03));
    select(code, small, large, is_small)
}

/// `ln(1 + x)` for `0 ≤ x ≤ 1`.
fn log1p_unit(code: &mut Code, x: Val) -> Val {
    let (small, large) = log1p_parts(code, x);
    let is_small = code.setp_f32(Cmp::Lt, x, Val::Imm(0.03));
    select(code, small, large, is_small)
}

/// `ln(1 + x)` by its Taylor series, for small `x`, and by the logarithm.
fn log1p_parts(code: &mut Code, x: Val) -> (Val, Val) {
    let one_more = add(code, x, Val::Imm(1.0));
    let large = log(code, one_more);
    // x - x²/2 + x³/3 - x⁴/4 + x⁵/5
    let series = polynomial(code, x, &[0.2, -0.25, 1.0 / 3.0, -0.5, 1.0]);
    (mul(code, series, x), large)
}

/// `e^x - 1`, by its Taylor series for `|x| < 0.5`.
fn expm1(code: &mut Code, x: Val) -> Val {
    let power = exp(code, x);
    let large = add(code, power, Val::Imm(-1.0));
    // x (1 + x/2 + x²/6 + …)
    let coefficients: Vec<f32> = (1..=8).rev().map(|n| 1.0 / (1..=n).product::<u32>() as f32).collect();
    let series = polynomial(code, x, &coefficients);
    let small = mul(code, series, x);
    let size = code.abs(x);
    let is_small = code.setp_f32(Cmp::Lt, size, Val::Imm(0.5));
    select(code, small, large, is_small)
}

fn recip(code: &mut Code, x: Val) -> Val {
    code.rcp(x).into()
}

/// `tanh x = (e^2x - 1) / (e^2x + 1)`, for `|x|`, with the sign of `x`.
fn tanh(code: &mut Code, x: Val) -> Val {
    let size: Val = code.abs(x).into();
    let minus_two = mul(code, size, Val::Imm(-2.0));
    let less = expm1(code, minus_two);
    let below = add(code, less, Val::Imm(2.0));
    let inverse = recip(code, below);
    let minus: Val = code.neg(less).into();
    let tanh = mul(code, minus, inverse);
    code.copysign(x, tanh).into()
}

fn sigmoid(code: &mut Code, x: Val) -> Val {
    let minus: Val = code.neg(x).into();
    let power = exp(code, minus);
    let below = add(code, power, Val::Imm(1.0));
    recip(code, below)
}

/// The error function: a rational function of `1 / (1 + p|x|)` times `e^-x²` (Abramowitz and Stegun 7.1.26) errs by
/// 1.5e-7, and near zero its Taylor series.
fn erf(code: &mut Code, x: Val) -> Val {
    let size: Val = code.abs(x).into();
    let below = fma(code, size, Val::Imm(0.327_591_1), Val::Imm(1.0));
    let t = recip(code, below);
    let series = polynomial(code, t, &[1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6]);
    let series = mul(code, series, t);
    let square = mul(code, x, x);
    let minus: Val = code.neg(square).into();
    let power = exp(code, minus);
    let rest = mul(code, series, power);
    let large = sub(code, Val::Imm(1.0), rest);
    let large: Val = code.copysign(x, large).into();
    let two = std::f32::consts::FRAC_2_SQRT_PI;
    let near = polynomial(code, square, &[two / 216.0, -two / 42.0, two / 10.0, -two / 3.0, two]);
    let small = mul(code, near, x);
    let is_small = code.setp_f32(Cmp::Lt, size, Val::Imm(0.4));
    select(code, small, large, is_small)
}

/// `f(x)` of an f32.
pub fn unary(code: &mut Code, f: UnaryOp, x: Val) -> Val {
    match f {
        UnaryOp::Neg => code.neg(x).into(),
        UnaryOp::Exp => exp(code, x),
        UnaryOp::Log => log(code, x),
        UnaryOp::Log1p => log1p(code, x),
        UnaryOp::Softplus => log_add_exp(code, x, Val::ZERO),
        UnaryOp::Sqrt => code.sqrt(x).into(),
        UnaryOp::Recip => recip(code, x),
        UnaryOp::Abs => code.abs(x).into(),
        UnaryOp::Sign => {
            let sign: Val = code.copysign(x, Val::Imm(1.0)).into();
            let is_zero = code.setp_f32(Cmp::Eq, x, Val::ZERO);
            select(code, Val::ZERO, sign, is_zero)
        }
        UnaryOp::Step => positive_or(code, x, 1.0, 0.0),
        UnaryOp::Tanh => tanh(code, x),
        UnaryOp::Sigmoid => sigmoid(code, x),
        UnaryOp::Relu => max(code, x, Val::ZERO),
        UnaryOp::LeakyRelu(slope) => {
            let below = mul(code, x, Val::Imm(slope as f32));
            let above = code.setp_f32(Cmp::Gt, x, Val::ZERO);
            select(code, x, below, above)
        }
        UnaryOp::Elu => {
            let below = expm1(code, x);
            let above = code.setp_f32(Cmp::Gt, x, Val::ZERO);
            select(code, x, below, above)
        }
        UnaryOp::Gelu => {
            let scaled = mul(code, x, Val::Imm(std::f32::consts::FRAC_1_SQRT_2));
            let erf = erf(code, scaled);
            let half = mul(code, x, Val::Imm(0.5));
            fma(code, half, erf, half)
        }
        UnaryOp::Erf => erf(code, x),
        UnaryOp::Floor => code.floor(x).into(),
        UnaryOp::Cos => {
            let turned = without_turns(code, x);
            code.cos(turned).into()
        }
        // sin x = cos(x - π/2)
        UnaryOp::Sin => {
            let turned = without_turns(code, x);
            let shifted = add(code, turned, Val::Imm(-std::f32::consts::FRAC_PI_2));
            code.cos(shifted).into()
        }
    }
}

/// `x - 2π k` in [-π, π]: the approximate functions are exact to 2^-20 there, and lose digits outside.
fn without_turns(code: &mut Code, x: Val) -> Val {
    const TURN: f32 = std::f32::consts::TAU;
    // The rest of 2π that the number above leaves out.
    const REST: f32 = (std::f64::consts::TAU - TURN as f64) as f32;
    let turns = fma(code, x, Val::Imm(1.0 / TURN), Val::Imm(0.5));
    let whole: Val = code.floor(turns).into();
    let near = fma(code, whole, Val::Imm(-TURN), x);
    fma(code, whole, Val::Imm(-REST), near)
}

/// `ln(e^a + e^b) = max + ln(1 + e^-|a - b|)`
pub fn log_add_exp(code: &mut Code, a: Val, b: Val) -> Val {
    let largest = max(code, a, b);
    let apart = sub(code, a, b);
    let minus: Val = code.abs(apart).into();
    let minus: Val = code.neg(minus).into();
    let power = exp(code, minus);
    let more = log1p_unit(code, power);
    let sum = add(code, largest, more);
    let size: Val = code.abs(largest).into();
    let infinite = code.setp_f32(Cmp::Eq, size, Val::Imm(f32::INFINITY));
    select(code, largest, sum, infinite)
}

/// `a^b = 2^(b log2 |a|)`, where `a` is negative with the sign of an odd integer `b`.
fn pow(code: &mut Code, a: Val, b: Val) -> Val {
    if b.is(2.0) {
        return mul(code, a, a);
    }
    if b.is(0.5) {
        return code.sqrt(a).into();
    }
    let size: Val = code.abs(a).into();
    let log2: Val = code.lg2(size).into();
    let exponent = mul(code, b, log2);
    let power: Val = code.ex2(exponent).into();
    // A negative number has powers of integers only.
    let whole: Val = code.round(b).into();
    let half = mul(code, b, Val::Imm(0.5));
    let half_whole: Val = code.round(half).into();
    let odd = code.setp_f32(Cmp::Ne, half, half_whole);
    let minus: Val = code.neg(power).into();
    let signed = select(code, minus, power, odd);
    let is_whole = code.setp_f32(Cmp::Eq, whole, b);
    let below = select(code, signed, Val::Imm(f32::NAN), is_whole);
    let negative = code.setp_f32(Cmp::Lt, a, Val::ZERO);
    let result = select(code, below, power, negative);
    let none = code.setp_f32(Cmp::Eq, b, Val::ZERO);
    select(code, Val::Imm(1.0), result, none)
}

/// `positive` where `x > 0`, else `otherwise` (also for NaN).
pub(crate) fn positive_or(code: &mut Code, x: Val, positive: f64, otherwise: f64) -> Val {
    let above = code.setp_f32(Cmp::Gt, x, Val::ZERO);
    select(code, Val::Imm(positive as f32), Val::Imm(otherwise as f32), above)
}

/// `a ∘ b` of f32; comparisons give 0 or 1.
pub fn binary(code: &mut Code, f: BinaryOp, a: Val, b: Val) -> Val {
    let truth = |code: &mut Code, compare: Cmp| {
        let holds = code.setp_f32(compare, a, b);
        select(code, Val::Imm(1.0), Val::ZERO, holds)
    };
    match f {
        BinaryOp::Add => add(code, a, b),
        BinaryOp::Sub => sub(code, a, b),
        BinaryOp::Mul => mul(code, a, b),
        BinaryOp::Div => code.div_f32(a, b).into(),
        BinaryOp::Max => max(code, a, b),
        BinaryOp::Min => min(code, a, b),
        BinaryOp::Pow => pow(code, a, b),
        BinaryOp::LogAddExp => log_add_exp(code, a, b),
        BinaryOp::Eq => truth(code, Cmp::Eq),
        BinaryOp::Gt => truth(code, Cmp::Gt),
    }
}

/// One element of dropout's mask: [`hgnnc_ir::random::mask_element`]. `key` is a register of 64 bits, `index` as well.
pub fn mask(code: &mut Code, key: Reg, index: Reg, rate: f64) -> Val {
    use hgnnc_ir::random::{keep_scale, keep_threshold};
    let scale = Val::Imm(keep_scale(rate) as f32);
    if rate <= 0.0 {
        return scale;
    }
    let (key_low, key_high) = code.halves(key);
    let (low, high) = code.halves(index);
    let first = code.xor(low, key_low);
    let first = mix(code, first);
    let first = code.add(first, key_high);
    let bits = code.mad(high, 0x9e37_79b9u32, first);
    let bits = mix(code, bits);
    let kept = code.lt(bits, keep_threshold(rate));
    select(code, scale, Val::ZERO, kept)
}

/// A round of the finaliser.
fn mix(code: &mut Code, x: Reg) -> Reg {
    let mut x = x;
    for (shift, factor) in [(16u32, Some(0x7feb_352du32)), (15, Some(0x846c_a68b)), (16, None)] {
        let high = code.shr(x, shift);
        x = code.xor(x, high);
        if let Some(factor) = factor {
            x = code.mul(x, factor);
        }
    }
    x
}
