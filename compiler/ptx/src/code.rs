//! Text of a kernel: registers, instructions, labels.

use std::fmt::{self, Display, Write};

/// What a register holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// A 32-bit float.
    F32,
    /// 32 bits.
    U32,
    /// 64 bits: addresses and keys.
    U64,
    /// A truth value.
    Pred,
}

/// A virtual register: it is assigned where it is made, unless it is changed on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reg {
    class: Class,
    number: u32,
}

impl Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.class {
            Class::F32 => "%f",
            Class::U32 => "%r",
            Class::U64 => "%d",
            Class::Pred => "%p",
        };
        write!(f, "{prefix}{}", self.number)
    }
}

/// A float: in a register, or known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Val {
    /// In a register.
    Reg(Reg),
    /// Known.
    Imm(f32),
}

impl Val {
    /// 0.
    pub const ZERO: Self = Val::Imm(0.0);

    /// Is it this number?
    pub fn is(self, number: f32) -> bool {
        matches!(self, Val::Imm(known) if known.to_bits() == number.to_bits())
    }
}

impl From<Reg> for Val {
    fn from(reg: Reg) -> Self {
        Val::Reg(reg)
    }
}

impl Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Val::Reg(reg) => reg.fmt(f),
            Val::Imm(number) => write!(f, "0f{:08X}", number.to_bits()),
        }
    }
}

/// The beginning of labels: `@` stands for the number of the kernel in its entry.
pub const LABELS: &str = "$L@_";

/// A place to jump to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(u32);

/// The code of a kernel: what comes first, and the rest.
///
/// Addresses and numbers that hold for the whole kernel are made first, wherever they turn out to be needed:
/// [`Code::first`].
#[derive(Debug, Default)]
pub struct Code {
    first: String,
    rest: String,
    in_first: bool,
    /// What was written before the loop that is being written, and what shall come right before it.
    outside: Option<(String, String)>,
    before: bool,
    counts: [u32; 4],
    labels: u32,
    body: usize,
}

impl Code {
    /// No code, of one of several bodies of a kernel.
    pub fn new(body: usize) -> Self {
        Self { body, ..Self::default() }
    }

    /// A register without a value.
    pub fn fresh(&mut self, class: Class) -> Reg {
        let count = &mut self.counts[class as usize];
        *count += 1;
        Reg { class, number: *count - 1 }
    }

    /// What `make` writes comes before everything else.
    pub fn first<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.in_first, true);
        let result = make(self);
        self.in_first = before;
        result
    }

    /// Begins a loop before which more may be written: [`Code::before_loop`]. Such loops are not in each other.
    pub fn begin_loop(&mut self) {
        debug_assert!(self.outside.is_none(), "one loop at a time");
        self.outside = Some((std::mem::take(&mut self.rest), String::new()));
    }

    /// Ends it.
    pub fn end_loop(&mut self) {
        if let Some((outside, before)) = self.outside.take() {
            self.rest = outside + &before + &self.rest;
        }
    }

    /// What is written from now on comes before the loop, or no longer; what held before.
    pub fn before_loop(&mut self, before: bool) -> bool {
        std::mem::replace(&mut self.before, before)
    }

    /// A line.
    pub fn line(&mut self, line: impl Display) {
        let text = match &mut self.outside {
            _ if self.in_first => &mut self.first,
            Some((_, before)) if self.before => before,
            _ => &mut self.rest,
        };
        writeln!(text, "    {line}").expect("strings can be written to");
    }

    /// A comment.
    pub fn comment(&mut self, comment: impl Display) {
        self.line(format_args!("// {comment}"));
    }

    /// `op result, operands;` with a new result.
    pub fn op(&mut self, class: Class, op: &str, operands: &[&dyn Display]) -> Reg {
        let result = self.fresh(class);
        self.set(result, op, operands);
        result
    }

    /// `op register, operands;`
    pub fn set(&mut self, register: Reg, op: &str, operands: &[&dyn Display]) {
        self.line(format_args!("{op} {register}{};", list(operands)));
    }

    /// `@guard op register, operands;`
    pub fn set_if(&mut self, guard: Reg, register: Reg, op: &str, operands: &[&dyn Display]) {
        self.line(format_args!("@{guard} {op} {register}{};", list(operands)));
    }

    /// A float operation.
    pub fn f(&mut self, op: &str, operands: &[&dyn Display]) -> Reg {
        self.op(Class::F32, op, operands)
    }

    /// An operation on 32 bits.
    pub fn u(&mut self, op: &str, operands: &[&dyn Display]) -> Reg {
        self.op(Class::U32, op, operands)
    }

    /// An operation on 64 bits.
    pub fn d(&mut self, op: &str, operands: &[&dyn Display]) -> Reg {
        self.op(Class::U64, op, operands)
    }

    /// A truth value.
    pub fn p(&mut self, op: &str, operands: &[&dyn Display]) -> Reg {
        self.op(Class::Pred, op, operands)
    }

    /// Both, where there are both.
    pub fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.p("and.pred", &[&a, &b])),
            (one, other) => one.or(other),
        }
    }

    /// A new label.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    fn name(&self, label: Label) -> String {
        format!("{LABELS}{}_{}", self.body, label.0)
    }

    /// Here.
    pub fn place(&mut self, label: Label) {
        let name = self.name(label);
        self.line(format_args!("{name}:"));
    }

    /// Jumps.
    pub fn jump(&mut self, to: Label) {
        let name = self.name(to);
        self.line(format_args!("bra {name};"));
    }

    /// Jumps where something holds.
    pub fn jump_if(&mut self, condition: Reg, to: Label) {
        let name = self.name(to);
        self.line(format_args!("@{condition} bra {name};"));
    }

    /// All of it, in a scope of its own.
    pub fn finish(self) -> String {
        let mut text = String::from("{\n");
        let declared = [("f32", "%f"), ("b32", "%r"), ("b64", "%d"), ("pred", "%p")];
        for ((ty, prefix), count) in declared.iter().zip(self.counts) {
            if count > 0 {
                writeln!(text, "    .reg .{ty} {prefix}<{count}>;").expect("strings can be written to");
            }
        }
        text + &self.first + &self.rest + "}\n"
    }
}

fn list(operands: &[&dyn Display]) -> String {
    operands.iter().map(|operand| format!(", {operand}")).collect()
}
