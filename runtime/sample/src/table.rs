//! Compact ids of the vertices of one type, forgotten all at once.

use crate::graph::GraphError;
use crate::prefetch::prefetch;
use crate::words::Words;

/// For each vertex a compact id and the number of the batch that gave it, in one word: a vertex costs one access to
/// memory, and nothing is cleared between batches until their numbers run out.
pub(crate) struct Table {
    words: Words,
    /// Low bits of a word that hold an id.
    id_bits: u32,
    /// Number of the batch, in place. Words of other batches are those of no vertex.
    stamp: u32,
}

impl Table {
    /// For `count` vertices, at most 2^30.
    pub fn new(count: usize) -> Result<Table, GraphError> {
        // Ids are below `count`, so that at least two bits are left for batches.
        let id_bits = (32 - (count.max(2) as u32 - 1).leading_zeros()).min(30);
        Ok(Table { words: Words::zeroed(count)?, id_bits, stamp: 0 })
    }

    /// Forgets all ids.
    pub fn forget(&mut self) {
        self.stamp = self.stamp.wrapping_add(1 << self.id_bits);
        if self.stamp == 0 {
            self.words.fill(0);
            self.stamp = 1 << self.id_bits;
        }
    }

    /// The id of `vertex`, which becomes `next` if it has none, and whether it had none. No branch: about every second
    /// vertex is new, which no processor can predict.
    #[inline(always)]
    pub fn id(&mut self, vertex: u32, next: u32) -> (u32, bool) {
        id_in(&mut self.words, self.id_bits, self.stamp, vertex, next)
    }

    /// Replaces vertices by ids; new vertices are appended to `known`, whose length is the next id.
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

    /// For each vertex, the number of a batch and an id.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// To give ids in.
    pub fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    /// The bits of this batch in words, and the bound of ids.
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

/// Reads the sources of `edges` into `into`, and asks for their words.
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
            let mut table = Table::new(count).unwrap();
            // More batches than a word can tell apart where ids take many bits.
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
