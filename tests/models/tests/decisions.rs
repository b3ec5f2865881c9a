//! Decisions that a forward and a backward pass share: which edge attains a maximum, on which side of 0 a relu is. The
//! engine in f32 against the interpreter of the written program in f64, at every vector width, with all passes and with
//! none.
//!
//! A binary of its own: vector widths are a matter of the whole process.

use hgnnc_cpu::EngineOptions;
use hgnnc_driver::LowerOptions;
use hgnnc_fusion::FusionRule;
use hgnnc_ir::{Dataflow, OutputKind};
use hgnnc_kernels::simd::{self, Dispatch};
use hgnnc_model_tests::cases::{self, SCHEMA, TRAIN};
use hgnnc_model_tests::compiled::{Compiled, compile, interpret};
use hgnnc_model_tests::{World, assert_close, engine, worlds};
use hgnnc_passes::{Disabled, PassManager};

/// As for whole models (`differential.rs`).
const TOLERANCE: f64 = 2e-5;

/// Bodies of an `aggregate` block: its projected source is `e.src.h`, its scores are `score` and `own`, of the
/// destination alone.
const MESSAGES: &[(&str, &str)] = &[
    ("max of a softmax", "z = max(softmax(score) over in_edges * e.src.h) over in_edges"),
    ("min of a softmax", "z = min(softmax(score) over in_edges * e.src.h) over in_edges"),
    ("max of a softmax of all graphs", "z = max((softmax(score) over in_edges across graphs) * e.src.h) over in_edges"),
    ("max of gates", "z = max(sigmoid(score) * e.src.h) over in_edges"),
    ("logsumexp of a softmax", "z = max(logsumexp(softmax(score) over in_edges * e.src.h) over in_edges, -1)"),
    ("relu of a softmax", "z = sum(relu(softmax(score) over in_edges * e.src.h)) over in_edges"),
    (
        "max and sum of one softmax",
        "let alpha = softmax(score) over in_edges
        z = max(alpha * e.src.h) over in_edges + sum(alpha * e.src.h) over in_edges",
    ),
    ("larger of message and own value", "z = sum(max(softmax(score) over in_edges * e.src.h, e.dst.h)) over in_edges"),
    ("max of dropped messages", "z = max(dropout(softmax(score) over in_edges, 0.4) * e.src.h) over in_edges"),
    ("softmax of the destination alone", "z = sum(softmax(own) over in_edges * e.src.h) over in_edges"),
    ("softmax and message of the destination alone", "z = sum(softmax(own) over in_edges * e.dst.h) over in_edges"),
    ("divided by the degree of the source", "z = sum(e.src.h / sqrt(e.src.out_degree)) over in_edges"),
    (
        "divided by the degree of the destination",
        "z = sum(e.src.h * log(e.dst.in_degree) / e.dst.in_degree) over in_edges",
    ),
];

fn model(messages: &str) -> Compiled {
    compile(&format!(
        "layer Messages(hidden: dim) over graphs: [*] of x: *[in] -> *[hidden]
{{
    project v: * {{
        param w: [in, hidden] = glorot
        h = v.x @ w
    }}
    aggregate e: g in graphs {{
        param a: [hidden] = glorot
        param b: [hidden] = glorot
        let own = dot(e.dst.h, b)
        let score = leaky_relu(dot(e.src.h, a) + own, 0.2)
        {messages}
    }}
    fuse v: * across graphs {{
        out = v.h + sum(v.z) across graphs
    }}
}}
{SCHEMA}
model M(schema: Library) {{
    let h = Messages(hidden: 4) over [cites, writes, PAP] of features
    output y: Paper = linear(h, 3)
}}
{TRAIN}"
    ))
}

fn agrees(dispatch: Dispatch, what: &str, program: &Dataflow, compiled: &Compiled, world: &World) {
    let oracle = compiled.training();
    let bindings = compiled.bind(world);
    let exact = interpret(oracle, &bindings);
    let found =
        engine::run_with(program, &bindings, EngineOptions { threads: 2, dispatch, ..EngineOptions::default() });
    let mut compared = 0;
    for output in &oracle.outputs {
        let OutputKind::UpdateParam(param) = output.kind else { continue };
        let name = format!("new {}", oracle.params[param.index()].name);
        let Some(numbers) = found.get(&name) else { continue };
        let numbers: Vec<f64> = numbers.iter().map(|&x| f64::from(x)).collect();
        assert_close(&format!("{what}: {name}"), &numbers, &exact[output.value].data, TOLERANCE);
        compared += 1;
    }
    assert!(compared > 2, "{what}: {compared} parameters are updated");
}

#[test]
fn forward_and_backward_passes_agree_on_them() {
    let everything = Disabled {
        passes: PassManager::names().into_iter().map(String::from).collect(),
        fusions: FusionRule::ALL.map(|rule| rule.name().to_owned()).to_vec(),
    };
    for (name, messages) in MESSAGES {
        let compiled = model(messages);
        for world in cases::worlds(worlds(4)) {
            let lowered = |disabled: Disabled, arena_budget| {
                let options = LowerOptions { disabled, arena_budget, ..LowerOptions::default() };
                compiled.lowered(&world, options).train.expect("a train block")
            };
            let programs = [
                ("as written", compiled.training().clone()),
                ("without passes", lowered(everything.clone(), None)),
                ("optimised", lowered(Disabled::default(), None)),
                ("recomputing all that can be", lowered(Disabled::default(), Some(0))),
            ];
            for level in simd::available() {
                let dispatch = Dispatch::default().at_most(level);
                for (which, program) in &programs {
                    let what = format!("{name}, world {}, {which}, {level:?}", world.seed);
                    agrees(dispatch, &what, program, &compiled, &world);
                }
            }
        }
    }
}
