//! The `hgnnc` command: parses arguments, calls the library `hgnnc`, and is the only crate that prints.
//!
//! Exit codes: 0 done, 1 the input is wrong, 2 wrong usage, 3 the machine could not, 130 interrupted.

#![forbid(unsafe_code)]

mod args;
mod bounds;
mod build;
mod build_ranks;
mod check;
mod cluster;
mod data;
mod data_args;
mod failure;
mod fmt;
mod fused;
mod model;
mod output;
mod partition;
mod plan;
mod profile;
mod profile_args;
mod progress;
mod run;
mod serve;
mod simulate;
mod simulate_args;
mod simulate_cache;
mod source;
mod split;
mod sweep;
mod sweep_args;
mod switches;
mod train;

use std::borrow::Cow;
use std::process::ExitCode;

use clap::FromArgMatches;
use hgnnc_diag::terminal::escaped;

use args::{Args, Command};

/// Large graph and feature arrays profit from huge pages, since most are written once.
#[global_allocator]
static MEMORY: hgnnc_graph::LargePages = hgnnc_graph::LargePages;

fn main() -> ExitCode {
    let code = run();
    debug_assert!(global_pool_is_idle(), "a parallel loop ran outside the thread pool of the command");
    code
}

/// Whether nothing has started rayon's global thread pool, which any parallel loop outside `ThreadPool::install` does.
/// It would have a thread per processor, whatever `--threads` says, and neither pins them nor flushes subnormal numbers.
fn global_pool_is_idle() -> bool {
    // Fails if there is a global pool. This one needs no new thread.
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().is_ok()
}

fn run() -> ExitCode {
    hgnnc_trace::os::fail_writes_beyond_the_limit();
    let matches = args::command().try_get_matches();
    let args = match matches.and_then(|matches| Args::from_arg_matches(&matches)) {
        Ok(args) => args,
        Err(error) => return wrong_usage(&error),
    };
    let outcome = cluster::refuse_ranks(&args.command).and_then(|()| outcome(&args.command));
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            cluster::let_pass_on();
            failure.exit_code()
        }
    }
}

fn outcome(command: &Command) -> Result<ExitCode, failure::Failure> {
    match command {
        Command::Check(args) => check::check(args),
        Command::Build(args) => build::build(args),
        Command::Train(args) => train::train(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Profile(args) => profile::profile(args),
        Command::Eval(args) => run::eval(args),
        Command::Infer(args) => run::infer(args),
        Command::SimulateNetwork => simulate::simulate_network(),
        Command::Simulate(args) => simulate::simulate(args),
        Command::SimulateCache(args) => simulate_cache::simulate_cache(args),
        Command::Data(args) => data::data(args),
        Command::Cluster { command } => cluster::cluster(command),
        Command::Fmt(args) => fmt::fmt(args),
        Command::Explain { code } => check::explain(code.as_deref()),
    }
}

/// Prints usage errors and help. Arguments may contain file names from untrusted sources: if one has terminal escape
/// sequences, the message is printed without any.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    if std::env::args_os().all(|arg| matches!(escaped(&arg.to_string_lossy()), Cow::Borrowed(_))) {
        if !error.use_stderr() {
            error.exit();
        }
        // As `exit` does: there is nobody left to tell that nothing could be printed.
        let _ = error.print();
    } else {
        output::note(error.render().to_string().trim_end());
    }
    cluster::let_pass_on();
    ExitCode::from(2)
}
