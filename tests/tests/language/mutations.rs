//! Files that nobody would write: valid ones with tokens deleted, repeated, swapped and replaced. Whatever they
//! say, the compiler reports mistakes or gives programs that the verifier accepts; it never panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use hgnnc_driver::{Disabled, Endpoints, LowerOptions, STDLIB, SizeInfo, analyze, diag, leave_precomputed, lower};
use hgnnc_ir::Dataflow;
use hgnnc_ir::verify::verify;
use hgnnc_tests::sources;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Files to try; `HGNNC_MUTATIONS=1000000` tries longer.
const CASES: usize = 30_000;

/// Larger files only make each try slower.
const MOST_BYTES: usize = 6_000;

#[test]
fn mutated_files_never_panic() {
    let cases = std::env::var("HGNNC_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let first: usize = std::env::var("HGNNC_FIRST_MUTATION").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let corpus = corpus();
    let next = AtomicUsize::new(first);
    let models = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let case = next.fetch_add(1, Ordering::Relaxed);
                    if case >= first + cases {
                        break;
                    }
                    let mut rng = ChaCha8Rng::seed_from_u64(case as u64);
                    let text = mutated(&corpus, &mut rng);
                    match catch_unwind(AssertUnwindSafe(|| attempt(&text, &mut rng))) {
                        Ok(Ok(is_model)) => {
                            models.fetch_add(usize::from(is_model), Ordering::Relaxed);
                        }
                        Ok(Err(wrong)) => panic!("case {case}: {wrong}\n----\n{text}\n----"),
                        Err(_) => panic!("case {case} panics\n----\n{text}\n----"),
                    }
                }
            });
        }
    });
    // About 8 %. Without models, nothing behind checking would have been tried.
    let models = models.load(Ordering::Relaxed);
    println!("{models} of {cases} mutated files were models");
    assert!(models >= cases / 25, "only {models} of {cases} mutated files were models");
}

/// True if the file holds a model.
fn attempt(text: &str, rng: &mut ChaCha8Rng) -> Result<bool, String> {
    let mut analysis = analyze("mutated.hgnn", text);
    let reports = diag::render::plain(&analysis.sources, analysis.diagnostics.iter());
    let Some(model) = &mut analysis.model else {
        return if analysis.diagnostics.has_errors() {
            Ok(false)
        } else {
            Err(format!("no model, no error\n{reports}"))
        };
    };
    let verified = |what: &str, flow: &Dataflow| {
        verify(flow).map_err(|violations| {
            let list: Vec<String> = violations.iter().map(ToString::to_string).collect();
            format!("the {what} program is wrong: {}", list.join("; "))
        })
    };
    verified("forward", &model.flow)?;
    leave_precomputed(model, &Disabled::default());
    // With sizes, the order of linear operations changes; without, it stays.
    let mut counts = |len: usize| -> Vec<u64> { (0..len).map(|_| rng.random_range(0..1000)).collect() };
    let (vertices, edges) = (counts(model.flow.vertex_types.len()), counts(model.flow.graphs.len()));
    let ends = (counts(edges.len()).into_iter().zip(counts(edges.len()))).map(|(sources, destinations)| Endpoints {
        sources,
        destinations,
        ..Endpoints::default()
    });
    let sizes = SizeInfo { vertices, edges, ends: ends.collect(), ..SizeInfo::default() };
    let sizes = rng.random::<bool>().then_some(sizes);
    let options = LowerOptions { sizes, ..LowerOptions::default() };
    let lowered = lower(model, &options).expect("no pass is switched off");
    verified("evaluation", &lowered.executable.infer)?;
    for flow in lowered.joint.iter().chain(&lowered.executable.train) {
        verified("training", flow)?;
    }
    Ok(true)
}

/// Valid files, and those of the diagnostics; each as its tokens, white space included. An example also comes
/// with the library that it uses written into it, so that layers are mutated where they are used.
fn corpus() -> Vec<Vec<String>> {
    let mut texts: Vec<String> = vec![];
    for (_, text) in sources(&["examples", "tests/cases/language"]) {
        let inlined: Vec<&str> = (text.lines())
            .map(|line| match line.strip_prefix("use std::").and_then(|path| path.split("::").next()) {
                Some(module) => STDLIB.iter().find(|(name, _)| *name == module).map_or(line, |(_, text)| text),
                None => line,
            })
            .collect();
        texts.push(inlined.join("\n"));
        texts.push(text);
    }
    texts.extend(sources(&["tests/cases/diagnostics"]).into_iter().map(|(_, text)| text));
    texts.retain(|text| text.len() < MOST_BYTES);
    texts.iter().map(|text| tokens(text)).collect()
}

/// Cuts a text into words, numbers, strings, runs of white space and single characters.
fn tokens(text: &str) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let kind = |c: char| {
        if word(c) {
            0
        } else if c.is_whitespace() {
            1
        } else {
            2
        }
    };
    let mut tokens: Vec<String> = vec![];
    let mut last = 2;
    for c in text.chars() {
        match tokens.last_mut() {
            Some(token) if kind(c) == last && last != 2 => token.push(c),
            _ => tokens.push(c.to_string()),
        }
        last = kind(c);
    }
    tokens
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "8",
    "64",
    "0.5",
    "1.0",
    "1e9",
    "2147483648",
    "4294967296",
    "1e300",
    "-1",
    "99999999999999999999",
];

const WORDS: &[&str] = &[
    "sum",
    "mean",
    "max",
    "softmax",
    "logsumexp",
    "concat",
    "over",
    "across",
    "in_edges",
    "vertices",
    "last",
    "first",
    "dropout",
    "linear",
    "layer_norm",
    "batch_norm",
    "flatten",
    "reshape",
    "dot",
    "relu",
    "identity",
    "pow",
    "width",
    "given",
    "src",
    "dst",
    "in_degree",
    "out_degree",
    "count",
    "weight",
    "relations",
    "reverses",
    "metapaths",
    "features",
    "reverse",
    "self_loops",
    "without_self_loops",
    "identity",
    "onehot",
    "embedding",
    "sparse",
    "f32",
    "class",
    "multilabel",
    "target",
    "shared",
    "basis",
    "blocks",
    "optional",
    "if",
    "else",
    "not",
    "true",
    "false",
    "per",
    "type",
    "graph",
    "row_normalize",
    "l2_normalize",
    "stop_gradient",
    "mse",
    "binary_cross_entropy",
    "counted",
    "square",
    "in",
    "V",
];

const SYMBOLS: &[&str] = &[
    "(", ")", "[", "]", "{", "}", "+", "-", "*", "/", "@", ",", ":", ".", "=", "->", "<-", "==", "*", "\"", "é",
    "\u{0}", "`", "//",
];

fn mutated(corpus: &[Vec<String>], rng: &mut ChaCha8Rng) -> String {
    let mut tokens = corpus.choose(rng).expect("there are files").clone();
    let count = [1, 1, 1, 1, 2, 2, 3, 4][rng.random_range(0..8)];
    for _ in 0..count {
        mutate(&mut tokens, corpus, rng);
        if tokens.is_empty() {
            break;
        }
    }
    tokens.concat()
}

fn mutate(tokens: &mut Vec<String>, corpus: &[Vec<String>], rng: &mut ChaCha8Rng) {
    let is_word = |t: &String| t.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let is_number = |t: &String| t.starts_with(|c: char| c.is_ascii_digit());
    let words: Vec<usize> = (0..tokens.len()).filter(|&i| is_word(&tokens[i])).collect();
    let numbers: Vec<usize> = (0..tokens.len()).filter(|&i| is_number(&tokens[i])).collect();
    let at = rng.random_range(0..tokens.len());
    match rng.random_range(0..14) {
        0 => {
            tokens.remove(at);
        }
        1 => tokens.insert(at, tokens[at].clone()),
        2 => {
            let other = rng.random_range(0..tokens.len());
            tokens.swap(at, other);
        }
        // Most names that are replaced by others still parse: the checks behind the parser are what is tried.
        3..=6 => {
            if let (Some(&to), Some(&from)) = (words.choose(rng), words.choose(rng)) {
                tokens[to] = tokens[from].clone();
            }
        }
        7 => {
            if let (Some(&to), Some(word)) = (words.choose(rng), WORDS.choose(rng)) {
                tokens[to] = (*word).to_string();
            }
        }
        8 | 9 => {
            if let (Some(&to), Some(number)) = (numbers.choose(rng), NUMBERS.choose(rng)) {
                tokens[to] = (*number).to_string();
            }
        }
        10 => {
            // A piece of another file.
            let other = corpus.choose(rng).expect("there are files");
            let start = rng.random_range(0..other.len());
            let end = (start + rng.random_range(1..40)).min(other.len());
            tokens.splice(at..at, other[start..end].iter().cloned());
        }
        11 => {
            // A line, deleted or repeated elsewhere.
            let is_break = |t: &String| t.contains('\n');
            let start = tokens[..at].iter().rposition(is_break).unwrap_or(0);
            let end = tokens[at..].iter().position(is_break).map_or(tokens.len(), |e| at + e);
            let line: Vec<String> = tokens[start..end].to_vec();
            if rng.random() {
                tokens.drain(start..end);
            } else {
                let to = rng.random_range(0..=tokens.len());
                tokens.splice(to..to, line);
            }
        }
        12 => tokens[at] = (*SYMBOLS.choose(rng).expect("there are symbols")).to_string(),
        _ => {
            if rng.random_range(0..4) == 0 {
                tokens.truncate(at);
            } else if let Some(&to) = words.choose(rng) {
                // A call around a name.
                let function = WORDS.choose(rng).expect("there are words");
                tokens[to] = format!("{function}({})", tokens[to]);
            }
        }
    }
}
