//! From source text to an artifact, without touching files.
//!
//! Two steps, because a dataset stands between them: [`analyze`] needs the text alone and finds every mistake
//! in it; [`lower`] needs the sizes of the graphs that the model is bound to, since the order of linear
//! operations depends on them.

mod lower;
mod stdlib;

pub use hgnnc_diag::{self as diag, Diagnostic, Diagnostics, SourceMap};
pub use hgnnc_sema::dataset::{
    DatasetSummary, LabelSummary, LabelSummaryKind, RelationSummary, VertexSummary, check_dataset, find_name, same_name,
};
pub use hgnnc_sema::schema::Schema;
pub use lower::{LowerOptions, Lowered, lower};
pub use stdlib::STDLIB;

use hgnnc_sema::{Analyzed, Library};
use hgnnc_syntax::ast::{Item, Module};

/// What is known of a file after [`analyze`].
pub struct Analysis {
    /// The file and the library modules that it uses.
    pub sources: SourceMap,
    /// Everything found.
    pub diagnostics: Diagnostics,
    /// Its syntax tree.
    pub module: Module,
    /// The model; `None` where there was an error.
    pub model: Option<Analyzed>,
}

/// Parses and checks a file.
pub fn analyze(name: &str, text: &str) -> Analysis {
    let mut sources = SourceMap::default();
    let mut diagnostics = Diagnostics::default();
    let file = sources.add(name, text);
    let module = hgnnc_syntax::parse(file, text, &mut diagnostics);
    // A file that does not parse is still analyzed where it can be: what parsed may hold other mistakes, but
    // what is missing must not be reported as unknown.
    let parsed = !diagnostics.has_errors();
    let libraries = libraries(&module, &mut sources, &mut diagnostics);
    let libraries: Vec<Library<'_>> = libraries.iter().map(|(name, module)| Library { name, module }).collect();
    let mut found = Diagnostics::default();
    let model = hgnnc_sema::analyze(&module, &libraries, &mut found);
    if parsed {
        diagnostics.append(found);
    }
    diagnostics.sort();
    let model = if diagnostics.has_errors() { None } else { model };
    Analysis { sources, diagnostics, module, model }
}

/// The library modules that a file imports from (all of them are known by name, so that a misspelt one is
/// met with a suggestion, but only those used are parsed).
fn libraries(module: &Module, sources: &mut SourceMap, diagnostics: &mut Diagnostics) -> Vec<(&'static str, Module)> {
    let used = |name: &str| {
        module.items.iter().any(|item| match item {
            Item::Use(import) => import.path.get(1).is_some_and(|p| p.name == name),
            Item::Const(_) | Item::Schema(_) | Item::Layer(_) | Item::Model(_) | Item::Train(_) => false,
        })
    };
    STDLIB
        .iter()
        .map(|(name, text)| {
            if !used(name) {
                return (*name, Module::default());
            }
            let file = sources.add(format!("std::{name}"), *text);
            (*name, hgnnc_syntax::parse(file, text, diagnostics))
        })
        .collect()
}
