//! `docs/tutorial.md`, executed: from tables to predictions with the keys of the tables.

use std::path::PathBuf;

use crate::common::Place;

const PAGE: &str = include_str!("../../../../docs/tutorial.md");

/// The text of the first block of the page that begins with this line.
fn block(first: &str) -> &'static str {
    let start = PAGE.find(&format!("```{first}\n")).unwrap_or_else(|| panic!("no block `{first}`")) + 4 + first.len();
    let text = &PAGE[start..];
    &text[..text.find("```").expect("an end")]
}

/// The folder that `HGNN_NYCFLIGHTS` names, with the tables of the page.
fn tables() -> Option<PathBuf> {
    std::env::var_os("HGNN_NYCFLIGHTS").map(PathBuf::from).filter(|folder| folder.join("flights.csv").is_file())
}

#[test]
fn three_commands_lead_from_tables_to_predictions() {
    let Some(tables) = tables() else {
        eprintln!("skipped: HGNN_NYCFLIGHTS names no folder with the tables of nycflights13");
        return;
    };
    let place = Place::new();
    for name in ["flights", "planes", "airports", "airlines", "weather"] {
        let file = format!("{name}.csv");
        std::fs::copy(tables.join(&file), place.path(&file)).expect("a table");
    }
    std::fs::write(place.path("import.toml"), block("toml import.toml")).expect("written");
    let commands: Vec<&str> = block("sh").lines().collect();
    assert_eq!(commands.len(), 3);
    for command in commands {
        let mut args: Vec<&str> = command.split_whitespace().skip(1).collect();
        if args[0] == "train" {
            // The page trains until the validation loss does not improve.
            args.extend(["--epochs", "2"]);
        }
        place.run(&args).works();
    }
    let text = std::fs::read_to_string(place.path("late.csv")).expect("predictions");
    let mut lines = text.lines();
    assert_eq!(lines.next(), block("text").lines().next());
    assert!(lines.next().is_some_and(|line| line.starts_with("UA|1545|2013-01-01T10:00:00Z,")));
    // A line for each flight, those without a label too.
    assert_eq!(text.lines().count(), 1 + 336_776);
}
