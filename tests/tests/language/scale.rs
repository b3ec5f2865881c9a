//! Large programs: checking them takes time in proportion to their length, and what is too large is refused.

use std::fmt::Write;
use std::time::{Duration, Instant};

use hgnnc_driver::{Analysis, LowerOptions, analyze, lower};

/// Declarations of each program.
const MANY: usize = 20_000;

/// If time grew with the square of the length, each of these took from 20 seconds to minutes in a debug build. In
/// proportion to it, they take less than two.
const LIMIT: Duration = Duration::from_secs(15);

fn timely(what: &str, text: &str) -> Analysis {
    let start = Instant::now();
    let analysis = analyze(what, text);
    let took = start.elapsed();
    assert!(took < LIMIT, "{what}: {took:?}");
    analysis
}

fn codes(analysis: &Analysis) -> Vec<&'static str> {
    analysis.diagnostics.iter().map(|report| report.code.name()).collect()
}

/// A program with further declarations of its schema, before the schema, and further statements.
fn program(schema: impl Fn(usize) -> String, top: impl Fn(usize) -> String, body: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for i in 1..=MANY {
        text.push_str(&top(i));
    }
    text.push_str("schema S {\n vertex P { x: f32[4], y: class[3] }\n relation r0: P -> P\n");
    for i in 1..=MANY {
        text.push_str(&schema(i));
    }
    text.push_str("}\nmodel M(schema: S) {\n let h0 = linear(P.x, 3)\n");
    for i in 1..=MANY {
        text.push_str(&body(i));
    }
    text + " output o: P = h0\n}\ntrain M {\n loss cross_entropy(o, P.y)\n optimizer adam(lr: 0.01)\n epochs 3\n}\n"
}

/// A kind of declaration, and how the one of each number is written.
type Part = (&'static str, fn(usize) -> String);

fn nothing(_: usize) -> String {
    String::new()
}

#[test]
fn many_declarations() {
    let of_schema: [Part; 5] = [
        ("relations", |i| format!(" relation r{i}: P -> P\n")),
        ("vertex types", |i| format!(" vertex V{i} {{ x: f32[4] }}\n relation r{i}: V{i} -> P\n")),
        ("metapaths", |i| format!(" metapath m{i} = P -r0-> P <-r0- P\n")),
        ("families", |i| format!(" family f{i} = [r0, reverse(r0)]\n")),
        ("unknown types", |i| format!(" relation r{i}: Q{i} -> P\n")),
    ];
    for (what, schema) in of_schema {
        timely(what, &program(schema, nothing, nothing));
    }
    let of_file: [Part; 4] = [
        ("constants", |i| format!("const C{i} = {i}\n")),
        ("schemas", |i| format!("schema S{i} {{ vertex P {{ x: f32[4] }} }}\n")),
        ("imports", |_| "use std::rgcn::RgcnConv\n".into()),
        ("layers", |i| {
            let head = format!("/// Number {i}.\nlayer L{i}(hidden: dim) of x: V[in] -> V[hidden]");
            format!("{head} {{\n project v: V {{\n param w: [in, hidden]\n out = v.x @ w\n }}\n}}\n")
        }),
    ];
    for (what, top) in of_file {
        timely(what, &program(nothing, top, nothing));
    }
    let of_model: [Part; 6] = [
        ("lets", |i| format!(" let h{i} = h{} + 1.0\n", i - 1)),
        ("linear", |i| format!(" let h{i} = linear(h{}, 3)\n", i - 1)),
        ("linear of one name", |i| format!(" let h{i} = linear(linear(h{}, 3), 3)\n", i - 1)),
        ("parameters", |i| format!(" param w{i}: [3, 3]\n")),
        ("outputs", |i| format!(" output o{i}: P = linear(P.x, 3)\n")),
        ("unknown names", |i| format!(" let h{i} = foo{i} + bar\n")),
    ];
    for (what, body) in of_model {
        timely(what, &program(nothing, nothing, body));
    }
}

#[test]
fn layers_over_many_semantic_graphs() {
    let mut text = String::from("use std::rgcn::RgcnConv\nschema S {\n vertex P { x: f32[4] }\n");
    for i in 0..MANY {
        let _ = writeln!(text, " vertex V{i} {{ x: f32[4] }}\n relation r{i}: V{i} -> P\n relation b{i}: P -> V{i}");
    }
    text += "}\nmodel M(schema: S) {\n output o: P = RgcnConv(3) over relations of linear(features, 3)\n}\n";
    assert_eq!(codes(&timely("semantic graphs", &text)), [""; 0]);
}

#[test]
fn families_that_grow_by_one() {
    let mut text = String::from("schema S {\n vertex P { x: f32[4] }\n relation r0: P -> P\n family f0 = [r0]\n");
    for i in 1..MANY {
        let _ = writeln!(text, " relation r{i}: P -> P\n family f{i} = [f{}, r{i}]", i - 1);
    }
    text += "}\nmodel M(schema: S) {\n output o: P = linear(P.x, 3)\n}\n";
    assert_eq!(codes(&timely("families of families", &text)), ["E0109"]);
}

#[test]
fn brackets_without_end() {
    for text in ["(".repeat(MANY), "(".repeat(MANY) + &"]".repeat(MANY), "{[(".repeat(MANY), ")".repeat(MANY)] {
        timely("brackets", &text);
        timely("brackets in a model", &format!("model M(schema: S) {{ let h = {text}"));
    }
}

#[test]
fn long_files_are_refused() {
    assert_eq!(codes(&timely("a long file", &"// nothing\n".repeat(2 << 20))), ["E0109"]);
}

/// A model whose values form one long chain, lowered.
fn lowered(what: &str, text: &str) {
    let analysis = analyze(what, text);
    assert!(!analysis.diagnostics.has_errors(), "{what}: {:?}", codes(&analysis));
    let model = analysis.model.expect("there is no error");
    if let Err(error) = lower(&model, &LowerOptions::default()) {
        panic!("{what}: {error}");
    }
}

/// No pass may walk a chain of operations by recursion: threads of tests have small stacks.
#[test]
fn long_chains_are_lowered() {
    let schema = "schema S {\n vertex P { x: f32[4], y: class[3] }\n vertex E { x: embedding[3], y: class[3] }\n \
                  relation r: P -> P\n}\n";
    let train = "train M {\n loss cross_entropy(o, P.y)\n optimizer adam(lr: 0.01)\n epochs 3\n}\n";
    let chain = |count: usize, step: &dyn Fn(usize) -> String| (1..=count).map(step).collect::<String>();
    let model = |start: &str, steps: String, count: usize| {
        format!("{schema}model M(schema: S) {{\n {start}\n{steps} output o: P = h{count}\n}}\n{train}")
    };
    let from_x = "let h0 = linear(P.x, 3)";
    type Step<'a> = (&'a str, &'a str, &'a dyn Fn(usize) -> String);
    let steps: [Step<'_>; 5] = [
        ("linear", from_x, &|i| format!(" let h{i} = linear(h{}, 3)\n", i - 1)),
        ("rows", from_x, &|i| format!(" let h{i} = tanh(h{0} + 1.0) * h{0}\n", i - 1)),
        ("stops", from_x, &|i| format!(" let h{i} = stop_gradient(h{}) + h0\n", i - 1)),
        ("parameters", "param h0: [3]", &|i| format!(" let h{i} = sigmoid(h{0}) * h{0}\n", i - 1)),
        ("tables", "let h0 = softplus(E.x)", &|i| format!(" let h{i} = sigmoid(h{0}) * h{0}\n", i - 1)),
    ];
    const LONG: usize = 4000;
    for (what, start, step) in steps {
        let text = model(start, chain(LONG, step), LONG);
        let text = match what {
            "parameters" => text.replace(&format!("= h{LONG}\n"), &format!("= linear(P.x, 3) + h{LONG}\n")),
            "tables" => text.replace("output o: P", "output o: E").replace("P.y", "E.y"),
            _ => text,
        };
        lowered(what, &text);
    }
    let edges = chain(LONG, &|i| format!(" let a{i} = tanh(a{0}) * a{0} + e.dst.x\n", i - 1));
    let layer = format!(
        "layer Long()\n over graphs: [V -> V]\n of x: V[in]\n -> V[in]\n{{\n aggregate e: g in graphs {{\n \
         let a0 = e.src.x\n{edges} m = sum(a{LONG}) over in_edges\n }}\n \
         fuse v: V across graphs {{ out = sum(v.m) across graphs }}\n}}\n"
    );
    lowered("edges", &(layer + &model("let h0 = Long() over [r] of linear(P.x, 3)", String::new(), 0)));
}
