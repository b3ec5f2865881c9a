//! The kernel oracle: interprets kernels in f64, row by row and edge by edge. Split rows are reduced piece by piece,
//! as the kernel specifies.
//!
//! It takes the bindings of the dataflow oracle, where sparse inputs are dense. Here the stored elements of a pattern
//! are those that are not zero in some input of the pattern.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use hgnnc_ir::ProductForm;
use hgnnc_ir::dataflow::OutputKind;
use hgnnc_ir::elementwise::{binary, unary};
use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{
    Body, Buffer, Contents, Dest, Exchange, Extent, Extents, FactoredMetapath, Gemm, Index, Instr, Kernel, KernelOp,
    Level, Operand, Program, Rows, Source, Traversal,
};

use hgnnc_ir::metapath::MetapathTerm;
use hgnnc_ir::ops::{BinaryOp, Direction, Reduce};
use hgnnc_ir::random;
use hgnnc_ir::types::{Layout, Param, Space, VertexType};
use hgnnc_kernel_ir::loops::{self, Call, CallResult, Function, IndexArray, Loop, Nest, Step, function};

use crate::bindings::{bound, bound_input, check};
use crate::dataflow::{MetapathScores, arg_extreme, grouped, metapath_reduce, reduced};
use crate::{Bindings, InterpError, Tensor};

/// The stored values after a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Execution {
    /// The elements of each buffer, indexed by [`Buffer`].
    pub buffers: Vec<Vec<f64>>,
    /// The outputs, in program order.
    pub outputs: Vec<(OutputKind, Tensor)>,
}

impl Execution {
    /// The tensor of an output, if there is such an output.
    pub fn output(&self, kind: &OutputKind) -> Option<&Tensor> {
        self.outputs.iter().find(|(known, _)| known == kind).map(|(_, tensor)| tensor)
    }
}

/// Runs all kernels of a verified program in order.
///
/// # Errors
/// When the bindings do not fit the program's tables.
///
/// # Panics
/// When the program breaks a rule.
pub fn run(program: &Program, bindings: &Bindings) -> Result<Execution, InterpError> {
    execute(program, bindings, |machine| program.kernels().for_each(|kernel| machine.kernel(kernel)))
}

/// [`run`] of the loops of a program.
///
/// # Errors
/// As [`run`].
///
/// # Panics
/// As [`run`].
pub fn run_loops(loops: &loops::Program, bindings: &Bindings) -> Result<Execution, InterpError> {
    execute(&loops.kernels, bindings, |machine| {
        for (kernel, nest) in loops.kernels.kernels().zip(&loops.nests) {
            match (&kernel.body, nest) {
                (Body::Traversal(traversal), Some(nest)) => {
                    machine.nest(traversal, nest, &loops.functions);
                    machine.forget_overwritten(kernel);
                }
                _ => machine.kernel(kernel),
            }
        }
    })
}

fn execute(
    program: &Program,
    bindings: &Bindings,
    kernels: impl FnOnce(&mut Machine<'_>),
) -> Result<Execution, InterpError> {
    let bindings = &*bindings.with_derived(&program.tables);
    check(&program.tables, bindings)?;
    let mut machine = Machine { program, bindings, buffers: vec![], stored: BTreeMap::new() };
    for row in 0..program.buffers.len() {
        let elements = machine.contents(Buffer::new(row))?;
        machine.buffers.push(elements);
    }
    kernels(&mut machine);
    let outputs = program.outputs.iter().map(|output| {
        let (rows, width) = (bindings.rows(output.ty.space), bindings.width(&output.ty.dims));
        let elements = machine.whole(output.source).to_vec();
        let mut tensor = Tensor::new(rows, width, elements);
        if let (Space::Endpoints(graph, direction), Some((param, old))) =
            (output.ty.space, before(program, bindings, &output.kind))
        {
            // Rows without an update keep their values.
            let all = bindings.width(&program.tables.params[param.index()].dims);
            let mut new = old.map_or_else(|| Tensor::filled(1, all, 0.0), Cow::into_owned);
            for (row, &vertex) in bindings.endpoints(graph, direction).iter().enumerate() {
                new.data[vertex as usize * width..][..width].copy_from_slice(tensor.row(row));
            }
            tensor = new;
        }
        (output.kind.clone(), tensor)
    });
    Ok(Execution { outputs: outputs.collect(), buffers: machine.buffers })
}

/// The parameter that an output updates and its current elements. `None` for results.
fn before<'b>(
    program: &Program,
    bindings: &'b Bindings,
    kind: &OutputKind,
) -> Option<(Param, Option<Cow<'b, Tensor>>)> {
    match kind {
        OutputKind::Result(_) => None,
        OutputKind::UpdateParam(param) => Some((*param, bindings.param(&program.tables, *param))),
        OutputKind::UpdateState(param, slot) => {
            Some((*param, bindings.states.get(&(*param, *slot)).map(Cow::Borrowed)))
        }
    }
}

struct Machine<'a> {
    program: &'a Program,
    bindings: &'a Bindings,
    buffers: Vec<Vec<f64>>,
    /// The stored elements (row, column) of each pattern, row by row.
    stored: BTreeMap<usize, Vec<(u32, u32)>>,
}

/// An edge of a row, or a stored element of a sparse matrix.
#[derive(Clone, Copy)]
struct Edge {
    /// Position of the edge in CSC order, or of the element in the dense matrix.
    position: usize,
    other: usize,
}

/// The locals of a row: one value each, or one per edge.
type Locals = Vec<Vec<Vec<f64>>>;

impl Machine<'_> {
    fn eval(&self, width: &Width) -> usize {
        width.eval(&self.bindings.num_vertices)
    }

    /// The memory of a buffer. In-place updates overwrite their target, so that a read after the update is detected.
    fn place(&self, buffer: Buffer) -> usize {
        self.program.updated(buffer).unwrap_or(buffer).index()
    }

    /// The contents of a buffer before the first kernel.
    fn contents(&mut self, buffer: Buffer) -> Result<Vec<f64>, InterpError> {
        let (tables, bindings) = (&self.program.tables, self.bindings);
        let decl = self.program.buffer(buffer);
        let shape = (bindings.rows(decl.ty.space), bindings.width(&decl.ty.dims));
        let tensor = match decl.contents {
            Contents::Input(input) => bound_input(tables, bindings, input, shape)?,
            Contents::Param(param) => {
                let found = bindings.param(tables, param);
                bound("parameter", &tables.params[param.index()].name, found.as_deref(), shape)?
            }
            Contents::State(param, slot) => match bindings.states.get(&(param, slot)) {
                None => Tensor::filled(shape.0, shape.1, 0.0),
                found => bound("state", &tables.params[param.index()].name, found, shape)?,
            },
            // NaN makes reads of unwritten elements visible in results.
            Contents::Computed => Tensor::filled(shape.0, shape.1, f64::NAN),
        };
        if let Layout::Sparse(pattern) = decl.ty.layout {
            let cells = (0..tensor.rows).flat_map(|row| (0..tensor.width).map(move |column| (row, column)));
            let found = cells.filter(|&(row, column)| tensor.at(row, column) != 0.0);
            let stored = self.stored.entry(pattern.index()).or_default();
            stored.extend(found.map(|(row, column)| (row as u32, column as u32)));
            stored.sort_unstable();
            stored.dedup();
        }
        Ok(tensor.data)
    }

    fn kernel(&mut self, kernel: &Kernel) {
        match &kernel.body {
            Body::Gemm(gemm) => self.gemm(gemm),
            Body::FactoredMetapath(reduction) => self.factored_metapath(reduction),
            Body::Exchange(exchange) => self.exchange(exchange),
            Body::Traversal(traversal) => self.traversal(traversal),
        }
        self.forget_overwritten(kernel);
    }

    /// The contents of aliased buffers are lost.
    fn forget_overwritten(&mut self, kernel: &Kernel) {
        for old in kernel.writes().into_iter().filter_map(|buffer| self.program.overwritten(buffer)) {
            let place = self.place(old);
            self.buffers[place].fill(f64::NAN);
        }
    }

    fn gemm(&mut self, gemm: &Gemm) {
        let rows = self.bindings.rows(gemm.rows);
        let (left, right) = (self.eval(&gemm.of.left()), self.eval(&gemm.of.right()));
        let (x, y) = (&self.buffers[self.place(gemm.x)], &self.buffers[self.place(gemm.y)]);
        if let Some(members) = gemm.members {
            let edges = &self.bindings.edges[members.index()];
            let groups = self.bindings.rows(Space::Vertices(self.program.tables.graphs[members.index()].dst));
            let tensor = |data: &[f64], rows: usize| Tensor::new(rows, data.len() / rows.max(1), data.to_vec());
            let (y_rows, out_rows) = if gemm.form == ProductForm::Outer { (rows, groups) } else { (groups, rows) };
            let (x, y) = (tensor(x, rows), tensor(y, y_rows));
            let out = grouped(gemm.form, self.numbers(&gemm.of), edges, &x, &y, out_rows);
            let place = self.place(gemm.out);
            self.buffers[place] = out;
            return;
        }
        let row = |data: &[f64], width: usize, row: usize| data[row * width..(row + 1) * width].to_vec();
        let out: Vec<f64> = match gemm.form {
            ProductForm::MatMul => (0..rows).flat_map(|r| self.mat_mul(&gemm.of, &row(x, left, r), y)).collect(),
            ProductForm::MatMulT => (0..rows).flat_map(|r| self.mat_mul_t(&gemm.of, &row(x, right, r), y)).collect(),
            ProductForm::Outer => {
                let mut sum = vec![0.0; self.eval(&gemm.of.all())];
                for r in 0..rows {
                    self.add_outer(&gemm.of, &row(x, left, r), &row(y, right, r), &mut sum);
                }
                sum
            }
        };
        let place = self.place(gemm.out);
        self.buffers[place] = out;
    }

    fn factored_metapath(&mut self, reduction: &FactoredMetapath) {
        let tables = &self.program.tables;
        let (graph, direction) = reduction.sum(MetapathTerm::WeightedSum).rows();
        let rows = self.bindings.rows(tables.graph_end(graph, direction));
        let heads = self.eval(&reduction.heads);
        for sum in &reduction.sums {
            let numbers = |buffer: Buffer| &self.buffers[self.place(buffer)][..];
            let width = self.eval(&self.program.volume(sum.out).expect("a value of vertices")) / rows.max(1);
            let scores = MetapathScores { x: numbers(reduction.x), y: numbers(reduction.y), n: sum.n.map(numbers) };
            let of = (rows, heads, width);
            let out = metapath_reduce(self.bindings, &reduction.sum(sum.term), of, scores, sum.w.map(numbers));
            let place = self.place(sum.out);
            self.buffers[place] = out;
        }
    }

    /// The rows that mirrors have of the rank itself, or the sum of its own rows: kernels are interpreted for one rank.
    fn exchange(&mut self, exchange: &Exchange) {
        let width = self.eval(&exchange.width);
        let Some(to) = exchange.to else {
            let x = &self.buffers[self.place(exchange.x)];
            let out = (0..width).map(|column| x.iter().skip(column).step_by(width).sum()).collect();
            let place = self.place(exchange.out);
            self.buffers[place] = out;
            return;
        };
        let number = |vertex: VertexType, row: usize| self.bindings.number(Space::Vertices(vertex), row);
        let [own, mirrors] = [exchange.rows, to].map(|v| self.bindings.rows(Space::Vertices(v)));
        let own: HashMap<usize, usize> = (0..own).map(|row| (number(exchange.rows, row), row)).collect();
        let x = &self.buffers[self.place(exchange.x)];
        let row = |row: usize| x[own[&number(to, row)] * width..][..width].to_vec();
        let out: Vec<f64> = (0..mirrors).flat_map(row).collect();
        let place = self.place(exchange.out);
        self.buffers[place] = out;
    }

    fn numbers(&self, of: &Extents) -> (usize, usize, usize) {
        (self.eval(&of.batch), self.eval(&of.k), self.eval(&of.n))
    }

    fn mat_mul(&self, of: &Extents, x: &[f64], w: &[f64]) -> Vec<f64> {
        let (batch, k, n) = self.numbers(of);
        let element = |b: usize, j: usize| (0..k).map(|i| x[b * k + i] * w[(b * k + i) * n + j]).sum();
        (0..batch * n).map(|column| element(column / n, column % n)).collect()
    }

    fn mat_mul_t(&self, of: &Extents, y: &[f64], w: &[f64]) -> Vec<f64> {
        let (batch, k, n) = self.numbers(of);
        let element = |b: usize, i: usize| (0..n).map(|j| y[b * n + j] * w[(b * k + i) * n + j]).sum();
        (0..batch * k).map(|column| element(column / k, column % k)).collect()
    }

    fn add_outer(&self, of: &Extents, x: &[f64], y: &[f64], sum: &mut [f64]) {
        let (_, k, n) = self.numbers(of);
        for (element, slot) in sum.iter_mut().enumerate() {
            *slot += x[element / n] * y[element / n / k * n + element % n];
        }
    }

    /// The edges that each row owns, in CSC order.
    fn edges(&self, rows: &Rows, num_rows: usize) -> Vec<Vec<Edge>> {
        let mut owned = vec![vec![]; num_rows];
        let (all, direction, columns): (Vec<(u32, u32)>, Direction, Option<usize>) = match rows {
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) => return owned,
            Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction) => {
                (self.bindings.edges[graph.index()].clone(), *direction, None)
            }
            Rows::Elements(pattern, direction) => {
                let stored = self.stored.get(&pattern.index()).cloned().unwrap_or_default();
                let columns = self.program.tables.patterns[pattern.index()].columns;
                // Columns act as sources, rows as destinations.
                (stored.into_iter().map(|(row, column)| (column, row)).collect(), *direction, Some(columns))
            }
        };
        for (edge, (src, dst)) in all.into_iter().enumerate() {
            let (src, dst) = (src as usize, dst as usize);
            let (row, other) = match direction {
                Direction::In => (dst, src),
                Direction::Out => (src, dst),
            };
            let position = columns.map_or(edge, |columns| dst * columns + src);
            owned[row].push(Edge { position, other });
        }
        owned
    }

    fn traversal(&mut self, traversal: &Traversal) {
        self.rows(traversal, |machine, row, edges| {
            let mut locals = vec![];
            for instr in &traversal.instrs {
                machine.instr(traversal, instr, row, edges, &mut locals);
            }
        });
    }

    /// Executes a nest of loops: rows with more edges than a piece in its passes, if it has any.
    fn nest(&mut self, traversal: &Traversal, nest: &Nest, functions: &[Function]) {
        self.rows(traversal, |machine, row, (edges, piece)| {
            let mut locals = vec![];
            let is_split = nest.groups.is_empty() || !nest.passes.is_empty() && edges.len() > piece;
            let passes = nest.passes.iter().flat_map(|pass| pass.rows.iter().chain(&pass.edges));
            let loops: Vec<&Loop> = if is_split { passes.collect() } else { nest.groups.iter().flatten().collect() };
            for looped in loops {
                for step in &looped.steps {
                    match step {
                        Step::Instr(instr) => {
                            machine.instr(traversal, &traversal.instrs[*instr], row, (edges, piece), &mut locals);
                        }
                        Step::Call(call) => {
                            let function = &functions[call.function];
                            machine.call((traversal, looped.level), (call, function), row, edges, &mut locals);
                        }
                    }
                }
            }
        });
    }

    /// Executes a call of a function.
    fn call(
        &mut self,
        (traversal, level): (&Traversal, Level),
        (call, function): (&Call, &Function),
        (row, vertex): (usize, usize),
        edges: &[Edge],
        locals: &mut Locals,
    ) {
        let items: Vec<Option<usize>> = match level {
            Level::Row => vec![None],
            Level::Edge => (0..edges.len()).map(Some).collect(),
        };
        // Values of tiles by item, and values that reduce items, by result.
        let mut tiles: Vec<Vec<Vec<f64>>> = vec![vec![]; call.results.len()];
        let mut sums: Vec<Option<Vec<f64>>> = vec![None; call.results.len()];
        for edge in items {
            let here = Here { rows: &traversal.rows, row, vertex, edges, edge };
            let mut values: Vec<Vec<f64>> = vec![];
            for instr in &function.instrs {
                let read = |source: &function::Source| match *source {
                    function::Source::Array(array) => self.read(call.arrays[array], here, locals),
                    function::Source::Value(value) => values[value].clone(),
                    function::Source::Label(index) => {
                        let IndexArray::Labels(input) = call.indices[index as usize] else { panic!("no labels") };
                        let is_label =
                            |decl: &hgnnc_kernel_ir::kernel::BufferDecl| decl.contents == Contents::Input(input);
                        let buffer = self.program.buffers.iter().position(is_label).expect("labels are stored");
                        let source = Source::Buffer(Buffer::new(buffer));
                        self.read(Operand { source, index: Index::Own }, here, locals)
                    }
                };
                let operands: Vec<Vec<f64>> = instr.op.operands().iter().map(read).collect();
                if let (KernelOp::Segment(reduce, _) | KernelOp::ReduceAll(reduce, _), Some(result)) =
                    (&instr.op, instr.result)
                {
                    let sum = sums[result].get_or_insert_with(|| vec![reduce.identity(); instr.width]);
                    sum.iter_mut().zip(&operands[0]).for_each(|(sum, &x)| *sum = combined(*reduce, *sum, x));
                    values.push(vec![]);
                    continue;
                }
                let value = row_op(&instr.op, &operands, instr.width);
                if let Some(result) = instr.result {
                    tiles[result].push(value.clone());
                    // A result may overwrite an array, so it is stored when it is computed.
                    if let (Level::Row, CallResult::Tile(instr)) = (level, call.results[result]) {
                        self.write(&traversal.instrs[instr], row, edges, vec![value.clone()], locals);
                    }
                }
                values.push(value);
            }
        }
        for (result, (tile, sum)) in call.results.iter().zip(tiles.into_iter().zip(sums)) {
            match *result {
                CallResult::Tile(_) if level == Level::Row => {}
                CallResult::Tile(instr) => self.write(&traversal.instrs[instr], row, edges, tile, locals),
                CallResult::Owners(instr) => {
                    let instr = &traversal.instrs[instr];
                    let KernelOp::Segment(reduce, _) = instr.op else { panic!("owners have reductions of edges") };
                    let sum = sum.unwrap_or_else(|| vec![reduce.identity(); self.eval(&instr.width)]);
                    self.write(instr, row, edges, vec![sum], locals);
                }
                CallResult::Total(instr) => {
                    let instr = &traversal.instrs[instr];
                    let (KernelOp::ReduceAll(reduce, _), Dest::Buffer(buffer)) = (&instr.op, instr.dest) else {
                        panic!("totals are stored reductions")
                    };
                    let place = self.place(buffer);
                    let total = self.buffers[place].iter_mut().zip(sum.unwrap_or_default());
                    total.for_each(|(total, x)| *total = combined(*reduce, *total, x));
                }
            }
        }
    }

    /// Prepares global reductions, and visits each row: its number and vertex, its edges, and the edges of a piece.
    fn rows(&mut self, traversal: &Traversal, mut visit: impl FnMut(&mut Self, (usize, usize), (&[Edge], usize))) {
        let num_rows = self.eval(&traversal.rows.count(&self.program.tables));
        let edges = self.edges(&traversal.rows, num_rows);
        let total = edges.iter().map(Vec::len).sum();
        let piece = traversal.pieces.map_or(total, |pieces| pieces.len(total)).max(1);
        for instr in traversal.instrs.iter().filter(|instr| instr.op.is_total()) {
            let Dest::Buffer(buffer) = instr.dest else { panic!("a total is stored") };
            let start = match instr.op {
                KernelOp::ReduceAll(reduce, _) => reduce.identity(),
                _ => 0.0,
            };
            let place = self.place(buffer);
            self.buffers[place] = vec![start; self.eval(&instr.width)];
        }
        // The vertices of endpoint rows.
        let ends = match traversal.rows {
            Rows::Endpoints(graph, direction) => self.bindings.endpoints(graph, direction),
            _ => (0..num_rows as u32).collect(),
        };
        for (row, &vertex) in ends.iter().enumerate() {
            visit(self, (row, vertex as usize), (&edges[vertex as usize], piece));
        }
    }

    fn instr(
        &mut self,
        traversal: &Traversal,
        instr: &Instr,
        (row, vertex): (usize, usize),
        (edges, piece): (&[Edge], usize),
        locals: &mut Locals,
    ) {
        let at = |edge: Option<usize>| Here { rows: &traversal.rows, row, vertex, edges, edge };
        let everywhere: Vec<Option<usize>> = match instr.level {
            Level::Row => vec![None],
            Level::Edge => (0..edges.len()).map(Some).collect(),
        };
        let width = self.eval(&instr.width);
        match (instr.extent(), &instr.op) {
            (Extent::Total, op) => {
                let Dest::Buffer(buffer) = instr.dest else { panic!("a total is stored") };
                let place = self.place(buffer);
                let mut sum = std::mem::take(&mut self.buffers[place]);
                for edge in everywhere {
                    match op {
                        KernelOp::ReduceAll(reduce, a) => {
                            for (slot, x) in sum.iter_mut().zip(self.read(*a, at(edge), locals)) {
                                *slot = combined(*reduce, *slot, x);
                            }
                        }
                        KernelOp::OuterAll(of, x, y) => {
                            let (x, y) = (self.read(*x, at(edge), locals), self.read(*y, at(edge), locals));
                            self.add_outer(of, &x, &y, &mut sum);
                        }
                        _ => unreachable!("no other operation is a total"),
                    }
                }
                self.buffers[place] = sum;
            }
            (_, KernelOp::Segment(reduce, a)) => {
                let all: Vec<Vec<f64>> = everywhere.iter().map(|&edge| self.read(*a, at(edge), locals)).collect();
                let of = |piece: &[Vec<f64>], column: usize| reduced(*reduce, piece.iter().map(|x| x[column]));
                let pieces = || all.chunks(piece);
                let out = (0..width).map(|column| reduced(*reduce, pieces().map(|piece| of(piece, column)))).collect();
                self.write(instr, row, edges, vec![out], locals);
            }
            (_, KernelOp::WeightedSum { a, x }) => {
                let mut out = vec![0.0; width];
                for piece in everywhere.chunks(piece) {
                    let mut part = vec![0.0; width];
                    for &edge in piece {
                        let (a, x) = (self.read(*a, at(edge), locals), self.read(*x, at(edge), locals));
                        for (column, slot) in part.iter_mut().enumerate() {
                            *slot += a[column / (width / a.len())] * x[column];
                        }
                    }
                    out.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
                }
                self.write(instr, row, edges, vec![out], locals);
            }
            (_, KernelOp::SoftmaxSum { score, x, times }) => {
                let heads = self.program.operand_width(&traversal.rows, &Program::local_widths(traversal), *score);
                let heads = self.eval(&heads.expect("a verified operand has a width"));
                let begin = || Online::new(heads, width - 2 * heads);
                let mut state = begin();
                for part in everywhere.chunks(piece) {
                    let mut online = begin();
                    for &edge in part {
                        let times = times.map(|t| self.read(t, at(edge), locals));
                        let (score, x) = (self.read(*score, at(edge), locals), self.read(*x, at(edge), locals));
                        online.add(&score, &x, times.as_deref());
                    }
                    state.merge(&online);
                }
                let out = [state.sums, state.totals, state.largest].concat();
                self.write(instr, row, edges, vec![out], locals);
            }
            (_, KernelOp::SegmentArg { extreme, x, rank }) => {
                let read =
                    |&edge: &Option<usize>| (self.read(*x, at(edge), locals), self.read(*rank, at(edge), locals)[0]);
                let all: Vec<(Vec<f64>, f64)> = everywhere.iter().map(read).collect();
                let winners: Vec<(f64, f64)> = (0..width / 2)
                    .map(|column| arg_extreme(*extreme, all.iter().map(|(x, rank)| (x[column], *rank))))
                    .collect();
                let out = winners.iter().map(|w| w.0).chain(winners.iter().map(|w| w.1)).collect();
                self.write(instr, row, edges, vec![out], locals);
            }
            (_, op) => {
                let out = everywhere.iter().map(|&edge| self.map(op, width, at(edge), locals)).collect();
                self.write(instr, row, edges, out, locals);
            }
        }
    }

    /// Evaluates an operation that depends on its own row or edge only.
    fn map(&self, op: &KernelOp, width: usize, here: Here<'_>, locals: &Locals) -> Vec<f64> {
        let read = |operand: &Operand| self.read(*operand, here, locals);
        let broadcast = |x: &[f64]| -> Vec<f64> { (0..width).map(|column| x[column / (width / x.len())]).collect() };
        match op {
            KernelOp::ScatterRows(a, b) => {
                let a = read(a);
                self.at_end(*b, here).unwrap_or_else(|| broadcast(&a))
            }
            KernelOp::ScatterAdd(parts) => {
                let mut sum = broadcast(&read(&parts[0]));
                for part in parts[1..].iter().filter_map(|&part| self.at_end(part, here)) {
                    sum.iter_mut().zip(part).for_each(|(sum, x)| *sum += x);
                }
                sum
            }
            KernelOp::Mask { stream, rate } => {
                let key = random::mask_key(self.bindings.seed, self.bindings.step, *stream);
                let position = here.edge.map_or(here.row, |edge| here.edges[edge].position);
                let element = |column: usize| (position * width + column) as u64;
                (0..width).map(|column| random::mask_element(key, element(column), *rate)).collect()
            }
            KernelOp::MatMul(of, x, w) => self.mat_mul(of, &read(x), &read(w)),
            KernelOp::MatMulT(of, y, w) => self.mat_mul_t(of, &read(y), &read(w)),
            op => {
                let operands: Vec<Vec<f64>> = op.operands().iter().map(read).collect();
                row_op(&op.map(|&operand| operand, |width| self.eval(width)), &operands, width)
            }
        }
    }

    fn write(&mut self, instr: &Instr, row: usize, edges: &[Edge], values: Vec<Vec<f64>>, locals: &mut Locals) {
        match instr.dest {
            Dest::Local(local) => {
                locals.resize(locals.len().max(local.index() + 1), vec![]);
                locals[local.index()] = values;
            }
            Dest::Buffer(buffer) => {
                let place = self.place(buffer);
                let out = &mut self.buffers[place];
                for (i, value) in values.into_iter().enumerate() {
                    let at = if instr.extent() == Extent::Edge { edges[i].position } else { row };
                    out[at * value.len()..(at + 1) * value.len()].copy_from_slice(&value);
                }
            }
        }
    }

    fn read(&self, operand: Operand, here: Here<'_>, locals: &Locals) -> Vec<f64> {
        let buffer = match operand.source {
            Source::Local(local) => {
                let values = &locals[local.index()];
                return match operand.index {
                    Index::Edge => values[here.edge.expect("an edge is at hand")].clone(),
                    _ => values[0].clone(),
                };
            }
            source @ (Source::Const(_) | Source::Count(_)) => return self.whole(source).to_vec(),
            Source::Buffer(buffer) => buffer,
        };
        let data = &self.buffers[self.place(buffer)];
        let width = self.program.operand_width(here.rows, &[], operand).expect("the operand can be read here");
        let width = self.eval(&width);
        let edge = here.edge.map(|edge| here.edges[edge]);
        let of_vertex = |vertex: usize| self.row_of_vertex(buffer, vertex).expect("an edge has its ends");
        let row = match operand.index {
            Index::Uniform => 0,
            // A row of endpoints may read buffers of endpoints as well as of vertices.
            Index::Own => of_vertex(here.vertex),
            Index::Neighbor => of_vertex(edge.expect("an edge is at hand").other),
            Index::Endpoint => unreachable!("read by `at_end`"),
            // For stored elements, the position is that in the dense matrix.
            Index::Edge | Index::DenseCell => edge.expect("an edge is at hand").position,
        };
        data[row * width..(row + 1) * width].to_vec()
    }

    /// The row of a vertex in a buffer: the vertex itself, or its position among distinct endpoints. `None` if absent.
    fn row_of_vertex(&self, buffer: Buffer, vertex: usize) -> Option<usize> {
        match self.program.buffer(buffer).ty.space {
            Space::Endpoints(graph, direction) => {
                self.bindings.endpoints(graph, direction).binary_search(&(vertex as u32)).ok()
            }
            Space::Unit | Space::Vertices(_) | Space::Edges(_) | Space::Index(_) => Some(vertex),
        }
    }

    /// The operand's row for the own vertex, in a buffer of endpoints. `None` if absent.
    fn at_end(&self, operand: Operand, here: Here<'_>) -> Option<Vec<f64>> {
        let Source::Buffer(buffer) = operand.source else { panic!("ends have rows of a buffer") };
        let width = self.bindings.width(&self.program.buffer(buffer).ty.dims);
        let row = self.row_of_vertex(buffer, here.vertex)?;
        Some(self.buffers[buffer.index()][row * width..(row + 1) * width].to_vec())
    }

    fn whole(&self, source: Source) -> std::borrow::Cow<'_, [f64]> {
        match source {
            Source::Local(_) => panic!("a local lives within a kernel"),
            Source::Buffer(buffer) => self.buffers[self.place(buffer)].as_slice().into(),
            Source::Const(number) => vec![number].into(),
            Source::Count(space) => vec![self.bindings.rows(space) as f64].into(),
        }
    }
}

/// The current row, and the current edge inside an edge loop.
#[derive(Clone, Copy)]
struct Here<'h> {
    rows: &'h Rows,
    row: usize,
    /// The vertex of the row: for endpoint rows, the endpoint; otherwise the row itself.
    vertex: usize,
    edges: &'h [Edge],
    edge: Option<usize>,
}

/// Evaluates an operation that depends on one row of each operand alone.
fn row_op<O: Copy>(op: &KernelOp<O, usize>, operands: &[Vec<f64>], width: usize) -> Vec<f64> {
    let element = |operand: usize, column: usize| {
        let x = &operands[operand];
        x[column / (width / x.len())]
    };
    let columns = |f: &dyn Fn(usize) -> f64| (0..width).map(f).collect();
    // Groups of consecutive elements, one for each element of the result.
    let inner = || operands[0].len().checked_div(width).unwrap_or(0);
    match op {
        KernelOp::Unary(f, _) => columns(&|column| unary(*f, element(0, column))),
        KernelOp::Binary(f, ..) => columns(&|column| binary(*f, element(0, column), element(1, column))),
        KernelOp::Compose { first, then, .. } => {
            columns(&|column| unary(*then, binary(*first, element(0, column), element(1, column))))
        }
        KernelOp::Select { positive, otherwise, .. } => {
            columns(&|column| if element(0, column) > 0.0 { *positive } else { *otherwise })
        }
        KernelOp::Copy(_) => columns(&|column| element(0, column)),
        KernelOp::Concat { lead, .. } => {
            let part = |outer: usize, x: &[f64]| x[outer * (x.len() / lead)..][..x.len() / lead].to_vec();
            (0..*lead).flat_map(|outer| operands.iter().flat_map(move |x| part(outer, x))).collect()
        }
        KernelOp::Slice { last, start, len, .. } => {
            operands[0].chunks_exact(*last).flat_map(|group| group[*start..start + len].to_vec()).collect()
        }
        KernelOp::Transpose { m, n, inner, .. } => columns(&|column| {
            let (outer, rest) = (column / (m * n * inner), column % (m * n * inner));
            let (j, i, within) = (rest / (m * inner), rest / inner % m, rest % inner);
            operands[0][((outer * m + i) * n + j) * inner + within]
        }),
        KernelOp::RowProduct { m, k, n, .. } => columns(&|column| {
            let (outer, i, j) = (column / (m * n), column / n % m, column % n);
            let term = |c: usize| operands[0][(outer * m + i) * k + c] * operands[1][(outer * k + c) * n + j];
            (0..*k).map(term).sum()
        }),
        KernelOp::OneHot(_) => columns(&|class| f64::from(operands[0][0] == class as f64)),
        KernelOp::ReduceTrailing(reduce, _) => {
            columns(&|group| reduced(*reduce, operands[0][group * inner()..][..inner()].iter().copied()))
        }
        KernelOp::Dot(..) => {
            columns(&|group| (group * inner()..(group + 1) * inner()).map(|i| operands[0][i] * operands[1][i]).sum())
        }
        KernelOp::ScatterRows(..)
        | KernelOp::ScatterAdd(_)
        | KernelOp::Mask { .. }
        | KernelOp::MatMul(..)
        | KernelOp::MatMulT(..)
        | KernelOp::Segment(..)
        | KernelOp::WeightedSum { .. }
        | KernelOp::SoftmaxSum { .. }
        | KernelOp::SegmentArg { .. }
        | KernelOp::ReduceAll(..)
        | KernelOp::OuterAll(..) => unreachable!("{} needs more than a row of its operands", op.name()),
    }
}

/// The state of an online softmax over the edges seen so far.
struct Online {
    /// `Σ t e^(s - m) x`, per element of `x`.
    sums: Vec<f64>,
    /// `Σ e^(s - m)` for each head.
    totals: Vec<f64>,
    /// The running maximum `m` per head.
    largest: Vec<f64>,
}

impl Online {
    fn new(heads: usize, width: usize) -> Self {
        Self { sums: vec![0.0; width], totals: vec![1.0; heads], largest: vec![f64::NEG_INFINITY; heads] }
    }

    /// Raises `m` to at least `scores` and rescales the sums. Returns `m` clamped to the finite range.
    fn raise(&mut self, scores: &[f64]) -> Vec<f64> {
        let inner = self.sums.len() / scores.len();
        let raised = scores.iter().enumerate().map(|(head, &score)| {
            let before = self.largest[head];
            self.largest[head] = before.max(score);
            let base = self.largest[head].clamp(f64::MIN, f64::MAX);
            let scale = (before - base).exp();
            self.totals[head] *= scale;
            self.sums[head * inner..(head + 1) * inner].iter_mut().for_each(|sum| *sum *= scale);
            base
        });
        raised.collect()
    }

    /// Accumulates one edge of the row.
    fn add(&mut self, scores: &[f64], x: &[f64], times: Option<&[f64]>) {
        let bases = self.raise(scores);
        let inner = x.len() / scores.len();
        for (head, (&score, base)) in scores.iter().zip(bases).enumerate() {
            let weight = (score - base).exp();
            self.totals[head] += weight;
            let weight = times.map_or(weight, |times| times[head] * weight);
            let columns = head * inner..(head + 1) * inner;
            let sums = self.sums[columns.clone()].iter_mut().zip(&x[columns]);
            sums.for_each(|(sum, x)| *sum += weight * x);
        }
    }

    /// Merges the partial state of another piece of the same row.
    fn merge(&mut self, other: &Self) {
        let bases = self.raise(&other.largest);
        let inner = self.sums.len() / bases.len();
        for (head, base) in bases.into_iter().enumerate() {
            let scale = (other.largest[head] - base).exp();
            self.totals[head] += scale * other.totals[head];
            let columns = head * inner..(head + 1) * inner;
            let sums = self.sums[columns.clone()].iter_mut().zip(&other.sums[columns]);
            sums.for_each(|(sum, part)| *sum += scale * part);
        }
    }
}

fn combined(reduce: Reduce, a: f64, b: f64) -> f64 {
    match reduce {
        Reduce::Sum => a + b,
        Reduce::Max => a.max(b),
        Reduce::Min => a.min(b),
        Reduce::Lse => binary(BinaryOp::LogAddExp, a, b),
    }
}
