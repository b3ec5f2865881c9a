//! `hgnnc profile`.

use std::process::ExitCode;

use hgnnc_driver::bounds::{Bounded, kernels};
use hgnnc_exec::{Profile, measure, profile as measure_kernels};
use hgnnc_ir::kernel::Program;
use hgnnc_ir::{Phase, Stage};
use hgnnc_machine::Machine;
use serde_json::{Value, json};

use crate::args::ProfileArgs;
use crate::bounds::{label, machine_text, stores};
use crate::data;
use crate::failure::Failure;
use crate::launches;
use crate::output::{check_folder, make_folder, note, print, write};
use crate::run::{Purpose, options, prepare};
use crate::table::{Table, amount, bytes, digits, percent, time};
use crate::train::stop_on_interrupt;

/// A kernel as it was measured and as it was predicted.
struct Line {
    number: usize,
    label: String,
    stores: String,
    bound: Bounded,
    ms: f64,
}

impl Line {
    fn predicted_ms(&self) -> f64 {
        self.bound.prediction.seconds() * 1e3
    }

    /// FLOP/s.
    fn flops_per_s(&self) -> f64 {
        rate(self.bound.work.flops(), self.ms)
    }

    /// Bytes per second: distinct ones, and the repeats of gathers.
    fn bytes_per_s(&self) -> f64 {
        let work = &self.bound.work;
        rate(work.footprint() - work.gathered_footprint() + work.gathered(), self.ms)
    }
}

fn rate(amount: f64, ms: f64) -> f64 {
    if ms > 0.0 { amount / (ms * 1e-3) } else { 0.0 }
}

/// Trains a few epochs and shows what each kernel takes.
pub fn profile(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.out {
        check_folder(folder)?;
    }
    let options = options(&args.device);
    let mut say = |line: String| note(&line);
    let device = args.device.device;
    let mut prepared = prepare(Purpose::Train, &args.model, device, &args.disable_pass, options, true, &mut say)?;
    let Some(threads) = prepared.trainer.engine().map(|engine| engine.threads()) else {
        return launches::profile(args, &mut prepared, &mut say);
    };
    // Before training, whose threads would be in its way.
    let machine = measure::machine(Some(&data::cache_folder()), threads);
    let stop = stop_on_interrupt(&mut say);
    let found = measure_kernels(&mut prepared.trainer, args.epochs, &stop)?;
    if found.epochs == 0 {
        return Err(Failure::Machine("interrupted before an epoch was measured".into()));
    }
    let program = prepared.trainer.artifact().kernels.train.as_ref();
    let program = program.ok_or_else(|| Failure::input("the model has no `train` block, so it cannot be trained"))?;
    let mut lines: Vec<Line> = kernels(program, &prepared.sizes, &machine)
        .into_iter()
        .zip(program.kernels())
        .filter(|(kernel, _)| !kernel.bound.once)
        .zip(&found.kernels_ms)
        .map(|((kernel, decl), &ms)| Line {
            number: kernel.number,
            label: label(program, decl),
            stores: stores(program, decl),
            bound: kernel.bound,
            ms,
        })
        .collect();
    lines.sort_by(|a, b| b.ms.total_cmp(&a.ms).then(a.number.cmp(&b.number)));
    let text = text(program, &machine, &found, &lines);
    if let Some(folder) = &args.out {
        make_folder(folder)?;
        write(&folder.join("profile.txt"), text.as_bytes())?;
        let json = format!("{:#}\n", json(program, &machine, &found, &lines));
        write(&folder.join("profile.json"), json.as_bytes())?;
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(program: &Program, machine: &Machine, found: &Profile, lines: &[Line]) -> String {
    let name = &program.tables.name;
    let mut text = format!(
        "{name}: {} ms per epoch, median of {}, on {}\n",
        digits(found.epoch_ms),
        found.epochs,
        machine_text(machine)
    );
    let mut table = Table::new(
        4,
        &["kernel", "stores", "stage", "phase", "measured", "predicted", "ratio", "bound", "FLOP/s", "B/s", "share"],
    );
    for line in lines {
        let Bounded { stage, phase, prediction, .. } = &line.bound;
        table.row(vec![
            format!("k{} {}", line.number, line.label),
            line.stores.clone(),
            stage.name().into(),
            phase.name().into(),
            time(line.ms * 1e-3),
            time(prediction.seconds()),
            digits(line.ms / line.predicted_ms()),
            machine.bound_name(prediction.bound).into(),
            amount(line.flops_per_s()),
            bytes(line.bytes_per_s()),
            percent(line.ms / found.epoch_ms),
        ]);
    }
    text.push_str(&table.text());
    text.push('\n');
    let mut table = Table::new(1, &["", "kernels", "measured", "predicted", "share"]);
    let mut total = |name: &str, of: &dyn Fn(&Bounded) -> bool| {
        let (count, ms, predicted_ms) = sums(lines, of);
        let cells = [count.to_string(), time(ms * 1e-3), time(predicted_ms * 1e-3), percent(ms / found.epoch_ms)];
        table.row([name.to_string()].into_iter().chain(cells).collect());
    };
    for stage in Stage::ALL {
        total(stage.name(), &|bound| bound.stage == stage);
    }
    for phase in [Phase::Forward, Phase::Backward, Phase::Update] {
        total(phase.name(), &|bound| bound.phase == phase);
    }
    total("kernels", &|_| true);
    let rest = found.epoch_ms - sums(lines, &|_| true).1;
    let mut row = |name: &str, ms: f64| {
        table.row(vec![name.into(), String::new(), time(ms * 1e-3), String::new(), percent(ms / found.epoch_ms)]);
    };
    row("copies", found.copies_ms);
    row("between", (rest - found.copies_ms).max(0.0));
    row("epoch", found.epoch_ms);
    text.push_str(&table.text());
    text
}

/// Number, measured and predicted milliseconds of some kernels.
fn sums(lines: &[Line], of: &dyn Fn(&Bounded) -> bool) -> (usize, f64, f64) {
    let chosen = || lines.iter().filter(|line| of(&line.bound));
    (chosen().count(), chosen().map(|line| line.ms).sum(), chosen().map(Line::predicted_ms).sum())
}

fn json(program: &Program, machine: &Machine, found: &Profile, lines: &[Line]) -> Value {
    let kernel = |line: &Line| {
        let Bounded { stage, phase, kind, work, prediction, .. } = &line.bound;
        json!({
            "kernel": line.number, "rows": line.label, "stores": line.stores,
            "stage": stage.name(), "phase": phase.name(), "kind": kind.name(),
            "measured_ms": line.ms, "predicted_ms": line.predicted_ms(),
            "bound": machine.bound_name(prediction.bound), "fits": machine.levels[prediction.level].name,
            "flops": work.flops(), "footprint_bytes": work.footprint(), "gathered_bytes": work.gathered(),
            "flops_per_s": line.flops_per_s(), "bytes_per_s": line.bytes_per_s(),
            "share": line.ms / found.epoch_ms,
        })
    };
    let total = |of: &dyn Fn(&Bounded) -> bool| {
        let (count, ms, predicted_ms) = sums(lines, of);
        json!({"kernels": count, "measured_ms": ms, "predicted_ms": predicted_ms})
    };
    let stages: serde_json::Map<String, Value> =
        Stage::ALL.into_iter().map(|stage| (stage.name().into(), total(&|bound| bound.stage == stage))).collect();
    let phases: serde_json::Map<String, Value> = [Phase::Forward, Phase::Backward, Phase::Update]
        .into_iter()
        .map(|phase| (phase.name().into(), total(&|bound| bound.phase == phase)))
        .collect();
    json!({
        "program": program.tables.name, "device": machine.name, "target": machine.target, "threads": machine.cores,
        "epochs": found.epochs, "epoch_ms": found.epoch_ms, "copies_ms": found.copies_ms,
        "stages": stages, "phases": phases,
        "kernels": lines.iter().map(kernel).collect::<Vec<_>>(),
    })
}
