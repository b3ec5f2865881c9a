//! Embedding tables and optimizer states, of which batches take rows.

use std::sync::Arc;

use hgnnc_data::Result;
use hgnnc_session::{HostRows, RowStore};

/// All rows of an embedding table or of one of its optimizer states, or a state of a dense parameter.
pub(super) enum Table {
    Host(HostRows),
    /// In the memory of the machine that trains.
    Machine(Arc<dyn RowStore>),
}

impl Table {
    pub fn store(&self) -> &dyn RowStore {
        match self {
            Self::Host(rows) => rows,
            Self::Machine(rows) => &**rows,
        }
    }

    /// The rows, if they are host memory.
    pub fn host(&self) -> Option<&HostRows> {
        match self {
            Self::Host(rows) => Some(rows),
            Self::Machine(_) => None,
        }
    }

    fn numbers(rows: &dyn RowStore) -> Vec<u32> {
        (0..rows.num_rows() as u32).collect()
    }

    /// Copies all elements, row by row.
    ///
    /// # Errors
    /// When a device fails.
    pub fn read(&mut self) -> Result<Vec<f32>> {
        match self {
            Self::Host(rows) => Ok(rows.elements().to_vec()),
            Self::Machine(rows) => {
                let mut all = vec![0.0; rows.num_rows() * rows.width()];
                rows.read(&Self::numbers(rows), &mut all)?;
                Ok(all)
            }
        }
    }

    /// Overwrites all elements.
    ///
    /// # Errors
    /// When a device fails.
    pub fn write(&mut self, numbers: &[f32]) -> Result<()> {
        match self {
            Self::Host(rows) => rows.elements().copy_from_slice(numbers),
            Self::Machine(rows) => rows.write(&Self::numbers(rows), numbers)?,
        }
        Ok(())
    }

    /// Overwrites all elements with zeros.
    ///
    /// # Errors
    /// When a device fails.
    pub fn clear(&mut self) -> Result<()> {
        match self {
            Self::Host(rows) => rows.elements().fill(0.0),
            Self::Machine(rows) => {
                let elements = rows.num_rows() * rows.width();
                self.write(&vec![0.0; elements])?;
            }
        }
        Ok(())
    }
}
