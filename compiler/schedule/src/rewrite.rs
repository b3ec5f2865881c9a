//! Rewrites the instructions of a traversal for micro-kernels.
//!
//! - Short sequences of element-wise instructions are fused ([`crate::fuse`]).
//! - Operands that a kernel takes as contiguous rows only are copied.
//! - An operand that the result overwrites at once is copied first.
//! - A result that overwrites a value with other readers is computed into a local. A *deferred* copy stores it after
//!   all reads of the old value.

use std::collections::HashMap;

use hgnnc_ir::width::Width;
use hgnnc_kernel_ir::kernel::{
    self, Buffer, Dest, Index, Instr, KernelOp, Level, Local, Operand, Program, Rows, Source, Traversal,
};
use hgnnc_kernel_ir::loops::{Access, access};
use hgnnc_machine::KernelFeatures;

use crate::fuse::{Form, forms};

/// A traversal with its instructions in their final form.
pub struct Rewritten {
    /// Rows and instructions.
    pub traversal: Traversal,
    /// Number of instructions before the deferred ones.
    pub first_deferred: usize,
}

impl Rewritten {
    /// The instructions.
    pub fn instrs(&self) -> &[Instr] {
        &self.traversal.instrs
    }
}

/// Rewrites a traversal.
pub fn rewrite(program: &Program, traversal: &Traversal, features: KernelFeatures) -> Rewritten {
    let mut rewriter = Rewriter {
        program,
        traversal,
        widths: Program::local_widths(traversal),
        locals: vec![],
        deferred: HashMap::new(),
        written: vec![],
        instrs: vec![],
        made: 0,
    };
    for (instr, form) in traversal.instrs.iter().zip(forms(&traversal.instrs, features)) {
        rewriter.instr(instr, form);
    }
    let first_deferred = rewriter.instrs.len();
    for instr in &traversal.instrs {
        let Dest::Buffer(buffer) = instr.dest else { continue };
        let Some(&local) = rewriter.deferred.get(&buffer) else { continue };
        let op = KernelOp::Copy(Operand { source: Source::Local(local), index: Index::Own });
        rewriter.instrs.push(Instr { level: Level::Row, op, ..instr.clone() });
    }
    let traversal = Traversal { rows: traversal.rows.clone(), pieces: traversal.pieces, instrs: rewriter.instrs };
    Rewritten { traversal, first_deferred }
}

struct Rewriter<'a> {
    program: &'a Program,
    traversal: &'a Traversal,
    /// Width of each local of the kernel.
    widths: Vec<Width>,
    /// The new local for each local of the kernel; `None` if its instruction was fused into its user.
    locals: Vec<Option<Local>>,
    /// The local that holds a result whose store is deferred.
    deferred: HashMap<Buffer, Local>,
    /// Buffers that earlier instructions write.
    written: Vec<Buffer>,
    instrs: Vec<Instr>,
    /// Number of new locals.
    made: u32,
}

impl Rewriter<'_> {
    fn instr(&mut self, instr: &Instr, form: Form) {
        let op = match form {
            Form::Plain => self.op(instr, &instr.op),
            Form::Fused(op) => self.op(instr, &op),
            Form::Gone => {
                self.locals.push(None);
                return;
            }
        };
        let dest = match instr.dest {
            Dest::Local(_) => {
                let local = self.local();
                self.locals.push(Some(local));
                Dest::Local(local)
            }
            Dest::Buffer(buffer) if !instr.op.is_total() && self.is_deferred(buffer) => {
                let local = self.local();
                self.deferred.insert(buffer, local);
                Dest::Local(local)
            }
            Dest::Buffer(buffer) => {
                self.written.push(buffer);
                Dest::Buffer(buffer)
            }
        };
        self.instrs.push(Instr { dest, op, ..instr.clone() });
    }

    fn local(&mut self) -> Local {
        self.made += 1;
        Local(self.made - 1)
    }

    /// An operation with its new operands, after the copies that it needs.
    fn op(&mut self, instr: &Instr, op: &KernelOp) -> KernelOp {
        let overwritten = match instr.dest {
            // A deferred result overwrites nothing yet.
            Dest::Buffer(new) if instr.op.is_total() || !self.is_deferred(new) => {
                self.program.buffer(new).replaces.map(Source::Buffer)
            }
            Dest::Buffer(_) | Dest::Local(_) => None,
        };
        let mapped: Result<KernelOp, std::convert::Infallible> = op.try_map(
            |position, &operand| {
                let width = self.program.operand_width(&self.traversal.rows, &self.widths, operand);
                let width = width.expect("in a verified program every operand has a width");
                let own = self.operand(operand);
                let contiguous = op.takes_contiguous_rows(position) && self.access(instr.level, own) != Access::Each;
                Ok(match contiguous || overwritten == Some(operand.source) {
                    true => self.copied(instr, own, width),
                    false => own,
                })
            },
            Width::clone,
        );
        match mapped {
            Ok(op) => op,
            Err(never) => match never {},
        }
    }

    fn operand(&self, operand: Operand) -> Operand {
        let source = match operand.source {
            Source::Local(local) => {
                Source::Local(self.locals[local.index()].expect("a fused instruction has no other reader"))
            }
            Source::Buffer(buffer) => match self.deferred.get(&buffer) {
                Some(&local) => Source::Local(local),
                None => operand.source,
            },
            Source::Const(_) | Source::Count(_) => operand.source,
        };
        // The only row of a traversal over one may be named as a whole.
        let index = match (source, operand.index) {
            (Source::Local(_), Index::Uniform) if self.traversal.rows == Rows::Once => Index::Own,
            (_, index) => index,
        };
        Operand { source, index }
    }

    fn access(&self, level: Level, operand: Operand) -> Access {
        let is_made_here = match operand.source {
            Source::Local(_) => true,
            Source::Buffer(buffer) => self.written.contains(&buffer),
            Source::Const(_) | Source::Count(_) => false,
        };
        access(self.program, &self.traversal.rows, level, operand, is_made_here)
    }

    fn copied(&mut self, instr: &Instr, operand: Operand, width: Width) -> Operand {
        let local = self.local();
        let op = KernelOp::Copy(operand);
        self.instrs.push(Instr { dest: Dest::Local(local), op, width, ..instr.clone() });
        let index = match instr.level {
            Level::Row => Index::Own,
            Level::Edge => Index::Edge,
        };
        Operand { source: Source::Local(local), index }
    }

    /// Whether a buffer overwrites a value that edges read, or that has other readers.
    fn is_deferred(&self, buffer: Buffer) -> bool {
        let Some(old) = self.program.overwritten(buffer) else { return false };
        let mut edges = self.traversal.instrs.iter().filter(|instr| instr.level == Level::Edge);
        edges.any(|instr| instr.op.operands().iter().any(|operand| operand.source == Source::Buffer(old)))
            || !kernel::reads_on_the_way(self.traversal, buffer, old)
    }
}
