//! Derivatives of element-wise functions.
//!
//! A rule computes what is added to the gradient of one operand, before broadcasting is undone: the caller sums over
//! the repetitions of the operand. Derivatives are written in terms of the result `y` where possible, which the forward
//! pass has already. A new function gets its rule here.

use hgnnc_ir::{BinaryOp, Op, UnaryOp, Value};

use super::{Built, Tape};

/// Larger than no finite f32 and still finite, the guard against `-∞ - -∞`.
const LOWEST: f64 = f32::MIN as f64;

impl Tape<'_> {
    /// dx of `y = f(x)`: `g f'(x)`, where possible in terms of `y`, which the forward pass has already.
    pub(super) fn unary_rule(&mut self, f: UnaryOp, x: Value, y: Value, g: Value) -> Built {
        use BinaryOp::{Add, Div, Min, Mul, Sub};
        let slope = match f {
            UnaryOp::Neg => return self.flow.push(Op::Unary(UnaryOp::Neg), &[g]),
            UnaryOp::Exp => y,
            UnaryOp::Log => return self.flow.push(Op::Binary(Div), &[g, x]),
            // (ln(1 + x))' = 1 / (1 + x)
            UnaryOp::Log1p => {
                let one = self.ones_like(x)?;
                let more = self.flow.push(Op::Binary(Add), &[x, one])?;
                return self.flow.push(Op::Binary(Div), &[g, more]);
            }
            // (ln(1 + e^x))' = e^x / (1 + e^x)
            UnaryOp::Softplus => self.flow.push(Op::Unary(UnaryOp::Sigmoid), &[x])?,
            // (√x)' = 1 / (2√x)
            UnaryOp::Sqrt => {
                let half = self.with_constant(Mul, g, 0.5)?;
                return self.flow.push(Op::Binary(Div), &[half, y]);
            }
            // (1/x)' = -1/x² = -y²
            UnaryOp::Recip => {
                let square = self.flow.push(Op::Binary(Mul), &[y, y])?;
                self.flow.push(Op::Unary(UnaryOp::Neg), &[square])?
            }
            // 0 at 0, the middle of the subgradients.
            UnaryOp::Abs => self.flow.push(Op::Unary(UnaryOp::Sign), &[x])?,
            // 1 - y²
            UnaryOp::Tanh => {
                let square = self.flow.push(Op::Binary(Mul), &[y, y])?;
                let one = self.ones_like(square)?;
                self.flow.push(Op::Binary(Sub), &[one, square])?
            }
            // y (1 - y)
            UnaryOp::Sigmoid => {
                let one = self.flow.constant(1.0);
                let other = self.flow.push(Op::Binary(Sub), &[one, y])?;
                self.flow.push(Op::Binary(Mul), &[y, other])?
            }
            // 1 where x > 0, which is where y > 0; 0 at 0.
            UnaryOp::Relu => self.flow.push(Op::Unary(UnaryOp::Step), &[y])?,
            // slope + (1 - slope) · [x > 0]
            UnaryOp::LeakyRelu(slope) => {
                let step = self.flow.push(Op::Unary(UnaryOp::Step), &[x])?;
                let above = self.with_constant(Mul, step, 1.0 - slope)?;
                let one = self.ones_like(above)?;
                let base = self.with_constant(Mul, one, slope)?;
                self.flow.push(Op::Binary(Add), &[above, base])?
            }
            // 1 where x > 0, else e^x = y + 1: in both cases min(y, 0) + 1.
            UnaryOp::Elu => {
                if self.flow.is_sparse(y) {
                    // min(y, 0) = y - max(y, 0), which keeps zeros.
                    let above = self.flow.push(Op::Unary(UnaryOp::Relu), &[y])?;
                    let below = self.flow.push(Op::Binary(Sub), &[y, above])?;
                    let one = self.ones_like(y)?;
                    self.flow.push(Op::Binary(Add), &[below, one])?
                } else {
                    let below = self.with_constant(Min, y, 0.0)?;
                    self.with_constant(Add, below, 1.0)?
                }
            }
            // (x Φ(x))' = Φ(x) + x φ(x), Φ(x) = (1 + erf(x/√2))/2, φ(x) = e^(-x²/2)/√(2π).
            UnaryOp::Gelu => {
                let scaled = self.with_constant(Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
                let erf = self.flow.push(Op::Unary(UnaryOp::Erf), &[scaled])?;
                let half = self.with_constant(Mul, erf, 0.5)?;
                let distribution = self.with_constant(Add, half, 0.5)?;
                let square = self.flow.push(Op::Binary(Mul), &[x, x])?;
                let exponent = self.with_constant(Mul, square, -0.5)?;
                let bell = self.flow.push(Op::Unary(UnaryOp::Exp), &[exponent])?;
                let density = self.with_constant(Mul, bell, 1.0 / std::f64::consts::TAU.sqrt())?;
                let second = self.flow.push(Op::Binary(Mul), &[x, density])?;
                self.flow.push(Op::Binary(Add), &[distribution, second])?
            }
            // 2/√π e^(-x²)
            UnaryOp::Erf => {
                let square = self.flow.push(Op::Binary(Mul), &[x, x])?;
                let exponent = self.flow.push(Op::Unary(UnaryOp::Neg), &[square])?;
                let bell = self.flow.push(Op::Unary(UnaryOp::Exp), &[exponent])?;
                self.with_constant(Mul, bell, std::f64::consts::FRAC_2_SQRT_PI)?
            }
            UnaryOp::Cos => {
                let sine = self.flow.push(Op::Unary(UnaryOp::Sin), &[x])?;
                self.flow.push(Op::Unary(UnaryOp::Neg), &[sine])?
            }
            UnaryOp::Sin => self.flow.push(Op::Unary(UnaryOp::Cos), &[x])?,
            UnaryOp::Sign | UnaryOp::Step | UnaryOp::Floor => {
                unreachable!("piecewise constant functions hand on no gradient")
            }
        };
        self.flow.push(Op::Binary(BinaryOp::Mul), &[g, slope])
    }

    /// The gradient of operand `i` of `y = a ∘ b`, before broadcasting is undone.
    pub(super) fn binary_rule(&mut self, f: BinaryOp, i: usize, a: Value, b: Value, y: Value, g: Value) -> Built {
        use BinaryOp::{Add, Div, Eq, Gt, Max, Mul, Sub};
        match f {
            Add => Ok(g),
            Sub if i == 0 => Ok(g),
            // Undo the broadcast first: there may be fewer elements to negate.
            Sub => {
                let sum = self.unbroadcast(g, b)?;
                self.flow.push(Op::Unary(UnaryOp::Neg), &[sum])
            }
            Mul => self.flow.push(Op::Binary(Mul), &[g, if i == 0 { b } else { a }]),
            // y = a / b: da = g / b, db = -g a / b² = -(g y) / b. `b` is broadcast, so the broadcast is undone
            // before the division.
            Div if i == 0 => self.flow.push(Op::Binary(Div), &[g, b]),
            Div => {
                let product = self.flow.push(Op::Binary(Mul), &[g, y])?;
                let sum = self.unbroadcast(product, b)?;
                let quotient = self.flow.push(Op::Binary(Div), &[sum, b])?;
                self.flow.push(Op::Unary(UnaryOp::Neg), &[quotient])
            }
            // The winner takes the gradient; a tie shares it.
            Max | BinaryOp::Min => {
                let (mine, other) = if i == 0 { (a, b) } else { (b, a) };
                let operands = if f == Max { [mine, other] } else { [other, mine] };
                let won = self.flow.push(Op::Binary(Gt), &operands)?;
                let tie = self.flow.push(Op::Binary(Eq), &[a, b])?;
                let half = self.with_constant(Mul, tie, 0.5)?;
                let part = self.flow.push(Op::Binary(Add), &[won, half])?;
                self.flow.push(Op::Binary(Mul), &[g, part])
            }
            // y = a^b: da = g b a^(b-1).
            BinaryOp::Pow if i == 0 => {
                let power = match self.constant_of(b) {
                    Some(2.0) => a,
                    Some(exponent) => self.with_constant(BinaryOp::Pow, a, exponent - 1.0)?,
                    None => {
                        let one = self.flow.constant(1.0);
                        let less = self.flow.push(Op::Binary(Sub), &[b, one])?;
                        self.flow.push(Op::Binary(BinaryOp::Pow), &[a, less])?
                    }
                };
                let slope = self.flow.push(Op::Binary(Mul), &[power, b])?;
                self.flow.push(Op::Binary(Mul), &[g, slope])
            }
            // db = g y ln a, for positive a.
            BinaryOp::Pow => {
                let log = self.flow.push(Op::Unary(UnaryOp::Log), &[a])?;
                let slope = self.flow.push(Op::Binary(Mul), &[y, log])?;
                self.flow.push(Op::Binary(Mul), &[g, slope])
            }
            // y = ln(e^a + e^b): da = g e^(a-y). Two -∞ make y = -∞, as for a vertex without edges in two
            // graphs; with y raised to a finite number e^(-∞) = 0 comes out instead of NaN. A finite a is never
            // below that number, so nothing else changes.
            BinaryOp::LogAddExp => {
                let mine = if i == 0 { a } else { b };
                let finite = self.with_constant(Max, y, LOWEST)?;
                let weight = self.softmax(mine, finite)?;
                self.flow.push(Op::Binary(Mul), &[g, weight])
            }
            Eq | Gt => unreachable!("comparisons hand on no gradient"),
        }
    }

    /// The number that every element of a value is.
    fn constant_of(&self, mut v: Value) -> Option<f64> {
        loop {
            let data = self.flow.value(v);
            match data.op {
                Op::Const(number) => return Some(number),
                Op::Broadcast(_) => v = data.args[0],
                _ => return None,
            }
        }
    }
}
