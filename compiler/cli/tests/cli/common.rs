//! A small dataset, models of it, and runs of the command.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hgnnc_dataset::npy;
use hgnnc_train::weights;
use serde_json::Value;
use tempfile::TempDir;

/// Papers of the dataset.
pub const PAPERS: usize = 40;
/// Authors of the dataset.
pub const AUTHORS: usize = 12;

/// The folder of generated datasets, for all tests of this program and its next run.
pub const CACHE: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cache");

/// Exit code, output and error messages of a run.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn of(output: Output) -> Run {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let run = Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) };
        assert_ne!(run.code, Some(101), "a panic: {run:?}");
        assert!(!run.err.contains("panicked"), "a panic: {run:?}");
        run
    }

    /// The exit code is `code`, and standard error has all these words.
    #[track_caller]
    pub fn fails(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "out: {}\nerr: {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no `{word}` in:\n{}", self.err);
        }
        assert!(code == 2 || self.err.contains("error"), "no `error` in:\n{}", self.err);
    }

    /// The exit code is 0.
    #[track_caller]
    pub fn works(self) -> Run {
        assert_eq!(self.code, Some(0), "out: {}\nerr: {}", self.out, self.err);
        self
    }

    /// The exit code is 0, and there is nothing but the line that `check` ends with.
    #[track_caller]
    pub fn passes(&self) {
        let (last, lines) = (self.err.trim_end(), self.err.lines().count());
        assert_eq!((self.code, &self.out[..], lines), (Some(0), "", 1), "{}", self.err);
        assert!(last.contains(": no errors"), "{last}");
    }

    /// The exit code is 0 and neither stream has a word.
    #[track_caller]
    pub fn is_silent(&self) {
        assert_eq!((self.code, &self.out[..], &self.err[..]), (Some(0), "", ""));
    }
}

/// A folder for one test with the dataset in `data`, and room for models and results.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
    /// With the small dataset.
    pub fn new() -> Place {
        let place = Place { folder: tempfile::Builder::new().prefix("a place ").tempdir().expect("a folder") };
        write_dataset(&place.path("data"));
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a model.
    pub fn model(&self, text: &str) -> &Self {
        std::fs::write(self.path("m.hgnn"), text).expect("written");
        self
    }

    /// A command that starts in this folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hgnnc"));
        command.args(args).current_dir(self.folder.path()).env("HGNNC_CACHE", CACHE).env_remove("RUST_BACKTRACE");
        command
    }

    /// Runs the command to its end.
    pub fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().expect("it starts"))
    }

    /// Runs it with the model and the dataset of this folder.
    pub fn with_data(&self, command: &str, args: &[&str]) -> Run {
        self.run(&[&[command, "m.hgnn", "--data", "data"], args].concat())
    }

    /// Replaces text in `dataset.toml`.
    #[track_caller]
    pub fn toml(&self, from: &str, to: &str) -> &Self {
        replace(&self.path("data/dataset.toml"), from, to);
        self
    }

    /// Replaces a file of the dataset.
    pub fn npy<T: npy::Element>(&self, name: &str, shape: &[usize], values: &[T]) -> &Self {
        npy::write(&self.path("data").join(name), shape, values).expect("written");
        self
    }

    /// Number of edges that have a weight.
    pub fn weights_of_edges(&self) -> usize {
        npy::Npy::open(&self.path("data/writes.w.npy")).unwrap_or_else(|e| panic!("{e:?}")).shape()[0]
    }

    /// The names in this folder, sorted.
    pub fn names(&self) -> Vec<String> {
        names(self.folder.path())
    }

    pub fn json(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.path(name)).expect("a report");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Shapes and elements of a weights file.
    pub fn weights(&self, name: &str) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
        weights::read(&self.path(name)).unwrap_or_else(|e| panic!("{e}")).tensors
    }
}

/// The names in a folder, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Replaces text in a file.
#[track_caller]
pub fn replace(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).expect("a text");
    assert!(text.contains(from), "no `{from}` in {text}");
    std::fs::write(path, text.replacen(from, to, 1)).expect("written");
}

/// Class of a paper.
fn class(paper: usize) -> usize {
    paper % 3
}

/// Papers (sparse features) and authors (dense ones), two relations, three labels, one split. The class of a paper
/// shows in its features and in its neighbours, so that a model can learn it.
pub fn write_dataset(folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.join("dataset.toml"), TOML).expect("written");
    let path = |name: &str| folder.join(name);
    let integers = |name: &str, shape: &[usize], values: &[i32]| npy::write(&path(name), shape, values).expect(name);
    let floats = |name: &str, shape: &[usize], values: &[f32]| npy::write(&path(name), shape, values).expect(name);

    let (mut indptr, mut indices) = (vec![0i64], vec![]);
    for paper in 0..PAPERS {
        // One word of its class, one that means nothing.
        indices.extend([class(paper) as i32, 3 + (paper * 7 % 3) as i32]);
        indptr.push(indices.len() as i64);
    }
    npy::write(&path("paper.x.indptr.npy"), &[PAPERS + 1], &indptr).expect("written");
    integers("paper.x.indices.npy", &[indices.len()], &indices);
    floats("paper.x.data.npy", &[indices.len()], &vec![1.0; indices.len()]);
    let dense: Vec<f32> = (0..AUTHORS * 3).map(|i| (i * 5 % 7) as f32 / 7.0 - 0.4).collect();
    floats("author.x.npy", &[AUTHORS, 3], &dense);

    let writes: Vec<(i32, i32)> = (0..AUTHORS as i32)
        .flat_map(|a| {
            (0..PAPERS as i32).filter(move |p| p % 12 == a || (p % 5 == 0 && p % 7 == a)).map(move |p| (a, p))
        })
        .collect();
    let cites: Vec<(i32, i32)> = (0..PAPERS as i32 - 3).map(|p| (p, p + 3)).collect();
    for (name, edges) in [("writes", &writes), ("cites", &cites)] {
        let ends: Vec<i32> = edges.iter().map(|e| e.0).chain(edges.iter().map(|e| e.1)).collect();
        integers(&format!("{name}.npy"), &[2, edges.len()], &ends);
    }
    let n = writes.len();
    floats("writes.w.npy", &[n], &(0..n).map(|i| 0.5 + (i % 4) as f32 / 4.0).collect::<Vec<_>>());
    floats("writes.x.npy", &[n, 2], &(0..2 * n).map(|i| (i % 3) as f32 - 1.0).collect::<Vec<_>>());

    integers("paper.y.npy", &[PAPERS], &(0..PAPERS).map(|p| class(p) as i32).collect::<Vec<_>>());
    let tags: Vec<f32> =
        (0..PAPERS).flat_map(|p| [class(p) == 0, class(p) != 1].map(|b| if b { 1.0 } else { 0.0 })).collect();
    floats("paper.tags.npy", &[PAPERS, 2], &tags);
    floats("paper.year.npy", &[PAPERS, 1], &(0..PAPERS).map(|p| class(p) as f32 - 0.5).collect::<Vec<_>>());
    for (part, range) in [("train", 0..20), ("val", 20..28), ("test", 28..40)] {
        let ids: Vec<i32> = range.collect();
        integers(&format!("paper.half.{part}.npy"), &[ids.len()], &ids);
    }
}

const TOML: &str = r#"name = "tiny"

[[vertex_type]]
name = "paper"
count = 40
[vertex_type.features]
kind = "csr"
dim = 6
indptr = "paper.x.indptr.npy"
indices = "paper.x.indices.npy"
data = "paper.x.data.npy"

[[vertex_type]]
name = "author"
count = 12
[vertex_type.features]
kind = "dense"
dim = 3
file = "author.x.npy"

[[relation]]
name = "author-paper"
src = "author"
dst = "paper"
file = "writes.npy"
weight = "writes.w.npy"
[relation.features]
file = "writes.x.npy"
dim = 2

[[relation]]
name = "paper-paper"
src = "paper"
dst = "paper"
file = "cites.npy"

[[label]]
vertex_type = "paper"
name = "y"
classes = 3
file = "paper.y.npy"

[[label]]
vertex_type = "paper"
name = "tags"
kind = "multi"
classes = 2
file = "paper.tags.npy"

[[label]]
vertex_type = "paper"
name = "year"
kind = "real"
file = "paper.year.npy"

[[split]]
name = "half"
vertex_type = "paper"
train = "paper.half.train.npy"
val = "paper.half.val.npy"
test = "paper.half.test.npy"

[[metapath]]
name = "PAP"
steps = ["<author-paper", ">author-paper"]
"#;

/// The schema of the dataset.
pub const SCHEMA: &str = r#"
schema Tiny {
    vertex Paper from "paper" { x: f32[6] sparse, y: class[3], tags: multilabel[2], year: target[1] }
    vertex Author from "author" { x: f32[3] }
    relation writes: Author -> Paper from "author-paper" { weight: f32, kind: f32[2] }
    relation cites: Paper -> Paper from "paper-paper"
}
"#;

/// The model that most tests use, with a metapath from papers to papers.
pub fn with_metapath() -> String {
    let path = "metapath PAP = Paper <-writes- Author -writes-> Paper\n    relation cites";
    usual().replace("relation cites", path).replace("reverses] of hidden", "reverses, PAP] of hidden")
}

/// A train block that classifies papers.
pub const TRAIN: &str = r#"
train Net {
    split     "half"
    loss      cross_entropy(logits, Paper.y)
    optimizer adam(lr: 0.02)
    epochs    30
    metrics   accuracy, macro_f1
}
"#;

/// Statements of the model that most tests use.
pub const BODY: &str = r#"
    let hidden = dropout(relu(RgcnConv(hidden: 8) over [relations, reverses] of features), 0.2)
    output logits: Paper = RgcnConv(hidden: 3) over [relations, reverses] of hidden
"#;

/// A file with the schema, a model of these statements, and a train block.
pub fn model_of(body: &str, train: &str) -> String {
    format!("use std::rgcn::RgcnConv\n{SCHEMA}\nmodel Net(schema: Tiny) {{{body}}}\n{train}")
}

/// The model that most tests use.
pub fn usual() -> String {
    model_of(BODY, TRAIN)
}
