//! The training loop does not allocate: all memory of an epoch is allocated in the first ones. A separate process
//! without a test harness, since the counting allocator is global.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hgnnc_ir::random::{mask_key, uniform};
use hgnnc_machine::CodeMode;
use hgnnc_model_tests::engine::bound_data;
use hgnnc_model_tests::{Case, World, case, compile};
use hgnnc_train::TrainOptions;

struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is forwarded to the system allocator; only a counter is kept.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const EPOCHS: usize = 40;
/// Epochs in which each thread meets its first task.
const FIRST: usize = 4;

/// Adam, a schedule, clipping, and two criteria, one of which is the metric that counts most.
const TRAIN: &str = "
train M {
    loss cross_entropy(y, Paper.topic)
    optimizer adam(lr: 0.001, weight_decay: 0.001)
    schedule cosine(epochs: 200)
    clip norm(1.0)
    epochs 40
    select train.macro_f1
    stop when train.loss has not improved for 35 epochs
    metrics micro_f1, macro_f1
}
";

/// Enough vertices and edges that every kind of step has several tasks.
fn large_world() -> World {
    let counts = [("Paper", 2500), ("Author", 2000), ("Venue", 40)];
    let edges = |salt: u64, src: usize, dst: usize, count: u64| -> Vec<(u32, u32)> {
        let key = mask_key(salt, 0, 0);
        let below = |i: u64, n: usize| ((uniform(key, i) * n as f64) as usize).min(n - 1) as u32;
        (0..count).map(|e| (below(2 * e, counts[src].1), below(2 * e + 1, counts[dst].1))).collect()
    };
    let relations = [
        ("cites", edges(1, 0, 0, 9000)),
        ("writes", edges(2, 1, 0, 7000)),
        ("reviews", edges(3, 1, 0, 300)),
        ("appears_in", edges(4, 0, 2, 2500)),
    ];
    let relations: Vec<(&str, &[(u32, u32)])> = relations.iter().map(|(name, edges)| (*name, &edges[..])).collect();
    World::new(7, &counts, &relations)
}

/// Allocations of each epoch, from the end of the one before to its end.
fn allocations(case: &Case, world: &World, threads: usize, code: CodeMode) -> Vec<u64> {
    let compiled = compile(&case.trained_by(TRAIN));
    let data = bound_data(compiled.training(), &compiled.bind(world));
    let options = TrainOptions { threads, code, ..TrainOptions::default() };
    let mut trainer = hgnnc_model_tests::engine::trainer(compiled.optimised(world), data, options)
        .unwrap_or_else(|error| panic!("{error}"));
    let mut counted = Vec::with_capacity(EPOCHS);
    let ended = trainer.run(&AtomicBool::new(false), &mut |_| counted.push(COUNT.load(Ordering::Relaxed)));
    ended.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    assert_eq!(counted.len(), EPOCHS, "{}: no epoch is left out", case.name);
    counted.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn main() {
    let world = large_world();
    // Attention and metapaths; several relations and two layers; sparse and one-hot features with updates of some rows.
    for name in ["han", "rgcn", "rgat", "hgt", "rgcn_sparse"] {
        let case = case(name);
        assert!(case.body.contains("dropout"), "{name} draws masks");
        for (threads, code) in [(1, CodeMode::Auto), (2, CodeMode::Auto), (3, CodeMode::Native)] {
            let counted = allocations(&case, &world, threads, code);
            let late = &counted[FIRST..];
            assert!(late.iter().all(|&count| count == 0), "{name}, {threads} threads, {code:?}: {counted:?}");
        }
    }
}
