//! Files of results: scores of pairs, outputs, profiles, run folders, and parameters when something fails.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::{
    DataSource, Device, Error, Job, LinkPair, LinkPairs, ModelSource, OutputValues, Prepared, Purpose, Rescued,
    ResultFormat, RunFolder, Silent, check_apart, check_folder, check_writable, lock_checkpoints, not_finite, prepare,
    profile, read_sizes, write_scores,
};
use hgnnc_dataset::npy::{self, Npy};
use hgnnc_dataset::{Dataset, LabelData, LabelValues, RelationData, SplitData, VertexTypeData};
use hgnnc_profile::ProfileOptions;

/// Two predicted relations, which have the second and the third place in the dataset, and attention.
const LINKS: &str = "
use std::gat::GatConv
use std::link::DistMult

schema S {
    vertex User from \"user\" { x: embedding[4] }
    vertex Item from \"item\" { x: embedding[4] }
    relation knows: User -> User
    relation likes: User -> Item
    relation sells: Item -> User
}

model Net(schema: S) {
    let conv = GatConv(hidden: 4, heads: 1) over self_loops(knows) of User.x
    let items = Item.x
    output users: User = conv
    output attention: edges = conv.alpha
    output score: links = DistMult() over links([likes, sells]) of features
}

train Net {
    loss      binary_cross_entropy(score, links)
    optimizer adam(lr: 0.01)
    epochs    2
    batch     2
    negatives uniform(1)
}
";

fn dataset() -> Dataset {
    let vertices = |name: &str, count| VertexTypeData { name: name.into(), count, ..Default::default() };
    let edges = |name: &str, (src, dst): (usize, usize), ids: [&[u32]; 2]| RelationData {
        name: name.into(),
        src,
        dst,
        src_ids: ids[0].to_vec(),
        dst_ids: ids[1].to_vec(),
        ..Default::default()
    };
    Dataset {
        name: "shop".into(),
        vertex_types: vec![vertices("user", 3), vertices("item", 5)],
        relations: vec![
            edges("knows", (0, 0), [&[0, 1], &[1, 2]]),
            edges("likes", (0, 1), [&[0, 2], &[4, 1]]),
            edges("sells", (1, 0), [&[3], &[2]]),
        ],
        ..Default::default()
    }
}

fn links_job() -> Job {
    let model = ModelSource::Text { path: "net.hgnn".into(), text: LINKS.into() };
    let data = DataSource::Loaded(Arc::new(dataset()));
    let mut job = Job { data, device: Device::Cpu, ..Job::new(model) };
    job.options.threads = 2;
    job
}

fn open(purpose: Purpose, job: &Job) -> Prepared {
    prepare(purpose, job, &mut Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn input_error<T>(result: Result<T, Error>, expected: &str) {
    let error = result.err().expect("an error");
    assert!(matches!(&error, Error::Input(text) if text.contains(expected)), "{error}");
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn pairs_of_several_relations_are_scored_in_their_order() {
    let mut prepared = open(Purpose::Score, &links_job());
    let pair = |src, relation, dst| LinkPair { src, relation, dst };
    let pairs = [pair(0, 1, 4), pair(3, 2, 2), pair(2, 1, 0), pair(0, 1, 4), pair(4, 2, 0)];
    let scores = prepared.score_links(&LinkPairs::new("pairs", pairs.to_vec())).expect("scored");
    let mut alone = |pair| prepared.score_links(&LinkPairs::new("a pair", vec![pair])).expect("scored")[0];
    let expected: Vec<f32> = pairs.iter().map(|&pair| alone(pair)).collect();
    assert_eq!(bits(&scores), bits(&expected));
    assert_eq!(scores[0], scores[3]);
    assert!(scores[0] != scores[1] && scores[1] != scores[4], "{scores:?}");
    let none = LinkPairs::new("none", vec![]);
    assert!(none.is_empty() && prepared.score_links(&none).expect("scored").is_empty());

    // A file has an array with a row for each part of a pair.
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pairs.npy");
    let numbers: Vec<i32> = vec![0, 3, 2, 0, 4, 1, 2, 1, 1, 2, 4, 2, 0, 4, 0];
    npy::write(&file, &[3, 5], &numbers).expect("written");
    let read = LinkPairs::read(&file).expect("read");
    assert_eq!(read.len(), 5);
    assert_eq!(bits(&prepared.score_links(&read).expect("scored")), bits(&scores));
    let out = folder.path().join("scores.npy");
    write_scores(&out, &scores).expect("written");
    let written = Npy::open(&out).expect("an array");
    assert_eq!((written.shape(), bits(&written.to_f32().expect("f32"))), (&[5][..], bits(&scores)));
}

#[test]
fn mistakes_about_pairs_are_values() {
    let mut prepared = open(Purpose::Score, &links_job());
    let mut score = |src, relation, dst| {
        let pairs = vec![LinkPair { src: 0, relation: 1, dst: 0 }, LinkPair { src, relation, dst }];
        prepared.score_links(&LinkPairs::new("those", pairs))
    };
    input_error(score(0, 3, 0), "those: pair 1 is of relation 3; the dataset has 0 to 2");
    input_error(score(0, -1, 0), "those: pair 1 is of relation -1");
    input_error(score(0, 0, 1), "those: pair 1 is of relation 0, `knows`, which the model does not score");
    input_error(score(3, 1, 0), "those: pair 1 joins 3 and 0, but `likes` has 3 sources and 5 destinations");
    input_error(score(0, 2, -1), "those: pair 1 joins 0 and -1, but `sells` has 5 sources and 3 destinations");

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("pairs.npy");
    input_error(LinkPairs::read(&file), "pairs.npy");
    npy::write(&file, &[2, 1], &[0, 1]).expect("written");
    input_error(LinkPairs::read(&file), "pairs are an array [3, pairs]");
    npy::write(&file, &[3, 1], &[0.0f32, 1.0, 0.0]).expect("written");
    input_error(LinkPairs::read(&file), "pairs are whole numbers");

    let other = Job { outputs: vec!["users".into()], ..links_job() };
    input_error(prepare(Purpose::Score, &other, &mut Silent).map(drop), "by the output that is trained, `score`");
    let mut outputs = open(Purpose::Infer, &links_job());
    input_error(outputs.infer_output(None, false), "the output `score` belongs to pairs of vertices");
    input_error(ResultFormat::Csv.check_scores(), "scores of pairs are written as `.npy`");
}

#[test]
fn the_ending_of_a_file_chooses_the_format_of_an_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let [array, table] = ["o.npy", "o.CSV"].map(|name| folder.path().join(name));
    let job = Job { outputs: vec!["attention".into(), "users".into()], ..links_job() };
    let mut prepared = open(Purpose::Infer, &job);
    let found = prepared.infer_output(Some("users"), false).expect("inferred");
    let OutputValues::Vertices(rows) = &found.values else { panic!("rows of vertices") };
    assert_eq!((rows.rows, rows.width, found.warnings.len()), (3, 4, 0));
    assert_eq!(prepared.edges_file(Some("users"), &array), None);
    [&array, &table].iter().for_each(|path| found.write(&prepared.naming, path).expect("written"));
    let read = Npy::open(&array).expect("an array");
    assert_eq!((read.shape(), bits(&read.to_f32().expect("f32"))), (&[3, 4][..], bits(&rows.data)));
    let text = std::fs::read_to_string(&table).expect("a text");
    assert!(text.starts_with("id,users.0,users.1,users.2,users.3\n0,"), "{text}");
    input_error(prepared.infer_output(Some("users"), true), "`users` has no probabilities");

    // Edges have their ends beside an array, and in the columns of a table.
    let beside = prepared.edges_file(Some("attention"), &array).expect("a file");
    assert_eq!(beside, folder.path().join("o.edges.npy"));
    assert_eq!(prepared.edges_file(Some("attention"), &table), None);
    let found = prepared.infer_output(Some("attention"), false).expect("inferred");
    [&array, &table].iter().for_each(|path| found.write(&prepared.naming, path).expect("written"));
    // By destination and source; each vertex has a loop.
    let ends = Npy::open(&beside).expect("an array");
    assert_eq!(
        (ends.shape(), ends.to_i64().expect("integers")),
        (&[3, 5][..], ends_of(&[0, 0, 1, 1, 2], &[0, 1, 1, 2, 2]))
    );
    assert_eq!(Npy::open(&array).expect("an array").shape(), [5, 1]);
    assert_eq!(std::fs::read_to_string(&table).expect("a text").lines().count(), 6);
    input_error(prepared.infer_output(Some("attention"), true), "`attention` has no probabilities");

    assert_eq!(not_finite("o", &[2, 1], &[0.0, 1.0]), None);
    let line = not_finite("o", &[2, 1], &[0.0, f32::NAN]).expect("a line");
    assert!(line.starts_with("not all results are finite: 1 of the 2 elements of `o`"), "{line}");
}

/// The ends of edges of the first semantic graph.
fn ends_of(sources: &[i64], destinations: &[i64]) -> Vec<i64> {
    [sources, &vec![0; sources.len()], destinations].concat()
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gcn/cora.hgnn")
}

/// The dataset of the example, generated once.
fn cora() -> Job {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outputs-cora");
    let pool = hgnnc_cpu::thread_pool(2).expect("threads");
    pool.install(|| hgnnc_synth::generate_size("cora".parse().expect("a shape"), 0, &folder)).expect("written");
    let mut job = Job { data: Some(folder).into(), device: Device::Cpu, ..Job::new(example()) };
    (job.options.threads, job.options.epochs) = (2, Some(2));
    job
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

/// Whether a file has the current parameters.
fn has_weights(prepared: &mut Prepared, path: &Path) -> bool {
    hgnnc_train::weights::read(path).expect("weights").tensors == prepared.trainer.weights().expect("weights").tensors
}

#[test]
fn parameters_that_cannot_be_written_go_to_another_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut prepared = open(Purpose::Train, &cora());
    // Before the first epoch there are no best parameters.
    let path = folder.path().join("w.safetensors");
    assert_eq!(prepared.rescue(&path).expect("nothing to write"), Rescued::Lost);
    assert!(!path.exists());
    prepared.trainer.run(&AtomicBool::new(false), &mut |_| {}).expect("trained");
    let report = prepared.report().expect("a report");
    assert_eq!(prepared.rescue(&path).expect("written"), Rescued::Best);
    assert!(has_weights(&mut prepared, &path));
    assert!(Rescued::Best.text(&path).contains("best epoch were written to"));
    assert!(Rescued::Earlier(3).text(&path).contains("of epoch 4, the last ones"));

    let nowhere = folder.path().join("none");
    let unsaved = prepared.save_weights(&nowhere.join("w.safetensors")).expect_err("no folder");
    let artifact = prepared.save_artifact(&nowhere.join("m.hgnnx"), &report).expect_err("no folder");
    for unsaved in [unsaved, artifact] {
        assert!(matches!(&unsaved.error, Error::Machine(text) if text.contains("cannot write")), "{unsaved}");
        let elsewhere = unsaved.elsewhere.clone().expect("another file");
        assert!(
            unsaved.to_string().ends_with(&format!("were written to {} instead", elsewhere.display())),
            "{unsaved}"
        );
        assert!(has_weights(&mut prepared, &elsewhere));
        std::fs::remove_dir_all(elsewhere.parent().expect("a folder")).expect("removed");
    }
    assert!(prepared.unsaved_checkpoint(folder.path()).is_none());
    assert!(prepared.rescue(&nowhere.join("w.safetensors")).is_err());
}

#[test]
fn a_run_folder_has_all_files_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut prepared = open(Purpose::Train, &cora());
    prepared.trainer.run(&AtomicBool::new(false), &mut |_| {}).expect("trained");
    let report = prepared.report().expect("a report");
    let target = folder.path().join("runs/first");
    let run = RunFolder::new(&target).expect("a place");
    let inside = [("--report", Some(&*target.join("r.json")))];
    input_error(run.check_outside(&inside), "r.json` (--report) lies in the folder of `-o`");
    run.check_outside(&[("--report", Some(&folder.path().join("runs/r.json"))), ("--log", None)]).expect("outside");
    run.keep(&mut prepared, &report, "a line\n").expect("written");
    assert_eq!(names(&target), ["log.txt", "model.hgnnx", "report.json", "weights.safetensors"]);
    assert_eq!(names(&folder.path().join("runs")), ["first"]);
    assert_eq!(std::fs::read_to_string(target.join(RunFolder::LOG)).expect("a text"), "a line\n");
    input_error(RunFolder::new(&target), "holds files already");

    // A failed run has its best parameters, and the log says so.
    let failed = folder.path().join("failed");
    let run = RunFolder::new(&failed).expect("a place");
    let log = |rescued: Result<Rescued, Error>| rescued.expect("written").text(Path::new("w"));
    run.rescue(&mut prepared, log).expect("written");
    assert_eq!(names(&failed), ["log.txt", "weights.safetensors"]);
    assert!(std::fs::read_to_string(failed.join(RunFolder::LOG)).expect("a text").ends_with("written to w"));
    assert!(has_weights(&mut prepared, &failed.join(RunFolder::WEIGHTS)));

    // The folder around it became a file.
    let run = RunFolder::new(&folder.path().join("later/run")).expect("a place");
    std::fs::write(folder.path().join("later"), "").expect("written");
    let unsaved = run.keep(&mut prepared, &report, "").expect_err("no folder");
    let elsewhere = unsaved.elsewhere.expect("another file");
    assert!(has_weights(&mut prepared, &elsewhere));
    std::fs::remove_dir_all(elsewhere.parent().expect("a folder")).expect("removed");
    let mut heard = None;
    let kept = run.rescue(&mut prepared, |rescued| {
        heard = Some(rescued.is_err());
        String::new()
    });
    assert!(kept.is_err() && heard == Some(true));
}

#[test]
fn outputs_are_checked_before_the_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("dataset.toml"), "file = \"x.npy\"").expect("written");
    std::fs::write(at("x.npy"), "").expect("written");
    check_writable(&at("new")).expect("it can be written");
    input_error(check_writable(folder.path()), "it is a folder");
    input_error(check_writable(&at("none/new")), "there is no folder");
    check_folder(&at("a/b")).expect("it can be created");
    input_error(check_folder(&at("x.npy/b")), "is a file");
    let apart = |out: &str| {
        check_apart(&[("the output", Some(&at(out)))], &[("the model", Some(&at("m")))], Some(folder.path()))
    };
    apart("o").expect("apart");
    input_error(apart("m"), "is the model, and the output would be written over it");
    input_error(apart("x.npy"), "belongs to the dataset");
    input_error(apart("dataset.toml"), "belongs to the dataset");

    input_error(lock_checkpoints(&at("c"), true), "there is no run to continue");
    let lock = lock_checkpoints(&at("c"), false).expect("locked");
    assert!(lock_checkpoints(&at("c"), false).is_err(), "locked by this process");
    drop(lock);
    lock_checkpoints(&at("c"), false).expect("locked again");
}

/// A model of one vertex type, which trains in no time.
const PAPERS: &str = "
use std::gcn::GcnConv

schema Papers {
    vertex Paper from \"paper\" { x: embedding[4], topic: class[2] }
    relation cites: Paper -> Paper
}

model Net(schema: Papers) {
    output logits: Paper = GcnConv(hidden: 2) over self_loops(cites) of Paper.x
}

train Net {
    loss      cross_entropy(logits, Paper.topic)
    optimizer adam(lr: 0.01)
    epochs    2
}
";

fn papers_job(device: Device) -> Job {
    let dataset = Dataset {
        name: "papers".into(),
        vertex_types: vec![VertexTypeData { name: "paper".into(), count: 4, ..Default::default() }],
        relations: vec![RelationData {
            name: "cites".into(),
            src_ids: vec![0, 1, 3],
            dst_ids: vec![1, 2, 2],
            ..Default::default()
        }],
        labels: vec![LabelData {
            name: "topic".into(),
            vertex_type: 0,
            values: LabelValues::Single { classes: 2, of: vec![0, 1, 0, 1] },
            class_names: vec![],
        }],
        splits: vec![SplitData {
            name: "standard".into(),
            vertex_type: 0,
            train: vec![0, 1],
            val: vec![2],
            test: vec![3],
        }],
        ..Default::default()
    };
    let model = ModelSource::Text { path: "papers.hgnn".into(), text: PAPERS.into() };
    let mut job = Job { data: DataSource::Loaded(Arc::new(dataset)), device, ..Job::new(model) };
    job.options.threads = 1;
    job
}

#[test]
fn profiles_are_written_and_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (at, model, stop) = (folder.path().join("p"), Path::new("papers.hgnn"), AtomicBool::new(false));
    let mut prepared = open(Purpose::Train, &papers_job(Device::Cpu));
    let machine = hgnnc::processor(1, &mut Silent);
    let room = profile::cache_room(&machine);
    assert!(room > 0 && machine.levels.iter().any(|level| level.bytes >= 4.0 * room as f64), "{room}");
    let options = ProfileOptions { epochs: Some(2), batches: None, in_cache: Some(room) };
    let (found, measured) = profile::measure(model, &mut prepared, machine, options, &stop).expect("measured");
    profile::write(&at, &found, "a text\n", &measured.timeline).expect("written");
    assert_eq!(names(&at), ["profile.html", "profile.json", "profile.txt", "trace.json"]);
    for path in [at.clone(), at.join("profile.json")] {
        let read = profile::read(&path).expect("read");
        assert_eq!((read.runs, read.kernels.len()), (2, found.kernels.len()));
    }
    input_error(profile::read(folder.path()), "cannot read");
    input_error(profile::read(&at.join("profile.txt")), "is not a profile");

    // The interpreter of PTX counts, and gives no times.
    let mut prepared = open(Purpose::Train, &papers_job(Device::PtxInterp));
    let found = profile::measure_device(model, &mut prepared, Some(1), &stop).expect("measured");
    assert!(found.profile.is_none() && found.text.contains("instructions of warps"), "{}", found.text);
    let (at, text) = (folder.path().join("device"), found.text.clone());
    found.write(&mut prepared, &at).expect("written");
    assert_eq!(names(&at), ["profile.json", "profile.txt"]);
    assert_eq!(std::fs::read_to_string(at.join("profile.txt")).expect("a text"), text);
    input_error(profile::read(&at), "is not a profile");
    let stopped = profile::measure_device(model, &mut prepared, Some(1), &AtomicBool::new(true)).map(drop);
    assert!(matches!(&stopped, Err(Error::Machine(text)) if text.contains("interrupted")), "{stopped:?}");
}

#[test]
fn sizes_are_read_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sizes.json");
    let model = hgnnc_driver::analyze("papers.hgnn", PAPERS).model.expect("a model");
    let graphs: Vec<&str> = model.flow.graphs.iter().map(|graph| &graph.name[..]).collect();
    let read = |text: &str| {
        std::fs::write(&file, text).expect("written");
        read_sizes(&file, &model)
    };
    let edges = graphs.iter().map(|name| format!("\"{name}\": 7")).collect::<Vec<_>>().join(", ");
    let sizes = read(&format!("{{\"vertices\": {{\"Paper\": 4}}, \"edges\": {{{edges}}}}}")).expect("sizes");
    assert_eq!((sizes.vertices, sizes.edges), (vec![4], vec![7; graphs.len()]));
    assert!(sizes.ends.is_empty() && sizes.stored.is_empty());
    input_error(read("{\"vertices\": {\"Author\": 4}}"), "has no number for `Paper` in `vertices`");
    input_error(read("{\"vertices\": {\"Paper\": 4}, \"edges\": {}}"), "in `edges`");
    input_error(read("vertices"), "sizes.json` is not JSON");
    input_error(read_sizes(folder.path(), &model), "cannot read");
}
