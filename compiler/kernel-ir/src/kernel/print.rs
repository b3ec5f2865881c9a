//! The canonical text of a kernel program. [`crate::kernel::parse()`] reads it back.
//!
//! ```text
//! kernels han.train {
//!   vertex Paper from "paper"
//!   ...
//!   buffer h : f32[Paper; 8, 8]
//!   buffer lse7 : f32[Paper; 8]
//!   ...
//!   gemm k0 @FP.forward : rows Paper {
//!     h = matmul(1 x 64 x 64) Paper.x, conv.w
//!   }
//!   kernel k3 @NA.forward : rows Paper, in_edges of PAP, pieces of 4096 at most 1024 {
//!     edge %0 = add score_src[src], score_dst[row] : 8
//!     row  lse7 = segment.lse %0                   : 8
//!     edge %1 = sub %0, lse7[row]                  : 8
//!     edge %2 = exp %1                             : 8
//!     row  %3 = weighted_sum %2, h[src]            : 64
//!     row  z9 = elu %3                             : 64
//!   }
//!   result z = z9 : f32[Paper; 8, 8]
//! }
//! ```
//!
//! A name that begins with `%` is a local of its row or edge; any other name is a stored buffer. `row`, `edge` and
//! `all` give the granularity of a result; the suffix of `reduce_rows` and `reduce_edges`, `outer_rows` and
//! `outer_edges` gives the rows of the operand. An operand without brackets is a whole buffer, or the local of the
//! current row or edge. In brackets, `row` is the own row; `src`, `dst`, `column` or `vertex` the neighbour at the
//! opposite end of the edge; `edge` (of a sparse matrix: `element`) the edge itself; and `cell` the element of a dense
//! matrix at a stored element of a sparse one. `pieces of 4096 at most 1024` splits rows with more than 4096 edges into
//! pieces of 4096 edges; the pieces are longer if the edges of the whole graph would give more than 1024. A launch of
//! several kernels encloses them in `launch { … }`; `launch interleave 2 { … }` interleaves the blocks of the
//! first two kernels with those of the rest.

use std::fmt::{self, Write};

use hgnnc_ir::dataflow::OutputKind;
use hgnnc_ir::ops::{Direction, UnaryOp};
use hgnnc_ir::print::{Names, print_tables, quoted, slopes};
use hgnnc_ir::types::{Phase, Space, Stage};

use super::{
    Body, Buffer, Contents, Dest, Exchange, Extent, Extents, FactoredMetapath, Gemm, Index, Instr, Kernel, KernelOp,
    Launch, Level, Operand, Output, Pieces, Program, Rows, Source, Traversal, Width,
};

/// The text of a program. Never panics: a handle that refers to nothing prints as `?b7`, which does not parse.
pub fn print(program: &Program) -> String {
    print_extended(program, &Kernels)
}

/// The parts of a text that a level which builds on kernels adds to theirs.
pub(crate) trait Extension {
    /// The word that the text begins with.
    fn keyword(&self) -> &'static str;
    /// Text before and after an instruction of a kernel, by number.
    fn around(&self, kernel: usize, instr: usize) -> (String, &'static str);
    /// Lines after the instructions of a kernel, with its number.
    fn nest(&self, kernel: usize, traversal: &Traversal) -> Vec<String>;
    /// Lines after the outputs.
    fn end(&self) -> Vec<String>;
}

/// The text of kernels alone.
struct Kernels;

impl Extension for Kernels {
    fn keyword(&self) -> &'static str {
        "kernels"
    }

    fn around(&self, _kernel: usize, _instr: usize) -> (String, &'static str) {
        (String::new(), "")
    }

    fn nest(&self, _kernel: usize, _traversal: &Traversal) -> Vec<String> {
        vec![]
    }

    fn end(&self) -> Vec<String> {
        vec![]
    }
}

/// The text of a program with what another level adds.
pub(crate) fn print_extended(program: &Program, extension: &dyn Extension) -> String {
    let mut text = String::new();
    Printer { program, extension, names: Names(&program.tables), out: &mut text, next: 0 }
        .program()
        .expect("writing to a string does not fail");
    text
}

/// A symbolic size as text: `16 |Paper|`.
pub fn print_width(program: &Program, of: &Width) -> String {
    width(&Names(&program.tables), of)
}

/// An instruction of a traversal with these rows and [`local_extents`], as in the text of the program.
pub fn print_instr(program: &Program, rows: &Rows, locals: &[Extent], instr: &Instr) -> String {
    instr_text((program, &Names(&program.tables)), (rows, locals), instr)
}

/// Prints operands of a traversal.
pub(crate) fn print_operands<'a>(
    program: &'a Program,
    traversal: &'a Traversal,
) -> impl Fn(Level, Operand) -> String + 'a {
    let (locals, names) = (local_extents(traversal), Names(&program.tables));
    move |level, of| operand((program, &names), (&traversal.rows, &locals), level, of)
}

/// The rows of a traversal as text: `rows Paper, in_edges of PAP`.
pub fn print_rows(program: &Program, rows: &Rows) -> String {
    let names = Names(&program.tables);
    let end = |graph: hgnnc_ir::Graph, direction| match program.tables.graphs.get(graph.index()) {
        None => "?".into(),
        Some(decl) => names.vertex(match direction {
            Direction::In => decl.dst,
            Direction::Out => decl.src,
        }),
    };
    match rows {
        Rows::Once => "once".into(),
        Rows::Each(volume) => format!("each of {}", width(&names, volume)),
        Rows::Vertices(vertex) => format!("rows {}", names.vertex(*vertex)),
        Rows::Edges(graph, direction) => {
            format!("rows {}, {}_edges of {}", end(*graph, *direction), direction.name(), names.graph(*graph))
        }
        Rows::Endpoints(graph, direction) => {
            format!("endpoints {}, {}_edges of {}", end(*graph, *direction), direction.name(), names.graph(*graph))
        }
        Rows::Elements(pattern, Direction::In) => {
            let vertex = program.tables.patterns.get(pattern.index()).map_or("?".into(), |d| names.vertex(d.vertex));
            format!("rows {vertex}, elements of {pattern}")
        }
        Rows::Elements(pattern, Direction::Out) => format!("columns of {pattern}"),
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

/// The suffix that describes how rows are split.
fn print_pieces(Pieces { least, most }: Pieces) -> String {
    format!(", pieces of {least} at most {most}")
}

/// The words for the opposite end of the edges, and for an edge itself.
pub(super) fn index_words(rows: &Rows) -> (&'static str, &'static str) {
    match rows {
        Rows::Edges(_, Direction::In) | Rows::Endpoints(_, Direction::In) => ("src", "edge"),
        Rows::Edges(_, Direction::Out) | Rows::Endpoints(_, Direction::Out) => ("dst", "edge"),
        Rows::Elements(_, Direction::In) => ("column", "element"),
        Rows::Elements(_, Direction::Out) => ("vertex", "element"),
        Rows::Once | Rows::Each(_) | Rows::Vertices(_) => ("?other", "?edge"),
    }
}

/// An element-wise function with its constant.
fn unary(f: UnaryOp) -> String {
    match f {
        UnaryOp::LeakyRelu(slope) => format!("leaky_relu({slope:?})"),
        f => f.name().to_owned(),
    }
}

fn width(names: &Names<'_>, width: &Width) -> String {
    let counts: Vec<String> = width.counts().iter().map(|&vertex| format!("|{}|", names.vertex(vertex))).collect();
    match (width.factor(), counts.is_empty()) {
        (1, false) => counts.join(" "),
        (factor, true) => factor.to_string(),
        (factor, false) => format!("{factor} {}", counts.join(" ")),
    }
}

/// Column that types are aligned to; longer operations overflow it.
const OP_COLUMN: usize = 56;

struct Printer<'a> {
    program: &'a Program,
    extension: &'a dyn Extension,
    names: Names<'a>,
    out: &'a mut String,
    /// The number of the next kernel.
    next: usize,
}

impl Printer<'_> {
    fn program(&mut self) -> fmt::Result {
        let program = self.program;
        writeln!(self.out, "{} {} {{", self.extension.keyword(), quoted(&program.tables.name))?;
        self.out.push_str(&print_tables(&program.tables));
        for decl in &program.buffers {
            let from = match decl.contents {
                Contents::Input(input) => format!(" = input {}", self.names.input(input)),
                Contents::Param(param) => format!(" = param {}", self.names.param(param)),
                Contents::State(param, slot) => format!(" = state {}[{slot}]", self.names.param(param)),
                Contents::Computed => String::new(),
            };
            let alias =
                |word: &str, of: Option<Buffer>| of.map_or(String::new(), |of| format!(" {word} {}", self.buffer(of)));
            let place = alias("replaces", decl.replaces) + &alias("extends", decl.extends);
            writeln!(self.out, "  buffer {} : {}{from}{place}", quoted(&decl.name), self.names.ty(&decl.ty))?;
        }
        if !program.prelude.is_empty() {
            writeln!(self.out, "  prelude {{")?;
            self.launches(&program.prelude, "    ")?;
            writeln!(self.out, "  }}")?;
        }
        self.launches(&program.launches, "  ")?;
        for output in &program.outputs {
            self.output(output)?;
        }
        for line in self.extension.end() {
            writeln!(self.out, "  {line}")?;
        }
        writeln!(self.out, "}}")
    }

    fn output(&mut self, output: &Output) -> fmt::Result {
        let source = self.source(output.source);
        let ty = self.names.ty(&output.ty);
        match &output.kind {
            OutputKind::Result(name) => writeln!(self.out, "  result {} = {source} : {ty}", quoted(name)),
            OutputKind::UpdateParam(param) => {
                writeln!(self.out, "  update {} = {source} : {ty}", self.names.param(*param))
            }
            OutputKind::UpdateState(param, slot) => {
                writeln!(self.out, "  state {}[{slot}] = {source} : {ty}", self.names.param(*param))
            }
        }
    }

    fn launches(&mut self, launches: &[Launch], indent: &str) -> fmt::Result {
        for launch in launches {
            match &launch.kernels[..] {
                [kernel] => self.kernel(kernel, indent)?,
                kernels => {
                    match launch.interleaved {
                        0 => writeln!(self.out, "{indent}launch {{")?,
                        count => writeln!(self.out, "{indent}launch interleave {count} {{")?,
                    }
                    let deeper = format!("{indent}  ");
                    kernels.iter().try_for_each(|kernel| self.kernel(kernel, &deeper))?;
                    writeln!(self.out, "{indent}}}")?;
                }
            }
        }
        Ok(())
    }

    fn kernel(&mut self, kernel: &Kernel, indent: &str) -> fmt::Result {
        let number = self.next;
        self.next += 1;
        let phase = match kernel.phase {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Update => "update",
        };
        let place = format!("k{number} @{}.{phase}", kernel.stage.name());
        match &kernel.body {
            Body::Gemm(gemm) => self.gemm(gemm, &place, indent),
            Body::FactoredMetapath(reduction) => self.factored_metapath(reduction, &place, indent),
            Body::Exchange(exchange) => self.exchange(exchange, &place, indent),
            Body::Traversal(traversal) => self.traversal(traversal, (number, kernel.stage), &place, indent),
        }
    }

    fn gemm(&mut self, gemm: &Gemm, place: &str, indent: &str) -> fmt::Result {
        let rows = match gemm.rows {
            Space::Unit => "once".to_owned(),
            space @ (Space::Vertices(_) | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..)) => {
                format!("rows {}", self.names.space(space).unwrap_or_default())
            }
        };
        let members =
            gemm.members.map_or_else(String::new, |members| format!(", members {}", self.names.graph(members)));
        writeln!(self.out, "{indent}gemm {place} : {rows}{members} {{")?;
        let [out, x, y] = [gemm.out, gemm.x, gemm.y].map(|buffer| self.buffer(buffer));
        let of = self.extents(&gemm.of);
        writeln!(self.out, "{indent}  {out} = {}{of} {x}, {y}", gemm.form.name())?;
        writeln!(self.out, "{indent}}}")
    }

    fn exchange(&mut self, exchange: &Exchange, place: &str, indent: &str) -> fmt::Result {
        let rows = self.names.vertex(exchange.rows);
        let to = exchange.to.map_or("sum".into(), |to| format!("to {}", self.names.vertex(to)));
        let [x, out] = [exchange.x, exchange.out].map(|buffer| self.buffer(buffer));
        let width = width(&self.names, &exchange.width);
        writeln!(self.out, "{indent}exchange {place} : rows {rows} {to} {{")?;
        writeln!(self.out, "{indent}  {out} = {x} : {width}")?;
        writeln!(self.out, "{indent}}}")
    }

    fn factored_metapath(&mut self, reduction: &FactoredMetapath, place: &str, indent: &str) -> fmt::Result {
        let (end, edges) = match reduction.direction {
            Direction::In => (self.program.tables.graphs[reduction.second.index()].dst, "in"),
            Direction::Out => (self.program.tables.graphs[reduction.first.index()].src, "out"),
        };
        let (rows, first, second) =
            (self.names.vertex(end), self.names.graph(reduction.first), self.names.graph(reduction.second));
        let [x, y] = [reduction.x, reduction.y].map(|buffer| self.buffer(buffer));
        let heads = width(&self.names, &reduction.heads);
        let score = slopes(reduction.score);
        writeln!(self.out, "{indent}factored {place} : rows {rows}, {edges} over {first}, {second} {{")?;
        writeln!(self.out, "{indent}  score({score}) {x} + {y} : {heads}")?;
        for sum in &reduction.sums {
            let operands: Vec<String> =
                [sum.n, sum.w].into_iter().flatten().map(|buffer| self.buffer(buffer)).collect();
            let space = if operands.is_empty() { "" } else { " " };
            let (out, term) = (self.buffer(sum.out), sum.term.name());
            writeln!(self.out, "{indent}  {out} = {term}{space}{}", operands.join(", "))?;
        }
        writeln!(self.out, "{indent}}}")
    }

    fn traversal(
        &mut self,
        traversal: &Traversal,
        (number, stage): (usize, Stage),
        place: &str,
        indent: &str,
    ) -> fmt::Result {
        let pieces = traversal.pieces.map_or(String::new(), print_pieces);
        writeln!(self.out, "{indent}kernel {place} : {}{pieces} {{", print_rows(self.program, &traversal.rows))?;
        let extents = local_extents(traversal);
        let around: Vec<(String, &str)> =
            (0..traversal.instrs.len()).map(|instr| self.extension.around(number, instr)).collect();
        let text = |(instr, (before, _)): (&Instr, &(String, &str))| {
            format!("{before}{}", instr_text((self.program, &self.names), (&traversal.rows, &extents), instr))
        };
        let lines: Vec<String> = traversal.instrs.iter().zip(&around).map(text).collect();
        let column = lines.iter().map(|line| line.chars().count()).filter(|&w| w <= OP_COLUMN).max().unwrap_or(0);
        for ((instr, line), (_, after)) in traversal.instrs.iter().zip(lines).zip(around) {
            let width = width(&self.names, &instr.width);
            let own = if instr.stage == stage { String::new() } else { format!(" @{}", instr.stage.name()) };
            let exact = if instr.exact { " exact" } else { "" };
            writeln!(self.out, "{indent}  {line:column$} : {width}{own}{exact}{after}")?;
        }
        for line in self.extension.nest(number, traversal) {
            writeln!(self.out, "{indent}  {line}")?;
        }
        writeln!(self.out, "{indent}}}")
    }

    fn source(&self, of: Source) -> String {
        source((self.program, &self.names), of)
    }

    fn buffer(&self, of: Buffer) -> String {
        buffer(self.program, of)
    }

    fn extents(&self, of: &Extents) -> String {
        extents(of, |of| width(&self.names, of))
    }
}

fn instr_text((program, names): (&Program, &Names<'_>), (rows, locals): (&Rows, &[Extent]), instr: &Instr) -> String {
    let per = match instr.extent() {
        Extent::Row => "row ",
        Extent::Edge => "edge",
        Extent::Total => "all ",
    };
    let dest = match instr.dest {
        Dest::Local(local) => local.to_string(),
        Dest::Buffer(of) => buffer(program, of),
    };
    let over = match instr.level {
        Level::Row => "rows",
        Level::Edge => "edges",
    };
    let op = head(&instr.op, over, |of| width(names, of));
    let show = |of: Operand| operand((program, names), (rows, locals), instr.level, of);
    let operands: Vec<String> = instr.op.operands().into_iter().map(show).collect();
    let space = if operands.is_empty() { "" } else { " " };
    format!("{per} {dest} = {op}{space}{}", operands.join(", "))
}

/// An operation without its operands. `over`: the items of global reductions.
pub(crate) fn head<O: Copy, W>(op: &KernelOp<O, W>, over: &str, width: impl Fn(&W) -> String) -> String {
    match op {
        KernelOp::Unary(f, _) => unary(*f),
        KernelOp::Compose { first, then, .. } => format!("compose({}, {})", first.name(), unary(*then)),
        KernelOp::Select { positive, otherwise, .. } => format!("select({positive:?}, {otherwise:?})"),
        KernelOp::Concat { lead, .. } => format!("concat(lead {})", width(lead)),
        KernelOp::Slice { last, start, len, .. } => format!("slice(last {last}, start {start}, len {len})"),
        KernelOp::Transpose { m, n, inner, .. } => format!("transpose({m} x {n} x {inner})"),
        KernelOp::RowProduct { m, k, n, .. } => format!("row_product({m} x {k} x {n})"),
        KernelOp::Mask { stream, rate } => format!("random_mask(stream {stream}, rate {rate:?})"),
        KernelOp::MatMul(of, ..) | KernelOp::MatMulT(of, ..) => format!("{}{}", op.name(), extents(of, width)),
        KernelOp::ReduceTrailing(reduce, _) | KernelOp::Segment(reduce, _) => {
            format!("{}.{}", op.name(), reduce.name())
        }
        KernelOp::ReduceAll(reduce, _) => format!("reduce_{over}.{}", reduce.name()),
        KernelOp::OuterAll(of, ..) => format!("outer_{over}{}", extents(of, width)),
        KernelOp::Binary(..)
        | KernelOp::Copy(_)
        | KernelOp::ScatterRows(..)
        | KernelOp::ScatterAdd(_)
        | KernelOp::OneHot(_)
        | KernelOp::Dot(..)
        | KernelOp::WeightedSum { .. }
        | KernelOp::SoftmaxSum { .. }
        | KernelOp::SegmentArg { .. } => op.name().to_owned(),
    }
}

fn extents<W>(of: &Extents<W>, width: impl Fn(&W) -> String) -> String {
    let [batch, k, n] = [&of.batch, &of.k, &of.n].map(width);
    format!("({batch} x {k} x {n})")
}

fn operand(
    (program, names): (&Program, &Names<'_>),
    (rows, locals): (&Rows, &[Extent]),
    level: Level,
    operand: Operand,
) -> String {
    let source = source((program, names), operand.source);
    if let Source::Local(local) = operand.source {
        // A local of the instruction's own level needs no index.
        let own = match locals.get(local.index()) {
            Some(Extent::Row) => level == Level::Row && operand.index == Index::Own,
            Some(Extent::Edge) => operand.index == Index::Edge,
            Some(Extent::Total) | None => false,
        };
        if own {
            return source;
        }
    }
    let (other, edge) = index_words(rows);
    match operand.index {
        Index::Uniform => source,
        Index::Own => format!("{source}[row]"),
        Index::Neighbor => format!("{source}[{other}]"),
        Index::Edge => format!("{source}[{edge}]"),
        Index::Endpoint => format!("{source}[endpoint]"),
        Index::DenseCell => format!("{source}[cell]"),
    }
}

fn source((program, names): (&Program, &Names<'_>), source: Source) -> String {
    match source {
        Source::Local(local) => local.to_string(),
        Source::Buffer(of) => buffer(program, of),
        Source::Const(number) => format!("{number:?}"),
        Source::Count(space) => format!("count({})", names.space(space).unwrap_or_else(|| "[]".into())),
    }
}

fn buffer(program: &Program, buffer: Buffer) -> String {
    program.buffers.get(buffer.index()).map_or_else(|| format!("?{buffer}"), |decl| quoted(&decl.name).into_owned())
}

/// The granularity of each local of a traversal.
pub fn local_extents(traversal: &Traversal) -> Vec<Extent> {
    let made = |instr: &&Instr| matches!(instr.dest, Dest::Local(_));
    traversal.instrs.iter().filter(made).map(Instr::extent).collect()
}
