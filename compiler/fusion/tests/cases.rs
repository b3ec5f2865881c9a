//! Case files, `cases/STEP/NAME.ir`.
//!
//! `groups`: a comment, a program, `=>`, and its groups with the values that they store.
//! `kernels`: a comment, a program, `=>`, and its kernels; `kernels_online` where softmaxes are computed in one pass.
//! Other folders are named for a pass over kernels ([`KERNEL_PASSES`]): a program of kernels, `=>`, and the program after
//! the pass, or `=> unchanged`; perhaps with `; sizes: vertices 4 3 edges 9 sources 2 destinations 3` (of each vertex
//! type, of each graph), `; target: sm_90` and `; lean`. With `INSTA_UPDATE=always` the results are written anew.

use std::fs;
use std::path::Path;

use hgnnc_fusion::{
    Groups, KERNEL_PASSES, KernelCx, KernelPass, LoweringOptions, SoftmaxForm, explain, group, kernel_passes, lower,
    lower_with, store,
};
use hgnnc_ir::sizes::{Endpoints, SizeInfo};
use hgnnc_ir::{Dataflow, Value, parse, verify};
use hgnnc_kernel_ir::kernel::{self, Program};
use hgnnc_machine::Machine;
use rustc_hash::FxHashSet;

fn sizes(text: &str) -> Option<SizeInfo> {
    let line = text.lines().find_map(|line| line.strip_prefix("; sizes: vertices "))?;
    let (vertices, rest) = line.split_once(" edges").expect("`edges`");
    let (edges, ends) = rest.split_once(" sources").unwrap_or((rest, ""));
    let (sources, destinations) = ends.split_once(" destinations").unwrap_or(("", ""));
    let [vertices, edges, sources, destinations]: [Vec<u64>; 4] = [vertices, edges, sources, destinations]
        .map(|text| text.split_whitespace().map(|n| n.parse().expect("a number")).collect());
    let of_graph = |(&sources, &destinations)| Endpoints { sources, destinations, ..Endpoints::default() };
    let ends = sources.iter().zip(&destinations).map(of_graph).collect();
    Some(SizeInfo { vertices, edges, ends, ..SizeInfo::default() })
}

fn target(text: &str) -> Option<Machine> {
    let line = text.lines().find_map(|line| line.strip_prefix("; target: "))?;
    Some(Machine::sheet(line).expect("a machine that is known"))
}

mod files {
    include!(concat!(env!("OUT_DIR"), "/cases.rs"));
}

fn case(file: &str) {
    let folder = file.split_once('/').expect("a case lies in the folder of its pass").0;
    match KERNEL_PASSES.iter().find(|pass| pass.rule.name() == folder) {
        Some(pass) => pass_case(pass, file),
        None if folder == "groups" => group_case(file),
        None => lowering_case(file),
    }
}

#[test]
fn every_pass_has_cases() {
    for pass in KERNEL_PASSES {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(pass.rule.name());
        let some = fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
        assert!(some, "{} has no case", pass.rule.name());
    }
}

/// The kernels of a program, once they are known to keep their rules and to be read back as they are.
fn kernels(flow: &Dataflow, what: &str) -> Program {
    kernels_with(flow, SoftmaxForm::InPasses, what)
}

fn kernels_with(flow: &Dataflow, softmax: SoftmaxForm, what: &str) -> Program {
    let program =
        lower_with(flow, LoweringOptions::CPU.with_softmax(softmax)).unwrap_or_else(|error| panic!("{what}: {error}"));
    if softmax == SoftmaxForm::InPasses {
        assert_eq!(Ok(&program), lower(flow).as_ref(), "what is done where no sizes are known");
    }
    if let Err(broken) = kernel::verify(&program) {
        panic!("{what}: {broken:#?}\n{program}");
    }
    let text = kernel::print(&program);
    let read = kernel::parse(&text).unwrap_or_else(|error| panic!("{what}: {error}\n{text}"));
    assert!(read == program, "{what} is read back as\n{read}\ninstead of\n{text}");
    program
}

/// Compares the result of a case with the expected one, or writes it anew.
fn compare(path: &Path, before: &str, expected: &str, found: &str, explanation: &str) {
    if found != expected && std::env::var("INSTA_UPDATE").is_ok_and(|v| v == "always") {
        fs::write(path, format!("{before}=>{found}")).expect("a writable case");
    } else {
        assert!(found == expected, "{}\n=>{found}{explanation}", path.display());
    }
}

fn group_case(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file);
    let text = fs::read_to_string(&path).expect("a readable case");
    let (before, expected) = text.split_once("=>").expect("`=>` between program and groups");
    let flow = parse(before).unwrap_or_else(|error| panic!("{file}:{error}"));
    let mut groups = group(&flow, LoweringOptions::CPU, &FxHashSet::default());
    store(&flow, &mut groups);
    assert_eq!(groups.verify(&flow), Ok(()), "{file}");
    compare(&path, before, expected, &format!("\n{}", groups.print(&flow)), "");
}

/// The case `kernels/NAME.ir`, or `kernels_online/NAME.ir` where softmaxes are computed in one pass: a program, `=>`, and
/// its kernels. With `INSTA_UPDATE=always` the kernels are written anew.
fn lowering_case(file: &str) {
    let softmax = if file.starts_with("kernels_online/") { SoftmaxForm::InOnePass } else { SoftmaxForm::InPasses };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file);
    let text = fs::read_to_string(&path).expect("a readable case");
    let (before, expected) = text.split_once("=>").expect("`=>` between program and kernels");
    let flow = parse(before).unwrap_or_else(|error| panic!("{file}:{error}"));
    if let Err(broken) = verify(&flow) {
        panic!("{file}: {broken:#?}");
    }
    let found = format!("\n{}", kernels_with(&flow, softmax, file));
    compare(&path, before, expected, &found, "");
}

/// The case `RULE/NAME.ir` of a pass over kernels: a program of kernels, `=>`, and the program after the pass; or `=>
/// unchanged`. With `INSTA_UPDATE=always` the result is written anew.
fn pass_case(pass: &KernelPass, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file);
    let text = fs::read_to_string(&path).expect("a readable case");
    let (before, expected) = text.split_once("=>").expect("`=>` between the programs");
    let mut program = kernel::parse(before).unwrap_or_else(|error| panic!("{file}:{error}"));
    let untouched = program.clone();
    let machine = target(&text);
    let lean = text.lines().any(|line| line == "; lean");
    let options = LoweringOptions { lean, ..LoweringOptions::of(machine.as_ref()) };
    let mut cx = KernelCx { sizes: sizes(&text), machine, ..KernelCx::new(options) };
    // Verifies the program before and after.
    kernel_passes::run(std::slice::from_ref(pass), &mut program, &mut cx);
    let found = if program == untouched { " unchanged\n".to_owned() } else { format!("\n{program}") };
    compare(&path, before, expected, &found, &cx.explain.join("\n"));
}

#[test]
fn sparse_outputs_are_refused() {
    let text = "dataflow d { vertex A from \"a\" pattern p0: A x 3 \
                input A.x : f32[A; 3] sparse(p0) = features(A) %0 = input A.x : f32[A; 3] sparse(p0) @FP \
                result x = %0 }";
    let error = lower(&parse(text).expect("text")).expect_err("a sparse output");
    assert!(error.to_string().contains("a sparse value cannot be an output"), "{error}");
}

#[test]
fn explanations_name_the_form_of_a_softmax() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kernels/attention_forward.ir");
    let text = fs::read_to_string(path).expect("a readable case");
    let flow = parse(text.split_once("=>").expect("`=>`").0).expect("text");
    let form = |softmax| {
        let lines =
            explain(&lower_with(&flow, LoweringOptions::CPU.with_softmax(softmax)).expect("a supported program"), None);
        lines[0].split("; ").find(|part| part.contains("softmax")).map(str::to_owned).expect("a softmax")
    };
    assert!(form(SoftmaxForm::InPasses).starts_with("softmax in three passes: "));
    assert!(form(SoftmaxForm::InOnePass).starts_with("online softmax: "));
}

#[test]
fn explanations_name_rows_that_are_cut() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kernels/mean_aggregation.ir");
    let text = fs::read_to_string(path).expect("a readable case");
    let flow = parse(text.split_once("=>").expect("`=>`").0).expect("text");
    let program = kernels(&flow, "mean_aggregation");
    let machine = hgnnc_machine::Machine::sheet("sm_80").expect("a known machine");
    let cut = |max_in: u64| {
        let ends = Endpoints { sources: 9, destinations: 9, max_in, max_out: 1 };
        let sizes = SizeInfo {
            vertices: vec![9; flow.vertex_types.len()],
            edges: vec![10_000; flow.graphs.len()],
            ends: vec![ends; flow.graphs.len()],
            ..SizeInfo::default()
        };
        explain(&program, Some((&sizes, &machine))).iter().any(|line| line.contains("are split: the longest"))
    };
    assert!(cut(4097), "one edge more than a piece");
    assert!(!cut(4096), "as many as a piece");
}

#[test]
fn explanations_tell_stored_values_from_those_on_the_way() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kernels/gathered_result.ir");
    let text = fs::read_to_string(path).expect("a readable case");
    let flow = parse(text.split_once("=>").expect("`=>`").0).expect("text");
    let lines = explain(&kernels(&flow, "gathered_result"), None);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("stores sum3, near") && lines[0].contains("not stored: 1;"), "{lines:#?}");
    assert!(lines[1].contains("stores far") && lines[1].contains("not stored: 0;"), "{lines:#?}");
}

/// Groups of `%2 = neg %1`, `%3 = exp %2`, each with a group of its own.
fn groups_of_two() -> (Dataflow, Groups) {
    let text = "dataflow d { vertex A from \"a\" input A.x : f32[A; 3] = features(A) %0 = input A.x : f32[A; 3] @FP \
                param p : f32[] = uniform(1.0) %1 = param p : f32[] @FP %2 = mul %0, %1 : f32[A; 3] @FP \
                %3 = exp %2 : f32[A; 3] @FP result y = %3 }";
    let flow = parse(text).expect("text");
    let unfused = flow.handles().collect();
    let mut groups = group(&flow, LoweringOptions::CPU, &unfused);
    store(&flow, &mut groups);
    assert_eq!((groups.verify(&flow), groups.launches.len()), (Ok(()), 2));
    (flow, groups)
}

fn broken(change: impl FnOnce(&mut Groups)) -> Vec<String> {
    let (flow, mut groups) = groups_of_two();
    change(&mut groups);
    groups.verify(&flow).expect_err("a broken rule")
}

#[test]
fn a_value_in_no_group_is_refused() {
    assert!(broken(|groups| drop(groups.launches.remove(0))).contains(&"%2 is in no group".into()));
}

#[test]
fn a_read_of_a_value_that_is_not_stored_is_refused() {
    let broken = broken(|groups| assert!(groups.stored.remove(&Value::new(2))));
    assert_eq!(broken, ["group g1 reads %2, which no earlier group stores"]);
}

#[test]
fn a_read_before_the_group_that_stores_is_refused() {
    assert_eq!(broken(|groups| groups.launches.reverse()), ["group g0 reads %2, which no earlier group stores"]);
}

#[test]
fn a_value_stored_twice_is_refused() {
    let broken = broken(|groups| groups.launches.insert(0, groups.launches[0].clone()));
    assert_eq!(broken, ["%2 is stored by several groups"]);
}

#[test]
fn an_output_that_is_not_stored_is_refused() {
    let broken = broken(|groups| assert!(groups.stored.remove(&Value::new(3))));
    assert_eq!(broken, ["%3 is an output, and not stored"]);
}

#[test]
fn a_value_that_varies_is_refused_in_the_prelude() {
    let broken = broken(|groups| groups.prelude = std::mem::take(&mut groups.launches));
    assert_eq!(broken, ["%2 is no invariant of the prelude", "%3 is no invariant of the prelude"]);
}
