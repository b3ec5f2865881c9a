//! A model as a layer of a larger network: given inputs, and programs with a vector-Jacobian product.

use hgnnc_analysis::memory::arena_bytes;
use hgnnc_declare::names::closest;
use hgnnc_declare::schema::{FEATURES, FieldKind};
use hgnnc_executable::{Executable, Kernels};
use hgnnc_fusion::LoweringOptions;
use hgnnc_ir::dataflow::{Binding, InputDecl, Matrix};
use hgnnc_ir::{Dataflow, Input, Op, Param};
use hgnnc_passes::{Leaf, LeafGradient, PassCx, PassManager};
use hgnnc_sema::dataset::{DatasetSummary, FieldSummary};
use hgnnc_sema::dataset_names::DatasetNames;

use crate::lower::{LowerError, LowerOptions, without_dropout};
use crate::model::Analyzed;
use crate::pipeline::{Compilation, EVALUATE, LAYER};

/// Makes the named features (`Paper.x`) inputs that the caller gives at each call. In `summary` they take the place of
/// the dataset's own features, which may be missing or have another width, so that
/// [`check_dataset`](crate::check_dataset) compares the others only.
///
/// # Errors
/// A message about a name that is no dense feature that the model reads.
pub fn give_features(model: &mut Analyzed, names: &[String], summary: &mut DatasetSummary) -> Result<(), String> {
    let is_feature = |decl: &InputDecl| match &decl.binding {
        Binding::Features(_, matrix) => !matches!(matrix, Matrix::TrainLabels(_)),
        _ => false,
    };
    let features = model.flow.inputs.iter().filter(|decl| is_feature(decl));
    let known: Vec<String> = features.map(|decl| decl.name.clone()).collect();
    for (position, name) in names.iter().enumerate() {
        if names[..position].contains(name) {
            return Err(format!("`{name}` is given twice"));
        }
        let found = model.flow.inputs.iter().position(|decl| decl.name == *name);
        let found = found.filter(|&index| is_feature(&model.flow.inputs[index]));
        let Some(index) = found else { return Err(unknown_feature(model, name, &known)) };
        let decl = &mut model.flow.inputs[index];
        if decl.ty.is_sparse() {
            return Err(format!(
                "`{name}` is declared sparse, and given inputs are dense: declare it without `sparse`"
            ));
        }
        decl.binding = Binding::Given(name.clone());
        let Some(FeaturePlace { vertex, field, width }) = place_of_feature(model, name, summary) else { continue };
        let vertex = &mut summary.vertices[vertex];
        match field {
            None => vertex.features = Some((width, false)),
            Some(name) => {
                vertex.fields.retain(|known| known.name != name);
                vertex.fields.push(FieldSummary { name, width, sparse: false });
            }
        }
    }
    Ok(())
}

/// The place of a feature in a dataset, whether or not the dataset has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FeaturePlace {
    /// Position of the vertex type.
    pub vertex: usize,
    /// The field of the vertex type; `None` for its `features`.
    pub field: Option<String>,
    /// Columns that the model declares; the dataset may have another number.
    pub width: usize,
}

/// The place of a feature of the model (`Paper.x`) that real numbers are declared for; `None` if there is no such feature,
/// or the dataset has no such vertex type.
pub fn place_of_feature(model: &Analyzed, name: &str, summary: &DatasetSummary) -> Option<FeaturePlace> {
    let (vertex, field) = name.split_once('.')?;
    let info = model.schema.vertices.iter().find(|info| info.name == vertex)?;
    let field = info.matrices().find(|known| known.name == field)?;
    let FieldKind::Real { width, .. } = field.kind else { return None };
    let places: DatasetNames<'_> = summary.vertices.iter().map(|vertex| vertex.name.as_str()).collect();
    let vertex = places.find(&info.dataset_name)?;
    let name = field.dataset_name.clone().unwrap_or_else(|| field.name.clone());
    Some(FeaturePlace { vertex, field: Some(name).filter(|name| name != FEATURES), width })
}

/// The given inputs of a program, in the order of these names.
pub fn given_inputs(flow: &Dataflow, names: &[String]) -> Vec<Input> {
    let input = |name: &String| {
        let binding = Binding::Given(name.clone());
        flow.inputs.iter().position(|decl| decl.binding == binding).map(Input::new)
    };
    names.iter().filter_map(input).collect()
}

fn unknown_feature(model: &Analyzed, name: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = closest(name, &known).map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
    let listed: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    match listed.is_empty() {
        true => format!("the model `{}` reads no features, so `{name}` cannot be given", model.name),
        false => format!("the model `{}` reads no features `{name}`; it reads {}{hint}", model.name, listed.join(", ")),
    }
}

/// A compiled layer.
pub struct LoweredLayer {
    /// Its programs: each has a forward pass, whose results are the outputs, and a backward pass
    /// ([`hgnnc_kernel_ir::kernel::Program::second_part`]), whose results are the gradients. The training program, with dropout,
    /// exists only if the model has any.
    pub executable: Executable,
    /// The gradients by parameters and given inputs. A leaf that no output depends on has none.
    pub gradients: Vec<LeafGradient>,
    /// Log of the rewrites that passes applied or rejected.
    pub explanations: Vec<String>,
}

/// Does a program draw dropout masks?
pub(crate) fn draws_masks(flow: &Dataflow) -> bool {
    flow.values.iter().any(|value| matches!(value.op, Op::RandomMask { .. }))
}

/// Lowers a model to the programs of a layer, which is differentiated by all parameters and by `given` inputs.
///
/// # Errors
/// When a disabled pass or fusion does not exist, an operation has no kernel, or an output no gradient.
pub fn lower_layer(model: &Analyzed, given: &[Input], options: &LowerOptions) -> Result<LoweredLayer, LowerError> {
    let passes = PassManager::new(&options.disabled)?;
    let lowering = LoweringOptions::of(options.machine.as_ref());
    let context = PassCx { machine: options.machine.clone(), ..PassCx::new(options.sizes.clone()) };
    let params = (0..model.flow.params.len()).map(|index| Leaf::Param(Param::new(index)));
    let leaves: Vec<Leaf> = given.iter().map(|&input| Leaf::Input(input)).chain(params).collect();

    let evaluation = without_dropout(&model.flow);
    let plan = options.graphs.as_ref();
    let infer_cx = PassCx { factored: plan.map(|plan| plan.infer.clone()), ..context.clone() };
    // The memory of an evaluation is what rematerialization compares that of both passes with.
    let evaluation_bytes = match &options.sizes {
        None => None,
        Some(sizes) => {
            let mut forward = Compilation::new(evaluation.clone(), infer_cx.clone(), lowering);
            forward.run(EVALUATE, &passes, || None)?;
            Some(arena_bytes(&forward.kernels, sizes))
        }
    };
    let mut infer = Compilation::new(evaluation, infer_cx, lowering).layer(leaves.clone());
    infer.run(LAYER, &passes, || evaluation_bytes)?;
    let mut train = None;
    if draws_masks(&model.flow) {
        let mut flow = model.flow.clone();
        flow.name = format!("{}.train", model.name);
        let cx = PassCx { factored: plan.map(|plan| plan.train.clone()), ..context };
        let mut compiled = Compilation::new(flow, cx, lowering).layer(leaves);
        compiled.run(LAYER, &passes, || evaluation_bytes)?;
        train = Some(compiled);
    }
    let explained = train.as_ref().unwrap_or(&infer);
    let explanations = [model.explanations.clone(), explained.cx.explain.clone()].concat();
    // A mask changes no dependence, so both programs have the same gradients.
    let gradients = std::mem::take(&mut infer.leaf_gradients);
    let (train, train_kernels) = train.map(|train| (train.flow, train.kernels)).unzip();
    let executable = Executable {
        model: model.name.clone(),
        train,
        infer: infer.flow,
        score: None,
        rank: [None, None],
        head: None,
        kernels: Kernels { train: train_kernels, infer: infer.kernels, score: None, rank: [None, None], head: None },
        cpu: None,
        sampler: None,
        training: None,
        batch: None,
        families: vec![],
        graphs: options.graphs.clone(),
    };
    Ok(LoweredLayer { executable, gradients, explanations })
}
