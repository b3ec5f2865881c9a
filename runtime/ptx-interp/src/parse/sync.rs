//! Decodes control flow, barriers, warp-level instructions and matrix products.

use super::Result;
use super::arith::{Decoded, expect_args};
use super::builder::Builder;
use super::statement::{Arg, ArgKind, Modifiers};
use crate::Class;
use crate::ops::{AtomicOp, Barrier, BarrierReduce, Mma, MmaShape, Op, Pred, Reduce, Shuffle, Vote};
use crate::registers::Slot;
use crate::types::Type;

impl<'a> Builder<'a> {
    pub(super) fn decode(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        if let Some(decoded) = self.decode_arith(m, args)? {
            return Ok(decoded);
        }
        if let Some(decoded) = self.decode_data(m, args)? {
            return Ok(decoded);
        }
        Ok(match m.name {
            "bra" => {
                m.flag("uni");
                expect_args(m, args, 1..=1)?;
                let ArgKind::Name(label, 0) = args[0].kind else { return Err(args[0].place.error("expected a label")) };
                self.branch_to(label, args[0].place);
                (Op::Bra { target: 0 }, Class::Control, 0)
            }
            "ret" | "exit" => {
                m.flag("uni");
                (Op::Exit, Class::Control, 0)
            }
            "trap" | "brkpt" => (Op::Trap, Class::Control, 0),
            "nanosleep" | "pmevent" => {
                m.ignore(|_| true);
                (Op::Nop, Class::Control, 0)
            }
            "membar" | "fence" => {
                m.ignore(|name| {
                    matches!(name, "cta" | "gl" | "gpu" | "sys" | "sc" | "acq_rel" | "acquire" | "release" | "level")
                });
                (Op::Nop, Class::Barrier, 0)
            }
            "bar" | "barrier" => self.barrier(m, args)?,
            "shfl" => self.shfl(m, args)?,
            "vote" => self.vote(m, args)?,
            "match" => self.match_sync(m, args)?,
            "redux" => self.redux(m, args)?,
            "activemask" => {
                m.need(&["b32"])?;
                expect_args(m, args, 1..=1)?;
                (Op::ActiveMask { d: self.dest(&args[0], Type::B32)? }, Class::Exchange, 0)
            }
            "mma" => self.mma(m, args)?,
            _ => return m.unsupported(),
        })
    }

    fn barrier(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let full = m.name == "barrier";
        m.flag("cta");
        if m.flag("warp") {
            m.need(&["sync"])?;
            expect_args(m, args, 1..=1)?;
            let mask = self.value(&args[0], Type::B32)?;
            return Ok((Op::WarpSync { mask }, Class::Barrier, 0));
        }
        let kind = m.need(&["sync", "arrive", "red"])?;
        let aligned = m.flag("aligned") || !full;
        let mut rest = args;
        let mut reduce = None;
        if kind == "red" {
            let op = match m.need(&["popc", "and", "or"])? {
                "popc" => Reduce::Popc,
                "and" => Reduce::And,
                _ => Reduce::Or,
            };
            let ty = m.ty()?;
            expect_args(m, args, 3..=4)?;
            let source = self.pred(&args[args.len() - 1])?;
            let (value, pred) = match (op, ty) {
                (Reduce::Popc, Type::U32) => (Some(self.dest(&args[0], ty)?), None),
                (Reduce::And | Reduce::Or, Type::Pred) => (None, self.pred_dest(&args[0])?),
                _ => return m.unsupported(),
            };
            reduce = Some(BarrierReduce { op, source, value, pred });
            rest = &args[1..args.len() - 1];
        }
        if rest.is_empty() || rest.len() > 2 || kind == "arrive" && rest.len() < 2 {
            return Err(m.place.error(format!("`{}` has the wrong number of operands", m.full())));
        }
        let id = self.value(&rest[0], Type::U32)?;
        let count = rest.get(1).map(|arg| self.value(arg, Type::U32)).transpose()?;
        let barrier = Barrier { id, count, aligned, arrive: kind == "arrive", reduce };
        Ok((Op::Barrier(Box::new(barrier)), Class::Barrier, 0))
    }

    fn shfl(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        m.need(&["sync"])?;
        let mode = match m.need(&["up", "down", "bfly", "idx"])? {
            "up" => Shuffle::Up,
            "down" => Shuffle::Down,
            "bfly" => Shuffle::Bfly,
            _ => Shuffle::Idx,
        };
        m.need(&["b32"])?;
        expect_args(m, args, 5..=5)?;
        let a = self.value(&args[1], Type::B32)?;
        let b = self.value(&args[2], Type::U32)?;
        let c = self.value(&args[3], Type::U32)?;
        let mask = self.value(&args[4], Type::U32)?;
        let (d, p) = match &args[0].kind {
            ArgKind::Pair(d, p) => (self.dest(d, Type::B32)?, self.pred_dest(p)?),
            _ => (self.dest(&args[0], Type::B32)?, None),
        };
        Ok((Op::Shfl { mode, d, p, a, b, c, mask }, Class::Exchange, 0))
    }

    fn vote(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        m.need(&["sync"])?;
        let mode = match m.need(&["all", "any", "uni", "ballot"])? {
            "all" => Vote::All,
            "any" => Vote::Any,
            "uni" => Vote::Uni,
            _ => Vote::Ballot,
        };
        m.need(&[if mode == Vote::Ballot { "b32" } else { "pred" }])?;
        expect_args(m, args, 3..=3)?;
        let a: Pred = self.pred(&args[1])?;
        let mask = self.value(&args[2], Type::U32)?;
        let (d, p) = if mode == Vote::Ballot {
            (Some(self.dest(&args[0], Type::B32)?), None)
        } else {
            (None, self.pred_dest(&args[0])?)
        };
        Ok((Op::Vote { mode, d, p, a, mask }, Class::Exchange, 0))
    }

    fn match_sync(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        let all = m.need(&["any", "all"])? == "all";
        m.need(&["sync"])?;
        let ty = m.ty()?;
        if !matches!(ty, Type::B32 | Type::B64) {
            return m.unsupported();
        }
        expect_args(m, args, 3..=3)?;
        let a = self.value(&args[1], ty)?;
        let mask = self.value(&args[2], Type::U32)?;
        let (d, p) = match &args[0].kind {
            ArgKind::Pair(d, p) if all => (self.dest(d, Type::B32)?, self.pred_dest(p)?),
            _ => (self.dest(&args[0], Type::B32)?, None),
        };
        Ok((Op::Match { all, wide: ty == Type::B64, d, p, a, mask }, Class::Exchange, 0))
    }

    fn redux(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        m.need(&["sync"])?;
        let op = match m.need(&["add", "min", "max", "and", "or", "xor"])? {
            "add" => AtomicOp::Add,
            "min" => AtomicOp::Min,
            "max" => AtomicOp::Max,
            "and" => AtomicOp::And,
            "or" => AtomicOp::Or,
            _ => AtomicOp::Xor,
        };
        let ty = m.ty()?;
        let bits = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
        if bits != (ty == Type::B32) || !bits && !matches!(ty, Type::U32 | Type::S32) {
            return m.unsupported();
        }
        expect_args(m, args, 3..=3)?;
        let a = self.value(&args[1], ty)?;
        let mask = self.value(&args[2], Type::U32)?;
        let d = self.dest(&args[0], ty)?;
        Ok((Op::Redux { op, signed: ty == Type::S32, d, a, mask }, Class::Exchange, 0))
    }

    fn mma(&mut self, m: &mut Modifiers<'a>, args: &[Arg<'a>]) -> Result<Decoded> {
        m.need(&["sync"])?;
        m.need(&["aligned"])?;
        let Some(shape) = m.one_of(&["m16n8k4", "m16n8k8", "m16n8k16"]) else { return m.unsupported() };
        m.need(&["row"])?;
        m.need(&["col"])?;
        let [d, a, b, c] = [m.ty()?, m.ty()?, m.ty()?, m.ty()?];
        if a != b || d != Type::F32 || c != Type::F32 {
            return m.unsupported();
        }
        let k = match (shape, a) {
            ("m16n8k4", Type::Tf32) => 4,
            ("m16n8k8", Type::Tf32 | Type::Bf16 | Type::F16) => 8,
            ("m16n8k16", Type::Bf16 | Type::F16) => 16,
            _ => return m.unsupported(),
        };
        expect_args(m, args, 4..=4)?;
        let per_register = 4 / a.bytes();
        let counts = [4, 16 * k / 32 / per_register, (8 * k / 32 / per_register).max(1), 4];
        for (arg, count) in args.iter().zip(counts) {
            if arg.parts().len() != count {
                return Err(arg.place.error(format!("expected {count} registers in `{{ }}`")));
            }
        }
        let four = |slots: Vec<Slot>| [slots[0], slots[1], slots[2], slots[3]];
        let mut values = |arg: &Arg<'a>, ty: Type| -> Result<Vec<Slot>> {
            arg.parts().iter().map(|arg| self.value(arg, ty)).collect()
        };
        let (a_slots, b_slots) = (values(&args[1], Type::B32)?, values(&args[2], Type::B32)?);
        let c_slots = four(values(&args[3], Type::F32)?);
        let d_slots = args[0].parts().iter().map(|arg| self.dest(arg, Type::F32)).collect::<Result<Vec<_>>>()?;
        let mma = Mma { shape: MmaShape { k, ty: a }, d: four(d_slots), a: a_slots, b: b_slots, c: c_slots };
        Ok((Op::Mma(Box::new(mma)), Class::Mma, 0))
    }
}
