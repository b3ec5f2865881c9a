//! `hgnnc build --ranks`: plans of training by several processes.

use std::process::ExitCode;

use hgnnc::rank_plan::{Candidate, Candidates, PlanRequest, RankPlan, plan_ranks};
use hgnnc::{Device, Job, check_apart, check_writable, processor};
use hgnnc_report::table::{Table, bytes, time};

use crate::args::{BuildArgs, Level};
use crate::failure::Failure;
use crate::output::{note, print};
use crate::source::Terminal;
use crate::switches::Switches;

/// Plans training by several processes, and shows the plan that is predicted to be the fastest.
pub fn build_ranks(args: &BuildArgs, ranks: usize) -> Result<ExitCode, Failure> {
    if args.emit.iter().any(|&level| level != Level::Plan) {
        return Err(Failure::input("of several processes there is the level `plan`"));
    }
    if let Some(out) = &args.out {
        if out.extension().is_none_or(|ending| ending != "json") {
            return Err(Failure::input("the plan of several processes is a file: `-o PLAN.json`"));
        }
        check_writable(out)?;
        check_apart(&[("the plan", Some(out))], &[("the model", Some(&args.model))], args.data.as_deref())?;
    }
    let Switches { disabled, .. } = args.disable.check()?;
    let job = Job {
        data: args.data.clone().into(),
        constants: args.set.constants.clone(),
        device: Device::Cpu,
        disabled,
        ..Job::new(&args.model)
    };
    let mut terminal = Terminal::default();
    let machine = processor(0, &mut terminal);
    let request = PlanRequest { ranks, network: args.network, machine, batches: args.batches };
    let found = plan_ranks(&job, &request, &mut terminal).map_err(|error| terminal.failed(error))?;
    let Some(Candidate::Planned(plan)) = found.all.first() else {
        let Some(Candidate::Refused(_, why)) = found.all.first() else { return Err(Failure::Input(None)) };
        return Err(Failure::input(why.clone()));
    };
    let network = args.network;
    print(&format!("{ranks} processes on {network}: times are predicted, bytes are counted"))?;
    print(&candidates(&found))?;
    print(&messages(plan, args.explain))?;
    if plan.predicted.step_ms > found.one_rank_ms && ranks > 1 {
        note("note: one process is predicted to be faster");
    }
    if let Some(out) = &args.out {
        plan.write(out)?;
        print(&format!("wrote {}: `hgnnc train --plan` follows it", out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All ways to divide the work, the chosen one first.
fn candidates(found: &Candidates) -> String {
    let mut table = Table::new(1, &["divided", "step", "computing", "sent by all", "most by one", "than one process"]);
    let mut refused = String::new();
    for candidate in &found.all {
        match candidate {
            Candidate::Planned(plan) => {
                let predicted = &plan.predicted;
                let of_step = |sent: u64| bytes(sent as f64 / predicted.steps.max(1) as f64);
                table.row(vec![
                    plan.share.name().into(),
                    time(1e-3 * predicted.step_ms),
                    time(1e-3 * predicted.compute_ms),
                    of_step(predicted.sent_bytes.iter().sum()),
                    of_step(predicted.sent_bytes.iter().copied().max().unwrap_or(0)),
                    format!("{:.2} times as fast", found.one_rank_ms / predicted.step_ms),
                ]);
            }
            Candidate::Refused(share, why) => refused += &format!("not divided by {}: {why}\n", share.name()),
        }
    }
    let one = format!("one process: {} a step\n", time(1e-3 * found.one_rank_ms));
    let text = table.text() + &one + &refused;
    text.trim_end().to_owned()
}

/// Most messages that are shown without `--explain`.
const MOST: usize = 8;

/// The messages of a step of a plan, with the bytes of all processes.
fn messages(plan: &RankPlan, all: bool) -> String {
    let predicted = &plan.predicted;
    let steps = predicted.steps.max(1) as f64;
    let mut text = format!("divided by {}", plan.share.name());
    if !plan.relations.is_empty() {
        for rank in 0..plan.ranks {
            let own = plan.relations.iter().filter(|&(_, &of)| of == rank).map(|(name, _)| &name[..]);
            text += &format!("\n  rank {rank} aggregates {}", own.collect::<Vec<_>>().join(", "));
        }
    }
    text += &match predicted.steps {
        1 => "\n\nmessages of a step".to_owned(),
        steps => format!("\n\nmessages of a step, means of {steps} mini-batches"),
    };
    let mut largest: Vec<_> = predicted.messages.iter().filter(|message| sum(&message.sent_bytes) > 0).collect();
    let more = largest.len().saturating_sub(MOST);
    if more > 0 && !all {
        largest.sort_by_key(|message| std::cmp::Reverse(sum(&message.sent_bytes)));
        largest.truncate(MOST);
    }
    let mut table = Table::new(1, &["message", "sent by all", "most by one"]);
    for message in &largest {
        let most = message.sent_bytes.iter().copied().max().unwrap_or(0);
        let cell = |sent: u64| bytes(sent as f64 / steps);
        table.row(vec![message.what.clone(), cell(sum(&message.sent_bytes)), cell(most)]);
    }
    text.push('\n');
    text += table.text().trim_end();
    if more > 0 && !all {
        text += &format!("\nand {more} smaller ones (`--explain` shows all)");
    }
    text
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().sum()
}
