//! Links to predict: what a train block says about pairs that are none, and links that leak.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_declare::consts::Consts;
use hgnnc_diag::{Diagnostic, codes};
use hgnnc_elaborate::LINKS;
use hgnnc_ir::Graph;
use hgnnc_ir::dataflow::reversed;
use hgnnc_ir::training::{LinkLoss, LinkTarget, NegativeEnds, Negatives, RankingLoss};
use hgnnc_syntax::ast::{self, Expr, GraphExpr, TrainEntry};

use crate::train::TrainChecker;

/// Pairs for each link where nothing is written.
const NEGATIVES: Negatives = Negatives { count: 1, by: NegativeEnds::Uniform, self_loops: false };

/// Most pairs for each link: all of a batch are in memory.
const MOST_NEGATIVES: f64 = 65_536.0;

impl TrainChecker<'_, '_> {
    /// Reads the entries of a train block about links. `loss` has the links that it scores, or is `None` for a loss of
    /// vertices. The result is `None` if an entry was reported.
    pub fn link_options(
        &mut self,
        train: &ast::Train,
        consts: &Consts,
        loss: Option<(Vec<Graph>, LinkLoss)>,
    ) -> Option<Option<LinkTarget>> {
        let (graphs, loss) = loss.unzip();
        let (mut negatives, mut exclude, mut batch, mut shared) = (NEGATIVES, vec![], false, None);
        let mut fine = true;
        for entry in &train.entries {
            match entry {
                TrainEntry::Batch(..) => batch = true,
                TrainEntry::Negatives(span, _) | TrainEntry::Exclude(span, _) if graphs.is_none() => {
                    self.checker.report(
                        Diagnostic::at(codes::LINK_LOSS, *span, "the loss is not of links", "belongs to links")
                            .help(format!("a loss of links is `binary_cross_entropy(OUTPUT, {LINKS})`")),
                    );
                    fine = false;
                }
                TrainEntry::Negatives(span, expr) => {
                    match self.negatives(expr, consts, graphs.as_deref().unwrap_or(&[])) {
                        Some(found) => {
                            negatives = found;
                            shared = (!found.by.shared().is_empty()).then_some(*span);
                        }
                        None => fine = false,
                    }
                }
                TrainEntry::Exclude(_, written) => match self.excluded(written, graphs.as_deref().unwrap_or(&[])) {
                    Some(found) => exclude = found,
                    None => fine = false,
                },
                _ => {}
            }
        }
        let (Some(graphs), Some(loss)) = (graphs, loss) else { return fine.then_some(None) };
        if !batch {
            self.checker.report(
                Diagnostic::at(
                    codes::TRAIN_ENTRY,
                    train.span,
                    "links are learned in batches",
                    "how many links at a time?",
                )
                .note("a link of a batch is no message of that batch: a batch of all links would leave no messages")
                .help("add `batch 4096`: the number of links in a batch"),
            );
            return None;
        }
        if let (Some(span), true) = (shared, loss != LinkLoss::Ranking(RankingLoss::CrossEntropy)) {
            let message = format!("`{}` has no form with samples that all links share", loss.name());
            self.checker.report(
                Diagnostic::at(codes::LINK_LOSS, span, message, "belongs to `cross_entropy`")
                    .help("write `cross_entropy(OUTPUT, links)`, or `negatives uniform(10)`: samples of each link"),
            );
            return None;
        }
        self.leaks(&graphs, &exclude);
        fine.then_some(Some(LinkTarget { graphs, loss, negatives, exclude }))
    }

    /// Reads how negative samples are drawn: `uniform(10, self_loops: true)`, `in_batch(10)`, `shared(1000)` or
    /// `shared_destinations(1000)`. `None` for a mistake, which is reported; `targets` are the graphs of the links.
    fn negatives(&mut self, expr: &Expr, consts: &Consts, targets: &[Graph]) -> Option<Negatives> {
        let ways = NegativeEnds::ALL.map(|by| (by.name(), &["count", "self_loops"][..]));
        let (name, args) = self.choice(expr, "way to draw negatives", &ways)?;
        let self_loops = match args[1] {
            Some(at) => self.boolean(at, "`self_loops`")?,
            None => NEGATIVES.self_loops,
        };
        let by = NegativeEnds::ALL.into_iter().find(|by| by.name() == name).expect("it is one of the ways");
        if let (true, Some(at)) = (self_loops, args[1]) {
            let joins_a_type = |graph: &Graph| {
                let decl = &self.checker.model.tables.graphs[graph.index()];
                decl.src == decl.dst && !decl.is_walked()
            };
            let mistake = if !by.shared().is_empty() {
                let message = format!("samples of `{name}` are no self loops");
                let report = Diagnostic::at(codes::LINK_LOSS, at.span, message, "all links have the same samples");
                Some(report.help("write `negatives uniform(10, self_loops: true)`: samples of each link"))
            } else if !targets.iter().any(joins_a_type) {
                let message = "no relation to predict joins a vertex type with itself";
                let report = Diagnostic::at(codes::LINK_LOSS, at.span, message, "no sample can be a self loop");
                Some(report.help("leave `self_loops` out"))
            } else {
                None
            };
            if let Some(mistake) = mistake {
                self.checker.report(mistake);
                return None;
            }
        }
        // One for each end.
        let (least, what) = match self_loops {
            true => (2.0, "the number of negatives with self loops, one of each end,"),
            false => (1.0, "the number of negatives"),
        };
        let count = match args[0] {
            Some(count) => self.count_within(count, consts, (least, MOST_NEGATIVES), what)? as u32,
            None => least as u32,
        };
        Some(Negatives { count, by, self_loops })
    }

    /// Relations whose edges repeat links, in either direction.
    fn excluded(&mut self, written: &GraphExpr, targets: &[Graph]) -> Option<Vec<u32>> {
        let endpoints = |decl: &hgnnc_ir::dataflow::GraphDecl| (decl.src.index(), decl.dst.index());
        let targets: Vec<_> =
            targets.iter().map(|graph| endpoints(&self.checker.model.tables.graphs[graph.index()])).collect();
        let mut found = BTreeSet::new();
        for graph in self.checker.schema.graphs(written, None, self.checker.diagnostics)? {
            let joins = |&(src, dst): &(usize, usize)| [(src, dst), (dst, src)].contains(&(graph.src, graph.dst));
            match graph.steps[..] {
                [step] if targets.iter().any(joins) => {
                    found.insert(step.relation);
                }
                _ => {
                    self.checker.report(
                        Diagnostic::at(
                            codes::LINK_LOSS,
                            graph.span,
                            format!("`{}` cannot repeat the links to predict", graph.name),
                            "not a relation between the same vertex types",
                        )
                        .help("name relations that hold the links a second time, such as their inverse"),
                    );
                    return None;
                }
            }
        }
        Some(found.into_iter().collect())
    }

    /// Warns of metapaths that walk links: an edge of such a path tells that a link is there, and it stays in a batch.
    fn leaks(&mut self, targets: &[Graph], exclude: &[u32]) {
        let mut known: BTreeSet<u32> = exclude.iter().copied().collect();
        let tables = &self.checker.model.tables;
        known.extend(targets.iter().filter_map(|graph| match tables.graphs[graph.index()].steps[..] {
            [step] => Some(step.relation),
            // None of its links is held out.
            _ => None,
        }));
        if targets.iter().any(|graph| tables.graphs[graph.index()].period.is_some()) {
            // Under a cutoff, an edge with a time is earlier than the period of a link that reads it.
            known.retain(|&relation| self.checker.schema.relations[relation as usize].time().is_none());
        }
        let mut walked = BTreeMap::new();
        let of_pairs = tables.graphs.iter().filter(|decl| !decl.links && decl.steps.len() > 1).map(|decl| &decl.steps);
        for steps in of_pairs.chain(tables.paths.iter().map(|path| &path.steps)) {
            if let Some(step) = steps.iter().find(|step| known.contains(&step.relation)) {
                let of = |steps: &[hgnnc_ir::dataflow::Step]| {
                    self.checker.schema.metapaths.iter().find(|m| m.steps == steps).map(|m| (m.name.clone(), m.span))
                };
                if let Some((name, span)) = of(steps).or_else(|| of(&reversed(steps))) {
                    walked.insert(name, (span, step.relation));
                }
            }
        }
        for (name, (span, relation)) in walked {
            let relation = &self.checker.schema.relations[relation as usize];
            self.checker.report(
                Diagnostic::at(
                    codes::LINK_LEAK,
                    span,
                    format!("metapath `{name}` walks `{}`, whose links are predicted", relation.name),
                    "its edges know links of a batch",
                )
                .label(relation.span, "the relation is declared here")
                .note("single links are left out of a batch; what was joined by them is not"),
            );
        }
    }
}
