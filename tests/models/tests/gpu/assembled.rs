//! ptxas assembles the PTX of every example, for sm_80 and sm_90, without spills.
//!
//! `HGNN_PTXAS` is the path of ptxas, if it is not in `PATH`. Without ptxas this test prints a note and is skipped.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hgnnc_driver::{Disabled, LowerOptions, analyze, leave_precomputed, lower, ptx};
use hgnnc_kernel_ir::kernel::{Body, Rows};
use hgnnc_machine::Machine;
use hgnnc_model_tests::assembler;
use hgnnc_model_tests::examples;
use hgnnc_ptx::{Edges, Hints, Target, compile};

/// Texts of more bytes are assembled with `HGNN_PTXAS_ALL` set only: ptxas takes 5 s for a million. So are programs without
/// sizes, which are never run.
const LARGE: usize = 3_000_000;

/// Examples that are also assembled as if their graphs had high-degree rows to split.
const CUT: [&str; 2] = ["gat/cora", "han/acm"];

/// A text, and what it is the text of.
struct Text {
    what: Vec<[&'static str; 2]>,
    example: String,
    target: Target,
    text: String,
}

/// Programs of all examples, with the sizes of their own dataset and without any.
fn texts() -> Vec<Text> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut texts: Vec<Text> = vec![];
    let mut known: HashMap<String, usize> = HashMap::new();
    for (example, source) in examples::examples() {
        for sized in ["no sizes", "sizes"] {
            let analysis = analyze(&example, &source);
            let mut model = analysis.model.unwrap_or_else(|| panic!("{example} has errors"));
            leave_precomputed(&mut model, &Disabled::default());
            let sizes = match sized {
                "sizes" => {
                    let dataset = examples::own_dataset(&model, folder);
                    let dataset = dataset.unwrap_or_else(|| panic!("{example} names a synthetic dataset"));
                    Some(examples::meet(&mut model, &dataset).sizes())
                }
                _ => None,
            };
            for target in [Target::SM_80, Target::SM_90] {
                // Programs compiled without sizes are correct but never run: one target suffices.
                if sizes.is_none() && target == Target::SM_90 {
                    continue;
                }
                let machine = Machine::sheet(target.name());
                let options = LowerOptions { machine, sizes: sizes.clone(), ..LowerOptions::default() };
                let lowered = lower(&model, &options).unwrap_or_else(|error| panic!("{example}: {error}"));
                let kernels = lowered.executable.kernels;
                let train = kernels.train.expect("examples are trained");
                let of_train = lowered.train_sizes;
                let programs = [("training", train, &of_train), ("evaluation", kernels.infer, &sizes)];
                for (which, program, sizes) in programs {
                    let what = [sized, which];
                    let module = match ptx(&program, target, sizes.as_ref(), &analysis.sources) {
                        Ok(module) => module,
                        Err(error) => panic!("{example}, {sized}, {which}: {error}"),
                    };
                    // Models of several datasets may have equal text, up to source locations in comments.
                    let code = module.text.lines().filter(|line| !line.trim_start().starts_with("//"));
                    let code = code.map(|line| format!("{line}\n")).collect::<String>();
                    match known.get(&code) {
                        Some(&index) => texts[index].what.push(what),
                        None => {
                            known.insert(code, texts.len());
                            texts.push(Text { what: vec![what], example: example.clone(), target, text: module.text });
                        }
                    }
                }
            }
        }
    }
    texts
}

/// Assembles named texts in parallel; returns the resources of each entry, or the error of ptxas.
fn assembled(ptxas: &Path, texts: &[(Target, &str)]) -> Vec<Result<Vec<assembler::Usage>, String>> {
    let next = AtomicUsize::new(0);
    let assemble = || {
        let mut results = vec![];
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some((target, text)) = texts.get(index) else { return results };
            results.push((index, assembler::assemble(ptxas, target.name(), text)));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(assemble)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect::<Vec<_>>()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Layers on graphs with high-degree rows that are split.
#[test]
fn rows_that_are_cut_are_assembled_without_spills() {
    let Some(ptxas) = assembler::find() else {
        println!("skipped: there is no `ptxas` in the path, and HGNN_PTXAS does not name one");
        return;
    };
    let mut texts = vec![];
    for (name, source) in examples::examples().into_iter().filter(|(name, _)| CUT.contains(&&name[..])) {
        let model = analyze(&name, &source).model.unwrap_or_else(|| panic!("{name} has errors"));
        let options = LowerOptions { machine: Machine::sheet("sm_90"), ..LowerOptions::default() };
        let lowered = lower(&model, &options).unwrap_or_else(|error| panic!("{name}: {error}"));
        let program = lowered.executable.kernels.train.expect("examples are trained");
        let long = Edges { mean: 40.0, most: 1 << 20 };
        let rows = program.kernels().filter_map(|kernel| match &kernel.body {
            Body::Traversal(traversal) if traversal.rows.has_edges() => Some((traversal.rows.clone(), long)),
            Body::Traversal(_) | Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => None,
        });
        let edges: Vec<(Rows, Edges)> = rows.collect();
        let module = compile(&program, Target::SM_90, Hints { edges: &edges, source: None });
        let module = module.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(module.launches.iter().any(|entry| entry.name.ends_with("_long1")), "{name}: rows are cut");
        texts.push((name, module.text));
    }
    assert_eq!(texts.len(), CUT.len(), "examples have these names");
    let given: Vec<(Target, &str)> = texts.iter().map(|(_, text)| (Target::SM_90, &text[..])).collect();
    for ((name, _), result) in texts.iter().zip(assembled(&ptxas, &given)) {
        for usage in result.unwrap_or_else(|message| panic!("{name}: {message}")) {
            println!("{name}: {} {} registers", usage.entry, usage.registers);
            assert_eq!(usage.spilled, 0, "{name}: {} spills", usage.entry);
        }
    }
}

#[test]
fn every_example_is_assembled_without_spills() {
    let Some(ptxas) = assembler::find() else {
        println!("skipped: there is no `ptxas` in the path, and HGNN_PTXAS does not name one");
        return;
    };
    let started = Instant::now();
    let mut texts = texts();
    if std::env::var_os("HGNN_PTXAS_ALL").is_none() {
        texts.retain(|text| {
            let of_data = text.what.iter().any(|[sized, _]| *sized == "sizes");
            if of_data && text.text.len() > LARGE {
                println!(
                    "left out without HGNN_PTXAS_ALL: {} {:?} {:?}, {} bytes",
                    text.example,
                    text.target,
                    text.what,
                    text.text.len()
                );
            }
            of_data && text.text.len() <= LARGE
        });
    }
    println!("{} texts after {:.1?}", texts.len(), started.elapsed());
    // Longest first, to balance the threads.
    texts.sort_by_key(|text| std::cmp::Reverse(text.text.len()));
    let given: Vec<(Target, &str)> = texts.iter().map(|text| (text.target, &text.text[..])).collect();
    let mut results: Vec<_> = assembled(&ptxas, &given).into_iter().enumerate().collect();
    results.sort_by(|(a, _), (b, _)| {
        let key = |index: usize| (&texts[index].example, texts[index].target.name(), &texts[index].what);
        key(*a).cmp(&key(*b))
    });
    let mut wrong = vec![];
    for (index, result) in results {
        let Text { what, example, target, text } = &texts[index];
        let name = format!("{example} {} {}", target.name(), what[0].join(", "));
        let usages = match result {
            Ok(usages) => usages,
            Err(message) => {
                wrong.push(format!("{name}: {message}"));
                continue;
            }
        };
        // The outputs of metapath2vec are parameters: its evaluation has no kernels.
        assert_eq!(usages.is_empty(), !text.contains(".entry"), "{name}: the assembler reports registers");
        let shown: Vec<String> = usages.iter().map(|usage| format!("{} {}", usage.entry, usage.registers)).collect();
        println!("{name}: registers: {}", shown.join(", "));
        for usage in usages.iter().filter(|usage| usage.spilled > 0) {
            wrong.push(format!("{name}: {} spills {} bytes", usage.entry, usage.spilled));
        }
    }
    println!("in {:.1?}", started.elapsed());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
