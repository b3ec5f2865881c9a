//! Passes over the edges of a row, one edge after another.

use hgnnc_ir::{BinaryOp, Extreme, Reduce};
use hgnnc_kernel_ir::kernel::{Dest, Extent, KernelOp};

use super::{EDGES_AT_ONCE, Result, Wide};
use crate::isa::{Cmp, Reg, StateSpace, Val};
use crate::math;

/// Does a reduction over edges round, so that the order of many edges matters?
pub(super) fn is_rounded(op: &KernelOp) -> bool {
    match op {
        KernelOp::Segment(reduce, _) => matches!(reduce, Reduce::Sum | Reduce::Lse),
        KernelOp::WeightedSum { .. } | KernelOp::SoftmaxSum { .. } => true,
        _ => false,
    }
}

impl Wide<'_> {
    /// Goes over the edges of the row once.
    pub(super) fn edge_pass(&mut self, number: usize, edges: &[usize]) -> Result<()> {
        self.emit.code.comment(format!("pass {} over the edges", number + 1));
        let reductions: Vec<usize> =
            edges.iter().copied().filter(|&index| self.instr(index).extent() == Extent::Row).collect();
        for &index in &reductions {
            self.begin_reduction(index)?;
        }
        self.wait();
        let (start, len, _) = self.emit.edges_of_row()?;
        let counter = self.emit.code.mov(0);
        // Values of the row wait until the row is complete, those of an edge until the edge is.
        let of_row = std::mem::take(&mut self.late);
        self.emit.code.begin_loop();
        self.repeat((counter, 1), len, |wide, counter| {
            let edge = wide.emit.next_edge(counter, 0, None, (start, len))?;
            wide.emit.begin_edge(edge);
            for &index in edges {
                wide.write(index)?;
            }
            wide.store_late()?;
            wide.emit.end_edge();
            wide.end_edges(&reductions, counter, len)
        })?;
        self.emit.code.end_loop();
        self.late = of_row;
        for index in reductions {
            match self.instr(index).dest {
                Dest::Buffer(_) if self.is_late(index) => self.late.push(index),
                Dest::Buffer(buffer) => {
                    let to = self.stored_at(index, buffer)?;
                    self.copy(index, to)?;
                }
                Dest::Local(_) => {}
            }
        }
        Ok(())
    }

    /// Adds what a number of edges have given to the reductions of the row, once there are so many,
    /// or at the last edge.
    pub(super) fn end_edges(&mut self, reductions: &[usize], counter: Reg, len: Reg) -> Result<()> {
        let rounded: Vec<usize> =
            reductions.iter().copied().filter(|&index| is_rounded(&self.instr(index).op)).collect();
        if rounded.is_empty() {
            return Ok(());
        }
        let on = self.emit.code.label();
        let code = &mut self.emit.code;
        let seen = code.add(counter, 1);
        let within = code.and(seen, EDGES_AT_ONCE - 1);
        let more = code.ne(within, 0);
        let before_last = code.lt(seen, len);
        let goes_on = code.and_pred(more, before_last);
        code.jump_if(goes_on, on);
        for index in rounded {
            self.merge(index)?;
            self.begin_state(index, self.width(index)?)?;
        }
        self.wait();
        self.emit.code.place(on);
        Ok(())
    }

    /// Adds what some edges have given to a reduction of the row.
    pub(super) fn merge(&mut self, index: usize) -> Result<()> {
        let width = self.width(index)?;
        let reduce = match &self.instr(index).op {
            KernelOp::Segment(reduce, _) => *reduce,
            KernelOp::SoftmaxSum { score, .. } => {
                let heads = self.emit.width_of(*score)?;
                return self.merge_softmax(index, width - 2 * heads, heads);
            }
            _ => Reduce::Sum,
        };
        let (sums, parts) = (self.part(index, 0), self.part(index, width));
        self.each_element(width, |wide, at| {
            let (sum, part) = (
                wide.load(StateSpace::Global, sums, Some(at), None),
                wide.load(StateSpace::Global, parts, Some(at), None),
            );
            let next = wide.emit.combine(reduce, sum, part);
            wide.store(&[sums], Some(at), next, None);
            Ok(())
        })
    }

    /// The same of an online softmax of so many elements and heads.
    pub(super) fn merge_softmax(&mut self, index: usize, elements: usize, heads: usize) -> Result<()> {
        let width = elements + 2 * heads;
        let row = |wide: &mut Self, first: usize| [0, width].map(|state| wide.part(index, state + first));
        let (sums, totals, largest) = (row(self, 0), row(self, elements), row(self, elements + heads));
        let scales = [0, heads].map(|first| self.part(index, 2 * width + first));
        self.each_element(heads, |wide, head| {
            let [own, other] = largest.map(|row| wide.load(StateSpace::Global, row, Some(head), None));
            let raised = math::max(&mut wide.emit.code, own, other);
            let base = wide.emit.finite(raised);
            let mut parts = vec![];
            for ((largest, total), scaled) in [own, other].into_iter().zip(totals).zip(scales) {
                let apart = math::binary(&mut wide.emit.code, BinaryOp::Sub, largest, base);
                let scale = math::exp(&mut wide.emit.code, apart);
                wide.store(&[scaled], Some(head), scale, None);
                let total = wide.load(StateSpace::Global, total, Some(head), None);
                parts.push(math::binary(&mut wide.emit.code, BinaryOp::Mul, total, scale));
            }
            let total = math::binary(&mut wide.emit.code, BinaryOp::Add, parts[0], parts[1]);
            wide.store(&[totals[0]], Some(head), total, None);
            wide.store(&[largest[0]], Some(head), raised, None);
            Ok(())
        })?;
        self.wait();
        self.each_element(elements, |wide, at| {
            let head = Some(wide.emit.code.div(at, elements / heads));
            let mut parts = vec![];
            for (sum, scale) in sums.into_iter().zip(scales) {
                let (sum, scale) = (
                    wide.load(StateSpace::Global, sum, Some(at), None),
                    wide.load(StateSpace::Global, scale, head, None),
                );
                parts.push(math::binary(&mut wide.emit.code, BinaryOp::Mul, sum, scale));
            }
            let sum = math::binary(&mut wide.emit.code, BinaryOp::Add, parts[0], parts[1]);
            wide.store(&[sums[0]], Some(at), sum, None);
            Ok(())
        })
    }

    /// Writes the state of a reduction over edges before the first edge; rounded sums have a second
    /// state, for the latest edges.
    pub(super) fn begin_reduction(&mut self, index: usize) -> Result<()> {
        self.begin_state(index, 0)?;
        if is_rounded(&self.instr(index).op) {
            self.begin_state(index, self.width(index)?)?;
        }
        Ok(())
    }

    /// The same for the state that begins at an element of what the block keeps.
    pub(super) fn begin_state(&mut self, index: usize, mut first: usize) -> Result<()> {
        let width = self.width(index)?;
        let starts = match &self.instr(index).op {
            KernelOp::Segment(reduce, _) => vec![(width, reduce.identity())],
            KernelOp::SegmentArg { extreme, .. } => {
                vec![(width / 2, extreme.reduce().identity()), (width / 2, f64::INFINITY)]
            }
            KernelOp::SoftmaxSum { score, .. } => {
                let heads = self.emit.width_of(*score)?;
                vec![(width - 2 * heads, 0.0), (heads, 1.0), (heads, f64::NEG_INFINITY)]
            }
            _ => vec![(width, 0.0)],
        };
        for (count, start) in starts {
            let row = self.part(index, first);
            self.each_element(count, |wide, at| {
                wide.store(&[row], Some(at), Val::Imm(start as f32), None);
                Ok(())
            })?;
            first += count;
        }
        Ok(())
    }

    /// The address of an element of what the block keeps of an instruction.
    pub(super) fn part(&mut self, index: usize, first: usize) -> Reg {
        let base = self.address(index);
        match first {
            0 => base,
            first => self.emit.code.add64(base, 4 * first),
        }
    }

    /// Takes the edge at hand along in a reduction.
    pub(super) fn add_edge(&mut self, index: usize) -> Result<()> {
        let width = self.width(index)?;
        let state = if is_rounded(&self.instr(index).op) { width } else { 0 };
        match &self.instr(index).op {
            KernelOp::Segment(reduce, x) => {
                let (x, sums) = (self.locate(index, *x)?, self.part(index, state));
                self.each_element(width, |wide, at| {
                    let (sum, x) = (wide.load(StateSpace::Global, sums, Some(at), None), wide.spread(&x, width, at)?);
                    let next = wide.emit.combine(*reduce, sum, x);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            KernelOp::WeightedSum { a, x } => {
                let (a, x, sums) = (self.locate(index, *a)?, self.locate(index, *x)?, self.part(index, state));
                self.each_element(width, |wide, at| {
                    let sum = wide.load(StateSpace::Global, sums, Some(at), None);
                    let (a, x) = (wide.spread(&a, width, at)?, wide.spread(&x, width, at)?);
                    let next = math::fma(&mut wide.emit.code, a, x, sum);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            KernelOp::SegmentArg { extreme, x, rank } => {
                let (x, rank) = (self.locate(index, *x)?, self.locate(index, *rank)?);
                let (best, ranks) = (self.part(index, 0), self.part(index, width / 2));
                let wins = match extreme {
                    Extreme::Max => Cmp::Gt,
                    Extreme::Min => Cmp::Lt,
                };
                self.each_element(width / 2, |wide, at| {
                    let (x, rank) = (wide.spread(&x, width / 2, at)?, wide.spread(&rank, width / 2, at)?);
                    let known = wide.load(StateSpace::Global, best, Some(at), None);
                    let of = wide.load(StateSpace::Global, ranks, Some(at), None);
                    let code = &mut wide.emit.code;
                    let wins = code.setp_f32(wins, x, known);
                    let equal = code.setp_f32(Cmp::Eq, x, known);
                    let lower = code.setp_f32(Cmp::Lt, rank, of);
                    let tie = code.and_pred(equal, lower);
                    let takes = code.or_pred(wins, tie);
                    wide.store(&[best], Some(at), x, Some(takes));
                    wide.store(&[ranks], Some(at), rank, Some(takes));
                    Ok(())
                })
            }
            KernelOp::SoftmaxSum { score, x, times } => {
                let heads = self.emit.width_of(*score)?;
                let (score, x) = (self.locate(index, *score)?, self.locate(index, *x)?);
                let times = times.map(|times| self.locate(index, times)).transpose()?;
                let elements = width - 2 * heads;
                let [sums, totals, largest] =
                    [0, elements, elements + heads].map(|first| self.part(index, state + first));
                let [weights, scales] = [0, heads].map(|first| self.part(index, 2 * width + first));
                self.each_element(heads, |wide, head| {
                    let at = Some(head);
                    let score = wide.spread(&score, heads, head)?;
                    let (before, total) = (
                        wide.load(StateSpace::Global, largest, at, None),
                        wide.load(StateSpace::Global, totals, at, None),
                    );
                    let raised = math::max(&mut wide.emit.code, before, score);
                    let base = wide.emit.finite(raised);
                    let apart = math::binary(&mut wide.emit.code, BinaryOp::Sub, before, base);
                    let scale = math::exp(&mut wide.emit.code, apart);
                    let apart = math::binary(&mut wide.emit.code, BinaryOp::Sub, score, base);
                    let weight = math::exp(&mut wide.emit.code, apart);
                    let next = math::fma(&mut wide.emit.code, total, scale, weight);
                    wide.store(&[totals], at, next, None);
                    wide.store(&[largest], at, raised, None);
                    wide.store(&[scales], at, scale, None);
                    let weight = match &times {
                        None => weight,
                        Some(times) => {
                            let times = wide.spread(times, heads, head)?;
                            math::binary(&mut wide.emit.code, BinaryOp::Mul, weight, times)
                        }
                    };
                    wide.store(&[weights], at, weight, None);
                    Ok(())
                })?;
                self.wait();
                self.each_element(elements, |wide, at| {
                    let head = Some(wide.emit.code.div(at, elements / heads));
                    let (scale, weight) = (
                        wide.load(StateSpace::Global, scales, head, None),
                        wide.load(StateSpace::Global, weights, head, None),
                    );
                    let (sum, x) =
                        (wide.load(StateSpace::Global, sums, Some(at), None), wide.spread(&x, elements, at)?);
                    let scaled = math::binary(&mut wide.emit.code, BinaryOp::Mul, sum, scale);
                    let next = math::fma(&mut wide.emit.code, weight, x, scaled);
                    wide.store(&[sums], Some(at), next, None);
                    Ok(())
                })
            }
            _ => unreachable!("no other operation reduces edges"),
        }
    }
}
