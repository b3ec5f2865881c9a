//! The compiler driver: from source text to an executable, without file access.
//!
//! There are two steps, since a dataset is bound between them: [`analyze`] needs the text alone and reports every error
//! in it; [`lower`] also takes the sizes of the bound graphs, since the order of linear operations depends on them.

#![forbid(unsafe_code)]

mod constants;
mod cpu;
mod cutoff;
mod gpu;
mod graph_plan;
mod layer;
mod lints;
mod lower;
mod minibatch;
mod model;
mod modules;
mod pipeline;
mod precompute;
mod ranking;
mod ranks;
mod relations;
mod settings;
mod stdlib;
mod unseen;

pub use constants::Setting;
pub use cpu::{CpuOptions, compile_cpu, compile_cpu_layer, compile_cpu_ranks};
pub use gpu::ptx;
pub use graph_plan::{declare_metapaths, factor_path_sums, plan_graphs, plan_layer_graphs};
pub use hgnnc_analysis::cost;
pub use hgnnc_analysis::memory::planned;
pub use hgnnc_analysis::request;
pub use hgnnc_declare::names::closest;
pub use hgnnc_declare::schema::Schema;
pub use hgnnc_diag::{self as diag, Code, Diagnostic, Diagnostics, SourceMap, codes};
pub use hgnnc_fusion::{FusionRule, VALUE_PREFIX};
pub use hgnnc_hir as hir;
pub use hgnnc_passes::pipeline::REORDER_VERTICES;
pub use hgnnc_passes::vjp::output_gradient;
pub use hgnnc_passes::{Disabled, PRECOMPUTE, PassManager, Precomputed, UnknownName, precomputed_inputs};
pub use hgnnc_passes::{Endpoints, Leaf, LeafGradient, SizeInfo};
pub use hgnnc_sema::dataset::{
    DatasetSummary, FieldSummary, LabelSummary, LabelSummaryKind, RelationSummary, RowsOf, VertexSummary, check_dataset,
};
pub use hgnnc_sema::train::TrainSpec;
pub use hgnnc_syntax::format;
pub use layer::{FeaturePlace, LoweredLayer, give_features, given_inputs, lower_layer, place_of_feature};
pub use lower::{ArenaBytes, LowerError, LowerOptions, Lowered, lower, prepare};
pub use minibatch::sampled_hops;
pub use model::{Analyzed, bind_names};
pub use modules::{ImportedFile, ModuleFile, ModuleFiles, ModulePath, NoFiles, NotFound};
pub use precompute::{leave_precomputed, precomputed, sources};
pub use ranks::{ForRanks, LoweredForRanks, Split, element_cost, lower_for_ranks, prepare_for_ranks};
pub use relations::{Load, RelationModel, RelationTimes, Relations, assign_relations};
pub use settings::settings;
pub use stdlib::STDLIB;
pub use unseen::check_unseen;

use std::collections::BTreeMap;

use hgnnc_declare::imports::importable;
use hgnnc_diag::Severity;
use hgnnc_ir::outputs::FamilyRows;
use hgnnc_lower::{instantiate, instantiate_with};
use hgnnc_sema::Checked;
use hgnnc_syntax::ast::{Allow, Item, Module};

use modules::{Units, mention_imports};

/// The result of [`analyze`] for one file.
#[derive(Default)]
pub struct Analysis {
    /// The file, those that it imports from, and library modules.
    pub sources: SourceMap,
    /// Errors and warnings, sorted by position.
    pub diagnostics: Diagnostics,
    /// The syntax tree of the file.
    pub module: Module,
    /// The user's files that it imports from, directly or not.
    pub imported: Vec<ImportedFile>,
    /// Warnings that are silenced by attributes, in all files.
    pub allows: Vec<Allow>,
    /// The checked model; `None` if there are errors.
    pub model: Option<Analyzed>,
    /// The values of the constants that the file declares or imports.
    pub constants: BTreeMap<String, f64>,
}

impl Analysis {
    /// The texts of the user's files that the file imports from, directly or not.
    pub fn imported_texts(&self) -> impl Iterator<Item = &str> {
        self.imported.iter().map(|file| self.sources.file(file.id).text.as_str())
    }

    /// Adds the imports that led to a file to each diagnostic in it that has no label in the model's own file, as those of
    /// the analysis have them.
    pub fn mention_imports(&self, diagnostics: &mut Diagnostics) {
        mention_imports(&self.imported, &self.sources, diagnostics);
    }

    /// Does the file declare a model, right or wrong?
    pub fn declares_model(&self) -> bool {
        self.module.items.iter().any(|item| matches!(item, Item::Model(_)))
    }

    /// Accepts a file without a model if nothing else is wrong with it, and other files can import from it.
    pub fn accept_module(&mut self) {
        if self.module.items.iter().any(|item| importable(item).is_some()) {
            self.diagnostics.retain(|found| found.code != codes::NO_MODEL);
        }
    }
}

/// Maximum size of a source file, in bytes.
pub const MAX_SOURCE: usize = 16 << 20;

/// Parses and checks the text of a file that imports from no file.
pub fn analyze(name: &str, text: &str) -> Analysis {
    analyze_with(name, text, &[], &mut NoFiles)
}

/// Parses and checks the text of a file, with other values for some of the constants that it declares or imports. Files
/// that it imports from are found by `files`. The syntax tree of the result is that of the file.
pub fn analyze_with(name: &str, text: &str, settings: &[Setting], files: &mut dyn ModuleFiles) -> Analysis {
    analyze_edited(name, text, (settings, &[]), files)
}

/// [`analyze_with`] of a model whose schema declares some features (`Paper.x`) sparse that it declares dense.
pub fn analyze_sparse(name: &str, text: &str, features: &[String], files: &mut dyn ModuleFiles) -> Analysis {
    analyze_edited(name, text, (&[], features), files)
}

fn analyze_edited(
    name: &str,
    text: &str,
    (settings, sparse): (&[Setting], &[String]),
    files: &mut dyn ModuleFiles,
) -> Analysis {
    let mut sources = SourceMap::default();
    let mut diagnostics = Diagnostics::default();
    if text.len() > MAX_SOURCE {
        let report = Diagnostic::new(codes::TOO_LARGE, format!("`{name}` has {} bytes", text.len()));
        diagnostics.push(report.note(format!("a source file has at most {MAX_SOURCE} bytes")));
        return Analysis { sources, diagnostics, ..Analysis::default() };
    }
    let mut units = Units::load(name, text, files, &mut sources, &mut diagnostics);
    let module = units.own().clone();
    // A file with syntax errors is still checked, since the part that parsed may contain other errors. Missing
    // declarations must then not be reported as unknown.
    let complete = units.are_complete();
    let mut found = Diagnostics::default();
    constants::set(&mut units, settings, &mut sources, &mut diagnostics);
    units.declare_sparse(sparse);
    let files = units.files();
    let constants = hgnnc_declare::imports::constants(&files);
    let checked = hgnnc_sema::check(&files, units.in_library(), &mut found);
    let model = checked.and_then(|checked| with_program(checked, &mut found));
    for diagnostic in found {
        if complete || stands_alone(diagnostic.code) {
            diagnostics.push(diagnostic);
        }
    }
    // Warnings are often consequences of errors, so they are reported only without errors.
    if diagnostics.has_errors() {
        diagnostics.retain(|diagnostic| diagnostic.severity() == Severity::Error);
    }
    let allows = units.allows();
    let silenced = silence(&allows, &mut diagnostics, |code| code != codes::EMPTY_RELATION);
    if !diagnostics.has_errors() {
        // An attribute that silences nothing for this model may do so for another one, unless it stands in the model's own file.
        let own = allows.len() - module.allows.len();
        useless(&module.allows, &silenced[own..], &mut diagnostics);
    }
    let imported = units.imported();
    mention_imports(&imported, &sources, &mut diagnostics);
    diagnostics.sort();
    constants::mention(settings, &sources, &mut diagnostics);
    let model = if diagnostics.has_errors() { None } else { model };
    Analysis { sources, diagnostics, module, imported, allows, model, constants }
}

/// The program of a checked model, with its mini-batches; `None` if there are errors.
fn with_program(checked: Checked, diagnostics: &mut Diagnostics) -> Option<Analyzed> {
    if diagnostics.has_errors() && checked.batch.is_none() {
        return None;
    }
    let program = instantiate(&checked.model);
    // Mini-batches are compared with the loss even if something else is wrong.
    let batch = checked.batch.as_ref().map(|spec| minibatch::resolve(spec, &program.flow, &checked, diagnostics));
    if diagnostics.has_errors() {
        return None;
    }
    cutoff::check(&checked, &program.flow, diagnostics);
    lints::report(&checked, &program, checked.train.is_some(), diagnostics);
    if diagnostics.has_errors() {
        return None;
    }
    let Checked { model, schema, mut train, .. } = checked;
    // Outputs of edges are computed on request only: see `Analyzed::ask_for`.
    let of_edges = program.families.iter().any(|output| output.rows == FamilyRows::Edges);
    let mut program = if of_edges { instantiate_with(&model, |_| false) } else { program };
    program.flow = cutoff::with_rows(program.flow, &schema).ok()?;
    if let Some(train) = &mut train {
        cutoff::exclude_rows(&mut train.training, &program.flow, &schema);
        train.training.batch = batch.flatten().map(|batch| minibatch::complete(batch, &program.flow));
    }
    Some(Analyzed {
        name: model.name.clone(),
        flow: program.flow,
        families: program.families,
        outputs: model.outputs.keys().cloned().collect(),
        typed: model,
        schema,
        split: train.as_ref().and_then(|train| train.training.split.clone()),
        train,
        of_batches: None,
        precomputed: None,
        explanations: vec![],
    })
}

/// Removes the warnings that an `allow` attribute silences, for codes that `of` accepts. Returns for each attribute
/// whether it silenced a warning.
pub fn silence(allows: &[Allow], diagnostics: &mut Diagnostics, of: impl Fn(Code) -> bool) -> Vec<bool> {
    let mut used = vec![false; allows.len()];
    diagnostics.retain(|diagnostic| {
        let Some(place) = diagnostic.primary.as_ref().filter(|_| diagnostic.severity() == Severity::Warning) else {
            return true;
        };
        let mut silenced = false;
        for (allow, used) in allows.iter().zip(&mut used) {
            let (extent, span) = (allow.extent, place.span);
            let holds = extent.file == span.file && extent.start <= span.start && span.end <= extent.end;
            if holds && of(diagnostic.code) && Code::find(&allow.code.name) == Some(diagnostic.code) {
                *used = true;
                silenced = true;
            }
        }
        !silenced
    });
    used
}

/// Reports each `allow` attribute that silences nothing. Warnings about datasets may be silenced later.
fn useless(allows: &[Allow], used: &[bool], diagnostics: &mut Diagnostics) {
    for (allow, used) in allows.iter().zip(used) {
        let name = &allow.code.name;
        let at = |message: String, label: &str| Diagnostic::at(codes::USELESS_ALLOW, allow.code.span, message, label);
        let report = match Code::find(name) {
            None => {
                let known: Vec<&str> =
                    Code::all().filter(|c| c.severity() == Severity::Warning).map(Code::name).collect();
                let report = at(format!("there is no warning `{name}`"), "unknown code");
                match closest(name, &known).filter(|_| name.len() == 5) {
                    Some(meant) => report.help(format!("did you mean `{meant}`?")),
                    None => report.help("codes of warnings look like W0003 and stand in brackets behind `warning`"),
                }
            }
            Some(code) if code.severity() == Severity::Error => {
                at(format!("`{code}` is an error, and only warnings can be silenced"), "not a warning")
            }
            Some(code) if *used || code == codes::EMPTY_RELATION => continue,
            Some(code) => at(format!("there is no `{code}` to silence here"), "silences nothing").help("remove it"),
        };
        diagnostics.push(report);
    }
}

/// The result of formatting a file.
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct Formatted {
    pub sources: SourceMap,
    /// The syntax errors, if there are any.
    pub diagnostics: Diagnostics,
    /// The canonical text; `None` if there are syntax errors.
    pub text: Option<String>,
}

/// Formats a file. It must parse, but may have semantic errors.
pub fn reformat(name: &str, text: &str) -> Formatted {
    let (mut sources, mut diagnostics) = (SourceMap::default(), Diagnostics::default());
    let file = sources.add(name, text);
    let module = hgnnc_syntax::parse(file, text, &mut diagnostics);
    let text = (!diagnostics.has_errors()).then(|| format(&module, text));
    Formatted { sources, diagnostics, text }
}

/// Is a diagnostic of this kind valid even if parts of the file did not parse? Others may be caused by a declaration
/// that did not parse.
fn stands_alone(code: Code) -> bool {
    [
        codes::WIDTH_MISMATCH,
        codes::SHAPE_MISMATCH,
        codes::DIFFERENT_SPACES,
        codes::BAD_DIMENSION,
        codes::BAD_RESHAPE,
        codes::ARGUMENT_RANGE,
        codes::LABEL_LOSS_MISMATCH,
        codes::CLASS_COUNT,
        codes::METAPATH_JOIN,
        codes::BIPARTITE_SELF_LOOP,
        codes::FAMILY_TYPES,
        codes::METRIC_TASK,
        codes::UNKNOWN_CHOICE,
        codes::UNKNOWN_ARGUMENT,
        codes::EXTRA_ARGUMENT,
        codes::DIVISION_BY_ZERO,
    ]
    .contains(&code)
}

/// The report of a disabled pass or fusion that does not exist.
pub fn unknown_name(error: &UnknownName) -> Diagnostic {
    let report = Diagnostic::new(codes::UNKNOWN_SWITCH, error.to_string());
    let rules = FusionRule::ALL.map(FusionRule::name);
    let (name, prefix, known) = match error {
        UnknownName::Pass(name) => (name, "", PassManager::names()),
        UnknownName::Fusion(name) => (name, "", rules.to_vec()),
        UnknownName::Value { name, known } => (name, VALUE_PREFIX, known.iter().map(String::as_str).collect()),
    };
    let report = match closest(name, &known) {
        Some(name) => report.help(format!("did you mean `{prefix}{name}`?")),
        None => report,
    };
    let listed = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    report.help(match error {
        UnknownName::Pass(_) => format!("the passes are {listed}"),
        UnknownName::Fusion(_) => format!("the fusions are {listed}"),
        UnknownName::Value { .. } if known.is_empty() => "no kernel of this program computes several values".into(),
        UnknownName::Value { .. } => format!("the kernels that can be split up store {listed}"),
    })
}
