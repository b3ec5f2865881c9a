//! The body of a layer in use: its blocks, run once per vertex type or for all semantic graphs at once, and
//! its results.

use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_declare::imports::LayerDef;
use hgnnc_declare::names::duplicate;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::show_space;
use hgnnc_hir::{self as hir, ExprId, ExprKind as Kind, Instance, Item, Row, StmtKind, Type, Width};
use hgnnc_ir::{Graph, Space, VertexType};
use hgnnc_syntax::ast::{self, Binding, Block, BlockKind, Ident, LayerStmt, Repeat, RowsOf, Stmt, ValueRows};

use crate::checker::{Checker, Mistake, Place, Scope, WithoutMessages};
use crate::composed::is_composed;
use crate::graph_rows::{GraphRows, result_by_graph};
use crate::layer::{LayerCx, RESERVED_FIELDS, reserved_field};
use crate::paths::of_step;
use crate::value::{Single, Term, Typed};

/// A field that a block assigns.
type Assigned<'a> = (&'a Binding, Term);

impl<'a> Checker<'a> {
    pub(crate) fn layer_scope<'s>(
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
            Place::Fuse(vertex, _) => cx.into.get(&vertex).cloned().unwrap_or_default(),
            Place::Model | Place::Composed | Place::Layer | Place::Project(..) => vec![],
        };
        Scope {
            place,
            variable,
            locals: HashMap::new(),
            spans: HashMap::new(),
            layer: Some(cx),
            consts: def.consts,
            graphs,
            along: None,
            statement: String::new(),
        }
    }

    /// Checks the body; gives the results, unless something is wrong.
    pub(crate) fn check_body(
        &mut self,
        def: LayerDef<'a>,
        cx: &mut LayerCx<'a>,
        span: Span,
    ) -> Option<Vec<(String, Typed)>> {
        if is_composed(def.layer) {
            return if self.compose(def, cx) { self.results(def, cx, span) } else { None };
        }
        if !self.blocks(def, cx, &def.layer.body) {
            return None;
        }
        self.for_instance(None);
        self.results(def, cx, span)
    }

    /// Checks members of the body in their order; false after a mistake.
    fn blocks(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, body: &'a [LayerStmt]) -> bool {
        let mut fine = true;
        for stmt in body {
            fine &= match stmt {
                LayerStmt::Statement(Stmt::Param(decl)) => self.param_of_blocks(def, cx, decl),
                // Reported with the signature.
                LayerStmt::Statement(_) => false,
                LayerStmt::Block(block) => self.block(def, cx, block),
                LayerStmt::Repeat(repeat) => self.repeat_blocks(def, cx, repeat),
            };
        }
        fine
    }

    /// A parameter between the blocks.
    fn param_of_blocks(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, decl: &'a ast::ParamDecl) -> bool {
        let term = {
            let scope = self.layer_scope(def, cx, Place::Layer, None);
            self.declare(decl, &scope)
        };
        let mut fine = !matches!(term, Term::Error);
        cx.body.extend(Self::statement(StmtKind::Param, &decl.name, &term).map(Item::Stmt));
        // Declared again is another parameter of that name, not the same one in another time of a repetition.
        let first = cx.param_spans.insert(decl.name.name.clone(), decl.name.span);
        if let Some(first) = first.filter(|&first| first != decl.name.span) {
            let report = duplicate("parameter", &decl.name, first);
            self.report(report);
            fine = false;
        }
        cx.params.insert(decl.name.name.clone(), term);
        fine
    }

    /// `repeat n { … }`: the blocks `n` times, each time with parameters of its own. A field that is assigned again has another
    /// value for the blocks behind it and the next times.
    fn repeat_blocks(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, repeat: &'a Repeat<LayerStmt>) -> bool {
        let times = {
            let scope = self.layer_scope(def, cx, Place::Layer, None);
            self.times(&repeat.times, &scope)
        };
        let Some(times) = times else { return false };
        let outside: HashSet<String> = cx.params.keys().cloned().collect();
        let mut fine = true;
        for _ in 0..times {
            fine = self.begins_time(repeat.span) && self.blocks(def, cx, &repeat.body);
            cx.params.retain(|name, _| outside.contains(name));
            // A mistake would be reported again each time.
            if !fine {
                break;
            }
        }
        fine
    }

    fn block(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, block: &'a Block) -> bool {
        match &block.kind {
            BlockKind::Project(rows) => self.per_vertex(def, cx, block, rows, Place::Project),
            BlockKind::Aggregate { family, .. } => {
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
                let outcome = self.statements(def, cx, block, Place::Aggregate);
                let mut instance = Instance { vertex: None, body: vec![], fields: vec![] };
                let fine = self.store(cx, block, outcome, &mut instance);
                cx.body.push(Item::Block(hir::Block { kind: hir::BlockKind::Aggregate, instances: vec![instance] }));
                fine
            }
            BlockKind::Fuse { rows, family } => {
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
                self.per_vertex(def, cx, block, rows, Place::Fuse)
            }
        }
    }

    fn per_vertex(
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
                all.extend(&cx.of_inputs);
                if matches!(block.kind, BlockKind::Fuse { .. }) {
                    all.extend(cx.ends.iter().map(|(_, dst)| *dst));
                }
                if all.is_empty() {
                    all.extend(cx.ends.iter().flat_map(|(src, dst)| [*src, *dst]));
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
            outcomes.push((vertex, self.statements(def, cx, block, place(vertex, many))));
        }
        let assigned: Vec<(VertexType, &Binding, bool)> = outcomes
            .iter()
            .flat_map(|(vertex, outcome)| outcome.iter().flat_map(|(_, assigned)| assigned).map(|of| (*vertex, of)))
            .filter(|(_, (binding, _))| result_by_graph(cx.layer, &binding.name).is_none_or(|(_, rows)| rows.is_none()))
            .map(|(vertex, (binding, term))| (vertex, *binding, is_per_graph(term)))
            .collect();
        let of_both_kinds = self.fields_of_both_kinds(cx, many, &assigned);
        fine &= of_both_kinds.is_empty();
        let mut instances = vec![];
        for (vertex, mut outcome) in outcomes {
            if let Some((_, assigned)) = &mut outcome {
                assigned.retain(|(binding, _)| !of_both_kinds.contains(&binding.name.name));
            }
            let mut instance = Instance { vertex: Some(vertex), body: vec![], fields: vec![] };
            fine &= self.store(cx, block, outcome, &mut instance);
            instances.push(instance);
        }
        self.for_instance(None);
        for name in of_both_kinds {
            cx.forget_graph_field(&name);
            cx.failed.insert(name);
        }
        let assigned: Vec<&Ident> = block.body.iter().filter_map(assigned_name).collect();
        fine &= self.complete_graph_rows(cx, &assigned);
        let kind = match block.kind {
            BlockKind::Fuse { .. } => hir::BlockKind::Fuse,
            BlockKind::Project(_) | BlockKind::Aggregate { .. } => hir::BlockKind::Project,
        };
        cx.body.push(Item::Block(hir::Block { kind, instances }));
        fine
    }

    /// Checks the statements of a block; gives them and the assigned fields, or `None` after a mistake.
    fn statements(
        &mut self,
        def: LayerDef<'a>,
        cx: &LayerCx<'a>,
        block: &'a Block,
        place: Place,
    ) -> Option<(Vec<hir::Stmt>, Vec<Assigned<'a>>)> {
        let mut body = vec![];
        // Fields assigned in this block are visible to the statements behind them.
        let mut assigned: Vec<Assigned<'a>> = vec![];
        let mut fields: HashMap<&str, Span> = HashMap::new();
        let mut scope = self.layer_scope(def, cx, place, Some(&block.variable));
        let mut fine = true;
        for (at, stmt) in block.body.iter().enumerate() {
            if self.gives_up() {
                return None;
            }
            match stmt {
                Stmt::Param(decl) => {
                    let term = self.declare(decl, &scope);
                    fine &= !matches!(term, Term::Error);
                    body.extend(Self::statement(StmtKind::Param, &decl.name, &term));
                    self.bind(&mut scope, &decl.name, term);
                }
                Stmt::Let(Binding { name, value, sharing }) => {
                    fine &= self.shares_nothing(sharing, place);
                    scope.statement.clone_from(&name.name);
                    let term = if of_step(value, &scope) {
                        self.let_of_step(value, &block.body[at..], &scope)
                    } else {
                        self.eval(value, &scope)
                    };
                    scope.statement.clear();
                    fine &= !matches!(term, Term::Error);
                    body.extend(Self::statement(StmtKind::Let, name, &term));
                    self.bind(&mut scope, name, term);
                }
                Stmt::Assign(binding @ Binding { name, value, sharing }) => {
                    fine &= self.shares_nothing(sharing, place);
                    scope.statement.clone_from(&name.name);
                    let term = self.eval(value, &scope);
                    scope.statement.clear();
                    fine &= !matches!(term, Term::Error);
                    body.extend(Self::statement(StmtKind::Assign, name, &term));
                    let first = *fields.entry(&name.name).or_insert(name.span);
                    if first != name.span {
                        let report = duplicate("field", name, first);
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
                    self.output_in_layer(output);
                    fine = false;
                }
                Stmt::Repeat(repeat) => {
                    self.report(
                        Diagnostic::at(
                            codes::MODEL_ONLY,
                            repeat.span,
                            "`repeat` stands in a model, or around blocks of a layer",
                            "inside a block",
                        )
                        .help("repeat the block: `repeat 3 { fuse v: V across graphs { … } }`"),
                    );
                    fine = false;
                }
            }
        }
        fine.then_some((body, assigned))
    }

    /// Refuses an `output` in a layer.
    pub(crate) fn output_in_layer(&mut self, output: &ast::OutputStmt) {
        let message = "`output` belongs into a model";
        self.report(Diagnostic::at(codes::MODEL_ONLY, output.name.span, message, "in a layer, assign the result"));
    }

    /// Refuses `sharing` in a layer; false after the report.
    pub(crate) fn shares_nothing(&mut self, sharing: &Option<Ident>, place: Place) -> bool {
        let Some(of) = sharing else { return true };
        let (label, help) = match place {
            Place::Composed => (
                "the statements of a layer have parameters of their own",
                "a model's statement that uses the layer can share all of them with another one",
            ),
            _ => (
                "a layer shares parameters between its blocks",
                "a parameter that is declared between the blocks of a layer belongs to all of them",
            ),
        };
        let message = "`sharing` belongs into a model";
        self.report(Diagnostic::at(codes::MODEL_ONLY, of.span, message, label).help(help));
        false
    }

    /// Makes the assigned fields known to the blocks behind.
    fn store(
        &mut self,
        cx: &mut LayerCx<'a>,
        block: &Block,
        outcome: Option<(Vec<hir::Stmt>, Vec<Assigned<'a>>)>,
        instance: &mut Instance,
    ) -> bool {
        let Some((body, assigned)) = outcome else {
            cx.failed.extend(block.body.iter().filter_map(assigned_name).map(|name| name.name.clone()));
            return false;
        };
        instance.body = body;
        let mut fine = true;
        for (Binding { name, value, .. }, term) in assigned {
            cx.field_spans.entry(name.name.clone()).or_insert(name.span);
            cx.assigned.insert(name.name.clone());
            let declared = match result_by_graph(cx.layer, name) {
                Some((result, Some(rows @ (GraphRows::Single | GraphRows::Vertices)))) => {
                    Some(Some((result.span, rows)))
                }
                Some(_) => None,
                // A field that is no result may have a row for each semantic graph as well.
                None => is_per_graph(&term).then_some(None),
            };
            if let (Some(vertex), Some(declared)) = (instance.vertex, declared) {
                let known = self.value(term, value.span);
                let known = self.or_report(known).flatten();
                if !known.is_some_and(|known| self.assign_graph_rows(cx, (name, declared), known, vertex, value.span)) {
                    cx.failed.insert(name.name.clone());
                    fine = false;
                }
                continue;
            }
            match self.field_value(cx, name, term, instance.vertex, value.span) {
                Some(id) => instance.fields.push((name.name.clone(), id)),
                None => {
                    if fine {
                        cx.failed.insert(name.name.clone());
                    }
                    fine = false;
                }
            }
        }
        fine
    }

    /// An assigned value with one row for each vertex or edge; `None` after a mistake.
    fn field_value(
        &mut self,
        cx: &mut LayerCx<'a>,
        name: &Ident,
        term: Term,
        vertex: Option<VertexType>,
        span: Span,
    ) -> Option<ExprId> {
        let value = match self.value(term, span) {
            Ok(value) => value?,
            Err(mistake) => {
                self.report(*mistake);
                return None;
            }
        };
        let field = name.name.clone();
        match (&*value.ty, vertex) {
            (Type::PerType(rows), None) => {
                cx.forget_graph_field(&field);
                let fields = cx.vertex_fields.entry(field).or_default();
                for (vertex, row) in rows {
                    let one = self.expr(Kind::OfType(value.id, *vertex), Type::One(row.clone()), span);
                    fields.insert(*vertex, Single { id: one.id, row: row.clone() });
                }
                Some(value.id)
            }
            (Type::PerGraph(_) | Type::One(_), None) => {
                let value = match &*value.ty {
                    Type::One(row) => {
                        let rows = vec![row.clone(); cx.graphs.len()];
                        self.expr(Kind::Repeat(value.id), Type::PerGraph(rows), span)
                    }
                    _ => value,
                };
                // It stands for an input of this name, or for what a block before has assigned.
                cx.forget_graph_field(&field);
                cx.vertex_fields.remove(&field);
                cx.graph_fields.insert(field, value.clone());
                Some(value.id)
            }
            (Type::PerGraph(_), Some(_)) => {
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
                None
            }
            (Type::One(row), Some(vertex)) => {
                let id = self.broadcast_field(value.id, row, vertex, span);
                let id = self.or_report(id)?;
                let Type::One(row) = &*self.model.expr(id).ty else { unreachable!("a single value") };
                cx.forget_graph_field(&field);
                cx.vertex_fields.entry(field).or_default().insert(vertex, Single { id, row: row.clone() });
                Some(id)
            }
            (Type::PerType(_), Some(_)) | (Type::ByGraph(_), _) => {
                let report = self.not_a_value(&Term::Value(value), span);
                self.report(report);
                None
            }
        }
    }

    /// A field has a row for every vertex; a scalar stays as it is until its shape is known.
    fn broadcast_field(&mut self, id: ExprId, row: &Row, vertex: VertexType, span: Span) -> Result<ExprId, Mistake> {
        let space = Space::Vertices(vertex);
        if row.space == space || row.space == Space::Unit && row.widths.is_empty() {
            Ok(id)
        } else if row.space == Space::Unit {
            self.broadcast(id, row, space, span)
        } else {
            Err(Box::new(Diagnostic::at(
                codes::DIFFERENT_SPACES,
                span,
                format!("a field of `{}` needs one row per vertex", self.vertex_name(vertex)),
                format!("has {}", show_space(&self.model.tables, row.space)),
            )))
        }
    }

    /// The results as declared.
    fn results(&mut self, def: LayerDef<'a>, cx: &LayerCx<'a>, span: Span) -> Option<Vec<(String, Typed)>> {
        let mut all = vec![];
        for result in &def.layer.results {
            let name = &result.name.name;
            let declared = GraphRows::declared(def.layer, &result.rows);
            let rows_of = match (&result.rows, declared) {
                (_, Some(rows @ (GraphRows::Single | GraphRows::Vertices))) => {
                    all.push((name.clone(), self.graph_result(def, cx, (result, rows))?));
                    continue;
                }
                (ValueRows::Of(rows_of), _) => rows_of,
                (ValueRows::PerGraph | ValueRows::OfEachGraph(_), _) => unreachable!("values by semantic graph"),
            };
            let is_family = declared.is_some();
            // Edges to predict are rows already where another layer has computed their values.
            let are_rows = is_family && cx.vertex_fields.contains_key(name) && self.all_edge_rows(&cx.graphs);
            let is_family = is_family && !are_rows;
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
                if let (true, Some(at)) = (is_family && cx.vertex_fields.contains_key(name), cx.field_spans.get(name)) {
                    report = report.label(*at, "assigned here, but as a value of vertices");
                }
                if let (false, Some(at)) = (is_family, cx.field_spans.get(name)) {
                    report = report
                        .label(*at, "assigned here, but as a value of each semantic graph")
                        .help(format!("combine them in a `fuse` block: `{name} = sum(v.{name}) across …`"));
                }
                self.report(report);
                return None;
            }
            let value = if is_family {
                let value = cx.graph_fields[name].clone();
                let mut rows = BTreeMap::new();
                for (&graph, row) in cx.graphs.iter().zip(value.ty.rows()) {
                    let widths = self.result_widths(def, cx, result, None)?;
                    let fitted = self.fit_row(row, Space::Edges(graph), &widths, result.span);
                    rows.insert(graph, self.or_report(fitted)?);
                }
                if self.all_edge_rows(&cx.graphs) {
                    let value = self.as_edge_rows(&value, rows, cx, result.span);
                    all.push((name.clone(), value));
                    continue;
                }
                self.expr(Kind::ByGraph(value.id, cx.graphs.clone().into()), Type::ByGraph(rows), result.span)
            } else {
                let mut values = vec![];
                for (&vertex, value) in &cx.vertex_fields[name] {
                    if let (RowsOf::Name(variable), false) = (rows_of, are_rows)
                        && cx.types.get(&variable.name) != Some(&vertex)
                    {
                        continue;
                    }
                    let widths = self.result_widths(def, cx, result, Some(vertex))?;
                    let fitted = self.fit_row(&value.row, Space::Vertices(vertex), &widths, result.span);
                    let mut row = self.or_report(fitted)?;
                    let id = self.fitted(value.id, &value.row, &row, result.span);
                    if !are_rows {
                        self.note_messages(def, cx, vertex, id);
                    }
                    // Further on, a library's widths come from its use: that is what can be edited.
                    for width in &mut row.widths {
                        if !self.is_edited(width.origin) {
                            width.origin = span;
                        }
                    }
                    values.push((vertex, id, row));
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
                let parts = values.iter().map(|(vertex, id, _)| (*vertex, *id)).collect();
                let ty = Type::PerType(values.into_iter().map(|(vertex, _, row)| (vertex, row)).collect());
                self.expr(Kind::Types(parts), ty, result.span)
            };
            all.push((name.clone(), value));
        }
        Some(all)
    }

    /// Are all graphs of a family edges to predict?
    fn all_edge_rows(&self, graphs: &[Graph]) -> bool {
        graphs.iter().all(|graph| self.edges_of(*graph).is_some())
    }

    /// Remembers a result for a vertex type that the layer brings no messages to; whether it matters is known
    /// when it is known what the outputs need.
    fn note_messages(&mut self, def: LayerDef<'a>, cx: &LayerCx<'a>, vertex: VertexType, value: ExprId) {
        if let Some(span) = cx.family_span
            && !cx.into.contains_key(&vertex)
        {
            let layer = def.layer.name.name.clone();
            self.without_messages.push(WithoutMessages { span, layer, vertex, value });
        }
    }

    /// The widths that a result declares, for a vertex type or for the whole family.
    pub(crate) fn result_widths(
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

    /// Unwraps a result; a mistake is reported and becomes `None`.
    pub fn or_report<T>(&mut self, result: Result<T, Mistake>) -> Option<T> {
        result.map_err(|mistake| self.report(*mistake)).ok()
    }
}

/// Is it a value for each semantic graph?
fn is_per_graph(term: &Term) -> bool {
    matches!(term, Term::Value(value) if matches!(*value.ty, Type::PerGraph(_)))
}

/// The field that a statement of a block assigns.
fn assigned_name(stmt: &Stmt) -> Option<&Ident> {
    match stmt {
        Stmt::Assign(binding) => Some(&binding.name),
        Stmt::Param(_) | Stmt::Let(_) | Stmt::Output(_) | Stmt::Repeat(_) => None,
    }
}
