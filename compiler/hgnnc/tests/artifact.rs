//! A trained model in one file: the same bits as from source and weights, and reasons where it cannot be used.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hgnnc::artifact::{self, Artifact, TargetForm, TransformForm};
use hgnnc::{Device, Error, Job, ModelSource, Prepared, Purpose, Silent, prepare};
use hgnnc_dataset::{Dataset, DenseFeatures, Features, FieldData, SparseFeatures, VertexTypeData};
use hgnnc_synth::{Shape, Size, generate_size};

/// Examples of the default run: one of each kind of model, one on mini-batches, one of links, one with a row for each
/// vertex. `HGNN_EXAMPLES=all` runs all of them.
const SOME: [&str; 9] = [
    "gat/cora",
    "gcn/cora",
    "gin/cora",
    "han/acm",
    "hgt/acm",
    "rgcn/aifb",
    "rgcn/lastfm",
    "rgcn/mag_batch",
    "simple_hgn/acm",
];

fn examples() -> Vec<(String, PathBuf)> {
    let all = std::env::var_os("HGNN_EXAMPLES").is_some_and(|which| which == "all");
    examples_named(|name| all || SOME.contains(&name))
}

fn examples_named(wanted: impl Fn(&str) -> bool) -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let list = |folder: &Path| -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> =
            std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
        all.sort();
        all
    };
    let models = list(&folder).into_iter().filter(|path| path.is_dir()).flat_map(|path| list(&path));
    let named = models.map(|path| {
        let name = path.strip_prefix(&folder).expect("found there").with_extension("");
        (name.display().to_string(), path)
    });
    named.filter(|(name, _)| wanted(name)).collect()
}

/// The synthetic dataset that a model names, generated once; of a large one a hundredth.
fn dataset(model: &Path) -> PathBuf {
    let text = std::fs::read_to_string(model).expect("a text");
    let name = text.split("\"synth ").nth(1).and_then(|rest| rest.split('"').next()).expect("it names a dataset");
    let size: Size = name.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
    let size = if size.shape == Shape::Mag { Size { scale: size.scale.min(0.01), ..size } } else { size };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("synth-{}", size.to_string().replace(' ', "-")));
    let pool = hgnnc_cpu::thread_pool(2).expect("threads");
    pool.install(|| generate_size(size, 0, &folder)).expect("written");
    folder
}

fn job(model: impl Into<ModelSource>, data: &Path) -> Job {
    let mut job = Job { data: Some(data).into(), device: Device::Cpu, ..Job::new(model) };
    job.options.threads = 2;
    job
}

fn open(purpose: Purpose, model: impl Into<ModelSource>, data: &Path) -> Prepared {
    prepare(purpose, &job(model, data), &mut Silent).unwrap_or_else(|error| panic!("{error}"))
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn metrics_and_outputs_are_those_of_source_and_weights_to_the_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, model) in examples() {
        let data = dataset(&model);
        let (file, weights) = (folder.path().join("m.hgnnx"), folder.path().join("w.safetensors"));
        // Initial parameters are as good as trained ones.
        let mut source = open(Purpose::Measure, &model, &data);
        source.trainer.save_weights(&weights).expect("saved");
        artifact::save(&file, &mut source, None).expect("saved");
        let expected = source.report().expect("a report").metrics;
        let metrics = open(Purpose::Measure, &file, &data).report().expect("a report").metrics;
        assert_eq!(metrics, expected, "{name}");
        assert!(!metrics["test"].is_empty(), "{name}");

        if source.scores_pairs {
            let mut scores = [open(Purpose::Score, &model, &data), open(Purpose::Score, &file, &data)].map(|mut of| {
                if !of.sources.files().is_empty() {
                    of.trainer.load_weights(&weights).expect("loaded");
                }
                let pairs: Vec<Vec<(u32, u32)>> =
                    of.trainer.link_graphs().iter().map(|_| (0..50).map(|i| (i, i * 3 % 50)).collect()).collect();
                of.trainer.score_pairs(&pairs).expect("scores").concat()
            });
            assert!(!scores[0].is_empty(), "{name}");
            assert_eq!(bits(&std::mem::take(&mut scores[1])), bits(&scores[0]), "{name}");
            continue;
        }
        let mut source = open(Purpose::Infer, &model, &data);
        source.trainer.load_weights(&weights).expect("loaded");
        let expected = source.infer(None).expect("outputs");
        let mut trained = open(Purpose::Infer, &file, &data);
        let found = trained.infer(None).expect("outputs");
        assert_eq!((found.rows, found.width), (expected.rows, expected.width), "{name}");
        assert_eq!(bits(&found.data), bits(&expected.data), "{name}");
        let csv =
            |of: &Prepared, rows| of.naming.csv(of.output.as_deref().expect("trained"), rows, false).expect("a table");
        assert_eq!(csv(&trained, &found), csv(&source, &expected), "{name}");
    }
}

/// Authors whose times the schema does not declare have rows as of the times of their readers, in the program of an artifact too.
#[test]
fn rows_as_of_cutoffs_are_those_of_the_source_to_the_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, example) = examples_named(|name| name == "hgt/citations").pop().expect("an example");
    let data = dataset(&example);
    let text = "use std::rgcn::RgcnConv
schema S {
    vertex Paper from \"paper\" { x: f32[24], year: time, topic: class[6] }
    vertex Author from \"author\" { x: embedding[8] }
    relation cites: Paper -> Paper
    relation writes: Author -> Paper
}
model M(schema: S) {
    let h = relu(RgcnConv(hidden: 8) over [relations, reverses] of features)
    output topic: Paper = linear(RgcnConv(hidden: 8) over [writes, cites] of h, 6)
}
train M {
    split  \"years\"
    loss   cross_entropy(topic, Paper.topic)
    cutoff time
}
";
    let model = ModelSource::Text { path: "cutoffs.hgnn".into(), text: text.into() };
    let (file, weights) = (folder.path().join("m.hgnnx"), folder.path().join("w.safetensors"));
    let mut source = open(Purpose::Measure, model.clone(), &data);
    source.trainer.save_weights(&weights).expect("saved");
    artifact::save(&file, &mut source, None).expect("saved");
    let metrics = open(Purpose::Measure, &file, &data).report().expect("a report").metrics;
    assert_eq!(metrics, source.report().expect("a report").metrics);
    let mut source = open(Purpose::Infer, model, &data);
    source.trainer.load_weights(&weights).expect("loaded");
    let expected = source.infer(None).expect("outputs");
    let found = open(Purpose::Infer, &file, &data).infer(None).expect("outputs");
    assert_eq!(bits(&found.data), bits(&expected.data));
}

/// HAN on acm, with the outputs of both of its attentions.
fn with_attention() -> (ModelSource, PathBuf) {
    let model = examples().into_iter().find(|(name, _)| name == "han/acm").expect("an example").1;
    let text = std::fs::read_to_string(&model).expect("a text");
    let output = "    output topic_logits: Paper = linear(conv, 3)\n";
    assert!(text.contains(output));
    let outputs = "    output beta: graphs = conv.beta\n    output attention: edges = conv.alpha\n";
    let text = text.replace(output, &format!("{output}{outputs}"));
    (ModelSource::Text { path: "han.hgnn".into(), text }, dataset(&model))
}

/// A model of acm that compares two outputs with the label, and its dataset.
fn with_two_losses() -> (ModelSource, PathBuf) {
    let model = examples().into_iter().find(|(name, _)| name == "han/acm").expect("an example").1;
    let text = std::fs::read_to_string(&model).expect("a text");
    let (output, loss) =
        ("    output topic_logits: Paper = linear(conv, 3)\n", "cross_entropy(topic_logits, Paper.topic)");
    assert!(text.contains(output) && text.contains(loss));
    let other = "    output other: Paper = linear(conv, 3)\n";
    let text = text.replace(output, &format!("{output}{other}"));
    let text = text.replace(loss, &format!("{loss} + 0.5 * cross_entropy(other, Paper.topic)"));
    (ModelSource::Text { path: "han.hgnn".into(), text }, dataset(&model))
}

/// A model that reads four matrices of a vertex type, and a dataset that has them, written to a folder.
fn with_fields(folder: &Path) -> (ModelSource, PathBuf) {
    let dense = |dim: usize, rows: Vec<f32>| Features::Dense(DenseFeatures { dim, rows: rows.into() });
    let sparse = |indices: Vec<u32>| {
        let (indptr, data) = ((0..=indices.len() as u64).collect(), vec![1.0; indices.len()].into());
        Features::Sparse(SparseFeatures { dim: 3, indptr, indices, data })
    };
    let field = |name: &str, values| FieldData { name: name.into(), values };
    let paper = VertexTypeData {
        name: "paper".into(),
        count: 3,
        features: Some(dense(2, vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        fields: vec![
            field("tags", sparse(vec![0, 2, 2])),
            field("key words", sparse(vec![1, 0, 2])),
            field("year", dense(1, vec![-1.0, 0.0, 1.0])),
        ],
        ..VertexTypeData::default()
    };
    let dataset = Dataset { name: "papers".into(), vertex_types: vec![paper], ..Dataset::default() };
    let data = folder.join("papers");
    dataset.write(&data).expect("written");
    let text = "schema S {
            vertex Paper { year: f32, id: embedding[2], x: f32[2], words: f32[3] sparse from \"key words\", tags: f32[3] sparse }
        }
        model M(schema: S) {
            param a: [2, 1] = constant(1)
            param b: [3, 1] = constant(10)
            param c: [3, 1] = constant(0.5)
            let words = Paper.words @ b + Paper.tags @ c
            output y: Paper = concat(Paper.x @ a, Paper.year, words, Paper.id)
            output of_tags: Paper = Paper.tags @ eye(3)
            output of_words: Paper = Paper.words @ eye(3)
        }";
    (ModelSource::Text { path: "m.hgnn".into(), text: text.into() }, data)
}

#[test]
fn fields_of_the_dataset_are_found_by_their_names() {
    let folder = tempfile::tempdir().expect("a folder");
    let (model, data) = with_fields(folder.path());
    let file = folder.path().join("m.hgnnx");
    let mut source = open(Purpose::Infer, model, &data);
    artifact::save(&file, &mut source, None).expect("saved");
    let mut both = [source, open(Purpose::Infer, &file, &data)];
    let [expected, found] = both.each_mut().map(|of| of.infer(Some("y")).expect("outputs").data);
    assert_eq!(bits(&found), bits(&expected));
    let row = |v: usize| expected[5 * v..5 * v + 3].to_vec();
    assert_eq!([row(0), row(1), row(2)], [[3.0, -1.0, 10.5], [7.0, 0.0, 10.5], [11.0, 1.0, 10.5]]);
    for prepared in &mut both {
        // The two sparse matrices of one width are not mistaken for each other.
        let tags = prepared.infer(Some("of_tags")).expect("outputs").data;
        assert_eq!(tags, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]);
        let words = prepared.infer(Some("of_words")).expect("outputs").data;
        assert_eq!(words, [0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }

    let refused = |name: &str, change: &dyn Fn(&mut VertexTypeData)| -> String {
        let mut dataset = Dataset::load(&data).expect("a dataset");
        change(&mut dataset.vertex_types[0]);
        let data = folder.path().join(name);
        dataset.write(&data).expect("written");
        let error = prepare(Purpose::Infer, &job(&file, &data), &mut Silent).err().unwrap_or_else(|| panic!("{name}"));
        error.to_string()
    };
    let said = refused("gone", &|paper| paper.fields.truncate(1));
    assert!(said.contains("`paper` has no features `key words`; the model reads 3 columns"), "{said}");
    assert!(said.contains("`paper` has no features `year`; the model reads 1 columns"), "{said}");
    let said = refused("dense", &|paper| paper.fields[0].values = paper.features.clone().expect("features"));
    assert!(said.contains("the features `tags` of `paper` have 2 columns; the model was trained on 3"), "{said}");
    let said = refused("other", &|paper| paper.features = None);
    assert!(said.contains("`paper` has no features; the model reads 2 columns"), "{said}");
}

#[test]
fn outputs_of_semantic_graphs_and_edges_are_those_of_the_source_to_the_bit() {
    let folder = tempfile::tempdir().expect("a folder");
    let (model, data) = with_attention();
    let (file, weights) = (folder.path().join("m.hgnnx"), folder.path().join("w.safetensors"));
    let mut source = open(Purpose::Measure, model.clone(), &data);
    source.trainer.save_weights(&weights).expect("saved");
    artifact::save(&file, &mut source, None).expect("saved");
    for output in ["beta", "attention", "topic_logits"] {
        let asking = |model: ModelSource| Job { outputs: vec![output.into()], ..job(model, &data) };
        let mut both = [model.clone(), ModelSource::File(file.clone())].map(|model| {
            prepare(Purpose::Infer, &asking(model), &mut Silent).unwrap_or_else(|error| panic!("{error}"))
        });
        both[0].trainer.load_weights(&weights).expect("loaded");
        let tables = both.each_mut().map(|prepared| match prepared.trainer.infer_family(output).expect("computed") {
            Some(rows) => prepared.naming.family_csv(output, &rows).expect("a table"),
            None => {
                let rows = prepared.infer(Some(output)).expect("computed");
                prepared.naming.csv(output, &rows, false).expect("a table")
            }
        });
        assert!(tables[0].len() > 40, "{output}");
        assert!(tables[0] == tables[1], "{output}");
    }
    // Outputs of edges cost nothing unless they are asked for, and the report has those of semantic graphs.
    let plain = open(Purpose::Infer, &file, &data);
    assert_eq!(plain.trainer.families().iter().map(|family| &family.name[..]).collect::<Vec<_>>(), ["beta"]);
    let reports = [source.report(), open(Purpose::Measure, &file, &data).report()];
    let [expected, found] = reports.map(|report| report.expect("a report").graph_weights);
    assert_eq!(serde_json::to_value(found).expect("JSON"), serde_json::to_value(expected).expect("JSON"));
}

#[test]
fn a_parameter_may_be_as_large_as_its_tensor() {
    let folder = tempfile::tempdir().expect("a folder");
    let (columns, file) = (270_000, folder.path().join("m.hgnnx"));
    let sparse = SparseFeatures { dim: columns, indptr: vec![0, 1, 2], indices: vec![3, 7], data: vec![1.0; 2].into() };
    let word = VertexTypeData {
        name: "word".into(),
        count: 2,
        features: Some(Features::Sparse(sparse)),
        ..VertexTypeData::default()
    };
    let dataset = Dataset { name: "words".into(), vertex_types: vec![word], ..Dataset::default() };
    let data = folder.path().join("words");
    dataset.write(&data).expect("written");
    let text = format!(
        "schema S {{ vertex Word {{ x: f32[{columns}] sparse }} }}
        model M(schema: S) {{ output y: Word = linear(Word.x, 64) }}"
    );
    let source = ModelSource::Text { path: "m.hgnn".into(), text };
    artifact::save(&file, &mut open(Purpose::Infer, source, &data), None).expect("saved");
    assert_eq!(open(Purpose::Infer, &file, &data).infer(None).expect("outputs").rows, 2);
}

#[test]
fn the_program_is_that_of_the_model() {
    for (name, model) in examples() {
        let data = dataset(&model);
        let mut prepared = open(Purpose::Infer, &model, &data);
        let bytes = artifact::to_bytes(Path::new("m.hgnnx"), &mut prepared, None).expect("bytes");
        let again = artifact::to_bytes(Path::new("m.hgnnx"), &mut prepared, None).expect("bytes");
        assert!(bytes == again, "{name}: the same bytes each time");
        let trained =
            Artifact::from_bytes(Path::new("m.hgnnx"), &bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(hgnnc_ir::print(trained.program()), trained.description().program, "{name}");
        assert!(trained.description().evaluation.is_some(), "{name}");
    }
}

/// The fields of a JSON object, as paths: `a.b`, `list[]`, `list[].c`. Metrics have keys of their own.
fn fields(prefix: &str, json: &serde_json::Value, found: &mut BTreeSet<String>) {
    let serde_json::Value::Object(object) = json else { return };
    for (name, value) in object {
        let path = format!("{prefix}{name}");
        match value {
            serde_json::Value::Array(items) => {
                found.insert(format!("{path}[]"));
                items.iter().for_each(|item| fields(&format!("{path}[]."), item, found));
            }
            value => {
                found.insert(path.clone());
                if path != "training.metrics" {
                    fields(&format!("{path}."), value, found);
                }
            }
        }
    }
}

/// Links that are ranked among their own negative samples.
fn with_ranked_links() -> (ModelSource, PathBuf) {
    let (_, model) = examples().into_iter().find(|(name, _)| name == "rgcn/lastfm").expect("an example");
    let text = std::fs::read_to_string(&model).expect("a text");
    let loss = "margin_ranking(score, links, margin: 0.5)";
    let text = text.replace("binary_cross_entropy(score, links)", loss);
    (ModelSource::Text { path: model.clone(), text }, dataset(&model))
}

#[test]
fn the_documentation_has_every_field() {
    let mut found = BTreeSet::new();
    let example = |name: &str| {
        let model = examples().into_iter().find(|(known, _)| known == name).expect("an example").1;
        (ModelSource::File(model.clone()), dataset(&model))
    };
    let folder = tempfile::tempdir().expect("a folder");
    let sources = [example("gcn/cora"), with_ranked_links(), with_attention(), with_two_losses()];
    for (model, data) in sources.into_iter().chain([with_fields(folder.path())]) {
        let mut prepared = open(Purpose::Infer, model, &data);
        let report = prepared.report().expect("a report");
        let bytes = artifact::to_bytes(Path::new("m.hgnnx"), &mut prepared, Some(&report)).expect("bytes");
        let mut about = Artifact::from_bytes(Path::new("m.hgnnx"), &bytes).expect("an artifact").description().clone();
        let columns = || vec!["a".to_owned()];
        about.vertices[0].transforms = vec![
            TransformForm::Numbers { columns: columns(), shift: vec![0.0], scale: vec![1.0], missing: vec![0.0] },
            TransformForm::OneHot { columns: columns(), categories: vec![], separator: None },
            TransformForm::Buckets { columns: columns(), bounds: vec![] },
            TransformForm::Vector { columns: columns(), separator: ";".into(), width: 2 },
        ];
        let target = about.evaluation.as_mut().map(|evaluation| &mut evaluation.target);
        if let Some(TargetForm::Links { temperature, self_loops, .. }) = target {
            (*temperature, *self_loops) = (Some(1.0), true);
        }
        fields("", &serde_json::to_value(&about).expect("JSON"), &mut found);
    }
    let docs =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/artifact.md")).expect("a text");
    let rows = docs.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.map(str::to_owned).collect::<BTreeSet<_>>(), found);
}

/// An artifact of GCN on cora, and the dataset.
fn gcn(folder: &Path) -> (PathBuf, PathBuf) {
    let (name, model) = examples().into_iter().find(|(name, _)| name == "gcn/cora").expect("an example");
    let data = dataset(&model);
    let file = folder.join("gcn.hgnnx");
    artifact::save(&file, &mut open(Purpose::Infer, &model, &data), None)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    (file, data)
}

#[test]
fn other_data_are_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, cora) = gcn(folder.path());
    let trained = std::sync::Arc::new(Artifact::load(&file).expect("an artifact"));
    let refused = |name: &str, change: &dyn Fn(&mut Dataset)| -> String {
        let mut dataset = Dataset::load(&cora).expect("a dataset");
        change(&mut dataset);
        let data = folder.path().join(name);
        dataset.write(&data).expect("written");
        let job = job(ModelSource::Artifact(trained.clone()), &data);
        let error = prepare(Purpose::Measure, &job, &mut Silent).err().unwrap_or_else(|| panic!("{name} is refused"));
        assert!(matches!(error, Error::Input(_)), "{error}");
        error.to_string()
    };
    let said = refused("relation", &|data| data.relations[0].name = "other".into());
    assert!(said.contains("there is no relation `cites`; it has `other`"), "{said}");
    let said = refused("vertices", &|data| data.vertex_types[0].name = "article".into());
    assert!(said.contains("there is no vertex type `paper`; it has `article`"), "{said}");
    let said = refused("classes", &|data| {
        if let hgnnc_dataset::LabelValues::Single { classes, .. } = &mut data.labels[0].values {
            *classes += 1;
        }
        data.labels[0].class_names.clear();
    });
    assert!(said.contains("`y` of `paper` has one of 8 classes; the model was trained on one of 7 classes"), "{said}");
    let said = refused("features", &|data| data.vertex_types[0].features = None);
    assert!(said.contains("`paper` has no features; the model reads 1433 columns"), "{said}");
    let said = refused("splits", &|data| data.splits.clear());
    assert!(said.contains("there is no split"), "{said}");
}

#[test]
fn training_is_refused_and_text_is_a_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, data) = gcn(folder.path());
    let error = prepare(Purpose::Train, &job(&file, &data), &mut Silent).err().expect("refused").to_string();
    assert!(error.contains("is a trained model") && error.contains("--init"), "{error}");
    let model = examples().into_iter().find(|(name, _)| name == "gcn/cora").expect("an example").1;
    let text = ModelSource::Text { path: "cora".into(), text: std::fs::read_to_string(model).expect("a text") };
    assert_eq!(open(Purpose::Infer, text, &data).infer(None).expect("outputs").rows, 2708);
}
