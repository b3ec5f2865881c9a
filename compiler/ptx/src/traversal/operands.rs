//! Reading and writing the elements of operands.

use hgnnc_ir::{Direction, Space};
use hgnnc_kernel_ir::kernel::{Buffer, Dest, Index, Level, Operand, Source};

use super::state::Known;
use super::{Edge, Emit, Held, Key, MOST_HOISTED, Phase, Regs, Result, Value};
use crate::code::Code;
use crate::isa::{Class, Opcode, Reg, Region, StateSpace, Symbol, Type, Val};
use crate::{Slot, Topology};

/// How the elements of a row are loaded.
#[derive(Clone, Copy)]
pub(super) struct Loads {
    /// The state space of the loads.
    pub space: StateSpace,
    /// The predicate of lanes that have a row; `None`: all have one.
    pub guard: Option<Reg>,
    /// At the beginning of the kernel?
    pub first: bool,
    /// Are the elements loaded one by one, not as vectors?
    pub scalar: bool,
}

impl Emit<'_> {
    /// Elements of an operand per row or edge.
    pub(super) fn width_of(&self, operand: Operand) -> Result<usize> {
        if let Source::Local(local) = operand.source {
            return Ok(self.widths[local.index()]);
        }
        let width = self.program.operand_width(&self.traversal.rows, &[], operand);
        match width.and_then(|width| width.as_fixed()) {
            Some(width) => Ok(width),
            None => self.unsupported("an operand whose length depends on the dataset"),
        }
    }

    /// Is an operand the same for all edges of a row?
    pub(super) fn is_of_row(&self, operand: Operand) -> bool {
        match operand.source {
            Source::Const(_) | Source::Count(_) => true,
            Source::Local(_) | Source::Buffer(_) => {
                matches!(operand.index, Index::Uniform | Index::Own | Index::Endpoint)
            }
        }
    }

    /// The key under which an operand is cached. Constants have none.
    fn key(&self, operand: Operand) -> Option<Key> {
        match (operand.source, operand.index) {
            (Source::Local(local), _) => Some(Key::Local(local)),
            (Source::Buffer(buffer), Index::Uniform | Index::Own) => Some(Key::Row(buffer)),
            (Source::Buffer(buffer), Index::Endpoint) => Some(Key::End(buffer)),
            (Source::Buffer(buffer), Index::Neighbor) => Some(Key::Other(buffer)),
            (Source::Buffer(buffer), Index::Edge) => Some(Key::Edge(buffer)),
            (Source::Buffer(buffer), Index::DenseCell) => Some(Key::Cell(buffer)),
            (Source::Const(_) | Source::Count(_), _) => None,
        }
    }

    /// The value of an operand, if this traversal has computed it.
    pub(super) fn produced_value(&self, operand: Operand) -> Option<&Value> {
        let maker = self.own_producer(operand)?;
        self.edge.values.get(&maker).or(self.row.values[maker].as_ref())
    }

    /// The instruction that makes what an operand is of this row or edge.
    pub(super) fn own_producer(&self, operand: Operand) -> Option<usize> {
        let once = self.traversal.rows == hgnnc_kernel_ir::kernel::Rows::Once;
        let own = match operand.index {
            Index::Own | Index::Edge => true,
            Index::Uniform => once || matches!(operand.source, Source::Local(_)),
            Index::Neighbor | Index::Endpoint | Index::DenseCell => matches!(operand.source, Source::Local(_)),
        };
        self.producer(operand).filter(|_| own)
    }

    /// The elements of an operand in a layout.
    pub(super) fn fetch(&mut self, operand: Operand, layout: usize, position: usize) -> Result<Regs> {
        match operand.source {
            Source::Const(number) => return Ok(vec![Some(Val::Imm(number as f32)); self.num_slots(layout, position)]),
            Source::Count(space) => {
                let offset = self.table.offset(Slot::CountF32(space));
                let count = self.scoped(|code| code.slot(Class::F32, offset));
                return Ok(vec![Some(count.into()); self.num_slots(layout, position)]);
            }
            Source::Local(_) | Source::Buffer(_) => {}
        }
        if let Some(Value::One(held)) = self.produced_value(operand) {
            if (held.layout, held.position) == (layout, position) {
                return Ok(held.regs.clone());
            }
            // A single number is the same in every layout.
            if self.layouts[held.layout].chain.position(1) == Some(held.position) && held.regs.len() == 1 {
                return Ok(vec![held.regs[0]; self.num_slots(layout, position)]);
            }
        }
        if self.is_of_row(operand) && self.edge.current.is_some() {
            return self.outside(|emit| emit.fetch(operand, layout, position));
        }
        let key = (self.key(operand).expect("constants are dealt with"), layout, position);
        let known = self.known().fetched.get(&key);
        if let Some(known) = known {
            return Ok(known.clone());
        }
        let regs = if self.produced_value(operand).is_some() {
            let mut base = self.stage(operand)?;
            if let Some(lane) = self.lane_element(layout, position) {
                base = self.code.mad(lane, 4, base);
            }
            let how =
                Loads { space: StateSpace::Shared, guard: None, first: false, scalar: self.shape.scalar_memory() };
            self.load_slots(base, layout, position, how)
        } else {
            match self.load_kept(operand, layout, position) {
                Some(regs) => regs,
                None => self.load(operand, layout, position)?,
            }
        };
        self.known().fetched.insert(key, regs.clone());
        Ok(regs)
    }

    /// Writes code that is the same for all edges of a row before the loop over them.
    fn outside<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> T {
        let edge = self.edge.current.take();
        let before = self.code.before_loop(true);
        let made = make(self);
        self.code.before_loop(before);
        self.edge.current = edge;
        made
    }

    /// Operands that have been looked up of the edge, or of the row if no edge is at hand.
    fn known(&mut self) -> &mut Known {
        if self.edge.current.is_some() { &mut self.edge.known } else { &mut self.row.known }
    }

    pub(super) fn num_slots(&self, layout: usize, position: usize) -> usize {
        self.layouts[layout].slots(position).len()
    }

    /// The number of the element that a register of this lane is.
    pub(super) fn element(&mut self, layout: usize, position: usize, offset: usize) -> Reg {
        match (self.lane_element(layout, position), offset) {
            (Some(lane), 0) => lane,
            (Some(lane), offset) => self.code.add(lane, offset),
            (None, offset) => self.code.mov(offset),
        }
    }

    /// One element of an operand. Where it does not exist, any number.
    pub(super) fn gather(&mut self, operand: Operand, element: Reg, mut exists: Option<Reg>) -> Result<Val> {
        match operand.source {
            Source::Const(number) => return Ok(Val::Imm(number as f32)),
            Source::Count(_) => {
                let (layout, positions) = self.layout(&[1]).expect("every chain has width 1");
                return Ok(self.fetch(operand, layout, positions[0])?[0].expect("a number"));
            }
            Source::Local(_) | Source::Buffer(_) => {}
        }
        let (space, address) = if self.produced_value(operand).is_some() {
            let base = self.stage(operand)?;
            (StateSpace::Shared, self.code.mad(element, 4, base))
        } else if let Some(row) = self.kept_address(operand) {
            (StateSpace::Shared, self.code.mad(element, 4, row))
        } else {
            let (space, row) = self.stored_row(operand)?;
            let has_row = self.has_stored_row(operand);
            exists = self.code.both(exists, has_row);
            (space, self.code.mad_wide(element, 4, row))
        };
        Ok(self.code.load_if(exists, space, address).into())
    }

    /// The state space and the address of the row that a stored operand is.
    pub(super) fn stored_row(&mut self, operand: Operand) -> Result<(StateSpace, Reg)> {
        let Source::Buffer(buffer) = operand.source else { return self.unsupported("a value that is not stored") };
        let base = self.entry(Slot::Buffer(buffer));
        Ok((self.global(buffer), self.row_address(operand, buffer, base)?))
    }

    /// A predicate for the existence of a stored operand's row; `None`: the row always exists.
    pub(super) fn has_stored_row(&mut self, operand: Operand) -> Option<Reg> {
        let Source::Buffer(buffer) = operand.source else { return None };
        self.has_row(operand, buffer)
    }

    /// The state space of loads of a buffer: what no kernel of this launch writes may stay in the read-only cache.
    pub(super) fn global(&self, buffer: Buffer) -> StateSpace {
        if self.written.contains(&self.homes[buffer.index()]) { StateSpace::Global } else { StateSpace::GlobalNc }
    }

    /// A predicate for the existence of an operand's row; `None`: the row always exists. A graph without edges
    /// has no ends at all.
    fn has_row(&mut self, operand: Operand, buffer: Buffer) -> Option<Reg> {
        let Space::Endpoints(graph, direction) = self.program.buffer(buffer).ty.space else { return None };
        let own = matches!(self.traversal.rows, hgnnc_kernel_ir::kernel::Rows::Endpoints(..));
        match operand.index {
            Index::Endpoint => {}
            Index::Own if !own => {}
            _ => return None,
        }
        let end = self.end_of_vertex(graph, direction);
        Some(self.code.ge_signed(end, 0))
    }

    /// The position of the vertex of the row among the ends of a graph; -1: nowhere.
    pub(super) fn end_of_vertex(&mut self, graph: hgnnc_ir::Graph, direction: Direction) -> Reg {
        if let Some(&known) = self.row.ends.get(&(graph, direction)) {
            return known;
        }
        let make = |emit: &mut Self| {
            let base = emit.entry(Slot::EndOf(graph, direction));
            let address = emit.code.mad_wide(emit.row.vertex, 4, base);
            emit.code.load_index(address)
        };
        let end = if self.edge.current.is_some() { self.outside(make) } else { make(self) };
        self.row.ends.insert((graph, direction), end);
        end
    }

    /// The position of an operand's row in its source; `None`: the first row.
    fn row_number(&mut self, operand: Operand, buffer: Buffer) -> Result<Option<Reg>> {
        if self.is_of_row(operand) && self.edge.current.is_some() {
            return self.outside(|emit| emit.row_number(operand, buffer));
        }
        let space = self.program.buffer(buffer).ty.space;
        let key = self.key(operand).expect("an operand with rows");
        let known = self.known().row(&key);
        if known.is_some() {
            return Ok(known);
        }
        let lookup = |emit: &mut Self, slot: Slot, index: Reg| {
            let base = emit.entry(slot);
            let address = emit.code.mad_wide(index, 4, base);
            emit.code.load_index(address)
        };
        let own_rows = match self.traversal.rows {
            hgnnc_kernel_ir::kernel::Rows::Endpoints(graph, direction) => Some((graph, direction)),
            _ => None,
        };
        let row = match (operand.index, space) {
            (Index::Uniform, _) => return Ok(None),
            (Index::Own, Space::Endpoints(graph, direction)) if own_rows == Some((graph, direction)) => self.row.number,
            (Index::Own, Space::Endpoints(graph, direction)) => {
                let end = self.end_of_vertex(graph, direction);
                self.code.max_signed(end, 0)
            }
            (Index::Own, _) => self.row.vertex,
            (Index::Endpoint, Space::Endpoints(graph, direction)) => self.end_of_vertex(graph, direction),
            (Index::Neighbor, Space::Endpoints(graph, direction)) => {
                let edge = self.edge.current.clone().expect("an edge is at hand");
                lookup(self, Slot::EndOfEdges(graph, direction), edge.number)
            }
            (Index::Neighbor, _) => self.edge.current.clone().expect("an edge is at hand").other,
            (Index::Edge, _) => self.position()?,
            (Index::Endpoint | Index::DenseCell, _) => return self.unsupported("an operand that has no row"),
        };
        self.known().add_row(key, row);
        Ok(Some(row))
    }

    /// The address of the row of an operand, from an address that stands for row 0.
    fn row_address(&mut self, operand: Operand, buffer: Buffer, base: Reg) -> Result<Reg> {
        if operand.index == Index::DenseCell {
            let position = self.cell()?;
            let bytes = self.code.shl64(position, 2);
            return Ok(self.code.add64(base, bytes));
        }
        let bytes = 4 * self.width_of(operand)?;
        Ok(match self.row_number(operand, buffer)? {
            None => base,
            Some(mut row) => {
                if operand.index == Index::Endpoint {
                    row = self.code.max_signed(row, 0);
                }
                self.code.mad_wide(row, bytes, base)
            }
        })
    }

    /// The position of an edge in CSC order.
    pub(super) fn position(&mut self) -> Result<Reg> {
        let edge = self.edge.current.clone().expect("an edge is at hand");
        if let Some(known) = edge.position {
            return Ok(known);
        }
        let (of, direction) = self.topology().expect("edges have a topology");
        let position = match direction {
            Direction::In => edge.number,
            Direction::Out => {
                let base = self.entry(Slot::Positions(of));
                let address = self.code.mad_wide(edge.number, 4, base);
                self.code.load_index(address)
            }
        };
        self.edge.current = Some(Edge { position: Some(position), ..edge });
        Ok(position)
    }

    /// The position of a stored element in the dense matrix, of 64 bits.
    pub(super) fn cell(&mut self) -> Result<Reg> {
        let Some((Topology::Pattern(pattern), direction)) = self.topology() else {
            return self.unsupported("an element of a dense matrix without a sparse one");
        };
        let columns = self.program.tables.patterns[pattern.index()].columns;
        let other = self.edge.current.clone().expect("an element is at hand").other;
        let (row, column) = match direction {
            Direction::In => (self.row.number, other),
            Direction::Out => (other, self.row.number),
        };
        let wide = self.code.widen(column);
        Ok(self.code.mad_wide(row, columns, wide))
    }

    /// The edges of this traversal.
    pub(super) fn topology(&self) -> Option<(Topology, Direction)> {
        use hgnnc_kernel_ir::kernel::Rows;
        match self.traversal.rows {
            Rows::Edges(graph, direction) | Rows::Endpoints(graph, direction) => {
                Some((Topology::Graph(graph), direction))
            }
            Rows::Elements(pattern, direction) => Some((Topology::Pattern(pattern), direction)),
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) => None,
        }
    }

    /// Loads the elements of a stored operand.
    fn load(&mut self, operand: Operand, layout: usize, position: usize) -> Result<Regs> {
        let Source::Buffer(buffer) = operand.source else { unreachable!("what is loaded is stored") };
        let slots = self.layouts[layout].slots(position);
        let space = self.global(buffer);
        let whole = self.hoists
            && operand.index == Index::Uniform
            && space == StateSpace::GlobalNc
            && self.hoisted + slots.len() <= MOST_HOISTED;
        if whole {
            self.hoisted += slots.len();
        }
        let base = self.base(buffer, layout, position);
        let address = self.row_address(operand, buffer, base)?;
        let has_row = self.has_row(operand, buffer);
        let how = Loads { space, guard: has_row, first: whole, scalar: false };
        Ok(self.load_slots(address, layout, position, how))
    }

    /// Loads the elements of this lane, of which the first of the row would be at an address.
    pub(super) fn load_slots(&mut self, address: Reg, layout: usize, position: usize, how: Loads) -> Regs {
        let slots = self.layouts[layout].slots(position);
        let vector = self.layouts[layout].vector(position);
        let mut regs = vec![None; slots.len()];
        for (group, chunk) in slots.chunks(vector).enumerate() {
            let Some(first) = &chunk[0] else { continue };
            let exists = self.exists(&first.bounds);
            let exists = self.code.both(exists, how.guard);
            let loaded = self.load_vector((address, 4 * first.offset), chunk.len(), exists, how);
            for (slot, reg) in loaded.into_iter().enumerate() {
                regs[group * vector + slot] = Some(Val::Reg(reg));
            }
        }
        regs
    }

    /// Loads consecutive elements from so many bytes after an address, where they exist.
    pub(super) fn load_vector(
        &mut self,
        (address, start): (Reg, usize),
        count: usize,
        exists: Option<Reg>,
        how: Loads,
    ) -> Vec<Reg> {
        let Loads { space, scalar, .. } = how;
        let write = |code: &mut Code| {
            let loaded: Vec<Reg> = (0..count).map(|_| code.fresh(Class::F32)).collect();
            if exists.is_some() {
                loaded.iter().for_each(|&reg| code.assign(reg, Val::ZERO));
            }
            for (vector, regs) in loaded.chunks(if scalar { 1 } else { count }).enumerate() {
                code.load_vector(exists, regs, space, (address, start + 4 * vector));
            }
            loaded
        };
        if how.first { self.code.first(write) } else { write(&mut self.code) }
    }

    /// The address of the first element of this lane in row 0.
    fn base(&mut self, buffer: Buffer, layout: usize, position: usize) -> Reg {
        if let Some(&known) = self.bases.get(&(buffer, layout, position)) {
            return known;
        }
        let base = self.entry(Slot::Buffer(buffer));
        let base = match self.lane_element(layout, position) {
            None => base,
            Some(lane) => self.scoped(|code| code.mad_wide(lane, 4, base)),
        };
        self.bases.insert((buffer, layout, position), base);
        base
    }

    /// Stores a value as a row of a buffer, where `valid`.
    pub(super) fn store(&mut self, buffer: Buffer, row: Reg, held: &Held, valid: Option<Reg>) {
        let Held { layout, position, .. } = *held;
        let width = self.layouts[layout].chain.width(position);
        let base = self.base(buffer, layout, position);
        let address = self.code.mad_wide(row, 4 * width, base);
        let own = self.stores(layout, position, self.edge.current.is_none());
        let valid = self.code.both(valid, own);
        self.store_slots(address, held, valid);
    }

    /// Stores the elements of this lane in the memory of the team, of which the first would be at an address.
    fn store_in_team(&mut self, address: Reg, held: &Held, scalar: bool) {
        let own = self.stores(held.layout, held.position, false);
        self.store_vectors((StateSpace::Shared, scalar), address, held, own);
    }

    /// Stores the elements of this lane, of which the first of the row would be at an address.
    pub(super) fn store_slots(&mut self, address: Reg, held: &Held, valid: Option<Reg>) {
        self.store_vectors((StateSpace::Global, false), address, held, valid);
    }

    /// The same in any state space, element by element if `scalar`.
    fn store_vectors(&mut self, (space, scalar): (StateSpace, bool), address: Reg, held: &Held, valid: Option<Reg>) {
        let Held { layout, position, ref regs } = *held;
        let slots = self.layouts[layout].slots(position);
        let vector = self.layouts[layout].vector(position);
        for (chunk, values) in slots.chunks(vector).zip(regs.chunks(vector)) {
            let Some(first) = &chunk[0] else { continue };
            let exists = self.exists(&first.bounds);
            let guard = self.code.both(valid, exists);
            let at = 4 * first.offset;
            let values: Vec<Reg> = values.iter().map(|v| self.reg(v.expect("elements that exist"))).collect();
            for (next, values) in values.chunks(if scalar { 1 } else { vector }).enumerate() {
                self.code.store_vector(guard, space, (address, at + 4 * next), values);
            }
        }
    }

    /// A number in a register.
    pub(super) fn reg(&mut self, value: Val) -> Reg {
        match value {
            Val::Reg(reg) => reg,
            Val::Imm(_) => self.code.mov_f32(value),
        }
    }

    /// Waits until the threads that share a team's memory are here.
    pub(super) fn sync(&mut self) {
        match self.shape.blockwide() {
            true => self.code.block_sync(),
            false => self.code.warp_sync(),
        }
    }

    /// Puts what an operand is for this row or edge in the memory of the team, for lanes to look up: its address.
    pub(super) fn stage(&mut self, operand: Operand) -> Result<Reg> {
        if self.is_of_row(operand) && self.edge.current.is_some() {
            return self.outside(|emit| emit.stage(operand));
        }
        let key = self.key(operand).expect("constants are not staged");
        let known = self.known().staged.get(&key);
        if let Some(&known) = known {
            return Ok(known);
        }
        let value = self.produced_value(operand).cloned();
        let (width, parts) = (
            self.width_of(operand)?,
            match value {
                Some(Value::One(held)) => vec![(0, held)],
                Some(Value::Parts(parts)) => parts,
                None => {
                    let width = self.width_of(operand)?;
                    let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
                    let regs = self.fetch(operand, layout, positions[0])?;
                    vec![(0, Held { layout, position: positions[0], regs })]
                }
            },
        );
        let start = self.memory.team_bytes;
        self.memory.team_bytes += 4 * width.next_multiple_of(4);
        let (thread, lanes) = (self.thread, self.shape.lanes);
        let base = self.code.fresh(Class::U32);
        // How much memory a team has is known at the end: the text has a name for it.
        self.code.first(|code| {
            let team = code.shr(thread, lanes);
            let memory = code.mov(Symbol::Shared);
            code.set(base, Opcode::Mad(Type::U32), (team, Region::TeamPitch, memory));
            code.increase(base, start);
        });
        self.sync();
        for (offset, held) in parts {
            let mut at = base;
            if offset > 0 {
                at = self.code.add(at, 4 * offset);
            }
            if let Some(lane) = self.lane_element(held.layout, held.position) {
                at = self.code.mad(lane, 4, at);
            }
            let vector = self.layouts[held.layout].vector(held.position);
            self.store_in_team(at, &held, self.shape.scalar_memory() || !offset.is_multiple_of(vector));
        }
        self.sync();
        self.known().staged.insert(key, base);
        Ok(base)
    }

    /// Keeps the result of an instruction, and stores it where it goes.
    pub(super) fn keep(&mut self, index: usize, value: Value) -> Result<()> {
        let instr = &self.traversal.instrs[index];
        if let Dest::Buffer(buffer) = instr.dest {
            let Value::One(held) = &value else { return self.unsupported("a softmax's state in memory") };
            match (instr.level, &self.edge.current) {
                (Level::Edge, Some(edge)) => {
                    let valid = edge.valid;
                    let position = self.position()?;
                    self.store(buffer, position, held, Some(valid));
                }
                _ if self.is_stored_late(index) => {}
                // The row is completed elsewhere.
                _ if matches!(self.phase, Phase::Pass(_)) => {}
                // The result is stored in place, and the old value may still be read.
                _ if self.place_is_read_after(index, buffer) => self.row.deferred.push((buffer, held.clone())),
                _ => {
                    if self.shape.blockwide() && self.place_is_read(buffer) {
                        // Other warps may not have read it yet.
                        self.code.block_sync();
                    }
                    let row = self.row.number;
                    self.store(buffer, row, held, self.row.valid);
                }
            }
        }
        match self.edge.current.is_some() {
            true => {
                self.edge.values.insert(index, value);
            }
            false => self.row.values[index] = Some(value),
        }
        Ok(())
    }

    /// Does anything that is executed after an instruction of the row read a value that its result aliases?
    /// Instructions of rows are executed round by round, and in the order of the kernel within a round only. Passes
    /// over edges recompute what they need.
    fn place_is_read_after(&self, index: usize, buffer: Buffer) -> bool {
        let by_edges = self.traversal.instrs[index].level == Level::Edge;
        let at = |index: usize, by_edges: bool| (self.def_use.round(index), by_edges, index);
        let stored = at(index, by_edges);
        self.place_is_read_by(buffer, |reader, level| level == Level::Edge || at(reader, false) > stored)
    }

    /// Does anything of this traversal read a value whose place a buffer takes?
    pub(super) fn place_is_read(&self, buffer: Buffer) -> bool {
        self.place_is_read_by(buffer, |_, _| true)
    }

    fn place_is_read_by(&self, buffer: Buffer, which: impl Fn(usize, Level) -> bool) -> bool {
        let mut readers = self.def_use.readers_of_place(self.homes[buffer.index()], buffer);
        readers.any(|at| which(at, self.traversal.instrs[at].level))
    }
}
