//! Reads models and shows diagnostics.

use std::io::{IsTerminal, Write};
use std::path::Path;

use hgnnc_data::middle_of_metapath;
use hgnnc_diag::{Severity, render};
use hgnnc_driver::{
    Analysis, Analyzed, Diagnostic, Diagnostics, Disabled, LowerError, MAX_SOURCE, SourceMap, analyze, bind_names,
    check_dataset, codes, declare_metapaths, silence, unknown_name,
};
use hgnnc_graph::{Dataset, files};
use rayon::ThreadPool;

use crate::data;
use crate::failure::Failure;
use crate::output::log;
use crate::run::Purpose;

/// Reads and analyzes a model.
pub fn read(path: &Path) -> Result<Analysis, Failure> {
    Ok(analyze(&path.display().to_string(), &text(path)?))
}

/// Reads the text of a model.
pub fn text(path: &Path) -> Result<String, Failure> {
    // The front end's size limit is checked first, so that a huge file is not read into memory.
    if let Some(len) = std::fs::metadata(path).ok().map(|found| found.len()).filter(|&len| len > MAX_SOURCE as u64) {
        return Err(Failure::input(format!("`{}` has {len} bytes; a model has at most {MAX_SOURCE}", path.display())));
    }
    decode(&path.display().to_string(), files::read(path).map_err(|error| Failure::read(path, &error))?)
}

/// Decodes the bytes of a model. `name` is for messages.
pub fn decode(name: &str, bytes: Vec<u8>) -> Result<String, Failure> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::input(format!("`{name}` is not UTF-8 text: byte {at} begins no character"))
    })?;
    Ok(text)
}

/// Shows diagnostics; warnings only if requested. Returns a failure if there is an error.
pub fn report(analysis: &Analysis, diagnostics: &Diagnostics, warnings: bool) -> Result<(), Failure> {
    show(&analysis.sources, diagnostics.iter().filter(|d| warnings || d.severity() == Severity::Error));
    if diagnostics.has_errors() { Err(Failure::Input(None)) } else { Ok(()) }
}

/// Shows diagnostics on standard error.
pub fn show<'a>(sources: &SourceMap, shown: impl IntoIterator<Item = &'a Diagnostic>) {
    let stderr = std::io::stderr();
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let shown: Vec<&Diagnostic> = shown.into_iter().collect();
    let plain = render::plain(sources, shown.iter().copied());
    if !plain.is_empty() {
        log(&plain);
    }
    let coloured = stderr.is_terminal() && !no_colour;
    let text = if coloured { render::coloured(sources, shown) } else { plain };
    // Errors on standard error are ignored: there is no other channel.
    let _ = stderr.lock().write_all(text.as_bytes());
}

/// The failure of a model that cannot be lowered. Whether a kernel stores the value of a `--disable-fusion value:NAME`
/// is known only then.
pub fn not_lowered(error: impl Into<LowerError>) -> Failure {
    match error.into() {
        LowerError::Name(error) => {
            show(&SourceMap::default(), [&unknown_name(&error)]);
            Failure::Usage
        }
        error => Failure::input(error.to_string()),
    }
}

/// Checks an error-free model against a dataset, and binds it to the dataset's names.
pub fn meet(
    analysis: &mut Analysis,
    dataset: &Dataset,
    split: Option<&str>,
    purpose: Purpose,
    warnings: bool,
    pool: &ThreadPool,
) -> Result<Analyzed, Failure> {
    // Errors were reported already.
    let Some(mut model) = analysis.model.take() else { return Err(Failure::Input(None)) };
    let summary = data::summary(dataset);
    let mut found = Diagnostics::default();
    check_dataset(&model.schema, model.train.as_ref(), &summary, split, &mut found);
    if purpose.is_of_outputs() {
        found = without_targets(found);
    }
    silence(&analysis.module.allows, &mut found, |code| code == codes::EMPTY_RELATION);
    report(analysis, &found, warnings)?;
    bind_names(&mut model, &summary);
    let tables = model.flow.with_tables_of(&model.name);
    declare_metapaths(&mut model, |decl| pool.install(|| middle_of_metapath(&tables, dataset, decl)))?;
    Ok(model)
}

/// Runs the passes that come before the model's tables are bound to data.
pub fn prepare(model: &mut Analyzed, disabled: &Disabled) -> Result<(), Failure> {
    hgnnc_driver::prepare(model, disabled).map_err(|error| not_lowered(LowerError::from(error)))
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
