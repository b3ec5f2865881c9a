//! Names that would command a terminal are shown, not obeyed; files and what programs read keep them.

use crate::common::{Place, Run, usual};

/// Clears the screen, and writes red.
const HOSTILE: &str = "\u{1b}[2J\u{1b}[31mwrites";

#[track_caller]
fn is_safe(run: &Run) {
    for text in [&run.out, &run.err] {
        let obeyed = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text.contains(obeyed), "{text:?}");
    }
}

#[test]
fn names_in_a_model() {
    let place = Place::new();
    let schema = format!("schema S {{ vertex `{HOSTILE}` {{ x: f32[3] }} }}\n");
    place.model(&format!("{schema}model M(schema: S) {{ output o: `{HOSTILE}` = `{HOSTILE}` }}\n"));
    let run = place.run(&["check", "m.hgnn"]);
    run.fails(1, &["E0201", r"`\u{1b}[2J\u{1b}[31mwrites` is not known here", "output o"]);
    is_safe(&run);
}

#[test]
fn names_in_a_dataset() {
    let place = Place::new();
    let file = place.path("data/dataset.toml");
    let text = std::fs::read_to_string(&file).expect("readable");
    std::fs::write(&file, text.replace("author-paper", r"\u001b[2J\u001b[31mwrites")).expect("written");
    let info = place.run(&["data", "info", "data"]).works();
    assert!(info.out.contains(r"\u{1b}[2J\u{1b}[31mwrites"), "{}", info.out);
    is_safe(&info);
    let json = place.run(&["data", "info", "data", "--json"]).works();
    let value: serde_json::Value = serde_json::from_str(&json.out).expect("it is JSON");
    assert!(value.to_string().contains(r"\u001b[2J"), "{value}");
    // To be written into a file, as it is.
    let schema = place.run(&["data", "schema", "data"]).works();
    assert!(!schema.out.contains(r"\u{1b}"), "{}", schema.out);
    place.model(&usual());
    let run = place.with_data("train", &["--epochs", "1"]);
    run.fails(1, &["E0421"]);
    is_safe(&run);
}

#[test]
fn names_of_files() {
    let place = Place::new();
    for run in [place.run(&["check", HOSTILE]), place.run(&["data", "info", HOSTILE]), place.run(&["explain", HOSTILE])]
    {
        assert!(matches!(run.code, Some(1 | 2)), "{run:?}");
        assert!(run.err.contains(r"\u{1b}[2J"), "{run:?}");
        is_safe(&run);
    }
    let run = place.run(&["check", "m.hgnn", HOSTILE]);
    assert_eq!(run.code, Some(2), "{run:?}");
    is_safe(&run);
}
