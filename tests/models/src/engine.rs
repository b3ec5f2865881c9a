//! Runs programs on the f32 CPU engine.

use std::collections::BTreeMap;

use hgnnc_codegen_cpu::{Options, compile, compile_executable};
use hgnnc_cpu::{CpuBackend, Engine, EngineOptions, thread_pool};
use hgnnc_cuda::{Device, DeviceBackend};
use hgnnc_data::{BoundData, ExecError, GroundTruth, InputData, Shuffle, Target, Topology};
use hgnnc_executable::Executable;
use hgnnc_executable::cpu::CpuProgram;
use hgnnc_fusion::lower;
use hgnnc_interp::Bindings;
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::{DType, Dataflow, Input, Layout, OutputKind};
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::CodeMode;
use hgnnc_ptx::PtxCompiler;
use hgnnc_train::{TrainOptions, Trainer};

/// Converts the interpreter's data to the engine's. Elements of sparse inputs are the nonzero ones. The parts of the
/// split are the training vertices, the other labelled ones, and all labelled ones.
///
/// # Panics
/// When an edge is out of range.
pub fn bound_data(flow: &Dataflow, bindings: &Bindings) -> BoundData {
    let mut data = BoundData { num_vertices: bindings.num_vertices.clone(), ..BoundData::default() };
    for (decl, edges) in flow.graphs.iter().zip(&bindings.edges) {
        let (num_src, num_dst) = (bindings.num_vertices[decl.src.index()], bindings.num_vertices[decl.dst.index()]);
        let mut graph = Topology::from_edges(&decl.name, num_src, num_dst, edges).expect("edges exist");
        graph.shuffle = decl.shuffle.map(|permutations| Shuffle { vertex: decl.dst, permutations });
        data.graphs.push(graph);
    }
    data.patterns = vec![Topology::default(); flow.patterns.len()];
    let (mut classes, mut trained) = (vec![], BTreeMap::new());
    for (index, decl) in flow.inputs.iter().enumerate() {
        if let Binding::EdgeRank(..) = decl.binding {
            // Counted by the engine.
            data.inputs.push(InputData::Missing);
            continue;
        }
        let tensor = &bindings.inputs[&Input::new(index)];
        let numbers = || tensor.data.iter().map(|&x| x as f32).collect::<Vec<f32>>();
        if let Binding::TrainMask(vertex) = decl.binding {
            trained.insert(vertex, tensor.data.iter().map(|&x| x > 0.0).collect::<Vec<bool>>());
        }
        data.inputs.push(match (&decl.binding, decl.ty.layout) {
            (Binding::StepNumber, _) => InputData::StepNumber,
            (Binding::EpochNumber, _) => InputData::EpochNumber,
            (&Binding::Label(vertex, _), _) if decl.ty.dtype == DType::I32 => {
                let of_vertices: Vec<i32> = tensor.data.iter().map(|&x| x as i32).collect();
                classes.push((vertex, of_vertices.clone()));
                InputData::Classes(of_vertices)
            }
            (_, Layout::Dense) => InputData::Numbers(numbers().into()),
            (_, Layout::Sparse(pattern)) => {
                let (mut indptr, mut columns, mut values) = (vec![0u64], vec![], vec![]);
                for row in 0..tensor.rows {
                    for (column, &x) in tensor.row(row).iter().enumerate().filter(|(_, x)| **x != 0.0) {
                        columns.push(column as u32);
                        values.push(x as f32);
                    }
                    indptr.push(columns.len() as u64);
                }
                data.patterns[pattern.index()] =
                    Topology::from_csc("features", tensor.width, tensor.rows, indptr, columns).expect("valid rows");
                InputData::Numbers(values.into())
            }
        });
    }
    // Models of tests compare each label once.
    for (vertex, classes) in classes {
        let part = |wanted: fn(i32, bool) -> bool| {
            let all = classes.iter().zip(&trained[&vertex]).enumerate();
            all.filter(|(_, (class, trained))| wanted(**class, **trained)).map(|(v, _)| v as u32).collect()
        };
        let parts = [part(|c, t| t && c >= 0), part(|c, t| !t && c >= 0), part(|c, _| c >= 0)];
        data.truths.push(GroundTruth { vertex: Some(vertex), labels: Some(Target::Classes(classes)), parts });
    }
    data
}

/// A program with machine code for this processor.
pub fn cpu_program(program: &Program, dispatch: Dispatch) -> CpuProgram {
    compile(program, &Options::new(CodeMode::Auto, dispatch.features(), dispatch.level()))
}

/// An executable with its programs for this processor.
pub fn with_code(mut executable: Executable, options: &TrainOptions) -> Executable {
    let compile = Options::new(options.code, options.features, Dispatch::new(options.features).level());
    compile_executable(&mut executable, &compile, &compile);
    executable
}

/// A trainer on this processor.
///
/// # Errors
/// Those of [`Trainer::new`].
pub fn trainer(executable: Executable, data: BoundData, options: TrainOptions) -> Result<Trainer, ExecError> {
    let executable = with_code(executable, &options);
    let backend = cpu_backend(&executable, &options)?;
    Trainer::new(executable, Box::new(backend), data, options)
}

/// A trainer on a device.
///
/// # Errors
/// Those of [`Trainer::new`].
pub fn device_trainer(
    mut executable: Executable,
    data: BoundData,
    device: Box<dyn Device>,
    options: TrainOptions,
) -> Result<Trainer, ExecError> {
    let target = device.target().with_precision(options.precision);
    if executable.batch.is_some() {
        executable.sampler = hgnnc_codegen_cpu::sampler(options.code);
    }
    let backend = DeviceBackend::new(&executable, device, (&PtxCompiler, target), thread_pool(options.threads)?);
    Trainer::new(executable, Box::new(backend), data, options)
}

/// This processor, for an executable with code.
///
/// # Errors
/// When threads cannot be started.
pub fn cpu_backend(executable: &Executable, options: &TrainOptions) -> Result<CpuBackend, ExecError> {
    let &TrainOptions { threads, features, .. } = options;
    let options = EngineOptions { threads, dispatch: Dispatch::new(features), room: None };
    Ok(CpuBackend::new(executable, thread_pool(threads)?, options))
}

/// An engine with the parameters of the bindings and zero optimizer states.
///
/// # Panics
/// When the engine refuses a program.
#[track_caller]
pub fn engine(programs: &[&Dataflow], bindings: &Bindings, options: EngineOptions) -> Engine {
    // The largest input table: tables of programs of one model have a common prefix.
    let tables = programs.iter().max_by_key(|p| p.inputs.len()).expect("there are programs");
    let data = bound_data(tables, bindings);
    let lowered = |flow: &&Dataflow| lower(flow).unwrap_or_else(|error| panic!("{error}"));
    let kernels: Vec<CpuProgram> = programs.iter().map(|flow| cpu_program(&lowered(flow), options.dispatch)).collect();
    let kernels: Vec<&CpuProgram> = kernels.iter().collect();
    let mut engine = Engine::new(&kernels, data, options).unwrap_or_else(|error| panic!("{error}"));
    for (param, tensor) in &bindings.params {
        for (slot, x) in engine.param(param.index()).iter_mut().zip(&tensor.data) {
            *slot = *x as f32;
        }
    }
    engine
}

/// Results of one run by name, including the updated parameters.
#[track_caller]
pub fn run(program: &Dataflow, bindings: &Bindings, threads: usize) -> BTreeMap<String, Vec<f32>> {
    run_with(program, bindings, EngineOptions { threads, ..EngineOptions::default() })
}

/// [`run`] with options.
#[track_caller]
pub fn run_with(program: &Dataflow, bindings: &Bindings, options: EngineOptions) -> BTreeMap<String, Vec<f32>> {
    let mut engine = engine(&[program], bindings, options);
    engine.run(0, bindings.seed, bindings.step, 0, &mut Default::default());
    let names: Vec<String> = engine.results(0).iter().map(|r| r.name.clone()).collect();
    let mut all = BTreeMap::new();
    for name in names {
        let numbers = engine.result(0, &name).expect("a result of the program").1.to_vec();
        all.insert(name, numbers);
    }
    engine.commit(0);
    for output in &program.outputs {
        if let OutputKind::UpdateParam(param) = output.kind {
            let name = format!("new {}", program.params[param.index()].name);
            all.insert(name, engine.param(param.index()).to_vec());
        }
    }
    all
}
