//! Rows of very many edges, in pieces.
//!
//! A block would go through hundreds of thousands of edges while all others are long done. So rows from a degree class
//! on are cut, where a dataset has such rows, and each piece is a block's. A pass over the edges of a piece ends with
//! its part of each reduction in memory: sums, largest numbers, the state of an online softmax. The entry that follows
//! combines the parts of a row, in the order of the pieces as its teams share them, and goes on: with the next pass
//! over the pieces, if reductions depend on each other, or with what is computed for the row.
//!
//! Values of the row that a pass needs are recomputed for each piece. The row stores its results and adds to totals
//! once, when it is complete. Edges store and add in the pass that they are part of.

use std::collections::HashSet;
use std::fmt;

use hgnnc_ir::Reduce;
use hgnnc_kernel_ir::kernel::{Extent, KernelOp, Level, Traversal};
use hgnnc_kernel_ir::loops::passes::Pass;

use super::edges::Partial;
use super::edges::State;
use super::operands::Loads;
use super::{Emit, Held, LONG, Result, Value};
use crate::Edges;
use crate::isa::{Reg, StateSpace, Val};
use crate::{Cut, Slot};

/// Edges of a piece, at most: what a block goes through in some tens of steps, so that a row of a hundred thousand
/// edges is work for all multiprocessors of a device.
const MOST_PIECE: usize = 1024;
/// Rows of at least so many pieces are cut: shorter ones keep no block much longer than others are kept.
const FEWEST_PIECES: usize = 4;

/// The role of a body for rows that are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing: its rows are whole.
    Rows,
    /// A pass over the edges of their pieces.
    Pass(usize),
    /// All that they compute once their passes are done.
    Joined,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Phase::Rows => write!(f, "rows of"),
            Phase::Pass(pass) => write!(f, "pass {} over the pieces of long rows of", pass + 1),
            Phase::Joined => write!(f, "long rows from the pieces of"),
        }
    }
}

/// The piece at hand, and all pieces of its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Its number. `None`: the whole row is at hand.
    number: Option<Reg>,
    /// The first piece of the row.
    first: Reg,
    /// The number of pieces of the row.
    count: Reg,
}

/// How the rows of a traversal are cut, if there are rows for that, and it goes over their edges.
pub(super) fn cut(traversal: &Traversal, edges: Edges) -> Option<Cut> {
    let passes = traversal.instrs.iter().any(|instr| instr.level == Level::Edge);
    let pieces = traversal.pieces.filter(|_| passes)?;
    let piece = pieces.least.clamp(1, MOST_PIECE);
    let least = (FEWEST_PIECES * piece).next_power_of_two();
    // Class `c` begins with rows of `2^(c-1)` edges.
    let cut = Cut { from: least.trailing_zeros() as usize + 1, edges: piece };
    (edges.most >= least as u64).then_some(cut)
}

/// Edges of the shortest rows that are treated in another way than most.
pub(super) fn least(cut: Option<Cut>) -> u64 {
    1 << (cut.map_or(LONG, |cut| cut.from.min(LONG)) - 1)
}

impl Emit<'_> {
    /// Marks the instructions of rows, and reductions of earlier passes, that this body needs.
    pub(super) fn wanted(&self, rounds: &[Pass]) -> Vec<bool> {
        let instrs = &self.traversal.instrs;
        let Phase::Pass(pass) = self.phase else { return vec![true; instrs.len()] };
        let mut wanted = vec![false; instrs.len()];
        let own: HashSet<usize> = rounds[pass].edges.iter().copied().collect();
        own.iter().for_each(|&index| wanted[index] = true);
        for index in (0..instrs.len()).rev() {
            // Reductions of earlier passes are read from memory, so their operands are not needed.
            if wanted[index] && (own.contains(&index) || instrs[index].level == Level::Row) {
                let makers = instrs[index].op.operands().into_iter().filter_map(|operand| self.producer(operand));
                makers.filter(|&maker| maker < index).for_each(|maker| wanted[maker] = true);
            }
        }
        wanted
    }

    /// For each pass, the elements that a piece gives.
    pub(super) fn piece_elements(&self) -> Vec<usize> {
        let rounds = self.def_use.passes();
        let passes = rounds.iter().filter(|round| !round.edges.is_empty());
        passes.map(|round| self.piece_places(&round.edges).1).collect()
    }

    /// Offsets of each reduction's parts in the result of a piece, and the elements of that result. All
    /// parts are aligned for vectors.
    fn piece_places(&self, edges: &[usize]) -> (Vec<(usize, Vec<usize>)>, usize) {
        let (mut places, mut len) = (vec![], 0);
        for &index in edges {
            let instr = &self.traversal.instrs[index];
            let Some(width) = instr.width.as_fixed().filter(|_| instr.extent() == Extent::Row) else { continue };
            let widths = match &instr.op {
                KernelOp::SoftmaxSum { score, .. } => {
                    let heads = self.width_of(*score).unwrap_or(0);
                    vec![width - 2 * heads, heads, heads]
                }
                KernelOp::SegmentArg { .. } => vec![width / 2; 2],
                _ => vec![width],
            };
            let place = |width: usize| {
                let start = len;
                len += width.next_multiple_of(4);
                start
            };
            places.push((index, widths.into_iter().map(place).collect()));
        }
        (places, len)
    }

    /// Finds the pieces of the row at hand, which so far is a piece or the position of a row among those that are cut.
    pub(super) fn pieces_of_row(&mut self) {
        let (Some(cut), rows) = (self.cut, self.traversal.rows.clone()) else { return };
        let number = match self.phase {
            Phase::Rows => return,
            Phase::Pass(_) => {
                let number = self.code.mov(self.row.number);
                let base = self.entry(Slot::PieceRows(rows.clone(), cut));
                let address = self.code.mad_wide(number, 4, base);
                self.code.set_index(self.row.number, address);
                Some(number)
            }
            Phase::Joined => None,
        };
        let base = self.entry(Slot::FirstPieces(rows, cut));
        let address = self.code.mad_wide(self.row.number, 4, base);
        let first = self.code.load_index(address);
        let end = self.code.load_index((address, 4));
        let count = self.code.sub(end, first);
        self.piece = Some(Piece { number, first, count });
    }

    /// Of the piece at hand: the edges of the row before it, and the most that it has.
    pub(super) fn piece_edges(&mut self) -> Option<(Reg, usize)> {
        let (Piece { number: Some(number), first, .. }, Cut { edges, .. }) = (self.piece?, self.cut?) else {
            return None;
        };
        let before = self.code.sub(number, first);
        Some((self.code.mul(before, edges), edges))
    }

    /// Ends a pass over the edges: its results are kept, or stored as those of the piece.
    pub(super) fn end_pass(&mut self, number: usize, partials: Vec<Partial>, len: Reg) -> Result<()> {
        let Some(Piece { number: Some(piece), .. }) = self.piece else {
            return self.keep_all(partials, len);
        };
        let edges: Vec<usize> = partials.iter().map(Partial::index).collect();
        let (places, elements) = self.piece_places(&edges);
        if places.is_empty() {
            return Ok(());
        }
        let base = self.entry(Slot::PieceParts(self.kernel, number));
        let row = self.code.mad_wide(piece, 4 * elements, base);
        for (partial, (_, places)) in partials.into_iter().zip(places) {
            let value = self.end_partial(partial, len)?;
            let parts = match value {
                Value::One(held) => vec![held],
                Value::Parts(parts) => parts.into_iter().map(|(_, held)| held).collect(),
            };
            for (held, place) in parts.iter().zip(places) {
                let at = self.place_in(row, place, held.layout, held.position);
                let own = self.stores(held.layout, held.position, true);
                self.store_slots(at, held, own);
            }
        }
        Ok(())
    }

    fn keep_all(&mut self, partials: Vec<Partial>, len: Reg) -> Result<()> {
        partials.into_iter().try_for_each(|partial| {
            let index = partial.index();
            let value = self.end_partial(partial, len)?;
            self.keep(index, value)
        })
    }

    /// The address of this lane's first element of what begins at an element of a piece's results.
    fn place_in(&mut self, row: Reg, place: usize, layout: usize, position: usize) -> Reg {
        let at = self.code.add64(row, 4 * place);
        match self.lane_element(layout, position) {
            None => at,
            Some(lane) => self.code.mad_wide(lane, 4, at),
        }
    }

    /// Combines what a pass has made of the pieces of the row: those of its reductions that are wanted.
    pub(super) fn join(&mut self, number: usize, edges: &[usize], wanted: &[bool]) -> Result<()> {
        let (places, elements) = self.piece_places(edges);
        let mut partials = vec![];
        for (index, places) in places.into_iter().filter(|(index, _)| wanted[*index]) {
            partials.extend(self.begin_partial(index)?.map(|partial| (partial, places)));
        }
        let (Some(Piece { first, count, .. }), false) = (self.piece, partials.is_empty()) else { return Ok(()) };
        self.code.comment(format!("the pieces of pass {}", number + 1));
        let base = self.entry(Slot::PieceParts(self.kernel, number));
        let team = self.team();
        let counter = self.code.mov(0);
        let (again, done) = (self.code.label(), self.code.label());
        self.code.place(again);
        let end = self.code.ge(counter, count);
        self.code.jump_if(end, done);
        let at = team.map_or(counter, |team| self.code.add(counter, team));
        let valid = self.code.lt(at, count);
        // Without a piece, the first one is read instead, and its values are not used.
        let at = self.code.selp(at, 0, valid);
        let piece = self.code.add(first, at);
        let row = self.code.mad_wide(piece, 4 * elements, base);
        for (partial, places) in &mut partials {
            self.add_piece(partial, row, places, valid);
        }
        self.code.increase(counter, 1u32 << self.shape.teams);
        self.code.jump(again);
        self.code.place(done);
        self.keep_all(partials.into_iter().map(|(partial, _)| partial).collect(), count)
    }

    /// Takes a piece along, where it is valid.
    fn add_piece(&mut self, partial: &mut Partial, row: Reg, places: &[usize], valid: Reg) {
        let load = |emit: &mut Self, place: usize, layout: usize, position: usize| -> Vec<Option<Reg>> {
            let at = emit.place_in(row, place, layout, position);
            let how = Loads { space: StateSpace::GlobalNc, guard: None, first: false, scalar: false };
            let regs = emit.load_slots(at, layout, position, how);
            regs.into_iter().map(|value| value.map(|value| emit.reg(value))).collect()
        };
        let (reduce, held) = match partial {
            Partial::Segment { reduce, held, .. } => (*reduce, held),
            Partial::Weighted { held, .. } => (Reduce::Sum, held),
            Partial::Extreme { state, .. } => {
                let best = load(self, places[0], state.layout, state.position);
                let ranks = load(self, places[1], state.layout, state.position);
                self.merge_winners(state, &best, &ranks, Some(valid));
                return;
            }
            Partial::Softmax { state, .. } => {
                let sums = load(self, places[0], state.layout, state.wide);
                let totals = load(self, places[1], state.layout, state.heads);
                let largest = load(self, places[2], state.layout, state.heads);
                let other = State { sums, totals, largest, ..*state };
                self.merge_with(state, &other, Some(valid));
                return;
            }
        };
        let Held { layout, position, ref regs } = *held;
        let loaded = load(self, places[0], layout, position);
        for (sum, part) in regs.iter().zip(loaded) {
            let (Some(Val::Reg(sum)), Some(part)) = (*sum, part) else { continue };
            let next = self.combine(reduce, sum.into(), part.into());
            self.code.assign_if(valid, sum, next);
        }
    }

    /// The number of the part that this block has of each total.
    pub(super) fn part_number(&mut self) -> Reg {
        let part = self.code.mov(Reg::BLOCK);
        let following = match self.phase {
            Phase::Rows | Phase::Pass(0) => return part,
            Phase::Pass(pass) => pass - 1,
            Phase::Joined => self.piece_elements().len() - 1,
        };
        let first = self.entry32(Slot::FirstPart(self.kernel, following));
        self.code.add(part, first)
    }
}
