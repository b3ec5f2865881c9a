//! Scores pairs of vertices, one set after another, by a program of its own.

use std::sync::Arc;

use hgnnc_ir::artifact::{Artifact, LinkTarget};
use hgnnc_ir::dataflow::{Binding, GraphDecl};
use hgnnc_ir::kernel::{Body, Program, Rows};
use hgnnc_ir::ops::Direction;

use crate::backend::Backend;
use crate::buffer::{HostBuffer, SharedBuffer};
use crate::data::{Adjacency, BoundData, InputData, Topology, transpose_into};
use crate::engine::{Engine, EngineOptions};
use crate::error::{ExecError, Result};
use crate::times::Times;

/// The program of an engine.
const SCORE: usize = 0;

/// An engine that scores pairs.
pub(super) struct Scorer {
    engine: Engine,
    program: Program,
    num_vertices: Vec<usize>,
    /// What was bound before the data that is bound now.
    spare: BoundData,
    /// Numbers of the inputs.
    inputs: Vec<SharedBuffer>,
    /// The result of the program on the whole graph that each input is.
    given: Vec<String>,
    /// The result that holds the scores along each graph.
    results: Vec<String>,
    /// The graph of the program that each graph of links is. Those that no output needs are none.
    graphs: Vec<Option<usize>>,
    /// Graphs that are traversed from their sources.
    outgoing: Vec<bool>,
}

/// Pairs along a graph, by destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// Where the pairs of a destination begin. `[destinations + 1]`; nothing: no pairs.
    pub indptr: Vec<u64>,
    /// Source of each pair.
    pub src: Vec<u32>,
}

impl Scorer {
    /// Of a model that scores links; `num_vertices` are those of the whole graph.
    pub fn new(
        artifact: &Artifact,
        target: &LinkTarget,
        output: &str,
        num_vertices: &[usize],
        options: EngineOptions,
    ) -> Result<Self> {
        let Some(program) = &artifact.kernels.score else {
            return Err(ExecError::Unsupported("internal error: the model has no program for pairs".into()));
        };
        let tables = &program.tables;
        let given = |binding: &Binding| match binding {
            Binding::Given(name) => Ok(name.clone()),
            other => Err(ExecError::Unsupported(format!("internal error: pairs are scored by {other:?}"))),
        };
        let given: Vec<String> = tables.inputs.iter().map(|decl| given(&decl.binding)).collect::<Result<_>>()?;
        let decls = target.graphs.iter().map(|graph| &artifact.infer.graphs[graph.index()]);
        let results = decls.clone().map(|decl| format!("{output}.{}", decl.name)).collect();
        let graphs = decls.map(|decl| tables.graphs.iter().position(|own| own.name == decl.name)).collect();
        // Made for no vertices: what is given of them is there later.
        let graph = |decl: &GraphDecl| Topology::from_csc(&decl.name, 0, 0, vec![0], vec![]);
        let data = BoundData {
            num_vertices: vec![0; num_vertices.len()],
            graphs: tables.graphs.iter().map(graph).collect::<Result<_>>()?,
            inputs: vec![InputData::Held(0); given.len()],
            ..BoundData::default()
        };
        let spare = data.clone();
        let engine = Engine::new(&[program], data, options)?;
        let outgoing = walks_out(program);
        let num_vertices = num_vertices.to_vec();
        let program = program.clone();
        Ok(Self { engine, program, num_vertices, spare, inputs: vec![], given, results, graphs, outgoing })
    }

    /// The threads that score.
    pub fn pool(&self) -> Arc<rayon::ThreadPool> {
        self.engine.pool()
    }

    /// Takes over the parameters, and what the last evaluation has computed.
    pub fn refresh(&mut self, backend: &mut Backend, infer: usize) -> Result<()> {
        for param in 0..self.engine.num_params() {
            // One that is not used here has one element.
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

    /// Scores pairs along graphs, given by their position among those of links. A graph that is not named has none.
    pub fn score(&mut self, sets: &[(usize, &Pairs)]) -> Result<()> {
        self.bind(sets)?;
        let mut times = Times::default();
        self.engine.run_prelude(SCORE, &mut times);
        self.engine.run(SCORE, 0, 0, 0, &mut times);
        Ok(())
    }

    /// The scores along a graph of what was scored last.
    pub fn scores(&self, graph: usize) -> Result<&[f32]> {
        let scores = self.engine.result(SCORE, &self.results[graph]);
        scores
            .map(|(_, scores)| scores)
            .ok_or_else(|| ExecError::Unsupported(format!("the model has no scores `{}`", self.results[graph])))
    }
}

impl Scorer {
    /// Binds the program to pairs.
    fn bind(&mut self, sets: &[(usize, &Pairs)]) -> Result<()> {
        let mut data = std::mem::take(&mut self.spare);
        data.num_vertices.clone_from(&self.num_vertices);
        for (index, (decl, topology)) in self.program.tables.graphs.iter().zip(&mut data.graphs).enumerate() {
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

/// The graphs that a program traverses from their sources.
fn walks_out(program: &Program) -> Vec<bool> {
    let mut out = vec![false; program.tables.graphs.len()];
    for kernel in program.kernels() {
        if let Body::Traversal(traversal) = &kernel.body
            && let Rows::Edges(graph, Direction::Out) | Rows::Ends(graph, Direction::Out) = traversal.rows
        {
            out[graph.index()] = true;
        }
    }
    for (graph, direction) in program.ends() {
        out[graph.index()] |= direction == Direction::Out;
    }
    out
}
