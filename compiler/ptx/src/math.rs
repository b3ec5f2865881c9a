//! Element-wise functions of f32.
//!
//! The machine has `2^x`, `log2 x`, `1 / x` and `cos x` to about 2 units in the last place, near which the functions here
//! stay: arguments are reduced so that they lie where those are exact enough, and differences of nearly equal numbers are
//! taken from a series.

use std::f32::consts::{LN_2, LOG2_E};

use hgnnc_ir::{BinaryOp, UnaryOp};

use crate::code::{Class, Code, Reg, Val};

/// The high bits of ln 2: multiples of it are exact.
const LN_2_HIGH: f32 = 0.693_145_75;
/// ln 2 without its high bits.
const LN_2_LOW: f32 = 1.428_606_8e-6;

/// `a · b + c`
pub fn fma(code: &mut Code, a: Val, b: Val, c: Val) -> Val {
    code.f("fma.rn.f32", &[&a, &b, &c]).into()
}

fn add(code: &mut Code, a: Val, b: Val) -> Val {
    code.f("add.rn.f32", &[&a, &b]).into()
}

fn sub(code: &mut Code, a: Val, b: Val) -> Val {
    code.f("sub.rn.f32", &[&a, &b]).into()
}

fn mul(code: &mut Code, a: Val, b: Val) -> Val {
    code.f("mul.rn.f32", &[&a, &b]).into()
}

fn select(code: &mut Code, a: Val, b: Val, condition: Reg) -> Val {
    code.f("selp.f32", &[&a, &b, &condition]).into()
}

/// `max(a, b)`; not a number where one of them is not.
pub fn max(code: &mut Code, a: Val, b: Val) -> Val {
    code.f("max.NaN.f32", &[&a, &b]).into()
}

/// `min(a, b)`; not a number where one of them is not.
pub fn min(code: &mut Code, a: Val, b: Val) -> Val {
    code.f("min.NaN.f32", &[&a, &b]).into()
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
    let n: Val = code.f("cvt.rni.f32.f32", &[&scaled]).into();
    let minus_n: Val = code.f("neg.f32", &[&n]).into();
    let r = fma(code, minus_n, Val::Imm(LN_2_HIGH), x);
    let r = fma(code, minus_n, Val::Imm(LN_2_LOW), r);
    let r = mul(code, r, Val::Imm(LOG2_E));
    let fraction: Val = code.f("ex2.approx.f32", &[&r]).into();
    let power: Val = code.f("ex2.approx.f32", &[&n]).into();
    mul(code, fraction, power)
}

/// `ln x`
pub fn log(code: &mut Code, x: Val) -> Val {
    let log2: Val = code.f("lg2.approx.f32", &[&x]).into();
    mul(code, log2, Val::Imm(LN_2))
}

/// `ln(1 + x)` for `0 ≤ x ≤ 1`.
fn log1p(code: &mut Code, x: Val) -> Val {
    let one_more = add(code, x, Val::Imm(1.0));
    let large = log(code, one_more);
    // x - x²/2 + x³/3 - x⁴/4 + x⁵/5
    let series = polynomial(code, x, &[0.2, -0.25, 1.0 / 3.0, -0.5, 1.0]);
    let small = mul(code, series, x);
    let is_small = code.p("setp.lt.f32", &[&x, &Val::Imm(0.03)]);
    select(code, small, large, is_small)
}

/// `e^x - 1`
fn expm1(code: &mut Code, x: Val) -> Val {
    let power = exp(code, x);
    let large = add(code, power, Val::Imm(-1.0));
    // x (1 + x/2 + x²/6 + …)
    let coefficients: Vec<f32> = (1..=8).rev().map(|n| 1.0 / (1..=n).product::<u32>() as f32).collect();
    let series = polynomial(code, x, &coefficients);
    let small = mul(code, series, x);
    let size = code.f("abs.f32", &[&x]);
    let is_small = code.p("setp.lt.f32", &[&size, &Val::Imm(0.5)]);
    select(code, small, large, is_small)
}

fn recip(code: &mut Code, x: Val) -> Val {
    code.f("rcp.rn.f32", &[&x]).into()
}

/// `tanh x = (e^2x - 1) / (e^2x + 1)`, for `|x|`, with the sign of `x`.
fn tanh(code: &mut Code, x: Val) -> Val {
    let size: Val = code.f("abs.f32", &[&x]).into();
    let minus_two = mul(code, size, Val::Imm(-2.0));
    let less = expm1(code, minus_two);
    let below = add(code, less, Val::Imm(2.0));
    let inverse = recip(code, below);
    let minus: Val = code.f("neg.f32", &[&less]).into();
    let tanh = mul(code, minus, inverse);
    code.f("copysign.f32", &[&x, &tanh]).into()
}

fn sigmoid(code: &mut Code, x: Val) -> Val {
    let minus: Val = code.f("neg.f32", &[&x]).into();
    let power = exp(code, minus);
    let below = add(code, power, Val::Imm(1.0));
    recip(code, below)
}

/// The error function: a rational function of `1 / (1 + p|x|)` times `e^-x²` (Abramowitz and Stegun 7.1.26) errs by 1.5e-7,
/// and near zero its Taylor series.
fn erf(code: &mut Code, x: Val) -> Val {
    let size: Val = code.f("abs.f32", &[&x]).into();
    let below = fma(code, size, Val::Imm(0.327_591_1), Val::Imm(1.0));
    let t = recip(code, below);
    let series = polynomial(code, t, &[1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6]);
    let series = mul(code, series, t);
    let square = mul(code, x, x);
    let minus: Val = code.f("neg.f32", &[&square]).into();
    let power = exp(code, minus);
    let rest = mul(code, series, power);
    let large = sub(code, Val::Imm(1.0), rest);
    let large: Val = code.f("copysign.f32", &[&x, &large]).into();
    let two = std::f32::consts::FRAC_2_SQRT_PI;
    let near = polynomial(code, square, &[two / 216.0, -two / 42.0, two / 10.0, -two / 3.0, two]);
    let small = mul(code, near, x);
    let is_small = code.p("setp.lt.f32", &[&size, &Val::Imm(0.4)]);
    select(code, small, large, is_small)
}

/// `f(x)`
pub fn unary(code: &mut Code, f: UnaryOp, x: Val) -> Val {
    match f {
        UnaryOp::Neg => code.f("neg.f32", &[&x]).into(),
        UnaryOp::Exp => exp(code, x),
        UnaryOp::Log => log(code, x),
        UnaryOp::Softplus => log_add_exp(code, x, Val::ZERO),
        UnaryOp::Sqrt => code.f("sqrt.rn.f32", &[&x]).into(),
        UnaryOp::Recip => recip(code, x),
        UnaryOp::Abs => code.f("abs.f32", &[&x]).into(),
        UnaryOp::Sign => {
            let sign: Val = code.f("copysign.f32", &[&x, &Val::Imm(1.0)]).into();
            let is_zero = code.p("setp.eq.f32", &[&x, &Val::ZERO]);
            select(code, Val::ZERO, sign, is_zero)
        }
        UnaryOp::Step => {
            let above = code.p("setp.gt.f32", &[&x, &Val::ZERO]);
            select(code, Val::Imm(1.0), Val::ZERO, above)
        }
        UnaryOp::Tanh => tanh(code, x),
        UnaryOp::Sigmoid => sigmoid(code, x),
        UnaryOp::Relu => max(code, x, Val::ZERO),
        UnaryOp::LeakyRelu(slope) => {
            let below = mul(code, x, Val::Imm(slope as f32));
            let above = code.p("setp.gt.f32", &[&x, &Val::ZERO]);
            select(code, x, below, above)
        }
        UnaryOp::Elu => {
            let below = expm1(code, x);
            let above = code.p("setp.gt.f32", &[&x, &Val::ZERO]);
            select(code, x, below, above)
        }
        UnaryOp::Gelu => {
            let scaled = mul(code, x, Val::Imm(std::f32::consts::FRAC_1_SQRT_2));
            let erf = erf(code, scaled);
            let half = mul(code, x, Val::Imm(0.5));
            fma(code, half, erf, half)
        }
        UnaryOp::Erf => erf(code, x),
        UnaryOp::Floor => code.f("cvt.rmi.f32.f32", &[&x]).into(),
        UnaryOp::Cos => code.f("cos.approx.f32", &[&x]).into(),
    }
}

/// `ln(e^a + e^b) = max + ln(1 + e^-|a - b|)`
pub fn log_add_exp(code: &mut Code, a: Val, b: Val) -> Val {
    let largest = max(code, a, b);
    let apart = sub(code, a, b);
    let minus: Val = code.f("abs.f32", &[&apart]).into();
    let minus: Val = code.f("neg.f32", &[&minus]).into();
    let power = exp(code, minus);
    let more = log1p(code, power);
    let sum = add(code, largest, more);
    let size: Val = code.f("abs.f32", &[&largest]).into();
    let infinite = code.p("setp.eq.f32", &[&size, &Val::Imm(f32::INFINITY)]);
    select(code, largest, sum, infinite)
}

/// `a^b = 2^(b log2 |a|)`, where `a` is negative with the sign of an odd integer `b`.
fn pow(code: &mut Code, a: Val, b: Val) -> Val {
    if b.is(2.0) {
        return mul(code, a, a);
    }
    if b.is(0.5) {
        return code.f("sqrt.rn.f32", &[&a]).into();
    }
    let size: Val = code.f("abs.f32", &[&a]).into();
    let log2: Val = code.f("lg2.approx.f32", &[&size]).into();
    let exponent = mul(code, b, log2);
    let power: Val = code.f("ex2.approx.f32", &[&exponent]).into();
    // A negative number has powers of integers only.
    let whole: Val = code.f("cvt.rni.f32.f32", &[&b]).into();
    let half = mul(code, b, Val::Imm(0.5));
    let half_whole: Val = code.f("cvt.rni.f32.f32", &[&half]).into();
    let odd = code.p("setp.ne.f32", &[&half, &half_whole]);
    let minus: Val = code.f("neg.f32", &[&power]).into();
    let signed = select(code, minus, power, odd);
    let is_whole = code.p("setp.eq.f32", &[&whole, &b]);
    let below = select(code, signed, Val::Imm(f32::NAN), is_whole);
    let negative = code.p("setp.lt.f32", &[&a, &Val::ZERO]);
    let result = select(code, below, power, negative);
    let none = code.p("setp.eq.f32", &[&b, &Val::ZERO]);
    select(code, Val::Imm(1.0), result, none)
}

/// `a ∘ b`
pub fn binary(code: &mut Code, f: BinaryOp, a: Val, b: Val) -> Val {
    let truth = |code: &mut Code, compare: &str| {
        let holds = code.p(compare, &[&a, &b]);
        select(code, Val::Imm(1.0), Val::ZERO, holds)
    };
    match f {
        BinaryOp::Add => add(code, a, b),
        BinaryOp::Sub => sub(code, a, b),
        BinaryOp::Mul => mul(code, a, b),
        BinaryOp::Div => code.f("div.rn.f32", &[&a, &b]).into(),
        BinaryOp::Max => max(code, a, b),
        BinaryOp::Min => min(code, a, b),
        BinaryOp::Pow => pow(code, a, b),
        BinaryOp::LogAddExp => log_add_exp(code, a, b),
        BinaryOp::Eq => truth(code, "setp.eq.f32"),
        BinaryOp::Gt => truth(code, "setp.gt.f32"),
    }
}

/// One element of dropout's mask: [`hgnnc_ir::random::mask_element`]. `key` is a register of 64 bits, `index` as well.
pub fn mask(code: &mut Code, key: Reg, index: Reg, rate: f64) -> Val {
    use hgnnc_ir::random::{keep_scale, keep_threshold};
    let scale = Val::Imm(keep_scale(rate) as f32);
    if rate <= 0.0 {
        return scale;
    }
    let halves = |code: &mut Code, wide: Reg| {
        let (low, high) = (code.fresh(Class::U32), code.fresh(Class::U32));
        code.line(format_args!("mov.b64 {{{low}, {high}}}, {wide};"));
        (low, high)
    };
    let (key_low, key_high) = halves(code, key);
    let (low, high) = halves(code, index);
    let first = code.u("xor.b32", &[&low, &key_low]);
    let first = mix(code, first);
    let first = code.u("add.u32", &[&first, &key_high]);
    let bits = code.u("mad.lo.u32", &[&high, &0x9e37_79b9u32, &first]);
    let bits = mix(code, bits);
    let kept = code.p("setp.lt.u32", &[&bits, &keep_threshold(rate)]);
    select(code, scale, Val::ZERO, kept)
}

/// A round of the finaliser.
fn mix(code: &mut Code, x: Reg) -> Reg {
    let mut x = x;
    for (shift, factor) in [(16u32, Some(0x7feb_352du32)), (15, Some(0x846c_a68b)), (16, None)] {
        let high = code.u("shr.u32", &[&x, &shift]);
        x = code.u("xor.b32", &[&x, &high]);
        if let Some(factor) = factor {
            x = code.u("mul.lo.u32", &[&x, &factor]);
        }
    }
    x
}
