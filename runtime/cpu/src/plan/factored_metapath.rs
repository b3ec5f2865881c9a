//! Plans the aggregation over factored metapaths (row, middle vertex, end) for the sizes of its data.

use hgnnc_data::Adjacency;
use hgnnc_data::buffer::BufferRange;
use hgnnc_ir::width::Width;
use hgnnc_ir::{Direction, MetapathTerm, Space};
use hgnnc_kernel_ir::kernel::{self, FactoredMetapath};
use hgnnc_kernels::factored_metapath::{state_len, table_len};

use super::bind::Binder;

/// Maximum elements of the middle-vertex tables in memory; larger ones are processed in several chunks.
const TABLES: usize = 16 << 20;
/// Elements of the tables per task, and of the aggregated rows.
const TASK: usize = 1 << 14;

/// Aggregations over one metapath with the same attention scores.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FactoredStep {
    /// Edges between rows and middle vertices: graph and direction.
    pub rows: (usize, Direction),
    /// Edges between middle vertices and ends: graph and direction.
    pub ends: (usize, Direction),
    /// The slopes of the score below and above zero.
    pub slopes: [f32; 2],
    /// Number of attention heads.
    pub heads: usize,
    /// Row part of the scores.
    pub own_score: BufferRange,
    /// End part of the scores.
    pub other_score: BufferRange,
    /// Log-sum-exp of the ends, subtracted from their scores in sums for sources.
    pub other_norm: Option<BufferRange>,
    /// Distinct aggregated operands: rows of the ends with this many elements per head, or ones.
    pub summed: Vec<(Option<BufferRange>, usize)>,
    /// Total aggregated elements per head.
    pub width: usize,
    pub sums: Vec<SumStep>,
    /// Chunks of middle vertices.
    pub chunks: Vec<Chunk>,
    /// First row of each task, and the end of the last.
    pub tasks: Vec<u32>,
    /// Offset of the tables in the partials slab.
    pub tables: usize,
    /// Offset of the running sums in the partials slab: one per row, or per task if there is one chunk.
    pub states: usize,
}

/// Middle vertices whose tables are in memory together.
#[derive(Clone, PartialEq, Debug)]
pub struct Chunk {
    /// First (vertex, head) pair of each task, and the end of the last.
    pub tasks: Vec<u64>,
}

impl Chunk {
    /// Range of its middle vertices.
    pub fn vertices(&self, heads: usize) -> std::ops::Range<usize> {
        let at = |pair: Option<&u64>| pair.map_or(0, |&pair| pair as usize / heads);
        at(self.tasks.first())..at(self.tasks.last())
    }
}

/// A result of the aggregation.
#[derive(Clone, Copy, PartialEq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct SumStep {
    pub term: MetapathTerm,
    /// Normalization of the complete sum.
    pub norm: Norm,
    /// Index of its first element among the aggregated elements.
    pub column: usize,
    pub width: usize,
    pub out: BufferRange,
}

/// Normalization of a complete sum.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Norm {
    /// None: scores are already normalized.
    None,
    /// Log-sum-exp of this column.
    Own(usize),
    /// Row of a stored log-sum-exp.
    Stored(BufferRange),
}

/// Binds a kernel of factored aggregations.
pub(super) fn bind_factored_metapath(binder: &mut Binder<'_>, reduction: &FactoredMetapath) -> FactoredStep {
    let heads = binder.eval(&reduction.heads);
    let (first, second) = (reduction.first.index(), reduction.second.index());
    let (rows, ends) = match reduction.direction {
        Direction::In => ((second, Direction::In), (first, Direction::In)),
        Direction::Out => ((first, Direction::Out), (second, Direction::Out)),
    };
    let buffer = |buffer: kernel::Buffer| binder.buffer(buffer);
    let (x, y) = (buffer(reduction.x), buffer(reduction.y));
    let (own_score, other_score) = if reduction.direction == Direction::In { (y, x) } else { (x, y) };
    let tables = &binder.program.tables;
    let (graph, direction) = reduction.sum(MetapathTerm::WeightedSum).others();
    let others = match tables.graph_end(graph, direction) {
        Space::Vertices(vertex) => Width::count(vertex),
        Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Endpoints(..) => Width::one(),
    };
    // Elements per head, also without rows.
    let per_head = |of: kernel::Buffer| {
        let row = binder.program.volume(of).and_then(|all| all.divided_by(&others)?.divided_by(&reduction.heads));
        row.map_or(0, |row| binder.eval(&row))
    };
    let mut summed: Vec<(Option<BufferRange>, usize)> = vec![];
    let mut column = |of: Option<kernel::Buffer>| {
        let (of, width) = (of.map(buffer), of.map_or(1, per_head));
        let known = summed.iter().position(|&known| known == (of, width)).unwrap_or_else(|| {
            summed.push((of, width));
            summed.len() - 1
        });
        (summed[..known].iter().map(|of| of.1).sum::<usize>(), width)
    };
    let mut sums: Vec<SumStep> = vec![];
    for sum in &reduction.sums {
        let (at, width) = column(sum.w);
        let own =
            |n: kernel::Buffer| sums.iter().find(|sum| sum.term == MetapathTerm::LogSumExp && sum.out == buffer(n));
        let norm = match sum.n {
            Some(n) if reduction.direction == Direction::In => {
                own(n).map_or(Norm::Stored(buffer(n)), |lse| Norm::Own(lse.column))
            }
            Some(_) | None => Norm::None,
        };
        sums.push(SumStep { term: sum.term, norm, column: at, width, out: buffer(sum.out) });
    }
    let other_norm = reduction.sums.first().and_then(|sum| sum.n).filter(|_| reduction.direction == Direction::Out);
    let width = summed.iter().map(|of| of.1).sum();
    let mut step = FactoredStep {
        rows,
        ends,
        slopes: [reduction.score.below as f32, reduction.score.above as f32],
        heads,
        own_score,
        other_score,
        other_norm: other_norm.map(buffer),
        summed,
        width,
        sums,
        chunks: vec![],
        tasks: vec![],
        tables: 0,
        states: 0,
    };
    let incidence = |(graph, direction): (usize, Direction)| binder.data.graphs[graph].incidence(direction);
    let largest = step.divide_into_chunks(incidence(ends));
    step.tasks = row_tasks(incidence(rows), heads * state_len(width));
    let num_rows = incidence(rows).indptr.len() - 1;
    let states = if step.chunks.len() > 1 { num_rows } else { step.tasks.len() - 1 };
    step.tables = binder.partial(1, largest);
    step.states = binder.partial(states, heads * state_len(width));
    step
}

impl FactoredStep {
    /// Divides the middle vertices into chunks, and these into tasks. Returns the table elements of the largest chunk.
    fn divide_into_chunks(&mut self, ends: &Adjacency) -> usize {
        let len = table_len(self.width);
        let heads = self.heads as u64;
        let (mut tasks, mut in_task, mut in_turn, mut largest) = (vec![0], 0, 0, 0);
        let vertices = ends.indptr.len() as u64 - 1;
        for (vertex, range) in ends.indptr.windows(2).enumerate() {
            let elements = (range[1] - range[0]) as usize * len;
            let of_vertex = elements * self.heads;
            if in_turn > 0 && in_turn + of_vertex > TABLES {
                if tasks.last() != Some(&(vertex as u64 * heads)) {
                    tasks.push(vertex as u64 * heads);
                }
                let next = vec![vertex as u64 * heads];
                self.chunks.push(Chunk { tasks: std::mem::replace(&mut tasks, next) });
                (in_turn, in_task) = (0, 0);
            }
            for head in 0..heads {
                in_task += elements;
                if in_task >= TASK {
                    tasks.push(vertex as u64 * heads + head + 1);
                    in_task = 0;
                }
            }
            in_turn += of_vertex;
            largest = largest.max(in_turn);
        }
        if tasks.last() != Some(&(vertices * heads)) {
            tasks.push(vertices * heads);
        }
        self.chunks.push(Chunk { tasks });
        largest
    }
}

/// Tasks of rows with similar numbers of edges and elements.
fn row_tasks(rows: &Adjacency, elements: usize) -> Vec<u32> {
    let mut tasks = vec![0];
    let mut cost = 0;
    for (row, range) in rows.indptr.windows(2).enumerate() {
        cost += (1 + range[1] - range[0]) as usize * elements;
        if cost >= TASK {
            tasks.push(row as u32 + 1);
            cost = 0;
        }
    }
    let num_rows = rows.indptr.len() as u32 - 1;
    if tasks.last() != Some(&num_rows) {
        tasks.push(num_rows);
    }
    tasks
}
