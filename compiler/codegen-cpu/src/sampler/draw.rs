//! Samples the edges of the rows of one relation in one hop.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I32X4, I64};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::generator::{Generator, changing, fixed};
use hgnnc_executable::sampler::{DrawCall, SLACK, Take};

use super::{GROUP, floyd};

/// The current row with its output address.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub vertex: Value,
    pub start: Value,
    pub degree: Value,
    /// Address of its first sampled edge.
    pub into: Value,
}

/// The pipelined rounds described in the module head.
pub(super) fn emit(g: &mut Generator<'_>, take: Take) {
    let count = g.field(I64, offset_of!(DrawCall, count));
    let indptr = g.field(I64, offset_of!(DrawCall, indptr));
    let edge = g.field(I64, offset_of!(DrawCall, edge));
    let src = g.field(I64, offset_of!(DrawCall, src));
    let sources = g.field(I64, offset_of!(DrawCall, sources));
    let words = g.field(I64, offset_of!(DrawCall, words));
    let gather = g.field(I64, offset_of!(DrawCall, gather));
    let num_known = g.b.ins().load(I64, changing(), g.call, offset_of!(DrawCall, num_known) as i32);
    let num_known = g.var(I64, num_known);
    let first = g.b.ins().load(I64, fixed(), indptr, 0);
    let last = g.at(indptr, count, 3);
    let last = g.b.ins().load(I64, fixed(), last, 0);
    let zero = g.int(0);
    let row = g.var(I64, zero);
    // The ends of the groups in flight, from the newest to the oldest.
    let [drawn, asked, read, labelled] = [first; 4].map(|first| g.var(I64, first));

    let (round, done) = (g.block("a round: draws a group"), g.b.create_block());
    let any = g.less(first, last);
    g.b.ins().brif(any, round, &[], done, &[]);
    g.b.switch_to_block(round);
    let ends = [drawn, asked, read, labelled].map(|end| g.b.use_var(end));
    let at = g.var(I64, ends[0]);
    draw_group(g, take, (row, count), at, edge);
    let end = g.b.use_var(at);

    let number = g.b.ins().isub(ends[1], ends[2]);
    let [from, into] = [edge, src].map(|list| g.at(list, ends[2], 2));
    g.call_out(gather, &[I64; 5], &[sources, from, words, into, number]);
    relabel(g, (ends[3], ends[2]), src, words, num_known);

    for (variable, end) in [drawn, asked, read, labelled].into_iter().zip([end, ends[0], ends[1], ends[2]]) {
        g.b.def_var(variable, end);
    }
    let more = g.less(ends[2], last);
    g.b.ins().brif(more, round, &[], done, &[]);
    g.b.switch_to_block(done);
    let num_known = g.b.use_var(num_known);
    g.b.ins().store(changing(), num_known, g.call, offset_of!(DrawCall, num_known) as i32);
}

/// Samples rows until the group has [`GROUP`] edges, or no rows are left.
fn draw_group(
    g: &mut Generator<'_>,
    take: Take,
    (row, count): (cranelift_frontend::Variable, Value),
    at: cranelift_frontend::Variable,
    edge: Value,
) {
    let rows = g.field(I64, offset_of!(DrawCall, rows));
    let destinations = g.field(I64, offset_of!(DrawCall, destinations));
    let enough = g.b.use_var(at);
    let enough = g.b.ins().iadd_imm_u(enough, GROUP as i64);
    let (check, next, after) = (g.b.create_block(), g.block("a row"), g.block("the group is drawn"));
    g.b.ins().jump(check, &[]);
    g.b.switch_to_block(check);
    let (here, position) = (g.b.use_var(row), g.b.use_var(at));
    let left = g.less(here, count);
    let room = g.less(position, enough);
    let go = g.b.ins().band(left, room);
    g.b.ins().brif(go, next, &[], after, &[]);

    g.b.switch_to_block(next);
    let place = g.at(rows, here, 3);
    let start = g.b.ins().load(I32, fixed(), place, 0);
    let degree = g.b.ins().load(I32, fixed(), place, 4);
    let place = g.at(destinations, here, 2);
    let vertex = g.b.ins().load(I32, changing(), place, 0);
    let into = g.at(edge, position, 2);
    let this = Row { vertex, start, degree, into };
    let taken = match take {
        Take::Whole => {
            whole(g, this, None);
            g.wide(degree)
        }
        Take::Uniform { most, long } => {
            let number = g.b.ins().iconst(I32, i64::from(most));
            let all = g.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, degree, number);
            g.branch(
                all,
                ("all edges of the row", |g: &mut Generator<'_>| whole(g, this, Some(most))),
                ("a longer row: Floyd's method", |g: &mut Generator<'_>| {
                    floyd::emit(g, this, most, long);
                    let taken = g.int(i64::from(most));
                    ask_for(g, this, taken);
                }),
            );
            let taken = g.b.ins().umin(degree, number);
            g.wide(taken)
        }
        Take::Weighted => weighted(g, this, here),
    };
    let position = g.b.ins().iadd(position, taken);
    g.b.def_var(at, position);
    let here = g.b.ins().iadd_imm_u(here, 1);
    g.b.def_var(row, here);
    g.b.ins().jump(check, &[]);
    g.b.switch_to_block(after);
}

/// Prefetches the sources of the edges sampled from a row.
fn ask_for(g: &mut Generator<'_>, row: Row, taken: Value) {
    let ask = g.field(I64, offset_of!(DrawCall, ask));
    let sources = g.field(I64, offset_of!(DrawCall, sources));
    g.call_out(ask, &[I64; 3], &[sources, row.into, taken]);
}

/// Copies all edges of a row, four at a time. `most` is the maximum degree, if known. Stores past the end of the row
/// are overwritten by the next row.
fn whole(g: &mut Generator<'_>, row: Row, most: Option<u32>) {
    let ask = g.field(I64, offset_of!(DrawCall, ask_whole));
    let sources = g.field(I64, offset_of!(DrawCall, sources));
    g.call_out(ask, &[I64, I32, I32], &[sources, row.start, row.degree]);
    let start = g.b.ins().splat(I32X4, row.start);
    let steps = g.four([0, 1, 2, 3]);
    let first = g.b.ins().iadd(start, steps);
    match most {
        Some(most) if most as usize <= SLACK => {
            for part in 0..most.div_ceil(4) {
                let four = g.four([4 * part; 4]);
                let edges = g.b.ins().iadd(first, four);
                g.b.ins().store(changing(), edges, row.into, 16 * part as i32);
            }
        }
        _ => {
            let edges = g.var(I32X4, first);
            let bytes = g.wide(row.degree);
            let end = g.at(row.into, bytes, 2);
            g.repeat("four edges", (row.into, end), 16, |g, into| {
                let four = g.b.use_var(edges);
                g.b.ins().store(changing(), four, into, 0);
                let step = g.four([4; 4]);
                let four = g.b.ins().iadd(four, step);
                g.b.def_var(edges, four);
            });
        }
    }
}

/// Copies all edges of a row, or lets the callback `weigh` sample them. Returns their number.
fn weighted(g: &mut Generator<'_>, row: Row, at: Value) -> Value {
    let indptr = g.field(I64, offset_of!(DrawCall, indptr));
    let place = g.at(indptr, at, 3);
    let from = g.b.ins().load(I64, fixed(), place, 0);
    let to = g.b.ins().load(I64, fixed(), place, 8);
    let taken = g.b.ins().isub(to, from);
    let degree = g.wide(row.degree);
    let all = g.b.ins().icmp(IntCC::Equal, taken, degree);
    g.branch(
        all,
        ("all edges of the row", |g: &mut Generator<'_>| whole(g, row, None)),
        ("a row whose edges are sampled by weight", |g: &mut Generator<'_>| {
            let weigh = g.field(I64, offset_of!(DrawCall, weigh));
            let weigher = g.field(I64, offset_of!(DrawCall, weigher));
            let arguments = [weigher, row.start, row.degree, row.vertex, row.into, taken];
            g.call_out(weigh, &[I64, I32, I32, I32, I64, I64], &arguments);
            ask_for(g, row, taken);
        }),
    );
    taken
}

/// Replaces sources by compact ids. A vertex without an id gets the next one and is appended to `known`. Branch-free:
/// about every second vertex is new, so a branch would be mispredicted half of the time.
fn relabel(
    g: &mut Generator<'_>,
    (from, to): (Value, Value),
    src: Value,
    words: Value,
    num_known: cranelift_frontend::Variable,
) {
    let known = g.field(I64, offset_of!(DrawCall, known));
    let stamp = g.field(I32, offset_of!(DrawCall, stamp));
    let limit = g.field(I32, offset_of!(DrawCall, limit));
    g.repeat("the compact id of a source", (from, to), 1, |g, i| {
        let place = g.at(src, i, 2);
        let vertex = g.b.ins().load(I32, changing(), place, 0);
        let wide = g.wide(vertex);
        let word_at = g.at(words, wide, 2);
        let word = g.b.ins().load(I32, changing(), word_at, 0);
        let next = g.b.use_var(num_known);
        let known_at = g.at(known, next, 2);
        g.b.ins().store(changing(), vertex, known_at, 0);
        let old = g.b.ins().bxor(word, stamp);
        let new = g.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, old, limit);
        let next_id = g.b.ins().ireduce(I32, next);
        let id = g.b.ins().select(new, next_id, old);
        let word = g.b.ins().bor(stamp, id);
        g.b.ins().store(changing(), word, word_at, 0);
        g.b.ins().store(changing(), id, place, 0);
        let new = g.b.ins().uextend(I64, new);
        let next = g.b.ins().iadd(next, new);
        g.b.def_var(num_known, next);
    });
}
