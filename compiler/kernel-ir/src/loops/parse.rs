//! Parser of the text that [`crate::loops::print()`] writes. Tables, buffers, instructions and operations are those of
//! [`crate::kernel::parse()`].
//!
//! The parser checks syntax only; [`crate::loops::verify()`] checks programs.

use std::cell::Cell;
use std::collections::BTreeMap;

use hgnnc_ir::ops::Direction;
use hgnnc_ir::parse::{Parse, ParseError, Token};
use hgnnc_ir::types::Stage;
use hgnnc_ir::width::Width;

use super::function::{Array, Instr, Row, Shape, Source};
use super::verify::Place;
use super::{Access, Call, CallResult, EdgePass, Function, IndexArray, Loop, Nest, Program, Step};
use crate::kernel::parse::{Extension, Head, Over, Reader, parse_extended};
use crate::kernel::{KernelOp, Level, Rows, Traversal};

/// A program with the source lines of its parts.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Parsed {
    pub program: Program,
    /// The line of each part, counted from 1.
    pub lines: BTreeMap<Place, usize>,
}

/// Parses a program in the text format.
///
/// # Errors
/// The first syntax error.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    parse_with_lines(text).map(|parsed| parsed.program)
}

/// Parses a program and records the lines of its parts.
///
/// # Errors
/// The first syntax error.
pub fn parse_with_lines(text: &str) -> Result<Parsed, ParseError> {
    let (kernels, Loops { mut nests, functions, mut lines }) = parse_extended::<Loops>(text)?;
    nests.resize(kernels.program.kernels().count(), None);
    lines.extend(kernels.lines.into_iter().map(|(place, line)| (Place::Kernels(place), line)));
    Ok(Parsed { program: Program { kernels: kernels.program, nests, functions }, lines })
}

/// The nests and functions of a loops text, beside its kernels.
#[derive(Default)]
struct Loops {
    /// The nests of the kernels so far; those of the last ones may be missing.
    nests: Vec<Option<Nest>>,
    functions: Vec<Function>,
    lines: BTreeMap<Place, usize>,
}

impl Extension for Loops {
    const KEYWORD: &'static str = "loops";

    fn body(reader: &mut Reader<Self>, kernel: usize, stage: Stage, traversal: &mut Traversal) -> Parse<()> {
        let mut first_deferred = None;
        while !matches!(reader.base.peek(), Token::Word(word) if matches!(&word[..], "loop" | "group" | "pass"))
            && *reader.base.peek() != Token::Sign("}")
        {
            let number = traversal.instrs.len();
            reader.base.word(&format!("i{number}"))?;
            reader.instr(kernel, stage, traversal)?;
            match (reader.base.accept_word("deferred"), first_deferred) {
                (true, None) => first_deferred = Some(number),
                (false, Some(_)) => return reader.base.expected("`deferred`: the deferred instructions are the last"),
                (true, Some(_)) | (false, None) => {}
            }
        }
        let first_deferred = first_deferred.unwrap_or(traversal.instrs.len());
        let nest = reader.nest(kernel, &traversal.rows, first_deferred)?;
        let nests = &mut reader.extension.nests;
        nests.resize(kernel, None);
        nests.push(Some(nest));
        Ok(())
    }

    fn item(reader: &mut Reader<Self>, keyword: &str) -> Parse<bool> {
        if keyword != "function" {
            return Ok(false);
        }
        let number = reader.extension.functions.len();
        reader.extension.lines.insert(Place::Function(number), reader.base.line());
        reader.base.take();
        reader.base.word(&format!("f{number}"))?;
        let function = reader.function(number)?;
        reader.extension.functions.push(function);
        Ok(true)
    }
}

impl Reader<Loops> {
    /// Groups and passes.
    fn nest(&mut self, kernel: usize, rows: &Rows, first_deferred: usize) -> Parse<Nest> {
        let mut nest = Nest { first_deferred, ..Nest::default() };
        let mut num_loops = 0;
        while *self.base.peek() != Token::Sign("}") {
            if nest.passes.is_empty() && self.base.accept_word("group") {
                self.number(nest.groups.len())?;
                nest.groups.push(vec![]);
                continue;
            }
            if self.base.accept_word("pass") {
                self.number(nest.passes.len())?;
                nest.passes.push(EdgePass::default());
                continue;
            }
            let at = self.base.next;
            self.extension.lines.insert(Place::Loop(kernel, num_loops), self.base.line());
            num_loops += 1;
            let looped = self.looped(rows)?;
            let list = match (nest.passes.last_mut(), looped.level) {
                (Some(pass), Level::Row) if pass.edges.is_empty() => &mut pass.rows,
                (Some(_), Level::Row) => return self.base.error_at(at, "the rows of a pass come before its edges"),
                (Some(pass), Level::Edge) => &mut pass.edges,
                (None, _) => {
                    if nest.groups.is_empty() {
                        nest.groups.push(vec![]);
                    }
                    nest.groups.last_mut().expect("there is a group")
                }
            };
            list.push(looped);
        }
        Ok(nest)
    }

    /// The number of the next group or pass.
    fn number(&mut self, expected: usize) -> Parse<()> {
        match self.base.peek() {
            Token::Number(found) if *found == expected.to_string() => {
                self.base.take();
                Ok(())
            }
            _ => self.base.expected(&format!("`{expected}`")),
        }
    }

    fn looped(&mut self, rows: &Rows) -> Parse<Loop> {
        self.base.word("loop")?;
        let level = match self.base.accept_word("rows") {
            true => Level::Row,
            false => self.base.word("edges").map(|()| Level::Edge)?,
        };
        let tile = if self.base.accept_word("by") { Some(self.base.integer()?) } else { None };
        self.base.sign(":")?;
        let mut steps = vec![];
        loop {
            if let Some(instr) = self.numbered('i') {
                steps.push(Step::Instr(instr));
            } else if let Some(function) = self.numbered('f') {
                steps.push(Step::Call(self.call(function, rows, level)?));
            } else {
                return Ok(Loop { level, tile, steps });
            }
        }
    }

    /// Takes the next word if it is a letter with a number.
    fn numbered(&mut self, letter: char) -> Option<usize> {
        let Token::Word(word) = self.base.peek() else { return None };
        let number = word.strip_prefix(letter)?.parse().ok()?;
        self.base.take();
        Some(number)
    }

    /// A letter with a number.
    fn index(&mut self, letter: char) -> Parse<usize> {
        match self.numbered(letter) {
            Some(number) => Ok(number),
            None => self.base.expected(&format!("`{letter}` with a number")),
        }
    }

    fn call(&mut self, function: usize, rows: &Rows, level: Level) -> Parse<Call> {
        let (mut instrs, mut arrays, mut indices, mut results, mut replaced) = (vec![], vec![], vec![], vec![], vec![]);
        self.base.sign("(")?;
        while !self.base.accept(")") {
            instrs.push(self.index('i')?);
        }
        if self.base.accept_word("of") {
            self.list(&mut arrays, |reader| reader.operand(rows, level))?;
        }
        if self.base.accept_word("by") {
            self.list(&mut indices, Self::index_array)?;
        }
        if self.base.accept("->") {
            self.list(&mut results, |reader| {
                let of = match () {
                    () if reader.base.accept_word("owners") => CallResult::Owners,
                    () if reader.base.accept_word("total") => CallResult::Total,
                    () => CallResult::Tile,
                };
                reader.index('i').map(of)
            })?;
        }
        if self.base.accept_word("overwrites") {
            self.list(&mut replaced, |reader| {
                let array = reader.index('a')?;
                reader.base.word("by")?;
                Ok((array, reader.index('r')?))
            })?;
        }
        Ok(Call { function, instrs, arrays, indices, results, replaced })
    }

    /// At least one item, separated by commas.
    fn list<T>(&mut self, items: &mut Vec<T>, item: impl Fn(&mut Self) -> Parse<T>) -> Parse<()> {
        items.push(item(self)?);
        while self.base.accept(",") {
            items.push(item(self)?);
        }
        Ok(())
    }

    fn index_array(&mut self) -> Parse<IndexArray> {
        if self.base.accept_word("labels") {
            return self.base.input().map(IndexArray::Labels);
        }
        if self.base.accept_word("endpoint") {
            let graph = self.base.graph()?;
            let direction = match self.base.accept_word("in") {
                true => Direction::In,
                false => self.base.word("out").map(|()| Direction::Out)?,
            };
            return Ok(IndexArray::Picked(Access::End(graph, direction)));
        }
        let at = self.base.next;
        let name = self.base.name()?;
        match Access::PLAIN.into_iter().find(|access| access.name() == name) {
            Some(access) => Ok(IndexArray::Picked(access)),
            None => self.base.error_at(at, format!("no rows are picked by `{name}`")),
        }
    }

    fn function(&mut self, number: usize) -> Parse<Function> {
        self.base.sign(":")?;
        let shape = match self.base.accept_word("items") {
            true => Shape::Items,
            false => self.base.word("segments").map(|()| Shape::Segments)?,
        };
        self.base.sign(",")?;
        self.base.word("indices")?;
        let num_indices = self.base.integer()?;
        self.base.sign(",")?;
        self.base.word("results")?;
        let num_results = self.base.integer()?;
        self.base.sign("{")?;
        let (mut arrays, mut instrs) = (vec![], vec![]);
        while !self.base.accept("}") {
            if instrs.is_empty() && self.base.accept_word(&format!("a{}", arrays.len())) {
                arrays.push(self.array()?);
            } else {
                self.extension.lines.insert(Place::Value(number, instrs.len()), self.base.line());
                self.base.word(&format!("v{}", instrs.len()))?;
                instrs.push(self.value()?);
            }
        }
        Ok(Function { shape, arrays, instrs, num_indices, num_results })
    }

    fn array(&mut self) -> Parse<Array> {
        let at = self.base.next;
        let row = match self.base.name()?.as_str() {
            "each" => Row::Each,
            "same" => Row::Same,
            "owner" => Row::Owner,
            "picked" => Row::Picked(self.in_brackets()?),
            other => return self.base.error_at(at, format!("no rows are `{other}`")),
        };
        let width = self.base.integer()?;
        let changes = self.base.accept(",");
        if changes {
            self.base.word("changes")?;
        }
        Ok(Array { width, row, changes })
    }

    fn in_brackets(&mut self) -> Parse<u32> {
        self.base.sign("(")?;
        let number = self.base.integer()?;
        self.base.sign(")")?;
        Ok(number)
    }

    /// An instruction of a function, after its name.
    fn value(&mut self) -> Parse<Instr> {
        self.base.sign("=")?;
        let at = self.base.next;
        let begin = |reader: &mut Self, mnemonic: &str, head: &Head| match head.over() {
            Some(Over::Rows | Over::Edges) => reader.base.error_at(at, format!("`{mnemonic}` reduces no items")),
            Some(Over::Items) | None => Ok(()),
        };
        let (op, ()) = self.op(begin, |reader, ()| reader.function_source())?;
        let is_fixed = Cell::new(true);
        let fixed = |width: &Width| {
            is_fixed.set(is_fixed.get() && width.as_fixed().is_some());
            width.factor()
        };
        let op: KernelOp<Source, usize> = op.map(|&source| source, fixed);
        if !is_fixed.get() {
            return self.base.error_at(at, "the widths of a function are numbers");
        }
        let width = self.base.integer()?;
        let result = if self.base.accept("->") { Some(self.index('r')?) } else { None };
        Ok(Instr { op, width, result })
    }

    fn function_source(&mut self) -> Parse<Source> {
        if let Some(array) = self.numbered('a') {
            return Ok(Source::Array(array));
        }
        if let Some(value) = self.numbered('v') {
            return Ok(Source::Value(value));
        }
        if self.base.accept_word("label") {
            return self.in_brackets().map(Source::Label);
        }
        self.base.expected("an array, a value or a label")
    }
}
