//! What batches are made of: graphs to sample from, and the numbers of the whole graph.

use std::borrow::Cow;
use std::time::Instant;

use hgnnc_ir::artifact::MiniBatch;
use hgnnc_ir::batch::{BatchGraph, BatchLayout, BatchPattern};
use hgnnc_ir::dataflow::{Dataflow, GraphDecl, PatternDecl};
use hgnnc_ir::kernel::{Body, Program, Rows};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::random::{bits, mask_key};
use hgnnc_ir::types::{Dim, Graph, Input, Layout, Space, Type, VertexType};
use hgnnc_sample::{Batch, BatchKey, Edges, Fanout, Plan, SampleGraph, Sampler};

use crate::data::{BoundData, Incidence, InputData, Topology, transpose_into};
use crate::error::{ExecError, Result};
use crate::raw::{Frozen, Slab};

/// Keeps the order of seeds apart from other numbers of the same seed.
const STREAM: u32 = 0x0bad_5eed;

/// An input of the whole graph.
pub(super) enum Whole {
    Numbers(Frozen),
    Classes(Vec<i32>),
    /// Counters, which the engine makes.
    Nothing,
}

/// Makes batches. Threads share it.
pub(super) struct Source {
    graph: SampleGraph<'static>,
    plan: Plan,
    layout: BatchLayout,
    /// The tables of the program of a batch.
    tables: Dataflow,
    /// Which graphs and patterns are traversed from their sources, in the order of topologies.
    outgoing: Vec<bool>,
    inputs: Vec<Whole>,
    /// Row positions and columns of the sparse matrices of the whole graph.
    patterns: Vec<Incidence>,
    target: VertexType,
    train: Vec<u32>,
    size: usize,
    seed: u64,
}

/// A batch that is ready for the engine.
#[derive(Default)]
pub(super) struct Made {
    pub epoch: u64,
    pub number: u64,
    pub seeds: usize,
    pub sampled: Batch,
    pub data: BoundData,
    pub inputs: Vec<Slab>,
    /// Seconds of sampling, of making graphs of what was sampled, and of copying rows.
    pub seconds: [f64; 3],
}

impl Source {
    /// Of a program of batches and the data of the whole graph, whose inputs are `inputs`.
    pub fn new(
        program: &Program,
        layout: &BatchLayout,
        batch: &MiniBatch,
        data: &BoundData,
        inputs: Vec<Whole>,
        (tables, target, seed): (&Dataflow, VertexType, u64),
    ) -> Result<Self> {
        let edges: Vec<Edges<'_>> = tables.graphs.iter().zip(&data.graphs).map(edges).collect();
        let num_graphs = edges.len();
        let graph = SampleGraph::new(data.num_vertices.clone(), edges)
            .map_err(|error| ExecError::Unsupported(error.to_string()))?;
        let fanout = |hop: usize, graph: usize| {
            let used = layout.deepest(Graph::new(graph)).is_some_and(|deepest| deepest >= hop);
            match batch.fanouts.get(hop).and_then(|fanouts| fanouts[graph]) {
                _ if !used => Fanout::AtMost(0),
                Some(most) => Fanout::AtMost(most),
                None => Fanout::All,
            }
        };
        let fanouts = (0..layout.hops).map(|hop| (0..num_graphs).map(|graph| fanout(hop, graph)).collect()).collect();
        let patterns = data.patterns.iter().map(|pattern| pattern.incoming.clone()).collect();
        Ok(Self {
            graph,
            plan: Plan { fanouts },
            layout: layout.clone(),
            tables: program.tables.clone(),
            outgoing: traversed_out(program),
            inputs,
            patterns,
            target,
            train: data.parts[0].clone(),
            size: batch.size,
            seed,
        })
    }

    /// Number of batches of an epoch.
    pub fn num_batches(&self) -> u64 {
        self.train.len().div_ceil(self.size) as u64
    }

    pub fn sampler(&self) -> Result<Sampler<'_>> {
        Sampler::new(&self.graph, self.plan.clone()).map_err(|error| ExecError::Unsupported(error.to_string()))
    }

    /// The seeds of an epoch in their order.
    pub fn order(&self, epoch: u64) -> Vec<u32> {
        let key = mask_key(self.seed, epoch, STREAM);
        let mut order: Vec<(u32, u32)> = self.train.iter().map(|&v| (bits(key, u64::from(v)), v)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, v)| v).collect()
    }

    /// Makes a batch: a function of the seed of the run, the epoch and the number of the batch in it.
    pub fn make(
        &self,
        sampler: &mut Sampler<'_>,
        order: &[u32],
        (epoch, number): (u64, u64),
        made: &mut Made,
    ) -> Result<()> {
        let start = Instant::now();
        let first = (number as usize * self.size).min(order.len());
        let mut seeds = vec![vec![]; self.graph.counts().len()];
        seeds[self.target.index()] = order[first..(first + self.size).min(order.len())].to_vec();
        (made.epoch, made.number, made.seeds) = (epoch, number, seeds[self.target.index()].len());
        let key = BatchKey { seed: self.seed, epoch, batch: number };
        sampler.sample(&seeds, key, &mut made.sampled).map_err(|error| ExecError::Unsupported(error.to_string()))?;
        let sampled = start.elapsed().as_secs_f64();
        self.rows_of_inputs(made)?;
        let copied = start.elapsed().as_secs_f64();
        self.graphs(made);
        let done = start.elapsed().as_secs_f64();
        made.seconds = [sampled, done - copied, copied - sampled];
        Ok(())
    }

    /// Vertices of a type of the batch, by their numbers in the whole graph.
    pub fn vertices<'b>(&self, batch: &'b Batch, vertex: VertexType) -> &'b [u32] {
        let known = self.layout.vertices[vertex.index()];
        &batch.vertices[known.vertex.index()][..batch.known[known.hops][known.vertex.index()] as usize]
    }

    /// The graphs of what was sampled. The blocks of the deepest ones are taken out of the batch.
    fn graphs(&self, made: &mut Made) {
        let Made { sampled, data, .. } = made;
        data.num_vertices.clear();
        data.num_vertices
            .extend((0..self.layout.vertices.len()).map(|v| self.vertices(sampled, VertexType::new(v)).len()));
        data.graphs.resize_with(self.layout.graphs.len(), Topology::default);
        let deepest = |&index: &usize| match self.layout.graphs[index] {
            BatchGraph::Sampled { graph, hops } => self.layout.deepest(graph) == Some(hops),
            BatchGraph::First { .. } => false,
        };
        let (last, first): (Vec<usize>, Vec<usize>) = (0..self.layout.graphs.len()).partition(deepest);
        for index in first.into_iter().chain(last.iter().copied()) {
            let decl = &self.tables.graphs[index];
            let topology = &mut data.graphs[index];
            topology.name.clone_from(&decl.name);
            topology.num_src = data.num_vertices[decl.src.index()];
            topology.num_dst = data.num_vertices[decl.dst.index()];
            (topology.ends, topology.classes) = ([None, None], Default::default());
            let Incidence { indptr, other, position } = &mut topology.incoming;
            position.clear();
            match self.layout.graphs[index] {
                BatchGraph::Sampled { graph, .. } => {
                    let block = &mut sampled.blocks[graph.index()];
                    if last.contains(&index) {
                        std::mem::swap(indptr, &mut block.indptr);
                        std::mem::swap(other, &mut block.src);
                    } else {
                        let rows = &block.indptr[..=topology.num_dst];
                        indptr.clear();
                        indptr.extend_from_slice(rows);
                        other.clear();
                        other.extend_from_slice(&block.src[..rows.last().map_or(0, |&edges| edges as usize)]);
                    }
                }
                BatchGraph::First { .. } => {
                    indptr.clear();
                    indptr.extend(0..=topology.num_dst as u64);
                    other.clear();
                    other.extend(0..topology.num_dst as u32);
                }
            }
            self.transpose(index, topology);
        }
        data.patterns.truncate(self.layout.patterns.len());
        for index in 0..self.layout.patterns.len() {
            self.transpose(self.layout.graphs.len() + index, &mut data.patterns[index]);
        }
    }

    fn transpose(&self, index: usize, topology: &mut Topology) {
        let Topology { incoming, outgoing, num_src, .. } = topology;
        if self.outgoing[index] {
            transpose_into(&incoming.indptr, &incoming.other, *num_src, outgoing);
        } else {
            *outgoing = Incidence::default();
        }
    }

    /// The rows of patterns and inputs that belong to what was sampled.
    fn rows_of_inputs(&self, made: &mut Made) -> Result<()> {
        let Made { sampled, data, inputs, .. } = made;
        data.patterns.resize_with(self.layout.patterns.len(), Topology::default);
        for (topology, &BatchPattern { pattern, rows }) in data.patterns.iter_mut().zip(&self.layout.patterns) {
            let (vertices, whole) = (self.vertices(sampled, rows), &self.patterns[pattern.index()]);
            topology.num_dst = vertices.len();
            let Incidence { indptr, other, .. } = &mut topology.incoming;
            indptr.clear();
            indptr.push(0);
            other.clear();
            for &vertex in vertices {
                other.extend_from_slice(&whole.other[stored(whole, vertex)]);
                indptr.push(other.len() as u64);
            }
            (topology.ends, topology.classes) = ([None, None], Default::default());
        }
        for (index, topology) in data.patterns.iter_mut().enumerate() {
            topology.num_src = self.tables.patterns[index].columns;
            let rows = self.tables.patterns[index].vertex;
            topology.name.clone_from(&self.tables.vertex_types[rows.index()].name);
        }
        data.inputs.truncate(self.layout.inputs.len());
        data.inputs.resize(self.layout.inputs.len(), InputData::Missing);
        inputs.resize_with(self.layout.inputs.len(), || Slab::zeros(0));
        for (index, from) in self.layout.inputs.iter().enumerate() {
            let ty = &self.tables.inputs[index].ty;
            match &self.inputs[from.index()] {
                Whole::Numbers(numbers) => {
                    let len = self.copy_rows(ty, numbers, sampled, &mut inputs[index])?;
                    data.inputs[index] = InputData::Held(len);
                }
                Whole::Classes(classes) => {
                    let Space::Vertices(vertex) = ty.space else { return Err(unknown(ty)) };
                    let rows = self.vertices(sampled, vertex).iter().map(|&v| classes[v as usize]);
                    data.inputs[index] = InputData::Classes(rows.collect());
                }
                Whole::Nothing => {}
            }
        }
        Ok(())
    }

    /// Copies the rows of an input that belong to what was sampled. Number of elements.
    fn copy_rows(&self, ty: &Type, numbers: &[f32], sampled: &Batch, into: &mut Slab) -> Result<usize> {
        if let Layout::Sparse(pattern) = ty.layout {
            let BatchPattern { pattern, rows } = self.layout.patterns[pattern.index()];
            let whole = &self.patterns[pattern.index()];
            let vertices = self.vertices(sampled, rows);
            let len = vertices.iter().map(|&vertex| stored(whole, vertex).len()).sum();
            let mut rest = room(into, len);
            for &vertex in vertices {
                let row = &numbers[stored(whole, vertex)];
                let (own, others) = rest.split_at_mut(row.len());
                own.copy_from_slice(row);
                rest = others;
            }
            return Ok(len);
        }
        let fixed = |dim: &Dim| dim.fixed().unwrap_or(0);
        let width: usize = ty.dims.iter().map(fixed).product();
        let rows = match ty.space {
            Space::Vertices(vertex) => self.vertices(sampled, vertex),
            Space::Edges(graph) => match self.layout.graphs[graph.index()] {
                BatchGraph::Sampled { graph, hops } => {
                    &sampled.blocks[graph.index()].edge[..sampled.edges_up_to(graph.index(), hops)]
                }
                BatchGraph::First { .. } => return Err(unknown(ty)),
            },
            Space::Unit | Space::Index(_) | Space::Ends(..) => return Err(unknown(ty)),
        };
        let into = room(into, rows.len() * width);
        for (to, &row) in into.chunks_exact_mut(width.max(1)).zip(rows) {
            to.copy_from_slice(&numbers[row as usize * width..][..width]);
        }
        Ok(rows.len() * width)
    }

    /// Data of no vertices, to make an engine with.
    pub fn empty(&self) -> Result<BoundData> {
        let graph = |name: &str| Topology::from_csc(name, 0, 0, vec![0], vec![]);
        let pattern = |decl: &PatternDecl| Topology::from_csc("", decl.columns, 0, vec![0], vec![]);
        let input = |input: &Input| match self.inputs[input.index()] {
            Whole::Numbers(_) => InputData::Held(0),
            Whole::Classes(_) => InputData::Classes(vec![]),
            Whole::Nothing => InputData::Missing,
        };
        Ok(BoundData {
            num_vertices: vec![0; self.layout.vertices.len()],
            graphs: self.tables.graphs.iter().map(|decl| graph(&decl.name)).collect::<Result<_>>()?,
            patterns: self.tables.patterns.iter().map(pattern).collect::<Result<_>>()?,
            inputs: self.layout.inputs.iter().map(input).collect(),
            ..BoundData::default()
        })
    }
}

/// The in-edges of a graph. Samplers have them in memory of their own: they live as long as batches are made.
fn edges((decl, graph): (&GraphDecl, &Topology)) -> Edges<'static> {
    Edges {
        name: Cow::Owned(decl.name.clone()),
        src_type: decl.src.index(),
        dst_type: decl.dst.index(),
        indptr: Cow::Owned(graph.incoming.indptr.clone()),
        src: Cow::Owned(graph.incoming.other.clone()),
    }
}

fn unknown(ty: &Type) -> ExecError {
    ExecError::Unsupported(format!("internal error: an input of type {ty:?} has no rows in a batch"))
}

/// Where the stored elements of a row are.
fn stored(whole: &Incidence, vertex: u32) -> std::ops::Range<usize> {
    whole.indptr[vertex as usize] as usize..whole.indptr[vertex as usize + 1] as usize
}

/// The first elements of a slab, which grows where it has fewer.
fn room(slab: &mut Slab, len: usize) -> &mut [f32] {
    if slab.len() < len {
        *slab = Slab::zeros(len + len / 8);
    }
    &mut slab.elements()[..len]
}

/// For each graph, and then each pattern: is it traversed from its sources?
fn traversed_out(program: &Program) -> Vec<bool> {
    let graphs = program.tables.graphs.len();
    let mut out = vec![false; graphs + program.tables.patterns.len()];
    for kernel in program.kernels() {
        let Body::Traversal(traversal) = &kernel.body else { continue };
        match traversal.rows {
            Rows::Edges(graph, Direction::Out) | Rows::Ends(graph, Direction::Out) => out[graph.index()] = true,
            Rows::Elements(pattern, Direction::Out) => out[graphs + pattern.index()] = true,
            Rows::Once
            | Rows::Each(_)
            | Rows::Vertices(_)
            | Rows::Edges(_, Direction::In)
            | Rows::Ends(_, Direction::In)
            | Rows::Elements(_, Direction::In) => {}
        }
    }
    // Lists of ends are made from both.
    program.ends().into_iter().for_each(|(graph, _)| out[graph.index()] = true);
    out
}
