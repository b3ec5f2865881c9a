//! `batch` and `fanout` of a train block.

use std::collections::BTreeMap;

use hgnnc_diag::{Diagnostic, FileId, Span, codes};
use hgnnc_ir::artifact::{Fanout, MiniBatch, Reuse};
use hgnnc_ir::batch::{BatchInput, BatchLayout};
use hgnnc_ir::dataflow::{Binding, GraphDecl, Step};
use hgnnc_ir::{Dataflow, Graph, Input, Output, OutputKind, Value};
use hgnnc_passes::{NotBatchable, to_minibatch, to_minibatch_with_cache};
use hgnnc_syntax::ast::{self, Expr, ExprKind, TrainEntry};

use crate::consts::Consts;
use crate::elaborate::Elaborator;
use crate::names::did_you_mean;
use crate::schema::{FieldInfo, FieldKind, GraphRef};

/// The fan-out that draws every in-edge.
const ALL: &str = "all";
/// Names of the fan-outs that take arguments.
const WEIGHTED: &str = "weighted";
const WALKS: &str = "walks";
/// Vertices whose values are reused.
const HOT: &str = "hot";
/// Batches that reuse a value: sampled ahead, all of them, and kept.
const MOST_REUSED: f64 = 1024.0;
/// Their ends are counted one by one, for each vertex of a batch.
const MOST_WALKS: f64 = 65_536.0;

/// A fan-out, and where it is written.
type Hop = (Fanout, Span);

impl Elaborator<'_> {
    /// Reads the entries of a train block about mini-batches: `Some(None)` if it has none, `None` if one of them was
    /// reported. Without a valid `loss`, nothing is reported about the part of the graph that it depends on.
    pub fn mini_batch(
        &mut self,
        train: &ast::Train,
        consts: &Consts,
        loss: Option<Value>,
    ) -> Option<Option<MiniBatch>> {
        let written = |entry: &TrainEntry| {
            matches!(entry, TrainEntry::Batch(..) | TrainEntry::Fanout(..) | TrainEntry::Reuse(..))
        };
        if !train.entries.iter().any(written) {
            return Some(None);
        }
        let seen = loss.map(|loss| Seen::by(&self.flow, loss));
        let (mut size, mut fanout, mut reuse) = (None, None, None);
        for entry in &train.entries {
            match entry {
                TrainEntry::Batch(span, expr) => {
                    size = Some(self.count_of(expr, consts, 1.0, "the size of a batch"));
                    if let Some(Err(wrong)) = &seen {
                        self.not_on_batch(*span, wrong);
                    }
                }
                TrainEntry::Fanout(span, written) => {
                    let seen = seen.as_ref().and_then(|seen| seen.as_ref().ok());
                    fanout = Some((*span, self.fanouts(written, consts, seen)));
                }
                TrainEntry::Reuse(span, expr) => {
                    let seen = seen.as_ref().and_then(|seen| seen.as_ref().ok());
                    reuse = Some((*span, self.reuse(*span, expr, consts, seen)));
                }
                _ => {}
            }
        }
        let Some(size) = size else {
            let spans = [("fanout", fanout.map(|it| it.0)), ("reuse", reuse.map(|it| it.0))];
            for (name, span) in spans.into_iter().filter_map(|(name, span)| Some((name, span?))) {
                let what = format!("`{name}` needs `batch`");
                self.report(
                    Diagnostic::at(codes::TRAIN_ENTRY, span, what, "of how many vertices at a time?")
                        .help("add `batch 1024`: the number of vertices in a batch"),
                );
            }
            return None;
        };
        let fanouts = match fanout {
            Some((_, fanouts)) => fanouts?,
            None => vec![vec![Fanout::All; self.flow.graphs.len()]; seen?.ok()?.hops],
        };
        // A batch that no machine could hold is the whole training part.
        let size = usize::try_from(size?).unwrap_or(usize::MAX);
        let reuse = match reuse {
            Some((_, reuse)) => Some(reuse?),
            None => None,
        };
        Some(Some(MiniBatch { size, fanouts, reuse }))
    }

    /// Reads the vertices whose values are reused, such as `hot(0.1, batches: 8)`.
    fn reuse(&mut self, span: Span, expr: &Expr, consts: &Consts, seen: Option<&Seen>) -> Option<Reuse> {
        let (name, arguments) = self.choice(expr, "way to choose what is reused", &[(HOT, &["share", "batches"])])?;
        let missing = |what: &str| {
            Diagnostic::at(codes::MISSING_ARGUMENT, expr.span, format!("`{name}` needs {what}"), "which is missing")
                .help("as in `hot(0.1, batches: 8)`: values of the hottest tenth of the vertices, for 8 batches")
        };
        let share = match arguments[0] {
            Some(share) => self.ranged(share, consts, 0.0, 1.0, "the share of hot vertices"),
            None => {
                self.report(missing("a share of the vertices"));
                None
            }
        };
        let batches = match arguments[1] {
            Some(batches) => self.count_within(batches, consts, (1.0, MOST_REUSED), "the number of batches"),
            None => {
                self.report(missing("a number of batches"));
                None
            }
        };
        let why = match seen {
            Some(Seen { links: true, .. }) => Some((
                "values are reused where the loss is of vertices, not of links".to_owned(),
                "the edges that join links of a batch are left out of it, and values of other batches have them"
                    .to_owned(),
                None,
            )),
            Some(Seen { reusable: Err(wrong), .. }) => {
                Some(("there is nothing that batches could reuse".to_owned(), wrong.why.clone(), wrong.origin))
            }
            Some(_) | None => None,
        };
        if let Some((what, why, origin)) = why {
            let mut report = Diagnostic::at(codes::NOT_REUSED, span, what, "cannot be reused").note(why);
            if let Some(origin) = origin {
                report = report.label(Span { file: FileId(origin.file), start: origin.start, end: origin.end }, "here");
            }
            self.report(report.help("remove `reuse`"));
            return None;
        }
        Some(Reuse { share: share?, batches: batches? })
    }

    fn not_on_batch(&mut self, span: Span, wrong: &NotBatchable) {
        let mut report = Diagnostic::at(codes::NOT_ON_BATCH, span, wrong.to_string(), "needs the whole graph");
        if let Some(origin) = wrong.origin {
            report = report.label(Span { file: FileId(origin.file), start: origin.start, end: origin.end }, "here");
        }
        self.report(report.help("remove `batch`"));
    }

    /// By hop and position in the table of graphs, which stays that of evaluation.
    fn fanouts(&mut self, written: &ast::Fanout, consts: &Consts, seen: Option<&Seen>) -> Option<Vec<Vec<Fanout>>> {
        let others = self.hop_list(&written.hops, consts, seen);
        let mut own: BTreeMap<usize, (Span, Vec<Hop>)> = BTreeMap::new();
        let mut fine = others.is_some();
        for &(fanout, span) in others.iter().flatten() {
            // Fan-outs by weight and walks are valid for a named semantic graph only, not for all others.
            if let Some((what, takes)) = own_only(fanout) {
                self.report(
                    Diagnostic::at(
                        codes::FANOUT_KIND,
                        span,
                        format!("{what} stand in braces"),
                        "for which semantic graph?",
                    )
                    .help(format!("as in `fanout [10] {{ {takes} }}`")),
                );
                fine = false;
            }
        }
        for entry in &written.graphs {
            let hops = match (&entry.hops.kind, seen) {
                // One for all hops.
                (ExprKind::Call(_), _) => {
                    let hops = seen.map_or(1, |seen| seen.hops);
                    self.hop(&entry.hops, consts).map(|fanout| vec![(fanout, entry.hops.span); hops])
                }
                _ => self.hop_list(&entry.hops, consts, seen),
            };
            let graphs = self.schema.graphs(&entry.graphs, self.diagnostics);
            fine &= hops.is_some();
            let Some(graphs) = graphs else {
                fine = false;
                continue;
            };
            if graphs.is_empty() {
                let at = entry.graphs.span();
                self.report(Diagnostic::at(
                    codes::EMPTY_FAMILY,
                    at,
                    "this family has no semantic graphs",
                    "the fan-out is of nothing",
                ));
                fine = false;
            }
            for graph in graphs {
                let position = self.declared_graph(&graph).map(|graph| graph.index());
                let used = |position: usize| seen.is_none_or(|seen| seen.graphs[position]);
                let Some(position) = position.filter(|position| used(*position)) else {
                    fine = false;
                    if let Some(seen) = seen {
                        self.unused_graph(&graph, seen);
                    }
                    continue;
                };
                let name = self.written(&self.flow.graphs[position]);
                if let Some((first, _)) = own.get(&position) {
                    let report = Diagnostic::at(
                        codes::DUPLICATE_GRAPH,
                        graph.span,
                        format!("`{name}` has a fan-out already"),
                        "given again here",
                    )
                    .label(*first, "first given here");
                    self.report(report);
                    fine = false;
                    continue;
                }
                let hops = hops.clone().unwrap_or_default();
                fine &= hops.iter().all(|&(fanout, span)| self.fits(position, fanout, span, seen));
                own.insert(position, (graph.span, hops));
            }
        }
        // All lists are as long as the loss sees, where that is known.
        let others = others.filter(|_| fine && seen.is_some())?;
        let of = |hop: usize, graph: usize| own.get(&graph).map_or(others[hop], |(_, hops)| hops[hop]).0;
        Some((0..others.len()).map(|hop| (0..self.flow.graphs.len()).map(|graph| of(hop, graph)).collect()).collect())
    }

    /// Can a semantic graph be drawn from like that? Says why not.
    fn fits(&mut self, position: usize, fanout: Fanout, span: Span, seen: Option<&Seen>) -> bool {
        let graph = &self.flow.graphs[position];
        let name = self.written(graph);
        let kind = |what: String, label: &str| Diagnostic::at(codes::FANOUT_KIND, span, what, label);
        let report = match (fanout, &graph.steps[..]) {
            (Fanout::All | Fanout::AtMost(_), _) => return true,
            (Fanout::Weighted(_), [step]) => {
                let relation = &self.schema.relations[step.relation as usize];
                let weight = |field: &FieldInfo| matches!(field.kind, FieldKind::Number);
                if relation.fields.iter().any(weight) {
                    return true;
                }
                kind(format!("the edges of `{name}` have no weight to draw by"), "draws by weight")
                    .label(relation.span, format!("`{}` is declared here", relation.name))
                    .help(format!("declare the weight of its edges: `{{ weight: f32 }}` behind `{}`", relation.name))
            }
            (Fanout::Weighted(_), _) => {
                kind(format!("`{name}` is no relation: its edges have no weight"), "draws by weight")
                    .help("relations and their reverses can be drawn from by weight")
            }
            (Fanout::Walks { .. }, [] | [_]) => {
                kind(format!("`{name}` is no metapath to walk along"), "walks need a metapath")
                    .help("a relation has fan-outs: how many in-edges a vertex draws")
            }
            (Fanout::Walks { .. }, _) if graph.self_loops => {
                kind(format!("walks find no self loops of `{name}`"), "walks along a metapath alone")
                    .help("use the metapath without `self_loops`, or fan-outs")
            }
            (Fanout::Walks { .. }, _) => {
                let counts =
                    |input: &hgnnc_ir::dataflow::InputDecl| input.binding == Binding::EdgeCount(Graph::new(position));
                let used = self.flow.inputs.iter().position(counts);
                let used = used.is_some_and(|input| seen.is_none_or(|seen| seen.inputs.contains(&Input::new(input))));
                if !used {
                    return true;
                }
                kind(
                    format!("the loss depends on the counts of `{name}`, which walks do not know"),
                    "finds ends, but not how many paths lead there",
                )
                .help("use fan-outs, or leave `e.count` out")
            }
        };
        self.report(report);
        false
    }

    /// `[15, all]`: as many as the loss sees hops.
    fn hop_list(&mut self, expr: &Expr, consts: &Consts, seen: Option<&Seen>) -> Option<Vec<Hop>> {
        let example = |hops: usize| format!("`[{}]`", vec!["10"; hops].join(", "));
        let ExprKind::List(items) = &expr.kind else {
            if !matches!(expr.kind, ExprKind::Error) {
                let hops = seen.map_or(2, |seen| seen.hops);
                self.report(Diagnostic::at(codes::NOT_CONSTANT, expr.span, "fan-outs are a list", "not a list").help(
                    format!("write {}, one for each hop; without `fanout`, all in-edges are drawn", example(hops)),
                ));
            }
            return None;
        };
        // Every item is looked at, so that all mistakes are reported.
        let numbers: Vec<_> =
            items.iter().map(|item| self.hop(item, consts).map(|fanout| (fanout, item.span))).collect();
        if let Some(seen) = seen.filter(|seen| seen.hops != items.len()) {
            let sees = match seen.hops {
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
                expr.span,
                format!("the model {sees}, but {there_are}"),
                if seen.hops == 0 { "there is nothing to draw" } else { "one for each hop is needed" },
            );
            self.report(match seen.hops {
                0 => report.help("remove `fanout`"),
                hops => report.help(format!("write {}: the in-edges of the seeds come first", example(hops))),
            });
            return None;
        }
        numbers.into_iter().collect()
    }

    /// `all`, `10`, `weighted(10)` or `walks(20, top: 10)`.
    fn hop(&mut self, expr: &Expr, consts: &Consts) -> Option<Fanout> {
        match &expr.kind {
            ExprKind::Name(name) if name == ALL => Some(Fanout::All),
            ExprKind::Name(name) if consts.get(name).is_none() && !consts.is_broken(name) => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_NAME,
                    expr.span,
                    format!("a fan-out is a number or `{ALL}`"),
                    format!("there is no constant `{name}`"),
                );
                self.report(did_you_mean(report, name, consts.names().chain([ALL])));
                None
            }
            ExprKind::Call(_) => {
                let choices = [(WEIGHTED, &["fanout"][..]), (WALKS, &["walks", "top"])];
                let (name, arguments) = self.choice(expr, "fan-out", &choices)?;
                let Some(first) = arguments[0] else {
                    let (what, example) = match &name[..] {
                        WEIGHTED => ("in-edges", "weighted(10)"),
                        _ => ("walks", "walks(20, top: 10)"),
                    };
                    self.report(Diagnostic::at(
                        codes::MISSING_ARGUMENT,
                        expr.span,
                        format!("`{name}` needs a number of {what}"),
                        format!("as in `{example}`"),
                    ));
                    return None;
                };
                if name == WEIGHTED {
                    return self.at_least_one(first, consts, "a fan-out").map(|most| match most {
                        Some(most) => Fanout::Weighted(most),
                        None => Fanout::Weighted(u32::MAX),
                    });
                }
                let walks = self.count_within(first, consts, (1.0, MOST_WALKS), "the number of walks");
                let top = arguments[1].map(|top| self.at_least_one(top, consts, "`top`"));
                let (walks, top) = (walks? as u32, top.unwrap_or(Some(None))?);
                // Without a limit all ends are kept, of which there are no more than walks.
                Some(Fanout::Walks { walks, top: top.unwrap_or(walks) })
            }
            _ => {
                let most = self.at_least_one(expr, consts, "a fan-out")?;
                Some(most.map_or(Fanout::All, Fanout::AtMost))
            }
        }
    }

    /// A whole number; `Some(None)` where it has more than 32 bits: no vertex has as many in-edges.
    fn at_least_one(&mut self, expr: &Expr, consts: &Consts, what: &str) -> Option<Option<u32>> {
        let number = consts.number(expr, self.diagnostics)?;
        if number >= 1.0 && number.fract() == 0.0 {
            return Some(u32::try_from(number as u64).ok());
        }
        let mut report = Diagnostic::at(
            codes::ARGUMENT_RANGE,
            expr.span,
            format!("{what} is a whole number and at least 1"),
            format!("this is {number}"),
        );
        if what == "a fan-out" {
            report = report.help(format!("all in-edges are `{ALL}`"));
        }
        self.report(report);
        None
    }

    fn unused_graph(&mut self, graph: &GraphRef, seen: &Seen) {
        let decl = graph.declaration();
        let name = self.written(&decl);
        let used: Vec<&GraphDecl> =
            self.flow.graphs.iter().zip(&seen.graphs).filter(|(_, seen)| **seen).map(|(decl, _)| decl).collect();
        let backwards: Vec<Step> = turned(&decl.steps);
        let alike =
            |known: &&&GraphDecl| !decl.steps.is_empty() && (known.steps == decl.steps || known.steps == backwards);
        let list = |graphs: &[&GraphDecl]| {
            graphs.iter().map(|decl| format!("`{}`", self.written(decl))).collect::<Vec<_>>().join(", ")
        };
        let help = match used.iter().find(alike) {
            Some(alike) => Some(format!("did you mean `{}`?", self.written(alike))),
            None if used.is_empty() => None,
            None => Some(format!("it sees {}", list(&used))),
        };
        let mut report = Diagnostic::at(
            codes::FANOUT_GRAPH,
            graph.span,
            format!("the loss sees no messages along `{name}`"),
            "a fan-out of it would change nothing",
        );
        report.help.extend(help);
        self.report(report);
    }

    /// A semantic graph as one would write it in a list.
    fn written(&self, graph: &GraphDecl) -> String {
        let metapath = |steps: &[Step]| {
            let same = |m: &&crate::schema::MetapathInfo| m.steps == steps && m.counted == graph.counted;
            self.schema.metapaths.iter().find(same).map(|m| m.name.clone())
        };
        let name = match &graph.steps[..] {
            [] => return format!("identity({})", self.vertex_name(graph.dst)),
            [step] if !graph.counted => {
                let relation = &self.schema.relations[step.relation as usize].name;
                if step.reverse { format!("reverse({relation})") } else { relation.clone() }
            }
            steps => match metapath(steps).or_else(|| Some(format!("reverse({})", metapath(&turned(steps))?))) {
                Some(name) => name,
                None => return graph.name.clone(),
            },
        };
        if graph.self_loops { format!("self_loops({name})") } else { name }
    }
}

/// The part of the graph that the loss depends on.
struct Seen {
    /// How far it sees.
    hops: usize,
    /// Along which semantic graphs, by their position.
    graphs: Vec<bool>,
    /// The inputs that it depends on.
    inputs: Vec<Input>,
    /// Is it of links?
    links: bool,
    /// Is there something that batches can reuse?
    reusable: Result<(), NotBatchable>,
}

impl Seen {
    /// As the program of a batch has it, so that both agree.
    fn by(flow: &Dataflow, loss: Value) -> Result<Self, NotBatchable> {
        let kind = OutputKind::Result("loss".to_string());
        let flow = Dataflow { outputs: vec![Output { kind, value: loss }], ..flow.clone() };
        let (_, layout): (_, BatchLayout) = to_minibatch(&flow)?;
        let graphs = (0..flow.graphs.len()).map(|graph| layout.deepest(Graph::new(graph)).is_some()).collect();
        let whole = |input: &BatchInput| match *input {
            BatchInput::Whole(input) => Some(input),
            BatchInput::Reused { .. } => None,
        };
        let inputs = layout.inputs.iter().filter_map(whole).collect();
        let links = flow.graphs.iter().any(|graph| graph.links);
        let reusable = to_minibatch_with_cache(&flow).map(drop);
        Ok(Self { hops: layout.hops, graphs, inputs, links, reusable })
    }
}

/// A kind of fan-out that only some semantic graphs have, and an example.
fn own_only(fanout: Fanout) -> Option<(&'static str, &'static str)> {
    match fanout {
        Fanout::All | Fanout::AtMost(_) => None,
        Fanout::Weighted(_) => Some(("fan-outs by weight", "cites: weighted(10)")),
        Fanout::Walks { .. } => Some(("walks", "PAP: walks(20, top: 10)")),
    }
}

/// The reverse path: the steps in opposite order and direction.
pub(crate) fn turned(steps: &[Step]) -> Vec<Step> {
    steps.iter().rev().map(|step| Step { reverse: !step.reverse, ..*step }).collect()
}
