//! The use of a layer: arguments, the family, inputs, blocks, results.

use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_ir::{Graph, Space, Stage, VertexType};
use hgnnc_syntax::ast::{self, Arg, Binding, Block, BlockKind, Call, Ident, LayerStmt, ParamKind, RowsOf, Stmt};

use crate::elaborate::{Elaborator, Frame, LayerDef, Place, Scope, WithoutMessages};
use crate::eval::known_number;
use crate::functions::{is_function, is_unary_function, match_arguments};
use crate::names::duplicate;
use crate::schema::GraphRef;
use crate::value::{Term, Val, ValKind, Width, show_dim, show_widths};

/// A layer in use.
pub struct LayerCx<'s> {
    /// Its declaration.
    pub layer: &'s ast::Layer,
    /// Compile-time parameters.
    pub arguments: HashMap<String, Term>,
    /// The family.
    pub graphs: Vec<Graph>,
    /// Source and destination type of each semantic graph.
    pub ends: Vec<(VertexType, VertexType)>,
    /// Type variables.
    pub types: HashMap<String, VertexType>,
    /// Widths bound by the inputs, by vertex type.
    pub dims: HashMap<String, BTreeMap<VertexType, Width>>,
    /// Parameters declared between the blocks.
    pub params: HashMap<String, Term>,
    /// Where they were declared.
    pub param_spans: HashMap<String, Span>,
    /// Inputs and assigned values with one row per vertex, by vertex type.
    pub vertex_fields: HashMap<String, BTreeMap<VertexType, Val>>,
    /// Inputs and assigned values with one value for each semantic graph.
    pub graph_fields: HashMap<String, Vec<Val>>,
    /// Where fields were assigned first.
    pub field_spans: HashMap<String, Span>,
    /// Optional inputs that were not given.
    pub absent: HashSet<String>,
    /// Where each input is given.
    pub input_spans: HashMap<String, Span>,
    /// Fields whose assignment was wrong and is reported.
    pub failed: HashSet<String>,
    /// Where the family is given.
    pub family_span: Option<Span>,
    /// Prefix of parameter names.
    pub path: String,
}

impl<'a> Elaborator<'a> {
    /// `HanConv(hidden: 8) over [PAP, PSP] of Paper.x`
    pub fn use_layer(&mut self, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        if scope.place != Place::Model {
            self.report(
                Diagnostic::at(
                    codes::MODEL_ONLY,
                    call.callee.span,
                    format!("layer `{}` cannot be used inside a layer", call.callee.name),
                    "layers are put together in models",
                )
                .help("use both layers in the model, one `of` the other"),
            );
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
        let def = self.layers[&call.callee.name];
        let stage = self.flow.cursor.stage;
        let prepared = self.prepare(def, call, span, scope);
        let result = match prepared {
            Some(mut cx) => {
                let layer = def.layer.name.name.clone();
                self.frames.push(Frame { span: call.callee.span, layer, instance: None });
                let result = self.run_body(def, &mut cx, call.callee.span);
                self.frames.pop();
                result
            }
            None => None,
        };
        self.enter(stage);
        result.unwrap_or(Term::Error)
    }

    /// Binds arguments, family and inputs. All of them are looked at before giving up.
    fn prepare(&mut self, def: LayerDef<'a>, call: &Call, span: Span, scope: &Scope<'_>) -> Option<LayerCx<'a>> {
        let layer = def.layer;
        let mut cx = LayerCx {
            layer,
            arguments: HashMap::new(),
            graphs: vec![],
            ends: vec![],
            types: HashMap::new(),
            dims: HashMap::new(),
            params: HashMap::new(),
            param_spans: HashMap::new(),
            vertex_fields: HashMap::new(),
            graph_fields: HashMap::new(),
            field_spans: HashMap::new(),
            absent: HashSet::new(),
            input_spans: HashMap::new(),
            failed: HashSet::new(),
            family_span: call.over.as_ref().map(ast::GraphExpr::span),
            path: self.unique_path(&scope.path),
        };
        let arguments = self.bind_arguments(def, call, scope, &mut cx);
        let family = self.bind_family(layer, call, span, &mut cx);
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
            Err(mistake) => {
                self.report(mistake.label(layer.name.span, "the layer is declared here"));
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
                        path: String::new(),
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

    fn check_kind(&mut self, param: &ast::LayerParam, term: Term, at: Span) -> Option<Term> {
        let kind = param.kind.unwrap_or(match &param.default {
            Some(ast::Expr { kind: ast::ExprKind::Bool(_), .. }) => ParamKind::Bool,
            Some(ast::Expr { kind: ast::ExprKind::Name(name), .. }) if is_unary_function(name) => ParamKind::Function,
            _ => ParamKind::Real,
        });
        let name = &param.name.name;
        let found = term.describe();
        let (code, expected) = match (kind, term) {
            (_, Term::Error) => return None,
            (ParamKind::Bool, Term::Bool(value)) => return Some(Term::Bool(value)),
            (ParamKind::Function, Term::Function(function)) => return Some(Term::Function(function)),
            (ParamKind::Real, term) => match known_number(&term) {
                Some(number) => return Some(Term::Number(number)),
                None => (codes::NOT_CONSTANT, "a number"),
            },
            (ParamKind::Dim, term) => match known_number(&term) {
                Some(number) if number >= 0.0 && number.fract() == 0.0 && number < (1u64 << 31) as f64 => {
                    // A width remembers where it was given.
                    return Some(match crate::consts::as_dimension(number) {
                        Some(extent) => Term::Width(Width { dim: hgnnc_ir::Dim::Fixed(extent), origin: at }),
                        None => Term::Number(number),
                    });
                }
                Some(_) => (codes::BAD_DIMENSION, "a whole number, at least 0"),
                None => (codes::NOT_CONSTANT, "a whole number"),
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

    fn bind_family(&mut self, layer: &'a ast::Layer, call: &Call, span: Span, cx: &mut LayerCx<'a>) -> bool {
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
        let Some(graphs) = self.schema.graphs(expr, self.diagnostics) else { return false };
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
        let mut fine = true;
        let mut seen: Vec<&GraphRef> = vec![];
        for graph in &graphs {
            if let Some(first) = seen.iter().find(|known| known.same_edges(graph)) {
                let message = if first.name == graph.name {
                    format!("semantic graph `{}` is in the family twice", graph.name)
                } else {
                    format!("`{}` has the same edges as `{}`, which is in the family too", graph.name, first.name)
                };
                let report = if first.span == graph.span {
                    Diagnostic::at(codes::DUPLICATE_GRAPH, graph.span, message, "holds it twice")
                } else {
                    Diagnostic::at(codes::DUPLICATE_GRAPH, graph.span, message, "again here")
                        .label(first.span, "first here")
                };
                self.report(report.help("its edges would count twice; leave one of the two out"));
                fine = false;
                continue;
            }
            seen.push(graph);
            self.vertex_used(graph);
            if let Some((src, dst)) = &family.ends {
                fine &= self.unify(layer, graph, src, dst, cx);
            }
            let handle = self.declare_graph(graph);
            cx.graphs.push(handle);
            cx.ends.push((VertexType::new(graph.src), VertexType::new(graph.dst)));
        }
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
            Err(mistake) => {
                self.report(*mistake);
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
        let is_family = |rows: &RowsOf| matches!((rows, &layer.over), (RowsOf::Name(n), Some(family)) if family.name.name == n.name);
        match term {
            Term::Error => false,
            Term::PerEdge(mut values) if is_family(&input.rows) => {
                let mut all = vec![];
                for &graph in &cx.graphs {
                    match values.remove(&graph) {
                        Some(val) => all.push(val),
                        None => {
                            let graph_name = self.flow.graphs[graph.index()].name.clone();
                            self.report(Diagnostic::at(
                                codes::NOT_PROJECTED,
                                at,
                                format!("there is no value for the edges of `{graph_name}` here"),
                                "comes from a layer over other semantic graphs",
                            ));
                            return false;
                        }
                    }
                }
                cx.graph_fields.insert(name, all);
                true
            }
            Term::PerType(values) if !is_family(&input.rows) => {
                let values = match &input.rows {
                    RowsOf::Any(_) => values,
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
                            Some(val) => BTreeMap::from([(bound, val.clone())]),
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
                if matches!(input.rows, RowsOf::Any(_)) && !self.covers_sources(&name, &values, at, cx) {
                    return false;
                }
                // What has one row for a whole vertex type is repeated for each vertex.
                let mut repeated = BTreeMap::new();
                for (vertex, val) in values {
                    let val = match val.space(&self.flow) {
                        Space::Unit => self.broadcast(val, Space::Vertices(vertex), at),
                        Space::Vertices(_) | Space::Edges(_) => Ok(val),
                    };
                    match self.settle_val(val) {
                        Some(val) => repeated.insert(vertex, val),
                        None => return false,
                    };
                }
                cx.vertex_fields.insert(name, repeated);
                true
            }
            other => {
                let wanted = if is_family(&input.rows) { "edge values" } else { "values of vertex types" };
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
    fn covers_sources(&mut self, input: &str, values: &BTreeMap<VertexType, Val>, at: Span, cx: &LayerCx<'a>) -> bool {
        for (graph, (src, _)) in cx.graphs.iter().zip(&cx.ends) {
            if !values.contains_key(src) {
                let vertex = self.vertex_name(*src);
                let declared = self.schema.vertices[src.index()].span;
                let graph_name = self.flow.graphs[graph.index()].name.clone();
                let help = match self.schema.vertices[src.index()].features() {
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

    /// Binds the names of `V[in]` to widths, and compares the other expressions with them.
    fn bind_dims(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, callee: Span) -> bool {
        let mut fine = true;
        for input in &def.layer.inputs {
            let name = &input.name.name;
            let at = cx.input_spans.get(name).copied().unwrap_or(callee);
            let vals: Vec<(Option<VertexType>, Val)> = match (cx.vertex_fields.get(name), cx.graph_fields.get(name)) {
                (Some(values), _) => values.iter().map(|(v, val)| (Some(*v), val.clone())).collect(),
                (None, Some(values)) => values.iter().map(|val| (None, val.clone())).collect(),
                (None, None) => continue,
            };
            for (vertex, val) in vals {
                if val.widths.len() != input.dims.len() {
                    let found = show_widths(&self.flow, &val.widths);
                    let mut report = Diagnostic::at(
                        codes::SHAPE_MISMATCH,
                        at,
                        format!("input `{name}` takes {} per row, not {found}", plural(input.dims.len())),
                        format!("is {found}"),
                    )
                    .label(input.span, "declared here");
                    if let Some(width) = val.widths.last().filter(|w| w.origin != at) {
                        report = report.label(width.origin, "its last width comes from here");
                    }
                    if val.widths.len() > input.dims.len() {
                        report = report.help("`flatten(…)` joins dimensions");
                    }
                    self.report(report);
                    return false;
                }
                for (dim, width) in input.dims.iter().zip(&val.widths) {
                    let bindable = match (&dim.kind, vertex) {
                        (ast::ExprKind::Name(n), Some(vertex))
                            if !cx.arguments.contains_key(n) && def.consts.get(n).is_none() =>
                        {
                            Some((n.clone(), vertex))
                        }
                        _ => None,
                    };
                    match bindable {
                        Some((variable, vertex)) => {
                            let known = cx.dims.entry(variable.clone()).or_default();
                            let first = *known.entry(vertex).or_insert(*width);
                            if first.dim != width.dim {
                                fine = false;
                                self.report(
                                    Diagnostic::at(
                                        codes::WIDTH_MISMATCH,
                                        at,
                                        format!(
                                            "`{variable}` would be both {} and {}",
                                            show_dim(&self.flow, first.dim),
                                            show_dim(&self.flow, width.dim)
                                        ),
                                        "the inputs have different widths",
                                    )
                                    .label(first.origin, "one width comes from here")
                                    .label(width.origin, "the other from here"),
                                );
                            }
                        }
                        None => fine &= self.check_dim(def, cx, name, dim, *width, at),
                    }
                }
            }
        }
        fine
    }

    fn check_dim(
        &mut self,
        def: LayerDef<'a>,
        cx: &LayerCx<'a>,
        input: &str,
        dim: &ast::Expr,
        width: Width,
        at: Span,
    ) -> bool {
        let inner = self.layer_scope(def, cx, Place::Layer, None);
        let Some(declared) = self.one_width(dim, &inner) else { return false };
        if declared.dim == width.dim {
            return true;
        }
        self.report(
            Diagnostic::at(
                codes::WIDTH_MISMATCH,
                at,
                format!(
                    "input `{input}` has width {}, but the layer takes {}",
                    show_dim(&self.flow, width.dim),
                    show_dim(&self.flow, declared.dim)
                ),
                "widths differ",
            )
            .label(width.origin, "this width is given")
            .label(declared.origin, "this width is expected"),
        );
        false
    }

    fn layer_scope<'s>(
        &self,
        def: LayerDef<'a>,
        cx: &'s LayerCx<'a>,
        place: Place,
        variable: Option<&'s Ident>,
    ) -> Scope<'s>
    where
        'a: 's,
    {
        let graphs = match place {
            Place::Aggregate => (0..cx.graphs.len()).collect(),
            Place::Fuse(vertex, _) => (0..cx.graphs.len()).filter(|&g| cx.ends[g].1 == vertex).collect(),
            Place::Model | Place::Layer | Place::Project(..) => vec![],
        };
        Scope {
            place,
            variable,
            locals: HashMap::new(),
            spans: HashMap::new(),
            layer: Some(cx),
            consts: def.consts,
            graphs,
            path: cx.path.clone(),
        }
    }

    fn run_body(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, span: Span) -> Option<Term> {
        let mut fine = true;
        for stmt in &def.layer.body {
            match stmt {
                LayerStmt::Param(decl) => {
                    let term = {
                        let scope = self.layer_scope(def, cx, Place::Layer, None);
                        self.declare(decl, &scope)
                    };
                    fine &= !matches!(term, Term::Error);
                    let first = cx.param_spans.insert(decl.name.name.clone(), decl.name.span);
                    if let Some(first) = first {
                        let report = duplicate("parameter", &decl.name, first);
                        self.report(report);
                        fine = false;
                    }
                    cx.params.insert(decl.name.name.clone(), term);
                }
                LayerStmt::Block(block) => fine &= self.run_block(def, cx, block),
            }
        }
        if !fine {
            return None;
        }
        self.for_instance(None);
        self.results(def, cx, span)
    }

    fn run_block(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, block: &'a Block) -> bool {
        match &block.kind {
            BlockKind::Project(rows) => {
                self.enter(Stage::FP);
                self.run_per_vertex(def, cx, block, rows, Place::Project)
            }
            BlockKind::Aggregate { family, .. } => {
                self.enter(Stage::NA);
                match &def.layer.over {
                    Some(declared) if declared.name.name == family.name => {}
                    _ => {
                        let mut report = Diagnostic::at(
                            codes::UNKNOWN_NAME,
                            family.span,
                            format!("`{}` is not the family of this layer", family.name),
                            "unknown family",
                        );
                        if let Some(declared) = &def.layer.over {
                            report = report.help(format!("the family is called `{}`", declared.name.name));
                        } else {
                            report = report.help("declare one: `over graphs: [V -> V]`");
                        }
                        self.report(report);
                        return false;
                    }
                }
                self.for_instance(None);
                let outcome = self.run_statements(def, cx, block, Place::Aggregate);
                self.store(cx, block, outcome, None)
            }
            BlockKind::Fuse { rows, family } => {
                self.enter(Stage::SF);
                if let Some(family) = family
                    && def.layer.over.as_ref().is_none_or(|o| o.name.name != family.name)
                {
                    self.report(Diagnostic::at(
                        codes::UNKNOWN_NAME,
                        family.span,
                        format!("`{}` is not the family of this layer", family.name),
                        "unknown family",
                    ));
                    return false;
                }
                self.run_per_vertex(def, cx, block, rows, Place::Fuse)
            }
        }
    }

    fn run_per_vertex(
        &mut self,
        def: LayerDef<'a>,
        cx: &mut LayerCx<'a>,
        block: &'a Block,
        rows: &RowsOf,
        place: fn(VertexType, bool) -> Place,
    ) -> bool {
        let (vertices, many): (Vec<VertexType>, bool) = match rows {
            RowsOf::Name(variable) => match cx.types.get(&variable.name) {
                Some(vertex) => (vec![*vertex], false),
                None => {
                    self.report(
                        Diagnostic::at(
                            codes::UNKNOWN_NAME,
                            variable.span,
                            format!("`{}` does not stand for a vertex type", variable.name),
                            "unknown type variable",
                        )
                        .help("type variables come from `over graphs: [U -> V]` and `of x: V[in]`; `*` is every type"),
                    );
                    return false;
                }
            },
            RowsOf::Any(_) => {
                // Every type that an input has values for; `fuse` also runs where messages arrive.
                let mut all: Vec<VertexType> = cx.vertex_fields.values().flat_map(|v| v.keys().copied()).collect();
                if matches!(block.kind, BlockKind::Fuse { .. }) {
                    all.extend(cx.ends.iter().map(|(_, dst)| *dst));
                }
                all.sort();
                all.dedup();
                (all, true)
            }
        };
        let mut fine = true;
        let mut outcomes = vec![];
        for vertex in vertices {
            self.for_instance(many.then(|| format!("vertex type `{}`", self.vertex_name(vertex))));
            outcomes.push((vertex, self.run_statements(def, cx, block, place(vertex, many))));
        }
        for (vertex, outcome) in outcomes {
            fine &= self.store(cx, block, outcome, Some(vertex));
        }
        self.for_instance(None);
        fine
    }

    /// Evaluates the statements of a block; gives the assigned fields, or `None` after a mistake.
    fn run_statements(
        &mut self,
        def: LayerDef<'a>,
        cx: &LayerCx<'a>,
        block: &'a Block,
        place: Place,
    ) -> Option<Vec<(&'a Binding, Term)>> {
        // Fields assigned in this block are visible to the statements behind them.
        let mut assigned: Vec<(&'a Binding, Term)> = vec![];
        let mut scope = self.layer_scope(def, cx, place, Some(&block.variable));
        let mut fine = true;
        for stmt in &block.body {
            match stmt {
                Stmt::Param(decl) => {
                    let term = self.declare(decl, &scope);
                    fine &= !matches!(term, Term::Error);
                    self.bind(&mut scope, &decl.name, term);
                }
                Stmt::Let(Binding { name, value }) => {
                    scope.path = format!("{}.{}", cx.path, name.name);
                    let term = self.eval(value, &scope);
                    scope.path.clone_from(&cx.path);
                    fine &= !matches!(term, Term::Error);
                    self.bind(&mut scope, name, term);
                }
                Stmt::Assign(binding @ Binding { name, value }) => {
                    scope.path = format!("{}.{}", cx.path, name.name);
                    let term = self.eval(value, &scope);
                    scope.path.clone_from(&cx.path);
                    fine &= !matches!(term, Term::Error);
                    if let Some((first, _)) = assigned.iter().find(|(known, _)| known.name.name == name.name) {
                        let report = duplicate("field", name, first.name.span);
                        self.report(report);
                        fine = false;
                    }
                    if RESERVED_FIELDS.contains(&name.name.as_str()) {
                        self.report(reserved_field(name));
                        fine = false;
                    }
                    assigned.push((binding, term.clone()));
                    // `h` alone is the field just assigned, for this vertex or edge.
                    scope.locals.insert(name.name.clone(), term);
                }
                Stmt::Output(output) => {
                    self.report(Diagnostic::at(
                        codes::MODEL_ONLY,
                        output.name.span,
                        "`output` belongs into a model",
                        "in a layer, assign the result",
                    ));
                    fine = false;
                }
            }
        }
        fine.then_some(assigned)
    }

    /// Makes the assigned fields known to the blocks behind.
    fn store(
        &mut self,
        cx: &mut LayerCx<'a>,
        block: &Block,
        outcome: Option<Vec<(&'a Binding, Term)>>,
        vertex: Option<VertexType>,
    ) -> bool {
        let Some(assigned) = outcome else {
            cx.failed.extend(block.body.iter().filter_map(|stmt| match stmt {
                Stmt::Assign(binding) => Some(binding.name.name.clone()),
                Stmt::Param(_) | Stmt::Let(_) | Stmt::Output(_) => None,
            }));
            return false;
        };
        let mut fine = true;
        for (Binding { name, value }, term) in assigned {
            let span = value.span;
            let before = fine;
            cx.field_spans.entry(name.name.clone()).or_insert(name.span);
            match (term, vertex) {
                (Term::PerType(values), None) => {
                    cx.vertex_fields.entry(name.name.clone()).or_default().extend(values);
                }
                (Term::PerGraph(values), None) => {
                    cx.graph_fields.insert(name.name.clone(), values);
                }
                (term @ (Term::One(_) | Term::Number(_) | Term::Width(_)), None) => {
                    match self.map(term, span, |_, val| Ok(val)) {
                        Term::One(val) => {
                            cx.graph_fields.insert(name.name.clone(), vec![val; cx.graphs.len()]);
                        }
                        _ => fine = false,
                    }
                }
                (Term::PerGraph(_), Some(_)) => {
                    fine = false;
                    let family = cx.layer.over.as_ref().map_or("graphs", |o| o.name.name.as_str()).to_string();
                    self.report(
                        Diagnostic::at(
                            codes::MISSING_ACROSS,
                            span,
                            format!("`{}` would have a value for each semantic graph", name.name),
                            "combine these first",
                        )
                        .help(format!("for example `{} = sum(…) across {family}`", name.name)),
                    );
                }
                (term @ (Term::One(_) | Term::Number(_) | Term::Width(_)), Some(vertex)) => {
                    let val = self.map(term, span, |this, val| this.broadcast_field(val, vertex, span));
                    match val {
                        Term::One(val) => {
                            cx.vertex_fields.entry(name.name.clone()).or_default().insert(vertex, val);
                        }
                        _ => fine = false,
                    }
                }
                (term, _) => {
                    fine = false;
                    let report = self.not_a_value(&term, span);
                    self.report(report);
                }
            }
            if before && !fine {
                cx.failed.insert(name.name.clone());
            }
        }
        fine
    }

    /// A field has a row for every vertex; a scalar stays as it is until its shape is known.
    fn broadcast_field(&mut self, val: Val, vertex: VertexType, span: Span) -> Result<Val, crate::elaborate::Mistake> {
        let space = Space::Vertices(vertex);
        let found = val.space(&self.flow);
        if found == space || found == Space::Unit && val.widths.is_empty() {
            Ok(val)
        } else if found == Space::Unit {
            self.broadcast(val, space, span)
        } else {
            Err(Box::new(Diagnostic::at(
                codes::DIFFERENT_SPACES,
                span,
                format!("a field of `{}` needs one row per vertex", self.vertex_name(vertex)),
                format!("has {}", crate::value::show_space(&self.flow, found)),
            )))
        }
    }

    /// The results as declared.
    fn results(&mut self, def: LayerDef<'a>, cx: &LayerCx<'a>, span: Span) -> Option<Term> {
        let mut all = vec![];
        for result in &def.layer.results {
            let name = &result.name.name;
            let family = def.layer.over.as_ref().map(|o| o.name.name.as_str());
            let is_family = matches!(&result.rows, RowsOf::Name(n) if Some(n.name.as_str()) == family);
            let assigned =
                if is_family { cx.graph_fields.contains_key(name) } else { cx.vertex_fields.contains_key(name) };
            if !assigned && cx.failed.contains(name) {
                return None;
            }
            if !assigned {
                let mut report = Diagnostic::at(
                    codes::MISSING_RESULT,
                    result.span,
                    format!("layer `{}` never assigns its result `{name}`", def.layer.name.name),
                    if is_family { "needs a value per edge" } else { "needs a value per vertex" },
                );
                if let (false, Some(at)) = (is_family, cx.field_spans.get(name)) {
                    report = report
                        .label(*at, "assigned here, but as a value of each semantic graph")
                        .help(format!("combine them in a `fuse` block: `{name} = sum(v.{name}) across …`"));
                }
                self.report(report);
                return None;
            }
            let term = if is_family {
                let mut values = BTreeMap::new();
                for (position, val) in cx.graph_fields[name].iter().enumerate() {
                    let graph = cx.graphs[position];
                    let widths = self.result_widths(def, cx, result, None)?;
                    let fitted = self.fit(val.clone(), Space::Edges(graph), &widths, result.span);
                    values.insert(graph, self.settle_val(fitted)?);
                }
                Term::PerEdge(values)
            } else {
                let mut values = BTreeMap::new();
                for (&vertex, val) in &cx.vertex_fields[name] {
                    if let RowsOf::Name(variable) = &result.rows
                        && cx.types.get(&variable.name) != Some(&vertex)
                    {
                        continue;
                    }
                    let widths = self.result_widths(def, cx, result, Some(vertex))?;
                    let fitted = self.fit(val.clone(), Space::Vertices(vertex), &widths, result.span);
                    let mut val = self.settle_val(fitted)?;
                    self.note_messages(def, cx, vertex, &val);
                    // Further on, a library's widths come from its use: that is what can be edited.
                    for width in &mut val.widths {
                        if !self.is_local(width.origin) {
                            width.origin = span;
                        }
                    }
                    values.insert(vertex, val);
                }
                if values.is_empty() {
                    self.report(Diagnostic::at(
                        codes::MISSING_RESULT,
                        result.span,
                        format!(
                            "layer `{}` assigns its result `{name}` for other vertex types only",
                            def.layer.name.name
                        ),
                        "has no value here",
                    ));
                    return None;
                }
                Term::PerType(values)
            };
            all.push((name.clone(), term));
        }
        Some(match all.len() {
            1 => all.swap_remove(0).1,
            _ => Term::Record(all),
        })
    }

    /// Remembers a result for a vertex type that the layer brings no messages to; whether it matters is known
    /// when it is known what the outputs need.
    fn note_messages(&mut self, def: LayerDef<'a>, cx: &LayerCx<'a>, vertex: VertexType, val: &Val) {
        if let (Some(span), ValKind::Stored(value)) = (cx.family_span, &val.kind)
            && !cx.ends.iter().any(|(_, dst)| *dst == vertex)
        {
            let layer = def.layer.name.name.clone();
            self.without_messages.push(WithoutMessages { span, layer, vertex, value: *value });
        }
    }

    fn result_widths(
        &mut self,
        def: LayerDef<'a>,
        cx: &LayerCx<'a>,
        result: &ast::LayerResult,
        vertex: Option<VertexType>,
    ) -> Option<Vec<Width>> {
        let place = vertex.map_or(Place::Layer, |v| Place::Project(v, true));
        let scope = self.layer_scope(def, cx, place, None);
        result.dims.iter().map(|dim| self.one_width(dim, &scope)).collect()
    }

    fn settle_val(&mut self, result: Result<Val, crate::elaborate::Mistake>) -> Option<Val> {
        match result {
            Ok(val) => Some(val),
            Err(mistake) => {
                self.report(*mistake);
                None
            }
        }
    }
}

/// What a vertex or an edge always has.
const RESERVED_FIELDS: &[&str] = &["src", "dst", "count", "in_degree", "out_degree"];

fn reserved_field(name: &Ident) -> Diagnostic {
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
    let mut seen: Vec<&Ident> = vec![];
    let inputs = layer.inputs.iter().map(|i| ("input", &i.name));
    let family = layer.over.iter().map(|o| ("family", &o.name));
    for (what, name) in layer.params.iter().map(|p| ("argument", &p.name)).chain(inputs).chain(family) {
        match seen.iter().find(|known| known.name == name.name) {
            Some(first) => diagnostics.push(duplicate(what, name, first.span)),
            None => seen.push(name),
        }
    }
    for (position, result) in layer.results.iter().enumerate() {
        if let Some(first) = layer.results[..position].iter().find(|known| known.name.name == result.name.name) {
            diagnostics.push(duplicate("result", &result.name, first.name.span));
        }
    }
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

fn plural(dims: usize) -> String {
    match dims {
        1 => "1 dimension".to_string(),
        n => format!("{n} dimensions"),
    }
}
