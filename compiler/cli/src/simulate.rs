//! `hgnnc simulate`.

use std::fmt::{Display, Write as _};
use std::process::{Command, ExitCode, Stdio};

use hgnnc::simulate::{RankRun, RunReport, Simulation, SimulationReport, simulate as simulated};
use hgnnc::{Error, check_apart, check_writable, write_file};
use hgnnc_dist::network::Network;
use hgnnc_dist::simgrid::{self, Request, SimgridError};
use hgnnc_dist::trace::{RankTimes, Trace};
use hgnnc_graph::show_bytes;

use crate::args::DatasetPart;
use crate::failure::Failure;
use crate::output::print;
use crate::run::{job, options};
use crate::simulate_args::SimulateArgs;
use crate::source::Terminal;

/// Trains on virtual ranks for some steps, and prints the times that they would take on a network.
pub fn simulate(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.report {
        check_writable(path)?;
    }
    let read = [("the model", Some(&*args.model.model))];
    check_apart(&[("the report", args.report.as_deref())], &read, args.model.data.as_deref())?;
    let simulation = Simulation {
        ranks: args.ranks.iter().map(|&ranks| ranks as usize).collect(),
        split: args.share.into(),
        distribute: DatasetPart::all(&args.distribute),
        weak: args.weak,
        steps: args.steps,
        network: args.network,
    };
    let job = job(&args.model, args.device.device, &args.disable, options(&args.device))?;
    let mut terminal = Terminal::default();
    let on_simgrid = |traces: &[Trace]| on_simgrid(traces, args.network);
    let report = simulated(&job, &simulation, Some(&on_simgrid), &mut terminal);
    let report = report.map_err(|error| terminal.failed(error))?;
    if let Some(path) = &args.report {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::Machine(format!("cannot write the report: {error}")))?;
        write_file(path, format!("{text}\n").as_bytes())?;
    }
    print(&text(&report))?;
    Ok(ExitCode::SUCCESS)
}

/// The times of traces on SimGrid's network, which simulates once in a process: by one of its own. `None` without SimGrid.
fn on_simgrid(traces: &[Trace], network: Network) -> Result<Option<Vec<RankTimes>>, Error> {
    let failed = |error: &dyn Display| Error::Machine(format!("SimGrid failed: {error}"));
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.arg(ON_SIMGRID).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let request = Request { traces: traces.to_vec(), network };
    if let Some(mut stdin) = child.stdin.take() {
        // A process that ends early says why.
        let _ = serde_json::to_writer(&mut stdin, &request);
    }
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    if output.status.code() == Some(NOT_INSTALLED.into()) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(failed(&format!("{}\n{}", output.status, text.trim())));
    }
    serde_json::from_slice(&output.stdout).map(Some).map_err(|error| failed(&error))
}

/// The command of the process that simulates a network.
pub const ON_SIMGRID: &str = "simulate-network";
/// Exit code without SimGrid.
const NOT_INSTALLED: u8 = 3;

/// Reads traces of ranks from the standard input, and writes their times on SimGrid's network.
pub fn simulate_network() -> Result<ExitCode, Failure> {
    let request: Request = serde_json::from_reader(std::io::stdin().lock())
        .map_err(|error| Failure::input(format!("the standard input has no traces: {error}")))?;
    let folder = tempfile::tempdir().map_err(|error| Failure::Machine(format!("no temporary folder: {error}")))?;
    match simgrid::simulate(request, folder.path()) {
        Ok(times) => {
            print(&serde_json::to_string(&times).map_err(|error| Failure::Machine(error.to_string()))?)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(SimgridError::NotFound(_)) => Ok(ExitCode::from(NOT_INSTALLED)),
        Err(error) => Err(Failure::Machine(error.to_string())),
    }
}

/// A line for each number of ranks, and for each variation of the last one.
fn text(report: &SimulationReport) -> String {
    let SimulationReport { network, threads, steps, runs, sensitivity, .. } = report;
    let in_turns: Vec<String> = runs.iter().filter(|run| !run.alone).map(|run| run.ranks.to_string()).collect();
    let measured = match &in_turns[..] {
        [] => "alone".to_owned(),
        ranks => format!("alone, of {} ranks while others take their turns", ranks.join(", ")),
    };
    let mut text = format!(
        "simulated, not measured on several machines: {threads} thread{} a rank, {network}; {steps} step{}\n\
         computing is measured {measured} (medians), bytes are counted, the rest follows from the network\n\n\
         {:>5}  {:>7}  {:>10}  {:>8}  {:>10}  {:>22}  {:>9}  {:>12}  {:>12}  {:>10}  {:>11}\n",
        if *threads == 1 { "" } else { "s" },
        if *steps == 1 { "" } else { "s" },
        "ranks",
        "seeds",
        "step",
        "speed-up",
        "efficiency",
        "computing, mean to most",
        "waiting",
        "sent in all",
        "most a rank",
        "mean step",
        "by SimGrid",
    );
    runs.iter().for_each(|run| text += &line(run));
    if let Some(last) = runs.last() {
        let _ = writeln!(text, "\nsimulated step of {} ranks: {:.2} ms; with", last.ranks, last.step_ms);
        for of in sensitivity {
            let _ = writeln!(text, "  {:<26}{:>10.2} ms", of.what, of.step_ms);
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn line(run: &RunReport) -> String {
    let most = |of: &dyn Fn(&RankRun) -> f64| run.of_ranks.iter().map(of).fold(0.0, f64::max);
    let mean = |of: &dyn Fn(&RankRun) -> f64| run.of_ranks.iter().map(of).sum::<f64>() / run.ranks as f64;
    let compute: &dyn Fn(&RankRun) -> f64 = &|rank| rank.compute_ms;
    format!(
        "{:>5}  {:>7}  {:>7.2} ms  {:>8.2}  {:>8.0} %  {:>22}  {:>6.2} ms  {:>12}  {:>12}  {:>7.2} ms  {:>11}\n",
        run.ranks,
        run.seeds,
        run.step_ms,
        run.speed_up,
        100.0 * run.efficiency,
        format!("{:.2} to {:.2} ms", mean(compute), most(compute)),
        mean(&|rank| rank.wait_ms),
        show_bytes(run.sent_bytes as u64),
        show_bytes(most(&|rank| rank.sent_bytes) as u64),
        run.mean_step_ms,
        run.other_step_ms.map_or_else(|| "-".into(), |ms| format!("{ms:.2} ms")),
    )
}
