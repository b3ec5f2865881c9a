//! Splits of the labelled edges of a relation.

use hgnnc_dataset::{Dataset, EdgeSplit, LabelValues, RelationData};
use rustc_hash::FxHashMap;

use crate::labelled::{LabelSplit, divide};
use crate::reverses::{Reverses, undirected};
use crate::{Order, SplitError};

/// The labelled edges that are divided.
#[derive(Clone, PartialEq, Debug)]
pub struct LabelledEdges {
    /// Position of the relation in the dataset.
    pub relation: usize,
    /// Position of the label among those of the relation.
    pub label: usize,
    /// Relations that hold reverses of its edges, by position; the relation itself: it is symmetric. Those that have a label
    /// of the same name and the reverse of every edge are found without being named.
    pub reverses: Vec<usize>,
}

/// Statistics of a split of edges, for a message.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct EdgeOutcome {
    /// Edges of the training, validation and test part.
    pub edges: [usize; 3],
    /// Relations whose edges are in the part of the edges that they reverse, with the sizes of their parts; the relation
    /// itself, if it is symmetric.
    pub reverses: Vec<(usize, [usize; 3])>,
    /// Relations with a label of the same name that hold the reverses of this share of the edges, and were not named: what is
    /// learned of them may tell of edges to test on. From [`crate::SUSPICIOUS`] on.
    pub suspects: Vec<(usize, f64)>,
}

/// Adds a split of the labelled edges of a relation to the dataset. No edge leaves the graph.
///
/// Without reverses, each edge is divided by itself. With them, all edges between two vertices are in one part, and so are
/// their reverses, whose relations receive a split of the same name. By time, two vertices have the time of their first
/// edge, and further edges of theirs that are later than the first edge of a later part are in no part.
///
/// # Errors
/// Shares that are none, a name that is taken, a split by time of edges without times, a split by class of a label without
/// classes, reverses that lead elsewhere or have no such label, and a part that would be empty. They leave the dataset
/// as it was before.
pub fn split_edges(dataset: &mut Dataset, of: &LabelledEdges, asked: &LabelSplit) -> Result<EdgeOutcome, SplitError> {
    asked.shares.check()?;
    let relations = &dataset.relations;
    let relation = &relations[of.relation];
    let label = &relation.labels[of.label];
    let has_label = |of: &RelationData| of.label(&label.name).is_some();
    if let Some(&reverse) = of.reverses.iter().find(|&&reverse| !has_label(&relations[reverse])) {
        let (label, reverse) = (label.name.clone(), relations[reverse].name.clone());
        return Err(SplitError::UnlabelledReverse { label, reverse });
    }
    let Reverses { all: reverses, suspects, .. } = Reverses::find(relations, of.relation, &of.reverses, has_label)?;
    let is_taken = |of: usize| relations[of].splits.iter().any(|split| split.name == asked.name);
    if is_taken(of.relation) || reverses.iter().any(|&of| is_taken(of)) {
        return Err(SplitError::Name(asked.name.clone()));
    }
    let time = match (asked.order, &relation.time) {
        (Order::Random(_), _) => None,
        (Order::Events, _) => return Err(SplitError::Events),
        (Order::Time, Some(time)) => Some(&time[..]),
        (Order::Time, None) => return Err(SplitError::NoTime(format!("relation `{}`", relation.name))),
    };
    let symmetric = reverses.contains(&of.relation);
    let units = Units::new(relation, &label.values, (!reverses.is_empty()).then_some(symmetric));
    let times = time.map(|time| units.times(time));
    let first = &units.first;
    let parts = divide(0..first.len() as u32, label.into(), |unit| first[unit as usize], times.as_deref(), asked)?;
    let mut part_of = vec![None; first.len()];
    for (part, units) in parts.iter().enumerate() {
        units.iter().for_each(|&unit| part_of[unit as usize] = Some(part));
    }
    // For each part, the first time of later ones.
    let first_time =
        |units: &[u32]| times.as_ref().and_then(|times| units.iter().map(|&unit| times[unit as usize]).min());
    let until: [Option<i64>; 3] =
        std::array::from_fn(|part| parts[part + 1..].iter().filter_map(|units| first_time(units)).min());
    let part_at = |unit: u32, edge: usize, of: &RelationData| -> Option<usize> {
        let time = of.time.as_ref().map(|time| time[edge]);
        part_of[unit as usize].filter(|&part| until[part].zip(time).is_none_or(|(until, time)| time <= until))
    };
    let own = parts_of(relation.num_edges(), |edge| part_at(units.of[edge]?, edge, relation));
    let sizes = own.each_ref().map(Vec::len);
    let said = format!("labelled edges of `{}`", relation.name);
    asked.shares.check_parts(sizes, label.values.num_labelled(), &said)?;
    let mut outcome = EdgeOutcome { edges: sizes, reverses: vec![], suspects };
    let mut made = vec![(of.relation, own)];
    for reverse in reverses {
        if reverse == of.relation {
            outcome.reverses.push((reverse, sizes));
            continue;
        }
        let data = &relations[reverse];
        let values = data.label(&label.name).map(|label| &label.values);
        let parts = parts_of(data.num_edges(), |edge| {
            let ends = undirected((data.dst_ids[edge], data.src_ids[edge]), symmetric);
            let is_labelled = values.is_some_and(|values| values.is_labelled(edge));
            part_at(*units.by_ends.get(&ends).filter(|_| is_labelled)?, edge, data)
        });
        outcome.reverses.push((reverse, parts.each_ref().map(Vec::len)));
        made.push((reverse, parts));
    }
    for (relation, [train, val, test]) in made {
        dataset.relations[relation].splits.push(EdgeSplit { name: asked.name.clone(), train, val, test });
    }
    Ok(outcome)
}

/// The edges of each part, ascending.
fn parts_of(num_edges: usize, part: impl Fn(usize) -> Option<usize>) -> [Vec<u32>; 3] {
    let mut parts: [Vec<u32>; 3] = Default::default();
    for edge in 0..num_edges {
        if let Some(part) = part(edge) {
            parts[part].push(edge as u32);
        }
    }
    parts
}

/// The labelled edges of a relation in units, each of which is in one part: single edges, or all between two vertices.
struct Units {
    /// The unit of each edge; none of an edge without a label.
    of: Vec<Option<u32>>,
    /// The first edge of each unit.
    first: Vec<u32>,
    /// The unit of the edges between two vertices, where these are units.
    by_ends: FxHashMap<(u32, u32), u32>,
}

impl Units {
    /// `between`: whether the edges between two vertices are a unit, and if so, whether in both directions.
    fn new(relation: &RelationData, label: &LabelValues, between: Option<bool>) -> Units {
        let (mut of, mut first, mut by_ends) = (Vec::with_capacity(relation.num_edges()), vec![], FxHashMap::default());
        for (edge, (&src, &dst)) in relation.src_ids.iter().zip(&relation.dst_ids).enumerate() {
            let new = first.len() as u32;
            let unit = label.is_labelled(edge).then(|| match between {
                Some(symmetric) => *by_ends.entry(undirected((src, dst), symmetric)).or_insert(new),
                None => new,
            });
            if unit == Some(new) {
                first.push(edge as u32);
            }
            of.push(unit);
        }
        Units { of, first, by_ends }
    }

    /// The earliest time of the edges of each unit.
    fn times(&self, time: &[i64]) -> Vec<i64> {
        let mut times = vec![i64::MAX; self.first.len()];
        for (unit, &time) in self.of.iter().zip(time) {
            if let Some(unit) = unit {
                let first = &mut times[*unit as usize];
                *first = time.min(*first);
            }
        }
        times
    }
}
