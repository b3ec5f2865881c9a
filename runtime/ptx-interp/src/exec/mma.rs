//! Matrix products (`mma.sync`), with the fragment layouts of the PTX ISA, "Matrix multiply-accumulate operation using
//! mma instruction".
//!
//! Lane = 4·`g` + `t`, group `g` and thread-in-group `t`. A lane's elements of an accumulator (16 × 8) are (g, 2t), (g,
//! 2t+1), (g+8, 2t), (g+8, 2t+1).

use crate::numeric::{from_bf16, from_f16};
use crate::ops::{Mma, MmaShape};
use crate::registers::{LANES, Registers, Slot};
use crate::types::Type;

const M: usize = 16;
const N: usize = 8;
const MOST_K: usize = 16;

/// Row and column in A (16 × k) of element `i` of a lane.
pub(crate) fn a_element(shape: MmaShape, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane / 4, lane % 4);
    if shape.ty == Type::Tf32 {
        return (g + 8 * (i % 2), t + 4 * (i / 2));
    }
    (g + 8 * (i / 2 % 2), 2 * t + i % 2 + 8 * (i / 4))
}

/// Row and column in B (k × 8) of element `i` of a lane.
pub(crate) fn b_element(shape: MmaShape, lane: usize, i: usize) -> (usize, usize) {
    let (g, t) = (lane / 4, lane % 4);
    if shape.ty == Type::Tf32 {
        return (t + 4 * i, g);
    }
    (2 * t + i % 2 + 8 * (i / 2), g)
}

/// Row and column in C and D of element `i` of a lane.
pub(crate) fn c_element(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + 8 * (i / 2), 2 * (lane % 4) + i % 2)
}

/// The value of element `i` of a fragment, from its registers.
fn element(ty: Type, values: impl Fn(usize) -> u64, i: usize) -> f32 {
    match ty {
        // The low 13 bits are ignored.
        Type::Tf32 => f32::from_bits(values(i) as u32 & !0x1fff),
        ty => {
            let bits = (values(i / 2) >> (16 * (i % 2))) as u16;
            if ty == Type::Bf16 { from_bf16(bits) } else { from_f16(bits) as f32 }
        }
    }
}

/// D = A·B + C. Matrix units add exact products and truncate (Fasi, Higham, Mikaitis and Pranesh, "Numerical behavior of
/// NVIDIA tensor cores", PeerJ Computer Science 7, 2021). Here the exact sum (in f64) is truncated once; hardware also
/// truncates terms that are small beside the largest one, so its errors are at least these.
pub(super) fn multiply(registers: &mut Registers, mma: &Mma) {
    let shape = mma.shape;
    let (mut a, mut b, mut c) = ([[0f32; MOST_K]; M], [[0f32; N]; MOST_K], [[0f64; N]; M]);
    for lane in 0..LANES {
        let value = |slots: &[Slot], i: usize| registers.values[slots[i] as usize][lane];
        for i in 0..M * shape.k / LANES {
            let (row, column) = a_element(shape, lane, i);
            a[row][column] = element(shape.ty, |i| value(&mma.a, i), i);
        }
        for i in 0..N * shape.k / LANES {
            let (row, column) = b_element(shape, lane, i);
            b[row][column] = element(shape.ty, |i| value(&mma.b, i), i);
        }
        for i in 0..4 {
            let (row, column) = c_element(lane, i);
            c[row][column] = f32::from_bits(value(&mma.c, i) as u32).into();
        }
    }
    for (c, a) in c.iter_mut().zip(&a) {
        for (a, b) in a.iter().zip(&b).take(shape.k) {
            for (c, b) in c.iter_mut().zip(b) {
                *c += f64::from(*a) * f64::from(*b);
            }
        }
    }
    for lane in 0..LANES {
        for (i, &d) in mma.d.iter().enumerate() {
            let (row, column) = c_element(lane, i);
            registers.values[d as usize][lane] = truncated(c[row][column]).to_bits().into();
        }
    }
}

/// The nearest f32 that is not farther from zero.
fn truncated(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest).abs() > x.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}
