//! A model's schema against a dataset: after this and the dataset's own validation, no shape can be wrong.

use std::collections::BTreeSet;

use hgnnc_declare::names::{closest, did_you_mean};
use hgnnc_declare::schema::{FEATURES, FieldInfo, FieldKind, RelationInfo, Schema, VertexInfo};
use hgnnc_diag::{Diagnostic, Diagnostics, Span, codes};

use crate::dataset_names::DatasetNames;
use crate::train::TrainSpec;

/// The contents of a dataset that a schema can refer to.
#[derive(Clone, Debug, Default)]
pub struct DatasetSummary {
    /// Path of its `dataset.toml`, for messages.
    pub path: String,
    /// Vertex types, in the order of the dataset.
    pub vertices: Vec<VertexSummary>,
    /// Relations, in the order of the dataset.
    pub relations: Vec<RelationSummary>,
    /// Labels of all vertex types and relations.
    pub labels: Vec<LabelSummary>,
    /// Splits of vertices and edges, by name.
    pub splits: Vec<(String, RowsOf)>,
    /// Names of the splits of links.
    pub link_splits: Vec<String>,
}

/// The rows of a label or a split in a dataset, by position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RowsOf {
    /// The vertices of a type.
    Vertices(usize),
    /// The edges of a relation.
    Edges(usize),
}

/// A vertex type of a dataset.
#[derive(Clone, Debug)]
pub struct VertexSummary {
    /// Its name in `dataset.toml`.
    pub name: String,
    /// Number of vertices of this type.
    pub count: usize,
    /// Width of the features and whether they are stored as CSR.
    pub features: Option<(usize, bool)>,
    /// Further features, by name.
    pub fields: Vec<FieldSummary>,
    /// The earliest and the latest time, if it has times. `(0, 0)` without vertices.
    pub time: Option<(i64, i64)>,
}

/// Features of a vertex type that have a name in the dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldSummary {
    /// Its name in `dataset.toml`.
    pub name: String,
    /// Number of columns of the matrix.
    pub width: usize,
    /// Whether it is stored as CSR.
    pub sparse: bool,
}

/// A relation of a dataset.
#[derive(Clone, Debug)]
pub struct RelationSummary {
    /// Its name in `dataset.toml`.
    pub name: String,
    /// Position of the source type.
    pub src: usize,
    /// Position of the destination type.
    pub dst: usize,
    /// Number of edges in its file.
    pub edges: usize,
    /// Has a weight per edge.
    pub weighted: bool,
    /// Width of the edge features.
    pub features: Option<usize>,
    /// The earliest and the latest time of an edge, if it has times. `(0, 0)` without edges.
    pub time: Option<(i64, i64)>,
}

/// A label of a dataset.
#[derive(Clone, Debug)]
pub struct LabelSummary {
    /// Its name in `dataset.toml`.
    pub name: String,
    /// The rows that have it.
    pub of: RowsOf,
    /// The kind of prediction, with its number of classes or columns.
    pub kind: LabelSummaryKind,
}

/// Kind of a label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelSummaryKind {
    /// One class of several.
    Class(usize),
    /// Several labels at once.
    Multi(usize),
    /// So many real numbers per row.
    Real(usize),
}

/// Compares schema and train block with a dataset. `split` is the one asked for on the command line. Where only outputs are
/// computed, labels and splits that the model does not read as values need not be there.
pub fn check_dataset(
    schema: &Schema,
    train: Option<&TrainSpec>,
    dataset: &DatasetSummary,
    (split, outputs_only): (Option<&str>, bool),
    diagnostics: &mut Diagnostics,
) {
    let names: DatasetNames<'_> = dataset.vertices.iter().map(|vertex| vertex.name.as_str()).collect();
    let place = |vertex: &VertexInfo| names.find(&vertex.dataset_name);
    let places: Vec<Option<usize>> = schema.vertices.iter().map(place).collect();
    for (vertex, place) in schema.vertices.iter().zip(&places) {
        check_vertex(vertex, *place, dataset, diagnostics);
    }
    let names: DatasetNames<'_> = dataset.relations.iter().map(|relation| relation.name.as_str()).collect();
    let edges: Vec<Option<usize>> = schema.relations.iter().map(|r| names.find(&r.dataset_name)).collect();
    for (relation, place) in schema.relations.iter().zip(&edges) {
        check_relation(schema, (relation, *place), &places, dataset, diagnostics);
    }
    let of_vertices = schema.vertices.iter().zip(&places);
    let of_vertices = of_vertices.filter_map(|(v, place)| Some((&v.name, &v.fields, RowsOf::Vertices((*place)?))));
    let of_edges = schema.relations.iter().zip(&edges);
    let of_edges = of_edges.filter_map(|(r, place)| Some((&r.name, &r.fields, RowsOf::Edges((*place)?))));
    for (name, fields, place) in of_vertices.chain(of_edges) {
        for field in fields.iter().filter(|f| f.kind.is_label() && (f.used.get() || !outputs_only)) {
            check_label(name, field, place, dataset, diagnostics);
        }
    }
    check_times(schema, (&places, &edges), dataset, diagnostics);
    let mut checked = BTreeSet::new();
    check_train_labels(schema, (train, &places), dataset, diagnostics);
    for (_, field, place) in train_labels(schema, &places) {
        let Some(place) = place.filter(|place| checked.insert(*place)) else { continue };
        let needed = Needed { train, asked: split, at: field.span, why: "its training part is read" };
        check_split_of(place, &needed, dataset, diagnostics);
    }
    let Some(train) = train.filter(|_| !outputs_only) else { return };
    let needed = Needed { train: Some(train), asked: split, at: train.span, why: "training needs one" };
    for (target, label) in train.training.trained.iter().map(|trained| &trained.target).zip(&train.label_fields) {
        match target.vertex() {
            None if !train.held_out => {
                let Some(name) = split else { continue };
                let report =
                    Diagnostic::new(codes::NOT_HELD_OUT, format!("no links are held out by the split `{name}`"));
                let note = "the model learns links of metapaths, which are all training links";
                diagnostics.push(report.note(note).help("leave `--split` out"));
            }
            None => {
                let names: Vec<&str> = dataset.link_splits.iter().map(String::as_str).collect();
                check_split(&needed, ("links", "[[link_split]]".into(), names), dataset, diagnostics);
            }
            Some(vertex) => {
                let place = match label.and_then(|label| label.relation) {
                    Some(relation) => edges[relation].map(RowsOf::Edges),
                    None => places[vertex.index()].map(RowsOf::Vertices),
                };
                let Some(place) = place.filter(|place| checked.insert(*place)) else { continue };
                check_split_of(place, &needed, dataset, diagnostics);
            }
        }
    }
}

/// The labels that the model reads as values: vertex type, field, and place in the dataset.
fn train_labels<'s>(
    schema: &'s Schema,
    places: &[Option<usize>],
) -> impl Iterator<Item = (usize, &'s FieldInfo, Option<RowsOf>)> {
    let of_vertex = |(index, (vertex, place)): (usize, (&'s VertexInfo, &Option<usize>))| {
        let place = place.map(RowsOf::Vertices);
        let labels = vertex.fields.iter().filter(|field| field.kind.is_label() && field.used.get());
        labels.map(move |field| (index, field, place))
    };
    schema.vertices.iter().zip(places).enumerate().flat_map(of_vertex)
}

/// Refuses a label of the dataset that the model reads by one field and compares an output with by another one. The leak
/// check knows fields, and would not see that both are the same label.
fn check_train_labels(
    schema: &Schema,
    (train, places): (Option<&TrainSpec>, &[Option<usize>]),
    dataset: &DatasetSummary,
    diagnostics: &mut Diagnostics,
) {
    let Some(train) = train else { return };
    let targets = train.training.trained.iter().zip(&train.label_fields).filter_map(|(trained, label)| {
        let (vertex, label) = (trained.target.vertex()?, label.filter(|label| label.relation.is_none())?);
        let place = RowsOf::Vertices(places[vertex.index()]?);
        let field = label.declaration(schema, vertex)?;
        Some((field, place, find_label(field, place, dataset)?))
    });
    let targets: Vec<_> = targets.collect();
    for (vertex, read, place) in train_labels(schema, places) {
        let found = place.and_then(|place| find_label(read, place, dataset));
        let is_same = |(field, of, label): &&(&FieldInfo, RowsOf, &LabelSummary)| {
            field.span != read.span && Some(*of) == place && found.is_some_and(|found| found.name == label.name)
        };
        let Some((field, ..)) = targets.iter().find(is_same) else { continue };
        let name = &schema.vertices[vertex].name;
        diagnostics.push(
            Diagnostic::at(
                codes::DATA_LABEL,
                read.span,
                format!("the model reads `{name}.{}`, which is the label that an output is compared with", read.name),
                format!("the same label of the dataset as `{}`", field.name),
            )
            .label(field.span, "an output is compared with this field")
            .help("declare it once, so that what an output may read of it is known"),
        );
    }
}

impl DatasetSummary {
    /// The name of a vertex type or relation; empty if there is none.
    fn name_of(&self, rows: RowsOf) -> &str {
        match rows {
            RowsOf::Vertices(ty) => self.vertices.get(ty).map_or("", |vertex| &vertex.name),
            RowsOf::Edges(relation) => self.relations.get(relation).map_or("", |relation| &relation.name),
        }
    }
}

/// The dataset's label that a field means: by its name, or else the only one.
pub fn find_label<'d>(field: &FieldInfo, place: RowsOf, dataset: &'d DatasetSummary) -> Option<&'d LabelSummary> {
    let of_rows = || dataset.labels.iter().filter(|l| l.of == place);
    match &field.dataset_name {
        Some(name) => of_rows().find(|l| l.name == *name),
        None => of_rows().find(|l| l.name == field.name).or_else(|| of_rows().next()),
    }
}

/// A matrix of a vertex type in a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields are named for what they hold")]
pub struct FoundFeatures<'d> {
    /// The name of the field; `None` for `features`.
    pub field: Option<&'d str>,
    pub width: usize,
    pub sparse: bool,
}

/// The dataset's matrix that a field of features means: the one of its name, or else `features`, which only one field of
/// a vertex type can be.
pub fn find_features<'d>(
    vertex: &VertexInfo,
    field: &FieldInfo,
    found: &'d VertexSummary,
) -> Option<FoundFeatures<'d>> {
    let named = |name: &str| {
        let known = found.fields.iter().find(|known| known.name == *name)?;
        Some(FoundFeatures { field: Some(&known.name), width: known.width, sparse: known.sparse })
    };
    let unnamed = || found.features.map(|(width, sparse)| FoundFeatures { field: None, width, sparse });
    let is_unnamed = |field: &&FieldInfo| match &field.dataset_name {
        Some(name) => name == FEATURES,
        None => named(&field.name).is_none(),
    };
    match &field.dataset_name {
        Some(name) if name == FEATURES => unnamed(),
        Some(name) => named(name),
        None => named(&field.name)
            .or_else(|| if vertex.matrices().filter(is_unnamed).count() == 1 { unnamed() } else { None }),
    }
}

fn check_vertex(vertex: &VertexInfo, place: Option<usize>, dataset: &DatasetSummary, diagnostics: &mut Diagnostics) {
    let names = dataset.vertices.iter().map(|v| v.name.as_str());
    let Some(place) = place else {
        let report = Diagnostic::at(
            codes::DATA_VERTEX_TYPE,
            vertex.dataset_name_span,
            format!("the dataset has no vertex type `{}`", vertex.dataset_name),
            "not in the dataset",
        )
        .note(format!("{}: [[vertex_type]] has {}", dataset.path, list(names.clone())))
        .help("name the dataset's vertex type: `vertex Paper from \"paper\"`");
        diagnostics.push(did_you_mean(report, &vertex.dataset_name, names));
        return;
    };
    let found = &dataset.vertices[place];
    for field in &vertex.fields {
        let FieldKind::Real { width, sparse } = field.kind else { continue };
        let at = |what: &str| format!("{}: [[vertex_type]] `{}`, {what}", dataset.path, found.name);
        let Some(FoundFeatures { field: name, width: columns, sparse: stored }) = find_features(vertex, field, found)
        else {
            diagnostics.push(no_features(vertex, field, found, at));
            continue;
        };
        let is = |what: &str| match name {
            Some(name) => at(&format!("the field `{name}` has {what}")),
            None => at(&format!("features.{what}")),
        };
        match (columns, stored) {
            _ if columns != width => diagnostics.push(
                Diagnostic::at(
                    codes::DATA_WIDTH,
                    field.ty_span,
                    format!("`{}.{}` has {columns} columns in the dataset, not {width}", vertex.name, field.name),
                    format!("expected f32[{columns}]"),
                )
                .note(is(&format!("dim = {columns}"))),
            ),
            (_, true) if !sparse => diagnostics.push(
                Diagnostic::at(
                    codes::DATA_LAYOUT,
                    field.ty_span,
                    format!("`{}.{}` is stored sparsely in the dataset", vertex.name, field.name),
                    "declared as dense",
                )
                .note(is("kind = \"csr\""))
                .help(format!("declare it `f32[{columns}] sparse`")),
            ),
            (_, false) if sparse => diagnostics.push(
                Diagnostic::at(
                    codes::DATA_LAYOUT,
                    field.ty_span,
                    format!("`{}.{}` is stored densely in the dataset", vertex.name, field.name),
                    "declared as sparse",
                )
                .note(is("kind = \"dense\""))
                .help(format!("declare it `f32[{columns}]`")),
            ),
            (_, true | false) => {}
        }
    }
}

/// Differences of times are computed in numbers that are exact up to here.
pub const MOST_TIME: u64 = 1 << f32::MANTISSA_DIGITS;

/// The times that a schema declares against those of a dataset.
fn check_times(
    schema: &Schema,
    (places, edges): (&[Option<usize>], &[Option<usize>]),
    dataset: &DatasetSummary,
    diagnostics: &mut Diagnostics,
) {
    let of_vertices = schema.vertices.iter().zip(places).filter_map(|(vertex, place)| {
        let found = &dataset.vertices[(*place)?];
        Some((&vertex.name, vertex.time()?, "vertex_type", &found.name, found.time))
    });
    let of_edges = schema.relations.iter().zip(edges).filter_map(|(relation, place)| {
        let found = &dataset.relations[(*place)?];
        Some((&relation.name, relation.time()?, "relation", &found.name, found.time))
    });
    let mut range: Option<(i64, i64)> = None;
    for (name, field, table, found, time) in of_vertices.chain(of_edges) {
        let at = |what: &str| format!("{}: [[{table}]] `{found}`, {what}", dataset.path);
        let Some((first, last)) = time else {
            let message = format!("`{name}` has no times in the dataset");
            let report = Diagnostic::at(codes::DATA_TIME, field.ty_span, message, "declared here");
            diagnostics.push(report.note(at("no `time`")));
            continue;
        };
        let (earliest, latest) = range.unwrap_or((first, last));
        let all = (earliest.min(first), latest.max(last));
        range = Some(all);
        if all.1.abs_diff(all.0) > MOST_TIME {
            let message =
                format!("the times of the model span {} units, and {MOST_TIME} at most", all.1.abs_diff(all.0));
            let report = Diagnostic::at(codes::DATA_TIME, field.ty_span, message, "differences would not be exact");
            let note = at(&format!("`time` is from {first} to {last}"));
            diagnostics.push(report.note(note).help("write times in a coarser unit: days instead of seconds"));
            return;
        }
    }
}

/// A report of a field of features that the dataset does not have.
fn no_features(
    vertex: &VertexInfo,
    field: &FieldInfo,
    found: &VertexSummary,
    at: impl Fn(&str) -> String,
) -> Diagnostic {
    let FieldKind::Real { width, .. } = field.kind else { unreachable!("other fields are not of the dataset") };
    let instead = format!("declare `{0}: onehot` or `{0}: embedding[64]`", field.name);
    let report = |message: String| {
        Diagnostic::at(codes::DATA_FEATURES, field.ty_span, message, format!("declared with {width} columns"))
    };
    if found.features.is_none() && found.fields.is_empty() {
        let message = format!("`{}` has no features in the dataset", vertex.name);
        return report(message).note(at("no `features` table")).help(instead);
    }
    let name = field.dataset_name.as_ref().unwrap_or(&field.name);
    let known: Vec<&str> = found.fields.iter().map(|field| &field.name[..]).collect();
    let fields = list(known.iter().copied());
    let has = match (found.features, &known[..]) {
        (Some(_), []) => "`features`, and no fields".to_owned(),
        (Some(_), _) => format!("`features` and the fields {fields}"),
        (None, _) => format!("the fields {fields}, and no `features`"),
    };
    let help = match (closest(name, &known), found.features) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, Some(_)) => {
            format!("where `features` are meant, write `{}: f32[{width}] from \"{FEATURES}\"`", field.name)
        }
        (None, None) => instead,
    };
    let message = match name == FEATURES {
        true => format!("`{}` has no `features` in the dataset", vertex.name),
        false => format!("`{}` has no features `{name}` in the dataset", vertex.name),
    };
    report(message).note(at(&format!("which has {has}"))).help(help)
}

fn check_relation(
    schema: &Schema,
    (relation, place): (&RelationInfo, Option<usize>),
    places: &[Option<usize>],
    dataset: &DatasetSummary,
    diagnostics: &mut Diagnostics,
) {
    let names = dataset.relations.iter().map(|r| r.name.as_str());
    let Some(place) = place else {
        let report = Diagnostic::at(
            codes::DATA_RELATION,
            relation.dataset_name_span,
            format!("the dataset has no relation `{}`", relation.dataset_name),
            "not in the dataset",
        )
        .note(format!("{}: [[relation]] has {}", dataset.path, list(names.clone())))
        .help("name the dataset's relation: `relation r: A -> B from \"a-b\"`");
        diagnostics.push(did_you_mean(report, &relation.dataset_name, names));
        return;
    };
    let found = &dataset.relations[place];
    let vertex_name = |index: usize| dataset.vertices.get(index).map_or("?", |v| v.name.as_str());
    let ends = (places[relation.src], places[relation.dst]);
    if let (Some(src), Some(dst)) = ends
        && (src, dst) != (found.src, found.dst)
    {
        let mut report = Diagnostic::at(
            codes::DATA_RELATION_ENDS,
            relation.span,
            format!("`{}` joins other vertex types in the dataset", relation.name),
            format!(
                "declared from `{}` to `{}`",
                schema.vertices[relation.src].name, schema.vertices[relation.dst].name
            ),
        )
        .note(format!(
            "{}: [[relation]] `{}` goes from `{}` to `{}`",
            dataset.path,
            found.name,
            vertex_name(found.src),
            vertex_name(found.dst)
        ));
        if (dst, src) == (found.src, found.dst) {
            report = report.help("swap the two types; the other direction is `reverse(…)`");
        }
        diagnostics.push(report);
    }
    for field in &relation.fields {
        let at = |what: &str| format!("{}: [[relation]] `{}`, {what}", dataset.path, found.name);
        match (field.kind, found.features) {
            (FieldKind::Number, _) if !found.weighted => diagnostics.push(
                Diagnostic::at(
                    codes::DATA_EDGE,
                    field.ty_span,
                    format!("the edges of `{}` have no weight in the dataset", relation.name),
                    "declared here",
                )
                .note(at("no `weight`")),
            ),
            (FieldKind::Real { width, .. }, None) => diagnostics.push(
                Diagnostic::at(
                    codes::DATA_EDGE,
                    field.ty_span,
                    format!("the edges of `{}` have no features in the dataset", relation.name),
                    format!("declared with {width} columns"),
                )
                .note(at("no `features` table")),
            ),
            (FieldKind::Real { width, .. }, Some(columns)) if width != columns => diagnostics.push(
                Diagnostic::at(
                    codes::DATA_WIDTH,
                    field.ty_span,
                    format!("`{}.{}` has {columns} columns in the dataset, not {width}", relation.name, field.name),
                    format!("expected f32[{columns}]"),
                )
                .note(at(&format!("features.dim = {columns}"))),
            ),
            _ => {}
        }
    }
    if found.edges == 0 && relation.used.get() {
        diagnostics.push(
            Diagnostic::at(
                codes::EMPTY_RELATION,
                relation.span,
                format!("relation `{}` has no edges in the dataset", relation.name),
                "sends no messages",
            )
            .note(format!("{}: [[relation]] `{}`, edges = 0", dataset.path, found.name)),
        );
    }
}

fn check_label(owner: &str, field: &FieldInfo, place: RowsOf, dataset: &DatasetSummary, diagnostics: &mut Diagnostics) {
    let of_rows = || dataset.labels.iter().filter(|l| l.of == place);
    let Some(found) = find_label(field, place, dataset) else {
        let names: Vec<&str> = of_rows().map(|l| l.name.as_str()).collect();
        let what = match &field.dataset_name {
            Some(name) => format!("`{}` has no label `{name}` in the dataset", owner),
            None => format!("`{}` has no label in the dataset", owner),
        };
        diagnostics.push(Diagnostic::at(codes::DATA_LABEL, field.span, what, "not in the dataset").note(format!(
            "{}: [[label]] of `{}` has {}",
            dataset.path,
            dataset.name_of(place),
            list(names.iter().copied())
        )));
        return;
    };
    let at = |what: String| format!("{}: [[label]] of `{}`, {what}", dataset.path, dataset.name_of(place));
    let (declared, stored) = match (field.kind, found.kind) {
        (FieldKind::Class(a), LabelSummaryKind::Class(b))
        | (FieldKind::MultiLabel(a), LabelSummaryKind::Multi(b))
        | (FieldKind::Target(a), LabelSummaryKind::Real(b)) => (a, b),
        (_, kind) => {
            let (kind, fitting) = match kind {
                LabelSummaryKind::Class(n) => ("single", format!("class[{n}]")),
                LabelSummaryKind::Multi(n) => ("multi", format!("multilabel[{n}]")),
                LabelSummaryKind::Real(n) => ("real", format!("target[{n}]")),
            };
            diagnostics.push(
                Diagnostic::at(
                    codes::DATA_LABEL,
                    field.ty_span,
                    format!("`{}.{}` is a label of another kind in the dataset", owner, field.name),
                    format!("expected {fitting}"),
                )
                .note(at(format!("kind = \"{kind}\""))),
            );
            return;
        }
    };
    if declared != stored {
        diagnostics.push(
            Diagnostic::at(
                codes::DATA_CLASSES,
                field.ty_span,
                format!("`{}.{}` has {stored} classes in the dataset, not {declared}", owner, field.name),
                format!("expected {stored}"),
            )
            .note(at(format!("classes = {stored}"))),
        );
    }
}

/// A use of a split.
struct Needed<'s> {
    /// The train block, which may name it.
    train: Option<&'s TrainSpec>,
    /// Its name on the command line.
    asked: Option<&'s str>,
    /// The place in the source that needs it.
    at: Span,
    /// The reason for it there.
    why: &'static str,
}

/// The split of the vertices of a type or the edges of a relation.
fn check_split_of(place: RowsOf, needed: &Needed<'_>, dataset: &DatasetSummary, diagnostics: &mut Diagnostics) {
    let names = dataset.splits.iter().filter(|(_, of)| *of == place).map(|(n, _)| n.as_str()).collect();
    let of = format!("`{}`", dataset.name_of(place));
    let table = format!("[[split]] of {of}");
    check_split(needed, (&of, table, names), dataset, diagnostics);
}

/// A split, of which the dataset's tables have those of these names.
fn check_split(
    Needed { train, asked, at, why }: &Needed<'_>,
    (of, tables, names): (&str, String, Vec<&str>),
    dataset: &DatasetSummary,
    diagnostics: &mut Diagnostics,
) {
    let note = format!("{}: {tables} has {}", dataset.path, list(names.iter().copied()));
    let own = train.and_then(|train| train.training.split.as_deref());
    match asked.or(own) {
        Some(name) if names.contains(&name) => {}
        Some(name) => {
            let message = format!("the dataset has no split `{name}` of {of}");
            let report = match (asked, train.and_then(|train| train.split_span)) {
                (None, Some(span)) => Diagnostic::at(codes::DATA_SPLIT, span, message, "not in the dataset"),
                _ => Diagnostic::new(codes::DATA_SPLIT, message),
            };
            diagnostics.push(did_you_mean(report.note(note), name, names));
        }
        None if names.is_empty() => diagnostics
            .push(Diagnostic::at(codes::DATA_SPLIT, *at, format!("the dataset has no split of {of}"), *why).note(note)),
        None if names.len() > 1 => diagnostics.push(
            Diagnostic::at(
                codes::DATA_SPLIT,
                *at,
                format!("the dataset has several splits of {of}"),
                "does not say which",
            )
            .note(note)
            .help(format!("write `split \"{0}\"`, or give `--split {0}`", names[0])),
        ),
        None => {}
    }
}

fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const SHOWN: usize = 12;
    let names: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    match names.len() {
        0 => "none".to_string(),
        n if n > SHOWN => format!("{}, and {} more", names[..SHOWN].join(", "), n - SHOWN),
        _ => names.join(", "),
    }
}
