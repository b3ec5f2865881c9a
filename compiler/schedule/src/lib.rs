//! Schedules the traversals of a kernel program for a processor.
//!
//! [`schedule`] turns kernel IR into loops IR. Its steps, in order:
//!
//! 1. [`rewrite`]: the instructions as micro-kernels take them (fused pairs, contiguous operands, deferred stores);
//! 2. [`loops`]: fused loops over blocks of rows, in groups that are independent of each other;
//! 3. [`edge_passes`]: the passes over the edges of split rows;
//! 4. [`functions`]: parts of loops that become machine code, where [`cost`] predicts a gain;
//! 5. [`tiles`]: rows or edges that a loop takes at a time.
//!
//! Nothing here depends on the numbers of vertices and edges but the predicted gain of machine code, so the loops of a
//! program hold for every mini-batch.

#![forbid(unsafe_code)]

mod cost;
mod dependencies;
mod edge_passes;
mod functions;
mod fuse;
mod loops;
mod overlap;
mod rewrite;
mod tiles;

use std::collections::{HashMap, HashSet};

use hgnnc_ir::sizes::SizeInfo;
use hgnnc_kernel_ir::kernel::Level;
use hgnnc_kernel_ir::kernel::{self, Body};
use hgnnc_kernel_ir::loops::passes::{passes, passes_before};
use hgnnc_kernel_ir::loops::{EdgePass, Loop, Nest, Program, Step, VerifiedLoops};
use hgnnc_machine::{CodeMode, KernelFeature, KernelFeatures, SimdLevel};

use functions::Functions;
use rewrite::{Rewritten, rewrite};

/// The code mode, kernel features and SIMD level to schedule for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where machine code is generated.
    pub code: CodeMode,
    /// Kernels of the runtime that may be used.
    pub features: KernelFeatures,
    /// Widest vectors of the runtime's kernels.
    pub simd: SimdLevel,
    /// Sizes of the data, if known. Without them, machine code is worth its compile time.
    pub sizes: Option<SizeInfo>,
}

impl Options {
    /// Options for data of unknown sizes.
    pub fn new(code: CodeMode, features: KernelFeatures, simd: SimdLevel) -> Self {
        Self { code, features, simd, sizes: None }
    }
}

/// Schedules the traversals of a verified program. Functions with these texts are not made: no code can be generated
/// for them.
pub fn schedule(mut kernels: kernel::Program, options: &Options, refused: &HashSet<String>) -> VerifiedLoops {
    let homes = kernels.homes();
    let mut bodies: Vec<Option<Rewritten>> =
        kernels.kernels().map(|kernel| Some(rewrite(&kernels, kernel.traversal()?, options.features))).collect();
    let mut nests: Vec<Option<Nest>> =
        bodies.iter().map(|body| Some(nest(&kernels, &homes, body.as_ref()?, options))).collect();
    let mut functions = Functions { made: vec![], known: HashMap::new(), refused };
    if options.code != CodeMode::Interpreted && options.features.has(KernelFeature::Jit) {
        for (body, nest) in bodies.iter().zip(&mut nests) {
            if let (Some(body), Some(nest)) = (body, nest) {
                functions::assign((&kernels, &homes), body, nest, options, &mut functions);
            }
        }
    }
    let capacity = tiles::capacity();
    for (body, nest) in bodies.iter().zip(&mut nests) {
        if let (Some(body), Some(nest)) = (body, nest) {
            tiles::assign(body, nest, capacity);
        }
    }
    for (kernel, body) in kernels.kernels_mut().zip(&mut bodies) {
        if let (Body::Traversal(traversal), Some(body)) = (&mut kernel.body, body.take()) {
            *traversal = body.traversal;
        }
    }
    VerifiedLoops::new(Program { kernels, nests, functions: functions.made })
}

/// The loops of a program on a device whose rows run on their own, each by a team of threads: the passes over the edges
/// of a row, without blocks, edge by edge. The instructions stay as they are. Edge values are computed again in each pass that reads
/// them, stored or not: they are in registers.
pub fn schedule_rows(kernels: kernel::Program) -> VerifiedLoops {
    let nest = |traversal: &kernel::Traversal| {
        let instrs = &traversal.instrs;
        let made_by = hgnnc_kernel_ir::loops::producers(instrs);
        let deps: Vec<Vec<usize>> = made_by.iter().map(|made_by| made_by.iter().flatten().copied().collect()).collect();
        let of = |level, instrs: Vec<usize>| match instrs[..] {
            [] => vec![],
            _ => vec![Loop { level, tile: Some(1), steps: instrs.into_iter().map(Step::Instr).collect() }],
        };
        let passes = passes(instrs, &deps, &passes_before(instrs, &deps), false);
        let passes = passes
            .into_iter()
            .map(|pass| EdgePass { rows: of(Level::Row, pass.rows), edges: of(Level::Edge, pass.edges) });
        Nest { first_deferred: instrs.len(), groups: vec![], passes: passes.collect() }
    };
    let nests = kernels.kernels().map(|kernel| kernel.traversal().map(nest)).collect();
    VerifiedLoops::new(Program { kernels, nests, functions: vec![] })
}

/// The loops of a traversal, without machine code.
fn nest(program: &kernel::Program, homes: &[kernel::Buffer], body: &Rewritten, options: &Options) -> Nest {
    let deps = dependencies::dependencies(program, homes, body);
    let all: Vec<usize> = (0..body.instrs().len()).collect();
    let traversal = &body.traversal;
    let groups = match traversal.rows.has_edges() && options.features.has(KernelFeature::SplitParts) {
        true => dependencies::components(&deps),
        false => vec![all],
    };
    let groups = groups.iter().map(|group| loops::loops(body, &deps, group, options.features)).collect();
    let splits =
        traversal.pieces.is_some() && traversal.rows.has_edges() && !overlap::edges_read_what_is_written(body, homes);
    let passes = if splits { edge_passes::edge_passes(body, &deps, options.features) } else { vec![] };
    Nest { first_deferred: body.first_deferred, groups, passes }
}
