//! Plans of several ranks: the bytes that are predicted are those that are sent, and one process follows a plan as well.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hgnnc::rank_plan::{Candidate, PlanRequest, RankPlan, Shared, plan_ranks};
use hgnnc::simulate::{Simulation, simulate};
use hgnnc::{Error, Job, Purpose, Silent, Split, prepare};
use hgnnc_dist::network::Network;
use hgnnc_dist::threads;
use hgnnc_graph::Dataset;
use hgnnc_machine::Machine;
use hgnnc_model_tests::{World, case};

use crate::rank_links;
use crate::ranks::{TRAIN, job, world_of};

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

/// The plans for as many ranks, by what they share.
fn plans(source: &str, data: &Arc<Dataset>, ranks: usize) -> Vec<Candidate> {
    let request = PlanRequest { ranks, network: NETWORK, machine: Machine::cpu(), batches: 1000 };
    let found = plan_ranks(&job(source, data, None), &request, &mut Silent);
    found.unwrap_or_else(|error| panic!("{error}")).all
}

/// The bytes that each rank sends in the steps of an epoch.
fn counted(source: &str, data: &Arc<Dataset>, plan: &RankPlan) -> Vec<u64> {
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
    models.push(("links", rank_links::MODEL.replace("epochs    4", "epochs    1"), rank_links::music()));
    for (name, source, data) in models {
        for ranks in [2, 3] {
            let mut planned = 0;
            for candidate in plans(&source, &data, ranks) {
                let Candidate::Planned(plan) = candidate else { continue };
                planned += 1;
                let sent = counted(&source, &data, &plan);
                assert_eq!(plan.predicted.sent_bytes, sent, "{name}, {ranks} ranks, divided by {}", plan.share.name());
                assert!(sent.iter().all(|&bytes| bytes > 0) && plan.predicted.step_ms > 0.0, "{name}: {plan:?}");
            }
            assert!(planned > 0, "{name} has a plan for {ranks} ranks");
        }
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
        let simulation =
            |steps| Simulation { ranks: vec![1, 3], split: Split::Seeds, weak: false, steps, network: NETWORK };
        let report = simulate(&job(&source, &data, None), &simulation(2), None, &mut Silent);
        let report = report.unwrap_or_else(|error| panic!("{name}: {error}"));
        let [one, three] = &report.runs[..] else { panic!("{report:?}") };
        assert!(report.simulated && one.sent_bytes == 0.0 && one.efficiency == 1.0, "{report:?}");
        assert_eq!((one.ranks, three.ranks, three.of_ranks.len(), report.sensitivity.len()), (1, 3, 3, 6));
        assert!(three.step_ms >= three.of_ranks.iter().map(|rank| rank.compute_ms).fold(0.0, f64::max));
        if !batch {
            let Candidate::Planned(plan) = plans(&source, &data, 3).remove(0) else { panic!("{name} has a plan") };
            let sent: Vec<u64> = three.of_ranks.iter().map(|rank| rank.sent_bytes as u64).collect();
            assert_eq!(sent, plan.predicted.sent_bytes, "{name}");
        }
    }
}

#[test]
fn more_seeds_for_more_ranks_need_batches() {
    let source = source_of("gcn", false);
    let simulation = Simulation { ranks: vec![2], split: Split::Seeds, weak: true, steps: 1, network: NETWORK };
    let job: Job = job(&source, &world("gcn", &source), None);
    let error = simulate(&job, &simulation, None, &mut Silent).expect_err("no batch").to_string();
    assert!(error.contains("give it a `batch`"), "{error}");
}
