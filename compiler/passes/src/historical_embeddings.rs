//! Historical embeddings: mini-batches that read the bottom layer's output of some vertices from a cache.
//!
//! The last hop samples the in-edges that the bottom layer reads. The layer above needs only the bottom layer's output
//! of the vertices that the hop before reached first. Where the cache has that output, from a batch before, a vertex
//! samples no in-edges, and neither its features nor anything else below is needed (GNNAutoScale, Fey et al., ICML 2021;
//! NeutronOrch, Ai et al., PVLDB 17(8) 2024). The program of a mini-batch replaces the rows of these vertices, through
//! which no gradient flows, and gives all rows as a result, of which the cache keeps those that were computed:
//!
//! ```text
//! Before:  %2 = segment.sum.in cites.1, %1         : f32[Paper.1; 64]
//!          %3 = gather.src cites, %2               : f32[edges(cites); 64]
//! After:   %2 = segment.sum.in cites.1, %1         : f32[Paper.1; 64]
//!          %3 = input reused.0.0                   : f32[Paper.1.reused; 64]
//!          %4 = gather.src reused(Paper.1), %3     : f32[edges(reused(Paper.1)); 64]
//!          %5 = segment_endpoints.sum.in reused(Paper.1), %4 : f32[dst(reused(Paper.1)); 64]
//!          %6 = scatter_rows.dst reused(Paper.1), %2, %5 : f32[Paper.1; 64]
//!          %7 = gather.src cites, %6               : f32[edges(cites); 64]
//!          result "reused.0.0" = %6
//! ```
//!
//! The cached values are found from the gathers at the start of the layer above: from their operands down, past
//! operations that this layer applies to the values of single vertices (activations, dropout, its projections, which so
//! have current parameters and gradients), to the last value of the bottom layer.
//!
//! Applies where values of neighbours are needed two hops away or more, and nothing is computed over all vertices of a
//! type from values of the bottom layer: rows without edges would be among them.

use std::collections::BTreeSet;

use hgnnc_ir::batch::BatchLayout;
use hgnnc_ir::{DType, Dataflow, Op, Reduce, Space, Stage, Value};

use crate::minibatch::{CachedRows, NotBatchable, RequiredHops, build, further, is_sampled};

/// The program of a mini-batch that computes the outputs of a forward program, and reads historical embeddings.
///
/// # Errors
/// [`NotBatchable`] where there is no program of a mini-batch, or no value that could be cached.
pub fn to_minibatch_with_cache(flow: &Dataflow) -> Result<(Dataflow, BatchLayout), NotBatchable> {
    let required = RequiredHops::of(flow)?;
    let replaced = bottom_values(flow, &required)?;
    build(flow, required, &replaced)
}

fn no(why: &str, flow: &Dataflow, value: Option<Value>) -> NotBatchable {
    NotBatchable { why: why.into(), origin: value.and_then(|value| flow.value(value).origin) }
}

/// The outputs of the bottom layer that the layer above gathers, and the values below them that are not finite without
/// edges.
fn bottom_values(flow: &Dataflow, required: &RequiredHops) -> Result<CachedRows, NotBatchable> {
    // As in the layout: sampled edges have sources, whether a value is gathered from them or not.
    let far = |value: Value| {
        let draws = match flow.ty(value).space {
            Space::Edges(graph) => is_sampled(flow, graph),
            Space::Unit | Space::Vertices(_) | Space::Index(_) | Space::Endpoints(..) => false,
        };
        required.own[value.index()].last().map(|hops| hops + usize::from(draws))
    };
    let deepest = flow.handles().filter_map(far).max().unwrap_or(0);
    let Some(hops) = deepest.checked_sub(1).filter(|hops| *hops > 0) else {
        return Err(no("no layer takes what the bottom layer gives to neighbours", flow, None));
    };
    let of_bottom = of_last_hop(flow, required, hops)?;
    let mut values = BTreeSet::new();
    for value in flow.handles().filter(|value| required.own[value.index()].contains(&(hops - 1))) {
        let data = flow.value(value);
        if further(flow, &data.op) == 1 && of_bottom[data.args[0].index()] {
            values.insert(last_of_layer(flow, &of_bottom, data.args[0]));
        }
    }
    let uncacheable = |value: &&Value| {
        let data = flow.value(**value);
        !matches!(data.ty.space, Space::Vertices(_)) || data.ty.dtype != DType::F32 || data.ty.is_sparse()
    };
    if let Some(&value) = values.iter().find(uncacheable) {
        return Err(no("what the bottom layer gives are no dense numbers of vertices", flow, Some(value)));
    }
    match values.is_empty() {
        true => Err(no("no layer takes what the bottom layer gives to neighbours", flow, None)),
        false => Ok(CachedRows { hops, zero: not_finite(flow, &of_bottom, &values), cached: values }),
    }
}

/// Marks the values that depend on the edges that the last hop samples.
fn of_last_hop(flow: &Dataflow, required: &RequiredHops, hops: usize) -> Result<Vec<bool>, NotBatchable> {
    let mut found = vec![false; flow.values.len()];
    for value in flow.handles().filter(|value| required.own[value.index()].contains(&hops)) {
        let data = flow.value(value);
        let counts_edges = matches!(data.op, Op::Count(Space::Edges(_)));
        let of_edges = matches!(data.ty.space, Space::Edges(_) | Space::Endpoints(..)) || counts_edges;
        found[value.index()] = of_edges || data.args.iter().any(|arg| found[arg.index()]);
        if found[value.index()] && data.ty.space == Space::Unit {
            let why = "the bottom layer computes something over all vertices of a type, which values of other batches \
                       are not part of";
            return Err(no(why, flow, Some(value)));
        }
    }
    Ok(found)
}

/// The log-sum-exps over edges from which values are computed row by row: -∞ without edges. Maxima and minima are
/// clamped where they are computed.
fn not_finite(flow: &Dataflow, of_bottom: &[bool], values: &BTreeSet<Value>) -> BTreeSet<Value> {
    let mut read = vec![false; flow.values.len()];
    values.iter().for_each(|value| read[value.index()] = true);
    let mut found = BTreeSet::new();
    for value in flow.handles().rev().filter(|value| of_bottom[value.index()]) {
        let data = flow.value(value);
        if !(read[value.index()] && matches!(data.ty.space, Space::Vertices(_))) {
            continue;
        }
        match data.op {
            Op::Segment { reduce: Reduce::Lse, .. } if !values.contains(&value) => {
                found.insert(value);
            }
            _ => data.args.iter().for_each(|arg| read[arg.index()] = true),
        }
    }
    found
}

/// The last value of the layer below, from a vertex value that the layer above gathers.
fn last_of_layer(flow: &Dataflow, of_bottom: &[bool], value: Value) -> Value {
    let mut chain = vec![value];
    while let Some(&last) = chain.last() {
        let data = flow.value(last);
        let below: Vec<Value> = data.args.iter().copied().filter(|arg| of_bottom[arg.index()]).collect();
        match below[..] {
            [below] if flow.ty(below).space == data.ty.space => chain.push(below),
            _ => break,
        }
    }
    let stage = |at: usize| flow.value(chain[at]).stage;
    let last = chain.len() - 1;
    let mut at = 0;
    // Projections of the layer above may belong to its aggregation.
    if (0..=last).any(|at| stage(at) != Stage::NA) {
        while at < last && stage(at) == Stage::NA {
            at += 1;
        }
        while at < last && stage(at) == Stage::FP {
            at += 1;
        }
    } else {
        while at < last && matches!(flow.value(chain[at]).op, Op::MatMul { .. }) {
            at += 1;
        }
    }
    chain[at]
}
