//! Reports about tokens that do not fit, in the words of the person who wrote them.

use std::collections::BTreeSet;

use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};

use crate::structure::{Frame, Groups};
use crate::tokens::{CONTEXTUAL, Lexeme, Token};

/// Reports about one file before the rest is left unsaid: a file with so many is no `.hgnn` file.
const MAX_REPORTS: usize = 200;

/// Adds a report, unless there are too many.
pub(crate) fn push(diagnostics: &mut Diagnostics, diagnostic: Diagnostic) {
    if diagnostics.len() < MAX_REPORTS {
        diagnostics.push(diagnostic);
    }
}

/// A token at which the grammar stopped.
pub(crate) struct Mistake<'a> {
    pub file: FileId,
    pub text: &'a str,
    pub tokens: &'a [Lexeme],
    /// The token after the declaration.
    pub following: Option<&'a Lexeme>,
    /// Index of the token; the number of tokens at the end of the declaration.
    pub at: usize,
    pub expected: &'a Expected,
}

/// What the grammar would have taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    terminals: BTreeSet<String>,
}

impl Expected {
    /// From the parser's list.
    pub(crate) fn new(terminals: &[String]) -> Self {
        Self { terminals: terminals.iter().map(|t| t.trim_matches('"').to_owned()).collect() }
    }

    /// Only an expression.
    pub(crate) fn expression() -> Self {
        Self { terminals: ["NAME", "NUMBER", "("].map(str::to_owned).into() }
    }

    pub(crate) fn has(&self, terminal: &str) -> bool {
        self.terminals.contains(terminal)
    }

    /// An expression is complete: it could have gone on.
    pub(crate) fn after_operand(&self) -> bool {
        ["@", "+", "and", "or"].iter().any(|operator| self.has(operator))
    }

    /// A new statement, entry, schema item or member of a layer could have started.
    pub(crate) fn fresh_part(&self) -> bool {
        self.entry() || ["let", "vertex", "project"].iter().any(|start| self.has(start))
    }

    /// The found token is the mistake, not the lack of something before it.
    fn previous_is_complete(&self) -> bool {
        self.terminals.is_empty() || self.fresh_part() || self.after_operand()
    }

    /// An entry of a train block could have started. Its words are names elsewhere.
    fn entry(&self) -> bool {
        self.has("loss") && !self.has("NAME")
    }

    /// In words, grouped.
    fn alternatives(&self) -> Vec<String> {
        let mut left: BTreeSet<&str> =
            self.terminals.iter().map(String::as_str).filter(|t| !t.starts_with("BAD_")).collect();
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
                group(&mut left, &["let", "param", "output", "NAME"], "the next statement");
                left.retain(|terminal| !is_contextual(terminal));
            } else if self.entry() {
                left.retain(|terminal| !is_contextual(terminal));
                group(&mut left, &["NAME"], "the next entry");
            }
        } else if self.has("NUMBER") {
            group(&mut left, EXPRESSION, "an expression");
            left.retain(|terminal| !is_contextual(terminal));
        } else if self.has("let") {
            group(&mut left, &["let", "param", "output", "NAME"], "a statement");
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
        // Declarations and entries read best in the order in which they are usually written.
        let rank = |terminal: &str| ORDER.iter().position(|o| *o == terminal).unwrap_or(ORDER.len());
        let mut left: Vec<&str> = left.into_iter().collect();
        left.sort_by_key(|terminal| rank(terminal));
        groups.extend(left.into_iter().map(|terminal| format!("`{terminal}`")));
        groups
    }

    /// The keyword that a misspelled word is closest to.
    fn closest(&self, found: &str) -> Option<&str> {
        let close = |candidate: &str| {
            let distance = strsim::damerau_levenshtein(&found.to_lowercase(), candidate);
            distance * 3 <= found.chars().count().max(3)
        };
        let is_word =
            |terminal: &&str| terminal.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        // Where any name fits, a word that only sometimes means something is no suggestion.
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
    "+", "-", "*", "/", "@", "==", "!=", "<", "<=", ">", ">=", "and", "or", ".", "over", "across", "of", "(", "into",
    "from",
];
const EXPRESSION: &[&str] = &["NAME", "NUMBER", "(", "[", "{", "-", "not", "if", "true", "false"];
const ORDER: &[&str] = &[
    "use",
    "const",
    "schema",
    "layer",
    "model",
    "train",
    "vertex",
    "relation",
    "metapath",
    "family",
    "param",
    "project",
    "aggregate",
    "fuse",
    "dataset",
    "split",
    "loss",
    "optimizer",
    "schedule",
    "clip",
    "epochs",
    "batch",
    "fanout",
    "reuse",
    "negatives",
    "exclude",
    "stop",
    "select",
    "metrics",
    "seed",
    "f32",
    "onehot",
    "embedding",
    "class",
    "multilabel",
    "target",
    "graph",
    "type",
    "src",
    "dst",
    "shared",
    "basis",
    "blocks",
    "=",
    "no_decay",
    ",",
    ")",
    "]",
    "{",
    "}",
];

/// `a`, `a or b`, `a, b or c`
fn list(alternatives: &[String]) -> String {
    match alternatives {
        [] => "something else".to_owned(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} or {last}", most.join(", ")),
    }
}

impl Mistake<'_> {
    /// The report.
    pub(crate) fn report(&self, groups: &Groups) -> Diagnostic {
        let alternatives = self.expected.alternatives();
        let wanted = list(&alternatives);
        let previous = self.at.checked_sub(1).map(|i| &self.tokens[i]);
        let after = previous.map_or(String::new(), |lexeme| match lexeme.token {
            Token::Text(_) => " after the string".to_owned(),
            _ if lexeme.reported || lexeme.start == lexeme.end => String::new(),
            _ => format!(" after `{}`", &self.text[lexeme.start..lexeme.end]),
        });
        let found = self.tokens.get(self.at).or(self.following);
        let Some(found) = found else {
            let last = previous.expect("a declaration has a token");
            let span = Span::new(self.file, last.start, last.end);
            let message = format!("the file ends too early: expected {wanted}{after}");
            return Diagnostic::at(codes::UNEXPECTED_END, span, message, "the last token of the file");
        };
        let word = &self.text[found.start..found.end];
        let described = match &found.token {
            Token::Text(_) => "a string".to_owned(),
            Token::Number(_) => format!("the number `{word}`"),
            token if token.is_reserved() => format!("the keyword `{word}`"),
            _ => format!("`{word}`"),
        };
        let span = Span::new(self.file, found.start, found.end);
        let message = format!("expected {wanted}{after}, found {described}");
        // What is missing at the end of a line is missed only on the next one.
        let mut diagnostic = match previous {
            Some(previous) if found.first && !after.is_empty() && !self.expected.previous_is_complete() => {
                let place = Span::new(self.file, previous.start, previous.end);
                Diagnostic::at(codes::UNEXPECTED_TOKEN, place, message, format!("expected {wanted} after this"))
                    .label(span, "this comes instead")
            }
            _ if alternatives.len() <= 3 => {
                Diagnostic::at(codes::UNEXPECTED_TOKEN, span, message, format!("expected {wanted}"))
            }
            _ => Diagnostic::at(codes::UNEXPECTED_TOKEN, span, message, "not expected here"),
        };
        diagnostic.help.extend(self.help(groups, found, word));
        diagnostic
    }

    fn help(&self, groups: &Groups, found: &Lexeme, word: &str) -> Option<String> {
        use Token::*;
        let expected = self.expected;
        let token_at = |index: Option<usize>| index.and_then(|i| self.tokens.get(i)).map(|l| &l.token);
        let previous = token_at(self.at.checked_sub(1));
        let before_previous = token_at(self.at.checked_sub(2));
        let next = self.tokens.get(self.at + 1);
        let is_colon = |lexeme: &Lexeme| lexeme.token == Colon;
        let frame = groups.of.get(self.at).map_or(Frame::Top, |&group| groups.list[group].frame);
        let text_of = |index: usize| &self.text[self.tokens[index].start..self.tokens[index].end];
        if let Some(closest) = expected.closest(word).filter(|_| found.token.is_name() || found.token.is_reserved()) {
            return Some(format!("did you mean `{closest}`?"));
        }
        match &found.token {
            Assign if frame == Frame::Plain && previous.is_some_and(Token::is_name) => {
                let name = text_of(self.at - 1);
                let value = next.map_or("…", |next| &self.text[next.start..next.end]);
                return Some(format!("arguments are named with `:`, as in `{name}: {value}`"));
            }
            Assign if frame == Frame::Train => return Some("entries have no `=`: `epochs 200`".to_owned()),
            Colon if frame == Frame::Train => return Some("entries have no `:`: `epochs 200`".to_owned()),
            Assign if expected.has(":") && frame != Frame::Plain => {
                return Some("the shape or type stands after `:`; the shape of a scalar is `[]`".to_owned());
            }
            Colon if expected.has("=") && frame == Frame::Statements => {
                return Some("a value is assigned with `=`; its type follows from it".to_owned());
            }
            Arrow
                if expected.has("<-")
                    || expected.has("-") && matches!(previous, Some(t) if t.is_name()) && !expected.after_operand() =>
            {
                return Some(
                    "every step of a metapath names its relation: `A -relation-> B`, or `A <-relation- B` against it"
                        .to_owned(),
                );
            }
            Minus if expected.has("->") && before_previous == Some(&Minus) => {
                return Some("a step along a relation is written `-r->`, a step against it `<-r-`".to_owned());
            }
            Minus if expected.has("->") => {
                return Some("the two ends of a relation stand as `Source -> Destination`".to_owned());
            }
            BackArrow if expected.after_operand() => {
                return Some("`<-` is one token; to compare with a negative number write `< -`".to_owned());
            }
            Less | LessEqual | Greater | GreaterEqual | Equal | NotEqual if expected.after_operand() => {
                return Some("comparisons do not chain; join two of them with `and`".to_owned());
            }
            Dot if expected.has("across") || expected.has("of") || expected.has("into") => {
                return Some(
                    "put the call and its scope in parentheses to take a field of it: `(f(x) over g).y`".to_owned(),
                );
            }
            LeftParen if before_previous == Some(&Dot) => {
                return Some("there are no methods: write `f(x)`, not `x.f()`".to_owned());
            }
            Dot if expected.has("::") => return Some("the parts of a path are joined by `::`".to_owned()),
            Let if expected.terminals.is_empty() => {
                return Some("outside of models and layers, values are declared with `const`".to_owned());
            }
            _ if frame == Frame::Train && expected.has("{") && next.is_some_and(is_colon) => {
                return Some(
                    "fan-outs of single semantic graphs stand in braces: `fanout [10] { cites: [5] }`".to_owned(),
                );
            }
            _ if expected.has("->") && expected.has("of") => {
                return Some("the type of the result stands after `->`".to_owned());
            }
            _ if expected.has(".") && frame == Frame::Train && !expected.after_operand() => {
                return Some("a metric is measured on a part of the vertices, as in `val.loss`".to_owned());
            }
            _ => {}
        }
        if expected.has("else") && !expected.after_operand() {
            return Some("an `if` chooses between two values and needs both: `if c { a } else { b }`".to_owned());
        }
        let only_name = expected.has("NAME") && !expected.has("NUMBER") && !expected.has("let");
        if found.token.is_reserved() && only_name && !found.first {
            return Some(format!("`{word}` is a keyword; as a name it stands in backquotes: `` `{word}` ``"));
        }
        let foreign = |words: &[&str]| {
            let starts_line = self.at > 0 && self.tokens[self.at - 1].first;
            words.contains(&word) || starts_line && words.contains(&text_of(self.at - 1))
        };
        if foreign(&["return", "yield"]) {
            return Some("a layer's result is what is assigned to its name, `out = …`".to_owned());
        }
        if foreign(&["for", "while"]) && matches!(frame, Frame::Statements | Frame::Plain) {
            return Some("there are no loops: an operation applies to all vertices or edges at once".to_owned());
        }
        if foreign(&["var", "val", "const", "mut", "auto"]) && frame == Frame::Statements {
            return Some("local values are declared with `let`".to_owned());
        }
        if frame == Frame::Statements && expected.has("=") && previous.is_some_and(Token::is_name) {
            return Some(format!("a statement gives a name a value: `{} = …`", text_of(self.at - 1)));
        }
        if self.at == 0 && foreign(&["def", "fn", "func", "function", "struct", "class"]) {
            return Some("layers start with `layer`, models with `model`".to_owned());
        }
        if self.at == 0 && foreign(&["import", "include", "from", "open"]) {
            return Some("other files are used with `use`, as in `use std::han::HanConv`".to_owned());
        }
        None
    }
}
