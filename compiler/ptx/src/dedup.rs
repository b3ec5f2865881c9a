//! Kernels that do the same with different data share one piece of code, which reads its table entries by number.
//!
//! The semantic graphs of a stage mostly have the same operations on the same widths. Their kernels are one piece of
//! code in an entry, and each has a row of the table with its own addresses and sizes. Kernels are compared
//! instruction by instruction; comments, which name the data, and the offsets of table entries may differ.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use crate::isa::{Address, Body, Item, Operand};

/// Code that several kernels may share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The code, which reads entries of the table as [`Address::Argument`]s.
    pub code: Body,
    /// The kernels that it is, by position, each with the offsets of the entries that it reads.
    pub kernels: Vec<(usize, Vec<usize>)>,
}

/// Groups kernels whose code is the same, in the order of the first of each; `before` is the position of the first
/// body.
pub(crate) fn group(bodies: Vec<Body>, before: usize) -> Vec<Shared> {
    let mut numbered: Vec<(Body, Vec<usize>)> = bodies.into_iter().map(number).collect();
    let mut known: HashMap<Structure<'_>, usize> = HashMap::new();
    let mut groups: Vec<(usize, Vec<usize>)> = vec![];
    for (position, (code, _)) in numbered.iter().enumerate() {
        let group = *known.entry(Structure(code)).or_insert(groups.len());
        match groups.get_mut(group) {
            None => groups.push((position, vec![position])),
            Some((_, kernels)) => kernels.push(position),
        }
    }
    let shared = |(first, kernels): (usize, Vec<usize>)| {
        let kernels = kernels.into_iter().map(|kernel| (before + kernel, std::mem::take(&mut numbered[kernel].1)));
        let kernels = kernels.collect();
        Shared { code: std::mem::take(&mut numbered[first].0), kernels }
    };
    groups.into_iter().map(shared).collect()
}

/// Numbers the entries of the table as the code first reads them; also returns their offsets.
fn number(mut code: Body) -> (Body, Vec<usize>) {
    let (mut offsets, mut numbers) = (vec![], HashMap::new());
    code.each_operand(&mut |operand| {
        if let Operand::Address(Address::Table(offset)) = *operand {
            let number = *numbers.entry(offset).or_insert_with(|| {
                offsets.push(offset);
                offsets.len() - 1
            });
            *operand = Operand::Address(Address::Argument(number));
        }
    });
    (code, offsets)
}

/// Code without its comments.
struct Structure<'a>(&'a Body);

impl Structure<'_> {
    fn items(&self) -> impl Iterator<Item = &Item> {
        self.0.items.iter().filter(|item| !matches!(item, Item::Comment(_)))
    }
}

impl PartialEq for Structure<'_> {
    fn eq(&self, other: &Self) -> bool {
        let (mut own, mut others) = (self.items(), other.items());
        loop {
            let same = match (own.next(), others.next()) {
                (None, None) => return true,
                (Some(Item::Scope(own)), Some(Item::Scope(other))) => Structure(own) == Structure(other),
                (own, other) => own == other,
            };
            if !same {
                return false;
            }
        }
    }
}

impl Eq for Structure<'_> {}

/// Hashes operations and integers alone: kernels that have these in common mostly are the same, and hashing all
/// operands took 7% of a translation.
impl Hash for Structure<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for item in self.items() {
            match item {
                Item::Scope(body) => Structure(body).hash(state),
                Item::Inst(inst) => {
                    inst.op.hash(state);
                    for operand in &inst.srcs {
                        if let Operand::Int(number) = operand {
                            number.hash(state);
                        }
                    }
                }
                Item::Label(_) | Item::Registers(..) | Item::Named(..) | Item::NoUnroll | Item::Blank => {}
                Item::Comment(_) => unreachable!("comments are left out"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Class, Inst, Opcode, Reg, StateSpace, Type};

    /// Loads entries of the table in a scope.
    fn body(comment: &str, offsets: &[usize]) -> Body {
        let mut scope = Body::default();
        scope.items.push(Item::Comment(comment.to_owned()));
        for &offset in offsets {
            let address = Address::Table(offset);
            let load = Opcode::Ld(StateSpace::Table, Type::U32);
            scope.items.push(Inst::new(load, Reg::Virtual(Class::U32, 0), (address,)).into());
        }
        Body { items: vec![Item::Scope(scope)] }
    }

    #[test]
    fn kernels_that_differ_in_their_data_are_one() {
        // The third reads two entries, too, but the first of them only once.
        let bodies = [body("first", &[8, 16, 8]), body("second", &[24, 0, 24]), body("third", &[8, 16, 16])];
        let groups = group(bodies.to_vec(), 5);
        let kernels: Vec<_> = groups.iter().map(|group| &group.kernels[..]).collect();
        assert_eq!(kernels, [&[(5, vec![8, 16]), (6, vec![24, 0])][..], &[(7, vec![8, 16])]]);
        let mut first = groups[0].code.clone();
        first.relocate(0, |number| Address::Table(100 * number));
        assert_eq!(first, body("first", &[0, 100, 0]));
    }

    #[test]
    fn kernels_of_other_instructions_are_apart() {
        let mut other = body("first", &[8]);
        other.items.push(Inst::effect(Opcode::Ret, ()).into());
        assert_eq!(group(vec![body("first", &[8]), other], 0).len(), 2);
    }
}
