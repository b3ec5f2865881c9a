//! The first mini-batches of training, sampled for all ranks: the bytes of their messages, and their sizes.

use std::sync::Arc;

use hgnnc_cpu::thread_pool;
use hgnnc_data::{Distributed, ExecError};
use hgnnc_dist::{Comm, threads};
use hgnnc_driver::SizeInfo;
use hgnnc_ir::VertexType;
use hgnnc_kernel_ir::kernel::Program;
use hgnnc_loader::historical_embeddings::{HotVertices, choose};
use hgnnc_loader::loader::GraphInput;
use hgnnc_loader::{MiniBatch, MiniBatchLoader};
use hgnnc_ranks::Placed;
use hgnnc_sample::BatchKey;
use hgnnc_session::Rank;

use super::messages::{Message, OfAll, OfRank, RowsOfRank, add, own_messages};
use crate::Error;
use crate::bound_job::BoundJob;
use crate::ranks::CompiledRanks;

/// Counts of the first mini-batches.
#[derive(Default)]
pub struct Batches {
    /// Number of mini-batches that were sampled.
    pub steps: u64,
    /// Bytes of all of them.
    pub messages: Vec<OfAll>,
    /// By rank: mean sizes of the tables of its program, if they were measured.
    pub sizes: Vec<Option<SizeInfo>>,
    /// By rank and semantic graph: sampled edges of all mini-batches: those to the seeds where
    /// relations are shared, and all others.
    pub edges: Vec<Vec<[u64; 2]>>,
}

/// The same of one rank.
#[derive(Default)]
struct OfOne {
    steps: u64,
    messages: Vec<OfRank>,
    /// Bytes of vertices whose rows a rank asks others for.
    asked: u64,
    sizes: Vec<SizeInfo>,
    edges: Vec<[u64; 2]>,
}

impl OfOne {
    fn add(&mut self, messages: Vec<OfRank>, edges: Vec<[u64; 2]>) {
        if self.steps == 0 {
            (self.messages, self.edges) = (messages, edges);
        } else {
            let pairs =
                self.messages.iter_mut().zip(messages).flat_map(|(sum, own)| sum.bytes.iter_mut().zip(own.bytes));
            pairs.for_each(|(sum, bytes)| *sum += bytes);
            let pairs = self.edges.iter_mut().flatten().zip(edges.into_iter().flatten());
            pairs.for_each(|(sum, edges)| *sum += edges);
        }
        self.steps += 1;
    }
}

/// Samples the first `most` mini-batches for all ranks.
pub fn of_batches(
    bound: &BoundJob,
    compiled: &CompiledRanks,
    program: &Program,
    (size, most): (usize, u64),
) -> Result<Batches, Error> {
    let executable = &compiled.executable;
    let (Some(training), Some(layout)) = (&executable.training, &executable.batch) else {
        return Ok(Batches { steps: 1, ..Batches::default() });
    };
    let Some(batch) = &training.batch else { return Ok(Batches { steps: 1, ..Batches::default() }) };
    let (data, placed) = (&bound.data, &compiled.placed);
    let seed = bound.options.seed.unwrap_or(training.seed);
    let sampled = |comm: &Arc<dyn Comm>| -> Result<OfOne, ExecError> {
        // Routes need no rows of inputs.
        let inputs = vec![GraphInput::Nothing; executable.infer.inputs.len()];
        let mut loader =
            MiniBatchLoader::new(program, layout, batch, data, &inputs, (&executable.infer, training), None)?;
        let Placed { division, relations, distribute, .. } = placed.clone();
        loader.share(Rank { comm: Arc::clone(comm), division, relations, distribute }, program, None);
        loader.divide_inputs(&|_| None)?;
        if let Some(reuse) = batch.reuse {
            let (vertices, _) = choose(&loader, reuse.share, seed, 1)?;
            loader.reuse(HotVertices { vertices, window: reuse.batches })?;
        }
        let before = loader.sent_bytes();
        let count = loader.num_batches().min(most);
        let (order, mut worker, mut mini_batch) =
            (loader.order(seed, 0), loader.worker_in_order()?, MiniBatch::default());
        let mut sum = OfOne::default();
        for batch in 0..count {
            loader.routes(&mut worker, &order, BatchKey { seed, epoch: 0, batch }, &mut mini_batch)?;
            let routes = &mini_batch.data;
            let sent =
                |to: VertexType| routes.routes[to.index()].as_ref().map_or(vec![0; size], |it| it.send_rows.clone());
            let summed =
                |of: VertexType| routes.rows_of_ranks[of.index()].as_ref().map_or(vec![0; size], |it| it.to_vec());
            let own = own_messages(program, true, &RowsOfRank { rank: comm.rank(), sent: &sent, summed: &summed });
            sum.add(own, MiniBatchLoader::sampled_edges(&mini_batch));
            sum.sizes.extend(loader.sizes(&mini_batch));
        }
        sum.asked = loader.sent_bytes() - before;
        Ok(sum)
    };
    let of_ranks = threads::run(size, |comm| thread_pool(1)?.install(|| sampled(comm)));
    let mut all = Batches::default();
    let mut asked = vec![vec![0; size]; size];
    for (rank, of_rank) in of_ranks.into_iter().enumerate() {
        let OfOne { steps, messages, asked: ids, sizes, edges } = of_rank?;
        all.steps = steps;
        asked[rank][(rank + 1) % size] = ids;
        add(&mut all.messages, rank, size, messages);
        let measured = steps > 0 && sizes.len() as u64 == steps;
        all.sizes.push(measured.then(|| mean(&sizes, compiled, program)));
        all.edges.push(edges);
    }
    if size > 1 && asked.iter().flatten().any(|&bytes| bytes > 0) {
        let what = match placed.distribute {
            Distributed { edges: true, features: true } => {
                "vertices, drawn edges and rows of features, ahead of the step"
            }
            Distributed { edges: true, features: false } => "vertices and drawn edges, ahead of the step",
            Distributed { edges: false, features: true } => "vertices and rows of features, ahead of the step",
            Distributed { edges: false, features: false } => "vertices whose rows a rank needs, ahead of the step",
        };
        let what = what.into();
        all.messages.push(Message { launch: None, follows: false, what, bytes: asked });
    }
    Ok(all)
}

/// The mean sizes of mini-batches, for the cost model.
fn mean(sizes: &[SizeInfo], compiled: &CompiledRanks, program: &Program) -> SizeInfo {
    let mut mean = SizeInfo::mean(sizes);
    let expected = compiled.train_sizes.as_ref();
    match expected.filter(|sizes| sizes.columns.len() >= mean.stored.len()) {
        Some(sizes) => {
            let columns = mean.stored.iter().zip(&sizes.columns);
            mean.columns = columns.map(|(&stored, &columns)| columns.min(stored)).collect();
        }
        None => mean.stored.clear(),
    }
    mean.derive(&program.tables);
    mean
}
