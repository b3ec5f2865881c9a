//! Programs of mini-batches on several ranks against the program of one process: together the ranks compute its losses
//! and gradients.

use std::collections::BTreeSet;

use hgnnc_interp::random_program::seeds;
use hgnnc_interp::ranks::run_ranks;
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::batch::{BatchGraph, BatchLayout};
use hgnnc_ir::dataflow::{GraphDecl, ValueData};
use hgnnc_ir::random::shuffled_sources;
use hgnnc_ir::{
    Dataflow, EdgeShare, Graph, Op, Output, OutputKind, Param, Reduce, Space, UnaryOp, Value, VertexRows, VertexType,
    parse, verify,
};
use hgnnc_passes::pipeline::JOINT;
use hgnnc_passes::{
    Disabled, Endpoints, PassCx, PassManager, SizeInfo, Split, narrow_exchanges, place_batch, to_minibatch,
    try_differentiate,
};

use crate::minibatch::{Batch, bindings_of, of_one_type, with_shuffles};

const SEEDS: u64 = 400;

/// Appends a loss, the mean over the seeds of a nonlinear function of all outputs, and its gradients.
pub fn trained(flow: &mut Dataflow, target: VertexType) -> Option<()> {
    let rows: Vec<Value> = flow.outputs.drain(..).map(|output| output.value).collect();
    let scalars = rows.into_iter().map(|value| {
        let soft = flow.unary(UnaryOp::Tanh, value);
        match flow.ty(soft).dims.len() {
            0 => soft,
            axes => flow.reduce_trailing(Reduce::Sum, axes, soft),
        }
    });
    let scalars: Vec<Value> = scalars.collect();
    let sum = scalars.into_iter().reduce(|a, b| flow.binary(hgnnc_ir::BinaryOp::Add, a, b))?;
    let total = flow.add(Op::ReduceSpace(Reduce::Sum), &[sum]);
    let count = flow.add(Op::Count(Space::Vertices(target)), &[]);
    let loss = flow.binary(hgnnc_ir::BinaryOp::Div, total, count);
    let params: Vec<Param> = (0..flow.params.len()).map(Param::new).collect();
    let gradients = try_differentiate(flow, loss, &params).ok()?;
    flow.outputs.push(Output { kind: OutputKind::Result("loss".into()), value: loss });
    for (param, value) in gradients {
        flow.outputs.push(Output { kind: OutputKind::UpdateParam(param), value });
    }
    Some(())
}

/// The rank that owns a vertex, of `count`.
fn owner(vertex: u32, count: usize, ranks: usize) -> usize {
    (0..ranks).find(|rank| (vertex as usize) < count * (rank + 1) / ranks).expect("a vertex has an owner")
}

/// Completes the bindings of each rank by what only programs of ranks have. Where ranks share relations, `seeds` is the type
/// of the seeds, and edges to them stay at one rank of a replica, which has so many.
pub fn share(
    placed: &Dataflow,
    (layout, seeds, of_replica): (&BatchLayout, Option<VertexType>, usize),
    whole: &Bindings,
    batches: &[Batch],
    all: &mut [Bindings],
) {
    let ranks = all.len();
    let part = |rank: usize, count: usize| {
        let rank = rank % of_replica;
        count * rank / of_replica..count * (rank + 1) / of_replica
    };
    let in_batch = |vertex: VertexType, rank: usize| {
        let known = layout.vertices[vertex.index()];
        batches[rank].rows(known.vertex, known.hops).to_vec()
    };
    // The edges of shuffled vertices of a rank: the vertex that is taken, and the row that takes it.
    let shuffled = |graph: usize, rank: usize| -> Vec<(u32, u32)> {
        let Some(&BatchGraph::Shuffled { rows, permutations }) = layout.graphs.get(graph) else { return vec![] };
        let mut all: Vec<u32> = (0..ranks).flat_map(|rank| in_batch(rows, rank)).collect();
        all.sort_unstable();
        all.dedup();
        let of = layout.vertices[rows.index()].vertex;
        let drawn = shuffled_sources((whole.seed, whole.step), of, all.len(), permutations);
        let own = in_batch(rows, rank);
        let edges = (0..).zip(&own).flat_map(|(row, vertex)| {
            let place = all.binary_search(vertex).expect("it is one of all") * permutations as usize;
            let taken = &drawn[place..][..permutations as usize];
            taken.iter().map(|&source| (all[source as usize], row)).collect::<Vec<_>>()
        });
        edges.collect()
    };
    let sampled = |vertex: VertexType, rank: usize| match placed.vertex_types[vertex.index()].rows {
        VertexRows::Shuffled(_) => {
            let of_graph = |(graph, decl): (usize, &GraphDecl)| match decl.src == vertex {
                true => shuffled(graph, rank),
                false => vec![],
            };
            let edges = placed.graphs.iter().enumerate().flat_map(of_graph);
            edges.map(|(vertex, _)| vertex).collect::<BTreeSet<u32>>().into_iter().collect()
        }
        _ => in_batch(vertex, rank),
    };
    let rows_of = |vertex: VertexType, rank: usize| -> Vec<u32> {
        let owned = |of: VertexType| -> Vec<u32> {
            let count = whole.num_vertices[layout.vertices[placed.sampled_type(of).index()].vertex.index()];
            (0..ranks).flat_map(|other| sampled(of, other)).filter(|&v| owner(v, count, ranks) == rank).collect()
        };
        match placed.vertex_types[vertex.index()].rows {
            VertexRows::Owned(of) if Some(of) == seeds => {
                let all = sampled(of, rank);
                all[part(rank, all.len())].to_vec()
            }
            VertexRows::Copies(of) if Some(of) == seeds => {
                let all = sampled(of, rank);
                (0..of_replica).flat_map(|_| all[part(rank, all.len())].to_vec()).collect()
            }
            VertexRows::Owned(of) => {
                let mut distinct = owned(of);
                distinct.sort_unstable();
                distinct.dedup();
                distinct
            }
            VertexRows::Copies(of) => owned(of),
            VertexRows::Rank => vec![rank as u32],
            VertexRows::Replica if rank.is_multiple_of(of_replica) => vec![rank as u32],
            VertexRows::Replica => vec![],
            VertexRows::Mirrors(..) => (0..ranks as u32).collect(),
            _ => sampled(vertex, rank),
        }
    };
    for (rank, bindings) in all.iter_mut().enumerate() {
        let is_of_stack = |rows| matches!(rows, VertexRows::Members(_) | VertexRows::Pairs(..));
        for index in (0..placed.vertex_types.len()).filter(|&index| !is_of_stack(placed.vertex_types[index].rows)) {
            let rows = rows_of(VertexType::new(index), rank);
            bindings.num_vertices.resize(index, 0);
            if bindings.num_vertices.len() == index {
                bindings.num_vertices.push(rows.len());
            }
            bindings.num_vertices[index] = rows.len();
            bindings.numbers.insert(Space::Vertices(VertexType::new(index)), rows);
        }
        for decl in placed.graphs.iter().filter(|decl| decl.share == EdgeShare::Copies) {
            let rows = |vertex: VertexType| &bindings.numbers[&Space::Vertices(vertex)];
            let row = |number: &u32| rows(decl.dst).iter().position(|own| own == number).expect("it is owned") as u32;
            let mut edges: Vec<(u32, u32)> =
                (0..).zip(rows(decl.src)).map(|(copy, number)| (copy, row(number))).collect();
            edges.sort_by_key(|&(copy, row)| (row, copy));
            bindings.edges.push(edges);
        }
        for (index, decl) in placed.graphs.iter().enumerate() {
            if let Some(BatchGraph::Shuffled { .. }) = layout.graphs.get(index) {
                let rows = &bindings.numbers[&Space::Vertices(decl.src)];
                let row = |vertex: u32| rows.iter().position(|&own| own == vertex).expect("it is taken") as u32;
                let mut edges: Vec<(u32, u32)> =
                    shuffled(index, rank).into_iter().map(|(vertex, dst)| (row(vertex), dst)).collect();
                edges.sort_by_key(|&(src, dst)| (dst, src));
                bindings.edges[index] = edges;
            }
        }
        for (index, decl) in placed.graphs.iter().enumerate().filter(|(_, decl)| Some(decl.dst) == seeds) {
            let own = part(rank, bindings.num_vertices[decl.dst.index()]);
            let stays = |row: u32| match layout.graphs.get(index) {
                Some(BatchGraph::Sampled { graph, .. }) => graph.index() % of_replica == rank % of_replica,
                Some(BatchGraph::First { .. }) => own.contains(&(row as usize)),
                _ => true,
            };
            let kept: Vec<bool> = bindings.edges[index].iter().map(|&(_, row)| stays(row)).collect();
            let mut keep = kept.iter();
            bindings.edges[index].retain(|_| *keep.next().expect("one for each edge"));
            for (input, tensor) in &mut bindings.inputs {
                if placed.inputs[input.index()].ty.space == Space::Edges(Graph::new(index)) {
                    let rows = (0..tensor.rows).filter(|&row| kept[row]);
                    let data: Vec<f64> = rows.flat_map(|row| tensor.row(row).to_vec()).collect();
                    *tensor = Tensor { rows: kept.iter().filter(|&&kept| kept).count(), data, ..tensor.clone() };
                }
            }
        }
        for &(param, known) in &layout.rows {
            let of =
                layout.vertices.iter().position(|other| *other == known).map(VertexType::new).expect("it is known");
            let owned = placed.vertex_types.iter().position(|decl| decl.rows == VertexRows::Owned(of));
            let Some(owned) = owned.map(VertexType::new) else { continue };
            let table = &whole.params[&param];
            let width = table.data.len() / whole.num_vertices[known.vertex.index()].max(1);
            let row = |&number: &u32| table.data[number as usize * width..][..width].to_vec();
            let data: Vec<f64> = bindings.numbers[&Space::Vertices(owned)].iter().flat_map(row).collect();
            bindings.params.insert(param, Tensor { rows: 1, width: data.len(), data });
        }
    }
}

#[test]
fn ranks_with_seeds_of_their_own_compute_the_gradients_of_one_process() {
    compute_the_gradients_of_one_process(Split::Seeds);
}

/// Vertices that are shuffled among those of all ranks: rows that others take, and their gradients.
#[test]
fn ranks_shuffle_the_vertices_of_one_process() {
    let mut exchanged = 0;
    compute_the_gradients((Split::Seeds, 4 * SEEDS, Exchanged::Rows), |target, flow, bindings| {
        let (flow, bindings) = with_shuffles(flow, bindings)?;
        let is_shuffled =
            |data: &ValueData| matches!(data.op, Op::GatherSrc(graph) if flow.graphs[graph.index()].shuffle.is_some());
        exchanged += flow.values.iter().filter(|data| is_shuffled(data)).count();
        verify(&flow).is_ok().then_some((target, flow, bindings))
    });
    assert!(exchanged > 60, "{exchanged} gathers of shuffled vertices");
}

/// Projections of learned rows are computed by the owners of the rows, and so are the gradients of the weights.
#[test]
fn ranks_exchange_projections_that_are_narrower_than_rows() {
    for (split, least) in [(Split::Seeds, [200, 4]), (Split::Relations, [80, 0]), (Split::Grid, [50, 0])] {
        let unchanged = |target, flow, bindings| Some((target, flow, bindings));
        let (compared, with_tables, with_first_rows) =
            compute_the_gradients((split, 32 * SEEDS, Exchanged::Projections), unchanged);
        let enough = with_tables >= least[0] && with_first_rows >= least[1];
        assert!(enough, "{split:?}: {compared} programs, {with_tables} tables, {with_first_rows} with first rows");
    }
}

#[test]
fn ranks_with_relations_of_their_own_compute_the_gradients_of_one_process() {
    compute_the_gradients_of_one_process(Split::Relations);
}

#[test]
fn replicas_with_relations_of_their_ranks_compute_the_gradients_of_one_process() {
    compute_the_gradients_of_one_process(Split::Grid);
}

fn compute_the_gradients_of_one_process(split: Split) {
    let unchanged = |target, flow, bindings| Some((target, flow, bindings));
    let (compared, with_tables, _) = compute_the_gradients((split, SEEDS, Exchanged::Rows), unchanged);
    assert!(compared > 60 && with_tables > 10, "{split:?}: {compared} programs, {with_tables} tables");
}

/// Rows that the ranks send of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exchanged {
    /// The rows of tables, as wide as they are.
    Rows,
    /// Projections of them, in programs where these are narrower.
    Projections,
}

/// Sizes of a program of mini-batches: there are far fewer vertices within fewer hops.
fn few_within_fewer_hops(flow: &Dataflow, layout: &BatchLayout) -> SizeInfo {
    let count = |hops: usize| 10u64.pow(2 + 2 * hops as u32);
    let mut sizes = SizeInfo {
        vertices: layout.vertices.iter().map(|known| count(known.hops)).collect(),
        edges: vec![1000; layout.graphs.len()],
        ends: vec![Endpoints { sources: 100, destinations: 100, max_out: 10, max_in: 10 }; layout.graphs.len()],
        ..SizeInfo::default()
    };
    sizes.derive(flow);
    sizes
}

/// Compares ranks with one process, on random programs that are changed before. The numbers of programs, of tables, and of
/// programs that exchange the first of their rows on their own.
fn compute_the_gradients(
    (split, seeds_of_programs, exchanged): (Split, u64, Exchanged),
    mut change: impl FnMut(VertexType, Dataflow, Bindings) -> Option<(VertexType, Dataflow, Bindings)>,
) -> (usize, usize, usize) {
    let (mut compared, mut with_tables, mut with_first_rows) = (0, 0, 0);
    for seed in seeds(seeds_of_programs) {
        let changed = of_one_type(seed).and_then(|(target, flow, bindings)| change(target, flow, bindings));
        let Some((target, flow, bindings)) = changed else { continue };
        let Ok((mut small, layout)) = to_minibatch(&flow) else { continue };
        let seeds_of_batch = layout.vertices.iter().position(|known| known.vertex == target && known.hops == 0);
        let Some(seeds_of_batch) = seeds_of_batch.map(VertexType::new) else { continue };
        let Some(()) = trained(&mut small, seeds_of_batch) else { continue };
        let disabled = Disabled { passes: vec!["compact_endpoints".into()], ..Disabled::default() };
        PassManager::new(&disabled).expect("the pass exists").run(JOINT, &mut small, &mut PassCx::default());
        let mut placed = match place_batch(&small, &layout, Some(target), split) {
            Ok(placed) => placed,
            Err(refused) if split.shares_relations() && refused.why.contains("the seeds have learned rows") => {
                continue;
            }
            Err(refused) => panic!("seed {seed}: {refused}\n{small}"),
        };
        if exchanged == Exchanged::Projections {
            let mut cx = PassCx::new(Some(few_within_fewer_hops(&placed, &layout)));
            if !narrow_exchanges(&mut placed, &layout, &mut cx).0 {
                continue;
            }
            PassManager::default().run_placed(&mut placed, &mut cx);
            let of_first = |decl: &GraphDecl| match placed.vertex_types[decl.src.index()].rows {
                VertexRows::Copies(of) => placed.vertex_types[decl.dst.index()].rows != VertexRows::Owned(of),
                _ => false,
            };
            with_first_rows += usize::from(placed.graphs.iter().any(of_first));
        }
        assert_eq!(verify(&placed), Ok(()), "seed {seed}\n{placed}");
        let text = placed.to_string();
        let read = parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error:?}\n{text}"));
        assert_eq!(read.to_string(), text, "seed {seed}");
        let count = bindings.num_vertices[target.index()] as u32;
        let drawn: Vec<u32> = (0..count).rev().filter(|v| v % 3 != 1).collect();
        let of_type = |own: &[u32]| -> Vec<Vec<u32>> {
            (0..flow.vertex_types.len()).map(|t| if t == target.index() { own.to_vec() } else { vec![] }).collect()
        };
        let batch = Batch::around(&flow, &bindings, &layout, &of_type(&drawn));
        let one = run(&small, &bindings_of((&flow, &bindings), (&small, &layout), &batch)).expect("bound");
        for ranks in [1, 2, 3, 4, 6].into_iter().filter(|ranks| (split == Split::Grid) != (*ranks < 4)) {
            let shares = match split {
                Split::Seeds => ranks,
                Split::Relations => 1,
                Split::Grid => 2,
            };
            let of_replica = ranks / shares;
            let share_of = |rank: usize| {
                let share = rank / of_replica;
                &drawn[drawn.len() * share / shares..drawn.len() * (share + 1) / shares]
            };
            let seeds = split.shares_relations().then_some(seeds_of_batch);
            let batches: Vec<Batch> =
                (0..ranks).map(|rank| Batch::around(&flow, &bindings, &layout, &of_type(share_of(rank)))).collect();
            let mut all: Vec<Bindings> =
                batches.iter().map(|batch| bindings_of((&flow, &bindings), (&small, &layout), batch)).collect();
            share(&placed, (&layout, seeds, of_replica), &bindings, &batches, &mut all);
            let runs = run_ranks(&placed, &all).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{placed}"));
            for (a, b) in small.outputs.iter().zip(&placed.outputs) {
                let expected = &one[a.value].data;
                let table = match &a.kind {
                    OutputKind::UpdateParam(param) => layout.rows.iter().find(|(of, _)| of == param),
                    _ => None,
                };
                let Some((_, known)) = table else {
                    assert!(runs.iter().all(|run| run[b.value] == runs[0][b.value]), "seed {seed}: {:?}", a.kind);
                    close(
                        expected,
                        &runs[0][b.value].data,
                        &format!("seed {seed}, {ranks} ranks: {:?}\n{placed}", a.kind),
                    );
                    continue;
                };
                // Every sampled row has one owner, which has the whole gradient.
                with_tables += 1;
                let of = layout.vertices.iter().position(|other| other == known).map(VertexType::new).expect("known");
                let owned = placed.vertex_types.iter().position(|decl| decl.rows == VertexRows::Owned(of));
                let owned = Space::Vertices(VertexType::new(owned.expect("a table has owners")));
                let width = expected.len() / batch.rows(known.vertex, known.hops).len().max(1);
                for (row, vertex) in batch.rows(known.vertex, known.hops).iter().enumerate() {
                    let found = all.iter().zip(&runs).find_map(|(bindings, run)| {
                        let at = bindings.numbers[&owned].iter().position(|number| number == vertex)?;
                        Some(&run[b.value].data[at * width..][..width])
                    });
                    let found = found.expect("every sampled vertex has an owner");
                    close(
                        &expected[row * width..][..width],
                        found,
                        &format!("seed {seed}, {ranks} ranks: {:?}", a.kind),
                    );
                }
            }
            compared += 1;
        }
    }
    (compared, with_tables, with_first_rows)
}

pub fn close(expected: &[f64], found: &[f64], what: &str) {
    assert_eq!(expected.len(), found.len(), "{what}");
    for (x, y) in expected.iter().zip(found) {
        let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y || (x.is_nan() && y.is_nan());
        assert!(close, "{what}: {y} instead of {x}");
    }
}

/// The rows of a table go to the ranks that have sampled them, and their gradients come back to be summed.
#[test]
fn a_table_has_one_owner_for_each_row() {
    let text = r#"
dataflow small {
  vertex Paper from "paper"
  vertex Author from "author"
  relation writes: Author -> Paper from "writes"
  graph writes: Author -> Paper = >writes
  param table : f32[|Author|, 4] = uniform(1.0)
  param w : f32[4, 4] = glorot(4, 4)
  %0 = param table                   : f32[|Author|, 4]      @FP
  %1 = rows %0                       : f32[Author; 4]        @FP
  %2 = gather.src writes, %1         : f32[edges(writes); 4] @NA
  %3 = segment.sum.in writes, %2     : f32[Paper; 4]         @NA
  %4 = param w                       : f32[4, 4]             @FP
  %5 = matmul %3, %4                 : f32[Paper; 4]         @FP
  result out = %5
}
"#;
    let (small, layout) = trained_batch(text);
    let placed = place_batch(&small, &layout, Some(VertexType::new(0)), Split::Seeds).expect("seeds have one rank");
    assert_eq!(verify(&placed), Ok(()));
    insta::assert_snapshot!(placed);
}

/// The training program of a mini-batch, of a loss of the seeds.
fn trained_batch(text: &str) -> (Dataflow, BatchLayout) {
    let flow = parse(text).unwrap_or_else(|error| panic!("{error:?}"));
    let (mut small, layout) = to_minibatch(&flow).expect("in-edges only");
    let papers = layout.vertices.iter().position(|known| known.hops == 0).map(VertexType::new).expect("the seeds");
    trained(&mut small, papers).expect("it has a derivative");
    (small, layout)
}

/// The program of ranks with seeds of their own, after [`narrow_exchanges`] has changed it.
fn narrowed(text: &str) -> (Dataflow, PassCx) {
    let (mut small, layout) = trained_batch(text);
    PassManager::default().run(JOINT, &mut small, &mut PassCx::default());
    let mut placed = place_batch(&small, &layout, Some(VertexType::new(0)), Split::Seeds).expect("seeds have one rank");
    let mut cx = PassCx::new(Some(few_within_fewer_hops(&placed, &layout)));
    assert!(narrow_exchanges(&mut placed, &layout, &mut cx).0);
    (placed, cx)
}

/// Author.2 has a projection of two columns, and the rows of Author.1, which are few, are sent as they are.
#[test]
fn projections_are_sent_instead_of_wider_rows() {
    let text = r#"
dataflow small {
  vertex Paper from "paper"
  vertex Author from "author"
  relation writes: Author -> Paper from "writes"
  relation knows: Author -> Author from "knows"
  graph writes: Author -> Paper = >writes
  graph knows: Author -> Author = >knows
  param table : f32[|Author|, 8] = uniform(1.0)
  param w : f32[8, 2] = glorot(8, 2)
  param w_self : f32[8, 2] = glorot(8, 2)
  %0 = param table                   : f32[|Author|, 8]      @FP
  %1 = rows %0                       : f32[Author; 8]        @FP
  %2 = param w                       : f32[8, 2]             @FP
  %3 = matmul %1, %2                 : f32[Author; 2]        @FP
  %4 = gather.src knows, %3          : f32[edges(knows); 2]  @NA
  %5 = segment.sum.in knows, %4      : f32[Author; 2]        @NA
  %6 = param w_self                  : f32[8, 2]             @FP
  %7 = matmul %1, %6                 : f32[Author; 2]        @FP
  %8 = add %5, %7                    : f32[Author; 2]        @SF
  %9 = tanh %8                       : f32[Author; 2]        @SF
  %10 = gather.src writes, %9        : f32[edges(writes); 2] @NA
  %11 = segment.sum.in writes, %10   : f32[Paper; 2]         @NA
  result out = %11
}
"#;
    let (mut placed, mut cx) = narrowed(text);
    PassManager::default().run_placed(&mut placed, &mut cx);
    assert_eq!(verify(&placed), Ok(()));
    insta::assert_snapshot!(format!("{}\n\n{placed}", cx.explain.join("\n")));
}

/// Two tables of one type, within two hops and within one, both have rows of the seeds among their first ones. One exchange has
/// these, so one of the tables stays as it is.
#[test]
fn first_rows_have_one_owner() {
    let text = r#"
dataflow small {
  vertex Author from "author"
  relation knows: Author -> Author from "knows"
  graph knows: Author -> Author = >knows
  param a : f32[|Author|, 8] = uniform(1.0)
  param b : f32[|Author|, 8] = uniform(1.0)
  param w_a : f32[8, 2] = glorot(8, 2)
  param w_b : f32[8, 2] = glorot(8, 2)
  param w_self : f32[8, 2] = glorot(8, 2)
  %0 = param a                       : f32[|Author|, 8]      @FP
  %1 = rows %0                       : f32[Author; 8]        @FP
  %2 = param b                       : f32[|Author|, 8]      @FP
  %3 = rows %2                       : f32[Author; 8]        @FP
  %4 = param w_a                     : f32[8, 2]             @FP
  %5 = matmul %1, %4                 : f32[Author; 2]        @FP
  %6 = gather.src knows, %5          : f32[edges(knows); 2]  @NA
  %7 = segment.sum.in knows, %6      : f32[Author; 2]        @NA
  %8 = tanh %7                       : f32[Author; 2]        @SF
  %9 = param w_b                     : f32[8, 2]             @FP
  %10 = matmul %3, %9                : f32[Author; 2]        @FP
  %11 = add %8, %10                  : f32[Author; 2]        @SF
  %12 = gather.src knows, %11        : f32[edges(knows); 2]  @NA
  %13 = segment.sum.in knows, %12    : f32[Author; 2]        @NA
  %14 = param w_self                 : f32[8, 2]             @FP
  %15 = matmul %1, %14               : f32[Author; 2]        @FP
  %16 = matmul %3, %14               : f32[Author; 2]        @FP
  %17 = add %15, %16                 : f32[Author; 2]        @SF
  %18 = add %13, %17                 : f32[Author; 2]        @SF
  result out = %18
}
"#;
    let (placed, cx) = narrowed(text);
    assert_eq!(verify(&placed), Ok(()));
    let verdicts: Vec<bool> = cx.explain.iter().map(|line| line.contains("projections are sent")).collect();
    assert_eq!(verdicts.len(), 2, "{:?}", cx.explain);
    assert_eq!(verdicts.iter().filter(|&&sent| sent).count(), 1, "{:?}", cx.explain);
}

/// Rows of shuffled vertices go from the ranks that have sampled them to their owners, and from these to the ranks that take
/// them; their gradients go the same way back.
#[test]
fn taken_rows_go_by_way_of_their_owners() {
    let text = r#"
dataflow small {
  vertex Paper from "paper"
  relation cites: Paper -> Paper from "cites"
  graph cites: Paper -> Paper = >cites
  graph shuffle: Paper -> Paper = shuffle 1
  input x : f32[Paper; 4] = features(Paper)
  param w : f32[4, 4] = glorot(4, 4)
  %0 = input x                       : f32[Paper; 4]           @FP
  %1 = param w                       : f32[4, 4]               @FP
  %2 = matmul %0, %1                 : f32[Paper; 4]           @FP
  %3 = gather.src shuffle, %2        : f32[edges(shuffle); 4]  @NA
  %4 = segment.sum.in shuffle, %3    : f32[Paper; 4]           @NA
  %5 = gather.src cites, %4          : f32[edges(cites); 4]    @NA
  %6 = segment.sum.in cites, %5      : f32[Paper; 4]           @NA
  result out = %6
}
"#;
    let (small, layout) = trained_batch(text);
    let placed = place_batch(&small, &layout, Some(VertexType::new(0)), Split::Seeds).expect("seeds have one rank");
    assert_eq!(verify(&placed), Ok(()));
    insta::assert_snapshot!(placed);
    let refused =
        place_batch(&small, &layout, Some(VertexType::new(0)), Split::Relations).expect_err("one batch for all");
    assert!(refused.why.contains("processes share the seeds"), "{refused}");
}
