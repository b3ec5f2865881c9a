//! Sizes of a dataset without the dataset.

use std::path::Path;

use hgnnc_dataset::files;
use hgnnc_driver::{Analyzed, Endpoints, SizeInfo};
use hgnnc_ir::dataflow::{Matrix, PatternDecl, train_labels};

use crate::Error;

/// Reads the sizes of a model's tables by name from a JSON file, in place of those of a dataset: objects `vertices` (by
/// vertex type) and `edges` (by semantic graph); `sources`, `destinations`, `max_out` and `max_in` (by semantic graph),
/// `stored` and `columns` (by vertex type with sparse features, `Paper.words` for the dataset's field `words`, or
/// `train_labels(Paper.topic)` for its label `topic` as an input) may be left out.
///
/// # Errors
/// A file that cannot be read or is not JSON, and a number that is missing.
pub fn read_sizes(path: &Path, model: &Analyzed) -> Result<SizeInfo, Error> {
    let text = files::read_to_string(path).map_err(|error| Error::read(path, &error))?;
    let json: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Error::input(format!("`{}` is not JSON: {error}", path.display())))?;
    let missing =
        |key: &str, name: &str| Error::input(format!("`{}` has no number for `{name}` in `{key}`", path.display()));
    let find = |key: &str, name: &str| {
        json.get(key).and_then(|table| table.get(name)?.as_u64()).ok_or_else(|| missing(key, name))
    };
    // A missing table is unknown; a table that is present must be complete.
    let all = |key: &str, names: &[&str]| match json.get(key) {
        None => Ok(vec![]),
        Some(_) => names.iter().map(|name| find(key, name)).collect::<Result<Vec<u64>, _>>(),
    };
    let flow = &model.flow;
    let graphs: Vec<&str> = flow.graphs.iter().map(|g| &g.name[..]).collect();
    let pattern = |decl: &PatternDecl| {
        let vertex = &flow.vertex_types[decl.vertex.index()].name;
        match &decl.matrix {
            Matrix::Features => vertex.clone(),
            Matrix::Field(field) => format!("{vertex}.{field}"),
            Matrix::TrainLabels(label) => train_labels(&format!("{vertex}.{label}")),
        }
    };
    let patterns: Vec<String> = flow.patterns.iter().map(pattern).collect();
    let patterns: Vec<&str> = patterns.iter().map(String::as_str).collect();
    let keys = ["sources", "destinations", "max_out", "max_in"];
    let known = keys.iter().all(|key| json.get(key).is_some());
    let [sources, destinations, max_out, max_in] = keys.map(|key| all(key, &graphs));
    let (sources, destinations, max_out, max_in) = (sources?, destinations?, max_out?, max_in?);
    let endpoints =
        |i| Endpoints { sources: sources[i], destinations: destinations[i], max_out: max_out[i], max_in: max_in[i] };
    Ok(SizeInfo {
        vertices: flow.vertex_types.iter().map(|v| find("vertices", &v.name)).collect::<Result<_, _>>()?,
        edges: graphs.iter().map(|name| find("edges", name)).collect::<Result<_, _>>()?,
        ends: if known { (0..graphs.len()).map(endpoints).collect() } else { vec![] },
        stored: all("stored", &patterns)?,
        columns: all("columns", &patterns)?,
    })
}
