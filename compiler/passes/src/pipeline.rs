//! The table of contents: which passes run, in which order, and why.
//!
//! There are two lists, because differentiation stands between them: [`FORWARD`] for programs that are still to be
//! differentiated (or never will be), [`JOINT`] for what comes out of it.

use std::collections::HashSet;
use std::fmt;

use hgnnc_ir::kernel::Program;
use hgnnc_ir::{Dataflow, Value, verify};
use hgnnc_machine::Machine;

pub use hgnnc_ir::sizes::{Ends, SizeInfo};

use crate::compact_endpoints::compact_endpoints;
use crate::contract_scores::contract_scores;
use crate::cse::cse;
use crate::dce::dce;
use crate::drop_stop_gradient::drop_stop_gradient;
use crate::factor_metapaths::factor_metapaths;
use crate::kernels::{self, Decision, LowerForm, NotLowered, SINGLE, Without};
use crate::move_to_vertices::move_to_vertices;
use crate::reassociate::reassociate;
use crate::rematerialize::rematerialize;
use crate::simplify::simplify;
use crate::split_outer_products::split_outer_products;

/// A pass by its name.
pub struct Pass {
    /// The name for `--disable-pass` and in explanations.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&mut Dataflow, &mut PassCx) -> Changed,
}

const SIMPLIFY: Pass = Pass { name: "simplify", run: simplify };
const CSE: Pass = Pass { name: "cse", run: cse };
const REMATERIALIZE: Pass = Pass { name: "rematerialize", run: rematerialize };
const DCE: Pass = Pass { name: "dce", run: dce };
const MOVE_TO_VERTICES: Pass = Pass { name: "move_to_vertices", run: move_to_vertices };
const REASSOCIATE: Pass = Pass { name: "reassociate", run: reassociate };
const COMPACT_ENDPOINTS: Pass = Pass { name: "compact_endpoints", run: compact_endpoints };
const CONTRACT_SCORES: Pass = Pass { name: "contract_scores", run: contract_scores };
const SPLIT_OUTER_PRODUCTS: Pass = Pass { name: "split_outer_products", run: split_outer_products };
const FACTOR_METAPATHS: Pass = Pass { name: "factor_metapaths", run: factor_metapaths };
const DROP_STOP_GRADIENT: Pass = Pass { name: "drop_stop_gradient", run: drop_stop_gradient };

/// On forward programs, before differentiation: what makes the forward pass cheap makes its gradient cheap.
pub const FORWARD: &[Pass] = &[
    // Reordering counts uses: without copies and dead values they are what they seem.
    SIMPLIFY,
    CSE,
    DCE,
    // Scores and projections of gathered values come to stand on vertices, where the next passes find them in one form.
    MOVE_TO_VERTICES,
    CSE,
    DCE,
    // A projection that only scores read is gone before its place is chosen.
    CONTRACT_SCORES,
    REASSOCIATE,
    SIMPLIFY,
    CSE,
    DCE,
    // What is summed over edges is as simple as it will be.
    FACTOR_METAPATHS,
    DCE,
    // What is on vertices and in which order is decided. The gradients of values with few rows have few rows.
    COMPACT_ENDPOINTS,
    CSE,
    DCE,
];

/// On joint programs, after differentiation, and on inference programs after [`FORWARD`].
pub const JOINT: &[Pass] = &[
    DROP_STOP_GRADIENT,
    SIMPLIFY,
    // The backward softmax is the forward softmax.
    CSE,
    DCE,
    MOVE_TO_VERTICES,
    CSE,
    DCE,
    // What could be moved to the vertices is there.
    SPLIT_OUTER_PRODUCTS,
    // Gradients of parameters with a row per vertex, and their updates.
    COMPACT_ENDPOINTS,
    SIMPLIFY,
    CSE,
    DCE,
    // Last: what the backward part reads is known, and copies must not be found equal again.
    REMATERIALIZE,
];

/// What changes no program, but is chosen when a program meets its data: the order of vertices in memory.
pub const REORDER_VERTICES: &str = "reorder_vertices";

/// Whether a pass changed the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed(pub bool);

/// What passes know beyond the program, and what they say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PassCx {
    /// Sizes of the dataset. Without them, passes that compare sizes change nothing.
    pub sizes: Option<SizeInfo>,
    /// The machine to compile for. With it, explanations tell predicted times.
    pub machine: Option<Machine>,
    /// What each pass did and refused, with the numbers that it compared.
    pub explain: Vec<String>,
    /// Bytes that the values of a run may take. Above it, more is recomputed.
    pub arena_budget: Option<u64>,
    /// Bytes that the values of an evaluation take, where they are known. A training program has its memory.
    pub evaluation_bytes: Option<u64>,
    /// Decisions that are left out when kernels are formed.
    pub without: Without,
    /// What someone who gave a budget is told.
    pub notes: Vec<String>,
}

impl PassCx {
    /// With sizes or without, without a budget.
    pub fn new(sizes: Option<SizeInfo>) -> Self {
        Self { sizes, ..Self::default() }
    }

    /// Says what was done, where something was done.
    pub(crate) fn note(&mut self, pass: &str, count: usize, what: impl FnOnce() -> String) -> Changed {
        if count > 0 {
            self.explain.push(format!("{pass}: {}", what()));
        }
        Changed(count > 0)
    }

    pub(crate) fn explain_all(&mut self, pass: &str, lines: Vec<String>) {
        self.explain.extend(lines.into_iter().map(|line| format!("{pass}: {line}")));
    }

    pub(crate) fn sizes_for(&mut self, pass: &str) -> Option<SizeInfo> {
        if self.sizes.is_none() {
            self.explain.push(format!("{pass}: no sizes are known, nothing is moved"));
        }
        self.sizes.clone()
    }
}

/// A name that nothing has that can be left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownPass {
    /// The name.
    pub name: String,
    /// All names there are, in order; of single decisions, what is stored by kernels of several values.
    pub known: Vec<String>,
}

impl UnknownPass {
    /// What is wrong.
    pub fn what(&self) -> String {
        match self.name.strip_prefix(SINGLE) {
            Some(name) => format!("no kernel of several values stores `{name}`"),
            None => format!("there is no pass `{}`", self.name),
        }
    }

    /// What could have been meant.
    pub fn help(&self) -> String {
        let known: Vec<String> = self.known.iter().map(|name| format!("`{name}`")).collect();
        let known = known.join(", ");
        match (self.name.starts_with(SINGLE), known.is_empty()) {
            (true, true) => "no kernel of this program computes several values".into(),
            (true, false) => format!("the kernels that can be taken apart store {known}"),
            (false, _) => format!("the passes are {known}"),
        }
    }
}

impl fmt::Display for UnknownPass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what(), self.help())
    }
}

impl std::error::Error for UnknownPass {}

/// Lists of passes with some left out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PassManager {
    disabled: Vec<String>,
    without: Without,
    apart: Vec<String>,
}

impl PassManager {
    /// Leaves out the passes and the decisions of these names.
    ///
    /// # Errors
    /// [`UnknownPass`] for the first name that none has. Whether a kernel has the name of a single decision is known when
    /// there are kernels.
    pub fn new(disabled: &[String]) -> Result<Self, UnknownPass> {
        let mut manager = Self::default();
        for name in disabled {
            if let Some(decision) = Decision::named(name) {
                manager.without = manager.without.and(decision);
            } else if let Some(single) = name.strip_prefix(SINGLE) {
                manager.apart.push(single.into());
            } else if Self::names().contains(&name.as_str()) {
                manager.disabled.push(name.clone());
            } else {
                return Err(UnknownPass { name: name.clone(), known: Self::switches() });
            }
        }
        Ok(manager)
    }

    /// All names that [`PassManager::new`] knows: passes, and decisions that form kernels.
    pub fn switches() -> Vec<String> {
        let decisions = Decision::ALL.map(Decision::name);
        Self::names().into_iter().chain(decisions).map(String::from).chain([format!("{SINGLE}NAME")]).collect()
    }

    /// A form without the decisions that are left out.
    pub fn form(&self, form: LowerForm) -> LowerForm {
        form.leaving_out(self.without)
    }

    /// Lowers a program, with single decisions left out.
    ///
    /// # Errors
    /// A single decision that is not made, or an operation without a kernel.
    pub fn lower(&self, flow: &Dataflow, form: LowerForm) -> Result<Result<Program, NotLowered>, UnknownPass> {
        let form = self.form(form);
        if self.apart.is_empty() {
            return Ok(kernels::lower_with(flow, form));
        }
        let fused = kernels::fused(flow, form);
        let mut apart = HashSet::new();
        for name in &self.apart {
            let Some((_, values)) = fused.iter().find(|(stored, _)| stored == name) else {
                // One name for each kernel.
                let mut seen = HashSet::new();
                let mut first = |values: &HashSet<Value>| values.iter().min().is_none_or(|&value| seen.insert(value));
                let known = fused.iter().filter(|(_, values)| first(values)).map(|(name, _)| name.clone()).collect();
                return Err(UnknownPass { name: format!("{SINGLE}{name}"), known });
            };
            apart.extend(values);
        }
        Ok(kernels::lower_apart(flow, form, &apart))
    }

    /// Is a decision left out?
    pub fn leaves_out(&self, decision: Decision) -> bool {
        self.without.has(decision)
    }

    /// The names of all passes, each once, in the order in which they first run; at last [`REORDER_VERTICES`].
    pub fn names() -> Vec<&'static str> {
        let mut names = vec![];
        for pass in FORWARD.iter().chain(JOINT) {
            if !names.contains(&pass.name) {
                names.push(pass.name);
            }
        }
        names.push(REORDER_VERTICES);
        names
    }

    /// Runs [`FORWARD`].
    pub fn run_forward(&self, flow: &mut Dataflow, cx: &mut PassCx) -> Changed {
        self.run(FORWARD, flow, cx)
    }

    /// Runs [`JOINT`]. How many bytes the values of an evaluation take ([`PassCx::evaluation_bytes`]) is asked for
    /// when the last pass needs it.
    pub fn run_joint(
        &self,
        flow: &mut Dataflow,
        cx: &mut PassCx,
        evaluation_bytes: impl FnOnce() -> Option<u64>,
    ) -> Changed {
        let (first, last) = JOINT.split_at(JOINT.len() - 1);
        cx.without = self.without;
        let changed = self.run(first, flow, cx);
        cx.evaluation_bytes = evaluation_bytes();
        Changed(self.run(last, flow, cx).0 | changed.0)
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
                let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
                panic!("internal error: pass `{}` broke the program:\n{}\n{flow}", pass.name, broken.join("\n"));
            }
        }
        Changed(changed)
    }
}
