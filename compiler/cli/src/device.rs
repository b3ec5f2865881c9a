//! Selects the device of a command.

use hgnnc_cuda::{Cuda, open_interpreter};
use hgnnc_data::ExecError;

use crate::args::Device;
use crate::failure::Failure;

/// An opened device other than the processor.
pub struct Opened {
    pub device: Box<dyn hgnnc_cuda::Device>,
    /// Whether the processor may take over if the device fails.
    pub optional: bool,
}

/// Opens the requested device; `None` stands for the processor. `say` receives a note if a device was expected but
/// cannot be used.
///
/// # Errors
/// When the device does not exist or cannot be used.
pub fn open(asked: Device, say: &mut dyn FnMut(String)) -> Result<Option<Opened>, Failure> {
    match asked {
        Device::Cpu => Ok(None),
        Device::PtxInterp => Ok(Some(Opened { device: open_interpreter()?, optional: false })),
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

/// The note that the processor replaces an expected device.
pub fn on_the_processor(error: &ExecError) -> String {
    format!("running on the processor: {error}")
}
