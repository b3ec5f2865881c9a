//! Operations.

/// A type of operands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "types are named as in PTX")]
pub enum Type {
    F32,
    Tf32,
    Bf16x2,
    U32,
    S32,
    B32,
    U64,
    B64,
    Pred,
}

/// The comparison operators of `setp`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "comparisons are named as in PTX")]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Gt,
    Ge,
    /// One of the two is NaN.
    Nan,
}

/// The state spaces of loads and stores.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StateSpace {
    /// The table of addresses and sizes: in constant memory, or if it is long, in global memory.
    Table,
    /// Global memory, which threads of the entry may write.
    Global,
    /// Global memory that no thread writes as long as the entry runs, through the read-only cache.
    GlobalNc,
    /// Shared memory of the block.
    Shared,
}

/// How a conversion rounds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Round {
    /// To the nearest number, of two the even one.
    Nearest,
    /// To the nearest number, of two the one away from zero.
    NearestAway,
    /// To the nearest integer, of two the even one.
    Integer,
    /// To the next lower integer.
    Floor,
}

/// The caches that hold data copied to shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cache {
    /// All: any of 4, 8 and 16 bytes.
    All,
    /// The L2 cache alone: 16 bytes.
    Global,
}

/// A product of fragments, 16 by 8 sums in f32.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mma {
    /// Of depth 8, of TF32.
    Tf32,
    /// Of depth 16, of bf16.
    Bf16,
}

/// An operation. Of f32, sums, products and quotients round to nearest even, and the larger or smaller of two is NaN
/// where one of them is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opcode {
    /// A copy, of bits between classes or of 64 bits to two halves, too.
    Mov(Type),
    /// A load, of several registers as a vector.
    Ld(StateSpace, Type),
    /// A store, of several registers as a vector.
    St(StateSpace, Type),
    Add(Type),
    Sub(Type),
    /// `a b`, of integers the low half.
    Mul(Type),
    /// `a b` of 32 bits, in 64 bits.
    MulWide,
    /// `a b + c`: of integers the low half, of floats rounded once.
    Mad(Type),
    /// `a b + c`, with `c` and the result of 64 bits.
    MadWide,
    /// `a / b`: of integers rounded down, of floats correctly rounded.
    Div(Type),
    /// `a mod b` of unsigned numbers.
    Rem,
    /// The smaller one; of floats, NaN where one is NaN.
    Min(Type),
    /// The larger one; of floats, NaN where one is NaN.
    Max(Type),
    Neg,
    Abs,
    /// `|b|` with the sign of `a`.
    CopySign,
    /// The square root, correctly rounded.
    Sqrt,
    /// `1 / a`, correctly rounded.
    Rcp,
    /// `2^a`, to two units in the last place.
    Ex2,
    /// `log2 a`, about as exact.
    Lg2,
    /// `cos a`, to 2^-20.9 for small `a`.
    Cos,
    And(Type),
    Or(Type),
    Xor(Type),
    /// The negation of a predicate.
    Not,
    /// A shift to the left.
    Shl(Type),
    /// A shift to the right, with zeros.
    Shr(Type),
    /// A comparison, whose result is a predicate.
    Setp(Cmp, Type),
    /// A comparison, and a predicate.
    SetpAnd(Cmp, Type),
    /// `a` where a predicate holds, otherwise `b`.
    Selp(Type),
    /// A conversion: how it rounds, to and from which type.
    Cvt(Option<Round>, Type, Type),
    /// The number of the lane that differs in some bits.
    ShflBfly,
    /// The largest number of a warp.
    ReduxMax,
    /// Does a predicate hold in a lane?
    VoteAny,
    /// Adds to a number in global memory.
    RedAdd,
    /// Copies from global to shared memory, asynchronously.
    CpAsync(Cache),
    /// Makes the copies since the last one a group.
    CpAsyncCommit,
    /// Waits until at most so many groups are incomplete.
    CpAsyncWaitGroup,
    /// Waits for all copies.
    CpAsyncWaitAll,
    /// A product of fragments.
    Mma(Mma),
    /// Waits for all threads of the block.
    BarSync,
    /// Waits for lanes of the warp.
    BarWarpSync,
    /// A jump to a label.
    Bra,
    /// The thread is done.
    Ret,
}
