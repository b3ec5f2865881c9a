//! Math functions on vectors of four lanes. Each repeats the formula of the same name in the runtime's `math` module
//! operation by operation, so that generated and precompiled code agree bit by bit, which the runtime's tests check.

use cranelift_codegen::ir::condcodes::FloatCC;
use cranelift_codegen::ir::types::{F32X4, I32X4};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use cranelift_frontend::FunctionBuilder;
use hgnnc_ir::ops::{BinaryOp, UnaryOp};

/// Adding it to a float rounds to the nearest integer and leaves that integer in the low mantissa bits.
const ROUND: f32 = 12_582_912.0;
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// Emits operations on vectors of four lanes.
pub(crate) struct Lanes<'a, 'b> {
    pub b: &'a mut FunctionBuilder<'b>,
    /// Are a product and its sum rounded once?
    pub fma: bool,
}

impl Lanes<'_, '_> {
    /// Broadcasts a constant to all lanes.
    pub fn number(&mut self, x: f32) -> Value {
        self.words(x.to_bits())
    }

    fn words(&mut self, bits: u32) -> Value {
        let bytes: Vec<u8> = (0..4).flat_map(|_| bits.to_le_bytes()).collect();
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(F32X4, constant)
    }

    fn integers(&mut self, bits: u32) -> Value {
        let bytes: Vec<u8> = (0..4).flat_map(|_| bits.to_le_bytes()).collect();
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(I32X4, constant)
    }

    pub fn add(&mut self, x: Value, y: Value) -> Value {
        self.b.ins().fadd(x, y)
    }

    pub fn sub(&mut self, x: Value, y: Value) -> Value {
        self.b.ins().fsub(x, y)
    }

    pub fn mul(&mut self, x: Value, y: Value) -> Value {
        self.b.ins().fmul(x, y)
    }

    /// `a · b + c`, fused if [`Lanes::fma`] is set.
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        if self.fma {
            return self.b.ins().fma(a, b, c);
        }
        let product = self.mul(a, b);
        self.add(product, c)
    }

    fn integer_bits(&mut self, x: Value) -> Value {
        self.b.ins().bitcast(I32X4, MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little), x)
    }

    fn number_of(&mut self, x: Value) -> Value {
        self.b.ins().bitcast(F32X4, MemFlagsData::new().with_endianness(cranelift_codegen::ir::Endianness::Little), x)
    }

    /// A mask with all bits set in lanes where the comparison holds. On AArch64 Cranelift panics for the six conditions
    /// that depend on ordered or unordered; callers use an equivalent condition and swap the selected values.
    fn compare(&mut self, cc: FloatCC, x: Value, y: Value) -> Value {
        debug_assert!(
            !matches!(
                cc,
                FloatCC::OrderedNotEqual
                    | FloatCC::UnorderedOrEqual
                    | FloatCC::UnorderedOrLessThan
                    | FloatCC::UnorderedOrLessThanOrEqual
                    | FloatCC::UnorderedOrGreaterThan
                    | FloatCC::UnorderedOrGreaterThanOrEqual
            ),
            "vectors are compared by {cc} on some processors only"
        );
        self.b.ins().fcmp(cc, x, y)
    }

    /// A select: `x` where the mask is set, else `y`.
    fn select(&mut self, mask: Value, x: Value, y: Value) -> Value {
        let (x, y) = (self.integer_bits(x), self.integer_bits(y));
        let either = self.b.ins().bitselect(mask, x, y);
        self.number_of(either)
    }

    /// A select: `positive` where `x > 0`, else `otherwise`.
    pub fn choose(&mut self, x: Value, positive: f32, otherwise: f32) -> Value {
        let (zero, positive, otherwise) = (self.number(0.0), self.number(positive), self.number(otherwise));
        let above = self.compare(FloatCC::GreaterThan, x, zero);
        self.select(above, positive, otherwise)
    }

    /// `x` where the mask is set, else 0.
    pub fn keep(&mut self, mask: Value, x: Value) -> Value {
        let x = self.integer_bits(x);
        let kept = self.b.ins().band(mask, x);
        self.number_of(kept)
    }

    fn abs(&mut self, x: Value) -> Value {
        self.b.ins().fabs(x)
    }

    /// The magnitude of `x` with the sign of `sign`.
    fn copysign(&mut self, x: Value, sign: Value) -> Value {
        let (x, sign) = (self.abs(x), self.integer_bits(sign));
        let (x, bit) = (self.integer_bits(x), self.integers(1 << 31));
        let sign = self.b.ins().band(sign, bit);
        let both = self.b.ins().bor(x, sign);
        self.number_of(both)
    }

    /// The maximum; if one operand is NaN, the other one.
    pub fn larger(&mut self, x: Value, y: Value) -> Value {
        self.either(FloatCC::GreaterThan, x, y)
    }

    /// The minimum; if one operand is NaN, the other one.
    pub fn smaller(&mut self, x: Value, y: Value) -> Value {
        self.either(FloatCC::LessThan, x, y)
    }

    fn either(&mut self, cc: FloatCC, x: Value, y: Value) -> Value {
        let wins = self.compare(cc, x, y);
        let nan = self.compare(FloatCC::Unordered, y, y);
        let first = self.b.ins().bor(wins, nan);
        self.select(first, x, y)
    }

    /// A select: `x` where it is infinite, else `y`.
    pub fn unless_infinite(&mut self, x: Value, y: Value) -> Value {
        let (magnitude, infinity) = (self.abs(x), self.number(f32::INFINITY));
        let infinite = self.compare(FloatCC::Equal, magnitude, infinity);
        self.select(infinite, x, y)
    }

    /// A polynomial by Horner's rule, from the highest coefficient.
    fn horner(&mut self, x: Value, coefficients: &[f32]) -> Value {
        let mut p = self.number(coefficients[0]);
        for &c in &coefficients[1..] {
            let c = self.number(c);
            p = self.fma(p, x, c);
        }
        p
    }

    fn expm1_reduced(&mut self, r: Value) -> Value {
        let p = self.horner(r, &[1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5]);
        let pr = self.mul(p, r);
        self.fma(pr, r, r)
    }

    /// Range reduction: `(n, r)` such that `x = n ln 2 + r`.
    fn reduce(&mut self, x: Value) -> (Value, Value) {
        let (log2e, round) = (self.number(std::f32::consts::LOG2_E), self.number(ROUND));
        let shifted = self.fma(x, log2e, round);
        let n = self.sub(shifted, round);
        let (high, low) = (self.number(-LN2_HIGH), self.number(-LN2_LOW));
        let r = self.fma(n, high, x);
        let r = self.fma(n, low, r);
        let (bits, base) = (self.integer_bits(shifted), self.integers(ROUND.to_bits()));
        (self.b.ins().isub(bits, base), r)
    }

    fn power_of_two(&mut self, n: Value) -> Value {
        let bias = self.integers(127);
        let biased = self.b.ins().iadd(n, bias);
        let bits = self.b.ins().ishl_imm_u(biased, 23);
        self.number_of(bits)
    }

    /// Clamps `x` to the limit on one side.
    fn limit(&mut self, cc: FloatCC, x: Value, limit: f32) -> Value {
        let limit = self.number(limit);
        let beyond = self.compare(cc, x, limit);
        self.select(beyond, limit, x)
    }

    pub fn exp(&mut self, x: Value) -> Value {
        let x = self.limit(FloatCC::GreaterThan, x, 89.0);
        let x = self.limit(FloatCC::LessThan, x, -104.0);
        let (n, r) = self.reduce(x);
        let half = self.b.ins().sshr_imm_u(n, 1);
        let rest = self.b.ins().isub(n, half);
        let (p, one) = (self.expm1_reduced(r), self.number(1.0));
        let value = self.add(one, p);
        let (first, second) = (self.power_of_two(half), self.power_of_two(rest));
        let value = self.mul(value, first);
        self.mul(value, second)
    }

    fn expm1_neg(&mut self, x: Value) -> Value {
        let x = self.limit(FloatCC::LessThan, x, -30.0);
        let (n, r) = self.reduce(x);
        let scale = self.power_of_two(n);
        let one = self.number(1.0);
        let (p, less) = (self.expm1_reduced(r), self.sub(scale, one));
        self.fma(p, scale, less)
    }

    pub fn ln(&mut self, x: Value) -> Value {
        let (smallest, factor) = (self.number(f32::MIN_POSITIVE), self.number(8_388_608.0));
        let subnormal = self.compare(FloatCC::LessThan, x, smallest);
        let enlarged = self.mul(x, factor);
        let scaled = self.select(subnormal, enlarged, x);
        let bits = self.integer_bits(scaled);
        let root = self.integers(0x3f35_04f3);
        let shifted = self.b.ins().isub(bits, root);
        let exponent = self.b.ins().sshr_imm_u(shifted, 23);
        let less = self.integers(23);
        let less = self.b.ins().band(subnormal, less);
        let exponent = self.b.ins().isub(exponent, less);
        let mantissa = self.integers(0x007f_ffff);
        let low = self.b.ins().band(shifted, mantissa);
        let low = self.b.ins().iadd(low, root);
        let (m, one) = (self.number_of(low), self.number(1.0));
        let m = self.sub(m, one);
        let z = self.mul(m, m);
        let p = self.horner(
            m,
            &[
                7.037_683_6e-2,
                -1.151_461e-1,
                1.167_699_9e-1,
                -1.242_014_1e-1,
                1.424_932_3e-1,
                -1.666_805_8e-1,
                2.000_071_5e-1,
                -2.499_999_4e-1,
                3.333_333e-1,
            ],
        );
        let e = self.b.ins().fcvt_from_sint(F32X4, exponent);
        let pm = self.mul(p, m);
        let pmz = self.mul(pm, z);
        let (low, half, high) = (self.number(LN2_LOW), self.number(-0.5), self.number(LN2_HIGH));
        let tail = self.fma(e, low, pmz);
        let tail = self.fma(z, half, tail);
        let sum = self.add(m, tail);
        let result = self.fma(e, high, sum);
        let (inf, zero) = (self.number(f32::INFINITY), self.number(0.0));
        let is_inf = self.compare(FloatCC::Equal, x, inf);
        let result = self.select(is_inf, x, result);
        let (is_zero, lowest) = (self.compare(FloatCC::Equal, x, zero), self.number(f32::NEG_INFINITY));
        let result = self.select(is_zero, lowest, result);
        let (inside, nan) = (self.compare(FloatCC::GreaterThanOrEqual, x, zero), self.number(f32::NAN));
        self.select(inside, result, nan)
    }

    fn ln_1p_unit(&mut self, t: Value) -> Value {
        let one = self.number(1.0);
        let u = self.add(one, t);
        let low = self.sub(u, one);
        let lost = self.sub(t, low);
        let (ln, lost) = (self.ln(u), self.b.ins().fdiv(lost, u));
        self.add(ln, lost)
    }

    fn ln_1p(&mut self, x: Value) -> Value {
        let one = self.number(1.0);
        let u = self.add(one, x);
        let low = self.sub(u, one);
        let lost = self.sub(x, low);
        let (ln, relative) = (self.ln(u), self.b.ins().fdiv(lost, u));
        let sum = self.add(ln, relative);
        let (zero, inf) = (self.number(0.0), self.number(f32::INFINITY));
        let (is_exact, is_inf) = (self.compare(FloatCC::Equal, lost, zero), self.compare(FloatCC::Equal, u, inf));
        let sum = self.select(is_exact, ln, sum);
        self.select(is_inf, ln, sum)
    }

    fn exp_of_minus_abs(&mut self, x: Value) -> Value {
        let magnitude = self.abs(x);
        let negative = self.b.ins().fneg(magnitude);
        self.exp(negative)
    }

    fn softplus(&mut self, x: Value) -> Value {
        let zero = self.number(0.0);
        let above = self.compare(FloatCC::GreaterThan, x, zero);
        let positive = self.keep(above, x);
        let e = self.exp_of_minus_abs(x);
        let rest = self.ln_1p_unit(e);
        self.add(positive, rest)
    }

    fn log_add_exp(&mut self, x: Value, y: Value) -> Value {
        let greater = self.compare(FloatCC::GreaterThan, x, y);
        let larger = self.select(greater, x, y);
        let difference = self.sub(x, y);
        let magnitude = self.abs(difference);
        let negative = self.b.ins().fneg(magnitude);
        let (same, zero) = (self.compare(FloatCC::Equal, x, y), self.number(0.0));
        let distance = self.select(same, zero, negative);
        let e = self.exp(distance);
        let rest = self.ln_1p_unit(e);
        self.add(larger, rest)
    }

    fn sigmoid(&mut self, x: Value) -> Value {
        let e = self.exp_of_minus_abs(x);
        let (one, zero) = (self.number(1.0), self.number(0.0));
        let below = self.compare(FloatCC::LessThan, x, zero);
        let (top, bottom) = (self.select(below, e, one), self.add(one, e));
        self.b.ins().fdiv(top, bottom)
    }

    fn tanh(&mut self, x: Value) -> Value {
        let magnitude = self.abs(x);
        let z = self.mul(x, x);
        let p = self.horner(z, &[-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1]);
        let pz = self.mul(p, z);
        let small = self.fma(pz, x, x);
        let (one, two) = (self.number(1.0), self.number(2.0));
        let doubled = self.mul(two, magnitude);
        let e = self.exp(doubled);
        let bottom = self.add(e, one);
        let part = self.b.ins().fdiv(two, bottom);
        let large = self.sub(one, part);
        let large = self.copysign(large, x);
        let bound = self.number(0.625);
        let near = self.compare(FloatCC::LessThan, magnitude, bound);
        self.select(near, small, large)
    }

    /// The pair `(erf t, 1 - erf t)` for `t ≥ 0`.
    fn erf_parts(&mut self, t: Value) -> (Value, Value) {
        let s = self.mul(t, t);
        let p = self.horner(
            s,
            &[-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_25e-1, -3.761_253_4e-1, 1.283_791_7e-1],
        );
        let near = self.fma(p, t, t);
        let t = self.limit(FloatCC::GreaterThan, t, 4.5);
        let s = self.mul(t, t);
        let r = self.horner(t, &[-1.728_534_7e-5, 3.831_971_3e-4]);
        let u = self.horner(t, &[-3.883_964_4e-3, 2.425_462_2e-2]);
        let mut r = self.fma(r, s, u);
        for c in [-1.067_778_8e-1, -6.348_467e-1, -1.287_175_1e-1] {
            let c = self.number(c);
            r = self.fma(r, t, c);
        }
        let negative = self.b.ins().fneg(t);
        let r = self.fma(r, t, negative);
        let rest = self.exp(r);
        let (one, bound) = (self.number(1.0), self.number(0.927_734_4));
        let far = self.compare(FloatCC::GreaterThan, t, bound);
        let (complement, near_rest) = (self.sub(one, rest), self.sub(one, near));
        (self.select(far, complement, near), self.select(far, rest, near_rest))
    }

    fn erf(&mut self, x: Value) -> Value {
        let magnitude = self.abs(x);
        let (erf, _) = self.erf_parts(magnitude);
        self.copysign(erf, x)
    }

    fn gelu(&mut self, x: Value) -> Value {
        let (magnitude, factor) = (self.abs(x), self.number(std::f32::consts::FRAC_1_SQRT_2));
        let t = self.mul(magnitude, factor);
        let (_, rest) = self.erf_parts(t);
        let (half, one, zero) = (self.number(0.5), self.number(1.0), self.number(0.0));
        let tail = self.mul(half, rest);
        let (above, body) = (self.compare(FloatCC::GreaterThan, x, zero), self.sub(one, tail));
        let phi = self.select(above, body, tail);
        let (product, bound) = (self.mul(x, phi), self.number(-20.0));
        let (low, negative_zero) = (self.compare(FloatCC::LessThan, x, bound), self.number(-0.0));
        self.select(low, negative_zero, product)
    }

    fn sign(&mut self, x: Value) -> Value {
        let (one, zero) = (self.number(1.0), self.number(0.0));
        let (above, below) = (self.compare(FloatCC::GreaterThan, x, zero), self.compare(FloatCC::LessThan, x, zero));
        let (up, down) = (self.keep(above, one), self.keep(below, one));
        let sign = self.sub(up, down);
        let nan = self.compare(FloatCC::Unordered, x, x);
        self.select(nan, x, sign)
    }

    /// 1.0 where the comparison holds, else 0.0.
    fn indicate(&mut self, cc: FloatCC, x: Value, y: Value) -> Value {
        let (holds, one) = (self.compare(cc, x, y), self.number(1.0));
        self.keep(holds, one)
    }

    /// `f(x)`; `None` if the function is not generated ([`generates_unary`]).
    pub fn unary(&mut self, f: UnaryOp, x: Value) -> Option<Value> {
        let zero = |lanes: &mut Self| lanes.number(0.0);
        Some(match f {
            UnaryOp::Neg => self.b.ins().fneg(x),
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Log => self.ln(x),
            UnaryOp::Log1p => self.ln_1p(x),
            UnaryOp::Softplus => self.softplus(x),
            UnaryOp::Sqrt => self.b.ins().sqrt(x),
            UnaryOp::Recip => {
                let one = self.number(1.0);
                self.b.ins().fdiv(one, x)
            }
            UnaryOp::Abs => self.abs(x),
            UnaryOp::Sign => self.sign(x),
            UnaryOp::Step => {
                let zero = zero(self);
                self.indicate(FloatCC::GreaterThan, x, zero)
            }
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Sigmoid => self.sigmoid(x),
            UnaryOp::Relu => {
                let zero = zero(self);
                let below = self.compare(FloatCC::LessThan, x, zero);
                self.select(below, zero, x)
            }
            UnaryOp::LeakyRelu(slope) => {
                let (zero, slope) = (zero(self), self.number(slope as f32));
                let (above, scaled) = (self.compare(FloatCC::GreaterThan, x, zero), self.mul(slope, x));
                self.select(above, x, scaled)
            }
            UnaryOp::Elu => {
                let zero = zero(self);
                let (above, rest) = (self.compare(FloatCC::GreaterThan, x, zero), self.expm1_neg(x));
                self.select(above, x, rest)
            }
            UnaryOp::Gelu => self.gelu(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Floor | UnaryOp::Cos | UnaryOp::Sin => return None,
        })
    }

    /// `x ∘ y`; `None` if the function is not generated ([`generates_binary`]).
    pub fn binary(&mut self, f: BinaryOp, x: Value, y: Value) -> Option<Value> {
        Some(match f {
            BinaryOp::Add => self.add(x, y),
            BinaryOp::Sub => self.sub(x, y),
            BinaryOp::Mul => self.mul(x, y),
            BinaryOp::Div => self.b.ins().fdiv(x, y),
            BinaryOp::Max => self.larger(x, y),
            BinaryOp::Min => self.smaller(x, y),
            BinaryOp::LogAddExp => self.log_add_exp(x, y),
            BinaryOp::Eq => self.indicate(FloatCC::Equal, x, y),
            BinaryOp::Gt => self.indicate(FloatCC::GreaterThan, x, y),
            BinaryOp::Pow => return None,
        })
    }
}
