//! Random choices with planted communities.

use std::collections::HashSet;

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::shapes::Words;

/// Vertices to sample from by weight, overall and by community.
pub(super) struct Pool {
    ids: Vec<u32>,
    all: Cumulative,
    by_class: Vec<Cumulative>,
}

/// Positions with their cumulative weights.
#[derive(Default)]
struct Cumulative {
    positions: Vec<u32>,
    sums: Vec<f64>,
}

impl Cumulative {
    fn push(&mut self, position: usize, weight: f64) {
        self.sums.push(self.sums.last().copied().unwrap_or(0.0) + weight);
        self.positions.push(position as u32);
    }

    fn draw(&self, rng: &mut ChaCha8Rng) -> Option<u32> {
        let total = *self.sums.last()?;
        let at = rng.random::<f64>() * total;
        let i = self.sums.partition_point(|&s| s <= at).min(self.sums.len() - 1);
        Some(self.positions[i])
    }
}

impl Pool {
    /// `ids` by descending weight: rank r (from 1) has weight r^-exponent.
    pub fn new(ids: Vec<u32>, exponent: f64, class: &[usize], classes: usize) -> Pool {
        let mut all = Cumulative::default();
        let mut by_class: Vec<Cumulative> = (0..classes).map(|_| Cumulative::default()).collect();
        for (i, &v) in ids.iter().enumerate() {
            let weight = (i as f64 + 1.0).powf(-exponent);
            all.push(i, weight);
            by_class[class[v as usize]].push(i, weight);
        }
        Pool { ids, all, by_class }
    }

    fn any(&self, rng: &mut ChaCha8Rng) -> u32 {
        self.ids[self.all.draw(rng).unwrap_or(0) as usize]
    }

    /// A vertex of community `class` with probability `affinity`, otherwise any vertex.
    pub fn near(&self, class: usize, affinity: f64, rng: &mut ChaCha8Rng) -> u32 {
        if rng.random::<f64>() < affinity
            && let Some(i) = self.by_class[class].draw(rng)
        {
            return self.ids[i as usize];
        }
        self.any(rng)
    }
}

/// Distinct (source, destination) pairs, sorted. `src_class` and `dst_class` are communities by vertex id.
pub(super) fn pairs(
    src: &Pool,
    dst: &Pool,
    (src_class, dst_class): (&[usize], &[usize]),
    num: usize,
    affinity: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<(u32, u32)> {
    let (s, d) = (src.ids.len(), dst.ids.len());
    let num = num.min(s * d);
    if num == s && d < s {
        return one_each(src, dst, (src_class, dst_class), affinity, rng);
    }
    let mut seen = HashSet::with_capacity(num);
    let mut found = Vec::with_capacity(num);
    let mut add = |pair: (u32, u32), found: &mut Vec<(u32, u32)>| {
        let new = found.len() < num && seen.insert(pair);
        if new {
            found.push(pair);
        }
        new
    };
    let (mut free_src, mut free_dst) = (vec![true; src_class.len()], vec![true; dst_class.len()]);
    // Every source and destination gets an edge if `num` suffices: destinations take unused sources first.
    if num >= s {
        for &u in &src.ids {
            let v = dst.near(src_class[u as usize], affinity, rng);
            add((u, v), &mut found);
            (free_src[u as usize], free_dst[v as usize]) = (false, false);
        }
    }
    if num >= if num >= s { s + d } else { d } {
        for &v in &dst.ids {
            if free_dst[v as usize] {
                let u = src.near(dst_class[v as usize], affinity, rng);
                add((u, v), &mut found);
            }
        }
    }
    let mut misses = 0;
    while found.len() < num && misses < 100 * num + 1000 {
        let u = src.any(rng);
        let v = dst.near(src_class[u as usize], affinity, rng);
        misses += usize::from(!add((u, v), &mut found));
    }
    // Nearly complete graphs: fill up with the remaining pairs in order.
    for &u in &src.ids {
        for &v in &dst.ids {
            if found.len() == num {
                break;
            }
            add((u, v), &mut found);
        }
    }
    found.sort_unstable();
    found
}

/// One destination for every source, and one source for every destination.
fn one_each(
    src: &Pool,
    dst: &Pool,
    (src_class, dst_class): (&[usize], &[usize]),
    affinity: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<(u32, u32)> {
    let mut of: Vec<u32> = src.ids.iter().map(|&u| dst.near(src_class[u as usize], affinity, rng)).collect();
    let mut degree = vec![0usize; dst_class.len()];
    for &v in &of {
        degree[v as usize] += 1;
    }
    for &v in &dst.ids {
        while degree[v as usize] == 0 {
            let i = rng.random_range(0..of.len());
            if degree[of[i] as usize] > 1 {
                degree[of[i] as usize] -= 1;
                of[i] = v;
                degree[v as usize] = 1;
            }
        }
    }
    let mut found: Vec<(u32, u32)> = src.ids.iter().copied().zip(of).collect();
    found.sort_unstable();
    found
}

/// Both directions of `num / 2` distinct pairs without self loops, sorted; every vertex gets one if `num` suffices.
pub(super) fn symmetric(
    pool: &Pool,
    class: &[usize],
    num: usize,
    affinity: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<(u32, u32)> {
    let n = pool.ids.len();
    let half = (num / 2).min(n * n.saturating_sub(1) / 2);
    let mut seen = HashSet::with_capacity(half);
    let mut found = Vec::with_capacity(2 * half);
    let mut add = |u: u32, v: u32, found: &mut Vec<(u32, u32)>| {
        if u != v && found.len() < 2 * half && seen.insert((u.min(v), u.max(v))) {
            found.extend([(u, v), (v, u)]);
        }
    };
    for &u in &pool.ids {
        add(u, pool.near(class[u as usize], affinity, rng), &mut found);
    }
    let mut tries = 0;
    while found.len() < 2 * half && tries < 1000 * half {
        let u = pool.any(rng);
        add(u, pool.near(class[u as usize], affinity, rng), &mut found);
        tries += 1;
    }
    found.sort_unstable();
    found
}

/// All self pairs and both directions of the pairs within small groups (papers with a common author), `num` in all.
pub(super) fn cliques(
    pool: &Pool,
    class: &[usize],
    num: usize,
    affinity: f64,
    rng: &mut ChaCha8Rng,
) -> Vec<(u32, u32)> {
    let half = num.saturating_sub(pool.ids.len()) / 2;
    let mut seen = HashSet::with_capacity(half);
    let mut found: Vec<(u32, u32)> = pool.ids.iter().map(|&v| (v, v)).collect();
    while seen.len() < half {
        let first = pool.any(rng);
        // Sizes 2, 3, … each half as likely as the one before: many authors with two papers, few with many.
        let mut group = vec![first];
        while group.len() < 2 || (group.len() < 12 && rng.random::<f64>() < 0.72) {
            group.push(pool.near(class[first as usize], affinity, rng));
        }
        for (i, &u) in group.iter().enumerate() {
            for &v in &group[i + 1..] {
                if u != v && seen.len() < half && seen.insert((u.min(v), u.max(v))) {
                    found.extend([(u, v), (v, u)]);
                }
            }
        }
    }
    found.sort_unstable();
    found
}

/// Rows of a binary bag of words: row offsets, ascending word ids.
pub(super) fn bags(class: &[usize], classes: usize, words: Words, rng: &mut ChaCha8Rng) -> (Vec<i64>, Vec<i32>) {
    // A word has a popularity independent of its class; its class is random.
    let mut vocabulary: Vec<u32> = (0..words.dim as u32).collect();
    vocabulary.shuffle(rng);
    let word_class: Vec<usize> = (0..words.dim).map(|_| rng.random_range(0..classes)).collect();
    let pool = Pool::new(vocabulary, 0.5, &word_class, classes);
    let (mut indptr, mut indices) = (vec![0i64], Vec::new());
    let mut row = Vec::new();
    for &c in class {
        let least = (words.per_vertex / 2).max(1);
        let n = rng.random_range(least..=(2 * words.per_vertex).saturating_sub(least).max(least));
        row.clear();
        row.extend((0..n).map(|_| pool.near(c, words.signal, rng) as i32));
        row.sort_unstable();
        row.dedup();
        indices.extend_from_slice(&row);
        indptr.push(indices.len() as i64);
    }
    (indptr, indices)
}

/// `0..n` in random order.
pub(super) fn shuffled(n: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..n as u32).collect();
    ids.shuffle(rng);
    ids
}
