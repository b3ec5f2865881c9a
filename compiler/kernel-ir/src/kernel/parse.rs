//! Parser of the text that [`crate::kernel::print()`] writes. Comments extend from `//` to the end of the line.
//!
//! As with dataflow programs, the parser checks syntax only; [`crate::kernel::verify()`] checks programs.

use std::collections::BTreeMap;

use hgnnc_ir::dataflow::OutputKind;
use hgnnc_ir::metapath::MetapathTerm;
use hgnnc_ir::ops::{BinaryOp, Direction, Extreme, Reduce, UnaryOp};
use hgnnc_ir::parse::{Parse, ParseError, Parser, Token};
use hgnnc_ir::types::{Pattern, Provenance, Space, Stage};

use super::print::index_words;
use super::verify::Place;
use super::{
    Body, Buffer, BufferDecl, Contents, Dest, Exchange, Extent, Extents, FactoredMetapath, FactoredOut, Gemm, Index,
    Instr, Kernel, KernelOp, Launch, Level, Local, Operand, Output, Pieces, ProductForm, Program, Rows, Source,
    Traversal, Width,
};

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
    parse_extended(text).map(|(parsed, Kernels)| parsed)
}

/// The parts of a text that a level which builds on kernels adds to theirs; see [`super::print::Extension`].
pub(crate) trait Extension: Default {
    /// The word that the text begins with.
    const KEYWORD: &'static str;

    /// Parses the part of a kernel inside its braces: instructions ([`Reader::instr`]) and what follows them.
    fn body(reader: &mut Reader<Self>, kernel: usize, stage: Stage, traversal: &mut Traversal) -> Parse<()>;

    /// Parses an item of this level only, which begins with `keyword`. `false`: there is none.
    fn item(reader: &mut Reader<Self>, keyword: &str) -> Parse<bool>;
}

/// The text of kernels alone.
#[derive(Default)]
struct Kernels;

impl Extension for Kernels {
    const KEYWORD: &'static str = "kernels";

    fn body(reader: &mut Reader<Self>, kernel: usize, stage: Stage, traversal: &mut Traversal) -> Parse<()> {
        while *reader.base.peek() != Token::Sign("}") {
            reader.instr(kernel, stage, traversal)?;
        }
        Ok(())
    }

    fn item(_reader: &mut Reader<Self>, _keyword: &str) -> Parse<bool> {
        Ok(false)
    }
}

/// Parses a program with what another level adds.
pub(crate) fn parse_extended<X: Extension>(text: &str) -> Result<(Parsed, X), ParseError> {
    let (program, lines) = (Program::default(), BTreeMap::new());
    let extension = X::default();
    let mut reader = Reader { base: Parser::new(text)?, extension, program, aliased: vec![], lines, num_kernels: 0 };
    reader.program()?;
    let Reader { base, extension, mut program, mut lines, .. } = reader;
    program.tables = base.parsed.flow;
    lines.extend(base.parsed.lines.into_iter().map(|(place, line)| (Place::Table(place), line)));
    Ok((Parsed { program, lines }, extension))
}

/// The ways in which a buffer shares memory with another one.
#[derive(Clone, Copy)]
enum Alias {
    Replaces,
    Extends,
}

/// Consumes tokens and accumulates the program.
pub(crate) struct Reader<X> {
    pub base: Parser,
    /// The parts of a level that builds on kernels, such as nests.
    pub extension: X,
    program: Program,
    /// Aliasing buffers, with the token positions and names of their targets.
    aliased: Vec<(Buffer, Alias, usize, String)>,
    lines: BTreeMap<Place, usize>,
    num_kernels: usize,
}

impl<X: Extension> Reader<X> {
    fn program(&mut self) -> Parse<()> {
        self.base.word(X::KEYWORD)?;
        self.base.parsed.flow.name = self.base.name()?;
        self.base.sign("{")?;
        while !self.base.accept("}") {
            let line = self.base.line();
            let keyword = match self.base.peek() {
                Token::Word(word) => word.clone(),
                _ => String::new(),
            };
            match keyword.as_str() {
                "buffer" => {
                    self.base.take();
                    self.buffer_decl()?;
                    self.lines.insert(Place::Buffer(self.program.buffers.len() - 1), line);
                }
                "prelude" => {
                    self.base.take();
                    self.base.sign("{")?;
                    while !self.base.accept("}") {
                        let launch = self.launch()?;
                        self.program.prelude.push(launch);
                    }
                }
                "gemm" | "factored" | "exchange" | "kernel" | "launch" => {
                    let launch = self.launch()?;
                    self.program.launches.push(launch);
                }
                "result" | "update" | "state" => {
                    self.output()?;
                    self.lines.insert(Place::Output(self.program.outputs.len() - 1), line);
                }
                "vertex" | "relation" | "graph" | "family" | "stack" | "metapath" | "paths" | "pattern" | "input"
                | "param" => {
                    let place = self.base.item()?;
                    self.base.parsed.lines.insert(place, line);
                }
                other if X::item(self, other)? => {}
                _ => return self.base.expected("a declaration, a kernel or an output"),
            }
        }
        self.find_aliased()?;
        if *self.base.peek() == Token::End { Ok(()) } else { self.base.expected("the end") }
    }

    fn buffer_decl(&mut self) -> Parse<()> {
        let name = self.base.name()?;
        self.base.sign(":")?;
        let ty = self.base.ty()?;
        let contents = if self.base.accept("=") {
            let at = self.base.next;
            match self.base.name()?.as_str() {
                "input" => Contents::Input(self.base.input()?),
                "param" => Contents::Param(self.base.param()?),
                "state" => {
                    let (param, slot) = self.base.slot()?;
                    Contents::State(param, slot)
                }
                other => return self.base.error_at(at, format!("no buffer holds `{other}`")),
            }
        } else {
            Contents::Computed
        };
        for (word, alias) in [("replaces", Alias::Replaces), ("extends", Alias::Extends)] {
            if self.base.accept_word(word) {
                // The target may be declared later.
                let (at, target) = (self.base.next, self.base.name()?);
                self.aliased.push((Buffer::new(self.program.buffers.len()), alias, at, target));
            }
        }
        self.program.buffers.push(BufferDecl { name, ty, contents, replaces: None, extends: None });
        Ok(())
    }

    /// Resolves the targets of aliasing buffers after all declarations.
    fn find_aliased(&mut self) -> Parse<()> {
        for (new, alias, at, name) in std::mem::take(&mut self.aliased) {
            let Some(target) = self.program.buffers.iter().position(|decl| decl.name == name) else {
                return self.base.error_at(at, format!("there is no buffer `{name}`"));
            };
            let (decl, target) = (&mut self.program.buffers[new.index()], Some(Buffer::new(target)));
            match alias {
                Alias::Replaces => decl.replaces = target,
                Alias::Extends => decl.extends = target,
            }
        }
        Ok(())
    }

    fn output(&mut self) -> Parse<()> {
        let kind = match self.base.name()?.as_str() {
            "result" => OutputKind::Result(self.base.name()?),
            "update" => OutputKind::UpdateParam(self.base.param()?),
            _ => {
                let (param, slot) = self.base.slot()?;
                OutputKind::UpdateState(param, slot)
            }
        };
        self.base.sign("=")?;
        let source = self.source()?;
        self.base.sign(":")?;
        let ty = self.base.ty()?;
        self.program.outputs.push(Output { kind, source, ty });
        Ok(())
    }

    fn launch(&mut self) -> Parse<Launch> {
        let mut launch = Launch::default();
        if self.base.accept_word("launch") {
            if self.base.accept_word("interleave") {
                launch.interleaved = self.base.integer()?;
            }
            self.base.sign("{")?;
            while !self.base.accept("}") {
                launch.kernels.push(self.kernel()?);
            }
        } else {
            launch.kernels.push(self.kernel()?);
        }
        Ok(launch)
    }

    fn kernel(&mut self) -> Parse<Kernel> {
        let line = self.base.line();
        let is_gemm = self.base.accept_word("gemm");
        let is_factored = !is_gemm && self.base.accept_word("factored");
        let is_exchange = !is_gemm && !is_factored && self.base.accept_word("exchange");
        if !is_gemm && !is_factored && !is_exchange {
            self.base.word("kernel")?;
        }
        let number = self.num_kernels;
        self.num_kernels += 1;
        self.lines.insert(Place::Kernel(number), line);
        self.base.word(&format!("k{number}"))?;
        self.base.sign("@")?;
        let (stage, phase) = self.base.stage()?;
        self.base.sign(":")?;
        let body = if is_gemm {
            Body::Gemm(self.gemm()?)
        } else if is_factored {
            Body::FactoredMetapath(self.factored_metapath()?)
        } else if is_exchange {
            Body::Exchange(self.exchange()?)
        } else {
            Body::Traversal(self.traversal(number, stage)?)
        };
        Ok(Kernel { stage, phase, body })
    }

    fn gemm(&mut self) -> Parse<Gemm> {
        let rows = if self.base.accept_word("once") {
            Space::Unit
        } else {
            self.base.word("rows")?;
            self.base.space()?
        };
        let members = match self.base.accept(",") {
            true => {
                self.base.word("members")?;
                Some(self.base.graph()?)
            }
            false => None,
        };
        self.base.sign("{")?;
        let out = self.buffer()?;
        self.base.sign("=")?;
        let at = self.base.next;
        let name = self.base.name()?;
        let Some(form) = ProductForm::ALL.into_iter().find(|form| form.name() == name) else {
            return self.base.error_at(at, format!("there is no product `{name}`"));
        };
        let of = self.extents()?;
        let x = self.buffer()?;
        self.base.sign(",")?;
        let y = self.buffer()?;
        self.base.sign("}")?;
        Ok(Gemm { form, rows, members, of, x, y, out, from: Provenance::default() })
    }

    fn exchange(&mut self) -> Parse<Exchange> {
        self.base.word("rows")?;
        let rows = self.base.vertex()?;
        let to = if self.base.accept_word("sum") {
            None
        } else {
            self.base.word("to")?;
            Some(self.base.vertex()?)
        };
        self.base.sign("{")?;
        let out = self.buffer()?;
        self.base.sign("=")?;
        let x = self.buffer()?;
        self.base.sign(":")?;
        let width = self.width()?;
        self.base.sign("}")?;
        Ok(Exchange { rows, to, width, x, out, from: Provenance::default() })
    }

    fn factored_metapath(&mut self) -> Parse<FactoredMetapath> {
        self.base.word("rows")?;
        let at = self.base.next;
        let rows = self.base.vertex()?;
        self.base.sign(",")?;
        let direction = if self.base.accept_word("in") {
            Direction::In
        } else {
            self.base.word("out")?;
            Direction::Out
        };
        self.base.word("over")?;
        let first = self.base.graph()?;
        self.base.sign(",")?;
        let second = self.base.graph()?;
        let end = match direction {
            Direction::In => self.base.parsed.flow.graph_end(second, direction),
            Direction::Out => self.base.parsed.flow.graph_end(first, direction),
        };
        if end != Space::Vertices(rows) {
            return self.base.error_at(at, "these paths belong to rows of another vertex type");
        }
        self.base.sign("{")?;
        self.base.word("score")?;
        let score = self.base.slopes()?;
        let x = self.buffer()?;
        self.base.sign("+")?;
        let y = self.buffer()?;
        self.base.sign(":")?;
        let heads = self.width()?;
        let mut sums = vec![];
        while !self.base.accept("}") {
            let out = self.buffer()?;
            self.base.sign("=")?;
            let at = self.base.next;
            let name = self.base.name()?;
            let Some(term) = MetapathTerm::ALL.into_iter().find(|term| term.name() == name) else {
                return self.base.error_at(at, format!("there is no reduction over a metapath `{name}`"));
            };
            let (mut n, mut w) = (None, None);
            if term != MetapathTerm::LogSumExp {
                n = Some(self.buffer()?);
                if self.base.accept(",") {
                    w = Some(self.buffer()?);
                }
            }
            sums.push(FactoredOut { term, n, w, out });
        }
        Ok(FactoredMetapath { first, second, direction, score, heads, x, y, sums, from: Provenance::default() })
    }

    fn traversal(&mut self, kernel: usize, stage: Stage) -> Parse<Traversal> {
        let rows = self.rows()?;
        let pieces = if self.base.accept(",") {
            self.base.word("pieces")?;
            self.base.word("of")?;
            let least = self.base.integer()?;
            self.base.word("at")?;
            self.base.word("most")?;
            Some(Pieces { least, most: self.base.integer()? })
        } else {
            None
        };
        self.base.sign("{")?;
        let mut traversal = Traversal { rows, pieces, instrs: vec![] };
        X::body(self, kernel, stage, &mut traversal)?;
        self.base.sign("}")?;
        Ok(traversal)
    }

    fn rows(&mut self) -> Parse<Rows> {
        let at = self.base.next;
        let word = self.base.name()?;
        match word.as_str() {
            "once" => Ok(Rows::Once),
            "each" => {
                self.base.word("of")?;
                self.width().map(Rows::Each)
            }
            "columns" => {
                self.base.word("of")?;
                self.pattern().map(|pattern| Rows::Elements(pattern, Direction::Out))
            }
            "endpoints" => {
                let vertex = self.base.vertex()?;
                self.base.sign(",")?;
                let edges = self.base.next;
                let direction = match self.base.name()?.as_str() {
                    "in_edges" => Direction::In,
                    "out_edges" => Direction::Out,
                    word => return self.base.error_at(edges, format!("endpoints do not own `{word}`")),
                };
                self.base.word("of")?;
                let graph = self.base.graph()?;
                if self.base.parsed.flow.graph_end(graph, direction) == Space::Vertices(vertex) {
                    Ok(Rows::Endpoints(graph, direction))
                } else {
                    self.base.error_at(at, "these edges belong to rows of another vertex type")
                }
            }
            "rows" => {
                let vertex = self.base.vertex()?;
                // A comma before `pieces` begins the splitting, not the edges.
                if *self.base.after_next() == Token::Word("pieces".into()) || !self.base.accept(",") {
                    return Ok(Rows::Vertices(vertex));
                }
                let edges = self.base.next;
                let word = self.base.name()?;
                self.base.word("of")?;
                let (rows, end) = match word.as_str() {
                    "in_edges" | "out_edges" => {
                        let direction = if word == "in_edges" { Direction::In } else { Direction::Out };
                        let graph = self.base.graph()?;
                        (Rows::Edges(graph, direction), self.base.parsed.flow.graph_end(graph, direction))
                    }
                    "elements" => {
                        let pattern = self.pattern()?;
                        let vertex = self.base.parsed.flow.patterns[pattern.index()].vertex;
                        (Rows::Elements(pattern, Direction::In), Space::Vertices(vertex))
                    }
                    _ => return self.base.error_at(edges, format!("rows do not own `{word}`")),
                };
                if end == Space::Vertices(vertex) {
                    Ok(rows)
                } else {
                    self.base.error_at(at, "these edges belong to rows of another vertex type")
                }
            }
            _ => self.base.error_at(at, format!("no rows are `{word}`")),
        }
    }

    /// Parses the next instruction of a kernel.
    pub fn instr(&mut self, kernel: usize, kernel_stage: Stage, traversal: &mut Traversal) -> Parse<()> {
        let rows = &traversal.rows;
        self.lines.insert(Place::Instr(kernel, traversal.instrs.len()), self.base.line());
        let at = self.base.next;
        let word = self.base.name()?;
        let extent = match word.as_str() {
            "row" => Extent::Row,
            "edge" => Extent::Edge,
            "all" => Extent::Total,
            _ => return self.base.error_at(at, format!("expected `row`, `edge` or `all`, found `{word}`")),
        };
        let dest = match self.source()? {
            Source::Local(local) => Dest::Local(local),
            Source::Buffer(buffer) => Dest::Buffer(buffer),
            Source::Const(_) | Source::Count(_) => return self.base.error_at(at + 1, "a result goes nowhere else"),
        };
        self.base.sign("=")?;
        let op_at = self.base.next;
        let (op, (mnemonic, level)) = self.op(
            |reader, mnemonic, head| {
                let level = match (head, head.over(), extent) {
                    (_, Some(Over::Items), _) => {
                        return reader.base.error_at(op_at, format!("there is no operation `{mnemonic}`"));
                    }
                    (Head::Segment(_) | Head::WeightedSum | Head::SoftmaxSum | Head::SegmentArg(_), ..)
                    | (_, Some(Over::Edges), _)
                    | (_, _, Extent::Edge) => Level::Edge,
                    (_, _, Extent::Row | Extent::Total) => Level::Row,
                };
                Ok((mnemonic.to_owned(), level))
            },
            |reader, (_, level)| reader.operand(rows, *level),
        )?;
        let width = self.width()?;
        let stage = if self.base.accept("@") { self.base.stage()?.0 } else { kernel_stage };
        let exact = self.base.accept_word("exact");
        let instr = Instr { dest, level, op, width, stage, exact, from: Provenance::default() };
        if instr.extent() != extent {
            return self.base.error_at(at, format!("`{mnemonic}` gives no value per `{word}`"));
        }
        traversal.instrs.push(instr);
        Ok(())
    }

    /// Parses an operation, its operands, and the colon before its width. `begin` sees the part before the operands.
    pub fn op<O: Copy, T>(
        &mut self,
        begin: impl FnOnce(&mut Self, &str, &Head) -> Parse<T>,
        operand: impl Fn(&mut Self, &T) -> Parse<O>,
    ) -> Parse<(KernelOp<O>, T)> {
        let at = self.base.next;
        let mnemonic = self.base.name()?;
        let head = self.head(at, &mnemonic)?;
        let of = begin(self, &mnemonic, &head)?;
        let mut operands = vec![];
        if *self.base.peek() != Token::Sign(":") {
            operands.push(operand(self, &of)?);
            while self.base.accept(",") {
                operands.push(operand(self, &of)?);
            }
        }
        let Some(op) = head.with(&operands) else {
            return self.base.error_at(at, format!("`{mnemonic}` does not take {} operands", operands.len()));
        };
        self.base.sign(":")?;
        Ok((op, of))
    }

    /// The part of an operation before its operands.
    fn head(&mut self, at: usize, mnemonic: &str) -> Parse<Head> {
        if let Some(f) = UnaryOp::PLAIN.into_iter().find(|f| f.name() == mnemonic) {
            return Ok(Head::Unary(f));
        }
        if let Some(f) = BinaryOp::ALL.into_iter().find(|f| f.name() == mnemonic) {
            return Ok(Head::Binary(f));
        }
        let reduced = mnemonic.split_once('.').and_then(|(head, name)| {
            let reduce = Reduce::ALL.into_iter().find(|reduce| reduce.name() == name)?;
            match head {
                "reduce" => Some(Head::ReduceTrailing(reduce)),
                "segment" => Some(Head::Segment(reduce)),
                "reduce_rows" => Some(Head::ReduceAll(Over::Rows, reduce)),
                "reduce_edges" => Some(Head::ReduceAll(Over::Edges, reduce)),
                "reduce_items" => Some(Head::ReduceAll(Over::Items, reduce)),
                _ => None,
            }
        });
        if let Some(head) = reduced {
            return Ok(head);
        }
        Ok(match mnemonic {
            "leaky_relu" => {
                self.base.sign("(")?;
                let slope = self.base.float()?;
                self.base.sign(")")?;
                Head::Unary(UnaryOp::LeakyRelu(slope))
            }
            "compose" => {
                self.base.sign("(")?;
                let at = self.base.next;
                let first = self.base.name()?;
                let Some(first) = BinaryOp::ALL.into_iter().find(|f| f.name() == first) else {
                    return self.base.error_at(at, format!("`{first}` is no function of two operands"));
                };
                self.base.sign(",")?;
                let at = self.base.next;
                let then = self.base.name()?;
                let Head::Unary(then) = self.head(at, &then)? else {
                    return self.base.error_at(at, format!("`{then}` is no function of one operand"));
                };
                self.base.sign(")")?;
                Head::Compose(first, then)
            }
            "select" => {
                self.base.sign("(")?;
                let positive = self.base.float()?;
                self.base.sign(",")?;
                let otherwise = self.base.float()?;
                self.base.sign(")")?;
                Head::Select { positive, otherwise }
            }
            "copy" => Head::Copy,
            "scatter_rows" => Head::ScatterRows,
            "scatter_add" => Head::ScatterAdd,
            "concat" => {
                self.base.sign("(")?;
                self.base.word("lead")?;
                let lead = self.width()?;
                self.base.sign(")")?;
                Head::Concat(lead)
            }
            "slice" => {
                self.base.sign("(")?;
                self.base.word("last")?;
                let last = self.base.integer()?;
                self.base.sign(",")?;
                self.base.word("start")?;
                let start = self.base.integer()?;
                self.base.sign(",")?;
                self.base.word("len")?;
                let len = self.base.integer()?;
                self.base.sign(")")?;
                Head::Slice { last, start, len }
            }
            "transpose" => Head::Transpose(self.three()?),
            "row_product" => Head::RowProduct(self.three()?),
            "one_hot" => Head::OneHot,
            "random_mask" => {
                self.base.sign("(")?;
                self.base.word("stream")?;
                let stream = self.base.integer()?;
                self.base.sign(",")?;
                self.base.word("rate")?;
                let rate = self.base.float()?;
                self.base.sign(")")?;
                Head::Mask { stream, rate }
            }
            "matmul" => Head::MatMul(self.extents()?),
            "matmul_t" => Head::MatMulT(self.extents()?),
            "dot" => Head::Dot,
            "weighted_sum" => Head::WeightedSum,
            "softmax_sum" => Head::SoftmaxSum,
            "argmax" => Head::SegmentArg(Extreme::Max),
            "argmin" => Head::SegmentArg(Extreme::Min),
            "outer_rows" => Head::OuterAll(Over::Rows, self.extents()?),
            "outer_edges" => Head::OuterAll(Over::Edges, self.extents()?),
            "outer_items" => Head::OuterAll(Over::Items, self.extents()?),
            _ => return self.base.error_at(at, format!("there is no operation `{mnemonic}`")),
        })
    }

    /// Parses an operand of an instruction at a level.
    pub fn operand(&mut self, rows: &Rows, level: Level) -> Parse<Operand> {
        let source = self.source()?;
        let at = self.base.next;
        let index = if self.base.accept("[") {
            let word = self.base.name()?;
            let (other, edge) = index_words(rows);
            let index = match word.as_str() {
                "row" => Index::Own,
                "cell" => Index::DenseCell,
                "endpoint" => Index::Endpoint,
                word if word == other => Index::Neighbor,
                word if word == edge => Index::Edge,
                _ => return self.base.error_at(at, format!("there is no `{word}` here")),
            };
            self.base.sign("]")?;
            index
        } else {
            match source {
                Source::Buffer(_) | Source::Const(_) | Source::Count(_) => Index::Uniform,
                // At an edge, a row's local needs an index; without one it is a local of the edge.
                Source::Local(_) => match level {
                    Level::Row => Index::Own,
                    Level::Edge => Index::Edge,
                },
            }
        };
        Ok(Operand { source, index })
    }

    fn source(&mut self) -> Parse<Source> {
        match self.base.peek().clone() {
            Token::Value(index) => {
                self.base.take();
                Ok(Source::Local(Local(index)))
            }
            Token::Number(_) => self.base.float().map(Source::Const),
            Token::Word(word) if word == "count" && *self.base.after_next() == Token::Sign("(") => {
                self.base.take();
                self.base.sign("(")?;
                let space = if self.base.accept("[") {
                    self.base.sign("]")?;
                    Space::Unit
                } else {
                    self.base.space()?
                };
                self.base.sign(")")?;
                Ok(Source::Count(space))
            }
            Token::Word(_) | Token::Quoted(_) => self.buffer().map(Source::Buffer),
            Token::Sign(_) | Token::End => self.base.expected("an operand"),
        }
    }

    fn buffer(&mut self) -> Parse<Buffer> {
        let at = self.base.next;
        let name = self.base.name()?;
        match self.program.buffers.iter().position(|decl| decl.name == name) {
            Some(row) => Ok(Buffer::new(row)),
            None => self.base.error_at(at, format!("there is no buffer `{name}`")),
        }
    }

    fn pattern(&mut self) -> Parse<Pattern> {
        let at = self.base.next;
        let name = self.base.name()?;
        let patterns = self.base.parsed.flow.patterns.len();
        match name.strip_prefix('p').and_then(|digits| digits.parse::<usize>().ok()).filter(|&row| row < patterns) {
            Some(row) => Ok(Pattern::new(row)),
            None => self.base.error_at(at, format!("there is no pattern `{name}`")),
        }
    }

    /// Three numbers, `(2 x 3 x 4)`.
    fn three(&mut self) -> Parse<[usize; 3]> {
        self.base.sign("(")?;
        let first = self.base.integer()?;
        self.base.word("x")?;
        let second = self.base.integer()?;
        self.base.word("x")?;
        let third = self.base.integer()?;
        self.base.sign(")")?;
        Ok([first, second, third])
    }

    fn extents(&mut self) -> Parse<Extents> {
        self.base.sign("(")?;
        let batch = self.width()?;
        self.base.word("x")?;
        let k = self.width()?;
        self.base.word("x")?;
        let n = self.width()?;
        self.base.sign(")")?;
        Ok(Extents { batch, k, n })
    }

    fn width(&mut self) -> Parse<Width> {
        let mut width =
            if *self.base.peek() == Token::Sign("|") { Width::one() } else { Width::fixed(self.base.integer()?) };
        while self.base.accept("|") {
            let vertex = self.base.vertex()?;
            self.base.sign("|")?;
            width = width.times(&Width::count(vertex));
        }
        Ok(width)
    }
}

/// The items of a global reduction.
pub(crate) enum Over {
    Rows,
    Edges,
    /// Those of a function: of rows or of edges.
    Items,
}

/// An operation without its operands.
pub(crate) enum Head {
    Unary(UnaryOp),
    Binary(BinaryOp),
    Compose(BinaryOp, UnaryOp),
    Select { positive: f64, otherwise: f64 },
    Copy,
    ScatterRows,
    ScatterAdd,
    Concat(Width),
    Slice { last: usize, start: usize, len: usize },
    Transpose([usize; 3]),
    RowProduct([usize; 3]),
    OneHot,
    Mask { stream: u32, rate: f64 },
    MatMul(Extents),
    MatMulT(Extents),
    ReduceTrailing(Reduce),
    Dot,
    Segment(Reduce),
    WeightedSum,
    SoftmaxSum,
    SegmentArg(Extreme),
    ReduceAll(Over, Reduce),
    OuterAll(Over, Extents),
}

impl Head {
    /// The items of a global reduction; `None` for other operations.
    pub fn over(&self) -> Option<&Over> {
        match self {
            Head::ReduceAll(over, _) | Head::OuterAll(over, _) => Some(over),
            _ => None,
        }
    }

    /// `None` if the operation takes another number of operands.
    fn with<O: Copy>(self, operands: &[O]) -> Option<KernelOp<O>> {
        Some(match (self, operands) {
            (Head::Concat(lead), [_, ..]) => KernelOp::Concat { parts: operands.to_vec(), lead },
            (Head::Mask { stream, rate }, []) => KernelOp::Mask { stream, rate },
            (Head::Unary(f), &[a]) => KernelOp::Unary(f, a),
            (Head::Compose(first, then), &[a, b]) => KernelOp::Compose { first, then, a, b },
            (Head::Select { positive, otherwise }, &[a]) => KernelOp::Select { a, positive, otherwise },
            (Head::Copy, &[a]) => KernelOp::Copy(a),
            (Head::ScatterRows, &[a, b]) => KernelOp::ScatterRows(a, b),
            (Head::ScatterAdd, [_, ..]) => KernelOp::ScatterAdd(operands.to_vec()),
            (Head::Slice { last, start, len }, &[a]) => KernelOp::Slice { a, last, start, len },
            (Head::Transpose([m, n, inner]), &[a]) => KernelOp::Transpose { a, m, n, inner },
            (Head::RowProduct([m, k, n]), &[a, b]) => KernelOp::RowProduct { m, k, n, a, b },
            (Head::OneHot, &[a]) => KernelOp::OneHot(a),
            (Head::ReduceTrailing(reduce), &[a]) => KernelOp::ReduceTrailing(reduce, a),
            (Head::Segment(reduce), &[a]) => KernelOp::Segment(reduce, a),
            (Head::ReduceAll(_, reduce), &[a]) => KernelOp::ReduceAll(reduce, a),
            (Head::Binary(f), &[a, b]) => KernelOp::Binary(f, a, b),
            (Head::MatMul(of), &[a, b]) => KernelOp::MatMul(of, a, b),
            (Head::MatMulT(of), &[a, b]) => KernelOp::MatMulT(of, a, b),
            (Head::Dot, &[a, b]) => KernelOp::Dot(a, b),
            (Head::WeightedSum, &[a, x]) => KernelOp::WeightedSum { a, x },
            (Head::SoftmaxSum, &[score, x]) => KernelOp::SoftmaxSum { score, x, times: None },
            (Head::SoftmaxSum, &[score, x, times]) => KernelOp::SoftmaxSum { score, x, times: Some(times) },
            (Head::SegmentArg(extreme), &[x, rank]) => KernelOp::SegmentArg { extreme, x, rank },
            (Head::OuterAll(_, of), &[a, b]) => KernelOp::OuterAll(of, a, b),
            _ => return None,
        })
    }
}
