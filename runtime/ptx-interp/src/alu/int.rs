//! Integer and bit operations.

use crate::registers::Step;
use crate::types::Type;

/// A machine integer in the low bits of a register.
pub(crate) trait Int: Copy + Ord {
    const BITS: u32;
    const SIGNED: bool;
    const MAX: i128;
    const MIN: i128;
    fn get(bits: u64) -> Self;
    fn put(self) -> u64;
    fn wide(self) -> i128;
    fn cut(value: i128) -> Self;
}

macro_rules! int {
    ($($ty:ident as $unsigned:ident),*) => {$(
        impl Int for $ty {
            const BITS: u32 = $ty::BITS;
            const SIGNED: bool = $ty::MIN != 0;
            const MAX: i128 = $ty::MAX as i128;
            const MIN: i128 = $ty::MIN as i128;
            #[inline(always)]
            fn get(bits: u64) -> Self { bits as $ty }
            #[inline(always)]
            fn put(self) -> u64 { self as $unsigned as u64 }
            #[inline(always)]
            fn wide(self) -> i128 { self as i128 }
            #[inline(always)]
            fn cut(value: i128) -> Self { value as $ty }
        }
    )*};
}

int!(u16 as u16, i16 as u16, u32 as u32, i32 as u32, u64 as u64, i64 as u64);

/// Instantiates a function for a type; untyped bits count as unsigned.
macro_rules! by_type {
    ($lift:ident, $ty:expr, $f:ident) => {
        Some(match $ty {
            Type::U16 | Type::B16 => $lift!($f::<u16>),
            Type::S16 => $lift!($f::<i16>),
            Type::U32 | Type::B32 => $lift!($f::<u32>),
            Type::S32 => $lift!($f::<i32>),
            Type::U64 | Type::B64 => $lift!($f::<u64>),
            Type::S64 => $lift!($f::<i64>),
            _ => return None,
        })
    };
}

/// The operation of one operand.
pub(crate) fn unary(name: &str, ty: Type) -> Option<Step> {
    match name {
        "abs" => by_type!(step1, ty, abs),
        "neg" => by_type!(step1, ty, neg),
        "not" => by_type!(step1, ty, not),
        "cnot" => by_type!(step1, ty, cnot),
        "popc" => by_type!(step1, ty, popc),
        "clz" => by_type!(step1, ty, clz),
        "brev" => by_type!(step1, ty, brev),
        _ => None,
    }
}

/// The operation of two operands. `mul` and `mad` have their part in the name: `mul.lo`.
pub(crate) fn binary(name: &str, ty: Type) -> Option<Step> {
    match name {
        // The upper bits are undefined, so one width of additions serves all.
        "add" => Some(if ty.bytes() == 8 {
            step2!(u64::wrapping_add)
        } else {
            step2!(|a, b| u64::from((a as u32).wrapping_add(b as u32)))
        }),
        "sub" => Some(if ty.bytes() == 8 {
            step2!(u64::wrapping_sub)
        } else {
            step2!(|a, b| u64::from((a as u32).wrapping_sub(b as u32)))
        }),
        "mul.lo" => Some(if ty.bytes() == 8 {
            step2!(u64::wrapping_mul)
        } else {
            step2!(|a, b| u64::from((a as u32).wrapping_mul(b as u32)))
        }),
        "and" => Some(step2!(|a, b| a & b)),
        "or" => Some(step2!(|a, b| a | b)),
        "xor" => Some(step2!(|a, b| a ^ b)),
        "add.sat" => by_type!(step2, ty, add_sat),
        "sub.sat" => by_type!(step2, ty, sub_sat),
        "mul.hi" => by_type!(step2, ty, mul_hi),
        "mul.wide" => Some(match ty {
            Type::U16 => step2!(|a, b| u64::from(a as u16) * u64::from(b as u16)),
            Type::S16 => step2!(|a, b| (i32::from(a as i16) * i32::from(b as i16)) as u32 as u64),
            Type::U32 => step2!(|a, b| u64::from(a as u32) * u64::from(b as u32)),
            Type::S32 => step2!(|a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64),
            _ => return None,
        }),
        "div" => by_type!(step2, ty, div),
        "rem" => by_type!(step2, ty, rem),
        "min" => by_type!(step2, ty, min),
        "max" => by_type!(step2, ty, max),
        "shl" => by_type!(step2, ty, shl),
        "shr" => by_type!(step2, ty, shr),
        _ => None,
    }
}

/// The operation of three operands.
pub(crate) fn ternary(name: &str, ty: Type) -> Option<Step> {
    match name {
        "mad.lo" => Some(if ty.bytes() == 8 {
            step3!(|a, b, c| a.wrapping_mul(b).wrapping_add(c))
        } else {
            step3!(|a, b, c| u64::from((a as u32).wrapping_mul(b as u32).wrapping_add(c as u32)))
        }),
        "mad.hi" => by_type!(step3, ty, mad_hi),
        "mad.wide" => Some(match ty {
            Type::U16 => {
                step3!(|a, b, c| u64::from((c as u32).wrapping_add(u32::from(a as u16) * u32::from(b as u16))))
            }
            Type::S16 => {
                step3!(|a, b, c| u64::from((c as u32).wrapping_add((i32::from(a as i16) * i32::from(b as i16)) as u32)))
            }
            Type::U32 => step3!(|a, b, c| c.wrapping_add(u64::from(a as u32) * u64::from(b as u32))),
            Type::S32 => step3!(|a, b, c| c.wrapping_add((i64::from(a as i32) * i64::from(b as i32)) as u64)),
            _ => return None,
        }),
        "sad" => by_type!(step3, ty, sad),
        "bfe" => by_type!(step3, ty, bfe),
        "shf.l.clamp" => Some(step3!(|a, b, c| (((b << 32 | a & LOW) << (c & LOW).min(32)) >> 32) & LOW)),
        "shf.l.wrap" => Some(step3!(|a, b, c| (((b << 32 | a & LOW) << (c & 31)) >> 32) & LOW)),
        "shf.r.clamp" => Some(step3!(|a, b, c| ((b << 32 | a & LOW) >> (c & LOW).min(32)) & LOW)),
        "shf.r.wrap" => Some(step3!(|a, b, c| ((b << 32 | a & LOW) >> (c & 31)) & LOW)),
        "prmt" => Some(step3!(prmt)),
        _ => None,
    }
}

/// The operation of four operands.
pub(crate) fn quaternary(name: &str, ty: Type) -> Option<Step> {
    match (name, ty.bytes()) {
        ("bfi", 4) => Some(step4!(bfi::<32>)),
        ("bfi", 8) => Some(step4!(bfi::<64>)),
        ("lop3", 4) => Some(step4!(lop3)),
        _ => None,
    }
}

const LOW: u64 = 0xffff_ffff;

fn abs<T: Int>(a: u64) -> u64 {
    T::cut(T::get(a).wide().abs()).put()
}

fn neg<T: Int>(a: u64) -> u64 {
    T::get(a.wrapping_neg()).put()
}

fn not<T: Int>(a: u64) -> u64 {
    T::get(!a).put()
}

fn cnot<T: Int>(a: u64) -> u64 {
    u64::from(T::get(a).put() == 0)
}

fn popc<T: Int>(a: u64) -> u64 {
    u64::from(T::get(a).put().count_ones())
}

fn clz<T: Int>(a: u64) -> u64 {
    u64::from(T::get(a).put().leading_zeros() + T::BITS - 64)
}

fn brev<T: Int>(a: u64) -> u64 {
    a.reverse_bits() >> (64 - T::BITS)
}

fn add_sat<T: Int>(a: u64, b: u64) -> u64 {
    T::cut((T::get(a).wide() + T::get(b).wide()).clamp(T::MIN, T::MAX)).put()
}

fn sub_sat<T: Int>(a: u64, b: u64) -> u64 {
    T::cut((T::get(a).wide() - T::get(b).wide()).clamp(T::MIN, T::MAX)).put()
}

fn mul_hi<T: Int>(a: u64, b: u64) -> u64 {
    if T::BITS == 64 && !T::SIGNED {
        return ((u128::from(a) * u128::from(b)) >> 64) as u64;
    }
    T::cut((T::get(a).wide() * T::get(b).wide()) >> T::BITS).put()
}

fn mad_hi<T: Int>(a: u64, b: u64, c: u64) -> u64 {
    T::get(mul_hi::<T>(a, b).wrapping_add(c)).put()
}

/// Division by zero gives all ones, as the hardware does; PTX leaves it undefined.
fn div<T: Int>(a: u64, b: u64) -> u64 {
    let (a, b) = (T::get(a).wide(), T::get(b).wide());
    if b == 0 { T::cut(-1).put() } else { T::cut(a / b).put() }
}

fn rem<T: Int>(a: u64, b: u64) -> u64 {
    let (a, b) = (T::get(a).wide(), T::get(b).wide());
    if b == 0 { T::cut(a).put() } else { T::cut(a % b).put() }
}

fn min<T: Int>(a: u64, b: u64) -> u64 {
    T::get(a).min(T::get(b)).put()
}

fn max<T: Int>(a: u64, b: u64) -> u64 {
    T::get(a).max(T::get(b)).put()
}

/// Shift amounts beyond the width give 0.
fn shl<T: Int>(a: u64, b: u64) -> u64 {
    let by = (b as u32).min(T::BITS);
    T::get(a.checked_shl(by).unwrap_or(0)).put()
}

fn shr<T: Int>(a: u64, b: u64) -> u64 {
    T::cut(T::get(a).wide() >> (b as u32).min(T::BITS)).put()
}

fn sad<T: Int>(a: u64, b: u64, c: u64) -> u64 {
    let distance = (T::get(a).wide() - T::get(b).wide()).abs();
    T::get((distance as u64).wrapping_add(c)).put()
}

/// PTX ISA, `bfe`: bits beyond the field are copies of its sign bit for signed types; the sign bit is bit 31 or 63 if
/// the field ends beyond it.
fn bfe<T: Int>(a: u64, b: u64, c: u64) -> u64 {
    let (pos, len) = ((b & 0xff) as u32, (c & 0xff) as u32);
    let value = T::get(a).put();
    let bit = |at: u32| value >> at.min(T::BITS - 1) & 1 == 1;
    let negative = T::SIGNED && len > 0 && bit((pos + len - 1).min(T::BITS - 1));
    let present = if pos >= T::BITS { 0 } else { len.min(T::BITS - pos) };
    let field = if present == 0 { 0 } else { (value >> pos) & (u64::MAX >> (64 - present)) };
    let ones = if !negative || present == 64 { 0 } else { u64::MAX << present };
    T::get(field | ones).put()
}

/// PTX ISA, `bfi`: inserts `len` bits of `a` into `b` at `pos`.
fn bfi<const BITS: u32>(a: u64, b: u64, pos: u64, len: u64) -> u64 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    if pos >= BITS || len == 0 {
        return b;
    }
    let field = (u64::MAX >> (64 - len.min(BITS - pos))) << pos;
    (b & !field) | (a << pos & field)
}

fn prmt(a: u64, b: u64, selector: u64) -> u64 {
    let bytes = (b << 32) | (a & LOW);
    (0..4).fold(0, |out, i| {
        let select = selector >> (4 * i);
        let byte = bytes >> (8 * (select & 7)) & 0xff;
        let byte = if select & 8 != 0 { (byte >> 7) * 0xff } else { byte };
        out | byte << (8 * i)
    })
}

fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    (0..8).filter(|row| table >> row & 1 == 1).fold(0, |out, row| {
        let term = |value: u64, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
        out | (term(a, 2) & term(b, 1) & term(c, 0))
    }) & LOW
}
