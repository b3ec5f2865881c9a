//! Bounds, computed by hand. The programs are those of the cases of lowering to kernels; 10 papers in all of them.

use std::path::Path;

use hgnnc_analysis::cost::{Kind, check_sizes, kernel_work, kernels, operation_work, operations, unfused_work};
use hgnnc_fusion::{explain, lower};
use hgnnc_interp::random_program::random_program;
use hgnnc_ir::{Dataflow, Param, Phase, Stage, Value, parse};
use hgnnc_kernel_ir::kernel::{self, Program};
use hgnnc_machine::{Bound, Gather, Machine, Work};
use hgnnc_passes::pipeline::FORWARD;
use hgnnc_passes::{Endpoints, Optimizer, OptimizerOptions, PassCx, SizeInfo, differentiate, update};

fn flow(case: &str) -> Dataflow {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../fusion/tests/cases/kernels/{case}.ir"));
    let text = std::fs::read_to_string(path).expect("a readable case");
    parse(text.split_once("=>").expect("`=>`").0).expect("text")
}

fn program(case: &str) -> Program {
    lower(&flow(case)).expect("kernels")
}

/// Arithmetic and memory of a kernel; see [`what_a_processor_spends`] for cycles.
fn work(program: &Program, number: usize, sizes: &SizeInfo) -> Work {
    counts(kernel_work(program, program.kernels().nth(number).expect("a kernel"), sizes))
}

fn counts(work: Work) -> Work {
    Work { cycles: 0.0, ..work }
}

fn endpoints(sources: u64, destinations: u64) -> Vec<Endpoints> {
    vec![Endpoints { sources, destinations, max_out: 9, max_in: 9 }]
}

/// Of stored elements.
fn ahead(reads: u32, distinct: u32, row_bytes: u32) -> Gather {
    Gather { ahead: true, ..gather(reads, distinct, row_bytes) }
}

fn gather(reads: u32, distinct: u32, row_bytes: u32) -> Gather {
    Gather { reads: reads.into(), distinct: distinct.into(), row_bytes: row_bytes.into(), ahead: false }
}

/// Papers, authors, 20 edges from 5 authors.
fn mean_sizes() -> SizeInfo {
    SizeInfo { vertices: vec![10, 6], edges: vec![20], ends: endpoints(5, 9), ..SizeInfo::default() }
}

/// 40 edges from 8 papers.
fn attention_sizes() -> SizeInfo {
    SizeInfo { vertices: vec![10], edges: vec![40], ends: endpoints(8, 10), ..SizeInfo::default() }
}

/// 12 stored elements in 4 of 5 columns.
fn sparse_sizes() -> SizeInfo {
    SizeInfo { vertices: vec![10], stored: vec![12], columns: vec![4], ..SizeInfo::default() }
}

#[test]
fn a_sum_of_gathered_rows() {
    // segment.sum of rows of 3 elements over 20 edges, a product with the count of each of 10 rows, one with a weight
    // of 3 x 2 elements, and relu.
    let found = work(&program("mean_aggregation"), 3, &mean_sizes());
    let expected = Work {
        products: 10.0 * 6.0,
        simple: 20.0 * 3.0 + 10.0 * 3.0 + 10.0 * 2.0,
        // Counts, 11 positions of rows, 20 ends of edges, and the weight.
        read: 4.0 * 10.0 + 8.0 * 11.0 + 4.0 * 20.0 + 4.0 * 6.0,
        written: 4.0 * 20.0,
        gathers: vec![gather(20, 5, 12)],
        ..Work::default()
    };
    assert_eq!(found, expected);
    assert_eq!((found.gathered(), found.footprint()), (240.0, 232.0 + 80.0 + 60.0));
}

#[test]
fn what_a_processor_spends() {
    let cycles = |name: &str, number, sizes: &SizeInfo| {
        let program = program(name);
        kernel_work(&program, program.kernels().nth(number).expect("a kernel"), sizes).cycles
    };
    let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
    // A kernel of 10 rows with 20 edges: each edge is found by its index and added to its row, in rows of 3 elements; a
    // product with the count of the row, one with a weight, and relu of 2 elements.
    let edges = 20.0 * (1.7 + 2.0) + 60.0 * 0.075;
    let rows = 10.0 * (55.0 + 42.0) + (30.0 + 20.0) * 0.075;
    close(cycles("mean_aggregation", 3, &mean_sizes()), 30e3 + edges + rows);
    // A dense product of 10 x 200 and 200 x 100.
    let sizes = SizeInfo { vertices: vec![10], ..SizeInfo::default() };
    close(cycles("dense_product", 1, &sizes), 30e3 + 0.01 * 200_000.0);
}

#[test]
fn a_dense_product() {
    let program = program("dense_product");
    let (x, w, y) = (10.0 * 200.0, 200.0 * 100.0, 10.0 * 100.0);
    let expected = Work { products: 10.0 * w, read: 4.0 * (x + w), written: 4.0 * y, ..Work::default() };
    let sizes = SizeInfo { vertices: vec![10], ..SizeInfo::default() };
    assert_eq!(work(&program, 1, &sizes), expected);
    let flow = flow("dense_product");
    assert_eq!(operation_work(&flow, Value(5), &sizes), Some((Kind::DM, expected)));
}

#[test]
fn what_runs_once_is_told_apart() {
    let machine = Machine::sheet("sm_80").expect("a sheet");
    let all = kernels(&program("mean_aggregation"), &mean_sizes(), &machine);
    let found: Vec<_> = all.iter().map(|k| (k.number, k.bound.once, k.bound.kind, k.bound.stage)).collect();
    assert_eq!(
        found,
        [
            (0, true, Kind::EW, Stage::FP),
            (1, true, Kind::TB, Stage::NA),
            (2, false, Kind::EW, Stage::FP),
            (3, false, Kind::TB, Stage::FP),
        ]
    );
    assert!(all.iter().all(|k| k.bound.phase == Phase::Forward && k.bound.prediction.bound == Bound::Launch));
}

#[test]
fn softmax_attention_in_one_kernel() {
    let found = work(&program("attention_forward"), 0, &attention_sizes());
    let expected = Work {
        // 40 edges of 6 columns.
        products: 240.0,
        // On 80 scores: an addition, leaky_relu's 2, the softmax's maximum, difference, sum and scaling, a product. On
        // the 20 numbers of the rows: two bounds and the addition of the lse; and elu on 60 elements.
        simple: 80.0 * (1.0 + 2.0 + 4.0 + 1.0) + 20.0 * 3.0 + 60.0,
        // On 80 scores: exp and the mask. On the rows: a reciprocal and a logarithm; and elu.
        special: 80.0 * 2.0 + 20.0 * 2.0 + 60.0,
        // One side of the scores, positions and ends.
        read: 4.0 * 20.0 + 8.0 * 11.0 + 4.0 * 40.0,
        // The sums and the log-sum-exps, which the kernel does not read again.
        written: 4.0 * (60.0 + 20.0),
        // The other side of the scores, and the rows: each once per edge, though two loops pass over the edges.
        gathers: vec![gather(40, 8, 24), gather(40, 8, 8)],
        ..Work::default()
    };
    assert_eq!(found, expected);
    assert_eq!(found.flops(), 480.0 + 760.0 + 260.0);
}

#[test]
fn softmax_attention_apart() {
    let program = program("attention_forward");
    let parts =
        unfused_work(&program, program.kernels().next().expect("a kernel"), &attention_sizes()).expect("edge values");
    let parts: Vec<Work> = parts.into_iter().map(counts).collect();
    // Ten instructions over edges, and those over rows.
    assert_eq!(parts.len(), 11, "{parts:#?}");
    let scores = Work {
        simple: 80.0,
        read: 4.0 * 20.0 + 8.0 * 11.0 + 4.0 * 40.0,
        written: 4.0 * 80.0,
        gathers: vec![gather(40, 8, 8)],
        ..Work::default()
    };
    assert_eq!(parts[0], scores);
    let leaky = Work { simple: 160.0, read: 320.0, written: 320.0, ..Work::default() };
    assert_eq!(parts[1], leaky, "an element-wise operation on edges knows no graph");
    // Maxima, totals and sums come in; bounded maxima, reciprocals and log-sum-exps go out, and what elu makes.
    let rows = Work {
        simple: 20.0 * 3.0 + 60.0,
        special: 20.0 * 2.0 + 60.0,
        read: 4.0 * (20.0 + 20.0 + 60.0),
        written: 4.0 * (20.0 + 20.0 + 20.0 + 60.0),
        ..Work::default()
    };
    assert_eq!(parts[10], rows);
    // The same arithmetic.
    let whole = work(&program, 0, &attention_sizes());
    let sum = |f: fn(&Work) -> f64| parts.iter().map(f).sum::<f64>();
    assert_eq!(
        [sum(|w| w.products), sum(|w| w.simple), sum(|w| w.special)],
        [whole.products, whole.simple, whole.special]
    );
    // Kernels whose edges carry nothing of their own have no unfused form.
    let mean = self::program("mean_aggregation");
    assert_eq!(unfused_work(&mean, mean.kernels().nth(3).expect("a kernel"), &mean_sizes()), None);
    let dense = self::program("dense_product");
    assert_eq!(unfused_work(&dense, dense.kernels().nth(1).expect("a kernel"), &attention_sizes()), None);
}

#[test]
fn a_sparse_projection_and_its_weight_gradient() {
    let program = program("sparse_projection");
    let forward = Work {
        products: 24.0,
        simple: 12.0 + 20.0,
        special: 12.0,
        // The elements, 11 positions, 12 columns.
        read: 4.0 * 12.0 + 8.0 * 11.0 + 4.0 * 12.0,
        written: 4.0 * 20.0,
        gathers: vec![ahead(12, 4, 8)],
        ..Work::default()
    };
    assert_eq!(work(&program, 0, &sparse_sizes()), forward);
    let backward = Work {
        products: 24.0,
        simple: 12.0,
        special: 12.0,
        // 6 positions of columns, 12 rows, and where the 12 elements are stored.
        read: 8.0 * 6.0 + 4.0 * 12.0 + 4.0 * 12.0,
        written: 4.0 * 10.0,
        // The elements of a column stand apart; 12 of them can meet all 10 rows.
        gathers: vec![ahead(12, 12, 4), ahead(12, 10, 8)],
        ..Work::default()
    };
    assert_eq!(work(&program, 1, &sparse_sizes()), backward);

    let flow = flow("sparse_projection");
    let (kind, alone) = operation_work(&flow, Value(4), &sparse_sizes()).expect("a product");
    assert_eq!((kind, alone.products, &alone.gathers[..]), (Kind::TB, 24.0, &[ahead(12, 4, 8)][..]));
    assert_eq!((alone.read, alone.written), (forward.read, 80.0));
}

#[test]
fn a_step_of_the_optimiser() {
    let sizes = SizeInfo { vertices: vec![10], ..SizeInfo::default() };
    let program = program("adam");
    let table = Work {
        // On 40 elements: a product, two additions and a division.
        simple: 3.0 * 40.0,
        special: 40.0,
        // The parameter, its state and the correction of this step. The new state is at hand.
        read: 4.0 * (40.0 + 40.0 + 1.0),
        written: 4.0 * (40.0 + 40.0),
        ..Work::default()
    };
    assert_eq!(work(&program, 2, &sizes), table);
    let small = work(&program, 0, &sizes);
    assert!(small.serial, "one row is the work of one core");
}

#[test]
fn operations_read_and_write_what_fusion_saves() {
    let (flow, sizes) = (flow("attention_forward"), attention_sizes());
    let alone = |value| operation_work(&flow, Value(value), &sizes);
    assert_eq!(alone(0), None, "a parameter is there");
    assert_eq!(alone(1), None, "rows are seen, not made");
    let rows = Work { read: 160.0, written: 960.0, gathers: vec![gather(40, 8, 24)], ..Work::default() };
    assert_eq!(alone(16), Some((Kind::DR, rows)));
    let add = Work { simple: 80.0, read: 640.0, written: 320.0, ..Work::default() };
    assert_eq!(alone(8), Some((Kind::EW, add)));
    let lse = Work { simple: 240.0, special: 80.0, read: 320.0 + 88.0, written: 80.0, ..Work::default() };
    assert_eq!(alone(10), Some((Kind::TB, lse)));
    let machine = Machine::sheet("sm_80").expect("a sheet");
    assert_eq!(operations(&flow, &sizes, &machine).len(), 14);
}

#[test]
fn what_limits_large_kernels() {
    let machine = Machine::sheet("sm_80").expect("a sheet");
    let text = "dataflow d { vertex A from \"a\" param x : f32[|A|, 4096] = uniform(1.0) param w : f32[4096, 4096] = \
                uniform(1.0) %0 = param x : f32[|A|, 4096] @FP %1 = rows %0 : f32[A; 4096] @FP \
                %2 = param w : f32[4096, 4096] @FP %3 = matmul %1, %2 : f32[A; 4096] @FP %4 = relu %3 : f32[A; 4096] @FP \
                result y = %4 }";
    let sizes = SizeInfo { vertices: vec![100_000], ..SizeInfo::default() };
    let all = kernels(&lower(&parse(text).expect("text")).expect("kernels"), &sizes, &machine);
    let (product, relu) = (&all[0].bound.prediction, &all[1].bound.prediction);
    assert_eq!(product.bound, Bound::Compute);
    let expected = 2.0 * 1e5 * 4096.0 * 4096.0 / 19.5e12 + 2.5e-6;
    assert!((product.seconds() / expected - 1.0).abs() < 1e-9, "{product:?}");
    // 1.6 GB in and out.
    assert_eq!(relu.bound, Bound::Memory(2));
    let expected = 2.0 * 4.0 * 1e5 * 4096.0 / 2.039e12 + 2.5e-6;
    assert!((relu.seconds() / expected - 1.0).abs() < 1e-9, "{relu:?}");
}

#[test]
fn sizes_that_bounds_need() {
    let tables = flow("sparse_projection");
    let error = check_sizes(&tables, &SizeInfo { stored: vec![], ..sparse_sizes() }).expect_err("none known");
    assert!(error.to_string().contains("`Paper`"), "{error}");
    assert_eq!(check_sizes(&tables, &sparse_sizes()), Ok(()));
}

#[test]
fn random_programs_have_finite_bounds() {
    let machine = Machine::sheet("sm_90").expect("a sheet");
    for seed in 0..100 {
        let (mut flow, bindings) = random_program(seed);
        let params: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
        let loss = flow.result("loss").expect("a loss");
        let gradients = differentiate(&mut flow, loss, &params);
        update(&mut flow, &gradients, &OptimizerOptions::new(Optimizer::sgd(0.1)));
        let sizes = SizeInfo {
            vertices: bindings.num_vertices.iter().map(|&n| n as u64).collect(),
            edges: bindings.edges.iter().map(|e| e.len() as u64).collect(),
            ..SizeInfo::default()
        };
        let program = lower(&flow).expect("kernels");
        let kernels = kernels(&program, &sizes, &machine);
        assert_eq!(kernels.len(), kernel::Program::kernels(&program).count());
        let operations = operations(&flow, &sizes, &machine);
        for bound in kernels.iter().map(|k| &k.bound).chain(operations.iter().map(|o| &o.bound)) {
            let seconds = bound.prediction.seconds();
            assert!(seconds.is_finite() && seconds >= machine.launch_s, "seed {seed}: {bound:?}");
            assert!(bound.work.footprint() >= 0.0 && bound.work.flops() >= 0.0, "seed {seed}: {bound:?}");
        }
    }
}

#[test]
fn explanations_of_kernels_compare_predicted_times() {
    let machine = Machine::sheet("sm_80").expect("a sheet");
    let (attention, sizes) = (program("attention_forward"), attention_sizes());
    let lines = explain(&attention, Some((&sizes, &machine)));
    // One launch against eleven.
    assert!(lines[0].contains("; predicted: fused 0.0025 ms < unfused 0.0275 ms (saves 0.00"), "{lines:#?}");
    assert!(!explain(&attention, None)[0].contains("predicted"));
    // All edge values are stored: there is nothing to compare.
    let lines = explain(&program("mean_aggregation"), Some((&mean_sizes(), &machine)));
    assert!(lines.len() == 2 && !lines[1].contains("predicted"), "{lines:#?}");
}

#[test]
fn explanations_of_orders_compare_predicted_times() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../passes/tests/cases");
    for pass in FORWARD.iter().filter(|p| ["move_to_vertices", "contract_scores", "reassociate"].contains(&p.name)) {
        let mut compared = 0;
        for entry in std::fs::read_dir(folder.join(pass.name)).expect("cases") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a readable case");
            let mut flow = parse(text.split_once("=>").expect("`=>`").0).expect("text");
            let sizes = SizeInfo {
                vertices: vec![1000; flow.vertex_types.len()],
                edges: vec![100_000; flow.graphs.len()],
                ..SizeInfo::default()
            };
            let plain = {
                let (mut flow, mut cx) = (flow.clone(), PassCx::new(Some(sizes.clone())));
                (pass.run)(&mut flow, &mut cx);
                (flow, cx.explain)
            };
            let mut cx = PassCx { machine: Machine::sheet("sm_90"), ..PassCx::new(Some(sizes)) };
            (pass.run)(&mut flow, &mut cx);
            // Times are told, and decide nothing.
            assert_eq!(flow, plain.0);
            let counts = |line: &String| line.split("; predicted: ").next().unwrap_or_default().to_string();
            assert_eq!(cx.explain.iter().map(counts).collect::<Vec<_>>(), plain.1);
            compared +=
                cx.explain.iter().filter(|line| line.contains("; predicted: ") && line.contains(" ms ")).count();
        }
        assert!(compared > 0, "{}", pass.name);
    }
}
