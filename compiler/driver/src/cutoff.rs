//! The cutoff of a train block against the model: whether each message that an output depends on has one vertex whose time
//! bounds it.

use std::collections::BTreeSet;

use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};
use hgnnc_ir::{Dataflow, Graph, Op, Origin, Output, PathDecl, Space, Value};
use hgnnc_passes::to_minibatch;
use hgnnc_sema::Checked;

/// Reports what the outputs of a model with a cutoff depend on and has no time that would bound it.
pub fn check(checked: &Checked, flow: &Dataflow, diagnostics: &mut Diagnostics) {
    let Some(span) = checked.train.as_ref().and_then(|train| train.cutoff) else { return };
    let of_vertices = |output: &&Output| matches!(flow.ty(output.value).space, Space::Vertices(_));
    let outputs: Vec<Output> = flow.outputs.iter().filter(of_vertices).cloned().collect();
    let read = reached(flow, &outputs);
    let report = |message: String, label: &str, origin: Option<Origin>| {
        let report = Diagnostic::at(codes::CUTOFF, span, message, label);
        match origin {
            Some(Origin { file, start, end }) => report.label(Span { file: FileId(file), start, end }, "here"),
            None => report,
        }
    };
    // Graphs in the order of their declaration, with the first value that reads each.
    let mut graphs: BTreeSet<(Graph, Value)> = BTreeSet::new();
    for &value in &read {
        let data = flow.value(value);
        let of_edges = if let Space::Edges(graph) = data.ty.space { Some(graph) } else { None };
        graphs.extend(data.op.graph().into_iter().chain(of_edges).map(|graph| (graph, value)));
        let of_all = data.args.first().is_some_and(|&arg| matches!(flow.ty(arg).space, Space::Vertices(_)));
        if matches!(data.op, Op::ReduceSpace(_)) && of_all {
            let message = "an output depends on all vertices of a type, the latest ones too".to_owned();
            let help =
                "reductions over vertices and `batch_norm` belong into the loss, or into a model without a cutoff";
            diagnostics.push(report(message, "no vertex may read what is later", data.origin).help(help));
            return;
        }
    }
    let mut known = None;
    for (graph, value) in graphs {
        if known == Some(graph) {
            continue;
        }
        known = Some(graph);
        let (decl, origin) = (&flow.graphs[graph.index()], flow.value(value).origin);
        let of_paths = |path: &PathDecl| [decl.src, decl.dst].contains(&path.vertex);
        let what = match () {
            () if decl.links => "pairs to score",
            () if flow.paths.iter().any(of_paths) => "path instances, or edges to predict",
            () if decl.shuffle.is_some() => "shuffled vertices",
            () => {
                if let Some(mistake) = untimed(checked, decl, |message, label| report(message, label, origin)) {
                    diagnostics.push(mistake);
                    return;
                }
                continue;
            }
        };
        let message = format!("an output depends on {what}, which have no time");
        let help = "a cutoff is for outputs of vertices, over relations and metapaths";
        diagnostics.push(report(message, "no vertex may read what is later", origin).help(help));
        return;
    }
    let alone = Dataflow { outputs, ..flow.clone() };
    if let Err(error) = to_minibatch(&alone) {
        let message = format!("an output depends on more than what vertices have read: {}", error.why);
        diagnostics.push(report(message, "no vertex may read what is later", error.origin));
    }
}

/// The values that outputs depend on, in order.
fn reached(flow: &Dataflow, outputs: &[Output]) -> BTreeSet<Value> {
    let mut open: Vec<Value> = outputs.iter().map(|output| output.value).collect();
    let mut reached = BTreeSet::new();
    while let Some(value) = open.pop() {
        if reached.insert(value) {
            open.extend(&flow.value(value).args);
        }
    }
    reached
}

/// The report of a vertex without a time to which a step of a semantic graph brings messages with times.
fn untimed(
    checked: &Checked,
    decl: &hgnnc_ir::dataflow::GraphDecl,
    report: impl Fn(String, &str) -> Diagnostic,
) -> Option<Diagnostic> {
    let schema = &checked.schema;
    decl.steps.iter().find_map(|step| {
        let relation = schema.relations.get(step.relation as usize)?;
        let (src, dst) = if step.reverse { (relation.dst, relation.src) } else { (relation.src, relation.dst) };
        let (src, dst) = (&schema.vertices[src], &schema.vertices[dst]);
        let timed = [src.time(), relation.time()].into_iter().flatten().next()?;
        if dst.time().is_some() {
            return None;
        }
        let message = format!("`{}` has no time, and receives messages with times along `{}`", dst.name, decl.name);
        let found = report(message, "up to when may it read?");
        Some(
            found
                .label(dst.span, "the vertex type is declared here")
                .label(timed.span, "a time of its messages")
                .help(format!("give `{}` a time, or leave the semantic graph out", dst.name)),
        )
    })
}
