//! Splits of the labelled vertices of a type.

use hgnnc_dataset::{Dataset, SplitData};

use crate::labelled::{LabelSplit, divide};
use crate::{Order, SplitError};

/// Adds a split of the vertices with a label, by its position, to the dataset. Returns the number of vertices of each part.
///
/// # Errors
/// Shares that are none, a name that is taken, a split by time of vertices without times, a split by class of a label
/// without classes, and a part that would be empty. The dataset is unchanged then.
pub fn split_vertices(dataset: &mut Dataset, label: usize, asked: &LabelSplit) -> Result<[usize; 3], SplitError> {
    asked.shares.check()?;
    let label = &dataset.labels[label];
    let vertex_type = label.vertex_type;
    if dataset.splits.iter().any(|split| split.name == asked.name && split.vertex_type == vertex_type) {
        return Err(SplitError::Name(asked.name.clone()));
    }
    let vertices = &dataset.vertex_types[vertex_type];
    let times = match (asked.order, &vertices.time) {
        (Order::Random(_), _) => None,
        (Order::Events, _) => return Err(SplitError::Events),
        (Order::Time, Some(time)) => Some(&time[..]),
        (Order::Time, None) => return Err(SplitError::NoTime(format!("vertex type `{}`", vertices.name))),
    };
    let parts = divide(0..vertices.count as u32, label.into(), |vertex| vertex, times, asked)?;
    let sizes = parts.each_ref().map(Vec::len);
    asked.shares.check_parts(sizes, label.num_labelled(), &format!("labelled vertices of `{}`", vertices.name))?;
    let [train, val, test] = parts;
    dataset.splits.push(SplitData { name: asked.name.clone(), vertex_type, train, val, test });
    Ok(sizes)
}
