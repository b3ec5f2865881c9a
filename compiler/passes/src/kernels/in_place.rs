//! New parameters and optimiser states take the place of the old ones where nothing reads those any more.
//!
//! ```text
//! Before:  buffer w.new : f32[64, 64]                  stored beside `w`, and copied over it after the run
//! After:   buffer w.new : f32[64, 64] replaces w       neither
//! ```
//!
//! Applies where [`Uses::may_replace`] says so: in practice always, unless a parameter is read by the backward pass
//! after its own gradient is complete and fused with the update, or an optimiser's update needs a total that other
//! results wait for.

use std::collections::HashMap;

use hgnnc_ir::OutputKind;
use hgnnc_ir::kernel::{Buffer, Contents, Program, Source, Uses};

/// See the module.
pub(super) fn replace(program: &mut Program) {
    let leaves: HashMap<Contents, Buffer> =
        program.buffers.iter().enumerate().map(|(row, decl)| (decl.contents, Buffer::new(row))).collect();
    let mut pairs: HashMap<Buffer, Buffer> = HashMap::new();
    let uses: Uses<'_> = program.uses();
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
    for (new, old) in pairs {
        program.buffers[new.index()].replaces = Some(old);
    }
}
