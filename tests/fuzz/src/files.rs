//! Mutated datasets, weights, checkpoints and graph caches, read by the command's own readers. Inputs that load are
//! used: described, bound to a model, trained on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use hgnnc_codegen_cpu::{Options, compile_executable};
use hgnnc_cpu::{CpuBackend, EngineOptions, thread_pool};
use hgnnc_data::{BindOptions, BoundData, ExecError, Identity, bind, middle_of_metapath};
use hgnnc_dataset::{Dataset, schema_text};
use hgnnc_driver::{Diagnostics, LowerOptions, analyze, bind_names, check_dataset, declare_metapaths, lower, settings};
use hgnnc_executable::Executable;
use hgnnc_graph::{DatasetInfo, GraphCache, MetapathOptions, SemanticGraph, SemanticGraphs};
use hgnnc_kernels::simd::Dispatch;
use hgnnc_train::{TrainOptions, Trainer, checkpoint, weights};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::Subject;
use crate::sample;
use crate::text::{NUMBERS, mutate};

/// Kind of the mutated input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Data,
    Weights,
    Checkpoints,
    Caches,
}

/// A fuzz subject with the files of one kind.
pub struct Files {
    kind: Kind,
    /// The dataset and the other input files.
    folder: PathBuf,
    /// Original contents of the mutated files, by their path below `folder`.
    files: BTreeMap<PathBuf, Vec<u8>>,
    models: Vec<Model>,
    /// Metapath graphs of the undamaged dataset.
    graphs: Vec<SemanticGraph>,
    /// Whether a mutated cache file got a valid checksum: it may hold another graph than the right one.
    is_signed: bool,
}

/// A model bound to the dataset.
struct Model {
    text: String,
    executable: Executable,
    identity: Identity,
}

const WEIGHTS: &str = "w.safetensors";
const CHECKPOINTS: &str = "c";

impl Files {
    /// Writes the undamaged files into a folder.
    pub fn new(kind: Kind, folder: &Path) -> Self {
        let data = folder.join("data");
        sample::write(&data);
        let mut this = Self {
            kind,
            folder: folder.to_path_buf(),
            files: BTreeMap::new(),
            models: vec![],
            graphs: vec![],
            is_signed: false,
        };
        let dataset = Dataset::load(&data).unwrap_or_else(|e| panic!("the sample is a dataset: {e}"));
        let texts = [
            sample::vertices("epochs 2"),
            sample::vertices("epochs 2 batch 5 fanout [2, 2]"),
            sample::vertices("epochs 2 batch 3 fanout [2, 2] reuse hot(0.3, batches: 2)"),
            sample::links("epochs 2 batch 8 fanout [3]"),
        ];
        this.models = texts.into_iter().map(|text| model(text, &dataset)).collect();
        match kind {
            Kind::Data => {}
            Kind::Weights => {
                let mut trainer = this.trainer(0, &dataset, TrainOptions::default()).expect("the sample trains");
                trainer.save_weights(&folder.join(WEIGHTS)).expect("written");
            }
            Kind::Checkpoints => {
                for index in 0..this.models.len() {
                    let checkpoint = Some(folder.join(CHECKPOINTS).join(index.to_string()));
                    let identity = Some(this.models[index].identity.clone());
                    let options = TrainOptions { checkpoint, identity, ..TrainOptions::default() };
                    let mut trainer = this.trainer(index, &dataset, options).expect("the sample trains");
                    trainer.run(&AtomicBool::new(false), &mut |_| {}).expect("the sample trains");
                }
            }
            Kind::Caches => this.graphs = this.metapaths(&dataset).expect("the sample has metapaths"),
        }
        let below = match kind {
            Kind::Data => data,
            Kind::Weights => folder.join(WEIGHTS),
            Kind::Checkpoints => folder.join(CHECKPOINTS),
            Kind::Caches => GraphCache::of(&data, u64::MAX).folder().to_path_buf(),
        };
        collect(folder, &below, &mut this.files);
        assert!(!this.files.is_empty(), "{} has files", below.display());
        this
    }

    fn trainer(&self, index: usize, dataset: &Dataset, options: TrainOptions) -> Result<Trainer, String> {
        let executable = &self.models[index].executable;
        let bound = bind(executable, dataset, &bind_options()).map_err(|e| e.to_string())?;
        let options = TrainOptions { threads: 1, ..options };
        trainer(executable.clone(), bound, options).map_err(|e| e.to_string())
    }

    fn metapaths(&self, dataset: &Dataset) -> Result<Vec<SemanticGraph>, String> {
        let cache = GraphCache::beside(dataset, 1 << 20).map(GraphCache::keeping_all);
        let graphs = SemanticGraphs::new(dataset).with_cache(cache);
        let mut found = vec![];
        for path in &dataset.metapaths {
            for counted in [false, true] {
                let options = MetapathOptions { counted, ..MetapathOptions::default() };
                found.push(graphs.metapath(&path.name, &path.steps, options).map_err(|e| e.to_string())?);
            }
        }
        Ok(found)
    }

    /// Restores the files changed by the last case.
    fn restore(&self) {
        let data = self.folder.join("data");
        if self.kind != Kind::Caches {
            let _ = std::fs::remove_dir_all(GraphCache::of(&data, 0).folder());
        }
        for (path, bytes) in &self.files {
            let path = self.folder.join(path);
            if std::fs::read(&path).is_ok_and(|now| now == *bytes) {
                continue;
            }
            let _ = std::fs::remove_file(&path);
            let _ = std::fs::remove_dir_all(&path);
            let _ = std::fs::create_dir_all(path.parent().expect("it lies in the folder"));
            std::fs::write(&path, bytes).expect("written");
        }
    }

    /// Mutates one file; returns a description.
    fn mutate_one(&mut self, rng: &mut ChaCha8Rng) -> String {
        let paths: Vec<&PathBuf> = self.files.keys().collect();
        let mut path = (*paths.choose(rng).expect("there are files")).clone();
        // Preferred, since this file determines how all the others are read.
        if self.kind == Kind::Data && rng.random_ratio(1, 2) {
            path = "data/dataset.toml".into();
        }
        let absolute = self.folder.join(&path);
        let name = path.display().to_string();
        let Ok(bytes) = std::fs::read(&absolute) else { return format!("{name}: nothing, it is gone") };
        match rng.random_range(0..40) {
            0 => {
                let _ = std::fs::remove_file(&absolute);
                return format!("{name}: removed");
            }
            1 => {
                let _ = std::fs::remove_file(&absolute);
                let _ = std::fs::create_dir(&absolute);
                return format!("{name}: a folder");
            }
            2 | 3 => {
                let other = *paths.choose(rng).expect("there are files");
                if let Ok(of_other) = std::fs::read(self.folder.join(other)) {
                    let _ = std::fs::write(&absolute, of_other);
                    let _ = std::fs::write(self.folder.join(other), bytes);
                }
                return format!("{name}: swapped with {}", other.display());
            }
            _ => {}
        }
        let (bytes, how) = match path.extension().and_then(|it| it.to_str()) {
            _ if rng.random_ratio(1, 8) => of_bytes(bytes, rng),
            Some("toml") => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let count = if rng.random_ratio(2, 3) { 1 } else { rng.random_range(2..4) };
                let text = mutate(&text, std::slice::from_ref(&text), count, rng);
                (text.clone().into_bytes(), text)
            }
            Some("npy") => of_npy(bytes, rng),
            Some("safetensors") => of_safetensors(bytes, rng),
            Some("graph") => {
                let (mut bytes, mut how) = of_graph(bytes, rng);
                if rng.random_ratio(2, 3) && sign(&mut bytes) {
                    self.is_signed = true;
                    how += ", with the checksum of that";
                }
                (bytes, how)
            }
            _ => of_bytes(bytes, rng),
        };
        // Fails if an earlier mutation made it a folder.
        let _ = std::fs::write(&absolute, bytes);
        format!("{name}: {how}")
    }

    /// Loads the dataset, and runs everything that the command can do with it.
    fn data(&self, rng: &mut ChaCha8Rng) -> Result<usize, String> {
        let dataset = match Dataset::load(self.folder.join("data")) {
            Ok(dataset) => dataset,
            Err(errors) => {
                let _ = errors.to_string();
                return Ok(0);
            }
        };
        if let Ok(info) = DatasetInfo::new(&dataset) {
            let _ = (info.text(), info.json());
        }
        let _ = schema_text(&dataset);
        let of = rng.random_range(0..self.models.len());
        let mut analysis = analyze("m.hgnn", &self.models[of].text);
        let mut model = analysis.model.take().expect("the models are right");
        let summary = hgnnc::summary(&dataset);
        let mut found = Diagnostics::default();
        check_dataset(&model.schema, model.train.as_ref(), &summary, (None, false), &mut found);
        let _ = hgnnc_diag::render::plain(&analysis.sources, found.iter());
        if found.has_errors() {
            return Ok(1);
        }
        bind_names(&mut model, &summary);
        let tables = model.flow.clone();
        if declare_metapaths(&mut model, |decl| middle_of_metapath(&tables, &dataset, decl)).is_err() {
            return Ok(1);
        }
        let Ok(lowered) = lower(&model, &LowerOptions::default()) else { return Ok(1) };
        let _ = Identity::new(&lowered.executable, settings(&model), &dataset, &bind_options());
        let Ok(bound) = bind(&lowered.executable, &dataset, &bind_options()) else { return Ok(1) };
        let options = TrainOptions { threads: 1, epochs: Some(1), ..TrainOptions::default() };
        let Ok(mut trainer) = trainer(lowered.executable, bound, options) else { return Ok(1) };
        match trainer.run(&AtomicBool::new(false), &mut |_| {}) {
            Ok(_) => Ok(2),
            Err(_) => Ok(1),
        }
    }

    fn weights(&self) -> Result<usize, String> {
        let path = self.folder.join(WEIGHTS);
        let _ = weights::read_text(&path).map_err(|e| e.to_string());
        let Ok(file) = weights::read(&path) else { return Ok(0) };
        let finite = weights::check_finite(&path, &file).map_err(|e| e.to_string());
        let dataset = self.undamaged();
        let mut trainer = self.trainer(0, &dataset, TrainOptions::default())?;
        if trainer.load_weights(&path).map_err(|e| e.to_string()).is_err() {
            return Ok(1);
        }
        if finite.is_err() {
            return Err("weights that are not finite were loaded".into());
        }
        let _ = trainer.evaluate();
        let _ = trainer.infer(None);
        Ok(2)
    }

    fn checkpoints(&self, rng: &mut ChaCha8Rng) -> Result<usize, String> {
        let of = rng.random_range(0..self.models.len());
        let folder = self.folder.join(CHECKPOINTS).join(of.to_string());
        let (progress, order) = (checkpoint::progress_of(&folder), checkpoint::order_of(&folder));
        let loaded = checkpoint::load(&folder, "Net").map_err(|e| e.to_string());
        if let (Ok((progress, _)), true) = (&loaded, rng.random_ratio(1, 2)) {
            let path = checkpoint::file_of(&folder);
            let identity = &self.models[of].identity;
            let _ = checkpoint::check_identity(&path, progress.identity.as_ref(), identity, false, &["seed"]);
        }
        let epochs = progress.map(|progress| progress.epochs_done.saturating_add(2)).filter(|&epochs| epochs < 50);
        let options = TrainOptions {
            checkpoint: Some(folder),
            resume: true,
            epochs: Some(epochs.unwrap_or(4)),
            identity: Some(self.models[of].identity.clone()),
            allow_changed: rng.random_ratio(1, 2),
            ..TrainOptions::default()
        };
        let _ = order;
        let dataset = self.undamaged();
        let Ok(mut trainer) = self.trainer(of, &dataset, options) else { return Ok(usize::from(loaded.is_ok())) };
        let outcome = trainer.run(&AtomicBool::new(false), &mut |_| {});
        Ok(if outcome.is_ok() { 2 } else { 1 })
    }

    fn caches(&self) -> Result<usize, String> {
        let dataset = self.undamaged();
        let _ = GraphCache::of(&self.folder.join("data"), 1 << 20).entries();
        let graphs = self.metapaths(&dataset)?;
        for (graph, right) in graphs.iter().zip(&self.graphs) {
            if self.is_signed {
                leads_nowhere_else(graph)?;
            } else if graph != right {
                return Err(format!("`{}` is another graph than without the damage", graph.name));
            }
        }
        Ok(usize::from(self.is_signed))
    }

    /// The dataset, for kinds that mutate other files.
    fn undamaged(&self) -> Dataset {
        Dataset::load(self.folder.join("data")).unwrap_or_else(|e| panic!("the sample is a dataset: {e}"))
    }
}

impl Subject for Files {
    fn outcomes(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Data => &["refused", "loaded", "trained on"],
            Kind::Weights => &["not read", "refused", "used"],
            Kind::Checkpoints => &["not read", "refused", "resumed"],
            Kind::Caches => &["damaged", "damaged with a right checksum"],
        }
    }

    fn prepare(&mut self, rng: &mut ChaCha8Rng) -> String {
        self.restore();
        self.is_signed = false;
        let count = if rng.random_ratio(2, 3) { 1 } else { rng.random_range(2..4) };
        let lines: Vec<String> = (0..count).map(|_| self.mutate_one(rng)).collect();
        lines.join("\n")
    }

    fn run(&mut self, rng: &mut ChaCha8Rng) -> Result<usize, String> {
        match self.kind {
            Kind::Data => self.data(rng),
            Kind::Weights => self.weights(),
            Kind::Checkpoints => self.checkpoints(rng),
            Kind::Caches => self.caches(),
        }
    }
}

/// Edges are in range, and in- and out-edges are equally many. A file with a recomputed checksum may hold another
/// graph.
fn leads_nowhere_else(graph: &SemanticGraph) -> Result<(), String> {
    let count = graph.num_edges();
    let ins = (0..graph.num_dst).flat_map(|dst| graph.in_neighbors(dst)).all(|&src| (src as usize) < graph.num_src);
    let outs = (0..graph.num_src).all(|src| {
        let ends = graph.out_neighbors(src).iter().all(|&dst| (dst as usize) < graph.num_dst);
        ends && graph.out_edges(src).iter().all(|&edge| (edge as usize) < count)
    });
    if ins && outs { Ok(()) } else { Err(format!("edges of `{}` lead to vertices that are not there", graph.name)) }
}

fn bind_options() -> BindOptions {
    BindOptions { graph_cache: Some(1 << 20), ..BindOptions::default() }
}

fn model(text: String, dataset: &Dataset) -> Model {
    let analysis = analyze("m.hgnn", &text);
    let reports = hgnnc_diag::render::plain(&analysis.sources, analysis.diagnostics.iter());
    let mut analyzed = analysis.model.unwrap_or_else(|| panic!("{reports}"));
    bind_names(&mut analyzed, &hgnnc::summary(dataset));
    let tables = analyzed.flow.clone();
    declare_metapaths(&mut analyzed, |decl| middle_of_metapath(&tables, dataset, decl))
        .expect("the sample has the relations");
    let executable = lower(&analyzed, &LowerOptions::default()).unwrap_or_else(|e| panic!("{e}")).executable;
    let identity = Identity::new(&executable, settings(&analyzed), dataset, &bind_options()).expect("the sample fits");
    Model { text, executable, identity }
}

/// All files in a folder, or one file, by their path below `root`.
fn collect(root: &Path, path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).expect("a folder");
        entries.flatten().for_each(|entry| collect(root, &entry.path(), files));
    } else {
        let below = path.strip_prefix(root).expect("it lies in the folder");
        files.insert(below.to_path_buf(), std::fs::read(path).expect("a file"));
    }
}

/// Flips, removes, adds or truncates bytes.
fn of_bytes(mut bytes: Vec<u8>, rng: &mut ChaCha8Rng) -> (Vec<u8>, String) {
    let at = rng.random_range(0..=bytes.len());
    let how = match rng.random_range(0..5) {
        0 => {
            bytes.truncate(at);
            format!("cut to {at} bytes")
        }
        1 => {
            let more = rng.random_range(1..300);
            bytes.splice(at..at, (0..more).map(|i| i as u8));
            format!("{more} bytes more at {at}")
        }
        2 => {
            let end = (at + rng.random_range(1..64)).min(bytes.len());
            bytes.drain(at..end);
            format!("without bytes {at}..{end}")
        }
        _ => {
            let mut how = "bytes".to_owned();
            for _ in 0..rng.random_range(1..5) {
                if !bytes.is_empty() {
                    let at = rng.random_range(0..bytes.len());
                    bytes[at] = *[0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ (1 << rng.random_range(0..8))]
                        .choose(rng)
                        .expect("a list");
                    how += &format!(" {at}={}", bytes[at]);
                }
            }
            how
        }
    };
    (bytes, how)
}

/// Mutates the header of an array as text, or sets elements to extreme values.
fn of_npy(mut bytes: Vec<u8>, rng: &mut ChaCha8Rng) -> (Vec<u8>, String) {
    // Version 1 of the format: ten bytes, the last two of which are the header length.
    let Some(&[low, high]) = bytes.get(8..10) else { return of_bytes(bytes, rng) };
    let begin = (10 + usize::from(u16::from_le_bytes([low, high]))).min(bytes.len());
    if rng.random_ratio(1, 2) {
        let mut header = String::from_utf8_lossy(&bytes[10..begin]).into_owned();
        let types = ["<i4", "<f4", "<i8", "<u4", "<f8", ">i4", "<i2", "|u1", "|O", "<U9", "<i9", ""];
        match rng.random_range(0..4) {
            0 => {
                let from = types.iter().find(|it| !it.is_empty() && header.contains(**it)).unwrap_or(&"<i4");
                header = header.replace(from, types.choose(rng).expect("a list"));
            }
            1 => header = header.replace("False", "True"),
            2 => {
                let shape = NUMBERS.choose(rng).expect("a list");
                header = header.replacen("(", &format!("({shape}, "), 1);
            }
            _ => header = mutate(&header, std::slice::from_ref(&header), 1, rng),
        }
        let header = header.into_bytes();
        let length = u16::try_from(header.len()).unwrap_or(u16::MAX);
        bytes.splice(10..begin, header.iter().copied());
        if rng.random_ratio(4, 5) {
            bytes[8..10].copy_from_slice(&length.to_le_bytes());
        }
        return (bytes, format!("the header {}", String::from_utf8_lossy(&header)));
    }
    let mut how = "elements".to_owned();
    let (words, _) = bytes[begin..].as_chunks_mut::<4>();
    let extremes = [0, 1, -1, 2, 24, 25, i32::MAX, i32::MIN, i32::MAX - 1, 0x7fc0_0000, 0x7f80_0000, 1 << 30];
    for _ in 0..rng.random_range(1..5) {
        if let Some(at) = (!words.is_empty()).then(|| rng.random_range(0..words.len())) {
            let value: i32 = *extremes.choose(rng).expect("a list");
            words[at] = value.to_le_bytes();
            how += &format!(" {at}={value}");
        }
    }
    (bytes, how)
}

/// Mutates the header of a safetensors file, or the text in it, as text; or sets elements to extreme values.
pub fn of_safetensors(mut bytes: Vec<u8>, rng: &mut ChaCha8Rng) -> (Vec<u8>, String) {
    let Some(Ok(length)) = bytes.get(..8).map(|it| it.try_into().map(u64::from_le_bytes)) else {
        return of_bytes(bytes, rng);
    };
    let begin = usize::try_from(length).map_or(bytes.len(), |length| length.saturating_add(8).min(bytes.len()));
    let mut header = String::from_utf8_lossy(&bytes[8..begin]).into_owned();
    let how = match rng.random_range(0..3) {
        0 => {
            let mut how = "elements".to_owned();
            let (words, _) = bytes[begin..].as_chunks_mut::<4>();
            for _ in 0..rng.random_range(1..5) {
                if let Some(at) = (!words.is_empty()).then(|| rng.random_range(0..words.len())) {
                    let value =
                        *[0.0f32, -0.0, 1e38, -1e38, 1e-45, f32::NAN, f32::INFINITY].choose(rng).expect("a list");
                    words[at] = value.to_le_bytes();
                    how += &format!(" {at}={value}");
                }
            }
            return (bytes, how);
        }
        1 => {
            header = mutate(&header, std::slice::from_ref(&header), rng.random_range(1..3), rng);
            "the header"
        }
        _ => {
            let Ok(mut json) = serde_json::from_str::<serde_json::Value>(&header) else { return of_bytes(bytes, rng) };
            if let Some(serde_json::Value::String(text)) = json.pointer_mut("/__metadata__/hgnnc") {
                *text = mutate(text, std::slice::from_ref(&*text), rng.random_range(1..3), rng);
            }
            header = json.to_string();
            "the text"
        }
    };
    // Tensors are aligned to 8 bytes.
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let length = header.len() as u64;
    bytes.splice(8..begin, header.bytes());
    if rng.random_ratio(9, 10) {
        bytes[..8].copy_from_slice(&length.to_le_bytes());
    }
    (bytes, format!("{how}: {header}"))
}

/// Sets a number in the header or the arrays of a cached graph to an extreme value.
fn of_graph(mut bytes: Vec<u8>, rng: &mut ChaCha8Rng) -> (Vec<u8>, String) {
    let (words, _) = bytes.as_chunks_mut::<4>();
    let mut how = "words".to_owned();
    for _ in 0..rng.random_range(1..4) {
        let least = if rng.random_ratio(1, 2) { 2 } else { 24 };
        if words.len() <= least {
            return of_bytes(bytes, rng);
        }
        let most = if least == 2 { words.len().min(24) } else { words.len() };
        let at = rng.random_range(least..most);
        let now = u32::from_le_bytes(words[at]);
        let value = *[0, 1, 2, 3, now.wrapping_add(1), now.wrapping_sub(1), 1 << 30, u32::MAX, 0x7fc0_0000]
            .choose(rng)
            .expect("a list");
        words[at] = value.to_le_bytes();
        how += &format!(" {at}={value}");
    }
    (bytes, how)
}

/// Recomputes the checksum of a cached graph; returns whether the file is long enough for one.
fn sign(bytes: &mut [u8]) -> bool {
    /// Size of the header, and offset of the checksum.
    const HEADER: usize = 96;
    const CHECKSUM: usize = 80;
    if bytes.len() < HEADER {
        return false;
    }
    let number = |at: usize| bytes[at..at + 8].iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
    let (rows, pairs, steps) = (number(40), number(48), number(64));
    let lengths = [Some(steps), rows.checked_add(1).and_then(|it| it.checked_mul(8)), pairs.checked_mul(4)];
    let mut hash = Xxh3::new();
    hash.update(&bytes[..CHECKSUM]);
    let mut rest = &bytes[HEADER..];
    for (index, length) in lengths.into_iter().enumerate() {
        let length = length.and_then(|it| usize::try_from(it).ok()).map_or(rest.len(), |it| it.min(rest.len()));
        let (part, behind) = rest.split_at(length);
        rest = behind;
        match index {
            0 => hash.update(part),
            _ if part.is_empty() => {}
            _ => hash.update(&xxh3_128(part).to_le_bytes()),
        }
    }
    if !rest.is_empty() {
        hash.update(&xxh3_128(rest).to_le_bytes());
    }
    bytes[CHECKSUM..HEADER].copy_from_slice(&hash.digest128().to_le_bytes());
    true
}

/// A trainer of an executable on this processor.
fn trainer(mut executable: Executable, data: BoundData, options: TrainOptions) -> Result<Trainer, ExecError> {
    let compile = Options::new(options.code, options.features, Dispatch::new(options.features).level());
    compile_executable(&mut executable, &compile, &compile);
    let TrainOptions { threads, features, .. } = options;
    let machine = EngineOptions { threads, dispatch: Dispatch::new(features), room: None };
    let backend = CpuBackend::new(&executable, thread_pool(threads)?, machine);
    Trainer::new(executable, Box::new(backend), data, options)
}
