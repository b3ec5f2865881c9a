//! From the dataflow IR to the kernel IR: which operations share a kernel, and which values are stored.
//!
//! Decisions, in this order, each from the program alone:
//!
//! 1. `schedule` groups operations by the rows that they have, one traversal per (graph, direction) dependency
//!    level, so that edge values need no memory: every traversal recomputes those that it reads.
//! 2. A value is stored where another kernel reads it, where it is a total or a large dense product, or where it is an
//!    output.
//! 3. `traversal` lowers a group: gathers, reshapes and broadcasts become ways to read an operand, and products
//!    that feed a sum are fused into it.
//! 4. `in_place` gives new parameters and states the place of the old ones, and rows that of rows read for the last time.
//! 5. `side_by_side` joins consecutive kernels that do not need each other to one launch.
//!
//! Nothing here depends on a dataset. What a back end wants is a [`LowerForm`].

mod by_turns;
mod decisions;
mod facts;
mod in_place;
mod late;
mod online;
mod ready;
mod schedule;
mod side_by_side;
mod traversal;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use hgnnc_ir::kernel::{
    Body, Buffer, BufferDecl, Contents, Dest, Extent, Form, Gemm, Index, Instr, Kernel, KernelOp, Launch, Operand,
    Output, PathOut, Paths, Program, Rows, Source, Traversal, print::print_rows,
};
use hgnnc_ir::{BinaryOp, Dataflow, Direction, Op, OutputKind, Provenance, Type, Value};
use hgnnc_machine::{Machine, Work};

pub use self::by_turns::take_turns;
pub use self::decisions::{Decision, SINGLE, Without};
use self::facts::Topology;
pub(crate) use self::facts::{Facts, word};
pub use self::online::SoftmaxForm;
use self::schedule::{Group, Kind, schedule};
use self::traversal::lower_traversal;
use crate::bounds::{self, Times};
use hgnnc_ir::sizes::SizeInfo;

/// An operation for which there is no kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotLowered {
    /// Name of the program.
    pub program: String,
    /// Stage of the operation.
    pub stage: &'static str,
    /// The operation.
    pub op: &'static str,
    /// The types of its operands and of its result.
    pub types: String,
    /// Why.
    pub reason: String,
}

impl fmt::Display for NotLowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, stage, op, types, reason } = self;
        write!(f, "there is no kernel for `{op}` ({types}) of stage {stage} in `{program}`: {reason}")
    }
}

impl std::error::Error for NotLowered {}

/// What a back end asks of lowering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LowerForm {
    /// How softmaxes over edges are executed.
    pub softmax: SoftmaxForm,
    /// Dense products with weights of at most this many elements belong to the rows that they read; larger ones are
    /// kernels of their own.
    pub row_weight: usize,
    /// The same of gradients of weights, which rows add up.
    pub row_outer: usize,
    /// Elements of gradients of weights that a traversal adds up over its edges.
    pub edge_outer: usize,
    /// Other products, of rows of vertices with at most this many columns, belong to what computes their operand and to what
    /// reads their result: blocks of rows go through a kernel together.
    pub tile_width: usize,
    /// Kernels whose results are small run with the first launch that they can run with.
    pub early: bool,
    /// What depends on no parameter is computed once and kept. It is not worth its memory where a program runs now and
    /// then only: the evaluation of a model that is trained on batches.
    pub keeps: bool,
    /// Decisions that are left out.
    pub without: Without,
}

impl LowerForm {
    /// A processor: weights that stay in a near cache while blocks of rows are multiplied with them.
    pub const CPU: Self = Self {
        softmax: SoftmaxForm::InPasses,
        row_weight: 16 * 1024,
        row_outer: 16 * 1024,
        edge_outer: usize::MAX,
        tile_width: 0,
        early: false,
        keeps: true,
        without: Without::NOTHING,
    };
    /// A graphics processor: its matrix units want tiles of rows, so that in traversals with edges only small weights belong
    /// to rows. Each pass over the edges computes their values again, so that a softmax takes one.
    pub const GPU: Self = Self {
        softmax: SoftmaxForm::InOnePass,
        row_weight: 1024,
        row_outer: 0,
        edge_outer: 2048,
        tile_width: 128,
        early: true,
        keeps: true,
        without: Without::NOTHING,
    };

    /// Of a machine; without one, of a processor.
    pub fn of(machine: Option<&Machine>) -> Self {
        if machine.is_some_and(|machine| machine.target.starts_with("sm_")) { Self::GPU } else { Self::CPU }
    }

    /// Of a program that keeps nothing from run to run, or does.
    #[must_use]
    pub fn keeping(self, keeps: bool) -> Self {
        Self { keeps, ..self }
    }

    /// With some decisions left out.
    #[must_use]
    pub fn leaving_out(self, without: Without) -> Self {
        let mut form = Self { without, ..self };
        if without.has(Decision::SmallProducts) {
            (form.row_weight, form.row_outer) = (0, 0);
        }
        if without.has(Decision::OnePassSoftmax) {
            form.softmax = SoftmaxForm::InPasses;
        }
        if without.has(Decision::TileProducts) {
            form.tile_width = 0;
        }
        form.early &= !without.has(Decision::EarlyLaunches);
        form.keeps &= !without.has(Decision::KeepFixed);
        form
    }

    /// With softmaxes in another form.
    #[must_use]
    pub fn with_softmax(self, softmax: SoftmaxForm) -> Self {
        Self { softmax, ..self }
    }
}

impl Default for LowerForm {
    fn default() -> Self {
        Self::CPU
    }
}

/// Lowers a verified program to kernels for a processor.
///
/// # Errors
/// [`NotLowered`] at an operation or output for which there is no kernel.
///
/// # Panics
/// In debug builds, when the result breaks a rule of the kernel IR: an internal error with the rules and the text.
pub fn lower(flow: &Dataflow) -> Result<Program, NotLowered> {
    lower_with(flow, LowerForm::CPU)
}

/// As [`lower`], in the form that a back end asks for.
///
/// # Errors
/// As [`lower`].
pub fn lower_with(flow: &Dataflow, form: LowerForm) -> Result<Program, NotLowered> {
    lower_apart(flow, form, &HashSet::new())
}

/// As [`lower_with`], with each of these values computed by a kernel of its own: those of [`fused`].
///
/// # Errors
/// As [`lower_with`].
///
/// # Panics
/// As [`lower`].
pub fn lower_apart(flow: &Dataflow, form: LowerForm, apart: &HashSet<Value>) -> Result<Program, NotLowered> {
    let facts = Facts::new(flow);
    let (fixed, varying) = schedule(&facts, form, apart);
    let stored = stored_values(&facts, &fixed, &varying);
    let mut builder = Builder::new(&facts, form);
    builder.declare(&stored);
    let mut program = Program {
        tables: flow.with_tables_of(flow.name.clone()),
        prelude: builder.launches(&fixed)?,
        launches: builder.launches(&varying)?,
        outputs: builder.outputs()?,
        buffers: builder.decls,
    };
    if !form.without.has(Decision::InPlace) {
        in_place::replace(&mut program);
    }
    if !form.without.has(Decision::SideBySide) {
        side_by_side::join(&mut program, form.early);
    }
    if cfg!(debug_assertions)
        && let Err(broken) = hgnnc_ir::kernel::verify(&program)
    {
        let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
        panic!("internal error: lowering broke the rules of kernels:\n{}\n{program}", broken.join("\n"));
    }
    Ok(program)
}

/// The single decisions of [`lower_with`]: by the name of each value that a kernel of several values stores, these values.
pub fn fused(flow: &Dataflow, form: LowerForm) -> Vec<(String, HashSet<Value>)> {
    let facts = Facts::new(flow);
    let (fixed, varying) = schedule(&facts, form, &HashSet::new());
    let stored = stored_values(&facts, &fixed, &varying);
    let builder = Builder::new(&facts, form);
    let mut names = vec![];
    for group in fixed.iter().chain(&varying).filter(|group| group.members.len() > 1) {
        let members: HashSet<Value> = group.members.iter().copied().collect();
        let here = group.members.iter().filter(|member| stored.contains(member));
        names.extend(here.map(|&member| (builder.name(member), members.clone())));
    }
    names
}

/// What each traversal with edges computes together, and why its edge values take no memory: one line each. With sizes
/// and a machine also how long it takes at least, and how long if edge values were stored and read again.
pub fn explain(program: &Program, known: Option<(&SizeInfo, &Machine)>) -> Vec<String> {
    let mut lines = vec![];
    for (number, kernel) in program.kernels().enumerate() {
        let Body::Traversal(traversal) = &kernel.body else { continue };
        if !traversal.rows.has_edges() {
            continue;
        }
        let stored: Vec<&str> = kernel.writes().iter().map(|&b| program.buffer(b).name.as_str()).collect();
        let count = |test: fn(&Instr) -> bool| traversal.instrs.iter().filter(|instr| test(instr)).count();
        lines.push(format!(
            "kernels: k{number} ({}, {}) stores {}, in one pass over these rows; edge values made on the way \
             and not stored: {}; products fused into sums: {}{}{}{}",
            print_rows(program, &traversal.rows),
            kernel.phase.name(),
            stored.join(", "),
            count(|instr| instr.extent() == Extent::Edge && matches!(instr.dest, Dest::Local(_))),
            count(|instr| {
                matches!(instr.op, KernelOp::WeightedSum { .. } | KernelOp::SoftmaxSum { .. } | KernelOp::Dot(..))
            }),
            known.and_then(|(sizes, machine)| compared(program, kernel, sizes, machine)).unwrap_or_default(),
            known.and_then(|(sizes, _)| cut(traversal, sizes)).unwrap_or_default(),
            softmax_form(traversal).unwrap_or_default()
        ));
    }
    lines
}

/// Predicted times of a traversal as it is, and with its edge values stored and read again by kernels of their own.
/// `None` where it has no such values.
fn compared(program: &Program, kernel: &Kernel, sizes: &SizeInfo, machine: &Machine) -> Option<String> {
    let parts = bounds::apart(program, kernel, sizes)?;
    let fused = bounds::kernel_work(program, kernel, sizes);
    let moved = |work: &Work| work.read + work.written;
    let times = Times {
        chosen: machine.predict(&fused).seconds(),
        other: parts.iter().map(|part| machine.predict(part).seconds()).sum(),
    };
    let saved = parts.iter().map(moved).sum::<f64>() - moved(&fused);
    Some(format!("; {} (saves {:.3} MB written and read)", times.text("fused", "apart"), saved * 1e-6))
}

/// What is cut of the rows of a traversal, where it is known that there are such rows.
fn cut(traversal: &Traversal, sizes: &SizeInfo) -> Option<String> {
    let (Rows::Edges(graph, direction) | Rows::Ends(graph, direction)) = traversal.rows else { return None };
    let ends = sizes.ends.get(graph.index())?;
    let longest = match direction {
        Direction::In => ends.max_in,
        Direction::Out => ends.max_out,
    };
    let piece = traversal.pieces?.len(*sizes.edges.get(graph.index())? as usize) as u64;
    let text = || format!("; rows of more than {piece} edges are cut into pieces: the longest has {longest}");
    (longest > piece).then(text)
}

/// How a softmax over edges is executed, if there is one.
fn softmax_form(traversal: &Traversal) -> Option<&'static str> {
    let any = |test: fn(&KernelOp) -> bool| traversal.instrs.iter().any(|instr| test(&instr.op));
    let bounded = |operand: &Operand| operand.source == Source::Const(f32::MIN.into());
    if any(|op| matches!(op, KernelOp::SoftmaxSum { .. })) {
        Some("; softmax in one pass: scores are computed again in each")
    } else if traversal.instrs.iter().any(|i| matches!(&i.op, KernelOp::Binary(BinaryOp::Max, _, b) if bounded(b))) {
        Some("; softmax in passes: the scores of a block are at hand between them")
    } else {
        None
    }
}

/// Everything that kernels compute and memory holds.
fn stored_values(facts: &Facts<'_>, fixed: &[Group], varying: &[Group]) -> BTreeSet<Value> {
    let groups: Vec<&Group> = fixed.iter().chain(varying).collect();
    let mut group_of: HashMap<Value, usize> = HashMap::new();
    for (index, group) in groups.iter().enumerate() {
        group_of.extend(group.members.iter().map(|&m| (m, index)));
    }
    let mut stored = BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        let mut pending: Vec<Value> = group.members.clone();
        // Members are seen: what a group computes for itself it does not read.
        let mut seen: HashSet<Value> = pending.iter().copied().collect();
        while let Some(value) = pending.pop() {
            for &arg in &facts.flow.value(value).args {
                let root = facts.root(arg);
                if !seen.insert(root) || facts.is_leaf(root) {
                    continue;
                }
                if facts.topology(root).is_some() {
                    pending.push(root);
                } else if group_of[&root] != index {
                    stored.insert(root);
                }
            }
        }
        let total = |value: Value| match facts.flow.value(value).op {
            Op::ReduceSpace(_) => true,
            // The gradient of a sparse projection has its rows.
            Op::Outer { .. } => !matches!(group.kind, Kind::Edges(Topology::Pattern(_), Direction::Out)),
            _ => false,
        };
        let product = matches!(group.kind, Kind::Product(_) | Kind::Paths(_));
        stored.extend(group.members.iter().copied().filter(|&member| product || total(member)));
    }
    let outputs = facts.flow.outputs.iter().map(|output| facts.root(facts.output_value(output)));
    stored.extend(outputs.filter(|root| group_of.contains_key(root)));
    stored
}

/// State of lowering one program.
struct Builder<'f, 'a> {
    facts: &'f Facts<'a>,
    form: LowerForm,
    /// The buffers of stored values, by root.
    buffers: HashMap<Value, Buffer>,
    decls: Vec<BufferDecl>,
    names: HashSet<String>,
    /// The first output that each value is.
    outputs: HashMap<Value, &'f OutputKind>,
}

impl<'f, 'a> Builder<'f, 'a> {
    fn new(facts: &'f Facts<'a>, form: LowerForm) -> Self {
        let mut outputs = HashMap::new();
        for output in &facts.flow.outputs {
            outputs.entry(facts.root(facts.output_value(output))).or_insert(&output.kind);
        }
        Self { facts, form, buffers: HashMap::new(), decls: vec![], names: HashSet::new(), outputs }
    }

    /// Declares leaves and stored values, in the order of the program.
    fn declare(&mut self, stored: &BTreeSet<Value>) {
        let flow = self.facts.flow;
        let mut leaves: HashMap<Contents, usize> = HashMap::new();
        for value in flow.handles() {
            if self.facts.root(value) != value || !self.facts.is_live(value) {
                continue;
            }
            let (contents, name) = match &flow.value(value).op {
                Op::Input(input) => (Contents::Input(*input), flow.inputs[input.index()].name.clone()),
                Op::Param(param) => (Contents::Param(*param), flow.params[param.index()].name.clone()),
                Op::State(param, slot) => {
                    (Contents::State(*param, *slot), format!("{}.state{slot}", flow.params[param.index()].name))
                }
                _ if stored.contains(&value) => (Contents::Computed, self.name(value)),
                _ => continue,
            };
            // The same leaf may be several values.
            let row = leaves.get(&contents).copied().unwrap_or_else(|| {
                let name = if self.names.contains(&name) { format!("{name}.{}", value.index()) } else { name };
                self.names.insert(name.clone());
                self.decls.push(BufferDecl { name, ty: flow.ty(value).clone(), contents, replaces: None });
                self.decls.len() - 1
            });
            if contents != Contents::Computed {
                leaves.insert(contents, row);
            }
            self.buffers.insert(value, Buffer::new(row));
        }
    }

    /// A name for a stored value: what it is for, or its operation and number.
    fn name(&self, value: Value) -> String {
        let flow = self.facts.flow;
        match self.outputs.get(&value) {
            Some(OutputKind::Result(name)) => name.clone(),
            Some(OutputKind::UpdateParam(param)) => format!("{}.new", flow.params[param.index()].name),
            Some(OutputKind::UpdateState(param, slot)) => {
                format!("{}.state{slot}.new", flow.params[param.index()].name)
            }
            None => format!("{}{}", word(&flow.value(value).op), value.index()),
        }
    }

    /// The buffer of a stored value.
    fn stored(&self, root: Value) -> Option<Buffer> {
        self.buffers.get(&root).copied()
    }

    /// A value that is there before its group.
    fn source(&self, root: Value) -> Result<Source, NotLowered> {
        match &self.facts.flow.value(root).op {
            Op::Const(number) => Ok(Source::Const(*number)),
            Op::Count(space) => Ok(Source::Count(*space)),
            _ => match self.stored(root) {
                Some(buffer) => Ok(Source::Buffer(buffer)),
                None => Err(self.facts.error(root, "internal error: a value is used before it is computed")),
            },
        }
    }

    fn launches(&self, groups: &[Group]) -> Result<Vec<Launch>, NotLowered> {
        groups.iter().map(|group| Ok(Launch { kernels: vec![self.kernel(group)?], leading: 0 })).collect()
    }

    fn kernel(&self, group: &Group) -> Result<Kernel, NotLowered> {
        let node = self.facts.flow.value(group.members[0]);
        let (stage, body) = match group.kind {
            Kind::Product(value) => (node.stage, Body::Gemm(self.gemm(value)?)),
            Kind::Paths(_) => (node.stage, Body::Paths(self.paths(&group.members)?)),
            Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Edges(..) | Kind::Ends(..) => {
                let traversal = lower_traversal(self, group)?;
                let count = |stage| traversal.instrs.iter().filter(|instr| instr.stage == stage).count();
                // The stage of most instructions, the earliest of several.
                let stages = hgnnc_ir::Stage::ALL.into_iter().rev();
                (stages.max_by_key(|&stage| count(stage)).unwrap_or(node.stage), Body::Traversal(traversal))
            }
        };
        Ok(Kernel { stage, phase: group.phase, body })
    }

    fn gemm(&self, value: Value) -> Result<Gemm, NotLowered> {
        let facts = self.facts;
        let node = facts.flow.value(value);
        let (form, weight, batch) = match &node.op {
            Op::MatMul { batch } => (Form::MatMul, facts.flow.ty(node.args[1]), *batch),
            Op::MatMulT { batch } => (Form::MatMulT, facts.flow.ty(node.args[1]), *batch),
            Op::Outer { batch } => (Form::Outer, &node.ty, *batch),
            _ => return Err(facts.error(value, "internal error: only products are scheduled as products")),
        };
        let buffer = |value: Value| match self.source(facts.root(value))? {
            Source::Buffer(buffer) => Ok(buffer),
            Source::Local(_) | Source::Const(_) | Source::Count(_) => {
                Err(facts.error(value, "internal error: an operand of a product is not stored"))
            }
        };
        let (x, y, out) = (buffer(node.args[0])?, buffer(node.args[1])?, buffer(value)?);
        let (rows, of) = (facts.flow.ty(node.args[0]).space, facts.extents(weight, batch));
        Ok(Gemm { form, rows, of, x, y, out, from: Provenance(node.origin) })
    }

    /// Sums over paths, of which each is stored.
    fn paths(&self, members: &[Value]) -> Result<Paths, NotLowered> {
        let facts = self.facts;
        let buffer = |value: Value| match self.source(facts.root(value))? {
            Source::Buffer(buffer) => Ok(buffer),
            Source::Local(_) | Source::Const(_) | Source::Count(_) => {
                Err(facts.error(value, "internal error: an operand of a sum over paths is not stored"))
            }
        };
        let first = facts.flow.value(members[0]);
        let Op::Paths(of) = first.op else {
            return Err(facts.error(members[0], "internal error: only sums over paths are scheduled as such"));
        };
        let mut sums = vec![];
        for &member in members {
            let node = facts.flow.value(member);
            let Op::Paths(sum) = node.op else { continue };
            let operand = |i: usize| node.args.get(i).map(|&arg| buffer(arg)).transpose();
            sums.push(PathOut { term: sum.term, n: operand(2)?, w: operand(3)?, out: buffer(member)? });
        }
        Ok(Paths {
            first: of.first,
            second: of.second,
            direction: of.direction,
            slope: of.slope,
            heads: facts.width(first.args[0]),
            x: buffer(first.args[0])?,
            y: buffer(first.args[1])?,
            sums,
            from: Provenance(first.origin),
        })
    }

    fn outputs(&self) -> Result<Vec<Output>, NotLowered> {
        let flow = self.facts.flow;
        let output = |output: &hgnnc_ir::Output| {
            let value = self.facts.output_value(output);
            let ty: Type = flow.ty(value).clone();
            if ty.is_sparse() {
                return Err(self.facts.error(value, "a sparse value cannot be an output"));
            }
            Ok(Output { kind: output.kind.clone(), source: self.source(self.facts.root(value))?, ty })
        };
        flow.outputs.iter().map(output).collect()
    }
}

/// An operand of a local or of a number: the row at hand, or the number.
fn operand(source: Source, index: Index) -> Operand {
    match source {
        Source::Const(_) | Source::Count(_) => Operand { source, index: Index::Whole },
        Source::Local(_) | Source::Buffer(_) => Operand { source, index },
    }
}
