//! Values by semantic graph, as inputs, fields and results of a layer: of its edges, a row for each vertex where it
//! ends, or a single row.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use hgnnc_declare::imports::LayerDef;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::{show_space, show_widths};
use hgnnc_hir::{ExprId, ExprKind as Kind, Row, Type};
use hgnnc_ir::{Direction, Graph, Space, VertexType};
use hgnnc_syntax::ast::{self, Ident, LayerResult, RowsOf, ValueRows};

use crate::checker::{Checker, Mistake, Scope};
use crate::fields::gathered;
use crate::layer::LayerCx;
use crate::value::{Single, Typed, describe};

/// The rows that a semantic graph has in a value by semantic graph.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum GraphRows {
    /// `graphs[…]`: one for each edge.
    Edges,
    /// `V[…] per graph`: one for each vertex where the graph ends.
    Vertices,
    /// `per graph[…]`: a single one.
    Single,
}

impl GraphRows {
    /// The rows of a value of a semantic graph.
    pub fn of(row: &Row) -> Self {
        match row.space {
            Space::Unit => Self::Single,
            Space::Vertices(_) => Self::Vertices,
            Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => Self::Edges,
        }
    }

    /// The rows that an input or result of a layer declares; `None` for rows of vertices.
    pub fn declared(layer: &ast::Layer, rows: &ValueRows) -> Option<Self> {
        let is_family = |name: &Ident| layer.over.as_ref().is_some_and(|over| over.name.name == name.name);
        match rows {
            ValueRows::PerGraph => Some(Self::Single),
            ValueRows::OfEachGraph(_) => Some(Self::Vertices),
            ValueRows::Of(RowsOf::Name(name)) => is_family(name).then_some(Self::Edges),
            ValueRows::Of(RowsOf::Any(_)) => None,
        }
    }

    /// Are all values of a family rows of vertices?
    fn all_of_vertices(ty: &Type) -> bool {
        ty.rows().all(|row| Self::of(row) == Self::Vertices)
    }

    /// A phrase for messages: such a value.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Edges => "edge values",
            Self::Vertices => "rows of vertices for each semantic graph",
            Self::Single => "a row for each semantic graph",
        }
    }

    /// A phrase for messages: the rows of a graph.
    fn found(self) -> &'static str {
        match self {
            Self::Edges => "has a row for each edge",
            Self::Vertices => "has a row for each vertex where a graph ends",
            Self::Single => "has one row for each semantic graph",
        }
    }

    /// How an input or result of such values is declared.
    fn declaration(self, layer: &ast::Layer, name: &str) -> String {
        let over = layer.over.as_ref();
        match self {
            Self::Edges => format!("{name}: {}[…]", over.map_or("graphs", |over| over.name.name.as_str())),
            Self::Vertices => format!("{name}: {}[…] per graph", destination(layer).map_or("*", |ident| &ident.name)),
            Self::Single => format!("{name}: per graph[…]"),
        }
    }
}

/// The type variable of the vertices where the graphs of a layer end.
fn destination(layer: &ast::Layer) -> Option<&Ident> {
    layer.over.as_ref()?.ends.as_ref().map(|(_, dst)| dst)
}

/// Refuses `U[…] per graph` of other vertices than those where the graphs end.
pub fn misplaced_rows(layer: &ast::Layer) -> Vec<Diagnostic> {
    let inputs = layer.inputs.iter().map(|input| (&input.rows, input.span));
    let all = inputs.chain(layer.results.iter().map(|result| (&result.rows, result.span)));
    let misplaced = all.filter_map(|(rows, span)| match (rows, &layer.over) {
        (ValueRows::OfEachGraph(_), None) => {
            let message = "rows per graph belong to the vertices where each semantic graph ends";
            let report = Diagnostic::at(codes::ROWS_PER_GRAPH, span, message, "of no semantic graphs");
            Some(report.help("the layer has no semantic graphs: declare them with `over graphs: [*]`"))
        }
        (ValueRows::OfEachGraph(RowsOf::Name(name)), Some(over))
            if destination(layer).is_none_or(|dst| dst.name != name.name) =>
        {
            let message = "rows per graph belong to the vertices where each semantic graph ends";
            let report = Diagnostic::at(codes::ROWS_PER_GRAPH, name.span, message, "other vertices");
            Some(match destination(layer) {
                Some(dst) => report.help(format!("write `{}[…] per graph`", dst.name)),
                None => report.label(over.span, "these graphs may end in any type").help("write `*[…] per graph`"),
            })
        }
        _ => None,
    });
    misplaced.collect()
}

/// The declared result of this name, with its rows if it has values by semantic graph.
pub fn result_by_graph<'l>(layer: &'l ast::Layer, name: &Ident) -> Option<(&'l LayerResult, Option<GraphRows>)> {
    let result = layer.results.iter().find(|result| result.name.name == name.name)?;
    Some((result, GraphRows::declared(layer, &result.rows)))
}

impl<'a> Checker<'a> {
    /// Binds an input of values by semantic graph. False after a report.
    pub(crate) fn bind_by_graph(
        &mut self,
        (input, wanted): (&ast::LayerInput, GraphRows),
        value: &Typed,
        at: Span,
        cx: &mut LayerCx<'a>,
    ) -> bool {
        let name = &input.name.name;
        let Type::ByGraph(values) = &*value.ty else { unreachable!("values by semantic graph") };
        let whole = self.whole_values.get(&value.id).unwrap_or(value).clone();
        if let Some(found) = values.values().map(GraphRows::of).find(|found| *found != wanted) {
            let message = format!("input `{name}` takes {}, not {}", wanted.describe(), describe(&value.ty));
            let report = Diagnostic::at(codes::NOT_A_VALUE, at, message, found.found())
                .label(input.span, "the input is declared here")
                .help(format!("declare the input `{}`", found.declaration(cx.layer, name)));
            self.report(report);
            return false;
        }
        let mut rows = vec![];
        for &graph in &cx.graphs {
            // Pairs to score have no edge values, but those of the vertices and the single rows of their relation.
            let own = values.get(&graph);
            let found = if wanted == GraphRows::Edges { own } else { self.model.tables.of_graph(values, graph) };
            if let Some(row) = found {
                rows.push(row.clone());
                continue;
            }
            let decl = &self.model.tables.graphs[graph.index()];
            let missing = if wanted == GraphRows::Edges { "no value for the edges" } else { "no row" };
            let name_of_graph = match (self.schema.written(decl), decl.links) {
                (joined, true) => format!("links({joined})"),
                (written, false) => written,
            };
            let message = format!("there is {missing} of `{name_of_graph}` here");
            let report =
                Diagnostic::at(codes::NOT_PROJECTED, at, message, "comes from a layer over other semantic graphs");
            self.report(match decl.links && wanted == GraphRows::Edges {
                true => report.help(format!(
                    "pairs to score have a row of their relation: declare `{name}: per graph[…]`, and the result that it comes from as well"
                )),
                false => report,
            });
            return false;
        }
        let own = self.expr(Kind::OfGraphs(value.id, cx.graphs.clone().into()), Type::PerGraph(rows), at);
        cx.inputs.push((name.clone(), own.id));
        cx.graph_fields.insert(name.clone(), own);
        cx.by_graph.insert(name.clone(), whole);
        if wanted == GraphRows::Vertices {
            cx.of_inputs.extend(cx.ends.iter().map(|(_, dst)| *dst));
        }
        true
    }

    /// `e.src.h` of a field with rows per graph: the row that the source has for the reverse of the edge's graph.
    pub(crate) fn of_reverses(&mut self, field: &Ident, span: Span, scope: &Scope<'_>) -> Result<Typed, Mistake> {
        let layer = scope.layer.expect("blocks are in layers");
        let own = layer.graph_fields[&field.name].clone();
        if self.without_use {
            // The only graph stands for any, and so does its row for that of the reverse.
            let rows = own.ty.rows().map(|row| Row::dense(Space::Edges(layer.graphs[0]), row.widths.clone())).collect();
            return Ok(self.expr(Kind::Zeros, Type::PerGraph(rows), span));
        }
        let family: Arc<[Graph]> = layer.graphs.clone().into();
        let all = match layer.by_graph.get(&field.name) {
            Some(given) => given.clone(),
            None => {
                let rows = family.iter().copied().zip(own.ty.rows().cloned()).collect();
                self.expr(Kind::RowsByGraph(vec![(own.id, family)]), Type::ByGraph(rows), span)
            }
        };
        let Type::ByGraph(known) = &*all.ty else { unreachable!("values by semantic graph") };
        let graphs: Arc<[Graph]> = scope.graphs.iter().map(|&position| layer.graphs[position]).collect();
        let (mut reverses, mut rows, mut at_edges) = (vec![], vec![], vec![]);
        for &graph in &*graphs {
            let Some(reverse) = self.model.tables.reverse_of(graph, known.keys().copied()) else {
                return Err(Box::new(self.no_reverse(scope, field, graph)));
            };
            reverses.push(reverse);
            rows.push(known[&reverse].clone());
            at_edges.push(gathered(known[&reverse].clone(), graph));
        }
        let of_reverses = self.expr(Kind::OfGraphs(all.id, reverses.into()), Type::PerGraph(rows), span).id;
        let at_source = match self.ends_of_edges(&graphs, Direction::Out) {
            Some(at) => Kind::AtPosition(of_reverses, at),
            None => Kind::AtEnd(Direction::Out, of_reverses, graphs),
        };
        Ok(self.expr(at_source, Type::PerGraph(at_edges), span))
    }

    /// The report of a source that has no row for the reverse of a graph.
    fn no_reverse(&self, scope: &Scope<'_>, field: &Ident, graph: Graph) -> Diagnostic {
        let layer = scope.layer.expect("blocks are in layers");
        let variable = scope.variable_name();
        let decl = &self.model.tables.graphs[graph.index()];
        let (source, name) = (self.schema.written(decl), &field.name);
        let message = format!("a source of `{source}` has no `{name}` for the reverse of `{source}`");
        let mut report = Diagnostic::at(codes::NO_REVERSE, field.span, message, "read at the source of edges");
        let given = layer.input_spans.get(name);
        if let Some(given) = given.filter(|_| !layer.assigned.contains(name)) {
            report = report.label(*given, "has rows of other semantic graphs");
            return report.help(format!(
                "an edge reads the row that its source has for the edge the other way round: compute `{name}` over both, as in \
                 `[relations, reverses]`, or read `{variable}.dst.{name}`"
            ));
        }
        if let Some(family) = layer.family_span {
            report = report.label(family, "the reverse is none of these semantic graphs");
        }
        report.help(match decl.links || self.edges_of(graph).is_some() {
            true => format!("pairs and edges to predict have no reverse here: let `{name}` be an input, computed over both directions"),
            false => format!(
                "an edge reads the row that its source has for the edge the other way round: use the layer over both, as in \
                 `[relations, reverses]`, or read `{variable}.dst.{name}`"
            ),
        })
    }

    /// Keeps a value that a block assigns for the semantic graphs that end in a vertex type. False after a report.
    pub(crate) fn assign_graph_rows(
        &mut self,
        cx: &mut LayerCx<'a>,
        (name, declared): (&Ident, Option<(Span, GraphRows)>),
        value: Typed,
        vertex: VertexType,
        span: Span,
    ) -> bool {
        let graphs = cx.into.get(&vertex).cloned().unwrap_or_default();
        let value = match (&*value.ty, declared) {
            // The row of a vertex, for each of its graphs.
            (Type::One(row), Some((_, GraphRows::Vertices))) if row.space == Space::Vertices(vertex) => {
                self.expr(Kind::Repeat(value.id), Type::PerGraph(vec![row.clone(); graphs.len()]), span)
            }
            _ => value,
        };
        let wanted = declared.map_or(GraphRows::Vertices, |(_, rows)| rows);
        let declared = declared.map(|(span, _)| span);
        match &*value.ty {
            Type::PerGraph(rows) if rows.len() == graphs.len() => {
                if let Some(row) = rows.iter().find(|row| GraphRows::of(row) != wanted) {
                    let found = format!("has {}", show_space(&self.model.tables, row.space));
                    let report = not_of_graphs(&name.name, wanted, (span, declared), found);
                    self.report(match wanted {
                        GraphRows::Single => {
                            report.help("`mean(…) over vertices` makes one row of those of all vertices")
                        }
                        GraphRows::Vertices | GraphRows::Edges => report,
                    });
                    return false;
                }
                for row in rows {
                    let usable = self.usable(row, span);
                    if self.or_report(usable).is_none() {
                        return false;
                    }
                }
            }
            ty => {
                let report = not_of_graphs(&name.name, wanted, (span, declared), format!("this is {}", describe(ty)));
                self.report(report.help("in a `fuse` block, `v.z` has a value for each semantic graph"));
                return false;
            }
        }
        let parts = cx.graph_rows.entry(name.name.clone()).or_default();
        // The blocks of a repetition assign it anew.
        parts.retain(|(_, known)| *known != graphs);
        parts.push((value, graphs));
        true
    }

    /// Makes what a block has assigned for each semantic graph fields for the blocks behind it. Semantic graphs that
    /// end in other vertex types keep their rows. False after a report.
    pub(crate) fn complete_graph_rows(&mut self, cx: &mut LayerCx<'a>, names: &[&Ident]) -> bool {
        let mut fine = true;
        for name in names {
            let Some(mut parts) = cx.graph_rows.get(&name.name).cloned() else { continue };
            let is_covered = |position: &usize| parts.iter().any(|(_, positions)| positions.contains(position));
            let missing: Vec<usize> = (0..cx.graphs.len()).filter(|position| !is_covered(position)).collect();
            let before = cx.graph_fields.get(&name.name).filter(|before| {
                let kind = parts.iter().flat_map(|(value, _)| value.ty.rows()).map(GraphRows::of).next();
                before.ty.rows().map(GraphRows::of).all(|row| Some(row) == kind)
            });
            match before.cloned() {
                _ if missing.is_empty() => {}
                Some(before) => {
                    let kept = self.members(&before, &missing, name.span);
                    parts.push((kept, missing));
                }
                None if cx.vertex_fields.contains_key(&name.name) => {
                    let end = self.vertex_name(cx.ends[missing[0]].1);
                    let found = format!("a row for each semantic graph here, one row of `{end}` as before");
                    let report = both_kinds(name, name.span, found);
                    self.report(report);
                    cx.graph_rows.remove(&name.name);
                    cx.vertex_fields.remove(&name.name);
                    cx.failed.insert(name.name.clone());
                    fine = false;
                    continue;
                }
                None => continue,
            }
            cx.graph_rows.remove(&name.name);
            let (parts, rows) = self.members_by_graph(&parts, &cx.graphs);
            let own = cx.graphs.iter().map(|graph| rows[graph].clone()).collect();
            let all = self.expr(Kind::RowsByGraph(parts), Type::ByGraph(rows), name.span);
            let value = self.expr(Kind::OfGraphs(all.id, cx.graphs.clone().into()), Type::PerGraph(own), name.span);
            cx.vertex_fields.remove(&name.name);
            cx.graph_fields.insert(name.name.clone(), value);
            cx.by_graph.insert(name.name.clone(), all);
        }
        fine
    }

    /// Refuses fields that a block makes one row in some vertex types and a row for each semantic graph in others, by
    /// what it assigns for each type, `many` if it runs for all of them. Gives their names.
    pub(crate) fn fields_of_both_kinds(
        &mut self,
        cx: &LayerCx<'a>,
        many: bool,
        assigned: &[(VertexType, &ast::Binding, bool)],
    ) -> HashSet<String> {
        let mut first: HashMap<&str, (VertexType, bool)> = HashMap::new();
        let mut found = HashSet::new();
        for &(vertex, ast::Binding { name, value, .. }, of_graphs) in assigned {
            let &mut (other, kind) = first.entry(&name.name).or_insert((vertex, of_graphs));
            let of_other = match cx.graph_fields.get(&name.name) {
                _ if kind != of_graphs => Some((other, "")),
                Some(before) if !of_graphs && !many && GraphRows::all_of_vertices(&before.ty) => {
                    cx.ends.iter().find(|(_, end)| *end != vertex).map(|(_, end)| (*end, " as before"))
                }
                _ => None,
            };
            let Some((other, when)) = of_other.filter(|_| !found.contains(&name.name)) else { continue };
            let [graphs, one] = if of_graphs { [vertex, other] } else { [other, vertex] };
            let [graphs, one] = [graphs, one].map(|end| self.vertex_name(end));
            let label = format!("one row of `{one}`, a row for each semantic graph of `{graphs}`{when}");
            self.report(both_kinds(name, value.span, label));
            found.insert(name.name.clone());
        }
        found
    }

    /// Values of members of a family, by position, as values by semantic graph.
    fn members_by_graph(&self, parts: &[(Typed, Vec<usize>)], family: &[Graph]) -> (Parts, BTreeMap<Graph, Row>) {
        let (mut members, mut rows) = (vec![], BTreeMap::new());
        for (value, positions) in parts.iter().filter(|(_, positions)| !positions.is_empty()) {
            let graphs: Arc<[Graph]> = positions.iter().map(|&position| family[position]).collect();
            rows.extend(graphs.iter().copied().zip(value.ty.rows().cloned()));
            members.push((value.id, graphs));
        }
        (members, rows)
    }

    /// The rows of a field of vertices, each for all semantic graphs that end in its type.
    fn rows_of_vertices(&mut self, cx: &LayerCx<'a>, name: &str, span: Span) -> Vec<(Typed, Vec<usize>)> {
        let Some(values) = cx.vertex_fields.get(name) else { return vec![] };
        let of_type = |(vertex, value): (&VertexType, &Single)| {
            let positions = cx.into.get(vertex)?.clone();
            let rows = Type::PerGraph(vec![value.row.clone(); positions.len()]);
            Some((self.expr(Kind::Repeat(value.id), rows, span), positions))
        };
        values.iter().filter_map(of_type).collect()
    }

    /// A result of single rows, or of rows of vertices, for each semantic graph, as declared.
    pub(crate) fn graph_result(
        &mut self,
        def: LayerDef<'a>,
        cx: &LayerCx<'a>,
        (result, wanted): (&LayerResult, GraphRows),
    ) -> Option<Typed> {
        let name = &result.name.name;
        if cx.failed.contains(name) {
            return None;
        }
        if def.layer.over.is_none() && wanted == GraphRows::Vertices {
            // Reported with the signature.
            return None;
        }
        let given = match (cx.graph_rows.get(name), cx.graph_fields.get(name)) {
            (Some(parts), _) => parts.clone(),
            // An `aggregate` block runs for the whole family.
            (None, Some(value)) => vec![(value.clone(), (0..cx.graphs.len()).collect())],
            (None, None) if wanted == GraphRows::Vertices => self.rows_of_vertices(cx, name, result.span),
            (None, None) => vec![],
        };
        let (parts, rows) = self.members_by_graph(&given, &cx.graphs);
        for (graph, row) in &rows {
            let end = (wanted == GraphRows::Vertices).then(|| self.model.tables.end(*graph, Direction::In));
            let widths = self.result_widths(def, cx, result, end)?;
            if GraphRows::of(row) != wanted {
                let found = format!("has {}", show_space(&self.model.tables, row.space));
                let at = cx.field_spans.get(name).copied().unwrap_or(result.span);
                let report = not_of_graphs(name, wanted, (at, Some(result.span)), found);
                let declaration = GraphRows::of(row).declaration(cx.layer, name);
                self.report(report.help(format!("combine them first, or declare `{declaration}`")));
                return None;
            }
            let usable = self.usable(row, result.span);
            self.or_report(usable)?;
            if !self.fit(&row.widths, &widths) {
                let [found, declared] = [&row.widths, &widths].map(|widths| show_widths(&self.model.tables, widths));
                let mut report = Diagnostic::at(
                    codes::RESULT_MISMATCH,
                    result.span,
                    "the result is not what the layer declares",
                    format!("declared: {declared} for each semantic graph"),
                )
                .note(format!("computed: {found}"));
                if let Some(at) = cx.field_spans.get(name) {
                    report = report.label(*at, "assigned here");
                }
                self.report(report);
                return None;
            }
        }
        if rows.len() < cx.graphs.len() || def.layer.over.is_none() {
            let message = format!("layer `{}` never assigns its result `{name}`", def.layer.name.name);
            let mut report =
                Diagnostic::at(codes::MISSING_RESULT, result.span, message, "needs a row per semantic graph");
            if def.layer.over.is_none() {
                report = report.help("the layer has no semantic graphs: declare them with `over graphs: [V -> V]`");
            }
            let missing = cx.graphs.iter().zip(&cx.ends).find(|(graph, _)| !rows.contains_key(graph));
            if let (Some(at), Some((graph, (_, end)))) = (cx.field_spans.get(name), missing) {
                let graph = self.schema.written(&self.model.tables.graphs[graph.index()]);
                let end = self.vertex_name(*end);
                report = report.label(*at, format!("assigned here, but not for `{graph}`, which ends in `{end}`"));
            }
            self.report(report);
            return None;
        }
        Some(self.expr(Kind::RowsByGraph(parts), Type::ByGraph(rows), result.span))
    }
}

/// The report of a field that is one row in some vertex types and a row for each semantic graph in others.
fn both_kinds(name: &Ident, at: Span, label: String) -> Diagnostic {
    let message = format!("`{}` has one row of some vertices, and a row for each semantic graph of others", name.name);
    Diagnostic::at(codes::DIFFERENT_SPACES, at, message, label).help("give one of them another name")
}

/// Expressions of members of a family, each with its graphs.
type Parts = Vec<(ExprId, Arc<[Graph]>)>;

/// The report of a value that does not have such rows for each semantic graph, assigned at the first span; a result
/// is declared at the second.
fn not_of_graphs(name: &str, wanted: GraphRows, (at, declared): (Span, Option<Span>), found: String) -> Diagnostic {
    let message = match (wanted, declared) {
        (GraphRows::Single, _) => format!("result `{name}` is one row for each semantic graph"),
        (_, Some(_)) => format!("result `{name}` is a row of each vertex for each semantic graph"),
        (_, None) => format!("field `{name}` is a row of each vertex for each semantic graph"),
    };
    let report = Diagnostic::at(codes::RESULT_MISMATCH, at, message, found);
    match declared {
        Some(declared) => report.label(declared, "declared `per graph` here"),
        None => report,
    }
}
