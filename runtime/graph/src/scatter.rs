//! Sorting edges by one of their ends, stably, without leaving the caches.
//!
//! Written to their places in order of appearance, edges of a large graph would miss all caches, and the TLB, twice for each edge. So
//! edges first go to buckets of consecutive ends, each of which is written from front to back, and from there to their places:
//! the lines that are written at one time, one for each bucket and then one for each end of a bucket, fit into the cache of a processor
//! whatever the degrees (a radix sort of two digits). Time grows with the edges, with no regard to the number of vertices.

use std::ops::Range;

use rayon::prelude::*;

use crate::csr::{PARALLEL_EDGES, cut, row_blocks};
use crate::memory::zeros;

/// At most so many ends are a bucket, unless there would be more buckets than that as well: the lines of two arrays, half a
/// mebibyte.
const BUCKET_BITS: u32 = 12;

/// Buckets for each thread, where there are ends enough: some have more edges than others.
const BUCKETS_PER_THREAD: usize = 16;

/// So many edges are in buckets at one time (12 bytes each), or an eighth of all: what is on the way takes a small part of the memory that
/// the result takes. Edges are looked through once for each such part.
const EDGES_AT_ONCE: usize = 1 << 22;

/// Most parts.
const MOST_PARTS: usize = 8;

/// Edges in an order, of each of which two numbers are wanted, sorted by an end.
pub(crate) trait Edges: Sync {
    /// Cuts them into about so many consecutive chunks.
    fn chunks(&self, num: usize) -> Vec<Range<usize>>;

    /// Tells end and numbers of the edges of a chunk, in order.
    fn visit(&self, chunk: Range<usize>, edge: impl FnMut(u32, [u32; 2]));
}

/// The numbers of all edges by end, in the order of `edges` within an end; edges of an end start at `indptr`.
pub(crate) fn sorted_by_end(indptr: &[u64], edges: &impl Edges) -> [Vec<u32>; 2] {
    let ends = indptr.len() - 1;
    let total = indptr[ends] as usize;
    let mut sorted: [Vec<u32>; 2] = [zeros(total), zeros(total)];
    if total < PARALLEL_EDGES {
        let mut next: Vec<u32> = indptr[..ends].iter().map(|&start| start as u32).collect();
        let all = edges.chunks(1);
        all.into_iter()
            .for_each(|chunk| edges.visit(chunk, |end, numbers| put(&mut next, end as usize, numbers, &mut sorted)));
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

/// Writes the numbers of an edge to the next place of its end.
#[inline(always)]
fn put(next: &mut [u32], end: usize, [a, b]: [u32; 2], [first, second]: &mut [impl AsMut<[u32]>; 2]) {
    let place = next[end] as usize;
    first.as_mut()[place] = a;
    second.as_mut()[place] = b;
    next[end] += 1;
}

struct Buckets<'a> {
    indptr: &'a [u64],
    /// A bucket has so many ends, as a power of two.
    bits: u32,
    num: usize,
    threads: usize,
}

impl<'a> Buckets<'a> {
    fn new(indptr: &'a [u64], threads: usize) -> Buckets<'a> {
        let ends = indptr.len() - 1;
        let enough = (ends / (BUCKETS_PER_THREAD * threads)).max(1).ilog2().min(BUCKET_BITS);
        let bits = enough.max(ends.max(1).ilog2() / 2);
        Buckets { indptr, bits, num: ends.div_ceil(1 << bits), threads }
    }

    fn ends(&self, buckets: Range<usize>) -> Range<usize> {
        let end = |bucket: usize| (bucket << self.bits).min(self.indptr.len() - 1);
        end(buckets.start)..end(buckets.end)
    }

    /// Where the edges of a bucket start.
    fn start(&self, bucket: usize) -> u64 {
        self.indptr[self.ends(bucket..bucket).start]
    }

    /// The buckets that are filled together.
    fn parts(&self, total: usize) -> Vec<Range<usize>> {
        let starts: Vec<u64> = (0..=self.num).map(|bucket| self.start(bucket)).collect();
        row_blocks(&starts, total.div_ceil(EDGES_AT_ONCE).clamp(1, MOST_PARTS))
    }

    fn sort(&self, part: Range<usize>, edges: &impl Edges, sorted: [&mut [u32]; 2]) {
        let chunks = edges.chunks(self.threads);
        let bucket = |end: u32| (end as usize >> self.bits).wrapping_sub(part.start);
        let count = |chunk: &Range<usize>| {
            let mut counts = vec![0u32; part.len()];
            edges.visit(chunk.clone(), |end, _| counts.get_mut(bucket(end)).into_iter().for_each(|count| *count += 1));
            counts
        };
        let counts: Vec<Vec<u32>> = chunks.par_iter().map(count).collect();
        // The chunks one after another within each bucket, so that edges keep their order.
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
            edges.visit(chunk, |end, numbers| {
                if let Some(place) = places.get_mut(bucket(end)).and_then(Iterator::next) {
                    *place = (end, numbers);
                }
            });
        });
        let starts: Vec<u64> =
            (part.start..=part.end).map(|bucket| self.start(bucket) - self.start(part.start)).collect();
        let rows: Vec<Range<usize>> = (0..part.len()).map(|row| row..row + 1).collect();
        let [first, second] = sorted.map(|sorted| cut(sorted, &starts, &rows));
        let buckets = part.into_par_iter().zip(&rows).zip(first.into_par_iter().zip(second));
        buckets.for_each(|((bucket, row), (first, second))| {
            let (ends, base) = (self.ends(bucket..bucket + 1), self.start(bucket));
            let mut next: Vec<u32> = self.indptr[ends.clone()].iter().map(|&start| (start - base) as u32).collect();
            let mut sorted = [first, second];
            for &(end, numbers) in &filled[starts[row.start] as usize..starts[row.end] as usize] {
                put(&mut next, end as usize - ends.start, numbers, &mut sorted);
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

    /// In one pass, and in parts of several; with few and many ends, isolated ones, and one that has most of the edges.
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
                    let [first, second] = pool.install(|| sorted_by_end(&indptr, &List(&list)));
                    assert_eq!(first, expected, "{edges} edges, {ends} ends, {threads} threads");
                    assert!(first.iter().zip(&second).all(|(a, b)| *b == !a));
                }
            }
        }
    }
}
