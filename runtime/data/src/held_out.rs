//! The links of a split, held out of training.

use std::collections::{BTreeSet, HashMap};

use hgnnc_dataset::{Dataset, LinkSplitData};
use hgnnc_ir::dataflow::Dataflow;
use hgnnc_ir::training::Training;
use hgnnc_ir::types::Graph;

use crate::bind::{BindOptions, Binder, missing};
use crate::bound::LinksByGraph;
use crate::error::{ExecError, Result};

/// Checks the validation and test links of a model without building graphs.
///
/// # Errors
/// A split that the dataset does not have, that holds links of other relations only, or that overlaps
/// with the training links.
pub fn check_held_out(flow: &Dataflow, training: &Training, dataset: &Dataset, split: Option<&str>) -> Result<()> {
    let options = BindOptions { split: split.map(str::to_owned), ..BindOptions::default() };
    Binder::new(flow, dataset, &options)?.held_out(training).map(drop)
}

/// With more relations than this, a message names only the first and the last.
const NAMED: usize = 12;

impl Binder<'_> {
    /// Validation and test links of the split; `None` for models that are not trained on links.
    pub(crate) fn held_out(&self, training: &Training) -> Result<Option<[LinksByGraph; 2]>> {
        let Some(target) = training.links() else { return Ok(None) };
        let split = match target.has_held_out(self.flow) {
            true => self.link_split(training.split.as_deref())?,
            false => None,
        };
        let Some(split) = split else {
            return Ok(Some([(); 2].map(|()| vec![vec![]; target.graphs.len()])));
        };
        // Links of metapaths are held out of nothing.
        let relation = |graph: &Graph| match self.flow.graphs[graph.index()].steps[..] {
            [step] => Some(self.relations[step.relation as usize]),
            _ => None,
        };
        let of_graphs: Vec<Option<usize>> = target.graphs.iter().map(relation).collect();
        let predicted: Vec<usize> = of_graphs.iter().copied().flatten().collect();
        let repeats: Vec<usize> = target.exclude.iter().map(|&of| self.relations[of as usize]).collect();
        self.dataset.check_links(split, &predicted, &repeats)?;
        let position: HashMap<usize, usize> =
            of_graphs.iter().enumerate().filter_map(|(i, &of)| Some((of?, i))).collect();
        let parts = [&split.val, &split.test].map(|links| {
            let mut by_graph = vec![vec![]; of_graphs.len()];
            for ((&src, &dst), &relation) in links.src.iter().zip(&links.dst).zip(&links.relation) {
                if let Some(&position) = position.get(&(relation as usize)) {
                    by_graph[position].push((src, dst));
                }
            }
            by_graph
        });
        // Links between rows as of cutoffs are those of a relation of the dataset.
        let own = |graph: &Graph| match self.flow.graphs[graph.index()].steps[..] {
            [step] => Some(self.relations[self.flow.relation_of_links(step) as usize]),
            _ => None,
        };
        let own: Vec<usize> = target.graphs.iter().filter_map(own).collect();
        self.some_are_predicted(split, &parts, &own)?;
        Ok(Some(parts))
    }

    /// Errors if a split has links but none of a relation that the model predicts, since it would measure nothing.
    fn some_are_predicted(&self, split: &LinkSplitData, parts: &[LinksByGraph; 2], own: &[usize]) -> Result<()> {
        let held: BTreeSet<usize> =
            split.val.relation.iter().chain(&split.test.relation).map(|&relation| relation as usize).collect();
        if held.is_empty() || parts.iter().flatten().any(|links| !links.is_empty()) {
            return Ok(());
        }
        if own.iter().any(|relation| held.contains(relation)) {
            return Err(ExecError::Unsupported(format!(
                "all links of the split `{}` repeat training links of their period, so there is nothing to measure",
                split.name
            )));
        }
        let names = |relations: &mut dyn Iterator<Item = usize>| {
            let names: Vec<String> = relations.map(|of| format!("`{}`", self.dataset.relations[of].name)).collect();
            match &names[..] {
                [first, .., last] if names.len() > NAMED => format!("{first} to {last} ({} relations)", names.len()),
                _ => names.join(", "),
            }
        };
        Err(ExecError::Unsupported(format!(
            "all links of the split `{}` are of {}, but the model predicts links of {}; the middle row of a file of links is the \
             position of the relation in dataset.toml, from 0",
            split.name,
            names(&mut held.into_iter()),
            names(&mut own.iter().copied())
        )))
    }

    /// Link split to use: the requested, the model's own or the only one.
    pub fn link_split(&self, own: Option<&str>) -> Result<Option<&LinkSplitData>> {
        let found = link_split(self.dataset, self.options.split.as_deref().or(own))?;
        Ok(found.map(|split| &self.dataset.link_splits[split]))
    }
}

/// Position of a dataset's split of links of a name, or of the first one.
pub(crate) fn link_split(dataset: &Dataset, wanted: Option<&str>) -> Result<Option<usize>> {
    let splits = &dataset.link_splits;
    let found = splits.iter().position(|split| wanted.is_none_or(|wanted| split.name == wanted));
    match (found, wanted) {
        (None, Some(name)) => {
            Err(missing(dataset, "split of links", name, splits.iter().map(|split| split.name.clone())))
        }
        (found, _) => Ok(found),
    }
}
