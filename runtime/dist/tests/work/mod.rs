//! Work of a rank whose results are known: the same on every engine.

use hgnnc_dist::{Comm, Exchange, Tag, all_gather, gather_texts, ordered_sum};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn rng(seed: u64, rank: usize) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed ^ (rank as u64) << 32)
}

/// Number of bytes from a rank to another one, and the bytes.
fn message(seed: u64, from: usize, to: usize) -> Vec<u8> {
    let mut rng = rng(seed.wrapping_add(to as u64), from);
    let length = if rng.random_ratio(1, 4) { 0 } else { rng.random_range(0..5000) };
    (0..length).map(|_| rng.random()).collect()
}

fn exchange(comm: &dyn Comm, seed: u64) -> (Exchange, Vec<u8>) {
    let (rank, size) = (comm.rank(), comm.size());
    let sent: Vec<Vec<u8>> = (0..size).map(|to| message(seed, rank, to)).collect();
    let expected: Vec<Vec<u8>> = (0..size).map(|from| message(seed, from, rank)).collect();
    let counts = |all: &[Vec<u8>]| all.iter().map(Vec::len).collect::<Vec<_>>();
    let recv = vec![0; counts(&expected).iter().sum()];
    let exchange = Exchange { send: sent.concat(), send_counts: counts(&sent), recv, recv_counts: counts(&expected) };
    (exchange, expected.concat())
}

/// Numbers of very different sizes, whose sum depends on the order.
fn numbers(seed: u64, rank: usize, count: usize) -> Vec<f32> {
    let mut rng = rng(seed, rank);
    (0..count).map(|_| (rng.random::<f32>() - 0.5) * 10f32.powi(rng.random_range(-3..4))).collect()
}

/// Everything that ranks do, with what must come of it.
pub fn everything(comm: &dyn Comm, seed: u64) {
    let (rank, size) = (comm.rank(), comm.size());
    // Two exchanges at once, which half of the ranks start in the other order.
    let [(step, expected), (ahead, of_ahead)] = [1, 2].map(|n| exchange(comm, seed.wrapping_add(n)));
    let (step, ahead) = if rank % 2 == 0 {
        let step = comm.start(Tag::STEP, step).unwrap();
        (step, comm.start(Tag::AHEAD, ahead).unwrap())
    } else {
        let ahead = comm.start(Tag::AHEAD, ahead).unwrap();
        (comm.start(Tag::STEP, step).unwrap(), ahead)
    };
    assert!(step.wait().unwrap().recv == expected, "rank {rank}");
    assert!(ahead.wait().unwrap().recv == of_ahead, "rank {rank}");
    // Two of one kind, waited for in the other order.
    let [(first, expected), (second, of_second)] = [3, 4].map(|n| exchange(comm, seed.wrapping_add(n)));
    let [first, second] = [first, second].map(|exchange| comm.start(Tag::STEP, exchange).unwrap());
    assert!(second.wait().unwrap().recv == of_second, "rank {rank}");
    assert!(first.wait().unwrap().recv == expected, "rank {rank}");
    comm.barrier().unwrap();
    for count in [0, 1, 5, 1000] {
        let mut sum = numbers(seed, rank, count);
        ordered_sum(comm, Tag::STEP, &mut sum).unwrap();
        let mut expected = numbers(seed, 0, count);
        for other in 1..size {
            expected.iter_mut().zip(numbers(seed, other, count)).for_each(|(sum, x)| *sum += x);
        }
        let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&sum), bits(&expected), "rank {rank}, {count} numbers");
    }
    let gathered = all_gather(comm, Tag::CONTROL, &[rank as u64, 7]).unwrap();
    assert_eq!(gathered, (0..size as u64).flat_map(|rank| [rank, 7]).collect::<Vec<_>>());
    let texts = gather_texts(comm, Tag::CONTROL, &"x".repeat(rank)).unwrap();
    assert_eq!(texts, (0..size).map(|rank| "x".repeat(rank)).collect::<Vec<_>>());
}
