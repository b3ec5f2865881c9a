//! Products of values, parts of dimensions, masks and constants: each compared with loops (1e-10), with its gradients (1e-6)
//! and on the engine (2e-5).

use hgnnc_model_tests::plain::{Plain, Rows, dot};
use hgnnc_model_tests::{assert_close, compile};

use crate::language::{SCHEMA, means, worlds};

/// A layer without semantic graphs that computes `width` numbers of `h = x w`, which has width 3.
fn of_h(body: &str, width: usize) -> String {
    format!(
        "layer L() of x: V[in] -> V[{width}] {{ project v: V {{ param w: [in, 3] = glorot let h = v.x @ w {body} }} }}"
    )
}

/// The results of a function for the `h` of each vertex of `A`.
fn per_vertex(p: &Plain<'_>, f: impl Fn(&[f64]) -> Vec<f64>) -> Rows {
    p.input("A.x").iter().map(|x| f(&p.param("z.w").apply(x))).collect()
}

/// `[rows, inner]` times `[inner, columns]`.
fn product(a: &[f64], b: &[f64], inner: usize) -> Vec<f64> {
    let (rows, columns) = (a.len() / inner, b.len() / inner);
    let element = |i: usize, j: usize| (0..inner).map(|c| a[i * inner + c] * b[c * columns + j]).sum();
    (0..rows * columns).map(|at| element(at / columns, at % columns)).collect()
}

#[test]
fn matrices_of_the_same_row() {
    let using = "flatten(matmul(reshape(linear(A.x, 6), [2, 3]), reshape(linear(A.x, 12), [3, 4])))";
    means("", using, |p| {
        let x = p.input("A.x");
        let (a, b) = (p.linear("z", "", &x), p.linear("z_2", "", &x));
        a.iter().zip(&b).map(|(a, b)| product(a, b, 3)).collect()
    });
}

#[test]
fn matrices_for_each_head() {
    let using = "flatten(matmul(reshape(linear(A.x, 12), [2, 3, 2]), reshape(linear(A.x, 4), [2, 2, 1])))";
    means("", using, |p| {
        let x = p.input("A.x");
        let (a, b) = (p.linear("z", "", &x), p.linear("z_2", "", &x));
        let heads = |a: &[f64], b: &[f64]| [product(&a[..6], &b[..2], 2), product(&a[6..], &b[2..], 2)].concat();
        a.iter().zip(&b).map(|(a, b)| heads(a, b)).collect()
    });
}

#[test]
fn a_matrix_of_each_row_and_one_for_all() {
    let body = "param m: [2, 2] let rows = reshape(concat(h, h), [3, 2]) out = flatten(matmul(rows, m)) ";
    means(&of_h(body, 6), "L() of A.x", |p| per_vertex(p, |h| product(&[h, h].concat(), p.vector("z.m"), 2)));
    let body = "param m: [2, 3] let rows = reshape(concat(h, h), [3, 2]) out = flatten(matmul(m, rows)) ";
    means(&of_h(body, 4), "L() of A.x", |p| per_vertex(p, |h| product(p.vector("z.m"), &[h, h].concat(), 3)));
}

#[test]
fn a_row_times_a_matrix_of_its_own() {
    let body = "out = flatten(stack(h, 2 * h) @ reshape(outer(h, concat(h, h, h)), [3, 3, 3])[0..2])";
    means(&of_h(body, 6), "L() of A.x", |p| {
        per_vertex(p, |h| {
            let all = product(h, &[h, h, h].concat(), 1);
            let twice: Vec<f64> = h.iter().map(|h| 2.0 * h).collect();
            [product(h, &all[..9], 3), product(&twice, &all[9..18], 3)].concat()
        })
    });
}

#[test]
fn products_on_edges() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[3] {
        project v: V { param w: [in, 3] = glorot h = v.x @ w }
        aggregate e: g in graphs { z = sum(e.src.h @ outer(e.dst.h, e.src.h)) over in_edges }
        fuse v: V across graphs { out = sum(v.z) across graphs }
    }";
    means(text, "L() over [s] of A.x", |p| {
        let h: Rows = p.input("A.x").iter().map(|x| p.param("z.w").apply(x)).collect();
        let edges = p.relation("s", "A", "A").edges;
        let term = |&(j, i): &(usize, usize), d: usize| dot(&h[j], &h[i]) * h[j][d];
        let of = |i: usize, d: usize| edges.iter().filter(|edge| edge.1 == i).map(|edge| term(edge, d)).sum();
        (0..h.len()).map(|i| (0..3).map(|d| of(i, d)).collect()).collect()
    });
}

#[test]
fn parts_of_dimensions() {
    // m is [3, 2]: the rows are pairs of h.
    let body = "let m = transpose(stack(h, square(h)))
        out = concat(m[1], m[.., 0][1..], h[..2], flatten(m[0..2, 1..2]), reshape(h[2], [1]))";
    means(&of_h(body, 9), "L() of A.x", |p| {
        per_vertex(p, |h| {
            let s: Vec<f64> = h.iter().map(|h| h * h).collect();
            vec![h[1], s[1], h[1], h[2], h[0], h[1], s[0], s[1], h[2]]
        })
    });
}

#[test]
fn rolled_and_transposed() {
    let body = "out = concat(roll(h, 1), roll(h, -1), roll(h, 3), flatten(transpose(stack(h, 2 * h))))";
    means(&of_h(body, 15), "L() of A.x", |p| {
        per_vertex(p, |h| {
            let [a, b, c] = h[..] else { unreachable!("three numbers") };
            vec![c, a, b, b, c, a, a, b, c, a, 2.0 * a, b, 2.0 * b, c, 2.0 * c]
        })
    });
}

#[test]
fn a_middle_dimension_is_summed_behind_a_transpose() {
    let body = "let cube = outer(stack(h, 2 * h), stack(h, h)) out = flatten(sum(transpose(cube)) over last)";
    // [2, 3, 3] summed over the middle one: row i of the stack, times all of h.
    means(&of_h(body, 6), "L() of A.x", |p| {
        per_vertex(p, |h| {
            let sum: f64 = h.iter().sum();
            h.iter().map(|x| sum * x).chain(h.iter().map(|x| 2.0 * sum * x)).collect()
        })
    });
}

#[test]
fn comparisons_of_values_are_masks() {
    let body = "out = concat((h > 0) * h + (h <= 0) * h / 2, (h < h[0]) * h, (h >= h[1]) * h, (h == h) + (h != 2))";
    means(&of_h(body, 12), "L() of A.x", |p| {
        per_vertex(p, |h| {
            let kept = |holds: bool, x: f64| if holds { x } else { 0.0 };
            let leaky = h.iter().map(|&x| if x > 0.0 { x } else { x / 2.0 });
            let below = h.iter().map(|&x| kept(x < h[0], x));
            let above = h.iter().map(|&x| kept(x >= h[1], x));
            leaky.chain(below).chain(above).chain([2.0; 3]).collect()
        })
    });
}

#[test]
fn constants_and_waves() {
    let body = "let m = eye(3) + 2 * ones([3, 3]) + zeros([3, 3]) out = concat(h @ m, sin(h), cos(4 * h))";
    means(&of_h(body, 9), "L() of A.x", |p| {
        per_vertex(p, |h| {
            let sum: f64 = h.iter().sum();
            let first = h.iter().map(|x| x + 2.0 * sum);
            first.chain(h.iter().map(|x| x.sin())).chain(h.iter().map(|x| (4.0 * x).cos())).collect()
        })
    });
}

/// Circular correlation (Nickel et al. 2016): element `k` is `Σ_i a_i b_{(i + k) mod n}`. Read row by row, `n + 1` copies of
/// `b` in rows of `n + 1` elements are `b` rolled by one place more in each row.
#[test]
fn circular_correlation() {
    let body = "let g = square(h) + h
        out = h @ reshape(outer(ones([4]), g), [3, 4])[.., 0..3]";
    means(&of_h(body, 3), "L() of A.x", |p| {
        per_vertex(p, |h| {
            let g: Vec<f64> = h.iter().map(|h| h * h + h).collect();
            (0..3).map(|k| (0..3).map(|i| h[i] * g[(i + k) % 3]).sum()).collect()
        })
    });
}

/// A repetition is its statements, written several times.
#[test]
fn repeated_statements() {
    let model = |body: &str| {
        let train = "train M { loss cross_entropy(y, A.topic) }";
        compile(&format!(
            "{SCHEMA}\nmodel M(schema: S) {{ {body} output y: A = linear(h, 2) output out: A = h }}\n{train}"
        ))
    };
    let repeated = model(
        "let h = linear(A.x, 3)
         repeat 1 + 1 { let t = linear(h, 3) repeat 2 { h = tanh(t + h) } }",
    );
    let world = &worlds()[0];
    let plain = Plain::of(&repeated, world);
    let mut h = plain.linear("h", "", &plain.input("A.x"));
    for name in ["t", "t_2"] {
        let t = plain.linear(name, "", &h);
        for _ in 0..2 {
            for (h, t) in h.iter_mut().flatten().zip(t.iter().flatten()) {
                *h = (*h + t).tanh();
            }
        }
    }
    assert_close("repeated", &repeated.output(world, "out").data, &h.concat(), 1e-10);
    let never = model("let h = linear(A.x, 3) repeat 0 { h = tanh(h) }");
    let plain = Plain::of(&never, world);
    let h = plain.linear("h", "", &plain.input("A.x"));
    assert_close("never", &never.output(world, "out").data, &h.concat(), 1e-10);
}

/// For each vertex of `A` and each of both directions of `s`: the sum of `h` over the in-edges.
fn sums_both_ways(p: &Plain<'_>, h: &Rows) -> [Rows; 2] {
    ["s", "reverse_s"].map(|name| {
        let edges = p.relation(name, "A", "A").edges;
        let of = |i: usize, d: usize| edges.iter().filter(|edge| edge.1 == i).map(|edge| h[edge.0][d]).sum();
        (0..h.len()).map(|i| (0..3).map(|d| of(i, d)).collect()).collect()
    })
}

#[test]
fn attention_between_semantic_graphs() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[6] {
        project v: V { param w: [in, 3] = glorot h = v.x @ w }
        aggregate e: g in graphs { z = sum(e.src.h) over in_edges }
        fuse v: V across graphs {
            let all = stack(v.z) across graphs
            let share = softmax(matmul(all, transpose(all))) over last
            out = flatten(matmul(share, all))
        }
    }";
    means(text, "L() over [s, reverse(s)] of A.x", |p| {
        let h: Rows = p.input("A.x").iter().map(|x| p.param("z.w").apply(x)).collect();
        let z = sums_both_ways(p, &h);
        let of = |i: usize, from: usize| {
            let score = [0, 1].map(|to: usize| dot(&z[from][i], &z[to][i]).exp());
            let total = score[0] + score[1];
            let (z, share) = (&z, score.map(|score| score / total));
            (0..3).map(move |d| share[0] * z[0][i][d] + share[1] * z[1][i][d]).collect::<Vec<_>>()
        };
        (0..h.len()).map(|i| [of(i, 0), of(i, 1)].concat()).collect()
    });
}

#[test]
fn vectors_of_relations_go_from_layer_to_layer() {
    let text = "layer Vectors() over graphs: [*] -> r: per graph[3] {
        aggregate e: g in graphs { param vector: [3] = glorot r = vector }
    }
    layer Turn(n: dim) over graphs: [*] of r: per graph[3] -> r: per graph[n] {
        aggregate e: g in graphs { param w: [3, n] shared r = tanh(e.r @ w) }
    }
    layer L() over graphs: [V -> V] of x: V[in], r: per graph[3] -> V[3] {
        project v: V { param w: [in, 3] = glorot h = v.x @ w }
        aggregate e: g in graphs { z = sum(e.src.h * e.r) over in_edges }
        fuse v: V across graphs { out = sum(v.z + v.r) across graphs }
    }";
    let vectors = "Vectors() over [r, s, reverse(s)]";
    let turned = format!("Turn(n: 3) over [s, reverse(s)] of {vectors}");
    means(text, &format!("L() over [s, reverse(s)] of (A.x, r: {turned})"), |p| {
        let h: Rows = p.input("A.x").iter().map(|x| p.param("z.w").apply(x)).collect();
        let r = ["s", "reverse_s"].map(|name| {
            let turned = p.param("z_2.w").apply(p.vector(&format!("z_3.vector.{name}")));
            turned.into_iter().map(f64::tanh).collect::<Vec<_>>()
        });
        let z = sums_both_ways(p, &h);
        let of = |i: usize, d: usize| (0..2).map(|g| z[g][i][d] * r[g][d] + r[g][d]).sum();
        (0..h.len()).map(|i| (0..3).map(|d| of(i, d)).collect()).collect()
    });
}

#[test]
fn rows_of_semantic_graphs_are_normalised_over_the_family() {
    let text = "layer L() over graphs: [V -> V] of x: V[in] -> V[3] {
        project v: V { param w: [in, 3] = glorot h = v.x @ w }
        aggregate e: g in graphs {
            param score: [3] = glorot
            let share = softmax(score) across graphs
            let centred = score - mean(score) across graphs
            z = sum(e.src.h * share + centred) over in_edges
        }
        fuse v: V across graphs { out = sum(v.z) across graphs }
    }";
    means(text, "L() over [s, reverse(s)] of A.x", |p| {
        let h: Rows = p.input("A.x").iter().map(|x| p.param("z.w").apply(x)).collect();
        let graphs = ["s", "reverse_s"];
        let score = graphs.map(|name| p.vector(&format!("z.score.{name}")).to_vec());
        let ones: Rows = vec![vec![1.0; 3]; h.len()];
        let (z, degrees) = (sums_both_ways(p, &h), sums_both_ways(p, &ones));
        let of = |i: usize, d: usize| {
            let total: f64 = score.iter().map(|score| score[d].exp()).sum();
            let mean = (score[0][d] + score[1][d]) / 2.0;
            let term = |g: usize| z[g][i][d] * score[g][d].exp() / total + degrees[g][i][d] * (score[g][d] - mean);
            term(0) + term(1)
        };
        (0..h.len()).map(|i| (0..3).map(|d| of(i, d)).collect()).collect()
    });
}

/// Statements with the parameters of another: two linear maps and a layer, applied to two values each. There are no others.
#[test]
fn shared_parameters() {
    let source = format!(
        "{SCHEMA}
        layer Sum(n: dim) over graphs: [V -> V] of x: V[in] -> V[n] {{
            aggregate e: g in graphs {{ param w: [in, n] basis(2) z = sum(e.src.x @ w) over in_edges }}
            fuse v: V across graphs {{ param b: [n] out = sum(v.z) across graphs + b }}
        }}
        model M(schema: S) {{
            let first = tanh(linear(Sum(n: 3) over [s, reverse(s)] of linear(A.x, 4), 3))
            let second = tanh(linear(Sum(n: 3) over [s, reverse(s)] of linear(square(A.x), 4), 3)) sharing first
            let h = second
            repeat 2 {{ h = tanh(linear(Sum(n: 3) over [s, reverse(s)] of linear(concat(h, h[0..1])[0..3], 4), 3)) sharing second }}
            output y: A = first[0..2] + second[0..2] * h[0..2]
            output out: A = first * second + h
        }}
        train M {{ loss cross_entropy(y, A.topic) optimizer sgd(lr: 0.1) }}"
    );
    let compiled = compile(&source);
    let names: Vec<&str> = compiled.model.flow.params.iter().map(|param| param.name.as_str()).collect();
    let own = names.iter().filter(|name| name.starts_with("first"));
    assert_eq!(own.count(), names.len(), "{names:?}");
    for world in worlds() {
        let p = Plain::of(&compiled, &world);
        let apply = |x: &Rows| -> Rows {
            let h = p.linear("first", "", x);
            let coefficients = ["s", "reverse_s"].map(|g| p.vector(&format!("first.w.coefficients.{g}")).to_vec());
            let bases = p.param("first.w.bases");
            let message = |g: usize, row: &[f64]| -> Vec<f64> {
                let of = |b: usize, d: usize| bases.part(b).apply(row)[d] * coefficients[g][b];
                (0..3).map(|d| of(0, d) + of(1, d)).collect()
            };
            let mut out: Rows = vec![p.vector("first.b").to_vec(); x.len()];
            for (g, name) in ["s", "reverse_s"].into_iter().enumerate() {
                for (j, i) in p.relation(name, "A", "A").edges {
                    out[i].iter_mut().zip(message(g, &h[j])).for_each(|(sum, x)| *sum += x);
                }
            }
            p.linear("first_2", "", &out).iter().map(|row| row.iter().map(|x| x.tanh()).collect()).collect()
        };
        let x = p.input("A.x");
        let squared: Rows = x.iter().map(|row| row.iter().map(|x| x * x).collect()).collect();
        let (first, second) = (apply(&x), apply(&squared));
        let h = apply(&apply(&second));
        let element = |i: usize, d: usize| first[i][d] * second[i][d] + h[i][d];
        let expected: Vec<f64> =
            (0..x.len()).flat_map(|i| (0..3).map(move |d| element(i, d)).collect::<Vec<_>>()).collect();
        assert_close("shared", &compiled.output(&world, "out").data, &expected, 1e-10);
        crate::gradients::gradients_are_differences("shared", &compiled.model.flow, &compiled.bind(&world));
    }
}
