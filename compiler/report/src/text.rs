//! A profile as text for terminals.

use hgnnc_machine::Machine;

use crate::columns::Column;
use crate::profile::{Profile, Run};
use crate::summary::{KINDS, PHASES, stage_words};
use crate::table::{Table, amount, bytes, digits, percent, time};

/// The headline and all tables.
pub fn text(profile: &Profile) -> String {
    let mut text = head(profile);
    for sentence in profile.headline() {
        text.push_str(&sentence);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&machine_text(&profile.machine));
    if !profile.ranks.is_empty() {
        text.push_str("\nranks\n");
        text.push_str(&ranks(profile));
    }
    text.push_str(&format!("\nkernels{} by time\n", profile.of_rank()));
    text.push_str(&kernels(profile));
    text.push_str(&format!("\n{}{} by stage and direction\n", profile.run.name(), profile.of_rank()));
    text.push_str(&stages(profile));
    text.push_str("\nkinds of kernels\n");
    text.push_str(&kinds(profile));
    if let (Run::Batch, Some(_)) = (profile.run, &profile.batch) {
        text.push_str("\nbeside the batch before, by the thread that makes batches\n");
        text.push_str(&beside(profile));
    }
    text.push_str("\nonce, before training\n");
    text.push_str(&once(profile));
    text.push_str(&memory(profile));
    for of in &profile.graph_weights {
        text.push_str(&format!("\n{} of semantic graphs, after these runs\n", of.output));
        let mut table = Table::new(1, &["graph", "weight"]);
        of.weights.iter().for_each(|(graph, weight)| table.row(vec![graph.clone(), format!("{weight:.4}")]));
        text.push_str(&table.text());
    }
    text.push_str("\ncounted by the processor and the system\n");
    text.push_str(&counters(profile));
    text
}

/// Program, time and device in one line.
pub fn head(profile: &Profile) -> String {
    let (program, run) = (&profile.program, profile.run.name());
    let ms = digits(profile.run_ms);
    let runs = format!("{} ({} to {})", profile.runs, digits(profile.run_min_ms), digits(profile.run_max_ms));
    match profile.run {
        Run::Epoch => format!("{program}: {ms} ms per {run}, median of {runs}, on {}\n", profile.device),
        Run::Batch => format!(
            "{program}: {ms} ms per {run}, mean of {runs}, on {}; {} batches are an epoch of {}\n",
            profile.device,
            profile.runs_per_epoch,
            time(profile.epoch_ms() * 1e-3)
        ),
    }
}

/// Name, peak rates and memory levels of a machine.
pub fn machine_text(machine: &Machine) -> String {
    let Machine { name, target, cores, .. } = machine;
    let mut text = format!(
        "{name} ({target}, {cores} {})\n  {}FLOP/s ({}FLOP/s of one), {} exp/s, launch {}\n",
        match (*cores, &target[..]) {
            (1, "cpu") => "thread",
            (_, "cpu") => "threads",
            _ => "SMs",
        },
        unit(machine.fma_flops),
        unit(machine.fma_flops_one_core),
        amount(machine.special_per_s),
        time(machine.launch_s)
    );
    for level in &machine.levels {
        let each = if level.shared { "" } else { " each" };
        text.push_str(&format!(
            "  {} of {}{each}: {}/s in order, {}/s by rows\n",
            level.name,
            bytes(level.bytes),
            bytes(level.stream_bytes_per_s),
            bytes(level.gather_bytes_per_s)
        ));
    }
    text
}

/// `12.3 G`, or `12.3 ` before a unit.
fn unit(number: f64) -> String {
    let text = amount(number);
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) { text } else { format!("{text} ") }
}

const COLUMNS: [Column; 16] = [
    Column::NameAndRows,
    Column::Stores,
    Column::Stage,
    Column::Direction,
    Column::Kind,
    Column::Measured,
    Column::Predicted,
    Column::Ratio,
    Column::Waits,
    Column::ForRanks,
    Column::Bound,
    Column::FlopsPerSecond,
    Column::OfPeak,
    Column::BytesPerSecond,
    Column::FlopsPerByte,
    Column::Share,
];

/// Times and exchanges of each of several processes.
fn ranks(profile: &Profile) -> String {
    let mut table = Table::new(1, &profile.rank_heads());
    profile.rank_rows().into_iter().for_each(|row| table.row(row));
    table.text()
}

fn kernels(profile: &Profile) -> String {
    let columns = Column::known(&COLUMNS, profile);
    // A narrower word than `direction`, since these lines are long.
    let head = |column: &Column| if *column == Column::Direction { "phase" } else { column.head() };
    let mut table = Table::new(5, &columns.iter().map(head).collect::<Vec<_>>());
    for kernel in profile.by_time() {
        table.row(columns.iter().map(|column| column.cell(profile, kernel)).collect());
    }
    table.text()
}

/// Stages by direction, the rest, and the total.
fn stages(profile: &Profile) -> String {
    let mut table =
        Table::new(2, &["", "", "kernels", PHASES[0], PHASES[1], PHASES[2], "measured", "predicted", "ratio", "share"]);
    let ms = |ms: f64| if ms > 0.0 { time(ms * 1e-3) } else { String::new() };
    for stage in profile.stages() {
        let mut cells = vec![stage.stage.to_string(), stage_words(stage.stage).to_string(), stage.kernels.to_string()];
        cells.extend(stage.phases.map(ms));
        let ratio = if stage.predicted_ms > 0.0 { digits(stage.ms() / stage.predicted_ms) } else { String::new() };
        cells.extend([time(stage.ms() * 1e-3), ms(stage.predicted_ms), ratio, percent(profile.share(stage.ms()))]);
        table.row(cells);
    }
    for part in profile.rest() {
        let mut cells = vec![part.name.to_string(), part.words.to_string()];
        cells.extend(vec![String::new(); 4]);
        cells.extend([time(part.ms * 1e-3), String::new(), String::new(), percent(profile.share(part.ms))]);
        table.row(cells);
    }
    let stages = profile.stages();
    let phase = |index: usize| ms(stages.iter().map(|stage| stage.phases[index]).sum());
    let mut cells = vec![profile.run.name().to_string(), String::new(), profile.kernels.len().to_string()];
    cells.extend([phase(0), phase(1), phase(2)]);
    let predicted: f64 = stages.iter().map(|stage| stage.predicted_ms).sum();
    cells.extend([time(profile.total_ms() * 1e-3), ms(predicted), String::new(), percent(1.0)]);
    table.row(cells);
    table.text()
}

fn kinds(profile: &Profile) -> String {
    let mut table =
        Table::new(2, &["", "", "kernels", "measured", "predicted", "FLOP/s", "of peak", "B/s", "FLOP/B", "share"]);
    for ((kind, words), total) in KINDS.iter().zip(profile.kinds()) {
        table.row(vec![
            (*kind).into(),
            (*words).into(),
            total.kernels.to_string(),
            time(total.ms * 1e-3),
            time(total.predicted_ms * 1e-3),
            amount(total.flops_per_s()),
            percent(total.flops_per_s() / profile.machine.fma_flops),
            bytes(total.bytes_per_s()),
            digits(total.intensity()),
            percent(profile.share(total.ms)),
        ]);
    }
    table.text()
}

fn beside(profile: &Profile) -> String {
    let Some(batch) = &profile.batch else { return String::new() };
    let mut table = Table::new(1, &["", "per batch", "of the batch"]);
    for (name, ms) in [
        ("sampling", batch.sampling_ms),
        ("features", batch.features_ms),
        ("graphs", batch.graphs_ms),
        ("all", batch.sampling_ms + batch.features_ms + batch.graphs_ms),
    ] {
        table.row(vec![name.into(), time(ms * 1e-3), percent(ms / profile.run_ms)]);
    }
    table.text()
}

fn once(profile: &Profile) -> String {
    let mut table = Table::new(2, &["", "", "measured"]);
    for (name, words, ms) in [
        ("SGB", "semantic graph build", profile.once.sgb_ms),
        ("load", "the dataset", profile.once.load_ms),
        ("compile", "from source to plan", profile.once.compile_ms),
    ] {
        table.row(vec![name.into(), words.into(), time(ms * 1e-3)]);
    }
    table.text()
}

fn memory(profile: &Profile) -> String {
    let Some((memory, (step, most))) =
        profile.memory.as_ref().and_then(|memory| memory.peak().map(|peak| (memory, peak)))
    else {
        return String::new();
    };
    let parts: Vec<String> =
        step.bytes.iter().map(|(stage, &size)| format!("{stage} {}", bytes(size as f64))).collect();
    format!(
        "\nmemory of values: at most {} at one time (k{}: {}), and {} that are computed once\n",
        bytes(most as f64),
        step.kernel,
        parts.join(", "),
        bytes(memory.fixed_bytes as f64)
    )
}

fn counters(profile: &Profile) -> String {
    let mut text = String::new();
    let counted = profile.counted();
    if !counted.is_empty() {
        let stages = profile.stages();
        let heads: Vec<&str> =
            ["", profile.run.name()].into_iter().chain(stages.iter().map(|stage| stage.stage)).collect();
        let mut table = Table::new(1, &heads);
        for (event, count) in counted {
            let mut cells = vec![event.to_string(), amount(count)];
            cells.extend(stages.iter().map(|stage| amount(profile.counted_in(stage.stage, event))));
            table.row(cells);
        }
        text.push_str(&table.text());
    }
    for missing in &profile.counters.missing {
        text.push_str(&format!("  not {}: {}\n", missing.events.join(", "), missing.reason));
    }
    text
}
