//! Recurrences over in-edges: against loops, with gradients, on the engine.

use hgnnc_model_tests::cases;
use hgnnc_model_tests::compiled::kept_of;
use hgnnc_model_tests::plain::{Plain, Rows, add, sigmoid, times};
use hgnnc_model_tests::{assert_close, compile, worlds};

use crate::language::means;

/// A layer over `r` and `s` whose in-edges are folded.
fn layer(statements: &str) -> String {
    format!(
        "layer L() over graphs: [*] of x: *[in] -> *[3] {{
            project v: * {{ param w: [in, 3] = glorot  h = v.x @ w }}
            aggregate e: g in graphs {{ {statements} }}
            fuse v: * across graphs {{ out = sum(v.z) across graphs }}
        }}"
    )
}

/// For each vertex of `A`, the sum over `r` and `s` of the last states, which begin with 3 zeros or with `first`.
fn folded(
    p: &Plain<'_>,
    (limit, backwards): (u32, bool),
    first: impl Fn(&[f64]) -> Vec<f64>,
    step: impl Fn(&[f64], &[f64], &str) -> Vec<f64>,
) -> Rows {
    let [a, b] = ["A", "B"].map(|v| -> Rows {
        let rows = p.input(&format!("{v}.x"));
        rows.iter().map(|x| p.param(&format!("z.w.{v}")).apply(x)).collect()
    });
    let of_vertex = |i: usize| {
        let mut sum = vec![0.0; 3];
        for (name, src, rows) in [("r", "B", &b), ("s", "A", &a)] {
            let edges = p.relation(name, src, "A").edges;
            let edges: Vec<(u32, u32)> = edges.iter().map(|&(src, dst)| (src as u32, dst as u32)).collect();
            let mut sources: Vec<u32> =
                kept_of(&edges, limit).iter().filter(|edge| edge.1 == i as u32).map(|edge| edge.0).collect();
            if backwards {
                sources.reverse();
            }
            let begin = first(&a[i]);
            let last = sources.iter().fold(begin, |state, &source| step(&state, &rows[source as usize], name));
            sum = add(&sum, &last[..3]);
        }
        sum
    };
    (0..p.count("A")).map(of_vertex).collect()
}

#[test]
fn a_step_is_taken_for_each_in_edge() {
    let statements = "param u: [3, 3]
        let turned = tanh(before @ u)
        z = fold(e.dst.h, turned * turned + e.src.h) over in_edges";
    for (limit, reverse) in [(1, false), (2, false), (4, false), (4, true)] {
        let statements = statements.replace("e.src.h)", &format!("e.src.h, reverse: {reverse})"));
        means(&layer(&statements), &format!("L() over [r, s] at most {limit} per vertex of features"), |p| {
            folded(p, (limit, reverse), <[f64]>::to_vec, |state, x, name| {
                let turned = p.param(&format!("z.u.{name}")).apply(state);
                turned.iter().zip(x).map(|(t, x)| t.tanh().powi(2) + x).collect()
            })
        });
    }
}

/// Hochreiter & Schmidhuber (1997) with a forget gate: i, f, o = σ(…), c' = f c + i tanh(…), h' = o tanh(c').
#[test]
fn an_lstm_is_the_published_one() {
    let lstm = "param w_x: [3, 12]
        param w_h: [3, 12]
        param b: [12] = uniform(0.5)
        let gates = e.src.h @ w_x + before[..3] @ w_h + b
        let cell = sigmoid(gates[3..6]) * before[3..] + sigmoid(gates[..3]) * tanh(gates[6..9])
        z = fold(zeros([6]), concat(sigmoid(gates[9..]) * tanh(cell), cell)) over in_edges [..3]";
    let lstm = lstm.replace("z = fold", "let last = fold").replace(" [..3]", "\n z = last[..3]");
    means(&layer(&lstm), "L() over [r, s] at most 3 per vertex of features", |p| {
        folded(
            p,
            (3, false),
            |_| vec![0.0; 6],
            |state, x, name| {
                let of = |what: &str, x: &[f64]| p.param(&format!("z.{what}.{name}")).apply(x);
                let gates = add(&add(&of("w_x", x), &of("w_h", &state[..3])), p.vector(&format!("z.b.{name}")));
                let cell = |d: usize| sigmoid(gates[3 + d]) * state[3 + d] + sigmoid(gates[d]) * gates[6 + d].tanh();
                let hidden = |d: usize| sigmoid(gates[9 + d]) * cell(d).tanh();
                (0..3).map(hidden).chain((0..3).map(cell)).collect()
            },
        )
    });
}

/// A family may have different limits.
#[test]
fn each_graph_has_its_own_limit() {
    let sum = layer("z = fold(zeros([3]), before + 0.5 * before * e.src.h + e.src.h) over in_edges");
    means(&sum, "L() over [r at most 1 per vertex, s at most 1 per vertex] of features", |p| {
        folded(
            p,
            (1, false),
            |_| vec![0.0; 3],
            |state, x, _| {
                let weighted: Vec<f64> = state.iter().zip(x).map(|(s, x)| 0.5 * s * x).collect();
                add(&add(state, &weighted), x)
            },
        )
    });
    let source = |over: &str| {
        let schema = cases::SCHEMA;
        format!(
            "{schema} {sum} model M(schema: Library) {{
                let z = L() over {over} of linear(features, 3)
                output y: Paper = z.Paper
            }}"
        )
    };
    for world in cases::worlds(worlds(6)) {
        let of = |over: &str| compile(&source(over)).output(&world, "y").data;
        let both = of("[cites at most 3 per vertex, PAP at most 5 per vertex]");
        let [first, second] = ["cites at most 3 per vertex", "PAP at most 5 per vertex"].map(of);
        assert_close("different limits", &both, &add(&first, &second), 1e-10);
    }
}

/// A sum is the reduction over the same edges, with the degrees of these.
#[test]
fn a_fold_that_adds_is_a_sum() {
    let source = |statement: &str| {
        let schema = cases::SCHEMA;
        format!(
            "{schema}
            layer L() over graphs: [U -> V] of x: *[in] -> V[in] {{
                aggregate e: g in graphs {{ z = {statement} over in_edges }}
                fuse v: V across graphs {{ out = sum(v.z) across graphs }}
            }}
            model M(schema: Library) {{ output y: Paper = L() over writes at most 2 per vertex of linear(features, 3) }}"
        )
    };
    let value = "e.src.x / e.dst.in_degree";
    for world in cases::worlds(worlds(6)) {
        let of = |statement: &str| compile(&source(statement)).output(&world, "y").data;
        let folded = of(&format!("fold(zeros([3]), before + {value})"));
        assert_close("sum", &folded, &of(&format!("sum({value})")), 1e-10);
        assert_close("twice", &times(2.0, &folded), &of(&format!("fold(zeros([3]), before + 2 * {value})")), 1e-10);
    }
}
