//! Makes a test of each case file, so that its name can be given to `cargo test`. For build scripts.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Writes tests of the files with this ending below a folder of the crate to `$OUT_DIR/NAME.rs`. Each calls `super::case`
/// with its path in the folder.
///
/// # Panics
/// When the folder cannot be read.
pub fn generate(name: &str, folder: &str, ending: &str) {
    println!("cargo::rerun-if-changed={folder}");
    let mut files = vec![];
    collect(Path::new(folder), &mut files);
    files.sort();
    let mut tests = String::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|found| found == ending)) {
        let path = file.strip_prefix(folder).expect("files of the folder").to_str().expect("names of cases are text");
        let ident = path.trim_end_matches(&format!(".{ending}")).replace(['-', '/', '\\'], "_");
        // Writing to a string does not fail.
        let _ = writeln!(tests, "#[test]\nfn {ident}() {{\n    super::case({path:?});\n}}");
    }
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join(format!("{name}.rs")), tests).expect("the output folder is writable");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder of cases is readable") {
        let path = entry.expect("an entry of the folder").path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}
