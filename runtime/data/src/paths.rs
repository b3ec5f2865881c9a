//! Path instances that a model reads, edges that it has outputs of, and vertices as of cutoffs: vertices and relations that no
//! dataset has, listed by walking its relations.

use hgnnc_dataset::{Dataset, Step};
use hgnnc_graph::{
    CutoffLinks, CutoffRows, CutoffType, CutoffWalk, EdgeRows, InstanceCounts, Instances, MetapathOptions,
};
use hgnnc_ir::dataflow::{Binding, Dataflow};
use hgnnc_ir::types::VertexType;
use hgnnc_ir::{PathDecl, PathRows};

use crate::bind::{BindOptions, failed_graph};
use crate::error::{ExecError, Result};
use crate::held_out::link_split;

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

/// Adds the path instances that a program reads to a dataset, as vertices and relations, the edges that are rows of it, and
/// the rows of vertices as of cutoffs. The names of the program are those of the dataset. The result is of path instances only.
///
/// # Errors
/// A relation that the dataset does not have, and instances or rows that exceed the memory budget of a semantic graph: they
/// are counted before any is listed.
pub fn add_path_instances(flow: &Dataflow, dataset: &mut Dataset, options: &BindOptions) -> Result<Vec<PathInstances>> {
    let mut added = vec![];
    for path in &flow.paths {
        match path.rows {
            PathRows::Walks { .. } => {}
            PathRows::Edges => {
                let edges = edge_rows(flow, path, dataset)?;
                edges.add_to(dataset).map_err(|error| failed_graph(&edges.vertex_type, error))?;
                continue;
            }
            // Their vertices may be path instances.
            PathRows::Cutoffs | PathRows::Links { .. } | PathRows::Latest => continue,
        }
        let read = path.is_read(flow);
        let instances = instances(flow, path, dataset, options)?;
        let counts = instances.add_to(dataset, read).map_err(|error| failed_graph(&instances.graph, error))?;
        added.push(PathInstances { graph: instances.graph, counts, listed: read });
    }
    if let Some(rows) = cutoff_rows(flow, dataset, options)? {
        let names = rows.types.iter().map(|rows| rows.vertex_type.clone()).collect::<Vec<_>>().join(", ");
        rows.add_to(dataset).map_err(|error| failed_graph(&names, error))?;
    }
    Ok(added)
}

/// The rows of vertices as of cutoffs in the names of the dataset; `None` without any.
fn cutoff_rows(flow: &Dataflow, dataset: &Dataset, options: &BindOptions) -> Result<Option<CutoffRows>> {
    let mut rows =
        CutoffRows { memory_budget: budget(options), outputs_only: options.outputs_only, ..CutoffRows::default() };
    let name = |relation: u32| flow.relations[relation as usize].dataset_name.clone();
    let vertex_type = |vertex: VertexType| {
        let type_name = &flow.vertex_types[vertex.index()].dataset_name;
        let missing = || ExecError::Unsupported(format!("the dataset `{}` has no `{type_name}`", dataset.name));
        dataset.vertex_type(type_name).ok_or_else(missing)
    };
    for path in &flow.paths {
        if let (PathRows::Links { period }, [step], &[between]) = (path.rows, &path.steps[..], &path.relations[..]) {
            let relation = relation_in(dataset, &name(step.relation))?;
            rows.links.push(CutoffLinks { relation, name: name(between), period });
        }
        if let (PathRows::Latest, &[back]) = (path.rows, &path.relations[..]) {
            let vertex = flow.relations[back as usize].dst;
            rows.latest.push((vertex_type(vertex)?, name(back)));
        }
        let (Some(of), [from, relations @ ..]) = (path.cutoffs_of(flow), &path.relations[..]) else { continue };
        rows.types.push(CutoffType {
            of: vertex_type(of)?,
            vertex_type: flow.vertex_types[path.vertex.index()].dataset_name.clone(),
            relation: name(*from),
        });
        for (step, &relation) in path.steps.iter().zip(relations) {
            rows.walks.push(CutoffWalk {
                step: Step { relation: relation_in(dataset, &name(step.relation))?, reverse: step.reverse },
                relation: name(relation),
                read: PathDecl::reads_relation(flow, relation),
            });
        }
    }
    if !rows.links.is_empty() {
        rows.links.iter().try_for_each(|links| ends_without_times(dataset, links))?;
        let split = link_split(dataset, options.split.as_deref());
        // Outputs need no split; held-out links of one that is there have happened.
        rows.split = if options.outputs_only { split.ok().flatten() } else { split? };
        if !options.outputs_only {
            rows.links.iter().try_for_each(|links| links_have_times(dataset, links, rows.split))?;
        }
    }
    Ok(Some(rows).filter(|rows| !rows.types.is_empty()))
}

/// Whether the ends of links are read as of the cutoffs of links alone.
fn ends_without_times(dataset: &Dataset, links: &CutoffLinks) -> Result<()> {
    let relation = &dataset.relations[links.relation];
    let ends = [relation.src, relation.dst].map(|end| &dataset.vertex_types[end]);
    match ends.into_iter().find(|end| end.time.is_some()) {
        None => Ok(()),
        Some(end) => Err(ExecError::Unsupported(format!(
            "the vertices `{}` have times in the dataset, but as ends of the links of `{}` they are read as of the times of links: \
             leave `time` of that vertex type out of dataset.toml",
            end.name, relation.name
        ))),
    }
}

/// Whether all links of a relation have times, those that are held out as well.
fn links_have_times(dataset: &Dataset, links: &CutoffLinks, split: Option<usize>) -> Result<()> {
    let relation = &dataset.relations[links.relation];
    let missing = |what: String| {
        let name = &relation.name;
        Err(ExecError::Unsupported(format!("the links of `{name}` are read as of their times, but {what}")))
    };
    if relation.time.is_none() && !relation.src_ids.is_empty() {
        return missing("its edges have none".into());
    }
    let Some(split) = split.map(|split| &dataset.link_splits[split]) else { return Ok(()) };
    for (part, links_of_part) in [("val", &split.val), ("test", &split.test)] {
        let is_held_out = links_of_part.relation.iter().any(|of| *of as usize == links.relation);
        if is_held_out && links_of_part.time.is_none() {
            let name = &split.name;
            return missing(format!(
                "those of the `{part}` part of the split `{name}` have none (`{part}_time` in dataset.toml; `hgnnc data split \
                 --links` writes it)"
            ));
        }
    }
    Ok(())
}

/// The largest size of a semantic graph, in bytes.
fn budget(options: &BindOptions) -> u64 {
    options.graph_budget.unwrap_or(MetapathOptions::DEFAULT_MEMORY_BUDGET)
}

/// Whether the rows of a path have times: under a cutoff.
fn is_past(flow: &Dataflow, path: &PathDecl) -> bool {
    flow.graphs.iter().any(|decl| decl.past && [decl.src, decl.dst].contains(&path.vertex))
}

/// A metapath's instances in the names of the dataset.
fn instances(flow: &Dataflow, path: &PathDecl, dataset: &Dataset, options: &BindOptions) -> Result<Instances> {
    let relation = |relation: u32| &flow.relations[relation as usize];
    let step = |step: &hgnnc_ir::dataflow::Step| {
        let found = relation_in(dataset, &relation(step.relation).dataset_name)?;
        Ok(hgnnc_dataset::Step { relation: found, reverse: step.reverse })
    };
    let end = flow.graphs.iter().find(|decl| decl.src == path.vertex);
    // Rows as of cutoffs have the edges of a relation as one of their own.
    let is_same = |relation: u32, by: u32| {
        let own = flow.paths.iter().filter(|path| path.rows == PathRows::Cutoffs);
        let mut steps = own.flat_map(|path| path.steps.iter().zip(&path.relations[1..]));
        relation == by || steps.any(|(step, own)| *own == relation && step.relation == by)
    };
    let is_read = |by: &u32| {
        flow.inputs.iter().any(|input| match input.binding {
            Binding::EdgeWeight(graph) | Binding::EdgeTime(graph) | Binding::EdgeFeatures(graph) => {
                flow.graphs[graph.index()].steps.iter().any(|step| is_same(step.relation, *by))
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
            _ => None,
        },
        relations: path.relations.iter().map(|&by| relation(by).dataset_name.clone()).collect(),
        edge_data: path.relations.iter().take(path.steps.len()).map(is_read).collect(),
        past: is_past(flow, path),
        memory_budget: budget(options),
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
        past: is_past(flow, path),
    })
}

/// Position of the relation of a name.
fn relation_in(dataset: &Dataset, name: &str) -> Result<usize> {
    dataset
        .relation(name)
        .ok_or_else(|| ExecError::Unsupported(format!("the dataset `{}` has no relation `{name}`", dataset.name)))
}
