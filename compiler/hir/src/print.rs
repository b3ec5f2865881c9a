//! The typed model as text: statements with the type of what they bind.

use std::collections::HashMap;
use std::fmt::Write as _;

use hgnnc_ir::dataflow::train_labels;
use hgnnc_ir::training::{LinkLoss, RankingLoss};
use hgnnc_ir::{BinaryOp, Direction, Graph, Space, UnaryOp, VertexType};

use crate::text::show_widths;
use crate::{
    Axis, Block, Decomposition, EdgeData, ExprId, ExprKind, FeatureKind, Form, Initialiser, Item, LayerUse, LossKind,
    LossTerm, Model, Param, PathPart, Row, Stmt, StmtKind, Tables, Type,
};

/// Longer families are counted.
const MAX_LISTED: usize = 6;

/// Prints the statements of a model, indented. Names stand for the expressions that they are bound to.
pub fn print(model: &Model) -> String {
    let mut printer = Printer { model, names: HashMap::new(), text: String::new() };
    for stmt in &model.body {
        printer.stmt(stmt, 1);
    }
    if let Some(loss) = &model.loss {
        let terms: Vec<String> = loss.terms.iter().map(|term| printer.loss_term(term)).collect();
        printer.line(1, &format!("loss {}", terms.join(" + ")));
    }
    printer.text
}

struct Printer<'m> {
    model: &'m Model,
    /// The names that expressions are bound to.
    names: HashMap<ExprId, String>,
    text: String,
}

impl<'m> Printer<'m> {
    fn line(&mut self, depth: usize, line: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:1$}{line}", "", 2 * depth);
    }

    fn name(&mut self, id: ExprId, name: &str) {
        self.names.entry(id).or_insert_with(|| name.to_owned());
    }

    fn loss_term(&mut self, term: &'m LossTerm) -> String {
        self.uses(term.value, 1);
        let value = self.operand(term.value);
        let text = match &term.kind {
            LossKind::CrossEntropy { label, .. } => format!("cross_entropy({value}, {})", label.name),
            LossKind::BinaryCrossEntropy { label, .. } => format!("binary_cross_entropy({value}, {})", label.name),
            LossKind::Distance { label, squared: true, .. } => format!("mse({value}, {})", label.name),
            LossKind::Distance { label, squared: false, .. } => format!("mae({value}, {})", label.name),
            LossKind::Links(LinkLoss::Ranking(RankingLoss::Margin(margin))) => {
                format!("margin_ranking({value}, links, margin: {margin})")
            }
            LossKind::Links(LinkLoss::Ranking(RankingLoss::SelfAdversarial(temperature))) => {
                format!("self_adversarial({value}, links, temperature: {temperature})")
            }
            LossKind::Links(loss) => format!("{}({value}, links)", loss.name()),
            LossKind::Number => value,
        };
        if term.weight == 1.0 { text } else { format!("{} * {text}", term.weight) }
    }

    fn stmt(&mut self, stmt: &'m Stmt, depth: usize) {
        // Expressions of a statement may hold uses of layers, which are printed before it.
        self.uses(stmt.value, depth);
        let value = self.operand(stmt.value);
        let ty = type_text(&self.model.tables, &self.model.expr(stmt.value).ty);
        let Stmt { kind, name, .. } = stmt;
        let line = match kind {
            StmtKind::Param => {
                self.name(stmt.value, name);
                format!("param {name} = {value}: {ty}")
            }
            StmtKind::Let => format!("let {name} = {value}: {ty}"),
            StmtKind::Assign => format!("{name} = {value}: {ty}"),
            StmtKind::Output => format!("output {name} = {value}: {ty}"),
        };
        let sharing = stmt.sharing.as_ref().map_or(String::new(), |of| format!(" sharing {of}"));
        self.line(depth, &(line + &sharing));
        self.name(stmt.value, name);
    }

    /// Prints the uses of layers that an expression holds, in the order of evaluation.
    fn uses(&mut self, id: ExprId, depth: usize) {
        let mut stack = vec![id];
        let mut found = vec![];
        while let Some(id) = stack.pop() {
            if self.names.contains_key(&id) {
                continue;
            }
            match &self.model.expr(id).kind {
                ExprKind::Layer(layer) => found.push((id, *layer)),
                kind => stack.extend(kind.operands()),
            }
        }
        found.sort_by_key(|(id, _)| *id);
        found.dedup();
        for (id, layer) in found {
            let layer = &self.model.uses[layer.index()];
            self.layer(layer, depth);
            self.name(id, &layer.layer);
        }
    }

    fn layer(&mut self, layer: &'m LayerUse, depth: usize) {
        for (_, input) in &layer.inputs {
            self.uses(*input, depth);
        }
        let over =
            if layer.graphs.is_empty() { String::new() } else { format!(" over {}", self.graphs(&layer.graphs)) };
        self.line(depth, &format!("use {}{over}", layer.layer));
        for (name, input) in &layer.inputs {
            let (value, ty) = (self.operand(*input), type_text(&self.model.tables, &self.model.expr(*input).ty));
            self.line(depth + 1, &format!("of {name} = {value}: {ty}"));
            self.field(name, *input);
        }
        for item in &layer.body {
            match item {
                Item::Stmt(stmt) => self.stmt(stmt, depth + 1),
                Item::Block(block) => self.block(block, depth + 1),
            }
        }
    }

    /// Names an input or an assigned field, and its values for vertex types.
    fn field(&mut self, name: &str, id: ExprId) {
        self.name(id, name);
        if let ExprKind::Types(parts) = &self.model.expr(id).kind {
            for (_, part) in parts {
                self.name(*part, name);
            }
        }
    }

    fn block(&mut self, block: &'m Block, depth: usize) {
        for instance in &block.instances {
            let of = instance.vertex.map_or(String::new(), |vertex| format!(" {}", self.vertex(vertex)));
            self.line(depth, &format!("{}{of}", block.kind.name()));
            for stmt in &instance.body {
                self.stmt(stmt, depth + 1);
            }
        }
        for (name, field) in block.instances.iter().flat_map(|instance| &instance.fields) {
            self.field(name, *field);
        }
    }

    /// An expression as an operand: its name, or how it is computed.
    fn operand(&self, id: ExprId) -> String {
        if let Some(name) = self.names.get(&id) {
            return name.clone();
        }
        let model = self.model;
        let expr = model.expr(id);
        match &expr.kind {
            ExprKind::Number(number) => number.to_string(),
            ExprKind::Features(features) => match features.kind {
                FeatureKind::Embedding(_) => format!("embedding({})", features.name),
                FeatureKind::TrainLabels { hidden: 0.0 } => train_labels(&features.name),
                FeatureKind::TrainLabels { hidden } => train_labels(&format!("{}, hidden: {hidden}", features.name)),
                FeatureKind::Dense | FeatureKind::Sparse | FeatureKind::OneHot | FeatureKind::Time => {
                    features.name.clone()
                }
            },
            ExprKind::Param(param, _) => self.declaration(&model.params[param.index()]),
            ExprKind::Layer(layer) => model.uses[layer.index()].layer.clone(),
            ExprKind::Result(layer, of, position) => {
                let results = &model.uses[of.index()].results;
                let layer = self.operand(*layer);
                if results.len() == 1 { layer } else { format!("{layer}.{}", results[*position].0) }
            }
            ExprKind::OfType(x, _) if model.expr(*x).ty.num_values() == 1 => self.operand(*x),
            ExprKind::OfType(x, vertex) => format!("{}.{}", self.operand(*x), self.vertex(*vertex)),
            ExprKind::Types(parts) => {
                let named = |(_, part): &(VertexType, ExprId)| self.names.get(part);
                let name = parts.first().and_then(named);
                if let Some(name) = name.filter(|_| parts.iter().all(|part| named(part) == name)) {
                    return name.clone();
                }
                let whole = |(_, part): &(VertexType, ExprId)| match model.expr(*part).kind {
                    ExprKind::OfType(x, _) if model.expr(x).ty.num_values() == parts.len() => Some(x),
                    _ => None,
                };
                let first = parts.first().and_then(whole);
                if let Some(x) = first.filter(|_| parts.iter().all(|part| whole(part) == first)) {
                    return self.operand(x);
                }
                let mut all: Vec<String> = parts.iter().map(|(_, part)| self.operand(*part)).collect();
                all.dedup();
                if all.len() == 1 { all.swap_remove(0) } else { format!("{{{}}}", all.join(", ")) }
            }
            ExprKind::Members(x, _)
            | ExprKind::Repeat(x)
            | ExprKind::OfGraphs(x, _)
            | ExprKind::ByGraph(x, _)
            | ExprKind::Scores(x)
            | ExprKind::EdgeRows(x, _) => self.operand(*x),
            ExprKind::RowsByGraph(parts) => {
                let mut all: Vec<String> = parts.iter().map(|(part, _)| self.operand(*part)).collect();
                all.dedup();
                all.join(", ")
            }
            ExprKind::Unary(UnaryOp::LeakyRelu(slope), x) => format!("leaky_relu({}, {slope})", self.operand(*x)),
            ExprKind::Unary(op, x) => format!("{}({})", op.name(), self.operand(*x)),
            ExprKind::Binary(BinaryOp::Mul, a, b) if a == b => format!("square({})", self.operand(*a)),
            ExprKind::Binary(op, a, b) => self.binary(*op, *a, *b),
            ExprKind::Pow(x, exponent) => format!("pow({}, {exponent})", self.operand(*x)),
            ExprKind::Dropout(x, rate) => format!("dropout({}, {rate})", self.operand(*x)),
            ExprKind::StopGradient(x) => format!("stop_gradient({})", self.operand(*x)),
            ExprKind::Broadcast(x) => format!("broadcast({})", self.operand(*x)),
            ExprKind::Zeros => "0".to_owned(),
            ExprKind::Flatten(x) => format!("flatten({})", self.operand(*x)),
            ExprKind::Reshape(x) => format!("reshape({})", self.operand(*x)),
            ExprKind::Concat(a, b) => format!("concat({}, {})", self.operand(*a), self.operand(*b)),
            ExprKind::Slice { x, axis, start } => format!("slice({}, axis {axis}, start {start})", self.operand(*x)),
            ExprKind::Transpose(x) => format!("transpose({})", self.operand(*x)),
            ExprKind::Product(a, b) => format!("{} @ {}", self.factor(*a), self.factor(*b)),
            ExprKind::MatrixProduct(a, b) => format!("matmul({}, {})", self.operand(*a), self.operand(*b)),
            ExprKind::Dot(a, b) => format!("dot({}, {})", self.operand(*a), self.operand(*b)),
            ExprKind::Linear { x, bias, .. } => {
                let bias = if *bias { "" } else { ", bias: false" };
                format!("linear({}{bias})", self.operand(*x))
            }
            ExprKind::Norm { x, eps, over_rows, .. } => {
                let name = if *over_rows { "batch_norm" } else { "layer_norm" };
                format!("{name}({}, {eps})", self.operand(*x))
            }
            ExprKind::L2Normalize(x, eps) => format!("l2_normalize({}, {eps})", self.operand(*x)),
            ExprKind::RowNormalize(x) => format!("row_normalize({})", self.operand(*x)),
            ExprKind::OverDimension(axis, reduction, x) => {
                let axis = match axis {
                    Axis::First => "first",
                    Axis::Last => "last",
                };
                format!("{}({}) over {axis}", reduction.name(), self.operand(*x))
            }
            ExprKind::OverRows(reduction, x) => format!("{}({}) over vertices", reduction.name(), self.operand(*x)),
            ExprKind::OverInEdges { x, reduction, across, .. } => {
                let across = if *across { " across graphs" } else { "" };
                format!("{}({}) over in_edges{across}", reduction.name(), self.operand(*x))
            }
            ExprKind::Across(reduction, x) => format!("{}({}) across graphs", reduction.name(), self.operand(*x)),
            ExprKind::SumOfSquares(parts) => {
                let parts: Vec<String> = parts.iter().map(|part| self.operand(*part)).collect();
                format!("l2({})", parts.join(", "))
            }
            ExprKind::AtEnd(end, x, _) => format!("{}.{}", end_name(*end), self.operand(*x)),
            ExprKind::AtPosition(x, at) => format!("{}.{}", self.position(at), self.operand(*x)),
            ExprKind::HopData(field, data) => {
                let at: Vec<PathPart> = data.iter().map(|(part, _)| *part).collect();
                format!("{}.edge.{field}", self.position(&at))
            }
            ExprKind::AlongPath(reduction, parts, _) => {
                let parts: Vec<String> = parts.iter().map(|(part, _)| self.operand(*part)).collect();
                format!("{}({}) over path", reduction.map_or("last", |reduction| reduction.name()), parts.join(", "))
            }
            ExprKind::Fold(fold) => {
                let steps: Vec<String> = fold.positions.iter().map(|graphs| graphs.len().to_string()).collect();
                let (first, step) = (self.operand(fold.first), self.operand(fold.step));
                format!("fold({first}, {step}) over {} in_edges", steps.join(", "))
            }
            ExprKind::Before(_) => "before".to_owned(),
            ExprKind::Degree(counted, _) => degree_name(*counted).to_owned(),
            ExprKind::DegreeAtEnd { end, counted, .. } => format!("{}.{}", end_name(*end), degree_name(*counted)),
            ExprKind::EdgeData(field, data) => match data.first() {
                Some((_, EdgeData::Count)) | None => "edge.count".to_owned(),
                Some((_, EdgeData::Weight | EdgeData::Time | EdgeData::Features)) => format!("edge.{field}"),
            },
        }
    }

    /// A position of path instances, by the graph of the first family member that has it.
    fn position(&self, at: &[PathPart]) -> String {
        match at.first().and_then(|part| part.through) {
            Some(through) => self.model.tables.graphs[through.index()].name.clone(),
            None => "dst".to_owned(),
        }
    }

    /// An operand of an operator, in brackets where it is one itself.
    fn factor(&self, id: ExprId) -> String {
        let text = self.operand(id);
        let is_operator = matches!(self.model.expr(id).kind, ExprKind::Binary(..) | ExprKind::Product(..));
        if is_operator && !self.names.contains_key(&id) { format!("({text})") } else { text }
    }

    fn binary(&self, op: BinaryOp, a: ExprId, b: ExprId) -> String {
        let operator = match op {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            other => return format!("{}({}, {})", other.name(), self.operand(a), self.operand(b)),
        };
        format!("{} {operator} {}", self.factor(a), self.factor(b))
    }

    fn declaration(&self, param: &Param) -> String {
        let init = match param.init {
            Initialiser::Glorot { batch: 0 } => "glorot".to_owned(),
            Initialiser::Glorot { batch } => format!("glorot(batch: {batch})"),
            Initialiser::He { batch: 0 } => "he".to_owned(),
            Initialiser::He { batch } => format!("he(batch: {batch})"),
            Initialiser::Constant(number) => format!("constant({number})"),
            Initialiser::Uniform(bound) => format!("uniform({bound})"),
            Initialiser::Normal(std) => format!("normal({std})"),
        };
        let made_of = |number| show_widths(&self.model.tables, &[number]);
        let decomposition = match param.decomposition {
            Decomposition::None => String::new(),
            Decomposition::Basis(number) => format!(" basis{}", made_of(number)),
            Decomposition::Blocks(number) => format!(" blocks{}", made_of(number)),
        };
        let decay = if param.decay { "" } else { " no_decay" };
        format!("{init}{decomposition}{decay}")
    }

    fn graphs(&self, graphs: &[Graph]) -> String {
        if graphs.len() > MAX_LISTED {
            return format!("{} semantic graphs", graphs.len());
        }
        let names: Vec<&str> =
            graphs.iter().map(|graph| self.model.tables.graphs[graph.index()].name.as_str()).collect();
        format!("[{}]", names.join(", "))
    }

    fn vertex(&self, vertex: VertexType) -> &'m str {
        &self.model.tables.vertex_types[vertex.index()].name
    }
}

/// The type of an expression: `Paper [8, 64]`, or that of all members of a family.
pub fn type_text(tables: &Tables, ty: &Type) -> String {
    let rows: Vec<&Row> = ty.rows().collect();
    let Some(first) = rows.first() else { return "nothing".to_owned() };
    let same = rows.iter().all(|row| row.form == first.form && row.dims() == first.dims());
    if !same && rows.len() <= MAX_LISTED {
        return rows.iter().map(|row| row_text(tables, row)).collect::<Vec<_>>().join(", ");
    }
    let widths = if same { widths_text(tables, first) } else { "of several widths".to_owned() };
    let graphs: Vec<Graph> = rows.iter().filter_map(|row| edges_of(row.space)).collect();
    let mut spaces: Vec<String> = rows.iter().map(|row| space_text(tables, row.space)).collect();
    spaces.dedup();
    let number = rows.len();
    let (space, each) = match ty {
        _ if graphs.len() == number && number <= MAX_LISTED => {
            let names: Vec<&str> = graphs.iter().map(|graph| tables.graphs[graph.index()].name.as_str()).collect();
            (format!("edges({})", names.join(", ")), "")
        }
        _ if graphs.len() == number => (format!("edges of {number} semantic graphs"), ""),
        Type::PerGraph(_) if spaces.len() == 1 => (spaces.swap_remove(0), " for each semantic graph"),
        Type::ByGraph(_) if rows.iter().all(|row| matches!(row.space, Space::Vertices(_))) => {
            (format!("vertices of {number} semantic graphs"), "")
        }
        _ if spaces.len() <= MAX_LISTED => (spaces.join(", "), ""),
        _ => (format!("{number} vertex types"), ""),
    };
    if space.is_empty() { format!("{widths}{each}") } else { format!("{space} {widths}{each}") }
}

/// The semantic graph of an edge value.
fn edges_of(space: Space) -> Option<Graph> {
    match space {
        Space::Edges(graph) => Some(graph),
        Space::Unit | Space::Vertices(_) | Space::Index(_) | Space::Endpoints(..) => None,
    }
}

fn end_name(end: Direction) -> &'static str {
    match end {
        Direction::In => "dst",
        Direction::Out => "src",
    }
}

fn degree_name(counted: Direction) -> &'static str {
    match counted {
        Direction::In => "in_degree",
        Direction::Out => "out_degree",
    }
}

/// Space and widths: `Paper [8, 64]`.
fn row_text(tables: &Tables, row: &Row) -> String {
    let parts = [space_text(tables, row.space), widths_text(tables, row)];
    parts.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ")
}

fn widths_text(tables: &Tables, row: &Row) -> String {
    let form = match row.form {
        Form::Dense => "",
        Form::Sparse(_) | Form::SparseAtEnd => " sparse",
        Form::OneHot | Form::OneHotAtEnd => " one-hot",
        Form::BlockDiagonal => " block-diagonal",
        Form::Time => " time",
    };
    format!("{}{form}", show_widths(tables, &row.widths))
}

fn space_text(tables: &Tables, space: Space) -> String {
    match space {
        Space::Unit => String::new(),
        Space::Vertices(vertex) => tables.vertex_types[vertex.index()].name.clone(),
        Space::Edges(graph) => format!("edges({})", tables.graphs[graph.index()].name),
        Space::Index(extent) => format!("{extent} rows"),
        Space::Endpoints(graph, direction) => {
            format!("{} of {}", direction.end_name(), tables.graphs[graph.index()].name)
        }
    }
}
