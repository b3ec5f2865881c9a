//! Three miniature models at every level, from the source to Cranelift IR and PTX: one snapshot for each, in
//! `snapshots/goldens__MODEL@LEVEL.snap`. A change of a pass shows here what it does to whole models.

use std::fs;
use std::path::Path;

use hgnnc_driver::{CpuOptions, LowerOptions, SizeInfo, analyze, compile_cpu, lower, prepare, ptx};
use hgnnc_executable::gpu::Target;
use hgnnc_ir::kernel;
use hgnnc_ir::print::print;
use hgnnc_machine::{CodeMode, KernelFeatures, SimdLevel};

/// Rows of each vertex type, and edges of each semantic graph.
const SIZES: (u64, u64) = (1000, 5000);

fn golden(name: &str) {
    let file = format!("{name}.hgnn");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens").join(&file);
    let text = fs::read_to_string(&path).expect("a readable model");
    let analysis = analyze(&file, &text);
    let mut model = analysis.model.expect("a model without errors");
    let mut levels: Vec<(&str, String)> = vec![
        ("1-ast", hgnnc_driver::format(&analysis.module, &text)),
        ("2-hir", hgnnc_driver::hir::print(&model.typed)),
    ];
    let options = LowerOptions::default();
    prepare(&mut model, &options.disabled).expect("nothing is disabled");
    let (vertices, edges) = SIZES;
    let own = |derived: &dyn Fn(usize) -> bool, all: usize| (0..all).filter(|&i| !derived(i)).count();
    let flow = &model.flow;
    let types = own(&|i| flow.vertex_types[i].rows != hgnnc_ir::VertexRows::Dataset, flow.vertex_types.len());
    let graphs = own(&|i| flow.graphs[i].derived.is_some(), flow.graphs.len());
    let mut sizes = SizeInfo { vertices: vec![vertices; types], edges: vec![edges; graphs], ..SizeInfo::default() };
    sizes.derive(flow);
    let options = LowerOptions { sizes: Some(sizes.clone()), ..options };
    let lowered = lower(&model, &options).expect("a model with kernels");
    let executable = &lowered.executable;
    levels.push(("3-dataflow", print(&lowered.dataflow)));
    levels.extend(lowered.joint.iter().map(|joint| ("4-joint", print(joint))));
    levels.push(("5-optimized", print(executable.train.as_ref().unwrap_or(&executable.infer))));
    let kernels = executable.kernels.train.as_ref().unwrap_or(&executable.kernels.infer);
    levels.push(("6-kernels", kernel::print(kernels)));
    // Of a processor without multiply-adds, so that the text is the same everywhere.
    let cpu = CpuOptions::new(CodeMode::Native, KernelFeatures::ALL, SimdLevel::Base);
    let cpu = compile_cpu(&lowered, Some(&sizes), &cpu);
    let loops = &cpu.train.as_ref().unwrap_or(&cpu.infer).loops;
    levels.push(("7-loops", hgnnc_ir::loops::print(loops)));
    let clif =
        hgnnc_codegen_cpu::listing(&[(name, loops)], SimdLevel::Base).expect("a processor for which there is code");
    // The calling convention is the host's.
    let conventions = ["system_v", "windows_fastcall", "apple_aarch64"];
    levels.push(("8-clif", conventions.iter().fold(clif, |text, name| text.replace(name, "host"))));
    let module =
        ptx(kernels, Target::SM_80, lowered.train_sizes.as_ref(), &analysis.sources).expect("kernels with PTX");
    levels.push(("9-ptx", module.text));
    for (level, text) in levels {
        insta::with_settings!({ snapshot_suffix => level, omit_expression => true, prepend_module_to_snapshot => true }, {
            insta::assert_snapshot!(name, text);
        });
    }
}

#[test]
fn han() {
    golden("han");
}

#[test]
fn rgcn_with_a_family() {
    golden("rgcn");
}

#[test]
fn graphsage_on_batches() {
    golden("sage");
}
