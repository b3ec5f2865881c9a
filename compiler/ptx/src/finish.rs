//! Completes sums over all rows: the parts of the blocks, always in the same order.

use hgnnc_ir::{Reduce, Space};

use crate::Slot;
use crate::code::Code;
use crate::isa::{Body, Class, Reg, Regions, Special, StateSpace, Symbol, Val};
use crate::members::Member;
use crate::table::Table;
use crate::traversal::WARP_BITS;
use crate::{Blocks, KernelInfo, Members, THREADS, Total, math};

/// Elements of a warp, at most: what a request of one sector and more after another takes.
const MOST_LANES: usize = 32;

/// Writes the kernel `number` that completes a total, `of` kernel and position.
///
/// Lanes run along the elements of a part, which lie one after another, and then along parts: each request is for
/// consecutive numbers. What the threads of an element have is combined within warps, then in the order of the warps.
pub(crate) fn emit(
    total: &Total,
    (kernel, index): (&KernelInfo, usize),
    number: usize,
    table: &mut Table,
) -> (Body, KernelInfo) {
    let of = (kernel.number, index);
    if let (Some(members), Blocks::Gemm { rows, .. }) = (total.members, &kernel.blocks) {
        return emit_members(total, members, *rows, of, number, table);
    }
    let mut code = Code::new(0);
    // Of few elements, several parts share a warp.
    let lanes = total.width.as_fixed().map_or(MOST_LANES, |width| width.next_power_of_two().min(MOST_LANES));
    let threads_of_element = THREADS / lanes;
    let out = table.load(&mut code, Class::U64, Slot::Buffer(total.out));
    let parts = table.load(&mut code, Class::U64, Slot::Partials(of.0, of.1));
    let count = table.load(&mut code, Class::U32, Slot::Parts(of.0));
    let width = table.load(&mut code, Class::U32, Slot::Elements(total.width.clone()));
    let thread = code.mov(Special::TidX);
    let own = code.and(thread, lanes - 1);
    let element = code.mad(Reg::BLOCK, lanes, own);
    let exists = code.lt(element, width);
    // Lanes without an element have no parts.
    let count = code.selp(count, 0, exists);
    let part = code.shr(thread, lanes.trailing_zeros());
    let sum = code.mov_f32(Val::Imm(total.reduce.identity() as f32));
    let (again, done) = (code.label(), code.label());
    code.place(again);
    let end = code.ge(part, count);
    code.jump_if(end, done);
    let at = code.widen(element);
    let at = code.mad_wide(part, width, at);
    let at = code.shl64(at, 2);
    let at = code.add64(at, parts);
    let value = code.load(StateSpace::GlobalNc, at);
    let next = combine(&mut code, total.reduce, sum.into(), value.into());
    code.assign(sum, next);
    code.increase(part, threads_of_element);
    code.jump(again);
    code.place(done);
    let mut all: Val = sum.into();
    for bit in lanes.trailing_zeros()..WARP_BITS {
        let other = code.shuffle(all, 1u32 << bit);
        all = combine(&mut code, total.reduce, all, other.into());
        if let Val::Imm(_) = all {
            all = code.mov_f32(all).into();
        }
    }
    // Shared memory holds the results of the warps one after another, each with an element for each lane.
    let memory = code.mov(Symbol::Shared);
    let at = code.mad(thread, 4, memory);
    code.store(None, StateSpace::Shared, at, all);
    code.block_sync();
    let others = code.ge(thread, lanes);
    code.return_if(others);
    let mut all: Option<Val> = None;
    for warp in 0..THREADS >> WARP_BITS {
        let own = code.load(StateSpace::Shared, (at, warp << (WARP_BITS + 2)));
        all = Some(all.map_or(own.into(), |all| combine(&mut code, total.reduce, all, own.into())));
    }
    let all = all.expect("a block has warps");
    let at = code.mad_wide(element, 4, out);
    code.store(Some(exists), StateSpace::Global, at, all);
    let blocks = Blocks::Elements { width: total.width.clone(), per_block: lanes };
    (
        code.finish(&Regions::default()),
        KernelInfo { number, blocks, shared: 4 * THREADS, row_memory: 0, totals: vec![] },
    )
}

/// The same for the members of a grouped sum that have several parts.
///
/// Each thread has an element, and adds the parts of a member to it in their order. The members are found as in
/// `members`: a block looks for the one that has the row of its number times the rows of a part, which each member with
/// several parts has; it has a block for the first such row alone.
fn emit_members(
    total: &Total,
    members: Members,
    rows: Space,
    of: (usize, usize),
    number: usize,
    table: &mut Table,
) -> (Body, KernelInfo) {
    let mut code = Code::new(0);
    let out = table.load(&mut code, Class::U64, Slot::Buffer(total.out));
    let parts = table.load(&mut code, Class::U64, Slot::Partials(of.0, of.1));
    let unit = table.load(&mut code, Class::U32, Slot::PartRows(of.0));
    let width = table.load(&mut code, Class::U32, Slot::Elements(total.width.clone()));
    let thread = code.mov(Special::TidX);
    let blocks = code.add(width, THREADS - 1);
    let blocks = code.div(blocks, THREADS);
    let (position, chunk) = (code.div(Reg::BLOCK, blocks), code.rem(Reg::BLOCK, blocks));
    let row = code.mul(position, unit);
    let member = Member::of_row(&mut code, members, (row, unit), thread, table);
    let several = member.has_several(&mut code);
    let before = code.sub(row, member.first);
    let mine = code.lt_and(before, unit, several);
    let element = code.mad(chunk, THREADS, thread);
    let mine = code.lt_and(element, width, mine);
    let part = member.slot(&mut code);
    let count = member.parts(&mut code);
    // Threads that have no element have no parts.
    let count = code.selp(count, 0, mine);
    let end = code.add(part, count);
    let sum = code.mov_f32(Val::Imm(total.reduce.identity() as f32));
    let own = code.mad_wide(element, 4, parts);
    let (again, done) = (code.label(), code.label());
    code.place(again);
    let ended = code.ge(part, end);
    code.jump_if(ended, done);
    let at = code.mul_wide(part, width);
    let at = code.shl64(at, 2);
    let at = code.add64(at, own);
    let value = code.load(StateSpace::GlobalNc, at);
    let next = combine(&mut code, total.reduce, sum.into(), value.into());
    code.assign(sum, next);
    code.increase(part, 1);
    code.jump(again);
    code.place(done);
    let at = code.widen(element);
    let at = code.mad_wide(member.number, width, at);
    let at = code.shl64(at, 2);
    let at = code.add64(at, out);
    code.store(Some(mine), StateSpace::Global, at, sum);
    let blocks = Blocks::Members { rows, width: total.width.clone() };
    (code.finish(&Regions::default()), KernelInfo { number, blocks, shared: 0, row_memory: 0, totals: vec![] })
}

fn combine(code: &mut Code, reduce: Reduce, a: Val, b: Val) -> Val {
    match reduce {
        Reduce::Sum => math::binary(code, hgnnc_ir::BinaryOp::Add, a, b),
        Reduce::Max => math::max(code, a, b),
        Reduce::Min => math::min(code, a, b),
        Reduce::Lse => math::log_add_exp(code, a, b),
    }
}
