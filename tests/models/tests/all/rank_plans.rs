//! Plans of several ranks: the bytes that are predicted are those that are sent, and one process follows a plan as well.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::rank_plan::{Candidate, Candidates, PlanRequest, RankPlan, Shared, plan_ranks};
use hgnnc::simulate::{Simulation, simulate};
use hgnnc::{Distributed, Error, Job, Purpose, Ranks, Silent, Split, prepare};
use hgnnc_dataset::Dataset;
use hgnnc_dist::network::Network;
use hgnnc_dist::threads;
use hgnnc_machine::Machine;
use hgnnc_model_tests::{Case, World, case};

use crate::ranks::{TRAIN, job, world_of};
use crate::{rank_graph_stacks, rank_links, rank_sampling, rank_stacks};

const NETWORK: Network = Network { latency_s: 1e-5, bytes_per_s: 1e9 };
/// Adam, clipped gradients and dropout, on batches with rows that are learned.
const EPOCHS: &str = "epochs 5";

fn source_of(name: &str, batch: bool) -> String {
    let block = TRAIN.replace(EPOCHS, "epochs 1");
    case(name).trained_by(&if batch { block.replace("seed 3", "seed 3\n    batch 4") } else { block })
}

fn world(name: &str, source: &str) -> Arc<Dataset> {
    let world = if name == "rgcn_sparse" { World::sparse_library() } else { World::random_library(4) };
    world_of(&case(name), source, &world)
}

fn found(source: &str, data: &Arc<Dataset>, ranks: usize, network: Network) -> Candidates {
    let (machine, batches) = (Machine::cpu(), 1000);
    requested(source, data, &PlanRequest { ranks, network, machine, batches, distribute: Distributed::default() })
}

fn requested(source: &str, data: &Arc<Dataset>, request: &PlanRequest) -> Candidates {
    let found = plan_ranks(&job(source, data, None), request, &mut Silent);
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// The plans for as many ranks, by what they share.
fn plans(source: &str, data: &Arc<Dataset>, ranks: usize) -> Vec<Candidate> {
    found(source, data, ranks, NETWORK).all
}

/// The bytes that each rank sends in the steps of an epoch.
pub fn counted(source: &str, data: &Arc<Dataset>, plan: &RankPlan) -> Vec<u64> {
    let of_ranks = threads::run(plan.ranks, |comm| -> Result<Vec<u64>, Error> {
        let ranks = plan.ranks(Arc::clone(comm));
        let mut prepared = prepare(Purpose::Train, &job(source, data, Some(ranks)), &mut Silent)?;
        prepared.trainer.run(&AtomicBool::new(false), &mut |_| {})?;
        Ok(prepared.report()?.ranks.iter().map(|rank| rank.train_bytes).collect())
    });
    of_ranks.into_iter().next().expect("a rank").unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn predicted_bytes_are_those_that_are_sent() {
    let of_cases = [("rgcn_basis", false), ("han", false), ("sage_mean", true), ("rgcn_sparse", true), ("hgt", true)];
    let mut models: Vec<(&str, String, Arc<Dataset>)> = vec![];
    for (name, batch) in of_cases {
        let source = source_of(name, batch);
        let data = world(name, &source);
        models.push((name, source, data));
    }
    let many = rank_stacks::of_labels("RgcnConv(hidden: 4)", "").replace("epochs 4", "epochs 1");
    models.push(("many relations", many, rank_stacks::entities()));
    let graph = rank_graph_stacks::model("x: onehot", "RgcnConv(hidden: 4)", rank_graph_stacks::LAST);
    models.push((
        "many relations on the whole graph",
        graph.replace("epochs 5", "epochs 1"),
        rank_graph_stacks::weighted(),
    ));
    let reused = rank_stacks::of_labels("RgcnConv(hidden: 4)", "    fanout [2, 3]\n    reuse hot(0.5, batches: 2)\n");
    models.push(("reused embeddings", reused.replace("epochs 4", "epochs 1"), rank_stacks::entities()));
    models.push(("links", rank_links::MODEL.replace("epochs    4", "epochs    1"), rank_links::music()));
    let mut grids = 0;
    for (name, source, data) in models {
        for ranks in [2, 3, 4] {
            let mut planned = 0;
            for candidate in plans(&source, &data, ranks) {
                let Candidate::Planned(plan) = candidate else { continue };
                planned += 1;
                grids += usize::from(plan.replicas > 1);
                let sent = counted(&source, &data, &plan);
                assert_eq!(plan.predicted.sent_bytes, sent, "{name}, {ranks} ranks, divided by {}", plan.share.name());
                assert!(sent.iter().all(|&bytes| bytes > 0) && plan.predicted.step_ms > 0.0, "{name}: {plan:?}");
            }
            assert!(planned > 0, "{name} has a plan for {ranks} ranks");
        }
    }
    assert_eq!(grids, 4, "those of models whose relations are shared");
}

/// Requests for edges and the answers are counted as well, for the ways to divide the work that have them.
#[test]
fn predicted_bytes_are_those_that_owners_of_vertices_send() {
    let (hgt, sparse) = (source_of("hgt", true), source_of("rgcn_sparse", true));
    let many = rank_stacks::of_labels("RgatConv(hidden: 2, heads: 2, dropout: 0.3)", "    fanout [2, 3]\n");
    let values = rank_sampling::across_relations().replace("epochs 3", "epochs 1");
    let models = [
        (world("hgt", &hgt), hgt),
        (rank_stacks::entities(), many.replace("epochs 4", "epochs 1")),
        (world("rgcn_sparse", &sparse), sparse),
        (rank_sampling::with_values(), values.clone()),
        (rank_sampling::with_values(), values.replace("    select", "    reuse hot(0.5, batches: 2)\n    select")),
    ];
    let mut shares = vec![];
    for (data, source) in models {
        let whole = plans(&source, &data, 3);
        let Some(Candidate::Planned(whole)) =
            whole.iter().find(|it| matches!(it, Candidate::Planned(of) if of.share == Shared::Seeds))
        else {
            panic!("{whole:?}")
        };
        let (network, machine) = (NETWORK, Machine::cpu());
        let distribute = Distributed { edges: true, features: true };
        let request = PlanRequest { ranks: 3, network, machine, batches: 1000, distribute };
        for candidate in requested(&source, &data, &request).all {
            let Candidate::Planned(plan) = candidate else { continue };
            assert_eq!(plan.distribute, distribute, "{plan:?}");
            assert_eq!(plan.predicted.sent_bytes, counted(&source, &data, &plan), "{}: {source}", plan.share.name());
            shares.push(plan.share);
            if plan.share == Shared::Seeds {
                let more = plan.predicted.sent_bytes.iter().zip(&whole.predicted.sent_bytes);
                assert!(more.clone().all(|(by_owners, alone)| by_owners > alone), "{more:?}");
            }
        }
    }
    assert_eq!(shares.iter().filter(|&&share| share == Shared::Relations).count(), 4, "{shares:?}");
}

/// The training kernels of so many ranks.
fn kernels_of(ranks: usize, source: &str, data: &Arc<Dataset>) -> String {
    let of_ranks = threads::run(ranks, |comm| {
        let ranks = Ranks::new(Arc::clone(comm));
        let prepared = prepare(Purpose::Train, &job(source, data, Some(ranks)), &mut Silent);
        let prepared = prepared.unwrap_or_else(|error| panic!("{error}"));
        prepared.trainer.executable().kernels.train.as_ref().expect("it is trained").to_string()
    });
    of_ranks.into_iter().next().expect("a rank")
}

/// Few seeds reach more vertices than they are, so rows are added before they are projected; of many seeds the vertices are
/// fewer, and are projected first. Ranks once had the program for the seeds of all of them.
#[test]
fn ranks_are_compiled_for_their_part_of_the_seeds() {
    let data = rank_stacks::entities();
    let kernels = |ranks: usize, batch: usize| {
        let train = format!("    loss cross_entropy(y, Entity.topic)\n    batch {batch}\n    select train.loss");
        let body = "    output y: Entity = RgcnConv(hidden: 3) over [r7] of Entity.x";
        kernels_of(ranks, &rank_stacks::source("use std::rgcn::RgcnConv", "x: embedding[64]", body, &train), &data)
    };
    let of_few = kernels(1, 2);
    assert_eq!(kernels(8, 16), of_few);
    assert_ne!(kernels(1, 16), of_few);
}

/// Ranks have read their parts of the relations, and one process has all of them: the sizes of stacks are estimated on both.
#[test]
fn the_whole_graph_has_one_program_for_all_numbers_of_ranks() {
    for features in ["x: onehot", "x: f32[4]", "x: embedding[24]"] {
        let source = rank_graph_stacks::model(features, "RgcnConv(hidden: 4)", rank_graph_stacks::LAST);
        let data = rank_graph_stacks::weighted();
        let of_one = kernels_of(1, &source, &data);
        assert_eq!(kernels_of(3, &source, &data), of_one, "{features}");
    }
}

#[test]
fn what_is_not_divided_is_said_with_its_reason() {
    let source = source_of("gcn", true);
    let data = world("gcn", &source);
    let found = plans(&source, &data, 3);
    let is_refused = |candidate: &Candidate| match candidate {
        Candidate::Refused(Shared::Relations, why) => why.contains("3 processes cannot share 1 semantic graph"),
        _ => false,
    };
    assert!(matches!(&found[0], Candidate::Planned(plan) if plan.share == Shared::Seeds), "{found:?}");
    assert!(is_refused(&found[1]), "{found:?}");
}

#[test]
fn a_simulation_sends_the_planned_bytes() {
    for (name, batch) in [("rgcn_basis", false), ("sage_mean", true)] {
        let source = source_of(name, batch);
        let data = world(name, &source);
        let simulation = |steps, distribute| Simulation {
            ranks: vec![1, 3],
            split: Split::Seeds,
            distribute,
            weak: false,
            steps,
            network: NETWORK,
        };
        let report = simulate(&job(&source, &data, None), &simulation(2, Distributed::default()), None, &mut Silent);
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        let [one, three] = &report.runs[..] else { panic!("{report:?}") };
        assert!(report.simulated && one.sent_bytes == 0.0 && one.efficiency == 1.0, "{report:?}");
        assert!(one.alone && three.alone, "there is room for the messages: {report:?}");
        assert_eq!((one.ranks, three.ranks, three.of_ranks.len(), report.sensitivity.len()), (1, 3, 3, 6));
        assert!(three.step_ms >= three.of_ranks.iter().map(|rank| rank.compute_ms).fold(0.0, f64::max));
        if batch {
            // Rows and edges of owners are sent as well.
            let both = Distributed { edges: true, features: true };
            let divided = simulate(&job(&source, &data, None), &simulation(2, both), None, &mut Silent);
            let divided = divided.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(divided.runs[1].sent_bytes > three.sent_bytes, "{divided:?}");
        } else {
            let Candidate::Planned(plan) = plans(&source, &data, 3).remove(0) else { panic!("{name} has a plan") };
            let sent: Vec<u64> = three.of_ranks.iter().map(|rank| rank.sent_bytes as u64).collect();
            assert_eq!(sent, plan.predicted.sent_bytes, "{name}");
        }
    }
}

#[test]
fn more_seeds_for_more_ranks_need_batches() {
    let source = source_of("gcn", false);
    let distribute = Distributed::default();
    let simulation =
        Simulation { ranks: vec![2], split: Split::Seeds, distribute, weak: true, steps: 1, network: NETWORK };
    let job: Job = job(&source, &world("gcn", &source), None);
    let error = simulate(&job, &simulation, None, &mut Silent).expect_err("no batch").to_string();
    assert!(error.contains("give it a `batch`"), "{error}");
}

/// Checks where a plan of two ranks puts the edges, of which there are so many by relation, and the rows of tables.
fn check_places(plan: &RankPlan, edges: &[(&str, u64)]) {
    assert_eq!(plan.graphs.len(), edges.len(), "{:?}", plan.graphs);
    for (graph, &(name, count)) in plan.graphs.iter().zip(edges) {
        assert_eq!((&graph.graph[..], graph.edges.len()), (name, 2));
        assert_eq!(graph.edges.iter().sum::<u64>(), count, "{graph:?}");
        match plan.share {
            Shared::Vertices => assert_eq!(graph.out_edges.iter().sum::<u64>(), count, "{graph:?}"),
            Shared::Seeds => assert!(graph.to_seeds.is_empty() && graph.edges[0] == graph.edges[1], "{graph:?}"),
            Shared::Relations | Shared::Grid => {
                let other = 1 - plan.relations[name];
                assert_eq!((&graph.to_seeds, graph.edges[other]), (&graph.edges, 0), "{graph:?}");
            }
        }
    }
    let tables: Vec<(&str, usize, &[[usize; 2]])> =
        plan.tables.iter().map(|of| (&of.vertex[..], of.width, &of.rows[..])).collect();
    assert_eq!(tables, [("Author", 4, &[[0, 4], [4, 9]][..]), ("Venue", 4, &[[0, 4], [4, 9]])]);
}

#[test]
fn a_plan_says_where_edges_and_rows_are() {
    let edges = [("writes", 4), ("reviews", 3), ("prints", 2), ("lists", 1)];
    let mut shares = vec![];
    for batch in ["", "\n    batch 6"] {
        let source = TABLES.trained_by(&TRAIN.replace("seed 3", &format!("seed 3{batch}")));
        let data = world_of(&TABLES, &source, &world_of_tables([4, 3, 2, 1]));
        // On mini-batches, each seed of an epoch samples all its in-edges.
        let rows = if batch.is_empty() { 12 } else { data.splits[0].train.len() as u64 };
        for candidate in plans(&source, &data, 2) {
            let Candidate::Planned(plan) = candidate else { panic!("{candidate:?}") };
            shares.push(plan.share);
            check_places(&plan, &edges.map(|(name, of_paper)| (name, of_paper * rows)));
        }
    }
    shares.sort_by_key(|share| share.name());
    assert_eq!(shares, [Shared::Relations, Shared::Seeds, Shared::Vertices]);
}

/// The predicted milliseconds of computing of a mini-batch where all edges end at some of 12 000 papers.
fn computing(papers: u32) -> f64 {
    let batch = "seed 3\n    batch 12000\n    fanout [2]";
    let source = TABLES.trained_by(&TRAIN.replace("seed 3", batch));
    let edges: Vec<(u32, u32)> = (0..120_000).map(|edge| (edge * 7 % 900, edge % papers)).collect();
    let relations = ["writes", "reviews", "prints", "lists"].map(|name| (name, &edges[..]));
    let world = World::new(5, &[("Paper", 12_000), ("Author", 900), ("Venue", 900)], &relations);
    let found = found(&source, &world_of(&TABLES, &source, &world), 1, NETWORK);
    found.one_rank_ms
}

/// Expected sizes depend on the numbers of vertices and edges alone, and would be the same.
#[test]
fn times_follow_from_sampled_sizes() {
    let (skewed, even) = (computing(6), computing(12_000));
    println!("{skewed} ms where 6 papers have all edges, {even} ms where all have as many");
    assert!(skewed < 0.9 * even, "{skewed} and {even} ms");
}

/// Two relations from each of two types with learned rows.
const TABLES: Case = Case {
    name: "tables",
    uses: "use std::rgcn::RgcnConv",
    body: "    let conv = RgcnConv(hidden: 3) over relations of features
    output y: Paper = linear(conv.Paper, 3)",
    schema: "
schema Library {
    vertex Paper { x: f32[5], topic: class[3] }
    vertex Author { x: embedding[4] }
    vertex Venue { x: embedding[4] }

    relation writes: Author -> Paper
    relation reviews: Author -> Paper
    relation prints: Venue -> Paper
    relation lists: Venue -> Paper
}
",
};

/// So many edges of each of their relations to each of 12 papers.
fn world_of_tables(edges: [u32; 4]) -> World {
    let of = |count: u32| -> Vec<(u32, u32)> {
        (0..12).flat_map(|paper| (0..count).map(move |edge| ((3 * paper + edge) % 9, paper))).collect()
    };
    let [writes, reviews, prints, lists] = edges.map(of);
    let relations = [("writes", &writes[..]), ("reviews", &reviews), ("prints", &prints), ("lists", &lists)];
    World::new(5, &[("Paper", 12), ("Author", 9), ("Venue", 9)], &relations)
}

/// The plan of two ranks that share relations.
fn of_relations(case: &Case, edges: [u32; 4], network: Network) -> (RankPlan, String, Arc<Dataset>) {
    let source = case.trained_by(&TRAIN.replace(EPOCHS, "epochs 1").replace("seed 3", "seed 3\n    batch 6"));
    let data = world_of(case, &source, &world_of_tables(edges));
    let all = found(&source, &data, 2, network).all;
    let is_planned = |candidate: Candidate| match candidate {
        Candidate::Planned(plan) if plan.share == Shared::Relations => Some(*plan),
        _ => None,
    };
    (all.into_iter().find_map(is_planned).expect("a plan that shares relations"), source, data)
}

/// Whether the relations from authors have a rank, and those from venues the other.
fn is_by_table(plan: &RankPlan) -> bool {
    let rank = |name: &str| {
        let of_name = |(graph, &rank): (&String, &usize)| graph.contains(name).then_some(rank);
        plan.relations.iter().find_map(of_name).expect("a rank for each relation")
    };
    rank("writes") == rank("reviews") && rank("prints") == rank("lists") && rank("writes") != rank("prints")
}

#[test]
fn relations_with_a_table_in_common_have_one_rank() {
    let (plan, source, data) = of_relations(&TABLES, [4; 4], NETWORK);
    assert!(is_by_table(&plan), "{:?}", plan.relations);
    let sent: u64 = counted(&source, &data, &plan).iter().sum();
    assert_eq!(plan.predicted.sent_bytes.iter().sum::<u64>(), sent);
    // The heaviest relation to the rank with the least edges, all being equal: what was assigned by edges alone.
    let mut by_edges = plan.clone();
    by_edges.relations.values_mut().enumerate().for_each(|(at, rank)| *rank = at % 2);
    let of_names = |plan: &RankPlan| plan.relations.clone();
    if is_by_table(&by_edges) || of_names(&by_edges) == of_names(&plan) {
        by_edges.relations.values_mut().enumerate().for_each(|(at, rank)| *rank = at / 2);
    }
    assert!(!is_by_table(&by_edges), "{:?}", by_edges.relations);
    let before: u64 = counted(&source, &data, &by_edges).iter().sum();
    println!("{before} bytes by edges alone, {sent} with the rows of tables");
    assert!(sent < before, "{sent} and {before} bytes");
}

/// So many are not tried in all ways.
#[test]
fn many_relations_are_assigned_by_their_tables() {
    let from = |at: usize| if at.is_multiple_of(2) { "Author" } else { "Venue" };
    let names: Vec<String> = (0..10).map(|at| format!("{}{at}", from(at))).collect();
    let relations: Vec<String> =
        names.iter().enumerate().map(|(at, name)| format!("relation {name}: {} -> Paper", from(at))).collect();
    let (before, _) = TABLES.schema.split_once("relation").expect("relations");
    let schema = format!("{before}{}\n}}", relations.join("\n    "));
    let case = Case { schema: Box::leak(schema.into_boxed_str()), ..TABLES };
    let source = case.trained_by(&TRAIN.replace("seed 3", "seed 3\n    batch 6"));
    let edges: Vec<(u32, u32)> = (0..60).map(|edge| (edge % 9, edge / 5)).collect();
    let of_world: Vec<(&str, &[(u32, u32)])> = names.iter().map(|name| (&name[..], &edges[..])).collect();
    let world = World::new(5, &[("Paper", 12), ("Author", 9), ("Venue", 9)], &of_world);
    for candidate in found(&source, &world_of(&case, &source, &world), 2, NETWORK).all {
        let Candidate::Planned(plan) = candidate else { panic!("{candidate:?}") };
        if plan.share == Shared::Relations {
            assert_eq!(plan.relations.len(), 10);
            let of_authors = plan.relations["Author0"];
            for (graph, &rank) in &plan.relations {
                assert_eq!(rank == of_authors, graph.starts_with("Author"), "{:?}", plan.relations);
            }
        }
    }
}

#[test]
fn rows_of_tables_count_by_the_network() {
    let edges = [4, 3, 2, 1];
    // By edges, both ranks have as many: 4 and 1, 3 and 2.
    let (fast, ..) = of_relations(&TABLES, edges, Network { latency_s: 0.0, bytes_per_s: 1e18 });
    assert!(!is_by_table(&fast), "{:?}", fast.relations);
    let (slow, ..) = of_relations(&TABLES, edges, Network { latency_s: 0.0, bytes_per_s: 1e2 });
    assert!(is_by_table(&slow), "{:?}", slow.relations);
    // Features that are given do not travel.
    let given = TABLES.schema.replace("embedding[4]", "f32[4]");
    let given = Case { schema: Box::leak(given.into_boxed_str()), ..TABLES };
    let (given, ..) = of_relations(&given, edges, Network { latency_s: 0.0, bytes_per_s: 1e2 });
    assert!(!is_by_table(&given), "{:?}", given.relations);
}

#[test]
fn fewer_ranks_are_planned_as_well() {
    let source = source_of("rgcn_basis", true);
    let data = world("rgcn_basis", &source);
    let slow = found(&source, &data, 5, Network { latency_s: 1.0, bytes_per_s: 1e3 });
    let mut fewer: Vec<(usize, Shared)> = slow.fewer.iter().map(|plan| (plan.ranks, plan.share)).collect();
    fewer.sort_by_key(|&(ranks, share)| (ranks, share.name()));
    let all =
        [(1, Shared::Seeds), (2, Shared::Relations), (2, Shared::Seeds), (4, Shared::Relations), (4, Shared::Seeds)];
    assert_eq!(fewer, all);
    assert_eq!(slow.faster().map(|plan| plan.ranks), Some(1), "{slow:?}");
    assert!(slow.fewer.windows(2).all(|two| two[0].predicted.step_ms <= two[1].predicted.step_ms));
    // Their bytes are counted, too.
    for plan in slow.fewer.iter().filter(|plan| plan.ranks > 1) {
        assert_eq!(plan.predicted.sent_bytes, counted(&source, &data, plan), "{} ranks", plan.ranks);
    }
    let one = found(&source, &data, 1, NETWORK);
    assert!(one.fewer.is_empty() && one.faster().is_none() && one.one_rank_ms > 0.0, "{one:?}");
}
