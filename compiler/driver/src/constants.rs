//! Constants of a file that the caller gives other values, as the option `--set` does.

use hgnnc_declare::names::{did_you_mean, duplicate};
use hgnnc_diag::{Diagnostic, Diagnostics, Severity, SourceMap, codes};
use hgnnc_syntax::ast::{Const, Item};

use crate::modules::Units;

/// Name of the source that a given value is shown in.
const SOURCE: &str = "--set";

/// A constant's name and its new value, an expression of numbers and of constants declared before it.
pub type Setting = (String, String);

/// Gives constants of the model's files other values. Each value is a source of its own, so that mistakes are shown in it.
pub(crate) fn set(units: &mut Units, settings: &[Setting], sources: &mut SourceMap, diagnostics: &mut Diagnostics) {
    let mut before: Vec<Const> = vec![];
    for (name, value) in settings {
        let text = format!("const {name} = {value}");
        let file = sources.add(SOURCE, &text[..]);
        let mut found = Diagnostics::default();
        let mut parsed = hgnnc_syntax::parse(file, &text, &mut found);
        if found.has_errors() {
            diagnostics.append(found);
            continue;
        }
        let (Some(Item::Const(given)), true) = (parsed.items.pop(), parsed.items.is_empty()) else {
            let message = format!("`{name}={value}` is not one number");
            let report = Diagnostic::new(codes::UNEXPECTED_TOKEN, message);
            diagnostics.push(report.help("a constant is set by `NAME=NUMBER`"));
            continue;
        };
        if let Some(first) = before.iter().find(|first| first.name.name == given.name.name) {
            diagnostics.push(duplicate("constant", &given.name, first.name.span));
            continue;
        }
        match units.constant(&given.name.name) {
            Some(own) => own.value = given.value.clone(),
            None => diagnostics.push(unknown(units, &given)),
        }
        before.push(given);
    }
}

/// The report of a constant that the file neither declares nor imports.
fn unknown(units: &Units, given: &Const) -> Diagnostic {
    let name = &given.name.name;
    let message = format!("the model has no constant `{name}`");
    let report = Diagnostic::at(codes::UNKNOWN_NAME, given.name.span, message, "not declared");
    let known = units.constant_names();
    let none = known.is_empty();
    let known = known.iter().map(String::as_str);
    let report = did_you_mean(report, name, known);
    match &name[..] {
        "epochs" | "seed" => report.help(format!("`--{name} N` sets that of the train block")),
        _ if none => report.help(format!(
            "the file declares no constants: declare `const {name} = …` above its use, and write `{name}` for the number"
        )),
        _ => report,
    }
}

/// Adds the given values to each error, since it may follow from one of them.
pub(crate) fn mention(settings: &[Setting], sources: &SourceMap, diagnostics: &mut Diagnostics) {
    if settings.is_empty() || !diagnostics.has_errors() {
        return;
    }
    let given: Vec<String> = settings.iter().map(|(name, value)| format!("`{name}` is {value}")).collect();
    let note = format!("{} by `{SOURCE}`", given.join(", "));
    let mut noted = Diagnostics::default();
    let elsewhere =
        |found: &Diagnostic| found.primary.as_ref().is_none_or(|label| sources.file(label.span.file).name != SOURCE);
    for found in std::mem::take(diagnostics) {
        let follows = found.severity() == Severity::Error && elsewhere(&found);
        noted.push(if follows { found.note(note.clone()) } else { found });
    }
    *diagnostics = noted;
}
