//! Arrays of 32-bit words for random access.

use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

use crate::graph::GraphError;

/// Zero-initialised 32-bit words in a mapping of their own, on huge pages where available: with small pages nearly
/// every random read would also miss the TLB.
#[derive(Debug)]
pub(crate) struct Words {
    map: MmapMut,
    len: usize,
}

impl Words {
    pub fn zeroed(len: usize) -> Result<Words, GraphError> {
        let bytes = 4 * len.max(1);
        let failed = |error: std::io::Error| GraphError::Memory { bytes, reason: error.to_string() };
        let map = MmapOptions::new().len(bytes).map_anon().map_err(failed)?;
        // Without huge pages only speed suffers.
        #[cfg(target_os = "linux")]
        drop(map.advise(memmap2::Advice::HugePage));
        Ok(Words { map, len })
    }

    /// Copies `values` into a new mapping.
    pub fn of(values: &[u32]) -> Result<Words, GraphError> {
        let mut words = Words::zeroed(values.len())?;
        words.copy_from_slice(values);
        Ok(words)
    }
}

impl Deref for Words {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        &bytemuck::cast_slice(&self.map)[..self.len]
    }
}

impl DerefMut for Words {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u32] {
        &mut bytemuck::cast_slice_mut(&mut self.map)[..self.len]
    }
}
