//! The terminals that fit at a position, as descriptions for messages and as corrections of misspelled keywords.

use std::collections::BTreeSet;

use super::{BLOCK_WORDS, ENTRY_WORDS, ITEM_WORDS, SCHEMA_WORDS};
use crate::tokens::CONTEXTUAL;

/// The terminals that the grammar accepts at a position.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    pub(super) terminals: BTreeSet<String>,
}

impl Expected {
    /// Parses the parser's list of terminals.
    pub(crate) fn new(terminals: &[String]) -> Self {
        Self { terminals: terminals.iter().map(|t| t.trim_matches('"').to_owned()).collect() }
    }

    /// A position where an expression is required.
    pub(crate) fn expression() -> Self {
        Self { terminals: ["NAME", "NUMBER", "("].map(str::to_owned).into() }
    }

    /// A position where a block of a layer is required.
    pub(crate) fn block() -> Self {
        Self { terminals: BLOCK_WORDS.iter().map(|&word| word.to_owned()).collect() }
    }

    pub(crate) fn has(&self, terminal: &str) -> bool {
        self.terminals.contains(terminal)
    }

    /// Could an operator follow, so that the expression before is complete?
    pub(crate) fn after_operand(&self) -> bool {
        ["@", "+", "and", "or"].iter().any(|operator| self.has(operator))
    }

    /// Could a new statement, entry, schema item or member of a layer start here?
    pub(crate) fn fresh_part(&self) -> bool {
        self.entry() || ["let", "vertex", "project"].iter().any(|start| self.has(start))
    }

    /// Is the found token the error, and nothing missing before it?
    pub(super) fn previous_is_complete(&self) -> bool {
        self.terminals.is_empty() || self.fresh_part() || self.after_operand()
    }

    /// Could an entry of a train block start here? Its keywords are names elsewhere.
    pub(super) fn entry(&self) -> bool {
        self.has("loss") && !self.has("NAME")
    }

    /// Descriptions for messages, with related terminals grouped.
    pub(super) fn alternatives(&self) -> Vec<String> {
        let mut left: BTreeSet<&str> = self
            .terminals
            .iter()
            .map(String::as_str)
            .filter(|t| !t.starts_with("BAD_") && !t.starts_with("TUPLE_"))
            .collect();
        let mut groups: Vec<String> = Vec::new();
        let mut group = |left: &mut BTreeSet<&str>, words: &[&str], text: &str| {
            left.retain(|terminal| !words.contains(terminal));
            groups.push(text.to_owned());
        };
        let is_contextual = |terminal: &str| CONTEXTUAL.contains(&terminal);
        if left.is_empty() {
            return vec!["the next declaration".to_owned()];
        }
        if self.after_operand() {
            group(&mut left, OPERATORS, "an operator");
            if self.has("let") {
                group(&mut left, &["let", "param", "output", "repeat", "NAME"], "the next statement");
                left.retain(|terminal| !is_contextual(terminal));
            } else if self.entry() {
                left.retain(|terminal| !is_contextual(terminal));
                group(&mut left, &["NAME"], "the next entry");
            }
        } else if self.has("NUMBER") {
            group(&mut left, EXPRESSION, "an expression");
            left.retain(|terminal| !is_contextual(terminal));
        } else if self.has("let") {
            group(&mut left, &["let", "param", "output", "repeat", "NAME"], "a statement");
            left.retain(|terminal| !is_contextual(terminal));
        } else if self.has("NAME") {
            group(&mut left, &["NAME"], "a name");
            left.retain(|terminal| !is_contextual(terminal));
        }
        if self.entry() && (self.has(",") || self.has("{")) {
            left.retain(|terminal| !is_contextual(terminal));
            groups.push("the next entry".to_owned());
        }
        if self.has("vertex") && ["from", "into", "-"].iter().any(|more| self.has(more)) {
            left.retain(|terminal| !["vertex", "relation", "metapath", "family"].contains(terminal));
            groups.push("the next declaration".to_owned());
        }
        if left.remove("STRING") {
            groups.push("a string".to_owned());
        }
        // Declarations and entries are listed in their usual order.
        let rank = |terminal: &str| ORDER.iter().copied().flatten().position(|o| *o == terminal).unwrap_or(usize::MAX);
        let mut left: Vec<&str> = left.into_iter().collect();
        left.sort_by_key(|terminal| rank(terminal));
        groups.extend(left.into_iter().map(|terminal| format!("`{terminal}`")));
        groups
    }

    /// The keyword that is closest to a misspelled word.
    pub(super) fn closest(&self, found: &str) -> Option<&str> {
        let close = |candidate: &str| {
            let distance = strsim::damerau_levenshtein(&found.to_lowercase(), candidate);
            distance * 3 <= found.chars().count().max(3)
        };
        let is_word =
            |terminal: &&str| terminal.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        // Contextual keywords are not suggested if any name fits.
        let fits = |terminal: &&str| !(self.has("NAME") && CONTEXTUAL.contains(terminal));
        self.terminals
            .iter()
            .map(String::as_str)
            .filter(is_word)
            .filter(fits)
            .filter(|terminal| *terminal != found && close(terminal))
            .min_by_key(|terminal| strsim::damerau_levenshtein(found, terminal))
    }
}

const OPERATORS: &[&str] = &[
    "+", "-", "*", "/", "@", "==", "!=", "<", "<=", ">", ">=", "and", "or", ".", "over", "across", "of", "(", "[",
    "into", "at most", "from",
];
const EXPRESSION: &[&str] = &["NAME", "NUMBER", "(", "[", "{", "-", "not", "if", "true", "false"];
/// Terminals in the order of messages: declarations and entries first, as they usually follow each other.
const ORDER: &[&[&str]] = &[
    ITEM_WORDS,
    SCHEMA_WORDS,
    BLOCK_WORDS,
    ENTRY_WORDS,
    &["f32", "onehot", "embedding", "class", "multilabel", "target", "time"],
    &["graph", "type", "src", "dst", "shared", "basis", "blocks"],
    &["=", "no_decay", ",", ")", "]", "{", "}"],
];
