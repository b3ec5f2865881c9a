//! Named tensors in safetensors files. Writes are atomic: a failed write leaves the old file intact.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::path::Path;

use hgnnc_graph::files;
use safetensors::tensor::{Dtype, SafeTensors, View, serialize};

use crate::error::{ExecError, Result};

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
    let metadata = text.map(|text| HashMap::from([("hgnnc".to_owned(), text)]));
    let bytes = serialize(tensors, metadata)
        .map_err(|e| ExecError::Weights { path: path.into(), reason: format!("cannot be written: {e}") })?;
    write_atomically(path, &bytes)
}

/// Writes a temporary file beside `path`, flushes it to the disk and renames it. Follows links; writes directly to
/// anything that is not a regular file (a pipe, `/dev/null`), which a rename would replace.
///
/// # Errors
/// When the folder cannot be written or the disk is full; `path` is then unchanged.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let fail = |source| ExecError::Io { action: "write", path: path.into(), source };
    if is_special(path) {
        return std::fs::OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(bytes)).map_err(fail);
    }
    // Fails if the file does not exist yet, in which case it is no link either.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let mut file = temporary_beside(&target).map_err(fail)?;
    // A replaced file keeps its permissions.
    if let Ok(replaced) = std::fs::metadata(&target) {
        file.as_file().set_permissions(replaced.permissions()).map_err(fail)?;
    }
    file.as_file_mut().write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(fail)?;
    file.persist(&target).map_err(|e| fail(e.error))?;
    // The rename is durable once the folder is flushed, which not every system supports.
    if let Ok(folder) = std::fs::File::open(folder_of(&target)) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Checks that [`write_atomically`] can write to the folder, and removes leftovers of killed processes for this file.
/// Leaves no file behind.
///
/// # Errors
/// When the folder cannot be written.
pub fn check_writable(path: &Path) -> Result<()> {
    if is_special(path) {
        return Ok(());
    }
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    remove_leftovers(&target);
    match temporary_beside(&target) {
        Ok(_) => Ok(()),
        Err(source) => Err(ExecError::Io { action: "write", path: path.into(), source }),
    }
}

fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Suffix of temporary file names.
const TEMPORARY: &str = ".hgnnc-tmp";

/// Prefix of the temporary names for a target. It carries the target's name, so leftovers of a crash can be identified.
fn temporary_prefix(target: &Path) -> std::ffi::OsString {
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// A temporary file that is deleted unless it is renamed, with default permissions. It stays locked while it is
/// written, which distinguishes it from leftovers of killed processes.
fn temporary_beside(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let prefix = temporary_prefix(path);
    let file = builder.prefix(&prefix).suffix(TEMPORARY).tempfile_in(folder_of(path)).map_err(|error| {
        // Error texts of temporary files contain their paths, which mean nothing to the user.
        let text = error.to_string();
        let of_the_system = text.split(" at path ").next().unwrap_or_default();
        std::io::Error::new(error.kind(), of_the_system.to_owned())
    })?;
    // If files cannot be locked, leftovers are not removed either.
    let _ = file.as_file().try_lock();
    Ok(file)
}

/// Removes temporary files beside `path` that killed processes have left.
pub fn remove_leftovers(path: &Path) {
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let prefix = temporary_prefix(&target);
    let entries = std::fs::read_dir(folder_of(&target)).into_iter().flatten().flatten();
    let is_temporary = |name: &std::ffi::OsStr| {
        let name = name.as_encoded_bytes();
        name.starts_with(prefix.as_encoded_bytes()) && name.ends_with(TEMPORARY.as_bytes())
    };
    for entry in entries.filter(|entry| is_temporary(&entry.file_name())) {
        // A locked file is being written by another process.
        let unlocked = |file: &std::fs::File| file.try_lock().is_ok();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && std::fs::OpenOptions::new().write(true).open(entry.path()).is_ok_and(|file| unlocked(&file)) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
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
    let wrong = |reason: String| ExecError::Weights { path: path.into(), reason };
    let damaged = |e: safetensors::SafeTensorError| wrong(format!("is not a safetensors file: {e}"));
    let tensors = SafeTensors::deserialize(&bytes).map_err(damaged)?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes).map_err(damaged)?;
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
    let mut problems = vec![];
    for (name, shape) in expected {
        match file.tensors.get(name) {
            None => problems.push(format!("`{name}` is missing")),
            Some((found, _)) if found != shape => {
                problems.push(format!("`{name}` has shape {found:?}, the model expects {shape:?}"));
            }
            Some(_) => {}
        }
    }
    let known = |name: &String| expected.iter().any(|(e, _)| e == name);
    problems.extend(file.tensors.keys().filter(|n| !known(n)).map(|n| format!("the model has no parameter `{n}`")));
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

    /// Files of a running writer and unrelated files stay.
    #[test]
    fn leftovers_of_killed_processes_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w");
        let kept = temporary_beside(&path).expect("made");
        for name in [".w.abcdef.hgnnc-tmp", ".w.backup", ".v.abcdef.hgnnc-tmp", "w.abcdef.hgnnc-tmp"] {
            std::fs::write(folder.path().join(name), "some").expect("written");
        }
        check_writable(&path).expect("writable");
        let mut names: Vec<String> = (std::fs::read_dir(folder.path()).expect("listed").flatten())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        let own = kept.path().file_name().expect("a name").to_string_lossy().into_owned();
        let mut expected = vec![own, ".w.backup".into(), ".v.abcdef.hgnnc-tmp".into(), "w.abcdef.hgnnc-tmp".into()];
        expected.sort();
        assert_eq!(names, expected);
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
