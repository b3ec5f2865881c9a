//! Checks that the program of an artifact is the forward program of a model. Passes and back ends rely on more than the
//! verifier of the IR checks, and a file may hold anything.

use std::collections::BTreeSet;

use hgnnc_ir::dataflow::Binding;
use hgnnc_ir::outputs::{FamilyOutput, FamilyRows};
use hgnnc_ir::training::{LOSS_NUMBER, Target, Task, Trained, Training, row_loss};
use hgnnc_ir::types::{DType, Graph, Phase, Space, Type, VertexType};
use hgnnc_ir::{Dataflow, Dim, Op, Output, OutputKind, VertexRows, verify};
use hgnnc_train::weights;

use super::description::{Description, has_rows, in_schema, relations};

/// Most characters of the text of a program.
pub(super) const MOST_TEXT: usize = 64 << 20;
/// Most elements of a row of a value.
const MOST_WIDTH: usize = 1 << 24;

/// Checks a program against the other parts of an artifact.
///
/// # Errors
/// The first broken rule.
pub(super) fn check(
    (flow, families): (&Dataflow, &[FamilyOutput]),
    description: &Description,
    training: Option<&Training>,
    params: &weights::File,
) -> Result<(), String> {
    verify(flow).map_err(|broken| match broken.first() {
        Some(first) => format!("its program is not valid: {}: {}", first.place, first.message),
        None => "its program is not valid".into(),
    })?;
    is_forward(flow)?;
    widths(flow, params)?;
    schema(flow, description)?;
    tensors(flow, description, params)?;
    results(flow, description, training)?;
    family_results(flow, description, families)
}

/// A forward program has only what a model is lowered to.
fn is_forward(flow: &Dataflow) -> Result<(), String> {
    let foreign = |what: &str| Err(format!("its program has {what}, which no model has"));
    if !flow.stacks.is_empty() || !flow.metapaths.is_empty() {
        return foreign("tables of a compiled program");
    }
    if flow.vertex_types.iter().any(|decl| decl.rows != VertexRows::Dataset || decl.dataset_name.is_empty()) {
        return foreign("rows that are no vertices of a dataset");
    }
    if flow.graphs.iter().any(|decl| decl.derived.is_some()) || flow.params.iter().any(|decl| !decl.entries.is_empty())
    {
        return foreign("tables of a compiled program");
    }
    for input in &flow.inputs {
        match input.binding {
            Binding::Features(..)
            | Binding::Label(..)
            | Binding::TrainMask(_)
            | Binding::Time(_)
            | Binding::EdgeTime(_)
            | Binding::EdgeWeight(_)
            | Binding::EdgeCount(_)
            | Binding::EdgeFeatures(_)
            | Binding::IsLink(_) => {}
            Binding::EdgeRank(..)
            | Binding::Given(_)
            | Binding::Precomputed(..)
            | Binding::StepNumber
            | Binding::EpochNumber => {
                return foreign("an input of a compiled program");
            }
        }
    }
    for value in &flow.values {
        match &value.op {
            Op::Input(_)
            | Op::Param(_)
            | Op::Const(_)
            | Op::Count(_)
            | Op::RandomMask { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Broadcast(_)
            | Op::StopGradient
            | Op::Reshape(_)
            | Op::Concat
            | Op::Slice { .. }
            | Op::Transpose { .. }
            | Op::RowProduct { .. }
            | Op::OneHot { .. }
            | Op::Rows
            | Op::Unrows
            | Op::MatMul { .. }
            | Op::MatMulT { .. }
            | Op::Outer { .. }
            | Op::GatherSrc(_)
            | Op::GatherDst(_)
            | Op::Segment { .. }
            | Op::ReduceTrailing { .. }
            | Op::LinkLoss(_)
            | Op::ReduceSpace(_) => {}
            Op::State(..)
            | Op::Reindex(_)
            | Op::Grouped { .. }
            | Op::SegmentEndpoints { .. }
            | Op::SegmentArg { .. }
            | Op::Exchange(_)
            | Op::SumRanks
            | Op::MetapathReduce(_)
            | Op::GatherRows(..)
            | Op::ScatterRows(..)
            | Op::ScatterAdd(_) => return foreign("an operation of a compiled program"),
        }
        if matches!(value.ty.space, Space::Endpoints(..)) || value.phase != Phase::Forward {
            return foreign("a value of a compiled program");
        }
    }
    match flow.outputs.iter().any(|output| !matches!(output.kind, OutputKind::Result(_))) {
        true => foreign("an update"),
        false => Ok(()),
    }
}

/// Sizes of rows are products of extents, which must not overflow anywhere. Parameters, and what is computed of them
/// alone, have one row, which may be as large as the largest tensor of the file.
fn widths(flow: &Dataflow, params: &weights::File) -> Result<(), String> {
    let largest = params.tensors.values().map(|(_, numbers)| numbers.len()).max().unwrap_or(0);
    let fits = |dims: &[Dim], most: usize| {
        let extent = |dim: &Dim| dim.fixed().unwrap_or(1);
        dims.iter().map(extent).try_fold(1usize, |all, extent| all.checked_mul(extent)).is_some_and(|n| n <= most)
    };
    let most = |space: Space| if space == Space::Unit { MOST_WIDTH.max(largest) } else { MOST_WIDTH };
    let inputs = flow.inputs.iter().map(|input| &input.ty);
    let types = inputs.chain(flow.values.iter().map(|value| &value.ty)).map(|ty| (&ty.dims[..], most(ty.space)));
    let mut all = types.chain(flow.params.iter().map(|param| (&param.dims[..], most(Space::Unit))));
    let patterns = flow.patterns.iter().all(|pattern| pattern.columns <= MOST_WIDTH);
    let index = |space: Space| match space {
        Space::Index(extent) => extent <= MOST_WIDTH,
        _ => true,
    };
    match all.all(|(dims, most)| fits(dims, most)) && patterns && flow.values.iter().all(|value| index(value.ty.space))
    {
        true => Ok(()),
        false => Err(format!("a value of its program has rows of more than {MOST_WIDTH} elements")),
    }
}

/// The schema is that of the program.
fn schema(flow: &Dataflow, description: &Description) -> Result<(), String> {
    let differs = |what: &str| Err(format!("its schema and its program disagree about {what}"));
    let Description { vertices, .. } = description;
    if flow.name != description.model {
        return differs("the name of the model");
    }
    if vertices.len() != flow.vertex_types.len() {
        return differs("the number of vertex types");
    }
    for (row, (schema, decl)) in vertices.iter().zip(&flow.vertex_types).enumerate() {
        let vertex = VertexType::new(row);
        let same = schema.name == decl.name
            && schema.dataset == decl.dataset_name
            && (schema.features, schema.fields.clone()) == in_schema(flow, vertex)
            && schema.rows == has_rows(flow, vertex);
        if !same {
            return differs(&format!("the vertex type `{}`", schema.name));
        }
    }
    if description.relations != relations(flow) {
        return differs("its relations");
    }
    Ok(())
}

/// The tensors are the parameters of the program.
fn tensors(flow: &Dataflow, description: &Description, params: &weights::File) -> Result<(), String> {
    for decl in &flow.params {
        let Some((shape, _)) = params.tensors.get(&decl.name) else {
            return Err(format!("the parameter `{}` is missing", decl.name));
        };
        let extent = |dim: &Dim| match *dim {
            Dim::Fixed(extent) => extent,
            Dim::Count(vertex) => description.vertices[vertex.index()].count,
        };
        let expected: Vec<usize> = decl.dims.iter().map(extent).collect();
        if *shape != expected {
            return Err(format!("the parameter `{}` has shape {shape:?}, its program expects {expected:?}", decl.name));
        }
    }
    let known = |name: &String| flow.params.iter().any(|decl| decl.name == *name);
    match params.tensors.keys().find(|name| !known(name)) {
        Some(name) => Err(format!("its program has no parameter `{name}`")),
        None => Ok(()),
    }
}

/// Outputs and losses are there, with the types that evaluations expect.
fn results(flow: &Dataflow, description: &Description, training: Option<&Training>) -> Result<(), String> {
    let result = |name: &str| flow.result(name).map(|value| flow.ty(value));
    let names: Vec<&str> = flow.outputs.iter().filter_map(name_of).collect();
    if names.iter().enumerate().any(|(place, name)| names[..place].contains(name)) {
        return Err("two results of its program have one name".into());
    }
    if flow.outputs.iter().any(|output| flow.ty(output.value).dtype != DType::F32) {
        return Err("a result of its program has no numbers".into());
    }
    for name in &description.outputs {
        // An output of links has a result for each of their graphs.
        let is_its = |result: &&str| result.strip_prefix(&name[..]).is_some_and(|rest| rest.starts_with('.'));
        if result(name).is_none() && !names.iter().any(is_its) {
            return Err(format!("its program has no output `{name}`"));
        }
    }
    let Some(training) = training else { return Ok(()) };
    for (term, trained) in training.trained.iter().enumerate() {
        of_term(flow, description, (term, trained))?;
    }
    let number = Type::new(Space::Unit, vec![]);
    if training.has_number && result(LOSS_NUMBER) != Some(&number) {
        return Err("its program has no number of its loss".into());
    }
    match result("loss") {
        Some(ty) if *ty == number => Ok(()),
        _ => Err("its program has no loss".into()),
    }
}

/// The results of a term of the loss are there.
fn of_term(flow: &Dataflow, description: &Description, (term, trained): (usize, &Trained)) -> Result<(), String> {
    let result = |name: &str| flow.result(name).map(|value| flow.ty(value));
    let output = &trained.output;
    if !description.outputs.contains(output) {
        return Err(format!("the trained output `{output}` is no output"));
    }
    match (&trained.target, trained.task) {
        (
            Target::Vertices { vertex, .. },
            Task::Classify { classes: n } | Task::MultiLabel { labels: n } | Task::Regress { width: n },
        ) => {
            let space = Space::Vertices(*vertex);
            if result(output) != Some(&Type::new(space, vec![Dim::Fixed(n)])) || n == 0 {
                return Err(format!("the output `{output}` has no row of {n} for each vertex"));
            }
            if result(&row_loss(term)) != Some(&Type::new(space, vec![])) {
                return Err("its program has no loss of each vertex".into());
            }
        }
        (Target::Links(links), Task::Link) => {
            let is_scored = |graph: &Graph| {
                let name = format!("{output}.{}", flow.graphs[graph.index()].name);
                result(&name) == Some(&Type::new(Space::Edges(*graph), vec![]))
            };
            if links.graphs.is_empty() || !links.graphs.iter().all(is_scored) {
                return Err(format!("the output `{output}` scores no links"));
            }
        }
        (Target::Vertices { .. }, Task::Link) | (Target::Links(_), _) => {
            return Err("its task and its target disagree".into());
        }
    }
    Ok(())
}

/// Outputs of semantic graphs and edges have a row for each, all of one width.
fn family_results(flow: &Dataflow, description: &Description, families: &[FamilyOutput]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut members = BTreeSet::new();
    for family in families {
        let name = &family.name;
        if !description.outputs.contains(name) || !names.insert(name) || family.members.is_empty() {
            return Err(format!("the output `{name}` of semantic graphs is not declared once"));
        }
        let mut dims = None;
        for (graph, result) in &family.members {
            let space = match family.rows {
                FamilyRows::Graphs => Space::Unit,
                FamilyRows::Edges => Space::Edges(*graph),
            };
            let ty = flow.result(result).map(|value| flow.ty(value)).filter(|ty| ty.space == space);
            let fits = ty.is_some_and(|ty| ty.dims.len() <= 1 && *dims.get_or_insert(&ty.dims) == &ty.dims);
            if !fits || !members.insert(result) {
                return Err(format!("the output `{name}` has no rows of its own for each semantic graph"));
            }
        }
    }
    let mut trained = description.evaluation.iter().flat_map(|of| of.outputs());
    match trained.find(|trained| names.contains(trained)) {
        Some(trained) => Err(format!("the trained output `{trained}` is not of vertices or links")),
        None => Ok(()),
    }
}

fn name_of(output: &Output) -> Option<&str> {
    match &output.kind {
        OutputKind::Result(name) => Some(name),
        OutputKind::UpdateParam(_) | OutputKind::UpdateState(..) => None,
    }
}
