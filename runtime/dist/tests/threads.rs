//! Virtual ranks, which other engines are compared with.

mod work;

use hgnnc_dist::{Alone, Comm, CommError, Exchange, Tag, threads};
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
