//! The messages of a step, in bytes that are known before anything runs.

use hgnnc_data::ranks::rows_sent;
use hgnnc_dist::slices;
use hgnnc_ir::dataflow::VertexTypeDecl;
use hgnnc_ir::{VertexRows, VertexType};
use hgnnc_kernel_ir::kernel::{Body, Exchange, Launch, Program};

use crate::bound_job::BoundJob;
use crate::ranks::CompiledRanks;

/// A message of a step, with bytes by receiving rank for one that a rank sends, and by sending and receiving rank for one
/// of all ranks.
pub struct Message<B> {
    /// The launch that starts it; `None` for one ahead of a step.
    pub launch: Option<usize>,
    /// Whether it is started at the end of its launch: sums to all, after the slices of the ranks have come.
    pub follows: bool,
    pub what: String,
    pub bytes: B,
}

/// Bytes that a rank sends to each.
pub type OfRank = Message<Vec<u64>>;
/// Bytes that each rank sends to each.
pub type OfAll = Message<Vec<Vec<u64>>>;

impl OfAll {
    /// The bytes of a rank for others.
    pub fn sent(&self, rank: usize) -> u64 {
        self.bytes[rank].iter().sum::<u64>() - self.bytes[rank][rank]
    }
}

/// Rows that a rank has for the others.
pub struct RowsOfRank<'a> {
    pub rank: usize,
    /// By receiving type: rows for each rank.
    pub sent: &'a dyn Fn(VertexType) -> Vec<usize>,
    /// By type whose rows are summed: rows of each rank.
    pub summed: &'a dyn Fn(VertexType) -> Vec<usize>,
}

/// The messages that a rank sends in a step.
pub fn own_messages(program: &Program, on_batches: bool, rows: &RowsOfRank<'_>) -> Vec<OfRank> {
    let mut all = vec![];
    let known_rows = known_rows(program);
    for (number, launch) in launches(program, on_batches).enumerate() {
        let width = |exchange: &Exchange| exchange.width.eval(&known_rows);
        let name = |vertex: VertexType| &program.tables.vertex_types[vertex.index()].name[..];
        let mut sums: Vec<&Exchange> = vec![];
        for exchange in exchanges(launch) {
            match exchange.to {
                Some(to) => {
                    let bytes = (rows.sent)(to).iter().map(|&rows| 4 * (rows * width(exchange)) as u64).collect();
                    let what = format!("{} to {}, {} numbers a row", name(exchange.rows), name(to), width(exchange));
                    all.push(Message { launch: Some(number), follows: false, what, bytes });
                }
                None => sums.push(exchange),
            }
        }
        let Some(first) = sums.first() else { continue };
        let elements: usize = sums.iter().map(|sum| width(sum)).sum();
        let of_ranks = (rows.summed)(first.rows);
        let (size, own) = (of_ranks.len(), of_ranks[rows.rank]);
        let slice = |rank: usize| slices::slice(elements, rank, size).len() as u64;
        let plural = |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let what = format!("{} of {}", plural(sums.len(), "sum"), plural(elements, "number"));
        let bytes = (0..size).map(|to| 4 * own as u64 * slice(to)).collect();
        all.push(Message { launch: Some(number), follows: false, what, bytes });
        if !slices::are_few(elements) {
            let what = format!("the sums of {elements} numbers to all");
            let bytes = vec![4 * slice(rows.rank); size];
            all.push(Message { launch: Some(number), follows: true, what, bytes });
        }
    }
    all
}

/// By vertex type: its rows, where the program alone says how many. The length of a message's row depends on no others.
fn known_rows(program: &Program) -> Vec<usize> {
    let tables = &program.tables;
    let known = |decl: &VertexTypeDecl| match decl.rows {
        VertexRows::Members(stack) => tables.stacks[stack.index()].members.len(),
        VertexRows::Samples(_, count) => count as usize,
        _ => 0,
    };
    tables.vertex_types.iter().map(known).collect()
}

/// The launches of a step. The prelude runs once on the whole graph, and for each mini-batch.
pub fn launches(program: &Program, on_batches: bool) -> impl Iterator<Item = &Launch> {
    program.prelude.iter().filter(move |_| on_batches).chain(&program.launches)
}

fn exchanges(launch: &Launch) -> impl Iterator<Item = &Exchange> {
    launch
        .kernels
        .iter()
        .filter_map(|kernel| if let Body::Exchange(exchange) = &kernel.body { Some(exchange) } else { None })
}

/// Adds the messages of a rank to those of all.
pub fn add(all: &mut Vec<OfAll>, rank: usize, size: usize, own: Vec<OfRank>) {
    for (place, own) in own.into_iter().enumerate() {
        let Message { launch, follows, what, bytes } = own;
        if all.len() == place {
            all.push(Message { launch, follows, what, bytes: vec![vec![0; size]; size] });
        }
        all[place].bytes[rank].iter_mut().zip(bytes).for_each(|(all, bytes)| *all += bytes);
    }
}

/// The messages of a step on the whole graph.
pub fn of_whole_graph(bound: &BoundJob, compiled: &CompiledRanks, program: &Program, size: usize) -> Vec<OfAll> {
    let placed = &compiled.placed;
    let sent = rows_sent(&bound.data, &placed.tables, &placed.division);
    let mut all = vec![];
    for rank in 0..size {
        let rows = RowsOfRank {
            rank,
            sent: &|to| sent[to.index()].get(rank).cloned().unwrap_or_default(),
            summed: &|_| (0..size).map(|rank| placed.division.sections_of(rank).len()).collect(),
        };
        add(&mut all, rank, size, own_messages(program, false, &rows));
    }
    all
}
