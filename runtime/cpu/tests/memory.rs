//! Memory does not grow over repeated runs of a program.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering};

use hgnnc_ir::*;
use hgnnc_machine::CodeMode;

use common::{Case, random_edges};

/// Counts the bytes that are allocated now.
struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call is passed on to the system's allocator; only a number is kept beside it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn two_hundred_runs_hold_no_more_memory_than_ten() {
    // Small products need no workspace, so the timing of a thread's first one does not matter.
    let allowed = 16 * 1024;
    for threads in [1, 3] {
        let mut engine = program().engine(threads, CodeMode::Auto);
        let mut run = |steps: std::ops::Range<u64>| {
            for step in steps {
                engine.run(0, 1, step, step, &mut Default::default());
            }
            LIVE.load(Ordering::Relaxed)
        };
        let early = run(1..11);
        let late = run(11..211);
        assert!(late - early <= allowed, "{threads} threads: {} bytes more after 200 runs", late - early);
    }
}

/// Dense products and a traversal.
fn program() -> Case {
    let (rows, graph) = (Space::Vertices(VertexType(0)), Graph(0));
    let mut case = Case::new(&[500], &[(0, 0, random_edges(3, 500, 500, 20_000, 2.0))]);
    let x = case.random(rows, &[32]);
    let w = case.weight(&[32, 16]);
    let h = case.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
    let e = case.flow.add(Op::GatherSrc(graph), &[h]);
    let edge = case.flow.unary(UnaryOp::Tanh, e);
    let z = case.flow.segment(graph, Direction::In, Reduce::Sum, edge);
    let back = case.flow.add(Op::Outer { batch: 0 }, &[x, z]);
    case.result(back);
    case
}
