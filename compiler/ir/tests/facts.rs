//! Facts that other crates rely on: widths, sizes, functions of elements, random numbers.

use hgnnc_ir::dataflow::{GraphDecl, Matrix, PatternDecl};
use hgnnc_ir::elementwise::{binary, unary};
use hgnnc_ir::random::{bits, mask_element, mask_key, normal, uniform};
use hgnnc_ir::sizes::{Endpoints, SizeInfo};
use hgnnc_ir::width::Width;
use hgnnc_ir::{BinaryOp, Dataflow, Dim, Direction, Graph, Pattern, UnaryOp, VertexType};

#[test]
fn quotients_hold_for_all_counts() {
    let (a, b) = (VertexType::new(0), VertexType::new(1));
    let volume = Width::of(&[Dim::Count(b), Dim::Fixed(6), Dim::Count(a)]);
    assert_eq!(volume.eval(&[5, 7]), 210);
    assert_eq!(volume.counts(), [a, b]);
    let rest = volume.divided_by(&Width::count(a)).expect("a factor");
    assert_eq!(rest, Width::count(b).times(&Width::fixed(6)));
    assert_eq!(rest.divided_by(&Width::count(a)), None);
    assert_eq!(rest.divided_by(&Width::fixed(4)), None);
    assert_eq!(Width::fixed(0).divided_by(&Width::fixed(0)), Some(Width::fixed(0)));
    assert_eq!(Width::fixed(3).divided_by(&Width::fixed(0)), None);
    assert!(Width::fixed(3).divided_by(&Width::fixed(3)).is_some_and(|w| w.is_one()));
}

#[test]
fn what_is_not_known_is_bounded() {
    let (a, b) = (VertexType::new(0), VertexType::new(1));
    let graph = GraphDecl::new("g".into(), a, b, vec![]);
    let pattern = PatternDecl { vertex: a, columns: 4, matrix: Matrix::Features };
    let tables = Dataflow { graphs: vec![graph].into(), patterns: vec![pattern].into(), ..Dataflow::new("d") };
    let mut sizes = SizeInfo { vertices: vec![10, 3], edges: vec![6], ..SizeInfo::default() };
    let (g, p) = (Graph::new(0), Pattern::new(0));
    assert_eq!(sizes.others(&tables, g, Direction::In), 6.0, "no more sources than edges");
    assert_eq!(sizes.others(&tables, g, Direction::Out), 3.0);
    assert_eq!((sizes.stored(&tables, p), sizes.other_lines(&tables, p, Direction::In)), (40.0, 4.0));
    sizes.ends = vec![Endpoints { sources: 5, destinations: 2, max_out: 2, max_in: 4 }];
    (sizes.stored, sizes.columns) = (vec![7], vec![2]);
    assert_eq!(sizes.others(&tables, g, Direction::In), 5.0);
    assert_eq!(sizes.others(&tables, g, Direction::Out), 2.0);
    assert_eq!((sizes.stored(&tables, p), sizes.other_lines(&tables, p, Direction::In)), (7.0, 2.0));
    assert_eq!(sizes.other_lines(&tables, p, Direction::Out), 7.0, "no more rows than stored elements");
    assert_eq!(sizes.eval(&Width::count(a).times(&Width::fixed(3))), 30.0);
}

#[test]
fn zeros_are_kept_as_the_facts_say() {
    for f in UnaryOp::PLAIN.into_iter().chain([UnaryOp::LeakyRelu(0.2)]) {
        assert_eq!(unary(f, 0.0) == 0.0, f.preserves_zero(), "{}", f.name());
    }
    for f in BinaryOp::ALL {
        assert_eq!(binary(f, 0.0, 0.0) == 0.0, f.zero_with_zero(), "{}", f.name());
    }
}

#[test]
fn masks_keep_their_share_and_differ_between_streams_and_steps() {
    for rate in [0.0, 0.1, 0.5, 0.9] {
        let key = mask_key(7, 3, 1);
        let kept = (0..100_000).filter(|&i| mask_element(key, i, rate) > 0.0).count() as f64;
        assert!((kept / 1e5 - (1.0 - rate)).abs() < 0.01, "rate {rate}: kept {kept}");
    }
    let drawn = |seed, step, stream| (0..64).map(|i| bits(mask_key(seed, step, stream), i)).collect::<Vec<_>>();
    assert_ne!(drawn(0, 0, 0), drawn(0, 0, 1));
    assert_ne!(drawn(0, 0, 0), drawn(0, 1, 0));
    assert_ne!(drawn(0, 0, 0), drawn(1, 0, 0));
}

#[test]
fn uniform_and_normal_have_their_moments() {
    let n = 200_000u64;
    let mean = |f: &dyn Fn(u64) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
    assert!((mean(&|i| uniform(1, i)) - 0.5).abs() < 0.005);
    assert!(mean(&|i| normal(1, i)).abs() < 0.01);
    assert!((mean(&|i| normal(1, i).powi(2)) - 1.0).abs() < 0.02);
}
