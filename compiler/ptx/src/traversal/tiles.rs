//! Rows with dense products, 64 at a time.
//!
//! A product with a weight is work for the whole block, on tensor cores (`tile`); all else that rows compute is work
//! for their teams. So instructions are divided into *segments*: in each, teams go through the rows of the tile and
//! compute what needs no product of this segment or a later one; then the block computes the products. What a product
//! reads or makes, and what a later segment reads, is kept in shared memory for all rows of the tile. An operand of a
//! product that is a row of global memory is streamed from there, however long.
//!
//! So the results of a product, such as projected features, get their bias, activation and attention scores before they
//! go to memory, and what leads to the operand of a product needs no memory at all.

use std::collections::HashMap;

use hgnnc_ir::Space;
use hgnnc_kernel_ir::kernel::{
    Buffer, Dest, Extents, Index, Instr, KernelOp, Operand, Program, Rows, Source, Traversal,
};

use super::def_use::DefUse;
use super::operands::Loads;
use super::{BLOCK_BITS, Emit, Held, Regs, Result, Shared, Value};
use crate::KernelInfo;
use crate::Slot;
use crate::code::Code;
use crate::isa::{Body, Class, Opcode, Reg, Region, StateSpace, Symbol, Type, Val};
use crate::tile::{self, Left, Memory, Product, STAGING, TILE};

/// Shared memory for the rows of a tile, at most: with the slices of products there are
/// two blocks on each multiprocessor.
const MOST_BYTES: usize = 80 * 1024;
/// Traversals whose weights have at most this many elements multiply by teams: a tile would be mostly padding.
const MOST_IN_ROWS: usize = 1024;
/// Lanes of a team at least, as a power of two: no more teams than rows of a tile.
pub(super) const LEAST_LANES: u32 = BLOCK_BITS - TILE.trailing_zeros();

/// How a traversal is computed tile by tile.
pub(super) struct Tiles {
    segments: Vec<Segment>,
    /// The place that keeps the result of an instruction.
    places: HashMap<usize, Place>,
    /// The place of a product's operand that is kept nowhere else.
    operands: HashMap<usize, Place>,
    /// Bytes of all places.
    bytes: usize,
}

/// Instructions between the products of two segments, by position.
#[derive(Default)]
struct Segment {
    /// Products of the segment before that are stored.
    arrived: Vec<usize>,
    rows: Vec<usize>,
    /// Instructions whose results are stored last, since their memory is read until then.
    late: Vec<usize>,
    /// Products once all rows are done.
    products: Vec<usize>,
}

/// Rows of a tile in shared memory.
#[derive(Clone, Copy)]
struct Place {
    /// Bytes of the places before it.
    offset: usize,
    /// Elements of a row.
    width: usize,
    /// Elements that products read of a row, beyond which there is nothing but zeros.
    read: usize,
}

impl Place {
    fn pitch(self) -> usize {
        match self.read {
            0 => tile::result_pitch(self.width),
            read => tile::operand_pitch(self.width.max(read)),
        }
    }
}

/// A product with a weight in memory.
struct Weighted<'a> {
    of: &'a Extents,
    x: Operand,
    w: Buffer,
    transposed: bool,
}

fn weighted(instr: &Instr) -> Option<Weighted<'_>> {
    let (of, x, w, transposed) = match &instr.op {
        KernelOp::MatMul(of, x, w) => (of, *x, *w, false),
        KernelOp::MatMulT(of, x, w) => (of, *x, *w, true),
        _ => return None,
    };
    match (w.source, w.index) {
        (Source::Buffer(w), Index::Uniform) => Some(Weighted { of, x, w, transposed }),
        _ => None,
    }
}

impl Weighted<'_> {
    /// Elements of a row of the operand, and of the result, that a matrix of the batch has.
    fn inner(&self) -> &hgnnc_ir::width::Width {
        if self.transposed { &self.of.n } else { &self.of.k }
    }

    fn outer(&self) -> Option<usize> {
        if self.transposed { self.of.k.as_fixed() } else { self.of.n.as_fixed() }
    }

    /// The buffer whose rows are the operand, if they are in memory before the kernel begins.
    fn streamed(&self, program: &Program, def_use: &DefUse) -> Option<Buffer> {
        let Source::Buffer(buffer) = self.x.source else { return None };
        let ends = matches!(program.buffer(buffer).ty.space, Space::Endpoints(..));
        (self.x.index == Index::Own && !ends && def_use.producer_of(buffer).is_none()).then_some(buffer)
    }
}

/// The operands of instructions that are read from registers or from their places, rather than streamed.
pub(super) fn read_by_teams(program: &Program, def_use: &DefUse, instr: &Instr) -> impl Iterator<Item = Operand> {
    let streamed =
        weighted(instr).filter(|product| product.streamed(program, def_use).is_some()).map(|product| product.x);
    instr.op.operands().into_iter().filter(move |operand| Some(*operand) != streamed)
}

/// How a traversal with dense products is computed; `None`: row by row.
pub(super) fn plan(cx: Shared<'_>, traversal: &Traversal, def_use: &DefUse) -> Option<Tiles> {
    let program = cx.program;
    let instrs = &traversal.instrs;
    let is_large = |instr: &Instr| match &instr.op {
        KernelOp::MatMul(of, ..) | KernelOp::MatMulT(of, ..) => {
            of.all().as_fixed().is_none_or(|elements| elements > MOST_IN_ROWS)
        }
        _ => false,
    };
    if !matches!(traversal.rows, Rows::Vertices(_) | Rows::Each(_)) || !instrs.iter().any(is_large) {
        return None;
    }
    let locals = Program::local_widths(traversal);
    let order = Order::new(cx.homes, traversal, def_use);
    let (mut places, mut operands) = (HashMap::new(), HashMap::new());
    for (index, instr) in instrs.iter().enumerate() {
        if is_product(instr) || order.is_kept(index) {
            places.insert(index, Place { offset: 0, width: instr.width.as_fixed()?, read: 0 });
        }
    }
    for (index, instr) in instrs.iter().enumerate().filter(|(_, instr)| is_product(instr)) {
        let product = weighted(instr).filter(|product| def_use.producer_of(product.w).is_none())?;
        let (_, batch) = (product.outer()?, product.of.batch.as_fixed()?);
        if product.streamed(program, def_use).is_some() {
            continue;
        }
        // Products of a batch lie side by side, and each reads up to a multiple of the depth of a slice.
        let inner = product.inner().as_fixed()?;
        let read = (batch - 1) * inner + inner.next_multiple_of(tile::DEPTH);
        let place = match def_use.producer(product.x) {
            Some(maker) => places.get_mut(&maker)?,
            None => {
                let width = program.operand_width(&traversal.rows, &locals, product.x)?.as_fixed()?;
                operands.entry(index).or_insert(Place { offset: 0, width, read: 0 })
            }
        };
        place.read = place.read.max(read);
    }
    let mut bytes = 0;
    for index in 0..instrs.len() {
        for place in places.get_mut(&index).into_iter().chain(operands.get_mut(&index)) {
            place.offset = bytes;
            bytes += 4 * TILE * place.pitch();
        }
    }
    (bytes <= MOST_BYTES).then(|| Tiles { segments: order.segments(), places, operands, bytes })
}

fn is_product(instr: &Instr) -> bool {
    matches!(instr.op, KernelOp::MatMul(..) | KernelOp::MatMulT(..))
}

/// In which segment instructions are executed.
struct Order<'a> {
    homes: &'a [Buffer],
    traversal: &'a Traversal,
    def_use: &'a DefUse,
    segment: Vec<usize>,
    /// The readers of each instruction's result.
    users: Vec<Vec<usize>>,
}

impl<'a> Order<'a> {
    fn new(homes: &'a [Buffer], traversal: &'a Traversal, def_use: &'a DefUse) -> Self {
        let instrs = &traversal.instrs;
        let mut segment = vec![0; instrs.len()];
        let mut users = vec![vec![]; instrs.len()];
        for (index, instr) in instrs.iter().enumerate() {
            let operands = instr.op.operands().into_iter();
            for maker in operands.filter_map(|operand| def_use.producer(operand)).filter(|&maker| maker < index) {
                segment[index] = segment[index].max(segment[maker] + usize::from(is_product(&instrs[maker])));
                users[maker].push(index);
            }
        }
        // Instructions that need no product are executed where they are first read, so their results need not be kept.
        for index in (0..instrs.len()).rev() {
            let instr = &instrs[index];
            let free = segment[index] == 0 && !is_product(instr) && !instr.op.is_total();
            if let (true, Dest::Local(_)) = (free, instr.dest) {
                segment[index] = users[index].iter().map(|&user| segment[user]).min().unwrap_or(0);
            }
        }
        Self { homes, traversal, def_use, segment, users }
    }

    /// The segment in which the result of an instruction is in registers.
    fn arrives(&self, index: usize) -> usize {
        self.segment[index] + usize::from(is_product(&self.traversal.instrs[index]))
    }

    fn count(&self) -> usize {
        (0..self.segment.len()).map(|index| self.arrives(index) + 1).max().unwrap_or(0)
    }

    /// Is the result of an instruction stored in the place of something that is read in a later segment, or the same
    /// one before it is in registers? Then it is stored at the end.
    fn is_late(&self, index: usize) -> bool {
        let instrs = &self.traversal.instrs;
        let Dest::Buffer(buffer) = instrs[index].dest else { return false };
        if instrs[index].op.is_total() {
            return false;
        }
        let product = is_product(&instrs[index]);
        self.def_use.readers_of_place(self.homes[buffer.index()], buffer).any(|reader| {
            let after = match product {
                // It is stored before anything else is computed in its segment.
                true => self.segment[reader] >= self.arrives(index),
                false => self.segment[reader] > self.segment[index] || is_product(&instrs[reader]),
            };
            let after = after && self.segment[reader] >= self.segment[index];
            after && reader != index
        })
    }

    /// Is what an instruction of rows makes read when it is no longer in registers?
    fn is_kept(&self, index: usize) -> bool {
        let instrs = &self.traversal.instrs;
        let later = |&user: &usize| is_product(&instrs[user]) || self.segment[user] > self.segment[index];
        let last = self.segment[index] + 1 == self.count();
        !instrs[index].op.is_total() && (self.users[index].iter().any(later) || (self.is_late(index) && !last))
    }

    fn segments(&self) -> Vec<Segment> {
        let instrs = &self.traversal.instrs;
        let mut segments: Vec<Segment> = (0..self.count()).map(|_| Segment::default()).collect();
        let last = segments.len() - 1;
        for (index, instr) in instrs.iter().enumerate() {
            let segment = self.segment[index];
            let late = self.is_late(index) && (is_product(instr) || segment != last);
            if late {
                segments[last].late.push(index);
            }
            match is_product(instr) {
                true => {
                    segments[segment].products.push(index);
                    if !late && matches!(instr.dest, Dest::Buffer(_)) {
                        segments[segment + 1].arrived.push(index);
                    }
                }
                false => segments[segment].rows.push(index),
            }
        }
        segments
    }
}

impl Emit<'_> {
    /// Writes the kernel, 64 rows at a time.
    pub(super) fn kernel_in_tiles(mut self, tiles: Tiles) -> Result<(Body, KernelInfo)> {
        self.begin();
        let (thread, memory) = (self.thread, self.code.fresh(Class::U32));
        self.code.first(|code| {
            code.assign(memory, Symbol::Shared);
            code.increase(memory, Region::Tiles);
        });
        self.clear_unread(&tiles, memory);
        let rows = self.entry32(Slot::Rows(self.traversal.rows.clone()));
        let blocks = self.entry32(Slot::Blocks(self.kernel));
        let (first, stride) = (self.code.mul(Reg::BLOCK, TILE), self.code.fresh(Class::U32));
        self.code.set(stride, Opcode::Mul(Type::U32), (blocks, TILE));
        let (next, done) = (self.code.label(), self.code.label());
        self.code.place(next);
        let end = self.code.ge(first, rows);
        self.code.jump_if(end, done);
        let lanes = self.shape.lanes;
        let team = self.code.first(|code| code.shr(thread, lanes));
        self.tile.plan = Some(tiles);
        let count = self.tiles().segments.len();
        for number in 0..count {
            self.segment_rows(number, (first, rows), team, memory)?;
            for product in self.tiles().segments[number].products.clone() {
                self.tile_product(product, (first, rows), memory)?;
            }
        }
        // Teams have read all that the next rows take the place of.
        self.code.block_sync();
        self.code.increase(first, stride);
        self.code.jump(next);
        self.code.place(done);
        self.forget_rows();
        self.tile.row = None;
        if !self.hoists {
            self.entries.clear();
            self.bases.clear();
        }
        let totals = self.write_totals(false)?;
        self.finish(TILE, false, totals)
    }

    fn tiles(&self) -> &Tiles {
        self.tile.plan.as_ref().expect("rows are computed in tiles")
    }

    /// Elements that products read beyond those of a row are 0.
    fn clear_unread(&mut self, tiles: &Tiles, memory: Reg) {
        let thread = self.thread;
        let mut places: Vec<Place> = tiles.places.values().chain(tiles.operands.values()).copied().collect();
        places.sort_by_key(|place| place.offset);
        self.code.first(|code| {
            for place in places.into_iter().filter(|place| place.read > place.width) {
                let own = code.lt(thread, TILE);
                let row = code.mad(thread, 4 * place.pitch(), memory);
                for element in place.width..place.read {
                    let at = place.offset + STAGING + 4 * element;
                    code.store(Some(own), StateSpace::Shared, (row, at), Val::ZERO);
                }
            }
        });
    }

    /// Forgets registers of the previous loop over rows, which the next loop must not use.
    fn forget_rows(&mut self) {
        self.row.forget();
        self.tile.kept.clear();
    }

    /// Teams go through the rows of the tile.
    fn segment_rows(&mut self, number: usize, (first, rows): (Reg, Reg), team: Reg, memory: Reg) -> Result<()> {
        let Segment { arrived, rows: instrs, late, products } = &self.tiles().segments[number];
        let (arrived, instrs, late) = (arrived.clone(), instrs.clone(), late.clone());
        let operands: Vec<usize> =
            products.iter().copied().filter(|product| self.tiles().operands.contains_key(product)).collect();
        if arrived.is_empty() && instrs.is_empty() && late.is_empty() && operands.is_empty() {
            return Ok(());
        }
        self.forget_rows();
        let row = self.code.mov(team);
        let again = self.code.label();
        self.code.place(again);
        self.tile.row = Some((row, memory));
        self.code.set(self.row.number, Opcode::Add(Type::U32), (first, row));
        let valid = self.code.lt(self.row.number, rows);
        // A team without a row takes the first row of the tile.
        self.code.set(self.row.number, Opcode::Selp(Type::U32), (self.row.number, first, valid));
        self.row.valid = Some(valid);
        self.vertex_of_row();
        for index in arrived {
            self.store_kept(index)?;
        }
        for index in instrs {
            self.row_instr(index)?;
            if let (Some(place), Some(value)) =
                (self.tiles().places.get(&index).copied(), self.row.values[index].clone())
            {
                match value {
                    Value::One(held) => self.put(place, 0, &held),
                    Value::Parts(parts) => parts.iter().for_each(|(start, held)| self.put(place, *start, held)),
                }
            }
        }
        for product in operands {
            let place = self.tiles().operands[&product];
            let Some(Weighted { x, .. }) = weighted(&self.traversal.instrs[product]) else { continue };
            let (layout, positions) = self.layout(&[place.width]).expect("one width makes a chain");
            let regs = self.fetch(x, layout, positions[0])?;
            self.put(place, 0, &Held { layout, position: positions[0], regs });
        }
        for index in late {
            self.store_kept(index)?;
        }
        for (buffer, held) in std::mem::take(&mut self.row.deferred) {
            let row = self.row.number;
            self.store(buffer, row, &held, self.row.valid);
        }
        let per_pass = 1usize << (BLOCK_BITS - self.shape.lanes);
        if per_pass < TILE {
            self.code.increase(row, per_pass);
            let more = self.code.lt(row, TILE);
            self.code.jump_if(more, again);
        }
        if !self.tiles().segments[number].products.is_empty() {
            self.code.block_sync();
        }
        Ok(())
    }

    /// Stores what is kept of an instruction where it goes.
    fn store_kept(&mut self, index: usize) -> Result<()> {
        let instr = &self.traversal.instrs[index];
        let (Dest::Buffer(buffer), Some(place)) = (instr.dest, self.tiles().places.get(&index).copied()) else {
            return Ok(());
        };
        let (layout, positions) = self.layout(&[place.width]).expect("one width makes a chain");
        let operand = Operand { source: Source::Buffer(buffer), index: Index::Own };
        let regs = self.fetch(operand, layout, positions[0])?;
        let row = self.row.number;
        self.store(buffer, row, &Held { layout, position: positions[0], regs }, self.row.valid);
        Ok(())
    }

    /// Does an instruction store its result only at the end of the tile?
    pub(super) fn is_stored_late(&self, index: usize) -> bool {
        let tiles = self.tile.plan.as_ref();
        tiles.and_then(|tiles| tiles.segments.last()).is_some_and(|segment| segment.late.contains(&index))
    }

    /// The place that keeps the row of an operand, if one does.
    fn kept(&self, operand: Operand) -> Option<Place> {
        let own = operand.index == Index::Own || matches!(operand.source, Source::Local(_));
        self.tile.plan.as_ref()?.places.get(&self.producer(operand).filter(|_| own)?).copied()
    }

    /// The address of this team's row of a place.
    fn kept_row(&mut self, place: Place) -> Option<Reg> {
        let (row, memory) = self.tile.row?;
        let known = self.tile.kept.get(&place.offset).copied();
        Some(known.unwrap_or_else(|| {
            let at = self.code.mad(row, 4 * place.pitch(), memory);
            let at = self.code.add(at, STAGING + place.offset);
            self.tile.kept.insert(place.offset, at);
            at
        }))
    }

    /// The address of the kept row of an operand.
    pub(super) fn kept_address(&mut self, operand: Operand) -> Option<Reg> {
        let place = self.kept(operand)?;
        self.kept_row(place)
    }

    /// The elements of an operand that is kept, in a layout.
    pub(super) fn load_kept(&mut self, operand: Operand, layout: usize, position: usize) -> Option<Regs> {
        let row = self.kept_address(operand)?;
        let at = self.own_elements(row, layout, position);
        let how = Loads { space: StateSpace::Shared, guard: None, first: false, scalar: false };
        Some(self.load_slots(at, layout, position, how))
    }

    /// Keeps a value, or the part of one that begins at an element.
    fn put(&mut self, place: Place, start: usize, held: &Held) {
        let Some(row) = self.kept_row(place) else { return };
        let Held { layout, position, ref regs } = *held;
        let at = self.own_elements(row, layout, position);
        let own = self.stores(layout, position, false);
        let vector = self.layouts[layout].vector(position);
        // Parts of values may begin anywhere.
        let vector = if start.is_multiple_of(vector) { vector } else { 1 };
        let slots = self.layouts[layout].slots(position);
        for (chunk, values) in slots.chunks(vector).zip(regs.chunks(vector)) {
            let Some(first) = &chunk[0] else { continue };
            let exists = self.exists(&first.bounds);
            let guard = self.code.both(own, exists);
            let values: Vec<Reg> = values.iter().map(|v| self.reg(v.expect("elements that exist"))).collect();
            self.code.store_vector(guard, StateSpace::Shared, (at, 4 * (start + first.offset)), &values);
        }
    }

    /// The address of this lane's first element, from that of the row.
    fn own_elements(&mut self, row: Reg, layout: usize, position: usize) -> Reg {
        match self.lane_element(layout, position) {
            None => row,
            Some(lane) => self.code.mad(lane, 4, row),
        }
    }

    /// Multiplies the rows of the tile with a weight: all its matrices, all columns of the result.
    fn tile_product(&mut self, index: usize, (first, rows): (Reg, Reg), memory: Reg) -> Result<()> {
        self.comment(index);
        let traversal = self.traversal;
        let Some(product) = weighted(&traversal.instrs[index]) else {
            return self.unsupported("a product whose weight is not in memory");
        };
        let (Some(outer), Some(batches)) = (product.outer(), product.of.batch.as_fixed()) else {
            return self.unsupported("a product whose extents depend on the dataset");
        };
        let inner = match product.inner().as_fixed() {
            Some(fixed) => self.code.mov(fixed),
            None => self.entry32(Slot::Elements(product.inner().clone())),
        };
        let aligned = product.inner().as_fixed().is_some_and(|inner| inner % 4 == 0);
        let (place, weight) = (self.tiles().places[&index], self.entry(Slot::Buffer(product.w)));
        let streamed = match product.streamed(self.program, self.def_use) {
            Some(buffer) => Ok(self.entry(Slot::Buffer(buffer))),
            None => {
                let operand = self.tiles().operands.get(&index).copied();
                Err(operand.or_else(|| self.kept(product.x)).expect("operands that are not streamed are kept"))
            }
        };
        let code = &mut self.code;
        let (outer_reg, zero) = (code.mov(outer), code.mov(0));
        let (batch, column) = (code.mov(0), code.mov(0));
        let staging = memory;
        let (next_batch, next_column) = (code.label(), code.label());
        code.place(next_batch);
        code.place(next_column);
        let in_place = |code: &mut Code, place: Place, element: Reg, by: Reg| {
            let element = code.mul(element, by);
            let at = code.mad(element, 4, memory);
            tile::Rows { base: code.add(at, STAGING + place.offset), pitch: place.pitch() }
        };
        let left = match streamed {
            Ok(base) => {
                let pitch = code.mul(inner, batches);
                let base = tile::element(code, base, batch, inner);
                Left::Memory(Memory { base, pitch, deep: true, first, extent: rows, aligned })
            }
            Err(place) => Left::Shared(in_place(code, place, batch, inner)),
        };
        let elements = code.mul(inner, outer);
        let base = tile::element(code, weight, batch, elements);
        let right = match product.transposed {
            false => Memory {
                base,
                pitch: outer_reg,
                deep: false,
                first: column,
                extent: outer_reg,
                aligned: outer % 4 == 0,
            },
            true => Memory { base, pitch: inner, deep: true, first: column, extent: outer_reg, aligned },
        };
        let to = in_place(code, place, batch, outer_reg);
        let mut multiply = Product::new(code, self.precision, self.thread, staging);
        let sums = multiply.multiply(&left, &right, zero, inner);
        multiply.write_shared(&sums, to, column, outer_reg, outer % 2 == 0);
        // Slices are read, and the result is there.
        code.block_sync();
        if outer > TILE {
            code.increase(column, TILE);
            let more = code.lt(column, outer);
            code.jump_if(more, next_column);
            code.assign(column, 0);
        }
        if batches > 1 {
            code.increase(batch, 1);
            let more = code.lt(batch, batches);
            code.jump_if(more, next_batch);
        }
        Ok(())
    }

    /// Bytes of shared memory for tiles.
    pub(super) fn tile_bytes(&self) -> usize {
        self.tile.plan.as_ref().map_or(0, |tiles| STAGING + tiles.bytes)
    }
}
