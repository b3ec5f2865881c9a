//! Devices on which tests execute PTX: the interpreter, or a GPU where the environment names one (`HGNN_TEST_DEVICE=cuda:0`).

use crate::{Cuda, Device, Interpreter};

/// The environment variable that names a GPU.
const VARIABLE: &str = "HGNN_TEST_DEVICE";

/// The device that the environment chooses for a test.
///
/// # Panics
/// When the GPU that the environment names cannot be opened.
pub fn device() -> Box<dyn Device> {
    gpu().unwrap_or_else(|| Box::new(Interpreter::new()))
}

/// The same, where the interpreter executes blocks, and the warps of each, in reverse order. A GPU has an order of its
/// own in every run.
///
/// # Panics
/// When the GPU that the environment names cannot be opened.
pub fn reversed_device() -> Box<dyn Device> {
    gpu().unwrap_or_else(|| Box::new(Interpreter::backward()))
}

fn gpu() -> Option<Box<dyn Device>> {
    let name = std::env::var(VARIABLE).ok()?;
    let number = name.strip_prefix("cuda:").and_then(|number| number.parse().ok());
    let number = number.unwrap_or_else(|| panic!("{VARIABLE} is `{name}`, and no `cuda:NUMBER`"));
    Some(Box::new(Cuda::open(number).unwrap_or_else(|error| panic!("{error}"))))
}
