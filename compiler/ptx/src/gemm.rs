//! Dense products over all rows, on tensor cores.
//!
//! A block computes a tile of the result (`tile`).
//!
//! What it costs at least: `2 m n k` operations, three times on tensor cores; each operand is read once per tile of the
//! other's extent. With 64 columns, as in most models, the rows are read once: memory is the limit.

use hgnnc_ir::kernel::{Form, Gemm, Width};

use crate::code::Code;
use crate::isa::{Body, Class, Reg, Regions, Special, Symbol};
use crate::table::{Slot, Table};
use crate::tile::{self, DEPTH, Left, Memory, Product, STAGING, TILE, Target};
use crate::{Blocks, KernelInfo, Precision, Total};

/// Rows that a part of a sum of outer products has at least.
const PART_ROWS: usize = 512;
/// Parts of such a sum, at most.
const MOST_PARTS: usize = 128;
/// Elements of all parts, at most (where there are so many parts at all).
const PART_ELEMENTS: usize = 8 << 20;

/// Rows of a part of a sum of outer products with so many elements.
pub(crate) fn part_rows(rows: usize, elements: usize) -> usize {
    let most = (PART_ELEMENTS / elements.max(1)).clamp(1, MOST_PARTS);
    rows.div_ceil(most).max(PART_ROWS).next_multiple_of(DEPTH)
}

/// Writes a dense product.
pub(crate) fn emit(gemm: &Gemm, number: usize, precision: Precision, table: &mut Table) -> (Body, KernelInfo) {
    let mut code = Code::new(0);
    let of = &gemm.of;
    let mut entry = |code: &mut Code, slot: Slot| {
        let wide = matches!(slot, Slot::Buffer(_) | Slot::Partials(..));
        let offset = table.offset(slot);
        match wide {
            true => code.slot(Class::U64, offset),
            false => code.slot(Class::U32, offset),
        }
    };
    let mut elements = |code: &mut Code, width: &Width| match width.as_fixed() {
        Some(fixed) => code.mov(fixed),
        None => entry(code, Slot::Elements(width.clone())),
    };
    let (k, n) = (elements(&mut code, &of.k), elements(&mut code, &of.n));
    let (left, right) = (elements(&mut code, &of.left()), elements(&mut code, &of.right()));
    let weight = elements(&mut code, &of.k.times(&of.n));
    let rows = entry(&mut code, Slot::Count(gemm.rows));
    let [x, y] = [gemm.x, gemm.y].map(|buffer| entry(&mut code, Slot::Buffer(buffer)));
    let outer = gemm.form == Form::Outer;
    let out = match outer {
        true => entry(&mut code, Slot::Partials(number, 0)),
        false => entry(&mut code, Slot::Buffer(gemm.out)),
    };
    let thread = code.mov(Special::TidX);

    // Which tile, of which matrix of the batch, and which part of the rows.
    let (m, columns) = match gemm.form {
        Form::MatMul => (rows, n),
        Form::MatMulT => (rows, k),
        Form::Outer => (k, n),
    };
    let tiles = |code: &mut Code, extent: Reg| {
        let up = code.add(extent, TILE - 1);
        code.div(up, TILE)
    };
    let (tiles_m, tiles_n) = (tiles(&mut code, m), tiles(&mut code, columns));
    let tile_n = code.rem(Reg::BLOCK, tiles_n);
    let rest = code.div(Reg::BLOCK, tiles_n);
    let tile_m = code.rem(rest, tiles_m);
    let rest = code.div(rest, tiles_m);
    let batches = elements_of(&mut code, &of.batch, table);
    let batch = code.rem(rest, batches);
    let part = code.div(rest, batches);
    let (row0, column0) = (code.mul(tile_m, TILE), code.mul(tile_n, TILE));
    let multiple = |width: &Width| width.as_fixed().is_some_and(|width| width % 4 == 0);
    let (k4, n4) = (multiple(&of.k), multiple(&of.n));
    // Of each operand: its buffer, the elements of a matrix of the batch (in a row, if it has rows), the elements from one
    // row to the next, whether the depth is contiguous, and whether rows begin at multiples of 16 bytes.
    let (a, b, depth, pitch_c) = match gemm.form {
        Form::MatMul => ((x, k, left, true, k4), (y, weight, n, false, n4), k, right),
        Form::MatMulT => ((x, n, right, true, n4), (y, weight, n, true, n4), n, left),
        Form::Outer => ((x, k, left, false, k4), (y, n, right, false, n4), rows, n),
    };
    let mut operand = |(buffer, matrix, pitch, deep, aligned), first, extent| {
        let base = tile::element(&mut code, buffer, batch, matrix);
        Memory { base, pitch, deep, first, extent, aligned }
    };
    let (a, b) = (operand(a, row0, m), operand(b, column0, columns));
    let c = match gemm.form {
        Form::MatMul => tile::element(&mut code, out, batch, n),
        Form::MatMulT => tile::element(&mut code, out, batch, k),
        Form::Outer => {
            let part_base = code.mad(part, batches, batch);
            tile::element(&mut code, out, part_base, weight)
        }
    };
    // The depth that this block goes through.
    let (first, last) = match outer {
        false => (code.mov(0), depth),
        true => {
            let offset = table.offset(Slot::PartRows(number));
            let len = code.slot(Class::U32, offset);
            let first = code.mul(part, len);
            let end = code.add(first, len);
            (first, code.min(end, depth))
        }
    };
    let result = if gemm.form == Form::MatMulT { &of.k } else { &of.n };
    let even = result.as_fixed().is_some_and(|width| width % 2 == 0);
    let staging = code.mov(Symbol::Shared);
    let mut product = Product::new(&mut code, precision, thread, staging);
    let sums = product.multiply(&Left::Memory(a), &b, first, last);
    let to = Target { base: c, pitch: pitch_c, even, row: row0, rows: m, column: column0, columns };
    product.write(&sums, &to);
    let totals = match outer {
        true => vec![Total { out: gemm.out, reduce: hgnnc_ir::Reduce::Sum, width: of.all() }],
        false => vec![],
    };
    let blocks = Blocks::Gemm { form: gemm.form, rows: gemm.rows, of: of.clone() };
    (code.finish(&Regions::default()), KernelInfo { number, blocks, shared: STAGING, row_memory: 0, totals })
}

fn elements_of(code: &mut Code, width: &Width, table: &mut Table) -> Reg {
    match width.as_fixed() {
        Some(fixed) => code.mov(fixed),
        None => {
            let offset = table.offset(Slot::Elements(width.clone()));
            code.slot(Class::U32, offset)
        }
    }
}
