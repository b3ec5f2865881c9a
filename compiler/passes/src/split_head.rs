//! Splits the prediction head off an evaluation program, so that it runs on some rows at a time.
//!
//! The outputs of a model are often much wider than the embeddings that they are computed from, row by row: 349 classes
//! from 64 numbers. On the graph of ogbn-mag, the logits of all papers take 1 GB, of which metrics read each row once.
//! The head is a program of its own, which runs on rows of the embeddings, and no logits are stored:
//!
//! ```text
//! Before:  %7 = add %5, %6                     : f32[Paper; 64]
//!          %8 = matmul %7, w                   : f32[Paper; 349]
//!          result "logits" = %8
//!          result "row_loss" = ...
//! First:   %7 = add %5, %6                     : f32[Paper; 64]
//!          result "head.0" = %7
//! Second:  %0 = input head.0                   : f32[Paper; 64]        head.0 = given("head.0")
//!          %1 = matmul %0, w                   : f32[Paper; 349]
//!          ...
//! ```
//!
//! The program is cut at the narrowest vertex value on which all outputs of the type depend through operations on
//! single rows, besides parameters and the label. Rows of the second part are any vertices of the type, in any number.

use std::collections::BTreeSet;

use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::{DType, Dataflow, Op, Output, Space, Type, Value, VertexType};

use crate::two_parts::{fill, of_params, second_part};

/// The outputs of a program are at least this many times as wide as the value that the head is computed from: below, a
/// program of its own saves too little.
const LEAST_GAIN: usize = 2;

/// The two parts of an evaluation program: without the head, and the head of the vertices with a label. `None` if the
/// outputs do not depend on single rows of a narrower value.
pub fn split_head(flow: &Dataflow, vertex: VertexType, label: &str) -> Option<(Dataflow, Dataflow)> {
    let rows = Space::Vertices(vertex);
    let mut free = of_params(flow);
    for value in flow.handles() {
        let data = flow.value(value);
        free[value.index()] |= match data.op {
            Op::Input(input) => {
                matches!(&flow.inputs[input.index()].binding, Binding::Label(of, name) if *of == vertex && name == label)
            }
            _ => is_by_row(flow, value, rows) && data.args.iter().all(|arg| free[arg.index()]),
        };
    }
    let outputs: Vec<&Output> = flow.outputs.iter().filter(|output| flow.ty(output.value).space == rows).collect();
    let cut = narrowest(flow, &outputs, &free, rows)?;
    let width = |value: Value| elements(flow.ty(value));
    // Values are in the order of their operands, so that what stands behind the cut depends on it.
    let of_head = |output: &Output| flow.ty(output.value).space == rows && output.value > cut;
    let outputs: Vec<&Output> = outputs.into_iter().filter(|output| of_head(output)).collect();
    let total: usize = outputs.iter().filter_map(|output| width(output.value)).sum();
    if total < LEAST_GAIN * width(cut)? {
        return None;
    }
    let mut within = free;
    let mut pending: Vec<Value> = outputs.iter().map(|output| output.value).collect();
    while let Some(value) = pending.pop() {
        if value != cut && !std::mem::replace(&mut within[value.index()], true) {
            pending.extend(&flow.value(value).args);
        }
    }
    let mut first = flow.clone();
    first.outputs.retain(|output| !of_head(output));
    let mut second = second_part(flow, "head", |_| false);
    second.metapaths.clear();
    fill((flow, &mut first, &mut second), &within, &outputs, "head", Op::clone);
    Some((first, second))
}

/// The value with the fewest elements of a row from which all outputs are computed row by row; the last of them.
fn narrowest(flow: &Dataflow, outputs: &[&Output], free: &[bool], rows: Space) -> Option<Value> {
    let mut frontier: BTreeSet<Value> =
        outputs.iter().map(|output| output.value).filter(|value| !free[value.index()]).collect();
    let mut best: Option<(usize, Value)> = None;
    while let Some(last) = frontier.pop_last() {
        let data = flow.value(last);
        if frontier.is_empty()
            && data.ty.dtype == DType::F32
            && let Some(width) = elements(&data.ty)
            && best.is_none_or(|(known, _)| width < known)
        {
            best = Some((width, last));
        }
        let of_rows = |arg: &Value| free[arg.index()] || flow.ty(*arg).space == rows;
        if !is_by_row(flow, last, rows) || !data.args.iter().all(of_rows) {
            break;
        }
        frontier.extend(data.args.iter().filter(|arg| !free[arg.index()]));
    }
    best.map(|(_, value)| value)
}

/// Is each row of a value computed from the same row of its operands, or from operands without rows?
fn is_by_row(flow: &Dataflow, value: Value, rows: Space) -> bool {
    let data = flow.value(value);
    let by_row = match &data.op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Broadcast(_)
        | Op::StopGradient
        | Op::Reshape(_)
        | Op::Concat
        | Op::Slice { .. }
        | Op::Transpose { .. }
        | Op::RowProduct { .. }
        | Op::OneHot { .. }
        | Op::ReduceTrailing { .. } => true,
        Op::MatMul { .. } | Op::MatMulT { .. } => flow.ty(data.args[1]).is_unit(),
        _ => false,
    };
    by_row && data.ty.space == rows && elements(&data.ty).is_some()
}

/// The number of elements of a row, if it is dense and known without data.
fn elements(ty: &Type) -> Option<usize> {
    if ty.is_sparse() {
        return None;
    }
    ty.dims.iter().map(|dim| dim.fixed()).product()
}
