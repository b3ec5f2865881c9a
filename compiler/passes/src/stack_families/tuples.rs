//! Finds the copies of an operation for the members of a family.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use hgnnc_ir::dataflow::{Binding, ValueData};
use hgnnc_ir::{Dataflow, Graph, Op, Param, Space, Type, Value};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

/// The copies of one operation: one value for each member, in their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tuple(usize);

/// An operand of the copies: the same value for all members, or one for each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    Same(Value),
    Each(Tuple),
}

/// The copies of all operations of a program.
pub struct Tuples {
    /// The values of each tuple with their members, in the order of the program. Only complete tuples have one of every
    /// member, and most others have one in all: what adds up the members is such a value itself.
    values: Vec<Vec<(usize, Value)>>,
    /// The complete tuple and the member of each value of the program.
    slots: Vec<Option<(Tuple, usize)>>,
    /// Tuples of values that are no copies of one operation: each is given to the operations of one member.
    given: FxHashSet<Tuple>,
}

impl Tuples {
    /// Finds the tuples of a program for these members. Copies stand in the order of the members wherever the program
    /// has them in this order, which is how the front end writes them. `with_given`: a value without rows that is
    /// read for one member only, such as the vector of a relation, belongs to that member.
    pub fn find(flow: &Dataflow, members: &[Graph], with_given: bool) -> Self {
        let bases = Bases::of(flow);
        let position: FxHashMap<Graph, usize> = members.iter().enumerate().map(|(i, &graph)| (graph, i)).collect();
        let read_by = if with_given { read_by_one(flow, &position) } else { vec![] };
        let mut of_none = vec![false; flow.values.len()];
        loop {
            let (values, slots) = (vec![], vec![None; flow.values.len()]);
            let (latest, before) = (FxHashMap::default(), vec![]);
            let tuples = Self { values, slots, given: FxHashSet::default() };
            let (position, read_by) = (&position, &read_by[..]);
            let mut search =
                Search { flow, members, position, bases: &bases, read_by, of_none: &of_none, tuples, latest, before };
            let mut of_several = vec![];
            for value in flow.handles() {
                match search.member(value) {
                    Some(Ok(member)) => search.place_copy(member, value),
                    Some(Err(Several)) => of_several.push(value),
                    None => {}
                }
            }
            search.tuples.values.iter_mut().for_each(|values| values.sort_unstable());
            let dropped = search.tuples.drop_incomplete(flow, members.len());
            // A sum of one member and of what is no copy, such as sums of other members, looks like a value of the member,
            // and with it what is computed from the sum. Then values of other members that read it look like those of several.
            let misled = of_several.into_iter().any(|value| matches!(search.member(value), Some(Ok(_))));
            let tuples = search.tuples;
            let mut found = false;
            for value in flow.handles().filter(|value| misled && dropped[value.index()]) {
                let of_dropped = flow.value(value).args.iter().any(|arg| dropped[arg.index()]);
                found |= !of_dropped && !std::mem::replace(&mut of_none[value.index()], true);
            }
            if !found {
                return tuples;
            }
        }
    }

    /// Copies of copies that some members do not have are not copies. Marks the values that are dropped.
    fn drop_incomplete(&mut self, flow: &Dataflow, members: usize) -> Vec<bool> {
        let mut dropped = vec![false; flow.values.len()];
        for value in flow.handles() {
            let of_dropped = flow.value(value).args.iter().any(|arg| dropped[arg.index()]);
            if let Some((tuple, _)) = self.slots[value.index()]
                && (self.values[tuple.0].len() < members || of_dropped)
            {
                dropped[value.index()] = true;
            }
        }
        // A tuple is kept or dropped as a whole, since its operands are tuples.
        for (slot, dropped) in self.slots.iter_mut().zip(&dropped) {
            *slot = slot.filter(|_| !dropped);
        }
        dropped
    }

    /// The tuple and the member of a value.
    pub fn slot(&self, value: Value) -> Option<(Tuple, usize)> {
        self.slots[value.index()]
    }

    pub fn operand(&self, value: Value) -> Operand {
        self.slots[value.index()].map_or(Operand::Same(value), |(tuple, _)| Operand::Each(tuple))
    }

    /// The values of a complete tuple, by member.
    pub fn members(&self, tuple: Tuple) -> impl Iterator<Item = Value> + '_ {
        self.values[tuple.0].iter().map(|(_, value)| *value)
    }

    /// The value of the first member, which stands for all.
    pub fn first(&self, tuple: Tuple) -> Value {
        self.values[tuple.0][0].1
    }

    /// Are the values given to the members?
    pub fn is_given(&self, tuple: Tuple) -> bool {
        self.given.contains(&tuple)
    }
}

/// The readers of a value without rows that belongs to no member by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadBy {
    /// Operations of one member, and nothing else.
    Member,
    /// Operations of one member, and others that belong to none.
    MemberAndOthers,
}

/// The values without rows that are read for one member only, such as the vector of its relation.
fn read_by_one(flow: &Dataflow, position: &FxHashMap<Graph, usize>) -> Vec<Option<ReadBy>> {
    // The member of each value that names its graph or reads such a value.
    let mut of: Vec<Option<usize>> = Vec::with_capacity(flow.values.len());
    for data in &flow.values {
        let own = graph_of(flow, &data.op, &data.ty).and_then(|graph| position.get(&graph).copied());
        of.push(own.or_else(|| data.args.iter().find_map(|arg| of[arg.index()])));
    }
    let mut others = vec![false; flow.values.len()];
    flow.outputs.iter().for_each(|output| others[output.value.index()] = true);
    // The first member that reads a value, and whether another one does.
    let mut readers: Vec<Option<(usize, bool)>> = vec![None; flow.values.len()];
    for value in flow.handles().rev() {
        let at = value.index();
        let member = of[at].or_else(|| readers[at].filter(|(_, more)| !more && !others[at]).map(|(member, _)| member));
        for arg in &flow.value(value).args {
            match (member, &mut readers[arg.index()]) {
                (None, _) => others[arg.index()] = true,
                (Some(member), none @ None) => *none = Some((member, false)),
                (Some(member), Some((first, more))) => *more |= member != *first,
            }
        }
    }
    let found = flow.values.iter().enumerate().map(|(at, data)| {
        let can_be = of[at].is_none() && data.ty.is_unit() && !data.ty.is_sparse() && !matches!(data.op, Op::Const(_));
        let one = readers[at].is_some_and(|(_, more)| !more);
        (can_be && one).then_some(if others[at] { ReadBy::MemberAndOthers } else { ReadBy::Member })
    });
    found.collect()
}

/// A value belongs to several members, or to graphs that are no members as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Several;

/// The tuples of a program while they are found.
struct Search<'a> {
    flow: &'a Dataflow,
    members: &'a [Graph],
    position: &'a FxHashMap<Graph, usize>,
    bases: &'a Bases,
    /// Empty where nothing is given to members.
    read_by: &'a [Option<ReadBy>],
    /// Values that look like those of a member and are none.
    of_none: &'a [bool],
    tuples: Tuples,
    /// Tuples by a hash of what their values have in common: the latest, and the one before it with that hash.
    latest: FxHashMap<u64, Tuple>,
    before: Vec<Option<Tuple>>,
}

impl Search<'_> {
    /// The member that a value belongs to, if it belongs to one or to several.
    fn member(&self, value: Value) -> Option<Result<usize, Several>> {
        let data = self.flow.value(value);
        let own = graph_of(self.flow, &data.op, &data.ty).map(|graph| self.position.get(&graph).copied());
        if own.is_none() && self.of_none[value.index()] {
            return None;
        }
        let of_args = data.args.iter().filter_map(|arg| self.tuples.slots[arg.index()]).map(|(_, member)| Some(member));
        let mut all = own.into_iter().chain(of_args);
        let first = all.next()??;
        Some(if all.all(|other| other == Some(first)) { Ok(first) } else { Err(Several) })
    }

    /// A hash that is equal for copies.
    fn hash(&self, data: &ValueData) -> u64 {
        let mut hasher = FxHasher::default();
        discriminant(&data.op).hash(&mut hasher);
        data.args.iter().for_each(|&arg| self.tuples.operand(arg).hash(&mut hasher));
        self.bases.of_op(&data.op).hash(&mut hasher);
        hasher.finish()
    }

    /// The tuples of a hash, the latest first, without a value of this member whose first value, of the member `at`, fits.
    fn free(
        &self,
        hash: u64,
        member: usize,
        fits: impl Fn(&Self, usize, Value) -> bool,
    ) -> impl Iterator<Item = Tuple> {
        let alike = std::iter::successors(self.latest.get(&hash).copied(), |known| self.before[known.0]);
        alike.filter(move |&tuple| {
            let values = &self.tuples.values[tuple.0];
            // Copies usually stand in the order of the members.
            let is_new = values.last().is_none_or(|last| last.0 < member)
                || values.iter().rev().all(|&(other, _)| other != member);
            is_new && values.first().is_some_and(|&(at, first)| fits(self, at, first))
        })
    }

    /// Places a value of a member, and before it the operands that belong to the member because the value reads them.
    fn place_copy(&mut self, member: usize, value: Value) {
        for (at, &arg) in self.flow.value(value).args.iter().enumerate() {
            self.place_operand(member, (value, at), arg);
        }
        let hash = self.hash(self.flow.value(value));
        let free = self.free(hash, member, |search, at, other| search.are_copies([at, member], [other, value])).next();
        self.place(free, hash, member, value);
    }

    /// Adds a value to a tuple, or to a new one with this hash.
    fn place(&mut self, tuple: Option<Tuple>, hash: u64, member: usize, value: Value) -> Tuple {
        let tuple = tuple.unwrap_or_else(|| {
            let tuple = Tuple(self.tuples.values.len());
            self.tuples.values.push(vec![]);
            self.before.push(self.latest.insert(hash, tuple));
            tuple
        });
        self.tuples.values[tuple.0].push((member, value));
        self.tuples.slots[value.index()] = Some((tuple, member));
        tuple
    }

    /// Are these values of two members copies of one operation?
    fn are_copies(&self, members: [usize; 2], [one, other]: [Value; 2]) -> bool {
        let [a, b] = [one, other].map(|value| self.flow.value(value));
        let copies = Copies { of: members.map(|member| self.members[member]) };
        let same_operands = || {
            let operands = |args: &[Value]| args.iter().map(|&arg| self.tuples.operand(arg)).collect::<Vec<_>>();
            operands(&a.args) == operands(&b.args)
        };
        self.bases.of_op(&a.op) == self.bases.of_op(&b.op)
            && same_operands()
            && copies.ops(&a.op, &b.op)
            && copies.types(&a.ty, &b.ty)
            && (a.stage, a.phase) == (b.stage, b.phase)
    }

    /// Places an operand that belongs to a member by its reader: the mask of dropout of a value without rows, or a value
    /// that is read for one member only.
    fn place_operand(&mut self, member: usize, (reader, at): (Value, usize), arg: Value) {
        if self.tuples.slots[arg.index()].is_some() {
            return;
        }
        let data = self.flow.value(arg);
        let read_by = self.read_by.get(arg.index()).copied().flatten();
        let is_given = read_by == Some(ReadBy::MemberAndOthers);
        let is_mask = matches!(data.op, Op::RandomMask { .. }) && data.ty.is_unit();
        if !is_mask && !is_given && !matches!(data.op, Op::Param(_)) {
            if read_by.is_some() {
                self.place_copy(member, arg);
            }
            return;
        }
        if read_by.is_none() && !is_mask {
            return;
        }
        // Neither its operation nor its operands tell it from others: its reader does, and the order.
        let mut hasher = FxHasher::default();
        let reader = self.flow.value(reader);
        (discriminant(&reader.op), at, reader.args.len(), discriminant(&data.op), is_given).hash(&mut hasher);
        let hash = hasher.finish();
        let is_copy = |other: &ValueData| match (&other.op, &data.op) {
            (Op::RandomMask { rate, .. }, Op::RandomMask { rate: own, .. }) => rate == own,
            (Op::Param(_), Op::Param(_)) => true,
            _ => is_given,
        };
        let tuples = self.free(hash, member, |search, _, other| {
            let other = search.flow.value(other);
            is_copy(other)
                && other.ty == data.ty
                && (is_given || (other.stage, other.phase) == (data.stage, data.phase))
        });
        let tuple = tuples.last();
        let tuple = self.place(tuple, hash, member, arg);
        if is_given {
            self.tuples.given.insert(tuple);
        }
    }
}

/// The semantic graph that an operation names, or that its result has rows for.
fn graph_of(flow: &Dataflow, op: &Op, ty: &Type) -> Option<Graph> {
    match (op, ty.space) {
        (Op::Param(param), _) => flow.params[param.index()].of,
        (Op::Count(Space::Edges(graph)), _) => Some(*graph),
        (_, Space::Edges(graph) | Space::Endpoints(graph, _)) => Some(graph),
        (op, Space::Unit | Space::Vertices(_) | Space::Index(_)) => op.graph(),
    }
}

/// Numbers of parameters and inputs, equal for copies: those whose names differ only in the name of the member.
struct Bases {
    params: Vec<usize>,
    inputs: Vec<usize>,
}

impl Bases {
    fn of(flow: &Dataflow) -> Self {
        let mut numbers: FxHashMap<Cow<'_, str>, usize> = FxHashMap::default();
        let mut number = |name| {
            let next = numbers.len();
            *numbers.entry(name).or_insert(next)
        };
        let params = (0..flow.params.len()).map(|param| number(base(flow, Param::new(param)).into())).collect();
        let inputs = flow.inputs.iter().map(|decl| match decl.binding {
            Binding::EdgeWeight(_) => "weight".into(),
            Binding::EdgeTime(_) => "time".into(),
            Binding::EdgeCount(_) => "count".into(),
            Binding::EdgeFeatures(_) => "features".into(),
            Binding::IsLink(_) => "link".into(),
            Binding::EdgeRank(_, direction) => format!("rank.{}", direction.name()).into(),
            _ => decl.name.as_str().into(),
        });
        Self { params, inputs: inputs.map(number).collect() }
    }

    fn of_op(&self, op: &Op) -> Option<usize> {
        match op {
            Op::Param(param) => Some(self.params[param.index()]),
            Op::Input(input) => Some(self.inputs[input.index()]),
            _ => None,
        }
    }
}

/// The name of an entry of a family of parameters without that of its semantic graph. In mini-batches the graphs of further
/// hops have the number of hops behind their names, the parameters do not.
fn base(flow: &Dataflow, param: Param) -> &str {
    let decl = &flow.params[param.index()];
    let without = |graph: &str| decl.name.strip_suffix(graph)?.strip_suffix('.');
    let of_member = |graph: Graph| {
        let name = &flow.graphs[graph.index()].name[..];
        let of_hop = || name.rsplit_once('.').filter(|(_, hops)| hops.parse::<usize>().is_ok());
        without(name).or_else(|| without(of_hop()?.0))
    };
    decl.of.and_then(of_member).unwrap_or(&decl.name)
}

/// Compares an operation on one graph with one on another, as if both were on the same graph. Differences in parameters,
/// inputs and streams of random numbers do not count.
struct Copies {
    of: [Graph; 2],
}

impl Copies {
    fn graphs(&self, a: Graph, b: Graph) -> bool {
        let [one, other] = self.of;
        (a == one && b == other) || (a == b && a != one && b != other)
    }

    fn spaces(&self, a: Space, b: Space) -> bool {
        match (a, b) {
            (Space::Edges(a), Space::Edges(b)) => self.graphs(a, b),
            (Space::Endpoints(a, of_a), Space::Endpoints(b, of_b)) => of_a == of_b && self.graphs(a, b),
            _ => a == b,
        }
    }

    fn types(&self, a: &Type, b: &Type) -> bool {
        self.spaces(a.space, b.space) && (&a.dims, a.dtype, a.layout) == (&b.dims, b.dtype, b.layout)
    }

    fn ops(&self, a: &Op, b: &Op) -> bool {
        match (a, b) {
            (Op::Param(_), Op::Param(_)) | (Op::Input(_), Op::Input(_)) => true,
            (Op::GatherSrc(a), Op::GatherSrc(b)) | (Op::GatherDst(a), Op::GatherDst(b)) => self.graphs(*a, *b),
            (Op::Segment { graph: a, direction, reduce }, Op::Segment { graph: b, direction: other, reduce: with })
            | (
                Op::SegmentEndpoints { graph: a, direction, reduce },
                Op::SegmentEndpoints { graph: b, direction: other, reduce: with },
            ) => self.graphs(*a, *b) && (direction, reduce) == (other, with),
            (
                Op::SegmentArg { graph: a, direction, extreme },
                Op::SegmentArg { graph: b, direction: other, extreme: with },
            ) => self.graphs(*a, *b) && (direction, extreme) == (other, with),
            (Op::Broadcast(a), Op::Broadcast(b)) => self.types(a, b),
            (Op::RandomMask { rate, ty: a, .. }, Op::RandomMask { rate: other, ty: b, .. }) => {
                rate == other && self.types(a, b)
            }
            (Op::Count(a), Op::Count(b)) => self.spaces(*a, *b),
            (a, b) => a == b,
        }
    }
}
