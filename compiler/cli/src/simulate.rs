//! `hgnnc simulate`.

use std::fmt::Write as _;
use std::process::ExitCode;

use hgnnc::simulate::{RankRun, RunReport, Simulation, SimulationReport, simulate as simulated};
use hgnnc::{check_apart, check_writable, write_file};
use hgnnc_graph::show_bytes;

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
        weak: args.weak,
        steps: args.steps,
        network: args.network,
    };
    let job = job(&args.model, args.device.device, &args.disable, options(&args.device))?;
    let mut terminal = Terminal::default();
    let report = simulated(&job, &simulation, &mut terminal).map_err(|error| terminal.failed(error))?;
    if let Some(path) = &args.report {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::Machine(format!("cannot write the report: {error}")))?;
        write_file(path, format!("{text}\n").as_bytes())?;
    }
    print(&text(&report))?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each number of ranks, and for each variation of the last one.
fn text(report: &SimulationReport) -> String {
    let SimulationReport { network, threads, steps, runs, sensitivity, .. } = report;
    let mut text = format!(
        "simulated, not measured on several machines: {threads} thread{} a rank, {network}; {steps} step{}\n\
         computing is measured alone (medians), bytes are counted, the rest follows from the network\n\n\
         {:>5}  {:>7}  {:>10}  {:>8}  {:>10}  {:>22}  {:>9}  {:>12}  {:>12}  {:>10}\n",
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
        "{:>5}  {:>7}  {:>7.2} ms  {:>8.2}  {:>8.0} %  {:>22}  {:>6.2} ms  {:>12}  {:>12}  {:>7.2} ms\n",
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
    )
}
