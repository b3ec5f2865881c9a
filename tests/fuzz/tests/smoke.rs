//! A few cases of each kind. Longer campaigns are started manually: see `tests/README.md`.

use std::process::Command;

#[test]
fn a_few_cases_of_each_kind() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (kind, count) in [
        ("programs", 200),
        ("data", 40),
        ("weights", 20),
        ("checkpoints", 10),
        ("caches", 20),
        ("imports", 20_000),
        ("artifacts", 300),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hgnnc-fuzz"));
        command.args([kind, &count.to_string(), "--seed", "18", "--out"]).arg(folder.path());
        let output = command.output().expect("it can be started");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{kind}: {text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains(&format!("{count} of {count} cases, 0 failed")), "{kind}: {text}");
    }
}
