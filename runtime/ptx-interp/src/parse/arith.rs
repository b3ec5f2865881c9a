//! Decodes arithmetic, comparisons and conversions.

use super::Result;
use super::builder::Builder;
use super::statement::{Arg, ArgKind, Modifiers};
use crate::Class;
use crate::alu::convert::Conversion;
use crate::alu::float::Mode;
use crate::alu::{compare, convert, float, half, int};
use crate::numeric::Round;
use crate::ops::{Logic, Op, PredSlot};
use crate::registers::Step;
use crate::types::Type;

/// An operation, its class, and its number of floating-point operations.
pub(super) type Decoded = (Op, Class, u8);

const UNARY: [&str; 14] =
    ["abs", "neg", "not", "cnot", "popc", "clz", "brev", "rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"];
const BINARY: [&str; 13] =
    ["add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr", "copysign"];
const TERNARY: [&str; 7] = ["mad", "fma", "sad", "bfe", "shf", "prmt", "slct"];
const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

pub(super) fn round_of(name: &str) -> Round {
    match name {
        "rz" | "rzi" => Round::Zero,
        "rm" | "rmi" => Round::Down,
        "rp" | "rpi" => Round::Up,
        "rna" => Round::NearestAway,
        _ => Round::Nearest,
    }
}

/// Checks the number of operands.
pub(super) fn expect_args(m: &Modifiers<'_>, args: &[Arg<'_>], count: std::ops::RangeInclusive<usize>) -> Result<()> {
    if count.contains(&args.len()) {
        return Ok(());
    }
    let (least, most) = (count.start(), count.end());
    let expected = if least == most { format!("{least}") } else { format!("{least} to {most}") };
    Err(m.place.error(format!("`{}` takes {expected} operands, found {}", m.full(), args.len())))
}

impl<'a> Builder<'a> {
    /// Decodes arithmetic; `None` for other instructions.
    pub(super) fn decode_arith(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Option<Decoded>> {
        let name = m.name;
        Ok(Some(match name {
            "mov" => self.mov(m, args)?,
            "cvt" => self.cvt(m, args)?,
            "cvta" => self.cvta(m, args)?,
            "setp" => self.setp(m, args)?,
            "set" => self.set(m, args)?,
            "selp" => self.selp(m, args)?,
            "testp" => {
                let property = m.need(&["finite", "infinite", "number", "notanumber", "normal", "subnormal"])?;
                let ty = m.ty()?;
                expect_args(m, args, 2..=2)?;
                let Some(test) = compare::property(property, ty) else { return m.unsupported() };
                self.operands.s[0] = self.value(&args[1], ty)?;
                (Op::Setp { test, combine: None, p: self.pred_dest(&args[0])?, q: None }, Class::Predicate, 0)
            }
            "bfi" | "lop3" => {
                let ty = m.ty()?;
                expect_args(m, args, 5..=5)?;
                let Some(step) = int::quaternary(name, ty) else { return m.unsupported() };
                let later = if name == "bfi" { Type::U32 } else { ty };
                let types = [ty, ty, later, later];
                for (i, ty) in types.into_iter().enumerate() {
                    self.operands.s[i] = self.value(&args[i + 1], ty)?;
                }
                self.operands.d = self.dest(&args[0], ty)?;
                (Op::Alu(step), Class::Integer, 0)
            }
            "tanh" => self.float(m, args, 1)?,
            _ if UNARY.contains(&name) => self.float_or_int(m, args, 1)?,
            _ if BINARY.contains(&name) => self.float_or_int(m, args, 2)?,
            _ if TERNARY.contains(&name) => self.float_or_int(m, args, 3)?,
            _ => return Ok(None),
        }))
    }

    fn float_or_int(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>], arity: usize) -> Result<Decoded> {
        if m.name == "slct" {
            return self.slct(m, args);
        }
        if m.has_float() {
            return self.float(m, args, arity);
        }
        self.int(m, args, arity)
    }

    fn float(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>], arity: usize) -> Result<Decoded> {
        expect_args(m, args, arity + 1..=arity + 1)?;
        let round = m.one_of(&["rn", "rz", "rm", "rp"]);
        let approximate = m.flag("approx") | m.flag("full");
        let (ftz, sat, nan) = (m.flag("ftz"), m.flag("sat"), m.flag("NaN"));
        let ty = m.ty()?;
        let mode = Mode { round: round_of(round.unwrap_or("rn")), ftz, sat };
        let name = if nan { format!("{}.NaN", m.name) } else { m.name.to_owned() };
        let may_saturate = matches!(m.name, "add" | "sub" | "mul" | "fma" | "mad");
        let step: Option<Step> = match (ty, arity) {
            _ if sat && !(may_saturate && ty == Type::F32) => None,
            _ if approximate && matches!(m.name, "add" | "sub" | "mul" | "fma" | "mad" | "min" | "max") => None,
            (Type::F32, 1) => float::unary_f32(&name, mode),
            (Type::F32, 2) => float::binary_f32(&name, mode),
            (Type::F32, _) if matches!(m.name, "fma" | "mad") => Some(float::fma_step(mode)),
            (Type::F64, _) if mode.round != Round::Nearest => None,
            (Type::F64, 1) => float::unary_f64(&name),
            (Type::F64, 2) => float::binary_f64(&name),
            (Type::F64, _) if matches!(m.name, "fma" | "mad") => Some(float::fma_f64_step()),
            (_, 1) => half::unary(&name, ty),
            (_, 2) => half::binary(&name, ty),
            (_, _) if m.name == "fma" => half::fma_step(ty),
            _ => None,
        };
        let Some(step) = step else { return m.unsupported() };
        for (i, arg) in args[1..].iter().enumerate() {
            self.operands.s[i] = self.value(arg, ty)?;
        }
        self.operands.d = self.dest(&args[0], ty)?;
        let (class, flops) = match m.name {
            "fma" | "mad" => (Class::Float, 2),
            "add" | "sub" | "mul" => (Class::Float, 1),
            "abs" | "neg" | "min" | "max" | "copysign" => (Class::Float, 0),
            _ => (Class::Special, 1),
        };
        let pair = matches!(ty, Type::F16x2 | Type::Bf16x2);
        Ok((Op::Alu(step), class, flops * if pair { 2 } else { 1 }))
    }

    fn int(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>], arity: usize) -> Result<Decoded> {
        expect_args(m, args, arity + 1..=arity + 1)?;
        let mut name = m.name.to_owned();
        let parts: &[&[&str]] = match m.name {
            "mul" | "mad" => &[&["lo", "hi", "wide"]],
            "shf" => &[&["l", "r"], &["clamp", "wrap"]],
            _ => &[],
        };
        for choices in parts {
            name = format!("{name}.{}", m.need(choices)?);
        }
        let ty = m.ty()?;
        if ty == Type::Pred {
            return self.pred_logic(m, args);
        }
        if matches!(m.name, "add" | "sub") && m.flag("sat") {
            name += ".sat";
        }
        let bits = matches!(ty, Type::B16 | Type::B32 | Type::B64);
        let wants_bits =
            matches!(m.name, "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shf" | "prmt" | "popc" | "clz" | "brev");
        let step = match arity {
            _ if bits != wants_bits && !(m.name == "shr" && bits) => None,
            1 => int::unary(&name, ty),
            2 => int::binary(&name, ty),
            _ => int::ternary(&name, ty),
        };
        let Some(step) = step else { return m.unsupported() };
        let wide = if !name.ends_with(".wide") {
            ty
        } else {
            match ty {
                Type::U16 => Type::U32,
                Type::S16 => Type::S32,
                Type::U32 => Type::U64,
                _ => Type::S64,
            }
        };
        let unsigned = match ty.bytes() {
            2 => Type::U16,
            4 => Type::U32,
            _ => Type::U64,
        };
        let types = match m.name {
            "shl" | "shr" => [ty, Type::U32, ty],
            "bfe" => [ty, Type::U32, Type::U32],
            "mad" => [ty, ty, wide],
            "sad" => [ty, ty, unsigned],
            "shf" => [ty, ty, Type::U32],
            _ => [ty; 3],
        };
        for (i, arg) in args[1..].iter().enumerate() {
            self.operands.s[i] = self.value(arg, types[i])?;
        }
        let to = if matches!(m.name, "popc" | "clz") { Type::U32 } else { wide };
        self.operands.d = self.dest(&args[0], to)?;
        Ok((Op::Alu(step), Class::Integer, 0))
    }

    fn pred_logic(&mut self, m: &Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let a = self.pred(&args[1])?;
        let op = match m.name {
            "and" => Logic::And,
            "or" => Logic::Or,
            "xor" => Logic::Xor,
            "not" => {
                let d = self.need_pred(&args[0])?;
                return Ok((Op::PredMov { d, a: crate::ops::Pred { negated: !a.negated, ..a } }, Class::Predicate, 0));
            }
            _ => return m.unsupported(),
        };
        let b = self.pred(&args[2])?;
        Ok((Op::PredLogic { op, d: self.need_pred(&args[0])?, a, b }, Class::Predicate, 0))
    }

    fn need_pred(&mut self, arg: &Arg<'a>) -> Result<PredSlot> {
        self.pred_dest(arg)?.ok_or_else(|| arg.place.error("expected a predicate"))
    }

    fn mov(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        expect_args(m, args, 2..=2)?;
        let ty = m.ty()?;
        let bits = 8 * ty.bytes() as u32;
        let part_type = |parts: usize| match (bits, parts) {
            (16, 2) => Some(Type::B8),
            (32, 2) | (64, 4) => Some(Type::B16),
            (64, 2) => Some(Type::B32),
            (32, 4) => Some(Type::B8),
            _ => None,
        };
        let op = match (&args[0].kind, &args[1].kind) {
            _ if ty == Type::Pred => {
                let a = self.pred(&args[1])?;
                return Ok((Op::PredMov { d: self.need_pred(&args[0])?, a }, Class::Predicate, 0));
            }
            (ArgKind::Vector(parts), _) => {
                let Some(part) = part_type(parts.len()) else { return m.unsupported() };
                let a = self.value(&args[1], ty)?;
                let parts = parts.iter().map(|arg| self.dest_or_none(arg, part, false)).collect::<Result<_>>()?;
                Op::Unpack { parts, a, bits: 8 * part.bytes() as u32 }
            }
            (_, ArgKind::Vector(parts)) => {
                let Some(part) = part_type(parts.len()) else { return m.unsupported() };
                let parts = parts.iter().map(|arg| self.value(arg, part)).collect::<Result<_>>()?;
                Op::Pack { d: self.dest(&args[0], ty)?, parts, bits: 8 * part.bytes() as u32 }
            }
            (_, ArgKind::Special(name, None)) if name.starts_with("%clock") || name.starts_with("%globaltimer") => {
                Op::Clock { d: self.dest(&args[0], ty)? }
            }
            _ => {
                self.operands.s[0] = self.value(&args[1], ty)?;
                self.operands.d = self.dest(&args[0], ty)?;
                Op::Alu(step1!(|a| a))
            }
        };
        Ok((op, Class::Integer, 0))
    }

    fn cvt(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let round = m.one_of(&["rni", "rzi", "rmi", "rpi", "rn", "rz", "rm", "rp", "rna"]);
        let (ftz, sat, relu) = (m.flag("ftz"), m.flag("sat"), m.flag("relu"));
        let (to, from) = (m.ty()?, m.ty()?);
        let conversion = Conversion {
            to,
            from,
            round: round_of(round.unwrap_or(if to.is_float() { "rn" } else { "rzi" })),
            integral: to.is_float() && round.is_some_and(|round| round.ends_with('i')),
            ftz,
            sat,
            relu,
        };
        if !conversion.is_valid() {
            return m.unsupported();
        }
        let pair = matches!(to, Type::F16x2 | Type::Bf16x2);
        let sources = if pair { 2 } else { 1 };
        expect_args(m, args, sources + 1..=sources + 1)?;
        for (i, arg) in args[1..].iter().enumerate() {
            self.operands.s[i] = self.value_of(arg, from, true)?;
        }
        self.operands.d = self.dest_of(&args[0], to, true)?;
        let op = match convert::step(conversion) {
            Some(step) => Op::Alu(step),
            None => Op::Convert(conversion),
        };
        Ok((op, Class::Convert, 0))
    }

    /// Generic addresses of global and constant memory are plain addresses; shared memory lies in a window.
    fn cvta(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let to = m.flag("to");
        let space = m.need(&["global", "shared", "shared::cta", "const", "param"])?;
        let ty = m.ty()?;
        expect_args(m, args, 2..=2)?;
        if ty.bytes() != 8 || space == "param" {
            return m.unsupported();
        }
        self.operands.s[0] = self.value(&args[1], ty)?;
        self.operands.d = self.dest(&args[0], ty)?;
        let step = match (space, to) {
            ("global" | "const", _) => step1!(|a| a),
            (_, true) => step1!(|a| a.wrapping_sub(crate::shared::SHARED_WINDOW)),
            (_, false) => step1!(|a| a.wrapping_add(crate::shared::SHARED_WINDOW)),
        };
        Ok((Op::Alu(step), Class::Integer, 0))
    }

    fn setp(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let comparison = m.need(&COMPARISONS)?;
        let logic = m.one_of(&["and", "or", "xor"]);
        let ftz = m.flag("ftz");
        let ty = m.ty()?;
        let Some(test) = compare::comparison(comparison, ty, ftz) else { return m.unsupported() };
        let count = if logic.is_some() { 4 } else { 3 };
        expect_args(m, args, count..=count)?;
        self.operands.s[0] = self.value(&args[1], ty)?;
        self.operands.s[1] = self.value(&args[2], ty)?;
        let combine = self.combine(logic, args.get(3))?;
        let (p, q) = match &args[0].kind {
            ArgKind::Pair(p, q) => (self.pred_dest(p)?, self.pred_dest(q)?),
            _ => (self.pred_dest(&args[0])?, None),
        };
        Ok((Op::Setp { test, combine, p, q }, Class::Predicate, 0))
    }

    fn combine(&mut self, logic: Option<&str>, arg: Option<&Arg<'a>>) -> Result<Option<(Logic, crate::ops::Pred)>> {
        let logic = match logic {
            Some("and") => Logic::And,
            Some("or") => Logic::Or,
            Some(_) => Logic::Xor,
            None => return Ok(None),
        };
        arg.map(|arg| Ok((logic, self.pred(arg)?))).transpose()
    }

    fn set(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let comparison = m.need(&COMPARISONS)?;
        let logic = m.one_of(&["and", "or", "xor"]);
        let ftz = m.flag("ftz");
        let (to, ty) = (m.ty()?, m.ty()?);
        let Some(test) = compare::comparison(comparison, ty, ftz) else { return m.unsupported() };
        let one = match to {
            Type::F32 => u64::from(1f32.to_bits()),
            Type::U32 | Type::S32 => 0xffff_ffff,
            _ => return m.unsupported(),
        };
        let count = if logic.is_some() { 4 } else { 3 };
        expect_args(m, args, count..=count)?;
        self.operands.s[0] = self.value(&args[1], ty)?;
        self.operands.s[1] = self.value(&args[2], ty)?;
        let combine = self.combine(logic, args.get(3))?;
        self.operands.d = self.dest(&args[0], to)?;
        Ok((Op::Set { test, combine, one }, Class::Predicate, 0))
    }

    fn selp(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let ty = m.ty()?;
        expect_args(m, args, 4..=4)?;
        if ty == Type::Pred {
            return m.unsupported();
        }
        self.operands.s[0] = self.value(&args[1], ty)?;
        self.operands.s[1] = self.value(&args[2], ty)?;
        let pred = self.pred(&args[3])?;
        self.operands.d = self.dest(&args[0], ty)?;
        Ok((Op::Selp { pred }, Class::Predicate, 0))
    }

    fn slct(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let ftz = m.flag("ftz");
        let (ty, by) = (m.ty()?, m.ty()?);
        expect_args(m, args, 4..=4)?;
        let Some(step) = compare::select_by_sign(by, ftz) else { return m.unsupported() };
        self.operands.s[0] = self.value(&args[1], ty)?;
        self.operands.s[1] = self.value(&args[2], ty)?;
        self.operands.s[2] = self.value(&args[3], by)?;
        self.operands.d = self.dest(&args[0], ty)?;
        Ok((Op::Alu(step), Class::Predicate, 0))
    }
}
