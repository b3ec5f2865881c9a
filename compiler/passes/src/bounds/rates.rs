//! What an element of each function costs.

use hgnnc_ir::{BinaryOp, Reduce, UnaryOp};
use hgnnc_machine::Work;

/// Simple operations and special functions per element.
pub(super) type Rate = (f64, f64);

/// An element of a random mask: a special function, by its cost.
pub(super) const MASK: Rate = (0.0, 1.0);
/// A comparison or a selection.
pub(super) const SIMPLE: Rate = (1.0, 0.0);

pub(super) fn unary(f: UnaryOp) -> Rate {
    match f {
        UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Step | UnaryOp::Relu | UnaryOp::Floor => SIMPLE,
        // A product and a selection.
        UnaryOp::LeakyRelu(_) => (2.0, 0.0),
        UnaryOp::Exp | UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Recip | UnaryOp::Tanh | UnaryOp::Erf | UnaryOp::Cos => {
            (0.0, 1.0)
        }
        // `e^x - 1`, and a selection.
        UnaryOp::Elu => (1.0, 1.0),
        // An exponential and a division.
        UnaryOp::Sigmoid => (1.0, 2.0),
        // `max(x, 0) + ln(1 + e^-|x|)`
        UnaryOp::Softplus => (3.0, 2.0),
        // `x / 2 · (1 + erf(x / √2))`
        UnaryOp::Gelu => (4.0, 1.0),
    }
}

pub(super) fn binary(f: BinaryOp) -> Rate {
    match f {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Max | BinaryOp::Min | BinaryOp::Eq | BinaryOp::Gt => {
            SIMPLE
        }
        BinaryOp::Div => (0.0, 1.0),
        // A logarithm, a product and an exponential.
        BinaryOp::Pow => (1.0, 2.0),
        // The larger, plus `ln(1 + e^-|difference|)`.
        BinaryOp::LogAddExp => (4.0, 2.0),
    }
}

/// Of each element that is reduced.
pub(super) fn reduce(reduce: Reduce) -> Rate {
    match reduce {
        Reduce::Sum | Reduce::Max | Reduce::Min => SIMPLE,
        // The largest, the exponential of the distance to it, and their sum.
        Reduce::Lse => (3.0, 1.0),
    }
}

/// Adds so many elements of a function.
pub(super) fn add(work: &mut Work, elements: f64, (simple, special): Rate) {
    work.simple += elements * simple;
    work.special += elements * special;
}
