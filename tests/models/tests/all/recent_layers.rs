//! Layers of the standard library published since 2019 against references written from their papers' equations, as in `layers.rs`.

use std::collections::BTreeMap;

use hgnnc_model_tests::plain::{
    Graph, Plain, Rows, Typed, add, dot, each, elu, head, leaky, relu, softmax, times, zeros,
};

use hgnnc_model_tests::cases::{SCHEMA, TRAIN};

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
