//! Programs for a processor.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use hgnnc_kernel_ir::loops::VerifiedLoops;

use crate::Role;

/// Address of a function. Arguments: arrays, index arrays, results, offsets, and the number of items (for
/// [`hgnnc_kernel_ir::loops::function::Shape::Segments`]: of rows that own items).
pub type Entry = unsafe extern "C" fn(*const *const f32, *const *const u32, *const *mut f32, *const u32, usize);

/// Machine code of the functions of a program.
#[derive(Default)]
pub struct MachineCode {
    /// The entry of each function, in the order of [`hgnnc_kernel_ir::loops::Program::functions`].
    pub entries: Vec<Entry>,
    /// Bytes of code.
    pub bytes: usize,
    /// Owner of the executable memory, released with `self`.
    pub memory: Option<Box<dyn Any + Send + Sync>>,
}

impl fmt::Debug for MachineCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MachineCode({} functions, {} bytes)", self.entries.len(), self.bytes)
    }
}

/// A program for a processor: its loops, and the machine code of the functions that they call.
#[derive(Clone, Debug, Default)]
pub struct CpuProgram {
    /// The loops, in order of execution.
    pub loops: Arc<VerifiedLoops>,
    /// Code of [`hgnnc_kernel_ir::loops::Program::functions`], in their order.
    pub code: Arc<MachineCode>,
}

/// The programs of an executable for a processor; see the fields of the same name in [`crate::Kernels`].
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct CpuPrograms {
    pub train: Option<CpuProgram>,
    pub infer: CpuProgram,
    pub score: Option<CpuProgram>,
    pub rank: [Option<CpuProgram>; 2],
    pub head: Option<CpuProgram>,
}

impl CpuPrograms {
    /// A program, if the executable has it.
    pub fn program(&self, role: Role) -> Option<&CpuProgram> {
        match role {
            Role::Infer => Some(&self.infer),
            Role::Train => self.train.as_ref(),
            Role::Score => self.score.as_ref(),
            Role::Rank(end) => self.rank[end as usize].as_ref(),
            Role::Head => self.head.as_ref(),
        }
    }
}
