//! An artifact against a dataset: what the model reads must be there, as in training.

use hgnnc_dataset::Dataset;
use hgnnc_dataset::dataset::VertexTypeData;
use hgnnc_dataset::{LabelValues, RelationData};
use hgnnc_ir::PathRows;
use hgnnc_ir::types::VertexType;

use super::Artifact;
use super::description::{
    FeatureSchema, RelationSchema, TargetForm, TaskForm, VertexSchema, features, hash_of_ids, kind_of, train_labels,
};
use crate::{Error, Observer, Purpose};

/// The labels and splits of the rows of an output.
struct Labelled<'d> {
    /// Name of the vertex type or relation.
    name: &'d str,
    /// Each with its values and the names of its classes.
    labels: Vec<(&'d str, &'d LabelValues, &'d [String])>,
    splits: Vec<&'d str>,
}

impl Artifact {
    /// Checks that a dataset has what the model reads.
    ///
    /// # Errors
    /// All reasons why it does not fit.
    pub(crate) fn check(
        &self,
        dataset: &Dataset,
        split: Option<&str>,
        purpose: Purpose,
        observer: &mut dyn Observer,
    ) -> Result<(), Error> {
        let mut wrong = vec![];
        // Path instances are listed later, of the dataset's relations.
        let of_paths = |vertex: usize| self.program.paths.iter().any(|path| path.vertex.index() == vertex);
        for (row, schema) in self.description.vertices.iter().enumerate().filter(|(row, _)| !of_paths(*row)) {
            match dataset.vertex_type(&schema.dataset) {
                Some(of) => {
                    let data = &dataset.vertex_types[of];
                    for (field, read) in features(&self.program, VertexType::new(row)) {
                        wrong.extend(unfit(field.as_deref(), read, data));
                    }
                    self.vertex(schema, data, &mut wrong, observer);
                }
                None => wrong.push(format!(
                    "there is no vertex type `{}`; it has {}",
                    schema.dataset,
                    list(dataset.vertex_types.iter().map(|of| &of.name[..]))
                )),
            }
        }
        let of_paths = |relation: usize| {
            self.program.paths.iter().any(|path| path.relations.iter().any(|&by| by as usize == relation))
        };
        let relations = self.description.relations.iter().enumerate();
        for (_, schema) in relations.filter(|(row, _)| !of_paths(*row)) {
            self.relation(schema, dataset, &mut wrong);
        }
        self.data_of_hops(dataset, &mut wrong);
        let asked = split.or(self.description.evaluation.as_ref().and_then(|of| of.split.as_deref()));
        let evaluation = self.description.evaluation.as_ref().filter(|_| !purpose.is_of_outputs());
        let targets: Vec<_> = evaluation.into_iter().flat_map(|evaluation| evaluation.targets()).collect();
        for (task, target) in &targets {
            self.labels((task, target), dataset, asked, &mut wrong);
        }
        for (vertex, label, width) in train_labels(&self.program) {
            // That of a target has been compared.
            let name = &self.description.vertices[vertex.index()].name;
            let is_it = |target: &TargetForm| match target {
                TargetForm::Label { vertex, label: known, .. } => vertex == name && known == label,
                TargetForm::Links { .. } => false,
            };
            if !targets.iter().any(|(_, target)| is_it(target)) {
                self.train_labels((vertex, label, width), dataset, asked, &mut wrong);
            }
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let place = match dataset.folder.as_os_str().is_empty() {
            true => format!("the dataset `{}`", dataset.name),
            false => format!("the dataset in `{}`", dataset.folder.display()),
        };
        let lines: Vec<String> = wrong.iter().map(|line| format!("\n  {line}")).collect();
        Err(Error::input(format!("{place} does not fit `{}`:{}", self.path.display(), lines.concat())))
    }

    fn vertex(
        &self,
        schema: &VertexSchema,
        data: &VertexTypeData,
        wrong: &mut Vec<String>,
        observer: &mut dyn Observer,
    ) {
        let name = &data.name;
        if schema.rows && data.count != schema.count {
            wrong.push(format!(
                "`{name}` has {} vertices; the model has learned a row for each of {} (`embedding` or `onehot`), and none \
                 for a vertex that was not there: train it again with these, or give `{}` features",
                data.count, schema.count, schema.name
            ));
            return;
        }
        let (Some(known), Some(ids)) = (&schema.ids, &data.ids) else { return };
        // Equal rows have equal ids, and hashing is the cost of reading them.
        if *known == hash_of_ids(ids) {
            return;
        }
        match schema.rows {
            true => wrong.push(format!(
                "`{name}` has other ids than in training, or in another order; the model has learned a row for each vertex \
                 (`embedding` or `onehot`), by its position"
            )),
            false => observer.note(format!("the vertices of `{name}` are others than in training")),
        }
    }

    fn relation(&self, schema: &RelationSchema, dataset: &Dataset, wrong: &mut Vec<String>) {
        let name = &schema.dataset;
        let Some(data) = dataset.relation(name).map(|of| &dataset.relations[of]) else {
            let names = list(dataset.relations.iter().map(|of| &of.name[..]));
            wrong.push(format!("there is no relation `{name}`; it has {names}"));
            return;
        };
        let in_dataset = |model: &String| {
            let known = self.description.vertices.iter().find(|of| of.name == *model);
            known.map_or(model.clone(), |of| of.dataset.clone())
        };
        let ends = [&schema.source, &schema.destination].map(in_dataset);
        let found = [data.src, data.dst].map(|of| &dataset.vertex_types[of].name);
        if ends.iter().zip(found).any(|(expected, found)| expected != found) {
            wrong.push(format!(
                "`{name}` goes from `{}` to `{}`; in training it went from `{}` to `{}`",
                found[0], found[1], ends[0], ends[1]
            ));
        }
        edge_data(schema, data, wrong);
    }

    /// Weight and features that the model reads of the hops of path instances, and of edges to predict.
    fn data_of_hops(&self, dataset: &Dataset, wrong: &mut Vec<String>) {
        let schema = |relation: u32| self.description.relations.get(relation as usize);
        for path in &self.program.paths {
            let carriers = match path.rows {
                PathRows::Walks { .. } => &path.relations[..],
                PathRows::Edges | PathRows::Cutoffs => &path.relations[1..],
                // Neither has data of edges.
                PathRows::Links { .. } | PathRows::Latest => &[],
            };
            for (step, carrier) in path.steps.iter().zip(carriers) {
                if let (Some(of), Some(carrier)) = (schema(step.relation), schema(*carrier))
                    && let Some(data) = dataset.relation(&of.dataset).map(|found| &dataset.relations[found])
                {
                    edge_data(carrier, data, wrong);
                }
            }
        }
    }

    /// The labels and splits of the vertices of a type of the model, or of the edges that it is.
    fn labelled<'d>(&self, vertex: usize, dataset: &'d Dataset) -> Option<Labelled<'d>> {
        let edges =
            self.program.paths.iter().find(|path| path.rows == PathRows::Edges && path.vertex.index() == vertex);
        if let Some(path) = edges {
            let relation = self.description.relations.get(path.steps.first()?.relation as usize)?;
            let of = &dataset.relations[dataset.relation(&relation.dataset)?];
            return Some(Labelled {
                name: &of.name,
                labels: of.labels.iter().map(|of| (&of.name[..], &of.values, &of.class_names[..])).collect(),
                splits: of.splits.iter().map(|split| &split.name[..]).collect(),
            });
        }
        let of = dataset.vertex_type(&self.description.vertices.get(vertex)?.dataset)?;
        let labels = dataset.labels.iter().filter(|label| label.vertex_type == of);
        let splits = dataset.splits.iter().filter(|split| split.vertex_type == of);
        Some(Labelled {
            name: &dataset.vertex_types[of].name,
            labels: labels.map(|of| (&of.name[..], &of.values, &of.class_names[..])).collect(),
            splits: splits.map(|split| &split.name[..]).collect(),
        })
    }

    /// A label that the model reads in the training part of a split.
    fn train_labels(
        &self,
        (vertex, label, width): (VertexType, &str, usize),
        dataset: &Dataset,
        asked: Option<&str>,
        wrong: &mut Vec<String>,
    ) {
        let Some(Labelled { name, labels, splits }) = self.labelled(vertex.index(), dataset) else { return };
        match labels.iter().find(|(known, ..)| *known == label) {
            None => {
                let labels = list(labels.iter().map(|(name, ..)| *name));
                wrong.push(format!("`{name}` has no label `{label}`, which the model reads; it has {labels}"));
            }
            Some((_, values, _)) => {
                let found = match kind_of(values) {
                    TaskForm::Class { width } | TaskForm::Multilabel { width } | TaskForm::Numbers { width } => width,
                    TaskForm::Links => 0,
                };
                if found != width {
                    let found = in_words(&kind_of(values));
                    wrong.push(format!("`{label}` of `{name}` has {found}; the model reads {width} columns"));
                }
            }
        }
        let reads = format!("the model reads `{label}` of `{name}` in the training part of a split");
        match asked {
            Some(asked) if !splits.contains(&asked) => {
                let splits = list(splits.into_iter());
                wrong.push(format!("{reads}, and there is no split `{asked}` of `{name}`; it has {splits}"));
            }
            Some(_) => {}
            None if splits.is_empty() => wrong.push(format!("{reads}, and there is no split of `{name}`")),
            None if splits.len() > 1 => wrong.push(format!(
                "{reads}, and there are several splits of `{name}` ({}): name one with `--split`",
                list(splits.into_iter())
            )),
            None => {}
        }
    }

    /// Labels and split, for metrics.
    fn labels(
        &self,
        (task, target): (&TaskForm, &TargetForm),
        dataset: &Dataset,
        asked: Option<&str>,
        wrong: &mut Vec<String>,
    ) {
        let known = |name: &str, names: Vec<&str>, of: &str, wrong: &mut Vec<String>| {
            if !names.contains(&name) {
                wrong.push(format!("there is no split `{name}` of {of}; it has {}", list(names.into_iter())));
            }
        };
        let TargetForm::Label { vertex, label, classes } = target else {
            if let Some(asked) = asked {
                known(asked, dataset.link_splits.iter().map(|of| &of.name[..]).collect(), "links", wrong);
            }
            return;
        };
        let rows = self.description.vertices.iter().position(|of| of.name == *vertex);
        let Some(Labelled { name, labels, splits }) = rows.and_then(|rows| self.labelled(rows, dataset)) else {
            return;
        };
        match labels.iter().find(|(name, ..)| name == label) {
            None => {
                let labels = list(labels.iter().map(|(name, ..)| *name));
                wrong.push(format!("`{name}` has no label `{label}`; it has {labels}"));
            }
            Some((_, values, named)) => match (task, kind_of(values)) {
                (task, found) if *task == found => {
                    if !classes.is_empty() && !named.is_empty() && classes[..] != **named {
                        wrong.push(format!(
                            "the classes of `{label}` of `{name}` are {}; the model was trained on {}, in this order",
                            list(named.iter().map(|name| &name[..])),
                            list(classes.iter().map(|name| &name[..]))
                        ));
                    }
                }
                (task, found) => wrong.push(format!(
                    "`{label}` of `{name}` has {}; the model was trained on {}",
                    in_words(&found),
                    in_words(task)
                )),
            },
        }
        match asked {
            Some(asked) => known(asked, splits, &format!("`{name}`"), wrong),
            None if splits.is_empty() => wrong.push(format!("there is no split of `{name}` to measure the model on")),
            None if splits.len() > 1 => wrong.push(format!(
                "there are several splits of `{name}` ({}): name one with `--split`",
                list(splits.into_iter())
            )),
            None => {}
        }
    }
}

/// Weight and features that the model reads of the edges of a relation.
fn edge_data(read: &RelationSchema, data: &RelationData, wrong: &mut Vec<String>) {
    let name = &data.name;
    if read.weight && data.weight.is_none() {
        wrong.push(format!("the edges of `{name}` have no weight, which the model reads"));
    }
    let width = data.features.as_ref().map(|of| of.dim);
    match (read.features, width) {
        (Some(read), None) => {
            wrong.push(format!("the edges of `{name}` have no features; the model reads {read} columns"));
        }
        (Some(read), Some(found)) if read != found => wrong.push(format!(
            "the features of the edges of `{name}` have {found} columns; the model was trained on {read}"
        )),
        _ => {}
    }
}

fn in_words(task: &TaskForm) -> String {
    match task {
        TaskForm::Class { width } => format!("one of {width} classes"),
        TaskForm::Multilabel { width } => format!("any of {width} classes"),
        TaskForm::Numbers { width } => format!("{width} numbers"),
        TaskForm::Links => "links".into(),
    }
}

fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const SHOWN: usize = 12;
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "none".into(),
        n if n > SHOWN => format!("{}, and {} more", names[..SHOWN].join(", "), n - SHOWN),
        _ => names.join(", "),
    }
}

/// The reason why features of a vertex type are not those that a program reads, if there is one.
fn unfit(field: Option<&str>, read: FeatureSchema, data: &VertexTypeData) -> Option<String> {
    let name = &data.name;
    let what = match field {
        Some(field) => format!("features `{field}`"),
        None => "features".to_owned(),
    };
    let Some(found) = data.features_of(field) else {
        return Some(format!("`{name}` has no {what}; the model reads {} columns", read.width));
    };
    if found.dim() != read.width {
        let found = found.dim();
        return Some(format!("the {what} of `{name}` have {found} columns; the model was trained on {}", read.width));
    }
    match (read.sparse, found.is_sparse()) {
        (true, false) => Some(format!("the {what} of `{name}` are dense; the model reads sparse ones (CSR)")),
        (false, true) => Some(format!("the {what} of `{name}` are sparse (CSR); the model reads dense ones")),
        (true, true) | (false, false) => None,
    }
}
