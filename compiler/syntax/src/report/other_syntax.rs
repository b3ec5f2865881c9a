//! Help with syntax of other languages and libraries: methods, indices, quoted names, triples of names for edges.

use hgnnc_diag::synonyms::{self, Meant, Place};

use super::Mistake;
use crate::structure::{Frame, Groups};
use crate::tokens::{Lexeme, Token};

/// An edge type as in PyG and DGL: `("author", "writes", "paper")`.
struct Triple<'a> {
    src: &'a str,
    relation: &'a str,
    dst: &'a str,
}

/// Diagnostics for syntax of other languages that cannot be respelled.
impl Mistake<'_> {
    fn text_of(&self, index: usize) -> &str {
        &self.text[self.tokens[index].start..self.tokens[index].end]
    }

    pub(super) fn other_syntax(&self, groups: &Groups, found: &Lexeme, word: &str) -> Option<String> {
        use Token::*;
        let expected = self.expected;
        let previous = self.at.checked_sub(1).map(|i| &self.tokens[i]);
        let group = groups.of.get(self.at).copied().unwrap_or(0);
        let frame = groups.list[group].frame;
        let next = self.tokens.get(self.at + 1).map(|l| &l.token);
        let entry = self.entry(groups, group);
        if let (None, Some(advice)) = (entry, self.foreign_call(groups, group)) {
            return Some(advice.to_owned());
        }
        match &found.token {
            LeftParen if expected.after_operand() && self.is_method() => {
                let (receiver, method) = (self.operand(self.at - 3), self.text_of(self.at - 1));
                if receiver == "self" || receiver == "this" {
                    return Some(format!("names stand for themselves: `{method}`, not `{receiver}.{method}`"));
                }
                let function = match synonyms::meant(Place::Function, method) {
                    Some(Meant::Names([only])) => only,
                    Some(Meant::Advice(advice)) => return Some(format!("there are no methods; {advice}")),
                    _ => method,
                };
                let inside = receiver.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(receiver);
                let more = if function == "reshape" { ", [8, 64]" } else { "" };
                Some(format!("there are no methods: write `{function}({inside}{more})`"))
            }
            LeftParen if expected.after_operand() && previous.is_some_and(|l| l.token == RightParen) => {
                let open = groups.list.iter().find(|inner| inner.close == self.at - 1).map(|inner| inner.open);
                let callee =
                    open.and_then(|open| open.checked_sub(1)).filter(|&name| self.tokens[name].token.is_name());
                match callee.and_then(|name| synonyms::meant(Place::Function, self.text_of(name))) {
                    Some(Meant::Advice(advice)) => Some(advice.to_owned()),
                    _ => Some(
                        "a function takes its values at once, `linear(x, 8)`; a layer is used as `GcnConv(hidden: 8) over [cites] of x`"
                            .to_owned(),
                    ),
                }
            }
            LeftBracket if expected.after_operand() && entry == Some(&Loss) => {
                Some("the split says which vertices are for training: leave the brackets out".to_owned())
            }
            Text(name) if previous.is_some_and(|l| l.token == LeftBracket) && expected.has("..") => {
                let last = self.text_of(self.at.checked_sub(2)?);
                let of_other = synonyms::meant(Place::Value, last).or_else(|| synonyms::meant(Place::Field, last));
                if let Some(Meant::Advice(advice)) = of_other {
                    return Some(advice.to_owned());
                }
                Some(format!("a field is selected by its name: `{}.{}`", self.operand(self.at - 2), named(name)))
            }
            Colon if expected.has("..") => {
                Some("a part of a dimension is written `x[0..8]`, and `..` takes all of it: `x[.., 0]`".to_owned())
            }
            LeftBracket if expected.after_operand() => Some(
                "parts are taken of a name, a field or a call: declare the value by `let`, and write `x[0..8]`"
                    .to_owned(),
            ),
            If if expected.after_operand() => Some(
                "a choice is written `if c { a } else { b }`, with `c` known when the model is compiled".to_owned(),
            ),
            Star if previous.is_some_and(|l| l.token == Over) => {
                Some("`over relations` is over all relations, `over metapaths` over all metapaths".to_owned())
            }
            LeftBrace | LeftParen if previous.is_some_and(|l| l.token == Over) => {
                let group = groups.list.iter().find(|inner| inner.open == self.at);
                let inside = group.and_then(|group| {
                    let (first, last) =
                        (self.tokens.get(group.open + 1)?, self.tokens.get(group.close.checked_sub(1)?)?);
                    self.text.get(first.start..last.end)
                });
                Some(format!("several semantic graphs stand in square brackets: `over [{}]`", inside.unwrap_or("…")))
            }
            Comma if frame == Frame::Statements && self.at >= 2 && self.tokens[self.at - 2].token == Over => {
                let (first, second) = (self.text_of(self.at - 1), self.tokens.get(self.at + 1));
                let second = second.map_or("…", |l| &self.text[l.start..l.end]);
                Some(format!("several semantic graphs stand in square brackets: `over [{first}, {second}]`"))
            }
            token if entry == Some(&Metrics) && token.is_name() && !found.first => {
                Some("metrics are separated by commas: `metrics accuracy, macro_f1`".to_owned())
            }
            LeftBracket if entry == Some(&Metrics) => {
                Some("metrics stand without brackets: `metrics accuracy, macro_f1`".to_owned())
            }
            At if entry == Some(&Metrics) => {
                Some("metrics of ranks are `hits_1`, `hits_3`, `hits_10`, `recall_20` and `ndcg_20`".to_owned())
            }
            _ if entry == Some(&Stop) && !(expected.has("COMMA")) && expected.has("when") => {
                let numbers = self.tokens[self.at..].iter().take_while(|l| !l.first || l.start == found.start);
                let number = numbers.clone().find(|l| matches!(l.token, Number(_)));
                let number = number.map_or("20", |l| &self.text[l.start..l.end]);
                Some(format!("write `stop when val.loss has not improved for {number} epochs`"))
            }
            Text(_) if expected.has("counted") => Some(
                "a metapath is written as a path: `metapath PAP = Paper <-writes- Author -writes-> Paper`".to_owned(),
            ),
            Text(number) if number.parse::<f64>().is_ok() && expected.has("NUMBER") => {
                Some(format!("numbers stand without quotes: `{number}`"))
            }
            Text(name) if expected.has("NUMBER") || expected.has("NAME") => {
                let place = match previous.map(|l| &l.token) {
                    Some(Optimizer) => Some(Place::Optimizer),
                    Some(Loss) => Some(Place::Loss),
                    Some(Schedule) => Some(Place::Schedule),
                    _ if entry == Some(&Metrics) => Some(Place::Metric),
                    _ => None,
                };
                let meant = place.and_then(|place| synonyms::meant(place, name));
                let name = match meant {
                    Some(Meant::Names([first, ..])) => first,
                    _ => name.as_str(),
                };
                Some(match previous.map(|l| &l.token) {
                    Some(Loss) => format!("names stand without quotes: `loss {name}(OUTPUT, VertexType.label)`"),
                    Some(Optimizer) => format!("names stand without quotes: `optimizer {name}(lr: 0.01)`"),
                    _ => format!("names stand without quotes: `{name}`"),
                })
            }
            Plus | Minus | Star | Slash if next == Some(&Assign) && previous.is_some_and(|l| l.token.is_name()) => {
                let name = self.text_of(self.at - 1);
                Some(format!("names keep their values: `let {name}_2 = {name} {word} …`"))
            }
            LeftParen if expected.has("[") && previous.is_some_and(|l| l.token.is_name()) && !expected.has("NAME") => {
                let width = self.tokens.get(self.at + 1).map_or("…", |l| &self.text[l.start..l.end]);
                Some(format!("widths stand in square brackets: `{}[{width}]`", self.text_of(self.at - 1)))
            }
            LeftParen | TupleOpen if expected.has("[") && !expected.has("NAME") => {
                Some("shapes stand in square brackets: `[heads, hidden]`".to_owned())
            }
            token if token.is_name() && !found.first && frame == Frame::Plain && expected.after_operand() => {
                let name = previous.filter(|l| l.token.is_name())?;
                let name = &self.text[name.start..name.end];
                Some(format!(
                    "arguments stand in parentheses: `{name}({word})`; values are joined by an operator or `,`"
                ))
            }
            _ => None,
        }
    }

    /// The import that was probably meant by a `use` that is spelled otherwise.
    pub(super) fn import_help(&self) -> Option<String> {
        use Token::*;
        if self.tokens.first().is_none_or(|first| first.token != Use) {
            return None;
        }
        let line: Vec<usize> = (1..self.tokens.len()).take_while(|&i| !self.tokens[i].first).collect();
        let texts =
            line.iter().find_map(|&i| if let Text(text) = &self.tokens[i].token { Some(text.clone()) } else { None });
        // `layers.hgnn`, `./layers` and `../parts/layers.hgnn` without quotes.
        let bare = || {
            let sign = |&i: &usize| matches!(self.tokens[i].token, Dot | Slash);
            let last = line.iter().copied().take_while(|i| sign(i) || self.tokens[*i].token.is_name()).last()?;
            let path = self.text.get(self.tokens[1].start..self.tokens[last].end)?;
            let whole = if path.ends_with(".hgnn") { path.to_owned() } else { format!("{path}.hgnn") };
            // The parts of `std.han.HanConv` are those of a module.
            (path.contains('/') || path.ends_with(".hgnn")).then_some(whole)
        };
        let is_name = |&&i: &&usize| matches!(&self.tokens[i].token, Name(name) if name != "as" && name != "import");
        let last_name = line.iter().rfind(is_name).map(|&i| self.text_of(i));
        if self.tokens.get(self.at).is_some_and(|found| found.token == Star) {
            return Some(match texts {
                Some(path) => format!("all of a file is imported by its path alone: `use \"{path}\"`"),
                None => "of a module, name what is used: `use std::rgcn::{RgcnConv, RgcnBasisConv}`".to_owned(),
            });
        }
        if line.iter().any(|&i| self.text_of(i) == "as") {
            return Some("what is imported keeps its name".to_owned());
        }
        let path = texts.clone().or_else(bare)?;
        Some(match (texts.and(last_name), line.iter().any(|&i| self.tokens[i].token == Path)) {
            (Some(name), _) => format!("names of a file stand behind its path: `use \"{path}\"::{name}`"),
            (None, true) => {
                format!("the path of a file stands in quotes: `use \"{path}\"::{}`", last_name.unwrap_or("NAME"))
            }
            (None, false) => format!("the path of a file stands in quotes: `use \"{path}\"`"),
        })
    }

    /// Is the call at the mistake a method call on `x.`?
    fn is_method(&self) -> bool {
        self.at >= 3 && self.tokens[self.at - 1].token.is_name() && self.tokens[self.at - 2].token == Token::Dot
    }

    /// The keyword of the train block entry that contains `group`.
    fn entry(&self, groups: &Groups, group: usize) -> Option<&Token> {
        let mut group = group;
        let mut at = self.at;
        while groups.list[group].frame == Frame::Plain {
            at = groups.list[group].open;
            group = groups.list[group].parent;
        }
        let is_head = |&i: &usize| groups.of[i] == group && self.tokens[i].first;
        let head = (groups.begin(group)..at.min(self.tokens.len())).rev().find(is_head);
        head.map(|head| &self.tokens[head].token).filter(|_| groups.list[group].frame == Frame::Train)
    }

    /// Advice about the innermost enclosing call of a function of another language.
    fn foreign_call(&self, groups: &Groups, group: usize) -> Option<&'static str> {
        let mut group = group;
        while groups.list[group].frame == Frame::Plain {
            let open = groups.list[group].open;
            let callee = open.checked_sub(1).filter(|&name| self.tokens[name].token.is_name());
            let meant = callee.and_then(|name| synonyms::meant(Place::Function, self.text_of(name)));
            if let (Some(Meant::Advice(advice)), Token::LeftParen) = (meant, &self.tokens[open].token) {
                return Some(advice);
            }
            group = groups.list[group].parent;
        }
        None
    }

    /// The text of the operand that ends with the token `last`: a name with its fields, or a bracketed expression.
    fn operand(&self, last: usize) -> &str {
        let mut start = last;
        if self.tokens[last].token.is_closing() {
            let mut depth = 0usize;
            while start > 0 {
                depth += usize::from(self.tokens[start].token.is_closing());
                depth -= usize::from(self.tokens[start].token.is_opening());
                if depth == 0 {
                    break;
                }
                start -= 1;
            }
            if start > 0 && self.tokens[start - 1].token.is_name() {
                start -= 1;
            }
        }
        while start >= 2 && self.tokens[start - 1].token == Token::Dot && self.tokens[start - 2].token.is_name() {
            start -= 2;
        }
        let text = self.text.get(self.tokens[start].start..self.tokens[last].end).unwrap_or("x");
        if text.contains('\n') { "x" } else { text }
    }

    /// The syntax of a relation, metapath or family, filled in from triples of names.
    pub(super) fn triples_help(&self) -> Option<String> {
        let start = (self.at.saturating_sub(4)..=self.at).rev().find(|&i| {
            self.tokens
                .get(i)
                .is_some_and(|l| matches!(l.token, Token::Relation | Token::Metapath | Token::Over | Token::Family))
        })?;
        let triples = self.triples(start);
        let first = triples.first()?;
        match self.tokens[start].token {
            Token::Relation => {
                let (src, dst) = (self.vertex(first.src), self.vertex(first.dst));
                Some(format!("write `relation {}: {src} -> {dst}`", named(first.relation)))
            }
            Token::Metapath => {
                let name = self.tokens.get(start + 1).filter(|l| l.token.is_name());
                let name = name.map_or("NAME", |l| &self.text[l.start..l.end]);
                let mut path = self.vertex(first.src);
                for triple in &triples {
                    let against =
                        triple.relation.strip_prefix("rev_").or_else(|| triple.relation.strip_prefix("reverse_"));
                    let relation = named(against.unwrap_or(triple.relation));
                    let backwards = against.is_some() || self.ends_elsewhere(&relation, triple);
                    let (left, right) = if backwards { ("<-", "-") } else { ("-", "->") };
                    path += &format!(" {left}{relation}{right} {}", self.vertex(triple.dst));
                }
                Some(format!("write `metapath {name} = {path}`"))
            }
            _ => {
                let names: Vec<String> = triples.iter().map(|triple| named(triple.relation)).collect();
                Some(format!("semantic graphs go by their names: `[{}]`", names.join(", ")))
            }
        }
    }

    /// The triples of strings after the token at `start`.
    fn triples(&self, start: usize) -> Vec<Triple<'_>> {
        let mut strings: Vec<&str> = vec![];
        let mut triples = vec![];
        for lexeme in self.tokens[start + 1..].iter() {
            match &lexeme.token {
                Token::LeftParen => strings.clear(),
                Token::Text(text) => strings.push(text),
                Token::RightParen => match strings[..] {
                    [src, relation, dst] => triples.push(Triple { src, relation, dst }),
                    _ => break,
                },
                Token::Comma | Token::LeftBracket | Token::Assign => {}
                token if token.is_name() && triples.is_empty() && strings.is_empty() => {}
                _ => break,
            }
        }
        triples
    }

    /// The vertex type with this name, in the model or in the dataset; otherwise the name itself.
    fn vertex(&self, name: &str) -> String {
        for (index, lexeme) in self.tokens.iter().enumerate() {
            let Some(declared) = self.tokens.get(index + 1).filter(|_| lexeme.token == Token::Vertex) else { continue };
            let own = &self.text[declared.start..declared.end];
            let of_dataset =
                match (self.tokens.get(index + 2).map(|l| &l.token), self.tokens.get(index + 3).map(|l| &l.token)) {
                    (Some(Token::From), Some(Token::Text(text))) => Some(text.as_str()),
                    _ => None,
                };
            if synonyms::fold(own) == synonyms::fold(name) || of_dataset == Some(name) {
                return own.to_owned();
            }
        }
        named(name)
    }

    /// Is the relation declared in the opposite direction?
    fn ends_elsewhere(&self, relation: &str, triple: &Triple<'_>) -> bool {
        let text = |index: usize| self.tokens.get(index).map(|l| &self.text[l.start..l.end]);
        self.tokens.iter().enumerate().any(|(index, lexeme)| {
            lexeme.token == Token::Relation
                && text(index + 1) == Some(relation)
                && text(index + 3) == Some(self.vertex(triple.dst).as_str())
                && text(index + 5) == Some(self.vertex(triple.src).as_str())
        })
    }
}

/// Converts a dataset name to a name of the language.
fn named(name: &str) -> String {
    let plain =
        name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| c.is_ascii_digit());
    if plain && !name.is_empty() { name.to_owned() } else { format!("`{name}`") }
}
