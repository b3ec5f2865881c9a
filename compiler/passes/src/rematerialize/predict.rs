//! Predicts memory and time of a program of kernels for data of given sizes: memory from the live ranges of buffers,
//! time from the cost of the kernels ([`crate::cost`]).
//!
//! Memory is exact up to partial results and scratch, which belong to the runtime. Time is that of a nominal machine:
//! it ranks programs, and predicts no machine.

use hgnnc_ir::kernel::place::{Memory, memory};
use hgnnc_ir::kernel::{Body, Kernel, Program};
use hgnnc_ir::{Dataflow, Layout, Type};
use hgnnc_machine::{Capabilities, FORMAT, Machine, MemoryLevel};

use crate::cost::kernel_work;
use crate::pipeline::SizeInfo;

/// The offsets at which the runtime places the values of a program.
pub fn planned(program: &Program, sizes: &SizeInfo) -> Memory {
    memory(program, |ty| elements(&program.tables, ty, sizes))
}

/// Bytes of the values of a run as the runtime places them, saturating. Values of the prelude are not counted, since
/// rematerialization does not change them.
pub fn arena_bytes(program: &Program, sizes: &SizeInfo) -> u64 {
    (planned(program, sizes).run.len as u64).saturating_mul(4)
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

/// Predicted seconds of a run, on the nominal machine.
pub fn seconds(program: &Program, sizes: &SizeInfo) -> f64 {
    let machine = nominal();
    let kernels = program.launches.iter().flat_map(|launch| &launch.kernels);
    let of = |kernel: &Kernel| {
        let work = kernel_work(program, kernel, sizes);
        // Two-hop sums sort and search, which count as cycles: each is as long as a full vector operation.
        let sorting = if matches!(kernel.body, Body::Paths(_)) { 64.0 * work.cycles } else { 0.0 };
        machine.predict(&work).seconds() + sorting / (0.5 * machine.fma_flops)
    };
    kernels.map(of).sum()
}

/// Two cores of a server. The choice must not depend on the machine that compiles, and uses only ratios of predictions.
pub fn nominal() -> Machine {
    Machine {
        format: FORMAT,
        name: "nominal".into(),
        target: "cpu".into(),
        capabilities: Capabilities::cpu(),
        cores: 2,
        fma_flops: 60e9,
        fma_flops_one_core: 30e9,
        special_per_s: 4e9,
        line_bytes: 64,
        launch_s: 5e-6,
        cycle_s: 0.0,
        barrier_s: 0.0,
        tensor: None,
        levels: vec![MemoryLevel {
            name: "DRAM".into(),
            bytes: f64::INFINITY,
            shared: true,
            stream_bytes_per_s: 30e9,
            gather_bytes_per_s: 30e9,
        }],
    }
}
