//! The program between dataflow and kernels: operations in groups, each of which becomes a kernel, and which values are
//! stored.
//!
//! ```text
//! groups d {
//!   group g0 @FP : product {
//!     store %2 = matmul %0, %1              : f32[Paper; 64]
//!   }
//!   group g1 @NA : rows Paper, in_edges of PP {
//!     edge  %3 = gather.src PP, %2          : f32[edges(PP); 64]
//!     store %4 = segment.sum.in PP, %3      : f32[Paper; 64]
//!   }
//! }
//! ```
//!
//! The rules ([`Groups::verify`]): each value that is needed is a member of a group, except edge values, which every
//! group computes that reads them (`edge`); a group reads what it does not compute from memory, where an earlier group
//! has stored it (`store`); a stored value has one group, while others may be inlined in several; the prelude has loop
//! invariants only; outputs are stored.

use std::collections::BTreeSet;
use std::fmt::Write;

use hgnnc_analysis::aliases::{AliasAnalysis, Topology};
use hgnnc_ir::print::{print_op, print_type};
use hgnnc_ir::width::Width;
use hgnnc_ir::{Dataflow, Direction, Graph, OutputKind, Phase, Space, Value};
use hgnnc_kernel_ir::kernel::print::print_rows;
use hgnnc_kernel_ir::kernel::{Program, Rows};
use rustc_hash::{FxHashMap, FxHashSet};

/// A program whose operations are grouped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// Groups of loop invariants, which run once.
    pub prelude: Vec<Group>,
    /// Groups of each run, in order.
    pub launches: Vec<Group>,
    /// Values that are stored in memory, from which other groups read them.
    pub stored: BTreeSet<Value>,
}

/// Operations executed together, in SSA order.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Group {
    pub kind: Kind,
    /// The phase of the members. Inlined values may belong to other phases.
    pub phase: Phase,
    pub members: Vec<Value>,
}

/// The kind of a group: the rows that its members share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Unit values, one row.
    Unit,
    /// Unit values of this many elements, taken as that many rows of width 1.
    Elements(Width),
    /// Rows of a vertex type, or of the leading dimension of parameters.
    Map(Space),
    /// A dense product with a large weight, over all rows.
    Product(Value),
    /// Rows of a topology with their edges.
    Edges(Topology, Direction),
    /// The endpoints of a graph, with their edges where a member needs them.
    Endpoints(Graph, Direction),
    /// Sums over two-hop metapaths.
    FactoredMetapath(Scored),
    /// Rows that other ranks send.
    Exchange(Value),
}

/// The operands that the two-hop sums of one kernel share.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Scored {
    pub first: Graph,
    pub second: Graph,
    pub direction: Direction,
    /// Bits of the slopes of the score, for comparison.
    pub score: [u64; 2],
    pub x: Value,
    pub y: Value,
    /// Sums for sources share one norm, that of the sorted endpoints.
    pub n: Option<Value>,
}

impl Kind {
    /// The rows of the traversal that a group of this kind becomes; `None` for kernels of other kinds, and for rows that
    /// no traversal has.
    pub fn rows(&self) -> Option<Rows> {
        Some(match self {
            Kind::Unit => Rows::Once,
            Kind::Elements(volume) => Rows::Each(volume.clone()),
            Kind::Map(Space::Vertices(vertex)) => Rows::Vertices(*vertex),
            Kind::Map(Space::Index(extent)) => Rows::Each(Width::fixed(*extent)),
            Kind::Endpoints(graph, direction) => Rows::Endpoints(*graph, *direction),
            Kind::Edges(Topology::Graph(graph), direction) => Rows::Edges(*graph, *direction),
            Kind::Edges(Topology::Pattern(pattern), direction) => Rows::Elements(*pattern, *direction),
            Kind::Map(Space::Unit | Space::Edges(_) | Space::Endpoints(..))
            | Kind::Product(_)
            | Kind::FactoredMetapath(_)
            | Kind::Exchange(_) => return None,
        })
    }
}

/// The values that a group reads and that are not its members.
pub(crate) struct Reads {
    /// Edge values, which it computes again.
    pub recomputed: Vec<Value>,
    /// Values in memory; leaves are not among them.
    pub stored: Vec<Value>,
}

impl Group {
    pub(crate) fn reads(&self, aliases: &AliasAnalysis<'_>) -> Reads {
        let mut reads = Reads { recomputed: vec![], stored: vec![] };
        let mut pending = self.members.clone();
        let mut seen: FxHashSet<Value> = pending.iter().copied().collect();
        while let Some(value) = pending.pop() {
            for &arg in &aliases.flow.value(value).args {
                let root = aliases.storage_of(arg);
                if !seen.insert(root) || aliases.is_leaf(root) {
                    continue;
                }
                if aliases.topology(root).is_some() {
                    reads.recomputed.push(root);
                    pending.push(root);
                } else {
                    reads.stored.push(root);
                }
            }
        }
        reads
    }
}

impl Groups {
    /// All groups, in the order in which they run.
    pub fn all(&self) -> impl Iterator<Item = &Group> {
        self.prelude.iter().chain(&self.launches)
    }

    /// The groups of several values: for the name of each value that one stores ([`value_names`]), all its values.
    pub fn fused(&self, flow: &Dataflow) -> Vec<(String, FxHashSet<Value>)> {
        let names = value_names(&AliasAnalysis::new(flow));
        let mut found = vec![];
        for group in self.all().filter(|group| group.members.len() > 1) {
            let members: FxHashSet<Value> = group.members.iter().copied().collect();
            let here = group.members.iter().filter(|member| self.stored.contains(member));
            found.extend(here.map(|member| (names(*member), members.clone())));
        }
        found
    }

    /// The rules that the groups of a program break, once its values are stored. Lowering relies on them.
    ///
    /// # Errors
    /// The broken rules, with values and groups.
    pub fn verify(&self, flow: &Dataflow) -> Result<(), Vec<String>> {
        let aliases = AliasAnalysis::new(flow);
        let mut broken = vec![];
        let mut groups_of: FxHashMap<Value, Vec<usize>> = FxHashMap::default();
        for (index, group) in self.all().enumerate() {
            for &member in &group.members {
                groups_of.entry(member).or_default().push(index);
            }
        }
        for value in flow.handles().filter(|&v| aliases.storage_of(v) == v && aliases.is_live(v)) {
            let recomputed = aliases.topology(value).is_some() && !aliases.is_output(value);
            match groups_of.get(&value).map_or(0, Vec::len) {
                0 if !aliases.is_leaf(value) && !recomputed => broken.push(format!("{value} is in no group")),
                2.. if self.stored.contains(&value) => broken.push(format!("{value} is stored by several groups")),
                _ => {}
            }
            if aliases.is_output(value) && !aliases.is_leaf(value) && !self.stored.contains(&value) {
                broken.push(format!("{value} is an output, and not stored"));
            }
        }
        for (index, group) in self.all().enumerate() {
            for value in group.reads(&aliases).stored {
                let earlier = groups_of.get(&value).is_some_and(|groups| groups.iter().any(|&group| group < index));
                if !earlier || !self.stored.contains(&value) {
                    broken.push(format!("group g{index} reads {value}, which no earlier group stores"));
                }
            }
            let varies = |&&member: &&Value| index < self.prelude.len() && !aliases.is_invariant(member);
            broken.extend(group.members.iter().find(varies).map(|v| format!("{v} is no invariant of the prelude")));
        }
        if broken.is_empty() { Ok(()) } else { Err(broken) }
    }

    /// The text of the groups of a program, for people.
    pub fn print(&self, flow: &Dataflow) -> String {
        let aliases = AliasAnalysis::new(flow);
        let tables = Program { tables: flow.with_tables_of(flow.name.clone()), ..Program::default() };
        let mut text = format!("groups {} {{\n", flow.name);
        for (index, group) in self.all().enumerate() {
            let stage = flow.value(group.members[0]).stage.name();
            let phase = match group.phase {
                Phase::Forward => String::new(),
                phase => format!(".{}", phase.name()),
            };
            let rows = match (&group.kind, group.kind.rows()) {
                (_, Some(rows)) => print_rows(&tables, &rows),
                (Kind::FactoredMetapath(_), None) => "factored metapath".into(),
                (Kind::Exchange(_), None) => "exchange".into(),
                (_, None) => "product".into(),
            };
            let word = if index < self.prelude.len() { "prelude" } else { "group" };
            let _ = writeln!(text, "  {word} g{index} @{stage}{phase} : {rows} {{");
            let recomputed: BTreeSet<Value> = group.reads(&aliases).recomputed.into_iter().collect();
            let members: BTreeSet<Value> = group.members.iter().copied().collect();
            let lines = members.union(&recomputed).map(|&value| {
                let data = flow.value(value);
                let how = match () {
                    () if recomputed.contains(&value) => "edge",
                    () if self.stored.contains(&value) => "store",
                    () => "",
                };
                (format!("{how:5} {value} = {}", print_op(flow, data)), print_type(flow, &data.ty))
            });
            let lines: Vec<(String, String)> = lines.collect();
            let width = lines.iter().map(|(op, _)| op.chars().count()).max().unwrap_or(0);
            for (op, ty) in lines {
                let _ = writeln!(text, "    {op:width$} : {ty}");
            }
            text.push_str("  }\n");
        }
        text.push_str("}\n");
        text
    }
}

/// The name of each stored value: that of its output, or its mnemonic and number.
pub(crate) fn value_names<'f>(aliases: &AliasAnalysis<'f>) -> impl Fn(Value) -> String + use<'f> {
    let flow = aliases.flow;
    let mut outputs: FxHashMap<Value, &OutputKind> = FxHashMap::default();
    for output in &flow.outputs {
        outputs.entry(aliases.storage_of(aliases.output_value(output))).or_insert(&output.kind);
    }
    move |value| match outputs.get(&value) {
        Some(OutputKind::Result(name)) => name.clone(),
        Some(OutputKind::UpdateParam(param)) => format!("{}.new", flow.params[param.index()].name),
        Some(OutputKind::UpdateState(param, slot)) => format!("{}.state{slot}.new", flow.params[param.index()].name),
        None => format!("{}{}", flow.value(value).op.name(), value.index()),
    }
}
