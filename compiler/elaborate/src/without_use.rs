//! Layers that no model uses, checked all the same.
//!
//! A layer is checked where it is used, with widths known. One without a use is checked once, for the use that refuses
//! least: over one semantic graph from a vertex type to itself, with dense inputs. Widths and arguments are names:
//! extents are polynomials of them ([`hgnnc_hir::Symbols`]), and a condition on them may hold or not. Mistakes are reported
//! that hold whatever the names stand for.

use std::collections::BTreeMap;

use hgnnc_declare::imports::FileNames;
use hgnnc_declare::imports::LayerDef;
use hgnnc_declare::schema::{GraphRef, Schema};
use hgnnc_diag::Diagnostics;
use hgnnc_hir::{ExprKind as Kind, Row, Type, Width};
use hgnnc_ir::dataflow::{SelfLoops, Step};
use hgnnc_ir::{Space, VertexType};
use hgnnc_syntax::ast::{self, ExprKind, ParamKind, RowsOf, ValueRows};

use crate::bound_widths::{BoundWidth, names_by_type};
use crate::checker::{Checker, Place};
use crate::graph_rows::GraphRows;
use crate::layer::{LayerCx, param_kind};
use crate::value::{Single, Term};

/// The only vertex type.
const VERTEX: VertexType = VertexType(0);

/// Checks a layer without a use.
pub fn check(def: LayerDef<'_>, names: &FileNames<'_>, diagnostics: &mut Diagnostics) {
    let schema = schema_of(def.layer);
    let mut checker = Checker::new(&def.layer.name, &schema, names, diagnostics);
    checker.without_use = true;
    let mut cx = LayerCx::new(def.layer, checker.layer_use());
    checker.any_arguments(def, &mut cx);
    checker.any_family(def.layer, &mut cx);
    checker.any_inputs(def, &mut cx);
    checker.check_body(def, &mut cx, def.layer.name.span);
    hgnnc_hir::verify::check(&checker.model, "the check of a layer without a use");
}

/// One vertex type and a relation to itself, named as the layer names its own.
fn schema_of(layer: &ast::Layer) -> Schema {
    let ends = layer.over.iter().flat_map(|over| &over.ends).map(|(src, _)| src);
    let inputs = layer.inputs.iter().filter_map(|input| match &input.rows {
        ValueRows::Of(RowsOf::Name(name)) if !is_family(layer, name) => Some(name),
        ValueRows::Of(RowsOf::Name(_) | RowsOf::Any(_)) | ValueRows::PerGraph | ValueRows::OfEachGraph(_) => None,
    });
    let vertex = ends.chain(inputs).next().map_or("*", |name| &name.name);
    let relation = layer.over.as_ref().map_or("graphs", |over| &over.name.name);
    Schema::with_one_relation(vertex, relation, layer.name.span)
}

fn is_family(layer: &ast::Layer, name: &ast::Ident) -> bool {
    layer.over.as_ref().is_some_and(|over| over.name.name == name.name)
}

impl<'a> Checker<'a> {
    /// Binds the arguments to names. Defaults are checked by themselves.
    fn any_arguments(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>) {
        for param in &def.layer.params {
            if let Some(default) = &param.default {
                let scope = self.layer_scope(def, cx, Place::Layer, None);
                let term = self.eval(default, &scope);
                self.check_kind(param, term, default.span);
            }
            let name = &param.name;
            let term = match param_kind(param) {
                ParamKind::Dim => {
                    let dim = self.model.tables.symbols.variable(&name.name);
                    Term::Width(Width { dim, origin: name.span })
                }
                ParamKind::Real => Term::AnyNumber,
                ParamKind::Bool => Term::AnyBool,
                ParamKind::Function => Term::AnyFunction,
            };
            cx.arguments.insert(name.name.clone(), term);
        }
    }

    fn any_family(&mut self, layer: &'a ast::Layer, cx: &mut LayerCx<'a>) {
        let Some(over) = &layer.over else { return };
        let graph = GraphRef {
            name: over.name.name.clone(),
            src: VERTEX.index(),
            dst: VERTEX.index(),
            steps: vec![Step { relation: 0, reverse: false }],
            counted: false,
            self_loops: SelfLoops::Kept,
            links: false,
            shuffle: None,
            edges: false,
            at_most: None,
            span: over.span,
        };
        cx.graphs.extend(self.declare_member(&graph, cx.of_paths));
        cx.members.push(graph);
        cx.ends.push((VERTEX, VERTEX));
        cx.into.insert(VERTEX, vec![0]);
        if let Some((src, dst)) = &over.ends {
            cx.types.extend([src, dst].map(|variable| (variable.name.clone(), VERTEX)));
        }
    }

    /// Binds the inputs to values of which the signature says everything that is known.
    fn any_inputs(&mut self, def: LayerDef<'a>, cx: &mut LayerCx<'a>) {
        let by_type = names_by_type(def.layer);
        for input in &def.layer.inputs {
            let name = input.name.name.clone();
            cx.field_spans.insert(name.clone(), input.name.span);
            let by_graph = GraphRows::declared(def.layer, &input.rows);
            if let (ValueRows::Of(RowsOf::Name(variable)), None) = (&input.rows, by_graph) {
                cx.types.insert(variable.name.clone(), VERTEX);
            }
            let mut widths = vec![];
            for dim in &input.dims {
                let of_vertices = matches!(by_graph, None | Some(GraphRows::Vertices));
                let bindable =
                    of_vertices || !matches!(&dim.kind, ExprKind::Name(name) if by_type.contains(name.as_str()));
                let binds = |variable: &str| bindable && !cx.arguments.contains_key(variable);
                match &dim.kind {
                    ExprKind::Name(variable) if binds(variable) && def.consts.get(variable).is_none() => {
                        let symbols = &mut self.model.tables.symbols;
                        let mut any = || Width { dim: symbols.variable(variable), origin: dim.span };
                        let known = cx.dims.entry(variable.clone());
                        let known = known.or_insert_with(|| match by_type.contains(variable.as_str()) {
                            true => BoundWidth::ByType(BTreeMap::from([(VERTEX, any())])),
                            false => BoundWidth::One(any()),
                        });
                        widths.push(match known {
                            BoundWidth::One(width) => *width,
                            BoundWidth::ByType(widths) => widths[&VERTEX],
                        });
                    }
                    _ => {
                        let scope = self.layer_scope(def, cx, Place::Layer, None);
                        let width = self.one_width(dim, &scope);
                        // An unknown name is reported once.
                        if let (None, ExprKind::Name(variable)) = (width, &dim.kind) {
                            cx.arguments.insert(variable.clone(), Term::Error);
                        }
                        widths.extend(width);
                    }
                }
            }
            if widths.len() < input.dims.len() {
                cx.failed.insert(name);
            } else if let Some(rows) = by_graph {
                let space = |graph: &hgnnc_ir::Graph| match rows {
                    GraphRows::Single => Space::Unit,
                    GraphRows::Vertices => Space::Vertices(VERTEX),
                    GraphRows::Edges => Space::Edges(*graph),
                };
                let rows = cx.graphs.iter().map(|graph| Row::dense(space(graph), widths.clone())).collect();
                cx.graph_fields.insert(name, self.expr(Kind::Zeros, Type::PerGraph(rows), input.span));
                if by_graph == Some(GraphRows::Vertices) {
                    cx.of_inputs.insert(VERTEX);
                }
            } else {
                let row = Row::dense(Space::Vertices(VERTEX), widths);
                let id = self.expr(Kind::Zeros, Type::One(row.clone()), input.span).id;
                cx.of_inputs.insert(VERTEX);
                cx.vertex_fields.insert(name, BTreeMap::from([(VERTEX, Single { id, row })]));
            }
        }
    }
}
