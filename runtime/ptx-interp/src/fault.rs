//! What can be wrong with a text and with a run.

use std::fmt;

/// The text is not PTX, or uses what is not supported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: u32,
    /// Column in bytes, from 1.
    pub column: u32,
    /// What was expected and what was found.
    pub message: String,
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FaultKind {
    /// There is no such kernel, or the launch does not fit it: its parameters, its limits, those of the machine.
    Launch,
    /// An address outside of every allocation, or in a freed one.
    OutOfBounds,
    /// An address that is not a multiple of the size of the access.
    Misaligned,
    /// Memory was read that nobody has written.
    UninitialisedMemory,
    /// A register was read that nobody has written.
    UninitialisedRegister,
    /// Two threads of a block use a byte of shared memory, one of them writes, and nothing orders them.
    SharedRace,
    /// Two blocks use a byte of global memory, one of them writes, and not both by atomic operations; or `.nc` reads what
    /// the same launch has written.
    GlobalRace,
    /// Shared memory was used between a `cp.async` and the wait for it.
    PendingCopy,
    /// A barrier that some lanes of a warp reach and others do not.
    DivergentBarrier,
    /// Threads wait for others that never come.
    Deadlock,
    /// A `.sync` instruction names lanes that have exited, or not the executing one, or reads from a lane that does
    /// not take part.
    BadMask,
    /// A write to constant memory or through a pointer to it.
    ReadOnly,
    /// `trap`.
    Trap,
    /// More instructions than allowed were executed.
    InstructionLimit,
}

/// A run that went wrong. The memory is left as it was at that moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// What it is.
    pub kind: FaultKind,
    /// The kernel.
    pub kernel: String,
    /// The line of the PTX text, from 1; 0 if no instruction is to blame.
    pub line: u32,
    /// File and line according to `.loc`, if there is one before the instruction.
    pub source: Option<(String, u32)>,
    /// The block.
    pub block: [u32; 3],
    /// The thread in it.
    pub thread: [u32; 3],
    /// What happened, with addresses as allocation and offset.
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
