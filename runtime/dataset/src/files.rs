//! Opening of input files, and a private temporary folder.
//!
//! Reading from a pipe, a device or a socket could block forever or exhaust memory, so every input is opened by
//! [`open`], which refuses them.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Opens a regular file for reading; follows symbolic links.
///
/// # Errors
/// When the file does not exist or cannot be read, or is a folder, a pipe, a device or a socket.
pub fn open(path: &Path) -> io::Result<File> {
    // Checked before opening, since opening a device can have side effects.
    check(std::fs::metadata(path)?.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true);
    // With `NONBLOCK`, a pipe that replaced the file since the check does not block.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, rustix::fs::OFlags::NONBLOCK.bits() as i32);
    let file = options.open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads the bytes of a regular file.
///
/// # Errors
/// As [`open`], and when it does not fit in memory.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = vec![];
    let length = file.metadata()?.len();
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or(usize::MAX)).map_err(|_| ErrorKind::OutOfMemory)?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the text of a regular file.
///
/// # Errors
/// As [`open`], and when it is not UTF-8 or exceeds the size limit of texts.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    const MOST: u64 = 1 << 30;
    let mut text = String::new();
    let mut file = open(path)?;
    if file.metadata()?.len() > MOST {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "it is larger than 1 GiB"));
    }
    file.read_to_string(&mut text)?;
    Ok(text)
}

fn check(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
    }
    Err(io::Error::new(ErrorKind::InvalidInput, format!("it is {}, and only regular files are read", special(kind))))
}

#[cfg(unix)]
fn special(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn special(_: FileType) -> &'static str {
    "no file"
}

/// A temporary folder that only this user can read and write: the one of earlier runs, or a fresh one if that path is
/// taken by another user.
///
/// # Errors
/// When no folder can be created.
#[cfg(unix)]
pub fn private_folder(name: &str) -> io::Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let user = rustix::process::geteuid().as_raw();
    let folder = std::env::temp_dir().join(format!("{name}-{user}"));
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Ok(()) => return Ok(folder),
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Err(_) => {}
    }
    // `symlink_metadata`: a symbolic link may belong to another user.
    let found = std::fs::symlink_metadata(&folder)?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(folder);
    }
    Ok(tempfile::Builder::new().prefix(&format!("{name}-")).tempdir()?.keep())
}

/// A temporary folder. On this platform temporary folders are private to the user.
///
/// # Errors
/// When it cannot be created.
#[cfg(not(unix))]
pub fn private_folder(name: &str) -> io::Result<PathBuf> {
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_read() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        std::fs::write(path("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        assert_eq!(read(&path("link")).unwrap(), b"text");
        assert_eq!(read_to_string(&path("file")).unwrap(), "text");
        std::fs::write(path("file"), [0xff]).unwrap();
        assert_eq!(read_to_string(&path("file")).unwrap_err().kind(), ErrorKind::InvalidData);
        // None of these calls blocks.
        assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for (path, what) in [
            (path("pipe"), "it is a pipe, and only regular files are read"),
            (path("socket"), "it is a socket"),
            ("/dev/zero".into(), "it is a device"),
            ("/dev/tty".into(), "it is a device"),
            (place.path().into(), "it is a folder"),
            (path("nothing"), "No such file"),
        ] {
            let said = open(&path).unwrap_err().to_string();
            assert!(said.contains(what), "{}: {said}", path.display());
        }
    }
}
