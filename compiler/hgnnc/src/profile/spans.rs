//! Spans of a run as trace tracks: the training thread, each engine thread, and the loader thread.

use std::time::Instant;

use hgnnc_loader::BatchSpan;
use hgnnc_profile::Timeline;
use hgnnc_report::trace::{Event, Trace, Track};
use hgnnc_report::{Kernel, Profile};
use serde_json::{Value, json};

/// The trace of one run, or of some batches.
pub fn trace(profile: &Profile, timeline: &Timeline) -> Trace {
    let writer = Writer { profile, timeline, origin: origin(timeline) };
    let mut tracks = vec![Track { name: "training".into(), events: writer.training() }];
    let tasks = timeline.tasks.iter().enumerate();
    tracks.extend(tasks.map(|(thread, _)| Track { name: format!("thread {thread}"), events: writer.thread(thread) }));
    let making = writer.making();
    if !making.is_empty() {
        tracks.push(Track { name: "making batches".into(), events: making });
    }
    Trace { name: format!("{} on {}", profile.program, profile.device), tracks }
}

/// Start of the earliest span.
fn origin(timeline: &Timeline) -> Option<Instant> {
    let launches = timeline.launches.iter().map(|span| span.start);
    let batches = timeline.batches.iter().map(|span| span.start);
    launches.chain(batches).chain(timeline.epochs.iter().map(|epoch| epoch.0)).min()
}

struct Writer<'p> {
    profile: &'p Profile,
    timeline: &'p Timeline,
    origin: Option<Instant>,
}

impl Writer<'_> {
    fn event(&self, name: String, categories: &[&str], (start, end): (Instant, Instant), args: Value) -> Event {
        let nanos =
            |at: Instant| self.origin.map_or(0, |origin| at.saturating_duration_since(origin).as_nanos() as u64);
        Event {
            name,
            categories: categories.iter().map(|word| (*word).to_string()).collect(),
            start_ns: nanos(start),
            ns: nanos(end).saturating_sub(nanos(start)),
            args,
        }
    }

    /// The kernel of a program step.
    fn kernel(&self, step: usize) -> Option<&Kernel> {
        let number = self.timeline.kernels.get(step).copied().flatten()?;
        self.profile.kernels.iter().find(|kernel| kernel.kernel == number)
    }

    /// Epochs or batches, with their parts and launches nested.
    fn training(&self) -> Vec<Event> {
        let epochs = self.timeline.epochs.iter();
        let mut events: Vec<Event> =
            epochs.map(|&span| self.event("epoch".into(), &["epoch"], span, json!({}))).collect();
        let parts: Vec<&BatchSpan> = self.timeline.batches.iter().filter(|span| !span.part.is_beside()).collect();
        for own in parts.chunk_by(|a, b| a.batch == b.batch) {
            let span = (own[0].start, own[own.len() - 1].end);
            events.push(self.event(format!("batch {}", own[0].batch), &["batch"], span, json!({})));
            let part = |span: &&BatchSpan| {
                self.event(span.part.name().into(), &["batch"], (span.start, span.end), json!({"batch": span.batch}))
            };
            events.extend(own.iter().map(part));
        }
        for launch in &self.timeline.launches {
            let steps = launch.first..launch.first + launch.steps;
            let kernels: Vec<&Kernel> = steps.filter_map(|step| self.kernel(step)).collect();
            let span = (launch.start, launch.end);
            if kernels.is_empty() {
                events.push(self.event("copy".into(), &["copy"], span, json!({})));
                continue;
            }
            let mut words: Vec<&str> = kernels.iter().flat_map(|kernel| [&kernel.stage[..], &kernel.phase]).collect();
            words.sort_unstable();
            words.dedup();
            let args = json!({"kernels": kernels.iter().map(|kernel| args(kernel)).collect::<Vec<_>>()});
            events.push(self.event(name_of(&kernels), &words, span, args));
        }
        // Enclosing events come first.
        events.sort_by_key(|event| (event.start_ns, std::cmp::Reverse(event.ns)));
        events
    }

    fn thread(&self, thread: usize) -> Vec<Event> {
        let tasks = self.timeline.tasks[thread].iter().map(|span| {
            let at = (span.start, span.end);
            match self.kernel(span.step) {
                Some(kernel) => self.event(
                    format!("{} {}", kernel.name(), kernel.stage),
                    &[&kernel.stage, &kernel.phase],
                    at,
                    json!({"rows": kernel.rows, "stores": kernel.stores, "tasks": span.tasks}),
                ),
                None => self.event("copy".into(), &["copy"], at, json!({"tasks": span.tasks})),
            }
        });
        tasks.collect()
    }

    /// Loader work for later batches.
    fn making(&self) -> Vec<Event> {
        let beside = self.timeline.batches.iter().filter(|span| span.part.is_beside());
        let mut events: Vec<Event> = beside
            .map(|span| {
                let args = json!({"batch": span.batch});
                self.event(format!("{} {}", span.part.name(), span.batch), &["batch"], (span.start, span.end), args)
            })
            .collect();
        events.sort_by_key(|event| event.start_ns);
        events
    }
}

/// Names of the kernels of a launch, and the stage of the slowest.
fn name_of(kernels: &[&Kernel]) -> String {
    let longest = kernels.iter().max_by(|a, b| a.measured_ms.total_cmp(&b.measured_ms));
    let stage = longest.map_or("", |kernel| &kernel.stage);
    match kernels {
        [first, .., last] if kernels.len() > 3 => format!("{} … {} {stage}", first.name(), last.name()),
        _ => format!("{} {stage}", kernels.iter().map(|kernel| kernel.name()).collect::<Vec<_>>().join(" + ")),
    }
}

/// Details of a kernel for the viewer.
fn args(kernel: &Kernel) -> Value {
    json!({
        "kernel": kernel.name(), "rows": kernel.rows, "stores": kernel.stores, "stage": kernel.stage,
        "direction": kernel.phase, "kind": kernel.kind, "bound": kernel.bound, "measured_ms": kernel.measured_ms,
        "predicted_ms": kernel.predicted_ms, "flops": kernel.flops, "bytes": kernel.moved_bytes,
    })
}

/// The trace of a device: launches in sequence, each with its own duration.
pub fn of_device(profile: &Profile) -> Trace {
    let (mut at, mut events) = (0, vec![]);
    for kernel in &profile.kernels {
        let ns = (kernel.measured_ms * 1e6) as u64;
        events.push(Event {
            name: format!("{} {}", kernel.rows, kernel.stage),
            categories: vec![kernel.stage.clone(), kernel.phase.clone()],
            start_ns: at,
            ns,
            args: args(kernel),
        });
        at += ns;
    }
    let name = format!("{} on {}, launch by launch", profile.program, profile.device);
    Trace { name, tracks: vec![Track { name: "launches".into(), events }] }
}
