//! Broken rules, as the verifiers of all levels report them.

use std::fmt;

/// A broken rule at a place of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Violation<P> {
    pub place: P,
    pub message: String,
}

impl<P: fmt::Display> fmt::Display for Violation<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A line for each broken rule.
pub fn lines<P: fmt::Display>(broken: &[Violation<P>]) -> String {
    broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
