//! Each rule, broken once.

use std::collections::BTreeMap;
use std::sync::Arc;

use hgnnc_hir::{
    Axis, BlockKind, Decomposition, Dim, EdgeData, Entry, ExprId, ExprKind, Form, Initialiser, Item, LossKind, Model,
    OutputOf, ParamId, PathPart, Reduction, Row, Stmt, StmtKind, Symbols, Type, UseId, Width, verify,
};
use hgnnc_ir::training::LinkLoss;
use hgnnc_ir::{BinaryOp, Direction, Graph, Space, UnaryOp, VertexType};

use crate::{block, find, first, graph, kind, layer, model, of_form, of_several, one, push, row, value, width, wrong};

const P: Space = Space::Vertices(VertexType(0));
const A: Space = Space::Vertices(VertexType(1));
const NOWHERE: VertexType = VertexType(9);

/// A rule, by a part of its message, and a change that breaks it.
type Damage = (&'static str, fn(&mut Model));

/// Each damage breaks the rule with its message, and perhaps others.
fn finds(damages: &[Damage]) {
    for (message, damage) in damages {
        let mut model = model();
        damage(&mut model);
        let broken = verify(&model).expect_err(message);
        let broken: Vec<String> = broken.iter().map(ToString::to_string).collect();
        assert!(broken.iter().any(|broken| broken.contains(message)), "not `{message}`:\n{}", broken.join("\n"));
    }
}

#[test]
fn handles() {
    finds(&[
        ("the hop over `writes` starts at", |m| m.tables.relations[0].src = VertexType(2)),
        ("is not before it", |m| {
            let id = find(m, |expr| kind(expr) == "Flatten");
            m.exprs[id.index()].kind = ExprKind::Flatten(id);
        }),
        ("statement 1: there is no expression e9999", |m| m.body[1].value = ExprId::new(9999)),
        ("is not before it", |m| {
            let later = ExprId::new(m.exprs.len() - 1);
            m.uses[0].inputs[0].1 = later;
        }),
        ("there is no such parameter", |m| *of_several(m, "Param") = ExprKind::Param(ParamId::new(99), vec![])),
        ("there is no such use of a layer", |m| *first(m, "Layer") = ExprKind::Layer(UseId::new(99))),
        ("it is no result of this layer", |m| {
            if let ExprKind::Result(_, _, position) = first(m, "Result") {
                *position = 9;
            }
        }),
        ("there is no graph g99", |m| *of_several(m, "Degree") = ExprKind::Degree(Direction::In, [Graph(99)].into())),
        ("there is no vertex type v9", |m| {
            let x = find(m, |expr| kind(expr) == "Types");
            wrong(m, ExprKind::OfType(x, NOWHERE));
        }),
        ("there is no vertex type v9", |m| {
            if let ExprKind::Linear { names, .. } = of_several(m, "Linear") {
                names.entries[0] = Entry::Type(NOWHERE);
            }
        }),
        ("there is no vertex type v9", |m| {
            value(m, Type::One(Row::dense(P, vec![Width { dim: Dim::Count(NOWHERE), ..width(1) }])));
        }),
        ("there is no such polynomial", |m| {
            let dim = Symbols::default().variable("n");
            value(m, Type::One(Row::dense(P, vec![Width { dim, ..width(1) }])));
        }),
        ("its rows are of no space of a model", |m| _ = one(m, Space::Index(3), &[])),
        ("use 0 of a layer: there is no graph g99", |m| m.uses[0].graphs = [Graph(99)].into()),
        ("use 2 of a layer: there is no vertex type v9", |m| {
            block(layer(m, "FamilyConv"), BlockKind::Fuse).instances[0].vertex = Some(NOWHERE);
        }),
        ("output 1: there is no vertex type v9", |m| {
            let output = m.outputs.get_mut("logits").expect("it has this output");
            output.of = OutputOf::Vertices(NOWHERE, output.of.value());
        }),
        ("loss: there is no vertex type v9", |m| {
            if let Some(LossKind::CrossEntropy { label, .. }) = m.loss.as_mut().map(|loss| &mut loss.terms[0].kind) {
                label.vertex = NOWHERE;
            }
        }),
    ]);
}

#[test]
fn forms() {
    finds(&[
        ("a one-hot value is only multiplied", |m| {
            let x = of_form(m, Form::OneHot);
            wrong(m, ExprKind::Unary(UnaryOp::Relu, x));
        }),
        ("sparse values are multiplied before they are gathered", |m| {
            let x = of_form(m, Form::SparseAtEnd);
            wrong(m, ExprKind::Dropout(x, 0.5));
        }),
        ("only the right side of a product", |m| {
            let x = of_form(m, Form::BlockDiagonal);
            wrong(m, ExprKind::StopGradient(x));
        }),
        ("only the right side of a product", |m| {
            let (w, x) = (of_form(m, Form::BlockDiagonal), one(m, Space::Unit, &[4, 4, 2]));
            wrong(m, ExprKind::Product(w, x));
        }),
        ("only the right side of a product", |m| {
            let x = of_form(m, Form::BlockDiagonal);
            wrong(m, ExprKind::Across(Reduction::Mean, x));
        }),
        ("the zeros of a sparse value would be filled", |m| {
            let x = find(m, |expr| matches!(expr.ty.rows().next(), Some(Row { form: Form::Sparse(_), .. })));
            wrong(m, ExprKind::Unary(UnaryOp::Exp, x));
        }),
        ("the zeros of a sparse value would be filled", |m| {
            let x = find(m, |expr| matches!(&*expr.ty, Type::One(Row { form: Form::Sparse(_), .. })));
            let y = one(m, A, &[5]);
            wrong(m, ExprKind::Binary(BinaryOp::Add, x, y));
        }),
        ("the zeros of a sparse value would be filled", |m| {
            let x = find(m, |expr| matches!(&*expr.ty, Type::One(Row { form: Form::Sparse(_), .. })));
            let mut other = (*m.exprs[x.index()].ty).clone();
            if let Type::One(row) = &mut other {
                row.form = Form::Sparse(width(7).origin);
            }
            let y = value(m, other);
            wrong(m, ExprKind::Binary(BinaryOp::Mul, x, y));
        }),
    ]);
}

#[test]
fn shapes() {
    finds(&[
        ("features have one extent", |m| {
            let id = find(m, |expr| kind(expr) == "Features");
            m.exprs[id.index()].ty = Arc::new(Type::One(row(P, &[])));
        }),
        ("its operands have rows for different things", |m| {
            let (a, b) = (one(m, P, &[4]), one(m, A, &[4]));
            wrong(m, ExprKind::Binary(BinaryOp::Add, a, b));
        }),
        ("the extents of one operand are not the first ones of the other", |m| {
            let (a, b) = (one(m, P, &[4]), one(m, P, &[5, 4]));
            wrong(m, ExprKind::Binary(BinaryOp::Add, a, b));
        }),
        ("only single rows are repeated", |m| {
            let x = one(m, P, &[]);
            push(m, ExprKind::Broadcast(x), Type::One(row(P, &[4])));
        }),
        ("known extents are joined in one", |m| {
            let x = one(m, P, &[2, 4]);
            push(m, ExprKind::Flatten(x), Type::One(row(P, &[2, 4])));
        }),
        ("both shapes have different numbers of elements", |m| {
            let x = one(m, P, &[2, 4]);
            push(m, ExprKind::Reshape(x), Type::One(row(P, &[9])));
        }),
        ("there is no last dimension", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::Concat(x, x));
        }),
        ("its parts differ in more than the last dimension", |m| {
            let (a, b) = (one(m, P, &[2, 4]), one(m, P, &[3, 4]));
            wrong(m, ExprKind::Concat(a, b));
        }),
        ("its last extent is not the sum of those of its parts", |m| {
            let x = one(m, P, &[4]);
            push(m, ExprKind::Concat(x, x), Type::One(row(P, &[9])));
        }),
        ("its operands have rows for different things", |m| {
            let (a, b) = (one(m, P, &[4]), one(m, Space::Vertices(VertexType(1)), &[4, 2]));
            wrong(m, ExprKind::Product(a, b));
        }),
        ("matrices of rows have known extents", |m| {
            let (a, b) = (one(m, P, &[4]), one(m, P, &[4, 2]));
            let id = b.index();
            let ty = row(P, &[4, 2]);
            let counted = Width { dim: Dim::Count(VertexType(1)), ..ty.widths[1] };
            m.exprs[id].ty = Arc::new(Type::One(Row { widths: vec![ty.widths[0], counted], ..ty }));
            wrong(m, ExprKind::Product(a, b));
        }),
        ("the extents of the matrices do not fit", |m| {
            let (a, b) = (one(m, P, &[2, 4]), one(m, P, &[3, 2]));
            wrong(m, ExprKind::MatrixProduct(a, b));
        }),
        ("a matrix has two dimensions", |m| {
            let x = one(m, P, &[4]);
            wrong(m, ExprKind::Transpose(x));
        }),
        ("a slice ends behind its dimension", |m| {
            let x = one(m, P, &[4]);
            push(m, ExprKind::Slice { x, axis: 0, start: 3 }, Type::One(row(P, &[2])));
        }),
        ("there is no dimension at this position", |m| {
            let x = one(m, P, &[4]);
            push(m, ExprKind::Slice { x, axis: 1, start: 0 }, Type::One(row(P, &[4])));
        }),
        ("the extents of the left side are not the first ones of the right", |m| {
            let (a, b) = (one(m, P, &[4]), one(m, Space::Unit, &[5, 2]));
            wrong(m, ExprKind::Product(a, b));
        }),
        ("a block-diagonal weight has no batch dimensions", |m| {
            let (a, b) = (one(m, P, &[4, 4]), of_form(m, Form::BlockDiagonal));
            wrong(m, ExprKind::Product(a, b));
        }),
        ("its operands have different shapes", |m| {
            let (a, b) = (one(m, P, &[4]), one(m, P, &[4, 2]));
            wrong(m, ExprKind::Dot(a, b));
        }),
        ("values of one dimension are normalised", |m| {
            let ExprKind::Norm { names, .. } = first(m, "Norm") else { unreachable!("it was found") };
            let (names, x) = (names.clone(), one(m, P, &[4, 2]));
            wrong(m, ExprKind::Norm { x, eps: 0.1, over_rows: true, names });
        }),
        ("a linear map is between values of one dimension", |m| {
            let ExprKind::Norm { names, .. } = first(m, "Norm") else { unreachable!("it was found") };
            let (names, x) = (names.clone(), one(m, P, &[4, 2]));
            wrong(m, ExprKind::Linear { x, bias: true, names });
        }),
        ("it does not have parameters for each value", |m| {
            if let ExprKind::Linear { names, .. } = of_several(m, "Linear") {
                names.entries.pop();
            }
        }),
        ("a score is a single number", |m| {
            let wide = |rows: &BTreeMap<Graph, Row>| rows.values().any(|row| !row.widths.is_empty());
            let x = find(m, |expr| matches!(&*expr.ty, Type::ByGraph(rows) if wide(rows)));
            wrong(m, ExprKind::Scores(x));
        }),
        ("scores are edge values", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::Scores(x));
        }),
        ("a parameter has an entry for its value", |m| {
            if let ExprKind::Param(_, entries) = of_several(m, "Param") {
                entries.pop();
            }
        }),
        ("blocks divide both extents of a matrix", |m| {
            let blocks = |param: &&mut hgnnc_hir::Param| matches!(param.decomposition, Decomposition::Blocks(_));
            let param = m.params.iter_mut().find(blocks).expect("it has one");
            param.decomposition = Decomposition::Blocks(width(3));
        }),
        ("needs it in another shape", |m| {
            let basis = |param: &hgnnc_hir::Param| matches!(param.decomposition, Decomposition::Basis(_));
            let param = ParamId::new(m.params.iter().position(basis).expect("it has one"));
            let kind = ExprKind::Param(param, vec![Entry::Graph(Graph(0))]);
            push(m, kind, Type::PerGraph(vec![row(Space::Unit, &[4, 5])]));
        }),
    ]);
}

#[test]
fn families() {
    finds(&[
        ("it selects of values of vertex types", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::OfType(x, VertexType(0)));
        }),
        ("there are two values of v0", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::Types(vec![(VertexType(0), x), (VertexType(0), x)]));
        }),
        ("it is no value of v1", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::Types(vec![(VertexType(1), x)]));
        }),
        ("there is no value of v0", |m| {
            let x = value(m, Type::PerType(BTreeMap::new()));
            wrong(m, ExprKind::OfType(x, VertexType(0)));
        }),
        ("there are no such members", |m| {
            if let ExprKind::Members(_, positions) = of_several(m, "Members") {
                positions.reverse();
            }
        }),
        ("there are no such members", |m| {
            if let ExprKind::Members(_, positions) = of_several(m, "Members") {
                positions[0] = 99;
            }
        }),
        ("it is not of a single value", |m| {
            let x = find(m, |expr| matches!(&*expr.ty, Type::PerGraph(_)));
            wrong(m, ExprKind::Repeat(x));
        }),
        ("it is not of the values of a family", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::Across(Reduction::Sum, x));
        }),
        ("it selects of edge values", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::OfGraphs(x, [].into()));
        }),
        ("there is no value of a graph", |m| {
            let x = value(m, Type::ByGraph(BTreeMap::new()));
            wrong(m, ExprKind::OfGraphs(x, [Graph(0)].into()));
        }),
        ("it makes edge values by semantic graph", |m| {
            let x = value(m, Type::PerGraph(vec![]));
            wrong(m, ExprKind::ByGraph(x, [].into()));
        }),
        ("it does not have a value for each graph", |m| {
            let x = value(m, Type::PerGraph(vec![]));
            push(m, ExprKind::ByGraph(x, [Graph(0)].into()), Type::ByGraph(BTreeMap::new()));
        }),
        ("it has no value of a graph", |m| {
            let x = value(m, Type::PerGraph(vec![row(Space::Unit, &[])]));
            push(m, ExprKind::ByGraph(x, [Graph(0)].into()), Type::ByGraph(BTreeMap::new()));
        }),
        ("there are two values of a graph", |m| {
            let x = value(m, Type::PerGraph(vec![row(Space::Unit, &[]); 2]));
            let ty = Type::ByGraph([(Graph(0), row(Space::Edges(Graph(0)), &[]))].into());
            push(m, ExprKind::ByGraph(x, [Graph(0), Graph(0)].into()), ty);
        }),
        ("a value is neither a single row nor one of the vertices where its graph ends", |m| {
            let x = value(m, Type::PerGraph(vec![row(Space::Edges(Graph(0)), &[])]));
            push(m, ExprKind::RowsByGraph(vec![(x, [Graph(0)].into())]), Type::ByGraph(BTreeMap::new()));
        }),
        ("there are two values of a graph", |m| {
            let x = value(m, Type::PerGraph(vec![row(Space::Unit, &[])]));
            let ty = Type::ByGraph([(Graph(0), row(Space::Unit, &[]))].into());
            push(m, ExprKind::RowsByGraph(vec![(x, [Graph(0)].into()); 2]), ty);
        }),
        ("values of different kinds of families do not combine", |m| {
            let (a, b) = (value(m, Type::PerGraph(vec![])), value(m, Type::PerType(BTreeMap::new())));
            wrong(m, ExprKind::Binary(BinaryOp::Add, a, b));
        }),
        ("it does not have the values of its operand", |m| {
            let (a, b) = (value(m, Type::PerGraph(vec![])), value(m, Type::PerGraph(vec![row(P, &[])])));
            wrong(m, ExprKind::Binary(BinaryOp::Add, a, b));
        }),
        ("values of different semantic graphs are combined", |m| {
            let [a, b] = ["cites", "likes"].map(|name| {
                let graphs = [graph(m, name)].into();
                push(m, ExprKind::Degree(Direction::In, graphs), Type::PerGraph(vec![row(P, &[])]))
            });
            push(m, ExprKind::Binary(BinaryOp::Add, a, b), Type::PerGraph(vec![row(P, &[])]));
        }),
        ("a member has rows of something else", |m| {
            value(m, Type::PerType([(VertexType(0), row(A, &[]))].into()));
        }),
        ("a member has rows of something else", |m| {
            value(m, Type::ByGraph([(Graph(0), row(Space::Edges(Graph(1)), &[]))].into()));
        }),
    ]);
}

#[test]
fn reductions_and_edges() {
    finds(&[
        ("dimensions are joined by `flatten`", |m| {
            let x = one(m, P, &[4]);
            wrong(m, ExprKind::OverDimension(Axis::Last, Reduction::Concat, x));
        }),
        ("there is no last dimension", |m| {
            let x = one(m, P, &[]);
            wrong(m, ExprKind::OverDimension(Axis::Last, Reduction::Sum, x));
        }),
        ("slices are summed, averaged", |m| {
            let x = one(m, P, &[4, 2]);
            wrong(m, ExprKind::OverDimension(Axis::First, Reduction::Softmax, x));
        }),
        ("slices are those of several dimensions", |m| {
            let x = one(m, P, &[4]);
            wrong(m, ExprKind::OverDimension(Axis::First, Reduction::Sum, x));
        }),
        ("rows are not joined", |m| {
            let x = one(m, P, &[4]);
            wrong(m, ExprKind::OverRows(Reduction::Concat, x));
        }),
        ("it has no row for each vertex", |m| {
            let x = one(m, Space::Unit, &[4]);
            wrong(m, ExprKind::OverRows(Reduction::Sum, x));
        }),
        ("in-edges are not joined", |m| {
            if let ExprKind::OverInEdges { reduction, .. } = of_several(m, "OverInEdges") {
                *reduction = Reduction::Concat;
            }
        }),
        ("it has no value for each graph", |m| {
            if let ExprKind::OverInEdges { graphs, .. } = of_several(m, "OverInEdges") {
                *graphs = graphs[1..].into();
            }
        }),
        ("the scores of a destination have different extents", |m| {
            let graphs: Arc<[Graph]> = [graph(m, "cites"), graph(m, "likes")].into();
            let rows = graphs.iter().zip([2, 3]).map(|(graph, extent)| row(Space::Edges(*graph), &[extent]));
            let x = value(m, Type::PerGraph(rows.collect()));
            wrong(m, ExprKind::OverInEdges { x, reduction: Reduction::Softmax, across: true, graphs });
        }),
        ("it reduces over no semantic graph", |m| {
            let x = value(m, Type::PerGraph(vec![]));
            wrong(m, ExprKind::Across(Reduction::Max, x));
        }),
        ("pairs to score have no degrees, no data and no reductions", |m| {
            let graphs = [graph(m, "links_cites")].into();
            wrong(m, ExprKind::Degree(Direction::In, graphs));
        }),
        ("edges to predict have no degrees and no reductions", |m| {
            let graphs = [graph(m, "edges_likes")].into();
            wrong(m, ExprKind::Degree(Direction::In, graphs));
        }),
        ("these are no edges to predict", |m| {
            let graphs = [graph(m, "writes")].into();
            let x = value(m, Type::PerGraph(vec![row(Space::Unit, &[])]));
            wrong(m, ExprKind::EdgeRows(x, graphs));
        }),
        ("a value is of another graph", |m| {
            let graphs = [graph(m, "edges_likes")].into();
            let x = value(m, Type::PerGraph(vec![row(P, &[])]));
            wrong(m, ExprKind::EdgeRows(x, graphs));
        }),
        ("vertices at this end have no such degree", |m| {
            let graphs = [graph(m, "writes")].into();
            wrong(m, ExprKind::DegreeAtEnd { end: Direction::In, counted: Direction::Out, graphs });
        }),
        ("there is no value at an end of a graph", |m| {
            let (x, graphs) = (one(m, P, &[]), [Graph(0)].into());
            wrong(m, ExprKind::AtEnd(Direction::In, x, graphs));
        }),
        ("it is no value of the vertices at this end", |m| {
            let graphs: Arc<[Graph]> = [graph(m, "cites")].into();
            let x = value(m, Type::PerGraph(vec![row(A, &[])]));
            wrong(m, ExprKind::AtEnd(Direction::In, x, graphs));
        }),
        ("it is no vertex value", |m| {
            let x = of_form(m, Form::SparseAtEnd);
            let graphs = [graph(m, "writes")].into();
            wrong(m, ExprKind::AtEnd(Direction::In, x, graphs));
        }),
        ("no edge leaves the last vertex", |m| {
            if let ExprKind::HopData(_, data) = first(m, "HopData") {
                data[0].0.through = None;
            }
        }),
        ("a position is not one of the instances", |m| {
            let graph = graph(m, "writes");
            if let ExprKind::AtPosition(_, at) = first(m, "AtPosition") {
                *at = at.iter().map(|part| PathPart { through: Some(graph), ..*part }).collect();
            }
        }),
        ("a member has no value", |m| {
            if let ExprKind::AlongPath(_, parts, _) = first(m, "AlongPath") {
                parts.clear();
            }
        }),
        ("it has no state before an edge", |m| {
            if let ExprKind::Fold(fold) = first(m, "Fold") {
                fold.positions.clear();
            }
        }),
        ("a step goes over no single in-edges", |m| {
            if let ExprKind::Fold(fold) = first(m, "Fold") {
                fold.positions = vec![fold.graphs.clone()];
            }
        }),
        ("a state has another shape than the one before it", |m| {
            let other = find(m, |expr| kind(expr) == "Number");
            if let ExprKind::Fold(fold) = first(m, "Fold") {
                fold.step = other;
            }
        }),
        ("only relations have data", |m| {
            let data = vec![(graph(m, "PAP"), EdgeData::Weight)];
            push(m, ExprKind::EdgeData("weight".into(), data), Type::PerGraph(vec![row(P, &[])]));
        }),
        ("features have one known extent", |m| {
            let data = vec![(graph(m, "writes"), EdgeData::Features)];
            push(m, ExprKind::EdgeData("info".into(), data), Type::PerGraph(vec![row(P, &[])]));
        }),
    ]);
}

#[test]
fn evaluated_expressions() {
    finds(&[
        ("an extent is not known, or 0", |m| {
            let dim = m.tables.symbols.variable("n");
            let id = find(m, |expr| kind(expr) == "Param");
            let ty = Row::dense(Space::Unit, vec![Width { dim, ..width(1) }]);
            m.exprs[id.index()].ty = Arc::new(Type::One(ty));
        }),
        ("an extent is not known, or 0", |m| {
            let basis = |param: &&mut hgnnc_hir::Param| matches!(param.decomposition, Decomposition::Basis(_));
            m.params.iter_mut().find(basis).expect("it has one").decomposition = Decomposition::Basis(width(0));
        }),
        ("a number is not finite", |m| *first(m, "Number") = ExprKind::Number(f64::NAN)),
        ("a number is not finite", |m| m.params[0].init = Initialiser::Uniform(f64::INFINITY)),
        ("a rate is at least 0 and less than 1", |m| {
            if let ExprKind::Dropout(_, rate) = first(m, "Dropout") {
                *rate = 1.0;
            }
        }),
        ("zeros are a single row", |m| {
            let id = find(m, |expr| kind(expr) == "Zeros");
            m.exprs[id.index()].ty = Arc::new(Type::One(row(P, &[])));
        }),
        ("the edges of a graph do not count their paths", |m| {
            let graph = graph(m, "PAP");
            m.tables.graphs[graph.index()].counted = false;
        }),
        ("this use of a layer is evaluated twice", |m| {
            let use_id = UseId::new(0);
            let twice = push(m, ExprKind::Layer(use_id), Type::PerType(BTreeMap::new()));
            m.body[0].value = twice;
        }),
    ]);
}

#[test]
fn layers() {
    finds(&[
        ("a semantic graph is twice in its family", |m| {
            layer(m, "CountConv").graphs = [Graph(0), Graph(0)].into();
        }),
        ("its family is not declared", |m| m.tables.families.clear()),
        ("input `x` is of no vertices or edges", |m| {
            let number = find(m, |expr| kind(expr) == "Features");
            layer(m, "FamilyConv").inputs[0].1 = number;
        }),
        ("its values are of other semantic graphs", |m| {
            let other = find(m, |expr| kind(expr) == "EdgeData");
            layer(m, "FamilyConv").inputs[0].1 = other;
        }),
        ("a declaration is of a parameter", |m| {
            let other = find(m, |expr| kind(expr) == "Features");
            let stmt = Stmt { kind: StmtKind::Param, name: String::new(), value: other, sharing: None };
            layer(m, "FamilyConv").body[0] = Item::Stmt(stmt);
        }),
        ("outputs are those of the model", |m| match &mut layer(m, "FamilyConv").body[0] {
            Item::Stmt(stmt) => stmt.kind = StmtKind::Output,
            Item::Block(_) => panic!("its parameter stands before its blocks"),
        }),
        ("`aggregate` runs once for the family", |m| {
            block(layer(m, "CountConv"), BlockKind::Aggregate).instances[0].vertex = Some(VertexType(0));
        }),
        ("`fuse` runs once for the family, or once for each of several vertex types", |m| {
            block(layer(m, "FamilyConv"), BlockKind::Fuse).instances[1].vertex = Some(VertexType(0));
        }),
        ("`fuse`: outputs are those of a model", |m| {
            block(layer(m, "CountConv"), BlockKind::Fuse).instances[0].body[0].kind = StmtKind::Output;
        }),
        ("`z`: its values are of other semantic graphs", |m| {
            let other = block(layer(m, "CountConv"), BlockKind::Aggregate).instances[0].body[0].value;
            let stmts = &mut block(layer(m, "DataConv"), BlockKind::Aggregate).instances[0].body;
            stmts.iter_mut().find(|stmt| stmt.name == "z").expect("it assigns `z`").value = other;
        }),
        ("field `out` does not have a row for each vertex or edge", |m| {
            let fuse = block(layer(m, "FamilyConv"), BlockKind::Fuse);
            fuse.instances[0].fields[0].1 = fuse.instances[1].fields[0].1;
        }),
        ("an entry of `share` is of something else", |m| {
            let fuse = block(layer(m, "FamilyConv"), BlockKind::Fuse);
            let share = fuse.instances[0].body[0].value;
            if let ExprKind::Param(_, entries) = &mut m.exprs[share.index()].kind {
                entries.reverse();
            }
        }),
        ("an entry of `w` is of something else", |m| {
            let project = block(layer(m, "FamilyConv"), BlockKind::Project);
            project.instances[0].body[0].value = project.instances[1].body[0].value;
        }),
        ("result `out` is of no vertices or edges", |m| {
            let number = find(m, |expr| kind(expr) == "Features");
            layer(m, "FamilyConv").results[0].1 = number;
        }),
    ]);
}

#[test]
fn statements_outputs_and_the_loss() {
    fn loss(model: &mut Model) -> &mut hgnnc_hir::LossTerm {
        &mut model.loss.as_mut().expect("the model has a loss").terms[0]
    }
    finds(&[
        ("fields are those of layers", |m| m.body[1].kind = StmtKind::Assign),
        ("a declaration is of a parameter", |m| m.body[1].kind = StmtKind::Param),
        ("a model has no family", |m| m.body[1].value = find(m, |expr| matches!(&*expr.ty, Type::PerGraph(_)))),
        ("it has no statement", |m| m.body.retain(|stmt| stmt.kind != StmtKind::Output)),
        ("it is no dense value of what it is declared for", |m| {
            let output = m.outputs.get_mut("logits").expect("it has this output");
            output.of = OutputOf::Vertices(VertexType(1), output.of.value());
        }),
        ("it is no dense value of what it is declared for", |m| {
            let output = m.outputs.get_mut("score").expect("it has this output");
            output.of = OutputOf::Vertices(VertexType(0), output.of.value());
        }),
        ("it is no dense value of what it is declared for", |m| {
            let output = m.outputs.get_mut("attention").expect("it has this output");
            output.of = OutputOf::Graphs(output.of.value());
        }),
        ("it is no dense value of what it is declared for", |m| {
            let output = m.outputs.get_mut("weights").expect("it has this output");
            output.of = OutputOf::Edges(output.of.value());
        }),
        ("it is of no output", |m| loss(m).value = ExprId::new(0)),
        ("it has no terms", |m| m.loss.as_mut().expect("the model has a loss").terms.clear()),
        ("the weight of a term is not finite", |m| loss(m).weight = f64::NAN),
        ("a term without a label is no single number", |m| loss(m).kind = LossKind::Number),
        ("it does not have a weight for each class", |m| {
            if let LossKind::CrossEntropy { class_weights: Some(weights), .. } = &mut loss(m).kind {
                weights.pop();
            }
        }),
        ("or smoothing not less than 1", |m| {
            if let LossKind::CrossEntropy { smoothing, .. } = &mut loss(m).kind {
                *smoothing = 1.0;
            }
        }),
        ("the exponent of a focal loss is negative", |m| {
            if let LossKind::CrossEntropy { focus, .. } = &mut loss(m).kind {
                *focus = -1.0;
            }
        }),
        ("the output is not of links", |m| loss(m).kind = LossKind::Links(LinkLoss::BinaryCrossEntropy)),
        ("the output and the label are not of the same vertices", |m| {
            if let LossKind::CrossEntropy { label, .. } = &mut loss(m).kind {
                label.vertex = VertexType(1);
            }
        }),
        ("the output does not have the width of the label", |m| {
            if let LossKind::CrossEntropy { label, .. } = &loss(m).kind {
                loss(m).kind = LossKind::BinaryCrossEntropy { label: label.clone(), labels: 9, focus: 0.0 };
            }
        }),
    ]);
}

/// A layer that is checked without a use has symbolic extents: those that may be equal are.
#[test]
fn symbolic_extents_may_be_equal() {
    let mut m = model();
    let symbols = &mut m.tables.symbols;
    let (n, k) = (symbols.variable("n"), symbols.variable("k"));
    let [twice, product] = [symbols.add(n, n), symbols.multiply(n, k)].map(|dim| dim.expect("it is a polynomial"));
    let of = |dims: &[Dim]| {
        let widths = dims.iter().map(|dim| Width { dim: *dim, ..width(1) }).collect();
        Type::One(Row::dense(P, widths))
    };
    let x = value(&mut m, of(&[n, k]));
    let y = value(&mut m, of(&[n, n]));
    push(&mut m, ExprKind::Binary(BinaryOp::Add, x, y), of(&[n, k]));
    push(&mut m, ExprKind::Flatten(x), of(&[product]));
    push(&mut m, ExprKind::Reshape(x), of(&[k, n]));
    let z = value(&mut m, of(&[n]));
    push(&mut m, ExprKind::Concat(z, z), of(&[twice]));
    assert_eq!(verify(&m).map_err(|broken| format!("{broken:#?}")), Ok(()));

    let wrong = [
        (ExprKind::Concat(z, z), of(&[n])),
        (ExprKind::Reshape(z), of(&[twice])),
        (ExprKind::Unary(UnaryOp::Relu, z), of(&[twice])),
    ];
    for (kind, ty) in wrong {
        push(&mut m, kind, ty);
        let kind = format!("{:?}", m.exprs.last().expect("it was added").kind);
        assert!(verify(&m).is_err(), "{kind}");
        m.exprs.pop();
    }
}

#[test]
#[cfg(debug_assertions)]
fn debug_builds_stop_with_the_rule_and_the_model() {
    let text = |damage: fn(&mut Model)| {
        let mut model = model();
        damage(&mut model);
        let check = std::panic::AssertUnwindSafe(|| hgnnc_hir::verify::check(&model, "a test"));
        *std::panic::catch_unwind(check).expect_err("it is wrong").downcast::<String>().expect("the message is a text")
    };
    let printed = text(|m| m.tables.families.clear());
    assert!(printed.starts_with("internal error: a test broke the rules of typed models:\nuse 2"), "{printed}");
    assert!(printed.contains("\n  output logits = linear("), "{printed}");
    // A model whose handles are wrong has no text.
    let listed = text(|m| m.body[1].value = ExprId::new(9999));
    assert!(listed.contains("there is no expression e9999\n["), "{listed}");
}
