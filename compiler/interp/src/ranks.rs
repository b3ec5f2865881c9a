//! The oracle of programs of several ranks ([`hgnnc_ir::ranks`]): one interpreter for each rank, in lockstep.

use std::collections::BTreeMap;

use hgnnc_ir::Op;
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::types::Value;

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
            Op::Exchange(_) => {
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

/// The result of an exchange on each rank: the rows of mirrors, from the ranks that own them.
pub(crate) fn exchanged(flow: &Dataflow, ranks: &[(&Bindings, &Evaluation)], value: Value) -> Vec<Tensor> {
    let data = flow.value(value);
    let (own, arg) = (flow.ty(data.args[0]).space, data.args[0]);
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
