//! Locates the real datasets for the tests that need them.

use std::path::{Path, PathBuf};

/// The dataset folders in `HGNN_DATA` or `../shared/data` beside the workspace; none, with a printed reason, otherwise.
pub fn real_datasets() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let root = std::env::var_os("HGNN_DATA").map_or(beside, PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&root) else {
        println!("skipped: HGNN_DATA is not set and ../shared/data does not exist");
        return Vec::new();
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.join("dataset.toml").exists()).collect();
    found.sort();
    if found.is_empty() {
        println!("skipped: no dataset in `{}`", root.display());
    }
    found
}
