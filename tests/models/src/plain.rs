//! Vectors and loops for reference implementations, independent of the IR.

use std::collections::BTreeMap;

use crate::compiled::{Compiled, extents};
use crate::world::World;

/// One vector per vertex or edge.
pub type Rows = Vec<Vec<f64>>;

/// Rows of each vertex type.
pub type Typed = BTreeMap<&'static str, Rows>;

/// A semantic graph: edges (source, destination).
#[derive(Clone, Debug)]
pub struct Graph {
    /// Name of the graph in parameter names.
    pub name: &'static str,
    /// Vertex type of the sources.
    pub src: &'static str,
    /// Vertex type of the destinations.
    pub dst: &'static str,
    /// Edges as (source, destination).
    pub edges: Vec<(usize, usize)>,
}

/// A parameter array, row-major.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Extent of each dimension.
    pub dims: Vec<usize>,
    /// Elements in row-major order.
    pub data: Vec<f64>,
}

impl Weight {
    /// `xᵀ W`: contracts the first dimension; the others are flattened.
    pub fn apply(&self, x: &[f64]) -> Vec<f64> {
        assert_eq!(x.len(), self.dims[0], "width of the vector");
        let columns = self.data.len() / self.dims[0];
        (0..columns).map(|j| (0..x.len()).map(|i| x[i] * self.data[i * columns + j]).sum()).collect()
    }

    /// Row `i` of the first dimension, flattened.
    pub fn row(&self, i: usize) -> &[f64] {
        let columns = self.data.len() / self.dims[0];
        &self.data[i * columns..(i + 1) * columns]
    }

    /// The subarray at position `i` of the first dimension.
    pub fn part(&self, i: usize) -> Weight {
        Weight { dims: self.dims[1..].to_vec(), data: self.row(i).to_vec() }
    }
}

/// Features and parameters of a compiled model in a world, by name.
pub struct Plain<'a> {
    world: &'a World,
    params: BTreeMap<String, Weight>,
    inputs: BTreeMap<String, Rows>,
}

impl<'a> Plain<'a> {
    /// The inputs that the interpreter gets for the same model and world.
    pub fn of(compiled: &Compiled, world: &'a World) -> Self {
        let bindings = compiled.bind(world);
        let flow = &compiled.model.flow;
        let weight = |(param, tensor): (&hgnnc_ir::Param, &hgnnc_interp::Tensor)| {
            let decl = &flow.params[param.index()];
            (decl.name.clone(), Weight { dims: extents(&bindings, &decl.dims), data: tensor.data.clone() })
        };
        let rows = |(index, decl): (usize, &hgnnc_ir::dataflow::InputDecl)| {
            let tensor = &bindings.inputs[&hgnnc_ir::Input::new(index)];
            (decl.name.clone(), (0..tensor.rows).map(|r| tensor.row(r).to_vec()).collect())
        };
        Self {
            world,
            params: bindings.params.iter().map(weight).collect(),
            inputs: flow.inputs.iter().enumerate().map(rows).collect(),
        }
    }

    /// Number of vertices of a type.
    pub fn count(&self, vertex: &str) -> usize {
        self.world.count(vertex)
    }

    /// The parameter called `name`.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn param(&self, name: &str) -> &Weight {
        self.params
            .get(name)
            .unwrap_or_else(|| panic!("no parameter `{name}`; there are {:?}", self.params.keys().collect::<Vec<_>>()))
    }

    /// A parameter that the compiled model has only where something reads it.
    pub fn param_if_read(&self, path: &str, name: &str) -> Option<&Weight> {
        self.params.get(&format!("{path}.{name}"))
    }

    /// The elements of a vector parameter, such as biases.
    #[track_caller]
    pub fn vector(&self, name: &str) -> &[f64] {
        &self.param(name).data
    }

    /// The value of a scalar parameter.
    #[track_caller]
    pub fn number(&self, name: &str) -> f64 {
        let all = self.vector(name);
        assert_eq!(all.len(), 1, "`{name}` is one number");
        all[0]
    }

    /// An input by name (`Paper.x`). Zeros if the model does not read it.
    pub fn input(&self, name: &str) -> Rows {
        self.inputs.get(name).cloned().unwrap_or_default()
    }

    /// The same with other rows of an input.
    pub fn with_input(mut self, name: &str, rows: Rows) -> Self {
        self.inputs.insert(name.to_owned(), rows);
        self
    }

    /// A relation (`cites`) or its reverse (`reverse_cites`) as a semantic graph.
    pub fn relation(&self, name: &'static str, src: &'static str, dst: &'static str) -> Graph {
        graph(name, src, dst, self.world.edges(name))
    }

    /// The edges of a relation in the order of the dataset.
    pub fn edges(&self, name: &str) -> Vec<(usize, usize)> {
        self.world.relation(name).iter().map(|&(src, dst)| (src as usize, dst as usize)).collect()
    }

    /// The distinct pairs of a metapath.
    pub fn metapath(&self, name: &'static str, vertex: &'static str, steps: &[(&str, bool)]) -> Graph {
        graph(name, vertex, vertex, self.world.reachable(steps))
    }

    /// The instances of a metapath that ends at a vertex type, each with its vertices from the first to the last.
    pub fn instances(&self, steps: &[(&str, bool)], end: &str) -> Vec<Vec<usize>> {
        let found = self.world.instances(steps, self.world.count(end));
        found.into_iter().map(|path| path.into_iter().map(|v| v as usize).collect()).collect()
    }

    /// A graph with missing self loops added, under another name.
    pub fn self_loops(&self, of: &Graph, name: &'static str) -> Graph {
        let edges = of.edges.iter().map(|&(s, d)| (s as u32, d as u32)).collect();
        graph(name, of.src, of.dst, self.world.with_self_loops(of.src, edges))
    }

    /// `x W + b` for each row.
    #[track_caller]
    pub fn linear(&self, path: &str, suffix: &str, x: &Rows) -> Rows {
        let weight = self.param(&format!("{path}.weight{suffix}"));
        let bias = self.vector(&format!("{path}.bias{suffix}"));
        x.iter().map(|x| add(&weight.apply(x), bias)).collect()
    }
}

fn graph(name: &'static str, src: &'static str, dst: &'static str, edges: Vec<(u32, u32)>) -> Graph {
    Graph { name, src, dst, edges: edges.into_iter().map(|(s, d)| (s as usize, d as usize)).collect() }
}

/// `rows` rows of `width` zeros.
pub fn zeros(rows: usize, width: usize) -> Rows {
    vec![vec![0.0; width]; rows]
}

/// The sum `a + b` by element.
pub fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len(), "widths of a sum");
    a.iter().zip(b).map(|(x, y)| x + y).collect()
}

/// The vector `x` scaled by `a`.
pub fn times(a: f64, x: &[f64]) -> Vec<f64> {
    x.iter().map(|x| a * x).collect()
}

/// The dot product of two vectors.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "widths of a product");
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// Head `k` of a row of `heads` heads.
pub fn head(x: &[f64], k: usize, heads: usize) -> &[f64] {
    let hidden = x.len() / heads;
    &x[k * hidden..(k + 1) * hidden]
}

/// Applies `f` to every element.
pub fn each(rows: &Rows, f: impl Fn(f64) -> f64) -> Rows {
    rows.iter().map(|row| row.iter().map(|&x| f(x)).collect()).collect()
}

/// `x` where positive, else `slope · x`.
pub fn leaky(x: f64, slope: f64) -> f64 {
    if x > 0.0 { x } else { slope * x }
}

/// `x` where positive, else `e^x - 1`.
pub fn elu(x: f64) -> f64 {
    if x > 0.0 { x } else { x.exp() - 1.0 }
}

/// `max(x, 0)` of a number.
pub fn relu(x: f64) -> f64 {
    x.max(0.0)
}

/// `1 / (1 + e^-x)` of a number.
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `x Φ(x)`, with the normal distribution function by Simpson's rule: 2,000 steps from 0 are exact to 1e-13 for the
/// arguments of these tests.
pub fn gelu(x: f64) -> f64 {
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let steps = 2_000;
    let h = x / f64::from(steps);
    let weight = |i: i32| match i {
        0 => 1.0,
        _ if i == steps => 1.0,
        _ if i % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let integral: f64 = (0..=steps).map(|i| weight(i) * density(f64::from(i) * h)).sum::<f64>() * h / 3.0;
    x * (0.5 + integral)
}

/// Softmax over all elements of `x`.
pub fn softmax(x: &[f64]) -> Vec<f64> {
    let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = x.iter().map(|x| (x - most).exp()).collect();
    let total: f64 = powers.iter().sum();
    powers.iter().map(|p| p / total).collect()
}

/// Edge softmax: for each graph and edge, the share of its score among the in-edges of its destination, per head, over
/// all `graphs` with the same destination type.
pub fn softmax_in_edges(graphs: &[&Graph], scores: &[Rows]) -> Vec<Rows> {
    let mut shares = scores.to_vec();
    for (g, graph) in graphs.iter().enumerate() {
        for (e, &(_, dst)) in graph.edges.iter().enumerate() {
            for k in 0..scores[g][e].len() {
                let mut rivals = vec![];
                for (other, rival_scores) in graphs.iter().zip(scores) {
                    if other.dst == graph.dst {
                        let into = other.edges.iter().zip(rival_scores).filter(|((_, d), _)| *d == dst);
                        rivals.extend(into.map(|(_, score)| score[k]));
                    }
                }
                let most = rivals.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let total: f64 = rivals.iter().map(|r| (r - most).exp()).sum();
                shares[g][e][k] = (scores[g][e][k] - most).exp() / total;
            }
        }
    }
    shares
}
