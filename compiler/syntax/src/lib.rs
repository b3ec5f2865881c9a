//! Lexer, grammar, syntax tree and formatter of `.hgnn` files.
//!
//! Nothing here knows what a name means: [`parse`] reports what cannot be read and leaves the rest to the
//! checker.

mod allow;
pub mod ast;
mod build;
mod foreign;
mod format;
mod parse;
mod recover;
mod report;
mod respell;
mod structure;
pub mod tokens;

pub use format::{format, format_expr};
pub use parse::parse;
