//! Suggestions and reports about names.

use std::collections::BTreeSet;

use hgnnc_diag::synonyms::{self, Meant, Place};
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_syntax::ast::Ident;

/// Known names among which a suggestion is looked for. Comparing a name with another takes a microsecond, and each of a
/// thousand errors may be compared with all of them.
pub const MAX_COMPARED: usize = 10_000;

/// Names that a message lists, at most.
const LONGEST_LIST: usize = 24;

/// Adds "did you mean" where a known name is close, and else a list of the known names when it is short.
pub fn did_you_mean<'a>(diagnostic: Diagnostic, name: &str, known: impl IntoIterator<Item = &'a str>) -> Diagnostic {
    let mut known: Vec<&str> = known.into_iter().take(MAX_COMPARED + 1).collect();
    if known.len() > MAX_COMPARED {
        return diagnostic;
    }
    known.sort_unstable();
    known.dedup();
    match closest(name, &known) {
        Some(best) => diagnostic.help(format!("did you mean `{best}`?")),
        None if known.is_empty() || known.len() > LONGEST_LIST => diagnostic,
        None => {
            let list: Vec<String> = known.iter().map(|k| format!("`{k}`")).collect();
            diagnostic.help(format!("known here: {}", list.join(", ")))
        }
    }
}

/// Adds what a word of another tool is called here, and else as [`did_you_mean`].
pub fn suggest<'a>(
    diagnostic: Diagnostic,
    place: Place,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Diagnostic {
    let known: Vec<&str> = known.into_iter().take(MAX_COMPARED + 1).collect();
    // A name that only its spelling tells from a known one is that one.
    let respelt = || known.iter().any(|known| synonyms::alike(known, name));
    match synonyms::meant(place, name).filter(|_| !respelt()) {
        Some(Meant::Advice(advice)) => diagnostic.help(synonyms::fill(advice, None)),
        Some(Meant::Names(names)) => {
            let names: Vec<String> =
                names.iter().filter(|name| known.contains(name)).map(|name| format!("`{name}`")).collect();
            match names.is_empty() {
                true => did_you_mean(diagnostic, name, known),
                false => diagnostic.help(format!("did you mean {}?", names.join(" or "))),
            }
        }
        Some(Meant::Each(_)) | None => did_you_mean(diagnostic, name, known),
    }
}

/// The known name that was probably meant, if one is close; of several, the first.
pub fn closest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if let Some(respelt) = known.iter().find(|known| synonyms::alike(known, name)) {
        return Some(respelt);
    }
    let folded = name.to_lowercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&folded, &candidate.to_lowercase());
    // A single letter is near every other one.
    let length = name.chars().count();
    // A distance is at least the difference in length.
    let near = |candidate: &&str| candidate.chars().count().abs_diff(length) <= (length / 3).max(1);
    let best = known.iter().copied().filter(near).min_by_key(|candidate| distance(candidate))?;
    (distance(best) <= (length / 3).max(1) && distance(best) < length).then_some(best)
}

/// A place where a file gets a name from.
#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// Its declaration, or its import.
    pub span: Span,
    /// The declaration in another file, if it is imported.
    pub imported: Option<Span>,
}

/// The report of a second declaration.
pub fn duplicate(what: &str, name: &Ident, first: Span) -> Diagnostic {
    let own = |span: Span| Declaration { span, imported: None };
    let report = declared_twice(what, &name.name, own(name.span), own(first));
    match what {
        "name" => report.help(format!("a name keeps its value: choose another, such as `{}_2`", name.name)),
        _ => report,
    }
}

/// The report of a second declaration of a name, each in the file or imported.
pub fn declared_twice(what: &str, name: &str, second: Declaration, first: Declaration) -> Diagnostic {
    let word = |of: Declaration| if of.imported.is_some() { "imported" } else { "declared" };
    let message = match (first.imported, second.imported) {
        (Some(_), Some(_)) => format!("{what} `{name}` is imported twice"),
        (None, None) => format!("{what} `{name}` is declared twice"),
        _ => format!("{what} `{name}` is imported and declared"),
    };
    let label = format!("{} again here", word(second));
    let mut report = Diagnostic::at(codes::DUPLICATE_NAME, second.span, message, label)
        .label(first.span, format!("first {} here", word(first)));
    let declarations: BTreeSet<Span> = [first.imported, second.imported].into_iter().flatten().collect();
    let several = declarations.len() > 1;
    for &span in &declarations {
        report = report.label(span, if several { "one of the declarations" } else { "declared here" });
    }
    match (declarations.is_empty(), first.imported == second.imported) {
        (true, _) => report,
        (false, true) => report.help("import it once"),
        (false, false) => report.help("in a file, a name has one meaning: rename one of the two, or import the others"),
    }
}
