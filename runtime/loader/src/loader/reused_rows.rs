//! Rows of a batch with historical embeddings.

/// Vertices of a batch that sample no neighbours, because they have a historical embedding.
#[derive(Clone, Default)]
pub struct ReusedRows {
    /// Their rows in the batch, ascending.
    pub rows: Vec<u32>,
    /// Their rows in the embedding table.
    pub from: Vec<u32>,
    /// Edges that they would have sampled.
    pub edges_not_drawn: u64,
    /// Other rows of the batch that the table keeps.
    pub kept: Vec<u32>,
    /// Their rows in the table, which follow those that it has.
    pub to: Vec<u32>,
}

impl ReusedRows {
    /// Number of rows with a historical embedding.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether no row has a historical embedding.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes a CSC with one edge from each reused row to its vertex among `num_dst`.
    pub fn edges(&self, num_dst: usize, indptr: &mut Vec<u64>, other: &mut Vec<u32>) {
        indptr.clear();
        indptr.push(0);
        for (reused_rows, &row) in self.rows.iter().enumerate() {
            indptr.resize(row as usize + 1, reused_rows as u64);
            indptr.push(reused_rows as u64 + 1);
        }
        indptr.resize(num_dst + 1, self.rows.len() as u64);
        other.clear();
        other.extend(0..self.rows.len() as u32);
    }
}
