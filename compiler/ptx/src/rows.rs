//! PTX that copies rows of a matrix to consecutive rows of another one, and back.

use hgnnc_executable::gpu::rows::{GATHER, SCATTER, TABLE};

use crate::code::Code;
use crate::isa::print::{self, TableSpace};
use crate::isa::{Body, Class, Function, Opcode, Source, Special, StateSpace};
use crate::{Module, THREADS, Target};

/// A module with the entries `gather` and `scatter`: see [`hgnnc_executable::gpu::GpuCompiler::rows`].
pub fn rows(target: Target) -> Module {
    let function = |(name, gathers): (&str, bool)| Function {
        name: name.to_owned(),
        threads: THREADS,
        min_blocks: None,
        body: entry(gathers),
    };
    let source = Source {
        title: "copies of rows".to_owned(),
        target: target.name(),
        slots: None,
        table: TABLE,
        space: TableSpace::Const,
        shared: false,
        functions: [(GATHER, true), (SCATTER, false)].into_iter().map(function).collect(),
    };
    let text = print::module(&source);
    Module { text, table: vec![], prelude: vec![], launches: vec![], first_update: 0, commit: None }
}

/// Each thread copies an element at a time, and neighbours neighbouring ones, so that the requests of a warp are for whole
/// lines of memory. The limit is the bandwidth of memory: 8 bytes for each element, and 4 for each row.
fn entry(gathers: bool) -> Body {
    let mut code = Code::new(0);
    let matrix = code.slot(Class::U64, 0);
    let packed = code.slot(Class::U64, 8);
    let numbers = code.slot(Class::U64, 16);
    let count = code.slot(Class::U32, 24);
    let width = code.slot(Class::U32, 32);
    let block = code.mov(Special::CtaidX);
    let thread = code.mov(Special::TidX);
    let element = code.mad(block, THREADS, thread);
    let blocks = code.mov(Special::NctaidX);
    let step = code.mul(blocks, THREADS);
    let (again, done) = (code.label(), code.label());
    code.place(again);
    let end = code.ge(element, count);
    code.jump_if(end, done);
    let row = code.div(element, width);
    let first = code.mul(row, width);
    let column = code.sub(element, first);
    let at = code.mad_wide(row, 4, numbers);
    let number = code.load_index(at);
    let column = code.widen(column);
    let at = code.mad_wide(number, width, column);
    let at = code.shl64(at, 2);
    let in_matrix = code.add64(at, matrix);
    let in_packed = code.mad_wide(element, 4, packed);
    let (from, to) = if gathers { (in_matrix, in_packed) } else { (in_packed, in_matrix) };
    let value = code.load(StateSpace::Global, from);
    code.store(None, StateSpace::Global, to, value);
    code.increase(element, step);
    code.jump(again);
    code.place(done);
    code.effect(Opcode::Ret, ());
    code.into_body()
}
