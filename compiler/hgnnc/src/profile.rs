//! Profiles of training: measurements of the runtime beside predictions of the compiler.

mod device;
mod spans;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use hgnnc_dataset::files;
use hgnnc_driver::cost::{Bounded, KernelBound, kernels};
use hgnnc_driver::{SizeInfo, planned};
use hgnnc_ir::Stage;
use hgnnc_ir::infer::show;
use hgnnc_ir::{Direction, Graph, VertexType};
use hgnnc_kernel_ir::kernel::place::{Area, Slot};
use hgnnc_kernel_ir::kernel::print::print_rows;
use hgnnc_kernel_ir::kernel::{self, Body, Kernel as Decl, Program};
use hgnnc_machine::Machine;
use hgnnc_profile::{KernelTime, Profile as Found, ProfileOptions, RankTime, Timeline};
use hgnnc_report::profile::{Alive, FORMAT, GraphWeights, VERSION};
use hgnnc_report::ranks::EXCHANGE;
use hgnnc_report::trace::{self, Trace};
use hgnnc_report::{
    Batch, ClassScore, Classes, Counters, Kernel, Memory, Missing, Once, Profile, Rank, Run, json, page,
};

pub use device::{DeviceRun, measure_device};

use crate::outputs::{make_folder, write_file};
use crate::{Error, Prepared};

/// The tables of a profile in its folder.
const TEXT: &str = "profile.txt";
/// The JSON of a profile in its folder (`docs/profile.md`).
const JSON: &str = "profile.json";

/// Size of an f32 element in bytes.
const ELEMENT: u64 = 4;

/// Measures training on this processor, which `machine` describes ([`crate::processor`]), after a warm-up. Processes that
/// train together all call this, or [`measure_along`].
///
/// # Errors
/// A model that is not trained, a device that is not this processor, and when `stop` was set before a run was measured.
pub fn measure(
    model: &Path,
    prepared: &mut Prepared,
    machine: Machine,
    options: ProfileOptions,
    stop: &AtomicBool,
) -> Result<(Profile, Found), Error> {
    let found = measured(prepared, options, stop)?;
    Ok((profile(model, prepared, machine, &found)?, found))
}

/// [`measure`] on a process that shows nothing.
///
/// # Errors
/// As [`measure`].
pub fn measure_along(prepared: &mut Prepared, options: ProfileOptions, stop: &AtomicBool) -> Result<(), Error> {
    measured(prepared, options, stop).map(|_| ())
}

fn measured(prepared: &mut Prepared, options: ProfileOptions, stop: &AtomicBool) -> Result<Found, Error> {
    let found = hgnnc_profile::profile(&mut prepared.trainer, options, stop)?;
    if found.runs == 0 {
        return Err(Error::Machine("interrupted before an epoch was measured".into()));
    }
    Ok(found)
}

/// The profile of training on this processor.
fn profile(model: &Path, prepared: &Prepared, machine: Machine, found: &Found) -> Result<Profile, Error> {
    let program = program(prepared)?;
    // Mini-batches differ in size: predictions are means over some of them. Of several processes, each has a part of the
    // whole graph.
    let sizes = match &found.sizes[..] {
        [] => std::slice::from_ref(&prepared.sizes),
        sizes => sizes,
    };
    let bounds: Vec<Vec<KernelBound>> = sizes.iter().map(|sizes| kernels(program, sizes, &machine)).collect();
    let decls: Vec<&kernel::Kernel> = program.kernels().collect();
    let events: Vec<String> = found.counted.events.iter().map(|event| event.name().to_string()).collect();
    let of_kernel = |time: &KernelTime| {
        let bounds: Vec<&Bounded> = bounds.iter().map(|kernels| &kernels[time.number].bound).collect();
        let shares = Stage::ALL.iter().zip(time.shares).filter(|(_, share)| *share > 0.0);
        // Shares sum to 1 up to f32 rounding.
        let all: f64 = time.shares.iter().copied().map(f64::from).sum();
        let counts = events.iter().cloned().zip(time.counts.iter().copied()).collect();
        let predicted = predicted(time.number, program, decls[time.number], &bounds, &machine);
        if matches!(decls[time.number].body, Body::Exchange(_)) {
            // Its time depends on the other processes.
            return Kernel {
                kind: EXCHANGE.into(),
                shares: BTreeMap::new(),
                measured_ms: time.ms,
                waiting_ms: Some(time.waited_ms),
                predicted_ms: None,
                bound: String::new(),
                counts,
                ..predicted
            };
        }
        Kernel {
            shares: shares.map(|(stage, share)| (stage.name().to_string(), f64::from(share) / all)).collect(),
            measured_ms: time.ms,
            in_cache_ms: time.in_cache_ms,
            counts,
            ..predicted
        }
    };
    let rank = |(rank, of): (usize, &RankTime)| Rank {
        rank,
        run_ms: of.run_ms,
        computing_ms: of.computing_ms,
        waiting_ms: of.waiting_ms,
        loading_ms: of.loading_ms,
        sent_bytes: of.sent_bytes,
        exchanges: of.exchanges,
        peak_bytes: of.peak_rss_bytes,
    };
    let device = match found.ranks.len() {
        0 => "cpu".to_owned(),
        processes => format!("cpu, {processes} processes"),
    };
    let kernels = found.kernels.iter().map(of_kernel).collect();
    let largest = sizes.iter().max_by_key(|sizes| planned(program, sizes).run.len);
    let missing = found.counted.missing.iter().map(|missing| Missing {
        events: missing.events.iter().map(|event| event.name().to_string()).collect(),
        reason: missing.reason.clone(),
    });
    let missing = missing.collect();
    Ok(Profile {
        run: if found.batches.is_some() { Run::Batch } else { Run::Epoch },
        runs: found.runs,
        runs_per_epoch: found.batches.as_ref().map_or(1, |batches| batches.per_epoch),
        run_ms: found.run_ms,
        run_min_ms: found.run_range_ms.0,
        run_max_ms: found.run_range_ms.1,
        overhead_ms: found.reading_ms,
        copies_ms: found.copies_ms,
        commit_ms: found.commit_ms,
        between_ms: found.between_ms,
        agreeing_ms: found.agreeing_ms,
        batch: found.batches.as_ref().map(|batches| Batch {
            sampling_ms: batches.sample_ms,
            features_ms: batches.gather_ms,
            graphs_ms: batches.graphs_ms,
            waiting_ms: batches.wait_ms,
            binding_ms: batches.bind_ms,
            rows_ms: batches.rows_ms,
            values_ms: batches.values_ms,
        }),
        kernels,
        memory: largest.map(|sizes| memory(program, sizes)),
        counters: Counters { events, missing },
        ranks: found.ranks.iter().enumerate().map(rank).collect(),
        ..bare(model, prepared, program, machine, &device, prepared.trainer.threads())
    })
}

/// Writes all files of a profile of this processor into a folder, which is created: the text, JSON, a trace of the
/// timeline, and a page.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, profile: &Profile, text: &str, timeline: &Timeline) -> Result<(), Error> {
    write_all(folder, profile, &json::write(profile), text, &spans::trace(profile, timeline))
}

fn write_all(folder: &Path, profile: &Profile, json: &str, text: &str, trace: &Trace) -> Result<(), Error> {
    let page = page::page(profile).map_err(|error| Error::Machine(error.to_string()))?;
    make_folder(folder)?;
    let trace = trace::write(trace);
    for (name, text) in [(TEXT, text), (JSON, json), ("trace.json", &trace), ("profile.html", &page)] {
        write_file(&folder.join(name), text.as_bytes())?;
    }
    Ok(())
}

/// Reads a profile from its JSON, or from the folder that has it.
///
/// # Errors
/// A file that cannot be read, or that is no profile.
pub fn read(path: &Path) -> Result<Profile, Error> {
    let file = if path.is_dir() { path.join(JSON) } else { path.into() };
    let text = files::read_to_string(&file).map_err(|error| Error::read(&file, &error))?;
    json::read(&text).map_err(|error| Error::input(format!("`{}` is {error}", file.display())))
}

/// Bytes that a kernel's working set may have to stay in the cache of a core ([`ProfileOptions::in_cache`]): a quarter of
/// the largest private cache.
pub fn cache_room(machine: &Machine) -> usize {
    let own = machine.levels.iter().rev().find(|level| !level.shared).or(machine.levels.first());
    own.map_or(0.0, |level| 0.25 * level.bytes) as usize
}

/// The training program; an error without one.
pub fn program(prepared: &Prepared) -> Result<&Program, Error> {
    let program = prepared.trainer.executable().kernels.train.as_ref();
    program.ok_or_else(|| Error::input("the model has no `train` block, so it cannot be trained"))
}

/// A profile without runs: program, machine and predictions.
pub fn bare(
    model: &Path,
    prepared: &Prepared,
    program: &Program,
    machine: Machine,
    device: &str,
    threads: usize,
) -> Profile {
    let data = prepared.trainer.data();
    let once = Once {
        load_ms: 1e3 * (data.load_s + prepared.load_s),
        sgb_ms: 1e3 * data.sgb_s,
        compile_ms: 1e3 * prepared.compile_s,
    };
    Profile {
        format: FORMAT.into(),
        version: VERSION,
        program: program.tables.name.clone(),
        model: model.display().to_string(),
        dataset: data.dataset.clone(),
        device: device.into(),
        target: machine.target.clone(),
        threads,
        machine,
        run: Run::Epoch,
        runs: 0,
        runs_per_epoch: 1,
        run_ms: 0.0,
        run_min_ms: 0.0,
        run_max_ms: 0.0,
        overhead_ms: 0.0,
        copies_ms: 0.0,
        commit_ms: 0.0,
        between_ms: 0.0,
        agreeing_ms: 0.0,
        batch: None,
        once,
        kernels: vec![],
        memory: None,
        counters: Counters::default(),
        graph_weights: vec![],
        classes: BTreeMap::new(),
        ranks: vec![],
    }
}

/// The outputs of semantic graphs with the parameters after the measured runs.
pub fn graph_weights(prepared: &mut Prepared) -> Result<Vec<GraphWeights>, Error> {
    let found = prepared.trainer.infer_graph_weights()?;
    let of = |of: hgnnc_train::report::GraphWeights| {
        let weights = of.weights.into_iter().map(|weight| (weight.graph, weight.weight)).collect();
        GraphWeights { output: of.output, weights }
    };
    Ok(found.into_iter().map(of).collect())
}

/// Scores of the classes with the parameters after the measured runs, by part; none where the task has no classes. This
/// evaluates the model.
pub fn classes(prepared: &mut Prepared) -> Result<BTreeMap<String, Classes>, Error> {
    let found = prepared.trainer.infer_class_scores()?;
    let names = &prepared.classes;
    let score = |(class, of): (usize, hgnnc_train::report::ClassScore)| ClassScore {
        name: names.get(class).cloned().unwrap_or(of.name),
        support: of.support,
        precision: of.precision,
        recall: of.recall,
        f1: of.f1,
    };
    let of = |of: hgnnc_train::report::ClassReport| Classes {
        scores: of.scores.into_iter().enumerate().map(score).collect(),
        confusion: of.confusion,
    };
    Ok(found.into_iter().map(|(part, classes)| (part.to_owned(), of(classes))).collect())
}

/// Predicted time and work of a kernel: the mean over `sizes`.
pub fn predicted(
    number: usize,
    program: &Program,
    kernel: &kernel::Kernel,
    bounds: &[&Bounded],
    machine: &Machine,
) -> Kernel {
    let mean =
        |of: &dyn Fn(&Bounded) -> f64| bounds.iter().map(|bound| of(bound)).sum::<f64>() / bounds.len().max(1) as f64;
    // The bottleneck of the kernel with the median predicted time.
    let mut by_time: Vec<&&Bounded> = bounds.iter().collect();
    by_time.sort_by(|a, b| a.prediction.seconds().total_cmp(&b.prediction.seconds()));
    let typical = by_time.get(by_time.len() / 2).map(|bound| &bound.prediction);
    Kernel {
        kernel: number,
        rows: label(program, kernel),
        stores: stores(program, kernel),
        stage: kernel.stage.name().into(),
        phase: kernel.phase.name().into(),
        kind: bounds.first().map_or(String::new(), |bound| bound.kind.name().into()),
        shares: BTreeMap::from([(kernel.stage.name().to_string(), 1.0)]),
        measured_ms: 0.0,
        in_cache_ms: None,
        waiting_ms: None,
        predicted_ms: (!bounds.is_empty()).then(|| 1e3 * mean(&|bound| bound.prediction.seconds())),
        bound: typical.map_or(String::new(), |it| machine.bound_name(it.bound).into()),
        fits: typical.map_or(String::new(), |it| machine.levels[it.level].name.clone()),
        flops: mean(&|bound| bound.work.flops()),
        footprint_bytes: mean(&|bound| bound.work.footprint()),
        gathered_bytes: mean(&|bound| bound.work.gathered()),
        moved_bytes: mean(&|bound| {
            let work = &bound.work;
            // The first gather of a row is part of the footprint.
            work.footprint() - work.gathered_footprint() + work.gathered()
        }),
        counts: BTreeMap::new(),
    }
}

/// Live bytes at each launch of a run.
fn memory(program: &Program, sizes: &SizeInfo) -> Memory {
    let memory = planned(program, sizes);
    let (first, mut number) = (program.prelude.len(), 0);
    let mut steps = vec![];
    let mut makers: BTreeMap<kernel::Buffer, Stage> = BTreeMap::new();
    for (step, launch) in program.prelude.iter().chain(&program.launches).enumerate() {
        for kernel in &launch.kernels {
            makers.extend(kernel.writes().into_iter().map(|buffer| (buffer, kernel.stage)));
        }
        if step >= first {
            steps.push(Alive { kernel: number, bytes: alive(program, &memory.run, &makers, step) });
        }
        number += launch.kernels.len();
    }
    Memory { fixed_bytes: ELEMENT * memory.fixed.len as u64, steps }
}

/// Live bytes at a step, by the stage that produced the value.
fn alive(
    program: &Program,
    area: &Area,
    makers: &BTreeMap<kernel::Buffer, Stage>,
    step: usize,
) -> BTreeMap<String, u64> {
    // Values that share memory count once, with the longest of them, as the last one.
    let homes = program.homes();
    let mut longest: BTreeMap<kernel::Buffer, usize> = BTreeMap::new();
    for slot in &area.slots {
        let len = longest.entry(homes[slot.buffer.index()]).or_default();
        *len = slot.life.len.max(*len);
    }
    let mut there: BTreeMap<kernel::Buffer, &Slot> = BTreeMap::new();
    for slot in area.slots.iter().filter(|slot| slot.life.start <= step && step <= slot.life.end) {
        let home = there.entry(homes[slot.buffer.index()]).or_insert(slot);
        if slot.life.start > home.life.start {
            *home = slot;
        }
    }
    let mut bytes: BTreeMap<String, u64> = BTreeMap::new();
    for (home, slot) in there {
        let stage = makers.get(&slot.buffer).map_or("", |stage| stage.name());
        *bytes.entry(stage.into()).or_default() += ELEMENT * longest[&home] as u64;
    }
    bytes
}

/// The rows that a kernel iterates over, or its matrix product.
pub fn label(program: &Program, kernel: &Decl) -> String {
    match &kernel.body {
        Body::Gemm(gemm) => {
            let space = hgnnc_ir::Type::new(gemm.rows, vec![]);
            format!("{} {}", gemm.form.name(), show(&program.tables, &space))
        }
        Body::FactoredMetapath(reduction) => {
            let name = |graph: Graph| &program.tables.graphs[graph.index()].name;
            let edges = if reduction.direction == Direction::In { "in" } else { "out" };
            format!("factored {edges} over {}, {}", name(reduction.first), name(reduction.second))
        }
        Body::Exchange(exchange) => {
            let name = |vertex: VertexType| &program.tables.vertex_types[vertex.index()].name;
            match exchange.to {
                Some(to) => format!("exchange of {} to {}", name(exchange.rows), name(to)),
                None => format!("sum of {} over all ranks", name(exchange.rows)),
            }
        }
        Body::Traversal(traversal) => print_rows(program, &traversal.rows),
    }
}

/// Names of the buffers that a kernel writes.
pub fn stores(program: &Program, kernel: &Decl) -> String {
    let names: Vec<&str> = kernel.writes().iter().map(|&buffer| &program.buffer(buffer).name[..]).collect();
    match &names[..] {
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        _ => names.join(", "),
    }
}
