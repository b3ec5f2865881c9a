//! Scores sets of vertex pairs with a separate program.

use std::ops::Range;
use std::sync::Arc;

use hgnnc_data::buffer::{HostBuffer, SharedBuffer};
use hgnnc_data::{Adjacency, BoundData, ExecError, InputData, Result, Topology, transpose_into};
use hgnnc_executable::{Executable, Role};
use hgnnc_ir::dataflow::{Binding, GraphDecl, InputDecl};
use hgnnc_ir::ops::Direction;
use hgnnc_ir::ranks::EdgeShare;
use hgnnc_ir::training::LinkTarget;
use hgnnc_ir::types::{Graph, Space, VertexType};
use hgnnc_ir::{OutputKind, Table, VertexRows};
use hgnnc_kernel_ir::kernel::{self, Body, Rows as KernelRows};
use hgnnc_session::{Backend, Rows, Session, StepKey};
use hgnnc_trace::Times;

use super::PAIRS;
use crate::copy_params;

/// Index of the program in its session.
const SCORE: usize = 0;
/// Scores that a program for ranks computes at a time.
const SCORES: usize = 1 << 21;
/// Groups of the links of a run whose rows lie together: threads share these, and any number of processes has the same.
pub(super) const GROUPS: usize = 8;
/// Scores of links with all vertices that are kept until the links are ranked.
const MATRIX: usize = 1 << 25;

/// The programs that score pairs of vertices.
pub(super) struct Scorer {
    pool: Arc<rayon::ThreadPool>,
    /// Scores of any pairs.
    pairs: Program,
    /// Scores of links with many vertices in place of their destinations, and of their sources.
    rank: [Option<Program>; 2],
}

/// A program with a session of its own.
struct Program {
    session: Box<dyn Session>,
    tables: PairTables,
    /// Previously bound data, kept for its memory.
    spare: BoundData,
    /// Elements of the inputs.
    inputs: Vec<SharedBuffer>,
    /// Full-graph result that feeds each input.
    given: Vec<String>,
    /// Result with the scores of each link graph, if the program computes them.
    results: Vec<Option<String>>,
}

/// The graphs of a scoring program.
struct PairTables {
    graph_decls: Table<GraphDecl>,
    num_vertices: Vec<usize>,
    /// Program graph of each link graph; `None` if no output uses it.
    graphs: Vec<Option<usize>>,
    /// By graph: whether it is traversed from its sources.
    outgoing: Vec<bool>,
    /// For each vertex type, how many vertices take the place of an end at a time; 0 if none do.
    at_a_time: Vec<usize>,
}

/// Pairs of a link graph, sorted by destination.
#[derive(Clone, Debug, Default)]
pub(super) struct Pairs {
    /// CSC positions of each destination's pairs. `[destinations + 1]`; empty without pairs.
    pub indptr: Vec<u64>,
    pub src: Vec<u32>,
}

/// Vertices that take the place of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Replacements {
    of: VertexType,
    /// The number of vertices in one run of the program.
    at_a_time: usize,
}

impl Replacements {
    /// The ranges of all vertices, of which there are so many, that are scored at a time.
    fn ranges(self, count: usize) -> impl Iterator<Item = Range<u32>> {
        let step = self.at_a_time.max(1);
        (0..count).step_by(step).map(move |first| first as u32..count.min(first + step) as u32)
    }

    /// Kept ends of links that are ranked together among all vertices, of which there are so many.
    pub fn kept_together(self, count: usize) -> usize {
        // Few rows make a slow product, and many a large matrix of all scores.
        let room = (MATRIX / count.max(1)).max(GROUPS);
        (SCORES / self.at_a_time.max(1)).clamp(1, room)
    }
}

impl Pairs {
    /// Pairs of which one end is given, ascending and in this order: destinations for `In`, sources for `Out`. No row of the other end
    /// is read by a program that gets these pairs.
    fn of_kept(kept: &[u32], end: Direction, num_dst: usize) -> Self {
        match end {
            Direction::Out => {
                // Threads share blocks of rows, and a block of few pairs makes a slow product: the pairs are on few rows far apart.
                let (num, rows, groups) = (kept.len() as u64, num_dst.max(1) as u64, GROUPS as u64);
                let indptr = (0..=rows).map(|row| (row * groups).div_ceil(rows) * num / groups).collect();
                Self { indptr, src: kept.to_vec() }
            }
            Direction::In => {
                let mut indptr = vec![0; num_dst + 1];
                kept.iter().for_each(|&dst| indptr[dst as usize + 1] += 1);
                for dst in 0..num_dst {
                    indptr[dst + 1] += indptr[dst];
                }
                Self { indptr, src: vec![0; kept.len()] }
            }
        }
    }
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
        let mut program = |role| Program::new(executable, role, backend, (target, output), num_vertices);
        let missing = || ExecError::Unsupported("internal error: the model has no program for pairs".into());
        let pairs = program(Role::Score)?.ok_or_else(missing)?;
        let rank = [program(Role::Rank(Direction::In))?, program(Role::Rank(Direction::Out))?];
        Ok(Self { pool: Arc::clone(backend.pool()), pairs, rank })
    }

    /// Threads of this process.
    pub fn pool(&self) -> Arc<rayon::ThreadPool> {
        Arc::clone(&self.pool)
    }

    /// Copies the parameters, and the results of the last evaluation.
    pub fn refresh(&mut self, whole: &mut dyn Session, infer: usize) -> Result<()> {
        let mut given = vec![];
        for name in &self.pairs.given {
            let missing = || ExecError::Unsupported(format!("internal error: no result `{name}`"));
            let Rows { numbers, .. } = whole.read(infer, name)?.ok_or_else(missing)?;
            given.push(HostBuffer::of(numbers).freeze());
        }
        for program in std::iter::once(&mut self.pairs).chain(self.rank.iter_mut().flatten()) {
            copy_params(whole, &mut *program.session)?;
            // All programs have the inputs of the one for pairs.
            program.inputs.clone_from(&given);
        }
        Ok(())
    }

    /// Scores pairs, given per link graph index. Other graphs have no pairs.
    pub fn score(&mut self, sets: &[(usize, &Pairs)]) -> Result<()> {
        self.pairs.run(sets, None)
    }

    /// Scores of a link graph from the last call of [`Scorer::score`].
    pub fn scores(&mut self, graph: usize) -> Result<&[f32]> {
        self.pairs.scores(graph)
    }

    /// The vertices in place of this end (`In`: the destination) of the links of a graph, if many of them are scored at a time. `None`
    /// where pairs are scored one by one.
    pub fn replacements(&self, graph: usize, end: Direction) -> Option<Replacements> {
        let program = self.rank[end as usize].as_ref()?;
        program.results[graph].as_ref()?;
        let [src, dst] = program.tables.ends(graph)?;
        let of = if end == Direction::In { dst } else { src };
        Some(Replacements { of, at_a_time: program.tables.at_a_time[of.index()] })
    }

    /// Scores links, given by graph and the ends that are kept, with all vertices in place of the other `end`. Fills in a matrix with a row
    /// for each link and a column for each vertex, of which there are so many. Scores lack what is the same in a row.
    pub fn score_replaced(
        &mut self,
        links: &[(usize, &[u32])],
        (end, replacements): (Direction, Replacements),
        (matrix, columns): (&mut [f32], usize),
    ) -> Result<()> {
        let missing = || ExecError::Unsupported("internal error: the model has no program for ranks".into());
        let program = self.rank[end as usize].as_mut().ok_or_else(missing)?;
        let pairs = |&(graph, kept): &(usize, &[u32])| {
            let [_, dst] = program.tables.ends(graph).ok_or_else(missing)?;
            Ok((graph, Pairs::of_kept(kept, end.opposite(), program.tables.num_vertices[dst.index()])))
        };
        let pairs: Vec<(usize, Pairs)> = links.iter().map(pairs).collect::<Result<_>>()?;
        let sets: Vec<(usize, &Pairs)> = pairs.iter().map(|(graph, pairs)| (*graph, pairs)).collect();
        for vertices in replacements.ranges(columns) {
            let [first, last] = [vertices.start as usize, vertices.end as usize];
            program.run(&sets, Some((replacements.of, vertices)))?;
            let mut rows = matrix.chunks_exact_mut(columns);
            for (graph, kept) in links {
                let scores = program.scores(*graph)?;
                for (scores, _) in scores.chunks_exact(replacements.at_a_time).zip(*kept) {
                    if let Some(row) = rows.next() {
                        row[first..last].copy_from_slice(&scores[..last - first]);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Program {
    /// `None` where the executable has no program of this role.
    fn new(
        executable: &Executable,
        role: Role,
        backend: &mut dyn Backend,
        (target, output): (&LinkTarget, &str),
        num_vertices: &[usize],
    ) -> Result<Option<Self>> {
        let Some(kernels) = executable.kernels(role) else { return Ok(None) };
        let tables = PairTables::new(executable, kernels, target, num_vertices);
        let given = |binding: &Binding| match binding {
            Binding::Given(name) => Ok(name.clone()),
            other => Err(ExecError::Unsupported(format!("internal error: pairs are scored by {other:?}"))),
        };
        let inputs = &kernels.tables.inputs;
        let given: Vec<String> = inputs.iter().map(|decl| given(&decl.binding)).collect::<Result<_>>()?;
        let result = |graph: &Graph| {
            let name = format!("{output}.{}", executable.infer.graphs[graph.index()].name);
            let is_it = |output: &kernel::Output| matches!(&output.kind, OutputKind::Result(of) if *of == name);
            kernels.outputs.iter().any(is_it).then_some(name)
        };
        let results = target.graphs.iter().map(result).collect();
        // Created without vertices; their inputs are set before scoring.
        let data = BoundData { inputs: vec![InputData::Held(0); given.len()], ..tables.empty()? };
        let spare = data.clone();
        let session = backend.session(&[role], data)?;
        Ok(Some(Self { session, tables, spare, inputs: vec![], given, results }))
    }

    /// Scores pairs, given per link graph index, or links with vertices of a type in place of one of their ends.
    fn run(&mut self, sets: &[(usize, &Pairs)], candidates: Option<(VertexType, Range<u32>)>) -> Result<()> {
        let mut data = std::mem::take(&mut self.spare);
        self.tables.bind(&mut data, sets, candidates);
        data.inputs = self.inputs.iter().map(|numbers| InputData::Held(numbers.len())).collect();
        let mut inputs: Vec<HostBuffer> = self.inputs.iter().map(SharedBuffer::slab).collect();
        self.spare = self.session.load(data, &mut inputs)?;
        let (key, times) = (StepKey::default(), &mut Times::default());
        self.session.run(SCORE, key, times)?;
        self.session.update(SCORE, key, times)
    }

    /// Scores of a link graph from the last run.
    fn scores(&mut self, graph: usize) -> Result<&[f32]> {
        let missing = || ExecError::Unsupported("internal error: the program has no scores of these links".into());
        let name = self.results[graph].as_ref().ok_or_else(missing)?;
        Ok(self.session.read(SCORE, name)?.ok_or_else(missing)?.numbers)
    }
}

impl PairTables {
    /// The graphs of a scoring program; `num_vertices` are those of the full graph.
    fn new(executable: &Executable, kernels: &kernel::Program, target: &LinkTarget, num_vertices: &[usize]) -> Self {
        let tables = &kernels.tables;
        let decls = target.graphs.iter().map(|graph| &executable.infer.graphs[graph.index()]);
        let graphs = decls.map(|decl| tables.graphs.iter().position(|own| own.name == decl.name)).collect();
        let mut at_a_time = vec![0; tables.vertex_types.len()];
        // Rows of stacks, which the programs do not have, come last.
        let mut num_rows = vec![];
        for (vertex, decl) in tables.vertex_types.iter().enumerate() {
            num_rows.push(match decl.rows {
                VertexRows::Samples(of, count) => {
                    at_a_time[of.index()] = count as usize;
                    count as usize
                }
                _ => num_vertices[vertex],
            });
        }
        let outgoing = walks_out(kernels);
        Self { graph_decls: tables.graphs.clone(), num_vertices: num_rows, graphs, outgoing, at_a_time }
    }

    /// The vertex types at the sources and destinations of a link graph.
    fn ends(&self, graph: usize) -> Option<[VertexType; 2]> {
        let decl = &self.graph_decls[self.graphs[graph]?];
        Some([decl.src, decl.dst])
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

    /// Binds the graphs of data to pairs, given per link graph index, and to the vertices that take the place of an end.
    fn bind(&self, data: &mut BoundData, sets: &[(usize, &Pairs)], candidates: Option<(VertexType, Range<u32>)>) {
        data.num_vertices.clone_from(&self.num_vertices);
        for (index, (decl, topology)) in self.graph_decls.iter().zip(&mut data.graphs).enumerate() {
            let ends = [decl.src, decl.dst].map(|end| self.num_vertices[end.index()]);
            let own = sets.iter().find(|&&(graph, _)| self.graphs[graph] == Some(index)).map(|&(_, pairs)| pairs);
            // Links of a few of the relations of a knowledge graph are scored at a time: most graphs were empty before.
            let was_empty = [topology.num_src, topology.num_dst] == ends && topology.csc.indices.is_empty();
            if was_empty && own.is_none() && decl.share != EdgeShare::Samples {
                continue;
            }
            [topology.num_src, topology.num_dst] = ends;
            let Adjacency { indptr, indices: other, eids: position } = &mut topology.csc;
            let (indptr, other) = (indptr.make_mut(), other.make_mut());
            position.clear();
            other.clear();
            match own {
                _ if decl.share == EdgeShare::Samples => {
                    // The ends that are replaced in a run are of one type.
                    let own = candidates.clone().filter(|(of, _)| *of == decl.src).map_or(0..0, |(_, rows)| rows);
                    indptr.clear();
                    indptr.extend((0..=topology.num_dst as u64).map(|row| row.min(own.len() as u64)));
                    other.extend(own);
                }
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

/// Bytes of the sessions of a scorer when it scores as many pairs as the largest part of the split has, with their
/// negatives, and ranks links.
pub(crate) fn memory(
    executable: &Executable,
    backend: &mut dyn Backend,
    target: &LinkTarget,
    data: &BoundData,
) -> Result<u64> {
    let links_of = |number: usize| data.held_out.iter().filter_map(move |links| Some(links.get(number)?.len()));
    let ranked = data.held_out.iter().map(|links| links.iter().map(Vec::len).sum()).max().unwrap_or(0);
    let mut bytes = 0;
    for role in [Role::Score, Role::Rank(Direction::In), Role::Rank(Direction::Out)] {
        let Some(kernels) = executable.kernels(role) else { continue };
        let tables = PairTables::new(executable, kernels, target, &data.num_vertices);
        let topologies = || target.graphs.iter().map(|graph| &data.graphs[graph.index()]).enumerate();
        let mut replaced = None;
        let sets: Vec<(usize, Pairs)> = match role {
            Role::Rank(end) => {
                // The links of one graph stand for those of all graphs that are ranked together.
                let one = topologies().find_map(|(number, topology)| {
                    let [src, dst] = tables.ends(number)?;
                    let ([of, kept], count) = match end {
                        Direction::In => ([dst, src], topology.num_dst),
                        Direction::Out => ([src, dst], topology.num_src),
                    };
                    let at_a_time = tables.at_a_time[of.index()];
                    (at_a_time > 0).then_some((number, Replacements { of, at_a_time }, count, kept))
                });
                let Some((number, replacements, count, kept)) = one else { continue };
                let num = ranked.min(replacements.kept_together(count));
                bytes += (num * count * size_of::<f32>()) as u64;
                replaced = Some((replacements.of, 0..replacements.at_a_time.min(count) as u32));
                let last = tables.num_vertices[kept.index()].max(1) - 1;
                let kept: Vec<u32> = (0..num).map(|link| (link * last / num.max(1)) as u32).collect();
                let num_dst = tables.ends(number).map_or(0, |[_, dst]| tables.num_vertices[dst.index()]);
                vec![(number, Pairs::of_kept(&kept, end.opposite(), num_dst))]
            }
            _ => topologies()
                .map(|(number, topology)| {
                    let links = links_of(number).chain([topology.all_edges() as usize]).max().unwrap_or(0);
                    // Each link is scored with two negatives.
                    let (num, rows) = ((3 * links).min(PAIRS) as u64, topology.num_dst.max(1) as u64);
                    let indptr = (0..=rows).map(|row| row * num / rows).collect();
                    (number, Pairs { indptr, src: vec![0; num as usize] })
                })
                .collect(),
        };
        let sets: Vec<(usize, &Pairs)> = sets.iter().map(|(number, pairs)| (*number, pairs)).collect();
        let mut bound = tables.empty()?;
        tables.bind(&mut bound, &sets, replaced);
        let input = |decl: &InputDecl| match decl.ty.space {
            Space::Vertices(vertex) => {
                let width = decl.ty.dims.iter().filter_map(|dim| dim.fixed()).product::<usize>();
                tables.num_vertices[vertex.index()] * width
            }
            Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => 0,
        };
        let inputs: Vec<usize> = kernels.tables.inputs.iter().map(input).collect();
        bound.inputs = inputs.iter().map(|&numbers| InputData::Held(numbers)).collect();
        let session = backend.plan(&[role], bound, None)?.memory().bytes();
        // A processor reads the same rows in all programs, and a device has a copy for each.
        let shared = role != Role::Score && backend.reads_host_memory();
        let known = if shared { inputs.iter().sum::<usize>() * size_of::<f32>() } else { 0 };
        bytes += session.saturating_sub(known as u64);
    }
    Ok(bytes)
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
