//! Labels and splits of vertices and edges from columns.

use hgnnc_dataset::{EdgeLabel, LabelValues, SplitData};
use hgnnc_split::{Shares, shuffle};

use super::config::{self, LabelKind, Mask, Part};
use super::features::{ascending, elements, number};
use super::like::places;
use crate::error::shown;
use crate::keys::Keys;

/// Sentinel code for the absence of a class.
const NONE: u32 = u32::MAX;

/// The label of a vertex type, row by row.
pub(super) struct LabelRows<'a> {
    config: &'a config::Label,
    kind: LabelKind,
    classes: Keys,
    /// The classes of row `r` are `codes[ends[r - 1]..ends[r]]`.
    ends: Vec<u64>,
    codes: Vec<u32>,
    numbers: Vec<f32>,
    /// Numbers of a row.
    dim: usize,
    labelled: Vec<bool>,
}

impl<'a> LabelRows<'a> {
    pub fn new(config: &'a config::Label) -> Result<LabelRows<'a>, String> {
        if config.kind != LabelKind::Real && config.columns.list().len() != 1 {
            return Err(
                "a label of classes is one column; a cell holds several with `kind = \"multi\"` and `separator`".into(),
            );
        }
        let mut classes = Keys::default();
        if let Some(bounds) = &config.buckets {
            ascending(bounds)?;
            let names = match &config.class_names {
                Some(names) => names.clone(),
                None => bucket_names(bounds),
            };
            for name in &names {
                classes.add(name);
            }
            if config.kind != LabelKind::Single || classes.len() != bounds.len() + 1 || names.len() != classes.len() {
                let (bounds, buckets) = (bounds.len(), bounds.len() + 1);
                return Err(format!(
                    "{bounds} `buckets` of a label make {buckets} classes, whose `class_names` differ"
                ));
            }
        } else if let Some(names) = &config.class_names {
            for name in names {
                classes.add(name);
            }
            if config.kind == LabelKind::Real || names.is_empty() || names.len() != classes.len() {
                return Err("`class_names` are those of classes, one at least, and differ".into());
            }
        }
        Ok(LabelRows {
            config,
            kind: config.kind,
            classes,
            ends: Vec::new(),
            codes: Vec::new(),
            numbers: Vec::new(),
            dim: config.columns.list().len(),
            labelled: Vec::new(),
        })
    }

    pub fn columns(&self) -> &'a [String] {
        self.config.columns.list()
    }

    pub fn name(&self) -> &'a str {
        self.config.name()
    }

    /// Whether `class_names` list a class of this name.
    pub fn lists(&self, name: &str) -> bool {
        self.config.class_names.is_some() && self.config.buckets.is_none() && self.classes.get(name).is_some()
    }

    /// Takes the fields of a row; a row with a missing value has no label.
    pub fn push(&mut self, fields: &[Option<&str>]) -> Result<(), String> {
        let all = fields.iter().copied().collect::<Option<Vec<&str>>>();
        self.labelled.push(all.is_some());
        let is_listed = self.config.class_names.is_some();
        let code = |classes: &mut Keys, class: &str| match is_listed {
            true => classes.get(class).ok_or_else(|| format!("`{}` is not among the `class_names`", shown(class))),
            false => Ok(classes.add(class).map_or(NONE, |(number, _)| number)),
        };
        match (self.kind, all) {
            (LabelKind::Single, all) if self.config.buckets.is_some() => {
                let bounds = self.config.buckets.as_deref().unwrap_or_default();
                let found = all.map(|fields| number(fields[0], &self.columns()[0])).transpose();
                self.codes.push(match &found {
                    Ok(Some(x)) => bounds.partition_point(|bound| bound <= x) as u32,
                    _ => NONE,
                });
                found.map(drop)
            }
            (LabelKind::Single | LabelKind::AsFound, all) => {
                let found = all.map_or(Ok(NONE), |fields| code(&mut self.classes, fields[0]));
                self.codes.push(*found.as_ref().unwrap_or(&NONE));
                found.map(drop)
            }
            (LabelKind::Multi, all) => {
                let separator = self.config.separator.as_deref().filter(|s| !s.is_empty()).unwrap_or(";");
                let cell = all.map_or("", |fields| fields[0]);
                let mut result = Ok(());
                for class in cell.split(separator).map(str::trim).filter(|class| !class.is_empty()) {
                    match code(&mut self.classes, class) {
                        Ok(code) => self.codes.push(code),
                        Err(error) => result = Err(error),
                    }
                }
                self.ends.push(self.codes.len() as u64);
                result
            }
            (LabelKind::Real, None) => {
                self.numbers.extend(fields.iter().map(|_| 0.0));
                Ok(())
            }
            (LabelKind::Real, Some(fields)) => {
                let mut result = Ok(());
                for (text, column) in fields.iter().zip(self.columns()) {
                    let found = number(text, column);
                    self.numbers.push(*found.as_ref().unwrap_or(&0.0) as f32);
                    result = result.and(found.map(drop));
                }
                result
            }
        }
    }

    /// Decides what a label is whose layout does not say it: a class where all are integers, of which negative ones are
    /// none; any of several classes where all are vectors of 0 and 1; otherwise numbers, or classes by name.
    pub fn decide(&mut self) -> Result<(), String> {
        if self.kind != LabelKind::AsFound {
            return Ok(());
        }
        let classes = std::mem::take(&mut self.classes);
        let codes = std::mem::take(&mut self.codes);
        let column = &self.columns()[0];
        let integers: Option<Vec<i64>> = classes.iter().map(|text| text.parse().ok()).collect();
        if let Some(integers) = integers {
            self.kind = LabelKind::Single;
            let renamed: Vec<u32> = (0..classes.len() as u32)
                .map(|n| match integers[n as usize] {
                    ..0 => NONE,
                    _ => self.classes.add(classes.text(n)).map_or(NONE, |(number, _)| number),
                })
                .collect();
            self.codes = codes.iter().map(|&code| if code == NONE { NONE } else { renamed[code as usize] }).collect();
            self.labelled = self.codes.iter().map(|&code| code != NONE).collect();
            return Ok(());
        }
        let rows: Result<Vec<Vec<f64>>, String> =
            classes.iter().map(|text| elements(text, ",").iter().map(|part| number(part, column)).collect()).collect();
        let Ok(rows) = rows else {
            self.kind = LabelKind::Single;
            (self.classes, self.codes) = (classes, codes);
            return Ok(());
        };
        let width = rows.first().map_or(0, Vec::len);
        if let Some(row) = rows.iter().position(|row| row.len() != width || row.is_empty()) {
            let text = classes.text(row as u32);
            return Err(format!(
                "the label `{}` has {} numbers, but another one {width}: labels are of one width",
                shown(text),
                rows[row].len()
            ));
        }
        let row = |code: u32| rows.get(code as usize);
        if width > 1 && rows.iter().flatten().all(|&x| x == 0.0 || x == 1.0) {
            self.kind = LabelKind::Multi;
            for class in 0..width {
                self.classes.add(&class.to_string());
            }
            for &code in &codes {
                let row = row(code).into_iter().flatten().enumerate();
                self.codes.extend(row.filter(|(_, x)| **x == 1.0).map(|(class, _)| class as u32));
                self.ends.push(self.codes.len() as u64);
            }
        } else {
            self.kind = LabelKind::Real;
            self.dim = width;
            for &code in &codes {
                match row(code) {
                    Some(row) => self.numbers.extend(row.iter().map(|&x| x as f32)),
                    None => self.numbers.extend(std::iter::repeat_n(0.0, width)),
                }
            }
        }
        Ok(())
    }

    /// Takes the rows in another order.
    pub fn reorder(&mut self, order: &[u32]) {
        let dim = self.dim;
        let rows = |row: u32| row as usize * dim..(row as usize + 1) * dim;
        match self.kind {
            LabelKind::Real => {
                self.numbers = order.iter().flat_map(|&v| self.numbers[rows(v)].iter().copied()).collect()
            }
            LabelKind::Multi => {
                let (mut ends, mut codes) = (Vec::new(), Vec::new());
                for &v in order {
                    let start = if v == 0 { 0 } else { self.ends[v as usize - 1] as usize };
                    codes.extend_from_slice(&self.codes[start..self.ends[v as usize] as usize]);
                    ends.push(codes.len() as u64);
                }
                (self.ends, self.codes) = (ends, codes);
            }
            LabelKind::Single | LabelKind::AsFound => self.codes = taken(&self.codes, order),
        }
        self.labelled = taken(&self.labelled, order);
    }

    /// Whether each row has a label.
    pub fn labelled(&self) -> &[bool] {
        &self.labelled
    }

    /// The label; its classes are those of the same label of a `graph`, given by name, if there is one.
    pub fn finish(self, graph: Option<&[String]>) -> Result<EdgeLabel, String> {
        // Buckets and names that are listed have an order of their own.
        let order: Vec<u32> = if self.config.buckets.is_some() || self.config.class_names.is_some() {
            (0..self.classes.len() as u32).collect()
        } else {
            self.classes.sorted()
        };
        let own = || order.iter().map(|&n| self.classes.text(n).to_owned()).collect();
        let (rank, names) = match graph.filter(|names| !names.is_empty()) {
            Some(names) if self.kind != LabelKind::Real => {
                let places = places(names);
                let of = |class: &str| {
                    places.get(class).copied().ok_or_else(|| {
                        let names: Vec<String> = names.iter().map(|name| format!("`{}`", shown(name))).collect();
                        format!("`{}` is no class of the graph, which has {}", shown(class), names.join(", "))
                    })
                };
                (self.classes.iter().map(of).collect::<Result<Vec<u32>, String>>()?, names.to_vec())
            }
            _ => (crate::triples::ranks(&order), own()),
        };
        let classes = names.len();
        if self.kind != LabelKind::Real && classes == 0 {
            return Err(format!("no row has a value in column `{}`, which is the label", self.columns()[0]));
        }
        let class_of = |code: u32| if code == NONE { -1 } else { rank[code as usize] as i32 };
        let class_names = match self.kind {
            LabelKind::Real if self.columns().len() == self.dim => self.columns().to_vec(),
            LabelKind::Real => Vec::new(),
            _ => names,
        };
        let values = match self.kind {
            LabelKind::Single | LabelKind::AsFound => {
                LabelValues::Single { classes, of: self.codes.iter().map(|&code| class_of(code)).collect() }
            }
            LabelKind::Multi => {
                let mut rows = vec![0.0; classes * self.labelled.len()];
                let mut start = 0;
                for (row, &end) in rows.chunks_exact_mut(classes).zip(&self.ends) {
                    self.codes[start..end as usize].iter().filter(|c| **c != NONE).for_each(|&c| {
                        row[rank[c as usize] as usize] = 1.0;
                    });
                    start = end as usize;
                }
                LabelValues::Multi { classes, rows, labelled: self.labelled }
            }
            LabelKind::Real => LabelValues::Real { dim: self.dim, rows: self.numbers, labelled: self.labelled },
        };
        Ok(EdgeLabel { name: self.config.name().to_owned(), values, class_names })
    }
}

/// `below 15`, `15 to 60`, `from 60`.
fn bucket_names(bounds: &[f64]) -> Vec<String> {
    let first = bounds.iter().take(1).map(|b| format!("below {b}"));
    let inner = bounds.windows(2).map(|w| format!("{} to {}", w[0], w[1]));
    let last = bounds.iter().next_back().map(|b| format!("from {b}"));
    first.chain(inner).chain(last).collect()
}

/// The parts of a split that files name, by id.
pub(super) struct Named {
    pub train: Vec<u32>,
    pub val: Vec<u32>,
    pub test: Vec<u32>,
}

/// A split that columns say, or whose order one gives: of vertices, or of the edges of a relation.
pub(super) struct SplitRows<'a> {
    pub config: &'a config::Split,
    columns: Vec<String>,
    /// The parts whose masks the columns are; none if they are no masks.
    masks: Vec<usize>,
    words: Vec<Option<usize>>,
    order: Vec<Option<String>>,
    /// Whether the values of `by` are numbers, once there is one.
    by_numbers: Option<bool>,
}

/// Elements that a split divides into parts.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum SplitOf {
    /// Vertices or edges with a label.
    Labelled,
    /// All links that are not held out are those to train on.
    Links,
}

impl<'a> SplitRows<'a> {
    pub fn new(config: &'a config::Split, of: SplitOf) -> Result<SplitRows<'a>, String> {
        let parts = [&config.train, &config.val, &config.test];
        let files = parts.iter().any(|p| matches!(p, Some(Part::File(_))));
        let numbers = parts.iter().any(|p| matches!(p, Some(Part::Share(_))));
        let masks: Vec<(usize, &Mask)> = parts
            .iter()
            .enumerate()
            .filter_map(|(i, part)| match part {
                Some(Part::Mask(mask)) => Some((i, mask)),
                _ => None,
            })
            .collect();
        let ways = [config.column.is_some(), numbers || config.by.is_some(), files, !masks.is_empty()];
        if ways.iter().filter(|&&way| way).count() > 1 {
            return Err("a split is a `column`, or shares (`train = 0.8`, with `by` or drawn), or files (`train = \"ids.txt\"`), or masks (`train = { mask = \"train_mask\" }`)".into());
        }
        if config.column.is_none() && !files && masks.is_empty() {
            let shares = shares(config);
            let enough = match of {
                SplitOf::Labelled => shares.train.is_some(),
                SplitOf::Links => numbers,
            };
            if !enough || shares.check().is_err() {
                let least = if of == SplitOf::Labelled { ", with `train` among them" } else { "" };
                return Err(format!("the shares of a split are from 0 to 1 and at most 1 together{least}"));
            }
        }
        let columns = match &config.column.as_ref().or(config.by.as_ref()) {
            Some(column) => vec![column.to_string()],
            None => masks.iter().map(|(_, mask)| mask.mask.clone()).collect(),
        };
        let masks = masks.into_iter().map(|(part, _)| part).collect();
        Ok(SplitRows { config, columns, masks, words: Vec::new(), order: Vec::new(), by_numbers: None })
    }

    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Takes the fields of a row.
    pub fn push(&mut self, fields: &[Option<&str>]) -> Result<(), String> {
        let Some(&first) = fields.first() else { return Ok(()) };
        if self.config.by.is_some() {
            self.order.push(first.map(str::to_owned));
            let Some(text) = first else { return Ok(()) };
            let is_number = text.parse::<f64>().is_ok_and(|x| !x.is_nan());
            if *self.by_numbers.get_or_insert(is_number) == is_number {
                return Ok(());
            }
            let (text, column) = (shown(text), shown(&self.columns[0]));
            let others = if is_number {
                "a number, but values before it are not"
            } else {
                "not a number, but values before it are"
            };
            return Err(format!(
                "`{text}` in column `{column}` is {others}: `by` sorts either numbers or texts; `missing_values` names what stands for none"
            ));
        }
        let found = if self.masks.is_empty() { part_named(first) } else { self.part_masked(fields) };
        self.words.push(*found.as_ref().unwrap_or(&None));
        found.map(drop)
    }

    /// The part whose mask is set.
    fn part_masked(&self, fields: &[Option<&str>]) -> Result<Option<usize>, String> {
        let mut found = None;
        for ((field, &part), column) in fields.iter().zip(&self.masks).zip(&self.columns) {
            let set = match field {
                None => false,
                Some(text) => match text.parse::<f64>() {
                    Ok(1.0) => true,
                    Ok(0.0) => false,
                    _ if text.eq_ignore_ascii_case("true") => true,
                    _ if text.eq_ignore_ascii_case("false") => false,
                    _ => {
                        return Err(format!("`{}` in column `{}` is no mask: 0 or 1", shown(text), shown(column)));
                    }
                },
            };
            if set && found.replace(part).is_some() {
                return Err(format!("the masks {} are set in one row: a part has it, or none", quoted(&self.columns)));
            }
        }
        Ok(found)
    }

    /// Number of rows that a column names a part for, but that have no label.
    pub fn unlabelled(&self, labelled: &[bool]) -> usize {
        self.words.iter().zip(labelled).filter(|(word, labelled)| word.is_some() && !**labelled).count()
    }

    /// Takes the rows in another order.
    pub fn reorder(&mut self, order: &[u32]) {
        if !self.words.is_empty() {
            self.words = taken(&self.words, order);
        }
        if !self.order.is_empty() {
            self.order = order.iter().map(|&v| self.order[v as usize].take()).collect();
        }
    }

    /// The rows of each part, of those in `rows`, which ascend: as the columns say, or by shares. A share of `train` that
    /// is not given is what the others leave; one of `test` is 0 where there is none of `train`.
    pub fn parts(&self, rows: Vec<u32>) -> [Vec<u32>; 3] {
        let config = self.config;
        if config.column.is_some() || !self.masks.is_empty() {
            let part = |part: usize| rows.iter().copied().filter(|&v| self.words[v as usize] == Some(part)).collect();
            return [part(0), part(1), part(2)];
        }
        shares(config).cut(&self.ordered(rows))
    }

    /// Rows in the order in which shares are taken.
    fn ordered(&self, mut rows: Vec<u32>) -> Vec<u32> {
        if self.config.by.is_none() {
            shuffle(&mut rows, self.config.seed);
            return rows;
        }
        // Rows without a value in the column are in no part.
        rows.retain(|&v| self.order[v as usize].is_some());
        let text = |v: u32| self.order[v as usize].as_deref().unwrap_or_default();
        let numbers =
            rows.iter().map(|&v| text(v).parse::<f64>().ok().filter(|x| !x.is_nan())).collect::<Option<Vec<f64>>>();
        match numbers {
            Some(numbers) => {
                let mut both: Vec<(f64, u32)> = numbers.into_iter().zip(rows).collect();
                both.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                both.into_iter().map(|(_, v)| v).collect()
            }
            None => {
                rows.sort_by(|&a, &b| text(a).cmp(text(b)).then(a.cmp(&b)));
                rows
            }
        }
    }

    /// The split of the labelled vertices of a type.
    pub fn finish(self, vertex_type: usize, labelled: &[bool], named: Option<Named>) -> SplitData {
        let name = self.config.name().to_owned();
        if let Some(Named { train, val, test }) = named {
            return SplitData { name, vertex_type, train, val, test };
        }
        let all = (0..labelled.len() as u32).filter(|&v| labelled[v as usize]).collect();
        let [train, val, test] = self.parts(all);
        SplitData { name, vertex_type, train, val, test }
    }
}

/// The shares that a split gives to its parts.
fn shares(config: &config::Split) -> Shares {
    let share = |part: &Option<Part>| match part {
        Some(Part::Share(share)) => Some(*share),
        _ => None,
    };
    Shares { train: share(&config.train), val: share(&config.val).unwrap_or(0.0), test: share(&config.test) }
}

/// The part of a split that a word names.
fn part_named(word: Option<&str>) -> Result<Option<usize>, String> {
    Ok(Some(match word {
        None => return Ok(None),
        Some("train" | "training") => 0,
        Some("val" | "valid" | "validation" | "dev") => 1,
        Some("test" | "testing") => 2,
        Some(other) => {
            return Err(format!("`{}` is not a part of a split: `train`, `val` or `test`", shown(other)));
        }
    }))
}

/// Elements in another order.
fn taken<T: Copy>(all: &[T], order: &[u32]) -> Vec<T> {
    order.iter().map(|&v| all[v as usize]).collect()
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{}`", shown(name))).collect::<Vec<_>>().join(", ")
}
