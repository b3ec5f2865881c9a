//! Small programs: snapshots of their code, and checks of their results.

// Generated code is called with raw array addresses.
#![allow(unsafe_code)]

use hgnnc_codegen_cpu::Compiler;
use hgnnc_ir::ops::{BinaryOp, Reduce, UnaryOp};
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernel_ir::loops::Function;
use hgnnc_kernel_ir::loops::function::{Array, Instr, Row, Shape, Source};

type Op = KernelOp<Source, usize>;

const fn array(width: usize, row: Row, changes: bool) -> Array {
    Array { width, row, changes }
}

fn op(op: Op, width: usize, result: Option<usize>) -> Instr {
    Instr { op, width, result }
}

fn binary(f: BinaryOp, a: Source, b: Source) -> Op {
    KernelOp::Binary(f, a, b)
}

const A: fn(usize) -> Source = Source::Array;
const V: fn(usize) -> Source = Source::Value;

/// A program as text with its Cranelift IR before optimization. The calling convention is the host's.
fn listing(program: &Function) -> String {
    let compiler = Compiler::host(false).expect("a processor that Cranelift knows");
    let function = compiler.function(program).expect("the program is covered").display().to_string();
    let host = ["system_v", "windows_fastcall", "apple_aarch64"];
    let function = host.iter().fold(function, |text, name| text.replace(&format!(") {name} {{"), ") {"));
    format!("{program}\n{function}")
}

/// A momentum step, `m ← 0.9 m + g`, `w ← w - 0.1 m`; in place with `changes`.
fn momentum(width: usize, changes: bool) -> Function {
    Function {
        shape: Shape::Items,
        arrays: vec![
            array(width, Row::Each, changes),
            array(1, Row::Same, false),
            array(width, Row::Each, false),
            array(width, Row::Each, changes),
            array(1, Row::Same, false),
        ],
        instrs: vec![
            op(binary(BinaryOp::Mul, A(0), A(1)), width, None),
            op(binary(BinaryOp::Add, V(0), A(2)), width, Some(0)),
            op(binary(BinaryOp::Mul, V(1), A(4)), width, None),
            op(binary(BinaryOp::Sub, A(3), V(2)), width, Some(1)),
        ],
        num_indices: 0,
        num_results: 2,
    }
}

/// Each row divided by the sum of its exponentials, so that the row is read twice.
fn normalized(width: usize, changes: bool) -> Function {
    Function {
        shape: Shape::Items,
        arrays: vec![array(width, Row::Each, changes)],
        instrs: vec![
            op(KernelOp::Unary(UnaryOp::Abs, A(0)), width, None),
            op(KernelOp::ReduceTrailing(Reduce::Sum, V(0)), 1, None),
            op(binary(BinaryOp::Div, A(0), V(1)), width, Some(0)),
        ],
        num_indices: 0,
        num_results: 1,
    }
}

#[test]
fn an_update_is_one_loop_over_elements() {
    insta::assert_snapshot!(listing(&momentum(64, false)));
}

#[test]
fn rows_with_different_widths_are_loops_over_items() {
    // The score of an edge, and the sum of scores over the edges of a row.
    let score = Function {
        shape: Shape::Segments,
        arrays: vec![array(2, Row::Picked(0), false), array(2, Row::Owner, false)],
        instrs: vec![
            op(binary(BinaryOp::Add, A(0), A(1)), 2, None),
            op(KernelOp::Select { a: V(0), positive: 1.0, otherwise: 0.25 }, 2, Some(0)),
            op(KernelOp::Segment(Reduce::Sum, V(1)), 2, Some(1)),
        ],
        num_indices: 1,
        num_results: 2,
    };
    insta::assert_snapshot!(listing(&score));
}

#[test]
fn loads_of_what_changes_stay_in_order() {
    let compiler = Compiler::host(false).expect("a processor that Cranelift knows");
    for (changes, free) in [(false, true), (true, false)] {
        let text = compiler.function(&normalized(8, changes)).expect("covered").display().to_string();
        // Loads of address tables are always readonly.
        let rows = text.lines().filter(|line| line.contains("load.f32x4"));
        assert!(rows.clone().count() > 0, "{text}");
        let readonly = rows.filter(|line| line.contains("readonly") || line.contains("can_move")).count();
        assert_eq!(readonly > 0, free, "{text}");
    }
}

/// Results of `arrays[i] = (first element, count)`: out of place, and in place for arrays that change.
fn run(program: &Function, mut arrays: Vec<Vec<f32>>, places: &[usize], rows: usize) -> Vec<Vec<f32>> {
    let compiler = Compiler::host(false).expect("a processor that Cranelift knows");
    let code = compiler.machine_code(&[program]).expect("the program is covered");
    let in_place = program.arrays.iter().any(|array| array.changes);
    let mut apart: Vec<Vec<f32>> = places.iter().map(|&place| vec![f32::NAN; arrays[place].len()]).collect();
    let addresses: Vec<*mut f32> = arrays.iter_mut().map(|array| array.as_mut_ptr()).collect();
    let results: Vec<*mut f32> = match in_place {
        true => places.iter().map(|&place| addresses[place]).collect(),
        false => apart.iter_mut().map(|result| result.as_mut_ptr()).collect(),
    };
    let addresses: Vec<*const f32> = addresses.into_iter().map(<*mut f32>::cast_const).collect();
    // SAFETY: each array has `rows` rows or the single uniform one; results are as large.
    unsafe { code.entries[0](addresses.as_ptr(), [].as_ptr(), results.as_ptr(), [].as_ptr(), rows) };
    if in_place { places.iter().map(|&place| std::mem::take(&mut arrays[place])).collect() } else { apart }
}

#[test]
fn results_in_the_place_of_operands_are_the_same() {
    let numbers = |salt: usize, len: usize| -> Vec<f32> {
        (0..len).map(|i| ((i * 37 + salt * 11) % 101) as f32 / 16.0 - 3.0).collect()
    };
    // Widths with and without remainder, unrolled and in loops; row counts with remainder.
    for width in [1, 3, 4, 8, 19, 64, 300] {
        for rows in [1, 5, 17] {
            let len = width * rows;
            let arrays = || vec![numbers(1, len), vec![0.9], numbers(2, len), numbers(3, len), vec![0.1]];
            let apart = run(&momentum(width, false), arrays(), &[0, 3], rows);
            assert_eq!(apart[0][len - 1], arrays()[0][len - 1] * 0.9 + arrays()[2][len - 1]);
            assert_eq!(apart, run(&momentum(width, true), arrays(), &[0, 3], rows), "{rows} rows of {width}");
            let rows_of = || vec![numbers(4, len)];
            let apart = run(&normalized(width, false), rows_of(), &[0], rows);
            let total: f32 = apart[0][..width].iter().map(|x| x.abs()).sum();
            assert!((total - 1.0).abs() < 1e-5, "{total}");
            assert_eq!(apart, run(&normalized(width, true), rows_of(), &[0], rows), "{rows} rows of {width}");
        }
    }
}

#[test]
fn what_other_items_read_does_not_change() {
    let compiler = Compiler::host(false).expect("a processor that Cranelift knows");
    for row in [Row::Same, Row::Picked(0)] {
        let mut program = momentum(4, true);
        program.arrays[0].row = row;
        program.num_indices = 1;
        let error = compiler.function(&program).expect_err("refused").to_string();
        assert!(error.contains("rows that other items read"), "{error}");
    }
}
