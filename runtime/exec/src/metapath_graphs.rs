//! Metapath graphs that are not materialised: their aggregation is factored hop by hop.

use hgnnc_graph::{Dataset, SemanticGraphs};
use hgnnc_ir::dataflow::{Dataflow, GraphDecl, PathDecl};
use hgnnc_ir::types::Graph;

use crate::bind::{BindOptions, Binder, graph_builder, steps_of, topology_of};
use crate::data::BoundData;
use crate::error::{ExecError, Result};

/// Declares the factors of the metapaths of a model where this dataset allows it: one graph per hop, after all other
/// graphs. A counted metapath is factored at every hop; others need exactly one path per vertex pair.
///
/// # Errors
/// A vertex type or relation that the dataset does not have.
pub fn declare_metapaths(flow: &mut Dataflow, dataset: &Dataset) -> Result<()> {
    let tables = flow.clone();
    let options = BindOptions::default();
    let binder = Binder::new(&tables, dataset, &options)?;
    let builder = SemanticGraphs::new(dataset);
    for (index, decl) in tables.graphs.iter().enumerate() {
        if decl.steps.len() < 2 || decl.self_loops || decl.links {
            continue;
        }
        let places: Vec<usize> = if decl.counted {
            (1..decl.steps.len()).collect()
        } else {
            let found = builder.middle(&steps_of(&binder, decl)).map_err(|e| ExecError::Unsupported(e.to_string()))?;
            let Some(middle) = found else { continue };
            vec![middle.place]
        };
        let mut hops = vec![];
        let mut src = decl.src;
        for (hop, range) in ranges(&places, decl.steps.len()).enumerate() {
            let steps = decl.steps[range].to_vec();
            let Some(last) = steps.last() else { continue };
            let relation = &tables.relations[last.relation as usize];
            let dst = if last.reverse { relation.src } else { relation.dst };
            let name = format!("{} hop {}", decl.name, hop + 1);
            hops.push(Graph::new(flow.graphs.len()));
            flow.graphs.push(GraphDecl::new(name, src, dst, steps));
            src = dst;
        }
        flow.paths.push(PathDecl { of: Graph::new(index), hops, once: !decl.counted });
    }
    Ok(())
}

/// Step ranges between consecutive split positions.
fn ranges(places: &[usize], steps: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let starts = std::iter::once(0).chain(places.iter().copied());
    starts.zip(places.iter().copied().chain([steps])).map(|(start, end)| start..end)
}

/// Materializes the metapath graphs skipped by [`BindOptions::unlisted`] that programs need.
///
/// # Errors
/// A semantic graph that cannot be built.
pub fn list_edges(
    data: &mut BoundData,
    flow: &Dataflow,
    dataset: &Dataset,
    options: &BindOptions,
    needed: impl Fn(Graph) -> bool,
) -> Result<()> {
    let started = std::time::Instant::now();
    let binder = Binder::new(flow, dataset, options)?;
    let builder = graph_builder(dataset, options);
    let is_missing = |index: usize| data.graphs[index].unlisted.is_some() && needed(Graph::new(index));
    let missing: Vec<bool> = (0..flow.graphs.len()).map(is_missing).collect();
    binder.share(&builder, flow.graphs.iter().zip(&missing).filter(|(_, missing)| **missing).map(|(decl, _)| decl));
    for (index, decl) in flow.graphs.iter().enumerate() {
        if missing[index] {
            let (mut graph, origin) = binder.build(&builder, decl)?;
            graph.name.clone_from(&decl.name);
            data.graphs[index] = topology_of(graph);
            data.origins[index] = origin;
        }
    }
    data.sgb_s += started.elapsed().as_secs_f64();
    Ok(())
}
