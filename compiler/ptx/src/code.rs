//! The builder of a kernel's code: fresh registers, labels, and a method for each form of instruction that kernels use.
//!
//! Methods without a type in their name are of `u32`.

use crate::isa::{
    Address, Body, Class, Cmp, Guard, Inst, Item, Label, Opcode, Operand, Reg, Regions, Round, Srcs, StateSpace, Type,
    Val,
};

/// All lanes of a warp.
const ALL_LANES: Operand = Operand::Mask(0xffff_ffff);
/// The clamp of a shuffle of a whole warp.
const WHOLE_WARP: u32 = 31;

/// The code of a kernel: what comes first, and the rest.
///
/// Addresses and numbers that hold for the whole kernel are made first, wherever they turn out to be needed:
/// [`Code::first`].
#[derive(Debug, Default)]
pub struct Code {
    first: Vec<Item>,
    rest: Vec<Item>,
    in_first: bool,
    /// The loop that is being written, if more may be written before it.
    outside: Option<Outside>,
    before: bool,
    counts: [u32; 4],
    labels: usize,
    body: usize,
}

/// The code around a loop that is being written.
#[derive(Debug, Default)]
struct Outside {
    /// The code up to the loop.
    earlier: Vec<Item>,
    /// More code right before the loop.
    before: Vec<Item>,
}

/// Defines methods of an operation that return its result in a fresh register.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($($operand:ident),*) -> $class:ident = $op:expr;)*) => {
        $($(#[$doc])*
        pub fn $name(&mut self, $($operand: impl Into<Operand>),*) -> Reg {
            self.op(Class::$class, $op, ($($operand,)*))
        })*
    };
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
        Reg::Virtual(class, *count - 1)
    }

    /// Runs `make` and puts the code that it writes into the prologue, before all other code.
    pub fn first<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.in_first, true);
        let result = make(self);
        self.in_first = before;
        result
    }

    /// Begins a loop before which more may be written: [`Code::before_loop`]. Such loops are not in each other.
    pub fn begin_loop(&mut self) {
        debug_assert!(self.outside.is_none(), "one loop at a time");
        self.outside = Some(Outside { earlier: std::mem::take(&mut self.rest), before: vec![] });
    }

    /// Ends the loop: its code follows the code that [`Code::before_loop`] collected.
    pub fn end_loop(&mut self) {
        if let Some(Outside { mut earlier, mut before }) = self.outside.take() {
            earlier.append(&mut before);
            earlier.append(&mut self.rest);
            self.rest = earlier;
        }
    }

    /// Decides whether the code from now on comes before the loop; returns the previous choice.
    pub fn before_loop(&mut self, before: bool) -> bool {
        std::mem::replace(&mut self.before, before)
    }

    /// Appends an item to the section that code is written to.
    pub fn push(&mut self, item: impl Into<Item>) {
        self.section().push(item.into());
    }

    /// The list that code is written to now.
    fn section(&mut self) -> &mut Vec<Item> {
        match &mut self.outside {
            _ if self.in_first => &mut self.first,
            Some(outside) if self.before => &mut outside.before,
            _ => &mut self.rest,
        }
    }

    pub fn comment(&mut self, comment: impl Into<String>) {
        self.push(Item::Comment(comment.into()));
    }

    /// Adds an instruction with its result in a fresh register.
    pub fn op(&mut self, class: Class, op: Opcode, srcs: impl Srcs) -> Reg {
        let result = self.fresh(class);
        self.set(result, op, srcs);
        result
    }

    /// Adds an instruction with its result in a register.
    pub fn set(&mut self, register: Reg, op: Opcode, srcs: impl Srcs) {
        self.push(Inst::new(op, register, srcs));
    }

    /// Adds an instruction with its result in a register, where a condition holds.
    pub fn set_if(&mut self, guard: Reg, register: Reg, op: Opcode, srcs: impl Srcs) {
        self.push(Inst::new(op, register, srcs).guarded(Some(guard)));
    }

    /// Adds an instruction without a result.
    pub fn effect(&mut self, op: Opcode, srcs: impl Srcs) {
        self.push(Inst::effect(op, srcs));
    }

    /// Copies a value to a register.
    pub fn assign(&mut self, register: Reg, value: impl Into<Operand>) {
        self.set(register, mov(register), (value,));
    }

    /// Copies a value to a register, where a condition holds.
    pub fn assign_if(&mut self, guard: Reg, register: Reg, value: impl Into<Operand>) {
        self.set_if(guard, register, mov(register), (value,));
    }

    /// Adds a number to a register of 32 bits.
    pub fn increase(&mut self, register: Reg, by: impl Into<Operand>) {
        self.set(register, Opcode::Add(Type::U32), (register, by));
    }

    operations! {
        /// A copy of 32 bits.
        mov(a) -> U32 = Opcode::Mov(Type::U32);
        /// `a + b`, modulo 2^32.
        add(a, b) -> U32 = Opcode::Add(Type::U32);
        /// `a - b`, modulo 2^32.
        sub(a, b) -> U32 = Opcode::Sub(Type::U32);
        /// `a - b` of signed numbers.
        sub_signed(a, b) -> U32 = Opcode::Sub(Type::S32);
        /// The low half of `a b`.
        mul(a, b) -> U32 = Opcode::Mul(Type::U32);
        /// The low half of `a b + c`.
        mad(a, b, c) -> U32 = Opcode::Mad(Type::U32);
        /// `a / b` of unsigned numbers, rounded down.
        div(a, b) -> U32 = Opcode::Div(Type::U32);
        /// `a mod b` of unsigned numbers.
        rem(a, b) -> U32 = Opcode::Rem;
        /// The smaller one of unsigned numbers.
        min(a, b) -> U32 = Opcode::Min(Type::U32);
        /// The smaller one of signed numbers.
        min_signed(a, b) -> U32 = Opcode::Min(Type::S32);
        /// The larger one of signed numbers.
        max_signed(a, b) -> U32 = Opcode::Max(Type::S32);
        /// Bitwise and of 32 bits.
        and(a, b) -> U32 = Opcode::And(Type::B32);
        /// Bitwise exclusive or of 32 bits.
        xor(a, b) -> U32 = Opcode::Xor(Type::B32);
        /// A shift to the right.
        shr(a, bits) -> U32 = Opcode::Shr(Type::U32);
        /// `a` where a predicate holds, otherwise `b`.
        selp(a, b, condition) -> U32 = Opcode::Selp(Type::U32);

        /// `a + b` of 64 bits.
        add64(a, b) -> U64 = Opcode::Add(Type::U64);
        /// The low half of `a b` of 64 bits.
        mul64(a, b) -> U64 = Opcode::Mul(Type::U64);
        /// A shift to the left of 64 bits.
        shl64(a, bits) -> U64 = Opcode::Shl(Type::B64);
        /// `a b` in 64 bits.
        mul_wide(a, b) -> U64 = Opcode::MulWide;
        /// `a b + c`, with `c` of 64 bits.
        mad_wide(a, b, c) -> U64 = Opcode::MadWide;
        /// The same number with 64 bits.
        widen(a) -> U64 = Opcode::Cvt(None, Type::U64, Type::U32);

        /// A copy of an f32.
        mov_f32(a) -> F32 = Opcode::Mov(Type::F32);
        /// `a + b` of f32.
        add_f32(a, b) -> F32 = Opcode::Add(Type::F32);
        /// `a - b` of f32.
        sub_f32(a, b) -> F32 = Opcode::Sub(Type::F32);
        /// `a b` of f32.
        mul_f32(a, b) -> F32 = Opcode::Mul(Type::F32);
        /// `a / b` of f32.
        div_f32(a, b) -> F32 = Opcode::Div(Type::F32);
        /// `a b + c` of f32, rounded once.
        fma(a, b, c) -> F32 = Opcode::Mad(Type::F32);
        /// The larger f32, NaN where one of them is.
        max_f32(a, b) -> F32 = Opcode::Max(Type::F32);
        /// The smaller f32, NaN where one of them is.
        min_f32(a, b) -> F32 = Opcode::Min(Type::F32);
        /// `-a` of an f32.
        neg(a) -> F32 = Opcode::Neg;
        /// `|a|` of an f32.
        abs(a) -> F32 = Opcode::Abs;
        /// `|b|` with the sign of `a`, of f32.
        copysign(a, b) -> F32 = Opcode::CopySign;
        /// The square root of an f32.
        sqrt(a) -> F32 = Opcode::Sqrt;
        /// `1 / a` of f32.
        rcp(a) -> F32 = Opcode::Rcp;
        /// `2^a` of an f32.
        ex2(a) -> F32 = Opcode::Ex2;
        /// `log2 a` of f32.
        lg2(a) -> F32 = Opcode::Lg2;
        /// `cos a` of f32.
        cos(a) -> F32 = Opcode::Cos;
        /// The nearest integer, as an f32.
        round(a) -> F32 = Opcode::Cvt(Some(Round::Integer), Type::F32, Type::F32);
        /// The next lower integer, as an f32.
        floor(a) -> F32 = Opcode::Cvt(Some(Round::Floor), Type::F32, Type::F32);
        /// The f32 with these bits.
        f32_of_bits(bits) -> F32 = Opcode::Mov(Type::B32);
        /// An f32 rounded to TF32, in its bits.
        tf32(a) -> U32 = Opcode::Cvt(Some(Round::NearestAway), Type::Tf32, Type::F32);
        /// Two f32 as bf16, the first in the high half.
        bf16x2(high, low) -> U32 = Opcode::Cvt(Some(Round::Nearest), Type::Bf16x2, Type::F32);
        /// The f32 `a` where a predicate holds, otherwise `b`.
        selp_f32(a, b, condition) -> F32 = Opcode::Selp(Type::F32);

        /// `a < b` of unsigned numbers.
        lt(a, b) -> Pred = Opcode::Setp(Cmp::Lt, Type::U32);
        /// `a >= b` of unsigned numbers.
        ge(a, b) -> Pred = Opcode::Setp(Cmp::Ge, Type::U32);
        /// `a = b` of 32 bits.
        eq(a, b) -> Pred = Opcode::Setp(Cmp::Eq, Type::U32);
        /// `a != b` of 32 bits.
        ne(a, b) -> Pred = Opcode::Setp(Cmp::Ne, Type::U32);
        /// `a >= b` of signed numbers.
        ge_signed(a, b) -> Pred = Opcode::Setp(Cmp::Ge, Type::S32);
        /// `a < b`, and a predicate.
        lt_and(a, b, also) -> Pred = Opcode::SetpAnd(Cmp::Lt, Type::U32);
        /// The conjunction of two predicates.
        and_pred(a, b) -> Pred = Opcode::And(Type::Pred);
        /// One of two predicates.
        or_pred(a, b) -> Pred = Opcode::Or(Type::Pred);
    }

    /// A comparison of f32.
    pub fn setp_f32(&mut self, cmp: Cmp, a: impl Into<Operand>, b: impl Into<Operand>) -> Reg {
        self.op(Class::Pred, Opcode::Setp(cmp, Type::F32), (a, b))
    }

    /// The f32 of the lane that differs in these bits.
    pub fn shuffle(&mut self, own: impl Into<Operand>, bits: u32) -> Reg {
        self.op(Class::F32, Opcode::ShflBfly, (own, bits, WHOLE_WARP, ALL_LANES))
    }

    /// The largest number of the warp.
    pub fn warp_max(&mut self, own: Reg) -> Reg {
        self.op(Class::U32, Opcode::ReduxMax, (own, ALL_LANES))
    }

    /// The low and the high half of 64 bits.
    pub fn halves(&mut self, wide: Reg) -> (Reg, Reg) {
        let (low, high) = (self.fresh(Class::U32), self.fresh(Class::U32));
        self.push(Inst::new(Opcode::Mov(Type::B64), vec![low, high], (wide,)));
        (low, high)
    }

    /// Both, where there are both.
    pub fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.and_pred(a, b)),
            (one, other) => one.or(other),
        }
    }

    /// The entry of the table at an offset in bytes.
    pub fn slot(&mut self, class: Class, offset: usize) -> Reg {
        self.op(class, Opcode::Ld(StateSpace::Table, stored(class)), (Address::Table(offset),))
    }

    /// Loads an f32 from a state space.
    pub fn load(&mut self, space: StateSpace, address: impl Into<Address>) -> Reg {
        self.op(Class::F32, Opcode::Ld(space, Type::F32), (address.into(),))
    }

    /// An f32, 0 where a condition does not hold.
    pub fn load_if(&mut self, exists: Option<Reg>, space: StateSpace, address: impl Into<Address>) -> Reg {
        let value = self.fresh(Class::F32);
        if exists.is_some() {
            self.assign(value, Val::ZERO);
        }
        self.push(Inst::new(Opcode::Ld(space, Type::F32), value, (address.into(),)).guarded(exists));
        value
    }

    /// Several f32 in a row.
    pub fn load_vector(&mut self, guard: Option<Reg>, to: &[Reg], space: StateSpace, address: impl Into<Address>) {
        self.push(Inst::new(Opcode::Ld(space, Type::F32), lanes(to), (address.into(),)).guarded(guard));
    }

    /// A vertex, an edge or another index, in memory that the launch does not write.
    pub fn load_index(&mut self, address: impl Into<Address>) -> Reg {
        let index = self.fresh(Class::U32);
        self.set_index(index, address);
        index
    }

    /// The same to a register.
    pub fn set_index(&mut self, index: Reg, address: impl Into<Address>) {
        self.set(index, Opcode::Ld(StateSpace::GlobalNc, Type::U32), (address.into(),));
    }

    /// Stores an f32, where a condition holds.
    pub fn store(
        &mut self,
        guard: Option<Reg>,
        space: StateSpace,
        address: impl Into<Address>,
        value: impl Into<Operand>,
    ) {
        self.push(Inst::effect(Opcode::St(space, Type::F32), (address.into(), value)).guarded(guard));
    }

    /// Stores several f32 in a row, where a condition holds.
    pub fn store_vector(&mut self, guard: Option<Reg>, space: StateSpace, address: impl Into<Address>, values: &[Reg]) {
        self.store(guard, space, address, lanes(values));
    }

    /// Waits for all threads of the block.
    pub fn block_sync(&mut self) {
        self.effect(Opcode::BarSync, (0,));
    }

    /// Waits for all lanes of the warp.
    pub fn warp_sync(&mut self) {
        self.effect(Opcode::BarWarpSync, (ALL_LANES,));
    }

    /// Threads for which a condition holds are done.
    pub fn return_if(&mut self, condition: Reg) {
        self.push(Inst::effect(Opcode::Ret, ()).guarded(Some(condition)));
    }

    /// A new label, to be placed once.
    pub fn label(&mut self) -> Label {
        self.labels += 1;
        Label::Kernel { code: 0, body: self.body, number: self.labels - 1 }
    }

    /// Puts a label here.
    pub fn place(&mut self, label: Label) {
        self.push(Item::Label(label));
    }

    /// Jumps to a label unconditionally.
    pub fn jump(&mut self, to: Label) {
        self.effect(Opcode::Bra, (to,));
    }

    /// Jumps where something holds.
    pub fn jump_if(&mut self, condition: impl Into<Guard>, to: Label) {
        self.push(Inst::effect(Opcode::Bra, (to,)).guarded(Some(condition)));
    }

    /// Adds a complete body.
    pub fn append(&mut self, mut body: Body) {
        self.section().append(&mut body.items);
    }

    /// Loads 32 bits of an entry of the table.
    pub fn load_slot(&mut self, to: Reg, address: impl Into<Address>) {
        self.set(to, Opcode::Ld(StateSpace::Table, Type::U32), (address.into(),));
    }

    /// All of it, in a scope of its own, with the regions of its shared memory.
    pub fn finish(self, regions: &Regions) -> Body {
        let mut body = self.into_body();
        body.resolve(regions);
        Body { items: vec![Item::Scope(body)] }
    }

    /// The whole code: declarations of registers, the prologue, and the rest.
    pub fn into_body(self) -> Body {
        let Self { mut first, mut rest, counts, .. } = self;
        let registers = Class::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
        let mut items: Vec<Item> = registers.map(|(class, count)| Item::Registers(class, count)).collect();
        items.append(&mut first);
        items.append(&mut rest);
        Body { items }
    }
}

/// The copy of a register of this class.
fn mov(register: Reg) -> Opcode {
    Opcode::Mov(stored(register.class()))
}

/// The type of the numbers of a class.
fn stored(class: Class) -> Type {
    match class {
        Class::F32 => Type::F32,
        Class::U32 => Type::U32,
        Class::U64 => Type::U64,
        Class::Pred => Type::Pred,
    }
}

/// One register, or several as a vector.
fn lanes(regs: &[Reg]) -> Operand {
    match regs {
        [one] => (*one).into(),
        several => several.into(),
    }
}
