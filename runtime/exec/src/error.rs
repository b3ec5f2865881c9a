//! What can go wrong at run time, in the user's words.

use std::path::PathBuf;

use hgnnc_graph::{DataErrors, show_bytes};
use hgnnc_ir::Origin;

/// Where a number that is not finite comes from.
#[derive(Clone, PartialEq, Debug)]
pub struct Cause {
    /// The operation, the vertex or edge, and its numbers.
    pub text: String,
    /// Usual remedies, where the numbers tell; else empty.
    pub advice: &'static str,
    /// The place in the model.
    pub origin: Option<Origin>,
}

/// Remedies for numbers that have grown too large.
pub(crate) const ADVICE: &str = "A smaller learning rate, normalised features or gradient clipping usually helps";

/// An error of planning, running, training or saving.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// The model cannot do what was asked.
    #[error("{0}")]
    Unsupported(String),
    /// An operation that cannot be executed.
    #[error("{stage} of `{program}`: {op} of {shapes}: {reason}")]
    Operation {
        /// Name of the program.
        program: String,
        /// Stage of the operation.
        stage: &'static str,
        /// The operation.
        op: String,
        /// Types of its operands and result.
        shapes: String,
        /// Why.
        reason: String,
    },
    /// Data that does not fit the program.
    #[error("{what} has {found}, but the model expects {expected}")]
    Shape {
        /// Which input, parameter or graph.
        what: String,
        /// What it has.
        found: String,
        /// What it should have.
        expected: String,
    },
    /// Data that a model cannot be trained or measured on.
    #[error(transparent)]
    Data(#[from] DataErrors),
    /// Not enough memory; found before anything ran.
    #[error(
        "the model needs {} ({detail}), but {limit} is {}; use a smaller model or graph, or raise the limit",
        show_bytes(*needed), show_bytes(*budget)
    )]
    Memory {
        /// Bytes that are needed.
        needed: u64,
        /// What it consists of.
        detail: String,
        /// Which limit: the memory of the machine or the budget.
        limit: &'static str,
        /// The limit.
        budget: u64,
    },
    /// A semantic graph that would not fit in memory; found before it was built.
    #[error("{0}")]
    GraphTooLarge(String),
    /// The loss is not finite.
    #[error(
        "the loss is {loss} in epoch {}; the parameters of {kept} are kept. {}",
        epoch + 1,
        cause.as_ref().map_or_else(|| ADVICE.to_owned(), |cause| match cause.advice {
            "" => cause.text.clone(),
            advice => format!("{}. {advice}", cause.text),
        })
    )]
    Diverged {
        /// Epoch, from 0.
        epoch: u64,
        /// The loss.
        loss: f64,
        /// Which parameters the trainer holds now.
        kept: String,
        /// Where the first number that is not finite comes from, if that could be found.
        cause: Option<Box<Cause>>,
    },
    /// Training has ended without a result that can be used.
    #[error(
        "{what}. A smaller learning rate, normalised features or gradient clipping usually helps, as does looking for \
         divisions by zero and logarithms of zero"
    )]
    NotFinite {
        /// The number that is not finite.
        what: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write`.
        action: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A weights or checkpoint file that does not fit the model.
    #[error("{}: {reason}", path.display())]
    Weights {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// A device failed.
    #[error("{device}: {reason}")]
    Device {
        /// Its name.
        device: String,
        /// What it was asked, and what it said.
        reason: String,
    },
    /// The thread pool could not be made.
    #[error("cannot start {threads} threads: {reason}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why.
        reason: String,
    },
}

impl ExecError {
    /// Is it the machine that could not, and not the input that is wrong?
    pub fn is_machine(&self) -> bool {
        match self {
            Self::Memory { .. } | Self::GraphTooLarge(_) | Self::Threads { .. } | Self::Device { .. } => true,
            Self::Io { action, .. } => *action != "read",
            Self::Unsupported(_)
            | Self::Operation { .. }
            | Self::Shape { .. }
            | Self::Data(_)
            | Self::Diverged { .. }
            | Self::NotFinite { .. }
            | Self::Weights { .. } => false,
        }
    }
}

/// Result of this crate.
pub type Result<T, E = ExecError> = std::result::Result<T, E>;
