//! Machine benchmark for the roofline, cached in a file.
//!
//! Data sheets do not describe the actual, possibly virtual, machine. Its limits are measured on first use, in about a
//! third of a second, and read from a file afterwards: see [`machine`]. A file that cannot be read or written causes
//! another measurement, never an error. Measurements disturbed by other processes are used but not cached.

mod bench;
mod topology;

use std::path::{Path, PathBuf};

use hgnnc_dataset::{atomic, files};
use hgnnc_graph::processors;
use hgnnc_machine::{Capabilities, FORMAT, Machine, MemoryLevel};

use bench::Bench;
use topology::{Caches, run_and_wait};

/// The CPU with this many threads (0: one per CPU), from the file in `folder` or measured. `warn` receives the reason
/// if a file is unusable.
pub fn machine(folder: Option<&Path>, threads: usize, warn: &mut dyn FnMut(String)) -> Machine {
    let threads = processors::threads(threads);
    let name = topology::model_name();
    kept(folder, &name, threads, warn, || measure(&name, threads))
}

/// Size of the last-level cache in bytes, as reported by the system.
pub fn last_level_bytes() -> usize {
    let caches = Caches::find();
    caches.l3.unwrap_or(caches.l2)
}

/// A machine description, and whether other processes disturbed the measurement.
type Measured = (Machine, bool);

/// Cached description of a CPU and thread count, or the result of `measure`, which is then cached.
fn kept(
    folder: Option<&Path>,
    name: &str,
    threads: usize,
    warn: &mut dyn FnMut(String),
    measure: impl FnOnce() -> Measured,
) -> Machine {
    let file = folder.map(|folder| folder.join(file_name(name, threads)));
    let fits = |machine: &Machine| machine.name == name && machine.cores as usize == threads;
    if let Some(file) = &file {
        let problem = match read(file) {
            Ok(Some(known)) if fits(&known) => return known,
            Ok(Some(_)) => Some("it is of another processor".to_owned()),
            Ok(None) => None,
            Err(problem) => Some(problem),
        };
        if let Some(problem) = problem {
            warn(format!("the processor is measured again, since {} cannot be used: {problem}", file.display()));
        }
    }
    let (machine, disturbed) = measure();
    // Opening a pipe for writing would block until it has a reader.
    let file = file.filter(|file| file.is_file() || !file.exists());
    if let (Some(file), Ok(text), false) = (file, machine.to_toml(), disturbed) {
        // A failed write is ignored: the machine is measured again next time.
        let folder_made = file.parent().is_none_or(|folder| std::fs::create_dir_all(folder).is_ok());
        let _ = folder_made.then(|| atomic::write(&file, text.as_bytes()));
    }
    machine
}

/// Machine description in a file; `None` if there is none.
///
/// # Errors
/// When it cannot be read, or is not a machine description.
fn read(file: &Path) -> Result<Option<Machine>, String> {
    match files::read_to_string(file) {
        Ok(text) => Machine::from_toml(&text).map(Some).map_err(|error| error.to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// One file per CPU model, thread count, format version and build kind, since unoptimised code measures lower.
fn file_name(name: &str, threads: usize) -> PathBuf {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = name.chars().map(word).take(80).collect();
    let build = if cfg!(debug_assertions) { "-debug" } else { "" };
    format!("machine-{FORMAT}-{name}-{threads}{build}.toml").into()
}

/// Measures the CPU with this many threads.
fn measure(name: &str, threads: usize) -> Measured {
    let caches = Caches::find();
    let bench = Bench::new(threads, &caches);
    let before = run_and_wait();
    let level = |name: &str, bytes: usize, shared, (stream, gather): (f64, f64)| MemoryLevel {
        name: name.into(),
        bytes: bytes as f64,
        shared,
        stream_bytes_per_s: stream,
        gather_bytes_per_s: gather,
    };
    let mut levels = vec![
        level("L1", caches.l1, false, bench.private(caches.l1)),
        level("L2", caches.l2, false, bench.private(caches.l2)),
    ];
    if let Some(l3) = bench.l3(&caches) {
        let rates = bench.shared(l3 / 2);
        levels.push(level("L3", l3, true, rates));
    }
    let rates = bench.shared(bench.memory_len());
    levels.push(level("DRAM", topology::memory_bytes().max(2 * bench.memory_len()), true, rates));
    let step = bench.empty_step();
    let one = bench.fma(1);
    let machine = Machine {
        format: FORMAT,
        name: name.into(),
        target: "cpu".into(),
        capabilities: Capabilities::cpu(),
        cores: threads as u32,
        fma_flops: bench.fma(threads).max(one),
        fma_flops_one_core: one,
        special_per_s: bench.exp(),
        line_bytes: 64,
        launch_s: step,
        barrier_s: step,
        cycle_s: bench.cycle(),
        tensor: None,
        sorting: Some(bench.sorting()),
        levels,
    };
    // Waiting for a CPU more than a twentieth of the time distorts the result.
    let disturbed = before.zip(run_and_wait()).is_some_and(|((run, wait), (run_after, wait_after))| {
        20 * wait_after.saturating_sub(wait) > run_after.saturating_sub(run)
    });
    (machine, disturbed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(name: &str, threads: usize) -> Machine {
        let sheet = Machine::sheet("sm_80").expect("a sheet");
        Machine {
            name: name.into(),
            cores: threads as u32,
            target: "cpu".into(),
            capabilities: Capabilities::cpu(),
            tensor: None,
            ..sheet
        }
    }

    #[test]
    fn a_machine_is_measured_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = folder.path().join("deep/er");
        let first = kept(Some(&deep), "Some CPU", 2, &mut |_| {}, || (some("Some CPU", 2), false));
        let again = kept(Some(&deep), "Some CPU", 2, &mut |_| {}, || panic!("it is known"));
        assert_eq!(first, again);
        // Another CPU, and another thread count.
        let other = kept(Some(&deep), "Some GPU", 2, &mut |_| {}, || (some("Some GPU", 2), false));
        assert_eq!(other.name, "Some GPU");
        assert_eq!(kept(Some(&deep), "Some CPU", 1, &mut |_| {}, || (some("Some CPU", 1), false)).cores, 1);
        assert_eq!(std::fs::read_dir(&deep).expect("a folder").count(), 3, "nothing else is left behind");
    }

    #[test]
    fn what_cannot_be_kept_or_read_is_measured_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(file_name("X", 1));
        let text = some("X", 1).to_toml().expect("text");
        let nothing = String::new();
        let other_format = text.replace("format = 3", "format = 0");
        let line = text.lines().find(|line| line.starts_with("fma_flops = ")).expect("a rate");
        let absurd = |rate: &str| text.replace(line, &format!("fma_flops = {rate}"));
        let absurd = ["0.0", "nan", "inf", "1e300", "1e-300", "-1.0"].map(absurd);
        let broken = [nothing, text[..text.len() / 2].to_string(), other_format, text.replace("\"X\"", "\"Y\"")];
        for broken in broken.iter().chain(&absurd) {
            std::fs::write(&file, broken).expect("written");
            let (mut measured, mut warnings) = (false, vec![]);
            let found = kept(Some(folder.path()), "X", 1, &mut |warning| warnings.push(warning), || {
                measured = true;
                (some("X", 1), false)
            });
            assert!(measured && found == some("X", 1), "{broken}");
            assert!(warnings.iter().all(|it| it.contains("measured again")) && warnings.len() == 1, "{warnings:?}");
            assert_eq!(read(&file), Ok(Some(found)), "it is repaired");
        }
        // Disturbed measurements are used but not cached.
        std::fs::remove_file(&file).expect("removed");
        assert_eq!(kept(Some(folder.path()), "X", 1, &mut |_| {}, || (some("X", 1), true)), some("X", 1));
        assert!(!file.exists());
        std::fs::write(&file, "").expect("written");
        // A file as the folder, a folder in place of the file, and no folder at all.
        assert_eq!(kept(Some(&file), "X", 1, &mut |_| {}, || (some("X", 1), false)), some("X", 1));
        std::fs::remove_file(&file).expect("removed");
        std::fs::create_dir(&file).expect("made");
        assert_eq!(kept(Some(folder.path()), "X", 1, &mut |_| {}, || (some("X", 1), false)), some("X", 1));
        assert_eq!(kept(None, "X", 1, &mut |_| {}, || (some("X", 1), false)), some("X", 1));
    }

    #[test]
    fn this_machine_has_a_description() {
        for threads in [1, 2] {
            let (machine, _) = measure("this", threads);
            let text = machine.to_toml().expect("numbers that a machine has");
            assert_eq!(Machine::from_toml(&text), Ok(machine));
        }
    }
}
