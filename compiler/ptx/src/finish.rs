//! Completes sums over all rows: the parts of the blocks, always in the same order.

use hgnnc_ir::Reduce;

use crate::code::Code;
use crate::isa::{Body, Class, Reg, Regions, Special, StateSpace, Symbol, Val};
use crate::table::{Slot, Table};
use crate::traversal::WARP_BITS;
use crate::{Blocks, KernelInfo, THREADS, Total, math};

/// Elements of a warp, at most: what a request of one sector and more after another takes.
const MOST_LANES: usize = 32;

/// Writes the kernel `number` that completes a total, `of` kernel and position.
///
/// Lanes run along the elements of a part, which lie one after another, and then along parts: each request is for
/// consecutive numbers. What the threads of an element have is combined within warps, then in the order of the warps.
pub(crate) fn emit(total: &Total, of: (usize, usize), number: usize, table: &mut Table) -> (Body, KernelInfo) {
    let mut code = Code::new(0);
    // Of few elements, several parts share a warp.
    let lanes = total.width.as_fixed().map_or(MOST_LANES, |width| width.next_power_of_two().min(MOST_LANES));
    let threads_of_element = THREADS / lanes;
    let mut entry = |code: &mut Code, class: Class, slot: Slot| {
        let offset = table.offset(slot);
        code.slot(class, offset)
    };
    let out = entry(&mut code, Class::U64, Slot::Buffer(total.out));
    let parts = entry(&mut code, Class::U64, Slot::Partials(of.0, of.1));
    let count = entry(&mut code, Class::U32, Slot::Parts(of.0));
    let width = entry(&mut code, Class::U32, Slot::Elements(total.width.clone()));
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
    // What the warps have, one after another, with a place for each lane.
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

fn combine(code: &mut Code, reduce: Reduce, a: Val, b: Val) -> Val {
    match reduce {
        Reduce::Sum => math::binary(code, hgnnc_ir::BinaryOp::Add, a, b),
        Reduce::Max => math::max(code, a, b),
        Reduce::Min => math::min(code, a, b),
        Reduce::Lse => math::log_add_exp(code, a, b),
    }
}
