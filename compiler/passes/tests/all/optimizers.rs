//! Optimisers against PyTorch's update rules, written out here for one number at a time.

use crate::common::World;
use hgnnc_interp::{Tensor, run};
use hgnnc_ir::dataflow::{Binding, Init, ParamDecl};
use hgnnc_ir::{Dim, Op, OutputKind, Param, Phase, Stage, Type, Value};
use hgnnc_passes::{Clip, Optimizer, OptimizerOptions, Schedule, update};

const W: [f64; 3] = [1.0, -2.0, 0.5];
const STEPS: u64 = 5;

/// Gradients of the two parameters at each step: inputs that change.
fn gradient(step: u64, element: usize) -> f64 {
    (step as f64 * 1.7 + element as f64 * 0.9).sin() * 3.0
}

/// Trains `[2]` (with decay) and `[]` (without) with given gradients, one epoch per step; the three numbers after
/// each step.
fn train(options: &OptimizerOptions) -> Vec<[f64; 3]> {
    let mut world = World::new();
    let mut grads = vec![];
    for (name, dims, decay, start) in [("w", vec![Dim::Fixed(2)], true, &W[..2]), ("b", vec![], false, &W[2..])] {
        let init = Init::Constant(0.0);
        let ty = Type::new(hgnnc_ir::Space::Unit, dims.clone());
        let param = world.flow.declare_param(ParamDecl::new(name.into(), dims, init, decay));
        world.bindings.params.insert(param, Tensor::new(1, start.len(), start.to_vec()));
        grads.push((param, world.input(ty, 0.0, 1.0)));
    }
    let num_before = world.flow.values.len();
    update(&mut world.flow, &grads, options);
    for data in &world.flow.values[num_before..] {
        assert_eq!((data.stage, data.phase), (Stage::PU, Phase::Update));
    }
    let states = world.flow.outputs.iter().filter(|o| matches!(o.kind, OutputKind::UpdateState(..))).count();
    assert_eq!(states, 2 * options.optimizer.num_slots() as usize);

    let input = |world: &World, v: Value| match world.flow.value(v).op {
        Op::Input(input) => input,
        _ => panic!("an input"),
    };
    let mut history = vec![];
    for step in 1..=STEPS {
        for (at, &(param, g)) in [0, 2].into_iter().zip(&grads) {
            let width = world.bindings.params[&param].width;
            let tensor = Tensor::from_fn(1, width, |_, i| gradient(step, at + i));
            world.bindings.inputs.insert(input(&world, g), tensor);
        }
        for (i, decl) in world.flow.inputs.iter().enumerate() {
            let number = match decl.binding {
                Binding::StepNumber => step as f64,
                Binding::EpochNumber => (step - 1) as f64,
                _ => continue,
            };
            world.bindings.inputs.insert(hgnnc_ir::Input::new(i), Tensor::scalar(number));
        }
        let run = run(&world.flow, &world.bindings).expect("bound");
        world.bindings.apply_updates(&world.flow, &run);
        let (w, b) = (&world.bindings.params[&Param(0)].data, &world.bindings.params[&Param(1)].data);
        history.push([w[0], w[1], b[0]]);
    }
    history
}

fn close(found: &[[f64; 3]], expected: &[[f64; 3]]) {
    assert_eq!(found.len(), expected.len());
    for (step, (f, e)) in found.iter().zip(expected).enumerate() {
        for i in 0..3 {
            assert!((f[i] - e[i]).abs() <= 1e-12, "step {step}, element {i}: {} instead of {}", f[i], e[i]);
        }
    }
}

/// Runs a rule (step, element, old value, decay of this element) -> new value.
fn reference(mut rule: impl FnMut(u64, usize, f64, f64) -> f64) -> Vec<[f64; 3]> {
    let mut w = W;
    (1..=STEPS)
        .map(|step| {
            for (i, w) in w.iter_mut().enumerate() {
                *w = rule(step, i, *w, if i < 2 { 1.0 } else { 0.0 });
            }
            w
        })
        .collect()
}

#[test]
fn sgd_with_momentum_and_decay() {
    for (momentum, nesterov) in [(0.0, false), (0.9, false), (0.9, true)] {
        let optimizer = Optimizer::Sgd { lr: 0.1, momentum, nesterov, weight_decay: 0.01 };
        let mut buffer = [0.0; 3];
        let expected = reference(|step, i, w, decay| {
            let g = gradient(step, i) + 0.01 * decay * w;
            buffer[i] = if step == 1 { g } else { momentum * buffer[i] + g };
            let step = match (momentum == 0.0, nesterov) {
                (true, _) => g,
                (false, false) => buffer[i],
                (false, true) => g + momentum * buffer[i],
            };
            w - 0.1 * step
        });
        close(&train(&OptimizerOptions::new(optimizer)), &expected);
    }
}

#[test]
fn adam_adds_decay_to_the_gradient_and_adam_w_does_not() {
    let (lr, beta1, beta2, eps, weight_decay) = (0.1, 0.9, 0.999, 1e-3, 0.05);
    for apart in [false, true] {
        let optimizer = if apart {
            Optimizer::AdamW { lr, beta1, beta2, eps, weight_decay }
        } else {
            Optimizer::Adam { lr, beta1, beta2, eps, weight_decay }
        };
        let (mut m, mut v) = ([0.0; 3], [0.0; 3]);
        let expected = reference(|step, i, w, decay| {
            let wd = weight_decay * decay;
            let g = gradient(step, i) + if apart { 0.0 } else { wd * w };
            let w = if apart { w - lr * wd * w } else { w };
            m[i] = beta1 * m[i] + (1.0 - beta1) * g;
            v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
            let (c1, c2) = (1.0 - beta1.powi(step as i32), 1.0 - beta2.powi(step as i32));
            w - lr / c1 * m[i] / (v[i].sqrt() / c2.sqrt() + eps)
        });
        close(&train(&OptimizerOptions::new(optimizer)), &expected);
    }
}

#[test]
fn the_first_step_of_adam_is_the_learning_rate() {
    // By hand: m̂ = g, v̂ = g², so the step is lr · g / (|g| + eps).
    let first = train(&OptimizerOptions::new(Optimizer::adam(0.01)))[0];
    for i in 0..3 {
        let g = gradient(1, i);
        assert!((first[i] - (W[i] - 0.01 * g / (g.abs() + 1e-8))).abs() < 1e-12);
    }
}

#[test]
fn schedules_scale_the_learning_rate() {
    let cosine = Schedule::Cosine { epochs: 3, floor: 0.1 };
    let half = |x: f64| 0.1 + 0.9 * 0.5 * (1.0 + (std::f64::consts::PI * x).cos());
    let third = 1.0 / 3.0;
    // Factors of epochs 0..5, by hand.
    let table: [(Schedule, [f64; 5]); 7] = [
        (Schedule::Constant, [1.0; 5]),
        (Schedule::Step { every: 2, factor: 0.5 }, [1.0, 1.0, 0.5, 0.5, 0.25]),
        (Schedule::Exponential { factor: 0.5 }, [1.0, 0.5, 0.25, 0.125, 0.0625]),
        (cosine.clone(), [1.0, half(third), half(2.0 * third), 0.1, 0.1]),
        (Schedule::Warmup { epochs: 2, then: Box::new(Schedule::Constant) }, [0.5, 1.0, 1.0, 1.0, 1.0]),
        (
            Schedule::Warmup { epochs: 2, then: Box::new(Schedule::Exponential { factor: 0.5 }) },
            [0.5, 1.0, 1.0, 0.5, 0.25],
        ),
        (Schedule::Warmup { epochs: 1, then: Box::new(cosine) }, [1.0, 1.0, half(third), half(2.0 * third), 0.1]),
    ];
    for (schedule, factors) in table {
        for (epoch, factor) in factors.iter().enumerate() {
            assert!((schedule.factor(epoch as u64) - factor).abs() < 1e-15, "{schedule:?} at {epoch}");
        }
        let expected = reference(|step, i, w, _| w - 0.1 * factors[step as usize - 1] * gradient(step, i));
        let options = OptimizerOptions { schedule, ..OptimizerOptions::new(Optimizer::sgd(0.1)) };
        close(&train(&options), &expected);
    }
}

#[test]
fn the_schedule_scales_the_decay_of_adam_w() {
    let (lr, wd) = (0.1, 0.2);
    let optimizer = Optimizer::AdamW { lr, beta1: 0.0, beta2: 0.0, eps: 1.0, weight_decay: wd };
    let schedule = Schedule::Exponential { factor: 0.5 };
    let expected = reference(|step, i, w, decay| {
        let (lr, g) = (lr * 0.5f64.powi(step as i32 - 1), gradient(step, i));
        w * (1.0 - lr * wd * decay) - lr * g / (g.abs() + 1.0)
    });
    close(&train(&OptimizerOptions { schedule, ..OptimizerOptions::new(optimizer) }), &expected);
}

#[test]
fn clipping_bounds_the_common_norm_or_every_element() {
    let options = |clip| OptimizerOptions { clip: Some(clip), ..OptimizerOptions::new(Optimizer::sgd(0.1)) };
    for limit in [0.5, 1e6] {
        let expected = reference(|step, i, w, _| {
            let norm = (0..3).map(|i| gradient(step, i).powi(2)).sum::<f64>().sqrt();
            w - 0.1 * gradient(step, i) * (limit / (norm + 1e-6)).min(1.0)
        });
        close(&train(&options(Clip::GlobalNorm(limit))), &expected);
    }
    let expected = reference(|step, i, w, _| w - 0.1 * gradient(step, i).clamp(-0.7, 0.7));
    close(&train(&options(Clip::Value(0.7))), &expected);
}

#[test]
fn nothing_to_update_appends_nothing() {
    let mut world = World::new();
    update(&mut world.flow, &[], &OptimizerOptions::new(Optimizer::adam(0.1)));
    assert!(world.flow.values.is_empty() && world.flow.outputs.is_empty());
}
