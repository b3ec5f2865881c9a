//! Makes a test of each case file, so that its name can be given to `cargo test`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    for folder in ["diagnostics", "language"] {
        let path = Path::new("cases").join(folder);
        println!("cargo::rerun-if-changed={}", path.display());
        let files = std::fs::read_dir(&path).expect("the folder of cases is readable");
        let mut files: Vec<PathBuf> = files.map(|entry| entry.expect("an entry of the folder").path()).collect();
        files.sort();
        let mut tests = String::new();
        for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "hgnn")) {
            let name = file.file_stem().and_then(|name| name.to_str()).expect("names of cases are text");
            let ident = name.replace('-', "_");
            writeln!(tests, "#[test]\nfn {ident}() {{\n    super::case(\"{name}.hgnn\");\n}}")
                .expect("a string takes text");
        }
        let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
        std::fs::write(Path::new(&out).join(format!("{folder}.rs")), tests).expect("the output folder is writable");
    }
}
