//! Launch configuration and kernel parameters.

use crate::module::Kernel;
use crate::types::Type;

/// Limit of statically declared shared memory; more must be requested as dynamic shared memory.
const MOST_STATIC: usize = 48 << 10;
const MOST_THREADS: u64 = 1024;

/// The configuration of a launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Grid size in blocks along x, y, z.
    pub grid: [u32; 3],
    /// Block size in threads along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory (`.extern .shared`), in bytes.
    pub dynamic_shared: usize,
    /// The parameter buffer, as built by [`Kernel::lay_out`].
    pub params: Vec<u8>,
    /// Limit of warp instructions; a run that exceeds it faults.
    pub max_instructions: u64,
    /// Runs blocks and warps in reverse order. A kernel without races computes the same.
    pub backward: bool,
}

impl Default for Launch {
    /// One block of one thread, no parameters, at most 2³⁰ instructions.
    fn default() -> Self {
        Launch {
            grid: [1; 3],
            block: [1; 3],
            dynamic_shared: 0,
            params: Vec::new(),
            max_instructions: 1 << 30,
            backward: false,
        }
    }
}

/// The value of a kernel parameter.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)] // Named as the types.
pub enum Value {
    U8(u8),
    U16(u16),
    U32(u32),
    S32(i32),
    /// An integer or an address.
    U64(u64),
    S64(i64),
    F32(f32),
    F64(f64),
    /// The elements of an array, or a scalar of that size.
    Bytes(Vec<u8>),
}

impl Value {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Value::U8(v) => v.to_le_bytes().into(),
            Value::U16(v) => v.to_le_bytes().into(),
            Value::U32(v) => v.to_le_bytes().into(),
            Value::S32(v) => v.to_le_bytes().into(),
            Value::U64(v) => v.to_le_bytes().into(),
            Value::S64(v) => v.to_le_bytes().into(),
            Value::F32(v) => v.to_le_bytes().into(),
            Value::F64(v) => v.to_le_bytes().into(),
            Value::Bytes(bytes) => bytes.clone(),
        }
    }
}

impl Kernel {
    /// Builds the parameter buffer. The error names a parameter whose size differs from its declaration.
    pub fn lay_out(&self, values: &[Value]) -> Result<Vec<u8>, String> {
        if values.len() != self.params.len() {
            return Err(format!("`{}` has {} parameters, not {}", self.name, self.params.len(), values.len()));
        }
        let mut out = vec![0; self.params_bytes];
        for (param, value) in self.params.iter().zip(values) {
            let bytes = value.bytes();
            if bytes.len() != param.bytes {
                let (name, expected, found) = (&param.name, param.bytes, bytes.len());
                return Err(format!("parameter `{name}` of `{}` has {expected} bytes, not {found}", self.name));
            }
            let is_float = matches!(value, Value::F32(_) | Value::F64(_));
            let fits = matches!(value, Value::Bytes(_))
                || matches!(param.ty, Type::B8 | Type::B16 | Type::B32 | Type::B64)
                || is_float == param.ty.is_float();
            if !fits {
                return Err(format!("parameter `{}` of `{}` is .{}", param.name, self.name, param.ty.name()));
            }
            out[param.offset..param.offset + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(out)
    }
}

/// Largest shared memory of a block, in bytes (CUDA C++ Programming Guide, technical specifications).
fn most_shared(target: &str) -> usize {
    match target {
        "sm_80" | "sm_87" => 163 << 10,
        "sm_86" | "sm_89" => 99 << 10,
        _ => 227 << 10,
    }
}

impl Launch {
    /// Offset of `.extern .shared` in shared memory.
    pub(crate) fn dynamic_offset(&self, kernel: &Kernel) -> usize {
        kernel.static_shared.next_multiple_of(kernel.dynamic_align)
    }

    pub(crate) fn shared_bytes(&self, kernel: &Kernel) -> usize {
        if self.dynamic_shared == 0 {
            kernel.static_shared
        } else {
            self.dynamic_offset(kernel).saturating_add(self.dynamic_shared)
        }
    }

    /// Number of threads of a block, if the launch respects the limits of the kernel and of the target.
    pub(crate) fn check(&self, kernel: &Kernel, target: &str) -> Result<usize, String> {
        let product = |of: [u32; 3]| of.iter().fold(1u64, |product, &n| product.saturating_mul(u64::from(n)));
        let show = |[x, y, z]: [u32; 3]| format!("{x} x {y} x {z}");
        let threads = product(self.block);
        let blocks = product(self.grid);
        if threads == 0 || blocks == 0 {
            return Err(format!("{} blocks of {} threads are none", show(self.grid), show(self.block)));
        }
        if threads > MOST_THREADS || self.block[2] > 64 {
            return Err(format!("a block has {} threads, the most are 1024, and 64 along z", show(self.block)));
        }
        if self.grid[0] >= 1 << 31 || self.grid[1] > 65535 || self.grid[2] > 65535 || blocks >= 1 << 30 {
            return Err(format!("{} blocks are too many", show(self.grid)));
        }
        if let Some(most) = kernel.max_threads.filter(|&most| threads > product(most)) {
            return Err(format!("a block has {} threads, the kernel says .maxntid {}", show(self.block), show(most)));
        }
        if let Some(wanted) = kernel.required_threads.filter(|&wanted| self.block != wanted) {
            return Err(format!("a block has {} threads, the kernel says .reqntid {}", show(self.block), show(wanted)));
        }
        if kernel.static_shared > MOST_STATIC {
            let bytes = kernel.static_shared;
            return Err(format!("{bytes} bytes of shared memory are declared, the most are {MOST_STATIC}"));
        }
        let (shared, most) = (self.shared_bytes(kernel), most_shared(target));
        if shared > most {
            return Err(format!("a block has {shared} bytes of shared memory, the most are {most} on {target}"));
        }
        if self.params.len() != kernel.params_bytes {
            return Err(format!("the parameters have {} bytes, not {}", self.params.len(), kernel.params_bytes));
        }
        Ok(threads as usize)
    }
}
