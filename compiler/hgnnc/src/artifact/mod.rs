//! A trained model in one file: `model.hgnnx`.
//!
//! It is a safetensors file. The tensors are the parameters, by the names that weights have; the metadata text under
//! `hgnnc` is a JSON object ([`Description`], `docs/artifact.md`) with the forward program and everything else that
//! evaluation needs. Neither the model's source nor its language is needed to use it.
//!
//! A file may come from anywhere: what it holds is checked ([`Artifact::from_bytes`]) before anything is computed or
//! allocated by it.

mod description;
mod fit;
mod program;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use hgnnc_dataset::{atomic, files};
use hgnnc_driver::Analyzed;
use hgnnc_ir::outputs::{FamilyOutput, FamilyRows};
use hgnnc_ir::training::Training;
use hgnnc_ir::{Dataflow, OutputKind};
use hgnnc_train::weights::{self, Tensor};
use hgnnc_train::{Report, checkpoint};
use serde::Deserialize;

pub use description::{
    Description, Evaluation, FamilyForm, FeatureSchema, FieldSchema, MemberForm, RelationSchema, StopForm, Summary,
    TargetForm, TaskForm, TransformForm, VERSION, VertexSchema,
};

use crate::{Error, Prepared};

/// The ending of the names of artifacts.
pub const ENDING: &str = "hgnnx";

/// A trained model, read from a file and checked.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The file, for messages.
    path: PathBuf,
    description: Description,
    program: Dataflow,
    families: Vec<FamilyOutput>,
    training: Option<Training>,
    params: weights::File,
}

/// Writes the model of a trainer with its current parameters to a file. Atomic. `report` is that of its training.
///
/// # Errors
/// When the file cannot be written, or a device fails.
pub fn save(path: &Path, prepared: &mut Prepared, report: Option<&Report>) -> Result<(), Error> {
    let bytes = to_bytes(path, prepared, report)?;
    atomic::write(path, &bytes).map_err(|error| Error::write(path, &error))
}

/// Writes given parameters with the [`metadata`] of their model to a file. Atomic.
///
/// # Errors
/// Parameters that are not those of the model, or not finite; a file that cannot be written.
pub fn write(path: &Path, params: Vec<(String, Tensor<'_>)>, metadata: String) -> Result<(), Error> {
    let bytes = weights::to_bytes(path, params, Some(metadata))?;
    Artifact::from_bytes(path, &bytes)?;
    atomic::write(path, &bytes).map_err(|error| Error::write(path, &error))
}

/// The bytes that [`save`] writes.
///
/// # Errors
/// When a device fails.
pub fn to_bytes(path: &Path, prepared: &mut Prepared, report: Option<&Report>) -> Result<Vec<u8>, Error> {
    let text = metadata(prepared, report)?;
    let values = prepared.trainer.params()?;
    let shapes = prepared.trainer.shapes();
    let tensors = shapes.into_iter().zip(&values).map(|((name, shape), data)| (name, Tensor { shape, data }));
    Ok(weights::to_bytes(path, tensors.collect(), Some(text))?)
}

/// The metadata of the artifact of a model.
///
/// # Errors
/// As [`Description::to_json`].
pub fn metadata(prepared: &Prepared, report: Option<&Report>) -> Result<String, Error> {
    let mut description = prepared.description.clone();
    if let Some(report) = report {
        description.training = Some(Summary::new(report));
    }
    description.to_json()
}

impl Description {
    /// The text of the metadata.
    ///
    /// # Errors
    /// When they hold a number that JSON has no form for.
    pub fn to_json(&self) -> Result<String, Error> {
        let failed = |error: serde_json::Error| Error::Machine(format!("the model cannot be described: {error}"));
        let text = serde_json::to_string(self).map_err(failed)?;
        // Numbers that are not finite have no form in JSON.
        serde_json::from_str::<Description>(&text).map_err(failed)?;
        Ok(text)
    }
}

/// Whether the name of a file is that of an artifact.
pub fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case(ENDING))
}

/// Whether a file is an artifact, by its name or its content. A file that cannot be read is none.
pub fn is_one(path: &Path) -> bool {
    is_named(path) || begins_as_safetensors(path).unwrap_or(false)
}

/// Whether a file begins with the length of a JSON object in eight bytes, and that object: the source of a model has
/// characters there, which are a larger number than any file has bytes.
fn begins_as_safetensors(path: &Path) -> std::io::Result<bool> {
    let mut file = files::open(path)?;
    let length = file.metadata()?.len();
    let mut head = [0; 9];
    file.read_exact(&mut head)?;
    let (size, first) = (head.first_chunk().map_or(0, |size| u64::from_le_bytes(*size)), head[8]);
    Ok(size < length && first == b'{')
}

impl Summary {
    fn new(report: &Report) -> Self {
        let finite = |metrics: &BTreeMap<String, f64>| {
            let finite = metrics.iter().filter(|(_, value)| value.is_finite());
            finite.map(|(name, value)| (name.clone(), *value)).collect()
        };
        Self {
            dataset: report.dataset.clone(),
            seed: report.seed,
            epochs: report.epochs,
            best_epoch: report.best_epoch,
            metrics: report.metrics.iter().map(|(part, metrics)| ((*part).to_owned(), finite(metrics))).collect(),
        }
    }
}

impl Artifact {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// A file that cannot be read, is damaged, is no artifact, or is of a newer version.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::from_bytes(path, &files::read(path).map_err(|error| Error::read(path, &error))?)
    }

    /// Checks the bytes of a file; `path` is for messages.
    ///
    /// # Errors
    /// As [`Artifact::load`].
    pub fn from_bytes(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |why: String| Error::input(format!("`{}` {why}", path.display()));
        let params = weights::of_bytes(path, bytes)?;
        if checkpoint::is_one(&params) {
            return Err(wrong(
                "is a checkpoint: `hgnnc train --checkpoint FOLDER --resume -o DIR` writes an artifact".into(),
            ));
        }
        let text = params.text.as_deref().ok_or_else(|| {
            wrong("holds parameters only: give the model's source, and this file with `--weights`".into())
        })?;
        let description = read_description(text).map_err(wrong)?;
        let damaged = |why: String| wrong(format!("is a damaged artifact: {why}"));
        if description.program.len() > program::MOST_TEXT {
            return Err(damaged("its program is too long".into()));
        }
        let program = hgnnc_ir::parse(&description.program)
            .map_err(|error| damaged(format!("its program does not parse: {error}")))?;
        let families = description.families.iter().map(|of| of.family(&program)).collect::<Result<Vec<_>, _>>();
        let families = families.map_err(damaged)?;
        let training = description.evaluation.as_ref().map(|of| of.training(&program)).transpose().map_err(damaged)?;
        program::check((&program, &families), &description, training.as_ref(), &params).map_err(damaged)?;
        weights::check_finite(path, &params)?;
        let params = weights::File { text: None, ..params };
        Ok(Self { path: path.into(), description, program, families, training, params })
    }

    /// The metadata.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The forward program, before any pass.
    pub fn program(&self) -> &Dataflow {
        &self.program
    }

    /// The file that it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the classes (or numbers) that the trained output predicts; empty where they have none.
    pub fn classes(&self) -> &[String] {
        match self.description.evaluation.as_ref().map(|of| &of.target) {
            Some(TargetForm::Label { classes, .. }) => classes,
            Some(TargetForm::Links { .. }) | None => &[],
        }
    }

    /// The model for evaluations, with the names of the dataset that it was trained on. Of the outputs of edges it has
    /// those that are asked for, since nothing of the size of the edges is stored otherwise.
    pub(crate) fn analyzed(&self, edge_outputs: &[String]) -> Analyzed {
        let (mut program, outputs) = (self.program.clone(), self.description.outputs.clone());
        let is_kept = |family: &FamilyOutput| family.rows == FamilyRows::Graphs || edge_outputs.contains(&family.name);
        let (families, dropped): (Vec<_>, Vec<_>) = self.families.iter().cloned().partition(is_kept);
        if !dropped.is_empty() {
            let is_dropped = |result: &str| dropped.iter().flat_map(|of| &of.members).any(|(_, of)| of == result);
            program.outputs.retain(|output| !matches!(&output.kind, OutputKind::Result(name) if is_dropped(name)));
            program.remove_dead_values();
        }
        Analyzed::for_evaluation(program, outputs, families, self.training.clone())
    }

    /// The parameters.
    pub fn params(&self) -> &weights::File {
        &self.params
    }
}

/// Reads the metadata, whose version comes first: other versions have other fields.
fn read_description(text: &str) -> Result<Description, String> {
    let json: serde_json::Value = serde_json::from_str(text)
        .map_err(|error| format!("is a damaged artifact: its metadata are no JSON: {error}"))?;
    let Some(version) = json.get("artifact").and_then(serde_json::Value::as_u64) else {
        return Err("is no artifact: its metadata have no version".into());
    };
    if version > u64::from(VERSION) {
        let writer = json.get("hgnnc").and_then(serde_json::Value::as_str).unwrap_or("a newer one");
        return Err(format!(
            "is an artifact of version {version}, written by hgnnc {writer}; this is hgnnc {}, which reads versions up to \
             {VERSION}: use a newer one",
            env!("CARGO_PKG_VERSION")
        ));
    }
    if version == 0 {
        return Err("is a damaged artifact: there is no version 0".into());
    }
    Description::deserialize(json).map_err(|error| format!("is a damaged artifact: {error}"))
}
