//! Attributes the time of an entry to phases and stages.
//!
//! An entry runs kernels of several stages concurrently, which no clock can separate. Its time is divided by the blocks
//! of its kernels, and that of a kernel by the elements that its instructions compute.

use hgnnc_data::BoundData;
use hgnnc_executable::gpu::{Edges, Entry, Sizes};
use hgnnc_ir::{Phase, Stage};
use hgnnc_kernel_ir::kernel::{Body, Kernel, Level, Program};
use hgnnc_trace::Times;

use crate::graph_arrays::DataSizes;

/// Fractions of an entry's time by phase and by stage; each kind sums to 1.
pub(super) type Shares = Times;

/// Fractions of the entries of each part of a step, in order. An entry that reduces partial results or commits updates
/// is attributed like the kernels that it completes.
pub(super) fn shares(program: &Program, data: &BoundData, entries: [&[Entry]; 3]) -> [Vec<Shares>; 3] {
    let kernels: Vec<&Kernel> = program.kernels().collect();
    let edges = crate::graph_arrays::edges(&[program], data);
    let mean = |kernel: &Kernel| match &kernel.body {
        Body::Traversal(traversal) => edges.iter().find(|(rows, _)| *rows == traversal.rows).map(|(_, edges)| *edges),
        Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => None,
    };
    let update = {
        let mut shares = Shares::default();
        (shares.phases[2], shares.stages[stage(Stage::PU)]) = (1.0, 1.0);
        shares
    };
    let mut last = update;
    let mut part = 0;
    entries.map(|entries| {
        part += 1;
        // The commit has no kernels of the program.
        if part == 3 {
            last = update;
        }
        let of = |entry: &Entry| {
            let own = entry.kernels.iter().filter_map(|info| {
                let blocks = info.blocks.count(&DataSizes(data)) as f64;
                kernels.get(info.number).map(|kernel| (kernel, blocks))
            });
            let mut sum = Shares::default();
            for (kernel, blocks) in own {
                add(&mut sum, &of_kernel(kernel, mean(kernel), data), blocks);
            }
            let all: f64 = sum.stages.iter().sum();
            if all > 0.0 {
                last = Shares { phases: sum.phases.map(|of| of / all), stages: sum.stages.map(|of| of / all) };
            }
            last
        };
        entries.iter().map(of).collect()
    })
}

/// Adds `time` nanoseconds, divided by `shares`.
pub(super) fn add(times: &mut Times, shares: &Shares, time: f64) {
    let phases = times.phases.iter_mut().zip(shares.phases);
    for (total, share) in phases.chain(times.stages.iter_mut().zip(shares.stages)) {
        *total += time * share;
    }
}

fn of_kernel(kernel: &Kernel, edges: Option<Edges>, data: &BoundData) -> Shares {
    let mut stages = [0.0; 5];
    match &kernel.body {
        Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => stages[stage(kernel.stage)] = 1.0,
        Body::Traversal(traversal) => {
            for instr in &traversal.instrs {
                let per_row = match instr.level {
                    Level::Edge => edges.map_or(1.0, |edges| edges.mean.max(1.0)),
                    Level::Row => 1.0,
                };
                stages[stage(instr.stage)] += per_row * DataSizes(data).width(&instr.width).max(1) as f64;
            }
        }
    }
    let all: f64 = stages.iter().sum();
    if all == 0.0 {
        stages[stage(kernel.stage)] = 1.0;
    }
    let stages = stages.map(|of| of / if all == 0.0 { 1.0 } else { all });
    let mut phases = [0.0; 3];
    // A backward kernel may contain parameter updates.
    phases[2] = stages[stage(Stage::PU)];
    phases[match kernel.phase {
        Phase::Forward => 0,
        Phase::Backward => 1,
        Phase::Update => 2,
    }] += 1.0 - stages[stage(Stage::PU)];
    Shares { phases, stages }
}

/// Index of a stage in [`Stage::ALL`].
fn stage(stage: Stage) -> usize {
    Stage::ALL.iter().position(|&known| known == stage).unwrap_or(0)
}
