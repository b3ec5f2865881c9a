//! The dataflow IR: operations, text form, verifier and f64 interpreter.
