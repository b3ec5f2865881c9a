//! The use of a layer: arguments, the family, inputs, blocks, results.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use hgnnc_declare::arguments::match_arguments;
use hgnnc_declare::imports::LayerDef;
use hgnnc_declare::names::duplicate;
use hgnnc_declare::schema::{GraphRef, duplicate_graph};
use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_hir::{Dim, ExprId, ExprKind as Kind, Item, LayerUse, Row, Type, UseId, Width};
use hgnnc_ir::{Graph, Space, VertexType};
use hgnnc_syntax::ast::{self, Arg, Call, Ident, ParamKind, RowsOf, ValueRows};
use rustc_hash::FxHashMap;

use crate::bound_widths::BoundWidth;
use crate::checker::{Checker, Frame, Place, Scope};
use crate::eval::{Known, known_number};
use crate::functions::{is_function, is_unary_function};
use crate::graph_rows::{GraphRows, misplaced_rows};
use crate::value::{Single, Term, Typed};

/// A layer in use.
pub struct LayerCx<'s> {
    /// The layer's syntax tree.
    pub layer: &'s ast::Layer,
    /// The use in the model.
    pub id: UseId,
    /// Values of the compile-time parameters.
    pub arguments: HashMap<String, Term>,
    /// Its `aggregate` blocks run over path instances, not over edges.
    pub of_paths: bool,
    /// The semantic graphs of the family.
    pub graphs: Vec<Graph>,
    /// These graphs, as the use of the layer names them.
    pub members: Vec<GraphRef>,
    /// Source and destination type of each semantic graph.
    pub ends: Vec<(VertexType, VertexType)>,
    /// Positions of the semantic graphs that end in each vertex type.
    pub into: FxHashMap<VertexType, Vec<usize>>,
    /// The vertex types that type variables stand for.
    pub types: HashMap<String, VertexType>,
    /// Widths bound by the inputs.
    pub dims: HashMap<String, BoundWidth>,
    /// Parameters declared between the blocks.
    pub params: HashMap<String, Term>,
    /// The declarations of these parameters.
    pub param_spans: HashMap<String, Span>,
    /// Inputs and assigned values with one row per vertex, by vertex type.
    pub vertex_fields: HashMap<String, BTreeMap<VertexType, Single>>,
    /// Inputs and assigned values with one value for each semantic graph.
    pub graph_fields: HashMap<String, Typed>,
    /// Values that `fuse` blocks assigned for the semantic graphs of some vertex types, not of all yet, each with the
    /// positions of its graphs.
    pub graph_rows: HashMap<String, Vec<(Typed, Vec<usize>)>>,
    /// Fields of a value for each semantic graph, by graph: inputs with all that they have, and values of `fuse`.
    pub by_graph: HashMap<String, Typed>,
    /// The vertex types that inputs have rows of.
    pub of_inputs: BTreeSet<VertexType>,
    /// Fields that blocks assigned.
    pub assigned: HashSet<String>,
    /// The first assignment of each field.
    pub field_spans: HashMap<String, Span>,
    /// Optional inputs that were not given.
    pub absent: HashSet<String>,
    /// The argument for each input.
    pub input_spans: HashMap<String, Span>,
    /// The expressions of the inputs, in the order of evaluation.
    pub inputs: Vec<(String, ExprId)>,
    /// Fields whose assignment was wrong and is reported.
    pub failed: HashSet<String>,
    /// The family in the call, if it names one.
    pub family_span: Option<Span>,
    /// The body so far.
    pub body: Vec<Item>,
}

impl<'s> LayerCx<'s> {
    /// A use of which nothing is bound.
    pub fn new(layer: &'s ast::Layer, id: UseId) -> Self {
        Self {
            layer,
            id,
            arguments: HashMap::new(),
            of_paths: crate::paths::of_paths(layer),
            graphs: vec![],
            members: vec![],
            ends: vec![],
            into: FxHashMap::default(),
            types: HashMap::new(),
            dims: HashMap::new(),
            params: HashMap::new(),
            param_spans: HashMap::new(),
            vertex_fields: HashMap::new(),
            graph_fields: HashMap::new(),
            graph_rows: HashMap::new(),
            by_graph: HashMap::new(),
            of_inputs: BTreeSet::new(),
            assigned: HashSet::new(),
            field_spans: HashMap::new(),
            absent: HashSet::new(),
            input_spans: HashMap::new(),
            inputs: vec![],
            failed: HashSet::new(),
            family_span: None,
            body: vec![],
        }
    }
}

impl LayerCx<'_> {
    /// Forgets the values that a field had for each semantic graph, where it is assigned anew.
    pub fn forget_graph_field(&mut self, name: &str) {
        self.graph_fields.remove(name);
        self.graph_rows.remove(name);
        self.by_graph.remove(name);
    }
}

/// The names that a layer has for widths, by where these come from.
fn width_names(cx: &LayerCx<'_>) -> Vec<(Span, String)> {
    let mut names: Vec<(Span, String)> = vec![];
    for param in &cx.layer.params {
        if let Some(Term::Width(width)) = cx.arguments.get(&param.name.name) {
            names.push((width.origin, param.name.name.clone()));
        }
    }
    names
}

impl<'a> Checker<'a> {
    /// `HanConv(hidden: 8) over [PAP, PSP] of Paper.x`
    pub(crate) fn use_layer(&mut self, def: LayerDef<'a>, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        if !matches!(scope.place, Place::Model | Place::Composed) {
            self.report(
                Diagnostic::at(
                    codes::MODEL_ONLY,
                    call.callee.span,
                    format!("layer `{}` cannot be used inside a block", call.callee.name),
                    "layers are put together in models, and in layers without blocks",
                )
                .help("use both layers in the model, one `of` the other, or in a layer that has statements instead of blocks"),
            );
            return Term::Error;
        }
        if let Some(outer) = self.frames.iter().find(|frame| frame.declared == def.layer.name.span) {
            let report = Diagnostic::at(
                codes::LAYER_OF_ITSELF,
                call.callee.span,
                format!("layer `{}` would use itself without end", call.callee.name),
                "used while it is used",
            );
            self.report(report.label(outer.declared, "the layer is declared here"));
            return Term::Error;
        }
        if let Some(across) = &call.across {
            self.report(
                Diagnostic::at(
                    codes::WRONG_SCOPE,
                    across.span,
                    "the use of a layer takes no `across`",
                    "belongs to reductions",
                )
                .help("the layer's `fuse` block says how semantic graphs are combined"),
            );
            return Term::Error;
        }
        let Some(mut cx) = self.prepare(def, call, span, scope) else { return Term::Error };
        self.checked_layers.insert(def.layer.name.span);
        let layer = def.layer.name.name.clone();
        self.frames.push(Frame {
            span: call.callee.span,
            layer: layer.clone(),
            declared: def.layer.name.span,
            instance: None,
            widths: width_names(&cx),
        });
        let results = self.check_body(def, &mut cx, call.callee.span);
        self.frames.pop();
        let Some(results) = results else { return Term::Error };
        let id = cx.id;
        let types: Vec<Type> = results.iter().map(|(_, value)| (*value.ty).clone()).collect();
        self.model.uses[id.index()] = LayerUse {
            layer,
            statement: scope.statement.clone(),
            graphs: cx.graphs.into(),
            inputs: cx.inputs,
            body: cx.body,
            results: results.iter().map(|(name, value)| (name.clone(), value.id)).collect(),
        };
        let layer = self.expr(Kind::Layer(id), Type::PerType(BTreeMap::new()), span).id;
        let mut values = vec![];
        for (position, ((name, _), ty)) in results.into_iter().zip(types).enumerate() {
            values.push((name, self.expr(Kind::Result(layer, id, position), ty, span)));
        }
        if values.len() > 1 && !def.layer.results[0].is_unnamed() {
            return Term::Record(values.into_iter().map(|(name, value)| (name, Term::Value(value))).collect());
        }
        let (_, value) = values.remove(0);
        if !values.is_empty() {
            self.further_results.insert(value.id, values);
        }
        Term::Value(value)
    }

    /// A new use of a layer.
    pub(crate) fn layer_use(&mut self) -> UseId {
        self.model.uses.push(LayerUse::default());
        UseId::new(self.model.uses.len() - 1)
    }

    /// Binds arguments, family and inputs. All of them are looked at before giving up.
    fn prepare(&mut self, def: LayerDef<'a>, call: &Call, span: Span, scope: &Scope<'_>) -> Option<LayerCx<'a>> {
        let layer = def.layer;
        let mut cx = LayerCx {
            family_span: call.over.as_ref().map(ast::GraphExpr::span),
            ..LayerCx::new(layer, self.layer_use())
        };
        let arguments = self.bind_arguments(def, call, scope, &mut cx);
        let family = self.bind_family(layer, call, span, scope, &mut cx);
        if family && cx.graphs.len() > 1 && !self.model.tables.families.contains(&cx.graphs) {
            self.model.tables.families.push(cx.graphs.clone());
        }
        if !arguments || !family {
            // Inputs are still evaluated, so that their own mistakes are reported.
            for arg in &call.of {
                self.eval(&arg.value, scope);
            }
            return None;
        }
        self.bind_inputs(def, call, span, scope, &mut cx).then_some(cx)
    }

    fn bind_arguments(&mut self, def: LayerDef<'a>, call: &Call, scope: &Scope<'_>, cx: &mut LayerCx<'a>) -> bool {
        let layer = def.layer;
        let names: Vec<&str> = layer.params.iter().map(|p| p.name.name.as_str()).collect();
        let callee = format!("layer `{}`", layer.name.name);
        let sorted = match match_arguments(&call.args, &names, &callee, call.callee.span) {
            Ok(sorted) => sorted,
            Err(mistakes) => {
                // A name that looks like an input is one.
                let inputs = call.of.is_empty() && !layer.inputs.is_empty();
                for mistake in mistakes {
                    let report = mistake.label(layer.name.span, "the layer is declared here");
                    self.report(match inputs && report.code == codes::EXTRA_ARGUMENT {
                        true => {
                            report.help(format!("inputs of a layer stand behind `of`: `{}(…) … of x`", layer.name.name))
                        }
                        false => report,
                    });
                }
                return false;
            }
        };
        let mut fine = true;
        let mut missing: Vec<&Ident> = vec![];
        for (param, given) in layer.params.iter().zip(sorted) {
            let (term, at) = match (given, &param.default) {
                (Some(expr), _) => (self.eval(expr, scope), expr.span),
                (None, Some(default)) => {
                    // Defaults belong to the layer's file and may use earlier parameters.
                    let inner = Scope {
                        place: Place::Layer,
                        variable: None,
                        locals: HashMap::new(),
                        spans: HashMap::new(),
                        layer: Some(cx),
                        consts: def.consts,
                        graphs: vec![],
                        along: None,
                        statement: String::new(),
                    };
                    (self.eval(default, &inner), default.span)
                }
                (None, None) => {
                    missing.push(&param.name);
                    continue;
                }
            };
            match self.check_kind(param, term, at) {
                Some(term) => {
                    cx.arguments.insert(param.name.name.clone(), term);
                }
                None => fine = false,
            }
        }
        if missing.is_empty() {
            return fine;
        }
        let list: Vec<String> = missing.iter().map(|name| format!("`{}`", name.name)).collect();
        let mut report = Diagnostic::at(
            codes::MISSING_ARGUMENT,
            call.callee.span,
            format!("{callee} needs {}", list.join(" and ")),
            format!("takes ({})", names.join(", ")),
        );
        for name in &missing {
            report = report.label(name.span, "has no default");
        }
        let example: Vec<String> = missing.iter().map(|name| format!("{}: …", name.name)).collect();
        self.report(report.help(format!("write `{}({})`", layer.name.name, example.join(", "))));
        false
    }

    pub(crate) fn check_kind(&mut self, param: &ast::LayerParam, term: Term, at: Span) -> Option<Term> {
        let kind = param_kind(param);
        let name = &param.name.name;
        let found = match &term {
            Term::Number(number) => number.to_string(),
            term => term.describe().to_owned(),
        };
        let (code, expected) = match (kind, term) {
            (_, Term::Error) => return None,
            (ParamKind::Bool, term @ (Term::Bool(_) | Term::AnyBool)) => return Some(term),
            (ParamKind::Function, term @ (Term::Function(_) | Term::AnyFunction)) => return Some(term),
            (ParamKind::Real, term) => match known_number(&term) {
                Known::Number(number) => return Some(Term::Number(number)),
                Known::Unknown => return Some(Term::AnyNumber),
                Known::No => (codes::NOT_CONSTANT, "a number"),
            },
            (ParamKind::Dim, term) => match known_number(&term) {
                Known::Number(number) => match hgnnc_declare::consts::as_dimension(number) {
                    // A width remembers where it was given.
                    Some(extent) => return Some(Term::Width(Width { dim: Dim::Fixed(extent), origin: at })),
                    None => (codes::BAD_DIMENSION, "a whole number between 1 and 2147483648"),
                },
                Known::Unknown => return Some(term),
                Known::No => (codes::NOT_CONSTANT, "a whole number"),
            },
            (ParamKind::Bool, _) => (codes::NOT_BOOLEAN, "`true` or `false`"),
            (ParamKind::Function, _) => (codes::NOT_CONSTANT, "the name of an element-wise function, such as `elu`"),
        };
        self.report(
            Diagnostic::at(code, at, format!("`{name}` takes {expected}"), format!("this is {found}"))
                .label(param.name.span, "declared here"),
        );
        None
    }

    fn bind_family(
        &mut self,
        layer: &'a ast::Layer,
        call: &Call,
        span: Span,
        scope: &Scope<'_>,
        cx: &mut LayerCx<'a>,
    ) -> bool {
        let (family, expr) = match (&layer.over, &call.over) {
            (None, None) => return true,
            (Some(family), Some(expr)) => (family, expr),
            (Some(family), None) => {
                self.report(
                    Diagnostic::at(
                        codes::MISSING_ARGUMENT,
                        span,
                        format!("layer `{}` runs over semantic graphs", layer.name.name),
                        "which ones?",
                    )
                    .label(family.span, "declared here")
                    .help("add `over [PAP, PSP]` or `over relations`"),
                );
                return false;
            }
            (None, Some(expr)) => {
                self.report(
                    Diagnostic::at(
                        codes::FAMILY_TYPES,
                        expr.span(),
                        format!("layer `{}` does not run over semantic graphs", layer.name.name),
                        "nothing to run over",
                    )
                    .label(layer.name.span, "declared here, without `over`"),
                );
                return false;
            }
        };
        let Some(graphs) = self.schema.graphs(expr, scope.graph_names(), self.diagnostics) else { return false };
        if graphs.is_empty() {
            self.report(
                Diagnostic::at(
                    codes::EMPTY_FAMILY,
                    expr.span(),
                    "this family has no semantic graphs",
                    format!("layer `{}` would do nothing", layer.name.name),
                )
                .help("name relations or metapaths: `[written_by, PAP]`"),
            );
            return false;
        }
        let mut fine = self.one_kind_of_edges(&graphs);
        let mut seen: FxHashMap<Graph, &GraphRef> = FxHashMap::default();
        for graph in &graphs {
            let Some(handle) = self.declare_member(graph, cx.of_paths) else {
                fine = false;
                continue;
            };
            match seen.entry(handle) {
                Entry::Occupied(first) => {
                    self.report(duplicate_graph(first.get(), graph));
                    fine = false;
                    continue;
                }
                Entry::Vacant(place) => place.insert(graph),
            };
            self.vertex_used(graph);
            if let Some((src, dst)) = &family.ends {
                fine &= self.unify(layer, graph, src, dst, cx);
            }
            // Edges to predict bring no messages to vertices.
            if !graph.edges {
                cx.into.entry(VertexType::new(graph.dst)).or_default().push(cx.graphs.len());
            }
            cx.graphs.push(handle);
            cx.ends.push((VertexType::new(graph.src), VertexType::new(graph.dst)));
        }
        cx.members = graphs;
        fine
    }

    fn vertex_used(&self, graph: &GraphRef) {
        self.schema.vertices[graph.src].used.set(true);
        self.schema.vertices[graph.dst].used.set(true);
    }

    /// Binds the type variables of `[U -> V]` to the ends of a semantic graph.
    fn unify(&mut self, layer: &ast::Layer, graph: &GraphRef, src: &Ident, dst: &Ident, cx: &mut LayerCx<'a>) -> bool {
        for (variable, end, which) in [(src, graph.src, "starts"), (dst, graph.dst, "ends")] {
            let end = VertexType::new(end);
            let bound = *cx.types.entry(variable.name.clone()).or_insert(end);
            if bound != end {
                let (from, to) = (&self.schema.vertices[graph.src].name, &self.schema.vertices[graph.dst].name);
                let mut report = Diagnostic::at(
                    codes::FAMILY_TYPES,
                    graph.span,
                    format!("`{}` does not fit layer `{}`", graph.name, layer.name.name),
                    format!("goes from `{from}` to `{to}`"),
                )
                .label(
                    variable.span,
                    format!(
                        "`{}` stands for `{}`, but `{}` {which} in `{}`",
                        variable.name,
                        self.vertex_name(bound),
                        graph.name,
                        self.vertex_name(end)
                    ),
                );
                report = if src.name == dst.name {
                    report.help("this layer takes semantic graphs from a vertex type to itself: a metapath, not a relation between two types")
                } else {
                    report.help("all semantic graphs of the family need the same types at their ends")
                };
                self.report(report);
                return false;
            }
        }
        true
    }

    fn bind_inputs(
        &mut self,
        def: LayerDef<'a>,
        call: &Call,
        span: Span,
        scope: &Scope<'_>,
        cx: &mut LayerCx<'a>,
    ) -> bool {
        let layer = def.layer;
        let names: Vec<&str> = layer.inputs.iter().map(|i| i.name.name.as_str()).collect();
        let args: &[Arg] = &call.of;
        let sorted = match match_arguments(args, &names, &format!("layer `{}`", layer.name.name), call.callee.span) {
            Ok(sorted) => sorted,
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.report(mistake));
                return false;
            }
        };
        let mut fine = true;
        for (input, given) in layer.inputs.iter().zip(sorted) {
            let Some(expr) = given else {
                if input.optional {
                    cx.absent.insert(input.name.name.clone());
                } else {
                    fine = false;
                    self.report(
                        Diagnostic::at(
                            codes::MISSING_ARGUMENT,
                            span,
                            format!("layer `{}` needs the input `{}`", layer.name.name, input.name.name),
                            "add `of …`",
                        )
                        .label(input.span, "declared here"),
                    );
                }
                continue;
            };
            let term = self.eval(expr, scope);
            // An input of a composed layer that was not given there.
            if input.optional && matches!(term, Term::Absent) {
                cx.absent.insert(input.name.name.clone());
                continue;
            }
            cx.input_spans.insert(input.name.name.clone(), expr.span);
            fine &= self.bind_input(layer, input, term, expr.span, cx);
        }
        fine && self.bind_dims(def, cx, call.callee.span)
    }

    fn bind_input(
        &mut self,
        layer: &ast::Layer,
        input: &ast::LayerInput,
        term: Term,
        at: Span,
        cx: &mut LayerCx<'a>,
    ) -> bool {
        let name = input.name.name.clone();
        cx.field_spans.insert(name.clone(), input.name.span);
        let by_graph = GraphRows::declared(layer, &input.rows);
        let of_vertices = match &input.rows {
            ValueRows::Of(rows) if by_graph.is_none() => Some(rows),
            _ => None,
        };
        let wanted = by_graph.map_or("values of vertex types", GraphRows::describe);
        match (term, of_vertices) {
            (Term::Error, _) => false,
            (Term::Value(value), None) if matches!(*value.ty, Type::ByGraph(_)) => {
                let wanted = by_graph.expect("an input of vertices is matched as such");
                self.bind_by_graph((input, wanted), &value, at, cx)
            }
            (Term::Value(Typed { id, ty }), Some(rows_of)) if matches!(*ty, Type::PerType(_)) => {
                let Type::PerType(values) = &*ty else { unreachable!("it was compared") };
                let values = match rows_of {
                    RowsOf::Any(_) => values.clone(),
                    RowsOf::Name(variable) => {
                        let bound = match cx.types.get(&variable.name) {
                            Some(bound) => *bound,
                            None => match values.keys().next() {
                                Some(only) if values.len() == 1 => {
                                    cx.types.insert(variable.name.clone(), *only);
                                    *only
                                }
                                _ => {
                                    self.report(Diagnostic::at(
                                        codes::DIFFERENT_SPACES,
                                        at,
                                        format!("`{name}` takes values of one vertex type"),
                                        "has values of several; select one with `.Type`",
                                    ));
                                    return false;
                                }
                            },
                        };
                        match values.get(&bound) {
                            Some(row) => BTreeMap::from([(bound, row.clone())]),
                            None => {
                                let has: Vec<_> =
                                    values.keys().map(|v| format!("`{}`", self.vertex_name(*v))).collect();
                                self.report(
                                    Diagnostic::at(
                                        codes::NOT_PROJECTED,
                                        at,
                                        format!("input `{name}` needs values of `{}`", self.vertex_name(bound)),
                                        format!("has values of {}", has.join(", ")),
                                    )
                                    .label(
                                        variable.span,
                                        format!("`{}` stands for `{}` here", variable.name, self.vertex_name(bound)),
                                    ),
                                );
                                return false;
                            }
                        }
                    }
                };
                if matches!(rows_of, RowsOf::Any(_)) && !self.covers_sources(&name, &values, at, cx) {
                    return false;
                }
                // A value with one row for a whole vertex type is broadcast to its vertices.
                let mut repeated = BTreeMap::new();
                for (vertex, row) in values {
                    let one = self.expr(Kind::OfType(id, vertex), Type::One(row.clone()), at).id;
                    let value = match row.space {
                        Space::Unit => self.broadcast(one, &row, Space::Vertices(vertex), at),
                        Space::Vertices(_) | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => Ok(one),
                    };
                    match self.or_report(value) {
                        Some(id) => {
                            let Type::One(row) = &*self.model.expr(id).ty else { unreachable!("a single value") };
                            repeated.insert(vertex, Single { id, row: row.clone() })
                        }
                        None => return false,
                    };
                }
                let all = self.types(repeated.iter().map(|(vertex, value)| (*vertex, value.id)), at);
                cx.inputs.push((name.clone(), all.id));
                cx.of_inputs.extend(repeated.keys());
                cx.vertex_fields.insert(name, repeated);
                true
            }
            (other, _) => {
                let mut report = self.not_a_value(&other, at);
                if !matches!(other, Term::Label(..) | Term::Record(_)) {
                    report.message = format!("input `{name}` takes {wanted}, not {}", other.describe());
                }
                self.report(report.label(input.span, "the input is declared here"));
                false
            }
        }
    }

    /// Every semantic graph needs values at its sources.
    fn covers_sources(&mut self, input: &str, values: &BTreeMap<VertexType, Row>, at: Span, cx: &LayerCx<'a>) -> bool {
        for (graph, (src, _)) in cx.graphs.iter().zip(&cx.ends) {
            if !values.contains_key(src) {
                let vertex = self.vertex_name(*src);
                let declared = self.declared_at(*src);
                let graph_name = self.model.tables.graphs[graph.index()].name.clone();
                let help = match self.schema.vertices[src.index()].features().next() {
                    Some(field) => {
                        format!("put `{vertex}` into a bundle: `{{…, {vertex}.{}}}`, or use `features`", field.name)
                    }
                    None => {
                        format!(
                            "add `{vertex}` here, or give it features: `{{ x: onehot }}` or `{{ x: embedding[64] }}`"
                        )
                    }
                };
                self.report(
                    Diagnostic::at(
                        codes::NOT_PROJECTED,
                        at,
                        format!("nothing provides `{input}` for vertex type `{vertex}`"),
                        format!("`{graph_name}` brings messages from `{vertex}`"),
                    )
                    .label(declared, format!("`{vertex}` is declared here"))
                    .help(help),
                );
                return false;
            }
        }
        true
    }
}

/// The kind of an argument: as declared, or that of its default.
pub fn param_kind(param: &ast::LayerParam) -> ParamKind {
    param.kind.unwrap_or(match &param.default {
        Some(ast::Expr { kind: ast::ExprKind::Bool(_), .. }) => ParamKind::Bool,
        Some(ast::Expr { kind: ast::ExprKind::Name(name), .. }) if is_unary_function(name) => ParamKind::Function,
        _ => ParamKind::Real,
    })
}

/// The predefined fields of vertices and edges.
pub const RESERVED_FIELDS: &[&str] = &["src", "dst", "count", "in_degree", "out_degree"];

/// The report of a field with the name of one of those.
pub fn reserved_field(name: &Ident) -> Diagnostic {
    Diagnostic::at(
        codes::RESERVED_NAME,
        name.span,
        format!("`{}` has a meaning of its own", name.name),
        "choose another name",
    )
    .help("every edge has `src`, `dst` and, in a counted metapath, `count`; every vertex has degrees")
}

/// Checks what a layer's signature says by itself, whether the layer is used or not.
pub fn check_signature(layer: &ast::Layer, diagnostics: &mut Diagnostics) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    let inputs = layer.inputs.iter().map(|i| ("input", &i.name));
    let family = layer.over.iter().map(|o| ("family", &o.name));
    for (what, name) in layer.params.iter().map(|p| ("argument", &p.name)).chain(inputs).chain(family) {
        match seen.entry(&name.name) {
            Entry::Occupied(first) => diagnostics.push(duplicate(what, name, *first.get())),
            Entry::Vacant(place) => _ = place.insert(name.span),
        }
    }
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for result in &layer.results {
        match seen.entry(&result.name.name) {
            Entry::Occupied(first) => diagnostics.push(duplicate("result", &result.name, *first.get())),
            Entry::Vacant(place) => _ = place.insert(result.name.span),
        }
    }
    let mixed = crate::paths::mixed_blocks(layer).into_iter().chain(crate::composed::mixed_body(layer));
    mixed.chain(misplaced_rows(layer)).for_each(|report| diagnostics.push(report));
    for input in &layer.inputs {
        if RESERVED_FIELDS.contains(&input.name.name.as_str()) {
            diagnostics.push(reserved_field(&input.name));
        }
    }
    if is_function(&layer.name.name) {
        diagnostics.push(Diagnostic::at(
            codes::RESERVED_NAME,
            layer.name.span,
            format!("`{}` is a function of the language", layer.name.name),
            "choose another name",
        ));
    }
}
