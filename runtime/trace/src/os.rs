//! Queries and settings of the operating system for this process.

/// Makes a write beyond the file size limit of the process (`ulimit -f`) fail with an error, like a full disk, instead
/// of killing the process with a partly written file.
pub fn fail_writes_beyond_the_limit() {
    #[cfg(unix)]
    // SAFETY: a signal is ignored, no handler runs.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The number on the first line of a file (such as those in `/proc`) that starts with `field`; `None`
/// on systems without it.
pub fn field(file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes that this process can allocate without swapping: the minimum of the machine's available memory and the
/// remainder of the cgroup limit, page cache excluded. `None` if the system does not report it.
pub fn free_bytes() -> Option<u64> {
    let available = field("/proc/meminfo", "MemAvailable:").map(|kib| kib * 1024);
    let number = |file: &str| -> Option<u64> { std::fs::read_to_string(file).ok()?.trim().parse().ok() };
    let left = |limit: &str, used: &str, stat: &str, cache: &str| {
        let cache = field(stat, cache).unwrap_or(0);
        Some(number(limit)?.saturating_sub(number(used)?.saturating_sub(cache)))
    };
    let [v2, v1] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
    let stat = |folder: &str| format!("{folder}/memory.stat");
    let groups = [
        left(&format!("{v2}/memory.max"), &format!("{v2}/memory.current"), &stat(v2), "file "),
        left(&format!("{v1}/memory.limit_in_bytes"), &format!("{v1}/memory.usage_in_bytes"), &stat(v1), "total_cache "),
    ];
    groups.into_iter().chain([available]).flatten().min()
}

/// Peak resident set size of this process in bytes; 0 if the system does not report it.
pub fn peak_rss_bytes() -> u64 {
    field("/proc/self/status", "VmHWM:").unwrap_or(0) * 1024
}
