//! Machine code for fused loops.
//!
//! A fused loop runs tile by tile. The interpreter executes it operation by operation and stores every value of a tile
//! to the L1 cache. Operations that the code generator covers become *native loops* ([`hgnnc_ir::loops::Function`]), which
//! keep values in registers. The other operations are kernels: products, weighted sums of gathered rows, dropout masks.
//! The body of a fused loop is a sequence of native loops and interpreted operations per tile; a body of native loops
//! only needs no tiles.
//!
//! [`cost`] decides which operations become native, from shapes alone: the same model on the same data is always
//! executed by the same code. Where no code can be generated, everything is interpreted.
//!
//! # Safety
//!
//! Native loops check no bounds. They rely on these invariants:
//! - rows of tiles, blocks and results are slices that [`crate::block`] has bounds-checked for each tile;
//! - gathered rows exist: [`facts::Facts`] compares the largest index of a topology with the length of the buffer
//!   before a native loop is created;
//! - `offsets` ascend and end at the number of edges of the tile: checked by [`facts::Facts`] as well;
//! - owners of edges are written by the block itself and are rows of it;
//! - widths are consistent: [`hgnnc_native::Compiler`] verifies each program;
//! - results do not alias operands, because the plan places the outputs of a step in ranges of their own, and a
//!   schedule places live locals apart, with the operations of a native loop counted as one moment. Only updates of
//!   parameters and states may alias the old values: [`overlap`] ensures that each element is read before it is
//!   overwritten.

pub mod cost;
mod facts;
mod overlap;
mod parts;
mod run;
pub(crate) mod text;

use std::collections::BTreeSet;

use hgnnc_native::{Code, Compiler};
use rayon::prelude::*;

pub use facts::Facts;
pub use overlap::Uses;
pub use parts::{BodyStep, IndexArray, LoopBody, LoopResult, NativeLoop, divide};
pub use run::Tables;

use crate::data::BoundData;
use crate::error::{ExecError, Result};
use crate::kernel_features::{KernelFeature, KernelFeatures};
use crate::plan::{Plan, Step, StepKind};
use crate::schedule::{RegionSchedule, Schedules};
use crate::simd;

/// Execution mode of fused loops.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CodeMode {
    /// Native where the cost model predicts a gain.
    #[default]
    Auto,
    /// All operations by the interpreter's kernels.
    Interpreted,
    /// Native wherever code can be generated.
    Native,
}

/// Inputs of the choice between native and interpreted execution.
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Chooser<'a> {
    /// Mode requested in the options.
    pub mode: CodeMode,
    pub features: KernelFeatures,
    /// Facts about the data.
    pub facts: &'a Facts<'a>,
    /// Constants of the plan, with their slab index.
    pub constants: (u32, &'a [f32]),
    /// Texts of programs that the code generator refused.
    pub refused: &'a BTreeSet<String>,
}

/// A compiler for this machine with the rounding of the kernels at the current SIMD level.
///
/// # Errors
/// A machine for which no code can be generated.
pub fn compiler() -> Result<Compiler> {
    Compiler::host(simd::level() != simd::Level::Base).map_err(|error| ExecError::Unsupported(error.to_string()))
}

/// Generates and holds machine code.
pub(crate) struct Generator {
    /// `None` if no code can be generated: everything is interpreted.
    compiler: Option<Compiler>,
    mode: CodeMode,
    features: KernelFeatures,
    code: Code,
    /// Texts of programs that the code generator refused.
    refused: BTreeSet<String>,
}

impl Generator {
    /// A generator without code.
    pub fn new(mode: CodeMode, features: KernelFeatures) -> Self {
        let compiler = compiler().ok();
        let can = compiler.is_some() && features.has(KernelFeature::Jit);
        let mode = if can { mode } else { CodeMode::Interpreted };
        Self { compiler, mode, features, code: Code::default(), refused: BTreeSet::new() }
    }

    /// Code generated so far.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Schedules of the regions of each plan's prelude and steps, with their machine code. `constants` are the slab
    /// indices of the plans' constants.
    pub fn schedules(&mut self, plans: &[Plan], constants: &[u32], data: &BoundData) -> Vec<Schedules> {
        loop {
            let facts = Facts::new(data);
            let mut schedules = vec![];
            for (plan, &slab) in plans.iter().zip(constants) {
                let constants = (slab, &plan.constants[..]);
                let chooser = Chooser {
                    mode: self.mode,
                    features: self.features,
                    facts: &facts,
                    constants,
                    refused: &self.refused,
                };
                let of = |step: &Step| match &step.kind {
                    StepKind::Region(region) => RegionSchedule::of(region, data, &chooser),
                    StepKind::Product(_) | StepKind::Grouped(_) | StepKind::Factored(_) | StepKind::Copy { .. } => {
                        vec![]
                    }
                };
                schedules.push([&plan.prelude, &plan.steps].map(|steps| steps.par_iter().map(of).collect::<Vec<_>>()));
            }
            let mut parts: Vec<&mut NativeLoop> =
                schedules.iter_mut().flatten().flatten().flatten().flat_map(RegionSchedule::parts).collect();
            let Some(compiler) = &self.compiler else { return schedules };
            let programs: Vec<_> = parts.iter().map(|part| &part.program).collect();
            let functions = compiler.add(&programs, &mut self.code);
            // Refused programs are interpreted in a second iteration.
            let known = self.refused.len();
            for (part, function) in parts.iter_mut().zip(functions) {
                match function {
                    Ok(function) => part.function = function,
                    Err(_) => drop(self.refused.insert(part.program.to_string())),
                }
            }
            if self.refused.len() == known {
                return schedules;
            }
        }
    }
}

impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generator({:?}, {:?})", self.mode, self.code)
    }
}
