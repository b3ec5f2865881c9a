//! Mini-batches of several processes that send projections of learned rows, where these are narrower than the rows.

use std::sync::Arc;

use hgnnc::rank_plan::{Candidate, PlanRequest, RankPlan, Shared, plan_ranks};
use hgnnc::{Distributed, Job, Ranks, Silent};
use hgnnc_dataset::Dataset;
use hgnnc_dist::network::Network;
use hgnnc_dist::{Comm, threads};
use hgnnc_driver::Disabled;
use hgnnc_machine::Machine;
use hgnnc_model_tests::{Case, World};

use crate::rank_plans::counted;
use crate::ranks::{TRAIN, Trained, job, train, world_of};

/// Rows of 24 numbers, of which a relation and the layer itself have projections of 3.
const WIDE: Case = Case {
    name: "wide_rows",
    uses: "use std::rgcn::RgcnConv",
    body: "    let first = dropout(relu(RgcnConv(hidden: 3) over [relations, reverses] of features), 0.2)
    output y: Paper = RgcnConv(hidden: 3) over [relations, reverses] of first",
    schema: "
schema Library {
    vertex Paper { x: f32[5], topic: class[3] }
    vertex Author { x: embedding[24] }
    vertex Venue { x: embedding[24] }

    relation cites: Paper -> Paper
    relation writes: Author -> Paper
    relation appears_in: Paper -> Venue
}
",
};

/// A batch reaches few of the authors within one hop, and most of them within two.
fn model() -> (String, Arc<Dataset>) {
    let of_batch = "seed 3\n    batch 6\n    fanout [1, 8]";
    let source = WIDE.trained_by(&TRAIN.replace("epochs 5", "epochs 2").replace("seed 3", of_batch));
    let edges = |count: u32, (sources, each): (u32, u32)| -> Vec<(u32, u32)> {
        (0..count).flat_map(|to| (0..each).map(move |edge| ((7 * to + 31 * edge) % sources, to))).collect()
    };
    let (cites, writes) = (edges(60, (60, 6)), edges(60, (40, 8)));
    let appears_in: Vec<(u32, u32)> = (0..60).map(|paper| (paper, paper % 5)).collect();
    let relations = [("cites", &cites[..]), ("writes", &writes), ("appears_in", &appears_in)];
    let world = World::new(5, &[("Paper", 60), ("Author", 40), ("Venue", 5)], &relations);
    let data = world_of(&WIDE, &source, &world);
    (source, data)
}

/// The plan of ranks that share the seeds, on a network that sends so many bytes a second.
fn plan(source: &str, data: &Arc<Dataset>, (ranks, bytes_per_s): (usize, f64)) -> RankPlan {
    let network = Network { latency_s: 1e-5, bytes_per_s };
    let (machine, distribute) = (Machine::cpu(), Distributed::default());
    let request = PlanRequest { ranks, network, machine, batches: 1000, distribute };
    let found = plan_ranks(&job(source, data, None), &request, &mut Silent).unwrap_or_else(|error| panic!("{error}"));
    let of_seeds = |candidate: Candidate| match candidate {
        Candidate::Planned(plan) if plan.share == Shared::Seeds => Some(*plan),
        _ => None,
    };
    found.all.into_iter().find_map(of_seeds).expect("a plan that shares seeds")
}

/// Numbers of a row of authors that all ranks send each other.
fn widths(plan: &RankPlan) -> Vec<&str> {
    let messages = plan.predicted.messages.iter().map(|message| &message.what[..]);
    let mut of_authors: Vec<&str> = messages.filter(|what| what.starts_with("Author.2.owned to ")).collect();
    of_authors.sort_unstable();
    of_authors
}

/// The results of ranks that follow a plan.
fn train_by(plan: &RankPlan, disabled: &Disabled, source: &str, data: &Arc<Dataset>) -> Vec<Trained> {
    let of_ranks = threads::run(plan.ranks, |comm| {
        let job = job(source, data, Some(plan.ranks(Arc::clone(comm))));
        train(&Job { disabled: disabled.clone(), ..job })
    });
    of_ranks.into_iter().map(|trained| trained.unwrap_or_else(|error| panic!("{error}"))).collect()
}

#[test]
fn planned_projections_are_those_that_are_sent() {
    let (source, data) = model();
    for ranks in [2, 3] {
        let slow = plan(&source, &data, (ranks, 1e6));
        // The first layer computes values of a few authors, for which it needs their rows.
        let of_authors =
            ["Author.2.owned to Author.1, 24 numbers a row", "Author.2.owned to Author.2, 3 numbers a row"];
        assert_eq!(widths(&slow), of_authors);
        let of_epoch = source.replace("epochs 2", "epochs 1");
        assert_eq!(slow.predicted.sent_bytes, counted(&of_epoch, &data, &slow), "{ranks} ranks");
    }
}

/// The weights are those of training that sends the rows, except for rounding: its sums have another order.
#[test]
fn projections_change_no_result() {
    let (source, data) = model();
    let disabled = Disabled { passes: vec!["narrow_exchanges".into()], ..Disabled::default() };
    for ranks in [2, 3] {
        let slow = plan(&source, &data, (ranks, 1e6));
        let (narrow, whole) =
            (train_by(&slow, &Disabled::default(), &source, &data), train_by(&slow, &disabled, &source, &data));
        for rank in &narrow {
            assert_eq!(rank.losses, narrow[0].losses, "all ranks have the same losses");
        }
        let divided = RankPlan { distribute: Distributed { edges: true, features: true }, ..slow };
        let by_owners = train_by(&divided, &Disabled::default(), &source, &data);
        assert_eq!(by_owners[0].bits(), narrow[0].bits(), "{ranks} ranks that have divided the dataset");
        for (a, b) in narrow[0].params.iter().zip(&whole[0].params) {
            assert!((a - b).abs() < 1e-3, "{ranks} ranks: {a} instead of {b}");
        }
        let change = narrow[0].losses.iter().zip(&whole[0].losses).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(change < 1e-5, "{ranks} ranks: losses differ by {change}");
    }
}

/// A network as fast as memory leaves the rows to the ranks that have sampled them: fewer vertices are projected then.
#[test]
fn the_network_decides() {
    let (source, data) = model();
    let fast = plan(&source, &data, (2, 1e15));
    assert!(fast.element_cost < 1.0, "{}", fast.element_cost);
    assert_eq!(widths(&fast), ["Author.2.owned to Author.2, 24 numbers a row"]);
}

/// Rows that no gradient comes back to are sent all the same: two ranks once ended in a panic.
#[test]
fn rows_without_a_gradient_are_sent() {
    let (source, data) = model();
    let source = source
        .replace(" of features)", " of {Paper.x, stop_gradient(Author.x), Venue.x})")
        .replace("    fanout [1, 8]\n", "");
    let of_ranks = |ranks: usize| {
        let of_rank = |comm: &Arc<dyn Comm>| train(&job(&source, &data, Some(Ranks::new(Arc::clone(comm)))));
        threads::run(ranks, of_rank).swap_remove(0).unwrap_or_else(|error| panic!("{error}"))
    };
    let (one, two) = (of_ranks(1), of_ranks(2));
    for (epoch, (a, b)) in one.losses.iter().zip(&two.losses).enumerate() {
        assert!((a - b).abs() < 1e-5, "epoch {epoch}: {b} instead of {a}");
    }
}
