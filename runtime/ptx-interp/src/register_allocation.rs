//! Register allocation.
//!
//! PTX is in near-SSA form, with a register for nearly every value, and a warp stores 32 values of each: kernels with
//! thousands of registers would not stay in the processor's cache. Registers with disjoint live intervals, in text
//! order, share a place. Definedness is tracked per register name, so that reads of unwritten registers are still
//! detected.
//!
//! Diverged lanes do not interfere: a place has a value per lane, and liveness holds along each lane's own path.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::module::Kernel;
use crate::ops::{Inst, Op};
use crate::registers::Slot;

/// Replaces register names by places; [`Inst::reads`] and [`Inst::writes`] keep the names.
pub(crate) fn allocate_registers(kernel: &mut Kernel) {
    let names = kernel.num_slots;
    let mut place: Vec<Slot> = vec![Slot::MAX; names];
    let mut places = 0;
    for (slot, _) in &mut kernel.constants {
        place[*slot as usize] = places;
        *slot = places;
        places += 1;
    }
    let mut lives: Vec<(usize, usize, usize)> = lives(&kernel.code, names)
        .into_iter()
        .enumerate()
        .filter(|&(name, (start, _))| start != usize::MAX && place[name] == Slot::MAX)
        .map(|(name, (start, end))| (start, end, name))
        .collect();
    lives.sort_unstable();
    let mut busy: BinaryHeap<Reverse<(usize, Slot)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<Slot>> = BinaryHeap::new();
    for (start, end, name) in lives {
        while let Some(&Reverse((over, slot))) = busy.peek().filter(|Reverse((over, _))| *over < start) {
            debug_assert!(over < start);
            busy.pop();
            free.push(Reverse(slot));
        }
        let slot = free.pop().map_or_else(
            || {
                places += 1;
                places - 1
            },
            |Reverse(slot)| slot,
        );
        place[name] = slot;
        busy.push(Reverse((end, slot)));
    }
    for inst in &mut kernel.code {
        inst.visit_slots(&mut |slot| {
            // A name without a live interval belongs to an absent operand.
            *slot = match place[*slot as usize] {
                Slot::MAX => 0,
                slot => slot,
            }
        });
    }
    kernel.num_places = places as usize;
}

struct Block {
    start: usize,
    end: usize,
    next: Vec<usize>,
}

fn blocks(code: &[Inst]) -> Vec<Block> {
    let mut starts = vec![false; code.len() + 1];
    starts[0] = true;
    for (at, inst) in code.iter().enumerate() {
        match inst.op {
            Op::Bra { target } => {
                starts[target as usize] = true;
                starts[at + 1] = true;
            }
            Op::Exit => starts[at + 1] = true,
            _ => {}
        }
    }
    let starts: Vec<usize> = (0..code.len()).filter(|&at| starts[at]).collect();
    let block_at = |at: usize| starts.binary_search(&at).ok();
    let mut blocks = Vec::new();
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(code.len());
        let last = &code[end - 1];
        let mut next = Vec::new();
        if let Op::Bra { target } = last.op {
            next.extend(block_at(target as usize));
        }
        if last.guard.is_some() || !matches!(last.op, Op::Bra { .. } | Op::Exit) {
            next.extend(block_at(end));
        }
        blocks.push(Block { start, end, next });
    }
    blocks
}

type Bits = Vec<u64>;

fn contains(bits: &Bits, name: usize) -> bool {
    bits[name / 64] >> (name % 64) & 1 == 1
}

fn insert(bits: &mut Bits, name: usize) {
    bits[name / 64] |= 1 << (name % 64);
}

/// Live interval of each name: first and last position, which is twice the instruction's index, plus 1 for its writes.
/// `usize::MAX` for unused names.
fn lives(code: &[Inst], names: usize) -> Vec<(usize, usize)> {
    let blocks = blocks(code);
    let empty = vec![0u64; names.div_ceil(64)];
    // Read before any write in the block, and written on every path through it.
    let (mut used, mut written) = (vec![empty.clone(); blocks.len()], vec![empty.clone(); blocks.len()]);
    for (i, block) in blocks.iter().enumerate() {
        for inst in &code[block.start..block.end] {
            for &name in &inst.reads {
                if !contains(&written[i], name as usize) {
                    insert(&mut used[i], name as usize);
                }
            }
            if inst.guard.is_none() {
                inst.writes.iter().for_each(|&name| insert(&mut written[i], name as usize));
            }
        }
    }
    let mut live_in = used.clone();
    let mut live_out = vec![empty; blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for i in (0..blocks.len()).rev() {
            for &next in &blocks[i].next {
                for word in 0..live_in[next].len() {
                    let out = live_out[i][word] | live_in[next][word];
                    if out != live_out[i][word] {
                        live_out[i][word] = out;
                        live_in[i][word] = used[i][word] | out & !written[i][word];
                        changed = true;
                    }
                }
            }
        }
    }
    let mut lives = vec![(usize::MAX, 0); names];
    let mut at = |name: usize, moment: usize| {
        let (start, end) = &mut lives[name];
        *start = moment.min(*start);
        *end = moment.max(*end);
    };
    for (i, block) in blocks.iter().enumerate() {
        for (set, moment) in [(&live_in[i], 2 * block.start), (&live_out[i], 2 * block.end)] {
            for (word, &bits) in set.iter().enumerate() {
                let mut rest = bits;
                while rest != 0 {
                    at(word * 64 + rest.trailing_zeros() as usize, moment);
                    rest &= rest - 1;
                }
            }
        }
    }
    for (i, inst) in code.iter().enumerate() {
        inst.reads.iter().for_each(|&name| at(name as usize, 2 * i));
        inst.writes.iter().for_each(|&name| at(name as usize, 2 * i + 1));
    }
    lives
}

impl Inst {
    /// Calls `f` with each register of values that the instruction names.
    fn visit_slots(&mut self, f: &mut impl FnMut(&mut Slot)) {
        f(&mut self.operands.d);
        self.operands.s.iter_mut().for_each(&mut *f);
        match &mut self.op {
            Op::Alu(_)
            | Op::Convert(_)
            | Op::Nop
            | Op::Setp { .. }
            | Op::Set { .. }
            | Op::Selp { .. }
            | Op::PredLogic { .. }
            | Op::PredMov { .. }
            | Op::CpCommit
            | Op::CpWait(_)
            | Op::Bra { .. }
            | Op::Exit
            | Op::Trap => {}
            Op::Clock { d } | Op::ActiveMask { d } => f(d),
            Op::Pack { d, parts, bits: _ } => {
                f(d);
                parts.iter_mut().for_each(f);
            }
            Op::Unpack { parts, a, bits: _ } => {
                f(a);
                parts.iter_mut().flatten().for_each(f);
            }
            Op::LdParam { d, .. } => d.iter_mut().flatten().for_each(f),
            Op::Ld { d, address, .. } => {
                f(&mut address.base);
                d.iter_mut().flatten().for_each(f);
            }
            Op::St { values, address, .. } => {
                f(&mut address.base);
                values.iter_mut().for_each(f);
            }
            Op::Atomic { d, address, b, c, .. } => {
                f(&mut address.base);
                f(b);
                f(c);
                d.iter_mut().for_each(f);
            }
            Op::CpAsync { to, from, source_bytes, .. } => {
                f(&mut to.base);
                f(&mut from.base);
                source_bytes.iter_mut().for_each(f);
            }
            Op::Barrier(barrier) => {
                f(&mut barrier.id);
                barrier.count.iter_mut().for_each(&mut *f);
                if let Some(reduce) = &mut barrier.reduce {
                    reduce.value.iter_mut().for_each(f);
                }
            }
            Op::WarpSync { mask } => f(mask),
            Op::Shfl { d, a, b, c, mask, .. } => [d, a, b, c, mask].into_iter().for_each(f),
            Op::Vote { d, mask, .. } => {
                f(mask);
                d.iter_mut().for_each(f);
            }
            Op::Match { d, a, mask, .. } | Op::Redux { d, a, mask, .. } => [d, a, mask].into_iter().for_each(f),
            Op::Ldmatrix { d, address, .. } => {
                f(&mut address.base);
                d.iter_mut().for_each(f);
            }
            Op::Mma(mma) => {
                mma.d.iter_mut().chain(&mut mma.a).chain(&mut mma.b).chain(&mut mma.c).for_each(f);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::module::Module;
    use crate::{Launch, Memory, Value, parse};

    /// Programs over 8 variables, with a fresh register for every intermediate value.
    #[derive(Clone, Debug)]
    enum Statement {
        /// `d = a op b`.
        Assign(&'static str, u8, u8, u8),
        /// Executed by the lanes with `a < b`.
        Guarded(u8, u8, u8),
        If(u8, u8, Vec<Statement>, Vec<Statement>),
        /// Iterates per lane as often as the low bits of `a` say.
        Loop(u8, Vec<Statement>),
    }

    fn statements() -> impl Strategy<Value = Vec<Statement>> {
        let variable = || 0u8..8;
        let op = prop::sample::select(vec!["add.u32", "sub.u32", "xor.b32", "mul.lo.u32", "max.u32"]);
        let leaf = prop_oneof![
            4 => (op, variable(), variable(), variable()).prop_map(|(op, d, a, b)| Statement::Assign(op, d, a, b)),
            1 => (variable(), variable(), variable()).prop_map(|(d, a, b)| Statement::Guarded(d, a, b)),
        ];
        let statement = leaf.prop_recursive(3, 40, 6, move |inner| {
            let body = || prop::collection::vec(inner.clone(), 1..6);
            prop_oneof![
                (variable(), variable(), body(), body()).prop_map(|(a, b, yes, no)| Statement::If(a, b, yes, no)),
                (variable(), body()).prop_map(|(a, body)| Statement::Loop(a, body)),
            ]
        });
        prop::collection::vec(statement, 1..12)
    }

    fn write(statements: &[Statement], text: &mut String, n: &mut usize) {
        for statement in statements {
            *n += 1;
            let i = *n;
            let line = match statement {
                Statement::Assign(op, d, a, b) => format!("{op} %t{i}, %v{a}, %v{b}; mov.u32 %v{d}, %t{i};\n"),
                Statement::Guarded(d, a, b) => {
                    format!("setp.lt.u32 %p{i}, %v{a}, %v{b}; @%p{i} add.u32 %v{d}, %v{a}, 3;\n")
                }
                Statement::If(a, b, yes, no) => {
                    *text += &format!("setp.lt.u32 %p{i}, %v{a}, %v{b}; @!%p{i} bra NO{i};\n");
                    write(yes, text, n);
                    *text += &format!("bra JOIN{i}; NO{i}:\n");
                    write(no, text, n);
                    format!("JOIN{i}:\n")
                }
                Statement::Loop(a, body) => {
                    *text +=
                        &format!("and.b32 %t{i}, %v{a}, 3; LOOP{i}: setp.eq.u32 %p{i}, %t{i}, 0; @%p{i} bra OUT{i};\n");
                    write(body, text, n);
                    format!("sub.u32 %t{i}, %t{i}, 1; bra LOOP{i}; OUT{i}:\n")
                }
            };
            *text += &line;
        }
    }

    fn run(module: &Module) -> Vec<u8> {
        let mut memory = Memory::new();
        let out = memory.alloc("out", 32 * 8, 8);
        let params = module.kernels()[0].lay_out(&[Value::U64(out)]).expect("an address");
        let launch = Launch { block: [32, 1, 1], params, ..Launch::default() };
        module.run("k", &mut memory, &launch).unwrap_or_else(|fault| panic!("{fault}"));
        memory.read(out, 32 * 8).expect("all of it is written")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn sharing_places_changes_nothing(statements in statements()) {
            let (mut body, mut n) = (String::new(), 0);
            for v in 0..8 {
                body += &format!("mad.lo.u32 %v{v}, %tid.x, {}, {v};\n", 2 * v + 1);
            }
            write(&statements, &mut body, &mut n);
            let text = format!(
                ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {{
                .reg .b32 %v<8>, %t<{count}>; .reg .pred %p<{count}>; .reg .b64 %a, %o;
                {body}
                ld.param.u64 %a, [out]; mul.wide.u32 %o, %tid.x, 8; add.s64 %a, %a, %o;
                st.global.v2.u32 [%a], {{%v0, %v5}}; ret; }}",
                count = n + 1,
            );
            let (named, shared) = (parse::names(&text), Module::parse(&text));
            let (named, shared) = (named.expect("it is PTX"), shared.expect("it is PTX"));
            prop_assert!(shared.kernels[0].num_places <= named.kernels[0].num_places);
            prop_assert_eq!(run(&named), run(&shared), "{}", text);
        }
    }
}
