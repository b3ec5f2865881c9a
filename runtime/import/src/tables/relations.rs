//! Edges of a relation, by a table of them or by a foreign key, and links that are held out.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use hgnnc_dataset::{Dataset, EdgeSplit, LinkSplitData, Links, RelationData, SplitData};
use serde_json::Value;

use super::config::{self, DuplicateEdges, DuplicateIds, OneOrMore, Part};
use super::features::{self, Block, number};
use super::rows::{Row, TableOf};
use super::targets::{LabelRows, SplitOf, SplitRows};
use super::{Import, TOO_MANY, Vertices, seconds};
use crate::error::{Unknown, shown};
use crate::files::json::{check_integers, text_of};
use crate::files::{Format, Lines, Style, Table};

/// A relation: where its edges are, and the columns of their ends.
struct Edges<'a> {
    of: &'a config::Relation,
    table: TableOf<'a>,
    src: usize,
    dst: usize,
    src_key: &'a [String],
    dst_key: &'a [String],
    /// Whether an edge is a foreign key in the table of the sources.
    foreign: bool,
}

/// Ids that no table has, by side of an edge.
#[derive(Default)]
struct UnknownEnds {
    ids: [Unknown; 2],
    files: [Option<PathBuf>; 2],
}

impl<'a> Import<'a> {
    /// Reads a relation into the dataset; one that cannot be read is there without edges.
    pub(super) fn relation(&mut self, of: &'a config::Relation, dataset: &mut Dataset) {
        let index = dataset.relations.len();
        dataset.relations.push(RelationData::default());
        // The names were checked.
        let (src, dst) = (self.type_named(&of.src).unwrap_or(0), self.type_named(&of.dst).unwrap_or(0));
        if self.unread.contains(&src) || self.unread.contains(&dst) {
            return;
        }
        let of_src = &self.config.vertex_type[src];
        let edges = match (&of.key, &of.files, &of.src_key, &of.dst_key) {
            (None, Some(files), Some(src_key), Some(dst_key)) => {
                let table =
                    TableOf { files, separator: of.separator, format: of.format, columns: of.columns.as_deref() };
                Edges { of, table, src, dst, src_key: src_key.list(), dst_key: dst_key.list(), foreign: false }
            }
            (Some(key), ..) => {
                let Some(files) = &of_src.files else { return };
                let table = TableOf {
                    files,
                    separator: of_src.separator,
                    format: of_src.format,
                    columns: of_src.columns.as_deref(),
                };
                let id: &[String] = of_src.id.as_ref().map_or(&[], OneOrMore::list);
                Edges { of, table, src, dst, src_key: id, dst_key: key.list(), foreign: true }
            }
            _ => return,
        };
        dataset.relations[index] = self.edges(&edges, index, &mut dataset.link_splits);
    }

    fn edges(&mut self, edges: &Edges<'a>, index: usize, link_splits: &mut Vec<LinkSplitData>) -> RelationData {
        let of = edges.of;
        let name = shown(&of.name);
        let mut blocks = Vec::new();
        for features in &of.features.0 {
            match Block::new(features, self.words) {
                Ok(block) => blocks.push(block),
                Err(error) => self.wrong(format!("features of relation `{name}`: {error}")),
            }
        }
        let mut labels = Vec::new();
        for label in of.label.list() {
            match LabelRows::new(label) {
                Ok(label) => labels.push(label),
                Err(error) => self.wrong(format!("label of relation `{name}`: {error}")),
            }
        }
        let split_of = if of.label.list().is_empty() { SplitOf::Links } else { SplitOf::Labelled };
        let mut splits = Vec::new();
        for split in of.split.list() {
            match SplitRows::new(split, split_of) {
                Ok(split) => splits.push(split),
                Err(error) => self.wrong(format!("split of relation `{name}`: {error}")),
            }
        }
        let mut wanted = [edges.src_key, edges.dst_key].concat();
        let mut place = |columns: &[String]| {
            let start = wanted.len();
            wanted.extend_from_slice(columns);
            start..wanted.len()
        };
        let weight_at = of.weight.as_ref().map(|column| place(std::slice::from_ref(column)).start);
        let time_at = of.time.as_ref().map(|column| place(std::slice::from_ref(column)).start);
        let split_ranges: Vec<Range<usize>> = splits.iter().map(|split| place(split.columns())).collect();
        let label_ranges: Vec<Range<usize>> = labels.iter().map(|label| place(label.columns())).collect();
        let block_ranges: Vec<Range<usize>> = blocks.iter().map(|block| place(block.columns())).collect();

        let mut data =
            RelationData { name: of.name.clone(), src: edges.src, dst: edges.dst, ..RelationData::default() };
        let (mut weight, mut time) = (Vec::new(), Vec::new());
        let mut unknown = UnknownEnds::default();
        let mut seen = HashSet::new();
        // By vertex, whether its row was read: `duplicates = "first"` drops further rows, which make no edges either.
        let of_src = &self.config.vertex_type[edges.src];
        let mut read = match &self.vertices[edges.src] {
            Vertices::Keys(keys) if edges.foreign && of_src.duplicates == DuplicateIds::First => {
                Some(vec![false; keys.len()])
            }
            _ => None,
        };
        let mut row_number = 0u32;
        let mut edge = |import: &mut Import<'a>, row: &Row<'_>, known: [Option<u32>; 2]| {
            let own = row_number;
            row_number = row_number.saturating_add(1);
            if let Some(read) = &mut read {
                let Some(key) = import.key(row, 0, edges.src_key) else { return };
                let vertex = known[0].or_else(|| import.vertices[edges.src].find(&key));
                let first = vertex.and_then(|vertex| read.get_mut(vertex as usize));
                if first.is_none_or(|read| std::mem::replace(read, true)) {
                    return;
                }
            }
            let Some((from, to)) = import.ends(edges, own, row, known, false, &mut unknown) else { return };
            if of.duplicates == DuplicateEdges::Drop && !seen.insert(u64::from(from) << 32 | u64::from(to)) {
                return;
            }
            data.src_ids.push(from);
            data.dst_ids.push(to);
            let mut wrong = |error: String| import.faults.add(row.path, Some(row.line), error);
            if let (Some(at), Some(column)) = (weight_at, &of.weight) {
                let found =
                    row.fields[at].map_or(Err(format!("column `{column}` has no value")), |t| number(t, column));
                weight.push(found.unwrap_or_else(|error| {
                    wrong(error);
                    0.0
                }) as f32);
            }
            for (block, range) in blocks.iter_mut().zip(&block_ranges) {
                block.push(&row.fields[range.clone()]).unwrap_or_else(&mut wrong);
            }
            for (label, range) in labels.iter_mut().zip(&label_ranges) {
                label.push(&row.fields[range.clone()]).unwrap_or_else(&mut wrong);
            }
            if let (Some(at), Some(column)) = (time_at, &of.time) {
                let found =
                    row.fields[at].map_or(Err(format!("column `{column}` has no time")), |t| seconds(t, column));
                time.push(found.unwrap_or_else(|error| {
                    wrong(error);
                    0
                }));
            }
            for (split, range) in splits.iter_mut().zip(&split_ranges) {
                split.push(&row.fields[range.clone()]).unwrap_or_else(&mut wrong);
            }
        };
        self.batches(&edges.table, &wanted, |import, rows| {
            let known = import.known_ends(edges, rows);
            rows.iter().zip(known).for_each(|(row, known)| edge(import, row, known));
        });
        self.report_unknown(edges, unknown, None);
        data.weight = of.weight.as_ref().map(|_| weight.into());
        data.time = of.time.as_ref().map(|_| time);
        // The steps below need all edges, which a table with faults may not have.
        if self.faults.count == 0 {
            let graph = self.graph.as_ref().and_then(|graph| graph.relation(&of.name));
            let mut notes = Vec::new();
            let made = features::edge_features(blocks, data.num_edges(), graph, &mut notes);
            notes.into_iter().for_each(|note| self.progress.note(format!("relation `{name}`: {note}")));
            match made {
                Ok(made) => (data.features, data.transforms) = made,
                Err(error) => self.wrong(format!("features of relation `{name}`: {error}")),
            }
            match split_of {
                SplitOf::Links => {
                    splits.iter().for_each(|split| self.hold_out(edges, split, index, &mut data, link_splits));
                }
                SplitOf::Labelled => self.edge_targets(labels, splits, &mut data),
            }
        }
        data
    }

    /// Adds the labels of edges, and splits of those that have any of them.
    fn edge_targets(&mut self, mut labels: Vec<LabelRows<'a>>, splits: Vec<SplitRows<'a>>, data: &mut RelationData) {
        let name = shown(&data.name);
        for label in &mut labels {
            if let Err(error) = label.decide() {
                return self.wrong(format!("relation `{name}`: {error}"));
            }
        }
        let is_labelled = |edge: usize| labels.iter().any(|label| label.labelled()[edge]);
        let labelled: Vec<bool> = (0..data.num_edges()).map(is_labelled).collect();
        for split in splits {
            if split.config.files().next().is_some() {
                return self.wrong(format!(
                    "split of relation `{name}`: edges have no ids that a file could name; its split is a column, masks or shares"
                ));
            }
            let unlabelled = split.unlabelled(&labelled);
            if unlabelled > 0 {
                let split = shown(split.config.name());
                self.progress.note(format!(
                    "{unlabelled} edges of `{name}` that split `{split}` names have no label: they are left out of it"
                ));
            }
            let SplitData { name, train, val, test, .. } = split.finish(0, &labelled, None);
            data.splits.push(EdgeSplit { name, train, val, test });
        }
        for label in labels {
            let known = self.graph.as_ref().and_then(|graph| graph.relation(&data.name)?.label(label.name()));
            match label.finish(known.map(|label| &label.class_names[..])) {
                Ok(label) => data.labels.push(label),
                Err(error) => self.wrong(format!("relation `{name}`: {error}")),
            }
        }
    }

    /// The ends of the edges of rows that are known vertices.
    fn known_ends(&self, edges: &Edges<'a>, rows: &[Row<'_>]) -> Vec<[Option<u32>; 2]> {
        let (src_len, dst_len) = (edges.src_key.len(), edges.dst_key.len());
        let find = |ty: usize, at: usize, columns: usize| {
            let keys: Vec<_> = rows.iter().map(|row| if columns == 0 { None } else { row.key(at, columns) }).collect();
            self.vertices[ty].find_all(&keys)
        };
        let (src, dst) = (find(edges.src, 0, src_len), find(edges.dst, src_len, dst_len));
        src.into_iter().zip(dst).map(|(src, dst)| [src, dst]).collect()
    }

    /// The ends of the edge of a row, the `own` of its table; those that are `known` already need no look-up. None if there
    /// is none, or not both are known, which is noted. A link that is held out adds no vertex.
    fn ends(
        &mut self,
        edges: &Edges<'a>,
        own: u32,
        row: &Row<'_>,
        known: [Option<u32>; 2],
        held_out: bool,
        unknown: &mut UnknownEnds,
    ) -> Option<(u32, u32)> {
        let (src_len, dst_len) = (edges.src_key.len(), edges.dst_key.len());
        let missing = |range: Range<usize>| row.fields[range].iter().any(Option::is_none);
        // An edge by a foreign key that is not given is no edge.
        if edges.foreign && missing(src_len..src_len + dst_len) {
            return None;
        }
        let skips = edges.of.unknown == config::Unknown::Skip;
        if skips && missing(0..src_len + dst_len) {
            return None;
        }
        let mut end = |side: usize, ty: usize, at: usize, columns: &[String]| -> Option<u32> {
            if side == 0 && edges.foreign && columns.is_empty() {
                return Some(own);
            }
            if known[side].is_some() {
                return known[side];
            }
            let key = self.key(row, at, columns)?;
            let adds = edges.of.unknown == config::Unknown::Add || self.config.vertex_type[ty].files.is_none();
            let found = match self.vertices[ty].find(&key) {
                None if !held_out && self.has_without_row(ty, &key, adds) => match self.vertices[ty].add(&key) {
                    Some(added) => Some(added),
                    None => {
                        self.faults.add(row.path, Some(row.line), TOO_MANY);
                        return None;
                    }
                },
                found => found,
            };
            if found.is_none() && !skips {
                unknown.files[side].get_or_insert_with(|| row.path.to_path_buf());
                unknown.ids[side].add(row.line, &key);
            }
            found
        };
        let ends = (end(0, edges.src, 0, edges.src_key), end(1, edges.dst, src_len, edges.dst_key));
        ends.0.zip(ends.1)
    }

    /// Whether the key of an edge is that of a vertex without a row: one of the graph, or a new one if it may be added.
    fn has_without_row(&mut self, ty: usize, key: &str, adds: bool) -> bool {
        let name = &self.config.vertex_type[ty].name;
        let is_keyed = matches!(self.vertices[ty], Vertices::Keys(_));
        is_keyed
            && match &mut self.graph {
                Some(graph) => graph.takes(name, key) || (adds && graph.has_bare(name)),
                None => adds,
            }
    }

    fn report_unknown(&mut self, edges: &Edges<'a>, unknown: UnknownEnds, file: Option<&Path>) {
        for ((unknown, found), ty) in unknown.ids.into_iter().zip(unknown.files).zip([edges.src, edges.dst]) {
            let what = format!("vertex of type `{}`", shown(&self.config.vertex_type[ty].name));
            let way_out = match file {
                Some(_) => "links to hold out are between vertices that are there".to_owned(),
                None => self.words.unknown.replace("{}", &shown(&edges.of.name)),
            };
            let file = file.or(found.as_deref()).unwrap_or(self.file);
            unknown.report(&mut self.faults, file, &what, &way_out);
        }
    }

    /// Takes the links of a split out of the edges. A pair of ends that several edges have is one link, that of the first
    /// of them, and none of them stays.
    fn hold_out(
        &mut self,
        edges: &Edges<'a>,
        split: &SplitRows<'a>,
        index: usize,
        data: &mut RelationData,
        link_splits: &mut Vec<LinkSplitData>,
    ) {
        let pair = |edge: usize| (data.src_ids[edge], data.dst_ids[edge]);
        let config = split.config;
        let files = [&config.val, &config.test].map(|part| match part {
            Some(Part::File(file)) => Some(self.source.join(file)),
            _ => None,
        });
        let named = config.files().next().is_some();
        if named && edges.foreign {
            let name = shown(&edges.of.name);
            self.wrong(format!("relation `{name}` is a foreign key, whose split is a column, masks or shares: files are of tables of edges"));
            return;
        }
        let mut held: HashMap<(u32, u32), usize> = HashMap::new();
        let mut parts: [Vec<(u32, u32)>; 2] = Default::default();
        if named {
            for (part, file) in files.iter().enumerate() {
                let Some(file) = file else { continue };
                for (line, link) in self.links(edges, file) {
                    match held.insert(link, part) {
                        None => parts[part].push(link),
                        Some(_) => self.faults.add(file, Some(line), "this link is held out already: name it once"),
                    }
                }
            }
        } else {
            let mut seen = HashSet::new();
            let first: Vec<u32> = (0..data.num_edges()).filter(|&e| seen.insert(pair(e))).map(|e| e as u32).collect();
            let [_, val, test] = split.parts(first);
            for (part, links) in [val, test].into_iter().enumerate() {
                parts[part] = links.iter().map(|&edge| pair(edge as usize)).collect();
                held.extend(parts[part].iter().map(|&link| (link, part)));
            }
        }
        let kept: Vec<usize> = (0..data.num_edges()).filter(|&e| !held.contains_key(&pair(e))).collect();
        data.keep(&kept);
        let name = config.name().to_owned();
        let known = link_splits.iter().position(|known| known.name == name);
        let known = known.unwrap_or_else(|| {
            link_splits.push(LinkSplitData { name, val: Links::default(), test: Links::default() });
            link_splits.len() - 1
        });
        let into = &mut link_splits[known];
        for (links, part) in [&mut into.val, &mut into.test].into_iter().zip(parts) {
            for (src, dst) in part {
                links.src.push(src);
                links.relation.push(index as u32);
                links.dst.push(dst);
            }
        }
    }

    /// The links that a file names, each with its line: rows with the columns of the ends, or JSON lists of two ids.
    fn links(&mut self, edges: &Edges<'a>, path: &Path) -> Vec<(u64, (u32, u32))> {
        let wanted = [edges.src_key, edges.dst_key].concat();
        let mut unknown = UnknownEnds::default();
        let mut found = Vec::new();
        let format = Format::of(path);
        if format == Format::Json {
            let Some(mut lines) = Lines::open(path, self.progress, &mut self.faults) else { return found };
            while let Some((line, text)) = lines.next_filled(&mut self.faults) {
                let fields = match json_link(text, &wanted) {
                    Ok(fields) => fields,
                    Err(message) => {
                        self.faults.add(path, Some(line), message);
                        continue;
                    }
                };
                let fields: Vec<Option<&str>> = fields.iter().map(|field| Some(&field[..])).collect();
                let row = Row { path, line, fields: &fields, stand_ins: Vec::new() };
                found.extend(self.ends(edges, 0, &row, [None; 2], true, &mut unknown).map(|link| (line, link)));
            }
        } else {
            let Some(separator) = self.separator(edges.table.separator, path) else { return found };
            // With a header, whatever the edges have.
            let style = Style { separator, quotes: true, columns: None, ragged: false };
            let opened = Table::open(path, Some(format), &style, &wanted, self.progress, &mut self.faults);
            let Some(mut rows) = opened else { return found };
            while let Some(line) = rows.next(&mut self.faults) {
                let mut fields = Vec::with_capacity(wanted.len());
                for at in 0..wanted.len() {
                    fields.push(rows.field(at, line, &mut self.faults).filter(|text| !text.is_empty()));
                }
                let row = Row { path, line, fields: &fields, stand_ins: Vec::new() };
                found.extend(self.ends(edges, 0, &row, [None; 2], true, &mut unknown).map(|link| (line, link)));
            }
        }
        self.report_unknown(edges, unknown, Some(path));
        found
    }
}

/// The ids of a link in a JSON list, which are as many as columns: `["s", "d"]`, or `[["s1", "s2"], "d"]`.
fn json_link(text: &[u8], wanted: &[String]) -> Result<Vec<String>, String> {
    fn flat(value: &Value, all: &mut Vec<String>) -> Option<()> {
        match value {
            Value::Array(parts) => parts.iter().try_for_each(|part| flat(part, all)),
            Value::String(_) | Value::Number(_) => {
                all.push(text_of(value)?);
                Some(())
            }
            _ => None,
        }
    }
    let wrong = || {
        let text = shown(&String::from_utf8_lossy(text));
        format!("`{text}` is not a link: a list of the ids of its source and destination")
    };
    let value: Value = serde_json::from_slice(text).map_err(|_| wrong())?;
    check_integers(&value, text)?;
    let mut all = Vec::new();
    flat(&value, &mut all).ok_or_else(wrong)?;
    if value.is_array() && all.len() == wanted.len() { Ok(all) } else { Err(wrong()) }
}
