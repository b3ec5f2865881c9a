//! Snapshots of sampler code. The sampler's crate tests the results against a reference implementation.

use hgnnc_codegen_cpu::Compiler;
use hgnnc_executable::sampler::{Counted, RowsOf, SamplerCompiler, SamplerFunction, Take};

/// The Cranelift IR before optimization. The calling convention is the host's.
fn listing(function: &SamplerFunction) -> String {
    let compiler = Compiler::host(false).expect("a processor that Cranelift knows");
    let text = compiler.text(function);
    ["system_v", "windows_fastcall", "apple_aarch64"].iter().fold(text, |text, name| text.replace(name, "host"))
}

#[test]
fn a_fanout_of_three_is_straight_code() {
    insta::assert_snapshot!(listing(&SamplerFunction::Draw(Take::Uniform { most: 3, long: false })));
}

#[test]
fn rows_of_two_of_three_relations() {
    let drawn = vec![Counted { slot: 0, most: Some(5), listed: false }, Counted { slot: 2, most: None, listed: false }];
    insta::assert_snapshot!(listing(&SamplerFunction::Rows(RowsOf { relations: 3, drawn })));
}

#[test]
fn code_for_many_alike_relations_is_a_loop() {
    let lines = |relations: usize| {
        let drawn = (0..relations).map(|slot| Counted { slot, most: Some(5), listed: false }).collect();
        let text = listing(&SamplerFunction::Rows(RowsOf { relations, drawn }));
        assert!(text.contains("; a relation"), "{text}");
        text.lines().count()
    };
    assert_eq!(lines(16), lines(474));
}

#[test]
fn only_what_a_fanout_needs_is_generated() {
    let blocks = |take| {
        let text = listing(&SamplerFunction::Draw(take));
        text.lines().filter_map(|line| line.strip_prefix("; ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let has = |blocks: &[String], what: &str| blocks.iter().any(|block| block.contains(what));
    let [register, vectors, memory] = ["bit mask in a register", "in vectors", "marked in memory"];
    let all = blocks(Take::Whole);
    assert!(!has(&all, "Floyd") && !has(&all, "by weight"), "{all:?}");
    let short = blocks(Take::Uniform { most: 7, long: false });
    assert!(has(&short, "Floyd") && !has(&short, vectors) && !has(&short, memory), "{short:?}");
    let long = blocks(Take::Uniform { most: 7, long: true });
    assert!(has(&long, register) && has(&long, vectors) && !has(&long, memory), "{long:?}");
    let many = blocks(Take::Uniform { most: 33, long: true });
    assert!(has(&many, memory) && !has(&many, register) && !has(&many, vectors), "{many:?}");
    assert!(has(&blocks(Take::Weighted), "by weight"));
}
