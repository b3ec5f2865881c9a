//! PTX as values: registers, operands, instructions, and the lists of them that kernels are.
//!
//! Nothing here is text: [`print`] writes each form once, when a module is complete. Operands that are known only then,
//! such as where a region of shared memory begins, are values of their own until they are resolved in the list.

mod opcode;
pub mod print;

pub use opcode::{Cache, Cmp, Mma, Opcode, Round, StateSpace, Type};

/// The class of a register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Class {
    /// 32-bit floats: elements of values.
    F32,
    /// 32 bits: sizes, positions and bits of floats.
    U32,
    /// 64 bits: addresses and keys.
    U64,
    /// Predicates: results of comparisons.
    Pred,
}

impl Class {
    /// All classes, in the order of their declarations.
    pub const ALL: [Self; 4] = [Class::F32, Class::U32, Class::U64, Class::Pred];
}

/// A register of the scope that declares it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reg {
    /// One of as many of its class as a kernel needs.
    Virtual(Class, u32),
    /// One that a scope declares by name, without the `%`. A thin pointer keeps operands small.
    Named(Class, &'static &'static str),
}

impl Reg {
    /// The block, among those of its kernel.
    pub const BLOCK: Self = Reg::Named(Class::U32, &"block");

    pub fn class(self) -> Class {
        match self {
            Reg::Virtual(class, _) | Reg::Named(class, _) => class,
        }
    }
}

/// A float: in a register, or known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Val {
    Reg(Reg),
    /// A constant known when code is made.
    Imm(f32),
}

impl Val {
    pub const ZERO: Self = Val::Imm(0.0);

    /// Is it this number, to the bit?
    pub fn is(self, number: f32) -> bool {
        matches!(self, Val::Imm(known) if known.to_bits() == number.to_bits())
    }
}

impl From<Reg> for Val {
    fn from(reg: Reg) -> Self {
        Val::Reg(reg)
    }
}

/// A register that the hardware fills.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// The thread within its block.
    TidX,
    /// The block within the grid.
    CtaidX,
    /// The number of blocks.
    NctaidX,
}

/// An array of the module; as an operand, its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Symbol {
    /// The table of addresses and sizes.
    Table,
    /// The dynamic shared memory of the block.
    Shared,
}

/// A number of bytes in shared memory that is known when a kernel is complete; see [`Regions`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Region {
    /// From the memory of a team to that of the next one.
    TeamPitch,
    /// Before the exchange between threads.
    Exchange,
    /// Before the weights of the block.
    Weights,
    /// Before the tiles of products.
    Tiles,
}

/// The layout of the shared memory of a kernel, in bytes.
#[derive(Clone, Copy, Default, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Regions {
    pub team_pitch: usize,
    pub exchange: usize,
    pub weights: usize,
    pub tiles: usize,
}

impl Regions {
    fn get(&self, region: Region) -> usize {
        match region {
            Region::TeamPitch => self.team_pitch,
            Region::Exchange => self.exchange,
            Region::Weights => self.weights,
            Region::Tiles => self.tiles,
        }
    }
}

/// An address of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    /// An address in a register, and bytes after it.
    Register(Reg, Option<u32>),
    /// Bytes after the beginning of the table.
    Table(usize),
    /// The entry of the table that code shared by several kernels reads as its n-th; see [`crate::dedup`].
    Argument(usize),
}

impl From<Reg> for Address {
    fn from(base: Reg) -> Self {
        Address::Register(base, None)
    }
}

impl From<(Reg, usize)> for Address {
    fn from((base, offset): (Reg, usize)) -> Self {
        Address::Register(base, Some(u32::try_from(offset).expect("offsets have 32 bits")))
    }
}

/// A place to jump to, unique in its entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Label {
    /// A label of a kernel's code.
    Kernel {
        /// Position of the code in its entry; 0 until it has one.
        code: usize,
        /// The body of the kernel.
        body: usize,
        /// Position among the labels of the body.
        number: usize,
    },
    /// The code of a band of rows of a kernel.
    Band {
        /// Position of the code in its entry; 0 until it has one.
        code: usize,
        /// Position among the bands.
        number: usize,
    },
    /// Looks at the next of the kernels that share code.
    Again(usize),
    /// The kernel that a block belongs to is found.
    Found(usize),
    /// The label behind a kernel's code, to which blocks of other kernels jump.
    Next(usize),
    /// A label of hand-written code, without the `$`.
    Named(&'static str),
}

/// An operand of an instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    Reg(Reg),
    /// Several registers: a vector in memory, or a fragment of a matrix.
    Regs(Vec<Reg>),
    /// The bits of a float.
    F32(u32),
    Int(i64),
    /// A bit mask, printed in hexadecimal.
    Mask(u32),
    /// A register that the hardware fills.
    Special(Special),
    /// The address of an array.
    Symbol(Symbol),
    /// A part of shared memory, until it is resolved.
    Region(Region),
    Address(Address),
    /// A place to jump to.
    Label(Label),
}

macro_rules! operand_from {
    ($($from:ty: $value:ident => $operand:expr;)*) => {
        $(impl From<$from> for Operand {
            fn from($value: $from) -> Self {
                $operand
            }
        })*
    };
}

operand_from! {
    Reg: reg => Operand::Reg(reg);
    &Reg: reg => Operand::Reg(*reg);
    Vec<Reg>: regs => Operand::Regs(regs);
    &[Reg]: regs => Operand::Regs(regs.to_vec());
    &[Reg; 4]: regs => Operand::Regs(regs.to_vec());
    f32: number => Operand::F32(number.to_bits());
    i32: number => Operand::Int(number.into());
    u32: number => Operand::Int(number.into());
    usize: number => Operand::Int(i64::try_from(number).expect("sizes have 63 bits"));
    &usize: number => Operand::from(*number);
    Special: special => Operand::Special(special);
    Symbol: symbol => Operand::Symbol(symbol);
    Region: region => Operand::Region(region);
    Address: address => Operand::Address(address);
    Label: label => Operand::Label(label);
    Val: value => match value {
        Val::Reg(reg) => Operand::Reg(reg),
        Val::Imm(number) => Operand::F32(number.to_bits()),
    };
}

/// A condition of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Guard {
    /// The predicate register that is tested.
    pub reg: Reg,
    /// Is the instruction executed where it is false?
    pub negated: bool,
}

impl From<Reg> for Guard {
    fn from(reg: Reg) -> Self {
        Self { reg, negated: false }
    }
}

/// An instruction: a guard, an opcode, the result and the operands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inst {
    /// The condition under which it is executed; `None`: always.
    pub guard: Option<Guard>,
    pub op: Opcode,
    /// The result: a register, or several.
    pub dst: Option<Operand>,
    /// The operands, in order.
    pub srcs: Vec<Operand>,
}

impl Inst {
    /// An instruction with a result.
    pub fn new(op: Opcode, dst: impl Into<Operand>, srcs: impl Srcs) -> Self {
        Self { guard: None, op, dst: Some(dst.into()), srcs: srcs.list() }
    }

    /// An instruction without a result.
    pub fn effect(op: Opcode, srcs: impl Srcs) -> Self {
        Self { guard: None, op, dst: None, srcs: srcs.list() }
    }

    /// The same, where a condition holds.
    pub fn guarded(self, guard: Option<impl Into<Guard>>) -> Self {
        Self { guard: guard.map(Into::into), ..self }
    }
}

/// The operands of an instruction: a tuple of what becomes an [`Operand`].
pub trait Srcs {
    /// The operands, in order.
    fn list(self) -> Vec<Operand>;
}

macro_rules! srcs {
    ($(($($name:ident),*))*) => {
        $(impl<$($name: Into<Operand>),*> Srcs for ($($name,)*) {
            #[allow(non_snake_case, reason = "operands are named as their types")]
            fn list(self) -> Vec<Operand> {
                let ($($name,)*) = self;
                vec![$($name.into()),*]
            }
        })*
    };
}

srcs! { () (A) (A, B) (A, B, C) (A, B, C, D) }

/// A line of a body, or a scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    Inst(Inst),
    /// A place to jump to.
    Label(Label),
    /// A comment, printed behind `//`.
    Comment(String),
    /// So many virtual registers of a class.
    Registers(Class, u32),
    /// Registers of a class by name.
    Named(Class, Vec<Reg>),
    /// The next loop is not unrolled.
    NoUnroll,
    /// Declarations that hold within.
    Scope(Body),
    Blank,
}

impl From<Inst> for Item {
    fn from(inst: Inst) -> Self {
        Item::Inst(inst)
    }
}

/// The code of a kernel, of one of its bands, or of an entry.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Body {
    /// The lines and scopes, in order.
    pub items: Vec<Item>,
}

impl Body {
    /// Calls a function for each operand.
    pub fn each_operand(&mut self, change: &mut impl FnMut(&mut Operand)) {
        for item in &mut self.items {
            match item {
                Item::Inst(inst) => inst.dst.iter_mut().chain(&mut inst.srcs).for_each(&mut *change),
                Item::Scope(body) => body.each_operand(change),
                Item::Label(_)
                | Item::Comment(_)
                | Item::Registers(..)
                | Item::Named(..)
                | Item::NoUnroll
                | Item::Blank => {}
            }
        }
    }

    /// Calls a function for each label, where it stands and where it is jumped to.
    fn each_label(&mut self, change: &mut impl FnMut(&mut Label)) {
        for item in &mut self.items {
            match item {
                Item::Label(label) => change(label),
                Item::Inst(inst) => {
                    for operand in &mut inst.srcs {
                        if let Operand::Label(label) = operand {
                            change(label);
                        }
                    }
                }
                Item::Scope(body) => body.each_label(change),
                Item::Comment(_) | Item::Registers(..) | Item::Named(..) | Item::NoUnroll | Item::Blank => {}
            }
        }
    }

    /// Makes it the code at a position of its entry, which finds its arguments at these addresses.
    pub fn relocate(&mut self, position: usize, address: impl Fn(usize) -> Address) {
        self.each_operand(&mut |operand| {
            if let Operand::Address(Address::Argument(number)) = *operand {
                *operand = address(number).into();
            }
        });
        self.each_label(&mut |label| {
            if let Label::Kernel { code, .. } | Label::Band { code, .. } = label {
                *code = position;
            }
        });
    }

    /// Gives the regions of shared memory their values.
    pub fn resolve(&mut self, regions: &Regions) {
        self.each_operand(&mut |operand| {
            if let Operand::Region(region) = operand {
                *operand = regions.get(*region).into();
            }
        });
    }
}

/// An entry of a module.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name by which the driver finds the entry.
    pub name: String,
    /// Threads of a block.
    pub threads: usize,
    /// Blocks that a multiprocessor has room for, at least.
    pub min_blocks: Option<usize>,
    pub body: Body,
}

/// A module before it is printed: its table and its entries.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name, for people.
    pub title: String,
    /// The architecture for `.target`, such as `sm_90`.
    pub target: &'static str,
    /// A description of each entry of the table, for comments; `None`: the text has none.
    pub slots: Option<Vec<String>>,
    /// Entries of the table.
    pub table: usize,
    /// The memory that holds the table.
    pub space: print::TableSpace,
    /// Is there dynamic shared memory?
    pub shared: bool,
    /// The entries, in the order of the text.
    pub functions: Vec<Function>,
}
