//! Vertices that draw nothing in the last hop.

/// Vertices, by type, of which the last hop takes no edges: whoever trains has what lies beneath them from elsewhere. In
/// the hops before they are as all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resting {
    /// A bit for each vertex of a type; fewer where the last ones are not resting. `[types][vertices / 64]`
    bits: Vec<Vec<u64>>,
}

impl Resting {
    /// None of so many types.
    pub fn none(types: usize) -> Resting {
        Resting { bits: vec![vec![]; types] }
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

    /// Does a vertex rest?
    #[inline]
    pub fn has(&self, vertex_type: usize, vertex: u32) -> bool {
        let word = self.bits.get(vertex_type).and_then(|bits| bits.get(vertex as usize / 64));
        word.is_some_and(|word| word >> (vertex % 64) & 1 == 1)
    }

    /// Are there some of a type?
    pub fn of(&self, vertex_type: usize) -> bool {
        self.bits.get(vertex_type).is_some_and(|bits| !bits.is_empty())
    }
}
