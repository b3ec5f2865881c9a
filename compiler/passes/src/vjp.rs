//! Appends to a forward program the vector-Jacobian product of its results: the program of a layer in a larger network.
//!
//! There is no loss and no optimizer. The gradients of the results are inputs that the caller gives
//! ([`Binding::Given`]), and the gradients of parameters and of given inputs are results:
//!
//! ```text
//! Before:  %0 = input Paper.x             : f32[Paper; 8]     Paper.x = given("Paper.x")
//!          %1 = param w                   : f32[8, 4]
//!          %2 = matmul %0, %1             : f32[Paper; 4]
//!          result z = %2
//! After:   %3 = input grad.output.z       : f32[Paper; 4]     grad.output.z = given("grad.output.z")
//!          %4 = matmul_t %3, %1           : f32[Paper; 8]
//!          %5 = outer %0, %3              : f32[8, 4]
//!          result z = %2
//!          result grad.input.Paper.x = %4
//!          result grad.param.w = %5
//! ```
//!
//! Everything that depends on a gradient belongs to [`Phase::Backward`](hgnnc_ir::Phase), so that a run of the kernels
//! pauses between the two passes (`kernel::Program::second_part`).

use hgnnc_ir::dataflow::{Binding, InputDecl};
use hgnnc_ir::{Dataflow, OutputKind, Value};

use crate::differentiate::{Leaf, NotDifferentiable, Seed, gradients};

/// The gradient of a leaf, as a result of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeafGradient {
    /// The leaf.
    pub leaf: Leaf,
    /// Name of the result, which has the type of the leaf.
    pub result: String,
}

/// The name of the given input that is the gradient of a result.
pub fn output_gradient(result: &str) -> String {
    format!("grad.output.{result}")
}

/// Appends the gradients of all results by leaves. A leaf that no result depends on is left out; its gradient is zero.
///
/// # Errors
/// [`NotDifferentiable`]: a result depends on an operation without a derivative.
pub fn vjp(flow: &mut Dataflow, by: &[Leaf]) -> Result<Vec<LeafGradient>, NotDifferentiable> {
    let results: Vec<(String, Value)> = flow
        .outputs
        .iter()
        .filter_map(|output| match &output.kind {
            OutputKind::Result(name) => Some((output_gradient(name), output.value)),
            OutputKind::UpdateParam(_) | OutputKind::UpdateState(..) => None,
        })
        .collect();
    let mut seeds = vec![];
    for (name, value) in results {
        let (ty, binding) = (flow.ty(value).clone(), Binding::Given(name.clone()));
        seeds.push((value, Seed::Given(flow.declare_input(InputDecl { name, ty, binding }))));
    }
    let found = gradients(flow, &seeds, by)?;
    let mut named = vec![];
    for (leaf, gradient) in found {
        let result = match leaf {
            Leaf::Param(param) => format!("grad.param.{}", flow.params[param.index()].name),
            Leaf::Input(input) => format!("grad.input.{}", flow.inputs[input.index()].name),
        };
        flow.output(result.clone(), gradient);
        named.push(LeafGradient { leaf, result });
    }
    Ok(named)
}
