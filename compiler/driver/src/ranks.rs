//! Lowers a model to programs of ranks: those of one process, placed before they become kernels.

use hgnnc_executable::{Executable, Kernels};
use hgnnc_fusion::LoweringOptions;
use hgnnc_ir::Dataflow;
pub use hgnnc_passes::Split;
use hgnnc_passes::{
    Disabled, NARROW_EXCHANGES, NotPlaced, PassCx, PassManager, SizeInfo, narrow_exchanges, place, place_batch,
    score_links,
};

use crate::lower::{LowerError, LowerOptions, forward_of_training, prepare, without_dropout};
use crate::model::Analyzed;
use crate::pipeline::{Compilation, EVALUATE, Stage, TRAIN};
use crate::ranking::rank_programs;

/// Passes whose results have rows that no rank owns.
const NOT_ON_RANKS: [&str; 2] = ["compact_endpoints", "factor_metapaths"];

/// The pass without which all programs have a placement.
const STACK_FAMILIES: &str = "stack_families";

/// Runs the passes that change the tables of a model for several ranks, as [`prepare`] does for one process. Families are
/// stacked where the programs of the whole graph then have a placement. The result is what is disabled in these programs,
/// where `disabled` is otherwise, and the reason why there are no stacks.
///
/// # Errors
/// When a disabled pass or fusion does not exist, or the loss has no gradient.
pub fn prepare_for_ranks(
    model: &mut Analyzed,
    disabled: &Disabled,
) -> Result<(Disabled, Option<NotPlaced>), LowerError> {
    let mut disabled = disabled_on_ranks(disabled);
    let before = (model.flow.clone(), model.of_batches.clone(), model.explanations.clone());
    prepare(model, &disabled)?;
    if model.flow.stacks.is_empty() {
        return Ok((disabled, None));
    }
    let refused = match place_whole_graph(model, &disabled) {
        Err(LowerError::Place(refused)) => refused,
        placed => return placed.map(|()| (disabled, None)),
    };
    (model.flow, model.of_batches, model.explanations) = before;
    disabled.passes.push(STACK_FAMILIES.into());
    prepare(model, &disabled)?;
    Ok((disabled, Some(refused)))
}

/// Places the programs of the whole graph as they are before sizes are known.
fn place_whole_graph(model: &Analyzed, disabled: &Disabled) -> Result<(), LowerError> {
    let passes = PassManager::new(disabled)?;
    let compilation = |flow| Compilation::new(flow, PassCx::default(), LoweringOptions::of(None));
    let mut infer = compilation(without_dropout(&model.flow));
    if let Some((first, _)) = score_links(&infer.flow) {
        infer.flow = first;
    }
    infer.run(halves(EVALUATE).0, &passes, || None)?;
    place(&infer.flow, &infer.flow)?;
    if let Some(spec) = model.train.as_ref().filter(|spec| spec.training.batch.is_none()) {
        let mut train = compilation(forward_of_training(model)).training(spec);
        train.run(halves(TRAIN).0, &passes, || None)?;
        place(&train.flow, &train.flow)?;
    }
    Ok(())
}

fn disabled_on_ranks(disabled: &Disabled) -> Disabled {
    let more = NOT_ON_RANKS.iter().filter(|pass| !disabled.has_pass(pass)).map(|&pass| pass.to_owned());
    Disabled { passes: disabled.passes.iter().cloned().chain(more).collect(), ..disabled.clone() }
}

/// A model compiled for several ranks.
#[derive(Clone)]
pub struct LoweredForRanks {
    /// Kernels are those of ranks, programs of dataflow those of one process, by whose names and sizes a run is described.
    pub executable: Executable,
    /// The tables of the programs of the whole graph, without values.
    pub tables: Dataflow,
    /// Sizes of these tables, as if one rank owned all rows.
    pub sizes: Option<SizeInfo>,
    /// Sizes of the tables of the training program.
    pub train_sizes: Option<SizeInfo>,
}

/// The ranks that a program is chosen for, alike on all of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ForRanks {
    /// The part of a mini-batch that they divide among themselves.
    pub split: Split,
    /// The number of parts of its seeds.
    pub shares: usize,
    /// Multiply-adds in whose time an element of a learned row goes to another rank ([`element_cost`]).
    pub element_cost: f64,
}

impl ForRanks {
    /// Whether some rows of tables are those of other ranks.
    fn exchange_rows(self) -> bool {
        self.shares > 1 || self.split.shares_relations()
    }

    /// [`PassCx::element_cost`]: some rows are the rank's own, half of them at most.
    fn element_cost(self) -> u64 {
        (self.element_cost * (1.0 - 1.0 / self.shares.max(2) as f64)) as u64
    }
}

/// Multiply-adds of dense products in whose time an element of a row of a table goes from one rank to another. It does so in the
/// forward pass, and its gradient goes back; a multiply-add of a projection has two more in the backward pass.
pub fn element_cost(byte_s: f64, multiply_adds_per_s: f64) -> f64 {
    const BYTES: f64 = 4.0;
    2.0 * BYTES * byte_s * multiply_adds_per_s / 3.0
}

/// Lowers a checked and [prepared](prepare_for_ranks()) model for any number of ranks, of which `ranks` says how they work together.
///
/// # Errors
/// As [`lower`](crate::lower()), and a construct that has no placement.
pub fn lower_for_ranks(
    model: &Analyzed,
    options: &LowerOptions,
    ranks: ForRanks,
) -> Result<LoweredForRanks, LowerError> {
    let ForRanks { split, shares, .. } = ranks;
    let disabled = disabled_on_ranks(&options.disabled);
    let passes = PassManager::new(&disabled)?;
    let mut spec = model.train.clone().filter(|_| !options.evaluation_only);
    if let Some(batch) = spec.as_mut().and_then(|spec| spec.training.batch.as_mut()) {
        batch.size = batch.size.div_ceil(shares.max(1));
    }
    let spec = spec.as_ref();
    let on_batches = spec.is_some_and(|spec| spec.training.batch.is_some());
    if split.shares_relations() && !on_batches {
        let why = "relations are shared in training on mini-batches (`batch` in the `train` block)".into();
        return Err(NotPlaced { why, origin: None }.into());
    }
    let context = PassCx { machine: options.machine.clone(), ..PassCx::new(options.sizes.clone()) };
    let preferred = LoweringOptions::of(options.machine.as_ref());
    let narrows = ranks.exchange_rows() && !disabled.has_pass(NARROW_EXCHANGES);
    let element_cost = if narrows { ranks.element_cost() } else { 0 };
    let cx = PassCx { arena_budget: options.arena_budget, ..context.clone() };
    // Evaluations beside mini-batches are rare, and all vertices at once take the most memory.
    let of_infer = if on_batches { passes.lowering_options(preferred.for_rare_runs()) } else { preferred };
    let lean_weight = if of_infer.lean { of_infer.row_weight } else { 0 };
    let score_cx = PassCx { sizes: None, ..context.clone() };
    let infer_cx = PassCx { lean_weight, ..context };
    let mut infer = Compilation::new(without_dropout(&model.flow), infer_cx, of_infer);
    // Every rank scores pairs of links by itself, from the outputs of all vertices.
    let (mut score, mut rank) = (None, [None, None]);
    if let Some((first, second)) = score_links(&infer.flow) {
        let training = model.train.as_ref().map(|spec| &spec.training);
        let on_pairs = |flow| Compilation::new(flow, score_cx.clone(), preferred.with_hoisting(false));
        rank = rank_programs(training, &infer.flow, options.sizes.as_ref()).map(|flow| flow.map(&on_pairs));
        score = Some(on_pairs(second));
        infer.flow = first;
    }
    for part in score.iter_mut().chain(rank.iter_mut().flatten()) {
        part.run(EVALUATE, &passes, || None)?;
    }
    let (of_flow, of_kernels) = halves(EVALUATE);
    infer.run(of_flow, &passes, || None)?;
    let mut without_stacks = disabled.clone();
    without_stacks.passes.push(STACK_FAMILIES.into());
    let place_at = |spec, passes: &PassManager, element_cost| -> Result<(Compilation, Dataflow, bool), LowerError> {
        let cx = PassCx { element_cost, ..cx.clone() };
        let mut train = Compilation::new(forward_of_training(model), cx, preferred).training(spec);
        train.run(halves(TRAIN).0, passes, || None)?;
        let Some(layout) = &train.batch else {
            let placed = place(&train.flow, &train.flow)?;
            return Ok((train, placed, false));
        };
        let mut placed = place_batch(&train.flow, layout, spec.training.seeds(), split)?;
        let narrowed = narrows && narrow_exchanges(&mut placed, layout, &mut train.cx).0;
        Ok((train, placed, narrowed))
    };
    let place_training = |spec, passes: &PassManager| -> Result<(Compilation, Dataflow), LowerError> {
        let (train, placed, narrowed) = place_at(spec, passes, element_cost)?;
        if narrowed || element_cost == 0 || !on_batches {
            return Ok((train, placed));
        }
        // Rows are sent as they are, so nothing pays for projecting more of them than there are sums.
        let (train, placed, _) = place_at(spec, passes, 0)?;
        Ok((train, placed))
    };
    let placed = match spec {
        Some(spec) if on_batches => Some(match place_training(spec, &passes) {
            // Perhaps a value of a stack has no placement.
            Err(LowerError::Place(_)) => place_training(spec, &PassManager::new(&without_stacks)?)?,
            placed => placed?,
        }),
        Some(spec) => Some(place_training(spec, &passes)?),
        None => None,
    };
    let (mut train, of_train) = placed.unzip();
    let (one_train, one_infer) = (train.as_ref().map(|train| train.flow.clone()), infer.flow.clone());
    // The tables of a training program on the whole graph begin with those of the evaluation.
    let with_tables = of_train.as_ref().filter(|_| !on_batches);
    let of_infer = place(&infer.flow, with_tables.unwrap_or(&infer.flow))?;
    let tables = of_infer.with_tables_of(model.name.clone());
    let of_train = of_train.map(|flow| match on_batches {
        true => flow,
        false => {
            let all = tables.with_tables_of(flow.name.clone());
            Dataflow { values: flow.values, outputs: flow.outputs, ..all }
        }
    });
    for (compilation, flow) in [(train.as_mut(), of_train), (Some(&mut infer), Some(of_infer))] {
        let (Some(compilation), Some(mut flow)) = (compilation, flow) else { continue };
        passes.run_placed(&mut flow, &mut compilation.cx);
        compilation.cx.sizes.iter_mut().for_each(|sizes| sizes.derive(&flow));
        compilation.flow = flow;
        compilation.run(of_kernels, &passes, || None)?;
    }
    let mut sizes = options.sizes.clone();
    sizes.iter_mut().for_each(|sizes| sizes.derive(&tables));
    let train_sizes = train.as_ref().map_or_else(|| sizes.clone(), |train| train.cx.sizes.clone());
    let batch = train.as_mut().and_then(|train| train.batch.take());
    let (score, score_kernels) = score.map(|score| (score.flow, score.kernels)).unzip();
    let [(of_destinations, destination_kernels), (of_sources, source_kernels)] =
        rank.map(|rank| rank.map(|rank| (rank.flow, rank.kernels)).unzip());
    let executable = Executable {
        model: model.name.clone(),
        train: one_train,
        infer: one_infer,
        score,
        rank: [of_destinations, of_sources],
        head: None,
        kernels: Kernels {
            train: train.map(|train| train.kernels),
            infer: infer.kernels,
            score: score_kernels,
            rank: [destination_kernels, source_kernels],
            head: None,
        },
        cpu: None,
        sampler: None,
        training: model.train.as_ref().map(|spec| spec.training.clone()),
        batch,
        graphs: options.graphs.clone(),
        families: model.families.clone(),
    };
    Ok(LoweredForRanks { executable, tables, sizes, train_sizes })
}

/// The stages on dataflow, and those that make kernels.
fn halves(stages: &'static [Stage]) -> (&'static [Stage], &'static [Stage]) {
    let at = stages.iter().position(|stage| *stage == Stage::Group).unwrap_or(stages.len());
    stages.split_at(at)
}
