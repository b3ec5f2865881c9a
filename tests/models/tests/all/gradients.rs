//! Gradients of whole models against central differences of the interpreted loss.
//!
//! Every element of every parameter is moved by ±h in the f64 interpreter, with dropout on and its masks fixed by
//! seed and step. Tolerance: 1e-6 of the largest gradient of that parameter, with a floor of 1e-8 for gradients
//! that vanish (rounding of the loss divided by h).

use std::collections::BTreeMap;

use hgnnc_interp::Bindings;
use hgnnc_ir::{Dataflow, Param};
use hgnnc_model_tests::compiled::{compile, endpoints, interpret, params};
use hgnnc_model_tests::{CASES, Case, World, assert_close, cases, scale};
use hgnnc_passes::{PassCx, PassManager, SizeInfo, differentiate};

const TOLERANCE: f64 = 1e-6;
const FLOOR: f64 = 1e-8;
const H: f64 = 1e-5;

/// The forward program with gradients appended, and the gradient of each parameter.
fn with_gradients(forward: &Dataflow) -> (Dataflow, Vec<(Param, hgnnc_ir::Value)>) {
    let mut flow = forward.clone();
    let loss = flow.result("loss").expect("a loss");
    let grads = differentiate(&mut flow, loss, &params(forward));
    (flow, grads)
}

fn loss(forward: &Dataflow, bindings: &Bindings) -> f64 {
    interpret(forward, bindings).scalar(forward.result("loss").expect("a loss"))
}

#[track_caller]
pub fn gradients_are_differences(what: &str, forward: &Dataflow, bindings: &Bindings) {
    let (flow, grads) = with_gradients(forward);
    let run = interpret(&flow, bindings);
    assert_eq!(grads.len(), forward.params.len(), "{what}: every parameter has a gradient");
    for (param, grad) in grads {
        let found = &run[grad].data;
        let mut expected = vec![];
        let mut moved = bindings.clone();
        for element in 0..found.len() {
            let mut at = |shift: f64| {
                let here = bindings.params[&param].data[element];
                moved.params.get_mut(&param).expect("bound").data[element] = here + shift;
                let loss = loss(forward, &moved);
                moved.params.get_mut(&param).expect("bound").data[element] = here;
                loss
            };
            // Four points: the error is of order h⁴.
            let near = at(H) - at(-H);
            let far = at(2.0 * H) - at(-2.0 * H);
            expected.push((8.0 * near - far) / (12.0 * H));
        }
        let most = (TOLERANCE * scale(&expected, 0.0)).max(FLOOR);
        let name = &forward.params[param.index()].name;
        for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
            assert!((f - e).abs() <= most, "{what}: d loss / d {name}[{i}] is {f}, differences say {e} (± {most:e})");
        }
    }
}

fn check(case: &Case) {
    let compiled = compile(&case.source());
    for world in cases::worlds(2) {
        let what = format!("{}, world {}", case.name, world.seed);
        gradients_are_differences(&what, &compiled.model.flow, &compiled.bind(&world));
    }
}

hgnnc_model_tests::test_each_case!(|name| check(&hgnnc_model_tests::case(name)));

/// Other losses, and what `cross_entropy` can be told.
#[test]
fn losses_have_their_gradients() {
    let schema = "schema S { vertex Paper { x: f32[5], topic: class[3], tags: multilabel[3], scores: target[3] } }
        model M(schema: S) { output y: Paper = linear(tanh(linear(Paper.x, 4)), 3) }";
    for loss in [
        "cross_entropy(y, Paper.topic, class_weights: [0.5, 2.0, 1.0], label_smoothing: 0.1)",
        "cross_entropy(y, Paper.topic, focal: 2, class_weights: [0.5, 2.0, 1.0], label_smoothing: 0.1)",
        "cross_entropy(y, Paper.topic, focal: 0.5)",
        "binary_cross_entropy(y, Paper.tags)",
        "binary_cross_entropy(y, Paper.tags, focal: 1)",
        "mse(y, Paper.scores)",
        "mae(y, Paper.scores)",
    ] {
        let compiled = compile(&format!("{schema} train M {{ loss {loss} epochs 1 }}"));
        let world = World::new(4, &[("Paper", 6)], &[]);
        gradients_are_differences(loss, &compiled.model.flow, &compiled.bind(&world));
    }
}

/// Optimising before and after differentiation changes no gradient (1e-9 of the largest: other orders of sums).
#[test]
fn passes_change_no_gradient() {
    let passes = PassManager::default();
    for case in CASES {
        let compiled = compile(&case.source());
        for world in cases::worlds(3) {
            let bindings = compiled.bind(&world);
            let (plain, grads) = with_gradients(&compiled.model.flow);
            let run = interpret(&plain, &bindings);
            let expected: BTreeMap<Param, Vec<f64>> = grads.iter().map(|(p, g)| (*p, run[*g].data.clone())).collect();

            let sizes = SizeInfo {
                vertices: bindings.num_vertices.iter().map(|&n| n as u64).collect(),
                edges: bindings.edges.iter().map(|e| e.len() as u64).collect(),
                ends: endpoints(&bindings),
                ..SizeInfo::default()
            };
            let mut cx = PassCx::new(Some(sizes));
            let mut forward = compiled.model.flow.clone();
            passes.run_forward(&mut forward, &mut cx);
            let (mut joint, grads) = with_gradients(&forward);
            for (param, grad) in &grads {
                joint.output(format!("grad {}", param.index()), *grad);
            }
            passes.run_joint(&mut joint, &mut cx, || None);
            let run = interpret(&joint, &bindings);
            for (param, _) in grads {
                let grad = joint.result(&format!("grad {}", param.index())).expect("an output");
                let what = format!("{}, world {}: {}", case.name, world.seed, joint.params[param.index()].name);
                assert_close(&what, &run[grad].data, &expected[&param], 1e-9);
            }
        }
    }
}
