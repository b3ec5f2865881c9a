//! The compiler as a library: from a file to training and results, errors as values, progress by callback, cancellation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hgnnc::{DataSource, Device, Error, Job, ModelSource, Observer, Prepared, Purpose, Silent, prepare};
use hgnnc_diag::{Diagnostics, SourceMap};
use hgnnc_train::Outcome;

/// A model that cannot be trained.
const MODEL: &str = "
use std::gcn::GcnConv

schema Cora {
    vertex Paper from \"paper\" { x: f32[1433] sparse, topic: class[7] }
    relation cites: Paper -> Paper
}

model Net(schema: Cora) {
    let hidden = dropout(relu(GcnConv(hidden: 8) over self_loops(cites) of Paper.x), 0.5)
    output logits: Paper = GcnConv(hidden: 7) over self_loops(cites) of hidden
}
";

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gcn/cora.hgnn")
}

/// The dataset of the example, generated into a folder.
fn cora(folder: &Path) -> PathBuf {
    let at = folder.join("cora");
    let pool = hgnnc_cpu::thread_pool(2).expect("threads");
    let size = "cora".parse().expect("a shape");
    pool.install(|| hgnnc_synth::generate_size(size, 0, &at)).expect("written");
    at
}

fn job(model: &Path, data: &Path) -> Job {
    let mut job = Job { data: Some(data).into(), device: Device::Cpu, ..Job::new(model) };
    (job.options.threads, job.options.epochs) = (2, Some(5));
    job
}

/// Observer that records notes and the codes of warnings.
#[derive(Default)]
struct Heard {
    notes: Vec<String>,
    codes: Vec<String>,
}

impl Observer for Heard {
    fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    fn warnings(&mut self, _sources: &SourceMap, found: &Diagnostics) {
        self.codes.extend(found.iter().map(|diagnostic| diagnostic.code.to_string()));
    }
}

#[test]
fn a_model_is_trained_measured_and_inferred() {
    let folder = tempfile::tempdir().expect("a folder");
    let (model, data) = (example(), cora(folder.path()));
    let mut prepared = prepare(Purpose::Train, &job(&model, &data), &mut Silent).expect("prepared");
    let mut epochs = vec![];
    let outcome = prepared.trainer.run(&AtomicBool::new(false), &mut |epoch| epochs.push(epoch.epoch));
    assert_ne!(outcome.expect("trained"), Outcome::Interrupted);
    assert_eq!(epochs, [0, 1, 2, 3, 4]);
    let report = prepared.report().expect("a report");
    assert!(report.compile_s > 0.0 && report.load_s > 0.0);
    let weights = folder.path().join("w.safetensors");
    prepared.trainer.save_weights(&weights).expect("saved");

    let open = |purpose| -> Prepared {
        let mut prepared = prepare(purpose, &job(&model, &data), &mut Silent).expect("prepared");
        prepared.trainer.load_weights(&weights).expect("loaded");
        prepared
    };
    let measured = open(Purpose::Measure).report().expect("a report");
    assert_eq!(measured.metrics["test"], report.metrics["test"]);
    let rows = open(Purpose::Infer).trainer.infer(None).expect("logits");
    assert_eq!((rows.rows, rows.width), (2708, 7));
}

#[test]
fn a_text_and_a_dataset_in_memory_train_like_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = cora(folder.path());
    let files = job(&example(), &data);
    let text = std::fs::read_to_string(example()).expect("read");
    let memory = Job {
        model: ModelSource::Text { path: "a model".into(), text: text.clone() },
        data: DataSource::Loaded(Arc::new(hgnnc_dataset::Dataset::load(&data).expect("loaded"))),
        ..files.clone()
    };
    let mut trained = [files, memory].map(|job| {
        let mut prepared = prepare(Purpose::Train, &job, &mut Silent).expect("prepared");
        prepared.trainer.run(&AtomicBool::new(false), &mut |_| {}).expect("trained");
        prepared.trainer.weights().expect("weights")
    });
    assert_eq!(trained[0], trained[1]);
    // Weights that do not fit are refused, and named.
    let mut prepared = prepare(Purpose::Infer, &job(&example(), &data), &mut Silent).expect("prepared");
    prepared.trainer.set_weights(Path::new("those"), &trained[0]).expect("set");
    let first = trained[1].tensors.keys().next().expect("a tensor").clone();
    trained[1].tensors.remove(&first);
    let wrong = prepared.trainer.set_weights(Path::new("those"), &trained[1]).expect_err("refused").to_string();
    assert!(wrong.starts_with("those: ") && wrong.contains(&format!("`{first}` is missing")), "{wrong}");
    // Messages of a text name it.
    let model = ModelSource::Text { path: "a model".into(), text: text.replace("GcnConv", "GnConv") };
    let wrong = prepare(Purpose::Train, &Job::new(model), &mut Silent).err().expect("an error").to_string();
    assert!(wrong.contains("a model:"), "{wrong}");
}

#[test]
fn training_stops_where_it_is_cancelled() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut prepared = prepare(Purpose::Train, &job(&example(), &cora(folder.path())), &mut Silent).expect("prepared");
    let (stop, mut epochs) = (AtomicBool::new(false), 0);
    let outcome = prepared.trainer.run(&stop, &mut |_| {
        epochs += 1;
        stop.store(epochs == 2, Ordering::Relaxed);
    });
    assert_eq!(outcome.expect("stopped"), Outcome::Interrupted);
    assert_eq!(prepared.report().expect("a report").epochs, 2);
}

#[test]
fn errors_are_values() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("m.hgnn");
    let failure = |text: &str, purpose: Purpose, data: &Path, observer: &mut dyn Observer| -> Error {
        std::fs::write(&file, text).expect("written");
        prepare(purpose, &job(&file, data), observer).err().expect("an error")
    };
    let nowhere = folder.path().join("nowhere");
    // A model with errors: all diagnostics, with their text; nothing was heard before.
    let mut heard = Heard::default();
    let wrong = failure(&MODEL.replace("relu(", "rellu("), Purpose::Train, &nowhere, &mut heard);
    assert!(matches!(&wrong, Error::Model(found) if found.1.has_errors()), "{wrong}");
    assert!(wrong.to_string().contains("rellu"), "{wrong}");
    assert!(heard.codes.is_empty());
    // One that cannot be trained, and data that is not there.
    let wrong = failure(MODEL, Purpose::Train, &nowhere, &mut Silent);
    assert!(matches!(&wrong, Error::Input(text) if text.contains("no `train` block")), "{wrong}");
    let wrong = failure(MODEL, Purpose::Infer, &nowhere, &mut Silent);
    assert!(matches!(&wrong, Error::Input(text) if text.contains("dataset.toml")), "{wrong}");
    let wrong = prepare(Purpose::Train, &Job::new(&nowhere), &mut Silent).err().expect("an error");
    assert!(matches!(&wrong, Error::Input(text) if text.contains("cannot read")), "{wrong}");
    // Too little memory is the machine's.
    let mut small = job(&example(), &cora(folder.path()));
    small.options.memory_budget = Some(1024);
    let wrong = prepare(Purpose::Train, &small, &mut Silent).err().expect("an error");
    assert!(matches!(&wrong, Error::Machine(text) if text.contains("the budget is 1024 bytes")), "{wrong}");
    // A pass that does not exist.
    let mut unknown = job(&example(), &cora(folder.path()));
    unknown.disabled.passes.push("nothing".into());
    let wrong = prepare(Purpose::Train, &unknown, &mut Silent).err().expect("an error");
    assert!(matches!(&wrong, Error::Switch(_)), "{wrong}");
    assert!(wrong.to_string().contains("nothing"), "{wrong}");
}

#[test]
fn an_observer_hears_of_choices() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut heard = Heard::default();
    let mut job = job(&example(), &cora(folder.path()));
    job.options.threads = std::thread::available_parallelism().expect("known").get() + 1;
    prepare(Purpose::Train, &job, &mut heard).expect("prepared");
    assert!(heard.notes.iter().any(|line| line.contains("threads share")), "{:?}", heard.notes);
}
