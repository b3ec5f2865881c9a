//! The cutoff of a train block: whether each message that an output depends on has one vertex whose time bounds it, and the rows
//! of vertices without a time as of cutoffs.

use std::collections::BTreeSet;

use hgnnc_declare::schema::Schema;
use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};
use hgnnc_ir::dataflow::{Binding, GraphDecl};
use hgnnc_ir::training::Training;
use hgnnc_ir::{Dataflow, Graph, Op, Origin, Output, PathRows, Space, Value};
use hgnnc_passes::{NotAtCutoffs, Timed, cutoff_rows, to_minibatch};
use hgnnc_sema::Checked;

/// Reports what the outputs of a model with a cutoff depend on and has no time that would bound it.
pub fn check(checked: &Checked, flow: &Dataflow, diagnostics: &mut Diagnostics) {
    let Some(span) = checked.train.as_ref().and_then(|train| train.cutoff) else {
        let help = "write `cutoff time` in the train block, or give the vertex type a time of the dataset (`time`)";
        read_cutoffs(&checked.schema, flow).for_each(|found| diagnostics.push(found.help(help)));
        return;
    };
    let is_read = |output: &&Output| match flow.ty(output.value).space {
        Space::Vertices(_) => true,
        Space::Edges(graph) => flow.graphs[graph.index()].links,
        Space::Unit | Space::Index(_) | Space::Endpoints(..) => false,
    };
    let outputs: Vec<Output> = flow.outputs.iter().filter(is_read).cloned().collect();
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
        if decl.links {
            let Some(found) = links_without_cutoff(checked, decl, span) else { continue };
            diagnostics.push(found);
            return;
        }
        if decl.shuffle.is_some() {
            let message = "an output depends on shuffled vertices, which have no time".to_owned();
            let help = "a cutoff is for vertices, edges and links, over relations, metapaths and path instances";
            diagnostics.push(report(message, "no vertex may read what is later", origin).help(help));
            return;
        }
    }
    let mut alone = Dataflow { outputs, ..flow.clone() };
    if let Err(error) = to_minibatch(&alone) {
        let message = format!("an output depends on more than what vertices have read: {}", error.why);
        diagnostics.push(report(message, "no vertex may read what is later", error.origin));
        return;
    }
    // Of outputs first: a loss follows them.
    alone.remove_dead_values();
    let schema = &checked.schema;
    match with_rows(alone, schema).and_then(|_| with_rows(flow.clone(), schema)) {
        Err(error) => diagnostics.push(untimed(schema, flow, &error, report)),
        Ok(with_rows) => {
            let help = "it is the time of what reads the vertices along a relation, or of links that they are ends of";
            read_cutoffs(schema, &with_rows).for_each(|found| diagnostics.push(found.help(help)));
        }
    }
}

/// Reports of cutoffs of vertices that a program reads and that have no rows as of cutoffs.
fn read_cutoffs<'f>(schema: &'f Schema, flow: &'f Dataflow) -> impl Iterator<Item = Diagnostic> + 'f {
    flow.inputs.iter().filter_map(|input| {
        let Binding::Time(vertex) = input.binding else { return None };
        let vertex = schema.vertices.get(vertex.index())?;
        let field = vertex.cutoff()?;
        let message = format!("`{}.{}` is read, but nothing reads `{0}` as of a cutoff", vertex.name, field.name);
        Some(Diagnostic::at(codes::CUTOFF, field.span, message, "the time as of which a vertex is read"))
    })
}

/// The report of links whose ends have no cutoff; `None` if they have one.
fn links_without_cutoff(checked: &Checked, decl: &GraphDecl, cutoff: Span) -> Option<Diagnostic> {
    let schema = &checked.schema;
    let [step] = decl.steps[..] else {
        let message = format!("the links of `{}` have no time", schema.written(decl));
        let found = Diagnostic::at(codes::CUTOFF, cutoff, message, "no vertex may read what is later");
        let found = found.note("random walks draw links of metapaths");
        return Some(found.help("predict the links of a relation with a time"));
    };
    let relation = &schema.relations[step.relation as usize];
    let name = &relation.name;
    if relation.time().is_none() {
        let message = format!("the links of `{name}` have no time");
        let found = Diagnostic::at(codes::CUTOFF, relation.span, message, "up to when may their ends read?")
            .label(cutoff, "links are read as of the time before them");
        return Some(found.help(format!("give `{name}` a time: `{{ at: time }}`")));
    }
    for end in [relation.src, relation.dst].into_iter().filter_map(|end| schema.vertices.get(end)) {
        if let Some(time) = end.time() {
            let message = format!("`{}` has a time of its own, and is an end of the links of `{name}`", end.name);
            let found = Diagnostic::at(codes::CUTOFF, time.span, message, "read up to then, or up to the link?")
                .label(cutoff, "links are read as of the time before them");
            let found = found.label(relation.span, "the links are declared here");
            return Some(
                found.help(format!("leave the time of `{}` out: it is read as of the time of each link", end.name)),
            );
        }
    }
    let target = checked.train.as_ref().and_then(|train| train.training.links())?;
    if !target.negatives.by.shared().is_empty() {
        let message = "links as of different times share no samples";
        let found = Diagnostic::at(codes::CUTOFF, relation.span, message, "each link is read as of a time of its own")
            .label(cutoff, "links are read as of the time before them");
        return Some(found.help("write `negatives uniform(64)`, of each link"));
    }
    None
}

/// The program with rows as of cutoffs for the vertices that have no time, where it needs any.
///
/// # Errors
/// A value of such a vertex that has no row for each cutoff.
pub fn with_rows(flow: Dataflow, schema: &Schema) -> Result<Dataflow, NotAtCutoffs> {
    if !flow.graphs.iter().any(|graph| graph.past || graph.period.is_some()) {
        return Ok(flow);
    }
    let timed = Timed {
        vertices: schema.vertices.iter().map(|vertex| vertex.time().is_some()).collect(),
        relations: schema.relations.iter().map(|relation| relation.time().is_some()).collect(),
        cutoffs: schema.vertices.iter().map(|vertex| vertex.cutoff().is_some()).collect(),
    };
    cutoff_rows(&flow, &timed)
}

/// Names the relations between rows as of cutoffs in place of those that repeat links. No edge with a time repeats a link that is
/// read as of an earlier one.
pub fn exclude_rows(training: &mut Training, flow: &Dataflow, schema: &Schema) {
    let Some(target) = training.links_mut() else { return };
    if !flow.paths.iter().any(|path| matches!(path.rows, PathRows::Links { .. })) {
        return;
    }
    let untimed = |relation: u32| schema.relations.get(relation as usize).is_some_and(|of| of.time().is_none());
    let excluded = std::mem::take(&mut target.exclude);
    for path in flow.paths.iter().filter(|path| path.rows == PathRows::Cutoffs) {
        let steps = path.steps.iter().zip(&path.relations[1..]);
        let own = steps.filter(|(step, _)| excluded.contains(&step.relation) && untimed(step.relation));
        target.exclude.extend(own.map(|(_, relation)| *relation));
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

/// The report of a value of a vertex without a time, to which messages with times come.
fn untimed(
    schema: &Schema,
    flow: &Dataflow,
    error: &NotAtCutoffs,
    report: impl Fn(String, &str, Option<Origin>) -> Diagnostic,
) -> Diagnostic {
    let name = &flow.vertex_types[error.vertex.index()].name;
    let along = schema.written(&flow.graphs[error.graph.index()]);
    let message = match flow.graphs[error.graph.index()].links {
        true => format!("`{name}` is read as of the times of the links `{along}`"),
        false => format!("`{name}` has no time, and receives messages with times along `{along}`"),
    };
    let mut found = report(message, "up to when may it read?", error.origin);
    found = found.note(format!("`{name}` is read as of the time of each of its readers, but {}", error.what));
    if let Some(vertex) = schema.vertices.get(error.vertex.index()) {
        found = found.label(vertex.span, "the vertex type is declared here");
    }
    let relation = schema.relations.get(error.step.relation as usize);
    let sources = relation.and_then(|of| schema.vertices.get(if error.step.reverse { of.dst } else { of.src }));
    let times = relation.and_then(|of| of.time()).or_else(|| sources.and_then(|of| of.time()));
    if let Some(timed) = times {
        found = found.label(timed.span, "a time of its messages");
    }
    found.help(format!("give `{name}` a time, or leave `{along}` out"))
}
