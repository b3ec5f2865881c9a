//! `batch`, `fanout` and `reuse` of a train block, as they are written.
//!
//! Whether they fit the model depends on the receptive field of its loss, which is known of the program: the driver
//! compares them.

use hgnnc_declare::consts::Consts;
use hgnnc_declare::names::did_you_mean;
use hgnnc_declare::schema::GraphRef;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::Graph;
use hgnnc_ir::training::{Fanout, Reuse};
use hgnnc_syntax::ast::{self, Expr, ExprKind, TrainEntry};

use crate::train::TrainChecker;

/// The fan-out that draws every in-edge.
const ALL: &str = "all";
/// Names of the fan-outs that take arguments.
const WEIGHTED: &str = "weighted";
const LATEST: &str = "latest";
const WALKS: &str = "walks";
/// Vertices whose values are reused.
const HOT: &str = "hot";
/// Batches that reuse a value: sampled ahead, all of them, and kept.
const MOST_REUSED: f64 = 1024.0;
/// Their ends are counted one by one, for each vertex of a batch.
const MOST_WALKS: f64 = 65_536.0;

/// The entries of a train block about mini-batches. What is wrong by itself is reported, and `None` here.
#[derive(Clone, Debug)]
pub struct BatchSpec {
    /// The entry `batch`, and the number of vertices or links in a batch.
    pub size: Option<(Span, Option<usize>)>,
    /// The entry `fanout`; without it, all in-edges are sampled.
    pub fanout: Option<FanoutSpec>,
    /// The entry `reuse`, and the share of vertices with the number of batches.
    pub reuse: Option<(Span, Option<Reuse>)>,
}

/// The fan-outs of a train block, as written.
#[derive(Clone, Debug)]
pub struct FanoutSpec {
    /// Fan-outs by hop, of all semantic graphs that have none of their own.
    pub hops: HopList,
    /// Semantic graphs with fan-outs of their own.
    pub graphs: Vec<GraphFanout>,
}

/// The fan-outs of some semantic graphs.
#[derive(Clone, Debug)]
pub struct GraphFanout {
    /// The semantic graphs, each with its handle where a layer runs over it; `None` if they are wrong.
    pub graphs: Option<Vec<(GraphRef, Option<Graph>)>>,
    /// The expression that names them.
    pub span: Span,
    /// The fan-outs by hop.
    pub hops: HopList,
}

/// A list of fan-outs.
#[derive(Clone, Debug)]
pub enum HopList {
    /// `[15, all]`: the fan-outs in order, `None` for a wrong one.
    Each(Vec<Option<Hop>>, Span),
    /// `walks(20)`: the fan-out of every hop.
    Every(Option<Hop>),
    /// Something else than a list.
    NotAList(Span),
    /// Text that did not parse.
    Error,
}

/// A fan-out, and where it is written.
pub type Hop = (Fanout, Span);

impl TrainChecker<'_, '_> {
    /// Reads the entries of a train block about mini-batches; `None` if it has none.
    pub fn mini_batch(&mut self, train: &ast::Train, consts: &Consts) -> Option<BatchSpec> {
        let mut spec = BatchSpec { size: None, fanout: None, reuse: None };
        let mut fanout_span = None;
        for entry in &train.entries {
            match entry {
                TrainEntry::Batch(span, expr) => {
                    let size = self.count_of(expr, consts, 1.0, "the size of a batch");
                    // A batch that no machine could hold is the whole training part.
                    spec.size = Some((*span, size.map(|size| usize::try_from(size).unwrap_or(usize::MAX))));
                }
                TrainEntry::Fanout(span, fanout) => {
                    fanout_span = Some(*span);
                    spec.fanout = Some(self.fanouts(fanout, consts));
                }
                TrainEntry::Reuse(span, expr) => {
                    spec.reuse = Some((*span, self.reuse(expr, consts)));
                }
                _ => {}
            }
        }
        let others = [("fanout", fanout_span), ("reuse", spec.reuse.map(|(span, _)| span))];
        let mut others = others.into_iter().filter_map(|(name, span)| Some((name, span?))).peekable();
        let any = spec.size.is_some() || others.peek().is_some();
        if spec.size.is_none() {
            for (name, span) in others {
                let what = format!("`{name}` needs `batch`");
                self.checker.report(
                    Diagnostic::at(codes::TRAIN_ENTRY, span, what, "of how many vertices at a time?")
                        .help("add `batch 1024`: the number of vertices in a batch"),
                );
            }
        }
        any.then_some(spec)
    }

    /// Reads the vertices whose values are reused, such as `hot(0.1, batches: 8)`.
    fn reuse(&mut self, expr: &Expr, consts: &Consts) -> Option<Reuse> {
        let (name, arguments) = self.choice(expr, "way to choose what is reused", &[(HOT, &["share", "batches"])])?;
        let missing = |what: &str| {
            Diagnostic::at(codes::MISSING_ARGUMENT, expr.span, format!("`{name}` needs {what}"), "which is missing")
                .help("as in `hot(0.1, batches: 8)`: values of the hottest tenth of the vertices, for 8 batches")
        };
        let share = match arguments[0] {
            Some(share) => self.ranged(share, consts, 0.0, 1.0, "the share of hot vertices"),
            None => {
                self.checker.report(missing("a share of the vertices"));
                None
            }
        };
        let batches = match arguments[1] {
            Some(batches) => self.count_within(batches, consts, (1.0, MOST_REUSED), "the number of batches"),
            None => {
                self.checker.report(missing("a number of batches"));
                None
            }
        };
        Some(Reuse { share: share?, batches: batches? })
    }

    fn fanouts(&mut self, written: &ast::Fanout, consts: &Consts) -> FanoutSpec {
        let hops = self.hop_list(&written.hops, consts);
        let mut graphs = vec![];
        for entry in &written.graphs {
            let hops = match &entry.hops.kind {
                ExprKind::Call(_) => {
                    HopList::Every(self.hop(&entry.hops, consts).map(|fanout| (fanout, entry.hops.span)))
                }
                _ => self.hop_list(&entry.hops, consts),
            };
            let named = self.checker.schema.graphs(&entry.graphs, None, self.checker.diagnostics);
            let declared = |graph: GraphRef| {
                let handle = self.checker.declared_graph(&graph);
                (graph, handle)
            };
            let named = named.map(|graphs| graphs.into_iter().map(declared).collect());
            graphs.push(GraphFanout { graphs: named, span: entry.graphs.span(), hops });
        }
        FanoutSpec { hops, graphs }
    }

    /// `[15, all]`. Every item is read, so that all mistakes are reported.
    fn hop_list(&mut self, expr: &Expr, consts: &Consts) -> HopList {
        match &expr.kind {
            ExprKind::List(items) => {
                let hops = items.iter().map(|item| self.hop(item, consts).map(|fanout| (fanout, item.span)));
                HopList::Each(hops.collect(), expr.span)
            }
            ExprKind::Error => HopList::Error,
            _ => HopList::NotAList(expr.span),
        }
    }

    /// `all`, `10`, `weighted(10)`, `latest(10)` or `walks(20, top: 10)`.
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
                self.checker.report(did_you_mean(report, name, consts.names().chain([ALL])));
                None
            }
            ExprKind::Call(_) => {
                let choices = [(WEIGHTED, &["fanout"][..]), (LATEST, &["fanout"]), (WALKS, &["walks", "top"])];
                let (name, arguments) = self.choice(expr, "fan-out", &choices)?;
                let Some(first) = arguments[0] else {
                    let (what, example) = match &name[..] {
                        WEIGHTED => ("in-edges", "weighted(10)"),
                        LATEST => ("in-edges", "latest(10)"),
                        _ => ("walks", "walks(20, top: 10)"),
                    };
                    self.checker.report(Diagnostic::at(
                        codes::MISSING_ARGUMENT,
                        expr.span,
                        format!("`{name}` needs a number of {what}"),
                        format!("as in `{example}`"),
                    ));
                    return None;
                };
                if name != WALKS {
                    let of = if name == WEIGHTED { Fanout::Weighted } else { Fanout::Latest };
                    return self.at_least_one(first, consts, "a fan-out").map(|most| of(most.unwrap_or(u32::MAX)));
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
        let number = consts.number(expr, self.checker.diagnostics)?;
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
        self.checker.report(report);
        None
    }
}
