//! Options of a run, its report; `hgnnc eval` and `hgnnc infer`.

use std::path::Path;
use std::process::ExitCode;

use hgnnc::{
    Device, Error, Job, LinkPairs, OutputValues, Prepared, Purpose, Ranks, ResultFormat, artifact, check_apart,
    check_readable, check_writable, not_finite, write_report, write_scores,
};
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_train::report::{GraphWeight, GraphWeights};
use hgnnc_train::{Report, TrainOptions};

use crate::args::{DeviceArgs, EvalArgs, InferArgs, ModelArgs};
use crate::cluster::{on_processes, shows};
use crate::failure::Failure;
use crate::output::{note, print};
use crate::source::Terminal;
use crate::switches::{DisableArgs, Switches};

/// [`hgnnc::prepare`] for arguments.
pub fn prepare(
    purpose: Purpose,
    args: &ModelArgs,
    device: Device,
    disable: &DisableArgs,
    options: TrainOptions,
    mut terminal: Terminal,
) -> Result<Prepared, Failure> {
    let job = Job { baseline: purpose == Purpose::Measure, ..job(args, device, disable, options)? };
    hgnnc::prepare(purpose, &job, &mut terminal).map_err(|error| terminal.failed(error))
}

/// The job of arguments.
pub fn job(args: &ModelArgs, device: Device, disable: &DisableArgs, options: TrainOptions) -> Result<Job, Failure> {
    let Switches { disabled, features } = disable.check()?;
    Ok(Job {
        data: args.data.clone().into(),
        split: args.split.clone(),
        constants: args.set.constants.clone(),
        graph_cache: args.graph_cache(),
        device,
        disabled,
        options: TrainOptions { features, ..options },
        ..Job::new(&args.model)
    })
}

/// The options of the engine. The number of threads also applies to loading the dataset and building semantic graphs.
pub fn options(device: &DeviceArgs) -> TrainOptions {
    TrainOptions {
        threads: device.threads.unwrap_or(0) as usize,
        memory_budget: device.memory_budget,
        precision: device.precision.of_products(),
        code: device.code.mode(),
        ..TrainOptions::default()
    }
}

/// The file of the parameters; `None` for an artifact, which has its own.
fn weights_of<'a>(command: &str, args: &ModelArgs, weights: Option<&'a Path>) -> Result<Option<&'a Path>, Failure> {
    match (artifact::is_one(&args.model), weights) {
        (true, None) => Ok(None),
        (true, Some(_)) => Err(Failure::input(format!(
            "`{}` is an artifact, which has its parameters: leave `--weights` out, or give the model's source",
            args.model.display()
        ))),
        (false, None) => {
            note(&format!(
                "error: `hgnnc {command}` needs the parameters of `{}`: give them with `--weights FILE.safetensors`, or an \
                 artifact (a `.hgnnx` file) as the model",
                args.model.display()
            ));
            Err(Failure::Usage)
        }
        (false, Some(weights)) => {
            check_readable(weights)?;
            Ok(Some(weights))
        }
    }
}

/// Loads parameters; those of an artifact are loaded already.
fn load_weights(prepared: &mut Prepared, weights: Option<&Path>) -> Result<(), Failure> {
    Ok(weights.map_or(Ok(()), |path| prepared.trainer.load_weights(path))?)
}

/// Computes the metrics of a trained model, under a launcher together with the other processes.
pub fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    on_processes(|ranks| eval_with(args, ranks))
}

fn eval_with(args: &EvalArgs, ranks: Option<Ranks>) -> Result<ExitCode, Failure> {
    let shows = shows(ranks.as_ref());
    if let (Some(path), true) = (&args.report, shows) {
        check_writable(path)?;
    }
    let read = [("the model", Some(&*args.model.model)), ("the weights", args.weights.as_deref())];
    check_apart(&[("the report", args.report.as_deref())], &read, args.model.data.as_deref())?;
    let weights = weights_of("eval", &args.model, args.weights.as_deref())?;
    let job = job(&args.model, args.device.device, &args.disable, options(&args.device))?;
    let mut prepared = prepare_on(Purpose::Measure, &Job { baseline: true, ranks, ..job })?;
    load_weights(&mut prepared, weights)?;
    let report = prepared.report()?;
    if shows {
        warn_of_not_finite(&prepared, &report);
        print(&metrics_text(&report))?;
        if let Some(path) = &args.report {
            write_report(path, &report)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// [`hgnnc::prepare`]; of several processes, the first one shows notes and diagnostics.
pub fn prepare_on(purpose: Purpose, job: &Job) -> Result<Prepared, Failure> {
    let shows = shows(job.ranks.as_ref());
    let mut terminal = Terminal { quiet: !shows };
    hgnnc::prepare(purpose, job, &mut terminal).map_err(|error| match error {
        Error::Model(_) | Error::Switch(_) if !shows => Failure::Input(None),
        error => terminal.failed(error),
    })
}

/// Writes the outputs of a trained model, under a launcher together with the other processes.
pub fn infer(args: &InferArgs) -> Result<ExitCode, Failure> {
    on_processes(|ranks| infer_with(args, ranks))
}

fn infer_with(args: &InferArgs, ranks: Option<Ranks>) -> Result<ExitCode, Failure> {
    let shows = shows(ranks.as_ref());
    if shows {
        check_writable(&args.out)?;
    }
    let read = [
        ("the model", Some(&*args.model.model)),
        ("the weights", args.weights.as_deref()),
        ("the pairs", args.links.as_deref()),
    ];
    check_apart(&[("the output", Some(&args.out))], &read, args.model.data.as_deref())?;
    let weights = weights_of("infer", &args.model, args.weights.as_deref())?;
    let format = ResultFormat::of(&args.out)?;
    if args.links.is_some() {
        format.check_scores()?;
    }
    format.check()?;
    let pairs = args.links.as_deref().map(LinkPairs::read).transpose()?;
    let job = Job {
        new: args.new.clone(),
        outputs: args.output.iter().cloned().collect(),
        ranks,
        ..job(&args.model, args.device.device, &args.disable, options(&args.device))?
    };
    if let Some(pairs) = &pairs {
        return score_links(args, pairs, weights, &job, shows);
    }
    let mut prepared = prepare_on(Purpose::Infer, &job)?;
    load_weights(&mut prepared, weights)?;
    let output = args.output.as_deref();
    let edges = prepared.edges_file(output, &args.out);
    if let (Some(edges), true) = (&edges, shows) {
        check_writable(edges)?;
        let written = [("the output", Some(&*args.out)), ("its edges", Some(&**edges))];
        check_apart(&written, &read, args.model.data.as_deref())?;
    }
    let found = prepared.infer_output(output, args.probabilities)?;
    if !shows {
        return Ok(ExitCode::SUCCESS);
    }
    found.warnings.iter().for_each(|line| note(&format!("warning: {line}")));
    found.write(&prepared.naming, &args.out)?;
    print(&written_text(&found.values, &args.out, edges.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

/// The files of an output, and its rows.
fn written_text(values: &OutputValues, out: &Path, edges: Option<&Path>) -> String {
    let beside = edges.map_or_else(String::new, |path| format!(" and {}", path.display()));
    let out = out.display();
    match values {
        OutputValues::Vertices(rows) => format!("wrote {out} ({} rows of {})", rows.rows, rows.width),
        OutputValues::Family(found) => {
            let names: Vec<&str> = found.graphs.iter().map(|graph| graph.name.as_str()).collect();
            let num_edges: usize = found.graphs.iter().map(|graph| graph.edges.len()).sum();
            let edges = match found.rows {
                FamilyRows::Edges => format!(", {num_edges} edges"),
                FamilyRows::Graphs => String::new(),
            };
            format!("wrote {out}{beside} (rows of {}{edges}: {})", found.width, names.join(", "))
        }
    }
}

/// Writes the scores of pairs.
fn score_links(
    args: &InferArgs,
    pairs: &LinkPairs,
    weights: Option<&Path>,
    job: &Job,
    shows: bool,
) -> Result<ExitCode, Failure> {
    let mut prepared = prepare_on(Purpose::Score, job)?;
    load_weights(&mut prepared, weights)?;
    let scores = prepared.score_links(pairs)?;
    if !shows {
        return Ok(ExitCode::SUCCESS);
    }
    write_scores(&args.out, &scores)?;
    let name = prepared.output.as_deref().unwrap_or("the output");
    not_finite(name, &[scores.len()], &scores).iter().for_each(|line| note(&format!("warning: {line}")));
    print(&format!("wrote {} ({} scores)", args.out.display(), scores.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// The report of a finished run. Warns of metrics that are not finite.
pub fn finish(prepared: &mut Prepared) -> Result<Report, Failure> {
    let report = prepared.report()?;
    warn_of_not_finite(prepared, &report);
    Ok(report)
}

fn warn_of_not_finite(prepared: &Prepared, report: &Report) {
    prepared.not_finite(report).iter().for_each(|warning| note(&format!("warning: {warning}")));
}

/// Weights of an output that are shown; a report has all of them.
const MOST_WEIGHTS: usize = 10;

/// The metrics of each part of the split, one line each; then the outputs of semantic graphs, likewise.
pub fn metrics_text(report: &Report) -> String {
    let mut text = String::new();
    for part in ["train", "val", "test"] {
        let Some(metrics) = report.metrics.get(part) else { continue };
        let std = |name: &str| report.std.as_ref()?.get(part)?.get(name).copied();
        let value =
            |(name, value): (&String, &f64)| match report.mean.as_ref().and_then(|mean| mean.get(part)?.get(name)) {
                Some(mean) => format!("{name} {mean:.4} ± {:.4}", std(name).unwrap_or(0.0)),
                None => format!("{name} {value:.4}"),
            };
        let values: Vec<String> = metrics.iter().map(value).collect();
        text.push_str(&format!("{part:>5}: {}\n", values.join("  ")));
    }
    text.push_str(&baseline_text(report));
    for GraphWeights { output, weights } in &report.graph_weights {
        let mut largest: Vec<&GraphWeight> = weights.iter().collect();
        let more = largest.len().saturating_sub(MOST_WEIGHTS);
        if more > 0 {
            largest.sort_by(|a, b| b.weight.total_cmp(&a.weight));
            largest.truncate(MOST_WEIGHTS);
        }
        let values: Vec<String> = largest.iter().map(|of| format!("{} {:.4}", of.graph, of.weight)).collect();
        let more = if more > 0 { format!("  and {more} smaller ones") } else { String::new() };
        text.push_str(&format!("{output:>5}: {}{more}\n", values.join("  ")));
    }
    text
}

/// The features-only baseline in one line: its metrics on the test part, or else on the last part that there is.
fn baseline_text(report: &Report) -> String {
    let Some(baseline) = &report.baseline else { return String::new() };
    let found = ["test", "val", "train"].into_iter().find_map(|part| Some((part, baseline.metrics.get(part)?)));
    let Some((part, metrics)) = found else { return String::new() };
    let values: Vec<String> = metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect();
    let of = if baseline.features > 0 { " of the features" } else { "" };
    format!("without the graph: {part} {} ({}{of})\n", values.join("  "), baseline.kind)
}
