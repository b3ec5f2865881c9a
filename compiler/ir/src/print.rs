//! The canonical text of a program. [`crate::parse()`] reads it back: `parse(print(f)) == f`, except for source
//! locations and the builder state, which have no text (see [`without_origins`]).
//!
//! ```text
//! dataflow han.train {
//!   vertex Paper from "paper"
//!   relation written_by: Paper -> Author from "paper-author"
//!   graph PAP: Paper -> Paper = >written_by <written_by
//!   pattern p0: Paper x 1902
//!   input Paper.x : f32[Paper; 1902] sparse(p0) = features(Paper)
//!   param conv.w : f32[1902, 8, 8] = glorot(1902, 64) decay
//!   %0 = input Paper.x           : f32[Paper; 1902] sparse(p0) @FP
//!   %1 = param conv.w            : f32[1902, 8, 8]             @FP
//!   %2 = matmul %0, %1           : f32[Paper; 8, 8]            @FP
//!   %9 = segment.lse.in PAP, %8  : f32[Paper; 8]               @NA.backward
//!   result topic_logits = %9
//!   update conv.w = %20
//!   state conv.w[0] = %21
//! }
//! ```
//!
//! A program with stacks ([`crate::stacks`]) also has lines such as these:
//!
//! ```text
//!   family cites, likes
//!   stack s0 = cites, likes
//!   vertex s0.dst = pairs.dst(s0)
//!   graph s0.dst.vertices: s0.dst -> Paper = vertices.dst(s0)
//!   param w : f32[|s0.members|, 16, 4] = stack(w.cites, w.likes) decay
//! ```
//!
//! A hop of a graph is `>relation`, or `<relation` in reverse. Names that are not identifiers (letters, digits,
//! `_` and `.`) are quoted. Redundant attributes are omitted: `broadcast`, `reshape` and `random_mask` take the
//! type of their line.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::dataflow::{
    Binding, Cursor, Dataflow, GraphDecl, Init, KeptInEdges, Matrix, OutputKind, ValueData, VertexTypeDecl,
};
use crate::metapath::PiecewiseLinear;
use crate::ops::{Direction, Op, Reduce, UnaryOp};
use crate::paths::PathRows;
use crate::ranks::EdgeShare;
use crate::stacks::{Incidence, VertexRows};
use crate::training::RankingLoss;
use crate::types::{DType, Dim, Graph, Input, Layout, Param, Phase, Space, Stack, Type, VertexType};

/// The text of a program. Never panics: a handle that refers to nothing prints as `?v7`, which does not parse.
pub fn print(flow: &Dataflow) -> String {
    let mut text = String::new();
    Printer { flow, out: &mut text }.program().expect("writing to a string does not fail");
    text
}

/// The declarations of a program, as in [`print()`].
pub fn print_tables(flow: &Dataflow) -> String {
    let mut text = String::new();
    Printer { flow, out: &mut text }.tables().expect("writing to a string does not fail");
    text
}

/// The text of one operation with its operands, as in [`print()`].
pub fn print_op(flow: &Dataflow, data: &ValueData) -> String {
    Names(flow).op(data)
}

/// The text of a type, as in [`print()`].
pub fn print_type(flow: &Dataflow, ty: &Type) -> String {
    Names(flow).ty(ty)
}

/// The same program without source locations and builder state, which the text format omits.
pub fn without_origins(flow: &Dataflow) -> Dataflow {
    let mut flow = flow.clone();
    flow.cursor = Cursor::default();
    flow.values.iter_mut().for_each(|data| data.origin = None);
    flow
}

impl fmt::Display for Dataflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print(self))
    }
}

/// A name as it appears in the text, quoted if necessary.
pub fn quoted(name: &str) -> Cow<'_, str> {
    let mut chars = name.chars();
    let plain = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if plain { name.into() } else { format!("\"{}\"", escaped(name)).into() }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Column that types are aligned to; longer operations overflow it.
const OP_COLUMN: usize = 40;
/// Width that types are padded to.
const TYPE_COLUMN: usize = 34;

fn listed<'a, T>(items: &[T], show: impl Fn(&T) -> Cow<'a, str>) -> String {
    items.iter().map(show).collect::<Vec<_>>().join(", ")
}

struct Printer<'a> {
    flow: &'a Dataflow,
    out: &'a mut String,
}

impl Printer<'_> {
    fn program(&mut self) -> fmt::Result {
        let flow = self.flow;
        let names = Names(flow);
        writeln!(self.out, "dataflow {} {{", quoted(&flow.name))?;
        self.tables()?;
        self.values()?;
        for output in &flow.outputs {
            let value = output.value;
            match &output.kind {
                OutputKind::Result(name) => writeln!(self.out, "  result {} = {value}", quoted(name))?,
                OutputKind::UpdateParam(param) => writeln!(self.out, "  update {} = {value}", names.param(*param))?,
                OutputKind::UpdateState(param, slot) => {
                    writeln!(self.out, "  state {}[{slot}] = {value}", names.param(*param))?;
                }
            }
        }
        writeln!(self.out, "}}")
    }

    fn tables(&mut self) -> fmt::Result {
        let flow = self.flow;
        let names = Names(flow);
        for decl in flow.vertex_types.iter().filter(|decl| decl.rows == VertexRows::Dataset) {
            writeln!(self.out, "  vertex {} from \"{}\"", quoted(&decl.name), escaped(&decl.dataset_name))?;
        }
        for decl in &flow.vertex_types {
            let name = quoted(&decl.name);
            match decl.rows {
                VertexRows::Mirrors(of, _) | VertexRows::Sections(of) if !flow.is_of_stack(of) => {
                    self.copies_or_sections(decl)?;
                }
                VertexRows::Owned(of) => writeln!(self.out, "  vertex {name} = owned({})", names.vertex(of))?,
                VertexRows::Copies(of) => writeln!(self.out, "  vertex {name} = copies({})", names.vertex(of))?,
                VertexRows::Shuffled(of) => writeln!(self.out, "  vertex {name} = shuffled({})", names.vertex(of))?,
                VertexRows::Rank => writeln!(self.out, "  vertex {name} = rank")?,
                VertexRows::Replica => writeln!(self.out, "  vertex {name} = replica")?,
                _ => {}
            }
        }
        for decl in &flow.relations {
            let (name, src, dst) = (quoted(&decl.name), names.vertex(decl.src), names.vertex(decl.dst));
            writeln!(self.out, "  relation {name}: {src} -> {dst} from \"{}\"", escaped(&decl.dataset_name))?;
        }
        let of_dataset =
            |decl: &&GraphDecl| decl.derived.is_none() && matches!(decl.share, EdgeShare::All | EdgeShare::In);
        for decl in flow.graphs.iter().filter(of_dataset) {
            let (name, src, dst) = (quoted(&decl.name), names.vertex(decl.src), names.vertex(decl.dst));
            write!(self.out, "  graph {name}: {src} -> {dst} =")?;
            for step in &decl.steps {
                let sign = if step.reverse { '<' } else { '>' };
                write!(self.out, " {sign}{}", names.relation(step.relation))?;
            }
            if decl.counted {
                write!(self.out, " counted")?;
            }
            if let Some(word) = decl.self_loops.word() {
                write!(self.out, " {word}")?;
            }
            if decl.links {
                write!(self.out, " links")?;
            }
            if let Some(period) = decl.period {
                write!(self.out, " every {period}")?;
            }
            if decl.past {
                write!(self.out, " past")?;
            }
            if let Some(permutations) = decl.shuffle {
                write!(self.out, " shuffle {permutations}")?;
            }
            if let Some(KeptInEdges { at_most, position }) = decl.kept {
                write!(self.out, " at_most {at_most}")?;
                if let Some(position) = position {
                    write!(self.out, " position {position}")?;
                }
            }
            if decl.share == EdgeShare::In {
                write!(self.out, " in_edges")?;
            }
            writeln!(self.out)?;
        }
        for decl in &flow.graphs {
            if let (EdgeShare::Out(of), None) = (decl.share, decl.derived) {
                let (name, src, dst) = (quoted(&decl.name), names.vertex(decl.src), names.vertex(decl.dst));
                writeln!(self.out, "  graph {name}: {src} -> {dst} = out_edges({})", names.graph(of))?;
            }
        }
        self.stacks()?;
        self.link_rows()?;
        for decl in &flow.metapaths {
            let hops = listed(&decl.hops, |&hop| names.graph(hop));
            let once = if decl.once { " once" } else { "" };
            writeln!(self.out, "  metapath {} = {hops}{once}", names.graph(decl.of))?;
        }
        for decl in &flow.paths {
            write!(self.out, "  paths {} =", names.vertex(decl.vertex))?;
            for step in &decl.steps {
                let sign = if step.reverse { '<' } else { '>' };
                write!(self.out, " {sign}{}", names.relation(step.relation))?;
            }
            match decl.rows {
                PathRows::Walks { at_most: Some(most) } => write!(self.out, " at_most {most}")?,
                PathRows::Walks { at_most: None } => {}
                PathRows::Edges => write!(self.out, " edges")?,
                PathRows::Cutoffs => write!(self.out, " cutoffs")?,
                PathRows::Latest => write!(self.out, " latest")?,
                PathRows::Links { period } => write!(self.out, " links every {period}")?,
            }
            writeln!(self.out, " by {}", listed(&decl.relations, |&relation| names.relation(relation)))?;
        }
        for (i, decl) in flow.patterns.iter().enumerate() {
            write!(self.out, "  pattern p{i}: {} x {}", names.vertex(decl.vertex), decl.columns)?;
            match &decl.matrix {
                Matrix::Field(field) => writeln!(self.out, " of {}", quoted(field))?,
                Matrix::TrainLabels(label) => writeln!(self.out, " train_labels {}", quoted(label))?,
                Matrix::Features => writeln!(self.out)?,
            }
        }
        for decl in &flow.inputs {
            let (name, ty, binding) = (quoted(&decl.name), names.ty(&decl.ty), names.binding(&decl.binding));
            writeln!(self.out, "  input {name} : {ty} = {binding}")?;
        }
        for decl in &flow.params {
            let ty = names.ty(&Type::new(Space::Unit, decl.dims.clone()));
            let decay = if decl.decay { " decay" } else { "" };
            let init = match &decl.entries[..] {
                [] => names.init(decl.init),
                entries => format!("stack({})", listed(entries, |&entry| names.param(entry))),
            };
            let of = decl.of.map_or_else(String::new, |of| format!(" of {}", names.graph(of)));
            writeln!(self.out, "  param {} : {ty} = {init}{decay}{of}", quoted(&decl.name))?;
        }
        Ok(())
    }

    fn copies_or_sections(&mut self, decl: &VertexTypeDecl) -> fmt::Result {
        let (name, names) = (quoted(&decl.name), Names(self.flow));
        match decl.rows {
            VertexRows::Mirrors(of, mirrors) => {
                writeln!(self.out, "  vertex {name} = mirrors.{mirrors}({})", names.vertex(of))
            }
            VertexRows::Sections(of) => writeln!(self.out, "  vertex {name} = sections({})", names.vertex(of)),
            _ => Ok(()),
        }
    }

    /// Families, stacks, and the tables derived from stacks.
    fn stacks(&mut self) -> fmt::Result {
        let flow = self.flow;
        let names = Names(flow);
        for members in &flow.families {
            writeln!(self.out, "  family {}", listed(members, |&member| names.graph(member)))?;
        }
        for decl in &flow.stacks {
            let members = listed(&decl.members, |&member| names.graph(member));
            writeln!(self.out, "  stack {} = {members}", quoted(&decl.name))?;
        }
        for decl in &flow.vertex_types {
            let (kind, stack) = match decl.rows {
                VertexRows::Members(stack) => ("members".to_owned(), stack),
                VertexRows::Pairs(stack, direction) => (format!("pairs.{}", direction.end_name()), stack),
                VertexRows::Cells(stack, direction) => (format!("cells.{}", direction.end_name()), stack),
                VertexRows::Samples(of, count) => {
                    writeln!(self.out, "  vertex {} = samples.{count}({})", quoted(&decl.name), names.vertex(of))?;
                    continue;
                }
                VertexRows::Mirrors(of, _) | VertexRows::Sections(of) if flow.is_of_stack(of) => {
                    self.copies_or_sections(decl)?;
                    continue;
                }
                _ => continue,
            };
            writeln!(self.out, "  vertex {} = {kind}({})", quoted(&decl.name), names.stack(stack))?;
        }
        for decl in &flow.graphs {
            let (name, src, dst) = (quoted(&decl.name), names.vertex(decl.src), names.vertex(decl.dst));
            match decl.share {
                EdgeShare::Sections => writeln!(self.out, "  graph {name}: {src} -> {dst} = sections({src})")?,
                EdgeShare::Copies => writeln!(self.out, "  graph {name}: {src} -> {dst} = copies({dst})")?,
                EdgeShare::Samples => writeln!(self.out, "  graph {name}: {src} -> {dst} = samples_of({src})")?,
                EdgeShare::Links(_) | EdgeShare::Negatives(_) => {}
                EdgeShare::All | EdgeShare::In | EdgeShare::Out(_) => {}
            }
            let Some((stack, incidence)) = decl.derived else { continue };
            let kind = match incidence {
                Incidence::Edges => "edges".to_owned(),
                Incidence::Vertices(direction) => format!("vertices.{}", direction.end_name()),
                Incidence::Members(direction) => format!("members.{}", direction.end_name()),
                Incidence::Cells(direction) => format!("cells.{}", direction.end_name()),
                // The other stack is that of the sources.
                Incidence::Range { first, .. } => format!("range.{first}"),
            };
            writeln!(self.out, "  graph {name}: {src} -> {dst} = {kind}({})", names.stack(stack))?;
        }
        Ok(())
    }

    /// The links of a mini-batch with their negative samples.
    fn link_rows(&mut self) -> fmt::Result {
        let names = Names(self.flow);
        for decl in &self.flow.vertex_types {
            let name = quoted(&decl.name);
            match decl.rows {
                VertexRows::Edges(graph) => writeln!(self.out, "  vertex {name} = edges_of({})", names.graph(graph))?,
                VertexRows::Links { negatives } => writeln!(self.out, "  vertex {name} = links({negatives})")?,
                _ => {}
            }
        }
        for decl in &self.flow.graphs {
            let (name, src, dst) = (quoted(&decl.name), names.vertex(decl.src), names.vertex(decl.dst));
            let (word, of) = match decl.share {
                EdgeShare::Links(of) => ("links_of", of),
                EdgeShare::Negatives(of) => ("negatives_of", of),
                _ => continue,
            };
            writeln!(self.out, "  graph {name}: {src} -> {dst} = {word}({})", names.graph(of))?;
        }
        Ok(())
    }

    fn values(&mut self) -> fmt::Result {
        let names = Names(self.flow);
        let lines: Vec<(String, String)> = self
            .flow
            .values
            .iter()
            .enumerate()
            .map(|(i, data)| (format!("%{i} = {}", names.op(data)), names.ty(&data.ty)))
            .collect();
        let widest = |column: &dyn Fn(&(String, String)) -> usize, limit: usize| {
            lines.iter().map(column).filter(|w| *w <= limit).max().unwrap_or(0)
        };
        let op_width = widest(&|line| line.0.chars().count(), OP_COLUMN);
        let type_width = widest(&|line| line.1.chars().count(), TYPE_COLUMN);
        for (data, (op, ty)) in self.flow.values.iter().zip(&lines) {
            let phase = match data.phase {
                Phase::Forward => "",
                Phase::Backward => ".backward",
                Phase::Update => ".update",
            };
            writeln!(self.out, "  {op:op_width$} : {ty:type_width$} @{}{phase}", data.stage.name())?;
        }
        Ok(())
    }
}

/// Texts that name the rows of tables, as in [`print()`].
pub struct Names<'a>(pub &'a Dataflow);

impl Names<'_> {
    /// A vertex type.
    pub fn vertex(&self, vertex: VertexType) -> Cow<'_, str> {
        self.0.vertex_types.get(vertex.index()).map_or_else(|| format!("?{vertex}").into(), |decl| quoted(&decl.name))
    }

    fn relation(&self, relation: u32) -> Cow<'_, str> {
        self.0
            .relations
            .get(relation as usize)
            .map_or_else(|| format!("?r{relation}").into(), |decl| quoted(&decl.name))
    }

    fn stack(&self, stack: Stack) -> Cow<'_, str> {
        self.0.stacks.get(stack.index()).map_or_else(|| format!("?{stack}").into(), |decl| quoted(&decl.name))
    }

    /// The name of a graph.
    pub fn graph(&self, graph: Graph) -> Cow<'_, str> {
        self.0.graphs.get(graph.index()).map_or_else(|| format!("?{graph}").into(), |decl| quoted(&decl.name))
    }

    /// The name of an input.
    pub fn input(&self, input: Input) -> Cow<'_, str> {
        self.0.inputs.get(input.index()).map_or_else(|| format!("?{input}").into(), |decl| quoted(&decl.name))
    }

    /// The name of a parameter.
    pub fn param(&self, param: Param) -> Cow<'_, str> {
        self.0.params.get(param.index()).map_or_else(|| format!("?{param}").into(), |decl| quoted(&decl.name))
    }

    /// A trailing dimension: `64` or `|Paper|`.
    pub fn dim(&self, dim: Dim) -> String {
        match dim {
            Dim::Fixed(extent) => extent.to_string(),
            Dim::Count(vertex) => format!("|{}|", self.vertex(vertex)),
        }
    }

    /// A space as the first dimension of a type; `None` for [`Space::Unit`].
    pub fn space(&self, space: Space) -> Option<String> {
        match space {
            Space::Unit => None,
            Space::Vertices(vertex) => Some(self.vertex(vertex).into_owned()),
            Space::Edges(graph) => Some(format!("edges({})", self.graph(graph))),
            Space::Index(extent) => Some(format!("index({extent})")),
            Space::Endpoints(graph, Direction::Out) => Some(format!("sources({})", self.graph(graph))),
            Space::Endpoints(graph, Direction::In) => Some(format!("destinations({})", self.graph(graph))),
        }
    }

    /// A type.
    pub fn ty(&self, ty: &Type) -> String {
        let dtype = match ty.dtype {
            DType::F32 => "f32",
            DType::I32 => "i32",
        };
        let dims = ty.dims.iter().map(|&d| self.dim(d)).collect::<Vec<_>>().join(", ");
        let inside = match self.space(ty.space) {
            None => dims,
            Some(space) if dims.is_empty() => space,
            Some(space) => format!("{space}; {dims}"),
        };
        match ty.layout {
            Layout::Dense => format!("{dtype}[{inside}]"),
            Layout::Sparse(pattern) => format!("{dtype}[{inside}] sparse({pattern})"),
        }
    }

    /// The data behind an input.
    pub fn binding(&self, binding: &Binding) -> String {
        match binding {
            Binding::Features(vertex, Matrix::Features) => format!("features({})", self.vertex(*vertex)),
            Binding::Features(vertex, Matrix::Field(field)) => {
                format!("features({}, {})", self.vertex(*vertex), quoted(field))
            }
            Binding::Features(vertex, Matrix::TrainLabels(label)) => {
                format!("train_labels({}, {})", self.vertex(*vertex), quoted(label))
            }
            Binding::Label(vertex, name) => format!("label({}, {})", self.vertex(*vertex), quoted(name)),
            Binding::TrainMask(vertex) => format!("train_mask({})", self.vertex(*vertex)),
            Binding::Time(vertex) => format!("time({})", self.vertex(*vertex)),
            Binding::EdgeTime(graph) => format!("edge_time({})", self.graph(*graph)),
            Binding::EdgeWeight(graph) => format!("edge_weight({})", self.graph(*graph)),
            Binding::EdgeCount(graph) => format!("edge_count({})", self.graph(*graph)),
            Binding::EdgeFeatures(graph) => format!("edge_features({})", self.graph(*graph)),
            Binding::EdgeRank(graph, direction) => format!("edge_rank({}, {})", self.graph(*graph), direction.name()),
            Binding::IsLink(graph) => format!("is_link({})", self.graph(*graph)),
            Binding::Given(name) => format!("given({})", quoted(name)),
            Binding::Precomputed(vertex, name) => format!("precomputed({}, {})", self.vertex(*vertex), quoted(name)),
            Binding::StepNumber => "step_number".into(),
            Binding::EpochNumber => "epoch_number".into(),
        }
    }

    /// The initial values of a parameter.
    pub fn init(&self, init: Init) -> String {
        match init {
            Init::Constant(number) => format!("constant({number:?})"),
            Init::Glorot { fan_in, fan_out } => format!("glorot({}, {fan_out})", self.dim(fan_in)),
            Init::He { fan_in } => format!("he({})", self.dim(fan_in)),
            Init::Uniform(bound) => format!("uniform({bound:?})"),
            Init::Normal { std } => format!("normal({std:?})"),
        }
    }

    fn op(&self, data: &ValueData) -> String {
        let batched = |name: &str, batch: usize| match batch {
            0 => name.to_owned(),
            _ => format!("{name}(batch {batch})"),
        };
        let (mnemonic, table_row) = match &data.op {
            Op::Input(input) => ("input".to_owned(), Some(self.input(*input))),
            Op::Param(param) => ("param".to_owned(), Some(self.param(*param))),
            Op::State(param, slot) => ("state".to_owned(), Some(format!("{}[{slot}]", self.param(*param)).into())),
            Op::Const(number) => (format!("const {number:?}"), None),
            Op::Count(space) => (format!("count {}", self.space(*space).unwrap_or_else(|| "[]".into())), None),
            Op::RandomMask { stream, rate, .. } => (format!("random_mask(stream {stream}, rate {rate:?})"), None),
            Op::Unary(UnaryOp::LeakyRelu(slope)) => (format!("leaky_relu({slope:?})"), None),
            Op::Unary(f) => (f.name().to_owned(), None),
            Op::Binary(f) => (f.name().to_owned(), None),
            Op::Broadcast(_) => ("broadcast".to_owned(), None),
            Op::StopGradient => ("stop_gradient".to_owned(), None),
            Op::Reshape(_) => ("reshape".to_owned(), None),
            Op::Concat => ("concat".to_owned(), None),
            Op::Slice { start, len } => (format!("slice({start}, {len})"), None),
            Op::Transpose { axis } => (format!("transpose({axis})"), None),
            Op::OneHot { classes } => (format!("one_hot({classes})"), None),
            Op::Rows => ("rows".to_owned(), None),
            Op::Unrows => ("unrows".to_owned(), None),
            Op::Reindex(_) => ("reindex".to_owned(), None),
            Op::MatMul { batch } => (batched("matmul", *batch), None),
            Op::MatMulT { batch } => (batched("matmul_t", *batch), None),
            Op::Outer { batch } => (batched("outer", *batch), None),
            Op::RowProduct { batch } => (batched("row_product", *batch), None),
            Op::Grouped { form, batch, members } => {
                (batched(&format!("grouped.{}", form.name()), *batch), Some(self.graph(*members)))
            }
            Op::GatherSrc(graph) => ("gather.src".to_owned(), Some(self.graph(*graph))),
            Op::GatherDst(graph) => ("gather.dst".to_owned(), Some(self.graph(*graph))),
            Op::Segment { graph, direction, reduce } => {
                (format!("segment.{}.{}", reduce.name(), direction.name()), Some(self.graph(*graph)))
            }
            Op::SegmentEndpoints { graph, direction, reduce } => {
                (format!("segment_endpoints.{}.{}", reduce.name(), direction.name()), Some(self.graph(*graph)))
            }
            Op::SegmentArg { graph, direction, extreme } => {
                (format!("segment.{}.{}", extreme.arg_name(), direction.name()), Some(self.graph(*graph)))
            }
            Op::MetapathReduce(sum) => {
                let name = format!("metapath.{}.{}({})", sum.term.name(), sum.direction.name(), slopes(sum.score));
                (name, Some(format!("{}, {}", self.graph(sum.first), self.graph(sum.second)).into()))
            }
            Op::GatherRows(graph, direction) => {
                (format!("gather_rows.{}", direction.end_name()), Some(self.graph(*graph)))
            }
            Op::ScatterRows(graph, direction) => {
                (format!("scatter_rows.{}", direction.end_name()), Some(self.graph(*graph)))
            }
            Op::ScatterAdd(ends) => {
                let end = |&(graph, direction): &(Graph, Direction)| {
                    format!("{} {}", direction.end_name(), self.graph(graph))
                };
                (format!("scatter_add({})", ends.iter().map(end).collect::<Vec<_>>().join(", ")), None)
            }
            Op::Exchange(to) => ("exchange".to_owned(), Some(self.vertex(*to))),
            Op::SumRanks => ("sum_ranks".to_owned(), None),
            Op::ReduceTrailing { reduce, axes } => (format!("reduce.{}(axes {axes})", reduce.name()), None),
            Op::ReduceSpace(reduce) => (format!("reduce_space.{}", reduce.name()), None),
            Op::LinkLoss(loss @ (RankingLoss::Margin(number) | RankingLoss::SelfAdversarial(number))) => {
                (format!("link_loss.{}({number:?})", loss.name()), None)
            }
            Op::LinkLoss(loss) => (format!("link_loss.{}", loss.name()), None),
        };
        let args = data.args.iter().map(|arg| arg.to_string().into());
        let operands: Vec<Cow<'_, str>> = table_row.into_iter().chain(args).collect();
        if operands.is_empty() { mnemonic } else { format!("{mnemonic} {}", operands.join(", ")) }
    }
}

impl Reduce {
    /// The word in the text format.
    pub fn name(self) -> &'static str {
        match self {
            Reduce::Sum => "sum",
            Reduce::Max => "max",
            Reduce::Min => "min",
            Reduce::Lse => "lse",
        }
    }

    /// All reductions, in the order of the enum.
    pub const ALL: [Reduce; 4] = [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse];
}

impl Direction {
    /// The mnemonic in the text format.
    pub fn name(self) -> &'static str {
        match self {
            Direction::In => "in",
            Direction::Out => "out",
        }
    }
}

/// The slopes of the score of a metapath reduction, below and above zero.
pub fn slopes(score: PiecewiseLinear) -> String {
    format!("{:?}, {:?}", score.below, score.above)
}
