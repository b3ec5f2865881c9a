//! Arrays in `.npz` archives: zip files with a `.npy` file for each.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use flate2::bufread::DeflateDecoder;
use hgnnc_dataset::files;
use hgnnc_dataset::npy::Npy;
use rawzip::{CompressionMethod, ZipArchive};

use crate::error::shown;
use crate::progress::Progress;

/// Reads all arrays of an archive, by name.
pub(super) fn read(path: &Path, progress: &Progress) -> Result<BTreeMap<String, Npy>, String> {
    let bytes = files::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    progress.add(bytes.len() as u64);
    let wrong = |error: rawzip::Error| format!("is not a readable .npz archive: {error}");
    let archive = ZipArchive::from_slice(&bytes).map_err(wrong)?;
    let mut arrays = BTreeMap::new();
    let mut entries = archive.entries();
    while let Some(header) = entries.next_entry().map_err(wrong)? {
        let name = header.file_path().try_normalize().map_err(wrong)?.as_ref().to_owned();
        let entry = archive.get_entry(header.wayfinder()).map_err(wrong)?;
        let mut contents = Vec::new();
        let unpacked = match header.compression_method() {
            CompressionMethod::STORE => entry.verifying_reader(entry.data()).read_to_end(&mut contents),
            CompressionMethod::DEFLATE => {
                entry.verifying_reader(DeflateDecoder::new(entry.data())).read_to_end(&mut contents)
            }
            other => {
                return Err(format!("holds `{}`, compressed by method {other:?}: NumPy writes deflate", shown(&name)));
            }
        };
        unpacked.map_err(|error| format!("`{}` in it is damaged: {error}", shown(&name)))?;
        let key = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        let array = Npy::from_bytes(contents).map_err(|error| format!("`{}` in it {error}", shown(&name)))?;
        arrays.insert(key, array);
    }
    Ok(arrays)
}
