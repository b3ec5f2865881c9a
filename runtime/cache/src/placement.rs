//! The rows kept in the fast memory.

const NONE: u32 = u32::MAX;

/// The cached rows of one table.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots {
    /// Slot of each vertex, or `NONE`. `[rows of the table]`
    of: Vec<u32>,
    /// Vertex of each slot, ascending.
    vertices: Vec<u32>,
}

impl Slots {
    /// Caches the rows of `vertices`, of a table with `rows` rows.
    ///
    /// # Panics
    /// When a vertex has no row, or there are `u32::MAX` vertices or more.
    pub fn new(rows: usize, mut vertices: Vec<u32>) -> Slots {
        vertices.sort_unstable();
        vertices.dedup();
        let mut of = vec![NONE; rows];
        for (slot, &vertex) in vertices.iter().enumerate() {
            of[vertex as usize] = u32::try_from(slot).expect("slots are numbered by 32 bits");
        }
        Slots { of, vertices }
    }

    /// The slot of a vertex; `None` if its row is not cached.
    #[inline]
    pub fn slot(&self, vertex: u32) -> Option<usize> {
        match self.of[vertex as usize] {
            NONE => None,
            slot => Some(slot as usize),
        }
    }

    /// The vertices with cached rows, in slot order.
    pub fn vertices(&self) -> &[u32] {
        &self.vertices
    }

    /// Number of rows of the table, cached or not.
    pub fn rows(&self) -> usize {
        self.of.len()
    }
}

/// The cached rows of all tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// One entry per table.
    pub tables: Vec<Slots>,
}
