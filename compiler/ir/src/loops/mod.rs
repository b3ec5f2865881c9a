//! The loops IR: how the rows of a traversal are computed.

pub mod function;

pub use function::Function;
