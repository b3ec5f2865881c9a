//! Rows of a store, of which some are in a fast memory.

use std::sync::Arc;

use hgnnc_cache::Slots;
use hgnnc_data::Result;
use hgnnc_session::RowStore;

/// A fast store in front of a slow one that holds all rows: those in the fast one are read and written there only.
#[derive(Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct CachedRows<F, S> {
    pub slots: Arc<Slots>,
    /// Rows by slot.
    pub fast: F,
    pub slow: S,
}

/// Rows per copy between the two memories.
const COPIED: usize = 512;

impl<F: RowStore, S: RowStore> CachedRows<F, S> {
    /// Copies rows: those that are cached by their slots, the others by their numbers, with the range of their elements.
    /// Each memory gets one request for successive rows.
    fn each_run(
        &self,
        rows: &[u32],
        mut copy: impl FnMut(&dyn RowStore, &[u32], std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let (mut slots, mut start) = (vec![], 0);
        let mut copy_run = |slots: &mut Vec<u32>, run: std::ops::Range<usize>| {
            let elements = run.start * self.width()..run.end * self.width();
            match slots.is_empty() {
                true => copy(&self.slow, &rows[run], elements)?,
                false => copy(&self.fast, slots, elements)?,
            }
            slots.clear();
            Ok(())
        };
        for (at, &row) in rows.iter().enumerate() {
            let slot = self.slots.slot(row);
            if at > start && slot.is_some() == slots.is_empty() {
                copy_run(&mut slots, start..at)?;
                start = at;
            }
            slots.extend(slot.map(|slot| slot as u32));
        }
        copy_run(&mut slots, start..rows.len())
    }

    /// Reads rows with one request to the slow memory, which is made for no rows as well: other processes may take part in it.
    fn read_at_once(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        let width = self.width();
        let (mut missed, mut places) = (vec![], vec![]);
        for (place, &row) in (0..).zip(rows) {
            match self.slots.slot(row) {
                Some(slot) => self.fast.read(&[slot as u32], &mut into[place as usize * width..][..width])?,
                None => {
                    missed.push(row);
                    places.push(place);
                }
            }
        }
        self.slow.read_to(&missed, &places, into)
    }

    /// Copies the cached rows from the slow memory. Returns the number of elements.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn fill(&self) -> Result<usize> {
        let slots: Vec<u32> = (0..self.slots.vertices().len() as u32).collect();
        if !self.slow.is_host_memory() {
            let mut copied = vec![0.0; slots.len() * self.width()];
            self.slow.read(self.slots.vertices(), &mut copied)?;
            self.fast.write(&slots, &copied)?;
            return Ok(copied.len());
        }
        let mut copied = vec![0.0; COPIED * self.width()];
        for (slots, vertices) in slots.chunks(COPIED).zip(self.slots.vertices().chunks(COPIED)) {
            let copied = &mut copied[..slots.len() * self.width()];
            self.slow.read(vertices, copied)?;
            self.fast.write(slots, copied)?;
        }
        Ok(slots.len() * self.width())
    }

    /// Copies the rows of these distinct slots back to the slow memory. Returns the number of elements.
    ///
    /// # Errors
    /// Those of the stores.
    pub fn write_back(&self, slots: &[u32]) -> Result<usize> {
        let mut copied = vec![0.0; COPIED * self.width()];
        for slots in slots.chunks(COPIED) {
            let copied = &mut copied[..slots.len() * self.width()];
            self.fast.read(slots, copied)?;
            let vertices: Vec<u32> = slots.iter().map(|&slot| self.slots.vertices()[slot as usize]).collect();
            self.slow.write(&vertices, copied)?;
        }
        Ok(slots.len() * self.width())
    }
}

impl<F: RowStore, S: RowStore> RowStore for CachedRows<F, S> {
    fn num_rows(&self) -> usize {
        self.slow.num_rows()
    }

    fn width(&self) -> usize {
        self.slow.width()
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        if !self.slow.is_host_memory() {
            return self.read_at_once(rows, into);
        }
        self.each_run(rows, |store, rows, elements| store.read(rows, &mut into[elements]))
    }

    fn write(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        // Distinct rows have distinct slots.
        self.each_run(rows, |store, rows, elements| store.write(rows, &from[elements]))
    }

    fn is_host_memory(&self) -> bool {
        self.fast.is_host_memory() && self.slow.is_host_memory()
    }

    fn own(&self) -> std::ops::Range<usize> {
        self.slow.own()
    }
}

#[cfg(test)]
mod tests {
    use hgnnc_data::buffer::HostBuffer;
    use hgnnc_session::HostRows;

    use super::*;

    /// Four rows of two elements; those of vertices 1 and 3 are cached.
    fn cached(slow: &[f32]) -> CachedRows<HostRows, HostRows> {
        let slots = Arc::new(Slots::new(4, vec![1, 3]));
        // SAFETY: one thread uses the rows.
        let rows = |numbers: &[f32]| unsafe { HostRows::new(HostBuffer::of(numbers), 2) };
        CachedRows { slots, fast: rows(&[50.0, 51.0, 60.0, 61.0]), slow: rows(slow) }
    }

    #[test]
    fn cached_rows_are_read_and_written_in_the_fast_memory_alone() {
        // A read of the slow rows of vertices 1 and 3 would give NaN.
        let nan = f32::NAN;
        let mut rows = cached(&[10.0, 11.0, nan, nan, 20.0, 21.0, nan, nan]);
        let mut into = [0.0; 10];
        rows.read(&[3, 1, 0, 2, 1], &mut into).expect("host memory");
        assert_eq!(into, [60.0, 61.0, 50.0, 51.0, 10.0, 11.0, 20.0, 21.0, 50.0, 51.0]);
        rows.write(&[2, 3], &[1.0, 2.0, 3.0, 4.0]).expect("host memory");
        assert_eq!(rows.fast.elements(), [50.0, 51.0, 3.0, 4.0]);
        let slow = rows.slow.elements();
        assert!((&slow[..2], &slow[4..6]) == (&[10.0, 11.0], &[1.0, 2.0]) && slow[6].is_nan());
    }

    #[test]
    fn rows_are_copied_between_the_memories() {
        let mut rows = cached(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(rows.fill().expect("host memory"), 4);
        assert_eq!(rows.fast.elements(), [3.0, 4.0, 7.0, 8.0]);
        rows.fast.elements().copy_from_slice(&[-3.0, -4.0, -7.0, -8.0]);
        assert_eq!(rows.write_back(&[1]).expect("host memory"), 2);
        assert_eq!(rows.slow.elements(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, -7.0, -8.0]);
    }
}
