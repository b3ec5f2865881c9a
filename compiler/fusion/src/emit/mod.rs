//! Groups as kernels: each becomes a kernel with a launch of its own, each stored value a buffer.
//!
//! A dense product and the reductions over a factored metapath are kernels of their own kinds; every other group is a
//! traversal ([`traversal`]).

mod traversal;

use std::collections::BTreeSet;

use hgnnc_analysis::aliases::AliasAnalysis;
use hgnnc_ir::ProductForm;
use hgnnc_ir::width::Width;
use hgnnc_ir::{Op, Provenance, Space, Type, Value};
use hgnnc_kernel_ir::kernel::{
    Body, Buffer, BufferDecl, Contents, Exchange, FactoredMetapath, FactoredOut, Gemm, Index, Kernel, Launch, Operand,
    Output, Program, Source,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::groups::{Group, Groups, Kind, value_names};
use crate::{NotLowered, error};
use traversal::lower_traversal;

/// The kernels of the groups of a program, before any pass over kernels.
///
/// # Errors
/// [`NotLowered`] at an operation or output for which there is no kernel.
pub(crate) fn emit(aliases: &AliasAnalysis<'_>, groups: &Groups) -> Result<Program, NotLowered> {
    let mut builder = Builder::new(aliases);
    builder.declare(&groups.stored);
    Ok(Program {
        tables: aliases.flow.with_tables_of(aliases.flow.name.clone()),
        prelude: builder.launches(&groups.prelude)?,
        launches: builder.launches(&groups.launches)?,
        outputs: builder.outputs()?,
        buffers: builder.decls,
    })
}

/// The state of lowering one program.
struct Builder<'f, 'a> {
    aliases: &'f AliasAnalysis<'a>,
    /// The buffers of stored values, by root.
    buffers: FxHashMap<Value, Buffer>,
    decls: Vec<BufferDecl>,
    names: FxHashSet<String>,
}

impl<'f, 'a> Builder<'f, 'a> {
    fn new(aliases: &'f AliasAnalysis<'a>) -> Self {
        Self { aliases, buffers: FxHashMap::default(), decls: vec![], names: FxHashSet::default() }
    }

    /// Declares leaves and stored values, in the order of the program.
    fn declare(&mut self, stored: &BTreeSet<Value>) {
        let name_of = value_names(self.aliases);
        let flow = self.aliases.flow;
        let mut leaves: FxHashMap<Contents, usize> = FxHashMap::default();
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
                _ if stored.contains(&value) => (Contents::Computed, name_of(value)),
                _ => continue,
            };
            // The same leaf may be several values.
            let row = leaves.get(&contents).copied().unwrap_or_else(|| {
                let name = if self.names.contains(&name) { format!("{name}.{}", value.index()) } else { name };
                self.names.insert(name.clone());
                // Edges as rows are written by a traversal of the edges.
                let of = if self.aliases.edges_as_rows(value).is_some() { flow.value(value).args[0] } else { value };
                self.decls.push(BufferDecl { name, ty: flow.ty(of).clone(), contents, replaces: None, extends: None });
                self.decls.len() - 1
            });
            if contents != Contents::Computed {
                leaves.insert(contents, row);
            }
            self.buffers.insert(value, Buffer::new(row));
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
            Kind::Exchange(value) => (node.stage, Body::Exchange(self.exchange(value)?)),
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
            Op::MatMul { batch } => (ProductForm::MatMul, *batch, None),
            Op::MatMulT { batch } => (ProductForm::MatMulT, *batch, None),
            Op::Outer { batch } => (ProductForm::Outer, *batch, None),
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
        let weight = if form == ProductForm::Outer { &node.ty } else { aliases.flow.ty(node.args[1]) };
        let (rows, of) = (aliases.flow.ty(node.args[0]).space, aliases.extents(weight, batch));
        Ok(Gemm { form, rows, members, of, x, y, out, from: Provenance(node.origin) })
    }

    fn exchange(&self, value: Value) -> Result<Exchange, NotLowered> {
        let aliases = self.aliases;
        let node = aliases.flow.value(value);
        let wrong = || error(aliases, value, "internal error: only rows of vertices are exchanged");
        let buffer = |value: Value| match self.source(aliases.storage_of(value))? {
            Source::Buffer(buffer) => Ok(buffer),
            Source::Local(_) | Source::Const(_) | Source::Count(_) => {
                Err(error(aliases, value, "internal error: the operand of an exchange is not stored"))
            }
        };
        let to = match &node.op {
            Op::Exchange(to) => Some(*to),
            Op::SumRanks => None,
            _ => return Err(wrong()),
        };
        let Space::Vertices(rows) = aliases.flow.ty(node.args[0]).space else { return Err(wrong()) };
        let (x, out) = (buffer(node.args[0])?, buffer(value)?);
        // A sum of sections of pairs has a row for each member.
        let width = match (to, node.ty.space) {
            (None, Space::Vertices(members)) => Width::count(members).times(&aliases.width(value)),
            _ => aliases.width(value),
        };
        Ok(Exchange { rows, to, width, x, out, from: Provenance(node.origin) })
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
