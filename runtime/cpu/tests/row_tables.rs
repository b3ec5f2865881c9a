//! Tables with rows in stores are trained to the same bits as tables of the session.

// Rows of stores are written by this thread alone.
#![allow(unsafe_code)]

mod common;

use hgnnc_data::buffer::HostBuffer;
use hgnnc_ir::*;
use hgnnc_machine::CodeMode;
use hgnnc_passes::{Optimizer, OptimizerOptions, differentiate, update};
use hgnnc_session::{HostRows, Session, StepKey, TableRows};

use common::Case;

const V: Space = Space::Vertices(VertexType(0));
/// Rows of the table that a step takes.
const ROWS: usize = 3000;
const SEED: u64 = 7;

/// A table `w` of which every element gets a gradient.
fn case(width: usize, optimizer: Optimizer) -> Case {
    let mut case = Case::new(&[3], &[]);
    let (x, w) = (case.random(V, &[ROWS]), case.weight(&[ROWS, width]));
    let h = case.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
    let squares = case.flow.binary(BinaryOp::Mul, h, h);
    let rows = case.flow.reduce_trailing(Reduce::Sum, 1, squares);
    let loss = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[rows]);
    case.result(loss);
    let gradients = differentiate(&mut case.flow, loss, &[Param::new(0)]);
    update(&mut case.flow, &gradients, &OptimizerOptions::new(optimizer));
    case
}

/// The table and its states after some steps on the session's own memory.
fn in_session(case: &Case, threads: usize) -> Vec<Vec<f32>> {
    let mut engine = case.engine(threads, CodeMode::Native);
    for step in 1..4 {
        engine.run(0, SEED, step, 0, &mut Default::default());
        engine.commit(0);
    }
    let states = 0..engine.states().len();
    std::iter::once(engine.param(0).to_vec()).chain(states.map(|i| engine.state(i).to_vec())).collect()
}

/// The same with rows scattered over larger stores, and the states that the session has itself.
fn in_stores(case: &Case, threads: usize, width: usize) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let mut engine = case.engine(threads, CodeMode::Native);
    // Distinct rows in no order.
    let rows: Vec<u32> = (0..ROWS as u32).map(|row| row * 2477 % 4001).collect();
    let table = engine.param(0).to_vec();
    engine.param(0).fill(f32::NAN);
    // SAFETY: nothing else uses the stores, and the rows are distinct.
    let store = || unsafe { HostRows::new(HostBuffer::zeros(4001 * width), width) };
    let stores: Vec<HostRows> = std::iter::repeat_with(store).take(1 + engine.states().len()).collect();
    hgnnc_session::RowStore::write(&stores[0], &rows, &table).expect("host memory");
    let tables: Vec<TableRows<'_>> =
        stores.iter().enumerate().map(|(array, store)| TableRows { array, rows: &rows, store }).collect();
    for step in 1..4 {
        let key = StepKey { seed: SEED, step, epoch: 0 };
        engine.gather_tables(0, &tables).expect("memory");
        Session::run(&mut engine, 0, key, &mut Default::default()).expect("a processor");
        engine.update_tables(0, key, &tables, &mut Default::default()).expect("a processor");
    }
    let trained = stores.iter().map(|store| {
        let mut found = vec![0.0; ROWS * width];
        hgnnc_session::RowStore::read(store, &rows, &mut found).expect("host memory");
        found
    });
    let trained = trained.collect();
    (trained, (0..engine.states().len()).map(|state| engine.state(state).to_vec()).collect())
}

#[test]
fn rows_of_stores_are_trained_as_those_of_the_session() {
    let adam = Optimizer::Adam { lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01 };
    for optimizer in [Optimizer::sgd(0.1), adam] {
        // Blocks have whole rows of 16 elements, and not of 13: those are copied.
        for (width, in_blocks) in [(16, true), (13, false)] {
            let case = case(width, optimizer);
            for threads in [1, 3] {
                let (trained, states) = in_stores(&case, threads, width);
                assert_eq!(trained, in_session(&case, threads), "{width} columns, {threads} threads, {optimizer:?}");
                let last = states.iter().all(|state| state[(ROWS - 1) * width..].iter().all(|&x| x == 0.0));
                assert_eq!(last, in_blocks || states.is_empty(), "states in blocks do not fill the session's memory");
            }
        }
    }
}
