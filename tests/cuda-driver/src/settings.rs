//! Properties of the simulated driver and devices.

/// Properties of the simulated driver and devices, written as comma-separated `name=value`.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// `devices`: number of devices.
    pub devices: i32,
    /// `version`: of the driver API, 1000 · major + 10 · minor.
    pub version: i32,
    /// `ptx`: newest PTX version that the JIT compiler accepts, as 87 for 8.7.
    pub ptx: u32,
    /// `capability`: compute capability of the devices, as 90 for 9.0.
    pub capability: i32,
    /// `memory`: bytes per device.
    pub memory: u64,
    /// `instructions`: limit of warp instructions per kernel, like a display watchdog.
    pub instructions: u64,
    /// `launches`: number of launches that succeed; the next one fails, and every call after it.
    pub launches: u64,
    /// `graphs`: 0 for a driver without stream capture.
    pub graphs: bool,
}

impl Default for Settings {
    /// One H100 with 16 GiB, and a driver of CUDA 12.8.
    fn default() -> Self {
        Self {
            devices: 1,
            version: 12080,
            ptx: 87,
            capability: 90,
            memory: 16 << 30,
            instructions: 1 << 30,
            launches: u64::MAX,
            graphs: true,
        }
    }
}

/// The environment variable with the settings.
pub const VARIABLE: &str = "HGNN_TEST_DRIVER";

impl Settings {
    /// Parses settings; the error names the wrong one.
    ///
    /// # Errors
    /// When a name is unknown or a value is not a number.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for setting in text.split(',').filter(|setting| !setting.is_empty()) {
            let wrong = || format!("{VARIABLE}: `{setting}` is no setting");
            let (name, value) = setting.split_once('=').ok_or_else(wrong)?;
            let number: u64 = value.parse().map_err(|_| wrong())?;
            let small = i32::try_from(number).map_err(|_| wrong());
            match name {
                "devices" => settings.devices = small?,
                "version" => settings.version = small?,
                "ptx" => settings.ptx = small?.unsigned_abs(),
                "capability" => settings.capability = small?,
                "memory" => settings.memory = number,
                "instructions" => settings.instructions = number,
                "launches" => settings.launches = number,
                "graphs" => settings.graphs = number != 0,
                _ => return Err(wrong()),
            }
        }
        Ok(settings)
    }

    /// Settings of the environment variable [`VARIABLE`].
    ///
    /// # Errors
    /// The errors of [`Settings::parse`].
    pub fn of_environment() -> Result<Self, String> {
        Self::parse(&std::env::var(VARIABLE).unwrap_or_default())
    }

    /// Largest shared memory of a block, in bytes.
    pub fn most_shared(&self) -> usize {
        match self.capability {
            80 | 87 => 163 << 10,
            81..90 => 99 << 10,
            _ => 227 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_wrong_ones_are_named() {
        let read = Settings::parse("devices=2,memory=1000,graphs=0").expect("they are settings");
        assert_eq!(read, Settings { devices: 2, memory: 1000, graphs: false, ..Settings::default() });
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
        for wrong in ["device=2", "devices", "devices=two"] {
            assert_eq!(Settings::parse(wrong), Err(format!("{VARIABLE}: `{wrong}` is no setting")));
        }
    }
}
