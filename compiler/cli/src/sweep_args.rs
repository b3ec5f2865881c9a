//! Values of constants on the command line, and the arguments of `sweep`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use hgnnc_driver::Setting;

use crate::args::{DeviceArgs, ModelArgs, heading, parse_within};
use crate::switches::DisableArgs;

/// Constants of a model with other values.
#[derive(ClapArgs, Clone, Debug, Default)]
pub struct ConstArgs {
    /// Give a `const` of the model another value, such as hidden=16; may be given several times
    #[arg(help_heading = heading::DATA, long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    pub constants: Vec<Setting>,
}

/// Arguments of the command `sweep`.
#[derive(ClapArgs, Debug)]
#[command(mut_arg("constants", |arg| arg.value_name("NAME=VALUE,VALUE…").help(GRID).required(true)))]
pub struct SweepArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Seed of parameters and dropout; without it, the model's own
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_parser = parse_within::<0, { u64::MAX }>,
        allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Train each point with this many seeds, and compare means
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_parser = parse_within::<1, 10_000>,
        default_value_t = 1, allow_negative_numbers = true)]
    pub seeds: u64,
    /// Number of epochs; without it, the model's own
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_parser = parse_within::<0, { u64::MAX }>,
        allow_negative_numbers = true)]
    pub epochs: Option<u64>,
    /// Folder of the sweep: a folder for each point with its parameters (weights.safetensors) and report (report.json), and
    /// a table of all points (sweep.json). Points that are there already are not trained again
    #[arg(help_heading = heading::OUTPUT, short, long, value_name = "DIR")]
    pub out: PathBuf,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
    /// Show the table and errors only
    #[arg(help_heading = heading::OUTPUT, long)]
    pub quiet: bool,
}

const GRID: &str =
    "Values of a `const` of the model, such as hidden=16,32; given several times, all combinations are trained";

/// Parses `NAME=VALUE`. The compiler checks both.
fn parse_setting(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write the name of a constant and its value: hidden=16".into()),
    }
}

/// Parses a time such as `90s`, `10m`, `1.5h` or `2d`.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time: write 90s, 10m, 1.5h or 2d");
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_units() {
        for (text, seconds) in [("90s", 90.0), ("10m", 600.0), ("10min", 600.0), ("1.5h", 5400.0), ("2d", 172_800.0)] {
            assert_eq!(parse_time(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "10", "m", "0s", "-1m", "nans", "infs", "1e300d", "10 m", "10M"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_have_a_name_and_a_value() {
        let setting = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_setting("hidden=16"), setting("hidden", "16"));
        assert_eq!(parse_setting("wide = 2 * hidden"), setting("wide", "2 * hidden"));
        for text in ["", "hidden", "=16", "hidden="] {
            assert!(parse_setting(text).is_err(), "{text}");
        }
    }
}
