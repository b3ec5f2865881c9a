//! Path instances that a model reads, and edges that it has outputs of: vertices and relations that no dataset has,
//! listed by walking its relations.

use hgnnc_graph::{Dataset, EdgeRows, InstanceCounts, Instances, MetapathOptions};
use hgnnc_ir::dataflow::{Binding, Dataflow};
use hgnnc_ir::{PathDecl, PathRows};

use crate::bind::{BindOptions, failed_graph};
use crate::error::{ExecError, Result};

/// The path instances of a metapath in a dataset.
#[derive(Clone, PartialEq, Debug)]
pub struct PathInstances {
    /// Name of the semantic graph of the model.
    pub graph: String,
    /// The number of instances, and of those that a limit leaves.
    pub counts: InstanceCounts,
    /// Whether they are listed. Otherwise the program reads none of them.
    pub listed: bool,
}

/// Adds the path instances that a program reads to a dataset, as vertices and relations, and the edges that are rows of
/// it. The names of the program are those of the dataset. Edges are not among the result: all of them are listed.
///
/// # Errors
/// A relation that the dataset does not have, and instances that exceed the memory budget of a semantic graph: they are
/// counted before any is listed.
pub fn add_path_instances(flow: &Dataflow, dataset: &mut Dataset, options: &BindOptions) -> Result<Vec<PathInstances>> {
    let mut added = vec![];
    for path in &flow.paths {
        if path.rows == PathRows::Edges {
            let edges = edge_rows(flow, path, dataset)?;
            edges.add_to(dataset).map_err(|error| failed_graph(&edges.vertex_type, error))?;
            continue;
        }
        let read = path.is_read(flow);
        let instances = instances(flow, path, dataset, options)?;
        let counts = instances.add_to(dataset, read).map_err(|error| failed_graph(&instances.graph, error))?;
        added.push(PathInstances { graph: instances.graph, counts, listed: read });
    }
    Ok(added)
}

/// A metapath's instances in the names of the dataset.
fn instances(flow: &Dataflow, path: &PathDecl, dataset: &Dataset, options: &BindOptions) -> Result<Instances> {
    let relation = |relation: u32| &flow.relations[relation as usize];
    let step = |step: &hgnnc_ir::dataflow::Step| {
        let found = relation_in(dataset, &relation(step.relation).dataset_name)?;
        Ok(hgnnc_graph::Step { relation: found, reverse: step.reverse })
    };
    let end = flow.graphs.iter().find(|decl| decl.src == path.vertex);
    let is_read = |by: &u32| {
        flow.inputs.iter().any(|input| match input.binding {
            Binding::EdgeWeight(graph) | Binding::EdgeTime(graph) | Binding::EdgeFeatures(graph) => {
                flow.graphs[graph.index()].steps.iter().any(|step| step.relation == *by)
            }
            _ => false,
        })
    };
    Ok(Instances {
        graph: end.map_or_else(String::new, |decl| decl.name.clone()),
        vertex_type: flow.vertex_types[path.vertex.index()].dataset_name.clone(),
        steps: path.steps.iter().map(step).collect::<Result<_>>()?,
        at_most: match path.rows {
            PathRows::Walks { at_most } => at_most,
            PathRows::Edges => None,
        },
        relations: path.relations.iter().map(|&by| relation(by).dataset_name.clone()).collect(),
        edge_data: path.relations.iter().take(path.steps.len()).map(is_read).collect(),
        memory_budget: options.graph_budget.unwrap_or(MetapathOptions::DEFAULT_MEMORY_BUDGET),
    })
}

/// The edges of a relation in the names of the dataset.
fn edge_rows(flow: &Dataflow, path: &PathDecl, dataset: &Dataset) -> Result<EdgeRows> {
    let name = |relation: u32| flow.relations[relation as usize].dataset_name.clone();
    let ([step], [src, dst]) = (&path.steps[..], &path.relations[..]) else {
        unreachable!("edges are those of a relation, which the verifier checks")
    };
    Ok(EdgeRows {
        relation: relation_in(dataset, &name(step.relation))?,
        vertex_type: flow.vertex_types[path.vertex.index()].dataset_name.clone(),
        relations: [name(*src), name(*dst)],
    })
}

/// Position of the relation of a name.
fn relation_in(dataset: &Dataset, name: &str) -> Result<usize> {
    dataset
        .relation(name)
        .ok_or_else(|| ExecError::Unsupported(format!("the dataset `{}` has no relation `{name}`", dataset.name)))
}
