//! Entries: the kernels of a launch, each with a range of the blocks.

use crate::Slot;
use crate::code::Code;
use crate::dedup::{self, Shared};
use crate::isa::{Address, Body, Class, Cmp, Function, Guard, Item, Label, Opcode, Reg, Special, Symbol, Type};
use crate::table::Table;
use crate::{Entry, KernelInfo, THREADS};

/// Blocks of the kernel that is being looked at.
const BLOCKS: Reg = Reg::Named(Class::U32, &"blocks");
/// A count that goes down.
const LEFT: Reg = Reg::Named(Class::U32, &"left");
/// The row of the table of the kernel that is being looked at.
const ROW: Reg = Reg::Named(Class::U64, &"row");
/// Does the block belong to the kernel that is being looked at?
const MINE: Reg = Reg::Named(Class::Pred, &"mine");

/// A kernel of an entry: its title, for its comment, and its code.
pub(crate) type Titled = (String, Body);

/// Writes an entry: each kernel has the next blocks, but the first `interleaved` ones alternate with the others.
/// Kernels that do the same share their code.
pub(crate) fn emit(
    name: &str,
    bodies: Vec<Titled>,
    kernels: Vec<KernelInfo>,
    interleaved: usize,
    table: &mut Table,
) -> (Function, Entry) {
    let (titles, mut bodies): (Vec<String>, Vec<Body>) = bodies.into_iter().unzip();
    let mut code = Code::new(0);
    code.push(Item::Named(Class::U32, vec![Reg::BLOCK, BLOCKS, LEFT]));
    code.push(Item::Named(Class::U64, vec![ROW]));
    code.push(Item::Named(Class::Pred, vec![MINE]));
    code.assign(Reg::BLOCK, Special::CtaidX);
    let others = bodies.split_off(interleaved);
    let mut groups = dedup::group(bodies, 0);
    if interleaved > 0 {
        let numbers = kernels[..interleaved].iter().map(|kernel| kernel.number).collect();
        interleave(&mut code, table.offset(Slot::AllBlocks(numbers)));
    }
    groups.extend(dedup::group(others, interleaved));
    let mut order = vec![];
    let count = groups.len();
    for (index, mut group) in groups.into_iter().enumerate() {
        code.push(Item::Blank);
        for (position, _) in &group.kernels {
            code.comment(&titles[*position]);
            order.push(*position);
        }
        let last = index + 1 == count;
        if let [(position, offsets)] = group.kernels.as_slice() {
            if !last {
                code.load_slot(BLOCKS, Address::Table(table.offset(Slot::Blocks(kernels[*position].number))));
                code.set(MINE, Opcode::Setp(Cmp::Lt, Type::U32), (Reg::BLOCK, BLOCKS));
                code.jump_if(Guard { reg: MINE, negated: true }, Label::Next(index));
            }
            group.code.relocate(index, |number| Address::Table(offsets[number]));
        } else {
            choose(&mut code, (index, last), &group, &kernels, table);
            group.code.relocate(index, |number| Address::from((ROW, 8 * (number + 1))));
        }
        code.append(group.code);
        code.effect(Opcode::Ret, ());
        if !last {
            code.place(Label::Next(index));
            if group.kernels.len() == 1 {
                code.set(Reg::BLOCK, Opcode::Sub(Type::U32), (Reg::BLOCK, BLOCKS));
            }
        }
    }
    // In the order of their blocks.
    let mut kernels: Vec<Option<KernelInfo>> = kernels.into_iter().map(Some).collect();
    let kernels = order.into_iter().filter_map(|position| kernels[position].take()).collect();
    // As many registers as it takes: nothing is spilled.
    let function = Function { name: name.to_owned(), threads: THREADS, min_blocks: Some(1), body: code.into_body() };
    (function, Entry { name: name.to_owned(), kernels })
}

/// Blocks in another order: those before the first `L` of `n`, as a table entry says, are spread evenly among the
/// others. Block `b` is the next of the first ones if there are more of them among `b + 1` blocks than among `b`,
/// `b L / n`.
fn interleave(code: &mut Code, offset: usize) {
    let [leading, before, rest] = [&"leading", &"before", &"rest"].map(|name| Reg::Named(Class::U32, name));
    let [share, count] = [&"share", &"count"].map(|name| Reg::Named(Class::U64, name));
    let (block, narrow) = (Reg::BLOCK, Opcode::Cvt(None, Type::U32, Type::U64));
    code.comment("Interleaved.");
    code.push(Item::Named(Class::U32, vec![leading, before, rest]));
    code.push(Item::Named(Class::U64, vec![share, count]));
    code.load_slot(leading, Address::Table(offset));
    code.assign(BLOCKS, Special::NctaidX);
    code.set(count, Opcode::Cvt(None, Type::U64, Type::U32), (BLOCKS,));
    code.set(share, Opcode::MulWide, (block, leading));
    code.set(share, Opcode::Div(Type::U64), (share, count));
    code.set(before, narrow, (share,));
    code.set(rest, Opcode::Add(Type::U32), (block, 1));
    code.set(share, Opcode::MulWide, (rest, leading));
    code.set(share, Opcode::Div(Type::U64), (share, count));
    code.set(LEFT, narrow, (share,));
    code.set(rest, Opcode::Sub(Type::U32), (block, before));
    code.increase(rest, leading);
    code.set(MINE, Opcode::Setp(Cmp::Gt, Type::U32), (LEFT, before));
    code.set(block, Opcode::Selp(Type::U32), (before, rest, MINE));
}

/// Finds the kernel of a group that a block belongs to. Each has a row of the table: its number of blocks, and the
/// entries that its code reads.
fn choose(code: &mut Code, (index, last): (usize, bool), group: &Shared, kernels: &[KernelInfo], table: &mut Table) {
    let mut start = None;
    for (position, offsets) in &group.kernels {
        let mut row = vec![Slot::Blocks(kernels[*position].number)];
        row.extend(offsets.iter().map(|&offset| table.at(offset)));
        let at = table.row(row);
        start.get_or_insert(at);
    }
    let (start, count) = (start.unwrap_or(0), group.kernels.len());
    let stride = 8 * (group.kernels[0].1.len() + 1);
    let (again, found) = (Label::Again(index), Label::Found(index));
    code.assign(ROW, Symbol::Table);
    code.set(ROW, Opcode::Add(Type::U64), (ROW, start));
    code.assign(LEFT, count);
    code.place(again);
    code.load_slot(BLOCKS, ROW);
    code.set(MINE, Opcode::Setp(Cmp::Lt, Type::U32), (Reg::BLOCK, BLOCKS));
    code.jump_if(MINE, found);
    code.set(Reg::BLOCK, Opcode::Sub(Type::U32), (Reg::BLOCK, BLOCKS));
    code.set(ROW, Opcode::Add(Type::U64), (ROW, stride));
    code.set(LEFT, Opcode::Sub(Type::U32), (LEFT, 1));
    code.set(MINE, Opcode::Setp(Cmp::Ne, Type::U32), (LEFT, 0));
    code.jump_if(MINE, again);
    match last {
        true => code.effect(Opcode::Ret, ()),
        false => code.jump(Label::Next(index)),
    }
    code.place(found);
}
