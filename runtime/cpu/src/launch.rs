//! Runs the steps of one launch concurrently: their tasks share the thread pool.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use hgnnc_data::buffer::PerThread;
use hgnnc_ir::Reduce;
use hgnnc_kernels::product::Extents;
use hgnnc_kernels::{product, rows};
use hgnnc_trace::Spans;

use crate::block::{Context, Scratch, SplitRowRunner, combine, run_task};
use crate::exchange::Exchanger;
use crate::factored_metapath;
use crate::grouped_product;
use crate::parallel::parallel;
use crate::plan::{Product, ProductKind, RankSumStep, Region, Split, Step, StepKind};
use crate::schedule::{Pass, RegionSchedule};

/// Elements of a result per reduction task.
const RANGE: usize = 4096;

/// A launch runs in rounds with a barrier between them. Without split rows ([`crate::plan::SplitRows`]) there are only
/// the first and the last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Computes results or partial results, and the row operations of split rows that precede their edges.
    Compute,
    /// Reduces the pieces of split rows in this edge pass.
    Pieces(usize),
    /// Combines the pieces of the previous edge pass, and runs the row operations of split rows in this one.
    Rows(usize),
    /// Combines partial results of tasks, in a fixed order.
    Combine,
}

/// Rounds that cover all schedules of a launch.
fn rounds(schedules: &[Vec<RegionSchedule>]) -> impl Iterator<Item = Round> {
    let most = schedules.iter().map(|schedules| RegionSchedule::rounds(schedules)).max().unwrap_or(0);
    let between = (1..most).flat_map(|round| [Round::Pieces(round - 1), Round::Rows(round)]);
    std::iter::once(Round::Compute).chain(between).chain([Round::Combine])
}

/// State that all launches of a run share.
pub(crate) struct Runner<'a> {
    /// Memory, data, and position in training.
    pub context: Context<'a>,
    /// Scratch of each thread.
    pub scratch: &'a PerThread<Scratch>,
    /// The other ranks, if there are any.
    pub exchanger: Option<&'a Exchanger>,
}

impl Runner<'_> {
    /// Runs independent steps. `busy` accumulates the nanoseconds that the tasks of each step took. `spans`, if given,
    /// records task times, with the index of the first step. Returns steps and the nanoseconds that they have waited for
    /// other ranks, which are not those of a task.
    pub fn launch(
        &self,
        steps: &[Step],
        schedules: &[Vec<RegionSchedule>],
        busy: &[AtomicU64],
        spans: Option<(&Spans, usize)>,
    ) -> Vec<(usize, u64)> {
        for (index, (step, busy)) in steps.iter().zip(busy).enumerate() {
            if let StepKind::Factored(paths) = &step.kind {
                let start = Instant::now();
                factored_metapath::run(self.context, paths);
                busy.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
                if let Some((spans, first)) = spans {
                    spans.task(first + index, start);
                }
            }
        }
        // The rows of other ranks arrive while the other steps run.
        let started: Vec<_> = (steps.iter().enumerate())
            .filter_map(|(index, step)| match (&step.kind, self.exchanger) {
                (StepKind::Exchange(exchange), Some(exchanger)) => Some((index, exchange, exchanger)),
                _ => None,
            })
            .map(|(index, exchange, exchanger)| {
                let start = Instant::now();
                let pending = exchanger.start(self.context.slabs, self.context.data, exchange);
                busy[index].fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
                (index, exchange, exchanger, pending)
            })
            .collect();
        // The sums of a launch travel together.
        let sums: Vec<RankSumStep> = (steps.iter())
            .filter_map(|step| if let StepKind::RankSum(sum) = step.kind { Some(sum) } else { None })
            .collect();
        let first_sum = steps.iter().position(|step| matches!(step.kind, StepKind::RankSum(_)));
        let mut waits = vec![];
        let waited = || self.exchanger.map_or(0, |exchanger| exchanger.exchanged().waited_ns);
        let mut timed = |index: usize, work: &mut dyn FnMut()| {
            let (start, before) = (Instant::now(), waited());
            work();
            let wait = waited() - before;
            busy[index].fetch_add((start.elapsed().as_nanos() as u64).saturating_sub(wait), Relaxed);
            spans.iter().for_each(|(spans, first)| spans.task(first + index, start));
            if wait > 0 {
                waits.push((index, wait));
            }
        };
        let mut started_sums = None;
        let summing = self.exchanger.zip(first_sum);
        if let Some((exchanger, index)) = summing {
            timed(index, &mut || started_sums = exchanger.start_sums(self.context.slabs, self.context.data, &sums));
        }
        for round in rounds(schedules) {
            let count = |step: usize| tasks_of(&steps[step], &schedules[step], round);
            parallel((0..steps.len()).map(count).sum(), |mut task| {
                let mut step = 0;
                while task >= count(step) {
                    task -= count(step);
                    step += 1;
                }
                if steps.len() == 1 && spans.is_none() {
                    return self.task(&steps[step], &schedules[step], round, task);
                }
                let start = Instant::now();
                self.task(&steps[step], &schedules[step], round, task);
                busy[step].fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
                if let Some((spans, first)) = spans {
                    spans.task(first + step, start);
                }
            });
        }
        let (slabs, data) = (self.context.slabs, self.context.data);
        if let Some((exchanger, index)) = summing {
            timed(index, &mut || exchanger.finish_sums(slabs, data, &sums, started_sums.take()));
        }
        for (index, exchange, exchanger, mut pending) in started {
            timed(index, &mut || exchanger.finish(slabs, data, exchange, pending.take()));
        }
        waits
    }

    fn task(&self, step: &Step, schedules: &[RegionSchedule], round: Round, task: usize) {
        match (&step.kind, round) {
            (StepKind::Region(region), Round::Compute | Round::Pieces(_) | Round::Rows(_)) => {
                let thread = rayon::current_thread_index().unwrap_or(0);
                let run = |scratch: &mut Scratch| self.region(region, schedules, round, task, scratch);
                self.scratch.with(thread, run);
            }
            (StepKind::Region(region), Round::Combine) => combine(self.context, region),
            (StepKind::Product(product), Round::Compute) => self.product(product, task),
            (StepKind::Product(product), _) => self.combine_product(product, task),
            (StepKind::Grouped(product), Round::Combine) => grouped_product::combine(self.context, product, task),
            (StepKind::Grouped(product), _) => grouped_product::run_task(self.context, product, task),
            // Executed before all others of the launch, or around them.
            (StepKind::Factored(_) | StepKind::Exchange(_) | StepKind::RankSum(_), _) => {}
            (StepKind::Copy { from, to }, _) => {
                let slabs = self.context.slabs;
                slabs.write(to.slab, to.offset, to.len).copy_from_slice(slabs.of(*from));
            }
        }
    }

    fn region(&self, region: &Region, schedules: &[RegionSchedule], round: Round, task: usize, scratch: &mut Scratch) {
        let with = |pass: Pass| schedules.iter().find(|schedule| schedule.pass == pass);
        let context = self.context;
        let tasks = region.tasks.len() - 1;
        let whole = tasks * num_unsplit(schedules);
        let cut = region.split.as_deref().map(|split| SplitRowRunner { context, region, split });
        match (round, cut) {
            (Round::Compute, _) if task < whole => {
                run_task(context, region, &schedules[task / tasks], task % tasks, scratch);
            }
            (Round::Compute, Some(cut)) => {
                if let Some(schedule) = with(Pass::SplitRows(0)) {
                    cut.rows(schedule, task - whole, scratch);
                }
            }
            (Round::Pieces(round), Some(cut)) => {
                if let Some(schedule) = with(Pass::Pieces(round)) {
                    cut.pieces(schedule, task, scratch);
                }
            }
            (Round::Rows(round), Some(cut)) => {
                if let Some(pieces) = with(Pass::Pieces(round - 1)) {
                    cut.combine(pieces, task);
                }
                if let Some(schedule) = with(Pass::SplitRows(round)) {
                    cut.rows(schedule, task, scratch);
                }
            }
            (Round::Compute | Round::Pieces(_) | Round::Rows(_) | Round::Combine, _) => {}
        }
    }

    /// Runs one task: a row range of a product, a row range of its result, or one of its partial results.
    fn product(&self, product: &Product, task: usize) {
        let Product { kind, of, rows, x, y, out, split, partials } = *product;
        let (slabs, dispatch) = (self.context.slabs, self.context.dispatch);
        // Operands of a launch do not alias its outputs.
        let (xs, ys) = (slabs.of(x), slabs.of(y));
        // Each task writes its own range of the result.
        let write = |start: usize, len: usize| slabs.write(out.slab, out.offset + start, len);
        let (bk, bn) = (of.batch * of.k, of.batch * of.n);
        let replay = self.context.replay;
        // A cache-resident replay always uses the first rows.
        let home = |range: Range<usize>| if replay.is_some() { 0..range.len() } else { range };
        // A cache-resident replay reduces the same few rows repeatedly.
        let outer = |num: usize, band: Range<usize>, x: &[f32], y: &[f32], out: &mut [f32]| {
            let few = replay.map_or(num, |replay| replay.rows(bk + bn).min(num)).max(1);
            for start in (0..num.max(1)).step_by(few) {
                product::outer(dispatch, of, few.min(num - start), band.clone(), x, y, out, start > 0);
            }
        };
        match (kind, split) {
            (ProductKind::Outer, Split::Bands(band)) => {
                let range = task * band..((task + 1) * band).min(of.k);
                let out = write(range.start * of.n, range.len() * of.n);
                outer(rows, range, xs, ys, out);
            }
            (ProductKind::Outer, Split::Parts(chunk) | Split::Rows(chunk)) => {
                let size = of.batch * of.k * of.n;
                let range = home(task * chunk..((task + 1) * chunk).min(rows));
                let (x, y) = (&xs[range.start * bk..range.end * bk], &ys[range.start * bn..range.end * bn]);
                let out = if rows <= chunk {
                    write(0, size)
                } else {
                    // Partial results are disjoint, and are read only after all are written.
                    slabs.write(self.context.partials, partials + task * size, size)
                };
                outer(range.len(), 0..of.k, x, y, out);
            }
            (
                ProductKind::MatMul | ProductKind::MatMulT,
                Split::Rows(chunk) | Split::Bands(chunk) | Split::Parts(chunk),
            ) => {
                let range = home(task * chunk..((task + 1) * chunk).min(rows));
                let (from, to) = if kind == ProductKind::MatMul { (bk, bn) } else { (bn, bk) };
                let x = &xs[range.start * from..range.end * from];
                let out = write(range.start * to, range.len() * to);
                match kind {
                    ProductKind::MatMul => product::mat_mul(dispatch, of, range.len(), x, ys, out),
                    // The last task of a rank has rows that share a task with others on another number of ranks.
                    _ if !self.context.data.sections.is_empty() => {
                        product::mat_mul_t_by_row(dispatch, of, range.len(), x, ys, out);
                    }
                    _ => product::mat_mul_t(dispatch, of, range.len(), x, ys, out),
                }
            }
        }
    }

    /// Sums a range of the partial results of a product; ranges let several threads share a large result.
    fn combine_product(&self, product: &Product, task: usize) {
        let slabs = self.context.slabs;
        let Extents { batch, k, n } = product.of;
        let size = batch * k * n;
        let range = task * RANGE..((task + 1) * RANGE).min(size);
        // Each task writes its own range of the result.
        let out = slabs.write(product.out.slab, product.out.offset + range.start, range.len());
        out.fill(0.0);
        for part in 0..num_parts(product) {
            let start = product.partials + part * size + range.start;
            // All partial results are written, and only read from here on.
            let part = slabs.read(self.context.partials, start, out.len());
            rows::accumulate_rows(self.context.dispatch, Reduce::Sum, part, out.len(), out);
        }
    }
}

/// Number of tasks of a step in a round.
fn tasks_of(step: &Step, schedules: &[RegionSchedule], round: Round) -> usize {
    match (&step.kind, round) {
        (StepKind::Region(region), Round::Compute) => {
            let cut = region.split.as_ref().map_or(0, |split| split.row_tasks.len());
            (region.tasks.len() - 1) * num_unsplit(schedules) + cut
        }
        (StepKind::Region(region), Round::Pieces(number)) => match &region.split {
            Some(split) if number + 1 < RegionSchedule::rounds(schedules) => split.piece_tasks.len(),
            Some(_) | None => 0,
        },
        (StepKind::Region(region), Round::Rows(number)) => match &region.split {
            Some(split) if number < RegionSchedule::rounds(schedules) => split.row_tasks.len(),
            Some(_) | None => 0,
        },
        (StepKind::Region(region), Round::Combine) => usize::from(!region.partials.is_empty()),
        (StepKind::Product(product), Round::Compute) => match (product.kind, product.split) {
            (ProductKind::Outer, Split::Bands(band)) => product.of.k.div_ceil(band),
            (_, Split::Rows(chunk) | Split::Bands(chunk) | Split::Parts(chunk)) => product.rows.div_ceil(chunk),
        },
        // A product with one partial result needs no reduction. Without rows there are none, and the sum is zero.
        (StepKind::Product(product), Round::Combine) => match num_parts(product) {
            1 => 0,
            _ => (product.of.batch * product.of.k * product.of.n).div_ceil(RANGE),
        },
        (StepKind::Grouped(product), Round::Compute) => product.tasks.len() - 1,
        (StepKind::Grouped(product), Round::Combine) => grouped_product::num_sums(product),
        (StepKind::Copy { .. }, Round::Compute) => 1,
        (
            StepKind::Product(_)
            | StepKind::Grouped(_)
            | StepKind::Factored(_)
            | StepKind::Exchange(_)
            | StepKind::RankSum(_)
            | StepKind::Copy { .. },
            _,
        ) => 0,
    }
}

/// Number of schedules over row blocks; they precede the others.
fn num_unsplit(schedules: &[RegionSchedule]) -> usize {
    schedules.iter().filter(|schedule| schedule.pass == Pass::Blocks).count()
}

/// Number of partial results of a product.
fn num_parts(product: &Product) -> usize {
    match (product.kind, product.split) {
        (ProductKind::Outer, Split::Parts(chunk) | Split::Rows(chunk)) => product.rows.div_ceil(chunk),
        (ProductKind::Outer, Split::Bands(_)) | (ProductKind::MatMul | ProductKind::MatMulT, _) => 1,
    }
}
