//! Files of a test, and what becomes of them.

#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, Features};
use hgnnc_import::{Kind, read};

/// Text files by name.
pub type Files<'a> = [(&'a str, &'a str)];
/// A file, a text in it, and what it is replaced by.
pub type Change<'a> = (&'a str, &'a str, &'a str);
/// A change, and texts that its error message must contain.
pub type Case<'a> = (Change<'a>, &'a [&'a str]);

pub fn write(folder: &Path, files: &Files<'_>) {
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// Imports a folder, and returns it as it is written and read again, which checks everything.
pub fn imported(kind: Kind, folder: &Path, config: Option<&Path>) -> Dataset {
    let made = read(kind, folder, config).unwrap_or_else(|error| panic!("{error}"));
    let target = tempfile::tempdir().unwrap();
    let target = target.path().join("made");
    made.write(&target).unwrap();
    Dataset::load(&target).unwrap_or_else(|error| panic!("{error}"))
}

/// Error message of an import, without the path of the folder.
pub fn said(kind: Kind, folder: &Path, config: Option<&Path>, what: &str) -> String {
    let error = read(kind, folder, config).expect_err(what);
    error.to_string().replace(&format!("{}/", folder.display()), "")
}

/// Error message of an import after `from` in a file is replaced by `to`.
pub fn said_of(kind: Kind, files: &Files<'_>, (file, from, to): Change<'_>) -> String {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    let path = folder.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file}: {from}");
    std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let config = folder.path().join("settings.toml");
    said(kind, folder.path(), config.is_file().then_some(&*config), &format!("{file}: {from} -> {to}"))
}

pub fn ids(dataset: &Dataset, ty: usize) -> Vec<String> {
    let ids = dataset.vertex_types[ty].ids.as_ref().expect("ids");
    (0..ids.len()).map(|v| ids.text(v).into_owned()).collect()
}

/// The features of a type, also of sparse ones.
pub fn rows(dataset: &Dataset, ty: usize) -> Vec<Vec<f32>> {
    let of = &dataset.vertex_types[ty];
    (0..of.count)
        .map(|v| match of.features.as_ref().expect("features") {
            Features::Dense(x) => x.row(v).to_vec(),
            Features::Sparse(x) => {
                let mut row = vec![0.0; x.dim];
                let (columns, values) = x.row(v);
                columns.iter().zip(values).for_each(|(&c, &x)| row[c as usize] = x);
                row
            }
        })
        .collect()
}

/// Edges of a relation.
pub fn edges(dataset: &Dataset, name: &str) -> Vec<(u32, u32)> {
    let relation = &dataset.relations[dataset.relation(name).unwrap_or_else(|| panic!("{name}"))];
    relation.src_ids.iter().copied().zip(relation.dst_ids.iter().copied()).collect()
}

/// The folder of the real datasets, if there is one; otherwise it is said that the test is skipped.
pub fn real_data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("HGNN_DATA").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"));
    let found = Some(root.join(name)).filter(|folder| folder.join("dataset.toml").is_file());
    if found.is_none() {
        eprintln!("skipped: there is no dataset `{name}` in HGNN_DATA or ../shared/data");
    }
    found
}
