//! Updates parameters and optimizer state in place, and reuses the buffers of operands whose last reader is the kernel
//! that writes the result.
//!
//! ```text
//! Before:  buffer w.new : f32[64, 64]                  stored beside `w`, and copied over it after the run
//! After:   buffer w.new : f32[64, 64] replaces w       neither
//! ```
//!
//! Applies where [`Uses::may_replace`] finds no later reader: in practice always, unless the backward pass reads a
//! parameter after its own gradient is complete and fused with the update, or an update needs a reduction over all rows
//! that other results wait for.
//!
//! ```text
//! Before:  kernel : rows Paper { ... dz = mul %9, %12 }      while this is the last read of `z[row]`:
//! After:   buffer dz : f32[Paper; 64] replaces z             both share a buffer
//!
//! Before:  kernel NA forward : exchange Paper -> Paper.sources { m = h }
//! After:   buffer m : f32[Paper.sources; 64] extends h       owned rows are computed where their mirrors are read
//! ```
//!
//! There are many times as many mirrors as rows with many ranks. So rows do not lie among them that are read after them, or
//! are computed in another phase.

use std::collections::VecDeque;

use hgnnc_ir::OutputKind;
use hgnnc_kernel_ir::kernel::{Body, Buffer, Contents, Exchange, Kernel, Program, Source, Uses};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::kernel_passes::KernelCx;

/// Sets `replaces` and `extends` of the buffers that reuse another one.
pub(crate) fn run(program: &mut Program, _: &mut KernelCx) {
    let uses: Uses<'_> = program.uses();
    let mut pairs = updates(program, &uses);
    for (at, launch) in program.launches.iter().enumerate() {
        for kernel in &launch.kernels {
            reuse_operands(program, &uses, (at, kernel), &mut pairs);
        }
    }
    let extended = extensions(program, &uses, &pairs);
    for (new, old) in pairs {
        program.buffers[new.index()].replaces = Some(old);
    }
    for (own, all) in extended {
        program.buffers[all.index()].extends = Some(own);
    }
}

/// The buffers of rows that are computed among their mirrors, with those of the mirrors.
fn extensions(program: &Program, uses: &Uses<'_>, pairs: &FxHashMap<Buffer, Buffer>) -> FxHashMap<Buffer, Buffer> {
    let replaced: FxHashSet<Buffer> = pairs.values().copied().collect();
    let mut extended = FxHashMap::default();
    for kernel in program.launches.iter().flat_map(|launch| &launch.kernels) {
        let Body::Exchange(Exchange { x, out, .. }) = kernel.body else { continue };
        let mut first = x;
        while let Some(&old) = pairs.get(&first) {
            first = old;
        }
        // The memory has the size of the mirrors from the first value in it to the last.
        let phase = uses.first_write(first).map(|at| program.launches[at].kernels[0].phase);
        let is_short = phase == Some(kernel.phase) && uses.last_read(x) <= uses.last_read(out);
        let is_free = ![x, out].iter().any(|buffer| replaced.contains(buffer)) && !extended.contains_key(&x);
        if is_short && is_free && uses.may_extend(out, x).is_ok() {
            extended.insert(x, out);
        }
    }
    extended
}

/// The buffers of new parameters and states, with those of the old ones.
fn updates(program: &Program, uses: &Uses<'_>) -> FxHashMap<Buffer, Buffer> {
    let leaves: FxHashMap<Contents, Buffer> =
        program.buffers.iter().enumerate().map(|(row, decl)| (decl.contents, Buffer::new(row))).collect();
    let mut pairs: FxHashMap<Buffer, Buffer> = FxHashMap::default();
    for output in &program.outputs {
        let contents = match output.kind {
            OutputKind::UpdateParam(param) => Contents::Param(param),
            OutputKind::UpdateState(param, slot) => Contents::State(param, slot),
            OutputKind::Result(_) => continue,
        };
        let (Some(&old), Source::Buffer(new)) = (leaves.get(&contents), output.source) else { continue };
        if !pairs.contains_key(&new) && uses.may_replace(new, old).is_ok() {
            pairs.insert(new, old);
        }
    }
    pairs
}

/// Finds buffers for the results of a kernel of the launch `at` among its dead operands: the first that fits, in the
/// order of reads.
fn reuse_operands(
    program: &Program,
    uses: &Uses<'_>,
    (at, kernel): (usize, &Kernel),
    pairs: &mut FxHashMap<Buffer, Buffer>,
) {
    // A buffer is reused once, since the launch that reuses it is its last reader.
    let mut free: FxHashMap<_, VecDeque<Buffer>> = FxHashMap::default();
    let computed = |buffer: &Buffer| program.buffer(*buffer).contents == Contents::Computed;
    for old in kernel.reads().into_iter().filter(computed).filter(|&old| uses.is_released(old, at)) {
        if let Some(shape) = program.row_shape(old) {
            free.entry(shape).or_default().push_back(old);
        }
    }
    for new in kernel.writes() {
        let Some(buffers) = program.row_shape(new).and_then(|shape| free.get_mut(&shape)) else { continue };
        if pairs.contains_key(&new) {
            continue;
        }
        if let Some(first) = buffers.iter().position(|&old| uses.may_replace(new, old).is_ok())
            && let Some(old) = buffers.remove(first)
        {
            pairs.insert(new, old);
        }
    }
}
