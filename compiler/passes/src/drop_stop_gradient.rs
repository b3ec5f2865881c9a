//! Removes `stop_gradient` from programs that are differentiated already (or never will be): it is the identity.
//!
//! ```text
//! Before:  %2 = stop_gradient %1        After:  %3 = exp %1
//!          %3 = exp %2
//! ```

use hgnnc_ir::{Dataflow, Op};

use crate::pass::{Changed, PassCx};
use crate::rewrite::rewrite;

/// Replaces `stop_gradient` by its operand.
pub fn drop_stop_gradient(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let erased = rewrite(flow, |r, value, args| match r.old.value(value).op == Op::StopGradient {
        true => Some(args[0]),
        false => None,
    });
    cx.note("drop_stop_gradient", erased, || format!("{erased} stops"))
}
