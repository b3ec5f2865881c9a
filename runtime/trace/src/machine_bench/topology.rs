//! CPU description from the operating system.

use std::fs::read_to_string;

use crate::os::field;

/// Cache sizes in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Caches {
    /// L1 data cache of a core.
    pub l1: usize,
    /// L2 cache of a core.
    pub l2: usize,
    /// L3 cache, shared by all cores.
    pub l3: Option<usize>,
}

impl Caches {
    /// Caches of the first CPU, or typical sizes if the system does not report them.
    pub fn find() -> Self {
        let mut found = [None; 4];
        for index in 0..8 {
            let read = |name: &str| {
                let file = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
                Some(read_to_string(file).ok()?.trim().to_string())
            };
            let (Some(level), Some(kind), Some(size)) = (read("level"), read("type"), read("size")) else { continue };
            if let (Ok(level @ 1..=3), true) = (level.parse::<usize>(), kind != "Instruction") {
                found[level] = bytes(&size);
            }
        }
        let l1 = found[1].unwrap_or(32 << 10).clamp(8 << 10, 1 << 20);
        let l2 = found[2].unwrap_or(512 << 10).clamp(2 * l1, 1 << 26);
        Self { l1, l2, l3: found[3].filter(|&l3| l3 >= 2 * l2) }
    }
}

/// Parses a size such as `48K` or `2M`.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)
}

/// CPU model name; the architecture if the system does not report it.
pub(super) fn model_name() -> String {
    let info = read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name));
    named.map(str::trim).filter(|name| !name.is_empty()).unwrap_or(std::env::consts::ARCH).to_string()
}

/// Memory in bytes; 16 GiB if the system does not report it.
pub(super) fn memory_bytes() -> usize {
    let kib = field("/proc/meminfo", "MemTotal:").unwrap_or(16 << 20);
    usize::try_from(kib).unwrap_or(usize::MAX).saturating_mul(1 << 10)
}

/// Nanoseconds that the threads of this process have run, and have waited while runnable. `None` if the system
/// does not report it.
pub(super) fn run_and_wait() -> Option<(u64, u64)> {
    let mut sum = (0, 0);
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        // A thread may have ended in the meantime.
        let Ok(text) = read_to_string(task.ok()?.path().join("schedstat")) else { continue };
        let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
        sum.0 += numbers.next()??;
        sum.1 += numbers.next()??;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_the_system_writes_them() {
        assert_eq!((bytes("48K"), bytes("2M"), bytes("512")), (Some(48 << 10), Some(2 << 20), Some(512)));
        assert_eq!((bytes(""), bytes("0K"), bytes("lots"), bytes("1T")), (None, None, None, None));
        let caches = Caches::find();
        assert!(caches.l1 < caches.l2 && caches.l3.is_none_or(|l3| l3 > caches.l2), "{caches:?}");
    }
}
