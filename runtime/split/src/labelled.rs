//! Parts of what has a label: vertices or edges.

use std::ops::Range;

use hgnnc_dataset::{EdgeLabel, LabelData, LabelValues};

use crate::shares::shuffle;
use crate::{Order, Shares, SplitError};

/// How labelled vertices or edges are divided.
#[derive(Clone, PartialEq, Debug)]
pub struct LabelSplit {
    /// Name of the split.
    pub name: String,
    /// Sizes of the parts.
    pub shares: Shares,
    /// Order in which vertices or edges are taken.
    pub order: Order,
    /// Whether each class is divided by itself, so that all parts have equal shares of it.
    pub by_class: bool,
}

/// A label of vertices or edges.
pub(crate) struct LabelOf<'a> {
    name: &'a str,
    values: &'a LabelValues,
}

impl<'a> From<&'a LabelData> for LabelOf<'a> {
    fn from(label: &'a LabelData) -> LabelOf<'a> {
        LabelOf { name: &label.name, values: &label.values }
    }
}

impl<'a> From<&'a EdgeLabel> for LabelOf<'a> {
    fn from(label: &'a EdgeLabel) -> LabelOf<'a> {
        LabelOf { name: &label.name, values: &label.values }
    }
}

/// Divides the elements of `all` into parts, each ascending. `row` is the row of an element in the label, and `times` has the
/// time of each element of a split by time. Elements whose row has no label are in no part.
///
/// # Errors
/// A split by class of a label without classes.
pub(crate) fn divide(
    all: Range<u32>,
    label: LabelOf<'_>,
    row: impl Fn(u32) -> u32,
    times: Option<&[i64]>,
    asked: &LabelSplit,
) -> Result<[Vec<u32>; 3], SplitError> {
    let labelled = all.filter(|&element| label.values.is_labelled(row(element) as usize));
    let groups: Vec<Vec<u32>> = match (label.values, asked.by_class) {
        (_, false) => vec![labelled.collect()],
        (LabelValues::Single { classes, of }, true) => {
            let mut groups = vec![Vec::new(); *classes];
            labelled.for_each(|element| groups[of[row(element) as usize] as usize].push(element));
            groups
        }
        (LabelValues::Multi { .. } | LabelValues::Real { .. }, true) => {
            return Err(SplitError::NoClasses(label.name.to_owned()));
        }
    };
    let mut parts: [Vec<u32>; 3] = Default::default();
    for mut group in groups {
        match (asked.order, times) {
            (Order::Random(seed), _) => shuffle(&mut group, seed),
            (Order::Time | Order::Events, times) => {
                group.sort_by_key(|&element| times.map(|times| times[element as usize]))
            }
        }
        for (part, more) in parts.iter_mut().zip(asked.shares.cut(&group)) {
            part.extend(more);
        }
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    Ok(parts)
}
