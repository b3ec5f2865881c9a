//! Makes a dataset of the arrays of a graph.

use std::collections::HashSet;
use std::path::Path;

use hgnnc_dataset::{
    Dataset, DenseFeatures, FloatArray, LabelData, LabelValues, RelationData, SplitData, VertexTypeData,
};

use super::JOINER;
use super::items::{Cx, Item, Matrix};
use super::mapping::Mapping;
use super::scan::{self, Graph};
use crate::error::{Faults, ImportError, shown};
use crate::export::named_classes;
use crate::progress::Progress;
use crate::triples::name_of;
use crate::values::features;

/// Reads the folder `source`, which holds `raw`.
///
/// # Errors
/// With all faults of the files.
pub(crate) fn read(source: &Path, progress: &Progress) -> Result<Dataset, ImportError> {
    let raw = source.join("raw");
    if !raw.is_dir() {
        let message =
            "there is no folder `raw` in it: name the folder of one graph, such as `ogbn_mag`, after it was unpacked";
        return Err(Faults::one(source, message));
    }
    expect(&raw, progress);
    let mut cx = Cx { progress, faults: Faults::default() };
    let Some(graph) = scan::scan(&raw, &mut cx) else { return cx.faults.or(Dataset::default()) };
    let mapping = Mapping::new(source);
    let mut dataset = Dataset { name: name_of(source), ..Dataset::default() };
    for ty in 0..graph.types.len() {
        let vertices = vertex_type(&graph, ty, &mapping, &mut cx);
        dataset.vertex_types.push(vertices);
    }
    let names = relation_names(&graph);
    for (of, name) in graph.relations.iter().zip(names) {
        let relation = relation(&graph, of, name, &mut cx);
        dataset.relations.push(relation);
    }
    for ty in 0..graph.types.len() {
        let label = label(&graph, ty, &mut cx);
        dataset.labels.extend(label);
    }
    name_classes(&mut dataset, &mapping, &mut cx);
    splits(&source.join("split"), &graph, &mut dataset, &mut cx);
    cx.faults.or(dataset)
}

/// Adds the files of a folder to what will be read.
fn expect(folder: &Path, progress: &Progress) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() { expect(&path, progress) } else { progress.expect(&path) }
    }
}

fn vertex_type(graph: &Graph, ty: usize, mapping: &Mapping, cx: &mut Cx<'_>) -> VertexTypeData {
    let of = &graph.types[ty];
    let mut data = VertexTypeData { name: of.name.clone(), count: of.count, ..VertexTypeData::default() };
    let rows = format!("vertices of `{}`", shown(&of.name));
    for (attribute, item) in &of.attributes {
        match &attribute[..] {
            "feat" => {
                let found = item.floats(of.count, &rows, cx);
                data.features = found.map(|Matrix { columns, values }| features(columns, values));
            }
            "year" | "time" if data.time.is_none() => data.time = item.integers(1, Some(of.count), &rows, cx),
            _ => left_out("node", attribute, &of.name, item, cx),
        }
    }
    data.ids = mapping.ids(graph, ty, cx);
    data
}

fn left_out(of: &str, attribute: &str, name: &str, item: &Item, cx: &Cx<'_>) {
    let (name, file) = (shown(name), item.file().display());
    cx.progress.note(format!(
        "`{of}_{attribute}` of `{name}` is left out: a dataset has features, a time and a weight of an edge ({file})"
    ));
}

/// Names that differ: those of relations, with the types of their ends where several have one.
fn relation_names(graph: &Graph) -> Vec<String> {
    let count = |name: &str| graph.relations.iter().filter(|of| of.name == name).count();
    let full =
        |of: &scan::Relation| [&graph.types[of.head].name[..], &of.name, &graph.types[of.tail].name].join(JOINER);
    let mut taken = HashSet::new();
    let name = |of: &scan::Relation| {
        let mut name = if count(&of.name) == 1 { of.name.clone() } else { full(of) };
        while !taken.insert(name.clone()) {
            name.push('_');
        }
        name
    };
    graph.relations.iter().map(name).collect()
}

fn relation(graph: &Graph, of: &scan::Relation, name: String, cx: &mut Cx<'_>) -> RelationData {
    let mut data = RelationData { name, src: of.head, dst: of.tail, ..RelationData::default() };
    let Some([src, dst]) = of.edges.edges(cx) else { return data };
    let (heads, tails) = (&graph.types[of.head], &graph.types[of.tail]);
    data.src_ids = ids(&of.edges, &src, "source", heads, cx);
    data.dst_ids = ids(&of.edges, &dst, "destination", tails, cx);
    let edges = src.len();
    if let Some(stated) = of.stated.filter(|&stated| stated != edges as i64) {
        of.edges.wrong(
            None,
            format!("there are {edges} edges, but `num-edge-list.csv.gz` beside it says {stated}"),
            cx,
        );
    }
    let rows = format!("edges of `{}`", shown(&data.name));
    let mut columns: Vec<Matrix<FloatArray>> = Vec::new();
    for (attribute, item) in &of.attributes {
        match &attribute[..] {
            "feat" => columns.splice(0..0, item.floats(edges, &rows, cx)).for_each(drop),
            "year" | "time" if data.time.is_none() => data.time = item.integers(1, Some(edges), &rows, cx),
            "weight" if data.weight.is_none() => match item.floats(edges, &rows, cx) {
                Some(found) if found.columns == 1 || edges == 0 => data.weight = Some(found.values),
                Some(_) => item.wrong(None, "a weight is one number".into(), cx),
                None => {}
            },
            "reltype" => {
                let Some(found) = item.floats(edges, &rows, cx) else { continue };
                let same = found.values.chunks(found.columns.max(1)).all(|row| row == &found.values[..found.columns]);
                let name = shown(&data.name);
                if same {
                    cx.progress.note(format!("`edge_reltype` is the same for all edges of `{name}`: left out"));
                } else {
                    cx.progress.note(format!("`edge_reltype` of `{name}` becomes the last columns of its features"));
                    columns.push(found);
                }
            }
            _ => left_out("edge", attribute, &data.name, item, cx),
        }
    }
    data.features = beside(columns, edges);
    data
}

/// Matrices side by side.
fn beside(mut parts: Vec<Matrix<FloatArray>>, rows: usize) -> Option<DenseFeatures> {
    if parts.len() < 2 {
        return parts.pop().map(|Matrix { columns, values }| DenseFeatures { dim: columns, rows: values });
    }
    let dim = parts.iter().map(|part| part.columns).sum();
    let row =
        |row: usize| parts.iter().flat_map(move |part| &part.values[row * part.columns..(row + 1) * part.columns]);
    Some(DenseFeatures { dim, rows: (0..rows).flat_map(row).copied().collect::<Vec<f32>>().into() })
}

/// Vertices of a type; others are reported.
fn ids(item: &Item, values: &[i64], what: &str, of: &scan::Type, cx: &mut Cx<'_>) -> Vec<u32> {
    let is_wrong = |&value: &i64| value < 0 || value as u64 >= of.count as u64;
    if let Some(row) = values.iter().position(is_wrong) {
        let more = values[row + 1..].iter().filter(|value| is_wrong(value)).count();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        let (value, name, count) = (values[row], shown(&of.name), of.count);
        item.wrong(Some(row), format!("{what} {value} is no vertex of `{name}`, of which there are {count}{more}"), cx);
        return Vec::new();
    }
    values.iter().map(|&value| value as u32).collect()
}

fn label(graph: &Graph, vertex_type: usize, cx: &mut Cx<'_>) -> Option<LabelData> {
    let of = &graph.types[vertex_type];
    let item = of.label.as_ref()?;
    let Matrix { columns, values } = item.targets(of.count, &format!("vertices of `{}`", shown(&of.name)), cx)?;
    if columns == 0 {
        return None;
    }
    let label = |values| LabelData { name: "y".into(), vertex_type, values, class_names: Vec::new() };
    let is_class = |x: &f64| x.is_nan() || (x.fract() == 0.0 && (0.0..f64::from(1 << 24)).contains(x));
    if columns == 1 && values.iter().all(is_class) {
        let of: Vec<i32> = values.iter().map(|&x| if x.is_nan() { -1 } else { x as i32 }).collect();
        let classes = of.iter().max().map_or(0, |&most| most + 1);
        if classes == 0 {
            item.wrong(None, "no vertex has a label".into(), cx);
            return None;
        }
        return Some(label(LabelValues::Single { classes: classes as usize, of }));
    }
    let rows = values.chunks_exact(columns);
    let labelled: Vec<bool> = rows.clone().map(|row| !row.iter().any(|x| x.is_nan())).collect();
    if let Some(row) = rows.clone().position(|row| row.iter().any(|x| x.is_nan()) && !row.iter().all(|x| x.is_nan())) {
        let message = "some labels of the vertex are nan and others not, but a dataset has all labels of a vertex or none: set them, or all to nan";
        item.wrong(Some(row), message.into(), cx);
        return None;
    }
    let numbers: Vec<f32> = values.iter().map(|&x| if x.is_nan() { 0.0 } else { x as f32 }).collect();
    if let Some(at) = numbers.iter().position(|x| !x.is_finite()) {
        let message = format!("the label {} is too large for a number of 32 bits: scale the labels", values[at]);
        item.wrong(Some(at / columns), message, cx);
        return None;
    }
    let is_flag = |x: &f32| *x == 0.0 || *x == 1.0;
    Some(label(if columns > 1 && numbers.iter().all(is_flag) {
        LabelValues::Multi { classes: columns, rows: numbers, labelled }
    } else {
        LabelValues::Real { dim: columns, rows: numbers, labelled }
    }))
}

/// Names the classes of the one label of the dataset.
fn name_classes(dataset: &mut Dataset, mapping: &Mapping, cx: &mut Cx<'_>) {
    let [label] = &mut dataset.labels[..] else { return };
    let Some(names) = mapping.classes(cx) else { return };
    match &mut label.values {
        // Classes that no vertex has.
        LabelValues::Single { classes, .. } if *classes <= names.len() => *classes = names.len(),
        LabelValues::Multi { classes: columns, .. } | LabelValues::Real { dim: columns, .. }
            if *columns == names.len() => {}
        _ => {
            return cx.progress.note(format!(
                "{} names of classes in `mapping` are not as many as the labels have: not taken",
                names.len()
            ));
        }
    }
    label.class_names = named_classes(names);
}

/// Reads the splits: a folder for each, in it one for each type that has it.
fn splits(folder: &Path, graph: &Graph, dataset: &mut Dataset, cx: &mut Cx<'_>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut schemes: Vec<_> = entries.filter(|entry| entry.path().is_dir()).map(|entry| entry.file_name()).collect();
    schemes.sort();
    for scheme in schemes {
        let scheme = folder.join(scheme);
        if scheme.join("split_dict.pt").is_file() {
            cx.progress.note(format!(
                "`{}` is a pickle of PyTorch, which is not read: write its parts as tables (train.csv.gz, …)",
                scheme.join("split_dict.pt").display()
            ));
        }
        let name = scheme.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for (vertex_type, ty) in graph.types.iter().enumerate() {
            let folder = if graph.hetero { scheme.join(&ty.name) } else { scheme.clone() };
            let files = ["train", "valid", "test"].map(|part| scan::table(&folder, part));
            if files.iter().all(Option::is_none) {
                continue;
            }
            let Some(label) = dataset.labels.iter().find(|label| label.vertex_type == vertex_type) else {
                cx.progress.note(format!(
                    "split `{}` is of `{}`, which has no labels: left out",
                    shown(&name),
                    shown(&ty.name)
                ));
                continue;
            };
            let mut taken = HashSet::new();
            let [train, val, test] = files.map(|file| {
                let Some(file) = file else { return Vec::new() };
                part(&Item::Csv(file), ty, label, &mut taken, cx)
            });
            dataset.splits.push(SplitData { name: name.clone(), vertex_type, train, val, test });
        }
    }
}

/// The vertices of a part, each with its label and in no other part.
fn part(item: &Item, ty: &scan::Type, label: &LabelData, taken: &mut HashSet<u32>, cx: &mut Cx<'_>) -> Vec<u32> {
    let Some(values) = item.integers(1, None, "", cx) else { return Vec::new() };
    let all = ids(item, &values, "vertex", ty, cx);
    let (mut part, mut unlabelled) = (Vec::with_capacity(all.len()), 0);
    for (row, vertex) in all.into_iter().enumerate() {
        if !taken.insert(vertex) {
            item.wrong(
                Some(row),
                format!("vertex {vertex} is in the split already: a vertex is in one part, once"),
                cx,
            );
        } else if label.is_labelled(vertex as usize) {
            part.push(vertex);
        } else {
            unlabelled += 1;
        }
    }
    if unlabelled > 0 {
        cx.progress.note(format!("{unlabelled} vertices of `{}` have no label: left out", item.file().display()));
    }
    part.sort_unstable();
    part
}
