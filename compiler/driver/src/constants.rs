//! Constants of a file that the caller gives other values, as the option `--set` does.

use std::collections::BTreeMap;

use hgnnc_diag::{Diagnostic, Diagnostics, Severity, SourceMap, codes};
use hgnnc_sema::consts::Consts;
use hgnnc_sema::names::{did_you_mean, duplicate};
use hgnnc_syntax::ast::{Const, Item, Module};

/// Name of the source that a given value is shown in.
const SOURCE: &str = "--set";

/// A constant's name and its new value, an expression of numbers and of constants declared before it.
pub type Setting = (String, String);

/// The file with the given values in place of its own. Each is a source of its own, so that mistakes are shown in the
/// user's words.
pub(crate) fn set(
    module: &Module,
    settings: &[Setting],
    sources: &mut SourceMap,
    diagnostics: &mut Diagnostics,
) -> Module {
    let mut module = module.clone();
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
        match module.items.iter_mut().find_map(|item| own(item).filter(|own| own.name.name == given.name.name)) {
            Some(own) => own.value = given.value.clone(),
            None => diagnostics.push(unknown(&module, &given)),
        }
        before.push(given);
    }
    module
}

fn own(item: &mut Item) -> Option<&mut Const> {
    match item {
        Item::Const(own) => Some(own),
        Item::Use(_) | Item::Schema(_) | Item::Layer(_) | Item::Model(_) | Item::Train(_) => None,
    }
}

/// The report of a constant that the file does not declare.
fn unknown(module: &Module, given: &Const) -> Diagnostic {
    let name = &given.name.name;
    let message = format!("the model has no constant `{name}`");
    let report = Diagnostic::at(codes::UNKNOWN_NAME, given.name.span, message, "not declared");
    let known = module.items.iter().filter_map(|item| match item {
        Item::Const(own) => Some(own.name.name.as_str()),
        Item::Use(_) | Item::Schema(_) | Item::Layer(_) | Item::Model(_) | Item::Train(_) => None,
    });
    let known: Vec<&str> = known.collect();
    let none = known.is_empty();
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

/// The values of all constants of a file.
pub(crate) fn values(module: &Module) -> BTreeMap<String, f64> {
    // Mistakes have been reported.
    let consts = Consts::of(module, &mut Diagnostics::default());
    consts.names().filter_map(|name| Some((name.to_owned(), consts.get(name)?))).collect()
}
