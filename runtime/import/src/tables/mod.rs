//! Tables with keys: CSV and TSV files, also compressed with gzip, and an `import.toml` that says what they hold.
//!
//! `docs/import.md` describes the file. A vertex is known by the text of its key, so that ids may be of any kind; the order
//! of the vertices is that of the rows. Each table is read once for its vertices, and once for each relation by a foreign
//! key that stands in it.

mod config;
mod features;
mod links;
mod targets;
mod write;

pub(crate) use write::write;

use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hgnnc_graph::{Dataset, DenseFeatures, RelationData, VertexTypeData, files};

use self::config::{Config, DuplicateEdges, DuplicateIds, OneOrMore, Part};
use self::features::{Block, number};
use self::targets::{LabelRows, Named, SplitRows};
use crate::error::{Faults, ImportError, Unknown, shown};
use crate::files::{Rows, Style};
use crate::keys::Keys;
use crate::progress::Progress;
use crate::triples::name_of;

/// What joins the parts of a key of several columns.
const JOINER: char = '|';

/// Reads the tables in the folder `source` as the file `config` describes them.
///
/// # Errors
/// With all faults of the configuration or of the tables.
pub(crate) fn read(source: &Path, config: &Path, progress: &Progress) -> Result<Dataset, ImportError> {
    let text = files::read_to_string(config).map_err(|error| {
        let hint = "it says what the tables hold, and is named by `--config` or lies beside them (see docs/import.md)";
        Faults::one(config, format!("cannot be read: {error}; {hint}"))
    })?;
    let parsed: Config = toml::from_str(&text).map_err(|error| Faults::one(config, error.to_string().trim_end()))?;
    let mut import = Import {
        source,
        file: config,
        config: &parsed,
        vertices: Vec::new(),
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
        let relation = import.relation(of);
        dataset.relations.push(relation);
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
}

struct Import<'a> {
    source: &'a Path,
    /// The configuration.
    file: &'a Path,
    config: &'a Config,
    /// By position of the vertex type, as far as they are read.
    vertices: Vec<Vertices>,
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
                || of.time.is_some();
            if of.files.is_none() && needs_rows {
                self.wrong(format!("vertex type `{}` has columns but no `files`", shown(&of.name)));
            }
            if !of.split.list().is_empty() && of.label.list().is_empty() {
                self.wrong(format!("vertex type `{}` has a split but no `label` to learn", shown(&of.name)));
            }
            let labels: Vec<&str> = of.label.list().iter().map(config::Label::name).collect();
            let splits: Vec<&str> = of.split.list().iter().map(config::Split::name).collect();
            for (what, names) in [("labels", labels), ("splits", splits)] {
                if let Some(at) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
                    let (of, name) = (shown(&of.name), shown(names[at]));
                    self.wrong(format!(
                        "{what} of vertex type `{of}` have names that differ, and two are called `{name}`"
                    ));
                }
            }
        }
        self.check_link_splits();
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
        let of_types = config.vertex_type.iter().flat_map(|of| &of.files);
        let all = of_types.chain(of_relations).chain(held_out).flat_map(OneOrMore::list);
        // What is wrong with a pattern is reported when its files are read.
        let files = all.flat_map(|pattern| matched(self.source, pattern).unwrap_or_default());
        files.for_each(|file| self.progress.expect(&file));
    }

    /// The files that patterns name, in the order of their names.
    fn files(&mut self, patterns: &OneOrMore) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for pattern in patterns.list() {
            match matched(self.source, pattern) {
                Ok(files) if files.is_empty() => {
                    self.wrong(format!("there is no file `{}`", self.source.join(pattern).display()));
                }
                Ok(files) => found.extend(files),
                Err(error) => self.wrong(format!("`{}` is not a pattern of files: {error}", shown(pattern))),
            }
        }
        found
    }

    /// Opens each file of a table with the positions of its columns, and calls `row` with each row. Whether all could be
    /// opened and have the columns; otherwise it is reported.
    fn rows(
        &mut self,
        table: (&OneOrMore, Option<char>, Option<&'a [String]>),
        wanted: &[String],
        mut row: impl FnMut(&mut Import<'a>, &Row<'_>),
    ) -> bool {
        let (patterns, separator, columns) = table;
        let files = self.files(patterns);
        let mut all = !files.is_empty();
        for path in files {
            let ends = path.to_string_lossy().trim_end_matches(".gz").to_ascii_lowercase();
            let tabs = [".tsv", ".tab"].iter().any(|end| ends.ends_with(end));
            let separator = separator.unwrap_or(if tabs { '\t' } else { ',' });
            let Ok(separator) = u8::try_from(separator) else {
                self.wrong(format!("the separator `{separator}` is not one byte"));
                return false;
            };
            let style = Style { separator, quotes: true, columns, ragged: false };
            let opened = Rows::open(&path, &style, self.progress, &mut self.faults);
            let found = opened.and_then(|rows| rows.positions(wanted, &mut self.faults).map(|at| (rows, at)));
            let Some((mut rows, positions)) = found else {
                all = false;
                continue;
            };
            while let Some(line) = rows.next(&mut self.faults) {
                let mut fields = Vec::with_capacity(positions.len());
                for &at in &positions {
                    let missing = &self.config.missing_values;
                    let field = rows.field(at, line, &mut self.faults);
                    fields.push(field.filter(|text| !missing.iter().any(|m| m == text)));
                }
                row(self, &Row { path: &path, line, fields });
            }
        }
        all
    }

    fn vertex_type(&mut self, of: &'a config::VertexType, dataset: &mut Dataset) {
        let index = dataset.vertex_types.len();
        let mut data = VertexTypeData { name: of.name.clone(), ..VertexTypeData::default() };
        let Some(patterns) = &of.files else {
            self.vertices.push(Vertices::Keys(Keys::default()));
            dataset.vertex_types.push(data);
            return;
        };
        let name = shown(&of.name);
        let mut blocks = Vec::new();
        for features in &of.features {
            match Block::new(features) {
                Ok(block) => blocks.push(block),
                Err(error) => self.wrong(format!("features of vertex type `{name}`: {error}")),
            }
        }
        let mut labels = Vec::new();
        for label in of.label.list() {
            match LabelRows::new(label) {
                Ok(label) => labels.push(label),
                Err(error) => self.wrong(format!("label of vertex type `{name}`: {error}")),
            }
        }
        let mut splits = Vec::new();
        for split in of.split.list() {
            match SplitRows::new(split) {
                Ok(split) => splits.push(split),
                Err(error) => self.wrong(format!("split of vertex type `{name}`: {error}")),
            }
        }
        // All columns that are read, each range of them for one of the takers.
        let id: &[String] = of.id.as_ref().map_or(&[], OneOrMore::list);
        let mut wanted = id.to_vec();
        let mut place = |columns: &[String]| {
            let start = wanted.len();
            wanted.extend_from_slice(columns);
            start..wanted.len()
        };
        let block_ranges: Vec<_> = blocks.iter().map(|block| place(block.columns())).collect();
        let label_ranges: Vec<_> = labels.iter().map(|label| place(label.columns())).collect();
        let mut one = |column: &String| place(std::slice::from_ref(column)).start;
        let split_at: Vec<_> = splits.iter().map(|split| split.column().map(&mut one)).collect();
        let time_at = of.time.as_ref().map(|column| place(std::slice::from_ref(column)).start);

        let mut keys = Keys::default();
        let mut count = 0;
        let mut time = Vec::new();
        let read = self.rows((patterns, of.separator, of.columns.as_deref()), &wanted, |import, row| {
            if !id.is_empty() {
                let Some(key) = import.key(row, 0, id) else { return };
                match keys.add(&key) {
                    None => return import.faults.add(row.path, Some(row.line), TOO_MANY),
                    Some((_, true)) => {}
                    Some((_, false)) if of.duplicates == DuplicateIds::First => return,
                    Some((_, false)) => {
                        let message = format!(
                            "the id `{}` is there already: ids differ, or `duplicates = \"first\"` takes the first row of each",
                            shown(&key)
                        );
                        return import.faults.add(row.path, Some(row.line), message);
                    }
                }
            }
            count += 1;
            let mut take = |result: Result<(), String>| {
                if let Err(error) = result {
                    import.faults.add(row.path, Some(row.line), error);
                }
            };
            for (block, range) in blocks.iter_mut().zip(&block_ranges) {
                take(block.push(&row.fields[range.clone()]));
            }
            for (label, range) in labels.iter_mut().zip(&label_ranges) {
                take(label.push(&row.fields[range.clone()]));
            }
            for (split, at) in splits.iter_mut().zip(&split_at) {
                at.iter().for_each(|&at| take(split.push(row.fields[at])));
            }
            if let (Some(at), Some(column)) = (time_at, &of.time) {
                let found = row.fields[at].map_or(Err(format!("column `{column}` has no time")), |t| seconds(t, column));
                time.push(*found.as_ref().unwrap_or(&0));
                take(found.map(drop));
            }
        });
        if !read {
            self.unread.push(index);
        }
        // What follows is of all rows, which a faulty one may not have reached.
        if self.faults.count == 0 {
            (data.features, data.transforms) = features::features(blocks, count);
            data.time = time_at.map(|_| time);
        }
        self.vertices.push(if id.is_empty() { Vertices::Rows(count) } else { Vertices::Keys(keys) });
        dataset.vertex_types.push(data);
        if self.faults.count == 0 {
            self.targets(index, labels, splits, dataset);
        }
    }

    /// Adds the labels and splits of a type to the dataset. A split is of vertices with any of the labels.
    fn targets(&mut self, index: usize, labels: Vec<LabelRows<'a>>, splits: Vec<SplitRows<'a>>, dataset: &mut Dataset) {
        let mut labelled = labels.first().map(|label| label.labelled().to_vec()).unwrap_or_default();
        for label in labels.iter().skip(1) {
            labelled.iter_mut().zip(label.labelled()).for_each(|(any, &own)| *any |= own);
        }
        for split in splits {
            let named = self.named(index, split.config, &labelled);
            dataset.splits.push(split.finish(index, &labelled, named));
        }
        for label in labels {
            match label.finish(index) {
                Ok(label) => dataset.labels.push(label),
                Err(error) => {
                    self.wrong(format!("vertex type `{}`: {error}", shown(&self.config.vertex_type[index].name)));
                }
            }
        }
    }

    /// The parts of a split that are files of ids.
    fn named(&mut self, index: usize, split: &config::Split, labelled: &[bool]) -> Option<Named> {
        let parts = [&split.train, &split.val, &split.test];
        if !parts.iter().any(|part| matches!(part, Some(Part::File(_)))) {
            return None;
        }
        let mut taken = vec![false; labelled.len()];
        let mut ids = |part: &Option<Part>| {
            let Some(Part::File(file)) = part else { return Vec::new() };
            self.ids(index, &self.source.join(file), labelled, &mut taken)
        };
        Some(Named { train: ids(parts[0]), val: ids(parts[1]), test: ids(parts[2]) })
    }

    /// The vertices of a type that a file names, an id in each line.
    fn ids(&mut self, index: usize, path: &Path, labelled: &[bool], taken: &mut [bool]) -> Vec<u32> {
        let column = ["id".to_owned()];
        // A key of several columns stands in one line as it is written in the results.
        let style = Style { separator: 0, quotes: false, columns: Some(&column), ragged: false };
        let Some(mut rows) = Rows::open(path, &style, self.progress, &mut self.faults) else { return Vec::new() };
        let mut found = Vec::new();
        let mut unknown = Unknown::default();
        while let Some(line) = rows.next(&mut self.faults) {
            let Some(id) = rows.field(0, line, &mut self.faults) else { continue };
            match self.vertices[index].find(id) {
                None => unknown.add(line, id),
                Some(vertex) if !labelled[vertex as usize] => {
                    let message = format!("`{}` has no label, and a split is of labelled vertices", shown(id));
                    self.faults.add(path, Some(line), message);
                }
                Some(vertex) if std::mem::replace(&mut taken[vertex as usize], true) => {
                    self.faults.add(path, Some(line), format!("`{}` is in the split already", shown(id)));
                }
                Some(vertex) => found.push(vertex),
            }
        }
        let name = &self.config.vertex_type[index].name;
        unknown.report(&mut self.faults, path, &format!("vertex of type `{}`", shown(name)), "name ids of its table");
        found.sort_unstable();
        found
    }

    /// The key in some columns of a row. None if one of them is missing, which is reported.
    fn key<'r>(&mut self, row: &Row<'r>, at: usize, columns: &[String]) -> Option<Cow<'r, str>> {
        let mut key = Cow::Borrowed("");
        for (i, column) in columns.iter().enumerate() {
            let Some(part) = row.fields[at + i] else {
                self.faults.add(
                    row.path,
                    Some(row.line),
                    format!("column `{}` has no value, but is an id", shown(column)),
                );
                return None;
            };
            if i == 0 {
                key = Cow::Borrowed(part);
            }
            if columns.len() > 1 && part.contains(JOINER) {
                let message = format!("`{}` holds `{JOINER}`, which joins the columns of an id", shown(part));
                self.faults.add(row.path, Some(row.line), message);
                return None;
            }
            if i > 0 {
                let key = key.to_mut();
                key.push(JOINER);
                key.push_str(part);
            }
        }
        Some(key)
    }

    fn relation(&mut self, of: &'a config::Relation) -> RelationData {
        let config = self.config;
        // The names were checked.
        let (src, dst) = (self.type_named(&of.src).unwrap_or(0), self.type_named(&of.dst).unwrap_or(0));
        if self.unread.contains(&src) || self.unread.contains(&dst) {
            return RelationData::default();
        }
        let of_src = &config.vertex_type[src];
        let (table, src_key, dst_key) = match (&of.key, &of.files, &of.src_key, &of.dst_key) {
            (None, Some(files), Some(src_key), Some(dst_key)) => {
                ((files, of.separator, of.columns.as_deref()), src_key.list(), dst_key.list())
            }
            (Some(key), ..) => {
                let Some(files) = &of_src.files else { return RelationData::default() };
                let id: &[String] = of_src.id.as_ref().map_or(&[], OneOrMore::list);
                ((files, of_src.separator, of_src.columns.as_deref()), id, key.list())
            }
            _ => return RelationData::default(),
        };
        let foreign = of.key.is_some();
        let mut wanted = [src_key, dst_key].concat();
        let mut place = |columns: &[String]| {
            let start = wanted.len();
            wanted.extend_from_slice(columns);
            start..wanted.len()
        };
        let weight_at = of.weight.as_ref().map(|column| place(std::slice::from_ref(column)).start);
        let time_at = of.time.as_ref().map(|column| place(std::slice::from_ref(column)).start);
        let columns: &[String] = of.features.as_ref().map_or(&[], OneOrMore::list);
        let range = place(columns);

        let mut data = RelationData { name: of.name.clone(), src, dst, ..RelationData::default() };
        let (mut weight, mut time, mut features) = (Vec::new(), Vec::new(), Vec::new());
        let mut unknown = [Unknown::default(), Unknown::default()];
        let mut unknown_file = [None, None];
        let mut seen = HashSet::new();
        let mut row_number = 0u32;
        self.rows(table, &wanted, |import, row| {
            let own = row_number;
            row_number += 1;
            // An edge by a foreign key that is not given is no edge.
            if foreign && row.fields[src_key.len()..src_key.len() + dst_key.len()].iter().any(Option::is_none) {
                return;
            }
            let skips = of.unknown == config::Unknown::Skip;
            let missing = |range: std::ops::Range<usize>| row.fields[range].iter().any(Option::is_none);
            if skips && missing(0..src_key.len() + dst_key.len()) {
                return;
            }
            let mut end = |side: usize, ty: usize, at: usize, columns: &[String]| -> Option<u32> {
                if side == 0 && foreign && columns.is_empty() {
                    return Some(own);
                }
                let key = import.key(row, at, columns)?;
                let adds = of.unknown == config::Unknown::Add || config.vertex_type[ty].files.is_none();
                let found = match &mut import.vertices[ty] {
                    Vertices::Keys(keys) if adds => match keys.add(&key) {
                        Some((number, _)) => Some(number),
                        None => {
                            import.faults.add(row.path, Some(row.line), TOO_MANY);
                            return None;
                        }
                    },
                    known => known.find(&key),
                };
                if found.is_none() && !skips {
                    unknown_file[side].get_or_insert_with(|| row.path.to_path_buf());
                    unknown[side].add(row.line, &key);
                }
                found
            };
            let ends = (end(0, src, 0, src_key), end(1, dst, src_key.len(), dst_key));
            let (Some(from), Some(to)) = ends else { return };
            if of.duplicates == DuplicateEdges::Drop && !seen.insert(u64::from(from) << 32 | u64::from(to)) {
                return;
            }
            data.src_ids.push(from);
            data.dst_ids.push(to);
            let mut read = |at: usize, column: &str| -> f32 {
                let found =
                    row.fields[at].map_or(Err(format!("column `{column}` has no value")), |t| number(t, column));
                found.unwrap_or_else(|error| {
                    import.faults.add(row.path, Some(row.line), error);
                    0.0
                }) as f32
            };
            if let (Some(at), Some(column)) = (weight_at, &of.weight) {
                weight.push(read(at, column));
            }
            for (at, column) in range.clone().zip(columns) {
                features.push(read(at, column));
            }
            if let (Some(at), Some(column)) = (time_at, &of.time) {
                let found =
                    row.fields[at].map_or(Err(format!("column `{column}` has no time")), |t| seconds(t, column));
                time.push(found.unwrap_or_else(|error| {
                    import.faults.add(row.path, Some(row.line), error);
                    0
                }));
            }
        });
        for ((unknown, file), ty) in unknown.into_iter().zip(unknown_file).zip([src, dst]) {
            let what = format!("vertex of type `{}`", shown(&config.vertex_type[ty].name));
            let way_out =
                format!("add its row, or write `unknown = \"skip\"` or `\"add\"` to relation `{}`", shown(&of.name));
            unknown.report(&mut self.faults, file.as_deref().unwrap_or(self.file), &what, &way_out);
        }
        data.weight = of.weight.as_ref().map(|_| weight.into());
        data.time = of.time.as_ref().map(|_| time);
        data.features = of.features.as_ref().map(|_| DenseFeatures { dim: columns.len(), rows: features.into() });
        data
    }
}

/// The files in a folder that a pattern, or a name, matches.
fn matched(folder: &Path, pattern: &str) -> Result<Vec<PathBuf>, glob::PatternError> {
    let path = folder.join(pattern);
    if path.is_file() {
        return Ok(vec![path]);
    }
    let folder = glob::Pattern::escape(&folder.to_string_lossy());
    let paths = glob::glob(&format!("{folder}/{pattern}"))?;
    let mut files: Vec<PathBuf> = paths.flatten().filter(|path| path.is_file()).collect();
    files.sort();
    Ok(files)
}

/// For more vertices than the format holds.
const TOO_MANY: &str = "there are more than 2^30 vertices of a type";

/// A row of a table: the fields of the wanted columns, None where a value is missing.
struct Row<'r> {
    path: &'r Path,
    line: u64,
    fields: Vec<Option<&'r str>>,
}

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
