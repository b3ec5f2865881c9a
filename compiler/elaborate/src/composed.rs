//! Composed layers: layers of statements instead of blocks, which put other layers together as a model does.
//!
//! The statements are evaluated at each use of the layer, with its inputs, arguments and family as names. Results are
//! assigned by name. The layers used there are uses of their own in the typed model, which the results of the outer use lead to.

use hgnnc_declare::imports::LayerDef;
use hgnnc_declare::schema::LayerGraphs;
use hgnnc_diag::{Diagnostic, codes};
use hgnnc_hir::{ExprKind as Kind, Item, StmtKind, Type};
use hgnnc_syntax::ast::{self, Binding, Ident, LayerPart, LayerStmt, Stmt};

use crate::checker::{Checker, Place, Scope};
use crate::graph_rows::GraphRows;
use crate::layer::LayerCx;
use crate::model::Made;
use crate::value::{Single, Term, Typed};

/// Is the body of a layer made of statements?
pub fn is_composed(layer: &ast::Layer) -> bool {
    let of_model = |part| matches!(part, LayerPart::Statement(stmt) if !matches!(stmt, Stmt::Param(_)));
    layer.parts().any(of_model) && !layer.parts().any(|part| matches!(part, LayerPart::Block(_)))
}

/// The report of a layer of blocks with statements between them.
pub fn mixed_body(layer: &ast::Layer) -> Option<Diagnostic> {
    let block = layer.parts().find_map(|part| match part {
        LayerPart::Block(block) => Some(block.span),
        LayerPart::Statement(_) => None,
    })?;
    let statement = layer.parts().find_map(|part| match part {
        LayerPart::Statement(Stmt::Let(Binding { name, .. }) | Stmt::Assign(Binding { name, .. })) => Some(name.span),
        LayerPart::Statement(Stmt::Repeat(repeat)) => Some(repeat.span),
        LayerPart::Statement(Stmt::Output(output)) => Some(output.name.span),
        LayerPart::Statement(Stmt::Param(_)) | LayerPart::Block(_) => None,
    })?;
    let message = "a layer consists of blocks, or of statements that use other layers";
    let report = Diagnostic::at(codes::MODEL_ONLY, statement, message, "a statement between blocks");
    Some(
        report
            .label(block, "a block")
            .help("put the statement into a block, or write a second layer that uses this one"),
    )
}

impl Scope<'_> {
    /// The names of semantic graphs here; `None` where they are those of the schema.
    pub fn graph_names(&self) -> Option<LayerGraphs<'_>> {
        let layer = self.layer.filter(|_| self.place == Place::Composed)?;
        let over = layer.layer.over.as_ref();
        let family = over.map(|over| (over.name.name.as_str(), &layer.members[..]));
        Some(LayerGraphs { family, types: &layer.types, consts: self.consts })
    }
}

impl<'a> Checker<'a> {
    /// Evaluates the statements of a composed layer, and keeps the results that they assign. False after a mistake.
    pub(crate) fn compose(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>) -> bool {
        let mut scope = self.layer_scope(def, cx, Place::Composed, None);
        for input in &def.layer.inputs {
            let name = &input.name;
            let term = match (cx.vertex_fields.get(&name.name), cx.graph_fields.get(&name.name)) {
                (Some(values), _) => {
                    let parts: Vec<_> = values.iter().map(|(vertex, value)| (*vertex, value.id)).collect();
                    Term::Value(self.types(parts, input.span))
                }
                (None, Some(value)) => {
                    let graphs = cx.graphs.clone().into();
                    let kind = match value.ty.rows().all(|row| GraphRows::of(row) == GraphRows::Edges) {
                        true => Kind::ByGraph(value.id, graphs),
                        false => Kind::RowsByGraph(vec![(value.id, graphs)]),
                    };
                    let rows = cx.graphs.iter().copied().zip(value.ty.rows().cloned()).collect();
                    let own = self.expr(kind, Type::ByGraph(rows), input.span);
                    // A layer that is given it may read what sources have for other graphs.
                    if let Some(given) = cx.by_graph.get(&name.name) {
                        self.whole_values.insert(own.id, given.clone());
                    }
                    Term::Value(own)
                }
                (None, None) if cx.absent.contains(&name.name) => Term::Absent,
                (None, None) => Term::Error,
            };
            self.bind(&mut scope, name, term);
        }
        let mut fine = true;
        let (mut made, mut assigned) = (Made::default(), vec![]);
        for stmt in &def.layer.body {
            if self.gives_up() {
                return false;
            }
            let LayerStmt::Statement(stmt) = stmt else { continue };
            match stmt {
                Stmt::Assign(binding @ Binding { name, value, sharing }) if is_result(def.layer, name) => {
                    fine &= self.shares_nothing(sharing, Place::Composed);
                    scope.statement.clone_from(&name.name);
                    let term = self.eval(value, &scope);
                    scope.statement.clear();
                    made.body.extend(Self::statement(StmtKind::Assign, name, &term));
                    self.bind(&mut scope, name, term.clone());
                    assigned.push((binding, term));
                }
                Stmt::Assign(binding) => {
                    fine = false;
                    self.no_result(def.layer, binding, &mut scope);
                }
                Stmt::Output(output) => {
                    fine = false;
                    self.output_in_layer(output);
                }
                Stmt::Param(_) | Stmt::Let(_) | Stmt::Repeat(_) => self.model_statement(stmt, &mut scope, &mut made),
            }
        }
        cx.body.extend(made.body.into_iter().map(Item::Stmt));
        for (Binding { name, value, .. }, term) in assigned {
            cx.field_spans.insert(name.name.clone(), name.span);
            let value = match self.value(term, value.span) {
                Ok(value) => value,
                Err(mistake) => {
                    self.report(*mistake);
                    None
                }
            };
            if !value.is_some_and(|value| self.composed_result(cx, name, value)) {
                cx.failed.insert(name.name.clone());
                fine = false;
            }
        }
        fine
    }

    /// Keeps a value as what a block would have assigned. False after a report.
    fn composed_result(&mut self, cx: &mut LayerCx<'a>, name: &Ident, value: Typed) -> bool {
        let at = name.span;
        match &*value.ty {
            Type::PerType(rows) => {
                let single = |this: &mut Self, (vertex, row): (&_, &hgnnc_hir::Row)| {
                    let id = this.expr(Kind::OfType(value.id, *vertex), Type::One(row.clone()), at).id;
                    (*vertex, Single { id, row: row.clone() })
                };
                let all = rows.iter().map(|part| single(self, part)).collect();
                cx.vertex_fields.insert(name.name.clone(), all);
                true
            }
            Type::ByGraph(rows) => {
                let mut own = vec![];
                for &graph in &cx.graphs {
                    let Some(row) = rows.get(&graph) else {
                        let graph = self.schema.written(&self.model.tables.graphs[graph.index()]);
                        let message = format!("`{}` has no value for `{graph}`", name.name);
                        self.report(Diagnostic::at(codes::NOT_PROJECTED, at, message, "of other semantic graphs"));
                        return false;
                    };
                    own.push(row.clone());
                }
                let graphs = cx.graphs.clone().into();
                let value = self.expr(Kind::OfGraphs(value.id, graphs), Type::PerGraph(own), at);
                cx.graph_fields.insert(name.name.clone(), value);
                true
            }
            Type::One(_) | Type::PerGraph(_) => {
                let report = Diagnostic::at(
                    codes::RESULT_MISMATCH,
                    at,
                    format!("result `{}` needs rows of vertices or of semantic graphs", name.name),
                    "a single value",
                );
                self.report(report);
                false
            }
        }
    }

    /// Reports an assignment of something that is no result.
    fn no_result(&mut self, layer: &ast::Layer, binding: &Binding, scope: &mut Scope<'_>) {
        let Binding { name, value, .. } = binding;
        if scope.spans.contains_key(&name.name) {
            return self.misplaced_assignment(binding, scope);
        }
        let results: Vec<String> = layer.results.iter().map(|result| format!("`{}`", result.name.name)).collect();
        let message = format!("`{}` is no result of layer `{}`", name.name, layer.name.name);
        let report = Diagnostic::at(codes::UNKNOWN_NAME, name.span, message, "not declared behind `->`");
        self.report(report.help(format!(
            "results: {}; write `let {} = …` for a value in between",
            results.join(", "),
            name.name
        )));
        let term = self.eval(value, scope);
        self.bind(scope, name, term);
    }

    /// A further result of a layer's use, or the values of one type variable: `conv.alpha`, `h.V`.
    pub(crate) fn field_in_composed(&mut self, value: &Typed, field: &Ident, layer: &LayerCx<'_>) -> Term {
        let further = self.further_results.get(&value.id);
        if let Some((_, found)) = further.into_iter().flatten().find(|(name, _)| *name == field.name) {
            return Term::Value(found.clone());
        }
        let Type::PerType(rows) = &*value.ty else { unreachable!("values of vertices") };
        if let Some(vertex) = layer.types.get(&field.name).filter(|vertex| rows.contains_key(vertex)) {
            return Term::Value(self.types([(*vertex, value.id)], field.span));
        }
        let message = "this is neither a result of that layer nor a type variable of this one";
        let report = Diagnostic::at(codes::UNKNOWN_FIELD, field.span, message, "not a field");
        self.report(report.help("a layer does not know the vertex types of the schema"));
        Term::Error
    }
}

fn is_result(layer: &ast::Layer, name: &Ident) -> bool {
    layer.results.iter().any(|result| result.name.name == name.name)
}
