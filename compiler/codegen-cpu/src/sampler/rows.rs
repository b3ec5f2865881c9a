//! The first pass of a hop: locates the rows of destinations and counts their sampled edges.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;

use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use cranelift_frontend::Variable;

use super::generator::{Generator, changing, fixed};
use hgnnc_executable::sampler::{Counted, RowsCall, RowsOf};

use super::AHEAD;

/// The least number of relations with consecutive offsets and one fan-out that become a loop. Fewer are unrolled: their
/// prefix sums of sampled edges stay in registers.
const LOOPED: usize = 16;

/// Consecutive relations of [`RowsOf::drawn`].
struct Run {
    /// The first relation and the one past the last, as positions in [`RowsOf::drawn`].
    at: Range<usize>,
    /// One loop instead of a copy of the code for each.
    looped: bool,
}

fn runs(drawn: &[Counted]) -> Vec<Run> {
    let alike = |a: &Counted, b: &Counted| b.slot == a.slot + 1 && a.most == b.most && !a.listed && !b.listed;
    let mut start = 0;
    let chunks = drawn.chunk_by(alike).map(|chunk| {
        let at = start..start + chunk.len();
        start = at.end;
        Run { looped: at.len() >= LOOPED, at }
    });
    chunks.collect()
}

/// Iterates over the destinations in chunks of [`AHEAD`], each of which prefetches the offsets of the next.
pub(super) fn emit(g: &mut Generator<'_>, RowsOf { relations, drawn }: &RowsOf) {
    let runs = runs(drawn);
    let destinations = g.field(I64, offset_of!(RowsCall, destinations));
    let count = g.field(I64, offset_of!(RowsCall, count));
    let offsets = g.field(I64, offset_of!(RowsCall, offsets));
    let ask = g.field(I64, offset_of!(RowsCall, ask));
    let tables = [offset_of!(RowsCall, rows), offset_of!(RowsCall, indptr), offset_of!(RowsCall, listed)];
    let [rows, indptr, listed] = tables.map(|table| g.field(I64, table));
    let unrolled: Vec<usize> = runs.iter().filter(|run| !run.looped).flat_map(|run| run.at.clone()).collect();
    let own = |g: &mut Generator<'_>, table| -> BTreeMap<usize, Value> {
        unrolled.iter().map(|&at| (at, g.b.ins().load(I64, fixed(), table, 8 * at as i32))).collect()
    };
    let (own_rows, own_indptr, own_listed) = (own(g, rows), own(g, indptr), own(g, listed));
    let ends: BTreeMap<usize, Variable> = own_indptr
        .iter()
        .map(|(&at, &indptr)| {
            let first = g.b.ins().load(I64, changing(), indptr, 0);
            (at, g.var(I64, first))
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
                for run in &runs {
                    let first = drawn[run.at.start];
                    if run.looped {
                        let (from, to) = (g.int(run.at.start as i64), g.int(run.at.end as i64));
                        let place = g.b.ins().iadd_imm_s(place, 4 * (first.slot as i64 - run.at.start as i64));
                        g.repeat("a relation", (from, to), 1, |g, at| {
                            let place = g.at(place, at, 2);
                            let (rows, indptr) = (g.at(rows, at, 3), g.at(indptr, at, 3));
                            let rows = g.b.ins().load(I64, fixed(), rows, 0);
                            let indptr = g.b.ins().load(I64, fixed(), indptr, 0);
                            let degree = row(g, (place, 0, 4 * *relations as i32), (rows, i));
                            let taken = taken(g, degree, first.most);
                            let place = g.at(indptr, i, 3);
                            let before = g.b.ins().load(I64, changing(), place, 0);
                            let end = g.b.ins().iadd(before, taken);
                            g.b.ins().store(changing(), end, place, 8);
                        });
                        continue;
                    }
                    for at in run.at.clone() {
                        let counted = drawn[at];
                        let offset = 4 * counted.slot as i32;
                        let degree = row(g, (place, offset, offset + 4 * *relations as i32), (own_rows[&at], i));
                        let available = match counted.listed {
                            true => {
                                let place = g.at(own_listed[&at], vertex, 2);
                                g.b.ins().load(I32, fixed(), place, 0)
                            }
                            false => degree,
                        };
                        let taken = taken(g, available, counted.most);
                        let before = g.b.use_var(ends[&at]);
                        let end = g.b.ins().iadd(before, taken);
                        g.b.def_var(ends[&at], end);
                        let place = g.at(own_indptr[&at], i, 3);
                        g.b.ins().store(changing(), end, place, 8);
                    }
                }
            },
        );
    });
}

/// Writes the first edge and the degree of row `i`, from the offsets of its vertex and of the next one. Returns the
/// 32-bit degree.
fn row(g: &mut Generator<'_>, (place, start, end): (Value, i32, i32), (rows, i): (Value, Value)) -> Value {
    let start = g.b.ins().load(I32, fixed(), place, start);
    let end = g.b.ins().load(I32, fixed(), place, end);
    let degree = g.b.ins().isub(end, start);
    let row = g.at(rows, i, 3);
    g.b.ins().store(changing(), start, row, 0);
    g.b.ins().store(changing(), degree, row, 4);
    degree
}

/// The number of sampled edges of a row, of so many that can be sampled.
fn taken(g: &mut Generator<'_>, mut available: Value, most: Option<u32>) -> Value {
    if let Some(most) = most {
        let most = g.b.ins().iconst(I32, i64::from(most));
        available = g.b.ins().umin(available, most);
    }
    g.wide(available)
}
