//! Comparison of two profiles.

use std::collections::BTreeMap;

use crate::profile::{Profile, Rank};
use crate::summary::STAGES;
use crate::table::{Table, digits, percent, time};

/// An item of one or both profiles, with its time per run in milliseconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// Name of the stage, the remainder or the kernel.
    pub name: String,
    /// Milliseconds in the first profile; `None` if it lacks the item.
    pub before: Option<f64>,
    /// Milliseconds in the second profile; `None` if it lacks the item.
    pub after: Option<f64>,
}

impl Change {
    /// Milliseconds in the second profile minus those in the first; a missing item counts as 0.
    pub fn difference(&self) -> f64 {
        self.after.unwrap_or(0.0) - self.before.unwrap_or(0.0)
    }
}

/// Stages and the rest of a run, by descending absolute difference.
pub fn parts(before: &Profile, after: &Profile) -> Vec<Change> {
    let of = |profile: &Profile| -> Vec<(&'static str, f64)> {
        let stages = profile.stages().into_iter().map(|stage| (stage.stage, stage.ms()));
        stages.chain(profile.rest().into_iter().map(|part| (part.name, part.ms))).collect()
    };
    let (a, b) = (of(before), of(after));
    let mut names: Vec<&str> = STAGES.to_vec();
    for (name, _) in a.iter().chain(&b) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    let find = |all: &[(&str, f64)], name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, ms)| *ms);
    let change = |name: &&str| Change { name: (*name).into(), before: find(&a, name), after: find(&b, name) };
    sorted(names.iter().map(change).collect())
}

/// Kernels, matched by direction, rows and stored buffers, by descending absolute difference. Kernels equal in all
/// three are summed.
pub fn kernels(before: &Profile, after: &Profile) -> Vec<Change> {
    let mut changes: BTreeMap<String, Change> = BTreeMap::new();
    for (profile, is_after) in [(before, false), (after, true)] {
        for kernel in &profile.kernels {
            let name = format!("{} {} {} -> {}", kernel.stage, kernel.phase, kernel.rows, kernel.stores);
            let change = changes.entry(name.clone()).or_insert_with(|| Change { name, before: None, after: None });
            let ms = if is_after { &mut change.after } else { &mut change.before };
            *ms = Some(ms.unwrap_or(0.0) + kernel.measured_ms);
        }
    }
    sorted(changes.into_values().collect())
}

/// Times of each rank, of profiles with as many.
fn ranks(before: &Profile, after: &Profile) -> Vec<Change> {
    if before.ranks.len() != after.ranks.len() {
        return vec![];
    }
    let change = |name: String, before: f64, after: f64| Change { name, before: Some(before), after: Some(after) };
    let of_rank = |(a, b): (&Rank, &Rank)| {
        [
            change(format!("rank {}: computing", a.rank), a.computing_ms, b.computing_ms),
            change(format!("rank {}: other ranks", a.rank), a.waiting_ms, b.waiting_ms),
        ]
    };
    before.ranks.iter().zip(&after.ranks).flat_map(of_rank).collect()
}

fn sorted(mut changes: Vec<Change>) -> Vec<Change> {
    changes.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()).then(a.name.cmp(&b.name)));
    changes
}

/// The text of `hgnnc profile diff`.
pub fn text(before: &Profile, after: &Profile) -> String {
    let (a, b) = (before.run_ms, after.run_ms);
    let run = if before.run == after.run { before.run.name() } else { "run" };
    let mut text = format!(
        "{} -> {}: {} -> {} per {run} ({})\n",
        before.program,
        after.program,
        time(a * 1e-3),
        time(b * 1e-3),
        compared(a, b)
    );
    for (what, a, b) in unlike(before, after) {
        text.push_str(&format!("note: {what}: {a} -> {b}\n"));
    }
    text.push_str("\nstages, and what a run does besides\n");
    text.push_str(&table(&parts(before, after)));
    let ranks = ranks(before, after);
    if !ranks.is_empty() {
        text.push_str("\nranks\n");
        text.push_str(&table(&ranks));
    }
    text.push_str("\nkernels\n");
    text.push_str(&table(&kernels(before, after)));
    text
}

/// Settings in which the profiles differ, so that their times are not comparable.
fn unlike(before: &Profile, after: &Profile) -> Vec<(&'static str, String, String)> {
    let of = |profile: &Profile| {
        [
            ("dataset", profile.dataset.clone()),
            ("device", profile.device.clone()),
            ("processor or sheet", profile.machine.name.clone()),
            ("threads", profile.threads.to_string()),
            ("a run is", format!("one {}", profile.run.name())),
        ]
    };
    let pairs = of(before).into_iter().zip(of(after)).filter(|(a, b)| a.1 != b.1);
    pairs.map(|(a, b)| (a.0, a.1, b.1)).collect()
}

fn table(changes: &[Change]) -> String {
    let mut table = Table::new(1, &["", "before", "after", "difference", ""]);
    for change in changes {
        if (change.before.unwrap_or(0.0), change.after.unwrap_or(0.0)) == (0.0, 0.0) {
            continue;
        }
        let ms = |ms: Option<f64>| ms.map_or("-".into(), |ms| time(ms * 1e-3));
        let difference = change.difference();
        let sign = if difference < 0.0 { "-" } else { "+" };
        table.row(vec![
            change.name.clone(),
            ms(change.before),
            ms(change.after),
            format!("{sign}{}", time(difference.abs() * 1e-3)),
            match (change.before, change.after) {
                (Some(before), Some(after)) => compared(before, after),
                (None, _) => "new".into(),
                (_, None) => "gone".into(),
            },
        ]);
    }
    table.text()
}

/// `12.3 % slower` or `3.40× as long`.
fn compared(before: f64, after: f64) -> String {
    if before <= 0.0 {
        return String::new();
    }
    match after / before - 1.0 {
        more if more >= 1.0 => format!("{}× as long", digits(1.0 + more)),
        more if more >= 0.0005 => format!("{} slower", percent(more)),
        more if more <= -0.0005 => format!("{} faster", percent(-more)),
        _ => "the same".into(),
    }
}
