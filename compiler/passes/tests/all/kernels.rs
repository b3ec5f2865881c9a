//! Kernels of random programs against the dataflow interpreter.

use hgnnc_analysis::memory::arena_bytes;
use hgnnc_fusion::{
    DisabledFusions, FusionRule, KernelCx, LoweringOptions, SoftmaxForm, group, lower, lower_unfused, lower_with, store,
};
use hgnnc_interp::Bindings;
use hgnnc_interp::random_program::{random_program, random_program_with_metapaths, seeds};
use hgnnc_ir::{Dataflow, OutputKind};
use hgnnc_kernel_ir::kernel::{self, Program};
use hgnnc_passes::rematerialize::rematerialize;
use hgnnc_passes::{PassCx, PassManager, SizeInfo};
use rustc_hash::FxHashSet;

use crate::random::{joint_of, joint_program, sizes};

/// The kernels of a program, once they are known to keep their rules and to be read back as they are.
fn kernels(flow: &Dataflow, what: &str) -> Program {
    kernels_with(flow, SoftmaxForm::InPasses, what)
}

fn kernels_with(flow: &Dataflow, softmax: SoftmaxForm, what: &str) -> Program {
    let program =
        lower_with(flow, LoweringOptions::CPU.with_softmax(softmax)).unwrap_or_else(|error| panic!("{what}: {error}"));
    if softmax == SoftmaxForm::InPasses {
        assert_eq!(Ok(&program), lower(flow).as_ref(), "what is done where no sizes are known");
    }
    if let Err(broken) = kernel::verify(&program) {
        panic!("{what}: {broken:#?}\n{program}");
    }
    let text = kernel::print(&program);
    let read = kernel::parse(&text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert!(read == program, "{what} is read back as\n{read}\ninstead of\n{text}");
    program
}

/// Kernels sum in the order of the dataflow oracle, except that products are fused into sums.
fn agree(flow: &Dataflow, bindings: &Bindings, what: &str) -> Program {
    let expected = hgnnc_interp::run(flow, bindings).unwrap_or_else(|error| panic!("{what}: {error}"));
    let program = kernels(flow, what);
    same(flow, &expected, &program, bindings, what);
    // Rows of three edges are long.
    let pieces = Some(kernel::Pieces { least: 2, most: usize::MAX });
    same(flow, &expected, &program.clone().with_pieces(pieces), bindings, &format!("{what}, in pieces"));
    let online = kernels_with(flow, SoftmaxForm::InOnePass, what);
    if online != program {
        same(flow, &expected, &online, bindings, &format!("{what}, in one pass"));
        same(flow, &expected, &online.with_pieces(pieces), bindings, &format!("{what}, in one pass over pieces"));
    }
    program
}

fn same(flow: &Dataflow, expected: &hgnnc_interp::Evaluation, program: &Program, bindings: &Bindings, what: &str) {
    let found = hgnnc_interp::kernels::run(program, bindings).unwrap_or_else(|error| panic!("{what}: {error}"));
    for output in &flow.outputs {
        let exact = &expected[output.value];
        let tensor = found.output(&output.kind).expect("kernels have the outputs of their program");
        assert_eq!((tensor.rows, tensor.width), (exact.rows, exact.width), "{what}: {:?}", output.kind);
        for (x, y) in exact.data.iter().zip(&tensor.data) {
            let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y || (x.is_nan() && y.is_nan());
            assert!(close, "{what}: {:?} is {y} instead of {x}\n{flow}\n{program}", output.kind);
        }
    }
}

#[test]
fn kernels_of_random_programs_compute_the_same() {
    for seed in seeds(200) {
        let (flow, bindings) = random_program(seed);
        agree(&flow, &bindings, &format!("seed {seed}"));
        let (joint, bindings) = joint_program(seed);
        agree(&joint, &bindings, &format!("seed {seed}, joint"));
        for sizes in sizes(&bindings) {
            let mut joint = joint.clone();
            PassManager::default().run_joint(&mut joint, &mut PassCx::new(sizes), || None);
            agree(&joint, &bindings, &format!("seed {seed}, optimised"));
        }
    }
}

#[test]
fn kernels_of_factored_metapaths_compute_the_same() {
    for seed in seeds(100) {
        let program = random_program_with_metapaths(seed);
        agree(&program.0, &program.1, &format!("seed {seed}"));
        let (joint, bindings) = joint_of(program);
        agree(&joint, &bindings, &format!("seed {seed}, joint"));
        for sizes in sizes(&bindings) {
            let mut joint = joint.clone();
            PassManager::default().run_joint(&mut joint, &mut PassCx::new(sizes), || None);
            agree(&joint, &bindings, &format!("seed {seed}, optimised"));
        }
    }
}

/// Each fusion rule can be disabled: kernels compute the same without it, for a processor and for a graphics
/// processor.
#[test]
fn kernels_compute_the_same_without_any_fusion_rule() {
    let mut differ = vec![0; FusionRule::ALL.len()];
    for seed in seeds(60) {
        let (mut flow, bindings) =
            if seed % 4 == 0 { joint_of(random_program_with_metapaths(seed)) } else { joint_program(seed) };
        PassManager::default().run_joint(&mut flow, &mut PassCx::new(None), || None);
        let expected = hgnnc_interp::run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for options in [LoweringOptions::CPU, LoweringOptions::GPU] {
            let all = lower_with(&flow, options).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            for rule in FusionRule::ALL {
                let what = format!("seed {seed}, without {}", rule.name());
                let without = options.without(DisabledFusions::NONE.with(rule));
                let program = lower_with(&flow, without).unwrap_or_else(|error| panic!("{what}: {error}"));
                differ[rule as usize] += usize::from(program != all);
                same(&flow, &expected, &program, &bindings, &what);
            }
        }
    }
    for rule in FusionRule::ALL {
        // Interleaving needs sizes and a machine, another order sizes and rare runs, only updates of large weights are
        // fused, and tiled products have more columns than random ones.
        let elsewhere = matches!(
            rule,
            FusionRule::Interleave | FusionRule::MemoryOrder | FusionRule::OptimizerUpdate | FusionRule::GemmEpilogue
        );
        let any = differ[rule as usize] > 0 || elsewhere;
        assert!(any, "disabling `{}` changes no program", rule.name());
    }
}

/// An order in which fewer values are alive at a time: the same values, and never more memory.
#[test]
fn kernels_compute_the_same_in_an_order_that_stores_less() {
    let (mut reordered, mut of_metapaths) = (0, false);
    for seed in seeds(80) {
        of_metapaths = !of_metapaths;
        let (mut flow, bindings) =
            if of_metapaths { random_program_with_metapaths(seed) } else { random_program(seed) };
        PassManager::default().run_joint(&mut flow, &mut PassCx::new(None), || None);
        let expected = hgnnc_interp::run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for sizes in sizes(&bindings).into_iter().flatten() {
            let options = LoweringOptions::CPU.for_rare_runs().without(DisabledFusions::NONE);
            // Without sizes, kernels stay in their order.
            let lower = |ordered: bool| {
                let mut cx = KernelCx { sizes: ordered.then(|| sizes.clone()), ..KernelCx::new(options) };
                lower_unfused(&flow, &FxHashSet::default(), &mut cx)
                    .unwrap_or_else(|error| panic!("seed {seed}: {error}"))
            };
            let (ordered, plain) = (lower(true), lower(false));
            same(&flow, &expected, &ordered, &bindings, &format!("seed {seed}, in order"));
            assert!(arena_bytes(&ordered, &sizes) <= arena_bytes(&plain, &sizes), "seed {seed}");
            let kernels = |program: &Program| -> Vec<String> {
                program.kernels().map(|kernel| format!("{:?}", kernel.writes())).collect()
            };
            reordered += usize::from(kernels(&ordered) != kernels(&plain));
        }
    }
    assert!(reordered > 10, "{reordered} programs in another order");
}

/// Disabling a single fusion splits one kernel, and no other.
#[test]
fn kernels_compute_the_same_where_one_is_unfused() {
    for seed in seeds(30) {
        let (mut flow, bindings) = joint_program(seed);
        PassManager::default().run_joint(&mut flow, &mut PassCx::new(None), || None);
        let expected = hgnnc_interp::run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let all = lower(&flow).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut groups = group(&flow, LoweringOptions::CPU, &FxHashSet::default());
        store(&flow, &mut groups);
        for (name, values) in groups.fused(&flow) {
            let what = format!("seed {seed}, `{name}` unfused");
            let program = lower_unfused(&flow, &values, &mut KernelCx::new(LoweringOptions::CPU))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(program.kernels().count() >= all.kernels().count(), "{what}");
            assert!(program.buffers.iter().any(|buffer| buffer.name == name), "{what}: it has its name in both");
            same(&flow, &expected, &program, &bindings, &what);
        }
    }
}

#[test]
fn what_is_recomputed_is_the_same_under_any_budget() {
    let mut recomputed = 0;
    for seed in seeds(60) {
        let (joint, bindings) = joint_program(seed);
        let vertices = bindings.num_vertices.iter().map(|&n| 100 * n as u64).collect();
        let edges = bindings.edges.iter().map(|e| 100 * e.len() as u64).collect();
        let sizes = SizeInfo { vertices, edges, ..SizeInfo::default() };
        for only in [true, false] {
            for budget in [None, Some(0)] {
                let mut flow = joint.clone();
                let mut cx = PassCx { sizes: Some(sizes.clone()), arena_budget: budget, ..PassCx::default() };
                if only {
                    recomputed += usize::from(rematerialize(&mut flow, &mut cx).0);
                } else {
                    PassManager::default().run_joint(&mut flow, &mut cx, || None);
                }
                let what = format!("seed {seed}, budget {budget:?}, this pass only: {only}");
                let program = agree(&flow, &bindings, &what);
                let before = arena_bytes(&kernels(&joint, &what), &sizes);
                assert!(!only || arena_bytes(&program, &sizes) <= before, "{what}: the arena has not grown");
                no_edge_values(&flow, &program);
            }
        }
    }
    assert!(recomputed > seeds(60).count() * 2 / 3, "{recomputed} programs are changed");
}

/// Edge values take no memory unless they are results.
fn no_edge_values(flow: &Dataflow, program: &Program) {
    for decl in program.buffers.iter().filter(|decl| decl.contents == kernel::Contents::Computed) {
        let result = OutputKind::Result(decl.name.clone());
        let edges = matches!(decl.ty.space, hgnnc_ir::Space::Edges(_));
        assert!(!edges || flow.outputs.iter().any(|output| output.kind == result), "{}", decl.name);
    }
}

#[test]
fn edge_values_are_stored_only_where_they_are_results() {
    for seed in 0..200 {
        let (flow, _) = joint_program(seed);
        let program = kernels(&flow, &format!("seed {seed}"));
        no_edge_values(&flow, &program);
    }
}
