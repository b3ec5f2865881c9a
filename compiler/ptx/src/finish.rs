//! Completes sums over all rows: the parts of the blocks, always in the same order.

use hgnnc_ir::Reduce;

use crate::code::{Class, Code, Val};
use crate::table::{Slot, Table};
use crate::traversal::WARP_BITS;
use crate::{Blocks, KernelInfo, THREADS, Total, math};

/// Elements of a warp, at most: what a request of one sector and more after another takes.
const MOST_LANES: usize = 32;

/// Writes the kernel `number` that completes a total, `of` kernel and position.
///
/// Lanes run along the elements of a part, which lie one after another, and then along parts: each request is for
/// consecutive numbers. What the threads of an element have is combined within warps, then in the order of the warps.
pub(crate) fn emit(total: &Total, of: (usize, usize), number: usize, table: &mut Table) -> (String, KernelInfo) {
    let mut code = Code::new(0);
    // Of few elements, several parts share a warp.
    let lanes = total.width.as_fixed().map_or(MOST_LANES, |width| width.next_power_of_two().min(MOST_LANES));
    let threads_of_element = THREADS / lanes;
    let mut entry = |code: &mut Code, class: Class, slot: Slot| {
        let op = if class == Class::U64 { "ld.const.u64" } else { "ld.const.u32" };
        let offset = table.offset(slot);
        code.op(class, op, &[&format_args!("[table+{offset}]")])
    };
    let out = entry(&mut code, Class::U64, Slot::Buffer(total.out));
    let parts = entry(&mut code, Class::U64, Slot::Partials(of.0, of.1));
    let count = entry(&mut code, Class::U32, Slot::Parts(of.0));
    let width = entry(&mut code, Class::U32, Slot::Elements(total.width.clone()));
    let thread = code.u("mov.u32", &[&"%tid.x"]);
    let own = code.u("and.b32", &[&thread, &(lanes - 1)]);
    let element = code.u("mad.lo.u32", &[&"%block", &lanes, &own]);
    let exists = code.p("setp.lt.u32", &[&element, &width]);
    // Lanes without an element have no parts.
    let count = code.u("selp.u32", &[&count, &0, &exists]);
    let part = code.u("shr.u32", &[&thread, &lanes.trailing_zeros()]);
    let sum = code.f("mov.f32", &[&Val::Imm(total.reduce.identity() as f32)]);
    let (again, done) = (code.label(), code.label());
    code.place(again);
    let end = code.p("setp.ge.u32", &[&part, &count]);
    code.jump_if(end, done);
    let at = code.d("cvt.u64.u32", &[&element]);
    let at = code.d("mad.wide.u32", &[&part, &width, &at]);
    let at = code.d("shl.b64", &[&at, &2]);
    let at = code.d("add.u64", &[&at, &parts]);
    let value = code.f("ld.global.nc.f32", &[&format_args!("[{at}]")]);
    let next = combine(&mut code, total.reduce, sum.into(), value.into());
    code.set(sum, "mov.f32", &[&next]);
    code.set(part, "add.u32", &[&part, &threads_of_element]);
    code.jump(again);
    code.place(done);
    let mut all: Val = sum.into();
    for bit in lanes.trailing_zeros()..WARP_BITS {
        let other = code.f("shfl.sync.bfly.b32", &[&all, &(1u32 << bit), &0x1f, &"0xffffffff"]);
        all = combine(&mut code, total.reduce, all, other.into());
        if let Val::Imm(_) = all {
            all = code.f("mov.f32", &[&all]).into();
        }
    }
    // What the warps have, one after another, with a place for each lane.
    let memory = code.u("mov.u32", &[&"shared"]);
    let at = code.u("mad.lo.u32", &[&thread, &4, &memory]);
    code.line(format_args!("st.shared.f32 [{at}], {all};"));
    code.line("bar.sync 0;");
    let others = code.p("setp.ge.u32", &[&thread, &lanes]);
    code.line(format_args!("@{others} ret;"));
    let mut all: Option<Val> = None;
    for warp in 0..THREADS >> WARP_BITS {
        let own = code.f("ld.shared.f32", &[&format_args!("[{at}+{}]", warp << (WARP_BITS + 2))]);
        all = Some(all.map_or(own.into(), |all| combine(&mut code, total.reduce, all, own.into())));
    }
    let all = all.expect("a block has warps");
    let at = code.d("mad.wide.u32", &[&element, &4, &out]);
    code.line(format_args!("@{exists} st.global.f32 [{at}], {all};"));
    let blocks = Blocks::Elements { width: total.width.clone(), per_block: lanes };
    (code.finish(), KernelInfo { number, blocks, shared: 4 * THREADS, row_memory: 0, totals: vec![] })
}

fn combine(code: &mut Code, reduce: Reduce, a: Val, b: Val) -> Val {
    match reduce {
        Reduce::Sum => math::binary(code, hgnnc_ir::BinaryOp::Add, a, b),
        Reduce::Max => math::max(code, a, b),
        Reduce::Min => math::min(code, a, b),
        Reduce::Lse => math::log_add_exp(code, a, b),
    }
}
