//! `hgnnc build`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use hgnnc::{
    Bound, Device, Job, Meeting, Purpose, artifact, bind_sizes, check_apart, check_folder, check_readable,
    check_writable, cpu_backend, cpu_options, make_folder, order_options, read_sizes, write_file,
};
use hgnnc_cpu::thread_pool;
use hgnnc_data::{BindOptions, BoundData, InputData, order_vertices};
use hgnnc_driver::{
    Analysis, Analyzed, Disabled, LowerOptions, Lowered, REORDER_VERTICES, SizeInfo, compile_cpu, cost,
    format as canonical, lower, precomputed_inputs,
};
use hgnnc_executable::cpu::CpuProgram;
use hgnnc_executable::{Executable, GraphPlan};
use hgnnc_graph::show_bytes;
use hgnnc_ir::print::print as ir_text;
use hgnnc_kernel_ir::kernel::print as kernel_text;
use hgnnc_machine::Machine;
use hgnnc_train::{Arenas, TrainOptions, Trainer};
use rayon::ThreadPool;

use crate::args::{BuildArgs, Code, Level, Target};
use crate::bounds as bounds_text;
use crate::build_ranks;
use crate::failure::Failure;
use crate::fused;
use crate::model;
use crate::output::{note, print, print_data};
use crate::plan;
use crate::source::Terminal;
use crate::switches::Switches;

/// All levels, in the order of compilation.
const LEVELS: [Level; 12] = [
    Level::Ast,
    Level::Model,
    Level::Dataflow,
    Level::Joint,
    Level::Optimized,
    Level::Infer,
    Level::Groups,
    Level::Kernels,
    Level::Loops,
    Level::Fused,
    Level::Bounds,
    Level::Plan,
];

/// Compiles a model and shows the requested levels.
pub fn build(args: &BuildArgs) -> Result<ExitCode, Failure> {
    if let Some(out) = args.out.as_deref().filter(|out| artifact::is_named(out)) {
        return build_artifact(args, out);
    }
    if let Some(ranks) = args.ranks {
        return build_ranks::build_ranks(args, ranks as usize);
    }
    if args.weights.is_some() {
        return Err(Failure::input("parameters are for an artifact: name its file, as in `-o model.hgnnx`"));
    }
    if let Some(folder) = &args.out {
        check_folder(folder)?;
    }
    let switches = args.disable.check()?;
    let pool = thread_pool(0)?;
    let mut analysis = hgnnc::read(&args.model, &args.set.constants)?;
    hgnnc::accept(&analysis, &analysis.diagnostics, &mut Terminal::default())?;
    if let (Some(model), Some(output)) = (&mut analysis.model, &args.output) {
        hgnnc::ask_for(model, output)?;
    }
    let Sized { model, sizes, graphs, mut data } = sized(args, &switches.disabled, &mut analysis, &pool)?;
    check_sizes(args, &model, sizes.as_ref())?;
    let machine = match sizes {
        // The products of rows depend on the kind of machine.
        _ if target(args).is_some() => Some(machine(target(args).unwrap_or(args.target))),
        Some(_) if args.explain || wants(args, Level::Bounds) => Some(machine(args.target)),
        _ => None,
    };
    let options = LowerOptions {
        disabled: switches.disabled.clone(),
        sizes,
        machine,
        graphs,
        arena_budget: args.memory_budget,
        ..LowerOptions::default()
    };
    let mut lowered = lower(&model, &options).map_err(hgnnc::Error::from)?;
    if args.explain {
        let nothing = vec!["the passes changed nothing".to_string()];
        let lines = if lowered.explanations.is_empty() { &nothing } else { &lowered.explanations };
        print(&lines.join("\n"))?;
        if let Some(data) = data.as_mut().filter(|_| target(args).is_none()) {
            print(&order_text(args, &lowered.executable, data, &pool)?)?;
        }
        // The sizes available to the passes.
        memory_text(&lowered, None).map_or(Ok(()), |line| print(&line))?;
    }
    let train_options = train_options(args)?;
    if data.is_some() || wants(args, Level::Loops) || wants(args, Level::Clif) {
        let cpu_options = cpu_options(&train_options);
        pool.install(|| compile_cpu(&mut lowered, options.sizes.as_ref(), &cpu_options));
    }
    let arenas = match &mut data {
        Some(data) => {
            let mut backend = cpu_backend(&lowered.executable, &pool, &train_options);
            let budget = train_options.memory_budget;
            let needed = Trainer::memory_needed(&lowered.executable, &mut backend, data, budget)?;
            Some(needed.arenas)
        }
        None => None,
    };
    lowered.notes.iter().for_each(|line| note(&format!("memory budget: {line}")));
    if let (Some(budget), Some(bytes)) = (args.memory_budget, lowered.arena.and_then(|arena| arena.train))
        && bytes > budget
    {
        return Err(Failure::Machine(format!(
            "the values of a training step take at least {}; the budget is {}",
            show_bytes(bytes),
            show_bytes(budget)
        )));
    }
    let texts = levels(args, &analysis, &model, &lowered, &options, arenas.as_ref(), &pool)?;
    match &args.out {
        Some(folder) => {
            make_folder(folder)?;
            for (level, text) in &texts {
                write_file(&folder.join(level.file_name()), text.as_bytes())?;
            }
        }
        None if texts.is_empty() && !args.explain => {
            print(&summary(&model, &lowered, memory_text(&lowered, arenas.as_ref())))?
        }
        None => texts.iter().try_for_each(|(_, text)| print_data(text))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a model with given parameters as one file.
fn build_artifact(args: &BuildArgs, out: &Path) -> Result<ExitCode, Failure> {
    let Some(weights) = &args.weights else {
        return Err(Failure::input(format!(
            "`{}` would be an artifact, a model with its parameters: give them with `--weights FILE.safetensors`",
            out.display()
        )));
    };
    if !args.emit.is_empty() || args.explain {
        return Err(Failure::input("levels are shown, or written into a folder: an artifact has none of them"));
    }
    if artifact::is_one(&args.model) {
        return Err(Failure::input(format!("`{}` is an artifact already", args.model.display())));
    }
    check_writable(out)?;
    let read = [("the model", Some(&*args.model)), ("the weights", Some(&**weights))];
    check_apart(&[("the artifact", Some(out))], &read, args.data.as_deref())?;
    check_readable(weights)?;
    let Switches { disabled, .. } = args.disable.check()?;
    let job = Job { data: args.data.clone().into(), device: Device::Cpu, disabled, ..Job::new(&args.model) };
    let mut terminal = Terminal::default();
    let prepared = hgnnc::prepare(Purpose::Infer, &job, &mut terminal);
    let mut prepared = prepared.map_err(|error| terminal.failed(error))?;
    prepared.trainer.load_weights(weights)?;
    artifact::save(out, &mut prepared, None)?;
    print(&format!("wrote {}", out.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The options of training that change what is compiled.
fn train_options(args: &BuildArgs) -> Result<TrainOptions, Failure> {
    let Switches { features, .. } = args.disable.check()?;
    Ok(TrainOptions { code: args.code.mode(), features, ..TrainOptions::default() })
}

/// The vertex order for training on this processor, and the reason.
fn order_text(
    args: &BuildArgs,
    executable: &Executable,
    data: &mut BoundData,
    pool: &ThreadPool,
) -> Result<String, Failure> {
    if args.disable.disable_pass.iter().any(|name| name == REORDER_VERTICES) {
        return Ok(format!("{REORDER_VERTICES}: disabled"));
    }
    let options = order_options(executable, &TrainOptions::default());
    let ordered = pool.install(|| order_vertices(executable, data, &options))?;
    Ok(ordered.explain.iter().map(|line| format!("{REORDER_VERTICES}: {line}")).collect::<Vec<_>>().join("\n"))
}

/// The checked model, with sizes from a dataset or from `--stats`.
struct Sized {
    model: Analyzed,
    sizes: Option<SizeInfo>,
    /// The plan by which the dataset was bound, if one is given and the model has metapaths that could be factored.
    graphs: Option<GraphPlan>,
    /// The dataset, if sizes come from one.
    data: Option<BoundData>,
}

fn sized(args: &BuildArgs, disabled: &Disabled, analysis: &mut Analysis, pool: &ThreadPool) -> Result<Sized, Failure> {
    if let Some(folder) = &args.data {
        let mut dataset = Arc::new(hgnnc::load(folder, pool)?);
        let purpose = if args.output.is_some() { Purpose::Infer } else { Purpose::Train };
        let mut model = hgnnc::meet(analysis, &mut dataset, Meeting::new(purpose), &mut Terminal::default(), pool)?;
        if purpose == Purpose::Infer {
            model.forget_training();
        }
        hgnnc::prepare_model(&mut model, disabled, Some((&dataset, pool)))?;
        let lower =
            LowerOptions { disabled: disabled.clone(), machine: target(args).map(machine), ..LowerOptions::default() };
        let bind_options = BindOptions { outputs_only: purpose.is_of_outputs(), ..BindOptions::default() };
        let Bound { mut data, sizes, graphs } = bind_sizes(&model, &dataset, &bind_options, &lower, pool)?;
        for (input, vertex, width) in precomputed_inputs(&model.flow) {
            // Memory is planned without them.
            data.inputs[input.index()] = InputData::Held(width * data.num_vertices[vertex.index()]);
        }
        return Ok(Sized { model, sizes: Some(sizes), graphs, data: Some(data) });
    }
    // Errors were reported already.
    let Some(mut model) = analysis.model.take() else { return Err(Failure::Input(None)) };
    if args.output.is_some() {
        model.forget_training();
    }
    let mut sizes = args.stats.as_ref().map(|file| read_sizes(file, &model)).transpose()?;
    hgnnc::prepare_model(&mut model, disabled, None)?;
    sizes.iter_mut().for_each(|sizes| sizes.derive(&model.flow));
    Ok(Sized { model, sizes, graphs: None, data: None })
}

/// The text of each requested level; all available levels if only a folder is given.
fn levels(
    args: &BuildArgs,
    analysis: &Analysis,
    model: &Analyzed,
    lowered: &Lowered,
    options: &LowerOptions,
    arenas: Option<&Arenas>,
    pool: &Arc<ThreadPool>,
) -> Result<Vec<(Level, String)>, Failure> {
    if args.emit.is_empty() && args.out.is_none() {
        return Ok(vec![]);
    }
    let asked = if args.emit.is_empty() { &LEVELS[..] } else { &args.emit };
    let mut texts = vec![];
    for &level in asked {
        match level {
            Level::Loops => {
                texts.extend(cpu_program(lowered).map(|(_, it)| (level, hgnnc_kernel_ir::loops::print(&it.loops))))
            }
            Level::Clif => texts.push((level, clif(args, model, lowered, options, pool)?)),
            Level::Ptx => texts.push((level, ptx(args, analysis, lowered, options)?)),
            _ => {}
        }
        if matches!(level, Level::Loops | Level::Clif | Level::Ptx) {
            continue;
        }
        match level_text(level, analysis, model, lowered, options, arenas) {
            Some(text) => texts.push((level, text)),
            None if args.emit.is_empty() => {}
            None => {
                return Err(Failure::input(format!(
                    "model `{}` has no train block, so nothing is differentiated",
                    model.name
                )));
            }
        }
    }
    Ok(texts)
}

/// Whether this level was requested, if it is available.
fn wants(args: &BuildArgs, level: Level) -> bool {
    args.emit.contains(&level) || (args.emit.is_empty() && args.out.is_some())
}

/// Bounds and plans need sizes; the error names the missing ones.
fn check_sizes(args: &BuildArgs, model: &Analyzed, sizes: Option<&SizeInfo>) -> Result<(), Failure> {
    let asked = |level| args.emit.contains(&level).then_some(level);
    let Some(level) = asked(Level::Bounds).or(asked(Level::Plan)) else { return Ok(()) };
    let Some(sizes) = sizes else {
        let what = if level == Level::Bounds { "bounds depend" } else { "a memory plan depends" };
        return Err(Failure::input(format!(
            "{what} on the sizes of a dataset: give one with `--data DIR`, or its sizes with `--stats FILE.json`"
        )));
    };
    cost::check_sizes(&model.flow, sizes).map_err(|error| match &args.stats {
        Some(file) => Failure::input(format!("{error}: write it into `stored` of `{}`", file.display())),
        None => Failure::input(error.to_string()),
    })
}

/// The target, if it is a GPU.
fn target(args: &BuildArgs) -> Option<Target> {
    match args.target {
        Target::Cpu if wants(args, Level::Ptx) && args.emit.contains(&Level::Ptx) => Some(Target::Sm80),
        Target::Cpu => None,
        target => Some(target),
    }
}

/// The PTX of the same program as [`Level::Kernels`].
fn ptx(args: &BuildArgs, analysis: &Analysis, lowered: &Lowered, options: &LowerOptions) -> Result<String, Failure> {
    let kernels = &lowered.executable.kernels;
    let program = kernels.train.as_ref().unwrap_or(&kernels.infer);
    let target = match target(args) {
        Some(Target::Sm90) => hgnnc_ptx::Target::SM_90,
        _ => hgnnc_ptx::Target::SM_80,
    };
    let target = target.with_precision(args.precision.of_products());
    let module = hgnnc_driver::ptx(program, target, lowered.train_sizes.as_ref(), &analysis.sources);
    let module = module.map_err(|error| match options.sizes {
        Some(_) => Failure::input(error.to_string()),
        None => Failure::input(format!(
            "{error}; passes that compare sizes may avoid it: name a dataset with --data, or sizes with --stats"
        )),
    });
    Ok(module?.text)
}

/// Machine description of a target.
fn machine(target: Target) -> Machine {
    let sheet = match target {
        Target::Cpu => None,
        Target::Sm80 => Machine::sheet("sm_80"),
        Target::Sm90 => Machine::sheet("sm_90"),
    };
    sheet.unwrap_or_else(|| hgnnc::processor(0, &mut Terminal::default()))
}

/// `None` for a level that a model without a train block lacks, or that needs sizes.
fn level_text(
    level: Level,
    analysis: &Analysis,
    model: &Analyzed,
    lowered: &Lowered,
    options: &LowerOptions,
    arenas: Option<&Arenas>,
) -> Option<String> {
    let kernels = &lowered.executable.kernels;
    let kernels = kernels.train.as_ref().unwrap_or(&kernels.infer);
    Some(match level {
        Level::Ast => canonical(&analysis.module, &analysis.sources.files()[0].text),
        Level::Model => model::text(model),
        Level::Dataflow => ir_text(&lowered.dataflow),
        Level::Joint => ir_text(lowered.joint.as_ref()?),
        Level::Optimized => {
            // Historical embeddings are computed by a separate program.
            ir_text(lowered.executable.train.as_ref()?)
        }
        Level::Infer => {
            // Link scores, and outputs beside mini-batches, are computed by separate programs for one set of pairs or
            // vertices after another.
            let executable = &lowered.executable;
            let of_links = executable.score.iter().chain(executable.rank.iter().flatten());
            let programs = std::iter::once(&executable.infer).chain(of_links).chain(&executable.head);
            programs.map(ir_text).collect::<Vec<_>>().join("\n")
        }
        Level::Groups => {
            let executable = &lowered.executable;
            lowered.groups.print(executable.train.as_ref().unwrap_or(&executable.infer))
        }
        Level::Kernels => kernel_text(kernels),
        Level::Fused => fused::text(kernels),
        Level::Bounds => {
            let (sizes, machine) = (options.sizes.as_ref()?, options.machine.as_ref()?);
            cost::check_sizes(&model.flow, sizes).ok()?;
            let flow = lowered.executable.train.as_ref().unwrap_or(&lowered.executable.infer);
            bounds_text::text(flow, kernels, lowered.train_sizes.as_ref()?, machine)
        }
        Level::Plan => {
            let text = plan::text(&lowered.executable, lowered.train_sizes.as_ref()?, options.sizes.as_ref()?);
            let trained = lowered.executable.train.is_some() && lowered.executable.batch.is_none();
            arenas.map(|arenas| plan::parts_text(arenas, trained) + "\n").unwrap_or_default() + &text
        }
        // These levels need more than the compiled model.
        Level::Loops | Level::Clif | Level::Ptx => return None,
    })
}

/// The program with loops and machine code that is the same as [`Level::Kernels`], with its name.
fn cpu_program(lowered: &Lowered) -> Option<(&'static str, &CpuProgram)> {
    let cpu = lowered.executable.cpu.as_ref()?;
    Some(cpu.train.as_ref().map_or(("infer", &cpu.infer), |train| ("train", train)))
}

/// The machine code of the same program as [`Level::Kernels`].
fn clif(
    args: &BuildArgs,
    model: &Analyzed,
    lowered: &Lowered,
    options: &LowerOptions,
    pool: &Arc<ThreadPool>,
) -> Result<String, Failure> {
    let train_options = train_options(args)?;
    let programs: Vec<_> = cpu_program(lowered).into_iter().map(|(name, program)| (name, &**program.loops)).collect();
    let mut text = hgnnc_codegen_cpu::listing(&programs, cpu_options(&train_options).simd)
        .map_err(|error| Failure::Machine(error.to_string()))?;
    if let (Some(_), Some(folder)) = (&lowered.executable.batch, &args.data) {
        // The options of lowering, since the listing depends on the machine.
        let disabled = options.disabled.clone();
        let lower = LowerOptions { disabled, machine: target(args).map(machine), ..LowerOptions::default() };
        let mut dataset = Arc::new(hgnnc::load(folder, pool)?);
        let how = Meeting::new(Purpose::Train);
        hgnnc::list_paths(model, &mut dataset, how, &mut Terminal::default(), pool)?;
        let (bind_options, disabled) = (BindOptions::default(), lower.disabled.clone());
        let mut bound = bind_sizes(model, &dataset, &bind_options, &lower, pool)?;
        let how = (&bind_options, &train_options);
        hgnnc::fill_precomputed(model, &mut bound, &dataset, how, &disabled, pool, &mut Terminal::default())?;
        let data = bound.data;
        let backend = cpu_backend(&lowered.executable, pool, &train_options);
        let executable = lowered.executable.clone();
        let trainer = Trainer::new(executable, Box::new(backend), data, train_options)?;
        text = trainer.sampler_text().unwrap_or_default() + &text;
    }
    Ok(match (text.is_empty(), args.code) {
        (false, _) => text,
        (true, Code::Auto) => {
            "; no machine code: nothing would become faster (`--code native` makes all there can be)\n".into()
        }
        (true, Code::Interpreted | Code::Native) => "; no machine code\n".into(),
    })
}

/// Memory of values, if sizes are known: the whole plan with a dataset, otherwise values only.
fn memory_text(lowered: &Lowered, arenas: Option<&Arenas>) -> Option<String> {
    if let Some(arenas) = arenas {
        let whole = lowered.executable.train.is_some() && lowered.executable.batch.is_none();
        return Some(plan::arenas_text(arenas, whole));
    }
    let arena = lowered.arena?;
    let train = arena.train.map(|bytes| format!("training {}, ", show_bytes(bytes))).unwrap_or_default();
    Some(format!("values: {train}inference {}", show_bytes(arena.infer)))
}

/// A one-line summary of a successful compilation.
fn summary(model: &Analyzed, lowered: &Lowered, memory: Option<String>) -> String {
    let program = lowered.executable.train.as_ref().unwrap_or(&lowered.executable.infer);
    format!(
        "{}: {} operations, {} parameters; `--emit LEVEL` shows a level{}",
        model.name,
        program.values.len(),
        program.params.iter().filter(|param| param.entries.is_empty()).count(),
        memory.map(|line| format!("\n{line}")).unwrap_or_default()
    )
}
