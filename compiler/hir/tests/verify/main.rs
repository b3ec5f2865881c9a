//! The verifier against models that were damaged: each rule is broken once, and each type is changed in several ways.

mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hgnnc_declare::imports::SourceFile;
use hgnnc_diag::{Diagnostics, FileId, SourceMap, Span, render};
use hgnnc_hir::{Block, BlockKind, Dim, Expr, ExprId, ExprKind, Form, Item, LayerUse, Model, Row, Type, Width, verify};
use hgnnc_ir::{Graph, Space, VertexType};

/// The model of `every_kind.hgnn`.
fn model() -> Model {
    let text = include_str!("../every_kind.hgnn");
    let mut sources = SourceMap::default();
    let mut diagnostics = Diagnostics::default();
    let file = sources.add("every_kind.hgnn", text);
    let module = hgnnc_syntax::parse(file, text, &mut diagnostics);
    let checked = hgnnc_sema::check(&[SourceFile::alone(file, &module)], &BTreeMap::new(), &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{}", render::plain(&sources, diagnostics.iter()));
    checked.expect("it has a model").model
}

/// The name of a kind of expression.
fn kind(expr: &Expr) -> String {
    let text = format!("{:?}", expr.kind);
    text.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

/// The first evaluated expression that a condition holds for.
fn find(model: &Model, is_it: impl Fn(&Expr) -> bool) -> ExprId {
    let reached = model.reached();
    let mut all = (0..model.exprs.len()).map(ExprId::new);
    all.find(|id| reached[id.index()] && is_it(model.expr(*id))).expect("the model has one")
}

/// The first evaluated expression of a kind with several values.
fn of_several<'m>(model: &'m mut Model, name: &str) -> &'m mut ExprKind {
    let id = find(model, |expr| kind(expr) == name && expr.ty.num_values() > 1);
    &mut model.exprs[id.index()].kind
}

/// The first evaluated expression of a kind.
fn first<'m>(model: &'m mut Model, name: &str) -> &'m mut ExprKind {
    let id = find(model, |expr| kind(expr) == name);
    &mut model.exprs[id.index()].kind
}

/// Adds an expression that nothing evaluates.
fn push(model: &mut Model, kind: ExprKind, ty: Type) -> ExprId {
    model.exprs.push(Expr { kind, ty: Arc::new(ty), span: Span::new(FileId(0), 0, 0) });
    ExprId::new(model.exprs.len() - 1)
}

/// Adds an expression of a kind that has no right type.
fn wrong(model: &mut Model, kind: ExprKind) {
    push(model, kind, Type::One(row(Space::Unit, &[])));
}

/// Adds a dense value of a type.
fn value(model: &mut Model, ty: Type) -> ExprId {
    push(model, ExprKind::Zeros, ty)
}

fn one(model: &mut Model, space: Space, widths: &[usize]) -> ExprId {
    value(model, Type::One(row(space, widths)))
}

fn row(space: Space, widths: &[usize]) -> Row {
    Row::dense(space, widths.iter().map(|extent| width(*extent)).collect())
}

fn of_form(model: &Model, form: Form) -> ExprId {
    find(model, |expr| expr.ty.rows().any(|row| row.form == form))
}

fn graph(model: &Model, name: &str) -> Graph {
    Graph::new(model.tables.graphs.iter().position(|decl| decl.name == name).expect("the model has it"))
}

fn layer<'m>(model: &'m mut Model, name: &str) -> &'m mut LayerUse {
    model.uses.iter_mut().find(|layer| layer.layer == name).expect("the model uses it")
}

fn block(layer: &mut LayerUse, kind: BlockKind) -> &mut Block {
    let mut blocks = layer.body.iter_mut().filter_map(|item| match item {
        Item::Block(block) => Some(block),
        Item::Stmt(_) => None,
    });
    blocks.find(|block| block.kind == kind).expect("the layer has it")
}

fn width(extent: usize) -> Width {
    Width { dim: Dim::Fixed(extent), origin: Span::new(FileId(0), 0, 0) }
}

#[test]
fn models_of_every_kind_of_expression_are_right() {
    let model = model();
    assert_eq!(verify(&model).map_err(|broken| format!("{broken:#?}")), Ok(()));
    let kinds: BTreeSet<String> = model.exprs.iter().map(kind).collect();
    let all = [
        "Across",
        "AlongPath",
        "AtEnd",
        "AtPosition",
        "Before",
        "Binary",
        "Broadcast",
        "ByGraph",
        "Concat",
        "Degree",
        "DegreeAtEnd",
        "Dot",
        "Dropout",
        "EdgeData",
        "EdgeRows",
        "Features",
        "Flatten",
        "Fold",
        "HopData",
        "L2Normalize",
        "Layer",
        "Linear",
        "MatrixProduct",
        "Members",
        "Norm",
        "Number",
        "OfGraphs",
        "OfType",
        "OverDimension",
        "OverInEdges",
        "OverRows",
        "Param",
        "Pow",
        "Product",
        "Repeat",
        "Reshape",
        "Result",
        "RowNormalize",
        "RowsByGraph",
        "Scores",
        "Slice",
        "StopGradient",
        "SumOfSquares",
        "Transpose",
        "Types",
        "Unary",
        "Zeros",
    ];
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), all);
}

/// Other types than the right one.
fn changed(ty: &Type) -> Vec<(&'static str, Type)> {
    let with = |change: fn(&mut Row)| {
        let mut ty = ty.clone();
        let row = match &mut ty {
            Type::One(row) => Some(row),
            Type::PerGraph(rows) => rows.last_mut(),
            Type::PerType(rows) => rows.values_mut().last(),
            Type::ByGraph(rows) => rows.values_mut().last(),
        };
        row.map(change).map(|()| ty)
    };
    let mut all = vec![];
    let other_space = with(|row| {
        row.space = match row.space {
            Space::Unit => Space::Vertices(VertexType(0)),
            _ => Space::Unit,
        }
    });
    all.extend(other_space.map(|ty| ("other rows", ty)));
    all.extend(with(|row| row.widths.push(width(7))).map(|ty| ("one more dimension", ty)));
    all.extend(with(|row| row.widths.insert(0, width(7))).map(|ty| ("one more dimension in front", ty)));
    let wider = with(|row| row.widths.iter_mut().for_each(|of| of.dim = Dim::Fixed(of.dim.fixed().unwrap_or(0) + 1)));
    all.extend(wider.filter(|wider| wider != ty).map(|ty| ("wider", ty)));
    let other_form = with(|row| row.form = if row.form == Form::Dense { Form::OneHot } else { Form::Dense });
    all.extend(other_form.map(|ty| ("another form", ty)));
    let sparse = with(|row| row.form = Form::Sparse(width(7).origin));
    all.extend(sparse.filter(|sparse| sparse != ty).map(|ty| ("sparse", ty)));
    all.push(match ty {
        Type::One(row) => ("a family", Type::PerGraph(vec![row.clone()])),
        Type::PerGraph(rows) if rows.is_empty() => ("a bundle", Type::PerType(BTreeMap::new())),
        Type::PerGraph(rows) => ("a member less", Type::PerGraph(rows[1..].to_vec())),
        Type::PerType(rows) if rows.is_empty() => ("a family", Type::PerGraph(vec![])),
        Type::PerType(rows) => ("a type less", Type::PerType(rows.clone().into_iter().skip(1).collect())),
        Type::ByGraph(rows) => ("a graph less", Type::ByGraph(rows.clone().into_iter().skip(1).collect())),
    });
    all
}

#[test]
fn every_change_of_a_type_is_found() {
    let mut model = model();
    let (mut missed, mut tried) = (vec![], 0);
    for (position, _) in model.reached().into_iter().enumerate().filter(|(_, reached)| *reached) {
        let right = model.exprs[position].ty.clone();
        for (change, wrong) in changed(&right) {
            tried += 1;
            model.exprs[position].ty = Arc::new(wrong);
            if verify(&model).is_ok() {
                missed.push(format!("{change}: e{position} = {:?}: {right:?}", model.exprs[position].kind));
            }
        }
        model.exprs[position].ty = right;
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(tried > 1000, "{tried} changes");
}
