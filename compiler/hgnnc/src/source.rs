//! Reads models, and checks them against datasets.

use std::path::Path;

use hgnnc_data::middle_of_metapath;
use hgnnc_driver::{
    Analysis, Analyzed, DatasetSummary, Diagnostics, Disabled, LowerError, MAX_SOURCE, analyze, bind_names,
    check_dataset, codes, declare_metapaths, silence,
};
use hgnnc_graph::{Dataset, files};
use rayon::ThreadPool;

use crate::{Error, Observer, Purpose, dataset};

/// Reads and analyzes a model.
pub fn read(path: &Path) -> Result<Analysis, Error> {
    Ok(analyze(&path.display().to_string(), &text(path)?))
}

/// Reads the text of a model.
pub fn text(path: &Path) -> Result<String, Error> {
    // The front end's size limit is checked first, so that a huge file is not read into memory.
    if let Some(len) = std::fs::metadata(path).ok().map(|found| found.len()).filter(|&len| len > MAX_SOURCE as u64) {
        return Err(Error::input(format!("`{}` has {len} bytes; a model has at most {MAX_SOURCE}", path.display())));
    }
    decode(&path.display().to_string(), files::read(path).map_err(|error| Error::read(path, &error))?)
}

/// Decodes the bytes of a model. `name` is for messages.
pub fn decode(name: &str, bytes: Vec<u8>) -> Result<String, Error> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Error::input(format!("`{name}` is not UTF-8 text: byte {at} begins no character"))
    })?;
    Ok(text)
}

/// Refuses diagnostics with an error; others are shown to the observer.
///
/// # Errors
/// [`Error::Model`] with all diagnostics.
pub fn accept(analysis: &Analysis, diagnostics: &Diagnostics, observer: &mut dyn Observer) -> Result<(), Error> {
    if diagnostics.has_errors() {
        return Err(Error::Model(Box::new((analysis.sources.clone(), diagnostics.clone()))));
    }
    observer.warnings(&analysis.sources, diagnostics);
    Ok(())
}

/// Checks an error-free model against a dataset, and binds it to the dataset's names.
pub fn meet(
    analysis: &mut Analysis,
    dataset: &Dataset,
    split: Option<&str>,
    purpose: Purpose,
    observer: &mut dyn Observer,
    pool: &ThreadPool,
) -> Result<Analyzed, Error> {
    let model = take(analysis)?;
    meet_summary((analysis, model), dataset, (&dataset::summary(dataset), split), purpose, observer, pool)
}

/// The model of an analysis whose errors were reported already.
pub(crate) fn take(analysis: &mut Analysis) -> Result<Analyzed, Error> {
    analysis.model.take().ok_or_else(|| Error::input("internal error: a model that was not checked"))
}

/// [`meet`], with a summary of the dataset in which given features take the place of the dataset's.
pub(crate) fn meet_summary(
    (analysis, mut model): (&Analysis, Analyzed),
    dataset: &Dataset,
    (summary, split): (&DatasetSummary, Option<&str>),
    purpose: Purpose,
    observer: &mut dyn Observer,
    pool: &ThreadPool,
) -> Result<Analyzed, Error> {
    let mut found = Diagnostics::default();
    check_dataset(&model.schema, model.train.as_ref(), summary, split, &mut found);
    if purpose.is_of_outputs() {
        found = without_targets(found);
    }
    silence(&analysis.module.allows, &mut found, |code| code == codes::EMPTY_RELATION);
    accept(analysis, &found, observer)?;
    bind_names(&mut model, summary);
    let tables = model.flow.with_tables_of(&model.name);
    declare_metapaths(&mut model, |decl| pool.install(|| middle_of_metapath(&tables, dataset, decl)))?;
    Ok(model)
}

/// Runs the passes that come before the model's tables are bound to data.
pub fn prepare(model: &mut Analyzed, disabled: &Disabled) -> Result<(), Error> {
    Ok(hgnnc_driver::prepare(model, disabled).map_err(LowerError::from)?)
}

/// The diagnostics that matter without labels and splits.
fn without_targets(found: Diagnostics) -> Diagnostics {
    let mut kept = Diagnostics::default();
    for diagnostic in found {
        if ![codes::DATA_LABEL, codes::DATA_CLASSES, codes::DATA_SPLIT].contains(&diagnostic.code) {
            kept.push(diagnostic);
        }
    }
    kept
}
