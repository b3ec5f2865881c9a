//! Parser of the text that [`crate::print()`] writes. Comments extend from `//` or, outside brackets, `;` to the
//! end of the line.
//!
//! The parser checks syntax only: operands may refer to values that do not exist, and types are taken as written, so
//! that test cases can contain invalid programs. [`crate::verify()`] checks them.

mod lexer;
mod tables;
mod values;

use std::collections::BTreeMap;
use std::fmt;

use crate::dataflow::Dataflow;
use crate::types::{Graph, Input, Param, Value, VertexType};
use crate::verify::Place;

pub use lexer::Token;
use lexer::{Spanned, tokens};

/// A syntax error with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ParseError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A program with the source lines of its parts.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Parsed {
    pub flow: Dataflow,
    /// The line of each table row, value and output, counted from 1.
    pub lines: BTreeMap<Place, usize>,
}

/// Parses a program in the text format.
///
/// # Errors
/// The first syntax error.
pub fn parse(text: &str) -> Result<Dataflow, ParseError> {
    parse_with_lines(text).map(|parsed| parsed.flow)
}

/// Parses a program and records the lines of its parts.
///
/// # Errors
/// The first syntax error.
pub fn parse_with_lines(text: &str) -> Result<Parsed, ParseError> {
    let mut parser = Parser::new(text)?;
    parser.program()?;
    Ok(parser.parsed)
}

/// Consumes tokens and accumulates the program in `parsed`. The text forms of all levels have the same declarations, so the
/// parsers of lower levels are made of it.
pub struct Parser {
    tokens: Vec<Spanned>,
    /// The position of the next token.
    pub next: usize,
    /// The program up to the next token.
    pub parsed: Parsed,
}

/// A part of the text, or the first syntax error in it.
pub type Parse<T> = Result<T, ParseError>;

impl Parser {
    /// A parser at the beginning of a text.
    ///
    /// # Errors
    /// A character that begins no token.
    pub fn new(text: &str) -> Parse<Self> {
        let parsed = Parsed { flow: Dataflow::default(), lines: BTreeMap::new() };
        Ok(Self { tokens: tokens(text)?, next: 0, parsed })
    }

    /// The line of the next token.
    pub fn line(&self) -> usize {
        self.tokens[self.next].line
    }

    /// The token after the next one.
    pub fn after_next(&self) -> &Token {
        &self.tokens[(self.next + 1).min(self.tokens.len() - 1)].token
    }

    // ---- tokens -------------------------------------------------------------------------------

    /// The next token.
    pub fn peek(&self) -> &Token {
        &self.tokens[self.next].token
    }

    /// Consumes the next token. The end stays.
    pub fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// A syntax error at the next token.
    ///
    /// # Errors
    /// Always.
    pub fn error<T>(&self, message: impl Into<String>) -> Parse<T> {
        self.error_at(self.next, message)
    }

    /// A syntax error at the token of this position.
    ///
    /// # Errors
    /// Always.
    pub fn error_at<T>(&self, token: usize, message: impl Into<String>) -> Parse<T> {
        let Spanned { line, column, .. } = self.tokens[token];
        Err(ParseError { line, column, message: message.into() })
    }

    /// The error that something else was expected than the next token.
    ///
    /// # Errors
    /// Always.
    pub fn expected<T>(&self, what: &str) -> Parse<T> {
        self.error(format!("expected {what}, found {}", self.peek()))
    }

    /// Consumes a sign if it comes next, and returns whether it did.
    pub fn accept(&mut self, sign: &'static str) -> bool {
        let found = *self.peek() == Token::Sign(sign);
        if found {
            self.take();
        }
        found
    }

    /// Consumes a sign.
    ///
    /// # Errors
    /// Unless it comes next.
    pub fn sign(&mut self, sign: &'static str) -> Parse<()> {
        if self.accept(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    /// Consumes a keyword if it comes next, and returns whether it did.
    pub fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(found) if found == word);
        if found {
            self.take();
        }
        found
    }

    /// Consumes a keyword.
    ///
    /// # Errors
    /// Unless it comes next.
    pub fn word(&mut self, word: &str) -> Parse<()> {
        if self.accept_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    /// Consumes a name, with or without quotes.
    ///
    /// # Errors
    /// Unless one comes next.
    pub fn name(&mut self) -> Parse<String> {
        match self.peek() {
            Token::Word(name) | Token::Quoted(name) => {
                let name = name.clone();
                self.take();
                Ok(name)
            }
            Token::Number(_) | Token::Value(_) | Token::Sign(_) | Token::End => self.expected("a name"),
        }
    }

    /// Consumes an integer of a type.
    ///
    /// # Errors
    /// Unless one comes next that the type can hold.
    pub fn integer<T: std::str::FromStr>(&mut self) -> Parse<T> {
        if let Token::Number(digits) = self.peek()
            && let Ok(number) = digits.parse()
        {
            self.take();
            return Ok(number);
        }
        self.expected("a number")
    }

    /// Consumes a number.
    ///
    /// # Errors
    /// Unless one comes next.
    pub fn float(&mut self) -> Parse<f64> {
        let number = match self.peek() {
            Token::Number(text) => text.parse().ok(),
            Token::Word(word) if word == "inf" || word == "NaN" => word.parse().ok(),
            Token::Word(_) | Token::Quoted(_) | Token::Value(_) | Token::Sign(_) | Token::End => None,
        };
        match number {
            Some(number) => {
                self.take();
                Ok(number)
            }
            None => self.expected("a number"),
        }
    }

    fn value(&mut self) -> Parse<Value> {
        match *self.peek() {
            Token::Value(index) => {
                self.take();
                Ok(Value(index))
            }
            _ => self.expected("a value"),
        }
    }

    // ---- table rows ---------------------------------------------------------------------------

    /// Resolves the next name to the position of its table row.
    fn row(&mut self, what: &str, find: impl Fn(&Dataflow, &str) -> Option<usize>) -> Parse<usize> {
        let at = self.next;
        let name = self.name()?;
        match find(&self.parsed.flow, &name) {
            Some(row) => Ok(row),
            None => self.error_at(at, format!("there is no {what} `{name}`")),
        }
    }

    /// The vertex type that comes next by its name.
    ///
    /// # Errors
    /// Unless it is declared.
    pub fn vertex(&mut self) -> Parse<VertexType> {
        let find = |flow: &Dataflow, name: &str| flow.vertex_types.iter().position(|decl| decl.name == name);
        self.row("vertex type", find).map(VertexType::new)
    }

    fn relation(&mut self) -> Parse<u32> {
        let find = |flow: &Dataflow, name: &str| flow.relations.iter().position(|decl| decl.name == name);
        Ok(self.row("relation", find)? as u32)
    }

    /// The graph that comes next by its name.
    ///
    /// # Errors
    /// Unless it is declared.
    pub fn graph(&mut self) -> Parse<Graph> {
        let find = |flow: &Dataflow, name: &str| flow.graphs.iter().position(|decl| decl.name == name);
        self.row("graph", find).map(Graph::new)
    }

    /// The input that comes next by its name.
    ///
    /// # Errors
    /// Unless it is declared.
    pub fn input(&mut self) -> Parse<Input> {
        let find = |flow: &Dataflow, name: &str| flow.inputs.iter().position(|decl| decl.name == name);
        self.row("input", find).map(Input::new)
    }

    /// The parameter that comes next by its name.
    ///
    /// # Errors
    /// Unless it is declared.
    pub fn param(&mut self) -> Parse<Param> {
        let find = |flow: &Dataflow, name: &str| flow.params.iter().position(|decl| decl.name == name);
        self.row("parameter", find).map(Param::new)
    }

    /// An optimizer state of a parameter: `w[0]`.
    ///
    /// # Errors
    /// Unless one comes next.
    pub fn slot(&mut self) -> Parse<(Param, u32)> {
        let param = self.param()?;
        self.sign("[")?;
        let slot = self.integer()?;
        self.sign("]")?;
        Ok((param, slot))
    }

    // ---- the program --------------------------------------------------------------------------

    fn program(&mut self) -> Parse<()> {
        self.word("dataflow")?;
        self.parsed.flow.name = self.name()?;
        self.sign("{")?;
        while !self.accept("}") {
            let line = self.line();
            let place = self.item()?;
            self.parsed.lines.insert(place, line);
        }
        if *self.peek() == Token::End { Ok(()) } else { self.expected("the end") }
    }
}
