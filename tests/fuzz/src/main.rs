//! Fuzzing campaigns of mutated programs and files, and of killed runs: no case may panic or take more than 10 seconds
//! or 4 GiB, and a resumed run must be bit-equal to an undisturbed one.
//!
//! A case depends only on the seed and its number. Cases run in a worker process, which is restarted after a case that
//! kills it; each failure is stored in its own file.

mod artifacts;
mod files;
mod kills;
mod programs;
mod sample;
mod tables;
mod text;

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rustix::process::{Resource, Rlimit, setrlimit};

/// The allocator of the `hgnnc` binary.
#[global_allocator]
static MEMORY: hgnnc_graph::LargePages = hgnnc_graph::LargePages;

const USAGE: &str = "\
usage: hgnnc-fuzz KIND COUNT [--seed N] [--from N] [--out DIR]
       hgnnc-fuzz kills COUNT [--seed N] [--hgnnc FILE]

KIND      programs, data, weights, checkpoints, caches, artifacts or imports: all of tables, more-tables, triples, hgb, ogb,
          ntriples, dgl, graphbolt and graphstorm, which may be named as well
COUNT     cases, or kills that strike
--seed N  another campaign (0)
--from N  number of the first case (0): one case again with `--from CASE` and COUNT 1
--out DIR folder of a file for each failure (fuzz-failures)
--hgnnc   the command (hgnnc beside this program)";

/// Limits of a case: memory in bytes, and processor time in seconds.
const MEMORY_LIMIT: u64 = 4 << 30;
const SECONDS_LIMIT: f64 = 10.0;
/// Limit of the wall time of a case, including waits for processor and disk.
const WAITING_LIMIT: Duration = Duration::from_secs(120);
/// Workers are restarted after this many cases, so that small leaks do not accumulate.
const CASES_OF_A_PROCESS: u64 = 20_000;
/// Number of stored failures with the same first words.
const FILES_OF_A_FAILURE: u64 = 3;

/// A kind of fuzz case.
trait Subject {
    /// Names of the outcomes of a case.
    fn outcomes(&self) -> &'static [&'static str];

    /// Makes a case; returns a description that suffices to repeat it.
    fn prepare(&mut self, rng: &mut ChaCha8Rng) -> String;

    /// Runs the case. Returns the index of its outcome, or the failure.
    fn run(&mut self, rng: &mut ChaCha8Rng) -> Result<usize, String>;
}

fn subject(kind: &str, folder: &Path) -> Option<Box<dyn Subject>> {
    Some(match kind {
        "programs" => Box::new(programs::Programs::new()),
        "data" => Box::new(files::Files::new(files::Kind::Data, folder)),
        "weights" => Box::new(files::Files::new(files::Kind::Weights, folder)),
        "checkpoints" => Box::new(files::Files::new(files::Kind::Checkpoints, folder)),
        "artifacts" => Box::new(artifacts::Artifacts::new(folder)),
        "imports" => Box::new(tables::Tables::new(folder, None)),
        kind if tables::Tables::FOLDERS.contains(&kind) => Box::new(tables::Tables::new(folder, Some(kind))),
        "caches" => Box::new(files::Files::new(files::Kind::Caches, folder)),
        _ => return None,
    })
}

struct Args {
    kind: String,
    count: u64,
    seed: u64,
    from: u64,
    out: PathBuf,
    hgnnc: PathBuf,
    /// Working folder of the worker process.
    work: Option<PathBuf>,
}

impl Args {
    fn parse() -> Option<Self> {
        let mut words = std::env::args_os().skip(1);
        let kind = words.next()?.into_string().ok()?;
        let count = words.next()?.to_str()?.parse().ok()?;
        let own = std::env::current_exe().unwrap_or_default();
        let (out, hgnnc) = ("fuzz-failures".into(), own.with_file_name("hgnnc"));
        let mut args = Self { kind, count, seed: 0, from: 0, out, hgnnc, work: None };
        while let Some(word) = words.next() {
            let value = words.next()?;
            match word.to_str()? {
                "--seed" => args.seed = value.to_str()?.parse().ok()?,
                "--from" => args.from = value.to_str()?.parse().ok()?,
                "--out" => args.out = value.into(),
                "--hgnnc" => args.hgnnc = value.into(),
                "--work" => args.work = Some(value.into()),
                _ => return None,
            }
        }
        Some(args)
    }
}

fn main() -> ExitCode {
    let Some(args) = Args::parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let failures = match (&args.kind[..], &args.work) {
        ("kills", _) => kills::campaign(args.count, args.seed, &args.hgnnc),
        ("programs" | "data" | "weights" | "checkpoints" | "caches" | "imports" | "artifacts", None) => campaign(&args),
        (kind, None) if tables::Tables::FOLDERS.contains(&kind) => campaign(&args),
        (_, Some(folder)) => {
            work(&args, folder);
            0
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    ExitCode::from(u8::from(failures > 0))
}

/// Counters in a file shared by a worker process and its supervisor.
struct Progress(File);

impl Progress {
    fn write(&self, case: u64, outcomes: &[u64]) {
        let numbers = [&[case][..], outcomes].concat();
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        self.0.write_all_at(&bytes, 0).expect("the temporary folder can be written");
    }

    /// The current case, and the count of each outcome.
    fn read(&self) -> (u64, Vec<u64>) {
        let mut bytes = [0; 128];
        let length = self.0.read_at(&mut bytes, 0).expect("the temporary folder can be read");
        let (numbers, _) = bytes[..length].as_chunks::<8>();
        let mut numbers = numbers.iter().map(|&number| u64::from_le_bytes(number));
        (numbers.next().unwrap_or(0), numbers.collect())
    }
}

fn of_case(seed: u64, case: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(case);
    rng
}

/// Failures, counted by their first words.
struct Failures {
    found: BTreeMap<String, u64>,
    folder: PathBuf,
}

impl Failures {
    fn add(&mut self, args: &Args, case: u64, problem: &str, described: &str) {
        let count = self.found.entry(key(problem)).or_default();
        *count += 1;
        if *count > FILES_OF_A_FAILURE {
            return;
        }
        let path = self.folder.join(format!("{}-{}-{case}.txt", args.kind, args.seed));
        let again = format!("hgnnc-fuzz {} 1 --seed {} --from {case}", args.kind, args.seed);
        let text = format!("{problem}\n---- again: {again} ----\n{described}");
        let written = std::fs::create_dir_all(&self.folder).and_then(|()| std::fs::write(&path, text));
        println!("case {case}: {}", problem.lines().next().unwrap_or_default());
        match written {
            Ok(()) => println!("  {}", path.display()),
            Err(error) => println!("  {} cannot be written: {error}", path.display()),
        }
    }
}

/// The first line without numbers, which differ between cases.
fn key(problem: &str) -> String {
    problem.lines().next().unwrap_or_default().chars().filter(|c| !c.is_ascii_digit()).take(100).collect()
}

/// Runs all cases in consecutive worker processes. Returns the number of failures.
fn campaign(args: &Args) -> u64 {
    let mut failures = Failures { found: BTreeMap::new(), folder: args.out.clone() };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let (start, end) = (Instant::now(), args.from + args.count);
    let mut totals: Vec<u64> = vec![];
    let mut next = args.from;
    while next < end {
        let of_worker = folder.path().join(format!("{next}"));
        std::fs::create_dir(&of_worker).expect("the temporary folder can be written");
        let progress = Progress(File::create_new(of_worker.join("progress")).expect("it can be written"));
        drop(progress);
        let progress = Progress(File::open(of_worker.join("progress")).expect("it can be read"));
        let count = CASES_OF_A_PROCESS.min(end - next);
        let mut worker = start_worker(args, next, count, &of_worker);
        let ended = supervise(&mut worker, &progress);
        let (case, outcomes) = progress.read();
        totals.resize(totals.len().max(outcomes.len()), 0);
        totals.iter_mut().zip(&outcomes).for_each(|(total, more)| *total += more);
        for (case, problem, described) in failures_in(&of_worker) {
            failures.add(args, case, &problem, &described);
        }
        next = match ended {
            Ended::Itself(status) if status.success() => next + count,
            other => {
                let described = describe(args, case, &of_worker);
                failures.add(args, case, &other.to_string(), &described);
                case + 1
            }
        };
        let _ = std::fs::remove_dir_all(&of_worker);
        let failed: u64 = failures.found.values().sum();
        println!(
            "{} of {} cases, {failed} failed, {:.0} s: {}",
            next - args.from,
            args.count,
            start.elapsed().as_secs_f64(),
            table(&args.kind, folder.path(), &totals)
        );
    }
    failures.found.iter().for_each(|(key, count)| println!("{count} times: {key}"));
    failures.found.values().sum()
}

/// A table of outcomes and their counts.
fn table(kind: &str, folder: &Path, totals: &[u64]) -> String {
    let names = subject(kind, &folder.join("names")).map_or(&[][..], |subject| subject.outcomes());
    let parts: Vec<String> = names.iter().zip(totals).map(|(name, count)| format!("{count} {name}")).collect();
    parts.join(", ")
}

fn start_worker(args: &Args, from: u64, count: u64, folder: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this program has a path"))
        .args([&args.kind, &count.to_string(), "--seed", &args.seed.to_string(), "--from", &from.to_string(), "--work"])
        .arg(folder)
        .env("RAYON_NUM_THREADS", "1")
        .spawn()
        .expect("this program can be started again")
}

/// How a worker process ended.
enum Ended {
    Itself(ExitStatus),
    /// A case exceeded its time, in seconds.
    Hung(f64),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Itself(status) => match status.signal() {
                Some(signal) => write!(f, "the process was ended by signal {signal} (memory, or its stack)"),
                None => write!(f, "the process ended with {status}"),
            },
            Ended::Hung(seconds) => write!(f, "hung: took more than {seconds:.0} s"),
        }
    }
}

/// Waits for a worker, and kills it if a case takes too long.
fn supervise(worker: &mut Child, progress: &Progress) -> Ended {
    let (mut case, mut since, mut used) = (u64::MAX, Instant::now(), 0.0);
    loop {
        if let Some(status) = worker.try_wait().expect("it was started") {
            return Ended::Itself(status);
        }
        let now = progress.read().0;
        if now != case {
            (case, since, used) = (now, Instant::now(), processor_seconds(worker.id()));
        }
        let took = processor_seconds(worker.id()) - used;
        if took > SECONDS_LIMIT || since.elapsed() > WAITING_LIMIT {
            let _ = worker.kill();
            let _ = worker.wait();
            return Ended::Hung(if took > SECONDS_LIMIT { SECONDS_LIMIT } else { WAITING_LIMIT.as_secs_f64() });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Processor time of a process in seconds; 0 if unknown.
fn processor_seconds(process: u32) -> f64 {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return 0.0 };
    // The name in brackets may contain blanks. User and system time are the 12th and 13th field after it.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // Linux reports these in hundredths of a second, independent of the kernel's tick rate.
    ticks as f64 / 100.0
}

/// Describes the case that killed a worker: prepares it again in this process without running it.
fn describe(args: &Args, case: u64, folder: &Path) -> String {
    let subject = subject(&args.kind, &folder.join("again"));
    subject.map_or(String::new(), |mut subject| subject.prepare(&mut of_case(args.seed, case)))
}

/// Location and message of the last panic.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Main function of a worker.
fn work(args: &Args, folder: &Path) {
    let limit = Rlimit { current: Some(MEMORY_LIMIT), maximum: Some(MEMORY_LIMIT) };
    setrlimit(Resource::As, limit).expect("a limit can be lowered");
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut panic) = PANIC.lock() {
            *panic = info.to_string();
        }
    }));
    let mut subject = subject(&args.kind, &folder.join("files")).expect("the kind was checked");
    let progress = Progress(File::options().write(true).open(folder.join("progress")).expect("it was made"));
    let mut failed = File::create(folder.join("failed")).expect("it can be written");
    let mut outcomes = vec![0; subject.outcomes().len()];
    for case in args.from..args.from + args.count {
        progress.write(case, &outcomes);
        let mut rng = of_case(args.seed, case);
        let mut described = String::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            described = subject.prepare(&mut rng);
            subject.run(&mut rng)
        }));
        let problem = match outcome {
            Ok(Ok(outcome)) => {
                outcomes[outcome] += 1;
                continue;
            }
            Ok(Err(problem)) => problem,
            Err(panic) => message(&*panic),
        };
        let line = serde_json::json!([case, problem, described]);
        writeln!(failed, "{line}").expect("the temporary folder can be written");
    }
    progress.write(args.from + args.count, &outcomes);
}

/// Message of a panic with its location, which only the hook knows.
fn message(panic: &(dyn Any + Send)) -> String {
    let place = PANIC.lock().map(|it| it.replace('\n', " ")).unwrap_or_default();
    if place.is_empty() { format!("panicked: {panic:?}") } else { place }
}

/// Reads the failures recorded by a worker.
fn failures_in(folder: &Path) -> Vec<(u64, String, String)> {
    let text = std::fs::read_to_string(folder.join("failed")).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
