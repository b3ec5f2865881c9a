//! Divides a forward program into one that runs once and one that runs on sets of rows, fed by results of the first.

use hgnnc_ir::dataflow::{Binding, Cursor, GraphDecl, InputDecl};
use hgnnc_ir::{Dataflow, Op, Output, Space, Value, VertexRows};

/// An empty program with the tables of `flow` that a second part has: the graphs that `keep` accepts, no stacks, no
/// inputs. Parameters keep their positions.
pub fn second_part(flow: &Dataflow, name: &str, keep: impl Fn(&GraphDecl) -> bool) -> Dataflow {
    let mut second = flow.with_tables_of(format!("{}.{name}", flow.name));
    second.inputs.clear();
    second.patterns.clear();
    second.graphs.retain(keep);
    second.families.clear();
    second.stacks.clear();
    second.vertex_types.retain(|decl| decl.rows == VertexRows::Dataset);
    second.params.retain(|decl| decl.entries.is_empty());
    second.params.iter_mut().for_each(|decl| decl.of = None);
    second
}

/// Marks the values that depend on parameters and constants alone, and have no rows.
pub fn of_params(flow: &Dataflow) -> Vec<bool> {
    let mut unit = vec![false; flow.values.len()];
    for value in flow.handles() {
        let data = flow.value(value);
        unit[value.index()] = match data.op {
            Op::Input(_) => false,
            _ => data.ty.space == Space::Unit && data.args.iter().all(|arg| unit[arg.index()]),
        };
    }
    unit
}

/// Fills the second part with the outputs and the values they need: values in `within` by their operations, as `on`
/// names its graphs, others by an input `PREFIX.N`, which becomes a result of `first`. Parameters that it does not read
/// have one element there.
pub fn fill(
    (flow, first, second): (&Dataflow, &mut Dataflow, &mut Dataflow),
    within: &[bool],
    outputs: &[&Output],
    prefix: &str,
    on: impl Fn(&Op) -> Op,
) {
    let mut needed = vec![false; flow.values.len()];
    outputs.iter().for_each(|output| needed[output.value.index()] = true);
    for value in flow.handles().rev().filter(|value| within[value.index()]) {
        if needed[value.index()] {
            flow.value(value).args.iter().for_each(|arg| needed[arg.index()] = true);
        }
    }
    let mut used = vec![false; flow.params.len()];
    let mut given = 0;
    let mut made: Vec<Option<Value>> = vec![None; flow.values.len()];
    for value in flow.handles().filter(|value| needed[value.index()]) {
        let data = flow.value(value);
        second.cursor = Cursor { stage: data.stage, phase: data.phase, origin: data.origin };
        let op = match &data.op {
            _ if !within[value.index()] => {
                let name = format!("{prefix}.{given}");
                given += 1;
                first.output(name.clone(), value);
                let binding = Binding::Given(name.clone());
                Op::Input(second.declare_input(InputDecl { name, ty: data.ty.clone(), binding }))
            }
            Op::Input(input) => Op::Input(second.declare_input(flow.inputs[input.index()].clone())),
            Op::Param(param) => {
                used[param.index()] = true;
                data.op.clone()
            }
            other => on(other),
        };
        let args: &[Value] = if matches!(op, Op::Input(_)) { &[] } else { &data.args };
        let args: Vec<Value> =
            args.iter().map(|arg| made[arg.index()].expect("operands of what is needed are needed")).collect();
        made[value.index()] = Some(second.add(op, &args));
    }
    for output in outputs {
        let value = made[output.value.index()].expect("outputs are needed");
        second.outputs.push(Output { kind: output.kind.clone(), value });
    }
    for (decl, used) in second.params.iter_mut().zip(used) {
        if !used {
            decl.dims.clear();
        }
    }
    second.cursor = flow.cursor;
}
