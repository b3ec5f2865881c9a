//! Scores sets of vertex pairs with a separate program.

use std::sync::Arc;

use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_data::{Adjacency, BoundData, ExecError, InputData, Result, Topology, transpose_into};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::Table;
use hgnnc_ir::dataflow::{Binding, GraphDecl, InputDecl};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::training::LinkTarget;
use hgnnc_ir::types::{Graph, Space};
use hgnnc_kernel_ir::kernel::{self, Body, Rows as KernelRows};
use hgnnc_session::{Backend, Rows, Session, StepKey};
use hgnnc_trace::Times;

use super::PAIRS;
use crate::copy_params;

/// Index of the scoring program in its session.
const SCORE: usize = 0;

/// Session of the scoring program.
pub(super) struct Scorer {
    session: Box<dyn Session>,
    pool: Arc<rayon::ThreadPool>,
    tables: PairTables,
    /// Previously bound data, kept for its memory.
    spare: BoundData,
    /// Elements of the inputs.
    inputs: Vec<SharedBuffer>,
    /// Full-graph result that feeds each input.
    given: Vec<String>,
    /// Result with the scores of each link graph.
    results: Vec<String>,
}

/// The graphs of the scoring program.
struct PairTables {
    graph_decls: Table<GraphDecl>,
    num_vertices: Vec<usize>,
    /// Program graph of each link graph; `None` if no output uses it.
    graphs: Vec<Option<usize>>,
    /// By graph: whether it is traversed from its sources.
    outgoing: Vec<bool>,
}

/// Pairs of a link graph, sorted by destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// CSC positions of each destination's pairs. `[destinations + 1]`; empty without pairs.
    pub indptr: Vec<u64>,
    pub src: Vec<u32>,
}

impl Scorer {
    /// Creates the scorer of a link model; `num_vertices` are those of the full graph.
    pub fn new(
        executable: &Executable,
        backend: &mut dyn Backend,
        target: &LinkTarget,
        output: &str,
        num_vertices: &[usize],
    ) -> Result<Self> {
        let (tables, kernels) = PairTables::new(executable, target, num_vertices)?;
        let given = |binding: &Binding| match binding {
            Binding::Given(name) => Ok(name.clone()),
            other => Err(ExecError::Unsupported(format!("internal error: pairs are scored by {other:?}"))),
        };
        let inputs = &kernels.tables.inputs;
        let given: Vec<String> = inputs.iter().map(|decl| given(&decl.binding)).collect::<Result<_>>()?;
        let decls = target.graphs.iter().map(|graph| &executable.infer.graphs[graph.index()]);
        let results = decls.map(|decl| format!("{output}.{}", decl.name)).collect();
        // Created without vertices; their inputs are set before scoring.
        let data = BoundData { inputs: vec![InputData::Held(0); given.len()], ..tables.empty()? };
        let spare = data.clone();
        let session = backend.session(&[Role::Score], data)?;
        Ok(Self { session, pool: Arc::clone(backend.pool()), tables, spare, inputs: vec![], given, results })
    }

    /// Threads of this process.
    pub fn pool(&self) -> Arc<rayon::ThreadPool> {
        Arc::clone(&self.pool)
    }

    /// Copies the parameters, and the results of the last evaluation.
    pub fn refresh(&mut self, whole: &mut dyn Session, infer: usize) -> Result<()> {
        copy_params(whole, &mut *self.session)?;
        self.inputs.clear();
        for name in &self.given {
            let missing = || ExecError::Unsupported(format!("internal error: no result `{name}`"));
            let Rows { numbers, .. } = whole.read(infer, name)?.ok_or_else(missing)?;
            self.inputs.push(HostBuffer::of(numbers).freeze());
        }
        Ok(())
    }

    /// Scores pairs, given per link graph index. Other graphs have no pairs.
    pub fn score(&mut self, sets: &[(usize, &Pairs)]) -> Result<()> {
        self.bind(sets)?;
        let (key, times) = (StepKey::default(), &mut Times::default());
        self.session.run(SCORE, key, times)?;
        self.session.update(SCORE, key, times)
    }

    /// Scores of a link graph from the last call of [`Scorer::score`].
    pub fn scores(&mut self, graph: usize) -> Result<&[f32]> {
        let name = &self.results[graph];
        let missing = || ExecError::Unsupported(format!("the model has no scores `{name}`"));
        Ok(self.session.read(SCORE, name)?.ok_or_else(missing)?.numbers)
    }
}

impl Scorer {
    /// Binds the scoring program to pairs.
    fn bind(&mut self, sets: &[(usize, &Pairs)]) -> Result<()> {
        let mut data = std::mem::take(&mut self.spare);
        self.tables.bind(&mut data, sets);
        data.inputs = self.inputs.iter().map(|numbers| InputData::Held(numbers.len())).collect();
        let mut inputs: Vec<HostBuffer> = self.inputs.iter().map(SharedBuffer::slab).collect();
        self.spare = self.session.load(data, &mut inputs)?;
        Ok(())
    }
}

impl PairTables {
    /// The graphs of the scoring program, and the program; `num_vertices` are those of the full graph.
    fn new<'e>(
        executable: &'e Executable,
        target: &LinkTarget,
        num_vertices: &[usize],
    ) -> Result<(Self, &'e kernel::Program)> {
        let Some(kernels) = executable.kernels(Role::Score) else {
            return Err(ExecError::Unsupported("internal error: the model has no program for pairs".into()));
        };
        let tables = &kernels.tables;
        let decls = target.graphs.iter().map(|graph| &executable.infer.graphs[graph.index()]);
        let graphs = decls.map(|decl| tables.graphs.iter().position(|own| own.name == decl.name)).collect();
        // Rows of stacks, which the program does not have, come last.
        let num_vertices = num_vertices[..tables.vertex_types.len()].to_vec();
        Ok((Self { graph_decls: tables.graphs.clone(), num_vertices, graphs, outgoing: walks_out(kernels) }, kernels))
    }

    /// Data without vertices and inputs.
    fn empty(&self) -> Result<BoundData> {
        let graph = |decl: &GraphDecl| Topology::from_csc(&decl.name, 0, 0, vec![0], vec![]);
        Ok(BoundData {
            num_vertices: vec![0; self.num_vertices.len()],
            graphs: self.graph_decls.iter().map(graph).collect::<Result<_>>()?,
            ..BoundData::default()
        })
    }

    /// Binds the graphs of data to pairs, given per link graph index.
    fn bind(&self, data: &mut BoundData, sets: &[(usize, &Pairs)]) {
        data.num_vertices.clone_from(&self.num_vertices);
        for (index, (decl, topology)) in self.graph_decls.iter().zip(&mut data.graphs).enumerate() {
            [topology.num_src, topology.num_dst] = [decl.src, decl.dst].map(|end| self.num_vertices[end.index()]);
            let own = sets.iter().find(|&&(graph, _)| self.graphs[graph] == Some(index)).map(|&(_, pairs)| pairs);
            let Adjacency { indptr, indices: other, eids: position } = &mut topology.csc;
            let (indptr, other) = (indptr.make_mut(), other.make_mut());
            position.clear();
            other.clear();
            match own {
                Some(pairs) if !pairs.indptr.is_empty() => {
                    indptr.clone_from(&pairs.indptr);
                    other.extend_from_slice(&pairs.src);
                }
                _ => {
                    indptr.clear();
                    indptr.resize(topology.num_dst + 1, 0);
                }
            }
            (topology.ends, topology.classes) = ([None, None], Default::default());
            if self.outgoing[index] {
                let Topology { csc, csr, num_src, .. } = topology;
                transpose_into(&csc.indptr, &csc.indices, *num_src, csr);
            } else {
                topology.csr = Adjacency::default();
            }
        }
    }
}

/// Bytes of the session of a scorer when it scores as many pairs as the largest part of the split has, with their
/// negatives.
pub(crate) fn memory(
    executable: &Executable,
    backend: &mut dyn Backend,
    target: &LinkTarget,
    data: &BoundData,
) -> Result<u64> {
    let (tables, kernels) = PairTables::new(executable, target, &data.num_vertices)?;
    let of_graph = |(number, graph): (usize, &Graph)| {
        let topology = &data.graphs[graph.index()];
        let held_out = data.held_out.iter().filter_map(|links| Some(links.get(number)?.len()));
        let links = held_out.chain([topology.all_edges() as usize]).max().unwrap_or(0);
        // Each link is scored with two negatives.
        let (num, rows) = ((3 * links).min(PAIRS) as u64, topology.num_dst.max(1) as u64);
        (number, Pairs { indptr: (0..=rows).map(|row| row * num / rows).collect(), src: vec![0; num as usize] })
    };
    let sets: Vec<(usize, Pairs)> = target.graphs.iter().enumerate().map(of_graph).collect();
    let sets: Vec<(usize, &Pairs)> = sets.iter().map(|(number, pairs)| (*number, pairs)).collect();
    let mut bound = tables.empty()?;
    tables.bind(&mut bound, &sets);
    let input = |decl: &InputDecl| match decl.ty.space {
        Space::Vertices(vertex) => {
            let width = decl.ty.dims.iter().filter_map(|dim| dim.fixed()).product::<usize>();
            InputData::Held(tables.num_vertices[vertex.index()] * width)
        }
        Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => InputData::Held(0),
    };
    bound.inputs = kernels.tables.inputs.iter().map(input).collect();
    Ok(backend.plan(&[Role::Score], bound, None)?.memory().bytes())
}

/// By graph: whether a program traverses it from its sources.
fn walks_out(program: &kernel::Program) -> Vec<bool> {
    let mut out = vec![false; program.tables.graphs.len()];
    for kernel in program.kernels() {
        if let Body::Traversal(traversal) = &kernel.body
            && let KernelRows::Edges(graph, Direction::Out) | KernelRows::Endpoints(graph, Direction::Out) =
                traversal.rows
        {
            out[graph.index()] = true;
        }
    }
    for (graph, direction) in program.endpoints() {
        out[graph.index()] |= direction == Direction::Out;
    }
    out
}
