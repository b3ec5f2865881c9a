//! Metapath graphs that need not be materialized: what the compiler asks of a dataset before it plans them, and the
//! graphs that its plan asks for.

use std::collections::BTreeSet;

use hgnnc_dataset::Dataset;
use hgnnc_ir::dataflow::{Binding, Dataflow, GraphDecl};
use hgnnc_ir::types::Graph;

use crate::bind::{BindOptions, Binder, edge_counts, topology_of};
use crate::bound::{BoundData, InputData};
use crate::error::{ExecError, Result};
use crate::past::{Builders, Past};

/// Whether a metapath of the model has a middle vertex that is the only one between each of its pairs, in this
/// dataset: after how many steps ([`SemanticGraphs::middle`]).
///
/// # Errors
/// A vertex type or relation that the dataset does not have.
pub fn middle_of_metapath(flow: &Dataflow, dataset: &Dataset, decl: &GraphDecl) -> Result<Option<usize>> {
    let options = BindOptions::default();
    let binder = Binder::new(flow, dataset, &options)?;
    let past = Past::new(flow, &binder.relations, dataset)?;
    let builders = Builders::new(dataset, past.as_ref(), &options);
    let source = builders.of(&binder, decl);
    let found = source.builder.middle(&source.steps).map_err(|error| ExecError::Unsupported(error.to_string()))?;
    Ok(found.map(|middle| middle.place))
}

/// Materializes those of `graphs` that [`BindOptions::defer_metapaths`] left out.
///
/// # Errors
/// A semantic graph that cannot be built.
pub fn materialize(
    data: &mut BoundData,
    flow: &Dataflow,
    dataset: &Dataset,
    options: &BindOptions,
    graphs: &BTreeSet<Graph>,
) -> Result<()> {
    let started = std::time::Instant::now();
    let binder = Binder::new(flow, dataset, options)?;
    let past = Past::new(flow, &binder.relations, dataset)?;
    let builders = Builders::new(dataset, past.as_ref(), options);
    let is_missing = |index: usize| {
        let is_read = graphs.contains(&Graph::new(index)) && !flow.graphs[index].is_walked();
        is_read && data.graphs[index].deferred.is_some()
    };
    let missing: Vec<bool> = (0..flow.graphs.len()).map(is_missing).collect();
    for (index, decl) in flow.graphs.iter().enumerate() {
        if missing[index] {
            let (mut graph, origin) = binder.build(&builders, decl)?;
            graph.name.clone_from(&decl.name);
            for (input, decl) in data.inputs.iter_mut().zip(&flow.inputs) {
                if decl.binding == Binding::EdgeCount(Graph::new(index)) {
                    *input = InputData::Numbers(edge_counts(&graph).into());
                }
            }
            data.graphs[index] = topology_of(graph);
            data.origins[index] = origin;
        }
    }
    data.sgb_s += started.elapsed().as_secs_f64();
    Ok(())
}
