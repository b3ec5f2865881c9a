//! Device memory that grows.

use hgnnc_data::Result;
use hgnnc_data::buffer::SLACK;

use crate::{ALIGN_BYTES, Device};

/// An allocation that is kept for mini-batches of varying size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Room {
    /// Address; 0 before the first allocation.
    pub at: u64,
    bytes: usize,
}

impl Room {
    /// Bytes that are allocated, with the slack.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it at least this large, and returns its address. Its contents are lost if it was smaller: then it gets
    /// some slack, unless it is new.
    pub fn grow(&mut self, device: &mut dyn Device, what: &str, bytes: usize) -> Result<u64> {
        if self.at == 0 {
            let bytes = bytes.max(ALIGN_BYTES);
            *self = Self { at: device.alloc(what, bytes)?, bytes };
        } else if self.bytes < bytes {
            device.free(std::mem::take(&mut self.at))?;
            let bytes = (bytes + bytes / SLACK).next_multiple_of(ALIGN_BYTES);
            *self = Self { at: device.alloc(what, bytes)?, bytes };
        }
        Ok(self.at)
    }
}
