//! Rebuilds a program value by value, for the passes.

use hgnnc_ir::dataflow::Cursor;
use hgnnc_ir::{Dataflow, Op, Value};

/// The old program, and the new one as far as it is built.
pub(crate) struct Rewriter<'a> {
    pub old: &'a Dataflow,
    pub new: Dataflow,
    map: Vec<Value>,
}

impl Rewriter<'_> {
    /// The new value of an old value. Only for values before the one that is being rewritten.
    pub fn mapped(&self, old: Value) -> Value {
        self.map[old.index()]
    }

    /// Appends a value to the new program, with the stage, phase and source position of the old value.
    pub fn add(&mut self, op: Op, args: &[Value]) -> Value {
        self.new.add(op, args)
    }
}

/// Applies `rule` to every value, with its operands in the new program. The rule returns the replacement in the new
/// program, which must have the same type, or `None` to keep the operation. Returns the number of replaced values.
pub(crate) fn rewrite(
    flow: &mut Dataflow,
    mut rule: impl FnMut(&mut Rewriter<'_>, Value, &[Value]) -> Option<Value>,
) -> usize {
    let mut rewriter = Rewriter { old: flow, new: flow.with_tables_of(flow.name.clone()), map: vec![] };
    let mut replaced = 0;
    for value in rewriter.old.handles() {
        let data = rewriter.old.value(value);
        let args: Vec<Value> = data.args.iter().map(|&arg| rewriter.mapped(arg)).collect();
        rewriter.new.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let replacement = match rule(&mut rewriter, value, &args) {
            Some(other) => {
                debug_assert_eq!(rewriter.new.ty(other), &data.ty, "a value is replaced by one of its type");
                replaced += 1;
                other
            }
            None => {
                let mut data = data.clone();
                data.args = args;
                rewriter.new.values.push(data);
                Value::new(rewriter.new.values.len() - 1)
            }
        };
        rewriter.map.push(replacement);
    }
    let mut new = rewriter.new;
    new.outputs = flow.outputs.clone();
    for output in &mut new.outputs {
        output.value = rewriter.map[output.value.index()];
    }
    new.cursor = flow.cursor;
    *flow = new;
    replaced
}

/// Number of uses of each value, outputs included.
pub(crate) fn count_uses(flow: &Dataflow) -> Vec<usize> {
    let mut uses = vec![0; flow.values.len()];
    for &arg in flow.values.iter().flat_map(|data| &data.args) {
        uses[arg.index()] += 1;
    }
    for output in &flow.outputs {
        uses[output.value.index()] += 1;
    }
    uses
}
