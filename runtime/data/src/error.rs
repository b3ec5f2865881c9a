//! Run-time errors, in the user's terms.

use std::path::{Path, PathBuf};

use hgnnc_dataset::DataErrors;
use hgnnc_graph::show_bytes;
use hgnnc_ir::Origin;

/// Origin of a non-finite number.
#[derive(Clone, PartialEq, Debug)]
pub struct Cause {
    /// Operation, vertex or edge, and the operands.
    pub text: String,
    /// Usual remedy, if the operands suggest one; else empty.
    pub advice: &'static str,
    /// Source location in the model.
    pub origin: Option<Origin>,
}

/// Remedies for diverging parameters.
pub const ADVICE: &str = "A smaller learning rate, normalised features or gradient clipping usually helps";

/// An error of planning, running, training or saving.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "variants and fields are named for what they hold")]
pub enum ExecError {
    /// The model or machine does not support the request.
    #[error("{0}")]
    Unsupported(String),
    /// An operation that cannot be executed.
    #[error("{stage} of `{program}`: {op} of {shapes}: {reason}")]
    Operation {
        /// Name of the program.
        program: String,
        /// Stage of the operation.
        stage: &'static str,
        op: String,
        /// Types of its operands and result.
        shapes: String,
        reason: String,
    },
    /// Data that does not fit the program.
    #[error("{what} has {found}, but the model expects {expected}")]
    Shape {
        /// Input, parameter or graph.
        what: String,
        found: String,
        /// Expected shape or size.
        expected: String,
    },
    /// Data that cannot be used for training or measuring.
    #[error(transparent)]
    Data(#[from] DataErrors),
    /// Not enough memory; detected before anything ran.
    #[error(
        "the model needs {} ({detail}), but {limit} is {}; use a smaller model or graph, or raise the limit",
        show_bytes(*needed), show_bytes(*budget)
    )]
    Memory {
        /// Bytes that are needed.
        needed: u64,
        /// Breakdown of the bytes needed.
        detail: String,
        /// Name of the limit: machine memory or the budget.
        limit: &'static str,
        budget: u64,
    },
    /// A semantic graph that would exceed memory; detected before it was built.
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
        epoch: u64,
        /// The non-finite loss of this epoch.
        loss: f64,
        /// Parameters that the trainer holds now.
        kept: String,
        /// Origin of the first non-finite number, if it was found.
        cause: Option<Box<Cause>>,
    },
    /// Training ended without a usable result.
    #[error(
        "{what}. A smaller learning rate, normalised features or gradient clipping usually helps, as does looking for \
         divisions by zero and logarithms of zero"
    )]
    NotFinite {
        /// Description of the non-finite number.
        what: String,
    },
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Failed action, `read` or `write`.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A weights or checkpoint file that does not fit the model.
    #[error("{}: {reason}", path.display())]
    Weights {
        path: PathBuf,
        /// Mismatch between file and model.
        reason: String,
    },
    #[error("{device}: {reason}")]
    Device {
        device: String,
        /// The request and the driver's answer.
        reason: String,
    },
    /// Another process of the job has failed, or does other work.
    #[error("{0}")]
    Ranks(String),
    /// Another process of the job could not do its part of something that this one has done.
    #[error("rank {rank}: {error}")]
    OtherRank { rank: usize, error: String },
    /// The thread pool could not be created.
    #[error("cannot start {threads} threads: {reason}; `ulimit -u` and `--threads N` say how many there may be")]
    Threads { threads: usize, reason: String },
}

impl ExecError {
    /// Makes the error of a file that could not be read or written.
    pub fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the machine failed (exit code 3), as opposed to wrong input.
    pub fn is_machine(&self) -> bool {
        match self {
            Self::Memory { .. }
            | Self::GraphTooLarge(_)
            | Self::Threads { .. }
            | Self::Ranks(_)
            | Self::OtherRank { .. }
            | Self::Device { .. } => true,
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

/// Result type of this crate.
pub type Result<T, E = ExecError> = std::result::Result<T, E>;
