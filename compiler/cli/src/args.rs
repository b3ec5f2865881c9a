//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, CommandFactory, Parser, Subcommand, ValueEnum};
use hgnnc_machine::CodeMode;

use hgnnc::Device;
use hgnnc_dist::network::Network;

use crate::data_args::DataArgs;
use crate::profile_args::ProfileCommand;
use crate::simulate_args::{SimulateArgs, parse_network};
use crate::sweep_args::{ConstArgs, SweepArgs, parse_time};
use crate::switches::DisableArgs;

/// Exit codes and environment variables, below the options of every command.
const AFTER_HELP: &str = "\
Exit codes:
  0    Done
  1    The input is wrong: a model, a dataset, a file; or `fmt --check` found a file that is not formatted
  2    Wrong usage
  3    The machine could not: memory, disk, a device
  101  A bug of hgnnc
  130  Interrupted by Ctrl-C or SIGTERM, after saving; a second one ends the program at once

Environment:
  HGNNC_CACHE           Folder for synthetic datasets that models name, and the description of this machine
                        [default: $XDG_CACHE_HOME/hgnnc, or $HOME/.cache/hgnnc]
  NO_COLOR              No colours on a terminal, where it is not empty
  TMPDIR                Folder for parameters that cannot be written where they should be [default: /tmp]
  HGNNC_MPI             Path of the MPI library, under a launcher such as `mpirun` [default: the first of the launcher]
  HGNNC_RANK_TIMEOUT    Seconds after which a rank that does not answer ends the job [default: 600]
  HGNNC_SIMGRID         The SimGrid library of `simulate` [default: the one that the system finds]
  CUDA_LAUNCH_BLOCKING  1: wait for each launch on a GPU, so that errors and times belong to it";

/// The command line, with what help says at its end.
pub fn command() -> clap::Command {
    Args::command().after_help(AFTER_HELP).mut_subcommands(|command| command.after_help(AFTER_HELP))
}

/// Headings of options in help.
pub(crate) mod heading {
    pub const DATA: &str = "Data";
    pub const RUNNING: &str = "Device and memory";
    pub const TRAINING: &str = "Training";
    pub const OUTPUT: &str = "Output";
    pub const CHECKPOINTS: &str = "Checkpoints";
    pub const FAST_MEMORY: &str = "Fast memory (of models trained on batches)";
    pub const COMPILER: &str = "Compiler";
}

/// Compiles heterogeneous graph neural networks written as `.hgnn` files, and trains them.
#[derive(Parser, Debug)]
#[command(name = "hgnnc", version)]
pub struct Args {
    /// The subcommand and its arguments.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of `hgnnc`.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Report what is wrong with a model, and nothing else
    Check(CheckArgs),
    /// Compile a model and show the levels of the compiler
    Build(BuildArgs),
    /// Train a model
    Train(Box<TrainArgs>),
    /// Train a model with all combinations of values of its constants, and compare them by a validation metric
    Sweep(Box<SweepArgs>),
    /// Measure a trained model
    Eval(EvalArgs),
    /// Write a trained model's outputs
    Infer(InferArgs),
    /// Train for a while and show what takes the time, beside what is predicted; or compare two profiles
    Profile(ProfileCommand),
    /// Sample an epoch of mini-batches and show what caches in front of their rows would save
    SimulateCache(SimulateCacheArgs),
    /// Train on many processes that are simulated, and show what a step would take on a network (see docs/cluster.md)
    Simulate(SimulateArgs),
    /// Simulate the network of a trace from the standard input; for `simulate`
    #[command(hide = true)]
    SimulateNetwork,
    /// Look at datasets and make synthetic ones
    Data(DataArgs),
    /// Look at the processes of a job, behind a launcher such as `mpirun` or `srun` (see docs/cluster.md)
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Write models in canonical form: comments stay, what the program means stays
    Fmt(FmtArgs),
    /// Explain a diagnostic's code, or list all codes
    Explain {
        /// The code, such as E0301; without it, all codes with their titles
        code: Option<String>,
    },
}

/// Commands for the processes of a job.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Say who takes part and on which MPI, and refuse processes that run different programs
    Check,
    /// Measure how long messages, exchanges and sums of all ranks take
    Measure {
        /// Write latency and bandwidth of a message to a file as well
        #[arg(long, value_name = "FILE.toml")]
        out: Option<PathBuf>,
    },
}

/// The model and the data it meets.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = heading::DATA)]
pub struct ModelArgs {
    /// The model, a `.hgnn` file; for `eval` and `infer` also an artifact (a `.hgnnx` file), which has its parameters
    #[arg(help_heading = "Arguments")]
    pub model: PathBuf,
    /// Folder of the dataset; without it, the model's own `dataset`
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Split of the dataset; without it, the model's own `split`
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    #[command(flatten)]
    pub set: ConstArgs,
    /// Build graphs of metapaths and precomputed rows again, and keep none of them in `.hgnnc-cache` beside the dataset
    #[arg(long)]
    pub no_graph_cache: bool,
    /// Most bytes of that cache; what was not used for longest goes first
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "2G", conflicts_with = "no_graph_cache")]
    pub graph_cache_limit: u64,
}

impl ModelArgs {
    /// Size limit of the graph cache in bytes; `None` disables it.
    pub fn graph_cache(&self) -> Option<u64> {
        (!self.no_graph_cache).then_some(self.graph_cache_limit)
    }
}

/// Device, threads and precision of a run.
#[derive(ClapArgs, Debug)]
#[command(next_help_heading = heading::RUNNING)]
pub struct DeviceArgs {
    /// Device to run on: auto (a GPU, if there is one and the model fits), cpu, cuda, or cuda:N for the N-th GPU
    #[arg(long, value_name = "DEVICE", default_value = "auto", value_parser = parse_device)]
    pub device: Device,
    /// Number of threads; without it, one per processor
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    pub threads: Option<u32>,
    /// Use no more than this much memory (such as 800M or 2G): training recomputes values to fit, or refuses to start
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_budget: Option<u64>,
    /// How kernels execute element-wise work
    #[arg(long, value_enum, default_value_t = Code::Auto)]
    pub code: Code,
    /// How exact dense products on a GPU are
    #[arg(long, value_enum, default_value_t = Precision::Tf32x3)]
    pub precision: Precision,
}

/// How exact dense products on a GPU are. Sums are always in f32, and so is all that is not a product
/// of many rows with a weight.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precision {
    /// Products of f32 without matrix units
    F32,
    /// On matrix units, three products of TF32 for each: about as exact as f32
    Tf32x3,
    /// On matrix units, factors rounded to the 11 bits of TF32
    Tf32,
    /// On matrix units, factors rounded to the 8 bits of BF16
    Bf16,
}

impl Precision {
    /// The corresponding precision of the PTX generator.
    pub fn of_products(self) -> hgnnc_ptx::Precision {
        match self {
            Precision::F32 => hgnnc_ptx::Precision::F32,
            Precision::Tf32x3 => hgnnc_ptx::Precision::Tf32x3,
            Precision::Tf32 => hgnnc_ptx::Precision::Tf32,
            Precision::Bf16 => hgnnc_ptx::Precision::Bf16,
        }
    }
}

/// How kernels execute element-wise work.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// By machine code made for the model where that is expected to be faster
    Auto,
    /// Operation by operation
    Interpreted,
    /// By machine code wherever it can be made
    Native,
}

impl Code {
    /// The corresponding mode of the engine.
    pub fn mode(self) -> CodeMode {
        match self {
            Code::Auto => CodeMode::Auto,
            Code::Interpreted => CodeMode::Interpreted,
            Code::Native => CodeMode::Native,
        }
    }
}

/// Arguments of the command `check`.
#[derive(ClapArgs, Debug)]
pub struct CheckArgs {
    /// The model, a `.hgnn` file, or a file without a model that others import from; with `--serve` also an artifact
    pub model: PathBuf,
    /// Also say of each output what a request to the trained model must bring, which vertices cannot be new, and what
    /// depends on the whole graph
    #[arg(long)]
    pub serve: bool,
    /// Also compare its schema with this dataset
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Split that training would use
    #[arg(long, value_name = "NAME", requires = "data")]
    pub split: Option<String>,
    #[command(flatten)]
    pub set: ConstArgs,
}

/// Arguments of the command `fmt`.
#[derive(ClapArgs, Debug)]
pub struct FmtArgs {
    /// `.hgnn` files, which are replaced where they change; `-` formats standard input to standard output. A file that
    /// does not parse is left as it is
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Change nothing: name the files that are not formatted, and exit with 1 where there is one
    #[arg(long)]
    pub check: bool,
}

/// A level of the compiler.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The source as it was read, in canonical form
    Ast,
    /// Vertex types, semantic graphs, parameters and outputs
    Model,
    /// The forward program
    Dataflow,
    /// Forward, backward and update, before the passes
    Joint,
    /// The training program after the passes
    Optimized,
    /// The evaluation program after the passes, and the one that scores links
    Infer,
    /// The operations of the training program (without a train block, of the evaluation program) that share a kernel, and
    /// the values that are stored
    Groups,
    /// The same program as kernels, as it is executed
    Kernels,
    /// Fused operations, stored values and local values of each kernel
    Fused,
    /// Work and predicted time of each operation and each kernel (needs --data or --stats)
    Bounds,
    /// The loops of each kernel on this processor, and the functions that they call
    Loops,
    /// The machine code of these functions as Cranelift IR (see --code), and with --data that of the sampler of batches
    Clif,
    /// The code of a graphics processor (with --target; without, for sm_80)
    Ptx,
    /// Memory placement and live range of each value (needs --data or --stats)
    Plan,
}

impl Level {
    /// Name of its file.
    pub fn file_name(self) -> &'static str {
        match self {
            Level::Ast => "ast.hgnn",
            Level::Model => "model.txt",
            Level::Dataflow => "dataflow.ir",
            Level::Joint => "joint.ir",
            Level::Optimized => "optimized.ir",
            Level::Infer => "infer.ir",
            Level::Groups => "groups.txt",
            Level::Kernels => "kernels.ir",
            Level::Fused => "fused.txt",
            Level::Bounds => "bounds.txt",
            Level::Loops => "loops.txt",
            Level::Clif => "native.clif",
            Level::Ptx => "model.ptx",
            Level::Plan => "plan.txt",
        }
    }
}

/// A target to compile for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The processor of this machine
    Cpu,
    /// NVIDIA A100
    #[value(name = "sm_80")]
    Sm80,
    /// NVIDIA H100
    #[value(name = "sm_90")]
    Sm90,
}

/// Arguments of the command `build`.
#[derive(ClapArgs, Debug)]
pub struct BuildArgs {
    /// The model, a `.hgnn` file
    pub model: PathBuf,
    /// Write the levels into this folder instead of showing them; or, with a name that ends in `.hgnnx`, the model with
    /// the parameters of `--weights` as one file, which `eval` and `infer` take instead of both
    #[arg(help_heading = heading::OUTPUT, short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Parameters of the artifact
    #[arg(help_heading = heading::DATA, long, value_name = "FILE.safetensors", requires = "out",
        conflicts_with_all = ["emit", "explain", "stats", "memory_budget"])]
    pub weights: Option<PathBuf>,
    /// Target to compile for
    #[arg(help_heading = heading::COMPILER, long, value_enum, default_value_t = Target::Cpu)]
    pub target: Target,
    /// Sizes come from this dataset: passes that compare sizes need them
    #[arg(help_heading = heading::DATA, long, value_name = "DIR", conflicts_with = "stats")]
    pub data: Option<PathBuf>,
    /// Sizes come from this JSON file: {"vertices": {"Paper": 3025}, "edges": {"PAP": 29436}}, perhaps with `stored`
    /// elements of sparse features, their `columns` with one, and `sources`, `destinations`, `max_out` and `max_in`
    /// degrees of semantic graphs
    #[arg(help_heading = heading::DATA, long, value_name = "FILE")]
    pub stats: Option<PathBuf>,
    #[command(flatten)]
    pub set: ConstArgs,
    /// How kernels execute element-wise work, for `--emit clif`
    #[arg(help_heading = heading::COMPILER, long, value_enum, default_value_t = Code::Auto)]
    pub code: Code,
    /// How exact dense products are, for `--emit ptx`
    #[arg(help_heading = heading::COMPILER, long, value_enum, default_value_t = Precision::Tf32x3)]
    pub precision: Precision,
    /// Recompute values until those of a training step take no more than this (such as 800M or 2G); needs sizes
    #[arg(help_heading = heading::COMPILER, long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_budget: Option<u64>,
    /// A level to show; may be given several times
    #[arg(help_heading = heading::OUTPUT, long, value_enum, value_name = "LEVEL")]
    pub emit: Vec<Level>,
    /// Plan training by this many processes: how they divide the work, and what they send each other (`--emit plan`, which
    /// `-o PLAN.json` writes for `train --plan`), and their kernels
    #[arg(help_heading = heading::COMPILER, long, value_name = "N", value_parser = parse_within::<1, 4096>,
        requires = "data", conflicts_with_all = ["weights", "memory_budget", "output"])]
    pub ranks: Option<u64>,
    /// The network between processes: bits a second, perhaps with the latency (10G or 100G,2us), or a file that
    /// `hgnnc cluster measure --out` has written
    #[arg(help_heading = heading::COMPILER, long, value_name = "NETWORK", requires = "ranks", default_value = "10G",
        value_parser = parse_network)]
    pub network: Network,
    /// Mini-batches that are sampled to count what processes send each other
    #[arg(help_heading = heading::COMPILER, long, value_name = "N", requires = "ranks", default_value = "8",
        value_parser = parse_within::<1, 1_000_000>)]
    pub batches: u64,
    /// As of `train`: parts of the dataset of which a process has those of its own vertices only
    #[arg(help_heading = heading::COMPILER, long, value_name = "PARTS", value_enum, value_delimiter = ',',
        requires = "ranks")]
    pub distribute: Vec<DatasetPart>,
    /// Say what each pass did and refused, with the numbers that it compared
    #[arg(help_heading = heading::OUTPUT, long)]
    pub explain: bool,
    /// Compile what `infer --output NAME` runs, without training
    #[arg(help_heading = heading::COMPILER, long, value_name = "NAME")]
    pub output: Option<String>,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
}

/// Arguments of the command `train`.
#[derive(ClapArgs, Debug)]
pub struct TrainArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Seed of parameters and dropout; without it, the model's own
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_parser = parse_whole, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Number of epochs; without it, the model's own
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_parser = parse_whole, allow_negative_numbers = true)]
    pub epochs: Option<u64>,
    /// Train this many times, with the seed and those that follow it: metrics are means with standard deviations, and the
    /// parameters of the run that is best on the validation part are kept
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_parser = parse_within::<1, 10_000>,
        allow_negative_numbers = true, conflicts_with_all = ["checkpoint", "init"])]
    pub seeds: Option<u64>,
    /// Stop after the epoch in which training has taken this long (such as 90s, 10m or 1.5h), as Ctrl-C does
    #[arg(help_heading = heading::TRAINING, long, value_name = "TIME", value_parser = parse_time)]
    pub max_time: Option<Duration>,
    /// Train two epochs to see that everything works: preparation, training, evaluation, and what is to be written
    #[arg(help_heading = heading::TRAINING, long, conflicts_with = "epochs")]
    pub fast_dev_run: bool,
    /// Write a JSON object per epoch to this file as training goes on; a resumed run appends to it
    #[arg(help_heading = heading::OUTPUT, long, value_name = "FILE.jsonl")]
    pub log: Option<PathBuf>,
    /// Write event files for TensorBoard into this folder
    #[arg(help_heading = heading::OUTPUT, long, value_name = "DIR")]
    pub tensorboard: Option<PathBuf>,
    /// Keep the parameters of the best epoch (weights.safetensors), the model with them (model.hgnnx), the report
    /// (report.json) and the log (log.txt) in this folder, which must be empty or not there. All of it appears at once
    /// when the run ends. With a name that ends in `.hgnnx`, only the model with its parameters, in this file
    #[arg(help_heading = heading::OUTPUT, short, long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Write a report as JSON
    #[arg(help_heading = heading::OUTPUT, long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,
    /// Keep checkpoints in this folder, which holds none of another run unless `--resume` continues it
    #[arg(help_heading = heading::CHECKPOINTS, long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Seconds between two checkpoints (one is also written at the end, and when a run is interrupted)
    #[arg(help_heading = heading::CHECKPOINTS, long, value_name = "SECONDS", requires = "checkpoint", default_value_t = 60,
        value_parser = parse_whole, allow_negative_numbers = true)]
    pub checkpoint_every: u64,
    /// Continue from the checkpoint, with the same program, train block and data
    #[arg(help_heading = heading::CHECKPOINTS, long, requires = "checkpoint")]
    pub resume: bool,
    /// With `--resume`: continue although the program, the train block or the data are others
    /// than those of the checkpoint
    #[arg(long, requires = "resume")]
    pub allow_changed: bool,
    /// Start from these parameters instead of random ones
    #[arg(help_heading = heading::TRAINING, long, value_name = "FILE.safetensors", conflicts_with = "resume")]
    pub init: Option<PathBuf>,
    /// Take sums over the vertices of a type in this many sections, in their order: a run gives the same numbers on any
    /// number of processes up to this, one among them. Without it: as one process does best, or 24 (more for more
    /// processes) where a launcher such as `mpirun` starts several
    #[arg(help_heading = heading::TRAINING, long, value_name = "N", value_parser = parse_within::<1, 65_536>,
        allow_negative_numbers = true)]
    pub sections: Option<u64>,
    /// Divide mini-batches among processes by these: each has its own seeds, or all seeds and some of the relations to them
    #[arg(help_heading = heading::TRAINING, long, value_name = "WHAT", value_enum, default_value_t)]
    pub share: Share,
    /// With `--share relations`: groups of processes with seeds of their own, each of which shares the relations to these
    #[arg(help_heading = heading::TRAINING, long, value_name = "R", value_parser = parse_within::<1, 65_536>,
        default_value_t = 1, allow_negative_numbers = true)]
    pub replicas: u64,
    /// Mini-batches of several processes: each has these parts of the dataset (`edges,features`) for its own vertices only, and
    /// sends others what their mini-batches need of them. Results are the same
    #[arg(help_heading = heading::TRAINING, long, value_name = "PARTS", value_enum, value_delimiter = ',')]
    pub distribute: Vec<DatasetPart>,
    /// Divide the work as this file of `build --ranks N -o PLAN.json` says. Without a launcher, one process runs all of them
    #[arg(help_heading = heading::TRAINING, long, value_name = "PLAN.json",
        conflicts_with_all = ["sections", "share", "replicas", "distribute"])]
    pub plan: Option<PathBuf>,
    /// Write the parameters of the best epoch
    #[arg(help_heading = heading::OUTPUT, long, value_name = "FILE.safetensors")]
    pub weights_out: Option<PathBuf>,
    /// Mini-batch training: keep a feature cache of this size (such as 64M, or 0) in front of the vertex rows, as the
    /// memory of a device would be. `hgnnc simulate-cache` shows what it would save
    #[arg(help_heading = heading::FAST_MEMORY, long, value_name = "SIZE", value_parser = parse_cache)]
    pub cache: Option<u64>,
    /// Rows that the cache keeps
    #[arg(help_heading = heading::FAST_MEMORY, long, value_enum, requires = "cache", default_value_t = CachePolicy::Penalty)]
    pub cache_policy: CachePolicy,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
    /// Show errors only
    #[arg(help_heading = heading::OUTPUT, long)]
    pub quiet: bool,
}

/// Arguments of the command `simulate-cache`.
#[derive(ClapArgs, Debug)]
pub struct SimulateCacheArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Sizes of caches, in bytes (64M) or as a part of all rows (10%)
    #[arg(help_heading = heading::FAST_MEMORY, long, value_name = "SIZES", value_delimiter = ',',
        default_value = "1%,5%,10%,25%", value_parser = parse_cache_size)]
    pub sizes: Vec<CacheSize>,
    /// Seed of the sampler; without it, the model's own
    #[arg(help_heading = heading::FAST_MEMORY, long, value_name = "N", value_parser = parse_whole, allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Write all figures as JSON
    #[arg(help_heading = heading::OUTPUT, long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
}

/// The size of a cache.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum CacheSize {
    Bytes(u64),
    /// Part of the bytes of all cacheable rows, from 0 to 100.
    Percent(f64),
}

/// Policy of the feature cache.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum CachePolicy {
    /// Rows by expected time saved per byte
    Penalty,
    /// A share for each vertex type, by accesses and miss time; within it the rows that are accessed most
    Shares,
    /// The rows that are accessed most
    Hotness,
    /// Rows of the vertices with the highest out-degree
    Degree,
    /// Uniformly random rows
    Random,
}

impl CachePolicy {
    /// The corresponding policy of the runtime.
    pub fn of_cache(self) -> hgnnc_loader::CachePolicy {
        match self {
            CachePolicy::Penalty => hgnnc_loader::CachePolicy::Penalty,
            CachePolicy::Shares => hgnnc_loader::CachePolicy::Shares,
            CachePolicy::Hotness => hgnnc_loader::CachePolicy::Hotness,
            CachePolicy::Degree => hgnnc_loader::CachePolicy::Degree,
            CachePolicy::Random => hgnnc_loader::CachePolicy::Random,
        }
    }
}

/// Arguments of the command `eval`.
#[derive(ClapArgs, Debug)]
pub struct EvalArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Parameters, as `train --weights-out` writes them; an artifact (a `.hgnnx` file as the model) has its own
    #[arg(help_heading = heading::DATA, long, value_name = "FILE.safetensors")]
    pub weights: Option<PathBuf>,
    /// Write a report as JSON
    #[arg(help_heading = heading::OUTPUT, long, value_name = "FILE.json")]
    pub report: Option<PathBuf>,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
}

/// Arguments of the command `infer`.
#[derive(ClapArgs, Debug)]
pub struct InferArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Parameters, as `train --weights-out` writes them; an artifact (a `.hgnnx` file as the model) has its own
    #[arg(help_heading = heading::DATA, long, value_name = "FILE.safetensors")]
    pub weights: Option<PathBuf>,
    /// New vertices and edges beside the graph, a dataset of the same schema: the outputs are those of its vertices. Its
    /// ids say which vertices the graph has already; without ids in the graph, they are positions in it
    #[arg(help_heading = heading::DATA, long, value_name = "DIR", conflicts_with = "links")]
    pub new: Option<PathBuf>,
    /// Name of the output, for a model with several. One of `edges` is computed only if it is named
    #[arg(help_heading = heading::OUTPUT, long, value_name = "NAME")]
    pub output: Option<String>,
    /// Pairs to score, of a model that predicts links: integers [3, pairs] (source, position of the relation in the
    /// dataset, destination)
    #[arg(help_heading = heading::DATA, long, value_name = "FILE.npy")]
    pub links: Option<PathBuf>,
    /// Output file. `.npy`: one row per vertex, or one score per pair, f32. `.csv`: the id and the predicted class of each
    /// vertex, or its numbers where the output predicts no classes; `.parquet`: the same, of a build with it. Of an output of
    /// `graphs` or `edges`: tables name the semantic graph, and the ids of both ends; `.npy` has a row for each, and
    /// FILE.edges.npy [3, edges] (source, position of the semantic graph, destination)
    #[arg(help_heading = heading::OUTPUT, long, value_name = "FILE")]
    pub out: PathBuf,
    /// Write probabilities of classes: in `.npy` instead of logits, in tables a column for each class
    #[arg(help_heading = heading::OUTPUT, long, conflicts_with = "links")]
    pub probabilities: bool,
    /// Passes, fusions and kernel features that are disabled.
    #[command(flatten)]
    pub disable: DisableArgs,
}

/// Parses a device: `auto`, `cpu`, `cuda`, `cuda:1` or `ptx-interp`.
fn parse_device(text: &str) -> Result<Device, String> {
    match text {
        "auto" => Ok(Device::Auto),
        "cpu" => Ok(Device::Cpu),
        "cuda" => Ok(Device::Cuda(0)),
        "ptx-interp" => Ok(Device::PtxInterp),
        _ => match text.strip_prefix("cuda:") {
            Some(number) => {
                number.parse().map(Device::Cuda).map_err(|_| format!("`{number}` is not the number of a GPU"))
            }
            None => Err("a device is auto, cpu, cuda or cuda:N".into()),
        },
    }
}

/// Parses a whole number, such as `200`.
pub fn parse_whole(text: &str) -> Result<u64, String> {
    parse_within::<0, { u64::MAX }>(text)
}

/// A number between `LEAST` and `MOST`.
pub fn parse_within<const LEAST: u64, const MOST: u64>(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
    number.ok_or_else(|| format!("not a whole number between {LEAST} and {MOST}"))
}

/// Parses a floating-point number, such as `0.01`.
pub fn parse_number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "not a number".into())
}

/// Parses a number of threads, such as `8`.
fn parse_threads(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=4096).contains(number))
        .ok_or_else(|| "not a number between 1 and 4096".into())
}

/// Parses a size in bytes, such as `800M`, `2G`, `1.5GiB` or `1000000`.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_lowercase();
    let factor = match &unit[..] {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tb" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("`{unit}` is not a unit: use K, M, G or T")),
    };
    match digits.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok((number * factor) as u64),
        _ => Err(format!("`{text}` is not a size: write 800M or 2G")),
    }
}

/// A size, or a number of percent.
fn parse_cache_size(text: &str) -> Result<CacheSize, String> {
    let Some(percent) = text.strip_suffix('%') else { return parse_cache(text).map(CacheSize::Bytes) };
    match percent.trim().parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(CacheSize::Percent(percent)),
        _ => Err(format!("`{text}` is not a part of all rows: write 10%")),
    }
}

/// As [`parse_size`], and also 0.
fn parse_cache(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn devices_by_name() {
        for (text, device) in [
            ("auto", Device::Auto),
            ("cpu", Device::Cpu),
            ("cuda", Device::Cuda(0)),
            ("cuda:0", Device::Cuda(0)),
            ("cuda:12", Device::Cuda(12)),
            ("ptx-interp", Device::PtxInterp),
        ] {
            assert_eq!(parse_device(text), Ok(device), "{text}");
        }
        for text in ["", "gpu", "CPU", "cuda:", "cuda:x", "cuda:-1", "cuda:0.5", "cuda:99999999999", "cuda0"] {
            assert!(parse_device(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_with_units() {
        for (text, bytes) in [
            ("1000000", 1_000_000),
            ("4096B", 4096),
            ("10k", 10 << 10),
            ("800M", 800 << 20),
            ("1.5GiB", 3 << 29),
            ("2tb", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1G", "0", "1X", "1 G", "nan", "inf", "1GG", "1ibib"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}

/// Parts of the dataset that processes divide among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DatasetPart {
    /// Edges with their weights, features and times: the owner of a vertex draws its in-edges.
    Edges,
    /// Features: the owner of a vertex sends its row.
    Features,
}

impl DatasetPart {
    /// The parts that were asked for, each once.
    pub fn all(parts: &[Self]) -> hgnnc::Distributed {
        hgnnc::Distributed { edges: parts.contains(&Self::Edges), features: parts.contains(&Self::Features) }
    }
}

/// The part of a mini-batch that processes divide among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Share {
    /// Each process samples around seeds of its own.
    #[default]
    Seeds,
    /// Each process has all seeds, and aggregates some of the relations to them.
    Relations,
}

impl From<Share> for hgnnc::Split {
    fn from(share: Share) -> Self {
        match share {
            Share::Seeds => Self::Seeds,
            Share::Relations => Self::Relations,
        }
    }
}
