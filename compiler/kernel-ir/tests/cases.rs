//! Case files of kernel programs (`kernel`) and of loops (`loops`). `round_trip`: canonical text that prints unchanged.
//! `verify`: `; error: …` stands on the line of each violation, and there are no others. `parse`: `; error: column: …` on
//! the line of the error.

use hgnnc_ir::Violation;
use hgnnc_kernel_ir::{kernel, loops};

/// The text of a case file.
fn read(folder: &str, name: &str) -> String {
    let path = format!("{}/tests/cases/{folder}/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("the case is readable")
}

/// A text without the comments that it begins with.
fn body(text: &str) -> String {
    text.split_inclusive('\n').skip_while(|line| line.starts_with(';')).collect()
}

/// (line, message) of every `; error: …`.
fn expectations(text: &str) -> Vec<(usize, String)> {
    let of_line = |(line, content): (usize, &str)| {
        content.split("; error: ").skip(1).map(|message| (line + 1, message.trim().to_owned())).collect::<Vec<_>>()
    };
    text.lines().enumerate().flat_map(of_line).collect()
}

/// The violations are those that the text expects, each on its line.
fn expect_all<P>(name: &str, text: &str, violations: Vec<Violation<P>>, line: impl Fn(&P) -> usize) {
    let mut found: Vec<(usize, String)> =
        violations.into_iter().map(|broken| (line(&broken.place), broken.message)).collect();
    let mut expected = expectations(text);
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{name}");
}

/// Canonical text prints as it stands.
mod kernel_round_trip {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/kernel_round_trip.rs"));
    }

    fn case(name: &str) {
        let text = read("kernel/round_trip", name);
        let program = kernel::parse(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
        let printed = kernel::print(&program);
        assert!(printed == body(&text), "{name} prints as\n{printed}");
        if let Err(broken) = kernel::verify(&program) {
            panic!("{name}: {broken:#?}");
        }
    }
}

/// The verifier of kernels reports every broken rule.
mod broken_kernels {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/kernel_verify.rs"));
    }

    fn case(name: &str) {
        let text = read("kernel/verify", name);
        let parsed = kernel::parse::parse_with_lines(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
        let violations = kernel::verify(&parsed.program).expect_err("a broken program");
        expect_all(name, &text, violations, |place| parsed.lines[place]);
    }
}

/// Errors in text of kernels have a place.
mod unreadable_kernels {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/kernel_parse.rs"));
    }

    fn case(name: &str) {
        let text = read("kernel/parse", name);
        let error = kernel::parse(&text).expect_err("text that does not parse");
        let found = vec![(error.line, format!("{}: {}", error.column, error.message))];
        assert_eq!(found, expectations(&text), "{name}");
    }
}

/// The same of loops: canonical text prints as it stands.
mod loops_round_trip {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/loops_round_trip.rs"));
    }

    fn case(name: &str) {
        let text = read("loops/round_trip", name);
        let program = loops::parse(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
        let printed = loops::print(&program);
        assert!(printed == body(&text), "{name} prints as\n{printed}");
        if let Err(broken) = loops::verify(&program) {
            panic!("{name}: {broken:#?}");
        }
    }
}

/// The verifier of loops reports every broken rule.
mod broken_loops {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/loops_verify.rs"));
    }

    fn case(name: &str) {
        let text = read("loops/verify", name);
        let parsed = loops::parse::parse_with_lines(&text).unwrap_or_else(|error| panic!("{name}:{error}"));
        let violations = loops::verify(&parsed.program).expect_err("a broken program");
        expect_all(name, &text, violations, |place| parsed.lines[place]);
    }
}

#[test]
fn each_traversal_has_a_nest() {
    let text = read("loops/round_trip", "rows_on_their_own.ir");
    let program = loops::parse(&text).expect("a program");
    for nests in [vec![], vec![None], vec![program.nests[0].clone(), None]] {
        let broken = loops::verify(&loops::Program { nests, ..program.clone() }).expect_err("a broken program");
        assert_eq!(broken[0].message, "traversals have nests, and other kernels have none");
    }
}

/// Errors in text of loops have a place.
mod unreadable_loops {
    use super::*;

    mod files {
        include!(concat!(env!("OUT_DIR"), "/loops_parse.rs"));
    }

    fn case(name: &str) {
        let text = read("loops/parse", name);
        let error = loops::parse(&text).expect_err("text that does not parse");
        let found = vec![(error.line, format!("{}: {}", error.column, error.message))];
        assert_eq!(found, expectations(&text), "{name}");
    }
}
