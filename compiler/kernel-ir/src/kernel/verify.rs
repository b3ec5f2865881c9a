//! The kernel verifier: the invariants of every program in kernel IR. Back ends may rely on them.

use std::collections::BTreeSet;
use std::fmt;

use hgnnc_ir::dataflow::OutputKind;
use hgnnc_ir::metapath::MetapathTerm;
use hgnnc_ir::ops::{Direction, UnaryOp};
use hgnnc_ir::print::print_type;
use hgnnc_ir::types::{DType, Dim, Layout, Param, Space, Type};
use hgnnc_ir::verify as dataflow;
use hgnnc_ir::violation::Violation;
use rustc_hash::{FxHashMap, FxHashSet};

use super::print::local_extents;
use super::{
    Body, Buffer, Contents, Dest, Exchange, Extent, Extents, FactoredMetapath, Gemm, Index, Instr, Kernel, KernelOp,
    Launch, Level, Operand, Pieces, ProductForm, Program, Rows, Source, Traversal, Width, volume,
};

/// The location of a violation in a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[allow(missing_docs, reason = "the variants are evident")]
pub enum Place {
    Table(dataflow::Place),
    Buffer(usize),
    Kernel(usize),
    /// Number of the kernel and position of the instruction.
    Instr(usize, usize),
    Output(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Table(place) => write!(f, "{place}"),
            Place::Buffer(row) => write!(f, "buffer {row}"),
            Place::Kernel(kernel) => write!(f, "kernel k{kernel}"),
            Place::Instr(kernel, row) => write!(f, "kernel k{kernel}, instruction {row}"),
            Place::Output(row) => write!(f, "output {row}"),
        }
    }
}

/// Checks all rules of kernel programs:
///
/// - the tables satisfy the dataflow verifier; buffer names are unique; leaf buffers have the type of their table row;
/// - a computed buffer is written once, before it is read; no other buffer is written;
/// - kernels of one launch do not read each other's results; kernels of the prelude read nothing that a run may change;
/// - within a kernel, a stored result is read at its own row only, and a global reduction not at all;
/// - locals are numbered in definition order and read in scope: a local of an edge at that edge;
/// - operands have the widths that their operation requires, for all vertex counts;
/// - only rows that own edges are split, into at least one piece of at least one edge;
/// - outputs have the type they are viewed as; an update has the type of its parameter and is the only one;
/// - a buffer that aliases a parameter or state is written after its last read ([`super::Uses::may_replace`]);
/// - rows that lie among their mirrors are sent by the exchange that makes these ([`super::Uses::may_extend`]).
///
/// # Errors
/// All violations, in program order.
pub fn verify(program: &Program) -> Result<(), Vec<Violation<Place>>> {
    let mut verifier =
        Verifier { program, violations: vec![], written: FxHashMap::default(), launch: 0, sound: vec![] };
    verifier.tables();
    // Handles into invalid tables cannot be followed.
    if verifier.violations.is_empty() {
        verifier.buffers();
        let mut number = 0;
        for (launches, prelude) in [(&program.prelude, true), (&program.launches, false)] {
            for launch in launches {
                verifier.launch(launch, number, prelude);
                verifier.launch += 1;
                number += launch.kernels.len();
            }
        }
        verifier.outputs();
        if verifier.violations.is_empty() {
            verifier.replacements();
        }
    }
    if verifier.violations.is_empty() { Ok(()) } else { Err(verifier.violations) }
}

struct Verifier<'a> {
    program: &'a Program,
    violations: Vec<Violation<Place>>,
    /// The buffers written so far, with the launches that wrote them.
    written: FxHashMap<Buffer, usize>,
    /// Number of the current launch, in program order.
    launch: usize,
    /// Buffers whose types refer to existing table rows.
    sound: Vec<bool>,
}

impl Verifier<'_> {
    fn report(&mut self, place: Place, message: impl Into<String>) {
        self.violations.push(Violation { place, message: message.into() });
    }

    fn tables(&mut self) {
        if let Err(broken) = dataflow::verify(&self.program.tables) {
            for Violation { place, message } in broken {
                self.report(Place::Table(place), message);
            }
        }
    }

    fn buffers(&mut self) {
        let program = self.program;
        let tables = &program.tables;
        let mut names = BTreeSet::new();
        for (row, decl) in program.buffers.iter().enumerate() {
            let place = Place::Buffer(row);
            if !names.insert(&decl.name) {
                self.report(place, format!("the name `{}` is taken", decl.name));
            }
            let sound = self.ty(place, &decl.ty);
            self.sound.push(sound);
            let expected = match decl.contents {
                Contents::Input(input) => match tables.inputs.get(input.index()) {
                    Some(input) => Some(input.ty.clone()),
                    None => {
                        self.report(place, format!("there is no input {input}"));
                        None
                    }
                },
                Contents::Param(param) | Contents::State(param, _) => match tables.params.get(param.index()) {
                    Some(_) => Some(tables.param_type(param)),
                    None => {
                        self.report(place, format!("there is no parameter {param}"));
                        None
                    }
                },
                Contents::Computed => {
                    if decl.ty.is_sparse() || decl.ty.dtype != DType::F32 {
                        self.report(place, "kernels write dense f32 values");
                    }
                    None
                }
            };
            if let Some(expected) = expected
                && expected != decl.ty
            {
                self.report(place, format!("what it holds is {}", print_type(tables, &expected)));
            }
        }
    }

    /// Do the handles of a type exist?
    fn ty(&mut self, place: Place, ty: &Type) -> bool {
        let tables = &self.program.tables;
        let vertices = tables.vertex_types.len();
        let space = match ty.space {
            Space::Unit => true,
            Space::Vertices(vertex) => vertex.index() < vertices,
            Space::Edges(graph) | Space::Endpoints(graph, _) => graph.index() < tables.graphs.len(),
            Space::Index(_) => true,
        };
        let dims = Width::of(&ty.dims).counts().iter().all(|vertex| vertex.index() < vertices);
        let layout = match ty.layout {
            Layout::Dense => true,
            Layout::Sparse(pattern) => pattern.index() < tables.patterns.len(),
        };
        let sound = space && dims && layout;
        if !sound {
            self.report(place, "its type names nothing");
        }
        sound
    }

    fn known(&self, buffer: Buffer) -> bool {
        self.sound.get(buffer.index()).copied().unwrap_or(false)
    }

    fn launch(&mut self, launch: &Launch, first: usize, prelude: bool) {
        if launch.kernels.is_empty() {
            self.report(Place::Kernel(first), "the launch before it has no kernel");
        }
        if launch.interleaved > 0 && launch.interleaved >= launch.kernels.len() {
            self.report(
                Place::Kernel(first),
                "all kernels of its launch are interleaved, and there is none to interleave them with",
            );
        }
        // The first and the last kernel that write each buffer.
        let mut writers: FxHashMap<Buffer, (usize, usize)> = FxHashMap::default();
        for (i, kernel) in launch.kernels.iter().enumerate() {
            kernel.writes().into_iter().for_each(|buffer| writers.entry(buffer).or_insert((i, i)).1 = i);
        }
        for (i, kernel) in launch.kernels.iter().enumerate() {
            let place = Place::Kernel(first + i);
            for buffer in kernel.reads() {
                if writers.get(&buffer).is_some_and(|&written| written != (i, i)) {
                    self.report(place, format!("reads `{}`, which its launch writes", self.name(buffer)));
                }
                let changes = !self.known(buffer) || !self.program.is_fixed_input(buffer);
                if prelude && changes && self.is_leaf(buffer) {
                    self.report(place, format!("the prelude reads `{}`, which a run may change", self.name(buffer)));
                }
            }
            self.kernel(kernel, first + i, prelude);
        }
    }

    /// Checks that aliased buffers are dead when they are overwritten.
    fn replacements(&mut self) {
        let program = self.program;
        let mut replaced = FxHashSet::default();
        let uses = program.uses();
        for (row, decl) in program.buffers.iter().enumerate() {
            let Some(old) = decl.replaces else { continue };
            if old.index() >= program.buffers.len() {
                self.report(Place::Buffer(row), format!("there is no buffer {old}"));
            } else if let Err(rule) = uses.may_replace(Buffer::new(row), old) {
                self.report(Place::Buffer(row), format!("cannot replace `{}`: {rule}", self.name(old)));
            } else if !replaced.insert(old) {
                self.report(Place::Buffer(row), format!("`{}` is replaced twice", self.name(old)));
            }
        }
        let mut extended = FxHashSet::default();
        for (row, decl) in program.buffers.iter().enumerate() {
            let Some(own) = decl.extends else { continue };
            if own.index() >= program.buffers.len() {
                self.report(Place::Buffer(row), format!("there is no buffer {own}"));
            } else if decl.replaces.is_some() {
                self.report(Place::Buffer(row), "replaces a buffer, and extends another one");
            } else if let Err(rule) = uses.may_extend(Buffer::new(row), own) {
                self.report(Place::Buffer(row), format!("cannot extend `{}`: {rule}", self.name(own)));
            } else if !extended.insert(own) {
                self.report(Place::Buffer(row), format!("`{}` is extended twice", self.name(own)));
            }
        }
    }

    fn name(&self, buffer: Buffer) -> &str {
        self.program.buffers.get(buffer.index()).map_or("?", |decl| &decl.name)
    }

    fn is_leaf(&self, buffer: Buffer) -> bool {
        self.program.buffers.get(buffer.index()).is_some_and(|decl| decl.contents != Contents::Computed)
    }

    /// Can a buffer be read: is it a leaf, or written by an earlier launch?
    fn readable(&mut self, place: Place, buffer: Buffer) -> bool {
        if !self.known(buffer) {
            self.report(place, format!("there is no buffer {buffer}"));
            return false;
        }
        let written = self.written.get(&buffer).is_some_and(|&launch| launch < self.launch);
        if !self.is_leaf(buffer) && !written {
            self.report(place, format!("reads `{}` before it is written", self.name(buffer)));
        }
        true
    }

    /// Records that a buffer is written.
    fn write(&mut self, place: Place, buffer: Buffer) -> bool {
        if !self.known(buffer) {
            self.report(place, format!("there is no buffer {buffer}"));
            return false;
        }
        if self.is_leaf(buffer) {
            self.report(place, format!("`{}` is not computed", self.name(buffer)));
        } else if self.written.contains_key(&buffer) {
            self.report(place, format!("`{}` is written twice", self.name(buffer)));
        } else {
            self.written.insert(buffer, self.launch);
        }
        true
    }

    fn kernel(&mut self, kernel: &Kernel, number: usize, prelude: bool) {
        match &kernel.body {
            Body::Gemm(gemm) => self.gemm(gemm, Place::Kernel(number)),
            Body::FactoredMetapath(reduction) => self.factored_metapath(reduction, Place::Kernel(number)),
            Body::Exchange(exchange) => self.exchange(exchange, Place::Kernel(number)),
            Body::Traversal(traversal) => self.traversal(traversal, number, prelude),
        }
    }

    fn exchange(&mut self, exchange: &Exchange, place: Place) {
        let program = self.program;
        let Exchange { rows, to, ref width, x, out, .. } = *exchange;
        if !(self.readable(place, x) & self.write(place, out)) {
            return;
        }
        let rows_of_sum = program.tables.rows_of_sum(rows);
        let fits = match to {
            Some(to) => program.tables.exchanges(rows, to),
            None => rows_of_sum.is_some(),
        };
        if !fits {
            self.report(place, "its result has no copies of its rows, nor their sum over the ranks");
        }
        let volume =
            |vertex: Option<hgnnc_ir::VertexType>| vertex.map_or(width.clone(), |of| Width::count(of).times(width));
        // Sections of pairs have a row for each member of the sum.
        let of_x = match (to, rows_of_sum) {
            (None, Some(Space::Vertices(members))) => {
                width.divided_by(&Width::count(members)).map(|row| Width::count(rows).times(&row))
            }
            _ => Some(volume(Some(rows))),
        };
        for (buffer, expected) in [(x, of_x), (out, Some(volume(to)))] {
            if program.volume(buffer) != expected {
                self.report(place, format!("`{}` has not the rows of the exchange", self.name(buffer)));
            }
        }
    }

    fn gemm(&mut self, gemm: &Gemm, place: Place) {
        let reads = [gemm.x, gemm.y].map(|buffer| self.readable(place, buffer));
        if !(self.write(place, gemm.out) && reads == [true, true]) {
            return;
        }
        let program = self.program;
        let whole = |buffer: Buffer| program.volume(buffer);
        let by_row = |buffer: Buffer| match gemm.rows {
            Space::Unit => whole(buffer),
            Space::Vertices(vertex) => whole(buffer)?.divided_by(&self.program.tables.expanded(Width::count(vertex))),
            Space::Index(extent) => whole(buffer)?.divided_by(&Width::fixed(extent)),
            Space::Endpoints(..) => {
                let ty = &program.buffer(buffer).ty;
                (ty.space == gemm.rows).then(|| Width::of(&ty.dims))
            }
            Space::Edges(_) => None,
        };
        if let Space::Edges(_) = gemm.rows {
            self.report(place, "a dense product has no rows of edges");
            return;
        }
        // A grouped product has a weight for each member.
        let members = match gemm.members.map(|members| program.tables.graphs.get(members.index())) {
            None => None,
            Some(Some(decl)) if gemm.rows == Space::Vertices(decl.src) => Some(Width::count(decl.dst)),
            Some(_) => return self.report(place, "its rows belong to no members"),
        };
        let whole = |buffer: Buffer| match &members {
            None => whole(buffer),
            Some(members) => whole(buffer)?.divided_by(members),
        };
        let of = &gemm.of;
        let (x, y, out) = match gemm.form {
            ProductForm::MatMul => {
                ((by_row(gemm.x), of.left()), (whole(gemm.y), of.all()), (by_row(gemm.out), of.right()))
            }
            ProductForm::MatMulT => {
                ((by_row(gemm.x), of.right()), (whole(gemm.y), of.all()), (by_row(gemm.out), of.left()))
            }
            ProductForm::Outer => {
                ((by_row(gemm.x), of.left()), (by_row(gemm.y), of.right()), (whole(gemm.out), of.all()))
            }
        };
        for (buffer, (found, expected)) in [(gemm.x, x), (gemm.y, y), (gemm.out, out)] {
            if found != Some(expected) {
                self.report(place, format!("`{}` does not have the extents of the product", self.name(buffer)));
            }
        }
    }

    fn factored_metapath(&mut self, reduction: &FactoredMetapath, place: Place) {
        let tables = &self.program.tables;
        let graphs = [reduction.first, reduction.second].map(|graph| tables.graphs.get(graph.index()));
        let [Some(first), Some(second)] = graphs else {
            self.report(place, "there are no such graphs");
            return;
        };
        if first.dst != second.src {
            self.report(place, "no path goes along both of its graphs");
        }
        if reduction.sums.is_empty() || reduction.sums.len() > FactoredMetapath::MOST_SUMS {
            self.report(place, format!("a kernel has 1 to {} reductions over a metapath", FactoredMetapath::MOST_SUMS));
            return;
        }
        let [src, dst] = [first.src, second.dst].map(Width::count);
        let (own, other) = if reduction.direction == Direction::In { (&dst, &src) } else { (&src, &dst) };
        let mut expect = vec![(reduction.x, src.times(&reduction.heads)), (reduction.y, dst.times(&reduction.heads))];
        let mut readable = [reduction.x, reduction.y].into_iter().all(|buffer| self.readable(place, buffer));
        let of_sources = reduction.direction == Direction::Out;
        for (at, sum) in reduction.sums.iter().enumerate() {
            let is_lse = sum.term == MetapathTerm::LogSumExp;
            if is_lse != sum.n.is_none() || is_lse && (of_sources || sum.w.is_some()) {
                self.report(place, "a log-sum-exp belongs to destinations and has no operands, other sums have a norm");
            }
            if of_sources && sum.n != reduction.sums[0].n {
                self.report(place, "sums for sources have one norm");
            }
            let earlier = |n: &Buffer| {
                reduction.sums[..at].iter().any(|other| other.out == *n && other.term == MetapathTerm::LogSumExp)
            };
            let norm = sum.n.filter(|n| !earlier(n));
            for buffer in norm.into_iter().chain(sum.w) {
                readable &= self.readable(place, buffer);
            }
            readable &= self.write(place, sum.out);
            expect.extend(sum.n.map(|n| (n, dst.times(&reduction.heads))));
            let Some(w) = sum.w else {
                expect.push((sum.out, own.times(&reduction.heads)));
                continue;
            };
            let width = self.known(w).then(|| self.program.volume(w)?.divided_by(other)).flatten();
            match width {
                Some(width) if width.divided_by(&reduction.heads).is_some() => {
                    expect.push((sum.out, own.times(&width)))
                }
                _ => self.report(place, format!("`{}` has not the rows and heads of the paths", self.name(w))),
            }
        }
        if !readable {
            return;
        }
        for (buffer, expected) in expect {
            if self.program.volume(buffer) != Some(expected) {
                self.report(place, format!("`{}` has not the rows and heads of the paths", self.name(buffer)));
            }
        }
    }

    fn traversal(&mut self, traversal: &Traversal, kernel: usize, prelude: bool) {
        let widths = Program::local_widths(traversal);
        let extents = local_extents(traversal);
        let mut seen =
            Seen { rows: &traversal.rows, widths: &widths, extents: &extents, made: 0, here: FxHashMap::default() };
        let tables = &self.program.tables;
        let exists = match &traversal.rows {
            Rows::Once => true,
            Rows::Each(volume) => volume.counts().iter().all(|vertex| vertex.index() < tables.vertex_types.len()),
            Rows::Vertices(vertex) => vertex.index() < tables.vertex_types.len(),
            Rows::Edges(graph, _) | Rows::Endpoints(graph, _) => graph.index() < tables.graphs.len(),
            Rows::Elements(pattern, _) => pattern.index() < tables.patterns.len(),
        };
        if !exists {
            self.report(Place::Kernel(kernel), "its rows are those of nothing");
            return;
        }
        if traversal.instrs.is_empty() {
            self.report(Place::Kernel(kernel), "computes nothing");
        }
        match traversal.pieces {
            Some(Pieces { least: 0, .. } | Pieces { most: 0, .. }) => {
                self.report(Place::Kernel(kernel), "there is at least one piece, of at least one edge");
            }
            Some(_) if !traversal.rows.has_edges() => {
                self.report(Place::Kernel(kernel), "rows without edges have no pieces");
            }
            Some(_) | None => {}
        }
        for (row, instr) in traversal.instrs.iter().enumerate() {
            let place = Place::Instr(kernel, row);
            if instr.level == Level::Edge && !traversal.rows.has_edges() {
                self.report(place, "these rows have no edges");
            }
            if prelude && matches!(instr.op, KernelOp::Mask { .. }) {
                self.report(place, "the prelude draws a mask, which differs from run to run");
            }
            let operands: Vec<Option<Width>> =
                instr.op.operands().into_iter().map(|o| self.operand(place, instr, o, &seen)).collect();
            // Width rules need the widths of all operands.
            if let Some(operands) = operands.into_iter().collect::<Option<Vec<_>>>() {
                self.op(place, instr, &operands);
            }
            self.dest(place, instr, &mut seen);
        }
    }

    /// The width of an operand, if it can be read there.
    fn operand(&mut self, place: Place, instr: &Instr, operand: Operand, seen: &Seen<'_>) -> Option<Width> {
        match operand.source {
            Source::Local(local) => {
                if local.index() >= seen.made {
                    self.report(place, format!("reads {local} before it is made"));
                    return None;
                }
                let fits = match seen.extents[local.index()] {
                    Extent::Row => operand.index == Index::Own,
                    Extent::Edge => operand.index == Index::Edge && instr.level == Level::Edge,
                    Extent::Total => false,
                };
                if !fits {
                    self.report(place, format!("reads {local} where it does not exist"));
                    return None;
                }
            }
            Source::Buffer(buffer) => {
                if let Some(extent) = seen.here.get(&buffer) {
                    let own = match (operand.index, extent) {
                        (Index::Own, Extent::Row) => true,
                        (Index::Uniform, Extent::Row) => *seen.rows == Rows::Once,
                        (Index::Edge, Extent::Edge) => true,
                        _ => false,
                    };
                    if !own {
                        let name = self.name(buffer);
                        self.report(place, format!("`{name}` is complete only after this kernel"));
                        return None;
                    }
                } else if !self.readable(place, buffer) {
                    return None;
                }
                let edge = matches!(operand.index, Index::Neighbor | Index::Edge | Index::DenseCell);
                // A vertex without edges has no row among the endpoints.
                let ends = matches!(self.program.buffer(buffer).ty.space, Space::Endpoints(..));
                let maybe = ends && operand.index == Index::Own && matches!(seen.rows, Rows::Edges(..));
                if (edge || maybe) && instr.level == Level::Row {
                    self.report(place, format!("reads `{}` by an edge outside of edges", self.name(buffer)));
                    return None;
                }
                let first = instr.op.operands().first() == Some(&operand);
                let takes_ends = match instr.op {
                    KernelOp::ScatterRows(..) | KernelOp::ScatterAdd(_) => !first && instr.level == Level::Row,
                    _ => false,
                };
                if takes_ends != (operand.index == Index::Endpoint) {
                    self.report(place, format!("`{}` may have no row for this one", self.name(buffer)));
                    return None;
                }
                let integer = self.program.buffer(buffer).ty.dtype == DType::I32;
                if integer != matches!(instr.op, KernelOp::OneHot(_)) {
                    self.report(place, format!("`{}` has another type of element", self.name(buffer)));
                    return None;
                }
            }
            Source::Const(number) => {
                if !number.is_finite() {
                    self.report(place, "the constant is not finite");
                }
            }
            Source::Count(space) => {
                if !self.ty(place, &Type::new(space, vec![])) {
                    return None;
                }
            }
        }
        let width = self.program.operand_width(seen.rows, seen.widths, operand);
        if width.is_none() {
            let name = match operand.source {
                Source::Buffer(buffer) => format!("`{}`", self.name(buffer)),
                Source::Local(local) => local.to_string(),
                Source::Const(_) | Source::Count(_) => "the number".into(),
            };
            self.report(place, format!("{name} has no such rows"));
        }
        width
    }

    /// Checks the constant of an element-wise function.
    fn constant(&mut self, place: Place, f: UnaryOp) {
        if let UnaryOp::LeakyRelu(slope) = f
            && !slope.is_finite()
        {
            self.report(place, "the constant is not finite");
        }
    }

    fn op(&mut self, place: Place, instr: &Instr, operands: &[Width]) {
        let width = &instr.width;
        let spreads = |x: &Width| width.divided_by(x).is_some();
        let groups = |x: &Width| x.divided_by(width).is_some();
        let product = |of: &Extents, x: Width, y: Width, out: Width| {
            operands[0] == x && operands[1] == y && *width == out && of.batch.factor() > 0
        };
        let fits = match &instr.op {
            KernelOp::Unary(f, _) => {
                self.constant(place, *f);
                operands[0] == *width
            }
            KernelOp::Binary(..) | KernelOp::Compose { .. } => {
                if let KernelOp::Compose { then, .. } = instr.op {
                    self.constant(place, then);
                }
                let (a, b) = (&operands[0], &operands[1]);
                spreads(a) && spreads(b) && (a.divided_by(b).is_some() || b.divided_by(a).is_some())
            }
            KernelOp::Select { positive, otherwise, .. } => {
                if !(positive.is_finite() && otherwise.is_finite()) {
                    self.report(place, "the constant is not finite");
                }
                operands[0] == *width
            }
            KernelOp::Copy(_) => spreads(&operands[0]),
            KernelOp::ScatterRows(..) | KernelOp::ScatterAdd(_) => {
                spreads(&operands[0]) && operands[1..].iter().all(|part| part == width)
            }
            KernelOp::Concat { lead, .. } => {
                let lasts: Option<Vec<usize>> =
                    operands.iter().map(|x| x.divided_by(lead).and_then(|last| last.as_fixed())).collect();
                lasts.is_some_and(|lasts| lead.times(&Width::fixed(lasts.iter().sum())) == *width)
            }
            KernelOp::Slice { last, start, len, .. } => {
                let lead = operands[0].divided_by(&Width::fixed(*last));
                start + len <= *last && lead.is_some_and(|lead| lead.times(&Width::fixed(*len)) == *width)
            }
            KernelOp::Transpose { m, n, inner, .. } => {
                operands[0] == *width && width.divided_by(&Width::fixed(m * n * inner)).is_some()
            }
            KernelOp::RowProduct { m, k, n, .. } => width.divided_by(&Width::fixed(m * n)).is_some_and(|lead| {
                operands[0] == lead.times(&Width::fixed(m * k)) && operands[1] == lead.times(&Width::fixed(k * n))
            }),
            KernelOp::OneHot(_) => operands[0].is_one() && width.as_fixed().is_some(),
            KernelOp::Mask { rate, .. } => {
                if !(0.0..1.0).contains(rate) {
                    self.report(place, format!("rate {rate} is not in [0, 1)"));
                }
                true
            }
            KernelOp::MatMul(of, ..) => product(of, of.left(), of.all(), of.right()),
            KernelOp::MatMulT(of, ..) => product(of, of.right(), of.all(), of.left()),
            KernelOp::ReduceTrailing(..) => groups(&operands[0]),
            KernelOp::Dot(..) => operands[0] == operands[1] && groups(&operands[0]),
            KernelOp::Segment(..) | KernelOp::ReduceAll(..) => operands[0] == *width,
            KernelOp::WeightedSum { .. } => spreads(&operands[0]) && operands[1] == *width,
            KernelOp::SoftmaxSum { .. } => match (operands[0].as_fixed(), operands[1].as_fixed(), width.as_fixed()) {
                (Some(heads), Some(x), Some(all)) => {
                    heads > 0
                        && x.is_multiple_of(heads)
                        && x + 2 * heads == all
                        && operands[2..].iter().all(|t| *t == operands[0])
                }
                _ => false,
            },
            KernelOp::SegmentArg { .. } => {
                operands[0].as_fixed().is_some()
                    && operands[0].times(&Width::fixed(2)) == *width
                    && operands[1].is_one()
            }
            KernelOp::OuterAll(of, ..) => product(of, of.left(), of.right(), of.all()),
        };
        if !fits {
            self.report(place, format!("the widths do not fit `{}`", instr.op.name()));
        }
    }

    fn dest(&mut self, place: Place, instr: &Instr, seen: &mut Seen<'_>) {
        let extent = instr.extent();
        let buffer = match instr.dest {
            Dest::Local(local) => {
                if local.index() != seen.made {
                    self.report(place, format!("this is local %{}", seen.made));
                }
                if extent == Extent::Total {
                    self.report(place, "a total is stored");
                }
                seen.made += 1;
                return;
            }
            Dest::Buffer(buffer) => buffer,
        };
        if !self.write(place, buffer) {
            return;
        }
        let ty = &self.program.buffer(buffer).ty;
        let fits = match extent {
            Extent::Total => self.program.volume(buffer) == Some(self.program.tables.expanded(instr.width.clone())),
            Extent::Row => {
                if let Rows::Endpoints(graph, direction) = *seen.rows {
                    ty.space == Space::Endpoints(graph, direction) && Width::of(&ty.dims) == instr.width
                } else {
                    let tables = &self.program.tables;
                    let volume = tables.expanded(seen.rows.count(tables).times(&instr.width));
                    self.program.volume(buffer) == Some(volume)
                }
            }
            // Edge values are stored in CSC order.
            Extent::Edge => match *seen.rows {
                Rows::Edges(graph, Direction::In) | Rows::Endpoints(graph, Direction::In) => {
                    ty.space == Space::Edges(graph) && Width::of(&ty.dims) == instr.width
                }
                Rows::Edges(_, Direction::Out)
                | Rows::Endpoints(_, Direction::Out)
                | Rows::Elements(..)
                | Rows::Once
                | Rows::Each(_)
                | Rows::Vertices(_) => false,
            },
        };
        if !fits {
            self.report(place, format!("`{}` does not hold these rows", self.name(buffer)));
        }
        seen.here.entry(buffer).or_insert(extent);
    }

    fn outputs(&mut self) {
        let program = self.program;
        let tables = &program.tables;
        let (mut results, mut updates) = (BTreeSet::new(), BTreeSet::new());
        for (row, output) in program.outputs.iter().enumerate() {
            let place = Place::Output(row);
            let sound = self.ty(place, &output.ty);
            match output.source {
                Source::Local(local) => self.report(place, format!("{local} lives within its kernel")),
                Source::Buffer(buffer) if self.readable(place, buffer) && sound => {
                    let ty = &program.buffer(buffer).ty;
                    // Viewed as other rows with equally many elements in all, or with other trailing dimensions.
                    let same_volume = volume(tables, ty).is_some_and(|all| volume(tables, &output.ty) == Some(all));
                    let same_rows = ty.with_dims(output.ty.dims.clone()) == output.ty
                        && Width::of(&ty.dims) == Width::of(&output.ty.dims);
                    if !(same_volume || same_rows) {
                        self.report(place, format!("`{}` is not seen as this", self.name(buffer)));
                    }
                }
                Source::Const(_) | Source::Count(_) if output.ty != Type::scalar() => {
                    self.report(place, "a number is a scalar");
                }
                Source::Buffer(_) | Source::Const(_) | Source::Count(_) => {}
            }
            let (param, slot) = match &output.kind {
                OutputKind::Result(name) => {
                    if !results.insert(name) {
                        self.report(place, format!("the name `{name}` is taken"));
                    }
                    continue;
                }
                OutputKind::UpdateParam(param) => (*param, None),
                OutputKind::UpdateState(param, slot) => (*param, Some(*slot)),
            };
            match tables.params.get(param.index()) {
                None => self.report(place, format!("there is no parameter {param}")),
                Some(decl) => {
                    if !updates.insert((param, slot)) {
                        self.report(place, format!("`{}` is updated twice", decl.name));
                    }
                    if output.ty != tables.param_type(param) && output.ty != rows_of(program, param, output.ty.space) {
                        self.report(place, format!("`{}` has another type", decl.name));
                    }
                }
            }
        }
    }
}

/// The type of an update's rows at distinct endpoints; the parameter's own type if it is no embedding table.
fn rows_of(program: &Program, param: Param, space: Space) -> Type {
    let tables = &program.tables;
    let own = tables.param_type(param);
    match (space, own.dims.split_first()) {
        (Space::Endpoints(graph, direction), Some((Dim::Count(vertex), rest)))
            if graph.index() < tables.graphs.len()
                && tables.graph_end(graph, direction) == Space::Vertices(*vertex) =>
        {
            Type::new(space, rest)
        }
        _ => own,
    }
}

/// The state of the verifier inside a traversal.
struct Seen<'t> {
    rows: &'t Rows,
    widths: &'t [Width],
    extents: &'t [Extent],
    /// Number of locals defined so far.
    made: usize,
    /// Buffers written so far in this kernel, with their granularity.
    here: FxHashMap<Buffer, Extent>,
}
