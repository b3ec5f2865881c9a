//! Minimum cuts that separate a source from a sink (Dinic's algorithm; Dinic 1970), for graphs of a few thousand nodes.

use std::collections::VecDeque;

/// A capacity that no cut passes through.
pub const INFINITE: u64 = u64::MAX / 4;

/// A directed graph with capacities.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Target and remaining capacity; arc `2i + 1` is the reverse of arc `2i`.
    arcs: Vec<(usize, u64)>,
    /// The arcs that leave each node.
    leaving: Vec<Vec<usize>>,
}

impl Network {
    /// A network of the nodes `0..nodes` without arcs.
    pub fn new(nodes: usize) -> Self {
        Self { arcs: vec![], leaving: vec![vec![]; nodes] }
    }

    /// Adds an arc of this capacity, with a reverse arc of capacity 0.
    ///
    /// # Panics
    /// When a node does not exist.
    pub fn add(&mut self, from: usize, to: usize, capacity: u64) {
        self.leaving[from].push(self.arcs.len());
        self.arcs.push((to, capacity));
        self.leaving[to].push(self.arcs.len());
        self.arcs.push((from, 0));
    }

    /// A minimum cut: its capacity, and for each node whether it is on the side of the sink. Of all minimum cuts, the
    /// one with the fewest nodes on that side.
    pub fn cut(mut self, source: usize, sink: usize) -> (u64, Vec<bool>) {
        let mut flow: u64 = 0;
        loop {
            let level = self.levels(source);
            if level[sink] == usize::MAX || flow >= INFINITE {
                break;
            }
            let mut next = vec![0; self.leaving.len()];
            loop {
                let pushed = self.push(source, sink, &level, &mut next);
                if pushed == 0 {
                    break;
                }
                flow = flow.saturating_add(pushed);
            }
        }
        // Backwards from the sink, over arcs with residual capacity.
        let mut side = vec![false; self.leaving.len()];
        side[sink] = true;
        let mut pending = vec![sink];
        while let Some(node) = pending.pop() {
            for &arc in &self.leaving[node] {
                let (from, room) = (self.arcs[arc].0, self.arcs[arc ^ 1].1);
                if room > 0 && !side[from] {
                    side[from] = true;
                    pending.push(from);
                }
            }
        }
        (flow, side)
    }

    /// Distances from the source over arcs with residual capacity.
    fn levels(&self, source: usize) -> Vec<usize> {
        let mut level = vec![usize::MAX; self.leaving.len()];
        level[source] = 0;
        let mut pending = VecDeque::from([source]);
        while let Some(node) = pending.pop_front() {
            for &arc in &self.leaving[node] {
                let (to, room) = self.arcs[arc];
                if room > 0 && level[to] == usize::MAX {
                    level[to] = level[node] + 1;
                    pending.push_back(to);
                }
            }
        }
        level
    }

    /// Augments the flow along one path of increasing levels and returns its amount; 0 where there is no path. The path
    /// is a list, not a recursion, since programs can be deep.
    fn push(&mut self, source: usize, sink: usize, level: &[usize], next: &mut [usize]) -> u64 {
        let mut path: Vec<usize> = vec![];
        let mut node = source;
        while node != sink {
            let step = self.leaving[node][next[node]..].iter().position(|&arc| {
                let (to, room) = self.arcs[arc];
                room > 0 && level[to] == level[node] + 1
            });
            if let Some(skipped) = step {
                next[node] += skipped;
                let arc = self.leaving[node][next[node]];
                path.push(arc);
                node = self.arcs[arc].0;
            } else {
                next[node] = self.leaving[node].len();
                let Some(arc) = path.pop() else { return 0 };
                node = self.arcs[arc ^ 1].0;
                next[node] += 1;
            }
        }
        let room = path.iter().map(|&arc| self.arcs[arc].1).min().unwrap_or(0);
        for arc in path {
            self.arcs[arc].1 -= room;
            self.arcs[arc ^ 1].1 += room;
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least capacity of all divisions of the nodes.
    fn brute_force(nodes: usize, arcs: &[(usize, usize, u64)], source: usize, sink: usize) -> u64 {
        (0..1u32 << nodes)
            .filter(|set| set >> source & 1 == 1 && set >> sink & 1 == 0)
            .map(|set| {
                let cut = arcs.iter().filter(|&&(from, to, _)| set >> from & 1 == 1 && set >> to & 1 == 0);
                cut.map(|arc| arc.2).sum()
            })
            .min()
            .expect("the source alone is one")
    }

    fn network(nodes: usize, arcs: &[(usize, usize, u64)]) -> Network {
        let mut network = Network::new(nodes);
        arcs.iter().for_each(|&(from, to, capacity)| network.add(from, to, capacity));
        network
    }

    #[test]
    fn cuts_of_random_graphs_are_those_of_all_divisions() {
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for case in 0..400 {
            let nodes = 3 + draw(7) as usize;
            let acyclic = case % 2 == 0;
            let mut arcs = vec![];
            for _ in 0..draw(4 * nodes as u64) {
                let (from, to) = (draw(nodes as u64) as usize, draw(nodes as u64) as usize);
                if from < to || (!acyclic && from != to) {
                    arcs.push((from, to, draw(9)));
                }
            }
            let (flow, side) = network(nodes, &arcs).cut(0, nodes - 1);
            assert_eq!(flow, brute_force(nodes, &arcs, 0, nodes - 1), "case {case}: {arcs:?}");
            let crossing = arcs.iter().filter(|&&(from, to, _)| !side[from] && side[to]);
            assert_eq!(crossing.map(|arc| arc.2).sum::<u64>(), flow, "case {case}: the side is a minimum cut");
            assert!(!side[0] && side[nodes - 1], "case {case}");
        }
    }

    #[test]
    fn of_equal_cuts_the_one_nearest_the_sink_is_taken() {
        let (flow, side) = network(4, &[(0, 1, 5), (1, 2, 5), (2, 3, 5)]).cut(0, 3);
        assert_eq!((flow, side), (5, vec![false, false, false, true]));
    }
}
