//! The options that disable passes, fusions and kernel features, and the checks of their values.

use std::fmt::Write;

use clap::Args as ClapArgs;
use hgnnc_driver::{Diagnostic, Disabled, FusionRule, PassManager, SourceMap, VALUE_PREFIX, closest, codes};
use hgnnc_machine::{KernelFeature, KernelFeatures};

use crate::args::heading;
use crate::failure::Failure;
use crate::source;

/// The options, for all commands that compile a model.
#[derive(ClapArgs, Clone, Debug, Default)]
pub struct DisableArgs {
    /// Disable a pass; may be given several times (`--help` lists the names)
    #[arg(help_heading = heading::COMPILER, long, value_name = "NAME", long_help = long_help(Switch::Pass))]
    pub disable_pass: Vec<String>,
    /// Disable a fusion; may be given several times (`--help` lists the names)
    #[arg(help_heading = heading::COMPILER, long, value_name = "NAME", long_help = long_help(Switch::Fusion))]
    pub disable_fusion: Vec<String>,
    /// Disable a kernel feature of the CPU; may be given several times (`--help` lists the names)
    #[arg(help_heading = heading::COMPILER, long, value_name = "NAME", long_help = long_help(Switch::Kernel))]
    pub disable_kernel: Vec<String>,
}

/// The checked values of the options.
#[derive(Clone, Debug)]
pub struct Switches {
    /// Disabled passes and fusions.
    pub disabled: Disabled,
    /// Enabled kernel features.
    pub features: KernelFeatures,
}

impl DisableArgs {
    /// Resolves the names given to `--disable-pass`, `--disable-fusion` and `--disable-kernel`.
    ///
    /// # Errors
    /// [`Failure::Usage`], after all unknown names were shown. Whether a kernel stores the value of `value:NAME` is
    /// checked when the model is lowered.
    pub fn check(&self) -> Result<Switches, Failure> {
        let given = [
            (Switch::Pass, &self.disable_pass),
            (Switch::Fusion, &self.disable_fusion),
            (Switch::Kernel, &self.disable_kernel),
        ];
        let wrong: Vec<Diagnostic> =
            given.iter().flat_map(|(switch, names)| names.iter().filter_map(|name| switch.check(name))).collect();
        if !wrong.is_empty() {
            source::show(&SourceMap::default(), &wrong);
            return Err(Failure::Usage);
        }
        let disabled = self.disable_kernel.iter().filter_map(|name| KernelFeature::named(name));
        let features = disabled.fold(KernelFeatures::ALL, KernelFeatures::without);
        let disabled = Disabled { passes: self.disable_pass.clone(), fusions: self.disable_fusion.clone() };
        Ok(Switches { disabled, features })
    }
}

/// One of the options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Switch {
    Pass,
    Fusion,
    Kernel,
}

/// Names that the option `--disable-pass` had for all three kinds, with the option and the name of today.
const RENAMED: [(&str, Switch, &str); 35] = [
    ("share_common", Switch::Pass, "cse"),
    ("remove_dead", Switch::Pass, "dce"),
    ("erase_stops", Switch::Pass, "drop_stop_gradient"),
    ("recompute", Switch::Pass, "rematerialize"),
    ("compute_on_vertices", Switch::Pass, "move_to_vertices"),
    ("sum_before_projecting", Switch::Pass, "reassociate"),
    ("compact", Switch::Pass, "compact_endpoints"),
    ("sum_along_paths", Switch::Pass, "factor_metapaths"),
    ("fit_outer_products", Switch::Pass, "split_outer_products"),
    ("order", Switch::Pass, "reorder_vertices"),
    ("fuse_rows", Switch::Fusion, "rowwise"),
    ("fuse_edges", Switch::Fusion, "edge_passes"),
    ("follow_edges", Switch::Fusion, "row_epilogue"),
    ("small_products", Switch::Fusion, "small_gemm"),
    ("fuse_updates", Switch::Fusion, "optimizer_update"),
    ("compute_late", Switch::Fusion, "inline"),
    ("share_softmax", Switch::Fusion, "shared_softmax"),
    ("fuse_products", Switch::Fusion, "multiply_reduce"),
    ("cut_rows", Switch::Fusion, "split_rows"),
    ("keep_fixed", Switch::Fusion, "hoist_invariants"),
    ("side_by_side", Switch::Fusion, "co_schedule"),
    ("one_pass_softmax", Switch::Fusion, "online_softmax"),
    ("tile_products", Switch::Fusion, "gemm_epilogue"),
    ("early_launches", Switch::Fusion, "early_launch"),
    ("by_turns", Switch::Fusion, "interleave"),
    ("wide_vectors", Switch::Kernel, "widest_simd"),
    ("eights", Switch::Kernel, "heads8"),
    ("sparse_rows", Switch::Kernel, "spmm"),
    ("gathered_rows", Switch::Kernel, "fused_gather"),
    ("ask_ahead", Switch::Kernel, "prefetch"),
    ("packed_products", Switch::Kernel, "packed_gemm"),
    ("pairs", Switch::Kernel, "fused_pairs"),
    ("chains", Switch::Kernel, "fused_chains"),
    ("parts_apart", Switch::Kernel, "split_parts"),
    ("machine_code", Switch::Kernel, "jit"),
];
/// The old prefix of the name of a single fusion.
const OLD_PREFIX: &str = "fuse:";

impl Switch {
    const ALL: [Self; 3] = [Self::Pass, Self::Fusion, Self::Kernel];

    fn option(self) -> &'static str {
        match self {
            Self::Pass => "--disable-pass",
            Self::Fusion => "--disable-fusion",
            Self::Kernel => "--disable-kernel",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fusion => "fusion",
            Self::Kernel => "kernel feature",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Pass => "passes",
            Self::Fusion => "fusions",
            Self::Kernel => "kernel features",
        }
    }

    /// The names with a few words for each.
    fn summaries(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::Pass => PassManager::summaries(),
            Self::Fusion => FusionRule::ALL.map(|rule| (rule.name(), rule.summary())).to_vec(),
            Self::Kernel => KernelFeature::ALL.map(|feature| (feature.name(), feature.summary())).to_vec(),
        }
    }

    fn names(self) -> Vec<&'static str> {
        self.summaries().into_iter().map(|(name, _)| name).collect()
    }

    fn has(self, name: &str) -> bool {
        self == Self::Fusion && name.starts_with(VALUE_PREFIX) || self.names().contains(&name)
    }

    /// The report of a name that the option does not have.
    fn check(self, name: &str) -> Option<Diagnostic> {
        if self.has(name) {
            return None;
        }
        let report = |what: String, help: String| Some(Diagnostic::new(codes::UNKNOWN_SWITCH, what).help(help));
        if let Some(other) = Self::ALL.into_iter().find(|other| other.has(name)) {
            let what = format!("`{name}` is a {}, not a {}", other.noun(), self.noun());
            return report(what, format!("use `{} {name}`", other.option()));
        }
        if let Some((switch, now)) = renamed(name) {
            return report(format!("`{name}` is now called `{now}`"), format!("use `{} {now}`", switch.option()));
        }
        let names = self.names();
        let mut report = Diagnostic::new(codes::UNKNOWN_SWITCH, format!("there is no {} `{name}`", self.noun()));
        if let Some(meant) = self.closest(name) {
            report = report.help(format!("did you mean `{meant}`?"));
        } else if let Some((other, meant)) = Self::ALL.into_iter().find_map(|s| Some((s, s.closest(name)?))) {
            report = report.help(format!("did you mean `{} {meant}`?", other.option()));
        }
        let mut listed: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        if self == Self::Fusion {
            listed.push(format!("`{VALUE_PREFIX}NAME`"));
        }
        Some(report.help(format!("the {} are {}", self.plural(), listed.join(", "))))
    }

    /// The name that was probably meant, if one is close.
    fn closest(self, name: &str) -> Option<String> {
        if let (Self::Fusion, Some((prefix, value))) = (self, name.split_once(':')) {
            let known = VALUE_PREFIX.trim_end_matches(':');
            return closest(prefix, &[known]).map(|_| format!("{VALUE_PREFIX}{value}"));
        }
        closest(name, &self.names()).map(str::to_owned)
    }
}

/// The option and the name of today for an old name.
fn renamed(name: &str) -> Option<(Switch, String)> {
    if let Some(value) = name.strip_prefix(OLD_PREFIX) {
        return Some((Switch::Fusion, format!("{VALUE_PREFIX}{value}")));
    }
    RENAMED.iter().find(|(old, ..)| *old == name).map(|&(_, switch, now)| (switch, now.to_owned()))
}

/// The help of an option, with all names.
fn long_help(switch: Switch) -> String {
    let mut text = format!("Disable a {}; may be given several times. The names:\n", switch.noun());
    let value = ("value:NAME", "the kernel that stores the value NAME is split up (profiles show the names)");
    let extra = (switch == Switch::Fusion).then_some(value);
    for (name, summary) in switch.summaries().into_iter().chain(extra) {
        let _ = write!(text, "\n  {name:<20}  {summary}");
    }
    text
}
