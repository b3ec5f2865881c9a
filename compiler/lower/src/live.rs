//! Leaves out what reaches no result: a layer computes all of its vertex types, and a model seldom needs them all.

use hgnnc_diag::Span;
use hgnnc_ir::dataflow::OutputKind;
use hgnnc_ir::{Dataflow, Input, Op, Param, Value};

use crate::DeclaredParam;

/// Removes the values that are not `live`, and parameters and inputs that no value uses: unlike those of a later pass,
/// they are no part of the model. Gives all parameters, declared at `spans`.
pub fn prune(flow: &mut Dataflow, live: &[bool], spans: Vec<Span>) -> Vec<DeclaredParam> {
    let mut operand = vec![false; flow.values.len()];
    flow.values.iter().flat_map(|value| &value.args).for_each(|arg| operand[arg.index()] = true);
    let mut declared: Vec<DeclaredParam> = (flow.params.iter().zip(spans))
        .map(|(param, span)| DeclaredParam { name: param.name.clone(), span, read: false, live: false })
        .collect();
    let mut live_inputs = vec![false; flow.inputs.len()];
    for (index, value) in flow.values.iter().enumerate() {
        match value.op {
            Op::Param(param) => {
                declared[param.index()].read |= operand[index];
                declared[param.index()].live |= live[index];
            }
            Op::Input(input) => live_inputs[input.index()] |= live[index],
            _ => {}
        }
    }
    // Live parameters, inputs and values get consecutive numbers. All operands of a live value are live.
    let params = moved(declared.iter().map(|param| param.live));
    let inputs = moved(live_inputs.iter().copied());
    let values = moved(live.iter().copied());
    let (mut of_params, mut of_inputs, mut of_values) = (declared.iter(), live_inputs.iter(), live.iter());
    flow.params.retain(|_| of_params.next().is_some_and(|param| param.live));
    flow.inputs.retain(|_| of_inputs.next().is_some_and(|&live| live));
    flow.values.retain(|_| of_values.next().is_some_and(|&live| live));
    for value in &mut flow.values {
        value.args.iter_mut().for_each(|arg| *arg = Value::new(values[arg.index()]));
        value.op.param_mut().into_iter().for_each(|param| *param = Param::new(params[param.index()]));
        value.op.input_mut().into_iter().for_each(|input| *input = Input::new(inputs[input.index()]));
    }
    for output in &mut flow.outputs {
        output.value = Value::new(values[output.value.index()]);
        debug_assert!(matches!(output.kind, OutputKind::Result(_)), "a forward program updates nothing");
    }
    declared
}

/// The place of each kept row among those that are kept.
fn moved(kept: impl Iterator<Item = bool>) -> Vec<usize> {
    let mut before = 0;
    let place = |kept| {
        before += usize::from(kept);
        before - usize::from(kept)
    };
    kept.map(place).collect()
}
