//! Path instances: `aggregate p: path in graphs`.
//!
//! The block runs over the walks along the metapaths of a family instead of their pairs. An instance stands where an edge
//! stands in other blocks, so reductions over in-edges, fields and results are the same; its vertices are read by their
//! position, and `over path` reduces what they have. Such a reduction evaluates its argument once for each position, with
//! the semantic graphs whose paths are that long.

use std::sync::Arc;

use hgnnc_declare::names::did_you_mean;
use hgnnc_declare::schema::GraphRef;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::{Entry, ExprId, ExprKind as Kind, Form, ParamId, PathPart, Reduction, Row, Type};
use hgnnc_ir::dataflow::{GraphDecl, SelfLoops, Step};
use hgnnc_ir::{Graph, PathDecl, PathRows, Space, VertexType};
use hgnnc_syntax::ast::{self, Block, BlockKind, Expr, ExprKind, GraphExpr, Ident, LayerPart};

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::eval::{Known, known_number};
use crate::fields::{edge_data_of, gathered, row_of_data};
use crate::fold::{BEFORE, FOLD};
use crate::layer::LayerCx;
use crate::value::{Term, Typed};

/// The word for path instances: in the head of a block, and as the scope of a reduction.
pub const PATH: &str = "path";

/// The vertices of a path, one after the other.
const VERTICES: &str = "vertices";

/// The edge from the vertex before.
const HOP: &str = "hop";

/// Do the `aggregate` blocks of a layer run over path instances?
pub fn of_paths(layer: &ast::Layer) -> bool {
    aggregates(layer).any(|(graph, _)| graph.name == PATH)
}

/// The report of `aggregate` blocks over edges in a layer over path instances.
pub fn mixed_blocks(layer: &ast::Layer) -> Option<Diagnostic> {
    let (_, of_paths) = aggregates(layer).find(|(graph, _)| graph.name == PATH)?;
    let (_, of_edges) = aggregates(layer).find(|(graph, _)| graph.name != PATH)?;
    let message = "a layer runs over edges or over path instances, not over both";
    let report =
        Diagnostic::at(codes::MODEL_ONLY, of_edges, message, "over edges").label(of_paths, "over path instances");
    Some(report.help("write two layers, and combine their values in the model"))
}

/// The heads of the `aggregate` blocks: the name of what they run over, and the whole head.
fn aggregates(layer: &ast::Layer) -> impl Iterator<Item = (&Ident, Span)> {
    layer.parts().filter_map(|stmt| match stmt {
        LayerPart::Block(Block { kind: BlockKind::Aggregate { graph, .. }, span, .. }) => Some((graph, *span)),
        LayerPart::Block(_) | LayerPart::Statement(_) => None,
    })
}

/// The variable, the part and perhaps the index of `p.src`, `p.Author`, `p.at(1)`.
pub fn part_of_path(expr: &Expr) -> Option<(&Expr, &Ident, Option<&Expr>)> {
    match &expr.kind {
        ExprKind::Field(inner, part) => Some((inner, part, None)),
        ExprKind::PathPart { base, part, index } => Some((base, part, Some(index))),
        _ => None,
    }
}

/// Does an expression of a block have a value for each hop of the paths, or for each step of a `fold`?
pub fn of_step(expr: &Expr, scope: &Scope<'_>) -> bool {
    let is_path = |expr: &Expr| {
        let variable = scope.variable.filter(|_| scope.layer.is_some_and(|layer| layer.of_paths));
        matches!((&expr.kind, variable), (ExprKind::Name(name), Some(variable)) if *name == variable.name)
    };
    let any = |all: &[Expr]| all.iter().any(|expr| of_step(expr, scope));
    match &expr.kind {
        ExprKind::Number(_) | ExprKind::Bool(_) | ExprKind::Error => false,
        ExprKind::Name(name) => match scope.locals.get(name) {
            Some(term) => matches!(term, Term::PerHop(..) | Term::OfStep(_)),
            None => name == BEFORE && scope.place == Place::Aggregate,
        },
        ExprKind::Field(base, field) => field.name == HOP && is_path(base) || of_step(base, scope),
        ExprKind::PathPart { base, index, .. } => of_step(base, scope) || of_step(index, scope),
        ExprKind::Slice(base, _) => of_step(base, scope),
        ExprKind::Unary(_, a) => of_step(a, scope),
        ExprKind::Binary(_, a, b) => of_step(a, scope) || of_step(b, scope),
        // A reduction along a path knows its hops, and a `fold` its steps.
        ExprKind::Call(call) if matches!(&call.over, Some(GraphExpr::Name(over)) if over.name == PATH) => false,
        ExprKind::Call(call) if call.callee.name == FOLD => false,
        ExprKind::Call(call) => call.args.iter().any(|arg| of_step(&arg.value, scope)),
        ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Bundle(items) => any(items),
        ExprKind::If(condition, yes, no) => of_step(condition, scope) || of_step(yes, scope) || of_step(no, scope),
    }
}

/// A part of a path.
enum Part {
    /// For each semantic graph in scope, the position of a vertex.
    Vertex(Vec<usize>),
    /// The number of an edge.
    Edge(usize),
}

impl Checker<'_> {
    /// The semantic graph that a layer runs over: of edges, or of path instances.
    pub(crate) fn declare_member(&mut self, graph: &GraphRef, of_paths: bool) -> Option<Graph> {
        if !of_paths {
            return if graph.edges { self.declare_edges(graph) } else { Some(self.declare_graph(graph)) };
        }
        let why = if graph.links {
            "pairs to score are no paths"
        } else if graph.edges {
            "edges to predict are no paths"
        } else if graph.self_loops == SelfLoops::Added {
            "self loops that are added walk along no relation"
        } else if graph.shuffle.is_some() {
            "shuffled vertices are joined by no relation"
        } else if graph.self_loops == SelfLoops::Removed {
            "self loops are left out of its edges, not of walks"
        } else {
            return Some(self.declare_instances(graph));
        };
        self.report(
            Diagnostic::at(
                codes::NO_INSTANCES,
                graph.span,
                format!("`{}` has no path instances: {why}", graph.name),
                "this layer runs over path instances",
            )
            .help("name metapaths or relations as they are declared, or `reverse(…)` of them"),
        );
        None
    }

    /// The graph whose in-edges are the path instances that end at a vertex.
    fn declare_instances(&mut self, graph: &GraphRef) -> Graph {
        let at_most = graph.at_most.map(|(limit, _)| limit);
        let key = graph.edges_key();
        if let Some(known) = self.instances.get(&key) {
            return *known;
        }
        let name = self.graph_names.take(&graph.name);
        let tables = &mut self.model.tables;
        let path = PathDecl::declare(
            (&mut tables.vertex_types, &mut tables.relations),
            &name,
            &graph.steps,
            PathRows::Walks { at_most },
        );
        let last = *path.relations.last().expect("a path has vertices");
        let steps = vec![Step { relation: last, reverse: false }];
        tables.graphs.push(GraphDecl::new(name, path.vertex, VertexType::new(graph.dst), steps));
        tables.paths.push(path);
        let declared = Graph::new(tables.graphs.len() - 1);
        self.instances.insert(key, declared);
        declared
    }

    /// The path instances that are the in-edges of a semantic graph.
    fn path_of(&self, graph: Graph) -> &PathDecl {
        let src = self.model.tables.graphs[graph.index()].src;
        let mut paths = self.model.tables.paths.iter();
        paths.find(|path| path.vertex == src).expect("a layer over path instances has graphs of them")
    }

    /// A position of the instances of a semantic graph.
    fn path_part(&mut self, graph: Graph, position: usize) -> PathPart {
        let path = self.path_of(graph);
        if position == path.steps.len() {
            return PathPart { graph, through: None };
        }
        let key = (graph, position);
        if let Some(&through) = self.positions.get(&key) {
            return PathPart { graph, through: Some(through) };
        }
        let (relation, vertex) = (path.relations[position], path.vertex);
        let tables = &mut self.model.tables;
        let name = self.graph_names.take(&format!("{}.{position}", tables.graphs[graph.index()].name));
        let src = tables.relations[relation as usize].src;
        tables.graphs.push(GraphDecl::new(name, src, vertex, vec![Step { relation, reverse: false }]));
        let through = Graph::new(tables.graphs.len() - 1);
        self.positions.insert(key, through);
        PathPart { graph, through: Some(through) }
    }

    /// The vertex type at a position of the instances of a semantic graph.
    fn at(&self, graph: Graph, position: usize) -> VertexType {
        let path = self.path_of(graph);
        let decl = &self.model.tables.relations[path.relations[position] as usize];
        if position == path.steps.len() { decl.dst } else { decl.src }
    }

    /// `p.at(1)` where a field of it is meant.
    pub(crate) fn part_alone(&mut self, part: &Ident, span: Span, scope: &Scope<'_>) -> Term {
        let of_paths = scope.place == Place::Aggregate && scope.layer.is_some_and(|layer| layer.of_paths);
        let report = match of_paths {
            true => {
                let message = format!("`{}` of a path is no value", part.name);
                Diagnostic::at(codes::NOT_A_VALUE, span, message, "which of its fields?")
                    .help("name one, as in `p.at(1).h` or `p.edge(0).weight`")
            }
            false => Diagnostic::at(
                codes::UNKNOWN_FUNCTION,
                part.span,
                format!("nothing has parts `{}`", part.name),
                "not known here",
            )
            .help("`p.at(i)` and `p.edge(i)` are parts of path instances: `aggregate p: path in graphs { … }`"),
        };
        self.report(report);
        Term::Error
    }

    /// `p.src.h`, `p.Author.h`, `p.at(1).h`, `p.edge(0).weight`, and `p.vertices.h` in what goes over a path.
    pub(crate) fn field_of_part(
        &mut self,
        part: &Ident,
        index: Option<&Expr>,
        field: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Term {
        let layer = scope.layer.expect("blocks are in layers");
        if part.name == HOP && index.is_none() {
            return self.field_of_step(field, span, scope);
        }
        let part = match self.part(part, index, layer, scope) {
            Ok(Some(part)) => part,
            Ok(None) => return Term::Error,
            Err(mistake) => {
                self.report(*mistake);
                return Term::Error;
            }
        };
        let result = match part {
            Part::Vertex(positions) => self.field_at(&positions, field, span, scope),
            Part::Edge(number) => self.field_of_edge(number, field, span, scope),
        };
        self.settle(result)
    }

    /// The part that a name and an index mean; `None` where nothing is known without a use, or it was reported.
    fn part(
        &mut self,
        part: &Ident,
        index: Option<&Expr>,
        layer: &LayerCx<'_>,
        scope: &Scope<'_>,
    ) -> Result<Option<Part>, Mistake> {
        let graphs: Vec<Graph> = scope.graphs.iter().map(|&member| layer.graphs[member]).collect();
        let lengths: Vec<usize> = graphs.iter().map(|&graph| self.path_of(graph).steps.len()).collect();
        if let Some(index) = index {
            let is_edge = part.name == "edge";
            let term = self.eval(index, scope);
            let number = match known_number(&term) {
                Known::Number(number) if number >= 0.0 && number.fract() == 0.0 => number as usize,
                Known::Unknown => return Ok(None),
                Known::Number(_) | Known::No if matches!(term, Term::Error) => return Ok(None),
                Known::Number(_) | Known::No => {
                    let message = "vertices and edges of a path are numbered from 0";
                    return Err(Box::new(Diagnostic::at(
                        codes::NOT_CONSTANT,
                        index.span,
                        message,
                        "not such a number",
                    )));
                }
            };
            if self.without_use {
                return Ok(if number == 0 && !is_edge { Some(Part::Vertex(vec![0; graphs.len()])) } else { None });
            }
            let (what, one_less) = if is_edge { ("edges", 0) } else { ("vertices", 1) };
            if let Some((graph, length)) = graphs.iter().zip(&lengths).find(|(_, length)| number >= **length + one_less)
            {
                let name = &self.model.tables.graphs[graph.index()].name;
                let there_are = length + one_less;
                return Err(Box::new(
                    Diagnostic::at(
                        codes::NO_SUCH_POSITION,
                        index.span,
                        format!("paths of `{name}` have {there_are} {what}, numbered 0 to {}", there_are - 1),
                        format!("there is no number {number}"),
                    )
                    .help("a layer over paths of different lengths reads `p.vertices` in a reduction `over path`"),
                ));
            }
            return Ok(Some(if is_edge { Part::Edge(number) } else { Part::Vertex(vec![number; graphs.len()]) }));
        }
        match part.name.as_str() {
            "src" => return Ok(Some(Part::Vertex(vec![0; graphs.len()]))),
            "dst" => return Ok(Some(Part::Vertex(lengths))),
            VERTICES => {
                return match scope.along {
                    Some(position) => Ok(Some(Part::Vertex(vec![position; graphs.len()]))),
                    None => Err(Box::new(
                        Diagnostic::at(
                            codes::MISSING_REDUCTION,
                            part.span,
                            "`vertices` are all vertices of a path",
                            "a value for each of them",
                        )
                        .help("reduce them: `mean(p.vertices.h) over path`, or read one by its number: `p.at(1).h`"),
                    )),
                };
            }
            _ => {}
        }
        if self.without_use {
            return Ok(None);
        }
        let Some(vertex) = self.schema.vertex_named(&part.name) else {
            return Err(Box::new(self.unknown_part(part)));
        };
        let mut positions = vec![];
        for (graph, length) in graphs.iter().zip(&lengths) {
            let is_it = |position: &usize| self.at(*graph, *position) == VertexType::new(vertex);
            let found: Vec<usize> = (1..*length).filter(is_it).collect();
            let [position] = found[..] else {
                let name = &self.model.tables.graphs[graph.index()].name;
                let message = match found.len() {
                    0 => format!("paths of `{name}` have no `{}` between their ends", part.name),
                    several => {
                        format!("paths of `{name}` have {several} vertices of `{}` between their ends", part.name)
                    }
                };
                return Err(Box::new(
                    Diagnostic::at(codes::NO_SUCH_POSITION, part.span, message, "names one vertex between the ends")
                        .help("read it by its number: `p.at(1).h`; `p.at(0)` is where the path starts"),
                ));
            };
            positions.push(position);
        }
        self.schema.vertices[vertex].used.set(true);
        Ok(Some(Part::Vertex(positions)))
    }

    fn unknown_part(&self, part: &Ident) -> Diagnostic {
        let message = format!("a path has no part `{}`", part.name);
        let report = Diagnostic::at(codes::UNKNOWN_FIELD, part.span, message, "not known here").help(
            "it has `src`, `dst`, `at(i)` and `edge(i)`, its vertex types in between, and `vertices` in a reduction `over path`",
        );
        let types = self.schema.vertices.iter().map(|vertex| vertex.name.as_str());
        did_you_mean(report, &part.name, ["src", "dst", "at", "edge", VERTICES].into_iter().chain(types))
    }

    /// A field of the vertices at a position of each semantic graph in scope.
    fn field_at(&mut self, positions: &[usize], field: &Ident, span: Span, scope: &Scope<'_>) -> Result<Term, Mistake> {
        let layer = scope.layer.expect("blocks are in layers");
        let known = layer.vertex_fields.get(&field.name);
        let (mut rows, mut at) = (vec![], vec![]);
        for (&member, &position) in scope.graphs.iter().zip(positions) {
            let graph = layer.graphs[member];
            let vertex = self.at(graph, position);
            if layer.failed.contains(&field.name) && known.is_none_or(|known| !known.contains_key(&vertex)) {
                return Ok(Term::Error);
            }
            let part = self.path_part(graph, position);
            let row = match (known, layer.graph_fields.get(&field.name)) {
                (Some(known), _) => match known.get(&vertex) {
                    Some(value) => value.row.clone(),
                    None => return Err(Box::new(self.missing_for(layer, field, vertex))),
                },
                (None, Some(known)) => {
                    let Type::PerGraph(values) = &*known.ty else { unreachable!("a value for each semantic graph") };
                    let row = values[member].clone();
                    if part.through.is_some() || row.space != Space::Vertices(vertex) {
                        return Err(Box::new(
                            Diagnostic::at(
                                codes::DIFFERENT_SPACES,
                                field.span,
                                format!("`{}` is a value of the path, or of the vertex where it ends", field.name),
                                "not a value at this vertex of it",
                            )
                            .help(format!(
                                "write `p.{0}` for a value of the path, `p.dst.{0}` for an aggregated one",
                                field.name
                            )),
                        ));
                    }
                    row
                }
                (None, None) if layer.absent.contains(&field.name) => return Ok(Term::Absent),
                (None, None) if field.name == "in_degree" && part.through.is_none() => {
                    return self.end_field(hgnnc_ir::Direction::In, field, span, scope);
                }
                (None, None) if matches!(field.name.as_str(), "in_degree" | "out_degree") => {
                    return Err(Box::new(
                        Diagnostic::at(
                            codes::WRONG_SCOPE,
                            field.span,
                            "vertices of a path have no degrees, but the last one",
                            "no such degree",
                        )
                        .help("`p.dst.in_degree` is the number of path instances that end there"),
                    ));
                }
                (None, None) => return Err(Box::new(self.unknown_field(layer, field, "the vertex"))),
            };
            if matches!(row.form, Form::Sparse(_) | Form::OneHot) {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::SPARSE_VALUE,
                        field.span,
                        format!("`{}` is read along paths before it is projected", field.name),
                        "sparse or one-hot features",
                    )
                    .help("project it first, in a `project` block: `h = v.x @ w`, and read `h`"),
                ));
            }
            rows.push(gathered(row, graph));
            at.push(part);
        }
        let x = match (known, layer.graph_fields.get(&field.name)) {
            (Some(known), _) => {
                let parts: Vec<(VertexType, ExprId)> =
                    known.iter().map(|(vertex, value)| (*vertex, value.id)).collect();
                self.types(parts, span).id
            }
            (None, Some(known)) => self.members(&known.clone(), &scope.graphs, span).id,
            (None, None) => return Ok(Term::Error),
        };
        Ok(Term::Value(self.expr(Kind::AtPosition(x, at.into()), Type::PerGraph(rows), span)))
    }

    /// Weight or features of an edge of each path.
    fn field_of_edge(&mut self, number: usize, field: &Ident, span: Span, scope: &Scope<'_>) -> Result<Term, Mistake> {
        let layer = scope.layer.expect("blocks are in layers");
        let (mut data, mut rows) = (vec![], vec![]);
        for &member in &scope.graphs {
            let graph = layer.graphs[member];
            let relation = &self.schema.relations[self.path_of(graph).steps[number].relation as usize];
            let Some(declared) = relation.fields.iter().find(|known| known.name == field.name) else {
                let name = &self.model.tables.graphs[graph.index()].name;
                let report = Diagnostic::at(
                    codes::NO_EDGE_DATA,
                    field.span,
                    format!("edge {number} of the paths of `{name}` has no `{}`", field.name),
                    "no such edge value",
                )
                .label(relation.span, "its relation is declared here")
                .help(format!("declare it: `{{ {}: f32 }}` after the relation", field.name));
                let known = relation.fields.iter().map(|known| known.name.as_str());
                return Err(Box::new(did_you_mean(report, &field.name, known)));
            };
            let (kind, widths) = edge_data_of(relation, declared, field.span)?;
            data.push((self.path_part(graph, number), kind));
            rows.push(row_of_data(kind, graph, widths));
        }
        Ok(Term::Value(self.expr(Kind::HopData(field.name.clone(), data), Type::PerGraph(rows), span)))
    }

    /// The number of the hop from the vertex before.
    pub(crate) fn hop_before(&self, span: Span, scope: &Scope<'_>) -> Result<usize, Mistake> {
        scope.along.and_then(|position| position.checked_sub(1)).ok_or_else(|| {
            Box::new(
                Diagnostic::at(codes::WRONG_SCOPE, span, "no hop leads here", "has a value for each hop of a path")
                    .help("it belongs into the second value of a `fold`, which has a vertex before"),
            )
        })
    }

    /// The entries of a parameter of each hop: those of the relations that lead from the vertex before.
    pub(crate) fn param_of_hop(
        &mut self,
        (param, row): (ParamId, &Row),
        span: Span,
        scope: &Scope<'_>,
    ) -> Result<Term, Mistake> {
        let hop = self.hop_before(span, scope)?;
        let layer = scope.layer.expect("blocks are in layers");
        let relation = |&member: &usize| self.path_of(layer.graphs[member]).steps[hop].relation;
        let entries: Vec<Entry> = scope.graphs.iter().map(|member| Entry::Relation(relation(member))).collect();
        let rows = vec![row.clone(); entries.len()];
        Ok(Term::Value(self.expr(Kind::Param(param, entries), Type::PerGraph(rows), span)))
    }

    /// `p.hop.direction`: 1 where the edge from the vertex before is walked forwards, and -1 where backwards.
    fn field_of_step(&mut self, field: &Ident, span: Span, scope: &Scope<'_>) -> Term {
        let layer = scope.layer.expect("blocks are in layers");
        let hop = match self.hop_before(span, scope) {
            Ok(hop) => hop,
            Err(mistake) => {
                self.report(*mistake);
                return Term::Error;
            }
        };
        if field.name != "direction" {
            let message = format!("a hop has no `{}`", field.name);
            let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, message, "not known here");
            self.report(did_you_mean(report, &field.name, ["direction"]));
            return Term::Error;
        }
        let backwards = |&member: &usize| self.path_of(layer.graphs[member]).steps[hop].reverse;
        let reversed: Vec<bool> = scope.graphs.iter().map(backwards).collect();
        let mut parts = vec![];
        for (reverse, sign) in [(false, 1.0), (true, -1.0)] {
            let members: Vec<usize> = (0..reversed.len()).filter(|&member| reversed[member] == reverse).collect();
            if !members.is_empty() {
                let number = self.literal(sign, span);
                let rows: Vec<Row> = members.iter().map(|_| Row::dense(Space::Unit, vec![])).collect();
                parts.push((self.expr(Kind::Repeat(number.id), Type::PerGraph(rows), span), members));
            }
        }
        self.joined_along(None, &parts, span, scope)
    }

    /// `mean(p.vertices.h) over path`: the argument at each vertex of the path, reduced.
    pub(crate) fn over_path(
        &mut self,
        kind: Reduction,
        arg: &Expr,
        over: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Term {
        if let Err(mistake) = self.goes_along(over, scope) {
            self.report(*mistake);
            return Term::Error;
        }
        if matches!(kind, Reduction::Softmax | Reduction::Concat) {
            return self.not_over_path(kind.name(), over);
        }
        let Some(parts) = self.along(scope, |this, scope, _| this.eval(arg, scope), arg.span) else {
            return Term::Error;
        };
        self.joined_along(Some(kind), &parts, span, scope)
    }

    /// `fold(first, step) over path`: a recurrence along the path, whose `step` has the value `before`.
    pub(crate) fn fold_over_path(
        &mut self,
        (first, step): (&Expr, &Expr),
        over: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Term {
        if let Err(mistake) = self.goes_along(over, scope) {
            self.report(*mistake);
            return Term::Error;
        }
        let evaluate = |this: &mut Self, scope: &mut Scope<'_>, before: Option<&Term>| match before {
            None => this.eval(first, scope),
            Some(before) => {
                scope.locals.insert(BEFORE.to_owned(), before.clone());
                this.eval_step(step, scope)
            }
        };
        let Some(parts) = self.along(scope, evaluate, step.span) else { return Term::Error };
        self.joined_along(None, &parts, span, scope)
    }

    /// Reports a reduction that does not go along paths.
    pub(crate) fn not_over_path(&mut self, name: &str, over: &Ident) -> Term {
        let message = format!("`{name}` does not go over the vertices of a path");
        self.report(
            Diagnostic::at(codes::WRONG_SCOPE, over.span, message, "not this reduction")
                .help("use sum, mean, max, min or logsumexp"),
        );
        Term::Error
    }

    /// Is there a path to go along?
    fn goes_along(&self, over: &Ident, scope: &Scope<'_>) -> Result<(), Mistake> {
        let wrong =
            |message: &str, label: &str| Box::new(Diagnostic::at(codes::WRONG_SCOPE, over.span, message, label));
        match (scope.place, scope.layer) {
            (Place::Aggregate, Some(layer)) if layer.of_paths => match scope.along {
                None => Ok(()),
                Some(_) => Err(wrong("this goes along the path already", "inside of a value `over path`")),
            },
            _ => {
                let mut report =
                    wrong("`over path` belongs into a block over path instances", "there are no paths here");
                report.help.push("write `aggregate p: path in graphs { … }`".into());
                Err(report)
            }
        }
    }

    /// The values at all positions, each for the semantic graphs whose paths are that long. A mistake at one of them
    /// is reported once, at the first.
    fn along(
        &mut self,
        scope: &Scope<'_>,
        mut evaluate: impl FnMut(&mut Self, &mut Scope<'_>, Option<&Term>) -> Term,
        span: Span,
    ) -> Option<Vec<(Typed, Vec<usize>)>> {
        let layer = scope.layer.expect("blocks are in layers");
        let length = |member: &usize| self.path_of(layer.graphs[*member]).steps.len();
        let lengths: Vec<usize> = scope.graphs.iter().map(length).collect();
        let mut parts: Vec<(Typed, Vec<usize>)> = vec![];
        for position in 0..=lengths.iter().copied().max()? {
            let chosen: Vec<usize> = (0..lengths.len()).filter(|&member| lengths[member] >= position).collect();
            let graphs = chosen.iter().map(|&member| scope.graphs[member]).collect();
            let mut inner = Scope { graphs, along: Some(position), ..scope.clone() };
            for term in inner.locals.values_mut() {
                self.narrow(term, &chosen, span);
            }
            let before = parts.last().map(|(value, of)| {
                let kept: Vec<usize> =
                    chosen.iter().filter_map(|member| of.iter().position(|known| known == member)).collect();
                let mut term = Term::Value(value.clone());
                self.narrow(&mut term, &kept, span);
                term
            });
            let term = evaluate(self, &mut inner, before.as_ref());
            if matches!(term, Term::Error) {
                return None;
            }
            let value = match self.value(term, span) {
                Ok(value) => value?,
                Err(mistake) => {
                    self.report(*mistake);
                    return None;
                }
            };
            let value = match &*value.ty {
                Type::PerGraph(_) => value,
                Type::One(row) => {
                    let rows = vec![row.clone(); chosen.len()];
                    self.expr(Kind::Repeat(value.id), Type::PerGraph(rows), span)
                }
                Type::PerType(_) | Type::ByGraph(_) => {
                    let report = self.not_a_value(&Term::Value(value), span);
                    self.report(report);
                    return None;
                }
            };
            parts.push((value, chosen));
        }
        Some(parts)
    }

    /// Selects the values of some semantic graphs, by their position among those of the term.
    fn narrow(&mut self, term: &mut Term, chosen: &[usize], span: Span) {
        match term {
            Term::Value(value) if matches!(&*value.ty, Type::PerGraph(_)) => {
                *value = self.members(value, chosen, span);
            }
            Term::Widths(widths) => *widths = chosen.iter().map(|&member| widths[member]).collect(),
            _ => {}
        }
    }

    /// Values along the path as one for each semantic graph.
    fn joined_along(
        &mut self,
        reduction: Option<Reduction>,
        parts: &[(Typed, Vec<usize>)],
        span: Span,
        scope: &Scope<'_>,
    ) -> Term {
        let layer = scope.layer.expect("blocks are in layers");
        let mut rows: Vec<Option<Row>> = vec![None; scope.graphs.len()];
        for (value, members) in parts {
            for (&member, row) in members.iter().zip(value.ty.rows()) {
                let joined = match rows[member].take() {
                    None => Ok(row.clone()),
                    Some(known) if known.space == row.space && self.fit(&known.widths, &row.widths) => Ok(known),
                    Some(known) => Err(known),
                };
                match joined {
                    Ok(row) => rows[member] = Some(row),
                    Err(known) => {
                        let text = |row: &Row| hgnnc_hir::text::show_widths(&self.model.tables, &row.widths);
                        let report = Diagnostic::at(
                            codes::SHAPE_MISMATCH,
                            span,
                            "the values along a path have different shapes",
                            format!("{} and {}", text(&known), text(row)),
                        );
                        self.report(report.help("bring all vertex types to one width first, in a `project` block"));
                        return Term::Error;
                    }
                }
            }
        }
        let rows = rows.into_iter().map(|row| row.expect("a path has vertices")).collect();
        let graphs: Arc<[Graph]> = scope.graphs.iter().map(|&member| layer.graphs[member]).collect();
        let parts = parts.iter().map(|(value, members)| (value.id, members.clone())).collect();
        Term::Value(self.expr(Kind::AlongPath(reduction, parts, graphs), Type::PerGraph(rows), span))
    }
}
