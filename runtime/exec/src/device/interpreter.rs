//! A device that is none: PTX executed by [`hgnnc_ptx_interp`], with every access checked and counted.

use std::collections::BTreeMap;

use hgnnc_ptx::{THREADS, Target};
use hgnnc_ptx_interp as ptx;

use super::{Device, Sequence};
use crate::error::{ExecError, Result};

/// Bytes of the second-level cache of an H100.
const CACHE: u64 = 50 << 20;

/// What an entry did, in all its runs.
#[derive(Clone, Debug, Default)]
pub struct KernelCounters {
    /// Runs.
    pub runs: u64,
    /// What they did.
    pub counters: ptx::Counters,
}

/// Executes PTX on this processor.
pub struct Interpreter {
    memory: ptx::Memory,
    modules: Vec<ptx::Module>,
    sequences: Vec<Sequence>,
    cache: ptx::Cache,
    backward: bool,
    counters: BTreeMap<(usize, String), KernelCounters>,
}

impl std::fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interpreter")
    }
}

impl Default for Interpreter {
    fn default() -> Self {
        Self::new()
    }
}

impl Interpreter {
    /// A device with no modules.
    pub fn new() -> Self {
        Self {
            memory: ptx::Memory::new(),
            modules: vec![],
            sequences: vec![],
            cache: ptx::Cache::new(CACHE),
            backward: false,
            counters: BTreeMap::new(),
        }
    }

    /// A device that executes blocks, and the warps of each, in reverse order: results must be the same.
    pub fn backward() -> Self {
        Self { backward: true, ..Self::new() }
    }

    fn failed(&self, reason: impl std::fmt::Display) -> ExecError {
        ExecError::Device { device: self.name(), reason: reason.to_string() }
    }
}

impl Device for Interpreter {
    fn name(&self) -> String {
        "ptx-interp".into()
    }

    fn target(&self) -> Target {
        Target::Sm90
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn load(&mut self, module: &hgnnc_ptx::Module) -> Result<usize> {
        let module = ptx::Module::parse(&module.text).map_err(|error| self.failed(error))?;
        self.modules.push(module);
        Ok(self.modules.len() - 1)
    }

    fn set_table(&mut self, module: usize, table: &[u64]) -> Result<()> {
        let bytes: Vec<u8> = table.iter().flat_map(|number| number.to_le_bytes()).collect();
        let address = self.modules[module].variable("table", &mut self.memory);
        let Some(address) = address.filter(|_| !bytes.is_empty()) else { return Ok(()) };
        self.memory.write(address, &bytes).map_err(|error| self.failed(error))
    }

    fn alloc(&mut self, what: &str, bytes: usize) -> Result<u64> {
        Ok(self.memory.alloc(what, bytes, 256))
    }

    fn clear(&mut self, at: u64, bytes: usize) -> Result<()> {
        self.memory.fill(at, bytes, 0).map_err(|error| self.failed(error))
    }

    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write(to, bytes).map_err(|error| self.failed(error))
    }

    fn download(&mut self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let found = self.memory.read(from, bytes.len()).map_err(|error| self.failed(error))?;
        bytes.copy_from_slice(&found);
        Ok(())
    }

    fn prepare(&mut self, sequence: Sequence) -> Result<usize> {
        self.sequences.push(sequence);
        Ok(self.sequences.len() - 1)
    }

    fn run(&mut self, sequence: usize) -> Result<()> {
        let Sequence { module, launches } = &self.sequences[sequence];
        for launch in launches {
            let blocks = u32::try_from(launch.blocks).unwrap_or(u32::MAX);
            let how = ptx::Launch {
                grid: [blocks, 1, 1],
                block: [THREADS as u32, 1, 1],
                backward: self.backward,
                ..ptx::Launch::default()
            };
            let counters = self.modules[*module]
                .run_with(&launch.name, &mut self.memory, &how, &mut self.cache)
                .map_err(|fault| ExecError::Device { device: "ptx-interp".into(), reason: fault.to_string() })?;
            let known = self.counters.entry((*module, launch.name.clone())).or_default();
            known.runs += 1;
            known.counters.merge(&counters);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        Ok(None)
    }

    fn run_timed(&mut self, sequence: usize) -> Result<Option<Vec<f64>>> {
        self.run(sequence)?;
        Ok(None)
    }

    fn counters(&self) -> Option<&BTreeMap<(usize, String), KernelCounters>> {
        Some(&self.counters)
    }
}
