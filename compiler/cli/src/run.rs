//! Options of a run, its report; `hgnnc eval` and `hgnnc infer`.

use std::path::Path;
use std::process::ExitCode;

use hgnnc::{Device, Job, Prepared, Purpose, artifact};
use hgnnc_graph::npy;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_train::report::{GraphWeight, GraphWeights};
use hgnnc_train::{Report, TrainOptions, weights};

use crate::args::{DeviceArgs, EvalArgs, InferArgs, ModelArgs};
use crate::failure::Failure;
use crate::output::{Named, check_apart, check_readable, check_writable, note, print, write};
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

/// Computes the metrics of a trained model.
pub fn eval(args: &EvalArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.report {
        check_writable(path)?;
    }
    let read = [("the model", Some(&*args.model.model)), ("the weights", args.weights.as_deref())];
    check_apart(&[("the report", args.report.as_deref())], &read, args.model.data.as_deref())?;
    let weights = weights_of("eval", &args.model, args.weights.as_deref())?;
    let options = options(&args.device);
    let device = args.device.device;
    let mut prepared = prepare(Purpose::Measure, &args.model, device, &args.disable, options, Terminal::default())?;
    load_weights(&mut prepared, weights)?;
    let report = finish(&mut prepared)?;
    print(&metrics_text(&report))?;
    if let Some(path) = &args.report {
        write_report(path, &report)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the outputs of a trained model.
pub fn infer(args: &InferArgs) -> Result<ExitCode, Failure> {
    check_writable(&args.out)?;
    let read = [
        ("the model", Some(&*args.model.model)),
        ("the weights", args.weights.as_deref()),
        ("the pairs", args.links.as_deref()),
    ];
    check_apart(&[("the output", Some(&args.out))], &read, args.model.data.as_deref())?;
    let weights = weights_of("infer", &args.model, args.weights.as_deref())?;
    let is_parquet = ends_with(&args.out, "parquet");
    if args.links.is_some() && (is_parquet || ends_with(&args.out, "csv")) {
        return Err(Failure::input("scores of pairs are written as `.npy`, in the order of the pairs"));
    }
    if is_parquet {
        hgnnc::check_parquet()?;
    }
    let options = options(&args.device);
    let device = args.device.device;
    if let Some(pairs) = &args.links {
        return score_links(args, pairs, weights, options);
    }
    let (new, mut terminal) = (args.new.as_deref(), Terminal::default());
    let job = Job {
        new: new.map(Path::to_path_buf),
        outputs: args.output.iter().cloned().collect(),
        ..job(&args.model, device, &args.disable, options)?
    };
    let mut prepared = hgnnc::prepare(Purpose::Infer, &job, &mut terminal).map_err(|error| terminal.failed(error))?;
    if let (true, Some(trained)) = (prepared.scores_pairs, &prepared.output)
        && args.output.as_ref().is_none_or(|asked| asked == trained)
    {
        return Err(Failure::input(format!(
            "the output `{trained}` belongs to pairs of vertices: give them with `--links FILE.npy`"
        )));
    }
    load_weights(&mut prepared, weights)?;
    let asked = args.output.as_deref().or(prepared.output.as_deref());
    if let Some(family) = prepared.trainer.families().iter().find(|family| Some(&family.name[..]) == asked) {
        let (name, of_edges) = (family.name.clone(), family.rows == FamilyRows::Edges);
        return write_family(args, &name, of_edges, &read, &mut prepared);
    }
    let mut output = prepared.infer(args.output.as_deref())?;
    let asked = args.output.as_deref().or(prepared.output.as_deref());
    let name = asked.or(prepared.naming.only_output()).unwrap_or("the output");
    warn_of_not_finite(name, &[output.rows, output.width], &output.data);
    if args.probabilities {
        prepared.naming.probabilities(name, &mut output)?;
    }
    let bytes = if ends_with(&args.out, "csv") {
        prepared.naming.csv(name, &output, args.probabilities)?
    } else if is_parquet {
        prepared.naming.table(name, &output, args.probabilities).parquet()?
    } else {
        npy::to_bytes(&[output.rows, output.width], &output.data).map_err(|error| Failure::write(&args.out, &error))?
    };
    write(&args.out, &bytes)?;
    print(&format!("wrote {} ({} rows of {})", args.out.display(), output.rows, output.width))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes an output of semantic graphs, or of their edges.
fn write_family(
    args: &InferArgs,
    name: &str,
    of_edges: bool,
    read: &[Named<'_>],
    prepared: &mut Prepared,
) -> Result<ExitCode, Failure> {
    if args.probabilities {
        return Err(Failure::input(format!(
            "`{name}` has no probabilities: they are of the output that is trained on classes"
        )));
    }
    let (is_csv, is_parquet) = (ends_with(&args.out, "csv"), ends_with(&args.out, "parquet"));
    let as_table = is_csv || is_parquet;
    let beside = (of_edges && !as_table).then(|| args.out.with_extension("edges.npy"));
    if let Some(beside) = &beside {
        check_writable(beside)?;
        let written = [("the output", Some(&*args.out)), ("its edges", Some(&**beside))];
        check_apart(&written, read, args.model.data.as_deref())?;
    }
    let missing = || Failure::Machine(format!("internal error: no output `{name}`"));
    let found = prepared.infer_family(name)?.ok_or_else(missing)?;
    let mut rows = 0;
    for graph in &found.graphs {
        let of_graph = graph.data.len() / found.width.max(1);
        warn_of_not_finite(&format!("{name} of {}", graph.name), &[of_graph, found.width], &graph.data);
        rows += of_graph;
    }
    if is_csv {
        write(&args.out, &prepared.naming.family_csv(name, &found)?)?;
    } else if is_parquet {
        write(&args.out, &prepared.naming.family_parquet(name, &found)?)?;
    } else {
        let failed = |error: std::io::Error| Failure::write(&args.out, &error);
        if let Some(beside) = &beside {
            let edges = || found.graphs.iter().enumerate().flat_map(|(at, of)| of.edges.iter().map(move |e| (at, e)));
            let sources = edges().map(|(_, &(src, _))| i64::from(src));
            let graphs = edges().map(|(graph, _)| graph as i64);
            let all: Vec<i64> = sources.chain(graphs).chain(edges().map(|(_, &(_, dst))| i64::from(dst))).collect();
            write(beside, &npy::to_bytes(&[3, rows], &all).map_err(failed)?)?;
        }
        let all: Vec<f32> = found.graphs.iter().flat_map(|graph| graph.data.iter().copied()).collect();
        write(&args.out, &npy::to_bytes(&[rows, found.width], &all).map_err(failed)?)?;
    }
    let names: Vec<&str> = found.graphs.iter().map(|graph| graph.name.as_str()).collect();
    let edges = if of_edges { format!(", {rows} edges") } else { String::new() };
    let beside = beside.map_or_else(String::new, |path| format!(" and {}", path.display()));
    print(&format!("wrote {}{beside} (rows of {}{edges}: {})", args.out.display(), found.width, names.join(", ")))?;
    Ok(ExitCode::SUCCESS)
}

/// Whether the ending of a file is this one.
fn ends_with(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

/// Warns of values that are not finite; they are written nonetheless, since the rest may be of use.
fn warn_of_not_finite(name: &str, shape: &[usize], numbers: &[f32]) {
    if let Some(found) = weights::not_finite(name, shape, numbers) {
        note(&format!("warning: not all results are finite: {found}"));
    }
}

/// Writes the scores of pairs. They are given as an array of three rows: the source, the position of the relation in
/// the dataset, and the destination of each pair.
fn score_links(
    args: &InferArgs,
    pairs: &Path,
    weights: Option<&Path>,
    options: TrainOptions,
) -> Result<ExitCode, Failure> {
    let wrong = |what: String| Failure::input(format!("{}: {what}", pairs.display()));
    let file = npy::Npy::open(pairs).map_err(|problem| wrong(problem.to_string()))?;
    let &[3, count] = file.shape() else {
        return Err(wrong(format!(
            "pairs are an array [3, pairs] (source, relation, destination), and this is {:?}",
            file.shape()
        )));
    };
    let numbers = file.to_i64().ok_or_else(|| wrong("pairs are whole numbers".into()))?;
    let device = args.device.device;
    let mut prepared = prepare(Purpose::Score, &args.model, device, &args.disable, options, Terminal::default())?;
    if let (Some(asked), Some(trained)) = (&args.output, &prepared.output)
        && asked != trained
    {
        return Err(Failure::input(format!("pairs are scored by the output that is trained, `{trained}`")));
    }
    load_weights(&mut prepared, weights)?;
    let graphs = prepared.trainer.link_graphs();
    let mut by_graph: Vec<Vec<(u32, u32)>> = vec![vec![]; graphs.len()];
    let mut places = Vec::with_capacity(count);
    for pair in 0..count {
        let [src, relation, dst] = [0, 1, 2].map(|row| numbers[row * count + pair]);
        let name = usize::try_from(relation).ok().and_then(|relation| prepared.relations.get(relation));
        let Some(name) = name else {
            let last = prepared.relations.len().saturating_sub(1);
            return Err(wrong(format!("pair {pair} is of relation {relation}; the dataset has 0 to {last}")));
        };
        let Some(graph) = graphs.iter().position(|(known, _)| known == name) else {
            return Err(wrong(format!(
                "pair {pair} is of relation {relation}, `{name}`, which the model does not score"
            )));
        };
        let (num_src, num_dst) = graphs[graph].1;
        let end = |vertex: i64, count: usize| u32::try_from(vertex).ok().filter(|&vertex| (vertex as usize) < count);
        let (Some(src), Some(dst)) = (end(src, num_src), end(dst, num_dst)) else {
            return Err(wrong(format!(
                "pair {pair} joins {src} and {dst}, but `{name}` has {num_src} sources and {num_dst} destinations"
            )));
        };
        places.push((graph, by_graph[graph].len()));
        by_graph[graph].push((src, dst));
    }
    let scores = prepared.trainer.score_pairs(&by_graph)?;
    let scores: Vec<f32> = places.into_iter().map(|(graph, place)| scores[graph][place]).collect();
    let bytes = npy::to_bytes(&[scores.len()], &scores).map_err(|error| Failure::write(&args.out, &error))?;
    write(&args.out, &bytes)?;
    warn_of_not_finite(prepared.output.as_deref().unwrap_or("the output"), &[scores.len()], &scores);
    print(&format!("wrote {} ({} scores)", args.out.display(), scores.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// The report of a finished run. Warns of metrics that are not finite.
pub fn finish(prepared: &mut Prepared) -> Result<Report, Failure> {
    let report = prepared.report()?;
    prepared.not_finite(&report).iter().for_each(|warning| note(&format!("warning: {warning}")));
    Ok(report)
}

/// Writes the report as JSON.
pub fn write_report(path: &Path, report: &Report) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(report)
        .map_err(|error| Failure::Machine(format!("cannot write the report: {error}")))?;
    text.push('\n');
    write(path, text.as_bytes())
}

/// Weights of an output that are shown; a report has all of them.
const MOST_WEIGHTS: usize = 10;

/// The metrics of each part of the split, one line each; then the outputs of semantic graphs, likewise.
pub fn metrics_text(report: &Report) -> String {
    let mut text = String::new();
    for part in ["train", "val", "test"] {
        let Some(metrics) = report.metrics.get(part) else { continue };
        let std = |name: &str| report.std.as_ref()?.get(part)?.get(name).copied();
        let value = |(name, value): (&&str, &f64)| match report.mean.as_ref().and_then(|mean| mean.get(part)?.get(name))
        {
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
