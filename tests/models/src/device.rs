//! A model trained for some steps, then evaluated: by the oracle, by the CPU engine, and as PTX.
//!
//! All three return results under the same names: `step 1: loss`, `w`, `state 0 of w` (after the last step), `y`.

use std::collections::BTreeMap;

use hgnnc_cpu::{Engine, EngineOptions, thread_pool};
use hgnnc_cuda::{Device, DeviceEngine};
use hgnnc_data::{BoundData, ExecError};
use hgnnc_interp::Bindings;
use hgnnc_ir::{Dataflow, OutputKind, Param};
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_ptx::{PtxCompiler, Target};

use crate::compiled::interpret;
use crate::engine::cpu_program;

/// Results of a run by name.
pub type Numbers<T> = BTreeMap<String, Vec<T>>;

fn state_name(flow: &Dataflow, param: Param, slot: u32) -> String {
    format!("state {slot} of {}", flow.params[param.index()].name)
}

/// Results of the oracle (the f64 interpreter of the IR).
pub fn by_oracle(train: &Dataflow, infer: &Dataflow, bindings: &Bindings, steps: u64) -> Numbers<f64> {
    let mut bindings = bindings.clone();
    let first = bindings.step;
    let mut all = Numbers::new();
    for step in first..first + steps {
        bindings.step = step;
        bindings.shuffle(train);
        step_number(train, &mut bindings);
        let run = interpret(train, &bindings);
        let loss = train.result("loss").expect("a trained model has a loss");
        all.insert(format!("step {step}: loss"), run[loss].data.clone());
        bindings.apply_updates(train, &run);
    }
    for (param, tensor) in &bindings.params {
        all.insert(train.params[param.index()].name.clone(), tensor.data.clone());
    }
    for ((param, slot), tensor) in &bindings.states {
        all.insert(state_name(train, *param, *slot), tensor.data.clone());
    }
    // The devices are given the first step again.
    bindings.step = first;
    bindings.shuffle(infer);
    let run = interpret(infer, &bindings);
    for output in &infer.outputs {
        let OutputKind::Result(name) = &output.kind else { continue };
        all.insert(name.clone(), run[output.value].data.clone());
    }
    all
}

/// Sets the input with the step number, if the program reads it.
fn step_number(flow: &Dataflow, bindings: &mut Bindings) {
    use hgnnc_interp::Tensor;
    use hgnnc_ir::dataflow::Binding;
    for (index, decl) in flow.inputs.iter().enumerate() {
        if decl.binding == Binding::StepNumber {
            bindings.inputs.insert(hgnnc_ir::Input::new(index), Tensor::scalar(bindings.step as f64));
        }
    }
}

fn f32s(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&x| x as f32).collect()
}

/// Results of the CPU engine.
///
/// # Panics
/// When the engine refuses a program.
#[track_caller]
pub fn by_engine(train: &Program, infer: &Program, data: &BoundData, bindings: &Bindings, steps: u64) -> Numbers<f32> {
    let options = EngineOptions { threads: 2, ..EngineOptions::default() };
    let programs = [cpu_program(train, options.dispatch), cpu_program(infer, options.dispatch)];
    let mut engine =
        Engine::new(&[&programs[0], &programs[1]], data.clone(), options).unwrap_or_else(|error| panic!("{error}"));
    for (param, tensor) in &bindings.params {
        engine.param(param.index()).copy_from_slice(&f32s(&tensor.data));
    }
    let mut all = Numbers::new();
    for step in bindings.step..bindings.step + steps {
        engine.run(0, bindings.seed, step, 0, &mut Default::default());
        let loss = engine.result(0, "loss").expect("a training program has a loss").1.to_vec();
        all.insert(format!("step {step}: loss"), loss);
        engine.commit(0);
    }
    for (index, decl) in train.tables.params.iter().enumerate() {
        all.insert(decl.name.clone(), engine.param(index).to_vec());
    }
    for (index, (param, slot)) in engine.states().to_vec().into_iter().enumerate() {
        all.insert(state_name(&train.tables, param, slot), engine.state(index).to_vec());
    }
    engine.run(1, bindings.seed, bindings.step, 0, &mut Default::default());
    for name in engine.results(1).iter().map(|result| result.name.clone()).collect::<Vec<_>>() {
        let numbers = engine.result(1, &name).expect("a result of the program").1.to_vec();
        all.insert(name, numbers);
    }
    all
}

/// Results of the PTX on a device, with parameters from the bindings and zero optimizer states.
///
/// # Errors
/// When the device fails.
pub fn by_ptx(
    engine: &mut DeviceEngine,
    train: &Program,
    bindings: &Bindings,
    steps: u64,
) -> Result<Numbers<f32>, ExecError> {
    let states = engine.states().to_vec();
    for (param, tensor) in &bindings.params {
        engine.set_param(param.index(), &f32s(&tensor.data))?;
    }
    for (index, (param, _)) in states.iter().enumerate() {
        let len = bindings.width(&train.tables.params[param.index()].dims);
        engine.set_state(index, &vec![0.0; len])?;
    }
    let mut all = Numbers::new();
    for step in bindings.step..bindings.step + steps {
        engine.run_until_update(0, bindings.seed, step, 0)?;
        let loss = engine.result(0, "loss")?.expect("a training program has a loss").2;
        all.insert(format!("step {step}: loss"), loss);
        engine.run_updates(0)?;
        engine.commit(0)?;
    }
    for (index, decl) in train.tables.params.iter().enumerate() {
        let numbers = engine.param(index)?;
        all.insert(decl.name.clone(), numbers);
    }
    for (index, (param, slot)) in states.into_iter().enumerate() {
        let numbers = engine.state(index)?;
        all.insert(state_name(&train.tables, param, slot), numbers);
    }
    engine.run_until_update(1, bindings.seed, bindings.step, 0)?;
    for name in engine.results(1).into_iter().map(String::from).collect::<Vec<_>>() {
        let numbers = engine.result(1, &name)?.expect("a result of the program").2;
        all.insert(name, numbers);
    }
    Ok(all)
}

/// Both programs on a device.
///
/// # Errors
/// When there is no PTX for a kernel.
pub fn executed(
    train: &Program,
    infer: &Program,
    data: &BoundData,
    device: Box<dyn Device>,
) -> Result<DeviceEngine, ExecError> {
    let target = (&PtxCompiler as _, Target::SM_80);
    DeviceEngine::new(&[train, infer], data.clone(), device, target, thread_pool(1)?)
}

/// Bit patterns of all results.
pub fn bits(all: &Numbers<f32>) -> Vec<(&str, Vec<u32>)> {
    all.iter().map(|(name, numbers)| (&name[..], numbers.iter().map(|x| x.to_bits()).collect())).collect()
}
