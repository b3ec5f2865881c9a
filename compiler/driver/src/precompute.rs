//! The rows of a model that are computed before it is trained on mini-batches.

use std::collections::BTreeSet;

use hgnnc_ir::training::LinkTarget;
use hgnnc_ir::{Dataflow, Graph, Input, Op, VertexType};
use hgnnc_passes::{Disabled, PRECOMPUTE, Precomputed, SizeInfo, precompute, precomputed_inputs};

use crate::model::Analyzed;

/// The rows of a model on mini-batches that depend on no parameter, which [`prepare`](crate::prepare) leaves to a
/// program of their own. `None` if there are none, or the pass is disabled.
pub fn precomputed(model: &Analyzed, disabled: &Disabled) -> Option<Precomputed> {
    let training = &model.train.as_ref()?.training;
    training.batch.as_ref()?;
    if disabled.has_pass(PRECOMPUTE) {
        return None;
    }
    split(&model.flow, training.links())
}

/// A forward program whose precomputed rows are inputs. `links` are those of its loss.
pub(crate) fn split(flow: &Dataflow, links: Option<&LinkTarget>) -> Option<Precomputed> {
    precompute(flow, &links.map_or_else(BTreeSet::new, |links| without_links(flow, links)))
}

/// The graphs of which a batch leaves out the edges between the ends of its links.
fn without_links(flow: &Dataflow, links: &LinkTarget) -> BTreeSet<Graph> {
    let is_changed = |graph: &Graph| !links.repeated_by(flow, *graph).is_empty();
    (0..flow.graphs.len()).map(Graph::new).filter(is_changed).collect()
}

/// Leaves the precomputed rows of a model to a program of their own, before its tables are bound to data. No effect on
/// a model that has left them.
pub fn leave_precomputed(model: &mut Analyzed, disabled: &Disabled) {
    if model.precomputed.is_none()
        && let Some(Precomputed { program, rest, .. }) = precomputed(model, disabled)
    {
        (model.flow, model.precomputed) = (rest, Some(program));
    }
}

/// A line for each matrix of precomputed rows: its size, the data that it is computed from, and where it is kept.
pub(crate) fn explain(model: &Analyzed, sizes: Option<&SizeInfo>) -> Vec<String> {
    let Some(program) = &model.precomputed else { return vec![] };
    let line = |(input, vertex, width): (Input, VertexType, usize)| {
        let name = &model.flow.inputs[input.index()].name;
        let rows = &model.flow.vertex_types[vertex.index()].name;
        let bytes = sizes.map_or(String::new(), |sizes| {
            format!(" ({:.2} MB)", 4.0 * width as f64 * sizes.vertices[vertex.index()] as f64 / 1e6)
        });
        let sources = sources(program, name);
        format!(
            "{PRECOMPUTE}: `{name}`, {width} numbers for each {rows}{bytes}, of {sources}: computed before training, and kept in the \
             cache beside the dataset"
        )
    };
    precomputed_inputs(&model.flow).map(line).collect()
}

/// The inputs and the graphs that a result of a program depends on, by name.
pub fn sources(program: &Dataflow, result: &str) -> String {
    let Some(value) = program.result(result) else { return String::new() };
    let (mut inputs, mut graphs, mut pending) = (BTreeSet::new(), BTreeSet::new(), vec![value]);
    let mut seen = vec![false; program.values.len()];
    while let Some(value) = pending.pop() {
        if std::mem::replace(&mut seen[value.index()], true) {
            continue;
        }
        let data = program.value(value);
        if let Op::Input(input) = data.op {
            inputs.insert(input);
        }
        graphs.extend(data.op.graph());
        pending.extend(&data.args);
    }
    let inputs: Vec<String> = inputs.iter().map(|input| format!("`{}`", program.inputs[input.index()].name)).collect();
    let graphs: Vec<String> = graphs.iter().map(|graph| format!("`{}`", program.graphs[graph.index()].name)).collect();
    format!("{} along {}", inputs.join(", "), graphs.join(", "))
}
