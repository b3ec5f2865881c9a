//! Programs of batches against the programs that they are made from, on random programs.

use std::collections::{BTreeMap, BTreeSet};

use hgnnc_interp::random_program::{random_program, seeds};
use hgnnc_interp::{Bindings, Tensor, run};
use hgnnc_ir::batch::{BatchGraph, BatchInput, BatchLayout, WithinHops};
use hgnnc_ir::dataflow::GraphDecl;
use hgnnc_ir::random::shuffled_sources;
use hgnnc_ir::{Dataflow, Dim, Graph, Input, Op, OutputKind, Param, Space, VertexType, verify};
use hgnnc_passes::to_minibatch;

const SEEDS: u64 = 300;

/// The batch around some vertices with all in-edges: by type the vertices in the order in which they are reached, and
/// how many are known within so many hops.
pub struct Batch {
    pub vertices: Vec<Vec<u32>>,
    pub known: Vec<Vec<usize>>,
    /// By type, vertices of which the last hop draws nothing.
    resting: Vec<BTreeSet<u32>>,
}

impl Batch {
    pub fn around(flow: &Dataflow, bindings: &Bindings, layout: &BatchLayout, seeds: &[Vec<u32>]) -> Self {
        Self::while_resting(flow, bindings, layout, seeds, vec![BTreeSet::new(); seeds.len()])
    }

    /// As [`Batch::around`], while some vertices rest.
    pub fn while_resting(
        flow: &Dataflow,
        bindings: &Bindings,
        layout: &BatchLayout,
        seeds: &[Vec<u32>],
        resting: Vec<BTreeSet<u32>>,
    ) -> Self {
        let mut vertices = seeds.to_vec();
        let mut known = vec![vertices.iter().map(Vec::len).collect::<Vec<_>>()];
        for hop in 0..layout.hops {
            for (index, graph) in flow.graphs.iter().enumerate() {
                if layout.deepest(Graph::new(index)).is_none_or(|deepest| deepest < hop) {
                    continue;
                }
                let rows = vertices[graph.dst.index()][..known[hop][graph.dst.index()]].to_vec();
                // Of vertices that were known before, all sources are known.
                let before = hop.checked_sub(1).map_or(0, |before: usize| known[before][graph.dst.index()]);
                for row in rows.into_iter().skip(before) {
                    if hop + 1 == layout.hops && resting[graph.dst.index()].contains(&row) {
                        continue;
                    }
                    for &(src, dst) in &bindings.edges[index] {
                        let sources = &mut vertices[graph.src.index()];
                        if dst == row && !sources.contains(&src) {
                            sources.push(src);
                        }
                    }
                }
            }
            known.push(vertices.iter().map(Vec::len).collect());
        }
        Self { vertices, known, resting }
    }

    /// The rows, among the vertices of a type within so many hops, of those that rest.
    pub fn resting(&self, vertex: VertexType, hops: usize) -> Vec<usize> {
        let before = self.known[hops - 1][vertex.index()];
        let rests = |&row: &usize| self.resting[vertex.index()].contains(&self.vertices[vertex.index()][row]);
        (before..self.known[hops][vertex.index()]).filter(rests).collect()
    }

    pub fn rows(&self, vertex: VertexType, hops: usize) -> &[u32] {
        &self.vertices[vertex.index()][..self.known[hops][vertex.index()]]
    }

    /// The edges of shuffled vertices: permutations of the vertices in the order of the dataset.
    fn shuffled(&self, bindings: &Bindings, set: WithinHops, permutations: u32) -> Vec<(u32, u32)> {
        let rows = self.rows(set.vertex, set.hops);
        let mut sorted = rows.to_vec();
        sorted.sort_unstable();
        let row = |place: usize| rows.iter().position(|&v| v == sorted[place]).expect("it is a row") as u32;
        let drawn = shuffled_sources((bindings.seed, bindings.step), set.vertex, rows.len(), permutations);
        let mut edges: Vec<(u32, u32)> =
            drawn.iter().enumerate().map(|(at, &src)| (row(src as usize), row(at / permutations as usize))).collect();
        edges.sort_unstable_by_key(|&(src, dst)| (dst, src));
        edges
    }

    /// Pairs to score, in their order, all of whose ends are seeds.
    fn pairs(&self, flow: &Dataflow, bindings: &Bindings, graph: Graph) -> Vec<(u32, u32)> {
        let decl = &flow.graphs[graph.index()];
        let id = |of: VertexType, vertex: u32| {
            self.rows(of, 0).iter().position(|&v| v == vertex).expect("ends are seeds") as u32
        };
        bindings.edges[graph.index()].iter().map(|&(src, dst)| (id(decl.src, src), id(decl.dst, dst))).collect()
    }

    /// Edges in the order of compact ids of destinations, and where each is in the whole graph.
    fn edges(&self, flow: &Dataflow, bindings: &Bindings, graph: Graph, hops: usize) -> Vec<((u32, u32), usize)> {
        let decl = &flow.graphs[graph.index()];
        let sources = self.rows(decl.src, hops + 1);
        let id = |src: u32| sources.iter().position(|&v| v == src).expect("sources are known") as u32;
        let mut edges = vec![];
        let last = hops + 2 == self.known.len();
        let before = hops.checked_sub(1).map_or(0, |before| self.known[before][decl.dst.index()]);
        for (row, &vertex) in self.rows(decl.dst, hops).iter().enumerate() {
            if last && row >= before && self.resting[decl.dst.index()].contains(&vertex) {
                continue;
            }
            let own = bindings.edges[graph.index()].iter().enumerate().filter(|(_, (_, dst))| *dst == vertex);
            edges.extend(own.map(|(at, &(src, _))| ((id(src), row as u32), at)));
        }
        edges.sort_by_key(|&((src, dst), at)| (dst, src, at));
        edges
    }
}

/// Rows of a tensor.
fn pick(tensor: &Tensor, width: usize, rows: impl Iterator<Item = usize>) -> Tensor {
    let rows: Vec<usize> = rows.collect();
    let data = rows.iter().flat_map(|row| tensor.data[row * width..][..width].to_vec()).collect();
    Tensor { rows: rows.len(), data, ..tensor.clone() }
}

/// The sizes and inputs that the program of a batch runs on.
pub fn bindings_of(
    (flow, all): (&Dataflow, &Bindings),
    (small, layout): (&Dataflow, &BatchLayout),
    batch: &Batch,
) -> Bindings {
    let mut num_vertices: Vec<usize> =
        layout.vertices.iter().map(|known| batch.rows(known.vertex, known.hops).len()).collect();
    for reused in &layout.historical {
        let known = layout.vertices[reused.of.index()];
        num_vertices[reused.rows.index()] = batch.resting(known.vertex, known.hops).len();
    }
    let mut bindings = Bindings { num_vertices, seed: all.seed, step: all.step, ..Bindings::default() };
    for (what, decl) in layout.graphs.iter().zip(&small.graphs) {
        bindings.edges.push(match *what {
            BatchGraph::Sampled { graph, hops } => {
                batch.edges(flow, all, graph, hops).into_iter().map(|(edge, _)| edge).collect()
            }
            BatchGraph::Links { graph } => batch.pairs(flow, all, graph),
            BatchGraph::Shuffled { rows, permutations } => {
                batch.shuffled(all, layout.vertices[rows.index()], permutations)
            }
            BatchGraph::Historical { rows } => {
                let known = layout.vertices[layout.historical[rows].of.index()];
                let resting = batch.resting(known.vertex, known.hops);
                resting.into_iter().enumerate().map(|(at, row)| (at as u32, row as u32)).collect()
            }
            BatchGraph::First { .. } => (0..bindings.num_vertices[decl.dst.index()] as u32).map(|v| (v, v)).collect(),
        });
    }
    for (index, from) in layout.inputs.iter().enumerate() {
        let &BatchInput::Whole(from) = from else { continue };
        let decl = &small.inputs[index];
        let width = all.width(&flow.inputs[from.index()].ty.dims);
        let picked = |tensor: &Tensor| match decl.ty.space {
            Space::Vertices(vertex) => {
                let known = layout.vertices[vertex.index()];
                pick(tensor, width, batch.rows(known.vertex, known.hops).iter().map(|&v| v as usize))
            }
            Space::Edges(graph) => match layout.graphs[graph.index()] {
                BatchGraph::Sampled { graph, hops } => {
                    pick(tensor, width, batch.edges(flow, all, graph, hops).into_iter().map(|(_, at)| at))
                }
                BatchGraph::Links { .. } => tensor.clone(),
                BatchGraph::Shuffled { .. } | BatchGraph::First { .. } | BatchGraph::Historical { .. } => {
                    unreachable!("edges that take rows have no inputs")
                }
            },
            Space::Unit | Space::Index(_) | Space::Endpoints(..) => tensor.clone(),
        };
        bindings.inputs.insert(Input::new(index), picked(&all.inputs[&from]));
    }
    bindings.params = all.params.clone();
    for &(param, known) in &layout.rows {
        let decl = &flow.params[param.index()];
        let width = all.width(&decl.dims[1..]);
        let rows = batch.rows(known.vertex, known.hops).iter().map(|&v| v as usize);
        // A parameter is one row.
        let data = pick(&all.params[&param], width, rows).data;
        bindings.params.insert(param, Tensor { rows: 1, width: data.len(), data });
    }
    bindings
}

/// Does a value of a vertex depend on what is not in its neighbourhood, or on the numbers of rows?
pub fn is_global(op: &Op) -> bool {
    matches!(op, Op::ReduceSpace(_) | Op::Outer { .. } | Op::Count(_) | Op::RandomMask { .. })
}

/// A random program with its results at vertices of one type only, of which some can be seeds. `None` where there are
/// no such results, or they depend on more than neighbourhoods.
pub fn of_one_type(seed: u64) -> Option<(VertexType, Dataflow, Bindings)> {
    let (mut flow, bindings) = random_program(seed);
    let target = flow.outputs.iter().find_map(|output| match flow.ty(output.value).space {
        Space::Vertices(vertex) => Some(vertex),
        _ => None,
    })?;
    flow.outputs.retain(|output| flow.values[output.value.index()].ty.space == Space::Vertices(target));
    hgnnc_passes::dce::dce(&mut flow, &mut Default::default());
    let is_local = !flow.values.iter().any(|data| is_global(&data.op));
    is_local.then_some((target, flow, bindings))
}

#[test]
fn outputs_of_seeds_are_those_of_the_whole_graph() {
    let (mut compared, mut depths) = (0, BTreeMap::new());
    for seed in seeds(SEEDS) {
        let Some((target, flow, bindings)) = of_one_type(seed) else { continue };
        let Ok((small, layout)) = to_minibatch(&flow) else { continue };
        if let Err(broken) = verify(&small) {
            panic!("seed {seed}: {broken:#?}\n{flow}\n{small}");
        }
        let count = bindings.num_vertices[target.index()] as u32;
        let seeds: Vec<Vec<u32>> = (0..flow.vertex_types.len())
            .map(|t| if t == target.index() { (0..count).rev().filter(|v| v % 3 != 1).collect() } else { vec![] })
            .collect();
        let batch = Batch::around(&flow, &bindings, &layout, &seeds);
        let of_batch = bindings_of((&flow, &bindings), (&small, &layout), &batch);
        let whole = run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let part = run(&small, &of_batch).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{flow}\n{small}"));
        for (a, b) in flow.outputs.iter().zip(&small.outputs) {
            let OutputKind::Result(name) = &a.kind else { continue };
            let width = bindings.width(&flow.ty(a.value).dims);
            let expected = pick(&whole[a.value], width, seeds[target.index()].iter().map(|&v| v as usize));
            for (x, y) in expected.data.iter().zip(&part[b.value].data) {
                let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y;
                assert!(close, "seed {seed}, {name}: {y} instead of {x}\n{flow}\n{small}");
            }
            assert_eq!(expected.data.len(), part[b.value].data.len(), "seed {seed}, {name}");
            compared += 1;
        }
        *depths.entry(layout.hops).or_insert(0) += 1;
    }
    assert!(compared > 20 && depths.keys().any(|&hops| hops >= 2), "{compared} outputs, {depths:?}");
}

/// A program whose graphs from a type to itself are permutations of its vertices, by turns one and three of them; `None` if
/// it has none.
pub fn with_shuffles(mut flow: Dataflow, mut bindings: Bindings) -> Option<(Dataflow, Bindings)> {
    let mut any = false;
    flow.metapaths.clear();
    for (index, decl) in flow.graphs.iter_mut().enumerate() {
        if decl.src == decl.dst && !decl.links && decl.derived.is_none() {
            let of = GraphDecl::new(decl.name.clone(), decl.src, decl.dst, vec![]);
            *decl = GraphDecl { shuffle: Some([1, 3][index % 2]), ..of };
            any = true;
        }
    }
    // Permutations have no data.
    let is_shuffled =
        |space: Space| matches!(space, Space::Edges(graph) if flow.graphs[graph.index()].shuffle.is_some());
    let has_data = flow.values.iter().any(|data| matches!(data.op, Op::Input(_)) && is_shuffled(data.ty.space));
    bindings.shuffle(&flow);
    (any && !has_data).then_some((flow, bindings))
}

/// A batch of all vertices shuffles them as the whole graph does, whatever the order of its rows.
#[test]
fn shuffled_vertices_of_a_batch_of_all_are_those_of_the_whole_graph() {
    let (mut compared, mut shuffled, mut depths) = (0, 0, BTreeSet::new());
    for seed in seeds(4 * SEEDS) {
        let Some((target, flow, bindings)) = of_one_type(seed) else { continue };
        let Some((flow, bindings)) = with_shuffles(flow, bindings) else { continue };
        if verify(&flow).is_err() {
            continue;
        }
        let Ok((small, layout)) = to_minibatch(&flow) else { continue };
        verify(&small).unwrap_or_else(|broken| panic!("seed {seed}: {broken:#?}\n{flow}\n{small}"));
        let backwards = |&count: &usize| (0..count as u32).rev().collect();
        let seeds: Vec<Vec<u32>> = bindings.num_vertices.iter().map(backwards).collect();
        let batch = Batch::around(&flow, &bindings, &layout, &seeds);
        let of_batch = bindings_of((&flow, &bindings), (&small, &layout), &batch);
        let whole = run(&flow, &bindings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let part = run(&small, &of_batch).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{flow}\n{small}"));
        for (a, b) in flow.outputs.iter().zip(&small.outputs) {
            let width = bindings.width(&flow.ty(a.value).dims);
            let expected = pick(&whole[a.value], width, seeds[target.index()].iter().map(|&v| v as usize));
            assert_eq!(expected.data.len(), part[b.value].data.len(), "seed {seed}");
            for (x, y) in expected.data.iter().zip(&part[b.value].data) {
                let close = (x - y).abs() <= 1e-9 * x.abs().max(1.0) || x == y;
                assert!(close, "seed {seed}: {y} instead of {x}\n{flow}\n{small}");
            }
            compared += 1;
        }
        let sets = layout.graphs.iter().filter_map(|what| match what {
            BatchGraph::Shuffled { rows, .. } => Some(layout.vertices[rows.index()].hops),
            _ => None,
        });
        depths.extend(sets.inspect(|_| shuffled += 1));
    }
    assert!(
        compared > 50 && shuffled > 50 && depths.contains(&0) && depths.contains(&1),
        "{compared}, {shuffled}, {depths:?}"
    );
}

/// The seeds are shuffled among themselves, and vertices one hop away with those: a set has edges within itself, and no
/// further hop is sampled.
#[test]
fn shuffled_vertices_are_those_of_one_set() {
    let text = "dataflow d {
        vertex A from \"a\" relation r: A -> A from \"r\" graph g: A -> A = >r graph s: A -> A = shuffle 2
        input x : f32[A; 2] = features(A)
        %0 = input x : f32[A; 2] @FP
        %1 = gather.src s, %0 : f32[edges(s); 2] @NA
        %2 = segment.sum.in s, %1 : f32[A; 2] @NA
        %3 = gather.src g, %2 : f32[edges(g); 2] @NA
        %4 = segment.sum.in g, %3 : f32[A; 2] @NA
        %5 = gather.src s, %4 : f32[edges(s); 2] @NA
        %6 = segment.max.in s, %5 : f32[A; 2] @NA
        result out = %6
    }";
    let (small, layout) = to_minibatch(&hgnnc_ir::parse(text).expect("text")).expect("shuffles of a batch");
    verify(&small).expect("it is well-formed");
    let shuffled = |what: &BatchGraph| matches!(what, BatchGraph::Shuffled { permutations: 2, .. });
    assert_eq!((layout.hops, layout.graphs.iter().filter(|what| shuffled(what)).count()), (1, 2));
    insta::assert_snapshot!(small.to_string());
}

/// Rows of parameters, and what has no batch.
#[test]
fn what_needs_more_than_in_edges_has_no_program_for_batches() {
    let table =
        "vertex A from \"a\" relation r: A -> A from \"r\" graph g: A -> A = >r input x : f32[A; 2] = features(A)";
    let program = |values: &str| hgnnc_ir::parse(&format!("dataflow d {{ {table} {values} }}")).expect("text");
    let summed_out = program(
        "%0 = input x : f32[A; 2] @FP %1 = gather.dst g, %0 : f32[edges(g); 2] @NA \
         %2 = segment.sum.out g, %1 : f32[A; 2] @NA result out = %2",
    );
    let error = to_minibatch(&summed_out).expect_err("out-edges");
    assert!(error.to_string().contains("out-edges"), "{error}");

    let rows = program(
        "param p : f32[|A|, 2] = uniform(1.0) %0 = param p : f32[|A|, 2] @FP %1 = rows %0 : f32[A; 2] @FP \
         %2 = gather.src g, %1 : f32[edges(g); 2] @NA %3 = segment.sum.in g, %2 : f32[A; 2] @NA \
         %4 = add %1, %3 : f32[A; 2] @NA result out = %4",
    );
    let (small, layout) = to_minibatch(&rows).expect("rows of a parameter");
    assert_eq!(layout.rows.len(), 1);
    assert_eq!((layout.rows[0].0, layout.rows[0].1.hops), (Param::new(0), 1));
    assert!(matches!(small.params[0].dims[0], Dim::Count(vertex) if layout.vertices[vertex.index()].hops == 1));
    insta::assert_snapshot!(small.to_string());
}
