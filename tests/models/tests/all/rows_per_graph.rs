//! Rows for each vertex and semantic graph (`V[…] per graph`), against plain loops: `v.h` of all graphs that end in a
//! vertex, `e.dst.h` of the graph of an edge, `e.src.h` of its reverse; in layers, at pairs to score and at edges to
//! predict.

use std::collections::BTreeMap;

use hgnnc_model_tests::assert_close;
use hgnnc_model_tests::compiled::compile;
use hgnnc_model_tests::plain::{Graph, Plain, Rows, add, dot, softmax, times, zeros};

use crate::edges::world;
use crate::language::means;

/// A row of two numbers for each vertex and semantic graph.
const START: &str = "layer Start() over graphs: [*] of x: *[in] -> rows: *[2] per graph {
    fuse v: * across graphs {
        param w: [in, 2] per graph
        rows = v.x @ w
    }
}";

type ByGraph = BTreeMap<&'static str, Rows>;

/// The rows of `START`, by semantic graph, in a model whose statement is called `path`.
fn start(p: &Plain<'_>, path: &str, graphs: &[Graph], x: impl Fn(&str) -> Rows) -> ByGraph {
    let of = |graph: &Graph| {
        let w = p.param(&format!("{path}.w.{}", graph.name));
        (graph.name, x(graph.dst).iter().map(|x| w.apply(x)).collect())
    };
    graphs.iter().map(of).collect()
}

/// The semantic graphs `[r, s, reverse(r), reverse(s)]` of the schema of `language.rs`.
fn graphs(p: &Plain<'_>) -> [Graph; 4] {
    let all = [("r", "B", "A"), ("s", "A", "A"), ("reverse_r", "A", "B"), ("reverse_s", "A", "A")];
    all.map(|(name, src, dst)| p.relation(name, src, dst))
}

fn reverse_of(name: &str) -> &'static str {
    match name {
        "r" => "reverse_r",
        "s" => "reverse_s",
        "reverse_r" => "r",
        _ => "s",
    }
}

#[test]
fn an_edge_reads_the_row_of_its_source_for_its_reverse() {
    let layers = format!(
        "{START} layer Next() over graphs: [*] of rows: *[in] per graph -> *[in] {{
            aggregate e: g in graphs {{ z = sum(2 * e.src.rows + e.dst.rows) over in_edges }}
            fuse v: * across graphs {{ out = sum(v.z - 3 * v.rows) across graphs }}
        }}"
    );
    let family = "[r, s, reverse(r), reverse(s)]";
    means(&layers, &format!("Next() over {family} of Start() over {family} of features"), |p| {
        let graphs = graphs(p);
        let rows = start(p, "z_2", &graphs, |v| p.input(&format!("{v}.x")));
        let mut out = zeros(p.count("A"), 2);
        for graph in graphs.iter().filter(|graph| graph.dst == "A") {
            for (i, out) in out.iter_mut().enumerate() {
                *out = add(out, &times(-3.0, &rows[graph.name][i]));
            }
            for &(j, i) in &graph.edges {
                let message = add(&times(2.0, &rows[reverse_of(graph.name)][j]), &rows[graph.name][i]);
                out[i] = add(&out[i], &message);
            }
        }
        out
    });
}

/// Fields of `fuse` are rows for each semantic graph as well, and are assigned again; a symmetric metapath is its own
/// reverse.
#[test]
fn fields_of_fuse_are_repeated() {
    let layer = "layer L() over graphs: [V -> V] of x: V[in] -> V[2] {
        fuse v: V across graphs { param w: [in, 2] per graph h = v.x @ w }
        repeat 2 {
            aggregate e: g in graphs { m = mean(e.src.h) over in_edges }
            fuse v: V across graphs { h = v.h - 2 * v.m }
        }
        fuse v: V across graphs { out = sum(v.h) across graphs }
    }";
    means(layer, "L() over [ABA, without_self_loops(ABA)] of A.x", |p| {
        let aba = p.metapath("ABA", "A", &[("r", true), ("r", false)]);
        let others = aba.edges.iter().copied().filter(|(j, i)| j != i).collect();
        let without = Graph { name: "ABA_without_self_loops", edges: others, ..aba.clone() };
        let mut out = zeros(p.count("A"), 2);
        for graph in [aba, without] {
            let w = p.param(&format!("z.w.{}", graph.name));
            let mut h: Rows = p.input("A.x").iter().map(|x| w.apply(x)).collect();
            for _ in 0..2 {
                let of = |i: usize| {
                    let from: Vec<usize> = graph.edges.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
                    let sum = from.iter().fold(vec![0.0; 2], |sum, &j| add(&sum, &h[j]));
                    add(&h[i], &times(-2.0 / from.len().max(1) as f64, &sum))
                };
                h = (0..h.len()).map(of).collect();
            }
            out = out.iter().zip(&h).map(|(out, h)| add(out, h)).collect();
        }
        out
    });
}

/// A layer that uses others takes and gives rows for each semantic graph; the shares of a vertex are those of its own
/// graphs.
#[test]
fn a_composed_layer_passes_rows_on() {
    let layers = format!(
        "{START}
        layer Shares() over graphs: [*] of x: *[in] per graph -> rows: *[in] per graph {{
            fuse v: * across graphs {{ rows = softmax(v.x) across graphs * v.x }}
        }}
        layer Twice() over graphs: [*] of x: *[in] per graph -> rows: *[in] per graph {{
            let first = Shares() over graphs of x
            rows = Shares() over graphs of (first + first)
        }}
        layer Total() over graphs: [U -> V] of x: V[in] per graph -> V[in] {{
            fuse v: V across graphs {{ out = sum(v.x) across graphs }}
        }}"
    );
    let family = "[r, s, reverse(r), reverse(s)]";
    let using = format!("Total() over [s, reverse(s)] of Twice() over {family} of Start() over {family} of features");
    means(&layers, &using, |p| {
        let graphs = graphs(p).into_iter().filter(|graph| graph.dst == "A").collect::<Vec<_>>();
        let rows = start(p, "z_3", &graphs, |v| p.input(&format!("{v}.x")));
        let into_a = ["r", "s", "reverse_s"];
        let of = |i: usize| {
            let mut rows: Rows = into_a.iter().map(|name| rows[name][i].clone()).collect();
            for factor in [1.0, 2.0] {
                let shares = [0, 1].map(|k| softmax(&rows.iter().map(|row| factor * row[k]).collect::<Vec<_>>()));
                let next =
                    |(g, row): (usize, &Vec<f64>)| vec![factor * row[0] * shares[0][g], factor * row[1] * shares[1][g]];
                rows = rows.iter().enumerate().map(next).collect();
            }
            add(&rows[1], &rows[2])
        };
        (0..p.count("A")).map(of).collect()
    });
}

/// Path instances of a metapath and its pairs are one semantic graph for rows of vertices.
#[test]
fn layers_over_paths_and_over_pairs_exchange_rows() {
    let layers = "
        layer Walks() over graphs: [V -> V] of x: *[in] -> rows: V[in] per graph {
            aggregate p: path in graphs { rows = mean(p.src.x) over in_edges }
        }
        layer Pairs() over graphs: [V -> V] of x: V[in] per graph -> V[in] {
            aggregate e: g in graphs { z = sum(e.src.x) over in_edges }
            fuse v: V across graphs { out = sum(v.z - v.x) across graphs }
        }";
    means(layers, "Pairs() over ABA of Walks() over ABA of {A.x}", |p| {
        let aba = p.metapath("ABA", "A", &[("r", true), ("r", false)]);
        let walks = p.instances(&[("r", true), ("r", false)], "A");
        let x = p.input("A.x");
        let rows: Rows = (0..x.len())
            .map(|i| {
                let from: Vec<usize> = walks.iter().filter(|walk| walk[2] == i).map(|walk| walk[0]).collect();
                let sum = from.iter().fold(vec![0.0; 3], |sum, &j| add(&sum, &x[j]));
                times(1.0 / from.len().max(1) as f64, &sum)
            })
            .collect();
        let mut out: Rows = rows.iter().map(|row| times(-1.0, row)).collect();
        aba.edges.iter().for_each(|&(j, i)| out[i] = add(&out[i], &rows[j]));
        out
    });
}

const PAIRS: &str = "
schema S {
    vertex User { x: f32[3] }
    vertex Movie { x: f32[4] }
    relation rates: User -> Movie
    relation trusts: User -> User
}
layer Score() over graphs: [*] of x: *[in] per graph -> score: graphs {
    aggregate e: g in graphs { score = dot(e.src.x, e.dst.x) }
}";

/// The product of the row of the source for the reverse and that of the destination, for each edge.
fn scores(
    p: &Plain<'_>,
    name: &'static str,
    (src, dst): (&'static str, &'static str),
    edges: &[(usize, usize)],
) -> Vec<f64> {
    let reverse = if name == "rates" { "reverse_rates" } else { "reverse_trusts" };
    let graphs = [p.relation(name, src, dst), p.relation(reverse, dst, src)];
    let rows = start(p, "rows", &graphs, |v| p.input(&format!("{v}.x")));
    edges.iter().map(|&(u, v)| dot(&rows[reverse][u], &rows[name][v])).collect()
}

#[test]
fn pairs_and_edges_read_the_rows_of_their_relation() {
    let source = format!(
        "{START} {PAIRS} model M(schema: S) {{
            let rows = Start() over [relations, reverses] of features
            output y: links = Score() over links(trusts) of rows
            output z: edges(rates) = Score() over edges(rates) of rows
        }}"
    );
    let compiled = compile(&source);
    let world = world();
    let p = Plain::of(&compiled, &world);
    let of_pairs = scores(&p, "trusts", ("User", "User"), &p.relation("trusts", "User", "User").edges);
    assert_close("pairs", &compiled.output_of(&compiled.bind(&world), "y.links_trusts").data, &of_pairs, 1e-10);
    let of_edges = scores(&p, "rates", ("User", "Movie"), &p.edges("rates"));
    assert_close("edges", &compiled.output(&world, "z").data, &of_edges, 1e-10);
}
