//! Matrices in device memory of which mini-batches take rows, and the kernels that copy them.

use std::any::Any;
use std::ops::Range;

use hgnnc_data::Result;
use hgnnc_executable::gpu::GpuCompiler;
use hgnnc_executable::gpu::rows::{GATHER, MOST_ELEMENTS, SCATTER, blocks};
use hgnnc_session::RowStore;

use crate::room::Room;
use crate::{Device, F32, Launch, Sequence, SharedDevice};

/// A matrix in device memory.
#[derive(Debug)]
pub(super) struct DeviceRows {
    device: SharedDevice,
    at: u64,
    rows: usize,
    width: usize,
    /// Whether it is all that uses its memory.
    owned: bool,
}

impl DeviceRows {
    /// The matrix at an address, in memory of a session.
    pub fn at(device: &SharedDevice, at: u64, (rows, width): (usize, usize)) -> Self {
        Self { device: device.clone(), at, rows, width, owned: false }
    }

    /// A matrix of zeros.
    ///
    /// # Errors
    /// When device memory is exhausted.
    pub fn zeros(device: &SharedDevice, (rows, width): (usize, usize)) -> Result<Self> {
        let (mut device, bytes) = (device.clone(), F32 * rows * width);
        let at = device.alloc("optimizer states of an embedding table", bytes.max(crate::ALIGN_BYTES))?;
        device.clear(at, bytes)?;
        Ok(Self { device, at, rows, width, owned: true })
    }

    /// The matrix of a store, if it is in the memory of this device.
    pub fn of<'s>(store: &'s dyn RowStore, device: &SharedDevice) -> Option<&'s Self> {
        store.as_any()?.downcast_ref().filter(|rows: &&Self| rows.device.is(device))
    }

    /// Address and elements of a row.
    pub fn place(&self) -> (u64, usize) {
        (self.at, self.width)
    }

    /// The address of a row.
    fn row(&self, row: u32) -> u64 {
        self.at + (F32 * self.width) as u64 * u64::from(row)
    }
}

impl Drop for DeviceRows {
    fn drop(&mut self) {
        if self.owned {
            // After an error of the device everything else fails as well.
            let _ = self.device.free(self.at);
        }
    }
}

/// Ranges of positions whose rows are consecutive.
fn runs(rows: &[u32]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let first = start;
        let rest = rows.get(first..).filter(|rest| !rest.is_empty())?;
        start += rest.windows(2).take_while(|pair| pair[1] == pair[0].wrapping_add(1)).count() + 1;
        Some(first..start)
    })
}

impl RowStore for DeviceRows {
    fn num_rows(&self) -> usize {
        self.rows
    }

    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, rows: &[u32], into: &mut [f32]) -> Result<()> {
        let mut device = self.device.clone();
        runs(rows).try_for_each(|run| {
            let elements = run.start * self.width..run.end * self.width;
            device.download(self.row(rows[run.start]), bytemuck::cast_slice_mut(&mut into[elements]))
        })
    }

    fn write(&self, rows: &[u32], from: &[f32]) -> Result<()> {
        let mut device = self.device.clone();
        runs(rows).try_for_each(|run| {
            let elements = run.start * self.width..run.end * self.width;
            device.upload(self.row(rows[run.start]), bytemuck::cast_slice(&from[elements]))
        })
    }

    fn is_host_memory(&self) -> bool {
        false
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

/// The direction of a copy between a matrix and consecutive rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowCopy {
    /// From rows of the matrix to consecutive ones.
    Gather,
    /// From consecutive rows to those of the matrix.
    Scatter,
}

/// The kernels that copy rows.
#[derive(Debug)]
pub(super) struct RowCopies {
    module: usize,
    /// The launch of each direction.
    sequences: [usize; 2],
    /// Memory for numbers of rows.
    numbers: Vec<Room>,
}

fn sequence(module: usize, copy: RowCopy) -> Sequence {
    let name = match copy {
        RowCopy::Gather => GATHER,
        RowCopy::Scatter => SCATTER,
    };
    Sequence { module, launches: vec![Launch { name: name.into(), what: "rows".into(), blocks: 1, shared: 0 }] }
}

impl RowCopies {
    /// Loads the kernels for both directions.
    ///
    /// # Errors
    /// When the device fails.
    pub fn new(device: &mut dyn Device, compiler: &dyn GpuCompiler) -> Result<Self> {
        let module = device.load(&compiler.rows(device.target()))?;
        let prepare = |copy| device.prepare(sequence(module, copy));
        let [gather, scatter] = [RowCopy::Gather, RowCopy::Scatter].map(prepare);
        Ok(Self { module, sequences: [gather?, scatter?], numbers: vec![] })
    }

    /// The memory for numbers of rows.
    pub fn numbers(&self) -> &[Room] {
        &self.numbers
    }

    /// Uploads numbers of rows to the memory with this number, and returns their address.
    ///
    /// # Errors
    /// When the device fails.
    pub fn upload(&mut self, device: &mut dyn Device, memory: usize, rows: &[u32]) -> Result<u64> {
        if self.numbers.len() <= memory {
            self.numbers.resize_with(memory + 1, Room::default);
        }
        let at = self.numbers[memory].grow(device, "numbers of rows", F32 * rows.len())?;
        device.upload(at, bytemuck::cast_slice(rows))?;
        Ok(at)
    }

    /// Copies the rows whose numbers are at an address between a matrix and consecutive rows at `packed`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn copy(
        &self,
        device: &mut dyn Device,
        copy: RowCopy,
        (matrix, packed, numbers): (u64, u64, u64),
        (rows, width): (usize, usize),
    ) -> Result<()> {
        if width == 0 {
            return Ok(());
        }
        let most = (MOST_ELEMENTS / width).max(1);
        for first in (0..rows).step_by(most) {
            let elements = (rows - first).min(most) * width;
            let packed = packed + (F32 * first * width) as u64;
            let table = [matrix, packed, numbers + (F32 * first) as u64, elements as u64, width as u64];
            device.set_table(self.module, &table)?;
            let launched = self.sequences[copy as usize];
            device.resize(launched, &[blocks(elements)])?;
            device.run(launched)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Interpreter;

    fn store(device: &SharedDevice, rows: usize, width: usize) -> DeviceRows {
        let store = DeviceRows::zeros(device, (rows, width)).expect("there is room");
        let numbers: Vec<f32> = (0..rows * width).map(|i| i as f32).collect();
        store.write(&(0..rows as u32).collect::<Vec<_>>(), &numbers).expect("they fit");
        store
    }

    #[test]
    fn consecutive_rows_are_copied_together() {
        assert_eq!(runs(&[4, 5, 6, 2, 9, 10]).collect::<Vec<_>>(), [0..3, 3..4, 4..6]);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn kernels_copy_rows_as_the_host_does() {
        let device = SharedDevice::from(Box::new(Interpreter::new()));
        for (rows, width) in [(5, 1), (40, 3), (300, 32), (2000, 130)] {
            let (store, mut own) = (store(&device, rows, width), device.clone());
            let taken: Vec<u32> = (0..rows as u32).rev().step_by(2).collect();
            let mut copies = RowCopies::new(&mut own, &hgnnc_ptx::PtxCompiler).expect("it is loaded");
            let numbers = copies.upload(&mut own, 0, &taken).expect("it fits");
            let packed = DeviceRows::zeros(&device, (taken.len(), width)).expect("there is room");
            let (places, size) = ((store.at, packed.at, numbers), (taken.len(), width));
            copies.copy(&mut own, RowCopy::Gather, places, size).expect("it is executed");
            let (mut by_kernel, mut by_host) = (vec![0.0; taken.len() * width], vec![0.0; taken.len() * width]);
            packed.read(&(0..taken.len() as u32).collect::<Vec<_>>(), &mut by_kernel).expect("it is memory");
            store.read(&taken, &mut by_host).expect("it is memory");
            assert_eq!(by_kernel, by_host, "{rows} rows of {width}");

            let changed: Vec<f32> = by_host.iter().map(|x| -x - 1.0).collect();
            packed.write(&(0..taken.len() as u32).collect::<Vec<_>>(), &changed).expect("it is memory");
            copies.copy(&mut own, RowCopy::Scatter, places, size).expect("it is executed");
            let mut all = vec![0.0; rows * width];
            store.read(&(0..rows as u32).collect::<Vec<_>>(), &mut all).expect("it is memory");
            for (i, &found) in all.iter().enumerate() {
                let own = i as f32;
                let is_taken = taken.contains(&((i / width) as u32));
                assert_eq!(found, if is_taken { -own - 1.0 } else { own }, "{rows} rows of {width}: element {i}");
            }
        }
    }

    #[test]
    fn a_store_of_another_device_is_not_its_own() {
        let [own, other] = [(); 2].map(|()| SharedDevice::from(Box::new(Interpreter::new())));
        let rows: Arc<dyn RowStore> = Arc::new(store(&own, 2, 2));
        assert!(DeviceRows::of(&rows, &own).is_some() && DeviceRows::of(&rows, &other).is_none());
    }
}
