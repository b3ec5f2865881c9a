//! Aggregation over a factored metapath, without materializing its edges: builds tables for chunks of middle vertices,
//! then sums the rows that look them up, chunk by chunk as table memory allows.

use hgnnc_data::buffer::BufferRange;
use hgnnc_ir::MetapathTerm;
use hgnnc_kernel_ir::kernel::FactoredMetapath;
use hgnnc_kernels::factored_metapath::{
    EndData, SummedRows, add_row, begin_row, log_sum, make_table, state_len, sums, table_len,
};

use crate::block::Context;
use crate::parallel::parallel;
use crate::plan::{Chunk, FactoredStep, Norm};

/// Runs a factored step: for each chunk, tables and then rows.
pub(crate) fn run(context: Context<'_>, step: &FactoredStep) {
    for (number, chunk) in step.chunks.iter().enumerate() {
        let last = number + 1 == step.chunks.len();
        parallel(chunk.tasks.len() - 1, |task| tables(context, step, chunk, task));
        parallel(step.tasks.len() - 1, |task| rows(context, step, (chunk, number == 0, last), task));
    }
}

fn read(context: Context<'_>, buffer: BufferRange) -> &[f32] {
    // Operands of a step do not alias its results.
    context.slabs.of(buffer)
}

/// Builds the tables of the (middle vertex, head) pairs of a task.
fn tables(context: Context<'_>, step: &FactoredStep, chunk: &Chunk, task: usize) {
    let incidence = context.data.graphs[step.ends.0].incidence(step.ends.1);
    let mut summed = [SummedRows { rows: None, width: 0 }; FactoredMetapath::MOST_SUMS];
    for (slot, &(rows, width)) in summed.iter_mut().zip(&step.summed) {
        *slot = SummedRows { rows: rows.map(|rows| read(context, rows)), width };
    }
    let ends = EndData {
        score: read(context, step.other_score),
        norm: step.other_norm.map(|norm| read(context, norm)),
        summed: &summed[..step.summed.len()],
        heads: step.heads,
        slopes: step.slopes,
    };
    let len = table_len(step.width);
    let first = incidence.indptr[chunk.vertices(step.heads).start] as usize;
    for pair in chunk.tasks[task] as usize..chunk.tasks[task + 1] as usize {
        let (vertex, head) = (pair / step.heads, pair % step.heads);
        let range = incidence.indptr[vertex] as usize..incidence.indptr[vertex + 1] as usize;
        let start = (range.start - first) * step.heads * len + head * range.len() * len;
        // Each pair has its own range of the tables, which is not read in this phase.
        let table = context.slabs.write(context.partials, step.tables + start, range.len() * len);
        make_table(context.dispatch, ends, &incidence.indices[range], head, table);
    }
}

/// Sums the rows of a task over the tables of a chunk.
fn rows(context: Context<'_>, step: &FactoredStep, (chunk, first, last): (&Chunk, bool, bool), task: usize) {
    let incidence = context.data.graphs[step.rows.0].incidence(step.rows.1);
    let between = context.data.graphs[step.ends.0].incidence(step.ends.1);
    let (heads, width) = (step.heads, step.width);
    let (len, state) = (table_len(width), heads * state_len(width));
    let vertices = chunk.vertices(heads);
    let base = between.indptr[vertices.start] as usize;
    let own = read(context, step.own_score);
    for row in step.tasks[task] as usize..step.tasks[task + 1] as usize {
        let slot = if step.chunks.len() > 1 { row } else { task };
        // Each row, or each task if there is one chunk, has its own state.
        let state = context.slabs.write(context.partials, step.states + slot * state, state);
        if first {
            begin_row(heads, width, state);
        }
        let edges = &incidence.indices[incidence.indptr[row] as usize..incidence.indptr[row + 1] as usize];
        for &vertex in edges.iter().filter(|&&vertex| vertices.contains(&(vertex as usize))) {
            let range = between.indptr[vertex as usize] as usize..between.indptr[vertex as usize + 1] as usize;
            if range.is_empty() {
                continue;
            }
            let start = step.tables + (range.start - base) * heads * len;
            // The tables of this chunk are complete.
            let tables = context.slabs.read(context.partials, start, range.len() * heads * len);
            let scores = &own[row * heads..(row + 1) * heads];
            add_row(context.dispatch, scores, step.slopes, tables, (range.len(), width), state);
        }
        if last {
            finish(context, step, row, state);
        }
    }
}

/// Normalizes the sums of a row and writes its results.
fn finish(context: Context<'_>, step: &FactoredStep, row: usize, state: &[f32]) {
    let (heads, width) = (step.heads, step.width);
    for sum in &step.sums {
        let (start, len) = (row * heads * sum.width, heads * sum.width);
        // Each row has its own elements of the results.
        let out = context.slabs.write(sum.out.slab, sum.out.offset + start, len);
        let states = state.chunks_exact(state_len(width));
        for (head, (state, out)) in states.zip(out.chunks_exact_mut(sum.width.max(1))).enumerate() {
            let norm = match sum.norm {
                Norm::None => 0.0,
                Norm::Own(column) => log_sum(state, width, column),
                Norm::Stored(norm) => read(context, norm)[row * heads + head],
            };
            match sum.term {
                MetapathTerm::LogSumExp => out[0] = log_sum(state, width, sum.column),
                MetapathTerm::WeightedSum => sums(state, (width, sum.column), [1.0; 2], norm, out),
                MetapathTerm::WeightedSlope => sums(state, (width, sum.column), step.slopes, norm, out),
            }
        }
    }
}
