//! Grouped products: the rows of each member of a stack times that member's weight.
//!
//! `2 · rows · k · n` operations, as a product with one weight. Relations have few rows each (tens to thousands), so each
//! weight is read once and stays in cache; consecutive small members share a task. Sections of ranks have many, and weight
//! gradients of members with many rows are sums of partial results.

use std::ops::Range;

use hgnnc_data::buffer::BufferRange;
use hgnnc_ir::{ProductForm, Space};
use hgnnc_kernel_ir::kernel::Gemm;
use hgnnc_kernels::product::{self, Extents};

use super::ProductKind;
use super::bind::Binder;

/// Multiply-adds of a task: some ten microseconds.
const TASK: usize = 1 << 18;
/// Least rows of a partial weight gradient. Bands of rows of the gradient need no partial results, but each of them reads all
/// of an operand: on one thread, [31000; 64 x 349] has 109 GFLOP/s, and 40 in bands of 32 rows.
const PART: usize = 4096;

/// The product of each member's rows with the member's weight, divided into tasks.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct GroupedProduct {
    pub kind: ProductKind,
    pub of: Extents,
    /// The graph from rows to members, whose in-edges are the rows of each member.
    pub members: usize,
    pub x: BufferRange,
    pub y: BufferRange,
    pub out: BufferRange,
    pub pieces: Vec<Piece>,
    /// The first piece of each task, and the end of the last.
    pub tasks: Vec<u32>,
    /// The members whose weight gradients are sums of partial results.
    pub sums: Vec<MemberSum>,
    /// Offset of the partial results in the partials slab: a gradient for each part of those members.
    pub partials: usize,
}

/// A part of the product of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The position of the member in its stack.
    pub member: u32,
    /// Rows of the operand, counted from the first of all members; for a weight gradient, from the first of the member, or
    /// rows of the gradient where these are divided ([`product::band_rows`]).
    pub first: u32,
    /// One past the last of them.
    pub last: u32,
    /// The number of the partial result, if the piece is not all of a weight gradient.
    pub partial: Option<u32>,
}

/// A weight gradient that is a sum of partial results, in their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSum {
    /// The position of the member in its stack.
    pub member: u32,
    /// Numbers of the partial results.
    pub partials: Range<u32>,
}

impl GroupedProduct {
    /// The number of partial results.
    pub fn num_partials(&self) -> usize {
        self.sums.last().map_or(0, |sum| sum.partials.end as usize)
    }
}

/// The borders within a range of rows.
fn within<'a>(borders: &'a [u32], rows: &Range<usize>) -> &'a [u32] {
    let before = |row: usize| borders.partition_point(|&border| (border as usize) < row);
    &borders[before(rows.start)..before(rows.end)]
}

/// Plans a grouped product over the members of a graph. The division depends on sizes alone.
pub(super) fn bind_grouped(binder: &mut Binder<'_>, gemm: &Gemm, members: usize) -> GroupedProduct {
    let of = binder.extents(&gemm.of);
    let kind = match gemm.form {
        ProductForm::MatMul => ProductKind::MatMul,
        ProductForm::MatMulT => ProductKind::MatMulT,
        ProductForm::Outer => ProductKind::Outer,
    };
    let indptr = &binder.data.graphs[members].csc.indptr;
    // How a row is rounded may depend on the rows that share a piece with it: on ranks, pieces begin with sections.
    let rows = match gemm.rows {
        Space::Vertices(vertex) => binder.data.sections.get(vertex.index()).and_then(Option::as_ref),
        Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => None,
    };
    let borders: &[u32] = rows.map_or(&[], |sections| &sections.borders);
    let (mut pieces, mut tasks, mut work) = (vec![], vec![0], 0);
    let (mut sums, mut num_partials) = (vec![], 0);
    let size = of.batch * of.k * of.n;
    let band_rows = product::band_rows(of);
    // Multiply-adds for a row of a piece.
    let cost = |rows: usize| if kind == ProductKind::Outer && band_rows.is_some() { rows * of.n } else { size };
    for (member, range) in indptr.windows(2).enumerate() {
        let (first, last) = (range[0] as usize, range[1] as usize);
        let (parts, per_part) = match kind {
            ProductKind::MatMul | ProductKind::MatMulT => (first..last, product::task_rows(of, binder.features).max(1)),
            ProductKind::Outer => match band_rows {
                Some(rows) => (0..of.k, rows),
                None => (0..last - first, product::part_rows(of, last - first, PART)),
            },
        };
        let is_sum = kind == ProductKind::Outer && band_rows.is_none() && parts.len() > per_part;
        let cuts: &[u32] = if kind == ProductKind::Outer { &[] } else { within(borders, &parts) };
        let first_partial = num_partials;
        let mut start = parts.start;
        loop {
            let cut = cuts.iter().map(|&cut| cut as usize).find(|&cut| cut > start).unwrap_or(parts.end);
            let end = cut.min(start + per_part);
            let partial = is_sum.then_some(num_partials);
            num_partials += u32::from(is_sum);
            // A weight gradient without rows is zero.
            if start < end || kind == ProductKind::Outer {
                pieces.push(Piece { member: member as u32, first: start as u32, last: end as u32, partial });
            }
            work += (end - start) * cost(last - first);
            if work >= TASK {
                tasks.push(pieces.len() as u32);
                work = 0;
            }
            start = end;
            if start >= parts.end {
                break;
            }
        }
        if is_sum {
            sums.push(MemberSum { member: member as u32, partials: first_partial..num_partials });
        }
    }
    if tasks.last() != Some(&(pieces.len() as u32)) {
        tasks.push(pieces.len() as u32);
    }
    let [x, y, out] = [gemm.x, gemm.y, gemm.out].map(|buffer| binder.buffer(buffer));
    let partials = binder.partial(num_partials as usize, size);
    GroupedProduct { kind, of, members, x, y, out, pieces, tasks, sums, partials }
}
