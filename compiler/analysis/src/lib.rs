//! Analyses that passes and lowering share: they say what a program is and costs, and change nothing.

#![forbid(unsafe_code)]

pub mod aliases;
pub mod cost;
pub mod memory;
pub mod request;
