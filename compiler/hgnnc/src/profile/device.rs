//! Profiles of training on a device: times or event counts of each launch.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use hgnnc_driver::cost::{Bounded, kernels};
use hgnnc_kernel_ir::kernel::{Kernel, Program};
use hgnnc_machine::counters::{Class, Counters, GlobalTraffic, SharedTraffic};
use hgnnc_machine::{Machine, Work};
use hgnnc_profile::{DeviceProfile, EntryProfile, device, profile_device};
use hgnnc_report::table::{Table, amount, bytes, digits, percent, time};
use hgnnc_report::{self as report, Profile};
use hgnnc_trace::Event;
use serde_json::{Map, Value, json};

use super::{JSON, TEXT, bare, classes, graph_weights, label, program, spans, stores, write_all};
use crate::outputs::{make_folder, write_file};
use crate::{Error, Prepared};

/// Epochs that are measured unless another number is given.
const EPOCHS: u64 = 10;

/// Training as measured on a device.
#[derive(Debug)]
pub struct DeviceRun {
    /// Tables of the launches: times, or counts where the device gives no times.
    pub text: String,
    /// The launches as JSON.
    launches: Value,
    /// The profile; `None` where the device gives no times, so that there is nothing to show or compare.
    pub profile: Option<Profile>,
}

/// A launch as executed and as predicted.
struct Line {
    entry: EntryProfile,
    /// Rows or products of its kernels.
    labels: Vec<String>,
    /// Buffers written by its kernels.
    stores: Vec<String>,
    bounds: Vec<Bounded>,
}

impl Line {
    /// Predicted seconds of its kernels; 0 for reductions of partial results and copies, which are not predicted.
    fn predicted(&self) -> f64 {
        self.bounds.iter().map(|bound| bound.prediction.seconds()).sum()
    }

    /// Distinct values of a property over its kernels.
    fn words(&self, of: impl Fn(&Bounded) -> &'static str) -> String {
        let mut words: Vec<&str> = self.bounds.iter().map(of).collect();
        words.dedup();
        words.join(", ")
    }

    fn counters(&self) -> Counters {
        self.entry.counters.as_ref().map(|found| found.counters.clone()).unwrap_or_default()
    }

    fn ms(&self) -> f64 {
        self.entry.ms.unwrap_or(0.0)
    }
}

/// Measures training on the trainer's device: times or counters of each launch. `model` is the name of the model's file.
///
/// # Errors
/// A model that is not trained, a trainer on this processor, and when `stop` was set before an epoch was measured.
pub fn measure_device(
    model: &Path,
    prepared: &mut Prepared,
    epochs: Option<u64>,
    stop: &AtomicBool,
) -> Result<DeviceRun, Error> {
    let found = profile_device(&mut prepared.trainer, epochs.unwrap_or(EPOCHS), stop)?;
    if found.epochs == 0 {
        return Err(Error::Machine("interrupted before an epoch was measured".into()));
    }
    let Some((name, target)) = device(&mut prepared.trainer).map(|it| (it.device().name(), it.device().target()))
    else {
        return Err(Error::Machine("internal error: a profile of a device without one".into()));
    };
    let program = program(prepared)?;
    let machine = Machine::sheet(target.name());
    let machine = machine.ok_or_else(|| Error::Machine(format!("internal error: no figures of {}", target.name())))?;
    let bounds = kernels(program, &prepared.sizes, &machine);
    let all: Vec<&Kernel> = program.kernels().collect();
    let line = |entry: &EntryProfile| {
        let numbers = || entry.entry.kernels.iter().map(|kernel| kernel.number).filter(|&number| number < all.len());
        Line {
            entry: entry.clone(),
            labels: numbers().map(|number| format!("k{number} {}", label(program, all[number]))).collect(),
            stores: numbers().map(|number| stores(program, all[number])).collect(),
            bounds: numbers().filter_map(|number| bounds.get(number)).map(|kernel| kernel.bound.clone()).collect(),
        }
    };
    let lines: Vec<Line> = found.entries.iter().map(line).collect();
    let text = text(program, &name, &found, &lines);
    let launches = json(program, &name, target.name(), &found, &lines);
    let timed = |ms| timed(model, prepared, (program, machine, &name), (ms, found.range_ms, found.epochs), &lines);
    let profile = found.epoch_ms.map(timed);
    Ok(DeviceRun { text, launches, profile })
}

impl DeviceRun {
    /// Writes all files of the profile into a folder, which is created; without times, the text and the JSON only.
    ///
    /// # Errors
    /// When a file cannot be written, or the device fails.
    pub fn write(self, prepared: &mut Prepared, folder: &Path) -> Result<(), Error> {
        let DeviceRun { text, launches, profile } = self;
        let Some(mut profile) = profile else {
            make_folder(folder)?;
            write_file(&folder.join(TEXT), text.as_bytes())?;
            return write_file(&folder.join(JSON), format!("{launches:#}\n").as_bytes());
        };
        profile.graph_weights = graph_weights(prepared)?;
        profile.classes = classes(prepared)?;
        let mut value = report::json::value(&profile);
        value["launches"] = launches["launches"].clone();
        write_all(folder, &profile, &format!("{value:#}\n"), &text, &spans::of_device(&profile))
    }
}

/// Builds a profile from timed launches.
fn timed(
    model: &Path,
    prepared: &Prepared,
    (program, machine, device): (&Program, Machine, &str),
    (run_ms, range_ms, runs): (f64, (f64, f64), u64),
    lines: &[Line],
) -> Profile {
    let kernel = |(number, line): (usize, &Line)| {
        let predicted = line.predicted();
        // A launch has several kernels: its time is split in proportion to their predictions.
        let mut shares: BTreeMap<String, f64> = BTreeMap::new();
        for bound in &line.bounds {
            *shares.entry(bound.stage.name().into()).or_default() += bound.prediction.seconds() / predicted;
        }
        let main = line.bounds.iter().max_by(|a, b| a.prediction.seconds().total_cmp(&b.prediction.seconds()));
        let sum = |of: &dyn Fn(&Work) -> f64| line.bounds.iter().map(|bound| of(&bound.work)).fold(0.0, |a, b| a + b);
        let word = |of: &dyn Fn(&Bounded) -> String| main.map_or(String::new(), of);
        report::Kernel {
            kernel: number,
            rows: [line.entry.entry.name.clone(), line.labels.join(", ")].join(": "),
            stores: line.stores.join(", "),
            stage: word(&|bound| bound.stage.name().into()),
            phase: word(&|bound| bound.phase.name().into()),
            kind: word(&|bound| bound.kind.name().into()),
            shares,
            measured_ms: line.ms(),
            in_cache_ms: None,
            waiting_ms: None,
            predicted_ms: (predicted > 0.0).then_some(1e3 * predicted),
            bound: word(&|bound| machine.bound_name(bound.prediction.bound).into()),
            fits: word(&|bound| machine.levels[bound.prediction.level].name.clone()),
            flops: sum(&Work::flops),
            footprint_bytes: sum(&Work::footprint),
            gathered_bytes: sum(&Work::gathered),
            moved_bytes: sum(&|work| work.footprint() - work.gathered_footprint() + work.gathered()),
            counts: BTreeMap::new(),
        }
    };
    let kernels = lines.iter().enumerate().map(kernel).collect();
    let launches_ms = lines.iter().map(Line::ms).fold(0.0, |sum, ms| sum + ms);
    let missing = report::Missing {
        events: Event::ALL.iter().map(|event| event.name().to_string()).collect(),
        reason: "counters are those of the processor; `--device ptx-interp` counts what a device does".into(),
    };
    Profile {
        runs,
        run_ms,
        between_ms: (run_ms - launches_ms).max(0.0),
        run_min_ms: range_ms.0,
        run_max_ms: range_ms.1,
        kernels,
        counters: report::Counters { events: vec![], missing: vec![missing] },
        ..bare(model, prepared, program, machine.clone(), device, prepared.trainer.threads())
    }
}

fn text(program: &Program, device: &str, found: &DeviceProfile, lines: &[Line]) -> String {
    let name = &program.tables.name;
    match found.epoch_ms {
        Some(ms) => {
            let epochs = found.epochs;
            let head = format!("{name}: {} ms per epoch, median of {epochs}, on {device}\n", digits(ms));
            head + &times(lines)
        }
        None => {
            format!("{name}: what one training step does, executed by {device}\n")
                + "\nglobal memory in sectors of 32 bytes, shared memory in wavefronts; `ideal` is what distinct bytes need\n"
                + &traffic(lines)
                + "\ninstructions of warps\n"
                + &instructions(lines)
        }
    }
}

/// The table of times per launch.
fn times(lines: &[Line]) -> String {
    let heads = ["launch", "kernels", "stage", "phase", "measured", "predicted", "ratio", "share"];
    let mut table = Table::new(4, &heads);
    let total: f64 = lines.iter().map(Line::ms).sum();
    let share = |ms: f64| if total > 0.0 { percent(ms / total) } else { String::new() };
    for line in lines {
        let predicted = line.predicted();
        let known = |text: String| if predicted > 0.0 { text } else { String::new() };
        table.row(vec![
            line.entry.entry.name.clone(),
            line.labels.join(", "),
            line.words(|bound| bound.stage.name()),
            line.words(|bound| bound.phase.name()),
            time(line.ms() * 1e-3),
            known(time(predicted)),
            known(digits(line.ms() * 1e-3 / predicted)),
            share(line.ms()),
        ]);
    }
    let predicted = lines.iter().map(Line::predicted).sum::<f64>();
    let mut last = vec!["one by one".to_string(), String::new(), String::new(), String::new()];
    last.extend([time(total * 1e-3), time(predicted), digits(total * 1e-3 / predicted), share(total)]);
    table.row(last);
    table.text()
}

/// Sums loads, stores and atomic operations of global memory.
fn global(counters: &Counters) -> GlobalTraffic {
    let all = [counters.global_loads, counters.global_stores, counters.global_atomics];
    all.iter().fold(GlobalTraffic::default(), |sum, it| GlobalTraffic {
        requests: sum.requests + it.requests,
        sectors: sum.sectors + it.sectors,
        ideal_sectors: sum.ideal_sectors + it.ideal_sectors,
        bytes: sum.bytes + it.bytes,
    })
}

/// Sums loads, stores and atomic operations of shared memory.
fn shared(counters: &Counters) -> SharedTraffic {
    let all = [counters.shared_loads, counters.shared_stores, counters.shared_atomics];
    all.iter().fold(SharedTraffic::default(), |sum, it| SharedTraffic {
        requests: sum.requests + it.requests,
        wavefronts: sum.wavefronts + it.wavefronts,
        ideal_wavefronts: sum.ideal_wavefronts + it.ideal_wavefronts,
    })
}

/// A count as a multiple of the ideal; empty for 0 of 0.
fn ratio(number: u64, ideal: u64) -> String {
    if ideal == 0 { String::new() } else { digits(number as f64 / ideal as f64) }
}

/// The table of memory accesses and operations per launch.
fn traffic(lines: &[Line]) -> String {
    let mut table = Table::new(
        4,
        &[
            "launch",
            "kernels",
            "stage",
            "phase",
            "blocks",
            "instructions",
            "FLOPs",
            "of products",
            "requests",
            "sectors",
            "of ideal",
            "wavefronts",
            "of ideal",
            "read",
            "written",
        ],
    );
    let mut sum = Counters::default();
    let mut row = |words: [String; 4], counters: &Counters| {
        let (global, shared) = (global(counters), shared(counters));
        let mut cells = words.to_vec();
        cells.extend([
            counters.blocks.to_string(),
            amount(counters.warp_total() as f64),
            amount(counters.flops as f64),
            amount(counters.mma_flops as f64),
            amount(global.requests as f64),
            amount(global.sectors as f64),
            ratio(global.sectors, global.ideal_sectors),
            amount(shared.wavefronts as f64),
            ratio(shared.wavefronts, shared.ideal_wavefronts),
            bytes(counters.device_read_bytes as f64),
            bytes(counters.device_written_bytes as f64),
        ]);
        table.row(cells);
    };
    for line in lines {
        let counters = line.counters();
        let words = [
            line.entry.entry.name.clone(),
            line.labels.join(", "),
            line.words(|bound| bound.stage.name()),
            line.words(|bound| bound.phase.name()),
        ];
        row(words, &counters);
        sum.merge(&counters);
    }
    row(["step".into(), String::new(), String::new(), String::new()], &sum);
    table.text()
}

/// The table of instructions per launch, by class.
fn instructions(lines: &[Line]) -> String {
    let heads: Vec<&str> = ["launch"].into_iter().chain(Class::ALL.map(Class::name)).collect();
    let mut table = Table::new(1, &heads);
    let mut sum = Counters::default();
    let mut row = |name: &str, counters: &Counters| {
        let cells = Class::ALL.map(|class| amount(counters.warp_of(class) as f64));
        table.row([name.to_string()].into_iter().chain(cells).collect());
    };
    for line in lines {
        let counters = line.counters();
        row(&line.entry.entry.name, &counters);
        sum.merge(&counters);
    }
    row("step", &sum);
    table.text()
}

fn json(program: &Program, device: &str, target: &str, found: &DeviceProfile, lines: &[Line]) -> Value {
    let line = |line: &Line| {
        let mut object = Map::new();
        object.insert("launch".into(), line.entry.entry.name.clone().into());
        object.insert("kernels".into(), line.labels.clone().into());
        object.insert("stores".into(), line.stores.clone().into());
        object.insert("stages".into(), line.words(|bound| bound.stage.name()).into());
        object.insert("phases".into(), line.words(|bound| bound.phase.name()).into());
        object.insert("predicted_ms".into(), (line.predicted() * 1e3).into());
        if let Some(ms) = line.entry.ms {
            object.insert("measured_ms".into(), ms.into());
        }
        if let Some(found) = &line.entry.counters {
            object.insert("counters".into(), counters_json(&found.counters));
        }
        Value::Object(object)
    };
    json!({
        "program": program.tables.name, "device": device, "target": target,
        "epochs": found.epochs, "epoch_ms": found.epoch_ms,
        "launches": lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn counters_json(counters: &Counters) -> Value {
    let by_class = |count: &dyn Fn(Class) -> u64| {
        let all = Class::ALL.into_iter().map(|class| (class.name().replace(' ', "_"), count(class).into()));
        Value::Object(all.collect())
    };
    let global = |it: &GlobalTraffic| json!({"requests": it.requests, "sectors": it.sectors, "ideal_sectors": it.ideal_sectors, "bytes": it.bytes});
    let shared = |it: &SharedTraffic| json!({"requests": it.requests, "wavefronts": it.wavefronts, "ideal_wavefronts": it.ideal_wavefronts});
    json!({
        "blocks": counters.blocks, "flops": counters.flops, "mma_flops": counters.mma_flops,
        "warp_instructions": by_class(&|class| counters.warp_of(class)),
        "lane_instructions": by_class(&|class| counters.lane_of(class)),
        "global_loads": global(&counters.global_loads), "global_stores": global(&counters.global_stores),
        "global_atomics": global(&counters.global_atomics),
        "shared_loads": shared(&counters.shared_loads), "shared_stores": shared(&counters.shared_stores),
        "shared_atomics": shared(&counters.shared_atomics),
        "cache_hits": counters.cache_hits, "device_read_bytes": counters.device_read_bytes,
        "device_written_bytes": counters.device_written_bytes,
        "branches": counters.branches, "divergent_branches": counters.divergent_branches, "barriers": counters.barriers,
    })
}
