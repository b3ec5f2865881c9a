//! The oracle of programs of several ranks ([`hgnnc_ir::ranks`]): one interpreter for each rank, in lockstep.

use std::collections::BTreeMap;

use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::types::{Space, Value, VertexType};
use hgnnc_ir::{Op, VertexRows};

use crate::bindings::check;
use crate::dataflow::evaluate;
use crate::{Bindings, Evaluation, InterpError, Tensor};

/// Evaluates every value of a program on all ranks, with the bindings of each.
///
/// # Errors
/// When bindings do not fit the program's tables.
///
/// # Panics
/// When the program is ill-typed, or no rank owns a row that another mirrors.
pub fn run_ranks(flow: &Dataflow, ranks: &[Bindings]) -> Result<Vec<Evaluation>, InterpError> {
    ranks.iter().try_for_each(|bindings| check(flow, bindings))?;
    let mut runs: Vec<Evaluation> = ranks.iter().map(|_| Evaluation { values: vec![] }).collect();
    for value in flow.handles() {
        let tensors = match flow.value(value).op {
            Op::Exchange(_) | Op::SumRanks => {
                let all: Vec<(&Bindings, &Evaluation)> = ranks.iter().zip(&runs).collect();
                exchanged(flow, &all, value)
            }
            _ => {
                let tensor = |(bindings, run)| evaluate(flow, bindings, run, value);
                ranks.iter().zip(&runs).map(tensor).collect::<Result<_, _>>()?
            }
        };
        for (run, tensor) in runs.iter_mut().zip(tensors) {
            run.values.push(tensor);
        }
    }
    Ok(runs)
}

/// The result of an exchange on each rank: the rows of mirrors, from the ranks that own them, the copies that the batches
/// of all ranks have of rows of this one, or the sum of the rows of all.
pub(crate) fn exchanged(flow: &Dataflow, ranks: &[(&Bindings, &Evaluation)], value: Value) -> Vec<Tensor> {
    let data = flow.value(value);
    let (own, arg) = (flow.ty(data.args[0]).space, data.args[0]);
    if let Op::Exchange(to) = data.op
        && let VertexRows::Copies(of) = flow.vertex_types[to.index()].rows
    {
        return copies(flow, ranks, of, arg);
    }
    if data.op == Op::SumRanks {
        let all: Vec<&[f64]> =
            ranks.iter().flat_map(|(_, run)| (0..run[arg].rows).map(|row| run[arg].row(row))).collect();
        let (rows, width) = (ranks[0].0.rows(data.ty.space), ranks[0].0.width(&data.ty.dims));
        // Sections of pairs have a row for each member.
        let of = |of: usize, column: usize| all.iter().skip(of).step_by(rows).map(|row| row[column]).sum();
        let sum = Tensor::from_fn(rows, width, of);
        return vec![sum; ranks.len()];
    }
    let mut owned: BTreeMap<usize, &[f64]> = BTreeMap::new();
    for (bindings, run) in ranks {
        let tensor = &run[arg];
        owned.extend((0..tensor.rows).map(|row| (bindings.number(own, row), tensor.row(row))));
    }
    let of_rank = |(bindings, _): &(&Bindings, &Evaluation)| {
        let (rows, width) = (bindings.rows(data.ty.space), bindings.width(&data.ty.dims));
        let row = |row: usize| owned[&bindings.number(data.ty.space, row)].iter().copied();
        Tensor::new(rows, width, (0..rows).flat_map(row).collect())
    };
    ranks.iter().map(of_rank).collect()
}

/// The rows that all ranks have of the vertices that each owns, by the rank that has them.
fn copies(flow: &Dataflow, ranks: &[(&Bindings, &Evaluation)], of: VertexType, arg: Value) -> Vec<Tensor> {
    let owned = flow.owner_of_copies(VertexRows::Copies(of));
    let of_rank = |(owner, _): &(&Bindings, &Evaluation)| {
        let own = owned.and_then(|owned| owner.numbers.get(&Space::Vertices(owned)));
        let mut rows = vec![];
        for (bindings, run) in ranks {
            let is_own = |&row: &usize| {
                let number = bindings.number(Space::Vertices(of), row) as u32;
                own.is_some_and(|own| own.contains(&number))
            };
            rows.extend((0..run[arg].rows).filter(is_own).map(|row| run[arg].row(row)));
        }
        let width = rows.first().map_or_else(|| owner.width(&flow.ty(arg).dims), |row| row.len());
        Tensor::new(rows.len(), width, rows.concat())
    };
    ranks.iter().map(of_rank).collect()
}
