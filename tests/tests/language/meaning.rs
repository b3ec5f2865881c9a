//! The meaning of valid files: their parameters and semantic graphs by name, and the values of vertices without
//! messages as the reference states them, computed by the interpreter of the dataflow IR.

use std::collections::BTreeMap;
use std::fmt::Write;

use hgnnc_driver::{Analyzed, LowerOptions, lower};
use hgnnc_executable::Executable;
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::dataflow::Init;
use hgnnc_ir::{Dataflow, Dim, Input};
use hgnnc_tests::{case_text, check};

use crate::snapshot;

/// A test of each file of `cases/language`.
mod cases {
    include!(concat!(env!("OUT_DIR"), "/language.rs"));
}

/// The parameters, semantic graphs and batches of the model of a file.
fn case(file: &str) {
    let text = case_text("language", file);
    let outcome = check(file, &text);
    let Some(model) = &outcome.analysis.model else { panic!("{file}:\n{}", outcome.reports()) };
    let mut listing = String::new();
    for graph in &model.flow.graphs {
        let ends = [graph.src, graph.dst].map(|v| model.flow.vertex_types[v.index()].name.as_str());
        writeln!(listing, "graph {}: {} -> {}", graph.name, ends[0], ends[1]).expect("a string takes text");
    }
    for param in &model.flow.params {
        let dims: Vec<String> = param.dims.iter().map(|dim| extent(&model.flow, *dim)).collect();
        writeln!(listing, "param {}: [{}]", param.name, dims.join(", ")).expect("a string takes text");
    }
    listing.push_str(&batches(model));
    let reports = outcome.reports();
    snapshot(file, || {
        insta::assert_snapshot!("cases", format!("{text}\n---- reports ----\n{reports}\n---- tables ----\n{listing}"));
    });
}

/// The batches of training: size, and the fan-out of each semantic graph at each hop.
fn batches(model: &Analyzed) -> String {
    let lowered = lower(model, &LowerOptions::default()).expect("no pass is switched off");
    let Executable { training: Some(training), infer: flow, .. } = lowered.executable else { return String::new() };
    let Some(batch) = &training.batch else { return String::new() };
    let layout = lowered.executable.batch.expect("the program is that of a batch");
    assert_eq!(batch.fanouts.len(), layout.hops, "one for each hop that the program needs");
    let mut listing = match (training.links(), training.seeds()) {
        (Some(target), _) => format!("batch {} of links, {:?}\n", batch.size, target),
        (None, seeds) => {
            let seeds = seeds.expect("a batch has seeds");
            format!("batch {} of {}\n", batch.size, flow.vertex_types[seeds.index()].name)
        }
    };
    for (hop, fanouts) in batch.fanouts.iter().enumerate() {
        assert_eq!(fanouts.len(), flow.graphs.len(), "one for each graph of the table");
        for (graph, fanout) in flow.graphs.iter().zip(fanouts) {
            writeln!(listing, "hop {hop}, {}: {fanout}", graph.name).expect("a string takes text");
        }
    }
    listing
}

fn extent(flow: &Dataflow, dim: Dim) -> String {
    match dim {
        Dim::Fixed(extent) => extent.to_string(),
        Dim::Count(vertex) => format!("|{}|", flow.vertex_types[vertex.index()].name),
    }
}

/// Four papers, two authors. Paper 0 cites nothing and has no author; paper 1 has both authors, author 0 twice;
/// papers 2 and 3 cite each other, and 3 cites 1.
const EDGES: &[(&str, &[(u32, u32)])] = &[
    ("writes", &[(0, 1), (0, 1), (1, 1)]),
    ("cites", &[(3, 1), (3, 2), (2, 3)]),
    ("reverse_writes", &[(1, 0), (1, 0), (1, 1)]),
];

const PAPERS: [f64; 4] = [1.0, -2.0, -3.0, 5.0];
const AUTHORS: [f64; 2] = [-7.0, -11.0];

/// The value of each paper after a layer without parameters.
fn papers(over: &str, aggregate: &str, fuse: &str) -> Vec<f64> {
    let text = format!(
        "schema S {{
    vertex Paper {{ x: f32 }}
    vertex Author {{ x: f32 }}
    relation writes: Author -> Paper
    relation cites: Paper -> Paper
}}
layer L() over graphs: [*] of x: *[in] -> *[1] {{
    aggregate e: g in graphs {{
        z = {aggregate}
    }}
    fuse v: * across graphs {{
        out = {fuse}
    }}
}}
model M(schema: S) {{
    let h = L() over {over} of features
    output result: Paper = h.Paper
}}
"
    );
    let outcome = check("meaning.hgnn", &text);
    let Some(model) = &outcome.analysis.model else { panic!("{text}\n{}", outcome.reports()) };
    let flow = &model.flow;
    let bindings = bindings(flow);
    let evaluation = run(flow, &bindings).unwrap_or_else(|e| panic!("{text}\n{e}"));
    evaluation[flow.result("result").expect("the output is a result")].data.clone()
}

fn bindings(flow: &Dataflow) -> Bindings {
    let edges = flow.graphs.iter().map(|graph| {
        let (_, edges) = EDGES.iter().find(|(name, _)| *name == graph.name).expect("its edges are given");
        let mut edges = edges.to_vec();
        edges.sort_by_key(|(src, dst)| (*dst, *src));
        edges
    });
    let inputs: BTreeMap<Input, Tensor> = (flow.inputs.iter().enumerate())
        .map(|(index, input)| {
            let column = if input.name == "Paper.x" { PAPERS.to_vec() } else { AUTHORS.to_vec() };
            (Input::new(index), Tensor::new(column.len(), 1, column))
        })
        .collect();
    Bindings { num_vertices: vec![4, 2], edges: edges.collect(), inputs, ..Bindings::default() }
}

fn assert_near(found: &[f64], expected: &[f64]) {
    let near = |a: f64, b: f64| a == b || (a - b).abs() < 1e-9;
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| near(*a, *b)),
        "{found:?} is not {expected:?}"
    );
}

#[test]
fn messages_go_from_source_to_destination() {
    assert_near(&papers("[cites]", "sum(e.src.x) over in_edges", "sum(v.z) across graphs"), &[0.0, 5.0, 5.0, -3.0]);
    let degree = "sum(1 * e.dst.in_degree) over in_edges";
    assert_near(
        &papers("[cites]", &format!("reshape({degree}, [1])"), "sum(v.z) across graphs"),
        &[0.0, 1.0, 1.0, 1.0],
    );
}

#[test]
fn duplicate_edges_each_send_a_message() {
    assert_near(&papers("[writes]", "sum(e.src.x) over in_edges", "sum(v.z) across graphs"), &[0.0, -25.0, 0.0, 0.0]);
    assert_near(
        &papers("[writes]", "mean(e.src.x) over in_edges", "sum(v.z) across graphs"),
        &[0.0, -25.0 / 3.0, 0.0, 0.0],
    );
}

#[test]
fn without_in_edges_reductions_are_zero() {
    // The maximum of negative numbers stays negative where there are edges.
    assert_near(&papers("[writes]", "max(e.src.x) over in_edges", "sum(v.z) across graphs"), &[0.0, -7.0, 0.0, 0.0]);
    assert_near(&papers("[writes]", "min(e.src.x) over in_edges", "sum(v.z) across graphs"), &[0.0, -11.0, 0.0, 0.0]);
    let none = f64::NEG_INFINITY;
    assert_near(
        &papers("[cites]", "logsumexp(e.src.x) over in_edges", "sum(v.z) across graphs"),
        &[none, 5.0, 5.0, -3.0],
    );
    let softmax = "sum(softmax(e.src.x) over in_edges) over in_edges";
    assert_near(&papers("[writes]", softmax, "sum(v.z) across graphs"), &[0.0, 1.0, 0.0, 0.0]);
}

#[test]
fn across_means_all_in_edges_together() {
    let both = "[writes, cites]";
    let shares = "sum(softmax(e.src.x) over in_edges across graphs) over in_edges";
    assert_near(&papers(both, shares, "sum(v.z) across graphs"), &[0.0, 1.0, 1.0, 1.0]);
    // Four in-edges of paper 1: -7, -7, -11 from authors, 5 from a paper.
    assert_near(&papers(both, "mean(e.src.x) over in_edges across graphs", "v.z"), &[0.0, -5.0, 5.0, -3.0]);
    assert_near(&papers(both, "max(e.src.x) over in_edges across graphs", "v.z"), &[0.0, 5.0, 5.0, -3.0]);
    // The mean across semantic graphs counts a graph that brings nothing.
    assert_near(&papers(both, "sum(e.src.x) over in_edges", "mean(v.z) across graphs"), &[0.0, -10.0, 2.5, -1.5]);
}

#[test]
fn vertices_of_a_type_reduce_to_a_single_row() {
    let centred = "v.x - mean(v.x) over vertices";
    assert_near(&papers("[cites]", "e.src.x", centred), &[0.75, -2.25, -3.25, 4.75]);
}

#[test]
fn no_semantic_graph_gives_zero() {
    // No message reaches a paper; what it has itself stays.
    assert_near(&papers("[reverse(writes)]", "sum(e.src.x) over in_edges", "v.x + sum(v.z) across graphs"), &PAPERS);
}

#[test]
fn learned_rows_have_the_initial_values_that_are_written() {
    let text = "
const scale = 0.5
schema S {
    vertex Paper {
        a: embedding[3],
        b: embedding[4] = uniform(0.1),
        c: embedding[5] = normal(2 * scale),
        d: embedding[6] = zeros,
        e: embedding[7] = he,
    }
}
model M(schema: S) {
    output y: Paper = concat(Paper.a, Paper.b, Paper.c, Paper.d, Paper.e)
}
";
    let outcome = check("initial.hgnn", text);
    let Some(model) = &outcome.analysis.model else { panic!("{}", outcome.reports()) };
    let rows = Dim::Count(hgnnc_ir::VertexType(0));
    let found: Vec<(&str, Init)> = model.flow.params.iter().map(|param| (&param.name[..], param.init)).collect();
    let expected = [
        ("Paper.a", Init::Glorot { fan_in: rows, fan_out: 3 }),
        ("Paper.b", Init::Uniform(0.1)),
        ("Paper.c", Init::Normal { std: 1.0 }),
        ("Paper.d", Init::Constant(0.0)),
        ("Paper.e", Init::He { fan_in: rows }),
    ];
    assert_eq!(found, expected);
}
