//! What the operating system says about this process and machine.

/// A field in KiB of a file in `/proc`; `None` on systems without it.
pub fn kib_field(file: &str, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The largest resident set of this process so far, in bytes; 0 where the system does not tell.
pub fn peak_rss_bytes() -> u64 {
    kib_field("/proc/self/status", "VmHWM:").unwrap_or(0) * 1024
}
