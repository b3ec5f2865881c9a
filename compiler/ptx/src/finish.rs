//! Completes sums over all rows: the parts of the blocks, always in the same order.

use hgnnc_ir::Reduce;

use crate::code::{Class, Code, Val};
use crate::table::{Slot, Table};
use crate::{Blocks, KernelInfo, THREADS, Total, math};

/// Of at most so many elements each has a warp, whose lanes share the parts.
const FEW: usize = 64;

/// Writes the kernel `number` that completes a total, `of` kernel and position.
pub(crate) fn emit(total: &Total, of: (usize, usize), number: usize, table: &mut Table) -> (String, KernelInfo) {
    let mut code = Code::new(0);
    let few = total.width.as_fixed().is_some_and(|width| width <= FEW);
    let lanes = if few { 32 } else { 1 };
    let per_block = THREADS / lanes;
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
    let own = code.u("div.u32", &[&thread, &lanes]);
    let element = code.u("mad.lo.u32", &[&"%block", &per_block, &own]);
    let beyond = code.p("setp.ge.u32", &[&element, &width]);
    // Warps are complete: where an element has a warp, all its lanes are beyond.
    code.line(format_args!("@{beyond} ret;"));
    let part = code.u("rem.u32", &[&thread, &lanes]);
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
    code.set(part, "add.u32", &[&part, &lanes]);
    code.jump(again);
    code.place(done);
    let mut all: Val = sum.into();
    let mut guard = String::new();
    if few {
        for bit in 0..5 {
            let other = code.f("shfl.sync.bfly.b32", &[&all, &(1u32 << bit), &0x1f, &"0xffffffff"]);
            all = combine(&mut code, total.reduce, all, other.into());
            if let Val::Imm(_) = all {
                all = code.f("mov.f32", &[&all]).into();
            }
        }
        let lane = code.u("rem.u32", &[&thread, &lanes]);
        let first = code.p("setp.eq.u32", &[&lane, &0]);
        guard = format!("@{first} ");
    }
    let at = code.d("mad.wide.u32", &[&element, &4, &out]);
    code.line(format_args!("{guard}st.global.f32 [{at}], {all};"));
    let blocks = Blocks::Elements { width: total.width.clone(), per_block };
    (code.finish(), KernelInfo { number, blocks, shared: 0, totals: vec![] })
}

fn combine(code: &mut Code, reduce: Reduce, a: Val, b: Val) -> Val {
    match reduce {
        Reduce::Sum => math::binary(code, hgnnc_ir::BinaryOp::Add, a, b),
        Reduce::Max => math::max(code, a, b),
        Reduce::Min => math::min(code, a, b),
        Reduce::Lse => math::log_add_exp(code, a, b),
    }
}
