//! Counts the work of kernels.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_ir::ProductForm;
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::width::Width;
use hgnnc_ir::{Direction, MetapathTerm, Reduce, Space};
use hgnnc_kernel_ir::kernel::{
    Body, Buffer, Dest, Extent, FactoredMetapath, Gemm, Index, Instr, Kernel, KernelOp, Level, Operand, Program, Rows,
    Source, Traversal,
};
use hgnnc_machine::{Gather, Machine, Work};

use super::metapath::metapath_work;
use super::rates::{self, cycles};
use super::{Bounded, Kind, bounded};

/// Bytes of an element, and of an endpoint in a list of edges.
const ELEMENT: f64 = 4.0;
/// Bytes of an offset in `indptr`.
const POSITION: f64 = 8.0;

/// A kernel of a program, with its cost.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelBound {
    /// The number of the kernel in the program's text.
    pub number: usize,
    /// Work and predicted time.
    pub bound: Bounded,
}

/// All kernels of a program, in order.
pub fn kernels(program: &Program, sizes: &SizeInfo, machine: &Machine) -> Vec<KernelBound> {
    let once: usize = program.prelude.iter().map(|launch| launch.kernels.len()).sum();
    program
        .kernels()
        .enumerate()
        .map(|(number, kernel)| {
            let work = kernel_work(program, kernel, sizes);
            let bound = bounded(machine, kernel.stage, kernel.phase, kind(kernel), number < once, work);
            KernelBound { number, bound }
        })
        .collect()
}

fn kind(kernel: &Kernel) -> Kind {
    let traversal = match &kernel.body {
        Body::Gemm(_) => return Kind::DM,
        Body::FactoredMetapath(_) | Body::Exchange(_) => return Kind::TB,
        Body::Traversal(traversal) => traversal,
    };
    let any = |test: fn(&KernelOp) -> bool| traversal.instrs.iter().any(|instr| test(&instr.op));
    if traversal.rows.has_edges() {
        Kind::TB
    } else if any(|op| matches!(op, KernelOp::MatMul(..) | KernelOp::MatMulT(..) | KernelOp::OuterAll(..))) {
        Kind::DM
    } else if any(|op| {
        !matches!(
            op,
            KernelOp::Copy(_)
                | KernelOp::Concat { .. }
                | KernelOp::Slice { .. }
                | KernelOp::Transpose { .. }
                | KernelOp::OneHot(_)
        )
    }) {
        Kind::EW
    } else {
        Kind::DR
    }
}

/// Counts the work of a kernel.
pub fn kernel_work(program: &Program, kernel: &Kernel, sizes: &SizeInfo) -> Work {
    match &kernel.body {
        Body::Gemm(gemm) => gemm_work(program, gemm, sizes),
        Body::FactoredMetapath(reduction) => factored_metapath_work(program, reduction, sizes),
        // The copies that a rank makes, as of an operation.
        Body::Exchange(exchange) => {
            let row = ELEMENT * sizes.eval(&exchange.width);
            let bytes = |vertex| sizes.eval(&Width::count(vertex)) * row;
            let rows = bytes(exchange.rows);
            // Owned rows that lie among their mirrors are sent, and not copied.
            let there = if program.buffer(exchange.out).extends.is_some() { rows } else { 0.0 };
            let written = (exchange.to.map_or(row, bytes) - there).max(0.0);
            Work { read: rows, written, ..Work::default() }
        }
        Body::Traversal(traversal) => {
            let all = (0..traversal.instrs.len()).collect();
            Walk::new(program, traversal, sizes).work(&all)
        }
    }
}

/// The work of a traversal with edges if it were unfused, with its edge values stored and read again: a kernel for each
/// of its instructions over edges, and one for those over rows. `None` where it has no edge value that is not stored.
pub fn unfused_work(program: &Program, kernel: &Kernel, sizes: &SizeInfo) -> Option<Vec<Work>> {
    let Body::Traversal(traversal) = &kernel.body else { return None };
    let kept = |instr: &Instr| instr.extent() == Extent::Edge && matches!(instr.dest, Dest::Local(_));
    if !traversal.instrs.iter().any(kept) {
        return None;
    }
    let walk = Walk::new(program, traversal, sizes);
    let (edges, rows): (Vec<usize>, Vec<usize>) =
        (0..traversal.instrs.len()).partition(|&i| traversal.instrs[i].level == Level::Edge);
    let mut parts: Vec<Work> = edges.into_iter().map(|i| walk.work(&BTreeSet::from([i]))).collect();
    if !rows.is_empty() {
        parts.push(walk.work(&rows.into_iter().collect()));
    }
    Some(parts)
}

/// Each element is summed once, however many results there are.
fn factored_metapath_work(program: &Program, reduction: &FactoredMetapath, sizes: &SizeInfo) -> Work {
    let sum = reduction.sum(MetapathTerm::WeightedSum);
    let heads = sizes.eval(&reduction.heads);
    let (rows, others) = (sum.rows(), sum.others());
    let count = |(graph, direction)| sizes.rows(program.tables.graph_end(graph, direction)) as f64;
    let elements = |buffer: Buffer| program.volume(buffer).map_or(0.0, |volume| sizes.eval(&volume));
    let summed: BTreeSet<Option<Buffer>> = reduction.sums.iter().map(|sum| sum.w).collect();
    let of = |w: &Option<Buffer>| w.map_or(1.0, |w| elements(w) / count(others).max(1.0) / heads.max(1.0));
    let written: f64 = reduction.sums.iter().map(|sum| elements(sum.out) / count(rows).max(1.0)).sum();
    metapath_work(&program.tables, &sum, (heads, summed.iter().map(of).sum(), written), sizes)
}

fn gemm_work(program: &Program, gemm: &Gemm, sizes: &SizeInfo) -> Work {
    let rows = sizes.rows(gemm.rows) as f64;
    let [left, right, all] = [gemm.of.left(), gemm.of.right(), gemm.of.all()].map(|width| sizes.eval(&width));
    let members = gemm
        .members
        .map_or(1.0, |members| sizes.rows(Space::Vertices(program.tables.graphs[members.index()].dst)) as f64);
    let weights = members * all;
    let (read, written) = match gemm.form {
        ProductForm::MatMul => (rows * left + weights, rows * right),
        ProductForm::MatMulT => (rows * right + weights, rows * left),
        ProductForm::Outer => (rows * (left + right), weights),
    };
    Work {
        products: rows * all,
        read: ELEMENT * read,
        written: ELEMENT * written,
        barriers: f64::from(u8::from(gemm.form == ProductForm::Outer)),
        serial: gemm.rows == Space::Unit,
        cycles: cycles::KERNEL + cycles::DENSE * rows * all,
        ..Work::default()
    }
}

/// A traversal with its sizes.
struct Walk<'a> {
    program: &'a Program,
    traversal: &'a Traversal,
    sizes: &'a SizeInfo,
    rows: f64,
    edges: f64,
    /// Number of distinct rows at the other end of the edges.
    others: f64,
    /// Elements per row, by local.
    widths: Vec<Width>,
    /// The defining instruction, by local.
    makers: Vec<usize>,
    /// The instruction that writes each buffer.
    writers: BTreeMap<Buffer, usize>,
}

/// A source of data: a buffer, or a local that another kernel stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum DataSource {
    Buffer(Buffer),
    Local(usize),
}

/// The amount that is read of a source.
#[derive(Clone, Copy, Default)]
struct Reads {
    /// Elements read in order.
    streamed: f64,
    gathered: Option<Gather>,
}

impl<'a> Walk<'a> {
    fn new(program: &'a Program, traversal: &'a Traversal, sizes: &'a SizeInfo) -> Self {
        let tables = &program.tables;
        let (edges, others) = match traversal.rows {
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) => (0.0, 0.0),
            Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction) => {
                (sizes.rows(Space::Edges(graph)) as f64, sizes.others(tables, graph, direction))
            }
            Rows::Elements(pattern, direction) => {
                (sizes.stored(tables, pattern), sizes.other_lines(tables, pattern, direction))
            }
        };
        let (mut makers, mut writers) = (vec![], BTreeMap::new());
        for (i, instr) in traversal.instrs.iter().enumerate() {
            match instr.dest {
                Dest::Local(_) => makers.push(i),
                Dest::Buffer(buffer) => {
                    writers.insert(buffer, i);
                }
            }
        }
        Self {
            program,
            traversal,
            sizes,
            rows: match traversal.rows {
                Rows::Endpoints(graph, direction) => sizes.rows(Space::Endpoints(graph, direction)) as f64,
                _ => sizes.eval(&traversal.rows.count(tables)),
            },
            edges,
            others,
            widths: Program::local_widths(traversal),
            makers,
            writers,
        }
    }

    /// The work of some of the instructions, as a kernel of their own.
    fn work(&self, chosen: &BTreeSet<usize>) -> Work {
        let mut work = Work { serial: self.traversal.rows == Rows::Once, ..Work::default() };
        work.cycles += match self.traversal.rows {
            Rows::Once => 0.0,
            Rows::Each(_) | Rows::Vertices(_) => cycles::KERNEL,
            Rows::Edges(..) | Rows::Endpoints(..) => cycles::KERNEL + cycles::ROW * self.rows,
            Rows::Elements(..) => cycles::KERNEL + cycles::ELEMENTS * self.rows,
        };
        let mut reads: BTreeMap<DataSource, Reads> = BTreeMap::new();
        let (mut walks, mut ends, mut positions) = (false, false, false);
        for &i in chosen {
            let instr = &self.traversal.instrs[i];
            self.compute(instr, &mut work);
            let ends_in_row = instr.level == Level::Edge && instr.extent() == Extent::Row;
            let from_row = |o: &Operand| o.index == Index::Own;
            walks |= instr.level == Level::Edge && (ends_in_row || instr.op.operands().iter().any(from_row));
            if instr.op.is_total() && work.barriers == 0.0 {
                work.barriers = 1.0;
                work.cycles += if work.serial { 0.0 } else { cycles::TOTAL };
            }
            work.cycles += self.cycles(instr);
            positions |= instr.level == Level::Edge && matches!(instr.op, KernelOp::Mask { .. });
            for operand in instr.op.operands() {
                ends |= matches!(operand.index, Index::Neighbor | Index::DenseCell);
                let Some(thing) = self.foreign(operand, chosen) else { continue };
                positions |= operand.index == Index::Edge && matches!(thing, DataSource::Buffer(_));
                let (streamed, gathered) = self.reads(operand);
                let known = reads.entry(thing).or_default();
                known.streamed = known.streamed.max(streamed);
                if gathered.is_some_and(|g| known.gathered.is_none_or(|k| k.row_bytes < g.row_bytes)) {
                    known.gathered = gathered;
                }
            }
            if self.leaves(i, chosen) {
                work.written += ELEMENT * self.elements(instr);
            }
        }
        for Reads { streamed, gathered } in reads.into_values() {
            // A source that is streamed as well is fetched already.
            let gathered = gathered.map(|g| Gather { distinct: if streamed > 0.0 { 0.0 } else { g.distinct }, ..g });
            work.read += ELEMENT * streamed;
            work.gathers.extend(gathered);
        }
        if walks {
            work.read += POSITION * (self.rows + 1.0);
        }
        if ends {
            work.read += ELEMENT * self.edges;
        }
        if positions && self.is_outgoing() {
            work.read += ELEMENT * self.edges;
        }
        work
    }

    /// Are the edges walked in another order than the one in which edge values are stored?
    fn is_outgoing(&self) -> bool {
        matches!(
            self.traversal.rows,
            Rows::Edges(_, Direction::Out) | Rows::Endpoints(_, Direction::Out) | Rows::Elements(_, Direction::Out)
        )
    }

    fn width(&self, operand: Operand) -> f64 {
        // In a verified program every operand has a width.
        let width = self.program.operand_width(&self.traversal.rows, &self.widths, operand);
        width.map_or(0.0, |width| self.sizes.eval(&width))
    }

    fn count(&self, level: Level) -> f64 {
        match level {
            Level::Row => self.rows,
            Level::Edge => self.edges,
        }
    }

    /// Elements of the result of an instruction.
    fn elements(&self, instr: &Instr) -> f64 {
        let count = match instr.extent() {
            Extent::Row => self.rows,
            Extent::Edge => self.edges,
            Extent::Total => 1.0,
        };
        count * self.sizes.eval(&instr.width)
    }

    /// The source of an operand, unless one of the chosen instructions computed it for this row or edge.
    fn foreign(&self, operand: Operand, chosen: &BTreeSet<usize>) -> Option<DataSource> {
        let (thing, maker) = match operand.source {
            Source::Const(_) | Source::Count(_) => return None,
            Source::Buffer(buffer) => (DataSource::Buffer(buffer), self.writers.get(&buffer).copied()),
            Source::Local(local) => {
                let maker = self.makers.get(local.index()).copied();
                (DataSource::Local(local.index()), maker)
            }
        };
        maker.is_none_or(|maker| !chosen.contains(&maker)).then_some(thing)
    }

    /// Is a result stored: in a buffer, or for instructions that are not chosen?
    fn leaves(&self, i: usize, chosen: &BTreeSet<usize>) -> bool {
        match self.traversal.instrs[i].dest {
            Dest::Buffer(_) => true,
            Dest::Local(_) if chosen.len() == self.traversal.instrs.len() => false,
            Dest::Local(local) => self.traversal.instrs.iter().enumerate().any(|(j, other)| {
                !chosen.contains(&j) && other.op.operands().iter().any(|o| o.source == Source::Local(local))
            }),
        }
    }

    /// Elements in order, or rows by index.
    fn reads(&self, operand: Operand) -> (f64, Option<Gather>) {
        let width = self.width(operand);
        // Sums over stored elements use a row for nothing else.
        let ahead = matches!(self.traversal.rows, Rows::Elements(..));
        let gather = |distinct: f64| Some(Gather { reads: self.edges, distinct, row_bytes: ELEMENT * width, ahead });
        match operand.index {
            Index::Uniform => (width, None),
            // Rows of endpoints find the rows of vertices through their list.
            Index::Own if matches!(self.traversal.rows, Rows::Endpoints(..)) && !self.is_of_endpoints(operand) => {
                (0.0, Some(Gather { reads: self.rows, distinct: self.rows, row_bytes: ELEMENT * width, ahead: false }))
            }
            Index::Own => (self.rows * width, None),
            // A row, and the number of its vertex.
            Index::Endpoint => (self.rows_of(operand) * (width + 1.0), None),
            Index::Edge => match operand.source {
                Source::Buffer(_) if self.is_outgoing() => (0.0, gather(self.edges)),
                _ => (self.edges * width, None),
            },
            Index::Neighbor => (0.0, gather(self.others)),
            // Each stored element has its own cell.
            Index::DenseCell => (0.0, gather(self.edges)),
        }
    }

    /// The space of the rows of a buffer.
    fn space_of(&self, operand: Operand) -> Option<Space> {
        match operand.source {
            Source::Buffer(buffer) => Some(self.program.buffer(buffer).ty.space),
            Source::Local(_) | Source::Const(_) | Source::Count(_) => None,
        }
    }

    fn is_of_endpoints(&self, operand: Operand) -> bool {
        // Locals have the rows of the traversal.
        self.space_of(operand).is_none_or(|space| matches!(space, Space::Endpoints(..)))
    }

    fn rows_of(&self, operand: Operand) -> f64 {
        self.space_of(operand).map_or(0.0, |space| self.sizes.rows(space) as f64)
    }

    /// Cycles of an instruction beside its arithmetic and its traffic.
    fn cycles(&self, instr: &Instr) -> f64 {
        let count = self.count(instr.level);
        let results = count * self.sizes.eval(&instr.width);
        let picked = instr.op.operands().iter().filter(|operand| operand.index == Index::Neighbor).count() as f64;
        let of_elements = matches!(self.traversal.rows, Rows::Elements(..));
        let own = match &instr.op {
            KernelOp::MatMul(..) | KernelOp::MatMulT(..) => count * cycles::PRODUCT,
            KernelOp::OuterAll(of, ..) => count * self.sizes.eval(&of.all()) * cycles::OUTER,
            KernelOp::WeightedSum { .. } | KernelOp::SoftmaxSum { .. } if of_elements => results * cycles::WEIGHTED,
            KernelOp::WeightedSum { .. } | KernelOp::SoftmaxSum { .. } => {
                return results * cycles::WEIGHTED + count * cycles::WEIGHTED_EDGE + self.rows * cycles::WEIGHTED_ROW;
            }
            KernelOp::Segment(Reduce::Lse, _) => results * cycles::LSE + count * cycles::SEGMENT,
            KernelOp::Segment(..) | KernelOp::SegmentArg { .. } => results * cycles::ELEMENT + count * cycles::SEGMENT,
            KernelOp::ReduceTrailing(_, a) => results * cycles::GROUP + count * self.width(*a) * cycles::ELEMENT,
            KernelOp::Dot(a, b) => {
                results * cycles::GROUP + count * self.width(*a).max(self.width(*b)) * cycles::ELEMENT
            }
            KernelOp::ReduceAll(_, a) => count * self.width(*a) * cycles::ELEMENT,
            KernelOp::Unary(..)
            | KernelOp::Binary(..)
            | KernelOp::Compose { .. }
            | KernelOp::Select { .. }
            | KernelOp::Copy(_)
            | KernelOp::ScatterRows(..)
            | KernelOp::ScatterAdd(_)
            | KernelOp::Concat { .. }
            | KernelOp::Slice { .. }
            | KernelOp::Transpose { .. }
            | KernelOp::OneHot(_)
            | KernelOp::Mask { .. } => results * cycles::ELEMENT,
            KernelOp::RowProduct { k, .. } => results * *k as f64 * cycles::ELEMENT,
        };
        own + picked * count * cycles::PICK
    }

    fn compute(&self, instr: &Instr, work: &mut Work) {
        let count = self.count(instr.level);
        let results = count * self.sizes.eval(&instr.width);
        match &instr.op {
            KernelOp::Unary(f, _) => rates::add(work, results, f.facts().work),
            KernelOp::Binary(f, ..) => rates::add(work, results, f.facts().work),
            KernelOp::Compose { first, then, .. } => {
                rates::add(work, results, first.facts().work);
                rates::add(work, results, then.facts().work);
            }
            KernelOp::Select { .. } => rates::add(work, results, rates::SIMPLE),
            KernelOp::ScatterAdd(parts) => {
                let added: f64 = parts[1..].iter().map(|&part| self.rows_of(part) * self.width(part)).sum();
                rates::add(work, added, rates::SIMPLE);
            }
            KernelOp::Copy(_) | KernelOp::ScatterRows(..) | KernelOp::Concat { .. } | KernelOp::Slice { .. } => {}
            KernelOp::Transpose { .. } => {}
            KernelOp::RowProduct { k, .. } => work.products += results * *k as f64,
            KernelOp::OneHot(_) => rates::add(work, results, rates::SIMPLE),
            KernelOp::Mask { .. } => rates::add(work, results, rates::MASK),
            KernelOp::MatMul(of, ..) | KernelOp::MatMulT(of, ..) | KernelOp::OuterAll(of, ..) => {
                work.products += count * self.sizes.eval(&of.all());
            }
            KernelOp::ReduceTrailing(reduce, a) | KernelOp::Segment(reduce, a) | KernelOp::ReduceAll(reduce, a) => {
                rates::add(work, count * self.width(*a), rates::reduce(*reduce));
            }
            // A comparison and two selections.
            KernelOp::SegmentArg { x, .. } => rates::add(work, 3.0 * count * self.width(*x), rates::SIMPLE),
            KernelOp::Dot(a, b) => work.products += count * self.width(*a).max(self.width(*b)),
            KernelOp::WeightedSum { .. } => work.products += results,
            KernelOp::SoftmaxSum { score, x, times } => {
                let scores = count * self.width(*score);
                rates::add(work, scores, rates::reduce(hgnnc_ir::Reduce::Lse));
                rates::add(work, if times.is_some() { scores } else { 0.0 }, rates::SIMPLE);
                work.products += count * self.width(*x);
            }
        }
    }
}

/// Predicted seconds of a run, on the nominal machine. They rank programs, and predict no machine.
pub fn nominal_seconds(program: &Program, sizes: &SizeInfo) -> f64 {
    let machine = Machine::nominal();
    let kernels = program.launches.iter().flat_map(|launch| &launch.kernels);
    let of = |kernel: &Kernel| machine.predict(&kernel_work(program, kernel, sizes)).seconds();
    kernels.map(of).sum()
}
