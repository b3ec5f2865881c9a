//! Vertices without samples in the last hop.

/// Vertices with a historical embedding, by type. The last hop samples no edges of them, since the trainer supplies
/// their embedding; earlier hops treat them as any other vertex.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoricalVertices {
    /// A bitmap for each type, up to the last vertex in the set. `[types][vertices / 64]`
    bits: Vec<Vec<u64>>,
}

impl HistoricalVertices {
    /// The empty set, for `types` vertex types.
    pub fn none(types: usize) -> HistoricalVertices {
        HistoricalVertices { bits: vec![vec![]; types] }
    }

    /// Adds a vertex. Panics if there is no such type.
    pub fn add(&mut self, vertex_type: usize, vertex: u32) {
        let bits = &mut self.bits[vertex_type];
        let word = vertex as usize / 64;
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        bits[word] |= 1 << (vertex % 64);
    }

    /// Empties the set.
    pub fn clear(&mut self) {
        self.bits.iter_mut().for_each(Vec::clear);
    }

    /// Whether the set contains a vertex.
    #[inline]
    pub fn has(&self, vertex_type: usize, vertex: u32) -> bool {
        let word = self.bits.get(vertex_type).and_then(|bits| bits.get(vertex as usize / 64));
        word.is_some_and(|word| word >> (vertex % 64) & 1 == 1)
    }

    /// Whether the set contains vertices of a type.
    pub fn of(&self, vertex_type: usize) -> bool {
        self.bits.get(vertex_type).is_some_and(|bits| !bits.is_empty())
    }
}
