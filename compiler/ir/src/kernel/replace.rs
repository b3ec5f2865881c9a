//! Updates in place: a computed buffer may lie where a parameter or an optimiser state lay, once nothing reads that
//! any more. No room is needed for the new value, and nothing is copied when the run is over.

use std::collections::{HashMap, HashSet};

use super::{Body, Buffer, Contents, Dest, Index, Kernel, Program, Source, Traversal};
use crate::dataflow::OutputKind;

/// Which launches write and read each buffer of a program.
#[derive(Clone, Debug)]
pub struct Uses<'p> {
    program: &'p Program,
    /// The first launch that writes a buffer.
    writer: Vec<Option<usize>>,
    /// Launches and kernels in them that read a buffer.
    readers: Vec<Vec<(usize, &'p Kernel)>>,
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
        for (index, launch) in self.launches.iter().enumerate() {
            for kernel in &launch.kernels {
                // In a program that is yet to be verified there may be others.
                let exists = |buffer: &Buffer| buffer.index() < self.buffers.len();
                for buffer in kernel.writes().into_iter().filter(exists) {
                    writer[buffer.index()].get_or_insert(index);
                }
                for buffer in kernel.reads().into_iter().filter(exists) {
                    readers[buffer.index()].push((index, kernel));
                }
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
        Uses { program: self, writer, readers, updates, last_result, outputs }
    }

    /// The position in [`Program::launches`] of the first launch that writes over a parameter or a state. A run that
    /// ends before it has changed nothing.
    pub fn first_update(&self) -> Option<usize> {
        let replaces = |buffer: &Buffer| self.buffer(*buffer).replaces.is_some();
        self.launches.iter().position(|launch| launch.kernels.iter().any(|k| k.writes().iter().any(replaces)))
    }
}

impl Uses<'_> {
    /// May the computed buffer `new` lie where the leaf `old` lies? Not when
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
            Contents::Input(_) | Contents::Computed => return Err("it replaces what never changes".into()),
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
        for &(index, kernel) in self.readers[old.index()].iter().filter(|(index, _)| *index >= at) {
            let own = index == at
                && match &kernel.body {
                    Body::Traversal(traversal) => reads_on_the_way(traversal, new, old),
                    Body::Gemm(_) => false,
                };
            if !own {
                return Err(format!("`{}` is read when it is written, or later", program.buffer(old).name));
            }
        }
        Ok(())
    }
}

/// Does a kernel read `old` at its own row only, and only to compute `new`?
fn reads_on_the_way(traversal: &Traversal, new: Buffer, old: Buffer) -> bool {
    let mut wanted: HashSet<Dest> = HashSet::from([Dest::Buffer(new)]);
    let mut good = traversal.instrs.iter().any(|instr| instr.dest == Dest::Buffer(new));
    for instr in traversal.instrs.iter().rev() {
        let needed = wanted.contains(&instr.dest);
        for operand in instr.op.operands() {
            match operand.source {
                Source::Buffer(buffer) if buffer == old => {
                    let whole_row = operand.index == Index::Row
                        || (operand.index == Index::Whole && traversal.rows == super::Rows::Once);
                    good &= needed && whole_row;
                }
                Source::Buffer(buffer) if needed => {
                    wanted.insert(Dest::Buffer(buffer));
                }
                Source::Local(local) if needed => {
                    wanted.insert(Dest::Local(local));
                }
                Source::Buffer(_) | Source::Local(_) | Source::Const(_) | Source::Count(_) => {}
            }
        }
    }
    good
}
