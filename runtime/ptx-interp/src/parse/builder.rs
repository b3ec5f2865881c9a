//! Kernels under construction: names, registers, constants, labels.

use std::collections::HashMap;

use super::Result;
use super::statement::{Arg, ArgKind};
use crate::lex::{Kind, Place};
use crate::module::{Constant, Kernel};
use crate::ops::{Address, Inst, Op, Pred, PredSlot};
use crate::registers::{Operands, Slot};
use crate::types::Type;

/// Meaning of an identifier.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name {
    Register {
        ty: Type,
        slot: Option<Slot>,
    },
    /// A shared variable, by its offset.
    Shared(u64),
    /// A shared variable of the module; allocated in kernels that use it.
    ModuleShared {
        bytes: usize,
        align: usize,
    },
    /// `.extern .shared`, with its alignment.
    DynamicShared(usize),
    Variable(usize),
}

#[derive(Default)]
struct Scope {
    names: HashMap<String, Name>,
    parent: Option<usize>,
}

pub(crate) struct Builder<'a> {
    pub kernel: Kernel,
    scopes: Vec<Scope>,
    scope: usize,
    labels: HashMap<(usize, &'a str), u32>,
    /// Branches to resolve, with the scope and name of their label.
    branches: Vec<(usize, usize, &'a str, Place)>,
    no_pred: Option<PredSlot>,
    constants: HashMap<Constant, Slot>,
    /// Operands of the current instruction.
    pub operands: Operands,
    reads: Vec<Slot>,
    reads_pred: Vec<PredSlot>,
    writes: Vec<Slot>,
    writes_pred: Vec<PredSlot>,
    pub source: Option<(u32, u32)>,
}

/// The register that holds 0, for absent operands.
const ZERO: Slot = 0;
/// Limit of the registers of a kernel.
const MOST_SLOTS: usize = 1 << 24;

impl<'a> Builder<'a> {
    pub fn new(name: &str, line: u32, globals: &[(&str, Name)]) -> Self {
        let kernel = Kernel {
            name: name.to_owned(),
            params: Vec::new(),
            params_bytes: 0,
            max_threads: None,
            required_threads: None,
            static_shared: 0,
            registers: Vec::new(),
            dynamic_align: 1,
            code: Vec::new(),
            constants: Vec::new(),
            num_slots: 0,
            num_places: 0,
            num_predicates: 0,
            line,
        };
        let module =
            Scope { names: globals.iter().map(|&(name, what)| (name.to_owned(), what)).collect(), parent: None };
        let mut builder = Builder {
            kernel,
            scopes: vec![module],
            scope: 0,
            labels: HashMap::new(),
            branches: Vec::new(),
            no_pred: None,
            constants: HashMap::new(),
            operands: Operands::default(),
            reads: Vec::new(),
            reads_pred: Vec::new(),
            writes: Vec::new(),
            writes_pred: Vec::new(),
            source: None,
        };
        // Slot 0.
        builder.constant(Constant::Bits(0));
        builder
    }

    pub fn open(&mut self) {
        self.scopes.push(Scope { names: HashMap::new(), parent: Some(self.scope) });
        self.scope = self.scopes.len() - 1;
    }

    pub fn close(&mut self) {
        self.scope = self.scopes[self.scope].parent.unwrap_or(0);
    }

    pub fn declare(&mut self, name: String, what: Name, place: Place) -> Result<()> {
        if self.scopes[self.scope].names.contains_key(&name) {
            return Err(place.error(format!("`{name}` is declared twice")));
        }
        self.scopes[self.scope].names.insert(name, what);
        Ok(())
    }

    pub fn declare_registers(&mut self, ty: Type, prefix: &str, count: Option<u32>, place: Place) -> Result<()> {
        let what = Name::Register { ty, slot: None };
        match count {
            None => self.declare(prefix.to_owned(), what, place)?,
            Some(count) if count > 1 << 16 => return Err(place.error("too many registers")),
            Some(count) => {
                for i in 0..count {
                    self.declare(format!("{prefix}{i}"), what, place)?;
                }
            }
        }
        let count = count.unwrap_or(1);
        match self.kernel.registers.iter_mut().find(|(t, _)| *t == ty) {
            Some((_, declared)) => *declared += count,
            None => self.kernel.registers.push((ty, count)),
        }
        Ok(())
    }

    /// Allocates a shared variable.
    pub fn place_shared(&mut self, bytes: usize, align: usize) -> Name {
        let offset = self.kernel.static_shared.next_multiple_of(align);
        self.kernel.static_shared = offset + bytes;
        Name::Shared(offset as u64)
    }

    pub fn label(&mut self, name: &'a str, place: Place) -> Result<()> {
        if self.labels.insert((self.scope, name), self.kernel.code.len() as u32).is_some() {
            return Err(place.error(format!("there are two labels `{name}`")));
        }
        Ok(())
    }

    /// Emits a branch to a label that may be defined later.
    pub fn branch_to(&mut self, name: &'a str, place: Place) {
        self.branches.push((self.kernel.code.len(), self.scope, name, place));
    }

    fn lookup(&mut self, name: &str) -> Option<&mut Name> {
        let mut scope = self.scope;
        while !self.scopes[scope].names.contains_key(name) {
            scope = self.scopes[scope].parent?;
        }
        self.scopes[scope].names.get_mut(name)
    }

    fn new_slot(&mut self, place: Place) -> Result<Slot> {
        if self.kernel.num_slots >= MOST_SLOTS {
            return Err(place.error("too many registers"));
        }
        self.kernel.num_slots += 1;
        Ok((self.kernel.num_slots - 1) as Slot)
    }

    pub fn constant(&mut self, constant: Constant) -> Slot {
        if let Some(&slot) = self.constants.get(&constant) {
            return slot;
        }
        let slot = self.kernel.num_slots as Slot;
        self.kernel.num_slots += 1;
        self.kernel.constants.push((slot, constant));
        self.constants.insert(constant, slot);
        slot
    }

    fn register(&mut self, name: &str, place: Place) -> Result<Option<(Type, Slot)>> {
        let (ty, slot) = match self.lookup(name) {
            Some(Name::Register { ty, slot }) => (*ty, *slot),
            Some(_) => return Ok(None),
            None => return Err(place.error(format!("`{name}` is not declared"))),
        };
        if let Some(slot) = slot {
            return Ok(Some((ty, slot)));
        }
        let new = if ty == Type::Pred {
            self.kernel.num_predicates += 1;
            (self.kernel.num_predicates - 1) as Slot
        } else {
            self.new_slot(place)?
        };
        if let Some(Name::Register { slot, .. }) = self.lookup(name) {
            *slot = Some(new);
        }
        Ok(Some((ty, new)))
    }

    /// The value of an operand. With `wide`, registers may be wider than the type (loads, stores, conversions).
    pub fn value_of(&mut self, arg: &Arg<'a>, ty: Type, wide: bool) -> Result<Slot> {
        match &arg.kind {
            ArgKind::Name(name, offset) => {
                if *offset == 0
                    && let Some((found, slot)) = self.register(name, arg.place)?
                {
                    self.check_width(name, found, ty, wide, arg.place)?;
                    self.reads.push(slot);
                    return Ok(slot);
                }
                let constant = self.symbol(name, *offset, arg.place)?;
                if ty.bytes() < 4 {
                    return Err(arg.place.error(format!("the address of `{name}` does not fit into .{}", ty.name())));
                }
                Ok(self.constant(constant))
            }
            ArgKind::Special(name, part) => {
                let Some(constant) = special(name, *part) else {
                    return Err(arg.place.error(format!("the special register `{name}` is not supported here")));
                };
                Ok(self.constant(constant))
            }
            ArgKind::Number(kind, negative) => {
                let bits = number(*kind, *negative, ty).map_err(|message| arg.place.error(message))?;
                Ok(self.constant(Constant::Bits(bits)))
            }
            _ => Err(arg.place.error(format!("expected a register or a number of type .{}", ty.name()))),
        }
    }

    pub fn value(&mut self, arg: &Arg<'a>, ty: Type) -> Result<Slot> {
        self.value_of(arg, ty, false)
    }

    fn check_width(&self, name: &str, found: Type, ty: Type, wide: bool, place: Place) -> Result<()> {
        let fits = found.bytes() == ty.bytes() || wide && found.bytes() > ty.bytes();
        if fits && (found == Type::Pred) == (ty == Type::Pred) {
            return Ok(());
        }
        let message = format!("`{name}` is a register of type .{}, expected .{}", found.name(), ty.name());
        Err(place.error(message))
    }

    /// The address of a variable.
    fn symbol(&mut self, name: &str, offset: i64, place: Place) -> Result<Constant> {
        let found = self.lookup(name).copied();
        Ok(match found {
            Some(Name::Shared(at)) => Constant::Bits(at.wrapping_add_signed(offset)),
            Some(Name::ModuleShared { bytes, align }) => {
                let here = self.place_shared(bytes, align);
                if let Some(what) = self.lookup(name) {
                    *what = here;
                }
                return self.symbol(name, offset, place);
            }
            Some(Name::DynamicShared(align)) => {
                self.kernel.dynamic_align = self.kernel.dynamic_align.max(align);
                Constant::DynamicShared(offset as u64)
            }
            Some(Name::Variable(at)) => Constant::Variable(at, offset as u64),
            Some(Name::Register { .. }) => return Err(place.error(format!("`{name}` is a register"))),
            None => return Err(place.error(format!("`{name}` is not declared"))),
        })
    }

    /// A destination register; `None` for `_`.
    pub fn dest_or_none(&mut self, arg: &Arg<'a>, ty: Type, wide: bool) -> Result<Option<Slot>> {
        match &arg.kind {
            ArgKind::Name("_", 0) => Ok(None),
            ArgKind::Name(name, 0) => match self.register(name, arg.place)? {
                Some((found, slot)) => {
                    self.check_width(name, found, ty, wide, arg.place)?;
                    self.writes.push(slot);
                    Ok(Some(slot))
                }
                None => Err(arg.place.error(format!("`{name}` is no register"))),
            },
            _ => Err(arg.place.error(format!("expected a register of type .{}", ty.name()))),
        }
    }

    pub fn dest_of(&mut self, arg: &Arg<'a>, ty: Type, wide: bool) -> Result<Slot> {
        self.dest_or_none(arg, ty, wide)?.ok_or_else(|| arg.place.error("expected a register"))
    }

    pub fn dest(&mut self, arg: &Arg<'a>, ty: Type) -> Result<Slot> {
        self.dest_of(arg, ty, false)
    }

    /// A source predicate, possibly negated, or an immediate.
    pub fn pred(&mut self, arg: &Arg<'a>) -> Result<Pred> {
        match &arg.kind {
            ArgKind::Not(inner) => {
                let pred = self.pred(inner)?;
                Ok(Pred { slot: pred.slot, negated: !pred.negated })
            }
            ArgKind::Name(name, 0) => match self.register(name, arg.place)? {
                Some((Type::Pred, slot)) => {
                    self.reads_pred.push(slot);
                    Ok(Pred { slot, negated: false })
                }
                _ => Err(arg.place.error(format!("`{name}` is no predicate"))),
            },
            // A predicate that is never written is false in all lanes.
            ArgKind::Number(Kind::Int(value), _) => Ok(Pred { slot: self.no_pred(), negated: *value != 0 }),
            _ => Err(arg.place.error("expected a predicate")),
        }
    }

    fn no_pred(&mut self) -> PredSlot {
        *self.no_pred.get_or_insert_with(|| {
            self.kernel.num_predicates += 1;
            (self.kernel.num_predicates - 1) as PredSlot
        })
    }

    /// A destination predicate; `None` for `_`.
    pub fn pred_dest(&mut self, arg: &Arg<'a>) -> Result<Option<PredSlot>> {
        match &arg.kind {
            ArgKind::Name("_", 0) => Ok(None),
            ArgKind::Name(name, 0) => match self.register(name, arg.place)? {
                Some((Type::Pred, slot)) => {
                    self.writes_pred.push(slot);
                    Ok(Some(slot))
                }
                _ => Err(arg.place.error(format!("`{name}` is no predicate"))),
            },
            _ => Err(arg.place.error("expected a predicate")),
        }
    }

    /// `[…]` as a register plus an offset.
    pub fn address(&mut self, arg: &Arg<'a>) -> Result<Address> {
        let ArgKind::Address(base, offset) = &arg.kind else {
            return Err(arg.place.error("expected an address in `[ ]`"));
        };
        match &base.kind {
            ArgKind::Number(Kind::Int(value), negative) => {
                let value = if *negative { value.wrapping_neg() } else { *value };
                Ok(Address { base: self.constant(Constant::Bits(value)), offset: *offset, narrow: false })
            }
            ArgKind::Name(name, 0) => {
                if let Some((ty, slot)) = self.register(name, base.place)? {
                    if ty.bytes() < 4 || ty == Type::Pred || ty.is_float() {
                        return Err(base.place.error(format!("`{name}` of type .{} is no address", ty.name())));
                    }
                    self.reads.push(slot);
                    return Ok(Address { base: slot, offset: *offset, narrow: ty.bytes() == 4 });
                }
                let constant = self.symbol(name, 0, base.place)?;
                Ok(Address { base: self.constant(constant), offset: *offset, narrow: false })
            }
            _ => Err(base.place.error("expected a register or a name")),
        }
    }

    /// Emits an instruction with the operands collected so far.
    pub fn push(&mut self, op: Op, class: crate::Class, flops: u8, guard: Option<Pred>, line: u32) {
        let take = std::mem::take::<Vec<Slot>>;
        let mut reads = take(&mut self.reads);
        reads.retain(|&slot| slot != ZERO);
        reads.sort_unstable();
        reads.dedup();
        let inst = Inst {
            op,
            operands: std::mem::take(&mut self.operands),
            guard,
            class,
            flops,
            reads,
            reads_pred: take(&mut self.reads_pred),
            writes: take(&mut self.writes),
            writes_pred: take(&mut self.writes_pred),
            line,
            source: self.source,
        };
        self.kernel.code.push(inst);
    }

    /// Resolves labels and returns the kernel.
    pub fn finish(mut self) -> Result<Kernel> {
        let branches = std::mem::take(&mut self.branches);
        for (at, scope, name, place) in branches {
            let mut scope = Some(scope);
            let target = loop {
                let Some(here) = scope else { return Err(place.error(format!("there is no label `{name}`"))) };
                match self.labels.get(&(here, name)) {
                    Some(&target) => break target,
                    None => scope = self.scopes[here].parent,
                }
            };
            self.kernel.code[at].op = Op::Bra { target };
        }
        self.kernel.num_places = self.kernel.num_slots;
        Ok(self.kernel)
    }
}

/// The bits of a literal for a type.
pub(crate) fn number(kind: Kind<'_>, negative: bool, ty: Type) -> std::result::Result<u64, String> {
    let expected = |what: &str| Err(format!("expected {what} for type .{}, found {kind}", ty.name()));
    let bits = match (kind, ty) {
        (Kind::F32(bits), Type::F32 | Type::B32 | Type::Tf32) => u64::from(bits ^ (u32::from(negative) << 31)),
        (Kind::F64(bits), Type::F64 | Type::B64) => bits ^ (u64::from(negative) << 63),
        (Kind::F32(bits), Type::F64) => f64::from(f32::from_bits(bits ^ (u32::from(negative) << 31))).to_bits(),
        (Kind::F64(bits), Type::F32) => {
            let value = f64::from_bits(bits ^ (u64::from(negative) << 63));
            u64::from((value as f32).to_bits())
        }
        (Kind::Int(_), ty) if ty.is_float() => return expected("a floating-point number"),
        (Kind::Int(value), _) => ty.extend(if negative { value.wrapping_neg() } else { value }),
        _ => return expected("an integer"),
    };
    Ok(bits)
}

fn special(name: &str, part: Option<&str>) -> Option<Constant> {
    let axis = match part {
        Some("x") => Some(0),
        Some("y") => Some(1),
        Some("z") => Some(2),
        Some(_) => return None,
        None => None,
    };
    Some(match (name, axis) {
        ("%tid", Some(axis)) => Constant::Tid(axis),
        ("%ntid", Some(axis)) => Constant::Ntid(axis),
        ("%ctaid", Some(axis)) => Constant::Ctaid(axis),
        ("%nctaid", Some(axis)) => Constant::Nctaid(axis),
        ("%laneid", None) => Constant::LaneId,
        ("%warpid", None) => Constant::WarpId,
        ("%nwarpid", None) => Constant::NumWarps,
        ("%smid", None) => Constant::Bits(0),
        ("%nsmid", None) => Constant::Bits(1),
        ("WARP_SZ", None) => Constant::Bits(32),
        ("%lanemask_eq", None) => Constant::LaneMaskEq,
        ("%lanemask_lt", None) => Constant::LaneMaskLt,
        ("%lanemask_le", None) => Constant::LaneMaskLe,
        ("%lanemask_gt", None) => Constant::LaneMaskGt,
        ("%lanemask_ge", None) => Constant::LaneMaskGe,
        ("%dynamic_smem_size", None) => Constant::DynamicSharedSize,
        ("%total_smem_size", None) => Constant::TotalSharedSize,
        _ => return None,
    })
}
