//! Built-in machines, and the text format of a machine.

use std::fmt;

use crate::{FORMAT, Machine};

/// The built-in machines: a target or GPU name, and its sheet.
pub const SHEETS: &[(&str, &str)] = &[
    ("sm_80", include_str!("../sheets/sm_80.toml")),
    ("sm_90", include_str!("../sheets/sm_90.toml")),
    ("h200", include_str!("../sheets/h200.toml")),
    (CPU, include_str!("../sheets/cpu.toml")),
    (NOMINAL, include_str!("../sheets/nominal.toml")),
];

const CPU: &str = "cpu";
const NOMINAL: &str = "nominal";

/// An error in the text of a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSheet(String);

impl fmt::Display for BadSheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not the description of a machine: {}", self.0)
    }
}

impl std::error::Error for BadSheet {}

/// Plausible rates in operations or bytes per second: from a hundredth of a 1980 processor to a thousand times a
/// current device. Predictions outside this range could not be drawn.
const RATES: std::ops::RangeInclusive<f64> = 1e4..=1e18;
/// Plausible capacities of a memory level, in bytes.
const BYTES: std::ops::RangeInclusive<f64> = 1.0..=1e16;
/// Plausible times of a launch, a barrier or a cycle, in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.0..=1.0;

impl Machine {
    /// The built-in machine with this target or name in [`SHEETS`].
    pub fn sheet(name: &str) -> Option<Machine> {
        let (_, text) = SHEETS.iter().find(|(known, _)| *known == name)?;
        Some(Machine::from_toml(text).expect("the sheets that come with the compiler are tested"))
    }

    /// Stands for every CPU where a choice must not depend on the machine that compiles: such choices use only ratios
    /// of predicted times.
    pub fn cpu() -> Machine {
        Self::sheet(CPU).expect("it comes with the compiler")
    }

    /// A CPU without caches, on which programs are ranked by their memory traffic.
    pub fn nominal() -> Machine {
        Self::sheet(NOMINAL).expect("it comes with the compiler")
    }

    /// Parses the text format.
    ///
    /// # Errors
    /// If the text is malformed, has another version, or holds implausible numbers.
    pub fn from_toml(text: &str) -> Result<Machine, BadSheet> {
        let machine: Machine = toml::from_str(text).map_err(|error| BadSheet(error.message().to_string()))?;
        machine.check()?;
        Ok(machine)
    }

    /// Prints the text format.
    ///
    /// # Errors
    /// If the machine has implausible numbers.
    pub fn to_toml(&self) -> Result<String, BadSheet> {
        self.check()?;
        toml::to_string(self).map_err(|error| BadSheet(error.to_string()))
    }

    fn check(&self) -> Result<(), BadSheet> {
        let wrong = |what: String| Err(BadSheet(what));
        if self.format != FORMAT {
            return wrong(format!("format {} instead of {FORMAT}", self.format));
        }
        let mut rates = vec![
            ("fma_flops", self.fma_flops),
            ("fma_flops_one_core", self.fma_flops_one_core),
            ("special_per_s", self.special_per_s),
        ];
        rates.extend(self.tensor.iter().flat_map(|t| [("tf32_flops", t.tf32_flops), ("bf16_flops", t.bf16_flops)]));
        if let Some(sorting) = &self.sorting {
            rates.push(("comparisons_per_s", sorting.comparisons_per_s));
            rates.push(("steps_per_s", sorting.steps_per_s));
        }
        for level in &self.levels {
            rates.push(("stream_bytes_per_s", level.stream_bytes_per_s));
            rates.push(("gather_bytes_per_s", level.gather_bytes_per_s));
        }
        if let Some((name, rate)) = rates.iter().find(|(_, rate)| !RATES.contains(rate)) {
            return wrong(format!("`{name}` is {rate}"));
        }
        for (name, seconds) in [("launch_s", self.launch_s), ("barrier_s", self.barrier_s), ("cycle_s", self.cycle_s)] {
            if !SECONDS.contains(&seconds) {
                return wrong(format!("`{name}` is {seconds}"));
            }
        }
        if !self.levels.iter().all(|level| BYTES.contains(&level.bytes)) {
            return wrong("a memory level that no machine has".to_string());
        }
        if self.cores == 0 || self.line_bytes == 0 {
            return wrong("without cores or without lines".to_string());
        }
        if self.levels.is_empty() || !self.levels.is_sorted_by(|a, b| a.bytes <= b.bytes) {
            return wrong("its memory levels do not ascend".to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sheet_is_a_machine_and_reads_back() {
        for (name, text) in SHEETS {
            let machine = Machine::from_toml(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(Machine::from_toml(&machine.to_toml().expect("text")), Ok(machine));
        }
        assert_eq!(Machine::sheet("sm_90").map(|m| m.name), Some("H100 SXM".to_string()));
        assert_eq!(Machine::sheet("sm_70"), None);
    }

    #[test]
    fn what_describes_no_machine() {
        let (_, good) = SHEETS[0];
        for (from, to, why) in [
            ("format = 3", "format = 1", "format 1 instead of 3"),
            ("fma_flops = 19.5e12", "fma_flops = nan", "`fma_flops` is NaN"),
            ("fma_flops = 19.5e12", "fma_flops = 0.0", "`fma_flops` is 0"),
            ("fma_flops = 19.5e12", "fma_flops = inf", "`fma_flops` is inf"),
            ("fma_flops = 19.5e12", "fma_flops = 1e300", "`fma_flops` is 1000"),
            ("fma_flops = 19.5e12", "fma_flops = 1e-300", "`fma_flops` is 0.000"),
            ("bytes = 80e9", "bytes = 1e300", "a memory level that no machine has"),
            ("launch_s = 2.5e-6", "launch_s = -1.0", "`launch_s` is -1"),
            ("launch_s = 2.5e-6", "launch_s = 1e300", "`launch_s` is 1000"),
            ("cores = 108", "cores = 0", "without cores"),
            ("bytes = 80e9", "bytes = 1.0", "do not ascend"),
            ("line_bytes = 32", "lines = 32", "unknown field"),
        ] {
            assert!(good.contains(from), "{from}");
            let error = Machine::from_toml(&good.replacen(from, to, 1)).expect_err(to);
            assert!(error.to_string().contains(why), "{to}: {error}");
        }
        assert!(Machine::from_toml("\u{0}").is_err());
    }
}
