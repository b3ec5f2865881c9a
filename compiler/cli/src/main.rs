//! The hgnnc command.
fn main() {}
