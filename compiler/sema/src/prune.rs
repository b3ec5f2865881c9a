//! Leaves out what reaches no output: a layer computes all its vertex types, a model seldom needs them all.

use hgnnc_ir::dataflow::{InputDecl, OutputKind, ParamDecl, ValueData};
use hgnnc_ir::{Dataflow, Input, Op, Param, Value};

/// Marks the values that reach an output.
pub fn live(flow: &Dataflow) -> Vec<bool> {
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

/// Removes values that reach no output, and parameters and inputs that no value uses. Gives, for each old
/// parameter, its new handle.
pub fn prune(flow: &mut Dataflow) -> Vec<Option<Param>> {
    let live = live(flow);
    let (mut read_params, mut read_inputs) = (vec![false; flow.params.len()], vec![false; flow.inputs.len()]);
    for (value, _) in flow.values.iter().zip(&live).filter(|(_, live)| **live) {
        match value.op {
            Op::Param(param) => read_params[param.index()] = true,
            Op::Input(input) => read_inputs[input.index()] = true,
            _ => {}
        }
    }
    let mut params: Vec<ParamDecl> = vec![];
    let new_params: Vec<Option<Param>> = (flow.params.iter().zip(read_params))
        .map(|(decl, read)| {
            read.then(|| {
                params.push(decl.clone());
                Param::new(params.len() - 1)
            })
        })
        .collect();
    let mut inputs: Vec<InputDecl> = vec![];
    let new_inputs: Vec<Option<Input>> = (flow.inputs.iter().zip(read_inputs))
        .map(|(decl, read)| {
            read.then(|| {
                inputs.push(decl.clone());
                Input::new(inputs.len() - 1)
            })
        })
        .collect();
    let mut moved: Vec<Option<Value>> = vec![None; live.len()];
    let mut values: Vec<ValueData> = vec![];
    for (index, mut value) in std::mem::take(&mut flow.values).into_iter().enumerate() {
        if !live[index] {
            continue;
        }
        // Operands of live values are live and stand before them; what they name is used.
        value.args.iter_mut().for_each(|arg| *arg = moved[arg.index()].expect("operands come first"));
        if let Some(param) = value.op.param_mut() {
            *param = new_params[param.index()].expect("a live value uses it");
        }
        if let Some(input) = value.op.input_mut() {
            *input = new_inputs[input.index()].expect("a live value uses it");
        }
        moved[index] = Some(Value::new(values.len()));
        values.push(value);
    }
    flow.values = values;
    flow.params = params;
    flow.inputs = inputs;
    for output in &mut flow.outputs {
        output.value = moved[output.value.index()].expect("outputs are live");
        match &mut output.kind {
            OutputKind::Result(_) => {}
            OutputKind::UpdateParam(param) | OutputKind::UpdateState(param, _) => {
                *param = new_params[param.index()].expect("an updated parameter is used");
            }
        }
    }
    new_params
}
