//! Expressions: names, fields, operators. Functions are in `functions`, reductions in `reduce`.

use std::collections::BTreeMap;

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::dataflow::{Binding, InputDecl};
use hgnnc_ir::{BinaryOp, Direction, Graph, Op, Reduce, Space, Type, UnaryOp, Value};
use hgnnc_syntax::ast::{self, Expr, ExprKind, Ident};

use crate::consts::{arithmetic, as_dimension, bad_dimension, not_constant, not_finite};
use crate::elaborate::{Elaborator, Mistake, Place, Scope};
use crate::functions;
use crate::names::did_you_mean;
use crate::schema::FieldKind;
use crate::value::{Term, Val, ValKind, Width, show_dim, show_space, show_widths};

impl Elaborator<'_> {
    /// The meaning of an expression. Mistakes are reported and give [`Term::Error`].
    pub fn eval(&mut self, expr: &Expr, scope: &Scope<'_>) -> Term {
        match &expr.kind {
            ExprKind::Number(number) => Term::Number(*number),
            ExprKind::Bool(value) => Term::Bool(*value),
            ExprKind::Name(name) => {
                let result = self.name(name, expr.span, scope);
                self.settle(result)
            }
            ExprKind::Field(base, field) => self.field(base, field, scope),
            ExprKind::Unary(op, a) => {
                let a_term = self.eval(a, scope);
                self.unary_operator(*op, a_term, expr.span)
            }
            ExprKind::Binary(op, a, b) => {
                let left = self.eval(a, scope);
                // `false and …` does not look at the right, so that `given(x) and width(x) == n` works.
                match (op, &left) {
                    (ast::BinaryOp::And, Term::Bool(false)) => return Term::Bool(false),
                    (ast::BinaryOp::Or, Term::Bool(true)) => return Term::Bool(true),
                    _ => {}
                }
                let right = self.eval(b, scope);
                self.binary_operator(*op, (left, a.span), (right, b.span), expr.span)
            }
            ExprKind::Call(call) => self.call(call, expr.span, scope),
            // Shapes and class weights are read where they stand; anywhere else, a list means nothing.
            ExprKind::List(items) => {
                for item in items {
                    self.eval(item, scope);
                }
                Term::List
            }
            ExprKind::Bundle(items) => self.bundle(items, scope),
            ExprKind::If(condition, yes, no) => match self.eval(condition, scope) {
                Term::Bool(true) => self.eval(yes, scope),
                Term::Bool(false) => self.eval(no, scope),
                Term::Error => Term::Error,
                other => {
                    self.report(Diagnostic::at(
                        codes::NOT_BOOLEAN,
                        condition.span,
                        "a condition is `true` or `false` at compile time",
                        format!("this is {}", other.describe()),
                    ));
                    Term::Error
                }
            },
            ExprKind::Error => Term::Error,
        }
    }

    fn name(&mut self, name: &str, span: Span, scope: &Scope<'_>) -> Result<Term, Mistake> {
        if let Some(term) = scope.locals.get(name) {
            return Ok(term.clone());
        }
        if let Some(layer) = scope.layer {
            if let Some(term) = layer.arguments.get(name).or_else(|| layer.params.get(name)) {
                return Ok(term.clone());
            }
            if let Some(widths) = layer.dims.get(name) {
                return self.dim_variable(name, widths, span, scope);
            }
        }
        if let Some(number) = scope.consts.get(name) {
            return Ok(Term::Number(number));
        }
        if scope.consts.is_broken(name) {
            return Ok(Term::Error);
        }
        if functions::is_unary_function(name) {
            return Ok(Term::Function(name.to_string()));
        }
        if scope.place == Place::Model && name == "features" {
            return self.all_features(span);
        }
        let mut report =
            Diagnostic::at(codes::UNKNOWN_NAME, span, format!("`{name}` is not known here"), "unknown name");
        if functions::is_function(name) {
            let message = format!("`{name}` is a function that cannot be passed by its name");
            return Err(Box::new(
                Diagnostic::at(codes::UNKNOWN_NAME, span, message, "call it")
                    .help("functions of one value and no options can be passed: `relu`, `elu`, `gelu`, `tanh`, …"),
            ));
        }
        let mut known: Vec<&str> = scope.locals.keys().map(String::as_str).chain(scope.consts.names()).collect();
        if let Some(layer) = scope.layer {
            known.extend(layer.arguments.keys().map(String::as_str));
            known.extend(layer.dims.keys().map(String::as_str));
            known.extend(layer.params.keys().map(String::as_str));
            let is_field = layer.vertex_fields.contains_key(name) || layer.graph_fields.contains_key(name);
            if let (true, Some(variable)) = (is_field, scope.variable) {
                let end = if scope.place == Place::Aggregate { ".src" } else { "" };
                report = report.help(format!("`{name}` is a field: write `{}{end}.{name}`", variable.name));
                return Err(Box::new(report));
            }
        } else if self.schema.vertices.iter().any(|v| v.name == name) {
            report = report.help(format!("`{name}` is a vertex type: name one of its fields, as in `{name}.x`"));
            return Err(Box::new(report));
        }
        Err(Box::new(did_you_mean(report, name, known)))
    }

    /// A name bound to a width by `of x: V[in]`: it may differ between vertex types. In an `aggregate`
    /// block it is the width at the source.
    fn dim_variable(
        &self,
        name: &str,
        widths: &BTreeMap<hgnnc_ir::VertexType, Width>,
        span: Span,
        scope: &Scope<'_>,
    ) -> Result<Term, Mistake> {
        let of = |vertex| {
            widths.get(&vertex).copied().ok_or_else(|| {
                Box::new(Diagnostic::at(
                    codes::NOT_PROJECTED,
                    span,
                    format!("`{name}` has no value for vertex type `{}`", self.vertex_name(vertex)),
                    "the layer's input does not cover this type",
                ))
            })
        };
        match scope.place {
            Place::Project(vertex, _) | Place::Fuse(vertex, _) => Ok(Term::Width(of(vertex)?)),
            Place::Aggregate => {
                let layer = scope.layer.expect("aggregate blocks are in layers");
                let sources = scope.graphs.iter().map(|&g| of(layer.ends[g].0));
                Ok(Term::Widths(sources.collect::<Result<_, _>>()?))
            }
            Place::Model | Place::Layer => {
                let mut all = widths.values();
                match (all.next(), all.next()) {
                    (Some(only), None) => Ok(Term::Width(*only)),
                    _ => Err(Box::new(
                        Diagnostic::at(
                            codes::SHARED_SHAPE,
                            span,
                            format!("`{name}` differs between vertex types"),
                            "one width is needed here",
                        )
                        .help("declare the parameter in a `project` block"),
                    )),
                }
            }
        }
    }

    /// `features`: the features of every vertex type that has some.
    fn all_features(&mut self, span: Span) -> Result<Term, Mistake> {
        let mut all = BTreeMap::new();
        for (index, vertex) in self.schema.vertices.iter().enumerate() {
            if let Some(field) = vertex.fields.iter().position(|f| f.kind.is_feature()) {
                vertex.used.set(true);
                let vertex = hgnnc_ir::VertexType::new(index);
                all.insert(vertex, self.features(vertex, field, span));
            } else if self.schema.broken.iter().any(|field| field.starts_with(&format!("{}.", vertex.name))) {
                return Ok(Term::Error);
            }
        }
        if all.is_empty() {
            return Err(Box::new(
                Diagnostic::at(codes::NOT_PROJECTED, span, "no vertex type has features", "nothing to start from")
                    .help("declare `{ x: onehot }` or `{ x: embedding[64] }` for vertex types without features"),
            ));
        }
        Ok(Term::PerType(all))
    }

    fn bundle(&mut self, items: &[Expr], scope: &Scope<'_>) -> Term {
        let mut all = BTreeMap::new();
        let mut fine = true;
        for item in items {
            match self.eval(item, scope) {
                Term::PerType(values) => {
                    for (vertex, val) in values {
                        if all.insert(vertex, val).is_some() {
                            fine = false;
                            self.report(Diagnostic::at(
                                codes::DUPLICATE_NAME,
                                item.span,
                                format!("`{}` has two values in this bundle", self.vertex_name(vertex)),
                                "a second value",
                            ));
                        }
                    }
                }
                Term::Error => fine = false,
                other => {
                    fine = false;
                    let mut report = self.not_a_value(&other, item.span);
                    if !matches!(other, Term::Label(..) | Term::Record(_)) {
                        report.message = format!("a bundle holds values of vertex types, not {}", other.describe());
                    }
                    self.report(report);
                }
            }
        }
        if fine { Term::PerType(all) } else { Term::Error }
    }

    fn field(&mut self, base: &Expr, field: &Ident, scope: &Scope<'_>) -> Term {
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
        if let ExprKind::Field(inner, end) = &base.kind
            && is_variable(inner)
            && scope.place == Place::Aggregate
        {
            let direction = match end.name.as_str() {
                "src" => Direction::Out,
                "dst" => Direction::In,
                _ => {
                    self.report(Diagnostic::at(
                        codes::UNKNOWN_FIELD,
                        end.span,
                        "an edge has the ends `src` and `dst`",
                        "not an end",
                    ));
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
            && self.schema.vertices.iter().any(|v| v.name == *name)
        {
            let result = self.schema_field(name, field, span);
            return self.settle(result);
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
            Term::PerType(_) if scope.place != Place::Model => {
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
            Term::PerType(values) => {
                let Some(vertex) = self.schema.vertex(field, self.diagnostics) else { return Term::Error };
                let vertex = hgnnc_ir::VertexType::new(vertex);
                match values.get(&vertex) {
                    Some(val) => Term::PerType(BTreeMap::from([(vertex, val.clone())])),
                    None => {
                        let has: Vec<_> = values.keys().map(|v| format!("`{}`", self.vertex_name(*v))).collect();
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
                }
            }
            other => {
                self.report(Diagnostic::at(
                    codes::UNKNOWN_FIELD,
                    field.span,
                    format!("{} has no field `{}`", other.describe(), field.name),
                    "not a field",
                ));
                Term::Error
            }
        }
    }

    fn schema_field(&mut self, vertex: &str, field: &Ident, span: Span) -> Result<Term, Mistake> {
        let index = self.schema.vertices.iter().position(|v| v.name == vertex).expect("checked by the caller");
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
        let vertex = hgnnc_ir::VertexType::new(index);
        match info.fields[position].kind {
            FieldKind::Class(_) | FieldKind::MultiLabel(_) | FieldKind::Target(_) => Ok(Term::Label(vertex, position)),
            FieldKind::Number | FieldKind::Real { .. } | FieldKind::OneHot | FieldKind::Embedding(_) => {
                Ok(Term::PerType(BTreeMap::from([(vertex, self.features(vertex, position, span))])))
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
                Some(val) => Ok(Term::One(val.clone())),
                None if layer.failed.contains(&field.name) => Ok(Term::Error),
                None => Err(Box::new(self.missing_for(layer, field, vertex))),
            };
        }
        if in_fuse && let Some(values) = layer.graph_fields.get(&field.name) {
            let mine: Vec<Val> = scope.graphs.iter().map(|&g| values[g].clone()).collect();
            if let Some(edge) = mine.iter().find(|v| matches!(v.space(&self.flow), Space::Edges(_))) {
                let space = show_space(&self.flow, edge.space(&self.flow));
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
            return Ok(Term::PerGraph(mine));
        }
        if in_fuse && field.name == "in_degree" {
            let graphs: Vec<Graph> = scope.graphs.iter().map(|&g| layer.graphs[g]).collect();
            return Ok(Term::PerGraph(graphs.into_iter().map(|g| self.degree(g, Direction::In, span)).collect()));
        }
        if layer.absent.contains(&field.name) {
            return Ok(Term::Absent);
        }
        if layer.failed.contains(&field.name) {
            return Ok(Term::Error);
        }
        Err(Box::new(self.unknown_field(layer, field, "the vertex")))
    }

    fn missing_for(
        &self,
        layer: &crate::layer::LayerCx<'_>,
        field: &Ident,
        vertex: hgnnc_ir::VertexType,
    ) -> Diagnostic {
        let mut report = Diagnostic::at(
            codes::NOT_PROJECTED,
            field.span,
            format!("nothing provides `{}` for vertex type `{}`", field.name, self.vertex_name(vertex)),
            "has no value for this type",
        )
        .label(self.schema.vertices[vertex.index()].span, "the vertex type is declared here")
        .help(format!(
            "give `{}` features, such as `{{ x: onehot }}`, or add it to what stands after `of` where the layer is used",
            self.vertex_name(vertex)
        ));
        if let Some(assigned) = layer.field_spans.get(&field.name) {
            report = report.label(*assigned, "assigned here for other vertex types");
        }
        report
    }

    fn unknown_field(&self, layer: &crate::layer::LayerCx<'_>, field: &Ident, whose: &str) -> Diagnostic {
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
        if let Some(values) = layer.graph_fields.get(&field.name) {
            let mine: Vec<Val> = scope.graphs.iter().map(|&g| values[g].clone()).collect();
            if mine.iter().any(|v| matches!(v.space(&self.flow), Space::Vertices(_))) {
                return Err(Box::new(
                    Diagnostic::at(
                        codes::DIFFERENT_SPACES,
                        field.span,
                        format!("`{}` has one value per vertex, not per edge", field.name),
                        "used as an edge value",
                    )
                    .help(format!("write `e.dst.{}` for the value at the destination", field.name)),
                ));
            }
            return Ok(Term::PerGraph(mine));
        }
        if layer.absent.contains(&field.name) {
            return Ok(Term::Absent);
        }
        if layer.failed.contains(&field.name) {
            return Ok(Term::Error);
        }
        if layer.vertex_fields.contains_key(&field.name) {
            return Err(Box::new(
                Diagnostic::at(
                    codes::DIFFERENT_SPACES,
                    field.span,
                    format!("`{}` is a field of vertices, not of edges", field.name),
                    "which end is meant?",
                )
                .help(format!("write `e.src.{0}` or `e.dst.{0}`", field.name)),
            ));
        }
        let mut values = vec![];
        for &position in &scope.graphs {
            values.push(self.edge_data(layer, position, field, span)?);
        }
        Ok(Term::PerGraph(values))
    }

    /// Data of the edges themselves: what the relation declares, or the number of path instances.
    fn edge_data(
        &mut self,
        layer: &crate::layer::LayerCx<'_>,
        position: usize,
        field: &Ident,
        span: Span,
    ) -> Result<Val, Mistake> {
        let graph = layer.graphs[position];
        let decl = &self.flow.graphs[graph.index()];
        let (name, counted, steps) = (decl.name.clone(), decl.counted, decl.steps.clone());
        let space = Space::Edges(graph);
        let input = |this: &mut Self, ty: Type, binding| {
            let name = format!("{name}.{}", field.name);
            let input = this.flow.declare_input(InputDecl { name, ty, binding });
            this.emit(Op::Input(input), &[], span)
        };
        if field.name == "count" {
            if !counted {
                let mut report = Diagnostic::at(
                    codes::NOT_COUNTED,
                    field.span,
                    format!("`{name}` does not count its path instances"),
                    "needs a counted metapath",
                );
                report = match self.schema.metapaths.iter().find(|m| m.name == name) {
                    Some(metapath) => report
                        .label(metapath.span, "the metapath is declared here")
                        .help(format!("write `counted` in front of its path: `metapath {name} = counted …`")),
                    None => report.help("declare a metapath of it: `metapath NAME = counted A -r-> B`"),
                };
                return Err(Box::new(report));
            }
            let value = input(self, Type::fixed(space, &[]), Binding::EdgeCount(graph));
            return Ok(Val { kind: ValKind::Stored(value), widths: vec![] });
        }
        let relation = match steps[..] {
            [step] => Some(&self.schema.relations[step.relation as usize]),
            _ => None,
        };
        let declared = relation.and_then(|r| r.fields.iter().find(|f| f.name == field.name));
        let Some(declared) = declared else {
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
        let origin = declared.ty_span;
        let (value, widths) = match declared.kind {
            FieldKind::Real { width, .. } => {
                let ty = Type::fixed(space, &[width]);
                let value = input(self, ty, Binding::EdgeFeatures(graph));
                (value, vec![Width { dim: hgnnc_ir::Dim::Fixed(width), origin }])
            }
            _ => (input(self, Type::fixed(space, &[]), Binding::EdgeWeight(graph)), vec![]),
        };
        Ok(Val { kind: ValKind::Stored(value), widths })
    }

    /// `e.src.h`, `e.dst.in_degree` in `aggregate`.
    fn end_field(
        &mut self,
        direction: Direction,
        field: &Ident,
        span: Span,
        scope: &Scope<'_>,
    ) -> Result<Term, Mistake> {
        let layer = scope.layer.expect("blocks are in layers");
        let mut values = vec![];
        for &position in &scope.graphs {
            let graph = layer.graphs[position];
            let (src, dst) = layer.ends[position];
            let end = if direction == Direction::In { dst } else { src };
            let known = layer.vertex_fields.get(&field.name);
            let failed = layer.failed.contains(&field.name);
            if failed && known.is_none_or(|known| !known.contains_key(&end)) {
                return Ok(Term::Error);
            }
            let at_end = if let Some(known) = known {
                known.get(&end).cloned().ok_or_else(|| Box::new(self.missing_for(layer, field, end)))?
            } else if let Some(known) = layer.graph_fields.get(&field.name) {
                let val = known[position].clone();
                if val.space(&self.flow) != Space::Vertices(end) || direction == Direction::Out {
                    return Err(Box::new(
                        Diagnostic::at(
                            codes::DIFFERENT_SPACES,
                            field.span,
                            format!("`{}` is a value of {}", field.name, show_space(&self.flow, val.space(&self.flow))),
                            "not a value at this end of the edge",
                        )
                        .help(format!(
                            "write `e.{0}` for an edge value, `e.dst.{0}` for an aggregated one",
                            field.name
                        )),
                    ));
                }
                val
            } else if matches!(field.name.as_str(), "in_degree" | "out_degree") {
                let counted = if field.name == "in_degree" { Direction::In } else { Direction::Out };
                if counted != direction && src != dst {
                    return Err(Box::new(
                        Diagnostic::at(
                            codes::WRONG_SCOPE,
                            field.span,
                            format!("`{}` joins different vertex types", self.flow.graphs[graph.index()].name),
                            "this end has no such degree",
                        )
                        .help("use `e.dst.in_degree` and `e.src.out_degree`"),
                    ));
                }
                self.degree(graph, counted, span)
            } else if layer.absent.contains(&field.name) {
                return Ok(Term::Absent);
            } else {
                return Err(Box::new(self.unknown_field(layer, field, "the vertex")));
            };
            values.push(self.gather(at_end, graph, direction, span));
        }
        Ok(Term::PerGraph(values))
    }

    /// A vertex value at an end of the edges. Sparse and one-hot values wait for their projection.
    pub fn gather(&mut self, val: Val, graph: Graph, direction: Direction, span: Span) -> Val {
        // A single row is the same at every edge.
        if val.space(&self.flow) == Space::Unit {
            return val;
        }
        let kind = match val.kind {
            ValKind::Stored(value) if !self.flow.is_sparse(value) => {
                let op = if direction == Direction::In { Op::GatherDst(graph) } else { Op::GatherSrc(graph) };
                ValKind::Stored(self.emit(op, &[value], span))
            }
            other => ValKind::AtEnd(Box::new(other), graph, direction),
        };
        Val { kind, ..val }
    }

    /// The number of in-edges (or out-edges) of each vertex at that end.
    pub fn degree(&mut self, graph: Graph, direction: Direction, span: Span) -> Val {
        let one = self.emit(Op::Const(1.0), &[], span);
        let ones = self.emit(Op::Broadcast(Type::fixed(Space::Edges(graph), &[])), &[one], span);
        let value = self.emit(Op::Segment { graph, direction, reduce: Reduce::Sum }, &[ones], span);
        Val { kind: ValKind::Stored(value), widths: vec![] }
    }

    fn unary_operator(&mut self, op: ast::UnaryOp, a: Term, span: Span) -> Term {
        match (op, a) {
            (_, Term::Error) => Term::Error,
            (ast::UnaryOp::Neg, Term::Number(number)) => Term::Number(-number),
            (ast::UnaryOp::Neg, a) => self.map(a, span, |this, val| this.apply_unary(UnaryOp::Neg, val, span)),
            (ast::UnaryOp::Not, Term::Bool(value)) => Term::Bool(!value),
            (ast::UnaryOp::Not, other) => {
                self.report(Diagnostic::at(
                    codes::NOT_BOOLEAN,
                    span,
                    "`not` takes `true` or `false`",
                    format!("this is {}", other.describe()),
                ));
                Term::Error
            }
        }
    }

    fn binary_operator(
        &mut self,
        op: ast::BinaryOp,
        (a, a_span): (Term, Span),
        (b, b_span): (Term, Span),
        span: Span,
    ) -> Term {
        use ast::BinaryOp as B;
        if matches!(a, Term::Error) || matches!(b, Term::Error) {
            return Term::Error;
        }
        // What is no value at all is said of the side that it is.
        let truths = matches!(op, B::Or | B::And | B::Eq | B::Ne | B::Lt | B::Le | B::Gt | B::Ge);
        for (side, at) in [(&a, a_span), (&b, b_span)] {
            let is_value = match side {
                Term::Absent | Term::Function(_) | Term::List | Term::Record(_) | Term::Label(..) => false,
                Term::Bool(_) => truths,
                _ => true,
            };
            if !is_value {
                let report = self.not_a_value(side, at);
                self.report(report);
                return Term::Error;
            }
        }
        let elementwise = match op {
            B::Or | B::And => {
                return match (a, b) {
                    (Term::Bool(a), Term::Bool(b)) => Term::Bool(if op == B::Or { a || b } else { a && b }),
                    (Term::Bool(_), other) | (other, _) => {
                        self.report(Diagnostic::at(
                            codes::NOT_BOOLEAN,
                            span,
                            "`and` and `or` take `true` or `false`",
                            format!("one side is {}", other.describe()),
                        ));
                        Term::Error
                    }
                };
            }
            B::Eq | B::Ne | B::Lt | B::Le | B::Gt | B::Ge => return self.compare(op, a, b, span),
            B::MatMul => return self.map2(a, b, span, |this, a, b| this.product(a, a_span, b, b_span, span)),
            B::Add => BinaryOp::Add,
            B::Sub => BinaryOp::Sub,
            B::Mul => BinaryOp::Mul,
            B::Div => BinaryOp::Div,
        };
        // Widths that are known are numbers, so `heads * hidden` and `width(v.x) / 2` are too.
        if let (Some(a), Some(b)) = (known_number(&a), known_number(&b)) {
            let number = arithmetic(op, a, b).expect("arithmetic operators");
            if !number.is_finite() {
                self.report(not_finite(span, number));
                return Term::Error;
            }
            return Term::Number(number);
        }
        self.map2(a, b, span, |this, a, b| this.elementwise(elementwise, a, a_span, b, b_span, span))
    }

    fn compare(&mut self, op: ast::BinaryOp, a: Term, b: Term, span: Span) -> Term {
        use ast::BinaryOp as B;
        if let (Some(a), Some(b)) = (known_number(&a), known_number(&b)) {
            return Term::Bool(match op {
                B::Eq => a == b,
                B::Ne => a != b,
                B::Lt => a < b,
                B::Le => a <= b,
                B::Gt => a > b,
                _ => a >= b,
            });
        }
        match (op, &a, &b) {
            (B::Eq | B::Ne, Term::Bool(a), Term::Bool(b)) => return Term::Bool((a == b) == (op == B::Eq)),
            (B::Eq | B::Ne, Term::Width(a), Term::Width(b)) => return Term::Bool((a.dim == b.dim) == (op == B::Eq)),
            // A symbolic width equals no number.
            (B::Eq | B::Ne, Term::Width(_), Term::Number(_)) | (B::Eq | B::Ne, Term::Number(_), Term::Width(_)) => {
                return Term::Bool(op == B::Ne);
            }
            _ => {}
        }
        let mut report = not_constant(span);
        report.notes.push(format!("compares {} with {}", a.describe(), b.describe()));
        self.report(report);
        Term::Error
    }

    /// Applies `f` to every value of a term.
    pub fn map(&mut self, a: Term, span: Span, mut f: impl FnMut(&mut Self, Val) -> Result<Val, Mistake>) -> Term {
        let result = match a {
            Term::One(val) => f(self, val).map(Term::One),
            Term::PerGraph(vals) => {
                vals.into_iter().map(|val| f(self, val)).collect::<Result<_, _>>().map(Term::PerGraph)
            }
            Term::PerType(vals) => {
                vals.into_iter().map(|(v, val)| Ok((v, f(self, val)?))).collect::<Result<_, _>>().map(Term::PerType)
            }
            Term::PerEdge(vals) => {
                vals.into_iter().map(|(g, val)| Ok((g, f(self, val)?))).collect::<Result<_, _>>().map(Term::PerEdge)
            }
            Term::Error => Ok(Term::Error),
            Term::Number(number) => {
                let val = self.constant(number, span);
                f(self, val).map(Term::One)
            }
            Term::Width(Width { dim: hgnnc_ir::Dim::Fixed(extent), .. }) => {
                let val = self.constant(extent as f64, span);
                f(self, val).map(Term::One)
            }
            other => Err(Box::new(self.not_a_value(&other, span))),
        };
        self.settle(result)
    }

    /// Applies `f` to every pair of values of two terms; single values meet every member of a family.
    pub fn map2(
        &mut self,
        a: Term,
        b: Term,
        span: Span,
        mut f: impl FnMut(&mut Self, Val, Val) -> Result<Val, Mistake>,
    ) -> Term {
        let result = match (a, b) {
            (Term::Error, _) | (_, Term::Error) => Ok(Term::Error),
            (Term::PerGraph(a), Term::PerGraph(b)) => {
                a.into_iter().zip(b).map(|(a, b)| f(self, a, b)).collect::<Result<_, _>>().map(Term::PerGraph)
            }
            (Term::PerType(a), Term::PerType(mut b)) => {
                if a.len() != b.len() || a.keys().any(|v| !b.contains_key(v)) {
                    let names = |keys: Vec<&hgnnc_ir::VertexType>| {
                        keys.into_iter().map(|v| format!("`{}`", self.vertex_name(*v))).collect::<Vec<_>>().join(", ")
                    };
                    Err(Box::new(
                        Diagnostic::at(
                            codes::DIFFERENT_SPACES,
                            span,
                            "the two sides have values of different vertex types",
                            format!("left: {}; right: {}", names(a.keys().collect()), names(b.keys().collect())),
                        )
                        .help("select one type with `.Type`, as in `h.Paper`"),
                    ))
                } else {
                    a.into_iter()
                        .map(|(v, a)| {
                            let b = b.remove(&v).expect("keys were compared");
                            Ok((v, f(self, a, b)?))
                        })
                        .collect::<Result<_, _>>()
                        .map(Term::PerType)
                }
            }
            (a, b) => match (self.single(a, span), self.single(b, span)) {
                (Ok(Ok(a)), Ok(Ok(b))) => f(self, a, b).map(Term::One),
                (Ok(Ok(a)), Ok(Err(family))) => return self.map(family, span, |this, b| f(this, a.clone(), b)),
                (Ok(Err(family)), Ok(Ok(b))) => return self.map(family, span, |this, a| f(this, a, b.clone())),
                (Err(mistake), _) | (_, Err(mistake)) => Err(mistake),
                (Ok(Err(a)), Ok(Err(b))) => Err(Box::new(Diagnostic::at(
                    codes::DIFFERENT_SPACES,
                    span,
                    format!("{} and {} do not combine", a.describe(), b.describe()),
                    "different kinds of families",
                ))),
            },
        };
        self.settle(result)
    }

    /// A single value, or the family that it is.
    fn single(&mut self, term: Term, span: Span) -> Result<Result<Val, Term>, Mistake> {
        match term {
            Term::One(val) => Ok(Ok(val)),
            Term::Number(number) => Ok(Ok(self.constant(number, span))),
            Term::Width(Width { dim: hgnnc_ir::Dim::Fixed(extent), .. }) => Ok(Ok(self.constant(extent as f64, span))),
            family @ (Term::PerGraph(_) | Term::PerType(_) | Term::PerEdge(_)) => Ok(Err(family)),
            other => Err(Box::new(self.not_a_value(&other, span))),
        }
    }

    /// The report of a term where a value is needed.
    pub fn not_a_value(&self, term: &Term, span: Span) -> Diagnostic {
        match term {
            Term::Label(vertex, field) => {
                let info = &self.schema.vertices[vertex.index()];
                Diagnostic::at(
                    codes::LABEL_AS_VALUE,
                    span,
                    format!(
                        "`{}.{}` is a label: it can only be compared with an output, in a loss",
                        info.name, info.fields[*field].name
                    ),
                    "a label, used as a value",
                )
                .label(info.fields[*field].span, "declared as a label here")
            }
            Term::Absent => Diagnostic::at(
                codes::NOT_A_VALUE,
                span,
                "this input was not given where the layer is used",
                "has no value",
            )
            .help("ask with `if given(…) { … } else { … }`"),
            Term::Record(results) => {
                let names: Vec<_> = results.iter().map(|(n, _)| format!("`.{n}`")).collect();
                Diagnostic::at(codes::NOT_A_VALUE, span, "the layer has several results", "which one is meant?")
                    .help(format!("add {}", names.join(" or ")))
            }
            other => Diagnostic::at(
                codes::NOT_A_VALUE,
                span,
                format!("{} cannot be used as a value", other.describe()),
                "a value is needed here",
            ),
        }
    }

    /// `f(a)` for one value.
    pub fn apply_unary(&mut self, op: UnaryOp, a: Val, span: Span) -> Result<Val, Mistake> {
        let value = self.stored(&a, span)?;
        if self.flow.is_sparse(value) && !op.preserves_zero() {
            return Err(Box::new(self.fills_zeros(&a, span)));
        }
        Ok(Val { kind: ValKind::Stored(self.emit(Op::Unary(op), &[value], span)), ..a })
    }

    /// The value in the program, where it is not sparse.
    pub fn dense(&mut self, val: &Val, span: Span) -> Result<Value, Mistake> {
        let value = self.stored(val, span)?;
        if self.flow.is_sparse(value) { Err(Box::new(self.fills_zeros(val, span))) } else { Ok(value) }
    }

    fn fills_zeros(&self, val: &Val, span: Span) -> Diagnostic {
        let report = Diagnostic::at(
            codes::SPARSE_VALUE,
            span,
            "this would turn the zeros of sparse features into something else",
            "needs dense values",
        )
        .help("project the features first (`@ w`), or declare them without `sparse`");
        match val.widths.last() {
            Some(width) => report.label(width.origin, "declared sparse here"),
            None => report,
        }
    }

    /// `a ∘ b`, element by element.
    pub fn elementwise(
        &mut self,
        op: BinaryOp,
        a: Val,
        a_span: Span,
        b: Val,
        b_span: Span,
        span: Span,
    ) -> Result<Val, Mistake> {
        let (left, right) = (self.stored(&a, a_span)?, self.stored(&b, b_span)?);
        let (a_space, b_space) = (a.space(&self.flow), b.space(&self.flow));
        if a_space != b_space && a_space != Space::Unit && b_space != Space::Unit {
            let mut report = Diagnostic::at(
                codes::DIFFERENT_SPACES,
                span,
                "the two sides have rows for different things",
                "cannot be combined element by element",
            )
            .label(a_span, format!("has {}", show_space(&self.flow, a_space)))
            .label(b_span, format!("has {}", show_space(&self.flow, b_space)));
            report = match (a_space, b_space) {
                (Space::Edges(_), Space::Vertices(_)) | (Space::Vertices(_), Space::Edges(_)) => report
                    .help("write `e.dst.…` for a vertex value at the edge, or reduce the edge value `over in_edges`"),
                _ => report,
            };
            return Err(Box::new(report));
        }
        let (a_dims, b_dims) = (a.dims(), b.dims());
        if !a_dims.starts_with(&b_dims) && !b_dims.starts_with(&a_dims) {
            return Err(Box::new(self.shape_mismatch(&a, a_span, &b, b_span, span)));
        }
        match self.flow.push(Op::Binary(op), &[left, right]) {
            Ok(value) => {
                let widths = if a_dims.len() >= b_dims.len() { a.widths } else { b.widths };
                self.flow.values[value.index()].origin =
                    Some(hgnnc_ir::Origin { file: span.file.0, start: span.start, end: span.end });
                Ok(Val { kind: ValKind::Stored(value), widths })
            }
            // Spaces and dimensions fit, so it is about the zeros.
            Err(_) => {
                let sparse = if self.flow.is_sparse(left) { &a } else { &b };
                Err(Box::new(self.fills_zeros(sparse, span)))
            }
        }
    }

    fn shape_mismatch(&self, a: &Val, a_span: Span, b: &Val, b_span: Span, span: Span) -> Diagnostic {
        let show = |val: &Val| show_widths(&self.flow, &val.widths);
        let mut report = Diagnostic::at(
            codes::SHAPE_MISMATCH,
            span,
            format!("{} and {} cannot be combined element by element", show(a), show(b)),
            "shapes do not fit",
        )
        .label(a_span, format!("is {}", show(a)))
        .label(b_span, format!("is {}", show(b)));
        // The first dimension that differs is where to look.
        if let Some((x, y)) = a.widths.iter().zip(&b.widths).find(|(x, y)| x.dim != y.dim) {
            for width in [x, y] {
                if width.origin != a_span && width.origin != b_span {
                    report = report.label(width.origin, format!("{} comes from here", show_dim(&self.flow, width.dim)));
                }
            }
        }
        report.help("shapes fit where one is the beginning of the other: [8] with [8, 64]")
    }

    /// `a @ b`: over the last dimension of `a` and the dimension of `b` at the same place; all dimensions
    /// before it are batch dimensions that both share.
    pub fn product(&mut self, a: Val, a_span: Span, b: Val, b_span: Span, span: Span) -> Result<Val, Mistake> {
        if b.space(&self.flow) != Space::Unit {
            return Err(Box::new(
                Diagnostic::at(
                    codes::DIFFERENT_SPACES,
                    b_span,
                    "the right side of `@` is a parameter",
                    format!("has {}", show_space(&self.flow, b.space(&self.flow))),
                )
                .help("`dot(a, b)` multiplies two values row by row"),
            ));
        }
        let fits = !a.widths.is_empty()
            && b.widths.len() >= a.widths.len()
            && a.widths.iter().zip(&b.widths).all(|(x, y)| x.dim == y.dim);
        if !fits {
            return Err(Box::new(self.width_mismatch(&a, a_span, &b, b_span, span)));
        }
        let batch = a.widths.len() - 1;
        if let ValKind::BlockDiagonal(blocks) = b.kind {
            if batch > 0 {
                return Err(Box::new(self.width_mismatch(&a, a_span, &b, b_span, span)));
            }
            return self.block_product(a, a_span, blocks, b.widths[1], span);
        }
        let weight = self.stored(&b, b_span)?;
        let widths: Vec<Width> = a.widths[..batch].iter().chain(&b.widths[batch + 1..]).copied().collect();
        let kind = self.project(a.kind, weight, batch, span);
        Ok(Val { kind, widths })
    }

    /// One-hot features times a weight are the weight's rows; the product happens before the gather.
    fn project(&mut self, a: ValKind, weight: Value, batch: usize, span: Span) -> ValKind {
        match a {
            ValKind::Stored(value) => ValKind::Stored(self.emit(Op::MatMul { batch }, &[value, weight], span)),
            ValKind::OneHot(vertex) => ValKind::Stored(self.emit(Op::Rows(vertex), &[weight], span)),
            ValKind::AtEnd(inner, graph, direction) => {
                let kind = self.project(*inner, weight, batch, span);
                self.gather(Val { kind, widths: vec![] }, graph, direction, span).kind
            }
            ValKind::BlockDiagonal(_) => unreachable!("weights are not projected: they have no rows"),
        }
    }

    fn block_product(&mut self, a: Val, a_span: Span, blocks: Value, out: Width, span: Span) -> Result<Val, Mistake> {
        let x = self.stored(&a, a_span)?;
        let dims = self.flow.ty(blocks).dims.clone();
        if self.flow.is_sparse(x) {
            return Err(Box::new(self.fills_zeros(&a, a_span)));
        }
        let split = self.emit(Op::Reshape(dims[..2].to_vec()), &[x], span);
        let product = self.emit(Op::MatMul { batch: 1 }, &[split, blocks], span);
        let value = self.emit(Op::Reshape(vec![out.dim]), &[product], span);
        Ok(Val { kind: ValKind::Stored(value), widths: vec![out] })
    }

    fn width_mismatch(&self, a: &Val, a_span: Span, b: &Val, b_span: Span, span: Span) -> Diagnostic {
        let show = |val: &Val| show_widths(&self.flow, &val.widths);
        let mut report = Diagnostic::at(
            codes::WIDTH_MISMATCH,
            span,
            format!("cannot multiply {} by {}", show(a), show(b)),
            "widths do not fit",
        )
        .label(a_span, format!("is {}", show(a)))
        .label(b_span, format!("is {}", show(b)));
        let pair = a.widths.iter().zip(&b.widths).find(|(x, y)| x.dim != y.dim);
        if let Some((x, y)) = pair {
            for width in [x, y] {
                if width.origin != a_span && width.origin != b_span {
                    report = report.label(width.origin, format!("{} comes from here", show_dim(&self.flow, width.dim)));
                }
            }
        }
        match (a.widths.len(), b.widths.len()) {
            (0, _) => report.help("the left side is a single number per row: use `*`"),
            (1, _) => report.help("the last width on the left must equal the first on the right"),
            _ => report.help("`flatten(…)` joins the dimensions of the left side into one"),
        }
    }

    /// A compile-time number.
    pub fn number(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<f64> {
        let term = self.eval(expr, scope);
        if matches!(term, Term::Error) {
            return None;
        }
        let number = known_number(&term);
        if number.is_none() {
            self.report(found_instead(term.describe(), expr.span));
        }
        number
    }

    /// A width, for each graph in scope where it differs.
    pub fn width(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<Result<Width, Vec<Width>>> {
        match self.eval(expr, scope) {
            Term::Error => None,
            Term::Width(width) => Some(Ok(width)),
            Term::Widths(widths) => Some(Err(widths)),
            Term::Number(number) => match as_dimension(number) {
                Some(extent) => Some(Ok(Width { dim: hgnnc_ir::Dim::Fixed(extent), origin: expr.span })),
                None => {
                    self.report(bad_dimension(expr.span, number));
                    None
                }
            },
            other => {
                self.report(found_instead(other.describe(), expr.span));
                None
            }
        }
    }

    /// A width that is the same for all graphs in scope.
    pub fn one_width(&mut self, expr: &Expr, scope: &Scope<'_>) -> Option<Width> {
        let widths = match self.width(expr, scope)? {
            Ok(width) => return Some(width),
            Err(widths) => widths,
        };
        let first = *widths.first()?;
        let Some(other) = widths.iter().find(|w| w.dim != first.dim) else { return Some(first) };
        self.report(
            Diagnostic::at(
                codes::SHARED_SHAPE,
                expr.span,
                "this width differs between semantic graphs",
                format!("{} and {}", show_dim(&self.flow, first.dim), show_dim(&self.flow, other.dim)),
            )
            .label(first.origin, "one width comes from here")
            .label(other.origin, "the other from here"),
        );
        None
    }

    /// Refuses shapes with more elements than anything can hold, before anything multiplies their extents.
    pub fn check_size(&self, widths: &[Width], span: Span) -> Result<(), Mistake> {
        const MOST: usize = 1 << 40;
        let mut elems: usize = 1;
        for extent in widths.iter().filter_map(|w| w.dim.fixed()) {
            elems = elems.saturating_mul(extent);
        }
        if elems <= MOST {
            return Ok(());
        }
        Err(Box::new(Diagnostic::at(
            codes::BAD_DIMENSION,
            span,
            format!("{} has too many elements", show_widths(&self.flow, widths)),
            "no machine could hold it",
        )))
    }
}

/// The report of something else than a number that is known at compile time.
fn found_instead(found: &str, span: Span) -> Diagnostic {
    let mut report = not_constant(span);
    if let Some(label) = &mut report.primary {
        label.text = format!("this is {found}");
    }
    report
}

/// The number that a term is, where it is one.
pub fn known_number(term: &Term) -> Option<f64> {
    match term {
        Term::Number(number) => Some(*number),
        Term::Width(Width { dim: hgnnc_ir::Dim::Fixed(extent), .. }) => Some(*extent as f64),
        Term::Widths(widths) => match widths.first() {
            Some(Width { dim: hgnnc_ir::Dim::Fixed(extent), .. })
                if widths.iter().all(|w| w.dim == hgnnc_ir::Dim::Fixed(*extent)) =>
            {
                Some(*extent as f64)
            }
            _ => None,
        },
        _ => None,
    }
}
