//! Batches that take what the bottom layer gives to some vertices from elsewhere.
//!
//! The last hop draws the in-edges that the bottom layer reads. Of a vertex that the hop before reached first, the layer above
//! needs nothing but what the bottom layer gives: where that is known from elsewhere, the vertex draws no in-edges, and neither
//! features nor anything else is needed beneath it (NeutronOrch, Ai et al., PVLDB 17(8) 2024). The program of a batch
//! replaces the rows of these vertices, through which no gradient flows; another one computes their values:
//!
//! ```text
//! Before:  %2 = segment.sum.in cites.1, %1         : f32[Paper.1; 64]
//!          %3 = gather.src cites, %2               : f32[edges(cites); 64]
//! After:   %2 = segment.sum.in cites.1, %1         : f32[Paper.1; 64]
//!          %3 = input reused.0.0                   : f32[Paper.1.reused; 64]
//!          %4 = gather.src reused(Paper.1), %3     : f32[edges(reused(Paper.1)); 64]
//!          %5 = segment_ends.sum.in reused(Paper.1), %4 : f32[dst(reused(Paper.1)); 64]
//!          %6 = replace.dst reused(Paper.1), %2, %5 : f32[Paper.1; 64]
//!          %7 = gather.src cites, %6               : f32[edges(cites); 64]
//! Bottom:  %2 = segment.sum.in cites, %1           : f32[Paper; 64]
//!          result "reused.0.0" = %2
//! ```
//!
//! What is taken is found from the gathers that the layer above begins with: from their operands down, past what that layer
//! does to the values of a vertex alone (activations, dropout, its projections, which so have current parameters and
//! gradients), to the last value of the bottom layer.
//!
//! Applies where values of neighbours are needed two hops away or more, and nothing is computed over all vertices of a type
//! with values of the bottom layer: rows without edges would be among them.

use std::collections::BTreeSet;

use hgnnc_ir::batch::{BatchLayout, Reused};
use hgnnc_ir::{DType, Dataflow, Op, Output, OutputKind, Reduce, Space, Stage, Value};

use crate::on_batch::{Elsewhere, Needs, NotOnBatch, build, further, on_batch};

/// The programs of batches that reuse values.
#[derive(Clone, Debug)]
pub struct Reusing {
    /// What [`on_batch`] makes, with values taken from elsewhere.
    pub flow: Dataflow,
    /// How it belongs to the program of the whole graph.
    pub layout: BatchLayout,
    /// What computes these values, for vertices that are the seeds of a batch.
    pub bottom: Dataflow,
    /// How that belongs to the program of the whole graph.
    pub bottom_layout: BatchLayout,
}

/// The programs of a batch that computes the outputs of a forward program, and of the values that it reuses.
///
/// # Errors
/// [`NotOnBatch`] where there is no program of a batch, or nothing that it could reuse.
pub fn on_batch_reusing(flow: &Dataflow) -> Result<Reusing, NotOnBatch> {
    let needs = Needs::of(flow)?;
    let elsewhere = bottom_values(flow, &needs)?;
    let (new, layout, taken) = build(flow, needs, &elsewhere)?;
    let mut bottom = Dataflow { name: format!("{}.bottom", flow.name), outputs: vec![], ..flow.clone() };
    for (value, rows, number) in taken {
        bottom.outputs.push(Output { kind: OutputKind::Result(Reused::name(rows, number)), value });
    }
    let (bottom, bottom_layout) = on_batch(&bottom)?;
    Ok(Reusing { flow: new, layout, bottom, bottom_layout })
}

fn no(why: &str, flow: &Dataflow, value: Option<Value>) -> NotOnBatch {
    NotOnBatch { why: why.into(), origin: value.and_then(|value| flow.value(value).origin) }
}

/// The values that the bottom layer gives to vertices, and that others take, and those on the way to them that are not finite
/// without edges.
fn bottom_values(flow: &Dataflow, needs: &Needs) -> Result<Elsewhere, NotOnBatch> {
    // As the layout has it: edges that are drawn have sources, whether something is gathered from these or not.
    let far = |value: Value| {
        let draws = match flow.ty(value).space {
            Space::Edges(graph) => !flow.graphs[graph.index()].links,
            Space::Unit | Space::Vertices(_) | Space::Index(_) | Space::Ends(..) => false,
        };
        needs.own[value.index()].last().map(|hops| hops + usize::from(draws))
    };
    let deepest = flow.handles().filter_map(far).max().unwrap_or(0);
    let Some(hops) = deepest.checked_sub(1).filter(|hops| *hops > 0) else {
        return Err(no("no layer takes what the bottom layer gives to neighbours", flow, None));
    };
    let of_bottom = of_last_hop(flow, needs, hops)?;
    let mut values = BTreeSet::new();
    for value in flow.handles().filter(|value| needs.own[value.index()].contains(&(hops - 1))) {
        let data = flow.value(value);
        if further(flow, &data.op) == 1 && of_bottom[data.args[0].index()] {
            values.insert(last_of_layer(flow, &of_bottom, data.args[0]));
        }
    }
    let taken = |value: &&Value| {
        let data = flow.value(**value);
        !matches!(data.ty.space, Space::Vertices(_)) || data.ty.dtype != DType::F32 || data.ty.is_sparse()
    };
    if let Some(&value) = values.iter().find(taken) {
        return Err(no("what the bottom layer gives are no dense numbers of vertices", flow, Some(value)));
    }
    match values.is_empty() {
        true => Err(no("no layer takes what the bottom layer gives to neighbours", flow, None)),
        false => Ok(Elsewhere { zero: not_finite(flow, &of_bottom, &values), taken: values }),
    }
}

/// Which values depend on the edges that the last hop draws.
fn of_last_hop(flow: &Dataflow, needs: &Needs, hops: usize) -> Result<Vec<bool>, NotOnBatch> {
    let mut found = vec![false; flow.values.len()];
    for value in flow.handles().filter(|value| needs.own[value.index()].contains(&hops)) {
        let data = flow.value(value);
        let counts_edges = matches!(data.op, Op::Count(Space::Edges(_)));
        let of_edges = matches!(data.ty.space, Space::Edges(_) | Space::Ends(..)) || counts_edges;
        found[value.index()] = of_edges || data.args.iter().any(|arg| found[arg.index()]);
        if found[value.index()] && data.ty.space == Space::Unit {
            let why = "the bottom layer computes something over all vertices of a type, which values of other batches \
                       are not part of";
            return Err(no(why, flow, Some(value)));
        }
    }
    Ok(found)
}

/// The logarithms of sums over edges that values are computed from, vertex by vertex: -∞ without edges. Largest and smallest
/// elements are made finite where they are made.
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

/// From a value of vertices that the layer above takes, down to the last one of the layer below.
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
