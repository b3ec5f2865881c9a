//! Where rows are.

/// No slot.
const NONE: u32 = u32::MAX;

/// The rows of a table that are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots {
    /// By vertex: its slot. `[rows of the table]`
    of: Vec<u32>,
    /// By slot: its vertex, ascending.
    vertices: Vec<u32>,
}

impl Slots {
    /// Of these vertices, of a table with so many rows.
    ///
    /// # Panics
    /// When a vertex has no row, or there are `u32::MAX` of them.
    pub fn new(rows: usize, mut vertices: Vec<u32>) -> Slots {
        vertices.sort_unstable();
        vertices.dedup();
        let mut of = vec![NONE; rows];
        for (slot, &vertex) in vertices.iter().enumerate() {
            of[vertex as usize] = u32::try_from(slot).expect("slots are numbered by 32 bits");
        }
        Slots { of, vertices }
    }

    /// The slot of a vertex, if its row is kept.
    #[inline]
    pub fn slot(&self, vertex: u32) -> Option<usize> {
        match self.of[vertex as usize] {
            NONE => None,
            slot => Some(slot as usize),
        }
    }

    /// The vertices whose rows are kept, in the order of their slots.
    pub fn vertices(&self) -> &[u32] {
        &self.vertices
    }

    /// Rows of the table, kept or not.
    pub fn rows(&self) -> usize {
        self.of.len()
    }
}

/// The rows of all tables that are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Placement {
    /// By table.
    pub tables: Vec<Slots>,
}
