//! Layers of the standard library published since 2019 against references written from their papers' equations, as in `layers.rs`.

use std::collections::BTreeMap;

use hgnnc_model_tests::plain::{
    Graph, Plain, Rows, Typed, add, dot, each, elu, head, leaky, relu, sigmoid, softmax, times, zeros,
};

use hgnnc_model_tests::cases::{SCHEMA, TRAIN, case};

use crate::folds::sources;
use crate::layers::{agrees, both_ways, cites, embedded, features, looped_cites, pap, pvp, source_agrees};

/// Brody et al. 2022, eq. 7 for each graph, heads joined, graphs summed.
#[test]
fn gat_v2_is_the_paper() {
    agrees("gat_v2", |p| {
        let x = p.input("Paper.x");
        let project = |name: &str| -> Rows { x.iter().map(|x| p.param(name).apply(x)).collect() };
        let (from, to) = (project("conv.w_src"), project("conv.w_dst"));
        let mut out: Rows = vec![p.vector("conv.b").to_vec(); x.len()];
        for graph in [looped_cites(p), pap(p)] {
            let a = p.param(&format!("conv.a.{}", graph.name));
            for (i, row) in out.iter_mut().enumerate() {
                let sources: Vec<usize> = graph.edges.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
                for k in 0..2 {
                    let score = |&j: &usize| -> f64 {
                        let sum = add(head(&from[j], k, 2), head(&to[i], k, 2));
                        dot(a.row(k), &sum.iter().map(|&x| leaky(x, 0.2)).collect::<Vec<_>>())
                    };
                    let alpha = softmax(&sources.iter().map(score).collect::<Vec<_>>());
                    for (&j, alpha) in sources.iter().zip(alpha) {
                        let message = times(alpha, head(&from[j], k, 2));
                        row[3 * k..3 * k + 3].iter_mut().zip(message).for_each(|(sum, x)| *sum += x);
                    }
                }
            }
        }
        p.linear("y", "", &each(&out, elu))
    });
}

/// Gasteiger et al. 2019, eq. 4, with D the in-degrees.
#[test]
fn appnp_is_the_paper() {
    agrees("appnp", |p| {
        let graph = looped_cites(p);
        let degree = |v: usize| graph.edges.iter().filter(|e| e.1 == v).count().max(1) as f64;
        let h = p.linear("h", "", &p.input("Paper.x"));
        let mut z = h.clone();
        for _ in 0..2 {
            let mut next: Rows = h.iter().map(|h| times(0.2, h)).collect();
            for &(j, i) in &graph.edges {
                next[i] = add(&next[i], &times(0.8 / (degree(j) * degree(i)).sqrt(), &z[j]));
            }
            z = next;
        }
        z
    });
}

/// He et al. 2020, eq. 3 and 4, over the graphs of all relations together. It divides by out-degrees, which batches do not have,
/// and so is no case of every layer.
#[test]
fn light_gcn_is_the_paper() {
    let body = "
        let h = linear(features, 3)
        let first = LightGcnConv() over [relations, reverses] of h
        let second = LightGcnConv() over [relations, reverses] of first
        output y: Paper = ((h + first + second) / 3).Paper";
    let source = format!("use std::light_gcn::LightGcnConv {SCHEMA} model M(schema: Library) {{ {body} }} {TRAIN}");
    source_agrees("light_gcn", &source, |p| {
        let mut layers = vec![];
        let linear = |v: &str, rows: &Rows| p.linear("h", &format!(".{v}"), rows);
        let mut x: Typed = features(p).iter().map(|(v, rows)| (*v, linear(v, rows))).collect();
        for _ in 0..2 {
            layers.push(x.clone());
            let mut next: Typed = x.iter().map(|(v, rows)| (*v, zeros(rows.len(), 3))).collect();
            for graph in both_ways(p) {
                for &(j, i) in &graph.edges {
                    let out = graph.edges.iter().filter(|e| e.0 == j).count() as f64;
                    let into = graph.edges.iter().filter(|e| e.1 == i).count() as f64;
                    let message = times(1.0 / (out * into).sqrt(), &x[graph.src][j]);
                    let row = &mut next.get_mut(graph.dst).expect("a type")[i];
                    *row = add(row, &message);
                }
            }
            x = next;
        }
        layers.push(x);
        let of = |i: usize| {
            let sum = layers.iter().fold(vec![0.0; 3], |sum, layer| add(&sum, &layer["Paper"][i]));
            times(1.0 / 3.0, &sum)
        };
        (0..p.count("Paper")).map(of).collect()
    });
}

/// Rows normalised to mean 0 and variance 1, scaled and shifted.
fn layer_norm(p: &Plain<'_>, path: &str, suffix: &str, x: &[f64]) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let (scale, shift) = (p.vector(&format!("{path}.scale{suffix}")), p.vector(&format!("{path}.shift{suffix}")));
    let normal = x.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt());
    normal.zip(scale.iter().zip(shift)).map(|(x, (scale, shift))| x * scale + shift).collect()
}

/// Yang et al. 2023, eq. 7 to 9.
#[test]
fn sehgnn_is_the_paper() {
    agrees("sehgnn", |p| {
        let mut graphs = vec![pap(p)];
        graphs.extend(both_ways(p).into_iter().filter(|graph| graph.dst == "Paper"));
        sehgnn(p, &features(p), &graphs, |_| vec![])
    });
}

/// Means of the labels of the training part, over pairs of different papers.
#[test]
fn sehgnn_with_labels_is_the_paper() {
    agrees("sehgnn_labels", |p| {
        let labels = p.input("train_labels(Paper.topic)");
        let around = |graph: Graph, path: &str, i: usize| {
            let name = format!("{}_without_self_loops", graph.name);
            let sources: Vec<usize> = graph.edges.iter().filter(|e| e.1 == i && e.0 != i).map(|e| e.0).collect();
            let sum = sources.iter().fold(vec![0.0; 3], |sum, &j| add(&sum, &labels[j]));
            let mean = times(1.0 / sources.len().max(1) as f64, &sum);
            let z = p.param(&format!("{path}.w.{name}")).apply(&mean);
            let z = layer_norm(p, &format!("{path}.z"), &format!(".{name}"), &z);
            z.into_iter().map(relu).collect::<Vec<f64>>()
        };
        let x = Typed::from([("Paper", p.input("Paper.x"))]);
        sehgnn(p, &x, &[pap(p), pvp(p)], |i| vec![around(pap(p), "writers", i), around(cites(p), "cited", i)])
    });
}

/// The model `sehgnn`, with further rows of a paper behind those of its semantic graphs and its own.
fn sehgnn(p: &Plain<'_>, x: &Typed, graphs: &[Graph], labels: impl Fn(usize) -> Rows) -> Rows {
    let project = |w: &str, path: &str, suffix: &str, x: &[f64]| -> Vec<f64> {
        let z = layer_norm(p, path, suffix, &p.param(&format!("{w}{suffix}")).apply(x));
        z.into_iter().map(relu).collect()
    };
    let attended = |i: usize| -> Vec<f64> {
        let mut h: Rows = vec![];
        for graph in graphs {
            let sources: Vec<usize> = graph.edges.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
            let rows = &x[graph.src];
            let none = vec![0.0; p.param(&format!("conv.aggregate.w.{}", graph.name)).dims[0]];
            let sum = sources.iter().fold(none, |sum, &j| add(&sum, &rows[j]));
            let mean = times(1.0 / sources.len().max(1) as f64, &sum);
            h.push(project("conv.aggregate.w", "conv.z", &format!(".{}", graph.name), &mean));
        }
        h.push(project("conv.fuse.w", "conv.own", ".Paper", &x["Paper"][i]));
        h.extend(labels(i));
        let by = |name: &str| -> Rows { h.iter().map(|h| p.param(name).apply(h)).collect() };
        let (q, k, c) = (by("conv.query"), by("conv.key"), by("conv.content"));
        let gamma = p.number("conv.gamma");
        let of = |from: usize| {
            let share = softmax(&k.iter().map(|k| dot(&q[from], k)).collect::<Vec<_>>());
            let mixed = share.iter().zip(&c).fold(vec![0.0; 4], |sum, (share, c)| add(&sum, &times(*share, c)));
            add(&times(gamma, &mixed), &h[from])
        };
        (0..h.len()).flat_map(of).collect()
    };
    let all: Rows = (0..p.count("Paper")).map(attended).collect();
    p.linear("y", "", &p.linear("conv.out", ".Paper", &all))
}

#[derive(Clone, Copy)]
enum Composition {
    Difference,
    Product,
    Correlation,
}

impl Composition {
    fn of(self, x: &[f64], r: &[f64]) -> Vec<f64> {
        let n = x.len();
        let correlated = |k: usize| (0..n).map(|i| x[i] * r[(i + k) % n]).sum();
        match self {
            Composition::Difference => x.iter().zip(r).map(|(x, r)| x - r).collect(),
            Composition::Product => x.iter().zip(r).map(|(x, r)| x * r).collect(),
            Composition::Correlation => (0..n).map(correlated).collect(),
        }
    }
}

/// Vashishth et al. 2020, eq. 2 with the mean over all in-edges, and eq. 3: new values and new vectors of relations.
fn compgcn(
    p: &Plain<'_>,
    (path, phi): (&str, Composition),
    x: &Typed,
    r: &BTreeMap<&'static str, Vec<f64>>,
) -> (Typed, BTreeMap<&'static str, Vec<f64>>) {
    let (w, w_rel) = (p.param(&format!("{path}.w")), p.param_if_read(path, "w_rel"));
    let mut out: Typed = BTreeMap::new();
    for (vertex, rows) in x {
        let of = |i: usize| {
            let mut count = 0;
            let mut sum = vec![0.0; rows[0].len()];
            let into = |graph: &Graph| graph.dst == *vertex;
            for graph in both_ways(p).iter().filter(|graph| into(graph)) {
                for &(j, _) in graph.edges.iter().filter(|edge| edge.1 == i) {
                    sum = add(&sum, &phi.of(&x[graph.src][j], &r[graph.name]));
                    count += 1;
                }
            }
            w.apply(&times(1.0 / f64::from(count.max(1)), &sum))
        };
        out.insert(*vertex, (0..rows.len()).map(of).collect());
    }
    let turned = |r: &Vec<f64>| w_rel.map(|w| w.apply(r)).unwrap_or_default();
    (out, r.iter().map(|(name, r)| (*name, turned(r))).collect())
}

#[test]
fn compgcn_is_the_paper() {
    agrees("compgcn", |p| {
        let x = embedded(p);
        let names = both_ways(p).into_iter().map(|graph| graph.name);
        let given = names.map(|name| (name, p.vector(&format!("given.vector.{name}")).to_vec())).collect();
        let tanh = |rows: &Rows| each(rows, f64::tanh);
        let (first, r) = compgcn(p, ("first", Composition::Difference), &x, &given);
        let own = |x: &Vec<f64>| p.param("own.w").apply(&Composition::Correlation.of(x, p.vector("own.r")));
        let with_own = |(v, rows): (&&'static str, &Rows)| {
            let sums: Rows = rows.iter().zip(&x[v]).map(|(row, x)| add(row, &own(x))).collect();
            (*v, tanh(&sums))
        };
        let second: Typed = first.iter().map(with_own).collect();
        let (second, r) = compgcn(p, ("second", Composition::Product), &second, &r);
        let third: Typed = second.iter().map(|(v, rows)| (*v, tanh(rows))).collect();
        let r = r.into_iter().map(|(name, r)| (name, r.into_iter().map(f64::tanh).collect())).collect();
        let (third, _) = compgcn(p, ("third", Composition::Correlation), &third, &r);
        third["Paper"].clone()
    });
}

/// Σ x_j / √(d_j d_i) over the in-edges, with D the in-degrees; or the mean over them.
fn step(graph: &Graph, x: &Rows, average: bool) -> Rows {
    let degree = |v: usize| graph.edges.iter().filter(|edge| edge.1 == v).count().max(1) as f64;
    let mut out = zeros(x.len(), x.first().map_or(0, Vec::len));
    for &(j, i) in &graph.edges {
        let both = if average { degree(i) } else { (degree(j) * degree(i)).sqrt() };
        out[i] = add(&out[i], &times(1.0 / both, &x[j]));
    }
    out
}

/// Frasca et al. 2020, eq. 4: σ([X Θ_0 ‖ A_1 X Θ_1 ‖ …]) of the rows of all operators.
fn inception(p: &Plain<'_>, path: &str, operators: &[Rows]) -> Rows {
    let (theta, b) = (p.param(&format!("{path}.theta")), p.param(&format!("{path}.b")));
    let of_vertex = |i: usize| -> Vec<f64> {
        let of = |(k, rows): (usize, &Rows)| add(&theta.part(k).apply(&rows[i]), b.row(k));
        operators.iter().enumerate().flat_map(of).map(relu).collect()
    };
    (0..operators[0].len()).map(of_vertex).collect()
}

#[test]
fn sign_is_the_paper() {
    agrees("sign", |p| {
        let x = p.input("Paper.x");
        let one = step(&looped_cites(p), &x, false);
        let two = step(&looped_cites(p), &one, false);
        let near = step(&pap(p), &x, true);
        p.linear("y", "", &inception(p, "z", &[x, one, two, near]))
    });
}

/// Yu et al. 2020: for each hop, the mean over all in-edges of a subset of relations, and a learned sum over subsets.
#[test]
fn nars_is_the_paper() {
    let hop = |p: &Plain<'_>, graphs: &[Graph], x: &Typed| -> Typed {
        let of_type = |vertex: &'static str| {
            let of_vertex = |i: usize| {
                let into = |graph: &&Graph| graph.dst == vertex;
                let (mut sum, mut count) = (vec![0.0; 3], 0);
                for graph in graphs.iter().filter(into) {
                    for &(j, _) in graph.edges.iter().filter(|edge| edge.1 == i) {
                        sum = add(&sum, &x[graph.src][j]);
                        count += 1;
                    }
                }
                times(1.0 / f64::from(count.max(1)), &sum)
            };
            (vertex, (0..p.count(vertex)).map(of_vertex).collect())
        };
        ["Paper", "Author"].into_iter().map(of_type).collect()
    };
    agrees("nars", |p| {
        let x = features(p).into_iter().filter(|(v, _)| *v != "Venue");
        let x: Typed = x.map(|(v, rows)| (v, p.linear("x", &format!(".{v}"), &rows))).collect();
        let subsets = [
            vec![cites(p), p.relation("writes", "Author", "Paper"), p.relation("reverse_writes", "Paper", "Author")],
            vec![p.relation("reviews", "Author", "Paper"), p.relation("reverse_reviews", "Paper", "Author")],
        ];
        let one = subsets.each_ref().map(|graphs| hop(p, graphs, &x));
        let two = [hop(p, &subsets[0], &one[0]), hop(p, &subsets[1], &one[1])];
        let mix = |path: &str, hops: &[Typed; 2]| -> Rows {
            let a = p.param(&format!("{path}.a"));
            let weighed = |k: usize, i: usize| -> Vec<f64> {
                hops[k]["Paper"][i].iter().zip(a.row(k)).map(|(x, a)| x * a).collect()
            };
            (0..p.count("Paper")).map(|i| times(0.5, &add(&weighed(0, i), &weighed(1, i)))).collect()
        };
        let operators = [x["Paper"].clone(), mix("first", &one), mix("second", &two)];
        p.linear("y", "", &inception(p, "z", &operators))
    });
}

/// Yang et al. 2021, eq. 1 to 6.
fn ie_hgcn(p: &Plain<'_>, path: &str, x: &Typed, activation: impl Fn(f64) -> f64) -> Typed {
    let of_type = |vertex: &'static str| {
        let w = |name: &str| p.param(&format!("{path}.{name}.{vertex}"));
        let a = |name: &str, x: &[f64]| dot(x, p.vector(&format!("{path}.{name}.{vertex}")));
        let of_vertex = |i: usize| {
            let mut z = vec![w("w_self").apply(&x[vertex][i])];
            for graph in both_ways(p).iter().filter(|graph| graph.dst == vertex) {
                let project = p.param(&format!("{path}.w.{}", graph.name));
                let sources: Vec<usize> = graph.edges.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
                let none = vec![0.0; z[0].len()];
                let sum = sources.iter().fold(none, |sum, &j| add(&sum, &project.apply(&x[graph.src][j])));
                z.push(times(1.0 / sources.len().max(1) as f64, &sum));
            }
            let query = a("a_q", &w("w_q").apply(&z[0]));
            let scores: Vec<f64> = z.iter().map(|z| elu(a("a_k", &w("w_k").apply(z)) + query)).collect();
            let share = softmax(&scores);
            let sum = share.iter().zip(&z).fold(vec![0.0; z[0].len()], |sum, (a, z)| add(&sum, &times(*a, z)));
            sum.into_iter().map(&activation).collect()
        };
        (vertex, (0..x[vertex].len()).map(of_vertex).collect())
    };
    x.keys().copied().filter(|v| p.param_if_read(path, &format!("w_self.{v}")).is_some()).map(of_type).collect()
}

#[test]
fn ie_hgcn_is_the_paper() {
    agrees("ie_hgcn", |p| {
        let first = ie_hgcn(p, "first", &features(p), elu);
        ie_hgcn(p, "second", &first, |x| x)["Paper"].clone()
    });
}

/// Yun et al. 2019 with the matrices that it multiplies: over all vertices of all types in one order, Q of each hop by a softmax
/// over the semantic graphs and the identity, A = D^-1 Q_2 Q_1, and relu(D̃^-1 (A + I) X W) for each channel.
#[test]
fn gtn_is_the_product_of_matrices() {
    const TYPES: [&str; 3] = ["Paper", "Author", "Venue"];
    agrees("gtn", |p| {
        let x = features(p);
        let project =
            |v: &&'static str| -> Rows { x[v].iter().map(|x| p.param(&format!("x.weight.{v}")).apply(x)).collect() };
        let rows: Rows = TYPES.iter().flat_map(project).collect();
        let n = rows.len();
        let offset = |vertex: &str| -> usize { TYPES.iter().take_while(|v| **v != vertex).map(|v| p.count(v)).sum() };
        let selected = |path: &str, channel: usize| -> Rows {
            let graphs = both_ways(p);
            let mut scores: Vec<f64> =
                graphs.iter().map(|g| p.vector(&format!("{path}.phi.{}", g.name))[channel]).collect();
            scores.push(p.vector(&format!("{path}.own"))[channel]);
            let share = softmax(&times(2.0, &scores));
            let mut q = zeros(n, n);
            for (graph, share) in graphs.iter().zip(&share) {
                for &(j, i) in &graph.edges {
                    q[offset(graph.dst) + i][offset(graph.src) + j] += share;
                }
            }
            (0..n).for_each(|v| q[v][v] += share[graphs.len()]);
            q
        };
        let product = |a: &Rows, b: &Rows| -> Rows {
            let of = |a: &Vec<f64>| {
                let columns = b[0].len();
                (0..columns).map(|k| a.iter().zip(b).map(|(a, b)| a * b[k]).sum()).collect()
            };
            a.iter().map(of).collect()
        };
        let normalized = |a: &Rows| -> Rows {
            let of = |row: &Vec<f64>| {
                let degree: f64 = row.iter().sum();
                times(if degree == 0.0 { 0.0 } else { 1.0 / degree }, row)
            };
            a.iter().map(of).collect()
        };
        let channels = [0, 1].map(|channel| {
            let mut a = normalized(&product(&selected("h_3", channel), &selected("h_2", channel)));
            (0..n).for_each(|v| a[v][v] += 1.0);
            each(&product(&normalized(&a), &rows), relu)
        });
        let joined: Rows = (0..p.count("Paper")).map(|i| [&channels[0][i][..], &channels[1][i]].concat()).collect();
        p.linear("y", "", &joined)
    });
}

/// For each head, a sum of the rows of several relations, weighted by the softmax of scores.
fn weighed(rows: &[Vec<f64>], score: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    let of_head = |k: usize| {
        let share = softmax(&(0..rows.len()).map(|r| leaky(score(r, k), 0.2)).collect::<Vec<_>>());
        share.iter().zip(rows).fold(vec![0.0; 2], |sum, (a, row)| add(&sum, &times(*a, head(row, k, 2))))
    };
    [of_head(0), of_head(1)].concat()
}

/// The graph whose edges are those of this one the other way round.
fn reverse_of(graph: &Graph) -> String {
    graph.name.strip_prefix("reverse_").map_or_else(|| format!("reverse_{}", graph.name), str::to_owned)
}

/// A layer of R-HGNN (Yu et al. 2022): rows of vertices for the given semantic graphs, and rows of those that end in papers, by name.
fn r_hgnn_layer(
    p: &Plain<'_>,
    path: &str,
    graphs: &[Graph],
    (rows, r): (&ByGraph<Rows>, &ByGraph<Vec<f64>>),
) -> (ByGraph<Rows>, ByGraph<Vec<f64>>) {
    let by_type = |name: &str, v: &str| p.param(&format!("{path}.{name}.{v}"));
    let projected = |graph: &str, v: &str| -> Rows { rows[graph].iter().map(|x| by_type("w", v).apply(x)).collect() };
    let convolved = |graph: &Graph| -> Rows {
        let a = p.param(&format!("{path}.w_r.{}", graph.name)).apply(&r[graph.name]);
        let (own, sent) = (projected(graph.name, graph.dst), projected(&reverse_of(graph), graph.src));
        let gate = sigmoid(p.number(&format!("{path}.lambda.{}", graph.dst)));
        let of_vertex = |i: usize| {
            let from: Vec<&Vec<f64>> = graph.edges.iter().filter(|e| e.1 == i).map(|e| &sent[e.0]).collect();
            let of_head = |k: usize| -> Vec<f64> {
                let (a_dst, a_src) = head(&a, k, 2).split_at(2);
                let score = |x: &&Vec<f64>| leaky(dot(head(&own[i], k, 2), a_dst) + dot(head(x, k, 2), a_src), 0.2);
                let alpha = softmax(&from.iter().map(score).collect::<Vec<_>>());
                let messages = alpha.iter().zip(&from);
                let sum = messages.fold(vec![0.0; 2], |sum, (a, x)| add(&sum, &times(*a, head(x, k, 2))));
                sum.into_iter().map(relu).collect()
            };
            let kept = by_type("w_res", graph.dst).apply(&rows[graph.name][i]);
            let kept = add(&kept, &by_type("b_res", graph.dst).data);
            add(&times(gate, &[of_head(0), of_head(1)].concat()), &times(1.0 - gate, &kept))
        };
        (0..p.count(graph.dst)).map(of_vertex).collect()
    };
    let convolved: ByGraph<Rows> = graphs.iter().map(|graph| (graph.name.to_owned(), convolved(graph))).collect();
    // Cross-relation message passing.
    let crossed = |graph: &Graph| -> Rows {
        let q = p.vector(&format!("{path}.q.{}", graph.name));
        let into: Vec<&Graph> = graphs.iter().filter(|other| other.dst == graph.dst).collect();
        let of_vertex = |i: usize| {
            let rows: Rows = into.iter().map(|other| convolved[other.name][i].clone()).collect();
            weighed(&rows, |r, k| dot(head(&rows[r], k, 2), head(q, k, 2)))
        };
        (0..p.count(graph.dst)).map(of_vertex).collect()
    };
    let next = |graph: &Graph| -> Vec<f64> {
        let of = |name: &str| p.param(&format!("{path}.{name}.{}", graph.name));
        add(&of("w_next").apply(&r[graph.name]), &of("b_next").data)
    };
    let named = |graph: &Graph| graph.name.to_owned();
    (
        graphs.iter().map(|graph| (named(graph), crossed(graph))).collect(),
        graphs.iter().filter(|graph| graph.dst == "Paper").map(|graph| (named(graph), next(graph))).collect(),
    )
}

/// Values by the name of the semantic graph.
type ByGraph<T> = BTreeMap<String, T>;

#[test]
fn r_hgnn_is_the_paper() {
    agrees("r_hgnn", |p| {
        let x = features(p);
        let graphs = both_ways(p);
        let input = |graph: &Graph| p.linear("rows.rows", &format!(".{}", graph.dst), &x[graph.dst]);
        let rows = graphs.iter().map(|graph| (graph.name.to_owned(), input(graph))).collect();
        let vector = |graph: &Graph| p.vector(&format!("vectors.vector.{}", graph.name)).to_vec();
        let vectors = graphs.iter().map(|graph| (graph.name.to_owned(), vector(graph))).collect();
        let (rows, r) = r_hgnn_layer(p, "first", &graphs, (&rows, &vectors));
        // Rows of other types are not needed any more.
        let into: Vec<Graph> = graphs.into_iter().filter(|graph| graph.dst == "Paper").collect();
        let (rows, r) = r_hgnn_layer(p, "second", &into, (&rows, &r));
        let heads = |name: &str, graph: &Graph, x: &[f64]| -> Vec<f64> {
            let w = p.param(&format!("fused.{name}.{}", graph.name));
            [0, 1].map(|k| w.part(k).apply(head(x, k, 2))).concat()
        };
        let keys: Rows = into.iter().map(|graph| heads("w_r", graph, &r[graph.name])).collect();
        let fused = |i: usize| {
            let turned: Rows = into.iter().map(|graph| heads("w_x", graph, &rows[graph.name][i])).collect();
            weighed(&turned, |r, k| dot(head(&turned[r], k, 2), head(&keys[r], k, 2)))
        };
        p.linear("y", ".Paper", &(0..p.count("Paper")).map(fused).collect())
    });
}

/// Ji et al. 2021: semantic projection, propagation and fusion.
#[test]
fn hpn_is_the_paper() {
    agrees("hpn", |p| {
        let x = p.input("Paper.x");
        let looped = [p.self_loops(&pap(p), "PAP_self_loops"), p.self_loops(&pvp(p), "PVP_self_loops")];
        let propagated = looped.each_ref().map(|graph| {
            let [w, b] = ["w", "b"].map(|name| p.param(&format!("h.{name}.{}", graph.name)));
            let h: Rows = x.iter().map(|x| add(&w.apply(x), &b.data).into_iter().map(relu).collect()).collect();
            let degree = |v: usize| graph.edges.iter().filter(|e| e.1 == v).count() as f64;
            let mut z = h.clone();
            for _ in 0..2 {
                let mut next: Rows = h.iter().map(|h| times(0.3, h)).collect();
                for &(j, i) in &graph.edges {
                    next[i] = add(&next[i], &times(0.7 / (degree(j) * degree(i)).sqrt(), &z[j]));
                }
                z = next;
            }
            z
        });
        let [w, b, q] = ["w_s", "b_s", "q"].map(|name| p.param(&format!("h.{name}")));
        let importance = |rows: &Rows| {
            let score = |z: &Vec<f64>| {
                let hidden: Vec<f64> = add(&w.apply(z), &b.data).into_iter().map(f64::tanh).collect();
                dot(&q.data, &hidden)
            };
            rows.iter().map(score).sum::<f64>() / rows.len() as f64
        };
        let beta = softmax(&propagated.iter().map(importance).collect::<Vec<_>>());
        let fused = |i: usize| add(&times(beta[0], &propagated[0][i]), &times(beta[1], &propagated[1][i]));
        p.linear("y", "", &(0..x.len()).map(fused).collect())
    });
}

/// Semantic attention of both views of HeCo (eq. 4, 5, 7 and 8): β by the mean over all vertices of qᵀ tanh(W h + b).
fn attended(p: &Plain<'_>, path: &str, suffix: &str, views: &[Rows]) -> Rows {
    let of = |name: &str| p.param(&format!("{path}.{name}{suffix}"));
    let importance = |rows: &Rows| -> f64 {
        let score = |z: &Vec<f64>| {
            let hidden: Vec<f64> = add(&of("w").apply(z), &of("b").data).into_iter().map(f64::tanh).collect();
            dot(&of("q").data, &hidden)
        };
        rows.iter().map(score).sum::<f64>() / rows.len() as f64
    };
    let beta = softmax(&views.iter().map(importance).collect::<Vec<_>>());
    let none = zeros(views[0].len(), views[0].first().map_or(0, Vec::len));
    let sum = |sum: Rows, (beta, view): (&f64, &Rows)| -> Rows {
        sum.iter().zip(view).map(|(sum, z)| add(sum, &times(*beta, z))).collect()
    };
    beta.iter().zip(views).fold(none, sum)
}

/// Wang et al. 2021, eq. 1 to 9: both views and their projections. With `contrast`, also the loss of each vertex (eq. 10).
fn heco(p: &Plain<'_>, contrast: bool) -> Rows {
    let of_type = |(v, rows): (&'static str, Rows)| (v, each(&p.linear("h", &format!(".{v}"), &rows), elu));
    let h: Typed = features(p).into_iter().map(of_type).collect();
    let neighbours = |graph: &Graph, limit: u32| -> Rows {
        let [a_src, a_dst] = ["a_src", "a_dst"].map(|name| p.vector(&format!("schema_view.{name}.{}", graph.name)));
        let of_vertex = |i: usize| {
            let sources = sources(graph, i, limit);
            let rows = || sources.iter().map(|&j| &h[graph.src][j]);
            let own = dot(&h["Paper"][i], a_dst);
            let alpha = softmax(&rows().map(|x| leaky(dot(x, a_src) + own, 0.01)).collect::<Vec<_>>());
            let sum = alpha.iter().zip(rows()).fold(vec![0.0; 4], |sum, (a, x)| add(&sum, &times(*a, x)));
            sum.into_iter().map(elu).collect()
        };
        (0..p.count("Paper")).map(of_vertex).collect()
    };
    let writes = neighbours(&p.relation("writes", "Author", "Paper"), 3);
    let venues = neighbours(&p.relation("reverse_appears_in", "Venue", "Paper"), u32::MAX);
    let schema_view = attended(p, "schema_view", ".Paper", &[writes, venues]);

    let looped = [p.self_loops(&pap(p), "PAP_self_loops"), p.self_loops(&pvp(p), "PVP_self_loops")];
    let along: Vec<Rows> = looped.iter().map(|graph| step(graph, &h["Paper"], false)).collect();
    let path_view = attended(p, "path_view", "", &along);

    // With a weight and an activation; one metapath is all that attention chooses from.
    let prp = p.metapath("PRP", "Paper", &[("reviews", true), ("reviews", false)]);
    let along = step(&p.self_loops(&prp, "PRP_self_loops"), &h["Paper"], false);
    let convolved = |row: &Vec<f64>| -> Vec<f64> {
        let of = |name: &str| p.param(&format!("turned.{name}.PRP_self_loops"));
        add(&of("w_path").apply(row), &of("b_path").data).into_iter().map(elu).collect()
    };
    let turned: Rows = along.iter().map(convolved).collect();

    let project = |rows: &Rows| p.linear("a_2", "", &each(&p.linear("a", "", rows), elu));
    let (a, b) = (project(&schema_view), project(&path_view));
    let similar = |i: usize, j: usize| -> f64 {
        let cosine = dot(&a[i], &b[j]) / (dot(&a[i], &a[i]) * dot(&b[j], &b[j])).sqrt();
        (cosine / 0.8).exp()
    };
    let sum_over = |graph: &Graph, i: usize| -> f64 {
        graph.edges.iter().filter(|edge| edge.1 == i).map(|edge| similar(i, edge.0)).sum()
    };
    let loss = |i: usize| {
        let (same, others) = (sum_over(&looped[0], i), sum_over(&pvp(p), i));
        vec![-(same / (same + others)).ln()]
    };
    let of_vertex = |i: usize| {
        let loss = if contrast { loss(i) } else { vec![] };
        [&a[i][..], &b[i], &turned[i], &loss].concat()
    };
    p.linear("y", "", &(0..a.len()).map(of_vertex).collect())
}

#[test]
fn heco_is_the_paper() {
    agrees("heco", |p| heco(p, false));
    let output = "output y: Paper = linear(concat(a, b, turned), 3)";
    let contrasted = "
        let same = Similarity(temperature: 0.8) over self_loops(PAP) of (a, b)
        let others = Similarity(temperature: 0.8) over PVP of (a, b)
        let loss = reshape(log(same + others) - log(same), [1])
        output y: Paper = linear(concat(a, b, turned, loss), 3)";
    let source = case("heco").source();
    assert!(source.contains(output));
    let source = format!("use std::contrast::Similarity {}", source.replace(output, contrasted));
    source_agrees("contrast", &source, |p| heco(p, true));
}

/// One step of an LSTM with the gates i, f, g, o: the new output and cell.
fn lstm(p: &Plain<'_>, path: &str, input: &[f64], (h, cell): (&[f64], &[f64])) -> (Vec<f64>, Vec<f64>) {
    let (w, u) = (p.param(&format!("{path}.w")), p.param(&format!("{path}.u")));
    let gates = add(&add(&w.apply(input), &u.apply(h)), p.vector(&format!("{path}.b")));
    let gate = |k: usize, d: usize| gates[k * cell.len() + d];
    let next: Vec<f64> = (cell.iter().enumerate())
        .map(|(d, cell)| sigmoid(gate(1, d)) * cell + sigmoid(gate(0, d)) * gate(2, d).tanh())
        .collect();
    (next.iter().enumerate().map(|(d, cell)| sigmoid(gate(3, d)) * cell.tanh()).collect(), next)
}

/// Vinyals et al. 2016, eq. 3 to 7: of a paper, the set of its authors and reviewers.
#[test]
fn set2set_is_the_paper() {
    agrees("set2set", |p| {
        let x = p.input("Author.x");
        let graphs = [p.relation("writes", "Author", "Paper"), p.relation("reviews", "Author", "Paper")];
        let of_paper = |i: usize| {
            let into = graphs.iter().flat_map(|graph| &graph.edges).filter(|edge| edge.1 == i);
            let set: Vec<&Vec<f64>> = into.map(|edge| &x[edge.0]).collect();
            let (mut query, mut cell, mut out) = (vec![0.0; 3], vec![0.0; 3], vec![0.0; 6]);
            for _ in 0..2 {
                (query, cell) = lstm(p, "r", &out, (&query, &cell));
                let scores: Vec<f64> = set.iter().map(|x| dot(x, &query)).collect();
                let alpha = if scores.is_empty() { vec![] } else { softmax(&scores) };
                let read = alpha.iter().zip(&set).fold(vec![0.0; 3], |sum, (alpha, x)| add(&sum, &times(*alpha, x)));
                out = [&query[..], &read].concat();
            }
            out
        };
        p.linear("y", "", &(0..p.count("Paper")).map(of_paper).collect())
    });
}

/// Park et al. 2020, eq. 1 to 4, with w = 3: the encoder of a metapath, its summary, and what the discriminator loses.
#[test]
fn dmgi_is_the_paper() {
    agrees("dmgi", |p| {
        let graph = p.self_loops(&pap(p), "PAP_self_loops");
        // Of the two more of the loop, too.
        let degree = |v: usize| graph.edges.iter().filter(|edge| edge.1 == v).count() as f64 + 2.0;
        let encode = |w: &str| -> Rows {
            let x: Rows = p.input("Paper.x").iter().map(|x| p.param(&format!("{w}.weight")).apply(x)).collect();
            let of_vertex = |i: usize| {
                let own = times(2.0 / degree(i), &x[i]);
                let around = graph.edges.iter().filter(|edge| edge.1 == i);
                let sum =
                    around.fold(own, |sum, &(j, _)| add(&sum, &times(1.0 / (degree(j) * degree(i)).sqrt(), &x[j])));
                sum.into_iter().map(relu).collect()
            };
            (0..x.len()).map(of_vertex).collect()
        };
        let (real, fake) = (encode("a"), encode("b"));
        let sum = real.iter().fold(vec![0.0; 3], |sum, h| add(&sum, h));
        let summary: Vec<f64> = sum.iter().map(|x| sigmoid(x / real.len() as f64)).collect();
        let score = |h: &[f64]| dot(&p.param("real.m").apply(h), &summary);
        let of_vertex = |(real, fake): (&Vec<f64>, &Vec<f64>)| {
            let losses = [-sigmoid(score(real)).ln(), -(1.0 - sigmoid(score(fake))).ln()];
            [&real[..], fake, &losses].concat()
        };
        p.linear("y", "", &real.iter().zip(&fake).map(of_vertex).collect())
    });
}
