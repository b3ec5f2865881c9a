//! A device that several sessions use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hgnnc_data::Result;
use hgnnc_executable::gpu::{Module, Target};

use crate::{Device, KernelCounters, Sequence};

/// A handle of a device. Sessions take turns; all work goes to one stream.
#[derive(Clone, Debug)]
pub struct SharedDevice(Arc<Mutex<Box<dyn Device>>>);

impl From<Box<dyn Device>> for SharedDevice {
    fn from(device: Box<dyn Device>) -> Self {
        Self(Arc::new(Mutex::new(device)))
    }
}

impl<D: Device + 'static> From<Box<D>> for SharedDevice {
    fn from(device: Box<D>) -> Self {
        Self::from(device as Box<dyn Device>)
    }
}

impl SharedDevice {
    /// Whether both are handles of the same device.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn lock(&self) -> MutexGuard<'_, Box<dyn Device>> {
        // A panic in another session does not change what the device holds for this one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for SharedDevice {
    fn name(&self) -> String {
        self.lock().name()
    }

    fn target(&self) -> Target {
        self.lock().target()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.lock().free_bytes()
    }

    fn load(&mut self, module: &Module) -> Result<usize> {
        self.lock().load(module)
    }

    fn set_table(&mut self, module: usize, table: &[u64]) -> Result<()> {
        self.lock().set_table(module, table)
    }

    fn alloc(&mut self, what: &str, bytes: usize) -> Result<u64> {
        self.lock().alloc(what, bytes)
    }

    fn free(&mut self, at: u64) -> Result<()> {
        self.lock().free(at)
    }

    fn clear(&mut self, at: u64, bytes: usize) -> Result<()> {
        self.lock().clear(at, bytes)
    }

    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()> {
        self.lock().upload(to, bytes)
    }

    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.lock().copy(to, from, bytes)
    }

    fn download(&mut self, from: u64, bytes: &mut [u8]) -> Result<()> {
        self.lock().download(from, bytes)
    }

    fn prepare(&mut self, sequence: Sequence) -> Result<usize> {
        self.lock().prepare(sequence)
    }

    fn resize(&mut self, sequence: usize, blocks: &[usize]) -> Result<()> {
        self.lock().resize(sequence, blocks)
    }

    fn run(&mut self, sequence: usize) -> Result<()> {
        self.lock().run(sequence)
    }

    fn wait(&mut self) -> Result<()> {
        self.lock().wait()
    }

    fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        self.lock().elapsed_ms()
    }

    fn restart_clock(&mut self) {
        self.lock().restart_clock();
    }

    fn run_timed(&mut self, sequence: usize) -> Result<Option<Vec<f64>>> {
        self.lock().run_timed(sequence)
    }

    fn counters(&self) -> Option<BTreeMap<(usize, String), KernelCounters>> {
        self.lock().counters()
    }
}
