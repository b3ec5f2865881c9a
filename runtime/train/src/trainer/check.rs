//! Checks that a model can be trained and measured on its data.

use std::collections::BTreeSet;

use hgnnc_data::Target as Labels;
use hgnnc_data::{BoundData, ExecError, Result};
use hgnnc_ir::training::{self, Criterion, Keep, Part, Task, Trained, Training};
use hgnnc_ir::types::Graph;

use super::Trainer;

impl Trainer {
    /// Training block of the model.
    fn training(&self) -> Result<&Training> {
        match (&self.executable.training, &self.executable.train) {
            (Some(training), Some(_)) => Ok(training),
            _ => Err(ExecError::Unsupported(format!(
                "the model `{}` has no `train` block, so it cannot be trained",
                self.executable.model
            ))),
        }
    }

    /// Checks labels and splits against the training block.
    pub(super) fn check_target(&mut self) -> Result<()> {
        let Some(training) = &self.executable.training else { return Ok(()) };
        let data = self.session.data();
        if let Some(target) = training.links() {
            let links = data.part(Part::Train).len();
            let size = training.batch.as_ref().map_or(0, |batch| batch.size);
            // Links of metapaths are a draw of many; those as of cutoffs are no messages of their batch anyway.
            let as_of_cutoffs = |graph: &Graph| data.graphs[graph.index()].candidates.is_some();
            let of_relations = target.has_held_out(&self.executable.infer) && !target.graphs.iter().any(as_of_cutoffs);
            if self.executable.batch.is_some() && of_relations && (1..=size).contains(&links) {
                self.warnings.push(format!(
                    "a batch holds all {links} links, so no link of their relations is a message in training: choose a \
                     smaller `batch`"
                ));
            }
        }
        for (term, trained) in training.trained.iter().enumerate() {
            check_labels(data, term, trained)?;
        }
        self.warn_of_missing_parts()
    }

    /// Warns of metrics that cannot be measured.
    fn warn_of_missing_parts(&mut self) -> Result<()> {
        let Some(training) = &self.executable.training else { return Ok(()) };
        let selected = Some(training.select).filter(|_| training.keep == Keep::Best);
        let criteria = [selected, training.stop.map(|s| s.criterion)];
        let mut missing: Vec<Criterion> =
            criteria.into_iter().flatten().filter(|c| !self.has_rows(c.part, c.measure)).collect();
        missing.dedup();
        let measures =
            |c: &Criterion| self.links.as_ref().is_none_or(|links| links.can_measure(c.part, c.measure.metric));
        let alone = criteria.into_iter().flatten().filter(|c| !missing.contains(c) && !measures(c));
        for c in alone.collect::<Vec<_>>() {
            self.warnings.push(format!(
                "all pairs of vertices are links, so `{}` compares them with nothing: all epochs run, and the last one is kept",
                training.criterion_name(c)
            ));
        }
        for c in missing {
            self.warnings.push(format!(
                "the split has no {} part, so `{}` cannot be measured: all epochs run, and the last one is kept",
                c.part.name(),
                training.criterion_name(c)
            ));
        }
        Ok(())
    }

    /// The train block.
    ///
    /// # Errors
    /// A model without one, or nothing to train on.
    pub fn check_trainable(&self) -> Result<&Training> {
        let training = self.training()?;
        let data = self.session.data();
        for (term, trained) in training.trained.iter().enumerate() {
            if data.part_of(term, Part::Train).is_empty() {
                return Err(ExecError::Unsupported(match &trained.target {
                    training::Target::Vertices { .. } => {
                        "the split has no vertices to train on: its `train` part is empty or missing".into()
                    }
                    training::Target::Links(links) => {
                        let flow = &self.executable.infer;
                        let steps = links.graphs.iter().flat_map(|graph| &flow.graphs[graph.index()].steps);
                        let names: BTreeSet<String> = steps
                            .map(|step| format!("`{}`", flow.relations[step.relation as usize].dataset_name))
                            .collect();
                        let names = Vec::from_iter(names).join(", ");
                        format!("there are no links to train on among the edges of {names}")
                    }
                }));
            }
        }
        if let Some(batch) = &training.batch
            && let Some(vertex) = batch.all_of
            && data.seeds(batch).is_empty()
        {
            let name = &self.executable.infer.vertex_types[vertex.index()].name;
            return Err(ExecError::Unsupported(format!("there are no vertices `{name}` to make batches of")));
        }
        Ok(training)
    }
}

/// Checks the labels and the split of a trained output.
fn check_labels(data: &BoundData, term: usize, trained: &Trained) -> Result<()> {
    let training::Target::Vertices { vertex, label } = &trained.target else { return Ok(()) };
    let rows = data.num_vertices.get(vertex.index()).copied().unwrap_or(0);
    let what = || format!("the label `{label}`");
    let wrong = |found: String, expected: String| Err(ExecError::Shape { what: what(), found, expected });
    match (data.labels_of(term), trained.task) {
        (None, _) => return wrong("no data".into(), format!("{rows} rows")),
        (Some(Labels::Classes(labels)), Task::Classify { classes }) => {
            if labels.len() != rows {
                return wrong(format!("{} rows", labels.len()), rows.to_string());
            }
            if let Some(bad) = labels.iter().find(|&&l| l >= classes as i32) {
                return wrong(format!("class {bad}"), format!("classes 0 to {}", classes.saturating_sub(1)));
            }
        }
        (Some(Labels::Rows(targets)), Task::MultiLabel { labels: width } | Task::Regress { width }) => {
            if targets.len() != rows * width {
                return wrong(format!("{} numbers", targets.len()), format!("{rows} rows of {width}"));
            }
        }
        (Some(Labels::Classes(_)), Task::MultiLabel { .. } | Task::Regress { .. } | Task::Link) => {
            return wrong("one class per vertex".into(), "a row of numbers per vertex".into());
        }
        (Some(Labels::Rows(_)), Task::Classify { .. } | Task::Link) => {
            return wrong("a row of numbers per vertex".into(), "one class per vertex".into());
        }
    }
    for part in data.truths[term].parts.iter().flatten() {
        if *part as usize >= rows {
            return wrong(format!("vertex {part} in the split"), format!("vertices 0 to {}", rows.saturating_sub(1)));
        }
    }
    Ok(())
}
