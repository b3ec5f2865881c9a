//! Floyd's sampling without replacement, for one row with more edges than are sampled.
//!
//! Random numbers are drawn four at a time. The set of sampled edges is a bit mask in a register for short rows;
//! otherwise vectors that each draw is compared with; for large fan-outs a bit mask in memory.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I32X4, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::draw::Row;
use super::generator::{Generator, changing, fixed};
use hgnnc_executable::sampler::{DrawCall, SHORT, UNROLLED};

pub(super) fn emit(g: &mut Generator<'_>, row: Row, most: u32, long: bool) {
    let key_high = g.field(I32, offset_of!(DrawCall, key_high));
    let bits = g.row_bits(key_high, row.vertex);
    let least = g.b.ins().iadd_imm_s(row.degree, -i64::from(most));
    if most > UNROLLED {
        return in_memory(g, row, most, bits, least);
    }
    if !long {
        return in_register(g, row, most, bits, least);
    }
    let short = g.b.ins().icmp_imm_u(IntCC::UnsignedLessThanOrEqual, row.degree, i64::from(SHORT));
    g.branch(
        short,
        ("sampled edges as a bit mask in a register", |g: &mut Generator<'_>| in_register(g, row, most, bits, least)),
        ("sampled edges in vectors", |g: &mut Generator<'_>| in_vectors(g, row, most, bits, least)),
    );
}

/// Draws `from` to `from + 3` as 64-bit numbers, each below its bound.
fn four_draws(g: &mut Generator<'_>, from: u32, bits: Value, least: Value) -> [Value; 4] {
    let first = g.field(I64, offset_of!(DrawCall, first));
    let first = g.b.ins().load(I32X4, fixed(), first, 4 * from as i32);
    let bits = g.b.ins().splat(I32X4, bits);
    let random = g.b.ins().iadd(first, bits);
    let random = g.mix(random);
    let least = g.b.ins().splat(I32X4, least);
    let steps = g.four([1, 2, 3, 4].map(|step| from + step));
    let bound = g.b.ins().iadd(least, steps);
    let halves = [
        (g.b.ins().uwiden_low(random), g.b.ins().uwiden_low(bound)),
        (g.b.ins().uwiden_high(random), g.b.ins().uwiden_high(bound)),
    ];
    let [low, high] = halves.map(|(random, bound)| g.b.ins().imul(random, bound));
    [(low, 0), (low, 1), (high, 0), (high, 1)].map(|(pair, lane)| {
        let product = g.b.ins().extractlane(pair, lane);
        g.b.ins().ushr_imm_u(product, 32)
    })
}

fn in_register(g: &mut Generator<'_>, row: Row, most: u32, bits: Value, least: Value) {
    let one = g.int(1);
    let mut taken = g.int(0);
    for from in (0..most).step_by(4) {
        let draws = four_draws(g, from, bits, least);
        for (k, &draw) in (from..most).zip(&draws) {
            let other = g.b.ins().iadd_imm_u(least, i64::from(k));
            let other = g.wide(other);
            let bit = g.b.ins().ushr(taken, draw);
            let double = g.b.ins().band(bit, one);
            let edge = g.b.ins().select(double, other, draw);
            let bit = g.b.ins().ishl(one, edge);
            taken = g.b.ins().bor(taken, bit);
            store(g, row, k, edge);
        }
    }
}

fn in_vectors(g: &mut Generator<'_>, row: Row, most: u32, bits: Value, least: Value) {
    let mut taken: Vec<Value> = vec![];
    for from in (0..most).step_by(4) {
        let draws = four_draws(g, from, bits, least);
        for (k, &draw) in (from..most).zip(&draws) {
            let draw = g.b.ins().ireduce(I32, draw);
            let mut edge = draw;
            if !taken.is_empty() {
                let all = g.b.ins().splat(I32X4, draw);
                let mut equal: Option<Value> = None;
                for &four in &taken {
                    let here = g.b.ins().icmp(IntCC::Equal, four, all);
                    equal = Some(equal.map_or(here, |before| g.b.ins().bor(before, here)));
                }
                if let Some(equal) = equal {
                    let double = g.b.ins().vany_true(equal);
                    let other = g.b.ins().iadd_imm_u(least, i64::from(k));
                    edge = g.b.ins().select(double, other, draw);
                }
            }
            // Unused lanes repeat an edge that is in the set.
            if k % 4 == 0 {
                taken.push(g.b.ins().splat(I32X4, edge));
            } else if let Some(four) = taken.last_mut() {
                *four = g.b.ins().insertlane(*four, edge, (k % 4) as u8);
            }
            let edge = g.wide(edge);
            store(g, row, k, edge);
        }
    }
}

/// Stores an edge of the row as sample number `k`.
fn store(g: &mut Generator<'_>, row: Row, k: u32, edge: Value) {
    let edge = g.b.ins().ireduce(I32, edge);
    let edge = g.b.ins().iadd(row.start, edge);
    g.b.ins().store(changing(), edge, row.into, 4 * k as i32);
}

fn in_memory(g: &mut Generator<'_>, row: Row, most: u32, bits: Value, least: Value) {
    let first = g.field(I64, offset_of!(DrawCall, first));
    let marked = g.field(I64, offset_of!(DrawCall, marked));
    let (zero, one, most) = (g.int(0), g.int(1), g.int(i64::from(most)));
    g.repeat("a draw, marked in memory", (zero, most), 1, |g, k| {
        let place = g.at(first, k, 2);
        let first = g.b.ins().load(I32, fixed(), place, 0);
        let random = g.b.ins().iadd(first, bits);
        let random = g.mix(random);
        let random = g.wide(random);
        let least = g.wide(least);
        let other = g.b.ins().iadd(least, k);
        let bound = g.b.ins().iadd_imm_u(other, 1);
        let product = g.b.ins().imul(random, bound);
        let draw = g.b.ins().ushr_imm_u(product, 32);
        let word = g.b.ins().ushr_imm_u(draw, 6);
        let place = g.at(marked, word, 3);
        let word = g.b.ins().load(I64, changing(), place, 0);
        let bit = g.b.ins().ushr(word, draw);
        let double = g.b.ins().band(bit, one);
        let edge = g.b.ins().select(double, other, draw);
        let word = g.b.ins().ushr_imm_u(edge, 6);
        let place = g.at(marked, word, 3);
        let word = g.b.ins().load(I64, changing(), place, 0);
        let bit = g.b.ins().ishl(one, edge);
        let word = g.b.ins().bor(word, bit);
        g.b.ins().store(changing(), word, place, 0);
        let place = g.at(row.into, k, 2);
        let edge = g.b.ins().ireduce(I32, edge);
        g.b.ins().store(changing(), edge, place, 0);
    });
    g.repeat("unmarks a draw", (zero, most), 1, |g, k| {
        let place = g.at(row.into, k, 2);
        let edge = g.b.ins().load(I32, changing(), place, 0);
        let wide = g.wide(edge);
        let word = g.b.ins().ushr_imm_u(wide, 6);
        let mark = g.at(marked, word, 3);
        g.b.ins().store(changing(), zero, mark, 0);
        let edge = g.b.ins().iadd(row.start, edge);
        g.b.ins().store(changing(), edge, place, 0);
    });
}
