//! Timelines in Chrome's trace event format, which Perfetto opens.
//!
//! Tracks are threads of one process. Events of a track are complete events ("X") that are properly nested or disjoint.

use serde_json::{Value, json};

/// A timeline: events by track.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Name of the process.
    pub name: String,
    /// Tracks, from top to bottom.
    pub tracks: Vec<Track>,
}

/// A thread, or another sequential resource.
#[derive(Clone, PartialEq, Debug, Default)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Track {
    pub name: String,
    /// Ordered by start time; enclosing events come first.
    pub events: Vec<Event>,
}

/// An event with start and duration.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Event {
    pub name: String,
    /// Categories to filter by: stage, direction.
    pub categories: Vec<String>,
    /// Nanoseconds since the start of the trace.
    pub start_ns: u64,
    pub ns: u64,
    /// Additional details, shown by the viewer.
    pub args: Value,
}

/// The contents of `trace.json`, one event per line.
pub fn write(trace: &Trace) -> String {
    let meta =
        |tid: usize, what: &str, args: Value| json!({"ph": "M", "pid": 1, "tid": tid, "name": what, "args": args});
    let mut events = vec![meta(0, "process_name", json!({"name": trace.name}))];
    for (index, track) in trace.tracks.iter().enumerate() {
        let tid = index + 1;
        events.push(meta(tid, "thread_name", json!({"name": track.name})));
        events.push(meta(tid, "thread_sort_index", json!({"sort_index": tid})));
        events.extend(track.events.iter().map(|event| {
            json!({
                "ph": "X", "pid": 1, "tid": tid, "name": event.name, "cat": event.categories.join(","),
                // Microseconds, with the nanoseconds as decimals.
                "ts": event.start_ns as f64 / 1e3, "dur": event.ns as f64 / 1e3, "args": event.args,
            })
        }));
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}
