//! Small kernels and the loops that they become, to be read: `cases/*.ir`. The comment that a case begins with says what
//! to look for. All functions are made that can be.

use hgnnc_ir::kernel::{parse, verify};
use hgnnc_ir::loops;
use hgnnc_machine::{CodeMode, KernelFeatures, SimdLevel};
use hgnnc_schedule::{Options, schedule};

#[test]
fn texts() {
    insta::glob!("cases", "*.ir", |path| {
        let text = std::fs::read_to_string(path).expect("the case is readable");
        let program = parse(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        if let Err(broken) = verify(&program) {
            panic!("{}: {broken:#?}", path.display());
        }
        let options = Options::new(CodeMode::Native, KernelFeatures::ALL, SimdLevel::Base);
        let loops = schedule(program, &options, &Default::default());
        assert_eq!(loops::verify(&loops), Ok(()), "{}", path.display());
        let printed = loops::print(&loops);
        insta::with_settings!({ omit_expression => true }, { insta::assert_snapshot!(format!("{text}\n{printed}")) });
    });
}
