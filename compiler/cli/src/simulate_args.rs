//! Arguments of `hgnnc simulate`.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use hgnnc_dist::network::Network;

use crate::args::{DatasetPart, DeviceArgs, ModelArgs, Share, heading, parse_within};
use crate::switches::DisableArgs;

/// Arguments of the command `simulate`.
#[derive(ClapArgs, Debug)]
pub struct SimulateArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    /// Numbers of processes, of which each is simulated (1,4,16,64); speed-ups are against the first one
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_delimiter = ',', required = true,
        value_parser = parse_within::<1, 4096>)]
    pub ranks: Vec<u64>,
    /// The network: bits a second of a process, perhaps with the latency (10G or 100G,2us), or a file that
    /// `hgnnc cluster measure --out` has written
    #[arg(help_heading = heading::TRAINING, long, value_name = "NETWORK", value_parser = parse_network)]
    pub network: Network,
    /// Divide mini-batches among processes by these
    #[arg(help_heading = heading::TRAINING, long, value_name = "WHAT", value_enum, default_value_t)]
    pub share: Share,
    /// As of `train`: parts of the dataset of which a process has those of its own vertices only (`edges,features`)
    #[arg(help_heading = heading::TRAINING, long, value_name = "PARTS", value_enum, value_delimiter = ',')]
    pub distribute: Vec<DatasetPart>,
    /// Each process has as many seeds as `batch` says, instead of a part of them (weak scaling)
    #[arg(help_heading = heading::TRAINING, long)]
    pub weak: bool,
    /// Steps of training that are counted, after three that are not
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", default_value = "3",
        value_parser = parse_within::<1, 1_000_000>)]
    pub steps: u64,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Write all figures as JSON
    #[arg(help_heading = heading::OUTPUT, long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
}

/// A network by its bandwidth, or by a file.
pub fn parse_network(text: &str) -> Result<Network, String> {
    Network::read(text).map_err(|error| error.to_string())
}
