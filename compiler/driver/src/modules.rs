//! The files of a model: its own, those that it imports from, and modules of the standard library, each parsed once.
//!
//! Nothing here reads a file: a [`ModuleFiles`] of the caller finds texts. A file comes behind those that it imports from,
//! so the model's own is the last one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hgnnc_declare::imports::SourceFile;
use hgnnc_declare::imports::{import_span, importable};
use hgnnc_declare::names::{closest, did_you_mean};
use hgnnc_diag::{Diagnostic, Diagnostics, FileId, SourceMap, Span, codes};
use hgnnc_syntax::ast::{Allow, FieldType, Ident, Item, Module, SchemaItem, Use, UseFrom, VertexDecl};

use crate::stdlib::STDLIB;

/// Maximum number of files of a model.
const MAX_FILES: usize = 1000;

/// The model's own file, which is parsed first.
const OWN: FileId = FileId(0);

/// The name of the standard library in paths.
const STD: &str = "std";

/// Finds the files that models import from.
pub trait ModuleFiles {
    /// The file that a `use` names. `from` is the number of the file that has the `use`: 0 for the model's own, else that
    /// of an earlier result.
    ///
    /// # Errors
    /// Why there is no text.
    fn find(&mut self, from: usize, wanted: &ModulePath<'_>) -> Result<ModuleFile, NotFound>;
}

/// The file that a `use` names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModulePath<'a> {
    /// `use "layers.hgnn"`: a path, relative to the file that has the `use`.
    File(&'a str),
    /// `use mylib::layers::Gate`: the module `layers` of the package `mylib`.
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    Package { package: &'a str, module: Vec<&'a str> },
}

/// A file that was found.
#[derive(Clone, Debug)]
pub struct ModuleFile {
    /// The same number for the same file, by whatever path it is named; 0 for the model's own file.
    pub number: usize,
    /// The path, for messages.
    pub name: String,
    /// The text that is compiled.
    pub text: Arc<str>,
}

/// Why a file was not found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotFound {
    /// There is no such file.
    #[allow(missing_docs, reason = "fields are named for what they hold")]
    File {
        looked_for: String,
        /// Paths of files there that may be meant, as they would stand in the `use`.
        others: Vec<String>,
    },
    /// There is no such package.
    Package {
        /// The file that declares packages, if there is one.
        manifest: Option<String>,
        /// The packages that it declares.
        known: Vec<String>,
    },
    /// The file, or the one that declares packages, cannot be read or is wrong. Says which one, and why.
    Unreadable(String),
    /// The text of the model is in no folder.
    NoFolder,
}

/// Texts without files: whatever is imported from a file is not found.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoFiles;

impl ModuleFiles for NoFiles {
    fn find(&mut self, _from: usize, _wanted: &ModulePath<'_>) -> Result<ModuleFile, NotFound> {
        Err(NotFound::NoFolder)
    }
}

/// A file of a model.
pub(crate) struct Unit {
    name: String,
    id: FileId,
    pub module: Module,
    /// By `use`: the position of the file.
    pub imports: Vec<Option<usize>>,
    is_library: bool,
    /// The first `use` that led to it; none led to the model's own file.
    imported_at: Option<Span>,
}

/// All files of a model, each behind those that it imports from.
pub(crate) struct Units {
    pub units: Vec<Unit>,
    /// The layers of the standard library by the module that declares them.
    in_library: BTreeMap<&'static str, &'static str>,
    /// Whether a file is missing all of whose declarations are imported, so that a name that is not known may be there.
    is_missing: bool,
}

impl Units {
    /// Parses a model's file, and finds and parses what it imports from.
    pub fn load(
        name: &str,
        text: &str,
        files: &mut dyn ModuleFiles,
        sources: &mut SourceMap,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let in_library = STDLIB.iter().flat_map(|&(module, text)| layer_names(text).map(move |layer| (layer, module)));
        let units = Units { units: vec![], in_library: in_library.collect(), is_missing: false };
        let mut loader = Loader {
            files,
            sources,
            diagnostics,
            units,
            positions: HashMap::new(),
            library: HashMap::new(),
            open: vec![],
            names: BTreeSet::new(),
        };
        loader.load(Some(0), name, text, None);
        loader.units
    }

    /// The model's own file.
    pub fn own(&self) -> &Module {
        &self.units[self.units.len() - 1].module
    }

    /// All files for the checker.
    pub fn files(&self) -> Vec<SourceFile<'_>> {
        fn file(unit: &Unit) -> SourceFile<'_> {
            let Unit { name, id, module, imports, is_library, .. } = unit;
            SourceFile { name, id: *id, module, imports: imports.clone(), is_library: *is_library }
        }
        self.units.iter().map(file).collect()
    }

    /// The layers of the standard library by the module that declares them.
    pub fn in_library(&self) -> &BTreeMap<&'static str, &'static str> {
        &self.in_library
    }

    /// Whether everything parsed and every file was found, so that a name that is not known is a mistake.
    pub fn are_complete(&self) -> bool {
        !self.is_missing && self.units.iter().all(|unit| !unit.module.incomplete)
    }

    /// The user's files that the model's own file imports from.
    pub fn imported(&self) -> Vec<ImportedFile> {
        let edited = self.units.iter().filter(|unit| !unit.is_library);
        edited.filter_map(|unit| Some(ImportedFile { id: unit.id, at: unit.imported_at? })).collect()
    }

    /// The warnings that the files of the user silence.
    pub fn allows(&self) -> Vec<Allow> {
        let edited = self.units.iter().filter(|unit| !unit.is_library);
        edited.flat_map(|unit| unit.module.allows.iter().cloned()).collect()
    }

    /// The constant of the user's files that the model's own file calls by this name.
    pub fn constant(&mut self, name: &str) -> Option<&mut hgnnc_syntax::ast::Const> {
        let own = self.units.len() - 1;
        let declares = |unit: &Unit| unit.module.items.iter().any(|item| is_constant(item, name));
        let imported = || {
            let own = self.files().pop()?;
            let named = |import: &Use| import.names.is_empty() || import.names.iter().any(|of| of.name == name);
            let edited = |&from: &usize| !self.units[from].is_library && declares(&self.units[from]);
            own.uses().find_map(|(import, from)| from.filter(|_| named(import)).filter(edited))
        };
        let position = if declares(&self.units[own]) { own } else { imported()? };
        self.units[position].module.items.iter_mut().find_map(|item| match item {
            Item::Const(decl) if decl.name.name == name => Some(decl),
            _ => None,
        })
    }

    /// Declares features sparse, each named as `Paper.x` in the schemas of all files.
    pub fn declare_sparse(&mut self, features: &[String]) {
        let items = self.units.iter_mut().flat_map(|unit| &mut unit.module.items);
        let of_schemas =
            items.filter_map(|item| if let Item::Schema(schema) = item { Some(&mut schema.items) } else { None });
        for item in of_schemas.flatten() {
            let SchemaItem::Vertex(VertexDecl { name: vertex, fields, .. }) = item else { continue };
            for field in fields {
                let is_meant = |name: &String| *name == format!("{}.{}", vertex.name, field.name.name);
                if let FieldType::Real { sparse, .. } = &mut field.ty {
                    *sparse |= features.iter().any(is_meant);
                }
            }
        }
    }

    /// The names of the constants that the model's own file declares or imports.
    pub fn constant_names(&self) -> Vec<String> {
        hgnnc_declare::imports::constants(&self.files()).into_keys().collect()
    }
}

fn is_constant(item: &Item, name: &str) -> bool {
    matches!(item, Item::Const(decl) if decl.name.name == name)
}

/// A file of the user's that a model's own file imports from, directly or not.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct ImportedFile {
    pub id: FileId,
    /// The first `use` of it.
    pub at: Span,
}

/// Adds the imports that led to a file to each diagnostic in it that has no label in the model's own file.
pub(crate) fn mention_imports(imported: &[ImportedFile], sources: &SourceMap, diagnostics: &mut Diagnostics) {
    let find = |id: FileId| imported.iter().find(|file| file.id == id);
    let mut all = Diagnostics::default();
    for mut found in std::mem::take(diagnostics) {
        let labels = || found.primary.iter().chain(&found.secondary).map(|label| label.span.file);
        let mut at = if labels().any(|id| id == OWN) { None } else { labels().next().and_then(find) };
        while let Some(file) = at {
            if !found.secondary.iter().any(|label| label.span == file.at) {
                found = found.label(file.at, format!("`{}` is imported here", sources.file(file.id).name));
            }
            at = find(file.at.file);
        }
        all.push(found);
    }
    *diagnostics = all;
}

/// A file whose imports are being read.
struct Open {
    number: Option<usize>,
    name: String,
    /// The `use` that led to it.
    imported_at: Option<Span>,
}

struct Loader<'a> {
    files: &'a mut dyn ModuleFiles,
    sources: &'a mut SourceMap,
    diagnostics: &'a mut Diagnostics,
    units: Units,
    /// Positions of files by number.
    positions: HashMap<usize, usize>,
    /// Positions of library modules.
    library: HashMap<&'static str, usize>,
    /// The files whose imports are being read, the model's own first.
    open: Vec<Open>,
    /// Numbers of all files that were found.
    names: BTreeSet<usize>,
}

impl Loader<'_> {
    /// Parses a file, those that it imports from, and adds it. `number` is `None` for a library module.
    fn load(&mut self, number: Option<usize>, name: &str, text: &str, imported_at: Option<Span>) -> usize {
        let id = self.sources.add(name, text);
        let module = hgnnc_syntax::parse(id, text, self.diagnostics);
        self.open.push(Open { number, name: name.to_owned(), imported_at });
        let uses = module.items.iter().filter_map(|item| match item {
            Item::Use(import) => Some(import),
            Item::Const(_) | Item::Schema(_) | Item::Layer(_) | Item::Model(_) | Item::Train(_) => None,
        });
        let imports = uses.map(|import| self.import(import)).collect();
        self.open.pop();
        let is_library = number.is_none();
        self.units.units.push(Unit { name: name.to_owned(), id, module, imports, is_library, imported_at });
        self.units.units.len() - 1
    }

    /// The position of the file that a `use` names.
    fn import(&mut self, import: &Use) -> Option<usize> {
        let wanted = match &import.from {
            UseFrom::File(path) => ModulePath::File(&path.value),
            UseFrom::Module(path) => match &path[..] {
                [std, rest @ ..] if std.name == STD => return self.library_module(import, rest),
                [package, module @ ..] => ModulePath::Package {
                    package: &package.name,
                    module: module.iter().map(|part| part.name.as_str()).collect(),
                },
                [] => return None,
            },
        };
        // Only a whole module can be a file: `use mylib::layers` names no declaration of it.
        if let ModulePath::Package { package, module } = &wanted
            && module.is_empty()
        {
            let named: Vec<&str> = import.names.iter().map(|name| name.name.as_str()).collect();
            let whole = ModulePath::Package { package, module: vec![named.first()?] };
            self.without_name(import, &whole);
            return None;
        }
        let from = self.open.last().and_then(|open| open.number)?;
        let found = match self.files.find(from, &wanted) {
            Ok(found) => found,
            Err(reason) => {
                self.units.is_missing |= import.names.is_empty();
                let report = not_found(import, reason);
                self.diagnostics.push(report);
                return None;
            }
        };
        if let Some(&position) = self.positions.get(&found.number) {
            return Some(position);
        }
        if let Some(first) = self.open.iter().position(|open| open.number == Some(found.number)) {
            self.cycle(import, first);
            self.units.is_missing |= import.names.is_empty();
            return None;
        }
        self.names.insert(found.number);
        if self.names.len() > MAX_FILES {
            let message = format!("a model of more than {MAX_FILES} files");
            self.diagnostics.push(Diagnostic::at(codes::TOO_LARGE, import_span(import), message, "one too many"));
            return None;
        }
        let position = self.load(Some(found.number), &found.name, &found.text, Some(import_span(import)));
        self.positions.insert(found.number, position);
        let declares = self.units.units[position].module.items.iter().any(|item| importable(item).is_some());
        if import.names.is_empty() && !declares && !self.units.units[position].module.incomplete {
            let message = format!("`{}` declares nothing that can be imported", import.from.text());
            let report = Diagnostic::at(codes::UNKNOWN_MODULE, import_span(import), message, "nothing to import");
            self.diagnostics.push(report.help("constants, schemas and layers can be imported"));
        }
        Some(position)
    }

    fn library_module(&mut self, import: &Use, rest: &[Ident]) -> Option<usize> {
        let known = |name: &str| STDLIB.iter().find(|(module, _)| *module == name);
        let Some((module, text)) = (if let [only] = rest { known(&only.name) } else { None }) else {
            let whole = import.names.first().filter(|_| rest.is_empty() && import.names.len() == 1);
            if let Some((module, text)) = whole.and_then(|name| known(&name.name)) {
                let layer = layer_names(text).next().unwrap_or("Layer");
                let message = format!("`std::{module}` is a module");
                let at = import.names[0].span;
                let report = Diagnostic::at(codes::UNKNOWN_MODULE, at, message, "which layer of it?");
                self.diagnostics.push(report.help(format!("name what is used: `use std::{module}::{layer}`")));
                return None;
            }
            let known: Vec<String> = STDLIB.iter().map(|(module, _)| format!("std::{module}")).collect();
            let report = did_you_mean(unknown_module(import), &import.from.text(), known.iter().map(String::as_str));
            self.diagnostics.push(report);
            return None;
        };
        if let Some(&position) = self.library.get(module) {
            return Some(position);
        }
        let position = self.load(None, &format!("std::{module}"), text, Some(import_span(import)));
        self.library.insert(module, position);
        Some(position)
    }

    /// The report of `use mylib::layers`, which names a module and nothing of it, or a package that is not there.
    fn without_name(&mut self, import: &Use, whole: &ModulePath<'_>) {
        let from = self.open.last().and_then(|open| open.number).unwrap_or(0);
        let text = format!("{}::{}", import.from.text(), import.names[0].name);
        let report = match self.files.find(from, whole) {
            Err(reason @ (NotFound::Package { .. } | NotFound::NoFolder)) => not_found(import, reason),
            found => {
                let declared = found.ok().and_then(|found| {
                    let mut ignored = (SourceMap::default(), Diagnostics::default());
                    let id = ignored.0.add("", &*found.text);
                    let module = hgnnc_syntax::parse(id, &found.text, &mut ignored.1);
                    module.items.iter().find_map(importable).map(|name| name.name.clone())
                });
                let message = format!("`{text}` is a module");
                let report =
                    Diagnostic::at(codes::UNKNOWN_MODULE, import.names[0].span, message, "which declaration of it?");
                let name = declared.unwrap_or_else(|| "NAME".into());
                report.help(format!("name what is used: `use {text}::{name}`"))
            }
        };
        self.diagnostics.push(report);
    }

    /// The report of a `use` of a file whose own imports led to it: the one at `first` among the open files.
    fn cycle(&mut self, import: &Use, first: usize) {
        let chain = &self.open[first..];
        let names: Vec<String> = chain.iter().chain(&chain[..1]).map(|open| format!("`{}`", open.name)).collect();
        let message = match &names[..] {
            [only, _] => format!("{only} imports itself"),
            _ => format!("these files import each other: {}", names.join(" → ")),
        };
        let label = format!("imports {} again", names[0]);
        let mut report = Diagnostic::at(codes::IMPORT_CYCLE, import_span(import), message, label);
        for (open, from) in chain[1..].iter().zip(chain) {
            if let Some(span) = open.imported_at {
                report = report.label(span, format!("`{}` imports `{}`", from.name, open.name));
            }
        }
        let help = match names.len() {
            2 => "the declarations of a file are known in it: remove this",
            _ => "move what both need into a file of its own, from which both import",
        };
        self.diagnostics.push(report.help(help));
    }
}

fn unknown_module(import: &Use) -> Diagnostic {
    let at = match &import.from {
        UseFrom::Module(path) => path.last().map_or(import.span, |part| part.span),
        UseFrom::File(path) => path.span,
    };
    let message = format!("there is no module `{}`", import.from.text());
    Diagnostic::at(codes::UNKNOWN_MODULE, at, message, "unknown module")
}

/// The report of an import without a file.
fn not_found(import: &Use, reason: NotFound) -> Diagnostic {
    let text = import.from.text();
    match reason {
        NotFound::File { looked_for, others } => {
            let report = match &import.from {
                UseFrom::File(path) => {
                    let message = format!("there is no file `{text}`");
                    Diagnostic::at(codes::UNKNOWN_MODULE, path.span, message, "not found")
                }
                UseFrom::Module(_) => unknown_module(import),
            };
            let report = report.note(format!("looked for `{looked_for}`"));
            did_you_mean(report, &text, others.iter().map(String::as_str))
        }
        NotFound::Package { manifest, known } => {
            let UseFrom::Module(path) = &import.from else { return unknown_module(import) };
            let Some(package) = path.first() else { return unknown_module(import) };
            let message = format!("there is no package `{}`", package.name);
            let report = Diagnostic::at(codes::UNKNOWN_MODULE, package.span, message, "unknown package");
            let entry = format!("`{} = \"PATH\"` below `[packages]`", package.name);
            match manifest {
                Some(manifest) => did_you_mean(
                    report.note(format!("packages are declared in `{manifest}`")),
                    &package.name,
                    known.iter().map(String::as_str).chain([STD]),
                )
                .help(format!("a package is declared by {entry}")),
                None => match closest(&package.name, &[STD]) {
                    Some(meant) => report.help(format!("did you mean `{meant}`?")),
                    None => report
                        .note("no folder from that of the model upwards has an `hgnnc.toml`")
                        .help(format!("packages are declared in an `hgnnc.toml`: {entry}")),
                },
            }
        }
        NotFound::Unreadable(reason) => {
            let message = format!("`{text}` cannot be imported");
            Diagnostic::at(codes::MODULE_FILE, import_span(import), message, "imported here").note(reason)
        }
        NotFound::NoFolder => {
            let message = format!("`{text}` cannot be imported: this text is in no folder");
            Diagnostic::at(codes::UNKNOWN_MODULE, import_span(import), message, "not found")
        }
    }
}

/// The layers that a library file declares. Library files start each declaration on its own line.
fn layer_names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.strip_prefix("layer ")?.split('(').next())
}
