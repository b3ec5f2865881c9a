//! Times as values: what is bound, what differences mean, and that no pass rounds them.

use hgnnc_dataset::{Dataset, DenseFeatures, Features, RelationData, VertexTypeData};
use hgnnc_executable::Executable;
use hgnnc_ir::Input;
use hgnnc_ir::dataflow::Binding;
use hgnnc_model_tests::plain::{Plain, Rows};
use hgnnc_model_tests::{Compiled, World, assert_close, compile};

use crate::differential::engine_agrees;
use crate::gradients::gradients_are_differences;

const SCHEMA: &str = "
schema S {
    vertex A { x: f32[3], t: time, topic: class[2] }
    vertex B { x: f32[3], t: time }
    relation r: B -> A { at: time }
    relation s: A -> A { at: time }
}
layer Encoded() over graphs: [U -> V] of x: U[in], a: U, b: V -> V[4] {
    aggregate e: g in graphs {
        param w: [4] = uniform(1)
        let angle = (e.dst.b - e.src.a) * w + 0.1 * (e.at - e.dst.b) * range(4)
        z = sum(sin(angle) * e.src.x[0] + (e.src.a < e.at) * cos(angle)) over in_edges
    }
    fuse v: V across graphs {
        out = sum(v.z) across graphs
    }
}
model M(schema: S) {
    let z = Encoded() over [r] of (B.x, a: B.t, b: A.t)
    let y = Encoded() over [self_loops(s)] of (A.x, a: A.t, b: A.t)
    output y: A = linear(z + y, 2)
    output out: A = z + y
}
train M { loss cross_entropy(y, A.topic) optimizer sgd(lr: 0.1) epochs 1 }";

fn world() -> World {
    World::new(
        1,
        &[("A", 5), ("B", 3)],
        &[("r", &[(0, 0), (1, 0), (1, 0), (2, 3), (0, 1)]), ("s", &[(0, 0), (2, 1), (3, 1), (1, 3), (1, 3)])],
    )
}

/// The values of the model, edge by edge. The edges of a graph and their times are those that the program is bound to.
fn reference(compiled: &Compiled, p: &Plain<'_>) -> Rows {
    let bindings = compiled.bind(&world());
    let mut out: Rows = vec![vec![0.0; 4]; 5];
    for (graph, w, source) in [("r", "z.w.r", "B"), ("s_self_loops", "y.w.s_self_loops", "A")] {
        let at = p.input(&format!("{graph}.at"));
        let (a, b, x) = (p.input(&format!("{source}.t")), p.input("A.t"), p.input(&format!("{source}.x")));
        let w = p.vector(w);
        let position = compiled.model.flow.graphs.iter().position(|decl| decl.name == graph).expect("it is used");
        for (edge, &(j, i)) in bindings.edges[position].iter().enumerate() {
            let (j, i, at) = (j as usize, i as usize, at[edge][0]);
            for k in 0..4 {
                let angle = (b[i][0] - a[j][0]) * w[k] + 0.1 * (at - b[i][0]) * k as f64;
                out[i][k] += angle.sin() * x[j][0] + if a[j][0] < at { angle.cos() } else { 0.0 };
            }
        }
    }
    out
}

#[test]
fn differences_and_comparisons_of_times() {
    let compiled = compile(SCHEMA);
    let (world, bindings) = (world(), compiled.bind(&world()));
    let expected = reference(&compiled, &Plain::of(&compiled, &world));
    assert_close("times", &compiled.output(&world, "out").data, &expected.concat(), 1e-10);
    gradients_are_differences("times", &compiled.model.flow, &bindings);
}

/// Times far from the newest one, of which differences are small: if a pass multiplied times before it subtracts them, the
/// products would be rounded to tenths.
#[test]
fn no_pass_rounds_differences() {
    let compiled = compile(SCHEMA);
    let world = world();
    let mut bindings = compiled.bind(&world);
    for (index, decl) in compiled.model.flow.inputs.iter().enumerate() {
        if let (Binding::Time(_) | Binding::EdgeTime(_), Some(times)) =
            (&decl.binding, bindings.inputs.get_mut(&Input::new(index)))
        {
            times.data.iter_mut().for_each(|time| *time -= 16_000_000.0);
        }
    }
    let optimised = compiled.optimised(&world);
    engine_agrees("inference", &optimised.infer, &compiled.infer, &bindings);
    engine_agrees("training", optimised.train.as_ref().expect("trained"), compiled.training(), &bindings);
}

/// The inference of a model, to be bound to a dataset.
pub fn inference(compiled: &Compiled) -> Executable {
    Executable {
        model: "M".into(),
        train: None,
        infer: compiled.infer.clone(),
        score: None,
        rank: [None, None],
        head: None,
        kernels: Default::default(),
        training: None,
        batch: None,
        graphs: None,
        families: vec![],
        cpu: None,
        sampler: None,
    }
}

/// Binds a dataset of three `A` and two `B` with these times to the model.
fn bound(times: [&[i64]; 4]) -> Result<Vec<(String, Vec<f32>)>, String> {
    let compiled = compile(SCHEMA);
    let features = |rows: usize| Some(Features::Dense(DenseFeatures { dim: 3, rows: vec![0.0; rows * 3].into() }));
    let vertex = |name: &str, time: &[i64], count: usize| VertexTypeData {
        name: name.into(),
        count,
        features: features(count),
        time: (!time.is_empty()).then(|| time.to_vec()),
        ..Default::default()
    };
    let relation = |name: &str, src: usize, ends: [&[u32]; 2], time: &[i64]| RelationData {
        name: name.into(),
        src,
        dst: 0,
        src_ids: ends[0].to_vec(),
        dst_ids: ends[1].to_vec(),
        time: Some(time.to_vec()),
        ..Default::default()
    };
    let dataset = Dataset {
        name: "times".into(),
        vertex_types: vec![vertex("A", times[0], 3), vertex("B", times[1], 2)],
        // The edges of `s` come as (1, 0), (1, 0), (0, 2) with self loops between them.
        relations: vec![
            relation("r", 1, [&[1, 0], &[2, 0]], times[2]),
            relation("s", 0, [&[0, 1, 1], &[2, 0, 0]], times[3]),
        ],
        ..Dataset::default()
    };
    let executable = inference(&compiled);
    let options = hgnnc_data::BindOptions { outputs_only: true, ..Default::default() };
    let data = hgnnc_data::bind(&executable, &dataset, &options).map_err(|error| error.to_string())?;
    let numbers = |(decl, input): (&hgnnc_ir::dataflow::InputDecl, &hgnnc_data::InputData)| match input {
        hgnnc_data::InputData::Numbers(numbers) => Some((decl.name.clone(), numbers.to_vec())),
        _ => None,
    };
    let times = compiled.infer.inputs.iter().zip(&data.inputs).filter(|(decl, _)| !decl.name.ends_with(".x"));
    Ok(times.filter_map(numbers).collect())
}

/// Times are differences to the newest one that is read, and edges have theirs in the order of the graph. An added self loop has
/// the time of its vertex.
#[test]
fn times_are_bound_as_differences_to_the_newest() {
    let newest = 1_800_000_000;
    let [a, b] = [[newest - 16_777_216, newest - 7, newest - 16_777_213], [newest - 1, newest - 9, 0]];
    let found = bound([&a, &b[..2], &[newest - 5, newest], &[newest - 3, newest - 2, newest - 1]]).expect("it fits");
    let of = |name: &str| found.iter().find(|(known, _)| known == name).map(|(_, numbers)| &numbers[..]);
    assert_eq!(of("A.t"), Some(&[-16_777_216.0, -7.0, -16_777_213.0][..]));
    assert_eq!(of("B.t"), Some(&[-1.0, -9.0][..]));
    assert_eq!(of("r.at"), Some(&[0.0, -5.0][..]));
    // (0, 0), (1, 0), (1, 0), (1, 1), (0, 2), (2, 2): self loops are added.
    assert_eq!(of("s_self_loops.at"), Some(&[-16_777_216.0, -2.0, -1.0, -7.0, -3.0, -16_777_213.0][..]));
}

#[test]
fn times_that_are_missing_or_too_far_apart_are_refused() {
    let error = bound([&[1, 2, 3], &[], &[1, 2], &[1, 2, 3]]).expect_err("B has no times");
    assert!(error.contains("`B`") && error.contains("no times"), "{error}");
    let error = bound([&[1, 2, 16_777_218], &[1, 2], &[1, 2], &[1, 2, 3]]).expect_err("too far apart");
    assert!(error.contains("from 1 to 16777218") && error.contains("coarser"), "{error}");
}
