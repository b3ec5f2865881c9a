//! Whole training runs: they learn, resume bit by bit, stop, and keep the best epoch.

#[path = "../../cpu/tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::Case;
use hgnnc_codegen_cpu::{Options, compile_executable};
use hgnnc_cpu::{CpuBackend, EngineOptions, thread_pool};
use hgnnc_data::{BoundData, ExecError, GroundTruth, InputData, Target};
use hgnnc_executable::{Executable, Kernels};
use hgnnc_ir::dataflow::Init;
use hgnnc_ir::random::uniform;
use hgnnc_ir::training::{self, Criterion, Keep, Measure, Metric, Part, Stop, Task, Trained, Training};
use hgnnc_ir::*;
use hgnnc_kernels::simd::Dispatch;
use hgnnc_train::{Outcome, TrainOptions, Trainer};

const VERTICES: usize = 300;
const COLUMNS: usize = 40;
const CLASSES: usize = 3;
const T0: Space = Space::Vertices(VertexType(0));

/// Softmax regression on sparse features with dropout, trained by Adam; gradients by hand.
fn model(rate: f64) -> (Executable, BoundData) {
    let labels: Vec<i32> = (0..VERTICES as u64).map(|v| (uniform(1, v) * CLASSES as f64) as i32).collect();
    let rows: Vec<Vec<(u32, f32)>> = labels
        .iter()
        .enumerate()
        .map(|(v, &label)| {
            let mut columns: Vec<u32> = (0..6)
                .map(|i| {
                    let draw = uniform(2, (v * 6 + i) as u64);
                    if i < 3 { label as u32 + 3 * (draw * 10.0) as u32 } else { (draw * COLUMNS as f64) as u32 }
                })
                .collect();
            columns.sort_unstable();
            columns.dedup();
            columns.into_iter().map(|c| (c, 1.0)).collect()
        })
        .collect();
    let mut case = Case::new(&[VERTICES], &[]);
    let x = case.sparse(VertexType(0), COLUMNS, &rows);
    let target = case.labels(VertexType(0), labels.clone());
    let train: Vec<f32> = (0..VERTICES).map(|v| if v < 150 { 1.0 } else { 0.0 }).collect();
    let mask = case.input(Type::new(T0, vec![]), train);
    let w = case.weight(&[COLUMNS, CLASSES]);
    case.flow.params[0].init = Init::Glorot { fan_in: Dim::Fixed(COLUMNS), fan_out: CLASSES };
    case.flow.params[0].name = "head.weight".into();
    let mut infer = case.flow.clone();
    infer.name = "infer".into();
    let logits = infer.add(Op::MatMul { batch: 0 }, &[x, w]);
    let row_loss = cross_entropy(&mut infer, logits, target).0;
    infer.output("y", logits);
    infer.output("row_loss", row_loss);

    let mut step_input = Type::scalar();
    step_input.dims.clear();
    let decl = dataflow::InputDecl { name: "step".into(), ty: step_input, binding: dataflow::Binding::StepNumber };
    case.data.inputs.push(InputData::StepNumber);
    // Same tables in both programs.
    infer.declare_input(decl.clone());
    let step = case.flow.declare_input(decl);
    let flow = &mut case.flow;
    let step = flow.add(Op::Input(step), &[]);
    let ty = flow.ty(x).clone();
    let dropout = flow.add(Op::RandomMask { stream: 0, rate, ty }, &[]);
    let dropped = flow.binary(BinaryOp::Mul, x, dropout);
    let logits = flow.add(Op::MatMul { batch: 0 }, &[dropped, w]);
    let (row_loss, probability, hot) = cross_entropy(flow, logits, target);
    let count = flow.add(Op::ReduceSpace(Reduce::Sum), &[mask]);
    let masked = flow.binary(BinaryOp::Mul, row_loss, mask);
    let sum = flow.add(Op::ReduceSpace(Reduce::Sum), &[masked]);
    let loss = flow.binary(BinaryOp::Div, sum, count);
    flow.cursor.phase = Phase::Backward;
    let share = flow.binary(BinaryOp::Div, mask, count);
    let difference = flow.binary(BinaryOp::Sub, probability, hot);
    let dlogits = flow.binary(BinaryOp::Mul, difference, share);
    let dw = flow.add(Op::Outer { batch: 0 }, &[dropped, dlogits]);
    flow.cursor = dataflow::Cursor { stage: Stage::PU, phase: Phase::Update, origin: None };
    let (new_w, new_m, new_v) = adam(flow, Param(0), w, dw, step, 0.02);
    flow.output("loss", loss);
    for (kind, value) in [
        (OutputKind::UpdateParam(Param(0)), new_w),
        (OutputKind::UpdateState(Param(0), 0), new_m),
        (OutputKind::UpdateState(Param(0), 1), new_v),
    ] {
        flow.outputs.push(Output { kind, value });
    }
    let training = Training {
        trained: vec![Trained {
            name: "y".into(),
            output: "y".into(),
            weight: 1.0,
            target: training::Target::Vertices { vertex: VertexType(0), label: "y".into() },
            task: Task::Classify { classes: CLASSES },
        }],
        has_number: false,
        epochs: 60,
        stop: None,
        select: Criterion { part: Part::Val, measure: Measure { metric: Metric::Loss, term: None } },
        keep: Keep::Best,
        metrics: vec![Metric::MacroF1],
        split: None,
        dataset: None,
        seed: 3,
        batch: None,
    };
    let lowered = |flow: &Dataflow| hgnnc_fusion::lower(flow).expect("every operation has a kernel");
    let executable = Executable {
        model: "regression".into(),
        cpu: None,
        sampler: None,
        score: None,
        rank: [None, None],
        head: None,
        kernels: Kernels { train: Some(lowered(&case.flow)), infer: lowered(&infer), ..Kernels::default() },
        train: Some(case.flow),
        infer,
        training: Some(training),
        batch: None,
        graphs: None,
        families: vec![],
    };
    let mut data = case.data;
    data.truths = vec![GroundTruth {
        vertex: Some(VertexType(0)),
        labels: Some(Target::Classes(labels)),
        parts: [(0..150).collect(), (150..200).collect(), (200..300).collect()],
    }];
    (executable, data)
}

/// Loss of each row, probabilities and the labels as rows.
fn cross_entropy(flow: &mut Dataflow, logits: Value, labels: Value) -> (Value, Value, Value) {
    let hot = flow.add(Op::OneHot { classes: CLASSES }, &[labels]);
    let lse = flow.reduce_trailing(Reduce::Lse, 1, logits);
    let shifted = flow.binary(BinaryOp::Sub, logits, lse);
    let picked = flow.binary(BinaryOp::Mul, shifted, hot);
    let sum = flow.reduce_trailing(Reduce::Sum, 1, picked);
    let loss = flow.unary(UnaryOp::Neg, sum);
    let probability = flow.unary(UnaryOp::Exp, shifted);
    (loss, probability, hot)
}

fn adam(flow: &mut Dataflow, param: Param, w: Value, g: Value, step: Value, rate: f64) -> (Value, Value, Value) {
    use BinaryOp::*;
    let moment = |flow: &mut Dataflow, slot, beta: f64, g| {
        let old = flow.add(Op::State(param, slot), &[]);
        let (keep, add) = (flow.constant(beta), flow.constant(1.0 - beta));
        let (old, new) = (flow.binary(Mul, old, keep), flow.binary(Mul, g, add));
        let moment = flow.binary(Add, old, new);
        let power = flow.binary(Pow, keep, step);
        let one = flow.constant(1.0);
        let rest = flow.binary(Sub, one, power);
        (moment, flow.binary(Div, moment, rest))
    };
    let (m, m_hat) = moment(flow, 0, 0.9, g);
    let square = flow.binary(Mul, g, g);
    let (v, v_hat) = moment(flow, 1, 0.999, square);
    let root = flow.unary(UnaryOp::Sqrt, v_hat);
    let small = flow.constant(1e-8);
    let root = flow.binary(Add, root, small);
    let step = flow.binary(Div, m_hat, root);
    let rate = flow.constant(rate);
    let step = flow.binary(Mul, step, rate);
    (flow.binary(Sub, w, step), m, v)
}

fn bound(mut executable: Executable, data: BoundData, options: TrainOptions) -> Result<Trainer, ExecError> {
    let compile = Options::new(options.code, options.features, Dispatch::new(options.features).level());
    compile_executable(&mut executable, &compile, &compile);
    let TrainOptions { threads, features, .. } = options;
    let machine = EngineOptions { threads, dispatch: Dispatch::new(features), room: None };
    let backend = CpuBackend::new(&executable, thread_pool(threads)?, machine);
    Trainer::new(executable, Box::new(backend), data, options)
}

fn options(threads: usize) -> TrainOptions {
    TrainOptions { threads, ..TrainOptions::default() }
}

fn trainer(options: TrainOptions) -> Trainer {
    let (executable, data) = model(0.3);
    bound(executable, data, options).expect("the model fits its data")
}

fn never() -> AtomicBool {
    AtomicBool::new(false)
}

fn losses(trainer: &mut Trainer) -> Vec<u64> {
    let mut losses = vec![];
    trainer.run(&never(), &mut |epoch| losses.push(epoch.loss.to_bits())).expect("trains");
    losses
}

fn bits(trainer: &mut Trainer) -> Vec<u32> {
    trainer.params().expect("read")[0].iter().map(|x| x.to_bits()).collect()
}

#[test]
fn training_learns_and_reports() {
    let mut trainer = trainer(options(2));
    let untrained = trainer.evaluate().expect("evaluated");
    let outcome = trainer.run(&never(), &mut |_| {}).expect("trains");
    assert_eq!(outcome, Outcome::Finished);
    let report = trainer.report().expect("evaluated");
    assert!(report.metrics["test"]["accuracy"] > 0.7, "{:?} after {:?}", report.metrics, untrained);
    assert!(report.metrics["val"]["loss"] < untrained["val"]["loss"]);
    assert_eq!((report.epochs, report.params), (60, (COLUMNS * CLASSES) as u64));
    assert!(report.best_epoch.is_some() && report.epoch_ms.median > 0.0);
    let json = serde_json::to_value(&report).expect("a report is JSON");
    for key in ["model", "epoch_ms", "forward_ms", "stage_ms", "peak_rss_bytes", "arena_bytes", "semantic_graphs"] {
        assert!(json.get(key).is_some(), "{key}");
    }
}

#[test]
fn runs_with_one_seed_are_equal_for_any_number_of_threads() {
    let (mut one, mut again, mut three) = (trainer(options(1)), trainer(options(1)), trainer(options(3)));
    let first = losses(&mut one);
    assert_eq!(first, losses(&mut again));
    assert_eq!(first, losses(&mut three));
    assert_eq!(bits(&mut one), bits(&mut three));
    let mut other = trainer(TrainOptions { seed: Some(4), ..options(1) });
    assert_ne!(first, losses(&mut other));
}

#[test]
fn a_resumed_run_equals_the_uninterrupted_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let with_checkpoint = |resume| TrainOptions { checkpoint: Some(folder.path().join("run")), resume, ..options(2) };
    let mut whole = trainer(options(2));
    let expected = losses(&mut whole);

    let stop = AtomicBool::new(false);
    let mut first = trainer(with_checkpoint(false));
    let outcome = first.run(&stop, &mut |epoch| stop.store(epoch.epoch == 19, Ordering::Relaxed)).expect("trains");
    assert_eq!((outcome, first.epochs_done()), (Outcome::Interrupted, 20));

    let mut second = trainer(with_checkpoint(true));
    assert_eq!(second.epochs_done(), 20);
    let rest = losses(&mut second);
    assert_eq!(rest, expected[20..]);
    assert_eq!(bits(&mut second), bits(&mut whole));
    assert_eq!(second.report().expect("evaluated").losses.len(), 60);
    assert_eq!(second.report().expect("evaluated").best_epoch, whole.report().expect("evaluated").best_epoch);

    let (executable, data) = model(0.3);
    let wrong_seed = TrainOptions { seed: Some(9), ..with_checkpoint(true) };
    let error = bound(executable, data, wrong_seed).expect_err("another seed").to_string();
    assert!(error.contains("seed 3"), "{error}");
}

/// An epoch is told of before it is in a checkpoint, so that a log of the epochs has no gap where a run was killed.
#[test]
fn a_killed_run_has_told_of_all_epochs_of_its_checkpoint() {
    let place = tempfile::tempdir().expect("a folder");
    let options = |resume| TrainOptions {
        checkpoint: Some(place.path().join("run")),
        resume,
        checkpoint_every: Duration::ZERO,
        ..options(2)
    };
    let mut told = 0;
    let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        trainer(options(false)).run(&never(), &mut |epoch| {
            assert!(epoch.epoch < 9, "killed");
            told += 1;
        })
    }));
    assert!(killed.is_err());
    assert_eq!((told, trainer(options(true)).epochs_done()), (9, 9));
}

/// A temporarily full disk costs only the checkpoints of that time.
#[test]
fn a_checkpoint_that_cannot_be_written_is_tried_again() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let options = |resume| TrainOptions {
        checkpoint: Some(folder.clone()),
        resume,
        checkpoint_every: Duration::ZERO,
        ..options(2)
    };
    let mut whole = trainer(TrainOptions { checkpoint: None, ..options(false) });
    let expected = losses(&mut whole);

    // A file stands in the way.
    std::fs::write(&folder, "").expect("written");
    let (mut warnings, mut losses) = (vec![], vec![]);
    let mut first = trainer(options(false));
    let outcome = first.run(&never(), &mut |epoch| {
        losses.push(epoch.loss.to_bits());
        warnings.extend(epoch.warning.map(|warning| (epoch.epoch, warning.to_owned())));
        if epoch.epoch == 9 {
            std::fs::remove_file(&folder).expect("removed");
        }
    });
    assert_eq!(outcome.expect("trains"), Outcome::Finished);
    assert!(first.unsaved().is_none());
    assert_eq!((losses, bits(&mut first)), (expected.clone(), bits(&mut whole)));
    let epochs: Vec<u64> = warnings.iter().map(|warning| warning.0).collect();
    assert_eq!(epochs, [1, 10], "{warnings:?}");
    assert!(warnings[0].1.contains("no checkpoint could be written after epoch 1: cannot make"), "{warnings:?}");
    assert!(warnings[1].1.contains("a checkpoint could be written again after epoch 10"), "{warnings:?}");
    assert_eq!(trainer(options(true)).epochs_done(), 60);

    // The obstacle remains at the end: the caller gets the error, and has the parameters.
    std::fs::remove_dir_all(&folder).expect("removed");
    std::fs::write(&folder, "").expect("written");
    let mut last = trainer(options(false));
    assert_eq!(last.run(&never(), &mut |_| {}).expect("trains"), Outcome::Finished);
    assert!(matches!(last.unsaved(), Some(ExecError::Io { action: "make", .. })), "{:?}", last.unsaved());
    assert_eq!(bits(&mut last), bits(&mut whole));
}

#[test]
fn early_stopping_keeps_the_best_epoch() {
    let (mut executable, data) = model(0.0);
    let training = executable.training.as_mut().expect("trained");
    training.epochs = 2000;
    training.stop = Some(Stop { criterion: training.select, patience: 10 });
    let mut trainer = bound(executable, data, options(1)).expect("fits");
    let mut best = None;
    let outcome = trainer
        .run(&never(), &mut |epoch| {
            if epoch.best {
                best = epoch.criterion.map(|(_, value)| (epoch.epoch, value));
            }
        })
        .expect("trains");
    let (epoch, value) = best.expect("some epoch is the best");
    assert_eq!(outcome, Outcome::StoppedEarly);
    assert_eq!(trainer.epochs_done(), epoch + 11);
    assert_eq!(trainer.evaluate().expect("evaluated")["val"]["loss"], value);
}

#[test]
fn the_last_epoch_is_kept_where_the_model_says_so() {
    const EPOCHS: u64 = 2000;
    let asked = |keep: Keep| {
        let (mut executable, data) = model(0.0);
        let training = executable.training.as_mut().expect("trained");
        (training.epochs, training.keep) = (EPOCHS, keep);
        bound(executable, data, options(1)).expect("fits")
    };
    let [mut best, mut last] = [Keep::Best, Keep::Last].map(|keep| {
        let mut trainer = asked(keep);
        let mut chosen = 0;
        trainer.run(&never(), &mut |epoch| chosen += u64::from(epoch.best)).expect("trains");
        assert_eq!(chosen > 0, keep == Keep::Best);
        trainer
    });
    let reports = [&mut best, &mut last].map(|trainer| trainer.report().expect("evaluated"));
    assert_eq!(reports[0].select.as_deref(), Some("val.loss"));
    assert!(reports[0].best_epoch < Some(EPOCHS), "the last epoch is not the best one: {:?}", reports[0].best_epoch);
    assert_eq!((reports[1].select.as_deref(), reports[1].best_epoch), (Some("last"), Some(EPOCHS)));
    assert!(reports[1].metrics["val"]["loss"] > reports[0].metrics["val"]["loss"]);
    let mut by_hand = asked(Keep::Best);
    for epoch in 0..EPOCHS {
        by_hand.train_step(epoch).expect("a step");
    }
    assert_eq!(bits(&mut last), bits(&mut by_hand));
    assert_ne!(bits(&mut best), bits(&mut by_hand));
}

#[test]
fn a_loss_that_is_not_finite_stops_with_the_best_parameters() {
    let (executable, mut data) = model(0.0);
    for input in &mut data.inputs {
        if let InputData::Numbers(numbers) = input {
            let mut changed = numbers.to_vec();
            changed[0] = f32::NAN;
            *numbers = changed.into();
        }
    }
    let mut trainer = bound(executable, data, options(1)).expect("fits");
    let before = bits(&mut trainer);
    let error = trainer.run(&never(), &mut |_| {}).expect_err("NaN");
    assert!(matches!(error, ExecError::Diverged { epoch: 0, .. }), "{error}");
    assert_eq!(bits(&mut trainer), before);
}

#[test]
fn weights_round_trip_and_must_fit() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("w.safetensors");
    let mut trained = trainer(options(1));
    losses(&mut trained);
    trained.save_weights(&path).expect("written");
    let mut other = trainer(options(1));
    assert_ne!(bits(&mut other), bits(&mut trained));
    other.load_weights(&path).expect("fits");
    assert_eq!(bits(&mut other), bits(&mut trained));
    assert_eq!(other.infer(None).expect("an output"), trained.infer(Some("y")).expect("an output"));
    let error = other.infer(Some("z")).expect_err("no such output").to_string();
    assert!(error.contains("`z`") && error.contains("`y`"), "{error}");
}

#[test]
fn a_split_without_validation_keeps_the_last_epoch_and_says_so() {
    let (executable, mut data) = model(0.3);
    data.truths[0].parts[1].clear();
    let mut trainer = bound(executable, data, options(1)).expect("fits");
    assert!(trainer.warnings()[0].contains("no val part"), "{:?}", trainer.warnings());
    assert_eq!(losses(&mut trainer).len(), 60);
    assert_eq!(trainer.report().expect("evaluated").best_epoch, None);
}

#[test]
fn too_little_memory_is_refused_before_anything_runs() {
    let (executable, data) = model(0.3);
    let options = TrainOptions { memory_budget: Some(10_000), ..options(1) };
    let error = bound(executable, data, options).expect_err("too little").to_string();
    assert!(error.contains("the budget") && error.contains("graphs and features"), "{error}");
}

#[test]
fn data_that_does_not_fit_is_refused() {
    let (executable, mut data) = model(0.3);
    data.truths[0].labels = Some(Target::Classes(vec![0; 5]));
    assert!(matches!(bound(executable, data, options(1)), Err(ExecError::Shape { .. })));
    let (executable, mut data) = model(0.3);
    data.inputs[0] = InputData::Missing;
    let error = bound(executable, data, options(1)).expect_err("no features").to_string();
    assert!(error.contains("`sparse`"), "{error}");
}
