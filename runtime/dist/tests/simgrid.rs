//! Traces on the network of SimGrid, if it is installed, against those on the model of latency and bandwidth.

use hgnnc_dist::Tag;
use hgnnc_dist::network::Network;
use hgnnc_dist::simgrid::{Request, SimgridError, simulate};
use hgnnc_dist::trace::{Event, ExchangeId, Trace, replay};

const RANKS: usize = 6;

/// Ranks that compute, send many bytes to each, and later few, and wait for them. Rank 2 is slower.
fn traces() -> Vec<Trace> {
    let of_rank = |rank: usize| {
        let step = |number: u32| {
            let exchange = ExchangeId { tag: Tag::STEP, number };
            let count = if number == 0 { 1_000_000 } else { 100 };
            let bytes = (0..RANKS).map(|to| count * u64::from(to != rank)).collect();
            let compute = if number > 0 {
                0.0
            } else if rank == 2 {
                0.02
            } else {
                0.01
            };
            let overlapped = if number == 0 { 0.001 } else { 0.0 };
            [
                Event::Compute(compute),
                Event::Start { exchange, bytes },
                Event::Compute(overlapped),
                Event::Wait { exchange },
            ]
        };
        Trace((0..40).flat_map(step).collect())
    };
    (0..RANKS).map(of_rank).collect()
}

#[test]
fn times_are_those_of_latency_and_bandwidth() {
    let network = Network { latency_s: 1e-5, bytes_per_s: 1e9 };
    let traces = traces();
    let folder = std::env::temp_dir().join(format!("hgnnc-simgrid-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let simulated = simulate(Request { traces: traces.clone(), network }, &folder);
    std::fs::remove_dir_all(&folder).unwrap();
    let simulated = match simulated {
        Ok(simulated) => simulated,
        Err(error @ SimgridError::NotFound(_)) => return println!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let expected = replay(&traces, &network);
    for (rank, (found, expected)) in simulated.iter().zip(&expected).enumerate() {
        assert!(
            (found.end_s / expected.end_s - 1.0).abs() < 0.2,
            "rank {rank}: {found:?}, and {expected:?} by the model"
        );
        assert!((found.compute_s - expected.compute_s).abs() < 1e-9);
        assert!((found.end_s - found.compute_s - found.wait_s).abs() < 1e-4, "{found:?}");
    }
    let again = simulate(Request { traces, network }, &std::env::temp_dir());
    assert!(matches!(again, Err(SimgridError::Again)), "{again:?}");
}
