//! Writes a dataset as CSV files, and the `import.toml` that reads them back.

use std::fs::File;
use std::path::{Path, PathBuf};

use hgnnc_dataset::write::{WriteError, stem};
use hgnnc_dataset::{
    Dataset, DenseFeatures, EdgeLabel, EdgeSplit, Features, LabelData, LabelValues, LinkSplitData, RelationData,
    SplitData, VertexTypeData,
};
use toml::{Table, Value};

use crate::error::shown;
use crate::export::{ExportError, Holds, Joined, Notes, Number, class_names, unwritable_ids};

/// Features of more columns stand in one, as vectors.
const MOST_COLUMNS: usize = 32;

/// Writes the files to an empty folder.
pub(crate) fn write(dataset: &Dataset, folder: &Path, notes: &mut Notes) -> Result<(), ExportError> {
    let holds = Holds { vertex_times: true, edge_attributes: true, edge_labels: true, link_splits: usize::MAX };
    notes.unheld("tables", &holds, dataset);
    let mut writer = Writer { dataset, folder, notes };
    let mut config = Table::new();
    config.insert("name".into(), dataset.name.clone().into());
    dataset.title.iter().for_each(|title| drop(config.insert("title".into(), title.clone().into())));
    // Nothing but an empty field: an id may be called `NA`.
    config.insert("missing_values".into(), vec![""].into());
    let has_ids: Vec<bool> = dataset.vertex_types.iter().map(|of| writer.has_ids(of)).collect();
    let mut types = Vec::new();
    for (ty, has_ids) in has_ids.iter().enumerate() {
        types.push(writer.vertex_type(ty, *has_ids)?);
    }
    config.insert("vertex_type".into(), Value::Array(types));
    let mut relations = Vec::new();
    for (index, of) in dataset.relations.iter().enumerate() {
        relations.push(writer.relation(index, of, &has_ids)?);
    }
    if !relations.is_empty() {
        config.insert("relation".into(), Value::Array(relations));
    }
    let mut link_splits = Vec::new();
    for (index, of) in dataset.link_splits.iter().enumerate() {
        link_splits.extend(writer.link_split(index, of, &has_ids)?);
    }
    if !link_splits.is_empty() {
        config.insert("link_split".into(), Value::Array(link_splits));
    }
    let path = folder.join("import.toml");
    let text = toml::to_string(&config).map_err(|error| WriteError::io(&path)(std::io::Error::other(error)))?;
    Ok(std::fs::write(&path, text).map_err(WriteError::io(&path))?)
}

struct Writer<'a, 'n> {
    dataset: &'a Dataset,
    folder: &'a Path,
    notes: &'n mut Notes,
}

/// The columns of a table: the name of each, and what writes a field of a row.
#[derive(Default)]
struct Columns<'a> {
    names: Vec<String>,
    fields: Vec<Field<'a>>,
    /// The names of columns that were there already, with those that they have instead.
    renamed: Vec<[String; 2]>,
}

/// Makes the field of a row.
type Field<'a> = Box<dyn Fn(usize) -> String + 'a>;

impl<'a> Columns<'a> {
    /// Adds a column with this name, or a longer one if there is one with it. Returns its name.
    fn add(&mut self, name: &str, field: impl Fn(usize) -> String + 'a) -> String {
        let asked = name;
        let mut name = name.to_owned();
        while self.names.contains(&name) {
            name.push('_');
        }
        if name != asked {
            self.renamed.push([asked.to_owned(), name.clone()]);
        }
        self.names.push(name.clone());
        self.fields.push(Box::new(field));
        name
    }

    /// Adds columns of numbers: those of `x`.
    fn add_dense(&mut self, x: &'a DenseFeatures) -> Value {
        let name = |column: usize| format!("x{column}");
        let names = (0..x.dim).map(|column| self.add(&name(column), move |row| Number(x.row(row)[column]).to_string()));
        names.collect::<Vec<_>>().into()
    }

    fn write(self, path: &Path, rows: usize, notes: &mut Notes) -> Result<(), WriteError> {
        for [asked, name] in &self.renamed {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let (asked, name) = (shown(asked), shown(name));
            notes.add(format!("the column `{asked}` of `{file}` is called `{name}`: another one has its name"));
        }
        let wrong = |error: csv::Error| WriteError::io(path)(error.into());
        let file = File::create(path).map_err(WriteError::io(path))?;
        let mut out = csv::Writer::from_writer(file);
        out.write_record(&self.names).map_err(wrong)?;
        for row in 0..rows {
            out.write_record(self.fields.iter().map(|field| field(row))).map_err(wrong)?;
        }
        out.flush().map_err(WriteError::io(path))
    }
}

/// A label of vertices or edges.
struct LabelOf<'a> {
    name: &'a str,
    values: &'a LabelValues,
    class_names: &'a [String],
}

/// Adds tables to a configuration, if there are any.
fn insert_tables(config: &mut Table, key: &str, tables: Vec<Value>) {
    if !tables.is_empty() {
        config.insert(key.into(), Value::Array(tables));
    }
}

/// Adds the column of a split of `count` rows, and returns its table.
fn split_column(name: &str, ids: [&Vec<u32>; 3], count: usize, columns: &mut Columns<'_>) -> Table {
    let mut parts = vec![""; count];
    for (part, ids) in ["train", "val", "test"].into_iter().zip(ids) {
        ids.iter().for_each(|&id| parts[id as usize] = part);
    }
    let column = columns.add(&format!("split_{}", safe(name)), move |row| parts[row].to_owned());
    table([("name", name.into()), ("column", column.into())])
}

/// A table of the configuration.
fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

impl<'a> Writer<'a, '_> {
    /// Whether the ids of a type can stand in a table.
    fn has_ids(&mut self, of: &VertexTypeData) -> bool {
        match unwritable_ids(of, |id| id.trim() != id) {
            Some(why) => {
                self.notes.add(format!("{why}; vertices are known by the numbers of their rows"));
                false
            }
            None => of.ids.is_some(),
        }
    }

    fn vertex_type(&mut self, ty: usize, has_ids: bool) -> Result<Value, ExportError> {
        let dataset = self.dataset;
        let of = &dataset.vertex_types[ty];
        let file = format!("{}.csv", stem(ty, &of.name));
        let mut config = table([("name", of.name.clone().into()), ("files", file.clone().into())]);
        let mut columns = Columns::default();
        match of.ids.as_ref().filter(|_| has_ids) {
            Some(ids) => {
                let id = columns.add("id", |vertex| ids.text(vertex).into_owned());
                config.insert("id".into(), id.into());
            }
            None => drop(columns.add("vertex", |vertex| vertex.to_string())),
        }
        if let Some(time) = &of.time {
            config.insert("time".into(), columns.add("time", |vertex| time[vertex].to_string()).into());
        }
        if let Some(x) = of.features.as_ref().filter(|x| x.dim() > 0) {
            config.insert("features".into(), Value::Array(vec![features(x, &mut columns).into()]));
        }
        let mut labels = Vec::new();
        for LabelData { name, values, class_names, .. } in dataset.labels.iter().filter(|label| label.vertex_type == ty)
        {
            labels.push(self.label(LabelOf { name, values, class_names }, &mut columns).into());
        }
        insert_tables(&mut config, "label", labels);
        let splits = dataset.splits.iter().filter(|split| split.vertex_type == ty);
        let splits = splits.map(|SplitData { name, train, val, test, .. }| {
            split_column(name, [train, val, test], of.count, &mut columns).into()
        });
        insert_tables(&mut config, "split", splits.collect());
        columns.write(&self.folder.join(file), of.count, self.notes)?;
        Ok(config.into())
    }

    fn label(&mut self, label: LabelOf<'a>, columns: &mut Columns<'a>) -> Table {
        let mut config = table([("name", label.name.into())]);
        let column = safe(label.name);
        match label.values {
            LabelValues::Single { of, .. } => {
                let names = self.written_names(&label, "");
                config.insert("class_names".into(), names.clone().into());
                let class =
                    move |vertex: usize| usize::try_from(of[vertex]).map_or(String::new(), |c| names[c].clone());
                config.insert("column".into(), columns.add(&column, class).into());
            }
            LabelValues::Multi { classes, rows, labelled } => {
                // Without blanks, which are cut off a cell that is a separator alone.
                let separator = [";", "|", "/", "\u{1f}"]
                    .into_iter()
                    .find(|separator| !label.class_names.iter().any(|name| name.contains(separator)));
                let separator = separator.unwrap_or(";");
                let names = self.written_names(&label, separator);
                config.insert("kind".into(), "multi".into());
                config.insert("separator".into(), separator.into());
                config.insert("class_names".into(), names.clone().into());
                let set = move |vertex: usize| {
                    if !labelled[vertex] {
                        return String::new();
                    }
                    let row = &rows[vertex * classes..(vertex + 1) * classes];
                    let set: Vec<&str> =
                        row.iter().zip(&names).filter(|(y, _)| **y != 0.0).map(|(_, n)| &n[..]).collect();
                    // A label of no class, which an empty field is not.
                    if set.is_empty() { separator.to_owned() } else { set.join(separator) }
                };
                config.insert("column".into(), columns.add(&column, set).into());
            }
            LabelValues::Real { dim, rows, labelled } => {
                let number = move |column: usize| {
                    move |vertex: usize| match labelled[vertex] {
                        true => Number(rows[vertex * dim + column]).to_string(),
                        false => String::new(),
                    }
                };
                let name = |at: usize| {
                    let own = label.class_names.get(at).filter(|name| !name.is_empty() && name.trim() == *name);
                    own.cloned().unwrap_or_else(|| if *dim == 1 { column.clone() } else { format!("{column}{at}") })
                };
                let names: Vec<String> = (0..*dim).map(|at| columns.add(&name(at), number(at))).collect();
                config.insert("kind".into(), "real".into());
                config.insert("columns".into(), names.into());
            }
        }
        config
    }

    /// Names of classes that read back as they are: their numbers, which is noted, if one of them does not.
    fn written_names(&mut self, label: &LabelOf<'_>, separator: &str) -> Vec<String> {
        let names = class_names(label.values, label.class_names);
        let mut seen = std::collections::HashSet::new();
        let is_kept = |name: &String| {
            let separates = !separator.is_empty() && name.contains(separator);
            !name.is_empty() && name.trim() == name && !separates && seen.insert(name.clone())
        };
        if names.iter().all(is_kept) {
            return names;
        }
        self.notes.add(format!(
            "names of the classes of `{}` are left out: one is empty, there twice, or has blanks at an end",
            shown(label.name)
        ));
        (0..names.len()).map(|class| class.to_string()).collect()
    }

    fn relation(&mut self, index: usize, of: &'a RelationData, has_ids: &[bool]) -> Result<Value, ExportError> {
        let types = &self.dataset.vertex_types;
        let file = PathBuf::from(format!("{}.edges.csv", stem(index, &of.name)));
        let mut config = table([
            ("name", of.name.clone().into()),
            ("src", types[of.src].name.clone().into()),
            ("dst", types[of.dst].name.clone().into()),
            ("files", file.to_string_lossy().into_owned().into()),
            ("src_key", "src".into()),
            ("dst_key", "dst".into()),
        ]);
        let mut columns = Columns::default();
        let end = |ty: usize, vertices: &'a [u32]| {
            let ids = types[ty].ids.as_ref().filter(|_| has_ids[ty]);
            move |edge: usize| match ids {
                Some(ids) => ids.text(vertices[edge] as usize).into_owned(),
                None => vertices[edge].to_string(),
            }
        };
        columns.add("src", end(of.src, &of.src_ids));
        columns.add("dst", end(of.dst, &of.dst_ids));
        if let Some(weight) = &of.weight {
            config.insert("weight".into(), columns.add("weight", |edge| Number(weight[edge]).to_string()).into());
        }
        if let Some(time) = &of.time {
            config.insert("time".into(), columns.add("time", |edge| time[edge].to_string()).into());
        }
        if let Some(x) = of.features.as_ref().filter(|x| x.dim > 0) {
            config.insert("features".into(), columns.add_dense(x));
        }
        let mut labels = Vec::new();
        for EdgeLabel { name, values, class_names } in &of.labels {
            labels.push(self.label(LabelOf { name, values, class_names }, &mut columns).into());
        }
        insert_tables(&mut config, "label", labels);
        let splits = of.splits.iter().map(|EdgeSplit { name, train, val, test }| {
            split_column(name, [train, val, test], of.num_edges(), &mut columns).into()
        });
        insert_tables(&mut config, "split", splits.collect());
        columns.write(&self.folder.join(file), of.num_edges(), self.notes)?;
        Ok(config.into())
    }
}

impl<'a> Writer<'a, '_> {
    /// None for a split without links.
    fn link_split(
        &mut self,
        index: usize,
        of: &'a LinkSplitData,
        has_ids: &[bool],
    ) -> Result<Option<Value>, ExportError> {
        let (types, relations) = (&self.dataset.vertex_types, &self.dataset.relations);
        let mut config = table([
            ("name", of.name.clone().into()),
            ("column", "relation".into()),
            ("src_key", "src".into()),
            ("dst_key", "dst".into()),
        ]);
        for (part, links) in [("val", &of.val), ("test", &of.test)] {
            if links.is_empty() {
                continue;
            }
            let relation = |link: usize| &relations[links.relation[link] as usize];
            let id = |ty: usize, vertex: u32| match types[ty].ids.as_ref().filter(|_| has_ids[ty]) {
                Some(ids) => ids.text(vertex as usize).into_owned(),
                None => vertex.to_string(),
            };
            let file = format!("links{index}.{part}.csv");
            let mut columns = Columns::default();
            columns.add("relation", |link| relation(link).name.clone());
            columns.add("src", |link| id(relation(link).src, links.src[link]));
            columns.add("dst", |link| id(relation(link).dst, links.dst[link]));
            columns.write(&self.folder.join(&file), links.len(), self.notes)?;
            config.insert(part.into(), file.into());
        }
        Ok((!of.val.is_empty() || !of.test.is_empty()).then(|| config.into()))
    }
}

/// Adds the columns of features: one for each, or one with vectors.
fn features<'a>(x: &'a Features, columns: &mut Columns<'a>) -> Table {
    if let Features::Dense(x) = x
        && x.dim <= MOST_COLUMNS
    {
        return table([("columns", columns.add_dense(x))]);
    }
    let vector = move |vertex: usize| match x {
        Features::Dense(x) => Joined(x.row(vertex), ' ').to_string(),
        Features::Sparse(x) => {
            let mut row = vec![0.0; x.dim];
            let (columns, values) = x.row(vertex);
            columns.iter().zip(values).for_each(|(&column, &value)| row[column as usize] = value);
            Joined(&row, ' ').to_string()
        }
    };
    let column = columns.add("x", vector);
    table([("column", column.into()), ("vector", true.into()), ("separator", " ".into())])
}

/// A name as one of a column.
fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}
