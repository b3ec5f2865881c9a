//! Prints a tree as indented text with expressions in prefix form, for review in snapshots.

use std::fmt::Write;

use hgnnc_syntax::ast::*;

/// The outline of a whole module.
pub fn module(module: &Module) -> String {
    let mut out = String::new();
    for item in &module.items {
        self::item(&mut out, item);
    }
    out
}

macro_rules! put {
    ($out:expr, $depth:expr, $($arg:tt)*) => {{
        let _ = writeln!($out, "{:1$}{2}", "", $depth * 2, format!($($arg)*));
    }};
}

fn item(out: &mut String, item: &Item) {
    match item {
        Item::Use(item) => {
            let names = if item.names.is_empty() { "all".to_owned() } else { idents(&item.names) };
            put!(out, 0, "use {} : {names}", item.from.text());
        }
        Item::Const(item) => put!(out, 0, "const {} {}", item.name.name, expr(&item.value)),
        Item::Schema(schema) => {
            put!(out, 0, "schema {}", schema.name.name);
            for item in &schema.items {
                schema_item(out, item);
            }
        }
        Item::Layer(layer) => {
            put!(out, 0, "layer {} doc={}", layer.name.name, layer.doc.len());
            for param in &layer.params {
                let default = param.default.as_ref().map(expr).unwrap_or_default();
                put!(out, 1, "argument {} {:?} {default}", param.name.name, param.kind);
            }
            if let Some(over) = &layer.over {
                let ends = over.ends.as_ref().map_or("*".to_owned(), |(s, d)| format!("{} -> {}", s.name, d.name));
                put!(out, 1, "over {} {ends}", over.name.name);
            }
            for input in &layer.inputs {
                let optional = if input.optional { " optional" } else { "" };
                put!(out, 1, "input {} {}{optional}", input.name.name, value_type(&input.rows, &input.dims));
            }
            for result in &layer.results {
                put!(out, 1, "result {} {}", result.name.name, value_type(&result.rows, &result.dims));
            }
            blocks(out, 1, &layer.body);
        }
        Item::Model(model) => {
            put!(out, 0, "model {} schema={}", model.name.name, model.schema.name);
            for stmt in &model.body {
                put!(out, 1, "{}", self::stmt(stmt));
            }
        }
        Item::Train(train) => {
            put!(out, 0, "train {}", train.model.name);
            for entry in &train.entries {
                put!(out, 1, "{}", self::entry(entry));
            }
        }
    }
}

fn schema_item(out: &mut String, item: &SchemaItem) {
    let from = |text: &Option<Text>| text.as_ref().map(|t| format!(" from {:?}", t.value)).unwrap_or_default();
    let fields = |out: &mut String, fields: &[FieldDecl]| {
        for field in fields {
            let ty = match &field.ty {
                FieldType::Real { width, sparse } => {
                    format!("real {} sparse={sparse}", width.as_ref().map(expr).unwrap_or_default())
                }
                FieldType::OneHot => "onehot".to_owned(),
                FieldType::Embedding(width) => format!("embedding {}", expr(width)),
                FieldType::Class(width) => format!("class {}", expr(width)),
                FieldType::MultiLabel(width) => format!("multilabel {}", expr(width)),
                FieldType::Target(width) => format!("target {}", expr(width)),
                FieldType::Time => "time".to_owned(),
                FieldType::Cutoff => "cutoff".to_owned(),
            };
            let init = field.init.as_ref().map(|init| format!(" = {}", expr(init))).unwrap_or_default();
            put!(out, 2, "field {}: {ty}{}{init}", field.name.name, from(&field.from));
        }
    };
    match item {
        SchemaItem::Vertex(vertex) => {
            put!(out, 1, "vertex {}{}", vertex.name.name, from(&vertex.from));
            fields(out, &vertex.fields);
        }
        SchemaItem::Relation(r) => {
            put!(out, 1, "relation {}: {} -> {}{}", r.name.name, r.src.name, r.dst.name, from(&r.from));
            fields(out, &r.fields);
        }
        SchemaItem::Metapath(m) => {
            let hop = |hop: &Hop| {
                let sign = if hop.reverse { "-" } else { "+" };
                format!(" {sign}{} {}", hop.relation.name, hop.to.name)
            };
            let hops: String = m.hops.iter().map(hop).collect();
            put!(out, 1, "metapath {} counted={} {}{hops}", m.name.name, m.counted, m.start.name);
        }
        SchemaItem::Family(f) => put!(out, 1, "family {} {}", f.name.name, graphs(&f.graphs)),
    }
}

fn idents(idents: &[Ident]) -> String {
    idents.iter().map(|i| i.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn value_type(of: &ValueRows, dims: &[Expr]) -> String {
    let dims = exprs(dims);
    match of {
        ValueRows::Of(of) => format!("{}{dims}", rows(of)),
        ValueRows::PerGraph => format!("per graph{dims}"),
        ValueRows::OfEachGraph(of) => format!("{}{dims} per graph", rows(of)),
    }
}

fn rows(rows: &RowsOf) -> &str {
    match rows {
        RowsOf::Name(name) => &name.name,
        RowsOf::Any(_) => "*",
    }
}

fn exprs(list: &[Expr]) -> String {
    format!("[{}]", list.iter().map(expr).collect::<Vec<_>>().join(" "))
}

fn param(param: &ParamDecl) -> String {
    let per = param.per.map(|(per, _)| format!(" {per:?}")).unwrap_or_default();
    let tied = match &param.decomposition {
        Some(Decomposition::Basis(count)) => format!(" basis={}", expr(count)),
        Some(Decomposition::Blocks(count)) => format!(" blocks={}", expr(count)),
        None => String::new(),
    };
    let init = param.init.as_ref().map(|init| format!(" init={}", expr(init))).unwrap_or_default();
    let decay = if param.no_decay { " no_decay" } else { "" };
    format!("param {} {}{per}{tied}{init}{decay}", param.name.name, exprs(&param.dims))
}

fn blocks(out: &mut String, depth: usize, body: &[LayerStmt]) {
    for part in body {
        match part {
            LayerStmt::Statement(stmt) => put!(out, depth, "{}", self::stmt(stmt)),
            LayerStmt::Block(block) => {
                let head = match &block.kind {
                    BlockKind::Project(of) => format!("project {}", rows(of)),
                    BlockKind::Aggregate { graph, family } => format!("aggregate {} in {}", graph.name, family.name),
                    BlockKind::Fuse { rows: of, family } => {
                        format!("fuse {} across {:?}", rows(of), family.as_ref().map(|f| &f.name))
                    }
                };
                put!(out, depth, "{head} as {}", block.variable.name);
                for stmt in &block.body {
                    put!(out, depth + 1, "{}", self::stmt(stmt));
                }
            }
            LayerStmt::Repeat(repeat) => {
                put!(out, depth, "repeat {}", expr(&repeat.times));
                blocks(out, depth + 1, &repeat.body);
            }
        }
    }
}

fn stmt(stmt: &Stmt) -> String {
    match stmt {
        Stmt::Param(param) => self::param(param),
        Stmt::Let(binding) => format!("let {}", self::binding(binding)),
        Stmt::Assign(binding) => format!("set {}", self::binding(binding)),
        Stmt::Output(o) => {
            let of = o.of.as_ref().map_or_else(String::new, |of| format!("({})", of.name));
            format!("output {} {}{of} {}{}", o.name.name, o.vertex.name, expr(&o.value), sharing(&o.sharing))
        }
        Stmt::Repeat(repeat) => {
            let body: Vec<String> = repeat.body.iter().map(self::stmt).collect();
            format!("repeat {} {{ {} }}", expr(&repeat.times), body.join("; "))
        }
    }
}

fn binding(binding: &Binding) -> String {
    format!("{} {}{}", binding.name.name, expr(&binding.value), sharing(&binding.sharing))
}

fn sharing(of: &Option<Ident>) -> String {
    of.as_ref().map_or(String::new(), |of| format!(" sharing={}", of.name))
}

fn entry(entry: &TrainEntry) -> String {
    let term = |c: &Criterion| c.term.as_ref().map(|term| format!("{}.", term.name)).unwrap_or_default();
    let criterion = |c: &Criterion| format!("{}.{}{}", c.part.name, term(c), c.metric.name);
    match entry {
        TrainEntry::Loss(_, value) => format!("loss {}", expr(value)),
        TrainEntry::Optimizer(_, value) => format!("optimizer {}", expr(value)),
        TrainEntry::Schedule(_, value) => format!("schedule {}", expr(value)),
        TrainEntry::Clip(_, value) => format!("clip {}", expr(value)),
        TrainEntry::Epochs(_, value) => format!("epochs {}", expr(value)),
        TrainEntry::Batch(_, value) => format!("batch {}", expr(value)),
        TrainEntry::Fanout(_, fanout) => {
            let own = |own: &GraphFanout| format!(" {}:{}", graphs(&own.graphs), expr(&own.hops));
            format!("fanout {}{}", expr(&fanout.hops), fanout.graphs.iter().map(own).collect::<String>())
        }
        TrainEntry::Reuse(_, value) => format!("reuse {}", expr(value)),
        TrainEntry::Negatives(_, value) => format!("negatives {}", expr(value)),
        TrainEntry::Cutoff(_, None) => "cutoff".to_owned(),
        TrainEntry::Cutoff(_, Some(period)) => format!("cutoff every {}", expr(period)),
        TrainEntry::Exclude(_, graphs) => format!("exclude {}", self::graphs(graphs)),
        TrainEntry::Seed(_, value) => format!("seed {}", expr(value)),
        TrainEntry::Stop(_, c, patience) => format!("stop {} {}", criterion(c), expr(patience)),
        TrainEntry::Select(_, c) => format!("select {}", criterion(c)),
        TrainEntry::SelectEpoch(_, name) => format!("select epoch {}", name.name),
        TrainEntry::Metrics(_, names) => format!("metrics {}", idents(names)),
        TrainEntry::Split(_, text) => format!("split {:?}", text.value),
        TrainEntry::Dataset(_, text) => format!("dataset {:?}", text.value),
    }
}

fn graphs(of: &GraphExpr) -> String {
    match of {
        GraphExpr::Name(name) => name.name.clone(),
        GraphExpr::Call { function, argument, count, .. } => {
            let count = count.as_ref().map_or_else(String::new, |count| format!(" {}", expr(count)));
            format!("({} {}{count})", function.name, graphs(argument))
        }
        GraphExpr::List(list, _) => format!("[{}]", list.iter().map(graphs).collect::<Vec<_>>().join(" ")),
        GraphExpr::Filter { graphs: of, into, vertex } => {
            format!("({} {} {})", if *into { "into" } else { "from" }, graphs(of), vertex.name)
        }
        GraphExpr::AtMost { graphs: of, limit, .. } => format!("(at_most {} {})", graphs(of), expr(limit)),
    }
}

/// An expression in prefix form.
pub fn expr(of: &Expr) -> String {
    match &of.kind {
        ExprKind::Number(value) => value.to_string(),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Name(name) => name.clone(),
        ExprKind::Field(base, field) => format!("(. {} {})", expr(base), field.name),
        ExprKind::Slice(base, parts) => {
            let bound = |bound: &Option<Expr>| bound.as_ref().map_or(String::new(), expr);
            let part = |part: &Part| match part {
                Part::At(at) => expr(at),
                Part::Range(start, end) => format!("{}..{}", bound(start), bound(end)),
            };
            format!("(part {} {})", expr(base), parts.iter().map(part).collect::<Vec<_>>().join(" "))
        }
        ExprKind::PathPart { base, part, index } => format!("(.{} {} {})", part.name, expr(base), expr(index)),
        ExprKind::Unary(op, operand) => format!("({op:?} {})", expr(operand)),
        ExprKind::Binary(op, left, right) => format!("({op:?} {} {})", expr(left), expr(right)),
        ExprKind::Call(call) => {
            let arg = |arg: &Arg| {
                let label = arg.name.as_ref().map(|n| format!("{}:", n.name)).unwrap_or_default();
                format!(" {label}{}", expr(&arg.value))
            };
            let args: String = call.args.iter().map(arg).collect();
            let over = call.over.as_ref().map(|g| format!(" over={}", graphs(g))).unwrap_or_default();
            let across = call.across.as_ref().map(|n| format!(" across={}", n.name)).unwrap_or_default();
            let of: String = call.of.iter().map(arg).collect();
            let of = if of.is_empty() { of } else { format!(" of={{{} }}", of) };
            format!("({}{args}{over}{across}{of})", call.callee.name)
        }
        ExprKind::List(list) => exprs(list),
        ExprKind::Tuple(list) => format!("<tuple {}>", exprs(list)),
        ExprKind::Bundle(list) => format!("{{{}}}", list.iter().map(expr).collect::<Vec<_>>().join(" ")),
        ExprKind::If(c, t, e) => format!("(if {} {} {})", expr(c), expr(t), expr(e)),
        ExprKind::Error => "<error>".to_owned(),
    }
}
