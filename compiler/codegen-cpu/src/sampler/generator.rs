//! Helpers for loops, argument fields and calls in Cranelift IR.

use std::collections::BTreeMap;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I32X4, I64};
use cranelift_codegen::ir::{AbiParam, Block, InstBuilder, MemFlagsData, Signature, Type, Value};
use cranelift_frontend::{FunctionBuilder, Variable};

/// The multiplier of the high half of an index, followed by those of the finaliser: [`hgnnc_ir::random::bits_from`].
const HIGH: u32 = 0x9e37_79b9;
const ROUNDS: [(u32, u32); 2] = [(16, 0x7feb_352d), (15, 0x846c_a68b)];
const LAST_SHIFT: u32 = 16;

pub(super) struct Generator<'b> {
    pub b: FunctionBuilder<'b>,
    /// Comments on blocks, for listings of the IR.
    pub notes: BTreeMap<Block, String>,
    /// The only argument: the address of the call's struct.
    pub call: Value,
}

/// Flags of loads from memory that is never written.
pub(super) fn fixed() -> MemFlagsData {
    MemFlagsData::new().with_notrap().with_can_move().with_readonly()
}

/// Flags of accesses to memory that the function writes.
pub(super) fn changing() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

impl<'b> Generator<'b> {
    /// Starts in the entry block of a function with one argument.
    pub fn new(mut b: FunctionBuilder<'b>) -> Self {
        let entry = b.create_block();
        b.append_block_params_for_function_params(entry);
        b.switch_to_block(entry);
        let call = b.block_params(entry)[0];
        Self { b, notes: BTreeMap::new(), call }
    }

    pub fn block(&mut self, note: &str) -> Block {
        let block = self.b.create_block();
        self.notes.insert(block, note.to_owned());
        block
    }

    pub fn var(&mut self, ty: Type, value: Value) -> Variable {
        let variable = self.b.declare_var(ty);
        self.b.def_var(variable, value);
        variable
    }

    /// Loads a field of the arguments at a byte offset.
    pub fn field(&mut self, ty: Type, at: usize) -> Value {
        self.b.ins().load(ty, fixed(), self.call, at as i32)
    }

    pub fn int(&mut self, value: i64) -> Value {
        self.b.ins().iconst(I64, value)
    }

    /// The address of element `at` (I64), with elements of `1 << log_bytes` bytes.
    pub fn at(&mut self, base: Value, at: Value, log_bytes: i64) -> Value {
        let bytes = self.b.ins().ishl_imm_u(at, log_bytes);
        self.b.ins().iadd(base, bytes)
    }

    pub fn less(&mut self, a: Value, b: Value) -> Value {
        self.b.ins().icmp(IntCC::UnsignedLessThan, a, b)
    }

    pub fn wide(&mut self, word: Value) -> Value {
        self.b.ins().uextend(I64, word)
    }

    /// A loop: runs `body` for `from`, `from + step`, … while below `to`.
    pub fn repeat(&mut self, note: &str, (from, to): (Value, Value), step: i64, body: impl FnOnce(&mut Self, Value)) {
        let at = self.var(I64, from);
        let (inside, after) = (self.block(note), self.b.create_block());
        let any = self.less(from, to);
        self.b.ins().brif(any, inside, &[], after, &[]);
        self.b.switch_to_block(inside);
        let here = self.b.use_var(at);
        body(self, here);
        let next = self.b.ins().iadd_imm_u(here, step);
        self.b.def_var(at, next);
        let more = self.less(next, to);
        self.b.ins().brif(more, inside, &[], after, &[]);
        self.b.switch_to_block(after);
    }

    /// An if-else with the bodies `then` and `otherwise`.
    pub fn branch(
        &mut self,
        condition: Value,
        (note, then): (&str, impl FnOnce(&mut Self)),
        (note_otherwise, otherwise): (&str, impl FnOnce(&mut Self)),
    ) {
        let (yes, no, after) = (self.block(note), self.block(note_otherwise), self.b.create_block());
        self.b.ins().brif(condition, yes, &[], no, &[]);
        self.b.switch_to_block(yes);
        then(self);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(no);
        otherwise(self);
        self.b.ins().jump(after, &[]);
        self.b.switch_to_block(after);
    }

    /// Calls a callback through a function pointer.
    pub fn call_out(&mut self, function: Value, types: &[Type], arguments: &[Value]) {
        let mut signature = Signature::new(self.b.func.signature.call_conv);
        // Some calling conventions require the caller to extend arguments narrower than a register.
        let param = |&ty: &Type| if ty == I32 { AbiParam::new(ty).uext() } else { AbiParam::new(ty) };
        signature.params = types.iter().map(param).collect();
        let known = self.b.func.dfg.signatures.iter().find(|(_, known)| **known == signature).map(|(known, _)| known);
        let signature = known.unwrap_or_else(|| self.b.import_signature(signature));
        self.b.ins().call_indirect(signature, function, arguments);
    }

    /// The bits that all draws of a row add to their first rounds.
    pub fn row_bits(&mut self, key_high: Value, vertex: Value) -> Value {
        let high = self.b.ins().iconst(I32, i64::from(HIGH));
        let spread = self.b.ins().imul(vertex, high);
        self.b.ins().iadd(spread, key_high)
    }

    /// The finaliser, on a scalar or on four lanes.
    pub fn mix(&mut self, mut x: Value) -> Value {
        let ty = self.b.func.dfg.value_type(x);
        for (shift, factor) in ROUNDS {
            let shift = self.b.ins().iconst(I32, i64::from(shift));
            let high = self.b.ins().ushr(x, shift);
            x = self.b.ins().bxor(x, high);
            let factor = self.same(ty, factor);
            x = self.b.ins().imul(x, factor);
        }
        let shift = self.b.ins().iconst(I32, i64::from(LAST_SHIFT));
        let high = self.b.ins().ushr(x, shift);
        self.b.ins().bxor(x, high)
    }

    fn same(&mut self, ty: Type, value: u32) -> Value {
        if ty == I32X4 { self.four([value; 4]) } else { self.b.ins().iconst(I32, i64::from(value)) }
    }

    /// A vector of four constants.
    pub fn four(&mut self, values: [u32; 4]) -> Value {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let constant = self.b.func.dfg.constants.insert(bytes.into());
        self.b.ins().vconst(I32X4, constant)
    }
}
