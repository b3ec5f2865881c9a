//! The product of a tile, by all warps of a block, on tensor cores.
//!
//! A tile of the result is 64 by 64, of which each of the eight warps has 32 by 16 in its registers. Operands in global
//! memory are copied to shared memory in slices of 16 of the depth, in the orientation that they have in memory,
//! asynchronously, two ahead of the one at work. A left operand whose rows the block has computed is in shared memory.
//!
//! Products are `mma.sync` with sums in f32, for a [`Precision`]. So that products of TF32 are as exact as f32, each number
//! is taken apart into two, and three of the four products are added (Ootomo and Yokota 2022).

use crate::code::{Class, Code, Reg, Val};
use crate::{Precision, THREADS};

/// Rows and columns of a tile of the result.
pub(crate) const TILE: usize = 64;
/// Depth of a slice.
pub(crate) const DEPTH: usize = 16;
/// Slices in shared memory.
const STAGES: usize = 3;
/// A slice of an operand whose rows or columns are contiguous: 16 of 64, with 8 unused, so that the 32 reads of a fragment
/// fall on different banks.
const WIDE_PITCH: usize = TILE + 8;
/// Elements of a slice, whichever it is.
const SLICE: usize = DEPTH * WIDE_PITCH;
/// Bytes of shared memory for slices on their way.
pub(crate) const STAGING: usize = 4 * 2 * STAGES * SLICE;
/// Rows that a warp has, in tiles of 16, and columns, in tiles of 8.
const WARP_TILES: (usize, usize) = (2, 2);
/// Columns of warps in a block.
const WARPS_ACROSS: usize = 4;

/// An operand of the product `C = A B`, `A` with rows and depth, `B` with depth and columns, in global memory.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// Address of its first element.
    pub base: Reg,
    /// Elements from one row of memory to the next.
    pub pitch: Reg,
    /// Is the depth contiguous in memory?
    pub deep: bool,
    /// The first row (of `A`) or column (of `B`) of the tile.
    pub first: Reg,
    /// Rows or columns in all.
    pub extent: Reg,
    /// Are rows of memory multiples of 16 bytes long, and begin so?
    pub aligned: bool,
}

/// The left operand of a tile.
#[derive(Clone, Copy)]
pub(crate) enum Left {
    /// Copied slice by slice.
    Memory(Memory),
    /// All 64 rows in shared memory. Up to the next multiple of 16 of the depth, elements are finite.
    Shared(Rows),
}

/// Rows of a tile in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// Address of the first.
    pub base: Reg,
    /// Elements from one to the next.
    pub pitch: usize,
}

/// Elements from one row of a tile to the next, for rows of which a product reads so many: 4 more than a multiple of 8, so
/// that the eight rows by four elements of a fragment are in different banks.
pub(crate) fn operand_pitch(elements: usize) -> usize {
    elements.next_multiple_of(DEPTH) + 4
}

/// The same for rows with so many elements that are only results: 8 more than a multiple of 16, so that the four rows by
/// four pairs that half a warp stores are in different banks.
pub(crate) fn result_pitch(elements: usize) -> usize {
    (elements + 8).next_multiple_of(16) - 8
}

/// The address of element `count * each` of a buffer.
pub(crate) fn element(code: &mut Code, buffer: Reg, count: Reg, each: Reg) -> Reg {
    let elements = code.d("mul.wide.u32", &[&count, &each]);
    let bytes = code.d("shl.b64", &[&elements, &2]);
    code.d("add.u64", &[&buffer, &bytes])
}

/// Four sums for each tile of a warp.
pub(crate) struct Sums(Vec<[Reg; 4]>);

/// Writes products of tiles.
pub(crate) struct Product<'c> {
    code: &'c mut Code,
    precision: Precision,
    /// Address of the shared memory for slices.
    staging: Reg,
    thread: Reg,
    /// The row and column in a tile of 8 by 4 that is this lane's in a fragment.
    group: Reg,
    within: Reg,
    /// The row and the column of its warp's part of the tile.
    row: Reg,
    column: Reg,
}

impl<'c> Product<'c> {
    /// For the threads of a block, with `STAGING` bytes of shared memory.
    pub fn new(code: &'c mut Code, precision: Precision, thread: Reg, staging: Reg) -> Self {
        let lane = code.u("and.b32", &[&thread, &31]);
        let warp = code.u("shr.u32", &[&thread, &5]);
        let (group, within) = (code.u("shr.u32", &[&lane, &2]), code.u("and.b32", &[&lane, &3]));
        let (down, across) = (code.u("div.u32", &[&warp, &WARPS_ACROSS]), code.u("rem.u32", &[&warp, &WARPS_ACROSS]));
        let row = code.u("mul.lo.u32", &[&down, &(16 * WARP_TILES.0)]);
        let column = code.u("mul.lo.u32", &[&across, &(8 * WARP_TILES.1)]);
        Self { code, precision, staging, thread, group, within, row, column }
    }

    /// Multiplies over the depth from `first` to before `last`. All threads of the block are done with the memory of the
    /// slices, and with what is read, when it is complete and they have met once more.
    pub fn multiply(&mut self, a: &Left, b: &Memory, first: Reg, last: Reg) -> Sums {
        let code = &mut *self.code;
        let sums: Vec<[Reg; 4]> = (0..WARP_TILES.0 * WARP_TILES.1)
            .map(|_| std::array::from_fn(|_| code.f("mov.f32", &[&Val::ZERO])))
            .collect();
        // Matrix units take a row and a column of eight from each four lanes, and a fourth of the depth; otherwise a lane
        // needs the rows and columns of its own sums, and all of the depth.
        let exact = self.precision == Precision::F32;
        let row = code.u("add.u32", &[&self.row, &self.group]);
        let column = match exact {
            true => code.u("mad.lo.u32", &[&self.within, &2, &self.column]),
            false => code.u("add.u32", &[&self.column, &self.group]),
        };
        let depth = (!exact).then_some(self.within);
        let own_b = self.own(Form::of(b), column, depth, 4 * SLICE);
        let own_a = match a {
            Left::Memory(memory) => self.own(Form::of(memory), row, depth, 0),
            Left::Shared(rows) => {
                let own = self.own(Form::Rows(rows.pitch), row, depth, 0);
                Own { at: own.at.iter().map(|at| self.code.u("add.u32", &[at, &rows.base])).collect(), ..own }
            }
        };
        // Slices on their way.
        let code = &mut *self.code;
        let (load, used) = (code.u("mov.u32", &[&first]), code.u("mov.u32", &[&first]));
        let (load_at, used_at) = (code.u("mov.u32", &[&self.staging]), code.u("mov.u32", &[&self.staging]));
        for _ in 0..STAGES - 1 {
            self.copy(a, b, last, load, load_at);
        }
        let (again, done) = (self.code.label(), self.code.label());
        self.code.place(again);
        let end = self.code.p("setp.ge.u32", &[&used, &last]);
        self.code.jump_if(end, done);
        self.code.line(format_args!("cp.async.wait_group {};", STAGES - 2));
        // The slice has arrived for all, and all are done with the one before, whose place the next takes.
        self.code.line("bar.sync 0;");
        self.copy(a, b, last, load, load_at);
        let now = |code: &mut Code, own: &Own| match own.form {
            Form::Rows(_) => own.clone(),
            form => Own { at: own.at.iter().map(|at| code.u("add.u32", &[at, &used_at])).collect(), form },
        };
        let (here_a, here_b) = (now(self.code, &own_a), now(self.code, &own_b));
        match exact {
            true => self.multiply_exactly(&sums, &here_a, &here_b),
            false => self.multiply_fragments(&sums, &here_a, &here_b),
        }
        if let Form::Rows(_) = own_a.form {
            own_a.at.iter().for_each(|&at| self.code.set(at, "add.u32", &[&at, &(4 * DEPTH)]));
        }
        self.code.set(used, "add.u32", &[&used, &DEPTH]);
        self.advance(used_at);
        self.code.jump(again);
        self.code.place(done);
        self.code.line("cp.async.wait_all;");
        Sums(sums)
    }

    /// The next slice, in a ring.
    fn advance(&mut self, at: Reg) {
        let slice = 4 * 2 * SLICE;
        self.code.set(at, "add.u32", &[&at, &slice]);
        let end = self.code.u("add.u32", &[&self.staging, &(STAGES * slice)]);
        let round = self.code.p("setp.eq.u32", &[&at, &end]);
        self.code.set(at, "selp.u32", &[&self.staging, &at, &round]);
    }

    /// Copies the next slice of what is in global memory.
    fn copy(&mut self, a: &Left, b: &Memory, last: Reg, load: Reg, at: Reg) {
        if let Left::Memory(a) = a {
            self.copy_side(a, last, load, at);
        }
        let to = self.code.u("add.u32", &[&at, &(4 * SLICE)]);
        self.copy_side(b, last, load, to);
        self.code.line("cp.async.commit_group;");
        self.code.set(load, "add.u32", &[&load, &DEPTH]);
        self.advance(at);
    }

    fn copy_side(&mut self, side: &Memory, last: Reg, depth0: Reg, to: Reg) {
        let code = &mut *self.code;
        let vector = if side.aligned { 4 } else { 1 };
        // Lines of memory, and elements of each: what they are numbered from, and end before.
        let len = if side.deep { DEPTH } else { TILE };
        let (line0, lines_end, element0, elements_end) = match side.deep {
            true => (side.first, side.extent, depth0, last),
            false => (depth0, last, side.first, side.extent),
        };
        let chunks = len / vector;
        for copy in 0..TILE * DEPTH / vector / THREADS {
            let number = code.u("add.u32", &[&self.thread, &(copy * THREADS)]);
            let (line, chunk) = (code.u("div.u32", &[&number, &chunks]), code.u("rem.u32", &[&number, &chunks]));
            let element = code.u("mul.lo.u32", &[&chunk, &vector]);
            let own = match side.deep {
                true => {
                    // Lines change places with the chunks of their neighbours: see `fragments`.
                    let (four, one) = (code.u("div.u32", &[&element, &4]), code.u("rem.u32", &[&element, &4]));
                    let turn = code.u("shr.u32", &[&line, &1]);
                    let turn = code.u("and.b32", &[&turn, &3]);
                    let four = code.u("xor.b32", &[&four, &turn]);
                    let at = code.u("mad.lo.u32", &[&four, &4, &one]);
                    code.u("mad.lo.u32", &[&line, &DEPTH, &at])
                }
                false => code.u("mad.lo.u32", &[&line, &WIDE_PITCH, &element]),
            };
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

    /// Where this lane's elements lie in a slice that begins at `offset`, from a row or column on; with `depth`, this lane's
    /// element of four.
    ///
    /// A slice with contiguous depth has rows of four chunks of 16 bytes. Chunk `c` of row `r` is at `c xor (r / 2 mod 4)`:
    /// eight rows of a fragment, of which each has four elements of a chunk, then lie in different banks, and so do the
    /// chunks of two rows that eight threads copy. There is an address for each chunk.
    fn own(&mut self, form: Form, index: Reg, depth: Option<Reg>, offset: usize) -> Own {
        let code = &mut *self.code;
        let depth = depth.unwrap_or_else(|| code.u("mov.u32", &[&0]));
        let at = match form {
            Form::Wide => {
                let at = code.u("mad.lo.u32", &[&depth, &WIDE_PITCH, &index]);
                vec![code.u("mad.lo.u32", &[&at, &4, &offset])]
            }
            Form::Rows(pitch) => {
                let at = code.u("mad.lo.u32", &[&index, &pitch, &depth]);
                vec![code.u("mad.lo.u32", &[&at, &4, &offset])]
            }
            Form::Deep => {
                let turn = code.u("shr.u32", &[&index, &1]);
                let turn = code.u("and.b32", &[&turn, &3]);
                let row = code.u("mad.lo.u32", &[&index, &DEPTH, &depth]);
                let row = code.u("mad.lo.u32", &[&row, &4, &offset]);
                (0..DEPTH / 4)
                    .map(|chunk| {
                        let chunk = code.u("xor.b32", &[&turn, &chunk]);
                        code.u("mad.lo.u32", &[&chunk, &16, &row])
                    })
                    .collect()
            }
        };
        Own { at, form }
    }

    /// A slice on matrix units. Which parts of the depth a lane has does not matter, as long as they are the same of both
    /// operands: lane `t` of four has `t`, `t + 4`, `t + 8` and `t + 12` for all kinds of numbers.
    fn multiply_fragments(&mut self, sums: &[[Reg; 4]], a: &Own, b: &Own) {
        let halves = match self.precision {
            Precision::Bf16 => vec![[0, 4, 8, 12].as_slice()],
            Precision::F32 | Precision::Tf32x3 | Precision::Tf32 => vec![[0, 4].as_slice(), [8, 12].as_slice()],
        };
        for depths in halves {
            let mut load = |own: &Own, index: usize| -> Vec<Reg> {
                depths.iter().map(|&depth| own.load(self.code, index, depth)).collect()
            };
            // Of each tile the upper and the lower eight rows.
            let a: Vec<[Vec<Reg>; 2]> =
                (0..WARP_TILES.0).map(|tile| [0, 8].map(|row| load(a, 16 * tile + row))).collect();
            let b: Vec<Vec<Reg>> = (0..WARP_TILES.1).map(|tile| load(b, 8 * tile)).collect();
            if self.precision == Precision::Bf16 {
                let mut pairs = |numbers: &[Reg]| -> Vec<Reg> {
                    let pair = |pair: &[Reg]| self.code.op(Class::U32, "cvt.rn.bf16x2.f32", &[&pair[1], &pair[0]]);
                    numbers.chunks(2).map(pair).collect()
                };
                let a: Vec<Vec<Reg>> = a.iter().map(|[top, low]| by_turns(&pairs(top), &pairs(low))).collect();
                let b: Vec<Vec<Reg>> = b.iter().map(|b| pairs(b)).collect();
                self.mma("m16n8k16.row.col.f32.bf16.bf16.f32", sums, &a, &b);
                continue;
            }
            let a: Vec<Vec<Reg>> = a.iter().map(|[top, low]| by_turns(top, low)).collect();
            let ((large_a, rest_a), (large_b, rest_b)) = (self.round(&a), self.round(&b));
            const KIND: &str = "m16n8k8.row.col.f32.tf32.tf32.f32";
            if self.precision == Precision::Tf32x3 {
                // The small products first.
                let ((small_a, _), (small_b, _)) = (self.round(&rest_a), self.round(&rest_b));
                self.mma(KIND, sums, &small_a, &large_b);
                self.mma(KIND, sums, &large_a, &small_b);
            }
            self.mma(KIND, sums, &large_a, &large_b);
        }
    }

    /// Numbers rounded to TF32, and where they are taken apart, what that leaves.
    fn round(&mut self, numbers: &[Vec<Reg>]) -> (Vec<Vec<Reg>>, Vec<Vec<Reg>>) {
        let apart = self.precision == Precision::Tf32x3;
        let code = &mut *self.code;
        let mut rest = vec![];
        let mut large = vec![];
        for numbers in numbers {
            let rounded: Vec<Reg> =
                numbers.iter().map(|number| code.op(Class::U32, "cvt.rna.tf32.f32", &[number])).collect();
            let left = numbers.iter().zip(&rounded).filter(|_| apart).map(|(number, rounded)| {
                let as_float = code.f("mov.b32", &[rounded]);
                code.f("sub.rn.f32", &[number, &as_float])
            });
            rest.push(left.collect());
            large.push(rounded);
        }
        (large, rest)
    }

    fn mma(&mut self, kind: &str, sums: &[[Reg; 4]], a: &[Vec<Reg>], b: &[Vec<Reg>]) {
        let list = |regs: &[Reg]| regs.iter().map(Reg::to_string).collect::<Vec<_>>().join(", ");
        for (i, a) in a.iter().enumerate() {
            for (j, b) in b.iter().enumerate() {
                let (a, b, sums) = (list(a), list(b), list(&sums[i * WARP_TILES.1 + j]));
                self.code.line(format_args!("mma.sync.aligned.{kind} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};"));
            }
        }
    }

    /// A slice by ordinary arithmetic.
    fn multiply_exactly(&mut self, sums: &[[Reg; 4]], a: &Own, b: &Own) {
        for depth in 0..DEPTH {
            let mut load = |own: &Own, index: usize| own.load(self.code, index, depth);
            let a: Vec<[Reg; 2]> = (0..WARP_TILES.0).map(|tile| [0, 8].map(|row| load(a, 16 * tile + row))).collect();
            let b: Vec<[Reg; 2]> =
                (0..WARP_TILES.1).map(|tile| [0, 1].map(|column| load(b, 8 * tile + column))).collect();
            for (tile, sums) in sums.iter().enumerate() {
                let (a, b) = (&a[tile / WARP_TILES.1], &b[tile % WARP_TILES.1]);
                for (element, &sum) in sums.iter().enumerate() {
                    self.code.set(sum, "fma.rn.f32", &[&a[element / 2], &b[element % 2], &sum]);
                }
            }
        }
    }

    /// Stores the tile in global memory, where rows and columns are below their ends.
    pub fn write(&mut self, sums: &Sums, to: &Target) {
        let at = |code: &mut Code, row: Reg, column: Reg| {
            let wide = code.d("cvt.u64.u32", &[&column]);
            let at = code.d("mad.wide.u32", &[&row, &to.pitch, &wide]);
            let at = code.d("shl.b64", &[&at, &2]);
            code.d("add.u64", &[&at, &to.base])
        };
        self.each_pair(
            sums,
            (to.row, Some(to.rows)),
            (to.column, to.columns),
            to.even,
            |code, row, column, there, sums| {
                let at = at(code, row, column);
                match sums {
                    [one] => code.line(format_args!("@{there} st.global.f32 [{at}], {one};")),
                    [one, two, ..] => code.line(format_args!("@{there} st.global.v2.f32 [{at}], {{{one}, {two}}};")),
                    [] => {}
                }
            },
        );
    }

    /// Stores the tile in shared memory, from a column on, where columns are below their end. With `even`, columns and
    /// their end are even.
    pub fn write_shared(&mut self, sums: &Sums, to: Rows, column: Reg, columns: Reg, even: bool) {
        let zero = self.code.u("mov.u32", &[&0]);
        self.each_pair(sums, (zero, None), (column, columns), even, |code, row, column, there, sums| {
            let at = code.u("mad.lo.u32", &[&row, &to.pitch, &column]);
            let at = code.u("mad.lo.u32", &[&at, &4, &to.base]);
            match sums {
                [one] => code.line(format_args!("@{there} st.shared.f32 [{at}], {one};")),
                [one, two, ..] => code.line(format_args!("@{there} st.shared.v2.f32 [{at}], {{{one}, {two}}};")),
                [] => {}
            }
        });
    }

    /// Goes through the sums of this lane: one by one, or where columns are `even`, two that are side by side.
    fn each_pair(
        &mut self,
        sums: &Sums,
        (row0, rows): (Reg, Option<Reg>),
        (column0, columns): (Reg, Reg),
        even: bool,
        mut store: impl FnMut(&mut Code, Reg, Reg, Reg, &[Reg]),
    ) {
        let code = &mut *self.code;
        let row = code.u("add.u32", &[&self.row, &self.group]);
        let row = code.u("add.u32", &[&row, &row0]);
        let column = code.u("mad.lo.u32", &[&self.within, &2, &self.column]);
        let column = code.u("add.u32", &[&column, &column0]);
        for i in 0..WARP_TILES.0 {
            for half in 0..2 {
                let row = code.u("add.u32", &[&row, &(16 * i + 8 * half)]);
                let inside = rows.map(|rows| code.p("setp.lt.u32", &[&row, &rows]));
                for j in 0..WARP_TILES.1 {
                    let sums = &sums.0[i * WARP_TILES.1 + j][2 * half..2 * half + 2];
                    let each = if even { 2 } else { 1 };
                    for (right, sums) in sums.chunks(each).enumerate() {
                        let column = code.u("add.u32", &[&column, &(8 * j + right)]);
                        let there = match inside {
                            Some(inside) => code.p("setp.lt.and.u32", &[&column, &columns, &inside]),
                            None => code.p("setp.lt.u32", &[&column, &columns]),
                        };
                        store(code, row, column, there, sums);
                    }
                }
            }
        }
    }
}

/// How an operand lies in shared memory.
#[derive(Clone, Copy)]
enum Form {
    /// A slice with contiguous depth, of which chunks have changed places: see [`Product::own`].
    Deep,
    /// A slice with contiguous rows or columns.
    Wide,
    /// Rows at this distance.
    Rows(usize),
}

impl Form {
    /// Of a slice.
    fn of(memory: &Memory) -> Self {
        if memory.deep { Form::Deep } else { Form::Wide }
    }
}

/// This lane's elements of an operand.
#[derive(Clone)]
struct Own {
    /// Addresses: one, or one for each four of the depth.
    at: Vec<Reg>,
    form: Form,
}

impl Own {
    /// Loads one: `index` and `depth` are what is added to those of the lane.
    fn load(&self, code: &mut Code, index: usize, depth: usize) -> Reg {
        let (at, elements) = match self.form {
            Form::Deep => (self.at[depth / 4], index * DEPTH + depth % 4),
            Form::Wide => (self.at[0], depth * WIDE_PITCH + index),
            Form::Rows(pitch) => (self.at[0], index * pitch + depth),
        };
        code.f("ld.shared.f32", &[&format_args!("[{at}+{}]", 4 * elements)])
    }
}

/// One of the first, one of the second, and so on.
fn by_turns(first: &[Reg], second: &[Reg]) -> Vec<Reg> {
    first.iter().zip(second).flat_map(|(&first, &second)| [first, second]).collect()
}

/// Where a tile goes in global memory.
pub(crate) struct Target {
    /// Address of the first element of the result.
    pub base: Reg,
    /// Elements from one row to the next.
    pub pitch: Reg,
    /// Are columns, their number and the pitch even?
    pub even: bool,
    /// The first row of the tile, and rows of the result.
    pub row: Reg,
    pub rows: Reg,
    /// The first column of the tile, and columns of the result.
    pub column: Reg,
    pub columns: Reg,
}
