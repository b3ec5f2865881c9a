//! The levels of three miniature models (`tests/cases/levels/*.hgnn`) that the command shows for the machine it runs on
//! only: the typed model, loops, and Cranelift IR, here for a fixed processor. The other levels are snapshots of the
//! command's tests.

use std::fs;
use std::path::Path;

use hgnnc_driver::{CpuOptions, LowerOptions, analyze, compile_cpu, lower, prepare};
use hgnnc_machine::{CodeMode, KernelFeatures, SimdLevel};

fn levels(name: &str) {
    let file = format!("{name}.hgnn");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/levels").join(&file);
    let text = fs::read_to_string(&path).expect("a readable model");
    let mut model = analyze(&file, &text).model.expect("a model without errors");
    let options = LowerOptions::default();
    prepare(&mut model, &options.disabled).expect("nothing is disabled");
    let mut lowered = lower(&model, &options).expect("a model with kernels");
    // A processor without multiply-adds, so that the text is the same everywhere.
    let simd = SimdLevel::Base;
    compile_cpu(&mut lowered, None, &CpuOptions::new(CodeMode::Native, KernelFeatures::ALL, simd));
    let loops = &lowered.executable.cpu.as_ref().expect("code is generated").infer.loops;
    let clif = hgnnc_codegen_cpu::listing(&[(name, loops)], simd).expect("a processor for which there is code");
    // The calling convention is the host's.
    let conventions = ["system_v", "windows_fastcall", "apple_aarch64"];
    let clif = conventions.iter().fold(clif, |text, name| text.replace(name, "host"));
    let clif = abridged(&clif);
    let text = hgnnc_kernel_ir::loops::print(loops);
    assert_eq!(hgnnc_kernel_ir::loops::parse(&text).as_ref(), Ok(&***loops), "{name}");
    let texts = [("hir", hgnnc_driver::hir::print(&model.typed)), ("loops", text), ("clif", clif)];
    for (level, text) in texts {
        insta::with_settings!({ snapshot_suffix => format!("{name}.{level}"), omit_expression => true }, {
            insta::assert_snapshot!("level", text);
        });
    }
}

/// The functions of a listing, those of wide rows in part: their code is unrolled.
fn abridged(clif: &str) -> String {
    /// Lines of a function.
    const MOST: usize = 400;
    let mut text = String::new();
    for function in clif.split_inclusive("\n}\n") {
        let lines: Vec<&str> = function.lines().collect();
        lines.iter().take(MOST).for_each(|line| text.extend([line, "\n"]));
        if let Some(more) = lines.len().checked_sub(MOST + 1) {
            text.push_str(&format!("; and {} more lines\n", more + 1));
        }
    }
    text
}

#[test]
fn han() {
    levels("han");
}

#[test]
fn rgcn_over_a_family() {
    levels("rgcn_family");
}

#[test]
fn graph_sage_on_batches() {
    levels("sage_batches");
}
