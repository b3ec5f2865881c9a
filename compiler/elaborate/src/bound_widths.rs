//! The names that inputs bind to widths: `in` of `x: V[in]`.

use std::collections::{BTreeMap, HashSet};

use hgnnc_declare::imports::LayerDef;
use hgnnc_diag::{Diagnostic, Span, codes};
use hgnnc_hir::text::{show_dim, show_widths};
use hgnnc_hir::{Row, Width};
use hgnnc_ir::VertexType;
use hgnnc_syntax::ast::{self, RowsOf, ValueRows};

use crate::checker::{Checker, Place};
use crate::layer::LayerCx;

/// The widths that a name between the brackets of an input stands for.
#[derive(Clone, PartialEq, Debug)]
pub enum BoundWidth {
    /// One width: that of an input of one vertex type, or of the edges of all semantic graphs.
    One(Width),
    /// A width for each vertex type: those of an input of any.
    ByType(BTreeMap<VertexType, Width>),
}

/// The names that the inputs of any vertex type bind.
pub fn names_by_type(layer: &ast::Layer) -> HashSet<&str> {
    let of_any = |rows: &ValueRows| matches!(rows, ValueRows::Of(of) | ValueRows::OfEachGraph(of) if matches!(of, RowsOf::Any(_)));
    let inputs = layer.inputs.iter().filter(|input| of_any(&input.rows));
    let names = inputs.flat_map(|input| &input.dims).filter_map(|dim| match &dim.kind {
        ast::ExprKind::Name(name) => Some(name.as_str()),
        _ => None,
    });
    names.collect()
}

impl<'a> Checker<'a> {
    /// Binds the names of `V[in]` to widths, and compares the other expressions with them.
    pub(crate) fn bind_dims(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>, callee: Span) -> bool {
        let mut fine = true;
        let by_type = names_by_type(def.layer);
        for input in &def.layer.inputs {
            let name = &input.name.name;
            let at = cx.input_spans.get(name).copied().unwrap_or(callee);
            let rows: Vec<(Option<VertexType>, Row)> = match (cx.vertex_fields.get(name), cx.graph_fields.get(name)) {
                (Some(values), _) => values.iter().map(|(v, value)| (Some(*v), value.row.clone())).collect(),
                (None, Some(value)) if matches!(input.rows, ValueRows::OfEachGraph(_)) => {
                    let ends = cx.ends.iter().map(|(_, dst)| Some(*dst));
                    ends.zip(value.ty.rows().cloned()).collect()
                }
                (None, Some(value)) => value.ty.rows().map(|row| (None, row.clone())).collect(),
                (None, None) => continue,
            };
            for (vertex, row) in rows {
                if row.widths.len() != input.dims.len() {
                    let found = show_widths(&self.model.tables, &row.widths);
                    let mut report = Diagnostic::at(
                        codes::SHAPE_MISMATCH,
                        at,
                        format!("input `{name}` takes {} per row, not {found}", plural(input.dims.len())),
                        format!("is {found}"),
                    )
                    .label(input.span, "declared here");
                    if let Some(width) = row.widths.last().filter(|w| w.origin != at) {
                        report = report.label(width.origin, "its last width comes from here");
                    }
                    if row.widths.len() > input.dims.len() {
                        report = report.help("`flatten(…)` joins dimensions");
                    }
                    self.report(report);
                    return false;
                }
                for (dim, width) in input.dims.iter().zip(&row.widths) {
                    let bindable = match (&dim.kind, vertex) {
                        (ast::ExprKind::Name(n), _) if cx.arguments.contains_key(n) || def.consts.get(n).is_some() => {
                            None
                        }
                        (ast::ExprKind::Name(n), Some(_)) => Some(n),
                        (ast::ExprKind::Name(n), None) if !by_type.contains(n.as_str()) => Some(n),
                        _ => None,
                    };
                    match bindable {
                        Some(variable) => {
                            let known = cx.dims.entry(variable.clone());
                            let known = known.or_insert_with(|| match by_type.contains(variable.as_str()) {
                                true => BoundWidth::ByType(BTreeMap::new()),
                                false => BoundWidth::One(*width),
                            });
                            let first = match (known, vertex) {
                                (BoundWidth::ByType(widths), Some(vertex)) => *widths.entry(vertex).or_insert(*width),
                                (BoundWidth::ByType(_), None) => *width,
                                (BoundWidth::One(first), _) => *first,
                            };
                            if first.dim != width.dim {
                                fine = false;
                                self.report(
                                    Diagnostic::at(
                                        codes::WIDTH_MISMATCH,
                                        at,
                                        format!(
                                            "`{variable}` would be both {} and {}",
                                            show_dim(&self.model.tables, first.dim),
                                            show_dim(&self.model.tables, width.dim)
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
                    show_dim(&self.model.tables, width.dim),
                    show_dim(&self.model.tables, declared.dim)
                ),
                "widths differ",
            )
            .label(width.origin, "this width is given")
            .label(declared.origin, "this width is expected"),
        );
        false
    }
}

fn plural(dims: usize) -> String {
    match dims {
        1 => "1 dimension".to_string(),
        n => format!("{n} dimensions"),
    }
}
