//! Training by several processes: every layer of the library, in full batch, gives the bits of one process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hgnnc::{DataSource, Error, Job, ModelSource, OutputValues, Purpose, Ranks, Split, prepare};
use hgnnc_dataset::{Dataset, DenseFeatures, Features};
use hgnnc_diag::{Diagnostics, SourceMap};
use hgnnc_dist::{Comm, threads};
use hgnnc_model_tests::cases::SCHEMA;
use hgnnc_model_tests::{CASES, Case, World, assert_close, case, compile, dataset};
use hgnnc_train::TrainOptions;

/// With Adam, which has two states for each parameter, decay, and gradients that are clipped by their norm.
pub const TRAIN: &str = "
train M {
    loss cross_entropy(y, Paper.topic)
    optimizer adam(lr: 0.01, weight_decay: 0.001)
    clip norm(2.0)
    epochs 5
    seed 3
    select train.loss
}
";
/// Virtual ranks that are compared with one.
const RANKS: [usize; 5] = [1, 2, 3, 4, 7];

/// The losses of a run's epochs, and the parameters and the output after them. Of several ranks, the first one has all
/// parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Trained {
    pub losses: Vec<f64>,
    pub params: Vec<f32>,
    pub output: Vec<f32>,
    /// By name: the bits of the parameters that are not divided.
    dense: BTreeMap<String, Vec<u32>>,
}

impl Trained {
    /// The bits of all numbers, to compare runs by.
    pub fn bits(&self) -> (Vec<u64>, Vec<u32>, Vec<u32>) {
        let of = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect();
        (self.losses.iter().map(|x| x.to_bits()).collect(), of(&self.params), of(&self.output))
    }
}

/// The results of ranks: all have the same losses and outputs, and the first one's parameters, as far as they have them.
fn of_ranks(mut all: Vec<Result<Trained, Error>>) -> Vec<Result<Trained, Error>> {
    let Some((Ok(first), others)) = all.split_first_mut() else { return all };
    for other in others.iter_mut().flatten() {
        assert_eq!((&other.losses, &other.output), (&first.losses, &first.output), "the ranks come to one result");
        assert!(!other.dense.is_empty(), "some parameters are not divided");
        assert_eq!(other.dense, first.dense, "the ranks have the same parameters");
        other.params.clone_from(&first.params);
    }
    all
}

struct Quiet;

impl hgnnc::Observer for Quiet {
    fn note(&mut self, _: String) {}
    fn warnings(&mut self, _: &SourceMap, _: &Diagnostics) {}
}

pub fn job(source: &str, data: &Arc<Dataset>, ranks: Option<Ranks>) -> Job {
    let model = ModelSource::Text { path: PathBuf::from("test.hgnn"), text: source.into() };
    let options = TrainOptions { threads: 1, ..TrainOptions::default() };
    Job { data: DataSource::Loaded(Arc::clone(data)), options, ranks, graph_cache: None, ..Job::new(model) }
}

/// Trains a job, and computes its output.
pub fn train(job: &Job) -> Result<Trained, Error> {
    let mut prepared = prepare(Purpose::Train, job, &mut Quiet)?;
    let mut losses = vec![];
    let trainer = &mut prepared.trainer;
    trainer.run(&AtomicBool::new(false), &mut |epoch| losses.push(epoch.loss))?;
    let output = trainer.infer(None)?.data;
    let is_first = job.ranks.as_ref().is_none_or(|ranks| ranks.comm.rank() == 0);
    let dense = dense(trainer.shapes(), trainer.own_params()?);
    let params = if is_first { trainer.params()?.concat() } else { vec![] };
    Ok(Trained { losses, params, output, dense })
}

/// The parameters of which a rank has all elements.
fn dense(shapes: Vec<(String, Vec<usize>)>, own: Vec<Vec<f32>>) -> BTreeMap<String, Vec<u32>> {
    let all = shapes.into_iter().zip(own).filter(|((_, shape), own)| shape.iter().product::<usize>() == own.len());
    all.map(|((name, _), own)| (name, own.iter().map(|x| x.to_bits()).collect())).collect()
}

/// Trains on virtual ranks; a result for each.
pub fn train_on(ranks: usize, sections: usize, source: &str, data: &Arc<Dataset>) -> Vec<Result<Trained, Error>> {
    of_ranks(threads::run(ranks, |comm| {
        train(&job(source, data, Some(Ranks { sections, ..Ranks::new(Arc::clone(comm)) })))
    }))
}

/// A world as a dataset, with features of all types, also those that the model does not read.
pub fn world_of(case: &Case, source: &str, world: &World) -> Arc<Dataset> {
    let compiled = compile(source);
    let mut data = dataset::dataset(compiled.training(), &compiled.bind(world), world);
    for (name, dim) in [("Paper", 5), ("Author", 3), ("Venue", 4)].into_iter().filter(|_| case.schema == SCHEMA) {
        let of = compiled.training().vertex_types.iter().position(|decl| decl.name == name);
        let Some(vertices) = of.map(|of| &mut data.vertex_types[of]) else { continue };
        if vertices.features.is_none() {
            let rows: Vec<f32> = vec![1.0; vertices.count * dim];
            vertices.features = Some(Features::Dense(DenseFeatures { dim, rows: rows.into() }));
        }
    }
    Arc::new(data)
}

fn ranks_give_the_bits_of_one_process(name: &str) {
    let case = case(name);
    let world = if case.schema == SCHEMA { World::random_library(4) } else { World::sparse_library() };
    ranks_agree(&case, TRAIN, &world);
}

/// Any number of ranks gives the bits of one, and nearly the numbers of a run without ranks, which sums over all
/// vertices in another order.
pub fn ranks_agree(case: &Case, train_block: &str, world: &World) {
    let (name, source) = (case.name, case.trained_by(train_block));
    let data = world_of(case, &source, world);
    let alone = train(&job(&source, &data, None)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut first = None;
    for ranks in RANKS {
        for (rank, trained) in train_on(ranks, 7, &source, &data).into_iter().enumerate() {
            let trained = trained.unwrap_or_else(|error| panic!("{name}, rank {rank} of {ranks}: {error}"));
            let first = first.get_or_insert_with(|| trained.clone());
            assert_eq!(trained.bits(), first.bits(), "{name}, rank {rank} of {ranks}");
        }
    }
    let first = first.expect("there is a rank");
    let wide = |numbers: &[f32]| -> Vec<f64> { numbers.iter().map(|&x| f64::from(x)).collect() };
    assert_close(&format!("{name}: losses"), &first.losses, &alone.losses, 2e-5);
    assert_close(&format!("{name}: output"), &wide(&first.output), &wide(&alone.output), 2e-3);
}

hgnnc_model_tests::test_each_case!(ranks_give_the_bits_of_one_process);

/// Adam divides by the root of small second moments, so that rounding shows: the comparison above is for losses. Without
/// it, all parameters are close.
#[test]
fn parameters_are_those_of_a_run_without_ranks() {
    for case in CASES.iter().filter(|case| case.schema == SCHEMA) {
        let source = case.source();
        let data = world_of(case, &source, &World::random_library(2));
        let alone = train(&job(&source, &data, None)).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let ranked = train_on(3, 6, &source, &data).remove(0).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let wide = |numbers: &[f32]| -> Vec<f64> { numbers.iter().map(|&x| f64::from(x)).collect() };
        assert_close(&format!("{}: parameters", case.name), &wide(&ranked.params), &wide(&alone.params), 2e-5);
    }
}

/// On mini-batches, each rank samples around its own seeds, or along its own relations. With all in-edges, the sums are
/// those of one process, but for their order. Masks are functions of the numbers of vertices and edges, on any number of
/// ranks that share a batch.
fn ranks_train_on_batches_as_one_process(name: &str) {
    let case = case(name);
    let train_block = TRAIN.replace("adam(lr: 0.01, weight_decay: 0.001)", "sgd(lr: 0.05, momentum: 0.9)");
    let with_masks = case.trained_by(&train_block.replace("seed 3", "seed 3\n    batch 4"));
    // All labels are hidden, whatever is drawn.
    let without = [
        ("0.2)", "0.0)"),
        ("0.3)", "0.0)"),
        ("dropout: 0.2", "dropout: 0.0"),
        ("dropout: 0.3", "dropout: 0.0"),
        ("hidden: 0.4", "hidden: 0.9999999999"),
    ];
    let without_masks = without.iter().fold(with_masks.clone(), |source, (rate, none)| source.replace(rate, none));
    let world = if case.schema == SCHEMA { World::random_library(4) } else { World::sparse_library() };
    let data = world_of(&case, &with_masks, &world);
    let wide = |numbers: &[f32]| -> Vec<f64> { numbers.iter().map(|&x| f64::from(x)).collect() };
    let alone = train(&job(&without_masks, &data, None)).unwrap_or_else(|error| panic!("{name}: {error}"));
    // Each rank compiles the model. Masks of one rank are compared with those of several.
    let without = [(Split::Seeds, 2, 1), (Split::Seeds, 3, 1), (Split::Relations, 2, 1), (Split::Relations, 3, 1)];
    let with = [(Split::Seeds, 1, 1), (Split::Seeds, 3, 1), (Split::Relations, 2, 1), (Split::Grid, 6, 3)];
    let grids = [(Split::Grid, 4, 2), (Split::Grid, 3, 3)];
    for (source, mut expected, ways) in
        [(without_masks, Some(alone), [&without[..], &grids].concat()), (with_masks, None, with.to_vec())]
    {
        for (split, ranks, replicas) in ways {
            let all = of_ranks(threads::run(ranks, |comm| {
                let ranks = Ranks { sections: 6, split, replicas, ..Ranks::new(Arc::clone(comm)) };
                train(&job(&source, &data, Some(ranks)))
            }));
            for (rank, trained) in all.into_iter().enumerate() {
                let trained = match trained {
                    Ok(trained) => trained,
                    // Layers over one or two graphs.
                    Err(error) if error.to_string().contains("processes cannot share") && ranks > 1 => break,
                    Err(error) => panic!("{name}, {split:?}, rank {rank} of {ranks}: {error}"),
                };
                let expected = expected.get_or_insert_with(|| trained.clone());
                let what = |of: &str| format!("{name}, {split:?}, rank {rank} of {ranks}: {of}");
                assert_close(&what("losses"), &trained.losses, &expected.losses, 2e-5);
                assert_close(&what("parameters"), &wide(&trained.params), &wide(&expected.params), 1e-4);
            }
        }
    }
}

mod batches {
    use super::ranks_train_on_batches_as_one_process;

    hgnnc_model_tests::test_each_case!(ranks_train_on_batches_as_one_process);
}

/// Ranks divide the elements of wide sums among themselves, and nearly all of these lie in two slices here.
#[test]
fn wide_sums_are_those_of_one_process() {
    let wide = |body: &'static str| Case { name: "wide", body, ..case("sage_mean") };
    let case = wide(
        "    let first = relu(SageMeanConv(hidden: 70) over [relations, reverses] of features)
    output y: Paper = linear(SageMeanConv(hidden: 61) over [relations, reverses] of first, 3)",
    );
    let source = case.trained_by(TRAIN);
    let data = world_of(&case, &source, &World::random_library(4));
    let alone = train_on(1, 7, &source, &data).remove(0).unwrap_or_else(|error| panic!("{error}"));
    assert!(alone.params.len() > 10_000, "{} parameters", alone.params.len());
    for ranks in [2, 3, 7] {
        for trained in train_on(ranks, 7, &source, &data) {
            assert_eq!(trained.unwrap_or_else(|error| panic!("{error}")).bits(), alone.bits(), "{ranks} ranks");
        }
    }
}

/// A dataset with a `partition.json` in this folder, of four parts of any length.
fn in_parts(data: &Dataset, folder: &Path) -> Arc<Dataset> {
    let of_type = |of: &hgnnc_dataset::VertexTypeData| {
        // One part has no vertices, and the last one nearly all.
        let borders = [0, of.count.min(1), of.count.min(1), of.count.min(4), of.count];
        format!(
            r#"{{ "name": "{}", "borders": {borders:?}, "numbers": "", "seeds": [0, 0, 0, 0],
                "mirror_sources": [0, 0, 0, 0], "mirror_destinations": [0, 0, 0, 0] }}"#,
            of.name
        )
    };
    let types: Vec<String> = data.vertex_types.iter().map(of_type).collect();
    let text = format!(
        r#"{{ "version": 1, "ranks": 4, "by": "range", "passes": 0, "cut_edges": 0, "vertex_types": [{}], "relations": [],
            "source": {{ "name": "", "hash": "", "vertices": 0, "edges": 0 }} }}"#,
        types.join(", ")
    );
    std::fs::write(folder.join("partition.json"), text).expect("a file");
    Arc::new(Dataset { folder: folder.to_path_buf(), ..data.clone() })
}

/// Ranks own the parts of a partitioned dataset, and any number of ranks gives the bits of one.
#[test]
fn parts_of_any_length_give_the_bits_of_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["rgcn_sparse", "hgt", "han"] {
        let case = case(name);
        let source = case.trained_by(TRAIN);
        let world = if case.schema == SCHEMA { World::random_library(4) } else { World::sparse_library() };
        let data = in_parts(&world_of(&case, &source, &world), folder.path());
        let mut alone = None;
        for ranks in RANKS {
            for trained in train_on(ranks, 12, &source, &data) {
                let trained = trained.unwrap_or_else(|error| panic!("{name}, {ranks} ranks: {error}"));
                let alone = alone.get_or_insert_with(|| trained.clone());
                assert_eq!(trained.bits(), alone.bits(), "{name}, {ranks} ranks");
            }
        }
        // Batches have seeds and learned rows of all parts.
        let source = source.replace("seed 3", "seed 3\n    batch 4").replace("dropout: 0.2", "dropout: 0.0");
        let alone = train_on(1, 12, &source, &data).remove(0).unwrap_or_else(|error| panic!("{name}: {error}"));
        for trained in train_on(3, 12, &source, &data) {
            let trained = trained.unwrap_or_else(|error| panic!("{name}, batches: {error}"));
            assert_close(&format!("{name}: losses"), &trained.losses, &alone.losses, 2e-5);
        }
    }
}

/// Only the rank that writes files has the rows of an output that is written; asked for otherwise, all ranks have them.
#[test]
fn outputs_are_gathered_where_they_are_written() {
    let case = case("rgcn_sparse");
    let data = world_of(&case, &case.trained_by(TRAIN), &World::sparse_library());
    let outputs = |comm: &Arc<dyn Comm>| {
        let job = job(&case.trained_by(TRAIN), &data, Some(Ranks::new(Arc::clone(comm))));
        let mut prepared = prepare(Purpose::Train, &job, &mut Quiet)?;
        // The second time, rows that were written are gathered for all; the third time, all have them.
        let mut found = vec![];
        for _ in 0..2 {
            let OutputValues::Vertices(written) = prepared.infer_output(None, false)?.values else {
                panic!("the output is of vertices")
            };
            found.push((written, prepared.infer(None)?));
        }
        Ok::<_, Error>(found)
    };
    for (rank, found) in threads::run(3, outputs).into_iter().enumerate() {
        for (written, all) in found.unwrap_or_else(|error| panic!("rank {rank}: {error}")) {
            assert_eq!(all.rows, data.vertex_types[0].count, "rank {rank}");
            if rank == 0 {
                assert_eq!(written, all);
            } else {
                assert_eq!((written.rows, written.data.len()), (0, 0), "rank {rank}");
            }
        }
    }
}

/// Learned rows with their optimizer states belong to ranks, and a checkpoint has those of all.
#[test]
fn training_on_batches_goes_on_with_any_number_of_ranks() {
    let case = case("rgcn_sparse");
    let source = case.trained_by(&TRAIN.replace("seed 3", "seed 3\n    batch 4"));
    let data = world_of(&case, &source, &World::sparse_library());
    let folder = tempfile::tempdir().expect("a folder");
    let on = |ranks: usize, epochs: u64, checkpoint: Option<&str>, resume: bool| {
        let options = TrainOptions {
            epochs: Some(epochs),
            checkpoint: checkpoint.map(|name| folder.path().join(name)),
            resume,
            threads: 1,
            ..TrainOptions::default()
        };
        let all = of_ranks(threads::run(ranks, |comm| {
            let ranks = Some(Ranks { sections: 6, ..Ranks::new(Arc::clone(comm)) });
            train(&Job { options: options.clone(), ..job(&source, &data, ranks) })
        }));
        let all: Vec<Trained> =
            all.into_iter().map(|of_rank| of_rank.unwrap_or_else(|error| panic!("{error}"))).collect();
        all.into_iter().next().expect("there is a rank")
    };
    let straight = on(2, 6, None, false);
    for (name, ranks) in [("same", 2), ("more", 3), ("one", 1)] {
        on(2, 3, Some(name), false);
        let resumed = on(ranks, 6, Some(name), true);
        if ranks == 2 {
            assert_eq!(resumed.params, straight.params);
        }
        let wide = |numbers: &[f32]| -> Vec<f64> { numbers.iter().map(|&x| f64::from(x)).collect() };
        assert_close(&format!("resumed on {ranks} ranks"), &wide(&resumed.params), &wide(&straight.params), 5e-4);
    }
}

/// A model with learned rows, and options with a checkpoint in a folder.
fn with_checkpoint(folder: &Path) -> (String, TrainOptions) {
    let source = case("rgcn_sparse").trained_by(&TRAIN.replace("seed 3", "seed 3\n    batch 4"));
    let checkpoint = Some(folder.join("checkpoint"));
    (source, TrainOptions { epochs: Some(3), checkpoint, threads: 1, ..TrainOptions::default() })
}

#[test]
fn each_rank_writes_its_rows_of_a_checkpoint() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, options) = with_checkpoint(folder.path());
    let options = TrainOptions { checkpoint_every: Duration::ZERO, ..options };
    let data = world_of(&case("rgcn_sparse"), &source, &World::sparse_library());
    let on = |ranks: usize, resume: bool| {
        let options = TrainOptions { resume, epochs: Some(if resume { 4 } else { 3 }), ..options.clone() };
        of_ranks(threads::run(ranks, |comm| {
            let ranks = Some(Ranks { sections: 6, ..Ranks::new(Arc::clone(comm)) });
            train(&Job { options: options.clone(), ..job(&source, &data, ranks) })
        }))
    };
    let names = || {
        let entries = std::fs::read_dir(folder.path().join("checkpoint")).expect("a folder").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    };
    on(2, false).into_iter().for_each(|trained| drop(trained.unwrap_or_else(|error| panic!("{error}"))));
    // Those of earlier checkpoints are removed.
    assert_eq!(names().len(), 3, "{:?}", names());
    let parts: Vec<String> = names().into_iter().filter(|name| name.starts_with("rows-")).collect();
    assert!(parts[0].ends_with("-0-of-2.safetensors") && parts[1].ends_with("-1-of-2.safetensors"), "{parts:?}");
    let lost = folder.path().join("checkpoint").join(&parts[1]);
    let bytes = std::fs::read(&lost).expect("a file");
    for (damaged, message) in [(None, "cannot read"), (Some(&b"text"[..]), "is not a safetensors file")] {
        std::fs::remove_file(&lost).expect("removed");
        damaged.into_iter().for_each(|bytes| std::fs::write(&lost, bytes).expect("written"));
        let error = on(1, true).remove(0).expect_err("a file is missing").to_string();
        assert!(error.contains(message) && error.contains(&parts[1]), "{error}");
        std::fs::write(&lost, &bytes).expect("written");
    }
    // One process has all rows, and needs no parts.
    on(1, true).remove(0).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(names(), ["checkpoint.safetensors"]);
}

/// Such as one with a full disk.
#[test]
fn a_rank_that_cannot_write_its_part_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), "").expect("written");
    let (source, options) = with_checkpoint(folder.path());
    let data = world_of(&case("rgcn_sparse"), &source, &World::sparse_library());
    let unsaved = threads::run(2, |comm| {
        let checkpoint = match comm.rank() {
            0 => options.checkpoint.clone(),
            _ => Some(folder.path().join("file/checkpoint")),
        };
        let ranks = Some(Ranks { sections: 6, ..Ranks::new(Arc::clone(comm)) });
        let options = TrainOptions { checkpoint, ..options.clone() };
        let job = Job { options, ..job(&source, &data, ranks) };
        let mut prepared = prepare(Purpose::Train, &job, &mut Quiet).unwrap_or_else(|error| panic!("{error}"));
        let outcome = prepared.trainer.run(&AtomicBool::new(false), &mut |_| {});
        outcome.unwrap_or_else(|error| panic!("training goes on: {error}"));
        prepared.trainer.unsaved().map(ToString::to_string)
    });
    let texts: Vec<String> = unsaved.into_iter().map(|text| text.expect("no checkpoint")).collect();
    assert!(texts[0].starts_with("rank 1: cannot make") && texts[1].starts_with("cannot make"), "{texts:?}");
    assert!(!folder.path().join("checkpoint/checkpoint.safetensors").exists());
}

/// Each rank keeps the embeddings of its own batches for later ones.
#[test]
fn ranks_reuse_embeddings_and_agree() {
    let case = case("sage_mean");
    let batch = "seed 3\n    batch 4\n    reuse hot(0.5, batches: 2)";
    let source = case.trained_by(&TRAIN.replace("seed 3", batch));
    let data = world_of(&case, &source, &World::random_library(4));
    let all = train_on(3, 6, &source, &data);
    let all: Vec<Trained> = all.into_iter().map(|trained| trained.unwrap_or_else(|error| panic!("{error}"))).collect();
    assert!(all.iter().all(|trained| trained.bits() == all[0].bits()));
    assert!(all[0].losses.last() < all[0].losses.first(), "{:?}", all[0].losses);
}

#[test]
fn what_has_no_placement_is_refused_by_all_ranks() {
    let case = Case {
        name: "two layers of HAN",
        body: "    let first = HanConv(hidden: 3, heads: 1, attention: 4) over [PAP, cites] of Paper.x
    let second = HanConv(hidden: 3, heads: 1, attention: 4) over [PAP, cites] of first.Paper
    output y: Paper = linear(second.Paper, 3)",
        ..case("han")
    };
    let batches = case.trained_by(&TRAIN.replace("seed 3", "seed 3\n    batch 4"));
    let data = world_of(&case, &case.trained_by(TRAIN), &World::library());
    for refused in train_on(2, 6, &batches, &data) {
        let message = refused.expect_err("a mean over sampled vertices is refused").to_string();
        assert!(message.contains("cannot be computed by several processes"), "{message}");
        assert!(message.contains("reduces over the vertices of `Paper.1` that were sampled"), "{message}");
        assert!(message.contains("(std::han:"), "{message}");
    }
    let source = case.trained_by(TRAIN);
    for refused in train_on(3, 2, &source, &data) {
        let message = refused.expect_err("more ranks than sections are refused").to_string();
        assert!(message.contains("3 processes and 2 sections"), "{message}");
    }
}

#[test]
fn ranks_with_other_data_or_models_are_refused() {
    let case = case("gcn");
    let (source, other) = (case.trained_by(TRAIN), case.trained_by(&TRAIN.replace("0.01", "0.02")));
    let data = world_of(&case, &source, &World::library());
    let found = threads::run(2, |comm| {
        let source = if comm.rank() == 0 { &source } else { &other };
        train(&job(source, &data, Some(Ranks::new(Arc::clone(comm))))).map(|_| ())
    });
    for refused in found {
        let message = refused.expect_err("ranks with other models are refused").to_string();
        assert!(message.contains("the compiled model of rank 1 differs"), "{message}");
    }
}
