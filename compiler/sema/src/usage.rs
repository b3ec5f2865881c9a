//! Warnings about what is declared and never used, from the syntax tree alone.

use std::collections::HashSet;

use hgnnc_declare::imports::Imports;
use hgnnc_diag::{Code, Diagnostic, Diagnostics, Span, codes};
use hgnnc_syntax::ast::{
    self, Call, Expr, ExprKind, FieldType, GraphExpr, Item, Layer, LayerPart, LayerStmt, Model, Module, ParamDecl,
    Schema, SchemaItem, Stmt, Train, TrainEntry,
};

/// Reports unused imports, constants, layers, schemas, layer arguments, parameters, locals and fields of a
/// file. Gives the spans of unused declarations and values, so that nothing more is said about them.
pub fn check(module: &Module, imports: &Imports<'_>, diagnostics: &mut Diagnostics) -> Vec<Span> {
    let mut found = Unused { diagnostics, spans: vec![] };
    let diagnostics = &mut found;
    let mut file = Names::default();
    for item in &module.items {
        match item {
            Item::Const(decl) => file.expr(&decl.value),
            Item::Layer(layer) => {
                file.layer(layer);
                layer_usage(layer, diagnostics);
            }
            Item::Model(model) => {
                file.body(&model.body);
                let trains = module.items.iter().filter_map(|item| match item {
                    Item::Train(train) if train.model.name == model.name.name => Some(train),
                    _ => None,
                });
                model_usage(model, trains, diagnostics);
            }
            Item::Schema(schema) => file.schema(schema),
            Item::Train(train) => file.train(train),
            Item::Use(_) => {}
        }
    }
    let mut schemas = module.items.iter().filter_map(|item| match item {
        Item::Model(model) => Some(&model.schema.name),
        _ => None,
    });
    let schema = schemas.next();
    for item in &module.items {
        match item {
            Item::Use(import) => {
                let is_used = |at: Span| {
                    imports.found.iter().filter(|found| found.at == at).any(|found| match found.item {
                        Item::Layer(layer) => file.calls.contains(&layer.name.name),
                        Item::Const(decl) => file.names.contains(&decl.name.name),
                        Item::Schema(decl) => schema.is_some_and(|used| *used == decl.name.name),
                        Item::Use(_) | Item::Model(_) | Item::Train(_) => false,
                    })
                };
                for name in import.names.iter().filter(|name| !is_used(name.span)) {
                    let message = format!("`{}` is imported but never used", name.name);
                    unused(codes::UNUSED_IMPORT, name.span, message, "remove it", diagnostics);
                }
                if let (ast::UseFrom::File(path), true) = (&import.from, import.names.is_empty())
                    && !is_used(path.span)
                {
                    let message = format!("nothing of `{}` is used", path.value);
                    unused(codes::UNUSED_IMPORT, path.span, message, "remove it", diagnostics);
                }
            }
            Item::Const(decl) if !file.names.contains(&decl.name.name) => {
                let message = format!("constant `{}` is never used", decl.name.name);
                unused(codes::UNUSED_DECLARATION, decl.name.span, message, "no expression mentions it", diagnostics);
            }
            Item::Layer(layer) if !file.calls.contains(&layer.name.name) => {
                let message = format!("layer `{}` is never used", layer.name.name);
                let label = "no model uses it";
                unused(codes::UNUSED_DECLARATION, layer.name.span, message, label, diagnostics);
            }
            Item::Schema(decl) if schema.is_some_and(|used| *used != decl.name.name) => {
                let message = format!("schema `{}` is never used", decl.name.name);
                unused(codes::UNUSED_DECLARATION, decl.name.span, message, "the model has another one", diagnostics);
            }
            Item::Const(_) | Item::Layer(_) | Item::Schema(_) | Item::Model(_) | Item::Train(_) => {}
        }
    }
    found.spans
}

/// The reports of unused names, and the spans of their values or declarations.
struct Unused<'a> {
    diagnostics: &'a mut Diagnostics,
    spans: Vec<Span>,
}

fn layer_usage(layer: &Layer, diagnostics: &mut Unused<'_>) {
    let mut used = Names::default();
    used.layer(layer);
    for param in &layer.params {
        let name = &param.name;
        if !used.names.contains(&name.name) && !used.calls.contains(&name.name) {
            let message = format!("argument `{}` of layer `{}` is never used", name.name, layer.name.name);
            unused(codes::UNUSED_ARGUMENT, name.span, message, "has no effect", diagnostics);
        }
    }
    let results: HashSet<&str> = layer.results.iter().map(|r| r.name.name.as_str()).collect();
    let mut params: Vec<&ParamDecl> = vec![];
    let statements = layer.parts().flat_map(|part| match part {
        LayerPart::Statement(stmt) => std::slice::from_ref(stmt),
        LayerPart::Block(block) => &block.body[..],
    });
    let mut pending: Vec<&Stmt> = statements.collect();
    pending.reverse();
    while let Some(stmt) = pending.pop() {
        match stmt {
            Stmt::Param(decl) => params.push(decl),
            Stmt::Let(binding) if !used.names.contains(&binding.name.name) => {
                let message = format!("`{}` is never used", binding.name.name);
                unused(codes::UNUSED_LET, binding.name.span, message, "has no effect", diagnostics);
                diagnostics.spans.push(binding.value.span);
            }
            Stmt::Assign(binding)
                if !results.contains(binding.name.name.as_str())
                    && !used.fields.contains(&binding.name.name)
                    && !used.names.contains(&binding.name.name) =>
            {
                unused(
                    codes::UNUSED_LET,
                    binding.name.span,
                    format!("field `{}` is never used", binding.name.name),
                    "neither read nor a result of the layer",
                    diagnostics,
                );
            }
            Stmt::Repeat(repeat) => pending.extend(repeat.body.iter().rev()),
            Stmt::Let(_) | Stmt::Assign(_) | Stmt::Output(_) => {}
        }
    }
    unused_params(&params, &used, diagnostics);
}

fn model_usage<'t>(model: &Model, trains: impl Iterator<Item = &'t Train>, diagnostics: &mut Unused<'_>) {
    let mut used = Names::default();
    used.body(&model.body);
    // A loss sees the names of its model.
    for entry in trains.flat_map(|train| &train.entries) {
        if let TrainEntry::Loss(_, loss) = entry {
            used.expr(loss);
        }
    }
    let mut params = vec![];
    let mut pending: Vec<&Stmt> = model.body.iter().rev().collect();
    while let Some(stmt) = pending.pop() {
        match stmt {
            Stmt::Param(decl) => params.push(decl),
            Stmt::Let(binding) if !used.names.contains(&binding.name.name) => {
                let message = format!("`{}` is never used", binding.name.name);
                unused(codes::UNUSED_LET, binding.name.span, message, "has no effect on an output", diagnostics);
                diagnostics.spans.push(binding.value.span);
            }
            Stmt::Repeat(repeat) => pending.extend(repeat.body.iter().rev()),
            Stmt::Let(_) | Stmt::Assign(_) | Stmt::Output(_) => {}
        }
    }
    unused_params(&params, &used, diagnostics);
}

fn unused_params(params: &[&ParamDecl], used: &Names, diagnostics: &mut Unused<'_>) {
    for decl in params {
        if !used.names.contains(&decl.name.name) {
            let message = format!("parameter `{}` is never used", decl.name.name);
            unused(codes::UNUSED_PARAM, decl.name.span, message, "would not be trained", diagnostics);
            diagnostics.spans.push(decl.span);
        }
    }
}

fn unused(code: Code, span: Span, message: String, label: &str, diagnostics: &mut Unused<'_>) {
    diagnostics.diagnostics.push(Diagnostic::at(code, span, message, label));
}

/// The names that a piece of the tree mentions.
#[derive(Default)]
struct Names {
    /// Names that stand for a value.
    names: HashSet<String>,
    /// Names behind a dot.
    fields: HashSet<String>,
    /// Names that are called.
    calls: HashSet<String>,
}

impl Names {
    fn schema(&mut self, schema: &Schema) {
        for item in &schema.items {
            let fields = match item {
                SchemaItem::Vertex(vertex) => &vertex.fields,
                SchemaItem::Relation(relation) => &relation.fields,
                SchemaItem::Family(family) => {
                    self.graphs(&family.graphs);
                    continue;
                }
                SchemaItem::Metapath(_) => continue,
            };
            for field in fields {
                match &field.ty {
                    FieldType::Real { width, .. } => width.iter().for_each(|e| self.expr(e)),
                    FieldType::OneHot | FieldType::Time | FieldType::Cutoff => {}
                    FieldType::Embedding(e) | FieldType::Class(e) | FieldType::MultiLabel(e) | FieldType::Target(e) => {
                        self.expr(e)
                    }
                }
                field.init.iter().for_each(|init| self.expr(init));
            }
        }
    }

    fn train(&mut self, train: &Train) {
        for entry in &train.entries {
            match entry {
                TrainEntry::Loss(_, e)
                | TrainEntry::Optimizer(_, e)
                | TrainEntry::Schedule(_, e)
                | TrainEntry::Clip(_, e)
                | TrainEntry::Epochs(_, e)
                | TrainEntry::Batch(_, e)
                | TrainEntry::Reuse(_, e)
                | TrainEntry::Negatives(_, e)
                | TrainEntry::Stop(_, _, e)
                | TrainEntry::Seed(_, e) => self.expr(e),
                TrainEntry::Fanout(_, fanout) => {
                    self.expr(&fanout.hops);
                    for own in &fanout.graphs {
                        self.graphs(&own.graphs);
                        self.expr(&own.hops);
                    }
                }
                TrainEntry::Exclude(_, graphs) => self.graphs(graphs),
                TrainEntry::Cutoff(_, period) => period.iter().for_each(|period| self.expr(period)),
                TrainEntry::Select(..)
                | TrainEntry::SelectEpoch(..)
                | TrainEntry::Metrics(..)
                | TrainEntry::Split(..)
                | TrainEntry::Dataset(..) => {}
            }
        }
    }

    fn layer(&mut self, layer: &Layer) {
        layer.params.iter().filter_map(|p| p.default.as_ref()).for_each(|e| self.expr(e));
        layer.inputs.iter().flat_map(|i| &i.dims).for_each(|e| self.expr(e));
        layer.results.iter().flat_map(|r| &r.dims).for_each(|e| self.expr(e));
        self.blocks(&layer.body);
    }

    fn blocks(&mut self, body: &[LayerStmt]) {
        for stmt in body {
            match stmt {
                LayerStmt::Statement(stmt) => self.body(std::slice::from_ref(stmt)),
                LayerStmt::Block(block) => self.body(&block.body),
                LayerStmt::Repeat(repeat) => {
                    self.expr(&repeat.times);
                    self.blocks(&repeat.body);
                }
            }
        }
    }

    fn body(&mut self, body: &[Stmt]) {
        for stmt in body {
            match stmt {
                Stmt::Param(decl) => self.param(decl),
                Stmt::Let(binding) | Stmt::Assign(binding) => self.expr(&binding.value),
                Stmt::Output(output) => self.expr(&output.value),
                Stmt::Repeat(repeat) => {
                    self.expr(&repeat.times);
                    self.body(&repeat.body);
                }
            }
        }
    }

    fn param(&mut self, decl: &ParamDecl) {
        decl.dims.iter().for_each(|e| self.expr(e));
        if let Some(init) = &decl.init {
            self.expr(init);
        }
        match &decl.decomposition {
            Some(hgnnc_syntax::ast::Decomposition::Basis(e) | hgnnc_syntax::ast::Decomposition::Blocks(e)) => {
                self.expr(e);
            }
            None => {}
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Number(_) | ExprKind::Bool(_) | ExprKind::Error => {}
            ExprKind::Name(name) => {
                self.names.insert(name.clone());
            }
            ExprKind::Field(base, field) => {
                self.fields.insert(field.name.clone());
                self.expr(base);
            }
            ExprKind::Slice(base, parts) => {
                self.expr(base);
                parts.iter().flat_map(|part| part.bounds()).for_each(|bound| self.expr(bound));
            }
            ExprKind::PathPart { base, index, .. } => {
                self.expr(base);
                self.expr(index);
            }
            ExprKind::Unary(_, a) => self.expr(a),
            ExprKind::Binary(_, a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Call(call) => self.call(call),
            ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Bundle(items) => {
                items.iter().for_each(|e| self.expr(e))
            }
            ExprKind::If(condition, yes, no) => {
                self.expr(condition);
                self.expr(yes);
                self.expr(no);
            }
        }
    }

    fn call(&mut self, call: &Call) {
        self.calls.insert(call.callee.name.clone());
        call.args.iter().chain(&call.of).for_each(|arg| self.expr(&arg.value));
        match &call.over {
            Some(GraphExpr::Name(name)) => {
                self.names.insert(name.name.clone());
            }
            Some(graphs) => self.graphs(graphs),
            None => {}
        }
    }

    /// Names of semantic graphs are no values, but their numbers are.
    fn graphs(&mut self, graphs: &GraphExpr) {
        match graphs {
            GraphExpr::Name(_) => {}
            GraphExpr::Call { argument, count, .. } => {
                self.graphs(argument);
                count.iter().for_each(|count| self.expr(count));
            }
            GraphExpr::List(items, _) => items.iter().for_each(|item| self.graphs(item)),
            GraphExpr::Filter { graphs, .. } => self.graphs(graphs),
            GraphExpr::AtMost { graphs, limit, .. } => {
                self.graphs(graphs);
                self.expr(limit);
            }
        }
    }
}
