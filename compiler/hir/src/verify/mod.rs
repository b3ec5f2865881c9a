//! The verifier of the typed model: the invariants that instantiation relies on.

mod handles;
mod layers;
mod rows;
mod types;

use std::fmt;
use std::sync::Arc;

use hgnnc_ir::Graph;
use hgnnc_ir::verify as dataflow;

use crate::{ExprId, Model, print};
use hgnnc_ir::violation::{Violation, lines};

/// The location of a violation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Place {
    Table(dataflow::Place),
    Param(usize),
    Expr(ExprId),
    Use(usize),
    Statement(usize),
    Output(usize),
    Loss,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Table(place) => write!(f, "{place}"),
            Place::Param(row) => write!(f, "parameter {row}"),
            Place::Expr(id) => write!(f, "expression {id}"),
            Place::Use(row) => write!(f, "use {row} of a layer"),
            Place::Statement(row) => write!(f, "statement {row}"),
            Place::Output(row) => write!(f, "output {row}"),
            Place::Loss => write!(f, "loss"),
        }
    }
}

/// Checks all rules of typed models:
///
/// - the tables satisfy the dataflow verifier; handles refer to existing rows; operands are earlier expressions, and the
///   expressions of a layer use come before it;
/// - the type of an expression is the one that its kind gives for the types of its operands: kinds of families, spaces,
///   extents, and forms (one-hot and block-diagonal values are only multiplied, sparse values keep their zeros);
/// - values of a family are combined with values of the same semantic graphs, and edge values belong to these;
/// - a parameter has an entry for each value, and equal entries have equal widths; blocks divide it, and a basis is
///   shared by entries of one shape;
/// - a layer use has blocks for different vertex types, values for the graphs in scope, fields with a row for each vertex
///   or edge, and results of vertex types or of its edges;
/// - outputs are dense, with the rows that they are declared for; the loss is of an output and has its width;
/// - in an expression that a statement evaluates, extents are known and numbers are finite. Expressions without a
///   statement may have symbolic extents: those of a layer that is checked without a use.
///
/// # Errors
/// All violations; those of types only where every handle is right.
pub fn verify(model: &Model) -> Result<(), Vec<Violation<Place>>> {
    let mut verifier = Verifier { model, families: vec![], violations: vec![] };
    if verifier.handles() {
        verifier.types();
        verifier.params();
        verifier.values();
        verifier.layers();
        verifier.statements();
        verifier.outputs();
        verifier.loss();
    }
    if verifier.violations.is_empty() { Ok(()) } else { Err(verifier.violations) }
}

/// Verifies a model in debug builds.
///
/// # Panics
/// If a rule is broken: an internal error with the rules and the model, in a form that can be read.
pub fn check(model: &Model, after: &str) {
    if cfg!(debug_assertions)
        && let Err(broken) = verify(model)
    {
        let mut verifier = Verifier { model, families: vec![], violations: vec![] };
        // Handles that are wrong cannot be printed.
        let text = if verifier.handles() { print(model) } else { format!("{:#?}", model.exprs) };
        panic!("internal error: {after} broke the rules of typed models:\n{}\n{text}", lines(&broken));
    }
}

struct Verifier<'m> {
    model: &'m Model,
    /// The semantic graphs that each expression has a value for, where its kind tells.
    families: Vec<Option<Arc<[Graph]>>>,
    violations: Vec<Violation<Place>>,
}

impl Verifier<'_> {
    fn report(&mut self, place: Place, message: impl Into<String>) {
        self.violations.push(Violation { place, message: message.into() });
    }
}
