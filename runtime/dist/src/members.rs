//! The processes of a job, for `hgnnc cluster check`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::{Comm, CommError, Tag, gather_texts};

/// A process of a job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Name of its machine.
    pub host: String,
    /// Number of the process there.
    pub process: u32,
    /// Processors that it may run on.
    pub processors: Vec<usize>,
    /// Bytes that it can allocate, if the system says so.
    pub free_bytes: Option<u64>,
    /// Version of the program.
    pub version: String,
    /// Hash of the program's file.
    pub binary: u64,
}

impl Member {
    /// This process. `free_bytes` are those that it can allocate.
    pub fn this(version: &str, free_bytes: Option<u64>) -> Member {
        let set = rustix::thread::sched_getaffinity(None).ok();
        let processors = set.map_or_else(Vec::new, |set| {
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
        });
        let binary = std::env::current_exe().and_then(std::fs::read);
        Member {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            process: std::process::id(),
            processors,
            free_bytes,
            version: version.to_owned(),
            binary: binary.map_or(0, |bytes| xxh3_64(&bytes)),
        }
    }

    /// All processes of the job, in the order of the ranks.
    ///
    /// # Errors
    /// As [`Comm::alltoallv`].
    pub fn all(&self, comm: &dyn Comm) -> Result<Vec<Member>, CommError> {
        let own = serde_json::to_string(self).unwrap_or_default();
        let texts = gather_texts(comm, Tag::CONTROL, &own)?;
        let of = |(rank, text): (usize, String)| {
            serde_json::from_str(&text).map_err(|_| CommError::Ended { rank, reason: "it is another program".into() })
        };
        texts.into_iter().enumerate().map(of).collect()
    }
}

/// Errors of a job whose processes run different programs.
pub fn faults(members: &[Member]) -> Vec<String> {
    let Some(first) = members.first() else { return Vec::new() };
    let differs = |(rank, member): (usize, &Member)| {
        let same = (member.binary, &member.version) == (first.binary, &first.version);
        (!same).then(|| {
            format!(
                "rank {rank} on `{}` runs another binary ({}, hash {:016x}) than rank 0 on `{}` ({}, hash {:016x}): \
                 install the same one on all machines",
                member.host, member.version, member.binary, first.host, first.version, first.binary
            )
        })
    };
    members.iter().enumerate().filter_map(differs).collect()
}

/// Warnings about ranks of one machine that share processors.
pub fn notes(members: &[Member]) -> Vec<String> {
    let mut by_host: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    members.iter().enumerate().for_each(|(rank, member)| by_host.entry(&member.host).or_default().push(rank));
    let shared = |(host, ranks): (&str, Vec<usize>)| {
        let mut processors: Vec<usize> = ranks.iter().flat_map(|&rank| members[rank].processors.clone()).collect();
        let all = processors.len();
        processors.sort_unstable();
        processors.dedup();
        (processors.len() < all).then(|| {
            format!(
                "ranks {} share the {} processors of `{host}`: give each its own, as `mpirun --bind-to core` or `srun \
                 --cpus-per-task` do, and `--threads` accordingly",
                ranks.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
                processors.len()
            )
        })
    };
    by_host.into_iter().filter_map(shared).collect()
}

#[cfg(test)]
mod tests {
    use super::{Member, faults, notes};

    fn member(host: &str, processors: &[usize], binary: u64) -> Member {
        let (host, processors) = (host.into(), processors.to_vec());
        Member { host, process: 1, processors, free_bytes: None, version: "0.1.0".into(), binary }
    }

    #[test]
    fn other_binaries_and_shared_processors_are_told() {
        let all = [member("a", &[0, 1], 7), member("a", &[2, 3], 7), member("b", &[0, 1], 7)];
        assert!(faults(&all).is_empty() && notes(&all).is_empty());
        let all = [member("a", &[0, 1], 7), member("a", &[1, 2], 7), member("b", &[0], 8)];
        let [fault] = &faults(&all)[..] else { panic!() };
        assert!(
            fault.starts_with("rank 2 on `b` runs another binary (0.1.0, hash 0000000000000008) than rank 0 on `a`"),
            "{fault}"
        );
        let [note] = &notes(&all)[..] else { panic!() };
        assert!(note.starts_with("ranks 0, 1 share the 3 processors of `a`"), "{note}");
    }
}
