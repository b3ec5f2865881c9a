//! Lowers the dataflow IR to the kernel IR: which operations share a kernel, and which values are stored.
//!
//! The steps, each from the program alone:
//!
//! 1. `schedule` groups operations by the rows that they have, one traversal per (graph, direction) dependency
//!    level, so that edge values need no memory: every traversal recomputes those that it reads.
//! 2. `stored_values`: a value is stored where another kernel reads it, where it is a reduction over all rows or a
//!    large dense product, or where it is an output.
//! 3. `traversal` lowers a group: gathers, reshapes and broadcasts become addressing modes of operands.
//!
//! Then the passes of [`KERNEL_PASSES`] go from kernels to kernels: `online_softmax` computes edge softmaxes in one pass,
//! `shared_softmax` with one exponential per edge, `multiply_reduce` fuses multiplications into the sums that read them,
//! `split_rows` decides how high-degree rows are split, `in_place` updates parameters and optimizer state in place and
//! reuses the buffers of dead operands, `co_schedule` joins independent consecutive kernels to one launch, and
//! `interleave` mixes the thread blocks of compute-bound and memory-bound ones.
//!
//! Only `interleave` reads sizes of a dataset. [`LoweringOptions`] has the preferences of a back end.

mod co_schedule;
mod fusion_rules;
mod in_place;
mod inline;
mod instrs;
mod interleave;
mod multiply_reduce;
mod online_softmax;
mod pipeline;
mod schedule;
mod shared_softmax;
mod split_rows;
mod traversal;
mod worklist;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

use hgnnc_ir::infer::show;
use hgnnc_ir::kernel::{
    Body, Buffer, BufferDecl, Contents, Dest, Extent, FactoredMetapath, FactoredOut, Form, Gemm, Index, Instr, Kernel,
    KernelOp, Launch, Operand, Output, Program, Rows, Source, Traversal, print::print_rows,
};
use hgnnc_ir::{BinaryOp, Dataflow, Direction, Op, OutputKind, Provenance, Type, Value};
use hgnnc_machine::{Machine, Work};

pub use self::fusion_rules::{DisabledFusions, FusionRule, VALUE_PREFIX};
pub use self::online_softmax::SoftmaxForm;
pub use self::pipeline::{KERNEL_PASSES, KernelCx, KernelPass, run as run_kernel_passes};
use self::schedule::{Group, Kind, schedule};
use self::traversal::lower_traversal;
use hgnnc_analysis::aliases::{AliasAnalysis, Topology};
use hgnnc_analysis::cost::{self, Times};
use hgnnc_ir::sizes::SizeInfo;

/// An operation for which there is no kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotLowered {
    /// Name of the program.
    pub program: String,
    /// Stage of the operation.
    pub stage: &'static str,
    /// The mnemonic of the operation.
    pub op: &'static str,
    /// The types of its operands and of its result.
    pub types: String,
    /// The reason, for a message.
    pub reason: String,
}

impl fmt::Display for NotLowered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, stage, op, types, reason } = self;
        write!(f, "there is no kernel for `{op}` ({types}) of stage {stage} in `{program}`: {reason}")
    }
}

impl std::error::Error for NotLowered {}

/// An error at an operation.
pub(crate) fn error(aliases: &AliasAnalysis<'_>, value: Value, reason: impl Into<String>) -> NotLowered {
    let flow = aliases.flow;
    let node = flow.value(value);
    let types: Vec<String> =
        node.args.iter().map(|&arg| flow.ty(arg)).chain([&node.ty]).map(|ty| show(flow, ty)).collect();
    NotLowered {
        program: flow.name.clone(),
        stage: node.stage.name(),
        op: node.op.name(),
        types: types.join(", "),
        reason: reason.into(),
    }
}

/// The preferences of a back end, and the fusion rules that are disabled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoweringOptions {
    /// How edge softmaxes are computed.
    pub softmax: SoftmaxForm,
    /// Dense products with weights of at most this many elements are fused with the kernel that computes their rows;
    /// larger ones are kernels of their own.
    pub row_weight: usize,
    /// The same limit for gradients of weights, which are sums over rows.
    pub row_outer: usize,
    /// Elements of weight gradients that a traversal accumulates over its edges.
    pub edge_outer: usize,
    /// Larger products over vertex rows of at most this many columns have a prologue and an epilogue: tiles of rows
    /// pass through producer, product and consumers in one kernel.
    pub tile_width: usize,
    /// Kernels with small results run in the earliest launch that has their operands.
    pub early_launch: bool,
    /// Values that depend on no parameter are hoisted into the prelude and kept. That is not worth its memory for a
    /// program that runs rarely: the evaluation of a model that is trained on mini-batches.
    pub hoist_invariants: bool,
    /// Fusion rules that do not apply.
    pub disabled: DisabledFusions,
}

impl LoweringOptions {
    /// A CPU: small weights stay cache-resident while blocks of rows are multiplied with them.
    pub const CPU: Self = Self {
        softmax: SoftmaxForm::InPasses,
        row_weight: 16 * 1024,
        row_outer: 16 * 1024,
        edge_outer: usize::MAX,
        tile_width: 0,
        early_launch: false,
        hoist_invariants: true,
        disabled: DisabledFusions::NONE,
    };
    /// A GPU: tensor cores need tiles of rows, so traversals with edges take only products with small weights. Each
    /// pass over the edges recomputes their values, so a softmax takes one pass.
    pub const GPU: Self = Self {
        softmax: SoftmaxForm::InOnePass,
        row_weight: 1024,
        row_outer: 0,
        edge_outer: 2048,
        tile_width: 128,
        early_launch: true,
        hoist_invariants: true,
        disabled: DisabledFusions::NONE,
    };

    /// The options for a machine; [`Self::CPU`] without one.
    pub fn of(machine: Option<&Machine>) -> Self {
        if machine.is_some_and(|machine| machine.capabilities.thread_blocks) { Self::GPU } else { Self::CPU }
    }

    /// With or without a prelude that computes loop invariants.
    #[must_use]
    pub fn with_hoisting(self, hoist_invariants: bool) -> Self {
        Self { hoist_invariants, ..self }
    }

    /// Without some fusion rules.
    #[must_use]
    pub fn without(self, disabled: DisabledFusions) -> Self {
        let mut options = Self { disabled, ..self };
        if disabled.contains(FusionRule::SmallGemm) {
            (options.row_weight, options.row_outer) = (0, 0);
        }
        if disabled.contains(FusionRule::OnlineSoftmax) {
            options.softmax = SoftmaxForm::InPasses;
        }
        if disabled.contains(FusionRule::GemmEpilogue) {
            options.tile_width = 0;
        }
        options.early_launch &= !disabled.contains(FusionRule::EarlyLaunch);
        options.hoist_invariants &= !disabled.contains(FusionRule::HoistInvariants);
        options
    }

    /// With another way to compute edge softmaxes.
    #[must_use]
    pub fn with_softmax(self, softmax: SoftmaxForm) -> Self {
        Self { softmax, ..self }
    }
}

impl Default for LoweringOptions {
    fn default() -> Self {
        Self::CPU
    }
}

/// Lowers a verified program to kernels for a CPU.
///
/// # Errors
/// [`NotLowered`] at an operation or output for which there is no kernel.
///
/// # Panics
/// In debug builds, when the result breaks a rule of the kernel IR: an internal error with the rules and the text.
pub fn lower(flow: &Dataflow) -> Result<Program, NotLowered> {
    lower_with(flow, LoweringOptions::CPU)
}

/// As [`lower`], with the options of a back end.
///
/// # Errors
/// As [`lower`].
pub fn lower_with(flow: &Dataflow, options: LoweringOptions) -> Result<Program, NotLowered> {
    lower_unfused(flow, &HashSet::new(), &mut KernelCx::new(options))
}

/// As [`lower_with`], with a kernel of its own for each of the values `unfused`, which [`fused`] lists, and with a
/// context of [`KERNEL_PASSES`].
///
/// # Errors
/// As [`lower_with`].
///
/// # Panics
/// As [`lower`].
pub fn lower_unfused(flow: &Dataflow, unfused: &HashSet<Value>, cx: &mut KernelCx) -> Result<Program, NotLowered> {
    let options = cx.options;
    let aliases = AliasAnalysis::new(flow);
    let (fixed, varying) = schedule(&aliases, options, unfused);
    let stored = stored_values(&aliases, &fixed, &varying);
    let mut builder = Builder::new(&aliases);
    builder.declare(&stored);
    let mut program = Program {
        tables: flow.with_tables_of(flow.name.clone()),
        prelude: builder.launches(&fixed)?,
        launches: builder.launches(&varying)?,
        outputs: builder.outputs()?,
        buffers: builder.decls,
    };
    pipeline::run(KERNEL_PASSES, &mut program, cx);
    Ok(program)
}

/// The kernels of several values that [`lower_with`] forms: for the name of each value that one stores, all its values.
pub fn fused(flow: &Dataflow, options: LoweringOptions) -> Vec<(String, HashSet<Value>)> {
    let aliases = AliasAnalysis::new(flow);
    let (fixed, varying) = schedule(&aliases, options, &HashSet::new());
    let stored = stored_values(&aliases, &fixed, &varying);
    let builder = Builder::new(&aliases);
    let mut names = vec![];
    for group in fixed.iter().chain(&varying).filter(|group| group.members.len() > 1) {
        let members: HashSet<Value> = group.members.iter().copied().collect();
        let here = group.members.iter().filter(|member| stored.contains(member));
        names.extend(here.map(|&member| (builder.name(member), members.clone())));
    }
    names
}

/// Explains each traversal with edges in one line: its results, and the edge values that it does not store. With sizes
/// and a machine also its predicted time, and the time of unfused kernels that store edge values.
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
            "kernels: k{number} ({}, {}) stores {}, in one pass over these rows; edge values computed inline \
             and not stored: {}; products fused into sums: {}{}{}{}",
            print_rows(program, &traversal.rows),
            kernel.phase.name(),
            stored.join(", "),
            count(|instr| instr.extent() == Extent::Edge && matches!(instr.dest, Dest::Local(_))),
            count(|instr| {
                matches!(instr.op, KernelOp::WeightedSum { .. } | KernelOp::SoftmaxSum { .. } | KernelOp::Dot(..))
            }),
            known.and_then(|(sizes, machine)| compared(program, kernel, sizes, machine)).unwrap_or_default(),
            known.and_then(|(sizes, _)| split(traversal, sizes)).unwrap_or_default(),
            softmax_form(traversal).unwrap_or_default()
        ));
    }
    lines
}

/// Predicted times of a traversal, and of unfused kernels that store its edge values and read them again. `None` where
/// it has no such values.
fn compared(program: &Program, kernel: &Kernel, sizes: &SizeInfo, machine: &Machine) -> Option<String> {
    let parts = cost::unfused_work(program, kernel, sizes)?;
    let fused = cost::kernel_work(program, kernel, sizes);
    let moved = |work: &Work| work.read + work.written;
    let times = Times {
        chosen: machine.predict(&fused).seconds(),
        other: parts.iter().map(|part| machine.predict(part).seconds()).sum(),
    };
    let saved = parts.iter().map(moved).sum::<f64>() - moved(&fused);
    Some(format!("; {} (saves {:.3} MB written and read)", times.text("fused", "unfused"), saved * 1e-6))
}

/// Explains that a traversal splits high-degree rows, if there are such rows.
fn split(traversal: &Traversal, sizes: &SizeInfo) -> Option<String> {
    let (Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction)) = traversal.rows else { return None };
    let ends = sizes.ends.get(graph.index())?;
    let longest = match direction {
        Direction::In => ends.max_in,
        Direction::Out => ends.max_out,
    };
    let piece = traversal.pieces?.len(*sizes.edges.get(graph.index())? as usize) as u64;
    let text = || format!("; rows of more than {piece} edges are split: the longest has {longest}");
    (longest > piece).then(text)
}

/// Explains how an edge softmax is computed, if there is one.
fn softmax_form(traversal: &Traversal) -> Option<&'static str> {
    let any = |test: fn(&KernelOp) -> bool| traversal.instrs.iter().any(|instr| test(&instr.op));
    let bounded = |operand: &Operand| operand.source == Source::Const(f32::MIN.into());
    if any(|op| matches!(op, KernelOp::SoftmaxSum { .. })) {
        Some("; online softmax: each pass recomputes the scores")
    } else if traversal.instrs.iter().any(|i| matches!(&i.op, KernelOp::Binary(BinaryOp::Max, _, b) if bounded(b))) {
        Some("; softmax in three passes: caches hold the scores of a block between them")
    } else {
        None
    }
}

/// The computed values that are stored in memory.
fn stored_values(aliases: &AliasAnalysis<'_>, fixed: &[Group], varying: &[Group]) -> BTreeSet<Value> {
    let groups: Vec<&Group> = fixed.iter().chain(varying).collect();
    let mut group_of: HashMap<Value, usize> = HashMap::new();
    for (index, group) in groups.iter().enumerate() {
        group_of.extend(group.members.iter().map(|&m| (m, index)));
    }
    let mut stored = BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        let mut pending: Vec<Value> = group.members.clone();
        // Members count as seen, since a group does not read its own values from memory.
        let mut seen: HashSet<Value> = pending.iter().copied().collect();
        while let Some(value) = pending.pop() {
            for &arg in &aliases.flow.value(value).args {
                let root = aliases.storage_of(arg);
                if !seen.insert(root) || aliases.is_leaf(root) {
                    continue;
                }
                if aliases.topology(root).is_some() {
                    pending.push(root);
                } else if group_of[&root] != index {
                    stored.insert(root);
                }
            }
        }
        let total = |value: Value| match aliases.flow.value(value).op {
            Op::ReduceSpace(_) => true,
            // The gradient of a sparse projection is computed row by row.
            Op::Outer { .. } => !matches!(group.kind, Kind::Edges(Topology::Pattern(_), Direction::Out)),
            _ => false,
        };
        let product = matches!(group.kind, Kind::Product(_) | Kind::FactoredMetapath(_));
        stored.extend(group.members.iter().copied().filter(|&member| product || total(member)));
    }
    let outputs = aliases.flow.outputs.iter().map(|output| aliases.storage_of(aliases.output_value(output)));
    stored.extend(outputs.filter(|root| group_of.contains_key(root)));
    stored
}

/// The state of lowering one program.
struct Builder<'f, 'a> {
    aliases: &'f AliasAnalysis<'a>,
    /// The buffers of stored values, by root.
    buffers: HashMap<Value, Buffer>,
    decls: Vec<BufferDecl>,
    names: HashSet<String>,
    /// The first output of each value.
    outputs: HashMap<Value, &'f OutputKind>,
}

impl<'f, 'a> Builder<'f, 'a> {
    fn new(aliases: &'f AliasAnalysis<'a>) -> Self {
        let mut outputs = HashMap::new();
        for output in &aliases.flow.outputs {
            outputs.entry(aliases.storage_of(aliases.output_value(output))).or_insert(&output.kind);
        }
        Self { aliases, buffers: HashMap::new(), decls: vec![], names: HashSet::new(), outputs }
    }

    /// Declares leaves and stored values, in the order of the program.
    fn declare(&mut self, stored: &BTreeSet<Value>) {
        let flow = self.aliases.flow;
        let mut leaves: HashMap<Contents, usize> = HashMap::new();
        for value in flow.handles() {
            if self.aliases.storage_of(value) != value || !self.aliases.is_live(value) {
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

    /// A name for a stored value: its output, or its mnemonic and number.
    fn name(&self, value: Value) -> String {
        let flow = self.aliases.flow;
        match self.outputs.get(&value) {
            Some(OutputKind::Result(name)) => name.clone(),
            Some(OutputKind::UpdateParam(param)) => format!("{}.new", flow.params[param.index()].name),
            Some(OutputKind::UpdateState(param, slot)) => {
                format!("{}.state{slot}.new", flow.params[param.index()].name)
            }
            None => format!("{}{}", flow.value(value).op.name(), value.index()),
        }
    }

    /// The buffer of a stored value.
    fn stored(&self, root: Value) -> Option<Buffer> {
        self.buffers.get(&root).copied()
    }

    /// The source of a value that is available before its group.
    fn source(&self, root: Value) -> Result<Source, NotLowered> {
        match &self.aliases.flow.value(root).op {
            Op::Const(number) => Ok(Source::Const(*number)),
            Op::Count(space) => Ok(Source::Count(*space)),
            _ => match self.stored(root) {
                Some(buffer) => Ok(Source::Buffer(buffer)),
                None => Err(error(self.aliases, root, "internal error: a value is used before it is computed")),
            },
        }
    }

    fn launches(&self, groups: &[Group]) -> Result<Vec<Launch>, NotLowered> {
        groups.iter().map(|group| Ok(Launch { kernels: vec![self.kernel(group)?], interleaved: 0 })).collect()
    }

    fn kernel(&self, group: &Group) -> Result<Kernel, NotLowered> {
        let node = self.aliases.flow.value(group.members[0]);
        let (stage, body) = match group.kind {
            Kind::Product(value) => (node.stage, Body::Gemm(self.gemm(value)?)),
            Kind::FactoredMetapath(_) => (node.stage, Body::FactoredMetapath(self.factored_metapath(&group.members)?)),
            Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Edges(..) | Kind::Endpoints(..) => {
                let traversal = lower_traversal(self, group)?;
                (traversal.main_stage().unwrap_or(node.stage), Body::Traversal(traversal))
            }
        };
        Ok(Kernel { stage, phase: group.phase, body })
    }

    fn gemm(&self, value: Value) -> Result<Gemm, NotLowered> {
        let aliases = self.aliases;
        let node = aliases.flow.value(value);
        let (form, batch, members) = match &node.op {
            Op::MatMul { batch } => (Form::MatMul, *batch, None),
            Op::MatMulT { batch } => (Form::MatMulT, *batch, None),
            Op::Outer { batch } => (Form::Outer, *batch, None),
            Op::Grouped { form, batch, members } => (*form, *batch, Some(*members)),
            _ => return Err(error(aliases, value, "internal error: only products are scheduled as products")),
        };
        let buffer = |value: Value| match self.source(aliases.storage_of(value))? {
            Source::Buffer(buffer) => Ok(buffer),
            Source::Local(_) | Source::Const(_) | Source::Count(_) => {
                Err(error(aliases, value, "internal error: an operand of a product is not stored"))
            }
        };
        let (x, y, out) = (buffer(node.args[0])?, buffer(node.args[1])?, buffer(value)?);
        let weight = if form == Form::Outer { &node.ty } else { aliases.flow.ty(node.args[1]) };
        let (rows, of) = (aliases.flow.ty(node.args[0]).space, aliases.extents(weight, batch));
        Ok(Gemm { form, rows, members, of, x, y, out, from: Provenance(node.origin) })
    }

    /// Lowers two-hop sums, each of which is stored.
    fn factored_metapath(&self, members: &[Value]) -> Result<FactoredMetapath, NotLowered> {
        let aliases = self.aliases;
        let buffer = |value: Value| match self.source(aliases.storage_of(value))? {
            Source::Buffer(buffer) => Ok(buffer),
            Source::Local(_) | Source::Const(_) | Source::Count(_) => {
                Err(error(aliases, value, "internal error: an operand of a reduction over a metapath is not stored"))
            }
        };
        let first = aliases.flow.value(members[0]);
        let Op::MetapathReduce(of) = first.op else {
            return Err(error(
                aliases,
                members[0],
                "internal error: only reductions over metapaths are scheduled as such",
            ));
        };
        let mut sums = vec![];
        for &member in members {
            let node = aliases.flow.value(member);
            let Op::MetapathReduce(sum) = node.op else { continue };
            let operand = |i: usize| node.args.get(i).map(|&arg| buffer(arg)).transpose();
            sums.push(FactoredOut { term: sum.term, n: operand(2)?, w: operand(3)?, out: buffer(member)? });
        }
        Ok(FactoredMetapath {
            first: of.first,
            second: of.second,
            direction: of.direction,
            score: of.score,
            heads: aliases.width(first.args[0]),
            x: buffer(first.args[0])?,
            y: buffer(first.args[1])?,
            sums,
            from: Provenance(first.origin),
        })
    }

    fn outputs(&self) -> Result<Vec<Output>, NotLowered> {
        let flow = self.aliases.flow;
        let output = |output: &hgnnc_ir::Output| {
            let value = self.aliases.output_value(output);
            let ty: Type = flow.ty(value).clone();
            if ty.is_sparse() {
                return Err(error(self.aliases, value, "a sparse value cannot be an output"));
            }
            Ok(Output { kind: output.kind.clone(), source: self.source(self.aliases.storage_of(value))?, ty })
        };
        flow.outputs.iter().map(output).collect()
    }
}

/// An operand that reads a local at the current row, or a constant.
fn operand(source: Source, index: Index) -> Operand {
    match source {
        Source::Const(_) | Source::Count(_) => Operand { source, index: Index::Uniform },
        Source::Local(_) | Source::Buffer(_) => Operand { source, index },
    }
}
