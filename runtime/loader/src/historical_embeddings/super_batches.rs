//! Samples super-batches ahead, and lists the vertices whose embeddings they need.

use std::ops::Range;
use std::time::Instant;

use hgnnc_data::Result;
use hgnnc_sample::{Batch, BatchKey};

use super::REFRESH_BATCH_SIZE;
use super::hot_vertices::fresh;
use crate::loader::{LoaderWorker, MiniBatch, MiniBatchLoader, ReusedRows};
use crate::pipeline::{Line, Ready};

/// Separates the random streams of refresh batches from those of mini-batches.
const VALUES: u64 = 1 << 63;

/// A sampled batch, before features are gathered.
struct Sampled {
    key: BatchKey,
    seeds: usize,
    batch: Batch,
    began: Instant,
    seconds: f64,
    reused_rows: Vec<ReusedRows>,
}

/// Batches of an epoch that share one refresh.
#[derive(Clone)]
struct SuperBatch {
    epoch: u64,
    batches: Range<u64>,
}

/// Super-batches from batch `first` on, before epoch `epochs`.
fn super_batches(
    loader: &MiniBatchLoader,
    first: BatchKey,
    epochs: u64,
    size: u64,
) -> impl Iterator<Item = SuperBatch> {
    let num = loader.num_batches();
    (first.epoch..epochs).flat_map(move |epoch| {
        let start = if epoch == first.epoch { first.batch } else { 0 };
        let parts =
            (start / size..num.div_ceil(size)).map(move |part| (part * size).max(start)..((part + 1) * size).min(num));
        parts.filter(|batches| !batches.is_empty()).map(move |batches| SuperBatch { epoch, batches })
    })
}

/// Rows of the embedding tables of one super-batch.
struct Table {
    /// By [`hgnnc_ir::batch::BatchLayout::historical`]: vertices in row order.
    vertices: Vec<Vec<u32>>,
    /// By vertex, its row; unspecified for vertices without one.
    rows: Vec<Vec<u32>>,
    /// Edges that each would sample.
    edges: Vec<Vec<u64>>,
}

impl Table {
    fn new(loader: &MiniBatchLoader) -> Self {
        let layout = loader.layout();
        let counts = layout.historical.iter().map(|it| loader.counts()[layout.vertices[it.of.index()].vertex.index()]);
        let rows: Vec<Vec<u32>> = counts.map(|count| vec![0; count]).collect();
        Self { vertices: vec![vec![]; rows.len()], edges: vec![vec![]; rows.len()], rows }
    }

    fn clear(&mut self) {
        self.vertices.iter_mut().for_each(Vec::clear);
        self.edges.iter_mut().for_each(Vec::clear);
    }

    /// Finds the hot vertices of a batch, and allocates rows for new ones.
    fn take(&mut self, loader: &MiniBatchLoader, sampled: &mut Sampled) {
        let layout = loader.layout();
        for (number, reused) in layout.historical.iter().enumerate() {
            let known = layout.vertices[reused.of.index()];
            let vertex_type = known.vertex.index();
            let fresh = fresh(&sampled.batch, known.hops, vertex_type);
            let first = sampled.batch.known[known.hops][vertex_type] as usize - fresh.len();
            let mut reused_rows = ReusedRows::default();
            let (vertices, rows, edges) = (&mut self.vertices[number], &mut self.rows[number], &mut self.edges[number]);
            for (row, &vertex) in (first..).zip(fresh) {
                if !loader.resting().has(vertex_type, vertex) {
                    continue;
                }
                let at = rows[vertex as usize] as usize;
                let at = if vertices.get(at) == Some(&vertex) {
                    at
                } else {
                    rows[vertex as usize] = vertices.len() as u32;
                    vertices.push(vertex);
                    edges.push(loader.drawn_of(vertex_type, vertex));
                    vertices.len() - 1
                };
                reused_rows.rows.push(row as u32);
                reused_rows.from.push(at as u32);
                reused_rows.edges_not_drawn += edges[at];
            }
            sampled.reused_rows.push(reused_rows);
        }
    }
}

/// Loads super-batches in order, each preceded by its refresh batches. The next super-batch is sampled batch by batch
/// while the current one is trained.
pub fn make_super_batches(
    (loader, values): (&MiniBatchLoader, &MiniBatchLoader),
    first: BatchKey,
    epochs: u64,
    size: u64,
    line: &Line<'_>,
) -> Result<()> {
    let (mut worker, mut of_values) = (loader.worker()?, values.worker()?);
    let mut presampler = Presampler {
        loader,
        seed: first.seed,
        order: (u64::MAX, vec![]),
        mini_batch: MiniBatch::default(),
        free: vec![],
    };
    let mut all = super_batches(loader, first, epochs, size);
    let Some(mut current) = all.next() else { return Ok(()) };
    let mut sampled = vec![];
    for batch in current.batches.clone() {
        sampled.push(presampler.sample(&mut worker, current.epoch, batch)?);
    }
    let mut table = Table::new(loader);
    loop {
        table.clear();
        sampled.iter_mut().for_each(|sampled| table.take(loader, sampled));
        let key = BatchKey { seed: first.seed, epoch: current.epoch, batch: VALUES | current.batches.start };
        if !send_refresh(&mut of_values, loader, values, &table, key, line)? {
            return Ok(());
        }
        let next = all.next();
        let mut later = next.iter().flat_map(|next| next.batches.clone().map(|batch| (next.epoch, batch)));
        let mut coming = vec![];
        for sampled in sampled {
            let mut mini_batch = line.used();
            presampler.free.push(std::mem::replace(&mut mini_batch.sampled, sampled.batch));
            (mini_batch.key, mini_batch.seeds, mini_batch.reused_rows) =
                (Some(sampled.key), sampled.seeds, sampled.reused_rows);
            loader.complete(&mut mini_batch)?;
            (mini_batch.began[0], mini_batch.seconds[0]) = (Some(sampled.began), sampled.seconds);
            if !line.send(Ready::Batch(mini_batch)) {
                return Ok(());
            }
            if let Some((epoch, batch)) = later.next() {
                coming.push(presampler.sample(&mut worker, epoch, batch)?);
            }
        }
        for (epoch, batch) in later {
            coming.push(presampler.sample(&mut worker, epoch, batch)?);
        }
        let Some(next) = next else { return Ok(()) };
        (current, sampled) = (next, coming);
    }
}

/// Sends the refresh batches of a table. Returns false if the receiver is gone.
fn send_refresh(
    worker: &mut LoaderWorker<'_>,
    loader: &MiniBatchLoader,
    values: &MiniBatchLoader,
    table: &Table,
    key: BatchKey,
    line: &Line<'_>,
) -> Result<bool> {
    let layout = loader.layout();
    let longest = table.vertices.iter().map(Vec::len).max().unwrap_or(0);
    let total: usize = table.vertices.iter().map(Vec::len).sum();
    // Each refresh batch gets the same fraction of every vertex type.
    let parts = total.div_ceil(REFRESH_BATCH_SIZE).max(usize::from(longest > 0));
    for part in 0..parts {
        let mut refresh = line.used_refresh();
        refresh.first = part == 0;
        refresh.rows.clear();
        let mut seeds = vec![vec![]; loader.counts().len()];
        for (number, vertices) in table.vertices.iter().enumerate() {
            let (start, end) = (vertices.len() * part / parts, vertices.len() * (part + 1) / parts);
            let known = layout.vertices[layout.historical[number].of.index()];
            seeds[known.vertex.index()] = vertices[start..end].to_vec();
            refresh.rows.push((start, vertices.len()));
        }
        values.make_around(worker, &seeds, key, &mut refresh.mini_batch)?;
        if !line.send(Ready::Refresh(refresh)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Samples batches into recycled memory.
struct Presampler<'s> {
    loader: &'s MiniBatchLoader,
    seed: u64,
    /// Epoch and its shuffled seed vertices.
    order: (u64, Vec<u32>),
    mini_batch: MiniBatch,
    free: Vec<Batch>,
}

impl Presampler<'_> {
    fn sample(&mut self, worker: &mut LoaderWorker<'_>, epoch: u64, batch: u64) -> Result<Sampled> {
        let start = Instant::now();
        if self.order.0 != epoch {
            self.order = (epoch, self.loader.order(self.seed, epoch));
        }
        let key = BatchKey { seed: self.seed, epoch, batch };
        self.mini_batch.sampled = self.free.pop().unwrap_or_default();
        self.loader.sample(worker, &self.order.1, key, &mut self.mini_batch)?;
        let batch = std::mem::take(&mut self.mini_batch.sampled);
        let seconds = start.elapsed().as_secs_f64();
        Ok(Sampled { key, seeds: self.mini_batch.seeds, batch, began: start, seconds, reused_rows: vec![] })
    }
}
