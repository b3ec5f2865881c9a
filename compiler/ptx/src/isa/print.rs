//! The text of PTX: each form of operands, operations and items is written here and nowhere else.

use std::fmt::{self, Display, Write};

use super::{
    Address, Body, Cache, Class, Cmp, Function, Guard, Inst, Item, Label, Mma, Opcode, Operand, Reg, Round, Source,
    Special, StateSpace, Symbol, Type,
};

/// The memory that holds the table of a module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableSpace {
    /// In constant memory, whose 64 KiB limit the number of entries.
    Const,
    /// In global memory, read through the read-only cache.
    Global,
}

impl TableSpace {
    /// The state space of its declaration.
    fn declared(self) -> &'static str {
        match self {
            TableSpace::Const => "const",
            TableSpace::Global => "global",
        }
    }

    fn loaded(self) -> &'static str {
        match self {
            TableSpace::Const => "const",
            TableSpace::Global => "global.nc",
        }
    }
}

/// The text of a module.
pub fn module(source: &Source) -> String {
    let (mut out, put) = (String::new(), "strings can be written to");
    let Source { title, target, slots, table, space, shared, functions } = source;
    writeln!(out, "// {title}\n.version 7.8\n.target {target}\n.address_size 64\n").expect(put);
    if let Some(slots) = slots {
        writeln!(out, "// Filled in when data is bound:").expect(put);
        for (index, slot) in slots.iter().enumerate() {
            writeln!(out, "//   table[{index}], +{}: {slot}", 8 * index).expect(put);
        }
    }
    writeln!(out, ".visible .{} .align 8 .b64 table[{table}];", space.declared()).expect(put);
    if *shared {
        // Each launch says how many: what is declared with a size has at most 48 KiB.
        writeln!(out, ".extern .shared .align 16 .b8 shared[];").expect(put);
    }
    for Function { name, threads, min_blocks, body } in functions {
        writeln!(out, "\n.visible .entry {name}()\n.maxntid {threads}, 1, 1").expect(put);
        if let Some(blocks) = min_blocks {
            writeln!(out, ".minnctapersm {blocks}").expect(put);
        }
        out.push_str("{\n");
        self::body(&mut out, body, 1, *space);
        out.push_str("}\n");
    }
    out
}

/// Writes the lines of a body, indented by `depth` levels.
fn body(out: &mut String, body: &Body, depth: usize, table: TableSpace) {
    let put = "strings can be written to";
    for item in &body.items {
        if !matches!(item, Item::Blank | Item::Label(Label::Next(_) | Label::Named(_))) {
            indent(out, depth);
        }
        match item {
            Item::Inst(inst) => write!(out, "{};", Printed(inst, table)).expect(put),
            Item::Label(label) => write!(out, "{label}:").expect(put),
            Item::Comment(text) => write!(out, "// {text}").expect(put),
            Item::Registers(class, count) => {
                write!(out, ".reg .{} {}<{count}>;", class.ty(), class.prefix()).expect(put)
            }
            Item::Named(class, regs) => write!(out, ".reg .{} {};", class.ty(), List(regs)).expect(put),
            Item::NoUnroll => out.push_str(".pragma \"nounroll\";"),
            Item::Scope(scope) => {
                out.push_str("{\n");
                self::body(out, scope, depth + 1, table);
                indent(out, depth);
                out.push('}');
            }
            Item::Blank => {}
        }
        out.push('\n');
    }
}

fn indent(out: &mut String, depth: usize) {
    for _ in 0..depth {
        out.push_str("    ");
    }
}

impl Class {
    /// The type of its registers in declarations.
    fn ty(self) -> &'static str {
        match self {
            Class::F32 => "f32",
            Class::U32 => "b32",
            Class::U64 => "b64",
            Class::Pred => "pred",
        }
    }

    /// The beginning of the names of its virtual registers.
    fn prefix(self) -> &'static str {
        match self {
            Class::F32 => "%f",
            Class::U32 => "%r",
            Class::U64 => "%d",
            Class::Pred => "%p",
        }
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reg::Virtual(class, number) => write!(f, "{}{number}", class.prefix()),
            Reg::Named(_, name) => write!(f, "%{name}"),
        }
    }
}

/// Items separated by commas.
struct List<'a, T>(&'a [T]);

impl<T: Display> Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, item) in self.0.iter().enumerate() {
            if position > 0 {
                f.write_str(", ")?;
            }
            item.fmt(f)?;
        }
        Ok(())
    }
}

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Label::Kernel { code, body, number } => write!(f, "$L{code}_{body}_{number}"),
            Label::Band { code, number } => write!(f, "$L{code}_band{number}"),
            Label::Again(code) => write!(f, "$again{code}"),
            Label::Found(code) => write!(f, "$found{code}"),
            Label::Next(code) => write!(f, "$next{code}"),
            Label::Named(name) => write!(f, "${name}"),
        }
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Register(base, None) => write!(f, "[{base}]"),
            Address::Register(base, Some(offset)) => write!(f, "[{base}+{offset}]"),
            Address::Table(offset) => write!(f, "[table+{offset}]"),
            Address::Argument(number) => unreachable!("entry {number} has an address in a complete module"),
        }
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Reg(reg) => reg.fmt(f),
            Operand::Regs(regs) => write!(f, "{{{}}}", List(regs)),
            Operand::F32(bits) => write!(f, "0f{bits:08X}"),
            Operand::Int(number) => number.fmt(f),
            Operand::Mask(bits) => write!(f, "{bits:#x}"),
            Operand::Special(Special::TidX) => f.write_str("%tid.x"),
            Operand::Special(Special::CtaidX) => f.write_str("%ctaid.x"),
            Operand::Special(Special::NctaidX) => f.write_str("%nctaid.x"),
            Operand::Symbol(Symbol::Table) => f.write_str("table"),
            Operand::Symbol(Symbol::Shared) => f.write_str("shared"),
            Operand::Region(region) => unreachable!("{region:?} has a value in a complete kernel"),
            Operand::Address(address) => address.fmt(f),
            Operand::Label(label) => label.fmt(f),
        }
    }
}

impl Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}{} ", if self.negated { "!" } else { "" }, self.reg)
    }
}

/// An instruction of a module whose table is there.
struct Printed<'a>(pub &'a Inst, pub TableSpace);

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Printed(Inst { guard, op, dst, srcs }, table) = self;
        if let Some(guard) = guard {
            guard.fmt(f)?;
        }
        // A vector of registers is loaded or stored at once.
        let moved = match op {
            Opcode::Ld(..) => dst.as_ref(),
            Opcode::St(..) => srcs.get(1),
            _ => None,
        };
        let lanes = match moved {
            Some(Operand::Regs(regs)) => regs.len(),
            _ => 1,
        };
        opcode(f, *op, lanes, *table)?;
        let mut separator = " ";
        for operand in dst.iter().chain(srcs) {
            f.write_str(separator)?;
            operand.fmt(f)?;
            separator = ", ";
        }
        Ok(())
    }
}

/// Writes an operation, of which loads and stores have vectors of so many `lanes`.
fn opcode(f: &mut fmt::Formatter<'_>, op: Opcode, lanes: usize, table: TableSpace) -> fmt::Result {
    let (name, ty) = match op {
        Opcode::Mov(ty) => ("mov", ty),
        Opcode::Ld(space, ty) => return memory(f, "ld", space, lanes, ty, table),
        Opcode::St(space, ty) => return memory(f, "st", space, lanes, ty, table),
        Opcode::Add(Type::F32) => ("add.rn", Type::F32),
        Opcode::Add(ty) => ("add", ty),
        Opcode::Sub(Type::F32) => ("sub.rn", Type::F32),
        Opcode::Sub(ty) => ("sub", ty),
        Opcode::Mul(Type::F32) => ("mul.rn", Type::F32),
        Opcode::Mul(ty) => ("mul.lo", ty),
        Opcode::MulWide => ("mul.wide", Type::U32),
        Opcode::Mad(Type::F32) => ("fma.rn", Type::F32),
        Opcode::Mad(ty) => ("mad.lo", ty),
        Opcode::MadWide => ("mad.wide", Type::U32),
        Opcode::Div(Type::F32) => ("div.rn", Type::F32),
        Opcode::Div(ty) => ("div", ty),
        Opcode::Rem => ("rem", Type::U32),
        Opcode::Min(Type::F32) => ("min.NaN", Type::F32),
        Opcode::Min(ty) => ("min", ty),
        Opcode::Max(Type::F32) => ("max.NaN", Type::F32),
        Opcode::Max(ty) => ("max", ty),
        Opcode::Neg => ("neg", Type::F32),
        Opcode::Abs => ("abs", Type::F32),
        Opcode::CopySign => ("copysign", Type::F32),
        Opcode::Sqrt => ("sqrt.rn", Type::F32),
        Opcode::Rcp => ("rcp.rn", Type::F32),
        Opcode::Ex2 => ("ex2.approx", Type::F32),
        Opcode::Lg2 => ("lg2.approx", Type::F32),
        Opcode::Cos => ("cos.approx", Type::F32),
        Opcode::And(ty) => ("and", ty),
        Opcode::Or(ty) => ("or", ty),
        Opcode::Xor(ty) => ("xor", ty),
        Opcode::Not => ("not", Type::Pred),
        Opcode::Shl(ty) => ("shl", ty),
        Opcode::Shr(ty) => ("shr", ty),
        Opcode::Setp(cmp, ty) => return write!(f, "setp.{}.{}", cmp.name(), ty.name()),
        Opcode::SetpAnd(cmp, ty) => return write!(f, "setp.{}.and.{}", cmp.name(), ty.name()),
        Opcode::Selp(ty) => ("selp", ty),
        Opcode::Cvt(None, to, from) => return write!(f, "cvt.{}.{}", to.name(), from.name()),
        Opcode::Cvt(Some(round), to, from) => {
            return write!(f, "cvt.{}.{}.{}", round.name(), to.name(), from.name());
        }
        Opcode::ShflBfly => ("shfl.sync.bfly", Type::B32),
        Opcode::ReduxMax => ("redux.sync.max", Type::U32),
        Opcode::VoteAny => ("vote.sync.any", Type::Pred),
        Opcode::RedAdd => ("red.global.add", Type::U32),
        Opcode::CpAsync(Cache::All) => return f.write_str("cp.async.ca.shared.global"),
        Opcode::CpAsync(Cache::Global) => return f.write_str("cp.async.cg.shared.global"),
        Opcode::CpAsyncCommit => return f.write_str("cp.async.commit_group"),
        Opcode::CpAsyncWaitGroup => return f.write_str("cp.async.wait_group"),
        Opcode::CpAsyncWaitAll => return f.write_str("cp.async.wait_all"),
        Opcode::Mma(Mma::Tf32) => return f.write_str("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
        Opcode::Mma(Mma::Bf16) => return f.write_str("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
        Opcode::BarSync => return f.write_str("bar.sync"),
        Opcode::BarWarpSync => return f.write_str("bar.warp.sync"),
        Opcode::Bra => return f.write_str("bra"),
        Opcode::Ret => return f.write_str("ret"),
    };
    write!(f, "{name}.{}", ty.name())
}

fn memory(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    space: StateSpace,
    lanes: usize,
    ty: Type,
    table: TableSpace,
) -> fmt::Result {
    let space = match space {
        StateSpace::Table => table.loaded(),
        StateSpace::Global => "global",
        StateSpace::GlobalNc => "global.nc",
        StateSpace::Shared => "shared",
    };
    write!(f, "{name}.{space}")?;
    if lanes > 1 {
        write!(f, ".v{lanes}")?;
    }
    write!(f, ".{}", ty.name())
}

impl Type {
    fn name(self) -> &'static str {
        match self {
            Type::F32 => "f32",
            Type::Tf32 => "tf32",
            Type::Bf16x2 => "bf16x2",
            Type::U32 => "u32",
            Type::S32 => "s32",
            Type::B32 => "b32",
            Type::U64 => "u64",
            Type::B64 => "b64",
            Type::Pred => "pred",
        }
    }
}

impl Cmp {
    fn name(self) -> &'static str {
        match self {
            Cmp::Eq => "eq",
            Cmp::Ne => "ne",
            Cmp::Lt => "lt",
            Cmp::Gt => "gt",
            Cmp::Ge => "ge",
            Cmp::Nan => "nan",
        }
    }
}

impl Round {
    fn name(self) -> &'static str {
        match self {
            Round::Nearest => "rn",
            Round::NearestAway => "rna",
            Round::Integer => "rni",
            Round::Floor => "rmi",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Val;

    const R: [Reg; 4] = [
        Reg::Virtual(Class::U32, 0),
        Reg::Virtual(Class::U32, 1),
        Reg::Virtual(Class::U32, 2),
        Reg::Virtual(Class::U32, 3),
    ];
    const D: [Reg; 2] = [Reg::Virtual(Class::U64, 0), Reg::Virtual(Class::U64, 1)];
    const F: [Reg; 4] = [
        Reg::Virtual(Class::F32, 0),
        Reg::Virtual(Class::F32, 1),
        Reg::Virtual(Class::F32, 2),
        Reg::Virtual(Class::F32, 3),
    ];
    const P: [Reg; 2] = [Reg::Virtual(Class::Pred, 0), Reg::Virtual(Class::Pred, 1)];

    fn text(inst: &Inst) -> String {
        Printed(inst, TableSpace::Const).to_string()
    }

    /// An operation with these operands, the first of which is the result.
    #[track_caller]
    fn prints(op: Opcode, dst: impl Into<Operand>, srcs: impl crate::isa::Srcs, expected: &str) {
        assert_eq!(text(&Inst::new(op, dst, srcs)), expected);
    }

    #[test]
    fn arithmetic() {
        use Opcode as Op;
        prints(Op::Mov(Type::U32), R[0], (Special::TidX,), "mov.u32 %r0, %tid.x");
        prints(Op::Mov(Type::U32), R[0], (Special::NctaidX,), "mov.u32 %r0, %nctaid.x");
        prints(Op::Mov(Type::U32), R[0], (Symbol::Shared,), "mov.u32 %r0, shared");
        prints(Op::Mov(Type::U64), D[0], (Symbol::Table,), "mov.u64 %d0, table");
        prints(Op::Mov(Type::F32), F[0], (Val::ZERO,), "mov.f32 %f0, 0f00000000");
        prints(Op::Mov(Type::B32), F[0], (R[0],), "mov.b32 %f0, %r0");
        prints(Op::Mov(Type::B64), vec![R[0], R[1]], (D[0],), "mov.b64 {%r0, %r1}, %d0");
        prints(Op::Add(Type::U32), R[0], (Reg::BLOCK, 7), "add.u32 %r0, %block, 7");
        prints(Op::Add(Type::U64), D[0], (D[0], 8usize), "add.u64 %d0, %d0, 8");
        prints(Op::Add(Type::F32), F[0], (F[1], -1.5f32), "add.rn.f32 %f0, %f1, 0fBFC00000");
        prints(Op::Sub(Type::U32), R[0], (R[1], R[2]), "sub.u32 %r0, %r1, %r2");
        prints(Op::Sub(Type::S32), R[0], (R[1], R[2]), "sub.s32 %r0, %r1, %r2");
        prints(Op::Sub(Type::F32), F[0], (F[1], F[2]), "sub.rn.f32 %f0, %f1, %f2");
        prints(Op::Mul(Type::U32), R[0], (R[1], R[2]), "mul.lo.u32 %r0, %r1, %r2");
        prints(Op::Mul(Type::U64), D[0], (D[1], 3), "mul.lo.u64 %d0, %d1, 3");
        prints(Op::Mul(Type::F32), F[0], (F[1], F[2]), "mul.rn.f32 %f0, %f1, %f2");
        prints(Op::MulWide, D[0], (R[1], R[2]), "mul.wide.u32 %d0, %r1, %r2");
        prints(Op::Mad(Type::U32), R[0], (R[1], 4, R[2]), "mad.lo.u32 %r0, %r1, 4, %r2");
        prints(Op::Mad(Type::F32), F[0], (F[1], F[2], F[0]), "fma.rn.f32 %f0, %f1, %f2, %f0");
        prints(Op::MadWide, D[0], (R[1], 4, D[1]), "mad.wide.u32 %d0, %r1, 4, %d1");
        prints(Op::Div(Type::U32), R[0], (R[1], 5), "div.u32 %r0, %r1, 5");
        prints(Op::Div(Type::U64), D[0], (D[0], D[1]), "div.u64 %d0, %d0, %d1");
        prints(Op::Div(Type::F32), F[0], (F[1], F[2]), "div.rn.f32 %f0, %f1, %f2");
        prints(Op::Rem, R[0], (R[1], 5), "rem.u32 %r0, %r1, 5");
        prints(Op::Min(Type::U32), R[0], (R[1], 5), "min.u32 %r0, %r1, 5");
        prints(Op::Min(Type::S32), R[0], (R[1], 5), "min.s32 %r0, %r1, 5");
        prints(Op::Min(Type::F32), F[0], (F[1], F[2]), "min.NaN.f32 %f0, %f1, %f2");
        prints(Op::Max(Type::S32), R[0], (R[1], 0), "max.s32 %r0, %r1, 0");
        prints(Op::Max(Type::F32), F[0], (F[1], F[2]), "max.NaN.f32 %f0, %f1, %f2");
        prints(Op::Neg, F[0], (F[1],), "neg.f32 %f0, %f1");
        prints(Op::Abs, F[0], (F[1],), "abs.f32 %f0, %f1");
        prints(Op::CopySign, F[0], (F[1], F[2]), "copysign.f32 %f0, %f1, %f2");
        prints(Op::Sqrt, F[0], (F[1],), "sqrt.rn.f32 %f0, %f1");
        prints(Op::Rcp, F[0], (F[1],), "rcp.rn.f32 %f0, %f1");
        prints(Op::Ex2, F[0], (F[1],), "ex2.approx.f32 %f0, %f1");
        prints(Op::Lg2, F[0], (F[1],), "lg2.approx.f32 %f0, %f1");
        prints(Op::Cos, F[0], (F[1],), "cos.approx.f32 %f0, %f1");
    }

    #[test]
    fn bits_comparisons_and_conversions() {
        use Opcode as Op;
        prints(Op::And(Type::B32), R[0], (R[1], Operand::Mask(0xffff_fffc)), "and.b32 %r0, %r1, 0xfffffffc");
        prints(Op::And(Type::Pred), P[0], (P[0], P[1]), "and.pred %p0, %p0, %p1");
        prints(Op::Or(Type::Pred), P[0], (P[0], P[1]), "or.pred %p0, %p0, %p1");
        prints(Op::Xor(Type::B32), R[0], (R[1], R[2]), "xor.b32 %r0, %r1, %r2");
        prints(Op::Xor(Type::Pred), P[0], (P[0], P[1]), "xor.pred %p0, %p0, %p1");
        prints(Op::Not, P[0], (P[1],), "not.pred %p0, %p1");
        prints(Op::Shl(Type::B64), D[0], (D[1], 2), "shl.b64 %d0, %d1, 2");
        prints(Op::Shr(Type::U32), R[0], (R[1], 5), "shr.u32 %r0, %r1, 5");
        let comparisons =
            [(Cmp::Eq, "eq"), (Cmp::Ne, "ne"), (Cmp::Lt, "lt"), (Cmp::Gt, "gt"), (Cmp::Ge, "ge"), (Cmp::Nan, "nan")];
        for (cmp, name) in comparisons {
            prints(Op::Setp(cmp, Type::F32), P[0], (F[0], F[1]), &format!("setp.{name}.f32 %p0, %f0, %f1"));
        }
        prints(Op::Setp(Cmp::Ge, Type::S32), P[0], (R[0], 0), "setp.ge.s32 %p0, %r0, 0");
        prints(Op::SetpAnd(Cmp::Lt, Type::U32), P[0], (R[0], R[1], P[1]), "setp.lt.and.u32 %p0, %r0, %r1, %p1");
        prints(Op::Selp(Type::U32), R[0], (R[1], 0, P[0]), "selp.u32 %r0, %r1, 0, %p0");
        prints(Op::Selp(Type::F32), F[0], (1.0, F[1], P[0]), "selp.f32 %f0, 0f3F800000, %f1, %p0");
        prints(Op::Cvt(None, Type::U64, Type::U32), D[0], (R[0],), "cvt.u64.u32 %d0, %r0");
        prints(Op::Cvt(None, Type::U32, Type::U64), R[0], (D[0],), "cvt.u32.u64 %r0, %d0");
        let round = |round, to| Op::Cvt(Some(round), to, Type::F32);
        prints(round(Round::Integer, Type::F32), F[0], (F[1],), "cvt.rni.f32.f32 %f0, %f1");
        prints(round(Round::Floor, Type::F32), F[0], (F[1],), "cvt.rmi.f32.f32 %f0, %f1");
        prints(round(Round::NearestAway, Type::Tf32), R[0], (F[1],), "cvt.rna.tf32.f32 %r0, %f1");
        prints(round(Round::Nearest, Type::Bf16x2), R[0], (F[1], F[0]), "cvt.rn.bf16x2.f32 %r0, %f1, %f0");
    }

    #[test]
    fn memory_and_addresses() {
        let (plain, near) = (Address::from(D[0]), Address::from((D[0], 0)));
        let spaces =
            [(StateSpace::Global, "global"), (StateSpace::GlobalNc, "global.nc"), (StateSpace::Shared, "shared")];
        for (space, name) in spaces {
            prints(Opcode::Ld(space, Type::F32), F[0], (plain,), &format!("ld.{name}.f32 %f0, [%d0]"));
        }
        // An offset of 0 is an offset.
        prints(Opcode::Ld(StateSpace::GlobalNc, Type::U64), D[1], (near,), "ld.global.nc.u64 %d1, [%d0+0]");
        let vector = Inst::new(Opcode::Ld(StateSpace::Global, Type::F32), &F, (near,)).guarded(Some(P[1]));
        assert_eq!(text(&vector), "@%p1 ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d0+0]");
        let store = Inst::effect(Opcode::St(StateSpace::Shared, Type::F32), (plain, F[1]));
        assert_eq!(text(&store), "st.shared.f32 [%d0], %f1");
        let store = Inst::effect(Opcode::St(StateSpace::Global, Type::F32), (plain, &F[..2]));
        assert_eq!(text(&store), "st.global.v2.f32 [%d0], {%f0, %f1}");
        let red = Inst::effect(Opcode::RedAdd, (plain, 1)).guarded(Some(P[0]));
        assert_eq!(text(&red), "@%p0 red.global.add.u32 [%d0], 1");
        let copy = |cache| text(&Inst::effect(Opcode::CpAsync(cache), (Address::from(R[0]), plain, 16, R[1])));
        assert_eq!(copy(Cache::Global), "cp.async.cg.shared.global [%r0], [%d0], 16, %r1");
        assert_eq!(copy(Cache::All), "cp.async.ca.shared.global [%r0], [%d0], 16, %r1");
        assert_eq!(text(&Inst::effect(Opcode::CpAsyncCommit, ())), "cp.async.commit_group");
        assert_eq!(text(&Inst::effect(Opcode::CpAsyncWaitGroup, (1,))), "cp.async.wait_group 1");
        assert_eq!(text(&Inst::effect(Opcode::CpAsyncWaitAll, ())), "cp.async.wait_all");
    }

    #[test]
    fn the_table_is_read_where_it_lies() {
        let inst = Inst::new(Opcode::Ld(StateSpace::Table, Type::U32), R[0], (Address::Table(24),));
        assert_eq!(Printed(&inst, TableSpace::Const).to_string(), "ld.const.u32 %r0, [table+24]");
        assert_eq!(Printed(&inst, TableSpace::Global).to_string(), "ld.global.nc.u32 %r0, [table+24]");
    }

    #[test]
    fn warps_and_blocks() {
        let all = Operand::Mask(0xffff_ffff);
        let shuffle = Inst::new(Opcode::ShflBfly, F[0], (F[1], 16, 31, all.clone()));
        assert_eq!(text(&shuffle), "shfl.sync.bfly.b32 %f0, %f1, 16, 31, 0xffffffff");
        prints(Opcode::ReduxMax, R[0], (R[1], all.clone()), "redux.sync.max.u32 %r0, %r1, 0xffffffff");
        prints(Opcode::VoteAny, P[0], (P[1], all.clone()), "vote.sync.any.pred %p0, %p1, 0xffffffff");
        assert_eq!(text(&Inst::effect(Opcode::BarWarpSync, (all,))), "bar.warp.sync 0xffffffff");
        assert_eq!(text(&Inst::effect(Opcode::BarSync, (0,))), "bar.sync 0");
        assert_eq!(text(&Inst::effect(Opcode::Ret, ())), "ret");
        let fragments = "{%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%f0, %f1, %f2, %f3}";
        for (mma, name) in
            [(Mma::Tf32, "m16n8k8.row.col.f32.tf32.tf32.f32"), (Mma::Bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")]
        {
            prints(Opcode::Mma(mma), &F, (&R, &R[..2], &F), &format!("mma.sync.aligned.{name} {fragments}"));
        }
    }

    #[test]
    fn labels_and_guards() {
        let labels = [
            (Label::Kernel { code: 2, body: 1, number: 7 }, "$L2_1_7"),
            (Label::Band { code: 2, number: 1 }, "$L2_band1"),
            (Label::Again(3), "$again3"),
            (Label::Found(3), "$found3"),
            (Label::Next(3), "$next3"),
            (Label::Named("row"), "$row"),
        ];
        for (label, name) in labels {
            let jump = Inst::effect(Opcode::Bra, (label,));
            assert_eq!(text(&jump), format!("bra {name}"));
            let negated = jump.guarded(Some(Guard { reg: P[0], negated: true }));
            assert_eq!(text(&negated), format!("@!%p0 bra {name}"));
        }
    }

    #[test]
    fn a_module_is_its_table_and_its_functions() {
        let scope = Body {
            items: vec![
                Item::Registers(Class::F32, 3),
                Item::Comment("the sum".to_owned()),
                Item::NoUnroll,
                Item::Label(Label::Again(0)),
                Inst::effect(Opcode::Ret, ()).into(),
            ],
        };
        let items = vec![
            Item::Named(Class::U32, vec![Reg::BLOCK, R[1]]),
            Item::Named(Class::Pred, vec![P[0]]),
            Item::Blank,
            Item::Scope(scope),
            Item::Label(Label::Next(0)),
        ];
        let function = Function { name: "step0".to_owned(), threads: 256, min_blocks: Some(1), body: Body { items } };
        let source = Source {
            title: "sum".to_owned(),
            target: "sm_90",
            slots: Some(vec!["x".to_owned()]),
            table: 1,
            space: TableSpace::Global,
            shared: true,
            functions: vec![function],
        };
        let expected = "\
// sum
.version 7.8
.target sm_90
.address_size 64

// Filled in when data is bound:
//   table[0], +0: x
.visible .global .align 8 .b64 table[1];
.extern .shared .align 16 .b8 shared[];

.visible .entry step0()
.maxntid 256, 1, 1
.minnctapersm 1
{
    .reg .b32 %block, %r1;
    .reg .pred %p0;

    {
        .reg .f32 %f<3>;
        // the sum
        .pragma \"nounroll\";
        $again0:
        ret;
    }
$next0:
}
";
        assert_eq!(module(&source), expected);
    }
}
