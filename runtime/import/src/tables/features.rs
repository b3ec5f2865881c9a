//! Features of vertices from columns.

use hgnnc_dataset::{DenseFeatures, Features, RelationData, SparseFeatures, Transform, TransformKind, VertexTypeData};

use super::Words;
use super::config::{self, Missing, MissingWord, Scale};
use super::like::places;
use crate::error::shown;
use crate::keys::Keys;
use crate::values::SPARSE_BELOW;

/// Sentinel code for the absence of a category or bucket.
const NONE: u32 = u32::MAX;

/// The values of some columns, row by row, until all are known and what is to be fitted can be.
pub(crate) struct Block {
    columns: Vec<String>,
    values: Values,
    /// Help text of the error about a missing number.
    way_out: &'static str,
}

enum Values {
    /// By column. A missing value is NaN.
    Numbers {
        values: Vec<Vec<f64>>,
        scale: Scale,
        missing: Missing,
        /// The ends of `min_max` that are given.
        ends: [Option<f64>; 2],
        /// No value is outside of them.
        limits: [Option<f64>; 2],
    },
    /// The categories of row `r` are `codes[ends[r - 1]..ends[r]]`.
    OneHot {
        known: Keys,
        ends: Vec<u64>,
        codes: Vec<u32>,
        separator: Option<String>,
        /// Whether `known` is the list of all categories.
        given: bool,
    },
    Buckets {
        bounds: Vec<f64>,
        codes: Vec<u32>,
    },
    Vector {
        separator: String,
        width: Option<usize>,
        values: Vec<f32>,
    },
}

impl Block {
    /// The block that a table of the configuration asks for, or what is wrong with it.
    pub fn new(of: &config::Features, words: &Words) -> Result<Block, String> {
        let columns = of.columns.list().to_vec();
        if columns.is_empty() {
            return Err("`columns` names at least one column".into());
        }
        let asked = [of.one_hot, of.buckets.is_some(), of.vector].iter().filter(|&&asked| asked).count();
        let numbers_only = of.scale.is_some() || of.missing.is_some();
        if asked > 1 || (asked == 1 && numbers_only) {
            return Err(
                "one of `scale` (with `missing`), `one_hot`, `buckets` and `vector` is meant for a column".into()
            );
        }
        if asked == 1 && columns.len() != 1 {
            return Err(
                "`one_hot`, `buckets` and `vector` are of one column each: write a table for each of them".into()
            );
        }
        if of.categories.is_some() && !of.one_hot {
            return Err("`categories` are those of `one_hot`".into());
        }
        let ends = [of.min, of.max];
        let given = ends.iter().any(Option::is_some);
        if given && of.scale != Some(Scale::MinMax) {
            return Err("`min` and `max` are the ends of `scale = \"min_max\"`".into());
        }
        let ascend = !matches!(ends, [Some(min), Some(max)] if min >= max);
        if given && (!ascend || ends.iter().flatten().any(|end| !end.is_finite())) {
            return Err("`min` and `max` are numbers, and the first one is the smaller one".into());
        }
        if let Some(Missing::Value(x)) = of.missing
            && !(x as f32).is_finite()
        {
            return Err(format!("`missing = {x}` is beyond the range of 32-bit floats: write a smaller number"));
        }
        let limits = [of.min.or(of.limits[0]), of.max.or(of.limits[1])];
        let values = if of.one_hot {
            let mut known = Keys::default();
            for category in of.categories.iter().flatten() {
                if !matches!(known.add(category.trim()), Some((_, true))) {
                    return Err(format!("the category `{}` is there twice", shown(category)));
                }
            }
            Values::OneHot {
                known,
                ends: Vec::new(),
                codes: Vec::new(),
                separator: of.separator.clone(),
                given: of.categories.is_some(),
            }
        } else if let Some(bounds) = &of.buckets {
            ascending(bounds)?;
            Values::Buckets { bounds: bounds.clone(), codes: Vec::new() }
        } else if of.vector {
            let separator = of.separator.clone().filter(|s| !s.is_empty()).unwrap_or_else(|| " ".into());
            Values::Vector { separator, width: None, values: Vec::new() }
        } else {
            let missing = of.missing.clone().unwrap_or(Missing::Word(MissingWord::Error));
            let scale = of.scale.unwrap_or(Scale::None);
            Values::Numbers { values: vec![Vec::new(); columns.len()], scale, missing, ends, limits }
        };
        Ok(Block { columns, values, way_out: words.missing })
    }

    /// Names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Takes the fields of a row; None is a missing value. What is wrong with one is said, and it counts as missing.
    pub fn push(&mut self, fields: &[Option<&str>]) -> Result<(), String> {
        match &mut self.values {
            Values::Numbers { values, missing, limits, .. } => {
                let mut wrong = None;
                for ((field, values), column) in fields.iter().zip(values).zip(&self.columns) {
                    values.push(match field {
                        Some(text) => {
                            number(text, column).and_then(|x| within(x, *limits, column)).unwrap_or_else(|error| {
                                wrong.get_or_insert(error);
                                f64::NAN
                            })
                        }
                        None => {
                            if matches!(missing, Missing::Word(MissingWord::Error)) {
                                wrong.get_or_insert(format!("column `{column}` has no value: {}", self.way_out));
                            }
                            f64::NAN
                        }
                    });
                }
                wrong.map_or(Ok(()), Err)
            }
            Values::OneHot { known, ends, codes, separator, given } => {
                let start = codes.len();
                if let Some(text) = fields[0] {
                    let mut add = |category: &str| match given {
                        true => codes.extend(known.get(category)),
                        false => codes.push(known.add(category).map_or(NONE, |(number, _)| number)),
                    };
                    match separator {
                        Some(separator) => {
                            text.split(&separator[..]).map(str::trim).filter(|c| !c.is_empty()).for_each(add)
                        }
                        None => add(text),
                    }
                }
                // A category that is there twice counts once.
                codes[start..].sort_unstable();
                let mut kept = start;
                for i in start..codes.len() {
                    if i == start || codes[i] != codes[i - 1] {
                        codes[kept] = codes[i];
                        kept += 1;
                    }
                }
                codes.truncate(kept);
                ends.push(codes.len() as u64);
                Ok(())
            }
            Values::Buckets { bounds, codes } => {
                let found = fields[0].map(|text| number(text, &self.columns[0])).transpose();
                codes.push(match &found {
                    Ok(Some(x)) => bounds.partition_point(|bound| bound <= x) as u32,
                    _ => NONE,
                });
                found.map(drop)
            }
            Values::Vector { separator, width, values } => {
                let column = &self.columns[0];
                let Some(text) = fields[0] else { return Err(format!("column `{column}` has no vector")) };
                let before = values.len();
                for part in elements(text, separator) {
                    values.push(number(part, column)? as f32);
                }
                let found = values.len() - before;
                match *width.get_or_insert(found) {
                    width if width == found => Ok(()),
                    width => {
                        Err(format!("the vector of column `{column}` has {found} numbers, the first one has {width}"))
                    }
                }
            }
        }
    }

    /// Fits what is to be fitted, and tells it; `graph` was fitted before, to other rows, and is taken as it is. Fails if
    /// a value is not finite once it is scaled, or if the features of the graph are made in another way.
    fn fit(self, graph: Option<&Transform>, notes: &mut Vec<String>) -> Result<Fitted, String> {
        let columns = self.columns;
        let known_width = graph.map(Transform::width);
        let graph = graph.map(|graph| &graph.kind);
        Ok(match self.values {
            Values::Numbers { values, scale, missing, ends, .. } => {
                let (mut shift, mut factor, mut fill) = (Vec::new(), Vec::new(), Vec::new());
                let given = match graph {
                    Some(TransformKind::Numbers { shift, scale, missing }) => Some((shift, scale, missing)),
                    _ => None,
                };
                for (at, (values, column)) in values.iter().zip(&columns).enumerate() {
                    let fitted = Moments::of(values);
                    let (s, f) = match scale {
                        Scale::None => (0.0, 1.0),
                        Scale::Standard => (fitted.mean, inverse(fitted.deviation)),
                        Scale::MinMax => {
                            let (min, max) = (ends[0].unwrap_or(fitted.min), ends[1].unwrap_or(fitted.max));
                            (min, inverse(max - min))
                        }
                        Scale::Sum => (0.0, if fitted.sum == 0.0 { 1.0 } else { 1.0 / fitted.sum }),
                    };
                    let filled = match missing {
                        Missing::Value(x) => x,
                        Missing::Word(_) => fitted.mean,
                    };
                    let (s, f, filled) =
                        given.map_or((s, f, filled), |(shift, scale, missing)| (shift[at], scale[at], missing[at]));
                    let is_held = |x: f64| (((x - s) * f) as f32).is_finite();
                    let too_large = values.iter().find(|x| !is_held(if x.is_nan() { filled } else { **x }));
                    if let Some(x) = too_large {
                        let x = if x.is_nan() { filled } else { *x };
                        return Err(format!(
                            "`{x}` in column `{column}`, scaled by {f:e}, is beyond the range of 32-bit floats: choose another `scale`"
                        ));
                    }
                    // A missing value may come later.
                    if !f.is_finite() || !is_held(filled) {
                        return Err(format!(
                            "the scale {f:e} of column `{column}` is beyond the range of numbers: choose another `scale`"
                        ));
                    }
                    shift.push(s);
                    factor.push(f);
                    fill.push(filled);
                }
                let kind = TransformKind::Numbers { shift, scale: factor, missing: fill };
                Fitted { transform: Transform { columns, kind }, rows: FittedRows::Numbers(values) }
            }
            Values::OneHot { known, ends, mut codes, separator, given } => {
                let order = if given { (0..known.len() as u32).collect() } else { known.sorted() };
                let own = || order.iter().map(|&n| known.text(n).to_owned()).collect();
                let (rank, categories) = match graph {
                    Some(TransformKind::OneHot { categories, .. }) => {
                        let places = places(categories);
                        let rank: Vec<u32> = known.iter().map(|own| *places.get(own).unwrap_or(&NONE)).collect();
                        let absent = codes.iter().filter(|&&code| code != NONE && rank[code as usize] == NONE);
                        let mut absent: Vec<u32> = absent.copied().collect();
                        if let Some(&first) = absent.first() {
                            absent.sort_unstable();
                            absent.dedup();
                            let more = match absent.len() - 1 {
                                0 => String::new(),
                                more => format!(" and {more} more"),
                            };
                            notes.push(format!(
                                "column `{}`: categories that the graph does not have are left out: `{}`{more}",
                                shown(&columns[0]),
                                shown(known.text(first))
                            ));
                        }
                        (rank, categories.clone())
                    }
                    _ => (crate::triples::ranks(&order), own()),
                };
                codes.iter_mut().filter(|c| **c != NONE).for_each(|code| *code = rank[*code as usize]);
                let mut start = 0;
                for &end in &ends {
                    codes[start..end as usize].sort_unstable();
                    start = end as usize;
                }
                let kind = TransformKind::OneHot { categories, separator };
                Fitted { transform: Transform { columns, kind }, rows: FittedRows::Codes { ends: Some(ends), codes } }
            }
            Values::Buckets { bounds, codes } => Fitted {
                transform: Transform { columns, kind: TransformKind::Buckets { bounds } },
                rows: FittedRows::Codes { ends: None, codes },
            },
            Values::Vector { separator, width, values } => {
                let width = width.or(known_width).unwrap_or(0);
                let kind = TransformKind::Vector { separator, width };
                Fitted { transform: Transform { columns, kind }, rows: FittedRows::Vector(values) }
            }
        })
    }
}

struct Fitted {
    transform: Transform,
    rows: FittedRows,
}

enum FittedRows {
    Numbers(Vec<Vec<f64>>),
    /// Without ends there is one code in each row.
    Codes {
        ends: Option<Vec<u64>>,
        codes: Vec<u32>,
    },
    Vector(Vec<f32>),
}

impl Fitted {
    /// Calls `put` with each column and value of a row that is not zero by its kind.
    fn row(&self, row: usize, mut put: impl FnMut(usize, f32)) {
        match (&self.rows, &self.transform.kind) {
            (FittedRows::Numbers(values), TransformKind::Numbers { shift, scale, missing }) => {
                for (c, values) in values.iter().enumerate() {
                    let x = if values[row].is_nan() { missing[c] } else { values[row] };
                    put(c, ((x - shift[c]) * scale[c]) as f32);
                }
            }
            (FittedRows::Codes { ends, codes }, _) => {
                let range = match ends {
                    Some(ends) => (if row == 0 { 0 } else { ends[row - 1] as usize })..ends[row] as usize,
                    None => row..row + 1,
                };
                codes[range].iter().filter(|&&code| code != NONE).for_each(|&code| put(code as usize, 1.0));
            }
            (FittedRows::Vector(values), _) => {
                let width = self.transform.width();
                (0..width).for_each(|c| put(c, values[row * width + c]));
            }
            (FittedRows::Numbers(_), _) => {}
        }
    }
}

/// Fits the features of some rows; those of a `graph` are made in its way, and notes say what that leaves out.
fn fitted(
    blocks: Vec<Block>,
    graph: Option<(&[Transform], bool)>,
    notes: &mut Vec<String>,
) -> Result<Vec<Fitted>, String> {
    let Some((transforms, has_features)) = graph else {
        return blocks.into_iter().map(|block| block.fit(None, notes)).collect();
    };
    let of = |columns: Vec<&[String]>| {
        let columns: Vec<String> = columns.concat().iter().map(|column| format!("`{}`", shown(column))).collect();
        if columns.is_empty() { "no columns".to_owned() } else { columns.join(", ") }
    };
    let own = of(blocks.iter().map(Block::columns).collect());
    let differs = || {
        let known = match (has_features, transforms.is_empty()) {
            (false, _) => "the graph has none".to_owned(),
            (true, true) => "those of the graph were not made of columns, as far as it says".to_owned(),
            (true, false) => {
                format!("those of the graph of {}", of(transforms.iter().map(|of| &of.columns[..]).collect()))
            }
        };
        format!("they are made of {own}, and {known}: new data has the features of the graph, in the same way")
    };
    if blocks.len() != transforms.len() || (has_features && transforms.is_empty()) {
        return Err(differs());
    }
    let mut all = Vec::new();
    for (block, graph) in blocks.into_iter().zip(transforms) {
        if block.columns != graph.columns {
            return Err(differs());
        }
        let made = block.fit(Some(graph), notes)?;
        let is_alike = match (&made.transform.kind, &graph.kind) {
            (TransformKind::Numbers { .. }, TransformKind::Numbers { .. }) => true,
            (own, graph) => own == graph,
        };
        if !is_alike {
            let columns = of(vec![&graph.columns]);
            return Err(format!(
                "{columns} is made in another way than in the graph: one kind, separator, and list of `buckets`"
            ));
        }
        all.push(made);
    }
    Ok(all)
}

/// The features of `count` rows, which are those of `order` if it is given, and their transforms. With a `graph` they
/// are made in its way.
///
/// # Errors
/// If a value is not finite once it is scaled, or the features of the graph are made in another way.
pub(crate) fn features(
    blocks: Vec<Block>,
    count: usize,
    order: Option<&[u32]>,
    graph: Option<&VertexTypeData>,
    notes: &mut Vec<String>,
) -> Result<(Option<Features>, Vec<Transform>), String> {
    let known = graph.map(|graph| (&graph.transforms[..], graph.features.is_some()));
    if blocks.is_empty() && known.is_none_or(|(_, has_features)| !has_features) {
        return Ok((None, Vec::new()));
    }
    let fitted = fitted(blocks, known, notes)?;
    let dim = fitted.iter().map(|f| f.transform.width()).sum();
    let each = |row: usize, put: &mut dyn FnMut(usize, f32)| {
        let row = order.map_or(row, |order| order[row] as usize);
        let mut at = 0;
        for block in &fitted {
            block.row(row, |column, value| put(at + column, value));
            at += block.transform.width();
        }
    };
    let mut stored = 0u64;
    (0..count).for_each(|row| each(row, &mut |_, value| stored += u64::from(value != 0.0)));
    let is_sparse = (stored as f64) < SPARSE_BELOW * count as f64 * dim as f64;
    let sparse = graph.and_then(|graph| graph.features.as_ref()).map_or(is_sparse, Features::is_sparse);
    let features = if sparse {
        let (mut indptr, mut indices, mut data) = (vec![0], Vec::new(), Vec::new());
        for row in 0..count {
            each(row, &mut |column, value| {
                if value != 0.0 {
                    indices.push(column as u32);
                    data.push(value);
                }
            });
            indptr.push(data.len() as u64);
        }
        Features::Sparse(SparseFeatures { dim, indptr, indices, data: data.into() })
    } else {
        let mut rows = vec![0.0; count * dim];
        for (row, values) in rows.chunks_exact_mut(dim.max(1)).enumerate() {
            each(row, &mut |column, value| values[column] = value);
        }
        Features::Dense(DenseFeatures { dim, rows: rows.into() })
    };
    Ok((Some(features), fitted.into_iter().map(|f| f.transform).collect()))
}

/// The features of edges, which are dense, and their transforms. With a `graph` they are made in its way.
///
/// # Errors
/// As [`features`].
pub(crate) fn edge_features(
    blocks: Vec<Block>,
    count: usize,
    graph: Option<&RelationData>,
    notes: &mut Vec<String>,
) -> Result<(Option<DenseFeatures>, Vec<Transform>), String> {
    let known = graph.map(|graph| (&graph.transforms[..], graph.features.is_some()));
    if blocks.is_empty() && known.is_none_or(|(_, has_features)| !has_features) {
        return Ok((None, Vec::new()));
    }
    let fitted = fitted(blocks, known, notes)?;
    let dim: usize = fitted.iter().map(|f| f.transform.width()).sum();
    let mut rows = vec![0.0; count * dim];
    for (row, values) in rows.chunks_exact_mut(dim.max(1)).enumerate() {
        let mut at = 0;
        for block in &fitted {
            block.row(row, |column, value| values[at + column] = value);
            at += block.transform.width();
        }
    }
    Ok((Some(DenseFeatures { dim, rows: rows.into() }), fitted.into_iter().map(|f| f.transform).collect()))
}

/// Checks the bounds of buckets.
pub(crate) fn ascending(bounds: &[f64]) -> Result<(), String> {
    if bounds.is_empty() || !bounds.windows(2).all(|w| w[0] < w[1]) || bounds.iter().any(|b| !b.is_finite()) {
        return Err("`buckets` are numbers that ascend".into());
    }
    Ok(())
}

/// The parts of a vector in a cell: between separators, and in brackets also between blanks and commas.
pub(crate) fn elements<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let parts = |part: &'t str| part.split([',', ' ', '\t', '\n']).filter(|p| !p.is_empty());
    match text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.split(separator).flat_map(parts).collect(),
        None => text.trim_matches(['[', ']']).split(separator).map(str::trim).filter(|p| !p.is_empty()).collect(),
    }
}

/// The number, unless it is outside of the ends that are given.
fn within(x: f64, ends: [Option<f64>; 2], column: &str) -> Result<f64, String> {
    let [min, max] = ends;
    if min.is_some_and(|min| x < min) {
        return Err(format!(
            "`{x}` in column `{column}` is below the minimum {}, and is not cut off: make the minimum smaller, or leave it out",
            min.unwrap_or(x)
        ));
    }
    if max.is_some_and(|max| x > max) {
        return Err(format!(
            "`{x}` in column `{column}` is above the maximum {}, and is not cut off: make the maximum larger, or leave it out",
            max.unwrap_or(x)
        ));
    }
    Ok(x)
}

/// A finite number, or what is wrong with it.
pub(crate) fn number(text: &str, column: &str) -> Result<f64, String> {
    let shown = || shown(text);
    match text.parse::<f64>() {
        Ok(x) if (x as f32).is_finite() => Ok(x),
        Ok(_) if text.bytes().any(|byte| byte.is_ascii_digit()) => {
            Err(format!("`{}` in column `{column}` is too large for a number of 32 bits, at most 3.4e38", shown()))
        }
        _ => Err(format!("`{}` in column `{column}` is not a number", shown())),
    }
}

struct Moments {
    sum: f64,
    mean: f64,
    /// Of the population.
    deviation: f64,
    min: f64,
    max: f64,
}

impl Moments {
    /// Of the values that are not missing; those of no value are 0.
    fn of(values: &[f64]) -> Moments {
        let known = || values.iter().copied().filter(|x| !x.is_nan());
        let n = known().count();
        if n == 0 {
            return Moments { sum: 0.0, mean: 0.0, deviation: 0.0, min: 0.0, max: 0.0 };
        }
        let sum = known().sum::<f64>();
        let mean = sum / n as f64;
        let variance = known().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n as f64;
        let (min, max) = known().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        Moments { sum, mean, deviation: variance.sqrt(), min, max }
    }
}

/// 1 for a column of one value, which is then 0 everywhere.
fn inverse(width: f64) -> f64 {
    if width > 0.0 && width.is_finite() { 1.0 / width } else { 1.0 }
}
