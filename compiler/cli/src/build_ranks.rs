//! `hgnnc build --ranks`: plans of training by several processes.

use std::process::ExitCode;

use hgnnc::rank_plan::{Candidate, Candidates, GraphPlace, PlanRequest, RankPlan, Shared, plan_ranks};
use hgnnc::{Device, Job, check_apart, check_writable, processor};
use hgnnc_report::table::{Table, amount, bytes, time};

use crate::args::{BuildArgs, DatasetPart, Level};
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
    let BuildArgs { network, batches, .. } = *args;
    let distribute = DatasetPart::all(&args.distribute);
    let request = PlanRequest { ranks, network, machine, batches, distribute };
    let found = plan_ranks(&job, &request, &mut terminal).map_err(|error| terminal.failed(error))?;
    let Some(Candidate::Planned(plan)) = found.all.first() else {
        let Some(Candidate::Refused(_, why)) = found.all.first() else { return Err(Failure::Input(None)) };
        return Err(Failure::input(why.clone()));
    };
    print(&format!("{ranks} processes on {network}: times are predicted, bytes are counted"))?;
    print(&candidates(&found))?;
    if args.explain && !found.fewer.is_empty() {
        print(&fewer(&found))?;
    }
    print(&places(plan, args.explain))?;
    print(&messages(plan, args.explain))?;
    if let Some(faster) = found.faster() {
        let who = match faster.ranks {
            1 => "one process is".to_owned(),
            ranks => format!("{ranks} processes, divided by {}, are", faster.divided_by()),
        };
        let step = |plan: &RankPlan| time(1e-3 * plan.predicted.step_ms);
        note(&format!("note: {who} predicted to be faster: {} a step, not {}", step(faster), step(plan)));
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
                table.row([&[plan.divided_by()][..], &figures(plan, found.one_rank_ms)].concat());
            }
            Candidate::Refused(share, why) => refused += &format!("not divided by {}: {why}\n", share.name()),
        }
    }
    let one = format!("one process: {} a step\n", time(1e-3 * found.one_rank_ms));
    let text = table.text() + &one + &refused;
    text.trim_end().to_owned()
}

/// Plans for fewer processes, the fastest first.
fn fewer(found: &Candidates) -> String {
    let heads = ["processes", "divided", "step", "computing", "sent by all", "most by one", "than one process"];
    let mut table = Table::new(2, &heads);
    for plan in &found.fewer {
        let names = [plan.ranks.to_string(), plan.divided_by()];
        table.row([&names[..], &figures(plan, found.one_rank_ms)].concat());
    }
    format!("\nfewer processes\n{}", table.text().trim_end())
}

/// Times and bytes of a step.
fn figures(plan: &RankPlan, one_rank_ms: f64) -> Vec<String> {
    let predicted = &plan.predicted;
    let of_step = |sent: u64| bytes(sent as f64 / predicted.steps.max(1) as f64);
    vec![
        time(1e-3 * predicted.step_ms),
        time(1e-3 * predicted.compute_ms),
        of_step(sum(&predicted.sent_bytes)),
        of_step(most(&predicted.sent_bytes)),
        format!("{:.2} times as fast", one_rank_ms / predicted.step_ms),
    ]
}

/// Where semantic graphs and rows of tables are.
fn places(plan: &RankPlan, all: bool) -> String {
    let mut text = format!("\ndivided by {}", plan.divided_by());
    text += match plan.share {
        Shared::Vertices => ": each process has the edges of its own vertices",
        Shared::Seeds if plan.distribute.edges => {
            ": each process samples around its own seeds, has the in-edges of its own vertices, and draws these for all"
        }
        Shared::Seeds => ": each process samples around its own seeds, and has the in-edges of all vertices",
        Shared::Relations => ": each process samples from the edges of its own relations to the seeds on",
        Shared::Grid => {
            ": replicas of as many processes have seeds of their own, and their processes relations to these"
        }
    };
    text += match (plan.share, plan.distribute.edges) {
        (Shared::Relations | Shared::Grid, true) => {
            "; each has the in-edges of its own vertices, and draws these for all"
        }
        (Shared::Relations | Shared::Grid, false) => "; each has all in-edges",
        (Shared::Vertices | Shared::Seeds, _) => "",
    };
    let steps = plan.predicted.steps.max(1) as f64;
    text += &match (plan.share, plan.predicted.steps) {
        (Shared::Vertices, _) => "\n\nedges of a process".to_owned(),
        (_, steps) => format!("\n\nsampled edges of a process, means of {steps} mini-batches"),
    };
    let spread = |edges: &[u64]| {
        let least = edges.iter().copied().min().unwrap_or(0);
        let cell = |number: f64| if number == 0.0 { "0".to_owned() } else { amount(number / steps) };
        let mean = sum(edges) as f64 / edges.len().max(1) as f64;
        vec![cell(least as f64), cell(mean), cell(most(edges) as f64)]
    };
    let by_relation = plan.share.split().shares_relations();
    let (shown, more) = largest(&plan.graphs, |graph: &GraphPlace| sum(&graph.edges), all || by_relation);
    let mut table = match by_relation {
        true => Table::new(2, &["semantic graph", "aggregated by", "to the seeds", "least", "mean", "most"]),
        false => Table::new(1, &["semantic graph", "least", "mean", "most"]),
    };
    for graph in shown {
        let mut cells = vec![graph.graph.clone()];
        if by_relation {
            let rank = plan.relations.get(&graph.graph);
            cells.push(rank.map_or("-".into(), |rank| {
                let of = if plan.replicas > 1 { " of each replica" } else { "" };
                format!("rank {rank}{of}")
            }));
            cells.push(rank.map_or("-".into(), |_| amount(sum(&graph.to_seeds) as f64 / steps)));
        }
        table.row([cells, spread(&graph.edges)].concat());
        if !graph.out_edges.is_empty() {
            table.row([vec![format!("{}, out-edges", graph.graph)], spread(&graph.out_edges)].concat());
        }
    }
    text += &format!("\n{}{more}", table.text().trim_end());
    if !plan.tables.is_empty() {
        let (shown, more) = largest(&plan.tables, |of| of.rows.last().map_or(0, |rows| rows[1] * of.width) as u64, all);
        let mut table = Table::new(2, &["learned rows", "of", "numbers a row", "rows", "owned by a process"]);
        for of in shown {
            let rows = of.rows.last().map_or(0, |rows| rows[1]);
            let owned = |[start, end]: &[usize; 2]| end - start;
            let (least, most) = (of.rows.iter().map(owned).min(), of.rows.iter().map(owned).max());
            let owned = match (least.unwrap_or(0), most.unwrap_or(0)) {
                (least, most) if least == most => least.to_string(),
                (least, most) => format!("{least} to {most}"),
            };
            table.row(vec![of.table.clone(), of.vertex.clone(), of.width.to_string(), rows.to_string(), owned]);
        }
        text += &format!("\n\ntables, by ranges of rows\n{}{more}", table.text().trim_end());
        if all {
            for of in &plan.tables {
                let range = |(rank, [start, end]): (usize, &[usize; 2])| format!("rank {rank} {start}..{end}");
                let ranges: Vec<String> = of.rows.iter().enumerate().map(range).collect();
                text += &format!("\n  {}: {}", of.table, ranges.join(", "));
            }
        }
    }
    text
}

/// Most rows of a table that are shown without `--explain`.
const MOST: usize = 8;

/// The largest of many, or all, in their order; and a line about those that are left out.
fn largest<T>(of: &[T], size: impl Fn(&T) -> u64, all: bool) -> (Vec<&T>, String) {
    let mut shown: Vec<&T> = of.iter().filter(|one| size(one) > 0).collect();
    let more = shown.len().saturating_sub(MOST);
    if more == 0 || all {
        return (shown, String::new());
    }
    shown.sort_by_key(|one| std::cmp::Reverse(size(one)));
    shown.truncate(MOST);
    (shown, format!("\nand {more} smaller ones (`--explain` shows all)"))
}

/// The messages of a step of a plan, with the bytes of all processes.
fn messages(plan: &RankPlan, all: bool) -> String {
    let predicted = &plan.predicted;
    let steps = predicted.steps.max(1) as f64;
    let text = match predicted.steps {
        1 => "\nmessages of a step".to_owned(),
        steps => format!("\nmessages of a step, means of {steps} mini-batches"),
    };
    let (shown, more) = largest(&predicted.messages, |message| sum(&message.sent_bytes), all);
    let mut table = Table::new(1, &["message", "sent by all", "most by one"]);
    for message in shown {
        let cell = |sent: u64| bytes(sent as f64 / steps);
        table.row(vec![message.what.clone(), cell(sum(&message.sent_bytes)), cell(most(&message.sent_bytes))]);
    }
    format!("{text}\n{}{more}", table.text().trim_end())
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().sum()
}

fn most(numbers: &[u64]) -> u64 {
    numbers.iter().copied().max().unwrap_or(0)
}
