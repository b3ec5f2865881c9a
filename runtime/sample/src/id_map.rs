//! Map from the vertices of one type to their compact ids, cleared in constant time.

use crate::graph::GraphError;
use crate::prefetch::prefetch;
use crate::words::Words;

/// One word per vertex holds the compact id and a stamp of the batch that assigned it: a look-up is one memory access,
/// and the words are only cleared when stamps wrap around.
pub(crate) struct IdMap {
    words: Words,
    /// Number of low bits of a word that hold the id.
    id_bits: u32,
    /// Stamp of the current batch, shifted into place. Words with another stamp are empty.
    stamp: u32,
}

impl IdMap {
    /// A map for `count` vertices, at most 2^30.
    pub fn new(count: usize) -> Result<IdMap, GraphError> {
        // Ids are below `count`, so at least two bits are left for the stamp.
        let id_bits = (32 - (count.max(2) as u32 - 1).leading_zeros()).min(30);
        Ok(IdMap { words: Words::zeroed(count)?, id_bits, stamp: 0 })
    }

    /// Clears the map, in constant time.
    pub fn forget(&mut self) {
        self.stamp = self.stamp.wrapping_add(1 << self.id_bits);
        if self.stamp == 0 {
            self.words.fill(0);
            self.stamp = 1 << self.id_bits;
        }
    }

    /// The compact id of `vertex`, which is assigned `next` if it has none, and whether it had none. Branch-free: about
    /// every second vertex is new, which is unpredictable.
    #[inline(always)]
    pub fn id(&mut self, vertex: u32, next: u32) -> (u32, bool) {
        id_in(&mut self.words, self.id_bits, self.stamp, vertex, next)
    }

    /// Replaces vertices by compact ids; new vertices are appended to `known`, whose length is the next id.
    pub fn relabel(&mut self, vertices: &mut [u32], known: &mut Vec<u32>) {
        let first = known.len();
        let mut new = 0;
        known.resize(first + vertices.len(), 0);
        let room = &mut known[first..];
        let words = &mut self.words[..];
        for vertex in vertices {
            let (id, fresh) = id_in(words, self.id_bits, self.stamp, *vertex, (first + new) as u32);
            room[new] = *vertex;
            new += usize::from(fresh);
            *vertex = id;
        }
        known.truncate(first + new);
    }

    /// The words, by vertex: stamp and compact id.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The words, for generated code that assigns ids.
    pub fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    /// The stamp of this batch in its place, and the exclusive bound of ids.
    pub fn marks(&self) -> (u32, u32) {
        (self.stamp, 1 << self.id_bits)
    }
}

#[inline(always)]
fn id_in(words: &mut [u32], id_bits: u32, stamp: u32, vertex: u32, next: u32) -> (u32, bool) {
    let word = &mut words[vertex as usize];
    let fresh = (*word ^ stamp) >> id_bits != 0;
    let id = if fresh { next } else { *word ^ stamp };
    *word = stamp | id;
    (id, fresh)
}

/// Gathers the sources of `edges` into `into`, and prefetches their words.
pub(crate) fn gather(sources: &[u32], edges: &[u32], words: &[u32], into: &mut [u32]) {
    for (to, &edge) in into.iter_mut().zip(edges) {
        *to = sources[edge as usize];
        prefetch(words.as_ptr(), *to as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_given_in_order_and_forgotten() {
        for count in [1, 2, 3, 1 << 20] {
            let mut table = IdMap::new(count).unwrap();
            // More batches than stamps, for ids of many bits.
            for batch in 0..5000u32 {
                table.forget();
                let last = (count - 1) as u32;
                let vertices = [last, batch % count as u32, last];
                let (mut ids, mut known) = (vertices, vec![]);
                table.relabel(&mut ids, &mut known);
                assert_eq!(ids.map(|id| known[id as usize]), vertices);
                assert_eq!(known.len(), if vertices[1] == last { 1 } else { 2 }, "{count} {batch}");
            }
        }
    }
}
