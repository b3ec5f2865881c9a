//! `fold(first, step) over …`: recurrences over the vertices of a path, or over the in-edges of a destination.
//!
//! A recurrence over in-edges takes a step for each of them, in the order of their sources. How many steps there are is
//! known at compile time, so a semantic graph that it goes over has a limit: `cites at most 16 per vertex`. The step is
//! checked once; its edge values are computed anew at each position of the in-edges (`hgnnc_lower`).

use std::collections::HashSet;
use std::sync::Arc;

use hgnnc_declare::arguments::match_arguments;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::{show_space, show_widths};
use hgnnc_hir::{ExprId, ExprKind as Kind, Fold, Form, Reduction, Row, Type, Width};
use hgnnc_ir::dataflow::{GraphDecl, KeptInEdges};
use hgnnc_ir::{Direction, Graph, Space};
use hgnnc_syntax::ast::{Call, Expr, ExprKind, GraphExpr, Ident, Stmt};

use crate::checker::{Checker, Mistake, Place, Scope};
use crate::parts::{names_of, parts};
use crate::paths::PATH;
use crate::value::{Term, Typed};

/// The name of a recurrence.
pub const FOLD: &str = "fold";

/// In the step of a `fold`, the value at the vertex or in-edge before.
pub const BEFORE: &str = "before";

/// The scope of a recurrence over in-edges.
const IN_EDGES: &str = "in_edges";

/// The most steps of a recurrence.
const MOST_STEPS: u32 = 1024;

/// With more steps, a recurrence is warned of.
const MANY_STEPS: usize = 32;

/// A recurrence as it is written.
struct Written<'c> {
    first: &'c Expr,
    step: &'c Expr,
    /// The in-edges are walked from the last one to the first.
    backwards: bool,
    span: Span,
}

/// The first part of an expression that is one of these names.
fn mention<'e>(expr: &'e Expr, names: &HashSet<&str>) -> Option<&'e Expr> {
    match &expr.kind {
        ExprKind::Name(name) => names.contains(&**name).then_some(expr),
        _ => parts(expr).into_iter().find_map(|part| mention(part, names)),
    }
}

impl Checker<'_> {
    /// `fold(first, step) over path`, `fold(first, step, reverse: true) over in_edges`.
    pub(crate) fn fold(&mut self, call: &Call, span: Span, scope: &Scope<'_>) -> Term {
        let over = match &call.over {
            Some(GraphExpr::Name(over))
                if [PATH, IN_EDGES].contains(&over.name.as_str()) && call.across.is_none() && call.of.is_empty() =>
            {
                over
            }
            _ => {
                let message = "`fold` goes over paths, or over the in-edges of each semantic graph";
                self.report(
                    Diagnostic::at(codes::MISSING_REDUCTION, span, message, "over neither").help(
                        "write `fold(first, step) over in_edges`, or `over path`: `step` has the value `before` it",
                    ),
                );
                return Term::Error;
            }
        };
        let arguments = match match_arguments(&call.args, &["first", "step", "reverse"], "`fold`", call.callee.span) {
            Ok(arguments) => arguments,
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| self.report(mistake));
                return Term::Error;
            }
        };
        let [Some(first), Some(step), reverse] = arguments[..] else {
            self.report(
                Diagnostic::at(
                    codes::MISSING_ARGUMENT,
                    span,
                    "`fold` takes two values",
                    format!("has {}", call.args.len()),
                )
                .help("the value to begin with, and that behind each step, made from `before`"),
            );
            return Term::Error;
        };
        let backwards = match reverse.map(|reverse| (self.eval(reverse, scope), reverse.span)) {
            None => false,
            Some((Term::Error, _)) => return Term::Error,
            Some((Term::AnyBool, _)) => false,
            Some((Term::Bool(backwards), _)) if over.name == IN_EDGES => backwards,
            Some((term, at)) => {
                let report = match over.name == IN_EDGES {
                    true => {
                        let message = "`reverse` is `true` or `false`";
                        Diagnostic::at(codes::NOT_BOOLEAN, at, message, format!("this is {}", term.describe()))
                    }
                    false => {
                        Diagnostic::at(codes::EXTRA_ARGUMENT, at, "a path is walked in its direction", "of in-edges")
                    }
                };
                self.report(report);
                return Term::Error;
            }
        };
        if over.name == PATH {
            return self.fold_over_path((first, step), over, span, scope);
        }
        let result = self.fold_over_in_edges(&Written { first, step, backwards, span }, over, scope);
        self.settle(result)
    }

    fn fold_over_in_edges(&mut self, of: &Written<'_>, over: &Ident, scope: &Scope<'_>) -> Result<Term, Mistake> {
        let graphs = self.graphs_of_fold(over, scope)?;
        let first = self.eval(of.first, scope);
        let first = match self.value(first, of.first.span)? {
            Some(first) => first,
            None => return Ok(Term::Error),
        };
        let mut states = vec![];
        for (row, &graph) in self.of_each(&first, graphs.len(), of.first.span)?.iter().zip(&*graphs) {
            let at_edge = row.space == Space::Unit || row.space == Space::Edges(graph);
            if !at_edge || row.form != Form::Dense {
                let message = "a recurrence begins with one row, or with a value of the destination";
                return Err(Box::new(
                    Diagnostic::at(codes::WRONG_SCOPE, of.first.span, message, "is none")
                        .help("as in `zeros([8])` or `e.dst.h`; project sparse and one-hot features first"),
                ));
            }
            states.push(Row::dense(Space::Edges(graph), row.widths.clone()));
        }
        if !self.is_of_destination(first.id) {
            let message = "a recurrence begins before the first in-edge";
            return Err(Box::new(
                Diagnostic::at(codes::WRONG_SCOPE, of.first.span, message, "depends on an edge")
                    .help("begin with one row or a value of the destination: `zeros([8])`, `e.dst.h`"),
            ));
        }
        let before = self.expr(Kind::Before(graphs.clone()), Type::PerGraph(states.clone()), of.span);
        let mut inner = scope.clone();
        inner.locals.insert(BEFORE.to_owned(), Term::Value(before.clone()));
        let step = self.eval_step(of.step, &mut inner);
        let Some(step) = self.value(step, of.step.span)? else { return Ok(Term::Error) };
        for ((row, state), &graph) in self.of_each(&step, graphs.len(), of.step.span)?.iter().zip(&states).zip(&*graphs)
        {
            let at_edge = row.space == Space::Unit || row.space == Space::Edges(graph);
            if !at_edge || row.form != Form::Dense || !self.fit(&row.widths, &state.widths) {
                return Err(Box::new(self.other_state(row, state, of)));
            }
        }
        self.can_be_repeated(first.id, of.first.span)?;
        self.can_be_repeated(step.id, of.step.span)?;
        let positions: Vec<Arc<[Graph]>> = graphs.iter().map(|&graph| self.in_edges_of(graph, of.backwards)).collect();
        let steps = positions.iter().map(|positions| positions.len()).max().unwrap_or(0);
        self.operations += (steps.saturating_sub(1)) * self.operations_of_step(step.id) + 5 * steps * graphs.len();
        let rows = states.iter().zip(&*graphs).map(|(state, &graph)| {
            let destination = self.model.tables.graphs[graph.index()].dst;
            Row::dense(Space::Vertices(destination), state.widths.clone())
        });
        let ty = Type::PerGraph(rows.collect());
        let fold = Fold { first: first.id, step: step.id, before: before.id, graphs, positions };
        let value = self.expr(Kind::Fold(fold), ty, of.span);
        let doubt = Diagnostic::at(
            codes::LONG_FOLD,
            of.span,
            format!("this recurrence takes {steps} steps, one after the other"),
            "each step reads and writes the states of all destinations",
        )
        .help(
            "the states of all steps are kept for the gradient; a lower limit of in-edges takes less time and memory",
        );
        self.doubt(steps > MANY_STEPS, value.id, doubt);
        Ok(Term::Value(value))
    }

    /// A `let` that has a value for each step. It is evaluated with a step, but reads what is declared before it, as others do:
    /// `rest` begins with its own statement.
    pub(crate) fn let_of_step(&mut self, value: &Expr, rest: &[Stmt], scope: &Scope<'_>) -> Term {
        let declared: HashSet<&str> = rest
            .iter()
            .filter_map(|stmt| match stmt {
                Stmt::Param(decl) => Some(&*decl.name.name),
                Stmt::Let(binding) => Some(&*binding.name.name),
                Stmt::Assign(_) | Stmt::Output(_) | Stmt::Repeat(_) => None,
            })
            .filter(|name| !scope.locals.contains_key(*name))
            .collect();
        let Some(name) = mention(value, &declared) else { return Term::OfStep(Box::new(value.clone())) };
        if !matches!(self.eval(name, scope), Term::Error) {
            let message = "a value of each step reads a name that gets another meaning behind it";
            let report = Diagnostic::at(codes::WRONG_SCOPE, name.span, message, "declared again");
            self.report(report.help("give one of the two another name"));
        }
        Term::Error
    }

    /// The value of a step. The `let`s that it reads and that have a value for each step get one, for all of their mentions.
    pub(crate) fn eval_step(&mut self, step: &Expr, scope: &mut Scope<'_>) -> Term {
        let names = |expr: &Expr| names_of(expr).into_iter().map(str::to_owned).collect::<Vec<_>>();
        let (mut stack, mut lets) = (names(step), vec![]);
        while let Some(name) = stack.pop() {
            if let Some(Term::OfStep(expr)) = scope.locals.get(&name)
                && !lets.contains(&name)
            {
                stack.extend(names(expr));
                lets.push(name);
            }
        }
        lets.sort_by_key(|name| scope.spans.get(name).map(|span| span.start));
        for name in lets {
            let Some(Term::OfStep(expr)) = scope.locals.get(&name).cloned() else { continue };
            let term = self.eval(&expr, scope);
            scope.locals.insert(name, term);
        }
        self.eval(step, scope)
    }

    /// Is a step known, for a `let` that has a value for each?
    pub(crate) fn within_step(&self, name: &str, span: Span, scope: &Scope<'_>) -> Result<(), Mistake> {
        if scope.locals.contains_key(BEFORE) {
            return Ok(());
        }
        if scope.layer.is_some_and(|layer| layer.of_paths) {
            return self.hop_before(span, scope).map(drop);
        }
        let message = format!("`{name}` is made of `before`, which only steps of a recurrence have");
        Err(Box::new(
            Diagnostic::at(codes::WRONG_SCOPE, span, message, "no step here")
                .help("it belongs into the second value of a `fold`: `fold(first, step) over in_edges`"),
        ))
    }

    /// The semantic graphs whose in-edges a recurrence goes over: each has a limit.
    fn graphs_of_fold(&mut self, over: &Ident, scope: &Scope<'_>) -> Result<Arc<[Graph]>, Mistake> {
        let wrong = |message: &str, label: &str, help: &str| -> Mistake {
            Box::new(Diagnostic::at(codes::WRONG_SCOPE, over.span, message, label).help(help))
        };
        let layer = match (scope.place, scope.layer) {
            (Place::Aggregate, Some(layer)) if !layer.of_paths => layer,
            (Place::Aggregate, Some(_)) => {
                let message = "path instances have no order to fold them in";
                return Err(wrong(
                    message,
                    "over path instances",
                    "fold `over path`, and reduce the instances by `mean`",
                ));
            }
            _ => {
                let message = "`over in_edges` belongs into an `aggregate` block";
                return Err(wrong(message, "there are no edges here", "write `aggregate e: g in graphs { … }`"));
            }
        };
        let graphs: Arc<[Graph]> = scope.graphs.iter().map(|&member| layer.graphs[member]).collect();
        for &graph in &*graphs {
            self.not_of_pairs(graph, "in-edges to fold", over.span)?;
            let decl = &self.model.tables.graphs[graph.index()];
            let name = self.schema.written(decl);
            match decl.kept {
                Some(kept) if kept.at_most <= MOST_STEPS => {}
                // Without a use of the layer, there is one graph, of which nothing is known.
                None if self.without_use => {}
                kept => {
                    let (message, help) = match kept {
                        None => (
                            format!("the recurrence takes a step for each in-edge, and `{name}` has no limit of them"),
                            format!("write one where the layer is used: `{name} at most 16 per vertex`"),
                        ),
                        Some(_) => (
                            format!("a recurrence takes at most {MOST_STEPS} steps: not `{name}`"),
                            "10 to 25 in-edges are usual".to_owned(),
                        ),
                    };
                    let report = Diagnostic::at(codes::FOLD_WITHOUT_LIMIT, over.span, message, "how many steps?");
                    return Err(Box::new(report.help(help)));
                }
            }
        }
        Ok(graphs)
    }

    /// The types of an edge value, one for each semantic graph.
    fn of_each(&mut self, value: &Typed, graphs: usize, span: Span) -> Result<Vec<Row>, Mistake> {
        match &*value.ty {
            Type::PerGraph(rows) => Ok(rows.clone()),
            Type::One(row) => Ok(vec![row.clone(); graphs]),
            Type::PerType(_) | Type::ByGraph(_) => Err(Box::new(self.not_a_value(&Term::Value(value.clone()), span))),
        }
    }

    fn other_state(&self, row: &Row, state: &Row, of: &Written<'_>) -> Diagnostic {
        let text = |widths: &[Width]| show_widths(&self.model.tables, widths);
        if self.fit(&row.widths, &state.widths) {
            let message = "a step of a recurrence over in-edges has a value for each of them";
            let label = format!("has {}", show_space(&self.model.tables, row.space));
            let report = Diagnostic::at(codes::WRONG_SCOPE, of.step.span, message, label);
            return report.help("make it of `before` and of the ends and data of an edge, such as `e.src.h`");
        }
        let message = "a step of this recurrence changes the shape of its value";
        Diagnostic::at(codes::SHAPE_MISMATCH, of.step.span, message, format!("{} behind the step", text(&row.widths)))
            .label(of.first.span, format!("{} before it", text(&state.widths)))
    }

    /// Does an edge value depend on the destination alone?
    fn is_of_destination(&self, value: ExprId) -> bool {
        self.edge_values_below(value).into_iter().all(|id| {
            !matches!(
                self.model.expr(id).kind,
                Kind::AtEnd(Direction::Out, ..)
                    | Kind::DegreeAtEnd { end: Direction::Out, .. }
                    | Kind::EdgeData(..)
                    | Kind::Before(_)
                    | Kind::OfGraphs(..)
                    | Kind::OverInEdges { .. }
                    | Kind::Dropout(..)
            )
        })
    }

    /// The edge values that an edge value is computed from, itself among them.
    fn edge_values_below(&self, value: ExprId) -> Vec<ExprId> {
        let is_of_edges = |id: ExprId| self.model.expr(id).ty.rows().any(|row| matches!(row.space, Space::Edges(_)));
        let (mut seen, mut stack, mut found) = (HashSet::from([value]), vec![value], vec![]);
        while let Some(id) = stack.pop() {
            if !is_of_edges(id) {
                continue;
            }
            found.push(id);
            let operands = self.model.expr(id).kind.operands();
            stack.extend(operands.into_iter().filter(|operand| seen.insert(*operand)));
        }
        found
    }

    /// The number of operations that a step takes.
    fn operations_of_step(&self, step: ExprId) -> usize {
        let operations = |id: ExprId| {
            let expr = self.model.expr(id);
            expr.kind.operations() * expr.ty.num_values()
        };
        self.edge_values_below(step).into_iter().map(operations).sum()
    }

    /// The edge values of a step are computed at each position of the in-edges.
    fn can_be_repeated(&self, step: ExprId, span: Span) -> Result<(), Mistake> {
        for id in self.edge_values_below(step) {
            let expr = self.model.expr(id);
            let why = match &expr.kind {
                Kind::Linear { .. } | Kind::Norm { .. } => {
                    "it has parameters of its own: declare a `param` and multiply by it"
                }
                Kind::OverInEdges { reduction: Reduction::Softmax, .. } => "a softmax needs all in-edges together",
                Kind::OfGraphs(..) => "an edge value of another layer has no order",
                _ => continue,
            };
            let report = Diagnostic::at(
                codes::MODEL_ONLY,
                expr.span,
                format!("no step of a recurrence: {why}"),
                "read in a step",
            );
            return Err(Box::new(report.label(span, "this is evaluated at one in-edge after the other")));
        }
        Ok(())
    }

    /// The graphs of the single in-edges of a semantic graph, in the order of a recurrence.
    fn in_edges_of(&mut self, graph: Graph, backwards: bool) -> Arc<[Graph]> {
        let limit = self.model.tables.graphs[graph.index()].kept.map_or(1, |kept| kept.at_most);
        let mut positions = vec![];
        for position in 0..limit {
            let key = (graph, position as usize);
            if let Some(&known) = self.positions.get(&key) {
                positions.push(known);
                continue;
            }
            let whole = self.model.tables.graphs[graph.index()].clone();
            let name = self.graph_names.take(&format!("{}.{position}", whole.name));
            let kept = Some(KeptInEdges { at_most: limit, position: Some(position) });
            let declared = Graph::new(self.model.tables.graphs.len());
            self.model.tables.graphs.push(GraphDecl { name, kept, ..whole });
            self.positions.insert(key, declared);
            positions.push(declared);
        }
        if backwards {
            positions.reverse();
        }
        positions.into()
    }
}
