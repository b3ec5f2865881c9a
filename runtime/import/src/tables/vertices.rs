//! Vertices of a type: ids, features, label, split and time.

use std::path::Path;

use hgnnc_dataset::{Dataset, EdgeLabel, LabelData, VertexTypeData};
use serde_json::Value;

use super::config::{self, DuplicateIds, OneOrMore, Part};
use super::features::{self, Block};
use super::like;
use super::rows::{Row, TableOf};
use super::targets::{LabelRows, Named, SplitOf, SplitRows};
use super::{Import, JOINER, TOO_MANY, Vertices, seconds};
use crate::error::{Faults, Unknown, shown};
use crate::files::json::{check_integers, text_of};
use crate::files::{Format, Lines, Rows, Style, Table};
use crate::keys::Keys;
use crate::progress::Progress;

/// Consumers of the columns of a table: features and labels.
struct Takers<'a> {
    blocks: Vec<Block>,
    labels: Vec<LabelRows<'a>>,
}

impl<'a> Takers<'a> {
    fn new(
        import: &mut Import<'a>,
        name: &str,
        features: &'a [config::Features],
        labels: &'a [config::Label],
    ) -> Takers<'a> {
        let name = shown(name);
        let mut blocks = Vec::new();
        for features in features {
            match Block::new(features, import.words) {
                Ok(block) => blocks.push(block),
                Err(error) => import.wrong(format!("features of vertex type `{name}`: {error}")),
            }
        }
        let mut rows = Vec::new();
        for label in labels {
            match LabelRows::new(label) {
                Ok(label) => rows.push(label),
                Err(error) => import.wrong(format!("label of vertex type `{name}`: {error}")),
            }
        }
        Takers { blocks, labels: rows }
    }

    /// The columns that are taken.
    fn columns(&self) -> Vec<String> {
        let labels = self.labels.iter().flat_map(|label| label.columns());
        self.blocks.iter().flat_map(Block::columns).chain(labels).cloned().collect()
    }

    /// Takes the fields of a row from `at` on, those of `columns`.
    fn push(&mut self, row: &Row<'_>, at: usize, mut result: impl FnMut(Result<(), String>)) {
        let mut end = at;
        let mut next = |columns: &[String]| {
            let start = end;
            end += columns.len();
            start..end
        };
        for block in &mut self.blocks {
            let range = next(block.columns());
            result(block.push(&row.fields[range]));
        }
        for label in &mut self.labels {
            let range = next(label.columns());
            let fields = &row.fields[range.clone()];
            // A class that is listed is no missing value.
            let class = row.stand_in(range.start).filter(|text| label.lists(text));
            result(label.push(if class.is_some() { std::slice::from_ref(&class) } else { fields }));
        }
    }
}

impl<'a> Import<'a> {
    pub(super) fn vertex_type(&mut self, of: &'a config::VertexType, dataset: &mut Dataset) {
        let index = dataset.vertex_types.len();
        let mut data = VertexTypeData { name: of.name.clone(), ..VertexTypeData::default() };
        let Some(files) = &of.files else {
            if let Some(of) = self.graph.as_ref().and_then(|graph| graph.vertex_type(&of.name)) {
                data = like::without_rows(of);
            }
            self.vertices.push(Vertices::Keys(Keys::default()));
            dataset.vertex_types.push(data);
            return;
        };
        let mut takers = Takers::new(self, &of.name, &of.features, of.label.list());
        let mut splits = Vec::new();
        for split in of.split.list() {
            match SplitRows::new(split, SplitOf::Labelled) {
                Ok(split) => splits.push(split),
                Err(error) => self.wrong(format!("split of vertex type `{}`: {error}", shown(&of.name))),
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
        let taken = place(&takers.columns());
        let split_ranges: Vec<_> = splits.iter().map(|split| place(split.columns())).collect();
        let time_at = of.time.as_ref().map(|column| place(std::slice::from_ref(column)).start);

        let mut keys = Keys::default();
        let mut count = 0;
        let mut time = Vec::new();
        let table = TableOf { files, separator: of.separator, format: of.format, columns: of.columns.as_deref() };
        let mut read = self.rows(&table, &wanted, |import, row| {
            if !id.is_empty() {
                let Some(key) = import.key(row, 0, id) else { return };
                match keys.add(&key) {
                    None => return import.faults.add(row.path, Some(row.line), TOO_MANY),
                    Some((_, true)) => {}
                    Some((_, false)) if of.duplicates == DuplicateIds::First => return,
                    Some((_, false)) => {
                        let message = format!("the id `{}` is there already: {}", shown(&key), import.words.duplicate);
                        return import.faults.add(row.path, Some(row.line), message);
                    }
                }
            }
            if count == MOST {
                return import.faults.add(row.path, Some(row.line), TOO_MANY);
            }
            count += 1;
            let mut take = |result: Result<(), String>| {
                if let Err(error) = result {
                    import.faults.add(row.path, Some(row.line), error);
                }
            };
            takers.push(row, taken.start, &mut take);
            for (split, range) in splits.iter_mut().zip(&split_ranges) {
                take(split.push(&row.fields[range.clone()]));
            }
            if let (Some(at), Some(column)) = (time_at, &of.time) {
                let found =
                    row.fields[at].map_or(Err(format!("column `{column}` has no time")), |t| seconds(t, column));
                time.push(*found.as_ref().unwrap_or(&0));
                take(found.map(drop));
            }
        });
        let Takers { mut blocks, mut labels } = takers;
        for more in &of.more {
            let (found, all) = self.more(of, more, count);
            read &= all;
            blocks.extend(found.blocks);
            labels.extend(found.labels);
        }
        if !read {
            self.unread.push(index);
        }
        let order = (of.order == config::Order::Ids).then(|| keys.sorted());
        if let Some(order) = &order {
            keys = keys.taken(order);
        }
        // The steps below need all rows, which a table with faults may not have.
        if self.faults.count == 0 {
            let order = order.as_deref();
            let graph = self.graph.as_ref().and_then(|graph| graph.vertex_type(&of.name));
            let mut notes = Vec::new();
            let made = features::features(blocks, count, order, graph, &mut notes);
            notes.into_iter().for_each(|note| self.progress.note(format!("vertex type `{}`: {note}", shown(&of.name))));
            match made {
                Ok(made) => (data.features, data.transforms) = made,
                Err(error) => self.wrong(format!("features of vertex type `{}`: {error}", shown(&of.name))),
            }
            data.time = time_at.map(|_| match order {
                Some(order) => order.iter().map(|&v| time[v as usize]).collect(),
                None => time,
            });
        }
        self.vertices.push(if id.is_empty() { Vertices::Rows(count) } else { Vertices::Keys(keys) });
        dataset.vertex_types.push(data);
        if self.faults.count == 0 {
            self.targets(index, labels, splits, order.as_deref(), dataset);
        }
    }

    /// Further columns of the `count` rows of a type; and whether they could be read.
    fn more(&mut self, of: &'a config::VertexType, more: &'a config::More, count: usize) -> (Takers<'a>, bool) {
        let mut takers = Takers::new(self, &of.name, &more.features, more.label.list());
        let table = TableOf {
            files: &more.files,
            separator: more.separator,
            format: more.format,
            columns: more.columns.as_deref(),
        };
        let (mut rows, mut last) = (0, None);
        let read = self.rows(&table, &takers.columns(), |import, row| {
            rows += 1;
            if last.as_deref() != Some(row.path) {
                last = Some(row.path.to_path_buf());
            }
            takers.push(row, 0, |result| {
                if let Err(error) = result {
                    import.faults.add(row.path, Some(row.line), error);
                }
            });
        });
        // Faults of the first table took rows of it away.
        if read && rows != count && self.faults.count == 0 {
            let name = shown(&of.name);
            let message = format!(
                "there are {rows} rows up to the end of this table, but {count} of vertex type `{name}`: tables without ids have a row for each vertex, in the same order"
            );
            let file = last.as_deref().unwrap_or(self.file).to_path_buf();
            self.faults.add(&file, None, message);
        }
        (takers, read)
    }

    /// Adds the labels and splits of a type to the dataset. A split is of vertices with any of the labels.
    fn targets(
        &mut self,
        index: usize,
        mut labels: Vec<LabelRows<'a>>,
        mut splits: Vec<SplitRows<'a>>,
        order: Option<&[u32]>,
        dataset: &mut Dataset,
    ) {
        let name = shown(&self.config.vertex_type[index].name);
        for label in &mut labels {
            if let Err(error) = label.decide() {
                return self.wrong(format!("vertex type `{name}`: {error}"));
            }
        }
        if let Some(order) = order {
            labels.iter_mut().for_each(|label| label.reorder(order));
            splits.iter_mut().for_each(|split| split.reorder(order));
        }
        let mut labelled = labels.first().map(|label| label.labelled().to_vec()).unwrap_or_default();
        for label in labels.iter().skip(1) {
            labelled.iter_mut().zip(label.labelled()).for_each(|(any, &own)| *any |= own);
        }
        for split in splits {
            let named = self.named(index, split.config, &labelled);
            let unlabelled = split.unlabelled(&labelled);
            if unlabelled > 0 {
                let split = shown(split.config.name());
                self.progress.note(format!(
                    "{unlabelled} vertices of `{name}` that split `{split}` names have no label: they are left out of it"
                ));
            }
            dataset.splits.push(split.finish(index, &labelled, named));
        }
        for label in labels {
            let of =
                self.graph.as_ref().and_then(|graph| graph.label(&self.config.vertex_type[index].name, label.name()));
            match label.finish(of.map(|of| &of.class_names[..])) {
                Ok(EdgeLabel { name, values, class_names }) => {
                    dataset.labels.push(LabelData { name, vertex_type: index, values, class_names });
                }
                Err(error) => self.wrong(format!("vertex type `{name}`: {error}")),
            }
        }
    }

    /// The parts of a split that are files of ids.
    fn named(&mut self, index: usize, split: &config::Split, labelled: &[bool]) -> Option<Named> {
        split.files().next()?;
        let parts = [&split.train, &split.val, &split.test];
        let mut taken = vec![false; labelled.len()];
        let mut ids = |part: &Option<Part>| {
            let Some(Part::File(file)) = part else { return Vec::new() };
            self.ids(index, &self.source.join(file), labelled, &mut taken)
        };
        Some(Named { train: ids(parts[0]), val: ids(parts[1]), test: ids(parts[2]) })
    }

    /// The vertices of a type that a file names.
    fn ids(&mut self, index: usize, path: &Path, labelled: &[bool], taken: &mut [bool]) -> Vec<u32> {
        let mut found = Vec::new();
        let mut unknown = Unknown::default();
        self.each_id(index, path, &mut |import, line, id| match import.vertices[index].find(id) {
            None => unknown.add(line, id),
            Some(vertex) if !labelled[vertex as usize] => {
                let message = format!("`{}` has no label, and a split is of labelled vertices", shown(id));
                import.faults.add(path, Some(line), message);
            }
            Some(vertex) if std::mem::replace(&mut taken[vertex as usize], true) => {
                import.faults.add(path, Some(line), format!("`{}` is in the split already", shown(id)));
            }
            Some(vertex) => found.push(vertex),
        });
        let name = &self.config.vertex_type[index].name;
        unknown.report(&mut self.faults, path, &format!("vertex of type `{}`", shown(name)), "name ids of its table");
        found.sort_unstable();
        found
    }

    /// Calls `each` with the ids in a file: one in each line, as results have them; rows of a table whose header has the
    /// columns of the id; or JSON values, of which a list is a key of several columns.
    fn each_id(&mut self, index: usize, path: &Path, each: &mut dyn FnMut(&mut Import<'a>, u64, &str)) {
        let of = &self.config.vertex_type[index];
        let id: &[String] = of.id.as_ref().map_or(&[], OneOrMore::list);
        match Format::of(path) {
            Format::Json => {
                let Some(mut lines) = Lines::open(path, self.progress, &mut self.faults) else { return };
                while let Some((line, text)) = lines.next_filled(&mut self.faults) {
                    match json_id(text, id) {
                        Ok(key) => each(self, line, &key),
                        Err(error) => self.faults.add(path, Some(line), error),
                    }
                }
            }
            Format::Parquet => self.table_ids(path, None, None, id, each),
            Format::Csv => {
                if let Some(separator) = self.header(index, path, id) {
                    return self.table_ids(path, Some(separator), Some(Format::Csv), id, each);
                }
                let column = ["id".to_owned()];
                let style = Style { separator: 0, quotes: false, columns: Some(&column), ragged: false };
                let Some(mut rows) = Rows::open(path, &style, self.progress, &mut self.faults) else { return };
                while let Some(line) = rows.next(&mut self.faults) {
                    let Some(id) = rows.field(0, line, &mut self.faults) else { continue };
                    let id = id.to_owned();
                    each(self, line, &id);
                }
            }
        }
    }

    /// Column separator of a file whose first line names the columns of the id. One column is a header only where no
    /// vertex is called like it.
    fn header(&self, index: usize, path: &Path, id: &[String]) -> Option<u8> {
        if id.is_empty() || (id.len() == 1 && self.vertices[index].find(&id[0]).is_some()) {
            return None;
        }
        let said = self.config.vertex_type[index].separator.and_then(|c| u8::try_from(c).ok());
        said.into_iter().chain([b',', b'\t']).find(|&separator| {
            let style = Style { separator, quotes: true, columns: None, ragged: false };
            // It is read again: what is wrong is said then, and bytes count then.
            let opened = Rows::open(path, &style, &Progress::default(), &mut Faults::default());
            opened.is_some_and(|rows| id.iter().all(|column| rows.columns().contains(column)))
        })
    }

    /// Calls `each` with the ids in the rows of a table.
    fn table_ids(
        &mut self,
        path: &Path,
        separator: Option<u8>,
        format: Option<Format>,
        id: &[String],
        each: &mut dyn FnMut(&mut Import<'a>, u64, &str),
    ) {
        let style = Style { separator: separator.unwrap_or(b','), quotes: true, columns: None, ragged: false };
        let Some(mut rows) = Table::open(path, format, &style, id, self.progress, &mut self.faults) else { return };
        while let Some(line) = rows.next(&mut self.faults) {
            let mut parts = Vec::with_capacity(id.len());
            for at in 0..id.len() {
                parts.push(rows.field(at, line, &mut self.faults).unwrap_or_default().to_owned());
            }
            each(self, line, &parts.join(&JOINER.to_string()));
        }
    }
}

/// The most vertices of a type.
const MOST: usize = 1 << 30;

/// The key in a JSON value: a text or number, or a list of them for a key of several columns.
fn json_id(text: &[u8], id: &[String]) -> Result<String, String> {
    let wrong = || {
        let form = if id.len() > 1 { "a list of the columns of an id" } else { "an id" };
        format!("`{}` is not {form}: a text or an integer", shown(&String::from_utf8_lossy(text)))
    };
    let value: Value = serde_json::from_slice(text).map_err(|_| wrong())?;
    check_integers(&value, text)?;
    let plain = |value: &Value| match value {
        Value::String(_) | Value::Number(_) => text_of(value),
        _ => None,
    };
    match &value {
        Value::Array(parts) if id.len() > 1 && parts.len() == id.len() => {
            let parts: Option<Vec<String>> = parts.iter().map(plain).collect();
            parts.map(|parts| parts.join(&JOINER.to_string()))
        }
        value => plain(value),
    }
    .ok_or_else(wrong)
}
