//! The command line of `profile`.

use std::path::PathBuf;

use clap::{ArgMatches, Args as ClapArgs, FromArgMatches};

use crate::args::{DatasetPart, DeviceArgs, ModelArgs, Share, parse_within};
use crate::switches::DisableArgs;

/// Arguments of `profile` with a model.
#[derive(ClapArgs, Debug)]
#[command(mut_arg("device", |arg| arg.help(PROFILE_DEVICE)))]
pub struct ProfileArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Number of epochs to measure, after three that are not (of ptx-interp always one); without it 10, or 1 of a model
    /// that is trained on batches
    #[arg(long, value_name = "N", value_parser = parse_within::<1, 100_000>, allow_negative_numbers = true)]
    pub epochs: Option<u64>,
    /// Measure at most this many mini-batches, of a model that is trained on them
    #[arg(long, value_name = "N", value_parser = parse_within::<1, 100_000_000>, allow_negative_numbers = true)]
    pub batches: Option<u64>,
    /// Also measure what each kernel takes with all that it touches in the caches of its core, to see how long it waits
    /// for memory beyond; of one thread (`--threads 1`) and the whole graph
    #[arg(long)]
    pub in_cache: bool,
    /// Of several processes: divide mini-batches among them by these, as `train` does [default: seeds]
    #[arg(long, value_name = "WHAT", value_enum)]
    pub share: Option<Share>,
    /// Of several processes: parts of the dataset that are divided among them (`edges,features`), as `train` does
    #[arg(long, value_name = "PARTS", value_enum, value_delimiter = ',')]
    pub distribute: Vec<DatasetPart>,
    /// Also write `profile.html`, `profile.txt`, `profile.json` and `trace.json` (for Perfetto) into this folder
    #[arg(short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
}

const PROFILE_DEVICE: &str = "Device to run on: auto (a GPU, if there is one and the model fits), cpu, cuda, cuda:N for \
    the N-th GPU, or ptx-interp, which executes one training step of the code for a GPU on the processor and counts \
    instructions and accesses to memory (of a build with `--features ptx-interp`)";

/// `profile` with a model, or `profile diff` with two profiles.
#[derive(Debug)]
pub enum ProfileCommand {
    Run(Box<ProfileArgs>),
    Diff(DiffArgs),
}

/// Arguments of `profile diff`.
#[derive(ClapArgs, Debug)]
pub struct DiffArgs {
    /// A profile: the folder that `profile -o` has written, or its `profile.json`
    pub before: PathBuf,
    /// The profile to compare with it
    pub after: PathBuf,
}

impl FromArgMatches for ProfileCommand {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand() {
            Some((_, diff)) => DiffArgs::from_arg_matches(diff).map(Self::Diff),
            None => ProfileArgs::from_arg_matches(matches).map(|args| Self::Run(Box::new(args))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl ClapArgs for ProfileCommand {
    fn augment_args(command: clap::Command) -> clap::Command {
        // The last description of a command wins.
        let diff = DiffArgs::augment_args(clap::Command::new("diff")).about(
            "Compare two profiles: stages and kernels, what got faster and what slower (a model of that name is `./diff`)",
        );
        ProfileArgs::augment_args(command)
            .subcommand(diff)
            .disable_help_subcommand(true)
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}
