//! Updates in place: a computed buffer may lie where a parameter or an optimiser state lay, once nothing reads that
//! any more. No room is needed for the new value, and nothing is copied when the run is over.

use std::collections::HashSet;

use super::{Body, Buffer, Contents, Dest, Index, Kernel, Program, Source, Traversal};
use crate::dataflow::OutputKind;

impl Program {
    /// The position in [`Program::launches`] of the first launch that writes over a parameter or a state. A run that
    /// ends before it has changed nothing.
    pub fn first_update(&self) -> Option<usize> {
        let replaces = |buffer: &Buffer| self.buffer(*buffer).replaces.is_some();
        self.launches.iter().position(|launch| launch.kernels.iter().any(|k| k.writes().iter().any(replaces)))
    }

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
        let target = match self.buffer(old).contents {
            Contents::Param(param) => OutputKind::UpdateParam(param),
            Contents::State(param, slot) => OutputKind::UpdateState(param, slot),
            Contents::Input(_) | Contents::Computed => return Err("it replaces what never changes".into()),
        };
        let is_source = |source: Source, buffer| source == Source::Buffer(buffer);
        if !self.outputs.iter().any(|output| output.kind == target && is_source(output.source, new)) {
            return Err(format!("it is not what `{}` is updated to", self.buffer(old).name));
        }
        if self.outputs.iter().any(|output| is_source(output.source, old)) {
            return Err(format!("`{}` is an output itself", self.buffer(old).name));
        }
        if self.volume(new) != self.volume(old) {
            return Err(format!("it has not as many elements as `{}`", self.buffer(old).name));
        }
        let writer = |buffer: Buffer| {
            let writes = |kernel: &Kernel| kernel.writes().contains(&buffer);
            self.launches.iter().position(|launch| launch.kernels.iter().any(writes))
        };
        let Some(at) = writer(new) else { return Err("no run computes it".into()) };
        for output in &self.outputs {
            if let (OutputKind::Result(name), Source::Buffer(buffer)) = (&output.kind, output.source)
                && writer(buffer).is_some_and(|result| result >= at)
            {
                return Err(format!("the result `{name}` is not there when it is written"));
            }
        }
        for (index, launch) in self.launches.iter().enumerate().skip(at) {
            for kernel in launch.kernels.iter().filter(|kernel| kernel.reads().contains(&old)) {
                let own = index == at
                    && match &kernel.body {
                        Body::Traversal(traversal) => reads_on_the_way(traversal, new, old),
                        Body::Gemm(_) => false,
                    };
                if !own {
                    return Err(format!("`{}` is read when it is written, or later", self.buffer(old).name));
                }
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
