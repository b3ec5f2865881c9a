//! Computes equal expressions once.
//!
//! Two values with the same operation on the same operands are equal: every operation is a function, and random masks
//! are functions of their stream. The later one becomes the earlier one. The operands of commutative functions count in
//! either order.
//!
//! ```text
//! Before:  %3 = exp %2        After:  %3 = exp %2
//!          %4 = exp %2                %5 = mul %3, %3
//!          %5 = mul %3, %4
//! ```
//!
//! Applies unless the earlier value belongs to a later phase (which no producer builds).

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

use hgnnc_ir::{BinaryOp, Dataflow, Op, Value};

use crate::pipeline::{Changed, PassCx};
use crate::rewrite::rewrite;

/// See the module.
pub fn share_common(flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
    // The text of an operation tells all of it, numbers to the last bit and -0 apart from 0. It takes time, and without
    // operands to tell operations apart it is needed for every one; of the others, for those that are nearly equal.
    let text = |op: &Op| format!("{op:?}");
    type Key = (Discriminant<Op>, Vec<Value>, Option<String>);
    let mut known: HashMap<Key, Vec<Value>> = HashMap::new();
    let shared = rewrite(flow, |r, value, args| {
        let data = r.old.value(value);
        let mut operands = args.to_vec();
        if let Op::Binary(f) = data.op
            && commutes(f)
        {
            operands.sort();
        }
        let leaf = operands.is_empty().then(|| text(&data.op));
        let alike = known.entry((discriminant(&data.op), operands, leaf)).or_default();
        let own = Value::new(r.new.values.len());
        match alike.iter_mut().find(|earlier| text(&r.new.value(**earlier).op) == text(&data.op)) {
            Some(earlier) if r.new.value(*earlier).phase <= data.phase => return Some(*earlier),
            Some(earlier) => *earlier = own,
            None => alike.push(own),
        }
        None
    });
    cx.note("share_common", shared, || format!("{shared} values computed before"))
}

fn commutes(f: BinaryOp) -> bool {
    match f {
        BinaryOp::Add | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min | BinaryOp::LogAddExp | BinaryOp::Eq => true,
        BinaryOp::Sub | BinaryOp::Div | BinaryOp::Pow | BinaryOp::Gt => false,
    }
}
