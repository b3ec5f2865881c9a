//! The device that a command runs on.

use hgnnc_exec::ExecError;
use hgnnc_exec::device::{Cuda, Interpreter};

use crate::args::Device;
use crate::failure::Failure;

/// A device other than the processor.
pub struct Opened {
    /// The device.
    pub device: Box<dyn hgnnc_exec::Device>,
    /// May the processor do it, where the device cannot?
    pub optional: bool,
}

/// Opens the device that was asked for; `None`: the processor. `say` is told where a device was to be expected, but
/// cannot be used.
///
/// # Errors
/// No such device, or one that cannot be used.
pub fn open(asked: Device, say: &mut dyn FnMut(String)) -> Result<Option<Opened>, Failure> {
    match asked {
        Device::Cpu => Ok(None),
        Device::PtxInterp => Ok(Some(Opened { device: Box::new(Interpreter::new()), optional: false })),
        Device::Cuda(number) => Ok(Some(Opened { device: Box::new(Cuda::open(number)?), optional: false })),
        Device::Auto if !Cuda::driver_is_present() => Ok(None),
        Device::Auto => match Cuda::open(0) {
            Ok(device) => Ok(Some(Opened { device: Box::new(device), optional: true })),
            Err(error) => {
                say(on_the_processor(&error));
                Ok(None)
            }
        },
    }
}

/// Why the processor does what a device was to be expected to do.
pub fn on_the_processor(error: &ExecError) -> String {
    format!("running on the processor: {error}")
}
