//! Machine code for chains.
//!
//! A chain is executed tile by tile and, by the interpreter, operation by operation: every value of a tile is written to
//! the first-level cache and read again. Here operations of a chain that the code generator covers become *parts*:
//! loops of their own ([`hgnnc_native::Program`]), in which values stay in registers. What remains are kernels:
//! products, weighted sums of gathered rows, masks. A chain then is a sequence of units, parts and interpreted
//! operations, for one tile after another; a chain of parts only needs no tiles.
//!
//! Which operations become parts is decided by [`cost`], from shapes alone: the same model on the same data is always
//! executed by the same code. Where no code can be generated, everything is interpreted.
//!
//! # Safety
//!
//! Generated loops check no bounds. What they rely on is established elsewhere:
//! - rows of tiles, of blocks and of results are slices that [`crate::block`] has cut (and checked) for each tile;
//! - rows that indices pick exist: [`facts::Facts`] compares the largest index of a topology with the length of the
//!   buffer before a part is made;
//! - offsets of rows ascend and end at the number of edges of the tile: likewise;
//! - owners of edges are written by the block itself and are rows of it;
//! - widths divide as the operations need it: [`hgnnc_native::Compiler`] verifies each program;
//! - results overlap no operands, because the plan gives the outputs of a step room of their own, and a routine places
//!   locals that are alive together apart, with the operations of a part counted as one moment. Only updates of
//!   parameters and states may lie where the old ones do: [`overlap`] makes sure that each element is read before.

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

/// How chains are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CodeMode {
    /// By machine code where the cost model expects it to be faster.
    #[default]
    Auto,
    /// By the interpreter and its kernels only.
    Interpreted,
    /// By machine code wherever it can be generated.
    Native,
}

/// What decides which parts there are.
pub struct Chooser<'a> {
    /// What the options ask for.
    pub mode: CodeMode,
    /// The ways of execution to choose from.
    pub features: KernelFeatures,
    /// Facts about the data.
    pub facts: &'a Facts<'a>,
    /// Constants of the plan, with their slab.
    pub constants: (u32, &'a [f32]),
    /// Texts of programs that the generator refused.
    pub refused: &'a BTreeSet<String>,
}

/// A generator for this machine, whose numbers agree with those of the kernels at the present level.
///
/// # Errors
/// A machine for which no code can be generated.
pub fn compiler() -> Result<Compiler> {
    Compiler::host(simd::level() != simd::Level::Base).map_err(|error| ExecError::Unsupported(error.to_string()))
}

/// Generates machine code, and keeps it.
pub(crate) struct Generator {
    /// `None` where no code can be generated: everything is interpreted.
    compiler: Option<Compiler>,
    mode: CodeMode,
    features: KernelFeatures,
    code: Code,
    /// Texts of programs that the generator refused.
    refused: BTreeSet<String>,
}

impl Generator {
    /// Has no code yet.
    pub fn new(mode: CodeMode, features: KernelFeatures) -> Self {
        let compiler = compiler().ok();
        let can = compiler.is_some() && features.has(KernelFeature::Jit);
        let mode = if can { mode } else { CodeMode::Interpreted };
        Self { compiler, mode, features, code: Code::default(), refused: BTreeSet::new() }
    }

    /// The code that it has generated.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// How the regions of each plan's prelude and steps are executed, with the machine code for it. `constants` are the
    /// slabs of the plans' constants.
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
                    StepKind::Product(_) | StepKind::Factored(_) | StepKind::Copy { .. } => vec![],
                };
                schedules.push([&plan.prelude, &plan.steps].map(|steps| steps.par_iter().map(of).collect::<Vec<_>>()));
            }
            let mut parts: Vec<&mut NativeLoop> =
                schedules.iter_mut().flatten().flatten().flatten().flat_map(RegionSchedule::parts).collect();
            let Some(compiler) = &self.compiler else { return schedules };
            let programs: Vec<_> = parts.iter().map(|part| &part.program).collect();
            let functions = compiler.add(&programs, &mut self.code);
            // In a second round what it refuses is interpreted.
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
