//! Dead code elimination: removes values that no output depends on.

use hgnnc_ir::Dataflow;

use crate::pass::{Changed, PassCx};

/// Removes values that no output depends on.
pub fn dce(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let removed = flow.remove_dead_values();
    cx.note("dce", removed, || format!("{removed} values that nothing reads"))
}
