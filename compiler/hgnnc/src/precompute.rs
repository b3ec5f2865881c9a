//! Rows that are computed before training on mini-batches: read from the cache beside the dataset, or computed and kept.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hgnnc_data::{BindOptions, BoundData, ExecError, InputData, key_of_rows, materialize, rows_cache};
use hgnnc_dataset::Dataset;
use hgnnc_driver::{
    Analyzed, Disabled, LowerError, LowerOptions, PRECOMPUTE, compile_cpu, lower, plan_graphs, precomputed,
    precomputed_inputs, sources,
};
use hgnnc_executable::Role;
use hgnnc_graph::{CacheKey, show_bytes};
use hgnnc_ir::types::Input;
use hgnnc_ir::{Dataflow, Op};
use hgnnc_session::{Backend, StepKey};
use hgnnc_trace::{Times, os};
use hgnnc_train::TrainOptions;
use rayon::ThreadPool;

use crate::bound_job::Bound;
use crate::machines::{cpu_backend, cpu_options};
use crate::ranks::Ranks;
use crate::{Error, Observer};

/// The part of the free memory, or of a budget, that precomputed rows may take.
const SHARE: u64 = 2;

/// Disables the pass where its rows would not fit into memory, and says so: batches then sample instead, unless they need
/// some of them. Of several processes, each has all rows before they are divided, and all do the same.
///
/// # Errors
/// A process that does not answer.
pub(crate) fn disable_what_does_not_fit(
    model: &Analyzed,
    dataset: &Dataset,
    (budget, ranks): (Option<u64>, Option<&Ranks>),
    disabled: &mut Disabled,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    let Some(found) = precomputed(model, disabled).filter(|found| !found.needed) else { return Ok(()) };
    let rows = |name: &str| dataset.vertex_type(name).map_or(0, |ty| dataset.vertex_types[ty].count as u64);
    let bytes = precomputed_inputs(&found.rest)
        .map(|(_, vertex, width)| 4 * width as u64 * rows(&found.rest.vertex_types[vertex.index()].dataset_name));
    let bytes = bytes.fold(0u64, u64::saturating_add);
    let limit = match budget {
        Some(budget) => Some(("the budget", budget)),
        None => os::free_bytes().map(|free| ("the free memory", free)),
    };
    let exceeded = limit.filter(|(_, most)| bytes > most / SHARE);
    let of_others = match ranks {
        Some(ranks) => ranks.any(exceeded.is_some())?,
        None => false,
    };
    if let Some((what, most)) = exceeded {
        observer.note(format!(
            "warning: rows that depend on no parameter would take {}, more than half of {what} ({}), so batches sample what they \
             are computed from: project the features to fewer numbers, or give fan-outs for these hops",
            show_bytes(bytes),
            show_bytes(most)
        ));
    }
    if exceeded.is_some() || of_others {
        disabled.passes.push(PRECOMPUTE.into());
    }
    Ok(())
}

/// A matrix of rows that is missing.
struct Missing {
    input: Input,
    result: String,
    rows: usize,
    width: usize,
    /// The part of the program that computes it.
    program: Dataflow,
    key: Option<CacheKey>,
}

/// Fills the precomputed inputs of a bound model.
///
/// # Errors
/// Rows that cannot be computed, by an operation or too little memory.
pub fn fill_precomputed(
    model: &Analyzed,
    bound: &mut Bound,
    dataset: &Dataset,
    (bind, train): (&BindOptions, &TrainOptions),
    disabled: &Disabled,
    pool: &Arc<ThreadPool>,
    observer: &mut dyn Observer,
) -> Result<(), Error> {
    let Some(program) = &model.precomputed else { return Ok(()) };
    let start = Instant::now();
    let cache = rows_cache(dataset, bind);
    let (mut missing, mut total, mut read) = (vec![], 0, 0);
    for (input, vertex, width) in precomputed_inputs(&model.flow) {
        let (result, rows) = (model.flow.inputs[input.index()].name.clone(), bound.data.num_vertices[vertex.index()]);
        let program = only(program, &[&result]);
        let key = match &cache {
            Some(_) => pool.install(|| key_of_rows(&program, &bound.data, dataset, bind, &disabled.passes))?,
            None => None,
        };
        total += 4 * (rows * width) as u64;
        let found =
            cache.as_ref().zip(key).and_then(|(cache, key)| pool.install(|| cache.find_rows(key, (rows, width))));
        match found {
            Some(found) => {
                bound.data.inputs[input.index()] = InputData::Numbers(found.into());
                read += 1;
            }
            None => missing.push(Missing { input, result, rows, width, program, key }),
        }
    }
    let all = missing.len() + read;
    if !missing.is_empty() {
        let names: Vec<&str> = missing.iter().map(|of| &of.result[..]).collect();
        let (found, took) = compute((&only(program, &names), &names), bound, dataset, (bind, train), disabled, pool)?;
        // By the bytes of each, since they are computed together.
        let bytes: usize = found.iter().map(Vec::len).sum::<usize>().max(1);
        for (of, numbers) in missing.into_iter().zip(found) {
            if let Some((cache, key)) = cache.as_ref().zip(of.key) {
                let took = took.mul_f64(numbers.len() as f64 / bytes as f64);
                let source = sources(&of.program, &of.result);
                pool.install(|| cache.keep_rows(key, &source, (of.rows, of.width), &numbers, took));
            }
            bound.data.inputs[of.input.index()] = InputData::Numbers(numbers.into());
        }
    }
    let from = match (read, cache.is_some()) {
        (0, true) => "computed",
        (0, false) => "computed, and not cached",
        (read, _) if read == all => "from the cache beside the dataset",
        _ => "partly from the cache beside the dataset",
    };
    let matrices = if all == 1 { "1 matrix".to_owned() } else { format!("{all} matrices") };
    observer.note(format!(
        "precomputed rows: {matrices}, {}, {from} ({:.1} ms)",
        show_bytes(total),
        1e3 * start.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// The part of a program that some of its results need.
fn only(program: &Dataflow, results: &[&str]) -> Dataflow {
    let mut only = program.clone();
    only.outputs
        .retain(|output| matches!(&output.kind, hgnnc_ir::OutputKind::Result(name) if results.contains(&&name[..])));
    only.remove_dead_values();
    only
}

/// Runs a program on the whole graph, on the processor: its results, and how long it took.
fn compute(
    (program, results): (&Dataflow, &[&str]),
    bound: &Bound,
    dataset: &Dataset,
    (bind, options): (&BindOptions, &TrainOptions),
    disabled: &Disabled,
    pool: &Arc<ThreadPool>,
) -> Result<(Vec<Vec<f32>>, Duration), Error> {
    let start = Instant::now();
    let model = Analyzed::for_evaluation(program.clone(), vec![], vec![], None);
    let mut data = read_by(program, &bound.data);
    let mut lower_options = LowerOptions {
        disabled: Disabled { passes: disabled.passes.clone(), fusions: vec![] },
        sizes: Some(data.sizes()),
        evaluation_only: true,
        ..LowerOptions::default()
    };
    // The metapaths of these rows are built for them alone, where they are built.
    let plan = plan_graphs(&model, &lower_options).map_err(|error| Error::from(LowerError::from(error)))?;
    pool.install(|| materialize(&mut data, program, dataset, bind, &plan.materialized))?;
    let sizes = Some(data.sizes());
    (lower_options.sizes, lower_options.graphs) = (sizes.clone(), Some(plan));
    let mut lowered = lower(&model, &lower_options).map_err(|error: LowerError| Error::from(error))?;
    pool.install(|| compile_cpu(&mut lowered, sizes.as_ref(), &cpu_options(options)));
    let mut backend = cpu_backend(&lowered.executable, pool, options);
    let run = || {
        let planned = backend.plan(&[Role::Infer], data, None)?;
        let needed = planned.memory().all.bytes();
        if let Some((limit, free)) = backend.free_memory().filter(|(_, free)| needed > *free) {
            let detail =
                format!("rows that are computed before training; `--disable-pass {PRECOMPUTE}` samples instead");
            return Err(ExecError::Memory { needed, detail, limit, budget: free });
        }
        let mut session = planned.open()?;
        session.run(0, StepKey { seed: 0, step: 1, epoch: 0 }, &mut Times::default())?;
        let read = |name: &&str| Ok(session.read(0, name)?.map_or(vec![], |rows| rows.numbers.to_vec()));
        results.iter().map(read).collect::<hgnnc_data::Result<Vec<Vec<f32>>>>()
    };
    let found = pool.install(run)?;
    Ok((found, start.elapsed()))
}

/// The data that a program reads.
fn read_by(program: &Dataflow, data: &BoundData) -> BoundData {
    let mut inputs = vec![InputData::Missing; program.inputs.len()];
    for value in &program.values {
        if let Op::Input(input) = value.op {
            inputs[input.index()].clone_from(&data.inputs[input.index()]);
        }
    }
    BoundData {
        dataset: data.dataset.clone(),
        num_vertices: data.num_vertices.clone(),
        graphs: data.graphs.clone(),
        origins: data.origins.clone(),
        patterns: data.patterns.clone(),
        inputs,
        ..BoundData::default()
    }
}
