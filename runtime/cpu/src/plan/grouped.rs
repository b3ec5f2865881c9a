//! Grouped products: the rows of each member of a stack times that member's weight.
//!
//! `2 · rows · k · n` operations, as a product with one weight. Members have few rows each (tens to thousands), so each
//! weight is read once and stays in cache; consecutive small members share a task.

use std::ops::Range;

use hgnnc_data::buffer::BufferRange;
use hgnnc_ir::{ProductForm, Space};
use hgnnc_kernel_ir::kernel::Gemm;
use hgnnc_kernels::product::{self, Extents};

use super::ProductKind;
use super::bind::Binder;

/// Multiply-adds of a task: some ten microseconds.
const TASK: usize = 1 << 18;
/// Least rows of a band of a weight gradient that several tasks share. Each band reads all rows of the gradient of the product:
/// with 16 rows instead of 32, [31000; 64 x 349] takes 1.4 times as long on one thread, and with 64 rows 0.85 times.
const BAND: usize = 32;

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
}

/// A part of the product of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The position of the member in its stack.
    pub member: u32,
    /// Rows of the operand, counted from the first of all members; for a weight gradient, rows of the gradient.
    pub first: u32,
    /// One past the last of them.
    pub last: u32,
}

/// The borders within a range of rows.
fn within<'a>(borders: &'a [u32], rows: &Range<usize>) -> &'a [u32] {
    let before = |row: usize| borders.partition_point(|&border| (border as usize) < row);
    &borders[before(rows.start)..before(rows.end)]
}

/// Plans a grouped product over the members of a graph. The division depends on sizes alone.
pub(super) fn bind_grouped(binder: &Binder<'_>, gemm: &Gemm, members: usize) -> GroupedProduct {
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
    let all = of.batch * of.k * of.n;
    for (member, range) in indptr.windows(2).enumerate() {
        let (first, last) = (range[0] as usize, range[1] as usize);
        let (parts, per_part, cost) = match kind {
            ProductKind::MatMul | ProductKind::MatMulT => {
                let per_part = product::task_rows(of, binder.features).max(1);
                (first..last, per_part, all)
            }
            // The gradient of a member with many rows is computed in bands, which only a single matrix has.
            ProductKind::Outer => {
                let rows = last - first;
                let shares = (rows * all / TASK).clamp(1, of.k.div_ceil(BAND).max(1));
                let per_part = if of.batch == 1 { of.k.div_ceil(shares).max(1) } else { of.k.max(1) };
                (0..of.k, per_part, rows * of.batch * of.n)
            }
        };
        let cuts: &[u32] = if kind == ProductKind::Outer { &[] } else { within(borders, &parts) };
        let mut start = parts.start;
        while start < parts.end {
            let cut = cuts.iter().map(|&cut| cut as usize).find(|&cut| cut > start).unwrap_or(parts.end);
            let end = cut.min(start + per_part);
            pieces.push(Piece { member: member as u32, first: start as u32, last: end as u32 });
            work += (end - start) * cost;
            if work >= TASK {
                tasks.push(pieces.len() as u32);
                work = 0;
            }
            start = end;
        }
    }
    if tasks.last() != Some(&(pieces.len() as u32)) {
        tasks.push(pieces.len() as u32);
    }
    let [x, y, out] = [gemm.x, gemm.y, gemm.out].map(|buffer| binder.buffer(buffer));
    GroupedProduct { kind, of, members, x, y, out, pieces, tasks }
}
