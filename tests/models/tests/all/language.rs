//! The meaning of constructs of the language, beyond those that the standard layers use: edge data, counted metapaths,
//! every reduction in every scope, norms, parameters per semantic graph, per end type and shared.
//!
//! Each is a small layer, compared with loops (1e-10), with its gradients (1e-6) and on the engine (2e-5).

use hgnnc_dataset::{Dataset, DenseFeatures, Features, RelationData, VertexTypeData};
use hgnnc_ir::dataflow::Binding;
use hgnnc_model_tests::plain::{Plain, Rows, add, dot, times, zeros};
use hgnnc_model_tests::world::Edges;
use hgnnc_model_tests::{World, assert_close, compile};

use crate::differential::engine_agrees;
use crate::gradients::gradients_are_differences;
use crate::times::inference;

pub const SCHEMA: &str = "
schema S {
    vertex A { x: f32[3], topic: class[2] }
    vertex B { x: f32[2] }
    relation r: B -> A { weight: f32, kind: f32[3] }
    relation s: A -> A { weight: f32, kind: f32[3] }
    metapath ABA = counted A <-r- B -r-> A
}";

const TRAIN: &str = "train M { loss cross_entropy(y, A.topic) optimizer sgd(lr: 0.1) epochs 1 }";

pub fn worlds() -> Vec<World> {
    let written_down = World::new(
        1,
        &[("A", 5), ("B", 3)],
        &[("r", &[(0, 0), (1, 0), (1, 0), (2, 3), (0, 1)]), ("s", &[(0, 0), (2, 1), (3, 1), (1, 3), (1, 3)])],
    );
    let lonely = World::new(2, &[("A", 1), ("B", 1)], &[("r", &[(0, 0)]), ("s", &[])]);
    vec![written_down.clone(), written_down.without_edges(), lonely]
}

/// `z` is what the layer computes for `A`, of the width that the layer says; the output is a linear map of it.
#[track_caller]
pub fn means(layer: &str, using: &str, reference: impl Fn(&Plain<'_>) -> Rows) {
    let source = format!(
        "{SCHEMA}\n{layer}\nmodel M(schema: S) {{\n let z = {using}\n output y: A = linear(z.A, 2)\n output out: A = z.A\n}}\n{TRAIN}"
    );
    let compiled = compile(&source);
    for (position, world) in worlds().into_iter().enumerate() {
        let what = format!("{using}, world {position}");
        let expected = reference(&Plain::of(&compiled, &world));
        assert_close(&what, &compiled.output(&world, "out").data, &expected.concat(), 1e-10);
        let bindings = compiled.bind(&world);
        gradients_are_differences(&what, &compiled.model.flow, &bindings);
        engine_agrees(&what, &compiled.infer, &compiled.infer, &bindings);
        engine_agrees(&what, compiled.training(), compiled.training(), &bindings);
        let optimised = compiled.optimised(&world);
        engine_agrees(&what, &optimised.infer, &compiled.infer, &bindings);
        engine_agrees(&what, optimised.train.as_ref().expect("trained"), compiled.training(), &bindings);
    }
}

/// Each time of a repetition has its own parameters, and a parameter in front of it is one; a field that is assigned again
/// has another value for the blocks behind.
#[test]
fn blocks_are_repeated() {
    let layer = "layer L(steps: dim) over graphs: [V -> V] of x: V[in] -> V[3] {
        param shared: [3, 3]
        project v: V { param w: [in, 3] h = v.x @ w }
        repeat steps {
            aggregate e: g in graphs { param w: [3, 3] z = sum(e.src.h @ w) over in_edges }
            repeat 2 {
                fuse v: V across graphs { h = tanh(sum(v.z) across graphs + linear(v.h, 3, bias: false) + v.h @ shared) }
            }
        }
        fuse v: V across graphs { out = v.h }
    }";
    means(layer, "L(steps: 2) over s of A.x", |p: &Plain<'_>| {
        let apply = |name: &str, rows: &Rows| -> Rows { rows.iter().map(|x| p.param(name).apply(x)).collect() };
        let mut h = apply("z.project.w", &p.input("A.x"));
        for (own, linear) in [("", ["z.h", "z.h_2"]), ("_2", ["z.h_3", "z.h_4"])] {
            let mut z = zeros(h.len(), 3);
            let sent = apply(&format!("z.aggregate.w{own}.s"), &h);
            p.edges("s").into_iter().for_each(|(j, i)| z[i] = add(&z[i], &sent[j]));
            for linear in linear {
                let (own, shared) = (apply(&format!("{linear}.weight"), &h), apply("z.shared", &h));
                let next = |i: usize| -> Vec<f64> {
                    add(&z[i], &add(&own[i], &shared[i])).into_iter().map(f64::tanh).collect()
                };
                h = (0..h.len()).map(next).collect();
            }
        }
        h
    });
}

/// A layer over `graphs` from any types to any, with `h = x w` of width 3 and the given statements.
fn layer(aggregate: &str, fuse: &str, width: &str) -> String {
    format!(
        "layer L() over graphs: [*] of x: *[in] -> *[{width}] {{
            project v: * {{ param w: [in, 3] = glorot  h = v.x @ w }}
            aggregate e: g in graphs {{ {aggregate} }}
            fuse v: * across graphs {{ {fuse} }}
        }}"
    )
}

const BOTH: &str = "L() over [r, s] of features";

/// The projected rows of both types.
fn projected(p: &Plain<'_>) -> [Rows; 2] {
    ["A", "B"].map(|v| {
        let x = p.input(&format!("{v}.x"));
        x.iter().map(|x| p.param(&format!("z.w.{v}")).apply(x)).collect()
    })
}

/// In-edges of a vertex in `r` and in `s`: (source row, position of the edge).
fn in_edges(p: &Plain<'_>, h: &[Rows; 2], i: usize) -> [Vec<(Vec<f64>, usize)>; 2] {
    [("r", 1, "B"), ("s", 0, "A")].map(|(name, of, src)| {
        let graph = p.relation(name, src, "A");
        let all = graph.edges.iter().enumerate().filter(|(_, e)| e.1 == i);
        all.map(|(position, e)| (h[of][e.0].clone(), position)).collect()
    })
}

fn column(rows: &[(Vec<f64>, usize)], d: usize) -> impl Iterator<Item = f64> {
    rows.iter().map(move |(row, _)| row[d])
}

fn log_sum_exp(x: impl Iterator<Item = f64>) -> f64 {
    x.map(f64::exp).sum::<f64>().ln()
}

/// For each vertex of `A` and each of three columns.
fn per_element(p: &Plain<'_>, f: impl Fn(usize, usize) -> f64) -> Rows {
    (0..p.count("A")).map(|i| (0..3).map(|d| f(i, d)).collect()).collect()
}

fn variance(x: &[f64]) -> f64 {
    let count = x.len().max(1) as f64;
    let mean = x.iter().sum::<f64>() / count;
    x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count
}

#[test]
fn variance_over_every_scope() {
    let each = layer("z = variance(e.src.h) over in_edges", "out = sum(v.z) across graphs", "3");
    means(&each, BOTH, |p| {
        let h = projected(p);
        per_element(p, |i, d| {
            in_edges(p, &h, i).iter().map(|rows| variance(&column(rows, d).collect::<Vec<_>>())).sum()
        })
    });
    let together = layer("z = variance(e.src.h) over in_edges across graphs", "out = v.z", "3");
    means(&together, BOTH, |p| {
        let h = projected(p);
        per_element(p, |i, d| variance(&in_edges(p, &h, i).iter().flat_map(|rows| column(rows, d)).collect::<Vec<_>>()))
    });
    let across = layer("z = sum(e.src.h) over in_edges", "out = variance(v.z) across graphs", "3");
    means(&across, BOTH, |p| {
        let h = projected(p);
        per_element(p, |i, d| variance(&in_edges(p, &h, i).map(|rows| column(&rows, d).sum::<f64>())))
    });
    let of_rows = "layer L() of x: V[in] -> V[3] {
        project v: V {
            param w: [in, 3] = glorot
            let h = v.x @ w
            out = h * variance(h) over vertices + variance(h) over last
        }
    }";
    means(of_rows, "L() of A.x", |p| {
        let h = &projected_by(p, "z.w");
        per_element(p, |i, d| h[i][d] * variance(&h.iter().map(|row| row[d]).collect::<Vec<_>>()) + variance(&h[i]))
    });
}

/// The rows of `A` by a shared weight.
fn projected_by(p: &Plain<'_>, weight: &str) -> Rows {
    p.input("A.x").iter().map(|x| p.param(weight).apply(x)).collect()
}

#[test]
fn reductions_over_the_in_edges_of_each_graph() {
    type Reduction = fn(&[(Vec<f64>, usize)], usize) -> f64;
    let all: [(&str, Reduction); 4] = [
        ("sum", |rows, d| column(rows, d).sum()),
        ("mean", |rows, d| column(rows, d).sum::<f64>() / rows.len().max(1) as f64),
        ("max", |rows, d| if rows.is_empty() { 0.0 } else { column(rows, d).fold(f64::MIN, f64::max) }),
        ("min", |rows, d| if rows.is_empty() { 0.0 } else { column(rows, d).fold(f64::MAX, f64::min) }),
    ];
    for (name, reduction) in all {
        let text = layer(&format!("z = {name}(e.src.h) over in_edges"), "out = sum(v.z) across graphs", "3");
        means(&text, BOTH, |p| {
            let h = projected(p);
            per_element(p, |i, d| in_edges(p, &h, i).iter().map(|rows| reduction(rows, d)).sum())
        });
    }
}

#[test]
fn reductions_over_the_in_edges_of_all_graphs_together() {
    type Reduction = fn(&[(Vec<f64>, usize)], usize) -> f64;
    let all: [(&str, Reduction); 4] = [
        ("sum", |rows, d| column(rows, d).sum()),
        ("mean", |rows, d| column(rows, d).sum::<f64>() / rows.len().max(1) as f64),
        ("max", |rows, d| if rows.is_empty() { 0.0 } else { column(rows, d).fold(f64::MIN, f64::max) }),
        ("min", |rows, d| if rows.is_empty() { 0.0 } else { column(rows, d).fold(f64::MAX, f64::min) }),
    ];
    for (name, reduction) in all {
        // `B` has no in-edges, so the reduced field exists for `A` alone.
        let text = format!(
            "layer L() over graphs: [U -> V] of x: U[in] -> V[3] {{
                project v: U {{ param w: [in, 3] = glorot  h = v.x @ w }}
                aggregate e: g in graphs {{ z = {name}(e.src.h * e.weight) over in_edges across graphs }}
                fuse v: V across graphs {{ out = v.z }}
            }}"
        );
        means(&text, "L() over [s, reverse(s)] of A.x", |p| {
            let x = p.input("A.x");
            let h: Rows = x.iter().map(|x| p.param("z.w").apply(x)).collect();
            let mut rows: Vec<Vec<(Vec<f64>, usize)>> = vec![vec![]; p.count("A")];
            for name in ["s", "reverse_s"] {
                let weight = p.input(&format!("{name}.weight"));
                for (position, &(j, i)) in p.relation(name, "A", "A").edges.iter().enumerate() {
                    rows[i].push((times(weight[position][0], &h[j]), position));
                }
            }
            per_element(p, |i, d| reduction(&rows[i], d))
        });
    }
}

#[test]
fn log_sum_exp_over_in_edges() {
    // Over nothing it is -∞, whose share of a sum of exponentials is 0.
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[in] {
        aggregate e: g in graphs { z = logsumexp(e.src.x) over in_edges }
        fuse v: V across graphs { out = exp(logsumexp(v.z) across graphs) }
    }";
    means(text, "L() over [s, reverse(s)] of linear(A.x, 3)", |p| {
        let x = p.linear("z", "", &p.input("A.x"));
        let graphs = ["s", "reverse_s"].map(|name| p.relation(name, "A", "A"));
        let edges: Vec<(usize, usize)> = graphs.into_iter().flat_map(|g| g.edges).collect();
        per_element(p, |i, d| edges.iter().filter(|e| e.1 == i).map(|e| x[e.0][d].exp()).sum())
    });
}

#[test]
fn edge_weights_and_features() {
    let text =
        layer("z = sum(e.src.h * e.weight + e.kind * e.dst.h) over in_edges", "out = sum(v.z) across graphs", "3");
    means(&text, BOTH, |p| {
        let h = projected(p);
        let (weight, kind) =
            (["r", "s"].map(|g| p.input(&format!("{g}.weight"))), ["r", "s"].map(|g| p.input(&format!("{g}.kind"))));
        per_element(p, |i, d| {
            let of = |g: usize| -> f64 {
                let term = |(row, e): &(Vec<f64>, usize)| row[d] * weight[g][*e][0] + kind[g][*e][d] * h[0][i][d];
                in_edges(p, &h, i)[g].iter().map(term).sum()
            };
            of(0) + of(1)
        })
    });
}

#[test]
fn counted_metapaths() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[in] {
        aggregate e: g in graphs { z = sum(e.src.x * e.count / e.dst.in_degree) over in_edges }
        fuse v: V across graphs { out = sum(v.z) across graphs }
    }";
    means(text, "L() over [ABA] of A.x", |p| {
        let x = p.input("A.x");
        let r = p.relation("r", "B", "A").edges;
        per_element(p, |i, d| {
            let mut total = 0.0;
            let mut degree = 0.0;
            for (j, xj) in x.iter().enumerate() {
                let instances: usize =
                    r.iter().map(|&(b, a)| if a == j { r.iter().filter(|e| **e == (b, i)).count() } else { 0 }).sum();
                total += xj[d] * instances as f64;
                degree += f64::from(instances > 0);
            }
            if degree > 0.0 { total / degree } else { 0.0 }
        })
    });
}

#[test]
fn reductions_across_graphs() {
    let mean = |rows: &[(Vec<f64>, usize)], d: usize| column(rows, d).sum::<f64>() / rows.len().max(1) as f64;
    type Reduction = fn(f64, f64) -> f64;
    let all: [(&str, Reduction); 5] = [
        ("sum", |a, b| a + b),
        ("mean", |a, b| (a + b) / 2.0),
        ("max", f64::max),
        ("min", f64::min),
        ("logsumexp", |a, b| log_sum_exp([a, b].into_iter())),
    ];
    // Both graphs end in `A`; nothing but a sum has a meaning for `B`, where none ends.
    for (name, reduction) in all {
        let text = format!(
            "layer L() over graphs: [V -> V] of x: V[in] -> V[3] {{
                project v: V {{ param w: [in, 3] = glorot  h = v.x @ w }}
                aggregate e: g in graphs {{ z = mean(e.src.h) over in_edges }}
                fuse v: V across graphs {{ out = {name}(v.z) across graphs }}
            }}"
        );
        means(&text, "L() over [s, reverse(s)] of A.x", |p| {
            let h: Rows = p.input("A.x").iter().map(|x| p.param("z.w").apply(x)).collect();
            let of = |name: &'static str, i: usize, d: usize| {
                let graph = p.relation(name, "A", "A");
                let rows: Vec<(Vec<f64>, usize)> =
                    graph.edges.iter().filter(|e| e.1 == i).map(|e| (h[e.0].clone(), 0)).collect();
                mean(&rows, d)
            };
            per_element(p, |i, d| reduction(of("s", i, d), of("reverse_s", i, d)))
        });
    }
    let concat = "layer L() over graphs: [V -> V] of x: V[in] -> V[2 * in] {
        aggregate e: g in graphs { z = sum(e.src.x) over in_edges }
        fuse v: V across graphs { out = concat(v.z) across graphs }
    }";
    means(concat, "L() over [s, reverse(s)] of A.x", |p| {
        let x = p.input("A.x");
        let of = |name: &'static str, i: usize| {
            let graph = p.relation(name, "A", "A");
            graph.edges.iter().filter(|e| e.1 == i).fold(vec![0.0; 3], |sum, e| add(&sum, &x[e.0]))
        };
        (0..x.len()).map(|i| [of("s", i), of("reverse_s", i)].concat()).collect()
    });
}

#[test]
fn reductions_over_dimensions_and_vertices() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[6] {
        project v: V { param w: [in, 2, 3] = glorot  h = v.x @ w }
        aggregate e: g in graphs { z = sum(e.src.h) over in_edges }
        fuse v: V across graphs {
            let each = flatten(softmax(v.h) over last)
            let whole = concat(max(v.h) over first, mean(v.h) over first)
            out = (each + whole) * (max(flatten(v.h)) over vertices) + flatten(softmax(v.h) over vertices)
        }
    }";
    means(text, "L() over [s] of A.x", |p| {
        let h: Rows = p.input("A.x").iter().map(|x| p.param("z.w").apply(x)).collect();
        let rows = h.len();
        (0..rows)
            .map(|i| {
                (0..6)
                    .map(|c| {
                        let head = &h[i][c / 3 * 3..c / 3 * 3 + 3];
                        let share = h[i][c].exp() / head.iter().map(|x| x.exp()).sum::<f64>();
                        let (a, b) = (h[i][c % 3], h[i][3 + c % 3]);
                        let whole = if c < 3 { a.max(b) } else { (a + b) / 2.0 };
                        let most = h.iter().map(|row| row[c]).fold(f64::MIN, f64::max);
                        let among = h[i][c].exp() / h.iter().map(|row| row[c].exp()).sum::<f64>();
                        (share + whole) * most + among
                    })
                    .collect()
            })
            .collect()
    });
}

#[test]
fn norms_and_powers() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[3] {
        project v: V {
            param w: [in, 3] = glorot
            let h = v.x @ w
            a = layer_norm(h, 0.01)
            b = l2_normalize(h + 1)
            c = row_normalize(exp(h))
            d = pow(square(h) + 1, 1.5)
        }
        aggregate e: g in graphs { z = sum(e.src.a) over in_edges }
        fuse v: V across graphs { out = v.a + v.b * v.c + leaky_relu(v.d - 2) + abs(v.c - 0.2) }
    }";
    means(text, "L() over [s] of A.x", |p| {
        let (scale, shift) = (p.vector("z.a.scale"), p.vector("z.a.shift"));
        let of = |x: &Vec<f64>| -> Vec<f64> {
            let h = p.param("z.w").apply(x);
            let mean = h.iter().sum::<f64>() / 3.0;
            let variance = h.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 3.0;
            let one = add(&h, &[1.0; 3]);
            let length = dot(&one, &one).sqrt();
            let powers: f64 = h.iter().map(|x| x.exp()).sum();
            (0..3)
                .map(|d| {
                    let a = (h[d] - mean) / (variance + 0.01).sqrt() * scale[d] + shift[d];
                    let (b, c) = (one[d] / length, h[d].exp() / powers);
                    let far = (h[d] * h[d] + 1.0).powf(1.5) - 2.0;
                    a + b * c + if far > 0.0 { far } else { 0.01 * far } + (c - 0.2).abs()
                })
                .collect()
        };
        p.input("A.x").iter().map(of).collect()
    });
}

#[test]
fn one_parameter_for_each_of_what() {
    let text = layer(
        "param of_graph: [3] = glorot
         param of_src: [3] per src = glorot
         param of_dst: [3] per dst = glorot
         param of_all: [3] shared = glorot
         z = sum(e.src.h * of_graph * of_src * of_dst + of_all) over in_edges",
        "param of_type: [3] = glorot
         param once: [3] shared = glorot
         out = sum(v.z) across graphs * of_type + once",
        "3",
    );
    means(&text, BOTH, |p| {
        let h = projected(p);
        per_element(p, |i, d| {
            let of = |g: usize, graph: &str, src: &str| -> f64 {
                let factor = p.vector(&format!("z.of_graph.{graph}"))[d]
                    * p.vector(&format!("z.of_src.{src}"))[d]
                    * p.vector("z.of_dst.A")[d];
                in_edges(p, &h, i)[g].iter().map(|(row, _)| row[d] * factor + p.vector("z.of_all")[d]).sum()
            };
            (of(0, "r", "B") + of(1, "s", "A")) * p.vector("z.of_type.A")[d] + p.vector("z.once")[d]
        })
    });
}

#[test]
fn an_aggregate_reads_what_another_has_aggregated() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[in] {
        aggregate e: g in graphs { z = mean(e.src.x) over in_edges }
        aggregate e: g in graphs { y = sum(square(e.src.x - e.dst.z)) over in_edges }
        fuse v: V across graphs { out = sum(v.y) across graphs }
    }";
    means(text, "L() over [s, self_loops(s)] of A.x", |p| {
        let x = p.input("A.x");
        let s = p.relation("s", "A", "A");
        let looped = p.self_loops(&s, "s_self_loops");
        per_element(p, |i, d| {
            let variance = |edges: &[(usize, usize)]| {
                let column: Vec<f64> = edges.iter().filter(|e| e.1 == i).map(|e| x[e.0][d]).collect();
                let mean = column.iter().sum::<f64>() / column.len().max(1) as f64;
                column.iter().map(|x| (x - mean).powi(2)).sum::<f64>()
            };
            variance(&s.edges) + variance(&looped.edges)
        })
    });
}

/// Edge data stay with their edges when a dataset is bound: forwards, backwards, beside added self loops (weight 1,
/// features 0), and for edges that occur twice.
#[test]
fn edge_data_stay_with_their_edges() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[in] {
        aggregate e: g in graphs { z = sum(e.src.x * e.weight + e.kind) over in_edges }
        fuse v: V across graphs { out = sum(v.z) across graphs }
    }";
    let compiled = compile(&format!(
        "{SCHEMA}\n{text}\nmodel M(schema: S) {{ output y: A = L() over [s, reverse(s), self_loops(s)] of A.x }}"
    ));
    let edges: Edges = vec![(3, 1), (0, 0), (2, 1), (3, 1), (1, 2)];
    let weight: Vec<f32> = vec![1.0, 2.0, 3.0, 4.0, 5.0];
    let features = |dim: usize, rows: Vec<f32>| DenseFeatures { dim, rows: rows.into() };
    let vertex = |name: &str, count: usize, dim: usize| VertexTypeData {
        name: name.into(),
        count,
        features: Some(Features::Dense(features(dim, vec![0.0; count * dim]))),
        ..Default::default()
    };
    let relation = |name: &str, src: usize, edges: &Edges| RelationData {
        name: name.into(),
        src,
        dst: 0,
        src_ids: edges.iter().map(|e| e.0).collect(),
        dst_ids: edges.iter().map(|e| e.1).collect(),
        weight: Some(weight[..edges.len()].to_vec().into()),
        features: Some(features(3, weight[..edges.len()].iter().flat_map(|w| [*w, 10.0 * w, 0.0]).collect())),
        ..Default::default()
    };
    let dataset = Dataset {
        name: "edges".into(),
        vertex_types: vec![vertex("A", 4, 3), vertex("B", 1, 2)],
        relations: vec![relation("r", 1, &vec![]), relation("s", 0, &edges)],
        ..Dataset::default()
    };
    let executable = inference(&compiled);
    let data = hgnnc_data::bind(&executable, &dataset, &Default::default()).unwrap_or_else(|error| panic!("{error}"));
    let numbers = |wanted: &Binding| {
        let index = compiled.infer.inputs.iter().position(|i| i.binding == *wanted).expect("read");
        let hgnnc_data::InputData::Numbers(numbers) = &data.inputs[index] else { panic!("numbers") };
        numbers.clone()
    };
    for (index, graph) in data.graphs.iter().enumerate() {
        let handle = hgnnc_ir::Graph::new(index);
        let (weights, kinds) = (numbers(&Binding::EdgeWeight(handle)), numbers(&Binding::EdgeFeatures(handle)));
        let mut found = vec![];
        for dst in 0..graph.num_dst {
            for e in graph.csc.indptr[dst] as usize..graph.csc.indptr[dst + 1] as usize {
                let src = graph.csc.indices[e];
                let added = kinds[3 * e..3 * e + 3] == [0.0; 3];
                assert!(added || kinds[3 * e..3 * e + 3] == [weights[e], 10.0 * weights[e], 0.0], "{}", graph.name);
                found.push((src, dst as u32, weights[e] as u32, added));
            }
        }
        let turned = graph.name.starts_with("reverse");
        let mut expected: Vec<(u32, u32, u32, bool)> = edges
            .iter()
            .zip(&weight)
            .map(|(&(s, d), &w)| if turned { (d, s, w as u32, false) } else { (s, d, w as u32, false) })
            .collect();
        if graph.name.ends_with("self_loops") {
            expected.extend([1, 2, 3].map(|v| (v, v, 1, true)));
        }
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{}", graph.name);
    }
}
