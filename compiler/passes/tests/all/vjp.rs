//! Vector-Jacobian products of random programs.
//!
//! The gradients by parameters and inputs, given those of all results, are those of the scalar `Σ gradient · result`, for
//! which inputs are parameters as well. That scalar's gradients are checked against differences in `gradients.rs`. Here
//! the two are compared after all passes too, and the kernels do what their program says.

use hgnnc_interp::random_program::{random_program_with_metapaths, seeds};
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::dataflow::{Binding, Init, ParamDecl};
use hgnnc_ir::{BinaryOp, DType, Dataflow, Dim, Input, Op, OutputKind, Param, Phase, Reduce, Space, Value, random};
use hgnnc_kernel_ir::kernel::{Contents, Source};
use hgnnc_passes::{Leaf, LeafGradient, PassCx, PassManager, differentiate, vjp};

use crate::random::sizes;

/// The dense inputs of vertices, as given ones.
fn give_inputs(flow: &mut Dataflow) -> Vec<Input> {
    let mut given = vec![];
    for (index, decl) in flow.inputs.iter_mut().enumerate() {
        let dense = decl.ty.dtype == DType::F32 && !decl.ty.is_sparse();
        if dense && matches!(decl.ty.space, Space::Vertices(_)) {
            decl.binding = Binding::Given(decl.name.clone());
            given.push(Input::new(index));
        }
    }
    given
}

/// The program with its vector-Jacobian product, by given inputs and all parameters.
fn with_gradients(seed: u64) -> (Dataflow, Dataflow, Vec<LeafGradient>, Bindings) {
    let (mut forward, mut bindings) = random_program_with_metapaths(seed);
    let given = give_inputs(&mut forward);
    let leaves = given.into_iter().map(Leaf::Input);
    let leaves: Vec<Leaf> = leaves.chain((0..forward.params.len()).map(|i| Leaf::Param(Param::new(i)))).collect();
    let mut flow = forward.clone();
    let gradients = vjp(&mut flow, &leaves).expect("a gradient");
    let key = random::mask_key(seed, 1, 1);
    for (index, decl) in flow.inputs.iter().enumerate() {
        if decl.name.starts_with("grad.output.") {
            let (rows, width) = (bindings.rows(decl.ty.space), bindings.width(&decl.ty.dims));
            let at = |row: usize, column: usize| random::uniform(key, (1000 * index + 10 * row + column) as u64) - 0.5;
            bindings.inputs.insert(Input::new(index), Tensor::from_fn(rows, width, at));
        }
    }
    (forward, flow, gradients, bindings)
}

/// `Σ gradient · result` of a forward program in which given inputs are parameters, and the parameter of each leaf.
fn scalar(forward: &Dataflow, joint: &Dataflow, bindings: &mut Bindings) -> (Dataflow, Vec<(Leaf, Param)>) {
    let mut flow = forward.with_tables_of("scalar");
    flow.inputs.clone_from(&joint.inputs);
    let mut leaves: Vec<(Leaf, Param)> =
        (0..flow.params.len()).map(|index| (Leaf::Param(Param::new(index)), Param::new(index))).collect();
    let mut made: Vec<Value> = vec![];
    for value in forward.handles() {
        let data = forward.value(value);
        let args: Vec<Value> = data.args.iter().map(|arg| made[arg.index()]).collect();
        let op = match data.op {
            Op::Input(input) if matches!(forward.inputs[input.index()].binding, Binding::Given(_)) => {
                let known = leaves.iter().find(|(leaf, _)| *leaf == Leaf::Input(input)).map(|(_, param)| *param);
                let Space::Vertices(vertex) = data.ty.space else { unreachable!("given inputs are of vertices") };
                let dims = [vec![Dim::Count(vertex)], data.ty.dims.clone()].concat();
                let param = known.unwrap_or_else(|| {
                    let name = forward.inputs[input.index()].name.clone();
                    let param = flow.declare_param(ParamDecl::new(name, dims, Init::Constant(0.0), false));
                    let numbers = bindings.inputs[&input].data.clone();
                    bindings.params.insert(param, Tensor::new(1, numbers.len(), numbers));
                    leaves.push((Leaf::Input(input), param));
                    param
                });
                let table = flow.add(Op::Param(param), &[]);
                made.push(flow.add(Op::Rows, &[table]));
                continue;
            }
            ref other => other.clone(),
        };
        made.push(flow.add(op, &args));
    }
    let mut total = flow.constant(0.0);
    for output in &forward.outputs {
        let OutputKind::Result(name) = &output.kind else { continue };
        let seed =
            flow.inputs.iter().position(|decl| decl.name == format!("grad.output.{name}")).expect("its gradient");
        let seed = flow.add(Op::Input(Input::new(seed)), &[]);
        let mut sum = flow.binary(BinaryOp::Mul, made[output.value.index()], seed);
        let ty = flow.ty(sum).clone();
        if !ty.dims.is_empty() {
            sum = flow.reduce_trailing(Reduce::Sum, ty.dims.len(), sum);
        }
        if !ty.is_unit() {
            sum = flow.add(Op::ReduceSpace(Reduce::Sum), &[sum]);
        }
        total = flow.binary(BinaryOp::Add, total, sum);
    }
    flow.output("loss", total);
    (flow, leaves)
}

fn close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9 * expected.abs().max(1.0)
}

#[test]
fn gradients_of_results_are_those_of_their_weighted_sum() {
    for seed in seeds(8) {
        let (forward, joint, gradients, mut bindings) = with_gradients(seed);
        let (mut scalar, leaves) = scalar(&forward, &joint, &mut bindings);
        let loss = scalar.result("loss").expect("a loss");
        let wrt: Vec<Param> = leaves.iter().map(|(_, param)| *param).collect();
        let expected = differentiate(&mut scalar, loss, &wrt);
        let exact = run(&scalar, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut programs = vec![("as written", joint.clone())];
        for (number, sizes) in sizes(&bindings).into_iter().enumerate() {
            let passes = PassManager::default();
            let mut flow = forward.clone();
            let mut cx = PassCx::new(sizes);
            passes.run_forward(&mut flow, &mut cx);
            let leaves: Vec<Leaf> = gradients.iter().map(|gradient| gradient.leaf).collect();
            // Passes may find that a result does not depend on a leaf.
            let found = vjp(&mut flow, &leaves).expect("a gradient");
            assert!(found.iter().all(|gradient| gradients.contains(gradient)), "seed {seed}");
            passes.run_joint(&mut flow, &mut cx, || None);
            programs.push((["without sizes", "with sizes", "many vertices", "few vertices"][number], flow));
        }
        for (what, flow) in &programs {
            let found = run(flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}, {what}: {error}"));
            for (leaf, param) in &leaves {
                let exact = expected.iter().find(|(of, _)| of == param).map(|(_, gradient)| &exact[*gradient].data);
                let gradient = gradients.iter().find(|gradient| gradient.leaf == *leaf);
                let value = gradient.and_then(|gradient| flow.result(&gradient.result));
                let (Some(value), Some(exact)) = (value, exact) else {
                    let zero = exact.is_none_or(|exact| exact.iter().all(|x| x.abs() < 1e-12));
                    assert!(zero && value.is_none(), "seed {seed}, {what}: {leaf:?}");
                    continue;
                };
                for (f, e) in found[value].data.iter().zip(exact) {
                    assert!(close(*f, *e), "seed {seed}, {what}: {leaf:?} has {f} instead of {e}\n{flow}");
                }
            }
        }
    }
}

/// The first part of a run needs no gradient, and computes all results but gradients; the kernels of both parts together
/// do what the program says.
#[test]
fn kernels_pause_between_the_passes() {
    let mut paused = 0;
    for seed in seeds(120) {
        let (_, joint, _, bindings) = with_gradients(seed);
        let kernels = hgnnc_fusion::lower(&joint).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let Some(second) = kernels.second_part() else { continue };
        paused += 1;
        let (first, rest) = kernels.launches.split_at(second);
        let is_gradient = |buffer: hgnnc_kernel_ir::kernel::Buffer| match kernels.buffer(buffer).contents {
            Contents::Input(input) => kernels.tables.inputs[input.index()].name.starts_with("grad.output."),
            Contents::Param(_) | Contents::State(..) | Contents::Computed => false,
        };
        for kernel in kernels.prelude.iter().chain(first).flat_map(|launch| &launch.kernels) {
            assert!(!kernel.reads().into_iter().any(is_gradient), "seed {seed}:\n{kernels}");
        }
        // Invariants of the backward pass are computed once.
        let phases = first.iter().flat_map(|launch| &launch.kernels).map(|kernel| kernel.phase);
        assert!(phases.into_iter().all(|phase| phase == Phase::Forward), "seed {seed}:\n{kernels}");
        let late: Vec<_> = rest.iter().flat_map(|launch| &launch.kernels).flat_map(|kernel| kernel.writes()).collect();
        for output in &kernels.outputs {
            let OutputKind::Result(name) = &output.kind else { panic!("a layer updates nothing") };
            if let (false, Source::Buffer(buffer)) = (name.starts_with("grad."), output.source) {
                assert!(!late.contains(&buffer), "seed {seed}: `{name}` comes after the pause\n{kernels}");
            }
        }
        let exact = run(&joint, &bindings).expect("bound");
        let found =
            hgnnc_interp::kernels::run(&kernels, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for output in &joint.outputs {
            let found = found.output(&output.kind).expect("an output");
            for (f, e) in found.data.iter().zip(&exact[output.value].data) {
                assert!(close(*f, *e), "seed {seed}: {:?} has {f} instead of {e}", output.kind);
            }
        }
    }
    assert!(paused > 100, "{paused} programs pause");
}

/// Values that depend on a given input are computed by each run.
#[test]
fn nothing_of_a_given_input_is_invariant() {
    for seed in seeds(40) {
        let (_, joint, _, _) = with_gradients(seed);
        let kernels = hgnnc_fusion::lower(&joint).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let is_given = |buffer: hgnnc_kernel_ir::kernel::Buffer| match kernels.buffer(buffer).contents {
            Contents::Input(input) => matches!(kernels.tables.inputs[input.index()].binding, Binding::Given(_)),
            Contents::Param(_) | Contents::State(..) | Contents::Computed => false,
        };
        let reads = kernels.prelude.iter().flat_map(|launch| &launch.kernels).flat_map(|kernel| kernel.reads());
        assert!(!reads.into_iter().any(is_given), "seed {seed}:\n{kernels}");
    }
}
