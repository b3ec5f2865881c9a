//! From groups of operations to steps with buffers, blocks and tasks.

use std::collections::HashMap;

use hgnnc_ir::dataflow::{Dataflow, OutputKind};
use hgnnc_ir::ops::{Direction, Op};
use hgnnc_ir::types::{Stage, Value};

use super::facts::{Facts, op_name};
use super::memory::{Lifetime, place};
use super::region::lower_region;
use super::schedule::{Group, Kind, schedule};
use super::{Named, Plan, Product, ProductKind, Slabs, Split, StateId, Step, StepKind};
use crate::data::{BoundData, InputData};
use crate::error::{ExecError, Result};
use crate::raw::Buffer;

/// Plans a verified program for the sizes of its data. `states` are the optimiser states in the order of
/// their slabs.
///
/// # Errors
/// When an input is missing, or an operation or output cannot be executed.
pub fn plan(flow: &Dataflow, data: &BoundData, slabs: Slabs, states: &[StateId]) -> Result<Plan> {
    let facts = Facts::new(flow, data);
    let (fixed, varying) = schedule(&facts);
    let mut builder = Builder {
        facts: &facts,
        slabs,
        states,
        constants: vec![],
        buffers: HashMap::new(),
        partials_len: 0,
        scratch_len: 0,
        tile_len: 0,
        block_edges: 0,
        block_rows: 0,
    };
    builder.leaves()?;
    let (persistent_len, arena_len) = builder.place(&fixed, &varying);
    let prelude = fixed.iter().map(|group| builder.step(group)).collect::<Result<Vec<_>>>()?;
    let mut steps = varying.iter().map(|group| builder.step(group)).collect::<Result<Vec<_>>>()?;
    let mut plan = Plan {
        prelude,
        steps: vec![],
        arena_len,
        persistent_len,
        partials_len: builder.partials_len,
        scratch_len: builder.scratch_len,
        tile_len: builder.tile_len,
        block_edges: builder.block_edges,
        block_rows: builder.block_rows,
        constants: vec![],
        results: vec![],
        updates: vec![],
    };
    for output in &flow.outputs {
        if flow.is_sparse(output.value) {
            return Err(facts.error(output.value, "a sparse value cannot be an output"));
        }
        let mut buffer = builder.buffer(output.value);
        let target = match &output.kind {
            OutputKind::Result(name) => {
                let ty = flow.ty(output.value).clone();
                let (rows, width) = (facts.rows(&ty), facts.width(output.value));
                plan.results.push(Named { name: name.clone(), ty, rows, width, buffer });
                continue;
            }
            OutputKind::UpdateParam(param) => slabs.params + param.0,
            OutputKind::UpdateState(param, slot) => {
                let position = states.iter().position(|&s| s == (*param, *slot)).ok_or_else(|| {
                    facts.error(output.value, format!("optimiser state {slot} is not in the table of states"))
                })?;
                slabs.states + position as u32
            }
        };
        if buffer.slab >= slabs.params && buffer.slab < slabs.inputs && buffer.slab != target {
            // Updates are copied one after another: what another update overwrites is saved first.
            let to = Buffer { slab: slabs.arena, offset: plan.arena_len, len: buffer.len };
            plan.arena_len += buffer.len.next_multiple_of(super::memory::ALIGN);
            let node = flow.value(output.value);
            let mut shares = [0.0; 5];
            shares[stage_index(node.stage)] = 1.0;
            let kind = StepKind::Copy { from: buffer, to };
            steps.push(Step { kind, phase: node.phase, shares, label: "copy".into() });
            buffer = to;
        }
        plan.updates.push((target, buffer));
    }
    plan.steps = steps;
    plan.constants = builder.constants;
    Ok(plan)
}

/// Position of a stage in [`Stage::ALL`].
pub(super) fn stage_index(stage: Stage) -> usize {
    match stage {
        Stage::FP => 0,
        Stage::NA => 1,
        Stage::SF => 2,
        Stage::LC => 3,
        Stage::PU => 4,
    }
}

/// State of planning one program.
pub(super) struct Builder<'f, 'a> {
    pub facts: &'f Facts<'a>,
    slabs: Slabs,
    states: &'f [StateId],
    constants: Vec<f32>,
    /// Where stored values are, by root.
    buffers: HashMap<Value, Buffer>,
    partials_len: usize,
    pub scratch_len: usize,
    pub tile_len: usize,
    pub block_edges: usize,
    pub block_rows: usize,
}

impl Builder<'_, '_> {
    /// Where a stored value is.
    pub fn buffer(&self, value: Value) -> Buffer {
        self.buffers[&self.facts.root(value)]
    }

    /// Where a value is, if it is stored.
    pub fn stored(&self, root: Value) -> Option<Buffer> {
        self.buffers.get(&root).copied()
    }

    /// Room for partial results of `tasks` tasks, after `used` elements of the same step.
    pub fn partial(&mut self, used: &mut usize, tasks: usize, width: usize) -> usize {
        let offset = *used;
        *used += (tasks * width).next_multiple_of(super::memory::ALIGN);
        self.partials_len = self.partials_len.max(*used);
        offset
    }

    fn leaves(&mut self) -> Result<()> {
        let facts = self.facts;
        for value in facts.flow.handles().filter(|&v| facts.root(v) == v && facts.is_live(v)) {
            let len = facts.len(value);
            let at = |slab| Buffer { slab, offset: 0, len };
            let buffer = match &facts.flow.value(value).op {
                Op::Const(number) => self.constant(*number as f32),
                Op::Count(space) => {
                    let rows = facts.rows(&hgnnc_ir::Type::new(*space, vec![]));
                    self.constant(rows as f32)
                }
                Op::Param(param) => at(self.slabs.params + param.0),
                Op::State(param, slot) => {
                    let position = self.states.iter().position(|&s| s == (*param, *slot));
                    let position = position.ok_or_else(|| facts.error(value, "no such optimiser state"))?;
                    at(self.slabs.states + position as u32)
                }
                Op::Input(input) => self.input(input.index(), len)?,
                _ => continue,
            };
            self.buffers.insert(value, buffer);
        }
        Ok(())
    }

    fn input(&self, index: usize, len: usize) -> Result<Buffer> {
        let name = &self.facts.flow.inputs[index].name;
        let wrong = |found: String| ExecError::Shape {
            what: format!("the input `{name}`"),
            found,
            expected: format!("{len} elements"),
        };
        let slab = self.slabs.inputs + index as u32;
        match self.facts.data.inputs.get(index) {
            None | Some(InputData::Missing) => Err(wrong("no data".into())),
            Some(InputData::StepNumber) => Ok(Buffer { slab: self.slabs.counters, offset: 0, len: 1 }),
            Some(InputData::EpochNumber) => Ok(Buffer { slab: self.slabs.counters, offset: 1, len: 1 }),
            Some(InputData::Numbers(numbers)) if numbers.len() == len => Ok(Buffer { slab, offset: 0, len }),
            Some(InputData::Classes(classes)) if classes.len() == len => Ok(Buffer { slab, offset: 0, len }),
            Some(InputData::Numbers(numbers)) => Err(wrong(format!("{} elements", numbers.len()))),
            Some(InputData::Classes(classes)) => Err(wrong(format!("{} labels", classes.len()))),
        }
    }

    fn constant(&mut self, number: f32) -> Buffer {
        let known = self.constants.iter().position(|c| c.to_bits() == number.to_bits());
        let offset = known.unwrap_or_else(|| {
            self.constants.push(number);
            self.constants.len() - 1
        });
        Buffer { slab: self.slabs.constants, offset, len: 1 }
    }

    /// Places all values that more than one step uses. Returns the lengths of the persistent slab and the arena.
    fn place(&mut self, fixed: &[Group], varying: &[Group]) -> (usize, usize) {
        const END: usize = usize::MAX;
        let facts = self.facts;
        let mut step_of: HashMap<Value, usize> = HashMap::new();
        let all: Vec<&Group> = fixed.iter().chain(varying).collect();
        for (step, group) in all.iter().enumerate() {
            step_of.extend(group.members.iter().map(|&m| (m, step)));
        }
        // The last step that reads a value, for those that must be stored.
        let mut last: HashMap<Value, usize> = HashMap::new();
        for (step, group) in all.iter().enumerate() {
            let mut pending: Vec<Value> = group.members.clone();
            let mut seen: std::collections::HashSet<Value> = pending.iter().copied().collect();
            while let Some(value) = pending.pop() {
                for &arg in &facts.flow.value(value).args {
                    let root = facts.root(arg);
                    if !seen.insert(root) || facts.is_leaf(root) {
                        continue;
                    }
                    if facts.topology(root).is_some() {
                        pending.push(root);
                    } else if step_of[&root] != step {
                        let entry = last.entry(root).or_insert(step);
                        *entry = (*entry).max(step);
                    }
                }
            }
            for &member in &group.members {
                let partial = matches!(facts.flow.value(member).op, Op::ReduceSpace(_) | Op::Outer { .. });
                if partial || matches!(group.kind, Kind::Product(_)) {
                    last.entry(member).or_insert(step);
                }
            }
        }
        for output in &facts.flow.outputs {
            let root = facts.root(output.value);
            if step_of.contains_key(&root) {
                last.insert(root, END);
            }
        }
        let mut stored: Vec<(Value, usize)> = last.into_iter().collect();
        stored.sort_unstable();
        let (mut persistent, mut arena) = (vec![], vec![]);
        for (root, last) in stored {
            let start = step_of[&root];
            let life = Lifetime { start, end: last, len: facts.len(root) };
            if start < fixed.len() {
                // A run may begin anew: what it reads from the prelude stays.
                let end = if last >= fixed.len() { END } else { last };
                persistent.push((root, Lifetime { end, ..life }));
            } else {
                arena.push((root, life));
            }
        }
        let mut totals = [0, 0];
        for ((values, slab), total) in
            [(persistent, self.slabs.persistent), (arena, self.slabs.arena)].into_iter().zip(&mut totals)
        {
            let lives: Vec<Lifetime> = values.iter().map(|&(_, life)| life).collect();
            let (offsets, len) = place(&lives);
            *total = len;
            for ((root, life), offset) in values.into_iter().zip(offsets) {
                self.buffers.insert(root, Buffer { slab, offset, len: life.len });
            }
        }
        (totals[0], totals[1])
    }

    fn step(&mut self, group: &Group) -> Result<Step> {
        match group.kind {
            Kind::Product(value) => Ok(self.product(value)),
            Kind::Unit | Kind::Elements(_) | Kind::Map(_) | Kind::Edges(..) => {
                let (region, shares) = lower_region(self, group)?;
                let phase = self.facts.flow.value(group.members[0]).phase;
                Ok(Step { label: self.label(group), kind: StepKind::Region(region), phase, shares })
            }
        }
    }

    /// Operations and place of a step, for people.
    fn label(&self, group: &Group) -> String {
        let facts = self.facts;
        let place = match group.kind {
            Kind::Unit | Kind::Elements(_) => "parameters".to_owned(),
            Kind::Map(space) => match space {
                hgnnc_ir::Space::Vertices(v) => facts.flow.vertex_types[v.index()].name.clone(),
                hgnnc_ir::Space::Unit | hgnnc_ir::Space::Edges(_) => "rows".to_owned(),
            },
            Kind::Product(value) => op_name(&facts.flow.value(value).op).to_owned(),
            Kind::Edges(topology, out) => {
                let end = match Kind::direction(out) {
                    Direction::In => "in-edges",
                    Direction::Out => "out-edges",
                };
                let name = &facts.data.topology(topology).name;
                format!("{end} of {name}")
            }
        };
        let mut ops: Vec<&str> = vec![];
        for &member in &group.members {
            let name = op_name(&facts.flow.value(member).op);
            if !ops.contains(&name) {
                ops.push(name);
            }
        }
        format!("{place}: {}", ops.join(", "))
    }

    fn product(&mut self, value: Value) -> Step {
        let facts = self.facts;
        let node = facts.flow.value(value);
        let (kind, of) = match &node.op {
            Op::MatMul { batch } => (ProductKind::MatMul, facts.extents(facts.flow.ty(node.args[1]), *batch)),
            Op::MatMulT { batch } => (ProductKind::MatMulT, facts.extents(facts.flow.ty(node.args[1]), *batch)),
            Op::Outer { batch } => (ProductKind::Outer, facts.extents(&node.ty, *batch)),
            _ => unreachable!("only products are scheduled as products"),
        };
        let rows = facts.rows(facts.flow.ty(node.args[0]));
        let split = match kind {
            ProductKind::MatMul | ProductKind::MatMulT => {
                // About a million multiply-adds per task, in whole register tiles.
                let per_row = (of.batch * of.k * of.n).max(1);
                Split::Rows((1_000_000 / per_row).clamp(64, 1024).next_multiple_of(16))
            }
            ProductKind::Outer if of.batch == 1 && of.k >= 256 => Split::Bands(64),
            ProductKind::Outer => {
                // At most 16 parts, and not more memory for them than 4 MiB where one part allows it.
                let size = (of.batch * of.k * of.n).max(1);
                let parts = ((1 << 20) / size).clamp(1, 16).min(rows.div_ceil(512).max(1));
                Split::Parts(rows.div_ceil(parts).max(1))
            }
        };
        if let Split::Parts(chunk) = split {
            let parts = rows.div_ceil(chunk).max(1);
            self.partial(&mut 0, parts, of.batch * of.k * of.n);
        }
        let (x, y, out) = (self.buffer(node.args[0]), self.buffer(node.args[1]), self.buffer(value));
        let mut shares = [0.0; 5];
        shares[stage_index(node.stage)] = 1.0;
        let kind = StepKind::Product(Product { kind, of, rows, x, y, out, split });
        let label = format!("{} [{rows}; {} x {} x {}]", op_name(&node.op), of.batch, of.k, of.n);
        Step { kind, phase: node.phase, shares, label }
    }
}
