//! Tables with keys: CSV and TSV files, also compressed with gzip, and an `import.toml` that says what they hold.
//!
//! `docs/import.md` describes the file. A vertex is known by the text of its key, so that ids may be of any kind; the order
//! of the vertices is that of the rows. Each table is read once for its vertices, and once for each relation by a foreign
//! key that stands in it.

pub(crate) mod config;
mod features;
mod like;
mod links;
mod relations;
mod rows;
mod targets;
mod vertices;
mod write;

pub(crate) use write::write;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, files};

use self::config::{Config, DuplicateIds, OneOrMore, Split};
use self::like::Graph;
use crate::error::{Faults, ImportError, shown};
use crate::files::separator_of;
use crate::keys::Keys;
use crate::progress::Progress;
use crate::triples::name_of;

/// Separator between the parts of a key of several columns.
const JOINER: char = '|';

/// Reads the tables in the folder `source` as the file `config` describes them.
///
/// # Errors
/// With all faults of the configuration or of the tables.
pub(crate) fn read(
    source: &Path,
    config: &Path,
    graph: Option<&Dataset>,
    progress: &Progress,
) -> Result<Dataset, ImportError> {
    let text = files::read_to_string(config).map_err(|error| {
        let hint = "it says what the tables hold, and is named by `--config` or lies beside them (see docs/import.md)";
        Faults::one(config, format!("cannot be read: {error}; {hint}"))
    })?;
    let parsed: Config = toml::from_str(&text).map_err(|error| Faults::one(config, error.to_string().trim_end()))?;
    read_config(source, config, &parsed, &Words::TABLES, graph, progress)
}

/// Ways out of faults, in the words of the file that describes the tables.
pub(crate) struct Words {
    /// Of a number that is missing.
    pub missing: &'static str,
    /// Of an id that is there twice.
    pub duplicate: &'static str,
    /// Of an id that its table does not have; `{}` is the relation that names it.
    pub unknown: &'static str,
}

impl Words {
    const TABLES: Words = Words {
        missing: "write `missing = \"mean\"` or a number to its features",
        duplicate: "ids differ, or `duplicates = \"first\"` takes the first row of each",
        unknown: "add its row, or write `unknown = \"skip\"` or `\"add\"` to relation `{}`",
    };
}

/// Reads the tables in the folder `source` as `parsed` describes them, which stands in `file` or was made of it. They are
/// new rows of a `graph`, if there is one.
pub(crate) fn read_config(
    source: &Path,
    file: &Path,
    parsed: &Config,
    words: &Words,
    graph: Option<&Dataset>,
    progress: &Progress,
) -> Result<Dataset, ImportError> {
    let mut import = Import {
        source,
        file,
        config: parsed,
        words,
        vertices: Vec::new(),
        graph: graph.map(Graph::new),
        unread: Vec::new(),
        progress,
        faults: Faults::default(),
    };
    import.check();
    if import.faults.count > 0 {
        return import.faults.or(Dataset::default());
    }
    import.expect();
    let mut dataset = Dataset {
        name: parsed.name.clone().unwrap_or_else(|| name_of(source)),
        title: parsed.title.clone(),
        ..Dataset::default()
    };
    for of in &parsed.vertex_type {
        import.vertex_type(of, &mut dataset);
    }
    for of in &parsed.relation {
        import.relation(of, &mut dataset);
    }
    if let Some(graph) = import.graph.take().filter(|_| import.faults.count == 0)
        && let Err(why) = graph.add_named(&mut dataset)
    {
        import.wrong(why);
    }
    // After the relations, which may add vertices.
    for of in &parsed.link_split {
        let split = import.link_split(of);
        dataset.link_splits.push(split);
    }
    for (data, vertices) in dataset.vertex_types.iter_mut().zip(import.vertices) {
        (data.count, data.ids) = match vertices {
            Vertices::Keys(keys) => (keys.len(), Some(keys.into_ids())),
            Vertices::Rows(count) => (count, None),
        };
    }
    import.faults.or(dataset)
}

/// How the vertices of a type are known.
enum Vertices {
    Keys(Keys),
    /// By the number of their row, from 0.
    Rows(usize),
}

impl Vertices {
    fn find(&self, key: &str) -> Option<u32> {
        match self {
            Vertices::Keys(keys) => keys.get(key),
            Vertices::Rows(count) => key.parse().ok().filter(|&row: &u32| (row as usize) < *count),
        }
    }

    /// The vertex of a new key. None if there are too many, or vertices are known by their rows.
    fn add(&mut self, key: &str) -> Option<u32> {
        match self {
            Vertices::Keys(keys) => keys.add(key).map(|(number, _)| number),
            Vertices::Rows(_) => None,
        }
    }

    /// The vertices of many keys, which is faster than one after the other; None also of what is no key.
    fn find_all(&self, keys: &[Option<Cow<'_, str>>]) -> Vec<Option<u32>> {
        match self {
            Vertices::Keys(known) => {
                let texts: Vec<&str> = keys.iter().map(|key| key.as_deref().unwrap_or_default()).collect();
                let found = known.get_all(&texts);
                found.into_iter().zip(keys).map(|(found, key)| found.filter(|_| key.is_some())).collect()
            }
            Vertices::Rows(_) => keys.iter().map(|key| self.find(key.as_deref()?)).collect(),
        }
    }
}

struct Import<'a> {
    source: &'a Path,
    /// The configuration.
    file: &'a Path,
    config: &'a Config,
    words: &'a Words,
    /// By position of the vertex type, as far as they are read.
    vertices: Vec<Vertices>,
    graph: Option<Graph<'a>>,
    /// The vertex types whose ids are not known, because a table could not be read: nothing is said of those who name them.
    unread: Vec<usize>,
    progress: &'a Progress,
    faults: Faults,
}

impl<'a> Import<'a> {
    /// Reports a fault of the configuration.
    fn wrong(&mut self, message: impl Into<String>) {
        self.faults.add(self.file, None, message);
    }

    /// Refuses two labels, or two splits, of one name.
    fn check_names(&mut self, of: &str, labels: Vec<&str>, splits: Vec<&str>) {
        for (what, names) in [("labels", labels), ("splits", splits)] {
            if let Some(at) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
                let name = shown(names[at]);
                self.wrong(format!("{what} of {of} have names that differ, and two are called `{name}`"));
            }
        }
    }

    /// Checks what does not need the tables.
    fn check(&mut self) {
        let config = self.config;
        let mut seen = HashSet::new();
        for of in &config.vertex_type {
            if of.name.is_empty() || !seen.insert(&of.name) {
                self.wrong(format!("vertex types have names that differ, and two are called `{}`", shown(&of.name)));
            }
            let needs_rows = of.id.is_some()
                || !of.features.is_empty()
                || !of.label.list().is_empty()
                || !of.split.list().is_empty()
                || !of.more.is_empty()
                || of.time.is_some();
            if of.files.is_none() && needs_rows {
                self.wrong(format!("vertex type `{}` has columns but no `files`", shown(&of.name)));
            }
            if of.order == config::Order::Ids && of.id.is_none() {
                self.wrong(format!("vertex type `{}` has no `id` to be in the order of", shown(&of.name)));
            }
            if !of.more.is_empty() && of.duplicates == DuplicateIds::First {
                self.wrong(format!(
                    "vertex type `{}`: the rows of `more` are those of its table, of which `duplicates = \"first\"` drops some",
                    shown(&of.name)
                ));
            }
            let labels = of.label.list().iter().chain(of.more.iter().flat_map(|more| more.label.list()));
            let labels: Vec<&str> = labels.map(config::Label::name).collect();
            if !of.split.list().is_empty() && labels.is_empty() {
                self.wrong(format!("vertex type `{}` has a split but no `label` to learn", shown(&of.name)));
            }
            let splits = of.split.list().iter().map(config::Split::name).collect();
            self.check_names(&format!("vertex type `{}`", shown(&of.name)), labels, splits);
        }
        self.check_link_splits();
        if let Some(graph) = &self.graph {
            let types = config.vertex_type.iter().filter(|of| graph.vertex_type(&of.name).is_none());
            let types = types.map(|of| format!("vertex type `{}`", shown(&of.name)));
            let relations = config.relation.iter().filter(|of| graph.relation(&of.name).is_none());
            let relations = relations.map(|of| format!("relation `{}`", shown(&of.name)));
            for absent in types.chain(relations).collect::<Vec<_>>() {
                self.wrong(format!("the graph that `--like` names has no {absent}, so it cannot have new rows"));
            }
        }
        if config.vertex_type.is_empty() {
            self.wrong("there is no `[[vertex_type]]`");
        }
        let mut seen = HashSet::new();
        for of in &config.relation {
            let name = shown(&of.name);
            if of.name.is_empty() || !seen.insert(&of.name) {
                self.wrong(format!("relations have names that differ, and two are called `{name}`"));
            }
            for end in [&of.src, &of.dst] {
                if self.type_named(end).is_none() {
                    let known = config.vertex_type.iter().map(|v| format!("`{}`", shown(&v.name))).collect::<Vec<_>>();
                    let known = known.join(", ");
                    self.wrong(format!(
                        "relation `{name}`: there is no vertex type `{}` (there is {known})",
                        shown(end)
                    ));
                }
            }
            let labels: Vec<&str> = of.label.list().iter().map(config::Label::name).collect();
            let splits: Vec<&str> = of.split.list().iter().map(config::Split::name).collect();
            if labels.is_empty() && splits.len() > 1 {
                self.wrong(format!(
                    "relation `{name}` has {} splits of links: leave all but one out, or hold links out by `link_split`",
                    splits.len()
                ));
            }
            self.check_names(&format!("relation `{name}`"), labels, splits);
            let table = of.files.is_some() && of.src_key.is_some() && of.dst_key.is_some() && of.key.is_none();
            let foreign = of.key.is_some() && of.files.is_none() && of.src_key.is_none() && of.dst_key.is_none();
            if !table && !foreign {
                self.wrong(format!(
                    "relation `{name}` is either a table of edges (`files`, `src_key`, `dst_key`) or a foreign key in the table of its sources (`key`)"
                ));
            }
            if foreign && self.type_named(&of.src).is_some_and(|src| config.vertex_type[src].files.is_none()) {
                self.wrong(format!(
                    "relation `{name}` has a `key`, but its sources `{}` have no `files`",
                    shown(&of.src)
                ));
            }
            let bare = |end: &String| {
                self.type_named(end).is_none_or(|ty| {
                    let of = &config.vertex_type[ty];
                    of.features.is_empty()
                        && of.more.is_empty()
                        && of.label.list().is_empty()
                        && of.time.is_none()
                        && (of.files.is_none() || of.id.is_some())
                })
            };
            if of.unknown == config::Unknown::Add && !(bare(&of.src) && bare(&of.dst)) {
                self.wrong(format!(
                    "relation `{name}`: `unknown = \"add\"` adds vertices without a row, which a type with features, a label, a time or no `id` cannot have"
                ));
            }
        }
    }

    /// Field separator of a file: the configured one, or else a tab or comma by the name of the file.
    fn separator(&mut self, said: Option<char>, path: &Path) -> Option<u8> {
        let separator = said.unwrap_or(char::from(separator_of(path, b',')));
        let byte = u8::try_from(separator).ok().filter(|byte| !b"\"\r\n".contains(byte));
        if byte.is_none() {
            self.wrong(format!("the separator `{}` is not one byte between fields", separator.escape_debug()));
        }
        byte
    }

    fn type_named(&self, name: &str) -> Option<usize> {
        self.config.vertex_type.iter().position(|v| v.name == name)
    }

    /// Adds the files to what will be read, as often as they are.
    fn expect(&self) {
        let config = self.config;
        let foreign = |of: &'a config::Relation| {
            let src = self.type_named(&of.src)?;
            config.vertex_type[src].files.as_ref().filter(|_| of.key.is_some())
        };
        let of_relations = config.relation.iter().flat_map(|of| of.files.as_ref().or_else(|| foreign(of)));
        let held_out = config.link_split.iter().flat_map(|of| of.val.iter().chain(&of.test));
        let of_types =
            config.vertex_type.iter().flat_map(|of| of.files.iter().chain(of.more.iter().map(|more| &more.files)));
        let splits = config.vertex_type.iter().flat_map(|of| of.split.list());
        let named = splits.chain(config.relation.iter().flat_map(|of| of.split.list())).flat_map(Split::files);
        let all = of_types.chain(of_relations).chain(held_out).flat_map(OneOrMore::list).chain(named);
        // Errors in a pattern are reported when its files are read.
        let files = all.flat_map(|pattern| matched(self.source, pattern).unwrap_or_default());
        files.for_each(|file| self.progress.expect(&file));
    }

    /// The files that patterns name, in the order of their names, each once.
    fn files(&mut self, patterns: &OneOrMore) -> Vec<PathBuf> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        for pattern in patterns.list() {
            match matched(self.source, pattern) {
                Ok(files) if files.is_empty() => {
                    self.wrong(format!("there is no file `{}`", self.source.join(pattern).display()));
                }
                Ok(files) => found.extend(files.into_iter().filter(|file| seen.insert(file.clone()))),
                Err(error) => self.wrong(format!("`{}` is not a pattern of files: {error}", shown(pattern))),
            }
        }
        found
    }
}

/// The files in a folder that a pattern, or a name, matches.
fn matched(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, glob::PatternError> {
    let path = folder.join(pattern);
    if path.is_file() {
        return Ok(vec![path]);
    }
    let paths = if Path::new(pattern).is_absolute() {
        glob::glob(pattern)?
    } else {
        let folder = glob::Pattern::escape(&folder.to_string_lossy());
        glob::glob(&format!("{folder}/{pattern}"))?
    };
    let mut files: Vec<PathBuf> = paths.flatten().filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// For more vertices than the format holds.
const TOO_MANY: &str = "there are more than 2^30 vertices of a type";

/// A time as an integer: one as it is, or the seconds since 1970 of a date such as `2013-01-31 05:00`.
fn seconds(text: &str, column: &str) -> Result<i64, String> {
    if let Ok(integer) = text.parse() {
        return Ok(integer);
    }
    let wrong =
        || format!("`{}` in column `{column}` is neither an integer nor a date like `2013-01-31 05:00`", shown(text));
    // TOML's dates are those of RFC 3339.
    let found: toml::value::Datetime = text.parse().map_err(|_| wrong())?;
    let date = found.date.ok_or_else(wrong)?;
    let offset = match found.offset {
        Some(toml::value::Offset::Custom { minutes }) => i64::from(minutes),
        _ => 0,
    };
    let time =
        found.time.map_or(0, |t| i64::from(t.hour) * 3600 + i64::from(t.minute) * 60 + t.second.map_or(0, i64::from));
    Ok(days(i64::from(date.year), i64::from(date.month), i64::from(date.day)) * 86_400 + time - offset * 60)
}

/// Days since 1970-01-01 of a date in the Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that leap days are at their end.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
