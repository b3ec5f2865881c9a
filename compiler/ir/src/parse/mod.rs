//! Parser of the text that [`crate::print()`] writes. Comments extend from `//` or, outside brackets, `;` to the
//! end of the line.
//!
//! The parser checks syntax only: operands may refer to values that do not exist, and types are taken as written, so
//! that test cases can contain invalid programs. [`crate::verify()`] checks them.

mod lexer;
mod values;

use std::collections::BTreeMap;
use std::fmt;

use crate::dataflow::{
    Binding, Dataflow, GraphDecl, Init, InputDecl, Output, OutputKind, ParamDecl, PathDecl, PatternDecl, RelationDecl,
    Step, VertexTypeDecl,
};
use crate::ops::Direction;
use crate::stacks::{Incidence, StackDecl, VertexRows};
use crate::types::{DType, Dim, Graph, Input, Layout, Param, Pattern, Space, Stack, Type, Value, VertexType};
use crate::verify::Place;

pub(crate) use lexer::Token;
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

/// Consumes tokens and accumulates the program in `parsed`.
pub(crate) struct Parser {
    tokens: Vec<Spanned>,
    pub(crate) next: usize,
    pub(crate) parsed: Parsed,
}

pub(crate) type Parse<T> = Result<T, ParseError>;

impl Parser {
    pub(crate) fn new(text: &str) -> Parse<Self> {
        let parsed = Parsed { flow: Dataflow::default(), lines: BTreeMap::new() };
        Ok(Self { tokens: tokens(text)?, next: 0, parsed })
    }

    /// The line of the next token.
    pub(crate) fn line(&self) -> usize {
        self.tokens[self.next].line
    }

    /// The token after the next one.
    pub(crate) fn after_next(&self) -> &Token {
        &self.tokens[(self.next + 1).min(self.tokens.len() - 1)].token
    }

    // ---- tokens -------------------------------------------------------------------------------

    pub(crate) fn peek(&self) -> &Token {
        &self.tokens[self.next].token
    }

    pub(crate) fn take(&mut self) -> Token {
        let token = self.peek().clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// A syntax error at the next token.
    pub(crate) fn error<T>(&self, message: impl Into<String>) -> Parse<T> {
        self.error_at(self.next, message)
    }

    pub(crate) fn error_at<T>(&self, token: usize, message: impl Into<String>) -> Parse<T> {
        let Spanned { line, column, .. } = self.tokens[token];
        Err(ParseError { line, column, message: message.into() })
    }

    pub(crate) fn expected<T>(&self, what: &str) -> Parse<T> {
        self.error(format!("expected {what}, found {}", self.peek()))
    }

    pub(crate) fn accept(&mut self, sign: &'static str) -> bool {
        let found = *self.peek() == Token::Sign(sign);
        if found {
            self.take();
        }
        found
    }

    pub(crate) fn sign(&mut self, sign: &'static str) -> Parse<()> {
        if self.accept(sign) { Ok(()) } else { self.expected(&format!("`{sign}`")) }
    }

    pub(crate) fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(found) if found == word);
        if found {
            self.take();
        }
        found
    }

    pub(crate) fn word(&mut self, word: &str) -> Parse<()> {
        if self.accept_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    pub(crate) fn name(&mut self) -> Parse<String> {
        match self.peek() {
            Token::Word(name) | Token::Quoted(name) => {
                let name = name.clone();
                self.take();
                Ok(name)
            }
            Token::Number(_) | Token::Value(_) | Token::Sign(_) | Token::End => self.expected("a name"),
        }
    }

    pub(crate) fn integer<T: std::str::FromStr>(&mut self) -> Parse<T> {
        if let Token::Number(digits) = self.peek()
            && let Ok(number) = digits.parse()
        {
            self.take();
            return Ok(number);
        }
        self.expected("a number")
    }

    pub(crate) fn float(&mut self) -> Parse<f64> {
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

    pub(crate) fn vertex(&mut self) -> Parse<VertexType> {
        let find = |flow: &Dataflow, name: &str| flow.vertex_types.iter().position(|decl| decl.name == name);
        self.row("vertex type", find).map(VertexType::new)
    }

    fn relation(&mut self) -> Parse<u32> {
        let find = |flow: &Dataflow, name: &str| flow.relations.iter().position(|decl| decl.name == name);
        Ok(self.row("relation", find)? as u32)
    }

    pub(crate) fn graph(&mut self) -> Parse<Graph> {
        let find = |flow: &Dataflow, name: &str| flow.graphs.iter().position(|decl| decl.name == name);
        self.row("graph", find).map(Graph::new)
    }

    pub(crate) fn input(&mut self) -> Parse<Input> {
        let find = |flow: &Dataflow, name: &str| flow.inputs.iter().position(|decl| decl.name == name);
        self.row("input", find).map(Input::new)
    }

    pub(crate) fn param(&mut self) -> Parse<Param> {
        let find = |flow: &Dataflow, name: &str| flow.params.iter().position(|decl| decl.name == name);
        self.row("parameter", find).map(Param::new)
    }

    pub(crate) fn slot(&mut self) -> Parse<(Param, u32)> {
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

    pub(crate) fn item(&mut self) -> Parse<Place> {
        if matches!(self.peek(), Token::Value(_)) {
            return self.value_line();
        }
        let at = self.next;
        let Token::Word(keyword) = self.take() else {
            return self.error_at(
                at,
                format!("expected a declaration, a value or an output, found {}", self.tokens[at].token),
            );
        };
        match keyword.as_str() {
            "vertex" => {
                let name = self.name()?;
                let decl = if self.accept("=") {
                    VertexTypeDecl { name, dataset_name: String::new(), rows: self.vertex_rows()? }
                } else {
                    self.word("from")?;
                    VertexTypeDecl::new(name, self.name()?)
                };
                self.parsed.flow.vertex_types.push(decl);
                Ok(Place::VertexType(self.parsed.flow.vertex_types.len() - 1))
            }
            "relation" => {
                let name = self.name()?;
                let (src, dst) = self.ends()?;
                self.word("from")?;
                let dataset_name = self.name()?;
                self.parsed.flow.relations.push(RelationDecl { name, dataset_name, src, dst });
                Ok(Place::Relation(self.parsed.flow.relations.len() - 1))
            }
            "graph" => {
                let name = self.name()?;
                let (src, dst) = self.ends()?;
                self.sign("=")?;
                if matches!(self.after_next(), Token::Sign("(")) {
                    let (stack, incidence) = self.incidence()?;
                    let first = self.parsed.flow.stacks[stack.index()].members[0];
                    let links = incidence == Incidence::Edges && self.parsed.flow.graphs[first.index()].links;
                    let (steps, none, derived) = (vec![], false, Some((stack, incidence)));
                    let decl = GraphDecl { name, src, dst, steps, counted: none, self_loops: none, links, derived };
                    self.parsed.flow.graphs.push(decl);
                    return Ok(Place::Graph(self.parsed.flow.graphs.len() - 1));
                }
                let mut steps = vec![];
                loop {
                    let reverse = if self.accept("<") {
                        true
                    } else if self.accept(">") {
                        false
                    } else {
                        break;
                    };
                    steps.push(Step { relation: self.relation()?, reverse });
                }
                let counted = self.accept_word("counted");
                let self_loops = self.accept_word("self_loops");
                let links = self.accept_word("links");
                self.parsed.flow.graphs.push(GraphDecl {
                    name,
                    src,
                    dst,
                    steps,
                    counted,
                    self_loops,
                    links,
                    derived: None,
                });
                Ok(Place::Graph(self.parsed.flow.graphs.len() - 1))
            }
            "family" => {
                let members = self.graphs()?;
                self.parsed.flow.families.push(members);
                Ok(Place::Family(self.parsed.flow.families.len() - 1))
            }
            "stack" => {
                let name = self.name()?;
                self.sign("=")?;
                let members = self.graphs()?;
                self.parsed.flow.stacks.push(StackDecl { name, members });
                Ok(Place::Stack(self.parsed.flow.stacks.len() - 1))
            }
            "metapath" => {
                let of = self.graph()?;
                self.sign("=")?;
                let mut hops = vec![self.graph()?];
                while self.accept(",") {
                    hops.push(self.graph()?);
                }
                let once = self.accept_word("once");
                self.parsed.flow.paths.push(PathDecl { of, hops, once });
                Ok(Place::Paths(self.parsed.flow.paths.len() - 1))
            }
            "pattern" => {
                let row = self.parsed.flow.patterns.len();
                self.word(&format!("p{row}"))?;
                self.sign(":")?;
                let vertex = self.vertex()?;
                self.word("x")?;
                let columns = self.integer()?;
                self.parsed.flow.patterns.push(PatternDecl { vertex, columns });
                Ok(Place::Pattern(row))
            }
            "input" => {
                let name = self.name()?;
                self.sign(":")?;
                let ty = self.ty()?;
                self.sign("=")?;
                let binding = self.binding()?;
                self.parsed.flow.inputs.push(InputDecl { name, ty, binding });
                Ok(Place::Input(self.parsed.flow.inputs.len() - 1))
            }
            "param" => {
                let name = self.name()?;
                self.sign(":")?;
                let at = self.next;
                let ty = self.ty()?;
                if ty != Type::new(Space::Unit, ty.dims.clone()) {
                    return self.error_at(at, "a parameter is a dense f32 without a space");
                }
                self.sign("=")?;
                let stacked = matches!(self.peek(), Token::Word(word) if word == "stack");
                let entries = if stacked { self.entries()? } else { vec![] };
                let init = if stacked { Init::Constant(0.0) } else { self.init()? };
                let decay = self.accept_word("decay");
                let of = if self.accept_word("of") { Some(self.graph()?) } else { None };
                self.parsed.flow.params.push(ParamDecl { name, dims: ty.dims, init, decay, of, entries });
                Ok(Place::Param(self.parsed.flow.params.len() - 1))
            }
            "result" => {
                let name = self.name()?;
                self.output(OutputKind::Result(name))
            }
            "update" => {
                let param = self.param()?;
                self.output(OutputKind::UpdateParam(param))
            }
            "state" => {
                let (param, slot) = self.slot()?;
                self.output(OutputKind::UpdateState(param, slot))
            }
            _ => self.error_at(at, format!("`{keyword}` does not begin a declaration or an output")),
        }
    }

    fn output(&mut self, kind: OutputKind) -> Parse<Place> {
        self.sign("=")?;
        let value = self.value()?;
        self.parsed.flow.outputs.push(Output { kind, value });
        Ok(Place::Output(self.parsed.flow.outputs.len() - 1))
    }

    fn ends(&mut self) -> Parse<(VertexType, VertexType)> {
        self.sign(":")?;
        let src = self.vertex()?;
        self.sign("->")?;
        Ok((src, self.vertex()?))
    }

    /// Graphs, separated by commas.
    fn graphs(&mut self) -> Parse<Vec<Graph>> {
        let mut graphs = vec![self.graph()?];
        while self.accept(",") {
            graphs.push(self.graph()?);
        }
        Ok(graphs)
    }

    /// The entries of a stack of parameters: `stack(w.cites, w.likes)`.
    fn entries(&mut self) -> Parse<Vec<Param>> {
        self.word("stack")?;
        self.sign("(")?;
        let mut entries = vec![self.param()?];
        while self.accept(",") {
            entries.push(self.param()?);
        }
        self.sign(")")?;
        Ok(entries)
    }

    /// `kind.end(stack)`, for what is derived from a stack.
    fn derived(&mut self) -> Parse<(String, Option<Direction>, Stack)> {
        let at = self.next;
        let text = self.name()?;
        let (kind, end) = text.split_once('.').map_or((&text[..], None), |(kind, end)| (kind, Some(end)));
        let direction = match end {
            None => None,
            Some("dst") => Some(Direction::In),
            Some("src") => Some(Direction::Out),
            Some(_) => return self.error_at(at, format!("nothing is derived from a stack by `{text}`")),
        };
        self.sign("(")?;
        let find = |flow: &Dataflow, name: &str| flow.stacks.iter().position(|decl| decl.name == name);
        let stack = Stack::new(self.row("stack", find)?);
        self.sign(")")?;
        Ok((kind.to_owned(), direction, stack))
    }

    fn vertex_rows(&mut self) -> Parse<VertexRows> {
        let at = self.next;
        let (kind, direction, stack) = self.derived()?;
        match (kind.as_str(), direction) {
            ("members", None) => Ok(VertexRows::Members(stack)),
            ("pairs", Some(direction)) => Ok(VertexRows::Pairs(stack, direction)),
            ("cells", Some(direction)) => Ok(VertexRows::Cells(stack, direction)),
            _ => self.error_at(at, "expected `members`, `pairs.END` or `cells.END`"),
        }
    }

    fn incidence(&mut self) -> Parse<(Stack, Incidence)> {
        let at = self.next;
        let (kind, direction, stack) = self.derived()?;
        let incidence = match (kind.as_str(), direction) {
            ("edges", None) => Incidence::Edges,
            ("vertices", Some(direction)) => Incidence::Vertices(direction),
            ("members", Some(direction)) => Incidence::Members(direction),
            ("cells", Some(direction)) => Incidence::Cells(direction),
            _ => return self.error_at(at, "expected `edges`, `vertices.END`, `members.END` or `cells.END`"),
        };
        Ok((stack, incidence))
    }

    fn dim(&mut self) -> Parse<Dim> {
        if self.accept("|") {
            let vertex = self.vertex()?;
            self.sign("|")?;
            Ok(Dim::Count(vertex))
        } else {
            self.integer().map(Dim::Fixed)
        }
    }

    pub(crate) fn space(&mut self) -> Parse<Space> {
        // A vertex type may have such a name, too.
        let called = self.tokens.get(self.next + 1).is_some_and(|after| after.token == Token::Sign("("));
        let word = match self.peek() {
            Token::Word(word) if called => word.clone(),
            _ => return self.vertex().map(Space::Vertices),
        };
        let of: fn(Graph) -> Space = match word.as_str() {
            "edges" => Space::Edges,
            "sources" => |graph| Space::Ends(graph, Direction::Out),
            "destinations" => |graph| Space::Ends(graph, Direction::In),
            "index" => {
                self.take();
                self.sign("(")?;
                let extent = self.integer()?;
                self.sign(")")?;
                return Ok(Space::Index(extent));
            }
            _ => return self.vertex().map(Space::Vertices),
        };
        self.take();
        self.sign("(")?;
        let graph = self.graph()?;
        self.sign(")")?;
        Ok(of(graph))
    }

    pub(crate) fn ty(&mut self) -> Parse<Type> {
        let dtype = if self.accept_word("i32") {
            DType::I32
        } else if self.accept_word("f32") {
            DType::F32
        } else {
            return self.expected("a type");
        };
        self.sign("[")?;
        let mut dims = vec![];
        let mut space = Space::Unit;
        if matches!(self.peek(), Token::Word(_) | Token::Quoted(_)) {
            space = self.space()?;
            if self.accept(";") {
                dims.push(self.dim()?);
            }
        } else if *self.peek() != Token::Sign("]") {
            dims.push(self.dim()?);
        }
        while !dims.is_empty() && self.accept(",") {
            dims.push(self.dim()?);
        }
        self.sign("]")?;
        let mut layout = Layout::Dense;
        if self.accept_word("sparse") {
            self.sign("(")?;
            let at = self.next;
            let name = self.name()?;
            match name.strip_prefix('p').and_then(|digits| digits.parse().ok()) {
                Some(row) => layout = Layout::Sparse(Pattern(row)),
                None => return self.error_at(at, format!("there is no pattern `{name}`")),
            }
            self.sign(")")?;
        }
        Ok(Type { space, dims, dtype, layout })
    }

    fn binding(&mut self) -> Parse<Binding> {
        let at = self.next;
        let kind = self.name()?;
        match kind.as_str() {
            "step_number" => return Ok(Binding::StepNumber),
            "epoch_number" => return Ok(Binding::EpochNumber),
            _ => {}
        }
        self.sign("(")?;
        let binding = match kind.as_str() {
            "features" => Binding::Features(self.vertex()?),
            "label" => {
                let vertex = self.vertex()?;
                self.sign(",")?;
                Binding::Label(vertex, self.name()?)
            }
            "train_mask" => Binding::TrainMask(self.vertex()?),
            "edge_weight" => Binding::EdgeWeight(self.graph()?),
            "edge_count" => Binding::EdgeCount(self.graph()?),
            "edge_features" => Binding::EdgeFeatures(self.graph()?),
            "edge_rank" => {
                let graph = self.graph()?;
                self.sign(",")?;
                Binding::EdgeRank(graph, self.direction()?)
            }
            "is_link" => Binding::IsLink(self.graph()?),
            "given" => Binding::Given(self.name()?),
            _ => return self.error_at(at, format!("nothing is bound by `{kind}`")),
        };
        self.sign(")")?;
        Ok(binding)
    }

    fn direction(&mut self) -> Parse<Direction> {
        let at = self.next;
        let word = self.name()?;
        match [Direction::In, Direction::Out].into_iter().find(|known| known.name() == word) {
            Some(direction) => Ok(direction),
            None => self.error_at(at, format!("expected `in` or `out`, found `{word}`")),
        }
    }

    fn init(&mut self) -> Parse<Init> {
        let at = self.next;
        let kind = self.name()?;
        self.sign("(")?;
        let init = match kind.as_str() {
            "constant" => Init::Constant(self.float()?),
            "glorot" => {
                let fan_in = self.dim()?;
                self.sign(",")?;
                Init::Glorot { fan_in, fan_out: self.integer()? }
            }
            "he" => Init::He { fan_in: self.dim()? },
            "uniform" => Init::Uniform(self.float()?),
            "normal" => Init::Normal { std: self.float()? },
            _ => return self.error_at(at, format!("no parameter starts as `{kind}`")),
        };
        self.sign(")")?;
        Ok(init)
    }
}
