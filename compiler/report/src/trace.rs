//! When everything was, in the trace event format of Chrome, which Perfetto opens.
//!
//! Tracks are threads of one process. Events of a track are complete events ("X"): each lies within the one before it or
//! begins after its end.

use serde_json::{Value, json};

/// What was, by track.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace {
    /// Of what; the name of the process.
    pub name: String,
    /// Tracks from the top.
    pub tracks: Vec<Track>,
}

/// A thread, or something else that does one thing at a time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// In the order of their beginning; what contains others stands before them.
    pub events: Vec<Event>,
}

/// Something that was.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Categories to filter by: stage, direction.
    pub categories: Vec<String>,
    /// Nanoseconds from the beginning of the trace.
    pub start_ns: u64,
    /// How long it was.
    pub ns: u64,
    /// What else is known.
    pub args: Value,
}

/// The text of `trace.json`, an event on each line.
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
                // Microseconds, with the nanoseconds behind the point.
                "ts": event.start_ns as f64 / 1e3, "dur": event.ns as f64 / 1e3, "args": event.args,
            })
        }));
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}
