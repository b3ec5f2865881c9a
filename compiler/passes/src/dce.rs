//! Dead code elimination: removes values that no output depends on.
//!
//! Operations have no side effects, so values without readers are dead. Tables stay: parameters keep their
//! place in saved weights even where a program does not read them.

use hgnnc_ir::{Dataflow, Value};

use crate::pass::{Changed, PassCx};

/// Removes values that no output depends on.
pub fn dce(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    let mut live = vec![false; flow.values.len()];
    for output in &flow.outputs {
        live[output.value.index()] = true;
    }
    for i in (0..flow.values.len()).rev() {
        if live[i] {
            for arg in &flow.values[i].args {
                live[arg.index()] = true;
            }
        }
    }
    let mut moved = Vec::with_capacity(live.len());
    let mut kept = 0;
    for &live in &live {
        moved.push(Value::new(kept));
        kept += usize::from(live);
    }
    let removed = live.len() - kept;
    let mut alive = live.iter();
    flow.values.retain(|_| *alive.next().expect("one mark per value"));
    for value in flow.values.iter_mut().flat_map(|data| &mut data.args) {
        *value = moved[value.index()];
    }
    for output in &mut flow.outputs {
        output.value = moved[output.value.index()];
    }
    cx.note("dce", removed, || format!("{removed} values that nothing reads"))
}
