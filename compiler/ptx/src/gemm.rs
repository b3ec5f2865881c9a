//! Dense products over all rows, on tensor cores.
//!
//! A block computes a tile of the result (`tile`).
//!
//! Lower bound of the cost: `2 m n k` operations, three times that on tensor cores; each operand is read once per tile
//! of the other's extent. With 64 columns, as in most models, the rows are read once, and the product is memory-bound.
//!
//! # Grouped products
//!
//! The number of row tiles of a member depends on the data. A launch therefore has as many blocks as there can be tiles
//! at most; each block finds its member (`members`), and blocks without rows return. A tile ends with the rows of its
//! member. With `P` rows and `M` members, the products cost at least `2 P k n` operations and `4 (P (k + n) + M k n)`
//! bytes.
//!
//! Rows of a tile that the member does not have are not read, but multiplied. A weight of a member with few rows is so
//! read for `2 TILE / 4 = 32` operations per byte, three times as many on tensor cores: about what an H200 does in the
//! time (495 TFLOP/s of TF32, 4.8 TB/s), so a stack of small members costs at most about twice the time of its weights.
//!
//! Sums of outer products have parts as without members, but these end with the rows of their member. The sum of a
//! member with one part is stored where it belongs, zeros if it has no rows; only members with several parts have
//! partial results, which `finish` adds in the order of the rows. One block for all rows of a member would need no
//! parts, but the largest relation of a dataset often has most of its rows.

use hgnnc_ir::ProductForm;
use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{Gemm, Program};

use crate::Slot;
use crate::code::Code;
use crate::isa::{Body, Class, Opcode, Reg, Regions, Special, Symbol, Type};
use crate::members::Member;
use crate::table::Table;
use crate::tile::{self, Left, Memory, Product, STAGING, TILE, Target};
use crate::{Blocks, KernelInfo, Members, Precision, Total};

/// Writes a dense product.
pub(crate) fn emit(
    program: &Program,
    gemm: &Gemm,
    number: usize,
    precision: Precision,
    table: &mut Table,
) -> (Body, KernelInfo) {
    let mut code = Code::new(0);
    let of = &gemm.of;
    let members = gemm.members.map(|graph| Members::of(program, graph));
    let [k, n, left, right, weight] =
        [&of.k, &of.n, &of.left(), &of.right(), &of.k.times(&of.n)].map(|width| table.elements(&mut code, width));
    let rows = table.load(&mut code, Class::U32, Slot::Count(gemm.rows));
    let [x, y] = [gemm.x, gemm.y].map(|buffer| table.load(&mut code, Class::U64, Slot::Buffer(buffer)));
    let outer = gemm.form == ProductForm::Outer;
    let out = match outer {
        true => Slot::Partials(number, 0),
        false => Slot::Buffer(gemm.out),
    };
    let out = table.load(&mut code, Class::U64, out);
    let thread = code.mov(Special::TidX);

    // The block's tile, its matrix of the batch, and its part of the rows.
    let (m, columns) = match gemm.form {
        ProductForm::MatMul => (rows, n),
        ProductForm::MatMulT => (rows, k),
        ProductForm::Outer => (k, n),
    };
    let tiles = |code: &mut Code, extent: Reg| {
        let up = code.add(extent, TILE - 1);
        code.div(up, TILE)
    };
    let tiles_m = match members {
        Some(members) if !outer => {
            let count = table.load(&mut code, Class::U32, Slot::Count(members.space));
            let full = code.div(m, TILE);
            code.add(full, count)
        }
        _ => tiles(&mut code, m),
    };
    let tiles_n = tiles(&mut code, columns);
    let tile_n = code.rem(Reg::BLOCK, tiles_n);
    let rest = code.div(Reg::BLOCK, tiles_n);
    let tile_m = code.rem(rest, tiles_m);
    let rest = code.div(rest, tiles_m);
    let batches = table.elements(&mut code, &of.batch);
    let batch = code.rem(rest, batches);
    let part = code.div(rest, batches);
    // A tile of rows, or a part of them, of a member. Other blocks have nothing to do.
    let member = members.map(|members| {
        let (tile, unit) = match outer {
            true => (part, table.load(&mut code, Class::U32, Slot::PartRows(number))),
            false => (tile_m, code.mov(TILE)),
        };
        Member::of_tile(&mut code, members, (tile, unit), thread, outer, table)
    });
    let (row0, m) = match &member {
        Some(member) if !outer => (member.row, member.end),
        _ => (code.mul(tile_m, TILE), m),
    };
    let column0 = code.mul(tile_n, TILE);
    let multiple = |width: &Width| width.as_fixed().is_some_and(|width| width % 4 == 0);
    let (k4, n4) = (multiple(&of.k), multiple(&of.n));
    // Of each operand: its buffer, the elements of a matrix of the batch (in a row, if it has rows), the elements from
    // one row to the next, whether the depth is contiguous, and whether rows begin at multiples of 16 bytes.
    let (a, b, depth, pitch_c) = match gemm.form {
        ProductForm::MatMul => ((x, k, left, true, k4), (y, weight, n, false, n4), k, right),
        ProductForm::MatMulT => ((x, n, right, true, n4), (y, weight, n, true, n4), n, left),
        ProductForm::Outer => ((x, k, left, false, k4), (y, n, right, false, n4), rows, n),
    };
    // The matrix of the batch, and of the member where it is of a weight.
    let matrix = match &member {
        Some(member) => code.mad(member.number, batches, batch),
        None => batch,
    };
    let mut operand = |(buffer, elements, pitch, deep, aligned), matrix, first, extent| {
        let base = tile::element(&mut code, buffer, matrix, elements);
        Memory { base, pitch, deep, first, extent, aligned }
    };
    let (a, b) = (operand(a, batch, row0, m), operand(b, if outer { batch } else { matrix }, column0, columns));
    let c = match (gemm.form, &member) {
        (ProductForm::MatMul, _) => tile::element(&mut code, out, batch, n),
        (ProductForm::MatMulT, _) => tile::element(&mut code, out, batch, k),
        (ProductForm::Outer, None) => {
            let part_base = code.mad(part, batches, batch);
            tile::element(&mut code, out, part_base, weight)
        }
        (ProductForm::Outer, Some(member)) => {
            let slot = member.slot(&mut code);
            let part_base = code.mad(slot, batches, batch);
            let part = tile::element(&mut code, out, part_base, weight);
            let out = table.load(&mut code, Class::U64, Slot::Buffer(gemm.out));
            let whole = tile::element(&mut code, out, matrix, weight);
            let several = member.has_several(&mut code);
            code.op(Class::U64, Opcode::Selp(Type::U64), (part, whole, several))
        }
    };
    // The depth that this block goes through.
    let (first, last) = match (outer, &member) {
        (false, _) => (code.mov(0), depth),
        (true, None) => {
            let len = table.load(&mut code, Class::U32, Slot::PartRows(number));
            let first = code.mul(part, len);
            let end = code.add(first, len);
            (first, code.min(end, depth))
        }
        (true, Some(member)) => {
            let end = code.add(member.row, member.unit);
            (member.row, code.min(end, member.end))
        }
    };
    let result = if gemm.form == ProductForm::MatMulT { &of.k } else { &of.n };
    let even = result.as_fixed().is_some_and(|width| width % 2 == 0);
    let staging = code.mov(Symbol::Shared);
    let mut product = Product::new(&mut code, precision, thread, staging);
    let sums = product.multiply(&Left::Memory(a), &b, first, last);
    let to = Target { base: c, pitch: pitch_c, even, row: row0, rows: m, column: column0, columns };
    product.write(&sums, &to);
    let totals = match outer {
        true => vec![Total { out: gemm.out, reduce: hgnnc_ir::Reduce::Sum, width: of.all(), members }],
        false => vec![],
    };
    let blocks = Blocks::Gemm { form: gemm.form, rows: gemm.rows, members, of: of.clone() };
    (code.finish(&Regions::default()), KernelInfo { number, blocks, shared: STAGING, row_memory: 0, totals })
}
