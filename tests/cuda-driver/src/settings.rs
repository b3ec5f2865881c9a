//! What the driver and its devices are like.

/// What the driver and its devices are like: `name=value`, with commas between them.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// `devices`: how many there are.
    pub devices: i32,
    /// `version`: of the driver's interface, 1000 times the major plus 10 times the minor number.
    pub version: i32,
    /// `ptx`: the newest version of PTX that the driver's compiler knows, as 87 for 8.7.
    pub ptx: u32,
    /// `capability`: compute capability of the devices, as 90 for 9.0.
    pub capability: i32,
    /// `memory`: bytes of each device.
    pub memory: u64,
    /// `instructions`: a kernel that executes more instructions of warps is ended, as by the watchdog of a display.
    pub instructions: u64,
    /// `launches`: how many a device executes; the next one fails, and everything after it.
    pub launches: u64,
    /// `graphs`: 0 for a driver that cannot capture.
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

/// The variable of the environment that holds them.
pub const VARIABLE: &str = "HGNN_TEST_DRIVER";

impl Settings {
    /// Reads settings; the error names the one that is wrong.
    ///
    /// # Errors
    /// A name that is none, or a value that is no number.
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

    /// Those of the environment.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn of_environment() -> Result<Self, String> {
        Self::parse(&std::env::var(VARIABLE).unwrap_or_default())
    }

    /// Bytes of shared memory that a block can have.
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
