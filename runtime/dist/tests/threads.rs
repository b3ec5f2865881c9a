//! Virtual ranks, which other engines are compared with.

mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hgnnc_dist::threads::{InTurns, Received, Recorder};
use hgnnc_dist::trace::{Event, Trace, replay};
use hgnnc_dist::{Alone, Comm, CommError, Exchange, Tag, network::Network, threads};
use proptest::prelude::*;

proptest! {
    #[test]
    fn exchanges_and_sums_are_those_of_one_process(size in 1usize..8, seed in any::<u64>()) {
        threads::run(size, |comm| work::everything(&**comm, seed));
    }
}

#[test]
fn one_process_exchanges_with_itself() {
    work::everything(&Alone, 1);
    let error = Alone.alltoallv(Tag::STEP, (&[1, 2], &[2]), (&mut [0], &[1])).unwrap_err();
    assert_eq!(error, CommError::Differs { from: 0, to: 0, sent: 2, expected: 1 });
}

#[test]
fn a_rank_that_expects_other_bytes_is_named() {
    let results = threads::run(2, |comm| {
        // Rank 1 expects 3 bytes of rank 0, which sends 4.
        let counts = [if comm.rank() == 1 { 3 } else { 4 }, 4];
        let mut recv = vec![0; counts.iter().sum()];
        comm.alltoallv(Tag::STEP, (&[0; 8], &[4, 4]), (&mut recv, &counts))
    });
    assert_eq!(results, [Ok(()), Err(CommError::Differs { from: 0, to: 1, sent: 4, expected: 3 })]);
}

#[test]
fn ranks_do_not_wait_for_one_that_has_ended() {
    let results = threads::run(3, |comm| match comm.rank() {
        0 => Err(CommError::Gone),
        _ => comm.barrier(),
    });
    let ended = CommError::Ended { rank: 0, reason: "its work is done".into() };
    assert_eq!(results[1..], [Err(ended.clone()), Err(ended)]);
    let results = threads::run(2, |comm| {
        if comm.rank() == 1 {
            comm.abort("the disk is full");
        }
        comm.barrier().and_then(|()| comm.barrier())
    });
    let full = results.iter().filter_map(|result| result.as_ref().err()).next();
    assert_eq!(full.map(ToString::to_string).as_deref(), Some("rank 1 has ended: the disk is full"));
}

#[test]
fn an_exchange_that_nobody_waits_for_leaves_no_messages() {
    threads::run(2, |comm| {
        let of = |byte: u8| Exchange {
            send: vec![byte; 2],
            send_counts: vec![1; 2],
            recv: vec![0; 2],
            recv_counts: vec![1; 2],
        };
        drop(comm.start(Tag::STEP, of(1)).unwrap());
        assert_eq!(comm.start(Tag::STEP, of(2)).unwrap().wait().unwrap().recv, [2, 2]);
    });
}

#[test]
fn a_panic_of_a_rank_ends_the_job() {
    let panic = std::panic::catch_unwind(|| {
        threads::run(3, |comm| {
            assert!(comm.rank() != 2, "as planned");
            comm.barrier().unwrap_err()
        })
    });
    let text = panic.unwrap_err().downcast::<String>().map_or_else(|_| "as planned".into(), |text| *text);
    assert!(text.contains("as planned"), "{text}");
}

#[test]
fn ranks_in_turns_compute_one_at_a_time_and_record_what_they_do() {
    const WORK: Duration = Duration::from_millis(20);
    let computing = AtomicUsize::new(0);
    let work = |comm: &Arc<dyn Comm>, recorder: &Recorder| {
        let mut most = 0;
        for step in 0..3 {
            if step == 1 {
                recorder.begin();
            }
            most = most.max(computing.fetch_add(1, Ordering::SeqCst));
            std::thread::sleep(WORK);
            computing.fetch_sub(1, Ordering::SeqCst);
            let counts = vec![4 * (1 + comm.rank()); 3];
            let (mut recv, recv_counts) = (vec![0; 24], [4, 8, 12]);
            let send = vec![comm.rank() as u8; counts.iter().sum()];
            comm.alltoallv(Tag::STEP, (&send, &counts), (&mut recv, &recv_counts)).unwrap();
            assert_eq!(recv, [vec![0; 4], vec![1; 8], vec![2; 12]].concat());
            if step == 1 {
                recorder.end();
            }
        }
        most
    };
    let InTurns { results, traces, received } = threads::run_in_turns(3, 10_000, work);
    assert_eq!(results, [0; 3], "no other rank computes meanwhile");
    let received = received.expect("there is room for two messages a step and rank");
    let alone = received.into_iter().enumerate().map(|(rank, received)| threads::run_alone((rank, 3), received, work));
    let (results, of_each): (Vec<usize>, Vec<Trace>) = alone.unzip();
    assert_eq!(results, [0; 3]);
    for (rank, trace) in traces.iter().chain(&of_each).enumerate() {
        let rank = rank % 3;
        let starts = trace.0.iter().filter(|event| matches!(event, Event::Start { .. })).count();
        assert_eq!((starts, trace.exchanges(), trace.sent_bytes(rank)), (1, 1, 8 * (1 + rank as u64)));
        let computed = Duration::from_secs_f64(trace.compute_s());
        // Time in which other ranks compute is not this one's.
        assert!(computed >= WORK && computed < 2 * WORK, "{computed:?}");
    }
    let fast = Network { latency_s: 0.0, bytes_per_s: 1e12 };
    assert!(replay(&traces, &fast).iter().all(|times| times.end_s < 2.0 * WORK.as_secs_f64()));
}

#[test]
fn a_rank_in_turns_that_fails_ends_the_others() {
    let InTurns { results, .. } = threads::run_in_turns(3, 0, |comm, _| {
        if comm.rank() == 1 {
            comm.abort("it has no data");
            return Err(CommError::Gone);
        }
        comm.barrier()
    });
    let ended = CommError::Ended { rank: 1, reason: "it has no data".into() };
    assert_eq!(results, [Err(ended.clone()), Err(CommError::Gone), Err(ended)]);
}

#[test]
fn messages_are_kept_while_there_is_room() {
    let work = |comm: &Arc<dyn Comm>, _: &Recorder| comm.barrier().is_ok();
    let exchange = |comm: &Arc<dyn Comm>, _: &Recorder| {
        let (send, mut recv) = ([comm.rank() as u8; 6], [0; 6]);
        comm.alltoallv(Tag::STEP, (&send, &[3; 2]), (&mut recv, &[3; 2])).unwrap();
        recv
    };
    let room = |bytes| threads::run_in_turns(2, bytes, exchange).received;
    // Three bytes for each of two ranks, in memory of their own and with places in queues.
    assert!(room(6).is_none() && room(250).is_some());
    let [received, _] = room(250).expect("there is room").try_into().unwrap();
    assert_eq!(threads::run_alone((0, 2), received, exchange).0, [0, 0, 0, 1, 1, 1]);
    // Work that waits for a message that did not come before.
    assert!(!threads::run_alone((0, 2), Received::default(), work).0);
}
