//! A folder that PyG reads: the dataset as it is, and a `load.py` whose `load()` makes a `HeteroData` of it.
//!
//! Nothing is left out, and nothing is converted: `load.py` reads `dataset.toml` and maps its arrays.

use std::path::Path;

use hgnnc_dataset::Dataset;
use hgnnc_dataset::write::WriteError;

use crate::export::ExportError;

/// The program that is written beside the arrays.
const LOADER: &str = include_str!("load.py");

/// Writes the dataset and the program to an empty folder.
pub(crate) fn write(dataset: &Dataset, folder: &Path) -> Result<(), ExportError> {
    dataset.write(folder)?;
    let path = folder.join("load.py");
    Ok(std::fs::write(&path, LOADER).map_err(WriteError::io(&path))?)
}
