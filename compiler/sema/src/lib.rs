//! Names, types, spaces and shapes.
//!
//! [`check`] takes the syntax trees of a file and of the standard library and gives the typed model ([`hgnnc_hir`]), with the
//! loss where it is trained. It makes no program, runs no pass, and knows no files and no datasets: [`dataset`]
//! compares a schema with a summary that the caller makes.

#![forbid(unsafe_code)]

pub mod batch;
mod blocks;
mod checker;
pub mod consts;
pub mod dataset;
pub mod dataset_names;
mod doubts;
mod eval;
mod fields;
mod functions;
mod layer;
mod links;
mod loss;
mod model;
pub mod names;
mod operators;
mod outputs;
mod params;
mod reduce;
pub mod schema;
mod shapes;
mod sharing;
pub mod train;
mod usage;
mod value;
mod without_use;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};
use hgnnc_syntax::ast::{self, Item, Module};

use batch::BatchSpec;
use checker::{Checker, LayerDef, WithoutMessages};
use consts::Consts;
pub use doubts::Doubt;
use names::{did_you_mean, duplicate};
use schema::Schema;
use train::TrainBlock;
pub use train::TrainSpec;

/// A library module that a file can import from.
pub struct Library<'a> {
    /// `han` in `use std::han::HanConv`.
    pub name: &'a str,
    /// Its tree; empty where the file does not import from it.
    pub module: &'a Module,
    /// The names of its layers, whether the file imports them or not.
    pub layers: Vec<&'a str>,
}

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

/// Checks a file. Everything that is wrong is reported; the result is `None` without a model.
pub fn check(file: &Module, libraries: &[Library<'_>], diagnostics: &mut Diagnostics) -> Option<Checked> {
    let consts = Consts::of(file, diagnostics);
    let library_consts: Vec<Consts> = libraries.iter().map(|l| Consts::of(l.module, diagnostics)).collect();
    let layers = layers_in_scope(file, libraries, &consts, &library_consts, diagnostics);
    let importable: BTreeMap<&str, &str> =
        libraries.iter().flat_map(|library| library.layers.iter().map(|layer| (*layer, library.name))).collect();
    let schemas = unique(file, "schema", diagnostics, |item| match item {
        Item::Schema(schema) => Some((schema, &schema.name)),
        _ => None,
    });
    let models = unique(file, "model", diagnostics, |item| match item {
        Item::Model(model) => Some((model, &model.name)),
        _ => None,
    });
    let trains = unique(file, "train block of", diagnostics, |item| match item {
        Item::Train(train) => Some((train, &train.model)),
        _ => None,
    });
    let resolved: Vec<Schema> = schemas.iter().map(|s| Schema::resolve(s, &consts, diagnostics)).collect();
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
        check_unused_layers(file, &layers, &importable, &HashSet::new(), diagnostics);
        if !diagnostics.has_errors() {
            diagnostics.push(no_model(file, &schemas));
        }
        return None;
    };
    for extra in &models[1..] {
        diagnostics.push(
            Diagnostic::at(codes::DUPLICATE_NAME, extra.name.span, "a file holds one model", "a second model")
                .label(model.name.span, "the first model")
                .help("put it into a file of its own; layers can be shared by both only through the standard library"),
        );
    }
    let Some(position) = resolved.iter().position(|s| s.name == model.schema.name) else {
        let report = Diagnostic::at(
            codes::UNKNOWN_SCHEMA,
            model.schema.span,
            format!("there is no schema `{}`", model.schema.name),
            "not declared",
        );
        diagnostics.push(did_you_mean(report, &model.schema.name, resolved.iter().map(|s| s.name.as_str())));
        return None;
    };
    let train = trains.iter().find(|t| t.model.name == model.name.name);
    let schema = &resolved[position];
    let mut checker = Checker::new(&model.name, schema, &layers, &importable, diagnostics);
    checker.not_imported = not_imported(file, &layers);
    checker.model(model, &consts);
    let TrainBlock { spec: train, batch } = match train {
        Some(train) => checker.train(train, &consts),
        None => TrainBlock { spec: None, batch: None },
    };
    let Checker { model: typed, doubts, without_messages, checked_layers, .. } = checker;
    check_unused_layers(file, &layers, &importable, &checked_layers, diagnostics);
    // An unused name is often only misspelt at its use, so it is reported when nothing else is wrong.
    let unused = if diagnostics.has_errors() { vec![] } else { usage::check(file, diagnostics) };
    let mut doubts = doubts.remaining();
    doubts.extend(
        without_messages
            .into_iter()
            .map(|found| Doubt { of: Some(found.value), report: never_destination(schema, &found) }),
    );
    let schema = resolved.into_iter().nth(position).expect("position was found");
    unused_declarations(&schema, diagnostics);
    Some(Checked { model: typed, schema, train, batch, doubts, unused, span: model.name.span })
}

/// Checks the layers of a file that were not checked where they are used.
fn check_unused_layers(
    file: &Module,
    layers: &BTreeMap<String, LayerDef<'_>>,
    importable: &BTreeMap<&str, &str>,
    checked: &HashSet<String>,
    diagnostics: &mut Diagnostics,
) {
    for item in &file.items {
        if let Item::Layer(layer) = item
            && !checked.contains(&layer.name.name)
            && let Some(def) = layers.get(&layer.name.name).filter(|def| def.layer.name.span == layer.name.span)
            && !diagnostics.has_enough()
        {
            without_use::check(*def, layers, importable, file, diagnostics);
        }
    }
}

/// The report of a file without a model, at its end: a model may stand there.
fn no_model(file: &Module, schemas: &[&ast::Schema]) -> Diagnostic {
    let message = "the file declares no model";
    let report = match file.end {
        Some(end) => Diagnostic::at(codes::NO_MODEL, end, message, "the file ends here"),
        None => Diagnostic::new(codes::NO_MODEL, message),
    };
    let schema = schemas.first().map_or("SCHEMA", |schema| &schema.name.name);
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

/// The report of `use std::han`, which names a module and no layer of it.
fn without_layer(import: &ast::Use, libraries: &[Library<'_>]) -> Option<Diagnostic> {
    let ([std], [name]) = (&import.path[..], &import.names[..]) else { return None };
    let library = libraries.iter().find(|library| std.name == "std" && library.name == name.name)?;
    let layer = library.layers.first().unwrap_or(&"Layer");
    let message = format!("`std::{}` is a module", library.name);
    let report = Diagnostic::at(codes::UNKNOWN_MODULE, name.span, message, "which layer of it?");
    Some(report.help(format!("name what is used: `use std::{}::{layer}`", library.name)))
}

/// Imported names that are not in scope, since their imports are wrong.
fn not_imported<'a>(file: &'a Module, layers: &BTreeMap<String, LayerDef<'_>>) -> HashSet<&'a str> {
    let imports = file.items.iter().filter_map(|item| match item {
        Item::Use(import) => Some(import),
        Item::Const(_) | Item::Schema(_) | Item::Layer(_) | Item::Model(_) | Item::Train(_) => None,
    });
    let names = imports.flat_map(|import| &import.names).map(|name| name.name.as_str());
    names.filter(|&name| !layers.contains_key(name)).collect()
}

/// The layers that a file can use: its own and what it imports.
fn layers_in_scope<'a>(
    file: &'a Module,
    libraries: &[Library<'a>],
    consts: &'a Consts,
    library_consts: &'a [Consts],
    diagnostics: &mut Diagnostics,
) -> BTreeMap<String, LayerDef<'a>> {
    let mut layers: BTreeMap<String, LayerDef<'a>> = BTreeMap::new();
    let mut spans: BTreeMap<String, Span> = BTreeMap::new();
    let mut declare = |name: &ast::Ident, def: LayerDef<'a>, diagnostics: &mut Diagnostics| match spans.get(&name.name)
    {
        Some(first) => diagnostics.push(duplicate("layer", name, *first)),
        None => {
            spans.insert(name.name.clone(), name.span);
            layers.insert(name.name.clone(), def);
        }
    };
    for item in &file.items {
        match item {
            Item::Layer(layer) => {
                layer::check_signature(layer, diagnostics);
                declare(&layer.name, LayerDef { layer, consts }, diagnostics);
            }
            Item::Use(import) => {
                let path: Vec<&str> = import.path.iter().map(|p| p.name.as_str()).collect();
                let position = match path[..] {
                    ["std", module] => libraries.iter().position(|l| l.name == module),
                    _ => None,
                };
                let Some(position) = position else {
                    if let Some(report) = without_layer(import, libraries) {
                        diagnostics.push(report);
                        continue;
                    }
                    let at = import.path.last().map_or(import.span, |p| p.span);
                    let report = Diagnostic::at(
                        codes::UNKNOWN_MODULE,
                        at,
                        format!("there is no module `{}`", path.join("::")),
                        "unknown module",
                    );
                    let known: Vec<String> = libraries.iter().map(|l| format!("std::{}", l.name)).collect();
                    diagnostics.push(did_you_mean(report, &path.join("::"), known.iter().map(String::as_str)));
                    continue;
                };
                let exported: Vec<&ast::Layer> = libraries[position]
                    .module
                    .items
                    .iter()
                    .filter_map(|item| match item {
                        Item::Layer(layer) => Some(layer),
                        _ => None,
                    })
                    .collect();
                for name in &import.names {
                    match exported.iter().find(|l| l.name.name == name.name) {
                        Some(layer) => {
                            declare(name, LayerDef { layer, consts: &library_consts[position] }, diagnostics);
                        }
                        None => {
                            let report = Diagnostic::at(
                                codes::UNKNOWN_MODULE,
                                name.span,
                                format!("`{}` has no layer `{}`", path.join("::"), name.name),
                                "not declared there",
                            );
                            let known = exported.iter().map(|l| l.name.name.as_str());
                            diagnostics.push(did_you_mean(report, &name.name, known));
                        }
                    }
                }
            }
            Item::Const(_) | Item::Schema(_) | Item::Model(_) | Item::Train(_) => {}
        }
    }
    layers
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
}
