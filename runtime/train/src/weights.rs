//! Named tensors in safetensors files. Writes are atomic: a failed write leaves the old file intact.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

use hgnnc_data::{ExecError, Result};
use hgnnc_dataset::{atomic, files};
use safetensors::tensor::{Dtype, SafeTensors, View, serialize};

/// A tensor to write.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Tensor<'a> {
    pub shape: Vec<usize>,
    pub data: &'a [f32],
}

impl View for Tensor<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    fn data_len(&self) -> usize {
        4 * self.data.len()
    }
}

/// Writes tensors, and `text` under the metadata key `hgnnc` if given. Atomic.
///
/// # Errors
/// When the folder cannot be written or the disk is full.
pub fn write(path: &Path, tensors: Vec<(String, Tensor<'_>)>, text: Option<String>) -> Result<()> {
    let bytes = to_bytes(path, tensors, text)?;
    atomic::write(path, &bytes).map_err(ExecError::io("write", path))
}

/// The bytes of a file that [`write`] writes; `path` is for messages.
///
/// # Errors
/// When the tensors and the text have no such form.
pub fn to_bytes(path: &Path, tensors: Vec<(String, Tensor<'_>)>, text: Option<String>) -> Result<Vec<u8>> {
    let metadata = text.map(|text| HashMap::from([("hgnnc".to_owned(), text)]));
    serialize(tensors, metadata)
        .map_err(|e| ExecError::Weights { path: path.into(), reason: format!("cannot be written: {e}") })
}

/// Contents of a safetensors file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct File {
    /// Shape and elements by tensor name.
    pub tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// Metadata text under `hgnnc`.
    pub text: Option<String>,
}

/// Reads all tensors of a file.
///
/// # Errors
/// When the file cannot be read, is damaged, or holds anything but 32-bit floats.
pub fn read(path: &Path) -> Result<File> {
    let bytes = files::read(path).map_err(|source| ExecError::Io { action: "read", path: path.into(), source })?;
    of_bytes(path, &bytes)
}

/// Reads all tensors of the bytes of a file; `path` is for messages.
///
/// # Errors
/// When they are damaged, or hold anything but 32-bit floats.
pub fn of_bytes(path: &Path, bytes: &[u8]) -> Result<File> {
    let wrong = |reason: String| ExecError::Weights { path: path.into(), reason };
    let damaged = |e: safetensors::SafeTensorError| wrong(format!("is not a safetensors file: {e}"));
    let tensors = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let text = metadata.metadata().as_ref().and_then(|m| m.get("hgnnc")).cloned();
    let mut file = File { text, ..File::default() };
    for (name, tensor) in tensors.iter() {
        if tensor.dtype() != Dtype::F32 {
            return Err(wrong(format!(
                "`{name}` has elements of type {:?}, but only F32 can be loaded",
                tensor.dtype()
            )));
        }
        let (chunks, _) = tensor.data().as_chunks::<4>();
        let data = chunks.iter().map(|&c| f32::from_le_bytes(c)).collect();
        file.tensors.insert(name.to_owned(), (tensor.shape().to_vec(), data));
    }
    Ok(file)
}

/// Reads the metadata text of a file without its tensors.
///
/// # Errors
/// When the file cannot be read, or does not begin with the length of a JSON object in eight bytes
/// followed by that object.
pub fn read_text(path: &Path) -> Result<Option<String>> {
    /// Header size limit of the format.
    const MOST: u64 = 100_000_000;
    let mut bytes = vec![];
    let mut read = || {
        let mut file = files::open(path)?;
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        file.take(u64::from_le_bytes(length).min(MOST)).read_to_end(&mut bytes)
    };
    read().map_err(|source| ExecError::Io { action: "read", path: path.into(), source })?;
    let header: serde_json::Value = serde_json::from_slice(&bytes)
        .map_err(|e| ExecError::Weights { path: path.into(), reason: format!("is not a safetensors file: {e}") })?;
    Ok(header.pointer("/__metadata__/hgnnc").and_then(|text| text.as_str()).map(str::to_owned))
}

/// Checks that a file has exactly the tensors with these names and shapes.
///
/// # Errors
/// Lists tensors that are missing, unknown or of another shape.
pub fn check(path: &Path, file: &File, expected: &[(String, Vec<usize>)]) -> Result<()> {
    let found = file.tensors.iter().map(|(name, (shape, _))| (&name[..], &shape[..]));
    check_shapes(path, &found.collect(), expected)
}

/// [`check`] of shapes by name.
///
/// # Errors
/// The same.
pub fn check_shapes(path: &Path, found: &BTreeMap<&str, &[usize]>, expected: &[(String, Vec<usize>)]) -> Result<()> {
    let mut problems = vec![];
    for (name, shape) in expected {
        match found.get(&name[..]) {
            None => problems.push(format!("`{name}` is missing")),
            Some(found) if *found != &shape[..] => {
                problems.push(format!("`{name}` has shape {found:?}, the model expects {shape:?}"));
            }
            Some(_) => {}
        }
    }
    let known = |name: &str| expected.iter().any(|(e, _)| e == name);
    problems.extend(found.keys().filter(|n| !known(n)).map(|n| format!("the model has no parameter `{n}`")));
    if problems.is_empty() {
        return Ok(());
    }
    let reason = format!("does not fit the model: {}", shorten(problems));
    Err(ExecError::Weights { path: path.into(), reason })
}

/// Joins up to eight problems into one line.
fn shorten(mut problems: Vec<String>) -> String {
    let more = problems.len().saturating_sub(8);
    problems.truncate(8);
    if more > 0 {
        problems.push(format!("and {more} more"));
    }
    problems.join("; ")
}

/// Checks that all elements of all tensors are finite.
///
/// # Errors
/// Names the tensors with NaN or infinite elements, their number, and the position of the first.
pub fn check_finite(path: &Path, file: &File) -> Result<()> {
    let problems: Vec<String> =
        file.tensors.iter().filter_map(|(name, (shape, data))| not_finite(name, shape, data)).collect();
    if problems.is_empty() {
        return Ok(());
    }
    let reason = format!("holds elements that are not finite: {}", shorten(problems));
    Err(ExecError::Weights { path: path.into(), reason })
}

/// Number of NaN or infinite elements of a tensor and the position of the first; `None` if all are finite.
pub fn not_finite(name: &str, shape: &[usize], data: &[f32]) -> Option<String> {
    let first = data.iter().position(|x| !x.is_finite())?;
    let count = data[first..].iter().filter(|x| !x.is_finite()).count();
    let mut rest = first;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let at = rest % extent.max(1);
            rest /= extent.max(1);
            at
        })
        .collect();
    index.reverse();
    let what = data[first];
    Some(format!("{count} of the {} elements of `{name}`, the first one {what} at {index:?}", data.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn save(path: &Path, data: &[f32]) -> Result<()> {
        write(path, vec![("conv.w".into(), Tensor { shape: vec![2, data.len() / 2], data })], Some("text".into()))
    }

    #[test]
    fn files_round_trip_and_mismatches_are_all_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.safetensors");
        save(&path, &[1.0, f32::MIN_POSITIVE, -0.0, f32::INFINITY]).expect("written");
        let file = read(&path).expect("read");
        assert_eq!(file.tensors["conv.w"], (vec![2, 2], vec![1.0, f32::MIN_POSITIVE, -0.0, f32::INFINITY]));
        assert_eq!(file.text.as_deref(), Some("text"));
        assert_eq!(read_text(&path).expect("read").as_deref(), Some("text"));
        check(&path, &file, &[("conv.w".into(), vec![2, 2])]).expect("fits");
        let expected = [("conv.b".to_owned(), vec![2]), ("conv.w".to_owned(), vec![2, 3])];
        let message = check(&path, &file, &expected).expect_err("does not fit").to_string();
        for part in ["`conv.b` is missing", "`conv.w` has shape [2, 2], the model expects [2, 3]"] {
            assert!(message.contains(part), "{message}");
        }
        let message = check(&path, &file, &[]).expect_err("does not fit").to_string();
        assert!(message.contains("the model has no parameter `conv.w`"), "{message}");
    }

    #[test]
    fn elements_that_are_not_finite_are_counted_and_placed() {
        let data = [0.0, 1.0, 2.0, f32::NAN, 4.0, f32::INFINITY];
        let found = not_finite("w", &[2, 3], &data).expect("not finite");
        assert_eq!(found, "2 of the 6 elements of `w`, the first one NaN at [1, 0]");
        assert_eq!(not_finite("w", &[3], &data[..3]), None);
        assert_eq!(not_finite("w", &[], &[f32::NEG_INFINITY]).expect("a scalar").split("-inf at ").nth(1), Some("[]"));
    }

    #[test]
    fn damaged_and_absent_files_are_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.safetensors");
        assert!(matches!(read(&path), Err(ExecError::Io { action: "read", .. })));
        std::fs::write(&path, b"not tensors").expect("written");
        assert!(matches!(read(&path), Err(ExecError::Weights { .. })));
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.safetensors");
        save(&path, &[1.0, 2.0]).expect("written");
        let gone = folder.path().join("no such folder").join("w.safetensors");
        let error = save(&gone, &[3.0, 4.0]).expect_err("there is no folder");
        assert!(matches!(error, ExecError::Io { action: "write", .. }));
        // The message has the user's path, not the temporary one.
        let text = error.to_string();
        assert!(text.contains("w.safetensors: No such file") && !text.contains("at path"), "{text}");
        // A folder at the target makes the rename fail; no temporary file may remain.
        let blocked = folder.path().join("blocked");
        std::fs::create_dir(&blocked).expect("made");
        std::fs::write(blocked.join("file"), b"").expect("written");
        assert!(save(&blocked, &[3.0, 4.0]).is_err());
        assert_eq!(read(&path).expect("read").tensors["conv.w"].1, [1.0, 2.0]);
        assert_eq!(std::fs::read_dir(folder.path()).expect("listed").count(), 2);
    }
}
