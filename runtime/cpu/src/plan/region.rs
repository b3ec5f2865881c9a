//! Plans a traversal as a region, and binds the region to the sizes of data.
//!
//! Instructions and loops are fixed by the nest. Planning resolves operands and what their producers are; binding divides
//! rows into blocks by cache size and edges, and blocks into tasks.

use std::cell::Cell;
use std::ops::Range;

use hgnnc_data::{BoundData, ExecError, InputData, Result};
use hgnnc_ir::width::Width;
use hgnnc_ir::{DType, Direction, Reduce, Space, VertexType};
use hgnnc_kernel_ir::kernel::place::{Lifetime, sum_alive};
use hgnnc_kernel_ir::kernel::{self, Dest, Extent, Index, KernelOp, Rows, Source, Traversal};
use hgnnc_kernel_ir::loops::function::Shape;
use hgnnc_kernel_ir::loops::{self, CallResult, Nest, access, producers};

use super::bind::{Binder, stage_index};
use super::{
    Access, Base, BlockOp, Domain, FusedLoop, IndexArray, Level, Local, LoopResult, LoopStep, MaskRows, NativeLoop,
    Operand, Partial, Place, Region, SplitRows, block_extents, block_widths,
};

/// Elements of a tile of gathered operands: two fit in the L1 cache.
const TILE: usize = 2048;
/// Maximum number of tasks of a region.
const TASKS: usize = 256;
/// Maximum number of tasks of a region with partial results, which are combined sequentially.
const PARTIAL_TASKS: usize = 32;
/// Maximum total elements of the partial results of one value, except for few tasks.
const PARTS: usize = 64 * 1024;

/// Facts about the operations of a region that its division into blocks and tasks depends on. They hold for all sizes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Needs {
    /// Live elements per row and per edge of a block.
    row_peak: usize,
    edge_peak: usize,
    /// Whether values of edges exist for a block.
    keeps_edges: bool,
    /// Elements of the widest rows of a tile.
    widest: usize,
    /// Estimated cost of a row without its edges, and of an edge.
    cost: [f64; 2],
    /// For each stage: number of operations, and their cost per row and per edge.
    stage_costs: [[f64; 3]; 5],
    /// Whether some operation needs the row of each edge, and the graphs for whose dropout masks it does if
    /// their edges are in another order than those of the dataset.
    uses_own: bool,
    masks: Vec<usize>,
    /// Vertex counts, if the width of a value depends on them.
    widths_for: Option<Vec<usize>>,
    /// Whether all elements of a sparse input were seen to be the same number.
    same_elements: bool,
}

/// Plans a traversal; its region is not yet bound to sizes.
pub(super) fn plan_region(binder: &mut Binder<'_>, traversal: &Traversal, nest: &Nest) -> Result<Region> {
    let mut region = RegionBinder {
        binder,
        nest,
        traversal,
        widths: kernel::Program::local_widths(traversal),
        made_by: producers(&traversal.instrs),
        ops: vec![],
        locals: vec![],
        partials: vec![],
        uses_own_end: false,
        full_columns: None,
        needs: Needs::default(),
        widths_vary: Cell::new(false),
    };
    for index in 0..traversal.instrs.len() {
        region.instr(index)?;
    }
    region.finish()
}

struct RegionBinder<'b, 'a> {
    binder: &'b mut Binder<'a>,
    nest: &'b Nest,
    traversal: &'b Traversal,
    /// Width of each local of the nest.
    widths: Vec<Width>,
    /// Earlier instructions that make the operands of each instruction.
    made_by: Vec<Vec<Option<usize>>>,
    /// One operation for each instruction.
    ops: Vec<BlockOp>,
    locals: Vec<Local>,
    partials: Vec<Partial>,
    uses_own_end: bool,
    full_columns: Option<usize>,
    needs: Needs,
    /// Whether a width depends on vertex counts.
    widths_vary: Cell<bool>,
}

impl RegionBinder<'_, '_> {
    /// Evaluates the width of a value.
    fn eval(&self, width: &Width) -> usize {
        self.widths_vary.set(self.widths_vary.get() || width.as_fixed().is_none());
        self.binder.eval(width)
    }

    /// Rows for which a dropout mask at a level is drawn.
    fn drawn(&self, at: Level) -> MaskRows {
        let tables = &self.binder.program.tables;
        match (&self.traversal.rows, at) {
            (Rows::Vertices(vertex), _) => MaskRows::Vertices(*vertex),
            (Rows::Edges(graph, _) | Rows::Endpoints(graph, _), Level::Edge) => MaskRows::Edges(graph.index()),
            (Rows::Edges(graph, Direction::In), Level::Row) => MaskRows::Vertices(tables.graphs[graph.index()].dst),
            (Rows::Edges(graph, Direction::Out), Level::Row) => MaskRows::Vertices(tables.graphs[graph.index()].src),
            (Rows::Elements(pattern, _), Level::Edge) | (Rows::Elements(pattern, Direction::In), _) => {
                MaskRows::Vertices(tables.patterns[pattern.index()].vertex)
            }
            // With renumbered vertices there are no masks over active vertices.
            (Rows::Once | Rows::Each(_) | Rows::Endpoints(..) | Rows::Elements(_, Direction::Out), _) => MaskRows::Rows,
        }
    }

    /// Columns of the sparse matrix whose elements the rows own.
    fn columns(&self) -> Option<usize> {
        match self.traversal.rows {
            Rows::Once | Rows::Each(_) | Rows::Vertices(_) | Rows::Edges(..) | Rows::Endpoints(..) => None,
            Rows::Elements(pattern, _) => Some(self.binder.program.tables.patterns[pattern.index()].columns),
        }
    }

    /// Binds the instruction at an index.
    fn instr(&mut self, index: usize) -> Result<()> {
        let instr = &self.traversal.instrs[index];
        if let KernelOp::Mask { .. } = instr.op {
            if let MaskRows::Edges(graph) = self.drawn(instr.level) {
                self.needs.masks.push(graph);
            }
            self.needs.uses_own |= instr.level == Level::Edge && self.columns().is_some();
        }
        let named = instr.op.try_map(
            |position, &operand| -> Result<Operand> {
                let bound = self.operand(index, operand, self.made_by[index][position])?;
                let uniform = self.same_elements(operand).filter(|_| !instr.op.takes_contiguous_rows(position));
                Ok(match uniform {
                    Some(number) => {
                        self.needs.same_elements = true;
                        let base = Base::Stored(self.binder.source(Source::Const(number.into())));
                        Operand { base, access: Access::Same, ..bound }
                    }
                    None => bound,
                })
            },
            Width::clone,
        )?;
        let op = named.map(|&operand| operand, |width| self.eval(width));
        let width = self.eval(&instr.width);
        let level = match instr.extent() {
            Extent::Row => Level::Row,
            Extent::Edge => Level::Edge,
            Extent::Total => {
                let reduce = if let KernelOp::ReduceAll(reduce, _) = instr.op { reduce } else { Reduce::Sum };
                let Dest::Buffer(buffer) = instr.dest else { unreachable!("totals are stored") };
                let out = self.partials.len() as u32;
                let out_buffer = self.binder.source(Source::Buffer(buffer));
                self.partials.push(Partial { out: out_buffer, reduce, level: instr.level, width, offset: 0 });
                self.ops.push(BlockOp { op, level: instr.level, out, stage: instr.stage });
                return Ok(());
            }
        };
        let place = match instr.dest {
            Dest::Local(_) => Place::Scratch,
            Dest::Buffer(buffer) => Place::Stored(self.binder.source(Source::Buffer(buffer))),
        };
        let out = self.locals.len() as u32;
        self.locals.push(Local { level, width, place });
        self.ops.push(BlockOp { op, level: instr.level, out, stage: instr.stage });
        Ok(())
    }

    /// Binds an operand of an instruction, which an earlier instruction may make.
    fn operand(&mut self, index: usize, operand: kernel::Operand, made_by: Option<usize>) -> Result<Operand> {
        let instr = &self.traversal.instrs[index];
        let width = self.binder.program.operand_width(&self.traversal.rows, &self.widths, operand);
        let width = self.eval(&width.expect("in a verified program every operand has a width"));
        let access = access(self.binder.program, &self.traversal.rows, instr.level, operand, made_by.is_some());
        if access == Access::DenseCell {
            self.full_columns = self.columns();
        }
        self.needs.uses_own |= matches!(access, Access::Owner | Access::DenseCell);
        self.uses_own_end |= matches!(access, Access::OwnerVertex | Access::OwnerEnd);
        let base = match made_by {
            Some(made_by) => Base::Local(self.ops[made_by].out),
            None if let Some(input) = self.labels(operand.source) => Base::Labels(input),
            None => Base::Stored(self.binder.source(operand.source)),
        };
        Ok(Operand { base, access, width })
    }

    /// Index of an input of class labels.
    fn labels(&self, source: Source) -> Option<u32> {
        let Source::Buffer(buffer) = source else { return None };
        let decl = self.binder.program.buffer(buffer);
        match decl.contents {
            kernel::Contents::Input(input) if decl.ty.dtype == DType::I32 => Some(input.0),
            _ => None,
        }
    }

    /// The common value of all elements of a sparse input, such as the 1 of bags of words: micro-kernels read it as a
    /// scalar instead of gathering it in column order.
    fn same_elements(&self, operand: kernel::Operand) -> Option<f32> {
        let (Source::Buffer(buffer), Index::Edge) = (operand.source, operand.index) else { return None };
        let kernel::Contents::Input(input) = self.binder.program.buffer(buffer).contents else { return None };
        if !self.binder.program.tables.inputs[input.index()].ty.is_sparse() {
            return None;
        }
        let Some(InputData::Numbers(numbers)) = self.binder.data.inputs.get(input.index()) else { return None };
        let (&first, rest) = numbers.split_first()?;
        rest.iter().all(|x| x.to_bits() == first.to_bits()).then_some(first)
    }

    /// Binds a loop.
    fn fused_loop(&mut self, looped: &loops::Loop) -> Result<FusedLoop> {
        let mut steps = vec![];
        for step in &looped.steps {
            steps.push(match step {
                loops::Step::Instr(instr) => LoopStep::Op(*instr),
                loops::Step::Call(call) => LoopStep::Native(self.call(looped.level, call)?),
            });
        }
        Ok(FusedLoop { level: looped.level, tile: looped.tile, steps })
    }

    fn fused_loops(&mut self, loops: &[loops::Loop]) -> Result<Vec<FusedLoop>> {
        loops.iter().map(|looped| self.fused_loop(looped)).collect()
    }

    fn call(&mut self, level: Level, call: &loops::Call) -> Result<NativeLoop> {
        let mut arrays = vec![];
        for &operand in &call.arrays {
            // All reads of an operand in a call have one producer, if any.
            let read = call.instrs.iter().find_map(|&instr| {
                let operands = self.traversal.instrs[instr].op.operands();
                let position = operands.iter().position(|other| *other == operand)?;
                Some((instr, self.made_by[instr][position]))
            });
            let (instr, made_by) = read.expect("the arrays of a verified call are operands of its instructions");
            arrays.push(self.operand(instr, operand, made_by)?);
        }
        let out = |instr: usize| self.ops[instr].out;
        Ok(NativeLoop {
            ops: call.instrs.clone(),
            function: call.function,
            segments: self.binder.functions[call.function].shape == Shape::Segments,
            arrays,
            indices: call
                .indices
                .iter()
                .map(|index| match *index {
                    loops::IndexArray::Picked(access) => IndexArray::Picked(access),
                    loops::IndexArray::Labels(input) => IndexArray::Labels(input.index()),
                })
                .collect(),
            results: call
                .results
                .iter()
                .map(|result| match *result {
                    CallResult::Tile(instr) => LoopResult::Tile(out(instr)),
                    CallResult::Owners(instr) => LoopResult::Owners(out(instr)),
                    CallResult::Total(instr) => LoopResult::Partial(out(instr)),
                })
                .collect(),
            level,
            replaced: call.replaced.clone(),
        })
    }

    /// Binds the loops, and collects what dividing the region takes.
    fn finish(mut self) -> Result<Region> {
        let peaks = [Level::Row, Level::Edge].map(|level| self.peak(level));
        let nest = self.nest;
        let mut groups = vec![];
        for group in &nest.groups {
            groups.push(self.fused_loops(group)?);
        }
        let mut passes = vec![];
        for pass in &nest.passes {
            passes.push([self.fused_loops(&pass.rows)?, self.fused_loops(&pass.edges)?]);
        }
        let (pattern_columns, mask_rows) = (self.columns(), [Level::Row, Level::Edge].map(|level| self.drawn(level)));
        let Self { binder, ops, locals, partials, uses_own_end, full_columns, needs, widths_vary, .. } = self;
        let mut region = Region {
            domain: Domain::Rows(0),
            pattern_columns,
            mask_rows,
            ops,
            groups,
            passes,
            locals,
            blocks: vec![],
            tasks: vec![],
            split: None,
            partials,
            uses_own: false,
            uses_own_end,
            full_columns,
            needs,
        };
        let [row_width, edge_width] = block_widths(&region);
        // Reduced rows may be fetched first.
        let reduced = region.ops.iter().filter_map(|op| match op.op {
            KernelOp::ReduceTrailing(_, a) => Some(a.width),
            _ => None,
        });
        let widest = region.locals.iter().map(|local| local.width).chain(reduced).max().unwrap_or(1);
        region.needs = Needs {
            row_peak: peaks[0].max(row_width).max(1),
            edge_peak: peaks[1].max(1),
            keeps_edges: peaks[1].max(edge_width) > 0,
            widest,
            cost: [Level::Row, Level::Edge].map(|level| cost(&region, level)),
            stage_costs: stage_costs(&region),
            widths_for: widths_vary.get().then(|| binder.data.num_vertices.clone()),
            ..std::mem::take(&mut region.needs)
        };
        Ok(region)
    }

    /// Peak live elements of locals in scratch, per row or edge.
    fn peak(&self, level: Level) -> usize {
        let mut ends: Vec<Option<usize>> = vec![None; self.locals.len()];
        for (index, op) in self.ops.iter().enumerate() {
            for operand in op.op.operands() {
                if let Base::Local(local) = operand.base {
                    ends[local as usize] = Some(index);
                }
            }
        }
        let lives = self.ops.iter().enumerate().filter(|(_, op)| !op.op.is_total()).filter_map(|(start, op)| {
            let local = &self.locals[op.out as usize];
            let life = Lifetime { start, end: ends[op.out as usize].unwrap_or(start), len: local.width };
            (local.level == level && local.place == Place::Scratch).then_some(life)
        });
        sum_alive(lives, self.ops.len()).into_iter().max().unwrap_or(0)
    }
}

fn domain(binder: &Binder<'_>, traversal: &Traversal) -> Domain {
    match traversal.rows {
        Rows::Once => Domain::Rows(1),
        Rows::Each(_) | Rows::Vertices(_) => Domain::Rows(binder.eval(&traversal.rows.count(&binder.program.tables))),
        Rows::Edges(graph, direction) => Domain::Edges { topology: graph.index(), direction, ends: false },
        Rows::Endpoints(graph, direction) => Domain::Edges { topology: graph.index(), direction, ends: true },
        Rows::Elements(pattern, direction) => {
            let topology = binder.data.graphs.len() + pattern.index();
            Domain::Edges { topology, direction, ends: false }
        }
    }
}

impl Region {
    /// Whether the operations, which were planned for other data, are those for this data too.
    pub(super) fn holds_for(&self, data: &BoundData) -> bool {
        !self.needs.same_elements && self.needs.widths_for.as_ref().is_none_or(|counts| *counts == data.num_vertices)
    }

    /// Divides the region into blocks and tasks for the sizes of the data. Returns the share of each stage in its cost.
    pub(super) fn bind(&mut self, binder: &mut Binder<'_>, traversal: &Traversal) -> Result<[f32; 5]> {
        check_indices(self, binder, traversal)?;
        self.domain = domain(binder, traversal);
        let moved = |&graph: &usize| binder.data.orders.moved(graph).is_some();
        self.uses_own = self.needs.uses_own || self.needs.masks.iter().any(moved);
        // Partial results of wide values take memory and time to combine.
        let widest = self.partials.iter().map(|partial| partial.width).max();
        let most_tasks = widest.map_or(TASKS, |widest| (PARTS / widest.max(1)).clamp(8, PARTIAL_TASKS));
        self.split = None;
        if let (Domain::Edges { topology, direction, ends }, false) = (self.domain, self.passes.is_empty()) {
            let topology = binder.data.topology(topology);
            let (indptr, edges) = (topology.indptr(direction, ends), topology.edges_of_whole());
            let piece = traversal.pieces.map(|pieces| pieces.len(edges));
            // No row has more edges than the graph.
            self.split = piece
                .filter(|&piece| piece < edges)
                .and_then(|piece| SplitRows::of(piece, indptr, most_tasks, (&self.ops, &self.locals)).map(Box::new));
        }
        self.divide(binder, &traversal.rows, most_tasks);
        let num_tasks = self.tasks.len() - 1;
        let cut_tasks = self.split.as_ref().map_or(0, |split| split.row_tasks.len().max(split.piece_tasks.len()));
        for partial in &mut self.partials {
            partial.offset = binder.partial(num_tasks + cut_tasks, partial.width);
        }
        if let Some(split) = &mut self.split {
            let (of_row, of_piece) = split.areas.lens;
            let (rows, pieces) = (split.rows.len(), split.num_pieces());
            split.areas.starts = (binder.partial(rows, of_row), binder.partial(pieces, of_piece));
        }
        Ok(self.shares(binder.data))
    }

    /// Divides the rows into blocks and at most `most` tasks.
    fn divide(&mut self, binder: &mut Binder<'_>, rows: &Rows, most_tasks: usize) {
        let scratch = binder.block_len;
        let Needs { row_peak, edge_peak, keeps_edges, widest, cost: [of_row, of_edge], .. } = self.needs;
        let data = binder.data;
        let sections = row_type(binder, rows).and_then(|vertex| data.sections.get(vertex.index())?.as_ref());
        let borders: &[u32] = sections.map_or(&[], |sections| &sections.borders);
        self.blocks = match self.domain {
            Domain::Edges { topology, direction, ends } => {
                // Without edge values nothing has to stay in a cache.
                let most = if keeps_edges { 1024 } else { 8192 };
                let indptr = data.topology(topology).indptr(direction, ends);
                let rows = (scratch / 2 / row_peak).clamp(16, 1024);
                let cut: &[u32] = self.split.as_ref().map_or(&[], |split| &split.rows);
                edge_blocks(indptr, rows, (scratch / edge_peak).clamp(64, most), cut, borders)
            }
            Domain::Rows(count) => {
                let most = match rows {
                    Rows::Each(_) => 8192,
                    // Small graphs, too, are divided among threads.
                    _ => (sections.map_or(count, |sections| sections.rows_of_whole) / 8).clamp(128, 1024),
                };
                row_blocks(count, (scratch / row_peak).clamp(16, most), borders)
            }
        };
        let (mut most_rows, mut most_edges) = block_extents(self, data);
        if let Some(split) = &self.split {
            (most_rows, most_edges) = (most_rows.max(1), most_edges.max(split.piece));
        }
        let plan = &mut binder.plan;
        plan.block_edges = plan.block_edges.max(most_edges);
        plan.block_rows = plan.block_rows.max(most_rows);
        plan.tile_len = plan.tile_len.max(TILE).max(widest.next_multiple_of(16));

        let edges_of = |rows: &Range<usize>| match self.domain {
            Domain::Rows(_) => 0,
            Domain::Edges { topology, direction, ends } => {
                let indptr = data.topology(topology).indptr(direction, ends);
                indptr[rows.end] - indptr[rows.start]
            }
        };
        let costs = (0..self.blocks.len() - 1).map(|block| match self.block(block) {
            Some(rows) => rows.len() as f64 * of_row + edges_of(&rows) as f64 * of_edge,
            // The tasks of its pieces do the work.
            None => 0.0,
        });
        self.tasks = divide_by_cost(&costs.collect::<Vec<_>>(), most_tasks);
    }

    /// Share of each stage in the time of the region, by estimated cost.
    fn shares(&self, data: &BoundData) -> [f32; 5] {
        let edges = match self.domain {
            Domain::Rows(_) => 0,
            Domain::Edges { topology, .. } => data.topology(topology).num_edges(),
        };
        let rows = self.blocks.last().copied().unwrap_or(0);
        let costs = self.needs.stage_costs.map(|[ops, row, edge]| ops + f64::from(rows) * row + edges as f64 * edge);
        let sum: f64 = costs.iter().sum();
        costs.map(|cost| (cost / sum.max(1.0)) as f32)
    }
}

/// Checks that the elements of a region, and the cells of a dense operand of a sparse one, have 32-bit indices.
fn check_indices(region: &Region, binder: &Binder<'_>, traversal: &Traversal) -> Result<()> {
    let (tables, rows) = (&binder.program.tables, &traversal.rows);
    if let Rows::Each(volume) = rows {
        // Vertex and edge counts are checked with the data.
        let elements = binder.eval(volume);
        if u32::try_from(elements).is_err() {
            return Err(ExecError::Unsupported(format!("a parameter of {elements} elements; 2^32 - 1 are the most")));
        }
    }
    let Some(columns) = region.full_columns else { return Ok(()) };
    let other = rows.other_count(tables).unwrap_or_else(Width::one);
    let cells = binder.eval(&rows.count(tables).times(&other));
    let picks_cells = |op: &&BlockOp| op.op.operands().iter().any(|operand| operand.access == Access::DenseCell);
    match (u32::try_from(cells), region.ops.iter().find(picks_cells)) {
        (Err(_), Some(op)) => Err(ExecError::Operation {
            program: tables.name.clone(),
            stage: op.stage.name(),
            op: op.op.name().into(),
            shapes: format!("{} x {columns} elements", cells / columns.max(1)),
            reason: "a dense operand of a sparse one may have at most 2^32 elements".into(),
        }),
        (Ok(_), _) | (Err(_), None) => Ok(()),
    }
}

/// Estimated cost of a row without its edges, or of an edge.
fn cost(region: &Region, level: Level) -> f64 {
    let costs = region.ops.iter().filter(|op| op.level == level).map(|op| {
        let width = match op.op.is_total() {
            true => op.op.operands().iter().map(|operand| operand.width).max().unwrap_or(1),
            false => region.locals[op.out as usize].width,
        };
        op_cost(&op.op, width.max(1))
    });
    // Every row and every edge is visited.
    1.0 + costs.sum::<f64>()
}

/// For each stage, the number of operations and their estimated cost per row and per edge.
fn stage_costs(region: &Region) -> [[f64; 3]; 5] {
    let mut costs = [[0.0; 3]; 5];
    for op in &region.ops {
        let width = match op.op.is_total() {
            true => region.partials[op.out as usize].width,
            false => region.locals[op.out as usize].width,
        };
        let of_stage = &mut costs[stage_index(op.stage)];
        of_stage[0] += 1.0;
        of_stage[if op.level == Level::Row { 1 } else { 2 }] += op_cost(&op.op, width.max(1));
    }
    costs
}

/// Estimated cost of an operation per row or edge, to divide the time of a region among stages.
fn op_cost(op: &KernelOp<Operand, usize>, width: usize) -> f64 {
    let width = width as f64;
    match op {
        KernelOp::Unary(..) | KernelOp::Compose { .. } => 3.0 * width,
        KernelOp::MatMul(of, ..) | KernelOp::MatMulT(of, ..) | KernelOp::OuterAll(of, ..) => {
            (of.batch * of.k * of.n) as f64 / 8.0
        }
        KernelOp::Dot(a, _) | KernelOp::ReduceTrailing(_, a) => a.width as f64,
        KernelOp::Mask { .. } => 2.0 * width,
        KernelOp::WeightedSum { x, .. } => x.width as f64,
        KernelOp::SoftmaxSum { score, x, .. } => (4 * score.width + x.width) as f64,
        KernelOp::SegmentArg { x, .. } => 2.0 * x.width as f64,
        // Most vertices are active in few graphs.
        KernelOp::ScatterAdd(parts) => width * (1.0 + 0.2 * (parts.len() - 1) as f64),
        _ => width,
    }
}

/// The vertex type whose vertices are the rows of a traversal.
fn row_type(binder: &Binder<'_>, rows: &Rows) -> Option<VertexType> {
    let tables = &binder.program.tables;
    match *rows {
        Rows::Vertices(vertex) => Some(vertex),
        Rows::Edges(graph, direction) => match tables.graph_end(graph, direction) {
            Space::Vertices(vertex) => Some(vertex),
            _ => None,
        },
        Rows::Elements(pattern, Direction::In) => Some(tables.patterns[pattern.index()].vertex),
        Rows::Once | Rows::Each(_) | Rows::Endpoints(..) | Rows::Elements(_, Direction::Out) => None,
    }
}

/// Blocks of at most `per_block` rows. Rows in `borders` begin a block.
fn row_blocks(rows: usize, per_block: usize, borders: &[u32]) -> Vec<u32> {
    let mut blocks = vec![0];
    let mut start = 0;
    for end in borders.iter().map(|&border| border as usize).chain([rows]) {
        while start < end {
            start = end.min(start + per_block);
            blocks.push(start as u32);
        }
    }
    blocks
}

/// Divides blocks into at most `most` tasks of similar cost, each at most one block over its share. Returns the first
/// block of each task, and the number of blocks.
fn divide_by_cost(costs: &[f64], most: usize) -> Vec<u32> {
    // The margin keeps rounding errors from creating an extra task.
    let share = costs.iter().sum::<f64>() / most as f64 * (1.0 - 1e-9);
    let (mut tasks, mut sum) = (vec![0u32], 0.0);
    for (next, cost) in (1u32..).zip(costs) {
        sum += cost;
        if sum >= share && (next as usize) < costs.len() && tasks.len() < most {
            tasks.push(next);
            sum = 0.0;
        }
    }
    if !costs.is_empty() {
        tasks.push(costs.len() as u32);
    }
    tasks
}

/// Blocks of at most `rows` rows and, unless a single row has more, `edges` edges. Split rows (`cut`) are
/// blocks of their own, and rows in `borders` begin one.
fn edge_blocks(indptr: &[u64], rows: usize, edges: usize, mut cut: &[u32], mut borders: &[u32]) -> Vec<u32> {
    let num_rows = indptr.len() - 1;
    let mut blocks = vec![0u32];
    let mut start = 0;
    while start < num_rows {
        let mut end = start + 1;
        match cut.split_first() {
            Some((&first, rest)) if first as usize == start => cut = rest,
            next => {
                borders = &borders[borders.partition_point(|&border| border as usize <= start)..];
                let border = borders.first().map_or(num_rows, |&border| border as usize);
                let limit = next.map_or(num_rows, |(&first, _)| first as usize).min(border).min(start + rows);
                while end < limit && indptr[end + 1] - indptr[start] <= edges as u64 {
                    end += 1;
                }
            }
        }
        blocks.push(end as u32);
        start = end;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_begin_with_a_block() {
        assert_eq!(row_blocks(10, 4, &[]), [0, 4, 8, 10]);
        assert_eq!(row_blocks(10, 4, &[3, 3, 9]), [0, 3, 7, 9, 10]);
        assert_eq!(row_blocks(0, 4, &[0, 0]), [0]);
        let indptr = [0, 1, 2, 3, 4, 5, 9, 10];
        assert_eq!(edge_blocks(&indptr, 4, 4, &[5], &[]), [0, 4, 5, 6, 7]);
        assert_eq!(edge_blocks(&indptr, 4, 4, &[5], &[0, 2, 2]), [0, 2, 5, 6, 7]);
    }

    #[test]
    fn tasks_cost_about_the_same() {
        // One task per block, or equal numbers of equal blocks.
        assert_eq!(divide_by_cost(&[1.0; 3], 256), [0, 1, 2, 3]);
        assert_eq!(divide_by_cost(&[1.0; 6], 3), [0, 2, 4, 6]);
        assert_eq!(divide_by_cost(&[1.0; 7], 3), [0, 3, 6, 7]);
        // Skewed blocks: the first three cost as much as all others.
        let skewed: Vec<f64> = [8.0; 3].into_iter().chain([1.0; 24]).collect();
        assert_eq!(divide_by_cost(&skewed, 6), [0, 1, 2, 3, 11, 19, 27]);
        // Blocks without cost (split rows), and no blocks.
        assert_eq!(divide_by_cost(&[0.0, 5.0, 0.0, 5.0, 0.0], 2), [0, 2, 5]);
        assert_eq!(divide_by_cost(&[0.0; 2], 4), [0, 1, 2]);
        assert_eq!(divide_by_cost(&[], 4), [0]);
    }
}
