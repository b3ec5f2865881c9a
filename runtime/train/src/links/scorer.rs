//! Scores sets of vertex pairs with a separate program.

use std::sync::Arc;

use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_data::{Adjacency, BoundData, ExecError, InputData, Result, Topology, transpose_into};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::Table;
use hgnnc_ir::dataflow::{Binding, GraphDecl};
use hgnnc_ir::kernel::{self, Body, Rows as KernelRows};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::training::LinkTarget;
use hgnnc_session::{Backend, Rows, Session, StepKey};
use hgnnc_trace::Times;

use crate::copy_params;

/// Index of the scoring program in its session.
const SCORE: usize = 0;

/// Session of the scoring program.
pub(super) struct Scorer {
    session: Box<dyn Session>,
    pool: Arc<rayon::ThreadPool>,
    graph_decls: Table<GraphDecl>,
    num_vertices: Vec<usize>,
    /// Previously bound data, kept for its memory.
    spare: BoundData,
    /// Elements of the inputs.
    inputs: Vec<SharedBuffer>,
    /// Full-graph result that feeds each input.
    given: Vec<String>,
    /// Result with the scores of each link graph.
    results: Vec<String>,
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
        let Some(kernels) = executable.kernels(Role::Score) else {
            return Err(ExecError::Unsupported("internal error: the model has no program for pairs".into()));
        };
        let tables = &kernels.tables;
        // Rows of stacks, which the program does not have, come last.
        let num_vertices = &num_vertices[..tables.vertex_types.len()];
        let given = |binding: &Binding| match binding {
            Binding::Given(name) => Ok(name.clone()),
            other => Err(ExecError::Unsupported(format!("internal error: pairs are scored by {other:?}"))),
        };
        let given: Vec<String> = tables.inputs.iter().map(|decl| given(&decl.binding)).collect::<Result<_>>()?;
        let decls = target.graphs.iter().map(|graph| &executable.infer.graphs[graph.index()]);
        let results = decls.clone().map(|decl| format!("{output}.{}", decl.name)).collect();
        let graphs = decls.map(|decl| tables.graphs.iter().position(|own| own.name == decl.name)).collect();
        // Created without vertices; their inputs are set before scoring.
        let graph = |decl: &GraphDecl| Topology::from_csc(&decl.name, 0, 0, vec![0], vec![]);
        let data = BoundData {
            num_vertices: vec![0; num_vertices.len()],
            graphs: tables.graphs.iter().map(graph).collect::<Result<_>>()?,
            inputs: vec![InputData::Held(0); given.len()],
            ..BoundData::default()
        };
        let spare = data.clone();
        let session = backend.session(&[Role::Score], data)?;
        let (pool, outgoing) = (Arc::clone(backend.pool()), walks_out(kernels));
        let (num_vertices, graph_decls) = (num_vertices.to_vec(), tables.graphs.clone());
        Ok(Self { session, pool, graph_decls, num_vertices, spare, inputs: vec![], given, results, graphs, outgoing })
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
        data.inputs = self.inputs.iter().map(|numbers| InputData::Held(numbers.len())).collect();
        let mut inputs: Vec<HostBuffer> = self.inputs.iter().map(SharedBuffer::slab).collect();
        self.spare = self.session.load(data, &mut inputs)?;
        Ok(())
    }
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
