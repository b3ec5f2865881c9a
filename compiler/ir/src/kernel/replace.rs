//! Values in the place of others: a computed buffer may lie where another one lay, once nothing reads that any more.
//!
//! What takes the place of a parameter or an optimiser state needs no room, and nothing is copied when the run is over.
//! What takes the place of a computed value, such as a gradient that of the value whose rows it is computed from, needs
//! no room while both would be alive.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet, VecDeque};

use super::{Body, Buffer, Contents, Dest, Extent, Index, Kernel, Operand, Program, Rows, Source, Traversal, Width};
use crate::dataflow::OutputKind;
use crate::types::{Layout, Space};

/// Which launches write and read each buffer of a program.
#[derive(Clone, Debug)]
pub struct Uses<'p> {
    program: &'p Program,
    /// The first launch that writes a buffer.
    writer: Vec<Option<usize>>,
    /// Launches and kernels in them, by number, that read a buffer.
    readers: Vec<Vec<(usize, usize)>>,
    /// The kernels, and where each of them makes and reads what; found when it is asked for.
    kernels: Vec<(&'p Kernel, OnceCell<Ways>)>,
    /// The buffer of each parameter or state, and what it is updated to.
    updates: HashMap<&'p OutputKind, Source>,
    /// The last launch that writes a result, and its name.
    last_result: Option<(usize, &'p str)>,
    /// Leaves that are outputs themselves.
    outputs: HashSet<Buffer>,
}

impl Program {
    /// What [`Uses::may_replace`] asks for.
    pub fn uses(&self) -> Uses<'_> {
        let mut writer = vec![None; self.buffers.len()];
        let mut readers = vec![vec![]; self.buffers.len()];
        let mut kernels = vec![];
        for (index, launch) in self.launches.iter().enumerate() {
            for kernel in &launch.kernels {
                // In a program that is yet to be verified there may be others.
                let exists = |buffer: &Buffer| buffer.index() < self.buffers.len();
                for buffer in kernel.writes().into_iter().filter(exists) {
                    writer[buffer.index()].get_or_insert(index);
                }
                for buffer in kernel.reads().into_iter().filter(exists) {
                    readers[buffer.index()].push((index, kernels.len()));
                }
                kernels.push((kernel, OnceCell::new()));
            }
        }
        let mut last_result = None;
        let (mut updates, mut outputs) = (HashMap::new(), HashSet::new());
        for output in &self.outputs {
            if let Source::Buffer(buffer) = output.source {
                outputs.insert(buffer);
                let written = writer.get(buffer.index()).copied().flatten();
                if let (OutputKind::Result(name), Some(at)) = (&output.kind, written) {
                    last_result = last_result.max(Some((at, name.as_str())));
                }
            }
            updates.insert(&output.kind, output.source);
        }
        Uses { program: self, writer, readers, kernels, updates, last_result, outputs }
    }

    /// The position in [`Program::launches`] of the first launch that writes over a parameter or a state. A run that
    /// ends before it has changed nothing.
    pub fn first_update(&self) -> Option<usize> {
        let updates = |buffer: &Buffer| self.updated(*buffer).is_some();
        self.launches.iter().position(|launch| launch.kernels.iter().any(|k| k.writes().iter().any(updates)))
    }

    /// The parameter or state whose place a buffer takes.
    pub fn updated(&self, buffer: Buffer) -> Option<Buffer> {
        self.buffer(buffer).replaces.filter(|old| self.buffer(*old).contents != Contents::Computed)
    }

    /// The computed value whose place a buffer takes.
    pub fn taken_over(&self, buffer: Buffer) -> Option<Buffer> {
        self.buffer(buffer).replaces.filter(|old| self.buffer(*old).contents == Contents::Computed)
    }

    /// What the rows of a buffer have in common with those that may take their place one by one; `None`: they stay.
    pub fn row_shape(&self, buffer: Buffer) -> Option<(Layout, Space, Width)> {
        let ty = &self.buffer(buffer).ty;
        let stay = matches!(ty.space, Space::Unit | Space::Edges(_));
        (!stay).then(|| (ty.layout, ty.space, Width::of(&ty.dims)))
    }

    /// The buffer whose memory each buffer has, as [`Program::home`] says.
    pub fn homes(&self) -> Vec<Buffer> {
        let mut homes: Vec<Option<Buffer>> = vec![None; self.buffers.len()];
        let of = |buffer: Buffer| {
            let (mut at, mut passed) = (buffer, vec![]);
            let home = loop {
                if let Some(known) = homes[at.index()] {
                    break known;
                }
                passed.push(at);
                match self.buffer(at).replaces {
                    Some(old) => at = old,
                    None => break at,
                }
            };
            passed.into_iter().for_each(|buffer| homes[buffer.index()] = Some(home));
            home
        };
        (0..self.buffers.len()).map(Buffer::new).map(of).collect()
    }

    /// The buffer whose memory a buffer has: itself, or the first of those that replaced each other.
    pub fn home(&self, buffer: Buffer) -> Buffer {
        let mut home = buffer;
        while let Some(old) = self.buffer(home).replaces {
            home = old;
        }
        home
    }
}

impl Uses<'_> {
    /// May the computed buffer `new` lie where `old` lies?
    ///
    /// Where `old` is computed too: not when
    ///
    /// - `old` is not there when `new` is written, stays from run to run, or is an output;
    /// - they have not the same number of rows and of elements per row;
    /// - anything but the writing kernel at its own row reads `old` when `new` is written, or later. A traversal writes
    ///   the rows of what takes the place of another when all else is computed for them.
    ///
    /// Where `old` is a parameter or a state: not when
    ///
    /// - it is not what `old` is updated to, or has another number of elements;
    /// - the launch that writes `new` or a later one reads `old`, but for the writing kernel itself at its own row on
    ///   the way to `new`;
    /// - a result is still to be computed when `new` is written: whoever runs the program could not decide, with the
    ///   results at hand, to keep the old values.
    ///
    /// # Errors
    /// The rule that it would break.
    pub fn may_replace(&self, new: Buffer, old: Buffer) -> Result<(), String> {
        let program = self.program;
        let target = match program.buffer(old).contents {
            Contents::Param(param) => OutputKind::UpdateParam(param),
            Contents::State(param, slot) => OutputKind::UpdateState(param, slot),
            Contents::Computed => return self.may_take_over(new, old),
            Contents::Input(_) => return Err("it replaces what never changes".into()),
        };
        if self.updates.get(&target) != Some(&Source::Buffer(new)) {
            return Err(format!("it is not what `{}` is updated to", program.buffer(old).name));
        }
        if self.outputs.contains(&old) {
            return Err(format!("`{}` is an output itself", program.buffer(old).name));
        }
        if program.volume(new) != program.volume(old) {
            return Err(format!("it has not as many elements as `{}`", program.buffer(old).name));
        }
        let Some(at) = self.writer[new.index()] else { return Err("no run computes it".into()) };
        if let Some((result, name)) = self.last_result
            && result >= at
        {
            return Err(format!("the result `{name}` is not there when it is written"));
        }
        for &(index, kernel) in self.readers_from(old, at) {
            let on_the_way = |(traversal, ways): (&Traversal, &Ways)| ways.reads_on_the_way(traversal, new, old);
            let own = index == at && self.traversal(kernel).is_some_and(on_the_way);
            if !own {
                return Err(format!("`{}` is read when it is written, or later", program.buffer(old).name));
            }
        }
        Ok(())
    }

    /// Could what the launch `at` computes lie where the computed buffer `old` lies? This is what [`Uses::may_replace`] asks
    /// of `old` alone. What takes its place must also have its rows, and be written by what reads them.
    pub fn is_released(&self, old: Buffer, at: usize) -> bool {
        self.is_there(old, at).is_ok() && self.is_last_read(old, at).is_ok()
    }

    fn may_take_over(&self, new: Buffer, old: Buffer) -> Result<(), String> {
        let program = self.program;
        let name = &program.buffer(old).name;
        let Some(at) = self.writer[new.index()] else { return Err(NOT_COMPUTED.into()) };
        self.is_there(old, at)?;
        let rows = program.row_shape(new);
        if rows.is_none() || rows != program.row_shape(old) {
            return Err(format!("it has not the rows of `{name}`"));
        }
        self.is_last_read(old, at)?;
        if !self.readers_from(old, at).iter().all(|&(_, kernel)| self.writes_rows(kernel, new)) {
            return Err(format!("`{name}` is read when it is written, or later"));
        }
        Ok(())
    }

    /// Does each run compute `old` before the launch `at`, for no one else?
    fn is_there(&self, old: Buffer, at: usize) -> Result<(), String> {
        let name = &self.program.buffer(old).name;
        let Some(before) = self.writer[old.index()] else { return Err(NOT_COMPUTED.into()) };
        if before >= at {
            return Err(format!("`{name}` is not there when it is written"));
        }
        if self.outputs.contains(&old) {
            return Err(format!("`{name}` is an output itself"));
        }
        Ok(())
    }

    /// Does nothing read `old` in the launch `at` or later, but kernels of that launch at their own row?
    fn is_last_read(&self, old: Buffer, at: usize) -> Result<(), String> {
        let name = &self.program.buffer(old).name;
        let readers = self.readers_from(old, at);
        if !readers.iter().all(|&(index, kernel)| index == at && self.reads_own_rows(kernel, old)) {
            return Err(format!("`{name}` is read when it is written, or later"));
        }
        // Where nothing reads the old value any more, the memory is free anyway.
        if readers.is_empty() {
            return Err(format!("`{name}` is not read by what writes it"));
        }
        Ok(())
    }

    /// Launches from `at` on, and kernels in them, that read a buffer.
    fn readers_from(&self, buffer: Buffer, at: usize) -> &[(usize, usize)] {
        // They are listed in the order of launches.
        let readers = &self.readers[buffer.index()];
        &readers[readers.partition_point(|&(index, _)| index < at)..]
    }

    /// A traversal, and where it makes and reads what.
    fn traversal(&self, kernel: usize) -> Option<(&Traversal, &Ways)> {
        let (kernel, ways) = &self.kernels[kernel];
        match &kernel.body {
            Body::Traversal(traversal) => Some((traversal, ways.get_or_init(|| Ways::of(traversal)))),
            Body::Gemm(_) | Body::Paths(_) => None,
        }
    }

    /// Does a kernel read a buffer at its own row only?
    fn reads_own_rows(&self, kernel: usize, buffer: Buffer) -> bool {
        let own = |operand: &Operand| operand.source != Source::Buffer(buffer) || operand.index == Index::Row;
        self.traversal(kernel).is_some_and(|(traversal, ways)| {
            let mut readers = ways.readers(Dest::Buffer(buffer)).iter();
            readers.all(|&at| traversal.instrs[at].op.operands().iter().all(own))
        })
    }

    /// Does a kernel write a buffer row by row?
    fn writes_rows(&self, kernel: usize, buffer: Buffer) -> bool {
        self.traversal(kernel).is_some_and(|(traversal, ways)| {
            let mut makers = ways.makers(Dest::Buffer(buffer)).iter();
            makers.any(|&at| traversal.instrs[at].extent() == Extent::Row)
        })
    }
}

/// The rule that a value which no run computes would break.
const NOT_COMPUTED: &str = "both must be computed by each run";

/// Does a kernel read `old` at its own row only, and only to compute `new`?
pub fn reads_on_the_way(traversal: &Traversal, new: Buffer, old: Buffer) -> bool {
    Ways::of(traversal).reads_on_the_way(traversal, new, old)
}

/// Which instructions of a traversal, in order, make and read a value.
#[derive(Clone, Debug)]
struct Ways {
    makers: HashMap<Dest, Vec<usize>>,
    readers: HashMap<Dest, Vec<usize>>,
}

impl Ways {
    fn of(traversal: &Traversal) -> Self {
        let mut ways = Self { makers: HashMap::new(), readers: HashMap::new() };
        for (at, instr) in traversal.instrs.iter().enumerate() {
            ways.makers.entry(instr.dest).or_default().push(at);
            for operand in instr.op.operands() {
                let read = match operand.source {
                    Source::Buffer(buffer) => Dest::Buffer(buffer),
                    Source::Local(local) => Dest::Local(local),
                    Source::Const(_) | Source::Count(_) => continue,
                };
                ways.readers.entry(read).or_default().push(at);
            }
        }
        ways
    }

    /// Instructions that make a value.
    fn makers(&self, of: Dest) -> &[usize] {
        self.makers.get(&of).map_or(&[], Vec::as_slice)
    }

    /// Instructions that read a value.
    fn readers(&self, of: Dest) -> &[usize] {
        self.readers.get(&of).map_or(&[], Vec::as_slice)
    }

    /// Does the traversal read `old` at its own row only, and only to compute `new`?
    fn reads_on_the_way(&self, traversal: &Traversal, new: Buffer, old: Buffer) -> bool {
        let makers = self.makers(Dest::Buffer(new));
        let whole_row = |index: Index| index == Index::Row || (index == Index::Whole && traversal.rows == Rows::Once);
        !makers.is_empty()
            && self.readers(Dest::Buffer(old)).iter().all(|&at| {
                let operands = traversal.instrs[at].op.operands();
                let mut reads = operands.iter().filter(|operand| operand.source == Source::Buffer(old));
                reads.all(|operand| whole_row(operand.index)) && self.leads_to(traversal, at, makers, old)
            })
    }

    /// Does what an instruction makes go into what some later ones make, other than by way of `old`? The search goes on from
    /// the nearest readers: an update is near to what it reads, and what it is scaled by may depend on all parameters.
    fn leads_to(&self, traversal: &Traversal, from: usize, to: &[usize], old: Buffer) -> bool {
        let (mut seen, mut pending) = (HashSet::from([from]), VecDeque::from([from]));
        while let Some(at) = pending.pop_front() {
            if to.contains(&at) {
                return true;
            }
            let made = traversal.instrs[at].dest;
            if made != Dest::Buffer(old) {
                let later = self.readers(made).iter().copied().filter(|&reader| reader > at);
                pending.extend(later.filter(|&reader| seen.insert(reader)));
            }
        }
        false
    }
}
