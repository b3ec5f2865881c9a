//! PTX that counts how outputs compare with labels, so that metrics need no outputs of a device.
//!
//! Counts are integers: they are the same in whatever order they are added up, and equal to those of a processor to the
//! last one. A warp has a row of outputs at a time, and its lanes the columns: a class is guessed as by a search from
//! the first column for the largest number, which the first of equals wins, and which a first number that is none
//! wins too.

use crate::code::Code;
use crate::isa::print::{self, TableSpace};
use crate::isa::{
    Address, Body, Class, Cmp, Function, Inst, Item, Label, Opcode, Operand, Reg, Source, Special, StateSpace, Type,
};
use hgnnc_executable::gpu::counts::{Labels, PARTS, PER_BLOCK, TABLE, name};

use crate::{Module, THREADS, Target};

/// A module with the entries `part0`, `part1` and `part2`. Its table:
///
/// | entry | what |
/// | --- | --- |
/// | 0, 1 | addresses of the outputs (f32) and of the labels (i32, or as many f32 as outputs), by row |
/// | 2 | outputs of a row |
/// | 3 + 3 p, 4 + 3 p | address and number of the rows (u32) of part p |
/// | 5 + 3 p | address of the counts of part p, which must be zero: see [`hgnnc_executable::gpu::counts::words`] |
pub fn counts(target: Target, labels: Labels) -> Module {
    let function = |part: usize| {
        let body = entry(part, labels);
        Function { name: name(part), threads: THREADS, min_blocks: None, body }
    };
    let source = Source {
        title: "counts of metrics".to_owned(),
        target: target.name(),
        slots: None,
        table: TABLE,
        space: TableSpace::Const,
        shared: false,
        functions: (0..PARTS).map(function).collect(),
    };
    let text = print::module(&source);
    Module { text, table: vec![], prelude: vec![], launches: vec![], first_update: 0, commit: None }
}

const fn u32(name: &'static &'static str) -> Reg {
    Reg::Named(Class::U32, name)
}

const fn u64(name: &'static &'static str) -> Reg {
    Reg::Named(Class::U64, name)
}

const fn f32(name: &'static &'static str) -> Reg {
    Reg::Named(Class::F32, name)
}

const fn pred(name: &'static &'static str) -> Reg {
    Reg::Named(Class::Pred, name)
}

// Numbers of the thread, of the row at hand, and of the output or label that a lane looks at.
const LANE: Reg = u32(&"lane");
const AT: Reg = u32(&"at");
const STEP: Reg = u32(&"step");
const WIDTH: Reg = u32(&"width");
const COUNT: Reg = u32(&"count");
const ROW: Reg = u32(&"row");
const K: Reg = u32(&"k");
const GUESS: Reg = u32(&"guess");
const OTHER_GUESS: Reg = u32(&"other_guess");
const LABEL: Reg = u32(&"label");
const SLOT: Reg = u32(&"slot");
const THIRDS: Reg = u32(&"thirds");
// Addresses.
const OUTPUTS: Reg = u64(&"outputs");
const LABELS: Reg = u64(&"labels");
const ROWS: Reg = u64(&"rows");
const COUNTS: Reg = u64(&"counts");
const OWN: Reg = u64(&"own");
const WANTED: Reg = u64(&"wanted");
const A: Reg = u64(&"a");
// Outputs and labels.
const BEST: Reg = f32(&"best");
const OTHER: Reg = f32(&"other");
const VALUE: Reg = f32(&"value");
const T: Reg = f32(&"t");
// Conditions.
const P: Reg = pred(&"p");
const Q: Reg = pred(&"q");
const R: Reg = pred(&"r");
const WRONG: Reg = pred(&"wrong");

/// All lanes of a warp; as a class, none.
const ALL: Operand = Operand::Mask(0xffff_ffff);
const WHOLE_WARP: Operand = Operand::Mask(0x1f);

const LT: Opcode = Opcode::Setp(Cmp::Lt, Type::U32);
const GE: Opcode = Opcode::Setp(Cmp::Ge, Type::U32);
const EQ: Opcode = Opcode::Setp(Cmp::Eq, Type::U32);
const NE: Opcode = Opcode::Setp(Cmp::Ne, Type::U32);
const GT_F32: Opcode = Opcode::Setp(Cmp::Gt, Type::F32);
const AND: Opcode = Opcode::And(Type::Pred);
const OR: Opcode = Opcode::Or(Type::Pred);
const MUL: Opcode = Opcode::Mul(Type::U32);
const MAD: Opcode = Opcode::Mad(Type::U32);
const ADD64: Opcode = Opcode::Add(Type::U64);

/// The code of a part.
fn entry(part: usize, labels: Labels) -> Body {
    let [rows, count, counts] = [3, 4, 5].map(|first| 8 * (first + 3 * part));
    let (next, wide, narrow) = (Label::Named("row"), table(Type::U64), table(Type::U32));
    let mut code = Code::new(0);
    let registers = vec![LANE, AT, STEP, WIDTH, COUNT, ROW, K, GUESS, OTHER_GUESS, LABEL, SLOT, THIRDS];
    code.push(Item::Named(Class::U32, registers));
    code.push(Item::Named(Class::U64, vec![OUTPUTS, LABELS, ROWS, COUNTS, OWN, WANTED, A]));
    code.push(Item::Named(Class::F32, vec![BEST, OTHER, VALUE, T]));
    code.push(Item::Named(Class::Pred, vec![P, Q, R, WRONG]));
    code.set(OUTPUTS, wide, (Address::Table(0),));
    code.set(LABELS, wide, (Address::Table(8),));
    code.set(WIDTH, narrow, (Address::Table(16),));
    code.set(ROWS, wide, (Address::Table(rows),));
    code.set(COUNT, narrow, (Address::Table(count),));
    code.set(COUNTS, wide, (Address::Table(counts),));
    code.set(THIRDS, MUL, (WIDTH, 3));
    code.assign(AT, Special::TidX);
    code.set(LANE, Opcode::And(Type::B32), (AT, 31));
    code.set(AT, Opcode::Shr(Type::U32), (AT, 5));
    code.assign(STEP, Special::CtaidX);
    code.set(AT, MAD, (STEP, PER_BLOCK, AT));
    code.assign(STEP, Special::NctaidX);
    code.set(STEP, MUL, (STEP, PER_BLOCK));
    code.place(next);
    code.set(P, GE, (AT, COUNT));
    code.return_if(P);
    code.set(A, Opcode::MadWide, (AT, 4, ROWS));
    code.set_index(ROW, A);
    code.set(OWN, Opcode::MulWide, (ROW, WIDTH));
    code.set(OWN, Opcode::Shl(Type::B64), (OWN, 2));
    match labels {
        Labels::Classes => classes(&mut code),
        Labels::Several => several(&mut code),
    }
    code.increase(AT, STEP);
    code.jump(next);
    code.into_body()
}

/// The load of an entry of the table.
fn table(ty: Type) -> Opcode {
    Opcode::Ld(StateSpace::Table, ty)
}

/// Adds 1 to a count where a condition holds.
fn increment(code: &mut Code, condition: Reg, count: impl Into<Address>) {
    code.push(Inst::effect(Opcode::RedAdd, (count.into(), 1)).guarded(Some(condition)));
}

/// Each lane looks at every 32nd class. The first number decides where it is none: nothing is larger.
fn classes(code: &mut Code) {
    let load = Opcode::Ld(StateSpace::Global, Type::F32);
    let [class, reduce, exchange] = ["class", "reduce", "exchange"].map(Label::Named);
    code.set(OWN, ADD64, (OWN, OUTPUTS));
    code.assign(BEST, f32::NEG_INFINITY);
    code.assign(GUESS, ALL);
    code.assign(K, LANE);
    code.place(class);
    code.set(P, GE, (K, WIDTH));
    code.jump_if(P, reduce);
    code.set(A, Opcode::MadWide, (K, 4, OWN));
    code.set(VALUE, load, (Address::from(A),));
    code.set(P, GT_F32, (VALUE, BEST));
    code.assign_if(P, BEST, VALUE);
    code.assign_if(P, GUESS, K);
    code.increase(K, 32);
    code.jump(class);
    code.place(reduce);
    code.warp_sync();
    code.assign(K, 16);
    code.place(exchange);
    code.set(OTHER, Opcode::ShflBfly, (BEST, K, WHOLE_WARP, ALL));
    code.set(OTHER_GUESS, Opcode::ShflBfly, (GUESS, K, WHOLE_WARP, ALL));
    code.set(P, GT_F32, (OTHER, BEST));
    code.set(Q, Opcode::Setp(Cmp::Eq, Type::F32), (OTHER, BEST));
    code.set(R, LT, (OTHER_GUESS, GUESS));
    code.set(Q, AND, (Q, R));
    code.set(P, OR, (P, Q));
    code.assign_if(P, BEST, OTHER);
    code.assign_if(P, GUESS, OTHER_GUESS);
    code.set(K, Opcode::Shr(Type::U32), (K, 1));
    code.set(P, NE, (K, 0));
    code.jump_if(P, exchange);
    code.set(VALUE, load, (Address::from(OWN),));
    code.set(P, Opcode::Setp(Cmp::Nan, Type::F32), (VALUE, VALUE));
    code.set(Q, EQ, (GUESS, ALL));
    code.set(P, OR, (P, Q));
    code.assign_if(P, GUESS, 0);
    code.set(WANTED, Opcode::MadWide, (ROW, 4, LABELS));
    code.set_index(LABEL, WANTED);
    code.set(Q, EQ, (LANE, 0));
    code.set(P, Opcode::SetpAnd(Cmp::Eq, Type::U32), (LABEL, GUESS, Q));
    code.set(A, Opcode::MulWide, (GUESS, 12));
    code.set(A, ADD64, (A, COUNTS));
    increment(code, P, A);
    code.set(WANTED, Opcode::MadWide, (THIRDS, 4, COUNTS));
    increment(code, P, WANTED);
    code.set(P, Opcode::SetpAnd(Cmp::Ne, Type::U32), (LABEL, GUESS, Q));
    increment(code, P, (A, 8));
    code.set(P, Opcode::SetpAnd(Cmp::Lt, Type::U32), (LABEL, WIDTH, P));
    code.set(A, Opcode::MulWide, (LABEL, 12));
    code.set(A, ADD64, (A, COUNTS));
    increment(code, P, (A, 4));
}

/// Each lane looks at every 32nd label.
fn several(code: &mut Code) {
    let [label, reduce] = ["label", "reduce"].map(Label::Named);
    code.set(WANTED, ADD64, (OWN, LABELS));
    code.set(OWN, ADD64, (OWN, OUTPUTS));
    code.set(WRONG, NE, (LANE, LANE));
    code.assign(K, LANE);
    code.place(label);
    code.set(P, GE, (K, WIDTH));
    code.jump_if(P, reduce);
    code.set(A, Opcode::MadWide, (K, 4, OWN));
    code.set(VALUE, Opcode::Ld(StateSpace::Global, Type::F32), (Address::from(A),));
    code.set(A, Opcode::MadWide, (K, 4, WANTED));
    code.set(T, Opcode::Ld(StateSpace::GlobalNc, Type::F32), (Address::from(A),));
    code.set(P, GT_F32, (VALUE, 0.0));
    code.set(Q, GT_F32, (T, 0.5));
    code.set(R, Opcode::Xor(Type::Pred), (P, Q));
    code.set(WRONG, OR, (WRONG, R));
    code.set(R, OR, (P, Q));
    code.set(SLOT, Opcode::Selp(Type::U32), (0, 1, P));
    code.set(Q, Opcode::Not, (Q,));
    code.set(P, AND, (P, Q));
    code.assign_if(P, SLOT, 2);
    code.set(SLOT, MAD, (K, 3, SLOT));
    code.set(A, Opcode::MadWide, (SLOT, 4, COUNTS));
    increment(code, R, A);
    code.increase(K, 32);
    code.jump(label);
    code.place(reduce);
    code.warp_sync();
    code.set(WRONG, Opcode::VoteAny, (WRONG, ALL));
    code.set(P, Opcode::Not, (WRONG,));
    code.set(P, Opcode::SetpAnd(Cmp::Eq, Type::U32), (LANE, 0, P));
    code.set(A, Opcode::MadWide, (THIRDS, 4, COUNTS));
    increment(code, P, A);
}
