//! Where programs run.

use hgnnc_cuda::{Cuda, open_interpreter};
use hgnnc_data::ExecError;

use crate::{Error, Observer};

/// A choice of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// A GPU if there is one and the model fits, else the processor.
    Auto,
    /// The processor of this machine.
    Cpu,
    /// The NVIDIA GPU with this number.
    Cuda(u32),
    /// The PTX interpreter: runs the GPU code on the processor, slowly, with performance counters.
    PtxInterp,
}

/// An opened device other than the processor.
pub struct Opened {
    pub device: Box<dyn hgnnc_cuda::Device>,
    /// Whether the processor may take over if the device fails.
    pub optional: bool,
}

/// Opens the requested device; `None` stands for the processor. `observer` receives a note if a device was expected but
/// cannot be used.
///
/// # Errors
/// When the device does not exist or cannot be used.
pub fn open(asked: Device, observer: &mut dyn Observer) -> Result<Option<Opened>, Error> {
    match asked {
        Device::Cpu => Ok(None),
        Device::PtxInterp => Ok(Some(Opened { device: open_interpreter()?, optional: false })),
        Device::Cuda(number) => Ok(Some(Opened { device: Box::new(Cuda::open(number)?), optional: false })),
        Device::Auto if !Cuda::driver_is_present() => Ok(None),
        Device::Auto => match Cuda::open(0) {
            Ok(device) => Ok(Some(Opened { device: Box::new(device), optional: true })),
            Err(error) => {
                observer.note(on_the_processor(&error));
                Ok(None)
            }
        },
    }
}

/// The note that the processor replaces an expected device.
pub fn on_the_processor(error: &ExecError) -> String {
    format!("running on the processor: {error}")
}
