//! Recurrences over in-edges: against loops, with gradients, on the engine.

use hgnnc_model_tests::cases;
use hgnnc_model_tests::compiled::kept_of;
use hgnnc_model_tests::plain::{
    Graph, Plain, Rows, Typed, Weight, add, dot, each, leaky, relu, sigmoid, softmax, times,
};
use hgnnc_model_tests::{assert_close, compile, worlds};

use crate::language::means;
use crate::layers::{agrees, features, pap};

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

/// Hochreiter & Schmidhuber (1997): i, f, g, o of each in-neighbour in turn, and the outputs behind each of them.
fn lstm(gates: &[Vec<f64>], recurrent: &Weight) -> Rows {
    let width = gates.first().map_or(0, Vec::len) / 4;
    let (mut h, mut cell, mut outputs) = (vec![0.0; width], vec![0.0; width], vec![]);
    for given in gates {
        let gates = add(given, &recurrent.apply(&h));
        for d in 0..width {
            let part = |gate: usize| gates[gate * width + d];
            cell[d] = sigmoid(part(1)) * cell[d] + sigmoid(part(0)) * part(2).tanh();
            h[d] = sigmoid(part(3)) * cell[d].tanh();
        }
        outputs.push(h.clone());
    }
    outputs
}

/// The sources of the in-edges of a vertex, of at most so many.
pub fn sources(graph: &Graph, vertex: usize, limit: u32) -> Vec<usize> {
    let edges: Vec<(u32, u32)> = graph.edges.iter().map(|&(src, dst)| (src as u32, dst as u32)).collect();
    let kept = kept_of(&edges, limit).into_iter().filter(|edge| edge.1 as usize == vertex);
    kept.map(|edge| edge.0 as usize).collect()
}

/// §3.3: the last output of an LSTM over the in-neighbours, in the order of their numbers.
#[test]
fn sage_with_an_lstm_is_the_paper() {
    let conv = |p: &Plain<'_>, of: &str, graphs: &[Graph], limit: u32, x: &Typed| -> Rows {
        let w_self = p.param(&format!("{of}.w_self.Paper"));
        let mut out: Rows =
            x["Paper"].iter().map(|x| add(&w_self.apply(x), p.vector(&format!("{of}.b.Paper")))).collect();
        for graph in graphs {
            let param = |name: &str| p.param(&format!("{of}.{name}.{}", graph.name));
            for (i, row) in out.iter_mut().enumerate() {
                let of_source = |j: usize| add(&param("w_x").apply(&x[graph.src][j]), &param("b_gates").data);
                let gates: Rows = sources(graph, i, limit).into_iter().map(of_source).collect();
                if let Some(last) = lstm(&gates, param("w_h")).last() {
                    *row = add(row, &param("w").apply(last));
                }
            }
        }
        out
    };
    agrees("sage_lstm", |p| {
        let cites = || p.relation("cites", "Paper", "Paper");
        let first = conv(p, "first", &[cites(), pap(p), p.relation("writes", "Author", "Paper")], 3, &features(p));
        let first = Typed::from([("Paper", each(&first, relu))]);
        conv(p, "y", &[cites()], 3, &first)
    });
}

/// HetGNN (Zhang et al., KDD 2019), eq. 4 to 6.
#[test]
fn het_gnn_is_the_paper() {
    agrees("het_gnn", |p| {
        let x = features(p);
        let encoded = |vertex: &str| -> Rows {
            let (w, b) = (p.param(&format!("conv.w.{vertex}")), p.vector(&format!("conv.b.{vertex}")));
            x[vertex].iter().map(|x| add(&w.apply(x), b)).collect()
        };
        let h = Typed::from([("Paper", encoded("Paper")), ("Author", encoded("Author"))]);
        let graphs = [pap(p), p.relation("cites", "Paper", "Paper"), p.relation("writes", "Author", "Paper")];
        let of_vertex = |i: usize| {
            let own = &h["Paper"][i];
            let mut all: Rows = vec![];
            for graph in &graphs {
                let param = |name: &str| p.param(&format!("conv.{name}.{}", graph.src));
                let of_source = |j: usize| add(&param("w_x").apply(&h[graph.src][j]), &param("b_gates").data);
                let mut gates: Rows = sources(graph, i, 3).into_iter().map(of_source).collect();
                let half = |gates: &Rows, back: bool| -> Rows {
                    gates.iter().map(|row| row[if back { 4 } else { 0 }..][..4].to_vec()).collect()
                };
                let forth = lstm(&half(&gates, false), param("w_forth"));
                gates.reverse();
                let back = lstm(&half(&gates, true), param("w_back"));
                let mean = |rows: &Rows| rows.iter().map(|row| row[0]).sum::<f64>() / rows.len().max(1) as f64;
                all.push(vec![mean(&forth), mean(&back)]);
            }
            all.push(own.clone());
            let score = |row: &Vec<f64>| {
                leaky(p.param("conv.a.Paper").apply(row)[0] + dot(own, p.vector("conv.a_self.Paper")), 0.01)
            };
            let alpha = softmax(&all.iter().map(score).collect::<Vec<_>>());
            alpha.iter().zip(&all).fold(vec![0.0; 2], |sum, (alpha, row)| add(&sum, &times(*alpha, row)))
        };
        let out: Rows = (0..p.count("Paper")).map(of_vertex).collect();
        p.linear("y", "", &out)
    });
}
