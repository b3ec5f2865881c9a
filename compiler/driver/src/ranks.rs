//! Lowers a model to programs of ranks: those of one process, placed before they become kernels.

use hgnnc_executable::{Executable, Kernels};
use hgnnc_fusion::LoweringOptions;
use hgnnc_ir::Dataflow;
use hgnnc_passes::{NotPlaced, PassCx, PassManager, SizeInfo, place};

use crate::lower::{LowerError, LowerOptions, forward_of_training, without_dropout};
use crate::model::Analyzed;
use crate::pipeline::{Compilation, EVALUATE, Stage, TRAIN};

/// Passes that placement does not know yet: their results have rows that no rank owns.
pub const NOT_ON_RANKS: [&str; 3] = ["stack_families", "compact_endpoints", "factor_metapaths"];

/// A model compiled for several ranks.
pub struct LoweredForRanks {
    /// Kernels are those of ranks, programs of dataflow those of one process, by whose names and sizes a run is described.
    pub executable: Executable,
    /// The tables of both, without values.
    pub tables: Dataflow,
    /// Sizes of the tables, as if one rank owned all rows.
    pub sizes: Option<SizeInfo>,
}

/// Lowers a checked model for any number of ranks. The passes [`NOT_ON_RANKS`] must be disabled.
///
/// # Errors
/// As [`lower`](crate::lower()), and a construct that has no placement.
pub fn lower_for_ranks(model: &Analyzed, options: &LowerOptions) -> Result<LoweredForRanks, LowerError> {
    let passes = PassManager::new(&options.disabled)?;
    if model.train.as_ref().is_some_and(|spec| spec.training.batch.is_some()) {
        let why = "it is trained on mini-batches (`batch` in its `train` block)".into();
        return Err(LowerError::Place(NotPlaced { why, origin: None }));
    }
    let context = PassCx { machine: options.machine.clone(), ..PassCx::new(options.sizes.clone()) };
    let preferred = LoweringOptions::of(options.machine.as_ref());
    let cx = PassCx { arena_budget: options.arena_budget, ..context.clone() };
    let mut infer = Compilation::new(without_dropout(&model.flow), context, preferred);
    let (of_flow, of_kernels) = halves(EVALUATE);
    infer.run(of_flow, &passes, || None)?;
    let spec = model.train.as_ref().filter(|_| !options.evaluation_only);
    let mut train = match spec {
        Some(spec) => {
            let mut train = Compilation::new(forward_of_training(model), cx, preferred).training(spec);
            train.run(halves(TRAIN).0, &passes, || None)?;
            Some(train)
        }
        None => None,
    };
    // The tables of a training program begin with those of the evaluation.
    let (one_train, one_infer) = (train.as_ref().map(|train| train.flow.clone()), infer.flow.clone());
    let of_train = train.as_ref().map(|train| place(&train.flow, &train.flow)).transpose()?;
    let of_infer = place(&infer.flow, of_train.as_ref().unwrap_or(&infer.flow))?;
    let tables = of_infer.with_tables_of(model.name.clone());
    let of_train = of_train.map(|flow| {
        let all = tables.with_tables_of(flow.name.clone());
        Dataflow { values: flow.values, outputs: flow.outputs, ..all }
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
    let executable = Executable {
        model: model.name.clone(),
        train: one_train,
        infer: one_infer,
        score: None,
        head: None,
        kernels: Kernels { train: train.map(|train| train.kernels), infer: infer.kernels, score: None, head: None },
        cpu: None,
        sampler: None,
        training: model.train.as_ref().map(|spec| spec.training.clone()),
        batch: None,
        graphs: options.graphs.clone(),
        families: model.families.clone(),
    };
    Ok(LoweredForRanks { executable, tables, sizes })
}

/// The stages on dataflow, and those that make kernels.
fn halves(stages: &'static [Stage]) -> (&'static [Stage], &'static [Stage]) {
    let at = stages.iter().position(|stage| *stage == Stage::Group).unwrap_or(stages.len());
    stages.split_at(at)
}
