//! Stores the values that another group reads from memory, reductions over all rows, dense products, reductions over
//! metapaths, and outputs. All others exist for one row at a time, within their group.

use hgnnc_analysis::aliases::{AliasAnalysis, Topology};
use hgnnc_ir::{Direction, Op, Value};

use crate::groups::{Groups, Kind};

/// Chooses the stored values of groups.
pub(crate) fn store(aliases: &AliasAnalysis<'_>, groups: &mut Groups) {
    let mut stored = std::mem::take(&mut groups.stored);
    for group in groups.all() {
        stored.extend(group.reads(aliases).stored);
        let total = |value: Value| match aliases.flow.value(value).op {
            Op::ReduceSpace(_) => true,
            // The gradient of a sparse projection is computed row by row.
            Op::Outer { .. } => !matches!(group.kind, Kind::Edges(Topology::Pattern(_), Direction::Out)),
            _ => false,
        };
        let product = matches!(group.kind, Kind::Product(_) | Kind::FactoredMetapath(_) | Kind::Exchange(_));
        stored.extend(group.members.iter().copied().filter(|&member| product || total(member)));
    }
    let outputs = aliases.flow.outputs.iter().map(|output| aliases.storage_of(aliases.output_value(output)));
    stored.extend(outputs.filter(|&root| !aliases.is_leaf(root)));
    groups.stored = stored;
}
