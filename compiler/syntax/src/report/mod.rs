//! Diagnostics for unexpected tokens, in terms of the user's source.

mod expected;
mod other_syntax;

use hgnnc_diag::synonyms::{self, Meant, Place};
use hgnnc_diag::{Diagnostic, FileId, Span, codes};

use crate::structure::{Frame, Groups};
use crate::tokens::{Lexeme, Token};

pub(crate) use expected::Expected;

/// A token that the grammar rejected.
pub(crate) struct Mistake<'a> {
    pub file: FileId,
    pub text: &'a str,
    pub tokens: &'a [Lexeme],
    /// The token after the declaration, if there is one.
    pub following: Option<&'a Lexeme>,
    /// Index of the token; the number of tokens if the declaration ends too early.
    pub at: usize,
    pub expected: &'a Expected,
}

const ENTRY_WORDS: &[&str] = &[
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
    "cutoff",
    "stop",
    "select",
    "metrics",
    "seed",
];
const SCHEMA_WORDS: &[&str] = &["vertex", "relation", "metapath", "family"];
const BLOCK_WORDS: &[&str] = &["param", "project", "aggregate", "fuse", "repeat"];
const ITEM_WORDS: &[&str] = &["use", "const", "schema", "layer", "model", "train"];

/// Formats a list: `a`, `a or b`, `a, b or c`.
fn list(alternatives: &[String]) -> String {
    if alternatives.is_empty() { "something else".to_owned() } else { listed(alternatives, "or") }
}

fn listed(all: &[String], word: &str) -> String {
    match all {
        [] => String::new(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} {word} {last}", most.join(", ")),
    }
}

fn did_you_mean(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("did you mean {}?", listed(&names, "or"))
}

/// The word that is closest to a misspelled one.
fn closest_of<'a>(found: &str, words: &[&'a str]) -> Option<&'a str> {
    let folded = synonyms::fold(found);
    let distance = |word: &str| strsim::damerau_levenshtein(&folded, word);
    let best = words.iter().copied().min_by_key(|word| distance(word))?;
    (distance(best) * 3 <= folded.chars().count().max(3)).then_some(best)
}

impl Mistake<'_> {
    /// Builds the diagnostic for this mistake.
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
        if let Some((message, label, help)) = self.unknown_start(groups, found, word) {
            let mut diagnostic = Diagnostic::at(codes::UNEXPECTED_TOKEN, span, message, label);
            diagnostic.help.extend(help);
            return diagnostic;
        }
        let message = format!("expected {wanted}{after}, found {described}");
        // A token missing at the end of a line is reported there, not on the next line.
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

    /// An unknown word at the start of a line, entry or declaration: message, label and help.
    fn unknown_start(
        &self,
        groups: &Groups,
        found: &Lexeme,
        word: &str,
    ) -> Option<(String, &'static str, Option<String>)> {
        let frame = groups.of.get(self.at).map_or(Frame::Top, |&group| groups.list[group].frame);
        let (place, what, starts): (Place, &str, &[&str]) = match frame {
            Frame::Train if self.expected.entry() => (Place::Entry, "entry of a train block", ENTRY_WORDS),
            Frame::Schema if self.expected.has("vertex") => {
                (Place::Declaration, "declaration of a schema", SCHEMA_WORDS)
            }
            Frame::Layer if self.expected.has("project") => (Place::Block, "block of a layer", BLOCK_WORDS),
            Frame::Top if self.at == 0 || self.expected.terminals.is_empty() => {
                (Place::Item, "declaration", ITEM_WORDS)
            }
            _ => return None,
        };
        let starts_part = found.first || self.at == 0;
        if !starts_part || !(found.token.is_name() || found.token.is_reserved()) || starts.contains(&word) {
            return None;
        }
        let help = self.habit(place, word).or_else(|| match closest_of(word, starts) {
            Some(meant) => Some(format!("did you mean `{meant}`?")),
            None => {
                let known: Vec<String> = starts.iter().map(|start| format!("`{start}`")).collect();
                Some(format!("there are {}", listed(&known, "and")))
            }
        });
        Some((format!("`{word}` starts no {what}"), "not known here", help))
    }

    /// The equivalent of a keyword of another tool, with the value that follows it.
    fn habit(&self, place: Place, word: &str) -> Option<String> {
        match synonyms::meant(place, word)? {
            Meant::Advice(advice) => {
                let value = self.value_after(self.at);
                Some(synonyms::fill(advice, value))
            }
            Meant::Names(names) => Some(did_you_mean(names)),
            Meant::Each(_) => None,
        }
    }

    /// The text of the value after the token at `at` (and after `:` or `=`), up to the end of the line.
    fn value_after(&self, at: usize) -> Option<&str> {
        let is_sign = |lexeme: &Lexeme| matches!(lexeme.token, Token::Colon | Token::Assign);
        let start = at + 1 + usize::from(self.tokens.get(at + 1).is_some_and(is_sign));
        let first = self.tokens.get(start).filter(|lexeme| !lexeme.first)?;
        // The number in a list of arguments.
        if first.token == Token::LeftParen {
            let inside = self.tokens[start..].iter().take_while(|lexeme| !lexeme.first);
            let number = inside.into_iter().find(|lexeme| matches!(lexeme.token, Token::Number(_)))?;
            return self.text.get(number.start..number.end);
        }
        let mut depth = 0usize;
        let mut end = first.end;
        for (index, lexeme) in self.tokens.iter().enumerate().skip(start) {
            if lexeme.token.is_closing() {
                let Some(outer) = depth.checked_sub(1) else { break };
                depth = outer;
            }
            if index > start && depth == 0 && (lexeme.first || lexeme.token == Token::Comma) {
                break;
            }
            depth += usize::from(lexeme.token.is_opening());
            end = lexeme.end;
        }
        self.text.get(first.start..end)
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
        if let Some(help) = self.triples_help().or_else(|| self.import_help()) {
            return Some(help);
        }
        if expected.has("onehot")
            && !expected.has("NAME")
            && let Some(Meant::Advice(advice)) = synonyms::meant(Place::FieldType, word)
        {
            let open = self.tokens.get(self.at + 1).filter(|open| open.token == LeftBracket);
            let close = self.tokens[self.at..].iter().find(|lexeme| lexeme.token == RightBracket);
            let width = open.zip(close).and_then(|(open, close)| self.text.get(open.start..close.end));
            return Some(synonyms::fill(advice, width));
        }
        if expected.has("dim")
            && expected.has("bool")
            && !expected.has("NAME")
            && let Some(Meant::Names(names)) = synonyms::meant(Place::Kind, word)
        {
            return Some(did_you_mean(names));
        }
        if let Some(help) = self.other_syntax(groups, found, word) {
            return Some(help);
        }
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
        let as_a_name = format!("`{word}` is a keyword; as a name it stands in backquotes: `` `{word}` ``");
        if found.token.is_reserved() && only_name && !found.first {
            return Some(as_a_name);
        }
        let foreign = |words: &[&str]| {
            let starts_line = self.at > 0 && self.tokens[self.at - 1].first;
            words.contains(&word) || starts_line && words.contains(&text_of(self.at - 1))
        };
        if foreign(&["return", "yield"]) {
            let at = if ["return", "yield"].contains(&word) { self.at } else { self.at - 1 };
            let value = self.value_after(at).unwrap_or("…");
            return Some(match self.tokens[0].token {
                Model | BadModelHead => format!("a model names what it computes: `output NAME: TYPE = {value}`"),
                _ => format!("a layer's result is what is assigned to its name: `out = {value}`"),
            });
        }
        if foreign(&["def", "fn", "func", "function", "class", "async"]) && frame == Frame::Statements {
            let help = "there are no functions inside: statements are `let NAME = …`, `param`, and";
            return Some(match self.tokens[0].token {
                Model | BadModelHead => format!("{help} `output NAME: TYPE = …`"),
                _ => format!("{help} `NAME = …` for a field"),
            });
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
        // A keyword as a name within an expression: a width `[from]`, an argument `rate: per`.
        if found.token.is_reserved() && expected.has("NAME") && !found.first {
            return Some(as_a_name);
        }
        self.form(groups)
    }

    /// The syntax of the construct that has the mistake in its head.
    fn form(&self, groups: &Groups) -> Option<String> {
        let group = groups.of.get(self.at).copied().unwrap_or(0);
        let mut heads = (groups.begin(group)..self.at).rev().filter(|&i| groups.of[i] == group);
        let (what, form) = heads.find_map(|i| {
            Some(match self.tokens[i].token {
                Token::Vertex => ("a vertex type", "vertex Paper { x: f32[128], topic: class[7] }"),
                Token::Relation => ("a relation", "relation writes: Author -> Paper"),
                Token::Metapath => ("a metapath", "metapath PAP = Paper <-writes- Author -writes-> Paper"),
                Token::Family => ("a family", "family all = [relations, reverses]"),
                Token::Project => ("this block", "project v: V { … }"),
                Token::Aggregate => ("this block", "aggregate e: g in graphs { … }"),
                Token::Fuse => ("this block", "fuse v: V across graphs { … }"),
                Token::Param => ("a parameter", "param w: [in, hidden] = glorot"),
                Token::Output => ("an output", "output logits: Paper = …"),
                Token::Layer => {
                    ("a layer", "layer NAME(hidden: dim) over graphs: [V -> V] of x: V[in] -> V[hidden] { … }")
                }
                Token::Model => ("a model", "model NAME(schema: SCHEMA) { … }"),
                Token::Train => ("training", "train MODEL { … }"),
                Token::Use => ("an import", "use std::han::HanConv` or `use \"layers.hgnn\"::Gate"),
                Token::Stop => ("early stopping", "stop when val.loss has not improved for 20 epochs"),
                Token::Select => ("the best epoch", "select val.loss"),
                // After these tokens, the mistake belongs to an expression, to the next part or to an entry without a form.
                Token::Assign | Token::Let | Token::RightBrace => return Some(("", "")),
                Token::Split | Token::Dataset | Token::Metrics | Token::Seed => return Some(("", "")),
                _ => return None,
            })
        })?;
        let is_head = !form.is_empty() && !self.expected.after_operand();
        is_head.then(|| format!("{what} is written `{form}`"))
    }
}
