//! Finds the copies of an operation for the members of a family.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::mem::discriminant;

use hgnnc_ir::dataflow::{Binding, ValueData};
use hgnnc_ir::{Dataflow, Graph, Op, Param, Space, Type, Value};
use rustc_hash::{FxHashMap, FxHasher};

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
}

impl Tuples {
    /// Finds the tuples of a program for these members. Copies stand in the order of the members wherever the program
    /// has them in this order, which is how the front end writes them.
    pub fn find(flow: &Dataflow, members: &[Graph]) -> Self {
        let position: FxHashMap<Graph, usize> = members.iter().enumerate().map(|(i, &graph)| (graph, i)).collect();
        let bases = Bases::of(flow);
        let mut tuples = Self { values: vec![], slots: vec![None; flow.values.len()] };
        // Tuples by a hash of what their values have in common: the latest, and the one before it with that hash.
        let mut latest: FxHashMap<u64, Tuple> = FxHashMap::default();
        let mut before: Vec<Option<Tuple>> = vec![];
        for value in flow.handles() {
            let data = flow.value(value);
            let Some(member) = tuples.member(flow, value, &position) else { continue };
            let hash = tuples.hash(data, &bases);
            let mut alike = std::iter::successors(latest.get(&hash).copied(), |known| before[known.0]);
            let free = alike.find(|&tuple| {
                let values = &tuples.values[tuple.0];
                // Copies usually stand in the order of the members.
                let is_new = values.last().is_none_or(|last| last.0 < member)
                    || values.iter().rev().all(|&(other, _)| other != member);
                let Some(&(at, other)) = values.first().filter(|_| is_new) else { return false };
                let other = flow.value(other);
                let copies = Copies { of: [members[at], members[member]] };
                bases.of_op(&other.op) == bases.of_op(&data.op)
                    && tuples.same_operands(&other.args, &data.args)
                    && copies.ops(&other.op, &data.op)
                    && copies.types(&other.ty, &data.ty)
                    && (other.stage, other.phase) == (data.stage, data.phase)
            });
            let tuple = free.unwrap_or_else(|| {
                let tuple = Tuple(tuples.values.len());
                tuples.values.push(vec![]);
                before.push(latest.insert(hash, tuple));
                tuple
            });
            tuples.values[tuple.0].push((member, value));
            tuples.slots[value.index()] = Some((tuple, member));
        }
        tuples.values.iter_mut().for_each(|values| values.sort_unstable());
        tuples.drop_incomplete(flow, members.len());
        tuples
    }

    /// A hash that is equal for copies.
    fn hash(&self, data: &ValueData, bases: &Bases) -> u64 {
        let mut hasher = FxHasher::default();
        discriminant(&data.op).hash(&mut hasher);
        data.args.iter().for_each(|&arg| self.operand(arg).hash(&mut hasher));
        bases.of_op(&data.op).hash(&mut hasher);
        hasher.finish()
    }

    fn same_operands(&self, a: &[Value], b: &[Value]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| self.operand(a) == self.operand(b))
    }

    /// The member that a value belongs to, if it belongs to one.
    fn member(&self, flow: &Dataflow, value: Value, position: &FxHashMap<Graph, usize>) -> Option<usize> {
        let data = flow.value(value);
        let own = graph_of(flow, &data.op, &data.ty).map(|graph| position.get(&graph).copied());
        let of_args = data.args.iter().filter_map(|arg| self.slots[arg.index()]).map(|(_, member)| Some(member));
        let mut all = own.into_iter().chain(of_args);
        let first = all.next()??;
        all.all(|other| other == Some(first)).then_some(first)
    }

    /// Copies of copies that some members do not have are not copies.
    fn drop_incomplete(&mut self, flow: &Dataflow, members: usize) {
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
        for (slot, dropped) in self.slots.iter_mut().zip(dropped) {
            *slot = slot.filter(|_| !dropped);
        }
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

/// The name of an entry of a family of parameters without that of its semantic graph.
pub fn base(flow: &Dataflow, param: Param) -> &str {
    let decl = &flow.params[param.index()];
    let of_member = |graph: Graph| decl.name.strip_suffix(&flow.graphs[graph.index()].name)?.strip_suffix('.');
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
