//! A pass, and the context that it runs in.

use std::collections::BTreeSet;

use hgnnc_fusion::DisabledFusions;
use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::{Dataflow, Graph};
use hgnnc_machine::Machine;

/// A pass with its name.
pub struct Pass {
    /// The name for `--disable-pass` and in explanations.
    pub name: &'static str,
    /// A few words on what the pass does, for `--help`.
    pub summary: &'static str,
    /// The function that changes a program.
    pub run: fn(&mut Dataflow, &mut PassCx) -> Changed,
}

/// Whether a pass changed the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Changed(pub bool);

/// The context of passes: sizes, machine and budgets in, explanations out.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PassCx {
    /// Sizes of the dataset. Without them, passes that compare sizes change nothing.
    pub sizes: Option<SizeInfo>,
    /// The machine to compile for. With it, explanations have predicted times.
    pub machine: Option<Machine>,
    /// The actions and refusals of each pass, with the numbers that it compared.
    pub explain: Vec<String>,
    /// The metapath graphs whose sums are factored, if that is decided: see
    /// [`factor_metapaths`](mod@crate::factor_metapaths). Without it, the pass compares costs.
    pub factored: Option<BTreeSet<Graph>>,
    /// Bytes that the values of a run may take. Above it, more values are rematerialized.
    pub arena_budget: Option<u64>,
    /// Bytes that the values of an evaluation take, where they are known. A training program has its memory.
    pub evaluation_bytes: Option<u64>,
    /// The layout of a program of mini-batches, whose tables have rows for the vertices of a batch.
    pub batch: Option<BatchLayout>,
    /// Multiply-adds in whose time an element of a row of a table comes from another process, where rows do. Else 0.
    pub element_cost: u64,
    /// Where memory comes before time: the elements of the largest weight of a product that is fused with the sum that
    /// it reads. Else 0.
    pub lean_weight: usize,
    /// Fusion rules that lowering will not apply.
    pub disabled_fusions: DisabledFusions,
    /// Messages about a memory budget for the user who gave it.
    pub notes: Vec<String>,
}

impl PassCx {
    /// A context without a machine and without a budget.
    pub fn new(sizes: Option<SizeInfo>) -> Self {
        Self { sizes, ..Self::default() }
    }

    /// Records an explanation if a pass changed anything.
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
