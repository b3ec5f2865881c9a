//! `hgnnc cluster`: the processes of a job.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use hgnnc::{Ranks, check_writable, write_file};
use hgnnc_dist::measure::{Times, measure};
use hgnnc_dist::members::{Member, faults, notes};
use hgnnc_dist::{Comm, CommError, Launcher, open};

use crate::args::{ClusterCommand, Command};
use crate::failure::Failure;
use crate::output::{note, print};
use crate::profile_args::ProfileCommand;

impl From<CommError> for Failure {
    fn from(error: CommError) -> Self {
        Failure::Machine(error.to_string())
    }
}

/// Refuses a command that a launcher has started as several processes: each would do all of the work, over the same
/// files as the others.
pub fn refuse_ranks(command: &Command) -> Result<(), Failure> {
    let launcher = Launcher::of_environment(&|name| std::env::var(name).ok());
    let several = launcher.filter(|of| of.size.is_some_and(|size| size > 1) || of.rank.is_some_and(|rank| rank > 0));
    let takes_several = match command {
        Command::Cluster { .. } | Command::Train(_) | Command::Eval(_) | Command::Infer(_) => true,
        Command::Profile(command) => matches!(command, ProfileCommand::Run(_)),
        _ => false,
    };
    match (several, takes_several) {
        (None, _) | (_, true) => Ok(()),
        (Some(of), _) => Err(Failure::input(format!(
            "{} started {} processes of this command, each of which would do all of the work and write the same files: \
             `hgnnc train`, `eval`, `infer`, `profile MODEL` and `cluster` take several",
            of.name,
            of.size.map_or_else(|| "several".into(), |size| size.to_string()),
        ))),
    }
}

/// The processes of the job, on a library that is opened now.
fn opened() -> Result<Box<dyn Comm>, CommError> {
    hgnnc_graph::LargePages::copy_moved();
    open()
}

/// The processes of the job, if a launcher has started several. They run the same program.
pub fn processes() -> Result<Option<Arc<dyn Comm>>, Failure> {
    if Launcher::of_environment(&|name| std::env::var(name).ok()).is_none() {
        return Ok(None);
    }
    let comm: Arc<dyn Comm> = Arc::from(opened()?);
    if comm.size() == 1 {
        return Ok(None);
    }
    let members = Member::this(env!("CARGO_PKG_VERSION"), hgnnc_trace::os::free_bytes()).all(&*comm)?;
    if let Some(fault) = faults(&members).into_iter().next() {
        return Err(Failure::Machine(fault));
    }
    if comm.rank() == 0 {
        notes(&members).iter().for_each(|text| note(&format!("note: {text}")));
    }
    Ok(Some(comm))
}

/// Time in which a launcher passes on what a process has printed. It drops the rest once the process has failed.
const PASSED_ON: Duration = Duration::from_millis(200);

/// Before a process fails that may be one of several: its launcher, if there is one, passes on what it has printed.
pub fn let_pass_on() {
    if Launcher::of_environment(&|name| std::env::var(name).ok()).is_some() {
        std::thread::sleep(PASSED_ON);
    }
}

/// Time in which other ranks end a job after the same failure, so that one of them tells it.
const GRACE: Duration = Duration::from_secs(2);

/// Ends the job on all ranks if this one has failed, since the others may wait for it. Rank 0 tells what has failed;
/// the others do so only if it goes on.
pub fn end_together(comm: &dyn Comm, outcome: Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    if let Err(failure) = &outcome {
        if comm.rank() > 0 {
            std::thread::sleep(GRACE);
            note(&format!("error on rank {}:", comm.rank()));
        }
        failure.print();
        comm.abort("the command failed");
    }
    outcome
}

/// Runs a command as one process, or together with the others that a launcher has started.
pub fn on_processes(command: impl FnOnce(Option<Ranks>) -> Result<ExitCode, Failure>) -> Result<ExitCode, Failure> {
    match processes()? {
        None => command(None),
        Some(comm) => end_together(&*comm, command(Some(Ranks::new(Arc::clone(&comm))))),
    }
}

/// Whether this process shows and writes the results: the first of several does.
pub fn shows(ranks: Option<&Ranks>) -> bool {
    ranks.is_none_or(|ranks| ranks.comm.rank() == 0)
}

/// Runs a command on the processes of the job.
pub fn cluster(command: &ClusterCommand) -> Result<ExitCode, Failure> {
    let comm = opened()?;
    let outcome = match command {
        ClusterCommand::Check => check(&*comm),
        ClusterCommand::Measure { out } => measured(&*comm, out.as_deref()),
    };
    // The others may wait for this rank.
    if let (Err(Failure::Input(Some(message)) | Failure::Machine(message)), true) = (&outcome, comm.size() > 1) {
        comm.abort(message);
    }
    outcome
}

/// Rank 0 prints; all ranks end with the same code.
fn check(comm: &dyn Comm) -> Result<ExitCode, Failure> {
    let members = Member::this(env!("CARGO_PKG_VERSION"), hgnnc_trace::os::free_bytes()).all(comm)?;
    let faults = faults(&members);
    if comm.rank() == 0 {
        print(&table(comm.engine(), &members))?;
        notes(&members).iter().for_each(|text| note(&format!("note: {text}")));
        faults.iter().for_each(|text| note(&format!("error: {text}")));
        if faults.is_empty() {
            print("all ranks run the same binary, and exchange messages")?;
        }
    }
    // A rank that ends before the others have heard of it ends the job.
    comm.barrier()?;
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn table(engine: &str, members: &[Member]) -> String {
    let mut hosts: Vec<&str> = members.iter().map(|member| &member.host[..]).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let mut text = format!("{} on {}: {engine}\n", plural(members.len(), "rank"), plural(hosts.len(), "machine"));
    let width = hosts.iter().map(|host| host.len()).max().unwrap_or(0).max(7);
    let _ = writeln!(text, "rank  {:width$}  process  processors  free memory", "machine");
    for (rank, member) in members.iter().enumerate() {
        let free = member.free_bytes.map_or_else(|| "?".into(), |bytes| format!("{:.1} GB", bytes as f64 * 1e-9));
        let _ = writeln!(
            text,
            "{rank:>4}  {:width$}  {:>7}  {:>10}  {free:>11}",
            member.host,
            member.process,
            member.processors.len()
        );
    }
    text
}

fn measured(comm: &dyn Comm, out: Option<&Path>) -> Result<ExitCode, Failure> {
    if comm.size() < 2 {
        return Err(Failure::input("two ranks at least exchange messages: `mpirun -n 2 hgnnc cluster measure`"));
    }
    if let Some(out) = out.filter(|_| comm.rank() == 0) {
        check_writable(out)?;
    }
    let times = measure(comm)?;
    if comm.rank() == 0 {
        print(&times_table(comm, &times))?;
        if let Some(out) = out {
            let text = format!(
                "# Measured by `hgnnc cluster measure`.\nengine = {:?}\nranks = {}\nlatency_s = {:e}\nbytes_per_s = {:e}\n",
                comm.engine(),
                comm.size(),
                times.latency_s(),
                times.bytes_per_s()
            );
            write_file(out, text.as_bytes())?;
        }
    }
    comm.barrier()?;
    Ok(ExitCode::SUCCESS)
}

fn times_table(comm: &dyn Comm, times: &Times) -> String {
    let mut text = format!("{} ranks: {}; medians on rank 0\n", comm.size(), comm.engine());
    let rate = |bytes: usize, seconds: f64| format!("{:>8.2} GB/s", bytes as f64 / seconds * 1e-9);
    let _ = writeln!(text, "a message of rank 0 to rank {}", comm.size() - 1);
    for &(bytes, seconds) in &times.one_way {
        let _ = writeln!(text, "{bytes:>12} B  {:>10.1} us  {}", seconds * 1e6, rate(bytes, seconds));
    }
    let _ = writeln!(text, "an exchange of all ranks with all, bytes for each");
    for &(bytes, seconds) in &times.exchange {
        let _ =
            writeln!(text, "{bytes:>12} B  {:>10.1} us  {}", seconds * 1e6, rate(bytes * (comm.size() - 1), seconds));
    }
    let _ = writeln!(text, "a sum in the order of the ranks, numbers of 4 bytes");
    for &(count, seconds) in &times.sum {
        let _ = writeln!(text, "{count:>12}    {:>10.1} us", seconds * 1e6);
    }
    let _ =
        writeln!(text, "latency {:.1} us, bandwidth {:.2} GB/s", times.latency_s() * 1e6, times.bytes_per_s() * 1e-9);
    text
}
