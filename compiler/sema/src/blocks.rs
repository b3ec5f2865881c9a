//! The body of a layer in use: its blocks, run once per vertex type or for all semantic graphs at once, and
//! its results.

use std::collections::{BTreeMap, HashMap};

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::{Space, Stage, VertexType};
use hgnnc_syntax::ast::{self, Binding, Block, BlockKind, Ident, LayerStmt, RowsOf, Stmt};

use crate::elaborate::{Elaborator, LayerDef, Place, Scope, WithoutMessages};
use crate::layer::{LayerCx, RESERVED_FIELDS, reserved_field};
use crate::names::duplicate;
use crate::value::{Term, Val, ValKind, Width};

impl<'a> Elaborator<'a> {
    pub fn layer_scope<'s>(
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

    pub fn run_body(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, span: Span) -> Option<Term> {
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
        let mut fields: HashMap<&str, Span> = HashMap::new();
        let mut scope = self.layer_scope(def, cx, place, Some(&block.variable));
        let mut fine = true;
        for stmt in &block.body {
            if self.gives_up() {
                return None;
            }
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
                    values.insert(graph, self.or_report(fitted)?);
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
                    let mut val = self.or_report(fitted)?;
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
            && !cx.into.contains_key(&vertex)
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

    /// Unwraps a result; a mistake is reported and becomes `None`.
    pub fn or_report<T>(&mut self, result: Result<T, crate::elaborate::Mistake>) -> Option<T> {
        result.map_err(|mistake| self.report(*mistake)).ok()
    }
}
