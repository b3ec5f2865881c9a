//! A stable, cache-friendly sort of edges by an endpoint.
//!
//! Scattering the edges of a large graph directly would miss all caches and the TLB twice per edge. This is a radix
//! sort of two digits instead: edges first go to buckets of consecutive keys, each written sequentially, and from there
//! to their final positions. The cache lines being written at a time (one per bucket, then one per key of a bucket) fit
//! into a core's cache whatever the degrees. Time grows with the edges and not with the number of vertices.

use std::ops::Range;

use rayon::prelude::*;

use crate::csr::{PARALLEL_EDGES, cut, row_blocks};
use crate::memory::zeros;

/// Log2 of the largest number of keys of a bucket, unless there would be more buckets than that: the write-combining
/// lines of two arrays take 512 KiB.
const BUCKET_BITS: u32 = 12;

/// Buckets per thread, where there are enough keys: balances buckets of different sizes.
const BUCKETS_PER_THREAD: usize = 16;

/// Edges held in buckets at a time (12 bytes each), or an eighth of all if that is more: bounds the temporary memory by
/// a fraction of the result. All edges are scanned once per part.
const EDGES_AT_ONCE: usize = 1 << 22;

/// Largest number of parts.
const MOST_PARTS: usize = 8;

/// A sequence of edges, each with a key to sort by and a payload of two numbers.
pub(crate) trait Edges: Sync {
    /// Splits the edges into about `num` consecutive chunks.
    fn chunks(&self, num: usize) -> Vec<Range<usize>>;

    /// Calls `edge` with the key and payload of each edge of a chunk, in order.
    fn visit(&self, chunk: Range<usize>, edge: impl FnMut(u32, [u32; 2]));
}

/// The payloads sorted by key, stably; the entries of key `k` start at `indptr[k]`.
pub(crate) fn sorted_by_key(indptr: &[u64], edges: &impl Edges) -> [Vec<u32>; 2] {
    let keys = indptr.len() - 1;
    let total = indptr[keys] as usize;
    let mut sorted: [Vec<u32>; 2] = [zeros(total), zeros(total)];
    if total < PARALLEL_EDGES {
        let mut next: Vec<u32> = indptr[..keys].iter().map(|&start| start as u32).collect();
        let all = edges.chunks(1);
        all.into_iter()
            .for_each(|chunk| edges.visit(chunk, |key, payload| put(&mut next, key as usize, payload, &mut sorted)));
        return sorted;
    }
    let buckets = Buckets::new(indptr, rayon::current_num_threads());
    let [mut first, mut second] = sorted.each_mut().map(|sorted| &mut sorted[..]);
    for part in buckets.parts(total) {
        let len = (buckets.start(part.end) - buckets.start(part.start)) as usize;
        let (first_part, first_rest) = first.split_at_mut(len);
        let (second_part, second_rest) = second.split_at_mut(len);
        buckets.sort(part, edges, [first_part, second_part]);
        (first, second) = (first_rest, second_rest);
    }
    sorted
}

/// Writes a payload to the next free position of its key.
#[inline(always)]
fn put(next: &mut [u32], key: usize, [a, b]: [u32; 2], [first, second]: &mut [impl AsMut<[u32]>; 2]) {
    let place = next[key] as usize;
    first.as_mut()[place] = a;
    second.as_mut()[place] = b;
    next[key] += 1;
}

struct Buckets<'a> {
    indptr: &'a [u64],
    /// Log2 of the number of keys of a bucket.
    bits: u32,
    num: usize,
    threads: usize,
}

impl<'a> Buckets<'a> {
    fn new(indptr: &'a [u64], threads: usize) -> Buckets<'a> {
        let keys = indptr.len() - 1;
        let enough = (keys / (BUCKETS_PER_THREAD * threads)).max(1).ilog2().min(BUCKET_BITS);
        let bits = enough.max(keys.max(1).ilog2() / 2);
        Buckets { indptr, bits, num: keys.div_ceil(1 << bits), threads }
    }

    fn keys(&self, buckets: Range<usize>) -> Range<usize> {
        let end = |bucket: usize| (bucket << self.bits).min(self.indptr.len() - 1);
        end(buckets.start)..end(buckets.end)
    }

    /// Position of the first entry of a bucket.
    fn start(&self, bucket: usize) -> u64 {
        self.indptr[self.keys(bucket..bucket).start]
    }

    /// Consecutive buckets that are filled in one scan of the edges.
    fn parts(&self, total: usize) -> Vec<Range<usize>> {
        let starts: Vec<u64> = (0..=self.num).map(|bucket| self.start(bucket)).collect();
        row_blocks(&starts, total.div_ceil(EDGES_AT_ONCE).clamp(1, MOST_PARTS))
    }

    fn sort(&self, part: Range<usize>, edges: &impl Edges, sorted: [&mut [u32]; 2]) {
        let chunks = edges.chunks(self.threads);
        let bucket = |key: u32| (key as usize >> self.bits).wrapping_sub(part.start);
        let count = |chunk: &Range<usize>| {
            let mut counts = vec![0u32; part.len()];
            edges.visit(chunk.clone(), |key, _| counts.get_mut(bucket(key)).into_iter().for_each(|count| *count += 1));
            counts
        };
        let counts: Vec<Vec<u32>> = chunks.par_iter().map(count).collect();
        // Within each bucket the chunks follow one another, so the sort is stable.
        let mut filled: Vec<(u32, [u32; 2])> = zeros(sorted[0].len());
        let mut rest = &mut filled[..];
        let mut places: Vec<Vec<_>> = chunks.iter().map(|_| Vec::with_capacity(part.len())).collect();
        for bucket in 0..part.len() {
            for (places, counts) in places.iter_mut().zip(&counts) {
                let (own, others) = rest.split_at_mut(counts[bucket] as usize);
                places.push(own.iter_mut());
                rest = others;
            }
        }
        chunks.into_par_iter().zip(places).for_each(|(chunk, mut places)| {
            edges.visit(chunk, |key, payload| {
                if let Some(place) = places.get_mut(bucket(key)).and_then(Iterator::next) {
                    *place = (key, payload);
                }
            });
        });
        let starts: Vec<u64> =
            (part.start..=part.end).map(|bucket| self.start(bucket) - self.start(part.start)).collect();
        let rows: Vec<Range<usize>> = (0..part.len()).map(|row| row..row + 1).collect();
        let [first, second] = sorted.map(|sorted| cut(sorted, &starts, &rows));
        let buckets = part.into_par_iter().zip(&rows).zip(first.into_par_iter().zip(second));
        buckets.for_each(|((bucket, row), (first, second))| {
            let (keys, base) = (self.keys(bucket..bucket + 1), self.start(bucket));
            let mut next: Vec<u32> = self.indptr[keys.clone()].iter().map(|&start| (start - base) as u32).collect();
            let mut sorted = [first, second];
            for &(key, payload) in &filled[starts[row.start] as usize..starts[row.end] as usize] {
                put(&mut next, key as usize - keys.start, payload, &mut sorted);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct List<'a>(&'a [u32]);

    impl Edges for List<'_> {
        fn chunks(&self, num: usize) -> Vec<Range<usize>> {
            let size = self.0.len().div_ceil(num).max(1);
            (0..self.0.len()).step_by(size).map(|start| start..(start + size).min(self.0.len())).collect()
        }

        fn visit(&self, chunk: Range<usize>, mut edge: impl FnMut(u32, [u32; 2])) {
            chunk.for_each(|i| edge(self.0[i], [i as u32, !(i as u32)]));
        }
    }

    /// In one scan and in several; with few and many keys, isolated ones, and one that has most of the edges.
    #[test]
    fn edges_are_sorted_stably_whatever_the_degrees_and_threads() {
        let hash = |v: u32| v.wrapping_mul(2_654_435_761) >> 7;
        let few = PARALLEL_EDGES as u32 / 8;
        for (edges, ends) in
            [(0, 0), (0, 5), (few, 7), (few * 9, 1), (few * 9, 3), (few * 20, 100_000), (5 << 20, 30_000)]
        {
            let uniform: Vec<u32> = (0..edges).map(|i| hash(i) % ends).collect();
            let skewed: Vec<u32> = uniform.iter().map(|&end| if end % 3 == 0 { end } else { ends / 2 }).collect();
            for list in [uniform, skewed] {
                let mut indptr = vec![0u64; ends as usize + 1];
                list.iter().for_each(|&end| indptr[end as usize + 1] += 1);
                (0..ends as usize).for_each(|v| indptr[v + 1] += indptr[v]);
                let mut expected: Vec<u32> = (0..edges).collect();
                expected.sort_by_key(|&i| list[i as usize]);
                for threads in [1, 2, 5] {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let [first, second] = pool.install(|| sorted_by_key(&indptr, &List(&list)));
                    assert_eq!(first, expected, "{edges} edges, {ends} ends, {threads} threads");
                    assert!(first.iter().zip(&second).all(|(a, b)| *b == !a));
                }
            }
        }
    }
}
