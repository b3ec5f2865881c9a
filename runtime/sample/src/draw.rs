//! Floyd's method without a set: all random numbers are generated first, and duplicates are found in registers.

use hgnnc_ir::random::{bits_from, low_round};

/// Fan-outs up to this are searched linearly for duplicates, larger ones use a bitmap.
const SEARCHED: usize = hgnnc_executable::sampler::UNROLLED as usize;

/// Scratch memory for sampling one relation in one hop.
pub(crate) struct Draws<'s> {
    pub key: u64,
    /// First round of the random numbers, by draw, padded to a multiple of four. `[fan-out]`
    pub first: &'s [u32],
    /// One bit per edge of the highest-degree row; zero between rows. Only for fan-outs above [`SEARCHED`].
    pub marked: &'s mut [u64],
    /// Keys of weighted sampling.
    pub keys: &'s mut Vec<(u64, u32)>,
}

/// Samples edges for the rows of one relation in one hop.
pub(crate) struct Drawer<'s>(pub Draws<'s>);

/// Scratch memory reused for all rows.
#[derive(Default)]
pub(crate) struct DrawSpace {
    first: Vec<u32>,
    marked: Vec<u64>,
    keys: Vec<(u64, u32)>,
}

impl DrawSpace {
    /// Scratch memory to sample `fanout` edges from rows of at most `max_degree`.
    pub fn draws(&mut self, key: u64, fanout: u32, max_degree: u32) -> Draws<'_> {
        // Rows that the fan-out covers take all edges without random numbers.
        let draws = if fanout < max_degree { fanout } else { 0 };
        self.first.clear();
        self.first.extend((0..draws.next_multiple_of(4)).map(|k| low_round(key, k)));
        let words = if draws as usize > SEARCHED { (max_degree as usize).div_ceil(64) } else { 0 };
        if self.marked.len() < words {
            self.marked.resize(words, 0);
        }
        Draws { key, first: &self.first, marked: &mut self.marked, keys: &mut self.keys }
    }
}

impl Drawer<'_> {
    /// Samples `out.len()` edge ids of the row of `vertex`, which starts at `start` and has more edges than that.
    #[inline]
    pub fn draw(&mut self, vertex: u32, start: u32, degree: u32, out: &mut [u32]) {
        let least = degree - out.len() as u32;
        for (k, (position, &first)) in out.iter_mut().zip(self.0.first).enumerate() {
            let bound = u64::from(least + k as u32 + 1);
            *position = ((u64::from(bits_from(first, self.0.key, vertex)) * bound) >> 32) as u32;
        }
        if degree <= 64 {
            unique_small(least, start, out);
        } else if out.len() <= SEARCHED {
            unique_searched(least, start, out);
        } else {
            self.unique_marked(least, start, out);
        }
    }

    fn unique_marked(&mut self, least: u32, start: u32, out: &mut [u32]) {
        for (k, position) in out.iter_mut().enumerate() {
            let bit = |t: u32| (t as usize / 64, 1u64 << (t % 64));
            let (word, mask) = bit(*position);
            if self.0.marked[word] & mask != 0 {
                *position = least + k as u32;
            }
            let (word, mask) = bit(*position);
            self.0.marked[word] |= mask;
        }
        for position in out {
            self.0.marked[*position as usize / 64] = 0;
            *position += start;
        }
    }
}

/// Rows of at most 64 edges: the set of sampled positions is one register.
#[inline]
fn unique_small(least: u32, start: u32, out: &mut [u32]) {
    let mut taken = 0u64;
    for (k, position) in out.iter_mut().enumerate() {
        let double = taken >> *position & 1 != 0;
        let t = if double { least + k as u32 } else { *position };
        taken |= 1 << t;
        *position = start + t;
    }
}

/// A small fan-out of a high-degree row: each draw is compared with all before it, in SIMD.
#[inline]
fn unique_searched(least: u32, start: u32, out: &mut [u32]) {
    let mut taken = [u32::MAX; SEARCHED];
    for (k, position) in out.iter_mut().enumerate() {
        let double = taken.iter().fold(false, |found, &t| found | (t == *position));
        let t = if double { least + k as u32 } else { *position };
        taken[k % SEARCHED] = t;
        *position = start + t;
    }
}
