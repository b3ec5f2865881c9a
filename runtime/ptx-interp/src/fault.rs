//! Parse errors and run-time faults.

use std::fmt;

/// The text is not valid PTX, or uses unsupported features.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ParseError {
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// Expected and actual token, or the unsupported feature.
    pub message: String,
}

/// Kinds of run-time faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// The kernel does not exist, or the launch violates its parameters, its limits, or those of the target.
    Launch,
    /// An access outside of every allocation, or to a freed one.
    OutOfBounds,
    /// An address that is not a multiple of the access size.
    Misaligned,
    /// A read of uninitialised memory.
    UninitialisedMemory,
    /// A read of a register that was never written.
    UninitialisedRegister,
    /// A race: two threads of a block access a byte of shared memory, at least one writes, and no synchronisation
    /// orders them.
    SharedRace,
    /// A race: two blocks access a byte of global memory, at least one writes, and not both atomically; or `.nc` reads
    /// a byte written by the same launch.
    GlobalRace,
    /// An access to shared memory between a `cp.async` to it and the wait for it.
    PendingCopy,
    /// Some lanes of a warp reach a barrier and others do not.
    DivergentBarrier,
    /// All threads wait for others that cannot arrive.
    Deadlock,
    /// The mask of a `.sync` instruction contains exited lanes, or not the executing lane; or a shuffle reads from a
    /// lane that does not take part.
    BadMask,
    /// A write to constant memory, directly or through a pointer.
    ReadOnly,
    /// The kernel executed `trap`.
    Trap,
    /// The run exceeded its instruction limit.
    InstructionLimit,
}

/// A fault that ended a run. The memory keeps its contents of that moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// Name of the kernel.
    pub kernel: String,
    /// Line of the PTX text, from 1; 0 if no instruction caused the fault.
    pub line: u32,
    /// File and line of the last `.loc` before the instruction, if any.
    pub source: Option<(String, u32)>,
    /// Index of the block.
    pub block: [u32; 3],
    /// Index of the thread within the block.
    pub thread: [u32; 3],
    /// Description, with addresses as allocation and offset.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}", self.kernel)?;
        if self.line > 0 {
            write!(f, ", line {}", self.line)?;
            if let Some((file, line)) = &self.source {
                write!(f, " ({file}:{line})")?;
            }
            let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
            write!(f, ", block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for Fault {}
