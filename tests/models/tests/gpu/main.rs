//! Whole models as PTX: assembled, executed, and what their execution counts.

mod assembled;
mod counters;
mod differential;
