//! A compiled model on a machine: the processor or a device, within a memory budget.

use std::sync::Arc;

use hgnnc_codegen_cpu::sampler;
use hgnnc_cpu::{CpuBackend, EngineOptions};
use hgnnc_cuda::{DeviceBackend, SharedDevice};
use hgnnc_data::{BoundData, ExecError, OrderOptions, order_vertices};
use hgnnc_driver::{Analyzed, CpuOptions, LowerOptions, Lowered, REORDER_VERTICES, compile_cpu, lower};
use hgnnc_executable::{Executable, Kernels};
use hgnnc_graph::show_bytes;
use hgnnc_kernel_ir::kernel::{Body, Program};
use hgnnc_kernels::simd::Dispatch;
use hgnnc_machine::Machine;
use hgnnc_ptx::PtxCompiler;
use hgnnc_train::{MemoryNeeded, TrainOptions, Trainer, checkpoint};
use rayon::ThreadPool;

use crate::bound_job::BoundJob;
use crate::job::Purpose;
use crate::{Error, Observer};

/// Compiles a model for this processor and binds it to data.
pub(crate) fn on_processor(
    bound: &mut BoundJob,
    purpose: Purpose,
    observer: &mut dyn Observer,
) -> Result<Trainer, Error> {
    let (mut data, lower_options) = (std::mem::take(&mut bound.data), bound.lower_options());
    let (model, pool, options) = (&bound.model, &bound.pool, bound.options.clone());
    let budget = options.memory_budget;
    let (sizes, cpu_options) = (lower_options.sizes.clone(), cpu_options(&options));
    let generate = |lowered: &mut Lowered| pool.install(|| compile_cpu(lowered, sizes.as_ref(), &cpu_options));
    let needed = |lowered: &mut Lowered, data: &mut BoundData| {
        generate(lowered);
        let mut backend = cpu_backend(&lowered.executable, pool, &options);
        Ok(Trainer::memory_needed(&lowered.executable, &mut backend, data, budget)?)
    };
    // Reordering does not pay for a single evaluation, and its permuted copies could exceed a memory budget.
    let disabled = lower_options.disabled.has_pass(REORDER_VERTICES);
    let orders = purpose == Purpose::Train && budget.is_none() && !disabled;
    let mut lowered = lower_within(model, lower_options, &mut data, budget, needed, observer)?;
    lowered.executable = for_purpose(lowered.executable, purpose);
    generate(&mut lowered);
    let executable = lowered.executable;
    if orders {
        let order_options = order_options(&executable, &options);
        let ordered = pool.install(|| order_vertices(&executable, &mut data, &order_options))?;
        if let (true, Some(line)) = (ordered.applied, ordered.explain.last()) {
            observer.note(format!("{REORDER_VERTICES}: {line}"));
        }
    }
    let backend = cpu_backend(&executable, pool, &options);
    Ok(Trainer::new(executable, Box::new(backend), data, options)?)
}

/// The processor as a back end for an executable with code for it.
pub fn cpu_backend(executable: &Executable, pool: &Arc<ThreadPool>, options: &TrainOptions) -> CpuBackend {
    let &TrainOptions { threads, features, .. } = options;
    let options = EngineOptions { threads, dispatch: Dispatch::new(features), room: None };
    CpuBackend::new(executable, Arc::clone(pool), options)
}

/// Code mode, kernel features and SIMD level that the CPU back end compiles for.
pub fn cpu_options(options: &TrainOptions) -> CpuOptions {
    CpuOptions::new(options.code, options.features, Dispatch::new(options.features).level())
}

/// Options of the vertex order: the number of epochs in which it must pay off, and the stored order of a resumed run.
pub fn order_options(executable: &Executable, options: &TrainOptions) -> OrderOptions {
    let epochs = executable.training.as_ref().map_or(1, |training| options.epochs.unwrap_or(training.epochs));
    let resumed = options.checkpoint.as_deref().filter(|_| options.resume).and_then(checkpoint::order_of);
    OrderOptions { epochs, cache_bytes: None, resumed }
}

/// Evaluation needs neither mini-batch programs nor samplers.
fn for_purpose(mut executable: Executable, purpose: Purpose) -> Executable {
    if purpose != Purpose::Train && executable.batch.take().is_some() {
        (executable.train, executable.kernels.train) = (None, None);
    }
    executable
}

/// Compiles a model for a device and binds it to data.
///
/// # Errors
/// The outer error is wrong input; the inner error may be caused by the device.
pub(crate) fn on_device(
    bound: &mut BoundJob,
    purpose: Purpose,
    device: Box<dyn hgnnc_cuda::Device>,
    observer: &mut dyn Observer,
) -> Result<Result<Trainer, ExecError>, Error> {
    let (mut data, mut lower_options) = (std::mem::take(&mut bound.data), bound.lower_options());
    let (model, pool, options) = (&bound.model, &bound.pool, bound.options.clone());
    let target = device.target().with_precision(options.precision);
    lower_options.machine = Machine::sheet(target.name());
    let budget = options.memory_budget;
    let device = SharedDevice::from(device);
    let open = |executable: &Executable| {
        DeviceBackend::new(executable, device.clone(), (&PtxCompiler, target), Arc::clone(pool))
    };
    let needed = |lowered: &mut Lowered, data: &mut BoundData| {
        let mut backend = open(&lowered.executable);
        Ok(Trainer::memory_needed(&lowered.executable, &mut backend, data, budget)?)
    };
    let mut lowered = lower_within(model, lower_options, &mut data, budget, needed, observer)?;
    lowered.executable = for_purpose(lowered.executable, purpose);
    // Samplers run on the processor.
    if lowered.executable.batch.is_some() {
        lowered.executable.sampler = sampler(options.code);
    }
    let backend = open(&lowered.executable);
    match Trainer::new(lowered.executable, Box::new(backend), data, options) {
        Err(error @ (ExecError::Memory { .. } | ExecError::Device { .. } | ExecError::Unsupported(_))) => {
            Ok(Err(error))
        }
        other => Ok(Ok(other?)),
    }
}

/// Lowers a model such that training fits into the memory budget, if there is one and rematerialization helps. `needed`
/// returns what a lowered model takes.
fn lower_within(
    model: &Analyzed,
    mut options: LowerOptions,
    data: &mut BoundData,
    budget: Option<u64>,
    needed: impl Fn(&mut Lowered, &mut BoundData) -> Result<MemoryNeeded, Error>,
    observer: &mut dyn Observer,
) -> Result<Lowered, Error> {
    /// Scratch memory and partial results are outside the compiler's model, and rematerialization may change them a
    /// little, so that a second attempt with a smaller arena can fit.
    const ATTEMPTS: usize = 3;
    let lower = |options: &LowerOptions| lower(model, options).map_err(Error::from);
    let mut lowered = lower(&options)?;
    let recomputes = !options.disabled.has_pass("rematerialize");
    if budget.is_some() && lowered.executable.batch.is_some() {
        observer.note("warning: a memory budget does not count the values of batches: they take what they need".into());
        return Ok(lowered);
    }
    let Some(budget) = budget.filter(|_| recomputes) else { return Ok(lowered) };
    let mut takes = needed(&mut lowered, data)?;
    for _ in 0..ATTEMPTS {
        let Some(values) = lowered.arena.and_then(|arena| arena.train) else { return Ok(lowered) };
        if takes.bytes() <= budget {
            break;
        }
        options.arena_budget = Some(values.saturating_sub(takes.bytes() - budget));
        let mut smaller = lower(&options)?;
        let less = needed(&mut smaller, data)?;
        if less.bytes() >= takes.bytes() {
            break;
        }
        (lowered, takes) = (smaller, less);
    }
    if takes.bytes() > budget {
        // The memory that is refused below must be the least: a budget of that much has to succeed next time.
        options.arena_budget = Some(0);
        lowered = lower(&options)?;
        takes = needed(&mut lowered, data)?;
    }
    if takes.bytes() > budget {
        return Err(Error::Machine(format!(
            "training needs at least {} ({}) even where values are recomputed instead of kept; the budget is {}{}",
            show_bytes(takes.bytes()),
            takes.detail(),
            show_bytes(budget),
            if sums_over_factored_metapaths(&lowered.executable.kernels) {
                "; the factored metapaths need tables (`--disable-pass factor_metapaths` materializes them instead)"
            } else {
                ""
            }
        )));
    }
    lowered.notes.iter().for_each(|line| observer.note(format!("memory budget: {line}")));
    Ok(lowered)
}

fn sums_over_factored_metapaths(kernels: &Kernels) -> bool {
    let programs = kernels.train.iter().chain([&kernels.infer]);
    programs.flat_map(Program::kernels).any(|kernel| matches!(kernel.body, Body::FactoredMetapath(_)))
}
