//! The product of a tile, by all warps of a block, on tensor cores.
//!
//! A tile of the result is 64 by 64, of which each of the eight warps has 32 by 16 in its registers. Operands in global
//! memory are copied to shared memory in slices of 16 of the depth, in the orientation that they have in memory,
//! asynchronously, two ahead of the one at work. A left operand whose rows the block has computed is in shared memory.
//!
//! Products are `mma.sync` with sums in f32, for a [`Precision`]. So that products of TF32 are as exact as f32, each
//! number is taken apart into two, and three of the four products are added. Matrix units truncate their sums, so those of
//! a slice are added to those of the slices before it by ordinary additions, which round to nearest (Ootomo and Yokota,
//! "Recovering single precision accuracy from tensor cores while surpassing the FP32 theoretical peak performance", 2022).

use crate::code::Code;
use crate::isa::{Address, Cache, Inst, Mma, Opcode, Reg, StateSpace, Type, Val};
use crate::{Precision, THREADS};

pub(crate) use hgnnc_executable::gpu::{DEPTH, TILE};

/// Slices in shared memory.
const STAGES: usize = 3;
/// A slice of an operand whose rows or columns are contiguous: 16 of 64, with 8 unused, so that the 32 reads of a
/// fragment fall on different banks.
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

/// Elements from one row of a tile to the next, for rows of which a product reads so many: 4 more than a multiple of 8,
/// so that the eight rows by four elements of a fragment are in different banks.
pub(crate) fn operand_pitch(elements: usize) -> usize {
    elements.next_multiple_of(DEPTH) + 4
}

/// The same for rows with so many elements that are only results: 8 more than a multiple of 16, so that the four rows
/// by four pairs that half a warp stores are in different banks.
pub(crate) fn result_pitch(elements: usize) -> usize {
    (elements + 8).next_multiple_of(16) - 8
}

/// The address of element `count * each` of a buffer.
pub(crate) fn element(code: &mut Code, buffer: Reg, count: Reg, each: Reg) -> Reg {
    let elements = code.mul_wide(count, each);
    let bytes = code.shl64(elements, 2);
    code.add64(buffer, bytes)
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
        let lane = code.and(thread, 31);
        let warp = code.shr(thread, 5);
        let (group, within) = (code.shr(lane, 2), code.and(lane, 3));
        let (down, across) = (code.div(warp, WARPS_ACROSS), code.rem(warp, WARPS_ACROSS));
        let row = code.mul(down, 16 * WARP_TILES.0);
        let column = code.mul(across, 8 * WARP_TILES.1);
        Self { code, precision, staging, thread, group, within, row, column }
    }

    /// Multiplies over the depth from `first` to before `last`. All threads of the block are done with the memory of
    /// the slices, and with what is read, when it is complete and they have met once more.
    pub fn multiply(&mut self, a: &Left, b: &Memory, first: Reg, last: Reg) -> Sums {
        let code = &mut *self.code;
        let sums: Vec<[Reg; 4]> =
            (0..WARP_TILES.0 * WARP_TILES.1).map(|_| std::array::from_fn(|_| code.mov_f32(Val::ZERO))).collect();
        // Matrix units take a row and a column of eight from each four lanes, and a fourth of the depth; otherwise a
        // lane needs the rows and columns of its own sums, and all of the depth.
        let exact = self.precision == Precision::F32;
        let row = code.add(self.row, self.group);
        let column = match exact {
            true => code.mad(self.within, 2, self.column),
            false => code.add(self.column, self.group),
        };
        let depth = (!exact).then_some(self.within);
        let own_b = self.own(Form::of(b), column, depth, 4 * SLICE);
        let own_a = match a {
            Left::Memory(memory) => self.own(Form::of(memory), row, depth, 0),
            Left::Shared(rows) => {
                let own = self.own(Form::Rows(rows.pitch), row, depth, 0);
                Own { at: own.at.iter().map(|at| self.code.add(at, rows.base)).collect(), ..own }
            }
        };
        // Slices on their way.
        let code = &mut *self.code;
        let (load, used) = (code.mov(first), code.mov(first));
        let (load_at, used_at) = (code.mov(self.staging), code.mov(self.staging));
        for _ in 0..STAGES - 1 {
            self.copy(a, b, last, load, load_at);
        }
        let (again, done) = (self.code.label(), self.code.label());
        self.code.place(again);
        let end = self.code.ge(used, last);
        self.code.jump_if(end, done);
        self.code.effect(Opcode::CpAsyncWaitGroup, (STAGES - 2,));
        // The slice has arrived for all, and all are done with the one before, whose place the next takes.
        self.code.block_sync();
        self.copy(a, b, last, load, load_at);
        let now = |code: &mut Code, own: &Own| match own.form {
            Form::Rows(_) => own.clone(),
            form => Own { at: own.at.iter().map(|at| code.add(at, used_at)).collect(), form },
        };
        let (here_a, here_b) = (now(self.code, &own_a), now(self.code, &own_b));
        match exact {
            true => self.multiply_exactly(&sums, &here_a, &here_b),
            false => self.multiply_fragments(&sums, &here_a, &here_b),
        }
        if let Form::Rows(_) = own_a.form {
            own_a.at.iter().for_each(|&at| self.code.increase(at, 4 * DEPTH));
        }
        self.code.increase(used, DEPTH);
        self.advance(used_at);
        self.code.jump(again);
        self.code.place(done);
        self.code.effect(Opcode::CpAsyncWaitAll, ());
        Sums(sums)
    }

    /// The next slice, in a ring.
    fn advance(&mut self, at: Reg) {
        let slice = 4 * 2 * SLICE;
        self.code.increase(at, slice);
        let end = self.code.add(self.staging, STAGES * slice);
        let round = self.code.eq(at, end);
        self.code.set(at, Opcode::Selp(Type::U32), (self.staging, at, round));
    }

    /// Copies the next slice of what is in global memory.
    fn copy(&mut self, a: &Left, b: &Memory, last: Reg, load: Reg, at: Reg) {
        if let Left::Memory(a) = a {
            self.copy_side(a, last, load, at);
        }
        let to = self.code.add(at, 4 * SLICE);
        self.copy_side(b, last, load, to);
        self.code.effect(Opcode::CpAsyncCommit, ());
        self.code.increase(load, DEPTH);
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
            let number = code.add(self.thread, copy * THREADS);
            let (line, chunk) = (code.div(number, chunks), code.rem(number, chunks));
            let element = code.mul(chunk, vector);
            let own = match side.deep {
                true => {
                    // Lines change places with the chunks of their neighbours: see `fragments`.
                    let (four, one) = (code.div(element, 4), code.rem(element, 4));
                    let turn = code.shr(line, 1);
                    let turn = code.and(turn, 3);
                    let four = code.xor(four, turn);
                    let at = code.mad(four, 4, one);
                    code.mad(line, DEPTH, at)
                }
                false => code.mad(line, WIDE_PITCH, element),
            };
            let own = code.mad(own, 4, to);
            let (line, element) = (code.add(line, line0), code.add(element, element0));
            let there = code.lt(line, lines_end);
            let there = code.lt_and(element, elements_end, there);
            // Elements outside the operand are zero-filled; their address is replaced by that of the first element.
            let bytes = code.selp(4 * vector, 0, there);
            let line = code.selp(line, 0, there);
            let element = code.selp(element, 0, there);
            let wide = code.widen(element);
            let from = code.mad_wide(line, side.pitch, wide);
            let from = code.shl64(from, 2);
            let from = code.add64(from, side.base);
            let cache = if vector == 4 { Cache::Global } else { Cache::All };
            let (own, from) = (Address::from(own), Address::from(from));
            code.effect(Opcode::CpAsync(cache), (own, from, 4 * vector, bytes));
        }
    }

    /// Addresses of this lane's elements in a slice that begins at `offset`, from a row or column on; with `depth`, of
    /// this lane's element of four.
    ///
    /// A slice with contiguous depth has rows of four chunks of 16 bytes. Chunk `c` of row `r` is at
    /// `c xor (r / 2 mod 4)`: eight rows of a fragment, of which each has four elements of a chunk, then lie in
    /// different banks, and so do the chunks of two rows that eight threads copy. There is an address for each chunk.
    fn own(&mut self, form: Form, index: Reg, depth: Option<Reg>, offset: usize) -> Own {
        let code = &mut *self.code;
        let depth = depth.unwrap_or_else(|| code.mov(0));
        let at = match form {
            Form::Wide => {
                let at = code.mad(depth, WIDE_PITCH, index);
                vec![code.mad(at, 4, offset)]
            }
            Form::Rows(pitch) => {
                let at = code.mad(index, pitch, depth);
                vec![code.mad(at, 4, offset)]
            }
            Form::Deep => {
                let turn = code.shr(index, 1);
                let turn = code.and(turn, 3);
                let row = code.mad(index, DEPTH, depth);
                let row = code.mad(row, 4, offset);
                (0..DEPTH / 4)
                    .map(|chunk| {
                        let chunk = code.xor(turn, chunk);
                        code.mad(chunk, 16, row)
                    })
                    .collect()
            }
        };
        Own { at, form }
    }

    /// A slice on matrix units. Which parts of the depth a lane has does not matter, as long as they are the same of
    /// both operands: lane `t` of four has `t`, `t + 4`, `t + 8` and `t + 12` for all kinds of numbers.
    fn multiply_fragments(&mut self, sums: &[[Reg; 4]], a: &Own, b: &Own) {
        let exact = self.precision == Precision::Tf32x3;
        let of_slice: Vec<[Reg; 4]> = match exact {
            true => sums.iter().map(|_| std::array::from_fn(|_| self.code.mov_f32(Val::ZERO))).collect(),
            false => sums.to_vec(),
        };
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
                    let pair = |pair: &[Reg]| self.code.bf16x2(pair[1], pair[0]);
                    numbers.chunks(2).map(pair).collect()
                };
                let a: Vec<Vec<Reg>> = a.iter().map(|[top, low]| by_turns(&pairs(top), &pairs(low))).collect();
                let b: Vec<Vec<Reg>> = b.iter().map(|b| pairs(b)).collect();
                self.mma(Mma::Bf16, &of_slice, &a, &b);
                continue;
            }
            let a: Vec<Vec<Reg>> = a.iter().map(|[top, low]| by_turns(top, low)).collect();
            let ((large_a, rest_a), (large_b, rest_b)) = (self.round(&a), self.round(&b));
            if exact {
                // The small products first.
                let ((small_a, _), (small_b, _)) = (self.round(&rest_a), self.round(&rest_b));
                self.mma(Mma::Tf32, &of_slice, &small_a, &large_b);
                self.mma(Mma::Tf32, &of_slice, &large_a, &small_b);
            }
            self.mma(Mma::Tf32, &of_slice, &large_a, &large_b);
        }
        if exact {
            for (&sum, &part) in sums.iter().flatten().zip(of_slice.iter().flatten()) {
                self.code.set(sum, Opcode::Add(Type::F32), (sum, part));
            }
        }
    }

    /// Numbers rounded to TF32, and where they are taken apart, what that leaves.
    fn round(&mut self, numbers: &[Vec<Reg>]) -> (Vec<Vec<Reg>>, Vec<Vec<Reg>>) {
        let apart = self.precision == Precision::Tf32x3;
        let code = &mut *self.code;
        let mut rest = vec![];
        let mut large = vec![];
        for numbers in numbers {
            let rounded: Vec<Reg> = numbers.iter().map(|number| code.tf32(number)).collect();
            let left = numbers.iter().zip(&rounded).filter(|_| apart).map(|(number, rounded)| {
                let as_float = code.f32_of_bits(rounded);
                code.sub_f32(number, as_float)
            });
            rest.push(left.collect());
            large.push(rounded);
        }
        (large, rest)
    }

    fn mma(&mut self, kind: Mma, sums: &[[Reg; 4]], a: &[Vec<Reg>], b: &[Vec<Reg>]) {
        for (i, a) in a.iter().enumerate() {
            for (j, b) in b.iter().enumerate() {
                let sums = &sums[i * WARP_TILES.1 + j];
                self.code.push(Inst::new(Opcode::Mma(kind), sums, (&a[..], &b[..], sums)));
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
                    self.code.set(sum, Opcode::Mad(Type::F32), (a[element / 2], b[element % 2], sum));
                }
            }
        }
    }

    /// Stores the tile in global memory, where rows and columns are below their ends.
    pub fn write(&mut self, sums: &Sums, to: &Target) {
        let at = |code: &mut Code, row: Reg, column: Reg| {
            let wide = code.widen(column);
            let at = code.mad_wide(row, to.pitch, wide);
            let at = code.shl64(at, 2);
            code.add64(at, to.base)
        };
        self.each_pair(
            sums,
            (to.row, Some(to.rows)),
            (to.column, to.columns),
            to.even,
            |code, row, column, there, sums| {
                let at = at(code, row, column);
                code.store_vector(Some(there), StateSpace::Global, at, sums);
            },
        );
    }

    /// Stores the tile in shared memory, from a column on, where columns are below their end. With `even`, columns and
    /// their end are even.
    pub fn write_shared(&mut self, sums: &Sums, to: Rows, column: Reg, columns: Reg, even: bool) {
        let zero = self.code.mov(0);
        self.each_pair(sums, (zero, None), (column, columns), even, |code, row, column, there, sums| {
            let at = code.mad(row, to.pitch, column);
            let at = code.mad(at, 4, to.base);
            code.store_vector(Some(there), StateSpace::Shared, at, sums);
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
        let row = code.add(self.row, self.group);
        let row = code.add(row, row0);
        let column = code.mad(self.within, 2, self.column);
        let column = code.add(column, column0);
        for i in 0..WARP_TILES.0 {
            for half in 0..2 {
                let row = code.add(row, 16 * i + 8 * half);
                let inside = rows.map(|rows| code.lt(row, rows));
                for j in 0..WARP_TILES.1 {
                    let sums = &sums.0[i * WARP_TILES.1 + j][2 * half..2 * half + 2];
                    let each = if even { 2 } else { 1 };
                    for (right, sums) in sums.chunks(each).enumerate() {
                        let column = code.add(column, 8 * j + right);
                        let there = match inside {
                            Some(inside) => code.lt_and(column, columns, inside),
                            None => code.lt(column, columns),
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
    /// The form of a slice, by its orientation in global memory.
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
        code.load(StateSpace::Shared, (at, 4 * elements))
    }
}

/// One of the first, one of the second, and so on.
fn by_turns(first: &[Reg], second: &[Reg]) -> Vec<Reg> {
    first.iter().zip(second).flat_map(|(&first, &second)| [first, second]).collect()
}

/// The destination of a tile in global memory.
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
