//! Finds the origin of a number that is not finite.
//!
//! The program is interpreted again, with every value rounded to f32 as back ends do. From the reported
//! value, the search follows operands that are not finite back to the first value whose operands are all
//! finite. Rows without edges hold infinities that nothing reads (the identities of max and log-sum-exp); the
//! search never passes through them.

use crate::dataflow::evaluate;
use crate::{Bindings, Evaluation, InterpError, Tensor};
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::ops::Op;
use hgnnc_ir::types::Value;

/// An element that is not finite, computed from finite operands.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct NotFinite {
    pub value: Value,
    pub row: usize,
    pub column: usize,
    pub number: f64,
    /// The elements that the number is computed from; empty unless the operation is element-wise.
    pub operands: Vec<f64>,
}

/// Peak memory of the values that [`trace`] holds, in bytes.
pub fn bytes(flow: &Dataflow, bindings: &Bindings, from: &[Value]) -> u64 {
    let last = last_uses(flow, from);
    let size =
        |v: Value| 8 * (bindings.rows(flow.ty(v).space) as u64).saturating_mul(bindings.width(&flow.ty(v).dims) as u64);
    let (mut now, mut most) = (0u64, 0u64);
    for value in flow.handles().filter(|v| last[v.index()].is_some()) {
        now = now.saturating_add(size(value));
        most = most.max(now);
        for &arg in freed(flow, &last, value).iter() {
            now = now.saturating_sub(size(arg));
        }
    }
    most
}

/// The first element of the program that is not finite and that the first not-finite value of `from` depends on. `None`
/// if all of `from` are finite.
///
/// # Errors
/// When the bindings do not fit the program's tables.
pub fn trace(flow: &Dataflow, bindings: &Bindings, from: &[Value]) -> Result<Option<NotFinite>, InterpError> {
    let last = last_uses(flow, from);
    let empty = || Tensor::new(0, 0, vec![]);
    let mut run = Evaluation { values: vec![] };
    let mut found: Vec<Option<NotFinite>> = vec![];
    for value in flow.handles() {
        if last[value.index()].is_none() {
            run.values.push(empty());
            found.push(None);
            continue;
        }
        let mut tensor = evaluate(flow, bindings, &run, value)?;
        tensor.data.iter_mut().for_each(|x| *x = f64::from(*x as f32));
        found.push(tensor.data.iter().position(|x| !x.is_finite()).map(|at| {
            let (row, column) = (at / tensor.width.max(1), at % tensor.width.max(1));
            let operands = match flow.value(value).op {
                Op::Unary(_) | Op::Binary(_) => {
                    let operand = |&arg: &Value| element(&run[arg], (row, column), tensor.width);
                    flow.value(value).args.iter().map(operand).collect()
                }
                _ => vec![],
            };
            NotFinite { value, row, column, number: tensor.data[at], operands }
        }));
        run.values.push(tensor);
        for arg in freed(flow, &last, value) {
            run.values[arg.index()] = empty();
        }
    }
    let Some(mut here) = from.iter().copied().find(|v| found[v.index()].is_some()) else { return Ok(None) };
    while let Some(&next) = flow.value(here).args.iter().find(|arg| found[arg.index()].is_some()) {
        here = next;
    }
    Ok(found[here.index()].take())
}

/// The last reader of each value: one past the last value for those of `from`, `None` for values they do not depend on.
fn last_uses(flow: &Dataflow, from: &[Value]) -> Vec<Option<Value>> {
    let mut last: Vec<Option<Value>> = vec![None; flow.values.len()];
    let kept = Value::new(flow.values.len());
    from.iter().for_each(|v| last[v.index()] = Some(kept));
    for value in flow.handles().rev().collect::<Vec<_>>() {
        if last[value.index()].is_some() {
            for arg in &flow.value(value).args {
                last[arg.index()].get_or_insert(value);
            }
        }
    }
    last
}

/// The operands whose last use this value is.
fn freed(flow: &Dataflow, last: &[Option<Value>], value: Value) -> Vec<Value> {
    let mut args: Vec<Value> =
        flow.value(value).args.iter().copied().filter(|arg| last[arg.index()] == Some(value)).collect();
    args.sort_unstable();
    args.dedup();
    args
}

/// The operand's element that meets element (`row`, `column`) of an element-wise result of width `width`.
fn element(operand: &Tensor, (row, column): (usize, usize), width: usize) -> f64 {
    let row = if operand.rows == 1 { 0 } else { row };
    operand.at(row, column / (width / operand.width.max(1)).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hgnnc_ir::parse;

    #[test]
    fn the_first_element_that_is_not_finite_is_found_behind_what_follows_from_it() {
        let text = "dataflow d {
            vertex A from \"a\"
            input x : f32[A; 2] = features(A)
            %0 = input x : f32[A; 2] @FP
            %1 = const 100.0 : f32[] @FP
            %2 = mul %0, %1 : f32[A; 2] @FP
            %3 = exp %2 : f32[A; 2] @FP
            %4 = sub %3, %3 : f32[A; 2] @FP
            %5 = tanh %2 : f32[A; 2] @FP
            %6 = add %5, %4 : f32[A; 2] @FP
            %7 = reduce_space.sum %6 : f32[2] @LC
            result loss = %7
        }";
        let flow = parse(text).expect("a program");
        let x = Tensor::new(3, 2, vec![0.1, 0.2, 0.3, 0.4, 1.5, 0.5]);
        let inputs = [(hgnnc_ir::types::Input::new(0), x)].into();
        let bindings = Bindings { num_vertices: vec![3], inputs, ..Bindings::default() };
        let loss = flow.result("loss").expect("a result");
        let found = trace(&flow, &bindings, &[loss]).expect("bound").expect("not finite");
        // In f64, exp(150) is finite.
        assert_eq!((found.value.index(), found.row, found.column, found.number), (3, 2, 0, f64::INFINITY));
        assert_eq!(found.operands, [150.0]);
        assert_eq!(trace(&flow, &bindings, &[Value::new(5)]), Ok(None));
        assert_eq!(bytes(&flow, &bindings, &[loss]), 8 * (6 + 6 + 6));
    }
}
