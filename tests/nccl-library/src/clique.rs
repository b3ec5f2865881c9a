//! Ranks of one id, which may be processes: what they tell each other is files of a folder.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::path::PathBuf;

use crate::world::{Answer, INVALID_USAGE, SYSTEM_ERROR};

/// A rank of a clique.
#[derive(Debug)]
pub struct Clique {
    folder: PathBuf,
    pub rank: usize,
    pub size: usize,
    /// By receiver and by sender: number of messages that were sent and received.
    sent: BTreeMap<usize, usize>,
    received: BTreeMap<usize, usize>,
}

/// A message, until it is received.
#[derive(Debug)]
pub struct Message(PathBuf);

impl Message {
    pub fn is_received(&self) -> bool {
        !self.0.exists()
    }
}

fn failed(error: std::io::Error) -> c_int {
    eprintln!("hgnnc-nccl-library: {error}");
    SYSTEM_ERROR
}

impl Clique {
    /// Joins; fails where the rank is taken, or another rank has the device.
    pub fn join(id: u64, rank: usize, size: usize, device: usize) -> Answer<Clique> {
        let root = std::env::var_os("HGNN_TEST_NCCL").map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = root.join(format!("hgnnc-nccl-{id:016x}"));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let names = [format!("rank-{rank}"), format!("device-{device}")];
        if names.iter().any(|name| folder.join(name).exists()) {
            return Err(INVALID_USAGE);
        }
        let clique = Clique { folder, rank, size, sent: BTreeMap::new(), received: BTreeMap::new() };
        names.iter().try_for_each(|name| clique.put(name, &[]))?;
        Ok(clique)
    }

    /// Writes a file, which others see with all of its content.
    fn put(&self, name: &str, content: &[u8]) -> Answer {
        let unfinished = self.folder.join(format!("unfinished-{}", self.rank));
        std::fs::write(&unfinished, content).map_err(failed)?;
        std::fs::rename(unfinished, self.folder.join(name)).map_err(failed)
    }

    fn count(&self, prefix: &str) -> usize {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix)).count()
    }

    pub fn is_complete(&self) -> bool {
        self.count("rank-") == self.size
    }

    /// Begins to leave, after which others may leave as well.
    pub fn finalize(&self) -> Answer {
        self.put(&format!("final-{}", self.rank), &[])
    }

    pub fn is_final(&self) -> bool {
        self.count("final-") == self.size
    }

    /// Whether a rank has left the others alone.
    pub fn has_failed(&self) -> bool {
        self.folder.join("failed").exists()
    }

    pub fn fail(&self) -> Answer {
        self.put("failed", &[])
    }

    pub fn send(&mut self, to: usize, content: &[u8]) -> Answer<Message> {
        let number = self.sent.entry(to).or_default();
        let name = format!("message-{}-{to}-{number}", self.rank);
        *number += 1;
        self.put(&name, content)?;
        Ok(Message(self.folder.join(name)))
    }

    /// The next message of a rank, if it is there.
    pub fn receive(&mut self, from: usize) -> Option<Vec<u8>> {
        let number = self.received.entry(from).or_default();
        let message = self.folder.join(format!("message-{from}-{}-{number}", self.rank));
        let content = std::fs::read(&message).ok()?;
        *number += 1;
        let _ = std::fs::remove_file(message);
        Some(content)
    }
}

impl Drop for Clique {
    fn drop(&mut self) {
        let _ = self.put(&format!("gone-{}", self.rank), &[]);
        if self.count("gone-") >= self.count("rank-") {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}
