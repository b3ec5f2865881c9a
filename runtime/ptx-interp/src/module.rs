//! Parsed modules and kernels.

use std::collections::BTreeMap;

use crate::ops::Inst;
use crate::registers::Slot;
use crate::types::Type;

/// A parsed PTX module.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
    /// File names from `.file`, by index.
    pub(crate) files: BTreeMap<u32, String>,
    /// Distinguishes modules that run on the same memory.
    pub(crate) id: u64,
    pub(crate) target: String,
}

impl Module {
    /// The kernels, in the order of the text.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel with this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The `.target` of the text, such as `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }
}

/// A decoded kernel, ready to run.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Kernel {
    pub name: String,
    /// Parameters in order of declaration.
    pub params: Vec<Param>,
    /// Bytes of all parameters, including alignment gaps.
    pub params_bytes: usize,
    /// `.maxntid`: upper bound of the threads of a block, as a product.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`: threads of a block along each axis.
    pub required_threads: Option<[u32; 3]>,
    /// Bytes of the `.shared` variables it uses, including alignment gaps.
    pub static_shared: usize,
    /// Number of declared virtual registers, by type. The assembler decides the physical ones.
    pub registers: Vec<(Type, u32)>,
    /// Alignment of `.extern .shared`, which follows the static variables.
    pub(crate) dynamic_align: usize,
    pub(crate) code: Vec<Inst>,
    /// Registers with a constant value (immediates, special registers), and their values.
    pub(crate) constants: Vec<(Slot, Constant)>,
    /// Number of register names.
    pub(crate) num_slots: usize,
    /// Number of places for their values; names with disjoint live intervals share one.
    pub(crate) num_places: usize,
    pub(crate) num_predicates: usize,
    /// First line of the kernel in the text, from 1.
    pub line: u32,
}

impl Kernel {
    /// Number of instructions in the text, plus the implicit exit at its end.
    pub fn num_instructions(&self) -> usize {
        self.code.len()
    }
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Param {
    pub name: String,
    /// Type of the parameter, or of the elements of an array.
    pub ty: Type,
    /// Number of elements of an array.
    pub elems: Option<usize>,
    /// Offset in the parameter buffer, in bytes.
    pub offset: usize,
    pub bytes: usize,
}

/// A variable of the module in `.global` or `.const`.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub constant: bool,
    pub align: u64,
    pub bytes: usize,
    /// Initial bytes; the rest is zero.
    pub init: Vec<u8>,
}

/// Value of a register that is never written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Constant {
    Bits(u64),
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    LaneId,
    WarpId,
    NumWarps,
    LaneMaskEq,
    LaneMaskLt,
    LaneMaskLe,
    LaneMaskGt,
    LaneMaskGe,
    DynamicSharedSize,
    TotalSharedSize,
    /// Start of `.extern .shared`, plus an offset.
    DynamicShared(u64),
    /// A variable of the module, plus an offset.
    Variable(usize, u64),
}
