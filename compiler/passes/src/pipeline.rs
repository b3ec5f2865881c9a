//! The table of contents: which passes run, in which order, and why.
//!
//! [`MODEL`] is for the program of a model before data is bound to it. Differentiation stands between [`FORWARD`], for
//! programs that are still to be differentiated (or never will be), and [`JOINT`] and [`MEMORY`], for differentiated
//! programs. [`KERNEL_PASSES`](hgnnc_fusion::KERNEL_PASSES) follow when a program has been lowered to kernels.

use std::fmt;

use hgnnc_fusion::{DisabledFusions, FusionRule, LoweringOptions, VALUE_PREFIX};
use hgnnc_ir::violation::lines;
use hgnnc_ir::{Dataflow, Value, verify};
use rustc_hash::FxHashSet;

use crate::compact_endpoints::compact_endpoints;
use crate::contract_scores::contract_scores;
use crate::cse::cse;
use crate::dce::dce;
use crate::drop_stop_gradient::drop_stop_gradient;
use crate::factor_metapaths::factor_metapaths;
use crate::move_to_vertices::move_to_vertices;
use crate::narrow_exchanges::NARROW_EXCHANGES;
use crate::pass::{Changed, Pass, PassCx};
use crate::precompute::PRECOMPUTE;
use crate::reassociate::reassociate;
use crate::rematerialize::rematerialize;
use crate::scale_on_edges::scale_on_edges;
use crate::simplify::simplify;
use crate::split_outer_products::split_outer_products;
use crate::stack_families::stack_families;

const SIMPLIFY: Pass = Pass { name: "simplify", summary: "algebraic identities", run: simplify };
const CSE: Pass = Pass { name: "cse", summary: "common subexpression elimination", run: cse };
const DCE: Pass = Pass { name: "dce", summary: "dead code elimination", run: dce };
const MOVE_TO_VERTICES: Pass = Pass {
    name: "move_to_vertices",
    summary: "per-edge values of one endpoint are computed per vertex",
    run: move_to_vertices,
};
const CONTRACT_SCORES: Pass = Pass {
    name: "contract_scores",
    summary: "attention vectors are multiplied into the projection weight",
    run: contract_scores,
};
const REASSOCIATE: Pass =
    Pass { name: "reassociate", summary: "a projection is moved across a neighbour sum", run: reassociate };
const FACTOR_METAPATHS: Pass = Pass {
    name: "factor_metapaths",
    summary: "metapath sums go hop by hop, without materializing the metapath",
    run: factor_metapaths,
};
const COMPACT_ENDPOINTS: Pass = Pass {
    name: "compact_endpoints",
    summary: "values of a sparse relation have rows for its endpoints only",
    run: compact_endpoints,
};
const DROP_STOP_GRADIENT: Pass = Pass {
    name: "drop_stop_gradient",
    summary: "stop_gradient is removed after differentiation",
    run: drop_stop_gradient,
};
const SPLIT_OUTER_PRODUCTS: Pass = Pass {
    name: "split_outer_products",
    summary: "per-edge weight gradients too large for registers are split",
    run: split_outer_products,
};
const SCALE_ON_EDGES: Pass = Pass {
    name: "scale_on_edges",
    summary: "gathered rows are scaled on the edges, not stored scaled",
    run: scale_on_edges,
};
const REMATERIALIZE: Pass =
    Pass { name: "rematerialize", summary: "the backward pass recomputes cheap forward values", run: rematerialize };

const STACK_FAMILIES: Pass = Pass {
    name: "stack_families",
    summary: "many relations that are treated alike become one graph",
    run: stack_families,
};

/// On the forward program of a model, before it is bound to data: these passes change tables of graphs and parameters.
pub const MODEL: &[Pass] = &[STACK_FAMILIES];

/// On forward programs, before differentiation: a cheaper forward pass has a cheaper gradient.
pub const FORWARD: &[Pass] = &[
    // Reassociation counts uses, which copies and dead values would inflate.
    SIMPLIFY,
    CSE,
    DCE,
    // Scores and projections of gathered values move to the vertices, where the next passes find them in one form.
    MOVE_TO_VERTICES,
    CSE,
    DCE,
    // Removes projections that only scores read, before their side of the sum is chosen.
    CONTRACT_SCORES,
    REASSOCIATE,
    SIMPLIFY,
    CSE,
    DCE,
    // Sums over edges are in their final form.
    FACTOR_METAPATHS,
    DCE,
    // The order of operations is final. The gradients of compact values are compact.
    COMPACT_ENDPOINTS,
    CSE,
    DCE,
];

/// On joint programs, after differentiation, and on inference programs after [`FORWARD`].
pub const JOINT: &[Pass] = &[
    DROP_STOP_GRADIENT,
    SIMPLIFY,
    // Merges the backward softmax with the forward softmax.
    CSE,
    DCE,
    MOVE_TO_VERTICES,
    CSE,
    DCE,
    // After all moves to the vertices.
    SPLIT_OUTER_PRODUCTS,
    // Compacts gradients of embedding tables, and their updates.
    COMPACT_ENDPOINTS,
    SIMPLIFY,
    CSE,
    DCE,
];

/// After [`JOINT`], when the reads of the backward pass are final: CSE must not merge the copies again. These passes
/// compare the memory of a training step with that of an evaluation.
pub const MEMORY: &[Pass] = &[SCALE_ON_EDGES, REMATERIALIZE];

/// On programs of ranks, after [`place`](crate::place()), which computes values of edges for each of their readers.
pub const PLACED: &[Pass] = &[CSE, DCE];

/// Renumbers vertices for locality when a program is bound to its data. It changes no program, so it is in no list.
pub const REORDER_VERTICES: &str = "reorder_vertices";

/// A few words on [`REORDER_VERTICES`], for `--help`.
const REORDER_SUMMARY: &str = "vertices are renumbered for locality (training on a CPU)";

/// A few words on [`precompute`](mod@crate::precompute), for `--help`. It makes two programs of one, so it is in no list.
const PRECOMPUTE_SUMMARY: &str = "rows that depend on no parameter are computed once, not in every batch";

/// A few words on [`narrow_exchanges`](mod@crate::narrow_exchanges), for `--help`. Programs are placed before, so no list has it.
const NARROW_SUMMARY: &str = "several processes send projections of learned rows, where these are narrower";

/// Passes and fusions to disable, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Disabled {
    /// Names of passes; [`PRECOMPUTE`], [`NARROW_EXCHANGES`] and [`REORDER_VERTICES`] are among them.
    pub passes: Vec<String>,
    /// Names of fusion rules, and `value:NAME` for the kernel that stores `NAME`.
    pub fusions: Vec<String>,
}

impl Disabled {
    /// Is a pass of this name to be disabled?
    pub fn has_pass(&self, name: &str) -> bool {
        self.passes.iter().any(|pass| pass == name)
    }
}

/// A name in [`Disabled`] that nothing has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnknownName {
    /// There is no pass of this name.
    Pass(String),
    /// There is no fusion rule of this name.
    Fusion(String),
    /// No kernel of several values stores a value of this name.
    Value {
        /// The name without [`VALUE_PREFIX`].
        name: String,
        /// One name for each kernel of several values.
        known: Vec<String>,
    },
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass(name) => write!(f, "there is no pass `{name}`"),
            Self::Fusion(name) => write!(f, "there is no fusion `{name}`"),
            Self::Value { name, .. } => write!(f, "no kernel of several values stores `{name}`"),
        }
    }
}

impl std::error::Error for UnknownName {}

/// Runs the lists of passes without those that are disabled, and says which fusions are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PassManager {
    disabled: Vec<String>,
    fusions: DisabledFusions,
    /// Each names a kernel by a value that it stores.
    unfused: Vec<String>,
}

impl PassManager {
    /// A manager without these passes and fusions.
    ///
    /// # Errors
    /// [`UnknownName`] for the first unknown pass or fusion rule. [`PassManager::unfused`] checks the names of values,
    /// since they need a program.
    pub fn new(disabled: &Disabled) -> Result<Self, UnknownName> {
        let mut manager = Self::default();
        for name in &disabled.passes {
            if !Self::names().contains(&name.as_str()) {
                return Err(UnknownName::Pass(name.clone()));
            }
            manager.disabled.push(name.clone());
        }
        for name in &disabled.fusions {
            if let Some(rule) = FusionRule::named(name) {
                manager.fusions = manager.fusions.with(rule);
            } else if let Some(value) = name.strip_prefix(VALUE_PREFIX) {
                manager.unfused.push(value.into());
            } else {
                return Err(UnknownName::Fusion(name.clone()));
            }
        }
        Ok(manager)
    }

    /// The options without the fusion rules that are disabled.
    pub fn lowering_options(&self, options: LoweringOptions) -> LoweringOptions {
        options.without(self.fusions)
    }

    /// The values of a program that have a kernel of their own, since single fusions are disabled.
    ///
    /// # Errors
    /// A value that no kernel of several values stores.
    pub fn unfused(&self, flow: &Dataflow, options: LoweringOptions) -> Result<FxHashSet<Value>, UnknownName> {
        let mut unfused = FxHashSet::default();
        if self.unfused.is_empty() {
            return Ok(unfused);
        }
        let mut groups = hgnnc_fusion::group(flow, self.lowering_options(options), &unfused);
        hgnnc_fusion::store(flow, &mut groups);
        let fused = groups.fused(flow);
        for name in &self.unfused {
            let Some((_, values)) = fused.iter().find(|(stored, _)| stored == name) else {
                // One name for each kernel.
                let mut seen = FxHashSet::default();
                let mut first = |values: &FxHashSet<Value>| values.iter().min().is_none_or(|&value| seen.insert(value));
                let known = fused.iter().filter(|(_, values)| first(values)).map(|(name, _)| name.clone()).collect();
                return Err(UnknownName::Value { name: name.clone(), known });
            };
            unfused.extend(values);
        }
        Ok(unfused)
    }

    /// Is a fusion rule disabled?
    pub fn disables(&self, rule: FusionRule) -> bool {
        self.fusions.contains(rule)
    }

    /// The names of all passes with their summaries, each once, in the order in which they first run;
    /// [`PRECOMPUTE`], [`NARROW_EXCHANGES`] and [`REORDER_VERTICES`] last.
    pub fn summaries() -> Vec<(&'static str, &'static str)> {
        let mut found: Vec<(&str, &str)> = vec![];
        for pass in MODEL.iter().chain(FORWARD).chain(JOINT).chain(MEMORY) {
            if !found.iter().any(|(name, _)| *name == pass.name) {
                found.push((pass.name, pass.summary));
            }
        }
        found.push((PRECOMPUTE, PRECOMPUTE_SUMMARY));
        found.push((NARROW_EXCHANGES, NARROW_SUMMARY));
        found.push((REORDER_VERTICES, REORDER_SUMMARY));
        found
    }

    /// The names of all passes, as [`PassManager::summaries`] has them.
    pub fn names() -> Vec<&'static str> {
        Self::summaries().into_iter().map(|(name, _)| name).collect()
    }

    /// Runs the passes of [`MODEL`].
    pub fn run_model(&self, flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
        self.run(MODEL, flow, cx)
    }

    /// Runs the passes of [`FORWARD`].
    pub fn run_forward(&self, flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
        self.run(FORWARD, flow, cx)
    }

    /// Runs the passes of [`JOINT`], then those of [`MEMORY`], before which `evaluation_bytes` gives
    /// [`PassCx::evaluation_bytes`].
    pub fn run_joint(
        &self,
        flow: &mut Dataflow,
        cx: &mut PassCx,
        evaluation_bytes: impl FnOnce() -> Option<u64>,
    ) -> Changed {
        cx.disabled_fusions = self.fusions;
        let changed = self.run(JOINT, flow, cx);
        cx.evaluation_bytes = evaluation_bytes();
        Changed(self.run(MEMORY, flow, cx).0 | changed.0)
    }

    /// Runs the passes of [`PLACED`].
    pub fn run_placed(&self, flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
        self.run(PLACED, flow, cx)
    }

    /// Runs passes in order. Debug builds verify the program after each.
    ///
    /// # Panics
    /// In debug builds, when a pass has broken the program: an internal error with the pass, the rules and the text.
    pub fn run(&self, passes: &[Pass], flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
        let mut changed = false;
        for pass in passes {
            if self.disabled.iter().any(|name| name == pass.name) {
                continue;
            }
            changed |= (pass.run)(flow, cx).0;
            if cfg!(debug_assertions)
                && let Err(broken) = verify(flow)
            {
                panic!("internal error: pass `{}` broke the program:\n{}\n{flow}", pass.name, lines(&broken));
            }
        }
        Changed(changed)
    }
}
