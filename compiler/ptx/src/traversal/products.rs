//! Products of a row or of an edge with a weight.
//!
//! Each lane has its elements of the result and goes through the inner dimension. Weights that no kernel of the launch
//! writes are copied once to the memory of the block, such that elements that lanes multiply with at the same time lie
//! one after another; those of the row are in the memory of the team, or read from where they are stored.

use hgnnc_kernel_ir::kernel::{Extents, Index, Operand, Rows, Source};

use super::operands::Loads;
use super::{BLOCK_BITS, Emit, Held, Regs, Result, Value};
use crate::Slot;
use crate::isa::{Class, Item, Opcode, Reg, Region, StateSpace, Symbol, Type, Val};

/// Bytes of weights that a block has in its memory, at most: so many that eight blocks fit.
const MOST_WEIGHTS: usize = 16 << 10;

/// Elements of weights on their way at a time, for each lane, at most.
const MOST_AHEAD: usize = 32;
/// Elements of a row that is multiplied from where it is stored that each lane loads, at most.
const MOST_STAGED: usize = 16;
/// Steps of the inner dimension at once: the elements of a vector.
const STEPS: usize = 4;

/// The extents of a product: elements of the result, each from `inner` products, `outer` for each of several batches.
#[derive(Clone, Copy)]
struct Product {
    k: usize,
    n: usize,
    width: usize,
    transposed: bool,
    /// Consecutive elements of a lane that are of one batch.
    group: usize,
}

impl Product {
    fn inner(self) -> usize {
        if self.transposed { self.n } else { self.k }
    }

    fn outer(self) -> usize {
        if self.transposed { self.k } else { self.n }
    }

    fn batches(self) -> usize {
        self.width / self.outer()
    }

    /// Elements from one step of the inner dimension to the next in the memory of the block. Of the transposed, such
    /// that lanes that store groups for consecutive steps use different banks.
    fn pitch(self) -> usize {
        let groups = self.outer() / self.group;
        if self.transposed { (groups | 1) * self.group } else { self.outer() }
    }
}

/// The memory that a product reads its weight from.
enum Weight {
    /// In the memory of the block, as [`Emit::weight_in_block`] puts it there: its address.
    Block(Reg),
    /// In the memory of the team: its address.
    Team(Reg),
    /// In global memory, as the operand is stored.
    Stored(Operand),
}

impl Emit<'_> {
    /// `x · w`, or `x · wᵀ`.
    pub(super) fn product(
        &mut self,
        of: &Extents,
        x: Operand,
        w: Operand,
        width: usize,
        transposed: bool,
    ) -> Result<Value> {
        let (Some(k), Some(n)) = (of.k.as_fixed(), of.n.as_fixed()) else {
            return self.unsupported("a product whose extents depend on the dataset");
        };
        let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
        let position = positions[0];
        let vector = self.layouts[layout].vector(position);
        let mut product = Product { k, n, width, transposed, group: 1 };
        if product.outer().is_multiple_of(vector) {
            product.group = vector;
        }
        let (inner, outer) = (product.inner(), product.outer());
        // Operands that lanes look up are put in memory before the loop.
        let weight = match self.weight_in_block(w, product)? {
            Some(base) => Weight::Block(base),
            None if self.produced_value(w).is_some() => Weight::Team(self.stage(w)?),
            None => Weight::Stored(w),
        };
        let staged = if self.is_staged(x)? { Some(self.stage(x)?) } else { None };
        // Steps of the inner dimension whose elements of the row are read at once.
        let aligned = staged.is_some() && !self.shape.scalar_memory() && inner.is_multiple_of(STEPS);
        let steps = if aligned { STEPS } else { 1 };
        // Per group: its sums, the first elements of the row and of the weight that it needs.
        let mut groups: Vec<Option<(Vec<Reg>, Reg, Reg)>> = vec![];
        let slots = self.layouts[layout].slots(position);
        for slots in slots.chunks(product.group) {
            let Some(slot) = &slots[0] else {
                groups.push(None);
                continue;
            };
            let element = self.element(layout, position, slot.offset);
            // Lanes without elements compute some others.
            let element = self.code.min(element, width - product.group);
            let batch = self.code.div(element, outer);
            let within = self.code.rem(element, outer);
            let from_x = self.code.mul(batch, inner);
            let (batch_elements, step) = match &weight {
                Weight::Block(_) => (inner * product.pitch(), 1),
                Weight::Team(_) | Weight::Stored(_) => (k * n, if transposed { n } else { 1 }),
            };
            let block = self.code.mul(batch, batch_elements);
            let from_w = self.code.mad(within, step, block);
            let sums = slots.iter().map(|_| self.code.mov_f32(Val::ZERO)).collect();
            groups.push(Some((sums, from_x, from_w)));
        }
        let counter = self.code.mov(0);
        let again = self.code.label();
        // Some steps at a time, so that loads are on their way together: as many as registers hold, which the assembler
        // would not care about.
        let fits = |ahead: &usize| inner.is_multiple_of(ahead * steps) && ahead * slots.len() <= MOST_AHEAD;
        let ahead = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        self.code.push(Item::NoUnroll);
        self.code.place(again);
        let known = (self.row.known.num_rows(), self.edge.known.num_rows());
        let parts = (0..ahead).flat_map(|part| groups.iter().flatten().map(move |group| (part, group)));
        let mut counters = vec![counter];
        for (part, (sums, from_x, from_w)) in parts {
            if part == counters.len() {
                counters.push(self.code.add(counter, part * steps));
            }
            let counter = counters[part];
            let x_at = self.code.add(from_x, counter);
            let row: Vec<Val> = match staged {
                None => vec![self.gather(x, x_at, None)?],
                Some(base) => {
                    let address = self.code.mad(x_at, 4, base);
                    let how = Loads { space: StateSpace::Shared, guard: None, first: false, scalar: false };
                    self.load_vector((address, 0), steps, None, how).into_iter().map(Val::Reg).collect()
                }
            };
            for (step, x) in row.into_iter().enumerate() {
                let weights = self.weights(&weight, product, *from_w, (counter, step))?;
                for (sum, w) in sums.iter().zip(weights) {
                    self.code.set(*sum, Opcode::Mad(Type::F32), (x, w, sum));
                }
            }
        }
        // Row positions that were looked up in the loop are not known after it.
        self.row.known.forget_rows(known.0);
        self.edge.known.forget_rows(known.1);
        self.code.increase(counter, ahead * steps);
        let more = self.code.lt(counter, inner);
        self.code.jump_if(more, again);
        let mut regs: Regs = vec![];
        for group in groups {
            match group {
                None => regs.extend(vec![None; product.group]),
                Some((sums, ..)) => regs.extend(sums.into_iter().map(|sum| Some(Val::Reg(sum)))),
            }
        }
        Ok(Value::One(Held { layout, position, regs }))
    }

    /// The product of matrices of the same row: each lane has its elements of the result, and goes through the inner
    /// dimension of both operands where they are stored, or in the memory of the team.
    pub(super) fn row_product(
        &mut self,
        extents: (usize, usize, usize),
        a: Operand,
        b: Operand,
        width: usize,
    ) -> Result<Value> {
        let (_, k, n) = extents;
        let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
        let position = positions[0];
        // Operands that lanes look up are put in memory before the loop.
        for operand in [a, b] {
            if self.produced_value(operand).is_some() {
                self.stage(operand)?;
            }
        }
        let mut elements = vec![];
        for slot in self.layouts[layout].slots(position) {
            elements.push(slot.map(|slot| {
                let element = self.element(layout, position, slot.offset);
                // Lanes without elements compute the last one.
                let element = self.code.min(element, width - 1);
                let sum = self.code.mov_f32(Val::ZERO);
                (self.terms(element, extents), sum)
            }));
        }
        let counter = self.code.mov(0);
        let again = self.code.label();
        self.code.push(Item::NoUnroll);
        self.code.place(again);
        let known = (self.row.known.num_rows(), self.edge.known.num_rows());
        for &((from_a, from_b), sum) in elements.iter().flatten() {
            let (at_a, at_b) = (self.code.add(from_a, counter), self.code.mad(counter, n, from_b));
            let (a, b) = (self.gather(a, at_a, None)?, self.gather(b, at_b, None)?);
            self.code.set(sum, Opcode::Mad(Type::F32), (a, b, sum));
        }
        // Row positions that were looked up in the loop are not known after it.
        self.row.known.forget_rows(known.0);
        self.edge.known.forget_rows(known.1);
        self.code.increase(counter, 1);
        let more = self.code.lt(counter, k);
        self.code.jump_if(more, again);
        let regs = elements.into_iter().map(|element| element.map(|(_, sum)| Val::Reg(sum))).collect();
        Ok(Value::One(Held { layout, position, regs }))
    }

    /// The first elements of both operands that an element of groups `[m, n]` of their products is computed from.
    pub(super) fn terms(&mut self, element: Reg, (m, k, n): (usize, usize, usize)) -> (Reg, Reg) {
        let (row, column) = (self.code.div(element, n), self.code.rem(element, n));
        let group = self.code.div(row, m);
        let first = self.code.mul(group, k * n);
        (self.code.mul(row, k), self.code.add(first, column))
    }

    /// The element of groups `[m, n, inner]` that an element of their transposes is.
    pub(super) fn transposed(&mut self, element: Reg, (m, n, inner): (usize, usize, usize)) -> Reg {
        let (outer, rest) = (self.code.div(element, m * n * inner), self.code.rem(element, m * n * inner));
        let (column, rest) = (self.code.div(rest, m * inner), self.code.rem(rest, m * inner));
        let (row, within) = (self.code.div(rest, inner), self.code.rem(rest, inner));
        let row = self.code.mad(outer, m, row);
        let cell = self.code.mad(row, n, column);
        self.code.mad(cell, inner, within)
    }

    /// Is the row that is multiplied put in the memory of the team? What is stored, too: lanes load it together, while
    /// each would read all of it.
    fn is_staged(&mut self, x: Operand) -> Result<bool> {
        if self.produced_value(x).is_some() {
            return Ok(true);
        }
        let of_row = matches!(x.source, Source::Buffer(_)) && !matches!(x.index, Index::Uniform | Index::DenseCell);
        Ok(of_row && self.width_of(x)? <= MOST_STAGED << self.shape.lanes)
    }

    /// The weights of a group at a step of the inner dimension, so many after a counter.
    fn weights(
        &mut self,
        weight: &Weight,
        product: Product,
        from: Reg,
        (counter, ahead): (Reg, usize),
    ) -> Result<Vec<Val>> {
        let Product { n, transposed, group, .. } = product;
        let consecutive = matches!(weight, Weight::Block(_)) || !transposed;
        let step = match weight {
            Weight::Block(_) => product.pitch(),
            Weight::Team(_) | Weight::Stored(_) => {
                if transposed {
                    1
                } else {
                    n
                }
            }
        };
        let first = self.code.mad(counter, step, from);
        let ahead = 4 * step * ahead;
        let (space, guard, address) = match weight {
            Weight::Block(base) | Weight::Team(base) => (StateSpace::Shared, None, self.code.mad(first, 4, base)),
            Weight::Stored(operand) => {
                let (space, row) = self.stored_row(*operand)?;
                let guard = self.has_stored_row(*operand);
                (space, guard, self.code.mad_wide(first, 4, row))
            }
        };
        // The memory of a team may not be aligned for vectors.
        let how = Loads { space, guard: None, first: false, scalar: matches!(weight, Weight::Team(_)) };
        let mut loaded = vec![];
        if consecutive {
            loaded = self.load_vector((address, ahead), group, guard, how);
        } else {
            for at in 0..group {
                loaded.extend(self.load_vector((address, ahead + 4 * n * at), 1, guard, how));
            }
        }
        Ok(loaded.into_iter().map(Val::Reg).collect())
    }

    /// Copies a weight to the memory of the block, once: its address. `None` where it is not worth it.
    fn weight_in_block(&mut self, w: Operand, product: Product) -> Result<Option<Reg>> {
        let Source::Buffer(buffer) = w.source else { return Ok(None) };
        let own = self.produced_value(w).is_some() || self.global(buffer) != StateSpace::GlobalNc;
        if own || w.index != Index::Uniform || self.traversal.rows == Rows::Once {
            return Ok(None);
        }
        let Product { k, n, transposed, group, .. } = product;
        let key = (buffer, transposed, group, k, n);
        if let Some(&known) = self.memory.weights.get(&key) {
            return Ok(Some(known));
        }
        let bytes = 4 * product.batches() * product.inner() * product.pitch();
        if self.memory.weight_bytes + bytes > MOST_WEIGHTS {
            return Ok(None);
        }
        let start = self.memory.weight_bytes;
        self.memory.weight_bytes += bytes.next_multiple_of(16);
        let offset = self.table.offset(Slot::Buffer(buffer));
        let thread = self.thread;
        // A lane has one element, or of the transposed a group of one column.
        let of_lane = if transposed { group } else { 1 };
        let count = product.batches() * k * n / of_lane;
        let base = self.code.first(|code| {
            let from = code.slot(Class::U64, offset);
            let base = code.mov(Symbol::Shared);
            code.increase(base, Region::Weights);
            code.increase(base, start);
            let at = code.mov(thread);
            let (again, done) = (code.label(), code.label());
            code.place(again);
            let end = code.ge(at, count);
            code.jump_if(end, done);
            let (mut first, mut to) = (at, at);
            if transposed {
                // Groups of rows, and columns within them.
                let rows = code.div(at, n);
                let column = code.rem(at, n);
                let batch = code.div(rows, k / group);
                let within = code.rem(rows, k / group);
                first = code.mad(rows, group * n, column);
                let step = code.mad(batch, n, column);
                let lowest = code.mul(within, group);
                to = code.mad(step, product.pitch(), lowest);
            }
            let from = code.mad_wide(first, 4, from);
            let to = code.mad(to, 4, base);
            let load = |row: usize| code.load(StateSpace::GlobalNc, (from, 4 * n * row));
            let loaded: Vec<Reg> = (0..of_lane).map(load).collect();
            code.store_vector(None, StateSpace::Shared, to, &loaded);
            code.increase(at, 1u32 << BLOCK_BITS);
            code.jump(again);
            code.place(done);
            code.block_sync();
            base
        });
        self.memory.weights.insert(key, base);
        Ok(Some(base))
    }
}
