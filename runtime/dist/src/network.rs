//! Networks between ranks, by two numbers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A network between ranks: the time of a message is its latency and its bytes by the bandwidth.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Network {
    /// Seconds that a message takes however short it is (α).
    pub latency_s: f64,
    /// Bytes a second of a long message (β).
    pub bytes_per_s: f64,
}

/// The reason why a text or a file describes no network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// Neither a bandwidth nor a file.
    #[error(
        "`{0}` is no network: give its bandwidth in bits a second, as in `10G`, perhaps with its latency, as in \
         `100G,2us`, or a file of `hgnnc cluster measure --out`"
    )]
    Text(String),
    /// A file that cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    Read { path: PathBuf, error: std::io::Error },
    /// A file with something else.
    #[error("`{}` describes no network: {error}", path.display())]
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    File { path: PathBuf, error: String },
}

impl Network {
    /// Seconds of a message through kernel and card, where none is given: measured over TCP on one machine.
    pub const LATENCY_S: f64 = 8e-6;

    /// Seconds that the ports of sender and receiver are occupied by a message.
    pub fn seconds(&self, bytes: u64) -> f64 {
        self.latency_s + bytes as f64 / self.bytes_per_s
    }

    /// A bandwidth (`10G`, in bits a second), perhaps with a latency (`100G,2us`), or else the file of a measurement.
    ///
    /// # Errors
    /// When it is neither.
    pub fn read(text: &str) -> Result<Self, NetworkError> {
        if let Some(network) = Self::parse(text) {
            return Ok(network);
        }
        let path = PathBuf::from(text);
        if !path.exists() {
            return Err(NetworkError::Text(text.into()));
        }
        let found = std::fs::read_to_string(&path).map_err(|error| NetworkError::Read { path: path.clone(), error })?;
        let of_file = |error: String| NetworkError::File { path: path.clone(), error };
        let network: Network = toml::from_str(&found).map_err(|error| of_file(error.message().into()))?;
        let valid = |number: f64| number.is_finite() && number > 0.0;
        match valid(network.bytes_per_s) && network.latency_s.is_finite() && network.latency_s >= 0.0 {
            true => Ok(network),
            false => Err(of_file("`bytes_per_s` is to be above 0, and `latency_s` at least 0".into())),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (bandwidth, latency) = text.split_once(',').map_or((text, None), |(first, rest)| (first, Some(rest)));
        let bits = number(bandwidth, &[("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)]).filter(|&bits| bits > 0.0)?;
        let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
        let latency_s = latency.map_or(Some(Self::LATENCY_S), |latency| number(latency, &units))?;
        Some(Self { latency_s, bytes_per_s: bits / 8.0 })
    }
}

/// A number with one of these units.
fn number(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (digits, scale) = units.iter().find_map(|&(unit, scale)| Some((text.trim().strip_suffix(unit)?, scale)))?;
    let value: f64 = digits.trim().parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value * scale)
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { latency_s, bytes_per_s } = self;
        write!(f, "{:.4} Gbit/s, latency {:.4} us", 8e-9 * bytes_per_s, 1e6 * latency_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_a_bandwidth_and_perhaps_a_latency() {
        let network = |text: &str| Network::read(text).map(|of| (of.bytes_per_s, of.latency_s));
        assert_eq!(network("10G").unwrap(), (1.25e9, 8e-6));
        assert_eq!(network("100G, 2us").unwrap(), (1.25e10, 2e-6));
        assert_eq!(network("800 M,1ms").unwrap(), (1e8, 1e-3));
        for wrong in ["", "10", "0G", "-1G", "10G,2", "nanG", "10G,-1us"] {
            assert!(network(wrong).unwrap_err().to_string().contains("is no network"), "{wrong}");
        }
    }

    #[test]
    fn a_file_has_what_was_measured() {
        let path = std::env::temp_dir().join(format!("hgnnc-network-{}.toml", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let network = Network::read(path.to_str().unwrap());
            std::fs::remove_file(&path).unwrap();
            network
        };
        let measured = "# Measured.\nengine = \"x\"\nranks = 2\nlatency_s = 5e-7\nbytes_per_s = 1.2e10\n";
        assert_eq!(read(measured).unwrap(), Network { latency_s: 5e-7, bytes_per_s: 1.2e10 });
        assert!(read("latency_s = 1.0").unwrap_err().to_string().contains("bytes_per_s"));
        assert!(read("latency_s = 1.0\nbytes_per_s = 0.0").unwrap_err().to_string().contains("above 0"));
    }
}
