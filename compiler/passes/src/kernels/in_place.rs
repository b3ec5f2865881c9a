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

use std::collections::{HashMap, HashSet};

use hgnnc_ir::OutputKind;
use hgnnc_ir::kernel::{Buffer, Contents, Kernel, Program, Source, Uses};

/// See the module.
pub(super) fn replace(program: &mut Program) {
    let uses: Uses<'_> = program.uses();
    let mut pairs = updates(program, &uses);
    let launches = program.launches.iter().flat_map(|launch| &launch.kernels);
    let mut taken: HashSet<Buffer> = pairs.values().copied().collect();
    for kernel in launches {
        take_over(program, &uses, kernel, &mut pairs, &mut taken);
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

/// Finds places for what a kernel writes among what it reads.
fn take_over(
    program: &Program,
    uses: &Uses<'_>,
    kernel: &Kernel,
    pairs: &mut HashMap<Buffer, Buffer>,
    taken: &mut HashSet<Buffer>,
) {
    let computed = |buffer: &Buffer| program.buffer(*buffer).contents == Contents::Computed;
    let reads: Vec<Buffer> = kernel.reads().into_iter().filter(computed).collect();
    for new in kernel.writes() {
        if pairs.contains_key(&new) {
            continue;
        }
        let free = |old: &&Buffer| !taken.contains(*old) && uses.may_replace(new, **old).is_ok();
        if let Some(&old) = reads.iter().find(free) {
            pairs.insert(new, old);
            taken.insert(old);
        }
    }
}
