//! The edges of a batch by source, as backward passes read them.

use crate::batch::Batch;

/// Out-edges of each source: a CSR over compact ids. Made anew in place: what it has allocated serves the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transposed {
    /// Where the edges of each source start. `[sources + 1]`
    pub indptr: Vec<u64>,
    /// Destination of each edge, ascending within a source. `[edges]`
    pub dst: Vec<u32>,
    /// Position of each edge in the block, ascending within a source. `[edges]`
    pub position: Vec<u32>,
}

impl Batch {
    /// Writes the edges of one relation in hops up to `hop` by source into `into`: for the sources
    /// `0..known[hop + 1][src_type]` those edges whose destinations are `0..known[hop][dst_type]`. Edges of a source keep their
    /// order.
    ///
    /// A counting sort: the edges are read twice, and a word for each source is counted up at random places. `into` is
    /// written as a whole, whatever it was.
    ///
    /// Panics if there is no such relation or hop.
    pub fn transposed(&self, relation: usize, hop: usize, into: &mut Transposed) {
        let block = &self.blocks[relation];
        let (num_src, num_dst) = (self.num_src(relation, hop), self.num_dst(relation, hop));
        let rows = &block.indptr[..=num_dst];
        let src = &block.src[..rows[num_dst] as usize];
        let Transposed { indptr, dst, position } = into;
        indptr.clear();
        indptr.resize(num_src + 1, 0);
        // The place behind that of a source counts its edges, then says where the next one goes, and thereby where they end.
        let next = &mut indptr[1..];
        src.iter().for_each(|&s| next[s as usize] += 1);
        let mut start = 0;
        for place in next.iter_mut() {
            start += std::mem::replace(place, start);
        }
        dst.resize(src.len(), 0);
        position.resize(src.len(), 0);
        for (row, ends) in rows.windows(2).enumerate() {
            for e in ends[0]..ends[1] {
                let place = &mut next[src[e as usize] as usize];
                dst[*place as usize] = row as u32;
                position[*place as usize] = e as u32;
                *place += 1;
            }
        }
    }
}
