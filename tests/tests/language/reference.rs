//! The examples of `docs/language.md` compile: each block marked ```` ```hgnn ````, as a whole file or as the part
//! that its mark says.

use std::collections::HashSet;

use hgnnc_driver::diag::synonyms;
use hgnnc_tests::{check, root};

/// Frames that complete a fragment to a file. `{}` is the fragment.
const FRAMES: &[(&str, &str)] = &[
    ("hgnn", "{}"),
    ("hgnn,schema", "{}\nmodel M(schema: Example) {\n    output h: Paper = linear(Paper.x, 3)\n}\n"),
    (
        "hgnn,model",
        "use std::gcn::GcnConv\nuse std::rgcn::RgcnConv\n
schema Academic {
    vertex Paper { x: f32[16], topic: class[3] }
    vertex Author { x: f32[8] }
    vertex Venue
    relation cites: Paper -> Paper
    relation written_by: Paper -> Author
    relation at: Paper -> Venue
    metapath PAP = Paper -written_by-> Author <-written_by- Paper
    metapath PVP = Paper -at-> Venue <-at- Paper
    family similar = [PAP, PVP]
}
model M(schema: Academic) {
{}
}
",
    ),
    (
        "hgnn,layer",
        "{}
schema Academic {
    vertex Paper { x: f32[16], topic: class[3] }
    relation cites: Paper -> Paper { weight: f32, kind: f32[4] }
    relation extends: Paper -> Paper { weight: f32, kind: f32[4] }
}
model M(schema: Academic) {
    output h: Paper = Example(hidden: 8) over [cites, extends] of Paper.x
}
",
    ),
    (
        "hgnn,rows",
        "{}
schema Academic {
    vertex Paper { x: f32[16], topic: class[3] }
    vertex Author { x: f32[16] }
    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    family both = [relations, reverses]
}
layer Start() over graphs: [*] of x: *[in] -> rows: *[in] per graph {
    project v: * { rows = v.x }
}
layer Total() over graphs: [*] of x: *[in] per graph -> *[in] {
    fuse v: * across graphs { out = sum(v.x) across graphs }
}
model M(schema: Academic) {
    let h = Total() over both of Example(hidden: 8) over both of Start() over both of features
    output logits: Paper = linear(h.Paper, 3)
}
",
    ),
    (
        "hgnn,train",
        "schema Academic {
    vertex Paper { x: f32[16], topic: class[3], tags: multilabel[3], year: target[3] }
}
model M(schema: Academic) {
    output logits: Paper = linear(Paper.x, 3)
}
train M {
{}
}
",
    ),
];

#[test]
fn blocks_compile() {
    let text = std::fs::read_to_string(root().join("docs/language.md")).expect("the reference is there");
    let mut number = 0;
    for (line, mark, block) in blocks(&text) {
        let (frame, codes): (&str, Vec<&str>) = match mark.strip_prefix("hgnn,error") {
            Some(rest) => match rest.split_once(' ') {
                Some((kind, codes)) => (kind.trim_start_matches(','), codes.split_whitespace().collect()),
                None => panic!("line {line}: which error? write ```hgnn,error E0301"),
            },
            None => (mark.strip_prefix("hgnn").map_or("", |kind| kind.trim_start_matches(',')), vec![]),
        };
        let wanted = if frame.is_empty() { "hgnn".to_string() } else { format!("hgnn,{frame}") };
        let Some((_, around)) = FRAMES.iter().find(|(name, _)| *name == wanted) else {
            panic!("line {line}: no such kind of block: {mark}");
        };
        let file = around.replace("{}", &block);
        let outcome = check(&format!("language.md:{line}"), &file);
        let mut found = outcome.codes();
        // A fragment uses no more of its surroundings than it needs.
        found.retain(|code| codes.contains(code) || !["W0003", "W0004"].contains(code));
        assert_eq!(found, codes, "docs/language.md:{line}\n{file}\n{}", outcome.reports());
        number += 1;
    }
    assert!(number >= 18, "the reference has {number} examples");
}

/// The blocks of a Markdown file that are ours: line, mark, text.
fn blocks(text: &str) -> Vec<(usize, String, String)> {
    let mut found = vec![];
    let mut open: Option<(usize, String, String)> = None;
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(mark)) => open = Some((index + 1, mark.to_string(), String::new())),
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, _, block)), None) => {
                block.push_str(line);
                block.push('\n');
            }
            (None, None) => {}
        }
    }
    found.retain(|(_, mark, _)| mark.starts_with("hgnn"));
    found
}

/// The parts that the example of an explanation omits: a schema, and a model where it shows only a layer.
const EXPLANATION_SCHEMA: &str = "schema S {
    vertex Paper { x: f32[8], topic: class[3] }
    vertex Author { x: f32[4] }
    relation writes: Author -> Paper
    relation cites: Paper -> Paper
    metapath PAP = Paper <-writes- Author -writes-> Paper
}
";

const EXPLANATION_MODEL: &str = "model M(schema: S) {
    output logits: Paper = linear(Paper.x, 3)
}
";

/// Explanations whose examples are cut off on purpose, or need a dataset.
const UNFINISHED: &[&str] = &["E0105", "E0108", "E0431", "W0007"];

/// The first example of each explanation is wrong in the way that it explains, the second one is not. Explanations
/// about datasets, and examples of a layer alone, are not completed.
#[test]
fn explanations_show_their_code() {
    let mut shown = vec![];
    let mut wrong = vec![];
    for code in hgnnc_driver::Code::all() {
        let explanation = code.explanation();
        assert!(explanation.starts_with(&format!("# {code}: ")), "{code} is explained under another name");
        for (line, mark, block) in blocks(explanation) {
            let whole = |word: &str| block.lines().any(|line| line.starts_with(word));
            let unfinished =
                code.name().starts_with("E042") || code.name() == "E0430" || UNFINISHED.contains(&code.name());
            if unfinished || whole("layer ") && !whole("model ") {
                continue;
            }
            let mut file = String::new();
            let schema = block.lines().find_map(|line| line.strip_prefix("schema ")?.split(' ').next());
            let model = EXPLANATION_MODEL.replace("schema: S", &format!("schema: {}", schema.unwrap_or("S")));
            file.push_str(&block);
            if schema.is_none() {
                file.push_str(EXPLANATION_SCHEMA);
            }
            if !whole("model ") && code.name() != "E0505" {
                file.push_str(&model);
            }
            let outcome = check(&format!("{code}.md:{line}"), &file);
            let found = outcome.codes().contains(&code.name());
            if found != (mark == "hgnn,error") {
                wrong.push(format!("{file}\n{}", outcome.reports()));
            } else if found {
                shown.push(code.name());
            }
        }
    }
    println!("{} explanations show their code: {}", shown.len(), shown.join(" "));
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n========\n"));
}

/// The name here of each word of another tool is a word of the reference or of the library.
#[test]
fn suggested_words_exist() {
    let mut known = std::fs::read_to_string(root().join("docs/language.md")).expect("the reference is there");
    hgnnc_driver::STDLIB.iter().for_each(|(_, text)| known.push_str(text));
    let words: HashSet<&str> = known.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut unknown = vec![];
    for place in synonyms::Place::ALL {
        for (from, meant) in synonyms::rows(place) {
            if let synonyms::Meant::Names(names) | synonyms::Meant::Each(names) = meant {
                let missing = names.iter().filter(|name| !words.contains(**name));
                unknown.extend(missing.map(|name| format!("{place:?}: {from:?} -> {name}")));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}
