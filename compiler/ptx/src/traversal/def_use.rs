//! Producers and readers of the values of a traversal, and the order in which its instructions are executed.

use std::collections::HashMap;

use hgnnc_kernel_ir::kernel::{Buffer, Dest, Extent, Operand, Source, Traversal};
use hgnnc_kernel_ir::loops::passes::{Pass, passes_before};
use hgnnc_kernel_ir::loops::{EdgePass, Nest, producers};

/// The instructions of a traversal by what they make and read.
pub(super) struct DefUse {
    makers: HashMap<Dest, usize>,
    /// Instructions that read buffers, in order, by the buffer whose memory these have.
    readers: HashMap<Buffer, Vec<(usize, Buffer)>>,
    /// The passes over the edges of a row.
    passes: Vec<Pass>,
    /// For each instruction, the number of passes over the edges that it waits for.
    rounds: Vec<usize>,
}

impl DefUse {
    /// `homes`: the buffer whose memory each buffer of the program has.
    pub fn new(traversal: &Traversal, nest: &Nest, homes: &[Buffer]) -> Self {
        let (mut makers, mut readers) = (HashMap::new(), HashMap::<Buffer, Vec<(usize, Buffer)>>::new());
        for (index, instr) in traversal.instrs.iter().enumerate() {
            // A total is complete only after the kernel.
            if instr.extent() != Extent::Total {
                makers.insert(instr.dest, index);
            }
            for operand in instr.op.operands() {
                if let Source::Buffer(buffer) = operand.source {
                    readers.entry(homes[buffer.index()]).or_default().push((index, buffer));
                }
            }
        }
        let made_by = producers(&traversal.instrs);
        let deps: Vec<Vec<usize>> = made_by.iter().map(|made_by| made_by.iter().flatten().copied().collect()).collect();
        let pass = |pass: &EdgePass| {
            let [rows, edges] = pass.instrs();
            Pass { rows, edges }
        };
        let passes = nest.passes.iter().map(pass).collect();
        Self { makers, readers, passes, rounds: passes_before(&traversal.instrs, &deps) }
    }

    /// The number of passes over the edges that are complete when an instruction is executed. Instructions of rows are
    /// executed before the next pass, those of edges in it.
    pub fn round(&self, index: usize) -> usize {
        self.rounds[index]
    }

    /// The passes over the edges of a row.
    pub fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// The instruction that makes what an operand reads, if there is one.
    pub fn producer(&self, operand: Operand) -> Option<usize> {
        match operand.source {
            Source::Local(local) => self.makers.get(&Dest::Local(local)).copied(),
            Source::Buffer(buffer) => self.producer_of(buffer),
            Source::Const(_) | Source::Count(_) => None,
        }
    }

    /// The instruction that makes the rows or edges of a buffer, if there is one.
    pub fn producer_of(&self, buffer: Buffer) -> Option<usize> {
        self.makers.get(&Dest::Buffer(buffer)).copied()
    }

    /// Instructions that read other buffers in the memory of a buffer, of which `home` is the first.
    pub fn readers_of_place(&self, home: Buffer, buffer: Buffer) -> impl Iterator<Item = usize> {
        let readers = self.readers.get(&home).into_iter().flatten();
        readers.filter(move |(_, read)| *read != buffer).map(|(index, _)| *index)
    }
}
