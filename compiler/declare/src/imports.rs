//! Names that files import from each other: constants, schemas and layers.
//!
//! A file imports what another one declares itself, and passes nothing on that it imports. All of that is known before
//! anything is checked, so an imported constant is known from the first line on.

use std::collections::{BTreeMap, HashMap, HashSet};

use hgnnc_diag::{Diagnostic, Diagnostics, FileId, Span, codes};
use hgnnc_syntax::ast::{self, Ident, Item, Module, Use};

use crate::consts::Consts;
use crate::names::{Declaration, declared_twice, did_you_mean};

/// A file of a model: its own, one that it imports from, or a module of the standard library.
pub struct SourceFile<'a> {
    /// Path or `std::han`, for messages.
    pub name: &'a str,
    /// Its id in spans.
    pub id: FileId,
    /// Its syntax tree, with all declarations.
    pub module: &'a Module,
    /// For each `use` of the file, in their order: the position of the file that it names, which is a smaller one than
    /// that of this file. `None` where there is none, which was reported.
    pub imports: Vec<Option<usize>>,
    /// Whether it is of the standard library, which cannot be edited.
    pub is_library: bool,
}

impl<'a> SourceFile<'a> {
    /// A model's file that imports nothing.
    pub fn alone(id: FileId, module: &'a Module) -> Self {
        Self { name: "", id, module, imports: vec![], is_library: false }
    }

    /// Its `use` declarations, each with the position of the file that it names.
    pub fn uses(&self) -> impl Iterator<Item = (&'a Use, Option<usize>)> {
        let uses = self.module.items.iter().filter_map(|item| match item {
            Item::Use(import) => Some(import),
            Item::Const(_) | Item::Schema(_) | Item::Layer(_) | Item::Model(_) | Item::Train(_) => None,
        });
        uses.zip(self.imports.iter().copied().chain(std::iter::repeat(None)))
    }
}

/// A declaration of another file.
#[derive(Clone, Copy)]
pub struct Imported<'a> {
    /// The name in this file.
    pub name: &'a Ident,
    /// The name in the `use`, or the file of one without names.
    pub at: Span,
    /// The position of the file that declares it.
    pub from: usize,
    /// The declaration in that file.
    pub item: &'a Item,
}

/// All imports of a file.
#[derive(Default)]
pub struct Imports<'a> {
    /// The imported declarations, in order.
    pub found: Vec<Imported<'a>>,
    /// Names that are not declared where they are imported from, which was reported.
    pub failed: HashSet<&'a str>,
}

/// The name of a declaration that other files can import.
pub fn importable(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(decl) => Some(&decl.name),
        Item::Schema(decl) => Some(&decl.name),
        Item::Layer(decl) => Some(&decl.name),
        Item::Use(_) | Item::Model(_) | Item::Train(_) => None,
    }
}

impl<'a> Imports<'a> {
    /// Looks the imported names of a file up.
    pub fn of(files: &[SourceFile<'a>], file: &SourceFile<'a>, diagnostics: &mut Diagnostics) -> Self {
        let mut imports = Imports::default();
        for (import, from) in file.uses() {
            let Some(from) = from else {
                imports.failed.extend(import.names.iter().map(|name| name.name.as_str()));
                continue;
            };
            let source = &files[from];
            let declared = || source.module.items.iter().filter_map(|item| Some((item, importable(item)?)));
            if import.names.is_empty() {
                let all = declared().map(|(item, name)| Imported { name, at: import_span(import), from, item });
                imports.found.extend(all);
            }
            for wanted in &import.names {
                let before = imports.found.len();
                let named = declared().filter(|(_, name)| name.name == wanted.name);
                imports.found.extend(named.map(|(item, name)| Imported { name, at: wanted.span, from, item }));
                if imports.found.len() > before {
                    continue;
                }
                imports.failed.insert(&wanted.name);
                // A declaration that did not parse was reported.
                if !source.module.incomplete {
                    diagnostics.push(not_declared(import, wanted, source));
                }
            }
        }
        imports
    }
}

/// Where a `use` names its file.
pub fn import_span(import: &Use) -> Span {
    match &import.from {
        ast::UseFrom::File(path) => path.span,
        ast::UseFrom::Module(_) => import.span,
    }
}

/// The report of a name that a file does not declare.
fn not_declared(import: &Use, wanted: &Ident, source: &SourceFile<'_>) -> Diagnostic {
    let what = if source.is_library { "layer " } else { "" };
    let from = import.from.text();
    let report = |message: String, label: &str| Diagnostic::at(codes::UNKNOWN_MODULE, wanted.span, message, label);
    let own = |item: &Item| match item {
        Item::Model(model) if model.name.name == wanted.name => Some((model.name.span, "the model is declared here")),
        Item::Use(other) => {
            let name = other.names.iter().find(|name| name.name == wanted.name)?;
            Some((name.span, "it is imported here: import it from the same file"))
        }
        _ => None,
    };
    let message = format!("`{from}` has no {what}`{}`", wanted.name);
    match source.module.items.iter().find_map(own).filter(|_| !source.is_library) {
        Some((span, label)) => report(message, "not declared there")
            .label(span, label)
            .help("constants, schemas and layers can be imported from the file that declares them"),
        None => {
            let known = source.module.items.iter().filter_map(importable).map(|name| name.name.as_str());
            did_you_mean(report(message, "not declared there"), &wanted.name, known)
        }
    }
}

/// The constants of all files, each with those that it imports.
pub fn all_consts(files: &[SourceFile<'_>], imports: &[Imports<'_>], diagnostics: &mut Diagnostics) -> Vec<Consts> {
    let mut all: Vec<Consts> = vec![];
    for (file, imports) in files.iter().zip(imports) {
        let consts = Consts::of(file.module, imports, &all, diagnostics);
        all.push(consts);
    }
    all
}

/// The values of the constants that the model's file, the last one, declares or imports. Nothing is reported.
pub fn constants(files: &[SourceFile<'_>]) -> BTreeMap<String, f64> {
    let mut ignored = Diagnostics::default();
    let imports: Vec<Imports<'_>> = files.iter().map(|file| Imports::of(files, file, &mut ignored)).collect();
    let Some(own) = all_consts(files, &imports, &mut ignored).pop() else { return BTreeMap::new() };
    own.names().filter_map(|name| Some((name.to_owned(), own.get(name)?))).collect()
}

/// A layer that can be used, with the constants of its file.
#[derive(Clone, Copy)]
pub struct LayerDef<'a> {
    /// The layer's syntax tree.
    pub layer: &'a ast::Layer,
    /// Constants in scope there.
    pub consts: &'a Consts,
}

/// The layers that can be used in a file.
pub struct FileLayers<'a> {
    /// Its own layers and those that it imports.
    pub layers: BTreeMap<String, LayerDef<'a>>,
    /// Names whose imports are wrong, which was reported: their uses are not.
    pub not_imported: &'a HashSet<&'a str>,
}

/// The names that a model's file has beside its constants, and the files that it consists of.
pub struct FileNames<'a> {
    /// Its own layers and those that it imports.
    pub layers: BTreeMap<String, LayerDef<'a>>,
    /// The layers of the other files, for their own.
    pub others: HashMap<FileId, FileLayers<'a>>,
    /// Its own schemas and those that it imports, each with the constants of the file that declares it.
    pub schemas: Vec<(&'a ast::Schema, &'a Consts)>,
    /// Names whose imports are wrong, which was reported: their uses are not.
    pub not_imported: &'a HashSet<&'a str>,
    /// The library layers by the module to import them from.
    pub in_library: &'a BTreeMap<&'a str, &'a str>,
    /// The files of the standard library.
    pub library: HashSet<FileId>,
    /// Layers that the file declares or imports, with repeated declarations and without those of the library.
    pub edited: Vec<&'a ast::Layer>,
}

impl<'a> FileNames<'a> {
    /// Those of the last file. `imports` and `consts` are those of all files; there is at least one.
    pub fn of(
        files: &[SourceFile<'a>],
        all_imports: &'a [Imports<'a>],
        consts: &'a [Consts],
        in_library: &'a BTreeMap<&'a str, &'a str>,
        diagnostics: &mut Diagnostics,
    ) -> Option<Self> {
        let (own, own_consts, imports) = (files.last()?, consts.last()?, all_imports.last()?);
        let others = files.iter().zip(all_imports).zip(consts).take(files.len() - 1);
        let mut names = Self {
            layers: BTreeMap::new(),
            others: others.map(|((file, imports), own)| (file.id, layers_of(file, imports, own, consts))).collect(),
            schemas: vec![],
            not_imported: &imports.failed,
            in_library,
            library: files.iter().filter(|file| file.is_library).map(|file| file.id).collect(),
            edited: vec![],
        };
        let mut seen: HashMap<(&str, &str), Declaration> = HashMap::new();
        let imported = imports.found.iter().map(|found| {
            let declaration = Declaration { span: found.at, imported: Some(found.name.span) };
            (found.item, declaration, &consts[found.from], !files[found.from].is_library)
        });
        let own = own.module.items.iter().filter_map(|item| {
            let declaration = Declaration { span: importable(item)?.span, imported: None };
            Some((item, declaration, own_consts, true))
        });
        let mut all: Vec<_> = imported.chain(own).collect();
        // Of two declarations, the second one in the text is the one too many.
        all.sort_by_key(|(_, declaration, ..)| declaration.span);
        for (item, declaration, consts, is_edited) in all {
            let (what, name) = match item {
                Item::Layer(decl) => ("layer", &decl.name),
                Item::Schema(decl) => ("schema", &decl.name),
                Item::Const(_) | Item::Use(_) | Item::Model(_) | Item::Train(_) => continue,
            };
            if let (Item::Layer(layer), true) = (item, is_edited) {
                names.edited.push(layer);
            }
            let first = *seen.entry((what, &name.name)).or_insert(declaration);
            if first.span != declaration.span {
                diagnostics.push(declared_twice(what, &name.name, declaration, first));
                // A file's own declaration is the one that was meant.
                if declaration.imported.is_some() || first.imported.is_none() {
                    continue;
                }
            }
            match item {
                Item::Layer(layer) => _ = names.layers.insert(name.name.clone(), LayerDef { layer, consts }),
                Item::Schema(schema) => {
                    names.schemas.retain(|(other, _)| other.name.name != name.name);
                    names.schemas.push((schema, consts));
                }
                _ => {}
            }
        }
        Some(names)
    }

    /// The layer of this name in a file; `None` where there is none.
    pub fn layer(&self, name: &str, file: FileId) -> Option<LayerDef<'a>> {
        let layers = self.others.get(&file).map_or(&self.layers, |other| &other.layers);
        layers.get(name).copied()
    }

    /// Is it a name that a file imports wrongly, which was reported?
    pub fn is_not_imported(&self, name: &str, file: FileId) -> bool {
        self.others.get(&file).map_or(self.not_imported, |other| other.not_imported).contains(name)
    }
}

/// The layers that can be used in a file that is not the model's. Of two of a name, which is reported where the file is the
/// model's, the file's own counts.
fn layers_of<'a>(
    file: &SourceFile<'a>,
    imports: &'a Imports<'a>,
    own: &'a Consts,
    consts: &'a [Consts],
) -> FileLayers<'a> {
    let imported = imports.found.iter().map(|found| (found.item, &consts[found.from]));
    let all = imported.chain(file.module.items.iter().map(|item| (item, own)));
    let layers = all.filter_map(|(item, consts)| match item {
        Item::Layer(layer) => Some((layer.name.name.clone(), LayerDef { layer, consts })),
        _ => None,
    });
    FileLayers { layers: layers.collect(), not_imported: &imports.failed }
}
