//! Random programs as PTX, executed with every access checked: results, gradients and updates are those of the oracle.
//!
//! `HGNN_RANDOM_CASES` and `HGNN_RANDOM_SEED` choose other programs than those of every run; a failure names the seed.

#[path = "../../cpu/tests/common/mod.rs"]
mod common;

use common::Case;
use hgnnc_cpu::thread_pool;
use hgnnc_cuda::{DeviceEngine, testing};
use hgnnc_interp::Tensor;
use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_ir::dataflow::{Init, ParamDecl};
use hgnnc_ir::*;
use hgnnc_kernel_ir::kernel::{Pieces, Program};
use hgnnc_passes::{Optimizer, OptimizerOptions, PassCx, PassManager};
use hgnnc_ptx::{Precision, PtxCompiler, Target};

#[test]
fn random_programs_agree_as_ptx() {
    for seed in seeds(60) {
        let (flow, bindings) = random_program(seed);
        common::case_of(flow, bindings).check_device(&format!("seed {seed}"), 2e-5);
    }
}

/// As written, optimised, and with rows of active vertices.
#[test]
fn training_programs_agree_as_ptx() {
    for seed in seeds(20) {
        let (written, bindings) = common::training_program(seed);
        let values = hgnnc_interp::run(&written, &bindings).expect("the bindings fit");
        for sizes in [None, Some(common::few_endpoints(&written))] {
            let mut flow = written.clone();
            PassManager::default().run_joint(&mut flow, &mut PassCx::new(sizes.clone()), || None);
            for (which, flow) in [("as written", &written), ("optimised", &flow)] {
                let what = format!("seed {seed}, {which}, sizes {}", sizes.is_some());
                let case = common::case_of(flow.clone(), bindings.clone());
                let program = case.gpu_program();
                // Unsplit rows, and rows of four edges split.
                let pieces = Some(Pieces { least: 1, most: usize::MAX });
                let whole = [Target::SM_80, common::IN_LOOPS].map(|target| (program.clone(), target));
                for (program, target) in whole.into_iter().chain([(program.with_pieces(pieces), Target::SM_80)]) {
                    let found = case.on_device_for(&what, &program, target);
                    for output in &written.outputs {
                        let name = common::name_of(&written, &output.kind);
                        // A gradient that became zero may be left out.
                        let Some(numbers) = found.get(&name) else { continue };
                        let exact = &values[output.value].data;
                        common::close(&format!("{what}: {name}"), numbers, exact, 2e-4, &|| program.to_string());
                    }
                }
            }
        }
    }
}

/// Destination 1 and source 2 are hubs with this many edges; other vertices have at most three.
fn hubs(edges: u32) -> Vec<(u32, u32)> {
    let to_hub = (0..edges).map(|e| (e % 37, 1));
    let from_hub = (0..edges).map(|e| (2, 3 + e % 43));
    let others = (0..40).map(|e| (3 + e % 29, 2 + e % 17));
    to_hub.chain(from_hub).chain(others).collect()
}

const SOURCES: Space = Space::Vertices(VertexType(0));
const DESTINATIONS: Space = Space::Vertices(VertexType(1));
const G: Graph = Graph(0);

/// Sums, maxima, minima and log-sum-exps over in-edges and out-edges of vertex values; a stored edge value; and totals.
fn reductions(edges: Vec<(u32, u32)>, dims: &[usize]) -> Case {
    let mut case = Case::new(&[40, 50], &[(0, 1, edges)]);
    let (x, y) = (case.random(SOURCES, dims), case.random(DESTINATIONS, dims));
    // With a weight, it is recomputed in each run.
    let w = case.weight(dims);
    let x = case.flow.binary(BinaryOp::Mul, x, w);
    let (x, y) = (case.flow.add(Op::GatherSrc(G), &[x]), case.flow.add(Op::GatherDst(G), &[y]));
    let both = case.flow.binary(BinaryOp::Mul, x, y);
    case.result(both);
    for direction in [Direction::In, Direction::Out] {
        for reduce in [Reduce::Sum, Reduce::Max, Reduce::Min, Reduce::Lse] {
            let rows = case.flow.segment(G, direction, reduce, both);
            case.result(rows);
            let total = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[rows]);
            case.result(total);
        }
    }
    let total = case.flow.add(Op::ReduceSpace(Reduce::Max), &[both]);
    case.result(total);
    case
}

/// Multi-head attention, and its gradients with respect to all inputs.
fn attention(edges: Vec<(u32, u32)>, heads: usize, inner: usize) -> Case {
    let mut case = Case::new(&[40, 50], &[(0, 1, edges)]);
    let x = case.random(SOURCES, &[5]);
    let w = case.weight(&[5, heads * inner]);
    let h = case.flow.add(Op::MatMul { batch: 0 }, &[x, w]);
    let h = case.flow.add(Op::Reshape(vec![Dim::Fixed(heads), Dim::Fixed(inner)]), &[h]);
    let a = case.weight(&[heads, inner]);
    let scores = case.flow.add(Op::MatMul { batch: 1 }, &[h, a]);
    let far = case.flow.add(Op::GatherSrc(G), &[scores]);
    let own = case.random(DESTINATIONS, &[heads]);
    let own = case.flow.add(Op::GatherDst(G), &[own]);
    let score = case.flow.binary(BinaryOp::Add, far, own);
    let score = case.flow.unary(UnaryOp::LeakyRelu(0.2), score);
    let lse = case.flow.segment(G, Direction::In, Reduce::Lse, score);
    let at = case.flow.add(Op::GatherDst(G), &[lse]);
    let shifted = case.flow.binary(BinaryOp::Sub, score, at);
    let weight = case.flow.unary(UnaryOp::Exp, shifted);
    let far = case.flow.add(Op::GatherSrc(G), &[h]);
    let message = case.flow.binary(BinaryOp::Mul, weight, far);
    let z = case.flow.segment(G, Direction::In, Reduce::Sum, message);
    let z = case.flow.unary(UnaryOp::Tanh, z);
    case.result(z);
    let square = case.flow.binary(BinaryOp::Mul, z, z);
    let loss = case.flow.reduce_trailing(Reduce::Sum, 2, square);
    let loss = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[loss]);
    let wrt: Vec<Param> = (0..case.params.len()).map(Param::new).collect();
    let gradients = hgnnc_passes::differentiate(&mut case.flow, loss, &wrt);
    assert_eq!(gradients.len(), wrt.len(), "everything has a gradient");
    gradients.into_iter().for_each(|(_, gradient)| case.result(gradient));
    case
}

/// Compares a program with split rows with the oracle, and bit for bit with blocks in reverse order. Returns its
/// entries.
fn check_cut(what: &str, case: &Case, program: &Program, tolerance: f64) -> Vec<String> {
    let exact = hgnnc_interp::run(&case.flow, &case.bindings).expect("the bindings fit");
    let (found, entries) = case.executed_on(what, program, testing::device(), Target::SM_80);
    assert!(entries.iter().any(|entry| entry.ends_with("_long1")), "{what}: rows are cut: {entries:?}");
    for output in &case.flow.outputs {
        let name = common::name_of(&case.flow, &output.kind);
        let exact = &exact[output.value].data;
        common::close(&format!("{what}: {name}"), &found[&name], exact, tolerance, &|| program.to_string());
    }
    let (reversed, _) = case.executed_on(what, program, testing::reversed_device(), Target::SM_80);
    let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (name, numbers) in &found {
        assert_eq!(bits(numbers), bits(&reversed[name]), "{what}: {name}, blocks in reverse order");
    }
    entries
}

/// Pieces of 16 edges, of rows of 64 and more; the last piece of a row is shorter.
#[test]
fn hubs_are_cut_into_pieces() {
    let pieces = Some(Pieces { least: 16, most: usize::MAX });
    for dims in [&[][..], &[3], &[8, 8], &[129]] {
        let case = reductions(hubs(300), dims);
        check_cut(&format!("reductions of {dims:?}"), &case, &case.gpu_program().with_pieces(pieces), 1e-5);
    }
    for (heads, inner) in [(1, 1), (8, 8), (3, 5), (2, 32)] {
        let case = attention(hubs(300), heads, inner);
        for (passes, program) in [case.gpu_program(), case.gpu_program_in_passes()].into_iter().enumerate() {
            let what = format!("{heads} heads of {inner}");
            let entries = check_cut(&what, &case, &program.with_pieces(pieces), 1e-4);
            // A second pass over the pieces is an entry of its own.
            let second = entries.iter().any(|entry| entry.ends_with("_long2"));
            assert!(second || passes == 0, "{what}: softmaxes take several passes: {entries:?}");
        }
    }
}

/// Code with rows in memory, and rows with more edges than are summed at once.
#[test]
fn rows_in_loops_may_have_many_edges() {
    for dims in [&[][..], &[3], &[8, 8], &[300]] {
        let case = reductions(hubs(300), dims);
        let program = case.gpu_program();
        check_on(common::IN_LOOPS, &format!("reductions of {dims:?}"), &case, &program, 1e-5);
    }
    for (heads, inner) in [(1, 1), (8, 8), (3, 5), (270, 2)] {
        let case = attention(hubs(300), heads, inner);
        for program in [case.gpu_program(), case.gpu_program_in_passes()] {
            check_on(common::IN_LOOPS, &format!("{heads} heads of {inner}"), &case, &program, 1e-4);
        }
    }
}

/// Compares a program for a target with the oracle.
fn check_on(target: Target, what: &str, case: &Case, program: &Program, tolerance: f64) {
    let exact = hgnnc_interp::run(&case.flow, &case.bindings).expect("the bindings fit");
    let found = case.on_device_for(what, program, target);
    for output in &case.flow.outputs {
        let name = common::name_of(&case.flow, &output.kind);
        let exact = &exact[output.value].data;
        common::close(&format!("{what}: {name}"), &found[&name], exact, tolerance, &|| program.to_string());
    }
}

/// A value of a row that replaces one that its edges read is stored behind the loop over them,
/// for rows without edges, too.
#[test]
fn rows_without_edges_store_what_waits_for_edges() {
    let (flow, bindings) = random_program(1_000_066);
    common::case_of(flow, bindings).check_device("seed 1000066", 2e-5);
}

/// A row value that aliases one read after a later pass over the edges is stored after that read, although the reader
/// comes first in the kernel.
#[test]
fn stores_in_place_wait_for_readers_behind_later_passes() {
    let edges = vec![(0, 0), (1, 0), (2, 1), (1, 1), (0, 1), (3, 3), (2, 3)];
    let mut case = Case::new(&[4], &[(0, 0, edges)]);
    let x = case.random(SOURCES, &[3]);
    let w = case.weight(&[3]);
    let x = case.flow.binary(BinaryOp::Mul, x, w);
    let h = case.flow.unary(UnaryOp::Tanh, x);
    // Only own rows of it are read below, so its memory is free for a result.
    let old = case.flow.unary(UnaryOp::Exp, x);
    let far = case.flow.add(Op::GatherSrc(G), &[h]);
    let first = case.flow.segment(G, Direction::In, Reduce::Sum, far);
    let own = case.flow.add(Op::GatherDst(G), &[first]);
    let product = case.flow.binary(BinaryOp::Mul, far, own);
    let second = case.flow.segment(G, Direction::In, Reduce::Sum, product);
    let weighted = case.flow.binary(BinaryOp::Mul, second, old);
    let total = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[weighted]);
    case.result(total);
    let new = case.flow.unary(UnaryOp::Tanh, first);
    case.result(new);
    let program = case.gpu_program();
    let last = program.kernels().last().expect("the program has kernels");
    let aliased = last.writes().iter().any(|&buffer| program.overwritten(buffer).is_some());
    assert!(
        aliased && program.kernels().count() == 2,
        "the new rows alias the old ones in the last kernel:\n{program}"
    );
    case.check_device("in place", 2e-5);
}

/// Rows with more elements than 32 lanes hold in registers are computed in loops automatically; others are not.
#[test]
fn wide_rows_are_computed_in_loops() {
    for (heads, inner, memory) in [(4, 250, false), (4, 300, true), (3, 1000, true)] {
        let case = attention(hubs(5), heads, inner);
        let program = case.gpu_program();
        check_on(Target::SM_80, &format!("{heads} heads of {inner}"), &case, &program, 1e-4);
        let engine = DeviceEngine::new(
            &[&program],
            case.data.clone(),
            testing::device(),
            (&PtxCompiler, Target::SM_80),
            thread_pool(1).expect("a thread"),
        );
        let engine = engine.expect("it fits");
        let in_loops = engine.entries(0).iter().flat_map(|entry| &entry.kernels).any(|kernel| kernel.row_memory > 0);
        assert_eq!(in_loops, memory, "{heads} heads of {inner}");
    }
}

/// Partial results of pieces are part of the memory plan.
#[test]
fn parts_of_pieces_are_planned() {
    let case = attention(hubs(300), 8, 8);
    let whole = case.gpu_program();
    let cut = whole.clone().with_pieces(Some(Pieces { least: 16, most: usize::MAX }));
    let planned = |program: &Program| {
        let (device, pool) = (testing::device(), thread_pool(1).expect("a thread"));
        let engine = DeviceEngine::new(&[program], case.data.clone(), device, (&PtxCompiler, Target::SM_80), pool);
        engine.expect("it fits").memory()
    };
    let [whole, planned] = [&whole, &cut].map(planned);
    // Row 1 has 19 pieces, each with 64 sums, 8 sums of exponentials and 8 largest scores.
    assert!(planned.partials >= 4 * 19 * 80 && planned.partials > whole.partials, "{planned:?}, {whole:?}");
    assert!(planned.data > whole.data, "pieces are listed: {planned:?}, {whole:?}");
}

/// Shorter rows get blocks of their own where even those are shorter than pieces; without split rows the program has
/// the entries that it has without pieces.
#[test]
fn only_very_long_rows_are_cut() {
    let entries = |edges: u32| {
        let case = attention(hubs(edges), 8, 8);
        case.executed_on("a program", &case.gpu_program(), testing::device(), Target::SM_80).1
    };
    let without: Vec<String> = entries(3900);
    assert!(without.iter().all(|entry| !entry.contains("long")), "{without:?}");
    assert_eq!(without, entries(20));
}

/// Rows with the default minimum degree of split rows.
#[test]
fn rows_of_thousands_of_edges_are_cut() {
    let case = attention(hubs(5003), 8, 8);
    check_cut("5003 edges", &case, &case.gpu_program(), 1e-4);
    let case = reductions(hubs(4200), &[2, 4]);
    check_cut("4200 edges", &case, &case.gpu_program(), 1e-4);
}

/// Weights of the members that are one parameter, and what comes before their product, with momentum.
#[test]
fn stacked_weights_are_trained_as_ptx() {
    let (mut case, pairs, members) = common::stack_of(&[30, 0, 700, 70]);
    let (k, n) = (6, 8);
    let x = case.random(pairs, &[k]);
    let scale = case.weight(&[k]);
    let x = case.flow.binary(BinaryOp::Mul, x, scale);
    // The entries have the initial values, and no operation reads them.
    let mut entries = vec![];
    let dims = [Dim::Fixed(k), Dim::Fixed(n)];
    let init = Init::Constant(0.0);
    for member in 0..4 {
        let decl = ParamDecl::new(format!("w.{member}"), dims.to_vec(), init, false);
        let entry = case.flow.declare_param(ParamDecl { of: Some(Graph(member)), ..decl });
        let numbers = common::numbers(700 + u64::from(member), k * n);
        let tensor = Tensor::new(1, k * n, numbers.iter().map(|&x| f64::from(x)).collect());
        case.bindings.params.insert(entry, tensor);
        case.params.push(numbers);
        entries.push(entry);
    }
    let dims = [&[Dim::Count(case.flow.graphs[members.index()].dst)], &dims[..]].concat();
    let stack = case.flow.declare_param(ParamDecl { entries, ..ParamDecl::new("w".into(), dims, init, false) });
    let w = case.flow.add(Op::Param(stack), &[]);
    let w = case.flow.add(Op::Rows, &[w]);
    let y = case.flow.add(Op::Grouped { form: ProductForm::MatMul, batch: 0, members }, &[x, w]);
    let z = case.flow.unary(UnaryOp::Tanh, y);
    let loss = case.flow.binary(BinaryOp::Mul, z, z);
    let loss = case.flow.reduce_trailing(Reduce::Sum, 1, loss);
    let loss = case.flow.add(Op::ReduceSpace(Reduce::Sum), &[loss]);
    let gradients = hgnnc_passes::differentiate(&mut case.flow, loss, &[Param::new(0), stack]);
    assert_eq!(gradients.len(), 2, "both have a gradient");
    gradients.iter().for_each(|(_, gradient)| case.result(*gradient));
    let optimizer = Optimizer::Sgd { lr: 0.01, momentum: 0.9, nesterov: false, weight_decay: 0.0 };
    hgnnc_passes::update(&mut case.flow, &gradients, &OptimizerOptions::new(optimizer));
    verify(&case.flow).expect("the program is well-formed");
    let program = case.gpu_program();
    let exact = hgnnc_interp::run(&case.flow, &case.bindings).expect("the bindings fit");
    let found = case.on_device("stacked weights", &program);
    for output in &case.flow.outputs {
        let name = common::name_of(&case.flow, &output.kind);
        let exact = &exact[output.value].data;
        common::close(&name, &found[&name], exact, 1e-5, &|| program.to_string());
    }
}

#[test]
fn grouped_products_agree_as_ptx() {
    // Members without rows, first, last and one after another; tiles that are full, and one row more.
    let few: &[u32] = &[0, 5, 64, 0, 0, 65, 1, 0];
    // More members than a warp compares in one step, and than in two.
    let many: Vec<u32> = (0..70).map(|member| member % 4).collect();
    let very_many: Vec<u32> = (0..1100).map(|member| u32::from(member % 3 == 0)).collect();
    // Sums of outer products with one part of 512 rows, and with several, which do not begin with a part.
    let long: &[u32] = &[3, 1300, 0, 512, 513, 2, 1024, 7];
    for (rows, batch, k, n) in [
        (few, 1, 24, 12),
        (few, 3, 5, 7),
        (few, 2, 12, 70),
        (&many, 1, 8, 6),
        (&very_many, 1, 4, 3),
        (long, 2, 20, 16),
        (&[0, 1], 1, 4, 4),
        (&[700], 1, 4, 4),
    ] {
        let what = format!("{} rows of {} members, {batch} by {k} by {n}", rows.iter().sum::<u32>(), rows.len());
        let case = common::grouped_products(rows, batch, k, n);
        let exact = hgnnc_interp::run(&case.flow, &case.bindings).expect("the bindings fit");
        let program = case.gpu_program();
        let mut interleaved = program.clone();
        interleaved.launches.iter_mut().for_each(|launch| launch.interleaved = launch.kernels.len() / 2);
        let run = |program: &Program, device, precision| {
            case.executed_on(&what, program, device, Target::SM_80.with_precision(precision)).0
        };
        let found = run(&program, testing::device(), Precision::Tf32x3);
        for found in [&found, &run(&interleaved, testing::device(), Precision::F32)] {
            for output in &case.flow.outputs {
                let name = common::name_of(&case.flow, &output.kind);
                let exact = &exact[output.value].data;
                common::close(&format!("{what}: {name}"), &found[&name], exact, 2e-6, &|| program.to_string());
            }
        }
        assert_eq!(
            found,
            run(&program, testing::reversed_device(), Precision::Tf32x3),
            "{what}, blocks in reverse order"
        );
    }
}
