//! Rows that depend on no parameter are computed before training on mini-batches, once for a dataset.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::{Device, Job, ModelSource, Observer, Prepared, Purpose, Ranks, Split, prepare};
use hgnnc_diag::{Diagnostics, SourceMap};
use hgnnc_dist::threads;

/// Papers with wide sparse features, and the metapath of those with a common author.
const SCHEMA: &str = "
schema Acm {
    vertex Paper from \"paper\" { x: f32[1902] sparse, topic: class[3] }
    vertex Author from \"author\"
    relation written_by: Paper -> Author from \"paper-author\"
    metapath PAP = Paper -written_by-> Author <-written_by- Paper
}
";

/// Sums along a graph as in a graph convolution, without a weight.
const SMOOTH: &str = "
layer Smooth() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs {
        z = sum(e.src.x / sqrt(max(e.src.in_degree, 1) * e.dst.in_degree)) over in_edges
    }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}
";

/// Means of the features of neighbours.
const MEANS: &str = "
layer Means() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs { z = mean(e.src.x) over in_edges }
    fuse v: V across graphs { out = sum(v.z) across graphs }
}
";

/// Sums of messages that are divided by the number of edges on which their source sends them.
const SPREAD: &str = "
layer Spread() over graphs: [V -> W] of x: V[in] -> W[in] {
    aggregate e: g in graphs { z = sum(e.src.x / e.src.out_degree) over in_edges }
    fuse v: W across graphs { out = sum(v.z) across graphs }
}
";

fn text(layers: &str, body: &str, batches: &str) -> String {
    let optimizer = "optimizer adam(lr: 0.01)\n    epochs 3";
    let train = format!("train M {{\n    loss cross_entropy(y, Paper.topic)\n    {optimizer}\n    {batches}\n}}\n");
    format!(
        "{layers}{SCHEMA}\nmodel M(schema: Acm) {{\n    let x = row_normalize(Paper.x) @ eye(1902)\n{body}}}\n{train}"
    )
}

/// SeHGNN with labels and dropout, SIGN, and the propagation of APPNP before its weights.
fn models(batches: &str) -> [(&'static str, String); 3] {
    let sehgnn = "    let known = train_labels(Paper.topic)
    let labels = SeHgnnLabels(hidden: 8, dropout: 0.2) over [without_self_loops(PAP)] of known
    let conv = SeHgnnConv(hidden: 8, dropout: 0.2) over [PAP] of (x, labels: labels)
    output y: Paper = linear(relu(conv), 3)
";
    let sign = "    let one = Means() over [PAP] of x
    let two = Means() over [PAP] of one
    output y: Paper = linear(relu(linear(concat(concat(x, one), two), 8)), 3)
";
    let appnp = "    let one = 0.9 * Smooth() over [PAP] of x + 0.1 * x
    let two = 0.9 * Smooth() over [PAP] of one + 0.1 * x
    output y: Paper = linear(relu(linear(two, 8)), 3)
";
    let library = "use std::sehgnn::{SeHgnnConv, SeHgnnLabels}\n";
    [
        ("sehgnn", text(library, sehgnn, batches)),
        ("sign", text(MEANS, sign, batches)),
        ("appnp", text(SMOOTH, appnp, batches)),
    ]
}

fn acm(folder: &Path) -> PathBuf {
    let at = folder.join("acm");
    let pool = hgnnc_cpu::thread_pool(2).expect("threads");
    let size = "acm".parse().expect("a shape");
    pool.install(|| hgnnc_synth::generate_size(size, 0, &at)).expect("written");
    at
}

fn job(text: &str, data: &Path) -> Job {
    let model = ModelSource::Text { path: "a model".into(), text: text.into() };
    let mut job = Job { device: Device::Cpu, data: Some(data).into(), ..Job::new(model) };
    job.options.threads = 2;
    job
}

/// An observer that keeps what is noted.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, line: String) {
        self.0.push(line);
    }

    fn warnings(&mut self, _: &SourceMap, _: &Diagnostics) {}
}

impl Notes {
    /// The line about precomputed rows.
    fn line(&self) -> &str {
        self.0.iter().find_map(|line| line.strip_prefix("precomputed rows: ")).unwrap_or_default()
    }
}

fn prepared(job: &Job) -> (Prepared, Notes) {
    let mut notes = Notes::default();
    let prepared = prepare(Purpose::Train, job, &mut notes).unwrap_or_else(|error| panic!("{error}"));
    (prepared, notes)
}

/// The losses of the epochs, and the outputs of all papers.
fn trained(prepared: &mut Prepared) -> (Vec<f64>, Vec<f32>) {
    let mut losses = vec![];
    let mut on_epoch = |epoch: &hgnnc_train::Epoch| losses.extend(epoch.within.is_none().then_some(epoch.loss));
    prepared.trainer.run(&AtomicBool::new(false), &mut on_epoch).expect("trained");
    (losses, prepared.trainer.infer(Some("y")).expect("y").data)
}

/// Losses and outputs of two runs that differ in the order of sums.
#[track_caller]
fn nearly(what: &str, (losses, outputs): (Vec<f64>, Vec<f32>), (expected_losses, expected): (Vec<f64>, Vec<f32>)) {
    for (loss, expected) in losses.iter().zip(&expected_losses) {
        assert!((loss - expected).abs() < 1e-4 * expected, "{what}: {losses:?} instead of {expected_losses:?}");
    }
    let most = expected.iter().fold(0f32, |most, x| most.max(x.abs()));
    for (found, expected) in outputs.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-3 * most, "{what}: {found} instead of {expected}");
    }
    assert_eq!((losses.len(), outputs.len()), (expected_losses.len(), expected.len()), "{what}");
}

fn hops(prepared: &Prepared) -> usize {
    prepared.trainer.executable().batch.as_ref().expect("batches").hops
}

/// Without sampling, batches with precomputed rows learn what batches without them learn.
#[test]
fn training_equals_that_of_batches_that_compute_the_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = acm(folder.path());
    for (name, text) in models("batch 200") {
        let job = job(&text, &data);
        let mut without = job.clone();
        without.disabled.passes.push("precompute".into());
        let ((mut with, notes), (mut without, other)) = (prepared(&job), prepared(&without));
        assert_eq!((hops(&with), other.line()), (0, ""), "{name}");
        assert!(hops(&without) > 0 && !notes.line().is_empty(), "{name}: {:?}", notes.0);
        let ((losses, outputs), (expected_losses, expected)) = (trained(&mut with), trained(&mut without));
        assert_eq!(losses.len(), 3, "{name}");
        nearly(name, (losses, outputs), (expected_losses, expected));
    }
}

/// Batches of one part of a model draw the in-edges of another.
#[test]
fn hops_above_precomputed_rows_are_sampled() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = acm(folder.path());
    let body = "    let one = Means() over [PAP] of x
    let hidden = relu(linear(one, 8))
    output y: Paper = linear(Means() over [PAP] of hidden, 3)
";
    let text = text(MEANS, body, "batch 200\n    fanout [4]");
    let (mut found, notes) = prepared(&job(&text, &data));
    assert!(hops(&found) == 1 && notes.line().starts_with("1 matrix"), "{:?}", notes.0);
    let losses = trained(&mut found).0;
    assert!(losses[2] < losses[0], "{losses:?}");
}

/// A metapath that only precomputed rows need is not built where its sums can go hop by hop.
#[test]
fn metapaths_beneath_precomputed_rows_are_factored() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = acm(folder.path());
    let [_, (_, sign), _] = models("batch 200");
    let of_subjects = sign
        .replace(
            "relation written_by: Paper -> Author from \"paper-author\"",
            "relation about: Paper -> Subject from \"paper-subject\"",
        )
        .replace("vertex Author from \"author\"", "vertex Subject from \"subject\"")
        .replace("PAP = Paper -written_by-> Author <-written_by- Paper", "PAP = Paper -about-> Subject <-about- Paper");
    let job = job(&of_subjects, &data);
    let mut built = job.clone();
    built.graph_cache = None;
    built.disabled.passes.push("factor_metapaths".into());
    let [(losses, outputs), (expected, _)] = [job, built].map(|job| {
        let mut prepared = prepared(&job).0;
        let graphs = &prepared.trainer.data().graphs;
        assert!(graphs.iter().any(|graph| graph.deferred.is_some()), "its edges are not listed for training");
        trained(&mut prepared)
    });
    assert!(losses.iter().zip(&expected).all(|(loss, expected)| (loss - expected).abs() < 1e-4 * expected));
    assert!(outputs.iter().all(|x| x.is_finite()));
}

/// The cache beside the dataset has the rows for every model that computes them from the same data.
#[test]
fn rows_are_found_beside_the_dataset() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = acm(folder.path());
    let [_, (_, sign), _] = models("batch 200");
    let run = |text: &str| {
        let (mut prepared, notes) = prepared(&job(text, &data));
        (trained(&mut prepared), notes.line().to_owned())
    };
    let (first, line) = run(&sign);
    assert!(line.starts_with("2 matrices") && line.contains("computed"), "{line}");
    let (second, line) = run(&sign);
    assert!(line.contains(", from the cache"), "{line}");
    assert_eq!(second, first);
    let (_, line) = run(&sign.replace("linear(concat(concat(x, one), two), 8)", "linear(concat(one, two), 5)"));
    assert!(line.contains(", from the cache"), "rows do not depend on what is learned from them: {line}");
    let (_, line) = run(&sign.replace("row_normalize(Paper.x)", "Paper.x"));
    assert!(line.contains(", computed"), "rows of other features: {line}");

    // Damaged and cut files are computed anew, and replaced.
    let rows = || -> Vec<PathBuf> {
        let files = fs::read_dir(data.join(".hgnnc-cache")).expect("a cache").flatten().map(|entry| entry.path());
        files.filter(|path| path.extension().is_some_and(|extension| extension == "rows")).collect()
    };
    assert_eq!(rows().len(), 4);
    for damage in [|bytes: &mut Vec<u8>| bytes[5000] ^= 1, |bytes: &mut Vec<u8>| bytes.truncate(4000)] {
        for path in rows() {
            let mut bytes = fs::read(&path).expect("read");
            damage(&mut bytes);
            fs::write(&path, bytes).expect("written");
        }
        let (found, line) = run(&sign);
        assert!(line.contains(", computed"), "{line}");
        assert_eq!(found, first);
    }
    assert!(run(&sign).1.contains(", from the cache"));

    let mut uncached = job(&sign, &data);
    uncached.graph_cache = None;
    let (mut prepared, notes) = prepared(&uncached);
    assert!(notes.line().contains("not cached"), "{:?}", notes.0);
    assert_eq!(trained(&mut prepared), first);
}

/// Several processes divide the rows like features: they learn what one of them learns.
#[test]
fn processes_divide_the_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = acm(folder.path());
    for (name, text) in models("batch 200") {
        let mut first = None;
        for ranks in [1, 2, 3] {
            let all = threads::run(ranks, |comm| {
                let mut job = job(&text, &data);
                (job.options.threads, job.ranks) = (1, Some(Ranks::new(Arc::clone(comm))));
                let (mut prepared, notes) = prepared(&job);
                (hops(&prepared), notes.line().to_owned(), trained(&mut prepared))
            });
            for (rank, (hops, line, trained)) in all.into_iter().enumerate() {
                assert!(hops == 0 && !line.is_empty(), "{name}, rank {rank} of {ranks}: {hops} hops, {line}");
                let first = first.get_or_insert_with(|| trained.clone());
                nearly(&format!("{name}, rank {rank} of {ranks}"), trained, first.clone());
            }
        }
    }
}

/// Rows that do not fit are sampled, with a warning.
#[test]
fn rows_that_do_not_fit_are_sampled() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = acm(folder.path());
    let [_, (_, sign), _] = models("batch 200");
    let mut small = job(&sign, &data);
    small.options.memory_budget = Some(80_000_000);
    let mut notes = Notes::default();
    let found = prepare(Purpose::Train, &small, &mut notes);
    let is_warning = |line: &&String| line.starts_with("warning: rows that depend on no parameter would take");
    assert!(notes.0.iter().any(|line| is_warning(&line)), "{:?}", notes.0);
    if let Ok(found) = found {
        assert_eq!(hops(&found), 2);
    }
    // Batches need some of these rows, so all of them stay.
    let with_degrees = sign.replace("Means() over [PAP] of one", "Spread() over [PAP] of linear(one, 8)");
    let mut small = job(&format!("{SPREAD}{with_degrees}"), &data);
    small.options.memory_budget = Some(80_000_000);
    let mut notes = Notes::default();
    let found = prepare(Purpose::Train, &small, &mut notes);
    assert!(!notes.0.iter().any(|line| is_warning(&line)), "{:?}", notes.0);
    let reason = found.map_or_else(|error| error.to_string(), |_| String::new());
    assert!(reason.is_empty() || reason.contains("but the budget is"), "{reason}");
}

/// A batch has no out-edges. Their number is that of the whole graph: a batch of all labelled papers learns what the whole graph
/// learns, on several processes as well.
#[test]
fn out_degrees_are_those_of_the_whole_graph() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = acm(folder.path());
    let body = "    let authors = Spread() over written_by of linear(x, 8)
    output y: Paper = linear(relu(Spread() over reverse(written_by) of authors), 3)
";
    let (mut whole, _) = prepared(&job(&text(SPREAD, body, ""), &data));
    let expected = trained(&mut whole);
    let batches = text(SPREAD, body, "batch 10000");
    let (mut found, notes) = prepared(&job(&batches, &data));
    assert_eq!((hops(&found), notes.line().starts_with("2 matrices, ")), (2, true), "{:?}", notes.0);
    nearly("batches", trained(&mut found), expected.clone());
    let on_ranks = |split: Split| {
        threads::run(2, |comm| {
            let mut job = job(&batches, &data);
            job.options.threads = 1;
            job.ranks = Some(Ranks { split, ..Ranks::new(Arc::clone(comm)) });
            prepare(Purpose::Train, &job, &mut Notes::default()).map(|mut prepared| trained(&mut prepared))
        })
    };
    for found in on_ranks(Split::Seeds) {
        nearly("two processes", found.unwrap_or_else(|error| panic!("{error}")), expected.clone());
    }
    // Each of these has the edges of its own relations only.
    for found in on_ranks(Split::Relations) {
        let message = found.expect_err("sums over out-edges").to_string();
        assert!(message.contains("it sums over out-edges, and a batch has in-edges only"), "{message}");
    }
}
