//! The memory of a program of kernels for data of given sizes, from the live ranges of its buffers. It is exact up to
//! partial results and scratch, which belong to the runtime.

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{Dataflow, Layout, Type};
use hgnnc_kernel_ir::kernel::place::{Memory, memory};
use hgnnc_kernel_ir::kernel::{Buffer, Program};

/// The offsets at which the runtime places the values of a program.
pub fn planned(program: &Program, sizes: &SizeInfo) -> Memory {
    memory(program, |buffer| elements(&program.tables, &program.buffer(buffer).ty, sizes))
}

/// Bytes of the values of a run as the runtime places them, saturating. Values of the prelude are not counted, since
/// rematerialization does not change them.
pub fn arena_bytes(program: &Program, sizes: &SizeInfo) -> u64 {
    (planned(program, sizes).run.len as u64).saturating_mul(4)
}

/// Bytes of a stored value, saturating.
pub fn bytes_of(program: &Program, buffer: Buffer, sizes: &SizeInfo) -> u64 {
    (elements(&program.tables, &program.buffer(buffer).ty, sizes) as u64).saturating_mul(4)
}

/// Number of stored elements of a value.
fn elements(tables: &Dataflow, ty: &Type, sizes: &SizeInfo) -> usize {
    match ty.layout {
        Layout::Sparse(pattern) => sizes.stored(tables, pattern) as usize,
        Layout::Dense => {
            let rows = sizes.rows(ty.space);
            let elements = ty.dims.iter().fold(rows, |all, &dim| all.saturating_mul(sizes.extent(dim)));
            usize::try_from(elements).unwrap_or(usize::MAX)
        }
    }
}
