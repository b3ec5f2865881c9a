//! Decoded instructions: operands are register numbers, types are resolved.

use hgnnc_machine::counters::Class;

use crate::alu::convert::Conversion;
use crate::registers::{Operands, Slot, Step, Test};
use crate::types::Type;

/// Number of a predicate register.
pub(crate) type PredSlot = u32;

/// A predicate or its negation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pred {
    pub slot: PredSlot,
    pub negated: bool,
}

/// State space of an access. Generic addresses are resolved per lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Global,
    Shared,
    Const,
    Generic,
}

/// Memory-ordering guarantee of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    Plain,
    /// `.nc`: read-only during the kernel.
    ReadOnly,
    /// `.volatile`, `.relaxed`, `.acquire`, `.release`.
    Strong,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub base: Slot,
    pub offset: i64,
    /// The register has 32 bits; the upper bits are undefined.
    pub narrow: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AtomicOp {
    Add,
    Min,
    Max,
    Exch,
    Cas,
    And,
    Or,
    Xor,
    Inc,
    Dec,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reduce {
    Popc,
    And,
    Or,
}

/// Shape and operand type of a matrix product with f32 accumulation: m = 16, n = 8.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MmaShape {
    pub k: usize,
    pub ty: Type,
}

#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub shape: MmaShape,
    pub d: [Slot; 4],
    pub a: Vec<Slot>,
    pub b: Vec<Slot>,
    pub c: [Slot; 4],
}

/// Operands of a barrier.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub id: Slot,
    /// Number of threads; `None`: all threads of the block.
    pub count: Option<Slot>,
    pub aligned: bool,
    /// `bar.arrive`: does not wait.
    pub arrive: bool,
    pub reduce: Option<BarrierReduce>,
}

#[derive(Clone, Debug)]
pub(crate) struct BarrierReduce {
    pub op: Reduce,
    pub source: Pred,
    pub value: Option<Slot>,
    /// Result of `and` and `or`.
    pub pred: Option<PredSlot>,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Alu(Step),
    Convert(Conversion),
    Nop,
    Clock {
        d: Slot,
    },
    Pack {
        d: Slot,
        parts: Vec<Slot>,
        bits: u32,
    },
    Unpack {
        parts: Vec<Option<Slot>>,
        a: Slot,
        bits: u32,
    },
    Setp {
        test: Test,
        combine: Option<(Logic, Pred)>,
        p: Option<PredSlot>,
        q: Option<PredSlot>,
    },
    /// Predicate to value: `one` if it holds, otherwise 0.
    Set {
        test: Test,
        combine: Option<(Logic, Pred)>,
        one: u64,
    },
    Selp {
        pred: Pred,
    },
    PredLogic {
        op: Logic,
        d: PredSlot,
        a: Pred,
        b: Pred,
    },
    PredMov {
        d: PredSlot,
        a: Pred,
    },
    LdParam {
        d: Vec<Option<Slot>>,
        ty: Type,
        offset: u32,
    },
    Ld {
        space: Space,
        ty: Type,
        d: Vec<Option<Slot>>,
        address: Address,
        order: Order,
    },
    St {
        space: Space,
        ty: Type,
        values: Vec<Slot>,
        address: Address,
        order: Order,
    },
    Atomic {
        op: AtomicOp,
        space: Space,
        ty: Type,
        d: Option<Slot>,
        address: Address,
        b: Slot,
        c: Slot,
    },
    CpAsync {
        to: Address,
        from: Address,
        bytes: u32,
        source_bytes: Option<Slot>,
    },
    CpCommit,
    /// Waits until at most this many groups are pending; `None`: also for copies outside of any group.
    CpWait(Option<u32>),
    Bra {
        target: u32,
    },
    Exit,
    Trap,
    Barrier(Box<Barrier>),
    WarpSync {
        mask: Slot,
    },
    Shfl {
        mode: Shuffle,
        d: Slot,
        p: Option<PredSlot>,
        a: Slot,
        b: Slot,
        c: Slot,
        mask: Slot,
    },
    Vote {
        mode: Vote,
        d: Option<Slot>,
        p: Option<PredSlot>,
        a: Pred,
        mask: Slot,
    },
    Match {
        all: bool,
        wide: bool,
        d: Slot,
        p: Option<PredSlot>,
        a: Slot,
        mask: Slot,
    },
    Redux {
        op: AtomicOp,
        signed: bool,
        d: Slot,
        a: Slot,
        mask: Slot,
    },
    ActiveMask {
        d: Slot,
    },
    Ldmatrix {
        d: Vec<Slot>,
        transposed: bool,
        address: Address,
    },
    Mma(Box<Mma>),
}

#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub op: Op,
    pub operands: Operands,
    pub guard: Option<Pred>,
    pub class: Class,
    /// Number of floating-point operations per lane.
    pub flops: u8,
    /// Registers read, by name, except constants.
    pub reads: Vec<Slot>,
    pub reads_pred: Vec<PredSlot>,
    pub writes: Vec<Slot>,
    pub writes_pred: Vec<PredSlot>,
    /// Line of the text, from 1.
    pub line: u32,
    /// File index and line of the last `.loc`.
    pub source: Option<(u32, u32)>,
}
