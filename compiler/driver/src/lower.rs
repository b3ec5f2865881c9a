//! From a checked model to the programs that the runtime executes.

use hgnnc_ir::artifact::VERSION;
use hgnnc_ir::{Artifact, Dataflow, Op, OutputKind, Param};
use hgnnc_passes::{differentiate, update};
use hgnnc_sema::Analyzed;

/// What lowering depends on.
#[derive(Clone, Debug, Default)]
pub struct LowerOptions {
    /// Passes that do not run.
    pub disabled: Vec<String>,
}

/// A compiled model with the levels that it went through.
pub struct Lowered {
    /// The forward program before any pass.
    pub dataflow: Dataflow,
    /// The forward program with gradients and updates, before any pass over the whole.
    pub joint: Option<Dataflow>,
    /// What the runtime executes.
    pub artifact: Artifact,
    /// What the passes decided, with the numbers that they compared.
    pub explanations: Vec<String>,
}

/// Lowers a model.
pub fn lower(model: &Analyzed, options: &LowerOptions) -> Lowered {
    let _ = options;
    let dataflow = model.flow.clone();
    let forward = dataflow.clone();
    let infer = without_dropout(&forward);
    let joint = model.train.as_ref().map(|spec| {
        let mut joint = forward.clone();
        joint.name = format!("{}.train", model.name);
        let loss = joint.result("loss").expect("a trained model has a loss");
        joint.outputs.retain(|o| o.kind == OutputKind::Result("loss".to_string()));
        let params: Vec<Param> = (0..joint.params.len()).map(Param::new).collect();
        let grads = differentiate(&mut joint, loss, &params);
        update(&mut joint, &grads, &spec.optimizer);
        joint
    });
    let artifact = Artifact {
        version: VERSION,
        model: model.name.clone(),
        train: joint.clone(),
        infer,
        training: model.train.as_ref().map(|spec| spec.training.clone()),
    };
    Lowered { dataflow, joint, artifact, explanations: vec![] }
}

/// The program of evaluation: dropout's masks are 1.
fn without_dropout(flow: &Dataflow) -> Dataflow {
    let mut eval = flow.with_tables_of(format!("{}.infer", flow.name));
    for value in &flow.values {
        eval.cursor = hgnnc_ir::dataflow::Cursor { stage: value.stage, phase: value.phase, origin: value.origin };
        let op = match &value.op {
            // A mask only ever multiplies what it masks, and a scalar multiplies anything.
            Op::RandomMask { .. } => Op::Const(1.0),
            other => other.clone(),
        };
        eval.add(op, &value.args);
    }
    eval.outputs = flow.outputs.iter().filter(|o| o.kind != OutputKind::Result("loss".to_string())).cloned().collect();
    eval
}
