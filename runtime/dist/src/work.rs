//! Exchanges that another thread carries out.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::{CommError, Exchange, Pending, Tag, check, parts};

/// Time that a rank waits before it ends the job, unless HGNNC_RANK_TIMEOUT is another number of seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// Time that a rank waits for others that do not answer, of the environment.
pub(crate) fn patience() -> Result<Duration, CommError> {
    match std::env::var("HGNNC_RANK_TIMEOUT") {
        Ok(value) => value.parse().map(Duration::from_secs).map_err(|_| CommError::Timeout { value }),
        Err(_) => Ok(PATIENCE),
    }
}

/// An exchange between this rank and all others. The memory is that of [`Answer`]'s owner, who waits for `done` before
/// it is used or freed.
pub(crate) struct Work {
    pub tag: Tag,
    pub send: *const u8,
    pub send_counts: Vec<usize>,
    pub recv: *mut u8,
    pub recv_counts: Vec<usize>,
    pub done: Sender<Result<(), CommError>>,
}

// SAFETY: the thread that made it waits for `done` before it uses or frees the memory.
#[allow(unsafe_code)]
unsafe impl Send for Work {}

/// The result of an exchange, once it is done.
pub(crate) struct Answer(Receiver<Result<(), CommError>>);

impl Answer {
    pub fn wait(&self) -> Result<(), CommError> {
        self.0.recv().unwrap_or(Err(CommError::Gone))
    }
}

impl Work {
    /// Copies the part of this rank for itself; the other parts are left to the thread that gets the work.
    pub fn new(
        (rank, size): (usize, usize),
        tag: Tag,
        send: (&[u8], &[usize]),
        recv: (&mut [u8], &[usize]),
    ) -> Result<(Work, Answer), CommError> {
        check(size, send.0.len(), send.1);
        check(size, recv.0.len(), recv.1);
        let own = |counts: &[usize]| -> Range<usize> { parts(counts).nth(rank).unwrap_or_default() };
        let (from, to) = (own(send.1), own(recv.1));
        if from.len() != to.len() {
            return Err(CommError::Differs { from: rank, to: rank, sent: from.len(), expected: to.len() });
        }
        recv.0[to].copy_from_slice(&send.0[from]);
        let (done, answer) = channel();
        let (send_counts, recv_counts) = (send.1.to_vec(), recv.1.to_vec());
        let (send, recv) = (send.0.as_ptr(), recv.0.as_mut_ptr());
        Ok((Work { tag, send, send_counts, recv, recv_counts, done }, Answer(answer)))
    }

    /// As [`Work::new`], of an exchange that owns its memory.
    pub fn started(rank: (usize, usize), tag: Tag, mut exchange: Exchange) -> Result<(Work, Started), CommError> {
        let Exchange { send, send_counts, recv, recv_counts } = &mut exchange;
        let (work, answer) = Work::new(rank, tag, (send, send_counts), (recv, recv_counts))?;
        Ok((work, Started { exchange: Some(exchange), answer }))
    }
}

/// An exchange that owns its memory.
pub(crate) struct Started {
    /// None once it was waited for.
    exchange: Option<Exchange>,
    answer: Answer,
}

impl Pending for Started {
    fn wait(mut self: Box<Self>) -> Result<Exchange, CommError> {
        let answer = self.answer.wait();
        let exchange = self.exchange.take().unwrap_or_default();
        answer.map(|()| exchange)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // The memory is read and written until the exchange is done.
        if self.exchange.is_some() {
            let _ = self.answer.wait();
        }
    }
}
