//! Small kernels and the loops that they become, to be read: `cases/*.ir`. The comment that a case begins with says what
//! to look for. All functions are made that can be.

use hgnnc_kernel_ir::kernel::{parse, verify};
use hgnnc_kernel_ir::loops;
use hgnnc_machine::{CodeMode, KernelFeatures, SimdLevel};
use hgnnc_schedule::{Options, schedule};

mod files {
    include!(concat!(env!("OUT_DIR"), "/cases.rs"));
}

fn case(name: &str) {
    let text = std::fs::read_to_string(format!("tests/cases/{name}")).expect("the case is readable");
    let program = parse(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
    if let Err(broken) = verify(&program) {
        panic!("{name}: {broken:#?}");
    }
    let options = Options::new(CodeMode::Native, KernelFeatures::ALL, SimdLevel::Base);
    let loops = schedule(program, &options, &Default::default());
    assert_eq!(loops::verify(&loops), Ok(()), "{name}");
    let printed = loops::print(&loops);
    let parsed = loops::parse(&printed).unwrap_or_else(|error| panic!("{name}: {error}\n{printed}"));
    assert_eq!(parsed, *loops, "{name}");
    insta::with_settings!({ omit_expression => true, snapshot_suffix => name }, {
        insta::assert_snapshot!("texts", format!("{text}\n{printed}"))
    });
}
