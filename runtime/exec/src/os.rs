//! What the operating system says about this process and machine.

/// From now on, a file that grows beyond the limit of the process (`ulimit -f`) is an error of that write, as a full disk
/// is, and not the end of the process with a file half written.
pub fn fail_writes_beyond_the_limit() {
    #[cfg(unix)]
    // SAFETY: a signal is ignored, no handler runs.
    #[allow(unsafe_code)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// The number in a line of a file such as those in `/proc`, by the beginning of the line; `None` on systems without it.
pub fn field(file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Bytes that this process may still take without swapping: the least of what the machine has available and what the
/// process's control group has left, files in its cache not counted. `None` where the system does not tell.
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

/// The largest resident set of this process so far, in bytes; 0 where the system does not tell.
pub fn peak_rss_bytes() -> u64 {
    field("/proc/self/status", "VmHWM:").unwrap_or(0) * 1024
}
