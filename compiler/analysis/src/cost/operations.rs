//! Counts the work of operations of the dataflow IR, each as a kernel of its own.

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{Dataflow, Direction, Layout, Op, ProductForm, Space, Value};
use hgnnc_machine::{Gather, Machine, Work};

use super::metapath::metapath_work;
use super::{Bounded, Kind, bounded, rates};

/// Bytes of an element, and of an endpoint in a list of edges.
const ELEMENT: f64 = 4.0;
/// Bytes of an offset in `indptr`.
const POSITION: f64 = 8.0;
/// Unit values of more elements than this are worth several threads.
const LARGE_UNIT: f64 = 4096.0;

/// An operation of a program, with its cost.
#[derive(Clone, PartialEq, Debug)]
pub struct OperationBound {
    /// The result of the operation.
    pub value: Value,
    /// Work and predicted time.
    pub bound: Bounded,
}

/// All operations of a program that have work, in order. Leaves and views (reshapes and the like) have none.
pub fn operations(flow: &Dataflow, sizes: &SizeInfo, machine: &Machine) -> Vec<OperationBound> {
    let bound = |value: Value| {
        let node = flow.value(value);
        let (kind, work) = operation_work(flow, value, sizes)?;
        Some(OperationBound { value, bound: bounded(machine, node.stage, node.phase, kind, false, work) })
    };
    flow.handles().filter_map(bound).collect()
}

/// Counts the work of an operation. `None` where it has none.
pub fn operation_work(flow: &Dataflow, value: Value, sizes: &SizeInfo) -> Option<(Kind, Work)> {
    let count = Count { flow, sizes };
    let node = flow.value(value);
    let args = &node.args[..];
    let results = count.elements(value);
    let mut work = Work { written: ELEMENT * results, ..Work::default() };
    let large = |v: &Value| flow.ty(*v).space != Space::Unit || count.elements(*v) > LARGE_UNIT;
    work.serial = !args.iter().chain([&value]).any(large);
    let read = |work: &mut Work, v: Value| work.read += ELEMENT * count.stored(v);
    let kind = match &node.op {
        Op::Input(_)
        | Op::Param(_)
        | Op::State(..)
        | Op::Const(_)
        | Op::Count(_)
        | Op::StopGradient
        | Op::Reshape(_)
        | Op::Rows
        | Op::Unrows
        // Written out before costs are counted.
        | Op::LinkLoss(_)
        | Op::Reindex(_) => return None,
        Op::Broadcast(_) if flow.ty(args[0]) == &node.ty => return None,
        Op::RandomMask { .. } => {
            rates::add(&mut work, results, rates::MASK);
            Kind::EW
        }
        Op::Unary(f) => {
            rates::add(&mut work, results, f.facts().work);
            read(&mut work, args[0]);
            Kind::EW
        }
        Op::Binary(f) => {
            rates::add(&mut work, results, f.facts().work);
            for (i, &arg) in args.iter().enumerate() {
                if !args[..i].contains(&arg) {
                    count.meet(&mut work, arg, value);
                }
            }
            Kind::EW
        }
        Op::Broadcast(_) | Op::Concat | Op::Slice { .. } | Op::Transpose { .. } | Op::OneHot { .. } => {
            // A slice reads only its part.
            match &node.op {
                Op::Slice { .. } => work.read += ELEMENT * results,
                _ => args.iter().for_each(|&arg| read(&mut work, arg)),
            }
            if matches!(node.op, Op::OneHot { .. }) {
                rates::add(&mut work, results, rates::SIMPLE);
            }
            Kind::DR
        }
        Op::MatMul { .. } | Op::MatMulT { .. } if !flow.is_sparse(args[0]) => {
            work.products = count.rows(args[0]) * count.elements(args[1]);
            args.iter().for_each(|&arg| read(&mut work, arg));
            Kind::DM
        }
        Op::MatMul { .. } | Op::MatMulT { .. } => {
            let width = if count.rows(value) > 0.0 { results / count.rows(value) } else { 0.0 };
            count.sparse_product(&mut work, args[0], Direction::In, width);
            Kind::TB
        }
        Op::Outer { .. } if !flow.is_sparse(args[0]) => {
            work.products = count.rows(args[0]) * results;
            work.barriers = 1.0;
            args.iter().for_each(|&arg| read(&mut work, arg));
            Kind::DM
        }
        Op::Outer { .. } => {
            count.sparse_product(&mut work, args[0], Direction::Out, count.width(args[1]));
            Kind::TB
        }
        Op::RowProduct { .. } => {
            let inner = flow.ty(args[0]).dims.last().and_then(|dim| dim.fixed()).unwrap_or(1);
            work.products = results * inner as f64;
            args.iter().for_each(|&arg| read(&mut work, arg));
            Kind::EW
        }
        Op::Grouped { form, .. } => {
            // The elements of one member's weight.
            let (weight, rows) = if *form == ProductForm::Outer { (value, args[0]) } else { (args[1], args[0]) };
            work.products = count.rows(rows) * count.width(weight);
            args.iter().for_each(|&arg| read(&mut work, arg));
            Kind::DM
        }
        Op::GatherSrc(graph) => {
            let edges = count.rows(value);
            let distinct = sizes.others(flow, *graph, Direction::In);
            work.read += ELEMENT * edges;
            work.gathers.push(Gather {
                reads: edges,
                distinct,
                row_bytes: ELEMENT * count.width(args[0]),
                ahead: false,
            });
            Kind::DR
        }
        Op::GatherDst(_) => {
            // Edges are ordered by destination.
            read(&mut work, args[0]);
            work.read += POSITION * (count.rows(args[0]) + 1.0);
            Kind::DR
        }
        Op::GatherRows(..) => {
            let rows = count.rows(value);
            work.read += ELEMENT * rows;
            work.gathers.push(Gather {
                reads: rows,
                distinct: rows,
                row_bytes: ELEMENT * count.width(value),
                ahead: false,
            });
            Kind::DR
        }
        Op::ScatterRows(..) | Op::ScatterAdd(_) => {
            for (i, &arg) in args.iter().enumerate() {
                read(&mut work, arg);
                if i > 0 {
                    work.read += ELEMENT * count.rows(arg);
                }
            }
            if let Op::ScatterAdd(_) = node.op {
                rates::add(&mut work, args[1..].iter().map(|&arg| count.elements(arg)).sum(), rates::SIMPLE);
                Kind::EW
            } else {
                Kind::DR
            }
        }
        Op::Segment { direction, reduce, .. } | Op::SegmentEndpoints { direction, reduce, .. } => {
            rates::add(&mut work, count.elements(args[0]), rates::reduce(*reduce));
            work.read += POSITION * (count.rows(value) + 1.0);
            match direction {
                Direction::In => read(&mut work, args[0]),
                Direction::Out => {
                    let edges = count.rows(args[0]);
                    work.read += ELEMENT * edges;
                    let row_bytes = ELEMENT * count.width(args[0]);
                    work.gathers.push(Gather { reads: edges, distinct: edges, row_bytes, ahead: false });
                }
            }
            Kind::TB
        }
        Op::SegmentArg { .. } => {
            rates::add(&mut work, 3.0 * count.elements(args[0]), rates::SIMPLE);
            work.read += POSITION * (count.rows(value) + 1.0);
            args.iter().for_each(|&arg| read(&mut work, arg));
            Kind::TB
        }
        // The copies that a rank makes; the network has a model of its own.
        Op::Exchange(_) | Op::SumRanks => {
            read(&mut work, args[0]);
            Kind::TB
        }
        Op::MetapathReduce(sum) => {
            let heads = count.width(args[0]);
            let per_head = count.width(value) / heads.max(1.0);
            work = metapath_work(flow, sum, (heads, per_head, count.width(value)), sizes);
            Kind::TB
        }
        Op::ReduceTrailing { reduce, .. } | Op::ReduceSpace(reduce) => {
            rates::add(&mut work, count.elements(args[0]), rates::reduce(*reduce));
            read(&mut work, args[0]);
            let total = matches!(node.op, Op::ReduceSpace(_));
            work.barriers = f64::from(u8::from(total && !work.serial));
            if flow.is_sparse(args[0]) {
                work.read += POSITION * (count.rows(args[0]) + 1.0);
                Kind::TB
            } else {
                Kind::EW
            }
        }
    };
    Some((kind, work))
}

struct Count<'a> {
    flow: &'a Dataflow,
    sizes: &'a SizeInfo,
}

impl Count<'_> {
    fn rows(&self, value: Value) -> f64 {
        self.sizes.rows(self.flow.ty(value).space) as f64
    }

    /// Elements per row of the dense form.
    fn width(&self, value: Value) -> f64 {
        self.flow.ty(value).dims.iter().map(|&dim| self.sizes.extent(dim) as f64).product()
    }

    /// Number of stored elements.
    fn elements(&self, value: Value) -> f64 {
        match self.flow.ty(value).layout {
            Layout::Sparse(pattern) => self.sizes.stored(self.flow, pattern),
            Layout::Dense => self.rows(value) * self.width(value),
        }
    }

    /// Number of elements that are read: constants are part of the code.
    fn stored(&self, value: Value) -> f64 {
        match self.flow.value(value).op {
            Op::Const(_) | Op::Count(_) => 0.0,
            _ => self.elements(value),
        }
    }

    /// Reads an operand of an element-wise operation. Stored elements meet the cells of a dense operand.
    fn meet(&self, work: &mut Work, arg: Value, result: Value) {
        let stored = self.elements(result);
        let (ty, dense) = (self.flow.ty(arg), self.flow.is_sparse(result) && !self.flow.is_sparse(arg));
        if dense && !ty.dims.is_empty() {
            let distinct = self.elements(arg).min(stored);
            work.gathers.push(Gather { reads: stored, distinct, row_bytes: ELEMENT, ahead: true });
        } else {
            work.read += ELEMENT * self.stored(arg);
        }
    }

    /// A sparse matrix, or its transpose, times rows of `width` columns.
    fn sparse_product(&self, work: &mut Work, matrix: Value, direction: Direction, width: f64) {
        let Layout::Sparse(pattern) = self.flow.ty(matrix).layout else { return };
        let stored = self.sizes.stored(self.flow, pattern);
        let distinct = self.sizes.other_lines(self.flow, pattern, direction);
        let lines = match direction {
            Direction::In => self.rows(matrix),
            Direction::Out => self.width(matrix),
        };
        work.products = stored * width;
        work.read += POSITION * (lines + 1.0) + ELEMENT * stored;
        match direction {
            Direction::In => work.read += ELEMENT * stored,
            Direction::Out => {
                // The elements of a column are strided, and their positions are read as well.
                work.read += ELEMENT * stored;
                work.gathers.push(Gather { reads: stored, distinct: stored, row_bytes: ELEMENT, ahead: true });
            }
        }
        work.gathers.push(Gather { reads: stored, distinct, row_bytes: ELEMENT * width, ahead: true });
    }
}
