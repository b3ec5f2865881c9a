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

use crate::compact::compact;
use crate::compute_on_vertices::compute_on_vertices;
use crate::contract_scores::contract_scores;
use crate::erase_stops::erase_stops;
use crate::fit_outer_products::fit_outer_products;
use crate::kernels::{self, Decision, LowerForm, NotLowered, SINGLE, Without};
use crate::recompute::recompute;
use crate::remove_dead::remove_dead;
use crate::share_common::share_common;
use crate::simplify::simplify;
use crate::sum_along_paths::sum_along_paths;
use crate::sum_before_projecting::sum_before_projecting;

/// A pass by its name.
pub struct Pass {
    /// The name for `--disable-pass` and in explanations.
    pub name: &'static str,
    /// What it does.
    pub run: fn(&mut Dataflow, &mut PassCx) -> Changed,
}

const SIMPLIFY: Pass = Pass { name: "simplify", run: simplify };
const SHARE_COMMON: Pass = Pass { name: "share_common", run: share_common };
const RECOMPUTE: Pass = Pass { name: "recompute", run: recompute };
const REMOVE_DEAD: Pass = Pass { name: "remove_dead", run: remove_dead };
const COMPUTE_ON_VERTICES: Pass = Pass { name: "compute_on_vertices", run: compute_on_vertices };
const SUM_BEFORE_PROJECTING: Pass = Pass { name: "sum_before_projecting", run: sum_before_projecting };
const COMPACT: Pass = Pass { name: "compact", run: compact };
const CONTRACT_SCORES: Pass = Pass { name: "contract_scores", run: contract_scores };
const FIT_OUTER_PRODUCTS: Pass = Pass { name: "fit_outer_products", run: fit_outer_products };
const SUM_ALONG_PATHS: Pass = Pass { name: "sum_along_paths", run: sum_along_paths };
const ERASE_STOPS: Pass = Pass { name: "erase_stops", run: erase_stops };

/// On forward programs, before differentiation: what makes the forward pass cheap makes its gradient cheap.
pub const FORWARD: &[Pass] = &[
    // Reordering counts uses: without copies and dead values they are what they seem.
    SIMPLIFY,
    SHARE_COMMON,
    REMOVE_DEAD,
    // Scores and projections of gathered values come to stand on vertices, where the next passes find them in one form.
    COMPUTE_ON_VERTICES,
    SHARE_COMMON,
    REMOVE_DEAD,
    // A projection that only scores read is gone before its place is chosen.
    CONTRACT_SCORES,
    SUM_BEFORE_PROJECTING,
    SIMPLIFY,
    SHARE_COMMON,
    REMOVE_DEAD,
    // What is summed over edges is as simple as it will be.
    SUM_ALONG_PATHS,
    REMOVE_DEAD,
    // What is on vertices and in which order is decided. The gradients of values with few rows have few rows.
    COMPACT,
    SHARE_COMMON,
    REMOVE_DEAD,
];

/// On joint programs, after differentiation, and on inference programs after [`FORWARD`].
pub const JOINT: &[Pass] = &[
    ERASE_STOPS,
    SIMPLIFY,
    // The backward softmax is the forward softmax.
    SHARE_COMMON,
    REMOVE_DEAD,
    COMPUTE_ON_VERTICES,
    SHARE_COMMON,
    REMOVE_DEAD,
    // What could be moved to the vertices is there.
    FIT_OUTER_PRODUCTS,
    // Gradients of parameters with a row per vertex, and their updates.
    COMPACT,
    SIMPLIFY,
    SHARE_COMMON,
    REMOVE_DEAD,
    // Last: what the backward part reads is known, and copies must not be found equal again.
    RECOMPUTE,
];

/// What changes no program, but is chosen when a program meets its data: the order of vertices in memory.
pub const ORDER: &str = "order";

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

    /// The names of all passes, each once, in the order in which they first run; at last [`ORDER`].
    pub fn names() -> Vec<&'static str> {
        let mut names = vec![];
        for pass in FORWARD.iter().chain(JOINT) {
            if !names.contains(&pass.name) {
                names.push(pass.name);
            }
        }
        names.push(ORDER);
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
