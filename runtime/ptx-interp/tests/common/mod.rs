//! Calls ptxas, where it is installed: texts that the interpreter accepts must assemble.

#![allow(dead_code)] // Every test program uses a part of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// `ptxas`, from `HGNN_PTXAS` or the path.
pub fn assembler() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let named = std::env::var_os("HGNN_PTXAS").map(PathBuf::from);
        let candidate = named.unwrap_or_else(|| PathBuf::from("ptxas"));
        Command::new(&candidate).arg("--version").output().is_ok_and(|out| out.status.success()).then_some(candidate)
    });
    found.as_deref()
}

/// Assembles a file; the error is the message of ptxas.
pub fn assemble(ptxas: &Path, path: &Path) -> Result<(), String> {
    let out = Command::new(ptxas)
        .args(["-arch=sm_80", "-o", "/dev/null"])
        .arg(path)
        .output()
        .map_err(|error| error.to_string())?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

/// Assembles a text, if ptxas is installed; texts that differ only in digits are assembled once.
///
/// # Panics
///
/// If ptxas rejects it.
pub fn assemble_once(text: &str) {
    static DONE: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Some(ptxas) = assembler() else { return };
    let shape: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
    let number = {
        let mut done = DONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !done.insert(shape) {
            return;
        }
        done.len()
    };
    let path = std::env::temp_dir().join(format!("hgnnc-ptx-{}-{number}.ptx", std::process::id()));
    std::fs::write(&path, text).expect("the folder for temporary files can be written");
    let result = assemble(ptxas, &path);
    std::fs::remove_file(&path).expect("it is there");
    if let Err(message) = result {
        panic!("{message}{text}");
    }
}
