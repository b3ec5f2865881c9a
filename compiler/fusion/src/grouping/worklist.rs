//! The worklist of grouping: the operations that a group can start with, kept up to date while groups are formed.
//!
//! An operation waits for the stored values that it reads, also through values that each reader recomputes: edge values
//! and inlined values. The worklist counts these inputs, and each finished group decrements the counts of its readers,
//! so that all groups together cost no more than the program is large.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_analysis::aliases::AliasAnalysis;
use hgnnc_ir::{Op, OutputKind, Param, Phase, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::inline::Placement;
use super::{Grouping, RANK_DEFERRED};
use crate::groups::Kind;

/// Counts of inputs by operation, and the operations whose inputs are there. Vectors are indexed by value, sets are in
/// SSA order.
#[derive(Default)]
pub(crate) struct Worklist {
    /// The computed values that an operation reads.
    inputs: Vec<Vec<Value>>,
    /// The operations that read a value.
    readers: Vec<Vec<Value>>,
    /// Number of inputs that are not stored yet.
    unstored_inputs: Vec<usize>,
    /// Number of inputs that are neither stored nor [`Worklist::jit_ready`].
    unavailable_inputs: Vec<usize>,
    /// Number of inputs that are neither stored nor early; `None` for operations that are never early.
    non_early_inputs: Vec<Option<usize>>,
    /// Operations that are to be scheduled now.
    pending: Vec<bool>,
    /// Values placed just in time whose inputs are all available.
    jit_ready: Vec<bool>,
    /// Scalars of an optimizer that depend on counters and constants only, not on a gradient or a parameter.
    is_early: Vec<bool>,
    early: BTreeSet<Value>,
    /// Operations that can start a group, in the order of preference, and the key of each.
    starts: BTreeSet<(Phase, u32, Value)>,
    keys: Vec<Option<(Phase, u32, Value)>>,
    /// Operations that fit into a group of a kind without anything else in the group.
    ready: FxHashMap<(Phase, Kind), BTreeSet<Value>>,
    /// The readers of each parameter and state.
    leaf_readers: BTreeMap<Leaf, Vec<Value>>,
    /// The parameters and states whose new values an operation computes.
    updates: FxHashMap<Value, Vec<Leaf>>,
}

/// A parameter, or one of its states.
type Leaf = (Param, Option<u32>);

impl Worklist {
    /// A worklist without pending operations. `nodes` are the operations that groups compute.
    pub fn new(aliases: &AliasAnalysis<'_>, nodes: &[Value], kinds: &[Vec<Kind>], placement: &[Placement]) -> Self {
        let flow = aliases.flow;
        let count = flow.values.len();
        let mut lists = Self {
            inputs: vec![vec![]; count],
            readers: vec![vec![]; count],
            unstored_inputs: vec![0; count],
            unavailable_inputs: vec![0; count],
            non_early_inputs: vec![None; count],
            pending: vec![false; count],
            jit_ready: vec![false; count],
            is_early: vec![false; count],
            keys: vec![None; count],
            ..Self::default()
        };
        // The operation from which a value was last reached.
        let mut seen: Vec<Option<Value>> = vec![None; count];
        for &v in nodes.iter().filter(|v| placement[v.index()] != Placement::Inline) {
            let mut reads = vec![v];
            while let Some(value) = reads.pop() {
                for root in flow.value(value).args.iter().map(|&arg| aliases.storage_of(arg)) {
                    if aliases.is_leaf(root) || seen[root.index()].replace(v) == Some(v) {
                        continue;
                    }
                    let edges = aliases.topology(root).is_some();
                    if edges || placement[root.index()] == Placement::Inline {
                        reads.push(root);
                    } else {
                        lists.inputs[v.index()].push(root);
                    }
                    lists.readers[root.index()].push(v);
                }
            }
            let num_inputs = lists.inputs[v.index()].len();
            (lists.unstored_inputs[v.index()], lists.unavailable_inputs[v.index()]) = (num_inputs, num_inputs);
            lists.non_early_inputs[v.index()] = may_be_early(aliases, v, &kinds[v.index()]).then_some(num_inputs);
        }
        for reader in flow.handles().filter(|&v| aliases.storage_of(v) == v && aliases.is_live(v)) {
            for root in flow.value(reader).args.iter().map(|&arg| aliases.storage_of(arg)) {
                let leaf = match flow.value(root).op {
                    Op::Param(param) => (param, None),
                    Op::State(param, slot) => (param, Some(slot)),
                    _ => continue,
                };
                lists.leaf_readers.entry(leaf).or_default().push(reader);
            }
        }
        for output in &flow.outputs {
            let leaf = match output.kind {
                OutputKind::UpdateParam(param) => (param, None),
                OutputKind::UpdateState(param, slot) => (param, Some(slot)),
                OutputKind::Result(_) => continue,
            };
            lists.updates.entry(aliases.storage_of(output.value)).or_default().push(leaf);
        }
        lists
    }

    /// Scalars of an optimizer that can be computed first.
    pub fn early(&self) -> &BTreeSet<Value> {
        &self.early
    }

    /// The operation to start a group with: all its inputs are stored or can be computed just in time.
    pub fn first(&self) -> Option<(Phase, Value)> {
        self.starts.first().map(|&(phase, _, v)| (phase, v))
    }

    /// Operations that fit into a group of a kind, whatever else is in it.
    pub fn ready(&self, phase: Phase, kind: &Kind) -> BTreeSet<Value> {
        self.ready.get(&(phase, kind.clone())).cloned().unwrap_or_default()
    }

    /// Operations that read a value, directly or through values that they recompute.
    pub fn readers(&self, v: Value) -> &[Value] {
        &self.readers[v.index()]
    }

    /// Is an operation to be scheduled now, and in no group yet?
    pub fn is_pending(&self, v: Value) -> bool {
        self.pending[v.index()]
    }

    /// Are all inputs of an operation stored?
    pub fn inputs_stored(&self, v: Value) -> bool {
        self.unstored_inputs[v.index()] == 0
    }

    /// The first input of an operation that is in no group yet.
    pub fn first_pending_input(&self, v: Value) -> Option<Value> {
        self.inputs[v.index()].iter().copied().filter(|input| self.pending[input.index()]).min()
    }

    /// The readers of the parameters and states whose new values an operation computes.
    pub fn readers_of_old(&self, v: Value) -> impl Iterator<Item = &Value> {
        let leaves = self.updates.get(&v).into_iter().flatten();
        leaves.filter_map(|leaf| self.leaf_readers.get(leaf)).flatten()
    }

    /// Marks a scalar as early, and all readers that become early with it.
    fn add_early(&mut self, v: Value) {
        let mut found = vec![v];
        while let Some(v) = found.pop() {
            self.is_early[v.index()] = true;
            self.early.insert(v);
            for &reader in &self.readers[v.index()] {
                if let Some(non_early_inputs) = &mut self.non_early_inputs[reader.index()] {
                    *non_early_inputs -= 1;
                    if *non_early_inputs == 0 && self.pending[reader.index()] {
                        found.push(reader);
                    }
                }
            }
        }
    }

    /// Inserts a start, in place of a worse one of the same operation.
    fn add_start(&mut self, key: (Phase, u32, Value)) {
        self.remove_start(key.2);
        self.starts.insert(key);
        self.keys[key.2.index()] = Some(key);
    }

    fn remove_start(&mut self, v: Value) {
        if let Some(key) = self.keys[v.index()].take() {
            self.starts.remove(&key);
        }
    }
}

impl Grouping<'_, '_> {
    /// Marks operations as pending.
    pub fn begin(&mut self, pending: &[Value]) {
        for &v in pending {
            self.lists.pending[v.index()] = true;
        }
        self.update(pending.to_vec());
    }

    /// Marks the members of a group as done and updates their readers.
    pub fn finish(&mut self, members: &[Value]) {
        let mut changed = vec![];
        for &member in members {
            self.done[member.index()] = true;
            let lists = &mut self.lists;
            lists.pending[member.index()] = false;
            lists.early.remove(&member);
            lists.remove_start(member);
            let phase = self.aliases.flow.value(member).phase;
            for kind in &self.kinds[member.index()] {
                if let Some(ready) = lists.ready.get_mut(&(phase, kind.clone())) {
                    ready.remove(&member);
                }
            }
            // Edge values are computed by each reader even if they are results.
            if self.aliases.topology(member).is_some() {
                continue;
            }
            for &reader in &lists.readers[member.index()] {
                lists.unstored_inputs[reader.index()] -= 1;
                lists.unavailable_inputs[reader.index()] -= usize::from(!lists.jit_ready[member.index()]);
                if let Some(non_early_inputs) = &mut lists.non_early_inputs[reader.index()] {
                    *non_early_inputs -= usize::from(!lists.is_early[member.index()]);
                }
                changed.push(reader);
            }
        }
        self.update(changed);
    }

    /// Inserts operations whose inputs have become available.
    fn update(&mut self, mut changed: Vec<Value>) {
        while let Some(v) = changed.pop() {
            if !self.lists.pending[v.index()] {
                continue;
            }
            if self.lists.non_early_inputs[v.index()] == Some(0) && !self.lists.is_early[v.index()] {
                self.lists.add_early(v);
            }
            let (all_stored, all_available) =
                (self.lists.unstored_inputs[v.index()] == 0, self.lists.unavailable_inputs[v.index()] == 0);
            let phase = self.aliases.flow.value(v).phase;
            match self.placement[v.index()] {
                Placement::Inline => {}
                Placement::JustInTime if all_available && !self.lists.jit_ready[v.index()] => {
                    self.lists.jit_ready[v.index()] = true;
                    for &reader in &self.lists.readers[v.index()] {
                        self.lists.unavailable_inputs[reader.index()] -= 1;
                        changed.push(reader);
                    }
                }
                Placement::JustInTime => {}
                Placement::Eager if all_stored => {
                    let none = FxHashSet::default();
                    let fitting: Vec<Kind> =
                        self.kinds[v.index()].iter().filter(|kind| self.fits(v, kind, &none)).cloned().collect();
                    if let Some(kind) = fitting.first() {
                        let rank = self.rank(v, kind);
                        self.lists.add_start((phase, rank, v));
                    }
                    for kind in fitting {
                        self.lists.ready.entry((phase, kind)).or_default().insert(v);
                    }
                }
                Placement::Eager if all_available => {
                    // Reductions and maps are deferred until a kernel that must start needs the values that they read.
                    let rank = match &self.kinds[v.index()][0] {
                        kind @ (Kind::Product(_)
                        | Kind::Edges(..)
                        | Kind::Endpoints(..)
                        | Kind::Exchange(_)
                        | Kind::FactoredMetapath(_)) => self.rank(v, kind),
                        kind @ Kind::Map(_) if self.tiled[v.index()] => self.rank(v, kind),
                        Kind::Unit | Kind::Elements(_) | Kind::Map(_) => RANK_DEFERRED,
                    };
                    self.lists.add_start((phase, rank, v));
                }
                Placement::Eager => {}
            }
        }
    }
}

/// Can an operation be a scalar of the optimizer that depends on no gradient and no parameter? Its inputs decide the
/// rest.
fn may_be_early(aliases: &AliasAnalysis<'_>, v: Value, kinds: &[Kind]) -> bool {
    let node = aliases.flow.value(v);
    let number = |&arg: &Value| {
        let root = aliases.storage_of(arg);
        aliases.width(root).is_one() && !matches!(aliases.flow.value(root).op, Op::Param(_) | Op::State(..))
    };
    node.phase == Phase::Update
        && kinds.contains(&Kind::Unit)
        && node.ty.is_unit()
        && aliases.width(v).is_one()
        && node.args.iter().all(number)
}
