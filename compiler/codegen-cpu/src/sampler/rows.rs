//! The first pass of a hop: locates the rows of destinations and counts their sampled edges.

use std::mem::offset_of;

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::types::{I32, I64};

use super::generator::{Generator, changing, fixed};
use hgnnc_executable::sampler::{RowsCall, RowsOf};

use super::AHEAD;

/// Iterates over the destinations in chunks of [`AHEAD`], each of which prefetches the offsets of the next.
pub(super) fn emit(g: &mut Generator<'_>, RowsOf { relations, drawn }: &RowsOf) {
    let destinations = g.field(I64, offset_of!(RowsCall, destinations));
    let count = g.field(I64, offset_of!(RowsCall, count));
    let offsets = g.field(I64, offset_of!(RowsCall, offsets));
    let ask = g.field(I64, offset_of!(RowsCall, ask));
    let tables = [offset_of!(RowsCall, rows), offset_of!(RowsCall, indptr), offset_of!(RowsCall, listed)];
    let [rows, indptr, listed] = tables.map(|table| g.field(I64, table));
    let own = |g: &mut Generator<'_>, table| -> Vec<_> {
        (0..drawn.len()).map(|at| g.b.ins().load(I64, fixed(), table, 8 * at as i32)).collect()
    };
    let (rows, indptr, listed) = (own(g, rows), own(g, indptr), own(g, listed));
    let ends: Vec<_> = indptr
        .iter()
        .map(|&indptr| {
            let first = g.b.ins().load(I64, changing(), indptr, 0);
            g.var(I64, first)
        })
        .collect();
    let width = g.int(*relations as i64);
    let ask_for = |g: &mut Generator<'_>, from| {
        let left = g.b.ins().isub(count, from);
        let part = g.int(AHEAD as i64);
        let number = g.b.ins().umin(left, part);
        let from = g.at(destinations, from, 2);
        g.call_out(ask, &[I64; 4], &[offsets, from, number, width]);
        number
    };
    let zero = g.int(0);
    ask_for(g, zero);
    g.repeat("destinations whose offsets are prefetched together", (zero, count), AHEAD as i64, |g, part| {
        let next = g.b.ins().iadd_imm_u(part, AHEAD as i64);
        let next = g.b.ins().umin(next, count);
        ask_for(g, next);
        g.repeat(
            "a destination: its row in each relation, and the end of its sampled edges",
            (part, next),
            1,
            |g, i| {
                let place = g.at(destinations, i, 2);
                let vertex = g.b.ins().load(I32, changing(), place, 0);
                let vertex = g.wide(vertex);
                let place = g.b.ins().imul_imm_u(vertex, 4 * *relations as i64);
                let place = g.b.ins().iadd(offsets, place);
                for (at, counted) in drawn.iter().enumerate() {
                    let start = g.b.ins().load(I32, fixed(), place, 4 * counted.slot as i32);
                    let end = g.b.ins().load(I32, fixed(), place, 4 * (relations + counted.slot) as i32);
                    let degree = g.b.ins().isub(end, start);
                    let row = g.at(rows[at], i, 3);
                    g.b.ins().store(changing(), start, row, 0);
                    g.b.ins().store(changing(), degree, row, 4);
                    let mut taken = degree;
                    if counted.listed {
                        let place = g.at(listed[at], vertex, 2);
                        taken = g.b.ins().load(I32, fixed(), place, 0);
                    }
                    if let Some(most) = counted.most {
                        let most = g.b.ins().iconst(I32, i64::from(most));
                        taken = g.b.ins().umin(taken, most);
                    }
                    let taken = g.wide(taken);
                    let before = g.b.use_var(ends[at]);
                    let end = g.b.ins().iadd(before, taken);
                    g.b.def_var(ends[at], end);
                    let place = g.at(indptr[at], i, 3);
                    g.b.ins().store(changing(), end, place, 8);
                }
            },
        );
    });
}
