//! Models: statements, outputs, and the loss that training adds.

use std::collections::{BTreeMap, HashMap};

use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_ir::{Graph, Space, Stage, Value, VertexType};
use hgnnc_syntax::ast::{self, Binding, Stmt};

use crate::consts::Consts;
use crate::elaborate::{Elaborator, Place, Scope};
use crate::links::LINKS;
use crate::value::{Term, Val, ValKind, show_widths};

/// A named output of a model.
#[derive(Clone, Debug)]
pub struct OutputInfo {
    /// The rows of the output, with its values.
    pub of: OutputOf,
    /// Its name in the source.
    pub span: Span,
}

/// The vertices or pairs that an output has a row for, and its values.
#[derive(Clone, Debug)]
pub enum OutputOf {
    /// The vertices of a type.
    Vertices(VertexType, Val),
    /// Pairs to score, by the graph of links.
    Links(BTreeMap<Graph, Value>),
}

impl Elaborator<'_> {
    /// Elaborates a model's body and names its outputs as results of the program.
    pub fn model(&mut self, model: &ast::Model, consts: &Consts) -> BTreeMap<String, OutputInfo> {
        let mut scope = Scope {
            place: Place::Model,
            variable: None,
            locals: HashMap::new(),
            spans: HashMap::new(),
            layer: None,
            consts,
            graphs: vec![],
            path: String::new(),
        };
        let mut outputs: BTreeMap<String, OutputInfo> = BTreeMap::new();
        self.enter(Stage::FP);
        self.declared_outputs = (model.body.iter())
            .filter_map(|stmt| match stmt {
                Stmt::Output(output) => Some(output.name.name.clone()),
                _ => None,
            })
            .collect();
        for stmt in &model.body {
            if self.gives_up() {
                break;
            }
            match stmt {
                Stmt::Param(decl) => {
                    let term = self.declare(decl, &scope);
                    self.bind(&mut scope, &decl.name, term);
                }
                Stmt::Let(Binding { name, value }) => {
                    scope.path.clone_from(&name.name);
                    let term = self.eval(value, &scope);
                    scope.path.clear();
                    self.bind(&mut scope, name, term);
                }
                Stmt::Assign(Binding { name, value }) => {
                    self.report(
                        Diagnostic::at(
                            codes::MODEL_ONLY,
                            name.span,
                            format!("`{}` is not declared", name.name),
                            "a model has no fields to assign",
                        )
                        .help(format!("write `let {} = …`", name.name)),
                    );
                    let term = self.eval(value, &scope);
                    self.bind(&mut scope, name, term);
                }
                Stmt::Output(output) => {
                    if let Some(first) = outputs.get(&output.name.name) {
                        let report = crate::names::duplicate("output", &output.name, first.span);
                        self.report(report);
                    }
                    if ["loss", "row_loss"].contains(&output.name.name.as_str()) {
                        self.report(Diagnostic::at(
                            codes::RESERVED_NAME,
                            output.name.span,
                            format!("`{}` is a result that training adds", output.name.name),
                            "choose another name",
                        ));
                    }
                    scope.path.clone_from(&output.name.name);
                    let term = self.eval(&output.value, &scope);
                    scope.path.clear();
                    let of_vertices = self.schema.vertex_named(&output.vertex.name).is_some();
                    if output.vertex.name == LINKS && !of_vertices {
                        let scores = if matches!(term, Term::Error) { None } else { self.link_output(output, term) };
                        if let Some(scores) = scores {
                            let info = OutputInfo { of: OutputOf::Links(scores), span: output.name.span };
                            outputs.insert(output.name.name.clone(), info);
                        }
                        continue;
                    }
                    let vertex = self.schema.vertex(&output.vertex, self.diagnostics);
                    if let (Some(vertex), false) = (vertex, matches!(term, Term::Error)) {
                        let vertex = VertexType::new(vertex);
                        if let Some(val) = self.output_value(output, vertex, term) {
                            let info = OutputInfo { of: OutputOf::Vertices(vertex, val), span: output.name.span };
                            outputs.insert(output.name.name.clone(), info);
                        }
                    }
                }
            }
        }
        if outputs.is_empty() && !self.diagnostics.has_errors() {
            self.report(
                Diagnostic::at(
                    codes::MISSING_RESULT,
                    model.name.span,
                    format!("model `{}` has no output", model.name.name),
                    "computes nothing",
                )
                .help("add `output NAME: VertexType = …`"),
            );
        }
        for (name, info) in &outputs {
            match &info.of {
                // A checked output is stored; anything else was reported above.
                OutputOf::Vertices(_, Val { kind: ValKind::Stored(value), .. }) => {
                    self.flow.output(name.clone(), *value);
                }
                OutputOf::Vertices(..) => {}
                OutputOf::Links(scores) => {
                    for (graph, score) in scores {
                        let result = format!("{name}.{}", self.flow.graphs[graph.index()].name);
                        self.flow.output(result, *score);
                    }
                }
            }
        }
        outputs
    }

    fn output_value(&mut self, output: &ast::OutputStmt, vertex: VertexType, term: Term) -> Option<Val> {
        let at = output.value.span;
        let val = match term {
            Term::PerType(values) => match values.get(&vertex) {
                Some(val) => val.clone(),
                None => {
                    let has: Vec<_> = values.keys().map(|v| format!("`{}`", self.vertex_name(*v))).collect();
                    self.report(
                        Diagnostic::at(
                            codes::NOT_PROJECTED,
                            at,
                            format!("output `{}` has no value for `{}`", output.name.name, output.vertex.name),
                            format!("has values of {}", has.join(", ")),
                        )
                        .label(output.vertex.span, "the output is declared for this type"),
                    );
                    return None;
                }
            },
            Term::One(_) | Term::Number(_) | Term::Width(_) => {
                self.report(
                    Diagnostic::at(
                        codes::RESULT_MISMATCH,
                        at,
                        format!("output `{}` needs one row per `{}` vertex", output.name.name, output.vertex.name),
                        "is the same for all vertices",
                    )
                    .label(output.vertex.span, "the output is declared for this type"),
                );
                return None;
            }
            other => {
                let report = self.not_a_value(&other, at);
                self.report(report);
                return None;
            }
        };
        let stored = self.stored(&val, at);
        let value = self.or_report(stored)?;
        if self.flow.is_sparse(value) || self.flow.ty(value).space != Space::Vertices(vertex) || val.widths.len() > 1 {
            self.report(
                Diagnostic::at(
                    codes::RESULT_MISMATCH,
                    at,
                    "an output is a dense value with one row per vertex and at most one dimension",
                    if self.flow.is_sparse(value) {
                        "is sparse".to_string()
                    } else {
                        let space = crate::value::show_space(&self.flow, self.flow.ty(value).space);
                        format!("is {} with {space}", show_widths(&self.flow, &val.widths))
                    },
                )
                .help("`flatten(…)`, or a `linear(…)` head"),
            );
            return None;
        }
        Some(val)
    }
}
