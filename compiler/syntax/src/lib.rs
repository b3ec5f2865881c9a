//! Lexer, grammar, syntax tree and formatter of `.hgnn` files.
//!
//! Nothing here knows what a name means: [`parse`] reports what cannot be read and leaves the rest to the
//! checker.

pub mod ast;
mod build;
mod format;
mod parse;
mod recover;
mod report;
mod structure;
pub mod tokens;

pub use format::format;
pub use parse::parse;
