//! Mini-batches of a train block against the receptive field of the loss: how many hops it sees, along which semantic
//! graphs, and whether it can be computed on batches at all. Hops beneath precomputed rows are sampled only where these
//! are not computed before training.

use std::collections::BTreeMap;

use hgnnc_declare::schema::{FieldInfo, FieldKind, GraphRef, Schema};
use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};
use hgnnc_ir::batch::BatchInput;
use hgnnc_ir::dataflow::{Binding, GraphDecl, SelfLoops, Step, reversed};
use hgnnc_ir::training::{Fanout, MiniBatch, Reuse, Target};
use hgnnc_ir::{Dataflow, Graph, Input, Origin, Output, OutputKind, Value, VertexType};
use hgnnc_passes::{Disabled, NotBatchable, reduced_at_seeds, share_samples, to_minibatch, to_minibatch_with_cache};
use hgnnc_sema::Checked;
use hgnnc_sema::batch::{BatchSpec, FanoutSpec, Hop, HopList};

use crate::model::Analyzed;
use crate::precompute::{precomputed, split};

/// The mini-batches that `spec` describes. Mistakes are reported and give `None`. Nothing is reported about the
/// receptive field of a loss that is wrong.
pub fn resolve(
    spec: &BatchSpec,
    flow: &Dataflow,
    checked: &Checked,
    diagnostics: &mut Diagnostics,
) -> Option<MiniBatch> {
    let links = checked.train.as_ref().and_then(|train| train.training.links());
    let rest = split(flow, links).map(|split| split.rest);
    let field = receptive_field(rest.as_ref().unwrap_or(flow));
    if let (Some((span, _)), Some(Err(error))) = (spec.size, &field) {
        diagnostics.push(not_batchable(span, error));
    }
    if let (Some((span, _)), Some(links)) = (spec.size, links)
        && let ends = links.negatives.by.shared()
        && !ends.is_empty()
        && let Err(error) = share_samples(&mut flow.clone(), 1, ends)
    {
        // A network of the source has a score that is linear in the destination alone.
        let of_destinations = ends.len() > 1 && share_samples(&mut flow.clone(), 1, &ends[..1]).is_ok();
        diagnostics.push(not_shared(span, &error, of_destinations.then_some(links.negatives.count)));
        return None;
    }
    let field = field.and_then(Result::ok);
    let whole = rest.as_ref().and_then(|_| receptive_field(flow)).and_then(Result::ok);
    let (field, whole) = (field.as_ref(), whole.as_ref().or(field.as_ref()));
    let target = checked.train.as_ref().map(|train| train.training.target());
    let all_of = match (spec.size, field, target) {
        (Some((span, _)), Some(field), Some(target)) => {
            seeds(target, field, flow).map_err(|report| diagnostics.push(report(span))).ok()
        }
        _ => None,
    };
    let mut resolver = Resolver { field, whole, flow, schema: &checked.schema, diagnostics };
    let fanouts = match &spec.fanout {
        Some(fanout) => resolver.fanouts(fanout),
        None => whole.map(|whole| vec![vec![Fanout::All; flow.graphs.len()]; whole.hops]),
    };
    let reuse = match &spec.reuse {
        Some((span, reuse)) => Some(resolver.reuse(*span, *reuse, checked.model.hidden_at())?),
        None => None,
    };
    Some(MiniBatch { size: spec.size?.1?, all_of: all_of?, fanouts: fanouts?, reuse })
}

/// The type of the seeds of a loss that compares nothing: the one that it goes over. `None` for a loss with a target. The
/// error is a report, for the place of `batch`.
fn seeds(
    target: Option<&Target>,
    field: &ReceptiveField,
    flow: &Dataflow,
) -> Result<Option<VertexType>, impl FnOnce(Span) -> Diagnostic> {
    let of_target = match target {
        None => field.reduced.keys().next().copied().into_iter().collect(),
        Some(Target::Vertices { vertex, .. }) => vec![*vertex],
        Some(Target::Links(links)) => {
            links.graphs.iter().map(|graph| &flow.graphs[graph.index()]).flat_map(|decl| [decl.src, decl.dst]).collect()
        }
    };
    let other = field.reduced.iter().find(|(vertex, _)| !of_target.contains(vertex));
    if let (None, false) = (other, of_target.is_empty()) {
        return Ok(of_target.first().copied().filter(|_| target.is_none()));
    }
    let name = |vertex: &VertexType| format!("`{}`", flow.vertex_types[vertex.index()].name);
    let other = other.map(|(vertex, origin)| (name(vertex), *origin));
    let mut of_target: Vec<String> = of_target.iter().map(name).collect();
    of_target.dedup();
    let first = field.reduced.values().next().copied().flatten().filter(|_| target.is_none());
    Err(move |span| {
        let Some((other, origin)) = other else {
            let message = "a batch has the vertices that the loss goes over, and it goes over none";
            let report = Diagnostic::at(codes::NOT_ON_BATCH, span, message, "of which vertices?");
            return report.help("remove `batch`, or reduce the loss over a vertex type: `mean(…) over Paper`");
        };
        let of_target = of_target.join(" and ");
        let message = format!("a batch has seeds of {of_target}, and the loss goes over {other} as well");
        let report = Diagnostic::at(codes::NOT_ON_BATCH, span, message, format!("has no seeds of {other}"));
        let report = labelled(report, first, &format!("goes over {of_target}"));
        labelled(report, origin, &format!("goes over {other}")).help("remove `batch`")
    })
}

/// The mini-batches of a program with rows as of cutoffs that it did not have when they were resolved: graphs from vertices
/// to such rows, and perhaps a hop along them, of which all edges are drawn.
pub fn complete(mut batch: MiniBatch, flow: &Dataflow) -> MiniBatch {
    if batch.fanouts.first().is_none_or(|fanouts| fanouts.len() == flow.graphs.len()) {
        return batch;
    }
    let hops = receptive_field(flow).and_then(Result::ok).map_or(0, |field| field.hops);
    batch.fanouts.resize(batch.fanouts.len().max(hops), vec![]);
    batch.fanouts.iter_mut().for_each(|fanouts| fanouts.resize(flow.graphs.len(), Fanout::All));
    batch
}

fn receptive_field(flow: &Dataflow) -> Option<Result<ReceptiveField, NotBatchable>> {
    flow.result("loss").map(|loss| ReceptiveField::of(flow, loss))
}

/// The hops that the batches of a model sample; `None` if it is not trained on batches.
pub fn sampled_hops(model: &Analyzed) -> Option<usize> {
    model.train.as_ref()?.training.batch.as_ref()?;
    let rest = precomputed(model, &Disabled::default()).map(|split| split.rest);
    receptive_field(rest.as_ref().unwrap_or(&model.flow))?.ok().map(|field| field.hops)
}

fn not_batchable(span: Span, error: &NotBatchable) -> Diagnostic {
    let report = Diagnostic::at(codes::NOT_ON_BATCH, span, error.to_string(), "needs the whole graph");
    at_origin(report, error.origin).help("remove `batch`")
}

/// `of_destinations`: the number of samples, if the score allows them in place of the destination.
fn not_shared(batch: Span, error: &NotBatchable, of_destinations: Option<u32>) -> Diagnostic {
    let span = error.origin.map_or(batch, |Origin { file, start, end }| Span { file: FileId(file), start, end });
    let report = Diagnostic::at(
        codes::LINK_LOSS,
        span,
        error.why.clone(),
        "cannot be compared with samples that all links share",
    );
    match of_destinations {
        None => report
            .note("scores of many candidates at once are a matrix product: the score is linear in the row of an end that is replaced, as an inner product is")
            .help("write `negatives uniform(10)`: samples of each link"),
        Some(count) => report
            .note("scores of many candidates at once are a matrix product: this score is one for candidates in place of the destination only")
            .help(format!("write `negatives shared_destinations({count})`, or `negatives uniform(10)`: samples of each link, of both ends")),
    }
}

/// Adds the place of an operation.
fn at_origin(report: Diagnostic, origin: Option<Origin>) -> Diagnostic {
    labelled(report, origin, "here")
}

fn labelled(report: Diagnostic, origin: Option<Origin>, label: &str) -> Diagnostic {
    match origin {
        Some(Origin { file, start, end }) => report.label(Span { file: FileId(file), start, end }, label),
        None => report,
    }
}

struct Resolver<'a> {
    /// The part of the graph that batches sample.
    field: Option<&'a ReceptiveField>,
    /// The part that they would sample if nothing were precomputed.
    whole: Option<&'a ReceptiveField>,
    flow: &'a Dataflow,
    schema: &'a Schema,
    diagnostics: &'a mut Diagnostics,
}

impl Resolver<'_> {
    /// `hidden`: the place of labels of which steps hide a share.
    fn reuse(&mut self, span: Span, reuse: Option<Reuse>, hidden: Option<Span>) -> Option<Reuse> {
        if let Some(hidden) = hidden {
            let message = "values that labels are in are not reused where steps hide labels";
            let report = Diagnostic::at(codes::NOT_REUSED, span, message, "cannot be reused")
                .label(hidden, "a share of these is hidden from each step")
                .note("a value of another batch may hold the label of a vertex that this one hides and learns");
            self.diagnostics.push(report.help("remove `reuse`"));
            return None;
        }
        let why = match self.field {
            Some(ReceptiveField { links: true, .. }) => Some((
                "values are reused where the loss is of vertices, not of links",
                "the edges that join links of a batch are left out of it, and values of other batches have them",
                None,
            )),
            Some(ReceptiveField { reusable: Err(error), .. }) => {
                Some(("there is nothing that batches could reuse", error.why.as_str(), error.origin))
            }
            Some(_) | None => None,
        };
        if let Some((what, why, origin)) = why {
            let report = Diagnostic::at(codes::NOT_REUSED, span, what, "cannot be reused").note(why);
            self.diagnostics.push(at_origin(report, origin).help("remove `reuse`"));
            return None;
        }
        reuse
    }

    /// By hop and position in the table of graphs.
    fn fanouts(&mut self, spec: &FanoutSpec) -> Option<Vec<Vec<Fanout>>> {
        let others = self.hops(&spec.hops);
        let mut own: BTreeMap<usize, (Span, Vec<Hop>)> = BTreeMap::new();
        let mut ok = others.is_some();
        for &(fanout, span) in others.iter().flatten() {
            // Fan-outs by weight and walks are valid for a named semantic graph only, not for all others.
            if let Some((what, takes)) = own_only(fanout) {
                let message = format!("{what} stand in braces");
                self.diagnostics.push(
                    Diagnostic::at(codes::FANOUT_KIND, span, message, "for which semantic graph?")
                        .help(format!("as in `fanout [10] {{ {takes} }}`")),
                );
                ok = false;
            }
        }
        for entry in &spec.graphs {
            let drawn = |(_, handle): &(GraphRef, Option<Graph>)| {
                handle.is_none_or(|graph| self.field.is_none_or(|field| field.graphs[graph.index()]))
            };
            // One warning is enough where no graph is drawn from.
            let none_drawn = entry.graphs.as_ref().is_some_and(|graphs| !graphs.iter().any(drawn));
            let hops = if none_drawn { self.hops_of_whole(&entry.hops) } else { self.hops(&entry.hops) };
            ok &= hops.is_some();
            let Some(graphs) = &entry.graphs else {
                ok = false;
                continue;
            };
            if graphs.is_empty() {
                let message = "this family has no semantic graphs";
                let report = Diagnostic::at(codes::EMPTY_FAMILY, entry.span, message, "the fan-out is of nothing");
                self.diagnostics.push(report);
                ok = false;
            }
            for (graph, handle) in graphs {
                let position = handle.map(|graph| graph.index());
                let used = |position: usize| self.whole.is_none_or(|whole| whole.graphs[position]);
                let Some(position) = position.filter(|position| used(*position)) else {
                    ok = false;
                    if let Some(field) = self.field {
                        let report = self.unused_graph(graph, field);
                        self.diagnostics.push(report);
                    }
                    continue;
                };
                if let Some((first, _)) = own.get(&position) {
                    let name = self.schema.written(&self.flow.graphs[position]);
                    let message = format!("`{name}` has a fan-out already");
                    let report = Diagnostic::at(codes::DUPLICATE_GRAPH, graph.span, message, "given again here");
                    self.diagnostics.push(report.label(*first, "first given here"));
                    ok = false;
                    continue;
                }
                if self.field.is_some_and(|field| !field.graphs[position]) {
                    let name = self.schema.written(&self.flow.graphs[position]);
                    let message =
                        format!("batches draw no in-edges of `{name}`: what the loss reads along it is precomputed");
                    let report = Diagnostic::at(codes::FANOUT_PRECOMPUTED, graph.span, message, "draws nothing");
                    self.diagnostics.push(report.help(format!("remove the fan-out of `{name}`")));
                }
                let hops = hops.clone().unwrap_or_default();
                for &(fanout, span) in &hops {
                    if let Some(report) = self.misfit(position, fanout, span) {
                        self.diagnostics.push(report);
                        ok = false;
                    }
                }
                // The sampler has one number for each edge: its weight, or its rank.
                let of = |by: fn(&Fanout) -> bool| hops.iter().find(|(fanout, _)| by(fanout));
                let weighted = of(|fanout| matches!(fanout, Fanout::Weighted(_)));
                let latest = of(|fanout| matches!(fanout, Fanout::Latest(_)));
                if let (Some((_, weighted)), Some((_, latest))) = (weighted, latest) {
                    let name = self.schema.written(&self.flow.graphs[position]);
                    let message = format!("the edges of `{name}` are drawn by weight and by time");
                    let report = Diagnostic::at(codes::FANOUT_KIND, *latest, message, "by time in this hop");
                    self.diagnostics.push(report.label(*weighted, "by weight in this one").help("choose one of both"));
                    ok = false;
                }
                own.insert(position, (graph.span, hops));
            }
        }
        // All lists are at least as long as what is sampled is deep, where that is known. Hops that have no fan-outs are
        // sampled only where nothing is precomputed, and draw all in-edges then.
        let others = others.filter(|_| ok && self.field.is_some())?;
        let of = |hop: usize, graph: usize| {
            let hops = own.get(&graph).map_or(&others, |(_, hops)| hops);
            hops.get(hop).map_or(Fanout::All, |(fanout, _)| *fanout)
        };
        let hops = self.whole.map_or(others.len(), |whole| whole.hops);
        Some((0..hops).map(|hop| (0..self.flow.graphs.len()).map(|graph| of(hop, graph)).collect()).collect())
    }

    /// The report of a fan-out that a semantic graph cannot have.
    fn misfit(&self, position: usize, fanout: Fanout, span: Span) -> Option<Diagnostic> {
        let decl = &self.flow.graphs[position];
        let name = self.schema.written(decl);
        let kind = |what: String, label: &str| Diagnostic::at(codes::FANOUT_KIND, span, what, label);
        Some(match (fanout, &decl.steps[..]) {
            (Fanout::All | Fanout::AtMost(_), _) => return None,
            (Fanout::Weighted(_), [step]) => {
                // Path instances come from no relation of the schema.
                let Some(relation) = self.schema.relations.get(step.relation as usize) else {
                    return Some(
                        kind(format!("path instances of `{name}` have no weight to draw by"), "draws by weight")
                            .help("they have fan-outs: how many a vertex draws"),
                    );
                };
                let weight = |field: &FieldInfo| matches!(field.kind, FieldKind::Number);
                if relation.fields.iter().any(weight) {
                    return None;
                }
                kind(format!("the edges of `{name}` have no weight to draw by"), "draws by weight")
                    .label(relation.span, format!("`{}` is declared here", relation.name))
                    .help(format!("declare the weight of its edges: `{{ weight: f32 }}` behind `{}`", relation.name))
            }
            (Fanout::Weighted(_), _) => {
                kind(format!("`{name}` is no relation: its edges have no weight"), "draws by weight")
                    .help("relations and their reverses can be drawn from by weight")
            }
            (Fanout::Latest(_), steps) => {
                let vertex = self.schema.vertices.get(decl.src.index());
                let relation = match steps {
                    [step] => self.schema.relations.get(step.relation as usize),
                    _ => None,
                };
                let has_time =
                    vertex.is_some_and(|of| of.time().is_some()) || relation.is_some_and(|of| of.time().is_some());
                if has_time {
                    return None;
                }
                let report = kind(format!("the edges of `{name}` have no time to be the latest by"), "draws by time");
                let declare = match (relation, vertex) {
                    (Some(relation), _) => (
                        relation.span,
                        format!("declare the time of its edges: `{{ at: time }}` behind `{}`", relation.name),
                    ),
                    (None, Some(vertex)) => {
                        (vertex.span, format!("declare the time of its sources: `time` of `{}`", vertex.name))
                    }
                    (None, None) => return Some(report.help("they have fan-outs: how many a vertex draws")),
                };
                report.label(declare.0, "declared here, without a time").help(declare.1)
            }
            (Fanout::Walks { .. }, [] | [_]) => {
                kind(format!("`{name}` is no metapath to walk along"), "walks need a metapath")
                    .help("a relation has fan-outs: how many in-edges a vertex draws")
            }
            (Fanout::Walks { .. }, _) if decl.self_loops == SelfLoops::Added => {
                kind(format!("walks find no self loops of `{name}`"), "walks along a metapath alone")
                    .help("use the metapath without `self_loops`, or fan-outs")
            }
            (Fanout::Walks { .. }, _) if decl.self_loops == SelfLoops::Removed => {
                kind(format!("walks along `{name}` come back to their vertex"), "walks along a metapath alone")
                    .help("use the metapath as it is declared, or fan-outs")
            }
            (Fanout::Walks { .. }, _) => {
                let count = Binding::EdgeCount(Graph::new(position));
                let read = self.flow.inputs.iter().position(|input| input.binding == count);
                let read =
                    read.is_some_and(|input| self.whole.is_none_or(|whole| whole.inputs.contains(&Input::new(input))));
                if !read {
                    return None;
                }
                kind(
                    format!("the loss depends on the counts of `{name}`, which walks do not know"),
                    "finds ends, but not how many paths lead there",
                )
                .help("use fan-outs, or leave `e.count` out")
            }
        })
    }

    /// The fan-outs of a list: as many as batches sample hops, or as they would sample if nothing were precomputed.
    fn hops(&mut self, list: &HopList) -> Option<Vec<Hop>> {
        let example = |hops: usize| format!("`[{}]`", vec!["10"; hops].join(", "));
        let (items, span) = match list {
            HopList::Each(items, span) => (items, *span),
            HopList::Every(hop) => return hop.map(|hop| vec![hop; self.whole.map_or(1, |whole| whole.hops)]),
            HopList::NotAList(span) => {
                let hops = self.field.map_or(2, |field| field.hops);
                let report = Diagnostic::at(codes::NOT_CONSTANT, *span, "fan-outs are a list", "not a list").help(
                    format!("write {}, one for each hop; without `fanout`, all in-edges are drawn", example(hops)),
                );
                self.diagnostics.push(report);
                return None;
            }
            HopList::Error => return None,
        };
        if let (Some(field), Some(whole)) = (self.field, self.whole)
            && items.len() == whole.hops
            && field.hops < whole.hops
        {
            self.diagnostics.push(precomputed_hops(field.hops, whole.hops, span));
        } else if let Some(field) = self.field.filter(|field| field.hops != items.len()) {
            let sees = match field.hops {
                0 => "sees no neighbours".to_string(),
                1 => "sees neighbours 1 hop away".to_string(),
                hops => format!("sees neighbours up to {hops} hops away"),
            };
            let there_are = match items.len() {
                0 => "there are no fan-outs".to_string(),
                1 => "there is 1 fan-out".to_string(),
                given => format!("there are {given} fan-outs"),
            };
            let report = Diagnostic::at(
                codes::FANOUT_HOPS,
                span,
                format!("the model {sees}, but {there_are}"),
                if field.hops == 0 { "there is nothing to draw" } else { "one for each hop is needed" },
            );
            self.diagnostics.push(match field.hops {
                0 => report.help("remove `fanout`"),
                hops => report.help(format!("write {}: the in-edges of the seeds come first", example(hops))),
            });
            return None;
        }
        items.iter().copied().collect()
    }

    /// The fan-outs of a list for semantic graphs that nothing is drawn from.
    fn hops_of_whole(&mut self, list: &HopList) -> Option<Vec<Hop>> {
        match (list, self.whole) {
            (HopList::Each(items, _), Some(whole)) if items.len() == whole.hops => items.iter().copied().collect(),
            _ => self.hops(list),
        }
    }

    fn unused_graph(&self, graph: &GraphRef, field: &ReceptiveField) -> Diagnostic {
        let decl = graph.declaration();
        let name = self.schema.written(&decl);
        if decl.steps.is_empty() {
            let has = if decl.shuffle.is_some() { "shuffles the vertices that it has" } else { "has all of its edges" };
            let message = format!("`{name}` has no fan-out: a batch {has}");
            let report = Diagnostic::at(codes::FANOUT_GRAPH, graph.span, message, "draws no in-edges");
            return report.help(format!("remove the fan-out of `{name}`"));
        }
        let seen: Vec<&GraphDecl> =
            self.flow.graphs.iter().zip(&field.graphs).filter(|(_, seen)| **seen).map(|(decl, _)| decl).collect();
        let backwards: Vec<Step> = reversed(&decl.steps);
        let alike =
            |known: &&&GraphDecl| !decl.steps.is_empty() && (known.steps == decl.steps || known.steps == backwards);
        let list = |graphs: &[&GraphDecl]| {
            graphs.iter().map(|decl| format!("`{}`", self.schema.written(decl))).collect::<Vec<_>>().join(", ")
        };
        let help = match seen.iter().find(alike) {
            Some(alike) => Some(format!("did you mean `{}`?", self.schema.written(alike))),
            None if seen.is_empty() => None,
            None => Some(format!("it sees {}", list(&seen))),
        };
        let mut report = Diagnostic::at(
            codes::FANOUT_GRAPH,
            graph.span,
            format!("the loss sees no messages along `{name}`"),
            "a fan-out of it would change nothing",
        );
        report.help.extend(help);
        report
    }
}

/// The part of the graph that the loss depends on.
struct ReceptiveField {
    /// The number of hops from a seed vertex.
    hops: usize,
    /// By semantic graph: does the loss depend on messages along it?
    graphs: Vec<bool>,
    /// The inputs that the loss depends on.
    inputs: Vec<Input>,
    /// The vertex types that the loss goes over at the seeds, each with the place of the first reduction.
    reduced: BTreeMap<VertexType, Option<Origin>>,
    /// Is the loss of links?
    links: bool,
    /// Can batches reuse a value of another batch?
    reusable: Result<(), NotBatchable>,
}

impl ReceptiveField {
    /// The receptive field as the program of a batch has it, so that both agree.
    fn of(flow: &Dataflow, loss: Value) -> Result<Self, NotBatchable> {
        let kind = OutputKind::Result("loss".to_string());
        let flow = Dataflow { outputs: vec![Output { kind, value: loss }], ..flow.clone() };
        let (of_batch, layout) = to_minibatch(&flow)?;
        let reduced = reduced_at_seeds(&of_batch, &layout);
        let graphs = (0..flow.graphs.len()).map(|graph| layout.deepest(Graph::new(graph)).is_some()).collect();
        let whole = |input: &BatchInput| match *input {
            BatchInput::Whole(input) => Some(input),
            BatchInput::Historical { .. } => None,
        };
        let inputs = layout.inputs.iter().filter_map(whole).collect();
        let links = flow.graphs.iter().any(|graph| graph.links);
        let reusable = to_minibatch_with_cache(&flow).map(drop);
        Ok(Self { hops: layout.hops, graphs, inputs, reduced, links, reusable })
    }
}

/// The warning of fan-outs for hops beneath precomputed rows.
fn precomputed_hops(sampled: usize, given: usize, span: Span) -> Diagnostic {
    let draws = match sampled {
        0 => "batches draw no in-edges".to_owned(),
        1 => "batches draw in-edges of 1 hop".to_owned(),
        hops => format!("batches draw in-edges of {hops} hops"),
    };
    let message =
        format!("{draws}: what the loss reads beyond depends on no parameter, and is computed before training");
    let label = match given - sampled {
        1 => "the last fan-out draws nothing".to_owned(),
        unused => format!("the last {unused} fan-outs draw nothing"),
    };
    let report = Diagnostic::at(codes::FANOUT_PRECOMPUTED, span, message, label);
    report.help(match sampled {
        0 => "remove `fanout`".to_owned(),
        1 => "keep the first fan-out".to_owned(),
        hops => format!("keep the first {hops} fan-outs"),
    })
}

/// A kind of fan-out that only some semantic graphs have, and an example.
fn own_only(fanout: Fanout) -> Option<(&'static str, &'static str)> {
    match fanout {
        Fanout::All | Fanout::AtMost(_) => None,
        Fanout::Weighted(_) => Some(("fan-outs by weight", "cites: weighted(10)")),
        Fanout::Latest(_) => Some(("the latest edges", "cites: latest(10)")),
        Fanout::Walks { .. } => Some(("walks", "PAP: walks(20, top: 10)")),
    }
}
