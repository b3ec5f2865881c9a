//! Labels and splits of vertices from columns.

use hgnnc_graph::{LabelData, LabelValues, SplitData};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::config::{self, LabelKind, Part};
use super::features::{ascending, number};
use crate::error::shown;
use crate::keys::Keys;

/// What a label is where there is none.
const NONE: u32 = u32::MAX;

/// The label of a vertex type, row by row.
pub(super) struct LabelRows<'a> {
    config: &'a config::Label,
    classes: Keys,
    /// The classes of row `r` are `codes[ends[r - 1]..ends[r]]`.
    ends: Vec<u64>,
    codes: Vec<u32>,
    numbers: Vec<f32>,
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
            classes,
            ends: Vec::new(),
            codes: Vec::new(),
            numbers: Vec::new(),
            labelled: Vec::new(),
        })
    }

    pub fn columns(&self) -> &'a [String] {
        self.config.columns.list()
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
        match (self.config.kind, all) {
            (LabelKind::Single, all) if self.config.buckets.is_some() => {
                let bounds = self.config.buckets.as_deref().unwrap_or_default();
                let found = all.map(|fields| number(fields[0], &self.columns()[0])).transpose();
                self.codes.push(match &found {
                    Ok(Some(x)) => bounds.partition_point(|bound| bound <= x) as u32,
                    _ => NONE,
                });
                found.map(drop)
            }
            (LabelKind::Single, all) => {
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

    /// Whether each row has a label.
    pub fn labelled(&self) -> &[bool] {
        &self.labelled
    }

    pub fn finish(self, vertex_type: usize) -> Result<LabelData, String> {
        // Buckets and names that are listed have an order of their own.
        let order = if self.config.buckets.is_some() || self.config.class_names.is_some() {
            (0..self.classes.len() as u32).collect()
        } else {
            self.classes.sorted()
        };
        let rank = crate::triples::ranks(&order);
        let classes = order.len();
        if self.config.kind != LabelKind::Real && classes == 0 {
            return Err(format!("no row has a value in column `{}`, which is the label", self.columns()[0]));
        }
        let class_of = |code: u32| if code == NONE { -1 } else { rank[code as usize] as i32 };
        let values = match self.config.kind {
            LabelKind::Single => {
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
            LabelKind::Real => {
                LabelValues::Real { dim: self.columns().len(), rows: self.numbers, labelled: self.labelled }
            }
        };
        let class_names = match self.config.kind {
            LabelKind::Real => self.config.columns.list().to_vec(),
            _ => order.iter().map(|&n| self.classes.text(n).to_owned()).collect(),
        };
        Ok(LabelData { name: self.config.name().to_owned(), vertex_type, values, class_names })
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

/// A split that a column says, or whose order it gives.
pub(super) struct SplitRows<'a> {
    pub config: &'a config::Split,
    column: Option<&'a String>,
    words: Vec<Option<usize>>,
    order: Vec<Option<String>>,
}

impl<'a> SplitRows<'a> {
    pub fn new(config: &'a config::Split) -> Result<SplitRows<'a>, String> {
        let shares = [&config.train, &config.val, &config.test];
        let files = shares.iter().any(|p| matches!(p, Some(Part::File(_))));
        let numbers = shares.iter().any(|p| matches!(p, Some(Part::Share(_))));
        if (config.column.is_some() && (files || numbers || config.by.is_some()))
            || (files && (numbers || config.by.is_some()))
        {
            return Err("a split is a `column`, or shares (`train = 0.8`, with `by` or drawn), or files (`train = \"ids.txt\"`)".into());
        }
        if config.column.is_none() && !files {
            let share = |part: &Option<Part>| match part {
                Some(Part::Share(share)) => Some(*share),
                _ => None,
            };
            let known: Vec<f64> = shares.iter().filter_map(|part| share(part)).collect();
            if share(&config.train).is_none()
                || known.iter().any(|s| !(0.0..=1.0).contains(s))
                || known.iter().sum::<f64>() > 1.0 + 1e-9
            {
                return Err(
                    "the shares of a split are from 0 to 1 and at most 1 together, with `train` among them".into()
                );
            }
        }
        Ok(SplitRows {
            config,
            column: config.column.as_ref().or(config.by.as_ref()),
            words: Vec::new(),
            order: Vec::new(),
        })
    }

    pub fn column(&self) -> Option<&'a String> {
        self.column
    }

    /// Takes the field of a row, if there is a column.
    pub fn push(&mut self, field: Option<&str>) -> Result<(), String> {
        if self.config.by.is_some() {
            self.order.push(field.map(str::to_owned));
            return Ok(());
        }
        let part = match field {
            None => None,
            Some("train" | "training") => Some(0),
            Some("val" | "valid" | "validation" | "dev") => Some(1),
            Some("test" | "testing") => Some(2),
            Some(other) => {
                self.words.push(None);
                return Err(format!("`{}` is not a part of a split: `train`, `val` or `test`", shown(other)));
            }
        };
        self.words.push(part);
        Ok(())
    }

    pub fn finish(self, vertex_type: usize, labelled: &[bool], named: Option<Named>) -> SplitData {
        let config = self.config;
        let name = config.name().to_owned();
        if let Some(Named { train, val, test }) = named {
            return SplitData { name, vertex_type, train, val, test };
        }
        let all = || (0..labelled.len() as u32).filter(|&v| labelled[v as usize]);
        if config.column.is_some() {
            let part = |part: usize| all().filter(|&v| self.words[v as usize] == Some(part)).collect();
            return SplitData { name, vertex_type, train: part(0), val: part(1), test: part(2) };
        }
        let mut order: Vec<u32> = all().collect();
        if config.by.is_some() {
            // What has no value in the column is in no part.
            order.retain(|&v| self.order[v as usize].is_some());
            let text = |v: u32| self.order[v as usize].as_deref().unwrap_or_default();
            let numbers = order
                .iter()
                .map(|&v| text(v).parse::<f64>().ok().filter(|x| !x.is_nan()))
                .collect::<Option<Vec<f64>>>();
            match numbers {
                Some(numbers) => {
                    let mut both: Vec<(f64, u32)> = numbers.into_iter().zip(order).collect();
                    both.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                    order = both.into_iter().map(|(_, v)| v).collect();
                }
                None => order.sort_by(|&a, &b| text(a).cmp(text(b)).then(a.cmp(&b))),
            }
        } else {
            order.shuffle(&mut ChaCha8Rng::seed_from_u64(config.seed));
        }
        let share = |part: &Option<Part>| match part {
            Some(Part::Share(share)) => Some((share * order.len() as f64).round() as usize),
            _ => None,
        };
        let train = share(&config.train).unwrap_or(0).min(order.len());
        let val = share(&config.val).unwrap_or(0).min(order.len() - train);
        let rest = order.len() - train - val;
        let test = share(&config.test).map_or(rest, |test| test.min(rest));
        let sorted = |part: &[u32]| {
            let mut ids = part.to_vec();
            ids.sort_unstable();
            ids
        };
        SplitData {
            name,
            vertex_type,
            train: sorted(&order[..train]),
            val: sorted(&order[train..train + val]),
            test: sorted(&order[train + val..train + val + test]),
        }
    }
}
