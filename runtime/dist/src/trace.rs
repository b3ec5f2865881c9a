//! Traces: the times of computing and the messages of ranks, recorded in their order, and replayed on a network.
//!
//! A [`Trace`] has the measured times of a rank's computations, and the bytes of its messages. [`replay`] lets the ranks go
//! through their traces on a model of a network: a message of b bytes occupies the ports of its sender and its receiver
//! for α + b/β, where α is the latency of the network and β its bandwidth (Hockney 1994). Ports carry one message at a
//! time, and those of different pairs of ranks do not slow each other down: the network itself has no bottleneck. A rank
//! computes while its messages travel, until it waits for an exchange: for what others send, and until its own is gone.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::Tag;
use crate::network::Network;

/// An exchange: all ranks start those of a tag in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ExchangeId {
    pub tag: Tag,
    /// Its number among those of the tag, from 0.
    pub number: u32,
}

/// A part of a rank's work.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// Seconds of computing.
    Compute(f64),
    /// Starts an exchange, with bytes for each rank.
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    Start { exchange: ExchangeId, bytes: Vec<u64> },
    /// Waits for what the others send, and until its own messages have left.
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    Wait { exchange: ExchangeId },
    /// The end of a step.
    StepEnd,
}

/// A rank's work in its order.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Trace(pub Vec<Event>);

impl Trace {
    /// Seconds of computing.
    pub fn compute_s(&self) -> f64 {
        let seconds = |event: &Event| if let Event::Compute(seconds) = event { *seconds } else { 0.0 };
        self.0.iter().map(seconds).sum()
    }

    /// One step for all that were recorded: the median times of computing between two exchanges, and mean bytes. Other work
    /// on the machine delays single computations; where all ranks wait for the slowest, the mean of steps would count the
    /// worst delay of any rank.
    pub fn median_step(&self) -> Trace {
        let mut steps: Vec<Vec<(f64, &Event)>> = vec![vec![]];
        let mut seconds = 0.0;
        for event in &self.0 {
            match event {
                Event::Compute(more) => seconds += more,
                other => {
                    steps.last_mut().expect("there is a step").push((std::mem::take(&mut seconds), other));
                    if *other == Event::StepEnd {
                        steps.push(vec![]);
                    }
                }
            }
        }
        steps.pop();
        let Some(first) = steps.first() else { return Trace::default() };
        let mut events = vec![];
        for (place, (_, event)) in first.iter().enumerate() {
            let in_steps = || steps.iter().filter_map(|step| step.get(place));
            let mut times: Vec<f64> = in_steps().map(|(seconds, _)| *seconds).collect();
            times.sort_by(f64::total_cmp);
            events.push(Event::Compute(times[times.len() / 2]));
            match event {
                Event::Start { exchange, bytes } => {
                    let mut sums = vec![0; bytes.len()];
                    for (_, event) in in_steps() {
                        let Event::Start { bytes, .. } = event else { continue };
                        sums.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
                    }
                    let bytes = sums.iter().map(|sum| sum / steps.len() as u64).collect();
                    events.push(Event::Start { exchange: *exchange, bytes });
                }
                other => events.push((*other).clone()),
            }
        }
        Trace(events)
    }

    /// Number of exchanges that were started.
    pub fn exchanges(&self) -> usize {
        self.0.iter().filter(|event| matches!(event, Event::Start { .. })).count()
    }

    /// The same work with all times of computing multiplied.
    pub fn slowed(&self, factor: f64) -> Trace {
        let slowed = |event: &Event| match event {
            Event::Compute(seconds) => Event::Compute(factor * seconds),
            other => other.clone(),
        };
        Trace(self.0.iter().map(slowed).collect())
    }

    /// Bytes that a rank sends to others.
    pub fn sent_bytes(&self, rank: usize) -> u64 {
        let of_exchange = |event: &Event| match event {
            Event::Start { bytes, .. } => bytes.iter().sum::<u64>() - bytes[rank],
            Event::Compute(_) | Event::Wait { .. } | Event::StepEnd => 0,
        };
        self.0.iter().map(of_exchange).sum()
    }
}

/// Times of a rank on a network.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RankTimes {
    /// Seconds from the start of all ranks to the end of this one.
    pub end_s: f64,
    /// Seconds of computing.
    pub compute_s: f64,
    /// Seconds of waiting for messages.
    pub wait_s: f64,
}

/// A message that was sent.
struct Message {
    from: usize,
    /// When the sender's port begins to carry it.
    departure_s: f64,
    bytes: u64,
}

/// A rank on its way through its trace.
#[derive(Default)]
struct Rank {
    next: usize,
    times: RankTimes,
    /// When the ports are free.
    sends_until_s: f64,
    receives_until_s: f64,
    /// By exchange that was not waited for: when its last message has left.
    left_s: HashMap<ExchangeId, f64>,
}

/// The times of ranks that go through their traces on a network, all from the same moment on.
pub fn replay(traces: &[Trace], network: &Network) -> Vec<RankTimes> {
    let mut ranks: Vec<Rank> = traces.iter().map(|_| Rank::default()).collect();
    // By exchange and receiving rank; a message from each rank.
    let mut messages: HashMap<(ExchangeId, usize), Vec<Message>> = HashMap::new();
    loop {
        let mut advanced = false;
        for (number, trace) in traces.iter().enumerate() {
            while let Some(event) = trace.0.get(ranks[number].next) {
                let rank = &mut ranks[number];
                match event {
                    Event::Compute(seconds) => {
                        rank.times.end_s += seconds;
                        rank.times.compute_s += seconds;
                    }
                    Event::Start { exchange, bytes } => {
                        // To the next rank first, so that not all begin with the same one.
                        for to in (1..=bytes.len()).map(|step| (number + step) % bytes.len()) {
                            let (mut departure_s, bytes) = (rank.times.end_s, bytes[to]);
                            if to != number && bytes > 0 {
                                departure_s = departure_s.max(rank.sends_until_s);
                                rank.sends_until_s = departure_s + network.seconds(bytes);
                            }
                            let message = Message { from: number, departure_s, bytes };
                            messages.entry((*exchange, to)).or_default().push(message);
                        }
                        if bytes.iter().enumerate().any(|(to, &bytes)| to != number && bytes > 0) {
                            rank.left_s.insert(*exchange, rank.sends_until_s);
                        }
                    }
                    Event::Wait { exchange } => {
                        let key = (*exchange, number);
                        if messages.get(&key).is_none_or(|arrived| arrived.len() < traces.len()) {
                            break;
                        }
                        let arrived_s = rank.receive(messages.remove(&key).unwrap_or_default(), number, network);
                        // Its own messages have to be gone, too, before it writes to their memory again.
                        let left_s = rank.left_s.remove(exchange).unwrap_or(0.0);
                        let waited_s = (arrived_s.max(left_s) - rank.times.end_s).max(0.0);
                        rank.times.wait_s += waited_s;
                        rank.times.end_s += waited_s;
                    }
                    Event::StepEnd => {}
                }
                ranks[number].next += 1;
                advanced = true;
            }
        }
        if !advanced {
            break;
        }
    }
    ranks.into_iter().map(|rank| rank.times).collect()
}

impl Rank {
    /// When all messages have arrived, if the port takes those that were sent first.
    fn receive(&mut self, mut messages: Vec<Message>, number: usize, network: &Network) -> f64 {
        messages.retain(|message| message.from != number && message.bytes > 0);
        messages.sort_by(|a, b| a.departure_s.total_cmp(&b.departure_s).then(a.from.cmp(&b.from)));
        for message in &messages {
            self.receives_until_s = self.receives_until_s.max(message.departure_s) + network.seconds(message.bytes);
        }
        if messages.is_empty() { 0.0 } else { self.receives_until_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Network = Network { latency_s: 1.0, bytes_per_s: 10.0 };

    fn exchange(number: u32) -> ExchangeId {
        ExchangeId { tag: Tag::STEP, number }
    }

    fn start(number: u32, bytes: &[u64]) -> Event {
        Event::Start { exchange: exchange(number), bytes: bytes.to_vec() }
    }

    fn wait(number: u32) -> Event {
        Event::Wait { exchange: exchange(number) }
    }

    fn ends(traces: Vec<Vec<Event>>) -> Vec<f64> {
        let traces: Vec<Trace> = traces.into_iter().map(Trace).collect();
        replay(&traces, &NETWORK).iter().map(|times| times.end_s).collect()
    }

    #[test]
    fn a_rank_waits_for_the_slower_one() {
        let slow = vec![Event::Compute(5.0), start(0, &[20, 0]), wait(0)];
        let fast = vec![Event::Compute(2.0), start(0, &[0, 40]), wait(0)];
        // The message leaves at 5, and takes 1 + 20/10.
        assert_eq!(ends(vec![fast, slow]), [8.0, 8.0]);
    }

    #[test]
    fn a_rank_computes_while_messages_travel() {
        let rank = |to: usize| {
            let bytes = if to == 0 { [20, 0] } else { [0, 20] };
            vec![start(0, &bytes), Event::Compute(2.0), wait(0), Event::Compute(1.0)]
        };
        assert_eq!(ends(vec![rank(1), rank(0)]), [4.0, 4.0]);
    }

    #[test]
    fn a_port_carries_one_message_at_a_time() {
        let all: Vec<Vec<Event>> = (0..4).map(|_| vec![start(0, &[10; 4]), wait(0)]).collect();
        // (n - 1)(α + b/β)
        assert_eq!(ends(all), [6.0; 4]);
    }

    #[test]
    fn a_median_step_has_median_times_and_mean_bytes() {
        let step = |number: u32, seconds: f64, bytes: u64| {
            let times = [Event::Compute(seconds / 2.0), Event::Compute(seconds / 2.0)];
            [&times[..], &[start(number, &[0, bytes]), wait(number), Event::Compute(1.0), Event::StepEnd]].concat()
        };
        let trace = Trace([step(3, 2.0, 10), step(4, 90.0, 20), step(5, 4.0, 12)].concat());
        let Event::Start { bytes, .. } = start(3, &[0, 14]) else { panic!("it is one") };
        let expected = vec![
            Event::Compute(4.0),
            Event::Start { exchange: exchange(3), bytes },
            Event::Compute(0.0),
            wait(3),
            Event::Compute(1.0),
            Event::StepEnd,
        ];
        assert_eq!(trace.median_step(), Trace(expected));
    }

    #[test]
    fn times_and_bytes_of_a_trace_are_summed() {
        let trace = Trace(vec![Event::Compute(1.0), start(0, &[5, 7]), Event::Compute(0.5), wait(0)]);
        assert_eq!((trace.compute_s(), trace.sent_bytes(0), trace.sent_bytes(1)), (1.5, 7, 5));
    }
}
