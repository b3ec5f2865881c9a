//! Finds the copies of an operation for the members of a family.

use std::mem::{Discriminant, discriminant};

use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::{Dataflow, Graph, Op, Param, Space, Type, Value};
use rustc_hash::FxHashMap;

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
    /// The values of each tuple, by member.
    values: Vec<Vec<Option<Value>>>,
    /// The complete tuple and the member of each value of the program.
    slots: Vec<Option<(Tuple, usize)>>,
}

/// The hashable part of an operation that its copies have in common.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    op: Discriminant<Op>,
    args: Vec<Operand>,
    /// For a parameter: its name without that of the member.
    base: Option<String>,
}

impl Tuples {
    /// Finds the tuples of a program for these members. Copies stand in the order of the members wherever the program
    /// has them in this order, which is how the front end writes them.
    pub fn find(flow: &Dataflow, members: &[Graph]) -> Self {
        let position: FxHashMap<Graph, usize> = members.iter().enumerate().map(|(i, &graph)| (graph, i)).collect();
        let first = members[0];
        let mut tuples = Self { values: vec![], slots: vec![None; flow.values.len()] };
        let mut known: FxHashMap<Key, Vec<Tuple>> = FxHashMap::default();
        for value in flow.handles() {
            let data = flow.value(value);
            let Some(member) = tuples.member(flow, value, &position) else { continue };
            let args = data.args.iter().map(|&arg| tuples.operand(arg)).collect();
            let key = Key { op: discriminant(&data.op), args, base: base_name(flow, &data.op) };
            let op = renamed(&data.op, members[member], first);
            let ty = renamed_type(&data.ty, members[member], first);
            let alike = known.entry(key).or_default();
            let free = alike.iter().copied().find(|&tuple| {
                let values = &tuples.values[tuple.0];
                let (at, other) = (values.iter().position(Option::is_some), values.iter().flatten().next());
                let (Some(at), Some(&other)) = (at, other) else { return false };
                let other = flow.value(other);
                values[member].is_none()
                    && renamed(&other.op, members[at], first) == op
                    && renamed_type(&other.ty, members[at], first) == ty
                    && (other.stage, other.phase) == (data.stage, data.phase)
            });
            let tuple = free.unwrap_or_else(|| {
                tuples.values.push(vec![None; members.len()]);
                let tuple = Tuple(tuples.values.len() - 1);
                alike.push(tuple);
                tuple
            });
            tuples.values[tuple.0][member] = Some(value);
            tuples.slots[value.index()] = Some((tuple, member));
        }
        tuples.drop_incomplete(flow);
        tuples
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
    fn drop_incomplete(&mut self, flow: &Dataflow) {
        let complete: Vec<bool> = self.values.iter().map(|values| values.iter().all(Option::is_some)).collect();
        let mut dropped = vec![false; flow.values.len()];
        for value in flow.handles() {
            let of_dropped = flow.value(value).args.iter().any(|arg| dropped[arg.index()]);
            if let Some((tuple, _)) = self.slots[value.index()]
                && (!complete[tuple.0] || of_dropped)
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
    pub fn members(&self, tuple: Tuple) -> Vec<Value> {
        self.values[tuple.0].iter().map(|value| value.expect("the tuple is complete")).collect()
    }

    /// The value of the first member, which stands for all.
    pub fn first(&self, tuple: Tuple) -> Value {
        self.values[tuple.0][0].expect("the tuple is complete")
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

/// The name of a parameter without that of its member.
fn base_name(flow: &Dataflow, op: &Op) -> Option<String> {
    match op {
        Op::Param(param) => Some(base(flow, *param)),
        Op::Input(input) => Some(match flow.inputs[input.index()].binding {
            Binding::EdgeWeight(_) => "weight".into(),
            Binding::EdgeCount(_) => "count".into(),
            Binding::EdgeFeatures(_) => "features".into(),
            Binding::IsLink(_) => "link".into(),
            Binding::EdgeRank(_, direction) => format!("rank.{}", direction.name()),
            _ => flow.inputs[input.index()].name.clone(),
        }),
        _ => None,
    }
}

/// The name of an entry of a family of parameters without that of its semantic graph.
pub fn base(flow: &Dataflow, param: Param) -> String {
    let decl = &flow.params[param.index()];
    let member = decl.of.map(|graph| format!(".{}", flow.graphs[graph.index()].name));
    member.and_then(|end| decl.name.strip_suffix(&end)).unwrap_or(&decl.name).to_owned()
}

/// An operation on one graph as that on another. Parameters, inputs and streams of random numbers become one.
fn renamed(op: &Op, from: Graph, to: Graph) -> Op {
    let other = |graph: Graph| if graph == from { to } else { graph };
    match op.clone() {
        Op::Param(_) => Op::Param(Param(0)),
        Op::Input(_) => Op::Input(hgnnc_ir::Input(0)),
        Op::GatherSrc(graph) => Op::GatherSrc(other(graph)),
        Op::GatherDst(graph) => Op::GatherDst(other(graph)),
        Op::Segment { graph, direction, reduce } => Op::Segment { graph: other(graph), direction, reduce },
        Op::SegmentEndpoints { graph, direction, reduce } => {
            Op::SegmentEndpoints { graph: other(graph), direction, reduce }
        }
        Op::SegmentArg { graph, direction, extreme } => Op::SegmentArg { graph: other(graph), direction, extreme },
        Op::Broadcast(ty) => Op::Broadcast(renamed_type(&ty, from, to)),
        Op::RandomMask { rate, ty, .. } => Op::RandomMask { stream: 0, rate, ty: renamed_type(&ty, from, to) },
        Op::Count(Space::Edges(graph)) => Op::Count(Space::Edges(other(graph))),
        op => op,
    }
}

fn renamed_type(ty: &Type, from: Graph, to: Graph) -> Type {
    let space = match ty.space {
        Space::Edges(graph) if graph == from => Space::Edges(to),
        Space::Endpoints(graph, direction) if graph == from => Space::Endpoints(to, direction),
        space => space,
    };
    Type { space, ..ty.clone() }
}
