//! Checks of whole files: the model, its train block, what nothing uses, and the dataset.
//!
//! [`check`] takes the syntax trees of a file and of those that it imports from, and gives the typed model
//! ([`hgnnc_hir`]), with the loss where it is trained. Declarations are resolved by `hgnnc-declare` and models are
//! elaborated by `hgnnc-elaborate`; a train block is checked here, against the model. This crate makes no program, runs no
//! pass, and knows no files and no datasets: [`dataset`] compares a schema with a summary that the caller makes.

#![forbid(unsafe_code)]

pub mod batch;
mod cutoff;
pub mod dataset;
pub mod dataset_names;
mod labels;
mod leaks;
mod links;
mod loss;
pub mod train;
mod usage;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_declare::imports::{FileNames, Imports, SourceFile, all_consts};
use hgnnc_declare::names::{did_you_mean, duplicate};
use hgnnc_declare::schema::Schema;
use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_elaborate::checker::{Checker, WithoutMessages};
use hgnnc_elaborate::doubts::Doubt;
use hgnnc_elaborate::{check_signature, without_use};
use hgnnc_syntax::ast::{self, Item, Module};

use batch::BatchSpec;
pub use train::{LabelField, TrainSpec};
use train::{TrainBlock, TrainChecker};

/// A checked file. Where something is wrong, it holds what is right.
pub struct Checked {
    /// The typed model of the file.
    pub model: hgnnc_hir::Model,
    /// The schema of the model.
    pub schema: Schema,
    /// The train block, where there is one.
    pub train: Option<TrainSpec>,
    /// The mini-batches of the train block, as written.
    pub batch: Option<BatchSpec>,
    /// Warnings that hold if a value reaches an output.
    pub doubts: Vec<Doubt>,
    /// Declarations and values that are unused by their names, which was reported.
    pub unused: Vec<Span>,
    /// The model's name in the source.
    pub span: Span,
}

/// Checks a file, the last of `files`; the others are those that it imports from, directly or not. `in_library` has all
/// layers of the standard library with the modules that declare them. Everything that is wrong is reported; the result is
/// `None` without a model.
pub fn check(
    files: &[SourceFile<'_>],
    in_library: &BTreeMap<&str, &str>,
    diagnostics: &mut Diagnostics,
) -> Option<Checked> {
    let imports: Vec<Imports<'_>> = files.iter().map(|file| Imports::of(files, file, diagnostics)).collect();
    let consts = all_consts(files, &imports, diagnostics);
    let names = FileNames::of(files, &imports, &consts, in_library, diagnostics)?;
    names.edited.iter().for_each(|layer| check_signature(layer, diagnostics));
    let (own, imports, own_consts) = (files.last()?, imports.last()?, consts.last()?);
    let file = own.module;
    let models = unique(file, "model", diagnostics, |item| match item {
        Item::Model(model) => Some((model, &model.name)),
        _ => None,
    });
    let trains = unique(file, "train block of", diagnostics, |item| match item {
        Item::Train(train) => Some((train, &train.model)),
        _ => None,
    });
    // Of imported schemas only that of the model is looked at.
    let named = models.first().map(|model| &model.schema.name);
    let resolved: Vec<Schema> = (names.schemas.iter())
        .filter(|(schema, _)| schema.name.span.file == own.id || Some(&schema.name.name) == named)
        .map(|(schema, consts)| Schema::resolve(schema, consts, diagnostics))
        .collect();
    let model_names: HashSet<&str> = models.iter().map(|m| m.name.name.as_str()).collect();
    for train in &trains {
        if !model_names.contains(train.model.name.as_str()) && !diagnostics.has_enough() {
            let report = Diagnostic::at(
                codes::UNKNOWN_MODEL,
                train.model.span,
                format!("there is no model `{}`", train.model.name),
                "not declared",
            );
            diagnostics.push(did_you_mean(report, &train.model.name, model_names.iter().copied()));
        }
    }
    let Some(model) = models.first() else {
        check_unused_layers(file, &names, &HashSet::new(), diagnostics);
        if !diagnostics.has_errors() {
            diagnostics.push(no_model(file, &names));
        }
        return None;
    };
    for extra in &models[1..] {
        diagnostics.push(
            Diagnostic::at(codes::DUPLICATE_NAME, extra.name.span, "a file holds one model", "a second model")
                .label(model.name.span, "the first model")
                .help("put it into a file of its own, and what both need into a third one that they import from"),
        );
    }
    let Some(position) = resolved.iter().position(|s| s.name == model.schema.name) else {
        // Its import was reported.
        if !names.not_imported.contains(model.schema.name.as_str()) {
            let report = Diagnostic::at(
                codes::UNKNOWN_SCHEMA,
                model.schema.span,
                format!("there is no schema `{}`", model.schema.name),
                "not declared",
            );
            let known = names.schemas.iter().map(|(schema, _)| schema.name.name.as_str());
            diagnostics.push(did_you_mean(report, &model.schema.name, known));
        }
        return None;
    };
    let train = trains.iter().find(|t| t.model.name == model.name.name);
    let schema = &resolved[position];
    let mut checker = Checker::new(&model.name, schema, &names, diagnostics);
    checker.model(model, own_consts);
    let TrainBlock { spec: train, batch } = match train {
        Some(train) => TrainChecker { checker: &mut checker }.train(train, own_consts),
        None => TrainBlock { spec: None, batch: None },
    };
    let Checker { model: typed, doubts, without_messages, checked_layers, .. } = checker;
    check_unused_layers(file, &names, &checked_layers, diagnostics);
    // An unused name is often only misspelt at its use, so it is reported when nothing else is wrong.
    let unused = if diagnostics.has_errors() { vec![] } else { usage::check(file, imports, diagnostics) };
    let mut doubts = doubts.remaining();
    doubts.extend(
        without_messages
            .into_iter()
            .map(|found| Doubt { of: Some(found.value), report: never_destination(schema, &found) }),
    );
    let schema = resolved.into_iter().nth(position).expect("position was found");
    // A schema of another file serves other models as well.
    if names.schemas.iter().any(|(own, _)| own.name.name == schema.name && own.name.span.file == model.name.span.file) {
        unused_declarations(&schema, diagnostics);
    }
    Some(Checked { model: typed, schema, train, batch, doubts, unused, span: model.name.span })
}

/// Checks the layers of a file that were not checked where they are used.
fn check_unused_layers(file: &Module, names: &FileNames<'_>, checked: &HashSet<Span>, diagnostics: &mut Diagnostics) {
    for item in &file.items {
        if let Item::Layer(layer) = item
            && !checked.contains(&layer.name.span)
            && let Some(def) = names.layers.get(&layer.name.name)
            && def.layer.name.span == layer.name.span
            && !diagnostics.has_enough()
        {
            without_use::check(*def, names, diagnostics);
        }
    }
}

/// The report of a file without a model, at its end: a model may stand there.
fn no_model(file: &Module, names: &FileNames<'_>) -> Diagnostic {
    let message = "the file declares no model";
    let report = match file.end {
        Some(end) => Diagnostic::at(codes::NO_MODEL, end, message, "the file ends here"),
        None => Diagnostic::new(codes::NO_MODEL, message),
    };
    let schema = names.schemas.first().map_or("SCHEMA", |(schema, _)| &schema.name.name);
    report.help(format!("add `model NAME(schema: {schema}) {{ … output … }}`"))
}

/// The report of an output that depends on what a layer gives for a vertex type that receives no messages there.
fn never_destination(schema: &Schema, found: &WithoutMessages) -> Diagnostic {
    let WithoutMessages { span, layer, vertex, value: _ } = found;
    let vertex = &schema.vertices[vertex.index()];
    Diagnostic::at(
        codes::NEVER_DESTINATION,
        *span,
        format!("`{}` receives no messages in this use of `{layer}`, but its result is used", vertex.name),
        format!("no semantic graph of this family ends in `{}`", vertex.name),
    )
    .label(vertex.span, "the vertex type is declared here")
    .help("messages go from the source to the destination of a relation: add its `reverse(…)`, or all `reverses`")
}

/// All items of one kind; a second one of the same name is reported and left out.
fn unique<'a, T>(
    file: &'a Module,
    what: &str,
    diagnostics: &mut Diagnostics,
    pick: impl Fn(&'a Item) -> Option<(&'a T, &'a ast::Ident)>,
) -> Vec<&'a T> {
    let mut found: Vec<&T> = vec![];
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for item in &file.items {
        let Some((item, name)) = pick(item) else { continue };
        match seen.entry(&name.name) {
            Entry::Occupied(first) => diagnostics.push(duplicate(what, name, *first.get())),
            Entry::Vacant(place) => {
                place.insert(name.span);
                found.push(item);
            }
        }
    }
    found
}

fn unused_declarations(schema: &Schema, diagnostics: &mut Diagnostics) {
    let mut warn = |span: Span, what: &str, name: &str| {
        diagnostics.push(Diagnostic::at(
            codes::UNUSED_DECLARATION,
            span,
            format!("{what} `{name}` is never used"),
            "no layer runs over it",
        ));
    };
    for relation in schema.relations.iter().filter(|r| !r.used.get()) {
        warn(relation.span, "relation", &relation.name);
    }
    for metapath in schema.metapaths.iter().filter(|m| !m.used.get()) {
        warn(metapath.span, "metapath", &metapath.name);
    }
    for family in schema.families.iter().filter(|f| !f.used.get()) {
        warn(family.span, "family", &family.name);
    }
    for vertex in schema.vertices.iter().filter(|v| !v.used.get()) {
        diagnostics.push(Diagnostic::at(
            codes::UNUSED_DECLARATION,
            vertex.span,
            format!("vertex type `{}` is never used", vertex.name),
            "no relation, layer or output mentions it",
        ));
    }
    // Of several fields, those that nothing reads are easily forgotten: `features` has the first one.
    for vertex in schema.vertices.iter().filter(|v| v.used.get() && v.features().nth(1).is_some()) {
        for field in vertex.features().filter(|field| !field.used.get()) {
            diagnostics.push(
                Diagnostic::at(
                    codes::UNUSED_DECLARATION,
                    field.span,
                    format!("`{}.{}` is never used", vertex.name, field.name),
                    "no layer or output reads it",
                )
                .help("`features` has the first field of each vertex type: read others by their names"),
            );
        }
    }
}
