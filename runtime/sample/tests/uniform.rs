//! Every edge and every subset has the same probability, and vertices sample independently.

mod common;

use common::{deviation, graph};
use hgnnc_sample::Fanout::AtMost;
use hgnnc_sample::{Batch, BatchKey, Compiled, Plan, SampleGraph, Sampler};

/// A destination type of `rows` vertices with `degree` in-edges each, from sources of their own.
fn star(rows: u32, degree: u32) -> SampleGraph<'static> {
    let edges = (0..rows * degree).map(|e| (e, e / degree)).collect();
    graph(&[(rows * degree) as usize, rows as usize], &[(0, 1, edges)])
}

/// Calls `each` with the positions of the sampled edges of every row of every batch.
fn draw(rows: u32, degree: u32, fanout: u32, batches: u64, mut each: impl FnMut(u32, &[u32])) {
    let graph = star(rows, degree);
    let code = Compiled::new(&graph, Plan::uniform(&[AtMost(fanout)], 1), &compiler()).unwrap();
    let mut sampler = Sampler::compiled(&graph, &code).unwrap();
    let mut batch = Batch::default();
    let seeds = [vec![], (0..rows).collect::<Vec<u32>>()];
    for number in 0..batches {
        sampler.sample(&seeds, BatchKey { seed: 1, epoch: number / 100, batch: number % 100 }, &mut batch).unwrap();
        for (row, edges) in batch.blocks[0].eids.chunks_exact(fanout as usize).enumerate() {
            let edges: Vec<u32> = edges.iter().map(|e| e - row as u32 * degree).collect();
            each(row as u32, &edges);
        }
    }
}

#[test]
fn every_edge_of_a_row_is_as_probable() {
    // Rows in a register, by linear search, and with a bitmap; a fan-out of nearly the degree.
    for (degree, fanout) in [(2, 1), (11, 10), (40, 7), (64, 32), (65, 10), (200, 31), (100, 60), (1000, 40), (70, 69)]
    {
        let (rows, batches) = (200, 400);
        let mut by_edge = vec![0u64; degree as usize];
        let mut by_place = vec![0u64; degree as usize];
        draw(rows, degree, fanout, batches, |_, edges| {
            edges.iter().for_each(|&e| by_edge[e as usize] += 1);
            by_place[edges[0] as usize] += 1;
        });
        // Counts vary less without replacement, by (d - f) / (d - 1).
        let found = deviation(&by_edge, f64::from(degree - fanout) / f64::from(degree - 1));
        println!("{fanout} of {degree}: {found:.2}");
        assert!(found.abs() < 4.5, "{fanout} of {degree}: {found}");
        // The first draw is uniform below degree - fanout + 1.
        let first = &by_place[..(degree - fanout + 1) as usize];
        assert_eq!(first.iter().sum::<u64>(), u64::from(rows) * batches);
        assert!(deviation(first, 1.0).abs() < 4.5, "first of {fanout} of {degree}");
    }
}

#[test]
fn every_subset_is_as_probable() {
    // All subsets of three of seven edges: 35.
    let mut by_subset = vec![0u64; 128];
    draw(100, 7, 3, 700, |_, edges| by_subset[edges.iter().map(|e| 1usize << e).sum::<usize>()] += 1);
    let counts: Vec<u64> = by_subset.into_iter().filter(|&n| n > 0).collect();
    assert_eq!(counts.len(), 35);
    let found = deviation(&counts, 1.0);
    println!("{found:.2}");
    assert!(found.abs() < 4.5, "{found}");
}

#[test]
fn neighbouring_rows_and_batches_are_independent() {
    // Pairs of samples of two consecutive rows, and of a row in two consecutive batches: all 64 have the same
    // probability.
    let (mut by_rows, mut by_batches) = (vec![0u64; 64], vec![0u64; 64]);
    let (mut last, mut before) = (None, [0; 50]);
    draw(50, 8, 1, 4000, |row, edges| {
        if let Some((of, edge)) = last
            && of + 1 == row
        {
            by_rows[(edge * 8 + edges[0]) as usize] += 1;
        }
        by_batches[(before[row as usize] * 8 + edges[0]) as usize] += 1;
        (last, before[row as usize]) = (Some((row, edges[0])), edges[0]);
    });
    for counts in [by_rows, by_batches] {
        let found = deviation(&counts, 1.0);
        println!("{found:.2}");
        assert!(found.abs() < 4.5, "{found}");
    }
}

/// The compiler of samplers for this processor.
fn compiler() -> std::sync::Arc<dyn hgnnc_executable::sampler::SamplerCompiler> {
    hgnnc_codegen_cpu::sampler(Default::default()).expect("a processor that Cranelift knows")
}
