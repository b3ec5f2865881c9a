//! Compute-bound beside memory-bound kernels in a launch.

use hgnnc_fusion::{FusionRule, KERNEL_PASSES, KernelCx, LoweringOptions, kernel_passes, lower_with};
use hgnnc_ir::dataflow::{Binding, Init, InputDecl, Matrix, ParamDecl, VertexTypeDecl};
use hgnnc_ir::sizes::SizeInfo;
use hgnnc_ir::*;
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_machine::Machine;

/// A sum of rows of one type, and, `with_product`, the product of those of another with a large weight.
fn program(with_product: bool) -> Program {
    let mut flow = Dataflow::new("case");
    let mut input = |name: &str| {
        let vertex = VertexType::new(flow.vertex_types.len());
        flow.vertex_types.push(VertexTypeDecl::new(name.into(), name.into()));
        let ty = Type::fixed(Space::Vertices(vertex), &[512]);
        let input = flow.declare_input(InputDecl {
            name: name.into(),
            ty,
            binding: Binding::Features(vertex, Matrix::Features),
        });
        flow.add(Op::Input(input), &[])
    };
    let (paper, author) = (input("Paper"), input("Author"));
    let param = |flow: &mut Dataflow, name: &str, dims: &[usize]| {
        let dims = dims.iter().map(|&extent| Dim::Fixed(extent)).collect();
        let decl = ParamDecl::new(name.into(), dims, Init::Constant(0.0), false);
        let param = flow.declare_param(decl);
        flow.add(Op::Param(param), &[])
    };
    let bias = param(&mut flow, "b", &[512]);
    let sum = flow.binary(BinaryOp::Add, author, bias);
    flow.output("sum", sum);
    let other = match with_product {
        true => {
            let weight = param(&mut flow, "w", &[512, 512]);
            flow.add(Op::MatMul { batch: 0 }, &[paper, weight])
        }
        false => flow.binary(BinaryOp::Add, paper, bias),
    };
    flow.output("other", other);
    lower_with(&flow, LoweringOptions::GPU).unwrap_or_else(|error| panic!("{error}"))
}

/// Lines of explanations, and the kernels after the pass.
fn interleaved(mut program: Program, vertices: u64, machine: &str) -> (Vec<String>, Program) {
    let sizes = SizeInfo { vertices: vec![vertices; 2], ..SizeInfo::default() };
    let machine = Some(Machine::sheet(machine).expect("a machine that is known"));
    let mut cx = KernelCx { sizes: Some(sizes), machine, ..KernelCx::default() };
    let last = KERNEL_PASSES.last().expect("the pass");
    assert_eq!(last.rule, FusionRule::Interleave);
    kernel_passes::run(std::slice::from_ref(last), &mut program, &mut cx);
    (cx.explain, program)
}

#[test]
fn compute_and_memory_bound_kernels_are_interleaved_where_a_gain_is_predicted() {
    let before = program(true);
    assert_eq!(before.launches.len(), 1, "{before}");
    let (lines, after) = interleaved(before.clone(), 1_000_000, "sm_90");
    let text = after.to_string();
    assert!(text.contains("launch interleave 1 {\n    gemm"), "{text}");
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with("kernels: k0 to k1: compute-bound and memory-bound blocks interleaved ("), "{line}");
    assert!(hgnnc_kernel_ir::kernel::verify(&after).is_ok());
    // Printing and parsing gives the same program.
    assert_eq!(hgnnc_kernel_ir::kernel::parse(&after.to_string()).as_ref(), Ok(&after));
}

#[test]
fn kernels_run_back_to_back_where_interleaving_gains_nothing() {
    // The launch itself takes longer than either.
    let small = program(true);
    let (lines, after) = interleaved(small.clone(), 100, "sm_90");
    assert_eq!((lines.len(), &after), (1, &small), "{lines:?}");
    assert!(lines[0].contains("back to back"), "{lines:?}");
    // Memory limits both.
    let alike = program(false);
    assert_eq!(interleaved(alike.clone(), 1_000_000, "sm_90"), (vec![], alike));
}
