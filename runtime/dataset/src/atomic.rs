//! Atomic writes: a failed or killed write leaves the old file intact.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;

/// Writes a temporary file beside `path`, flushes it to the disk and renames it. Follows links; writes directly to
/// anything that is not a regular file (a pipe, `/dev/null`), which a rename would replace.
///
/// # Errors
/// When the folder cannot be written or the disk is full; `path` is then unchanged.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_special(path) {
        return std::fs::OpenOptions::new().write(true).open(path).and_then(|mut f| f.write_all(bytes));
    }
    // Fails if the file does not exist yet, in which case it is no link either.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let mut file = temporary_beside(&target)?;
    // A replaced file keeps its permissions.
    if let Ok(replaced) = std::fs::metadata(&target) {
        file.as_file().set_permissions(replaced.permissions())?;
    }
    file.as_file_mut().write_all(bytes).and_then(|()| file.as_file().sync_all())?;
    file.persist(&target).map_err(|error| error.error)?;
    // The rename is durable once the folder is flushed, which not every system supports.
    if let Ok(folder) = std::fs::File::open(folder_of(&target)) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// Checks that [`write`] can write to the folder, and removes leftovers of killed processes for this file.
/// Leaves no file behind.
///
/// # Errors
/// When the folder cannot be written.
pub fn check_writable(path: &Path) -> io::Result<()> {
    if is_special(path) {
        return Ok(());
    }
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    remove_leftovers(&target);
    temporary_beside(&target).map(|_| ())
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
fn temporary_prefix(target: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

/// A temporary file that is deleted unless it is renamed, with default permissions. It stays locked while it is
/// written, which distinguishes it from leftovers of killed processes.
fn temporary_beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let prefix = temporary_prefix(path);
    let file = builder.prefix(&prefix).suffix(TEMPORARY).tempfile_in(folder_of(path)).map_err(|error| {
        // Error texts of temporary files contain their paths, which mean nothing to the user.
        let text = error.to_string();
        let of_the_system = text.split(" at path ").next().unwrap_or_default();
        io::Error::new(error.kind(), of_the_system.to_owned())
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
    let is_temporary = |name: &OsStr| {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
