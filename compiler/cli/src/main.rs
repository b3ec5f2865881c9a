//! The `hgnnc` command: the only crate that touches files, the terminal and the environment.
//!
//! Exit codes: 0 done, 1 the input is wrong, 2 wrong usage, 3 the machine could not, 130 interrupted.

mod args;
mod bounds;
mod build;
mod check;
mod data;
mod device;
mod failure;
mod fused;
mod model;
mod output;
mod plan;
mod profile;
mod run;
mod source;
mod train;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};

/// Arrays of graphs and features are large, and most are written once.
#[global_allocator]
static MEMORY: hgnnc_graph::LargePages = hgnnc_graph::LargePages;

fn main() -> ExitCode {
    hgnnc_exec::proc::fail_writes_beyond_the_limit();
    let args = Args::parse();
    let outcome = match &args.command {
        Command::Check(args) => check::check(args),
        Command::Build(args) => build::build(args),
        Command::Train(args) => train::train(args),
        Command::Profile(args) => profile::profile(args),
        Command::Eval(args) => run::eval(args),
        Command::Infer(args) => run::infer(args),
        Command::Data(args) => data::data(args),
        Command::Explain { code } => check::explain(code),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
