//! Case files, `cases/PASS/NAME.ir`: a comment, perhaps `; sizes: vertices 4 3 edges 9 sources 2 destinations 3`
//! (of each vertex type, of each graph; ends may be left out), `; budget: 1000` (bytes of values) and
//! `; target: sm_90`, a program, `=>`, and the program after the pass and without what it
//! left unread; or `=> unchanged`. Of `precompute`, the program of the rows comes before that; programs of `narrow_exchanges` are
//! placed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use hgnnc_ir::batch::{BatchGraph, BatchLayout, WithinHops};
use hgnnc_ir::dataflow::GraphDecl;
use hgnnc_ir::{Dataflow, Graph, Op, UnaryOp, Value, VertexRows, VertexType, parse, print, verify};
use hgnnc_machine::Machine;
use hgnnc_passes::Endpoints;
use hgnnc_passes::dce::dce;
use hgnnc_passes::pipeline::{FORWARD, JOINT, MEMORY, MODEL, REORDER_VERTICES};
use hgnnc_passes::rematerialize::rematerialize;
use hgnnc_passes::{
    Disabled, NARROW_EXCHANGES, PRECOMPUTE, PassCx, PassManager, Precomputed, SizeInfo, UnknownName, narrow_exchanges,
    precompute,
};

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

fn budget(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("; budget: "))?;
    Some(line.parse().expect("a number of bytes"))
}

fn target(text: &str) -> Option<Machine> {
    let line = text.lines().find_map(|line| line.strip_prefix("; target: "))?;
    Some(Machine::sheet(line).expect("a machine that is known"))
}

fn read(path: &Path, text: &str) -> Dataflow {
    let flow = parse(text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
    if let Err(broken) = verify(&flow) {
        panic!("{}: {broken:#?}", path.display());
    }
    flow
}

/// The layout of a program of mini-batches with these tables: graphs say by their names that they have first rows.
fn layout(flow: &Dataflow) -> BatchLayout {
    let of_dataset = flow.vertex_types.iter().take_while(|decl| decl.rows == VertexRows::Dataset).count();
    let graph = |(index, decl): (usize, &GraphDecl)| match decl.name.starts_with("first(") {
        true => BatchGraph::First { rows: decl.dst },
        false => BatchGraph::Sampled { graph: Graph::new(index), hops: 0 },
    };
    BatchLayout {
        vertices: (0..of_dataset).map(|index| WithinHops { vertex: VertexType::new(index), hops: 0 }).collect(),
        graphs: flow.graphs.iter().enumerate().map(graph).collect(),
        ..BatchLayout::default()
    }
}

mod files {
    include!(concat!(env!("OUT_DIR"), "/cases.rs"));
}

/// The case `PASS/NAME.ir`. With `INSTA_UPDATE=always` its expected program is written anew.
fn case(file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file);
    let name = file.split_once('/').expect("a case lies in the folder of its pass").0;
    let text = fs::read_to_string(&path).expect("a readable case");
    let (before, expected) = text.split_once("=>").expect("`=>` between the programs");
    let mut flow = read(&path, before);
    let mut cx = PassCx { arena_budget: budget(&text), machine: target(&text), ..PassCx::new(sizes(&text)) };
    let found = if name == NARROW_EXCHANGES {
        cx.sizes.iter_mut().for_each(|sizes| sizes.derive(&flow));
        let layout = layout(&flow);
        let changed = narrow_exchanges(&mut flow, &layout, &mut cx);
        dce(&mut flow, &mut PassCx::default());
        changed.0.then(|| format!("\n{}", print(&flow)))
    } else if name == PRECOMPUTE {
        let parts = precompute(&flow, &BTreeSet::new());
        parts.map(|Precomputed { program, rest, .. }| format!("\n{}\n{}", print(&program), print(&rest)))
    } else {
        let mut lists = MODEL.iter().chain(FORWARD).chain(JOINT).chain(MEMORY);
        let pass = lists.find(|pass| pass.name == name).expect("a pass of the lists");
        let untouched = flow.clone();
        let changed = (pass.run)(&mut flow, &mut cx);
        assert_eq!(changed.0, flow != untouched, "{file}: reports whether it changed something");
        dce(&mut flow, &mut PassCx::default());
        changed.0.then(|| format!("\n{}", print(&flow)))
    };
    let found = found.unwrap_or_else(|| " unchanged\n".to_owned());
    if found != expected && std::env::var("INSTA_UPDATE").is_ok_and(|v| v == "always") {
        fs::write(&path, format!("{before}=>{found}")).expect("a writable case");
    } else {
        assert!(found == expected, "{file}\n=>{found}{}", cx.explain.join("\n"));
    }
}

#[test]
fn every_pass_has_cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for name in PassManager::names().into_iter().filter(|&name| name != REORDER_VERTICES) {
        let some = fs::read_dir(root.join(name)).is_ok_and(|mut files| files.next().is_some());
        assert!(some, "{name} has no case");
    }
}

#[test]
fn unknown_names_are_an_error_and_known_passes_are_disabled() {
    let disabled = |passes: &[&str], fusions: &[&str]| {
        let list = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Disabled { passes: list(passes), fusions: list(fusions) }
    };
    for (refused, expected) in [
        (disabled(&["simplify", "fuse"], &[]), UnknownName::Pass("fuse".into())),
        (disabled(&["rowwise"], &[]), UnknownName::Pass("rowwise".into())),
        (disabled(&["simplify"], &["rowwise", "cse"]), UnknownName::Fusion("cse".into())),
    ] {
        assert_eq!(PassManager::new(&refused), Err(expected));
    }

    let text = "dataflow d { param p : f32[] = uniform(1.0) %0 = param p : f32[] @FP %1 = neg %0 : f32[] @FP \
                %2 = neg %1 : f32[] @FP result a = %2 }";
    let original = parse(text).expect("text");
    for (disabled, num_values) in [(Disabled::default(), 1), (disabled(&["simplify"], &[]), 3)] {
        let mut flow = original.clone();
        PassManager::new(&disabled).expect("known").run_forward(&mut flow, &mut PassCx::default());
        assert_eq!(flow.values.len(), num_values, "{disabled:?}");
    }
}

/// Planning a large program takes long: nothing is recomputed that no budget asks for.
#[test]
fn large_programs_are_recomputed_under_a_budget_only() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/rematerialize/fires.ir");
    let text = fs::read_to_string(&path).expect("a readable case");
    let (before, _) = text.split_once("=>").expect("`=>` between the programs");
    let mut flow = read(&path, before);
    let cx = |arena_budget| PassCx { arena_budget, ..PassCx::new(sizes(&text)) };
    assert!(rematerialize(&mut flow.clone(), &mut cx(None)).0);
    let last = Value::new(flow.values.len() - 1);
    for _ in 0..6_000 {
        flow.add(Op::Unary(UnaryOp::Neg), &[last]);
    }
    let mut without = cx(None);
    assert!(!rematerialize(&mut flow.clone(), &mut without).0);
    assert!(without.explain[0].contains("only a memory budget"), "{:?}", without.explain);
    assert!(rematerialize(&mut flow, &mut cx(Some(0))).0);
}
