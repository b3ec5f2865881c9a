//! Mutated artifacts: read, compared with a dataset, and used if they fit. A file must be refused, or work.

use std::path::{Path, PathBuf};

use hgnnc::artifact::{self, Artifact};
use hgnnc::{Device, Job, ModelSource, Purpose, Silent, prepare};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::Subject;
use crate::files::of_safetensors;
use crate::sample;
use crate::text::mutate;

/// A fuzz subject of mutated artifacts.
pub struct Artifacts {
    data: PathBuf,
    /// Undamaged files of several models.
    files: Vec<Vec<u8>>,
    /// The mutated one.
    bytes: Vec<u8>,
}

/// The name in messages.
const NAME: &str = "m.hgnnx";

impl Artifacts {
    /// Writes the dataset into a folder, and makes an artifact of each model.
    pub fn new(folder: &Path) -> Self {
        let data = folder.join("data");
        sample::write(&data);
        let texts = [
            sample::vertices("epochs 2"),
            sample::vertices("epochs 2 batch 5 fanout [2, 2]"),
            sample::links("epochs 2 batch 8 fanout [3]"),
            sample::attention(),
        ];
        let of = |text: &String| {
            let source = ModelSource::Text { path: "m.hgnn".into(), text: text.clone() };
            let mut prepared =
                prepare(Purpose::Infer, &job(source, &data), &mut Silent).unwrap_or_else(|error| panic!("{error}"));
            artifact::to_bytes(Path::new(NAME), &mut prepared, None).unwrap_or_else(|error| panic!("{error}"))
        };
        let files = texts.iter().map(of).collect();
        Self { data, files, bytes: vec![] }
    }
}

fn job(model: ModelSource, data: &Path) -> Job {
    let mut job = Job { data: Some(data).into(), device: Device::Cpu, graph_cache: None, ..Job::new("") };
    (job.model, job.options.threads) = (model, 1);
    job
}

impl Subject for Artifacts {
    fn outcomes(&self) -> &'static [&'static str] {
        &["not read", "does not fit", "used"]
    }

    fn prepare(&mut self, rng: &mut ChaCha8Rng) -> String {
        let bytes = self.files.choose(rng).expect("there are models").clone();
        let (bytes, how) = match rng.random_range(0..4) {
            0 => of_safetensors(bytes, rng),
            1 => of_metadata(&bytes, rng, |json, rng| {
                let text = json.to_string();
                serde_json::from_str(&mutate(&text, std::slice::from_ref(&text), 1, rng)).unwrap_or(json)
            }),
            // The program is most of the text, and what is computed by.
            _ => of_metadata(&bytes, rng, |mut json, rng| {
                if let Some(serde_json::Value::String(program)) = json.get_mut("program") {
                    let count = if rng.random_ratio(3, 4) { 1 } else { 2 };
                    *program = mutate(program, std::slice::from_ref(&*program), count, rng);
                }
                json
            }),
        };
        self.bytes = bytes;
        how
    }

    fn run(&mut self, rng: &mut ChaCha8Rng) -> Result<usize, String> {
        let trained = match Artifact::from_bytes(Path::new(NAME), &self.bytes) {
            Ok(trained) => trained,
            Err(error) => {
                let _ = error.to_string();
                return Ok(0);
            }
        };
        let _ = hgnnc_driver::request::Request::of(trained.program());
        let purpose = *[Purpose::Measure, Purpose::Infer, Purpose::Score].choose(rng).expect("a list");
        let families: Vec<String> = trained.description().families.iter().map(|of| of.output.clone()).collect();
        let outputs = families.choose(rng).cloned().into_iter().collect();
        let job = Job { outputs, ..job(trained.into(), &self.data) };
        let mut prepared = match prepare(purpose, &job, &mut Silent) {
            Ok(prepared) => prepared,
            Err(error) => {
                let _ = error.to_string();
                return Ok(1);
            }
        };
        let done = match purpose {
            Purpose::Infer => {
                let of_graphs = job.outputs.iter().all(|output| prepared.trainer.infer_family(output).is_ok());
                prepared.infer(None).is_ok() && of_graphs
            }
            _ => prepared.report().is_ok(),
        };
        Ok(1 + usize::from(done))
    }
}

/// Changes the metadata of a file, which stays a valid safetensors file.
fn of_metadata(
    bytes: &[u8],
    rng: &mut ChaCha8Rng,
    change: impl FnOnce(serde_json::Value, &mut ChaCha8Rng) -> serde_json::Value,
) -> (Vec<u8>, String) {
    let (length, rest) = bytes.split_first_chunk().expect("the file is undamaged");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: serde_json::Value = serde_json::from_slice(header).expect("the header is undamaged");
    let text = header.pointer_mut("/__metadata__/hgnnc").expect("there are metadata");
    let json = serde_json::from_str(text.as_str().expect("a text")).expect("the metadata are undamaged");
    *text = change(json, rng).to_string().into();
    let how = text.to_string();
    let mut header = header.to_string();
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), tensors].concat();
    (bytes, how)
}
