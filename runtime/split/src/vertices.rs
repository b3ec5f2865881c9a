//! Splits of labelled vertices.

use hgnnc_graph::{Dataset, LabelValues, SplitData};

use crate::shares::shuffle;
use crate::{Order, Shares, SplitError};

/// How the labelled vertices of a type are divided.
#[derive(Clone, PartialEq, Debug)]
pub struct VertexSplit {
    /// Position of the label in the dataset.
    pub label: usize,
    /// Name of the split.
    pub name: String,
    /// Sizes of the parts.
    pub shares: Shares,
    /// Which vertices come first.
    pub order: Order,
    /// Whether each class is divided by itself, so that all parts have equal shares of it.
    pub by_class: bool,
}

/// Adds a split of the vertices with a label to the dataset. Returns the number of vertices of each part.
///
/// # Errors
/// Shares that are none, a name that is taken, a split by time of vertices without times, a split by class of a label
/// without classes, and a part that would be empty. The dataset is unchanged then.
pub fn split_vertices(dataset: &mut Dataset, asked: &VertexSplit) -> Result<[usize; 3], SplitError> {
    asked.shares.check()?;
    let label = &dataset.labels[asked.label];
    let vertex_type = label.vertex_type;
    if dataset.splits.iter().any(|split| split.name == asked.name && split.vertex_type == vertex_type) {
        return Err(SplitError::Name(asked.name.clone()));
    }
    let vertices = &dataset.vertex_types[vertex_type];
    let labelled = (0..vertices.count as u32).filter(|&v| label.is_labelled(v as usize));
    let groups: Vec<Vec<u32>> = match (&label.values, asked.by_class) {
        (_, false) => vec![labelled.collect()],
        (LabelValues::Single { classes, of }, true) => {
            let mut groups = vec![Vec::new(); *classes];
            labelled.for_each(|v| groups[of[v as usize] as usize].push(v));
            groups
        }
        (_, true) => return Err(SplitError::NoClasses(label.name.clone())),
    };
    let mut parts: [Vec<u32>; 3] = Default::default();
    for mut group in groups {
        match asked.order {
            Order::Random(seed) => shuffle(&mut group, seed),
            Order::Time => {
                let Some(time) = &vertices.time else {
                    return Err(SplitError::NoTime(format!("vertex type `{}`", vertices.name)));
                };
                group.sort_by_key(|&v| time[v as usize]);
            }
        }
        for (part, more) in parts.iter_mut().zip(asked.shares.cut(&group)) {
            part.extend(more);
        }
    }
    parts.iter_mut().for_each(|part| part.sort_unstable());
    let sizes = [parts[0].len(), parts[1].len(), parts[2].len()];
    asked.shares.check_parts(sizes, label.num_labelled(), &format!("labelled vertices of `{}`", vertices.name))?;
    let [train, val, test] = parts;
    dataset.splits.push(SplitData { name: asked.name.clone(), vertex_type, train, val, test });
    Ok(sizes)
}
