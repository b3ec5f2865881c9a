//! Operations that move elements: concatenation, slicing and one-hot encoding.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, F32X4, I32X4};
use cranelift_codegen::ir::{InstBuilder, Value};

use super::{At, Emitter, UNROLL};
use hgnnc_kernel_ir::kernel::KernelOp;
use hgnnc_kernel_ir::loops::function::Source;

impl Emitter<'_, '_> {
    /// Emits an operation that moves elements, for the current item.
    pub(super) fn moved(&mut self, op: usize) -> Result<(), String> {
        let program = self.program;
        let width = program.instrs[op].width;
        if width > UNROLL {
            return Err(format!("rows of {width} elements are copied faster than element by element"));
        }
        if let KernelOp::OneHot(Source::Label(labels)) = program.instrs[op].op {
            return self.one_hot(op, labels, width);
        }
        // The source element of each result element.
        let from: Vec<(Source, usize)> = match &program.instrs[op].op {
            KernelOp::Slice { a, last, start, len } => {
                (0..width).map(|column| (*a, column / len * last + start + column % len)).collect()
            }
            KernelOp::Concat { parts, lead } => (0..*lead)
                .flat_map(|outer| {
                    parts.iter().flat_map(move |&a| {
                        let last = program.width(a) / lead;
                        (0..last).map(move |at| (a, outer * last + at))
                    })
                })
                .collect(),
            op => return Err(format!("{op:?} moves no elements")),
        };
        let mut column = 0;
        while column < width {
            let lanes = if column + 4 <= width { 4 } else { 1 };
            let here = &from[column..column + lanes];
            let (source, first) = here[0];
            let together = lanes == 4 && here.iter().enumerate().all(|(i, &place)| place == (source, first + i));
            let value = if together {
                let (row, flags) = self.memory(source);
                self.b.ins().load(F32X4, flags, row, 4 * first as i32)
            } else {
                let elements: Vec<Value> = here
                    .iter()
                    .map(|&(source, element)| {
                        let (row, flags) = self.memory(source);
                        self.b.ins().load(F32, flags, row, 4 * element as i32)
                    })
                    .collect();
                self.join(&elements)
            };
            self.keep(op, value, At { round: None, column, lanes });
            column += lanes;
        }
        Ok(())
    }

    fn one_hot(&mut self, op: usize, labels: u32, width: usize) -> Result<(), String> {
        let label = self.index(labels, self.item);
        let label = self.b.ins().splat(I32X4, label);
        let one = self.lanes().number(1.0);
        let mut column = 0;
        while column < width {
            let lanes = if column + 4 <= width { 4 } else { 1 };
            let bytes: Vec<u8> = (0..4).flat_map(|lane| ((column + lane) as u32).to_le_bytes()).collect();
            let classes = self.b.func.dfg.constants.insert(bytes.into());
            let classes = self.b.ins().vconst(I32X4, classes);
            let hit = self.b.ins().icmp(IntCC::Equal, label, classes);
            let value = self.lanes().keep(hit, one);
            self.keep(op, value, At { round: None, column, lanes });
            column += lanes;
        }
        Ok(())
    }
}
