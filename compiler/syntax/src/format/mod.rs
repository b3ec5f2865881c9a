//! The formatter: prints a syntax tree in its one canonical layout.
//!
//! Comments are not part of the tree. They are found again in the text and printed by position: on a line of their own
//! before the code they precede, or at the end of the line they ended. A comment in the middle of a statement moves
//! before it. Single blank lines between statements are kept.

mod expressions;
mod parts;

use std::borrow::Cow;
use std::fmt::Write;

use hgnnc_diag::{Diagnostics, FileId};

use crate::ast::*;
use crate::tokens::{Lexeme, Token, lex};

use expressions::LOOSEST;
use parts::{broken, criterion_text, from, graph_expr, name, rows, sharing, string, value_type, width};

/// Maximum line width, in columns.
const WIDTH: usize = 120;
const INDENT: usize = 4;
/// Width of the keyword column of a train block.
const KEYWORD_WIDTH: usize = 10;

/// Formats an expression on one line, with numbers printed from their values.
pub fn format_expr(expr: &Expr) -> String {
    Printer::new("", &[]).expr(expr, LOOSEST)
}

/// Formats a module that parsed without errors from `text`. Text that did not parse is not in the tree
/// and would be lost.
pub fn format(module: &Module, text: &str) -> String {
    let mut ignored = Diagnostics::default();
    let lexemes = lex(FileId(0), text, &mut ignored);
    let mut printer = Printer::new(text, &lexemes);
    printer.module(module);
    printer.align();
    printer.out
}

#[derive(Clone, Copy)]
struct Comment {
    start: usize,
    end: usize,
    /// A `///` comment before an item without documentation. It is printed as `//`, since at its new position
    /// it might become documentation.
    misplaced_doc: bool,
    /// An `#[allow(…)]` attribute, printed on a line of its own before the code it applies to.
    attribute: bool,
}

struct Printer<'a> {
    text: &'a str,
    out: String,
    indent: usize,
    /// Nothing was printed since the last opening brace.
    fresh: bool,
    /// All comments in source order; `next_comment` is the first one not yet printed.
    comments: Vec<Comment>,
    next_comment: usize,
    /// Byte offsets in `out` of comments at line ends.
    trailing: Vec<usize>,
    /// The tokens of the text, without comments.
    tokens: Vec<&'a Lexeme>,
    /// Byte offsets of matching opening and closing braces.
    braces: Vec<(usize, usize)>,
}

impl<'a> Printer<'a> {
    fn new(text: &'a str, lexemes: &'a [Lexeme]) -> Self {
        let is_comment =
            |token: &Token| matches!(token, Token::Comment | Token::Doc(_) | Token::ModuleDoc(_) | Token::Attribute);
        let mut comments = Vec::new();
        for (index, lexeme) in lexemes.iter().enumerate() {
            let documents = || {
                let next = lexemes[index..].iter().find(|l| !is_comment(&l.token));
                next.is_some_and(|l| matches!(l.token, Token::Layer | Token::Model))
            };
            let misplaced_doc = match lexeme.token {
                Token::Comment | Token::Attribute => false,
                Token::Doc(_) if !documents() => true,
                _ => continue,
            };
            let attribute = lexeme.token == Token::Attribute;
            comments.push(Comment { start: lexeme.start, end: lexeme.end, misplaced_doc, attribute });
        }
        let tokens: Vec<&Lexeme> = lexemes.iter().filter(|l| !is_comment(&l.token)).collect();
        let mut open = Vec::new();
        let mut braces = Vec::new();
        for lexeme in &tokens {
            match lexeme.token {
                Token::LeftBrace => open.push(lexeme.start),
                Token::RightBrace => braces.extend(open.pop().map(|start| (start, lexeme.start))),
                _ => {}
            }
        }
        braces.sort_unstable();
        Self {
            text,
            out: String::new(),
            indent: 0,
            fresh: true,
            comments,
            next_comment: 0,
            trailing: vec![],
            tokens,
            braces,
        }
    }

    // ---- lines and comments ----

    fn line(&mut self, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", self.indent);
        self.fresh = false;
    }

    fn comment(&self, comment: Comment) -> Cow<'a, str> {
        let text = self.text[comment.start..comment.end].trim_end();
        match text.strip_prefix("///").filter(|_| comment.misplaced_doc) {
            None => text.into(),
            // `//!` would become module documentation.
            Some(rest) if rest.starts_with(['!', '/']) => format!("// {rest}").into(),
            Some(rest) => format!("//{rest}").into(),
        }
    }

    /// Does a blank line precede this byte?
    fn blank_before(&self, start: usize) -> bool {
        let before = &self.text[..start];
        let space = &before[before.trim_end().len()..];
        space.matches('\n').count() > 1
    }

    fn blank(&mut self) {
        if !self.fresh {
            self.out.push('\n');
            self.fresh = true;
        }
    }

    /// Prints the comments before and inside a construct that extends from `start` to `end`.
    fn begin(&mut self, start: usize, end: usize, separate: bool) {
        let separate = self.comments_before(end, separate);
        if separate || self.blank_before(start) {
            self.blank();
        }
    }

    /// Prints the comments before `end`. With `separate`, a blank line precedes the first one. Returns whether the code
    /// that follows still needs the blank line.
    fn comments_before(&mut self, end: usize, mut separate: bool) -> bool {
        while let Some(comment) = self.comments.get(self.next_comment).copied()
            && comment.start < end
        {
            if std::mem::take(&mut separate) || self.blank_before(comment.start) {
                self.blank();
            }
            self.line(&self.comment(comment));
            self.next_comment += 1;
        }
        separate
    }

    /// Appends a comment that follows `end` on the same line to the line just printed.
    fn end(&mut self, end: usize) {
        let Some(comment) = self.comments.get(self.next_comment).copied() else {
            return;
        };
        let between = self.text.get(end..comment.start).unwrap_or("\n");
        if !comment.attribute && between.chars().all(|c| matches!(c, ' ' | '\t' | ',' | ')' | '{')) {
            self.out.truncate(self.out.trim_end().len());
            self.out.push(' ');
            self.trailing.push(self.out.len());
            self.out.push_str(&self.comment(comment));
            self.out.push('\n');
            self.next_comment += 1;
        }
    }

    /// Aligns trailing comments on successive lines in one column.
    fn align(&mut self) {
        let mut aligned = String::with_capacity(self.out.len());
        let mut copied = 0;
        let mut rest = self.trailing.as_slice();
        while !rest.is_empty() {
            let follows = |pair: &[usize]| self.out[pair[0]..pair[1]].matches('\n').count() == 1;
            let length = 1 + rest.windows(2).take_while(|pair| follows(pair)).count();
            let (block, after) = rest.split_at(length);
            let column = |at: usize| width(&self.out[self.out[..at].rfind('\n').map_or(0, |n| n + 1)..at]);
            let widest = block.iter().map(|&at| column(at)).max().unwrap_or(0);
            for &at in block {
                aligned.push_str(&self.out[copied..at]);
                aligned.extend(std::iter::repeat_n(' ', widest - column(at)));
                copied = at;
            }
            rest = after;
        }
        aligned.push_str(&self.out[copied..]);
        self.out = aligned;
    }

    /// The first pair of braces that opens at or after `from`.
    fn braces_after(&self, from: usize) -> (usize, usize) {
        let index = self.braces.partition_point(|(open, _)| *open < from);
        self.braces.get(index).copied().unwrap_or((self.text.len(), self.text.len()))
    }

    /// The start of the preceding token, for example of `let` before a name.
    fn token_before(&self, start: usize) -> usize {
        let index = self.tokens.partition_point(|lexeme| lexeme.start < start);
        index.checked_sub(1).map_or(start, |i| self.tokens[i].start)
    }

    /// Prints the contents of a pair of braces, after the opening brace was printed.
    fn body(&mut self, braces: (usize, usize), print: impl FnOnce(&mut Self)) {
        self.end(braces.0);
        self.indent += INDENT;
        self.fresh = true;
        print(self);
        self.close(braces.1);
    }

    fn close(&mut self, close: usize) {
        self.comments_before(close, false);
        self.indent -= INDENT;
        // No blank line precedes a closing brace.
        self.out.truncate(self.out.trim_end().len());
        self.out.push('\n');
        self.line("}");
        self.end(close + 1);
    }

    // ---- declarations ----

    fn module(&mut self, module: &Module) {
        let first = module.items.first().map_or(self.text.len(), |item| item_extent(item).0);
        if !module.doc.is_empty() {
            let doc = self.text.find("//!").unwrap_or(0);
            self.begin(0, doc.min(first), false);
            for line in &module.doc {
                self.line(format!("//! {line}").trim_end());
            }
        }
        let mut previous: Option<&Item> = None;
        for item in &module.items {
            let (start, end) = item_extent(item);
            let alike =
                matches!((previous, item), (Some(Item::Use(_)), Item::Use(_)) | (Some(Item::Const(_)), Item::Const(_)));
            let separate = !alike && (previous.is_some() || !module.doc.is_empty());
            self.begin(start, end, separate);
            self.item(item);
            previous = Some(item);
        }
        let end = self.text.len();
        let separate = previous.is_some() && self.comments.get(self.next_comment).is_some();
        self.begin(end, end, separate);
        self.out.truncate(self.out.trim_end().len());
        if !self.out.is_empty() {
            self.out.push('\n');
        }
    }

    fn item(&mut self, item: &Item) {
        match item {
            Item::Use(item) => {
                let from = match &item.from {
                    UseFrom::Module(path) => path.iter().map(name).collect::<Vec<_>>().join("::"),
                    UseFrom::File(path) => string(path, self.text),
                };
                let names: Vec<String> = item.names.iter().map(name).collect();
                match names.as_slice() {
                    [] => self.line(&format!("use {from}")),
                    [only] => self.line(&format!("use {from}::{only}")),
                    _ => self.line(&format!("use {from}::{{{}}}", names.join(", "))),
                }
                self.end(item.span.end as usize);
            }
            Item::Const(item) => {
                self.binding("const ", &item.name, &item.value, &None);
                self.end(item.span.end as usize);
            }
            Item::Schema(schema) => {
                self.line(&format!("schema {} {{", name(&schema.name)));
                let braces = self.braces_after(schema.name.span.end as usize);
                self.body(braces, |printer| {
                    for item in &schema.items {
                        printer.schema_item(item);
                    }
                });
            }
            Item::Layer(layer) => self.layer(layer),
            Item::Model(model) => {
                self.doc(&model.doc);
                self.line(&format!("model {}(schema: {}) {{", name(&model.name), name(&model.schema)));
                let braces = self.braces_after(model.span.end as usize);
                self.body(braces, |printer| printer.statements(&model.body));
            }
            Item::Train(train) => {
                self.line(&format!("train {} {{", name(&train.model)));
                let braces = self.braces_after(train.span.end as usize);
                self.body(braces, |printer| {
                    for entry in &train.entries {
                        printer.entry(entry);
                    }
                });
            }
        }
    }

    fn doc(&mut self, lines: &[String]) {
        for line in lines {
            self.line(format!("/// {line}").trim_end());
        }
    }

    fn schema_item(&mut self, item: &SchemaItem) {
        match item {
            SchemaItem::Vertex(vertex) => {
                let head = format!("vertex {}{}", name(&vertex.name), from(&vertex.from, self.text));
                self.with_fields(&head, &vertex.fields, vertex.span);
            }
            SchemaItem::Relation(relation) => {
                let ends = format!("{} -> {}", name(&relation.src), name(&relation.dst));
                let head = format!("relation {}: {ends}{}", name(&relation.name), from(&relation.from, self.text));
                self.with_fields(&head, &relation.fields, relation.span);
            }
            SchemaItem::Metapath(metapath) => {
                let counted = if metapath.counted { "counted " } else { "" };
                let mut text = format!("metapath {} = {counted}{}", name(&metapath.name), name(&metapath.start));
                for hop in &metapath.hops {
                    let relation = name(&hop.relation);
                    let (left, right) = if hop.reverse { ("<-", "-") } else { ("-", "->") };
                    let _ = write!(text, " {left}{relation}{right} {}", name(&hop.to));
                }
                self.spanned(metapath.span, &text);
            }
            SchemaItem::Family(family) => {
                let head = format!("family {} = ", name(&family.name));
                let text = match &family.graphs {
                    GraphExpr::List(graphs, _)
                        if self.indent + width(&head) + width(&graph_expr(&family.graphs)) > WIDTH =>
                    {
                        let items: Vec<String> = graphs.iter().map(graph_expr).collect();
                        head + &broken("[", &items, "]", self.indent)
                    }
                    graphs => head + &graph_expr(graphs),
                };
                self.spanned(family.span, &text);
            }
        }
    }

    /// Prints a construct without a body, on one line.
    fn spanned(&mut self, span: Span, text: &str) {
        self.begin(span.start as usize, span.end as usize, false);
        self.line(text);
        self.end(span.end as usize);
    }

    fn with_fields(&mut self, head: &str, fields: &[FieldDecl], span: Span) {
        if fields.is_empty() {
            return self.spanned(span, head);
        }
        let one: Vec<String> = fields.iter().map(|field| self.field(field)).collect();
        let line = format!("{head} {{ {} }}", one.join(", "));
        let head_end = fields[0].name.span.start as usize;
        let (open, close) = {
            let index = self.braces.partition_point(|(open, _)| *open < head_end);
            index.checked_sub(1).map_or((head_end, span.end as usize), |i| self.braces[i])
        };
        let has_comments = self.comments.iter().any(|c| open < c.start && c.start < close);
        if self.indent + width(&line) <= WIDTH && !has_comments {
            return self.spanned(span, &line);
        }
        self.begin(span.start as usize, open, false);
        self.line(&format!("{head} {{"));
        self.body((open, close), |printer| {
            for (field, text) in fields.iter().zip(one) {
                let end = field.from.as_ref().map_or(field.ty_span, |text| text.span);
                let end = field.init.as_ref().map_or(end, |init| init.span).end as usize;
                printer.begin(field.name.span.start as usize, end, false);
                printer.line(&(text + ","));
                printer.end(end);
            }
        });
    }

    fn field(&self, field: &FieldDecl) -> String {
        let ty = match &field.ty {
            FieldType::Real { width, sparse } => {
                let width = width.as_ref().map_or(String::new(), |w| format!("[{}]", self.expr(w, LOOSEST)));
                format!("f32{width}{}", if *sparse { " sparse" } else { "" })
            }
            FieldType::OneHot => "onehot".to_owned(),
            FieldType::Embedding(width) => format!("embedding[{}]", self.expr(width, LOOSEST)),
            FieldType::Class(width) => format!("class[{}]", self.expr(width, LOOSEST)),
            FieldType::MultiLabel(width) => format!("multilabel[{}]", self.expr(width, LOOSEST)),
            FieldType::Time => "time".to_owned(),
            FieldType::Cutoff => "cutoff".to_owned(),
            FieldType::Target(width) => format!("target[{}]", self.expr(width, LOOSEST)),
        };
        let init = field.init.as_ref().map_or(String::new(), |init| format!(" = {}", self.expr(init, LOOSEST)));
        format!("{}: {ty}{}{init}", name(&field.name), from(&field.from, self.text))
    }

    fn layer(&mut self, layer: &Layer) {
        self.doc(&layer.doc);
        let params: Vec<String> = layer.params.iter().map(|param| self.layer_param(param)).collect();
        let head = format!("layer {}", name(&layer.name));
        let mut clauses = Vec::new();
        if let Some(over) = &layer.over {
            let ends = match &over.ends {
                Some((src, dst)) => format!("{} -> {}", name(src), name(dst)),
                None => "*".to_owned(),
            };
            clauses.push(format!("over {}: [{ends}]", name(&over.name)));
        }
        if !layer.inputs.is_empty() {
            let inputs: Vec<String> = layer.inputs.iter().map(|input| self.input(input)).collect();
            clauses.push(format!("of {}", inputs.join(", ")));
        }
        let results: Vec<String> = layer.results.iter().map(|result| self.result(result)).collect();
        clauses.push(format!("-> {}", results.join(", ")));
        let line = format!("{head}({}) {} {{", params.join(", "), clauses.join(" "));
        // A layer over semantic graphs is printed with one line per clause.
        if clauses.len() <= 2 && width(&line) <= WIDTH {
            self.line(&line);
        } else {
            let line = format!("{head}({})", params.join(", "));
            self.line(&if width(&line) <= WIDTH { line } else { head + &broken("(", &params, ")", 0) });
            for clause in clauses {
                self.line(&format!("    {clause}"));
            }
            self.line("{");
        }
        let braces = self.braces_after(layer.span.end as usize);
        self.body(braces, |printer| printer.blocks(&layer.body));
    }

    fn blocks(&mut self, body: &[LayerStmt]) {
        for stmt in body {
            match stmt {
                LayerStmt::Statement(stmt) => self.statement(stmt),
                LayerStmt::Block(block) => self.block(block),
                LayerStmt::Repeat(repeat) => self.repeat(repeat, |printer| printer.blocks(&repeat.body)),
            }
        }
    }

    fn repeat<S>(&mut self, repeat: &Repeat<S>, body: impl FnOnce(&mut Self)) {
        self.begin(repeat.span.start as usize, repeat.span.end as usize, false);
        self.line(&format!("repeat {} {{", self.expr(&repeat.times, LOOSEST)));
        let braces = self.braces_after(repeat.span.end as usize);
        self.body(braces, body);
    }

    fn layer_param(&self, param: &LayerParam) -> String {
        let kind = match param.kind {
            None => "",
            Some(ParamKind::Dim) => ": dim",
            Some(ParamKind::Real) => ": real",
            Some(ParamKind::Bool) => ": bool",
            Some(ParamKind::Function) => ": fn",
        };
        let default = param.default.as_ref().map_or(String::new(), |e| format!(" = {}", self.expr(e, LOOSEST)));
        format!("{}{kind}{default}", name(&param.name))
    }

    fn input(&self, input: &LayerInput) -> String {
        let optional = if input.optional { " optional" } else { "" };
        let ty = value_type(&input.rows, &self.dims(&input.dims, false));
        format!("{}: {ty}{optional}", name(&input.name))
    }

    fn result(&self, result: &LayerResult) -> String {
        let ty = value_type(&result.rows, &self.dims(&result.dims, false));
        if result.is_unnamed() { ty } else { format!("{}: {ty}", name(&result.name)) }
    }

    fn dims(&self, dims: &[Expr], always: bool) -> String {
        if dims.is_empty() && !always {
            return String::new();
        }
        let dims: Vec<String> = dims.iter().map(|dim| self.expr(dim, LOOSEST)).collect();
        format!("[{}]", dims.join(", "))
    }

    fn block(&mut self, block: &Block) {
        let variable = name(&block.variable);
        let head = match &block.kind {
            BlockKind::Project(of) => format!("project {variable}: {}", rows(of)),
            BlockKind::Aggregate { graph, family } => {
                format!("aggregate {variable}: {} in {}", name(graph), name(family))
            }
            BlockKind::Fuse { rows: of, family } => {
                let across = family.as_ref().map_or(String::new(), |family| format!(" across {}", name(family)));
                format!("fuse {variable}: {}{across}", rows(of))
            }
        };
        self.begin(block.span.start as usize, block.span.end as usize, false);
        self.line(&format!("{head} {{"));
        let braces = self.braces_after(block.span.end as usize);
        self.body(braces, |printer| printer.statements(&block.body));
    }

    // ---- statements ----

    fn statements(&mut self, statements: &[Stmt]) {
        statements.iter().for_each(|stmt| self.statement(stmt));
    }

    fn statement(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Param(param) => self.param(param),
            Stmt::Let(binding) => {
                let start = self.token_before(binding.name.span.start as usize);
                let end = binding.end() as usize;
                self.begin(start, end, false);
                self.binding("let ", &binding.name, &binding.value, &binding.sharing);
                self.end(end);
            }
            Stmt::Assign(binding) => {
                let end = binding.end() as usize;
                self.begin(binding.name.span.start as usize, end, false);
                self.binding("", &binding.name, &binding.value, &binding.sharing);
                self.end(end);
            }
            Stmt::Output(output) => {
                let start = self.token_before(output.name.span.start as usize);
                let end = output.sharing.as_ref().map_or(output.value.span.end, |sharing| sharing.span.end) as usize;
                self.begin(start, end, false);
                let of = output.of.as_ref().map_or_else(String::new, |of| format!("({})", name(of)));
                let head = format!("output {}: {}{of} = ", name(&output.name), name(&output.vertex));
                let value = self.layout(&output.value, LOOSEST, self.indent, self.indent + width(&head));
                self.line(&(head + &value + &sharing(&output.sharing)));
                self.end(end);
            }
            Stmt::Repeat(repeat) => self.repeat(repeat, |printer| printer.statements(&repeat.body)),
        }
    }

    fn binding(&mut self, keyword: &str, bound: &Ident, value: &Expr, of: &Option<Ident>) {
        // An unquoted `shared` at the start of a statement would belong to the parameter above.
        let bound = if keyword.is_empty() && ["shared", "sharing"].contains(&bound.name.as_str()) {
            format!("`{}`", bound.name)
        } else {
            name(bound)
        };
        let head = format!("{keyword}{bound} = ");
        let value = self.layout(value, LOOSEST, self.indent, self.indent + width(&head));
        self.line(&(head + &value + &sharing(of)));
    }

    fn param(&mut self, param: &ParamDecl) {
        let mut text = format!("param {}: {}", name(&param.name), self.dims(&param.dims, true));
        if let Some((per, _)) = param.per {
            text += match per {
                Per::Graph => " per graph",
                Per::Type => " per type",
                Per::Src => " per src",
                Per::Dst => " per dst",
                Per::Hop => " per hop",
                Per::Shared => " shared",
            };
        }
        match &param.decomposition {
            Some(Decomposition::Basis(count)) => text += &format!(" basis({})", self.expr(count, LOOSEST)),
            Some(Decomposition::Blocks(count)) => text += &format!(" blocks({})", self.expr(count, LOOSEST)),
            None => {}
        }
        if let Some(init) = &param.init {
            text += &format!(" = {}", self.expr(init, LOOSEST));
        }
        if param.no_decay {
            text += " no_decay";
        }
        self.spanned(param.span, &text);
    }

    fn entry(&mut self, entry: &TrainEntry) {
        let column = self.indent + KEYWORD_WIDTH;
        let value = |expr: &Expr| self.layout(expr, LOOSEST, self.indent, column);
        let (span, keyword, text) = match entry {
            TrainEntry::Loss(span, expr) => (span, "loss", value(expr)),
            TrainEntry::Optimizer(span, expr) => (span, "optimizer", value(expr)),
            TrainEntry::Schedule(span, expr) => (span, "schedule", value(expr)),
            TrainEntry::Clip(span, expr) => (span, "clip", value(expr)),
            TrainEntry::Epochs(span, expr) => (span, "epochs", value(expr)),
            TrainEntry::Batch(span, expr) => (span, "batch", value(expr)),
            TrainEntry::Fanout(span, fanout) => (span, "fanout", self.fanout(fanout, column)),
            TrainEntry::Reuse(span, expr) => (span, "reuse", value(expr)),
            TrainEntry::Negatives(span, expr) => (span, "negatives", value(expr)),
            TrainEntry::Exclude(span, graphs) => (span, "exclude", graph_expr(graphs)),
            TrainEntry::Cutoff(span, None) => (span, "cutoff", "time".to_owned()),
            TrainEntry::Cutoff(span, Some(period)) => (span, "cutoff", format!("time every {}", value(period))),
            TrainEntry::Seed(span, expr) => (span, "seed", value(expr)),
            TrainEntry::Stop(span, criterion, patience) => {
                let patience = self.expr(patience, LOOSEST);
                let when = criterion_text(criterion);
                (span, "stop", format!("when {when} has not improved for {patience} epochs"))
            }
            TrainEntry::Select(span, criterion) => (span, "select", criterion_text(criterion)),
            TrainEntry::SelectEpoch(span, epoch) => (span, "select", name(epoch)),
            TrainEntry::Metrics(span, names) => {
                (span, "metrics", names.iter().map(name).collect::<Vec<_>>().join(", "))
            }
            TrainEntry::Split(span, text) => (span, "split", string(text, self.text)),
            TrainEntry::Dataset(span, text) => (span, "dataset", string(text, self.text)),
        };
        self.spanned(*span, &format!("{keyword:KEYWORD_WIDTH$}{text}"));
    }

    /// On one line if it fits after `used` columns, else with one line per named graph.
    fn fanout(&self, fanout: &Fanout, used: usize) -> String {
        let hops = self.layout(&fanout.hops, LOOSEST, self.indent, used);
        if fanout.graphs.is_empty() {
            return hops;
        }
        let inside = self.indent + INDENT;
        let heads: Vec<String> = fanout.graphs.iter().map(|own| format!("{}: ", graph_expr(&own.graphs))).collect();
        let own = || heads.iter().zip(&fanout.graphs);
        let flat: Vec<String> = own().map(|(head, own)| format!("{head}{}", self.expr(&own.hops, LOOSEST))).collect();
        let line = format!("{hops} {{ {} }}", flat.join(", "));
        if !hops.contains('\n') && used + width(&line) <= WIDTH {
            return line;
        }
        let laid_out = |(head, own): (&String, &GraphFanout)| {
            format!("{head}{}", self.layout(&own.hops, LOOSEST, inside, inside + width(head) + 1))
        };
        format!("{hops} {}", broken("{", &own().map(laid_out).collect::<Vec<_>>(), "}", self.indent))
    }
}

/// The byte range of an item's head.
fn item_extent(item: &Item) -> (usize, usize) {
    let whole = |span: Span| (span.start as usize, span.end as usize);
    match item {
        Item::Use(item) => whole(item.span),
        Item::Const(item) => whole(item.span),
        Item::Schema(item) => (item.span.start as usize, item.name.span.end as usize),
        Item::Layer(item) => whole(item.span),
        Item::Model(item) => whole(item.span),
        Item::Train(item) => whole(item.span),
    }
}
