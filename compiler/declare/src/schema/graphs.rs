//! Semantic graphs: the expressions that name them in families and uses of layers, and their edges.

use std::collections::HashMap;

use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_ir::VertexType;
use hgnnc_ir::dataflow::{GraphDecl, KeptInEdges, SelfLoops, Step, reversed};
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_syntax::ast::{self, GraphExpr};

use super::{MAX_NAMED, MetapathInfo, Named, Schema};
use crate::consts::Consts;
use crate::names::did_you_mean;

/// The word for the edges of a relation: in the family of a layer, and as the target of an output.
pub const EDGES: &str = FamilyRows::Edges.name();

/// The identity of the edges of a semantic graph, by the fields of [`GraphRef`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "fields are those of `GraphRef`")]
pub struct EdgesKey {
    ends: (usize, usize),
    steps: Vec<Step>,
    counted: bool,
    self_loops: SelfLoops,
    links: bool,
    edges: bool,
    shuffle: Option<u32>,
    at_most: Option<u32>,
}

impl EdgesKey {
    /// That of the graph with all in-edges.
    pub fn without_limit(self) -> Self {
        Self { at_most: None, ..self }
    }
}

/// A semantic graph as a model names it. Messages go from `src` to `dst`.
#[derive(Debug, Clone)]
pub struct GraphRef {
    /// Name: `PAP`, `reverse_written_by`, `PAP_self_loops`.
    pub name: String,
    /// Position of the source type.
    pub src: usize,
    /// Position of the destination type.
    pub dst: usize,
    /// The hops of the path, from `src` to `dst`.
    pub steps: Vec<Step>,
    /// Path instances are counted.
    pub counted: bool,
    /// Missing edges (v, v) are added.
    pub self_loops: SelfLoops,
    /// Its edges are pairs to score.
    pub links: bool,
    /// Its edges are rows of their own, to predict something of.
    pub edges: bool,
    /// Its edges are so many permutations of the vertices of a type.
    pub shuffle: Option<u32>,
    /// The most in-edges or path instances that end at a vertex, with the place where that is written.
    pub at_most: Option<(u32, Span)>,
    /// The expression that names it.
    pub span: Span,
}

/// The names that a composed layer has for semantic graphs.
#[derive(Clone, Copy)]
pub struct LayerGraphs<'l> {
    /// The name of its family, with the members.
    pub family: Option<(&'l str, &'l [GraphRef])>,
    /// The vertex types that type variables stand for.
    pub types: &'l HashMap<String, VertexType>,
    /// The constants of its file.
    pub consts: &'l Consts,
}

impl Schema {
    /// The semantic graphs that an expression names in a model or in a composed layer, in order, with a report where
    /// they are too many.
    pub fn graphs(
        &self,
        expr: &GraphExpr,
        of_layer: Option<LayerGraphs<'_>>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<GraphRef>> {
        let graphs = self.members(expr, of_layer, diagnostics)?;
        (self.named.get() <= MAX_NAMED).then_some(graphs)
    }

    /// Counts semantic graphs before they are written out. Says so when they become too many, once.
    fn count<'g>(
        &self,
        graphs: impl Iterator<Item = &'g [Step]>,
        span: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<()> {
        let before = self.named.get();
        let after = graphs.fold(before, |sum, steps| sum.saturating_add(1 + steps.len()));
        self.named.set(after);
        if before <= MAX_NAMED && after > MAX_NAMED {
            let report = Diagnostic::at(
                codes::TOO_LARGE,
                span,
                "the families of this model name too many semantic graphs",
                format!("here they come to more than {MAX_NAMED} semantic graphs and steps"),
            );
            diagnostics.push(report.help("name each semantic graph in as few families as possible"));
        }
        (after <= MAX_NAMED).then_some(())
    }

    fn members(
        &self,
        expr: &GraphExpr,
        of_layer: Option<LayerGraphs<'_>>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<GraphRef>> {
        match expr {
            GraphExpr::Name(name) => match of_layer {
                Some(layer) => self.graphs_of_layer(name, layer, diagnostics),
                None => self.named_graphs(name, diagnostics),
            },
            GraphExpr::List(items, _) => {
                // Every item is looked at, so that all mistakes are reported.
                let found: Vec<_> = items.iter().map(|item| self.members(item, of_layer, diagnostics)).collect();
                Some(found.into_iter().collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
            }
            GraphExpr::Filter { graphs, into, vertex } => {
                let all = self.members(graphs, of_layer, diagnostics)?;
                let vertex = self.vertex_here(vertex, of_layer, diagnostics)?;
                Some(all.into_iter().filter(|g| if *into { g.dst == vertex } else { g.src == vertex }).collect())
            }
            GraphExpr::AtMost { graphs, limit, span } => {
                let all = self.members(graphs, of_layer, diagnostics);
                let limit_span = limit.span;
                let limit = of_layer.map_or(&self.consts, |layer| layer.consts).dimension(limit, diagnostics)?;
                let Ok(limit @ 1..) = u32::try_from(limit) else {
                    diagnostics.push(Diagnostic::at(
                        codes::ARGUMENT_RANGE,
                        limit_span,
                        "a limit is at least 1 and less than 2^32",
                        "outside of this range",
                    ));
                    return None;
                };
                all?.into_iter().map(|graph| self.limited(graph, (limit, *span), diagnostics)).collect()
            }
            GraphExpr::Call { function, count: Some(count), .. } if function.name != "shuffle" => {
                let report = Diagnostic::at(
                    codes::UNKNOWN_FUNCTION,
                    count.span,
                    format!("`{}` takes one argument", function.name),
                    "a second one",
                );
                diagnostics.push(report.help("only `shuffle(Paper, 16)` takes a number"));
                None
            }
            GraphExpr::Call { function, argument, count, span } => match function.name.as_str() {
                "reverse" => {
                    let graphs = self.members(argument, of_layer, diagnostics)?;
                    graphs.into_iter().map(|g| self.reverse(g, *span, diagnostics)).collect()
                }
                "self_loops" => {
                    let graphs = self.members(argument, of_layer, diagnostics)?;
                    let all = graphs.into_iter();
                    all.map(|g| self.with_self_loops(g, SelfLoops::Added, *span, diagnostics)).collect()
                }
                "without_self_loops" => {
                    let graphs = self.members(argument, of_layer, diagnostics)?;
                    let all = graphs.into_iter();
                    all.map(|g| self.with_self_loops(g, SelfLoops::Removed, *span, diagnostics)).collect()
                }
                "links" => {
                    let graphs = self.members(argument, of_layer, diagnostics)?;
                    graphs.into_iter().map(|g| self.links(g, *span, diagnostics)).collect()
                }
                EDGES => {
                    let graphs = self.members(argument, of_layer, diagnostics)?;
                    graphs.into_iter().map(|g| self.edges(g, *span, diagnostics)).collect()
                }
                "identity" => {
                    let (name, vertex) = self.vertex_argument(function, argument, of_layer, diagnostics)?;
                    Some(vec![GraphRef {
                        self_loops: SelfLoops::Added,
                        ..GraphRef::of_vertex("identity", name, vertex, *span)
                    }])
                }
                "shuffle" => {
                    let (name, vertex) = self.vertex_argument(function, argument, of_layer, diagnostics)?;
                    let permutations = match count {
                        Some(count) => self.permutations(count, diagnostics)?,
                        None => 1,
                    };
                    let graph = GraphRef::of_vertex("shuffle", name, vertex, *span);
                    let number = if permutations == 1 { String::new() } else { format!("_{permutations}") };
                    Some(vec![GraphRef { name: graph.name.clone() + &number, shuffle: Some(permutations), ..graph }])
                }
                _ => {
                    diagnostics.push(did_you_mean(
                        Diagnostic::at(
                            codes::UNKNOWN_FUNCTION,
                            function.span,
                            format!("no function `{}` makes a semantic graph", function.name),
                            "unknown here",
                        ),
                        &function.name,
                        ["reverse", "self_loops", "without_self_loops", "identity", "links", EDGES, "shuffle"],
                    ));
                    None
                }
            },
        }
    }

    /// The vertex type that a graph function takes.
    fn vertex_argument<'g>(
        &self,
        function: &ast::Ident,
        argument: &'g GraphExpr,
        of_layer: Option<LayerGraphs<'_>>,
        diagnostics: &mut Diagnostics,
    ) -> Option<(&'g str, usize)> {
        let GraphExpr::Name(name) = argument else {
            let what = format!("`{}` takes a vertex type", function.name);
            diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, argument.span(), what, "not a vertex type"));
            return None;
        };
        Some((&name.name, self.vertex_here(name, of_layer, diagnostics)?))
    }

    /// The vertex type that a name stands for, in a model or in a composed layer.
    fn vertex_here(
        &self,
        name: &ast::Ident,
        of_layer: Option<LayerGraphs<'_>>,
        diagnostics: &mut Diagnostics,
    ) -> Option<usize> {
        let Some(layer) = of_layer else { return self.vertex(name, diagnostics) };
        let bound = layer.types.get(&name.name);
        if bound.is_none() {
            let message = format!("`{}` does not stand for a vertex type", name.name);
            let report = Diagnostic::at(codes::UNKNOWN_NAME, name.span, message, "unknown type variable");
            let help = "type variables come from `over graphs: [U -> V]` and `of x: V[in]`";
            diagnostics.push(did_you_mean(report, &name.name, layer.types.keys().map(String::as_str)).help(help));
        }
        bound.map(|vertex| vertex.index())
    }

    /// The family of a composed layer, by its name.
    fn graphs_of_layer(
        &self,
        name: &ast::Ident,
        layer: LayerGraphs<'_>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Vec<GraphRef>> {
        let span = name.span;
        match layer.family {
            Some((family, members)) if *family == name.name => {
                self.count(members.iter().map(|graph| &graph.steps[..]), span, diagnostics)?;
                Some(members.iter().map(|graph| GraphRef { span, ..graph.clone() }).collect())
            }
            family => {
                let message = format!("`{}` is not the family of this layer", name.name);
                let report = Diagnostic::at(codes::UNKNOWN_NAME, span, message, "unknown family");
                diagnostics.push(report.help(match family {
                    Some((family, _)) => format!("the family is called `{family}`; a layer knows no others"),
                    None => "declare one: `over graphs: [V -> V]`".to_owned(),
                }));
                None
            }
        }
    }

    /// The number of permutations that the vertices of a type are shuffled by.
    fn permutations(&self, count: &ast::Expr, diagnostics: &mut Diagnostics) -> Option<u32> {
        const MOST: u32 = 1 << 16;
        let permutations = self.consts.dimension(count, diagnostics)?;
        let fitting = u32::try_from(permutations).ok().filter(|number| (1..=MOST).contains(number));
        if fitting.is_none() {
            let what = format!("vertices are shuffled by 1 to {MOST} permutations");
            diagnostics.push(Diagnostic::at(codes::ARGUMENT_RANGE, count.span, what, "outside of this range"));
        }
        fitting
    }

    fn reverse(&self, graph: GraphRef, span: Span, diagnostics: &mut Diagnostics) -> Option<GraphRef> {
        if let Some(what) = graph.of_no_messages() {
            let message = format!("{what} have the direction of their relation");
            diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, span, message, "cannot be reversed"));
            return None;
        }
        if graph.shuffle.is_some() {
            let what = "permutations drawn at random have no reverse";
            let report = Diagnostic::at(codes::NOT_A_GRAPH, span, what, "cannot be reversed");
            diagnostics.push(report.help("others are as random: leave `reverse` out"));
            return None;
        }
        Some(GraphRef { span, ..graph.reversed() })
    }

    /// A semantic graph with at most so many in-edges, or path instances, of each vertex.
    fn limited(&self, graph: GraphRef, limit: (u32, Span), diagnostics: &mut Diagnostics) -> Option<GraphRef> {
        let what = match graph.shuffle {
            Some(_) => Some("shuffled vertices"),
            None => graph.of_no_messages(),
        };
        let Some(what) = what else { return Some(GraphRef { at_most: Some(limit), ..graph }) };
        let message = format!("{what} have no in-edges to choose from");
        diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, limit.1, message, "limits in-edges"));
        None
    }

    /// The pairs that a relation or metapath may join. Those of a metapath are the same whether it is counted or not.
    fn links(&self, graph: GraphRef, span: Span, diagnostics: &mut Diagnostics) -> Option<GraphRef> {
        if graph.steps.len() < 2 || !graph.is_plain() {
            let help =
                "name a relation or metapath as it is declared: `links(likes)`, `links(relations)`, `links(UAU)`";
            self.plain_relation(&graph, "links", "links are those of a relation or metapath", help, span, diagnostics)?;
        }
        Some(GraphRef { name: format!("links_{}", graph.name), links: true, counted: false, span, ..graph })
    }

    /// The edges of a relation as rows.
    fn edges(&self, graph: GraphRef, span: Span, diagnostics: &mut Diagnostics) -> Option<GraphRef> {
        let help = "name a relation as it is declared: `edges(rates)`";
        let they_are = "edges to predict are those of a relation";
        let step = self.plain_relation(&graph, "edges", they_are, help, span, diagnostics)?;
        let name = self.relations[step.relation as usize].edges_name.clone();
        Some(GraphRef { name, edges: true, span, ..graph })
    }

    /// The step of a graph that is a relation as it is declared. Others are reported to have no links or edges to predict.
    fn plain_relation(
        &self,
        graph: &GraphRef,
        what: &str,
        they_are: &str,
        help: &str,
        span: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<Step> {
        match graph.steps[..] {
            [step] if !step.reverse && graph.is_plain() => Some(step),
            _ => {
                let name = match graph.at_most {
                    Some((limit, _)) => format!("{} at most {limit} per vertex", graph.name),
                    None => graph.name.clone(),
                };
                let message = format!("`{name}` has no {what} to predict");
                diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, span, message, they_are).help(help));
                None
            }
        }
    }

    /// A semantic graph with all self loops, or with none.
    fn with_self_loops(
        &self,
        graph: GraphRef,
        loops: SelfLoops,
        span: Span,
        diagnostics: &mut Diagnostics,
    ) -> Option<GraphRef> {
        if let Some(what) = graph.of_no_messages() {
            let message = format!("{what} have no self loops");
            diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, span, message, format!("of {what}")));
            return None;
        }
        if graph.shuffle.is_some() {
            let what = match loops {
                SelfLoops::Removed => "permutations drawn at random have the self loops that are drawn",
                SelfLoops::Kept | SelfLoops::Added => "permutations drawn at random have no self loops to add",
            };
            diagnostics.push(Diagnostic::at(codes::NOT_A_GRAPH, span, what, "of shuffled vertices"));
            return None;
        }
        if graph.src != graph.dst {
            let (src, dst) = (&self.vertices[graph.src], &self.vertices[graph.dst]);
            let mut report = Diagnostic::at(
                codes::BIPARTITE_SELF_LOOP,
                span,
                format!("`{}` cannot have self loops: it joins different vertex types", graph.name),
                format!("goes from `{}` to `{}`", src.name, dst.name),
            )
            .help("give the layer a term for the vertex itself in its `fuse` block instead");
            if let [step] = graph.steps[..] {
                report = report.label(self.relations[step.relation as usize].span, "declared here");
            }
            diagnostics.push(report);
            return None;
        }
        let (base, other) = match (graph.self_loops, loops) {
            (SelfLoops::Removed, SelfLoops::Added) | (SelfLoops::Added, SelfLoops::Removed) => {
                let report = Diagnostic::at(
                    codes::NOT_A_GRAPH,
                    span,
                    format!("`{}` is told to have all self loops, and none", graph.name),
                    "the other way",
                );
                diagnostics.push(report.help("write one of `self_loops(…)` and `without_self_loops(…)`"));
                return None;
            }
            (before, _) if before == loops => return Some(GraphRef { span, ..graph }),
            (_, SelfLoops::Removed) => (graph.name.clone(), "without_self_loops"),
            _ => (graph.name.clone(), "self_loops"),
        };
        Some(GraphRef { name: format!("{base}_{other}"), self_loops: loops, span, ..graph })
    }

    fn named_graphs(&self, name: &ast::Ident, diagnostics: &mut Diagnostics) -> Option<Vec<GraphRef>> {
        let span = name.span;
        let one = [Step { relation: 0, reverse: false }];
        match name.name.as_str() {
            all @ ("relations" | "reverses") => {
                self.count(self.relations.iter().map(|_| &one[..]), span, diagnostics)?;
                let graphs = (0..self.relations.len()).map(|r| self.relation_graph(r, span));
                return Some(if all == "relations" {
                    graphs.collect()
                } else {
                    graphs.map(GraphRef::reversed).collect()
                });
            }
            "metapaths" => {
                self.count(self.metapaths.iter().map(|m| &m.steps[..]), span, diagnostics)?;
                return Some((0..self.metapaths.len()).map(|m| self.metapath_graph(m, span)).collect());
            }
            _ => {}
        }
        match self.index.get(&name.name) {
            Some(Named::Relation(relation)) => {
                self.count([&one[..]].into_iter(), span, diagnostics)?;
                return Some(vec![self.relation_graph(*relation, span)]);
            }
            Some(Named::Metapath(metapath)) => {
                self.count([&self.metapaths[*metapath].steps[..]].into_iter(), span, diagnostics)?;
                return Some(vec![self.metapath_graph(*metapath, span)]);
            }
            Some(Named::Family(family)) => {
                let family = &self.families[*family];
                family.used.set(true);
                self.count(family.members.iter().map(|g| &g.steps[..]), span, diagnostics)?;
                return Some(family.members.iter().map(|g| GraphRef { span, ..g.clone() }).collect());
            }
            Some(Named::Vertex(_)) | None => {}
        }
        if self.broken.contains(&name.name) {
            return None;
        }
        let known = self.relations.iter().map(|r| r.name.as_str());
        let known = known.chain(self.metapaths.iter().map(|m| m.name.as_str()));
        let known = known.chain(self.families.iter().map(|f| f.name.as_str()));
        let known = known.chain(["relations", "reverses", "metapaths"]);
        let mut report = Diagnostic::at(
            codes::UNKNOWN_RELATION,
            span,
            format!("schema `{}` has no relation, metapath or family `{}`", self.name, name.name),
            "not declared",
        );
        if self.vertex_named(&name.name).is_some() {
            report = report.help(format!("`{0}` is a vertex type; its identity graph is `identity({0})`", name.name));
        } else if let Some(relation) = self.reversed(&name.name) {
            report = report.help(format!(
                "edges against their direction are `reverse({relation})`, those of all relations `reverses`"
            ));
        } else {
            report = did_you_mean(report, &name.name, known);
        }
        diagnostics.push(report);
        None
    }

    /// The relation of which a name is that of the reverse, as other tools form it.
    fn reversed(&self, name: &str) -> Option<&str> {
        let prefixes = ["rev_", "reverse_", "inv_", "inverse_", "reversed_"];
        let suffixes = ["_rev", "_inv", "_reverse", "_inverse"];
        let without = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
        let without = without.or_else(|| suffixes.iter().find_map(|suffix| name.strip_suffix(suffix)))?;
        self.relations.iter().map(|relation| relation.name.as_str()).find(|known| *known == without)
    }

    /// A semantic graph as a list of them names it.
    pub fn written(&self, graph: &GraphDecl) -> String {
        let metapath = |steps: &[Step]| {
            let same = |m: &&MetapathInfo| m.steps == steps && (graph.links || m.counted == graph.counted);
            self.metapaths.iter().find(same).map(|m| m.name.clone())
        };
        let name = match &graph.steps[..] {
            [] => {
                let vertex = &self.vertices[graph.dst.index()].name;
                return match graph.shuffle {
                    Some(1) => format!("shuffle({vertex})"),
                    Some(permutations) => format!("shuffle({vertex}, {permutations})"),
                    None => format!("identity({vertex})"),
                };
            }
            // The relations of path instances are none of the schema.
            [step] if step.relation as usize >= self.relations.len() => return graph.name.clone(),
            [step] if !graph.counted => {
                let relation = &self.relations[step.relation as usize].name;
                if step.reverse { format!("reverse({relation})") } else { relation.clone() }
            }
            steps => match metapath(steps).or_else(|| Some(format!("reverse({})", metapath(&reversed(steps))?))) {
                Some(name) => name,
                None => return graph.name.clone(),
            },
        };
        let name = match graph.self_loops {
            SelfLoops::Kept => name,
            SelfLoops::Added => format!("self_loops({name})"),
            SelfLoops::Removed => format!("without_self_loops({name})"),
        };
        match graph.kept {
            Some(kept) => format!("{name} at most {} per vertex", kept.at_most),
            None => name,
        }
    }

    fn relation_graph(&self, relation: usize, span: Span) -> GraphRef {
        let info = &self.relations[relation];
        info.used.set(true);
        GraphRef {
            name: info.name.clone(),
            src: info.src,
            dst: info.dst,
            steps: vec![Step { relation: relation as u32, reverse: false }],
            counted: false,
            self_loops: SelfLoops::Kept,
            links: false,
            edges: false,
            shuffle: None,
            at_most: None,
            span,
        }
    }

    fn metapath_graph(&self, metapath: usize, span: Span) -> GraphRef {
        let info = &self.metapaths[metapath];
        info.used.set(true);
        let MetapathInfo { name, counted, src, dst, steps, .. } = info;
        GraphRef {
            name: name.clone(),
            src: *src,
            dst: *dst,
            steps: steps.clone(),
            counted: *counted,
            self_loops: SelfLoops::Kept,
            links: false,
            edges: false,
            shuffle: None,
            at_most: None,
            span,
        }
    }
}

/// The report of a semantic graph whose edges a family has already.
pub fn duplicate_graph(first: &GraphRef, graph: &GraphRef) -> Diagnostic {
    let message = if first.name == graph.name {
        format!("semantic graph `{}` is in the family twice", graph.name)
    } else {
        format!("`{}` has the same edges as `{}`, which is in the family too", graph.name, first.name)
    };
    let report = if first.span == graph.span {
        Diagnostic::at(codes::DUPLICATE_GRAPH, graph.span, message, "holds it twice")
    } else {
        Diagnostic::at(codes::DUPLICATE_GRAPH, graph.span, message, "again here").label(first.span, "first here")
    };
    report.help("its edges would count twice; leave one of the two out")
}

impl GraphRef {
    /// Graphs with the same edges have the same key.
    pub fn edges_key(&self) -> EdgesKey {
        EdgesKey {
            ends: (self.src, self.dst),
            steps: self.steps.clone(),
            counted: self.counted,
            self_loops: self.self_loops,
            links: self.links,
            edges: self.edges,
            shuffle: self.shuffle,
            at_most: self.at_most.map(|(limit, _)| limit),
        }
    }

    /// Whether it has the edges of its relation or metapath, all of them and no others, as messages.
    fn is_plain(&self) -> bool {
        self.self_loops == SelfLoops::Kept && self.at_most.is_none() && self.of_no_messages().is_none()
    }

    /// The name of its edges in messages, if they carry none to vertices.
    fn of_no_messages(&self) -> Option<&'static str> {
        match (self.links, self.edges) {
            (true, _) => Some("pairs to score"),
            (_, true) => Some("edges to predict"),
            (false, false) => None,
        }
    }

    /// As a row of a program's table.
    pub fn declaration(&self) -> GraphDecl {
        GraphDecl {
            counted: self.counted,
            self_loops: self.self_loops,
            links: self.links,
            shuffle: self.shuffle,
            kept: self.kept(),
            ..GraphDecl::new(
                self.name.clone(),
                VertexType::new(self.src),
                VertexType::new(self.dst),
                self.steps.clone(),
            )
        }
    }

    /// Is this the row of a program's table for it, whatever its name?
    pub fn makes(&self, decl: &GraphDecl) -> bool {
        (self.src, self.dst, &self.steps) == (decl.src.index(), decl.dst.index(), &decl.steps)
            && (self.counted, self.self_loops, self.links, self.edges)
                == (decl.counted, decl.self_loops, decl.links, false)
            && (self.shuffle, self.kept()) == (decl.shuffle, decl.kept)
    }

    /// The in-edges that it keeps of each destination.
    fn kept(&self) -> Option<KeptInEdges> {
        self.at_most.map(|(at_most, _)| KeptInEdges { at_most, position: None })
    }

    /// A graph from a vertex type to itself that walks no relation.
    fn of_vertex(function: &str, name: &str, vertex: usize, span: Span) -> GraphRef {
        GraphRef {
            name: format!("{function}_{name}"),
            src: vertex,
            dst: vertex,
            steps: vec![],
            counted: false,
            self_loops: SelfLoops::Kept,
            links: false,
            edges: false,
            shuffle: None,
            at_most: None,
            span,
        }
    }

    /// The same edges with messages the other way.
    fn reversed(self) -> GraphRef {
        let steps = reversed(&self.steps);
        let name = match self.name.strip_prefix("reverse_") {
            Some(forward) if self.steps.len() == 1 && self.steps[0].reverse => forward.to_string(),
            _ => format!("reverse_{}", self.name),
        };
        GraphRef { name, src: self.dst, dst: self.src, steps, ..self }
    }
}
