//! Every layer of the standard library against a reference written from its paper's equations.
//!
//! References are loops over vertices and edges on plain vectors. Each model runs in a written-down world with
//! everything that breaks other tools (isolated vertices, an empty relation, duplicate edges, a self loop) and in
//! random ones, on the f64 interpreter with random parameters. Tolerance: 1e-10, relative to the largest number.

use hgnnc_model_tests::plain::{
    Graph, Plain, Rows, Typed, add, dot, each, elu, gelu, head, leaky, relu, sigmoid, softmax, softmax_in_edges, times,
    zeros,
};
use hgnnc_model_tests::{assert_close, case, cases, compile, worlds};

const TOLERANCE: f64 = 1e-10;

/// Compares the output `y` of a case with a reference in all worlds.
#[track_caller]
pub fn agrees(name: &str, reference: impl Fn(&Plain<'_>) -> Rows) {
    source_agrees(name, &case(name).source(), reference);
}

/// Compares the output `y` of a model with a reference in all worlds.
#[track_caller]
pub fn source_agrees(name: &str, source: &str, reference: impl Fn(&Plain<'_>) -> Rows) {
    let compiled = compile(source);
    for world in cases::worlds(worlds(12)) {
        let found = compiled.output(&world, "y");
        let expected = reference(&Plain::of(&compiled, &world));
        assert_eq!(found.rows, expected.len(), "{name}, world {}: one row per paper", world.seed);
        assert_close(&format!("{name}, world {}", world.seed), &found.data, &expected.concat(), TOLERANCE);
    }
}

// ---- the parts of the schema -------------------------------------------------------------------------

pub fn features(p: &Plain<'_>) -> Typed {
    ["Paper", "Author", "Venue"].into_iter().map(|v| (v, rows_or_zero(p, v))).collect()
}

/// Features of a type; of the right number of rows even where the model never reads them.
fn rows_or_zero(p: &Plain<'_>, vertex: &'static str) -> Rows {
    let rows = p.input(&format!("{vertex}.x"));
    if rows.len() == p.count(vertex) { rows } else { zeros(p.count(vertex), 1) }
}

pub fn both_ways(p: &Plain<'_>) -> Vec<Graph> {
    vec![
        p.relation("cites", "Paper", "Paper"),
        p.relation("writes", "Author", "Paper"),
        p.relation("reviews", "Author", "Paper"),
        p.relation("appears_in", "Paper", "Venue"),
        p.relation("reverse_cites", "Paper", "Paper"),
        p.relation("reverse_writes", "Paper", "Author"),
        p.relation("reverse_reviews", "Paper", "Author"),
        p.relation("reverse_appears_in", "Venue", "Paper"),
    ]
}

pub fn pap(p: &Plain<'_>) -> Graph {
    p.metapath("PAP", "Paper", &[("writes", true), ("writes", false)])
}

pub fn pvp(p: &Plain<'_>) -> Graph {
    p.metapath("PVP", "Paper", &[("appears_in", false), ("appears_in", true)])
}

fn prp(p: &Plain<'_>) -> Graph {
    p.metapath("PRP", "Paper", &[("reviews", true), ("reviews", false)])
}

pub fn cites(p: &Plain<'_>) -> Graph {
    p.relation("cites", "Paper", "Paper")
}

pub fn looped_cites(p: &Plain<'_>) -> Graph {
    p.self_loops(&cites(p), "cites_self_loops")
}

fn each_type(x: &Typed, f: impl Fn(f64) -> f64 + Copy) -> Typed {
    x.iter().map(|(v, rows)| (*v, each(rows, f))).collect()
}

/// `linear(features, n)`: a weight and a bias for each vertex type.
pub fn embedded(p: &Plain<'_>) -> Typed {
    features(p).into_iter().map(|(v, rows)| (v, p.linear("embedded", &format!(".{v}"), &rows))).collect()
}

/// The vertex types whose values reach the output: only their parameters are in the compiled model.
fn only<'v>(wanted: &'v [&'static str]) -> impl Fn(&&'static str) -> bool + 'v {
    move |v| wanted.contains(v)
}

const ALL: &[&str] = &["Paper", "Author", "Venue"];
const PAPER: &[&str] = &["Paper"];

// ---- HAN --------------------------------------------------------------------------------------------

/// Wang et al. 2019. Node-level attention per metapath (eq. 1 to 5), semantic-level attention with one weight
/// per metapath: the mean over *all* vertices (eq. 7), isolated ones included (eq. 8 and 9).
fn han(p: &Plain<'_>, graphs: &[Graph], x: &Rows, heads: usize, slope: f64) -> Rows {
    let h: Rows = x.iter().map(|x| p.param("conv.w").apply(x)).collect();
    let width = h.first().map_or(0, Vec::len);
    let mut embeddings = vec![];
    let mut importance = vec![];
    for graph in graphs {
        let a_src = p.param(&format!("conv.a_src.{}", graph.name));
        let a_dst = p.param(&format!("conv.a_dst.{}", graph.name));
        let score = |&(j, i): &(usize, usize)| -> Vec<f64> {
            let of = |k| dot(head(&h[j], k, heads), a_src.row(k)) + dot(head(&h[i], k, heads), a_dst.row(k));
            (0..heads).map(|k| leaky(of(k), slope)).collect()
        };
        let scores: Rows = graph.edges.iter().map(score).collect();
        let alpha = softmax_in_edges(&[graph], &[scores]).remove(0);
        let mut z = zeros(x.len(), width);
        for (&(j, i), alpha) in graph.edges.iter().zip(&alpha) {
            for k in 0..heads {
                for d in 0..width / heads {
                    z[i][k * width / heads + d] += alpha[k] * head(&h[j], k, heads)[d];
                }
            }
        }
        let z = each(&z, elu);
        let (w, b, q) = (p.param("conv.w_s"), p.vector("conv.b_s"), p.vector("conv.q"));
        let of_vertex = |z: &Vec<f64>| -> f64 {
            let hidden = add(&w.apply(z), b);
            q.iter().zip(&hidden).map(|(q, x)| q * x.tanh()).sum()
        };
        importance.push(z.iter().map(of_vertex).sum::<f64>() / z.len() as f64);
        embeddings.push(z);
    }
    let beta = softmax(&importance);
    let mut out = zeros(x.len(), width);
    for (beta, z) in beta.iter().zip(&embeddings) {
        for (row, z) in out.iter_mut().zip(z) {
            *row = add(row, &times(*beta, z));
        }
    }
    out
}

#[test]
fn han_is_the_paper() {
    agrees("han", |p| {
        let conv = han(p, &[pap(p), pvp(p), prp(p), cites(p)], &p.input("Paper.x"), 2, 0.2);
        p.linear("y", "", &conv)
    });
}

// ---- RGCN -------------------------------------------------------------------------------------------

/// Schlichtkrull et al. 2018, eq. 2: W_0 x_i + Σ_r 1/|N_r(i)| Σ_j W_r x_j (+ b). `message` is W_r x_j.
fn rgcn(
    p: &Plain<'_>,
    path: &str,
    types: &[&'static str],
    x: &Typed,
    bias: bool,
    message: impl Fn(&Graph, &[f64]) -> Vec<f64>,
) -> Typed {
    let mut out = Typed::new();
    for &vertex in types {
        let w_self = p.param(&format!("{path}.w_self.{vertex}"));
        let mut rows: Rows = x[vertex].iter().map(|x| w_self.apply(x)).collect();
        for graph in both_ways(p).iter().filter(|g| g.dst == vertex) {
            for (i, row) in rows.iter_mut().enumerate() {
                let sources: Vec<usize> = graph.edges.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
                for &j in &sources {
                    let message = message(graph, &x[graph.src][j]);
                    *row = add(row, &times(1.0 / sources.len() as f64, &message));
                }
            }
        }
        if bias {
            let b = p.vector(&format!("{path}.b.{vertex}"));
            rows.iter_mut().for_each(|row| *row = add(row, b));
        }
        out.insert(vertex, rows);
    }
    out
}

fn plain_rgcn(p: &Plain<'_>, path: &str, types: &[&'static str], x: &Typed) -> Typed {
    rgcn(p, path, types, x, true, |graph, x| p.param(&format!("{path}.w.{}", graph.name)).apply(x))
}

#[test]
fn rgcn_is_the_paper() {
    agrees("rgcn", |p| {
        let first = each_type(&plain_rgcn(p, "first", ALL, &features(p)), relu);
        plain_rgcn(p, "y", PAPER, &first).remove("Paper").expect("papers")
    });
}

/// Eq. 3: W_r = Σ_b a_rb V_b with the V_b shared by all relations.
#[test]
fn rgcn_with_bases_is_the_paper() {
    agrees("rgcn_basis", |p| {
        let message = |graph: &Graph, x: &[f64]| {
            let coefficients = p.vector(&format!("conv.w.coefficients.{}", graph.name));
            let bases = p.param("conv.w.bases");
            let terms = coefficients.iter().enumerate().map(|(b, a)| times(*a, &bases.part(b).apply(x)));
            terms.reduce(|a, b| add(&a, &b)).expect("at least one basis")
        };
        rgcn(p, "conv", PAPER, &embedded(p), true, message).remove("Paper").expect("papers")
    });
}

/// Eq. 4: W_r = diag(Q_1r, …, Q_Br).
#[test]
fn rgcn_with_blocks_is_the_paper() {
    agrees("rgcn_block", |p| {
        let message = |graph: &Graph, x: &[f64]| {
            let blocks = p.param(&format!("conv.w.{}", graph.name));
            (0..2).flat_map(|b| blocks.part(b).apply(head(x, b, 2))).collect::<Vec<f64>>()
        };
        let conv = rgcn(p, "conv", PAPER, &embedded(p), false, message);
        p.linear("y", "", &conv["Paper"])
    });
}

// ---- RGAT -------------------------------------------------------------------------------------------

/// Busbridge et al. 2019: additive logits from one projection per relation and end, softmax inside each relation
/// (WIRGAT) or over all in-edges (ARGAT), a sum over relations and a self term.
fn rgat(p: &Plain<'_>, x: &Typed, heads: usize, slope: f64, across: bool) -> Rows {
    let graphs: Vec<Graph> = both_ways(p).into_iter().filter(|g| g.dst == "Paper").collect();
    let (mut messages, mut scores) = (vec![], vec![]);
    for graph in &graphs {
        let of = |what: &str| p.param(&format!("conv.{what}.{}", graph.name));
        let (w, w_dst, a_src, a_dst) = (of("w"), of("w_dst"), of("a_src"), of("a_dst"));
        let message: Rows = graph.edges.iter().map(|e| w.apply(&x[graph.src][e.0])).collect();
        let query: Rows = graph.edges.iter().map(|e| w_dst.apply(&x[graph.dst][e.1])).collect();
        let score = |(m, q): (&Vec<f64>, &Vec<f64>)| -> Vec<f64> {
            let of = |k| dot(head(m, k, heads), a_src.row(k)) + dot(head(q, k, heads), a_dst.row(k));
            (0..heads).map(|k| leaky(of(k), slope)).collect()
        };
        scores.push(message.iter().zip(&query).map(score).collect::<Rows>());
        messages.push(message);
    }
    let shares: Vec<Rows> = if across {
        softmax_in_edges(&graphs.iter().collect::<Vec<_>>(), &scores)
    } else {
        graphs.iter().zip(&scores).map(|(g, s)| softmax_in_edges(&[g], std::slice::from_ref(s)).remove(0)).collect()
    };
    let mut out: Rows = x["Paper"].iter().map(|x| p.param("conv.w_self.Paper").apply(x)).collect();
    for ((graph, message), share) in graphs.iter().zip(&messages).zip(&shares) {
        for ((&(_, i), message), share) in graph.edges.iter().zip(message).zip(share) {
            let weighted: Vec<f64> = (0..heads).flat_map(|k| times(share[k], head(message, k, heads))).collect();
            out[i] = add(&out[i], &weighted);
        }
    }
    out.iter().map(|row| add(row, p.vector("conv.b.Paper"))).collect()
}

#[test]
fn rgat_within_relations_is_the_paper() {
    agrees("rgat", |p| p.linear("y", "", &rgat(p, &features(p), 2, 0.2, false)));
}

#[test]
fn rgat_across_relations_is_the_paper() {
    agrees("rgat_across", |p| p.linear("y", "", &rgat(p, &features(p), 2, 0.2, true)));
}

// ---- GCN --------------------------------------------------------------------------------------------

/// Kipf & Welling 2017, eq. 2 with D the in-degrees. A source without in-edges (impossible in the paper, whose
/// graphs are undirected with self loops) counts as one of degree 1.
fn gcn(p: &Plain<'_>, path: &str, graph: &Graph, x: &Rows) -> Rows {
    let degree = |v: usize| graph.edges.iter().filter(|e| e.1 == v).count().max(1) as f64;
    let w = p.param(&format!("{path}.w"));
    let width = w.dims[1];
    let mut out = zeros(x.len(), width);
    for &(j, i) in &graph.edges {
        let share = 1.0 / (degree(j) * degree(i)).sqrt();
        out[i] = add(&out[i], &times(share, &w.apply(&x[j])));
    }
    out.iter().map(|row| add(row, p.vector(&format!("{path}.b")))).collect()
}

#[test]
fn gcn_is_the_paper() {
    agrees("gcn", |p| {
        let first = each(&gcn(p, "first", &looped_cites(p), &p.input("Paper.x")), relu);
        gcn(p, "y", &cites(p), &first)
    });
}

// ---- GAT --------------------------------------------------------------------------------------------

/// Veličković et al. 2018, eq. 3 for each graph; heads joined (eq. 5) or averaged (eq. 6), graphs summed.
fn gat(p: &Plain<'_>, path: &str, graphs: &[Graph], x: &Rows, heads: usize, average: bool) -> Rows {
    let h: Rows = x.iter().map(|x| p.param(&format!("{path}.w")).apply(x)).collect();
    let hidden = h.first().map_or(0, Vec::len) / heads;
    let bias = p.vector(&format!("{path}.b"));
    let mut out: Rows = vec![bias.to_vec(); x.len()];
    for graph in graphs {
        let a_src = p.param(&format!("{path}.a_src.{}", graph.name));
        let a_dst = p.param(&format!("{path}.a_dst.{}", graph.name));
        for (i, row) in out.iter_mut().enumerate() {
            let sources: Vec<usize> = graph.edges.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
            for k in 0..heads {
                let logit = |&j: &usize| {
                    leaky(dot(head(&h[j], k, heads), a_src.row(k)) + dot(head(&h[i], k, heads), a_dst.row(k)), 0.2)
                };
                let alpha = softmax(&sources.iter().map(logit).collect::<Vec<_>>());
                for (&j, alpha) in sources.iter().zip(alpha) {
                    for d in 0..hidden {
                        let term = alpha * head(&h[j], k, heads)[d];
                        if average { row[d] += term / heads as f64 } else { row[k * hidden + d] += term }
                    }
                }
            }
        }
    }
    out
}

/// A graph without its edges (v, v), under another name.
fn without_loops(graph: Graph, name: &'static str) -> Graph {
    let edges: Vec<(usize, usize)> = graph.edges.iter().copied().filter(|edge| edge.0 != edge.1).collect();
    Graph { name, edges, ..graph }
}

/// PAP joins every paper with an author to itself, and a paper of the handwritten world cites itself.
#[test]
fn graphs_without_self_loops_have_all_other_edges() {
    agrees("gat_without_loops", |p| {
        let graphs =
            [without_loops(cites(p), "cites_without_self_loops"), without_loops(pap(p), "PAP_without_self_loops")];
        let conv = gat(p, "conv", &graphs, &p.input("Paper.x"), 2, false);
        p.linear("y", "", &each(&conv, elu))
    });
}

#[test]
fn gat_with_joined_heads_is_the_paper() {
    agrees("gat", |p| {
        let conv = gat(p, "conv", &[looped_cites(p), pap(p)], &p.input("Paper.x"), 2, false);
        p.linear("y", "", &each(&conv, elu))
    });
}

#[test]
fn gat_with_averaged_heads_is_the_paper() {
    agrees("gat_average", |p| gat(p, "y", &[looped_cites(p), pap(p)], &p.input("Paper.x"), 2, true));
}

// ---- GraphSAGE --------------------------------------------------------------------------------------

/// Hamilton et al. 2017, algorithm 1 with the mean aggregator: W [x_i ‖ mean x_j] = W_1 x_i + W_2 mean x_j. On
/// one relation RGCN is the same function.
#[test]
fn sage_with_means_is_the_paper() {
    agrees("sage_mean", |p| {
        let first = each_type(&plain_rgcn(p, "first", ALL, &features(p)), relu);
        plain_rgcn(p, "y", PAPER, &first).remove("Paper").expect("papers")
    });
}

/// Eq. 3: max over neighbours, element by element, of relu(W_pool x_j + b); nothing without neighbours.
#[test]
fn sage_with_pooling_is_the_paper() {
    agrees("sage_max", |p| {
        let x = features(p);
        let w_self = p.param("conv.w_self.Paper");
        let mut out: Rows = x["Paper"].iter().map(|x| w_self.apply(x)).collect();
        for graph in both_ways(p).iter().filter(|g| g.dst == "Paper") {
            let w_pool = p.param(&format!("conv.w_pool.{}", graph.src));
            let b_pool = p.vector(&format!("conv.b_pool.{}", graph.src));
            let w = p.param(&format!("conv.w.{}", graph.name));
            for (i, row) in out.iter_mut().enumerate() {
                let mut most: Option<Vec<f64>> = None;
                for &(j, _) in graph.edges.iter().filter(|e| e.1 == i) {
                    let pooled: Vec<f64> = add(&w_pool.apply(&x[graph.src][j]), b_pool).into_iter().map(relu).collect();
                    most = Some(match most {
                        None => pooled,
                        Some(most) => most.iter().zip(&pooled).map(|(a, b)| a.max(*b)).collect(),
                    });
                }
                if let Some(most) = most {
                    *row = add(row, &w.apply(&most));
                }
            }
        }
        let out: Rows = out.iter().map(|row| add(row, p.vector("conv.b.Paper"))).collect();
        p.linear("y", "", &out)
    });
}

// ---- GIN --------------------------------------------------------------------------------------------

/// Xu et al. 2019, eq. 4.1: MLP((1 + ε) x_i + Σ_j x_j), summed over graphs that have it in common. The batch of
/// the normalisation is the whole graph.
fn gin(p: &Plain<'_>, graphs: &[Graph], x: &Rows, normalize: bool) -> Rows {
    let eps = p.number("conv.eps");
    let mut sums: Rows = x.iter().map(|x| times(1.0 + eps, x)).collect();
    for graph in graphs {
        for &(j, i) in &graph.edges {
            sums[i] = add(&sums[i], &x[j]);
        }
    }
    let mut hidden: Rows = sums.iter().map(|x| add(&p.param("conv.w1").apply(x), p.vector("conv.b1"))).collect();
    if normalize {
        let rows = hidden.len() as f64;
        let (scale, shift) = (p.vector("conv.normal.scale"), p.vector("conv.normal.shift"));
        for d in 0..scale.len() {
            let mean = hidden.iter().map(|h| h[d]).sum::<f64>() / rows;
            let variance = hidden.iter().map(|h| (h[d] - mean).powi(2)).sum::<f64>() / rows;
            for h in &mut hidden {
                h[d] = (h[d] - mean) / (variance + 1e-5).sqrt() * scale[d] + shift[d];
            }
        }
    }
    p.linear("conv.out", "", &each(&hidden, relu))
}

#[test]
fn gin_is_the_paper() {
    agrees("gin", |p| p.linear("y", "", &gin(p, &[cites(p)], &p.input("Paper.x"), false)));
}

#[test]
fn gin_with_normalisation_is_the_paper() {
    agrees("gin_normalized", |p| p.linear("y", "", &gin(p, &[cites(p), pap(p)], &p.input("Paper.x"), true)));
}

// ---- Simple-HGN -------------------------------------------------------------------------------------

/// Lv et al. 2021: GAT logits with an embedding of the relation, softmax over all in-edges, residual attention
/// α = (1 - β) α + β α_prev, residual vertices, and for the last layer rows of length 1.
#[allow(clippy::too_many_arguments)]
fn simple_hgn(
    p: &Plain<'_>,
    path: &str,
    types: &[&'static str],
    x: &Typed,
    heads: usize,
    beta: f64,
    prev: Option<&[Rows]>,
    normalize: bool,
) -> (Typed, Vec<Rows>) {
    let graphs = both_ways(p);
    // Only graphs into wanted types have parameters; the shares of others are never read.
    let wanted: Vec<&Graph> = graphs.iter().filter(|g| only(types)(&g.dst)).collect();
    let mut scores = vec![];
    let h = |vertex: &str, i: usize| p.param(&format!("{path}.w.{vertex}")).apply(&x[vertex][i]);
    let (a_src, a_dst) = (p.param(&format!("{path}.a_src")), p.param(&format!("{path}.a_dst")));
    for graph in &wanted {
        let r = p.vector(&format!("{path}.r.{}", graph.name));
        let embedded = p.param(&format!("{path}.w_r")).apply(r);
        let a_edge = p.param(&format!("{path}.a_edge"));
        let score = |&(j, i): &(usize, usize)| -> Vec<f64> {
            let (hj, hi) = (h(graph.src, j), h(graph.dst, i));
            let of = |k| {
                dot(head(&hj, k, heads), a_src.row(k))
                    + dot(head(&hi, k, heads), a_dst.row(k))
                    + dot(head(&embedded, k, heads), a_edge.row(k))
            };
            (0..heads).map(|k| leaky(of(k), 0.05)).collect()
        };
        scores.push(graph.edges.iter().map(score).collect::<Rows>());
    }
    let mut alpha = softmax_in_edges(&wanted, &scores);
    if let Some(prev) = prev {
        for (graph, alpha) in wanted.iter().zip(&mut alpha) {
            let position = graphs.iter().position(|g| g.name == graph.name).expect("a graph of the family");
            for (alpha, prev) in alpha.iter_mut().zip(&prev[position]) {
                *alpha = add(&times(1.0 - beta, alpha), &times(beta, prev));
            }
        }
    }
    let mut out = Typed::new();
    for &vertex in types {
        let bias = p.vector(&format!("{path}.b.{vertex}"));
        let residual = |x: &Vec<f64>| {
            let own =
                if x.len() == bias.len() { x.clone() } else { p.param(&format!("{path}.w_res.{vertex}")).apply(x) };
            add(&own, bias)
        };
        let mut rows: Rows = x[vertex].iter().map(residual).collect();
        for (graph, alpha) in wanted.iter().zip(&alpha).filter(|(g, _)| g.dst == vertex) {
            for (&(j, i), alpha) in graph.edges.iter().zip(alpha) {
                let hj = h(graph.src, j);
                let weighted: Vec<f64> = (0..heads).flat_map(|k| times(alpha[k], head(&hj, k, heads))).collect();
                rows[i] = add(&rows[i], &weighted);
            }
        }
        if normalize {
            rows.iter_mut().for_each(|row| *row = times(1.0 / dot(row, row).sqrt(), row));
        }
        out.insert(vertex, rows);
    }
    (out, alpha)
}

#[test]
fn simple_hgn_is_the_paper() {
    agrees("simple_hgn", |p| {
        let (first, alpha) = simple_hgn(p, "first", ALL, &features(p), 2, 0.05, None, false);
        let first = each_type(&first, elu);
        let (second, _) = simple_hgn(p, "second", PAPER, &first, 2, 0.25, Some(&alpha), true);
        p.linear("y", "", &second["Paper"])
    });
}

// ---- HGT --------------------------------------------------------------------------------------------

/// Hu et al. 2020: K, Q and M per vertex type, W_att, W_msg and μ per relation, K W_att Qᵀ μ / √d (eq. 3), one
/// softmax over all in-edges (or one per relation, as some tools do), messages M W_msg (eq. 4), gelu and a linear
/// map per target type (eq. 5), mixed with the input by a gate where widths agree.
fn hgt(
    p: &Plain<'_>,
    path: &str,
    types: &[&'static str],
    x: &Typed,
    (heads, hidden): (usize, usize),
    (per_relation, gated, times_of): (bool, bool, Option<&Typed>),
) -> Typed {
    let graphs: Vec<Graph> = both_ways(p).into_iter().filter(|g| only(types)(&g.dst)).collect();
    let project = |what: &str, vertex: &str, x: &[f64]| {
        let w = p.param(&format!("{path}.w_{what}.{vertex}"));
        add(&w.apply(x), p.vector(&format!("{path}.b_{what}.{vertex}")))
    };
    // A source sends along an edge its row, with the temporal encoding of eq. 6 to 8 where there are times.
    let sent = |graph: &Graph, j: usize, i: usize| -> Vec<f64> {
        let Some(times_of) = times_of else { return x[graph.src][j].clone() };
        let later = times_of[graph.dst][i][0] - times_of[graph.src][j][0];
        let base = temporal_base(later, x[graph.src][j].len());
        let encoded = add(&p.param(&format!("{path}.w_t")).apply(&base), p.vector(&format!("{path}.b_t")));
        add(&x[graph.src][j], &encoded)
    };
    let mut scores = vec![];
    for graph in &graphs {
        let w_att = p.param(&format!("{path}.w_att.{}", graph.name));
        let mu = p.vector(&format!("{path}.mu.{}", graph.name));
        let score = |&(j, i): &(usize, usize)| -> Vec<f64> {
            let (key, query) = (project("k", graph.src, &sent(graph, j, i)), project("q", graph.dst, &x[graph.dst][i]));
            let of = |k| dot(&w_att.part(k).apply(head(&key, k, heads)), head(&query, k, heads));
            (0..heads).map(|k| of(k) * mu[k] / (hidden as f64).sqrt()).collect()
        };
        scores.push(graph.edges.iter().map(score).collect::<Rows>());
    }
    let shares: Vec<Rows> = if per_relation {
        graphs.iter().zip(&scores).map(|(g, s)| softmax_in_edges(&[g], std::slice::from_ref(s)).remove(0)).collect()
    } else {
        softmax_in_edges(&graphs.iter().collect::<Vec<_>>(), &scores)
    };
    let mut out = Typed::new();
    for &vertex in types {
        let mut message = zeros(p.count(vertex), heads * hidden);
        // Relations are added where they share a softmax, and averaged where each has its own.
        let relations = graphs.iter().filter(|g| g.dst == vertex).count();
        let part = if per_relation { 1.0 / relations as f64 } else { 1.0 };
        for (graph, share) in graphs.iter().zip(&shares).filter(|(g, _)| g.dst == vertex) {
            let w_msg = p.param(&format!("{path}.w_msg.{}", graph.name));
            for (&(j, i), share) in graph.edges.iter().zip(share) {
                let m = project("m", graph.src, &sent(graph, j, i));
                let of = |k: usize| times(part * share[k], &w_msg.part(k).apply(head(&m, k, heads)));
                message[i] = add(&message[i], &(0..heads).flat_map(of).collect::<Vec<f64>>());
            }
        }
        let w = p.param(&format!("{path}.w.{vertex}"));
        let b = p.vector(&format!("{path}.b.{vertex}"));
        let rows = message.iter().zip(&x[vertex]).map(|(message, own)| {
            let activated: Vec<f64> = message.iter().map(|&x| gelu(x)).collect();
            let a = add(&w.apply(&activated), b);
            if own.len() != a.len() || !gated {
                return a;
            }
            let gate = sigmoid(p.number(&format!("{path}.skip.{vertex}")));
            add(&times(gate, &a), &times(1.0 - gate, own))
        });
        out.insert(vertex, rows.collect());
    }
    out
}

/// With a softmax per relation, the second layer has no gate.
fn two_layers_of_hgt(p: &Plain<'_>, per_relation: bool) -> Rows {
    let first = hgt(p, "first", ALL, &features(p), (2, 3), (per_relation, true, None));
    let second = hgt(p, "second", PAPER, &first, (2, 3), (per_relation, !per_relation, None));
    p.linear("y", "", &second["Paper"])
}

#[test]
fn hgt_over_all_in_edges_is_the_paper() {
    agrees("hgt", |p| two_layers_of_hgt(p, false));
}

#[test]
fn hgt_per_relation_is_the_equation_per_relation() {
    agrees("hgt_per_relation", |p| two_layers_of_hgt(p, true));
}

/// Hu et al. 2020, eq. 6: sin(ΔT / 10000^(2i / d)) in front of cos(ΔT / 10000^((2i + 1) / d)).
fn temporal_base(later: f64, width: usize) -> Vec<f64> {
    let angle = |k: usize| later / 10000f64.powf(k as f64 / width as f64);
    (0..width).map(|k| if k % 2 == 0 { angle(k).sin() } else { angle(k).cos() }).collect()
}

#[test]
fn hgt_with_times_encodes_them_as_in_the_paper() {
    agrees("hgt_rte", |p| {
        let times = [("Paper", "year"), ("Author", "since"), ("Venue", "since")];
        let times = times.map(|(vertex, field)| (vertex, p.input(&format!("{vertex}.{field}"))));
        let times = times.into_iter().map(|(v, rows)| (v, if rows.is_empty() { zeros(p.count(v), 1) } else { rows }));
        let times: Typed = times.collect();
        let embedded = features(p).iter().map(|(v, x)| (*v, p.linear("embedded", &format!(".{v}"), x))).collect();
        let first = hgt(p, "first", ALL, &embedded, (2, 3), (false, true, Some(&times)));
        let second = hgt(p, "second", PAPER, &first, (2, 3), (false, true, Some(&times)));
        p.linear("y", "", &second["Paper"])
    });
}

// ---- MAGNN ------------------------------------------------------------------------------------------

/// A metapath: its name, the vertex types along it, and its steps over relations, walked forwards or (`true`) backwards.
struct Metapath {
    name: &'static str,
    types: &'static [&'static str],
    steps: &'static [(&'static str, bool)],
}

const PAP: Metapath =
    Metapath { name: "PAP", types: &["Paper", "Author", "Paper"], steps: &[("writes", true), ("writes", false)] };
const PVP: Metapath = Metapath {
    name: "PVP",
    types: &["Paper", "Venue", "Paper"],
    steps: &[("appears_in", false), ("appears_in", true)],
};
const PRP: Metapath =
    Metapath { name: "PRP", types: &["Paper", "Author", "Paper"], steps: &[("reviews", true), ("reviews", false)] };
const CITES: Metapath = Metapath { name: "cites", types: &["Paper", "Paper"], steps: &[("cites", false)] };
const WRITES: Metapath = Metapath { name: "writes", types: &["Author", "Paper"], steps: &[("writes", false)] };

/// Fu et al. 2020, one vertex type's values after the layer `of`: content transformation (eq. 1), instance encoder (the mean
/// of the vertices' values, or `o_i = h_i + o_{i-1} ⊙ r_i` of complex numbers with `o_n / (n + 1)`), intra-metapath
/// attention (eq. 3 to 5), inter-metapath attention (eq. 6 and 7). Rotations are given by the tangent of half their angle;
/// against a relation, its rotation is turned back.
fn magnn(p: &Plain<'_>, of: &str, end: &'static str, metapaths: &[Metapath], h: &Typed, rotate: bool) -> Rows {
    let heads = p.param(&format!("{of}.a_dst.{}", metapaths[0].name)).dims[1];
    let encode = |metapath: &Metapath, path: &Vec<usize>| -> Vec<f64> {
        let at = |i: usize| &h[metapath.types[i]][path[i]];
        let mut o = at(0).clone();
        for i in 1..path.len() {
            if rotate {
                let (relation, backwards) = metapath.steps[i - 1];
                for (k, number) in o.chunks_exact_mut(2).enumerate() {
                    let angle = 2.0 * p.vector(&format!("{of}.t.{relation}"))[k].atan();
                    let angle = if backwards { -angle } else { angle };
                    let (re, im) = (number[0], number[1]);
                    number[0] = re * angle.cos() - im * angle.sin();
                    number[1] = re * angle.sin() + im * angle.cos();
                }
            }
            o = add(&o, at(i));
        }
        times(1.0 / path.len() as f64, &o)
    };
    let count = p.count(end);
    let (mut values, mut importance) = (vec![], vec![]);
    for metapath in metapaths.iter().filter(|m| m.types.last() == Some(&end)) {
        let a_dst = p.param(&format!("{of}.a_dst.{}", metapath.name));
        let a_path = p.param(&format!("{of}.a_path.{}", metapath.name));
        let paths = p.instances(metapath.steps, end);
        let mut z = zeros(count, heads * a_dst.dims[0]);
        for (vertex, z) in z.iter_mut().enumerate() {
            let own: Rows =
                paths.iter().filter(|path| path.last() == Some(&vertex)).map(|m| encode(metapath, m)).collect();
            for k in 0..heads {
                let score = |o: &Vec<f64>| leaky(a_dst.apply(&h[end][vertex])[k] + a_path.apply(o)[k], 0.01);
                let alpha = softmax(&own.iter().map(score).collect::<Vec<f64>>());
                let width = a_dst.dims[0];
                for (alpha, o) in alpha.iter().zip(&own) {
                    for d in 0..width {
                        z[k * width + d] += alpha * o[d];
                    }
                }
            }
        }
        let z = each(&z, elu);
        let (m, b) = (p.param(&format!("{of}.m.{end}")), p.vector(&format!("{of}.b_m.{end}")));
        let hidden: Rows = z.iter().map(|z| add(&m.apply(z), b).into_iter().map(f64::tanh).collect()).collect();
        let s = hidden.iter().fold(vec![0.0; b.len()], |sum, row| add(&sum, row));
        importance.push(dot(&times(1.0 / count as f64, &s), p.vector(&format!("{of}.q.{end}"))));
        values.push(z);
    }
    let mut out = zeros(count, values.first().and_then(|z| z.first()).map_or(0, Vec::len));
    for (beta, z) in softmax(&importance).iter().zip(&values) {
        for (row, z) in out.iter_mut().zip(z) {
            *row = add(row, &times(*beta, z));
        }
    }
    out
}

#[test]
fn magnn_is_the_paper() {
    agrees("magnn", |p| {
        let project = |vertex: &str, x: &Vec<f64>| {
            add(&p.param(&format!("conv.w.{vertex}")).apply(x), p.vector(&format!("conv.b.{vertex}")))
        };
        let h = features(p).into_iter().map(|(v, rows)| (v, rows.iter().map(|x| project(v, x)).collect())).collect();
        let conv = magnn(p, "conv", "Paper", &[PAP, PVP, CITES], &h, true);
        p.linear("y", "", &conv)
    });
}

#[test]
fn magnn_with_the_mean_encoder_and_content_from_outside_is_the_paper() {
    agrees("magnn_mean", |p| {
        let content = |(v, x): (&'static str, Rows)| (v, p.linear("content", &format!(".{v}"), &x));
        let ends = features(p).into_iter().filter(|&(v, _)| v != "Venue");
        let h = ends.map(content).collect();
        let conv = magnn(p, "conv", "Paper", &[PAP, PRP, WRITES], &h, false);
        p.linear("y", "", &conv)
    });
}

// ---- features ---------------------------------------------------------------------------------------

/// Sparse features mean the matrix that they stand for, one-hot features the identity, embeddings a parameter.
#[test]
fn sparse_one_hot_and_learned_features_mean_matrices() {
    agrees("rgcn_sparse", |p| {
        let identity = |n: usize| (0..n).map(|i| (0..n).map(|j| f64::from(i == j)).collect()).collect();
        let table = p.param("Venue.x");
        let x = Typed::from([
            ("Paper", p.input("Paper.x")),
            ("Author", identity(p.count("Author"))),
            ("Venue", (0..p.count("Venue")).map(|v| table.row(v).to_vec()).collect()),
        ]);
        let first = each_type(&plain_rgcn(p, "first", ALL, &x), relu);
        plain_rgcn(p, "y", PAPER, &first).remove("Paper").expect("papers")
    });
}

/// Each field is a matrix of its own, also of two sparse ones of one width, and of two tables of one vertex type.
#[test]
fn fields_of_a_vertex_type_are_matrices_of_their_own() {
    agrees("several_fields", |p| {
        let identity = |n: usize| -> Rows { (0..n).map(|i| (0..n).map(|j| f64::from(i == j)).collect()).collect() };
        let table = |name: &str, vertex: &str| -> Rows {
            let table = p.param(name);
            (0..p.count(vertex)).map(|v| table.row(v).to_vec()).collect()
        };
        let beside = |a: Rows, b: Rows| -> Rows { a.into_iter().zip(b).map(|(a, b)| [a, b].concat()).collect() };
        let sum = |parts: Vec<Rows>| -> Rows {
            let mut parts = parts.into_iter();
            let first = parts.next().expect("a part");
            parts.fold(first, |sum, part| sum.iter().zip(&part).map(|(a, b)| add(a, b)).collect())
        };
        let (words, tags) = (p.input("Paper.words"), p.input("Paper.tags"));
        assert_ne!(words, tags, "two matrices");
        let papers = sum(vec![
            p.linear("papers", "", &beside(p.input("Paper.x"), table("Paper.id", "Paper"))),
            p.linear("papers_2", "", &words),
            p.linear("papers_3", "", &tags),
        ]);
        let authors = p.linear("authors", "", &beside(table("Author.more", "Author"), table("Author.id", "Author")));
        let venues = sum(vec![
            p.linear("venues", "", &beside(p.input("Venue.x"), p.input("Venue.year"))),
            p.linear("venues_2", "", &identity(p.count("Venue"))),
        ]);
        let x = Typed::from([("Paper", papers), ("Author", authors), ("Venue", venues)]);
        let first = each_type(&plain_rgcn(p, "first", ALL, &x), relu);
        plain_rgcn(p, "y", PAPER, &first).remove("Paper").expect("papers")
    });
}
