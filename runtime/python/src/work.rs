//! Long work on a thread of its own, while the calling thread keeps Python alive: it runs callbacks, and sees Ctrl-C.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hgnnc::{Error, Observer};
use hgnnc_diag::{Diagnostics, SourceMap, render};
use hgnnc_train::Epoch;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

use crate::errors::{exception, machine_error};

/// How often signals are looked at.
const POLL: Duration = Duration::from_millis(50);

/// Events that the thread reports. Python receives the kind and the fields.
enum Event<T> {
    Note(String),
    Warning(String),
    /// Epoch from 1, planned epochs, loss, criterion, whether it is the best, milliseconds, batches of an unfinished one.
    Epoch(EpochFields),
    Done(Result<T, Error>),
}

pub type EpochFields = (u64, u64, f64, Option<(String, f64)>, bool, f64, Option<(u64, u64)>);

/// The end of the thread that reports.
pub struct Reporter<T> {
    events: Sender<Event<T>>,
    /// An entry for each epoch that the calling thread is done with.
    seen: Mutex<Receiver<()>>,
    stop: Arc<AtomicBool>,
    /// All epochs that are done.
    history: Mutex<Vec<EpochFields>>,
}

impl<T> Reporter<T> {
    /// Set when the work should end.
    pub fn stop(&self) -> &AtomicBool {
        &self.stop
    }

    /// The epochs that were reported.
    pub fn history(&self) -> Vec<EpochFields> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports an epoch, and waits until the calling thread is done with it.
    pub fn epoch(&self, epoch: &Epoch<'_>) {
        if let Some(warning) = epoch.warning {
            let _ = self.events.send(Event::Warning(warning.to_owned()));
        }
        let criterion = epoch.criterion.map(|(name, value)| (name.to_owned(), value));
        let fields = (epoch.epoch + 1, epoch.epochs, epoch.loss, criterion, epoch.best, epoch.ms, epoch.within);
        if epoch.within.is_none() {
            self.history.lock().unwrap_or_else(PoisonError::into_inner).push(fields.clone());
        }
        // The calling thread may have given up.
        if self.events.send(Event::Epoch(fields)).is_ok() {
            let _ = self.seen.lock().unwrap_or_else(PoisonError::into_inner).recv();
        }
    }
}

impl<T> Observer for Reporter<T> {
    fn note(&mut self, line: String) {
        let event = match line.strip_prefix("warning: ") {
            Some(warning) => Event::Warning(warning.to_owned()),
            None => Event::Note(line),
        };
        let _ = self.events.send(event);
    }

    fn warnings(&mut self, sources: &SourceMap, found: &Diagnostics) {
        let text = render::plain(sources, found.iter());
        if !text.is_empty() {
            let _ = self.events.send(Event::Warning(text.trim_end().to_owned()));
        }
    }
}

/// Effect of Ctrl-C on running work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// The first one asks the work to end, and its result is returned; the second one gives it up.
    Stops,
    /// The work is given up at once.
    Abandons,
}

/// A result, and whether Ctrl-C ended the work.
pub struct Worked<T> {
    pub value: T,
    pub interrupted: bool,
}

/// Does `work` on another thread. `handler(kind, payload)` hears of notes, warnings and epochs on the calling thread; for
/// an epoch, `False` asks the work to end, and so does an exception, which is raised when the work has ended.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    handler: &Bound<'_, PyAny>,
    interrupt: Interrupt,
    work: impl FnOnce(&mut Reporter<T>) -> Result<T, Error> + Send + 'static,
) -> PyResult<Worked<T>> {
    let (events, received) = channel();
    let (saw, seen) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let mut reporter = Reporter { events, seen: Mutex::new(seen), stop: Arc::clone(&stop), history: Mutex::default() };
    let thread = move || {
        let result = work(&mut reporter);
        let _ = reporter.events.send(Event::Done(result));
    };
    std::thread::Builder::new()
        .name("hgnnc".into())
        .stack_size(16 << 20)
        .spawn(thread)
        .map_err(|error| machine_error(py, format!("cannot start a thread: {error}")))?;

    // A receiver cannot be shared between threads; this one is only passed through `detach`.
    let received = Mutex::new(received);
    let (mut interrupted, mut failure) = (false, None);
    let result = loop {
        // The work ends before what a callback raised is raised again; Ctrl-C may come within one.
        let mut hear = |answer: PyResult<()>| {
            if let Err(error) = answer {
                if interrupt == Interrupt::Stops && error.is_instance_of::<PyKeyboardInterrupt>(py) {
                    interrupted = true;
                } else {
                    failure.get_or_insert(error);
                }
                stop.store(true, Ordering::Relaxed);
            }
        };
        let event = py.detach(|| received.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(POLL));
        match event {
            Ok(Event::Done(result)) => break result,
            Ok(Event::Note(line)) => hear(handler.call1(("note", line)).map(drop)),
            // A warning may be an exception, by the filters of `warnings`.
            Ok(Event::Warning(text)) => hear(handler.call1(("warning", text)).map(drop)),
            Ok(Event::Epoch(fields)) => {
                let answer = handler.call1(("epoch", fields)).and_then(|answer| answer.extract::<Option<bool>>());
                if let Ok(Some(false)) = answer {
                    stop.store(true, Ordering::Relaxed);
                }
                hear(answer.map(drop));
                let _ = saw.send(());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(machine_error(py, "internal error: a thread of hgnnc panicked; see standard error".into()));
            }
        }
        if let Err(error) = py.check_signals() {
            let is_first = !interrupted && interrupt == Interrupt::Stops;
            if !is_first || !error.is_instance_of::<PyKeyboardInterrupt>(py) {
                stop.store(true, Ordering::Relaxed);
                return Err(error);
            }
            interrupted = true;
            stop.store(true, Ordering::Relaxed);
        }
    };
    if let Some(error) = failure {
        return Err(error);
    }
    let value = result.map_err(|error| exception(py, &error))?;
    Ok(Worked { value, interrupted })
}
