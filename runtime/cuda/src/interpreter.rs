//! Emulated device: executes PTX with [`hgnnc_ptx_interp`], checking and counting every access.

use std::collections::BTreeMap;
use std::time::Instant;

use hgnnc_data::{ExecError, Result};
use hgnnc_executable::gpu::{THREADS, Target};
use hgnnc_ptx_interp as ptx;

use crate::{Device, INTERPRETER, KernelCounters, Sequence};

/// L2 cache of an H100 in bytes.
const CACHE: u64 = 50 << 20;

/// Emulated device that executes PTX on the CPU.
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
    /// An emulated device without modules.
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

    /// Executes blocks, and the warps of each, in reverse order; results must not change.
    pub fn backward() -> Self {
        Self { backward: true, ..Self::new() }
    }

    /// Executes a sequence and returns the milliseconds of each launch.
    fn execute(&mut self, sequence: usize) -> Result<Vec<f64>> {
        let mut times = vec![];
        let Sequence { module, launches } = &self.sequences[sequence];
        for launch in launches {
            let start = Instant::now();
            let blocks = u32::try_from(launch.blocks).unwrap_or(u32::MAX);
            let how = ptx::Launch {
                grid: [blocks, 1, 1],
                block: [THREADS as u32, 1, 1],
                dynamic_shared: launch.shared,
                backward: self.backward,
                ..ptx::Launch::default()
            };
            let counters = self.modules[*module]
                .run_with(&launch.name, &mut self.memory, &how, &mut self.cache)
                .map_err(|fault| {
                    let reason = format!("cannot execute {}: {fault}", launch.describe());
                    ExecError::Device { device: INTERPRETER.into(), reason }
                })?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            let known = self.counters.entry((*module, launch.name.clone())).or_default();
            known.runs += 1;
            known.counters.merge(&counters);
        }
        Ok(times)
    }

    fn failed(&self, reason: impl std::fmt::Display) -> ExecError {
        ExecError::Device { device: self.name(), reason: reason.to_string() }
    }
}

impl Device for Interpreter {
    fn name(&self) -> String {
        INTERPRETER.into()
    }

    fn target(&self) -> Target {
        Target::SM_90
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn load(&mut self, module: &hgnnc_executable::gpu::Module) -> Result<usize> {
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

    fn free(&mut self, at: u64) -> Result<()> {
        self.memory.free(at).map_err(|error| self.failed(error))
    }

    fn clear(&mut self, at: u64, bytes: usize) -> Result<()> {
        self.memory.fill(at, bytes, 0).map_err(|error| self.failed(error))
    }

    fn upload(&mut self, to: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write(to, bytes).map_err(|error| self.failed(error))
    }

    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<()> {
        let found = self.memory.read(from, bytes).map_err(|error| self.failed(error))?;
        self.memory.write(to, &found).map_err(|error| self.failed(error))
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

    fn resize(&mut self, sequence: usize, blocks: &[usize]) -> Result<()> {
        for (launch, &blocks) in self.sequences[sequence].launches.iter_mut().zip(blocks) {
            launch.resize(blocks);
        }
        Ok(())
    }

    fn restart_clock(&mut self) {}

    fn run(&mut self, sequence: usize) -> Result<()> {
        self.execute(sequence).map(|_| ())
    }

    fn wait(&mut self) -> Result<()> {
        Ok(())
    }

    fn elapsed_ms(&mut self) -> Result<Option<f64>> {
        Ok(None)
    }

    fn run_timed(&mut self, sequence: usize) -> Result<Option<Vec<f64>>> {
        self.execute(sequence).map(Some)
    }

    fn counters(&self) -> Option<BTreeMap<(usize, String), KernelCounters>> {
        Some(self.counters.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Launch;

    /// A kernel whose threads store their ids at the end of `bytes` bytes of shared memory, and from
    /// there to global memory.
    fn text(bytes: usize) -> String {
        format!(
            ".version 7.8\n.target sm_90\n.address_size 64\n.visible .const .align 8 .b64 table[1];
             .extern .shared .align 16 .b8 shared[];
             .visible .entry step0()
             {{
                 .reg .b32 %thread, %at;
                 .reg .b64 %to;
                 mov.u32 %thread, %tid.x;
                 mov.u32 %at, shared;
                 mad.lo.u32 %at, %thread, 4, %at;
                 st.shared.u32 [%at+{last}], %thread;
                 ld.shared.u32 %at, [%at+{last}];
                 ld.const.u64 %to, [table];
                 mad.wide.u32 %to, %thread, 4, %to;
                 st.global.u32 [%to], %at;
                 ret;
             }}",
            last = bytes - 4 * THREADS
        )
    }

    fn run(declared: usize, asked: usize) -> Result<Vec<u32>> {
        let text = text(declared);
        let module = hgnnc_executable::gpu::Module {
            text,
            table: vec![],
            prelude: vec![],
            launches: vec![],
            first_update: 0,
            commit: None,
        };
        let mut device = Interpreter::new();
        let number = device.load(&module)?;
        let to = device.alloc("numbers", 4 * THREADS)?;
        device.set_table(number, &[to])?;
        let launches = vec![Launch { name: "step0".into(), what: String::new(), blocks: 1, shared: asked }];
        let sequence = device.prepare(Sequence { module: number, launches })?;
        device.run(sequence)?;
        let mut numbers = vec![0u32; THREADS];
        device.download(to, bytemuck::cast_slice_mut(&mut numbers))?;
        Ok(numbers)
    }

    #[test]
    fn a_launch_has_the_shared_memory_that_it_asks_for() {
        let most = Target::SM_90.most_shared();
        for bytes in [4 * THREADS, 64 << 10, most] {
            let numbers = run(bytes, bytes).expect("it fits");
            assert!(numbers.into_iter().eq(0..THREADS as u32), "{bytes}");
        }
    }

    #[test]
    fn and_no_more() {
        let past = run(64 << 10, (64 << 10) - 4).expect_err("the last thread is outside").to_string();
        assert!(past.contains("4 bytes at offset 65532 of shared memory (65532 bytes)"), "{past}");
        let most = Target::SM_90.most_shared();
        let refused = run(most, most + 16).expect_err("no device has so much").to_string();
        assert!(refused.contains("the most are 232448 on sm_90"), "{refused}");
    }
}
