//! The table of codes: unique, in order, each with an explanation that shows the problem and its correction.

use std::collections::BTreeSet;

use hgnnc_diag::{Code, Severity};

/// The fenced code blocks of an explanation with their info strings.
fn blocks(story: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = vec![];
    let mut inside = false;
    for line in story.lines() {
        if let Some(info) = line.strip_prefix("```") {
            inside = !inside;
            if inside {
                blocks.push((info.to_owned(), String::new()));
            }
        } else if inside {
            let (_, text) = blocks.last_mut().expect("a block was opened");
            text.push_str(line);
            text.push('\n');
        }
    }
    assert!(!inside, "a block is not closed:\n{story}");
    blocks
}

#[test]
fn codes_are_unique_and_well_formed() {
    let mut names = BTreeSet::new();
    let mut titles = BTreeSet::new();
    for code in Code::all() {
        let name = code.name();
        assert!(names.insert(name), "{name} stands twice in the table");
        assert!(titles.insert(code.title()), "two codes are titled `{}`", code.title());
        let (letter, digits) = name.split_at(1);
        assert!(letter == "E" || letter == "W", "{name}");
        assert!(digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()), "{name}");
        assert_eq!(code.severity() == Severity::Warning, letter == "W");
        assert_eq!(Code::find(&name.to_lowercase()), Some(code));
    }
    assert_eq!(Code::find("E9999"), None);
}

#[test]
fn the_table_is_sorted() {
    let names: Vec<&str> = Code::all().map(Code::name).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted);
}

#[test]
fn every_code_has_a_story() {
    for code in Code::all() {
        let story = code.explanation();
        assert!(story.starts_with(&format!("# {code}: {}\n", code.title())), "{code}: the headline differs");
        let blocks = blocks(story);
        let is_error = |info: &str| matches!(info, "hgnn,error" | "sh,error");
        let is_correct = |info: &str| matches!(info, "hgnn" | "sh");
        assert!(blocks.iter().any(|(info, text)| is_error(info) && !text.trim().is_empty()), "{code}: no mistake");
        assert!(blocks.iter().any(|(info, text)| is_correct(info) && !text.trim().is_empty()), "{code}: no correction");
        for (info, _) in &blocks {
            assert!(is_error(info) || is_correct(info), "{code}: a block of kind `{info}`");
        }
        // The explanation contains prose, not just examples.
        let words: usize = story.split("```").step_by(2).map(|text| text.split_whitespace().count()).sum();
        assert!(words >= 25, "{code}: a story of {words} words");
    }
}
