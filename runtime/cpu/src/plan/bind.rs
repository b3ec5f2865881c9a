//! Plans the kernels of a program, and binds them to the sizes of data: memory, row blocks and tasks.
//!
//! Binding to other data ([`rebind`]) plans nothing: operations, loops, the order of launches and, as long as no value is
//! larger than before, the places of values stay.

use hgnnc_data::buffer::BufferRange;
use hgnnc_data::stacks::{ParamPlace, param_places};
use hgnnc_data::{BoundData, ExecError, InputData, Result, StateId};
use hgnnc_ir::ProductForm;
use hgnnc_ir::dataflow::OutputKind;
use hgnnc_ir::width::Width;
use hgnnc_ir::{Dim, Layout, Phase, Space, Stage, Type, VertexType};
use hgnnc_kernel_ir::kernel::place::{self, ALIGN, Slot};
use hgnnc_kernel_ir::kernel::{self, Body, Contents, Gemm, Kernel, KernelOp, Launch, Program, Source};
use hgnnc_kernel_ir::loops::{self, Nest};
use hgnnc_kernels::product::{self, Extents};
use hgnnc_machine::KernelFeatures;

use super::check;
use super::factored_metapath::bind_factored_metapath;
use super::grouped::bind_grouped;
use super::region::plan_region;
use super::{
    ExchangeStep, Plan, Product, ProductKind, RankSumStep, ResultBuffer, Split, Step, StepKind, Stored, Update,
};
use crate::slabs::{Slab, SlabLayout};

/// Plans a verified program, number `number` of its engine, for the sizes of its data. `states` are the optimizer states in the order of their slabs;
/// the local values of a row block should have at most `block_len` elements.
///
/// # Errors
/// When an input is missing, or a kernel cannot be executed on data of this size.
///
/// # Panics
/// In debug builds, when steps of a launch would share memory that one of them writes: an internal error.
pub fn plan(
    loops: &loops::VerifiedLoops,
    data: &BoundData,
    (slabs, number): (SlabLayout, usize),
    states: &[StateId],
    block_len: usize,
    features: KernelFeatures,
) -> Result<Plan> {
    let names = Plan { slabs, number, block_len, features, ..Plan::default() };
    rebind(names, loops, data, states)
}

/// Binds a plan to other data of the same program.
///
/// # Errors
/// Those of [`plan`]. The plan is lost then.
///
/// # Panics
/// Those of [`plan`].
pub fn rebind(bound: Plan, loops: &loops::VerifiedLoops, data: &BoundData, states: &[StateId]) -> Result<Plan> {
    let (program, functions) = (&loops.kernels, &loops.functions[..]);
    let Plan { slabs, block_len, features, .. } = bound;
    let extent = |&dim: &Dim| hgnnc_data::tables::extent(data, dim);
    let tables = &program.tables;
    let places = param_places(tables, |param| tables.params[param.index()].dims.iter().map(extent).product());
    let mut binder =
        Binder { program, functions, data, slabs, states, places, block_len, features, plan: bound, partials_used: 0 };
    let mut known = std::mem::take(&mut binder.plan.prelude).into_iter();
    let mut known_steps = std::mem::take(&mut binder.plan.steps).into_iter();
    binder.begin();
    binder.place()?;
    let mut nests = loops.nests.iter().map(Option::as_ref);
    binder.plan.prelude = binder.steps(&program.prelude, &mut nests, &mut known)?;
    let (before, updates) = program.launches.split_at(program.second_part().unwrap_or(program.launches.len()));
    binder.plan.steps = binder.steps(before, &mut nests, &mut known_steps)?;
    binder.plan.first_update = binder.plan.steps.len();
    let updates = binder.steps(updates, &mut nests, &mut known_steps)?;
    binder.plan.steps.extend(updates);
    for output in &program.outputs {
        binder.output(output)?;
    }
    if cfg!(debug_assertions)
        && let Some(conflict) = check::conflict(&binder.plan)
    {
        panic!("internal error: a plan of `{}` is unsound: {conflict}\n{program}", program.tables.name);
    }
    Ok(binder.plan)
}

/// Index of a stage in [`Stage::ALL`].
pub(super) fn stage_index(stage: Stage) -> usize {
    match stage {
        Stage::FP => 0,
        Stage::NA => 1,
        Stage::SF => 2,
        Stage::LC => 3,
        Stage::PU => 4,
    }
}

/// Stage shares of a step of a single stage.
fn all_of(stage: Stage) -> [f32; 5] {
    let mut shares = [0.0; 5];
    shares[stage_index(stage)] = 1.0;
    shares
}

/// Memory of the computed buffers of a program: enough for all data that the plan was bound to so far.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Placed {
    /// Slab, offset and elements of each buffer; `None` for those with memory of their own.
    buffers: Vec<Option<BufferRange>>,
    /// Elements of [`Slab::Fixed`] and of [`Slab::Run`].
    lens: (usize, usize),
}

/// State of binding one program.
pub(super) struct Binder<'a> {
    pub program: &'a Program,
    /// Functions that loops call.
    pub functions: &'a [loops::Function],
    pub data: &'a BoundData,
    slabs: SlabLayout,
    states: &'a [StateId],
    /// The memory of each parameter.
    places: Vec<ParamPlace>,
    /// Maximum elements of the local values of a row block.
    pub block_len: usize,
    pub features: KernelFeatures,
    /// The plan under construction.
    pub plan: Plan,
    /// Elements of partial results allocated in the current launch.
    partials_used: usize,
}

impl Binder<'_> {
    pub fn eval(&self, width: &Width) -> usize {
        width.eval(&self.data.num_vertices)
    }

    /// Location of a buffer of the program.
    pub fn buffer(&self, buffer: kernel::Buffer) -> BufferRange {
        self.plan.ranges[buffer.index()]
    }

    /// Name of a stored value or constant.
    pub fn source(&mut self, source: Source) -> Stored {
        match source {
            Source::Buffer(buffer) => Stored(buffer.0),
            Source::Const(number) => self.constant(Source::Const((number as f32).into())),
            Source::Count(_) => self.constant(source),
            Source::Local(local) => unreachable!("{local} is not stored"),
        }
    }

    /// Starts binding: nothing of earlier data is left but operations, memory and names.
    fn begin(&mut self) {
        let constants: Vec<f32> = self.plan.constant_sources.iter().map(|&source| self.number(source)).collect();
        let plan = &mut self.plan;
        plan.constants = constants;
        (plan.partials_len, plan.tile_len, plan.block_edges, plan.block_rows) = (0, 0, 0, 0);
        plan.results.clear();
        plan.updates.clear();
    }

    /// Allocates partial results of `tasks` tasks, disjoint from others in the same launch.
    pub fn partial(&mut self, tasks: usize, width: usize) -> usize {
        let offset = self.partials_used;
        self.partials_used += (tasks * width).next_multiple_of(ALIGN);
        self.plan.partials_len = self.plan.partials_len.max(self.partials_used);
        offset
    }

    fn rows(&self, ty: &Type) -> usize {
        match (ty.layout, ty.space) {
            (Layout::Sparse(p), _) => self.data.patterns[p.index()].num_edges(),
            (Layout::Dense, Space::Unit) => 1,
            (Layout::Dense, Space::Vertices(v)) => self.data.num_vertices[v.index()],
            (Layout::Dense, Space::Edges(g)) => self.data.graphs[g.index()].num_edges(),
            (Layout::Dense, Space::Index(extent)) => extent,
            (Layout::Dense, Space::Endpoints(g, direction)) => {
                self.data.graphs[g.index()].endpoints(direction).vertices.len()
            }
        }
    }

    /// Elements per row. Sparse values have one element per stored element.
    fn width(&self, ty: &Type) -> usize {
        if ty.is_sparse() { 1 } else { self.eval(&Width::of(&ty.dims)) }
    }

    /// Value of a constant.
    fn number(&self, source: Source) -> f32 {
        match source {
            Source::Const(number) => number as f32,
            Source::Count(space) => self.rows(&Type::new(space, vec![])) as f32,
            Source::Buffer(_) | Source::Local(_) => unreachable!("no constant"),
        }
    }

    fn constant(&mut self, source: Source) -> Stored {
        let same = |known: &Source| match (*known, source) {
            (Source::Const(known), Source::Const(number)) => known.to_bits() == number.to_bits(),
            (known, source) => known == source,
        };
        let position = self.plan.constant_sources.iter().position(same).unwrap_or_else(|| {
            let (number, offset) = (self.number(source), self.plan.constants.len());
            self.plan.constants.push(number);
            self.plan.constant_sources.push(source);
            let range = self.slabs.range(Slab::Constants(self.plan.number), offset, 1);
            self.plan.ranges.push(range);
            offset
        });
        Stored((self.program.buffers.len() + position) as u32)
    }

    /// The slab of an optimizer state.
    fn state(&self, state: StateId) -> Result<Slab> {
        let position = self.states.iter().position(|&known| known == state);
        let position = position.ok_or_else(|| {
            let name = &self.program.tables.params[state.0.index()].name;
            ExecError::Unsupported(format!("internal error: state {} of `{name}` has no slab", state.1))
        })?;
        Ok(Slab::State(position))
    }

    /// Assigns each buffer a range of a slab.
    fn place(&mut self) -> Result<()> {
        let program = self.program;
        let len = |decl: &kernel::BufferDecl| self.rows(&decl.ty) * self.width(&decl.ty);
        let mut ranges = Vec::with_capacity(self.plan.ranges.len().max(program.buffers.len()));
        for index in 0..program.buffers.len() {
            // An aliasing buffer has the location of its home.
            let decl = program.buffer(program.home(kernel::Buffer::new(index)));
            let len = len(decl);
            let at = |slab| self.slabs.range(slab, 0, len);
            ranges.push(match decl.contents {
                Contents::Param(param) => {
                    let ParamPlace { home, offset, .. } = self.places[param.index()];
                    BufferRange { offset, ..at(Slab::Param(home.index())) }
                }
                Contents::State(param, slot) => at(self.state((param, slot))?),
                Contents::Input(input) => self.input(input.index(), len)?,
                Contents::Computed => at(Slab::Run),
            });
        }
        let lens: Vec<usize> = program.buffers.iter().map(len).collect();
        let known = &self.plan.placed.buffers;
        let fits = |(known, len): (&Option<BufferRange>, &usize)| known.is_none_or(|known| *len <= known.len);
        if known.is_empty() || !known.iter().zip(&lens).all(fits) {
            let placed = self.placed(&lens);
            self.plan.placed = placed;
        }
        for ((range, &len), placed) in ranges.iter_mut().zip(&lens).zip(&self.plan.placed.buffers) {
            if let Some(placed) = placed {
                *range = BufferRange { len, ..*placed };
            }
        }
        for (own, mirrors) in program.extended() {
            ranges[own.index()].offset += self.before_own_rows(mirrors);
        }
        (self.plan.persistent_len, self.plan.arena_len) = self.plan.placed.lens;
        // Constants follow the buffers.
        ranges.extend(self.plan.ranges.iter().skip(program.buffers.len()));
        self.plan.ranges = ranges;
        Ok(())
    }

    /// The elements before the owned rows of a buffer with mirrors.
    fn before_own_rows(&self, mirrors: kernel::Buffer) -> usize {
        let ty = &self.program.buffer(mirrors).ty;
        let Space::Vertices(vertex) = ty.space else { unreachable!("mirrors are rows of vertices") };
        // Sizes alone have no routes.
        let route = self.data.routes.get(vertex.index()).and_then(Option::as_ref);
        let first = route.map(|route| route.first_own.expect("rows that lie among their mirrors have a place there"));
        first.unwrap_or(0) * self.width(ty)
    }

    /// Memory for computed buffers of these lengths, or of the earlier ones where those are longer: after a few batches
    /// it suffices for the others.
    fn placed(&self, lens: &[usize]) -> Placed {
        let earlier = &self.plan.placed.buffers;
        let most = |index: usize| {
            let earlier = earlier.get(index).copied().flatten();
            lens[index].max(earlier.map_or(0, |range| range.len))
        };
        let memory = place::memory(self.program, |buffer| most(buffer.index()));
        let mut buffers = vec![None; lens.len()];
        for (area, slab) in [(&memory.fixed, Slab::Fixed(self.plan.number)), (&memory.run, Slab::Run)] {
            for &Slot { buffer, life, offset } in &area.slots {
                buffers[buffer.index()] = Some(self.slabs.range(slab, offset, life.len));
            }
        }
        Placed { buffers, lens: (memory.fixed.len, memory.run.len) }
    }

    fn input(&self, index: usize, len: usize) -> Result<BufferRange> {
        let name = &self.program.tables.inputs[index].name;
        let wrong = |found: String| ExecError::Shape {
            what: format!("the input `{name}`"),
            found,
            expected: format!("{len} elements"),
        };
        let held = self.slabs.range(Slab::Input(index), 0, len);
        match self.data.inputs.get(index) {
            // Rows of host memory are read in place or copied by the loader.
            None | Some(InputData::Missing | InputData::Rows(_)) => Err(wrong("no data".into())),
            Some(InputData::StepNumber) => Ok(self.slabs.range(Slab::Counters, 0, 1)),
            Some(InputData::EpochNumber) => Ok(self.slabs.range(Slab::Counters, 1, 1)),
            Some(InputData::Numbers(numbers)) if numbers.len() == len => Ok(held),
            Some(InputData::Classes(classes)) if classes.len() == len => Ok(held),
            Some(InputData::Held(found)) if *found == len => Ok(held),
            Some(InputData::Held(found)) => Err(wrong(format!("{found} elements"))),
            Some(InputData::Numbers(numbers)) => Err(wrong(format!("{} elements", numbers.len()))),
            Some(InputData::Classes(classes)) => Err(wrong(format!("{} labels", classes.len()))),
        }
    }

    fn output(&mut self, output: &kernel::Output) -> Result<()> {
        let mut buffer = self.source(output.source).range(&self.plan.ranges);
        let target = match &output.kind {
            OutputKind::Result(name) => {
                let (rows, width) = (self.rows(&output.ty), self.width(&output.ty));
                self.plan.results.push(ResultBuffer { name: name.clone(), ty: output.ty.clone(), rows, width, buffer });
                return Ok(());
            }
            OutputKind::UpdateParam(param) if self.places[param.index()].home == *param => Slab::Param(param.index()),
            OutputKind::UpdateParam(_) => {
                return Err(ExecError::Unsupported("internal error: an entry of a stack is updated alone".into()));
            }
            OutputKind::UpdateState(param, slot) => self.state((*param, *slot))?,
        };
        let from = self.slabs.slab(buffer.slab);
        if matches!(from, Slab::Param(_) | Slab::State(_)) && from != target {
            // Updates are copied in sequence, so a value that another update overwrites is saved first.
            let to = self.slabs.range(Slab::Run, self.plan.arena_len, buffer.len);
            self.plan.arena_len += buffer.len.next_multiple_of(ALIGN);
            let kind = StepKind::Copy { from: buffer, to };
            let (shares, label) = (all_of(Stage::PU), "copy".into());
            self.plan.steps.push(Step { kind, phase: Phase::Update, shares, label, together: false });
            buffer = to;
        }
        let rows = match output.ty.space {
            Space::Endpoints(graph, direction) => Some((graph.index(), direction, self.width(&output.ty))),
            Space::Unit | Space::Vertices(_) | Space::Edges(_) | Space::Index(_) => None,
        };
        self.plan.updates.push(Update { target: self.slabs.index(target), from: buffer, rows });
        Ok(())
    }

    /// Steps of launches, with the nests of their kernels. `known` are the steps that were bound to earlier data.
    fn steps<'n>(
        &mut self,
        launches: &[Launch],
        nests: &mut impl Iterator<Item = Option<&'n Nest>>,
        known: &mut impl Iterator<Item = Step>,
    ) -> Result<Vec<Step>> {
        let mut steps = vec![];
        for launch in launches {
            self.partials_used = 0;
            for (index, kernel) in launch.kernels.iter().enumerate() {
                let nest = nests.next().flatten();
                steps.push(Step { together: index > 0, ..self.step(kernel, nest, known.next())? });
            }
        }
        Ok(steps)
    }

    fn step(&mut self, kernel: &Kernel, nest: Option<&Nest>, known: Option<Step>) -> Result<Step> {
        let (kind, shares, label) = match &kernel.body {
            Body::Gemm(gemm) if let Some(members) = gemm.members => {
                let product = bind_grouped(self, gemm, members.index());
                let Extents { batch, k, n } = product.of;
                let rows = self.rows(&Type::new(gemm.rows, vec![]));
                let number = self.data.graphs[members.index()].num_dst;
                let label = format!("grouped {} [{rows}; {number} x {batch} x {k} x {n}]", gemm.form.name());
                (StepKind::Grouped(Box::new(product)), all_of(kernel.stage), label)
            }
            Body::Gemm(gemm) => {
                let product = self.product(gemm);
                let Extents { batch, k, n } = product.of;
                let label = format!("{} [{}; {batch} x {k} x {n}]", gemm.form.name(), product.rows);
                (StepKind::Product(product), all_of(kernel.stage), label)
            }
            Body::Exchange(exchange) => {
                let kernel::Exchange { rows, to, ref width, x, out, .. } = *exchange;
                let name = |vertex: VertexType| &self.program.tables.vertex_types[vertex.index()].name;
                let in_place = self.program.buffer(out).extends == Some(x);
                let [x, out] = [x, out].map(|buffer| self.buffer(buffer));
                let (step, label) = match to {
                    Some(to) => {
                        let step = ExchangeStep { x, out, to, width: self.eval(width), in_place };
                        (StepKind::Exchange(step), format!("exchange of {} to {}", name(rows), name(to)))
                    }
                    None => {
                        let label = format!("sum of {} over all ranks", name(rows));
                        (StepKind::RankSum(RankSumStep { x, out, rows }), label)
                    }
                };
                (step, all_of(kernel.stage), label)
            }
            Body::FactoredMetapath(reduction) => {
                let step = bind_factored_metapath(self, reduction);
                let graph = |graph: hgnnc_ir::Graph| &self.program.tables.graphs[graph.index()].name;
                let label = format!("factored over {}, {}", graph(reduction.first), graph(reduction.second));
                (StepKind::Factored(Box::new(step)), all_of(kernel.stage), label)
            }
            Body::Traversal(traversal) => {
                let nest = nest.expect("verified loops have a nest for each traversal");
                if let Some(Step { kind: StepKind::Region(mut region), label, .. }) = known
                    && region.holds_for(self.data)
                {
                    let shares = region.bind(self, traversal)?;
                    return Ok(Step {
                        kind: StepKind::Region(region),
                        phase: kernel.phase,
                        shares,
                        label,
                        together: false,
                    });
                }
                let mut region = Box::new(plan_region(self, traversal, nest)?);
                let shares = region.bind(self, traversal)?;
                let rows = kernel::print::print_rows(self.program, &traversal.rows);
                let mut names: Vec<&str> = vec![];
                for name in traversal.instrs.iter().map(|instr| word(&instr.op)) {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                (StepKind::Region(region), shares, format!("{rows}: {}", names.join(", ")))
            }
        };
        Ok(Step { kind, phase: kernel.phase, shares, label, together: false })
    }

    pub fn extents(&self, of: &kernel::Extents) -> Extents {
        Extents { batch: self.eval(&of.batch), k: self.eval(&of.k), n: self.eval(&of.n) }
    }

    fn product(&mut self, gemm: &Gemm) -> Product {
        let of = self.extents(&gemm.of);
        let rows = self.rows(&Type::new(gemm.rows, vec![]));
        let (kind, split) = match gemm.form {
            ProductForm::MatMul => (ProductKind::MatMul, Split::Rows(product::task_rows(of, self.features))),
            ProductForm::MatMulT => (ProductKind::MatMulT, Split::Rows(product::task_rows(of, self.features))),
            ProductForm::Outer => match product::band_rows(of) {
                Some(rows) => (ProductKind::Outer, Split::Bands(rows)),
                None => (ProductKind::Outer, Split::Parts(product::part_rows(of, rows, 256))),
            },
        };
        let partials = match split {
            Split::Parts(chunk) => self.partial(rows.div_ceil(chunk).max(1), of.batch * of.k * of.n),
            Split::Rows(_) | Split::Bands(_) => 0,
        };
        let [x, y, out] = [gemm.x, gemm.y, gemm.out].map(|buffer| self.buffer(buffer));
        Product { kind, of, rows, x, y, out, split, partials }
    }
}

/// Short name of an instruction, for step labels.
fn word(op: &KernelOp) -> &'static str {
    match op {
        KernelOp::Unary(..) | KernelOp::Binary(..) | KernelOp::Compose { .. } | KernelOp::Select { .. } => {
            "element-wise"
        }
        KernelOp::Copy(_)
        | KernelOp::Concat { .. }
        | KernelOp::Slice { .. }
        | KernelOp::Transpose { .. }
        | KernelOp::RowProduct { .. }
        | KernelOp::OneHot(_)
        | KernelOp::ScatterRows(..)
        | KernelOp::ScatterAdd(_)
        | KernelOp::Mask { .. }
        | KernelOp::MatMul(..)
        | KernelOp::MatMulT(..)
        | KernelOp::ReduceTrailing(..)
        | KernelOp::Dot(..)
        | KernelOp::Segment(..)
        | KernelOp::WeightedSum { .. }
        | KernelOp::SoftmaxSum { .. }
        | KernelOp::SegmentArg { .. }
        | KernelOp::ReduceAll(..)
        | KernelOp::OuterAll(..) => op.name(),
    }
}
