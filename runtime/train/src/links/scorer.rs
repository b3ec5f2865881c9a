//! Scores sets of vertex pairs with a separate program.

use std::sync::Arc;

use hgnnc_cpu::{Engine, EngineOptions};
use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_data::{Adjacency, BoundData, ExecError, InputData, Result, Topology, transpose_into};
use hgnnc_executable::Executable;
use hgnnc_executable::cpu::CpuPrograms;
use hgnnc_ir::dataflow::{Binding, GraphDecl};
use hgnnc_ir::kernel::{self, Body, Rows};
use hgnnc_ir::loops::VerifiedLoops;
use hgnnc_ir::ops::Direction;
use hgnnc_ir::training::LinkTarget;
use hgnnc_trace::Times;

use crate::backend::Backend;

/// Index of the scoring program in its engine.
const SCORE: usize = 0;

/// Engine of the scoring program.
pub(super) struct Scorer {
    engine: Engine,
    program: VerifiedLoops,
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
        (executable, cpu): (&Executable, Option<&CpuPrograms>),
        target: &LinkTarget,
        output: &str,
        num_vertices: &[usize],
        options: EngineOptions,
    ) -> Result<Self> {
        let Some(program) = cpu.and_then(|cpu| cpu.score.as_ref()) else {
            return Err(ExecError::Unsupported("internal error: the model has no program for pairs".into()));
        };
        let kernels = &program.loops.kernels;
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
        let engine = Engine::new(&[program], data, options)?;
        let outgoing = walks_out(kernels);
        let num_vertices = num_vertices.to_vec();
        let program = program.loops.clone();
        Ok(Self { engine, program, num_vertices, spare, inputs: vec![], given, results, graphs, outgoing })
    }

    /// Thread pool of the scoring engine.
    pub fn pool(&self) -> Arc<rayon::ThreadPool> {
        self.engine.pool()
    }

    /// Copies the parameters, and the results of the last evaluation.
    pub fn refresh(&mut self, backend: &mut Backend, infer: usize) -> Result<()> {
        for param in 0..self.engine.num_params() {
            // Unused parameters have one element here.
            if self.engine.param_len(param) == backend.param_len(param) {
                backend.read_param(param, self.engine.param(param))?;
            }
        }
        self.inputs.clear();
        for name in &self.given {
            backend.fetch(infer, name)?;
            let rows = backend.result(infer, name);
            let rows = rows.ok_or_else(|| ExecError::Unsupported(format!("internal error: no result `{name}`")))?;
            self.inputs.push(HostBuffer::of(rows.numbers).freeze());
        }
        Ok(())
    }

    /// Scores pairs, given per link graph index. Other graphs have no pairs.
    pub fn score(&mut self, sets: &[(usize, &Pairs)]) -> Result<()> {
        self.bind(sets)?;
        let mut times = Times::default();
        self.engine.run_prelude(SCORE, &mut times);
        self.engine.run(SCORE, 0, 0, 0, &mut times);
        Ok(())
    }

    /// Scores of a link graph from the last call of [`Scorer::score`].
    pub fn scores(&self, graph: usize) -> Result<&[f32]> {
        let scores = self.engine.result(SCORE, &self.results[graph]);
        scores
            .map(|(_, scores)| scores)
            .ok_or_else(|| ExecError::Unsupported(format!("the model has no scores `{}`", self.results[graph])))
    }
}

impl Scorer {
    /// Binds the scoring program to pairs.
    fn bind(&mut self, sets: &[(usize, &Pairs)]) -> Result<()> {
        let mut data = std::mem::take(&mut self.spare);
        data.num_vertices.clone_from(&self.num_vertices);
        for (index, (decl, topology)) in self.program.kernels.tables.graphs.iter().zip(&mut data.graphs).enumerate() {
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
        self.spare = self.engine.rebind(&[&self.program], data, &mut inputs)?;
        Ok(())
    }
}

/// By graph: whether a program traverses it from its sources.
fn walks_out(program: &kernel::Program) -> Vec<bool> {
    let mut out = vec![false; program.tables.graphs.len()];
    for kernel in program.kernels() {
        if let Body::Traversal(traversal) = &kernel.body
            && let Rows::Edges(graph, Direction::Out) | Rows::Endpoints(graph, Direction::Out) = traversal.rows
        {
            out[graph.index()] = true;
        }
    }
    for (graph, direction) in program.endpoints() {
        out[graph.index()] |= direction == Direction::Out;
    }
    out
}
