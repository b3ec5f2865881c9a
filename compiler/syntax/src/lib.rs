//! Lexer, grammar, syntax tree and formatter of `.hgnn` files.

pub mod ast;
