//! Models as layers of a larger network: gradients of given inputs and of parameters, from given gradients of outputs.
//!
//! The oracle is the interpreter in f64. The vector-Jacobian product of every case is compared with central differences of
//! `Σ gradient · output`, and [`Layer`], the programs after all passes on the f32 engine, with the oracle, on worlds with
//! isolated vertices, empty relations, duplicate edges and self loops. Tolerances are those of `gradients.rs` and
//! `differential.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hgnnc::layer::{Layer, LayerJob, Mode};
use hgnnc::{Device, Silent};
use hgnnc_dataset::{Dataset, DenseFeatures, Features};
use hgnnc_driver::{Leaf, output_gradient};
use hgnnc_interp::{Bindings, Tensor};
use hgnnc_ir::dataflow::{Binding, Matrix};
use hgnnc_ir::{Dataflow, Input, OutputKind, Param};
use hgnnc_model_tests::compiled::{Compiled, bind, compile, interpret, params};
use hgnnc_model_tests::{CASES, Case, World, assert_close, case, cases, dataset, scale, worlds};
use hgnnc_passes::{LeafGradient, vjp};

const TOLERANCE: f64 = 2e-5;
const SEED: u64 = 5;
const STEP: u64 = 1;

/// The dense features that a model reads.
fn features(flow: &Dataflow) -> Vec<Input> {
    let is_given = |index: &usize| {
        let decl = &flow.inputs[*index];
        matches!(decl.binding, Binding::Features(..)) && !decl.ty.is_sparse()
    };
    (0..flow.inputs.len()).filter(is_given).map(Input::new).collect()
}

/// A forward program with its vector-Jacobian product, as written, and the data of a world with random gradients of outputs.
struct Oracle {
    flow: Dataflow,
    gradients: Vec<LeafGradient>,
    bindings: Bindings,
}

impl Oracle {
    fn new(forward: &Dataflow, world: &World) -> Self {
        let mut flow = forward.clone();
        let leaves = features(&flow).into_iter().map(Leaf::Input).chain(params(&flow).into_iter().map(Leaf::Param));
        let gradients = vjp(&mut flow, &leaves.collect::<Vec<Leaf>>()).expect("a gradient");
        let bindings = Bindings { seed: SEED, step: STEP, ..bind(&flow, world) };
        Self { flow, gradients, bindings }
    }

    fn input(&self, name: &str) -> &Tensor {
        let index = self.flow.inputs.iter().position(|decl| decl.name == name).expect("an input");
        &self.bindings.inputs[&Input::new(index)]
    }

    /// All results, by name.
    fn results(&self) -> BTreeMap<String, Vec<f64>> {
        let run = interpret(&self.flow, &self.bindings);
        let result = |output: &hgnnc_ir::Output| match &output.kind {
            OutputKind::Result(name) => Some((name.clone(), run[output.value].data.clone())),
            OutputKind::UpdateParam(_) | OutputKind::UpdateState(..) => None,
        };
        self.flow.outputs.iter().filter_map(result).collect()
    }
}

fn narrowed(tensor: &Tensor) -> Vec<f32> {
    tensor.data.iter().map(|&x| x as f32).collect()
}

/// The text of a case without its train block.
fn untrained(case: &Case) -> String {
    case.trained_by("")
}

/// The dataset of a world, without the features that are given at each call.
fn dataset_without(compiled: &Compiled, world: &World, given: &[Input]) -> Dataset {
    let mut dataset = dataset::dataset(&compiled.infer, &compiled.bind(world), world);
    // Features that the schema declares and the model does not read.
    for (name, dim) in [("Paper", 5), ("Author", 3), ("Venue", 4)] {
        for vertex in dataset.vertex_types.iter_mut().filter(|vertex| vertex.name == name) {
            let rows = vec![0.0; vertex.count * dim].into();
            vertex.features.get_or_insert(Features::Dense(DenseFeatures { dim, rows }));
        }
    }
    for input in given {
        if let Binding::Features(vertex, Matrix::Features) = compiled.infer.inputs[input.index()].binding {
            dataset.vertex_types[vertex.index()].features = None;
        }
    }
    dataset
}

fn differences(name: &str) {
    let compiled = compile(&untrained(&case(name)));
    for world in [World::library(), World::sparse_library()] {
        let oracle = Oracle::new(&compiled.model.flow, &world);
        let forward = &compiled.model.flow;
        let weighted = |bindings: &Bindings| -> f64 {
            let run = interpret(forward, bindings);
            let output = |output: &hgnnc_ir::Output| {
                let OutputKind::Result(name) = &output.kind else { return 0.0 };
                let by = &oracle.input(&output_gradient(name)).data;
                run[output.value].data.iter().zip(by).map(|(x, by)| x * by).sum::<f64>()
            };
            forward.outputs.iter().map(output).sum()
        };
        let found = oracle.results();
        for LeafGradient { leaf, result } in &oracle.gradients {
            let found = &found[result];
            let mut moved = oracle.bindings.clone();
            let mut expected = vec![];
            for element in 0..found.len() {
                let mut at = |shift: f64| {
                    let tensor = match leaf {
                        Leaf::Input(input) => moved.inputs.get_mut(input),
                        Leaf::Param(param) => moved.params.get_mut(param),
                    };
                    let data = &mut tensor.expect("bound").data;
                    let here = std::mem::replace(&mut data[element], 0.0);
                    data[element] = here + shift;
                    let sum = weighted(&moved);
                    let tensor = match leaf {
                        Leaf::Input(input) => moved.inputs.get_mut(input),
                        Leaf::Param(param) => moved.params.get_mut(param),
                    };
                    tensor.expect("bound").data[element] = here;
                    sum
                };
                const H: f64 = 1e-5;
                let (near, far) = (at(H) - at(-H), at(2.0 * H) - at(-2.0 * H));
                expected.push((8.0 * near - far) / (12.0 * H));
            }
            let most = (1e-6 * scale(&expected, 0.0)).max(1e-8);
            for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
                assert!((f - e).abs() <= most, "{name}: {result}[{i}] is {f}, differences say {e} (± {most:e})");
            }
        }
    }
}

mod against_differences {
    hgnnc_model_tests::test_each_case!(super::differences);
}

/// A layer of a case on the processor.
fn layer(case: &Case, dataset: &Dataset, given: &[String], threads: usize) -> Layer {
    let job = LayerJob {
        given: given.to_vec(),
        device: Device::Cpu,
        graph_cache: None,
        threads,
        ..LayerJob::new("layer.hgnn", untrained(case))
    };
    Layer::new(&job, &Arc::new(dataset.clone()), &mut Silent).unwrap_or_else(|error| panic!("{}: {error}", case.name))
}

/// Runs both passes, and returns outputs and gradients by the names of the oracle.
fn run(layer: &mut Layer, oracle: &Oracle, mode: Mode) -> BTreeMap<String, Vec<f32>> {
    let numbers = |name: &str| narrowed(oracle.input(name));
    let inputs: Vec<Vec<f32>> = layer.inputs().map(|info| numbers(&info.name)).collect();
    let of_param = |name: &str| {
        let index = oracle.flow.params.iter().position(|decl| decl.name == name).expect("a parameter");
        narrowed(&oracle.bindings.params[&Param::new(index)])
    };
    let params: Vec<Vec<f32>> = layer.params().map(|info| of_param(&info.name)).collect();
    let outputs: Vec<String> = layer.outputs().map(|info| info.name.clone()).collect();
    let gradients: Vec<Vec<f32>> = outputs.iter().map(|name| numbers(&output_gradient(name))).collect();
    fn views(all: &[Vec<f32>]) -> Vec<&[f32]> {
        all.iter().map(Vec::as_slice).collect()
    }
    let pass = layer.forward(&views(&inputs), &views(&params), mode).expect("a forward pass");
    let mut found: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for (index, name) in outputs.iter().enumerate() {
        found.insert(name.clone(), layer.output(index).to_vec());
    }
    let gradients: Vec<Option<&[f32]>> = gradients.iter().map(|gradient| Some(&gradient[..])).collect();
    layer.backward(pass, &gradients).expect("a backward pass");
    for (index, info) in layer.inputs().enumerate() {
        let gradient = layer.input_gradient(index).map_or(vec![0.0; info.num_elements()], <[f32]>::to_vec);
        found.insert(format!("grad.input.{}", info.name), gradient);
    }
    for (index, info) in layer.params().enumerate() {
        let gradient = layer.param_gradient(index).map_or(vec![0.0; info.num_elements()], <[f32]>::to_vec);
        found.insert(format!("grad.param.{}", info.name), gradient);
    }
    found
}

fn engine(name: &str) {
    let case = case(name);
    let compiled = compile(&untrained(&case));
    let given = features(&compiled.infer);
    let names: Vec<String> = given.iter().map(|input| compiled.infer.inputs[input.index()].name.clone()).collect();
    for world in cases::worlds(worlds(2)) {
        let dataset = dataset_without(&compiled, &world, &given);
        let mut one = layer(&case, &dataset, &names, 1);
        let mut two = layer(&case, &dataset, &names, 2);
        let training = (&compiled.model.flow, Mode::Training { seed: SEED, step: STEP });
        for (forward, mode) in [training, (&compiled.infer, Mode::Evaluation), training] {
            let what = format!("{name}, world {}, {mode:?}", world.seed);
            let oracle = Oracle::new(forward, &world);
            let found = run(&mut one, &oracle, mode);
            for (result, exact) in oracle.results() {
                let numbers: Vec<f64> = found[&result].iter().map(|&x| f64::from(x)).collect();
                assert_close(&format!("{what}: {result}"), &numbers, &exact, TOLERANCE);
            }
            let bits = |all: &BTreeMap<String, Vec<f32>>| -> Vec<Vec<u32>> {
                all.values().map(|numbers| numbers.iter().map(|x| x.to_bits()).collect()).collect()
            };
            assert_eq!(bits(&found), bits(&run(&mut two, &oracle, mode)), "{what}: one thread and two");
        }
    }
}

mod on_the_engine {
    hgnnc_model_tests::test_each_case!(super::engine);
}

#[test]
fn the_same_programs_run_as_ptx() {
    for name in ["han", "rgcn", "gat"] {
        let case = case(name);
        let compiled = compile(&untrained(&case));
        let given = features(&compiled.infer);
        let names: Vec<String> = given.iter().map(|input| compiled.infer.inputs[input.index()].name.clone()).collect();
        let world = World::library();
        let job = LayerJob {
            given: names,
            device: Device::PtxInterp,
            graph_cache: None,
            threads: 1,
            ..LayerJob::new("layer.hgnn", untrained(&case))
        };
        let mut layer =
            Layer::new(&job, &Arc::new(dataset_without(&compiled, &world, &given)), &mut Silent).expect("a layer");
        let training = (&compiled.model.flow, Mode::Training { seed: SEED, step: STEP });
        for (forward, mode) in [training, (&compiled.infer, Mode::Evaluation)] {
            let oracle = Oracle::new(forward, &world);
            let found = run(&mut layer, &oracle, mode);
            for (result, exact) in oracle.results() {
                let numbers: Vec<f64> = found[&result].iter().map(|&x| f64::from(x)).collect();
                assert_close(&format!("{name}, {mode:?}: {result}"), &numbers, &exact, TOLERANCE);
            }
        }
    }
}

#[test]
fn every_case_draws_masks_or_says_so() {
    for case in CASES {
        let compiled = compile(&untrained(case));
        let given = features(&compiled.infer);
        let dataset = dataset_without(&compiled, &World::library(), &given);
        let names: Vec<String> = given.iter().map(|input| compiled.infer.inputs[input.index()].name.clone()).collect();
        assert_eq!(layer(case, &dataset, &names, 1).has_dropout(), case.body.contains("dropout"), "{}", case.name);
    }
}
