//! New parameters and optimiser states take the place of the old ones where nothing reads those any more.
//!
//! ```text
//! Before:  buffer w.new : f32[64, 64]                  stored beside `w`, and copied over it after the run
//! After:   buffer w.new : f32[64, 64] replaces w       neither
//! ```
//!
//! Applies where [`Program::may_replace`] says so: in practice always, unless a parameter is read by the backward pass
//! after its own gradient is complete and fused with the update, or an optimiser's update needs a total that other
//! results wait for.

use hgnnc_ir::OutputKind;
use hgnnc_ir::kernel::{Buffer, Contents, Program, Source};

/// See the module.
pub(super) fn replace(program: &mut Program) {
    for output in 0..program.outputs.len() {
        let contents = match program.outputs[output].kind {
            OutputKind::UpdateParam(param) => Contents::Param(param),
            OutputKind::UpdateState(param, slot) => Contents::State(param, slot),
            OutputKind::Result(_) => continue,
        };
        let old = program.buffers.iter().position(|decl| decl.contents == contents).map(Buffer::new);
        let (Some(old), Source::Buffer(new)) = (old, program.outputs[output].source) else { continue };
        if program.buffer(new).replaces.is_none() && program.may_replace(new, old).is_ok() {
            program.buffers[new.index()].replaces = Some(old);
        }
    }
}
