//! Tests across crates: the harness that their files share.
//!
//! A case is a `.hgnn` file. Its first comment says what it shows; further comments of its head may say what
//! stands around it: `// dataset: …` ([`Setting::dataset`]), `// new: …` ([`Setting::new`]), `// split: NAME` (as on the
//! command line) and `// disable: PASS`. Files that it imports from stand behind it ([`Files`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hgnnc_driver::{
    Analysis, DatasetSummary, Diagnostics, Disabled, FieldSummary, LabelSummary, LabelSummaryKind, LowerError,
    LowerOptions, ModuleFile, ModuleFiles, ModulePath, NotFound, RelationSummary, RowsOf, VertexSummary, analyze_with,
    check_dataset, check_unseen, codes, diag, leave_precomputed, lower, silence, unknown_name,
};
use hgnnc_ir::VertexType;

/// The text of a file of `cases/FOLDER`.
///
/// # Panics
/// When it is not there.
pub fn case_text(folder: &str, file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases").join(folder).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The settings in the comments at the head of a case.
#[derive(Default, Debug)]
pub struct Setting {
    /// `vertex NAME COUNT [dense N | sparse N]; field VERTEX NAME dense|sparse N; relation NAME SRC DST EDGES [weighted] [features N];
    /// label VERTEX NAME class|multi|real N; split NAME VERTEX`
    pub dataset: Option<DatasetSummary>,
    /// `VERTEX COUNT; …`: vertices that were not there in training, by names of the model.
    pub new: Vec<(String, usize)>,
    /// The split that the command line asks for.
    pub split: Option<String>,
    /// Passes that the command line switches off.
    pub disabled: Disabled,
}

impl Setting {
    /// Reads the comments in front of the first line that is none.
    ///
    /// # Panics
    /// When a description of a dataset cannot be read: it is part of the test.
    pub fn of(text: &str) -> Setting {
        let mut setting = Setting::default();
        for line in text.lines().map_while(|line| line.strip_prefix("// ")) {
            if let Some(text) = line.strip_prefix("dataset: ") {
                setting.dataset = Some(dataset(text));
            } else if let Some(text) = line.strip_prefix("new: ") {
                let entry = |entry: &str| {
                    let (name, count) = entry.trim().split_once(' ').unwrap_or_else(|| panic!("`{entry}` is no count"));
                    (name.to_owned(), count.parse().unwrap_or_else(|_| panic!("`{count}` is not a number")))
                };
                setting.new = text.split(';').map(entry).collect();
            } else if let Some(text) = line.strip_prefix("split: ") {
                setting.split = Some(text.to_string());
            } else if let Some(text) = line.strip_prefix("disable: ") {
                setting.disabled.passes.push(text.to_string());
            }
        }
        setting
    }
}

fn dataset(text: &str) -> DatasetSummary {
    let mut summary = DatasetSummary { path: "data/dataset.toml".to_string(), ..DatasetSummary::default() };
    let number = |word: &str| -> usize { word.parse().unwrap_or_else(|_| panic!("`{word}` is not a number")) };
    for entry in text.split(';') {
        let words: Vec<&str> = entry.split_whitespace().collect();
        let vertex = |name: &str| {
            let position = summary.vertices.iter().position(|v| v.name == name);
            position.unwrap_or_else(|| panic!("no vertex type `{name}` before `{entry}`"))
        };
        let rows = |name: &str| match summary.relations.iter().position(|r| r.name == name) {
            Some(relation) => RowsOf::Edges(relation),
            None => RowsOf::Vertices(vertex(name)),
        };
        match words[..] {
            ["vertex", name, count, ref features @ ..] => {
                let features = match features {
                    [] => None,
                    [layout, width] => Some((number(width), *layout == "sparse")),
                    _ => panic!("`{entry}` is not a vertex type"),
                };
                summary.vertices.push(VertexSummary {
                    name: name.to_string(),
                    count: number(count),
                    features,
                    fields: vec![],
                    time: None,
                });
            }
            ["field", of, name, layout, width] => {
                let of = vertex(of);
                let field = FieldSummary { name: name.to_string(), width: number(width), sparse: layout == "sparse" };
                summary.vertices[of].fields.push(field);
            }
            ["time", of, first, last] => {
                let time = [first, last].map(|time| time.parse().unwrap_or_else(|_| panic!("`{time}` is no time")));
                let time = Some((time[0], time[1]));
                match rows(of) {
                    RowsOf::Vertices(vertex) => summary.vertices[vertex].time = time,
                    RowsOf::Edges(relation) => summary.relations[relation].time = time,
                }
            }
            ["relation", name, src, dst, edges, ref data @ ..] => {
                let features = data.iter().position(|w| *w == "features").map(|at| number(data[at + 1]));
                let relation = RelationSummary {
                    name: name.to_string(),
                    src: vertex(src),
                    dst: vertex(dst),
                    edges: number(edges),
                    weighted: data.contains(&"weighted"),
                    features,
                    time: None,
                };
                summary.relations.push(relation);
            }
            ["label", of, name, kind, width] => {
                let kind = match kind {
                    "class" => LabelSummaryKind::Class(number(width)),
                    "multi" => LabelSummaryKind::Multi(number(width)),
                    "real" => LabelSummaryKind::Real(number(width)),
                    _ => panic!("`{kind}` is not a kind of label"),
                };
                summary.labels.push(LabelSummary { name: name.to_string(), of: rows(of), kind });
            }
            ["split", name, of] => summary.splits.push((name.to_string(), rows(of))),
            _ => panic!("`{entry}` does not describe a part of a dataset"),
        }
    }
    summary
}

/// The files of a case in one text: the model's own, and others, each behind a line `//--- PATH`. A package is a folder.
/// With `//--- PATH unreadable: REASON`, the file cannot be read.
#[derive(Debug)]
pub struct Files<'a> {
    /// Path, and the text or why there is none; the model's own first.
    files: Vec<(&'a str, Result<&'a str, &'a str>)>,
}

impl<'a> Files<'a> {
    /// Cuts a text in front of its separators. Returns the model's own part.
    pub fn of(name: &'a str, text: &'a str) -> (&'a str, Self) {
        let mut parts = text.split("\n//--- ");
        let own = parts.next().unwrap_or_default();
        let other = |part: &'a str| {
            let (head, text) = part.split_once('\n').unwrap_or((part, ""));
            match head.split_once(" unreadable: ") {
                Some((path, reason)) => (path, Err(reason)),
                None => (head, Ok(text)),
            }
        };
        let files = std::iter::once((name, Ok(own))).chain(parts.map(other)).collect();
        (own, Files { files })
    }
}

impl ModuleFiles for Files<'_> {
    fn find(&mut self, from: usize, wanted: &ModulePath<'_>) -> Result<ModuleFile, NotFound> {
        let path = match wanted {
            ModulePath::File(path) => {
                let mut parts: Vec<&str> = self.files[from].0.split('/').collect();
                parts.pop();
                for part in path.split('/') {
                    match part {
                        ".." => _ = parts.pop(),
                        part => parts.push(part),
                    }
                }
                parts.join("/")
            }
            ModulePath::Package { package, module } => format!("{package}/{}.hgnn", module.join("/")),
        };
        let found = self.files.iter().position(|(name, _)| *name == path);
        let Some(number) = found else {
            let folder = |name: &'_ str| name.split_once('/').map(|(folder, _)| folder.to_owned());
            let known: BTreeSet<String> = self.files.iter().filter_map(|(name, _)| folder(name)).collect();
            return Err(match wanted {
                ModulePath::Package { package, .. } if !known.contains(*package) => NotFound::Package {
                    manifest: (!known.is_empty()).then(|| "hgnnc.toml".to_owned()),
                    known: known.into_iter().collect(),
                },
                ModulePath::Package { .. } => {
                    let name = |name: &str| Some(name.strip_suffix(".hgnn")?.replace('/', "::"));
                    let others = self.files.iter().filter_map(|(path, _)| name(path)).collect();
                    NotFound::File { looked_for: path, others }
                }
                ModulePath::File(_) => NotFound::File {
                    looked_for: path,
                    others: self.files[1..].iter().map(|(name, _)| (*name).to_owned()).collect(),
                },
            });
        };
        match self.files[number] {
            (name, Ok(text)) => Ok(ModuleFile { number, name: name.to_owned(), text: text.into() }),
            (name, Err(reason)) => Err(NotFound::Unreadable(format!("`{name}`: {reason}"))),
        }
    }
}

/// A file, analyzed and met with what its head says stands around it.
pub struct Outcome {
    /// The result of the analysis.
    pub analysis: Analysis,
    /// All that was reported, in order.
    pub diagnostics: Diagnostics,
}

impl Outcome {
    /// The reports as a terminal shows them, without colour.
    pub fn reports(&self) -> String {
        diag::render::plain(&self.analysis.sources, self.diagnostics.iter())
    }

    /// The codes in order.
    pub fn codes(&self) -> Vec<&'static str> {
        self.diagnostics.iter().map(|d| d.code.name()).collect()
    }
}

/// Does what `hgnnc check` does, and lowers what is right.
pub fn check(name: &str, text: &str) -> Outcome {
    let setting = Setting::of(text);
    let (text, mut files) = Files::of(name, text);
    let mut analysis = analyze_with(name, text, &[], &mut files);
    let mut diagnostics = analysis.diagnostics.clone();
    if let Some(model) = &mut analysis.model {
        if let Some(dataset) = &setting.dataset {
            let split = setting.split.as_deref();
            check_dataset(&model.schema, model.train.as_ref(), dataset, (split, false), &mut diagnostics);
            silence(&analysis.allows, &mut diagnostics, |code| code == codes::EMPTY_RELATION);
            diagnostics.sort();
        }
        let added = |vertex: VertexType| {
            let name = &model.flow.vertex_types[vertex.index()].name;
            setting.new.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
        };
        check_unseen(model, added, &mut diagnostics);
        let options = LowerOptions { disabled: setting.disabled.clone(), ..LowerOptions::default() };
        let whole = model.flow.clone();
        leave_precomputed(model, &setting.disabled);
        let lowered = lower(model, &options);
        (model.flow, model.precomputed) = (whole, None);
        match lowered {
            Ok(_) => {}
            Err(LowerError::Name(error)) => diagnostics.push(unknown_name(&error)),
            Err(
                error @ (LowerError::Kernel(_) | LowerError::Gradient(_) | LowerError::Batch(_) | LowerError::Place(_)),
            ) => {
                panic!("{name}: {error}")
            }
        }
    }
    Outcome { analysis, diagnostics }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository").to_path_buf()
}

/// All `.hgnn` files in the folders of the repository and below, as (name, text), in order.
///
/// # Panics
/// When a folder or file cannot be read.
pub fn sources(folders: &[&str]) -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.expect("entries can be listed").path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "hgnn") {
                found.push(path);
            }
        }
    }
    let root = root();
    let mut paths = vec![];
    for folder in folders {
        walk(&root.join(folder), &mut paths);
    }
    paths.sort();
    let name = |path: &Path| path.strip_prefix(&root).expect("found below the root").display().to_string();
    paths
        .into_iter()
        .map(|path| (name(&path), std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))))
        .collect()
}
