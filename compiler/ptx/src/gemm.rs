//! Dense products over all rows, on tensor cores.
//!
//! A block computes a tile of the result, 64 by 64, its eight warps 32 by 16 each. Slices of 16 of both operands are
//! copied to shared memory in the orientation that they have in memory, asynchronously, two ahead of the one at work.
//! Products are `mma.sync` of TF32 with sums in f32. So that they are as exact as f32, each number is taken apart into two
//! of TF32 and three of the four products are added (Ootomo and Yokota 2022).
//!
//! What it costs at least: `2 m n k` operations, three times on tensor cores; each operand is read once per tile of the
//! other's extent. With 64 columns, as in most models, the rows are read once: memory is the limit.

use hgnnc_ir::kernel::{Form, Gemm, Width};

use crate::code::{Class, Code, Reg, Val};
use crate::table::{Slot, Table};
use crate::{Blocks, KernelInfo, THREADS, Total};

/// Rows and columns of a tile of the result.
pub(crate) const TILE: usize = 64;
/// Depth of a slice.
const DEPTH: usize = 16;
/// Slices in shared memory.
const STAGES: usize = 3;
/// A slice of an operand whose depth is contiguous: rows of 16 with 4 unused, so that the 32 reads of a fragment fall on
/// different banks.
const DEEP_PITCH: usize = DEPTH + 4;
/// A slice of an operand whose rows or columns are contiguous: 16 of 64, with 8 unused.
const WIDE_PITCH: usize = TILE + 8;
/// Elements of a slice, whichever it is.
const SLICE: usize = TILE * DEEP_PITCH;
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

/// An operand of the product `C = A B`, `A` with rows and depth, `B` with depth and columns.
struct Side {
    /// Address of its first element.
    base: Reg,
    /// Elements from one row of memory to the next.
    pitch: Reg,
    /// Is the depth contiguous in memory?
    deep: bool,
    /// Rows (of `A`) or columns (of `B`).
    extent: Reg,
    /// Are rows of memory multiples of 16 bytes long, and begin so?
    aligned: bool,
}

/// Writes a dense product.
pub(crate) fn emit(gemm: &Gemm, number: usize, table: &mut Table) -> (String, KernelInfo) {
    let mut code = Code::new(0);
    let of = &gemm.of;
    let mut entry = |code: &mut Code, slot: Slot| {
        let wide = matches!(slot, Slot::Buffer(_) | Slot::Partials(..));
        let offset = table.offset(slot);
        match wide {
            true => code.d("ld.const.u64", &[&format_args!("[table+{offset}]")]),
            false => code.u("ld.const.u32", &[&format_args!("[table+{offset}]")]),
        }
    };
    let mut elements = |code: &mut Code, width: &Width| match width.as_fixed() {
        Some(fixed) => code.u("mov.u32", &[&fixed]),
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
    let thread = code.u("mov.u32", &[&"%tid.x"]);

    // Which tile, of which matrix of the batch, and which part of the rows.
    let (m, columns) = match gemm.form {
        Form::MatMul => (rows, n),
        Form::MatMulT => (rows, k),
        Form::Outer => (k, n),
    };
    let tiles = |code: &mut Code, extent: Reg| {
        let up = code.u("add.u32", &[&extent, &(TILE - 1)]);
        code.u("div.u32", &[&up, &TILE])
    };
    let (tiles_m, tiles_n) = (tiles(&mut code, m), tiles(&mut code, columns));
    let tile_n = code.u("rem.u32", &[&"%block", &tiles_n]);
    let rest = code.u("div.u32", &[&"%block", &tiles_n]);
    let tile_m = code.u("rem.u32", &[&rest, &tiles_m]);
    let rest = code.u("div.u32", &[&rest, &tiles_m]);
    let batches = elements_of(&mut code, &of.batch, table);
    let batch = code.u("rem.u32", &[&rest, &batches]);
    let part = code.u("div.u32", &[&rest, &batches]);
    let (row0, column0) = (code.u("mul.lo.u32", &[&tile_m, &TILE]), code.u("mul.lo.u32", &[&tile_n, &TILE]));
    let at = |code: &mut Code, base: Reg, elements: Reg, by: Reg| {
        let offset = code.d("mul.wide.u32", &[&elements, &by]);
        let bytes = code.d("shl.b64", &[&offset, &2]);
        code.d("add.u64", &[&base, &bytes])
    };
    let multiple = |width: &Width| width.as_fixed().is_some_and(|width| width % 4 == 0);
    let (k4, n4) = (multiple(&of.k), multiple(&of.n));
    let (a, b, depth, pitch_c) = match gemm.form {
        Form::MatMul => {
            let a = Side { base: at(&mut code, x, batch, k), pitch: left, deep: true, extent: m, aligned: k4 };
            let b = Side { base: at(&mut code, y, batch, weight), pitch: n, deep: false, extent: columns, aligned: n4 };
            (a, b, k, right)
        }
        Form::MatMulT => {
            let a = Side { base: at(&mut code, x, batch, n), pitch: right, deep: true, extent: m, aligned: n4 };
            let b = Side { base: at(&mut code, y, batch, weight), pitch: n, deep: true, extent: columns, aligned: n4 };
            (a, b, n, left)
        }
        Form::Outer => {
            let a = Side { base: at(&mut code, x, batch, k), pitch: left, deep: false, extent: m, aligned: k4 };
            let b = Side { base: at(&mut code, y, batch, n), pitch: right, deep: false, extent: columns, aligned: n4 };
            (a, b, rows, n)
        }
    };
    let c = match gemm.form {
        Form::MatMul => at(&mut code, out, batch, n),
        Form::MatMulT => at(&mut code, out, batch, k),
        Form::Outer => {
            let part_base = code.u("mad.lo.u32", &[&part, &batches, &batch]);
            at(&mut code, out, part_base, weight)
        }
    };
    // The depth that this block goes through.
    let (first, last) = match outer {
        false => (code.u("mov.u32", &[&0]), depth),
        true => {
            let offset = table.offset(Slot::PartRows(number));
            let len = code.u("ld.const.u32", &[&format_args!("[table+{offset}]")]);
            let first = code.u("mul.lo.u32", &[&part, &len]);
            let end = code.u("add.u32", &[&first, &len]);
            (first, code.u("min.u32", &[&end, &depth]))
        }
    };
    let mut block = Block { code, thread, first, last, sums: vec![] };
    block.multiply(&a, &b, row0, column0);
    let result = if gemm.form == Form::MatMulT { &of.k } else { &of.n };
    let even = result.as_fixed().is_some_and(|width| width % 2 == 0);
    block.write(c, pitch_c, even, (row0, m), (column0, columns));
    let totals = match outer {
        true => vec![Total { out: gemm.out, reduce: hgnnc_ir::Reduce::Sum, width: of.all() }],
        false => vec![],
    };
    let blocks = Blocks::Gemm { form: gemm.form, rows: gemm.rows, of: of.clone() };
    (block.code.finish(), KernelInfo { number, blocks, shared: 4 * 2 * STAGES * SLICE, totals })
}

fn elements_of(code: &mut Code, width: &Width, table: &mut Table) -> Reg {
    match width.as_fixed() {
        Some(fixed) => code.u("mov.u32", &[&fixed]),
        None => {
            let offset = table.offset(Slot::Elements(width.clone()));
            code.u("ld.const.u32", &[&format_args!("[table+{offset}]")])
        }
    }
}

/// Rows of tiles of 16 that a warp has, and columns of tiles of 8.
const WARP_TILES: (usize, usize) = (2, 2);
/// Columns of warps in a block.
const WARPS_ACROSS: usize = 4;

/// State of writing one tile.
struct Block {
    code: Code,
    thread: Reg,
    /// The depth where it begins, and ends.
    first: Reg,
    last: Reg,
    /// Four sums for each tile of a warp.
    sums: Vec<[Reg; 4]>,
}

impl Block {
    fn multiply(&mut self, a: &Side, b: &Side, row0: Reg, column0: Reg) {
        let code = &mut self.code;
        let memory = code.u("mov.u32", &[&"shared"]);
        self.sums = (0..WARP_TILES.0 * WARP_TILES.1)
            .map(|_| std::array::from_fn(|_| code.f("mov.f32", &[&Val::ZERO])))
            .collect();
        let lane = code.u("and.b32", &[&self.thread, &31]);
        let warp = code.u("shr.u32", &[&self.thread, &5]);
        let (group, within) = (code.u("shr.u32", &[&lane, &2]), code.u("and.b32", &[&lane, &3]));
        let (down, across) = (code.u("div.u32", &[&warp, &WARPS_ACROSS]), code.u("rem.u32", &[&warp, &WARPS_ACROSS]));
        let row = code.u("mad.lo.u32", &[&down, &(16 * WARP_TILES.0), &group]);
        let column = code.u("mad.lo.u32", &[&across, &(8 * WARP_TILES.1), &group]);
        // Where this lane's elements of the fragments lie in a slice.
        let own = |code: &mut Code, side: &Side, index: Reg| match side.deep {
            true => code.u("mad.lo.u32", &[&index, &DEEP_PITCH, &within]),
            false => code.u("mad.lo.u32", &[&within, &WIDE_PITCH, &index]),
        };
        let (own_a, own_b) = (own(code, a, row), own(code, b, column));
        let own_a = code.u("mad.lo.u32", &[&own_a, &4, &memory]);
        let own_b = code.u("mad.lo.u32", &[&own_b, &4, &memory]);

        // Slices on their way.
        let (load, used) = (code.u("mov.u32", &[&self.first]), code.u("mov.u32", &[&self.first]));
        let (load_at, used_at) = (code.u("mov.u32", &[&0]), code.u("mov.u32", &[&0]));
        for _ in 0..STAGES - 1 {
            self.copy(a, b, row0, column0, memory, load, load_at);
        }
        let (again, done) = (self.code.label(), self.code.label());
        self.code.place(again);
        let end = self.code.p("setp.ge.u32", &[&used, &self.last]);
        self.code.jump_if(end, done);
        self.code.line(format_args!("cp.async.wait_group {};", STAGES - 2));
        // The slice has arrived for all, and all are done with the one before, whose place the next takes.
        self.code.line("bar.sync 0;");
        self.copy(a, b, row0, column0, memory, load, load_at);
        let (at_a, at_b) = (self.code.u("add.u32", &[&own_a, &used_at]), self.code.u("add.u32", &[&own_b, &used_at]));
        for step in 0..DEPTH / 8 {
            self.slice(a.deep, b.deep, at_a, at_b, 8 * step);
        }
        self.code.set(used, "add.u32", &[&used, &DEPTH]);
        self.advance(used_at);
        self.code.jump(again);
        self.code.place(done);
        self.code.line("cp.async.wait_all;");
    }

    /// The place of the next slice, in a ring.
    fn advance(&mut self, at: Reg) {
        let slice = 4 * 2 * SLICE;
        self.code.set(at, "add.u32", &[&at, &slice]);
        let round = self.code.p("setp.eq.u32", &[&at, &(STAGES * slice)]);
        self.code.set(at, "selp.u32", &[&0, &at, &round]);
    }

    /// Copies the next slice of both operands.
    #[allow(clippy::too_many_arguments)]
    fn copy(&mut self, a: &Side, b: &Side, row0: Reg, column0: Reg, memory: Reg, load: Reg, at: Reg) {
        let to = self.code.u("add.u32", &[&memory, &at]);
        self.copy_side(a, row0, load, to);
        let to = self.code.u("add.u32", &[&to, &(4 * SLICE)]);
        self.copy_side(b, column0, load, to);
        self.code.line("cp.async.commit_group;");
        self.code.set(load, "add.u32", &[&load, &DEPTH]);
        self.advance(at);
    }

    fn copy_side(&mut self, side: &Side, index0: Reg, depth0: Reg, to: Reg) {
        let last = self.last;
        let code = &mut self.code;
        let vector = if side.aligned { 4 } else { 1 };
        // Lines of memory, and elements of each: what they are numbered from, and end before.
        let (len, pitch) = if side.deep { (DEPTH, DEEP_PITCH) } else { (TILE, WIDE_PITCH) };
        let (line0, lines_end, element0, elements_end) = match side.deep {
            true => (index0, side.extent, depth0, last),
            false => (depth0, last, index0, side.extent),
        };
        let chunks = len / vector;
        for copy in 0..TILE * DEPTH / vector / THREADS {
            let number = code.u("add.u32", &[&self.thread, &(copy * THREADS)]);
            let (line, chunk) = (code.u("div.u32", &[&number, &chunks]), code.u("rem.u32", &[&number, &chunks]));
            let element = code.u("mul.lo.u32", &[&chunk, &vector]);
            let own = code.u("mad.lo.u32", &[&line, &pitch, &element]);
            let own = code.u("mad.lo.u32", &[&own, &4, &to]);
            let (line, element) = (code.u("add.u32", &[&line, &line0]), code.u("add.u32", &[&element, &element0]));
            let there = code.p("setp.lt.u32", &[&line, &lines_end]);
            let there = code.p("setp.lt.and.u32", &[&element, &elements_end, &there]);
            // What does not exist is 0; its address must be good all the same.
            let bytes = code.u("selp.u32", &[&(4 * vector), &0, &there]);
            let line = code.u("selp.u32", &[&line, &0, &there]);
            let element = code.u("selp.u32", &[&element, &0, &there]);
            let wide = code.d("cvt.u64.u32", &[&element]);
            let from = code.d("mad.wide.u32", &[&line, &side.pitch, &wide]);
            let from = code.d("shl.b64", &[&from, &2]);
            let from = code.d("add.u64", &[&from, &side.base]);
            let how = if vector == 4 { "cg" } else { "ca" };
            code.line(format_args!("cp.async.{how}.shared.global [{own}], [{from}], {}, {bytes};", 4 * vector));
        }
    }

    /// Eight of the depth of a slice.
    fn slice(&mut self, a_deep: bool, b_deep: bool, at_a: Reg, at_b: Reg, depth: usize) {
        let place = |deep: bool, index: usize, depth: usize| {
            4 * if deep { index * DEEP_PITCH + depth } else { depth * WIDE_PITCH + index }
        };
        let fragment = |block: &mut Self, at: Reg, offset: usize| {
            let number = block.code.f("ld.shared.f32", &[&format_args!("[{at}+{offset}]")]);
            block.split(number)
        };
        let a: Vec<Vec<(Reg, Reg)>> = (0..WARP_TILES.0)
            .map(|tile| {
                let corners = [(0, 0), (8, 0), (0, 4), (8, 4)];
                corners.iter().map(|(r, d)| fragment(self, at_a, place(a_deep, 16 * tile + r, depth + d))).collect()
            })
            .collect();
        let b: Vec<Vec<(Reg, Reg)>> = (0..WARP_TILES.1)
            .map(|tile| {
                let at = |d: usize| 4 * SLICE + place(b_deep, 8 * tile, depth + d);
                [0, 4].iter().map(|&d| fragment(self, at_b, at(d))).collect()
            })
            .collect();
        // The small products first.
        for (use_a, use_b) in [(1, 0), (0, 1), (0, 0)] {
            for (i, a) in a.iter().enumerate() {
                for (j, b) in b.iter().enumerate() {
                    let pick = |pair: &(Reg, Reg), small: usize| if small == 1 { pair.1 } else { pair.0 };
                    let list = |regs: Vec<Reg>| regs.iter().map(Reg::to_string).collect::<Vec<_>>().join(", ");
                    let a = list(a.iter().map(|pair| pick(pair, use_a)).collect());
                    let b = list(b.iter().map(|pair| pick(pair, use_b)).collect());
                    let sums = list(self.sums[i * WARP_TILES.1 + j].to_vec());
                    self.code.line(format_args!(
                        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};"
                    ));
                }
            }
        }
    }

    /// A number as a sum of two with 11 bits each.
    fn split(&mut self, number: Reg) -> (Reg, Reg) {
        let code = &mut self.code;
        let large = code.op(Class::U32, "cvt.rna.tf32.f32", &[&number]);
        let as_float = code.f("mov.b32", &[&large]);
        let rest = code.f("sub.rn.f32", &[&number, &as_float]);
        (large, code.op(Class::U32, "cvt.rna.tf32.f32", &[&rest]))
    }

    /// Stores the tile: where rows have an even length, two columns at once.
    fn write(&mut self, c: Reg, pitch: Reg, even: bool, (row0, rows): (Reg, Reg), (column0, columns): (Reg, Reg)) {
        let code = &mut self.code;
        let lane = code.u("and.b32", &[&self.thread, &31]);
        let warp = code.u("shr.u32", &[&self.thread, &5]);
        let (group, within) = (code.u("shr.u32", &[&lane, &2]), code.u("and.b32", &[&lane, &3]));
        let (down, across) = (code.u("div.u32", &[&warp, &WARPS_ACROSS]), code.u("rem.u32", &[&warp, &WARPS_ACROSS]));
        let row = code.u("mad.lo.u32", &[&down, &(16 * WARP_TILES.0), &group]);
        let row = code.u("add.u32", &[&row, &row0]);
        let column = code.u("mul.lo.u32", &[&across, &(8 * WARP_TILES.1)]);
        let column = code.u("mad.lo.u32", &[&within, &2, &column]);
        let column = code.u("add.u32", &[&column, &column0]);
        for i in 0..WARP_TILES.0 {
            for half in 0..2 {
                let row = code.u("add.u32", &[&row, &(16 * i + 8 * half)]);
                let inside = code.p("setp.lt.u32", &[&row, &rows]);
                for j in 0..WARP_TILES.1 {
                    for right in (0..2).step_by(if even { 2 } else { 1 }) {
                        let column = code.u("add.u32", &[&column, &(8 * j + right)]);
                        let there = code.p("setp.lt.and.u32", &[&column, &columns, &inside]);
                        let wide = code.d("cvt.u64.u32", &[&column]);
                        let at = code.d("mad.wide.u32", &[&row, &pitch, &wide]);
                        let at = code.d("shl.b64", &[&at, &2]);
                        let at = code.d("add.u64", &[&at, &c]);
                        let sums = &self.sums[i * WARP_TILES.1 + j][2 * half + right..];
                        match even {
                            true => code
                                .line(format_args!("@{there} st.global.v2.f32 [{at}], {{{}, {}}};", sums[0], sums[1])),
                            false => code.line(format_args!("@{there} st.global.f32 [{at}], {};", sums[0])),
                        }
                    }
                }
            }
        }
    }
}
