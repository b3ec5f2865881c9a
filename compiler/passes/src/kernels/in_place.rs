//! Values take the place of others that nothing reads any more: new parameters and optimiser states that of the old
//! ones, and rows of computed values that of rows that only their own kernel still reads.
//!
//! ```text
//! Before:  buffer w.new : f32[64, 64]                  stored beside `w`, and copied over it after the run
//! After:   buffer w.new : f32[64, 64] replaces w       neither
//! ```
//!
//! Applies where [`Uses::may_replace`] says so: in practice always, unless a parameter is read by the backward pass
//! after its own gradient is complete and fused with the update, or an optimiser's update needs a total that other
//! results wait for.
//!
//! ```text
//! Before:  kernel : rows Paper { ... dz = mul %9, %12 }      while `z[row]` is read there for the last time:
//! After:   buffer dz : f32[Paper; 64] replaces z             both in the memory of one
//! ```

use std::collections::{HashMap, VecDeque};

use hgnnc_ir::OutputKind;
use hgnnc_ir::kernel::{Buffer, Contents, Kernel, Program, Source, Uses};

/// See the module.
pub(super) fn replace(program: &mut Program) {
    let uses: Uses<'_> = program.uses();
    let mut pairs = updates(program, &uses);
    for (at, launch) in program.launches.iter().enumerate() {
        for kernel in &launch.kernels {
            take_over(program, &uses, (at, kernel), &mut pairs);
        }
    }
    for (new, old) in pairs {
        program.buffers[new.index()].replaces = Some(old);
    }
}

/// New parameters and states, with the old ones.
fn updates(program: &Program, uses: &Uses<'_>) -> HashMap<Buffer, Buffer> {
    let leaves: HashMap<Contents, Buffer> =
        program.buffers.iter().enumerate().map(|(row, decl)| (decl.contents, Buffer::new(row))).collect();
    let mut pairs: HashMap<Buffer, Buffer> = HashMap::new();
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

/// Finds places for what a kernel of the launch `at` writes among what it reads: the first that fits, in the order of reads.
fn take_over(program: &Program, uses: &Uses<'_>, (at, kernel): (usize, &Kernel), pairs: &mut HashMap<Buffer, Buffer>) {
    // A place is taken once, since the launch that takes it is the last one that reads it.
    let mut free: HashMap<_, VecDeque<Buffer>> = HashMap::new();
    let computed = |buffer: &Buffer| program.buffer(*buffer).contents == Contents::Computed;
    for old in kernel.reads().into_iter().filter(computed).filter(|&old| uses.is_released(old, at)) {
        if let Some(shape) = program.row_shape(old) {
            free.entry(shape).or_default().push_back(old);
        }
    }
    for new in kernel.writes() {
        let Some(places) = program.row_shape(new).and_then(|shape| free.get_mut(&shape)) else { continue };
        if pairs.contains_key(&new) {
            continue;
        }
        if let Some(first) = places.iter().position(|&old| uses.may_replace(new, old).is_ok())
            && let Some(old) = places.remove(first)
        {
            pairs.insert(new, old);
        }
    }
}
