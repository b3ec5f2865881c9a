//! Lexer, grammar, syntax tree and formatter of `.hgnn` files.
//!
//! Names are not resolved here: [`parse`] reports syntax errors and leaves semantic checks to the checker.

#![forbid(unsafe_code)]

mod allow;
pub mod ast;
mod build;
mod foreign;
mod format;
mod limit;
mod parse;
mod recover;
mod report;
mod respell;
mod structure;
pub mod tokens;

pub use format::{format, format_expr};
pub use parse::parse;
