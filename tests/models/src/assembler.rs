//! Calls ptxas, where it is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Resources of an assembled kernel entry.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Usage {
    /// Name of the entry.
    pub entry: String,
    pub registers: usize,
    /// Bytes of register spills per thread.
    pub spilled: usize,
}

/// `ptxas`, from `HGNN_PTXAS` or the path.
pub fn find() -> Option<PathBuf> {
    let named = std::env::var_os("HGNN_PTXAS").map(PathBuf::from);
    let candidate = named.unwrap_or_else(|| PathBuf::from("ptxas"));
    Command::new(&candidate).arg("--version").output().is_ok_and(|out| out.status.success()).then_some(candidate)
}

/// Assembles PTX for an architecture (`sm_80`). The error is the message of ptxas.
///
/// # Panics
/// When a temporary file cannot be written, or the output lists no registers.
pub fn assemble(ptxas: &Path, architecture: &str, text: &str) -> Result<Vec<Usage>, String> {
    let mut file = tempfile::Builder::new().suffix(".ptx").tempfile().expect("temporary files can be made");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("they can be written");
    let out = Command::new(ptxas)
        .args(["-v", "-o", "/dev/null", "-arch", architecture])
        .arg(file.path())
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&out.stderr);
    if out.status.success() { Ok(usages(&said)) } else { Err(said.into_owned()) }
}

/// Parses the output of `ptxas -v`.
fn usages(said: &str) -> Vec<Usage> {
    let mut usages = vec![];
    let (mut entry, mut spilled) = (String::new(), 0);
    for line in said.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            entry = rest.split('\'').next().unwrap_or_default().to_owned();
        } else if line.contains("bytes spill stores") {
            let words: Vec<&str> = line.split_whitespace().collect();
            let bytes = words.windows(3).find(|w| w[1..] == ["bytes", "spill"]).and_then(|w| w[0].parse().ok());
            spilled = bytes.unwrap_or_else(|| panic!("no number of bytes in `{line}`"));
        } else if let Some(rest) = line.split("Used ").nth(1) {
            let registers = rest.split(' ').next().and_then(|n| n.parse().ok());
            let registers = registers.unwrap_or_else(|| panic!("no number of registers in `{line}`"));
            usages.push(Usage { entry: std::mem::take(&mut entry), registers, spilled });
        }
    }
    usages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_spills_are_read() {
        let said = "ptxas info    : Compiling entry function 'step0' for 'sm_80'
ptxas info    : Function properties for step0
    24 bytes stack frame, 24 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 352 bytes cmem[0]
ptxas info    : Compiling entry function 'step1' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers\n";
        let of = |entry: &str, registers, spilled| Usage { entry: entry.into(), registers, spilled };
        assert_eq!(usages(said), [of("step0", 128, 24), of("step1", 32, 0)]);
    }
}
