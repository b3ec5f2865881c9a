//! Decides which semantic graphs are materialized: before data is bound, since a metapath whose sums are all factored
//! needs no edges.

use std::collections::BTreeSet;

use hgnnc_executable::GraphPlan;
use hgnnc_ir::dataflow::{GraphDecl, MetapathDecl, SelfLoops};
use hgnnc_ir::{Dataflow, Graph, Op, Space};
use hgnnc_passes::score_links;
use hgnnc_passes::{PassCx, PassManager, UnknownName, factor_paths};

use crate::layer::draws_masks;
use crate::lower::{LowerOptions, forward_of_training, without_dropout};
use crate::model::Analyzed;

/// Declares the hops of the metapaths that could be factored: one graph for each hop, after all other graphs. A counted
/// metapath has a hop for each step. Any other is split at a middle vertex that is the only one between its pairs:
/// `middle` says after how many steps, if the dataset has one. Of a model on mini-batches, these are the metapaths that only
/// precomputed rows are computed along; they are declared once these rows have a program of their own.
///
/// # Errors
/// Whatever `middle` reports about the dataset, such as a relation that it does not have.
pub fn declare_metapaths<E>(
    model: &mut Analyzed,
    mut middle: impl FnMut(&GraphDecl) -> Result<Option<usize>, E>,
) -> Result<(), E> {
    // Mini-batches are sampled from the edges of metapaths.
    let on_batches = model.train.as_ref().is_some_and(|train| train.training.batch.is_some());
    if on_batches && (model.precomputed.is_none() || !model.flow.metapaths.is_empty()) {
        return Ok(());
    }
    let read = if on_batches { graphs_with_edges(&model.flow) } else { BTreeSet::new() };
    let flow = &mut model.flow;
    for index in 0..flow.graphs.len() {
        let decl = flow.graphs[index].clone();
        if read.contains(&Graph::new(index))
            || decl.steps.len() < 2
            || decl.self_loops != SelfLoops::Kept
            || decl.links
            || decl.kept.is_some()
        {
            continue;
        }
        let places: Vec<usize> = match decl.counted {
            true => (1..decl.steps.len()).collect(),
            false => middle(&decl)?.into_iter().collect(),
        };
        if places.is_empty() {
            continue;
        }
        let starts = std::iter::once(0).chain(places.iter().copied());
        let ends = places.iter().copied().chain([decl.steps.len()]);
        let (mut hops, mut src) = (vec![], decl.src);
        for (number, (start, end)) in starts.zip(ends).enumerate() {
            let steps = decl.steps[start..end].to_vec();
            let Some(last) = steps.last() else { continue };
            let relation = &flow.relations[last.relation as usize];
            let dst = if last.reverse { relation.src } else { relation.dst };
            hops.push(Graph::new(flow.graphs.len()));
            let name = format!("{} hop {}", decl.name, number + 1);
            flow.graphs.push(GraphDecl { past: decl.past, ..GraphDecl::new(name, src, dst, steps) });
            src = dst;
        }
        flow.metapaths.push(MetapathDecl { of: Graph::new(index), hops, once: !decl.counted });
    }
    if let Some(program) = &mut model.precomputed {
        program.graphs.clone_from(&flow.graphs);
        program.metapaths.clone_from(&flow.metapaths);
    }
    Ok(())
}

/// Factors sums over path instances hop by hop, where all that a metapath's instances are read for are such sums. To be
/// called before a dataset lists instances: then it lists none of these.
pub fn factor_path_sums(model: &mut Analyzed) {
    // Fan-outs of mini-batches belong to the instances.
    if model.train.as_ref().is_none_or(|train| train.training.batch.is_none()) {
        factor_paths(&mut model.flow);
    }
}

/// Decides which sums over metapaths are factored, and so which graphs are materialized. Compares costs, as
/// [`factor_metapaths`](hgnnc_passes::factor_metapaths) does, so `options` have sizes. [`lower`](crate::lower) keeps to
/// the plan in [`LowerOptions::graphs`].
///
/// # Errors
/// When a disabled pass or fusion does not exist.
pub fn plan_graphs(model: &Analyzed, options: &LowerOptions) -> Result<GraphPlan, UnknownName> {
    // The programs that `lower` compiles: a pass may decide by the whole program. The scores of links read graphs of
    // links only, and have tables of their own.
    let infer = without_dropout(&model.flow);
    let infer = score_links(&infer).map_or(infer, |(first, _)| first);
    plan_programs(infer, model.train.as_ref().map(|_| forward_of_training(model)), options)
}

/// [`plan_graphs`] for the programs of [`lower_layer`](crate::lower_layer).
///
/// # Errors
/// When a disabled pass or fusion does not exist.
pub fn plan_layer_graphs(model: &Analyzed, options: &LowerOptions) -> Result<GraphPlan, UnknownName> {
    let train = draws_masks(&model.flow).then(|| model.flow.clone());
    plan_programs(without_dropout(&model.flow), train, options)
}

/// The plan of an evaluation program and a training program, if there is one.
fn plan_programs(infer: Dataflow, train: Option<Dataflow>, options: &LowerOptions) -> Result<GraphPlan, UnknownName> {
    let passes = PassManager::new(&options.disabled)?;
    let mut plan = GraphPlan::default();
    let mut factored = |flow: Option<Dataflow>| {
        let Some(mut flow) = flow else { return BTreeSet::new() };
        let mut cx = PassCx { machine: options.machine.clone(), ..PassCx::new(options.sizes.clone()) };
        passes.run_forward(&mut flow, &mut cx);
        let read = graphs_with_edges(&flow);
        let factored = flow.metapaths.iter().map(|path| path.of).filter(|of| !read.contains(of)).collect();
        plan.materialized.extend(read);
        factored
    };
    let (infer, train) = (factored(Some(infer)), factored(train));
    Ok(GraphPlan { infer, train, ..plan })
}

/// The graphs whose edges a program reads.
fn graphs_with_edges(flow: &Dataflow) -> BTreeSet<Graph> {
    let mut graphs = BTreeSet::new();
    for value in &flow.values {
        match (&value.op, value.ty.space) {
            (Op::MetapathReduce(sum), _) => graphs.extend([sum.first, sum.second]),
            (_, Space::Edges(graph) | Space::Endpoints(graph, _)) => match flow.graphs[graph.index()].derived {
                None => graphs.extend([graph]),
                Some((stack, _)) => graphs.extend(&flow.stacks[stack.index()].members),
            },
            (_, Space::Unit | Space::Vertices(_) | Space::Index(_)) => {}
        }
    }
    graphs
}
