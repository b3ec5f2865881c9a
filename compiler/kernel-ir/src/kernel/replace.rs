//! Buffer aliasing: a computed buffer may reuse the memory of another one that is dead when it is written.
//!
//! A buffer that aliases a parameter or optimizer state is an in-place update: it needs no memory of its own and no
//! copy after the run. A buffer that aliases a computed value (a gradient, say, that of the value it is computed from)
//! saves the memory of two values that would be alive at the same time. Rows that are sent to other ranks may lie among the
//! mirrors that an exchange makes of them, so that they are not copied.

use std::cell::OnceCell;
use std::collections::VecDeque;

use hgnnc_ir::dataflow::{Binding, InputDecl, OutputKind};
use hgnnc_ir::types::{Layout, Phase, Space};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    Body, Buffer, Contents, Dest, Extent, Index, Kernel, Launch, Operand, Program, Rows, Source, Traversal, Width,
};

/// The launches that write and read each buffer of a program.
#[derive(Clone, Debug)]
pub struct Uses<'p> {
    program: &'p Program,
    /// The launch that first writes each buffer.
    writer: Vec<Option<usize>>,
    /// The readers of each buffer, as (launch, kernel) numbers.
    readers: Vec<Vec<(usize, usize)>>,
    /// All kernels, each with its use-def chains, computed on demand.
    kernels: Vec<(&'p Kernel, OnceCell<Ways>)>,
    /// The source that each parameter or state is updated to.
    updates: FxHashMap<&'p OutputKind, Source>,
    /// The last launch that writes a result, with the result's name.
    last_result: Option<(usize, &'p str)>,
    /// Buffers that are program outputs.
    outputs: FxHashSet<Buffer>,
}

impl Program {
    /// The use lists that [`Uses::may_replace`] works on.
    pub fn uses(&self) -> Uses<'_> {
        let mut writer = vec![None; self.buffers.len()];
        let mut readers = vec![vec![]; self.buffers.len()];
        let mut kernels = vec![];
        for (index, launch) in self.launches.iter().enumerate() {
            for kernel in &launch.kernels {
                // An unverified program may name buffers that do not exist.
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
        let (mut updates, mut outputs) = (FxHashMap::default(), FxHashSet::default());
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

    /// The position in [`Program::launches`] of the first launch that overwrites a parameter or a state. A run that is
    /// aborted before it has no effect.
    pub fn first_update(&self) -> Option<usize> {
        let updates = |buffer: &Buffer| self.updated(*buffer).is_some();
        self.launches.iter().position(|launch| launch.kernels.iter().any(|k| k.writes().iter().any(updates)))
    }

    /// The position in [`Program::launches`] of the second part of a run, which the caller starts once it has read
    /// results of the first: the first update ([`Program::first_update`]) or, in a program that updates nothing and whose
    /// backward pass takes gradients of the caller ([`Binding::Given`]), the first launch of the backward pass.
    pub fn second_part(&self) -> Option<usize> {
        if self.outputs.iter().any(|output| !matches!(output.kind, OutputKind::Result(_))) {
            return self.first_update();
        }
        let is_given = |input: &InputDecl| matches!(input.binding, Binding::Given(_));
        let backward = |launch: &Launch| launch.kernels.iter().any(|kernel| kernel.phase == Phase::Backward);
        self.tables.inputs.iter().any(is_given).then(|| self.launches.iter().position(backward)).flatten()
    }

    /// The parameter or state that a buffer updates in place.
    pub fn updated(&self, buffer: Buffer) -> Option<Buffer> {
        self.buffer(buffer).replaces.filter(|old| self.buffer(*old).contents != Contents::Computed)
    }

    /// The computed buffer whose memory a buffer reuses.
    pub fn overwritten(&self, buffer: Buffer) -> Option<Buffer> {
        self.buffer(buffer).replaces.filter(|old| self.buffer(*old).contents == Contents::Computed)
    }

    /// The row shape that two buffers must share to alias row by row; `None` if a buffer never aliases by rows.
    pub fn row_shape(&self, buffer: Buffer) -> Option<(Layout, Space, Width)> {
        let ty = &self.buffer(buffer).ty;
        let stay = matches!(ty.space, Space::Unit | Space::Edges(_));
        (!stay).then(|| (ty.layout, ty.space, Width::of(&ty.dims)))
    }

    /// The owner of the memory of each buffer, see [`Program::home`].
    pub fn homes(&self) -> Vec<Buffer> {
        let mut homes: Vec<Option<Buffer>> = vec![None; self.buffers.len()];
        let of = |buffer: Buffer| {
            let (mut at, mut passed) = (buffer, vec![]);
            let home = loop {
                if let Some(known) = homes[at.index()] {
                    break known;
                }
                passed.push(at);
                match self.aliased(at) {
                    Some(other) => at = other,
                    None => break at,
                }
            };
            passed.into_iter().for_each(|buffer| homes[buffer.index()] = Some(home));
            home
        };
        (0..self.buffers.len()).map(Buffer::new).map(of).collect()
    }

    /// The buffer that owns the memory of `buffer`: the root of its alias chain.
    pub fn home(&self, buffer: Buffer) -> Buffer {
        let mut home = buffer;
        while let Some(other) = self.aliased(home) {
            home = other;
        }
        home
    }

    /// The next buffer of an alias chain.
    fn aliased(&self, buffer: Buffer) -> Option<Buffer> {
        let decl = self.buffer(buffer);
        decl.replaces.or(decl.extends)
    }

    /// The buffers whose rows lie among mirrors of them, each with the buffer that has these mirrors.
    pub fn extended(&self) -> Vec<(Buffer, Buffer)> {
        let all = (0..self.buffers.len()).map(Buffer::new);
        let mirrors: Vec<Buffer> = all.clone().filter(|&buffer| self.buffer(buffer).extends.is_some()).collect();
        if mirrors.is_empty() {
            return vec![];
        }
        let homes = self.homes();
        let of_home: FxHashMap<Buffer, Buffer> = mirrors.iter().map(|&all| (homes[all.index()], all)).collect();
        let pair = |buffer: Buffer| of_home.get(&homes[buffer.index()]).map(|&mirrors| (buffer, mirrors));
        all.filter_map(pair).filter(|(buffer, mirrors)| buffer != mirrors).collect()
    }
}

impl Uses<'_> {
    /// May the computed buffer `new` alias `old`?
    ///
    /// If `old` is computed too, the answer is no when
    ///
    /// - `old` is not yet written when `new` is, persists across runs, or is an output;
    /// - the two differ in the number of rows or of elements per row;
    /// - `old` is read at or after the write of `new`, other than by the writing kernel at its own row (a traversal
    ///   stores to an aliasing buffer after all other instructions of the row).
    ///
    /// If `old` is a parameter or a state, the answer is no when
    ///
    /// - `new` is not its update, or has another number of elements;
    /// - the launch that writes `new` or a later one reads `old`, other than the writing kernel itself, at its own
    ///   row, to compute `new`;
    /// - a result is computed at or after the write of `new`: the caller could then not inspect the results and
    ///   keep the old values.
    ///
    /// # Errors
    /// The first of these rules that is violated.
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

    /// May the rows of an exchange be stored around those that it sends?
    ///
    /// The answer is no when
    ///
    /// - `all` is not written by an exchange of `own`, or its owned rows do not lie together;
    /// - one of both persists across runs, or is an output;
    /// - another buffer replaces one of both: it would overwrite rows of the other one.
    ///
    /// # Errors
    /// The first of these rules that is violated.
    pub fn may_extend(&self, all: Buffer, own: Buffer) -> Result<(), String> {
        let (program, name) = (self.program, &self.program.buffer(own).name);
        let Some(at) = self.writer[all.index()] else { return Err(NOT_COMPUTED.into()) };
        self.is_there(own, at)?;
        if self.outputs.contains(&all) {
            return Err("it is an output".into());
        }
        let Space::Vertices(to) = program.buffer(all).ty.space else { return Err("it has no rows of vertices".into()) };
        let mut kernels = program.launches[at].kernels.iter();
        let is_exchanged = kernels.any(|kernel| match &kernel.body {
            Body::Exchange(exchange) => exchange.x == own && exchange.out == all && exchange.to == Some(to),
            _ => false,
        });
        if !is_exchanged || !program.tables.has_owned_rows_together(to) {
            return Err(format!("it has no mirrors of the rows of `{name}`, with these rows in one place"));
        }
        if program.buffers.iter().any(|decl| decl.replaces.is_some_and(|old| old == own || old == all)) {
            return Err("another buffer overwrites rows of both".into());
        }
        Ok(())
    }

    /// The launch that first writes a buffer.
    pub fn first_write(&self, buffer: Buffer) -> Option<usize> {
        self.writer[buffer.index()]
    }

    /// The last launch that reads a buffer.
    pub fn last_read(&self, buffer: Buffer) -> Option<usize> {
        self.readers[buffer.index()].last().map(|&(launch, _)| launch)
    }

    /// Could a buffer that launch `at` computes alias the computed buffer `old`? Checks the rules of
    /// [`Uses::may_replace`] that concern `old` alone; the new buffer must also have its row shape and be
    /// written by its readers.
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

    /// Does each run compute `old` before launch `at`, and is it no program output?
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

    /// Is every read of `old` in launch `at` or later one by a kernel of that launch at its own row?
    fn is_last_read(&self, old: Buffer, at: usize) -> Result<(), String> {
        let name = &self.program.buffer(old).name;
        let readers = self.readers_from(old, at);
        if !readers.iter().all(|&(index, kernel)| index == at && self.reads_own_rows(kernel, old)) {
            return Err(format!("`{name}` is read when it is written, or later"));
        }
        // Without a reader in launch `at`, the memory is free without aliasing.
        if readers.is_empty() {
            return Err(format!("`{name}` is not read by what writes it"));
        }
        Ok(())
    }

    /// The (launch, kernel) numbers of a buffer's readers, from launch `at` on.
    fn readers_from(&self, buffer: Buffer, at: usize) -> &[(usize, usize)] {
        // The readers are sorted by launch.
        let readers = &self.readers[buffer.index()];
        &readers[readers.partition_point(|&(index, _)| index < at)..]
    }

    /// A kernel's traversal with its use-def chains; `None` for other kernels.
    fn traversal(&self, kernel: usize) -> Option<(&Traversal, &Ways)> {
        let (kernel, ways) = &self.kernels[kernel];
        match &kernel.body {
            Body::Traversal(traversal) => Some((traversal, ways.get_or_init(|| Ways::of(traversal)))),
            Body::Gemm(_) | Body::FactoredMetapath(_) | Body::Exchange(_) => None,
        }
    }

    /// Does the kernel read the buffer at its own row only?
    fn reads_own_rows(&self, kernel: usize, buffer: Buffer) -> bool {
        let own = |operand: &Operand| operand.source != Source::Buffer(buffer) || operand.index == Index::Own;
        self.traversal(kernel).is_some_and(|(traversal, ways)| {
            let mut readers = ways.readers(Dest::Buffer(buffer)).iter();
            readers.all(|&at| traversal.instrs[at].op.operands().iter().all(own))
        })
    }

    /// Does the kernel write the buffer row by row?
    fn writes_rows(&self, kernel: usize, buffer: Buffer) -> bool {
        self.traversal(kernel).is_some_and(|(traversal, ways)| {
            let mut makers = ways.producers(Dest::Buffer(buffer)).iter();
            makers.any(|&at| traversal.instrs[at].extent() == Extent::Row)
        })
    }
}

/// The rule that a buffer violates if no run computes it.
const NOT_COMPUTED: &str = "both must be computed by each run";

/// Does the kernel read `old` at its own row only, and only to compute `new`?
pub fn reads_on_the_way(traversal: &Traversal, new: Buffer, old: Buffer) -> bool {
    Ways::of(traversal).reads_on_the_way(traversal, new, old)
}

/// Use-def chains of a traversal: the instructions that define and read each value, in order.
#[derive(Clone, Debug)]
struct Ways {
    makers: FxHashMap<Dest, Vec<usize>>,
    readers: FxHashMap<Dest, Vec<usize>>,
}

impl Ways {
    fn of(traversal: &Traversal) -> Self {
        let mut ways = Self { makers: FxHashMap::default(), readers: FxHashMap::default() };
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

    /// The instructions that define a value.
    fn producers(&self, of: Dest) -> &[usize] {
        self.makers.get(&of).map_or(&[], Vec::as_slice)
    }

    /// The instructions that read a value.
    fn readers(&self, of: Dest) -> &[usize] {
        self.readers.get(&of).map_or(&[], Vec::as_slice)
    }

    /// Does the traversal read `old` at its own row only, and only to compute `new`?
    fn reads_on_the_way(&self, traversal: &Traversal, new: Buffer, old: Buffer) -> bool {
        let makers = self.producers(Dest::Buffer(new));
        let whole_row = |index: Index| index == Index::Own || (index == Index::Uniform && traversal.rows == Rows::Once);
        !makers.is_empty()
            && self.readers(Dest::Buffer(old)).iter().all(|&at| {
                let operands = traversal.instrs[at].op.operands();
                let mut reads = operands.iter().filter(|operand| operand.source == Source::Buffer(old));
                reads.all(|operand| whole_row(operand.index)) && self.leads_to(traversal, at, makers, old)
            })
    }

    /// Does the result of instruction `from` flow into one of the instructions `to`, other than through `old`?
    /// Breadth-first: an update is close to its operands, while its scale may depend on all parameters.
    fn leads_to(&self, traversal: &Traversal, from: usize, to: &[usize], old: Buffer) -> bool {
        let (mut seen, mut pending) = (FxHashSet::from_iter([from]), VecDeque::from([from]));
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
