//! The field's cases.
