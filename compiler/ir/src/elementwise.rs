//! Element-wise functions, and all facts about each of them in one place: name, meaning, cost.
//!
//! Beside this file, a function has a derivative (`passes::differentiate`) and a line of arithmetic in each back end.

/// Element-wise functions of one operand `x`.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "the variants are standard functions")]
pub enum UnaryOp {
    Neg,
    Exp,
    /// Natural logarithm; -∞ at 0, NaN below.
    Log,
    /// `ln(1 + x)`, exact near 0; -∞ at -1, NaN below.
    Log1p,
    /// Evaluates `ln(1 + e^x)` without overflow.
    Softplus,
    Sqrt,
    /// Reciprocal, `1 / x`; ±∞ at ±0.
    Recip,
    Abs,
    /// -1, 0 or 1 by the sign of `x`.
    Sign,
    /// 1 where `x > 0`, else 0.
    Step,
    Tanh,
    /// The logistic function `1 / (1 + e^-x)`.
    Sigmoid,
    Relu,
    /// `x` where positive, else `slope · x`.
    LeakyRelu(f64),
    /// `x` where positive, else `e^x - 1` (Clevert et al. 2016).
    Elu,
    /// `x Φ(x)` with the normal distribution function (Hendrycks & Gimpel 2016, exact form).
    Gelu,
    /// The Gauss error function `erf x`.
    Erf,
    /// The largest integer `≤ x`. Its derivative is 0 wherever it exists.
    Floor,
    /// The cosine of `x` in radians.
    Cos,
    /// The sine of `x` in radians.
    Sin,
}

/// Element-wise functions of two operands `a` and `b`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the variants are standard functions")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Pow,
    /// `ln(e^a + e^b)` without overflow; -∞ if both operands are -∞.
    LogAddExp,
    /// 1 where `a == b`, else 0.
    Eq,
    /// 1 where `a > b`, else 0.
    Gt,
}

/// Facts about an element-wise function.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Facts {
    /// The mnemonic in text formats, without a constant.
    pub name: &'static str,
    /// Is the result 0 where all operands are 0, so that sparse operands stay sparse?
    pub keeps_zeros: bool,
    /// Simple operations and special functions for one element, in the cost model of kernels.
    pub work: (f64, f64),
    /// Vector instructions of a processor, and cycles per element that do not depend on the width of vectors (division
    /// and square root).
    pub instructions: (f64, f64),
    /// Is machine code generated for it?
    pub has_code: bool,
}

/// Facts of a function with machine code that keeps zeros.
const fn zero(name: &'static str, work: (f64, f64), instructions: (f64, f64)) -> Facts {
    Facts { name, keeps_zeros: true, work, instructions, has_code: true }
}

/// Facts of a function with machine code that does not keep zeros.
const fn other(name: &'static str, work: (f64, f64), instructions: (f64, f64)) -> Facts {
    Facts { name, keeps_zeros: false, work, instructions, has_code: true }
}

impl UnaryOp {
    /// The facts about the function.
    pub fn facts(self) -> Facts {
        match self {
            UnaryOp::Neg => zero("neg", (1.0, 0.0), (1.0, 0.0)),
            UnaryOp::Exp => other("exp", (0.0, 1.0), (24.0, 0.0)),
            UnaryOp::Log => other("log", (0.0, 1.0), (32.0, 1.0)),
            // A logarithm, and the rounding error of `1 + x` divided by it.
            UnaryOp::Log1p => zero("log1p", (4.0, 2.0), (38.0, 2.0)),
            // `max(x, 0) + ln(1 + e^-|x|)`
            UnaryOp::Softplus => other("softplus", (3.0, 2.0), (62.0, 1.0)),
            UnaryOp::Sqrt => zero("sqrt", (0.0, 1.0), (1.0, 1.0)),
            UnaryOp::Recip => other("recip", (0.0, 1.0), (1.0, 1.0)),
            UnaryOp::Abs => zero("abs", (1.0, 0.0), (1.0, 0.0)),
            UnaryOp::Sign => zero("sign", (1.0, 0.0), (4.0, 0.0)),
            UnaryOp::Step => zero("step", (1.0, 0.0), (2.0, 0.0)),
            UnaryOp::Tanh => zero("tanh", (0.0, 1.0), (38.0, 1.0)),
            // An exponential and a division.
            UnaryOp::Sigmoid => other("sigmoid", (1.0, 2.0), (32.0, 1.0)),
            UnaryOp::Relu => zero("relu", (1.0, 0.0), (2.0, 0.0)),
            // A product and a selection.
            UnaryOp::LeakyRelu(_) => zero("leaky_relu", (2.0, 0.0), (4.0, 0.0)),
            // `e^x - 1`, and a selection.
            UnaryOp::Elu => zero("elu", (1.0, 1.0), (24.0, 0.0)),
            // `x / 2 · (1 + erf(x / √2))`
            UnaryOp::Gelu => zero("gelu", (4.0, 1.0), (50.0, 0.0)),
            UnaryOp::Erf => zero("erf", (0.0, 1.0), (50.0, 0.0)),
            UnaryOp::Floor => Facts { has_code: false, ..zero("floor", (1.0, 0.0), (1.0, 0.0)) },
            // Whole turns are taken off before the special function.
            UnaryOp::Cos => Facts { has_code: false, ..other("cos", (4.0, 1.0), (100.0, 0.0)) },
            UnaryOp::Sin => Facts { has_code: false, ..zero("sin", (5.0, 1.0), (100.0, 0.0)) },
        }
    }

    /// The mnemonic in the text format. [`UnaryOp::LeakyRelu`] prints its slope as well.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Does `f(0) = 0` hold, so that sparse operands stay sparse?
    pub fn preserves_zero(self) -> bool {
        self.facts().keeps_zeros
    }

    /// All functions without constant parameters.
    pub const PLAIN: [UnaryOp; 19] = [
        UnaryOp::Neg,
        UnaryOp::Exp,
        UnaryOp::Log,
        UnaryOp::Log1p,
        UnaryOp::Softplus,
        UnaryOp::Sqrt,
        UnaryOp::Recip,
        UnaryOp::Abs,
        UnaryOp::Sign,
        UnaryOp::Step,
        UnaryOp::Tanh,
        UnaryOp::Sigmoid,
        UnaryOp::Relu,
        UnaryOp::Elu,
        UnaryOp::Gelu,
        UnaryOp::Erf,
        UnaryOp::Floor,
        UnaryOp::Cos,
        UnaryOp::Sin,
    ];
}

impl BinaryOp {
    /// The facts about the function. Zeros are kept where both operands are 0.
    pub fn facts(self) -> Facts {
        match self {
            BinaryOp::Add => zero("add", (1.0, 0.0), (1.0, 0.0)),
            BinaryOp::Sub => zero("sub", (1.0, 0.0), (1.0, 0.0)),
            BinaryOp::Mul => zero("mul", (1.0, 0.0), (1.0, 0.0)),
            BinaryOp::Div => other("div", (0.0, 1.0), (1.0, 1.0)),
            BinaryOp::Max => zero("max", (1.0, 0.0), (4.0, 0.0)),
            BinaryOp::Min => zero("min", (1.0, 0.0), (4.0, 0.0)),
            // A logarithm, a product and an exponential, in f64 by a call of the C library. Code is generated for squares,
            // which are products.
            BinaryOp::Pow => Facts { has_code: false, ..other("pow", (1.0, 2.0), (1.0, 0.0)) },
            // The larger, plus `ln(1 + e^-|difference|)`.
            BinaryOp::LogAddExp => other("log_add_exp", (4.0, 2.0), (64.0, 1.0)),
            BinaryOp::Eq => other("eq", (1.0, 0.0), (2.0, 0.0)),
            BinaryOp::Gt => zero("gt", (1.0, 0.0), (2.0, 0.0)),
        }
    }

    /// The mnemonic in the text format.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Does `0 ∘ 0 = 0` hold, so that two sparse operands stay sparse?
    pub fn zero_with_zero(self) -> bool {
        self.facts().keeps_zeros
    }

    /// All functions, in the order of the enum.
    pub const ALL: [BinaryOp; 10] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Max,
        BinaryOp::Min,
        BinaryOp::Pow,
        BinaryOp::LogAddExp,
        BinaryOp::Eq,
        BinaryOp::Gt,
    ];
}

/// An element-wise function of one operand, in f64.
pub fn unary(f: UnaryOp, x: f64) -> f64 {
    match f {
        UnaryOp::Neg => -x,
        UnaryOp::Exp => x.exp(),
        UnaryOp::Log => x.ln(),
        UnaryOp::Log1p => x.ln_1p(),
        UnaryOp::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        UnaryOp::Sqrt => x.sqrt(),
        UnaryOp::Recip => 1.0 / x,
        UnaryOp::Abs => x.abs(),
        UnaryOp::Sign => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        UnaryOp::Step => f64::from(x > 0.0),
        UnaryOp::Tanh => x.tanh(),
        UnaryOp::Sigmoid => {
            if x >= 0.0 {
                1.0 / (1.0 + (-x).exp())
            } else {
                x.exp() / (1.0 + x.exp())
            }
        }
        UnaryOp::Relu => x.max(0.0),
        UnaryOp::LeakyRelu(slope) => {
            if x > 0.0 {
                x
            } else {
                slope * x
            }
        }
        UnaryOp::Elu => {
            if x > 0.0 {
                x
            } else {
                x.exp_m1()
            }
        }
        UnaryOp::Gelu => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
        UnaryOp::Erf => erf(x),
        UnaryOp::Floor => x.floor(),
        UnaryOp::Cos => x.cos(),
        UnaryOp::Sin => x.sin(),
    }
}

/// An element-wise function of two operands, in f64.
pub fn binary(f: BinaryOp, a: f64, b: f64) -> f64 {
    match f {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        BinaryOp::Max => a.max(b),
        BinaryOp::Min => a.min(b),
        BinaryOp::Pow => a.powf(b),
        BinaryOp::LogAddExp => {
            let largest = a.max(b);
            if largest.is_infinite() { largest } else { largest + (-(a - b).abs()).exp().ln_1p() }
        }
        BinaryOp::Eq => f64::from(a == b),
        BinaryOp::Gt => f64::from(a > b),
    }
}

/// The error function by its series with positive terms (Abramowitz & Stegun 7.1.6),
/// `2/√π · e^(-x²) · Σ 2ⁿ x^(2n+1) / (2n+1)!!`, which cancels nowhere. From 6 on it is 1 in f64.
fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x.abs() >= 6.0 {
        return x.signum();
    }
    let mut term = x;
    let mut sum = x;
    let mut n = 0.0;
    while term.abs() > sum.abs() * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn erf_meets_its_table() {
        // Abramowitz & Stegun, table 7.1.
        for (x, y) in [(0.5, 0.520_499_877_8), (1.0, 0.842_700_792_9), (2.0, 0.995_322_265_0), (4.0, 0.999_999_984_6)] {
            assert!((erf(x) - y).abs() < 1e-10, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!((erf(0.0), erf(9.0), erf(f64::NEG_INFINITY)), (0.0, 1.0, -1.0));
    }
}
