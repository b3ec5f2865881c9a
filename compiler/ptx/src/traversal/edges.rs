//! Passes over the edges of a row.

use hgnnc_ir::{Extreme, Reduce};
use hgnnc_kernel_ir::kernel::{Extent, KernelOp, Operand};

use super::rows::Seen;
use super::{Edge, Emit, Held, Result, Shape, Value, WARP_BITS};
use crate::Slot;
use crate::code::Code;
use crate::isa::{Cmp, Opcode, Reg, StateSpace, Type, Val};
use crate::math;

/// A reduction over the edges of a row, as far as it has come.
pub(super) enum Partial {
    /// Segment reduction, `acc ∘ x`.
    Segment { index: usize, reduce: Reduce, of: Operand, held: Held },
    /// `acc + a · x`
    Weighted { index: usize, a: (Operand, usize), x: Operand, held: Held },
    /// Online softmax with a weighted sum; see [`KernelOp::SoftmaxSum`].
    Softmax { index: usize, score: Operand, x: Operand, times: Option<Operand>, state: State },
    /// See [`KernelOp::SegmentArg`]. `rank` is an operand and its position in the layout.
    Extreme { index: usize, x: Operand, rank: (Operand, usize), state: Winners },
}

/// The extreme elements of a row so far, and the ranks of their edges.
pub(super) struct Winners {
    pub extreme: Extreme,
    pub layout: usize,
    pub position: usize,
    pub best: Vec<Option<Reg>>,
    pub ranks: Vec<Option<Reg>>,
}

/// The state of an online softmax.
pub(super) struct State {
    pub layout: usize,
    pub heads: usize,
    pub wide: usize,
    /// Sums weighted by exponentials, for each element.
    pub sums: Vec<Option<Reg>>,
    /// Sums of exponentials, for each head.
    pub totals: Vec<Option<Reg>>,
    /// Largest scores so far, for each head.
    pub largest: Vec<Option<Reg>>,
}

impl Emit<'_> {
    /// Goes over the edges of the row once.
    pub(super) fn edge_pass(&mut self, number: usize, edges: &[usize]) -> Result<()> {
        self.code.comment(format!("pass {} over the edges", number + 1));
        let mut partials = vec![];
        for &index in edges {
            partials.extend(self.begin_partial(index)?);
        }
        let (start, len, most) = self.edges_of_row()?;
        let shape = self.shape;
        let team = self.team();
        let counter = self.code.mov(0);
        self.code.begin_loop();
        let (again, done) = (self.code.label(), self.code.label());
        self.code.place(again);
        let end = self.code.ge(counter, most);
        self.code.jump_if(end, done);
        let mut ahead = vec![];
        for copy in 0..shape.unroll {
            ahead.push(self.next_edge(counter, copy << shape.teams, team, (start, len))?);
        }
        for edge in ahead {
            self.begin_edge(edge);
            for &index in edges {
                self.edge_instr(index, &mut partials)?;
            }
        }
        self.end_edge();
        self.code.increase(counter, shape.unroll << shape.teams);
        self.code.jump(again);
        self.code.place(done);
        self.code.end_loop();
        self.end_pass(number, partials, len)
    }

    /// The code from here on is for an edge.
    pub(super) fn begin_edge(&mut self, edge: Edge) {
        self.edge.begin(edge);
    }

    /// The code from here on is for the row again.
    pub(super) fn end_edge(&mut self) {
        self.edge.end();
    }

    /// The number of this thread's team among those that share the row. `None`: there is one.
    pub(super) fn team(&mut self) -> Option<Reg> {
        let (thread, Shape { lanes, teams, .. }) = (self.thread, self.shape);
        (teams > 0).then(|| {
            self.code.first(|code| {
                let team = code.shr(thread, lanes);
                code.and(team, (1u32 << teams) - 1)
            })
        })
    }

    /// The first edge of the row (or piece), how many it has, and how many the longest row of the warp has.
    pub(super) fn edges_of_row(&mut self) -> Result<(Reg, Reg, Reg)> {
        let (of, direction) = self.topology().expect("a pass has edges");
        let ends = matches!(self.traversal.rows, hgnnc_kernel_ir::kernel::Rows::Endpoints(..));
        let base = self.entry(Slot::FirstEdges { of, direction, ends });
        let address = self.code.mad_wide(self.row.number, 4, base);
        let mut start = self.code.load_index(address);
        let end = self.code.load_index((address, 4));
        let mut len = self.code.sub(end, start);
        if let Some((before, edges)) = self.piece_edges() {
            start = self.code.add(start, before);
            len = self.code.sub(len, before);
            len = self.code.min(len, edges);
        }
        if let Some(valid) = self.row.valid {
            len = self.code.selp(len, 0, valid);
        }
        let most = match self.shape.row() < WARP_BITS {
            true => self.code.warp_max(len),
            false => len,
        };
        Ok((start, len, most))
    }

    /// The edge at a distance from the counter that this team takes.
    pub(super) fn next_edge(&mut self, counter: Reg, ahead: usize, team: Option<Reg>, row: (Reg, Reg)) -> Result<Edge> {
        let (start, len) = row;
        let code = &mut self.code;
        let mut at = counter;
        if ahead > 0 {
            at = code.add(at, ahead);
        }
        if let Some(team) = team {
            at = code.add(at, team);
        }
        let valid = code.lt(at, len);
        let number = code.add(start, at);
        // Without an edge, the first edge of the graph is read instead, and its values are not used.
        let number = code.selp(number, 0, valid);
        let (of, direction) = self.topology().expect("a pass has edges");
        let base = self.entry(Slot::Others(of, direction));
        let address = self.code.mad_wide(number, 4, base);
        let other = self.code.load_index(address);
        Ok(Edge { valid, number, other, position: None })
    }

    fn edge_instr(&mut self, index: usize, partials: &mut [Partial]) -> Result<()> {
        self.comment(index);
        let instr = &self.traversal.instrs[index];
        match instr.extent() {
            Extent::Total => self.accumulate(index),
            Extent::Edge => {
                let value = self.map(instr)?;
                self.keep(index, value)
            }
            Extent::Row => {
                let position = partials.binary_search_by_key(&index, Partial::index);
                self.add_edge(&mut partials[position.expect("every reduction has been begun, in order")])
            }
        }
    }

    /// The state of a reduction before the first edge.
    pub(super) fn begin_partial(&mut self, index: usize) -> Result<Option<Partial>> {
        let instr = &self.traversal.instrs[index];
        if instr.extent() != Extent::Row {
            return Ok(None);
        }
        let Some(width) = instr.width.as_fixed() else { return self.unsupported("a row of unknown length") };
        let start = |code: &mut Code, slots: &[bool], number: f64| -> Vec<Option<Reg>> {
            let made = |&has: &bool| has.then(|| code.mov_f32(Val::Imm(number as f32)));
            slots.iter().map(made).collect()
        };
        let has = |emit: &Self, layout: usize, position: usize| -> Vec<bool> {
            emit.layouts[layout].slots(position).iter().map(Option::is_some).collect()
        };
        let vals = |regs: Vec<Option<Reg>>| regs.into_iter().map(|reg| reg.map(Val::Reg)).collect();
        Ok(Some(match &instr.op {
            KernelOp::Segment(reduce, of) => {
                let (layout, positions) = self.layout(&[width]).expect("one width makes a chain");
                let slots = has(self, layout, positions[0]);
                let regs = vals(start(&mut self.code, &slots, reduce.identity()));
                Partial::Segment {
                    index,
                    reduce: *reduce,
                    of: *of,
                    held: Held { layout, position: positions[0], regs },
                }
            }
            KernelOp::WeightedSum { a, x } => {
                let weights = self.width_of(*a)?;
                let (layout, positions) = self.layout(&[width, weights]).expect("weights divide what they scale");
                let slots = has(self, layout, positions[0]);
                let regs = vals(start(&mut self.code, &slots, 0.0));
                let held = Held { layout, position: positions[0], regs };
                Partial::Weighted { index, a: (*a, positions[1]), x: *x, held }
            }
            KernelOp::SoftmaxSum { score, x, times } => {
                let heads = self.width_of(*score)?;
                let (layout, positions) =
                    self.layout(&[width - 2 * heads, heads]).expect("heads divide what they weight");
                let (wide, narrow) = (has(self, layout, positions[0]), has(self, layout, positions[1]));
                let state = State {
                    layout,
                    wide: positions[0],
                    heads: positions[1],
                    sums: start(&mut self.code, &wide, 0.0),
                    totals: start(&mut self.code, &narrow, 1.0),
                    largest: start(&mut self.code, &narrow, f64::NEG_INFINITY),
                };
                Partial::Softmax { index, score: *score, x: *x, times: *times, state }
            }
            KernelOp::SegmentArg { extreme, x, rank } => {
                let (layout, positions) = self.layout(&[width / 2, 1]).expect("one divides every width");
                let slots = has(self, layout, positions[0]);
                let state = Winners {
                    extreme: *extreme,
                    layout,
                    position: positions[0],
                    best: start(&mut self.code, &slots, extreme.reduce().identity()),
                    ranks: start(&mut self.code, &slots, f64::INFINITY),
                };
                Partial::Extreme { index, x: *x, rank: (*rank, positions[1]), state }
            }
            _ => unreachable!("no other operation reduces edges"),
        }))
    }

    /// Takes the edge at hand along.
    fn add_edge(&mut self, partial: &mut Partial) -> Result<()> {
        let valid = self.edge.current.as_ref().expect("an edge is at hand").valid;
        match partial {
            Partial::Segment { reduce, of, held, .. } => {
                let x = self.fetch(*of, held.layout, held.position)?;
                for (sum, x) in held.regs.iter().zip(x) {
                    let (Some(Val::Reg(sum)), Some(x)) = (*sum, x) else { continue };
                    match reduce {
                        Reduce::Sum => self.code.set_if(valid, sum, Opcode::Add(Type::F32), (sum, x)),
                        Reduce::Max => self.code.set_if(valid, sum, Opcode::Max(Type::F32), (sum, x)),
                        Reduce::Min => self.code.set_if(valid, sum, Opcode::Min(Type::F32), (sum, x)),
                        Reduce::Lse => {
                            let next = self.combine(Reduce::Lse, sum.into(), x);
                            self.code.assign_if(valid, sum, next);
                        }
                    }
                }
            }
            Partial::Weighted { a, x, held, .. } => {
                let weights = self.fetch(a.0, held.layout, a.1)?;
                let x = self.fetch(*x, held.layout, held.position)?;
                for (slot, (sum, x)) in held.regs.iter().zip(x).enumerate() {
                    let (Some(Val::Reg(sum)), Some(x)) = (*sum, x) else { continue };
                    let weight = weights[self.layouts[held.layout].narrower(held.position, slot, a.1)];
                    let weight = weight.expect("a weight for each element");
                    self.code.set_if(valid, sum, Opcode::Mad(Type::F32), (weight, x, sum));
                }
            }
            Partial::Extreme { x, rank, state, .. } => {
                let x = self.fetch(*x, state.layout, state.position)?;
                let ranks = self.fetch(rank.0, state.layout, rank.1)?;
                for (slot, x) in x.into_iter().enumerate() {
                    let Some(x) = x else { continue };
                    let rank = ranks[self.layouts[state.layout].narrower(state.position, slot, rank.1)];
                    self.compare(state, slot, (x, rank.expect("a rank for each edge")), Some(valid));
                }
            }
            Partial::Softmax { score, x, times, state, .. } => {
                let scores = self.fetch(*score, state.layout, state.heads)?;
                let x = self.fetch(*x, state.layout, state.wide)?;
                let times = times.map(|times| self.fetch(times, state.layout, state.heads)).transpose()?;
                let mut weights = vec![None; scores.len()];
                let mut scales = vec![None; scores.len()];
                for (head, score) in scores.iter().enumerate() {
                    let (Some(score), Some(largest), Some(total)) = (*score, state.largest[head], state.totals[head])
                    else {
                        continue;
                    };
                    let raised = math::max(&mut self.code, largest.into(), score);
                    let base = self.finite(raised);
                    let before = self.code.sub_f32(largest, base);
                    let scale = math::exp(&mut self.code, before.into());
                    let apart = self.code.sub_f32(score, base);
                    let weight = math::exp(&mut self.code, apart.into());
                    let next = math::fma(&mut self.code, total.into(), scale, weight);
                    self.code.assign_if(valid, total, next);
                    self.code.assign_if(valid, largest, raised);
                    let times = times.as_ref().and_then(|times| times[head]);
                    let weight = match times {
                        None => weight,
                        Some(times) => self.code.mul_f32(weight, times).into(),
                    };
                    (weights[head], scales[head]) = (Some(weight), Some(scale));
                }
                for (slot, (sum, x)) in state.sums.iter().zip(x).enumerate() {
                    let (Some(sum), Some(x)) = (*sum, x) else { continue };
                    let head = self.layouts[state.layout].narrower(state.wide, slot, state.heads);
                    let (weight, scale) = (weights[head].expect("a weight"), scales[head].expect("a scale"));
                    let scaled: Val = self.code.mul_f32(sum, scale).into();
                    self.code.set_if(valid, sum, Opcode::Mad(Type::F32), (weight, x, scaled));
                }
            }
        }
        Ok(())
    }

    /// Combines what the teams of the row have.
    pub(super) fn end_partial(&mut self, partial: Partial, len: Reg) -> Result<Value> {
        let bits: Vec<u32> = (self.shape.lanes..self.shape.row()).collect();
        Ok(match partial {
            Partial::Segment { reduce, mut held, .. } => {
                for reg in held.regs.iter_mut().flatten() {
                    *reg = self.across(reduce, *reg, &bits);
                }
                Value::One(held)
            }
            Partial::Weighted { mut held, .. } => {
                for reg in held.regs.iter_mut().flatten() {
                    *reg = self.across(Reduce::Sum, *reg, &bits);
                }
                Value::One(held)
            }
            Partial::Extreme { mut state, .. } => {
                for &bit in &bits {
                    let partners = |emit: &mut Self, own: &[Option<Reg>]| -> Vec<Option<Reg>> {
                        own.iter().map(|own| own.map(|own| emit.partner(own, bit))).collect()
                    };
                    let (best, ranks) = (partners(self, &state.best), partners(self, &state.ranks));
                    self.merge_winners(&mut state, &best, &ranks, None);
                }
                let Winners { layout, position, best, ranks, .. } = state;
                let held = |regs: Vec<Option<Reg>>| Held {
                    layout,
                    position,
                    regs: regs.into_iter().map(|reg| reg.map(Val::Reg)).collect(),
                };
                let width = self.layouts[layout].chain.width(position);
                Value::Parts(vec![(0, held(best)), (width, held(ranks))])
            }
            Partial::Softmax { mut state, .. } => {
                for &bit in &bits {
                    self.merge(&mut state, bit)?;
                }
                if !bits.is_empty() {
                    self.settle(&state, len);
                }
                let State { layout, heads, wide, sums, totals, largest } = state;
                let width = |position: usize| self.layouts[layout].chain.width(position);
                let offsets = [0, width(wide), width(wide) + width(heads)];
                let held = |regs: Vec<Option<Reg>>, position: usize| Held {
                    layout,
                    position,
                    regs: regs.into_iter().map(|reg| reg.map(Val::Reg)).collect(),
                };
                let parts = [held(sums, wide), held(totals, heads), held(largest, heads)];
                Value::Parts(offsets.into_iter().zip(parts).collect())
            }
        })
    }

    /// Takes an element and the rank of its edge where it wins, and where a condition holds.
    fn compare(&mut self, state: &mut Winners, slot: usize, (x, rank): (Val, Val), valid: Option<Reg>) {
        let (Some(best), Some(of)) = (state.best[slot], state.ranks[slot]) else { return };
        let wins = match state.extreme {
            Extreme::Max => Cmp::Gt,
            Extreme::Min => Cmp::Lt,
        };
        let wins = self.code.setp_f32(wins, x, best);
        let equal = self.code.setp_f32(Cmp::Eq, x, best);
        let lower = self.code.setp_f32(Cmp::Lt, rank, of);
        let tie = self.code.and_pred(equal, lower);
        let mut takes = self.code.or_pred(wins, tie);
        if let Some(valid) = valid {
            takes = self.code.and_pred(takes, valid);
        }
        self.code.assign_if(takes, best, x);
        self.code.assign_if(takes, of, rank);
    }

    /// Takes what wins of another state along. With a condition, only where it holds.
    pub(super) fn merge_winners(
        &mut self,
        state: &mut Winners,
        best: &[Option<Reg>],
        ranks: &[Option<Reg>],
        valid: Option<Reg>,
    ) {
        for (slot, (x, rank)) in best.iter().zip(ranks).enumerate() {
            let (Some(x), Some(rank)) = (*x, *rank) else { continue };
            self.compare(state, slot, (x.into(), rank.into()), valid);
        }
    }

    /// The same register of the thread whose number differs in a bit.
    fn partner(&mut self, own: Reg, bit: u32) -> Reg {
        if bit < WARP_BITS {
            return self.code.shuffle(own, 1u32 << bit);
        }
        let at = self.show(own.into(), Seen::Other(1 << bit));
        let other = self.code.load(StateSpace::Shared, at);
        self.code.block_sync();
        other
    }

    /// Takes along what the team has that differs in a bit.
    fn merge(&mut self, state: &mut State, bit: u32) -> Result<()> {
        let partners = |emit: &mut Self, own: &[Option<Reg>]| -> Vec<Option<Reg>> {
            own.iter().map(|own| own.map(|own| emit.partner(own, bit))).collect()
        };
        let largest = partners(self, &state.largest);
        let totals = partners(self, &state.totals);
        let other = State { sums: partners(self, &state.sums), totals, largest, ..*state };
        self.merge_with(state, &other, None);
        Ok(())
    }

    /// Takes along another state. With a condition, only where it holds.
    pub(super) fn merge_with(&mut self, state: &mut State, other: &State, valid: Option<Reg>) {
        let State { largest, totals, sums, .. } = other;
        let mut scales = vec![];
        for head in 0..state.largest.len() {
            let (Some(own), Some(total), Some(other), Some(other_total)) =
                (state.largest[head], state.totals[head], largest[head], totals[head])
            else {
                scales.push(None);
                continue;
            };
            let raised = math::max(&mut self.code, own.into(), other.into());
            let base = self.finite(raised);
            let scale = |emit: &mut Self, m: Reg| {
                let apart = emit.code.sub_f32(m, base);
                math::exp(&mut emit.code, apart.into())
            };
            let (mine, theirs) = (scale(self, own), scale(self, other));
            self.scaled_sum(total, mine, other_total, theirs, valid);
            match valid {
                None => self.code.assign(own, raised),
                Some(valid) => self.code.assign_if(valid, own, raised),
            }
            scales.push(Some((mine, theirs)));
        }
        for (slot, (sum, other)) in state.sums.iter().zip(sums).enumerate() {
            let (Some(sum), Some(other)) = (*sum, *other) else { continue };
            let head = self.layouts[state.layout].narrower(state.wide, slot, state.heads);
            let (mine, theirs) = scales[head].expect("a scale for each element");
            self.scaled_sum(sum, mine, other, theirs, valid);
        }
    }

    /// `own · mine + other · theirs`, rounded alike whichever is whose: both teams get the same bits.
    fn scaled_sum(&mut self, own: Reg, mine: Val, other: Reg, theirs: Val, valid: Option<Reg>) {
        let scaled = self.code.mul_f32(own, mine);
        let part = self.code.mul_f32(other, theirs);
        match valid {
            None => self.code.set(own, Opcode::Add(Type::F32), (scaled, part)),
            Some(valid) => self.code.set_if(valid, own, Opcode::Add(Type::F32), (scaled, part)),
        }
    }

    /// Without edges, the sums of exponentials are 1, however many teams have seen none.
    fn settle(&mut self, state: &State, len: Reg) {
        let none = self.code.eq(len, 0);
        for total in state.totals.iter().flatten() {
            self.code.assign_if(none, *total, Val::Imm(1.0));
        }
    }
}

impl Partial {
    pub(super) fn index(&self) -> usize {
        match self {
            Partial::Segment { index, .. }
            | Partial::Weighted { index, .. }
            | Partial::Softmax { index, .. }
            | Partial::Extreme { index, .. } => *index,
        }
    }
}
