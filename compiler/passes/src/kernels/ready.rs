//! Which operations a group can start with, kept up to date while groups are made.
//!
//! An operation waits for the stored values that it reads, be it through values that each reader computes for itself:
//! edge values, and those that are late and inline. What it waits for is counted, and each finished group settles the
//! counts of its readers, so that all groups together cost no more than the program is large.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use hgnnc_ir::{Op, OutputKind, Param, Phase, Value};

use super::facts::Facts;
use super::late::Late;
use super::schedule::{Kind, PATIENT, Scheduler};

/// What operations wait for, and those that wait no more. Lists are by value, and sets in SSA order.
#[derive(Default)]
pub(super) struct Worklists {
    /// The computed values that an operation reads, and those that read a value.
    needs: Vec<Vec<Value>>,
    readers: Vec<Vec<Value>>,
    /// How many of them are not stored yet.
    missing: Vec<usize>,
    /// How many are neither stored nor late values that can be computed any time.
    absent: Vec<usize>,
    /// How many are neither stored nor early; `None` for operations that are never early.
    unsettled: Vec<Option<usize>>,
    /// To be scheduled now.
    pending: Vec<bool>,
    /// Late values that wait for late values only.
    coming: Vec<bool>,
    /// Numbers of an optimiser that depend on no gradient and no parameter, but on counters and constants.
    is_early: Vec<bool>,
    early: BTreeSet<Value>,
    /// What can start, in the order of preference, and the key of each.
    starts: BTreeSet<(Phase, u32, Value)>,
    keys: Vec<Option<(Phase, u32, Value)>>,
    /// What can be computed in groups of a kind without anything else in the group.
    ready: HashMap<(Phase, Kind), BTreeSet<Value>>,
    /// The readers of each parameter and state, and those whose new values an operation computes.
    leaf_readers: BTreeMap<Leaf, Vec<Value>>,
    updates: HashMap<Value, Vec<Leaf>>,
}

/// A parameter, or one of its states.
type Leaf = (Param, Option<u32>);

impl Worklists {
    /// Nothing is pending yet. `nodes` are the operations that groups compute.
    pub fn new(facts: &Facts<'_>, nodes: &[Value], kinds: &[Vec<Kind>], late: &[Late]) -> Self {
        let flow = facts.flow;
        let count = flow.values.len();
        let mut lists = Self {
            needs: vec![vec![]; count],
            readers: vec![vec![]; count],
            missing: vec![0; count],
            absent: vec![0; count],
            unsettled: vec![None; count],
            pending: vec![false; count],
            coming: vec![false; count],
            is_early: vec![false; count],
            keys: vec![None; count],
            ..Self::default()
        };
        // The operation for which a value was last seen.
        let mut seen: Vec<Option<Value>> = vec![None; count];
        for &v in nodes.iter().filter(|v| late[v.index()] != Late::Inline) {
            let mut reads = vec![v];
            while let Some(value) = reads.pop() {
                for root in flow.value(value).args.iter().map(|&arg| facts.root(arg)) {
                    if facts.is_leaf(root) || seen[root.index()].replace(v) == Some(v) {
                        continue;
                    }
                    let edges = facts.topology(root).is_some();
                    if edges || late[root.index()] == Late::Inline {
                        reads.push(root);
                    } else {
                        lists.needs[v.index()].push(root);
                    }
                    lists.readers[root.index()].push(v);
                }
            }
            let needs = lists.needs[v.index()].len();
            (lists.missing[v.index()], lists.absent[v.index()]) = (needs, needs);
            lists.unsettled[v.index()] = may_be_early(facts, v, &kinds[v.index()]).then_some(needs);
        }
        for reader in flow.handles().filter(|&v| facts.root(v) == v && facts.is_live(v)) {
            for root in flow.value(reader).args.iter().map(|&arg| facts.root(arg)) {
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
            lists.updates.entry(facts.root(output.value)).or_default().push(leaf);
        }
        lists
    }

    /// Numbers of an optimiser that can be computed first.
    pub fn early(&self) -> &BTreeSet<Value> {
        &self.early
    }

    /// The operation to start a group with: it has all that it needs, or waits for late values only.
    pub fn first(&self) -> Option<(Phase, Value)> {
        self.starts.first().map(|&(phase, _, v)| (phase, v))
    }

    /// What groups of a kind can compute whatever else is in them.
    pub fn ready(&self, phase: Phase, kind: &Kind) -> BTreeSet<Value> {
        self.ready.get(&(phase, kind.clone())).cloned().unwrap_or_default()
    }

    /// Operations that read a value, directly or through what they compute for themselves.
    pub fn readers(&self, v: Value) -> &[Value] {
        &self.readers[v.index()]
    }

    /// Is it to be scheduled now, and in no group yet?
    pub fn is_pending(&self, v: Value) -> bool {
        self.pending[v.index()]
    }

    /// Is all that it reads stored?
    pub fn has_all(&self, v: Value) -> bool {
        self.missing[v.index()] == 0
    }

    /// The first value that an operation waits for.
    pub fn awaited(&self, v: Value) -> Option<Value> {
        self.needs[v.index()].iter().copied().filter(|need| self.pending[need.index()]).min()
    }

    /// What reads the parameters and states whose new values an operation computes.
    pub fn readers_of_old(&self, v: Value) -> impl Iterator<Item = &Value> {
        let leaves = self.updates.get(&v).into_iter().flatten();
        leaves.filter_map(|leaf| self.leaf_readers.get(leaf)).flatten()
    }

    /// Lists an early number, and those that now are early too.
    fn add_early(&mut self, v: Value) {
        let mut found = vec![v];
        while let Some(v) = found.pop() {
            self.is_early[v.index()] = true;
            self.early.insert(v);
            for &reader in &self.readers[v.index()] {
                if let Some(unsettled) = &mut self.unsettled[reader.index()] {
                    *unsettled -= 1;
                    if *unsettled == 0 && self.pending[reader.index()] {
                        found.push(reader);
                    }
                }
            }
        }
    }

    /// Lists a start, in the place of an earlier and worse one.
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

impl Scheduler<'_, '_> {
    /// These operations are scheduled from now on.
    pub fn begin(&mut self, pending: &[Value]) {
        for &v in pending {
            self.lists.pending[v.index()] = true;
        }
        self.review(pending.to_vec());
    }

    /// These operations are in a group.
    pub fn finish(&mut self, members: &[Value]) {
        let mut settled = vec![];
        for &member in members {
            self.done[member.index()] = true;
            let lists = &mut self.lists;
            lists.pending[member.index()] = false;
            lists.early.remove(&member);
            lists.remove_start(member);
            let phase = self.facts.flow.value(member).phase;
            for kind in &self.kinds[member.index()] {
                if let Some(ready) = lists.ready.get_mut(&(phase, kind.clone())) {
                    ready.remove(&member);
                }
            }
            // Edge values are computed by each reader even if they are results.
            if self.facts.topology(member).is_some() {
                continue;
            }
            for &reader in &lists.readers[member.index()] {
                lists.missing[reader.index()] -= 1;
                lists.absent[reader.index()] -= usize::from(!lists.coming[member.index()]);
                if let Some(unsettled) = &mut lists.unsettled[reader.index()] {
                    *unsettled -= usize::from(!lists.is_early[member.index()]);
                }
                settled.push(reader);
            }
        }
        self.review(settled);
    }

    /// Lists operations whose operands have come.
    fn review(&mut self, mut settled: Vec<Value>) {
        while let Some(v) = settled.pop() {
            if !self.lists.pending[v.index()] {
                continue;
            }
            if self.lists.unsettled[v.index()] == Some(0) && !self.lists.is_early[v.index()] {
                self.lists.add_early(v);
            }
            let (all, in_time) = (self.lists.missing[v.index()] == 0, self.lists.absent[v.index()] == 0);
            let phase = self.facts.flow.value(v).phase;
            match self.late[v.index()] {
                Late::Inline => {}
                Late::Stored if in_time && !self.lists.coming[v.index()] => {
                    self.lists.coming[v.index()] = true;
                    for &reader in &self.lists.readers[v.index()] {
                        self.lists.absent[reader.index()] -= 1;
                        settled.push(reader);
                    }
                }
                Late::Stored => {}
                Late::No if all => {
                    let none = HashSet::new();
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
                Late::No if in_time => {
                    // Totals and maps wait until a kernel that cannot do without asks for what they read.
                    let rank = match &self.kinds[v.index()][0] {
                        kind @ (Kind::Product(_) | Kind::Edges(..) | Kind::Ends(..) | Kind::Paths(_)) => {
                            self.rank(v, kind)
                        }
                        kind @ Kind::Map(_) if self.tiled[v.index()] => self.rank(v, kind),
                        Kind::Unit | Kind::Elements(_) | Kind::Map(_) => PATIENT,
                    };
                    self.lists.add_start((phase, rank, v));
                }
                Late::No => {}
            }
        }
    }
}

/// Can it be a number of the optimiser that depends on no gradient and no parameter? What it reads decides the rest.
fn may_be_early(facts: &Facts<'_>, v: Value, kinds: &[Kind]) -> bool {
    let node = facts.flow.value(v);
    let number = |&arg: &Value| {
        let root = facts.root(arg);
        facts.width(root).is_one() && !matches!(facts.flow.value(root).op, Op::Param(_) | Op::State(..))
    };
    node.phase == Phase::Update
        && kinds.contains(&Kind::Unit)
        && node.ty.is_unit()
        && facts.width(v).is_one()
        && node.args.iter().all(number)
}
