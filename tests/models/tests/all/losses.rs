//! Losses of several terms: against plain loops, against differences, on the engine and on a device.

use hgnnc_interp::{Evaluation, Tensor};
use hgnnc_ir::Dataflow;
use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::{Input, Param, VertexType};
use hgnnc_model_tests::cases::Case;
use hgnnc_model_tests::compiled::{compile, interpret};
use hgnnc_model_tests::{World, assert_close, cases};

use crate::devices::{on_device, on_processor, options, run};
use crate::differential::check_trained_by;
use crate::gradients::gradients_are_differences;
use crate::ranks::ranks_agree;

/// Two outputs of two vertex types with a label each, and a parameter of the model.
const CASE: Case = Case {
    name: "losses",
    uses: "use std::rgcn::RgcnConv",
    schema: "
schema Library {
    vertex Paper { x: f32[5], topic: class[3] }
    vertex Author { x: f32[3], role: class[3] }
    relation cites: Paper -> Paper
    relation writes: Author -> Paper
}
",
    body: "
    param w: [4, 3]
    let h = tanh(RgcnConv(hidden: 4) over [relations, reverses] of features)
    output y: Paper = h.Paper @ w
    output roles: Author = linear(h, 3).Author",
};

const TRAIN: &str = "train M {
    loss 0.7 * cross_entropy(y, Paper.topic) + cross_entropy(roles, Author.role, label_smoothing: 0.25) / 2
        + 0.01 * l2(w) + 0.02 * l2(h.w) - 0.05 * mean(sum(tanh(y)) over last) over Paper
    optimizer sgd(lr: 0.1, momentum: 0.9)
    epochs 5
    seed 3
    select train.loss
}";

/// The rows of a result.
fn result<'r>(flow: &Dataflow, run: &'r Evaluation, name: &str) -> &'r Tensor {
    &run[flow.result(name).expect("a result")]
}

/// The loss from the outputs, with plain loops.
fn from_outputs(flow: &Dataflow, run: &Evaluation, bindings: &hgnnc_interp::Bindings) -> f64 {
    let input = |wanted: &dyn Fn(&Binding) -> bool| {
        let index = flow.inputs.iter().position(|decl| wanted(&decl.binding)).expect("an input");
        &bindings.inputs[&Input::new(index)]
    };
    let term = |output: &str, vertex: usize, smoothing: f64| -> f64 {
        let logits = result(flow, run, output);
        let labels = input(&|of| matches!(of, Binding::Label(ty, _) if *ty == VertexType(vertex as u32)));
        let mask = input(&|of| *of == Binding::TrainMask(VertexType(vertex as u32)));
        let (mut sum, mut count) = (0.0, 0.0);
        for vertex in (0..logits.rows).filter(|&vertex| mask.data[vertex] > 0.0) {
            let row = logits.row(vertex);
            let lse = row.iter().map(|x| x.exp()).sum::<f64>().ln();
            let class = labels.data[vertex] as usize;
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            sum += (1.0 - smoothing) * (lse - row[class]) + smoothing * (lse - mean);
            count += 1.0;
        }
        sum / count
    };
    let size = |name: &str| -> f64 {
        let is_one = |of: &str| of.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        let named = (0..flow.params.len()).filter(|&index| is_one(&flow.params[index].name));
        let data = named.flat_map(|index| &bindings.params[&Param::new(index)].data);
        data.map(|x| x * x).sum()
    };
    let y = result(flow, run, "y");
    let tanh = y.data.iter().map(|x| x.tanh()).sum::<f64>() / y.rows as f64;
    0.7 * term("y", 0, 0.0) + 0.5 * term("roles", 1, 0.25) + 0.01 * size("w") + 0.02 * size("h.w") - 0.05 * tanh
}

#[test]
fn a_sum_of_terms_is_what_it_says() {
    let compiled = compile(&CASE.trained_by(TRAIN));
    for world in cases::worlds(4) {
        let (flow, bindings) = (&compiled.model.flow, compiled.bind(&world));
        let run = interpret(flow, &bindings);
        let expected = from_outputs(flow, &run, &bindings);
        assert_close(&format!("world {}", world.seed), &result(flow, &run, "loss").data, &[expected], 1e-12);
        gradients_are_differences(&format!("world {}", world.seed), flow, &bindings);
    }
}

#[test]
fn the_engine_agrees() {
    check_trained_by(&CASE, TRAIN, 3);
}

/// Several processes train all terms to the bits of one.
#[test]
fn ranks_agree_on_all_terms() {
    ranks_agree(&CASE, TRAIN, &World::random_library(4));
}

/// Losses and metrics of all terms and parts on a device are those of the processor.
#[test]
fn a_device_agrees() {
    let compiled = compile(&CASE.trained_by(TRAIN));
    let world = World::random_library(77);
    let expected = run(&mut on_processor(&compiled, &world, options(3)));
    let found = run(&mut on_device(&compiled, &world, options(3)));
    let close = |what: &str, a: f64, b: f64| {
        assert!((a - b).abs() <= 2e-4 * a.abs().max(1.0) || (a.is_nan() && b.is_nan()), "{what}: {b} instead of {a}");
    };
    assert_eq!(expected.losses.len(), found.losses.len());
    expected.losses.iter().zip(&found.losses).for_each(|(a, b)| close("loss", *a, *b));
    assert!(expected.metrics["train"].contains_key("roles.accuracy"), "{:?}", expected.metrics);
    assert_eq!(expected.metrics.len(), found.metrics.len());
    for (part, metrics) in &expected.metrics {
        assert_eq!(metrics.len(), found.metrics[part].len());
        metrics.iter().for_each(|(name, value)| close(name, *value, found.metrics[part][name]));
    }
}

/// A loss of a row of logits and its truth.
type OfRow<'f> = dyn Fn(&[f64], &[f64]) -> f64 + 'f;

/// The loss of a vertex is multiplied by (1 − p)^γ, and each of several labels as well.
#[test]
fn a_focal_loss_is_what_it_says() {
    let schema = "schema S { vertex Paper { x: f32[5], topic: class[3], tags: multilabel[3] } }
        model M(schema: S) { output y: Paper = linear(tanh(linear(Paper.x, 4)), 3) }";
    let world = World::new(4, &[("Paper", 6)], &[]);
    for focus in [1.0, 2.0, 2.5] {
        let of_classes = |row: &[f64], truth: &[f64]| {
            let p = row[truth[0] as usize].exp() / row.iter().map(|x| x.exp()).sum::<f64>();
            -p.ln() * (1.0 - p).powf(focus)
        };
        let of_labels = |row: &[f64], truth: &[f64]| {
            let each = row.iter().zip(truth).map(|(x, y)| {
                let p = 1.0 / (1.0 + (x * (1.0 - 2.0 * y)).exp());
                -p.ln() * (1.0 - p).powf(focus)
            });
            each.sum::<f64>() / row.len() as f64
        };
        let forms: [(&str, &OfRow<'_>); 2] =
            [("cross_entropy(y, Paper.topic", &of_classes), ("binary_cross_entropy(y, Paper.tags", &of_labels)];
        for (call, loss) in forms {
            let compiled = compile(&format!("{schema} train M {{ loss {call}, focal: {focus}) epochs 1 }}"));
            let (flow, bindings) = (&compiled.model.flow, compiled.bind(&world));
            let run = interpret(flow, &bindings);
            let input = |wanted: fn(&Binding) -> bool| {
                let index = flow.inputs.iter().position(|decl| wanted(&decl.binding)).expect("an input");
                &bindings.inputs[&Input::new(index)]
            };
            let (labels, mask) =
                (input(|of| matches!(of, Binding::Label(..))), input(|of| matches!(of, Binding::TrainMask(_))));
            let logits = result(flow, &run, "y");
            let trained = (0..logits.rows).filter(|&row| mask.data[row] > 0.0);
            let lost: Vec<f64> = trained.map(|row| loss(logits.row(row), labels.row(row))).collect();
            let expected = lost.iter().sum::<f64>() / lost.len() as f64;
            assert_close(&format!("{call}, {focus}"), &result(flow, &run, "loss").data, &[expected], 1e-9);
        }
    }
}

/// Losses that are written as expressions of outputs, as in papers.
#[test]
fn expressions_have_their_gradients() {
    let schema = "schema S { vertex Paper { x: f32[5], topic: class[3] } vertex Author { x: f32[3] } }
        model M(schema: S) {
            param s: []
            let h = tanh(linear(Paper.x, 4))
            output y: Paper = linear(h, 3)
            output z: Paper = linear(tanh(linear(Paper.x, 4)), 3)
            output a: Author = linear(Author.x, 3)
        }";
    for loss in [
        // Two views of a vertex agree, and its mean differs from that of others.
        "mean(1 - dot(l2_normalize(y), l2_normalize(z))) over Paper",
        // Binary cross entropy of scores against 1 and 0, of a readout.
        "mean(softplus(0 - dot(y, sigmoid(mean(y) over Paper)))) over Paper + mean(softplus(dot(z, sigmoid(mean(y) over Paper)))) over Paper",
        // A margin between two scores.
        "mean(relu(0.5 - dot(y, y) + dot(y, z))) over Paper",
        // Kullback-Leibler divergence of two predictions.
        "mean(sum((softmax(y) over last) * (log(softmax(y) over last) - log(softmax(z) over last))) over last) over Paper",
        // Terms of several vertex types, and of a parameter.
        "mean(dot(y, y)) over Paper / (1 + sum(dot(a, a)) over Author) + (s - 1) * (s - 1)",
        // Sizes of values of vertices, of parameters and of what is not trained.
        "l2(y - z) / 7 + l2(s) - 0.1 * l2(h)",
        // A comparison beside an expression of the same output.
        "cross_entropy(y, Paper.topic) - 0.1 * mean(dot(softmax(y) over last, softmax(y) over last)) over Paper \
         + exp(s) * mean(dot(z, z)) over Paper",
    ] {
        // Every parameter has a part in the loss.
        let rest = "0.1 * mean(dot(a, a)) over Author + s * s + 0.01 * mean(dot(y, z)) over Paper";
        let compiled = compile(&format!("{schema} train M {{ loss {loss} + {rest} epochs 1 }}"));
        let world = World::new(4, &[("Paper", 6), ("Author", 4)], &[]);
        gradients_are_differences(loss, &compiled.model.flow, &compiled.bind(&world));
    }
}

/// Parameters of layers: shared ones, with bases, with blocks, and with a row for each vertex.
#[test]
fn sizes_of_parameters_of_layers() {
    for (name, sizes) in [("rgcn_basis", "l2(conv.w)"), ("rgcn_block", "l2(conv.w)"), ("rgcn_sparse", "l2(first.w)")] {
        let case = hgnnc_model_tests::case(name);
        let train = format!(
            "train M {{ loss cross_entropy(y, Paper.topic) + 0.01 * {sizes} optimizer sgd(lr: 0.1) epochs 5 select train.loss }}"
        );
        let compiled = compile(&case.trained_by(&train));
        let world = World::random_library(5);
        gradients_are_differences(name, &compiled.model.flow, &compiled.bind(&world));
        check_trained_by(&case, &train, 1);
    }
}
