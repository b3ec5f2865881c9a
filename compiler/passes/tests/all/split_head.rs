//! Prediction heads: which programs have one, and the two parts against the program that they are parts of.

use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_interp::{Tensor, run};
use hgnnc_ir::dataflow::{Binding, Init, InputDecl, ParamDecl};
use hgnnc_ir::{
    BinaryOp, DType, Dataflow, Dim, Input, Layout, Op, Param, Reduce, Space, Type, UnaryOp, Value, VertexType,
};
use hgnnc_ir::{parse, print, verify};
use hgnnc_passes::dce::dce;
use hgnnc_passes::split_head;

const TABLES: &str = "dataflow d {
  vertex A from \"a\"
  relation aa: A -> A from \"aa\"
  graph g: A -> A = >aa
  input A.x : f32[A; 4] = features(A)
  input A.y : i32[A] = label(A, y)
  param w : f32[4, 9] = uniform(1.0)
  param u : f32[9, 2] = uniform(1.0)
  %0 = input A.x : f32[A; 4]
  %1 = gather.src g, %0 : f32[edges(g); 4]
  %2 = segment.sum.in g, %1 : f32[A; 4]
";

fn program(body: &str) -> Dataflow {
    let staged = |line: &str| format!("{line}{}\n", if line.starts_with("  %") { " @FP" } else { "" });
    let text: String = format!("{TABLES}{body}}}").lines().map(staged).collect();
    let flow = parse(&text).unwrap_or_else(|error| panic!("{error}"));
    verify(&flow).unwrap_or_else(|broken| panic!("{broken:#?}"));
    flow
}

fn split(body: &str) -> Option<(Dataflow, Dataflow)> {
    split_head(&program(body), VertexType::new(0), "y")
}

#[test]
fn a_head_of_logits_and_losses() {
    let (mut first, second) = split(
        "  %3 = param w : f32[4, 9]
  %4 = matmul %2, %3 : f32[A; 9]
  %5 = input A.y : i32[A]
  %6 = one_hot(9) %5 : f32[A; 9]
  %7 = mul %4, %6 : f32[A; 9]
  %8 = reduce.sum(axes 1) %7 : f32[A]
  result logits = %4
  result row_loss = %8
",
    )
    .expect("a head");
    dce(&mut first, &mut Default::default());
    insta::assert_snapshot!(format!("{}\n{}", print(&first), print(&second)));
}

/// An output that the head is computed from, or that another type has, is no part of it.
#[test]
fn outputs_before_the_cut_stay() {
    let (first, second) = split(
        "  %3 = param w : f32[4, 9]
  %4 = matmul %2, %3 : f32[A; 9]
  result embedding = %2
  result logits = %4
",
    )
    .expect("a head");
    assert!(first.result("embedding").is_some() && first.result("logits").is_none());
    assert!(second.result("embedding").is_none() && second.result("logits").is_some());
}

#[test]
fn what_has_no_head() {
    // The output is narrower than what it is computed from.
    let narrow = "  %3 = param w : f32[4, 9]
  %4 = matmul %2, %3 : f32[A; 9]
  %5 = param u : f32[9, 2]
  %6 = matmul %4, %5 : f32[A; 2]
  result logits = %6
";
    // Rows of other vertices, and a mean over all of them.
    let gathered = "  %3 = param w : f32[4, 9]
  %4 = matmul %2, %3 : f32[A; 9]
  %5 = gather.src g, %4 : f32[edges(g); 9]
  %6 = segment.sum.in g, %5 : f32[A; 9]
  result logits = %6
";
    let centred = "  %3 = param w : f32[4, 9]
  %4 = matmul %2, %3 : f32[A; 9]
  %5 = reduce_space.sum %4 : f32[9]
  %6 = sub %4, %5 : f32[A; 9]
  result logits = %6
";
    // A second value with rows of its own.
    let two = "  %3 = param w : f32[4, 9]
  %4 = matmul %2, %3 : f32[A; 9]
  %5 = segment.sum.out g, %1 : f32[A; 4]
  %6 = matmul %5, %3 : f32[A; 9]
  %7 = mul %4, %6 : f32[A; 9]
  result logits = %7
";
    for body in [narrow, gathered, centred, two] {
        assert!(split(body).is_none(), "{body}");
    }
}

/// Adds a wide output and a loss of labels to a value of a random program.
fn with_head(flow: &mut Dataflow, seed: u64) -> Option<VertexType> {
    let of_rows = |value: Value| match flow.ty(value).space {
        Space::Vertices(vertex) if (flow.ty(value).layout, flow.ty(value).dtype) == (Layout::Dense, DType::F32) => {
            Some(vertex)
        }
        _ => None,
    };
    let fixed = |value: &Value| flow.ty(*value).dims.iter().all(|dim| dim.fixed().is_some());
    let values: Vec<Value> = flow.handles().filter(fixed).filter(|&value| of_rows(value).is_some()).collect();
    let value = *values.get(seed as usize % values.len().max(1))?;
    let vertex = of_rows(value)?;
    let width: usize = flow.ty(value).dims.iter().filter_map(|dim| dim.fixed()).product();
    let dims = vec![Dim::Fixed(width), Dim::Fixed(2 * width + 1)];
    let param = flow.declare_param(ParamDecl::new("head.w".into(), dims, Init::Uniform(1.0), false));
    let ty = Type { dtype: DType::I32, ..Type::fixed(Space::Vertices(vertex), &[]) };
    let label = InputDecl { name: "head.label".into(), ty, binding: Binding::Label(vertex, "y".into()) };
    let label = flow.declare_input(label);
    flow.outputs.clear();
    let rows = flow.add(Op::Reshape(vec![Dim::Fixed(width)]), &[value]);
    let rows = flow.add(Op::Unary(UnaryOp::Tanh), &[rows]);
    let weight = flow.add(Op::Param(param), &[]);
    let logits = flow.add(Op::MatMul { batch: 0 }, &[rows, weight]);
    let label = flow.add(Op::Input(label), &[]);
    let wanted = flow.add(Op::OneHot { classes: 2 * width + 1 }, &[label]);
    let product = flow.binary(BinaryOp::Mul, logits, wanted);
    let loss = flow.reduce_trailing(Reduce::Sum, 1, product);
    flow.output("logits", logits);
    flow.output("row_loss", loss);
    dce(flow, &mut Default::default());
    Some(vertex)
}

#[test]
fn two_programs_compute_what_one_does() {
    let mut compared = 0;
    for seed in seeds(200) {
        let (mut flow, mut bindings) = random_program(seed);
        let params = flow.params.len();
        let Some(vertex) = with_head(&mut flow, seed) else { continue };
        let count = bindings.num_vertices[vertex.index()];
        for (index, decl) in flow.params.iter().enumerate().skip(params) {
            let shape: Vec<usize> = decl.dims.iter().filter_map(|dim| dim.fixed()).collect();
            let len: usize = shape.iter().product();
            let data = (0..len).map(|i| (i as f64 * 0.7 + 0.1).sin()).collect();
            bindings.params.insert(Param::new(index), Tensor { rows: 1, width: len, data });
        }
        let label = Tensor { rows: count, width: 1, data: (0..count).map(|row| (row % 3) as f64).collect() };
        let input = flow.inputs.iter().position(|decl| decl.name == "head.label").expect("declared");
        bindings.inputs.insert(Input::new(input), label.clone());
        let Some((first, second)) = split_head(&flow, vertex, "y") else { continue };
        for program in [&first, &second] {
            verify(program).unwrap_or_else(|broken| panic!("seed {seed}: {broken:#?}\n{program}"));
        }
        let whole = run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let values = run(&first, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{first}"));
        // Every second vertex, backwards.
        let rows: Vec<usize> = (0..count).rev().step_by(2).collect();
        let of_rows = |tensor: &Tensor| Tensor {
            rows: rows.len(),
            width: tensor.width,
            data: rows.iter().flat_map(|row| &tensor.data[row * tensor.width..][..tensor.width]).copied().collect(),
        };
        let mut some = bindings.clone();
        some.num_vertices[vertex.index()] = rows.len();
        some.edges.clear();
        some.inputs.clear();
        for (index, decl) in second.inputs.iter().enumerate() {
            let value = match &decl.binding {
                Binding::Given(name) => of_rows(&values[first.result(name).expect("a result")]),
                _ => of_rows(&label),
            };
            some.inputs.insert(Input::new(index), value);
        }
        for (index, decl) in second.params.iter().enumerate() {
            if decl.dims != flow.params[index].dims {
                some.params.insert(Param::new(index), Tensor { rows: 1, width: 1, data: vec![f64::NAN] });
            }
        }
        let found = run(&second, &some).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{second}"));
        for name in ["logits", "row_loss"] {
            let expected = of_rows(&whole[flow.result(name).expect("a result")]);
            let found = &found[second.result(name).expect("a result")];
            let same = |(x, y): (&f64, &f64)| x == y || x.is_nan() && y.is_nan();
            assert!(expected.data.iter().zip(&found.data).all(same), "seed {seed}, {name}\n{flow}{first}{second}");
            assert_eq!(expected.data.len(), found.data.len(), "seed {seed}");
        }
        compared += 1;
    }
    assert!(compared > 50, "{compared} programs");
}
