//! Sums over paths, bound to the sizes of their data.

use hgnnc_ir::kernel::{self, Paths, Width};
use hgnnc_ir::{Direction, PathTerm, Space};

use super::bind::Binder;
use crate::buffer::BufferRange;
use crate::data::Adjacency;
use crate::kernels::factored_metapath::{state_len, table_len};

/// Most elements of the tables of the vertices between that are there at one time. More go through them in several turns.
const TABLES: usize = 16 << 20;
/// Elements of the tables that a task makes, and of the rows that it sums.
const TASK: usize = 1 << 14;

/// Sums over the same paths with the same scores.
#[derive(Clone, PartialEq, Debug)]
pub struct FactoredStep {
    /// The edges from the rows to the vertices between: a graph and a direction.
    pub rows: (usize, Direction),
    /// The edges from these to the other ends.
    pub ends: (usize, Direction),
    /// Slope of the score below its bend.
    pub slope: f32,
    /// Scores of an end.
    pub heads: usize,
    /// The part of the score that rows have.
    pub own_score: BufferRange,
    /// The part that the other ends have.
    pub other_score: BufferRange,
    /// What the scores of the other ends are reduced by: of sums for sources.
    pub other_norm: Option<BufferRange>,
    /// What is summed, each once: rows of the other ends with so many elements per head, or 1.
    pub summed: Vec<(Option<BufferRange>, usize)>,
    /// Elements per head of all that is summed.
    pub width: usize,
    /// The results.
    pub sums: Vec<SumStep>,
    /// Vertices between, in turns.
    pub chunks: Vec<Chunk>,
    /// First row of each task, and one past the last.
    pub tasks: Vec<u32>,
    /// Where the tables stand in the slab of partial results.
    pub tables: usize,
    /// Where the sums so far stand there: of each row, or of each task where there is one turn.
    pub states: usize,
}

/// Vertices between whose tables are there at one time.
#[derive(Clone, PartialEq, Debug)]
pub struct Chunk {
    /// First pair of vertex and head of each task, and one past the last.
    pub tasks: Vec<u64>,
}

impl Chunk {
    /// The vertices.
    pub fn vertices(&self, heads: usize) -> std::ops::Range<usize> {
        let at = |pair: Option<&u64>| pair.map_or(0, |&pair| pair as usize / heads);
        at(self.tasks.first())..at(self.tasks.last())
    }
}

/// One result.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SumStep {
    /// What it is.
    pub term: PathTerm,
    /// What it is reduced by, once it is complete.
    pub norm: Norm,
    /// Position of its elements among all that is summed.
    pub column: usize,
    /// Elements per head.
    pub width: usize,
    /// Where it goes.
    pub out: BufferRange,
}

/// What a complete sum is reduced by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Norm {
    /// Nothing: its scores have been.
    None,
    /// The logarithm of the sum that stands in this column.
    Own(usize),
    /// A row of these.
    Stored(BufferRange),
}

/// Binds a kernel of sums over paths.
pub(super) fn bind_factored_metapath(binder: &mut Binder<'_>, paths: &Paths) -> FactoredStep {
    let heads = binder.eval(&paths.heads);
    let (first, second) = (paths.first.index(), paths.second.index());
    let (rows, ends) = match paths.direction {
        Direction::In => ((second, Direction::In), (first, Direction::In)),
        Direction::Out => ((first, Direction::Out), (second, Direction::Out)),
    };
    let buffer = |buffer: kernel::Buffer| binder.buffer(buffer);
    let (x, y) = (buffer(paths.x), buffer(paths.y));
    let (own_score, other_score) = if paths.direction == Direction::In { (y, x) } else { (x, y) };
    let tables = &binder.program.tables;
    let (graph, direction) = paths.sum(PathTerm::Weight).others();
    let others = match tables.graph_end(graph, direction) {
        Space::Vertices(vertex) => Width::count(vertex),
        Space::Unit | Space::Edges(_) | Space::Index(_) | Space::Ends(..) => Width::one(),
    };
    // Elements of a head, also where there are no rows.
    let per_head = |of: kernel::Buffer| {
        let row = binder.program.volume(of).and_then(|all| all.divided_by(&others)?.divided_by(&paths.heads));
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
    for sum in &paths.sums {
        let (at, width) = column(sum.w);
        let own = |n: kernel::Buffer| sums.iter().find(|sum| sum.term == PathTerm::Lse && sum.out == buffer(n));
        let norm = match sum.n {
            Some(n) if paths.direction == Direction::In => {
                own(n).map_or(Norm::Stored(buffer(n)), |lse| Norm::Own(lse.column))
            }
            Some(_) | None => Norm::None,
        };
        sums.push(SumStep { term: sum.term, norm, column: at, width, out: buffer(sum.out) });
    }
    let other_norm = paths.sums.first().and_then(|sum| sum.n).filter(|_| paths.direction == Direction::Out);
    let width = summed.iter().map(|of| of.1).sum();
    let mut step = FactoredStep {
        rows,
        ends,
        slope: paths.slope as f32,
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
    let largest = step.take_turns(incidence(ends));
    step.tasks = row_tasks(incidence(rows), heads * state_len(width));
    let num_rows = incidence(rows).indptr.len() - 1;
    let states = if step.chunks.len() > 1 { num_rows } else { step.tasks.len() - 1 };
    step.tables = binder.partial(1, largest);
    step.states = binder.partial(states, heads * state_len(width));
    step
}

impl FactoredStep {
    /// Divides the vertices between into turns, and these into tasks. Elements of the largest turn's tables.
    fn take_turns(&mut self, ends: &Adjacency) -> usize {
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

/// Rows with about as many edges and elements for each task.
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
