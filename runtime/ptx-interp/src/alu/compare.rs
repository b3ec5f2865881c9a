//! Comparisons, `testp`, and `slct`.

use crate::numeric::{flush, from_bf16, from_f16};
use crate::registers::{Operands, Registers, Step, Test};
use crate::types::Type;

macro_rules! test {
    ($f:expr) => {{
        fn test(r: &Registers, o: &Operands, mask: u32) -> u32 {
            r.test(o, mask, $f)
        }
        test as Test
    }};
}

/// Ordered comparisons of a Rust type, converted from bits by `$get`.
macro_rules! ordered {
    ($name:expr, $get:expr) => {
        match $name {
            "eq" => test!(|a, b| $get(a) == $get(b)),
            "ne" => test!(|a, b| $get(a) != $get(b)),
            "lt" | "lo" => test!(|a, b| $get(a) < $get(b)),
            "le" | "ls" => test!(|a, b| $get(a) <= $get(b)),
            "gt" | "hi" => test!(|a, b| $get(a) > $get(b)),
            "ge" | "hs" => test!(|a, b| $get(a) >= $get(b)),
            _ => return None,
        }
    };
}

/// Floating-point comparisons; unordered ones (suffix `u`) hold if an operand is NaN.
macro_rules! real {
    ($name:expr, $get:expr) => {
        match $name {
            "ne" => test!(|a, b| $get(a) < $get(b) || $get(a) > $get(b)),
            "equ" => test!(|a, b| !($get(a) < $get(b) || $get(a) > $get(b))),
            "neu" => test!(|a, b| $get(a) != $get(b)),
            "ltu" => test!(|a, b| !($get(a) >= $get(b))),
            "leu" => test!(|a, b| !($get(a) > $get(b))),
            "gtu" => test!(|a, b| !($get(a) <= $get(b))),
            "geu" => test!(|a, b| !($get(a) < $get(b))),
            "num" => test!(|a, b| !$get(a).is_nan() && !$get(b).is_nan()),
            "nan" => test!(|a, b| $get(a).is_nan() || $get(b).is_nan()),
            "lo" | "ls" | "hi" | "hs" => return None,
            name => ordered!(name, $get),
        }
    };
}

/// The comparison with this name (`eq`, `ltu`, …) of values of a type.
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "that NaN compares as neither is the meaning")]
pub(crate) fn comparison(name: &str, ty: Type, ftz: bool) -> Option<Test> {
    let unsigned_name = matches!(name, "lo" | "ls" | "hi" | "hs");
    Some(match ty {
        Type::B16 | Type::B32 | Type::B64 if !matches!(name, "eq" | "ne") => return None,
        Type::S16 | Type::S32 | Type::S64 if unsigned_name => return None,
        Type::U16 | Type::B16 => ordered!(name, |x: u64| x as u16),
        Type::U32 | Type::B32 => ordered!(name, |x: u64| x as u32),
        Type::U64 | Type::B64 => ordered!(name, |x: u64| x),
        Type::S16 => ordered!(name, |x: u64| x as i16),
        Type::S32 => ordered!(name, |x: u64| x as i32),
        Type::S64 => ordered!(name, |x: u64| x as i64),
        Type::F32 if ftz => real!(name, |x: u64| flush(f32::from_bits(x as u32))),
        Type::F32 => real!(name, |x: u64| f32::from_bits(x as u32)),
        Type::F64 => real!(name, f64::from_bits),
        Type::F16 => real!(name, |x: u64| from_f16(x as u16)),
        Type::Bf16 => real!(name, |x: u64| from_bf16(x as u16)),
        _ => return None,
    })
}

/// `testp`; ignores the second operand.
pub(crate) fn property(name: &str, ty: Type) -> Option<Test> {
    macro_rules! properties {
        ($get:expr) => {
            match name {
                "finite" => test!(|a, _| $get(a).is_finite()),
                "infinite" => test!(|a, _| $get(a).is_infinite()),
                "number" => test!(|a, _| !$get(a).is_nan()),
                "notanumber" => test!(|a, _| $get(a).is_nan()),
                "normal" => test!(|a, _| $get(a).is_normal()),
                "subnormal" => test!(|a, _| $get(a).is_subnormal()),
                _ => return None,
            }
        };
    }
    Some(match ty {
        Type::F32 => properties!(|x: u64| f32::from_bits(x as u32)),
        Type::F64 => properties!(f64::from_bits),
        _ => return None,
    })
}

/// `slct`: the first value if the third operand, of type `by`, is at least 0, else the second.
pub(crate) fn select_by_sign(by: Type, ftz: bool) -> Option<Step> {
    Some(match by {
        Type::S32 => step3!(|a, b, c| if (c as i32) >= 0 { a } else { b }),
        // -0 counts as 0, and NaN as negative.
        Type::F32 if ftz => step3!(|a, b, c| if flush(f32::from_bits(c as u32)) >= 0.0 { a } else { b }),
        Type::F32 => step3!(|a, b, c| if f32::from_bits(c as u32) >= 0.0 { a } else { b }),
        _ => return None,
    })
}
