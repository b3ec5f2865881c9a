//! The language from outside: its reports, its library and examples, its reference, and files that nobody
//! would write.

mod diagnostics;
mod library;
mod meaning;
mod mutations;
mod reference;
mod scale;

/// Compares with the snapshot of a case file.
fn snapshot(file: &str, compare: impl FnOnce()) {
    insta::with_settings!({ snapshot_suffix => file, omit_expression => true }, { compare() });
}
