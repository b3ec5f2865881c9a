//! Mini-batches of several processes whose neighbours are drawn by the owners of vertices: the bits are those of ranks that
//! each sample the whole graph.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::{DataSource, Distributed, Job, ModelSource, Purpose, Ranks, Silent, Split, prepare};
use hgnnc_dataset::{Dataset, DenseFeatures};
use hgnnc_dist::threads;
use hgnnc_loader::{CacheOptions, CachePolicy};
use hgnnc_model_tests::cases::SCHEMA;
use hgnnc_model_tests::{World, case};
use hgnnc_train::TrainOptions;

use crate::rank_links;
use crate::rank_stacks::{entities, of_labels};
use crate::ranks::{TRAIN, world_of};

const NOTHING: Distributed = Distributed { edges: false, features: false };
const BOTH: Distributed = Distributed { edges: true, features: true };

/// The numbers that a rank comes to.
#[derive(Clone, PartialEq, Debug)]
struct Trained {
    losses: Vec<u64>,
    params: Vec<Vec<u32>>,
    /// By semantic graph: edges that the rank has, and those of all ranks.
    edges: BTreeMap<String, [u64; 2]>,
    /// Stored elements of sparse features that the rank has.
    stored: usize,
    /// Bytes that all ranks have sent in training.
    sent: u64,
    /// Of the cache, if there is one.
    hit_rate: Option<f64>,
    /// Rows whose values of an earlier batch were taken, and the edges that it saved.
    reused: Option<[u64; 2]>,
}

fn train(source: &str, data: &Arc<Dataset>, ranks: Ranks) -> Result<Trained, String> {
    train_with(source, data, ranks, None)
}

/// With a cache of this many bytes for rows of other ranks.
fn train_with(source: &str, data: &Arc<Dataset>, ranks: Ranks, cache: Option<u64>) -> Result<Trained, String> {
    let model = ModelSource::Text { path: PathBuf::from("test.hgnn"), text: source.into() };
    let (options, data) = (
        TrainOptions {
            threads: 1,
            cache: cache.map(|bytes| CacheOptions { bytes, policy: CachePolicy::Penalty }),
            ..TrainOptions::default()
        },
        DataSource::Loaded(Arc::clone(data)),
    );
    let job = Job { data, options, ranks: Some(ranks), graph_cache: None, ..Job::new(model) };
    let mut prepared = prepare(Purpose::Train, &job, &mut Silent).map_err(|error| error.to_string())?;
    let (trainer, mut losses) = (&mut prepared.trainer, vec![]);
    // Batches are sampled along relations, and not along stacks of them.
    let graphs = trainer.data().graphs.iter().zip(&trainer.executable().infer.graphs);
    let edges = graphs
        .filter(|(_, decl)| decl.derived.is_none())
        .map(|(graph, _)| (graph.name.clone(), [graph.num_edges() as u64, graph.all_edges()]))
        .collect();
    let stored = trainer.data().patterns.iter().map(|pattern| pattern.num_edges()).sum();
    let ran = trainer.run(&AtomicBool::new(false), &mut |epoch| losses.push(epoch.loss.to_bits()));
    ran.map_err(|error| error.to_string())?;
    let params = trainer.own_params().map_err(|error| error.to_string())?;
    let params = params.into_iter().map(|param| param.iter().map(|x| x.to_bits()).collect()).collect();
    let report = prepared.report().map_err(|error| error.to_string())?;
    let sent = report.ranks.iter().map(|rank| rank.train_bytes).sum();
    let batches = report.batches.as_ref();
    let reused = batches.and_then(|batches| batches.reuse.as_ref()).map(|of| [of.rows_taken, of.edges_saved]);
    let hit_rate = batches.and_then(|batches| batches.cache.as_ref()).map(|cache| cache.hit_rate);
    Ok(Trained { losses, params, edges, stored, sent, hit_rate, reused })
}

fn train_on(ranks: usize, distribute: Distributed, source: &str, data: &Arc<Dataset>) -> Vec<Trained> {
    train_sharing((Split::Seeds, 1), ranks, distribute, source, data)
}

/// With ranks that share the seeds or the relations of so many replicas.
fn train_sharing(
    (split, replicas): (Split, usize),
    ranks: usize,
    distribute: Distributed,
    source: &str,
    data: &Arc<Dataset>,
) -> Vec<Trained> {
    let of_rank = |comm: &Arc<dyn hgnnc_dist::Comm>| {
        train(source, data, Ranks { sections: 6, split, replicas, distribute, ..Ranks::new(Arc::clone(comm)) })
    };
    let all = threads::run(ranks, of_rank);
    all.into_iter().map(|trained| trained.unwrap_or_else(|error| panic!("{ranks} ranks: {error}"))).collect()
}

/// Each rank has its part of the relations in `divided`, and all edges of the others.
fn agree(what: &str, source: &str, data: &Arc<Dataset>, divided: &dyn Fn(&str) -> bool) {
    for ranks in [1, 2, 3] {
        let (whole, by_owners) = (train_on(ranks, NOTHING, source, data), train_on(ranks, BOTH, source, data));
        for (rank, (whole, by_owners)) in whole.iter().zip(&by_owners).enumerate() {
            assert_eq!(by_owners.losses, whole.losses, "{what}, rank {rank} of {ranks}");
            assert_eq!(by_owners.params, whole.params, "{what}, rank {rank} of {ranks}");
            assert_eq!(by_owners.reused, whole.reused, "{what}, rank {rank} of {ranks}");
        }
        for graph in whole[0].edges.keys() {
            let of_ranks: Vec<[u64; 2]> = by_owners.iter().map(|trained| trained.edges[graph]).collect();
            let (own, all): (u64, u64) = (of_ranks.iter().map(|edges| edges[0]).sum(), of_ranks[0][1]);
            let expected = if divided(graph) { all } else { all * ranks as u64 };
            assert_eq!(own, expected, "{what}, graph {graph}: {of_ranks:?}");
        }
    }
}

/// With all in-edges, and masks of vertices and edges.
fn owners_draw_what_each_rank_would(name: &str) {
    let case = case(name);
    let source = case.trained_by(&TRAIN.replace("seed 3", "seed 3\n    batch 4").replace("epochs 5", "epochs 2"));
    let world = if case.schema == SCHEMA { World::random_library(4) } else { World::sparse_library() };
    let data = world_of(&case, &source, &world);
    let (whole, by_owners) = (train_on(3, NOTHING, &source, &data), train_on(3, BOTH, &source, &data));
    for (rank, (whole, by_owners)) in whole.iter().zip(&by_owners).enumerate() {
        assert_eq!((&by_owners.losses, &by_owners.params), (&whole.losses, &whole.params), "{name}, rank {rank}");
    }
    // Each has its own rows of sparse features.
    assert_eq!(by_owners.iter().map(|of_rank| of_rank.stored).sum::<usize>(), whole[0].stored, "{name}");
}

hgnnc_model_tests::test_each_case!(owners_draw_what_each_rank_would);

/// Relations of very different sizes, one without edges, that are stacked; each hop draws some edges, by chance.
#[test]
fn edges_are_drawn_and_masked_by_their_numbers_in_the_dataset() {
    for first in ["RgcnConv(hidden: 4)", "RgatConv(hidden: 2, heads: 2, dropout: 0.3)"] {
        let source = of_labels(first, "    fanout [2, 3]\n");
        agree(first, &source, &entities(), &|_| true);
    }
}

/// Edges of `r5` are read with their weights, and those of `r6` drawn by them. What `read` depends on is computed before training.
const WITH_WEIGHTS: &str = "
layer Plain() over graphs: [*] of x: *[in] -> *[in] {
    aggregate e: g in graphs { m = mean(e.src.x) over in_edges across graphs }
    fuse v: * across graphs { out = v.m }
}

layer Weighted() over graphs: [*] of x: *[in] -> *[in] {
    aggregate e: g in graphs { m = sum(e.weight * e.src.x) over in_edges across graphs }
    fuse v: * across graphs { out = v.m }
}

schema Entities {
    vertex Entity from \"entity\" { x: f32[4], topic: class[3] }
    relation r4: Entity -> Entity
    relation r5: Entity -> Entity { weight: f32 }
    relation r6: Entity -> Entity { weight: f32 }
    relation r7: Entity -> Entity
    metapath twice = Entity -r4-> Entity -r4-> Entity
}

model M(schema: Entities) {
    let read = linear(Weighted() over [r5] of Entity.x, 4)
    let drawn = linear(Plain() over [r6, twice, r7] of dropout(read, 0.2), 4)
    output y: Entity = linear(relu(drawn) + Entity.x, 3)
}

train M {
    loss   cross_entropy(y, Entity.topic)
    batch  6
    epochs 3
    fanout [3, 2] { r6: weighted(2) }
    select train.loss
    seed   5
}
";

/// Weights of a stack of relations, features and times of edges, and the latest edges of a vertex, all of them in the trained part.
pub(crate) const WITH_VALUES: &str = "
layer Weighted() over graphs: [*] of x: *[in] -> *[in] {
    aggregate e: g in graphs { m = sum(e.weight * e.src.x) over in_edges across graphs }
    fuse v: * across graphs { out = v.m }
}

layer Recent() over graphs: [V -> V] of x: V[in], t: V -> V[in] {
    aggregate e: g in graphs { m = sum(exp(0.1 * (e.at - e.dst.t)) * e.src.x) over in_edges }
    fuse v: V across graphs { out = sum(v.m) across graphs }
}

layer Scaled() over graphs: [V -> V] of x: V[in] -> V[in] {
    aggregate e: g in graphs { m = mean(linear(e.features, in) * e.src.x) over in_edges }
    fuse v: V across graphs { out = sum(v.m) across graphs }
}

schema Entities {
    vertex Entity from \"entity\" { x: f32[4], t: time, topic: class[3] }
    relation r3: Entity -> Entity { weight: f32 }
    relation r4: Entity -> Entity { weight: f32 }
    relation r5: Entity -> Entity { weight: f32 }
    relation r6: Entity -> Entity { at: time }
    relation r7: Entity -> Entity { features: f32[2] }
}

model M(schema: Entities) {
    let h = relu(linear(Entity.x, 4))
    let weighted = Weighted() over [r3, r4, r5] of h
    let recent = Recent() over r6 of (weighted, t: Entity.t)
    let scaled = Scaled() over r7 of dropout(weighted, 0.2)
    output y: Entity = linear(relu(recent + scaled) + h, 3)
}

train M {
    loss   cross_entropy(y, Entity.topic)
    batch  6
    epochs 3
    fanout [3, 2] { r6: latest(2), r4: weighted(2) }
    select train.loss
    seed   5
}
";

/// The same, with a last layer across relations, which ranks can share.
pub(crate) fn across_relations() -> String {
    let last = "Weighted() over [r3, r4, r5] of linear(recent + scaled, 3)";
    WITH_VALUES.replace("linear(relu(recent + scaled) + h, 3)", last).replace("[3, 2]", "[3, 3, 2]")
}

/// The entities with times, and weights, features and times of all edges.
pub(crate) fn with_values() -> Arc<Dataset> {
    let mut data = Dataset::clone(&entities());
    for relation in &mut data.relations {
        let edges = relation.src_ids.len();
        relation.weight = Some((0..edges).map(|edge| (edge % 7) as f32 * 0.5).collect::<Vec<f32>>().into());
        let rows: Vec<f32> = (0..2 * edges).map(|at| (at % 5) as f32 * 0.3 - 0.6).collect();
        relation.features = Some(DenseFeatures { dim: 2, rows: rows.into() });
        relation.time = Some((0..edges).map(|edge| (edge * 7 % 11) as i64).collect());
    }
    for of in &mut data.vertex_types {
        of.time = Some((0..of.count).map(|vertex| (vertex * 5 % 13) as i64).collect());
    }
    Arc::new(data)
}

/// Values of edges come from the owners of their destinations, who draw by them as well. A metapath is built before its edges
/// are divided.
#[test]
fn values_of_edges_are_asked_for() {
    agree("weights", WITH_WEIGHTS, &with_values(), &|_| true);
    agree("values", WITH_VALUES, &with_values(), &|_| true);
}

/// Walks go over edges that each rank has, and ask nobody.
#[test]
fn walks_are_drawn_by_each_rank() {
    let walks = "fanout [3, 2] { twice: walks(4, top: 2), r6: weighted(2) }";
    let source = WITH_WEIGHTS.replace("fanout [3, 2] { r6: weighted(2) }", walks);
    agree("walks", &source, &with_values(), &|_| true);
    // Only one hop of the batches goes over it.
    let one_hop = source.replace("twice: walks(4, top: 2)", "twice: [walks(4, top: 2), 2]");
    agree("walks in one hop", &one_hop, &with_values(), &|_| true);
    let last = source
        .replace("let drawn = linear", "output y: Entity = linear")
        .replace("over [r6, twice, r7] of dropout(read, 0.2), 4)", "over [r6, twice, r7] of dropout(read, 0.2), 3)");
    let last = last
        .replace("    output y: Entity = linear(relu(drawn) + Entity.x, 3)\n", "")
        .replace("fanout [3, 2]", "fanout [3]");
    for (ranks, replicas) in [(2, 1), (4, 2)] {
        let of = |distribute| train_sharing((Split::Relations, replicas), ranks, distribute, &last, &with_values());
        for (whole, by_owners) in of(NOTHING).iter().zip(&of(BOTH)) {
            assert_eq!((&by_owners.losses, &by_owners.params), (&whole.losses, &whole.params), "of {ranks}");
        }
    }
}

/// Of a vertex whose value was kept, no rank asks for edges.
#[test]
fn reused_vertices_ask_for_no_edges() {
    let reuse = |fanouts: &str| format!("{fanouts}    reuse hot(0.5, batches: 2)\n");
    for (first, fanouts) in [("RgcnConv(hidden: 4)", "    fanout [2, 3]\n"), ("RgatConv(hidden: 2, heads: 2)", "")] {
        let source = of_labels(first, &reuse(fanouts));
        agree(first, &source, &entities(), &|_| true);
        let trained = train_on(3, BOTH, &source, &entities());
        let all =
            trained.iter().flat_map(|of_rank| of_rank.reused).fold([0, 0], |[r, e], own| [r + own[0], e + own[1]]);
        assert!(all[0] > 0 && all[1] > 0, "{all:?}");
    }
}

/// Ranks that share the relations ask for the edges of their own relations to the seeds, and then for all edges of what they
/// have reached: as ranks that sample the whole graph, alone or in two replicas.
#[test]
fn owners_draw_for_ranks_that_share_relations() {
    let dropout = "RgatConv(hidden: 2, heads: 2, dropout: 0.3)";
    let models = [
        (of_labels("RgcnConv(hidden: 4)", "    fanout [2, 3]\n"), entities()),
        (of_labels(dropout, ""), entities()),
        // The seeds are reached in one hop.
        (of_labels(dropout, "").replace("let h = ", "let h = Entity.x\n    let deeper = "), entities()),
        (across_relations(), with_values()),
    ];
    for (source, data) in &models {
        for (ranks, replicas) in [(2, 1), (3, 1), (4, 2)] {
            let of = |distribute| train_sharing((Split::Relations, replicas), ranks, distribute, source, data);
            let (whole, by_owners) = (of(NOTHING), of(BOTH));
            for (rank, (whole, by_owners)) in whole.iter().zip(&by_owners).enumerate() {
                assert_eq!(by_owners.losses, whole.losses, "rank {rank} of {ranks}: {source}");
                assert_eq!(by_owners.params, whole.params, "rank {rank} of {ranks}: {source}");
            }
            let divided = by_owners[0].edges.values().filter(|[own, all]| own < all).count();
            assert!(divided > 0, "{:?}", by_owners[0].edges);
        }
    }
}

/// A cache changes no number: rows that it keeps are asked for once, before training.
#[test]
fn cached_rows_of_others_are_not_sent_again() {
    let source = of_labels("RgcnConv(hidden: 4)", "    fanout [2, 3]\n").replace("epochs 4", "epochs 12");
    let data = entities();
    let run = |distribute: Distributed, cache: Option<u64>| -> Vec<Trained> {
        let all = threads::run(3, |comm| {
            let ranks = Ranks { sections: 6, distribute, ..Ranks::new(Arc::clone(comm)) };
            train_with(&source, &data, ranks, cache)
        });
        all.into_iter().map(|trained| trained.unwrap_or_else(|error| panic!("{error}"))).collect()
    };
    for distribute in [BOTH, Distributed { edges: false, features: true }] {
        let without = run(distribute, None);
        // No row, five rows, and all rows of others.
        let mut sent = vec![];
        for bytes in [0, 5 * 16, 30 * 16] {
            let cached = run(distribute, Some(bytes));
            for (rank, (cached, without)) in cached.iter().zip(&without).enumerate() {
                assert_eq!((&cached.losses, &cached.params), (&without.losses, &without.params), "rank {rank}");
            }
            assert_eq!(cached[0].hit_rate.map(|rate| rate > 0.0), Some(bytes > 0), "{:?}", cached[0].hit_rate);
            sent.push(cached[0].sent);
        }
        assert_eq!(sent[0], without[0].sent, "a cache without rows");
        assert!(sent[0] > sent[1] && sent[1] > sent[2], "{sent:?}");
    }
}

/// Links of a batch are no messages of it on any rank, whoever has drawn the edges.
#[test]
fn links_are_left_out_of_edges_that_owners_draw() {
    let model = rank_links::MODEL.replace("epochs    4", "epochs    2");
    for source in [model.clone(), model.replace("negatives", "fanout    [2, 2]\n    negatives")] {
        let data = rank_links::music();
        let (whole, by_owners) = (train_on(3, NOTHING, &source, &data), train_on(3, BOTH, &source, &data));
        for (rank, (whole, by_owners)) in whole.iter().zip(&by_owners).enumerate() {
            assert_eq!((&by_owners.losses, &by_owners.params), (&whole.losses, &whole.params), "rank {rank}");
        }
        let divided = by_owners[0].edges.iter().filter(|(_, [own, all])| own < all).count();
        assert!(divided > 0, "{:?}", by_owners[0].edges);
    }
}

/// Each refusal names the reason.
#[test]
fn models_that_need_the_whole_graph_are_refused() {
    let source = of_labels("RgcnConv(hidden: 4)", "");
    let refused = |source: &str, expected: &str| {
        for error in threads::run(2, |comm| {
            train(source, &with_values(), Ranks { sections: 6, distribute: BOTH, ..Ranks::new(Arc::clone(comm)) })
        }) {
            let error = error.expect_err("refused");
            assert!(error.contains("cannot be divided among the processes") && error.contains(expected), "{error}");
        }
    };
    refused(&source.replace("    batch 6\n", ""), "no `batch`");
    let mixed = "fanout [3, 2, 2] { twice: [walks(4, top: 2), 2, 2] }";
    let deeper = WITH_WEIGHTS.replace("dropout(read, 0.2)", "linear(Plain() over [twice] of dropout(read, 0.2), 4)");
    refused(&deeper.replace("fanout [3, 2] { r6: weighted(2) }", mixed), "`walks`");
}
