//! Inputs and values of a run: sizes, graphs, tensors, and the errors of bindings that do not fit a program.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Index;

use crate::dataflow::edges_of_rows;
use hgnnc_ir::dataflow::{Binding, Dataflow, OutputKind};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::random;
use hgnnc_ir::stacks::derive;
use hgnnc_ir::types::{Dim, Graph, Input, Param, Space, Value};

/// A row-major matrix of f64. A value of [`Space::Unit`] has one row.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Tensor {
    pub rows: usize,
    /// Elements per row: the product of the trailing dimensions.
    pub width: usize,
    /// The `rows * width` elements, row-major.
    pub data: Vec<f64>,
}

impl Tensor {
    /// A tensor of the given elements.
    ///
    /// # Panics
    /// When `data` does not have `rows * width` elements.
    pub fn new(rows: usize, width: usize, data: Vec<f64>) -> Self {
        assert_eq!(data.len(), rows * width, "a tensor of {rows} rows of {width} elements");
        Self { rows, width, data }
    }

    /// A tensor whose elements are all `number`.
    pub fn filled(rows: usize, width: usize, number: f64) -> Self {
        Self { rows, width, data: vec![number; rows * width] }
    }

    /// A tensor of one row and one column.
    pub fn scalar(number: f64) -> Self {
        Self::filled(1, 1, number)
    }

    /// A tensor whose elements are computed from row and column.
    pub fn from_fn(rows: usize, width: usize, mut f: impl FnMut(usize, usize) -> f64) -> Self {
        let mut data = Vec::with_capacity(rows * width);
        for row in 0..rows {
            for column in 0..width {
                data.push(f(row, column));
            }
        }
        Self { rows, width, data }
    }

    /// The element at a row and column.
    pub fn at(&self, row: usize, column: usize) -> f64 {
        self.data[row * self.width + column]
    }

    /// The elements of one row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.data[row * self.width..(row + 1) * self.width]
    }

    /// The element at `row` of a value that broadcasts its only row if it is a unit value.
    pub(crate) fn seen(&self, unit: bool, row: usize, column: usize) -> f64 {
        self.at(if unit { 0 } else { row }, column)
    }
}

/// A pair to score: a link, or a negative sample of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PairOfLink {
    /// The number of the link.
    pub link: u32,
    /// Whether the pair is the link itself.
    pub is_link: bool,
}

/// The inputs of a run: sizes, graphs, tensors and the seed of the dropout masks.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bindings {
    /// Number of vertices of each vertex type.
    pub num_vertices: Vec<usize>,
    /// Edges (source, destination) of each graph, in CSC order: by destination, then source.
    pub edges: Vec<Vec<(u32, u32)>>,
    /// Input tensors. Integer inputs hold integers as f64; sparse inputs hold their zeros too.
    pub inputs: BTreeMap<Input, Tensor>,
    /// Parameters, with one row each.
    pub params: BTreeMap<Param, Tensor>,
    /// Optimizer states by parameter and slot, with one row each. Missing states are zero.
    pub states: BTreeMap<(Param, u32), Tensor>,
    /// The number in the dataset of each row that a rank has of a space ([`hgnnc_ir::ranks`]); for other spaces it is the
    /// position of the row.
    pub numbers: BTreeMap<Space, Vec<u32>>,
    /// By graph of links, the link to which each pair belongs.
    pub pairs: BTreeMap<Graph, Vec<PairOfLink>>,
    /// Seed of the dropout masks.
    pub seed: u64,
    /// Training step, which the dropout masks depend on.
    pub step: u64,
}

impl Bindings {
    /// Draws the edges of the graphs that are shuffled, for its seed and step.
    pub fn shuffle(&mut self, flow: &Dataflow) {
        for (edges, decl) in self.edges.iter_mut().zip(&flow.graphs) {
            let Some(permutations) = decl.shuffle else { continue };
            let count = self.num_vertices[decl.dst.index()];
            let sources = random::shuffled_sources((self.seed, self.step), decl.dst, count, permutations);
            *edges = sources.into_iter().zip(0..).map(|(source, edge)| (source, edge / permutations)).collect();
        }
    }

    /// The extent of a dimension, in elements.
    pub fn extent(&self, dim: Dim) -> usize {
        match dim {
            Dim::Fixed(extent) => extent,
            Dim::Count(vertex) => self.num_vertices.get(vertex.index()).copied().unwrap_or(0),
        }
    }

    /// Elements per row: the product of trailing dimensions.
    pub fn width(&self, dims: &[Dim]) -> usize {
        dims.iter().map(|&d| self.extent(d)).product()
    }

    /// Number of rows of a space.
    pub fn rows(&self, space: Space) -> usize {
        match space {
            Space::Unit => 1,
            Space::Vertices(vertex) => self.num_vertices.get(vertex.index()).copied().unwrap_or(0),
            Space::Edges(graph) => self.edges.get(graph.index()).map_or(0, Vec::len),
            Space::Index(extent) => extent,
            Space::Endpoints(graph, direction) => self.endpoints(graph, direction).len(),
        }
    }

    /// The number in the dataset of a row.
    pub(crate) fn number(&self, space: Space, row: usize) -> usize {
        self.numbers.get(&space).map_or(row, |numbers| numbers[row] as usize)
    }

    /// The distinct destinations (`In`) or sources (`Out`) of the edges of a graph, ascending.
    pub fn endpoints(&self, graph: Graph, direction: Direction) -> Vec<u32> {
        let edges = self.edges.get(graph.index()).map_or(&[][..], Vec::as_slice);
        let mut ends: Vec<u32> = edges
            .iter()
            .map(|&(src, dst)| match direction {
                Direction::In => dst,
                Direction::Out => src,
            })
            .collect();
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// The same bindings with the tables that are derived from stacks.
    pub(crate) fn with_derived(&self, flow: &Dataflow) -> Cow<'_, Self> {
        if flow.stacks.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut all = self.clone();
        derive(flow, &mut all.num_vertices, &mut all.edges);
        Cow::Owned(all)
    }

    /// The elements of a parameter; those of its entries, one after the other, for a stack.
    pub(crate) fn param(&self, flow: &Dataflow, param: Param) -> Option<Cow<'_, Tensor>> {
        let entries = &flow.params[param.index()].entries;
        if entries.is_empty() {
            return self.params.get(&param).map(Cow::Borrowed);
        }
        let parts: Option<Vec<&Tensor>> = entries.iter().map(|entry| self.params.get(entry)).collect();
        let data: Vec<f64> = parts?.iter().flat_map(|part| part.data.iter().copied()).collect();
        Some(Cow::Owned(Tensor::new(1, data.len(), data)))
    }

    /// Copies the updated parameters and optimizer states of a run into the bindings.
    pub fn apply_updates(&mut self, flow: &Dataflow, run: &Evaluation) {
        for output in &flow.outputs {
            let value = || run[output.value].clone();
            match output.kind {
                OutputKind::Result(_) => {}
                OutputKind::UpdateParam(param) => match &flow.params[param.index()].entries[..] {
                    [] => drop(self.params.insert(param, value())),
                    entries => {
                        let all = value().data;
                        let parts = all.chunks_exact(all.len() / entries.len());
                        let tensor = |part: &[f64]| Tensor::new(1, part.len(), part.to_vec());
                        self.params.extend(entries.iter().copied().zip(parts.map(tensor)));
                    }
                },
                OutputKind::UpdateState(param, slot) => drop(self.states.insert((param, slot), value())),
            }
        }
    }
}

/// Every value of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Evaluation {
    /// One tensor per value, indexed by [`Value`].
    pub values: Vec<Tensor>,
}

impl Index<Value> for Evaluation {
    type Output = Tensor;

    fn index(&self, value: Value) -> &Tensor {
        &self.values[value.index()]
    }
}

impl Evaluation {
    /// The number in a scalar value.
    ///
    /// # Panics
    /// When the value is not a scalar.
    pub fn scalar(&self, value: Value) -> f64 {
        let tensor = &self[value];
        assert_eq!((tensor.rows, tensor.width), (1, 1), "{value} is a scalar");
        tensor.data[0]
    }
}

/// An error in the bindings of a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub enum InterpError {
    /// A table of the bindings is too short.
    #[error("the bindings have {bound} {what}, the program has {declared}")]
    TableLength { what: &'static str, bound: usize, declared: usize },
    /// An input or parameter is not bound.
    #[error("{kind} `{name}` is not bound")]
    Missing {
        /// Either `"input"` or `"parameter"`.
        kind: &'static str,
        name: String,
    },
    /// A tensor of the wrong shape is bound.
    #[error("{kind} `{name}` is {expected:?} (rows, width), but bound to {found:?}")]
    Shape {
        /// `"input"`, `"parameter"` or `"state"`.
        kind: &'static str,
        name: String,
        /// Rows and width that its type requires.
        expected: (usize, usize),
        /// Rows and width of the tensor.
        found: (usize, usize),
    },
    /// An edge with an endpoint that is out of range.
    #[error(
        "edge {edge} of graph `{graph}` is {pair:?}, but there are {sources} sources and {destinations} destinations"
    )]
    Edge {
        graph: String,
        edge: usize,
        /// Source and destination vertex.
        pair: (u32, u32),
        /// Number of source vertices.
        sources: usize,
        /// Number of destination vertices.
        destinations: usize,
    },
    /// Edges that are not sorted by destination, then source.
    #[error("the edges of graph `{graph}` are not in CSC order")]
    Order { graph: String },
}

pub(crate) fn check(flow: &Dataflow, bindings: &Bindings) -> Result<(), InterpError> {
    let tables = [
        ("vertex types", bindings.num_vertices.len(), flow.vertex_types.len()),
        ("graphs", bindings.edges.len(), flow.graphs.len()),
    ];
    for (what, bound, declared) in tables {
        if bound < declared {
            return Err(InterpError::TableLength { what, bound, declared });
        }
    }
    for (decl, edges) in flow.graphs.iter().zip(&bindings.edges) {
        let sources = bindings.num_vertices[decl.src.index()];
        let destinations = bindings.num_vertices[decl.dst.index()];
        for (edge, &pair) in edges.iter().enumerate() {
            if pair.0 as usize >= sources || pair.1 as usize >= destinations {
                return Err(InterpError::Edge { graph: decl.name.clone(), edge, pair, sources, destinations });
            }
        }
        if !edges.is_sorted_by_key(|&(src, dst)| (dst, src)) {
            return Err(InterpError::Order { graph: decl.name.clone() });
        }
    }
    Ok(())
}

pub(crate) fn bound(
    kind: &'static str,
    name: &str,
    tensor: Option<&Tensor>,
    expected: (usize, usize),
) -> Result<Tensor, InterpError> {
    let tensor = tensor.ok_or_else(|| InterpError::Missing { kind, name: name.to_owned() })?;
    let found = (tensor.rows, tensor.width);
    if found == expected {
        Ok(tensor.clone())
    } else {
        Err(InterpError::Shape { kind, name: name.to_owned(), expected, found })
    }
}

/// The tensor bound to an input. Edge ranks are computed from the edges.
pub(crate) fn bound_input(
    flow: &Dataflow,
    bindings: &Bindings,
    input: Input,
    expected: (usize, usize),
) -> Result<Tensor, InterpError> {
    let decl = &flow.inputs[input.index()];
    match (bindings.inputs.get(&input), &decl.binding) {
        (None, Binding::EdgeRank(graph, direction)) => {
            let rows = bindings.rows(flow.graph_end(*graph, *direction));
            let mut ranks = vec![0.0; expected.0];
            let other = |edge: usize| match (bindings.edges[graph.index()][edge], direction) {
                ((src, _), Direction::In) => src,
                ((_, dst), Direction::Out) => dst,
            };
            for mut edges in edges_of_rows(bindings, *graph, *direction, rows) {
                edges.sort_by_key(|&edge| other(edge));
                edges.into_iter().enumerate().for_each(|(rank, edge)| ranks[edge] = rank as f64);
            }
            Ok(Tensor::new(expected.0, 1, ranks))
        }
        (tensor, _) => bound("input", &decl.name, tensor, expected),
    }
}
