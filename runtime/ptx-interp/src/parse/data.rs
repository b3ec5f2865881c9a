//! Decodes loads, stores, atomic operations and copies.

use super::Result;
use super::arith::{Decoded, expect_args};
use super::builder::Builder;
use super::statement::{Arg, ArgKind, Modifiers};
use crate::Class;
use crate::ops::{AtomicOp, Op, Order, Space};
use crate::registers::Slot;
use crate::types::Type;

/// Cache hints and scopes, which have no effect on the modelled behaviour.
fn is_hint(name: &str) -> bool {
    matches!(name, "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "weak" | "cta" | "cluster" | "gpu" | "sys")
        || name.starts_with("L1::")
        || name.starts_with("L2::") && name != "L2::cache_hint"
}

impl<'a> Builder<'a> {
    /// Decodes memory operations; `None` for other instructions.
    pub(super) fn decode_data(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Option<Decoded>> {
        Ok(Some(match m.name {
            "ld" | "ldu" => self.ld(m, args)?,
            "st" => self.st(m, args)?,
            "atom" | "red" => self.atomic(m, args)?,
            "cp" => self.cp_async(m, args)?,
            "ldmatrix" => self.ldmatrix(m, args)?,
            "prefetch" | "prefetchu" | "applypriority" | "discard" => {
                m.ignore(|_| true);
                self.address(&args.first().cloned().ok_or_else(|| m.place.error("expected an address"))?)?;
                (Op::Nop, Class::Control, 0)
            }
            _ => return Ok(None),
        }))
    }

    /// State space, memory order, number of elements and type, in any order.
    fn access(&mut self, m: &mut Modifiers<'a>) -> Result<(Option<&'a str>, Order, usize, Type)> {
        let space = m.one_of(&[
            "global",
            "shared",
            "shared::cta",
            "const",
            "param",
            "param::entry",
            "local",
            "shared::cluster",
        ]);
        let order = if m.one_of(&["volatile", "relaxed", "acquire", "release"]).is_some() {
            Order::Strong
        } else if m.flag("nc") {
            Order::ReadOnly
        } else {
            Order::Plain
        };
        let elems = match m.one_of(&["v2", "v4", "v8"]) {
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => return m.unsupported(),
            None => 1,
        };
        let ty = m.ty()?;
        m.ignore(is_hint);
        if elems * ty.bytes() > 16 || matches!(ty, Type::Pred | Type::Tf32) || ty == Type::F16 || ty == Type::Bf16 {
            return m.unsupported();
        }
        Ok((space, order, elems, ty))
    }

    fn space(&self, m: &Modifiers<'_>, name: Option<&str>) -> Result<Space> {
        Ok(match name {
            None => Space::Generic,
            Some("global") => Space::Global,
            Some("shared" | "shared::cta") => Space::Shared,
            Some("const") => Space::Const,
            Some(_) => return m.unsupported(),
        })
    }

    fn expect_elems(&self, arg: &Arg<'_>, elems: usize) -> Result<()> {
        let is_vector = matches!(arg.kind, ArgKind::Vector(_));
        if arg.parts().len() == elems && is_vector == (elems > 1) {
            return Ok(());
        }
        Err(arg.place.error(if elems == 1 {
            "expected one register".to_owned()
        } else {
            format!("expected {elems} registers in `{{ }}`")
        }))
    }

    fn ld(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let (space, order, elems, ty) = self.access(m)?;
        expect_args(m, args, 2..=2)?;
        self.expect_elems(&args[0], elems)?;
        if let Some("param" | "param::entry") = space {
            let (offset, left) = self.param_offset(&args[1])?;
            let bytes = elems * ty.bytes();
            if left < bytes {
                return Err(args[1].place.error(format!("reads {bytes} bytes where the parameter has {left}")));
            }
            if !(offset as usize).is_multiple_of(bytes) {
                return Err(args[1]
                    .place
                    .error(format!("offset {offset} of the parameters is no multiple of {bytes}")));
            }
            let d = self.dests(&args[0], ty)?;
            return Ok((Op::LdParam { d, ty, offset }, Class::Constant, 0));
        }
        let space = self.space(m, space)?;
        let address = self.address(&args[1])?;
        let d = self.dests(&args[0], ty)?;
        let class = match space {
            Space::Shared => Class::SharedLoad,
            Space::Const => Class::Constant,
            Space::Global | Space::Generic => Class::GlobalLoad,
        };
        Ok((Op::Ld { space, ty, d, address, order }, class, 0))
    }

    fn dests(&mut self, arg: &Arg<'a>, ty: Type) -> Result<Vec<Option<Slot>>> {
        arg.parts().iter().map(|arg| self.dest_or_none(arg, ty, true)).collect()
    }

    fn st(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let (space, order, elems, ty) = self.access(m)?;
        expect_args(m, args, 2..=2)?;
        self.expect_elems(&args[1], elems)?;
        if let Some(space @ ("const" | "param" | "param::entry")) = space {
            return Err(m.place.error(format!("memory of .{space} cannot be written")));
        }
        let space = self.space(m, space)?;
        let address = self.address(&args[0])?;
        let values = args[1].parts().iter().map(|arg| self.value_of(arg, ty, true)).collect::<Result<_>>()?;
        let class = if space == Space::Shared { Class::SharedStore } else { Class::GlobalStore };
        Ok((Op::St { space, ty, values, address, order }, class, 0))
    }

    fn atomic(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        m.ignore(|name| matches!(name, "relaxed" | "acquire" | "release" | "acq_rel" | "noftz") || is_hint(name));
        let space = m.one_of(&["global", "shared", "shared::cta"]);
        let op = match m.need(&["add", "min", "max", "exch", "cas", "and", "or", "xor", "inc", "dec"])? {
            "add" => AtomicOp::Add,
            "min" => AtomicOp::Min,
            "max" => AtomicOp::Max,
            "exch" => AtomicOp::Exch,
            "cas" => AtomicOp::Cas,
            "and" => AtomicOp::And,
            "or" => AtomicOp::Or,
            "xor" => AtomicOp::Xor,
            "inc" => AtomicOp::Inc,
            _ => AtomicOp::Dec,
        };
        let ty = m.ty()?;
        let fits = match op {
            AtomicOp::Add => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::F32 | Type::F64),
            AtomicOp::Min | AtomicOp::Max => matches!(ty, Type::U32 | Type::S32 | Type::U64 | Type::S64),
            AtomicOp::Exch | AtomicOp::Cas | AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => {
                matches!(ty, Type::B32 | Type::B64)
            }
            AtomicOp::Inc | AtomicOp::Dec => ty == Type::U32,
        };
        let is_red = m.name == "red";
        if !fits || is_red && matches!(op, AtomicOp::Exch | AtomicOp::Cas) {
            return m.unsupported();
        }
        let first = if is_red { 0 } else { 1 };
        let operands = first + if op == AtomicOp::Cas { 3 } else { 2 };
        expect_args(m, args, operands..=operands)?;
        let space = self.space(m, space)?;
        let address = self.address(&args[first])?;
        let b = self.value(&args[first + 1], ty)?;
        let c = if op == AtomicOp::Cas { self.value(&args[first + 2], ty)? } else { b };
        let d = if is_red { None } else { self.dest_or_none(&args[0], ty, false)? };
        let flops = u8::from(op == AtomicOp::Add && ty.is_float());
        Ok((Op::Atomic { op, space, ty, d, address, b, c }, Class::Atomic, flops))
    }

    fn cp_async(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        if !m.flag("async") {
            return m.unsupported();
        }
        let op = if m.flag("commit_group") {
            expect_args(m, args, 0..=0)?;
            Op::CpCommit
        } else if m.flag("wait_all") {
            expect_args(m, args, 0..=0)?;
            Op::CpWait(None)
        } else if m.flag("wait_group") {
            expect_args(m, args, 1..=1)?;
            match args[0].kind {
                ArgKind::Number(crate::lex::Kind::Int(groups), false) => Op::CpWait(Some(groups as u32)),
                _ => return Err(args[0].place.error("expected a number of groups")),
            }
        } else {
            let through_l1 = m.need(&["ca", "cg"])? == "ca";
            m.need(&["shared", "shared::cta"])?;
            m.need(&["global"])?;
            m.ignore(is_hint);
            expect_args(m, args, 3..=4)?;
            let bytes = match args[2].kind {
                ArgKind::Number(crate::lex::Kind::Int(bytes @ (4 | 8 | 16)), false) if through_l1 || bytes == 16 => {
                    bytes as u32
                }
                _ if through_l1 => return Err(args[2].place.error("expected 4, 8 or 16 bytes")),
                _ => return Err(args[2].place.error("expected 16 bytes, the only size of .cg")),
            };
            let to = self.address(&args[0])?;
            let from = self.address(&args[1])?;
            let source_bytes = args.get(3).map(|arg| self.value(arg, Type::U32)).transpose()?;
            Op::CpAsync { to, from, bytes, source_bytes }
        };
        Ok((op, Class::AsyncCopy, 0))
    }

    fn ldmatrix(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        m.need(&["sync"])?;
        m.need(&["aligned"])?;
        m.need(&["m8n8"])?;
        let matrices = match m.need(&["x1", "x2", "x4"])? {
            "x1" => 1,
            "x2" => 2,
            _ => 4,
        };
        let transposed = m.flag("trans");
        m.need(&["shared", "shared::cta"])?;
        m.need(&["b16"])?;
        expect_args(m, args, 2..=2)?;
        if args[0].parts().len() != matrices {
            return Err(args[0].place.error(format!("expected {matrices} registers in `{{ }}`")));
        }
        let address = self.address(&args[1])?;
        let d = args[0].parts().iter().map(|arg| self.dest(arg, Type::B32)).collect::<Result<_>>()?;
        Ok((Op::Ldmatrix { d, transposed, address }, Class::SharedLoad, 0))
    }
}
