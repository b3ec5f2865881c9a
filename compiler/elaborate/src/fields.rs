//! Fields: of the schema, of vertices in `project` and `fuse`, of edges and their ends in `aggregate`.

use std::sync::Arc;

use hgnnc_declare::names::{did_you_mean, suggest};
use hgnnc_declare::schema::{FieldInfo, FieldKind, RelationInfo};
use hgnnc_diag::{Diagnostic, Span, codes, synonyms};
use hgnnc_hir::text::show_space;
use hgnnc_hir::{Dim, EdgeData, ExprKind as Kind, Form, Row, Type, Width};
use hgnnc_ir::dataflow::SelfLoops;
use hgnnc_ir::{Direction, Graph, Space, VertexType};
use hgnnc_syntax::ast::{Expr, ExprKind, Ident};

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::layer::LayerCx;
use crate::paths::part_of_path;
use crate::value::{Term, Typed};

impl Checker<'_> {
    pub(crate) fn field(&mut self, base: &Expr, field: &Ident, scope: &Scope<'_>) -> Term {
        let span = base.span.to(field.span);
        // The block's variable and the ends of an edge.
        let variable = scope.variable.map(|v| v.name.as_str());
        let is_variable = |e: &Expr| matches!(&e.kind, ExprKind::Name(n) if Some(n.as_str()) == variable);
        if is_variable(base) && !scope.locals.contains_key(variable.unwrap_or("")) {
            let result = match scope.place {
                Place::Aggregate => self.edge_field(field, span, scope),
                _ => self.vertex_field(field, span, scope),
            };
            return self.settle(result);
        }
        if scope.place == Place::Aggregate
            && scope.layer.is_some_and(|layer| layer.of_paths)
            && let Some((inner, part, index)) = part_of_path(base)
            && is_variable(inner)
        {
            return self.field_of_part(part, index, field, span, scope);
        }
        if let ExprKind::Field(inner, end) = &base.kind
            && is_variable(inner)
            && scope.place == Place::Aggregate
        {
            let direction = match end.name.as_str() {
                "src" => Direction::Out,
                "dst" => Direction::In,
                _ => {
                    let message = "an edge has the ends `src` and `dst`";
                    let report = Diagnostic::at(codes::UNKNOWN_FIELD, end.span, message, "not an end");
                    self.report(suggest(report, synonyms::Place::End, &end.name, ["src", "dst"]));
                    return Term::Error;
                }
            };
            let result = self.end_field(direction, field, span, scope);
            return self.settle(result);
        }
        // A field of the schema.
        if let ExprKind::Name(name) = &base.kind
            && scope.place == Place::Model
            && !scope.locals.contains_key(name)
            && self.schema.vertex_named(name).is_some()
        {
            let result = self.schema_field(name, field, span);
            return self.settle(result);
        }
        if let ExprKind::Name(name) = &base.kind
            && scope.place == Place::Model
            && !scope.locals.contains_key(name)
            && let Some(relation) = self.schema.relation_named(name)
        {
            let report = self.field_of_relation(relation, field, span);
            self.report(report);
            return Term::Error;
        }
        match self.eval(base, scope) {
            Term::Error => Term::Error,
            Term::Record(results) => match results.iter().find(|(name, _)| *name == field.name) {
                Some((_, term)) => term.clone(),
                None => {
                    let report = Diagnostic::at(
                        codes::UNKNOWN_FIELD,
                        field.span,
                        format!("the layer has no result `{}`", field.name),
                        "unknown result",
                    );
                    let report = did_you_mean(report, &field.name, results.iter().map(|(n, _)| n.as_str()));
                    self.report(report);
                    Term::Error
                }
            },
            Term::Value(value) if matches!(*value.ty, Type::PerType(_)) && scope.place == Place::Composed => {
                let layer = scope.layer.expect("a composed layer is a layer");
                self.field_in_composed(&value, field, layer)
            }
            Term::Value(Typed { ty, .. }) if matches!(*ty, Type::PerType(_)) && scope.place != Place::Model => {
                self.report(
                    Diagnostic::at(
                        codes::UNKNOWN_FIELD,
                        field.span,
                        "a layer does not know the vertex types of the schema",
                        "not a field",
                    )
                    .help(match scope.place {
                        Place::Aggregate => {
                            "this value becomes a field of the vertices when it is assigned: read it in `fuse`"
                        }
                        _ => "use a type variable of the layer's signature",
                    }),
                );
                Term::Error
            }
            Term::Value(Typed { id, ty }) if matches!(*ty, Type::PerType(_)) => {
                let Type::PerType(rows) = &*ty else { unreachable!("it was compared") };
                let has = |vertex: usize| rows.contains_key(&VertexType::new(vertex));
                if !self.schema.vertex_named(&field.name).is_some_and(has)
                    && let Some(found) = self.further_result(id, rows, field)
                {
                    return found;
                }
                let Some(vertex) = self.schema.vertex(field, self.diagnostics) else { return Term::Error };
                let vertex = VertexType::new(vertex);
                if rows.contains_key(&vertex) {
                    return Term::Value(self.types([(vertex, id)], span));
                }
                let has: Vec<_> = rows.keys().map(|v| format!("`{}`", self.vertex_name(*v))).collect();
                self.report(
                    Diagnostic::at(
                        codes::NOT_PROJECTED,
                        field.span,
                        format!("there is no value for vertex type `{}` here", field.name),
                        "not among the vertex types of this value",
                    )
                    .label(base.span, format!("has values of {}", has.join(", "))),
                );
                Term::Error
            }
            other => {
                let by_graph = matches!(&other, Term::Value(value) if matches!(*value.ty, Type::ByGraph(_)));
                let message = match by_graph {
                    true => format!("a value of each semantic graph has no field `{}`", field.name),
                    false => format!("{} has no field `{}`", other.describe(), field.name),
                };
                let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, message, "not a field");
                self.report(match by_graph {
                    true => report
                        .help("a layer reads it, and combines what a vertex has: `sum(v.x) across graphs` in `fuse`"),
                    false => suggest(report, synonyms::Place::Field, &field.name, []),
                });
                Term::Error
            }
        }
    }

    fn schema_field(&mut self, vertex: &str, field: &Ident, span: Span) -> Result<Term, Mistake> {
        let index = self.schema.vertex_named(vertex).expect("checked by the caller");
        let info = &self.schema.vertices[index];
        info.used.set(true);
        if self.schema.broken.contains(&format!("{vertex}.{}", field.name)) {
            return Ok(Term::Error);
        }
        let Some(position) = info.fields.iter().position(|f| f.name == field.name) else {
            let mut report = Diagnostic::at(
                codes::UNKNOWN_FIELD,
                field.span,
                format!("vertex type `{vertex}` has no field `{}`", field.name),
                "not declared",
            )
            .label(info.span, format!("`{vertex}` is declared here"));
            if info.fields.is_empty() {
                report = report.help(format!(
                    "`{vertex}` has no features: declare `{{ {0}: onehot }}` or `{{ {0}: embedding[64] }}`",
                    field.name
                ));
            }
            return Err(Box::new(did_you_mean(report, &field.name, info.fields.iter().map(|f| f.name.as_str()))));
        };
        let vertex = VertexType::new(index);
        match info.fields[position].kind {
            FieldKind::Class(_) | FieldKind::MultiLabel(_) | FieldKind::Target(_) => Ok(Term::Label(vertex, position)),
            FieldKind::Number
            | FieldKind::Real { .. }
            | FieldKind::OneHot
            | FieldKind::Embedding(_)
            | FieldKind::Time
            | FieldKind::Cutoff => {
                let features = self.features(vertex, position, span);
                Ok(Term::Value(self.types([(vertex, features.id)], span)))
            }
        }
    }

    /// The report of `rates.stars` or `rates.hours` in a model.
    fn field_of_relation(&self, relation: usize, field: &Ident, span: Span) -> Diagnostic {
        let info = &self.schema.relations[relation];
        let name = format!("{}.{}", info.name, field.name);
        let Some(declared) = info.fields.iter().find(|known| known.name == field.name) else {
            let message = format!("relation `{}` has no field `{}`", info.name, field.name);
            let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, message, "not declared")
                .label(info.span, format!("`{}` is declared here", info.name));
            return did_you_mean(report, &field.name, info.fields.iter().map(|f| f.name.as_str()));
        };
        match edge_data_of(info, declared, span) {
            Err(label) => *label,
            Ok(_) => {
                let message = format!("`{name}` is data of edges, which layers read");
                Diagnostic::at(codes::NOT_A_VALUE, span, message, "not a value of a model").help(format!(
                    "in an `aggregate` block of a layer over `{0}` or `{1}`, it is `e.{2}`",
                    info.name, info.edges_name, field.name
                ))
            }
        }
    }

    /// `v.h` in `project` and `fuse`.
    fn vertex_field(&mut self, field: &Ident, span: Span, scope: &Scope<'_>) -> Result<Term, Mistake> {
        let layer = scope.layer.expect("blocks are in layers");
        let (Place::Project(vertex, _) | Place::Fuse(vertex, _)) = scope.place else {
            unreachable!("vertex fields are read in `project` and `fuse`")
        };
        let in_fuse = matches!(scope.place, Place::Fuse(..));
        if let Some(values) = layer.vertex_fields.get(&field.name) {
            return match values.get(&vertex) {
                Some(value) => {
                    let ty = self.model.expr(value.id).ty.clone();
                    Ok(Term::Value(Typed { id: value.id, ty }))
                }
                None if layer.failed.contains(&field.name) => Ok(Term::Error),
                None => Err(Box::new(self.missing_for(layer, field, vertex))),
            };
        }
        if in_fuse && let Some(value) = layer.graph_fields.get(&field.name) {
            let mine = self.members(value, &scope.graphs, span);
            if let Some(edge) = mine.ty.rows().find(|row| matches!(row.space, Space::Edges(_))) {
                let space = show_space(&self.model.tables, edge.space);
                let mut report = Diagnostic::at(
                    codes::EDGE_VALUE_PER_VERTEX,
                    field.span,
                    format!("`{}` is an edge value, but `fuse` works per vertex", field.name),
                    format!("has {space}"),
                )
                .help("reduce it where it is computed: `sum(…) over in_edges`");
                if let Some(assigned) = layer.field_spans.get(&field.name) {
                    report = report.label(*assigned, "assigned here, without a reduction over the edges");
                }
                return Err(Box::new(report));
            }
            return Ok(Term::Value(mine));
        }
        // Rows of this type alone, so far.
        if in_fuse
            && let Some((value, _)) = layer
                .graph_rows
                .get(&field.name)
                .and_then(|parts| parts.iter().find(|(_, positions)| *positions == scope.graphs))
        {
            return Ok(Term::Value(value.clone()));
        }
        if !in_fuse && layer.graph_fields.contains_key(&field.name) {
            let message = format!("`{}` has a value for each semantic graph, not one for the vertex", field.name);
            let report = Diagnostic::at(codes::DIFFERENT_SPACES, field.span, message, "read in a `project` block");
            return Err(Box::new(
                report.help("a `fuse` block reads the values of all semantic graphs that end in the vertex"),
            ));
        }
        if in_fuse && field.name == "in_degree" {
            let graphs: Arc<[Graph]> = scope.graphs.iter().map(|&g| layer.graphs[g]).collect();
            for &graph in &*graphs {
                self.not_of_pairs(graph, "degrees", field.span)?;
            }
            let rows = vec![Row::dense(Space::Vertices(vertex), vec![]); graphs.len()];
            let degree = self.expr(Kind::Degree(Direction::In, graphs), Type::PerGraph(rows), span);
            return Ok(Term::Value(degree));
        }
        if layer.absent.contains(&field.name) {
            return Ok(Term::Absent);
        }
        if layer.failed.contains(&field.name) {
            return Ok(Term::Error);
        }
        Err(Box::new(self.unknown_field(layer, field, "the vertex")))
    }

    /// The values of some semantic graphs of a family.
    pub(crate) fn members(&mut self, value: &Typed, positions: &[usize], span: Span) -> Typed {
        let Type::PerGraph(rows) = &*value.ty else { unreachable!("a value for each semantic graph") };
        if positions.iter().copied().eq(0..rows.len()) {
            return value.clone();
        }
        let mine = positions.iter().map(|&position| rows[position].clone()).collect();
        self.expr(Kind::Members(value.id, positions.to_vec()), Type::PerGraph(mine), span)
    }

    pub(crate) fn missing_for(&self, layer: &LayerCx<'_>, field: &Ident, vertex: VertexType) -> Diagnostic {
        let mut report = Diagnostic::at(
            codes::NOT_PROJECTED,
            field.span,
            format!("nothing provides `{}` for vertex type `{}`", field.name, self.vertex_name(vertex)),
            "has no value for this type",
        )
        .label(self.declared_at(vertex), "the vertex type is declared here")
        .help(format!(
            "give `{}` features, such as `{{ x: onehot }}`, or add it to what stands after `of` where the layer is used",
            self.vertex_name(vertex)
        ));
        if let Some(assigned) = layer.field_spans.get(&field.name) {
            report = report.label(*assigned, "assigned here for other vertex types");
        }
        report
    }

    pub(crate) fn unknown_field(&self, layer: &LayerCx<'_>, field: &Ident, whose: &str) -> Diagnostic {
        if let (true, Some(at)) = (layer.graph_rows.contains_key(&field.name), layer.field_spans.get(&field.name)) {
            let message = format!("not all semantic graphs have rows of `{}` here", field.name);
            return Diagnostic::at(codes::NOT_PROJECTED, field.span, message, "of some vertex types only")
                .label(*at, "assigned here for the semantic graphs of some vertex types");
        }
        let report = Diagnostic::at(
            codes::UNKNOWN_FIELD,
            field.span,
            format!("{whose} has no field `{}` here", field.name),
            "not assigned before",
        );
        let known = layer.vertex_fields.keys().chain(layer.graph_fields.keys()).map(String::as_str);
        did_you_mean(report, &field.name, known)
    }

    /// `e.weight`, `e.count`, `e.alpha` in `aggregate`.
    fn edge_field(&mut self, field: &Ident, span: Span, scope: &Scope<'_>) -> Result<Term, Mistake> {
        let layer = scope.layer.expect("blocks are in layers");
        if let Some(value) = layer.graph_fields.get(&field.name) {
            let mine = self.members(value, &scope.graphs, span);
            if mine.ty.rows().any(|row| matches!(row.space, Space::Vertices(_))) {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::DIFFERENT_SPACES,
                        field.span,
                        format!("`{}` has one value per vertex, not per edge", field.name),
                        "used as an edge value",
                    )
                    .help(format!(
                        "write `{}.dst.{}` for the value at the destination",
                        scope.variable_name(),
                        field.name
                    )),
                ));
            }
            return Ok(Term::Value(mine));
        }
        if layer.absent.contains(&field.name) {
            return Ok(Term::Absent);
        }
        if layer.failed.contains(&field.name) {
            return Ok(Term::Error);
        }
        if ["src", "dst"].contains(&field.name.as_str()) {
            let message = "an end of an edge is a vertex, not a value";
            let mut report = Diagnostic::at(codes::NOT_A_VALUE, span, message, "which of its fields?");
            if let (Some(variable), Some(known)) = (scope.variable, layer.vertex_fields.keys().min()) {
                report = report.help(format!("name one, as in `{}.{}.{known}`", variable.name, field.name));
            }
            return Err(Box::new(report));
        }
        if layer.vertex_fields.contains_key(&field.name) {
            return Err(Box::new(
                Diagnostic::at(
                    codes::DIFFERENT_SPACES,
                    field.span,
                    format!("`{}` is a field of vertices, not of edges", field.name),
                    "which end is meant?",
                )
                .help(format!(
                    "write `{1}.src.{0}` or `{1}.dst.{0}`",
                    field.name,
                    scope.variable_name()
                )),
            ));
        }
        // Whether its relations declare it is known of a use.
        if self.without_use && field.name != "count" {
            return Ok(Term::Error);
        }
        let (mut data, mut rows) = (vec![], vec![]);
        for &position in &scope.graphs {
            let (kind, widths) = self.edge_data(layer, position, field)?;
            let graph = layer.graphs[position];
            if kind == EdgeData::Time {
                self.loops_have_times(layer, position, span)?;
            }
            data.push((graph, kind));
            rows.push(row_of_data(kind, graph, widths));
        }
        Ok(Term::Value(self.expr(Kind::EdgeData(field.name.clone(), data), Type::PerGraph(rows), span)))
    }

    /// Refuses times of self loops that are added to vertices without times.
    fn loops_have_times(&self, layer: &LayerCx<'_>, position: usize, span: Span) -> Result<(), Mistake> {
        let decl = &self.model.tables.graphs[layer.graphs[position].index()];
        let vertex = &self.schema.vertices[decl.dst.index()];
        if decl.self_loops != SelfLoops::Added || vertex.time().is_some() {
            return Ok(());
        }
        let (name, message) = (&vertex.name, format!("self loops that `{}` adds have no time", decl.name));
        let report = Diagnostic::at(codes::NO_EDGE_DATA, span, message, "not of all of its edges");
        Err(Box::new(
            report
                .label(vertex.span, format!("`{name}` declares no time, which its self loops would have"))
                .help("give the vertex type a time, or the layer the relation without added self loops"),
        ))
    }

    /// Data of the edges themselves: what the relation declares, or the number of path instances.
    pub(crate) fn edge_data(
        &self,
        layer: &LayerCx<'_>,
        position: usize,
        field: &Ident,
    ) -> Result<(EdgeData, Vec<Width>), Mistake> {
        let graph = layer.graphs[position];
        let edges = self.edges_of(graph);
        if edges.is_none() {
            self.not_of_pairs(graph, "data of edges", field.span)?;
        }
        let decl = &self.model.tables.graphs[graph.index()];
        let (name, steps) = (&self.schema.written(decl), &decl.steps);
        if layer.of_paths {
            let message = format!("a path of `{name}` has no `{}`: its edges have", field.name);
            return Err(Box::new(
                Diagnostic::at(codes::NO_EDGE_DATA, field.span, message, "of which edge?").help(format!(
                    "write `p.edge(0).{}` for the first one; the number of paths that end at a vertex is `p.dst.in_degree`",
                    field.name
                )),
            ));
        }
        if field.name == "count" {
            if !decl.counted && !self.without_use {
                let mut report = Diagnostic::at(
                    codes::NOT_COUNTED,
                    field.span,
                    format!("`{name}` does not count its path instances"),
                    "needs a counted metapath",
                );
                report = match self.schema.metapaths.iter().find(|m| m.name == *name) {
                    Some(metapath) => report
                        .label(metapath.span, "the metapath is declared here")
                        .help(format!("write `counted` in front of its path: `metapath {name} = counted …`")),
                    None => report.help("declare a metapath of it: `metapath NAME = counted A -r-> B`"),
                };
                return Err(Box::new(report));
            }
            return Ok((EdgeData::Count, vec![]));
        }
        let relation = match (edges, &steps[..]) {
            (Some(relation), _) => Some(relation),
            (None, [step]) => Some(&self.schema.relations[step.relation as usize]),
            (None, _) => None,
        };
        let declared = relation.and_then(|r| Some((r, r.fields.iter().find(|f| f.name == field.name)?)));
        let Some((relation, declared)) = declared else {
            let mut report = Diagnostic::at(
                codes::NO_EDGE_DATA,
                field.span,
                format!("the edges of `{name}` have no `{}`", field.name),
                "no such edge value",
            );
            match relation {
                Some(relation) => {
                    report = report
                        .label(relation.span, "the relation is declared here")
                        .help(format!("declare it: `{{ {}: f32 }}` after the relation", field.name));
                    report = did_you_mean(report, &field.name, relation.fields.iter().map(|f| f.name.as_str()));
                }
                None => report = report.help("only relations have edge data; a counted metapath has `e.count`"),
            }
            return Err(Box::new(report));
        };
        edge_data_of(relation, declared, field.span)
    }

    /// `e.src.h`, `e.dst.in_degree` in `aggregate`.
    pub(crate) fn end_field(
        &mut self,
        direction: Direction,
        field: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Result<Term, Mistake> {
        let layer = scope.layer.expect("blocks are in layers");
        let graphs: Arc<[Graph]> = scope.graphs.iter().map(|&position| layer.graphs[position]).collect();
        let known = layer.vertex_fields.get(&field.name);
        let of_graphs = layer.graph_fields.get(&field.name).filter(|_| known.is_none());
        if let (Some(value), Direction::Out) = (of_graphs, direction)
            && value.ty.rows().all(|row| matches!(row.space, Space::Vertices(_)))
        {
            return Ok(Term::Value(self.of_reverses(field, span, scope)?));
        }
        let failed = layer.failed.contains(&field.name);
        let is_degree = matches!(field.name.as_str(), "in_degree" | "out_degree");
        let counted = if field.name == "in_degree" { Direction::In } else { Direction::Out };
        let mut rows = vec![];
        for (&position, &graph) in scope.graphs.iter().zip(&*graphs) {
            let (src, dst) = layer.ends[position];
            let end = if direction == Direction::In { dst } else { src };
            if failed && known.is_none_or(|known| !known.contains_key(&end)) {
                return Ok(Term::Error);
            }
            let at_end = if let Some(known) = known {
                let value = known.get(&end).ok_or_else(|| Box::new(self.missing_for(layer, field, end)))?;
                value.row.clone()
            } else if let Some(known) = layer.graph_fields.get(&field.name) {
                let Type::PerGraph(values) = &*known.ty else { unreachable!("a value for each semantic graph") };
                let row = values[position].clone();
                if row.space != Space::Vertices(end) || direction == Direction::Out {
                    return Err(Box::new(
                        Diagnostic::at(
                            codes::DIFFERENT_SPACES,
                            field.span,
                            format!("`{}` is a value of {}", field.name, show_space(&self.model.tables, row.space)),
                            "not a value at this end of the edge",
                        )
                        .help(format!(
                            "write `{1}.{0}` for an edge value, `{1}.dst.{0}` for an aggregated one",
                            field.name,
                            scope.variable_name()
                        )),
                    ));
                }
                row
            } else if is_degree {
                self.not_of_pairs(graph, "degrees", field.span)?;
                if counted != direction && src != dst {
                    return Err(Box::new(
                        Diagnostic::at(
                            codes::WRONG_SCOPE,
                            field.span,
                            format!("`{}` joins different vertex types", self.model.tables.graphs[graph.index()].name),
                            "this end has no such degree",
                        )
                        .help(format!("use `{0}.dst.in_degree` and `{0}.src.out_degree`", scope.variable_name())),
                    ));
                }
                Row::dense(Space::Vertices(end), vec![])
            } else if layer.absent.contains(&field.name) {
                return Ok(Term::Absent);
            } else {
                return Err(Box::new(self.unknown_field(layer, field, "the vertex")));
            };
            if self.edges_of(graph).is_some() && matches!(at_end.form, Form::Sparse(_) | Form::OneHot) {
                let message = format!("`{}` is read at the ends of edges before it is projected", field.name);
                return Err(Box::new(
                    Diagnostic::at(codes::SPARSE_VALUE, field.span, message, "sparse or one-hot features")
                        .help("project it first, in a `project` block: `h = v.x @ w`, and read `h`"),
                ));
            }
            rows.push(gathered(at_end, graph));
        }
        let kind = match (known, layer.graph_fields.get(&field.name)) {
            (Some(known), _) => {
                let parts: Vec<_> = known.iter().map(|(vertex, value)| (*vertex, value.id)).collect();
                let x = self.types(parts, span).id;
                match self.ends_of_edges(&graphs, direction) {
                    Some(at) => Kind::AtPosition(x, at),
                    None => Kind::AtEnd(direction, x, graphs),
                }
            }
            (None, Some(known)) => {
                let x = self.members(&known.clone(), &scope.graphs, span).id;
                match self.ends_of_edges(&graphs, direction) {
                    Some(at) => Kind::AtPosition(x, at),
                    None => Kind::AtEnd(direction, x, graphs),
                }
            }
            (None, None) => Kind::DegreeAtEnd { end: direction, counted, graphs },
        };
        Ok(Term::Value(self.expr(kind, Type::PerGraph(rows), span)))
    }
}

/// The kind of data that a field of a relation is, with its widths. A label is no data.
pub fn edge_data_of(
    relation: &RelationInfo,
    declared: &FieldInfo,
    span: Span,
) -> Result<(EdgeData, Vec<Width>), Mistake> {
    match declared.kind {
        FieldKind::Real { width, .. } => {
            Ok((EdgeData::Features, vec![Width { dim: Dim::Fixed(width), origin: declared.ty_span }]))
        }
        FieldKind::Time => Ok((EdgeData::Time, vec![])),
        kind if kind.is_feature() => Ok((EdgeData::Weight, vec![])),
        _ => {
            let name = format!("{}.{}", relation.name, declared.name);
            let message = format!("`{name}` is a label: it can only be compared with an output, in a loss");
            Err(Box::new(
                Diagnostic::at(codes::LABEL_AS_VALUE, span, message, "a label, used as a value")
                    .label(declared.ty_span, "declared here"),
            ))
        }
    }
}

/// The type of data of the edges of a graph.
pub fn row_of_data(data: EdgeData, graph: Graph, widths: Vec<Width>) -> Row {
    let form = if data == EdgeData::Time { Form::Time } else { Form::Dense };
    Row { space: Space::Edges(graph), widths, form }
}

/// A vertex value at an end of the edges. Sparse and one-hot values wait for their projection. A single row is the same
/// at every edge.
pub fn gathered(row: Row, graph: Graph) -> Row {
    if row.space == Space::Unit {
        return row;
    }
    let form = match row.form {
        Form::Sparse(_) => Form::SparseAtEnd,
        Form::OneHot => Form::OneHotAtEnd,
        other => other,
    };
    Row { space: Space::Edges(graph), widths: row.widths, form }
}
