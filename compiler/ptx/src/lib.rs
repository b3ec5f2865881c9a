//! Kernels as PTX for NVIDIA GPUs of compute capability 8.0 and later.
//!
//! [`compile`] translates a program of kernels. The text is the same for every dataset: addresses and sizes are read
//! from a table in constant memory (a long one in global memory), which the loader of the module fills in as
//! [`Module::table`] says. Each launch of the program is one entry, in which every kernel has a range of the blocks;
//! [`Blocks::count`] gives their number.
//!
//! Every row belongs to one team of threads and every sum has a fixed order, so results are the same in each run on
//! each device. Sums over all rows are completed by an entry of their own.

#![forbid(unsafe_code)]

mod code;
mod copy;
mod counts;
mod dedup;
mod entry;
mod finish;
mod gemm;
mod isa;
mod layout;
mod math;
mod members;
mod rows;
mod table;
mod tile;
mod traversal;

use std::collections::HashSet;

use hgnnc_executable::gpu::counts::Labels;
use hgnnc_ir::{Origin, Provenance};
use hgnnc_kernel_ir::kernel::{Body, Buffer, Kernel, Launch, Program, Rows, print::print_rows};
use hgnnc_kernel_ir::loops::Nest;

pub use hgnnc_executable::gpu::{
    Band, Blocks, Cut, Edges, Entry, GpuCompiler, KernelInfo, Long, Members, Module, Precision, Share, Sizes, Slot,
    THREADS, Target, Topology, Total, Unsupported,
};

use entry::Titled;
use isa::print::{self, TableSpace};
use isa::{Function, Source};
use table::{Show, Table};
use traversal::Shared;

/// The most that constant memory holds, in entries of the table.
const MOST_ENTRIES: usize = 8192;

/// Known sizes of the data, by which code is tuned. The code stays correct for other sizes.
#[derive(Clone, Copy, Default)]
pub struct Hints<'a> {
    /// Degrees of the rows of traversals.
    pub edges: &'a [(Rows, Edges)],
    /// Names a place in the source, for comments of the text; `None`: comments name no place.
    pub source: Option<&'a dyn Fn(Origin) -> String>,
}

impl Hints<'_> {
    /// The place that something comes from, behind two blanks.
    fn place(&self, from: Provenance) -> String {
        from.0.zip(self.source).map(|(origin, source)| format!("  {}", source(origin))).unwrap_or_default()
    }
}

/// The compiler that a runtime with a GPU is given.
#[derive(Clone, Copy, Debug)]
pub struct PtxCompiler;

impl GpuCompiler for PtxCompiler {
    fn compile(&self, program: &Program, target: Target, edges: &[(Rows, Edges)]) -> Result<Module, Unsupported> {
        compile(program, target, Hints { edges, source: None })
    }

    fn counts(&self, target: Target, labels: Labels) -> Module {
        counts::counts(target, labels)
    }

    fn rows(&self, target: Target) -> Module {
        rows::rows(target)
    }
}

/// Translates a verified program.
///
/// # Errors
/// A kernel for which there is no PTX.
pub fn compile(program: &Program, target: Target, hints: Hints<'_>) -> Result<Module, Unsupported> {
    let first_update = program.second_part().unwrap_or(program.launches.len());
    let loops = hgnnc_schedule::schedule_rows(program.clone());
    let mut writer = Writer {
        program,
        nests: &loops.nests,
        homes: &program.homes(),
        precision: target.precision,
        elements: target.elements_per_lane,
        hints,
        table: Table::default(),
        functions: vec![],
        next: 0,
        // Entries that complete sums have numbers after all kernels.
        next_finish: program.kernels().count(),
    };
    let prelude = writer.launches(&program.prelude, "prelude")?;
    let before = writer.launches(&program.launches[..first_update], "step")?;
    let updates = writer.launches(&program.launches[first_update..], "update")?;
    let commit = writer.commit()?;
    let (first_update, launches) = (before.len(), [before, updates].concat());
    let Writer { table, functions, .. } = writer;
    let table = table.into_slots();
    let source = Source {
        title: program.tables.name.clone(),
        target: target.name(),
        slots: Some(table.iter().map(|slot| Show(slot, program).to_string()).collect()),
        table: table.len().max(1),
        space: if table.len() <= MOST_ENTRIES { TableSpace::Const } else { TableSpace::Global },
        shared: prelude.iter().chain(&launches).any(|entry| entry.shared() > 0),
        functions,
    };
    let text = print::module(&source);
    Ok(Module { text, table, prelude, launches, first_update, commit })
}

struct Writer<'a> {
    program: &'a Program,
    /// The loops of each kernel.
    nests: &'a [Option<Nest>],
    homes: &'a [Buffer],
    precision: Precision,
    elements: usize,
    hints: Hints<'a>,
    table: Table,
    functions: Vec<Function>,
    next: usize,
    next_finish: usize,
}

impl Writer<'_> {
    fn launches(&mut self, launches: &[Launch], what: &str) -> Result<Vec<Entry>, Unsupported> {
        let mut entries = vec![];
        for (index, launch) in launches.iter().enumerate() {
            let launched = self.launch(launch, &format!("{what}{index}"))?;
            let finish = self.finish(&launched[0]);
            entries.extend(launched);
            entries.extend(finish);
        }
        Ok(entries)
    }

    /// The kernels of a launch as an entry, and those that complete rows that are cut.
    fn launch(&mut self, launch: &Launch, name: &str) -> Result<Vec<Entry>, Unsupported> {
        let writes = launch.kernels.iter().flat_map(Kernel::writes);
        let written: HashSet<Buffer> = writes.map(|buffer| self.homes[buffer.index()]).collect();
        let (mut bodies, mut kernels) = (vec![], vec![]);
        let mut following: Vec<(Vec<Titled>, Vec<KernelInfo>)> = vec![];
        for kernel in &launch.kernels {
            let number = self.next;
            self.next += 1;
            let (body, info, what) = match &kernel.body {
                Body::Gemm(gemm) => {
                    let (body, info) = gemm::emit(self.program, gemm, number, self.precision, &mut self.table);
                    (body, info, format!("{}{}", gemm.form.name(), self.hints.place(gemm.from)))
                }
                Body::FactoredMetapath(_) => {
                    // `Capabilities::factored_attention` keeps the pass from making them for this target.
                    return Err(Unsupported { kernel: number, what: "factored metapath attention".into() });
                }
                Body::Exchange(_) => {
                    return Err(Unsupported { kernel: number, what: "an exchange between processes".into() });
                }
                Body::Traversal(traversal) => {
                    let nest = self.nests[number].as_ref().expect("verified loops have a nest for each traversal");
                    let known = self.hints.edges.iter().find(|(rows, _)| *rows == traversal.rows);
                    let edges = known.map(|(_, edges)| *edges);
                    let (table, next) = (&mut self.table, &mut self.next_finish);
                    let cx = Shared {
                        program: self.program,
                        homes: self.homes,
                        written: &written,
                        precision: self.precision,
                        elements: self.elements,
                        hints: self.hints,
                    };
                    let made = traversal::emit(cx, (traversal, nest), (number, next), table, edges)?;
                    for (position, (what, body, info)) in made.following.into_iter().enumerate() {
                        if position == following.len() {
                            following.push((vec![], vec![]));
                        }
                        let (bodies, kernels) = &mut following[position];
                        bodies.push((format!("k{}: {what} k{number}", info.number), body));
                        kernels.push(info);
                    }
                    (made.body, made.info, print_rows(self.program, &traversal.rows))
                }
            };
            let title = format!("k{number} @{}.{}: {what}", kernel.stage.name(), kernel.phase.name());
            bodies.push((title, body));
            kernels.push(info);
        }
        let mut entries = vec![self.entry(name, bodies, kernels, launch.interleaved)];
        for (position, (bodies, kernels)) in following.into_iter().enumerate() {
            entries.push(self.entry(&format!("{name}_long{}", position + 1), bodies, kernels, 0));
        }
        Ok(entries)
    }

    /// The entry that completes the sums of another one, if it has any.
    fn finish(&mut self, entry: &Entry) -> Option<Entry> {
        let (mut bodies, mut kernels) = (vec![], vec![]);
        for kernel in &entry.kernels {
            for (index, total) in kernel.totals.iter().enumerate() {
                let number = self.next_finish;
                self.next_finish += 1;
                let (body, info) = finish::emit(total, (kernel, index), number, &mut self.table);
                let out = &self.program.buffer(total.out).name;
                bodies.push((format!("k{number}: parts of {out} of k{}", kernel.number), body));
                kernels.push(info);
            }
        }
        let name = format!("{}_totals", entry.name);
        (!kernels.is_empty()).then(|| self.entry(&name, bodies, kernels, 0))
    }

    /// The entry that copies what was not computed in its place.
    fn commit(&mut self) -> Result<Option<Entry>, Unsupported> {
        let (mut bodies, mut kernels) = (vec![], vec![]);
        for output in self.program.outputs.iter().filter(|output| copy::is_needed(self.program, output)) {
            let number = self.next_finish;
            self.next_finish += 1;
            let (body, info) = copy::emit(self.program, output, number, &mut self.table)?;
            bodies.push((format!("k{number}: copy"), body));
            kernels.push(info);
        }
        Ok((!kernels.is_empty()).then(|| self.entry("commit", bodies, kernels, 0)))
    }

    fn entry(&mut self, name: &str, bodies: Vec<Titled>, kernels: Vec<KernelInfo>, interleaved: usize) -> Entry {
        let (function, entry) = entry::emit(name, bodies, kernels, interleaved, &mut self.table);
        self.functions.push(function);
        entry
    }
}
