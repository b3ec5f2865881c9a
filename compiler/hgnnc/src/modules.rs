//! Finds the files that models import from: paths relative to a file, and packages of an `hgnnc.toml`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hgnnc_dataset::files;
use hgnnc_driver::{ModuleFile, ModuleFiles, ModulePath, NotFound};
use serde::Deserialize;

use crate::source;

/// The file that declares packages.
const MANIFEST: &str = "hgnnc.toml";

/// The name of the standard library, which no package can have.
const STD: &str = "std";

/// Ending of source files.
const ENDING: &str = "hgnn";

/// The files around a model. Packages are those of the `hgnnc.toml` that is nearest to the model's own file, upwards from
/// its folder, for all files of the model.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The files that were found, the model's own first: each with the path by which it is opened.
    found: Vec<PathBuf>,
    /// Their numbers by their paths without symbolic links.
    numbers: BTreeMap<PathBuf, usize>,
    packages: Option<Result<Packages, NotFound>>,
}

/// The packages that models can name.
#[derive(Clone, Default, Debug)]
struct Packages {
    manifest: Option<PathBuf>,
    folders: BTreeMap<String, PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    #[serde(default)]
    packages: BTreeMap<String, PathBuf>,
}

impl Folder {
    /// The files around a model, which need not be a file itself.
    pub(crate) fn of(model: &Path) -> Self {
        let own = std::fs::canonicalize(model).ok().map(|own| (own, 0));
        Self { found: vec![model.to_owned()], numbers: own.into_iter().collect(), packages: None }
    }

    /// Reads a file, relative to which others may be named later.
    fn read(&mut self, path: PathBuf) -> Result<ModuleFile, NotFound> {
        let name = shown(&path);
        let whole = std::fs::canonicalize(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => NotFound::File { looked_for: name.clone(), others: others(&path) },
            _ => NotFound::Unreadable(format!("cannot read `{name}`: {error}")),
        })?;
        let text = source::text(&path).map_err(|error| NotFound::Unreadable(error.to_string()))?;
        let number = *self.numbers.entry(whole).or_insert(self.found.len());
        if number == self.found.len() {
            self.found.push(path);
        }
        Ok(ModuleFile { number, name, text: Arc::from(text) })
    }

    fn packages(&mut self) -> Result<Packages, NotFound> {
        let own = folder_or_here(&self.found[0]);
        self.packages.get_or_insert_with(|| packages(own)).clone()
    }
}

impl ModuleFiles for Folder {
    fn find(&mut self, from: usize, wanted: &ModulePath<'_>) -> Result<ModuleFile, NotFound> {
        match wanted {
            ModulePath::File(path) => {
                let found = self.read(joined(folder_of(&self.found[from]), Path::new(path)));
                let folder = path.rfind('/').map_or("", |end| &path[..=end]);
                found.map_err(|reason| in_folder(reason, |other| Some(format!("{folder}{other}"))))
            }
            ModulePath::Package { package, module } => {
                let Packages { manifest, folders } = self.packages()?;
                let Some(folder) = folders.get(*package) else {
                    let manifest = manifest.map(|manifest| shown(&manifest));
                    return Err(NotFound::Package { manifest, known: folders.into_keys().collect() });
                };
                let mut path = folder.clone();
                path.extend(module);
                // The last part is a name, whose dots begin no ending.
                let name = format!("{}.{ENDING}", module.last().unwrap_or(package));
                path.set_file_name(name);
                let plain = |part: &&str| {
                    let mut parts = Path::new(part).components();
                    matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None))
                };
                if !module.iter().all(plain) {
                    return Err(NotFound::File { looked_for: shown(&path), others: vec![] });
                }
                let folders = module.split_last().map_or(&[][..], |(_, folders)| folders);
                let before: String = folders.iter().map(|part| format!("{part}::")).collect();
                let ending = format!(".{ENDING}");
                let name = |other: &str| Some(format!("{package}::{before}{}", other.strip_suffix(&ending)?));
                self.read(path).map_err(|reason| in_folder(reason, name))
            }
        }
    }
}

/// A reason with other files as they stand in a `use`.
fn in_folder(reason: NotFound, name: impl Fn(&str) -> Option<String>) -> NotFound {
    match reason {
        NotFound::File { looked_for, others } => {
            NotFound::File { looked_for, others: others.iter().filter_map(|other| name(other)).collect() }
        }
        reason => reason,
    }
}

/// The packages for models in a folder.
fn packages(folder: &Path) -> Result<Packages, NotFound> {
    let Ok(folder) = std::fs::canonicalize(folder) else { return Ok(Packages::default()) };
    let Some(path) = folder.ancestors().map(|folder| folder.join(MANIFEST)).find(|path| path.exists()) else {
        return Ok(Packages::default());
    };
    let wrong = |reason: String| NotFound::Unreadable(format!("`{}`: {reason}", shown(&path)));
    let text = files::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    let Manifest { packages } =
        toml::from_str(&text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    if packages.contains_key(STD) {
        return Err(wrong(format!("the package `{STD}` is the standard library: choose another name")));
    }
    let base = folder_of(&path);
    let folders = packages.into_iter().map(|(name, folder)| (name, joined(base, &folder))).collect();
    Ok(Packages { manifest: Some(path), folders })
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

/// A path relative to a folder, without `..` wherever that leads to the same file.
fn joined(folder: &Path, path: &Path) -> PathBuf {
    let whole = folder.join(path);
    let mut plain = PathBuf::new();
    for part in whole.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(plain.components().next_back(), Some(Component::Normal(_))) => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    // A symbolic link to a folder has another parent.
    let parents = [&whole, &plain].map(|path| std::fs::canonicalize(folder_or_here(path)).ok());
    if parents[0] == parents[1] { plain } else { whole }
}

fn folder_or_here(path: &Path) -> &Path {
    let folder = folder_of(path);
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// A path for messages: from the folder of the process where the file is below it.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    let below =
        here.as_deref().and_then(|here| path.strip_prefix(here).ok()).filter(|path| !path.as_os_str().is_empty());
    below.unwrap_or(path).display().to_string()
}

/// The names of source files in the folder of one that is not there.
fn others(missing: &Path) -> Vec<String> {
    const MOST: usize = 100;
    let Ok(entries) = std::fs::read_dir(folder_or_here(missing)) else { return vec![] };
    let is_source = |path: &PathBuf| path.extension() == Some(OsStr::new(ENDING));
    let names = entries.flatten().map(|entry| entry.path()).filter(is_source);
    let mut names: Vec<String> =
        names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).take(MOST).collect();
    names.sort();
    names
}
