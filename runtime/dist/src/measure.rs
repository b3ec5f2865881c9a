//! Times of exchanges: `hgnnc cluster measure`.

use std::time::Instant;

use crate::{Comm, CommError, Tag, ordered_sum};

/// Times of a job, each the median of several repetitions.
#[derive(Clone, PartialEq, Debug)]
pub struct Times {
    /// Bytes of a message from rank 0 to the last rank, and seconds of one way.
    pub one_way: Vec<(usize, f64)>,
    /// Bytes for each rank, and seconds of an exchange of all ranks with all.
    pub exchange: Vec<(usize, f64)>,
    /// Numbers, and seconds of their sum in the order of the ranks.
    pub sum: Vec<(usize, f64)>,
}

impl Times {
    /// The seconds that a message takes however short it is (α).
    pub fn latency_s(&self) -> f64 {
        self.one_way.first().map_or(0.0, |&(_, seconds)| seconds)
    }

    /// The bytes a second of a long message (β).
    pub fn bytes_per_s(&self) -> f64 {
        let (bytes, seconds) = self.one_way.last().copied().unwrap_or((0, 1.0));
        bytes as f64 / (seconds - self.latency_s()).max(f64::MIN_POSITIVE)
    }
}

/// Measures exchanges of all ranks, of which there are two at least.
///
/// # Errors
/// As [`Comm::alltoallv`].
pub fn measure(comm: &dyn Comm) -> Result<Times, CommError> {
    let mut times = Times { one_way: Vec::new(), exchange: Vec::new(), sum: Vec::new() };
    for bytes in [8, 1 << 10, 16 << 10, 256 << 10, 4 << 20] {
        let mut ping_pong = PingPong::new(comm, bytes);
        times.one_way.push((bytes, median(comm, repetitions(bytes), || ping_pong.run(comm))? / 2.0));
    }
    let size = comm.size();
    for bytes in [1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let (send, mut recv) = (vec![1; bytes * size], vec![0; bytes * size]);
        let counts = vec![bytes; size];
        let exchange = || comm.alltoallv(Tag::STEP, (&send, &counts), (&mut recv, &counts));
        times.exchange.push((bytes, median(comm, repetitions(bytes), exchange)?));
    }
    for count in [1, 64 << 10, 1 << 20] {
        let mut values = vec![1.0f32; count];
        let sum = || ordered_sum(comm, Tag::STEP, &mut values);
        times.sum.push((count, median(comm, repetitions(4 * count), sum)?));
    }
    Ok(times)
}

/// A message from rank 0 to the last rank, and one back.
struct PingPong {
    /// Number of bytes for, and from, each rank: of the first message, and of the second one.
    counts: [[Vec<usize>; 2]; 2],
    /// As long as a message, or empty on a rank that has none.
    message: Vec<u8>,
    place: Vec<u8>,
}

impl PingPong {
    fn new(comm: &dyn Comm, bytes: usize) -> PingPong {
        let (rank, last) = (comm.rank(), comm.size() - 1);
        let counts = [(0, last), (last, 0)].map(|(from, to)| {
            [(from, to), (to, from)].map(|(own, other)| {
                let mut counts = vec![0; comm.size()];
                counts[other] = if rank == own { bytes } else { 0 };
                counts
            })
        });
        let len = if rank == 0 || rank == last { bytes } else { 0 };
        PingPong { counts, message: vec![1; len], place: vec![0; len] }
    }

    fn run(&mut self, comm: &dyn Comm) -> Result<(), CommError> {
        for [send, recv] in &self.counts {
            let (sent, received) = (send.iter().sum(), recv.iter().sum());
            comm.alltoallv(Tag::STEP, (&self.message[..sent], send), (&mut self.place[..received], recv))?;
        }
        Ok(())
    }
}

fn repetitions(bytes: usize) -> usize {
    if bytes <= 16 << 10 { 200 } else { 20 }
}

/// The median of the seconds that `work` takes on this rank, after some repetitions to warm up.
fn median(
    comm: &dyn Comm,
    repetitions: usize,
    mut work: impl FnMut() -> Result<(), CommError>,
) -> Result<f64, CommError> {
    let mut seconds = Vec::with_capacity(repetitions);
    for repetition in 0..repetitions + 4 {
        comm.barrier()?;
        let start = Instant::now();
        work()?;
        if repetition >= 4 {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}
