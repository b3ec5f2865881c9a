//! Modules: what a text declares.

use std::collections::BTreeMap;

use crate::ParseError;
use crate::ops::Inst;
use crate::registers::Slot;
use crate::types::Type;

/// A parsed text.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) kernels: Vec<Kernel>,
    pub(crate) variables: Vec<Variable>,
    /// Names of the files of `.file`.
    pub(crate) files: BTreeMap<u32, String>,
    /// Tells modules apart that run on the same memory.
    pub(crate) id: u64,
    pub(crate) target: String,
}

impl Module {
    /// Parses a text of PTX, and decodes its kernels.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        crate::parse::module(text)
    }

    /// The kernels, in the order of the text.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The kernel with this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|kernel| kernel.name == name)
    }

    /// The target that the text names, as `sm_80`.
    pub fn target(&self) -> &str {
        &self.target
    }
}

/// A kernel, ready to run.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Bytes of all parameters, with the gaps that alignment leaves.
    pub params_bytes: usize,
    /// `.maxntid`: threads of a block are no more than the product.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`: threads of a block along each axis.
    pub required_threads: Option<[u32; 3]>,
    /// Bytes of the `.shared` variables that it uses, with the gaps that alignment leaves.
    pub static_shared: usize,
    /// Registers that are declared, by type. What a machine allocates is decided by the assembler.
    pub registers: Vec<(Type, u32)>,
    /// Alignment of `.extern .shared`, which follows the static variables.
    pub(crate) dynamic_align: usize,
    pub(crate) code: Vec<Inst>,
    /// Registers that nobody writes, and what they hold.
    pub(crate) constants: Vec<(Slot, Constant)>,
    /// Names of registers.
    pub(crate) num_slots: usize,
    /// Places for their values; several names may share one.
    pub(crate) num_places: usize,
    pub(crate) num_predicates: usize,
    /// Line of the text where it begins, from 1.
    pub line: u32,
}

impl Kernel {
    /// Instructions in the text, and the exit at its end.
    pub fn num_instructions(&self) -> usize {
        self.code.len()
    }
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type, or that of the elements of an array.
    pub ty: Type,
    /// Elements, if it is an array.
    pub elems: Option<usize>,
    /// Where it begins among the parameters, in bytes.
    pub offset: usize,
    /// Its size.
    pub bytes: usize,
}

/// A variable of the module in `.global` or `.const`.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub name: String,
    pub constant: bool,
    pub align: u64,
    pub bytes: usize,
    /// From the beginning; the rest is zero, if there are any.
    pub init: Vec<u8>,
}

/// What a register holds from the start.
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
    /// The beginning of `.extern .shared`, plus an offset.
    DynamicShared(u64),
    /// A variable of the module, plus an offset.
    Variable(usize, u64),
}
