//! Leaves out what reaches no result: a layer computes all of its vertex types, and a model seldom needs them all.

use hgnnc_diag::Span;
use hgnnc_ir::dataflow::{InputDecl, OutputKind, ParamDecl};
use hgnnc_ir::{Dataflow, Input, Op, Param, Value};

use crate::DeclaredParam;

/// Marks the values that reach a result.
pub fn values(flow: &Dataflow) -> Vec<bool> {
    let mut live = vec![false; flow.values.len()];
    for output in &flow.outputs {
        live[output.value.index()] = true;
    }
    for index in (0..live.len()).rev() {
        if live[index] {
            for arg in &flow.values[index].args {
                live[arg.index()] = true;
            }
        }
    }
    live
}

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
    let mut params: Vec<ParamDecl> = vec![];
    let new_params: Vec<Option<Param>> = (flow.params.iter().zip(&declared))
        .map(|(decl, declared)| {
            declared.live.then(|| {
                params.push(decl.clone());
                Param::new(params.len() - 1)
            })
        })
        .collect();
    let mut inputs: Vec<InputDecl> = vec![];
    let new_inputs: Vec<Option<Input>> = (flow.inputs.iter().zip(live_inputs))
        .map(|(decl, live)| {
            live.then(|| {
                inputs.push(decl.clone());
                Input::new(inputs.len() - 1)
            })
        })
        .collect();
    let mut moved: Vec<Option<Value>> = vec![None; live.len()];
    let mut kept = 0;
    let mut index = 0..live.len();
    flow.values.retain_mut(|value| {
        let index = index.next().expect("one mark per value");
        if !live[index] {
            return false;
        }
        // Operands of live values are live and stand before them; what they name is used.
        value.args.iter_mut().for_each(|arg| *arg = moved[arg.index()].expect("operands come first"));
        if let Some(param) = value.op.param_mut() {
            *param = new_params[param.index()].expect("a live value uses it");
        }
        if let Some(input) = value.op.input_mut() {
            *input = new_inputs[input.index()].expect("a live value uses it");
        }
        moved[index] = Some(Value::new(kept));
        kept += 1;
        true
    });
    flow.params = params.into();
    flow.inputs = inputs.into();
    for output in &mut flow.outputs {
        output.value = moved[output.value.index()].expect("outputs are live");
        debug_assert!(matches!(output.kind, OutputKind::Result(_)), "a forward program updates nothing");
    }
    declared
}
